"""Gradient: the adjoint has the form that TVM's has, and the values of small differences."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, te
from relaxpy.errors import AssertionFailedError, MisuseError, TransformError, UnknownNameError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.transform import ConvertToDataflow, Gradient
from relaxpy.script import relax as R
from tests.ir.passes.before_after import leaves
from tests.ir.relax.graphs import built
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import changes, graph, module, pair

RANDOM = np.random.default_rng(0)


def assert_gradient(
    mod: IRModule, *inputs: Any, target: int | None = None, name: str = "main"
) -> None:
    """The adjoint returns what the function returns, and the derivatives by all inputs."""
    adjoint = relaxpy.compile(Gradient(name, target_index=target or 0)(mod))
    reference = relaxpy.compile(mod, target="reference")[name]
    function = relaxpy.compile(mod)[name]
    result, gradients = adjoint[f"{name}_adjoint"](*inputs)
    for found, expected in zip(leaves(result), leaves(reference(*inputs)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    arrays, found = leaves(inputs), leaves(gradients)
    assert [g.shape for g in found] == [a.shape for a in arrays]

    def value() -> float:
        out = function(*inputs)
        return float(out if target is None else out[target])

    for array, gradient in zip(arrays, found, strict=True):
        for index in np.ndindex(*array.shape):
            kept, step = array[index], 1e-6
            array[index] = kept + step
            above = value()
            array[index] = kept - step
            below = value()
            array[index] = kept
            np.testing.assert_allclose(
                gradient[index], (above - below) / (2 * step), rtol=1e-4, atol=1e-7
            )


def assert_adjoint(before: IRModule, after: IRModule, **options: Any) -> None:
    """The adjoint of `main` is the other function `main`, under its own name."""
    text = before.script()
    found = Gradient("main", **options)(before)
    expected = after["main"].with_attr("global_symbol", "main_adjoint")
    assert_structural_equal(found["main_adjoint"], expected)
    assert found["main"] is before["main"]
    assert before.script() == text
    assert relax.analysis.well_formed(found)


@pytest.mark.parametrize(
    ("before", "after"),
    changes("""
--- a sum
def main(x: f32[3, 3]):
    gv = R.sum(x)
-   return gv
+   gv_adjoint = R.ones(R.shape([]), "float32")
+   x_adjoint = R.broadcast_to(gv_adjoint, R.shape([3, 3]))
+   x_adjoint_out = x_adjoint
+   return (gv, (x_adjoint_out,))
--- variables bound to variables keep their bindings
def main(x: f32[3, 3]):
    lv1 = x
    lv2 = lv1
    gv = R.sum(lv2)
-   return gv
+   gv_adjoint = R.ones(R.shape([]), "float32")
+   lv2_adjoint = R.broadcast_to(gv_adjoint, R.shape([3, 3]))
+   lv1_adjoint = lv2_adjoint
+   x_adjoint = lv1_adjoint
+   x_adjoint_out = x_adjoint
+   return (gv, (x_adjoint_out,))
--- the gradients of several uses are added
def main(x: f32[3, 3]):
    lv = R.add(x, x)
    lv1 = R.add(lv, x)
    gv = R.sum(lv1)
-   return gv
+   gv_adjoint = R.ones(R.shape([]), "float32")
+   lv1_adjoint = R.broadcast_to(gv_adjoint, R.shape([3, 3]))
+   lv_adjoint = lv1_adjoint
+   x_adjoint = lv1_adjoint
+   x_adjoint1 = R.add(x_adjoint, lv_adjoint)
+   x_adjoint2 = R.add(x_adjoint1, lv_adjoint)
+   x_adjoint_out = x_adjoint2
+   return (gv, (x_adjoint_out,))
--- what the target does not depend on has zeros
def main(x: f32[n], y: f64[2, 3]):
    gv = R.sum(x)
    gv1 = R.exp(y)
-   return gv, gv1
+   gv_adjoint = R.ones(R.shape([]), "float32")
+   x_adjoint = R.broadcast_to(gv_adjoint, R.shape([n]))
+   x_adjoint_out = x_adjoint
+   y_adjoint = R.zeros(R.shape([2, 3]), "float64")
+   y_adjoint_out = y_adjoint
+   return ((gv, gv1), (x_adjoint_out, y_adjoint_out))
--- the adjoint of a tuple is a tuple
def main(t: R.Tuple(f32[3], f32[3]), y: f32[3]):
    first = t[0]
    pair = (first, y)
    lv = pair[0]
    lv1 = R.concat(pair)
    lv2 = R.sum(lv1)
    lv3 = R.sum(lv)
    gv = R.add(lv2, lv3)
