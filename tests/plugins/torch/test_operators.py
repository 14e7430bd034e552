"""PyTorch's own samples of operators, exported and compared: a few, or all with --whole-table.

Of the operators below, one run draws a third, `make test-all` compares all.
"""

import importlib
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import relaxpy

torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which PyTorch's own samples import
from torch.utils import _pytree as trees  # noqa: E402

from relaxpy.relax.frontend.torch import from_exported_program, relax_dynamo  # noqa: E402
from tests.rows import third  # noqa: E402

#: Operators, one sample of each of which is tried where it is drawn.
SAMPLE = """
    erfc lgamma digamma igamma special.zeta special.ndtri special.erfcx special.bessel_j0
    special.bessel_y1 special.modified_bessel_k0 special.airy_ai special.hermite_polynomial_h
    special.i1e polygamma gcd frexp nextafter copysign fmin hypot hsplit cartesian_prod cdist
    atleast_2d diff cholesky_inverse linalg.lu linalg.lu_solve linalg.slogdet linalg.inv_ex
    linalg.solve_ex linalg.solve_triangular triangular_solve geqrf ormqr linalg.qr linalg.svd
    linalg.eigh linalg.pinv linalg.ldl_factor linalg.ldl_solve linalg.polar linalg.matrix_sqrth
    erfinv expm1 log1p nn.functional.elu index_add index_copy atan2 cummax logcumsumexp kthvalue
    median nanmedian scatter_reduce linalg.cholesky linalg.inv index_reduce put masked_scatter
    searchsorted mode max gather histc bincount unique_consecutive nonzero_static histogram
    histogramdd hash_tensor tensor_split bucketize _segment_reduce _upsample_bilinear2d_aa
    nn.functional.adaptive_max_pool2d nn.functional.embedding_bag nn.functional.conv_transpose2d
    nn.functional.pad nn.functional.instance_norm nn.functional.fractional_max_pool2d
    nn.functional.fractional_max_pool3d nn.functional.feature_alpha_dropout nn.functional.dropout3d
    nn.functional.rrelu
"""
#: Operators, one sample of each of which has complex numbers where it is drawn.
COMPLEX = """
    add addcdiv addmm addr angle any asin acosh atanh baddbmm cat conj constant_pad_nd cumprod diff
    div einsum eq exp expm1 eye fft.fft fft.hfft2 fft.ihfftn fft.irfft fft.irfftn fft.rfft2
    full_like gather index_put isclose istft linalg.inv linalg.pinv linalg.solve linalg.vector_norm
    log log1p logcumsumexp masked_fill masked_select matmul mean nn.functional.conv2d nonzero
    nonzero_static normal pow prod ones_like polar randn_like uniform real reciprocal rsqrt rsub
    scatter_add sgn sigmoid sqrt stft std cholesky_inverse cholesky_solve geqrf linalg.cholesky_ex
    ormqr linalg.det linalg.eig linalg.eigh linalg.eigvals linalg.householder_product linalg.lu
    linalg.lu_factor linalg.lu_solve linalg.qr linalg.slogdet linalg.ldl_factor linalg.ldl_solve
    linalg.matrix_sqrth linalg.polar linalg.solve_triangular linalg.svd linalg.svdvals lu_unpack
    triangular_solve sum tan tanh to unfold vdot view_as_complex view_as_real where
"""
#: Operators whose results have signs that are not defined; what PyTorch's tests do with them is.
SIGNS_FREE = {"linalg.eig", "linalg.eigh", "linalg.svd"}
TOLERANCE = 2e-4


class Applied(torch.nn.Module):  # type: ignore[misc]
    """An operator, applied to tensors among arguments that are known."""

    def __init__(self, op: Any, arguments: Any) -> None:
        super().__init__()
        self.op = op
        self.leaves, self.spec = trees.tree_flatten(arguments)
        self.places = [k for k, v in enumerate(self.leaves) if isinstance(v, torch.Tensor)]

    def tensors(self) -> tuple[Any, ...]:
        return tuple(self.leaves[k].detach().clone() for k in self.places)

    def forward(self, *tensors: Any) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = trees.tree_unflatten(leaves, self.spec)
        return self.op(*args, **kwargs)


