"""Subscripts of tensors, as NumPy reads them, as calls of the operators of Relax."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError, counted, unexpected
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import expr as tir, ops

Bind: TypeAlias = Callable[[rx.Call, str], rx.Expr]
Bounds: TypeAlias = tuple[Any, Any, int]
"""The first index, the index after the last one, and the stride of a slice."""
_END: Final = (1 << 63) - 1
"""The end that strided_slice gets for an axis whose size is not known."""


def subscript(x: rx.Expr, key: object, bind: Bind = lambda call, _: call) -> rx.Expr:
    """`x[key]` of a tensor: at integers, slices, `...`, `None` and one tensor of integers.

    Integers and slices become strided_slice and squeeze, `None` becomes expand_dims, and a tensor,
    or a list of integers, take. Indices of a tensor count from 0. `bind` makes a value of each call
    and of the name of its operator.

    Errors:
        MisuseError (also TypeError, ValueError): an index is something else or outside of its axis,
            there are too many, or the rank has to be known.
        As the operators raise.
    """
    sinfo = x.struct_info
    assert isinstance(sinfo, rx.TensorStructInfo)
    items = _items(key, sinfo)
    sizes = sinfo.get_shape() or (None,) * max(sinfo.ndim, len(items))
    slices: dict[int, Bounds] = {}
    single: dict[int, Bounds] = {}
    added: list[int] = []
    taken: tuple[rx.Expr, int] | None = None
    axis = left = result_axis = 0  # `left` counts axes without those at integers
    for item in items:
        if item is None:
            added.append(result_axis)
            result_axis += 1
            continue
        if isinstance(item, slice):
            if any(bound is not None for bound in (item.start, item.stop, item.step)):
                slices[axis] = _bounds(item, sizes[axis])
        elif isinstance(item, rx.Expr):
            taken = item, left
            result_axis += _rank(item) - 1
        else:
            single[axis] = _at(item, axis, sinfo, key)
        if isinstance(item, (slice, rx.Expr)):
            left += 1
            result_axis += 1
        axis += 1
    # A slice from an index to the next one has one element if both are known to be inside.
    promised = {} if all(_is_known(single[n], sizes[n]) for n in single) else single
    slices |= {} if promised else single
    for part in (promised, dict(sorted(slices.items()))):
        if part:
            begin, end, steps = zip(*part.values(), strict=True)
            options: dict[str, Any] = {} if set(steps) == {1} else {"strides": steps}
            if part is promised:
                options["assume_inbound"] = True
            x = bind(R.strided_slice(x, list(part), begin, end, **options), "strided_slice")
    if single:
        x = bind(R.squeeze(x, list(single)), "squeeze")
    if taken is not None:
        x = bind(R.take(x, taken[0], axis=taken[1]), "take")
    if added:
        x = bind(R.expand_dims(x, added), "expand_dims")
    return x


def _items(key: object, sinfo: rx.TensorStructInfo) -> list[Any]:
    """The indices of the first axes, with slices for `...`, and None for each new axis.

    Integers are those of Python or PrimExprs; tensors, and scalars of unknown value, expressions.
    """
    keys = key.fields if isinstance(key, rx.Tuple) else key if isinstance(key, tuple) else (key,)
    items = list(map(_item, keys))
    count = sum(item is not None and item is not Ellipsis for item in items)
    dots = [position for position, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise MisuseError("a subscript has one ellipsis, found two", about=key)
    if 0 <= sinfo.ndim < count:
        raise MisuseError(
            f"a tensor of rank {sinfo.ndim} cannot have {counted(count, 'index', 'indices')}: "
            f"it is {sinfo}",
            about=key,
        )
    if dots:
        position = dots[0]
        if sinfo.ndim < 0 and items[position + 1 :]:
            raise MisuseError(
                "indices after ... need a known rank",
                about=key,
                hint="declare it: R.match_cast(x, R.Tensor(ndim=3)) has rank 3",
            )
        items[position : position + 1] = [slice(None)] * (sinfo.ndim - count)
    _check_tensors(items, key)
    return items


def _item(item: object) -> Any:
    """One index. Errors: MisuseError if it has no meaning."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if (number := _integer(item)) is not None:
        return number
    if isinstance(item, list) or (isinstance(item, np.ndarray) and item.ndim):
        return _listed(item)
    if isinstance(item, rx.Expr):
        found = item.struct_info
        dtype = found.dtype if isinstance(found, rx.TensorStructInfo) else None
        if dtype is not None and dtype.is_bool:
            raise MisuseError(
                "the number of elements that a mask selects is known only when the program runs",
                about=item,
                hint="R.where(mask, x, y) takes the others from y; R.nonzero(mask) has the indices "
                "of the elements that are true",
            )
        if dtype is not None and dtype.is_float:
            raise MisuseError(
                f"an index holds integers, found {found}",
                about=item,
                hint='convert it: R.astype(i, "int64")',
            )
        if dtype is not None or isinstance(found, rx.PrimStructInfo):
            return item
    raise unexpected(
        item,
        "an index of a tensor is an integer, a slice, ..., None or a tensor of integers",
        hint="R.take(x, indices, axis) reads at indices, R.where(mask, x, y) where a mask is true",
    )


