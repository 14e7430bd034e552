"""Sums of products over labelled axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_letters
from typing import Any

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype
from relaxpy.ir.te.topi.shapes import normal_axis, shape_text
from relaxpy.ir.tir import ops, reduce
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.ops import is_const
from relaxpy.support.dataclass import dataclass

__all__ = ["einsum", "tensordot"]


@dataclass(frozen=True, slots=True)
class Subscripts:
    """The labels of the axes of each operand and of the result; an ellipsis is labels as well."""

    operands: tuple[str, ...]
    result: str

    @property
    def summed(self) -> str:
        """The labels that the result does not have, in alphabetical order."""
        return "".join(sorted(set("".join(self.operands)) - set(self.result)))


def parse_subscripts(
    text: str, ranks: Sequence[int], refuse: Callable[[str], Exception] = MisuseError
) -> Subscripts:
    """The labels of the axes of operands of these ranks.

    Without `->` the result has the axes of an ellipsis, then the labels that occur once, in
    alphabetical order.

    Errors:
        what `refuse` makes of a message: the text is malformed, or does not fit the ranks.
    """
    spaceless = text.replace(" ", "")
    inputs, arrow, output = spaceless.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise refuse(f"subscripts {text!r} have {len(terms)} operands, found {len(ranks)}")
    for term in (*terms, *([output] if arrow else [])):
        letters = term.replace("...", "", 1)
        if not all(letter in ascii_letters for letter in letters):
            raise refuse(f"subscripts are letters, commas, '...' and '->', found {text!r}")
    unused_letters = [letter for letter in reversed(ascii_letters) if letter not in spaceless]
    ellipsis_ranks = []
    for k, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        labelled = len(term.replace("...", ""))
        ellipsis_ranks.append(rank - labelled)
        if rank < labelled or ("..." not in term and rank > labelled):
            raise refuse(
                f"operand {k} has rank {rank}, but {term!r} of {text!r} labels {labelled} axes"
            )
    widest = max(ellipsis_ranks, default=0)
    if widest > len(unused_letters):
        raise refuse(f"subscripts {text!r} need more labels than there are letters")
    ellipsis = "".join(unused_letters[:widest])
    operands = tuple(
        term.replace("...", ellipsis[widest - width :])
        for term, width in zip(terms, ellipsis_ranks, strict=True)
    )
    labels = "".join(operands)
    if not arrow:
        unique = sorted(label for label in set(labels) if labels.count(label) == 1)
        return Subscripts(operands, ellipsis + "".join(x for x in unique if x not in ellipsis))
    result = output.replace("...", ellipsis)
    for label in result:
        if result.count(label) > 1:
            raise refuse(f"label {label!r} occurs twice in the result of {text!r}")
        if label not in labels:
            raise refuse(f"label {label!r} of the result of {text!r} is on no operand")
    return Subscripts(operands, result)


def label_sizes(
    subscripts: Subscripts,
    shapes: Sequence[Sequence[PrimExpr]],
    join: Callable[[str, PrimExpr, PrimExpr], PrimExpr],
) -> dict[str, PrimExpr]:
    """The size of the axes of each label; `join` decides between two that are not the literal 1."""
    sizes: dict[str, PrimExpr] = {}
    for labels, shape in zip(subscripts.operands, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            size_of_label = sizes.get(label)
            if size_of_label is None or is_const(size_of_label, 1):
                sizes[label] = size
            elif not is_const(size, 1):
                sizes[label] = join(label, size_of_label, size)
    return sizes


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
