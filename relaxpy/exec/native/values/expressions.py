"""Emits the values of PrimExprs, with the semantics of the reference evaluator, in any lanes.

Integers wrap, and their division rounds as the operator says. Values of floats of 8 and 16 bits
are computed in float32 and rounded after each operation. Both sides of a select are computed:
out-of-bounds loads are 0, and zero divisors are 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from typing_extensions import override

from relaxpy.exec.machine.tuning import Plans, Vectors
from relaxpy.exec.native.llvm.narrow_floats import FLOATS_OF_8_BITS, rounded
from relaxpy.exec.native.llvm.writer import BOOL, I64, Type, Value
from relaxpy.exec.native.maths.by_name import MATHS, emit_maths
from relaxpy.exec.native.maths.numbers import absolute, any_lane, narrow, widen
from relaxpy.exec.native.maths.quotients import far_from_one, may_lose_digits, quotient_by
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.exec.native.values.datatypes import (
    RefusedError,
    is_short_float,
    storage_type,
    value_type,
)
from relaxpy.exec.native.values.environment import NOW, Frame
from relaxpy.exec.native.values.short_floats import from_memory, to_memory
from relaxpy.ir.core.dtype import FLOAT32, DataType
from relaxpy.ir.core.traverse import children, postorder, tree_size
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.ops import int_range

_COMPARISONS: Mapping[type[tir.PrimExpr], str] = {
    tir.EQ: "eq",
    tir.NE: "ne",
    tir.LT: "lt",
    tir.LE: "le",
    tir.GT: "gt",
    tir.GE: "ge",
}
_ARITHMETIC: Mapping[type[tir.PrimExpr], str] = {
    tir.Add: "add",
    tir.Sub: "sub",
    tir.Mul: "mul",
    tir.Div: "div",
}
_TRUTHS: Mapping[type[tir.PrimExpr], str] = {
    tir.Add: "xor",
    tir.Sub: "xor",
    tir.Mul: "and",
    tir.Min: "and",
    tir.Max: "or",
}
_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_WHOLE = {"float16": 1 << 11, "bfloat16": 1 << 8}
"""Up to this, all integers are values of a datatype."""


def _operands(expr: tir.PrimExpr) -> list[tir.PrimExpr]:
    """The operands whose values make up the value of `expr`; an index of an element is none."""
    if isinstance(expr, BufferLoad):
        return []
    return [child for child in children(expr) if isinstance(child, tir.PrimExpr)]


def _largest(expr: tir.PrimExpr) -> int | None:
    """The largest magnitude of a 16-bit float, if it is an integer that needs no rounding."""
    limit, found = _WHOLE.get(str(expr.dtype)), None
    if limit is None:
        return None
    match expr:
        case tir.FloatImm(value=number) if number == number // 1:
            found = abs(int(number))
        case tir.Cast(value=inner) if inner.dtype.is_int:
            found = _largest_integer(inner)
        case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b) | tir.Mul(a=a, b=b):
            x = _largest(a)
            y = None if x is None else _largest(b)
            if x is not None and y is not None:
                found = x * y if isinstance(expr, tir.Mul) else x + y
        case _:
            pass
    return None if found is None or found > limit else found


def _largest_integer(expr: tir.PrimExpr) -> int | None:
    """The largest magnitude of an integer of few bits."""
    match expr:
        case tir.Call(op=Op(name="tir.bitwise_and"), args=[_, tir.IntImm(value=mask)]) if mask >= 0:
            return mask
        case tir.Cast(value=inner) if inner.dtype.is_int and inner.dtype.bits < expr.dtype.bits:
            keeps_sign = expr.dtype.family == "int" or inner.dtype.family == "uint"
            return _largest_integer(inner) if keeps_sign else None
        case _ if expr.dtype.bits <= 8:
            return max(map(abs, int_range(expr.dtype)))
        case _:
            return None


class Values(Frame):
    """A frame that evaluates expressions."""

    _known: dict[tuple[object, ...], Value] | None = None
    """Facts within the outermost expression that is evaluated, in the lanes it is for."""

    def bind(self, var: tir.Var, value: Value) -> None:
        """Let `var` have a value of its datatype from here on."""
        self.bound[var] = value

    @override
    def atom(self, atom: tir.PrimExpr) -> Value:
        with self._once() as known:
            key = "index", atom, self.lanes
            found = known.get(key)
            if found is None:
                found = known[key] = self._atom(atom)
            return found

    @contextmanager
    def _once(self) -> Iterator[dict[tuple[object, ...], Value]]:
        """Indices are evaluated for bounds and for addresses, at each level of elements in them."""
        outer = self._known
        self._known = {} if outer is None else outer
        try:
            yield self._known
        finally:
            self._known = outer

    def _atom(self, atom: tir.PrimExpr) -> Value:
        match atom:
            case tir.Var() if atom not in self.bound and atom.dtype.is_int:
                return self.variable(atom)
            case tir.IntImm(value=value):
                return self.function.const(I64, value)
            case tir.FloorDiv(a=a, b=b) | tir.FloorMod(a=a, b=b) if self._is_wide(atom.dtype):
                return self._divided(type(atom), self.index(a), self.index(b), signed=True)
            case tir.Min(a=a, b=b) | tir.Max(a=a, b=b) if self._is_wide(atom.dtype):
                name = "smin" if isinstance(atom, tir.Min) else "smax"
                return self._intrinsic(name, self.index(a), self.index(b))
            case _:
                return self._resized(self.value(atom), atom.dtype, I64)

    def _is_wide(self, dtype: DataType) -> bool:
        return dtype.family == "int" and dtype.bits >= 32

    def value(self, expr: tir.PrimExpr) -> Value:
        """The value of `expr`, in which a shared node is computed once.

        Errors:
            RefusedError: an operation or a datatype has no native form.
        """
        lanes = self.lanes
        with self._once() as known:
            for node in postorder([expr], _operands):
                if (node, lanes) not in known:
                    operands = [known[operand, lanes] for operand in _operands(node)]
                    known[node, lanes] = self._computed(node, operands)
            return known[expr, lanes]

    def _computed(self, expr: tir.PrimExpr, values: list[Value]) -> Value:
        """The value of `expr`, whose operands have `values`."""
        kind = type(expr)
        match expr:
            case tir.IntImm(value=number) | tir.FloatImm(value=number):
                kept = value_type(expr.dtype)
                if is_short_float(expr.dtype):
                    number = float(expr.dtype.numpy().type(number))
                if expr.dtype.is_int and number >= 1 << (kept.bits - 1) and not expr.dtype.is_bool:
                    number -= 1 << kept.bits  # LLVM has no signs
                return self.function.const(kept, number)
            case tir.Var() if expr in self.bound:
                return self.bound[expr]
            case tir.Var():
                return self._resized(self.variable(expr), DataType("int64"), value_type(expr.dtype))
            case BufferLoad(buffer=buffer, indices=indices):
                stored = self.stored.get((buffer, indices))
                return self.widened(self.load(expr), buffer.dtype) if stored is None else stored
            case tir.CmpExpr(a=a):
                return self._compared(_COMPARISONS[kind], a.dtype, *values)
            case tir.And() | tir.Or():
                return self.bits("and" if kind is tir.And else "or", *values)
            case tir.Not():
                return self.negated(*values)
            case tir.Select():
                return self.choice(*values)
            case tir.Cast(value=inner, dtype=dtype):
                target = dtype if _largest(expr) is None else FLOAT32
                [value] = values
                if dtype.is_int and value.type.lanes > 1 and not self._is_read(inner):
                    # What is out of range is undefined to LLVM, which would drop a float between
                    # two integers. An element stays the operand of the instruction.
                    value = self.apply("fence", self.function.fence, value)
                return self.cast(value, inner.dtype, target)
            case tir.BinaryOpExpr():
                computed = expr.dtype if _largest(expr) is None else FLOAT32
                return self.binary(kind, computed, *values)
            case tir.Call(op=Op(name=name)):
                return self._call(name.removeprefix("tir."), expr, values)
            case _:
                raise RefusedError(f"the expression {expr}")

    def _is_read(self, expr: tir.PrimExpr) -> bool:
        """True if `expr` is an element that is read from memory."""
        return isinstance(expr, BufferLoad) and (expr.buffer, expr.indices) not in self.stored

    # ---- memory's types

    def widened(self, value: Value, dtype: DataType) -> Value:
        """A value of memory's type, converted to the type of arithmetic."""
        f = self.function
        if dtype.is_bool:
            return self.apply("truth", lambda x: f.compare("ne", x, 0), value)
        if not is_short_float(dtype):
            return value
        wide = self.apply(f"from {dtype}", lambda x: from_memory(x, dtype), value)
        self.widened_from[wide.name, dtype] = value
        return wide

    def narrowed(self, value: Value, dtype: DataType) -> Value:
        """A value converted to memory's type."""
        f = self.function
        known = self.widened_from.get((value.name, dtype))
        if known is not None and known.type.lanes == value.type.lanes:
            return known
        value = self.rounded_from.get((value.name, dtype), value)
        if dtype.is_bool:
            return self.apply("zext8", lambda x: f.cast("zext", x, "i8"), value)
        if not is_short_float(dtype):
            return value
        return self.apply(f"to {dtype}", lambda x: to_memory(x, dtype), value)

    def rounded(self, value: Value, dtype: DataType) -> Value:
        """A result of float32 arithmetic rounded to a float of 8 or 16 bits; others as they are."""
        if (format := FLOATS_OF_8_BITS.get(dtype)) is not None:
            build = lambda x: rounded(self.function, x, format)  # noqa: E731
            result = self.apply(f"rounded {dtype}", build, value)
            self.rounded_from[result.name, dtype] = value
            return result
        if is_short_float(dtype):
            return self.widened(self.narrowed(value, dtype), dtype)
        return value

    # ---- operations

    def bits(self, name: str, a: Value, b: Value) -> Value:
        """`and`, `or`, `xor` or a shift."""
        return self.apply(name, lambda x, y: self.function.arithmetic(name, x, y), a, b)

    def choice(self, condition: Value, yes: Value, no: Value) -> Value:
        """`yes` where the condition holds, else `no`."""
        if condition.type.lanes == 1:
            lanes = max(yes.type.lanes, no.type.lanes)
            yes, no = self.wide(yes, lanes), self.wide(no, lanes)
            key = "select", condition.name, yes.name, no.name, yes.type
            build = lambda: self.function.select(condition, yes, no)  # noqa: E731
            return self.place(key, (condition, yes, no), build)
        return self.apply("select", self.function.select, condition, yes, no)

    def _intrinsic(self, name: str, *operands: Value) -> Value:
        build = lambda *values: self.function.intrinsic(name, *values)  # noqa: E731
        return self.apply(name, build, *operands)

    def _compared(self, name: str, dtype: DataType, a: Value, b: Value) -> Value:
        if dtype.is_float:
            predicate = "une" if name == "ne" else f"o{name}"
        elif name in ("eq", "ne"):
            predicate = name
        else:
            predicate = ("s" if dtype.family == "int" and not dtype.is_bool else "u") + name
        return self.apply(predicate, lambda x, y: self.function.compare(predicate, x, y), a, b)

    def binary(self, kind: type[tir.PrimExpr], dtype: DataType, a: Value, b: Value) -> Value:
        """An arithmetic operation on two values of `dtype`."""
        if dtype.is_bool:
            if kind not in _TRUTHS:
                raise RefusedError("a division of truth values")
            return self.bits(_TRUTHS[kind], a, b)
        signed = dtype.family == "int"
        if kind in (tir.Min, tir.Max):
            name = "min" if kind is tir.Min else "max"
            if dtype.is_float:
                return self._intrinsic(f"{name}imum", a, b)
            return self._intrinsic(("s" if signed else "u") + name, a, b)
        if dtype.is_int and kind not in (tir.Add, tir.Sub, tir.Mul):
            return self._divided(kind, a, b, signed=signed)
        if kind not in _ARITHMETIC:
            return self.rounded(self._float_quotient(kind, a, b), dtype)
        if kind is tir.Div and self._divides_many(a, b):
            return self.rounded(self._quotient_by_known(a, b), dtype)
        name = _ARITHMETIC[kind]
        # The products and sums of the source are rounded one by one, as by NumPy.
        build = lambda x, y: _exact(name, x, y)  # noqa: E731
        key = f"{'f' if dtype.is_float else ''}{name}"
        return self.rounded(self.apply(key, build, a, b), dtype)

    def _divides_many(self, a: Value, b: Value) -> bool:
        """True if a loop divides several registers of 512 bits by the same float.

        Such a division keeps its unit busy for as long as some twenty other instructions take.
        """
        module, inside = self.function.module, len(self._slots) - 1
        if not (module.has_avx512 and module.fuses and a.type.bits == b.type.bits == 32):
            return False
        if b.type.lanes > 1 or b.name[0] != "%" or 32 * a.type.lanes < module.vector_bits:
            return False
        extent = self.axes[-1].extent.constant if self.axes else 1
        is_long = extent is None or extent >= Vectors.DIVIDED * a.type.lanes
        return is_long and self.level_of(b) < inside <= self.level_of(a)

    def _quotient_by_known(self, a: Value, b: Value) -> Value:
        """`a / b`, rounded once, by the reciprocal of `b`, which is computed before the loop."""
        f = self.function
        reciprocal = self.apply("reciprocal", lambda y: _exact("div", f.const(y.type, 1), y), b)
        is_far = self.apply("far", far_from_one, b)
        known = [self.wide(value, a.type.lanes) for value in (b, reciprocal, is_far)]

        def build() -> Value:
            y, inverse, far = known
            divide = lambda: [_exact("div", a, y)]  # noqa: E731
            multiply = lambda: [quotient_by(a, y, inverse)]  # noqa: E731
            bad = f.arithmetic("or", may_lose_digits(a), far)
            [result] = f.branch(any_lane(bad), divide, multiply)
            return result

        key = "quotient", a.name, b.name
        return self.place(key, (a, *known), build, floor=NOW)

    def _float_quotient(self, kind: type[tir.PrimExpr], a: Value, b: Value) -> Value:
        """The floor of the quotient of floats, or the remainder, from the exact remainder."""
        f = self.function
        remainder = self.function_value("fmod", [a, b])
        if kind is tir.Mod:
            return remainder

        def signs_differ(rest: Value, y: Value) -> Value:
            differ = f.arithmetic("xor", f.compare("olt", rest, 0), f.compare("olt", y, 0))
            return f.arithmetic("and", f.compare("une", rest, 0), differ)

        def modulo(rest: Value, y: Value) -> Value:
            signed = f.intrinsic("copysign", rest, y)
            moved = f.select(signs_differ(rest, y), _exact("add", rest, y), rest)
            moved = f.select(f.compare("oeq", rest, 0), signed, moved)
            return f.select(f.compare("oeq", y, 0), rest, moved)

        def quotient(x: Value, y: Value, rest: Value) -> Value:
            whole = _exact("div", _exact("sub", x, rest), y)
            less = _exact("sub", whole, f.like(x, f.const(Type(x.type.element), 1)))
            whole = f.select(signs_differ(rest, y), less, whole)
            floor = f.intrinsic("floor", whole)
            half = f.compare("ogt", _exact("sub", whole, floor), 0.5)
            above = _exact("add", floor, f.like(x, f.const(Type(x.type.element), 1)))
            floor = f.select(half, above, floor)
            exact, zero = _exact("div", x, y), f.const(x.type, 0)
            floor = f.select(
                f.compare("oeq", whole, 0), f.intrinsic("copysign", zero, exact), floor
            )
            return f.select(f.compare("oeq", y, 0), exact, floor)

        if kind is tir.FloorMod:
            return self.apply("modulo", modulo, remainder, b)
        return self.apply("floor quotient", quotient, a, b, remainder)

    def _divided(self, kind: type[tir.PrimExpr], a: Value, b: Value, *, signed: bool) -> Value:
        """The quotient or the remainder of two integers."""

        def build(x: Value, y: Value) -> Value:
            f = self.function
            zero = f.compare("eq", y, 0)
            safe = f.select(zero, f.like(y, f.const(Type(y.type.element), 1)), y)
            is_remainder = kind in (tir.Mod, tir.FloorMod)
            if not signed:
                quotient = _quotient(x, safe, signed=False)
                return x - quotient * safe if is_remainder else quotient
            # The minimum divided by -1 would trap; it wraps.
            minus = f.compare("eq", y, -1)
            one = f.like(y, f.const(Type(y.type.element), 1))
            safe = f.select(minus, one, safe)
            quotient = _quotient(x, safe, signed=True)
            remainder = x - quotient * safe
            if kind in (tir.FloorDiv, tir.FloorMod):
                differs = f.compare("ne", remainder, 0)
                opposite = f.compare("slt", f.arithmetic("xor", remainder, safe), 0)
                below = f.arithmetic("and", differs, opposite)
                quotient = f.select(below, quotient - 1, quotient)
                remainder = f.select(below, remainder + safe, remainder)
            if is_remainder:
                return f.select(minus, f.like(x, 0), remainder)
            return f.select(minus, 0 - x, quotient)

        name = f"{kind.__name__}{'' if signed else ' unsigned'}"
        number = b.name.lstrip("-")
        if number.isdigit() and int(number) > 0 and not b.name.startswith("-"):
            return self.apply(name, lambda x, y: self._by_constant(kind, x, y, signed=signed), a, b)
        return self.apply(name, build, a, b)

    def _by_constant(self, kind: type[tir.PrimExpr], x: Value, y: Value, *, signed: bool) -> Value:
        """A division by a positive number."""
        f = self.function
        is_remainder = kind in (tir.Mod, tir.FloorMod)
        if not signed:
            return f.new(x.type, f"{'urem' if is_remainder else 'udiv'} {x}, {y.name}")
        if kind in (tir.Div, tir.Mod):
            return f.new(x.type, f"{'srem' if is_remainder else 'sdiv'} {x}, {y.name}")
        remainder = f.new(x.type, f"srem {x}, {y.name}")
        negative = f.compare("slt", remainder, 0)
        if is_remainder:
            return f.select(negative, remainder + y, remainder)
        quotient = f.new(x.type, f"sdiv {x}, {y.name}")
        return f.select(negative, quotient - 1, quotient)

    # ---- obligations

    def require(self, obligation: Obligation) -> None:
        """Leave if an obligation does not hold in the current iteration, or in an active lane.

        Errors:
            RefusedError: the values that it inlines are too long to compute again.
        """
        f, index = self.function, obligation.index
        if any(tree_size(expr) > Plans.TREE for expr in (index, *obligation.path)):
            raise RefusedError("a test of a value that a long chain of others makes up")
        value = size = f.const(I64, 0)
        if obligation.size is not None:
            value, size = self.index(index), self.extent(obligation.size)
            bad: Value = self.apply("uge", lambda x, y: f.compare("uge", x, y), value, size)
        elif index.dtype.is_bool:
            bad = self.negated(self.value(index))
        else:
            bad = self.apply("is zero", lambda x: f.compare("eq", x, 0), self.value(index))
        for test in obligation.path:
            bad = self.bits("and", bad, self.value(test))
        if self.lanes is not None and self.lanes.mask is not None:
            bad = self.bits("and", bad, self.lanes.mask)
        if self.failures is None:
            f.leave(bad)
        else:
            self.failures.leave(obligation, bad, value, size)

    def negated(self, condition: Value) -> Value:
        """True if a condition does not hold."""
        return self.bits("xor", condition, self.function.const(BOOL, 1))

    # ---- conversions

    def _resized(self, value: Value, source: DataType, type: Type) -> Value:
        """An integer in another number of bits: its lowest bits, or extended."""
        element = type.element
        if value.type.element == element:
            return value
        bits = int(element[1:])
        f = self.function
        if value.type.bits > bits:
            return self.apply(f"trunc{bits}", lambda x: f.cast("trunc", x, element), value)
        signed = source.family == "int" and not source.is_bool
        name = "sext" if signed else "zext"
        return self.apply(f"{name}{bits}", lambda x: f.cast(name, x, element), value)

    def cast(self, value: Value, source: DataType, target: DataType) -> Value:
        """A value of `source` as one of `target`."""
        f, type = self.function, value_type(target)
        if source == target:
            return value
        if target.is_bool:
            predicate = "une" if source.is_float else "ne"
            return self.apply("nonzero", lambda x: f.compare(predicate, x, 0), value)
        if source.is_int and target.is_int:
            return self._resized(value, source, type)
        if source.is_int:
            return self._to_float(value, source, target, type.element)
        if target.is_float:
            return self._between_floats(value, target, type.element)
        return self._to_integer(value, target, type)

    def _to_float(self, value: Value, source: DataType, target: DataType, element: str) -> Value:
        f = self.function
        name = "sitofp" if source.family == "int" and not source.is_bool else "uitofp"
        result = self.apply(f"{name} {element}", lambda x: f.cast(name, x, element), value)
        return self.rounded(result, target)

    def _between_floats(self, value: Value, target: DataType, element: str) -> Value:
        f = self.function
        if value.type.element == element:
            return self.rounded(value, target)
        if target.bits <= 16:
            # As by NumPy, float16 is rounded once and the others by way of float32.
            truncate = _to_odd if str(target) == "float16" else _to_float
            return self.rounded(self.apply(truncate.__name__, truncate, value), target)
        name = "fpext" if element == "double" else "fptrunc"
        return self.apply(f"{name} {element}", lambda x: f.cast(name, x, element), value)

    def _to_integer(self, value: Value, target: DataType, type: Type) -> Value:
        """Round toward zero. Values out of range convert as by x86-64."""
        f = self.function
        if str(target) == "uint64":

            def unsigned(x: Value) -> Value:
                half = f.const(x.type, 2.0**63)
                above = f.compare("oge", x, half)
                low = _signed(f.select(above, _exact("sub", x, half), x), "i64")
                return f.select(above, f.arithmetic("xor", low, -(1 << 63)), low)

            return self.apply("fptoui i64", unsigned, value)
        # Those of fewer bits are the lowest ones; negative numbers wrap.
        wide = "i64" if type.bits == 64 or str(target) == "uint32" else "i32"
        result = self.apply(f"fptosi {wide}", lambda x: _signed(x, wide), value)
        return self._resized(result, target, type)

    # ---- intrinsics

    def _call(self, name: str, expr: tir.Call, values: list[Value]) -> Value:
        f, dtype, args = self.function, expr.dtype, _operands(expr)
        if name == "if_then_else":
            return self.choice(*values)
        if name in _BITWISE:
            return self.bits(_BITWISE[name], *values)
        if name in ("shift_left", "shift_right") and not dtype.is_bool:
            return self._shift(name, values[0], values[1], dtype)
        if name == "bitwise_not":
            ones = f.const(Type(values[0].type.element), 1 if dtype.is_bool else -1)
            return self.bits("xor", values[0], ones)
        if name in ("popcount", "clz") and not args[0].dtype.is_bool:
            return self._counted_bits(name, values[0], dtype)
        if name == "isnan" and args[0].dtype.is_float:
            return self.apply("isnan", lambda x: f.compare("uno", x, x), values[0])
        if name == "reinterpret":
            return self._reinterpreted(values[0], args[0].dtype, dtype)
        # The exponent of `ldexp` may be a float, which is no operand of its native form.
        if not dtype.is_float or any(a.dtype != dtype for a in args) or name == "ldexp":
            raise RefusedError(f"the function {name} of {args[0].dtype}")
        if name == "pow" and isinstance(args[0], tir.FloatImm) and args[0].value == 2:
            name, values = "exp2", values[1:]
        if name == "nextafter" and dtype.bits == 8:
            raise RefusedError(f"the function {name} of {dtype}")
        if name == "nextafter" and dtype.bits == 16:
            element = "half" if dtype == "float16" else "bfloat"
            build = lambda *xs: widen(emit_maths(f, name, *(narrow(x, element) for x in xs)))  # noqa: E731
            return self.apply(f"{name}.{element}", build, *values)
        return self.rounded(self.function_value(name, values), dtype)

    def function_value(self, name: str, values: list[Value]) -> Value:
        """A mathematical function of floats.

        Errors:
            RefusedError: it has no native form.
        """
        if name not in MATHS:
            raise RefusedError(f"the function {name}")
        build = lambda *xs: emit_maths(self.function, name, *xs)  # noqa: E731
        return self.apply(name, build, *values)

    def _shift(self, name: str, a: Value, b: Value, dtype: DataType) -> Value:
        """A shift by any amount: out of range, all bits are lost, or are those of the sign."""
        signed = dtype.family == "int"

        def build(x: Value, y: Value) -> Value:
            f = self.function
            valid = f.compare("ult", y, dtype.bits)
            last = f.like(y, f.const(Type(y.type.element), dtype.bits - 1))
            if name == "shift_right" and signed:
                return f.arithmetic("ashr", x, f.select(valid, y, last))
            zero = f.like(x, f.const(Type(x.type.element), 0))
            safe = f.select(valid, y, zero)
            shifted = f.arithmetic("shl" if name == "shift_left" else "lshr", x, safe)
            return f.select(valid, shifted, zero)

        return self.apply(f"{name} {'s' if signed else 'u'}", build, a, b)

    def _counted_bits(self, name: str, value: Value, dtype: DataType) -> Value:
        f = self.function

        def build(x: Value) -> Value:
            if name == "popcount":
                return f.intrinsic("ctpop", x)
            full = f"llvm.ctlz.{x.type.suffix}"
            f.module.declare(full, x.type, [x.type, "i1 immarg"])
            return f.new(x.type, f"call {x.type} @{full}({x}, i1 false)")

        return self._resized(self.apply(name, build, value), DataType("uint64"), value_type(dtype))

    def _reinterpreted(self, value: Value, source: DataType, target: DataType) -> Value:
        f = self.function
        stored = self.narrowed(value, source)
        element = storage_type(target).element
        if stored.type.element != element:
            stored = self.apply(
                f"bitcast {element}", lambda x: f.cast("bitcast", x, element), stored
            )
        return self.widened(stored, target)