-   return gv
+   gv_adjoint = R.ones(R.shape([]), "float32")
+   lv2_adjoint = gv_adjoint
+   lv3_adjoint = gv_adjoint
+   lv_adjoint = R.broadcast_to(lv3_adjoint, R.shape([3]))
+   lv1_adjoint = R.broadcast_to(lv2_adjoint, R.shape([6]))
+   # `lv` is bound before `lv1`, so the gradient of the concatenation comes first.
+   pair_adjoint = R.split(lv1_adjoint, [3])
+   left = pair_adjoint[0]
+   both = R.add(left, lv_adjoint)
+   right = pair_adjoint[1]
+   pair_adjoint1 = (both, right)
+   first_adjoint = pair_adjoint1[0]
+   y_adjoint = pair_adjoint1[1]
+   zeros = R.zeros(R.shape([3]), "float32")
+   t_adjoint = (first_adjoint, zeros)
+   t_adjoint_out = t_adjoint
+   y_adjoint_out = y_adjoint
+   return (gv, (t_adjoint_out, y_adjoint_out))
--- transpositions of products cancel
def main(x: f32[2, 3], w: f32[4, 3]):
    lv = R.permute_dims(w)
    lv1 = R.matmul(x, lv)
    gv = R.sum(lv1)
-   return gv
+   gv_adjoint = R.ones(R.shape([]), "float32")
+   lv1_adjoint = R.broadcast_to(gv_adjoint, R.shape([2, 4]))
+   x_adjoint = R.matmul(lv1_adjoint, w)
+   lv2 = R.permute_dims(lv1_adjoint, [1, 0])
+   w_adjoint = R.matmul(lv2, x)
+   x_adjoint_out = x_adjoint
+   w_adjoint_out = w_adjoint
+   return (gv, (x_adjoint_out, w_adjoint_out))
"""),
)
def test_adjoints(before: str, after: str) -> None:
    assert_adjoint(graph(before), graph(after))


#: Arguments for the programs below, by the shapes of the leaves of their parameters.
DIFFERENTIATED = """
--- tuples nest
def main(t: R.Tuple(f64[2, 3], R.Tuple(f64[3], f64[2])), y: f64[2, 3]):
    a = t[0]
    inner = t[1]
    b = inner[0]
    pair = (a, (b, y))
    c = pair[1]
    d = R.multiply(pair[0], c[1])
    halves = R.split(R.concat((d, y), axis=0), 2, axis=0)
    e = R.multiply(halves[0], R.exp(c[0]))
    gv = R.sum(R.add(e, halves[1]))
    return gv
=>
(((2, 3), ((3,), (2,))), (2, 3))
--- casts pass gradients through
def main(x: f64[n, 2], y: R.Tensor("float64", ndim=2)):
    m = T.int64()
    z = R.match_cast(y, f64[m, 2])
    gv = R.sum(R.multiply(R.sum(R.sin(z), axis=0), R.sum(x, axis=0)))
    return gv
=>
((3, 2), (4, 2))
--- a multilayer perceptron
def main(x: f64[n, 4], w1: f64[5, 4], b1: f64[5], w2: f64[5, 3], t: f64[n, 3]):
    h = R.nn.silu(R.add(R.matmul(x, R.permute_dims(w1)), b1))
    logits = R.nn.log_softmax(R.matmul(h, w2))
    gv = R.negative(R.mean(R.sum(R.multiply(logits, t), axis=1)))
    return gv
