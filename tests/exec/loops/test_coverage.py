"""Compiled kernels run all that the reference evaluator runs: calls, vectors, constants, views."""

import ast
from collections.abc import Iterator

import numpy as np
import pytest

from relaxpy.errors import CompileError, MisuseError, RuntimeCheckError, UnknownPackedFuncError
from relaxpy.exec.api.compile import compile
from relaxpy.exec.numpy import runtime
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.tir import expr as tir, ops, stmt as st
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, ir as I, tir as T
from relaxpy.support import pysource
from tests.exec.loops.support import check, load, methods, source_of
from tests.exec.loops.written import floats, run_row
from tests.rows import sections

rng = np.random.default_rng(3)


@pytest.fixture
def calls() -> Iterator[list[tuple[object, ...]]]:
    """The arguments of calls of packed functions."""
    seen: list[tuple[object, ...]] = []

    def double(array: np.ndarray, number: int) -> None:
        array *= 2
        seen.append((number, type(number)))

    def halve(x: float) -> float:
        seen.append((float(x),))
        return x / 2

    functions = {"test.double": double, "test.halve": halve, "test.name": lambda *a: "text"}
    functions["test.nothing"] = lambda *a: None
    for name, function in functions.items():
        register_func(name, function)
    yield seen
    for name in functions:
        remove_global_func(name)


CALLS = sections("""
--- 1: a packed function is called once between whole steps
def f(A: f32[4, 3], B: f32[4, 3]):
    for i, j in T.grid(4, 3):
        B[i, j] = A[i, j] + f32(1)
    T.evaluate(T.call_packed("test.double", B.data, 7))
    for i, j in T.grid(4, 3):
        B[i, j] = B[i, j] + A[i, j]
# methods: elementwise; single element; elementwise
--- 4: calls are made in the iterations of their loop
def f(A: f32[4], B: f32[4]):
    for i in range(4):
        B[i] = A[i] + B[3 - i]
        T.evaluate(T.call_packed("test.double", B.data, i))
--- 4: an extern function gives a value for each element
def f(A: f32[4], B: f32[4]):
    for i in range(4):
        B[i] = T.call_extern("float32", "test.halve", A[i]) + f32(1)
# reason: calls test.halve
--- 1: a bound call is performed once
def f(A: f32[2]):
    x = T.call_extern("float32", "test.halve", A[0])
    A[0] = x + x
    A[1] = x
--- 0: a function that returns nothing counts as 0
def f(A: f32[2], B: i32[2]):
    for i in range(2):
        A[i] = T.call_packed("test.nothing", i, dtype="float32") + f32(1)
        B[i] = T.call_packed("test.nothing", i) + 1
--- 2: a matched region is passed to a call
def f(A: f32[4, 6]):
    for i in S(2, "tile"):
        R = T.match_buffer(A[vi * 2, 1:5], (4,), "float32", offset_factor=1)
        T.evaluate(T.call_packed("test.double", R.data, vi))
""")


@pytest.mark.parametrize("name", CALLS)
def test_functions_are_called(name: str, calls: list[tuple[object, ...]]) -> None:
    run_row(CALLS[name])
    count, _, _ = name.partition(":")
    assert len(calls) == 3 * int(count)
    assert calls[: int(count)] * 3 == calls
    assert all(kind is int for call in calls for kind in call[1:])


VIEWS = {
    "from an element on": ("(2,), 'int32', data=A.data, elem_offset=3", [3, 4]),
    "every second one": ("(2,), 'int32', data=A.data, elem_offset=3, strides=(2,)", [3, 5]),
    "fewer": ("(2,), 'int32', data=A.data", [0, 1]),
    "another datatype": ("(6,), 'uint32', data=A.data", [0, 1, 2, 3, 4, 5]),
}


def calling_double(view: str, *lines: str) -> IRModule:
    """A module whose kernel `main` has these lines; `double` is for the datatype of `view`."""
    dtype, body = view.split("'")[1], "\n        ".join(lines)
    return from_source(f"""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(var: T.handle):
        n = T.int64()
        X = T.match_buffer(var, (n,), "{dtype}")
        for i in range(n):
            X[i] = X[i] * T.{dtype}(2)

    @T.prim_func
    def main(A: T.Buffer((6,), "int32")):
        {body}
""")


