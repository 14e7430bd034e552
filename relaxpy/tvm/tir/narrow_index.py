"""ForceNarrowIndexToInt32: loops, indices and shapes of kernels in 32 bits.

UseAssumeToReduceBranches: kernels compute padding where assumptions give the padded value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.arith.algebra.folding import is_safe
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import INT32, INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, rebuild, rewrite, walk
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.op_pattern import OpPatternKind
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.tir import expr as tir, ops, stmt as st
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace

_ARITHMETIC = (
    *(tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod),
    *(tir.Min, tir.Max),
)


@dataclass(frozen=True, slots=True)
class ForceNarrowIndexToInt32(Pass):
    """Makes variables of int64 in kernels, and indices, shapes and loops over them, int32.

    Errors:
        TransformError: a buffer holds integers of 64 bits.
    Rule:
        Arithmetic on variables and literals is that of int32, so it must not be larger; other
        values of int64 are computed as before, from variables that are cast. Integers that
        `call_tir` passes to kernels are cast, too.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        narrow = map_functions(mod, PrimFunc, _narrowed)
        if narrow is mod:
            return mod

        def fitted(func: rx.Function) -> Node:
            return rewrite(func, lambda node: _fitted(node, narrow))

        result = map_functions(narrow, rx.Function, fitted)
        return normalize_module(result)


def _fitted(call: Node, mod: IRModule) -> Node | None:
    """A call of a kernel with its scalars in the datatypes that the kernel takes."""
    match call:
        case rx.Call(args=(rx.GlobalVar() as kernel, operands, rx.ShapeExpr(values=values))):
            func = mod.functions_by_name.get(kernel.name_hint)
            if isinstance(func, PrimFunc):
                scalars = [p for p in func.params if func.buffer_of(p) is None][-len(values) :]
                pairs = zip(values, scalars, strict=True)
                cast = tuple(ops.cast_to(v, p.dtype) if p.dtype == INT32 else v for v, p in pairs)
                return rebuild(call, args=(kernel, operands, rx.ShapeExpr(cast)))
        case _:
            pass
    return None


def _narrowed(func: PrimFunc) -> PrimFunc:
    work = _Narrowing()
    params = tuple(map(work.variable, func.params))
    buffers = tuple(None if b is None else work.buffer(b) for b in func.buffer_map_items)
    body = work.node(func.body)
    new, old = (*params, *buffers, body), (*func.params, *func.buffer_map_items, func.body)
    if all(a is b for a, b in zip(new, old, strict=True)):
        return func
    return func.with_fields(params=params, buffer_map_items=buffers, body=body)


