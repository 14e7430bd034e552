"""Kernels in other languages, and vectors that are stored by what TVM's texts call it."""

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import CompileError, MisuseError, ParseError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source, tir as T
from relaxpy.script.ir_builder import IRBuilder, tir as builder_T
from tests.script.marked import check_marks

SOURCE = 'extern "C" __global__ void add(float* x) {\n  x[threadIdx.x] += 1.0f;\n}\n'


@T.prim_func
def launch(a: T.handle, m: T.int64):
    A = T.match_buffer(a, (m,), "float32")
    with T.block("root"):
        T.reads(A[0:m])
        T.writes(A[0:m])
        T.call_kernel(
            SOURCE, ((T.ceildiv(m, 64), 1), (64,)), A.data, m, True, kernel_name="add", num_warps=4
        )
        T.call_kernel("by_name", [m], A)


def test_external_kernels_read_back() -> None:
    text = launch.script()
    assert_structural_equal(from_source(text), launch)
    assert 'kernel_name="add"' in text
    assert 'T.call_kernel("by_name", [m], A.data)' in text


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("name", ["add", "by_name"])
def test_external_kernels_are_named_where_they_cannot_run(target: str, name: str) -> None:
    args = (T.handle("float32"),) if name == "add" else ()
    call = T.call_kernel(
        SOURCE if args else name, [[1], [2]], *args, **({"kernel_name": name} if args else {})
    )
    func = tir.PrimFunc(list(args), tir.Evaluate(call)).with_attr("global_symbol", "main")
    with pytest.raises(CompileError, match=f"the external kernel '{name}' cannot run"):
        relaxpy.compile(func, target=target)["main"](*(np.zeros(1, "float32") for _ in args))


def test_functions_of_triton_are_taken_by_text_and_name() -> None:
    class JITFunction:
        src = "def add(x): ..."
        __name__ = "add"

    by_function = T.call_kernel(JITFunction(), [1], T.int32(1), num_warps=4)
    by_text = T.call_kernel(JITFunction.src, [1], T.int32(1), kernel_name="add", num_warps=4)
    assert_structural_equal(by_function, by_text)
    assert T.call_kernel("f", [1], dtype="int32").dtype == "int32"


def test_calls_that_only_look_like_those_of_a_kernel_read_back() -> None:
    launch, odd = T.tvm_tuple(1), T.tvm_tuple("kernel_name")
    no_name, keyword = T.tvm_tuple("kernel name", 1), T.tvm_tuple("class", 1)
    for parts in ([], ["f"], ["f", 1, 2], ["f", launch, odd], ["f", launch, no_name]):
        call = T.call_intrin("int32", "tir.call_kernel", *parts)
        func = tir.PrimFunc([], tir.Evaluate(call)).with_attr("global_symbol", "main")
        assert_structural_equal(from_source(func.script()), func)
    call = T.call_intrin("int32", "tir.call_kernel", "f", launch, keyword)
    assert "T.call_intrin(" in str(call)


def test_external_kernels_that_are_wrong() -> None:
    with pytest.raises(MisuseError, match="a text, a name or a function of Triton, found 3"):
        T.call_kernel(3, [1])
    with pytest.raises(MisuseError, match="a text, a name or a function of Triton, found ''"):
        T.call_kernel("", [1])
    with pytest.raises(MisuseError, match="over a list of extents, found 4"):
        T.call_kernel("f", 4)
    with pytest.raises(MisuseError, match="kernel_name is a string, found 4"):
        T.call_kernel("f", [4], kernel_name=4)
    check_marks("""
        @T.prim_func
        def main():
            T.call_kernel("f", 4)
            #                  ^ a kernel is launched over a list of extents, found 4
            T.call_llvm_intrin("float32", T.llvm_lookup_intrinsic_id(3))
            #                                                        ^ an intrinsic is named by a
            # ... string, found 3
    """)


