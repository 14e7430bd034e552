"""Weights in few bits: their definition, layers of models, and the pass QuantizeWeights."""

import math
import re
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import MisuseError, RelaxpyWarning, UnknownNameError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import spec
from relaxpy.relax.frontend.nn.quantization import (
    QUANTIZATIONS,
    Quantization,
    QuantizedLinear,
    quantize_model,
    quantize_state_dict,
)
from relaxpy.relax.transform import BindParams, QuantizeWeights
from relaxpy.script import from_source, ir as I, relax as R
from relaxpy.target import Target
from relaxpy.transform import PassContext
from tests.ir.relax.texts import module

Array = NDArray[Any]
PACKED = [q for q in QUANTIZATIONS.values() if q.bits]
TARGETS = ("reference", "numpy", "native")


def by_definition(
    quantization: Quantization, row: Array
) -> tuple[list[int], list[float], list[float]]:
    """What is stored of a row, its scales, and the weights, element by element."""
    m = 2 ** (quantization.bits - 1) - 1
    width, dtype = quantization.group or len(row), np.dtype(quantization.dtype).type
    words: list[int] = []
    scales: list[float] = []
    weights: list[float] = []
    for start in range(0, len(row), width):
        group = [float(x) for x in row[start : start + width]]
        scale = dtype(np.float32(max(map(abs, group))) / np.float32(m))
        scales.append(scale)
        integers = []
        for x in group:
            quotient = np.float32(x) / np.float32(scale) if scale else 0.0
            integers.append(max(-m, min(m, round(float(quotient)))))
        weights += [dtype(q) * scale for q in integers]
        if not quantization.group:
            words += integers
            continue
        per_word = 32 // quantization.bits
        integers += [0] * (width - len(integers))
        for word in range(0, width, per_word):
            parts = enumerate(integers[word : word + per_word])
            words.append(sum((q + m) << (place * quantization.bits) for place, q in parts))
    return words, scales, weights


@pytest.mark.parametrize("quantization", PACKED, ids=lambda q: q.name)
@pytest.mark.parametrize("size", [1, 32, 39, 40, 65, 130])
def test_packed_weights_follow_the_definition(quantization: Quantization, size: int) -> None:
    rng = np.random.default_rng(size)
    for dtype in ("float16", "float32", "float64", ml_dtypes.bfloat16):
        weight = rng.standard_normal((3, size)).astype(dtype)
        weight[1] = 0
        weight[2] *= 2.0**-18  # scales in float16 may be 0
        packed, scale = quantization.quantize(weight)
        decoded = quantization.dequantize(packed, scale, size)
        assert (packed.dtype, scale.dtype) == (quantization.storage_dtype, quantization.dtype)
        assert decoded.dtype == quantization.dtype
        for row, *found in zip(weight, packed, scale, decoded, strict=True):
            for expected, array in zip(by_definition(quantization, row), found, strict=True):
                assert array.tolist() == [x if isinstance(x, int) else float(x) for x in expected]


@pytest.mark.parametrize("quantization", PACKED, ids=lambda q: q.name)
@pytest.mark.parametrize("shape", [(3, 50, 720), (0, 64), (2, 0)], ids=str)
def test_rows_are_rounded_alone(quantization: Quantization, shape: tuple[int, ...]) -> None:
    weight = np.random.default_rng(0).standard_normal(shape).astype("float32")
    count, groups = quantization.row_sizes(shape[-1])
    packed, scale = quantization.quantize(weight)
    assert (packed.shape, scale.shape) == ((*shape[:-1], count), (*shape[:-1], groups))
    for place in np.ndindex(shape[:-1]):
        for found, alone in zip((packed, scale), quantization.quantize(weight[place]), strict=True):
            np.testing.assert_array_equal(found[place], alone)