class _Narrowing:
    """The changes of one kernel: new variables and buffers for old ones."""

    def __init__(self) -> None:
        self.variables: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def variable(self, var: Var) -> Var:
        if var.dtype != INT64:
            return var
        if var not in self.variables:
            self.variables[var] = type(var)(var.name, INT32)
        return self.variables[var]

    def buffer(self, buffer: Buffer) -> Buffer:
        if buffer.dtype.is_int and buffer.dtype.bits > 32:
            raise TransformError(
                f"buffer {buffer.name} holds {buffer.dtype}: its elements cannot be narrowed",
                about=buffer,
            )
        if buffer not in self.buffers:
            shape, strides = (tuple(map(self.index, s)) for s in (buffer.shape, buffer.strides))
            offset, old = self.index(buffer.elem_offset), buffer
            new, before = (*shape, *strides, offset), (*old.shape, *old.strides, old.elem_offset)
            same = all(a is b for a, b in zip(new, before, strict=True))
            changed = rebuild(buffer, shape=shape, strides=strides, elem_offset=offset)
            self.buffers[buffer] = buffer if same else changed
        return self.buffers[buffer]

    def node(self, node: Any) -> Any:
        """A node with narrow variables; an expression keeps its datatype."""
        match node:
            case Buffer():
                return self.buffer(node)
            case PrimExpr():
                return self.value(node)
            case st.For(min=first, extent=extent):
                return self.with_indices(node, first, extent)
            case Range():
                return map_children(self.index, node)
            case IterVar(var=var):
                kept = self.variable(var)
                dom = None if node.dom is None else self.node(node.dom)
                same = kept is var and dom is node.dom
                return node if same else rebuild(node, var=kept, dom=dom)
            case st.BlockRealize(iter_values=values):
                return self.with_indices(node, *values)
            case st.BufferStore(indices=indices):
                return self.with_indices(node, *indices)
            case st.Allocate(extents=extents):
                return self.with_indices(node, *extents)
            case st.AttrStmt(value=value, attr_key="thread_extent" | "virtual_thread"):
                return self.with_indices(node, value)
            case st.LetStmt(var=Var(dtype=dtype) as var) if dtype == INT64:
                value, body = self.index(node.value), self.node(node.body)
                return rebuild(node, var=self.variable(var), value=value, body=body)
            case _:
                return map_children(self.node, node)

    def with_indices(self, node: st.Stmt | BufferLoad, *indices: PrimExpr) -> Any:
        """A node some of whose children are indices; the variable that it binds is narrow, too."""
        places = set(map(id, indices))
        variable = getattr(node, "loop_var", None)

        def changed(child: Node) -> Any:
            if child is variable:
                return self.variable(child)
            return self.index(child) if id(child) in places else self.node(child)

        return map_children(changed, node)

    def index(self, expr: Any) -> PrimExpr:
        """An index, of int32 if it was one of int64."""
        if isinstance(expr, tir.Ramp):
            return map_children(self.index, expr)
        narrow = self.narrow(expr, forced=True)
        if narrow is not None:
            return narrow
        value = self.value(expr)
        return ops.cast_to(value, INT32.spread(expr.dtype)) if expr.dtype.bits == 64 else value

    def narrow(self, expr: PrimExpr, *, forced: bool = False) -> PrimExpr | None:
        """`expr` of int64 in int32; None unless it is arithmetic on variables and literals.

        If it is `forced`, casts from any values to int64 may occur in it.
        """
        if expr.dtype != INT64:
            return None
        match expr:
            case Var():
                return self.variable(expr)
            case tir.IntImm(value=value):
                return ops.const(value, INT32) if -(2**31) <= value < 2**31 else None
            case tir.Cast(value=value):
                if not forced and not (isinstance(value, Var) and value.dtype.is_int):
                    return None
                return ops.cast_to(self.value(value), INT32)
            case tir.BinaryOpExpr(a=a, b=b) if isinstance(expr, _ARITHMETIC):
                x, y = self.narrow(a, forced=forced), self.narrow(b, forced=forced)
                return None if x is None or y is None else type(expr)(x, y)
            case _:
                return None

    def value(self, expr: PrimExpr) -> PrimExpr:
        """`expr` in its datatype, from narrow variables."""
        narrow = self.narrow(expr)
        if narrow is not None:
            return expr if isinstance(expr, tir.IntImm) else ops.cast_to(narrow, INT64)
        match expr:
            case BufferLoad(indices=indices):
                load: PrimExpr = self.with_indices(expr, *indices)
                return load
            case tir.Cast(value=value):
                inner = self.narrow(value)
                if inner is not None:
                    return ops.cast_to(inner, expr.dtype)
            case tir.CmpExpr(a=a, b=b):
                x, y = self.narrow(a), self.narrow(b)
                if x is not None and y is not None:
                    return type(expr)(x, y)
            case tir.Let(var=Var(dtype=dtype) as var) if dtype == INT64:
                value, body = self.index(expr.value), self.value(expr.body)
                return rebuild(expr, var=self.variable(var), value=value, body=body)
            case _:
                pass
        return map_children(self.node, expr)


_KINDS = (OpPatternKind.ELEMWISE, OpPatternKind.BROADCAST)
#: Operations that fold literals, and whose results for 0.0 and for -0.0 are equal.
_FOLDS: dict[type[Node], Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    tir.Add: ops.add,
    tir.Sub: ops.sub,
    tir.Mul: ops.mul,
    tir.Min: ops.minimum,
    tir.Max: ops.maximum,
}
_DIVISIONS = (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)


