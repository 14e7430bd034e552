"""Which parts of a kernel may meet in memory at all: most of many stores lie side by side."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relaxpy.exec.kernel.bounds import extremes
from relaxpy.exec.kernel.parts import Access, Part
from relaxpy.ir.tir.affine import Poly
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Var


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """What part number `part` does with a buffer."""

    part: int
    access: Access
    writes: bool


def meetings(
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
    if all(u.access.buffer is buffer and len(u.access.maps) == rank for u in group):
        for dimension in range(rank):
            divided = [_side_by_side(g, dimension, parts, sizes) for g in groups]
            for members, (_, wide) in zip(groups, divided, strict=True):
                yield from ((first, second) for first in wide for second in members)
            groups = [g for apart, _ in divided for g in apart]
    for members in groups:
        writers = [use for use in members if use.writes]
        yield from ((first, second) for first in writers for second in members)


def _side_by_side(
    group: list[_Use], dimension: int, parts: Sequence[Part], sizes: Container[Var]
) -> tuple[list[list[_Use]], list[_Use]]:
    """The uses in groups, each beyond all those before it, and what reaches over several groups.

    Rule:
        A group begins with a use that starts where all uses of the group before it have ended, and
        not before the first of these; what joins it starts no earlier. So each use ends before any
        of a later group starts.
    """
    spans: dict[_Use, tuple[Poly, Poly]] = {}
    for use in group:
        found = use.access.maps[dimension]
        reach = None if found is None else extremes(found, parts[use.part].axes, sizes)
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
        elif all((start - spans[other][1]).is_at_least(1, sizes) for other in groups[-1]):
            groups.append([use])
        else:
            groups[-1].append(use)
    return groups, wide