@pytest.mark.rule("EV-27")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize(
    "call",
    [
        "Module.double(V)",
        'T.evaluate(T.call_packed("test.double", V, 0))',
        'T.evaluate(T.call_intrin("int32", "tir.tvm_call_packed", "test.double", V, 0))',
        'T.evaluate(T.tvm_call_packed("test.double", V, 0))',
    ],
)
@pytest.mark.parametrize(("view", "doubled"), VIEWS.values(), ids=VIEWS)
def test_a_call_with_a_view_passes_no_other_elements(target, call, view, doubled, calls) -> None:
    module = calling_double(view, f"V = T.decl_buffer({view})", call)
    array = np.arange(1, 7, dtype="int32")
    compile(module, target)["main"](array)
    assert array.tolist() == [(k + 1) * (2 if k in doubled else 1) for k in range(6)]


MOVED = {
    "rows": ("T.decl_buffer((3,), 'int32', data=A.data, elem_offset=i * 3)", range(6)),
    "columns": ("T.decl_buffer((2,), 'int32', data=A.data, elem_offset=i, strides=(3,))", "0314"),
    "backwards": ("T.decl_buffer((2,), 'int32', data=A.data, elem_offset=4 - i)", "4534"),
    "where elements say": (
        "T.decl_buffer((1,), 'int32', data=A.data, elem_offset=A[5 - i] - 4)",
        "21",
    ),
    "another datatype": ("T.decl_buffer((2,), 'uint32', data=A.data, elem_offset=i * 2)", range(4)),
    "other sizes": ("T.decl_buffer((i + 1,), 'int32', data=A.data, elem_offset=i)", "012"),
}


@pytest.mark.rule("EV-27")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("call", ["Module.double(V)", 'T.call_packed("test.double", V, 0)'])
@pytest.mark.parametrize(("view", "doubled"), MOVED.values(), ids=MOVED)
def test_a_view_that_moves_in_a_loop_is_passed(target, call, view, doubled, calls) -> None:
    lines = "for i in range(2):", f"    V = {view}", f"    T.evaluate({call})"
    module = calling_double(view, *lines)
    array = np.arange(1, 7, dtype="int32")
    expected = array.copy()
    for position in map(int, doubled):
        expected[position] *= 2
    compile(module, target)["main"](array)
    assert array.tolist() == expected.tolist()


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_region_of_a_view_that_moves_is_passed(target: str, calls: list[object]) -> None:
    program = from_source("""
@T.prim_func
def main(A: T.Buffer((4, 6), "float32")):
    for i in range(2):
        V = T.decl_buffer((2, 6), "float32", data=A.data, elem_offset=i * 12)
        with T.block("part"):
            vi = T.axis.spatial(2, i)
            T.reads(V[vi, 1:4])
            T.writes(V[vi, 1:4])
            R = T.match_buffer(V[vi, 1:4], (3,), "float32", offset_factor=1)
            T.evaluate(T.call_packed("test.double", R, 0))
""")
    array = np.ones((4, 6), "float32")
    compile(program, target)["main"](array)
    expected = np.ones((4, 6), "float32")
    expected[[0, 3], 1:4] = 2
    np.testing.assert_array_equal(array, expected)


@pytest.mark.rule("EV-27")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_view_that_leaves_its_memory_is_not_passed(target: str, calls: list[object]) -> None:
    program = from_source("""
@T.prim_func
def main(A: T.Buffer((6,), "int32")):
    for i in range(3):
        V = T.decl_buffer((3,), "int32", data=A.data, elem_offset=i * 3)
        T.evaluate(T.call_packed("test.double", V, 0))
""")
    with pytest.raises(RuntimeCheckError, match=r"buffer V of shape \(3,\) is larger than its"):
        compile(program, target)["main"](np.arange(6, dtype="int32"))
    assert len(calls) == 2


@T.prim_func
def from_another_element(A: T.Buffer((4,), "float32")):
    T.evaluate(T.call_packed("test.double", T.address_of(A[1]), 0))


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_memory_is_passed_from_its_first_element_on(target: str, calls: list[object]) -> None:
    with pytest.raises(CompileError, match=r"T\.address_of\(A\[1\]\).*first element"):
        compile(from_another_element, target)


@T.prim_func
def wrong_result(A: T.Buffer((2,), "float32")):
    A[0] = T.call_extern("float32", "test.name", A[0])


def test_the_result_of_an_external_function_must_be_a_scalar(calls: list[object]) -> None:
    with pytest.raises(
        RuntimeCheckError, match=r"kernel: test\.name returned .*, expected float32"
    ):
        load(wrong_result)(floats(2))


