"""From a plan to Python over NumPy: one function for all sizes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, assert_never

import numpy as np

from relaxpy.errors import CompileError
from relaxpy.exec.kernel.emit.allocation import allocations, extent
from relaxpy.exec.kernel.emit.arrays import ArrayEmitter, Output, Rows
from relaxpy.exec.kernel.emit.contractions import ContractionEmitter
from relaxpy.exec.kernel.emit.emitted import Emitted
from relaxpy.exec.kernel.emit.entry import Entry
from relaxpy.exec.kernel.emit.scalar import ScalarEmitter
from relaxpy.exec.kernel.emit.scope import Scope, dtype_name, literal, title
from relaxpy.exec.kernel.emit.views import size_of
from relaxpy.exec.kernel.nest.bounds import may_divide_by_zero
from relaxpy.exec.kernel.nest.domain import may_be_empty, nonempty
from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.initialisation import with_initialisation
from relaxpy.exec.kernel.plan.layout import layout_of
from relaxpy.exec.kernel.plan.may_warn import calls_out, may_warn
from relaxpy.exec.kernel.plan.memory import exclusions
from relaxpy.exec.kernel.plan.parts import Group, Part, Statement, expressions_of
from relaxpy.exec.kernel.plan.steps import (
    ArgReduce,
    Blocked,
    Contract,
    Map,
    Plan,
    Reduce,
    Scalar,
    Scan,
    Scatter,
    Serial,
    Step,
    Whole,
    accesses,
    first_of,
    parts_in,
)
from relaxpy.exec.kernel.plan.updates import Combine, update_of
from relaxpy.exec.python_ast import (
    Code,
    assign,
    both,
    call,
    compare,
    do,
    function,
    item,
    loop,
    text,
    when,
    within,
)
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import FloatImm, IntImm, PrimExpr, Var
from relaxpy.ir.tir.substitution import substitute
from relaxpy.pysource import Names, set_span

UFUNCS: Mapping[Combine, str] = {
    "add": "np.add",
    "mul": "np.multiply",
    "min": "np.minimum",
    "max": "np.maximum",
    "and": "np.logical_and",
    "or": "np.logical_or",
    "bitwise_and": "np.bitwise_and",
    "bitwise_or": "np.bitwise_or",
    "bitwise_xor": "np.bitwise_xor",
}


def _ufunc(combine: Combine, dtype: DataType) -> str:
    """What combines two values; truth values are integers of one bit."""
    return "np.logical_xor" if combine == "add" and dtype.is_bool else UFUNCS[combine]


def _least_extreme(combine: Literal["min", "max"], dtype: DataType) -> IntImm | FloatImm:
    """What is no less than any value of `dtype`, or no greater."""
    if not dtype.is_float:
        return IntImm(dtype, ops.int_range(dtype)[combine == "min"])
    value = float("inf" if combine == "min" else "-inf")
    if not np.isinf(dtype.numpy().type(value)):
        value = ops.float_range(dtype)[combine == "min"]
    return FloatImm(dtype, value)


def emit(plan: Plan, reserved: Iterable[str], functions: Mapping[str, str]) -> Emitted:
    """What performs `plan`; it leaves the names `reserved` be.

    Its free names are `np`, `math`, `rt`, and those of the module's `functions` that it calls.

    Errors:
        CompileError: something in the kernel cannot run on NumPy.
    """
    return NumpyEmitter(plan, reserved, functions).emitted()


class NumpyEmitter:
    """Writes one kernel."""

    def __init__(self, plan: Plan, reserved: Iterable[str], functions: Mapping[str, str]) -> None:
        self.plan = plan
        self.taken = ("np", "math", "rt", plan.name, *reserved, *functions.values())
        self.functions = functions
        self.serial: tuple[Axis, ...] = ()
        self.rows: dict[Buffer, Rows] = {}
        self.proof: dict[Var, Axis] = {}

    def emitted(self) -> Emitted:
        """Checks and work."""
        self._begin()
        in_order = self.overlapping()
        # Only one of the two is performed, so that the other's names are free.
        entry, checks = self._begin()
        parameters = dict(self.scope.buffers)
        made = allocations(self.plan.nest, self.scope, self.plan.made, self.plan.shared)
        work = [*made, *self.steps(self.plan.steps)]
        self.scope.buffers = parameters
        checks += in_order
        set_span([*checks, *work], self.plan.func.span)
        self._all_bound([*checks, *work], entry.params)
        return Emitted(
            self.plan.name,
            entry.summary(),
            entry.params,
            checks,
            work,
            may_warn(self.plan),
            entry.size_names(),
            calls_out(self.plan),
        )

    def _begin(self) -> tuple[Entry, list[ast.stmt]]:
        """A scope with nothing but the parameters and sizes, and the lines that check them."""
        self.scope = Scope(Names(self.taken), self.plan.sizes, self.functions)
        self.scope.compute = ScalarEmitter(self.scope, self.plan.name).value
        entry = Entry(self.plan, self.scope)
        for param, memory in self.plan.nest.pointers.items():
            self.scope.buffers[memory] = self.scope.variable(param)
        return entry, entry.check()

    def _all_bound(self, lines: Sequence[ast.stmt], params: Iterable[str]) -> None:
        """Errors: CompileError if a variable is read that nothing binds (PX-7)."""
        nodes = [node for line in lines for node in ast.walk(line)]
        names = [node for node in nodes if isinstance(node, ast.Name)]
        bound = {*params, *(node.arg for node in nodes if isinstance(node, ast.arg))}
        bound |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
        unbound = {name.id for name in names} - bound
        for var, name in self.scope.variables.items():
            if name in unbound:
                raise CompileError(
                    f"{self.plan.name}: the variable {var.name} is not bound",
                    rule="PX-7",
                    span=self.plan.func.span,
                )

    def overlapping(self) -> list[ast.stmt]:
        """What runs, in the order of the text, where arguments share memory that is written."""
        tests = [
            call(
                "rt.overlap", self.scope.buffer(target), tuple(map(self.scope.buffer, others)), same
            )
            for target, others, same in exclusions(self.plan)
        ]
        if not tests:
            return []
        condition = tests[0] if len(tests) == 1 else ast.BoolOp(ast.Or(), [*tests])
        nest = self.plan.ordered
        local = (entry.buffer for entry in nest.local)
        lines = list(allocations(nest, self.scope, local, {}))
        items = with_initialisation(nest.items, self.plan.sizes)
        lines += ScalarEmitter(self.scope, self.plan.name).items(items)
        written = [target for target, _, _ in exclusions(self.plan)]
        names = text(f"{self.plan.name}: {', '.join(target.name for target in written)}")
        contexts = [call("rt.undone", names, *map(self.scope.buffer, written))]
        if not may_warn(self.plan):
            # Unlike arrays, scalars warn when integers wrap.
            contexts.append(call("np.errstate", all=text("ignore")))
        lines = [within(contexts, lines)]
        return [when(condition, [*lines, ast.Return(None)])]

    # ---- steps

    def steps(self, steps: Sequence[Step]) -> list[ast.stmt]:
        """The statements that perform `steps` in order."""
        return [line for step in steps for line in self.step(step)]

    def step(self, step: Step) -> list[ast.stmt]:
        """The statements that perform `step`."""
        match step:
            case Serial():
                return self._serial(step)
            case Scalar():
                return self._scalar(step)
            case Blocked():
                return self._blocked(step)
            case _:
                return self._whole(step)

    def _serial(self, step: Serial) -> list[ast.stmt]:
        start, stop = self.scope.index(step.axis.start), self.scope.index(step.axis.stop)
        outer, compute = self.serial, self.scope.compute
        self.serial = (*outer, step.axis)
        self.scope.compute = ScalarEmitter(self.scope, self.plan.name, self.serial).value
        body = self.steps(step.steps)
        self.serial, self.scope.compute = outer, compute
        whole = loop(self.scope.variable(step.axis.var), start, stop, body)
        self.scope.forget(step.axis.var)
        return [whole]

    def _within(self, axes: Sequence[Axis]) -> list[ast.expr]:
        """Conditions for a round of the loops around to belong to a part's own axes."""
        tests: list[ast.expr] = []
        for outer in self.serial:
            own = next((a for a in axes if a.var is outer.var), None)
            if own is None or own is outer:
                continue
            name = self.scope.variable(outer.var)
            low, high = as_poly(own.start), as_poly(own.stop)
            if (high - low).same(1):
                tests.append(compare(name, ast.Eq, self.scope.index(own.start)))
                continue
            if not low.same(as_poly(outer.start)):
                tests.append(compare(name, ast.GtE, self.scope.index(own.start)))
            if not high.same(as_poly(outer.stop)):
                tests.append(compare(name, ast.Lt, self.scope.index(own.stop)))
        return tests

    def _scalar(self, step: Scalar) -> list[ast.stmt]:
        part = step.part
        axes = [a for a in part.axes if any(a.var is s.var for s in self.serial)]
        emitter = ScalarEmitter(self.scope, self.plan.name, axes)
        tests = self._within(part.axes)
        match part:
            case Statement():
                empty = self._nonempty(a for a in part.axes if a not in axes)
                lines = emitter.statement(part, [*tests, *empty])
                set_span(lines, part.span)
                return lines
            case Group(items=items):
                lines = emitter.items(items)
                return [when(both(tests), lines)] if tests else lines

    def _nonempty(self, axes: Iterable[Axis], *, always: bool = False) -> list[ast.expr]:
        """Conditions for axes to have any round.

        Unless `always`, only for those that end before they begin where sizes are small.
        """
        asked = (a for a in axes if always or may_be_empty(a, self.scope.sizes))
        found = (nonempty(a, self.scope.sizes) for a in asked)
        return [self.scope.truth(test) for test in found if test is not None]

    def _whole(self, step: Whole) -> list[ast.stmt]:
        [part] = parts_in(step)
        serial = {a.var for a in self.serial}
        free = [a for a in part.axes if a.var not in serial]
        always = self._may_stop(step, free)
        axes = [a for a in free if a.var not in self.proof]
        tests = [*self._within(part.axes), *self._nonempty(axes, always=always)]
        if isinstance(step, (Reduce, Contract)) and step.initial is not None:
            if not step.begins_always:
                tests += self._nonempty(step.over, always=True)
            elif self._nonempty(step.over, always=always):
                # It begins also where nothing follows.
                kept = tuple(a for a in part.axes if a not in step.over)
                begin = replace(step.statement, axes=kept, value=step.initial, guards=())
                return [
                    *self._whole(Map(begin, step.axes)),
                    *self._whole(replace(step, initial=None)),
                ]
        lines = self._performed(step)
        lines = [when(both(_distinct(tests)), lines)] if tests and lines else lines
        set_span(lines, part.span if isinstance(part, Statement) else None)
        return lines

    def _may_stop(self, step: Whole, axes: Sequence[Axis]) -> bool:
        """Whether a place or a divisor, looked at before any round, may stop the program."""
        [part] = parts_in(step)
        arrays = self._emitter(axes, part)
        if any(a.buffer in self.plan.views or arrays.is_unproved(a) for a in accesses(step)):
            return True
        return any(may_divide_by_zero(node) for e in expressions_of(part) for node in walk(e))

    def _performed(self, step: Whole) -> list[ast.stmt]:
        match step:
            case Map():
                return self._map(step)
            case Reduce():
                return self._reduce(step)
            case Contract():
                return self._contract(step)
            case Scan():
                return self._scan(step)
            case Scatter():
                return self._scatter(step)
            case ArgReduce():
                return self._arg_reduce(step)
            case _:
                assert_never(step)

    def _emitter(self, layout: Sequence[Axis], part: Part) -> ArrayEmitter:
        span = part.span if isinstance(part, Statement) else None
        own = {a.var: a for a in part.axes}
        outer = [own.get(a.var, a) for a in self.serial]
        return ArrayEmitter(self.scope, self.plan.name, layout, outer, self.rows, self.proof, span)

    def _reads(self, part: Statement | Group, target: Buffer) -> bool:
        """Whether the part reads the memory of `target`."""
        root = self.root(target)
        return any(self.root(r.buffer) is root for r in part.reads)

    def root(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory `buffer` uses."""
        buffer = self.plan.views.get(buffer, buffer)
        return self.plan.shared.get(buffer, buffer)

    def _map(self, step: Map) -> list[ast.stmt]:
        statement = step.statement
        layout = layout_of(statement, step.axes, ())
        arrays = self._emitter(layout, statement)
        inside = arrays.is_inside(statement.target, statement.indices)
        if inside and self._stays(statement):
            return []
        if statement.guards and not inside:
            # Rounds in which the guards do not hold may lie outside.
            return self._scatter(Scatter(statement, step.axes, None))
        out = self._output(arrays, statement)
        mask = arrays.restrict(statement.guards)
        if mask is None:
            arrays.store(statement.value, out)
        else:
            arrays.masked(statement.value, mask, out)
        return self._where_fixed(statement, arrays)

    def _where_fixed(self, statement: Statement, arrays: ArrayEmitter) -> list[ast.stmt]:
        """The lines of `arrays`, where the guards hold that are the same in all rounds."""
        fixed, _ = arrays.divided(statement.guards)
        if not fixed:
            return arrays.lines
        return [when(both(arrays.scalars.value(g) for g in fixed), arrays.lines)]

    def _stays(self, statement: Statement) -> bool:
        """Whether the target uses the memory of what is copied to it, element for element."""
        match statement.value:
            case BufferLoad(buffer=buffer, indices=indices) if not statement.guards:
                shared = self.plan.shared
                one = shared.get(buffer, buffer) is shared.get(statement.target, statement.target)
                pairs = zip(indices, statement.indices, strict=False)
                return one and all(a is b for a, b in pairs)
            case _:
                return False

    def _output(self, arrays: ArrayEmitter, statement: Statement) -> Output:
        return arrays.output(
            statement.target, statement.indices, lambda b: self._reads(statement, b)
        )

    def _reduce(self, step: Reduce) -> list[ast.stmt]:
        statement, update = step.statement, step.update
        inside = self._emitter(step.axes, statement)
        if statement.guards and not inside.is_inside(statement.target, statement.indices):
            # Rounds in which the guards do not hold may lie outside.
            return self._scatter(Scatter(statement, (*step.axes, *step.over), update))
        layout = layout_of(statement, step.axes, step.over)
        arrays = self._emitter(layout, statement)
        mask = arrays.restrict(statement.guards)
        first = first_of(step) if mask is None and layout[-1] in step.over else None
        node = arrays.spread(update.operand if first is None else first)
        spatial = [a for a in layout if a in step.axes]
        over = [
            n - len(layout) if len(layout) > 1 else 0
            for n, a in enumerate(layout)
            if a in step.over
        ]
        target = self._emitter(spatial, statement)
        out = self._output(target, statement)
        arrays.lines += target.lines
        combine = _ufunc(update.combine, statement.target.dtype)
        reduce = f"{combine}.reduce"
        axis: Code = None if not spatial else over[0] if len(over) == 1 else tuple(over)
        keywords: dict[str, Code] = {"axis": axis}
        if not spatial and len(layout) == 1:
            keywords = {}
        initial = step.initial
        folded = isinstance(initial, (IntImm, FloatImm)) or self._is_size(initial)
        start = initial
        if not folded and update.combine in ("min", "max"):
            start = _least_extreme(update.combine, statement.target.dtype)
        if isinstance(start, (IntImm, FloatImm)):
            keywords["initial"] = literal(start, typed=start.dtype.numpy().isbuiltin != 1)
        elif isinstance(start, Var) and folded:
            keywords["initial"] = self.scope.index(start)
        if mask is not None:
            keywords["where"] = mask
        if first is not None:
            none = keywords["initial"]
            arrays.lines.append(do(call("rt.first", node, none, out.node)))
            return arrays.lines
        if initial is None:
            made = call(reduce, node, **keywords, dtype=dtype_name(statement.target.dtype))
            arrays.lines.append(do(call(combine, out.node, made, out=out.node)))
            return self._where_fixed(statement, arrays)
        arrays.lines.append(do(call(reduce, node, **keywords, out=out.node)))
        if not folded:
            arrays.lines += self._combined(spatial, statement, update.combine, initial, out)
        return arrays.lines

    def _is_size(self, value: PrimExpr | None) -> bool:
        """Whether `value` is a size, in the datatype that NumPy gives Python's integers."""
        return isinstance(value, Var) and value in self.scope.sizes and value.dtype == INT64

    def _combined(
        self,
        spatial: Sequence[Axis],
        statement: Statement,
        combine: Combine,
        other: PrimExpr,
        out: Output,
    ) -> list[ast.stmt]:
        """The output combined with one more value for each element."""
        more = self._emitter(spatial, statement)
        value = more.compute(other)
        ufunc = _ufunc(combine, statement.target.dtype)
        more.lines.append(do(call(ufunc, out.node, value.node, out=out.node)))
        return more.lines

    def _contract(self, step: Contract) -> list[ast.stmt]:
        statement = step.statement
        writer = ContractionEmitter(self.scope, lambda axes: self._emitter(axes, statement), step)
        initial = step.initial
        zero = isinstance(initial, (IntImm, FloatImm)) and initial.value == 0
        *before, last = writer.lines(accumulate=initial is None)
        lines = [last]
        if initial is not None and not zero:
            spatial = writer.spatial
            target = self._emitter(spatial, statement)
            out = self._output(target, statement)
            lines += self._combined(spatial, statement, "add", initial, out)
        if not step.regrouped:
            return [*before, *lines]
        update = update_of(statement)
        assert update is not None
        count = as_poly(1)
        for axis in step.over:
            count = count * size_of(axis)
        test = call("rt.stays_finite", self.scope.index(count), *writer.values)
        as_written = Reduce(statement, step.axes, step.over, update, initial, step.begins_always)
        return [*before, when(test, lines, self._reduce(as_written))]

    def _scan(self, step: Scan) -> list[ast.stmt]:
        statement, axis = step.statement, step.axis
        layout = layout_of(statement, step.axes, ())
        arrays = self._emitter(layout, statement)
        target, indices = statement.target, statement.indices
        out = arrays.output(target, indices, lambda _: False)
        arrays.store(step.update.operand, out)
        others = [a for a in layout if a is not axis]
        start = {axis.var: ops.cast_to(axis.start, axis.var.dtype)}
        first = self._emitter(others, statement)
        begin = first.output(target, [substitute(i, start) for i in indices], lambda _: True)
        before = first.compute(substitute(step.before, start))
        ufunc = UFUNCS[step.update.combine]
        first.lines.append(do(call(ufunc, before.node, begin.node, out=begin.node)))
        kind = dtype_name(target.dtype)
        along = layout.index(axis)
        made = call(f"{ufunc}.accumulate", out.node, axis=along, dtype=kind, out=out.node)
        lines = [*arrays.lines, *first.lines, do(made)]
        test = nonempty(axis, self.scope.sizes)
        return lines if test is None else [when(self.scope.truth(test), lines)]

    def _scatter(self, step: Scatter) -> list[ast.stmt]:
        statement = step.statement
        arrays = self._emitter(step.axes, statement)
        mask = arrays.restrict(statement.guards)
        stored = step.update.operand if step.update else statement.value
        value = arrays.typed(stored, arrays.compute(stored))
        indices = arrays.present(statement.target, statement.indices)
        places = [arrays.compute(i).node for i in indices]
        name = self.scope.buffer(statement.target)
        shape = tuple(self.scope.index(size_of(a)) for a in step.axes)
        combine = step.update.combine if step.update else None
        ufunc: Code = _ufunc(combine, statement.target.dtype) if combine else None
        where = title(self.plan.name, statement.target)
        arrays.lines.append(
            do(call("rt.scatter", name, tuple(places), value.node, shape, ufunc, mask, where))
        )
        return self._where_fixed(statement, arrays)

    def _arg_reduce(self, step: ArgReduce) -> list[ast.stmt]:
        extreme = step.extreme
        layout = (*step.axes, extreme.axis)
        arrays = self._emitter(layout, step.group)
        node = arrays.spread(extreme.operand)
        target = self._emitter(step.axes, step.group)
        best = target.output(extreme.best.buffer, extreme.best_indices, lambda _: True)
        place = target.output(extreme.place.buffer, extreme.place_indices, lambda _: True)
        position = affine(extreme.position, {extreme.axis.var})
        assert position is not None
        factor = position.coefficients.get(extreme.axis.var, as_poly(0))
        first = position.offset + factor * as_poly(extreme.axis.start)
        order = extreme.order
        keywords: dict[str, Code] = {}
        if not first.same(0):
            keywords["first"] = self.scope.index(first)
        if not factor.same(1):
            keywords["step"] = self.scope.index(factor)
        if order.last:
            keywords["last"] = True
        if order.nan_wins:
            keywords["nan_wins"] = True
        if order.by_place:
            keywords["by_place"] = True
        name = "rt.argmax" if order.maximum else "rt.argmin"
        done = do(call(name, node, best.node, place.node, **keywords))
        return [*arrays.lines, *target.lines, done]

    def _blocked(self, step: Blocked) -> list[ast.stmt]:
        """An inner function of the stretch, run by the runtime over all of them."""
        name = self.scope.names.fresh("rows")
        low, high = as_poly(step.low), as_poly(step.high)
        params = [self.scope.variable(step.low), self.scope.variable(step.high)]
        outer = dict(self.rows), dict(self.proof), dict(self.scope.buffers)
        body: list[ast.stmt] = []
        for buffer, row in step.rows.items():
            owner = self.plan.shared.get(buffer, buffer)
            if owner in self.rows:
                self.scope.buffers[buffer] = self.scope.buffer(owner)
                self.rows[buffer] = self.rows[owner]
                continue
            rows = Rows(row.axis, low + row.offset, high - low)
            body.append(self._stretch(owner, rows, local=owner in step.local))
            self.scope.buffers[buffer] = self.scope.buffer(owner)
            self.rows[owner] = self.rows[buffer] = rows
        for inner in step.steps:
            [stretched] = [a.var for a in inner.axes if a.start is step.low]
            self.proof = {**outer[1], stretched: replace(step.axis, var=stretched)}
            body += self._whole(inner)
        self.rows, self.proof, self.scope.buffers = outer
        bounds = [self.scope.index(step.axis.start), self.scope.index(step.axis.stop)]
        run = do(call("rt.blocks", name, *bounds, self.scope.index(step.row_bytes)))
        return [function(name, params, body), run]

    def _stretch(self, buffer: Buffer, rows: Rows, *, local: bool) -> ast.stmt:
        """A line that gives `buffer` its stretch: memory of that size, or a slice of the whole."""
        if local:
            shape: tuple[Code, ...] = tuple(
                self.scope.index(rows.size) if axis == rows.axis else extent(self.scope, size)
                for axis, size in enumerate(buffer.shape)
            )
            fresh = call("np.empty", shape, dtype_name(buffer.dtype))
            return assign(self.scope.buffer(buffer), fresh)
        stop = rows.start + rows.size
        indices: list[Code] = [ast.Slice()] * rows.axis
        indices.append(ast.Slice(self.scope.index(rows.start), self.scope.index(stop)))
        made = item(self.scope.buffer(buffer), *indices)
        name = self.scope.buffers[buffer] = self.scope.names.fresh(f"{buffer.name}_rows")
        return assign(name, made)


def _distinct(tests: Sequence[ast.expr]) -> list[ast.expr]:
    return list({ast.dump(test): test for test in tests}.values())
