"""cache_read, cache_write and set_scope: where buffers are kept, and copies of them."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import check_type
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_reader import analyzer_of
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.expr import LE, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.rewrite.stages import (
    Bodies,
    Stage,
    check_init_runs,
    check_own_elements,
    condition_outside,
    stage_in_scope,
    written_box,
)
from relaxpy.ir.tir.rewrite.state import State, domains_of, refused, serial_nest, spatial_block
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt, stmt_seq
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A position among the statements in the body of a loop or block."""

    parent: For | Block
    index: int

    def members(self) -> list[Stmt]:
        """The statements in the body."""
        body = self.parent.body
        return list(body.seq) if isinstance(body, SeqStmt) else [body]

    def insert(self, state: State, stmt: Stmt) -> None:
        """Put `stmt` at this position."""
        members = self.members()
        body = stmt_seq(*members[: self.index], stmt, *members[self.index :])
        new = replace(self.parent, body=body)
        renewed = {self.parent: new} if isinstance(self.parent, Block) else {}
        state.replace({self.parent: new}, renewed)  # type: ignore[arg-type]


def buffer_of(
    stage: Stage, which: int | str | Buffer, accessed: Sequence[BufferRegion], noun: str
) -> Buffer:
    """The buffer that a number, a name or the buffer itself means among `accessed`."""
    buffers = [region.buffer for region in accessed]
    if isinstance(which, Buffer):
        found = [buffer for buffer in buffers if buffer is which]
    elif isinstance(which, str):
        found = [buffer for buffer in buffers if buffer.name == which]
    else:
        index = ops.as_int(which)
        found = buffers[index : index + 1] if index >= 0 else []
    if not found:
        names = ", ".join(buffer.name for buffer in buffers) or "none"
        shown = which.name if isinstance(which, Buffer) else repr(which)
        raise refused(f"block {stage.name} {noun} {names}, not buffer {shown}", stage.block)
    return found[0]


def common_site(state: State, scope: Block, blocks: Sequence[Block]) -> list[For | Block]:
    """The scope and the loops around all `blocks`, outermost first."""
    chains = [[scope, *state.loops(block)] for block in blocks]
    shared: list[For | Block] = []
    for level in zip(*chains, strict=False):
        if any(node is not level[0] for node in level):
            break
        shared.append(level[0])
    return shared


def member_index(state: State, site: Site, block: Block) -> int:
    """The index of the member of a site that contains `block`."""
    around = {id(node) for node in (block, *state.ancestors(block))}
    return next(k for k, member in enumerate(site.members()) if id(member) in around)


def site_before(
    state: State, scope: Block, stages: Sequence[Stage], readers: Sequence[Stage], buffer: Buffer
) -> Site:
    """The last position after all writes of a buffer and before these of its readers.

    Errors:
        ScheduleError: there is none.
    """
    for reader in readers:
        if buffer in reader.writes:
            raise refused(f"block {reader.name} writes {buffer.name}, too", reader.block)
    writers = [s for s in stages if buffer in s.writes]
    if not writers:
        return Site(scope, 0)
    site = Site(common_site(state, scope, [s.block for s in (*writers, *readers)])[-1], 0)
    last = max(member_index(state, site, s.block) for s in writers)
    first = min(member_index(state, site, s.block) for s in readers)
    if last >= first:
        raise refused(f"there is no place after all writes of {buffer.name} and before its reads")
    return Site(site.parent, first)


def site_after(
    state: State, scope: Block, stages: Sequence[Stage], writer: Stage, buffer: Buffer
) -> Site:
    """The last position after the only writer of a buffer and before all of its readers.

    Errors:
        ScheduleError: there is none, or the buffer has other writers.
    """
    return _after(state, scope, writer, _readers_after(state, scope, stages, writer, buffer))


def _after(state: State, scope: Block, writer: Stage, readers: Sequence[Stage]) -> Site:
    """The innermost position after a writer, the last before `readers`. Errors: there is none."""
    blocks = [writer.block, *(reader.block for reader in readers)]
    site = Site(common_site(state, scope, blocks)[-1] if readers else scope, 0)
    place = member_index(state, site, writer.block)
    first = len(site.members())
    for reader in readers:
        index = member_index(state, site, reader.block)
        if index <= place:
            raise refused(
                f"no position is after block {writer.name} and before all blocks that read what it "
                f"writes: block {reader.name} shares a loop with it",
                reader.block,
            )
        first = min(first, index)
    return Site(site.parent, first)


