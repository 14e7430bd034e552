"""ToMixedPrecision: contractions in float16, and what follows them."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.analysis import well_formed
from relaxpy.relax.transform import ToMixedPrecision
from relaxpy.script import from_source
from tests.ir.relax.texts import graph, module, pair

RANDOM = np.random.default_rng(0)


def assert_mixed(before: IRModule, after: IRModule, *shapes: Any, **options: Any) -> None:
    """The module after the pass has this form, and nearly the values of the module before."""
    step = ToMixedPrecision(**options)
    text = before.script()
    found = step(before)
    assert_structural_equal(found, after)
    assert before.script() == text
    assert well_formed(found)
    inputs = [RANDOM.uniform(-1, 1, shape).astype("float32") for shape in shapes]
    expected = relaxpy.compile(before)["main"](*inputs)
    for target in ("numpy", "reference"):
        actual = relaxpy.compile(found, target=target)["main"](*inputs)
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=2e-2, atol=2e-2)


def test_results_of_the_block_keep_their_datatype() -> None:
    before = graph("""
    def main(x: R.Tensor((1, 2, 5, 5), "float32"), w: R.Tensor((3, 2, 3, 3), "float32")):
        gv = R.nn.conv2d(x, w, out_dtype="float32")
        return gv
    """)
    sums32, sums16 = pair(
        """
    def main(x: R.Tensor((1, 2, 5, 5), "float32"), w: R.Tensor((3, 2, 3, 3), "float32")):
        lv = R.astype(x, "float16")
        lv1 = R.astype(w, "float16")
    -   gv = R.nn.conv2d(lv, lv1, out_dtype="float32")
    +   lv2 = R.nn.conv2d(lv, lv1, out_dtype="float16")
    +   gv = R.astype(lv2, "float32")
        return gv
    """,
        graph,
    )

    shapes = ((1, 2, 5, 5), (3, 2, 3, 3))
    assert_mixed(before, sums32, *shapes)
    assert_mixed(before, sums16, *shapes, out_dtype="float16")


def test_what_follows_stays_narrow_unless_an_operand_is_wide() -> None:
    before, after = pair(
        """
    def main(x: f32[2, 3], w: f32[3, 4], b: f32[4]):
    -   lv = R.matmul(x, w, out_dtype="float32")
    -   lv1 = R.multiply(lv, R.const(0.5, "float32"))
    +   x1 = R.astype(x, "float16")
    +   w1 = R.astype(w, "float16")
    +   sums = R.matmul(x1, w1, out_dtype="float32")
    +   lv = R.astype(sums, "float16")
    +   half = R.astype(R.const(0.5, "float32"), "float16")
    +   lv1 = R.multiply(lv, half)
        lv2 = R.nn.relu(lv1)
    -   lv3 = R.add(lv2, b)
    +   wide = R.astype(lv2, "float32")
    +   lv3 = R.add(wide, b)
        lv4 = R.nn.softmax(lv3)
    -   lv5 = R.matmul(lv4, R.const([[1, 1]] * 4, "float32"), out_dtype="float32")
    -   gv = R.nn.relu(lv5)
    +   narrow = R.astype(lv4, "float16")
    +   ones = R.astype(R.const([[1, 1]] * 4, "float32"), "float16")
    +   sums1 = R.matmul(narrow, ones, out_dtype="float32")
    +   lv5 = R.astype(sums1, "float16")
    +   lv6 = R.nn.relu(lv5)
    +   gv = R.astype(lv6, "float32")
        return gv
    """,
        graph,
    )
    assert_mixed(before, after, (2, 3), (3, 4), (4,))


@pytest.mark.parametrize(
    ("line", "follows"),
    [
        ('R.multiply(lv, R.const(65536.0, "float32"))', False),
        ('R.multiply(lv, R.const(65504.0, "float32"))', True),
        ('R.add(lv, R.const(1e-8, "float32"))', False),
        ('R.add(lv, R.const(1e-5, "float32"))', False),
        ('R.add(lv, R.const(0.0, "float32"))', True),
        ('R.add(lv, R.const([1.0, 1e-6, 0.0, 2.0], "float32"))', True),
        ('R.add(lv, R.const([1.0, 1e-9, 0.0, 2.0], "float32"))', False),
        ('R.power(lv, R.const(3.0, "float32"))', False),
        ("R.exp(lv)", False),
    ],
)
def test_constants_out_of_range_and_functions_that_leave_it_stay_wide(line, follows) -> None:
    mod = from_source(f"""
@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w, out_dtype="float32")
            gv = {line}
            R.output(gv)
        return gv