def test_rounding_a_large_array_needs_little_more_than_the_result() -> None:
    weight = np.ones((2000, 1000), "float32")
    tracemalloc.start()
    quantized = QUANTIZATIONS["q4f32_1"].quantize(weight)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < sum(array.nbytes for array in quantized) + (1 << 21)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda q: q.quantize(np.array([1.0, math.inf])), "weights are finite"),
        (lambda q: q.quantize(np.array([1.0, math.nan])), "weights are finite"),
        (lambda q: q.quantize(np.array([1e30])), "scales in float16"),
        (lambda q: q.quantize(np.array(1.0)), "weights are an array"),
        (lambda q: q.quantize([1.0]), "weights are an array"),
        (lambda q: q.quantize(np.arange(3)), "weights are floats, found int64"),
        (lambda q: q.dequantize(np.zeros((2, 4), "uint32"), np.zeros((2, 2)), 32), "1 scales"),
        (lambda q: QUANTIZATIONS["q0f16"].quantize(np.ones(3)), "q0f16 are not packed"),
    ],
)
def test_what_cannot_be_packed_is_refused(act: Callable[[Quantization], Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        act(QUANTIZATIONS["q4f16_1"])


def exact_weights(quantization: Quantization, shape: tuple[int, int], seed: int) -> Array:
    """Weights that are stored exactly, since the scale of each group is a power of two."""
    rng = np.random.default_rng(seed)
    m = quantization.greatest if quantization.bits else 7
    integers = rng.integers(-m, m + 1, shape)
    width = quantization.group or shape[1]
    for start in range(0, shape[1], width):
        integers[:, start] = m
    return (integers / 4).astype("float32")


def product(quantization: Quantization, x: Array, weight: Array) -> Array:
    """`x @ weight.T` of exact weights, in float64 where operands are not rounded."""
    if not quantization.rounds_operands:
        return x.astype("float64") @ weight.T
    rows, integers = x.astype("float32"), (weight * 4).astype("int64")
    scale = np.abs(rows).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore", invalid="ignore"):
        rounded = np.where(scale == 0, np.float32(0), np.rint(rows / scale))
    rounded = rounded.clip(-127, 127).astype("int64")
    return (rounded @ integers.T).astype("float32") * np.float32(0.25) * scale


class Model(nn.Module):
    """Rows of a table, a layer, and the product with the table: what models of language have."""

    def __init__(self, size: int, columns: int) -> None:
        self.table = nn.Embedding(columns, size)
        self.layers = nn.ModuleList([nn.Linear(size, columns)])
        self.scale = nn.Parameter((columns,))

    def forward(self, ids: nn.Tensor, x: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        return self.table(ids), self.layers(x) * self.scale


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", QUANTIZATIONS)
@pytest.mark.parametrize(("rows", "size", "columns"), [(1, 160, 2), (3, 45, 4)])
def test_layers_multiply_by_the_weights_of_the_definition(name, target, rows, size, columns):
    quantization = QUANTIZATIONS[name]
    rng = np.random.default_rng(rows)
    table = rng.standard_normal((columns, size)).astype("float32")
    weight = exact_weights(quantization, (columns, size), columns)
    x = rng.integers(-3, 4, (rows, size)).astype(quantization.dtype)
    ids = rng.integers(0, columns, (2, rows)).astype("int32")
    plain = {
        "table.weight": table,
        "layers.0.weight": weight,
        "layers.0.bias": np.arange(columns, dtype="float32"),
        "scale": np.full(columns, 0.5, "float32"),
    }
    model = quantize_model(Model(size, columns), name)
    model.load_state_dict(quantize_state_dict(model, plain))
    inputs = {
        "ids": spec.Tensor((2, "n"), "int32"),
        "x": spec.Tensor((rows if rows == 1 else "n", size), quantization.dtype),
    }
    mod, params = model.export_tvm({"forward": inputs})
    values = [p.data for _, p in params]
    found, result = relaxpy.compile(mod, target=target)["forward"](ids, x, *values)
    if quantization.bits:
        table = quantization.dequantize(*quantization.quantize(table), size)
    np.testing.assert_array_equal(found, table.astype(quantization.dtype)[ids])
    # Each step rounds to the datatype, and the sums are exact before that.
    step = product(quantization, x, weight).astype(quantization.dtype)
    step = step + np.arange(columns, dtype=quantization.dtype)
    np.testing.assert_array_equal(result, step * np.asarray(0.5, quantization.dtype))


def test_a_layer_by_itself_is_quantised() -> None:
    layer = quantize_model(nn.Linear(8, 2, bias=False), "q4f32_1")
    assert isinstance(layer, QuantizedLinear)
    values = quantize_state_dict(layer, {"weight": np.ones((2, 8), "float32"), "other": 0})
    assert {name: v.shape for name, v in values.items()} == {"q_weight": (2, 4), "q_scale": (2, 1)}
    own = {"q_weight": values["q_weight"] ^ 1, "q_scale": values["q_scale"] * 2}
    found = quantize_state_dict(layer, {**own, "weight": np.ones((2, 8), "float32")})
    for name, value in own.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize(
    ("act", "kind", "message"),
    [
        (lambda: quantize_model(nn.Linear(4, 4), "q5"), UnknownNameError, "unknown quantisation"),
        (lambda: quantize_model(nn.Linear(4, 4), 4), MisuseError, "is a name or a Quantization"),
        (lambda: quantize_model(4, "q4f32_1"), MisuseError, "expected an nn.Module"),
        (lambda: quantize_model(nn.Linear("n", 4), "q4f32_1"), MisuseError, "a known size"),
        (
            lambda: quantize_model(nn.Linear(4, 4), "q4f32_1").to("float16"),
            MisuseError,
            "not float16",
        ),
        (
            lambda: quantize_state_dict(quantize_model(nn.Linear(4, 4), "q4f32_1"), {}),
            UnknownNameError,
            "missing: weight, bias",
        ),
        (
            lambda: quantize_state_dict(
                quantize_model(nn.Linear(32, 1, False), "q4f32_1"),
                {"q_weight": np.ones((1, 4), "uint32")},
            ),
            UnknownNameError,
            "missing: q_scale",
        ),
        (
            lambda: quantize_state_dict(
                quantize_model(nn.Linear(32, 1, False), "q4f32_1"),
                {"q_weight": np.ones((1, 3), "uint32"), "q_scale": np.ones((1, 1))},
            ),
            MisuseError,
            r"q_weight has shape \(1, 4\), found a value of \(1, 3\)",
        ),
        (
            lambda: quantize_state_dict(
                quantize_model(nn.Linear(4, 4, False), "q4f32_1"), {"weight": np.ones((4, 5))}
            ),
            MisuseError,
            r"weight has shape \(4, 4\), found a value of \(4, 5\)",
        ),
        (lambda: QuantizeWeights("q4"), UnknownNameError, "unknown quantisation 'q4'"),
    ],
)
def test_misuse_says_what_is_expected(act, kind, message) -> None:
    with pytest.raises(kind, match=message):
        act()


def program(size: int, columns: int, weight: Array) -> IRModule:
    """Products with a parameter, a constant and a transposed one, and a table used twice."""

    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor(("n", size), "float32"),
            ids: R.Tensor((2,), "int64"),
            w: R.Tensor((size, columns), "float32"),
            table: R.Tensor((columns, size), "float32"),
        ):
            R.func_attr({"num_input": 2})
            with R.dataflow():
                first = R.matmul(x, w)
                second = R.matmul(x, R.const(weight))
                third = R.matmul(x, R.permute_dims(table))
                rows = R.take(table, ids, axis=0)
                R.output(first, second, third, rows)
            return first, second, third, rows

    return Module


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", QUANTIZATIONS)
def test_programs_multiply_by_the_weights_of_the_definition(name: str, target: str) -> None:
    quantization = QUANTIZATIONS[name]
    weights = [exact_weights(quantization, (5, 45), seed) for seed in range(3)]
    mod = program(45, 5, np.ascontiguousarray(weights[1].T))
    step = QuantizeWeights(name, params=["w", "tab*"])
    after = step(mod)
    stored = step.pack(mod, {"w": weights[0].T, "table": weights[2]})
    assert [p.name_hint for p in after["main"].params[2:]] == list(stored)
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, 45)).astype("float32")
    ids = np.array([4, 0])
    found = relaxpy.compile(after, target=target)["main"](x, ids, *stored.values())
    for result, weight in zip(found, weights, strict=False):
        wanted = product(quantization, x, weight).astype("float32")
        np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(found[3], weights[2][ids])