@T.prim_func
def unknown(A: T.Buffer((2,), "float32")):
    T.evaluate(T.call_packed("test.nowhere", A.data))


def test_a_function_that_nobody_registered_is_named() -> None:
    with pytest.raises(UnknownPackedFuncError, match="nowhere"):
        load(unknown)(floats(2))


def test_a_function_of_the_module_is_called_by_its_name() -> None:
    a = decl_buffer([ops.const(2, "int64")], "int32", "A")
    other = GlobalVar("other")
    call = tir.Call("int32", other, (a.data, ops.const(3, "int32")))
    func = PrimFunc([a], st.BufferStore(a, call, [ops.const(1, "int64")]))
    with pytest.raises(CompileError, match="other is called"):
        compile_kernel(func, "kernel")
    tree = compile_kernel(func, "kernel", functions={"other": "the_other"}).tree
    text = pysource.render(ast.Module([tree], []))
    names = {"np": np, "rt": runtime, "the_other": lambda array, n: int(array[0]) + n}
    array = np.array([5, 0], np.int32)
    pysource.load(text, "kernel", names)["kernel"](array)
    assert array.tolist() == [5, 8]


def vector_store(value: tir.PrimExpr, *, mask: tir.PrimExpr | None, buffers: list) -> PrimFunc:
    ramp = tir.Ramp(ops.const(0, "int32"), ops.const(2, "int32"), 4)
    return PrimFunc(buffers, st.BufferStore(buffers[-1], value, [ramp], predicate=mask))


def test_predicated_accesses_happen_where_the_predicate_holds() -> None:
    a, b = (decl_buffer([ops.const(8, "int32")], "float32", n) for n in "AB")
    ramp = tir.Ramp(ops.const(0, "int32"), ops.const(3, "int32"), 4)
    low = tir.LT(ramp, tir.Broadcast(ops.const(8, "int32"), 4))
    value = BufferLoad(a, [ramp], low)
    check(vector_store(value, mask=None, buffers=[a, b]), floats(8), floats(8))
    check(vector_store(value, mask=low, buffers=[a, b]), floats(8), floats(8))
    i = tir.Var("i", "int32")
    store = st.BufferStore(b, BufferLoad(a, [i], i > 3) + 1.0, [i], predicate=i < 6)
    loop = st.For(i, ops.const(0, "int32"), ops.const(8, "int32"), st.ForKind.SERIAL, store)
    check(PrimFunc([a, b], loop), floats(8), floats(8))


def test_shuffles_choose_lanes() -> None:
    a, b = (decl_buffer([ops.const(8, "int32")], "float32", n) for n in "AB")
    ramp = tir.Ramp(ops.const(0, "int32"), ops.const(1, "int32"), 4)
    back = tir.Ramp(ops.const(7, "int32"), ops.const(-1, "int32"), 4)
    picked = tir.Shuffle([a[ramp], a[back]], [6, 0, 3, 4])
    one = tir.Shuffle([a[ramp], a[back]], [5])
    value = tir.Add(picked, tir.Broadcast(one, 4))
    check(vector_store(value, mask=None, buffers=[a, b]), floats(8), floats(8))


def test_all_lanes_are_computed_before_one_is_stored() -> None:
    a = decl_buffer([ops.const(8, "int32")], "float32", "A")
    shifted = tir.Ramp(ops.const(1, "int32"), ops.const(1, "int32"), 4)
    plain = tir.Ramp(ops.const(0, "int32"), ops.const(1, "int32"), 4)
    func = PrimFunc([a], st.BufferStore(a, a[plain] + a[shifted], [shifted]))
    check(func, floats(8))


def test_a_bound_vector_keeps_its_lanes() -> None:
    a = decl_buffer([ops.const(4, "int32")], "float32", "A")
    ramp = tir.Ramp(ops.const(0, "int32"), ops.const(1, "int32"), 4)
    back = tir.Ramp(ops.const(3, "int32"), ops.const(-1, "int32"), 4)
    var = tir.Var("v", "float32x4")
    first = st.BufferStore(a, tir.Broadcast(ops.const(0.0, "float32"), 4), [ramp])
    second = st.BufferStore(a, a[ramp] + var, [back])
    func = PrimFunc([a], st.LetStmt(var, a[ramp], st.SeqStmt((first, second))))
    check(func, floats(4))


