"""Operators on the elements of three tensors."""

from __future__ import annotations

from relaxpy.ir.relax.nodes import TensorStructInfo
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import elementwise
from relaxpy.ir.relax.op.definition.layouts import elementwise_layout
from relaxpy.ir.relax.op.definition.registry import register
from relaxpy.ir.relax.op.definition.sharding import broadcast_axes

_gradient = elementwise(
    lambda g, a, b, c, y: g * b, lambda g, a, b, c, y: g * a, lambda g, a, b, c, y: g
)


@register(
    "relax.ewise_fma",
    sharding=broadcast_axes,
    layout=elementwise_layout,
    precision_policy=1,
    pure=True,
    legalize=rules.by_te("fused_multiply_add", "ewise_fma"),
    gradient=_gradient,
)
def ewise_fma(x1: TensorStructInfo, x2: TensorStructInfo, x3: TensorStructInfo) -> TensorStructInfo:
    """x1 * x2 + x3.

    Shapes:
        x1, x2, x3  of one shape and one datatype
        result      as they
    Errors:
        StructInfoError: ranks or datatypes differ, or known sizes are not provably equal.
    """
    sinfos = (x1, x2, x3)
    dtype, vdevice = (
        rules.common_dtype(sinfos, "x1, x2, x3"),
        rules.joint_vdevice(sinfos, strict=False),
    )
    ndim = rules.common_rank(sinfos, "x1, x2, x3")
    if None not in map(rules.literal_shape, sinfos):
        shapes = rules.unified_shapes(sinfos, "shapes of x1, x2, x3")
        if shapes is None:
            raise rules.refuse(
                f"x1, x2, x3 have one shape, which cannot be proved of {x1}, {x2}, {x3}",
                hint="declare one shape for them with R.match_cast first",
            )
        return rules.tensor(shapes[0], dtype, vdevice)
    if x1.shape is not None and x1.shape is x2.shape is x3.shape:
        return rules.tensor(x1.shape, dtype, vdevice, ndim)
    return rules.tensor(None, dtype, vdevice, ndim)
