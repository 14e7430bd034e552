"""FuseTransposeMatmul, DispatchSortScan, DispatchSampling."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.relax.backend import DispatchSampling, DispatchSortScan
from relaxpy.relax.transform import FuseTransposeMatmul, LegalizeOps
from tests.ir.passes import before_after
from tests.ir.passes.before_after import numbers, stays
from tests.ir.relax import texts
from tests.ir.relax.texts import flow


def agree(before: IRModule, after: IRModule, *args: Any) -> None:
    assert after is not before
    before_after.agree(before, after, *args)


@pytest.mark.parametrize(
    ("x", "w", "axes"),
    [
        ((2, 4), (3, 4), None),
        ((4,), (3, 4), (1, 0)),
        ((5, 2, 4), (3, 4), (-1, -2)),
        ((2, 4), (5, 3, 4), (0, 2, 1)),
        ((5, 1, 2, 4), (6, 3, 4), (0, 2, 1)),
    ],
)
def test_a_product_with_transposed_matrices_is_one_kernel(x: Any, w: Any, axes: Any) -> None:
    before = flow(
        f'x: R.Tensor({x}, "float32"), w: R.Tensor({w}, "float32")',
        f"t = R.permute_dims(w, {axes}); y = R.matmul(x, t)",
    )
    after = FuseTransposeMatmul()(before)
    assert [name for name in after.functions_by_name if name != "main"] == ["NT_matmul"]
    assert len(after["main"].body.blocks[0].bindings) == 1
    assert FuseTransposeMatmul()(after) is after
    agree(before, after, numbers(*x), numbers(*w, seed=1))


def test_symbolic_sizes_and_another_use_of_the_transposed_matrix() -> None:
    before = flow(
        'x: R.Tensor(("m", "k"), "float32"), w: R.Tensor(("n", "k"), "float32")',
        "t = R.permute_dims(w); p = R.matmul(x, t); q = R.sum(t); y = R.add(p, q)",
    )
    after = FuseTransposeMatmul()(before)
    assert "R.permute_dims" in after.script()
    assert "R.matmul" not in after.script()
    agree(before, after, numbers(2, 3), numbers(4, 3))


def test_sums_of_narrow_floats_and_their_datatype_are_those_of_the_product() -> None:
    params = 'x: R.Tensor((2, 64), "float16"), w: R.Tensor((3, 64), "float16")'
    x, w = (numbers(n, 64).astype("float16") / np.float16(7) for n in (2, 3))
    for out_dtype in (None, "float32"):
        before = flow(params, f"t = R.permute_dims(w); y = R.matmul(x, t, out_dtype={out_dtype!r})")
        after = FuseTransposeMatmul()(before)
        assert after["main"].struct_info == before["main"].struct_info
        agree(before, after, x, w)


@pytest.mark.parametrize(
    ("params", "lines"),
    [
        (
            'x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")',
            "t = R.permute_dims(w, (0, 1)); y = R.matmul(x, t)",
        ),
        (
            'x: R.Tensor((2, 4), "float32"), w: R.Tensor((5, 4, 3), "float32")',
            "t = R.permute_dims(w, (1, 0, 2)); t2 = R.permute_dims(x); y = R.matmul(t2, x)",
        ),
        (
            'x: R.Tensor(ndim=2, dtype="float32"), w: R.Tensor(ndim=2, dtype="float32")',
            "t = R.permute_dims(w); y = R.matmul(x, t)",
        ),
        (
            'x: R.Tensor((2, "k"), "float32"), w: R.Tensor((3, "l"), "float32")',
            "t = R.permute_dims(w); y = R.matmul(x, t)",
        ),
    ],
)
def test_other_products_stay(params: str, lines: str) -> None:
    stays(FuseTransposeMatmul(), flow(params, lines))


@pytest.mark.rule("OPT-3")
def test_a_product_outside_dataflow_blocks_stays() -> None:
    Mod = texts.module("""
    def main(x: f32[2, 4], w: f32[3, 4]):
        t = R.permute_dims(w)
        y = R.matmul(x, t)
        return y
    """)
    stays(FuseTransposeMatmul(), Mod)


def test_running_sums_products_and_sorting_are_kernels() -> None:
    before = flow(
        'x: R.Tensor((3, 4), "float32")',
        "a = R.cumsum(x, axis=1, exclusive=True); b = R.cumprod(a, axis=-1); "
        "c = R.sort(b); d = R.argsort(c); y = R.topk(R.add(c, R.astype(d, 'float32')), k=2)",
    )
    after = DispatchSortScan()(before)
    assert set(after.functions_by_name) == {"main", "cumsum", "cumprod", "sort", "argsort", "topk"}
    for name in ("sort", "argsort", "topk"):
        assert f'"tvm.contrib.sort.{name}"' in after.script()
    assert DispatchSortScan()(after) is after
    rows = [relaxpy.compile(mod)["main"](numbers(3, 4)) for mod in (before, after)]
    for one, other in zip(*rows, strict=True):
        np.testing.assert_array_equal(one, other)


def test_topk_of_a_symbolic_dimension_may_have_fewer_elements() -> None:
    params = 'x: R.Tensor(("n", 3), "float32")'
    before = flow(params, "a = R.topk(x, k=2, axis=0); b = R.topk(x, k=2); y = (a, b)")
    after = DispatchSortScan()(before)
    assert after.script().count("R.topk(") == 1
    found = relaxpy.compile(after)["main"](np.float32([[3, 1, 2]]))
    np.testing.assert_array_equal(found[0][0], [[3, 1, 2]])
    np.testing.assert_array_equal(found[1][0], [[3, 2]])
    np.testing.assert_array_equal(found[1][1], [[0, 2]])


SAMPLING = (
    'prob: R.Tensor(("batch", 5), "float32"), sample: R.Tensor(("n", 1), "float32"), '
    'rows: R.Tensor(("n", 1), "int64")'
)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sampling_is_a_search_in_running_sums(dtype: str) -> None:
    line = f'y = R.multinomial_from_uniform(prob, sample, rows, dtype="{dtype}")'
    before = flow(SAMPLING, line)
    after = DispatchSampling()(before)
    assert DispatchSampling()(after) is after
    rng = np.random.default_rng(0)
    prob = rng.random((3, 5), dtype="float32")
    prob[1] = [0, 0.5, 0, 0.5, 0]
    prob /= prob.sum(1, keepdims=True)
    sample = np.concatenate([rng.random((20, 1)), [[0.0], [0.5], [1.0], [2.0]]]).astype("float32")
    rows = rng.integers(0, 3, sample.shape)
    rows[-4:] = 1
    found = relaxpy.compile(LegalizeOps()(after))["main"](prob, sample, rows)
    assert found[-4:, 0].tolist() == [1, 3, 4, 4]
    agree(before, after, prob, sample, rows)


@pytest.mark.parametrize(
    "params",
    [
        SAMPLING.replace('("batch", 5)', '("batch", "vocabulary")'),
        SAMPLING.replace('("n", 1), "int64"', '("m", 1), "int64"'),
        SAMPLING.replace('("batch", 5), "float32"', 'ndim=2, dtype="float32"'),
        SAMPLING.replace('("batch", 5)', '("batch", 0)'),
    ],
)
def test_sampling_whose_sizes_are_checked_when_values_arrive_stays(params: str) -> None:
    mod = flow(params, "y = R.multinomial_from_uniform(prob, sample, rows)")
    stays(DispatchSampling(), mod)