LEADING: tuple[tuple[int | str, ...], ...] = (
    (),
    (3,),
    ("n",),
    (2, 5),
    ("b", "s"),
    (2, "s"),
    ("b", 5),
    (2, 3, 4),
    ("b", "s", "t"),
    (2, "s", 4),
    (1, "s", 1),
)
"""The leading dimensions of activations, which have from one to four."""
SIZES = {"n": (1, 3, 12), "b": (1, 2, 13), "s": (1, 11, 0), "t": (1, 3, 2)}


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["native", "numpy"])
@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("dims", LEADING, ids=str)
@pytest.mark.parametrize("name", QUANTIZATIONS)
def test_rows_of_any_leading_dimensions_have_decoded_weights_in_common(
    name: str, dims: tuple[int | str, ...], is_whole: bool, target: str
) -> None:
    quantization = QUANTIZATIONS[name]
    group = quantization.group or 32
    size, columns = 3 * group if is_whole else 9 * group + 26, 70
    main = from_source(f"""
        @R.function
        def main(
            x: R.Tensor({(*dims, size)}, "float32"), w: R.Tensor(({size}, {columns}), "float32")
        ):
            with R.dataflow():
                y = R.matmul(x, w)
                R.output(y)
            return y
    """)
    mod = IRModule({"main": main})
    step = QuantizeWeights(name, params=["w"])
    weight = exact_weights(quantization, (columns, size), size)
    stored = step.pack(mod, {"w": weight.T}).values()
    ex = relaxpy.compile(step(mod), target=target)
    rng = np.random.default_rng(size)
    for place in range(3):
        shape = [SIZES[n][place] if isinstance(n, str) else n for n in dims]
        x = rng.integers(-3, 4, (*shape, size)).astype("float32")
        wanted = product(quantization, x, weight).astype("float32")
        np.testing.assert_array_equal(ex["main"](x, *stored), wanted)
    if target == "native":
        assert {row.backend for row in ex.report()} == {"native"}
        assert not any("decoded again" in row.reason for row in ex.report())
        for kernel in {row.kernel for row in ex.report() if "over k, k" in row.method}:
            # The loops of the product, those of tasks included: over rows, and over columns.
            loops, _ = ex.kernel_source(kernel, "tree").split("over k", 1)
            assert len(set(re.findall(r"\b(i\d) <", loops))) <= 2


