"""The drawing in layers: no two boxes overlap, and every use runs downward."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.plugins.pictures.layout import FAR, GAP, arrange, curve, place

SIZES = {number: (20.0 + 37 * (number % 5), 22.0 + 13 * (number % 3)) for number in range(-40, 40)}


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]], set[int]]:
    """Items, pairs of a value and its user, most of them in order, and items without operands."""
    count = draw(st.integers(1, 25))
    ends = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=60))
    ordered = draw(st.booleans())
    uses = {(min(p), max(p)) if ordered else p for p in pairs if p[0] != p[1]}
    users = {user for _, user in uses}
    return list(range(count)), sorted(uses), draw(st.sets(ends)) - users


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_boxes_do_not_overlap_and_uses_run_downward(
    graph: tuple[list[int], list[tuple[int, int]], set[int]],
) -> None:
    items, uses, sources = graph
    drawn = arrange(items, uses, SIZES.__getitem__, sources)
    boxes, (width, height) = place(drawn, SIZES.__getitem__)
    entries = [entry for row in drawn.rows for entry in row]
    assert sorted(entry for entry in entries if entry >= 0) == items
    solid = [boxes[e] for e in entries if e >= 0 or e in drawn.references]
    for one, other in combinations(solid, 2):
        apart = (one.x + one.width <= other.x) or (other.x + other.width <= one.x)
        assert apart or one.y + one.height <= other.y or other.y + other.height <= one.y
    for box in solid:
        assert box.x >= -1e-6
        assert box.x + box.width <= width + 1e-6
        assert 0 <= box.y <= box.y + box.height <= height
    rows = {entry: index for index, row in enumerate(drawn.rows) for entry in row}
    assert {(drawn.references.get(path[0], path[0]), path[-1]) for path in drawn.paths} == {*uses}
    for path in drawn.paths:
        assert all(rows[below] == rows[above] + 1 for above, below in pairwise(path))
        assert len(path) <= FAR + 1
        assert curve(path, boxes).startswith("M")


def test_what_nothing_uses_fills_rows() -> None:
    drawn = arrange(range(30), (), lambda _: (100.0, 20.0))
    assert [len(row) for row in drawn.rows] == [8, 8, 8, 6]
    boxes, size = place(drawn, lambda _: (100.0, 20.0))
    assert size[0] == 8 * 100 + 7 * GAP
    assert boxes[8].x == 0


@pytest.mark.parametrize(
    ("uses", "rows"),
    [
        ([(0, 1), (1, 2), (3, 2)], [[0], [1, 3], [2]]),  # a source is directly above its user
        ([(0, 1), (1, 2), (3, 4), (4, 2)], [[0, 3], [1, 4], [2]]),
        ([(0, 1), (1, 0)], [[-1], [0], [1]]),  # a reference to a value that is bound later
    ],
)
def test_rows_follow_from_uses(uses: list[tuple[int, int]], rows: list[list[int]]) -> None:
    items = sorted({number for use in uses for number in use})
    drawn = arrange(items, uses, lambda _: (10.0, 10.0), {3})
    assert [sorted(row) for row in drawn.rows] == rows


def test_an_item_that_grows_pushes_others_aside() -> None:
    drawn = arrange([0, 1, 2], [(0, 1), (0, 2)], lambda _: (40.0, 20.0))
    boxes, _ = place(drawn, lambda number: (400.0, 300.0) if number == 1 else (40.0, 20.0))
    one, other = sorted((boxes[1], boxes[2]), key=lambda box: box.x)
    assert one.x + one.width + GAP <= other.x
    assert boxes[1].row_bottom - boxes[1].row_top == 300