def _signed(x: Value, element: str) -> Value:
    """A float as an integer; the smallest one if it is a NaN or out of range."""
    f = x.function
    result = f.cast("fptosi", x, element)
    # LLVM may know the variables of a loop, and the result of one out of range is undefined to it.
    is_known = x.type.lanes == 1 or f.promoted
    if not (is_known or f.module.platform.architecture.saturates):
        return result
    smallest = -(1 << result.type.bits - 1)
    is_inside = f.compare("olt", absolute(x), -float(smallest))
    return f.select(is_inside, result, f.const(result.type, smallest))


def _exact(name: str, x: Value, y: Value) -> Value:
    """A result that is rounded by itself, not contracted into a larger operation."""
    function = x.function
    outer, function.flags = function.flags, ""
    result = function.arithmetic(name, x, y)
    function.flags = outer
    return result


def _quotient(x: Value, y: Value, *, signed: bool) -> Value:
    """The quotient of integers, rounded towards zero.

    CPUs have no instruction for it in vectors. Floats with a mantissa longer than the integers are
    exact: a fraction differs from the next integer by more than their error.
    """
    f, sign = x.function, "s" if signed else "u"
    if x.type.lanes == 1 or x.type.bits > 32:
        return f.new(x.type, f"{sign}div {x}, {y.name}")
    wide = "double" if x.type.bits == 32 else "float"
    a, b = (f.cast(f"{sign}itofp", v, wide) for v in (x, y))
    whole = f.cast(f"fpto{sign}i", _exact("div", a, b), x.type.element)
    # LLVM would make the minimum of an unsigned one and of 0 a conversion to 0 bits, and abort.
    return whole if signed else f.new(x.type, f"freeze {whole}")


def _to_float(value: Value) -> Value:
    return value.function.cast("fptrunc", value, "float")


def _to_odd(value: Value) -> Value:
    """A double as a float that rounds further to the number which the double rounds to.

    It is truncated, and its last bit is set if it is not exact.
    """
    f = value.function
    near = f.cast("fptrunc", value, "float")
    back = f.cast("fpext", near, "double")
    bits = f.cast("bitcast", near, "i32")
    beyond = f.compare("ogt", f.intrinsic("fabs", back), f.intrinsic("fabs", value))
    odd = f.arithmetic("or", f.select(beyond, bits - 1, bits), 1)
    return f.cast("bitcast", f.select(f.compare("one", back, value), odd, bits), "float")