@pytest.mark.parametrize("size", [3, 100])
@pytest.mark.parametrize("written", [False, True])
def test_a_constant_is_memory_that_is_filled(size: int, written: bool) -> None:
    data = (rng.standard_normal(size) * 3).astype(np.float32)
    extent = ops.const(size, "int64")
    out = decl_buffer([extent], "float32", "O")
    memory = tir.Var("table", out.data.type_annotation)
    table = decl_buffer([extent], "float32", "table", data=memory)
    i = tir.Var("i", "int64")
    stores: list[st.Stmt] = [st.BufferStore(out, table[i] * 2.0, [i])]
    if written:
        stores.append(st.BufferStore(table, table[i] + 1.0, [i]))
        stores.append(st.BufferStore(out, table[i] + out[i], [i]))
    loop = st.For(i, ops.const(0, "int64"), extent, st.ForKind.SERIAL, st.SeqStmt(tuple(stores)))
    func = PrimFunc([out], st.AllocateConst(memory, "float32", [extent], data, loop))
    assert not any("loop" in m for m in methods(func))
    for _ in range(2):
        check(func, np.zeros(size, np.float32))


COVERAGE = sections("""
--- a buffer may lie anywhere in the memory of another
def f(A: f32[4, 6], B: f32[12]):
    F = T.decl_buffer((10,), "float32", data=A.data, elem_offset=3)
    S = T.decl_buffer((3, 4), "float32", data=A.data, strides=[6, 1], elem_offset=2)
    for i in range(10):
        B[i] = F[i] + T.float32(1)
    for i, j in T.grid(3, 4):
        S[i, j] = S[i, j] * T.float32(2)
--- a view whose offset depends on a loop is an access of the memory
def f(A: f32[4, 6], B: f32[4, 6]):
    for i in range(4):
        R = T.decl_buffer((6,), "float32", data=A.data, elem_offset=i * 6)
        for j in range(6):
            B[i, j] = R[5 - j] + T.float32(1)
# methods: elementwise
--- memory whose shape depends on a loop is allocated in the loop
def f(A: f32[5], B: f32[5]):
    for i in S(5):
        row = T.alloc_buffer((vi + 1,), "float32")
        for j in range(vi + 1):
            row[j] = A[j] + T.float32(1)
        B[vi] = row[vi] + row[0]
# reason: the shape of row is known only here
--- a return inside a loop ends the kernel there
def f(A: f32[6], B: f32[6]) -> T.int32:
    for i in range(6):
        B[i] = A[i]
        if A[i] > T.float32(0):
            T.evaluate(T.ret(i))
    T.evaluate(T.ret(-1))
# args: A=np.float32([-1, -2, 3, 4, -5, 6])
# args: A=-np.ones(6, "float32")
--- an index may be computed by any arithmetic
def f(A: f32[8], B: f32[8]):
    for i in range(8):
        B[i] = A[T.Cast("int32", T.floor(T.Cast("float32", i) * T.float32(0.5)))]
    for i in range(8):
        B[T.bitwise_and(i, 3)] = A[T.shift_right(i, 1)] + T.float32(1)
# args: A=floats(8), B=floats(8)
# memory: 8: m, m
--- an index counted from the end leaves its operand alone
def f(x: i32[5], out: i32[5]):
    for i in S(5):
        out[vi] = T.Select(x[vi] < 0, x[vi] + 7, x[vi]) * 2 + 1
# args: x=ints(-3, -2, -1, 0, 1)
# args: x=ints(0, 1, 2, 3, 4)
# source: rt.wrapped
--- so does one of which those below the range are unchanged
def f(x: i64[5], out: i64[5]):
    for i in S(5):
        out[vi] = T.if_then_else(
            T.Cast("uint64", x[vi]) + T.uint64(7) < T.uint64(7), x[vi] + T.int64(7), x[vi]
        )
# args: x=np.array([-7, -8, -1, 0, 2**63 - 1])
# args: x=np.array([0, 1, 2, 7, 8])
# source: rt.from_end
--- a choice between other sums is not an index
def f(x: i32[5], y: i32[5], out: i32[5]):
    for i in S(5):
        out[vi] = T.Select(x[vi] < 0, y[vi] + 7, x[vi])
# args: x=ints(-2, -1, 0, 1, 2), y=ints(0, 1, 2, 3, 4)
# not source: rt.wrapped
--- rows at several indices are gathered whole
def f(x: f32[4, 5, 6], a: i32[3, 1], b: i64[2], out: f32[3, 2, 6], own: f32[3, 6], to: f32[6, 3]):
    for i, j, k in SSS(3, 2, 6):
        out[vi, vj, vk] = x[a[vi, 0], b[vj], vk] * T.float32(2)
    for i, k in SS(3, 6):
        own[vi, vk] = x[b[0], a[vi, 0], vk]
    for k, i in SS(6, 3):
        to[vk, vi] = x[a[vi, 0], b[1], vk]
# args: a=ints(3, 0, 2).reshape(3, 1), b=np.array([1, 3])
--- columns in blocks are those of the definition
def f(x: f32[16, n], out: f32[16, n]):
    top = T.alloc_buffer((n,), "float32")
    for j, k in SR(n, 16):
        with T.init():
            top[vj] = f32(-1e30)
        top[vj] = T.max(top[vj], x[vk, vj])
    for i, j in SS(16, n):
        out[vi, vj] = T.exp(x[vi, vj] - top[vj]) * T.tanh(x[vi, vj]) + T.sqrt(T.abs(x[vi, vj]))
# args: n=(3, 500)
# source: rt.blocks
--- truth values are stored as numbers
def f(x: f32[4], out: F[4], sums: F[4]):
    for i in S(4):
        out[vi] = T.if_then_else(x[vi] > f32(0), F(1), F(0))
    for i in S(4):
        sums[vi] = T.Select(x[vi] > f32(1), F(1), F(0)) + out[vi]
# with F: f32 | f16 | bf16 | i8 | u64
# args: x=[2, -1, np.nan, 0.5]
# not source: np.where
""")


