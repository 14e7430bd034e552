"""Partitioning for cuBLAS, CUTLASS, cuDNN and hipBLAS: which groups each of them computes."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.nodes import Function
from relaxpy.relax.backend.cuda.cublas import partition_for_cublas
from relaxpy.relax.backend.cuda.cudnn import partition_for_cudnn
from relaxpy.relax.backend.cuda.cutlass import partition_for_cutlass
from relaxpy.relax.backend.rocm.hipblas import partition_for_hipblas
from relaxpy.script import from_source
from tests.ir.relax.texts import flow

PARTITIONS = {
    "cublas": partition_for_cublas,
    "cudnn": partition_for_cudnn,
    "cutlass": partition_for_cutlass,
    "hipblas": partition_for_hipblas,
}


def program(params: str, body: str) -> IRModule:
    """A module whose `main` has parameters such as "x (2, 3) float16; y …" and this dataflow."""
    signature = []
    for param in params.split("; "):
        name, rest = param.split(" ", 1)
        shape, dtype = rest.rsplit(" ", 1)
        signature.append(f'{name}: R.Tensor({shape}, "{dtype}")')
    return flow(", ".join(signature), body, "out")


def composites(mod: IRModule) -> list[str]:
    """The names of the patterns that functions of a module were made by, in order."""
    names = []
    for func in mod.functions.values():
        if isinstance(func, Function) and "Codegen" in func.attrs:
            inner = func.body.blocks[0].bindings[0].value
            assert isinstance(inner, Function)
            names.append(str(inner.attrs["Composite"]))
    return names


def matmul(left: str, right: str, dtype: str, more: str = "") -> str:
    return f"x {left} {dtype}; y {right} {dtype}{more}"


PRODUCT = "out = R.matmul(x, y)"
TRANSPOSED = 't = R.permute_dims(y); out = R.matmul(x, t, out_dtype="float32")'
BIAS = "a = R.matmul(x, y); out = R.add(a, z)"
SQUARE = matmul("(8, 16)", "(16, 16)", "float16", "; z (16,) float16")
INT8 = 'out = R.matmul(x, y, out_dtype="int32")'
FP8 = "float8_e4m3fn"
DEQUANTIZE = (
    't = R.permute_dims(y); a = R.matmul(x, t, out_dtype="float32"); out = R.dequantize(a, '
    'R.const(2.0, "float16"), R.const({}, "float16"), axis=-1, out_dtype="float16")'
)
CONV = 'R.nn.conv2d(x, y, padding=1, groups={}, data_layout="{}", kernel_layout="{}")'
NHWC = CONV.format(1, "NHWC", "OHWI")
IMAGES = "x (2, 8, 8, 16) float16; y (32, 3, 3, 16) float16; z (1, 1, 1, 32) float16"
STACKED = (
    "a = R.split(x, 3, axis=2); q = R.reshape(a[0], (2, 16, 4, 8)); k = R.reshape(a[1], "
    "(2, 16, 4, 8)); v = R.reshape(a[2], (2, 16, 4, 8)); out = R.nn.attention(q, k, v{})"
)
SLICED = (
    "a = R.strided_slice(x, [2], [0], [32], [1]); b = R.strided_slice(x, [2], [{0}], [{1}], [1]); "
    "c = R.strided_slice(x, [2], [64], [96], [1]); q = R.reshape(a, (2, 16, 4, 8)); "
    "k = R.reshape(b, (2, 16, 4, 8)); v = R.reshape(c, (2, 16, 4, 8)); "
    "out = R.nn.attention(q, k, v)"
)
SEQUENCE_FIRST = (
    "a = R.split(x, 3, axis=3); q = R.permute_dims(a[0], [1, 0, 2, 3]); "
    "k = R.permute_dims(a[1], [1, 0, 2, 3]); v = R.permute_dims(a[2], [1, 0, 2, 3]); "
    "o = R.nn.attention(q, k, v); out = R.permute_dims(o, [1, 0, 2, 3])"
)


@pytest.mark.parametrize(
    ("params", "body", "expected"),
    [
        *[
            (matmul("(8, 16)", "(16, 32)", dtype), PRODUCT, expected)
            for dtype, expected in (
                ("float16", ["cublas.matmul", "cutlass.matmul"]),
                ("float32", ["cublas.matmul", "cutlass.matmul"]),
                ("bfloat16", ["cublas.matmul"]),
                ("float64", []),
                (FP8, []),
            )
        ],
        (matmul("(8, 16)", "(32, 16)", FP8), TRANSPOSED, ["cublas.matmul_transposed"]),
        (matmul("(8, 16)", "(30, 16)", FP8), TRANSPOSED, []),
        (matmul("(8, 16)", "(16, 32)", "int8"), INT8, ["cublas.matmul", "cutlass.matmul"]),
        (matmul("(8, 18)", "(18, 32)", "int8"), INT8, ["cutlass.matmul"]),
        (matmul("(8, 16)", "(16, 30)", "int8"), INT8, ["cutlass.matmul"]),
        (matmul("(6, 3, 8)", "(1, 8, 9)", "float16"), PRODUCT, ["cublas.matmul", "cutlass.matmul"]),
        (matmul("(1, 3, 8)", "(6, 8, 9)", "float16"), PRODUCT, ["cutlass.matmul"]),
        (matmul("(2, 1, 3, 8)", "(2, 3, 8, 9)", "float16"), PRODUCT, []),
        (matmul('(8, "n")', '("n", 9)', "float16"), PRODUCT, []),
        (
            matmul('("n", 3, 8)', '("n", 8, 9)', "float16"),
            PRODUCT,
            ["cublas.matmul", "cutlass.matmul"],
        ),
        (SQUARE, BIAS, ["cublas.matmul_bias", "cutlass.matmul_bias"]),
        (SQUARE.replace("(16,)", "(8, 16)"), BIAS, ["cublas.matmul", "cutlass.matmul_bias"]),
        (
            SQUARE,
            "a = R.matmul(x, y); b = R.add(a, z); out = R.nn.relu(b)",
            ["cublas.matmul_bias_relu", "cutlass.matmul_bias_relu"],
        ),
        (
            SQUARE,
            "a = R.matmul(x, y); b = R.add(a, z); c = R.multiply(b, x); out = R.nn.relu(c)",
            ["cublas.matmul_bias", "cutlass.matmul_bias_residual_multiply_relu"],
        ),
        (
            SQUARE,
            "a = R.matmul(x, y); b = R.add(a, z); c = R.exp(x); out = R.add(b, c)",
            ["cublas.matmul_bias", "cutlass.matmul_bias_residual_add"],
        ),
        (
            SQUARE,  # the residual depends on the product
            "a = R.matmul(x, y); b = R.add(a, z); c = R.exp(a); out = R.add(b, c)",
            ["cublas.matmul", "cutlass.matmul"],
        ),
        (
            matmul("(10, 32)", "(64, 32)", FP8),
            DEQUANTIZE.format("0.0"),
            ["cublas.matmul_transposed_dequantize"],
        ),
        (
            matmul("(10, 32)", "(64, 32)", FP8),
            DEQUANTIZE.format("1.0"),
            ["cublas.matmul_transposed"],
        ),
        (IMAGES, f"out = {NHWC}", ["cudnn.conv2d.nhwc_ohwi", "cutlass.conv2d"]),
        (
            IMAGES,
            f"a = {NHWC}; b = R.add(a, z); out = R.nn.relu(b)",
            ["cudnn.conv2d.nhwc_ohwi_bias_relu", "cutlass.conv2d_bias_relu"],
        ),
        (
            IMAGES,
            f"a = {NHWC}; b = R.add(a, z); out = R.nn.silu(b)",
            ["cudnn.conv2d.nhwc_ohwi_bias", "cutlass.conv2d_bias_silu"],
        ),
        (IMAGES.replace("float16", "float64"), f"out = {NHWC}", []),
        (
            "x (2, 8, 8, 16) float16; y (16, 3, 3, 1) float16",
            f"out = {CONV.format(16, 'NHWC', 'OHWI')}",
            ["cudnn.conv2d.nhwc_ohwi"],
        ),
        (
            "x (2, 16, 8, 8) float16; y (32, 16, 3, 3) float16",
            f"out = {CONV.format(1, 'NCHW', 'OIHW')}",
            ["cudnn.conv2d.nhwc_ohwi"],
        ),
        (
            "x (2, 16, 96) float16",
            STACKED.format(""),
            ["cudnn.attention.BS3NH", "cutlass.stacked_attention"],
        ),
        (
            "x (2, 16, 96) float16",
            STACKED.format(', causal_mask="TopLeft"'),
            ["cutlass.stacked_attention"],
        ),
        ("x (2, 16, 96) float32", STACKED.format(""), ["cutlass.stacked_attention"]),
        ("x (2, 16, 96) float16", SLICED.format(32, 64), ["cutlass.stacked_attention"]),
        ("x (2, 16, 96) float16", SLICED.format(31, 63), ["cutlass.attention"]),
        (
            "x (16, 2, 4, 24) float16",
            SEQUENCE_FIRST,
            ["cudnn.attention.SBN3H", "cutlass.attention"],
        ),
        (
            "x (2, 8, 16) float16; y (16,) float16",
            "out = R.nn.layer_norm(x, y, y, axes=-1)",
            ["cutlass.layer_norm"],
        ),
        ("x (2, 8, 16) float16; y (8,) float16", "out = R.nn.layer_norm(x, y, y, axes=1)", []),
    ],
)
def test_the_groups_of_each_library(params: str, body: str, expected: list[str]) -> None:
    mod = program(params, body)
    found = []
    for partition in PARTITIONS.values():
        after = partition(mod)
        assert check_well_formed(after) == []
        found += composites(after)
    half = [name for name in expected if name.startswith("cublas") and " float16" in params]
    assert found == expected + [name.replace("cublas", "hipblas") for name in half]


def test_attention_has_a_workspace_of_the_size_of_its_result() -> None:
    after = partition_for_cutlass(program("x (2, 16, 96) float16", STACKED.format("")))
    [func] = [
        f for f in after.functions.values() if isinstance(f, Function) and "Codegen" in f.attrs
    ]
    assert func.params[-1].struct_info == relaxpy.relax.TensorStructInfo(
        (2 * 16 * 32 * 2,), "uint8"
    )


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_groups_are_computed_without_the_library_too(name: str) -> None:
    mod = program(
        "x (4, 8) float32; y (16, 8) float32; z (16,) float32",
        "t = R.permute_dims(y); a = R.matmul(x, t); b = R.add(a, z); out = R.nn.relu(b)",
    )
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal(s).astype("float32") for s in ((4, 8), (16, 8), (16,)))
    result = relaxpy.compile(PARTITIONS[name](mod), target="numpy")["main"](x, y, z)
    np.testing.assert_allclose(result, np.maximum(x @ y.T + z, 0), rtol=1e-5, atol=1e-5)


def test_composite_functions_of_cutlass_are_not_wrapped_if_not_requested() -> None:
    mod = program(matmul("(8, 16)", "(16, 32)", "float16"), PRODUCT)
    after = partition_for_cutlass(mod, annotate_codegen=False)
    [func] = [f for f in after.functions.values() if "Composite" in f.attrs]
    assert func.attrs["Composite"] == "cutlass.matmul"


@pytest.mark.parametrize("name", PARTITIONS)
def test_operands_of_unknown_shape_are_not_grouped(name: str) -> None:
    mod = from_source("""
@R.function
def main(x: R.Tensor("float16"), y: R.Tensor("float16", ndim=2), z: R.Tensor):
    with R.dataflow():
        a = R.matmul(x, y)
        b = R.add(a, z)
        c = R.matmul(y, z)
        R.output(b, c)
    return (b, c)
""")
    after = PARTITIONS[name](IRModule.from_expr(mod))
    assert composites(after) == []
