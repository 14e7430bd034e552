"""Facts about kernels: regions of blocks, uses of variables, effects, numbers of operations."""

import pytest

from relaxpy import tir
from relaxpy.errors import MisuseError, ScheduleError
from relaxpy.ir import IRModule, PointerType, PrimType, assert_structural_equal
from relaxpy.script import tir as T
from relaxpy.tir import analysis
from tests.exec.loops.written import kernel

FLOATS = PointerType(PrimType("float32"))


pointers = kernel("""
def pointers(X: f32[64], Y: f32[64]):
    Z = T.alloc_buffer((32,), "float32")
    for i in S(4, "outer"):
        T.reads(X[vi * 16 + 2 : vi * 16 + 11])
        T.writes(Y[vi * 16 : vi * 16 + 16])
        P = T.match_buffer(X[vi * 16 + 2 : vi * 16 + 6], (4,))
        Q = T.match_buffer(X[vi * 16 + 8 : vi * 16 + 11], (3,))
        for j in range(16):
            Y[vi * 16 + j] = T.float32(1)
        T.evaluate(P.data)
        T.evaluate(Q.data)
        T.evaluate(Z.data)
""")


def blocks(body: tir.Stmt) -> list[tir.BlockRealize]:
    found: list[tir.BlockRealize] = []
    tir.stmt_functor.post_order_visit(
        body, lambda node: found.append(node) if isinstance(node, tir.BlockRealize) else None
    )
    return found[::-1]


def by_data(func: tir.PrimFunc) -> dict[tir.Var, tir.Buffer]:
    own = [b for realize in blocks(func.body) for b in realize.block.alloc_buffers]
    return {buffer.data: buffer for buffer in (*func.buffer_map.values(), *own)}


def test_regions_are_by_value_or_through_pointers():
    block = next(r.block for r in blocks(pointers.body) if r.block.name_hint == "outer")
    table = by_data(pointers)
    reads, writes, opaque = analysis.get_block_access_region(block, table)
    assert reads == []
    assert_structural_equal(list(block.writes), writes)
    assert [str(region) for region in opaque] == ["X[vi * 16 + 2:vi * 16 + 2 + 9]", "Z[0:32]"]
    reads, writes = analysis.get_block_read_write_region(block, table)
    assert [region.buffer.name for region in reads] == ["X", "Z"]
    assert [region.buffer.name for region in writes] == ["Y", "X", "Z"]
    assert_structural_equal(list(block.reads), reads[:1])
    itself = {buffer: buffer for buffer in table.values()}
    assert_structural_equal(analysis.get_block_access_region(block, itself)[2], opaque)


def test_regions_of_buffers_outside_of_the_table_are_left_out():
    block = next(r.block for r in blocks(pointers.body) if r.block.name_hint == "outer")
    assert analysis.get_block_access_region(block, {}) == [[], [], []]
    with pytest.raises(MisuseError, match="expected a block"):
        analysis.get_block_access_region(pointers, {})  # type: ignore[arg-type]


