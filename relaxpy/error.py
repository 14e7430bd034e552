"""The names that TVM has for errors, which programs catch.

TVM reports every error in a program that it parses as a `DiagnosticError`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.error")
if TYPE_CHECKING:
    from relaxpy.errors import RelaxpyError as DiagnosticError
    from relaxpy.errors import RelaxpyError as InternalError
    from relaxpy.errors import RelaxpyError as OpAttributeInvalid
    from relaxpy.errors import RelaxpyError as OpAttributeRequired
    from relaxpy.errors import RelaxpyError as OpAttributeUnImplemented
    from relaxpy.errors import RelaxpyError as OpError
    from relaxpy.errors import RelaxpyError as OpNotImplemented
    from relaxpy.errors import RelaxpyError as TVMError
    __all__ = ['DiagnosticError', 'InternalError', 'OpAttributeInvalid', 'OpAttributeRequired', 'OpAttributeUnImplemented', 'OpError', 'OpNotImplemented', 'TVMError']
