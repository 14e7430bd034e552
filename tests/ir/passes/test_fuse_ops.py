"""FuseOps: which kernels are grouped, into which functions, and what stays as it is."""

import re
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import AnnotateTIROpPattern, FuseOps, LegalizeOps
from relaxpy.transform import PassContext
from tests.ir.passes.before_after import agree, same_values, stays
from tests.ir.relax import texts
from tests.ir.relax.texts import changes, graph


def grouped(before: str, after: str) -> str:
    """The text after the pass, in which groups may name the bindings before it that they hold."""
    lines = {line.split()[0]: line for line in before.splitlines() if line.startswith("    ")}

    def body(names: re.Match[str]) -> str:
        held = re.findall(r"\w+", names[0])
        return "\n".join([*(lines[name] for name in held), f"    return {held[-1]}"])

    return re.sub(r"(?m)(?<=:\n) {4}\w+(, \w+)*$", body, after)


def ready(text: str) -> IRModule:
    """The kernels of a program with their patterns; `@group` marks the function of a group."""
    primitive = r'@private\n\1    R.func_attr({"Primitive": True})\n'
    text = re.sub(r"@group\n(def .*\n)", primitive, text)
    return AnnotateTIROpPattern()(LegalizeOps()(graph(text)))


def check(before: IRModule, after: IRModule, *args: Any) -> None:
    actual = FuseOps()(before)
    assert_structural_equal(actual, after)
    assert check_well_formed(actual, normal_form=True) == []
    assert FuseOps()(actual) is actual
    if args:
        agree(before, actual, *args)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


GROUPS = changes("""
--- elementwise kernels become one function with their constants as parameters
def main(x: f32[10, 20]):
    a = R.add(x, R.const([[1.0]], "float32"))
    b = R.exp(a)
    c = R.squeeze(b)
    return c
=>
    c = cls.fused_add_tir_exp_squeeze(x, R.const([[1.0]], "float32"))
    return c

@group
def fused_add_tir_exp_squeeze(x: f32[10, 20], y: f32[1, 1]):
    a = R.add(x, y)
    b = R.exp(a)
    c = R.squeeze(b)
    return c
--- a convolution takes the elementwise kernels after it only
def main(x: f32[1, 2, 5, 4], y: f32, u: f32[2, 2, 3, 3], v: f32[2, 2, 1, 1], w: f32[2, 2, 3, 3]):
    a = R.add(x, y)
    b = R.nn.conv2d(a, u, padding=1)
    c = R.add(y, b)
    d = R.add(b, c)
    e = R.nn.conv2d(d, v)
    f = R.nn.conv2d(d, w, padding=1)
    g = R.add(e, f)
    return g
=>
    a = R.add(x, y)
    d = cls.fused_conv2d_add1_add2(a, u, y)
    f = R.nn.conv2d(d, w, padding=1)
    g = cls.fused_conv2d1_add2(d, v, f)
    return g

@group
def fused_conv2d_add1_add2(a: f32[1, 2, 5, 4], u: f32[2, 2, 3, 3], y: f32):
    b, c, d

@group
def fused_conv2d1_add2(d: f32[1, 2, 5, 4], v: f32[2, 2, 1, 1], f: f32[1, 2, 5, 4]):
    e, g
--- a concatenation takes what it joins
def main(x: f32[1, 4, 8, 8], w: f32[4, 4, 3, 3], y: f32):
    a = R.nn.conv2d(x, w, strides=2, padding=1)
    b = R.image.resize2d(a, (8, 8), method="nearest_neighbor")
    c = R.concat((b, x), axis=1)
    d = R.add(c, y)
    return d
=>
    a = R.nn.conv2d(x, w, strides=2, padding=1)
    d = cls.fused_resize2d_concatenate_add(a, x, y)
    return d

@group
def fused_resize2d_concatenate_add(a: f32[1, 4, 4, 4], x: f32[1, 4, 8, 8], y: f32):
    b, c, d
--- a tuple of a split is inside of the function
def main(x: f32[1, 10], w: f32[10, 30]):
    a = R.matmul(x, w)
    t = R.split(a, 3, axis=1)
    b = t[0]
    c = R.sigmoid(b)
    d = t[1]
    e = R.tanh(d)
    f = R.multiply(e, e)
    g = R.add(c, f)
    return g
=>
    a = R.matmul(x, w)
    g = cls.fused_split_tir_sigmoid_tir_tanh_multiply_add(a)
    return g

@group
def fused_split_tir_sigmoid_tir_tanh_multiply_add(a: f32[1, 30]):
    t, b, c, d, e, f, g
--- a field of a split is a function of its own
def main(x: f32[1, 30], w: f32[10, 10]):
    t = R.split(x, 3, axis=1)
    a = t[0]
    b = R.matmul(a, w)
    return b
=>
    a = cls.fused_split(x)
    b = R.matmul(a, w)
    return b

@group
def fused_split(x: f32[1, 30]):
    t, a
--- equal groups share one function
def main(x: f32[4, 4], v: f32[4, 4], w: f32[4, 4]):
    a = R.matmul(x, v)
    b = R.nn.relu(a)
    c = R.matmul(b, w)
    d = R.nn.relu(c)
    return d
=>
    b = cls.fused_matmul_relu(x, v)
    d = cls.fused_matmul_relu(b, w)
    return d

@group
def fused_matmul_relu(x: f32[4, 4], v: f32[4, 4]):
    a, b
--- parallel injective kernels are fused
def main(x: f32[10, 20], y: f32):
    a = R.add(x, y)
    b = R.squeeze(a)
    c = R.permute_dims(a, [1, 0])
    d = R.permute_dims(c, [1, 0])
    e = R.multiply(b, d)
    return e
=>
    e = cls.fused_add_squeeze_transpose_transpose1_multiply(x, y)
    return e

@group
def fused_add_squeeze_transpose_transpose1_multiply(x: f32[10, 20], y: f32):
    a, b, c, d, e
--- a softmax takes the cast after it
def main(x: f32[16, 16]):
    a = R.nn.softmax(x)
    b = R.astype(a, "float16")
    return b
=>
    b = cls.fused_softmax_cast(x)
    return b

@group
def fused_softmax_cast(x: f32[16, 16]):
    a, b
--- a tuple can be the result
def main(x: f32[4, 8], y: f32[4, 4]):
    a = R.exp(x)
    t = R.split(a, 2, axis=1)
    b = t[0]
    c = t[1]
    d = R.matmul(c, y)
    e = R.matmul(b, d)
    return e
=>
    t = cls.fused_tir_exp_split(x)
    b = t[0]
    c = t[1]
    d = R.matmul(c, y)
    e = R.matmul(b, d)
    return e

@group
def fused_tir_exp_split(x: f32[4, 8]):
    a, t
--- items of tuple parameters and aliases stay outside
def main(x: R.Tuple(f32[2], f32[2])):
    y = x[0]
    a = R.exp(y)
    b = R.tanh(a)
    c = b
    return c
=>
    y = x[0]
    b = cls.fused_tir_exp_tir_tanh(y)
    c = b
    return c

@group
def fused_tir_exp_tir_tanh(y: f32[2]):
    a, b
""")


