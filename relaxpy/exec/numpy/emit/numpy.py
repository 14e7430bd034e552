"""Emits a plan as Python over NumPy: one function for all shapes."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Final

from relaxpy.errors import CompileError
from relaxpy.exec.loops.nest.domain import nonempty_condition, tests_within
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.nest.read import read
from relaxpy.exec.loops.plan.arg_extremes import ArgExtreme
from relaxpy.exec.loops.plan.blocking import (
    batch_axes,
    gap_bytes,
    is_part,
    is_product,
    keeps_negative_zero,
    row_bytes,
    row_work,
    runs_once,
)
from relaxpy.exec.loops.plan.idioms import searched_condition
from relaxpy.exec.loops.plan.initialisation import with_initialisation
from relaxpy.exec.loops.plan.statements import Assignment, Compound, Statement, expressions_of
from relaxpy.exec.loops.plan.tree import (
    Contraction,
    For,
    Run,
    Scan,
    Search,
    Tile,
    Tree,
    accesses,
    runs,
)
from relaxpy.exec.loops.plan.updates import Combine, Update, reduction_identity
from relaxpy.exec.machine.tuning import NumPy
from relaxpy.exec.numpy.emit.allocation import (
    UFUNCS,
    Part,
    allocations,
    block_rows,
    extent,
    part_of,
    ufunc_name,
    uncertain_views,
)
from relaxpy.exec.numpy.emit.array_values import Output, Rows
from relaxpy.exec.numpy.emit.arrays import ArrayEmitter
from relaxpy.exec.numpy.emit.contractions import ContractionEmitter
from relaxpy.exec.numpy.emit.emitted import Emitted, Entry
from relaxpy.exec.numpy.emit.form import NumpyForm
from relaxpy.exec.numpy.emit.gathers import trailing_axes
from relaxpy.exec.numpy.emit.row_products import row_products
from relaxpy.exec.numpy.emit.scalar import ScalarEmitter
from relaxpy.exec.numpy.emit.scope import KernelScope, dtype_name, literal, title
from relaxpy.exec.numpy.python_ast import (
    Code,
    assign,
    attribute,
    both,
    call,
    do,
    function,
    loop,
    nodes_in,
    path,
    when,
)
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import preorder, walk
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import FloatImm, IntImm, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import replace
from relaxpy.support.pysource import Names, set_span


class NumpyEmitter:
    """Emits the statements that execute the plan of `form`, which do not use the names `reserved`.

    Their free names are `np`, `math`, `rt`, and those of the module's `functions` that they call.
    The kernel has the docstring `summary`.
    """

    scope: KernelScope

    def __init__(
        self, form: NumpyForm, reserved: Iterable[str], functions: Mapping[str, str], summary: str
    ) -> None:
        self.summary = summary
        self.form, self.plan = form, form.plan
        plan = form.plan
        self.taken = ("np", "math", "rt", plan.name, *reserved, *functions.values())
        self.functions = functions
        self.serial: tuple[Axis, ...] = ()
        self.rows: dict[Buffer, Rows] = {}
        self.proof: dict[Var, Axis] = {}
        self.row_products = row_products(plan)

    def emitted(self) -> Emitted:
        """The work, for valid arguments without aliases of written memory.

        Errors:
            CompileError: an operation of the kernel cannot run on NumPy.
        """
        entry = self._begin()
        parameters = dict(self.scope.buffers)
        unused = self.row_products.unused
        new = (buffer for buffer in self.form.allocated if buffer not in unused)
        memory = allocations(self.plan.nest, self.scope, new, self.plan.shared)
        work = [*memory, *self.trees(self.plan.trees)]
        self.scope.buffers = parameters
        return self._emitted(entry, work)

    def in_text_order(self) -> Emitted:
        """The loops in source order, for arguments that alias written memory."""
        entry = self._begin()
        nest = self.plan.nest
        if not nest.allows_aliasing:
            nest = read(self.plan.func, self.plan.shape_vars, may_alias=True)
            nest = with_initialisation(nest, self.plan.shape_vars, may_alias=True)
        local = (entry.buffer for entry in nest.local)
        work = list(allocations(nest, self.scope, local, {}))
        work += ScalarEmitter(self.scope, self.plan.name).items(nest.items)
        return self._emitted(entry, work)

    def _emitted(self, entry: Entry, work: list[ast.stmt]) -> Emitted:
        set_span(work, self.plan.func.span)
        self._all_bound([*entry.reads(self.scope.variables.values()), *work], entry.params)
        flatten_deep_loops(work)
        return Emitted(self.plan.name, self.summary, entry, work, self.plan.calls_functions)

    def _begin(self) -> Entry:
        """Create a scope with the parameters and shape variables."""
        plan, names = self.plan, Names(self.taken)
        sizes = [size for buffer in plan.func.buffer_map.values() for size in buffer.shape]
        dimensions = {node for size in sizes for node in walk(size)}
        scalars = {param for param in plan.func.params if param not in dimensions}
        views = uncertain_views(plan)
        self._enter(KernelScope(names, plan.shape_vars, sizes, self.functions, scalars, views))
        entry = Entry(self.plan, self.scope)
        for param, memory in self.plan.nest.pointers.items():
            self.scope.buffers[memory] = self.scope.variable(param)
        return entry

    def _enter(self, scope: KernelScope) -> None:
        self.scope = scope
        scope.compute = ScalarEmitter(scope, self.plan.name).value

    def _all_bound(self, lines: Sequence[ast.stmt], params: Iterable[str]) -> None:
        """Errors: CompileError if a variable is used that is not bound (PX-7)."""
        nodes = nodes_in(lines)
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

    # ---- trees

    def trees(self, trees: Sequence[Tree]) -> list[ast.stmt]:
        """The Python statements that execute `trees` in order."""
        return [line for tree in trees for line in self.tree(tree)]

    def tree(self, tree: Tree) -> list[ast.stmt]:
        """The Python statements that execute `tree`."""
        match tree:
            case For():
                return self._for(tree)
            case Tile():
                return self._tile(tree)
            case Run():
                return self._arrays(tree) if tree.loops else self._scalar(tree.statement)
            case _:
                raise AssertionError(f"a tree of another back end: {tree}")

    def _for(self, tree: For) -> list[ast.stmt]:
        start, stop = self.scope.index(tree.axis.start), self.scope.index(tree.axis.stop)
        outer, compute = self.serial, self.scope.compute
        self.serial = (*outer, tree.axis)
        self.scope.compute = ScalarEmitter(self.scope, self.plan.name, self.serial).value
        body = self.trees(tree.body)
        self.serial, self.scope.compute = outer, compute
        statement = loop(self.scope.variable(tree.axis.var), start, stop, body)
        self.scope.forget(tree.axis.var)
        set_span([statement], tree.axis.span)
        return [statement]

    def _within(self, axes: Sequence[Axis]) -> list[ast.expr]:
        """Conditions that an iteration of the enclosing loops is within the bounds of `axes`."""
        return [self.scope.truth(test) for test in tests_within(axes, self.serial)]

    def _scalar(self, statement: Statement) -> list[ast.stmt]:
        axes = [a for a in statement.axes if any(a.var is s.var for s in self.serial)]
        emitter = ScalarEmitter(self.scope, self.plan.name, axes)
        tests = self._within(statement.axes)
        match statement:
            case Assignment():
                nonempty = self._nonempty(a for a in statement.axes if a not in axes)
                lines = emitter.statement(statement, [*tests, *nonempty])
                set_span(lines, statement.span)
                return lines
            case Compound(items=items):
                lines = emitter.items(items)
                return [when(both(tests), lines)] if tests else lines

    def _nonempty(self, axes: Iterable[Axis], *, always: bool = False) -> list[ast.expr]:
        """Conditions that axes are not empty.

        Unless `always`, only for axes whose extent may be negative.
        """
        tested = (a for a in axes if always or not self.scope.is_not_negative(a.extent))
        conditions = (nonempty_condition(a, self.scope.shape_vars) for a in tested)
        return [self.scope.truth(test) for test in conditions if test is not None]

    def _arrays(self, run: Run) -> list[ast.stmt]:
        """The lines that execute all iterations of a run at once."""
        if run in self.row_products.omitted:
            return []
        run = self.row_products.contractions.get(run, run)
        statement = run.statement
        serial = {a.var for a in self.serial}
        free = [a for a in statement.axes if a.var not in serial]
        always = self._may_stop(run, free)
        axes = [a for a in free if a.var not in self.proof]
        iterated = [a for a in run.over if a.var not in self.proof]
        over = self._nonempty(iterated, always=always or keeps_negative_zero(run))
        tests = [*self._within(statement.axes), *self._nonempty(axes, always=always), *over]
        if isinstance(statement, Assignment) and statement.initial is not None and over:
            # The initialisation also runs if the reduction is empty.
            outer = tuple(a for a in statement.axes if a not in run.over)
            init = replace(
                statement,
                axes=outer,
                value=statement.initial,
                guards=(),
                combine=None,
                initial=None,
            )
            return [
                *self._arrays(Run((init,), run.axes)),
                *self._arrays(replace(run, statements=(replace(statement, initial=None),))),
            ]
        lines = self._lines(run)
        span = statement.span if isinstance(statement, Assignment) else None
        set_span(lines, span)
        if tests and lines:
            distinct = {ast.dump(test): test for test in tests}
            lines = [when(both(distinct.values()), lines)]
            failing = [a.span for a in statement.axes if a.may_fail()]
            set_span(lines, failing[0] if len(failing) == 1 else span)
        return lines

    def _may_stop(self, run: Run, axes: Sequence[Axis]) -> bool:
        """True if a run may stop the program before its first iteration."""
        arrays = self._emitter(axes, run.statement)
        if any(a.buffer in self.plan.views or arrays.is_unproved(a) for a in accesses(run)):
            return True
        exprs = expressions_of(run.statement)
        return any(ops.may_divide_by_zero(node) for e in exprs for node in walk(e))

    def _lines(self, run: Run) -> list[ast.stmt]:
        statement = run.statement
        match run.idiom:
            case ArgExtreme() as extreme:
                return self._arg_extreme(run, extreme)
            case _:
                assert isinstance(statement, Assignment)
        if statement.target in self.form.unused:
            return []
        match run.idiom:
            case Contraction() as product:
                return self._contract(run, statement, product)
            case Scan() as scan:
                return self._scan(run, statement, scan)
            case _ if run.over:
                return self._reduce(run, statement)
            case _ if run.ordered:
                return self._scatter(statement, run.ordered, statement.update)
            case _:
                return self._map(statement, run.axes)

    def _emitter(self, layout: Sequence[Axis], statement: Statement) -> ArrayEmitter:
        span = statement.span if isinstance(statement, Assignment) else None
        bounds = {a.var: a for a in statement.axes}
        outer = [bounds.get(a.var, a) for a in self.serial]
        return ArrayEmitter(self.scope, self.plan.name, layout, outer, self.rows, self.proof, span)

    def _reads(self, statement: Assignment) -> Sequence[BufferLoad] | None:
        """The loads of the stored elements; None if other elements of the target are read."""
        target, indices = statement.target, statement.indices
        memory = self.plan.root(target)
        count = sum(self.plan.root(r.buffer) is memory for r in statement.reads)
        same = {
            load
            for load in loads(statement.value)
            if (load.buffer is target or self.plan.shared.get(load.buffer) is memory)
            and all(x is y for x, y in zip(load.indices, indices, strict=True))
        }
        return [*same] if len(same) == count else None

    def _map(self, statement: Assignment, axes: tuple[Axis, ...]) -> list[ast.stmt]:
        source = self.plan.reshaped.get(statement.target)
        if source is not None:
            shape = tuple(extent(self.scope, size) for size in statement.target.shape)
            node = call(attribute(self.scope.buffer(source), "reshape"), shape)
            return [assign(self.scope.buffer(statement.target), node)]
        layout = layout_of(statement, axes, ())
        arrays = self._emitter(layout, statement)
        inside = arrays.is_inside(statement.target, statement.indices)
        if inside and self._is_copy_in_place(statement):
            return []
        if statement.guards and not inside:
            # If the guards do not hold, the indices may be out of bounds.
            return self._scatter(statement, axes, None)
        out = self._output(arrays, statement)
        mask = arrays.restrict(statement.guards)
        if mask is None:
            arrays.store(statement.value, out)
        else:
            arrays.masked(statement.value, mask, out)
        return self._if_invariant_guards(statement, arrays)

    def _if_invariant_guards(self, statement: Assignment, arrays: ArrayEmitter) -> list[ast.stmt]:
        """The lines of `arrays` under the guards that are loop-invariant."""
        invariant, _ = arrays.split_guards(statement.guards)
        if not invariant:
            return arrays.lines
        return [when(both(arrays.scalars.value(g) for g in invariant), arrays.lines)]

    def _is_copy_in_place(self, statement: Assignment) -> bool:
        """True if the statement copies a buffer to the same memory, element for element."""
        match statement.value:
            case BufferLoad(buffer=buffer, indices=indices) if not statement.guards:
                shared, target = self.plan.shared, statement.target
                pairs = zip(indices, statement.indices, strict=False)
                return shared.get(buffer, buffer) is shared.get(target, target) and all(
                    a is b for a, b in pairs
                )
            case _:
                return False

    def _output(self, arrays: ArrayEmitter, statement: Assignment) -> Output:
        return arrays.output(statement.target, statement.indices, self._reads(statement))

    def _reduce(self, run: Run, statement: Assignment) -> list[ast.stmt]:
        update = statement.update
        assert update is not None
        inside = self._emitter(run.axes, statement)
        if statement.guards and not inside.is_inside(statement.target, statement.indices):
            # If the guards do not hold, the indices may be out of bounds.
            return self._scatter(statement, run.loops, update)
        layout = layout_of(statement, run.axes, run.over)
        arrays = self._emitter(layout, statement)
        mask = arrays.restrict(statement.guards)
        search = run.idiom if isinstance(run.idiom, Search) else None
        first = searched_condition(run) if mask is None and layout[-1] in run.over else None
        if search is not None:
            first = search.values
        node = arrays.broadcast(update.operand if first is None else first)
        spatial = [a for a in layout if a in run.axes]
        over = [
            n - len(layout) if len(layout) > 1 else 0 for n, a in enumerate(layout) if a in run.over
        ]
        target = self._emitter(spatial, statement)
        out = self._output(target, statement)
        arrays.lines += target.lines
        combine = ufunc_name(update.combine, statement.target.dtype)
        axis: Code = None if not spatial else over[0] if len(over) == 1 else tuple(over)
        keywords: dict[str, Code] = {"axis": axis}
        if not spatial and len(layout) == 1:
            keywords = {}
        initial = statement.initial
        folded = isinstance(initial, (IntImm, FloatImm)) or self._is_size(initial)
        start = initial
        dtype = statement.target.dtype
        if not folded and (
            update.combine in ("min", "max") or (update.combine == "add" and dtype.is_float)
        ):
            start = reduction_identity(update.combine, dtype)
        if isinstance(start, (IntImm, FloatImm)):
            keywords["initial"] = literal(start, typed=start.dtype.numpy().isbuiltin != 1)
        elif isinstance(start, Var) and folded:
            keywords["initial"] = self.scope.index(start)
        if mask is not None:
            keywords["where"] = mask
        if search is not None:
            function = "np.argmax" if search.is_maximum else "np.argmin"
            find = call("rt.first_extreme", function, node, over[0], keywords["initial"], out.node)
            return [*arrays.lines, do(find)]
        if first is not None:
            arrays.lines.append(do(call("rt.first_true", node, keywords["initial"], out.node)))
            return arrays.lines
        reducing: Callable[..., ast.Call] = partial(call, f"{combine}.reduce")
        if self._is_repeated(update.operand, run.over, layout):
            reducing = partial(call, "rt.repeated", path(combine))
        if initial is None:
            reduced = reducing(node, **keywords, dtype=dtype_name(statement.target.dtype))
            arrays.lines.append(do(call(combine, out.node, reduced, out=out.node)))
            return self._if_invariant_guards(statement, arrays)
        arrays.lines.append(do(reducing(node, **keywords, out=out.node)))
        if not folded:
            arrays.lines += self._combined(spatial, statement, update.combine, initial, out)
        return arrays.lines

    def _is_repeated(self, operand: PrimExpr, over: Sequence[Axis], layout: Sequence[Axis]) -> bool:
        """True if a reduction may have very many more elements than there are in memory."""
        if all(mentions(operand, {axis.var}) for axis in over):
            return False
        count = math.prod((axis.extent for axis in layout), start=as_poly(1)).constant
        return count is None or count > NumPy.MOST_REDUCED

    def _is_size(self, value: PrimExpr | None) -> bool:
        """True if `value` is a shape variable of NumPy's default integer datatype."""
        return isinstance(value, Var) and value in self.scope.shape_vars and value.dtype == INT64

    def _combined(
        self,
        spatial: Sequence[Axis],
        statement: Assignment,
        combine: Combine,
        other: PrimExpr,
        out: Output,
    ) -> list[ast.stmt]:
        """Lines that combine the output with another value for each element."""
        arrays = self._emitter(spatial, statement)
        value = arrays.compute(other)
        ufunc = ufunc_name(combine, statement.target.dtype)
        arrays.lines.append(do(call(ufunc, out.node, value.node, out=out.node)))
        return arrays.lines

    def _contract(self, run: Run, statement: Assignment, product: Contraction) -> list[ast.stmt]:
        emitter: Callable[[Sequence[Axis]], ArrayEmitter]
        emitter = lambda axes: self._emitter(axes, statement)  # noqa: E731
        writer = ContractionEmitter(self.scope, emitter, run, statement, product)
        initial = statement.initial
        zero = isinstance(initial, (IntImm, FloatImm)) and initial.value == 0
        *before, last = writer.lines(accumulate=initial is None)
        lines = [last]
        if initial is not None and not zero:
            spatial = writer.spatial
            target = self._emitter(spatial, statement)
            out = self._output(target, statement)
            lines += self._combined(spatial, statement, "add", initial, out)
        if not product.regrouped:
            return [*before, *lines]
        count = math.prod((a.extent for a in run.over), start=as_poly(1))
        test = call("rt.stays_finite", self.scope.index(count), *writer.values)
        return [*before, when(test, lines, self._reduce(run, statement))]

    def _scan(self, run: Run, statement: Assignment, scan: Scan) -> list[ast.stmt]:
        [axis] = run.ordered
        layout = layout_of(statement, run.loops, ())
        arrays = self._emitter(layout, statement)
        target, indices = statement.target, statement.indices
        out = arrays.output(target, indices, ())
        arrays.store(scan.update.operand, out)
        others = [a for a in layout if a is not axis]
        start = {axis.var: ops.cast_to(axis.start, axis.var.dtype)}
        first = self._emitter(others, statement)
        element = first.output(target, [substitute(i, start) for i in indices])
        before = first.compute(substitute(scan.before, start))
        ufunc = UFUNCS[scan.update.combine]
        first.lines.append(do(call(ufunc, before.node, element.node, out=element.node)))
        kind = dtype_name(target.dtype)
        along = layout.index(axis)
        accumulate = call(f"{ufunc}.accumulate", out.node, axis=along, dtype=kind, out=out.node)
        lines = [*arrays.lines, *first.lines, do(accumulate)]
        test = nonempty_condition(axis, self.scope.shape_vars)
        return lines if test is None else [when(self.scope.truth(test), lines)]

    def _scatter(
        self, statement: Assignment, loops: tuple[Axis, ...], update: Update | None
    ) -> list[ast.stmt]:
        """Stores at computed indices, in order; accumulations if there is an update."""
        arrays = self._emitter(loops, statement)
        mask = arrays.restrict(statement.guards)
        stored = update.operand if update else statement.value
        value = arrays.typed(stored, arrays.compute(stored))
        store = BufferLoad(statement.target, statement.indices)
        count = trailing_axes(store, loops) if mask is None else 0
        axes, rank = loops[: len(loops) - count], len(statement.indices) - count
        inner = arrays.over(axes) if count else arrays
        indices = arrays.present(statement.target, statement.indices)
        nodes = [inner.compute(i).node for i in indices[:rank]]
        arrays.lines += inner.lines if count else []
        name = self.scope.buffer(statement.target)
        shape = tuple(self.scope.index(a.extent) for a in axes)
        combine = update.combine if update else None
        ufunc: Code = ufunc_name(combine, statement.target.dtype) if combine else None
        where = title(self.plan.name, statement.target)
        arrays.lines.append(
            do(call("rt.scatter", name, tuple(nodes), value.node, shape, ufunc, mask, where))
        )
        return self._if_invariant_guards(statement, arrays)

    def _arg_extreme(self, run: Run, extreme: ArgExtreme) -> list[ast.stmt]:
        arrays = self._emitter(run.loops, run.statement)
        node = arrays.broadcast(extreme.operand)
        target = self._emitter(run.axes, run.statement)
        best, arg = (target.output(a.buffer, a.indices) for a in (extreme.best, extreme.arg))
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
        if order.by_position:
            keywords["by_position"] = True
        name = "rt.argmax" if order.maximum else "rt.argmin"
        search = do(call(name, node, best.node, arg.node, **keywords))
        return [*arrays.lines, *target.lines, search]

    def _tile(self, tile: Tile) -> list[ast.stmt]:
        """An inner function over a block, which the runtime calls for all blocks."""
        name = self.scope.names.fresh("rows")
        low, high = as_poly(tile.low), as_poly(tile.high)
        empty = self.scope.names.fresh("empty")
        params = [*map(self.scope.variable, (tile.low, tile.high)), empty]
        outer = dict(self.rows), dict(self.proof), dict(self.scope.buffers)
        body: list[ast.stmt] = []
        for buffer, row in tile.rows.items():
            if buffer in self.row_products.unused:
                continue
            owner = self.plan.shared.get(buffer, buffer)
            if owner in self.form.unused:
                continue
            if owner in self.rows:
                self.scope.buffers[buffer] = self.scope.buffer(owner)
                self.rows[buffer] = self.rows[owner]
                continue
            rows = Rows(row.axis, low + row.offset, high - low)
            body.append(block_rows(self.scope, owner, rows, empty if owner in tile.local else None))
            self.scope.buffers[buffer] = self.scope.buffer(owner)
            self.rows[owner] = self.rows[buffer] = rows
        parts: list[Part] = []
        for run in runs(tile.body):
            [blocked] = [a.var for a in run.loops if a.start is tile.low]
            self.proof = {**outer[1], blocked: replace(tile.axis, var=blocked)}
            if is_part(run, tile):
                assert isinstance(run.statement, Assignment)
                parts.append(part_of(self.scope, run.statement, tile))
                body += parts[-1].memory
            body += self._arrays(run)
        self.rows, self.proof, self.scope.buffers = outer
        bounds = [self.scope.index(tile.axis.start), self.scope.index(tile.axis.stop)]
        gaps = [ops.cast_to(size.expr(), INT64) for size in gap_bytes(tile, self.plan)]
        sizes = [self.scope.index(size) for size in (row_bytes(tile, self.plan), row_work(tile))]
        sizes += [self.scope.index(reduce(ops.minimum, gaps))] if gaps else []
        products = [r for r in runs(tile.body) if is_product(r)]
        # BLAS threads divide products without a batch.
        of_batch = not parts and all(
            a in batch_axes(r) for r in products for a in r.axes if a.start is tile.low
        )
        how: dict[str, Code] = {"of_batch" if of_batch else "by_blas": True} if products else {}
        how |= {"once": True} if runs_once(tile, self.plan) else {}
        how |= {"regular": True} if parts else {}
        blocks = do(call("rt.blocks", name, *bounds, *sizes, **how))
        before, after = [p.before for p in parts], [p.after for p in parts]
        return [*before, function(name, params, body), blocks, *after]


