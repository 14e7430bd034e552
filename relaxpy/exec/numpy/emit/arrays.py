"""Emits expressions over all iterations of some axes, as ufunc calls that reuse temporaries."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from relaxpy.errors import CompileError
from relaxpy.exec.loops.nest.bounds import may_fail, unproved
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.statements import Access
from relaxpy.exec.loops.plan.unschedule import linear_position
from relaxpy.exec.machine.tuning import NumPy
from relaxpy.exec.numpy.emit.array_values import (
    Guards,
    Limits,
    Output,
    Rows,
    Value,
    converted_by_store,
    is_weak,
    is_work,
    limits_of,
    truth_of,
)
from relaxpy.exec.numpy.emit.gathers import counted_from_end, gather, without_widening
from relaxpy.exec.numpy.emit.scalar import ScalarEmitter, unsupported
from relaxpy.exec.numpy.emit.scope import (
    BOOLEAN,
    ELEMENTWISE,
    FLOAT_DIVISION,
    NUMPY_DIVISION,
    KernelScope,
    array_literal,
    converted,
    division,
    dtype_name,
    intrinsic_name,
    numpy_function,
    title,
)
from relaxpy.exec.numpy.emit.views import index_range, view
from relaxpy.exec.numpy.python_ast import Code, assign, attribute, call, do, item, path
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, occurrences, postorder, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.ops import may_divide_by_zero
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A select: `yes` where the condition holds, and `no` elsewhere."""

    condition: tir.PrimExpr
    yes: tir.PrimExpr
    no: tir.PrimExpr


def choice_of(expr: tir.PrimExpr) -> Choice | None:
    """`expr` as a select, or None if it is not one."""
    match expr:
        case tir.Select(condition=condition, true_value=yes, false_value=no):
            return Choice(condition, yes, no)
        case tir.Call(op=Op(name="tir.if_then_else"), args=(condition, yes, no)):
            return Choice(condition, yes, no)
        case _:
            return None


def choose(emitter: ArrayEmitter, choice: Choice, out: Output | None) -> Value:
    """The value of a select; this is `out` if the select can write to it."""
    counted = counted_from_end(choice.condition, choice.yes, choice.no)
    if counted is not None and not emitter.varies(counted[1]):
        index = emitter.value(choice.no)
        node = call(counted[0], index.node, emitter.scalars.value(counted[1]))
        return emitter.named(Value(node, index.dims, choice.no.dtype))  # it may be the index itself
    condition, yes, no = _operands(emitter, choice)
    dims, dtype = condition.dims | yes.dims | no.dims, choice.yes.dtype
    yes, no = emitter.typed(choice.yes, yes), emitter.typed(choice.no, no)
    if not condition.dims and yes.dims == no.dims:
        return Value(ast.IfExp(condition.node, yes.node, no.node), dims, dtype)
    node = call("rt.where", condition.node, yes.node, no.node)
    if out is not None and out.reads is not None and out.dims == dims and out.dtype == dtype:
        node.keywords.append(ast.keyword("out", out.node))
        emitter.lines.append(do(node))
        return Value(out.node, dims, dtype)
    return emitter.fresh(node, dims, dtype)


def _operands(emitter: ArrayEmitter, choice: Choice) -> tuple[Value, Value, Value]:
    """The condition, and both values, each computed only where it is used."""
    condition = emitter.value(choice.condition)
    emitter.compute_for_both(choice)
    fails = call("np.logical_not", condition.node)
    yes = emitter.only_where(condition.node, choice.yes)
    return condition, yes, emitter.only_where(fails, choice.no)


