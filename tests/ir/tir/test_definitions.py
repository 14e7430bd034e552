"""Variables of kernels: defined where they are used, and in one place."""

import pytest

from relaxpy import IRModule, tir
from relaxpy.errors import MisuseError, WellFormedError
from relaxpy.script import from_source, relax as R, tir as T
from relaxpy.tir.analysis import verify_well_formed
from relaxpy.tvm.tir.facts import renew_defs
from tests.ir.relax.graphs import at
from tests.script.marked import check_marks

N = tir.Var("n", "int32")
PASS = tir.Evaluate(0)


def kernel(body: tir.Stmt, *params: tir.Var, **buffers: tir.Buffer) -> tir.PrimFunc:
    handles = {tir.Var(name, "handle"): buffer for name, buffer in buffers.items()}
    return tir.PrimFunc([*params, *handles], body, buffer_map=handles)


def faults(func: tir.PrimFunc) -> list[str]:
    if verify_well_formed(func, assert_mode=False):
        assert verify_well_formed(func)
        return []
    with pytest.raises(WellFormedError) as caught:
        verify_well_formed(func)
    return [f"{d.message} [{d.rule}]" if d.rule else d.message for d in caught.value.diagnostics]


def loop(var: tir.Var, body: tir.Stmt, extent: object = 4) -> tir.For:
    return tir.For(var, 0, extent, tir.ForKind.SERIAL, body)


@T.prim_func
def everything(a: T.handle, b: T.handle, n: T.int32, w: T.Buffer((4,), "float32")):
    m, s, o = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (m, n), "float32", strides=[s, 1], elem_offset=o, offset_factor=1)
    B = T.match_buffer(b, (m * n,), "float32")
    C = T.alloc_buffer((m,), "float32")
    tx = T.env_thread("threadIdx.x")
    for i, j in T.grid(m, n):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            s0, o0 = T.int32(), T.int32()
            T.reads(A[vi, 0:n])
            T.writes(B[vi], C[vi])
            V = T.match_buffer(A[vi, 0:n], (1, n), strides=[s0, 1], elem_offset=o0, offset_factor=1)
            C[vi] = V[0, vj] + s0 + o0 + s + o
            B[vi] = w[0] + T.Let(vj + 1.0, where={vj: vi}) if False else w[0]
    with T.launch_thread(tx, m):
        D = T.decl_buffer((m,), "float32")
        x = tx + 1
        D[x] = T.float32(0)
        data = T.allocate([m], "float32")
        E = T.decl_buffer((m,), "float32", data=data)
        E[x] = D[x]
    with T.launch_thread(tx, n):
        T.evaluate(tx)
    for t in T.thread_binding(m, thread="threadIdx.y"):
        with T.realize(B[0:4], "global"):
            T.evaluate(t)


def test_what_each_statement_defines() -> None:
    assert faults(everything) == []


def test_sizes_are_defined_by_buffers_of_parameters() -> None:
    A = tir.decl_buffer((N, 4), "float32", "A", elem_offset=tir.Var("o", "int32"))
    assert faults(kernel(tir.Evaluate(N + A.elem_offset), A=A)) == []
    undefined = "a variable is used without a definition: 'n' [PX-7]"
    assert faults(kernel(tir.Evaluate(N))) == [undefined]
    assert faults(kernel(PASS, A=tir.decl_buffer((N * 2,), "float32", "A"))) == []
    assert faults(kernel(tir.Evaluate(N), A=tir.decl_buffer((N * 2,), "float32"))) == [undefined]


