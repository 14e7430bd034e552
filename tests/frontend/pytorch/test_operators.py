"""PyTorch's own samples of operators, exported and compared: a few, or all with --whole-table."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import relaxpy

torch: Any = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which PyTorch's own samples import
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils import _pytree as trees  # noqa: E402

from relaxpy.relax.frontend.torch import from_exported_program  # noqa: E402

#: Operators, one sample of each of which is tried in every run.
SAMPLE = [
    *("erfc", "lgamma", "digamma", "igamma", "special.zeta", "special.ndtri", "special.erfcx"),
    *("special.bessel_j0", "special.bessel_y1", "special.modified_bessel_k0", "special.airy_ai"),
    *("special.hermite_polynomial_h", "special.i1e", "polygamma", "gcd", "frexp", "nextafter"),
    *("copysign", "fmin", "hypot", "hsplit", "cartesian_prod", "cdist", "atleast_2d"),
    *("cholesky", "cholesky_inverse", "linalg.lu", "linalg.lu_solve", "linalg.slogdet"),
    *("linalg.inv_ex", "linalg.solve_ex", "linalg.solve_triangular", "triangular_solve"),
    *("geqrf", "ormqr", "linalg.qr", "linalg.svd", "linalg.eigh"),
    *("linalg.pinv", "linalg.ldl_factor", "linalg.ldl_solve"),
    *("cummax", "logcumsumexp", "kthvalue", "median", "nanmedian", "scatter_reduce"),
    *(
        "linalg.cholesky",
        "linalg.inv",
        "index_reduce",
        "put",
        "masked_scatter",
        "searchsorted",
        "mode",
        "max",
        "gather",
        "histc",
        "bincount",
        "unique_consecutive",
        "nonzero_static",
        "histogram",
        "histogramdd",
        "hash_tensor",
        "tensor_split",
        "bucketize",
        "_segment_reduce",
        "_upsample_bilinear2d_aa",
        "nn.functional.adaptive_max_pool2d",
        "nn.functional.embedding_bag",
        "nn.functional.conv_transpose2d",
        "nn.functional.pad",
    ),
]
#: Operators whose results have signs that are not defined; what PyTorch's tests do with them is.
SIGNS_FREE = {"linalg.eigh", "linalg.svd"}
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


def samples(info: Any) -> Iterator[Applied]:
    dtype = next(d for d in (torch.float32, torch.int64) if d in info.dtypes)
    torch.manual_seed(0)
    np.random.seed(0)
    for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
        op = info.op
        if info.name in SIGNS_FREE:
            op = partial(_processed, sample.output_process_fn_grad, info.op)
        yield Applied(op, ((sample.input, *sample.args), sample.kwargs))


def _processed(process: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    return process(op(*args, **kwargs))


def compare(applied: Applied, target: str) -> None:
    tensors = applied.tensors()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [v for v in trees.tree_leaves(applied(*tensors)) if v is not None]
        program = torch.export.export(applied, tensors)
    results = relaxpy.compile(from_exported_program(program), target=target)["main"](*tensors)
    for value, result in zip(expected, results, strict=True):
        torch.testing.assert_close(
            torch.as_tensor(result), value, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
        )


@pytest.mark.parametrize("name", SAMPLE)
def test_an_operator_computes_what_pytorch_does(name: str, request: Any) -> None:
    info = next(info for info in op_db if info.name == name)
    every = list(samples(info))
    chosen = every if request.config.getoption("--whole-table") else every[len(every) // 2 :][:1]
    for applied in chosen:
        compare(applied, "native")


@pytest.mark.parametrize("size", [0.1, 8.0])
def test_matrices_of_any_norm_have_an_exponential(size: float) -> None:
    matrices = torch.tensor(np.random.default_rng(0).normal(size=(2, 4, 4)) * size)
    compare(Applied(torch.matrix_exp, ((matrices,), {})), "native")
