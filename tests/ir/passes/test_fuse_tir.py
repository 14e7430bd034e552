"""FuseTIR: the kernels of functions, how they are called, and which functions stay."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir, topi
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import AnnotateTIROpPattern, FuseOps, FuseTIR, LegalizeOps, Normalize
from relaxpy.script import ir as I, relax as R
from tests.ir.passes.before_after import agree, stays
from tests.ir.relax.texts import DTYPES, graph, module

X = np.random.default_rng(0).standard_normal((10, 20)).astype("float32")


def fused(before: IRModule, *args: Any) -> IRModule:
    """The module after the pass, in which no function is left that was to become a kernel."""
    after = FuseTIR()(before)
    assert check_well_formed(after, normal_form=True) == []
    assert FuseTIR()(after) is after
    assert not any("Primitive" in func.attrs for func in after.functions_by_name.values())
    agree(before, after, *args)
    return after


def test_the_kernel_is_that_of_the_composed_expression() -> None:
    bb = relax.BlockBuilder()
    x, p0 = relax.Var("x", R.Tensor((10, 20), "float32")), relax.Var("p0", R.Tensor((), "float32"))
    with bb.function("fused_steps", [x, p0], attrs={"Primitive": True}, private=True):
        with bb.dataflow():
            lv0 = bb.emit_te(topi.add, x, p0)
            lv1 = bb.emit_te(topi.exp, lv0)
            gv = bb.emit_output(bb.call_te(topi.squeeze, lv1))
        bb.emit_func_output(gv)
    callee = bb.get().get_global_var("fused_steps")
    x, p0 = relax.Var("x", R.Tensor((10, 20), "float32")), relax.Var("p0", R.Tensor((), "float32"))
    with bb.function("main", [x, p0]):
        with bb.dataflow():
            gv = bb.emit_output(relax.Call(callee, [x, p0]))
        bb.emit_func_output(gv)
    before = bb.get().with_attrs({"foo": "bar"})

    def fused_steps(x: Any, p0: Any) -> Any:
        return topi.squeeze(topi.exp(topi.add(x, p0)))

    bb = relax.BlockBuilder()
    x, p0 = relax.Var("x", R.Tensor((10, 20), "float32")), relax.Var("p0", R.Tensor((), "float32"))
    with bb.function("main", [x, p0]):
        with bb.dataflow():
            gv = bb.emit_output(bb.call_te(fused_steps, x, p0))
        bb.emit_func_output(gv)
    after = fused(before, X, np.array(2, "float32"))
    assert_structural_equal(after, bb.get().with_attrs({"foo": "bar"}))


def test_shape_variables_are_those_of_the_composed_expression() -> None:
    Before = graph("""
    @private
    def steps(x: f32[n, m], p: f32):
        R.func_attr({"Primitive": True})
        a = R.add(x, p)
        b = R.exp(a)
        return b

    def main(x: f32[n, m]):
        y = cls.steps(x, R.const(1, "float32"))
        return y
    """)
    before = LegalizeOps()(Before)
    after = fused(before, X)
    (call,) = (b.value for block in after["main"].body.blocks for b in block.bindings)
    assert len(call.args) == 2
    assert len(after["steps"].params) == 3


def test_shapes_that_are_expressions_and_scalars_of_kernels() -> None:
    Before = graph("""
    @kernel64
    def shifted(y: f32[8, 4], p: T.handle, q: T.handle, m: T.int64):
        n = T.int64()
        x = T.match_buffer(p, (n, 4), "float32")
        out = T.match_buffer(q, (n, 4), "float32")
        for i, j in SS(n, 4):
            out[vi, vj] = y[m - 1, vj] * x[vi, vj]

    @private
    def steps(x: f32[k - 1, 4], y: f32[8, 4], s: R.Shape(["k"])):
        R.func_attr({"Primitive": True})
        a = R.call_tir(cls.shifted, (y, x), f32[k - 1, 4], [k])
        b = R.call_tir(cls.shifted, (y, a), f32[k - 1, 4], [k - 1])
        return b

    def main(x: f32[k - 1, 4], y: f32[8, 4], s: R.Shape(["k"])):
        z = cls.steps(x, y, s)
        return z
    """)
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal((n, 4)).astype("float32") for n in (5, 8))
    after = fused(Before, x, y, relaxpy.runtime.ShapeTuple((6,)))
    assert set(after.functions_by_name) == {"main", "steps"}


def test_a_dynamic_kernel_is_called_with_several_static_shapes() -> None:
    Before = module("""
    @kernel
    def scaled(p: T.handle, q: T.handle):
        m, n = (T.int64(), T.int64())
        x = T.match_buffer(p, (m * n,), "float32")
        y = T.match_buffer(q, (m, n), "float32")
        for i, j in SS(m, n):
            y[vi, vj] = x[vi * n + vj] * T.float32(2)

    @private
    def steps(x: f32[6], y: f32[4]):
        R.func_attr({"Primitive": True})
        with R.dataflow():
            a = R.call_tir(cls.scaled, (x,), f32[2, 3])
            b = R.call_tir(cls.scaled, (y,), f32[4, 1])
        return (a, b)

    def main(x: f32[6], y: f32[4]):
        z = cls.steps(x, y)
        return z
    """)
    after = fused(Before, np.arange(6, dtype="float32"), np.arange(4, dtype="float32"))
    sizes = [size for b in after["steps"].buffer_map.values() for size in b.shape]
    assert all(isinstance(size, tir.IntImm) for size in sizes)


def test_fields_of_tuples_are_passed_where_they_are_used() -> None:
    Before = graph("""
    @private
    def steps(x: R.Tuple(R.Tuple(f32[4], f32[4]), f32[4])):
        R.func_attr({"Primitive": True})
        pair = x[0]
        one = pair[1]
        other = x[1]
        a = R.exp(one)
        b = R.add(a, other)
        return b

    def main(x: R.Tuple(R.Tuple(f32[4], f32[4]), f32[4])):
        y = cls.steps(x)
        return y
    """)
    arrays = [np.full(4, k, "float32") for k in (1, 2, 3)]
    after = fused(LegalizeOps()(Before), ((arrays[0], arrays[1]), arrays[2]))
    assert [b.name for b in after["steps"].buffer_map.values()][:2] == ["x_0_1", "x_1"]
    assert len(after["steps"].params) == 3


def test_several_results_are_outputs_also_if_later_kernels_read_them() -> None:
    Before = graph("""
    @private
    def steps(x: f32[10, 20]):
        R.func_attr({"Primitive": True})
        a = R.exp(x)
        b = R.tanh(a)
        return (b, a)

    def main(x: f32[10, 20]):
        y = cls.steps(x)
        return y
    """)
    after = fused(LegalizeOps()(Before), X)
    assert len(after["steps"].params) == 3


InPlace = graph("""
@kernel
def increment(a: f32[4]):
    for i in S(4, "A"):
        a[vi] = a[vi] + T.float32(1)

