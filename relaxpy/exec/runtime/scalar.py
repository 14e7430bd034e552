"""Evaluation of PrimExprs, one scalar operation at a time, and counts that fit into int64.

Integers are Python integers, which are wrapped to their datatype or checked after each operation.
Booleans are Python's, floats are scalars of NumPy or ml_dtypes, and a vector is a tuple.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy.errors import CompileError, RuntimeCheckError, Span
from relaxpy.ir.core.dtype import FLOAT64, DataType
from relaxpy.ir.core.memo import memoised, unshared_size
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, ops, stmt as st
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.intrinsics import INTRINSICS, intrinsic_of, is_external, is_foreign
from relaxpy.ir.tir.prim_func import PrimFunc, kernel_name
from relaxpy.support.missing import digits

Scalar: TypeAlias = Any
Integers: TypeAlias = Callable[[int, DataType], int]
"""Brings an integer result into the range of its datatype, or raises an error."""


def wrapped(value: int, dtype: DataType) -> int:
    """`value` modulo 2**bits, as kernels compute it."""
    return bool(value & 1) if dtype.is_bool else ops.wrap_int(value, dtype)


def checked(value: int, dtype: DataType) -> int:
    """`value`, a dimension. Errors: RuntimeCheckError if it is out of range (PX-9)."""
    low, high = ops.int_range(dtype)
    if low <= value <= high:
        return bool(value) if dtype.is_bool else value
    raise RuntimeCheckError(
        f"the size {digits(value)} is outside the range of {dtype}", rule="PX-9"
    )


def divisor(value: int) -> int:
    """`value`. Errors: RuntimeCheckError if it is zero (PX-3)."""
    if value == 0:
        raise RuntimeCheckError("division by zero", rule="PX-3")
    return value


_INTEGER: dict[type[tir.PrimExpr], Callable[[int, int], int]] = {
    tir.Add: operator.add,
    tir.Sub: operator.sub,
    tir.Mul: operator.mul,
    tir.Div: lambda a, b: ops.trunc_div(a, divisor(b)),
    tir.Mod: lambda a, b: a - b * ops.trunc_div(a, divisor(b)),
    tir.FloorDiv: lambda a, b: a // divisor(b),
    tir.FloorMod: lambda a, b: a % divisor(b),
    tir.Min: min,
    tir.Max: max,
}
_FLOAT: dict[type[tir.PrimExpr], Callable[[Any, Any], Any]] = {
    tir.Add: operator.add,
    tir.Sub: operator.sub,
    tir.Mul: operator.mul,
    tir.Div: operator.truediv,
    tir.Mod: np.fmod,
    tir.FloorDiv: np.floor_divide,
    tir.FloorMod: np.remainder,
    tir.Min: np.minimum,
    tir.Max: np.maximum,
}
_COMPARE: dict[type[tir.PrimExpr], Callable[[Any, Any], Any]] = {
    tir.EQ: operator.eq,
    tir.NE: operator.ne,
    tir.LT: operator.lt,
    tir.LE: operator.le,
    tir.GT: operator.gt,
    tir.GE: operator.ge,
}


def literal(value: bool | int | float, dtype: DataType) -> Scalar:
    """A literal of `dtype`."""
    if dtype.is_int:
        return bool(value) if dtype.is_bool else int(value)
    return dtype.numpy().type(value)


def cast(value: Scalar, source: DataType, target: DataType) -> Scalar:
    """`value` converted as in C: floats to integers toward zero, numbers to Bool by != 0."""
    if target.family == "handle":
        return value
    if target.is_bool:
        return bool(value != 0)
    if target.is_float:
        if max(source.bits, target.bits) <= 8:
            # ml_dtypes has no conversions from and to float8_e8m0fnu.
            value, source = np.float32(value), DataType("float32")
        # NumPy rounds once; Python's conversion would also round to double precision.
        return np.array(value, source.numpy()).astype(target.numpy())[()]
    if not source.is_float:
        return wrapped(int(value), target)
    number = float(value)
    if target == "uint64" and number >= 2**63:
        return wrapped(_signed(number - 2.0**63, 64) + 2**63, target)
    return wrapped(_signed(number, 64 if target == "uint32" else max(target.bits, 32)), target)


def _signed(value: float, bits: int) -> int:
    """A float toward zero as x86-64 does: the smallest integer if it is a NaN or out of range."""
    limit = 1 << bits - 1
    return int(value) if abs(value) < limit else -limit


def _bits_of(value: int, dtype: DataType) -> int:
    return int(value) & ((1 << dtype.bits) - 1)


def _shift_left(a: int, b: int, dtype: DataType) -> int:
    return a << b if 0 <= b < dtype.bits else 0


def _shift_right(a: int, b: int, dtype: DataType) -> int:
    return a >> (b if 0 <= b < dtype.bits else dtype.bits)


_BIT_OPERATIONS: dict[str, Callable[[int, int, DataType], int]] = {
    "bitwise_and": lambda a, b, dtype: a & b,
    "bitwise_or": lambda a, b, dtype: a | b,
    "bitwise_xor": lambda a, b, dtype: a ^ b,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
}


def reinterpret(value: Scalar, source: DataType, target: DataType) -> Scalar:
    """The bits of `value` read as `target`."""
    bits = np.array(value, source.numpy()).view(target.numpy())[()]
    return bits.item() if target.is_int else bits


def is_evaluated(call: tir.Call) -> bool:
    """True if programs run with this call of an intrinsic, which no pass has lowered."""
    record = intrinsic_of(call.op)
    if record is None or record.definition is None:
        is_named = any(isinstance(arg, tir.StringImm) for arg in call.args[:1])
        return record is not None and record.is_evaluated and (is_named or not record.is_foreign)
    known = record.definition(*call.args)
    return known is not None and (call.dtype.is_void or known.dtype == call.dtype)


def addressed(call: tir.Call, span: Span | None) -> Buffer:
    """The buffer of a `T.address_of`.

    Errors:
        CompileError: it is the address of another element than the first one.
    """
    [access] = call.args
    assert isinstance(access, BufferLoad)
    _check_first(call, access.indices, span)
    return access.buffer


def accessed(call: tir.Call, span: Span | None) -> tir.Var:
    """The pointer to the memory of a `tvm_access_ptr`, as the argument of a function.

    Errors:
        CompileError: it is not the address of the first element.
    """
    _, data, offset, *_ = call.args
    _check_first(call, (offset if isinstance(data, tir.Var) else data,), span)
    assert isinstance(data, tir.Var)
    return data


def _check_first(call: tir.Call, indices: Sequence[object], span: Span | None) -> None:
    if not all(ops.is_const(index, 0) for index in indices):
        raise CompileError(
            f"{call} is not the address of the first element of a buffer",
            span=span,
            hint="declare a buffer that starts there, by T.decl_buffer(..., elem_offset=...)",
        )


def display_name(call: tir.Call) -> str:
    """The name of an intrinsic or external kernel in messages."""
    external = kernel_name(call)
    name = call.op.name if isinstance(call.op, Op) else str(call.op)
    if external is not None:
        return f"external kernel {external!r:.60}"
    of = "".join(f" of {symbol!s:.60}" for symbol in call.args[:1]) if "_llvm_" in name else ""
    return f"intrinsic {name}{of}"


def remedy(call: tir.Call) -> str:
    """The hint of errors for an intrinsic that cannot run."""
    if call.op in (Op("tir.type_annotation"), Op("tir.tvm_access_ptr")):
        return "pass the buffer, its data or T.address_of(buffer[i]), not its access_ptr"
    name = display_name(call)
    if "_llvm_" in name:
        return "write a function of T with operands and a result of one datatype, such as T.sqrt(x)"
    if "tvm_stack_" in name:
        return "pass the buffers and numbers themselves, T.call_packed('f', buffer, number)"
    if is_foreign(call.op):
        return "its first argument is the name of a function, a string"
    return "it needs hardware, or a pass that lowers it"


def unsupported(call: tir.Call, where: str) -> CompileError:
    """The error for an intrinsic that relaxpy does not implement."""
    return CompileError(
        f"the {display_name(call)} cannot run here" + (f" (in {where})" if where else ""),
        hint=remedy(call),
    )


def launched(name: str, statement: st.AttrStmt) -> CompileError:
    """The error for a `T.launch_thread` in the kernel `name`, since there are no GPU threads."""
    tag = getattr(statement.node, "thread_tag", "")
    return CompileError(
        f"{name}: T.launch_thread({tag!r}, {statement.value}) cannot run here",
        span=statement.span,
        hint=f"write a loop over T.thread_binding({statement.value}, thread={tag!r})",
    )


_LARGE: Final = 200
"""Expressions of fewer nodes are evaluated as trees, whatever they share."""


@memoised
def shared_nodes(expr: tir.PrimExpr) -> frozenset[int]:
    """The nodes to evaluate once in an expression that is large if they are evaluated each time."""
    total, nodes = unshared_size(expr)
    is_small = total < _LARGE or total < 2 * nodes
    if is_small or any(isinstance(n, tir.Call) and is_external(n) for n in walk(expr)):
        return frozenset()
    uses = Counter(id(child) for node in walk(expr) for child in children(node))
    return frozenset(
        id(node)
        for node in walk(expr)
        if uses[id(node)] > 1
        and isinstance(node, tir.PrimExpr)
        and not isinstance(node, (tir.Var, tir.IntImm, tir.FloatImm, tir.StringImm))
    )


class ScalarEvaluator:
    """Evaluates PrimExprs over the variables in `values`; `integers` handles integer overflow."""

    def __init__(self, values: Mapping[tir.Var, Scalar], integers: Integers = wrapped) -> None:
        self.values = values
        self.integers = integers
        self.name = ""
        self.shared: set[int] | None = set()
        """The nodes to evaluate once; None if they are to be found in the next expression."""
        self._known: dict[int, Scalar] = {}

    def value(self, expr: tir.PrimExpr) -> Scalar:
        """The value of `expr`.

        Errors:
            RuntimeCheckError: a division by zero, or (with `checked`) an overflow.
            CompileError: an unsupported intrinsic.
        """
        # Here and not in a caller, whose frame would halve the depth that Python allows.
        if self.shared is None:
            return self._whole(expr)
        if id(expr) in self.shared:
            return self._once(expr)
        match expr:
            case tir.Var():
                return self.variable(expr)
            case tir.StringImm(value=text):
                return text
            case tir.IntImm(dtype=dtype, value=number):
                return literal(number, dtype)
            case tir.FloatImm(dtype=dtype, value=real):
                return literal(real, dtype)
            case BufferLoad():
                return self.load(expr)
            case tir.BinaryOpExpr(a=a, b=b):
                return self._binary(type(expr), a.dtype, self.value(a), self.value(b))
            case tir.Call():
                return self.call(expr)
            case tir.Cast(dtype=dtype, value=inner):
                return _lanewise(
                    lambda v: cast(v, inner.dtype.element, dtype.element), self.value(inner)
                )
            case tir.Or(a=a, b=b):
                return self._logical(a, b, decided=True)
            case tir.And(a=a, b=b):
                return self._logical(a, b, decided=False)
            case tir.Not(a=a):
                return _lanewise(operator.not_, self.value(a))
            case tir.Select(condition=condition, true_value=yes, false_value=no):
                chosen = self.value(condition)
                if not isinstance(chosen, tuple):
                    return self.value(yes if chosen else no)
                return _lanewise(
                    lambda c, x, y: x if c else y, chosen, self.value(yes), self.value(no)
                )
            case tir.Let(var=var, value=bound, body=body):
                return self.within({var: self.value(bound)}, body)
            case tir.Ramp(base=base, stride=stride, lanes=lanes):
                start, step = self.value(base), self.value(stride)
                count = lanes if isinstance(lanes, int) else self.value(lanes)
                return tuple(self.integers(start + step * i, base.dtype) for i in range(count))
            case tir.Broadcast(value=inner, lanes=lanes):
                return (self.value(inner),) * (
                    lanes if isinstance(lanes, int) else self.value(lanes)
                )
            case tir.Shuffle(vectors=vectors, indices=indices):
                pool = [lane for vector in vectors for lane in lanes_of(self.value(vector))]
                chosen_lanes = tuple(pool[self.value(i)] for i in indices)
                return chosen_lanes if len(chosen_lanes) > 1 else chosen_lanes[0]
            case _:
                raise CompileError(f"a {type(expr).__name__} has no value: `{expr}`")

    def _whole(self, expr: tir.PrimExpr) -> Scalar:
        self.shared = set(shared_nodes(expr))
        try:
            return self.value(expr)
        finally:
            self.shared, self._known = None, {}

    def _once(self, expr: tir.PrimExpr) -> Scalar:
        key, shared = id(expr), self.shared
        assert shared is not None
        if key not in self._known:
            shared.remove(key)
            self._known[key] = self.value(expr)
            shared.add(key)
        return self._known[key]

    def variable(self, var: tir.Var) -> Scalar:
        """The value of `var`. Errors: RuntimeCheckError if it is not bound (PX-7)."""
        try:
            return self.values[var]
        except KeyError:
            raise RuntimeCheckError(f"the variable {var.name} is not bound", rule="PX-7") from None

    def load(self, load: BufferLoad) -> Scalar:
        """The element of a buffer; only kernels have buffers."""
        raise CompileError(f"`{load}` reads a buffer outside a kernel")

    def within(self, more: Mapping[tir.Var, Scalar], body: tir.PrimExpr) -> Scalar:
        """The value of `body` with `more` variables."""
        outer, known = self.values, self._known
        self.values, self._known = {**outer, **more}, {}
        try:
            return self.value(body)
        finally:
            self.values, self._known = outer, known

    def _logical(self, a: tir.PrimExpr, b: tir.PrimExpr, *, decided: bool) -> Scalar:
        first = self.value(a)
        if isinstance(first, tuple):
            either = operator.or_ if decided else operator.and_
            return _lanewise(either, first, self.value(b))
        return first if bool(first) is decided else self.value(b)

    def _binary(self, kind: type[tir.PrimExpr], dtype: DataType, a: Scalar, b: Scalar) -> Scalar:
        scalar = dtype.element
        compare = _COMPARE.get(kind)
        if compare is not None:
            return _lanewise(lambda x, y: bool(compare(x, y)), a, b)
        if scalar.is_int:
            whole = _INTEGER[kind]
            return _lanewise(lambda x, y: self.integers(whole(int(x), int(y)), scalar), a, b)
        number, rounded = _FLOAT[kind], scalar.numpy().type
        return _lanewise(lambda x, y: rounded(number(x, y)), a, b)

    def call(self, call: tir.Call) -> Scalar:
        """The result of an intrinsic. Errors: CompileError if it is not supported."""
        name = call.op.name.removeprefix("tir.") if isinstance(call.op, Op) else ""
        args = [a for a in call.args if isinstance(a, tir.PrimExpr)]
        dtype = call.dtype.element
        match name:
            case "if_then_else":
                return self.value(args[1] if self.value(args[0]) else args[2])
            case _ if (record := INTRINSICS.get(name)) is not None and record.is_hint:
                return self.value(args[0])
            case _ if record is not None and record.definition is not None:
                known = record.definition(*args)
                if known is None:
                    raise unsupported(call, self.name)
                return self.value(known)
            case "tvm_storage_sync":
                return 0
            case "undef":
                return literal(0, dtype)
            case "vscale":
                return 1
            case "large_uint_imm":
                low, high = map(self.value, args)
                return self.integers((high << 32) + low, dtype)
            case _:
                return self._intrinsic(call, name, args)

    def _intrinsic(self, call: tir.Call, name: str, args: list[tir.PrimExpr]) -> Scalar:
        dtype = call.dtype.element
        values = [self.value(a) for a in args]
        kinds = [a.dtype.element for a in args]
        operation = self._operation(name, kinds, dtype)
        if operation is None:
            raise unsupported(call, self.name)
        return _lanewise(operation, *values)

    def _operation(
        self, name: str, kinds: list[DataType], dtype: DataType
    ) -> Callable[..., Scalar] | None:
        """The scalar function for the intrinsic `name`, or None."""
        if name in _BIT_OPERATIONS:
            combine = _BIT_OPERATIONS[name]
            return lambda a, b: wrapped(combine(int(a), int(b), dtype), dtype)
        record, double = INTRINSICS.get(name), np.float64
        if record is not None and (function := record.scalar) is not None:
            return lambda *xs: cast(double(function(*map(double, xs))), DataType("float64"), dtype)
        match name:
            case "bitwise_not":
                return lambda a: wrapped(~int(a), dtype)
            case "popcount":
                return lambda a: _bits_of(a, kinds[0]).bit_count()
            case "clz":
                return lambda a: kinds[0].bits - _bits_of(a, kinds[0]).bit_length()
            case "nextafter":
                exact = dtype.numpy().type
                return lambda a, b: np.nextafter(exact(a), exact(b))
            case "isnan":
                return lambda a: bool(a != a)
            case "isnullptr":
                return lambda a: a is None
            case "reinterpret":
                return lambda a: reinterpret(a, kinds[0], dtype)
            case _:
                return None


def lanes_of(value: Scalar) -> tuple[Scalar, ...]:
    """The lanes of a vector; a scalar has one lane."""
    return value if isinstance(value, tuple) else (value,)


def _lanewise(function: Callable[..., Scalar], *values: Scalar) -> Scalar:
    """Apply `function` to scalars, or lane by lane if an operand is a vector."""
    count = next((len(v) for v in values if isinstance(v, tuple)), None)
    if count is None:
        return function(*values)
    lanes = [v if isinstance(v, tuple) else (v,) * count for v in values]
    return tuple(map(function, *lanes))


def with_checked_counts(func: PrimFunc) -> PrimFunc:
    """`func`, with assertions that int64 has all counts of iterations and elements (PX-9).

    Counts over dimensions of arguments belong to existing memory, and are not tested. Nor are those
    that are read from memory, which may not exist or differ at the start, and those with divisions,
    as enclosing loops may be empty.
    """
    scalars = {p for p in func.params if p.dtype == "int64"}
    dimensions = {s for b in func.buffer_map.values() for s in b.shape if isinstance(s, tir.Var)}
    known, scalars = scalars | dimensions, scalars - dimensions
    if not scalars:
        return func
    body = func.body
    for sizes in dict.fromkeys(_counts(func.body, ())):
        nodes = [node for size in sizes for node in walk(size)]
        if any(isinstance(node, BufferLoad) or ops.may_divide_by_zero(node) for node in nodes):
            continue
        variables = {node for node in nodes if isinstance(node, tir.Var)}
        if _may_overflow(sizes) and scalars & variables and variables <= known:
            shown = " * ".join(map(str, sizes))
            message = f"the size {shown} is outside the range of int64 [PX-9]"
            body = st.AssertStmt(_fits(sizes), tir.StringImm(message), body)
    return func if body is func.body else func.with_body(body)


def _may_overflow(sizes: tuple[tir.PrimExpr, ...]) -> bool:
    """True if this is a product, or a sum of variables."""
    nodes = [node for size in sizes for node in walk(size)]
    products = any(isinstance(node, tir.Mul) for node in nodes)
    return products or sum(isinstance(node, tir.Var) for node in nodes) > 1


def _fits(sizes: tuple[tir.PrimExpr, ...]) -> tir.PrimExpr:
    """True if int64 holds the count, or the loop is empty even if the count wrapped around.

    A wrapped value differs from the count by 2**64 or more, float64 by far less.
    """
    *outer, last = sizes
    count = reduce(operator.mul, (*(ops.maximum(s, 0) for s in outer), last))
    real = reduce(operator.mul, (*(ops.maximum(_real(s), 0.0) for s in outer), _real(last)))
    zero = ops.const(0.0, FLOAT64)
    error = tir.Sub(real, tir.Cast(FLOAT64, count))
    none = tir.And(tir.LT(real, zero), tir.LE(tir.Cast(FLOAT64, last), zero))
    is_exact = tir.And(
        tir.LT(ops.const(-(2.0**62), FLOAT64), error), tir.LT(error, ops.const(2.0**62, FLOAT64))
    )
    return tir.Or(is_exact, none)


def _real(size: tir.PrimExpr) -> tir.PrimExpr:
    """`size` in float64, where it does not wrap around."""
    match size:
        case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b) | tir.Mul(a=a, b=b):
            return type(size)(_real(a), _real(b))
        case _:
            return tir.Cast(FLOAT64, size)


def _counts(stmt: st.Stmt, outer: tuple[tir.PrimExpr, ...]) -> Iterator[tuple[tir.PrimExpr, ...]]:
    """The sizes whose product is a count, of statements that run unconditionally."""
    match stmt:
        case st.SeqStmt(seq=seq):
            for child in seq:
                yield from _counts(child, outer)
        case st.For(extent=extent, body=body):
            inner = outer if isinstance(extent, tir.IntImm) else (*outer, extent)
            if inner is not outer:
                yield inner
            yield from _counts(body, inner)
        case st.BlockRealize(block=block):
            yield from _counts(block, outer)
        case st.Block(alloc_buffers=buffers, body=body):
            yield from filter(None, map(_elements, buffers))
            yield from _counts(body, outer)
        case st.Allocate(extents=extents, body=body):
            yield tuple(e for e in extents if not isinstance(e, tir.IntImm))
            yield from _counts(body, outer)
        case st.AttrStmt(body=body) | st.DeclBuffer(body=body):
            yield from _counts(body, outer)
        case _:
            return


def _elements(buffer: Buffer) -> tuple[tir.PrimExpr, ...]:
    return tuple(size for size in buffer.shape if not isinstance(size, tir.IntImm))
