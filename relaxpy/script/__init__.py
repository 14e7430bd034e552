"""Programs as text: the namespaces I, R, T, the parser and the printer."""

from relaxpy.errors import show_uncaught_errors as _show_uncaught_errors
from relaxpy.script import ir, relax, tir
from relaxpy.script.diagnostics import show_diagnostics
from relaxpy.script.ir import ir_module
from relaxpy.script.read import from_source, from_source as parse
from relaxpy.support.missing import hint_at_absent as _hint_at_absent

#: The newer names of `tir`.
s_tir = tirx = tir

_show_uncaught_errors()
_hint_at_absent(globals())

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
