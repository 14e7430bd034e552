"""Values at the edges of datatypes and of tensors: those of PyTorch, eager and in float64."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.machine import blas
from relaxpy.plugins.importing import matrices

torch: Any = pytest.importorskip("torch")

from relaxpy.relax.frontend.torch import from_exported_program, relax_dynamo  # noqa: E402

F = torch.nn.functional
INF, NAN = math.inf, math.nan
pytestmark = pytest.mark.filterwarnings("ignore")
Compiled: TypeAlias = Callable[..., list[Any]]


class Function(torch.nn.Module):  # type: ignore[misc]
    """A module that is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def exported(function: Callable[..., Any], *args: Any, target: str = "numpy") -> Compiled:
    """The function of tensors with the shapes and datatypes of `args`, exported and compiled."""
    program = torch.export.export(Function(function), args)
    run = relaxpy.compile(from_exported_program(program), target)["main"]
    return lambda *args: list(run(*args))


def captured(function: Callable[..., Any], *args: Any) -> Compiled:
    """The function, which torch.compile captures at its first call."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=relax_dynamo(target="numpy"))
    return lambda *args: leaves(compiled(*args))


def leaves(values: Any) -> list[Any]:
    return [torch.as_tensor(x) for x in torch.utils._pytree.tree_leaves(values)]


ROADS = pytest.mark.parametrize("road", [exported, captured])

#: Functions of positive numbers which PyTorch computes by kernels that round to 16 bits once.
NARROW = {
    "std": lambda x: x.std(),
    "std_mean": lambda x: torch.std_mean(x, 0),
    "var": lambda x: x.var(),
    "norm": lambda x: x.norm(),
    "norm of 3": lambda x: x.norm(3),
    "normalize": lambda x: F.normalize(x, dim=0),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0), 0),
    "distance": lambda x: F.pairwise_distance(x[None], x.flip(0)[None]),
    "dist": lambda x: torch.dist(x, x / 2),
    "logsumexp": lambda x: x.logsumexp(0),
    "large factor": lambda x: x * 1e5,
    "small factor": lambda x: x * 1e-8,
    "large dividend": lambda x: 1e5 / x,
    "small divisor": lambda x: x / 1e-8,
    "factor of rank 0": lambda x: x * torch.tensor(1e5),
    "whole factor": lambda x: x * 70000,
    "floored": lambda x: x // 0.1,
    "truncated": lambda x: torch.div(x, 0.1, rounding_mode="trunc"),
    "decimals": lambda x: torch.round(x, decimals=2),
    "hardsigmoid": lambda x: F.hardsigmoid(x),
    "gelu": lambda x: F.gelu(-x, approximate="tanh"),
    "rms_norm": lambda x: F.rms_norm(x, x.shape),
    "layer_norm": lambda x: F.layer_norm(x, x.shape),
    "addmm": lambda x: torch.addmm(x, x[:, None] * x, x[:, None] * x, alpha=1e-4, beta=0.3),
    "bilinear": lambda x: F.bilinear(x[None], x[None], x.repeat(2, 4, 1) / 7, x[:2]),
    "triplet": lambda x: F.triplet_margin_loss(x[None], x[None] * 0.9, x[None] * 0.5),
    "bags": lambda x: F.embedding_bag(
        torch.tensor([[0, 3, 2], [1, 3, 1]]), x[:, None], mode="mean"
    ),
    "weighted bags": lambda x: F.embedding_bag(
        torch.tensor([[0, 3, 2]]), x[:, None], mode="sum", per_sample_weights=x[None, :3] / 9
    ),
    "avg_pool": lambda x: F.avg_pool2d(x.reshape(1, 1, 2, 2), 2, divisor_override=3),
}


@pytest.mark.each_choice
@ROADS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NARROW)
def test_inner_values_of_16_bit_floats_are_wide(name: str, dtype: Any, road: Any) -> None:
    torch.manual_seed(0)
    function = NARROW[name]
    run = road(function, torch.ones(4, dtype=dtype))
    for scale in (1e-6, 1e-4, 0.03, 1.0, 30.0, 1000.0, 1.5e4):
        x = (torch.rand(4, dtype=torch.float64) * scale + scale / 8).to(dtype)
        eager, exact = leaves(function(x)), leaves(function(x.double()))
        eps, least = torch.finfo(dtype).eps, torch.finfo(dtype).smallest_normal
        for found, near, right in zip(run(x), eager, exact, strict=True):
            assert found.dtype == near.dtype
            error, theirs = (found.double() - right).abs(), (near.double() - right).abs()
            bound = 4 * eps * torch.maximum(right.abs(), torch.tensor(least).double()) + 2 * theirs
            known = torch.isfinite(near)
            assert bool((error <= bound)[known].all()), (scale, found, near, right)


@pytest.mark.each_choice
@ROADS
@pytest.mark.parametrize("scale", [1e-30, 1e-25, 1.0, 1e25])
def test_standard_deviations_are_roots_of_variances_that_are_not_rounded(scale, road) -> None:
    x = torch.tensor([1.0, 2, 4, 9]) * scale
    run = road(lambda x: torch.std_mean(x), x)
    for found, right in zip(run(x), torch.std_mean(x), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=0)


def row(*values: float) -> Any:
    return torch.tensor(values)


#: Functions, and operands for which a rule about infinities, signs or empty tensors decides.
EDGES = {
    "logcumsumexp": (lambda x: x.logcumsumexp(0), row(-INF, 1, INF, 2, -INF, INF)),
    "logcumsumexp of NaN": (lambda x: x.logcumsumexp(0), row(1, INF, NAN, 2)),
    "remainder": (lambda x: (1 / (x % 2), 1 / (x % -2)), row(-0.0, 0.0, -2.0, 2.0, 3.0, -3.0)),
    "remainder of Booleans": (
        lambda x: ((x > 0) % 2, (x > 0) % 2.5, torch.fmod(x > 0, 2), torch.remainder(3, x == x)),
        row(1.0, -1.0, 0.0),
    ),
    "cummax of NaN and zeros": (
        lambda x: [
            1 / item if k % 2 == 0 and axis == 0 else item
            for axis in range(3)
            for k, item in enumerate((*x.cummax(axis), *x.cummin(axis)))
        ],
        row(0.0, -0.0, 0.0, -0.0, -INF, NAN, 1, NAN, -0.0, INF, INF, 2)
        .repeat(12)
        .reshape(12, 4, 3),
    ),
    "cummax of equal integers": (
        lambda x: [*x.cummax(0), *x.cummin(1), *(x > 1).cummax(1)],
        torch.tensor([[1, 2, 2], [2, 1, 2], [2, 2, 1]]),
    ),
    "cummax of nothing": (lambda x: x.cummax(0), row()),
    "cummin of nothing": (lambda x: x.cummin(1), torch.zeros(3, 0)),
    "maxima of -inf": (
        lambda x: F.max_pool2d(x, 2, 2, 1, return_indices=True),
        torch.full((1, 1, 4, 4), -INF),
    ),
    "maxima of several NaN": (
        lambda x: (
            F.max_pool2d(x, 2, 2, 1, return_indices=True),
            F.max_pool2d(x, 5, 1, return_indices=True),
            F.max_pool1d(x[0], 3, dilation=2, return_indices=True),
            F.adaptive_max_pool2d(x, 1, return_indices=True),
            F.adaptive_max_pool2d(x, 3, return_indices=True),
        ),
        row(NAN, 1, -INF, NAN, 2).repeat(3)[:12].repeat(3).reshape(1, 1, 6, 6),
    ),
    "attention to nothing": (
        lambda x: F.scaled_dot_product_attention(x, x, x, torch.tensor([[0, -INF], [-INF, -INF]])),
        torch.arange(8.0).reshape(1, 1, 2, 4),
    ),
    "powers": (
        lambda x: (2**x, 3**x, x**65, x**64, torch.pow(x - 2, x)),
        torch.tensor([0, 1, 63, 64, 65, 100, 1000, 2**40 + 1]),
    ),
    "powers of numbers": (
        lambda x: (x**3, x**0.5, x**-0.5, x**-1, x.double() ** -0.5, x.half() ** -1),
        row(4, 0.25, 0, -0.0, -4, INF, -INF, NAN, 65504),
    ),
    "shifts": (lambda x: (x << 64, x >> 64, x << -1, x << 63), torch.tensor([1, -5, 3])),
    "slices at places along each axis": (
        lambda x: [
            place(x, axis, torch.tensor(places), x.narrow(axis, 0, len(places)) * 3)
            for axis in (0, 1, -1)
            for place, places in ((torch.index_add, [2, 0, 2]), (torch.index_copy, [1, 2, 0]))
        ],
        torch.arange(60.0).reshape(3, 4, 5),
    ),
    "filled from the end": (lambda x: x.index_fill(0, torch.tensor([-1, 0]), 7), row(1, 2, 3)),
}


SIZED: dict[int, Any] = {
    8: (torch.int8, torch.uint8, torch.bool),
    16: (torch.int16, torch.uint16, torch.float16, torch.bfloat16),
    32: (torch.int32, torch.uint32, torch.float32),
    64: (torch.int64, torch.uint64, torch.float64),
}
DTYPES = [*sum(SIZED.values(), ()), torch.complex64, torch.complex128]


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native", "reference", "torch.compile"])
@pytest.mark.parametrize("bits", SIZED)
def test_bits_are_those_of_elements_of_any_size(bits: int, target: str) -> None:
    draw = torch.Generator().manual_seed(bits)
    for old in SIZED[bits]:
        limit = 2 if old is torch.bool else 256
        x = torch.randint(0, limit, (2, 32), dtype=torch.uint8, generator=draw).view(old)

        several = [dtype for dtype in DTYPES if dtype is not torch.bool or limit == 2]

        def views(x: Any, several: Sequence[Any] = several) -> Any:
            return [x.view(dtype) for dtype in several]

        road = captured if target == "torch.compile" else partial(exported, target=target)
        for operand in (x, x[:0]):
            for ours, theirs in zip(road(views, operand)(operand), views(operand), strict=True):
                is_pair = theirs.is_complex() and not ours.is_complex()
                right = torch.view_as_real(theirs) if is_pair else theirs
                torch.testing.assert_close(ours, right, equal_nan=True, rtol=0, atol=0)


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native", "torch.compile"])
@pytest.mark.parametrize("name", EDGES)
def test_edges_are_those_of_pytorch(name: str, target: str) -> None:
    function, x = EDGES[name]
    right = leaves(function(x))
    run = (
        captured(function, x) if target == "torch.compile" else exported(function, x, target=target)
    )
    for ours, theirs in zip(run(x), right, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.each_choice
@pytest.mark.parametrize("scale", [1.1, 1.3, 0.7, (1.3, 1.7)])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "nearest-exact"])
def test_an_axis_whose_size_stays_is_copied_where_pytorch_copies_it(mode: str, scale: Any) -> None:
    for size in ((3, 3), (7, 10)):
        x = torch.arange(float(math.prod(size))).reshape(1, 1, *size)

        def resized(x: Any) -> Any:
            return F.interpolate(x, scale_factor=scale, mode=mode)

        torch.testing.assert_close(exported(resized, x)(x)[0], resized(x), rtol=1e-4, atol=1e-4)


#: Functions that write, or read, elements at indices of two rows.
INDEXED: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda x, i: x[i],
    "two indices": lambda x, i: x[i, i],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_put": lambda x, i: x.index_put((i,), torch.tensor(1.0)),
    "index_put of sums": lambda x, i: x.index_put((i, i), torch.tensor(1.0), True),
    "put": lambda x, i: x[:, 0].put(i, torch.ones(1)),
    "index_fill": lambda x, i: x.index_fill(1, i, 1.0),
    "index_add": lambda x, i: x.index_add(0, i, torch.ones(1, 2)),
    "index_add of columns": lambda x, i: x.index_add(1, i, torch.ones(2, 1)),
    "index_copy": lambda x, i: x.index_copy(1, i, torch.ones(2, 1)),
    "index_reduce": lambda x, i: x.index_reduce(0, i, torch.ones(1, 2), "amax"),
    "scatter": lambda x, i: x.scatter(0, i[:, None], torch.ones(1, 1)),
    "scatter of a number": lambda x, i: x.scatter(1, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i[:, None], torch.ones(1, 1)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], torch.ones(1, 1), "mean"),
    "scatter_add of rows": lambda x, i: x.scatter_add(0, i[:, None].expand(1, 2), torch.ones(1, 2)),
    "embedding": lambda x, i: F.embedding(i, x),
    "bincount": lambda x, i: i.bincount(),
    "one_hot": lambda x, i: F.one_hot(i, 2),
    "one_hot of columns": lambda x, i: F.one_hot(i[:, None], num_classes=2) + 1,
    "max_unpool1d": lambda x, i: F.max_unpool1d(x[:1, :1], i[None], 2),
    "max_unpool2d": lambda x, i: F.max_unpool2d(x[None, :, :1, None], i.expand(1, 2, 1, 1), (1, 2)),
    "max_unpool3d": lambda x, i: F.max_unpool3d(
        x[None, :1, :1, None, None], i.view([1] * 5), (1, 1, 2)
    ),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native", "torch.compile"])
@pytest.mark.parametrize("name", INDEXED)
def test_indices_out_of_range_are_refused_where_pytorch_refuses_them(name, target) -> None:
    function, args = INDEXED[name], (torch.zeros(2, 2), torch.tensor([0]))
    if (name, target) == ("bincount", "torch.compile"):
        return  # PyTorch leaves it to eager mode
    torch._dynamo.reset()
    if target == "torch.compile":
        run = torch.compile(function, backend=relax_dynamo(target="numpy"))
    else:
        program = torch.export.export(Function(function), args)
        mod = from_exported_program(program, unwrap_unit_return_tuple=True)
        run = relaxpy.compile(mod, target)["main"]
    for number in (-4, -3, -2, -1, 0, 1, 2, 5):
        args = (torch.zeros(2, 2), torch.tensor([number]))
        try:
            right = function(*args)
        except (RuntimeError, IndexError):
            with pytest.raises(RelaxpyError, match=rf"index {number} is outside"):
                run(*args)
        else:
            torch.testing.assert_close(run(*args), right)


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize("weights", [None, torch.float64, torch.float16, torch.int32])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize("values", [[0], [127, 3, 3, 0, 127, 5]])
def test_numbers_are_counted(values: list[int], dtype: Any, weights: Any, target: str) -> None:
    x = torch.tensor(values, dtype=dtype)
    amounts = [] if weights is None else [torch.arange(len(values)).to(weights)]

    def counted(x: Any, *amounts: Any) -> Any:
        return x.bincount(*amounts), x.bincount(*amounts, minlength=7)

    found = exported(counted, x, *amounts, target=target)(x, *amounts)
    torch.testing.assert_close(tuple(found), counted(x, *amounts))


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize("columns", [(3,), (2,), (3, 2), (3, 1), (0,)])
@pytest.mark.parametrize("reduction", ["sum", "prod", "mean", "amax", "amin"])
def test_rows_are_scattered_by_one_index_each(reduction: str, columns: Any, target: str) -> None:
    generator = torch.Generator().manual_seed(0)

    def scattered(x: Any, index: Any, source: Any) -> Any:
        index = index.view(-1, *[1] * len(columns)).expand(-1, *columns)
        whole = x.scatter_reduce(0, index, source, reduction)
        return whole, x.scatter_reduce(0, index, source, reduction, include_self=False)

    x = torch.randn(4, *((3, 2)[: len(columns)]), generator=generator)
    source = torch.randn(9, *((3, 2)[: len(columns)]), generator=generator)
    index = torch.tensor([3, 1, 1, 0, 3, 3, 1, 0, 0])
    found = exported(scattered, x, index, source, target=target)(x, index, source)
    torch.testing.assert_close(tuple(found), scattered(x, index, source))


def test_bags_have_all_that_pytorch_returns() -> None:
    """Without what is undefined: a sum of all rows has no bags, sizes and maxima."""
    rows = torch.arange(40.0).reshape(10, 4)
    numbers = torch.tensor([1, 3, 2, 3, 5, 6, 3], dtype=torch.int32)
    starts = torch.tensor([0, 2, 2, 5], dtype=torch.int32)

    def bags(rows: Any, numbers: Any, starts: Any) -> Any:
        operator, operands = torch.ops.aten._embedding_bag, (rows, numbers, starts, False)
        found = [operator(*operands, 0, False, None, False, 3)[:2]]
        for mode, padding in ((1, -1), (1, 3), (2, -1), (2, 3)):
            found.append(operator(*operands, mode, False, None, False, padding))
        return tuple(each for results in found for each in results)

    args = rows, numbers, starts
    for found, expected in zip(exported(bags, *args)(*args), bags(*args), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_elements_at_a_rank_and_the_most_frequent_ones(target: str) -> None:
    drawn = torch.arange(120.0).mul(37).remainder(11).sub(5).div(2).trunc()
    x = torch.where(drawn == 2, NAN, torch.where(drawn == 1, -0.0, drawn)).view(2, 20, 3)
    x[0, :, 0] = NAN

    def chosen(x: Any) -> Any:
        of_rows = (
            *x.kthvalue(5, 1),
            *x.kthvalue(20, 1, True),
            *x.nanmedian(1),
            *x.nan_to_num(7).mode(1),
        )
        return *of_rows, *x[0, 0, 0].kthvalue(1), *x[0, 0, 0].nanmedian(0), *x[0, 0, 0].mode(0)

    found = exported(chosen, x, target=target)(x)
    torch.testing.assert_close(found[::2], chosen(x)[::2], equal_nan=True)
    order = x.numpy().argsort(1, kind="stable")
    known = x.isnan().logical_not().sum(1).sub(1).clamp(0).div(2, rounding_mode="floor")
    middle = np.take_along_axis(order, known[:, None].numpy(), 1)[:, 0]
    last = (x.nan_to_num(7) == found[6][:, None]).int().mul(torch.arange(20)[:, None]).argmax(1)
    for places, expected in ((found[1], order[:, 4]), (found[5], middle), (found[7], last)):
        np.testing.assert_array_equal(places, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_medians_of_long_rows(dtype: Any) -> None:
    x = torch.arange(9000.0).mul(37).remainder(1009).sub(500).view(3, 3000).to(dtype)
    if dtype.is_floating_point:
        x[1, [7, 2000]] = NAN

    def medians(x: Any) -> Any:
        return x.median(), *x.median(1), *x.median(0, keepdim=True), x.nanmedian(), *x.nanmedian(1)

    whole, rows, places, columns, lines, known, *known_rows = exported(medians, x)(x)
    torch.testing.assert_close(whole, x.median(), equal_nan=True)
    torch.testing.assert_close((known, known_rows[0]), (x.nanmedian(), x.nanmedian(1)[0]))
    for values, index, axis in ((rows[:, None], places[:, None], 1), (columns, lines, 0)):
        torch.testing.assert_close(values, x.median(axis, True)[0], equal_nan=True)
        torch.testing.assert_close(x.gather(axis, index), values, equal_nan=True)


@pytest.mark.parametrize("flags", [{}, {"return_inverse": True}, {"return_counts": True}])
def test_distinct_elements_with_what_is_requested(flags: dict[str, bool]) -> None:
    x = torch.tensor([[3, -1, 3], [2, 2, 9], [3, -1, 3]])

    def distinct(x: Any) -> Any:
        found = [torch.unique(x, dim=dim, **flags) for dim in (None, 0)]
        return [item for part in found for item in (part if flags else (part,))]

    torch.testing.assert_close(list(exported(distinct, x)(x)), distinct(x))


SINGULAR = torch.ones(2, 3, 3) + torch.tensor([0.0, 1.0]).view(2, 1, 1) * torch.eye(3)


def asserted(x: Any) -> Any:
    torch._assert_async(x.sum() > 0, "{the sum} is positive")  # as `assert` in torch.compile
    return x * 2


def asserted_in_a_branch(x: Any) -> Any:
    def checked(x: Any) -> Any:
        torch._assert_async(x[0] > 0, "the first is positive")
        return x.clone()

    return torch.cond(x[1] > 0, checked, lambda x: x * 2, (x,))


def asserted_in_a_loop(x: Any) -> Any:
    def step(x: Any) -> Any:
        torch._assert_async(x[0] > 0, "the first stays positive")
        return (x - 1,)

    return torch._higher_order_ops.while_loop(lambda x: x[1] > 0, step, (x,))


#: Functions that raise for some arguments: right ones, wrong ones, and what the error says.
RAISING: dict[str, tuple[Callable[[Any], Any], Any, Any, str]] = {
    **{
        name: (function, SINGULAR[1], SINGULAR[0], "is singular: the diagonal element 2")
        for name, function in {
            "linalg.inv": torch.linalg.inv,
            "linalg.inv_ex": lambda x: torch.linalg.inv_ex(x, check_errors=True)[0],
            "linalg.solve": lambda x: torch.linalg.solve(x, x[0]),
            "linalg.tensorinv": lambda x: torch.linalg.tensorinv(x.view(3, 3), 1),
            "linalg.matrix_power": lambda x: torch.linalg.matrix_power(x, -2),
            "linalg.lu_factor": torch.linalg.lu_factor,
        }.items()
    },
    "cholesky_inverse": (
        torch.cholesky_inverse,
        torch.eye(3),
        torch.zeros(3, 3),
        "is singular: the diagonal element 1",
    ),
    "inv of batches": (torch.linalg.inv, SINGULAR[1:], SINGULAR[:1], "matrix 0 of the batch is"),
    "linalg.cholesky": (
        torch.linalg.cholesky,
        SINGULAR[1],
        -SINGULAR[1],
        "not positive definite: its leading minor of order 1",
    ),
    "linalg.cholesky of complex numbers": (
        torch.linalg.cholesky,
        SINGULAR[1] + 0j,
        SINGULAR[1] - 3 * torch.eye(3) + 0j,
        "not positive definite: its leading minor of order 1",
    ),
    "assert": (asserted, row(1.0, 2.0), row(-1.0, -2.0), "{the sum} is positive"),
    "a branch": (asserted_in_a_branch, row(1.0, 2.0), row(-1.0, 2.0), "the first is positive"),
    "a loop": (asserted_in_a_loop, row(7.0, 2.0), row(2.0, 4.0), "the first stays positive"),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native", "torch.compile"])
@pytest.mark.parametrize("name", RAISING)
def test_matrices_and_assertions_are_checked_where_pytorch_checks_them(name, target) -> None:
    function, right, wrong, message = RAISING[name]
    if target == "torch.compile":
        run = captured(function)
    elif right.is_complex():
        real = exported(function, right, target=target)
        run = lambda x: [torch.view_as_complex(real(torch.view_as_real(x))[0])]  # noqa: E731
    else:
        run = exported(function, right, target=target)
    for found, expected in zip(run(right), leaves(function(right)), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), expected)
    with pytest.raises(RuntimeError):
        function(wrong)
    with pytest.raises(RelaxpyError, match=message):
        run(wrong)


#: Calls of packed functions of matrices, which have the names of PyTorch's operators.
CALLS: Sequence[tuple[Any, ...]] = [
    ("linalg_solve_triangular", "a", "b", {"upper": True}),
    ("linalg_solve_triangular", "a", "rows", {"upper": False, "left": False}),
    ("triangular_solve", "b", "a", {"transpose": True, "unitriangular": True}),
    ("cholesky_solve", "b", "a", {}),
    ("linalg_lu", "a", {}),
    ("linalg_lu_factor", "rows", {}),
    ("linalg_lu_solve", "lu", "pivots", "b", {}),
    ("linalg_lu_solve", "lu", "pivots", "rows", {"left": False, "adjoint": True}),
    ("linalg_householder_product", "vectors", "scales", {}),
    ("ormqr", "vectors", "scales", "b", {"transpose": True}),
    ("linalg_matrix_exp", "a", {}),
]
#: Elements of the diagonal, with whose inverses OpenBLAS multiplies.
DIAGONALS = {"usual": 2.0, "zero": 0.0, "subnormal": 1e-40, "infinite": INF, "nan": NAN}


def assert_matrices_are_right(name: str, values: Sequence[Any], options: Any) -> None:
    """Compare a packed function with the operator of PyTorch."""
    found = getattr(matrices, name)(*(x.numpy() for x in values), **options)
    right = leaves(getattr(torch.ops.aten, name)(*values, **options))
    for x, expected in zip(found if isinstance(found, tuple) else [found], right, strict=True):
        actual = torch.as_tensor(np.asarray(x)).to(expected.dtype)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.fixture(params=["LAPACK", "loops"])
def library(request: Any, monkeypatch: Any) -> None:
    """With NumPy's LAPACK, and without it."""
    if request.param == "loops":
        monkeypatch.setattr(blas, "_symbol", lambda *names: None)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
