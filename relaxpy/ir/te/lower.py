"""Lowering of tensor expressions to a PrimFunc: one loop nest with a block per stage.

Common subexpressions of a large value are bound to variables so that its source stays small. A loop
in Python makes such values: each iteration of `v = v * v + c` doubles the source of v.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import field
from functools import partial, reduce
from itertools import chain
from typing import TypeAlias

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.algebra.data import holds_data
from relaxpy.ir.arith.algebra.folding import is_safe
from relaxpy.ir.arith.prove import data_may_wrap, simplify
from relaxpy.ir.core import traverse
from relaxpy.ir.core.dtype import INT32, INT64, DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node
from relaxpy.ir.op import Op
from relaxpy.ir.te.tensor import (
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    ProducerLoad,
    ScanOp,
    Tensor,
    compute,
)
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt as st
from relaxpy.ir.tir.analysis.regions import with_regions
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer, outside_indices
from relaxpy.ir.tir.expr import And, Call, Or, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing
from relaxpy.support.scopes import setting

_LARGEST = 2000
_SHARED = 8
_as_written: ContextVar[bool] = ContextVar("relaxpy_as_written", default=False)


def values_as_written() -> AbstractContextManager[None]:
    """Inside the `with` statement, kernels compute values as written, without simplification."""
    return setting(_as_written, True)


def are_values_as_written() -> bool:
    """True inside of `values_as_written`."""
    return _as_written.get()


def is_large(value: PrimExpr) -> bool:
    """True if a value is large as a tree, and much larger than as a DAG."""
    visits, waiting = 0, list[Node]([value])
    while waiting and visits <= _LARGEST:  # few values are
        node = waiting.pop()
        waiting += () if node._variable else node._children()
        visits += 1
    if visits <= _LARGEST:
        return False
    return traverse.tree_size(value) > _SHARED * sum(1 for _ in traverse.walk(value))


def bound(values: Sequence[PrimExpr]) -> tuple[list[PrimExpr], list[tuple[Var, PrimExpr]]]:
    """The values in terms of variables, and the definitions of these, in order.

    An operation that may fail is bound only if it is evaluated unconditionally.
    """
    large = [value for value in values if is_large(value)]
    always = {*traverse.reached(list[Node](large), _computed_in_any_case)}
    uses = Counter(child for node in _nodes(large) for child in traverse.children(node))
    replaced: dict[Node, Node] = {}
    lets: list[tuple[Var, PrimExpr]] = []
    for node in _nodes(large):
        new = traverse.map_children(lambda child: replaced.get(child, child), node)
        if (
            isinstance(new, PrimExpr)
            and uses[node] > 1
            and not isinstance(new, BufferLoad)
            and any(True for _ in traverse.children(new))
            and (node in always or is_safe(new))
        ):
            variable = Var("v", new.dtype)
            lets.append((variable, new))
            new = variable
        replaced[node] = new
    found = [replaced.get(value, value) for value in values]
    return [value for value in found if isinstance(value, PrimExpr)], lets


def with_lets(body: st.Stmt, lets: Sequence[tuple[Var, PrimExpr]]) -> st.Stmt:
    """The body after the definitions of variables."""
    for variable, value in reversed(lets):
        body = st.LetStmt(variable, value, body)
    return body


def _nodes(values: Sequence[PrimExpr]) -> list[Node]:
    """The nodes under all values once, children before parents."""
    return list(dict.fromkeys(node for value in values for node in traverse.walk(value)))


def _computed_in_any_case(node: Node) -> Iterable[Node]:
    """The operands of an expression that are evaluated unconditionally."""
    match node:
        case Call(op=Op(name="tir.if_then_else"), args=(condition, *_)):
            return (condition,)
        case And(a=a) | Or(a=a):
            return (a,)
        case _:
            return traverse.children(node)


def ordered_as(
    expr: tir.PrimExpr, original: tir.PrimExpr, data: frozenset[tir.Var] = frozenset()
) -> tir.PrimExpr:
    """Reorder the simplified `expr` like `original`, where that is as simple.

    Integer terms and factors are in the order in which they occur in `original`. A term that it
    does not have is ordered by its first variable; literals come last, and a sum starts with a
    negative term only if all its terms are negative. A comparison keeps its sides and its operator.
    """
    if expr is original:
        return expr
    positions = _positions(original)

    def position(node: tir.PrimExpr) -> int:
        if isinstance(node, tir.IntImm):
            return len(positions) + 1
        known = positions.get(node)
        if known is not None:
            return known
        below = (
            positions[v] for v in traverse.walk(node) if isinstance(v, tir.Var) and v in positions
        )
        return min(below, default=len(positions))

    comparisons = [
        (c, simplify(c, data)) for c in traverse.walk(original) if isinstance(c, tir.CmpExpr)
    ]

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.CmpExpr):
            return next(
                (_arranged(node, c, data) for c, form in comparisons if form.same_as(node)), None
            )
        if not isinstance(node, (tir.Add, tir.Sub, tir.Mul)) or not node.dtype.is_int:
            return None
        if isinstance(node, tir.Mul):
            factors = _factors(node)
            ordered = sorted(factors, key=position)
            same = all(a is b for a, b in zip(factors, ordered, strict=True))
            return None if same else reduce(tir.Mul, ordered)
        terms = _terms(node)
        signed = sorted(terms, key=lambda term: position(term[0]))
        first = next((i for i, (_, negative) in enumerate(signed) if not negative), 0)
        signed.insert(0, signed.pop(first))
        same = all(a[0] is b[0] for a, b in zip(terms, signed, strict=True))
        if same or signed[0][1]:
            return None
        return reduce(
            lambda total, term: (tir.Sub if term[1] else tir.Add)(total, term[0]),
            signed[1:],
            signed[0][0],
        )

    rewritten = traverse.rewrite(expr, rule)
    assert isinstance(rewritten, tir.PrimExpr)
    return rewritten


def _positions(root: tir.PrimExpr) -> dict[tir.PrimExpr, int]:
    """The position of each subexpression, counted from the left, parents before children."""
    return {node: position for position, node in enumerate(traverse.reached([root], _operands))}


def _operands(expr: tir.PrimExpr) -> list[tir.PrimExpr]:
    return [child for child in traverse.children(expr) if isinstance(child, tir.PrimExpr)]


def _arranged(
    simplified: tir.CmpExpr, original: tir.CmpExpr, data: frozenset[tir.Var]
) -> tir.CmpExpr:
    """The original with its sides simplified and their literals on one side, if no terms cancel.

    As in TVM, `>` and `>=` become `<` and `<=`, literals that are added are positive, and one that
    is 1 changes the operator: `a < b + 1` becomes `a <= b`.
    """
    left, right = original.a, original.b
    if isinstance(original, (tir.GT, tir.GE)):
        left, right = right, left
    a, b = (_ordered(side, data) for side in (left, right))
    if _leaves(a) + _leaves(b) != _leaves(simplified.a) + _leaves(simplified.b):
        return simplified
    if isinstance(original, (tir.EQ, tir.NE)):
        return simplified if _literal(a) and _literal(b) else type(original)(a, b)
    is_strict = isinstance(original, (tir.LT, tir.GT))
    wraps = a.dtype not in (INT32, INT64) or holds_data(a, data) or holds_data(b, data)
    if wraps:  # literals that move may overflow
        return tir.LT(a, b) if is_strict else tir.LE(a, b)
    shift = _literal(b) - _literal(a)
    a, b = (ordered_as(simplify(side - _literal(side), data), side, data) for side in (a, b))
    bounds = isinstance(a, tir.IntImm) or isinstance(b, tir.IntImm)
    if shift == (1 if is_strict else -1) and not bounds:  # a < b + 1, or a + 1 <= b
        return tir.LE(a, b) if is_strict else tir.LT(a, b)
    if isinstance(a, tir.IntImm) or (shift < 0 and not isinstance(b, tir.IntImm)):
        a = ordered_as(simplify(a - shift, data), a, data)
    else:
        b = ordered_as(simplify(b + shift, data), b, data)
    return tir.LT(a, b) if is_strict else tir.LE(a, b)


def _ordered(expr: tir.PrimExpr, data: frozenset[tir.Var]) -> tir.PrimExpr:
    return ordered_as(simplify(expr, data), expr, data)


def _leaves(expr: tir.PrimExpr) -> int:
    """The number of occurrences of anything but literals in a sum."""
    return sum(not isinstance(term, tir.IntImm) for term, _ in _terms(expr))


def _literal(expr: tir.PrimExpr) -> int:
    """The literals in a sum, added up."""
    literals = ((term.value, sub) for term, sub in _terms(expr) if isinstance(term, tir.IntImm))
    return sum(-value if sub else value for value, sub in literals)


def _factors(product: tir.PrimExpr) -> list[tir.PrimExpr]:
    nodes = traverse.preorder(
        [product], lambda node: (node.a, node.b) if isinstance(node, tir.Mul) else ()
    )
    return [node for node in nodes if not isinstance(node, tir.Mul)]


def _terms(total: tir.PrimExpr) -> list[tuple[tir.PrimExpr, bool]]:
    """The terms of a sum, each with whether it is subtracted."""
    terms: list[tuple[tir.PrimExpr, bool]] = []
    stack = [(total, False)]
    while stack:
        node, negative = stack.pop()
        if isinstance(node, (tir.Add, tir.Sub)):
            stack += [(node.b, negative != isinstance(node, tir.Sub)), (node.a, negative)]
        else:
            terms.append((node, negative))
    return terms


Argument: TypeAlias = Tensor | tir.Var


@user_facing
def create_prim_func(
    ops: Sequence[Argument] | Tensor, index_dtype_override: str | None = None
) -> PrimFunc:
    """Create the PrimFunc that computes the output tensors in `ops` from the placeholders in it.

    The parameters are in the order of `ops`. Intermediate tensors are allocated inside.
    With `index_dtype_override="int64"`, shapes, loops and indices are int64 throughout.

    Errors:
        MisuseError: a placeholder is not in `ops`, or `ops` is not a list of tensors.
    """
    check_type(ops, (Tensor, list, tuple), "expected a list of tensors")
    if isinstance(index_dtype_override, Tensor):
        message = "the arguments are one list"
        hint = "write create_prim_func([A, B])"
        raise MisuseError(message, about=index_dtype_override, hint=hint)
    arg_list: list[Argument] = [ops] if isinstance(ops, Tensor) else list(ops)
    wide = index_dtype_override is not None and DataType(index_dtype_override) == INT64
    return _Lowering(wide).function(arg_list)


def _clean(name: str) -> str:
    return name.replace(".", "_") or "tensor"


@dataclass(slots=True)
class _Lowering:
    """The state of the lowering of one PrimFunc: its buffers and names."""

    wide: bool
    buffers: dict[Tensor, Buffer] = field(default_factory=dict)
    sizes: dict[tir.Var, tir.PrimExpr] = field(default_factory=dict)
    scalars: set[tir.Var] = field(default_factory=set)
    block_names: set[str] = field(default_factory=set)

    def function(self, args: list[Argument]) -> PrimFunc:
        self.scalars.update(arg for arg in args if not isinstance(arg, Tensor))
        params: list[tir.Var | Buffer] = []
        buffer_map: dict[tir.Var, Buffer] = {}
        for arg in args:
            if not isinstance(arg, Tensor):
                params.append(arg)
                continue
            handle = tir.Var(f"var_{_clean(arg.name)}", "handle")
            buffer_map[handle] = self.buffers[arg] = self._declare(arg)
            params.append(handle)
        stages = _stages([a for a in args if isinstance(a, Tensor)])
        alloc: list[Buffer] = []
        body: list[st.Stmt] = []
        steps = _steps_of_scans(stages)
        for scan in dict.fromkeys(steps.values()):
            for k, state in enumerate(scan.state_placeholder):
                alloc += self._declared(scan.output(k))
                self.buffers[state] = self.buffers[scan.output(k)]
        for op in stages:
            if isinstance(op, PlaceholderOp):
                if op.output(0) not in self.buffers:
                    raise MisuseError(
                        f"placeholder {op.name} is read but is not among the arguments"
                    )
                continue
            for k in range(op.num_outputs):
                alloc += self._declared(op.output(k))
            if isinstance(op, ScanOp):
                body += self._scan(op, [step for step, scan in steps.items() if scan is op])
            elif op not in steps:
                body.append(self._stage(op))
        root = st.Block((), (), (), "root", st.stmt_seq(*body), None, tuple(alloc))
        is_single_block = (
            len(body) == 1 and isinstance(body[0], st.BlockRealize) and not body[0].block.iter_vars
        )
        body_stmt = (
            body[0] if is_single_block and not alloc else st.BlockRealize((), ops.const(True), root)
        )
        attrs: dict[str, object] = {"global_symbol": "main", "tir.noalias": True}
        free = {t for op in stages for t in _layout_free(op)}
        positions = [k for k, arg in enumerate(args) if isinstance(arg, Tensor) and arg in free]
        if positions:
            attrs["layout_free_buffers"] = positions
        return PrimFunc(tuple(params), body_stmt, None, buffer_map, Attrs(attrs))  # type: ignore[arg-type]

    def _declared(self, tensor: Tensor) -> list[Buffer]:
        """Declare the buffer of a tensor; return it if it is a new one, to be allocated."""
        if tensor in self.buffers:
            return []
        self.buffers[tensor] = self._declare(tensor)
        return [self.buffers[tensor]]

    def _declare(self, tensor: Tensor) -> Buffer:
        return decl_buffer([self._size(s) for s in tensor.shape], tensor.dtype, tensor.name)

    def _size(self, size: tir.PrimExpr) -> tir.PrimExpr:
        return self._index(size) if self.wide else size

    def _block_name(self, hint: str) -> str:
        stem = name = _clean(hint)
        count = 0
        while name in self.block_names:
            count += 1
            name = f"{stem}_{count}"
        self.block_names.add(name)
        return name

    def _stage(self, op: Operation) -> st.Stmt:
        if isinstance(op, ExternOp):
            return self._extern(op)
        assert isinstance(op, ComputeOp)
        return self._loops(op, self._stage_of(op))

    def _stage_of(self, op: ComputeOp) -> list[_Stage]:
        """The blocks of an operation: one for a reduction, else one for each output."""
        if isinstance(op.body[0], Reduce):
            return [self._reduction(op, op.body[0])]
        return [self._element(op, k) for k in range(op.num_outputs)]

    def _annotations(self, op: Operation) -> Attrs:
        dropped = ("const_matrix", "workload", "auto_scheduler_simplify_const_tensor_indices")
        others = op.attrs.without(*dropped, "layout_free_placeholders")
        annotations = {name: self._with_buffers(value, op) for name, value in others.items()}
        intermediate = [
            self.buffers[t] for t in _layout_free(op) if not isinstance(t.op, PlaceholderOp)
        ]
        if intermediate:
            annotations["layout_free_placeholders"] = intermediate
        return Attrs(annotations)

    def _with_buffers(self, value: object, op: Operation) -> object:
        """An attribute with the buffers of its tensors."""
        match value:
            case Tensor():
                if value not in self.buffers:
                    raise MisuseError(
                        f"an attribute of {op.name} has tensor {value.name}, which the kernel does "
                        "not use"
                    )
                return self.buffers[value]
            case tuple():
                return tuple(self._with_buffers(item, op) for item in value)
            case Mapping():
                return {name: self._with_buffers(item, op) for name, item in value.items()}
            case _:
                return value

    def _extern(self, op: ExternOp) -> st.Stmt:
        inputs = [self.buffers[tensor] for tensor in op.inputs]
        outputs = [self.buffers[op.output(k)] for k in range(op.num_outputs)]
        placeholders = (*op.input_placeholders, *op.output_placeholders)
        body = replace_buffers(op.body, dict(zip(placeholders, (*inputs, *outputs), strict=True)))
        reads, writes = (
            tuple(BufferRegion(b, tuple(Range(0, size) for size in b.shape)) for b in buffers)
            for buffers in (inputs, outputs)
        )
        return st.BlockRealize(
            (), ops.const(True), st.Block((), reads, writes, self._block_name(op.name), body)
        )

    def _scan(self, op: ScanOp, steps: list[ComputeOp]) -> list[st.Stmt]:
        """Copy the first states, then compute one element of each step and state at a time."""
        assert op.scan_axis is not None
        assert op.scan_axis.dom is not None
        time = tir.Var(op.scan_axis.var.name, self._index_type(op.scan_axis))
        first: list[st.Stmt] = []
        body: list[st.Stmt] = []
        for step in steps:
            self._check_step(step, op, steps)
            body.append(self._loops(step, self._stage_of(step), time))
        for k, state in enumerate(op.state_placeholder):
            first.append(self._copied(op.init[k], self.buffers[state]))
            body.append(self._copied(op.update[k], self.buffers[state], time))
        low, extent = self._size(op.scan_axis.dom.min), self._size(op.scan_axis.dom.extent)
        return [*first, st.For(time, low, extent, st.ForKind.SERIAL, st.stmt_seq(*body))]

    def _copied(self, source: Tensor, target: Buffer, time: tir.Var | None = None) -> st.Stmt:
        """The loops that copy a tensor to the first elements of a buffer, or element `time`."""
        copy = compute(source.shape, lambda *index: source(*index), target.name)
        assert isinstance(copy.op, ComputeOp)
        self.buffers[copy.op.output(0)] = target
        return self._loops(copy.op, self._stage_of(copy.op), time)

    def _check_step(self, step: ComputeOp, scan: ScanOp, steps: list[ComputeOp]) -> None:
        """Check that a step reads earlier states, and other steps at its own position.

        Errors: MisuseError: it reads a state that has not been computed.
        """
        for node in chain.from_iterable(map(traverse.walk, step.body)):
            if not isinstance(node, ProducerLoad):
                continue
            is_state = node.producer in scan.state_placeholder
            if not step.axis or not (is_state or node.producer.op in steps):
                continue
            distance = simplify(step.axis[0].var - node.indices[0])
            known = distance.value if isinstance(distance, tir.IntImm) else -1
            if known < 1 if is_state else known != 0:
                raise MisuseError(
                    f"{scan.name}: {step.name} reads {node.producer.name} at {node.indices[0]}, "
                    f"which is not computed before element {step.axis[0].var}",
                    hint="a step reads states at t - 1 or before, and other steps at t",
                )

    def _loops(self, op: ComputeOp, blocks: list[_Stage], time: tir.Var | None = None) -> st.Stmt:
        """Build the loop nest over the axes of `op`, without the first if it is `time`."""
        axes = [*op.axis, *op.reduce_axis]
        if op.reduce_axis:
            axes, blocks[0] = self._enclosed(op, axes, blocks[0])
        loops = [tir.Var(axis.var.name, self._index_type(axis)) for axis in axes]
        if time is not None:
            loops[0] = time
        body: list[st.Stmt] = []
        for stage in blocks:
            if time is not None:
                moment = replace(stage.axes[0], iter_type=tir.IterVarKind.Ordered)
                stage = replace(stage, axes=(moment, *stage.axes[1:]))
            values: tuple[tir.PrimExpr, ...] = tuple(loops) or (
                ops.const(0, stage.axes[0].var.dtype),
            )
            body.append(stage.realized(values, self._annotations(op)))
        pairs = list(zip(loops, blocks[0].axes, strict=False))  # one axis without a loop is vi
        return _in_loops(st.stmt_seq(*body), dict(pairs if time is None else pairs[1:]))

    def _enclosed(
        self, op: ComputeOp, axes: list[IterVar], stage: _Stage
    ) -> tuple[list[IterVar], _Stage]:
        """The axes whose domains read no axes, and blocks of these around the loops over others.

        The outermost block that reduces has the init.
        """
        rows = list(zip(axes, stage.axes, _depths(axes), strict=True))
        last = max(depth for _, _, depth in rows)
        if not last:
            return axes, stage
        kept = [axis for axis, _, depth in rows if depth < last]
        outer = {
            inner.var: replace(inner, var=tir.Var(inner.var.name, inner.var.dtype))
            for _, inner, depth in rows
            if depth < last
        }
        known: dict[tir.Var, tir.PrimExpr] = {
            axis.var: ops.cast_to(around.var, axis.var.dtype)
            for axis, around in zip(kept, outer.values(), strict=True)
        }
        block_axes: dict[tir.Var, IterVar] = {}  # by their values
        for axis, inner, depth in rows:
            if depth < last:
                value = outer[inner.var].var
                dom = Range.from_min_extent(value, ops.const(1, value.dtype))
            else:
                value = tir.Var(axis.var.name, inner.var.dtype)
                dom = self._domain(axis, known)
            block_axes[value] = replace(inner, dom=dom)
        init = stage.init
        if reduces := any(axis.iter_type is tir.IterVarKind.CommReduce for axis in outer.values()):
            stage = replace(stage, init=None)
        nested = replace(stage, axes=tuple(block_axes.values())).realized(tuple(block_axes))
        loops = zip(block_axes.items(), rows, strict=True)
        body = _in_loops(nested, dict(pair for pair, (_, _, depth) in loops if depth == last))
        if init is not None:
            init = substitute(init, {var: around.var for var, around in outer.items()})
        name = self._block_name(f"{op.name}_l{last}")
        around = _Stage(name, tuple(outer.values()), body, init if reduces else None)
        return self._enclosed(op, kept, around)

    def _index_type(self, axis: IterVar) -> DataType:
        return INT64 if self.wide else axis.var.dtype

    def _block_axes(
        self, axes: Sequence[IterVar]
    ) -> tuple[tuple[IterVar, ...], dict[tir.Var, tir.PrimExpr]]:
        """Create block variables for `axes`, and the values of the axes' variables in the block."""
        block_axes, values = [], {}
        for axis in axes:
            dom = self._domain(axis, {})
            variable = tir.Var(f"v_{axis.var.name}", self._index_type(axis))
            block_axes.append(IterVar(dom, variable, axis.iter_type))
            values[axis.var] = ops.cast_to(variable, axis.var.dtype)
        if not block_axes:
            dtype = INT64 if self.wide else DataType("int32")
            dom = Range(ops.const(0, dtype), ops.const(1, dtype))
            block_axes.append(IterVar(dom, tir.Var("vi", dtype), tir.IterVarKind.DataPar))
        return tuple(block_axes), values

    def _element(self, op: ComputeOp, index: int) -> _Stage:
        target = self.buffers[op.output(index)]
        axes, values = self._block_axes(op.axis)
        indices = [axis.var for axis in axes] if op.axis else []
        [value], lets = bound([self._value(op.body[index], values)])
        body = with_lets(st.BufferStore(target, value, tuple(indices)), lets)
        return _Stage(self._block_name(target.name), axes, body)

    def _reduction(self, op: ComputeOp, first: Reduce) -> _Stage:
        targets = [self.buffers[op.output(k)] for k in range(op.num_outputs)]
        axes, values = self._block_axes([*op.axis, *first.axis])
        indices = tuple(axis.var for axis in axes[: len(op.axis)])
        order = [e.value_index for e in op.body if isinstance(e, Reduce)]
        combiner = first.combiner
        identity = combiner.identity_element
        sources, lets = bound(
            [
                self._value(_where(first.condition, source, nothing), values)
                for source, nothing in zip(first.source, identity, strict=True)
            ]
        )
        loads: list[tir.PrimExpr] = [
            BufferLoad(targets[order.index(k)], indices) for k in range(len(sources))
        ]
        combined = combiner.combine(loads, sources)
        start = [self._value(e, values) for e in first.init or identity]
        init = [
            st.BufferStore(t, ops.cast_to(start[k], t.dtype), indices)
            for t, k in zip(targets, order, strict=True)
        ]
        name = self._block_name(op.name)
        if len(targets) == 1:
            store = st.BufferStore(targets[0], combined[order[0]], indices)
            return _Stage(name, axes, with_lets(store, lets), init[0])
        temporaries = [tir.Var(f"v_{_clean(t.name)}", t.dtype) for t in targets]
        body = st.stmt_seq(
            *(st.BufferStore(t, v, indices) for t, v in zip(targets, temporaries, strict=True))
        )
        for variable, k in zip(reversed(temporaries), reversed(order), strict=True):
            body = st.LetStmt(variable, combined[k], body)
        return _Stage(name, axes, with_lets(body, lets), st.stmt_seq(*init))

    def _value(self, expr: tir.PrimExpr, values: dict[tir.Var, tir.PrimExpr]) -> tir.PrimExpr:
        """Simplify `expr` and replace its variables and loads; wide indices become int64."""
        if not (_as_written.get() or is_large(expr)):
            expr = _ordered(expr, frozenset(self.scalars))
        return self._replaced(expr, values)

    def _replaced(self, expr: tir.PrimExpr, values: dict[tir.Var, tir.PrimExpr]) -> tir.PrimExpr:
        rewritten = traverse.rewrite(expr, partial(self._lowered, values))
        assert isinstance(rewritten, tir.PrimExpr)
        return rewritten

    def _domain(self, axis: IterVar, values: dict[tir.Var, tir.PrimExpr]) -> Range:
        assert axis.dom is not None
        domain = (axis.dom.min, axis.dom.extent)
        low, extent = (self._size(self._replaced(e, values)) for e in domain)
        same = low is axis.dom.min and extent is axis.dom.extent
        return axis.dom if same else Range.from_min_extent(low, extent)

    def _lowered(self, values: dict[tir.Var, tir.PrimExpr], node: Node) -> Node | None:
        match node:
            case tir.Var():
                return values.get(node)
            case ProducerLoad(producer=producer, indices=indices):
                buffer_indices = [self._index(i) for i in indices] if self.wide else indices
                return BufferLoad(self.buffers[producer], buffer_indices)
            case tir.CmpExpr(a=a, b=b) if self.wide and _fits_index(a.dtype):
                sides = [*outside_indices(a)], [*outside_indices(b)]
                if not any(isinstance(n, tir.Var) and n not in self.scalars for n in chain(*sides)):
                    return None  # data is compared in its own datatype
                return type(node)(self._compared(a, sides[0]), self._compared(b, sides[1]))
            case _:
                return None

    def _compared(self, side: tir.PrimExpr, nodes: list[Node]) -> tir.PrimExpr:
        """Convert a side of a comparison to int64; arithmetic on data is not widened."""
        has_loads = any(isinstance(n, BufferLoad) for n in nodes)
        return ops.cast_to(side, INT64) if has_loads else self._index(side)

    def _reads(self, expr: tir.PrimExpr) -> bool:
        """True if an index is computed from elements of tensors or from scalars."""
        loads = traverse.occurrences(expr, BufferLoad)
        return next(loads, None) is not None or mentions(expr, self.scalars)

    def _index(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """Convert an integer expression to int64 by casts of its leaves, unless data may wrap."""
        if expr.dtype == INT64 or not expr.dtype.is_int or expr.dtype.is_bool:
            return expr
        if self._reads(expr) and data_may_wrap(expr, frozenset(self.scalars)):
            return ops.cast_to(expr, INT64)
        match expr:
            case tir.IntImm(value=value):
                return ops.const(value, INT64)
            case tir.Var() if expr not in self.scalars:
                return self.sizes.setdefault(expr, expr.__class__(expr.name, INT64))
            case tir.Cast(value=operand) if operand.dtype == INT64 and not self._reads(operand):
                return operand
            case tir.Select(condition=c, true_value=a, false_value=b):
                return tir.Select(c, self._index(a), self._index(b))
            case tir.Call(op=Op(name="tir.if_then_else") as op, args=(c, a, b)):
                assert isinstance(a, tir.PrimExpr)
                assert isinstance(b, tir.PrimExpr)
                return tir.Call(INT64, op, (c, self._index(a), self._index(b)))
            case tir.BinaryOpExpr() if not isinstance(expr, tir.CmpExpr):
                return type(expr)(self._index(expr.a), self._index(expr.b))
            case _:
                return ops.cast_to(expr, INT64)


@dataclass(frozen=True, slots=True)
class _Stage:
    """The name, axes and statements of a block, before its regions are inferred."""

    name: str
    axes: tuple[IterVar, ...]
    body: st.Stmt
    init: st.Stmt | None = None

    def realized(
        self, values: Sequence[tir.PrimExpr], annotations: Attrs = EMPTY_ATTRS
    ) -> st.BlockRealize:
        """The block, with its regions, at the values of its axes."""
        block = st.Block(
            self.axes, (), (), self.name, self.body, self.init, annotations=annotations
        )
        return st.BlockRealize(tuple(values), ops.const(True), with_regions(block))


def _in_loops(body: st.Stmt, loops: dict[tir.Var, IterVar]) -> st.Stmt:
    """The body in loops over the domains of axes."""
    for loop, axis in reversed(loops.items()):
        assert axis.dom is not None
        body = st.For(loop, axis.dom.min, axis.dom.extent, st.ForKind.SERIAL, body)
    return body


def _depths(axes: Sequence[IterVar]) -> list[int]:
    """How many other axes the domain of each axis reads, one by way of the other.

    Errors: MisuseError if a domain reads its own axis.
    """
    by_var = {axis.var: axis for axis in axes}

    def depth(axis: IterVar, *inner: IterVar) -> int:
        if any(axis is other for other in inner):
            raise MisuseError(f"the domain of axis {axis.var.name} reads the axis itself")
        domain = () if axis.dom is None else traverse.walk(axis.dom)
        read = (by_var.get(node) for node in domain if isinstance(node, tir.Var))
        return max((depth(o, axis, *inner) + 1 for o in read if o is not None), default=0)

    return [depth(axis) for axis in axes]


def _where(condition: tir.PrimExpr, source: tir.PrimExpr, identity: tir.PrimExpr) -> tir.PrimExpr:
    """`source` if `condition` holds, else the identity, without reading `source`."""
    if isinstance(condition, tir.IntImm) and condition.value:
        return source
    return intrin.if_then_else(condition, source, ops.cast_to(identity, source.dtype))


def _fits_index(dtype: DataType) -> bool:
    """True if indices of this integer datatype can be widened to int64."""
    return (dtype.family == "int" and dtype.bits >= 32) or dtype == "uint32"


def _layout_free(op: Operation) -> tuple[Tensor, ...]:
    """The tensors of an operation with a free layout."""
    free = op.attrs.get("layout_free_placeholders", ())
    return tuple(t for t in free if isinstance(t, Tensor)) if isinstance(free, tuple) else ()


def replace_buffers(stmt: st.Stmt, replacements: dict[Buffer, Buffer]) -> st.Stmt:
    """Replace buffers, and their data pointers and offsets, at every use in `stmt`."""
    values: dict[Node, Node] = {}
    for old, new in replacements.items():
        values |= {old: new, old.data: new.data}
        if isinstance(old.elem_offset, tir.Var):
            values[old.elem_offset] = ops.convert(new.elem_offset or 0)
    rewritten = traverse.rewrite(stmt, values.get)
    assert isinstance(rewritten, st.Stmt)
    return rewritten


def _steps_of_scans(stages: list[Operation]) -> dict[ComputeOp, ScanOp]:
    """Map the operations that read states of scans, or each other, to their scan, in order."""
    scans = {s: op for op in stages if isinstance(op, ScanOp) for s in op.state_placeholder}
    steps: dict[ComputeOp, ScanOp] = {}
    for op in stages:
        for tensor in () if isinstance(op, ScanOp) else op.input_tensors:
            scan = scans.get(tensor) or steps.get(tensor.op)  # type: ignore[call-overload]
            if scan is not None:
                if not isinstance(op, ComputeOp):
                    raise MisuseError(f"{scan.name}: {op} cannot be computed step by step")
                steps[op] = scan
    return steps


def _stages(tensors: list[Tensor]) -> list[Operation]:
    """The operations that compute `tensors` in topological order."""
    roots = (tensor.op for tensor in tensors)
    return list(traverse.postorder(roots, lambda op: [tensor.op for tensor in op.input_tensors]))