@kernel
def double(a: f32[4], b: f32[4]):
    for i in S(4, "B"):
        b[vi] = a[vi] * T.float32(2)

@private
def inside(x: f32[4]):
    R.func_attr({"Primitive": True})
    a = R.call_tir(cls.double, (x,), f32[4])
    b = R.call_tir_inplace(cls.increment, (a,), 0, f32[4])
    return b

@private
def outside(x: f32[4]):
    R.func_attr({"Primitive": True})
    a = R.call_tir(cls.double, (x,), f32[4])
    b = R.call_tir_inplace(cls.increment, (x,), 0, f32[4])
    return (b, a)

def main(x: f32[4]):
    y = cls.inside(x)
    z = cls.outside(y)
    return z
""")


def test_a_kernel_that_overwrites_an_operand_is_called_in_place() -> None:
    after = fused(InPlace, np.arange(4, dtype="float32"))
    calls = [b.value for block in after["main"].body.blocks for b in block.bindings]
    assert [call.op.name for call in calls] == ["relax.call_tir", "relax.call_tir_inplace"]
    assert calls[1].attrs["inplace_indices"] == (0, -1)


def test_allocations_and_reads_are_those_of_the_composed_expression() -> None:
    """Buffers of a kernel precede its output; an operand that is passed twice is read once."""

    def mean(x: Any) -> Any:
        return topi.divide(topi.sum(x, axis=1, keepdims=True), topi.full((), "float32", 20.0))

    def steps(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        lv0 = bb.emit_te(topi.add, x, x)
        lv1 = bb.emit_te(mean, lv0)
        return bb.call_te(topi.subtract, lv0, lv1)

    def fused_steps(x: Any) -> Any:
        total = topi.add(x, x)
        return topi.subtract(total, mean(total))

    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((10, 20), "float32"))
    with bb.function("fused_steps", [x], attrs={"Primitive": True}, private=True):
        with bb.dataflow():
            gv = bb.emit_output(steps(bb, x))
        bb.emit_func_output(gv)
    callee = bb.get().get_global_var("fused_steps")
    x = relax.Var("x", R.Tensor((10, 20), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.Call(callee, [x])))
    after = fused(bb.get(), X)
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((10, 20), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit_te(fused_steps, x))
    assert_structural_equal(after, bb.get())


def test_public_functions_become_kernels_where_they_are_called() -> None:
    @I.ir_module
    class Before:
        @R.function
        def called(x: R.Tensor((4,), "float32")):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                y = R.emit_te(topi.exp, x)
                z = R.emit_te(topi.sqrt, y)
                R.output(z)
            return z

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            return cls.called(x)

    after = fused(Before, X[0, :4])
    kernel = after["called"]
    assert isinstance(kernel, tir.PrimFunc)
    assert "global_symbol" not in kernel.attrs
    del Before["main"]
    stays(FuseTIR(), Before)


def test_kernels_that_other_functions_call_stay() -> None:
    Before = module("""
    @private
    def steps(x: f32[10, 20]):
        R.func_attr({"Primitive": True})
        with R.dataflow():
            a = R.exp(x)
            b = R.tanh(a)
        return b

    def main(x: f32[10, 20]):
        y = cls.steps(x)
        z = R.exp(y)
        return z
    """)
    after = fused(LegalizeOps()(Before), X)
    assert set(after.functions_by_name) == {"main", "steps", "tir_exp"}


def test_kernels_that_only_unused_kernels_call_are_removed() -> None:
    Before = module("""
    @private
    def steps(x: f32[10]):
        R.func_attr({"Primitive": True})
        y = R.call_tir(cls.double, (x,), f32[10])
        return y

    @kernel
    def double(a: f32[10], b: f32[10]):
        for i in S(10, "B"):
            b[vi] = a[vi] * T.float32(2)

    @kernel
    def unused(a: f32[10], b: f32[10]):
        Module.double(a.data, b.data)

    def main(x: f32[10]):
        y = cls.steps(x)
        return y
    """)
    assert set(fused(Before, X[0, :10]).functions_by_name) == {"main", "steps"}


#: Functions that do more than call kernels, and one that is used as a value.
Unfusable = module("""
@private
def operators(x: f32[4]):
    R.func_attr({"Primitive": True})
    y = R.exp(x)
    return y

