"""The names that TVM has for errors, which programs catch.

TVM reports every error in a program that it parses as a `DiagnosticError`."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.errors import (
        RelaxpyError as DiagnosticError,
        RelaxpyError as InternalError,
        RelaxpyError as OpAttributeInvalid,
        RelaxpyError as OpAttributeRequired,
        RelaxpyError as OpAttributeUnImplemented,
        RelaxpyError as OpError,
        RelaxpyError as OpNotImplemented,
        RelaxpyError as TVMError,
    )
else:
    _face(
        globals(),
        """
        relaxpy.errors: DiagnosticError=RelaxpyError InternalError=RelaxpyError
            OpAttributeInvalid=RelaxpyError OpAttributeRequired=RelaxpyError
            OpAttributeUnImplemented=RelaxpyError OpError=RelaxpyError OpNotImplemented=RelaxpyError
            TVMError=RelaxpyError
        """,
    )
