"""Executables, machines and functions travel to other processes, by pickle and by copy."""

from __future__ import annotations

import copy
import copyreg
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import cloudpickle
import dask
import joblib
import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, PackedFuncError, RuntimeCheckError
from relaxpy.exec.store import container
from relaxpy.ir.module import IRModule
from relaxpy.script import ir as I, relax as R

X = np.arange(6, dtype="float32").reshape(2, 3)


@R.function
def double(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
    y = R.add(x, x)
    return y


@I.ir_module
class Module:
    @R.function
    def shift(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        return x + R.const(np.array([1, 2, 3], "float32"))

    @R.function
    def main(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        y = Module.shift(x)
        return Module.shift(y)


def expected(x: np.ndarray) -> np.ndarray:
    return x + 2 * np.array([1, 2, 3], "float32")


def by_pickle(value: object) -> object:
    return pickle.loads(pickle.dumps(value))


def by_cloudpickle(value: object) -> object:
    return pickle.loads(cloudpickle.dumps(value))


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("again", [by_pickle, by_cloudpickle, copy.copy, copy.deepcopy])
def test_executables_and_their_functions(again: Callable[..., object], target: str) -> None:
    ex = relaxpy.compile(Module, target)
    for twin in (again(ex), again(relaxpy.VirtualMachine(ex))):
        np.testing.assert_array_equal(twin["main"](X), expected(X))  # type: ignore[index]
    assert again(ex).target == target  # type: ignore[attr-defined]
    np.testing.assert_array_equal(again(ex["main"])(X), expected(X))  # type: ignore[operator]
    np.testing.assert_array_equal(again(double)(X), X + X)  # type: ignore[operator]
    np.testing.assert_array_equal(
        relaxpy.compile(again(Module))["main"](X),  # type: ignore[arg-type]
        expected(X),
    )


def test_a_copy_of_what_does_not_change_is_the_thing_itself() -> None:
    ex = relaxpy.compile(Module)
    for value in (ex, ex["main"]):
        assert copy.copy(value) is value
        assert copy.deepcopy(value) is value


def test_an_executable_is_read_once_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    ex = relaxpy.compile(Module)
    first, second = pickle.loads(pickle.dumps((ex, ex["main"])))
    monkeypatch.delattr(container, "_parsed")
    assert pickle.loads(pickle.dumps(ex)) is first
    assert second is first["main"]


def test_a_machine_keeps_its_inputs_and_saved_functions() -> None:
    vm = relaxpy.VirtualMachine(relaxpy.compile(Module))
    vm.save_function("main", "on_x", X)
    vm.set_input("main", X + 1)
    twin = pickle.loads(pickle.dumps(vm))
    twin.invoke_stateful("main")
    np.testing.assert_array_equal(twin.get_outputs("main"), expected(X + 1))
    np.testing.assert_array_equal(twin["on_x"](), expected(X))
    assert twin.profile("main", X) is not None


@R.function
def make(x: R.Tensor((3,), "float32")):
    @R.function
    def inner(y: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        return R.add(x, y)

    return inner


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy])
def test_a_closure_is_copied_as_a_function_is(again: Callable[..., object], target: str) -> None:
    vm = relaxpy.VirtualMachine(relaxpy.compile(IRModule({"make": make}), target))
    closure = vm["make"](X[0])
    assert again(closure) is closure
    vm.set_input("make", X[0])
    vm.invoke_stateful("make")
    twin = again(vm).get_outputs("make")  # type: ignore[attr-defined]
    np.testing.assert_array_equal(twin(X[1]), X[0] + X[1])


def test_a_closure_is_refused_with_what_to_pickle_instead() -> None:
    closure = relaxpy.compile(IRModule({"make": make}))["make"](X[0])
    with pytest.raises(MisuseError, match="pickle the executable"):
        pickle.dumps(closure)


def test_what_a_worker_raises_arrives_whole() -> None:
    ex = relaxpy.compile(Module)
    with pytest.raises(RuntimeCheckError) as caught:
        ex["main"](X[:, :2])
    twin = pickle.loads(pickle.dumps(caught.value))
    assert type(twin) is type(caught.value)
    assert str(twin) == str(caught.value)


class LimitError(Exception):
    """Its `__init__` takes other arguments than its `args`, so pickle alone cannot load it."""

    def __init__(self, limit: int, unit: str) -> None:
        super().__init__(f"{limit} {unit}")
        self.limit = limit


class LockedError(LimitError):
    """One of its attributes cannot be pickled."""

    def __init__(self) -> None:
        super().__init__(3, "locks")
        self.lock = threading.Lock()


def local_error() -> Exception:
    class LocalError(LimitError):
        """Its class cannot be imported by name."""

    return LocalError(3, "rows")


@pytest.mark.parametrize("again", [by_pickle, copy.deepcopy])
@pytest.mark.parametrize(
    "raised",
    [
        LimitError(3, "rows"),
        LockedError(),
        local_error(),
        ExceptionGroup("several", [LimitError(3, "rows"), LockedError()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_packed_function_raises_is_pickled_with_its_class_and_attributes(
    again: Callable[[object], object], raised: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Dask registers for all classes of exceptions that their contexts are pickled, too.
    for kind in [k for k in copyreg.dispatch_table if issubclass(k, BaseException)]:
        monkeypatch.delitem(copyreg.dispatch_table, kind)

    def fail(x: object) -> object:
        raise raised

    @R.function(pure=False)
    def main(x: R.Tensor):
        y = R.call_packed("test.pickled_failure", x, sinfo_args=R.Object)
        return y

    relaxpy.register_func("test.pickled_failure", fail, override=True)
    with pytest.raises(type(raised)) as caught:
        relaxpy.compile(IRModule({"main": main}))(X)
    twin = again(caught.value)
    assert isinstance(twin, PackedFuncError)
    assert str(twin) == str(caught.value)
    for error in (twin, twin.failure):
        if isinstance(error, ExceptionGroup):
            assert isinstance(raised, ExceptionGroup)
            assert error.message == raised.message
            first, second = error.exceptions
            assert (type(first), type(second)) == (LimitError, LockedError)
            assert second.args == ("3 locks",)
        else:
            assert isinstance(error, LimitError)
            assert (error.args, error.limit) == (raised.args, 3)


def test_processes_of_multiprocessing() -> None:
    ex, context = relaxpy.compile(Module), multiprocessing.get_context("spawn")
    batches = [X + k for k in range(4)]
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        for batch, found in zip(batches, pool.map(ex["main"], batches), strict=True):
            np.testing.assert_array_equal(found, expected(batch))
        np.testing.assert_array_equal(pool.submit(double, X).result(), X + X)


def test_workers_of_joblib() -> None:
    ex = relaxpy.compile(Module)
    tasks = [joblib.delayed(ex["main"])(X + k) for k in range(3)]
    for k, found in enumerate(joblib.Parallel(n_jobs=2)(tasks)):
        np.testing.assert_array_equal(found, expected(X + k))


def test_tasks_of_dask() -> None:
    main = dask.delayed(relaxpy.compile(Module)["main"])
    tasks = [main(X + k) for k in range(3)]
    for k, found in enumerate(dask.compute(*tasks, scheduler="processes", num_workers=1)):
        np.testing.assert_array_equal(found, expected(X + k))