def test_variables_end_with_what_defines_them() -> None:
    i = tir.Var("i", "int32")
    python_function_of = tir.SeqStmt([loop(i, tir.Evaluate(i)), tir.Evaluate(i)])
    assert faults(kernel(python_function_of)) == [
        "a variable is used after the end of its scope: 'i' [PX-7]"
    ]
    x = tir.Var("x", "int32")
    assert faults(kernel(tir.LetStmt(x, x + 1, tir.Evaluate(x)))) == [
        "a variable is used without a definition: 'x' [PX-7]"
    ]
    assert faults(kernel(loop(i, PASS, i + 1))) == [
        "a variable is used without a definition: 'i' [PX-7]"
    ]
    y = tir.Var("y", "int32")
    expr = tir.Let(y, 3, y + 1)
    assert faults(kernel(tir.Evaluate(expr + expr))) == []
    k = tir.IterVar((0, 4), "k", tir.IterVar.CommReduce)
    add = T.comm_reducer(lambda a, b: a + b, [0])
    both = T.Reduce(add, [k.var], [k], True, 0) + T.Reduce(add, [k.var * 2], [k], True, 0)
    assert faults(kernel(tir.Evaluate(both))) == []
    assert faults(kernel(tir.Evaluate(tir.Let(y, 3, y + 1) + y))) == [
        "a variable is used after the end of its scope: 'y' [PX-7]"
    ]


def test_a_fault_is_in_the_innermost_statement_that_has_a_position() -> None:
    body = tir.SeqStmt([PASS, tir.Evaluate(N)])
    around = tir.For(tir.Var("i", "int32"), 0, 4, tir.ForKind.SERIAL, body, span=at(3))
    with pytest.raises(WellFormedError) as caught:
        verify_well_formed(kernel(around))
    assert [fault.span for fault in caught.value.diagnostics] == [at(3)]


def test_one_place_defines_a_variable() -> None:
    i = tir.Var("i", "int32")
    twice = "two places define the variable 'i'"
    assert faults(kernel(loop(i, loop(i, PASS)))) == [twice]
    assert faults(kernel(tir.SeqStmt([loop(i, PASS), loop(i, PASS)]))) == [twice]
    assert faults(kernel(loop(i, PASS), i)) == [twice]


def test_several_variables_may_be_the_same_hardware_index() -> None:
    def bound(var: tir.Var, body: tir.Stmt) -> tir.Stmt:
        axis = tir.IterVar((0, 4), var, tir.IterVar.ThreadIndex, "threadIdx.x")
        return tir.AttrStmt(axis, "thread_extent", 4, body)

    s, t = tir.Var("s", "int32"), tir.Var("t", "int32")
    assert faults(kernel(tir.SeqStmt([bound(s, PASS), bound(t, PASS), bound(s, PASS)]))) == []
    inside = tir.SeqStmt([bound(s, PASS), tir.Evaluate(s)])
    assert faults(kernel(bound(s, inside))) == []
    assert faults(kernel(bound(s, bound(t, PASS)))) == []


def test_buffers_need_their_memory() -> None:
    A = tir.decl_buffer((4,), "float32", "A")
    load = tir.Evaluate(A[0])
    assert faults(kernel(load, A=A)) == []
    undefined = "a variable is used without a definition: 'A' [PX-7]"
    assert faults(kernel(load)) == [undefined]
    assert faults(kernel(tir.DeclBuffer(A, load))) == [undefined]
    always = tir.const(True, "bool")
    assert faults(kernel(tir.Allocate(A.data, "float32", [4], always, load))) == []
    block = tir.Block([], [], [], "b", load, alloc_buffers=[A])
    assert faults(kernel(tir.BlockRealize([], True, block))) == []
    for size in (N, N * 2, N * 2 + 1, tir.Min(N * 2, 4) + 1):
        alias = tir.decl_buffer((size,), "float32", "V", data=A.data)
        assert faults(kernel(tir.DeclBuffer(alias, tir.Evaluate(alias[0])), A=A)) == [
            "a variable is used without a definition: 'n' [PX-7]"
        ]


