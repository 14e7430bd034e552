"""Sums of products over labelled axes."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype
from relaxpy.ir.te.topi.shapes import label_sizes, normal_axis, parse_subscripts, shape_text
from relaxpy.ir.tir import ops, reduce
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.ops import is_const

__all__ = ["einsum", "tensordot"]


def einsum(subscripts: str, *operand: Tensor) -> Tensor:
    """The sum of products of elements with equal labels, as NumPy's: "ij,jk->ik" is a product.

    Floats narrower than float32 are added in float32 and rounded once.

    Errors:
        MisuseError: the subscripts are malformed, or do not fit the ranks.
    """
    parsed = parse_subscripts(subscripts, [x.ndim for x in operand])
    sizes = label_sizes(parsed, [x.shape for x in operand], lambda label, a, b: a)
    dtype = DataType(operand[0].dtype)
    wide = accumulator(dtype)
    summed = {
        label: te.reduce_axis((ops.const(0, sizes[label].dtype), sizes[label]), label)
        for label in parsed.summed
    }
    empty = any(is_const(sizes[label], 0) for label in summed)

    def element(*index: PrimExpr) -> Any:
        index_of_label: dict[str, PrimExpr] = dict(zip(parsed.result, index, strict=True))
        index_of_label |= {label: axis.var for label, axis in summed.items()}
        factors = [
            x(
                *(
                    ops.const(0, size.dtype) if is_const(size, 1) else index_of_label[label]
                    for label, size in zip(labels, x.shape, strict=True)
                )
            )
            for labels, x in zip(parsed.operands, operand, strict=True)
        ]
        term = ops.cast_to(factors[0], wide)
        for factor in factors[1:]:
            term = ops.mul(term, ops.cast_to(factor, wide))
        if empty:
            return ops.const(0, term.dtype)
        if not summed:
            return term
        reducer = reduce.any if term.dtype.is_bool else reduce.sum
        return reducer(term, axis=list(summed.values()))

    shape = [sizes[label] for label in parsed.result]
    return as_dtype(te.compute(shape, element, name="T_einsum", tag="matmul"), dtype)


def tensordot(a: Tensor, b: Tensor, axes: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """The sum of products over pairs of axes, as NumPy's.

    `axes` is the axes of a and those of b in the same order, or the number of last axes of a and
    first axes of b.

    Errors:
        MisuseError: the numbers of axes differ, one is out of range, or sizes of a pair differ.
    """
    if isinstance(axes, int):
        pairs = list(zip(range(a.ndim - axes, a.ndim), range(axes), strict=True))
    else:
        first, second = axes
        if len(first) != len(second):
            raise MisuseError(f"tensordot: axes are pairs, found {axes}", about=axes)
        pairs = [
            (normal_axis(i, a.ndim), normal_axis(j, b.ndim))
            for i, j in zip(first, second, strict=True)
        ]
    left, right = list(ascii_letters[: a.ndim]), list(ascii_letters[a.ndim : a.ndim + b.ndim])
    for i, j in pairs:
        right[normal_axis(j, b.ndim)] = left[normal_axis(i, a.ndim)]
        if prove_equal(a.shape[i], b.shape[j]) is False:
            raise MisuseError(
                f"tensordot: axis {i} of {shape_text(a.shape)} and axis {j} of "
                f"{shape_text(b.shape)} differ"
            )
    result = [x for x in (*left, *right) if (x in left) != (x in right)]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join(result)}", a, b)
