"""Entries run the kernel on the arrays that it takes, and the fallback on everything else."""

import ctypes
import gc
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.native.calls.entry import Array, Integer, Param, sizes_of
from relaxpy.exec.native.calls.entry_table import entry_table
from relaxpy.exec.native.calls.interpreter import DTYPES, fits_interpreter
from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import F32, I32, I64, POINTER
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.machine_code.objects import Library
from relaxpy.ir.tir.expr import IntImm, Var
from relaxpy.script import from_source

Entry = Callable[..., object]
N, M, K, THREE = (*(Var(name, "int64") for name in "nmk"), IntImm("int64", 3))
PARAMS = (Array("float32", (N, THREE)), Integer(K), Array("float32", (N, THREE), written=True))


def fallback(*args: object, **keywords: object) -> tuple[object, ...]:
    return ("fallback", args, keywords)


def library_of() -> Library:
    """`kernel(x, k, y, n)` stores x + k in y; it refuses a negative k."""
    module = Module(host().triple, host().vector_bits)
    f = module.function("kernel", [(POINTER, "x"), (I64, "k"), (POINTER, "y"), (I64, "n")], I32)
    x, k, y, n = f.params
    negative = f.compare("slt", k, 0)

    def run() -> None:
        def body(index: Any) -> None:
            value = f.load(F32, f.element(x, index, F32)) + f.cast("sitofp", k, "float")
            f.store(value, f.element(y, index, F32))

        f.loop(0, n * 3, 1, [], body)

    f.branch(negative, lambda: None, run)
    f.ret(f.cast("zext", negative, "i32"))
    return compile_module(module, ["kernel"])


def entry(params: tuple[Param, ...], fallback: Entry, library: Library | None = None) -> Entry:
    """The kernel with these parameters in Python."""
    return entry_table("kernel", params).builtin(library or library_of(), "kernel", fallback)


@pytest.fixture(scope="module")
def kernel() -> Entry:
    return entry(PARAMS, fallback)


def arrays(n: int = 4) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.arange(3 * n, dtype=np.float32).reshape(n, 3), np.full((n, 3), -1, np.float32)


def test_this_interpreter_fits() -> None:
    assert fits_interpreter()


def test_sizes_come_in_the_order_of_parameters() -> None:
    assert sizes_of([*PARAMS, Array("int8", (M, THREE, N))]) == [N, M]
    assert sizes_of([Integer(N), Array("int8", (M, N, THREE))]) == [M]


@pytest.mark.parametrize("n", [0, 1, 5])
def test_the_kernel_runs_and_returns_unit(kernel: Entry, n: int) -> None:
    x, y = arrays(n)
    for k in (7, np.int64(7)):
        y[...] = -1
        assert kernel(x, k, y) == ()
        assert np.array_equal(y, x + 7)


class Subclass(np.ndarray[Any, Any]):
    pass


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    return raw[1:].view(array.dtype).reshape(array.shape)


X, Y = arrays()
WHOLE = np.zeros((9, 3), np.float32)


@pytest.mark.parametrize(
    "args",
    [
        (),
        (X, 1),
        (X, 1, Y, 2),
        (None, 1, Y),
        (X.tolist(), 1, Y),
        (X, 1.0, Y),
        (X, True, Y),
        (X, np.int32(1), Y),
        (X, np.uint64(1), Y),
        (X, 2**63, Y),
        (X, -(2**63) - 1, Y),
        (X.astype(np.float64), 1, Y),
        (X.astype(np.int32), 1, Y),
        (X.astype(">f4"), 1, Y),
        (X.astype(ml_dtypes.bfloat16), 1, Y),
        (X.reshape(-1), 1, Y),
        (X[None], 1, Y),
        (np.float32(1), 1, Y),
        (X[:3], 1, Y),
        (X, 1, Y[:3]),
        (np.zeros((4, 4), np.float32), 1, Y),
        (X[::2], 1, Y[:2]),
        (np.asfortranarray(X), 1, Y),
        (X[:, ::-1], 1, Y),
        (X.view(Subclass), 1, Y),
        (np.ma.masked_array(X), 1, Y),
        (X, 1, read_only(Y)),
        (unaligned(X), 1, Y),
        (WHOLE[:4], 1, WHOLE[3:7]),
        (WHOLE[4:8], 1, WHOLE[3:7]),
        (WHOLE[:4], 1, WHOLE[:4]),
        (X, -1, Y),
    ],
    ids=lambda args: " ".join(type(a).__name__ + str(getattr(a, "shape", "")) for a in args),
)
def test_other_arguments_go_to_the_fallback(kernel: Entry, args: tuple[object, ...]) -> None:
    Y[...] = -1
    result = kernel(*args)
    assert isinstance(result, tuple)
    assert result[0] == "fallback"
    assert len(result[1]) == len(args)
    assert all(a is b for a, b in zip(result[1], args, strict=True))
    assert (Y == -1).all()


