"""Which methods of a model are exported, and what their parameters are."""

from relaxpy.ir.relax.frontend.nn.spec import (
    Int as Int,
    MethodSpec as MethodSpec,
    ModuleSpec as ModuleSpec,
    Object as Object,
    Tensor as Tensor,
    Tuple as Tuple,
)
