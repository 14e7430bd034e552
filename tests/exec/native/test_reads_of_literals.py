"""Programs on disk are found without the elements of large literals, unless passes read them."""

from __future__ import annotations

import mmap
import os
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import relaxpy
from relaxpy import relax
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.store import mapped as files, stored
from relaxpy.ir import structural_equal, structural_hash
from relaxpy.ir.core.memo import LARGE, noted_reads
from relaxpy.ir.core.traverse import walk
from relaxpy.relax.frontend.onnx import from_onnx
from relaxpy.script import from_source
from tests.exec.native.test_contract import numbers

N = 512
PRODUCT = "R.matmul(x, w)"
FOLDED = "R.matmul(x, R.multiply(w, R.const(2.0, 'float32')))"
TWO = "R.add(R.multiply(x, w), R.multiply(x, v))"


pytestmark = pytest.mark.usefixtures("lowered")


def compiled(body: str, **weights: np.ndarray) -> relaxpy.Executable:
    params = "".join(f', {name}: R.Tensor({v.shape}, "float32")' for name, v in weights.items())
    text = f'@R.function\ndef main(x: R.Tensor(({N}, {N}), "float32"){params}):\n'
    function = from_source(
        f"{text}    with R.dataflow():\n        y = {body}\n        R.output(y)\n    return y"
    )
    return relaxpy.compile(relaxpy.IRModule({"main": function.bind_params(weights)}), "native")


