import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.exec.reference.kernel import run_prim_func
from relaxpy.exec.reference.support import check_supported
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt as st
from relaxpy.ir.tir.buffer import BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import tir as T
from tests.exec.kernel.support import check, load
from tests.exec.kernels import buffer, elementwise, matmul, nest, prim_func, rooted, size_var

TRUE = tir.IntImm("bool", 1)


def const(value: int, dtype: str = "int64") -> tir.PrimExpr:
    return tir.IntImm(dtype, value)


def loop(var: tir.Var, extent: tir.ExprLike, body: st.Stmt, start: int = 0) -> st.For:
    return st.For(var, const(start), extent, st.ForKind.SERIAL, body)


def test_a_reduction_with_init_is_a_matrix_product() -> None:
    n, k, m = size_var("n"), size_var("k"), size_var("m")
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (3, 5)), rng.integers(-4, 5, (5, 2))
    out = np.full((3, 2), np.nan, "float32")
    run_prim_func(matmul(n, k, m), (a.astype("float32"), b.astype("float32"), out))
    np.testing.assert_array_equal(out, a @ b)


def test_elementwise_over_views_with_any_strides() -> None:
    func = elementwise((2, 3), lambda x: x * 2.0)
    a = np.arange(12, dtype="float32").reshape(3, 4)[:, :2].T
    out = np.zeros((3, 2), "float32").T
    run_prim_func(func, (a, out))
    np.testing.assert_array_equal(out, a * 2)


def test_the_predicate_of_a_block_guards_it() -> None:
    out = buffer((10,), "O", "int32")
    i, v = tir.Var("i", "int64"), tir.Var("v", "int64")
    block = st.Block(
        (IterVar(Range(10), v, tir.IterVarKind.DataPar),), (), (), "b", out_store(out, v)
    )
    realize = st.BlockRealize((i * 4,), ops.compare(tir.LT, i * 4, 10), block)
    array = np.zeros(10, "int32")
    run_prim_func(prim_func([out], loop(i, const(3), realize)), (array,))
    assert array.tolist() == [7, 0, 0, 0, 7, 0, 0, 0, 7, 0]


def out_store(out: object, index: tir.PrimExpr) -> st.Stmt:
    return st.BufferStore(out, tir.IntImm("int32", 7), (index,))  # type: ignore[arg-type]


def test_while_break_and_continue() -> None:
    out, count = buffer((6,), "O", "int32"), buffer((1,), "C", "int32")
    i = tir.Var("i", "int64")
    body = st.SeqStmt(
        (
            st.IfThenElse(tir.EQ(i, const(2)), st.Evaluate(intrin.continue_loop())),
            st.IfThenElse(tir.EQ(i, const(4)), st.Evaluate(intrin.break_loop())),
            st.BufferStore(out, const(1, "int32"), (i,)),
        )
    )
    one = const(1, "int32")
    again = st.While(
        tir.LT(count[0], const(5, "int32")),
        st.BufferStore(count, tir.Add(count[0], one), (const(0),)),
    )
    func = prim_func([out, count], st.SeqStmt((loop(i, const(6), body), again)))
    array, counter = np.zeros(6, "int32"), np.zeros(1, "int32")
    run_prim_func(func, (array, counter))
    assert array.tolist() == [1, 1, 0, 1, 0, 0]
    assert counter[0] == 5


def test_let_if_and_assert() -> None:
    a = buffer((1,), "A", "int32")
    t = tir.Var("t", "int32")
    body = st.LetStmt(
        t,
        a[0] + 1,
        st.IfThenElse(
            tir.GT(t, const(5, "int32")),
            st.BufferStore(a, t, (const(0),)),
            st.BufferStore(a, tir.Mul(t, t), (const(0),)),
        ),
    )
    guarded = st.AssertStmt(tir.GE(a[0], const(0, "int32")), tir.StringImm("no debts"), body)
    func = prim_func([a], guarded, "f")
    array = np.array([7], "int32")
    run_prim_func(func, (array,))
    assert array[0] == 8
    array[0] = 2
    run_prim_func(func, (array,))
    assert array[0] == 9
    with pytest.raises(RuntimeCheckError, match="f: assertion failed: no debts"):
        run_prim_func(func, (np.array([-1], "int32"),))


