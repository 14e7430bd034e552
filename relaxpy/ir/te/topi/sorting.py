"""Sorting of tensors by packed functions that the runtime registers."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import normal_axis
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import PrimExpr

__all__ = ["argsort", "searchsorted", "sort", "topk"]


def _filled(
    shapes: Sequence[Sequence[PrimExpr]],
    dtypes: Sequence[str],
    inputs: Sequence[Tensor],
    function: str,
    *options: int,
) -> list[Tensor]:
    """The tensors that a packed function fills; it takes the inputs, the outputs and options."""
    outputs = te.extern(
        [tuple(shape) for shape in shapes],
        list(inputs),
        lambda ins, outs: intrin.call_packed(f"tvm.contrib.sort.{function}", *ins, *outs, *options),
        f"{function}_cpu",
        list(dtypes),
    )
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def sort(data: Tensor, axis: int = -1, is_ascend: int = 1) -> Tensor:
    """The elements in order along an axis; NaN counts as greater than any number."""
    axis = normal_axis(axis, data.ndim)
    return _filled([data.shape], [str(data.dtype)], [data], "sort", axis, int(is_ascend))[0]


def argsort(
    data: Tensor,
    valid_count: Tensor | None = None,
    axis: int = -1,
    is_ascend: int = 1,
    dtype: str = "float32",
) -> Tensor:
    """The indices that sort the elements along an axis; equal elements keep their order.

    With `valid_count`, only the first `valid_count` elements of each line are sorted.
    """
    axis, options = normal_axis(axis, data.ndim), (int(is_ascend),)
    if valid_count is None:
        return _filled([data.shape], [dtype], [data], "argsort", axis, *options)[0]
    inputs = [data, valid_count]
    return _filled([data.shape], [dtype], inputs, "argsort_nms", axis, *options)[0]


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int64",
) -> Tensor | list[Tensor]:
    """The first k elements in order along an axis, and their indices; all if k is not positive.

    Errors:
        MisuseError: `ret_type` is not "both", "values" or "indices".
    """
    if ret_type not in ("both", "values", "indices"):
        raise unexpected(ret_type, "topk: ret_type is 'both', 'values' or 'indices'")
    axis = normal_axis(axis, data.ndim)
    sizes = list(data.shape)
    if k > 0:
        size = sizes[axis]
        count = min(size.value, k) if isinstance(size, tir.IntImm) else k
        sizes[axis] = ops.const(count, "int64")
    dtypes = {"values": str(data.dtype), "indices": dtype}
    out_dtypes = list(dtypes.values()) if ret_type == "both" else [dtypes[ret_type]]
    function = "topk" if ret_type == "both" else f"topk_{ret_type}"
    outputs = _filled([sizes] * len(out_dtypes), out_dtypes, [data], function, axis, int(is_ascend))
    return outputs if ret_type == "both" else outputs[0]


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, dtype: str = "int64"
) -> Tensor:
    """For each value, the number of elements of a sequence below it; with `right`, not above it.

    The sequence is ascending along its last axis: one vector for all values, or one for each of
    their lines.

    Errors:
        MisuseError: the ranks differ, and the sequence is not a vector.
    """
    if sorted_sequence.ndim not in (1, values.ndim):
        raise MisuseError(
            f"searchsorted takes a vector or a sequence for each line of values, found ranks "
            f"{sorted_sequence.ndim} and {values.ndim}"
        )
    inputs = [sorted_sequence, values]
    return _filled([values.shape], [dtype], inputs, "searchsorted", int(right))[0]
