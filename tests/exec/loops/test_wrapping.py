"""Integers of kernels wrap around in indices, extents, digits, conditions and lets as in values.

Scalar arguments, elements, casts and literals may have any value; loop variables and sizes do not
overflow. The oracle of `tests/fuzz/kernels` runs the text.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.script import from_source
from tests.fuzz.kernels.compare import TARGETS
from tests.fuzz.kernels.oracle import Oracle
from tests.fuzz.kernels.semantics import FLOATS, RefusedError, Semantics, low_and_high

LOOP = "for i in range(4):\n    C[i] = "
K = 2**30
INDICES = (
    ("C[0] = A[(k * 4) // 1073741824]", K),
    ("C[0] = A[T.floormod(k + 2147483647, 11)]", K),
    ("C[0] = A[T.min(T.max(k * 4, 0), 9)]", K),
    ("C[0] = A[k * 4]", K),
    (f"{LOOP}A[k * 4 + i]", K),
    (f"{LOOP}A[i + k * 4 - i * k * 4]", K),
    (f"{LOOP}A[(k * 2 + i) * 2]", K),
    (f"{LOOP}A[T.floormod(i * i * (S[0] * 1073741824), 11)]", 0),
    (f"{LOOP}A[(S[i % 2] * 1073741824 + i) // 1073741824]", 0),
    (f"{LOOP}A[S[0] * 1073741824 * 2 + i]", 0),
    (f"{LOOP}A[T.truncmod(T.max(k, 0) * 3, 13) + i]", K),
    (f"{LOOP}A[T.truncmod(T.max(k, 0) * 3, 13) + i]", 2**31 - 5),
    (f"{LOOP}A[k - 2147483647 + i]", -(2**31) + 1),
    (f"{LOOP}A[k + k + 2 + i]", 2**31 - 1),
    (f"{LOOP}A[T.Select(k * 4 > 3, i, k * 4 + i)]", K),
    (f"{LOOP}A[T.max(i - k, 0)]", -(2**31)),
    (f"{LOOP}A[T.min(T.max(k + i, 0), 3)]", 2**31 - 2),
    (f'{LOOP}A[T.Cast("int64", k + i) // 4 + T.int64(536870914)]', 2**31 - 2),
    (f"{LOOP}A[T.floordiv(k, S[1] - 2) // 2 + 1073741824 + i]", -(2**31)),
    (f"{LOOP}A[T.truncdiv(k, S[1] - 2) // 2 + 1073741824 + i]", -(2**31)),
    (f"{LOOP}A[T.floormod(~T.int32(100) * T.int32(1073741824) + T.int32(7), 11)]", 0),
    (f"{LOOP}A[T.floormod((T.int32(7) << T.int32(21)) * T.int32(1073741823), 11)]", 0),
    ("C[0] = A[(q * 3) % 13]", 2**63 - 1),
    (f"{LOOP}A[(q * 3 + i) % 13]", 2**63 - 1),
    (f"{LOOP}A[q * 4 + i]", 2**62),
    (f"{LOOP}A[T.floordiv(q, q // q * -1) // 2 + 4611686018427387904 + i]", -(2**63)),
)
CASTS = (
    ('C[0] = A[T.floormod(T.Cast("int32", q), 11)]', 2**32 + 1),
    (f'{LOOP}A[T.Cast("int32", q) + i]', 2**32 + 1),
    (f'{LOOP}A[T.Cast("int64", T.Cast("int32", q * 4)) + i]', 2**30),
    (f'{LOOP}A[T.Cast("int32", T.Cast("int64", i) * T.int64(1073741824)) // 1073741824 + 2]', 0),
    (f'{LOOP}A[T.Cast("int32", T.Cast("uint32", i) - T.uint32(1)) + 1]', 0),
    (f'{LOOP}A[T.Cast("int32", T.Cast("int64", i) << T.int64(54)) + 2]', 0),
    (f'{LOOP}A[T.Cast("int32", T.Cast("int64", i) ^ T.int64(9223372036854775806)) % 11]', 0),
    ("for i, j in T.grid(2, 2):\n"
     '    C[i * 2 + j] = T.Cast("int64", T.Cast("int32", q)) + i * 2 + j', 2**32 + 1),
    ("for i, j in T.grid(2, 2):\n"
     '    C[i * 2 + j] = T.Cast("int64", T.Cast("int32", q) * 4 // 3)', 2**32 + K),
    ("for i, j in T.grid(2, 2):\n    C[i * 2 + j] = T.Cast("
     '"int64", T.Cast("int32", T.Cast("int64", i * 2 + j) * T.int64(1073741824)) // 7)', 0),
)  # fmt: skip
BOUNDS = (
    ("for j in range((k * 4) // 1073741824):\n    C[0] = C[0] + 1", K),
    ("for j in range(k * 4):\n    C[0] = 5", K),
    ("for j in range(k + 1):\n    C[0] = 5", 2**31 - 1),
    ("for j in range(S[0] * 1073741824):\n    C[0] = 5", 0),
    ("for i in range(k, k + 4):\n    C[i - k] = A[i - k + 2]", 2**31 - 4),
    ("for i in range(k * 4, k * 4 + 4):\n    C[i] = A[i + 2]", K),
    ("for i in range(k, -2147483648):\n    C[0] = C[0] + 1", 2**31 - 1),
    ("if k * 4 < 3 and k * 4 >= 0:\n    C[0] = A[k * 4] + 1", K),
    ("for i in range(4):\n    if (k + i) // 2 < 0:\n        C[i] = A[i]", 2**31 - 2),
    ("v = k * 4\nC[0] = A[v // 1073741824 + 3]", K),
    ("v = k * 2\nfor i in range(4):\n    C[i] = A[v * 2 + i]", K),
    ("v = S[0] * 1073741824\nS[0] = 1\nfor i in range(4):\n    C[i] = A[(v + i) // 1073741824 + 5]",
     0),
    ("for i in range(4):\n    with T.block('b'):\n        v = T.axis.spatial(4, i)\n"
     "        w = T.axis.spatial(16, k * 4)\n        C[v] = A[v + w // 1073741824]", K),
    ("B = T.alloc_buffer((k * 4 + 4,), 'int64')\nfor i in range(4):\n    B[i] = A[i]\n"
     "for i in range(4):\n    C[i] = B[i] + 1", K),
    ("D = T.decl_buffer((4,), 'int64', data=A.data, elem_offset=k * 4 + 2)\n"
     "for i in range(4):\n    C[i] = D[i]", K),
)  # fmt: skip
ENDS = {"int32": (2**31 - 1, -(2**31)), "int64": (2**63 - 1, -(2**63))}
OPERATIONS = {"Add": "add", "Sub": "sub", "Mul": "mul", "FloorDiv": "floordiv", "Div": "truncdiv"}


def _run(text: str, k: int, q: int) -> None:
    """Compare all targets with the oracle; where it ends in an error, so do they."""
    body = "\n    ".join(text.splitlines())
    params = 'A: T.Buffer((16,), "int64"), S: T.Buffer((2,), "int32"), C: T.Buffer((4,), "int64")'
    whole = f"@T.prim_func\ndef main({params}, k: T.int32, q: T.int64):\n    {body}\n"
    func, oracle = from_source(whole), Oracle(whole)

    def results(function: object) -> list[int] | None:
        c = np.full(4, -9)
        try:
            function(np.arange(16) * 10, np.array([2, 1], "int32"), c, k, q)  # type: ignore[operator]
        except (RelaxpyError, RefusedError):
            return None
        return c.tolist()

    expected = results(lambda *args: oracle.run(args))
    for target in TARGETS:
        assert results(relaxpy.compile(func, target)["main"]) == expected, target


@pytest.mark.rule("PX-1")
@pytest.mark.parametrize(("text", "scalar"), [*INDICES, *CASTS, *BOUNDS])
def test_arithmetic_on_data_wraps_in_every_place(text: str, scalar: int) -> None:
    is_long = abs(scalar) > 2**31
    _run(text, 0 if is_long else scalar, scalar)


@pytest.mark.rule("PX-1")
def test_arithmetic_of_literals_wraps_in_loops() -> None:
    binary, lines, expected = Semantics().binary, [], []
    for dtype, name in itertools.product(ENDS, OPERATIONS):
        for end, other in itertools.product(ENDS[dtype], (1, -1, 3)):
            value = binary(OPERATIONS[name], dtype, end, other)
            text = f"T.{name}(T.{dtype}({end}), T.{dtype}({other}))"
            lines += [text, f"T.floormod({text}, T.{dtype}(7))"]
            expected += [value, binary("floormod", dtype, value, 7)]
    stores = "\n        ".join(f'C[i, {n}] = T.Cast("int64", {x})' for n, x in enumerate(lines))
    func = from_source(
        f'@T.prim_func\ndef main(C: T.Buffer((3, {len(lines)}), "int64")):\n'
        f"    for i in range(3):\n        {stores}\n"
    )
    for target in TARGETS:
        found = np.zeros((3, len(lines)), "int64")
        relaxpy.compile(func, target)["main"](found)
        wrong = [lines[n] for n in np.flatnonzero((found != expected).any(0))]
        assert not wrong, target


SOURCES = ("int32", "uint32", "int64", "uint64", "float64")
BETWEEN = ("float16", "bfloat16", "float32", "float64", "int16", "uint32")
EVERY = ("bool", *(f"{k}{b}" for k in ("int", "uint") for b in (8, 16, 32, 64)), *FLOATS)
RESULTS = tuple(dtype for dtype in EVERY if not dtype.startswith("float8"))


def _ends(dtype: str) -> list[int | float]:
    """Numbers near powers of two, and near the ends of integer datatypes."""
    powers = itertools.product((7, 8, 15, 16, 24, 31, 32, 53, 63), (-1, 1), (-1, 0, 1))
    near = [sign * 2**bits + more for bits, sign, more in powers]
    if dtype in FLOATS:
        return [*map(float, near), 1.5, -1.5, float("inf"), -float("inf"), float("nan")]
    low, high = low_and_high(dtype)
    return sorted({low, low + 1, high - 1, high, 0, *(n for n in near if low <= n <= high)})


def _array(values: list[object], dtype: str) -> np.ndarray:
    kind = FLOATS.get(dtype, dtype)
    return np.array(values, kind)


def _cast(source: str, target: str, values: list[object]) -> list[object]:
    cast = Semantics().cast
    with np.errstate(all="ignore"):
        return [cast(source, target, value) for value in values]


@pytest.mark.rule("DT-6")
@pytest.mark.parametrize("form", ["one", "choice", "more"])
@pytest.mark.parametrize("source", SOURCES)
def test_casts_of_casts_are_casts_of_their_values(source: str, form: str) -> None:
    """The value between has its datatype, also where LLVM would go without: in vectors, choices."""
    numbers = _array(list(_ends(source)), source)
    count = len(numbers)
    values = list(numbers) if source in FLOATS else [n.item() for n in numbers]
    between = [(dtype,) for dtype in BETWEEN]
    if form == "more":
        between = [("float64", "int32", "float64"), ("float32", "uint8", "float64"),
                   ("float64", "int64", "float32"), ("int16", "float64", "uint16")]  # fmt: skip
    lines, expected, params = [], [], []
    for chain in between:
        found, inner, at = values, "A[i]", source
        for dtype in chain:
            found, inner, at = _cast(at, dtype, found), f'T.Cast("{dtype}", {inner})', dtype
        if form == "choice":
            inner = f"T.Select(A[i] == A[i], {inner}, {inner.replace('A[i]', 'A[0]')})"
            found = [x if v == v else found[0] for x, v in zip(found, values, strict=True)]
        for dtype in RESULTS:
            name = f"C{len(params)}"
            params.append(f'{name}: T.Buffer(({count},), "{dtype}")')
            lines.append(f'{name}[i] = T.Cast("{dtype}", {inner})')
            expected.append((dtype, _array(_cast(at, dtype, found), dtype)))
    text = (
        f'@T.prim_func\ndef main(A: T.Buffer(({count},), "{source}"), {", ".join(params)}):\n'
        f"    for i in range({count}):\n        " + "\n        ".join(lines) + "\n"
    )
    for target in TARGETS:
        results = [np.zeros(count, array.dtype) for _, array in expected]
        relaxpy.compile(from_source(text), target)["main"](numbers, *results)
        for line, result, (dtype, array) in zip(lines, results, expected, strict=True):
            kind = np.float64 if dtype in FLOATS else array.dtype
            np.testing.assert_array_equal(
                result.astype(kind), array.astype(kind), f"{target}: {line}"
            )