def _readers_after(
    state: State, scope: Block, stages: Sequence[Stage], writer: Stage, buffer: Buffer
) -> list[Stage]:
    """The other readers of a buffer. Errors: one comes first, or the buffer has other writers."""
    block = writer.block
    writers = [s for s in stages if buffer in s.writes]
    if len(writers) > 1:
        raise refused(f"{len(writers)} blocks write {buffer.name}, expected one", block)
    if buffer in writer.reads and block.init is None:
        raise refused(f"block {writer.name} reads what {buffer.name} has before", block)
    readers = [s for s in stages if buffer in s.reads and s is not writer]
    for reader in readers:
        if state.position(reader.block) < state.position(block):
            raise refused(
                f"a block reads {buffer.name} before block {writer.name} writes it", block
            )
    return readers


def _among(readers: Sequence[Stage], consumers: Sequence[Block], buffer: Buffer) -> list[Stage]:
    """The readers of a buffer that are consumers. Errors: a consumer does not read it."""
    blocks = [reader.block for reader in readers]
    for consumer in consumers:
        if consumer not in blocks:
            raise refused(f"not all of the consumer blocks read {buffer.name}", consumer)
    return [reader for reader in readers if reader.block in consumers]


def loops_below(state: State, site: Site, block: Block) -> list[For]:
    """The loops around `block` inside of the parent of `site`."""
    inner = state.loops(block)
    return inner[inner.index(site.parent) + 1 :] if site.parent in inner else inner


def cache_read(
    state: State,
    block: Block,
    which: int | str | Buffer,
    storage_scope: str,
    consumers: Sequence[Block],
) -> Block:
    """Copy a buffer after it is written, and let its readers, or `consumers`, read the copy.

    Other blocks that write the buffer go on reading it themselves.
    """
    scope = state.scope(block)
    stages, stage = stage_in_scope(state, block)
    buffer = buffer_of(stage, which, block.reads, "reads")
    readers = [s for s in stages if buffer in s.reads]
    later = [reader for reader in readers if reader is stage or buffer not in reader.writes]
    chosen = _among(readers, consumers, buffer) if consumers else later
    site = site_before(state, scope, stages, chosen, buffer)
    is_input = not any(buffer in s.writes for s in stages)
    whole = [Range(size) for size in buffer.shape]
    region = whole if is_input else _read_region(state, site, buffer)
    cached = like(buffer, storage_scope)
    copy = _copy(buffer, cached, region, cached.name)
    renewed: dict[Block, Block] = {}
    changes: dict[Stmt, Stmt | None] = {
        s.block: with_buffer(s.block, buffer, cached, renewed) for s in chosen
    }
    _insert_copy(state, site, copy, cached, changes, renewed)
    return copy[1].block


def cache_write(
    state: State,
    block: Block,
    which: int | str | Buffer,
    storage_scope: str,
    consumers: Sequence[Block],
) -> Block:
    """Let `block` write to a new buffer, which is copied then; `consumers` read the new buffer."""
    scope = state.scope(block)
    stages, stage = stage_in_scope(state, block)
    check_init_runs(stage)
    buffer = buffer_of(stage, which, block.writes, "writes")
    readers = _readers_after(state, scope, stages, stage, buffer)
    chosen = _among(readers, consumers, buffer)
    sites = [_after(state, scope, stage, [r]) for r in readers if r not in chosen]
    innermost = max(sites, key=lambda at: (state.position(at.parent), -at.index), default=None)
    site = innermost or _after(state, scope, stage, [])
    check_own_elements(stage)
    inner = loops_below(state, site, block)
    region = written_box(stage, buffer, inner)
    if region is None:
        raise refused(
            f"block {stage.name} is not known to write all elements of a region of {buffer.name}",
            block,
        )
    cached = like(buffer, storage_scope)
    copy = _copy(cached, buffer, region, cached.name, condition_outside(stage, inner))
    renewed: dict[Block, Block] = {}
    if chosen and not _writes_what_is_read(state, scope, stage, chosen, buffer):
        raise refused(
            f"block {stage.name} is not known to write all elements of {buffer.name} that the "
            "consumer blocks read",
            block,
        )
    changes: dict[Stmt, Stmt | None] = {
        b: with_buffer(b, buffer, cached, renewed) for b in (block, *(s.block for s in chosen))
    }
    _insert_copy(state, site, copy, cached, changes, renewed)
    return copy[1].block


def _writes_what_is_read(
    state: State, scope: Block, stage: Stage, readers: Sequence[Stage], buffer: Buffer
) -> bool:
    """True if all that `readers` read of a buffer is known to be written by a block before them."""
    blocks = [stage.block, *(reader.block for reader in readers)]
    parent = common_site(state, scope, blocks)[-1]
    place = member_index(state, Site(parent, 0), stage.block)
    inner = loops_below(state, Site(parent, 0), stage.block)
    written = written_box(stage, buffer, inner)
    prove = Analyzer().can_prove
    if written is None or not prove(condition_outside(stage, inner)):
        return False
    return all(
        prove(ops.compare(LE, w.min, r.min))
        and prove(ops.compare(LE, r.min + r.extent, w.min + w.extent))
        for w, r in zip(written, _read_region(state, Site(parent, place + 1), buffer), strict=True)
    )


