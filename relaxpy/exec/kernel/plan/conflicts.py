"""Which parts of a kernel may meet in memory at all: most of many stores lie side by side."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from relaxpy.exec.kernel.nest.bounds import extremes
from relaxpy.exec.kernel.plan.parts import Access, Part
from relaxpy.ir.arith.algebra.affine import IndexPoly
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Var


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """What part number `part` does with a buffer."""

    part: int
    access: Access
    writes: bool


def possible_conflicts(
    parts: Sequence[Part], sizes: Container[Var], roots: Mapping[Buffer, Buffer]
) -> set[tuple[int, int]]:
    """Pairs of parts by number that are not proved to keep out of each other's way.

    Two get into each other's way where one writes memory that the other uses. A part is compared
    with itself in any case, as its rounds may be at odds.
    """
    found = {(i, i) for i in range(len(parts))}
    uses: dict[Buffer, list[_Use]] = {}
    for i, part in enumerate(parts):
        for writes, accesses in ((True, part.writes), (False, part.reads)):
            for access in accesses:
                root = roots.get(access.buffer, access.buffer)
                uses.setdefault(root, []).append(_Use(i, access, writes))
    for group in uses.values():
        for first, second in _near(group, parts, sizes):
            if first.writes or second.writes:
                found.add((min(first.part, second.part), max(first.part, second.part)))
    return found


def _near(
    group: list[_Use], parts: Sequence[Part], sizes: Container[Var]
) -> Iterator[tuple[_Use, _Use]]:
    """Pairs of uses of one memory, less those that lie apart in some dimension."""
    if not any(use.writes for use in group):
        return
    groups = [group]
    buffer, rank = group[0].access.buffer, len(group[0].access.maps)
    spans: dict[_Use, list[_Span]] = {use: [] for use in group}
    if all(u.access.buffer is buffer and len(u.access.maps) == rank for u in group):
        spans = {use: _spans(use, parts[use.part], sizes) for use in group}
        for dimension in range(rank):
            reached = {use: found[dimension] for use, found in spans.items()}
            divided = [_side_by_side(g, reached, sizes) for g in groups]
            for members, (_, wide) in zip(groups, divided, strict=True):
                yield from ((first, second) for first in wide for second in members)
            groups = [g for apart, _ in divided for g in apart]
    boxes = {use: list(map(_numbers, found)) for use, found in spans.items()}
    for members in groups:
        for first in (use for use in members if use.writes):
            for second in members:
                if not _apart(boxes[first], boxes[second]):
                    yield first, second


_Span: TypeAlias = tuple[IndexPoly, IndexPoly] | None
"""The first and the last place that a use reaches in one dimension."""


def _spans(use: _Use, part: Part, sizes: Container[Var]) -> list[_Span]:
    return [None if m is None else extremes(m, part.axes, sizes) for m in use.access.maps]


def _numbers(span: _Span) -> tuple[int, int] | None:
    if span is None or span[0].constant is None or span[1].constant is None:
        return None
    return span[0].constant, span[1].constant


def _apart(one: list[tuple[int, int] | None], other: list[tuple[int, int] | None]) -> bool:
    return any(
        a is not None and b is not None and (a[1] < b[0] or b[1] < a[0])
        for a, b in zip(one, other, strict=True)
    )


def _side_by_side(
    group: list[_Use], reached: Mapping[_Use, _Span], sizes: Container[Var]
) -> tuple[list[list[_Use]], list[_Use]]:
    """The uses in groups, each beyond all those before it, and what reaches over several groups.

    Rule:
        A group begins with a use that starts where all uses of the group before it have ended, and
        not before the first of these; what joins it starts no earlier. So each use ends before any
        of a later group starts.
    """
    spans: dict[_Use, tuple[IndexPoly, IndexPoly]] = {}
    for use in group:
        reach = reached[use]
        if reach is None:
            return [group], []
        spans[use] = reach
    ends = [end.constant for _, end in spans.values()]
    if None not in ends:
        group = sorted(group, key=lambda use: spans[use][1].constant or 0)
    groups: list[list[_Use]] = []
    wide: list[_Use] = []
    for use in group:
        start = spans[use][0]
        if not groups:
            groups.append([use])
        elif not (start - spans[groups[-1][0]][0]).is_at_least(0, sizes):
            wide.append(use)
        elif all((start - spans[other][1]).is_at_least(1, sizes) for other in reversed(groups[-1])):
            groups.append([use])
        else:
            groups[-1].append(use)
    return groups, wide
