"""Random integer expressions over data, and their values where they wrap around.

Data are elements of buffers, scalars that an Analyzer knows as data, and casts. The values are
computed for all points at once by NumPy, whose integers wrap around, and by nothing of the package
but the classes of its nodes. A point has no value where the expression divides by zero, shifts too
far, or where arithmetic without data, as that of a loop variable, leaves its datatype: that
never overflows, as it is written and as it is simplified.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxpy import arith
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.iteration import Range
from tests.fuzz.scalars import text

E = tir.PrimExpr
Array = np.ndarray[Any, Any]
WIDTHS = ("int8", "int16", "int32", "int64")
EVERY = (*WIDTHS, "uint8", "uint16", "uint32", "uint64")
_COMPARED = {
    tir.EQ: np.equal,
    tir.NE: np.not_equal,
    tir.LT: np.less,
    tir.LE: np.less_equal,
    tir.GT: np.greater,
    tir.GE: np.greater_equal,
}
_RING = {tir.Add: np.add, tir.Sub: np.subtract, tir.Mul: np.multiply}
_DIVISIONS = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)
_BITS = {
    "tir.bitwise_and": np.bitwise_and,
    "tir.bitwise_or": np.bitwise_or,
    "tir.bitwise_xor": np.bitwise_xor,
}
_LOOP = range(-3, 6)


@dataclass
class Values:
    """The values of an expression at all points.

    `defined` tells where there is one, and `exact` where what must not overflow does not.
    """

    numbers: Array
    defined: Array
    exact: Array
    is_data: bool


def lanewise(truths: Array) -> Array:
    """Where something is true of all lanes."""
    return truths.astype(bool) if truths.ndim == 1 else truths.astype(bool).all(axis=1)


class Points:
    """The values of atoms at all points, and of expressions of them."""

    def __init__(self, atoms: Mapping[E, Array], data: set[E]) -> None:
        self.atoms = atoms
        self.data = data
        self.everywhere = np.ones(len(next(iter(atoms.values()))), bool)
        self.known: dict[E, Values] = {}

    def of(self, expr: E) -> Values:
        found = self.known.get(expr)
        if found is None:
            with np.errstate(all="ignore"):
                found = self.known[expr] = self.evaluated(expr)
        return found

    def evaluated(self, expr: E) -> Values:
        always = self.everywhere
        match expr:
            case tir.Var() | BufferLoad():
                return Values(self.atoms[expr], always, always, expr in self.data)
            case tir.IntImm(value=value):
                numbers = np.full(
                    len(always), value, "bool" if expr.dtype == "bool" else expr.dtype
                )
                return Values(numbers, always, always, False)
            case tir.Broadcast(value=value, lanes=int(lanes)):
                lane = self.of(value)
                return self.joined(np.stack([lane.numbers] * lanes, 1), [lane])
            case tir.Ramp(base=base, stride=stride, lanes=int(lanes)):
                start, step = self.of(base), self.of(stride)
                times = np.arange(lanes).astype(start.numbers.dtype)
                steps = step.numbers[:, None] * times
                found = self.joined(start.numbers[:, None] + steps, [start, step])
                if found.is_data:
                    return found
                whole = step.numbers[:, None].astype(object) * times.astype(object)
                whole = start.numbers[:, None].astype(object) + whole
                found.exact = found.exact & lanewise(found.numbers == whole)
                return found
            case tir.Let(var=var, value=value, body=body):
                bound = self.of(value)
                data = self.data | {var} if bound.is_data else self.data
                inside = Points({**self.atoms, var: bound.numbers}, data).of(body)
                return self.joined(inside.numbers, [bound, inside], inside.is_data)
            case tir.Select(condition=c, true_value=a, false_value=b):
                parts = [self.of(part) for part in (c, a, b)]
                return self.joined(np.where(*(part.numbers for part in parts)), parts)
            case tir.Not(a=a):
                return self.joined(~self.of(a).numbers, [self.of(a)])
            case tir.And(a=a, b=b) | tir.Or(a=a, b=b):
                first, second = self.of(a), self.of(b)
                decides = first.numbers == isinstance(expr, tir.Or)
                numbers = np.where(decides, first.numbers, second.numbers)
                return self.lazily(numbers, first, (second, ~decides))
            case tir.Call(op=op, args=(c, a, b)) if op.name == "tir.if_then_else":
                test, yes, no = (self.of(part) for part in (c, a, b))
                numbers = np.where(test.numbers, yes.numbers, no.numbers)
                return self.lazily(numbers, test, (yes, test.numbers), (no, ~test.numbers))
            case tir.Call(op=op, args=(a,)) if op.name == "tir.likely":
                return self.of(a)
            case tir.Call(op=op, args=(a,)):
                assert op.name == "tir.bitwise_not"
                return self.joined(~self.of(a).numbers, [self.of(a)])
            case tir.Call(op=op, args=(a, b)) if op.name in _BITS:
                p, q = self.of(a), self.of(b)
                return self.joined(_BITS[op.name](p.numbers, q.numbers), [p, q])
            case tir.Call(op=op, args=(a, b)):
                return self.shifted(op.name, self.of(a), self.of(b))
            case tir.Cast(value=value, dtype=dtype):
                source = self.of(value)
                numbers = source.numbers.astype(str(dtype.element))
                changes = source.numbers.dtype != bool and bool((numbers != source.numbers).any())
                return self.joined(numbers, [source], source.is_data or changes)
            case tir.CmpExpr(a=a, b=b):
                p, q = self.of(a), self.of(b)
                return self.joined(_COMPARED[type(expr)](p.numbers, q.numbers), [p, q])
            case tir.Min(a=a, b=b) | tir.Max(a=a, b=b):
                p, q = self.of(a), self.of(b)
                choose = np.minimum if isinstance(expr, tir.Min) else np.maximum
                return self.joined(choose(p.numbers, q.numbers), [p, q])
            case tir.BinaryOpExpr(a=a, b=b):
                return self.binary(type(expr), self.of(a), self.of(b))
            case _:
                raise AssertionError(type(expr))

    def joined(self, numbers: Array, parts: list[Values], is_data: bool | None = None) -> Values:
        """Values of which all parts are evaluated."""
        defined, exact = self.everywhere, self.everywhere
        for part in parts:
            defined, exact = defined & part.defined, exact & part.exact
        holds = any(part.is_data for part in parts)
        return Values(numbers, defined, exact, holds if is_data is None else is_data)

    def lazily(self, numbers: Array, test: Values, *sides: tuple[Values, Array]) -> Values:
        """Values of which a side is evaluated where it is used, as told beside it."""
        found = self.joined(numbers, [test], any(s.is_data for s in (test, *(s for s, _ in sides))))
        for side, used in sides:
            found.defined = found.defined & (side.defined | ~used)
            found.exact = found.exact & (side.exact | ~used)
        return found

    def binary(self, kind: type[E], p: Values, q: Values) -> Values:
        a, b = p.numbers, q.numbers
        if kind in _DIVISIONS:
            zero = b == 0
            by = np.where(zero, np.ones_like(b), b)
            if kind in (tir.FloorDiv, tir.FloorMod):
                divide = np.floor_divide if kind is tir.FloorDiv else np.remainder
                numbers = divide(a, by)
            else:
                rest = np.fmod(a, by)
                numbers = rest if kind is tir.Mod else np.floor_divide(a - rest, by)
            found = self.joined(numbers, [p, q])
            found.defined = found.defined & lanewise(~zero)
            return self.checked(found, kind, a, by)
        return self.checked(self.joined(_RING[kind](a, b), [p, q]), kind, a, b)

    def shifted(self, name: str, p: Values, q: Values) -> Values:
        a, by = p.numbers, q.numbers
        bits = 8 * a.dtype.itemsize
        inside = (by >= 0) & (by < bits)
        by = np.where(inside, by, np.zeros_like(by))
        left = name == "tir.shift_left"
        found = self.joined((np.left_shift if left else np.right_shift)(a, by), [p, q])
        found.defined = found.defined & inside
        return self.checked(found, name, a, by) if left else found

    def checked(self, found: Values, kind: object, a: Array, b: Array) -> Values:
        """Values that must not overflow, unless they hold data or are unsigned."""
        if not found.is_data and a.dtype.kind == "i":
            work: Mapping[object, Callable[[Any, Any], Any]] = {
                tir.Add: lambda x, y: x + y,
                tir.Sub: lambda x, y: x - y,
                tir.Mul: lambda x, y: x * y,
                "tir.shift_left": lambda x, y: x << y,
            }
            if kind in work:
                whole = work[kind](a.astype(object), b.astype(object))
                found.exact = found.exact & lanewise(whole == found.numbers.astype(object))
            elif kind in (tir.FloorDiv, tir.Div):
                overflows = (b == -1) & (a == np.iinfo(a.dtype).min)
                found.exact = found.exact & lanewise(~overflows)
        return found


class Session:
    """One Analyzer, atoms of some datatypes with their values at all points, and questions."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        chosen = self.chosen = random.Random(seed)
        self.analyzer = arith.Analyzer()
        signed = chosen.choice(("int8", "int8", "int8", *WIDTHS))
        other = chosen.choice((signed, f"u{signed}", *EVERY))
        self.dtypes = list(dict.fromkeys((signed, other)))
        wider = WIDTHS[min(WIDTHS.index(signed) + 1, 3)]
        self.targets = (*self.dtypes, wider, f"u{signed}", signed)
        a = decl_buffer((1,), signed, "A")[0]
        b: E = decl_buffer((1,), other, "B")[0]
        if chosen.random() < 0.3:
            b = tir.Var("k", other)
            self.analyzer.declare_data(b)
        self.leaves: list[E] = [a, a, b]
        atoms = dict(zip((a, b), self.values(signed, other), strict=True))
        data = {a, b}
        if chosen.random() < 0.4 and signed != "int64":
            loop = tir.Var("i", signed)
            domain = Range.from_min_extent(
                tir.IntImm(signed, _LOOP.start), tir.IntImm(signed, len(_LOOP))
            )
            if chosen.random() < 0.6:
                self.analyzer.bind(loop, domain)
            self.leaves.append(loop)
            count = len(atoms[a])
            atoms[loop] = np.resize(np.array(_LOOP, signed), count)
        self.points = Points(atoms, data)

    def values(self, *dtypes: str) -> tuple[Array, Array]:
        """All pairs of values of two datatypes of 8 bits, or some at the ends and in between."""
        columns = [np.array(self.column(dtype), dtype) for dtype in dtypes]
        a, b = (side.ravel() for side in np.meshgrid(*columns))
        # The loop variable runs through its values beside each pair.
        order = np.random.default_rng(len(a)).permutation(len(a))
        return a[order], b[order]

    def column(self, dtype: str) -> list[int]:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if dtype in ("int8", "uint8"):
            return list(range(low, high + 1))
        near = [0, low, high, high // 2, low // 2, high // 3, low // 5, 1 << 7, 1 << 8]
        found = {low + (n + k - low) % (high - low + 1) for n in near for k in range(-3, 4)}
        found |= {self.chosen.randint(low, high) for _ in range(40)}
        return sorted(found)

    def literal(self, dtype: str) -> E:
        chosen = self.chosen
        if dtype == "bool":
            return tir.IntImm("bool", chosen.randint(0, 1))
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        if chosen.random() < 0.2:
            near = chosen.choice((low, high, high // 2, low // 2))
            return tir.IntImm(dtype, max(low, min(high, near + chosen.randint(-2, 2))))
        value = chosen.choice((-7, -5, -3, -2, -1, 0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 16))
        return tir.IntImm(dtype, max(low, value))

    def leaf(self, dtype: str) -> E:
        own = [leaf for leaf in self.leaves if leaf.dtype == dtype]
        if own and self.chosen.random() < 0.75:
            return self.chosen.choice(own)
        return self.literal(dtype)

    def number(self, dtype: str, size: int) -> E:
        """An integer expression of up to `size` leaves."""
        chosen = self.chosen
        if size < 2:
            return self.leaf(dtype)
        kind = chosen.random()
        share = chosen.randint(1, size - 1)
        if kind < 0.12:
            source = chosen.choice((*self.dtypes, "bool"))
            inner = self.number(source, size - 1) if source != "bool" else self.condition(size - 1)
            return inner if inner.dtype == dtype else tir.Cast(dtype, inner)
        if kind < 0.16:
            var = tir.Var("t", chosen.choice(self.dtypes))
            value = self.number(str(var.dtype), share)
            self.leaves.append(var)
            body = self.number(dtype, size - share)
            self.leaves.remove(var)
            return tir.Let(var, value, body)
        one, other = self.number(dtype, share), self.number(dtype, size - share)
        if kind < 0.22:
            return tir.Select(self.condition(2), one, other)
        if kind < 0.26:
            return tir.Call(dtype, "tir.if_then_else", (self.condition(2), one, other))
        if kind < 0.38:
            return chosen.choice((tir.Min, tir.Max))(one, other)
        if kind < 0.62:
            by = self.literal(dtype) if chosen.random() < 0.8 else other
            return chosen.choice(_DIVISIONS)(one, by)
        if kind < 0.7:
            return self.bits(dtype, one, other)
        if kind < 0.85:
            other = self.literal(dtype)
        return chosen.choice((tir.Add, tir.Sub, tir.Mul))(one, other)

    def bits(self, dtype: str, one: E, other: E) -> E:
        chosen = self.chosen
        pick = chosen.random()
        if pick < 0.4:
            mask = chosen.choice((other, tir.IntImm(dtype, chosen.choice((1, 3, 7, 15, 127)))))
            return tir.Call(dtype, chosen.choice(tuple(_BITS)), (one, mask))
        if pick < 0.5:
            return tir.Call(dtype, "tir.bitwise_not", (one,))
        by = tir.IntImm(dtype, chosen.randint(0, 7))
        return tir.Call(dtype, chosen.choice(("tir.shift_left", "tir.shift_right")), (one, by))

    def condition(self, size: int) -> E:
        """A Boolean expression."""
        chosen = self.chosen
        if size < 3 or chosen.random() < 0.7:
            dtype = chosen.choice(self.dtypes)
            kind = chosen.choice(tuple(_COMPARED))
            size = max(size, 2)
            share = chosen.randint(1, size - 1)
            return kind(self.number(dtype, share), self.number(dtype, size - share))
        first, second = self.condition(size // 2), self.condition(size // 2)
        kind = chosen.choice((tir.And, tir.Or, tir.Not))
        return tir.Not(first) if kind is tir.Not else kind(first, second)

    def vector(self, size: int) -> E:
        """An operation on a ramp and a broadcast, both of four lanes."""
        chosen, dtype = self.chosen, self.chosen.choice(self.dtypes)
        stride = self.literal(dtype) if chosen.random() < 0.8 else self.leaf(dtype)
        base, lane = self.number(dtype, size - 1), self.number(dtype, 1)
        if isinstance(lane, tir.IntImm) and lane.value == 0:
            lane = tir.IntImm(dtype, 3)  # a division of all lanes by 0 is refused
        other = tir.Broadcast(lane, 4)
        kind = chosen.choice((*_RING, *_DIVISIONS, tir.Min, tir.Max, *_COMPARED))
        found: E = kind(tir.Ramp(base, stride, 4), other)
        if chosen.random() < 0.3 and not found.dtype.is_bool:
            wider = WIDTHS[min(WIDTHS.index(dtype.removeprefix("u")) + 1, 3)]
            found = tir.Cast(f"{wider}x4", found)
        return found

    def any(self) -> E:
        """An expression of any datatype."""
        size = self.chosen.randint(2, 7)
        kind = self.chosen.random()
        if kind < 0.35:
            return self.condition(size)
        if kind < 0.42:
            return self.vector(size)
        return self.number(self.chosen.choice(self.targets), size)

    def ask(self, count: int) -> None:
        """Compare `count` answers with the values at all points."""
        for _ in range(count):
            self.chosen.choice(QUESTIONS)(self)

    def check(self, what: str, exprs: tuple[E, ...], right: Array, found: object) -> None:
        """Fail with a point at which an answer is not right."""
        if right.all():
            return
        right = lanewise(right)
        at = int(np.argmin(right))
        shown = ", ".join(f"{text(a)}={v[at]}" for a, v in self.points.atoms.items())
        values = ", ".join(str(self.points.of(e).numbers[at]) for e in exprs)
        lines = [f"seed {self.seed}: {what}", *map(text, exprs), f"gives {found}"]
        raise AssertionError("\n  ".join([*lines, f"at {shown}: {values}"]))


def simplified(session: Session) -> None:
    expr = session.any()
    engine = session.chosen.choice((session.analyzer.simplify, session.analyzer.rewrite_simplify))
    found = engine(expr)
    assert found.dtype == expr.dtype, text(expr)
    before, after = session.points.of(expr), session.points.of(found)
    counts = before.defined & before.exact & after.exact
    right = ~counts | (after.defined & lanewise(before.numbers == after.numbers))
    session.check("simplify", (expr, found), right, text(found))


def equal(session: Session) -> None:
    dtype = session.chosen.choice(session.dtypes)
    a, b = (session.number(dtype, session.chosen.randint(1, 4)) for _ in range(2))
    found = session.analyzer.prove_equal(a, b)
    if found is not None:
        p, q = session.points.of(a), session.points.of(b)
        counts = p.defined & p.exact & q.defined & q.exact
        session.check("prove_equal", (a, b), ~counts | ((p.numbers == q.numbers) == found), found)


def covered(session: Session) -> None:
    """The interval of an expression over the values of the loop variable."""
    loops = [leaf for leaf in session.leaves if isinstance(leaf, tir.Var) and leaf.name == "i"]
    if not loops:
        return
    expr = session.number(str(loops[0].dtype), session.chosen.randint(2, 5))
    found = session.analyzer.int_set(expr, {loops[0]: Range(_LOOP.start, _LOOP.stop)})
    values = session.points.of(expr)
    right = ~values.defined | ~values.exact
    for has_end, end, compare in (
        (found.has_lower_bound(), found.min_value, np.less_equal),
        (found.has_upper_bound(), found.max_value, np.greater_equal),
    ):
        if has_end:
            limit = session.points.of(end)
            inside = compare(limit.numbers, values.numbers)
            within = right | inside | ~limit.defined | ~limit.exact
            session.check("int_set", (expr, end), within, found)


def proved(session: Session) -> None:
    condition = session.condition(session.chosen.randint(2, 6))
    if session.analyzer.can_prove(condition):
        values = session.points.of(condition)
        counts = values.defined & values.exact
        session.check("can_prove", (condition,), ~counts | values.numbers, True)


def bounded(session: Session) -> None:
    expr = session.number(session.chosen.choice(session.targets), session.chosen.randint(2, 6))
    bound = session.analyzer.const_int_bound(expr)
    values = session.points.of(expr)
    right = (values.numbers >= bound.min_value) | (bound.min_value == bound.NEG_INF)
    right &= (values.numbers <= bound.max_value) | (bound.max_value == bound.POS_INF)
    session.check("const_int_bound", (expr,), right | ~values.defined | ~values.exact, bound)


def modular(session: Session) -> None:
    expr = session.number(session.chosen.choice(session.targets), session.chosen.randint(2, 6))
    known = session.analyzer.modular_set(expr)
    values = session.points.of(expr)
    apart = values.numbers.astype(object) - known.base
    right = np.equal(apart % known.coeff if known.coeff else apart, 0)
    right = right.astype(bool) | ~values.defined | ~values.exact
    session.check("modular_set", (expr,), right, known)


def assumed(session: Session) -> None:
    """An expression simplified where a condition holds."""
    condition, expr = session.condition(session.chosen.randint(2, 4)), session.any()
    with session.analyzer.constraint_scope(condition):
        found = session.analyzer.simplify(expr)
    test, before, after = (session.points.of(e) for e in (condition, expr, found))
    counts = before.defined & before.exact & after.exact
    counts = counts & test.defined & test.exact & test.numbers
    right = ~counts | (after.defined & lanewise(before.numbers == after.numbers))
    session.check(f"simplify where {text(condition)}", (expr, found), right, text(found))


QUESTIONS = [
    *([simplified] * 8),
    *([assumed] * 3),
    equal,
    proved,
    proved,
    bounded,
    modular,
    covered,
]