@pytest.mark.each_choice
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["w8a8f32", "w4a8f32", "w4a8f16"])
@pytest.mark.parametrize("size", [36, 64])
def test_operands_of_any_numbers_are_rounded_by_the_definition(target, dtype, name, size) -> None:
    quantization = QUANTIZATIONS[name]
    weight = exact_weights(quantization, (2, size), 0)
    layer = quantize_model(nn.Linear(size, 2, bias=False, out_dtype="float32"), quantization)
    mod, _ = layer.export_tvm({"forward": {"x": spec.Tensor((2, "n", size), dtype)}})
    main = relaxpy.compile(mod, target=target)["forward"]
    stored = quantization.quantize(weight)
    rng = np.random.default_rng(3)
    for scale in (1.0, 1e-7, 1e-42, 1e4, 0.0):
        x = (rng.standard_normal((2, 3, size)) * scale).astype(dtype)
        x[0, 1] = 0
        x[1, 2] = np.nextafter(np.asarray(0, dtype), np.asarray(1, dtype))
        wanted = product(quantization, x, weight)
        np.testing.assert_array_equal(main(x, *stored), wanted)
    for odd in (np.inf, -np.inf, np.nan):
        x = rng.standard_normal((2, 3, size)).astype(dtype)
        x[1, 0, 17] = odd
        found = main(x, *stored)
        assert np.isnan(found[1, 0]).all()
        assert np.isnan(found).sum() == 2