def store_choice(emitter: ArrayEmitter, choice: Choice, out: Output) -> bool:
    """Store a select by two stores if that is faster, and return whether it is.

    It is where the condition depends on positions only, since NumPy is fast with regular masks, or
    holds at one position along an axis.
    """
    condition = choice.condition
    if not out.free or emitter.guards or out.dims != emitter.variables:
        return False
    single = _single_position(emitter, choice)
    if single is not None:
        axis, position = single
        positions = emitter.compute(without_widening(position)).node
        one, others = (emitter.scalars.value(e, typed=True) for e in (choice.yes, choice.no))
        emitter.lines.append(assign(_whole(out), others))
        emitter.lines.append(do(call("rt.store_at", out.node, positions, axis, one)))
        return True
    varying = emitter.varies(choice.yes), emitter.varies(choice.no)
    if next(loads(condition), None) is not None or not emitter.varies(condition):
        return False
    # The output may alias an operand, which only the first store reads.
    if all(varying):
        return False
    for operand in (condition, choice.yes, choice.no):
        emitter.count_uses(operand)
    mask, yes, no = _operands(emitter, choice)
    first, second = emitter.typed(choice.no, no), emitter.typed(choice.yes, yes)
    where = mask.node
    if varying[0]:
        first, second, where = second, first, call("np.logical_not", where)
    emitter.lines.append(assign(_whole(out), first.node))
    emitter.lines.append(do(call("np.copyto", out.node, second.node, where=where)))
    return True


def _whole(out: Output) -> ast.expr:
    return out.node if isinstance(out.node, ast.Subscript) else item(out.node, ...)


def _single_position(emitter: ArrayEmitter, choice: Choice) -> tuple[int, tir.PrimExpr] | None:
    """The axis of the layout along which one value differs from the others, and its position."""
    if emitter.varies(choice.yes) or emitter.varies(choice.no):
        return None
    if not isinstance(choice.condition, tir.EQ):
        return None
    sides = choice.condition.a, choice.condition.b
    for side, position in (sides, sides[::-1]):
        var = without_widening(side)
        for number, axis in enumerate(emitter.layout):
            few = isinstance(axis.stop, tir.IntImm) and axis.stop.value < NumPy.FEW_POSITIONS
            if axis.var is var and as_poly(axis.start).same(0) and not few:
                return None if mentions(position, {axis.var}) else (number, position)
    return None


class SharedNodes:
    """The nodes that several nodes in expressions have as operands."""

    def __init__(self) -> None:
        self._parts: dict[Node, None] = {}
        self._uses: Counter[Node] = Counter()
        self._inside: set[Node] = set()
        self._evaluated: dict[tir.PrimExpr, Mapping[tir.PrimExpr, None]] = {}
        self.again: set[Node] = set()
        """Those whose other uses are computed later, and not counted."""

    def add(self, exprs: Iterable[tir.PrimExpr]) -> None:
        """Look at more expressions, which may be parts of others."""
        parts = dict.fromkeys(n for e in exprs if e not in self._parts for n in walk(e))
        for node in reversed(parts):
            if node in self._inside or isinstance(node, BufferLoad):
                self._inside.update(children(node))
            if node not in self._parts:
                self._uses.update({*children(node)})
        self._parts |= parts
        self.again |= {node for node in self._inside if self._uses[node] > 1}
        self._evaluated = {}

    def evaluated_with(self, expr: tir.PrimExpr) -> Mapping[tir.PrimExpr, None]:
        """Those that are evaluated wherever `expr` is, in the order of evaluation."""
        known = self._evaluated
        for node in postorder([expr], lambda n: () if n in known else _operands_of(n)):
            if node in known:
                continue
            choice, found = choice_of(node), dict[tir.PrimExpr, None]()
            if choice is not None:
                found |= known[choice.condition]
                found |= {e: None for e in known[choice.yes] if e in known[choice.no]}
            elif isinstance(node, tir.And | tir.Or):
                found |= known[node.a]
            else:
                for operand in _operands_of(node):
                    found |= known[operand]
            known[node] = found | {node: None} if self._uses[node] > 1 else found
        return known[expr]


def _operands_of(expr: tir.PrimExpr) -> list[tir.PrimExpr]:
    return [child for child in children(expr) if isinstance(child, tir.PrimExpr)]


