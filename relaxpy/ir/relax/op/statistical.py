"""Reductions of tensors along axes."""

from __future__ import annotations

from relaxpy.ir.relax.nodes import TensorStructInfo
from relaxpy.ir.relax.op.registry import OpDef, register
from relaxpy.ir.relax.op.rules import by_te, literal_shape, normal_axes, one, refuse_type, tensor
from relaxpy.ir.te import topi

_FAMILY = {
    "sum": "The sum of the elements along axes; of Booleans, whether one is true.",
    "mean": "The sum along axes over the number of elements, on integers rounded toward zero.",
    "variance": "The mean of the squared distances from the mean along axes, likewise.",
    "std": "The square root of the variance along axes, likewise.",
    "max": "The largest element along axes; NaN where there is one.",
    "min": "The smallest element along axes; NaN where there is one.",
    "prod": "The product of the elements along axes; of Booleans, whether all are true.",
}
_DOC = """{meaning}

Shapes:
    x       any
    result  without the axes (all of them by default), or with size 1 there under `keepdims`
Errors:
    StructInfoError: an axis is out of range or given twice{error}.
Rule:
    Floats narrower than float32 accumulate in float32, integers of a mean in int64; the result is
    rounded once.
"""
_MEANS = frozenset(("mean", "variance", "std"))
_NOT_BOOL = ", or x holds Booleans"


def reduced(
    x: TensorStructInfo, axis: tuple[int, ...] | None, *, keepdims: bool
) -> TensorStructInfo:
    """RED: what is left of x when axes, or all where there are none given, are reduced.

    Errors:
        StructInfoError: an axis is out of range or given twice.
    """
    if axis is None and not keepdims:
        return tensor((), x.dtype, x.vdevice)
    if x.ndim < 0:
        return tensor(None, x.dtype, x.vdevice)
    gone = tuple(range(x.ndim)) if axis is None else normal_axes(axis, x.ndim)
    shape = literal_shape(x)
    if len(gone) == x.ndim:
        return tensor((one(),) * x.ndim if keepdims else (), x.dtype, x.vdevice)
    if shape is None:
        return tensor(None, x.dtype, x.vdevice, x.ndim if keepdims else x.ndim - len(gone))
    if keepdims:
        sizes = [one() if a in gone else s for a, s in enumerate(shape)]
    else:
        sizes = [s for a, s in enumerate(shape) if a not in gone]
    return tensor(sizes, x.dtype, x.vdevice)


def _reduction(name: str, meaning: str) -> OpDef:
    def infer(
        x: TensorStructInfo, axis: tuple[int, ...] | None = None, keepdims: bool = False
    ) -> TensorStructInfo:
        if x.dtype.is_bool and name in _MEANS:
            raise refuse_type(
                f"x holds numbers, found {x}", x, hint='convert it first: R.astype(x, "float32")'
            )
        return reduced(x, axis, keepdims=keepdims)

    infer.__name__ = infer.__qualname__ = name
    infer.__doc__ = _DOC.format(meaning=meaning, error=_NOT_BOOL if name in _MEANS else "")
    return register(f"relax.{name}", pure=True, legalize=by_te(getattr(topi, name), name))(infer)


REDUCTIONS = {name: _reduction(name, meaning) for name, meaning in _FAMILY.items()}
"""The operators of this family by their names without `relax.`"""