def _integer(value: object) -> int | tir.PrimExpr | None:
    """The value of an integer or of a scalar of known value; None of others and of Booleans."""
    sinfo = value.struct_info if isinstance(value, rx.Expr) else None
    if isinstance(sinfo, rx.PrimStructInfo) and sinfo.value is not None:
        value = sinfo.value
    if isinstance(value, tir.IntImm):
        return None if value.dtype.is_bool else value.value
    if isinstance(value, tir.PrimExpr):
        return ops.cast_to(value, "int64") if value.dtype.is_int else None
    if isinstance(value, (bool, np.bool_, rx.Expr)) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array that is not of one integer
        return None


def _listed(numbers: Any) -> rx.Expr:
    """The tensor of the integers in a list. Errors: MisuseError for others and negative ones."""
    try:
        array = np.asarray(numbers) if len(numbers) else np.zeros(0, "int64")
    except ValueError:
        raise unexpected(numbers, "the lists in an index are of one length") from None
    if array.dtype.kind not in "iu":
        raise unexpected(
            numbers,
            "a list of indices holds integers",
            hint="R.where(mask, x, y) selects the elements where a mask is true",
        )
    if array.size and array.min() < 0:
        raise unexpected(
            numbers,
            "indices in a list count from 0",
            hint="a single index, or the bound of a slice, may count from the end",
        )
    return rx.const(array.astype("int64"), "int64")


def _check_tensors(items: Sequence[Any], key: object) -> None:
    """Errors: MisuseError for several tensors, and for one that NumPy does not leave in place."""
    advanced = [n for n, item in enumerate(items) if isinstance(item, (int, tir.PrimExpr, rx.Expr))]
    tensors = [n for n in advanced if isinstance(items[n], rx.Expr)]
    if len(tensors) > 1:
        raise MisuseError(
            "a subscript has one index that is a tensor, found two",
            about=key,
            hint="R.index_tensor(x, (i, j)) reads at pairs of indices, x[i][:, j] rows and columns",
        )
    has_new_axis = any(item is None for item in items)
    if tensors and has_new_axis and _rank(items[tensors[0]]) < 0:
        raise MisuseError("a new axis beside a tensor whose rank is not known", about=key)
    is_apart = any(after - before > 1 for before, after in pairwise(advanced))
    if tensors and is_apart and _rank(items[tensors[0]]):
        raise MisuseError(
            "an integer and a tensor, apart from each other, would move axes to the front",
            about=key,
            hint="use two subscripts: x[:, :, i][0] in place of x[0, :, i]",
        )


def _rank(index: rx.Expr) -> int:
    """The rank of an index; -1 if it is not known."""
    sinfo = index.struct_info
    return sinfo.ndim if isinstance(sinfo, rx.TensorStructInfo) else 0


def _is_known(bounds: Bounds, size: Any) -> bool:
    return isinstance(size, tir.IntImm) and isinstance(bounds[0], int)


def _at(item: Any, axis: int, sinfo: rx.TensorStructInfo, key: object) -> Bounds:
    """The slice of one element at an integer. Errors: MisuseError if it is outside of the axis."""
    sizes = sinfo.get_shape()
    size: Any = None if sizes is None else sizes[axis]
    if isinstance(item, int) and isinstance(size, tir.IntImm):
        if not -size.value <= item < size.value:
            raise MisuseError(
                f"index {item} is outside of axis {axis}, which has size {size.value}: "
                f"the tensor is {sinfo}",
                about=key,
            )
        item %= size.value
    after = _END if isinstance(item, int) and item == -1 else item + 1
    if isinstance(item, int) and item < 0 and size is not None:
        item, after = size - abs(item), size if item == -1 else size - abs(after)
    return item, after, 1


def _bounds(item: slice, size: Any) -> Bounds:
    """The bounds of a slice, all of which are written.

    Errors:
        MisuseError: one of them is not an integer, or the stride is unknown or 0.
    """
    step = 1 if item.step is None else _integer(item.step)
    if not isinstance(step, int) or step == 0:
        raise unexpected(
            item.step, "the stride of a slice is an integer other than 0 that is written here"
        )
    start, stop = (None if bound is None else _bound(bound) for bound in (item.start, item.stop))
    if step > 0:
        first, last = 0, _END if size is None else size
    else:
        first, last = (_END, -_END) if size is None else (size - 1, -size - 1)
    return _plain(first if start is None else start), _plain(last if stop is None else stop), step


def _plain(bound: Any) -> Any:
    return bound.value if isinstance(bound, tir.IntImm) else bound


def _bound(bound: object) -> Any:
    """A bound of a slice. Errors: MisuseError if it is not a scalar."""
    number = _integer(bound)
    if number is not None:
        return number
    sinfo = bound.struct_info if isinstance(bound, rx.Expr) else None
    if isinstance(sinfo, rx.PrimStructInfo):
        return bound
    hint = None
    if isinstance(sinfo, rx.TensorStructInfo):
        hint = "R.dynamic_strided_slice(x, begin, end, strides) takes tensors; a number that a "
        hint += "program binds to a name is one: name it outside of the function"
    raise unexpected(bound, "the bound of a slice is an integer or a scalar", hint=hint)
