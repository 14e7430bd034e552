"""docs/differences.toml: each row names a test that exists, the page is printed from it.

The table below shows those differences that no test of their area shows: the values of operators.
"""

import ast
import functools
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, tir
from relaxpy.arith import Analyzer, detect_iter_map
from relaxpy.ir import Op, Range
from relaxpy.rules import all_rules
from relaxpy.script import from_source, ir as I, relax as R
from tests.test_layering import ROOT

TARGETS = ["numpy", "native", "reference"]
inf, nan = np.inf, np.nan

# --- the data


@functools.cache
def table() -> dict[str, Any]:
    return tomllib.loads((ROOT / "docs" / "differences.toml").read_text(encoding="utf-8"))


def differences() -> list[dict[str, Any]]:
    return [row for area in table()["area"] for row in area["row"]]


@functools.cache
def names_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_difference_names_a_test_that_exists() -> None:
    missing = []
    for row in differences():
        file, _, name = row["test"].partition("::")
        if not (ROOT / file).is_file() or name not in names_of(file) or name[:5] != "test_":
            missing.append(f"{row['subject']}: {row['test']}")
    assert missing == []


def test_each_rule_of_a_difference_exists() -> None:
    assert {row["rule"] for row in differences() if "rule" in row} <= set(all_rules())


def test_fifteen_differences_open_the_page() -> None:
    first = table()["area"][0]["row"]
    assert len(first) == 15
    assert [row["subject"] for row in differences()].count(first[0]["subject"]) == 1


def test_a_cell_is_a_sentence_or_two() -> None:
    long = [
        row["subject"]
        for row in differences()
        for cell in (row["ours"], row["theirs"])
        if len(cell.split()) > 40 or not cell.endswith(".")
    ]
    assert long == []


def test_the_page_is_up_to_date() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "differences.py"), "--check"]
    assert subprocess.run(tool, check=False).returncode == 0, "run tools/differences.py"


# --- values

#: An expression over x, y and z, which are these arrays, and its value.
RESULTS: Sequence[tuple[str, Sequence[Any], Any]] = [
    ("R.max(x)", [np.float32([-inf, -inf])], -inf),
    ("R.min(x)", [np.float32([inf, inf])], inf),
    ("R.max(x)", [np.float32([1, nan])], nan),
    ("R.sum(x, axis=1)", [np.zeros((2, 0), "float32")], [0, 0]),
    ("R.floor_divide(x, y)", [np.float64([1.0]), np.float64([0.1])], [9]),
    ("R.sign(x)", [np.float32([nan, -2])], [nan, -1]),
    ("R.nn.dropout(x)[0]", [np.float32([1, 2])], [1, 2]),
    ("R.nn.dropout(x)[1]", [np.float32([1, 2])], [1, 1]),
    (
        "R.scatter_elements(x, y, z, axis=0, reduction='mean')",
        [np.float32([3]), np.int64([0, 0]), np.float32([6, 9])],
        [6],
    ),
    (
        "R.nn.layer_norm(x, y, z, axes=[-1], center=False, scale=False)",
        [np.float32([[1, 3]]), np.float32([5, 5]), np.float32([7, 7])],
        [[-1, 1]],
    ),
    ("R.nn.pad(x, (-1, 1))", [np.float32([1, 2])], [2, 0]),
    ("R.nn.max_pool1d(x, 1, padding=1, strides=1)", [np.float32([[[1]]])], [[[-inf, 1, -inf]]]),
    (
        "R.nn.max_pool1d(x, 2, strides=3, ceil_mode=True, padding=[0, 2])",
        [np.float32([[[1, 2, 3]]])],
        [[[2, -inf]]],
    ),
    ("R.split(x, 1)[0]", [np.float32([[1, 2], [3, 4]])], [1, 2]),
    ("R.split(x, 2)[0]", [np.float32([[1, 2], [3, 4]])], [[1, 2]]),
    ("R.meshgrid([x, y], indexing='xy')[0]", [np.float32([1, 2]), np.float32([3])], [[1, 2]]),
    (
        "R.index_put(x, (y,), z)",
        [np.zeros((2, 2), "float32"), np.int64([-1]), np.float32(4)],
        [[0, 0], [4, 4]],
    ),
    (
        "R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))",
        [np.float32([1, 2, 3])],
        [[1, 2, 3, 0]],
    ),
    ("R.quantize(x, y, z)", [np.array(3.0), np.array(0.5), np.array(1, "int16")], 7),
    (
        "R.nn.cross_entropy_with_logits(x, y)",
        [np.float32([-1, -2]), np.float32([0.25, 0.75])],
        1.75,
    ),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("expression", "arrays", "expected"), RESULTS, ids=lambda v: str(v)[:40])
def test_results_of_operators(expression, arrays, expected, target) -> None:
    names = "xyz"[: len(arrays)]
    signature = ", ".join(
        f"{name}: R.Tensor({array.shape}, '{array.dtype}')"
        for name, array in zip(names, map(np.asarray, arrays), strict=True)
    )
    func = from_source(f"@R.function\ndef main({signature}):\n    return {expression}\n")
    executable = relaxpy.compile(relaxpy.IRModule({"main": func}), target)
    found = executable["main"](*map(np.asarray, arrays))
    np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=expression)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "norm",
    [
        "R.nn.layer_norm(x, g, b, axes=[-1])",
        "R.nn.group_norm(x, g, b, num_groups=1, channel_axis=1, axes=[])",
    ],
)
def test_a_normalisation_far_from_zero_keeps_its_digits(norm: str, target: str) -> None:
    func = from_source(f"""
@R.function
def main(
    x: R.Tensor((1, 4), "float32"), g: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")
):
    return {norm}
""")
    x = np.float32([[10000, 10001, 10002, 10003]])
    found = relaxpy.compile(relaxpy.IRModule({"main": func}), target)["main"](
        x, np.ones(4, "float32"), np.zeros(4, "float32")
    )
    np.testing.assert_allclose(found, [(np.arange(4) - 1.5) / np.sqrt(1.25)], rtol=1e-4)


