"""Kernels by IRBuilder: every frame and statement of T, beside the text that says the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import BuilderStateError, MisuseError, UnknownAttributeError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source
from relaxpy.script.ir_builder import IRBuilder, tir as T
from tests.rows import sections
from tests.script.marked import rejected
from tests.script.said import built, said


def kernel(build: Callable[[], object], name: str | None = "main") -> tir.PrimFunc:
    """The kernel `main` whose parameters and statements `build` says."""

    def whole() -> None:
        with T.prim_func():
            if name is not None:
                T.func_name(name)
            build()

    found = built(whole)
    assert isinstance(found, tir.PrimFunc)
    return found


def same(found: tir.PrimFunc, text: str) -> None:
    """What was built is what the parser reads in the text, and reads back from its own."""
    assert_structural_equal(found, from_source(f"@T.prim_func\n{text}"))
    assert_structural_equal(from_source(found.script()), found)


def named(name: str, value: Any) -> Any:
    return IRBuilder.name(name, value)


def test_empty_kernel() -> None:
    with IRBuilder() as builder, T.prim_func():
        T.evaluate(0)
    assert_structural_equal(builder.get(), tir.PrimFunc([], tir.Evaluate(0)))


def test_signature_of_a_kernel() -> None:
    def build() -> None:
        n = T.int64()
        T.func_attr({"tir.noalias": True})
        assert T.func_ret("int32") == "int32"
        assert T.arg("n", n) is n
        A = T.arg("A", T.Buffer((n, 4), "int8"))
        b = T.arg("b", T.handle())
        T.arg("p", T.handle("float32", "global"))
        T.arg("w", T.float16)
        B = named("B", T.match_buffer(b, (n,), "float32", elem_offset=0, offset_factor=1))
        T.buffer_store(B, T.cast(A[0, 0], "float32"), [0])
        T.evaluate(T.ret(T.int32(3)))

    found = kernel(build)
    same(
        found,
        """
def main(n: T.int64, A: T.Buffer((n, 4), "int8"), b: T.handle, p: T.handle("float32", "global"),
         w: T.float16) -> T.int32:
    T.func_attr({"tir.noalias": True})
    B = T.match_buffer(b, (n,), "float32", elem_offset=0, offset_factor=1)
    B[0] = T.cast(A[0, 0], "float32")
    return T.int32(3)
""",
    )
    assert [p.name for p in found.params] == ["n", "A", "b", "p", "w"]
    assert [b.name for b in found.buffer_map.values()] == ["A", "B"]


def test_private_kernels_have_no_symbol() -> None:
    with IRBuilder() as builder, T.prim_func(is_private=True):
        T.func_name("main")
    assert dict(builder.get().attrs) == {}

    def build() -> None:
        with T.prim_func(is_private=True):
            T.func_name("main")
            T.func_attr({"global_symbol": "main"})

    with pytest.raises(BuilderStateError, match="private kernel 'main' has a global_symbol"):
        built(build)


SAID = sections("""
--- loops of all kinds
def main(A: T.Buffer((2, 3, 4, 5, 6, 7), "int32")):
    for i in T.serial(2):
        for j in T.parallel(3):
            for k in T.vectorized(4):
                for m in T.unroll(1, 5, annotations={"pragma": 1}):
                    for t in T.thread_binding(6, thread="threadIdx.x"):
                        for last in T.grid(7):
                            A[i, j, k, m, t, last] = i + j
