"""A loop that is too long to end ends where an index, a divisor or an assertion fails."""

import faulthandler
from collections.abc import Iterator

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from tests.exec.native.claims import claim

LAST = 2**63 - 1
PARAMS = (
    'm: T.int64, n: T.int64, A: T.Buffer((8,), "float32"), I: T.Buffer((8,), "int64"), '
    'B: T.Buffer((8,), "float32")'
)
A = np.arange(8, dtype="float32")
ZEROS = np.zeros(8, "float32")


@pytest.fixture(autouse=True)
def _deadline() -> Iterator[None]:
    """Nothing else ends native code that does not end."""
    faulthandler.dump_traceback_later(100, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize(
    ("m", "body"),
    [
        (0, ["for i in range(m, n):", "    B[0] = B[0] + A[i]"]),
        (0, ["for i in range(n):", "    B[0] = B[0] + A[i]"]),
        (0, ["for i in range(n):", "    B[i] = A[i]"]),
        (0, ["for i in range(n):", "    B[0] = B[0] + A[n - 1 - i]"]),
        (0, ["for i in range(n):", "    B[0] = B[0] + A[7 - i]"]),
        (-3, ["for i in range(m, n - 4):", "    B[0] = B[0] + A[i]"]),
        (LAST - 3, ["for i in range(m, n):", "    B[0] = B[0] + A[i - m + 6]"]),
        (1, ["for i in range(n):", "    for j in range(m):", "        B[j] = A[i * 2 + j]"]),
        (1, ["for j in range(m):", "    for i in range(n):", "        B[j] = B[j] + A[i + j]"]),
        (3, ["for j in range(m):", "    for i in range(n // 4):", "        B[j] = A[i * 2 + j]"]),
        (3, ["for i in range(n):", "    if i >= m:", "        B[0] = B[0] + A[i]"]),
        (0, ["for i in range(I[3]):", "    B[0] = B[0] + A[i]"]),
    ],
)
def test_indices_that_are_known_first(m: int, body: list[str]) -> None:
    kernel = claim(body, PARAMS)
    lengths = np.array([0, 1, 2, LAST, 1, 1, 1, 1])
    kernel.fails("outside dimension 0 of buffer", m, LAST, A, lengths, ZEROS)


def test_products_of_two_arguments_may_wrap_so_that_none_is_known_first() -> None:
    kernel = claim(["for i in range(n):", "    B[i * m] = A[i * m]"], PARAMS)
    lengths = np.array([0, 1, 2, LAST, 1, 1, 1, 1])
    kernel.fails("needs more memory than there is", 2, LAST, A, lengths, ZEROS)
    kernel.runs(2, 4, A, lengths, ZEROS)


@pytest.mark.parametrize(
    "body",
    [
        # Each iteration reads what those before it computed.
        ["for i in range(n):", "    B[B32(0)] = B[i] + A[i]"],
        ["for i in range(n):", "    B[i % 4] = A[B32(i % 4) + i]"],
        ["for i in range(n):", "    for j in range(I[i]):", "        B[j % 8] = A[B32(j)]"],
        ["for i in range(2):", "    for j in range(n):", "        B[B32(j % 4)] = A[j]"],
        ["for i in range(n):", "    if B[i % 4] == T.float32(0):", "        B[B32(i)] = A[1]"],
        ["while B[0] < T.float32(1):", "    for i in range(n):", "        B[B32(i)] = B[i]"],
        ["for i in range(n):", "    while B[1] < A[i]:", "        B[1] = B[1] + A[B32(i)]"],
        ["for i in range(n):", "    if i == 2**60:", "        break", "    B[B32(i)] = B[i]"],
        ["for i in range(n):", "    B[i % 3] = T.Cast('float32', I[i % 3] // I[B32(i % 3)])"],
    ],
)
def test_indices_that_the_kernel_computes(body: list[str]) -> None:
    text = [line.replace("B32(", "T.Cast('int64', B[0]) + (") for line in body]
    kernel = claim(text, PARAMS)
    lengths = np.array([0, LAST, 1, LAST, 1, 1, 1, 1])
    found = kernel.same(0, LAST, A, lengths, ZEROS)
    assert found is not None
    assert "outside" in found or "zero" in found


def test_an_assertion() -> None:
    body = [
        "for i in range(n):",
        "    B[0] = B[0] + T.float32(1)",
        '    assert B[0] < T.float32(4), "too many"',
    ]
    kernel = claim(body, PARAMS)
    kernel.runs(0, 3, A, np.arange(8), ZEROS)
    kernel.fails("too many", 0, LAST, A, np.arange(8), ZEROS)


def test_the_first_failure_ends_all_tests_of_a_loop() -> None:
    # Native code cannot prove the first index, which is inside in all iterations.
    body = [
        "for i in range(n):",
        "    for j in range(m):",
        "        B[0] = B[0] + A[I[i % 4]] + A[i * 2 + j]",
    ]
    kernel = claim(body, PARAMS)
    kernel.runs(2, 3, A, np.arange(8), ZEROS)
    kernel.fails("memory", 2, LAST // 2, A, np.arange(8), ZEROS)  # NumPy needs too much


def test_loops_without_iterations() -> None:
    body = [
        "for i in range(n, n):",
        "    B[0] = B[0] + A[i]",
        "for i in range(n):",
        "    for j in range(m):",
        "        B[0] = B[0] + A[i + j]",
    ]
    kernel = claim(body, PARAMS)
    for m, n in ((LAST, 0), (LAST, -LAST), (-LAST, 1), (0, 7), (1, 7)):
        kernel.runs(m, n, A, np.arange(8), ZEROS)


@pytest.mark.parametrize("stop", [2**31 - 1, 2**31 - 2, -(2**31)])
def test_loops_over_int32(stop: int) -> None:
    params = 'n: T.int32, A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")'
    body = [
        "for i in range(n):",
        "    B[0] = B[0] + A[i + 1]",
        "for i in range(n - 3, n):",
        "    B[i - n + 3] = A[i - n + 4]",
    ]
    kernel = claim(body, params)
    if stop < 0:
        kernel.runs(0, A, ZEROS)
        kernel.runs(-5, A, ZEROS)
    else:
        kernel.fails("outside dimension 0 of buffer A", stop, A, ZEROS)


def test_the_last_iterations_of_int64() -> None:
    body = ["for i in range(m, n):", "    B[i - m] = A[n - 1 - i] + A[I[i - m]]"]
    kernel = claim(body, PARAMS)
    for count in (1, 3, 8):
        kernel.runs(LAST - count, LAST, A, np.arange(8), ZEROS)
    kernel.fails("outside", LAST - 9, LAST, A, np.arange(8), ZEROS)


def test_tasks() -> None:
    """A task that fails ends those of later iterations, which may take forever."""
    params = 'n: T.int64, A: T.Buffer((8,), "int64"), B: T.Buffer((300000,), "int64")'
    body = [
        'P = T.alloc_buffer((300000,), "int64")',
        "for i in range(300000):",
        "    P[i] = B[i] * T.int64(2)",
        "for i in range(300000):",
        "    for j in range(n):",
        "        B[i] = B[i] + A[P[i] + j % 2]",
    ]
    kernel = claim(body, params)
    b = np.zeros(300000, "int64")
    kernel.runs(3, np.arange(8), b)
    b[0] = 4
    kernel.fails("outside dimension 0 of buffer A", 3, np.arange(8), b, restored=True)
    with pytest.raises(RuntimeCheckError, match="index 8 is outside dimension 0 of buffer A"):
        kernel.native["main"](LAST, np.arange(8), b)


@pytest.mark.parametrize("index", ["i * 4", "i * 4 + m", "4 - i * 4", "i * 2 + j * 4", "i * m"])
def test_products_that_overflow(index: str) -> None:
    """With 64 bits, the last index would be inside."""
    body = ["for i in range(n):", "    for j in range(m):", f"        B[j % 8] = A[{index}]"]
    kernel = claim(body, PARAMS)
    kernel.runs(1, 2, A, np.arange(8), ZEROS)
    for m, n in ((1, 2**62 + 1), (2, 2**61 + 1), (2**62, 2**62 + 1), (1, 2**63 - 1)):
        if index != "i * m" or m > 1:
            found = kernel.same(m, n, A, np.arange(8), ZEROS)
            assert found is not None


@pytest.mark.parametrize(
    ("loops", "index"),
    [
        (("m, n", "0, n"), "i + j"),
        (("0, n", "m, 5"), "2 * i - j + 3"),
        (("m, n", "n, 7"), "i - 3 * j + 9"),
        (("0, n", "0, i"), "i + j + m"),
        (("m, n", "i, n"), "j - i + m"),
        (("0, n", "0, I[i % 8]"), "i - j + m"),
    ],
)
def test_native_code_refuses_exactly_what_is_outside(loops: tuple[str, str], index: str) -> None:
    body = [
        f"for i in range({loops[0]}):",
        f"    for j in range({loops[1]}):",
        f"        B[0] = B[0] + A[{index}]",
    ]
    kernel = claim(body, PARAMS)
    for m in range(-3, 5):
        for n in range(-1, 7):
            before = len(kernel.refused)
            found = kernel.same(m, n, A, np.arange(8) % 5, ZEROS)
            assert (found is not None) == (len(kernel.refused) > before)


@pytest.mark.parametrize(
    ("shape", "number", "message"),
    [
        ("n, n", 2**31, "cannot allocate a float32 tensor"),
        ("n, n", 2**32 + 1, "cannot allocate a float32 tensor"),
        ("n * 4,", 2**60, "cannot allocate a float32 tensor"),
        ("n + 5,", 2**63 - 3, "outside dimension 0 of buffer P"),
    ],
)
def test_local_memory_whose_size_overflows(shape: str, number: int, message: str) -> None:
    """With 64 bits, there would be memory of another size; a dimension wraps around."""
    last = "n - 1, n - 1" if shape == "n, n" else "n - 1"
    first = last.replace("n - 1", "0")
    body = [
        f'P = T.alloc_buffer(({shape}), "float32")',
        f"P[{first}] = A[1]",
        f"P[{last}] = A[2]",
        f"B[0] = P[{first}] + P[{last}]",
    ]
    kernel = claim(body, PARAMS)
    kernel.runs(0, 3, A, np.arange(8), ZEROS)
    kernel.fails(message, 0, number, A, np.arange(8), ZEROS)
