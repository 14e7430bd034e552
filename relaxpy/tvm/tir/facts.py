"""Facts about kernels: regions of blocks, uses of variables, effects, and numbers of operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from typing_extensions import override

from relaxpy.errors import MisuseError, WellFormedError, check_type
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rename, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.analysis.regions import Accesses, Interval, regions_of, union
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc, defined_variables, kernel_faults, undefined_in
from relaxpy.support.entry import user_facing

Regions = list[BufferRegion]

# --- regions


class _Detected(Accesses):
    """Collects the accesses of buffers in a table, and those through pointers as opaque ones."""

    def __init__(self, buffers: Mapping[Var, Buffer]) -> None:
        super().__init__(buffers)
        self.buffers = buffers
        self.opaque: dict[Buffer, None] = {}

    @override
    def statement(self, node: stmt.Stmt) -> None:
        if isinstance(node, stmt.Evaluate) and isinstance(node.value, Var):
            self.expression(node.value)
        super().statement(node)

    @override
    def access(
        self, table: dict[Buffer, list[Interval]], buffer: Buffer, sets: Iterable[Interval]
    ) -> None:
        source = self.views[buffer].buffer if buffer in self.views else buffer
        if source.data in self.buffers:
            super().access(table, buffer, sets)

    @override
    def pointer(self, data: Var, mask: int) -> None:
        buffer = self.buffers[data]
        whole = [Range(size) for size in buffer.shape]
        if mask == Buffer.READ:
            self.access(self.reads, buffer, map(self.covered, whole))
        elif mask == Buffer.WRITE:
            self.access(self.writes, buffer, map(self.covered, whole))
        else:
            self.opaque[buffer] = None


def _detected(block: stmt.Block, buffer_var_map: Mapping[Var | Buffer, Buffer]) -> _Detected:
    check_type(block, stmt.Block, "expected a block")
    views = (match.buffer for match in block.match_buffers)
    found = _Detected({b.data: b for b in (*buffer_var_map.values(), *views)})
    for match in block.match_buffers:
        found.views[match.buffer] = match.source
    if block.init is not None:
        found.statement(block.init)
    found.statement(block.body)
    return found


def _collected(
    found: _Detected, block: stmt.Block, without: set[Buffer]
) -> tuple[Regions, Regions]:
    initialised = set(found.writes) if block.init is not None else set()
    reads = {b: sets for b, sets in found.reads.items() if b not in initialised | without}
    writes = {b: sets for b, sets in found.writes.items() if b not in without}
    return list(regions_of(reads)), list(regions_of(writes))


def _opaque(found: _Detected) -> Regions:
    regions = []
    for buffer in found.opaque:
        view = found.views.get(buffer)
        if view is None:
            regions.append(BufferRegion(buffer, tuple(Range(size) for size in buffer.shape)))
        elif view.buffer.data in found.buffers:
            regions.append(view)
    return list(_joined(regions))


def _joined(regions: Sequence[BufferRegion]) -> Iterator[BufferRegion]:
    """One region for each buffer, which has all of the regions of that buffer."""
    joined = Accesses(())
    for region in regions:
        joined.access(joined.reads, region.buffer, map(joined.covered, region.region))
    yield from regions_of(joined.reads)


@user_facing
def get_block_access_region(
    block: stmt.Block, buffer_var_map: Mapping[Var | Buffer, Buffer]
) -> list[list[BufferRegion]]:
    """The regions that a block reads, writes, and uses through pointers, as its body shows.

    The values of `buffer_var_map` are the buffers to look at, under their data or themselves.
    """
    found = _detected(block, buffer_var_map)
    return [*_collected(found, block, set()), _opaque(found)]


@user_facing
def get_block_read_write_region(
    block: stmt.Block, buffer_var_map: Mapping[Var | Buffer, Buffer]
) -> list[list[BufferRegion]]:
    """The regions that a block reads and writes; regions used through pointers are both."""
    found = _detected(block, buffer_var_map)
    opaque = _opaque(found)
    reads, writes = _collected(found, block, {region.buffer for region in opaque})
    return [reads + opaque, writes + opaque]


@user_facing
def detect_buffer_access_lca(func: PrimFunc) -> dict[Buffer, stmt.Block | stmt.For | None]:
    """The innermost block or loop that encloses all accesses of each buffer; None is the function.

    The iterations of a reduction count as one: a buffer that a block writes is used around the
    loops of its reduction.
    """
    check_type(func, PrimFunc, "expected a PrimFunc")
    places: dict[Buffer, tuple[stmt.Stmt, ...]] = {}
    views: dict[Buffer, Buffer] = {}
    data = {buffer.data: buffer for buffer in func.buffer_map.values()}

    def used(buffer: Buffer | None, around: tuple[stmt.Stmt, ...]) -> None:
        while buffer in views:
            buffer = views[buffer]
        if buffer is None:
            return
        shared = places.get(buffer)
        if shared is not None:
            pairs = zip(shared, around, strict=False)
            count = next((k for k, (a, b) in enumerate(pairs) if a is not b), None)
            around = around[: min(len(shared), len(around)) if count is None else count]
        places[buffer] = around

    def visit(node: Node, around: tuple[stmt.Stmt, ...]) -> None:
        match node:
            case stmt.BlockRealize(iter_values=values, predicate=predicate, block=block):
                for operand in (*values, predicate):
                    visit(operand, around)
                reduced = [
                    {v for v in walk(value) if isinstance(v, Var)}
                    for it, value in zip(block.iter_vars, values, strict=True)
                    if it.iter_type == tir.IterVarKind.CommReduce
                ]
                variables = set().union(*reduced)
                first = next(
                    (
                        k
                        for k, a in enumerate(around)
                        if isinstance(a, stmt.For) and a.loop_var in variables
                    ),
                    None,
                )
                visit_block(block, around, None if first is None else around[:first])
                return
            case stmt.Block():
                visit_block(node, around, None)
                return
            case stmt.For():
                visit(node.min, around)
                visit(node.extent, around)
                visit(node.body, (*around, node))
                return
            case PrimExpr():
                for part in walk(node):
                    if isinstance(part, BufferLoad):
                        used(part.buffer, around)
                    elif isinstance(part, Var):
                        used(data.get(part), around)
                return
            case stmt.BufferStore(buffer=buffer):
                used(buffer, around)
            case _:
                pass
        for child in children(node):
            if not isinstance(child, (Buffer, IterVar, Var)):
                visit(child, around)

    def visit_block(
        block: stmt.Block, around: tuple[stmt.Stmt, ...], outer: tuple[stmt.Stmt, ...] | None
    ) -> None:
        inside = (*around, block)
        data.update({buffer.data: buffer for buffer in block.alloc_buffers})
        for match in block.match_buffers:
            views[match.buffer] = match.source.buffer
            data[match.buffer.data] = match.buffer
            used(match.source.buffer, inside)
        if outer is not None:
            for region in block.writes:
                used(region.buffer, outer)
        for body in (block.init, block.body):
            if body is not None:
                visit(body, inside)

    visit(func.body, ())
    block_index = [
        loop
        for loop in walk(func.body)
        if isinstance(loop, stmt.For)
        and loop.thread_binding is not None
        and loop.thread_binding.thread_tag.startswith("blockIdx")
    ]
    found: dict[Buffer, stmt.Block | stmt.For | None] = {}
    for buffer, around in places.items():
        if buffer.scope() == "global":
            for loop in block_index:
                if loop in around:
                    around = around[: around.index(loop) + 1]
                    break
        last = around[-1] if around else None
        found[buffer] = last if isinstance(last, (stmt.Block, stmt.For)) else None
    return found


# --- variables and effects


@user_facing
def expr_deep_equal(lhs: PrimExpr, rhs: PrimExpr) -> bool:
    """True if two expressions have the same structure; variables are equal only to themselves."""
    for name, expr in ("lhs", lhs), ("rhs", rhs):
        check_type(expr, PrimExpr, f"expr_deep_equal: {name} is a scalar expression")
    return lhs is rhs or lhs.same_as(rhs)


@user_facing
def undefined_vars(node: stmt.Stmt | PrimExpr, defs: Sequence[Var] | None = None) -> list[Var]:
    """The variables that a statement or expression uses, and neither it nor `defs` defines."""
    return undefined_in(node, defs or ())


@user_facing
def verify_ssa(func: PrimFunc) -> bool:
    """True if each variable of a kernel is defined once, before its uses."""
    check_type(func, PrimFunc, "expected a PrimFunc")
    if kernel_faults(func):
        return False
    lets: dict[Var, PrimExpr] = {}
    return all(
        lets.setdefault(node.var, node.value).same_as(node.value)
        for node in walk(func.body)
        if isinstance(node, tir.Let)
    )


def _effect(func: PrimFunc) -> Node | None:
    """An effect of a kernel that is visible outside of it, or None."""
    own = {
        node.data
        for block in walk(func.body)
        if isinstance(block, stmt.Block)
        for node in block.alloc_buffers
    }
    allocations = (stmt.Allocate, stmt.AllocateConst)
    own |= {node.buffer_var for node in walk(func.body) if isinstance(node, allocations)}
    for node in walk(func.body):
        match node:
            case stmt.BufferStore(buffer=buffer) if buffer.data not in own:
                return node
            case tir.Call() if effect_of(node) == CallEffectKind.UpdateState:
                return node
            case _:
                pass
    return None


@user_facing
def is_pure_function(func: PrimFunc) -> bool:
    """True if a kernel only returns a value: it neither stores to parameters nor has effects."""
    check_type(func, PrimFunc, "expected a PrimFunc")
    return _effect(func) is None


class ImpureKernelError(WellFormedError, AssertionError):
    """A kernel has effects."""


@user_facing
def assert_pure_function(func: PrimFunc) -> bool:
    """True, if a kernel has no effects.

    Errors:
        ImpureKernelError (also AssertionError): it has.
    """
    check_type(func, PrimFunc, "expected a PrimFunc")
    effect = _effect(func)
    if effect is not None:
        name = func.attrs.get("global_symbol", "the kernel")
        raise ImpureKernelError(f"{name} is not pure: {str(effect).splitlines()[-1]}")
    return True


# --- operations

_COMPARISONS = (tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE)


class _Operations:
    """Counts the arithmetic operations on numbers by datatype; those of indices are excluded."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()

    def statement(self, node: stmt.Stmt) -> Counter[DataType]:
        match node:
            case stmt.For(loop_var=var, min=first, extent=extent, body=body):
                most = self.analyzer.const_int_bound(extent).max_value
                rng = Range.from_min_extent(first, extent)
                self.analyzer.bind(var, rng, allow_override=True)
                is_known = most < 2 ** (extent.dtype.bits - 1) - 1
                times = max(most, 0) if is_known else 1
                inner = self.statement(body)
                return Counter({dtype: count * times for dtype, count in inner.items()})
            case stmt.IfThenElse(condition=condition, then_case=yes, else_case=no):
                other: Counter[DataType] = Counter() if no is None else self.statement(no)
                return self.expression(condition) + (self.statement(yes) | other)
            case stmt.BlockRealize(block=block):
                return self.statement(block.body)
            case stmt.BufferStore(value=value):
                return self.expression(value)
            case _:
                return self.parts(node)

    def parts(self, node: stmt.Stmt) -> Counter[DataType]:
        total: Counter[DataType] = Counter()
        for child in children(node):
            if isinstance(child, stmt.Stmt):
                total += self.statement(child)
            elif isinstance(child, PrimExpr):
                total += self.expression(child)
        return total

    def expression(self, root: PrimExpr) -> Counter[DataType]:
        counts: dict[Node, Counter[DataType]] = {}
        for node in walk(root):
            if isinstance(node, (BufferLoad, *_COMPARISONS)):
                counts[node] = Counter()
            elif isinstance(node, tir.Select):
                condition, yes, no = (counts[c] for c in children(node))
                counts[node] = condition + (yes | no)
            else:
                total: Counter[DataType] = Counter()
                for child in children(node):
                    total += counts.get(child, Counter())
                if isinstance(node, tir.BinaryOpExpr):
                    total[node.dtype] += 1
                counts[node] = total
        return counts[root]


