"""The part of a buffer that a statement reads or writes."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.tir import ops, stmt
from relaxpy.ir.tir.analysis.regions import Accesses, united
from relaxpy.ir.tir.buffer import Buffer, Range


@user_facing
def domain_touched(
    node: stmt.Stmt, buffer: Buffer, consider_loads: bool, consider_stores: bool
) -> list[Range]:
    """For each axis a stretch around what `node` reads (and, or, writes) of `buffer`.

    The list is empty if nothing is. Stretches may leave the shape, as accesses that a condition
    keeps inside do; one that is not known is the whole axis.

    Errors:
        MisuseError (also TypeError): `node` is no statement, or `buffer` no Buffer.
    """
    if not isinstance(node, stmt.Stmt) or not isinstance(buffer, Buffer):
        raise MisuseError(
            f"a statement and a Buffer are wanted, found {node!r:.30}, {buffer!r:.30}"
        )
    found = _Touched(())
    found.statement(node)
    tables = [found.reads] * bool(consider_loads) + [found.writes] * bool(consider_stores)
    parts = [table[buffer] for table in tables if buffer in table]
    if not parts:
        return []
    ranges = []
    for size, *sets in zip(buffer.shape, *parts, strict=True):
        covered = sets[0] if len(sets) == 1 else united(*sets)
        if covered is None:
            ranges.append(Range.from_min_extent(ops.const(0, size.dtype), size))
            continue
        low, high = map(simplify, covered)
        ranges.append(Range.from_min_extent(low, simplify(ops.add(ops.sub(high, low), 1))))
    return ranges


class _Touched(Accesses):
    """Accesses themselves, whatever blocks say of them."""

    @override
    def declared(self, block: stmt.Block) -> None:
        for match in block.match_buffers:
            self.views[match.buffer] = match.source
        if block.init is not None:
            self.statement(block.init)
        self.statement(block.body)