=>
((6, 4), (5, 4), (5,), (5, 3), (6, 3))
"""


def random(shape: Any) -> Any:
    """Random numbers of a shape, or of a tuple of shapes."""
    if shape and isinstance(shape[0], tuple):
        return tuple(map(random, shape))
    return RANDOM.standard_normal(shape)


@pytest.mark.parametrize(("program", "shapes"), changes(DIFFERENTIATED))
def test_gradients_are_those_of_small_differences(program: str, shapes: str) -> None:
    assert_gradient(graph(program), *random(eval(shapes)))


def test_of_tensors_joined_along_sizes_that_are_not_known() -> None:
    joined = graph("""
    def main(
        x: f32[k, m],
        a: f32[k, k],
        s: R.Shape(["j"]),
    ) -> f32:
        j = T.int64()
        y = R.add(x, x)
        z = R.multiply(a, a)
        w = R.broadcast_to(R.sum(z), (j, 2))
        b = R.concat((z, y, z), axis=1)
        c = R.concat((w, R.exp(w)), axis=0)
        gv = R.add(R.sum(R.multiply(b, b)), R.sum(c))
        return gv
    """)
    names = joined["main"].params[:2]
    mod = Gradient("main", require_grads=names)(joined)
    x, a = (RANDOM.standard_normal(shape).astype("float32") for shape in ((2, 3), (2, 2)))
    _, (dx, da) = relaxpy.compile(mod)["main_adjoint"](x, a, relaxpy.runtime.ShapeTuple((3,)))
    total = 6 + 6 * np.exp((a * a).sum())
    np.testing.assert_allclose(dx, 8 * x, rtol=1e-4)
    np.testing.assert_allclose(da, 8 * a**3 + 2 * a * total, rtol=1e-3)


def test_the_gradient_through_a_cast_has_the_sizes_of_the_source() -> None:
    renamed = graph("""
    def main(x: f64[n, 1], y: f64[1]):
        m = T.int64()
        a = R.multiply(x, y)
        pair = (a, x)
        b = R.match_cast(
            pair, R.Tuple(f64[m, 1], f64[m, 1])
        )
        gv = R.sum(R.multiply(b[0], b[1]))
        return gv
    """)
    adjoint = Gradient("main")(renamed)["main_adjoint"]
    gradients = adjoint.struct_info.ret.fields[1].fields
    assert [str(g) for g in gradients] == [str(p.struct_info) for p in adjoint.params]
    assert_gradient(renamed, RANDOM.standard_normal((3, 1)), RANDOM.standard_normal(1))


def test_one_of_several_results_is_the_target() -> None:
    two = graph("""
    def main(x: f64[3]):
        a = R.sum(R.square(x))
        b = R.mean(R.multiply(R.exp(x), a))
        return a, b
    """)
    assert_gradient(two, RANDOM.standard_normal(3), target=0)
    assert_gradient(two, RANDOM.standard_normal(3), target=1)
    with pytest.raises(TransformError, match="2 results, so target_index is not 2"):
        Gradient("main", target_index=2)(two)


PRODUCT, PRODUCT_BY_Y = pair(
    """
def main(x: f32[3], y: f32[3], k: i64[3]):
    lv = R.multiply(x, y)
    lv_1 = R.astype(k, "float32")
    lv1 = R.multiply(lv, lv_1)
    gv = R.sum(lv1)