def set_scope(state: State, block: Block, which: int | str | Buffer, storage_scope: str) -> None:
    """Keep a buffer that a block allocates and `block` writes in another memory scope."""
    _, stage = stage_in_scope(state, block)
    buffer = buffer_of(stage, which, block.writes, "writes")
    owner = next((b for b in state.blocks() if buffer in b.alloc_buffers), None)
    if owner is None:
        raise refused(f"{buffer.name} is a parameter, which keeps its scope", block)
    if buffer.scope() == storage_scope:
        return
    moved = like(buffer, storage_scope)
    renewed: dict[Block, Block] = {}
    new = with_buffer(owner, buffer, moved, renewed)
    state.replace({owner: new}, renewed)


# --- buffers and copies

#: The first words of memory scopes, as in "shared.dyn".
_SCOPES = frozenset(
    ("global", "shared", "warp", "local", "wmma", "m16n8k8", "texture", "amdgpu", "metal")
)


def like(buffer: Buffer, storage_scope: str, shape: Sequence[PrimExpr] | None = None) -> Buffer:
    """A new buffer in a memory scope for copies of `buffer`, perhaps of another shape.

    Errors:
        ScheduleError: there is no such scope.
    """
    check_type(storage_scope, str, "a memory scope is a string")
    if storage_scope.split(".")[0] not in _SCOPES:
        raise refused(f"there is no memory scope {storage_scope!r:.40}")
    name = f"{buffer.name}_{storage_scope}".replace(".", "_")
    return decl_buffer(
        buffer.shape if shape is None else shape, buffer.dtype, name, scope=storage_scope
    )


def _read_region(state: State, site: Site, buffer: Buffer) -> list[Range]:
    """The reads of `buffer` by the members of a site from its index on."""
    accesses = Bodies(())
    for member in site.members()[site.index :]:
        accesses.statement(member)
    sets = accesses.reads[buffer]
    around = [n for n in (site.parent, *state.ancestors(site.parent)) if isinstance(n, For)]
    simplify = analyzer_of(domains_of(around)).simplify
    found = []
    for covered, size in zip(sets, buffer.shape, strict=True):
        zero = ops.const(0, size.dtype)
        limits = (zero, size - 1) if covered is None else covered
        low = ops.maximum(ops.cast_to(limits[0], size.dtype), zero)
        high = ops.minimum(ops.cast_to(limits[1], size.dtype), size - 1)
        extent = ops.sub(high, low) + 1
        found.append(Range.from_min_extent(simplify(low), simplify(extent)))
    return found


def _copy(
    source: Buffer,
    target: Buffer,
    region: Sequence[Range],
    name: str,
    condition: PrimExpr | bool = True,
) -> tuple[Stmt, BlockRealize]:
    """Loops that copy a region, and the execution of their block."""
    block = spatial_block(
        name,
        source.shape,
        lambda variables: BufferStore(target, BufferLoad(source, variables), tuple(variables)),
    )
    loops = {Var(f"ax{k}", rng.min.dtype): Range(rng.extent) for k, rng in enumerate(region)}
    values = tuple(rng.min + var for var, rng in zip(loops, region, strict=True))
    realize = BlockRealize(values, ops.all_of(condition), block)
    return serial_nest(loops.items(), realize), realize


def _insert_copy(
    state: State,
    site: Site,
    copy: tuple[Stmt, BlockRealize],
    cached: Buffer,
    changes: dict[Stmt, Stmt | None],
    renewed: dict[Block, Block],
) -> None:
    """Change blocks, insert a copy, and allocate its buffer in the scope of the copy."""
    site.insert(state, copy[0])
    state.replace(changes, renewed)
    state.allocate(state.scope(copy[1].block), cached)


def with_buffer(node: Block, old: Buffer, new: Buffer, renewed: dict[Block, Block]) -> Block:
    """`node` with all uses of one buffer replaced by those of one of the same shape."""
    values = {old.data: new.data}

    def visit(item: Node) -> Node:
        if item is old:
            return new
        if item._variable:
            return values.get(item, item) if isinstance(item, Var) else item
        rebuilt = map_children(visit, item)
        if isinstance(item, Block) and isinstance(rebuilt, Block) and rebuilt is not item:
            renewed[item] = rebuilt
        return rebuilt

    result = visit(node)
    assert isinstance(result, Block)
    return result