@pytest.mark.parametrize("shape", [(5, 5), (3, 5, 5), (30, 2, 2), (0, 4, 4), (2, 0, 0)])
def test_matrices_are_those_of_pytorch(shape, dtype) -> None:
    make = partial(torch.randn, dtype=dtype, generator=torch.Generator().manual_seed(0))
    given = {"a": make(*shape) + 3 * torch.eye(shape[-1]), "b": make(*shape)[..., :3]}
    given["rows"] = given["b"].mT
    given["lu"], given["pivots"] = torch.linalg.lu_factor(given["a"])
    given["vectors"], scales = torch.geqrf(given["a"])
    given["scales"] = torch.where(scales.real > 1.5, 0, scales)
    for name, *operands, options in CALLS:
        assert_matrices_are_right(name, [given[operand] for operand in operands], options)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("diagonal", DIAGONALS)
def test_triangular_matrices_with_unusual_diagonals_are_solved(diagonal) -> None:
    a = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0))
    a[1, 2, 2] = DIAGONALS[diagonal]
    with np.errstate(all="ignore"):
        for b in (torch.eye(5), a + 1):
            assert_matrices_are_right("linalg_solve_triangular", [a, b], {"upper": True})


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("value", "place"), [(NAN, (0, 0)), (NAN, (2, 2)), (INF, (0, 1))])
def test_numbers_that_are_not_finite_reach_all_that_a_factor_solves(value, place) -> None:
    a = torch.randn(5, 5, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(5)
    a[place] = value
    with np.errstate(all="ignore"):
        assert_matrices_are_right("linalg_lu_factor", [a], {})
        factors = torch.linalg.lu_factor(a)
        found = matrices.linalg_lu_solve(*(x.numpy() for x in factors), np.ones((5, 1), "f4"))
    assert np.isnan(found).all()


def test_only_the_results_that_are_used_are_computed(monkeypatch) -> None:
    monkeypatch.delattr(np.linalg, "eigh")
    x = torch.eye(3) + 1
    found = exported(torch.linalg.eigvalsh, x)(x)[0]
    torch.testing.assert_close(torch.as_tensor(found), torch.tensor([1.0, 1.0, 4.0]))


@pytest.mark.each_choice
@ROADS
@pytest.mark.parametrize(
    "function", [torch.rand_like, torch.randn_like, torch.bernoulli, F.dropout]
)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_draws_for_tensors_are_in_the_order_of_their_memory(function, order, road) -> None:
    x = torch.full((2, 3, 4), 0.5)
    torch.manual_seed(5)
    right = function(x.permute(order))
    run = road(lambda x: function(x.permute(order)), x)
    run(x)
    torch.manual_seed(5)
    torch.testing.assert_close(run(x)[0], right)


#: Operands that PyTorch has no kernel for, and what is said of them.
REFUSED: dict[str, Sequence[Callable[[Any], Any]]] = {
    "for floats only, found int64": (
        *(F.gelu, F.silu, F.glu, torch.var, torch.std, lambda x: x.softmax(0), F.softplus),
        lambda x: x.frac(),
        lambda x: torch.lerp(x, x, 0.5),
        lambda x: F.smooth_l1_loss(x, x),
        lambda x: F.binary_cross_entropy(x, x),
        lambda x: x.logcumsumexp(0),
        *(F.hardshrink, torch.linalg.eigvalsh, torch.linalg.lu_factor),
        lambda x: F.leaky_relu(x, 1),
        lambda x: torch.hypot(x, x),
        lambda x: torch.logaddexp(x, x),
        lambda x: torch.igamma(x, x),
        lambda x: F.huber_loss(x, x),
    ),
    "for floats and uint8 only, found int64": (
        lambda x: F.interpolate(x[None, None], scale_factor=2),
        lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    ),
    "for numbers only, found bool": (
        lambda x: (x > 2) @ (x > 2),
        lambda x: torch.einsum("ij,jk", x > 2, x > 2),
        lambda x: (x > 2).ceil(),
        lambda x: (x > 2).abs(),
        lambda x: (x > 2).relu_(),
        lambda x: (x > 2).argmax(),
        lambda x: (x > 2).median(),
        lambda x: (x > 2).trace(),
        lambda x: torch.remainder(x > 2, x > 1),
    ),
    "for operands of one datatype, found float32 and float64": (
        lambda x: F.layer_norm(x.float(), (2,), torch.ones(2).double()),
        lambda x: F.batch_norm(x.float(), torch.ones(2).double(), torch.ones(2).double()),
        lambda x: x.float().index_add(0, torch.tensor([0]), x[:1].double()),
        lambda x: x.float().index_copy(0, torch.tensor([0]), x[:1].double()),
        lambda x: x.float().index_put((torch.tensor([0]),), x[:1].double()),
    ),
    r"the bound -?\d+ is out of range for uint8": (
        lambda x: x.byte().clamp(-1, 300),
        lambda x: x.byte().clamp(300),
        lambda x: x.byte().clamp_max(-256),
    ),
    "the value .* is out of range": (
        lambda x: torch.full_like(x, 300, dtype=torch.uint8),
        lambda x: torch.full((2,), 1e20, dtype=torch.int64),
        lambda x: torch.full((2,), INF, dtype=torch.int32),
        lambda x: x.to(torch.int8).masked_fill(x > 1, 300),
        lambda x: x.half().masked_fill_(x > 1, -1e9),
    ),
    "negative powers of integers": (lambda x: x**-1,),
    "smooth_l1_loss of a negative beta": (
        lambda x: F.smooth_l1_loss(x.float(), x.float(), beta=-1.0),
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_pytorch_has_no_kernel_for_is_refused(message: str) -> None:
    x = torch.tensor([[1, 2], [3, 4]])
    for function in REFUSED[message]:
        with pytest.raises(RuntimeError):
            function(x)
        program = torch.export.export(Function(function), (x,))
        with pytest.raises(NotImplementedError, match=message):
            from_exported_program(program)


#: Products of two matrices, which are of one datatype or of two.
PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "mm": torch.mm,
    "matmul": lambda a, b: a[None] @ b,
    "mv": lambda a, b: torch.mv(a, b[0]),
    "linear": F.linear,
    "linear, bias": lambda a, b: F.linear(a[None], a, b[0]),
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "addmm, sum": lambda a, b: torch.addmm(b[0], a, a),
    "addbmm": lambda a, b: torch.addbmm(a, a[None], b[None]),
    "outer": lambda a, b: torch.outer(a[0], b[0]),
    "einsum": lambda a, b: torch.einsum("ij,jk", a, b),
    "cross": torch.linalg.cross,
    "conv1d": lambda a, b: F.conv1d(a[None], b[..., None]),
    "conv2d": lambda a, b: F.conv2d(a[:, None], b[None, None]),
    "conv3d": lambda a, b: F.conv3d(a[None, None, None], b[None, None, None]),
    "conv2d, bias": lambda a, b: F.conv2d(a[..., None], a[..., None, None], b[0]),
    "conv_transpose1d": lambda a, b: F.conv_transpose1d(a[None], b[..., None]),
    "conv_transpose2d, bias": lambda a, b: F.conv_transpose2d(
        a[..., None], a[..., None, None], b[0]
    ),
    "conv_tbc": lambda a, b: torch.conv_tbc(a[None], b[None], a[0]),
    "grid": lambda a, b: F.grid_sample(a[None, None], b[None, :, None, :2]),
    "embedding_bag": lambda a, b: F.embedding_bag(
        torch.tensor([[0, 1]]), a, per_sample_weights=b[:1, :2], mode="sum"
    ),
    "bilinear": lambda a, b: F.bilinear(a, b, a.expand(2, 3, 3)),
}
_PAIRS = ("ff", "hf", "hb", "fd", "fl", "li")
_DTYPES = {"f": torch.float32, "h": torch.float16, "b": torch.bfloat16, "d": torch.float64}
_DTYPES |= {"l": torch.int64, "i": torch.int32}


@ROADS
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_of_two_datatypes_are_refused_where_pytorch_refuses_them(product, road) -> None:
    if road is captured and product in ("cross", "embedding_bag"):
        pytest.skip("torch.compile decomposes them, and computes them for two datatypes itself")
    function, x = PRODUCTS[product], torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0]])
    for pair in _PAIRS if road is exported else _PAIRS[:3]:
        a, b = (x.to(_DTYPES[letter]) for letter in pair)
        try:
            expected = function(a, b)
        except RuntimeError:
            with pytest.raises((RuntimeError, NotImplementedError)):
                road(function, a, b)(a, b)
        else:
            torch.testing.assert_close(torch.as_tensor(road(function, a, b)(a, b)[0]), expected)


