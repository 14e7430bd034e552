"""Arrays that are not contiguous or aligned reach native code as copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.program.graph import link as graphs
from relaxpy.exec.runtime import support
from relaxpy.script import from_source

Array = np.ndarray[Any, Any]
GRAPH = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("n", "m"), "float32")):
        with R.dataflow():
            z = R.add(x, y)
            R.output(z)
        return z, (x, y)
"""
KERNEL = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        B[i] = A[i] + T.float32(1)
"""


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list with an element for each call that runs as the text says."""
    calls: list[int] = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **keywords: Any) -> Any:
            calls.append(1)
            return function(*args, **keywords)

        return count

    monkeypatch.setattr(graphs._Fallback, "__call__", counted(graphs._Fallback.__call__))
    monkeypatch.setattr(support, "run_kernel", counted(support.run_kernel))
    return calls


def unaligned(array: Array) -> Array:
    memory = np.zeros(array.nbytes + 1, "uint8")
    result = memory[1:].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "every second": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "unaligned": unaligned,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arguments_of_relax_functions(layout: str, left: list[int]) -> None:
    main = relaxpy.compile(from_source(GRAPH), target="native")["main"]
    x, y = (np.random.default_rng(k).random((5, 7), "float32") for k in range(2))
    given = LAYOUTS[layout](x)
    total, pair = main(given, y)
    np.testing.assert_array_equal(total, given + y)
    assert pair[0] is given
    assert pair[1] is y
    assert not left


def test_errors_are_those_of_the_arguments() -> None:
    main = relaxpy.compile(from_source(GRAPH), target="native")["main"]
    x = np.zeros((5, 7), "float32").T
    with pytest.raises(RelaxpyError, match="7"):
        main(x, np.zeros((5, 7), "float32"))


def test_arguments_of_kernels(left: list[int]) -> None:
    main = relaxpy.compile(from_source(KERNEL), target="native")["main"]
    memory = np.arange(20, dtype="float32")
    result = np.zeros(10, "float32")
    main(memory[::2], result)
    np.testing.assert_array_equal(result, memory[::2] + 1)
    assert not left
    # What is written stays where it is, and is read as the text says.
    strided = np.zeros(20, "float32")
    main(memory[:10], strided[::2])
    np.testing.assert_array_equal(strided[::2], memory[:10] + 1)
    assert len(left) == 1
    main(memory[:19:2], memory[10:])
    assert len(left) == 2


def test_arrays_that_are_larger_than_their_memory_are_not_copied(left: list[int]) -> None:
    main = relaxpy.compile(from_source(KERNEL), target="native")["main"]
    huge = np.broadcast_to(np.float32(1), (10**13,))
    with pytest.raises(RelaxpyError, match="dimension 0 should be n = 10000000000000"):
        main(huge, np.zeros(10, "float32"))
    assert len(left) == 1
