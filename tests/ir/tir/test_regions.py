"""Regions inferred from the body of a block, beside what hand and enumeration give."""

import itertools

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.short_text.nodes import short_text
from relaxpy.ir.tir import stmt
from relaxpy.ir.tir.analysis.regions import access_regions
from relaxpy.script import from_source


def inferred(body: str, buffers: str = 'A: T.Buffer((32, 32), "float32")') -> tuple[str, str]:
    """The regions of block b whose body is `body`; i and v are outside and its own."""
    lines = "\n".join(f"            {line}" for line in body.strip("\n").split("\n"))
    func = from_source(
        f'@T.prim_func\ndef f({buffers}, B: T.Buffer((32, 32), "float32"), n: T.int32):\n'
        '    for i in range(8):\n        with T.block("b"):\n'
        f"            v = T.axis.spatial(8, i)\n{lines}\n"
    )
    [block] = [s for s in walk(func.body) if isinstance(s, stmt.Block) and s.name_hint == "b"]
    return tuple(", ".join(map(short_text, r)) for r in (block.reads, block.writes))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("body", "reads", "writes"),
    [
        ("B[v, 0] = A[v, 1]", "A[v, 1]", "B[v, 0]"),
        ("B[v, 0] = A[v, 0] + A[v, 3]", "A[v, 0:4]", "B[v, 0]"),
        ("B[v, 0] = A[v, 0] + A[v + 1, 0]", "A[v:v + 2, 0]", "B[v, 0]"),
        ("for j in range(4):\n    B[v, j] = A[v, j + 2]", "A[v, 2:6]", "B[v, 0:4]"),
        (
            "for j in range(4):\n    B[v, 8 - j] = A[j * 2, v * 4 + j]",
            "A[0:7, v * 4:v * 4 + 4]",
            "B[v, 5:9]",
        ),
        (
            "for j, k in T.grid(4, 4):\n    B[v, j * 4 + k] = A[(j * 4 + k) // 4, (j * 4 + k) % 4]",
            "A[0:4, 0:4]",
            "B[v, 0:16]",
        ),
        ("for j in range(n):\n    B[v, j] = A[j, v]", "A[0:n, v]", "B[v, 0:n]"),
        ("B[v, T.cast(A[v, 0], 'int32')] = A[v, 1]", "A[v, 0:2]", 'B[v, T.Cast("int32", A[v, 0])]'),
        (
            "for j in range(32):\n    if j >= 2 and j < 30:\n        B[v, j] = A[v, j - 2]",
            "A[v, 0:28]",
            "B[v, 2:30]",
        ),
        (
            "for j in range(8):\n    B[v, T.cast(T.cast(j - 3, 'uint8'), 'int32') // 8] = A[v, 0]",
            "A[v, 0]",
            "B[v, 0:32]",
        ),
        (
            "for j in range(32):\n    B[v, j] = T.if_then_else(j < 8, A[v, j], 0)",
            "A[v, 0:8]",
            "B[v, 0:32]",
        ),
        (
            "for j in range(32):\n    if j < 8:\n        B[v, j] = 0\n    else:\n"
            "        B[v, j - 8] = 0",
            "",
            "B[v, 0:24]",
        ),
        ("x = v * 2\nB[x, 0] = A[x + 1, 0]", "A[v * 2 + 1, 0]", "B[v * 2, 0]"),
        ("for j in range(4):\n    x = j + 1\n    B[v, x] = A[v, x]", "A[v, 1:5]", "B[v, 1:5]"),
        ("with T.init():\n    B[v, 0] = 0\nB[v, 0] += A[v, 0]", "A[v, 0]", "B[v, 0]"),
        ("B[v, 0] += A[v, 0]", "B[v, 0], A[v, 0]", "B[v, 0]"),
        ("B[v, 0:4] = T.broadcast(A[v, 0], 4)", "A[v, 0]", "B[v, 0:4]"),
        ("B[v, 0:4] = A[v, T.Ramp(5, -1, 4)]", "A[v, 2:6]", "B[v, 0:4]"),
        ("B[v, 0:4] = A[v, T.Ramp(v, v, 4)]", "A[v, 0:32]", "B[v, 0:4]"),
        (
            "p = A[v, T.Ramp(8, 1, 4)] > T.broadcast(0.0, 4)\n"
            "B[v, 0:4] = A.vload([v, T.Ramp(0, 1, 4)], predicate=p)",
            "A[v, 0:12]",
            "B[v, 0:4]",
        ),
        ("C = T.alloc_buffer((4,))\nC[0] = A[v, 0]\nB[v, 0] = C[0]", "A[v, 0]", "B[v, 0]"),
        ("M = T.match_buffer(A[v, 0:4], (4,))\nB[v, 0] = M[2]", "A[v, 0:4]", "B[v, 0]"),
        ("for j in range(4):\n    B[v, T.min(j, 2)] = A[v, T.max(j, 2)]", "A[v, 2:4]", "B[v, 0:3]"),
        (
            "for j in range(32):\n    B[v, j] = T.if_then_else(n > 0, A[v, j - 2], 0)",
            "A[v, 0:30]",
            "B[v, 0:32]",
        ),
        (
            "for j in range(32):\n    B[v, j] = T.if_then_else(n > 0, A[v, j + 1], 0)",
            "A[v, 1:32]",
            "B[v, 0:32]",
        ),
        (
            "for j in range(32):\n    if T.likely(j < 8):\n        B[v, j] = A[v, j]",
            "A[v, 0:8]",
            "B[v, 0:8]",
        ),
        ("for j in range(4):\n    B[v, (j + 12) % 8] = A[v, j]", "A[v, 0:4]", "B[v, 4:8]"),
        (
            "B.vstore([v, T.Ramp(0, 1, 4)], T.broadcast(1.0, 4), "
            "predicate=A[v, T.Ramp(8, 1, 4)] > T.broadcast(0.0, 4))",
            "A[v, 8:12]",
            "B[v, 0:4]",
        ),
    ],
)
def test_regions_of_a_body(body: str, reads: str, writes: str) -> None:
    assert inferred(body) == (reads, writes)


