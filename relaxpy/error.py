"""The names that TVM has for errors, which programs catch.

TVM reports every error in a program that it parses as a `DiagnosticError`.
"""

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

__all__ = [
    "DiagnosticError",
    "InternalError",
    "OpAttributeInvalid",
    "OpAttributeRequired",
    "OpAttributeUnImplemented",
    "OpError",
    "OpNotImplemented",
    "TVMError",
]
