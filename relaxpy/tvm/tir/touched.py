"""The region of a buffer that a statement reads or writes."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.tir import ops, stmt
from relaxpy.ir.tir.analysis.regions import Accesses, union
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.iteration import Range
from relaxpy.support.entry import user_facing


@user_facing
def domain_touched(
    node: stmt.Stmt, buffer: Buffer, consider_loads: bool, consider_stores: bool
) -> list[Range]:
    """Return for each axis the range of the elements of `buffer` that `node` reads or writes.

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
        ranges.append(Range.from_min_extent(low, simplify(ops.add(ops.sub(high, low), 1))))
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