--- buffers at the top are those of the root block
def main(A: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i in range(4):
        with T.sblock("copy"):
            vi = T.axis.S(4, i)
            B[vi] = A[vi]
--- all that is said of a block
def main(A: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 2):
        with T.block("b", no_realize=False):
            vi = T.axis.spatial(8, i)
            vj = T.axis.reduce((0, 4), j * 2)
            vk = T.axis.scan(2, j)
            vl = T.axis.opaque(T.Range(0, 16), i + j)
            T.where(j < 1)
            T.reads(A[vi, 0:4])
            T.writes([A[vi, vj]])
            T.block_attr({"k": 1})
            T.block_attr({"k": 1, "m": "n"})
            D = T.alloc_buffer((4,), "float32", scope="local")
            V = T.match_buffer(A[vi, 0:4], (1, 4), "float32", offset_factor=1)
            D[vj] = V[0, vj]
--- branches, loops and checks
def main(n: T.int32, A: T.Buffer((4,), "int32")):
    assert n > 0, "positive"
    m: T.int32 = n + 1
    if m < 4:
        A[0] = m
    else:
        A[1] = 2
    while A[0] < 4:
        A[0] = A[0] + 1
        break
    if m == 2:
        T.evaluate(T.call_extern("int32", "f", m))
--- memory, threads and annotations
def main():
    bx = T.env_thread("blockIdx.x")
    with T.launch_thread(bx, 4), T.launch_thread("threadIdx.x", 2) as tx:
        with T.allocate([8], "float32", "local", annotations={"k": 1}) as data:
            with T.allocate_const([1, 2], "int32", [2]) as const:
                with T.decl_buffer((8,), "float32", data=data, scope="local") as D:
                    with T.attr(0, "key", 1):
                        with T.decl_buffer((2,), "float32") as E:
                            D[bx + tx] = E[0]
""")


@pytest.mark.parametrize("fact", SAID)
def test_a_kernel_is_what_its_text_says(fact: str) -> None:
    same(said(f"@T.prim_func\n{SAID[fact]}"), SAID[fact])


def test_loops_run_over_any_integers() -> None:
    with IRBuilder() as builder, T.serial(tir.const(128, "uint32")) as i:
        T.evaluate(0)
    assert i.dtype == "uint32"
    zero, extent = tir.const(0, "uint32"), tir.const(128, "uint32")
    expected = tir.For(tir.Var("i", "uint32"), zero, extent, tir.ForKind.SERIAL, tir.Evaluate(0))
    assert_structural_equal(builder.get(), expected)


def matmul() -> None:
    A, B, C = (T.arg(name, T.Buffer((4, 4), "float32")) for name in "ABC")
    with T.grid(4, 4, 4) as (i, j, k), T.block("update"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        with T.init():
            T.buffer_store(C, 0, [vi, vj])
        T.buffer_store(C, C[vi, vj] + A[vi, vk] * B[vk, vj], [vi, vj])


MATMUL = """
def main(A: T.Buffer((4, 4)), B: T.Buffer((4, 4)), C: T.Buffer((4, 4))):
    for i, j, k in T.grid(4, 4, 4):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def test_blocks_and_their_inits() -> None:
    found = kernel(matmul)
    same(found, MATMUL)
    a, b = np.arange(16, dtype="float32").reshape(4, 4), np.eye(4, dtype="float32")[::-1].copy()
    c = np.empty((4, 4), "float32")
    relaxpy.compile(found)["main"](a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_regions_made_real() -> None:
    A = T.Buffer((4, 4), "float32")
    with IRBuilder() as builder, T.realize(A[0:2, 0:4], "shared", True):
        T.evaluate(0)
    bounds = [tir.Range(0, 2), tir.Range(0, 4)]
    real = tir.BufferRealize(A, bounds, tir.const(True, "bool"), tir.Evaluate(0))
    expected = tir.AttrStmt(A, "realize_scope", tir.StringImm("shared"), real)
    assert_structural_equal(builder.get(), expected)
    assert builder.get().script().startswith("with T.realize(buffer[0:2, 0:4]")


def test_lets_bind_the_variable_that_they_are_given() -> None:
    v = T.int32()
    with IRBuilder() as builder, T.LetStmt(3, var=v) as w, T.let(IRBuilder.name("x", T.int32()), v):
        T.evaluate(v + 1)
    assert w is v
    x = tir.Var("x", "int32")
    expected = tir.LetStmt(v, 3, tir.LetStmt(x, v, tir.Evaluate(v + 1)))
    assert_structural_equal(builder.get(), expected)


def test_statements_alone_are_the_result() -> None:
    A, i = T.Buffer((10, 10), "float32"), T.int32()
    with IRBuilder() as builder:
        T.buffer_store(A, 0.25, [0, i])
    value = tir.FloatImm("float32", 0.25)
    assert_structural_equal(builder.get(), tir.BufferStore(A, value, [0, i]))
    with builder:
        T.evaluate(1)
        T.evaluate(2)
    both = tir.SeqStmt([tir.Evaluate(1), tir.Evaluate(2)])
    assert_structural_equal(builder.get(), both)


def test_blocks_alone_are_the_result() -> None:
    with IRBuilder() as builder, T.block("block"):
        T.evaluate(0)
    block = tir.Block([], [], [], "block", tir.Evaluate(0))
    assert_structural_equal(builder.get(), tir.BlockRealize([], True, block))


def test_python_values_stay_what_they_are() -> None:
    with IRBuilder() as builder:
        m, n = T.meta_var(1), T.meta_var(2)
        a, b = T.meta_var([3, 4])
        T.evaluate(m.value + n.value + a.value + b.value)
    assert_structural_equal(builder.get(), tir.Evaluate(10))


def test_frames_entered_by_hand_end_with_the_one_around() -> None:
    def build() -> None:
        with T.prim_func() as function:
            T.func_name("main")
            frame = T.attr(0, "key", 1)
            frame.__enter__()
            function.add_callback(lambda: frame.__exit__(None, None, None))
            T.evaluate(0)

    same(built(build), 'def main():\n    with T.attr(0, "key", 1):\n        T.evaluate(0)')


def test_names_are_set_on_the_very_object() -> None:
    with IRBuilder():
        v, w = T.int32(), T.int32()
        assert IRBuilder.name("v", v) is v
        assert IRBuilder.name_many(["a", "b"], [v, w]) == [v, w]
        assert (v.name, w.name) == ("a", "b")
        A = IRBuilder.name("A", T.Buffer((4,), "float32", offset_factor=2))
        assert (A.name, A.data.name, A.elem_offset.name) == ("A", "A", "A_elem_offset")
        view = IRBuilder.name("view", T.Buffer((2,), "float32", data=A.data))
        assert (view.name, view.data.name) == ("view", "A")
        axis = IRBuilder.name("vi", T.iter_var(T.int32(), (0, 4), "DataPar", ""))
        assert axis.var.name == "vi"
        with pytest.raises(MisuseError, match="expected a variable or a buffer to rename, found 3"):
            IRBuilder.name("x", 3)
        with pytest.raises(MisuseError, match="named by a string, found 3"):
            IRBuilder.name(3, v)
        with pytest.raises(MisuseError, match="1 name for 2 variables"):
            IRBuilder.name_many(["a"], [v, w])


def test_what_was_never_named_has_a_text_all_the_same() -> None:
    found = kernel(matmul)
    assert_structural_equal(from_source(found.script()), found)
    with IRBuilder() as builder, T.prim_func():
        A = T.match_buffer(T.arg("a", T.handle()), (4, 4), "int32")
        with T.grid(4, 4) as (i, j), T.decl_buffer((4,), "int32") as B:
            T.buffer_store(A, B[i] + j, [i, j])
    unnamed = builder.get().with_attr("global_symbol", "main")
    assert_structural_equal(from_source(unnamed.script()), unnamed)


def outside_a_loop() -> None:
    with IRBuilder(), T.prim_func():
        T.evaluate(T.break_loop())


WRONG: list[tuple[str, Callable[[], object]]] = [
    (r"T.axis belongs directly in a block", lambda: T.axis.spatial(4, 0)),
    (r"T.reads belongs in a block", lambda: T.reads()),
    (r"T.where belongs in a block", lambda: T.where(True)),
    (r"T.block_attr belongs in a block", lambda: T.block_attr({"k": 1})),
    (r"T.func_attr belongs at the top of the kernel", lambda: T.func_attr({"k": 1})),
    (r"T.func_name belongs at the top of a kernel", lambda: T.func_name("f")),
    (r"T.func_ret belongs at the top of a kernel", lambda: T.func_ret("int32")),
    (r"T.arg belongs at the top of a kernel", lambda: T.arg("x", T.int32())),
    (r"a parameter is matched at the top", lambda: T.match_buffer(T.handle(), (4,), "float32")),
    (r"T.alloc_buffer belongs in a block", lambda: T.alloc_buffer((4,), "float32")),
    (r"break is outside of a loop", outside_a_loop),
    (r"is not a result of T.env_thread", lambda: T.launch_thread(T.int32(), 4).__enter__()),
    (r"T.init belongs directly in a block", lambda: T.init().__enter__()),
    (r"with T.Then belongs directly in with T.If", lambda: T.Then().__enter__()),
    (r"with T.Else belongs directly in with T.If", lambda: T.Else().__enter__()),
    (r"a kernel cannot be inside a loop of a kernel", lambda: T.prim_func().__enter__()),
]


@pytest.mark.parametrize(("message", "say"), WRONG)
def test_what_stands_where_it_cannot(message: str, say: Callable[[], object]) -> None:
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        with T.serial(4):
            with rejected(BuilderStateError, message):
                say()
            T.evaluate(0)
    same(builder.get(), "def main():\n    for i in range(4):\n        T.evaluate(0)")


def test_what_is_said_twice() -> None:
    with IRBuilder(), T.prim_func():
        with pytest.raises(MisuseError, match="the name of a function is a string, found 3"):
            T.func_name(3)
        T.func_name("f")
        with pytest.raises(BuilderStateError, match="already has the name 'f'"):
            T.func_name("g")
        T.func_ret(None)
        T.func_ret(T.int32)
        with pytest.raises(BuilderStateError, match="returns int32 already"):
            T.func_ret("int64")
        x = T.arg("x", T.int32())
        with pytest.raises(BuilderStateError, match="is a parameter already"):
            T.arg("y", x)
        T.func_attr({"k": 1})
        with pytest.raises(MisuseError, match="attribute k is set twice"):
            T.func_attr({"k": 2})
        with T.block("b"):
            T.reads()
            with pytest.raises(BuilderStateError, match=r"T\.reads occurs twice"):
                T.reads()
            T.where(True)
            with pytest.raises(BuilderStateError, match=r"T\.where occurs twice"):
                T.where(True)
            T.block_attr({"k": 1})
            with pytest.raises(BuilderStateError, match="'k' is 1 and 2 at once"):
                T.block_attr({"k": 2})
            with T.init():
                T.evaluate(0)
            with pytest.raises(BuilderStateError, match=r"T\.init occurs twice"), T.init():
                pass


def empty() -> None:
    with T.If(T.int32() > 0):
        pass


def a_statement() -> None:
    with T.If(T.int32() > 0):
        T.evaluate(0)


def a_loop() -> None:
    with T.If(T.int32() > 0), T.serial(4):
        pass


def one_branch_twice() -> None:
    with T.If(T.int32() > 0):
        with T.Then():
            pass
        with T.Then():
            pass


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (empty, r"with T\.If contains no with T\.Then\(\):(\n|$)"),
        (a_statement, r"contains with T\.Then\(\): and optionally with T\.Else\(\):(\n|$)"),
        (a_loop, r"contains with T\.Then\(\): and optionally with T\.Else\(\):(\n|$)"),
        (one_branch_twice, r"with T\.If contains with T\.Then\(\) twice(\n|$)"),
    ],
)
def test_branches_and_nothing_else_stand_in_an_if(build, message) -> None:
    with IRBuilder() as builder:
        with rejected(BuilderStateError, message):
            build()
        T.evaluate(3)
    assert_structural_equal(builder.get(), tir.Evaluate(3))


