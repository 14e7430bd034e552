"""Programs as text: the namespaces I, R, T, the parser and the printer."""

from typing import TYPE_CHECKING

from relaxpy.errors import show_uncaught_errors as _show_uncaught_errors
from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.script import ir, relax, tir
    from relaxpy.script.error_screen import show_diagnostics
    from relaxpy.script.ir import ir_module
    from relaxpy.script.read import from_source, from_source as parse

    #: The newer names of `tir`.
    s_tir = tirx = tir
else:
    _face(
        globals(),
        """
        relaxpy.script.: ir relax s_tir=tir tir tirx=tir
        relaxpy.script.error_screen: show_diagnostics
        relaxpy.script.ir: ir_module
        relaxpy.script.read: from_source parse=from_source
        """,
    )

_show_uncaught_errors()

__all__ = [
    "from_source",
    "ir",
    "ir_module",
    "parse",
    "relax",
    "s_tir",
    "show_diagnostics",
    "tir",
    "tirx",
]