def test_sums_that_may_not_fit_are_refused() -> None:
    wide = nn.Linear(133145, 1, bias=False)
    layer = quantize_model(wide, "w8a8f32")
    x = spec.Tensor((1, 133145), "float32")
    with pytest.raises(MisuseError, match="add at most 133144 of them, found rows of 133145"):
        layer.export_tvm({"forward": {"x": x}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((0, 0, "float32", True), "operands are rounded for packed weights only"),
        ((1, 32, "float32"), "packed weights have 2 to 8 bits, and others 0, found 1"),
        ((4.0, 32, "float32"), "packed weights have 2 to 8 bits, and others 0, found 4.0"),
        ((4, 36, "float32"), "multiple of 8 weights of 4 bits, or 0 for a row, found 36"),
        ((3, -40, "float32"), "multiple of 10 weights of 3 bits, or 0 for a row, found -40"),
        ((8, 0, "int8"), "scales are floats, found int8"),
    ],
)
def test_quantisations_that_cannot_be(options: tuple[Any, ...], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        Quantization("own", *options)


KEPT = {
    "no parameter is named": ("R.matmul(x, w)", ()),
    "used as a tensor": ("R.add(R.matmul(x, w), R.matmul(w, w))", ("w",)),
    "used in both layouts": ("R.add(R.matmul(x, w), R.matmul(x, R.permute_dims(w)))", ("w",)),
    "returned": ("(R.matmul(x, w), w)", ("w",)),
    "the transposition is used": ("R.matmul(R.permute_dims(w), R.permute_dims(w))", ("w",)),
    "columns of a table": ("R.take(w, R.const([1]), axis=1)", ("w",)),
}


@pytest.mark.parametrize(("value", "params"), KEPT.values(), ids=KEPT)
def test_weights_with_other_uses_stay(value: str, params: tuple[str, ...]) -> None:
    mod = from_source(f"""
        @I.ir_module
        class Module:
            @R.function
            def main(x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")):
                y = {value}
                return y
    """)
    with pytest.warns(RelaxpyWarning, match="QuantizeWeights found no weight"):
        assert_structural_equal(QuantizeWeights(params=params)(mod), mod)


def test_parameters_of_called_functions_stay() -> None:
    mod = module("""
    def layer(x: f32[1, 8], w: f32[8, 8]):
        return R.matmul(x, w)

    def main(x: f32[1, 8], w: f32[8, 8]):
        y: f32[1, 8] = cls.layer(x, w)
        return y
    """)
    with pytest.warns(RelaxpyWarning, match="QuantizeWeights found no weight") as caught:
        assert_structural_equal(QuantizeWeights(params=["w"])(mod), mod)
    assert caught[0].filename == __file__


SMALL = IRModule(
    {
        "main": from_source("""
            @R.function
            def main(
                x: R.Tensor((3, 64), "float32"),
                kernel: R.Tensor((8, 1, 1), "float32"),
                w: R.Tensor((64, 64), "float32"),
                table: R.Tensor((32, 64), "float32"),
            ):
                y = R.add(R.matmul(x, w), R.take(table, R.const([1, 2, 31]), axis=0))
                return R.multiply(kernel, y)
        """)
    }
)


def with_constants() -> IRModule:
    rng = np.random.default_rng(1)
    params = {p.name_hint: p.struct_info for p in SMALL["main"].params[1:]}
    shapes = {name: [int(n) for n in sinfo.shape.values] for name, sinfo in params.items()}
    values = {name: rng.standard_normal(shape, "float32") for name, shape in shapes.items()}
    return BindParams("main", values)(SMALL)


def test_a_summary_says_what_is_packed() -> None:
    tail = "packed; constants have"
    plain = 4 * (8 + 64 * 64 + 32 * 64) + 3 * 4
    stored = (64 + 32) * (64 // 2 + 4 * 2) + 4 * 8 + 3 * 4  # two integers a byte, a scale for 32
    expected = f"2 of 3 weights {tail} {plain:,} bytes before and {stored:,} after"
    assert QuantizeWeights("q4f32_1").summary(with_constants()) == expected
    named = QuantizeWeights("q0f16", params=["w", "table"])
    assert named.summary(SMALL).startswith("2 of 2 weights packed")
    with pytest.warns(RelaxpyWarning, match="found no weight"):
        assert QuantizeWeights().summary(SMALL).startswith("0 of 0 weights packed")


@pytest.mark.parametrize("name", ["q4f32_1", "int8f32", "q0f16"])
def test_small_weights_stay_packed_in_files(name: str, tmp_path: Path) -> None:
    mod, x = with_constants(), np.random.default_rng(2).standard_normal((3, 64), "float32")
    packed = QuantizeWeights(name)(mod)
    sizes: dict[str, int] = {}
    results = []
    for key, options in (("packed", {}), ("decoded", {"relax.FoldConstant.max_bytes": 1 << 20})):
        with PassContext(config=options):
            ex = relaxpy.compile(packed, target="numpy")
        ex.save(tmp_path / key)
        sizes[key] = (tmp_path / key).stat().st_size
        results.append(ex["main"](x))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-5)
    assert sizes["packed"] < 0.8 * sizes["decoded"]


def reasons(value: str, target: str, size: int = 64) -> list[str]:
    """Why the kernels of a product of `x`, (b, s, size), with 4-bit weights take longer."""
    mod = IRModule(
        {
            "main": from_source(f"""
                @R.function
                def main(
                    x: R.Tensor(("b", "s", {size}), "float32"),
                    w: R.Tensor(({size}, 70), "float32"),
                ):
                    with R.dataflow():
                        y = {value}
                        R.output(y)
                    return y
            """)
        }
    )
    ex = relaxpy.compile(QuantizeWeights(params=["w"])(mod), target=target)
    return [row.reason for row in ex.report() if row.reason]


def test_the_report_says_where_weights_are_decoded_more_than_once() -> None:
    assert reasons("R.matmul(x, w)", "native") == []
    turned = "R.matmul(R.permute_dims(x, (1, 0, 2)), w)"
    assert reasons(turned, "native") == ["weights are decoded again in each iteration of i0"]
    [rest] = reasons("R.matmul(x, w)", "native", 9 * 32 + 26)
    assert rest == "the weights of a last group that is not whole are decoded for each row"
    [numpy] = reasons("R.matmul(x, w)", "numpy")
    assert numpy.startswith("NumPy decodes integers of few bits in each call")


@pytest.mark.each_choice
@pytest.mark.parametrize("name", ["q3f32_1", "q4f16_1", "q8f32_1", "int8f32"])
@pytest.mark.parametrize(("rows", "count"), [(1, 1), (64, 1), ("n", 1), (65, 2)])
def test_a_product_with_few_rows_decodes_its_weights(name, rows, count) -> None:
    model = quantize_model(nn.Linear(160, 6), name)
    x = spec.Tensor((rows, 160), QUANTIZATIONS[name].dtype)
    mod, _ = model.export_tvm({"forward": {"x": x}})
    ex = relaxpy.compile(mod, target="native")
    report = ex.report()
    assert len({row.kernel for row in report}) == count
    assert {row.backend for row in report} == {"native"}
    with Target("native"):
        for_target, _ = model.export_tvm({"forward": {"x": x}})
    same = relaxpy.compile(for_target, target="native")
    assert texts(same) == texts(ex)


def texts(ex: relaxpy.Executable) -> list[str]:
    """The LLVM IR of the kernels of a program."""
    kernels = dict.fromkeys(row.kernel for row in ex.report())
    return [ex.kernel_source(kernel, "llvm") for kernel in kernels]


@pytest.mark.parametrize(
    ("name", "shape", "out_dtype", "target", "is_one"),
    [
        ("q4f32_1", ("n", 160), None, "native", True),
        ("q4f32_1", (64, 160), "float32", "native", True),
        ("q4f32_1", (65, 160), None, "native", False),
        ("q4f32_1", (2, "n", 160), None, "native", False),
        ("q4f32_1", ("n", 160), "float16", "native", False),
        ("q4f16_1", ("n", 160), None, "native", False),
        ("int8f32", ("n", 160), None, "native", False),
        ("q4f32_1", ("n", 160), None, "numpy", False),
        ("q4f32_1", ("n", 160), None, None, False),
    ],
)
def test_a_product_is_one_kernel_for_a_target_that_decodes_in_it(
    name, shape, out_dtype, target, is_one
) -> None:
    model = quantize_model(nn.Linear(160, 6, bias=False, out_dtype=out_dtype), name)
    x = spec.Tensor(shape, QUANTIZATIONS[name].dtype)
    with Target(target) if target else nullcontext():
        mod, _ = model.export_tvm({"forward": {"x": x}})
    kernels = {gvar.name_hint for gvar in mod.functions} - {"forward"}
    assert kernels == {"dequantize_matmul" if is_one else "dequantize"}
