"""Values at the edges of datatypes and of tensors: those of PyTorch, eager and in float64."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

import relaxpy
from relaxpy.errors import RelaxpyError

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
def test_standard_deviations_are_roots_of_variances_that_are_not_rounded(
    scale: float, road: Any
) -> None:
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
    "cummax of nothing": (lambda x: x.cummax(0), row()),
    "cummin of nothing": (lambda x: x.cummin(1), torch.zeros(3, 0)),
    "maxima of -inf": (
        lambda x: F.max_pool2d(x, 2, 2, 1, return_indices=True),
        torch.full((1, 1, 4, 4), -INF),
    ),
    "attention to nothing": (
        lambda x: F.scaled_dot_product_attention(x, x, x, torch.tensor([[0, -INF], [-INF, -INF]])),
        torch.arange(8.0).reshape(1, 1, 2, 4),
    ),
    "powers": (
        lambda x: (2**x, 3**x, x**65, x**64, torch.pow(x - 2, x)),
        torch.tensor([0, 1, 63, 64, 65, 100, 1000, 2**40 + 1]),
    ),
    "shifts": (lambda x: (x << 64, x >> 64, x << -1, x << 63), torch.tensor([1, -5, 3])),
    "filled from the end": (lambda x: x.index_fill(0, torch.tensor([-1, 0]), 7), row(1, 2, 3)),
}


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
    "embedding": lambda x, i: F.embedding(i, x),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize("name", [*INDEXED, "one_hot", "bincount"])
def test_indices_out_of_range_are_refused_where_pytorch_refuses_them(
    name: str, target: str
) -> None:
    function = INDEXED.get(name)
    if function is None:
        convert = {"one_hot": lambda i: F.one_hot(i, 2), "bincount": lambda i: i.bincount()}[name]
        function = lambda x, i: convert(i)  # noqa: E731
    x, index = torch.zeros(2, 2), torch.tensor([0])
    program = torch.export.export(Function(function), (x, index))
    run = relaxpy.compile(from_exported_program(program), target)["main"]
    for number in (-4, -3, -2, -1, 0, 1, 2, 5):
        index = torch.tensor([number])
        try:
            right = function(x, index)
        except (RuntimeError, IndexError):
            with pytest.raises(RelaxpyError, match=r"index -?\d+ is outside"):
                run(x, index)
        else:
            torch.testing.assert_close(run(x, index)[0], right)


@pytest.mark.each_choice
@ROADS
@pytest.mark.parametrize(
    "function", [torch.rand_like, torch.randn_like, torch.bernoulli, F.dropout]
)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_draws_for_tensors_are_in_the_order_of_their_memory(
    function: Any, order: Any, road: Any
) -> None:
    x = torch.full((2, 3, 4), 0.5)
    torch.manual_seed(5)
    right = function(x.permute(order))
    run = road(lambda x: function(x.permute(order)), x)
    run(x)
    torch.manual_seed(5)
    torch.testing.assert_close(run(x)[0], right)


@pytest.mark.parametrize(
    "function", [F.gelu, F.silu, F.glu, torch.var, torch.std, lambda x: x.softmax(0), F.softplus]
)
def test_functions_of_floats_are_refused_for_integers_as_in_pytorch(function: Any) -> None:
    x = torch.tensor([[1, 2], [3, 4]])
    with pytest.raises(RuntimeError):
        function(x)
    program = torch.export.export(Function(function), (x,))
    with pytest.raises(NotImplementedError, match="for floats only, found int64"):
        from_exported_program(program)


@pytest.mark.parametrize(
    "function", [lambda x: x.clamp(-1, 300), lambda x: x.clamp(300), lambda x: x.clamp_max(-256)]
)
def test_bounds_outside_of_the_datatype_are_refused(function: Any) -> None:
    x = torch.tensor([0, 44, 200], dtype=torch.uint8)
    with pytest.raises(RuntimeError):
        function(x)
    program = torch.export.export(Function(function), (x,))
    with pytest.raises(NotImplementedError, match=r"the bound -?\d+ is no uint8"):
        from_exported_program(program)


def test_a_negative_beta_is_refused() -> None:
    function, x = lambda a, b: F.smooth_l1_loss(a, b, beta=-1.0), torch.ones(2)
    with pytest.raises(RuntimeError):
        function(x, x)
    with pytest.raises(NotImplementedError, match="smooth_l1_loss of a negative beta"):
        from_exported_program(torch.export.export(Function(function), (x, x)))


@pytest.mark.parametrize("bounds", [(5, 10), (None, -1), (-255, None)])
def test_bounds_of_bytes(bounds: Any) -> None:
    x = torch.tensor([0, 44, 200], dtype=torch.uint8)
    torch.testing.assert_close(exported(lambda x: x.clamp(*bounds), x)(x)[0], x.clamp(*bounds))


def test_importing_the_frontend_loads_neither_torch_dynamo_nor_inductor() -> None:
    code = (
        "import sys, relaxpy.relax.frontend.torch\n"
        "heavy = ('torch._dynamo', 'torch._inductor')\n"
        "print(sum(name.startswith(heavy) for name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "0"