@pytest.mark.rule("EV-27")
def test_ret_gives_the_value_and_ends_the_kernel() -> None:
    x = tir.Var("x", "int32")
    func = prim_func(
        [x],
        st.SeqStmt(
            (
                st.IfThenElse(tir.GT(x, const(0, "int32")), st.Evaluate(intrin.ret(tir.Mul(x, x)))),
                st.Evaluate(intrin.ret(const(-1, "int32"))),
            )
        ),
        ret_type="int32",
    )
    result = run_prim_func(func, (3,))
    assert result == 9
    assert type(result) is np.int32
    assert run_prim_func(func, (-3,)) == -1


def test_scratch_buffers_and_views_of_regions() -> None:
    a, out = buffer((4, 4), "A"), buffer((4, 4), "O")
    row, column = buffer((4,), "row"), size_var("j")
    view = decl_buffer([const(4)], "float32", "view", elem_offset=tir.Var("off", "int64"))
    i, j = size_var("i"), size_var("k")
    copy = loop(j, const(4), st.BufferStore(row, a[i, j] + 1.0, (j,)))
    write = loop(column, const(4), st.BufferStore(view, row[column], (column,)))
    block = st.Block(
        (),
        (),
        (),
        "b",
        st.SeqStmt((copy, write)),
        alloc_buffers=(row,),
        match_buffers=(
            st.MatchBufferRegion(
                view, BufferRegion(out, (Range.point(i), Range(const(0), const(4))))
            ),
        ),
    )
    func = prim_func([a, out], loop(i, const(4), st.BlockRealize((), TRUE, block)))
    array, result = np.arange(16, dtype="float32").reshape(4, 4), np.zeros((4, 4), "float32")
    run_prim_func(func, (array, result))
    np.testing.assert_array_equal(result, array + 1)


def test_a_buffer_declared_over_memory_is_a_view_of_it() -> None:
    a = buffer((2, 3), "A", "int32")
    flat = decl_buffer([const(6)], "int32", "flat", data=a.data)
    bits = decl_buffer([const(5)], "uint32", "bits", data=a.data, elem_offset=const(1))
    i = size_var("i")
    double = loop(i, const(6), st.BufferStore(flat, flat[i] * 2, (i,)))
    shift = st.BufferStore(bits, tir.IntImm("uint32", 9), (const(0),))
    func = prim_func([a], st.DeclBuffer(flat, st.SeqStmt((double, st.DeclBuffer(bits, shift)))))
    array = np.arange(6, dtype="int32").reshape(2, 3)
    run_prim_func(func, (array,))
    assert array.tolist() == [[0, 9, 4], [6, 8, 10]]


def test_allocated_memory_and_vector_accesses() -> None:
    out = buffer((8,), "O", "int32")
    data = tir.Var("scratch", PointerType(PrimType("int32")))
    scratch = decl_buffer([const(8)], "int32", "scratch", data=data)
    ramp = tir.Ramp(const(0), const(2), 4)
    odd = tir.Ramp(const(1), const(2), 4)
    lanes = tir.Broadcast(const(5, "int32"), 4)
    mask = tir.Call("boolx4", "tir.likely", (tir.LT(ramp, tir.Broadcast(const(4), 4)),))
    body = st.SeqStmt(
        (
            st.BufferStore(scratch, lanes, (ramp,)),
            st.BufferStore(scratch, tir.Broadcast(const(1, "int32"), 4), (odd,)),
            st.BufferStore(out, BufferLoad(scratch, (ramp,)), (ramp,)),
            st.BufferStore(out, BufferLoad(scratch, (odd,)), (odd,), predicate=mask),
        )
    )
    func = prim_func([out], st.Allocate(data, "int32", (const(8),), TRUE, body))
    array = np.zeros(8, "int32")
    run_prim_func(func, (array,))
    assert array.tolist() == [5, 1, 5, 1, 5, 0, 5, 0]


