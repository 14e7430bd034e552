"""FuseOps: which kernels are grouped, into which functions, and what stays as it is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, topi
from relaxpy.errors import MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax import Call, TupleGetItem, Var, const
from relaxpy.relax.transform import AnnotateTIROpPattern, FuseOps, LegalizeOps
from relaxpy.script import relax as R
from relaxpy.transform import PassContext
from tests.ir.relax import texts
from tests.ir.relax.texts import graph
from tests.ir.relax.transform.before_after import agree, stays

Body = Callable[..., Any]


def tensor(*shape: int, dtype: str = "float32") -> Any:
    return R.Tensor(shape, dtype)


class Building:
    """A module built function by function; a body emits bindings and returns the last value."""

    def __init__(self) -> None:
        self.bb = relax.BlockBuilder()

    def te(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self.bb.emit_te(function, *args, **kwargs)

    def emit(self, value: Any) -> Any:
        return self.bb.emit(value)

    def function(self, name: str, sinfos: list[Any], body: Body, *, fused: bool = False) -> Any:
        params = [Var(f"p{k}", sinfo) for k, sinfo in enumerate(sinfos)]
        attrs = {"Primitive": True} if fused else None
        with self.bb.function(name, params, attrs=attrs, private=fused):
            with self.bb.dataflow():
                gv = self.bb.emit_output(body(self, *params))
            self.bb.emit_func_output(gv)
        return self.bb.get().get_global_var(name)

    def module(self) -> IRModule:
        return AnnotateTIROpPattern()(self.bb.get())


def built(sinfos: list[Any], body: Body) -> IRModule:
    build = Building()
    build.function("main", sinfos, body)
    return build.module()


def check(before: IRModule, after: IRModule, *args: Any) -> None:
    actual = FuseOps()(before)
    assert_structural_equal(actual, after)
    assert check_well_formed(actual, normal_form=True) == []
    assert FuseOps()(actual) is actual
    if args:
        agree(before, actual, *args)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


def test_elementwise_kernels_become_one_function_with_their_constants_as_parameters() -> None:
    def steps(b: Building, x: Any, one: Any) -> Any:
        return b.bb.call_te(topi.squeeze, b.te(topi.exp, b.te(topi.add, x, one)))

    build = Building()
    fused = build.function("fused_add_exp_squeeze", [tensor(10, 20), tensor()], steps, fused=True)
    build.function("main", [tensor(10, 20)], lambda b, x: Call(fused, [x, const(1, "float32")]))
    before = built([tensor(10, 20)], lambda b, x: steps(b, x, const(1, "float32")))
    check(before, build.module(), array(10, 20))


def test_a_convolution_takes_the_elementwise_kernels_after_it_only() -> None:
    unit = {"strides": 1, "dilation": 1}

    def before(b: Building, x: Any, w1: Any, w2: Any, w3: Any) -> Any:
        lv0 = b.te(topi.add, x, const(1, "float32"))
        lv1 = b.te(topi.nn.conv2d, lv0, w1, padding=1, **unit)
        lv2 = b.te(topi.add, const(1, "float32"), lv1)
        lv3 = b.te(topi.add, lv1, lv2)
        lv4 = b.te(topi.nn.conv2d, lv3, w2, padding=0, **unit)
        lv5 = b.te(topi.nn.conv2d, lv3, w3, padding=1, **unit)
        return b.bb.call_te(topi.add, lv4, lv5)

    def first(b: Building, x: Any, w: Any, p0: Any) -> Any:
        lv0 = b.te(topi.nn.conv2d, x, w, padding=1, primfunc_name_hint="conv2d", **unit)
        lv1 = b.te(topi.add, p0, lv0, primfunc_name_hint="add1")
        return b.bb.call_te(topi.add, lv0, lv1, primfunc_name_hint="add2")

    def second(b: Building, x: Any, w: Any, y: Any) -> Any:
        lv0 = b.te(topi.nn.conv2d, x, w, padding=0, primfunc_name_hint="conv2d1", **unit)
        return b.bb.call_te(topi.add, lv0, y, primfunc_name_hint="add2")

    image, w, point = tensor(1, 2, 5, 4), tensor(2, 2, 3, 3), tensor(2, 2, 1, 1)
    build = Building()
    one = build.function("fused_conv2d_add1_add2", [image, w, tensor()], first, fused=True)
    two = build.function("fused_conv2d1_add2", [image, point, image], second, fused=True)

    def main(b: Building, x: Any, w1: Any, w2: Any, w3: Any) -> Any:
        lv0 = b.te(topi.add, x, const(1, "float32"))
        lv1 = b.emit(Call(one, [lv0, w1, const(1, "float32")]))
        lv2 = b.te(topi.nn.conv2d, lv1, w3, padding=1, **unit)
        return Call(two, [lv1, w2, lv2])

    build.function("main", [image, w, point, w], main)
    arrays = [array(*shape) for shape in ((1, 2, 5, 4), (2, 2, 3, 3), (2, 2, 1, 1), (2, 2, 3, 3))]
    check(built([image, w, point, w], before), build.module(), *arrays)


def test_a_concatenation_takes_what_it_joins() -> None:
    def steps(b: Building, pooled: Any, x: Any, one: Any) -> Any:
        lv1 = b.te(topi.nn.upsampling, pooled, scale_h=2.0, scale_w=2.0)
        lv2 = b.te(topi.concatenate, (lv1, x), axis=1)
        return b.bb.call_te(topi.add, lv2, one)

    def smaller(b: Building, x: Any, w: Any) -> Any:
        return b.te(topi.nn.conv2d, x, w, strides=2, padding=1, dilation=1)

    image, w = tensor(1, 4, 8, 8), tensor(4, 4, 3, 3)
    before = built([image, w], lambda b, x, w: steps(b, smaller(b, x, w), x, const(1, "float32")))
    build = Building()
    sinfos = [tensor(1, 4, 4, 4), image, tensor()]
    fused = build.function("fused_upsampling_concatenate_add", sinfos, steps, fused=True)

    def main(b: Building, x: Any, w: Any) -> Any:
        return Call(fused, (smaller(b, x, w), x, const(1, "float32")))

    build.function("main", [image, w], main)
    check(before, build.module(), array(1, 4, 8, 8), array(4, 4, 3, 3))


def test_a_tuple_of_a_split_is_inside_of_the_function() -> None:
    def steps(b: Building, lv0: Any) -> Any:
        lv1 = b.te(topi.split, lv0, indices_or_sections=3, axis=1)
        lv3 = b.te(topi.sigmoid, b.emit(TupleGetItem(lv1, 0)))
        lv5 = b.te(topi.tanh, b.emit(TupleGetItem(lv1, 1)))
        lv7 = b.te(topi.exp, b.emit(TupleGetItem(lv1, 2)))
        return b.bb.call_te(topi.add, lv3, b.te(topi.multiply, lv5, lv7))

    def dense(b: Building, x: Any, w: Any) -> Any:
        return b.te(topi.nn.dense, x, w)

    build = Building()
    fused = build.function(
        "fused_split_sigmoid_tanh_exp_multiply_add", [tensor(1, 30)], steps, fused=True
    )
    sinfos = [tensor(1, 10), tensor(30, 10)]
    build.function("main", sinfos, lambda b, x, w: Call(fused, (dense(b, x, w),)))
    before = built(sinfos, lambda b, x, w: steps(b, dense(b, x, w)))
    check(before, build.module(), array(1, 10), array(30, 10))


def test_a_field_of_a_split_is_a_function_of_its_own() -> None:
    build = Building()
    fused = build.function(
        "fused_split",
        [tensor(1, 30)],
        lambda b, x: TupleGetItem(b.te(topi.split, x, indices_or_sections=3, axis=1), 0),
        fused=True,
    )
    sinfos = [tensor(1, 30), tensor(10, 10)]
    build.function(
        "main", sinfos, lambda b, x, w: b.bb.call_te(topi.nn.dense, b.emit(Call(fused, (x,))), w)
    )

    def before(b: Building, x: Any, w: Any) -> Any:
        lv0 = b.te(topi.split, x, indices_or_sections=3, axis=1)
        return b.bb.call_te(topi.nn.dense, b.emit(TupleGetItem(lv0, 0)), w)

    check(built(sinfos, before), build.module(), array(1, 30), array(10, 10))


def test_equal_groups_share_one_function() -> None:
    def step(b: Building, x: Any, w: Any) -> Any:
        return b.bb.call_te(topi.nn.relu, b.te(topi.nn.dense, x, w))

    sinfos = [tensor(4, 4)] * 3
    build = Building()
    fused = build.function("fused_dense_relu", sinfos[:2], step, fused=True)

    def main(b: Building, x: Any, v: Any, w: Any) -> Any:
        return Call(fused, (b.emit(Call(fused, (x, v))), w))

    build.function("main", sinfos, main)
    before = built(sinfos, lambda b, x, v, w: step(b, b.emit(step(b, x, v)), w))
    check(before, build.module(), *[array(4, 4)] * 3)


def test_parallel_injective_kernels_are_fused() -> None:
    def steps(b: Building, x: Any, one: Any) -> Any:
        lv0 = b.te(topi.add, x, one)
        lv1 = b.te(topi.squeeze, lv0)
        lv2 = b.te(topi.transpose, lv0, axes=[1, 0])
        lv3 = b.te(topi.transpose, lv2, axes=[1, 0], primfunc_name_hint="transpose1")
        return b.bb.call_te(topi.multiply, lv1, lv3)

    name = "fused_add_squeeze_transpose_transpose1_multiply"
    build = Building()
    fused = build.function(name, [tensor(10, 20), tensor()], steps, fused=True)
    build.function("main", [tensor(10, 20)], lambda b, x: Call(fused, (x, const(1, "float32"))))
    before = built([tensor(10, 20)], lambda b, x: steps(b, x, const(1, "float32")))
    check(before, build.module(), array(10, 20))


def test_a_softmax_takes_the_cast_after_it() -> None:
    def steps(b: Building, x: Any) -> Any:
        return b.bb.call_te(topi.cast, b.te(topi.nn.softmax, x), dtype="float16")

    build = Building()
    fused = build.function("fused_softmax_cast", [tensor(16, 16)], steps, fused=True)
    build.function("main", [tensor(16, 16)], lambda b, x: Call(fused, (x,)))
    check(built([tensor(16, 16)], steps), build.module(), array(16, 16))


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


def test_a_tuple_can_be_the_result() -> None:
    def steps(b: Building, x: Any) -> Any:
        a = b.te(topi.exp, x)
        halves = b.te(topi.split, a, indices_or_sections=2, axis=1)
        one, other = b.emit(TupleGetItem(halves, 0)), b.emit(TupleGetItem(halves, 1))
        return b.bb.call_te(topi.nn.dense, one, b.te(topi.nn.dense, other, other))

    def halves_of(b: Building, x: Any) -> Any:
        return b.bb.call_te(topi.split, b.te(topi.exp, x), indices_or_sections=2, axis=1)

    build = Building()
    fused = build.function("fused_exp_split", [tensor(4, 8)], halves_of, fused=True)

    def main(b: Building, x: Any) -> Any:
        halves = b.emit(Call(fused, (x,)))
        one, other = b.emit(TupleGetItem(halves, 0)), b.emit(TupleGetItem(halves, 1))
        return b.bb.call_te(topi.nn.dense, one, b.te(topi.nn.dense, other, other))

    build.function("main", [tensor(4, 8)], main)
    check(built([tensor(4, 8)], steps), build.module(), array(4, 8))


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


def test_items_of_tuple_parameters_and_aliases_stay_outside() -> None:
    module = graph("""
    def main(x: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32"))):
        x0 = x[0]
        a = R.exp(x0)
        b = R.tanh(a)
        c = b
        return c
    """)
    Fused = texts.graph("""
    def main(x: R.Tuple(f32[2], f32[2])):
        x0 = x[0]
        b = cls.fused_tir_exp_tir_tanh(x0)
        c = b
        return c

    @private
    def fused_tir_exp_tir_tanh(x0: f32[2]):
        R.func_attr({"Primitive": True})
        a = R.exp(x0)
        b = R.tanh(a)
        return b
    """)
    before, after = (AnnotateTIROpPattern()(LegalizeOps()(mod)) for mod in (module, Fused))
    check(before, after)


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


def test_kernels_without_a_pattern_and_level_0_leave_the_module() -> None:
    before = built([tensor(4)], lambda b, x: b.bb.call_te(topi.exp, b.te(topi.exp, x)))
    stays(FuseOps(fuse_opt_level=0), before)
    with PassContext(opt_level=0):
        stays(FuseOps(), before)
    build = Building()
    build.function("main", [tensor(4)], lambda b, x: b.bb.call_te(topi.exp, b.te(topi.exp, x)))
    stays(FuseOps(), build.bb.get())


def test_the_option_limits_the_size_of_a_group() -> None:
    def chain(b: Building, x: Any) -> Any:
        for _ in range(5):
            x = b.te(topi.exp, x)
        return b.bb.call_te(topi.exp, x)

    before = built([tensor(4)], chain)
    with PassContext(config={"relax.FuseOps.max_depth": 2}):
        after = FuseOps()(before)
    (block,) = after["main"].body.blocks
    assert len(block.bindings) == 3
    assert set(after.functions_by_name) == {"main", "exp", "fused_exp_exp"}


@pytest.mark.parametrize("level", ["2", 1.0, True, None])
def test_a_level_is_an_integer(level: Any) -> None:
    with pytest.raises(MisuseError, match="fuse_opt_level is an integer"):
        FuseOps(level)
