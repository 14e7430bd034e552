"""Gradients by `torch.compile`, forward and backward graphs compiled, beside those of PyTorch."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
from relaxpy.relax.frontend.torch import relax_dynamo  # noqa: E402
from tests.rows import whole_tables  # noqa: E402

nn, F = torch.nn, torch.nn.functional
SIZES = (9, 8, 7)
PLACES = [0, 2, 2, 5]


class Applied(nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def gradients(model: Any, run: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """The result of a call, the gradients of the inputs, and those of the parameters."""
    model.zero_grad()
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    result = run(*leaves)
    result.square().sum().backward()
    found = [leaf.grad for leaf in leaves if leaf.requires_grad]
    return [result.detach(), *found, *(p.grad.clone() for p in model.parameters())]


def compare(model: Any, *inputs: Any) -> None:
    torch._dynamo.reset()
    expected = gradients(model, model, inputs)
    found = gradients(model, torch.compile(model, backend=relax_dynamo()), inputs)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def compare_all(functions: Iterable[Callable[..., Any]], x: Any) -> None:
    """Compare functions in one program, each with an operand of its own."""
    functions = list(functions)

    def together(*xs: Any) -> Any:
        return torch.cat([f(x).flatten() for f, x in zip(functions, xs, strict=True)])

    compare(Applied(together), *[x] * len(functions))


def images(count: int) -> Any:
    return torch.randn(2, 4, *SIZES[:count], generator=torch.Generator().manual_seed(0))


@pytest.mark.each_choice
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": 2, "stride": 2, "padding": 2}],
    ids=str,
)
def test_convolutions(count: int, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    compare(getattr(nn, f"Conv{count}d")(4, 6, 3, **options), images(count))
    options = {**options, "output_padding": 1} if "stride" in options else options
    compare(getattr(nn, f"ConvTranspose{count}d")(4, 6, 3, **options), images(count))


def test_convolutions_of_images_of_any_size() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(4, 6, 3, stride=3, padding=1, dilation=2)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=relax_dynamo(), dynamic=True)
    for size in (6, 8):
        x = images(2)[:, :, :size, : size - 1]
        found, expected = (gradients(model, run, (x,)) for run in (compiled, model))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("count", [1, 2, 3] if whole_tables() else [2])
def test_pools_and_padded_images(count: int) -> None:
    def pools(x: Any) -> Any:
        mean, most, of_parts, most_of_parts = (
            getattr(F, f"{name}{count}d")
            for name in ("avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool")
        )
        padded = F.pad(x, [1, 2] * count, mode="replicate")
        results = [
            *(mean(x, 3, 2, 1), mean(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)),
            *(most(x, 3, 2, 1), of_parts(x, 3), of_parts(x, 1), most_of_parts(x, 3), padded),
        ]
        if count > 1:
            results.append(mean(x, 2, divisor_override=3))
        return torch.cat([result.flatten(1) for result in results], 1)

    compare(Applied(pools), images(count))


@pytest.mark.each_choice
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_which_some_are_empty(mode: str, padding: int | None, last: bool) -> None:
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 9, (20,), generator=random)
    starts = torch.tensor([0, 0, 4, 9, 9] + [20] * last)
    options = {"mode": mode, "padding_idx": padding, "include_last_offset": last}
    model = Applied(lambda x: F.embedding_bag(rows, x, starts, **options))
    compare(model, torch.randn(9, 5, generator=random))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_resized_without_steps(mode: str) -> None:
    model = Applied(lambda x: F.interpolate(x, size=(5, 12), mode=mode, antialias=True))
    compare(model, images(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.interpolate(x, (5, 12), mode="nearest"),
        lambda x: F.interpolate(x, (12, 3), mode="nearest-exact"),
        lambda x: F.pad(x, [1, 2, 3, 0], mode="replicate"),
    ],
)
def test_gradients_of_copies_that_are_not_finite_stay_where_they_are(
    function: Any, dtype: Any
) -> None:
    torch._dynamo.reset()
    x, found = images(2).to(dtype), []
    for run in (function, torch.compile(function, backend=relax_dynamo())):
        x = x.detach().requires_grad_()
        y = run(x)
        weights = torch.ones_like(y)
        weights[..., 2, 1] = torch.inf
        y.backward(weights)
        found.append(x.grad)
    assert torch.equal(*found)


def test_images_of_known_sizes_are_resized_by_one_operator() -> None:
    def resized(x: Any) -> Any:
        return F.interpolate(F.interpolate(x, (3, 4), mode="bilinear"), scale_factor=2)

    x, programs = images(2), []
    torch._dynamo.reset()
    run = torch.compile(resized, backend=relax_dynamo(lambda m: programs.append(m) or m))
    torch.testing.assert_close(run(x), resized(x))
    assert programs[0].script().count("R.image.resize2d") == 2


@pytest.mark.parametrize("kind", ["causal", "sums", "groups"])
def test_attention(kind: str) -> None:
    mask = torch.rand(2, 1, 7, 7, generator=torch.Generator().manual_seed(0)) > 0.3
    mask[..., 0] = True
    options: dict[str, Any] = {
        "causal": {"is_causal": True},
        "sums": {"attn_mask": torch.where(mask, 0.3, -2.0), "scale": 0.5},
        "groups": {"attn_mask": mask, "enable_gqa": True},
    }[kind]
    model = Applied(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options))
    x = torch.randn(2, 3, 7, 8, generator=torch.Generator().manual_seed(1))
    if kind == "groups":
        compare(model, torch.cat([x, x - 1], 1), x + 1, x * 2)
    else:
        compare(model, x, x + 1, x * 2)


def test_distances() -> None:
    powers = (0.0, 1.0, 2.0, 3.0, float("inf"))
    functions = [partial(lambda a, p: torch.cdist(a[:3], a[3:] + 1, p), p=p) for p in powers]
    functions += [partial(F.pdist, p=p) for p in powers[1:]]
    compare_all(functions, torch.randn(5, 7, generator=torch.Generator().manual_seed(0)))


def test_distances_of_any_number_of_rows() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(F.pdist, backend=relax_dynamo(), dynamic=True)
    for count, stance in [(5, "default"), (7, "fail_on_recompile")]:
        x = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
        with torch.compiler.set_stance(stance):
            found, expected = (gradients(nn.Module(), run, (x,)) for run in (compiled, F.pdist))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode: str) -> None:
    torch.manual_seed(0)
    indices = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9])
    compare(nn.EmbeddingBag(10, 4, mode=mode), indices, torch.tensor(PLACES))


def test_segments() -> None:
    reduced = partial(torch.segment_reduce, lengths=torch.tensor([2, 3]), axis=0)
    functions = [partial(reduced, reduce=r) for r in ("sum", "mean", "max", "min", "prod")]
    compare_all(functions, torch.randn(5, 7, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("mode", "padding", "corners"),
    [("bilinear", "reflection", False), ("nearest", "border", False), ("bicubic", "zeros", True)],
)
def test_images_sampled_at_other_places(mode: str, padding: str, corners: bool) -> None:
    sample = Applied(
        lambda x, grid: F.grid_sample(x, grid, mode, padding_mode=padding, align_corners=corners)
    )
    draw = torch.Generator().manual_seed(0)
    for count in (2,) if mode == "bicubic" else (2, 3):
        grid = torch.rand(2, 3, *[4] * (count - 1), count, generator=draw) * 3.7 - 1.8
        compare(sample, images(count), grid)


@pytest.mark.parametrize("count", [2, 3])
def test_pools_at_random_places(count: int) -> None:
    pool = getattr(F, f"fractional_max_pool{count}d")
    numbers = torch.rand(2, 4, count, generator=torch.Generator().manual_seed(0))
    compare(Applied(lambda x: pool(x, 2, output_size=4, _random_samples=numbers)), images(count))


SOLVERS: list[Callable[..., Any]] = [
    torch.linalg.inv,
    torch.linalg.cholesky,
    lambda a: torch.linalg.solve(a, a[..., :2] + 1),
    lambda a: torch.cholesky_solve(a + 1, torch.linalg.cholesky(a)),
    lambda a: torch.linalg.matrix_power(a, -2),
]
#: Operands whose shapes say what the groups that end at these places are groups of.
GROUPS: dict[str, tuple[list[int], list[int], list[int] | None]] = {
    "rows": ([9, 8], [3, 8, 16], [2, 2, 9]),
    "columns": ([3, 8, 16], [16, 24], [0, 20, 24]),
    "what is summed": ([8, 24], [24, 16], [3, 3, 24]),
    "batches": ([3, 8, 16], [3, 16, 8], None),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_products_of_groups(kind: str) -> None:
    *shapes, ends = GROUPS[kind]
    places = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    draw = torch.Generator().manual_seed(0)
    # small integers: no sum is rounded
    x, y = (torch.randint(-3, 4, shape, generator=draw).bfloat16() for shape in shapes)
    compare(Applied(lambda a, b: torch.ops.aten._grouped_mm(a, b, places)), x, y)


def test_solvers() -> None:
    a = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    compare_all(SOLVERS, a @ a.mT + torch.eye(3))


def test_simulated_quantisation() -> None:
    model = Applied(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15))
    compare(model, images(2))


TARGET = torch.tensor([1, 0, 3, 6, 2])
FUNCTIONS: list[Callable[..., Any]] = [
    F.hardshrink,
    F.softshrink,
    F.rrelu,
    lambda a: a.masked_scatter(a.detach() > 0, a + 1),
    lambda a: F.multi_margin_loss(a, TARGET),
    lambda a: F.multi_margin_loss(a, TARGET, p=2, margin=0.5, reduction="none"),
]


def test_other_functions() -> None:
    compare_all(FUNCTIONS, torch.randn(5, 7, generator=torch.Generator().manual_seed(0)))


def test_normalised_weights() -> None:
    torch.manual_seed(0)
    compare(nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 3, 3), dim=2), images(1))


#: Functions of real numbers with complex numbers of Python in them.
TURNED: dict[str, Callable[[Any], Any]] = {
    "factors": lambda x: (1j * x, x * (1 + 2j), torch.outer(x * 1j, x - 2j)),
    "functions": lambda x: (torch.exp(1j * x), torch.sin(x + 1j), (x * 2j).tanh()),
    "quotients": lambda x: (x / (2 + 1j), 1j / x, (x + 1j) / (x - 1j)),
    "powers": lambda x: (x**1j, (x + 1j) ** 2, (1 + 1j) ** x, (x * 1j) ** (x + 1j)),
    "parts": lambda x: ((x * (1 + 1j)).real, (x + 2j * x * x).imag, (x * 1j).conj().imag, x - 1j),
    "sizes": lambda x: ((x - 1j).abs(), (x * x + 1j * x).angle()),
    "spectra": lambda x: (torch.fft.irfft(torch.fft.rfft(x) * 1j, n=3), torch.fft.fft(1j * x)),
    "chosen": lambda x: (torch.where(x > 1, x * 1j, x + 0j), torch.addcmul(x + 0j, x + 0j, x * 1j)),
}


def test_complex_numbers_of_python() -> None:
    """In one program, each function with an operand of its own."""

    def functions(*xs: Any) -> list[Any]:
        return [y for f, x in zip(TURNED.values(), xs, strict=True) for y in f(x)]

    def weighted(run: Callable[..., Any]) -> list[Any]:
        leaves = [torch.tensor([0.5, 1.25, 3.0], requires_grad=True) for _ in TURNED]
        results = run(*leaves)
        sum((y * (2 + 1j)).abs().square().sum() for y in results).backward()
        return [*(y.detach() for y in results), *(leaf.grad for leaf in leaves)]

    torch._dynamo.reset()
    compiled = torch.compile(functions, backend=relax_dynamo())
    for found, right in zip(weighted(compiled), weighted(functions), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
