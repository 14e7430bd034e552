"""The names that TVM has for errors, which programs catch."""

from relaxpy.errors import (
    ParseError as DiagnosticError,
    RelaxpyError as InternalError,
    RelaxpyError as OpError,
    RelaxpyError as TVMError,
)

__all__ = ["DiagnosticError", "InternalError", "OpError", "TVMError"]