-   return gv
+   gv_adjoint = R.ones(R.shape([]), "float32")
+   lv1_adjoint = R.broadcast_to(gv_adjoint, R.shape([3]))
+   lv_adjoint = R.multiply(lv1_adjoint, lv_1)
+   y_adjoint = R.multiply(lv_adjoint, x)
+   y_adjoint_out = y_adjoint
+   return (gv, (y_adjoint_out,))
""",
    graph,
)


def test_gradients_by_some_of_the_variables() -> None:
    y = PRODUCT["main"].params[1]
    assert_adjoint(PRODUCT, PRODUCT_BY_Y, require_grads=y)
    assert_adjoint(PRODUCT, PRODUCT_BY_Y, require_grads=[y])


def test_the_gradient_by_a_variable_inside() -> None:
    block = PRODUCT["main"].body.blocks[0]
    lv = block.bindings[0].var
    adjoint = relaxpy.compile(Gradient("main", require_grads=[lv])(PRODUCT))["main_adjoint"]
    x, y, k = np.ones(3, "float32"), np.ones(3, "float32"), np.arange(3)
    _, (found,) = adjoint(x, y, k)
    np.testing.assert_array_equal(found, [0, 1, 2])


def test_integers_have_no_gradient() -> None:
    with pytest.raises(TransformError, match=r"no gradient by k, which is R.Tensor.*int64"):
        Gradient("main")(PRODUCT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"require_grads": relax.Var("x", R.Tensor((3,), "float32"))}, "x of require_grads is not"),
        ({"require_grads": [PRODUCT["main"].params[0]] * 2}, "has x twice"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        Gradient("main", **options)(PRODUCT)


def test_unknown_functions() -> None:
    with pytest.raises(UnknownNameError, match="no function 'mian'") as caught:
        Gradient("mian")(PRODUCT)
    assert "main" in str(caught.value)


def test_the_target_is_a_float_of_rank_0() -> None:
    hints = {"R.exp(x)": "reduce it", 'R.sum(R.astype(x, "int32"))': "as by R.astype"}
    for value, hint in hints.items():
        mod = graph(f"def main(x: f32[3]):\n    gv = {value}\n    return gv")
        with pytest.raises(TransformError, match="is a float of rank 0") as caught:
            Gradient("main")(mod)
        assert hint in str(caught.value.diagnostic.hint)


def test_the_body_is_one_dataflow_block() -> None:
    Ordinary = module("""
    def main(x: f32[3]):
        gv = R.sum(x)
        return gv
    """)
    with pytest.raises(TransformError, match="not one DataflowBlock") as caught:
        Gradient("main")(Ordinary)
    assert "ConvertToDataflow" in str(caught.value)


def test_the_gradient_of_a_parameter_that_is_returned_is_1() -> None:
    assert_gradient(module("def main(x: R.Tensor((), 'float64')):\n    return x"), np.array(3.0))


def test_an_if_has_no_gradient() -> None:
    Branching = module("""
    def main(x: f32[3], c: R.Tensor((), "bool")):
        if c:
            y = R.sum(x)
        else:
            y = R.prod(x)
        return y
    """)
    for mod in (Branching, ConvertToDataflow(min_size=1)(Branching)):
        with pytest.raises(TransformError, match="an if in main has no gradient") as caught:
            Gradient("main")(mod)
        assert caught.value.diagnostic.hint == "compute both values, and choose by R.where"


def test_assertions_before_the_block_stay() -> None:
    Checked = module("""
    def main(x: f32[n]):
        R.func_attr({"relax.force_pure": True})
        R.assert_op(R.prim_value(n < 4), format="long")
        with R.dataflow():
            gv = R.sum(R.multiply(x, x))
            R.output(gv)
        return gv
    """)
    run = relaxpy.compile(Gradient("main")(Checked))["main_adjoint"]
    x = np.array([0, 1, 2], "float32")
    _, (gradient,) = run(x)
    np.testing.assert_array_equal(gradient, 2 * x)
    with pytest.raises(AssertionFailedError, match="long"):
        run(np.ones(4, "float32"))


def test_what_has_no_gradient_is_named() -> None:
    Calls = graph("""
    @private
    def inner(x: f32[3]):
        return R.exp(x)

    def main(x: f32[3], y: f32[3]):
        lv = cls.inner(x)
        gv = R.sum(R.multiply(lv, y))
        return gv
    """)
    with pytest.raises(
        TransformError, match="call of inner, which lv of main is bound to"
    ) as caught:
        Gradient("main")(Calls)
    assert caught.value.diagnostic.span is not None
    # The gradient by y does not pass through the call.
    found = Gradient("main", require_grads=Calls["main"].params[1])(Calls)
    x = np.array([0, 1, 2], "float32")
    _, (gradient,) = relaxpy.compile(found)["main_adjoint"](x, x)
    np.testing.assert_allclose(gradient, np.exp(x), rtol=1e-6)


def test_no_grad_stops_gradients() -> None:
    stopped = graph("""
    def main(x: f32[3], y: f32[3]):
        lv = R.grad.no_grad(R.multiply(x, y))
        gv = R.sum(R.multiply(lv, y))
        return gv
    """)
    x, y = np.array([1, 2, 3], "float32"), np.array([4, 5, 6], "float32")
    _, (by_x, by_y) = relaxpy.compile(Gradient("main")(stopped))["main_adjoint"](x, y)
    np.testing.assert_array_equal(by_x, np.zeros(3))
    np.testing.assert_array_equal(by_y, x * y)


CHECKPOINTED = graph("""
def main(x: f64[3], y: f64[3]):
    a = R.exp(x)
    b = R.grad.start_checkpoint(a)
    c = R.sin(b)
    d = R.multiply(c, y)
    e = R.cos(d)
    f = R.grad.end_checkpoint(e)
    g = R.exp(f)
    gv = R.sum(g)
    return gv