def test_access_pointers_say_what_they_are_for():
    @T.prim_func
    def func(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
        with T.block("call"):
            T.reads(X[0:8])
            T.writes(Y[0:8])
            T.evaluate(T.call_extern("int32", "copy", X.access_ptr("r"), Y.access_ptr("w")))

    block = blocks(func.body)[-1].block
    reads, writes, opaque = analysis.get_block_access_region(block, by_data(func))
    assert_structural_equal(list(block.reads), reads)
    assert_structural_equal(list(block.writes), writes)
    assert opaque == []


def test_the_address_of_an_element_reaches_all_of_its_buffer():
    @T.prim_func
    def func(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
        with T.block("call"):
            T.reads(Y[3])
            T.writes()
            T.evaluate(T.call_extern("int32", "fill", T.address_of(X[2]), Y[3]))

    block = blocks(func.body)[-1].block
    reads, writes, opaque = analysis.get_block_access_region(block, by_data(func))
    assert_structural_equal(list(block.reads), reads)
    assert writes == []
    assert [str(region) for region in opaque] == ["X[0:8]"]


sums = kernel("""
def sums(A: f32[8, 8], B: f32[8]):
    C = T.alloc_buffer((8, 8), "float32")
    for i, j in SS(8, 8):
        C[vi, vj] = A[vi, vj] + A[vj, vi]
    for i, k in SR(8, 8):
        with T.init():
            B[vi] = T.float32(0)
        B[vi] = B[vi] + C[vi, vk]
""")


def test_the_place_of_a_buffer_is_around_all_of_its_uses():
    places = analysis.detect_buffer_access_lca(sums)
    A, B = (sums.buffer_map[param] for param in sums.params)
    root = sums.body.block
    (C,) = root.alloc_buffers
    assert places[C] is root
    first, second = root.body.seq
    assert places[A] is first.body.body.block
    assert places[B] is second  # around the loop of the reduction


def test_a_global_buffer_is_placed_outside_of_the_blocks_of_threads():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32")):
        for i in T.thread_binding(8, thread="blockIdx.x"):
            for j in T.thread_binding(8, thread="threadIdx.x"):
                A[i, j] = T.float32(1)

    @T.prim_func
    def plain(A: T.Buffer((8,), "float32")):
        A[0] = T.float32(1)

    assert list(analysis.detect_buffer_access_lca(func).values()) == [func.body]
    assert list(analysis.detect_buffer_access_lca(plain).values()) == [None]


def test_expressions_are_equal_with_the_same_variables():
    x, y = tir.Var("x", "int32"), tir.Var("x", "int32")
    assert analysis.expr_deep_equal(x * 2 + 1, x * 2 + 1)
    assert not analysis.expr_deep_equal(x * 2 + 1, y * 2 + 1)
    assert not analysis.expr_deep_equal(x, tir.const(1))


def test_undefined_variables_are_in_the_order_of_their_uses():
    n, x, data = tir.Var("n", "int32"), tir.Var("x", "int32"), tir.Var("data", FLOATS)
    assert analysis.undefined_vars(x * n + x) == [x, n]
    assert analysis.undefined_vars(x * n + x, [x]) == [n]
    assert analysis.undefined_vars(tir.LetStmt(x, n, tir.Evaluate(x))) == [n]
    buffer = tir.decl_buffer((n,), "float32", data=data)
    used = analysis.undefined_vars(tir.Evaluate(tir.BufferLoad(buffer, [0])))
    assert data in used


def test_variables_are_defined_once():
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    body = tir.Evaluate(x + y)
    assert analysis.verify_ssa(tir.PrimFunc([x, y], body))
    assert not analysis.verify_ssa(tir.PrimFunc([x, y], tir.LetStmt(x, 1, body)))
    one, two = tir.Let(x, 1, x), tir.Let(x, 2, x)
    assert analysis.verify_ssa(tir.PrimFunc([], tir.Evaluate(one + one)))
    assert not analysis.verify_ssa(tir.PrimFunc([], tir.Evaluate(one + two)))


@T.prim_func
def total(A: T.Buffer((4, 4), "float32")) -> T.float32:
    S = T.decl_buffer((), "float32")
    S[()] = T.float32(0)
    for i, j in T.grid(4, 4):
        S[()] = S[()] + A[i, j]
    T.ret(S[()])


def test_a_kernel_is_pure_if_it_only_returns_a_value():
    @T.prim_func
    def effect():
        T.evaluate(T.call_extern("int32", "launch"))

    @T.prim_func
    def no_effect():
        T.evaluate(T.call_pure_extern("int32", "size"))

    for pure in (total, no_effect):
        assert analysis.is_pure_function(pure)
        assert analysis.assert_pure_function(pure)
    for impure, found in ((sums, r"sums is not pure: B\[vi\]"), (effect, "launch")):
        assert not analysis.is_pure_function(impure)
        with pytest.raises(AssertionError, match=found):
            analysis.assert_pure_function(impure)


def test_operations_are_those_on_numbers():
    @T.prim_func
    def branches(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            for j in range(i + 1):
                if i % 2 == 0:
                    A[i] = B[j]
                else:
                    A[i] = B[j - i] * B[j + 1] + T.if_then_else(i < j, B[i], T.exp(B[i] * B[j]))

    @T.prim_func
    def symbolic(a: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            A[i, j] = A[i, j] * A[i, j]

    assert analysis.estimate_tir_flops(branches.body) == 16 * 16 * 3
    assert analysis.estimate_tir_flops(IRModule({"a": branches, "b": symbolic})) == 16 * 16 * 3 + 4
    assert (
        analysis.estimate_tir_flops(IRModule({"a": branches.with_attr("estimated_flops", 3)})) == 3
    )
    with pytest.raises(MisuseError, match="expected a statement or a module"):
        analysis.estimate_tir_flops(branches)  # type: ignore[arg-type]


def test_a_long_expression_has_no_limit_of_depth():
    x = tir.Var("x", "float32")
    value = x
    for _ in range(3000):
        value = value + x
    assert analysis.estimate_tir_flops(tir.Evaluate(value)) == 3000
    A = tir.decl_buffer((1,), "float32")
    func = tir.PrimFunc([x, A.data], tir.BufferStore(A, value, [0]))
    assert analysis.detect_buffer_access_lca(func)[A] is None


opaque_reader = kernel("""
def opaque_reader(X: f32[16], Y: f32[16]):
    B = T.alloc_buffer((16,), "float32")
    D = T.alloc_buffer((16,), "float32")
    for i in S(16):
        B[vi] = X[vi] * T.float32(2)
    for i in S(16):
        D[vi] = B[vi] + T.float32(1)
    for i in S(16, "opaque"):
        T.reads(D[vi])
        T.writes(Y[vi])
        T.evaluate(T.call_extern("int32", "copy", Y.access_ptr("w"), D.access_ptr("r")))
""")


def test_other_blocks_are_scheduled_beside_one_with_pointers():
    sch = tir.Schedule(opaque_reader)
    sch.compute_inline("B")
    assert "D[vi] = X[vi] * T.float32(2.0) + T.float32(1.0)" in sch.mod.script()


def test_a_block_with_pointers_is_not_moved_itself():
    sch = tir.Schedule(opaque_reader)
    (loop,) = sch.get_loops("opaque")
    with pytest.raises(ScheduleError, match="block opaque uses pointers"):
        sch.parallel(loop)
    with pytest.raises(ScheduleError):
        sch.compute_inline("D")