def test_symbolic_strides_are_read_from_the_array() -> None:
    s, n = size_var("s"), size_var("n")
    a = decl_buffer([n, const(2)], "float32", "A", strides=[s, const(1)])
    out = buffer((1,), "O", "int64")
    func = prim_func([a, out], st.BufferStore(out, s, (const(0),)))
    result = np.zeros(1, "int64")
    run_prim_func(func, (np.zeros((3, 5), "float32")[:, :2], result))
    assert result[0] == 5


def test_a_kernel_calls_packed_functions_with_its_memory() -> None:
    a = buffer((3,), "A", "int32")

    @register_func("test.fill")
    def fill(array: np.ndarray, value: int) -> None:
        array[...] = value

    try:
        call = intrin.call_packed("test.fill", a, const(4, "int32"))
        array = np.zeros(3, "int32")
        run_prim_func(prim_func([a], st.Evaluate(call)), (array,))
    finally:
        remove_global_func("test.fill")
    assert array.tolist() == [4, 4, 4]


def test_a_kernel_calls_another_function_of_the_module() -> None:
    other = rx.GlobalVar("other")
    a = buffer((2,), "A", "int32")
    seen = []
    call = tir.Call("void", other, (a.data, const(3)))
    func = prim_func([a], st.Evaluate(call))
    array = np.zeros(2, "int32")
    run_prim_func(func, (array,), call_global=lambda var, args: seen.append((var, args)))
    assert seen == [(other, (array, 3))]


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_the_buffer_is_named(index: int) -> None:
    a = buffer((3,), "A")
    func = prim_func([a], st.BufferStore(a, a[const(index)], (const(0),)), "f")
    with pytest.raises(
        RuntimeCheckError,
        match=f"f: index {index} is outside dimension 0 of buffer A, which has size 3",
    ):
        run_prim_func(func, (np.zeros(3, "float32"),))