def own_tests() -> Any:
    """What PyTorch's own tests use: its import takes two seconds."""
    return importlib.import_module("torch.testing._internal.common_methods_invocations")


def info_of(name: str) -> Any:
    """PyTorch's samples of an operator, which some versions of it do not have."""
    found = next((info for info in own_tests().op_db if info.name == name), None)
    return pytest.skip(f"PyTorch {torch.__version__} has no {name}") if found is None else found


def samples(info: Any, *wanted: Any) -> Iterator[Applied]:
    dtype = next(d for d in (*wanted, torch.float32, torch.int64) if d in info.dtypes)
    torch.manual_seed(0)
    np.random.seed(0)
    for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
        op = info.op
        if info.name in SIGNS_FREE:
            op = partial(_processed, sample.output_process_fn_grad, info.op)
        yield Applied(op, ((sample.input, *sample.args), sample.kwargs))


def _processed(process: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    return process(op(*args, **kwargs))


def paired(tensor: Any) -> Any:
    """A tensor; of complex numbers, one whose last axis has their parts."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def compare(applied: Applied, target: str) -> None:
    tensors = applied.tensors()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = trees.tree_leaves(applied(*applied.tensors()))
        expected = [paired(torch.as_tensor(v)) for v in values if v is not None]
        program = torch.export.export(applied, tensors)
    run = relaxpy.compile(from_exported_program(program), target=target)["main"]
    torch.manual_seed(42)  # as the samples of operators that draw random numbers do
    results = run(*map(paired, tensors))
    results = results[len(results) - len(expected) :]  # the first are operands that are changed
    for value, result in zip(expected, results, strict=True):
        torch.testing.assert_close(
            torch.as_tensor(result), value, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
        )


@pytest.mark.parametrize("name", third(SAMPLE.split()))
def test_an_operator_computes_what_pytorch_does(name: str, request: Any) -> None:
    info = info_of(name)
    every = list(samples(info))
    chosen = every if request.config.getoption("--whole-table") else every[len(every) // 2 :][:1]
    for applied in chosen:
        compare(applied, "native")


@pytest.mark.parametrize("name", third(COMPLEX.split()))
def test_an_operator_on_complex_numbers_computes_what_pytorch_does(name: str, request: Any) -> None:
    info = info_of(name)
    every = list(samples(info, torch.complex64))
    whole = request.config.getoption("--whole-table")
    for k, applied in enumerate(every if whole else every[len(every) // 2 :][:1]):
        compare(applied, ("native", "numpy")[(k + len(name)) % 2])


def numbers_of_another_datatype(x: Any) -> Any:
    steps = torch.linspace(-3, 5, 4), torch.logspace(0, 2, 3, dtype=torch.float64)
    return *steps, torch.hann_window(5), torch.arange(5, 0, -1, dtype=torch.int64), x + 1


#: Functions with arguments that operators rarely have, and their operands.
RARE = {
    "linspace": (numbers_of_another_datatype, torch.ones(2)),
    "rsub": (lambda x: torch.rsub(x, x * x, alpha=-3.125), torch.arange(3.0)),
    "logit": (lambda x: torch.logit(x, 0.6), torch.linspace(-0.5, 1.5, 11)),
    "tables": (
        lambda x: (
            *(torch.bartlett_window(6) + x, torch.blackman_window(6), torch.hamming_window(6)),
            *(torch.kaiser_window(6, True, beta=9.0), torch.fft.fftfreq(6), torch.fft.rfftfreq(10)),
        ),
        torch.ones(6),
    ),
    "time first": (
        lambda x: torch.conv_tbc(x, x[:3, :2].mT.contiguous(), x[0, 0, :2], 1),
        torch.linspace(-1, 1, 40).reshape(5, 2, 4),
    ),
    "stable": (
        lambda x: (x.argsort(dim=0, stable=True), x.argsort(descending=True, stable=True)),
        torch.tensor([[1.0, 2.0, 1.0], [1.0, 0.0, 0.0]]),
    ),
    "repeated": (lambda x: x.repeat_interleave(2, 1, output_size=6), torch.ones(2, 3).cumsum(1)),
    "truth": (
        lambda x: (torch.ops.aten._is_all_true(x > 0), torch.ops.aten._is_any_true(x > 0)),
        torch.tensor([[1.0, -1.0]]),
    ),
    "signs": (
        lambda x: (x.sign(), x.half().sgn(), x.nan_to_num().int().sign()),
        torch.tensor([float("nan"), -0.0, 3, -2.5, float("-inf")]),
    ),
    "least divisor": (
        lambda x: (torch.gcd(x, x.flip(0)), torch.lcm(x, x.flip(0))),
        torch.tensor([-128, 6, -128, 127, 0, -128, -4], dtype=torch.int8),
    ),
    "no complex numbers": (lambda x: torch.complex(x, -x), torch.ones(3, 0)),
    "no planes": (
        lambda x: torch.nn.functional.fractional_max_pool2d(x, 2, 3),
        torch.ones(0, 2, 6, 6),
    ),
}


@pytest.mark.parametrize("name", RARE)
def test_arguments_that_are_rare(name: str) -> None:
    function, x = RARE[name]
    compare(Applied(function, ((x,), {})), "native")
    torch._dynamo.reset()
    found = torch.compile(function, backend=relax_dynamo())(x)
    torch.testing.assert_close(found, function(x), equal_nan=True)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_greatest_elements_along_the_last_axis_are_scans(name: str) -> None:
    x = torch.randn(3, 100)
    program = torch.export.export(Applied(getattr(torch, name), ((x, 1), {})), (x,))
    ex = relaxpy.compile(from_exported_program(program), "native")
    scans = [row.method for row in ex.report() if "scan" in row.method]
    assert scans == [f"native, {name[3:]} scan over index_1", "native, max scan over index_1"]


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_any_number_of_rows(p: float) -> None:
    rows = torch.arange(21.0).reshape(7, 3) ** 2 % 17
    sizes = (({0: torch.export.Dim.AUTO},),)
    applied = Applied(torch.pdist, ((rows, p), {}))
    program = torch.export.export(applied, (rows[:5],), dynamic_shapes=sizes)
    run = relaxpy.compile(from_exported_program(program), "native")["main"]
    for count in (5, 3, 7):
        (found,) = run(rows[:count].numpy())
        np.testing.assert_allclose(found, torch.pdist(rows[:count], p).numpy(), rtol=1e-6)


@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 0.5, float("inf")])
def test_distances_of_rows_with_special_values(p: float, target: str) -> None:
    rows = torch.tensor([[1, 2], [1, 2], [-3, float("nan")], [float("inf"), 2], [float("inf"), 0]])
    for x in (rows, rows[:1]):
        program = torch.export.export(Applied(torch.pdist, ((x, p), {})), (x,))
        (found,) = relaxpy.compile(from_exported_program(program), target)["main"](x.numpy())
        np.testing.assert_allclose(found, torch.pdist(x, p).numpy(), rtol=1e-6)


@pytest.mark.each_choice
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_positions_meet_infinite_elements(mode: str, padding: str, corners: bool) -> None:
    sample = partial(
        torch.nn.functional.grid_sample, mode=mode, padding_mode=padding, align_corners=corners
    )
    size = 5 if corners else 4  # for which positions are exact
    x = torch.linspace(-1, 1, size * size).reshape(1, 1, size, size)
    x[0, 0, 1, 1], x[0, 0, -1, -1], x[0, 0, 0, 2] = torch.tensor([np.nan, np.inf, -np.inf])
    at = torch.arange(-1.75, 6, 0.25)
    at = at[at % 1 != 0.5] / 2 if mode == "nearest" else at / 2
    at = at - 1 if corners else at - 0.75
    grid = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1)[None]
    compare(Applied(sample, ((x, grid), {})), "native")


@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_positions_that_are_not_finite(mode: str, padding: str, target: str) -> None:
    sample = partial(
        torch.nn.functional.grid_sample, mode=mode, padding_mode=padding, align_corners=True
    )
    x = torch.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    at = torch.tensor([np.nan, np.inf, -np.inf, 0.0, 0.5, 5.0])
    grid = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1)[None]
    compare(Applied(sample, ((x, grid), {})), target)
    if mode != "bicubic" and padding == "zeros":
        compare(Applied(sample, ((x[:, :, None], grid[:, None, :, :, [0, 1, 1]]), {})), target)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("sizes", [(1, 4), (3, 1), (1, 1), (3, 5), (1, 3, 1)])
@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid:UserWarning")
def test_grids_of_one_row(sizes: tuple[int, ...], corners: bool) -> None:
    def grid(theta: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.affine_grid(theta, [2, 3, *sizes], align_corners=corners)

    theta = torch.randn(2, len(sizes), len(sizes) + 1)
    torch._dynamo.reset()
    found = torch.compile(grid, backend=relax_dynamo())(theta)
    torch.testing.assert_close(found, grid(theta))


def test_attention_drops_weights_in_training() -> None:
    attention = partial(
        own_tests().wrapper_set_seed, torch.nn.functional.scaled_dot_product_attention
    )
    x = torch.ones(2, 5, 4).cumsum(1)
    for dropout, causal in [(0.5, False), (1.0, False), (0.25, True)]:
        compare(Applied(attention, ((x, x, x, None, dropout, causal), {})), "native")


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 3, 0)])
def test_batches_without_elements_are_normalised(shape: tuple[int, ...]) -> None:
    channels = shape[min(1, len(shape) - 1)]
    statistics = torch.zeros(channels), torch.ones(channels)
    given = ((torch.zeros(shape), *statistics), {})
    compare(Applied(torch.nn.functional.batch_norm, given), "native")


def test_quantisation_is_simulated() -> None:
    x = torch.linspace(-20, 20, 24).reshape(4, 6)
    scales, zeros = torch.tensor([0.1, 0.02, 0.5, 1.0]), torch.tensor([0, 3, -5, 9])
    each = ((x, scales, zeros.int(), 0, -128, 127), {})
    compare(Applied(torch.fake_quantize_per_channel_affine, each), "native")
    for scale, zero in [(0.1, 3), (scales[1], zeros[1].int())]:
        compare(
            Applied(torch.fake_quantize_per_tensor_affine, ((x, scale, zero, 0, 255), {})), "native"
        )


def test_operators_of_quantised_programs() -> None:
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # which registers them
    q, scale, zero = torch.ops.quantized_decomposed, torch.tensor([0.1]), torch.tensor([3])
    x = torch.linspace(-20, 20, 24).reshape(4, 6)
    scales, zeros = torch.tensor([0.1, 0.02, 0.5, 1.0]), torch.tensor([0, 3, -5, 9])
    groups = scales.reshape(4, 1).repeat(1, 2), zeros.reshape(4, 1).repeat(1, 2)
    for operator, given in [
        (q.quantize_per_tensor.tensor, (x, scale, zero, -128, 127, torch.int8)),
        (q.quantize_per_tensor.tensor2, (x, scale, zero, zero - 99, zero + 90, torch.int8)),
        (q.choose_qparams.tensor, (x, -128, 127, 1e-5, torch.int8)),
        (q.choose_qparams.tensor, (x.abs(), 0, 255, 1e-5, torch.uint8)),
        (q.choose_qparams_symmetric.tensor, (x, 0, 255, 1e-5, torch.uint8)),
        (q.quantize_per_channel_group, (x, *groups, -8, 7, torch.int8, 3)),
        (q.fake_quant_per_channel, (x, scales, zeros, 0, -128, 127)),
    ]:
        compare(Applied(operator, (given, {})), "numpy")


def test_prims_are_what_they_are_in_operators_of_pytorch() -> None:
    def prims(x: Any) -> Any:
        p, made = torch.ops.prims, {"dtype": x.dtype, "device": x.device, "requires_grad": False}
        whole = x.long()
        return (
            *(p.broadcast_in_dim(x, [4, 2, 3, 6], [0, 3]), p.transpose(x, [1, 0]), p.rev(x, [0])),
            *(p.reshape(x, [3, 8]), p.collapse(x, 0, 1), p.collapse_view(x, 0, 1)),
            *(p.split_dim(x, 1, 2), p.squeeze(x[:, None], [1]), p.view_of(x), p.cat([x, x], 1)),
            *(p.sum(x, [0]), p.amax(x, [1]), p.amin(x, [0, 1]), p.var(x, [1], 0.5)),
            *(p.full([2], 3.5, **made), p.full_like(x, 2, **made), p.fill(x, 1)),
            *(p.shift_left(whole, whole), p.shift_right_arithmetic(whole, whole)),
        )

    x = torch.arange(24.0).reshape(4, 6) / 4
    compare(Applied(prims, ((x,), {})), "numpy")


#: Lengths of a matrix, always and for few products, and of a call of NumPy.
@pytest.mark.parametrize(
    ("length", "dtype"),
    [
        *((n, torch.float32) for n in (1, 300, 1018, 4096)),
        *((2003, torch.float64), (150, torch.float32)),
    ],
)
def test_transforms_of_any_length(length: int, dtype: Any) -> None:
    def transforms(x: Any, z: Any) -> Any:
        longer = torch.fft.fft(x, n=length + 3, dim=0)
        return (
            *(torch.fft.fft(z, dim=0), torch.fft.ifft(z, dim=0, norm="ortho"), longer),
            *(torch.fft.rfft(x, dim=0), torch.fft.irfft(z, n=length, dim=0)),
            torch.fft.hfft(z, n=max(2 * length - 2, 1), dim=0),
        )

    torch.manual_seed(0)
    x, z = torch.randn(length, 2, dtype=dtype), torch.randn(length, 2, dtype=dtype.to_complex())
    program = torch.export.export(Applied(transforms, ((x, z), {})), (x, z))
    results = relaxpy.compile(from_exported_program(program))["main"](x, paired(z))
    # NumPy transforms long doubles as such, on every processor by the same code.
    real, both = x.numpy().astype(np.longdouble), z.numpy().astype(np.clongdouble)
    values = (
        *(np.fft.fft(both, axis=0), np.fft.ifft(both, axis=0, norm="ortho")),
        *(np.fft.fft(real, n=length + 3, axis=0), np.fft.rfft(real, axis=0)),
        *(np.fft.irfft(both, n=length, axis=0), np.fft.hfft(both, max(2 * length - 2, 1), axis=0)),
    )
    for result, value in zip(results, values, strict=True):
        parts = np.stack([value.real, value.imag], -1) if np.iscomplexobj(value) else value
        assert abs(result.numpy() - parts).max() <= 30 * torch.finfo(dtype).eps * abs(value).max()


#: Numbers at branch cuts, near 0 and 1, large ones, where naive formulas lose digits or overflow.
CORNERS = [0.0, -0.0, 1.0, -1.0, 1e-7, -1e-7, 0.5, -2.0, 30.0, -30.0]
FUNCTIONS = [
    *("abs", "angle", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "sgn"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh"),
    *("atanh", "reciprocal", "sigmoid", "square"),
]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_functions_of_complex_numbers_are_those_of_numpy(dtype: Any) -> None:
    def functions(z: Any) -> Any:
        return tuple(getattr(torch, name)(z) for name in FUNCTIONS)

    of_numpy = {"acos": "arccos", "asin": "arcsin", "atan": "arctan", "acosh": "arccosh",
                "asinh": "arcsinh", "atanh": "arctanh", "sgn": "sign"}  # fmt: skip
    z = torch.tensor([complex(a, b) for a in CORNERS for b in CORNERS], dtype=dtype)
    program = torch.export.export(Applied(functions, ((z,), {})), (z,))
    results = relaxpy.compile(from_exported_program(program))["main"](paired(z))
    wide = z.to(torch.complex128).numpy()
    tolerance = 1e-5 if dtype is torch.complex64 else 1e-11
    for name, result in zip(FUNCTIONS, results, strict=True):
        with np.errstate(all="ignore"):
            formula = {"sigmoid": lambda v: 1 / (1 + np.exp(-v)), "rsqrt": lambda v: 1 / np.sqrt(v)}
            value = (formula.get(name) or getattr(np, of_numpy.get(name, name)))(wide)
        found = np.asarray(result)
        if name not in ("abs", "angle"):
            found = found.view(wide.dtype if found.itemsize == 8 else np.complex64)[..., 0]
        finite = np.isfinite(value)
        np.testing.assert_allclose(
            found[finite], value[finite], rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("size", [0.1, 8.0])
def test_matrices_of_any_norm_have_an_exponential(size: float, dtype: str) -> None:
    draw = np.random.default_rng(0)
    parts = draw.normal(size=(2, 4, 4)), 1j * draw.normal(size=(2, 4, 4))
    matrices = torch.tensor((sum(parts) if "complex" in dtype else parts[0]) * size)
    compare(Applied(torch.matrix_exp, ((matrices,), {})), "native")


@pytest.mark.parametrize("ends", [[2, 2, 7], [0, 3, 5], [7, 7, 7]])
def test_rows_are_multiplied_by_the_matrices_of_their_groups(ends: list[int]) -> None:
    draw = torch.Generator().manual_seed(0)
    rows, matrices = torch.randn(7, 8, generator=draw), torch.randn(3, 8, 16, generator=draw)
    given = (rows.bfloat16(), matrices.bfloat16(), torch.tensor(ends, dtype=torch.int32))
    model = Applied(torch.ops.aten._grouped_mm, (given, {}))
    program = torch.export.export(model, given)
    (found,) = relaxpy.compile(from_exported_program(program))["main"](*given)
    begins = [0, *ends]
    wide, each = given[0].double(), given[1].double()
    parts = [wide[a:b] @ m for a, b, m in zip(begins, ends, each, strict=False)]
    expected = torch.cat([*parts, torch.zeros(7 - ends[-1], 16)])
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-2)


LIBRARY = torch.library.Library("transformers", "FRAGMENT")


@pytest.mark.parametrize("ends", [[2, 2, 7], [0, 3, 5]])
@pytest.mark.parametrize("target", ["numpy", "native"])
def test_gradients_of_products_of_groups_in_transformers(ends: list[int], target: str) -> None:
    name = "grouped_mm_fallback_backward"
    if not hasattr(torch.ops.transformers, name):
        LIBRARY.define(f"{name}(Tensor input, Tensor weight, Tensor offs, Tensor grad_output)"
                       " -> (Tensor, Tensor)")  # fmt: skip
        like = lambda *given: tuple(map(torch.empty_like, given[:2]))  # noqa: E731
        torch.library.register_fake(f"transformers::{name}", like, lib=LIBRARY)
    draw = torch.Generator().manual_seed(0)
    x, matrices, grad = (
        torch.randn(shape, generator=draw, requires_grad=True)
        for shape in [(7, 4), (3, 4, 5), (7, 5)]
    )
    parts = [x[a:b] @ m for a, b, m in zip([0, *ends], ends, matrices, strict=False)]
    expected = torch.autograd.grad(torch.cat(parts), [x, matrices], grad[: ends[-1]])
    given = tuple(v.detach() for v in (x, matrices, torch.tensor(ends), grad))
    program = torch.export.export(
        Applied(getattr(torch.ops.transformers, name), (given, {})), given
    )
    found = relaxpy.compile(from_exported_program(program), target=target)["main"](*given)
    for result, value in zip(found, expected, strict=True):
        torch.testing.assert_close(result, value)