@private
def identity(x: f32[4]):
    R.func_attr({"Primitive": True})
    return x

@private
def constant(x: f32[4]):
    R.func_attr({"Primitive": True})
    y = R.call_tir(cls.add, (x, R.const([1, 2, 3, 4], "float32")), f32[4])
    return y

@private
def twice(x: f32[4]):
    R.func_attr({"Primitive": True})
    y = R.call_tir(cls.add, (x, x), f32[4])
    return (y, y)

@private
def unknown(x: R.Tensor(ndim=1, dtype="float32")):
    R.func_attr({"Primitive": True})
    y = R.call_tir(cls.add, (x, x), f32[4])
    return y

@private
def value(x: f32[4]) -> f32[4]:
    R.func_attr({"Primitive": True})
    y = R.call_tir(cls.add, (x, x), f32[4])
    return y

@private
def shared(x: f32[4]):
    R.func_attr({"Primitive": True})
    y = R.call_tir(cls.add, (x, x), f32[4])
    return y

@kernel
def calls(a: f32[4], b: f32[4]):
    cls = Module
    cls.shared(a.data)
    for i in S(4, "C"):
        b[vi] = a[vi]

@kernel
def add(a: f32[4], b: f32[4], c: f32[4]):
    for i in S(4, "C"):
        c[vi] = a[vi] + b[vi]

def main(x: f32[4]):
    f = cls.value
    a = cls.operators(x)
    b = cls.identity(a)
    c = cls.constant(b)
    d = cls.twice(c)
    e = d[0]
    g = cls.unknown(e)
    h = f(g)
    i = cls.shared(h)
    return i