""")
    calls = [b.value for b in ToMixedPrecision()(mod)["main"].body.blocks[0].bindings]
    name = line.split("(")[0].replace("R.", "relax.")
    [call] = [c for c in calls if c.op.name == name]
    assert (call.struct_info.dtype == "float16") is follows


def test_a_product_with_another_datatype_stays() -> None:
    mod = graph("""
    def main(x: f32[2, 3], w: f32[3, 4]):
        gv = R.matmul(x, w, out_dtype="float64")
        return gv
    """)
    assert ToMixedPrecision()(mod) is mod


def test_tuples() -> None:
    before = graph("""
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((2, 3), "float32")):
        pair = R.split(x, 2, axis=1)
        left = pair[0]
        lv = R.matmul(left, w, out_dtype="float32")
        lv1 = R.matmul(pair[1], w, out_dtype="float32")
        both = (lv, lv1)
        lv2 = both[0]
        gv = R.concat((lv2, lv1), axis=0)
        return gv
    """)
    found = ToMixedPrecision()(before)
    assert well_formed(found)
    x, w = RANDOM.uniform(-1, 1, (2, 4)), RANDOM.uniform(-1, 1, (2, 3))
    inputs = [x.astype("float32"), w.astype("float32")]
    expected = relaxpy.compile(before)["main"](*inputs)
    for target in ("numpy", "reference"):
        actual = relaxpy.compile(found, target=target)["main"](*inputs)
        np.testing.assert_allclose(actual, expected, rtol=1e-2, atol=1e-2)
    dtypes = {
        str(b.var.struct_info.dtype)
        for b in found["main"].body.blocks[0].bindings
        if isinstance(b.var.struct_info, relaxpy.relax.TensorStructInfo)
    }
    assert dtypes == {"float16", "float32"}


def test_aliases_and_stored_parameters_stay_narrow_until_the_result() -> None:
    before, after = pair(
        """
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float16")):
    -   lv = R.wrap_param(w, dtype="float32")
    +   x1 = R.astype(x, "float16")
    +   lv = w
        lv1 = lv
    -   lv2 = R.matmul(x, lv1, out_dtype="float32")
    +   sums = R.matmul(x1, lv1, out_dtype="float32")
    +   lv2 = R.astype(sums, "float16")
        lv3 = R.nn.relu(lv2)
    -   gv = lv3
    +   gv = R.astype(lv3, "float32")
        return gv
    """,
        graph,
    )

    assert_structural_equal(ToMixedPrecision()(before), after)


def test_parameters_of_local_functions_keep_their_datatype() -> None:
    Local = module("""
    def main(x: f32[2, 2]):
        def inner(a: f32[2, 2]) -> f32[2, 2]:
            with R.dataflow():
                y = R.matmul(a, a)
            return y
        z = inner(x)
        return z
    """)
    found = ToMixedPrecision(fp16_input_names=["a"])(Local)
    assert_structural_equal(found, ToMixedPrecision()(Local))


def test_results_in_tuples_are_not_rounded() -> None:
    Both = graph("""
    def main(x: f32[2, 2]):
        s = R.nn.softmax(x)
        y = R.matmul(s, s)
        alone = s
        both = (s, y)
        return (alone, both)
    """)
    x = RANDOM.uniform(-1, 1, (2, 2)).astype("float32")
    exact, (_, products) = relaxpy.compile(Both)["main"](x)
    for target in ("numpy", "reference"):
        alone, both = relaxpy.compile(ToMixedPrecision()(Both), target=target)["main"](x)
        np.testing.assert_allclose(alone, exact, rtol=1e-6)
        np.testing.assert_allclose(both[0], exact, rtol=1e-6)
        np.testing.assert_allclose(both[1], products, rtol=1e-2)


Unchanged = module("""
def main(x: f64[2, 3], w: f64[3, 4], k: i8[3]):
    with R.dataflow():
        lv = R.matmul(x, w)
        lv1 = R.matmul(k, k)
        gv = R.nn.softmax(lv)
    return (gv, lv1)

def outside(x: f32[2, 3], w: f32[3, 4]):
    y = R.matmul(x, w)
    return y
""")


def test_other_datatypes_and_code_outside_of_blocks_stay() -> None:
    assert ToMixedPrecision()(Unchanged) is Unchanged


def test_parameters_of_these_names_become_narrow() -> None:
    Before = module("""
    def main(x: f32[2, 3], w: f32[3, 4]):
        with R.dataflow():
            gv = R.matmul(x, w, out_dtype="float32")
        total = R.sum(w)
        return (gv, total)
    """)
    After = module("""
    def main(x: f32[2, 3], w: f16[3, 4]):
        w1 = R.astype(w, "float32")
        with R.dataflow():
            lv = R.astype(x, "float16")
            gv = R.matmul(lv, w, out_dtype="float32")
        total = R.sum(w1)
        return (gv, total)
    """)
    found = ToMixedPrecision(fp16_input_names=["w"])(Before)
    assert_structural_equal(found, After)
    assert well_formed(found)


def test_parameters_of_functions_that_are_called_keep_their_datatypes() -> None:
    Before = graph("""
    @private
    def double(w: f32[2, 2]) -> f32[2, 2]:
        y = R.matmul(w, w)
        return y

    def public(w: f32[2, 2]) -> f32[2, 2]:
        y = R.matmul(w, w)
        return y

    def main(x: f32[2, 2], w: f32[2, 2]):
        a = cls.double(x)
        b = cls.public(a)
        z = R.add(b, w)
        return z
    """)
    found = ToMixedPrecision(fp16_input_names=["w"])(Before)
    assert well_formed(found)
    plain = ToMixedPrecision()(Before)
    for name in ("double", "public"):
        assert_structural_equal(found[name], plain[name])
    assert [p.struct_info.dtype for p in found["main"].params] == ["float32", "float16"]
    x, w = (RANDOM.integers(-3, 4, (2, 2)).astype(dtype) for dtype in ("float32", "float16"))
    result = relaxpy.compile(found)["main"](x, w)
    np.testing.assert_array_equal(result, x @ x @ (x @ x) + w)


def test_a_declared_result_becomes_that_of_the_body() -> None:
    Before = graph("""
    def main(x: f32[2, 3], w: f32[3, 4]) -> R.Tensor(dtype="float32", ndim=2):
        y = R.matmul(x, w)
        return y

    def same(x: f32[2, 3]) -> R.Tensor(dtype="float32", ndim=2):
        return x
    """)
    expected = relax.TensorStructInfo((2, 4), "float32")
    after = relax.transform.ToMixedPrecision()(Before)
    assert after["main"].ret_struct_info == expected
    assert after["same"] is Before["same"]
