"""The default pipeline: what is fused, who decides, and what stays as it was written."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import FunctionSignatureError, MatchCastError, MisuseError, RuntimeCheckError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.relax import transform
from relaxpy.script import from_source, ir as I, relax as R
from relaxpy.transform import PassContext, get_pipeline
from tests.ir.relax.texts import graph, module

F = np.float32


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape, dtype=F)


def called(mod: IRModule, name: str = "main") -> list[str]:
    """The names of what a function calls after the default pipeline, in order."""
    main = get_pipeline("default")(mod)[name]
    values = [b.value for block in main.body.blocks for b in block.bindings]
    calls = [value for value in values if isinstance(value, rx.Call)]
    heads = [call.args[0] if call.args else call.op for call in calls]
    return [head.name_hint for head in heads if isinstance(head, rx.GlobalVar)]


@lru_cache(maxsize=8)
def compiled(mod: IRModule, target: str | None, pipeline: str) -> relaxpy.Executable:
    return relaxpy.compile(mod, target, relax_pipeline=pipeline)


def agree(mod: IRModule, *args: object, name: str = "main") -> None:
    """The default pipeline, a kernel for each operator, and the reference return the same."""
    expected = compiled(mod, "reference", "default")[name](*args)
    for pipeline in ("default", "legalize"):
        found = compiled(mod, None, pipeline)[name](*args)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# ---- typical programs


def test_operators_around_a_normalisation_are_one_kernel() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(
            x: R.Tensor(("n", 8), "float32"), r: R.Tensor(("n", 8), "float32"),
            g: R.Tensor((8,), "float32"), b: R.Tensor((8,), "float32"),
        ):  # fmt: skip
            y = R.nn.layer_norm(R.add(R.nn.gelu(x), r), g, b, axes=[-1])
            return y

    assert called(Model) == ["fused_gelu_add_layer_norm"]
    agree(Model, floats(5, 8), floats(5, 8), floats(8), floats(8))


@pytest.mark.parametrize(("groups", "size"), [(1, "1"), (1, '"h"'), (2, '"h"'), (2, "5")])
def test_matrices_of_a_transposed_convolution_are_computed_once(groups: int, size: str) -> None:
    attrs = f"strides=2, padding=1, output_padding=1, groups={groups}"
    func = from_source(f"""
@R.function
def main(x: R.Tensor((2, 4, {size}, 2), "float32"), w: R.Tensor((4, 4, 3, 2), "float32")):
    return R.nn.conv2d_transpose(x, w, {attrs})
""")
    assert isinstance(func, rx.Function)
    mod = IRModule({"main": func})
    prepared, rest = called(mod)
    assert (prepared, rest) == ("conv2d_transpose_weight_prepack", "conv2d_transpose_prepacked")
    w = floats(4, 4, 3, 2)
    bound = IRModule({"main": func.bind_params({"w": w})})
    assert called(bound) == ["conv2d_transpose_prepacked"]
    for h in (0, 1, 3) if size == '"h"' else (int(size),):
        x = floats(2, 4, h, 2)
        agree(mod, x, w)
        agree(bound, x)


def test_filters_without_elements_of_padding_are_computed_once() -> None:
    """An element that is not finite makes NaN of the zeros with which it is multiplied."""
    func = from_source("""
@R.function
def main(x: R.Tensor((1, 4, 5, 5), "float32"), w: R.Tensor((4, 4, 3, 3), "float32")):
    return R.nn.conv2d(x, w, padding=5, dilation=5)
