"""A kernel under transformation: its loops and blocks, their positions, and their replacement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from typing_extensions import override

from relaxpy.errors import ScheduleError
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_map import iter_map_simplify
from relaxpy.ir.arith.tvm.iter_reader import analyzer_of
from relaxpy.ir.core.dtype import BOOL
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children, preorder
from relaxpy.ir.tir import ops, substitution
from relaxpy.ir.tir.analysis.regions import with_regions
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc, kernel_faults
from relaxpy.ir.tir.stmt import (
    Block,
    BlockRealize,
    BufferStore,
    For,
    ForKind,
    SeqStmt,
    Stmt,
    stmt_seq,
)
from relaxpy.support.dataclass import replace


def refused(message: str, node: Stmt | None = None) -> ScheduleError:
    """The error of a primitive whose condition does not hold at `node`."""
    return ScheduleError(message, span=getattr(node, "span", None))


class State:
    """A kernel, the parent of each statement, and where replaced blocks are now.

    Loops are known by their variables, which are unique, and blocks by the node, which `renewed`
    maps to its replacement.
    """

    def __init__(self, func: PrimFunc) -> None:
        body = func.body
        if not (isinstance(body, BlockRealize) and not body.iter_values):
            root = Block((), (), (), "root", body)
            body = BlockRealize((), ops.const(True, BOOL), root)
            func = func.with_body(body)
        self.func = func
        self.renewed: dict[Block, Block] = {}
        self._index()

    def _index(self) -> None:
        self._parents: dict[int, Stmt | None] = {id(self.func.body): None}
        self._loops: dict[Var, For] = {}
        self._order: dict[int, int] = {}
        stack: list[Stmt] = [self.func.body]
        while stack:
            node = stack.pop()
            self._order[id(node)] = len(self._order)
            if isinstance(node, For):
                self._loops[node.loop_var] = node
            below = statements(node)
            for child in below:
                self._parents[id(child)] = node
            stack += reversed(below)

    def copy(self) -> State:
        """A copy; changes of it do not affect this one."""
        other = object.__new__(State)
        vars(other).update(vars(self))
        return other

    @override
    def __getstate__(self) -> tuple[PrimFunc, dict[Block, Block]]:
        """The state for a pickle, without addresses of statements."""
        return self.func, self.renewed

    def __setstate__(self, state: tuple[PrimFunc, dict[Block, Block]]) -> None:
        self.func, self.renewed = state
        self._index()

    # --- positions

    @property
    def root(self) -> Block:
        """The outermost block."""
        assert isinstance(self.func.body, BlockRealize)
        return self.func.body.block

    def is_here(self, node: Stmt) -> bool:
        """True if `node` is part of the kernel now."""
        return id(node) in self._parents

    def current(self, block: Block) -> Block | None:
        """The block that replaced `block`, or None if there is none."""
        while not self.is_here(block):
            newer = self.renewed.get(block)
            if newer is None:
                return None
            block = newer
        return block

    def loop(self, var: Var) -> For | None:
        """The loop of a variable, or None."""
        return self._loops.get(var)

    def parent(self, node: Stmt) -> Stmt | None:
        """The statement that has `node` as a child."""
        return self._parents[id(node)]

    def ancestors(self, node: Stmt) -> Iterator[Stmt]:
        """Visit the statements that enclose `node`, innermost first."""
        above = self.parent(node)
        while above is not None:
            yield above
            above = self.parent(above)

    def position(self, node: Stmt) -> int:
        """The index of `node` in program order."""
        return self._order[id(node)]

    def realize(self, block: Block) -> BlockRealize:
        """The statement that executes `block`."""
        realize = self.parent(block)
        assert isinstance(realize, BlockRealize)
        return realize

    def scope(self, node: Stmt) -> Block:
        """The innermost block that encloses `node`. Errors: ScheduleError for the root."""
        for above in self.ancestors(node):
            if isinstance(above, Block):
                return above
        raise refused("the root block is not inside a block", node)

    def loops(self, node: Stmt) -> list[For]:
        """The loops that enclose `node` inside of its scope, outermost first."""
        found: list[For] = []
        for above in self.ancestors(node.block if isinstance(node, BlockRealize) else node):
            if isinstance(above, Block):
                break
            if isinstance(above, For):
                found.append(above)
        return found[::-1]

    def blocks(self) -> Iterator[Block]:
        """Visit all blocks in program order."""
        return (node for node in below(self.func.body) if isinstance(node, Block))

    # --- replacement

    def renew(self, old: Block, new: Block) -> None:
        """Replace a block by another one."""
        self.replace({old: new}, {old: new})

    def allocate(self, scope: Block, *buffers: Buffer) -> None:
        """Let a block, or its current replacement, allocate buffers."""
        current = self.current(scope)
        assert current is not None
        self.renew(current, replace(current, alloc_buffers=(*current.alloc_buffers, *buffers)))

    def replace(
        self, changes: Mapping[Stmt, Stmt | None], renewed: Mapping[Block, Block] | None = None
    ) -> None:
        """Replace statements, and remove those that become None and statements that become empty.

        `renewed` maps blocks to their replacements below replaced statements.
        """
        newer = dict(renewed or {})
        table = {id(old): new for old, new in changes.items()}

        def change(node: Node) -> Node:
            if not isinstance(node, Stmt):
                return node
            if id(node) in table:
                new = table[id(node)]
                if new is None:
                    raise _RemovedError
                return new
            if isinstance(node, SeqStmt):
                kept = [new for child in node.seq for new in attempt(child)]
                if not kept:
                    raise _RemovedError
                return node if tuple(kept) == node.seq else stmt_seq(*kept)
            rebuilt = map_children(change, node)
            if isinstance(node, Block) and isinstance(rebuilt, Block) and rebuilt is not node:
                newer[node] = rebuilt
            return rebuilt

        def attempt(child: Stmt) -> list[Stmt]:
            try:
                new = change(child)
            except _RemovedError:
                return []
            assert isinstance(new, Stmt)
            return [new]

        body = attempt(self.func.body)
        if not body:
            raise refused("nothing would be left of the kernel")
        self.renewed = self.renewed | newer
        self.func = self.func.with_body(body[0])
        self._index()

    def become(self, func: PrimFunc, renewed: Mapping[Block, Block]) -> None:
        """Continue with another kernel, in which `renewed` maps blocks to their successors."""
        self.renewed = self.renewed | dict(renewed)
        self.func = func
        self._index()

    def check(self) -> None:
        """Errors: ScheduleError if a variable is used outside of its scope now."""
        faults = kernel_faults(self.func)
        if faults:
            raise ScheduleError(faults[0])


class _RemovedError(Exception):
    """A statement that became empty."""


def statements(node: Stmt) -> list[Stmt]:
    """The statements directly inside of `node`."""
    return [child for child in children(node) if isinstance(child, Stmt)]


def below(node: Stmt) -> Iterator[Stmt]:
    """Visit a statement and all inside it, outer before inner."""
    return preorder([node], statements)


def outermost_blocks(node: Stmt) -> list[BlockRealize]:
    """The executions of blocks in `node` that are not inside another one, in order."""
    if isinstance(node, BlockRealize):
        return [node]
    return [realize for child in statements(node) for realize in outermost_blocks(child)]


def child_blocks(node: Stmt) -> list[BlockRealize]:
    """The blocks directly inside of a block, or a loop."""
    match node:
        case BlockRealize(block=block):
            return child_blocks(block)
        case Block(init=init, body=body):
            return [*(outermost_blocks(init) if init is not None else ()), *outermost_blocks(body)]
        case _:
            return outermost_blocks(node)


def only_block(loop: For) -> Block:
    """The block in a loop. Errors: ScheduleError if there is not one."""
    blocks = outermost_blocks(loop)
    if len(blocks) != 1:
        raise refused(f"there are {len(blocks)} blocks in loop {loop.loop_var.name}", loop)
    return blocks[0].block


def loops_between(node: Stmt, target: Stmt) -> list[For]:
    """The loops from `node`, included, down to `target`, outermost first."""

    def path(at: Stmt) -> list[For] | None:
        if at is target:
            return []
        for child in statements(at):
            below = path(child)
            if below is not None:
                return [at, *below] if isinstance(at, For) else below
        return None

    found = path(node)
    assert found is not None
    return found


def mapped(
    node: Stmt,
    change: Callable[[PrimExpr], PrimExpr],
    renewed: dict[Block, Block],
    *,
    refresh: bool = False,
) -> Stmt:
    """`node` with `change` applied to its expressions; blocks are entered in `renewed`.

    With `refresh`, the regions of changed blocks are inferred again.
    """

    def visit(item: Node) -> Node:
        if isinstance(item, PrimExpr):
            return change(item)
        if item._variable:
            return item
        new = map_children(visit, item)
        if isinstance(item, Block) and new is not item:
            assert isinstance(new, Block)
            new = renewed[item] = refreshed(new) if refresh else new
        return new

    result = visit(node)
    assert isinstance(result, Stmt)
    return result


def refreshed(block: Block) -> Block:
    """`block` with the reads and writes that its body has; a root keeps its own."""
    return with_regions(block) if block.reads or block.writes or block.iter_vars else block


def substituted(node: Stmt, values: Mapping[Var, PrimExpr], renewed: dict[Block, Block]) -> Stmt:
    """`node` with variables replaced by values; blocks are entered in `renewed`."""
    return mapped(node, lambda expr: substitution.substitute(expr, values), renewed)


def domains_of(loops: Sequence[For]) -> dict[Var, Range]:
    """The range of the variable of each loop."""
    return {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}


def iter_domains(block: Block) -> dict[Var, Range]:
    """The domain of each variable of a block."""
    return {it.var: it.dom for it in block.iter_vars if it.dom is not None}


def with_simple_bindings(
    node: Stmt, around: Sequence[For], predicate: PrimExpr | None = None, *, keep_unit_iters: bool
) -> Stmt:
    """Simplify the values of the outermost blocks in `node` below the loops `around`.

    Each of the blocks also gets `predicate`, unchanged; without one, theirs are simplified.
    """

    def visit(item: Stmt, loops: Sequence[For]) -> Stmt:
        match item:
            case BlockRealize(iter_values=values, predicate=condition, block=block):
                full = condition if predicate is None else ops.all_of(condition, predicate)
                simple = iter_map_simplify(
                    values, domains_of(loops), full, simplify_trivial_iterators=not keep_unit_iters
                )
                cast = [ops.cast_to(v, o.dtype) for v, o in zip(simple, values, strict=True)]
                if predicate is None:
                    full = analyzer_of(domains_of(loops)).simplify(full)
                return BlockRealize(tuple(cast), full, block, span=item.span)
            case For():
                inner = (*loops, item)
            case _:
                inner = tuple(loops)

        def below(child: Node) -> Node:
            return visit(child, inner) if isinstance(child, Stmt) else child

        return map_children(below, item)

    return visit(node, around)


def nested(loops: Sequence[For], body: Stmt) -> Stmt:
    """Loops like `loops` around `body`, each in the one before."""
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return body


def serial_nest(loops: Iterable[tuple[Var, Range]], body: Stmt) -> Stmt:
    """Serial loops, by their variables and ranges, around `body`."""
    for var, domain in reversed(list(loops)):
        body = For(var, domain.min, domain.extent, ForKind.SERIAL, body)
    return body


def loops_like(
    loops: Sequence[For], names: dict[Var, Var], body: Stmt, *, same_kinds: bool = False
) -> Stmt:
    """Loops like `loops` with other variables, serial unless they are bound to threads.

    With `same_kinds`, those that are parallel, vectors or unrolled are so, too.
    """
    for loop in reversed(loops):
        index = loop.thread_binding if loop.kind == ForKind.THREAD_BINDING else None
        body = For(
            names[loop.loop_var],
            substitution.substitute(loop.min, names),
            substitution.substitute(loop.extent, names),
            ForKind.SERIAL if index is None and not same_kinds else loop.kind,
            body,
            None if index is None else replace(index, var=index.var.renamed(index.var.name)),
        )
    return body


def spatial_block(
    name: str, sizes: Sequence[PrimExpr], store: Callable[[Sequence[Var]], BufferStore]
) -> Block:
    """A block of the store that a function of its variables, v0 and so on, returns."""
    variables = [Var(f"v{k}", size.dtype) for k, size in enumerate(sizes)]
    iters = (
        IterVar(Range(size), var, IterVarKind.DataPar)
        for var, size in zip(variables, sizes, strict=True)
    )
    return with_regions(Block(tuple(iters), (), (), name, store(variables)))


def copied_block(
    name: str,
    iters: Sequence[tuple[IterVar, PrimExpr]],
    body: Stmt,
    predicate: PrimExpr,
    loops: Sequence[For],
    suffix: str,
) -> tuple[Block, Stmt]:
    """A block that runs `body` for the same values of `iters`, and loops of its own for it.

    `iters` are block variables with their values; the names of the loops end in `suffix`.
    """
    names = {at.loop_var: at.loop_var.renamed(f"{at.loop_var.name}{suffix}") for at in loops}
    copies = {it.var: it.var.renamed(it.var.name) for it, _ in iters}
    own = tuple(IterVar(it.dom, copies[it.var], it.iter_type) for it, _ in iters)
    block = with_regions(Block(own, (), (), name, substitution.substitute(body, copies)))
    values = tuple(substitution.substitute(value, names) for _, value in iters)
    realize = BlockRealize(values, substitution.substitute(predicate, names), block)
    return block, loops_like(loops, names, realize, same_kinds=True)


def open_tests(analyzer: Analyzer, index: PrimExpr, domain: Range) -> list[PrimExpr]:
    """The unproved bounds conditions of `index` in `domain`."""
    stop = domain.min + domain.extent
    tests = index >= domain.min, index < stop
    return [test for test in tests if not analyzer.can_prove(test)]


def is_inside(analyzer: Analyzer, indices: Sequence[PrimExpr], box: Sequence[Range]) -> bool:
    """True if indices are known to be in a box."""
    pairs = zip(indices, box, strict=True)
    return not any(open_tests(analyzer, index, domain) for index, domain in pairs)


def is_shared(buffer: Buffer, loop: For) -> bool:
    """True if the threads of a loop use the same buffer, though each runs one iteration."""
    if loop.kind != ForKind.THREAD_BINDING or loop.thread_binding is None:
        return False
    scope, tag = buffer.scope().partition(".")[0], loop.thread_binding.thread_tag
    return tag == "threadIdx.x" if scope == "warp" else scope == "shared" and "block" not in tag
