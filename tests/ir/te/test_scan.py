"""Scans: states that are computed from earlier ones."""

import pytest

from relaxpy import te
from relaxpy.errors import MisuseError

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


def test_no_kernel_computes_a_scan() -> None:
    out = te.scan(INIT, UPDATE, STATE, inputs=[X])
    with pytest.raises(TypeError, match=r"no kernel computes ScanOp\(scan\)") as caught:
        te.create_prim_func([X, STATE, out])
    assert caught.value.diagnostic.hint == "store each state in a loop, by te.extern"
