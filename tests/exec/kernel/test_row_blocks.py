"""Blocks of rows cover all rows, whichever threads run them."""

import gc
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec import blas
from relaxpy.exec.kernel import row_blocks


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_blocks_cover_all_rows_once_and_pass_errors_on(
    monkeypatch: pytest.MonkeyPatch, threads: int, products: bool
) -> None:
    monkeypatch.setattr(row_blocks, "TARGET", 40)
    monkeypatch.setattr(row_blocks, "threads", lambda: threads)
    for work in (0, 1 << 30):
        for count in (0, 1, 2, 3, 17, 100):
            seen = np.zeros(count + 2, int)

            def rows(
                lo: int, hi: int, empty: Callable[..., np.ndarray], seen: np.ndarray = seen
            ) -> None:
                ones = empty((hi - lo, 2), np.dtype("int64"))
                ones[...] = 1
                seen[lo:hi] += ones[:, 1]

            row_blocks.blocks(rows, 1, count + 1, 10, work, products=products)
            assert seen.tolist() == [0, *[1] * count, 0]

        def failing(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
            raise RuntimeCheckError("stop")

        with pytest.raises(RuntimeCheckError, match="stop"):
            row_blocks.blocks(failing, 0, 100, 10, work, products=products)


@pytest.mark.parametrize("kind", [RuntimeCheckError, KeyboardInterrupt])
def test_no_block_begins_after_an_error_and_the_first_row_decides(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    both, ended = threading.Barrier(2), threading.Event()
    here = threading.get_ident()
    begun: list[tuple[bool, int]] = []

    def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        is_here = threading.get_ident() == here
        is_second = any(thread == is_here for thread, _ in begun)
        begun.append((is_here, lo))
        if is_second and is_here:
            ended.set()
            raise kind("row 50")
        both.wait(10)
        if not is_here:
            assert ended.wait(10)
            time.sleep(0.05)  # the other thread fails first, in a later row
            if kind is RuntimeCheckError:
                raise kind("an earlier row")

    expected = "row 50" if kind is KeyboardInterrupt else "an earlier row"
    with pytest.raises(kind, match=expected):
        row_blocks.blocks(rows, 0, 100, 10, 1 << 30)
    assert sorted(lo for _, lo in begun) == [0, 25, 50]


def test_an_error_keeps_no_memory_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the array of a block that failed nor its error is in a reference cycle."""
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    found: list[weakref.ref[object]] = []

    def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        array = np.empty(8)
        found.append(weakref.ref(array))
        raise RuntimeCheckError(f"row {lo} of {array.size}")

    gc.disable()
    try:
        with suppress(RuntimeCheckError):
            row_blocks.blocks(rows, 0, 100, 10, 1 << 30)
        assert found
        assert all(ref() is None for ref in found)
    finally:
        gc.enable()


def test_products_are_on_one_thread_of_blas_each(monkeypatch: pytest.MonkeyPatch) -> None:
    if not blas.has_thread_limit():
        pytest.skip("NumPy's BLAS has no threads")
    monkeypatch.setattr(row_blocks, "_busy_until", 0.0)
    monkeypatch.setattr(row_blocks, "BUSY_SECONDS", 0.0)
    count = blas._openblas("get_num_threads")
    before = count()
    blas._openblas("set_num_threads")(3)
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    met = threading.Barrier(2)
    found: list[Any] = []

    def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        met.wait(10)  # each thread has a block
        found.append((lo, hi, count()))

    def failing(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        raise RuntimeCheckError("stop")

    try:
        row_blocks.blocks(rows, 0, 8, 10, 1 << 30, products=True)
        assert sorted(found) == [(0, 4, 1), (4, 8, 1)]
        assert count() == 3
        with pytest.raises(RuntimeCheckError, match="stop"):
            row_blocks.blocks(failing, 0, 8, 10, 1 << 30, products=True)
        assert count() == 3
    finally:
        blas._openblas("set_num_threads")(before)


def test_products_are_left_to_blas_while_processors_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not blas.has_thread_limit():
        pytest.skip("NumPy's BLAS has no threads")
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    monkeypatch.setattr(row_blocks, "_busy_until", 0.0)
    monkeypatch.setattr(row_blocks, "BUSY_SECONDS", 3600.0)
    monkeypatch.setattr(row_blocks, "MOST_WAITING", 0.0)  # every product seems to be slow
    monkeypatch.setattr(row_blocks, "_slow", 0)
    found: list[tuple[int, int]] = []

    def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        found.append((lo, hi))

    for _ in range(row_blocks.MOST_SLOW):
        row_blocks.blocks(rows, 0, 8, 10, 1 << 30, products=True)
        assert sorted(found) == [(0, 4), (4, 8)]
        found.clear()
    row_blocks.blocks(rows, 0, 8, 10, 1 << 30, products=True)
    assert found == [(0, 8)]


def test_one_thread_starts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(row_blocks, "threads", lambda: 1)
    monkeypatch.setattr(row_blocks, "_pool", refused)
    monkeypatch.setattr(row_blocks, "one_blas_thread", refused)
    found: list[threading.Thread] = []

    def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        found.append(threading.current_thread())

    for products in (False, True):
        row_blocks.blocks(rows, 0, 100, 1 << 20, 1 << 30, products=products)
    assert set(found) == {threading.current_thread()}


def test_memory_of_a_block_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of one block do not overlap, nor do those of calls within a block."""
    monkeypatch.setattr(row_blocks, "WORTH_SCRATCH", 0)
    monkeypatch.setattr(row_blocks, "TARGET", 1 << 12)
    monkeypatch.setattr(row_blocks, "_scratch", [])
    found: list[np.ndarray] = []

    def inner(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        found.append(empty((hi - lo, 16), np.dtype("float32")))

    def outer(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        found[:] = [empty((3,), np.dtype("int8")), empty((hi - lo, 8), np.dtype("float64"))]
        row_blocks.blocks(inner, 0, 8, 64, 0)
        found.append(empty((1 << 13,), np.dtype("int8")))  # more than a block should need
        for number, array in enumerate(found):
            assert array.flags.aligned
            array[...] = number
        assert [np.unique(array).tolist() for array in found] == [[n] for n in range(len(found))]

    row_blocks.blocks(outer, 0, 100, 64, 0)
    assert [array.shape for array in found] == [(3,), (36, 8), (8, 16), (1 << 13,)]
    assert len(row_blocks._scratch) <= row_blocks.threads()