def test_intrinsics_of_llvm_are_known_by_name() -> None:
    looked_up = T.call_llvm_pure_intrin(
        "float32", T.llvm_lookup_intrinsic_id("llvm.sqrt.f32"), T.uint32(1), T.float32(2)
    )
    by_name = T.call_llvm_pure_intrin("float32", "llvm.sqrt.f32", T.uint32(1), T.float32(2))
    assert_structural_equal(looked_up, by_name)
    with pytest.raises(MisuseError, match="an intrinsic is named by a string, found ''"):
        T.llvm_lookup_intrinsic_id("")


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_intrinsics_of_llvm_that_t_computes_run(target: str) -> None:
    @T.prim_func
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32")):
        for i in range(4):
            T.call_llvm_intrin("", "llvm.assume", A[i] > T.float32(0))
            T.evaluate(T.call_intrin("void", "tir.prefetch", T.address_of(A[0]), 0, 3, 1))
            B[i] = T.call_llvm_pure_intrin("int32", "llvm.ctlz", B[i], T.bool(False))
            A[i] = T.call_llvm_pure_intrin("float32", "llvm.pow.f32", T.uint32(2), A[i], A[i])
        A[4:8] = T.call_llvm_pure_intrin("float32x4", "llvm.sqrt", A[4:8])
        B[4:8] = T.call_llvm_pure_intrin("int32x4", "llvm.ctpop.v4i32", T.uint32(1), B[4:8])

    a, b = np.arange(1, 9, dtype="float32"), np.arange(8, dtype="int32")
    expected = np.concatenate((a[:4] ** a[:4], np.sqrt(a[4:])))
    relaxpy.compile(main, target=target)["main"](a, b)
    np.testing.assert_allclose(a, expected, rtol=1e-6)
    assert b.tolist() == [32, 31, 30, 30, 1, 2, 2, 3]


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (T.call_llvm_pure_intrin("float32", "llvm.sqroot.f32", T.float32(2)), "a function of T"),
        (T.call_llvm_pure_intrin("float64", "llvm.sqrt.f32", T.float32(2)), "one datatype"),
        (T.call_llvm_pure_intrin("float32", "llvm.pow.f32", T.float32(2)), r"of .llvm\.pow\.f32"),
        (T.call_llvm_intrin("float32", T.float32(2)), "a function of T"),
        (T.tvm_stack_make_shape(1, 2), "pass the buffers and numbers themselves"),
        (T.call_packed("f", T.tvm_stack_alloca("shape", 4)), "pass the buffers and numbers"),
        (T.call_intrin("int32", "tir.tvm_call_packed", 3), "is the name of a function"),
        (T.call_intrin("int32", "tir.call_extern"), "is the name of a function"),
        (T.call_llvm_pure_intrin("float32", "llvm.sqrt", T.float32(2), T.float32(2)), "llvm.sqrt"),
        (T.call_llvm_pure_intrin("float32", "llvm.ctpop.f32", T.float32(2)), r"of .llvm\.ctpop"),
        (T.call_llvm_pure_intrin("int32", "llvm.sqrt.i32", T.int32(4)), r"of .llvm\.sqrt\.i32"),
        (
            T.call_llvm_pure_intrin("float32", "llvm.pow.f32", T.float32(2), T.float64(2)),
            "operands and a result of one datatype",
        ),
        (T.call_intrin("int32", "tir.call_llvm_intrin"), "write a function of T"),
    ],
)
def test_calls_that_nothing_computes_are_refused(
    target: str, call: tir.PrimExpr, message: str
) -> None:
    func = tir.PrimFunc([], tir.Evaluate(call)).with_attr("global_symbol", "main")
    with pytest.raises(CompileError, match=message):
        relaxpy.compile(func, target=target)


@T.prim_func
def stores(A: T.Buffer((16,), "float32"), m: T.Buffer((4,), "bool")):
    A.vstore([0], T.Broadcast(T.float32(1), 4))
    A.vstore([T.Ramp(4, 2, 4)], T.Broadcast(T.float32(2), 4))
    A.vstore(
        [T.Ramp(12, 1, 4)],
        T.Broadcast(T.float32(3), 4),
        predicate=T.Shuffle([m[0], m[1], m[2], m[3]], [0, 1, 2, 3]),
    )
    T.buffer_store(
        A,
        T.Broadcast(T.float32(4), 4),
        [T.Ramp(0, 1, 4)],
        T.Shuffle([m[0], m[1], m[2], m[3]], [0, 1, 2, 3]),
    )


def test_vectors_stored_by_name_read_back() -> None:
    assert_structural_equal(from_source(stores.script()), stores)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_vectors_are_stored_where_their_predicate_holds(target: str) -> None:
    data, mask = np.zeros(16, "float32"), np.array([True, False, False, True])
    relaxpy.compile(stores, target=target)["stores"](data, mask)
    expected = [4, 1, 1, 4, 2, 0, 2, 0, 2, 0, 2, 0, 3, 0, 0, 3]
    np.testing.assert_array_equal(data, np.array(expected, "float32"))