def test_a_nested_block_counts_by_its_declared_regions() -> None:
    body = """
for j in range(4):
    with T.block("inner"):
        w = T.axis.spatial(4, j)
        T.reads(A[v, w:w + 2])
        T.writes(B[w, v])
        B[w, v] = A[v, w]
"""
    assert inferred(body) == ("A[v, 0:5]", "B[0:4, v]")


def test_an_axis_has_the_datatype_of_its_domain_in_what_its_block_accesses() -> None:
    body = """
for i, k in T.grid(3, 3):
    with T.block("inner"):
        w = T.axis.spatial(T.int64(4), i // 3)
        T.reads(A[T.max(w, k), v])
        T.writes(B[v, w])
        B[v, w] = A[T.max(w, k), v]
"""
    assert inferred(body) == ("A[T.int64(0):T.int64(3), v]", "B[v, T.int64(0)]")


def test_products_of_unknown_values_cover_the_dimension() -> None:
    body = "for j in range(n, n + 4):\n    B[v, n * j] = A[v, j * n]"
    assert inferred(body) == ("A[v, 0:32]", "B[v, 0:32]")


def test_an_index_of_unknown_range_covers_the_dimension() -> None:
    body = "for j in range(4):\n    B[v, (j * j) & 7] = A[v, j * n]"
    assert inferred(body) == ("A[v, 0:32]", "B[v, 0:32]")