def test_keyword_arguments_go_to_the_fallback(kernel: Entry) -> None:
    x, y = arrays()
    result = kernel(x, k=1, y=y)
    assert isinstance(result, tuple)
    assert result[1][0] is x
    assert result[2]["k"] == 1
    assert result[2]["y"] is y
    assert isinstance(kernel(x, 1, y, extra=None), tuple)


def test_errors_of_the_fallback_are_raised() -> None:
    def fails(*_: object) -> None:
        raise ValueError("not an array")

    kernel = entry(PARAMS, fails)
    with pytest.raises(ValueError, match="not an array"):
        kernel(1, 2, 3)


def test_read_only_inputs_and_neighbours_are_accepted(kernel: Entry) -> None:
    x, _ = arrays()
    whole = np.zeros((8, 3), np.float32)
    whole[:4] = x
    assert kernel(whole[:4], 2, whole[4:]) == ()
    assert kernel(read_only(x), 2, whole[:4]) == ()
    assert np.array_equal(whole, np.concatenate([x + 2, x + 2]))


def test_objects_are_neither_lost_nor_kept(kernel: Entry) -> None:
    class Item(np.ndarray[Any, Any]):
        pass

    x, y = arrays()
    item = x.view(Item)
    alive = weakref.ref(item)
    none = ctypes.c_int32.from_address(id(None)).value
    for _ in range(10_000):
        kernel(x, 1, y)
    assert abs(ctypes.c_int32.from_address(id(None)).value - none) < 100
    kernel(item, 1, y)
    del item
    gc.collect()
    assert alive() is None


def test_the_entry_keeps_its_code_and_nothing_else_keeps_it() -> None:
    library = library_of()
    kernel = entry(PARAMS, fallback, library)
    code = weakref.ref(library)
    del library
    gc.collect()
    x, y = arrays()
    assert kernel(x, 1, y) == ()
    del kernel
    gc.collect()
    assert code() is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_all_datatypes_are_known(dtype: str) -> None:
    params = (Array(dtype, (N,)), Integer(K), Array(dtype, (N,), written=True))
    module = Module(host().triple, host().vector_bits)
    f = module.function("kernel", [(POINTER, "x"), (I64, "k"), (POINTER, "y"), (I64, "n")], I32)
    f.ret(f.const(I32, 0))
    kernel = entry(params, fallback, compile_module(module, ["kernel"]))
    for other in DTYPES.values():
        x, y = np.zeros(3, other), np.zeros(3, other)
        assert (kernel(x, 0, y) == ()) == (other.name == dtype)
        pickled = pickle.loads(pickle.dumps(x))  # its datatype is another object
        assert (kernel(pickled, 0, y) == ()) == (other.name == dtype)
        if other.itemsize > 1 and other.isnative:
            assert kernel(x.astype(other.newbyteorder()), 0, y) is not None


def test_several_threads_call_an_entry(kernel: Entry) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        x, y = arrays(50)
        for _ in range(500):
            kernel(x, number, y)
            if not np.array_equal(y, x + number):
                wrong.append(number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))  # raises what a thread does
    assert wrong == []


@pytest.mark.parametrize("letter", "bhilqBHILQ")
def test_each_integer_of_c_enters_as_the_one_of_its_size(letter: str, no_text: None) -> None:
    """Two have the same size, such as those of `array.array("l")` and `array.array("q")`."""
    x = np.asarray(memoryview(bytes(range(64))).cast(letter)).astype(letter, copy=False)
    assert x.dtype.char == letter
    name = x.dtype.name
    text = f'@R.function\ndef main(x: R.Tensor(("n",), "{name}")):\n    return R.add(x, x)'
    main = relaxpy.compile(from_source(text), "native")["main"]
    found = main(x)
    assert found.dtype == name
    np.testing.assert_array_equal(found, x + x)


@pytest.mark.parametrize("letter", "bhilqBHILQ")
def test_other_datatypes_of_the_same_size_do_not_enter(letter: str) -> None:
    x = np.ones(4, letter)
    others = {"uint" if x.dtype.kind == "i" else "int", "float"}
    names = {f"{kind}{8 * x.itemsize}" for kind in others} - {"float8"}
    for name in names:
        text = f'@R.function\ndef main(x: R.Tensor((4,), "{name}")):\n    return R.add(x, x)'
        with pytest.raises(RelaxpyError, match=rf"its dtype is {x.dtype.name}, not {name}"):
            relaxpy.compile(from_source(text), "native")["main"](x)