def test_a_bound_scope_defines_its_view() -> None:
    offset = tir.Var("o", "int32")
    A = tir.decl_buffer((8,), "int32", "A")
    view = tir.decl_buffer((4,), "int32", "V", elem_offset=offset)
    store = tir.BufferStore(view, offset, [0])
    assert faults(kernel(tir.AttrStmt([view, A], "buffer_bind_scope", 0, store), A=A)) == []
    assert faults(kernel(tir.AttrStmt([view, A], "buffer_bind_scope", 0, store))) == [
        "a variable is used without a definition: 'A' [PX-7]"
    ]
    assert faults(kernel(tir.AttrStmt([view, A], "another", 0, store), A=A)) != []
    assert faults(kernel(tir.AttrStmt([A], "buffer_bind_scope", 0, PASS), A=A)) == []


def test_a_view_in_a_block_has_the_offset_that_the_text_gives() -> None:
    @T.prim_func
    def f(A: T.Buffer((8, 8), "int32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                o = T.int32()
                V = T.match_buffer(A[vi : vi + 1, 0:8], elem_offset=o, offset_factor=1)
                V[0, 0] = o

    assert faults(f) == []
    views: list[tir.MatchBufferRegion] = []
    tir.stmt_functor.post_order_visit(
        f.body, lambda node: views.extend(getattr(node, "match_buffers", ()))
    )
    (view,) = views
    assert view.buffer.elem_offset.name == "o"
    assert (view.buffer.dtype, view.buffer.offset_factor) == ("int32", 1)
    assert from_source(f.script()).script() == f.script()


def test_two_kernels_define_their_own_variables() -> None:
    i = tir.Var("i", "int32")
    f, g = (kernel(loop(i, PASS)).with_attr("global_symbol", name) for name in "fg")
    module = IRModule({"f": f, "g": g})
    assert not verify_well_formed(module, assert_mode=False)
    with pytest.raises(WellFormedError, match="two kernels define the variable 'i'"):
        verify_well_formed(module)
    assert verify_well_formed(IRModule({"f": f, "g": renew_defs(g)}))


def test_modules_and_what_is_none() -> None:
    good = kernel(PASS).with_attr("global_symbol", "f")
    bad = kernel(tir.Evaluate(N)).with_attr("global_symbol", "g")

    @R.function(private=True)
    def graph(x: R.Object):
        return x

    assert verify_well_formed(IRModule({"f": good, "graph": graph}))
    assert not verify_well_formed(IRModule({"f": good, "g": bad}), assert_mode=False)
    with pytest.raises(ValueError, match="without a definition: 'n'"):
        verify_well_formed(IRModule({"f": good, "g": bad}))
    with pytest.raises(MisuseError, match="expected a PrimFunc or a module, found 3"):
        verify_well_formed(3)  # type: ignore[arg-type]


def test_deep_kernels() -> None:
    body: tir.Stmt = PASS
    for k in range(20_000):
        body = tir.LetStmt(tir.Var(f"x{k}", "int32"), N, body)
    assert faults(kernel(body, N)) == []
    assert len(faults(kernel(body))) == 1


@pytest.mark.rule("PX-7")
def test_texts_are_refused_where_a_variable_is_not_defined() -> None:
    check_marks("""
        @T.prim_func
        def main(A: T.Buffer((4,), "int32")):
            n = T.int32()
            A[0] = n
        #   ^^^^^^^^ a variable is used without a definition: 'n' [PX-7]
    """)
    check_marks("""
        @I.ir_module
        class Module:
            @T.prim_func
            def main(A: T.Buffer((4,), "int32")):
                m = T.int32()
                with T.LetStmt(3, var=m):
                    A[0] = m
                A[1] = m
        #       ^^^^^^^^ a variable is used after the end of its scope: 'm' [PX-7]
    """)
    text = "def main(A: T.Buffer((4,), 'int32')):\n    n = T.int32()\n    A[0] = n\n"
    found = from_source(f"@T.prim_func(check_well_formed=False)\n{text}")
    assert faults(found) == ["a variable is used without a definition: 'n' [PX-7]"]
    assert from_source(f"@T.prim_func\n{text}", check_well_formed=False).params
    with pytest.raises(WellFormedError, match="without a definition: 'n'"):
        from_source(f"@T.prim_func\n{text}@T.prim_func\n{text.replace('main', 'other')}")
