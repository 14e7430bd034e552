"""What statements touch of a buffer."""

import pytest

from relaxpy import tir as T
from relaxpy.arith import domain_touched
from relaxpy.errors import MisuseError
from relaxpy.ir.tir.iteration import Range
from relaxpy.script import tir as S
from tests.ir.arith.boxes import value


@S.prim_func
def moved(a: S.handle, b: S.handle) -> None:
    m = S.int32()
    A = S.match_buffer(a, (100, m))
    B = S.match_buffer(b, (100, m))
    for i, j in S.grid(100, m):
        A[i, j] = B[i - 1, j + 1] + A[i - 1, j - 1]


@S.prim_func
def blocked(a: S.handle, b: S.handle) -> None:
    A = S.match_buffer(a, (32,))
    B = S.match_buffer(b, (32,))
    for i, j in S.grid(2, 8):
        with S.block("copy"):
            k = S.axis.spatial(16, i * 8 + j)
            B[k + 3] = A[k]


@pytest.mark.parametrize(
    ("name", "loads", "stores", "expected"),
    [
        ("a", True, False, [(-1, 100), (-1, 7)]),
        ("a", False, True, [(0, 100), (0, 7)]),
        ("a", True, True, [(-1, 101), (-1, 8)]),
        ("b", True, False, [(-1, 100), (1, 7)]),
        ("b", False, True, []),
    ],
)
def test_stretches_of_a_buffer(name, loads, stores, expected) -> None:
    handle = next(p for p in moved.params if p.name == name)
    part = moved.buffer_map[handle]
    size = part.shape[1]
    assert isinstance(size, T.Var)
    found = domain_touched(moved.body, part, loads, stores)
    assert [(value(r.min, {size: 7}), value(r.extent, {size: 7})) for r in found] == expected


def test_blocks_are_entered() -> None:
    first, second = (blocked.buffer_map[p] for p in blocked.params)
    assert domain_touched(blocked.body, first, True, True) == [Range(0, 16)]
    assert domain_touched(blocked.body, second, True, True) == [Range(3, 19)]
    with pytest.raises(MisuseError, match="a statement and a Buffer"):
        domain_touched(blocked, first, True, True)  # type: ignore[arg-type]