@pytest.mark.parametrize(("before", "after"), GROUPS)
def test_a_group_is_a_function(before: str, after: str) -> None:
    check(ready(before), ready(grouped(before, after)))
    same_values(ready(before), FuseOps()(ready(before)), "numpy", "reference")


def repeated(count: int) -> str:
    lines = "".join(f"    x{k + 1} = R.exp(x{k})\n" for k in range(count))
    return f"def main(x0: f32[4]):\n{lines}    return x{count}"


def test_kernels_without_a_pattern_and_level_0_leave_the_module() -> None:
    stays(FuseOps(fuse_opt_level=0), ready(repeated(2)))
    with PassContext(opt_level=0):
        stays(FuseOps(), ready(repeated(2)))
    stays(FuseOps(), LegalizeOps()(graph(repeated(2))))


def test_the_option_limits_the_size_of_a_group() -> None:
    with PassContext(config={"relax.FuseOps.max_depth": 2}):
        after = FuseOps()(ready(repeated(6)))
    (block,) = after["main"].body.blocks
    assert len(block.bindings) == 3
    assert set(after.functions_by_name) == {"main", "tir_exp", "fused_tir_exp_tir_exp"}


def test_shape_variables_that_no_parameter_defines_are_passed() -> None:
    module = graph("""
    def main(s: R.Shape(("n",))):
        n = T.int64()
        a = R.full((n, n), R.const(2, "float32"), "float32")
        b = R.triu(a, 1)
        c = R.broadcast_to(b, (1, 1, n, n))
        return c
    """)
    before = AnnotateTIROpPattern()(LegalizeOps()(module))
    after = FuseOps()(before)
    fused = after["fused_full_triu_broadcast_to"]
    assert [str(param.struct_info) for param in fused.params][-1] == "R.Shape([n])"
    for target in ("numpy", "reference"):
        actual = relaxpy.compile(after, target=target)["main"](relaxpy.runtime.ShapeTuple((3,)))
        np.testing.assert_array_equal(actual, np.triu(np.full((1, 1, 3, 3), 2, "float32"), 1))