@user_facing
def estimate_tir_flops(stmt_or_mod: stmt.Stmt | IRModule) -> float:
    """The number of arithmetic operations of a statement, or of the kernels of a module.

    The attribute `estimated_flops` of a kernel overrides it. Of two branches the one with more
    operations counts, calls are none, and loops without a known limit count as one iteration.
    """
    if isinstance(stmt_or_mod, stmt.Stmt):
        return float(_Operations().statement(stmt_or_mod).total())
    check_type(stmt_or_mod, IRModule, "expected a statement or a module")
    total = 0.0
    for func in stmt_or_mod.functions.values():
        if isinstance(func, PrimFunc):
            declared = func.attrs.get("estimated_flops")
            counted = declared if isinstance(declared, (int, float)) else None
            total += estimate_tir_flops(func.body) if counted is None else counted
    return total


@user_facing
def domain_touched(
    node: stmt.Stmt, buffer: Buffer, consider_loads: bool, consider_stores: bool
) -> list[Range]:
    """For each axis, the range of the elements of `buffer` that `node` reads or writes.

    The list is empty if there is no access. Ranges may exceed the shape if a condition guards the
    accesses. An unknown range is the whole axis.

    Errors:
        MisuseError (also TypeError): `node` is not a statement, or `buffer` not a Buffer.
    """
    if not isinstance(node, stmt.Stmt) or not isinstance(buffer, Buffer):
        raise MisuseError(f"expected a statement and a Buffer, found {node!r:.30}, {buffer!r:.30}")
    accesses = _UndeclaredAccesses(())
    accesses.statement(node)
    tables = [accesses.reads] * bool(consider_loads) + [accesses.writes] * bool(consider_stores)
    regions = [table[buffer] for table in tables if buffer in table]
    if not regions:
        return []
    ranges = []
    for size, *sets in zip(buffer.shape, *regions, strict=True):
        covered = sets[0] if len(sets) == 1 else union(*sets)
        if covered is None:
            ranges.append(Range.from_min_extent(ops.const(0, size.dtype), size))
            continue
        low, high = map(simplify, covered)
        ranges.append(Range.from_min_extent(low, simplify(ops.sub(high, low) + 1)))
    return ranges


class _UndeclaredAccesses(Accesses):
    """Collects accesses from the bodies of blocks, not from their declared reads and writes."""

    @override
    def declared(self, block: stmt.Block) -> None:
        for match in block.match_buffers:
            self.views[match.buffer] = match.source
        if block.init is not None:
            self.statement(block.init)
        self.statement(block.body)


@user_facing
def renew_defs(func: PrimFunc) -> PrimFunc:
    """A copy with new variables and buffers instead of those that a kernel defines.

    Variables that the kernel only uses stay.

    Errors:
        MisuseError (also TypeError): `func` is not a PrimFunc.
    """
    if not isinstance(func, PrimFunc):
        raise MisuseError(f"expected a PrimFunc, found {type(func).__name__}", about=func)
    return rename(func, {var: var.renamed(var.name) for var in defined_variables(func)})