_BLOCKS = (ast.For, ast.While, ast.With, ast.Try)
_MAX_DEPTH: Final = 12
"""Python permits 20 nested blocks; the checks and contexts around loops need some."""


def flatten_deep_loops(statements: Iterable[ast.stmt]) -> None:
    """Flatten perfectly nested loops in statements that are nested too deeply."""
    for statement in statements:
        if _depth(statement) > _MAX_DEPTH:
            for node in [*ast.walk(statement)]:
                if isinstance(node, ast.For):
                    _flatten(node)


def _depth(root: ast.stmt) -> int:
    maximum, stack = 0, [(root, 0)]
    while stack:
        statement, outer = stack.pop()
        depth = outer + isinstance(statement, _BLOCKS)
        maximum = max(maximum, depth)
        stack += [(inner, depth) for inner in _children(statement)]
    return maximum


def _children(statement: ast.stmt) -> Iterator[ast.stmt]:
    return (node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt))


def _flatten(outer: ast.For) -> None:
    """Merge into a loop the perfectly nested loops inside it whose ranges are invariant.

    A loop with a `break` is not merged, as its outer loops continue.
    """
    targets, ranges = [outer.target], [outer.iter]
    while True:
        match outer.body:
            case [ast.For(target=ast.Name() as target, iter=inner, body=body, orelse=[])]:
                bound = {name.id for name in targets if isinstance(name, ast.Name)}
                if not _is_invariant(inner, bound) or _breaks(body):
                    break
                targets.append(target)
                ranges.append(inner)
                outer.body = body
            case _:
                break
    if len(targets) > 1:
        outer.target = ast.Tuple([*targets], ast.Store())
        outer.iter = call("rt.grid", *ranges)


