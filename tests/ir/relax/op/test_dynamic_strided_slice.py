"""Struct info of slices with bounds in tensors, and bounds that are refused."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.relax import nodes as rx, op
from tests.ir.relax.op.test_rules import OPEN, UNKNOWN, Infos, N, check, refused
from tests.ir.relax.sinfos import rank, tensor
from tests.ir.relax.texts import module

PAIR = tensor(2, dtype="int64")


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(
    ("sinfos", "expected"),
    [
        ((tensor(N, 3), PAIR, PAIR, PAIR), rank(2)),
        ((rank(2), rank(1, "int64"), PAIR, UNKNOWN), rank(2)),
        ((OPEN, PAIR, PAIR, PAIR), OPEN),
        ((tensor(2, 3), tensor(N, dtype="int64"), PAIR, PAIR), rank(2)),
    ],
)
def test_what_is_known_of_the_result(sinfos: Infos, expected: rx.StructInfo) -> None:
    check(op.dynamic_strided_slice, sinfos, expected)


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(
    ("sinfos", "message"),
    [
        ((tensor(2, 3), tensor(2, dtype="int32"), PAIR, PAIR), "begin holds int64, found R.Tensor"),
        ((tensor(2, 3), PAIR, rank(2, "int64"), PAIR), "end is a vector, found R.Tensor"),
        (
            (tensor(2, 3), PAIR, PAIR, tensor(3, dtype="int64")),
            'strides has one element for each axis of x R.Tensor((2, 3), dtype="float32"), found',
        ),
    ],
)
def test_what_does_not_fit_is_refused(sinfos: Infos, message: str) -> None:
    refused(op.dynamic_strided_slice, sinfos, message)


Sliced = module("""
def main(x: R.Tensor(ndim=2), b: R.Tensor(ndim=1), e: R.Tensor(ndim=1), s: R.Tensor(ndim=1)):
    return R.dynamic_strided_slice(x, b, e, s)
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_bounds_are_checked_when_they_arrive(target: str) -> None:
    run = relaxpy.compile(Sliced, target)["main"]
    x = np.arange(12.0).reshape(3, 4)
    zero, one, two = (np.full(2, k, "int64") for k in (0, 1, 2))
    found = run(x, zero, two, one)
    np.testing.assert_array_equal(found, x[:2, :2])
    assert not np.shares_memory(found, x)
    with pytest.raises(RuntimeCheckError, match=r"strides are other than 0, found \[0, 0\]"):
        run(x, zero, two, zero)
    with pytest.raises(RuntimeCheckError, match=r"end has one element for each axis"):
        run(x, zero, two[:1], one)


Symbolic = module("""
def main(x: f32[n, 2], first: R.Prim(value="i"), last: R.Prim(value="j")) -> R.Tensor(
    dtype="float32", ndim=2
):
    return R.strided_slice(x, axes=[0], begin=[i], end=[j])
""")


@pytest.mark.parametrize("target", ["reference", "numpy"])
def test_symbolic_bounds_below_zero_count_from_the_end(target: str) -> None:
    x = np.arange(10, dtype="float32").reshape(5, 2)
    main = relaxpy.compile(Symbolic, target)["main"]
    for first, last in ((1, 3), (-2, 5), (0, -1), (-9, 9), (3, 1)):
        np.testing.assert_array_equal(main(x, first, last), x[first:last])