@I.ir_module
class BatchNorm:
    @R.function
    def main(
        x: R.Tensor((2, 1), "float32"),
        gamma: R.Tensor((1,), "float32"),
        beta: R.Tensor((1,), "float32"),
        mean: R.Tensor((1,), "float32"),
        variance: R.Tensor((1,), "float32"),
    ):
        return R.nn.batch_norm(
            x, gamma, beta, mean, variance, axis=1, epsilon=0.0, momentum=0.5, training=True
        )


def batch_norm(target: str) -> Any:
    one = np.ones(1, "float32")
    x = np.float32([[4], [8]])
    return relaxpy.compile(BatchNorm, target)["main"](x, one, 0 * one, 10 * one, 20 * one)


@pytest.mark.parametrize("target", TARGETS)
def test_batch_normalisation_in_training_uses_the_batch(target: str) -> None:
    y, mean, _ = batch_norm(target)
    np.testing.assert_allclose(y, [[-1], [1]], rtol=1e-5)
    np.testing.assert_allclose(mean, [8])  # halfway from 10 to 6


@pytest.mark.parametrize("target", TARGETS)
def test_the_moving_variance_moves_to_that_of_the_batch(target: str) -> None:
    np.testing.assert_allclose(batch_norm(target)[2], [12])  # halfway from 20 to 4, not to 8


def test_adding_zero_to_a_float_is_not_folded() -> None:
    x = tir.Var("x", "float32")
    analyzer = Analyzer()
    assert analyzer.simplify(x + 0.0) is not x
    assert analyzer.simplify(x - 0.0) is x
    assert analyzer.simplify(x + -0.0) is x


def test_a_maximum_of_zeros_of_both_signs() -> None:
    func = from_source("""
@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
    return R.maximum(x, y), R.minimum(x, y)
""")
    x, y = np.array([-0.0, 0.0], "float32"), np.array([0.0, -0.0], "float32")
    second = np.signbit(y).tolist()
    for target, wanted in {
        "native": ([False, False], [True, True]),
        "numpy": (np.signbit(np.maximum(x, y)).tolist(), np.signbit(np.minimum(x, y)).tolist()),
        "reference": (second, second),
    }.items():
        found = relaxpy.compile(func, target)["main"](x, y)
        assert tuple(np.signbit(v).tolist() for v in found) == wanted


def test_a_scalar_and_a_tensor_of_rank_0_have_rank_0() -> None:
    func = from_source("""
@R.function
def main(x: R.Tensor((), "int64"), n: R.Prim("int64")):
    return R.add(x, n)
""")
    assert func.body.struct_info.ndim == 0


@pytest.mark.parametrize("target", TARGETS)
def test_negative_indices_are_counted_from_the_end_or_rejected(target: str) -> None:
    module = from_source("""
@I.ir_module
class Module:
    @R.function
    def scattered(
        x: R.Tensor((2,), "float32"), i: R.Tensor((1,), "int64"), y: R.Tensor((1,), "float32")
    ):
        return R.scatter_elements(x, i, y)

    @R.function
    def taken(x: R.Tensor((2,), "float32"), i: R.Tensor((1,), "int64")):
        return R.take(x, i, axis=0)
""")
    executable = relaxpy.compile(module, target)
    x, i = np.float32([1, 2]), np.int64([-1])
    assert executable["scattered"](x, i, np.float32([5])).tolist() == [1, 5]
    with pytest.raises(relaxpy.errors.RelaxpyError):
        executable["taken"](x, i)


def test_an_impure_call_in_two_positions_is_made_twice() -> None:
    call = relax.Call(Op.get("relax.print"), [relax.StringImm("x")])
    builder = relax.BlockBuilder()
    with builder.function("main", [], pure=False):
        value = builder.emit(relax.Tuple([call, call]))
        builder.emit_func_output(value)
    assert builder.get().script().count("R.print") == 2


def test_sums_whose_steps_overlap_are_refused() -> None:
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    domains = {x: Range(0, 4), y: Range(0, 8)}
    assert detect_iter_map([x * 8 + y], domains).indices
    assert not detect_iter_map([x * 7 + y], domains).indices


def test_three_ways_to_simplify_give_one_form() -> None:
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    analyzer, buffer = Analyzer(), tir.decl_buffer((4,), "float32")
    for simplified in (analyzer.rewrite_simplify, analyzer.canonical_simplify, analyzer.simplify):
        assert str(simplified(-10 * x + y)) == "y - x * 10"
        assert str(simplified(buffer[0] - buffer[0])) == "buffer[0] - buffer[0]"


def test_a_builder_returns_a_copy_that_is_well_formed() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    module = builder.get()
    with builder.function("other", [y := relax.Var("y", relax.TensorStructInfo((2,), "float32"))]):
        builder.emit_func_output(y)
    assert [var.name_hint for var in module.get_global_vars()] == ["main"]
    assert relax.analysis.well_formed(module)
    assert len(builder.get().get_global_vars()) == 2
