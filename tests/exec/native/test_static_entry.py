"""The entry that functions on arrays of fixed shapes share."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import FunctionSignatureError, RuntimeCheckError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder

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


def shares_entry(executable: relaxpy.Executable, path: Path) -> bool:
    """Whether the code of the function has no entry of its own."""
    executable.save(path / "model.json")
    stored = json.loads((path / "model.json").read_text())["native"]["objects"]
    codes = [base64.b64decode(entry["code"]) for entry in stored.values()]
    return not any(b"\0graph0.entry\0" in code for code in codes)


def arrays(count: int) -> list[Any]:
    return [np.full(SHAPE, n + 1, np.float32) for n in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 6, 13, 14])
def test_sums_of_matrices(count: int, tmp_path: Path) -> None:
    def total(*values: Any) -> Any:
        result = values[0]
        for value in values[1:]:
            result = op.add(result, value)
        return op.exp(op.negative(result))

    executable = compiled(count, total)
    assert shares_entry(executable, tmp_path) is (count < 14)
    operands = arrays(count)
    np.testing.assert_allclose(executable["main"](*operands), np.exp(-sum(operands)), 1e-6)


def test_a_tuple_of_results(tmp_path: Path) -> None:
    executable = compiled(2, lambda a, b: rx.Tuple([op.add(a, b), op.multiply(a, b)]))
    assert shares_entry(executable, tmp_path)
    a, b = arrays(2)
    total, product = executable["main"](a, b)
    assert (total == a + b).all()
    assert (product == a * b).all()


def test_a_result_that_is_an_argument_has_an_entry_of_its_own(tmp_path: Path) -> None:
    executable = compiled(1, lambda a: rx.Tuple([a, op.exp(a)]))
    assert not shares_entry(executable, tmp_path)
    (a,) = arrays(1)
    assert executable["main"](a)[0] is a


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
