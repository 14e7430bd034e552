"""The number of threads of NumPy's BLAS is limited while somebody asks, and then restored."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from relaxpy.exec.machine import blas
from relaxpy.exec.machine.blas import one_blas_thread

pytestmark = pytest.mark.skipif(not blas.has_thread_limit(), reason="NumPy's BLAS has no threads")


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = threads()
    set_threads(3)
    yield
    set_threads(before)


def threads() -> Any:
    return blas._openblas("get_num_threads")()


def set_threads(count: int) -> None:
    blas._openblas("set_num_threads")(count)


def test_the_number_is_restored_after_the_last_of_nested_callers() -> None:
    with one_blas_thread():
        with one_blas_thread():
            assert threads() == 1
        assert threads() == 1
    assert threads() == 3


def test_the_number_is_restored_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError
    assert threads() == 3


def test_a_number_that_somebody_sets_meanwhile_stays() -> None:
    with one_blas_thread():
        set_threads(2)
    assert threads() == 2
    set_threads(1)
    with one_blas_thread():
        assert threads() == 1
    assert threads() == 1


def test_callers_of_several_threads_may_overlap_in_any_way() -> None:
    barrier = threading.Barrier(4)

    def caller(number: int) -> bool:
        barrier.wait(10)
        found = True
        for _ in range(200):
            with one_blas_thread():
                found &= threads() == 1
        return found

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(caller, range(4)))
    assert threads() == 3


def test_openmp_has_no_limit_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    found = blas._openblas
    openmp = {"get_parallel": lambda: blas.OPENMP}
    monkeypatch.setattr(blas, "_openblas", lambda name: openmp.get(name) or found(name))
    assert not blas.has_thread_limit()
    monkeypatch.setattr(blas, "_openblas", lambda name: None)
    assert not blas.has_thread_limit()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_process_may_begin_at_any_call_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    found = blas._openblas

    def forking(name: str) -> Callable[..., Any]:
        def call(*args: int) -> Any:
            result = found(name)(*args)
            monkeypatch.setattr(blas, "_openblas", found)
            # As if it were the fork of another thread, which is the only one of the child.
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
            monkeypatch.setattr(blas, "_openblas", forking)
            return result

        return call

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0 if threads() == 3 and blas._limit.callers == 0 else 1)
        statuses.append(os.waitpid(child, 0)[1])

    monkeypatch.setattr(blas, "_openblas", forking)
    with one_blas_thread():
        pass
    monkeypatch.setattr(blas, "_openblas", found)
    assert statuses == [0] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_process_has_no_caller_of_its_parent() -> None:
    inside, leave = threading.Event(), threading.Event()

    def caller() -> None:
        with one_blas_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=caller)
    thread.start()
    inside.wait(10)
    child = os.fork()
    if child == 0:
        found = threads() == 3
        with one_blas_thread():
            found &= threads() == 1
        os._exit(0 if found and threads() == 3 else 1)
    _, status = os.waitpid(child, 0)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert threads() == 3