""")
    assert isinstance(func, rx.Function)
    x, w = floats(1, 4, 5, 5), floats(4, 4, 3, 3)
    w[1, 2, 0, 1] = np.inf
    bound = IRModule({"main": func.bind_params({"w": w})})
    assert called(bound) == ["conv2d_prepacked"]
    found = compiled(bound, None, "default")["main"](x)
    expected = np.einsum("nchw,oc->nohw", x, w[..., 1, 1])
    expected[:, 1] = np.nan
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_dense_layer_is_one_kernel_that_reads_its_weight_as_it_is() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"), w: R.Tensor((3, 4), "float32"),
            b: R.Tensor((3,), "float32"),
        ):  # fmt: skip
            return R.nn.relu(R.linear(x, w, b))

    assert called(Model) == ["fused_transpose_matmul_add_relu"]
    agree(Model, floats(5, 4), floats(3, 4), floats(3))


def test_heads_of_attention_are_not_copied() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(
            q: R.Tensor((1, 6, 8), "float32"), k: R.Tensor((1, 6, 8), "float32"),
            v: R.Tensor((1, 6, 8), "float32"), mask: R.Tensor((6, 6), "float32"),
        ):  # fmt: skip
            heads = R.permute_dims(R.reshape(q, (1, 6, 2, 4)), (0, 2, 1, 3))
            keys = R.permute_dims(R.reshape(k, (1, 6, 2, 4)), (0, 2, 3, 1))
            values = R.permute_dims(R.reshape(v, (1, 6, 2, 4)), (0, 2, 1, 3))
            scores = R.add(R.multiply(R.matmul(heads, keys), R.const(0.5, "float32")), mask)
            return R.matmul(R.nn.softmax(scores), values)

    [kernel] = called(Model)
    assert "_matmul_multiply_add_softmax_" in kernel
    agree(Model, floats(1, 6, 8), floats(1, 6, 8), floats(1, 6, 8), floats(6, 6))
    source = relaxpy.compile(Model).source
    assert source.split("def main")[1].count("np.empty") == 1


def test_a_convolution_takes_its_bias_and_activation() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(
            x: R.Tensor((1, 3, 6, 6), "float32"), w: R.Tensor((4, 3, 3, 3), "float32"),
            b: R.Tensor((1, 4, 1, 1), "float32"),
        ):  # fmt: skip
            with R.dataflow():
                y = R.nn.relu(R.add(R.nn.conv2d(x, w, padding=1), b))
                R.output(y)
            return y

    assert called(Model) == ["fused_conv2d_add_relu"]
    agree(Model, floats(1, 3, 6, 6), floats(4, 3, 3, 3), floats(1, 4, 1, 1))


def test_two_products_of_a_sum_keep_their_own_kernels() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(
            x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("n", 6), "float32"),
            w: R.Tensor((8, 5), "float32"), v: R.Tensor((6, 5), "float32"),
        ):  # fmt: skip
            z = R.nn.relu(R.add(R.matmul(x, w), R.matmul(y, v)))
            return z

    assert sorted(called(Model)) == ["fused_matmul_add_relu", "matmul1"]
    agree(Model, floats(3, 8), floats(3, 6), floats(8, 5), floats(6, 5))


def test_constants_are_folded_and_equal_values_computed_once() -> None:
    Model = module("""
    def main(x: f32[2]):
        two = R.add(R.const([1.0, 1.0], "float32"), R.const([1.0, 1.0], "float32"))
        one, other = (R.exp(x), R.exp(x))
        return R.multiply(R.add(one, other), two)
    """)

    assert called(Model) == ["fused_tir_exp_add_multiply"]
    agree(Model, floats(2))


def test_long_chains_are_several_kernels_with_short_names() -> None:
    x = rx.Var("x", R.Tensor((4,), "float32"))
    builder = relaxpy.relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y: rx.Expr = x
            for _ in range(70):
                y = builder.emit(relaxpy.relax.op.cos(y))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    names = called(builder.finalize())
    assert len(names) == 3
    assert max(map(len, names)) < 150
    assert names[0].endswith("_and_16_more")
    agree(builder.finalize(), floats(4))


@pytest.mark.parametrize(
    ("lines", "results", "kernels"),
    [
        ("a = R.sum(x, axis=[1]); b = R.max(x, axis=[1])", "a, b", 1),
        (
            "a = R.sum(x, axis=[1]); b = R.mean(x, axis=[1]); c = R.variance(x, axis=[1]); "
            "d = R.max(x, axis=[1])",
            "a, b, c, d",
            1,
        ),
        ("y = R.exp(x); a = R.sum(y, axis=[1]); b = R.min(y, axis=[1])", "a, b", 1),
        ("y = R.exp(x); a = R.sum(y, axis=[1])", "a, y", 1),
        ("y = R.exp(x); a = R.sum(x, axis=[1]); z = R.add(x, y)", "a, y, z", 1),
        ("a = R.sum(x, axis=[1]); b = R.sum(x, axis=[0])", "a, b", 2),
        ("a = R.exp(x); b = R.cos(x)", "a, b", 2),
        ("a = R.sum(x, axis=[1]); b = R.matmul(x, w); c = R.max(x, axis=[1])", "a, b, c", 2),
        # A sum of all rows is between the two.
        (
            "a = R.max(x, axis=[1], keepdims=True); b = R.sum(a, axis=[0], keepdims=True); "
            "c = R.divide(x, b); d = R.sum(c, axis=[1])",
            "a, d",
            3,
        ),
        # Errors of an integer division name its line.
        ("i = R.astype(x, 'int32'); a = R.sum(i, axis=[1]); b = R.floor_divide(i, i)", "a, b", 2),
    ],
)
@pytest.mark.parametrize("rows", ["5", "n"])
def test_kernels_that_need_the_same_rows_are_one(
    lines: str, results: str, kernels: int, rows: str
) -> None:
    mod = module(f"""
    def main(x: f32[{rows}, 8], w: f32[8, 8]):
        with R.dataflow():
            {lines}
            R.output({results})
        return {results}
    """)
    assert len(called(mod)) == kernels
    x = 3 + np.abs(floats(5, 8))
    x[2, 3] = np.inf if "int32" not in lines else 7
    for given in (x,) if rows == "5" else (x, x[:0], x[::-2]):
        same_on_targets(mod, given, floats(8, 8))


@pytest.mark.parametrize("rows", ["5", "n"])
def test_siblings_stay_before_and_after_a_kernel_that_writes_their_rows(rows: str) -> None:
    mod = module(f"""
    @kernel
    def doubled(x: T.handle):
        n = T.int64()
        A = T.match_buffer(x, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            with T.block("doubled"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = A[vi, vj] * T.float32(2)

    def main(x: f32[{rows}, 8]):
        with R.dataflow():
            y = R.add(x, R.const(1, "float32"))
            a = R.sum(y, axis=[1])
            z = R.call_tir_inplace(cls.doubled, (y,), 0, f32[{rows}, 8])
            b = R.max(z, axis=[1])
            R.output(a, b, z)
        return a, b, z
    """)
    same_on_targets(mod, floats(5, 8))


def same_on_targets(mod: IRModule, *args: np.ndarray[Any, Any]) -> None:
    """Each target returns what the reference does."""
    expected = compiled(mod, "reference", "default")["main"](*args)
    for target in ("native", "numpy"):
        found = compiled(mod, target, "default")["main"](*args)
        for value, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-5)


# ---- who decides

Chain = graph("""
def main(x: f32[n, 4]):
    y = R.exp(x)
    z = R.negative(y)
    w = R.abs(z)
    return w
""")


def test_a_rule_decides_for_pairs_of_kernels() -> None:
    asked: list[tuple[str, str]] = []

    def kept_apart(producer: PrimFunc, consumer: PrimFunc) -> bool:
        texts = producer.script(), consumer.script()
        asked.append(texts)
        return "T.exp" not in texts[0]

    with PassContext(config={"relax.FuseOps.rule": kept_apart}):
        assert called(Chain) == ["tir_exp", "fused_tir_negative_tir_abs"]
    assert len(asked) == len(set(asked)) == 2
    with PassContext(config={"relax.FuseOps.rule": lambda producer, consumer: False}):
        assert called(Chain) == ["tir_exp", "tir_negative", "tir_abs"]
    assert called(Chain) == ["fused_tir_exp_tir_negative_tir_abs"]
    rule = transform.fusion_pays
    with PassContext(config={"relax.FuseOps.rule": rule, "relax.FuseOps.max_depth": 2}):
        assert len(called(Chain)) == 2


def test_a_rule_is_a_function() -> None:
    with pytest.raises(MisuseError, match="rule is a function, found 3"):
        transform.FuseOps(rule=3)  # type: ignore[arg-type]
    with (
        PassContext(config={"relax.FuseOps.rule": "never"}),
        pytest.raises(MisuseError, match="a rule is a function"),
    ):
        called(Chain)


def test_the_least_pipeline_has_a_kernel_for_each_operator() -> None:
    mod = get_pipeline("legalize")(Chain)
    assert_structural_equal(mod, transform.LegalizeOps()(transform.Normalize()(Chain)))
    assert [row.kernel for row in relaxpy.compile(Chain, relax_pipeline="legalize").report()] == [
        "tir_exp", "tir_negative", "tir_abs",
    ]  # fmt: skip
    assert_structural_equal(get_pipeline("default", target="reference")(Chain), mod)
    with pytest.raises(MisuseError, match="there is no target 'cuda'"):
        get_pipeline("default", target="cuda")


def test_the_reference_runs_the_program_as_it_is_written() -> None:
    kernels = {row.kernel for row in relaxpy.compile(Chain, "reference").report()}
    assert kernels == {"tir_exp", "tir_negative", "tir_abs"}


# ---- errors


@pytest.mark.rule("OPT-7")
def test_errors_at_run_time_name_their_line() -> None:
    Model = graph("""
    def rows(x: f32[4, 2], i: i64[2]):
        y = R.exp(x)
        z = R.take(y, i, axis=0)
        w = R.negative(z)
        return w

    def quotients(x: i64[4], y: i64[4]):
        total = R.add(x, y)
        z = R.floor_divide(x, total)
        w = R.negative(z)
        return w
    """)

    def error(call: Callable[[], object]) -> str:
        with pytest.raises(RuntimeCheckError) as caught:
            call()
        return str(caught.value)

    ones = np.ones(4, "int64")
    for pipeline in ("default", "legalize"):
        ex = relaxpy.compile(Model, relax_pipeline=pipeline)
        text = error(lambda ex=ex: ex["rows"](floats(4, 2), np.array([0, 9])))
        assert "index 9 is outside dimension 0 of buffer y, which has size 4" in text
        assert "z = R.take(y, i, axis=0)\n" in text
        text = error(lambda ex=ex: ex["quotients"](ones, -ones))
        assert "division by zero" in text
        assert "z = R.floor_divide(x, total)\n" in text


@pytest.mark.rule("OPT-8", "OPT-9", "MC-7")
def test_casts_outside_dataflow_blocks_fail_where_they_are_evaluated() -> None:
    Model = module("""
    def main(x: R.Tensor(ndim=1, dtype="float32")):
        y = R.match_cast(x, f32[2])
        z = R.exp(x)
        return z
    """)

    ex = relaxpy.compile(Model)
    np.testing.assert_allclose(ex["main"](np.zeros(2, F)), [1, 1])
    with pytest.raises(MatchCastError, match="match_cast"):
        ex["main"](np.zeros(3, F))


@pytest.mark.rule("OPT-8")
def test_calls_that_may_not_end_are_evaluated_outside_dataflow_blocks() -> None:
    Model = module("""
    @private
    def forever(x: f32[2]) -> f32[2]:
        return cls.again(x)

    @private
    def again(x: f32[2]) -> f32[2]:
        return cls.forever(x)

    def main(x: f32[2]):
        y = cls.forever(x)
        z = R.exp(x)
        return z
    """)

    assert "forever(x" in relaxpy.compile(Model).source.split("def main")[1]


@pytest.mark.rule("OPT-8", "DER-29")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_unused_packed_calls_beside_folded_views_are_evaluated(target: str) -> None:
    """FoldViews removes what it leaves unused, but no call outside dataflow blocks."""
    relaxpy.register_func("test.of_rank_3", lambda x: np.zeros((1, 1, 1), F), override=True)
    Model = module("""
    def main(x: f32[2, 2]):
        y = R.call_pure_packed("test.of_rank_3", x, sinfo_args=f32[2, 2])
        with R.dataflow():
            z = R.permute_dims(x)
            w = R.exp(R.reshape(R.reshape(z, (4,)), (2, 2)))
            R.output(w)
        return w
    """)

    with pytest.raises(FunctionSignatureError, match=r"its rank \(ndim\) is 3, not 2"):
        relaxpy.compile(Model, target)["main"](np.zeros((2, 2), F))


# ---- what stays

Shared = module("""
@T.prim_func
def double(a: f32[4], b: f32[4]):
    T.func_attr({"tir.noalias": True})
    for i in range(4):
        with T.block("double"):
            vi = T.axis.spatial(4, i)
            b[vi] = a[vi] * T.float32(2)

@kernel
def halve(a: f32[4], b: f32[4]):
    for i in S(4, "halve"):
        b[vi] = a[vi] / T.float32(2)

@private
def helper(x: f32[4]) -> f32[4]:
    return R.call_tir(cls.halve, (x,), f32[4])

def other(x: f32[4]) -> f32[4]:
    y = R.call_tir(cls.double, (x,), f32[4])
    return cls.helper(R.exp(y))

def main(x: f32[4]) -> f32[4]:
    with R.dataflow():
        y = R.call_tir(cls.double, (x,), f32[4])
        z = R.call_tir(cls.halve, (y,), f32[4])
    return z
""")


def test_functions_and_kernels_can_be_called_by_name_as_before() -> None:
    ex = relaxpy.compile(Shared)
    x, y = floats(4), np.empty(4, F)
    ex["double"](x, y)
    np.testing.assert_array_equal(y, x * 2)
    np.testing.assert_allclose(ex["other"](x), np.exp(x * 2) / 2, rtol=1e-6)
    np.testing.assert_array_equal(ex["main"](x), x)
    assert {"double", "main", "other"} <= set(get_pipeline("default")(Shared).functions_by_name)
    assert called(Shared) == ["fused_double_halve"]
    with pytest.raises(KeyError):
        ex["fused_double_halve"]


@pytest.mark.rule("OPT-2", "OPT-4")
def test_effects_keep_their_number_and_order() -> None:
    record: list[float] = []
    relaxpy.register_func("tests.default.note", lambda x: record.append(float(x[0])), override=True)

    Model = module("""
    @impure
    def main(x: f32[2]):
        a = R.add(x, x)
        _ = R.call_packed("tests.default.note", a, sinfo_args=R.Object)
        b = R.add(x, x)
        _ = R.call_packed("tests.default.note", a, sinfo_args=R.Object)
        c = R.negative(R.add(a, b))
        _ = R.call_packed("tests.default.note", c, sinfo_args=R.Object)
        return c
    """)

    relaxpy.compile(Model)["main"](np.array([1, 2], F))
    assert record == [2, 2, -4]


@pytest.mark.rule("OPT-11", "EV-2")
def test_results_share_no_memory() -> None:
    Model = module("""
    def main(x: f32[2, 3]):
        a, b = (R.exp(x), R.exp(x))
        c = R.reshape(x, (6,))
        d = R.permute_dims(x, (1, 0))
        return (a, b, c, d)
    """)

    x = floats(2, 3)
    results = relaxpy.compile(Model)["main"](x)
    for k, one in enumerate(results):
        assert not any(np.shares_memory(one, other) for other in (x, *results[:k]))


def test_a_second_compilation_of_the_result_changes_nothing_visible() -> None:
    mod = get_pipeline("default")(Shared)
    x = floats(4)
    np.testing.assert_array_equal(relaxpy.compile(mod)["main"](x), x)


@pytest.mark.rule("OPT-1", "OPT-10")
def test_local_functions_may_reshape_what_they_capture() -> None:
    Model = module("""
    def main(x: f32[2, 3]):
        y = R.exp(x)
        z = R.negative(y)
        def flat(w: f32[6]) -> f32[6]:
            return R.add(R.reshape(z, (6,)), w)
        return (z, flat(R.reshape(x, (6,))))
    """)

    x = floats(2, 3)
    for pipeline in ("default", "legalize"):
        z, found = relaxpy.compile(Model, relax_pipeline=pipeline)["main"](x)
        np.testing.assert_allclose(z, -np.exp(x), rtol=1e-6)
        np.testing.assert_allclose(found, (x - np.exp(x)).ravel(), rtol=1e-5, atol=1e-6)
