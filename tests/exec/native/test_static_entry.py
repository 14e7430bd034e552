"""The entry that all functions share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import FunctionSignatureError, RelaxpyError, RuntimeCheckError
from relaxpy.ir import ops as op
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.script import from_source
from tests.exec.native.claims import claim

pytest.importorskip("llvmlite")

SHAPE = (3, 5)


def compiled(count: int, result: Callable[..., Any]) -> relaxpy.Executable:
    """A function of `count` matrices."""
    sinfo = rx.TensorStructInfo(SHAPE, DataType("float32"))
    params = [rx.Var(f"x{n}", sinfo) for n in range(count)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.normalize(result(*params)))
    return relaxpy.compile(builder.finalize(), target="native")


def arrays(count: int) -> list[Any]:
    return [np.full(SHAPE, n + 1, np.float32) for n in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 6, 13, 14, 60])
def test_sums_of_matrices(count: int) -> None:
    def total(*values: Any) -> Any:
        result = values[0]
        for value in values[1:]:
            result = op.add(result, value)
        return op.exp(op.negative(result))

    executable = compiled(count, total)
    operands = arrays(count)
    np.testing.assert_allclose(executable["main"](*operands), np.exp(-sum(operands)), 1e-6)


def test_results_are_arguments_new_arrays_and_nested_tuples_of_both() -> None:
    def result(a: Any, b: Any) -> Any:
        new, other = op.exp(a), op.add(a, b)
        return rx.Tuple([a, rx.Tuple([new, rx.Tuple([]), b]), other, new])

    executable = compiled(2, result)
    a, b = arrays(2)
    references = [*map(sys.getrefcount, (a, b))]
    for _ in range(50):
        first, (new, unit, second), other, again = executable["main"](a, b)
        assert first is a
        assert second is b
        assert new is again
        assert unit == ()
    assert (other == a + b).all()
    np.testing.assert_allclose(new, np.exp(a), 1e-6)
    assert sys.getrefcount(other) == 2
    assert sys.getrefcount(new) == 3
    del first, second
    assert [*map(sys.getrefcount, (a, b))] == references


def test_other_arguments_are_left_to_python() -> None:
    executable = compiled(2, op.add)
    main, (a, b) = executable["main"], arrays(2)
    expected = a + b
    backwards = np.asfortranarray(b)
    unaligned = np.frombuffer(b"\0" + b.tobytes(), np.uint8)[1:].view(np.float32).reshape(SHAPE)
    read_only = b.copy()
    read_only.flags.writeable = False
    for other in (backwards, unaligned, read_only, b[::1]):
        assert (main(a, other) == expected).all()
    assert (main(a, x1=b) == expected).all()
    for wrong in (b[:2], b.astype(np.float64), b[None], b.astype(">f4")[:0], None, 3):
        with pytest.raises(FunctionSignatureError):
            main(a, wrong)
    with pytest.raises(RuntimeCheckError):
        main(a)
    assert (main(a, b) == expected).all()


def test_calls_keep_no_references() -> None:
    executable = compiled(2, lambda a, b: rx.Tuple([op.add(a, b), op.multiply(a, b)]))
    main, (a, b) = executable["main"], arrays(2)
    dtype = a.dtype
    before = sys.getrefcount(a), sys.getrefcount(dtype)
    for _ in range(50):
        results = main(a, b)
    references = sys.getrefcount(results[0])
    assert references == 2  # the tuple and the argument
    del results
    assert (sys.getrefcount(a), sys.getrefcount(dtype)) == before


def test_a_kernel_that_refuses_its_data() -> None:
    indices = rx.Var("i", rx.TensorStructInfo((4,), DataType("int64")))
    data = rx.Var("x", rx.TensorStructInfo(SHAPE, DataType("float32")))
    builder = BlockBuilder()
    with builder.function("main", [data, indices]):
        builder.emit_func_output(builder.normalize(op.take(data, indices, 0)))
    executable = relaxpy.compile(builder.finalize(), target="native")
    (x,) = arrays(1)
    assert (executable["main"](x, np.array([2, 0, 1, 2])) == x[[2, 0, 1, 2]]).all()
    with pytest.raises(RuntimeCheckError):
        executable["main"](x, np.array([2, 0, 1, 3]))


# ---- kernels that Python calls

PARAMS = """X: T.Buffer((3, 4), "float32"), Y: T.Buffer((4,), "float32"), \
Z: T.Buffer((3, 4), "float32"), W: T.Buffer((3, 4), "float32")"""
BODY = ["for i, j in T.grid(3, 4):", "    Z[i, j] = X[i, j] + Y[j]", "    W[i, j] = X[i, j] * Y[j]"]


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).random(shape, np.float32)


@pytest.mark.usefixtures("no_text")
def test_a_kernel_that_takes_its_arguments_has_no_text() -> None:
    text = f"@T.prim_func\ndef main({PARAMS}):\n" + "".join(f"    {line}\n" for line in BODY)
    main = relaxpy.compile(from_source(text), target="native")["main"]
    x, y, z, w = floats(3, 4), floats(4), floats(3, 4), floats(3, 4)
    assert main(x, y, z, w) == ()
    assert (z == x + y).all()
    assert (w == x * y).all()


def test_arguments_of_kernels_are_checked_as_on_numpy() -> None:
    kernel = claim(BODY, PARAMS)
    x, y, z, w = floats(3, 4), floats(4), floats(3, 4), floats(3, 4)
    kernel.runs(x, y, z, w)
    kernel.runs(x, x[1], z, w)  # arrays that are only read may overlap
    for wrong in (floats(4, 3), floats(4), floats(1, 3, 4), x.astype(np.float64), None, 1.0):
        kernel.fails("X", wrong, y, z, w)
        kernel.fails("W", x, y, z, wrong)
    kernel.same(x, y, z)
    kernel.same(x, y, z, w, x)
    # What follows goes to NumPy, which runs it, or to native code as copies.
    calls = len(kernel.refused)
    backwards = np.asfortranarray(x)
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 4)
    for other in (backwards, unaligned, floats(6, 4)[::2], floats(3, 8)[:, ::2]):
        assert kernel.same(other, y, z, w) is None
        assert kernel.same(x, y, z, other) is None
    assert len(kernel.refused) >= calls + 8
    read_only = np.frombuffer(z.tobytes(), np.float32).reshape(3, 4)
    kernel.runs(read_only, y, z, w)
    kernel.same(x, y, z, read_only)


@pytest.mark.parametrize("first", range(0, 26, 3))
@pytest.mark.parametrize("second", range(0, 26, 4))
def test_written_arrays_that_overlap_run_as_the_text_says(first: int, second: int) -> None:
    results = []
    for executable in overlapping():
        memory = np.arange(60, dtype=np.float32)
        x, y = memory[18:30].reshape(3, 4), memory[56:]
        z, w = (memory[n : n + 12].reshape(3, 4) for n in (first, second + 14))
        executable["main"](x, y, z, w)
        results.append(memory)
    np.testing.assert_array_equal(*results)


@functools.cache
def overlapping() -> tuple[relaxpy.Executable, relaxpy.Executable]:
    """The kernel on both targets."""
    text = f"@T.prim_func\ndef main({PARAMS}):\n" + "".join(f"    {line}\n" for line in BODY)
    func = from_source(text)
    return relaxpy.compile(func, target="native"), relaxpy.compile(func, target="reference")


@pytest.mark.parametrize("count", [1, 14, 15])
def test_kernels_of_many_arrays(count: int) -> None:
    names = [f"A{n}" for n in range(count)]
    params = ", ".join(f'{name}: T.Buffer((2, 3), "int16")' for name in names)
    elements = [f"{name}[i, j]" for name in names]
    func = from_source(
        f"@T.prim_func\ndef main({params}):\n    for i, j in T.grid(2, 3):\n"
        f"        {elements[-1]} = {' + '.join(elements)}\n"
    )
    arrays = [np.full((2, 3), n, np.int16) for n in range(count)]
    executable = relaxpy.compile(func, target="native")
    executable["main"](*arrays)
    assert (arrays[-1] == sum(range(count))).all()
    with pytest.raises(RelaxpyError):
        executable["main"](*arrays[1:])
    assert "def main(" in executable.source


def test_an_index_that_native_code_refuses_is_an_error_of_the_text() -> None:
    func = from_source("""
@T.prim_func
def main(X: T.Buffer((5,), "float32"), P: T.Buffer((3,), "int32"), Y: T.Buffer((3,), "float32")):
    for i in range(3):
        Y[i] = X[P[i]]
""")
    main = relaxpy.compile(func, target="native")["main"]
    x, y = floats(5), np.zeros(3, np.float32)
    main(x, np.array([4, 0, 1], np.int32), y)
    assert (y == x[[4, 0, 1]]).all()
    with pytest.raises(RuntimeCheckError, match="index 5 is outside"):
        main(x, np.array([4, 5, 1], np.int32), y)


def test_kernels_without_elements() -> None:
    func = from_source("""
@T.prim_func
def main(X: T.Buffer((0, 3), "float32"), Y: T.Buffer((), "float32")):
    for i, j in T.grid(0, 3):
        Y[()] = X[i, j]
    Y[()] = T.float32(2)
""")
    y = np.zeros((), np.float32)
    relaxpy.compile(func, target="native")["main"](np.zeros((0, 3), np.float32), y)
    assert y == 2