_INVARIANT = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)


def _is_invariant(expr: ast.expr, bound: Container[str]) -> bool:
    """True if `expr` is invariant in loops over `bound`, and can be evaluated before them.

    Loads may change between iterations, and hoisted divisions may fail for an empty loop.
    """
    match expr:
        case ast.Call(func=ast.Name(id="range" | "min" | "max"), args=args, keywords=[]):
            return all(_is_invariant(arg, bound) for arg in args)
        case _:
            return all(
                isinstance(node, _INVARIANT)
                and not isinstance(node, (ast.FloorDiv, ast.Mod))
                and not (isinstance(node, ast.Name) and node.id in bound)
                for node in ast.walk(expr)
            )


def _breaks(body: Iterable[ast.stmt]) -> bool:
    """True if a loop with this body may end by a `break`."""
    inside = preorder(body, lambda s: () if isinstance(s, (ast.For, ast.While)) else _children(s))
    return any(isinstance(statement, ast.Break) for statement in inside)


def layout_of(
    statement: Assignment, axes: Sequence[Axis], over: Sequence[Axis]
) -> tuple[Axis, ...]:
    """The order of axes in the arrays that a statement computes.

    It is the order of the first load that uses all axes, if the target has the same; otherwise
    that of the target, with the reduction axes last.
    """
    all_axes = {a.var: a for a in (*axes, *over)}
    target = _order(statement.indices, all_axes)
    for load in loads(statement.value):
        order = _order(load.indices, all_axes)
        if len(order) == len(all_axes) and [a for a in order if a in target] == target:
            return tuple(all_axes[v] for v in order)
    rest = [a for a in axes if a.var not in target]
    return (*(all_axes[v] for v in target), *rest, *over)


def _order(indices: Sequence[PrimExpr], axes: Mapping[Var, Axis]) -> list[Var]:
    order: list[Var] = []
    for index in indices:
        linear = affine(index, axes.keys())
        inside = list(linear.coefficients) if linear is not None else []
        inside.sort(key=lambda v: list(axes).index(v))
        order += [v for v in inside if v not in order]
    return order