@pytest.mark.parametrize("fact", COVERAGE)
def test_kernels_run_compiled(fact: str) -> None:
    run_row(COVERAGE[fact])


def realized() -> PrimFunc:
    """B is A plus 1, backwards, through a buffer that is realized, as is B."""
    four = ops.const(4, "int64")
    a, b, c = (decl_buffer([four], "float32", name) for name in "ABC")
    i, j = tir.Var("i", "int64"), tir.Var("j", "int64")
    stores = [
        (i, st.BufferStore(c, BufferLoad(a, [i]) + 1.0, [i])),
        (j, st.BufferStore(b, BufferLoad(c, [3 - j]), [j])),
    ]
    loops = [st.For(var, ops.const(0, "int64"), four, st.ForKind.SERIAL, s) for var, s in stores]
    body: st.Stmt = st.SeqStmt(tuple(loops))
    for buffer in (c, b):
        body = st.BufferRealize(buffer, [Range(0, 4)], ops.const(True), body)
    return PrimFunc([a, b], body)


def test_buffers_may_be_realized() -> None:
    check(realized(), floats(4), floats(4))


def by_pointer() -> PrimFunc:
    out = decl_buffer([ops.const(4, "int64")], "float32", "B")
    memory = tir.Var("p", out.data.type_annotation)
    a = decl_buffer([ops.const(2, "int64")] * 2, "float32", "A", data=memory)
    i, j = tir.Var("i", "int64"), tir.Var("j", "int64")
    store = st.BufferStore(out, a[i, j] + 1.0, [i * 2 + j])
    inner = st.For(j, ops.const(0, "int64"), ops.const(2, "int64"), st.ForKind.SERIAL, store)
    loop = st.For(i, ops.const(0, "int64"), ops.const(2, "int64"), st.ForKind.SERIAL, inner)
    return PrimFunc([memory, out], st.DeclBuffer(a, loop))


def test_memory_may_come_as_a_pointer() -> None:
    check(by_pointer(), floats(6), floats(4))
    with pytest.raises(RuntimeCheckError, match="larger than its memory"):
        load(by_pointer())(floats(3), floats(4))
    memory = floats(6)
    wanted = memory.copy()
    for k in range(4):
        wanted[k + 1] = wanted[k] + 1
    load(by_pointer())(memory, memory[1:5])
    np.testing.assert_array_equal(memory, wanted)


@pytest.mark.parametrize(
    "call", ['tvm_struct_get(A.data, 0, 1, "int64")', "tvm_struct_set(A.data, 0, 1, 3)"]
)
@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
def test_fields_of_the_arrays_of_a_host_are_not_read_or_set(call: str, target: str) -> None:
    text = f'@T.prim_func\ndef f(A: T.Buffer((4,), "float32")):\n    T.evaluate(T.{call})'
    name = call.partition("(")[0]
    with pytest.raises(CompileError, match=rf"the intrinsic tir\.{name} cannot run"):
        compile(from_source(text), target)["f"](np.zeros(4, "float32"))


