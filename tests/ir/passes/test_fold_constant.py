"""FoldConstant: what is evaluated, what stays, and how large results may be."""

import math

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.transform import FoldConstant
from relaxpy.transform import PassContext
from tests.ir.passes.before_after import check, stays
from tests.ir.relax.texts import graph, module, pair

TWO = np.array([1.0, 2.0], "float32")


def bound(mod: IRModule, **values: object) -> IRModule:
    """The module with constants in place of parameters of `main`."""
    result = mod.clone()
    result["main"] = mod["main"].bind_params(values)
    return result


Kernels, KernelsAfter = pair("""
@kernel
def double(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in S(n):
        B[vi] = A[vi] * T.float32(2)

-def main(c: f32[2], x: f32[n]):
-   a = R.call_tir(cls.double, (c,), f32[2])
-   b = R.call_tir(cls.double, (a,), f32[2])
+def main(x: f32[n]):
    d = R.call_tir(cls.double, (x,), f32[n])
-   e = R.add(c, c)
-   return (b, d, e)
+   e = R.add(R.const([1.0, 2.0], "float32"), R.const([1.0, 2.0], "float32"))
+   return (R.const([4.0, 8.0], "float32"), d, e)
""")


def test_kernels_are_evaluated_everywhere_and_operators_in_dataflow_blocks_only() -> None:
    check(FoldConstant(), bound(Kernels, c=TWO), KernelsAfter, TWO)
    stays(FoldConstant(), KernelsAfter)


SHAPES = graph("""
def main(x: R.Tensor((256,), "float32"), c: R.Tensor((2,), "int64")):
    a = R.multiply(c, c)
    s: R.Shape(ndim=2) = R.tensor_to_shape(a)
    b: R.Tensor(ndim=2, dtype="float32") = R.reshape(x, s)
    t = R.shape([5, 4])
    d = R.shape_to_tensor(t)
    return (b, d)
""")


def test_shapes_are_evaluated() -> None:
    after = FoldConstant()(bound(SHAPES, c=np.array([4, 4])))
    [block] = after["main"].body.blocks
    [binding] = block.bindings
    assert isinstance(binding.value, rx.Call)
    assert binding.value.struct_info == rx.TensorStructInfo((16, 16), "float32")
    x = np.arange(256, dtype="float32")
    one, other = relaxpy.compile(after, target="reference")["main"](x)
    np.testing.assert_array_equal(one, x.reshape(16, 16))
    np.testing.assert_array_equal(other, [5, 4])


COARSE = graph("""
def main(data: R.Tensor((256,), "float32"), c: R.Tensor((1,), "float32")):
    a: R.Tensor(ndim=1, dtype="float32") = R.add(c, c)
    b = R.multiply(a, c)
    x = R.multiply(a, data)
    s: R.Shape(ndim=2) = R.tensor_to_shape(R.const([16, 16], "int64"))
    y = R.reshape(data, s)
    z: R.Tensor(dtype="float32") = R.exp(y)
    return (a, b, x, z)
""")

CoarseUse = module("""
def main(x: f32[2], c: f32[2]) -> R.Tensor("float32"):
    a: R.Tensor(ndim=1, dtype="float32") = R.add(x, x)
    with R.dataflow():
        b: R.Tensor(ndim=1, dtype="float32") = R.add(c, c)
        d = R.add(x, b)
        e = R.add(a, d)
    return e
""")


@pytest.mark.rule("OPT-14")
def test_what_is_known_of_a_constant_is_known_of_what_uses_it() -> None:
    after = FoldConstant()(bound(COARSE, c=np.array([2.0], "float32")))
    ret = after["main"].struct_info.ret
    vector, matrix = (rx.TensorStructInfo(s, "float32") for s in ((256,), (16, 16)))
    one = rx.TensorStructInfo((1,), "float32")
    assert ret == rx.TupleStructInfo((one, one, vector, matrix))
    data = np.arange(256, dtype="float32") / 256
    results = relaxpy.compile(after, target="reference")["main"](data)
    expected = [4], [8], 4 * data, np.exp(data).reshape(16, 16)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-6)