""")


def test_values_between_checkpoints_are_computed_again() -> None:
    adjoint = Gradient("main")(CHECKPOINTED)["main_adjoint"]
    bindings = adjoint.body.blocks[0].bindings
    names = [b.var.name_hint for b in bindings if b.var is not None]
    assert names[:7] == ["a", "c", "d", "e", "g", "gv", "gv_adjoint"]
    assert [name for name in names if name.endswith("_cp")] == ["c_cp", "d_cp"]
    again = names.index("c_cp")
    used = {var.name_hint for b in bindings[again:] for var in relax.analysis.all_vars(b.value)}
    assert not used & {"c", "d"}
    x, y = RANDOM.standard_normal((2, 3))
    assert_gradient(CHECKPOINTED, x, y)


CONSECUTIVE_SECTIONS = graph("""
def main(x: f64[3]):
    a = R.grad.start_checkpoint(x)
    b = R.sin(a)
    c = R.cos(b)
    d = R.grad.end_checkpoint(c)
    e = R.grad.start_checkpoint(d)
    f = R.cos(e)
    g = R.exp(f)
    h = R.grad.end_checkpoint(g)
    gv = R.sum(h)
    return gv
""")


def test_each_of_consecutive_sections_is_computed_again_by_itself() -> None:
    adjoint = Gradient("main")(CONSECUTIVE_SECTIONS)["main_adjoint"]
    bindings = adjoint.body.blocks[0].bindings
    values = {b.var.name_hint: str(b.value) for b in bindings}
    copies = [name for name in values if name.endswith("_cp")]
    assert copies == ["f_cp", "g_cp", "b_cp"]
    assert values["f_cp"] == "R.cos(c)"
    assert_gradient(CONSECUTIVE_SECTIONS, RANDOM.standard_normal(3))


def test_the_gradient_by_a_checkpoint_is_that_of_its_source_without_other_uses() -> None:
    before = graph("""
    def main(x: f32[3, 3]):
        lv = R.grad.start_checkpoint(x)
        lv1 = R.multiply(lv, lv)
        lv2 = R.multiply(lv1, lv)
        lv3 = R.grad.end_checkpoint(lv2)
        gv = R.sum(lv3)
        return gv
    """)
    after = graph("""
    def main(x: f32[3, 3]):
        lv1 = R.multiply(x, x)
        lv2 = R.multiply(lv1, x)
        gv = R.sum(lv2)
        gv_adjoint = R.ones(R.shape([]), "float32")
        lv2_adjoint = R.broadcast_to(gv_adjoint, R.shape([3, 3]))
        lv2_adjoint_out = lv2_adjoint
        return (gv, (lv2_adjoint_out,))
    """)
    assert_adjoint(before, after, require_grads=before["main"].body.blocks[0].bindings[3].var)


def test_other_uses_of_the_source_do_not_count_for_a_checkpoint() -> None:
    shared = graph("""
    def main(x: f64):
        first = R.grad.start_checkpoint(x)
        second = R.grad.end_checkpoint(first)
        gv = R.multiply(R.exp(x), second)
        last = R.grad.end_checkpoint(gv)
        return gv, last
    """)
    bindings = shared["main"].body.blocks[0].bindings
    known = {b.var.name_hint: b.var for b in bindings}
    wanted = [known[name] for name in ("first", "second", "last", "gv")]
    for target, of_last in ((0, 0.0), (1, 1.0)):
        adjoint = relaxpy.compile(Gradient("main", wanted, target)(shared))["main_adjoint"]
        _, gradients = adjoint(np.array(2.0))
        np.testing.assert_allclose(gradients, [np.exp(2.0), np.exp(2.0), of_last, 1], rtol=1e-9)


def test_a_checkpoint_may_be_of_a_constant() -> None:
    """As passes and `bind_params` put constants in place of variables."""
    mod = graph("""
    def main(x: f64[2], weight: f64[2], end: f64[2]):
        first = R.grad.start_checkpoint(weight)
        gv = R.sin(R.multiply(x, first))
        second = R.grad.end_checkpoint(gv)
        third = R.grad.end_checkpoint(end)
        result = R.sum(R.multiply(second, third))
        return result
    """)
    x, weight, end = RANDOM.random((3, 2))
    mod["main"] = mod["main"].bind_params({"weight": weight, "end": end})
    assert_gradient(mod, x)
    wanted = [mod["main"].params[0], mod["main"].body.blocks[0].bindings[0].var]
    _, gradients = relaxpy.compile(Gradient("main", wanted)(mod))["main_adjoint"](x)
    slope = np.cos(x * weight) * end
    np.testing.assert_allclose(gradients, [slope * weight, slope * x], rtol=1e-9)


def test_checkpoints_of_long_chains_are_computed_again_without_recursion() -> None:
    def chain(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        value = builder.emit(relax.op.grad.start_checkpoint(x))
        for _ in range(3000):
            value = builder.emit(relax.op.sin(value))
        return relax.op.sum(builder.emit(relax.op.grad.end_checkpoint(value)))

    adjoint = Gradient("main")(built(chain, tensor(2, dtype="float64")))["main_adjoint"]
    copies = [b for b in adjoint.body.blocks[0].bindings if b.var.name_hint.startswith("lv")]
    assert len(copies) > 6000


@pytest.mark.parametrize(("out_dtype", "casts"), [("float32", 0), ("float64", 2)])
def test_gradients_of_products_are_cast_to_other_datatypes_only(out_dtype: str, casts: int) -> None:
    mod = graph(f"""
    def main(x: f32[3, 3], y: f32[3, 3]):
        product = R.matmul(x, y, out_dtype="{out_dtype}")
        result = R.sum(product)
        return result
    """)
    text = Gradient("main")(mod)["main_adjoint"].script()
    assert text.count("R.astype") == casts


def test_gradients_of_kernels() -> None:
    @relax.training.utils.register_te_gradient("tests.scaled_product")
    def scaled_product_grad(
        grad: te.Tensor, a: te.Tensor, b: te.Tensor, factor: float
    ) -> list[te.Tensor]:
        return [
            te.compute(a.shape, lambda i: grad[i] * b[i] * factor),
            te.compute(a.shape, lambda i: grad[i] * a[i] * factor),
        ]

    def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda i: a[i] * b[i] * 3.0)

    def body(builder: relax.BlockBuilder, *xs: relax.Var) -> relax.Expr:
        options = {"te_grad_name": "tests.scaled_product", "te_grad_kwargs": {"factor": 3.0}}
        lv = builder.emit_te_with_grad(product, *xs, **options)
        return relax.op.sum(relax.op.sin(lv))

    mod = built(body, *[tensor(4, dtype="float64")] * 2)
    assert_gradient(mod, *RANDOM.standard_normal((2, 4)))
    adjoint = Gradient("main")(mod)
    assert "call_tir_with_grad" not in adjoint["main_adjoint"].script()
    bindings = adjoint["main_adjoint"].body.blocks[0].bindings
    fields = [b.var.name_hint for b in bindings if isinstance(b.value, relax.TupleGetItem)]
    assert fields == ["x0_adjoint", "x1_adjoint"]
    assert "call_tir_with_grad" in adjoint["main"].script()


def scaled(gradient: str, *sinfos: relax.StructInfo) -> IRModule:
    """The sum of a kernel that multiplies its inputs, with the gradient of this name."""

    def product(*factors: te.Tensor) -> te.Tensor:
        def element(i: Any) -> Any:
            values = [factor[i].astype("float64") for factor in factors]
            return values[0] * values[-1]

        return te.compute(factors[0].shape, element, name="product")

    def body(builder: relax.BlockBuilder, *xs: relax.Var) -> relax.Expr:
        return relax.op.sum(builder.emit_te_with_grad(product, *xs, te_grad_name=gradient))

    return built(body, *sinfos)


def test_the_gradient_of_a_kernel_that_is_not_registered() -> None:
    with pytest.raises(UnknownNameError, match="a kernel is registered as"):
        Gradient("main")(scaled("tests.unknown_gradient", tensor(4, dtype="float64")))


def test_the_gradient_of_a_kernel_with_one_input_is_a_tensor_or_a_list_of_it() -> None:
    def square_grad(grad: te.Tensor, a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda i: grad[i] * a[i] * 2.0, name="square_grad")

    relax.training.utils.register_te_gradient("tests.square", square_grad)
    listed = relax.training.utils.register_te_gradient(
        "tests.square_list", lambda grad, a: [square_grad(grad, a)]
    )
    assert callable(listed)
    x = tensor(4, dtype="float64")
    mod = scaled("tests.square_list", x)
    assert_gradient(mod, RANDOM.standard_normal(4))
    found = Gradient("main")(mod)["main_adjoint"]
    plain = Gradient("main")(scaled("tests.square", x))["main_adjoint"]
    assert [b.value.struct_info for b in found.body.blocks[0].bindings] == [
        b.value.struct_info for b in plain.body.blocks[0].bindings
    ]


def test_integer_inputs_of_kernels_have_no_gradient() -> None:
    @relax.training.utils.register_te_gradient("tests.by_integers")
    def by_integers(grad: te.Tensor, a: te.Tensor, k: te.Tensor) -> list[te.Tensor]:
        return [
            te.compute(a.shape, lambda i: grad[i] * k[i].astype("float64")),
            te.compute(a.shape, lambda i: grad[i] * a[i]),
        ]

    mod = scaled("tests.by_integers", tensor(3, dtype="float64"), tensor(3, dtype="int64"))
    adjoint = relaxpy.compile(Gradient("main", mod["main"].params[0])(mod))
    _, (gradient,) = adjoint["main_adjoint"](np.ones(3), np.arange(3))
    np.testing.assert_array_equal(gradient, [0, 1, 2])


def test_a_gradient_of_a_kernel_fits_its_inputs() -> None:
    def first(grad: te.Tensor, a: te.Tensor) -> te.Tensor:
        return te.compute((1,), lambda i: grad[i])

    def narrow(grad: te.Tensor, a: te.Tensor) -> te.Tensor:
        return te.compute(a.shape, lambda i: grad[i].astype("float32"))

    x = tensor(4, dtype="float64")
    for function in (first, narrow):
        relax.training.utils.register_te_gradient("tests.misfit", function)
        with pytest.raises(MisuseError, match=r"'tests.misfit' returns .* for input 0, which is"):
            Gradient("main")(scaled("tests.misfit", x))


def test_a_private_function_has_a_private_adjoint() -> None:
    Private = graph("""
    def other(x: f32[3]):
        return x

    @private
    def main(x: f32[3]):
        gv = R.sum(x)
        return gv
    """)
    assert "global_symbol" not in Gradient("main")(Private)["main_adjoint"].attrs


def test_bindings_have_the_order_of_tvm() -> None:
    """Operands of all gradients precede these, and fields of an adjoint what is added to them."""

    module = graph("""
    def main(x: f32[4], y: f32[4]):
        a = R.divide(x, y)
        pair = (a, a)
        b = R.concat(pair)
        c = R.concat(pair)
        d = R.sum(R.multiply(b, c))
        return d
    """)
    bindings = Gradient("main")(module)["main_adjoint"].body.blocks[0].bindings
    names = [
        value.op.name.removeprefix("relax.")
        if isinstance(value, relax.Call)
        else type(value).__name__
        for value in (binding.value for binding in bindings)
    ]
    split = names.index("split")
    assert names[split:-2] == [
        *("split", "TupleGetItem", "split", "TupleGetItem", "add"),
        *("TupleGetItem", "TupleGetItem", "add", "Tuple", "TupleGetItem", "TupleGetItem", "add"),
        *("negative", "multiply", "divide", "divide"),
    ]


def test_the_gradient_of_relu_does_not_keep_the_operand() -> None:
    before = graph("""
    def main(x: f64[3]):
        y = R.sin(x)
        z = R.nn.relu(y)
        gv = R.sum(z)
        return gv
    """)
    bindings = Gradient("main")(before)["main_adjoint"].body.blocks[0].bindings
    y = next(b.var for b in bindings if b.var.name_hint == "y")
    calls = [b.value for b in bindings if isinstance(b.value, relax.Call)]
    assert [call.op.name for call in calls if y in call.args] == ["relax.nn.relu"]