@pytest.mark.rule("EV-27", "FN-11")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros((2, 3), "float32"),), "takes 2 arguments, found 1"),
        ((np.zeros((2, 3), "float32"), 1), r"O is float32\[n, m\], found int \[EV-27\]"),
        ((np.zeros((2, 3)), np.zeros((2, 3), "float32")), r"A0 is float32.* found float64\[2, 3\]"),
        ((np.zeros(2, "float32"), np.zeros((2, 3), "float32")), r"A0 is .* \[EV-27\]"),
        (
            (np.zeros((2, 3), "float32"), np.zeros((2, 4), "float32")),
            r"O is .*\[2, 4\]: dimension 1 should be m = 3",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(args: tuple[object, ...], message: str) -> None:
    func = elementwise((size_var("n"), size_var("m")), lambda x: x, "copy")
    with pytest.raises(RuntimeCheckError, match=message):
        run_prim_func(func, args)


def test_integer_division_by_zero_in_a_kernel_is_an_error() -> None:
    func = elementwise((2,), lambda x, y: tir.FloorDiv(x, y), inputs=2, dtype="int32")
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        run_prim_func(func, tuple(np.zeros((3, 2), "int32")))


def test_memory_that_cannot_be_written_is_named() -> None:
    func = elementwise((2,), lambda x: x, "copy")
    out = np.zeros(2, "float32")
    out.flags.writeable = False
    with pytest.raises(RuntimeCheckError, match="copy: the memory of buffer O is read-only"):
        run_prim_func(func, (np.zeros(2, "float32"), out))


def test_scratch_memory_is_never_zero_by_chance() -> None:
    scratch, out = buffer((2,), "S"), buffer((2,), "O")
    body = rooted(nest((2,), lambda i: st.BufferStore(out, scratch[i], (i,))), [scratch])
    array = np.zeros(2, "float32")
    run_prim_func(prim_func([out], body), (array,))
    assert np.isnan(array).all()


def test_hardware_intrinsics_are_named_when_compiling() -> None:
    a = buffer((1,), "A")
    func = prim_func([a], st.Evaluate(tir.Call("void", "tir.ptx_wait_group", (0,))))
    with pytest.raises(CompileError, match=r"tir\.ptx_wait_group cannot run here \(in kernel\)"):
        check_supported(func, "kernel")
    check_supported(matmul(2, 2, 2), "matmul")


@T.prim_func
def row_sums(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i, j in T.grid(n, m):
        with T.block("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vj]


@T.prim_func
def first_then_sum(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i, j in T.grid(n, m):
        if j == 0:
            B[i] = T.float32(0)
        B[i] = B[i] + A[i, j]


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize(("func", "left"), [(row_sums, 0.0), (first_then_sum, 7.0)])
def test_a_block_without_rounds_begins_and_a_plain_loop_does_nothing(
    func: PrimFunc, left: float, target: str
) -> None:
    out = np.full(3, 7, "float32")
    relaxpy.compile(func, target)[func.attrs["global_symbol"]](np.ones((3, 0), "float32"), out)
    np.testing.assert_array_equal(out, np.full(3, left))


@T.prim_func
def scaled(A: T.Buffer((2,), "float32"), times: T.int8, on: T.bool, by: T.float16):
    for i in range(2):
        if on:
            A[i] = A[i] * T.Cast("float32", times) * T.Cast("float32", by)


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((float("inf"), True, 1.0), "times is an int8, found inf"),
        ((2.5, True, 1.0), "times is an int8, found 2.5"),
        ((128, True, 1.0), "times is an int8, found 128"),
        ((np.str_("2"), True, 1.0), "times is an int8, found str_"),
        ((2, 2, 1.0), "on is a bool, found 2"),
        ((2, True, 1e10), "by is a float16, found 1"),
        ((2, True, np.complex64(1)), "by is a float16, found complex64"),
    ],
)
def test_a_scalar_of_another_datatype_is_named(
    args: tuple[object, ...], message: str, target: str
) -> None:
    run = load(scaled) if target == "numpy" else lambda *given: run_prim_func(scaled, given)
    with pytest.raises(RuntimeCheckError, match=message):
        run(np.ones(2, "float32"), *args)


@pytest.mark.parametrize("args", [(3.0, np.True_, 0.5), (np.uint64(3), 1, np.array(0.5))])
def test_a_scalar_of_its_datatype_may_come_as_another(args: tuple[object, ...]) -> None:
    check(scaled, np.ones(2, "float32"), *args)


def test_a_loop_that_stands_twice_has_memory_of_its_own_twice() -> None:
    out, row = buffer((4,), "O"), buffer((3,), "row")
    i, j = size_var("i"), size_var("j")
    fill = loop(j, const(3), st.BufferStore(row, out[i] + ops.cast_to(j, "float32"), (j,)))
    body = st.SeqStmt((fill, st.BufferStore(out, row[2] * 2.0, (i,))))
    block = st.Block((), (), (), "b", body, alloc_buffers=(row,))
    twice = loop(i, const(4), st.BlockRealize((), TRUE, block))
    check(prim_func([out], st.SeqStmt((twice, twice))), np.arange(4, dtype="float32"))


def test_memory_allocated_in_a_loop_is_new_for_all_its_buffers() -> None:
    out = buffer((2,), "O", "int32")
    data = tir.Var("scratch", PointerType(PrimType("int32")))
    signed, bits = (decl_buffer([const(1)], d, d, data=data) for d in ("int32", "uint32"))
    i = size_var("i")
    body = st.SeqStmt(
        (
            st.BufferStore(signed, ops.cast_to(i, "int32") - 1, (const(0),)),
            st.IfThenElse(
                ops.convert(i > 0),
                st.BufferStore(out, ops.cast_to(bits[0] + 7, "int32"), (i,)),
                st.BufferStore(out, signed[0], (i,)),
            ),
        )
    )
    allocated = st.Allocate(data, "int32", (const(1),), TRUE, body)
    func = prim_func([out], loop(i, const(2), allocated))
    array = np.zeros(2, "int32")
    run_prim_func(func, (array,))
    assert array.tolist() == [-1, 7]
    check(func, np.zeros(2, "int32"))
