"""From text to IR, and TVM's names: the namespaces of programs, and the functions that read them."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.script.parser")
if TYPE_CHECKING:
    from relaxpy.script import ir as ir, relax as relax, tir as tir
    from relaxpy.script import tir as s_tir
    from relaxpy.script import tir as tirx
    from relaxpy.script.ir import ir_module as ir_module
    from relaxpy.script.read import from_source as from_source
    from relaxpy.script.read import from_source as parse
    from relaxpy.script.tir import prim_func as prim_func
    __all__ = ['from_source', 'ir', 'ir_module', 'parse', 'prim_func', 'relax', 's_tir', 'tir', 'tirx']
