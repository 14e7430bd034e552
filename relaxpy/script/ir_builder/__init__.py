"""Programs built by running Python: the frames and directives of I, R and T."""

from relaxpy.script.ir_builder import ir, relax, tir
from relaxpy.script.ir_builder.base import IRBuilder, IRBuilderFrame

__all__ = ["IRBuilder", "IRBuilderFrame", "ir", "relax", "tir", "tirx"]

#: The name of `tir` after v0.22 of TVM.
tirx = tir