@dataclass(frozen=True)
class UseAssumeToReduceBranches(Pass):
    """Removes branches for padding from kernels if `T.assume` says that both sides are equal there.

    A store of `T.if_then_else(c, x, y)` becomes one of `y` if `x` and `y` have the same value
    wherever `c` holds, and one of `x` if they have it wherever `c` does not. Assumptions
    `T.assume(p or buffer[indices] == value)` in loops over all elements give the values of inputs.

    Rule:
        Only kernels whose attribute `op_pattern` is 0 (elementwise) or 1 (broadcasting) are
        changed; AnnotateTIROpPattern sets it. The value that stays must not fail: its indices
        are in bounds and its integer divisors not 0. Inputs and outputs share no memory. A zero in
        an input of floats may have either sign, so the result may, too.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(mod, PrimFunc, _with_fewer_branches)


@dataclass(frozen=True)
class _Scope:
    """The scope of a statement: loops, values of other variables in terms of theirs, conditions."""

    loops: tuple[tuple[Var, Range], ...] = ()
    values: tuple[tuple[Var, PrimExpr], ...] = ()
    conditions: tuple[PrimExpr, ...] = ()

    def outer(self, value: PrimExpr) -> PrimExpr:
        """`value` in terms of the variables of loops."""
        return substitute(value, dict(self.values))

    def inside(self, loop: st.For) -> _Scope:
        """The scope of the body of a loop; the variable of a single iteration has a value."""
        first, extent = self.outer(loop.min), self.outer(loop.extent)
        if isinstance(extent, tir.IntImm) and extent.value == 1:
            return replace(self, values=(*self.values, (loop.loop_var, first)))
        domain = Range.from_min_extent(first, extent)
        return replace(self, loops=(*self.loops, (loop.loop_var, domain)))

    def within(self, realize: st.BlockRealize) -> _Scope:
        """The scope of the body of a block."""
        variables = (axis.var for axis in realize.block.iter_vars)
        bound = zip(variables, map(self.outer, realize.iter_values), strict=True)
        return replace(self.under(realize.predicate), values=(*self.values, *bound))

    def under(self, condition: PrimExpr) -> _Scope:
        """The scope of code that runs only if `condition` holds."""
        return replace(self, conditions=(*self.conditions, self.outer(condition)))

    @contextmanager
    def analyzer(self, case: PrimExpr) -> Iterator[Analyzer]:
        """An Analyzer that knows the loops, the conditions without loads, and `case`."""
        analyzer = Analyzer()
        for var, domain in self.loops:
            analyzer.bind(var, domain)
        with analyzer.constraint_scope(ops.all_of(*filter(is_safe, self.conditions), case)):
            yield analyzer


@dataclass(frozen=True)
class _Fact:
    """`buffer[indices] == value` for all values of the variables of `loops` with `conditions`."""

    loops: tuple[tuple[Var, Range], ...]
    indices: tuple[PrimExpr, ...]
    value: PrimExpr
    conditions: tuple[PrimExpr, ...]

    def value_at(self, indices: Sequence[PrimExpr], analyzer: Analyzer) -> PrimExpr | None:
        """The value of the element at `indices`; None if it does not follow."""
        if any(index.dtype.vector for index in indices):
            return None
        counters = {var for var, _ in self.loops}
        at: dict[Var, PrimExpr] = {}
        for own, index in zip(self.indices, indices, strict=True):
            if isinstance(own, Var) and own in counters and own not in at:
                at[own] = ops.cast_to(index, own.dtype)
        if len(at) < len(counters):
            return None
        domains = (
            ops.all_of(var >= domain.min, var < domain.min + domain.extent)
            for var, domain in self.loops
        )
        claims = [substitute(claim, at) for claim in (*domains, *self.conditions)]
        for own, index in zip(self.indices, indices, strict=True):
            claims.append(ops.compare(tir.EQ, substitute(own, at), index))
        return substitute(self.value, at) if all(map(analyzer.can_prove, claims)) else None


_Facts: TypeAlias = dict[Buffer, list[_Fact]]


def _with_fewer_branches(func: PrimFunc) -> PrimFunc:
    if func.attrs.get("op_pattern") not in _KINDS:
        return func
    statements = list(_statements(func.body, _Scope()))
    facts = _facts(func, statements)
    if not facts:
        return func
    kept: dict[Node, list[PrimExpr | None]] = {}
    for stmt, scope in statements:
        if isinstance(stmt, st.BufferStore):
            kept.setdefault(stmt, []).append(_kept(stmt, scope, facts))

    def rule(node: Node) -> Node | None:
        first, *others = kept[node] if isinstance(node, st.BufferStore) else (None,)
        # A statement that occurs at several places has to mean the same at all of them.
        same = first is not None and all(other is first for other in others)
        return rebuild(node, value=first) if same else None

    body = cast("st.Stmt", rewrite(func.body, rule))
    return func if body is func.body else func.with_body(body)


def _statements(stmt: st.Stmt, scope: _Scope) -> Iterator[tuple[st.Stmt, _Scope]]:
    """The statements that contain no others, with their scopes.

    Those whose effect on others is not known here, such as loops over what they load, are some of
    them, too.
    """
    match stmt:
        case st.SeqStmt(seq=seq):
            for child in seq:
                yield from _statements(child, scope)
        case st.For(body=body) if is_safe(stmt.min) and is_safe(stmt.extent):
            yield from _statements(body, scope.inside(stmt))
        case st.BlockRealize(
            iter_values=values, block=st.Block(match_buffers=(), body=body, init=init)
        ) if all(map(is_safe, values)):
            inside = scope.within(stmt)
            if init is not None:
                yield from _statements(init, inside)
            yield from _statements(body, inside)
        case st.IfThenElse(condition=condition, then_case=yes, else_case=no):
            yield from _statements(yes, scope.under(condition))
            if no is not None:
                yield from _statements(no, scope.under(ops.logical_not(condition)))
        case _:
            yield stmt, scope


def _facts(func: PrimFunc, statements: Sequence[tuple[st.Stmt, _Scope]]) -> _Facts:
    """The assumptions about inputs; none if a statement may change them or leave the kernel."""
    written = {stmt.buffer.data for stmt, _ in statements if isinstance(stmt, st.BufferStore)}
    inputs = {b for b in func.buffer_map_items if b is not None and b.data not in written}
    facts: _Facts = {}
    for stmt, scope in statements:
        match stmt:
            case st.Evaluate(value=tir.Call(op=Op(name="tir.assume"), args=(assumption,))):
                for load, value, conditions in _equations(scope.outer(assumption)):
                    needed = (*scope.conditions, *conditions)
                    if load.buffer in inputs and all(map(is_safe, (value, *needed))):
                        fact = _Fact(scope.loops, load.indices, value, needed)
                        facts.setdefault(load.buffer, []).append(fact)
            case st.BufferStore() | st.Evaluate(value=tir.IntImm()):
                pass
            case _:
                return {}
    return facts


def _equations(
    assumption: PrimExpr, conditions: tuple[PrimExpr, ...] = ()
) -> Iterator[tuple[BufferLoad, PrimExpr, tuple[PrimExpr, ...]]]:
    """The equations of loads and values in an assumption, with their conditions."""
    match assumption:
        case tir.And(a=a, b=b):
            yield from _equations(a, conditions)
            yield from _equations(b, conditions)
        case tir.Or(a=a, b=b):
            for one, other in ((a, b), (b, a)):
                if is_safe(one):
                    yield from _equations(other, (*conditions, ops.logical_not(one)))
        case tir.EQ(a=BufferLoad(predicate=None) as load, b=value):
            yield load, value, conditions
        case tir.EQ(a=value, b=BufferLoad(predicate=None) as load):
            yield load, value, conditions
        case _:
            pass


def _kept(store: st.BufferStore, scope: _Scope, facts: _Facts) -> PrimExpr | None:
    """The value of the branch of a stored `if_then_else` that can replace it, if there is one."""
    match store.value:
        case tir.Call(op=Op(name="tir.if_then_else"), args=(condition, yes, no)):
            sides = scope.outer(yes), scope.outer(no)
            for holds, value in ((True, no), (False, yes)):
                cases = _cases(scope.outer(condition), holds)
                if all(_replaces(scope.outer(value), sides, scope, case, facts) for case in cases):
                    return value
        case _:
            pass
    return None


def _replaces(
    value: PrimExpr, sides: tuple[PrimExpr, PrimExpr], scope: _Scope, case: PrimExpr, facts: _Facts
) -> bool:
    """True if both sides of a branch are equal where `case` holds, and `value` can be computed."""
    if not is_safe(case):
        return False
    with scope.analyzer(case) as analyzer:
        return _succeeds(value, analyzer) and _agree(*sides, analyzer, facts)


def _cases(condition: PrimExpr, holds: bool) -> tuple[PrimExpr, ...]:
    """Conditions one of which is true where `condition` is `holds`."""
    match condition:
        case tir.Not(a=a):
            return _cases(a, not holds)
        case tir.Or(a=a, b=b) if holds:
            return (*_cases(a, holds), *_cases(b, holds))
        case tir.And(a=a, b=b) if not holds:
            return (*_cases(a, holds), *_cases(b, holds))
        case _:
            return (condition if holds else ops.logical_not(condition),)


def _succeeds(value: PrimExpr, analyzer: Analyzer) -> bool:
    """True if `value` can be computed: no index, divisor or call in it can fail."""

    def claims() -> Iterator[PrimExpr]:
        for node in walk(value):
            if isinstance(node, BufferLoad):
                for index, size in zip(node.indices, node.buffer.shape, strict=True):
                    yield index >= 0
                    yield index < size
            elif isinstance(node, _DIVISIONS) and node.dtype.is_int:
                yield ops.compare(tir.NE, node.b, 0)
            elif isinstance(node, tir.Call):
                yield ops.truth(effect_of(node) <= CallEffectKind.Pure)

    return all(map(analyzer.can_prove, claims()))


def _agree(yes: PrimExpr, no: PrimExpr, analyzer: Analyzer, facts: _Facts) -> bool:
    """True if two values are equal, by the facts about loads."""

    def rule(node: Node) -> Node | None:
        if isinstance(node, BufferLoad) and node.predicate is None:
            values = (f.value_at(node.indices, analyzer) for f in facts.get(node.buffer, ()))
            return next((value for value in values if value is not None), None)
        if isinstance(node, tir.BinaryOpExpr) and (fold := _FOLDS.get(type(node))) is not None:
            return fold(node.a, node.b)
        return None

    one, other = (cast("PrimExpr", rewrite(value, rule)) for value in (yes, no))
    if structural_equal(one, other):
        # A zero of the other sign may change the result of a division or a call.
        return not any(isinstance(node, (tir.Div, tir.Call)) for node in walk(one))
    literal = analyzer.simplify(one)
    return isinstance(literal, tir.ConstExpr) and structural_equal(
        literal, analyzer.simplify(other)
    )
