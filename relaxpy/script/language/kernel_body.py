"""The statements and blocks of a kernel that are being collected."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import field
from typing import Literal, TypeAlias

from relaxpy.ir.core.dtype import INT32
from relaxpy.ir.tir import ops, stmt
from relaxpy.ir.tir.analysis.regions import access_regions
from relaxpy.ir.tir.buffer import Buffer, BufferRegion
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.support.dataclass import dataclass, replace

Wrap: TypeAlias = Callable[[stmt.Stmt], stmt.Stmt]


@dataclass(slots=True)
class Block:
    """The state of a block that is being built."""

    iter_vars: list[IterVar] = field(default_factory=list)
    iter_values: list[PrimExpr] = field(default_factory=list)
    regions: dict[str, tuple[BufferRegion, ...]] = field(default_factory=dict)
    init: stmt.Stmt | None = None
    allocations: list[Buffer] = field(default_factory=list)
    matches: list[stmt.MatchBufferRegion] = field(default_factory=list)
    attrs: dict[str, object] = field(default_factory=dict)
    predicate: PrimExpr | None = None
    lets: dict[Var, PrimExpr] = field(default_factory=dict)

    def with_regions(self, block: stmt.Block, pointers: Container[Var]) -> stmt.Block:
        """Return `block` with the regions that the program declares; the others are inferred."""
        if len(self.regions) == 2:
            return block
        reads, writes = access_regions(block, pointers)
        return replace(
            block, reads=self.regions.get("reads", reads), writes=self.regions.get("writes", writes)
        )


@dataclass(slots=True)
class Body:
    """Statements being collected; the body of a wrapper is all statements that follow it.

    The body of `T.If` contains no statements; its branches are `cases`.
    """

    kind: Literal["function", "block", "loop", "cases", "inner"]
    items: list[stmt.Stmt | Wrap] = field(default_factory=list)
    cases: dict[bool, stmt.Stmt] = field(default_factory=dict)

    def fold(self) -> stmt.Stmt:
        """Combine the statements into one."""
        rest: list[stmt.Stmt] = []
        for item in reversed(self.items):
            if isinstance(item, stmt.Stmt):
                rest.append(item)
            else:
                rest = [item(_sequence(rest))]
        return _sequence(rest)


def _sequence(reverse: list[stmt.Stmt]) -> stmt.Stmt:
    if not reverse:
        return stmt.Evaluate(ops.const(0, INT32))
    return reverse[0] if len(reverse) == 1 else stmt.SeqStmt(tuple(reversed(reverse)))