def test_hardware_intrinsics_are_named_wherever_they_occur() -> None:
    @T.prim_func
    def in_a_condition(X: T.Buffer((3,), "float32")):
        for i in range(3):
            if T.call_intrin("bool", "tir.ptx_ldmatrix", X[i]):
                X[i] = T.float32(0)

    with pytest.raises(CompileError, match="ptx_ldmatrix cannot run on NumPy") as caught:
        source_of(in_a_condition)
    assert caught.value.diagnostics[0].span is not None


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_an_access_pointer_is_an_argument_if_it_is_that_of_the_first_element(target: str) -> None:
    @T.prim_func
    def func(A: T.Buffer((2, 2), "float32"), B: T.Buffer((2, 2), "float32")):
        T.evaluate(T.call_extern("int32", "test.moved", A.access_ptr("r"), B.access_ptr("w")))

    @T.prim_func
    def second(A: T.Buffer((3,), "float32")):
        T.evaluate(T.call_packed("test.moved", A.access_ptr("r", offset=1)))

    @T.prim_func
    def elsewhere(A: T.Buffer((3,), "float32")):
        T.evaluate(T.call_intrin("int32", "tir.ptx_ldmatrix", A.access_ptr("r")))

    register_func("test.moved", lambda a, b: b.__setitem__(..., a), override=True)
    a, b = np.arange(4, dtype="float32").reshape(2, 2), np.zeros((2, 2), "float32")
    compile(func, target)["func"](a, b)
    assert b.tolist() == a.tolist()
    with pytest.raises(CompileError, match="not the address of the first element"):
        compile(second, target)
    with pytest.raises(CompileError, match=r"(ptx_ldmatrix|type_annotation) cannot run"):
        compile(elsewhere, target)


@I.ir_module
class Nested:
    @T.prim_func
    def ninefold(A: T.Buffer((4,), "float32")):
        T.evaluate(Nested.threefold(A.data))
        T.evaluate(Nested.threefold(A.data))

    @T.prim_func
    def threefold(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = A[i] * T.float32(3)

    @T.prim_func
    def twentysevenfold(a: T.handle):
        T.evaluate(Nested.ninefold(a))
        T.evaluate(Nested.threefold(a))


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_kernels_of_a_module_call_each_other(target: str) -> None:
    ex = compile(Nested, target)
    array = np.arange(4, dtype=np.float32)
    ex["ninefold"](array)
    assert array.tolist() == [0, 9, 18, 27]
    array = np.arange(4, dtype=np.float32)
    ex["twentysevenfold"](array)
    assert array.tolist() == [0, 27, 54, 81]
    for wrong in (array[:3], 3, array.astype("int32")):
        with pytest.raises(RuntimeCheckError, match=r"A is float32\[4\], found"):
            ex["twentysevenfold"](wrong)


def test_a_negative_zero_is_stored_as_it_is() -> None:
    @T.prim_func
    def func(x: T.Buffer((2,), "float32"), out: T.Buffer((2,), "float32")):
        for i in range(2):
            with T.block("store"):
                v = T.axis.spatial(2, i)
                out[v] = T.Select(x[v] > T.float32(0), T.float32(1), T.float32(-0.0))

    out = np.zeros(2, "float32")
    load(func)(np.array([1, -1], "float32"), out)
    np.testing.assert_array_equal(np.signbit(out), [False, True])


@T.prim_func
def strange_datatype(A: T.Buffer((2,), "float32")):
    A[0] = T.Cast("float32", T.Cast("int7", A[1]))


@pytest.mark.rule("DT-8")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_datatype_that_cannot_run_is_an_error_at_the_kernel(target: str) -> None:
    with pytest.raises(CompileError, match="'int7' has no NumPy form") as caught:
        compile(strange_datatype, target)["strange_datatype"](floats(2))
    assert caught.value.diagnostic.span == strange_datatype.span


def test_a_packed_function_is_called_by_its_name() -> None:
    for call in (T.call_packed, T.call_cpacked):
        with pytest.raises(MisuseError, match="name of a packed function first, found no argument"):
            call()
        with pytest.raises(MisuseError, match="name of a packed function first, found Buffer A"):
            call(strange_datatype.buffer_map[strange_datatype.params[0]])