@T.prim_func
def scalable(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
    for i in range(8):
        B[T.ramp(i * 4, 1, 4 * T.vscale())] = A[T.ramp(i * 4, 1, 4 * T.vscale())] + T.broadcast(
            T.float32(1), 4 * T.vscale()
        )


@T.prim_func
def masked(A: T.Buffer((30,), "float32"), i: T.int32):
    A.vstore(
        [i],
        T.broadcast(T.float32(0.5), T.vscale() * 4),
        predicate=T.get_active_lane_mask("uint1xvscalex4", i, 30),
    )
    T.buffer_store(
        A,
        T.broadcast(T.float32(0.5), T.vscale() * 4),
        [T.ramp(0, 1, T.vscale() * 4)],
        T.broadcast(T.bool(True), T.vscale() * 4),
    )


@pytest.mark.parametrize("func", [scalable, masked])
def test_vectors_of_a_length_that_the_machine_decides_read_back(func: tir.PrimFunc) -> None:
    assert_structural_equal(from_source(func.script()), func)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_vectors_are_as_long_as_their_multiple_of_vscale_here(target: str) -> None:
    data, out = np.arange(32, dtype="float32"), np.zeros(32, "float32")
    relaxpy.compile(scalable, target=target)["scalable"](data, out)
    np.testing.assert_array_equal(out, data + 1)


def test_texts_ask_where_elements_lie() -> None:
    func = from_source("""
        @T.prim_func
        def main(A: T.Buffer((4, 4), "float32")):
            T.evaluate(T.call_extern("int32", "f", A.access_ptr("r"), A.offset_of([1, 2])[0]))
    """)
    A = next(iter(func.buffer_map.values()))
    operands = [tir.StringImm("f"), A.access_ptr("r"), 6]
    expected = tir.Evaluate(tir.Call("int32", "tir.call_extern", operands))
    assert_structural_equal(func.body, expected, map_free_vars=True)
    assert_structural_equal(from_source(func.script()), func)


def test_predicates_have_a_lane_for_each_index() -> None:
    A = tir.decl_buffer((30,), "float32", "A")
    wide = T.broadcast(T.float32(1), T.vscale() * 4)
    for mask in (T.broadcast(T.bool(True), 4), T.broadcast(T.bool(True), T.vscale() * 2)):
        with pytest.raises(MisuseError, match="a predicate of vscale times 4 lanes is uint1xvsc"):
            A.vstore([0], wide, mask)
    with pytest.raises(MisuseError, match="a predicate of 4 lanes is uint1x4"):
        A.vstore([0], T.broadcast(T.float32(1), 4), T.broadcast(T.bool(True), 2))


def test_vstore_is_a_statement() -> None:
    A = tir.decl_buffer((8, 8), "float32", "A")
    value = T.Broadcast(T.float32(1), 4)
    expected = tir.BufferStore(A, value, [1, T.Ramp(4, 1, 4)])
    assert_structural_equal(A.vstore([1, 4], value), expected, map_free_vars=True)
    with IRBuilder() as builder:
        builder_T.buffer_store(A, value, [1, T.Ramp(4, 1, 4)])
    assert_structural_equal(builder.get(), expected, map_free_vars=True)
    with pytest.raises(MisuseError, match="dtype mismatch on BufferStore"):
        A.vstore([1, 4], T.int32(1))
    with pytest.raises(MisuseError, match="of rank 0 has no lanes"):
        tir.decl_buffer((), "float32").vstore([], value)
    with pytest.raises(ParseError, match="dtype mismatch on BufferStore"):
        from_source("@T.prim_func\ndef f(A: T.Buffer(4, 'int8')):\n    A.vstore([0], T.int32(1))\n")


def test_strides_may_be_named() -> None:
    @T.prim_func
    def named(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32", strides=("s0", 1), buffer_type="default")
        B = T.match_buffer(b, (4, 4), "float32", strides=["t0", "t1"])
        B[0, 0] = A[0, 0]

    @T.prim_func
    def declared(a: T.handle, b: T.handle):
        n, s0 = T.int64(), T.int64()
        t0, t1 = T.int32(), T.int32()
        A = T.match_buffer(a, (n, 4), "float32", strides=(s0, 1))
        B = T.match_buffer(b, (4, 4), "float32", strides=[t0, t1])
        B[0, 0] = A[0, 0]

    assert_structural_equal(named, declared.with_attr("global_symbol", "named"))
    assert_structural_equal(from_source(named.script()), named)
    check_marks("""
        @T.prim_func
        def main(a: T.handle):
            A = T.match_buffer(a, (4, 4), "float32", strides=("s 0", 1))
            #                                                 ^^^^^ a stride of a buffer is an
            # ... integer, found 's 0'
    """)
