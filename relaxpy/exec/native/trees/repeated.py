"""Recognises contractions with packed elements, such as int4 weights.

Loops over the integers in one element of memory are short: together they form the lanes of vectors.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Final, TypeAlias

from relaxpy.errors import RelaxpyError
from relaxpy.exec.loops.nest.bounds import unproved
from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Plan, Run
from relaxpy.exec.machine.tuning import Weights
from relaxpy.exec.native.trees.lanes import step_of
from relaxpy.exec.runtime.scalar import ScalarEvaluator
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, occurrences, tree_size
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import BufferLoad, outside_indices
from relaxpy.ir.tir.expr import Add, Call, Cast, FloatImm, IntImm, Mul, PrimExpr, Sub, Var
from relaxpy.ir.tir.ops import int_range
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass

_AND: Final = Op("tir.bitwise_and")
_MASKS: Final = 3, 7, 15
"""The masks of so few bits that a register holds a table of all their values."""
_SHIFT: Final = Op("tir.shift_right")
_DIGIT_BITS: Final = {15: 4}
"""The bits of integers for integer dot products, by their masks."""
_EXACT: Final = 2048
"""The maximum of a digit plus its offset."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A `value` that in a block only depends on the lowest bits of `index`.

    It is `entry` with these `count` bits as `number`; `digit` is what it computes from a digit of
    an element of memory, if it does.
    """

    value: PrimExpr
    index: PrimExpr
    entry: PrimExpr
    number: Var
    count: int
    digit: Digit | None


@dataclass(frozen=True, slots=True, eq=False)
class Digit:
    """A float: the lowest bits of `packed`, after a shift by `shift`, as an integer, plus `start`.

    `scaled` is the value of a table with this float as the variable `value`.
    """

    packed: BufferLoad
    shift: Var
    start: int
    value: Var
    scaled: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """A form of `shared`: the `scale` of a block times (adjacent integers minus `zero`).

    They have `bits` bits each, the first one in the lowest bits of `packed`, and `factors` are the
    int8 elements of `own`. Sums of their products are exact integers. The integers and factors of
    successive blocks are adjacent, and the loads of `scale` advance by `steps`.
    """

    packed: BufferLoad
    bits: int
    zero: int
    scale: PrimExpr
    factors: BufferLoad
    steps: Mapping[BufferLoad, int]


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedLoads:
    """A sum in blocks: all iterations of the loops `inner`, after those of `outer`.

    The variables of `numbers` have these values in the iterations of a block, and those of `tables`
    the values of the tables. `offsets` are, for each load, its position in each of them, from that
    in the first one on.

    A value is the product of `shared` and `own`, or `shared` alone. Only `own`, which is not
    packed, depends on the axis `rows`, and only `shared` on `columns`. `digits` is their integer
    form, if they have one.
    """

    rows: Axis | None
    columns: Axis | None
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    lanes: int
    shared: PrimExpr
    own: PrimExpr | None
    numbers: Mapping[Var, tuple[int, ...]]
    tables: Mapping[Var, Table]
    offsets: Mapping[BufferLoad, tuple[int, ...]]
    digits: Digits | None

    @property
    def count(self) -> int:
        """The iterations of a block."""
        return len(_points(self.inner))

    @property
    def order(self) -> list[int]:
        """The iterations of a block in the order in which lanes read adjacent elements.

        The first ones are those that read the first integer of a packed element. It is the order of
        the loops if not all elements of memory that `shared` reads are such, or the same for all,
        and for bytes, which there are instructions for.
        """
        natural = list(range(self.count))
        if not self.tables:
            return natural
        found = {self.offsets[load] for load in loads(self.decoded)}
        packed = [offsets for offsets in found if set(offsets) != {0}]
        if len(packed) != 1 or not _is_packed(packed[0]):
            return natural
        counts: dict[int, int] = {}
        ranks = []
        for offset in packed[0]:
            ranks.append(counts.get(offset, 0))
            counts[offset] = ranks[-1] + 1
        return sorted(natural, key=ranks.__getitem__)

    @property
    def decoded(self) -> PrimExpr:
        """`shared` without tables."""
        return substitute(self.shared, {var: table.value for var, table in self.tables.items()})


def repeated_loads(
    run: Run,
    plan: Plan,
    whole: Mapping[PrimExpr, Axis] | None = None,
    enclosing: Sequence[Axis] = (),
) -> RepeatedLoads | None:
    """A run as such a sum of floats, or None.

    Its innermost loop is too short for vectors, or several rows decode the same integers of 8 bits.
    `whole` are the axes of which others are blocks, by the start of these, and the run is in the
    loops `enclosing`.
    """
    whole = whole or {}
    loops = (whole.get(axis.start, axis) for axis in run.loops)
    return _repeated_loads(run, plan, (*enclosing, *loops))


@lru_cache(maxsize=1 << 6)
def _repeated_loads(run: Run, plan: Plan, bounds: tuple[Axis, ...]) -> RepeatedLoads | None:
    if len(run.statements) != 1 or run.is_scalar or run.after:
        return None
    [member] = run.statements
    if not isinstance(member, Assignment) or member.combine != "add" or member.guards:
        return None
    if str(member.target.dtype) != "float32" or str(member.value.dtype) != "float32":
        return None
    value, found = member.value, _block(run.over)
    if found is None:
        value, found = _in_parts(value, run.over)
    if found is None:
        return None
    outer, inner, lanes = found
    offsets = _offsets(value, inner)
    if offsets is None:
        return None
    packed = {load for load, steps in offsets.items() if _is_packed(steps)}
    is_packed = bool(packed)
    if not is_packed:
        packed = {load for load in offsets if load.buffer.dtype.bits == 8}
    shared, own = _factors(value, packed)
    if not packed or (not is_packed and (own is None or _is_converted(shared))):
        return None
    for load in dict.fromkeys(loads(member.value)):
        is_inside = not unproved(load.buffer, load.indices, bounds, plan.shape_vars)
        if not is_inside or plan.root(load.buffer) is plan.root(member.target):
            return None
    numbers: dict[Var, tuple[int, ...]] = {}
    tables: dict[Var, Table] = {}
    values = [
        None if factor is None else _with_numbers(factor, inner, numbers)
        for factor in (shared, own)
    ]
    if values[0] is None or (own is not None and values[1] is None):
        return None
    rows, columns = (_only_of(run, *pair) for pair in ((own, shared), (shared, own)))
    decoded, own = values[0], values[1]
    digits = _digits(decoded, own, numbers, offsets, outer)
    is_single = rows is None or rows.extent.constant == 1
    shared = _with_tables(decoded, tables, numbers, offsets, is_single=is_single)
    return RepeatedLoads(
        rows, columns, outer, inner, lanes, shared, own, numbers, tables, offsets, digits
    )


def _digits(
    shared: PrimExpr,
    own: PrimExpr | None,
    numbers: Mapping[Var, tuple[int, ...]],
    offsets: Mapping[BufferLoad, tuple[int, ...]],
    outer: Sequence[Axis],
) -> Digits | None:
    """The integers in the factors of a block, if they have that form."""
    while isinstance(own, Cast):
        own = own.value
    if not isinstance(own, BufferLoad) or str(own.buffer.dtype) != "int8":
        return None
    if not isinstance(shared, Mul) or offsets[own] != tuple(range(len(offsets[own]))):
        return None
    for integer, scale in ((shared.a, shared.b), (shared.b, shared.a)):
        is_scale = not any(set(offsets[load]) - {0} for load in loads(scale))
        field = _field(integer)
        if not is_scale or mentions(scale, set(numbers)) or field is None:
            continue
        (packed, shift), bits, zero = field
        places = numbers.get(shift) if isinstance(shift, Var) else None
        count = len(offsets[own])
        if places is None or count not in Weights.DIGITS or not outer:
            continue
        size = packed.buffer.dtype.bits
        found = [n * size + place for n, place in zip(offsets[packed], places, strict=True)]
        steps = {load: step_of(load, outer[-1]) for load in dict.fromkeys(loads(scale))}
        known = {load: step for load, step in steps.items() if step in {0, 1}}
        is_adjacent = step_of(packed, outer[-1]) == count * bits // size
        if found != [bits * n for n in range(count)] or len(known) < len(steps):
            continue
        if is_adjacent and step_of(own, outer[-1]) == count:
            return Digits(packed, bits, zero, scale, own, known)
    return None


def _field(value: PrimExpr) -> tuple[tuple[BufferLoad, PrimExpr], int, int] | None:
    """The element and shift of an integer of few bits, their number, and its zero point."""
    masked = {n for n in occurrences(value, Call) if n.op is _AND}
    if len(masked) != 1:
        return None
    [bits] = masked
    operand, mask = bits.args
    if not isinstance(mask, IntImm) or mask.value not in _DIGIT_BITS:
        return None
    if not isinstance(operand, Call) or operand.op is not _SHIFT:
        return None
    packed, shift = operand.args
    zero = _number(value, bits, 0)
    entries = [_number(value, bits, n) for n in range(mask.value + 1)]
    if not isinstance(packed, BufferLoad) or zero is None or not -mask.value <= zero <= 0:
        return None
    if entries != [zero + n for n in range(len(entries))]:
        return None
    return (packed, shift), _DIGIT_BITS[mask.value], -zero


def _offsets(value: PrimExpr, inner: Sequence[Axis]) -> dict[BufferLoad, tuple[int, ...]] | None:
    """The position of each load in the iterations of a block, from the first one on, if known."""
    variables, points = {axis.var for axis in inner}, _points(inner)
    offsets: dict[BufferLoad, tuple[int, ...]] = {}
    for load in dict.fromkeys(loads(value)):
        position = affine(position_of(load.buffer, load.indices), variables)
        if position is None or any(True for _ in loads(position.offset.expr())):
            return None
        steps = [position.constant(axis.var) for axis in inner]
        known = [step for step in steps if step is not None]
        if len(known) < len(steps):
            return None
        offsets[load] = tuple(
            sum(step * n for step, n in zip(known, point, strict=True)) for point in points
        )
    return offsets


def _is_converted(value: PrimExpr) -> bool:
    """True if a value is an element of memory, or a cast of one."""
    while isinstance(value, Cast):
        value = value.value
    return isinstance(value, BufferLoad)


def _factors(value: PrimExpr, packed: Container[BufferLoad]) -> tuple[PrimExpr, PrimExpr | None]:
    """The factor of a product that has all packed elements, and the other one."""
    if isinstance(value, Mul):
        for shared, own in ((value.a, value.b), (value.b, value.a)):
            if not any(load in packed for load in loads(own)):
                return shared, own
    return value, None


def _only_of(run: Run, factor: PrimExpr | None, other: PrimExpr | None) -> Axis | None:
    """The last axis on which one factor depends and the other does not."""
    if factor is None or other is None:
        return None
    for axis in reversed(run.axes):
        alone = {axis.var}
        is_bound = any(mentions(b, alone) for a in run.loops for b in (a.start, a.stop))
        if is_bound or axis.var not in run.independent:
            continue
        if mentions(factor, alone) and not mentions(other, alone):
            return axis
    return None


def _with_tables(
    value: PrimExpr,
    tables: dict[Var, Table],
    numbers: Mapping[Var, tuple[int, ...]],
    offsets: Mapping[BufferLoad, tuple[int, ...]],
    *,
    is_single: bool,
) -> PrimExpr:
    """`value` with variables, entered into `tables`, for floats of integers of a few bits.

    All else that these floats depend on is invariant in a block. If a value `is_single`, it is for
    one row.
    """
    known: dict[PrimExpr, Var] = {}

    def replaced(node: Node) -> Node:
        if not isinstance(node, PrimExpr) or isinstance(node, BufferLoad):
            return node
        if node not in known:
            table = _table_of(node, numbers, offsets, is_single=is_single)
            if table is None:
                return map_children(replaced, node)
            known[node] = Var("entry", node.dtype)
            tables[known[node]] = table
        return known[node]

    result = replaced(value)
    assert isinstance(result, PrimExpr)
    return result


def _table_of(
    value: PrimExpr,
    numbers: Mapping[Var, tuple[int, ...]],
    offsets: Mapping[BufferLoad, tuple[int, ...]],
    *,
    is_single: bool,
) -> Table | None:
    """The table of a float that in a block only depends on a few bits, or None."""
    if str(value.dtype) not in ("float16", "float32"):
        return None
    masked = {n for n in occurrences(value, Call) if n.op is _AND}
    if len(masked) != 1:
        return None
    [bits] = masked
    operand, mask = bits.args
    if not isinstance(mask, IntImm) or mask.value not in _MASKS or bits.dtype.bits != 32:
        return None
    assert isinstance(operand, PrimExpr)
    number = Var("number", bits.dtype)

    def counted(node: Node) -> Node:
        return number if node is bits else map_children(counted, node)

    entry = counted(value)
    assert isinstance(entry, PrimExpr)
    reads = list(loads(entry))
    if mentions(entry, set(numbers)) or any(set(offsets[load]) - {0} for load in reads):
        return None
    if reads and not (is_single or _is_rounded(entry)):
        return None
    count = mask.value + 1
    return Table(
        value, operand, entry, number, count, _digit(operand, entry, number, count, numbers)
    )


def _digit(
    operand: PrimExpr,
    entry: PrimExpr,
    number: Var,
    count: int,
    numbers: Mapping[Var, tuple[int, ...]],
) -> Digit | None:
    """The float in an entry that a digit is converted to, if all else is computed from it."""
    if not isinstance(operand, Call) or operand.op is not _SHIFT:
        return None
    packed, shift = operand.args
    if not isinstance(packed, BufferLoad) or packed.dtype.bits != 32:
        return None
    if not isinstance(shift, Var) or shift not in numbers:
        return None
    bits = (count - 1).bit_length()
    if not all(0 <= place <= packed.dtype.bits - bits for place in numbers[shift]):
        return None
    found: list[tuple[int, Var]] = []

    def replaced(node: Node) -> Node:
        if isinstance(node, PrimExpr) and node.dtype.is_float:
            start = _number(node, number, 0)
            values = [_number(node, number, n) for n in range(count)]
            if start is not None and values == [start + n for n in range(count)]:
                found.append((start, Var("digit", node.dtype)))
                return found[-1][1]
        return map_children(replaced, node)

    scaled = replaced(entry)
    assert isinstance(scaled, PrimExpr)
    if len(found) != 1 or mentions(scaled, {number}):
        return None
    [(start, value)] = found
    return Digit(packed, shift, start, value, scaled)


def _is_rounded(value: PrimExpr) -> bool:
    """True if products are rounded to float16, which takes longer than to select an entry.

    With several rows, LLVM moves other products after the instruction that selects entries.
    """
    return any(str(node.dtype) == "float16" for node in occurrences(value, Mul))


def _number(value: PrimExpr, bits: PrimExpr, number: int) -> int | None:
    """The value for a `number` as `bits`, if it is computed from small integers alone."""
    match value:
        case _ if value is bits:
            result: float = number
        case IntImm(value=constant) | FloatImm(value=constant):
            result = constant
        case Cast(value=inner):
            found = _number(inner, bits, number)
            if found is None:
                return None
            result = found
        case Add(a=a, b=b) | Sub(a=a, b=b) | Mul(a=a, b=b):
            x, y = _number(a, bits, number), _number(b, bits, number)
            if x is None or y is None:
                return None
            result = x * y if isinstance(value, Mul) else x + y if isinstance(value, Add) else x - y
        case _:
            return None
    if not abs(result) <= _EXACT or result != int(result):
        return None
    if value.dtype.is_float:
        return int(result) if float(value.dtype.numpy().type(result)) == result else None
    least, most = int_range(value.dtype)
    return int(result) if least <= result <= most else None


def _is_packed(offsets: tuple[int, ...]) -> bool:
    """True if iterations of a block share elements, and all of them do not."""
    return 1 < len(set(offsets)) < len(offsets)


def _with_numbers(
    value: PrimExpr, inner: Sequence[Axis], numbers: dict[Var, tuple[int, ...]]
) -> PrimExpr | None:
    """`value` with variables, entered into `numbers`, for parts that depend on the iteration alone.

    None if such a part is not an integer.
    """
    variables = {axis.var for axis in inner}
    if tree_size(value) > Weights.LARGEST:
        return None
    known: dict[PrimExpr, Var] = {}

    def replaced(node: Node) -> Node:
        if not isinstance(node, PrimExpr) or isinstance(node, BufferLoad):
            return node
        depends_on = set(occurrences(node, Var))
        if not depends_on or not depends_on <= variables or next(loads(node), None) is not None:
            return map_children(replaced, node)
        if node not in known:
            known[node] = Var("number", node.dtype)
        return known[node]

    result = replaced(value)
    iterations = [
        ScalarEvaluator(dict(zip((axis.var for axis in inner), point, strict=True)))
        for point in _points(inner)
    ]
    for expr, var in known.items():
        if not expr.dtype.is_int:
            return None
        try:
            numbers[var] = tuple(int(each.value(expr)) for each in iterations)
        except RelaxpyError:  # it has no value, or none that is known
            return None
    assert isinstance(result, PrimExpr)
    return None if mentions_outside_loads(result, variables) else result


def mentions_outside_loads(value: PrimExpr, variables: set[Var]) -> bool:
    """True if an expression uses a variable outside of the indices of loads."""
    return any(isinstance(node, Var) and node in variables for node in outside_indices(value))


def _points(axes: Sequence[Axis]) -> list[tuple[int, ...]]:
    """The indices of the iterations of loops from 0 on, in order."""
    return list(product(*(range(axis.extent.constant or 0) for axis in axes)))


Block: TypeAlias = tuple[tuple[Axis, ...], tuple[Axis, ...], int]
"""The loops outside and inside of a block, and the lanes of its vectors."""


def _in_parts(value: PrimExpr, over: Sequence[Axis]) -> tuple[PrimExpr, Block | None]:
    """A value whose innermost loop is divided into blocks, if it consists of whole ones."""
    *outside, axis = over
    extent = axis.extent.constant
    if extent is None or extent % Weights.PART or as_poly(axis.start).constant != 0:
        return value, None
    first, second = (Var(f"{axis.var.name}{n}", axis.var.dtype) for n in range(2))
    zero, size = (IntImm(axis.var.dtype, n) for n in (0, Weights.PART))
    outer = Axis(first, zero, IntImm(axis.var.dtype, extent // Weights.PART))
    value = substitute(value, {axis.var: first * size + second})
    return value, ((*outside, outer), (Axis(second, zero, size),), Weights.LANES[0])


def _block(over: Sequence[Axis]) -> Block | None:
    """The loops outside and inside of a block, and the lanes of its vectors."""
    count = 1
    for first in reversed(range(len(over))):
        extent = over[first].extent.constant
        if extent is None or extent < 1 or count * extent > Weights.BLOCK:
            return None
        if first == len(over) - 1 and extent >= Weights.LANES[0]:
            return None
        count *= extent
        for lanes in Weights.LANES:
            if count % lanes == 0 and first < len(over) - 1:
                return tuple(over[:first]), tuple(over[first:]), lanes
    return None
