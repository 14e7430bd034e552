"""Operands that do not fit, of which this is not known before they arrive, are refused by name."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError, StructInfoError
from relaxpy.exec.api.compile import compile
from relaxpy.ir import ops as op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source
from tests.ir.ops.cases import Array, floats
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import tensor


def run(
    call: Callable[..., rx.Expr],
    target: str,
    *arrays: Array,
    sinfos: Sequence[rx.StructInfo] | None = None,
) -> Any:
    """The value of a call on operands of which nothing is known, or only `sinfos`."""
    known = sinfos or [rx.TensorStructInfo(None, "void")] * len(arrays)
    return compile(returning(call, *known), target)["main"](*arrays)


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
def test_what_does_not_fit_is_refused_when_it_arrives(call, arrays, message, target) -> None:
    with pytest.raises(RuntimeCheckError, match=message):
        run(call, target, *arrays)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_what_fits_is_taken(target: str) -> None:
    assert run(op.multinomial_from_uniform, target, PROB, SAMPLE, ROWS).shape == (3, 1)
    assert len(run(suppress, target, floats(1, 5, 4), floats(1, 2, 5))) == 2
    found = run(attend, target, floats(1, 2, 4, 2), *[floats(1, 2, 2, 2)] * 2, STARTS)
    assert found.shape == (1, 2, 4, 2)


N, M = (tir.Var(name, "int64") for name in "nm")
IN_BLOCKS, KERNEL = tensor(1, 2, 3, 3, N), tensor(4, 4, 2, 2)
GRID = tensor(1, N, 2, 2)


def scatter(*bounds: int) -> Callable[[rx.Expr, rx.Expr], rx.Expr]:
    return lambda x, src: op.slice_scatter(x, src, *bounds)


def backward(name: str, **attrs: Any) -> Callable[..., rx.Expr]:
    return lambda *operands: getattr(op.grad, name)(*operands, **attrs)


#: Calls on operands that fit their struct info and each other, and such that do not fit each other.
SYMBOLIC: list[tuple[Any, list[rx.StructInfo], list[Array], list[Array], str]] = [
    (
        lambda x: op.nn.max_pool2d(x, 2, layout="NCHW2c"),
        [IN_BLOCKS],
        [floats(1, 2, 3, 3, 2)],
        [floats(1, 2, 3, 3, 3)],
        "dimension 4 of data .* is 3, blocks in NCHW2c have 2",
    ),
    (
        lambda x: op.nn.adaptive_avg_pool2d(x, layout="NCHW2c"),
        [IN_BLOCKS],
        [floats(1, 2, 3, 3, 2)],
        [floats(1, 2, 3, 3, 1)],
        "dimension 4 of data .* is 1, blocks in NCHW2c have 2",
    ),
    (
        lambda x, w: op.nn.conv2d(x, w, data_layout="NCHW2c"),
        [IN_BLOCKS, KERNEL],
        [floats(1, 2, 3, 3, 2), floats(4, 4, 2, 2)],
        [floats(1, 2, 3, 3, 4), floats(4, 4, 2, 2)],
        "dimension 4 of data .* is 4, blocks in NCHW2c have 2",
    ),
    (
        lambda x, w: op.nn.conv2d_transpose(x, w, data_layout="NCHW2c"),
        [IN_BLOCKS, KERNEL],
        [floats(1, 2, 3, 3, 2), floats(4, 4, 2, 2)],
        [floats(1, 2, 3, 3, 1), floats(4, 4, 2, 2)],
        "dimension 4 of data .* is 1, blocks in NCHW2c have 2",
    ),
    (
        backward("max_pool2d_backward", pool_size=2, layout="NCHW2c"),
        [tensor(1, 2, 2, 2, 2), IN_BLOCKS],
        [floats(1, 2, 2, 2, 2), floats(1, 2, 3, 3, 2)],
        [floats(1, 2, 2, 2, 2), floats(1, 2, 3, 3, 3)],
        "dimension 4 of data .* is 3, blocks in NCHW2c have 2",
    ),
    (
        op.image.grid_sample,
        [tensor(1, 2, 3, 4), GRID],
        [floats(1, 2, 3, 4), floats(1, 2, 2, 2)],
        [floats(1, 2, 3, 4), floats(1, 3, 2, 2)],
        "dimension 1 of grid .* is 2, a coordinate for each axis; found 3",
    ),
    (
        backward("grid_sample_backward"),
        [tensor(1, M, 2, 2), tensor(1, 2, 3, 4), tensor(1, 2, 2, 2)],
        [floats(1, 2, 2, 2), floats(1, 2, 3, 4), floats(1, 2, 2, 2)],
        [floats(1, 1, 2, 2), floats(1, 2, 3, 4), floats(1, 2, 2, 2)],
        r"output_grad has the shape of the result, \(1, 2, 2, 2\), found \(1, 1, 2, 2\)",
    ),
    (scatter(1, 3), [tensor(N), tensor(2)], [floats(3), floats(2)], [floats(2), floats(2)], "end"),
    (scatter(1, 3), [tensor(3), tensor(N)], [floats(3), floats(2)], [floats(3), floats(1)], "src"),
    (
        scatter(0, 1),
        [tensor(2, N), tensor(1, M)],
        [floats(2, 3), floats(1, 3)],
        [floats(2, 3), floats(1, 2)],
        "dimension 1 of src is that of the slice",
    ),
    (
        op.nn.attention,
        [tensor(1, 2, N, 2), *[tensor(1, 2, M, 2)] * 2],
        [floats(1, 2, 4, 2), *[floats(1, 2, 2, 2)] * 2],
        [floats(1, 2, 3, 2), *[floats(1, 2, 0, 2)] * 2],
        "the heads of key divide those of query, found 0 and 3",
    ),
]


def _fields(value: Any) -> tuple[Array, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.rule("DER-36")
@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize(("call", "sinfos", "fitting", "others", "message"), SYMBOLIC)
def test_symbolic_sizes_are_checked_when_values_arrive(
    call: Callable[..., rx.Expr],
    sinfos: list[rx.StructInfo],
    fitting: list[Array],
    others: list[Array],
    message: str,
    target: str,
) -> None:
    static = [tensor(*x.shape, dtype=str(x.dtype)) for x in fitting]
    found, expected = (run(call, target, *fitting, sinfos=known) for known in (sinfos, static))
    for actual, array in zip(_fields(found), _fields(expected), strict=True):
        np.testing.assert_array_equal(actual, array)
    with pytest.raises(RuntimeCheckError, match=message):
        run(call, target, *others, sinfos=sinfos)


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("heads", [0, N])
def test_attention_without_heads_has_none_in_its_result(heads: Any, target: str) -> None:
    nothing = [floats(1, 2, 0, 4)] * 3
    found = run(op.nn.attention, target, *nothing, sinfos=[tensor(1, 2, heads, 4)] * 3)
    assert found.shape == (1, 2, 0, 4)


def test_no_heads_of_keys_serve_no_queries() -> None:
    operands = [rx.Var("q", tensor(1, 2, 3, 4)), *[rx.Var("k", tensor(1, 2, 0, 4))] * 2]
    with pytest.raises(StructInfoError, match="the heads of key divide those of query, found 0"):
        op.nn.attention(*operands)


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("start", [0, 1, 2, -1])
def test_bounds_of_slices_are_checked_when_they_arrive(start: int, target: str) -> None:
    module = from_source("""
        @R.function
        def main(
            x: R.Tensor((3,), "float32"), src: R.Tensor(("m",), "float32"), k: R.Prim(value="k")
        ):
            m, k = T.int64(), T.int64()
            y = R.slice_scatter(x, src, k, k + m)
            return y
    """)
    main = compile(module, target)["main"]
    x, src = np.zeros(3, "float32"), np.ones(2, "float32")
    if 0 <= start <= 1:
        assert main(x, src, start).tolist() == [float(start <= k < start + 2) for k in range(3)]
    else:
        with pytest.raises(RuntimeCheckError, match=r"start is at least 0|end is at most the size"):
            main(x, src, start)
    assert not x.any()