""")


def test_what_is_not_a_sequence_of_kernel_calls_stays() -> None:
    stays(FuseTIR(), Unfusable)


def test_a_kernel_that_contradicts_its_argument_is_not_inlined() -> None:
    Module = module("""
    @kernel
    def halves(p: T.handle, q: T.handle):
        n = T.int64()
        x = T.match_buffer(p, (n * 2,), "float32")
        y = T.match_buffer(q, (n,), "float32")
        for i in S(n):
            y[vi] = x[vi]

    @private
    def steps(x: f32[k], s: R.Shape(["m"])):
        R.func_attr({"Primitive": True})
        y = R.call_tir(cls.halves, (x,), f32[m])
        return y

    def main(x: f32[k], s: R.Shape(["m"])):
        y = cls.steps(x, s)
        return y
    """)
    stays(FuseTIR(), Module)


def two_sums(separators: list[int]) -> IRModule:
    """A function to fuse; the second operand of its kernel declares the axis separators."""

    return module(f"""
    @kernel
    def add(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (2, 3), "float32", axis_separators=[1])
        B = T.match_buffer(b, (2, 3), "float32", axis_separators={separators})
        C = T.match_buffer(c, (2, 3), "float32", axis_separators=[1])
        for i, j in SS(2, 3):
            C[vi, vj] = A[vi, vj] + B[vi, vj]

    @private
    def steps(x: f32[2, 3], y: f32[2, 3]):
        R.func_attr({{"Primitive": True}})
        z = R.call_tir(cls.add, (x, y), f32[2, 3])
        result = R.call_tir(cls.add, (z, x), f32[2, 3])
        return result

    def main(x: f32[2, 3], y: f32[2, 3]):
        z = cls.steps(x, y)
        return z
    """)


def test_the_axis_separators_of_the_kernels_stay() -> None:
    x = X[:2, :3]
    kernel = fused(two_sums([1]), x, x + 1)["steps"]
    assert isinstance(kernel, tir.PrimFunc)
    buffers = {node for node in walk(kernel) if isinstance(node, tir.Buffer)}
    assert [buffer.axis_separators for buffer in buffers] == [(1,)] * 4
    assert set(kernel.buffer_map_items) < buffers


def test_kernels_that_separate_the_axes_of_a_tensor_differently_stay() -> None:
    stays(FuseTIR(), two_sums([]))


def test_modules_without_functions_to_fuse_stay() -> None:
    Module = module("""
    @impure
    def main(x: f32[2, 3]):
        y = R.call_dps_packed("a_function", x, f32[2, 3])
        return y
    """)
    stays(FuseTIR(), Module)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
def test_contractions_and_normalisations_give_the_same_values(dtype: str) -> None:
    Module = graph(f"""
    def main(x: {dtype}[n, 8], w: {dtype}[8, 8], b: {dtype}[8]):
        h = R.matmul(x, w)
        s = R.add(h, b)
        r = R.nn.relu(s)
        t = R.multiply(r, r)
        m = R.max(t, axis=1, keepdims=True)
        d = R.subtract(t, m)
        e = R.permute_dims(d, (1, 0))
        return e
    """)
    before = AnnotateTIROpPattern()(LegalizeOps()(Normalize()(Module)))
    rng = np.random.default_rng(3)
    args = [rng.integers(-3, 4, shape).astype(DTYPES[dtype]) for shape in ((5, 8), (8, 8), (8,))]
    after = fused(FuseOps()(before), *args)
    agree(before, after, *args)


Renamed = graph("""
@kernel
def exp(x: f32[4], y: f32[4]):
    for i in S(4, "exp"):
        y[vi] = T.exp(x[vi])

@private
def group(x: f32[4]):
    R.func_attr({"Primitive": True})
    y = R.call_tir(cls.exp, (x,), f32[4])
    return y

def main(x: f32[4]):
    y = cls.group(x)
    z = y
    return z
""")


def test_a_call_is_bound_to_the_name_of_the_result() -> None:
    body = fused(Renamed, X[0, :4])["main"].body
    assert [b.var.name_hint for block in body.blocks for b in block.bindings] == ["z"]