@pytest.mark.parametrize(
    ("body", "reads", "writes"),
    [
        (
            "for k in range(4):\n    for j in range(k * k + 1):\n        B[v, j] = A[j, v]",
            "A[0:32, v]",
            "B[v, 0:32]",
        ),
        (
            "for k in range(4):\n    for j in range(k * k + 1):\n"
            "        if j < 5:\n            B[v, j + 1] = A[v, k]",
            "A[v, 0:4]",
            "B[v, 0:32]",
        ),
        (
            "M = T.match_buffer(A[v:v + 1, 0:1], (1, 1))\nB[T.cast(M[0, 0], 'int32'), v] = 1.0",
            "A[v, 0]",
            "B[0:32, v]",
        ),
        (
            "C = T.alloc_buffer((4,), 'int32')\nC[0] = v\nB[C[0], v] = A[C[0] + 1, v]",
            "A[0:32, v]",
            "B[0:32, v]",
        ),
        (
            "M = T.match_buffer(A[v:v + 1, 0:2], (1, 2))\n"
            "T.evaluate(T.call_extern('int32', 'g', M.data))\nB[v, 0] = 1.0",
            "A[v, 0:2]",
            "A[v, 0:2], B[v, 0]",
        ),
        (
            "M = T.match_buffer(A[v:v + 1, 0:2], (1, 2))\n"
            "T.evaluate(T.call_extern('int32', 'g', M.access_ptr('w')))\nB[v, 0] = A[0, 0]",
            "A[0, 0]",
            "A[v, 0:2], B[v, 0]",
        ),
        (
            "M = T.match_buffer(A[v:v + 1, 0:1], (1, 1))\n"
            "k = T.call_pure_extern('int32', 'g', M.data)\nB[k, v] = 1.0",
            "A[v, 0]",
            "A[v, 0], B[0:32, v]",
        ),
        ("k = T.call_extern('int32', 'g', v)\nB[k, v] = A[k, v]", "A[0:32, v]", "B[0:32, v]"),
        (
            "k = T.call_pure_extern('int32', 'g', v)\nB[k, v] = 1.0",
            "",
            'B[T.call_pure_extern("int32", "g", v), v]',
        ),
    ],
)
def test_regions_name_nothing_of_the_inside_of_their_block(body, reads, writes) -> None:
    assert inferred(body) == (reads, writes)


def test_a_pointer_needs_declared_regions() -> None:
    func = from_source(
        '@T.prim_func\ndef f(A: T.Buffer((4,), "float32")):\n    with T.block("b"):\n'
        "        T.reads()\n        T.writes()\n"
        '        T.evaluate(T.call_extern("int32", "g", A.data))\n'
    )
    block = func.body.block
    buffer = next(iter(func.buffer_map.values()))
    with pytest.raises(MisuseError, match="declare them with"):
        access_regions(block, {buffer.data})
    assert access_regions(block) == ((), ())


@pytest.mark.parametrize("seed", range(40))
def test_inferred_regions_cover_every_access(seed: int) -> None:
    """Indices are random affine and quasi-affine expressions; every value is tried."""
    rng = np.random.default_rng(seed)

    def index() -> str:
        a, b, c = (int(k) for k in rng.integers(0, 3, 3))
        plain = f"(v * {a} + j * {b} + k * {c})"
        return str(rng.choice([plain, f"{plain} // 2", f"{plain} % 3", f"T.min({plain}, 5)"]))

    first, second = index(), index()
    guard = str(rng.choice(["True", "j < 2", "k >= 1 and j <= 1"]))
    body = f"for j, k in T.grid(3, 4):\n    if {guard}:\n        B[0, 0] = A[{first}, {second}]"
    func = from_source(
        '@T.prim_func\ndef f(A: T.Buffer((99, 99), "float32"), B: T.Buffer((32, 32), "float32")):\n'
        '    for i in range(3):\n        with T.block("b"):\n'
        "            v = T.axis.spatial(3, i)\n"
        + "\n".join(f"            {line}" for line in body.split("\n"))
    )
    [block] = [s for s in walk(func.body) if isinstance(s, stmt.Block) and s.name_hint == "b"]
    [region] = [r for r in block.reads if r.buffer.name == "A"]
    functions = {"T": type("T", (), {"min": staticmethod(min), "max": staticmethod(max)})}
    for v in range(3):
        names = {"v": v, **functions}
        bounds = [
            (eval(str(r.min), names), eval(str(r.min), names) + eval(str(r.extent), names))
            for r in region.region
        ]
        for j, k in itertools.product(range(3), range(4)):
            inner = {**names, "j": j, "k": k}
            if eval(guard, inner):
                for text, (low, high) in zip((first, second), bounds, strict=True):
                    assert low <= eval(text, inner) < high
