import re

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.exec.reference.kernel import check_supported, run_prim_func
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt as st
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.script import from_source, tir as T
from tests.exec.kernels import buffer, elementwise, matmul, nest, prim_func, rooted, size_var
from tests.exec.loops.support import check, load
from tests.exec.loops.written import kernel
from tests.rows import sections, table

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


KERNELS = sections("""
--- the predicate of a block guards it
def f(O: i32[10]):
    for i in range(3):
        with T.block("b"):
            v = T.axis.spatial(10, i * 4)
            T.where(i * 4 < 10)
            O[v] = 7
# [0] * 10 => O [7, 0, 0, 0, 7, 0, 0, 0, 7, 0]
--- while, break and continue
def f(O: i32[6], C: i32[1]):
    for i in range(6):
        if i == 2:
            continue
        if i == 4:
            break
        O[i] = 1
    while C[0] < 5:
        C[0] = C[0] + 1
# [0] * 6, [0] => O [1, 1, 0, 1, 0, 0]
# [0] * 6, [0] => C [5]
--- let, if and assert
def f(A: i32[1]):
    assert A[0] >= 0, "no debts"
    t: T.int32 = A[0] + 1
    if t > 5:
        A[0] = t
    else:
        A[0] = t * t
# [7] => A [8]
# [2] => A [9]
# [-1] => f: no debts
--- scratch buffers and views of regions
def f(A: i32[3, 2], O: i32[3, 2]):
    for i in range(3):
        with T.block("b"):
            row = T.alloc_buffer((2,), "int32")
            view = T.match_buffer(O[i, 0:2], (2,), "int32", offset_factor=1)
            for j in range(2):
                row[j] = A[i, j] + 1
            for j in range(2):
                view[j] = row[j]
# [[0, 1], [2, 3], [4, 5]], [[0, 0]] * 3 => O [[1, 2], [3, 4], [5, 6]]
--- a buffer declared over memory is a view of it
def f(A: i32[2, 3]):
    flat = T.decl_buffer((6,), "int32", data=A.data)
    bits = T.decl_buffer((5,), "uint32", data=A.data, elem_offset=1)
    for i in range(6):
        flat[i] = flat[i] * 2
    bits[0] = T.uint32(9)
# [[0, 1, 2], [3, 4, 5]] => A [[0, 9, 4], [6, 8, 10]]
--- allocated memory and accesses of vectors
def f(O: i32[8]):
    data = T.allocate([8], "int32")
    scratch = T.decl_buffer((8,), "int32", data=data)
    scratch[T.Ramp(0, 2, 4)] = T.Broadcast(5, 4)
    scratch[T.Ramp(1, 2, 4)] = T.Broadcast(1, 4)
    O[T.Ramp(0, 2, 4)] = scratch[T.Ramp(0, 2, 4)]
    first = T.Ramp(0, 2, 4) < T.Broadcast(4, 4)
    O.vstore([T.Ramp(1, 2, 4)], scratch[T.Ramp(1, 2, 4)], predicate=first)
# [0] * 8 => O [5, 1, 5, 1, 5, 0, 5, 0]
--- an index before a buffer
def f(A: i32[3]):
    A[0] = A[-1]
# [0] * 3 => f: index -1 is outside dimension 0 of buffer A, which has size 3
--- an index after a buffer
def f(A: i32[3]):
    A[0] = A[3]
# [0] * 3 => f: index 3 is outside dimension 0 of buffer A, which has size 3
--- division by zero
def f(A: i32[2]):
    A[0] = A[0] // A[1]
# [4, 2] => A [2, 2]
# [4, 0] => division by zero
--- memory allocated in a loop is new for all its buffers
def f(O: i32[2]):
    for i in range(2):
        data = T.allocate([1], "int32")
        signed = T.decl_buffer((1,), "int32", data=data)
        bits = T.decl_buffer((1,), "uint32", data=data)
        signed[0] = i - 1
        if i > 0:
            O[i] = T.Cast("int32", bits[0] + T.uint32(7))
        else:
            O[i] = signed[0]
# [0, 0] => O [-1, 7]
""")


@pytest.mark.parametrize("fact", KERNELS)
def test_a_kernel_does_what_its_text_says(fact: str) -> None:
    """Lines after a kernel say what it makes of its arguments, or its error."""
    text, *lines = re.split("^# ", KERNELS[fact], flags=re.MULTILINE)
    func = kernel(text)
    buffers = [func.buffer_of(param) for param in func.params]
    for given, result in table("".join(lines)):
        arrays = [
            np.array(x, b.dtype.numpy()) for x, b in zip(eval(f"[{given}]"), buffers, strict=True)
        ]
        name, _, values = result.partition(" ")
        if values[:1] != "[":
            with pytest.raises(RuntimeCheckError, match=result):
                run_prim_func(func, tuple(arrays))
            continue
        check(func, *arrays)
        run_prim_func(func, tuple(arrays))
        found = dict(zip([b.name for b in buffers], arrays, strict=True))
        assert found[name].tolist() == eval(values)


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
def test_a_block_without_rounds_begins_and_a_plain_loop_does_nothing(func, left, target) -> None:
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
def test_a_scalar_of_another_datatype_is_named(args, message, target) -> None:
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


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
@pytest.mark.parametrize("message", ["", ', "no debts"', ', ""'])
def test_an_assertion_that_fails_has_its_message_on_all_targets(message: str, target: str) -> None:
    func = from_source(f"""
@T.prim_func
def f(A: T.Buffer((1,), "int32")):
    assert A[0] >= 0{message}
    A[0] = 1
""")
    expected = {"": "assertion failed"}.get(message, message[3:-1])
    with pytest.raises(RuntimeCheckError, match=f"f: {expected}\n"):
        relaxpy.compile(func, target=target)["f"](np.full(1, -1, "int32"))
