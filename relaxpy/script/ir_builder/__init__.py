"""Programs built by running Python: the frames and directives of I, R and T."""

from relaxpy.script.ir_builder import ir, relax, tir
from relaxpy.script.ir_builder.base import IRBuilder, IRBuilderFrame
from relaxpy.script.ir_builder.ir import (
    decl_function,
    def_function,
    ir_module,
    lookup_vdevice,
    module_attrs,
    module_get_attr,
    module_get_attrs,
    module_global_infos,
    module_set_attr,
    vdevice,
)

__all__ = [
    "IRBuilder",
    "IRBuilderFrame",
    "decl_function",
    "def_function",
    "ir",
    "ir_module",
    "lookup_vdevice",
    "module_attrs",
    "module_get_attr",
    "module_get_attrs",
    "module_global_infos",
    "module_set_attr",
    "relax",
    "tir",
    "tirx",
    "vdevice",
]

#: The name of `tir` after v0.22 of TVM.
tirx = tir