def test_shape_variables_of_parameters_are_not_passed_again() -> None:
    module = graph("""
    def main(x: R.Tensor(("n", "m"), "float32")):
        a = R.exp(x)
        b = R.tanh(a)
        return b
    """)
    after = FuseOps()(AnnotateTIROpPattern()(LegalizeOps()(module)))
    assert len(after["fused_tir_exp_tir_tanh"].params) == 1
    x = array(2, 3)
    np.testing.assert_allclose(
        relaxpy.compile(after)["main"](x), np.tanh(np.exp(x)), rtol=1e-6, atol=0
    )


def test_a_group_that_nothing_uses_is_removed() -> None:
    module = graph("""
    def main(x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        b = R.tanh(a)
        c = R.abs(x)
        return c
    """)
    after = FuseOps()(AnnotateTIROpPattern()(LegalizeOps()(module)))
    (block,) = after["main"].body.blocks
    assert len(block.bindings) == 1


def test_mutations_stay_in_order() -> None:
    """x is read before it is overwritten, and the reader is not in the group."""

    Module = texts.graph("""
    @kernel
    def exp_inplace(a: f32[4]):
        T.func_attr({"op_pattern": 0})
        for i in S(4, "A"):
            a[vi] = T.exp(a[vi])

    @kernel
    def twice(a: f32[4], b: f32[4]):
        T.func_attr({"op_pattern": 0})
        for i in S(4, "B"):
            b[vi] = a[vi] + a[vi]

    @kernel
    def total(a: f32[4], b: f32):
        T.func_attr({"op_pattern": 3})
        for i in R(4, "B"):
            with T.init():
                b[()] = T.float32(0)
            b[()] = b[()] + a[vi]

    @kernel
    def plus(a: f32[4], b: f32[4], c: f32[4]):
        T.func_attr({"op_pattern": 0})
        for i in S(4, "B"):
            c[vi] = a[vi] + b[vi]

    def main(y: f32[4]):
        x = R.multiply(y, y)
        p = R.call_tir(cls.twice, (y,), f32[4])
        s = R.call_tir(cls.total, (x,), f32)
        q = R.call_tir_inplace(cls.exp_inplace, (x,), 0, f32[4])
        r = R.call_tir(cls.plus, (p, q), f32[4])
        return (s, r)
    """)
    y = array(4)
    for target in ("numpy", "reference"):
        total, result = relaxpy.compile(FuseOps()(Module), target=target)["main"](y)
        np.testing.assert_allclose(total, (y * y).sum(), rtol=1e-6)
        np.testing.assert_allclose(result, 2 * y + np.exp(y * y), rtol=1e-6)


def test_a_cast_comes_before_what_uses_its_shape_variables() -> None:
    module = graph("""
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
        n = T.int64()
        a = R.exp(x)
        z = R.match_cast(y, R.Tensor((n,), "float32"))
        b = R.zeros((n,), "float32")
        c = R.add(R.sum(a), z)
        d = R.add(c, b)
        return d
    """)
    before = AnnotateTIROpPattern()(LegalizeOps()(module))
    after = FuseOps()(before)
    assert after is not before
    check(before, after, array(4), array(3))


def test_a_kernel_after_the_field_of_a_parameter_has_nothing_to_be_fused_with() -> None:
    module = graph("""
    def main(
        x: R.Tensor((4, 4), "float32"),
        w: R.Tuple(R.Tensor((4, 4), "float16"), R.Tensor((4, 4), "float16")),
    ):
        v = w[0]
        a = R.astype(v, "float32")
        b = R.matmul(x, a)
        return b
    """)
    stays(FuseOps(), AnnotateTIROpPattern()(LegalizeOps()(module)))


@pytest.mark.parametrize("level", ["2", 1.0, True, None])
def test_a_level_is_an_integer(level: Any) -> None:
    with pytest.raises(MisuseError, match="fuse_opt_level is an integer"):
        FuseOps(level)
