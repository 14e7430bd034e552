"""Shape and index arithmetic of tensor expressions, also between elements."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Container, Sequence
from itertools import pairwise
from string import ascii_letters
from typing import SupportsIndex, TypeAlias, TypeVar

from relaxpy.errors import MisuseError, RelaxpyError, unexpected
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.core.dtype import FLOAT32, FLOAT64, INT64, DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import BinaryOpExpr, ExprLike, IntImm, PrimExpr
from relaxpy.ir.tir.ops import is_const
from relaxpy.support.dataclass import dataclass

Sizes: TypeAlias = Sequence[PrimExpr]
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
Refuse: TypeAlias = Callable[..., RelaxpyError]
T = TypeVar("T")


def as_sizes(shape: Sequence[ExprLike]) -> tuple[PrimExpr, ...]:
    """Convert dimensions to expressions; Python integers become int64."""
    return tuple(ops.const(s, INT64) if isinstance(s, int) else ops.convert(s) for s in shape)


def shape_text(sizes: Sizes) -> str:
    """The text of a shape for messages."""
    texts = [str(s.value) if isinstance(s, IntImm) else str(s) for s in sizes]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def product(sizes: Sizes) -> PrimExpr:
    """The number of elements of a shape."""
    return functools.reduce(ops.mul, sizes, ops.const(1, INT64))


def total(sizes: Sizes) -> PrimExpr:
    """The sum of dimensions; equal dimensions are multiplied by their number."""
    if all(size is sizes[0] for size in sizes):
        return sizes[0] * ops.const(len(sizes), INT64)
    return tidy(functools.reduce(ops.add, sizes))


def tidy(size: PrimExpr) -> PrimExpr:
    """Simplify `size`, unless the result is not shorter."""
    simplified = simplify(size)
    return simplified if _length(simplified) < _length(size) else size


@functools.lru_cache(maxsize=1 << 10)
def _length(size: PrimExpr) -> int:
    """Count the nodes of an expression tree."""
    lengths: dict[PrimExpr, int] = {}
    for expr in walk(size):
        if isinstance(expr, BinaryOpExpr):
            lengths[expr] = 1 + lengths.get(expr.a, 1) + lengths.get(expr.b, 1)
    return lengths.get(size, 1)


def normal_axis(
    axis: SupportsIndex, ndim: int, name: str = "axis", refuse: Refuse = MisuseError
) -> int:
    """Normalise `axis` to a non-negative position (AXIS); `refuse` returns the error.

    Errors:
        MisuseError: it is not an integer, or outside [-ndim, ndim).
    """
    try:
        position = operator.index(axis)
    except TypeError:
        raise unexpected(axis, "an axis is an integer") from None
    if not -ndim <= position < ndim:
        raise refuse(f"{name} {position} is out of range for rank {ndim}", about=axis)
    return position % ndim


def normal_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """Normalise axes to sorted positions without duplicates; None means all axes."""
    if axis is None:
        return tuple(range(ndim))
    listed: Sequence[SupportsIndex] = (
        axis if isinstance(axis, Sequence) and not isinstance(axis, str) else [axis]
    )
    return tuple(sorted({normal_axis(a, ndim) for a in listed}))


def reduced_sizes(
    sizes: Sizes, axes: Container[int], *, kept: Container[int] = ()
) -> list[PrimExpr]:
    """The shape without the axes; those in `kept` stay, with size 1."""
    return [
        ops.const(1, s.dtype) if a in axes else s
        for a, s in enumerate(sizes)
        if a not in axes or a in kept
    ]


def expanded_sizes(sizes: Sizes, axes: Collection[int]) -> list[PrimExpr]:
    """The shape with 1 inserted at these positions of the result."""
    old = iter(sizes)
    one = ops.const(1, INT64)
    return [one if a in axes else next(old) for a in range(len(sizes) + len(axes))]


def broadcast_sizes(
    first: Sizes,
    second: Sizes,
    undecided: Callable[[PrimExpr, PrimExpr], T],
    clash: Callable[[int], RelaxpyError],
) -> tuple[PrimExpr | T, ...]:
    """The shape that two shapes broadcast to, aligned at the right (BC).

    Where neither dimension is 1 and they are not provably equal, `undecided` returns the dimension.

    Errors:
        What `clash` returns for an axis, counted from the end, along which literals differ.
    """
    if len(first) == len(second) and all(map(operator.is_, first, second)):
        return tuple(first)
    longer = first if len(first) >= len(second) else second
    both = min(len(first), len(second))
    sizes: list[PrimExpr | T] = list(longer[: len(longer) - both])
    for axis in range(-both, 0):
        a, b = first[axis], second[axis]
        if is_const(a, 1):
            sizes.append(b)
        elif is_const(b, 1) or prove_equal(a, b):
            sizes.append(a)
        elif isinstance(a, IntImm) and isinstance(b, IntImm):
            raise clash(axis)
        else:
            sizes.append(undecided(a, b))
    return tuple(sizes)


def broadcast_shapes(first: Sizes, second: Sizes) -> tuple[PrimExpr, ...]:
    """The broadcast shape; of a literal and an expression, the literal is used.

    Of two expressions that are not provably equal, the maximum is used.

    Errors:
        MisuseError: two literals differ, and neither is 1.
    """

    def clash(axis: int) -> MisuseError:
        return MisuseError(f"shapes {shape_text(first)} and {shape_text(second)} do not broadcast")

    return broadcast_sizes(first, second, _literal_or_larger, clash)


def _literal_or_larger(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if isinstance(a, IntImm) or isinstance(b, IntImm):
        return a if isinstance(a, IntImm) else b
    return ops.maximum(a, b)


def broadcast_index(sizes: Sizes, index: Sizes, shape: Sizes) -> list[PrimExpr]:
    """The index into a tensor of shape `sizes` for `index` in the broadcast `shape`."""
    offset = len(index) - len(sizes)
    return [
        ops.const(0, size.dtype) if is_const(size, 1) and not is_const(full, 1) else position
        for size, full, position in zip(sizes, shape[offset:], index[offset:], strict=True)
    ]


def ravel(index: Sizes, shape: Sizes) -> PrimExpr:
    """The row-major linear index of the element at `index`."""
    position: PrimExpr = ops.const(0, INT64)
    for i, size in zip(index, shape, strict=True):
        position = position * size + i
    return position


def unravel(position: PrimExpr, shape: Sizes) -> tuple[PrimExpr, ...]:
    """The index of the element at a row-major linear index."""
    index: list[PrimExpr] = []
    for axis, size in reversed(list(enumerate(shape))):
        # That of a literal leading dimension is redundant, and it is there as in TVM.
        is_digit = axis or isinstance(size, IntImm)
        index.append(position % size if is_digit else position)
        position = position // size
    return tuple(reversed(index))


def double(value: ExprLike) -> PrimExpr:
    """A number in float64."""
    return ops.cast_to(value, FLOAT64) if isinstance(value, PrimExpr) else ops.const(value, FLOAT64)


def ratio(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """a / b of integers, rounded once."""
    return tir.Div(double(a), double(b))


def cubic_weights(t: PrimExpr, alpha: float) -> list[PrimExpr]:
    """The weights at distances 1 + t, t, 1 - t and 2 - t (Keys, IEEE Trans. ASSP 29(6), 1981)."""
    a, b, c = double(alpha), double(alpha + 2), double(alpha + 3)
    t2 = t * t
    t3 = t2 * t
    return [
        a * (t3 - t2 * double(2.0) + t),
        b * t3 - c * t2 + double(1.0),
        double(2 * alpha + 3) * t2 - b * t3 - a * t,
        a * t2 - a * t3,
    ]


def _hat(distance: PrimExpr, alpha: float) -> PrimExpr:
    return ops.maximum(double(1.0) - distance, double(0.0))


def _cubic(distance: PrimExpr, alpha: float) -> PrimExpr:
    """The weight of Keys at a distance of at least 0."""
    d, a = distance, double(alpha)
    near = ((a + double(2.0)) * d - (a + double(3.0))) * d * d + double(1.0)
    far = ((a * d - double(5 * alpha)) * d + double(8 * alpha)) * d - double(4 * alpha)
    beyond = tir.Select(d < double(2.0), far, double(0.0))
    return tir.Select(d <= double(1.0), near, beyond)


#: The minimum number of taps on one side of an element, and the weight at a distance, by method.
FILTERS: dict[str, tuple[int, Callable[[PrimExpr, float], PrimExpr]]] = {
    "linear": (1, _hat),
    "cubic": (2, _cubic),
}


def sum_dtype(*dtypes: DataType) -> DataType:
    """The datatype of sums: float64 for floats or integers that float32 does not represent."""
    is_narrow = all(d.bits <= (FLOAT32.bits if d.is_float else 16) for d in dtypes)
    return FLOAT32 if is_narrow else FLOAT64


def split_bounds(
    size: PrimExpr, indices_or_sections: int | Sequence[ExprLike]
) -> list[tuple[PrimExpr, PrimExpr]]:
    """The first index and the size of each section of an axis of `size`."""
    zero = ops.const(0, "int64")
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        section = simplify(ops.ceildiv(size, ops.const(count, "int64")))
        bounds_between = [simplify(section * ops.const(k, "int64")) for k in range(1, count)]
        last = simplify(size - section * ops.const(count - 1, "int64"))
        if count <= 2 or prove_equal(last, section):
            sizes = [section] * (count - 1) + [last]
            return list(zip([zero, *bounds_between], sizes, strict=True))
        # Differences of bounds in order, as no section is negative: their sum is visibly `size`.
        ordered_bounds = [zero, *(ops.minimum(bound, size) for bound in bounds_between), size]
        return [(start, tidy(end - start)) for start, end in pairwise(ordered_bounds)]
    bounds_between = list(as_sizes(indices_or_sections))
    bounds = []
    for begin, end in zip([zero, *bounds_between], [*bounds_between, size], strict=True):
        start = _clamped(begin, size)
        length = (size if end is size else _clamped(end, size)) - start
        ordered = end is not size and are_ordered_literals(begin, end)
        bounds.append((start, tidy(length if ordered else ops.maximum(length, zero))))
    return bounds


def _clamped(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    """Clamp `index` to [0, size], where `size` is at least 0."""
    zero = ops.const(0, "int64")
    if isinstance(index, tir.IntImm):
        return zero if index.value <= 0 else ops.minimum(index, size)
    return ops.maximum(ops.minimum(index, size), zero)


def are_ordered_literals(first: PrimExpr, last: PrimExpr) -> bool:
    """True if these are non-negative literals in this order."""
    both = isinstance(first, tir.IntImm) and isinstance(last, tir.IntImm)
    return both and 0 <= first.value <= last.value  # type: ignore[attr-defined]


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