def test_operands_that_autocast_converts_are_not_refused() -> None:
    def function(x: Any, weight: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return F.linear(F.linear(x, weight), weight)

    args = torch.ones(2, 3), torch.ones(3, 3)
    torch.testing.assert_close(exported(function, *args)(*args)[0], function(*args))


def test_values_at_the_ends_of_datatypes_are_written() -> None:
    def filled(x: Any) -> Any:
        narrow = x.half().masked_fill(x > 1, -65504), x.half().masked_fill(x > 1, -INF)
        return *narrow, torch.full_like(x, -1, dtype=torch.uint8), x.masked_fill(x > 1, 1.5)

    x = torch.tensor([[1, 2], [3, 4]])
    for ours, theirs in zip(exported(filled, x)(x), filled(x), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("bounds", [(5, 10), (None, -1), (-255, None)])
def test_bounds_of_bytes(bounds: Any) -> None:
    x = torch.tensor([0, 44, 200], dtype=torch.uint8)
    torch.testing.assert_close(exported(lambda x: x.clamp(*bounds), x)(x)[0], x.clamp(*bounds))


@ROADS
@pytest.mark.parametrize("source", [torch.float16, torch.bfloat16, torch.float32, torch.int16])
@pytest.mark.parametrize("dtype", ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"])
def test_all_numbers_of_16_bits_are_cast_to_8_bits(dtype: str, source: Any, road: Any) -> None:
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    x = bits.view(torch.float16).float() if source == torch.float32 else bits.view(source)
    narrow = getattr(torch, f"float8_{dtype}")

    def function(x: Any) -> Any:
        return x.to(narrow).float(), torch.zeros(2**16, dtype=narrow).copy_(x).float()

    for found, expected in zip(road(function, x)(x), function(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), expected, rtol=0, atol=0, equal_nan=True)


def test_importing_the_frontend_loads_neither_torch_dynamo_nor_inductor() -> None:
    code = (
        "import sys, relaxpy.relax.frontend.torch\n"
        "heavy = ('torch._dynamo', 'torch._inductor')\n"
        "print(sum(name.startswith(heavy) for name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "0"


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native", "torch.compile"])
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "padding_value": 7}])
def test_pieces_whose_lengths_are_data_are_padded(options: Any, target: str) -> None:
    def padded(x: Any, mask: Any) -> Any:
        pieces = [x[mask], x[~mask], x[:1]]
        more = torch.nn.utils.rnn.pad_sequence(pieces, padding_side="left", **options)
        return torch.nn.utils.rnn.pad_sequence(pieces, **options), more

    masks = ([True, False, False], [True, True, False], [False] * 3)
    for x in (torch.arange(3.0), torch.arange(6).reshape(3, 2)):
        run = None
        for mask in map(torch.tensor, masks):
            if target == "torch.compile":
                found = captured(padded, x, mask)(x, mask)
            else:
                program = torch.export.export(Function(padded), (x, mask))
                run = run or relaxpy.compile(from_exported_program(program), target)["main"]
                found = run(x, mask)
            for ours, theirs in zip(found, padded(x, mask), strict=True):
                torch.testing.assert_close(ours, theirs)


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize(
    ("function", "low", "high", "bound"),
    [
        *((torch.erfinv, -1, 1, 2.2), (torch.erfc, -5, 11, 0.52)),
        *((torch.lgamma, -9, 30, 0.51), (torch.digamma, -9, 30, 0.51)),
        (lambda x: torch.hypot(x, x.roll(1)), -9, 30, 0.51),
        (lambda x: torch.polygamma(1, x.abs()), -9, 30, 0.51),
    ],
)
def test_special_functions_are_exact_to_a_few_ulp(
    function: Any, low: float, high: float, bound: float, dtype: Any, target: str
) -> None:
    special = [0.0, -0.0, 1, -1, 2, -2, -3, 0.5, -0.5, NAN, math.inf, -math.inf, 1e-7, 1e-30, 100]
    numbers = torch.rand(20000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    near = 1 - 10 ** (-8 * numbers[:2000])
    x = torch.cat([torch.tensor(special).double(), low + (high - low) * numbers, near]).to(dtype)
    (found,) = exported(function, x, target=target)(x)
    right = function(x.double())
    if dtype == torch.float64:
        torch.testing.assert_close(found, right, rtol=1e-11, atol=1e-14, equal_nan=True)
        return
    limit = torch.finfo(dtype)
    exact = right.abs() <= limit.max
    exponent = torch.frexp(right.abs().clamp(limit.smallest_normal, limit.max)).exponent
    ulp = torch.ldexp(torch.tensor(limit.eps / 2, dtype=torch.float64), exponent)
    # The zeros of the logarithm at 1 and 2 are exact to the last bit of float64.
    error = (found.double() - right).abs() - 4e-15
    assert (error[exact] / ulp[exact]).max() <= bound
    torch.testing.assert_close(found[~exact], right[~exact].to(dtype), equal_nan=True)


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_digamma_is_exact_to_seven_ulp_also_near_its_poles(target: str) -> None:
    mpmath = pytest.importorskip("mpmath")
    numbers = torch.rand(600, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    near, nearer = 10 ** (-12 * numbers[:100]), 10 ** (-20 * numbers[:100])
    poles = [-6 - near, -6 + near, -1 - near, -1 + near, -nearer, nearer, 1 / nearer]
    x = torch.cat([numbers * 39 - 9, numbers * 8 - 0.6, *poles])
    (found,) = exported(torch.digamma, x, target=target)(x)
    with mpmath.workdps(40):
        exact = [mpmath.digamma(value) for value in x.tolist()]
        error = [abs(a - b) / max(1, abs(b)) for a, b in zip(found.tolist(), exact, strict=True)]
    assert max(error) <= 7 * torch.finfo(torch.float64).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.uint8])
@pytest.mark.parametrize("function", [torch.cummax, torch.cummin])
def test_running_extrema_of_rows_that_fill_few_vectors(function: Any, dtype: Any) -> None:
    random = torch.Generator().manual_seed(0)
    for length in (9, 32, 33, 47, 65):
        x = torch.randint(0, 9, (7, length), generator=random).to(dtype)
        if dtype.is_floating_point:
            x[0, 3] = x[1, length // 2] = NAN
            x[2, 0] = INF
        found = exported(lambda x: function(x, -1), x, target="native")(x)
        for ours, theirs in zip(found, function(x, -1), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
