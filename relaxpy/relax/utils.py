"""Tools for importers and passes."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.utils")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes import convert_to_expr as convert_to_expr
    from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars as copy_with_new_vars
    from relaxpy.tvm.relax.helpers import args_converter as args_converter, gen_call_tir_inputs as gen_call_tir_inputs
