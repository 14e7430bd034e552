"""Operands that do not fit, of which this is not known before they arrive, are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.compile import compile
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from tests.ir.relax.op.cases import Array, floats


def run(call: Callable[..., rx.Expr], target: str, *arrays: Array) -> Any:
    """The value of a call on operands of which nothing is known."""
    params = [rx.Var(f"x{k}", rx.TensorStructInfo(None, "void")) for k in range(len(arrays))]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call(*params)))
    return compile(builder.finalize(), target)["main"](*arrays)


def suppress(boxes: rx.Expr, scores: rx.Expr) -> rx.Expr:
    return op.vision.all_class_non_max_suppression(boxes, scores, 1, 0.5, 0.0)


def attend(q: rx.Expr, k: rx.Expr, v: rx.Expr, starts: rx.Expr) -> rx.Expr:
    return op.nn.attention_var_len(q, k, v, starts, 3)


PROB, SAMPLE, ROWS = np.full((2, 2), 0.5, "float32"), floats(3, 1) % 1, np.zeros((3, 1), "int64")
STARTS = np.array([0, 2], "int32")
REFUSED: list[tuple[Any, tuple[Array, ...], str]] = [
    (op.multinomial_from_uniform, (PROB, SAMPLE, ROWS + 2), "from 0 to 1, found 2"),
    (op.multinomial_from_uniform, (PROB, SAMPLE, ROWS - 1), "from 0 to 1, found -1"),
    (op.multinomial_from_uniform, (PROB, SAMPLE[:2], ROWS), r"uniform_sample has shape \(3, 1\)"),
    (
        op.multinomial_from_uniform,
        (PROB, SAMPLE, ROWS[:, :0]),
        r"sample_indices has shape \(3, 1\)",
    ),
    (op.multinomial_from_uniform, (PROB[:, :0], SAMPLE, ROWS), "at least one category"),
    (suppress, (floats(1, 5, 3), floats(1, 2, 5)), r"found \(1, 5, 3\) and \(1, 2, 5\)"),
    (suppress, (floats(1, 5, 4), floats(1, 2, 4)), r"found \(1, 5, 4\) and \(1, 2, 4\)"),
    (suppress, (floats(1, 5, 4), floats(2, 5)), r"found \(1, 5, 4\) and \(2, 5\)"),
    (attend, (floats(1, 2, 3, 2), *[floats(1, 2, 2, 2)] * 2, STARTS), "found 3 and 2"),
    (attend, (floats(1, 2, 3, 2), *[floats(1, 2, 0, 2)] * 2, STARTS), "found 3 and 0"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize(("call", "arrays", "message"), REFUSED)
def test_what_does_not_fit_is_refused_when_it_arrives(
    call: Callable[..., rx.Expr], arrays: tuple[Array, ...], message: str, target: str
) -> None:
    with pytest.raises(RuntimeCheckError, match=message):
        run(call, target, *arrays)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_what_fits_is_taken(target: str) -> None:
    assert run(op.multinomial_from_uniform, target, PROB, SAMPLE, ROWS).shape == (3, 1)
    assert len(run(suppress, target, floats(1, 5, 4), floats(1, 2, 5))) == 2
    found = run(attend, target, floats(1, 2, 4, 2), *[floats(1, 2, 2, 2)] * 2, STARTS)
    assert found.shape == (1, 2, 4, 2)
