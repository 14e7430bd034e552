"""Scans: states that are computed from earlier ones."""

import numpy as np
import pytest

import relaxpy
from relaxpy import te
from relaxpy.errors import MisuseError
from relaxpy.ir import structural_equal
from relaxpy.ir.tir.stmt import Evaluate
from relaxpy.script import from_source

N, M = te.var("n", "int64"), te.var("m", "int64")
X = te.placeholder((N, M), name="X")
STATE = te.placeholder((N, M), name="state")
INIT = te.compute((1, M), lambda _, i: X[0, i])
UPDATE = te.compute((N, M), lambda t, i: STATE[t - 1, i] + X[t, i])


def test_a_scan_has_the_shape_of_its_state() -> None:
    out = te.scan(INIT, UPDATE, STATE, inputs=[X])
    assert isinstance(out.op, te.ScanOp)
    assert out.shape == STATE.shape
    assert out.dtype == "float32"
    assert out.op.input_tensors == (INIT, UPDATE)
    assert out.op.inputs == (X,)
    assert out.op.scan_axis.dom.min.value == 1
    assert out.name == "scan"


def test_several_states_are_several_tensors() -> None:
    first, second = te.scan([INIT, INIT], [UPDATE, UPDATE], [STATE, STATE], name="both")
    assert (first.name, second.name) == ("both.v0", "both.v1")
    assert first.op is second.op
    assert first.op.input_tensors == (INIT, UPDATE)


def test_what_is_not_a_scan_is_refused() -> None:
    with pytest.raises(MisuseError, match="as many first elements and updates as states"):
        te.scan([INIT], [UPDATE, UPDATE], [STATE])
    with pytest.raises(MisuseError, match="have the rank and datatype of the state state"):
        te.scan(te.compute((1,), lambda i: X[0, i]), UPDATE, STATE)
    with pytest.raises(MisuseError, match="have the rank and datatype of the state state"):
        te.scan(INIT, te.compute((N, M), lambda t, i: X[t, i].astype("int8")), STATE)


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("length", [1, 2, 6])
def test_a_kernel_computes_one_state_after_the_other(length: int, target: str) -> None:
    half = te.compute((N, M), lambda t, i: STATE[t - 1, i] / 2, name="half")
    k = te.reduce_axis((0, M), "k")
    total = te.compute((N, M), lambda t, i: te.sum(half[t, k], axis=k), name="total")
    update = te.compute((N, M), lambda t, i: half[t, i] + total[t, i] * X[t, i], name="next")
    kernel = te.create_prim_func([X, te.scan(INIT, update, STATE)])
    assert structural_equal(from_source(kernel.script()), kernel)
    x = np.random.default_rng(0).integers(-4, 5, (length, 3)).astype("float32")
    expected = x.copy()
    for t in range(1, length):
        before = expected[t - 1] / 2
        expected[t] = before + before.sum() * x[t]
    found = np.zeros_like(x)
    relaxpy.compile(relaxpy.IRModule({"main": kernel}), target=target)["main"](x, found)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def constant(value: int) -> te.Tensor:
    return te.compute((1,), lambda _: te.const(value), name=f"first{value}")


def test_states_may_read_each_other() -> None:
    a, b = (te.placeholder((5,), "int32", name) for name in "ab")
    zero, one = (constant(v) for v in (0, 1))
    next_a = te.compute((5,), lambda t: b[t - 1], name="next_a")
    next_b = te.compute((5,), lambda t: a[t - 1] + b[t - 1], name="next_b")
    states = te.scan([zero, one], [next_a, next_b], [a, b])
    kernel = te.create_prim_func(list(states))
    found = np.zeros((2, 5), "int32")
    relaxpy.compile(relaxpy.IRModule({"main": kernel}))["main"](*found)
    assert found.tolist() == [[0, 1, 1, 2, 3], [1, 1, 2, 3, 5]]


@pytest.mark.parametrize("distance", [0, -1])
def test_a_step_reads_earlier_states(distance: int) -> None:
    update = te.compute((N, M), lambda t, i: STATE[t - distance, i] + X[t, i], name="next")
    with pytest.raises(
        MisuseError, match=r"scan: next reads state at t.*, which is not computed be"
    ):
        te.create_prim_func([X, te.scan(INIT, update, STATE)])


def test_a_step_reads_other_steps_at_its_own_position() -> None:
    half = te.compute((N, M), lambda t, i: STATE[t - 1, i] / 2, name="half")
    update = te.compute((N, M), lambda t, i: half[t - 1, i], name="next")
    with pytest.raises(MisuseError, match="next reads half at t - ") as caught:
        te.create_prim_func([X, te.scan(INIT, update, STATE)])
    assert caught.value.diagnostic.hint is not None
    other = te.extern((N, M), [STATE], lambda i, o: Evaluate(0), name="other", dtype="float32")
    with pytest.raises(MisuseError, match=r"ExternOp\(other\) cannot be computed step by step"):
        te.create_prim_func([X, te.scan(INIT, other, STATE)])