def changed(array: np.ndarray, by: float = 64.0) -> np.ndarray:
    """A copy of an array of which one element differs, far from the first ones."""
    result = array.copy()
    result[N // 2, 7] += by
    return result


X, W = np.eye(N, dtype="float32"), numbers((N, N))
assert W.nbytes == LARGE


def test_other_elements_that_no_pass_reads_need_no_other_program(lowered: list[str]) -> None:
    for weight in (W, changed(W), changed(W, -3.0)):
        np.testing.assert_array_equal(compiled(PRODUCT, w=weight)["main"](X), weight)
    assert len(lowered) == 1


def test_a_program_is_found_if_its_passes_read_the_same_elements(lowered: list[str]) -> None:
    weights = W, changed(W)
    for count, weight in enumerate((*weights, *weights)):
        np.testing.assert_array_equal(compiled(FOLDED, w=weight)["main"](X), 2 * weight)
        assert len(lowered) == min(count + 1, 2)


def test_programs_whose_passes_compare_literals(lowered: list[str]) -> None:
    """Equal ones are one, so that the number of steps depends on all of their elements."""
    for second in (W.copy(), changed(W), W.copy(), changed(W)):
        found = compiled(TWO, w=W, v=second)["main"](X)
        np.testing.assert_array_equal(found, X * W + X * second)
    assert len(lowered) == 2


def test_which_literals_are_read_may_depend_on_their_elements(lowered: list[str]) -> None:
    """The list of those that are read grows, and programs are found by all of it."""
    other = numbers((N, N), seed=1)
    for _ in range(3):
        for second in (W.copy(), other, changed(W)):
            found = compiled(TWO, w=W, v=second)["main"](X)
            np.testing.assert_array_equal(found, X * W + X * second)
    assert len(lowered) <= 4


def read_only(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def test_literals_with_the_same_memory_and_others_have_programs_of_their_own(
    lowered: list[str],
) -> None:
    tied, other = read_only(W), read_only(changed(W))
    for first, second in ((tied, tied[:]), (tied, other), (other, tied), (tied, tied), (tied, W)):
        found = compiled("R.concat((w, v, x), 0)", w=first, v=second)["main"](X)
        np.testing.assert_array_equal(found, np.concatenate([first, second, X]))
    assert len(lowered) == 2


@pytest.mark.parametrize("body", [PRODUCT, FOLDED])
def test_weights_that_callers_change_in_place(body: str, lowered: list[str]) -> None:
    weight, factor = W.copy(), 1 + (body == FOLDED)
    view = weight[:]
    view.flags.writeable = False
    for given in (weight, view):
        before = weight.copy()
        first = compiled(body, w=given)["main"]
        weight[N - 1, N - 1] += 5
        second = compiled(body, w=given)["main"]
        for main, expected in ((first, before), (second, weight), (first, before)):
            np.testing.assert_array_equal(main(X), factor * expected)
    assert view.flags.writeable is False


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists mapped files")
@pytest.mark.parametrize("body", [PRODUCT, FOLDED])
@pytest.mark.parametrize("age", [60, 0])
def test_mapped_files_that_change(body: str, age: int, tmp_path: Path, lowered: list[str]) -> None:
    path, factor = tmp_path / "weights", 1 + (body == FOLDED)
    for number, weight in enumerate((W, changed(W), W)):
        new = tmp_path / "new"
        weight.tofile(new)
        then = time.time() - age + number
        os.utime(new, (then, then))
        new.replace(path)
        mapped = np.asarray(np.memmap(path, np.float32, "r", shape=(N, N)))
        np.testing.assert_array_equal(compiled(body, w=mapped)["main"](X), factor * weight)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists mapped files")
@pytest.mark.parametrize("is_replaced", [False, True])
def test_mapped_files_that_change_and_keep_their_times(
    is_replaced: bool, tmp_path: Path, lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `cp -p` and `tar` of files whose archive has one time for all of them."""
    monkeypatch.setattr(files, "_SETTLED", -60)  # as if the file had been there for a while
    path = tmp_path / "weights"
    for weight in (W, W, changed(W)):
        if is_replaced and path.exists():
            path.unlink()
        if not path.exists() or weight is not W:
            with path.open("r+b" if path.exists() else "wb") as file:
                file.write(weight.tobytes())
            os.utime(path, (1, 1))
        with path.open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped = np.frombuffer(memory, np.float32).reshape(N, N)
        np.testing.assert_array_equal(compiled(FOLDED, w=mapped)["main"](X), 2 * weight)
    assert len(lowered) == 2 + is_replaced


@pytest.mark.parametrize("content", [b"", b"[99]", b"[-1]", b"{}", b"[[]]", b"[1.5]", b"\xff"])
def test_damaged_files(content: bytes, tmp_path: Path, lowered: list[str]) -> None:
    """Those with the right hash, that another program has written, and others."""
    expected = compiled(FOLDED, w=W)["main"](X)
    files = [*(tmp_path / "cache").iterdir()]
    for file in files:
        disk_cache.store(file.stem, [content])
    for _ in range(2):
        np.testing.assert_array_equal(compiled(FOLDED, w=W)["main"](X), expected)
    assert len(lowered) == 2
    for file in files:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    for _ in range(2):
        np.testing.assert_array_equal(compiled(FOLDED, w=W)["main"](X), expected)
    assert len(lowered) == 3


def test_weights_that_passes_leave_are_not_in_the_cache() -> None:
    compiled("R.matmul(R.matmul(x, w), v)", w=W, v=numbers((N, N), seed=1))["main"](X)
    assert disk_cache.usage().size < LARGE // 4


def test_reads_are_noted() -> None:
    literal, small = relax.const(W), relax.const(W[:8])
    twin = relax.const(changed(W))
    with noted_reads() as reads:
        assert literal.size == N * N
        assert literal.nbytes == LARGE
        assert literal.elements.shape == (N, N)
        assert literal.struct_info.shape.values[0] == N
        assert [*walk(literal)] == [literal]
        assert structural_hash(literal, whole_arrays=False)
        literal.memory()
        small.data.sum()
        assert not reads
        with noted_reads() as inner:
            assert not structural_equal(literal, twin)
        assert inner == reads == {literal.elements, twin.elements}
    with noted_reads() as reads:
        literal.data.sum()
    literal.data.sum()
    assert reads == {literal.elements}
    assert inner != reads


def model(offset: int, weight: np.ndarray) -> bytes:
    """The bytes of a product with a weight; the length of a name moves its elements."""
    tensor = numpy_helper.from_array(weight, "w")
    info = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [N, N]) for name in ("x", "y")
    ]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g" * (1 + offset), info[:1], info[1:], [tensor])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("offset", range(4))
def test_the_bytes_of_a_model_are_read_in_place_until_they_are_packed(offset: int) -> None:
    data = model(offset, W)
    bytes_of = np.frombuffer(data, np.uint8)
    module = from_onnx(data)
    [literal] = (node for node in walk(module["main"]) if isinstance(node, relax.Constant))
    assert np.shares_memory(literal.memory(aligned=False), bytes_of)
    main = relaxpy.compile(module, target="native")["main"]
    assert np.shares_memory(literal.memory(aligned=False), bytes_of)
    np.testing.assert_array_equal(main(X), W)
    assert literal.data.flags.aligned
    np.testing.assert_array_equal(literal.data, W)
    assert not literal.data.flags.writeable


def test_elements_at_any_address_are_aligned_when_they_are_read() -> None:
    for array in (W, W[:3]):
        memory = np.frombuffer(b"?" + array.tobytes(), np.uint8)
        moved = memory[1:].view(np.float32).reshape(array.shape)
        assert not moved.flags.aligned
        literal = relax.const(moved)
        assert structural_equal(literal, relax.const(array))
        assert literal.data.flags.aligned
        assert literal.data is literal.data
        np.testing.assert_array_equal(literal.data, array)


def test_constants_that_move_while_a_program_is_stored_are_not_in_it(
    lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may need their elements aligned at any time."""
    table = stored.saved_program

    def moved(*args: object) -> object:
        for literal in literals:
            literal.memory()
        return table(*args)

    monkeypatch.setattr(stored, "saved_program", moved)
    for weight in (W, changed(W)):
        module = from_onnx(model(1, weight))
        literals = [node for node in walk(module["main"]) if isinstance(node, relax.Constant)]
        np.testing.assert_array_equal(relaxpy.compile(module, "native")["main"](X), weight)
    assert len(lowered) == 1
    assert disk_cache.usage().size < LARGE // 4