class ArrayEmitter:
    """Emits the expressions of one statement over `layout`, and collects the code in `lines`."""

    def __init__(
        self,
        scope: KernelScope,
        name: str,
        layout: Sequence[Axis],
        outer: Sequence[Axis],
        rows: Mapping[Buffer, Rows],
        proof: Mapping[tir.Var, Axis],
        span: Span | None,
    ) -> None:
        self.scope = scope
        self.name = name
        self.layout = tuple(layout)
        self.variables = {a.var for a in layout}
        self._varying: dict[Node, bool] = {}
        self.outer = tuple(outer)
        self.rows = rows
        self.proof = proof
        self.span = span
        self.lines: list[ast.stmt] = []
        self.scalars = ScalarEmitter(scope, name, outer)
        self.done: dict[tir.PrimExpr, tuple[Value, Guards]] = {}
        self.shared = SharedNodes()
        self.kept: dict[tuple[tir.PrimExpr, tuple[Axis, ...]], tuple[Value, Guards]] = {}
        self.ready: dict[tir.PrimExpr, Value] = {}
        self.uses: Counter[tir.PrimExpr] = Counter()
        self.guards: Guards = ()
        self.spare: Output | None = None
        self.repetitions = 0

    # ---- whole expressions

    def compute(self, expr: tir.PrimExpr, out: Output | None = None) -> Value:
        """The value of `expr`; this is `out` if the last operation can write to it."""
        self.count_uses(expr)
        self.shared.add([expr])
        # Operations that may fail may be computed again, for other iterations.
        reusable = out is not None and (out.free or (out.reads and not self._may_fail(expr)))
        self.spare = out if reusable else None
        return self.value(expr, out)

    def values(self, exprs: Sequence[tir.PrimExpr]) -> list[Value]:
        """The values of several expressions, which share their subexpressions."""
        for expr in exprs:
            self.count_uses(expr)
        self.shared.add(exprs)
        return [self.value(expr) for expr in exprs]

    def typed(self, expr: tir.PrimExpr, value: Value) -> Value:
        """The `value` of `expr` with its datatype, if it is a plain number."""
        if not value.plain:
            return value
        return Value(self.scalars.value(expr, typed=True), frozenset(), expr.dtype)

    def broadcast(self, expr: tir.PrimExpr) -> ast.expr:
        """`expr` as an array over the whole layout."""
        value = self.typed(expr, self.compute(expr))
        if value.dims == self.variables:
            return value.node
        shape = tuple(self.scope.index(a.extent) for a in self.layout)
        return call("rt.broadcast_to", value.node, shape)

    def store(self, expr: tir.PrimExpr, out: Output) -> None:
        """Store `expr` to `out`; NumPy converts values while it stores them."""
        choice = choice_of(expr)
        if choice is not None and store_choice(self, choice, out):
            return
        source = converted_by_store(expr)
        if source is None or not self.varies(source):
            value = self.compute(expr, out)
        else:
            value = self.compute(source)
        if value.node is not out.node:
            target = out.node
            if not isinstance(target, ast.Subscript):
                target = item(target, ...)
            self.lines.append(assign(target, self._unnamed(value)))

    def masked(self, expr: tir.PrimExpr, mask: ast.expr, out: Output) -> None:
        """Store `expr` to `out` where the `mask` holds."""
        value = self._unnamed(self.compute(expr))
        self.lines.append(do(call("np.copyto", out.node, value, where=mask)))

    def _unnamed(self, value: Value) -> ast.expr:
        """The node of `value`; if the last line assigns it to a temporary, without this line."""
        match self.lines:
            case [*_, ast.Assign(targets=[ast.Name(id=name)], value=node)] if (
                name == value.temporary
            ):
                self.lines.pop()
                return node
            case _:
                return value.node

    def restrict(self, guards: Iterable[tir.PrimExpr]) -> ast.expr | None:
        """Restrict subsequent code to where the variant `guards` hold, and return their mask.

        Each guard is only evaluated where those before it hold.
        """
        _, masked = self.split_guards(guards)
        if not masked:
            return None
        mask = self.compute(reduce(tir.And, masked)).node
        self.guards = (mask,)
        return mask

    def split_guards(
        self, guards: Iterable[tir.PrimExpr]
    ) -> tuple[list[tir.PrimExpr], list[tir.PrimExpr]]:
        """The loop-invariant guards, which can be hoisted, and the others in order.

        A guard that may stop the program is not reordered with those that it depends on.
        """
        invariant: list[tir.PrimExpr] = []
        masked: list[tir.PrimExpr] = []
        stops = False
        for guard in guards:
            fails = self._may_fail(guard)
            if self.varies(guard) or stops or (masked and fails):
                masked.append(guard)
                stops |= fails
            else:
                invariant.append(guard)
        return invariant, masked

    def count_uses(self, expr: tir.PrimExpr) -> None:
        """Count the uses of each subexpression; one with several uses is computed once.

        Operands count again below a repeated expression that is not kept: it is recomputed, and its
        operands must not be overwritten before.
        """
        stack: list[Node] = [expr]
        expanded: set[tir.PrimExpr] = set()
        while stack:
            node = stack.pop()
            if isinstance(node, tir.PrimExpr):
                self.uses[node] += 1
                if (
                    node not in expanded
                    and node not in self.done
                    and (node, self.layout) not in self.kept
                    and not isinstance(node, BufferLoad)
                ):
                    expanded.add(node)
                    stack += children(node)

    # ---- subexpressions

    def value(self, expr: tir.PrimExpr, out: Output | None = None) -> Value:
        """The value of a subexpression whose uses have been counted."""
        if expr in self.ready:
            return self.ready.pop(expr)
        is_kept = expr in self.shared.again and self.varies(expr)
        if is_kept:  # in memory that no other operation writes
            out = self.spare = None
        at = expr, self.layout
        known = self.kept.get(at) or self.done.get(expr)
        value, guards = (None, ()) if known is None else known
        if value is not None and guards != self.guards[: len(guards)] and self._may_fail(expr):
            # It was computed for fewer iterations than are needed now.
            self._count_repetition()
            self.uses.update(node for node in walk(expr) if isinstance(node, tir.PrimExpr))
            value = None
        if value is None:
            for operand in self._leftmost(expr):
                self.ready[operand] = self.value(operand)
            value = self._new(expr, out)
            shared = self.uses[expr] > 1 or is_kept
            if shared and value.temporary is None and is_work(expr) and value.dims:
                value = self.named(value)
            if is_kept:
                value = replace(value, temporary=None)
                self.kept[at] = value, self.guards
            elif shared or isinstance(expr, tir.Var):
                self.done[expr] = value, self.guards
        return value

    def _count_repetition(self) -> None:
        """Errors: CompileError, before the code becomes too long."""
        self.repetitions += 1
        if self.repetitions > NumPy.REPETITIONS:
            raise CompileError(
                f"{self.name}: subexpressions are evaluated under too many different conditions",
                span=self.span,
                hint="bind those that are used again to variables",
            )

    def compute_for_both(self, choice: Choice) -> None:
        """Compute what both sides of a select evaluate; each side computes again what may fail."""
        if not (self._may_fail(choice.yes) and self._may_fail(choice.no)):
            return
        others = self.shared.evaluated_with(choice.no)
        for node in self.shared.evaluated_with(choice.yes):
            if node in others and self.varies(node) and self._may_fail(node):
                self.shared.again.add(node)
                self.value(node)

    def _leftmost(self, expr: tir.PrimExpr) -> Iterator[tir.PrimExpr]:
        """The nested first operands of `expr`, innermost first, which is their order of evaluation.

        Computing them in advance bounds the recursion depth in long sums.
        """
        operands: list[tir.PrimExpr] = []
        while (
            isinstance(expr, tir.BinaryOpExpr) and type(expr) in ELEMENTWISE and self.varies(expr)
        ):
            limits = self._limits(expr)
            expr = expr.a if limits is None else limits.operand
            if expr in self.ready or expr in self.done:
                break
            operands.append(expr)
        return reversed(operands)

    def only_where(self, condition: ast.expr, expr: tir.PrimExpr) -> Value:
        """The value of a subexpression, which is only used where `condition` holds."""
        outer = self.guards
        self.guards = (*outer, condition)
        value = self.value(expr)
        self.guards = outer
        return value

    def where(self) -> ast.expr:
        """The conjunction of all guards."""
        return reduce(lambda a, b: call("np.logical_and", a, b), self.guards)

    def _new(self, expr: tir.PrimExpr, out: Output | None) -> Value:
        if not self.varies(expr) and not (self.guards and self._may_fail(expr)):
            plain = isinstance(expr, (tir.IntImm, tir.FloatImm)) and is_weak(expr.dtype)
            node = self.scalars.value(expr, typed=not plain)
            return Value(node, frozenset(), expr.dtype, plain=plain)
        choice = choice_of(expr)
        match expr:
            case tir.Var():
                return self._positions(expr)
            case BufferLoad():
                return self.load(expr, out)
            case tir.Or(a=a, b=b):
                return self._logical("np.logical_or", a, b, out)
            case tir.And(a=a, b=b):
                return self._logical("np.logical_and", a, b, out)
            case tir.Not(a=a):
                return self._ufunc("np.logical_not", expr.dtype, [a], out)
            case _ if not isinstance(expr, tir.Cast) and (truth := truth_of(expr)) is not None:
                return self._cast(expr.dtype, truth)
            case _ if choice is not None:
                return choose(self, choice, out)
            case tir.Cast(dtype=dtype, value=inner):
                return self._cast(dtype, inner)
            case tir.BinaryOpExpr():
                return self._binary(expr, out)
            case tir.Call():
                return self._call(expr, out)
            case _:
                raise CompileError(f"{self.name}: `{expr}` cannot be computed", span=self.span)

    def _may_fail(self, expr: tir.PrimExpr) -> bool:
        """True if a load in `expr` may fail, or an integer divisor may be zero."""
        # The views of memory fail if it is too small or not contiguous.
        views = self.scope.views
        if views and any(load.buffer in views for load in occurrences(expr, BufferLoad)):
            return True
        return may_fail(expr, self._all_axes(), self.scope.shape_vars)

    def varies(self, expr: tir.PrimExpr) -> bool:
        """True if `expr` depends on the axes of the layout."""
        known = self._varying
        if expr not in known:
            for node in walk(expr):
                below = () if node._variable else children(node)
                known[node] = node in self.variables or any(map(known.get, below))
        return known[expr]

    def _positions(self, var: tir.Var) -> Value:
        """The values of a loop variable along its axis."""
        axis = next(a for a in self.layout if a.var is var)
        bounds = [self.scope.index(axis.start), self.scope.index(axis.stop)]
        function = "rt.positions"
        if axis.extent.constant is not None:
            function = "np.arange"
            bounds = bounds[1:] if as_poly(axis.start).same(0) else bounds
        node: ast.expr = call(function, *bounds, dtype=dtype_name(var.dtype))
        missing = len(self.layout) - 1 - self.layout.index(axis)
        if missing:
            node = item(node, ast.Slice(), *[None] * missing)
        return self.named(Value(node, frozenset((var,)), var.dtype), var.name)

    def named(self, value: Value, hint: str = "t") -> Value:
        """Assign `value` to a new variable, so that it is computed once."""
        name = self.scope.names.fresh(hint)
        self.lines.append(assign(name, value.node))
        return Value(path(name), value.dims, value.dtype)

    def _logical(
        self, function: str, a: tir.PrimExpr, b: tir.PrimExpr, out: Output | None
    ) -> Value:
        first = self.value(a)
        evaluated = (
            first.node if function == "np.logical_and" else call("np.logical_not", first.node)
        )
        second = self.only_where(evaluated, b)
        return self._apply(function, a.dtype, [(a, first), (b, second)], out)

    def _cast(self, dtype: DataType, operand: tir.PrimExpr) -> Value:
        value = self.typed(operand, self.value(operand))
        return self.fresh(converted(value.node, operand.dtype, dtype), value.dims, dtype)

    def _binary(self, expr: tir.BinaryOpExpr, out: Output | None) -> Value:
        limits = self._limits(expr)
        if limits is not None:
            return self._limited(expr, limits, out)
        operations = BOOLEAN if expr.a.dtype.is_bool else ELEMENTWISE
        function = operations.get(type(expr))
        if function is not None:
            return self._ufunc(function, expr.dtype, [expr.a, expr.b], out)
        if expr.dtype.is_int:
            return self._integer_division(expr, out)
        return self._ufunc(FLOAT_DIVISION[type(expr)], expr.dtype, [expr.a, expr.b], out)

    def _limits(self, expr: tir.PrimExpr) -> Limits | None:
        """The operand and bounds of `expr`, if NumPy vectorises it as a function of these."""
        limits = limits_of(expr)
        if limits is None or not is_weak(expr.dtype):
            return None
        if None in (limits.low, limits.high) and self._is_small():
            return None
        if expr.dtype.bits < (32 if expr.dtype.is_float else 8):
            return None
        inner = expr.a if isinstance(expr, (tir.Min, tir.Max)) else expr
        is_shared = inner is not limits.operand and (self.uses[inner] > 1 or inner in self.done)
        return None if is_shared else limits

    def _is_small(self) -> bool:
        """True if the layout is known to have few elements."""
        count = math.prod((a.extent for a in self.layout), start=as_poly(1)).constant
        return count is not None and count < NumPy.LIMITED

    def _limited(self, expr: tir.PrimExpr, limits: Limits, out: Output | None) -> Value:
        name = "at_most" if limits.low is None else "at_least" if limits.high is None else "clip"
        args = [a for a in (limits.operand, limits.low, limits.high) if a is not None]
        return self._ufunc(f"rt.{name}", expr.dtype, args, out)

    def _integer_division(self, expr: tir.BinaryOpExpr, out: Output | None) -> Value:
        name = division(type(expr), expr.dtype)
        if may_divide_by_zero(expr):
            where = {"where": self.where()} if self.guards else {}
            return self._ufunc(f"rt.{name}", expr.dtype, [expr.a, expr.b], out, **where)
        function = NUMPY_DIVISION.get(name, f"rt.{name}")
        return self._ufunc(function, expr.dtype, [expr.a, expr.b], out)

    def _call(self, expr: tir.Call, out: Output | None) -> Value:
        name = intrinsic_name(expr)
        if name == "reinterpret":
            value = self.typed(expr.args[0], self.value(expr.args[0]))
            if value.dtype == expr.dtype:
                return value
            node = call(attribute(value.node, "view"), dtype_name(expr.dtype))
            return Value(node, value.dims, expr.dtype)
        function = numpy_function(expr)
        if not function:
            raise unsupported(self.name, expr, self.span)
        return self._ufunc(function, expr.dtype, list(expr.args), out)

    def _ufunc(
        self,
        function: str,
        dtype: DataType,
        args: Sequence[tir.PrimExpr],
        out: Output | None,
        **keywords: Code,
    ) -> Value:
        return self._apply(function, dtype, [(a, self.value(a)) for a in args], out, **keywords)

    def _apply(
        self,
        function: str,
        dtype: DataType,
        args: Sequence[tuple[tir.PrimExpr, Value]],
        out: Output | None,
        **keywords: Code,
    ) -> Value:
        if all(v.plain for _, v in args):
            args = [(e, self.typed(e, v)) for e, v in args]
        dims = frozenset[tir.Var]().union(*(v.dims for _, v in args))
        has_arrays = bool(dims) and len({e.dtype for e, _ in args}) == 1
        nodes = [array_literal(e) if v.plain and has_arrays else v.node for e, v in args]
        for expr, _ in args:
            self.uses[expr] -= 1
        if out is not None and out.dims == dims and out.dtype == dtype:
            self.lines.append(do(call(function, *nodes, **keywords, out=out.node)))
            return Value(out.node, dims, dtype)
        for expr, value in args:
            if (
                value.temporary is not None
                and self.uses[expr] == 0
                and value.dims == dims
                and value.dtype == dtype
            ):
                self.lines.append(do(call(function, *nodes, **keywords, out=value.node)))
                self._overwritten(value)
                return value
        return self.fresh(call(function, *nodes, **keywords), dims, dtype)

    def _overwritten(self, value: Value) -> None:
        """Invalidate the expressions whose values were in the memory of `value`."""
        name = value.temporary
        self.done = {e: entry for e, entry in self.done.items() if entry[0].temporary != name}

    def fresh(self, node: ast.Call, dims: frozenset[tir.Var], dtype: DataType) -> Value:
        """The result of a call, in the memory of the output if that is free, else in new memory."""
        spare = self.spare
        ufunc = isinstance(node.func, ast.Attribute) and node.func.attr != "astype"
        if (
            spare is not None
            and ufunc
            and (spare.dims, spare.dtype) == (dims, dtype)
            and not any(self.uses[load] for load in spare.reads or ())
        ):
            self.spare = None
            node.keywords.append(ast.keyword("out", spare.node))
            self.lines.append(do(node))
            return Value(spare.node, dims, dtype, temporary="<out>")
        return self.temporary(node, dims, dtype)

    def temporary(self, node: ast.expr, dims: frozenset[tir.Var], dtype: DataType) -> Value:
        """A new variable with the value of `node`, which no other expression uses."""
        name = self.scope.names.fresh("t")
        self.lines.append(assign(name, node))
        return Value(path(name), dims, dtype, temporary=name if dims else None)

    # ---- loads

    def load(self, load: BufferLoad, out: Output | None = None) -> Value:
        """A load as a view if it is affine and in bounds, or else as a gather."""
        if self.guards and load.buffer in self.scope.views:
            return gather(self, load, out)
        maps = self.maps(load.buffer, load.indices)
        if maps is None:
            return self._flat_view(load) or gather(self, load, out)
        if not self._inside(load.buffer, maps, load.indices):
            return gather(self, load, out)
        elements = view(self.scope, load.buffer, self.shape_of(load.buffer), maps, self.layout)
        return Value(elements.node, frozenset(elements.dims), load.dtype)

    def _flat_view(self, load: BufferLoad) -> Value | None:
        """A load whose indices are the digits of an affine map, as a view of the flat buffer."""
        quotients = any(
            isinstance(n, (tir.FloorDiv, tir.FloorMod)) for i in load.indices for n in walk(i)
        )
        nested = any(True for index in load.indices for _ in loads(index))
        if not quotients or load.buffer in self.rows or nested:
            return None
        position = linear_position(load, self._all_axes(), self.variables)
        if position is None or not position.coefficients:
            return None  # a single element may be missing where the layout is empty
        count = as_poly(1)
        for size in load.buffer.shape:
            count = count * as_poly(size)
        elements = view(self.scope, load.buffer, [count], [position], self.layout, flat=True)
        return Value(elements.node, frozenset(elements.dims), load.dtype)

    def over(self, layout: tuple[Axis, ...]) -> ArrayEmitter:
        """An emitter of values over some axes of the layout."""
        inner = ArrayEmitter(
            self.scope, self.name, layout, self.outer, self.rows, self.proof, self.span
        )
        inner.shared, inner.kept = self.shared, self.kept
        return inner

    def maps(self, buffer: Buffer, indices: Sequence[tir.PrimExpr]) -> list[Affine] | None:
        """The affine maps of the indices over the layout, or None if one is not affine."""
        maps: list[Affine] = []
        rows = self.rows.get(buffer)
        for axis, index in enumerate(indices):
            poly = as_poly(index)
            if rows is not None and rows.axis == axis:
                poly = poly - rows.start
            if next(loads(index), None) is not None and mentions(index, self.variables):
                return None
            index_map = affine(poly, self.variables)
            if index_map is None:
                return None
            maps.append(index_map)
        return maps

    def shape_of(self, buffer: Buffer) -> list[IndexPoly]:
        """The dimensions of `buffer` in this code, which may only access some rows of it."""
        sizes = [as_poly(s) for s in buffer.shape]
        rows = self.rows.get(buffer)
        if rows is not None:
            sizes[rows.axis] = rows.size
        return sizes

    def _all_axes(self) -> list[Axis]:
        """The enclosing loops and those of the layout, with bounds that cover all blocks."""
        return [self.proof.get(a.var, a) for a in (*self.outer, *self.layout)]

    def is_inside(self, buffer: Buffer, indices: Sequence[tir.PrimExpr]) -> bool:
        """True if the access is provably in bounds everywhere, and its buffer has memory."""
        return buffer not in self.scope.views and not self.unproved(buffer, indices)

    def unproved(self, buffer: Buffer, indices: Sequence[tir.PrimExpr]) -> dict[int, tir.PrimExpr]:
        """The indices that are not provably in bounds in all iterations, by their dimensions."""
        return unproved(buffer, indices, self._all_axes(), self.scope.shape_vars)

    def is_unproved(self, access: Access) -> bool:
        """True if the access may be out of bounds although an axis of the layout is empty.

        A gather along all axes then has no indices.
        """
        unproved = self.unproved(access.buffer, access.indices).values()
        gathered = any(affine(index, self.variables) is None for index in access.indices)
        along_all = all(mentions(index, {v}) for index in unproved for v in self.variables)
        return bool(unproved) and not (gathered and along_all)

    def _inside(
        self, buffer: Buffer, maps: Sequence[Affine], indices: Sequence[tir.PrimExpr]
    ) -> bool:
        """True if a view is possible: it is in bounds by proof, or by a preceding check."""
        rows = self.rows.get(buffer)
        for axis in self.unproved(buffer, indices):
            if rows is not None and rows.axis == axis:
                continue
            if self.guards:
                return False
            self._check(buffer, axis, maps[axis])
        return True

    def _check(self, buffer: Buffer, axis: int, index: Affine) -> None:
        """Emit a line that stops the program if the access is out of bounds."""
        low, high = index_range(index, self.layout, self.scope.shape_vars)
        bounds = [self.scope.index(low), self.scope.index(high)]
        size = item(attribute(self.scope.buffer(buffer), "shape"), axis)
        check = call("rt.check_bounds", *bounds, size, axis, title(self.name, buffer))
        self.lines.append(do(check))

    def present(self, buffer: Buffer, indices: Sequence[tir.PrimExpr]) -> list[tir.PrimExpr]:
        """The indices into the rows of `buffer` that are present."""
        result = list(indices)
        rows = self.rows.get(buffer)
        if rows is not None:
            result[rows.axis] = (as_poly(result[rows.axis]) - rows.start).expr()
        return result

    # ---- outputs

    def output(
        self,
        buffer: Buffer,
        indices: Sequence[tir.PrimExpr],
        reads: Sequence[BufferLoad] | None = None,
    ) -> Output:
        """The elements of `buffer` at `indices` as an output; `reads` as in `Output`."""
        maps = self.maps(buffer, indices)
        assert maps is not None
        self._inside(buffer, maps, indices)
        elements = view(self.scope, buffer, self.shape_of(buffer), maps, self.layout, whole=True)
        return Output(elements.node, frozenset(elements.dims), buffer.dtype, reads)
