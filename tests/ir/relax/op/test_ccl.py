"""Collective operators: struct info, what they refuse, and what the only worker computes."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.script import from_source, ir as I, relax as R
from tests.ir.relax.infos import rank, tensor
from tests.ir.relax.op.test_rules import (
    DEVICE,
    OPEN,
    UNKNOWN,
    Infos,
    Made,
    N,
    check,
    derive,
    located,
    refused,
)

X = tensor(4, N)
ccl = op.ccl
INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (ccl.allreduce, (X,), X),
    (lambda x: ccl.allreduce(x, "avg", in_group=False), (UNKNOWN,), UNKNOWN),
    (lambda x: ccl.allgather(x, 2), (X,), tensor(8, N)),
    (lambda x: ccl.allgather(x, 3), (tensor(N, 2),), tensor(N * 3, 2)),
    (lambda x: ccl.allgather(x, 2), (rank(2),), rank(2)),
    (lambda x: ccl.allgather(x, 2), (OPEN,), OPEN),
    (ccl.broadcast_from_worker0, (X,), X),
    (lambda x: ccl.scatter_from_worker0(x, 2), (X,), tensor(2, N)),
    (lambda x: ccl.scatter_from_worker0(x, 2, axis=-1), (tensor(3, 8),), tensor(3, 4)),
    (lambda x: ccl.scatter_from_worker0(x, 2), (tensor(N * 2),), tensor(N)),
    (lambda x: ccl.scatter_from_worker0(x, 2), (rank(2),), rank(2)),
    (
        lambda x: ccl.scatter_from_worker0(x, 2),
        (located(X, DEVICE),),
        located(tensor(2, N), DEVICE),
    ),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "infos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, infos: Infos, expected: rx.StructInfo) -> None:
    check(make, infos, expected)


REFUSED: list[tuple[Made, Infos, str]] = [
    (lambda x: ccl.allgather(x, 0), (X,), "num_workers is at least 1, found 0"),
    (lambda x: ccl.allgather(x, 2), (tensor(),), "x has rank 1 at least, found R.Tensor(()"),
    (
        lambda x: ccl.scatter_from_worker0(x, 3),
        (X,),
        "dimension 0 of x (4, n) is 4, which is not a multiple of 3 workers",
    ),
    (lambda x: ccl.scatter_from_worker0(x, 2, axis=2), (X,), "axis 2 is out of range for rank 2"),
    (lambda x: ccl.scatter_from_worker0(x, -1), (X,), "num_workers is at least 1, found -1"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "infos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, infos: Infos, message: str) -> None:
    refused(make, infos, message)


def test_a_reduction_is_one_of_five() -> None:
    with pytest.raises(MisuseError, match=r"op_type is 'sum' or .* or 'avg', found 'mean'"):
        derive(lambda x: ccl.allreduce(x, "mean"), (X,))


@I.ir_module
class Alone:
    @R.function
    def main(x: R.Tensor((4, "n"), "float32")):
        total = R.ccl.allreduce(x, "avg", in_group=False)
        joined = R.ccl.allgather(total, 1)
        first = R.ccl.broadcast_from_worker0(joined)
        return R.ccl.scatter_from_worker0(first, 1, axis=1)

    @R.function
    def two(x: R.Tensor((4, "n"), "float32")):
        return R.ccl.allgather(x, 2)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_the_only_worker_keeps_its_tensor(target: str) -> None:
    program = relaxpy.compile(Alone, target)
    x = np.arange(8, dtype="float32").reshape(4, 2)
    found = program["main"](x)
    np.testing.assert_array_equal(found, x)
    assert not np.shares_memory(found, x)
    with pytest.raises(
        RuntimeCheckError, match="the program is for 2 workers, but this is the only"
    ):
        program["two"](x)


def test_collective_operators_print_and_parse_back() -> None:
    text = Alone.script()
    assert 'R.ccl.allreduce(x, op_type="avg", in_group=False)' in text
    relaxpy.ir.assert_structural_equal(from_source(text), Alone)
