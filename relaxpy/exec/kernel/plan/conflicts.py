"""Finds the pairs of statements that may access common memory: most stores are disjoint."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import permutations, product
from typing import TypeAlias

from relaxpy.exec.kernel.nest.bounds import bounds_of
from relaxpy.exec.kernel.plan.statements import Access, Statement
from relaxpy.ir.arith.algebra.affine import IndexPoly
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Var
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """An access by statement number `statement`."""

    statement: int
    access: Access
    writes: bool


def possible_conflicts(
    statements: Sequence[Statement], shape_vars: Container[Var], roots: Mapping[Buffer, Buffer]
) -> set[tuple[int, int]]:
    """Pairs of statements, by number, that are not proved independent.

    Two statements may conflict if one writes memory that the other accesses. Every statement is
    paired with itself, as its iterations may conflict. Transitively implied pairs are omitted.
    """
    pairs = {(i, i) for i in range(len(statements))}
    uses: dict[Buffer, list[_Use]] = {}
    for i, statement in enumerate(statements):
        for writes, accesses in ((True, statement.writes), (False, statement.reads)):
            for access in accesses:
                root = roots.get(access.buffer, access.buffer)
                uses.setdefault(root, []).append(_Use(i, access, writes))
    for group in uses.values():
        for first, second in _overlapping_pairs(group, statements, shape_vars):
            if first.writes or second.writes:
                i, j = sorted((first.statement, second.statement))
                pairs.add((i, j))
    return pairs


def _overlapping_pairs(
    group: list[_Use], statements: Sequence[Statement], shape_vars: Container[Var]
) -> Iterator[tuple[_Use, _Use]]:
    """Pairs of uses of one buffer, without those that are disjoint in some dimension."""
    if not any(use.writes for use in group) or len({use.statement for use in group}) == 1:
        return
    groups = [group]
    buffer, rank = group[0].access.buffer, len(group[0].access.maps)
    spans: dict[_Use, list[_Span]] = {use: [] for use in group}
    if all(u.access.buffer is buffer and len(u.access.maps) == rank for u in group):
        spans = {use: _spans(use, statements[use.statement], shape_vars) for use in group}
        for dimension in range(rank):
            along = {use: dims[dimension] for use, dims in spans.items()}
            divided = [_disjoint_groups(g, along, shape_vars) for g in groups]
            for members, (_, overlapping) in zip(groups, divided, strict=True):
                yield from ((first, second) for first in overlapping for second in members)
            groups = [g for disjoint, _ in divided for g in disjoint]
    boxes = {use: list(map(_constant_span, dims)) for use, dims in spans.items()}
    for members in groups:
        same: dict[object, list[_Use]] = {}
        for use in members:
            key = use.access.buffer, use.access.indices, statements[use.statement].axes
            same.setdefault(key, []).append(use)
        for uses in same.values():
            yield from _successive(uses)
        for of_first, of_second in permutations(same.values(), 2):
            if not _are_disjoint(boxes[of_first[0]], boxes[of_second[0]]):
                yield from product((use for use in of_first if use.writes), of_second)


def _successive(uses: list[_Use]) -> Iterator[tuple[_Use, _Use]]:
    """Pairs of uses of the same elements in the same loops without a store between them.

    Their dependences imply those of the other pairs, which have the same directions.
    """
    since_store: list[_Use] = []
    for use in uses:
        if use.writes:
            yield from ((before, use) for before in since_store)
            since_store.clear()
        elif since_store and since_store[0].writes:
            yield since_store[0], use
        since_store.append(use)


_Span: TypeAlias = tuple[IndexPoly, IndexPoly] | None
"""The minimum and maximum index of a use in one dimension."""


def _spans(use: _Use, statement: Statement, shape_vars: Container[Var]) -> list[_Span]:
    return [
        None if m is None else bounds_of(m, statement.axes, shape_vars) for m in use.access.maps
    ]


def _constant_span(span: _Span) -> tuple[int, int] | None:
    if span is None or span[0].constant is None or span[1].constant is None:
        return None
    return span[0].constant, span[1].constant


def _are_disjoint(a_box: list[tuple[int, int] | None], b_box: list[tuple[int, int] | None]) -> bool:
    return any(
        a is not None and b is not None and (a[1] < b[0] or b[1] < a[0])
        for a, b in zip(a_box, b_box, strict=True)
    )


def _disjoint_groups(
    group: list[_Use], along: Mapping[_Use, _Span], shape_vars: Container[Var]
) -> tuple[list[list[_Use]], list[_Use]]:
    """The uses in groups with increasing spans, and those that may overlap several groups.

    Rule:
        The first use of a group starts after all uses of the previous group have ended; the other
        uses of the group start no earlier. So each use ends before all uses of later groups start.
    """
    spans: dict[_Use, tuple[IndexPoly, IndexPoly]] = {}
    for use in group:
        span = along[use]
        if span is None:
            return [group], []
        spans[use] = span
    ends = [end.constant for _, end in spans.values()]
    if None not in ends:
        group = sorted(group, key=lambda use: spans[use][1].constant or 0)
    groups: list[list[_Use]] = []
    overlapping: list[_Use] = []
    for use in group:
        start = spans[use][0]
        if not groups:
            groups.append([use])
        elif not start.exceeds(spans[groups[-1][0]][0], 0, shape_vars):
            overlapping.append(use)
        elif all(start.exceeds(spans[o][1], 1, shape_vars) for o in reversed(groups[-1])):
            groups.append([use])
        else:
            groups[-1].append(use)
    return groups, overlapping