def test_annotations_of_other_variables_and_results_stay() -> None:
    after = FoldConstant()(bound(CoarseUse, c=TWO))
    names = {b.var.name_hint: b.var for block in after["main"].body.blocks for b in block.bindings}
    assert names["a"].struct_info == rx.TensorStructInfo(ndim=1, dtype="float32")
    assert names["d"].struct_info == rx.TensorStructInfo((2,), "float32")
    assert after["main"].ret_struct_info == rx.TensorStructInfo(dtype="float32")


LARGE = graph("""
def main():
    a = R.zeros((1024, 1024), "float32")
    b = R.arange(0, 10, 1, "float32")
    return (a, b)
""")


def folded_bytes(mod: IRModule) -> int:
    nodes = relaxpy.ir.core.traverse.walk(mod["main"])
    return sum(node.data.nbytes for node in nodes if isinstance(node, rx.Constant))


def test_constants_do_not_become_large() -> None:
    assert folded_bytes(FoldConstant()(LARGE)) == 40
    with PassContext(config={"relax.FoldConstant.max_bytes": 1 << 22}):
        assert folded_bytes(FoldConstant()(LARGE)) == 40 + (1 << 22)
    with PassContext(config={"relax.FoldConstant.max_bytes": 0}):
        assert folded_bytes(FoldConstant()(LARGE)) == 0


def test_a_constant_that_is_joined_with_itself_does_not_double_without_end() -> None:
    lines = [f"    c{k + 1} = R.concat((c{k}, c{k}))" for k in range(24)]
    mod = graph(
        "\n".join(["def main():", '    c0 = R.zeros((1024,), "uint8")', *lines, "    return c24"])
    )
    assert folded_bytes(FoldConstant()(mod)) == 1 << 20


TWICE = graph("""
def main(c: R.Tensor((2,), "float32")):
    a = R.add(c, c)
    return (a, a)
""")


@pytest.mark.rule("OPT-11", "EV-2")
def test_a_result_that_is_returned_twice_stays_one_tensor() -> None:
    after = FoldConstant()(bound(TWICE, c=TWO))
    first, second = relaxpy.compile(after, target="numpy")["main"]()
    assert first is second
    np.testing.assert_array_equal(first, [2, 4])
    [[binding]] = [block.bindings for block in after["main"].body.blocks]
    assert isinstance(binding.value, rx.Constant)


Mutated = module("""
@impure
def main():
    a = R.const([1.0, 2.0], "float32")
    _ = R.call_packed("tests.fold.clear", a, sinfo_args=R.Object)
    b = R.add(a, a)
    return b
""")


@pytest.mark.rule("OPT-11")
def test_a_constant_that_is_changed_is_one_tensor() -> None:
    def clear(x: np.ndarray) -> None:
        x[:] = 0

    relaxpy.register_func("tests.fold.clear", clear, override=True)
    stays(FoldConstant(), Mutated)
    result = relaxpy.compile(FoldConstant()(Mutated), target="numpy")["main"]()
    np.testing.assert_array_equal(result, [0, 0])


FAILING = graph("""
def main(x: R.Tensor((2,), "int32")):
    a = R.floor_divide(R.const([1, 2], "int32"), R.const([0, 1], "int32"))
    b = R.add(x, a)
    return b
""")


