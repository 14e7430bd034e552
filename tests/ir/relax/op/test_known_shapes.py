"""What is known of a result where operands have shape variables, or sizes that may yet differ."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from relaxpy import compile
from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.tir import expr as tir
from tests.ir.relax.graphs import returning
from tests.ir.relax.op.notation import Row, check_known, check_refused, rows
from tests.ir.relax.sinfos import tensor

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


def shape_var(*sizes: Any) -> rx.Var:
    """A variable of these dimensions."""
    return rx.Var("s", rx.ShapeStructInfo(sizes))


NAMES = {"by": shape_var, "two": shape_var(2, N)}
INFERRED = """
add(f32.by(by(n, 3)), f32.by(by(1, 3))) => f32(n, 3)
less(f32.by(by(n, 1)), f32(3)) => b(n, 3)
add(f32.by(s2), f32(2, 3)) => f32[2]
add(f32.by(s), f32.by(s)) => f32.by(s)
nn.layer_norm(f32.by(s4), f32.by(t), f32.by(s2), axes=[2, 3]) => f32.by(s4)
nn.layer_norm(f32.by(s), f32.by(s2), f32.by(s2), axes=[2, 3]) => f32.by(s)
nn.layer_norm(f32(2, 3, n, 5), f32.by(s2), f32.by(s2), axes=[2, 3]) => f32(2, 3, n, 5)
nn.layer_norm(f32(2, 3, n, 5), f32(m, 5), f32(n, 5), axes=[2, 3]) => f32[4]
nn.rms_norm(f32.by(s4), f32.by(s2), axes=[2, 3]) => f32.by(s4)
nn.batch_norm(f32(2, n, 4, 5), f32(n), f32(n), f32(n), f32(n), axis=1)
    => tup(f32(2, n, 4, 5), f32(n), f32(n))
nn.batch_norm(f32[4], f32(n), f32(n), f32(n), f32(n), axis=1) => tup(f32[4], f32(n), f32(n))
nn.batch_norm(f32(2, n, 4, 5), f32(m), f32(n), f32(n), f32(n), axis=1)
    => tup(f32[4], f32[1], f32[1])
gather_elements(f32(2, 3), i64.by(s2)) => f32.by(s2)
dequantize(i8.by(two), f32(n), f32(n)) => f32.by(two)
layout_transform(f32.by(by(n, 3)), lambda i, j: (j, i)) => f32(3, n)
ccl.allgather(f32.by(by(n, 3)), 2) => f32(n * 2, 3)
nn.nll_loss(f32(n, 5, 4), i64[2], reduction="none") => f32(n, 4)
nn.nll_loss(f32[3], i64(n, 4), reduction="none") => f32[2]
nn.nll_loss(f32[...], i64(n), reduction="none") => f32[...]
nn.nll_loss(f32(3, 5), b(3), reduction="none") => f32(3)
nn.nll_loss(f32(3, 5), i64[1], void[1]) => void()
nn.attention(f32(1, 2, 3, 4), void(1, 2, 3, 4), f32(1, 2, 3, 4)) => f32(1, 2, 3, 4)
nn.max_pool2d(f32(n, 2, 8, 8, m), layout="NCHW16c", out_layout="NHWC") => f32(n, 8, 8, 32)
nn.conv2d(f32(n, 2, 8, 8, m), f32(4, 32, 1, 1), data_layout="NCHW16c", out_layout="NCHW")
    => f32(n, 4, 8, 8)
"""
REFUSED = """
add(f32.by(by(n, 3)), f32.by(by(n, 4))) !! x1 and x2 do not broadcast
nn.batch_norm(f32(2, n, 4, 5), f32(n + 1), f32(n), f32(n), f32(n), axis=1) !! ...has n channels
nn.nll_loss(f32(3, 5), f32(3), reduction="none") !! targets holds integers
nn.max_pool2d(f32(n, 2, 8, 8, 4), layout="NCHW16c", out_layout="NHWC")
    !! ...blocks in NCHW16c have 16
"""


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize("row", rows(INFERRED), ids=str)
def test_what_is_known_of_the_result(row: Row) -> None:
    check_known(row, **NAMES)


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize("row", rows(REFUSED), ids=str)
def test_what_is_known_to_differ_is_refused(row: Row) -> None:
    check_refused(row, **NAMES)


def test_symbolic_blocks_are_compared_with_those_of_the_layout_when_values_arrive() -> None:
    pool = partial(op.nn.max_pool2d, layout="NCHW16c", out_layout="NHWC")
    run = compile(returning(pool, tensor(1, 2, 3, 3, M)))["main"]
    values = np.arange(1 * 2 * 3 * 3 * 16, dtype="float32").reshape(1, 2, 3, 3, 16)
    whole = values.transpose(0, 2, 3, 1, 4).reshape(1, 3, 3, 32)
    np.testing.assert_array_equal(run(values), whole)
    with pytest.raises(RuntimeCheckError, match="blocks in NCHW16c have 16"):
        run(values[..., :4])


def test_targets_of_a_loss_may_be_truths() -> None:
    scores = np.array([[1, -2, 3], [4, 5, -6]], "float32")
    loss = returning(
        partial(op.nn.nll_loss, reduction="none"), tensor(2, 3), tensor(2, dtype="bool")
    )
    result = compile(loss)["main"](scores, np.array([True, False]))
    np.testing.assert_array_equal(result, [2, -4])
