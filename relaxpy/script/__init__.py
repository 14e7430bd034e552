"""Programs as text: the namespaces I, R, T, the parser and the printer."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face
from relaxpy.errors import show_uncaught_errors as _show_uncaught_errors

_show_uncaught_errors()

_face(globals(), "relaxpy.script")
if TYPE_CHECKING:
    from relaxpy.script import ir as ir, relax as relax, tir as tir
    from relaxpy.script import tir as s_tir
    from relaxpy.script import tir as tirx
    from relaxpy.script.error_screen import show_diagnostics as show_diagnostics
    from relaxpy.script.ir import ir_module as ir_module
    from relaxpy.script.read import from_source as from_source
    from relaxpy.script.read import from_source as parse
    __all__ = ['from_source', 'ir', 'ir_module', 'parse', 'relax', 's_tir', 'show_diagnostics', 'tir', 'tirx']