def test_parameters_are_scalars_handles_and_buffers() -> None:
    with IRBuilder(), T.prim_func():
        with pytest.raises(MisuseError, match="a buffer, a handle or a scalar, found 3"):
            T.arg("x", 3)
        with pytest.raises(MisuseError, match="a kernel returns a scalar datatype, found 3"):
            T.func_ret(3)
        with pytest.raises(MisuseError, match="unknown dtype"):
            T.func_ret("flaot")


def test_the_namespace_is_that_of_texts() -> None:
    assert T.exp(T.float32(1.0)).dtype == "float32"
    assert T.int8(3).dtype == "int8"
    assert {"serial", "int64x4", "exp", "prim_func", "arg", "func_ret"} <= set(T.__all__)
    with pytest.raises(UnknownAttributeError, match="T has no attribute 'nothing'"):
        _ = T.nothing
    with pytest.raises(UnknownAttributeError, match=r"T\.macro is for parsed programs only"):
        _ = T.macro


def test_what_an_error_leaves_says_nothing_of_the_kernel() -> None:
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        A = T.arg("A", T.Buffer((4,), "float32"))
        with pytest.raises(LookupError), T.block("lost"):
            raise LookupError
        T.buffer_store(A, 1.0, [0])
    same(
        builder.get(),
        """
def main(A: T.Buffer((4,), "float32")):
    A[0] = T.float32(1)
""",
    )


def test_parameters_that_have_names_keep_them() -> None:
    n = tir.Var("n", "int32")
    buffer = tir.decl_buffer((n,), "float32", "B")
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        T.arg("A", buffer)
        T.arg("m", n)
        T.evaluate(buffer[0])
    assert [p.name for p in builder.get().params] == ["A", "n"]
    assert (n.name, buffer.name, buffer.data.name) == ("n", "B", "B")


def test_python_does_not_iterate_over_loops() -> None:
    with IRBuilder(), T.prim_func():
        loop = T.serial(4)
        with pytest.raises(MisuseError, match="cannot iterate over a loop of a kernel"):
            list(loop)
        with loop:
            T.evaluate(0)