@pytest.mark.rule("OPT-7")
def test_what_cannot_be_evaluated_stays() -> None:
    after = FoldConstant()(FAILING)
    calls = [n for n in relaxpy.ir.core.traverse.walk(after["main"]) if isinstance(n, rx.Call)]
    names = [call.op.name for call in calls]
    assert names in (["relax.add"], ["relax.floor_divide", "relax.add"])
    x = np.array([1, 1], "int32")
    outcomes = []
    for mod in (FAILING, after):
        try:
            outcomes.append(relaxpy.compile(mod, target="numpy")["main"](x).tolist())
        except relaxpy.errors.RelaxpyError as error:
            outcomes.append(type(error).__name__)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("loops", "is_folded"),
    [
        ("range(100)", True),
        ("T.grid(1000, 1000)", True),
        ("T.grid(1000000, 1000000)", False),
        ("range(A[0])", False),
        ("range(T.min(A[0], T.int64(5)))", True),
    ],
)
@pytest.mark.rule("OPT-7")
def test_much_work_is_left_though_its_result_is_small(loops: str, is_folded: bool) -> None:
    names = "i, j" if "grid" in loops else "i"
    mod = module(f"""
@T.prim_func(private=True)
def count(A: T.Buffer((1,), "int64"), B: T.Buffer((1,), "int64")):
    B[0] = T.int64(0)
    for {names} in {loops}:
        B[0] = B[0] + T.int64(1)

@R.function
def main() -> R.Tensor((1,), "int64"):
    n = R.const([{1 << 60}], "int64")
    y = R.call_tir(cls.count, (n,), out_sinfo=R.Tensor((1,), "int64"))
    return y
""")
    nodes = relaxpy.ir.core.traverse.walk(FoldConstant()(mod)["main"])
    assert any(isinstance(node, rx.Call) for node in nodes) != is_folded


@pytest.mark.parametrize(
    ("a", "out", "dtype", "body"),
    [
        ("", "", "f32", "B[()] = A[()] / C[()] - T.float32(0.1)"),
        ("", "", "f32", "B[()] = A[()] * T.float32(0) * C[()]"),
        ("", "", "f32", "B[()] = A[()] / (C[()] - C[()])"),
        ("", "", "f32", "B[()] = T.exp(A[()]) + C[()]"),
        ("", "", "f16", "B[()] = A[()] / C[()]"),
        ("", "", "i8", "B[()] = A[()] * T.int8(100) * C[()]"),
        ("", "", "u64", "B[()] = A[()] + C[()]"),
        ("[3]", "", "f32", "B[()] = A[1]"),
        ("[2,3,4]", "[4,2,3]", "i8", "for k, i, j in SSS(4, 2, 3): B[vk, vi, vj] = A[vi, vj, vk]"),
        ("[2,3,4]", "[4,2,3]", "i8", "for i, j, k in SSS(2, 3, 4): B[vk, vi, vj] = A[vi, vj, vk]"),
        ("[3, 4]", "[2, 3]", "f32", "for i, j in SS(2, 3): B[vi, vj] = A[vj, vi]"),
        ("[3, 3]", "[3, 3]", "f32", "for i, j in SS(3, 3): B[vi, vj] = A[vi, vi]"),
        ("[3, 3]", "[3, 3]", "f32", "for i, j in SS(3, 3): B[vi, vj] = A[2 - vi, vj]"),
        ("[3, 3]", "[3, 3]", "f32", "for i, j in SS(3, 3): B[vi, vj] = A[vj, vi] + C[()]"),
    ],
)  # fmt: skip
def test_values_are_those_of_the_kernel(a: str, out: str, dtype: str, body: str) -> None:
    mod = module(f"""
@kernel
def f(A: {dtype}{a}, C: {dtype}, B: {dtype}{out}):
    {body}

def main(a: {dtype}{a}, c: {dtype}):
    return R.call_tir(cls.f, (a, c), out_sinfo={dtype}{out})
""")
    values = [filled(param.struct_info) for param in mod["main"].params]
    after = FoldConstant()(bound(mod, a=values[0], c=values[1]))
    folded = after["main"].body.body
    assert isinstance(folded, rx.Constant)
    expected = relaxpy.compile(mod, target="reference")["main"](*values)
    assert folded.data.tobytes() == expected.tobytes()


def filled(info: object) -> np.ndarray:
    """An array of small negative and positive numbers."""
    assert isinstance(info, rx.TensorStructInfo)
    shape = [int(size) for size in info.shape or ()]
    return (np.arange(math.prod(shape)) - 5).astype(info.dtype.numpy()).reshape(shape)
