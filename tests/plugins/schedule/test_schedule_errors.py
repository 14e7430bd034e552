"""Primitives whose conditions do not hold: each names itself, the block or loop, and the reason."""

import textwrap
from collections.abc import Callable

import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import MisuseError, ScheduleError
from tests.exec.loops import written
from tests.fuzz.scheduled_kernels import KERNELS
from tests.rows import table

Sch = tir.Schedule


def kernel(body: str, *, buffers: str = "A, B", size: int = 8) -> tir.PrimFunc:
    """A kernel over vectors of `size` integers."""
    names = ", ".join(f"{name}: i32[{size}]" for name in buffers.split(", "))
    return written.kernel(f"def f({names}):\n{textwrap.indent(body.strip(), '    ')}")


CARRIED = """
for i in range(1, 8):
    with T.block("B"):
        vi = T.axis.spatial((1, 8), i)
        B[vi] = B[vi - 1] + A[vi]
"""
OVERWRITES = """
for i, j in SS(8, 4):
    B[vi] = A[vi] + vj
"""
LAST_WINS = """
for i, j in T.grid(4, 2):
    for k in range(2):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            vj, vk = T.axis.remap("RR", [j, k])
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] * 2 + A[vj * 2 + vk]
"""
SUMS = """
B = T.alloc_buffer((8,), "int32")
for i, k in SR(8, 8):
    with T.init():
        B[vi] = 0
    B[vi] = B[vi] + A[vk]
"""
READS_SUMS = """
for i in S(SIZE):
    C[vi] = B[vi] + A[vi]
"""
TWO_SUMS = SUMS + (READS_SUMS + READS_SUMS.replace("C", "D")).replace("SIZE", "8")
FEWER_SUMS = SUMS + READS_SUMS.replace("SIZE", "7")
COPIED_SUMS = (
    SUMS
    + """
for i in S(8):
    C[vi] = B[vi]
"""
)
DOUBLED_SUMS = COPIED_SUMS.replace("C[vi] = ", "C[vi] = 2 * ")
FEWER_COPIED_SUMS = COPIED_SUMS.replace("S(8)", "S(7)")
PARTIAL_SUMS = """
B = T.alloc_buffer((8,), "int32")
for i, k in T.grid(8, 8):
    with T.block("B"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            B[vi] = 0
        B[vi] = B[vi] + A[vk]
    with T.block("C"):
        vi = T.axis.spatial(8, i)
        C[vi] = B[vi]
"""
ROW_OF_INITS = COPIED_SUMS.replace("B[vi] = 0", "B[7 - vi] = 0")
LET = """
for i, k in SR(8, 8):
    with T.init():
        B[vi] = 0
    q: T.int32 = VALUE
    B[vi] = q
"""
LET_OF_OLD = LET.replace("VALUE", "B[vi] * 2 + A[vk]")
LET_OF_CALL = LET.replace("VALUE", "B[vi] + T.call_extern('int32', 'draw', vk)")
DIGITS = """
B = T.alloc_buffer((3, 16), "int32")
for i, j in SS(3, 16):
    B[vi, vj] = A[vj % 8]
for a, b in SS(4, 12):
    C[va] = B[(va * 12 + vb) // 16, (va * 12 + vb) % 16]
"""
NESTED = """
for i in range(2):
    with T.block("outer"):
        vi = T.axis.spatial(2, i)
        for j in range(4):
            with T.block("A"):
                vj = T.axis.spatial(8, vi * 4 + j)
                A[vj] = vj
        for j in range(4):
            with T.block("B"):
                vj = T.axis.spatial(8, vi * 4 + j)
                B[vj] = A[vj]
for i in S(8):
    C[vi] = A[vi]
"""
SHIFTED = """
for i in range(7):
    for j in range(1):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi + 1] = B[vi + 1]
"""
SHIFTED_LATER = """
B = T.alloc_buffer((9,), "int32")
for i in S(9):
    B[vi] = A[vi % 8]
for i in S(8):
    C[vi] = B[vi + 1]
"""
TWICE = """
L = T.alloc_buffer((8,), "int32")
for i in S(8):
    L[vi] = A[vi]
for i in S(8):
    A[vi] = 3
for i in S(8):
    B[vi] = L[vi]
"""
AXIS = """
for i in range(8):
    with T.block("B"):
        vi = T.axis.opaque(8, i)
        B[vi] = A[vi]
"""
PADDED = """
L = T.alloc_buffer((8,), "int32")
for i in S(4):
    L[vi] = A[vi]
for i in S(8):
    B[vi] = T.if_then_else(vi < 4, L[vi], 0)
"""
BOTH_WRITE = """
for i in S(4, "first"):
    B[vi] = A[vi]
for i in S(4, "second"):
    B[vi + 4] = A[vi]
"""


SCALED = """
for i, k in SR(8, 8):
    with T.init():
        B[vi] = 0
    B[vi] = B[vi] + A[vk] * (vk + 1) + 1
"""
WINDOWED = """
for i, k in SR(6, 3):
    with T.init():
        B[vi] = 0
    B[vi] = B[vi] + A[vi + vk]
"""

PART = """
B = T.alloc_buffer((8,), "int32")
for i in range(5):
    with T.block("B"):
        vi = T.axis.spatial(8, i)
        B[vi] = A[vi] + 1
for i in S(5):
    C[vi] = B[vi]
"""
TILES_MEET = """
for i, k in T.grid(3, 4):
    with T.block("B"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            for j in range(4):
                B[vi * 4 + j + 1] = 0
        for j in range(4):
            B[vi * 4 + j] = B[vi * 4 + j] + A[vk]
"""


DIRECT = """
for i, j in T.grid(8, 4):
    with T.block("B"):
        B[i] = A[i] + j
"""
TABLE_OF_TWO = """
L = T.alloc_buffer((1,), "int32")
for i, j in T.grid(4, 2):
    with T.block("B"):
        with T.init():
            L[0] = 3
            L[0] = 4
        B[i * 2 + j] = A[i] * L[0]
"""
TABLE_THAT_CHANGES = """
L = T.alloc_buffer((1,), "int32")
for i, j in T.grid(4, 2):
    with T.block("B"):
        with T.init():
            L[0] = 3
        B[i * 2 + j] = A[i] * L[0]
        L[0] = L[0] + 1
"""
VIEWED = """
for i in range(8):
    with T.block("B"):
        vi = T.axis.spatial(8, i)
        V = T.match_buffer(B[0:8], (8,), "int32")
        V[vi] = B[vi] + A[vi]
"""
BARE_CALL = """
for i in range(8):
    with T.block("B"):
        vi = T.axis.spatial(8, i)
        B[vi] = A[vi]
    T.call_extern("void", "observe", i)
"""


def named(name: str) -> tir.PrimFunc:
    return KERNELS[name][0]


loops = Sch.get_loops


def after(func: tir.PrimFunc, steps: Callable[[Sch], object]) -> tir.PrimFunc:
    """The kernel after steps that succeed."""
    sch = Sch(func)
    steps(sch)
    changed = sch.mod["main"]
    assert isinstance(changed, tir.PrimFunc)
    return changed


FUSED = after(named("matmul"), lambda s: s.split(s.fuse(*loops(s, "C")[1:]), [None, 5]))
TILED = after(named("conv"), lambda s: s.compute_at("P", s.split(loops(s, "C")[0], [None, 4])[0]))
UNROLLED = after(TILED, lambda s: s.unroll(loops(s, "C")[0]))
SHORT = after(named("matmul"), lambda s: s.split(loops(s, "C")[2], [4, 3]))
TURNED = after(named("matmul"), lambda s: s.reorder(*loops(s, "C")[:0:-1]))


#: A kernel : what is done with a schedule `s` of it => a part of the error.
ROWS = table(
    """
matmul : s.get_block("D") => get_block: there is no block 'D'
matmul : s.get_loops("D") => get_loops: there is no block 'D'
matmul : s.split(loops(s, "C")[0], [2, 2])
    => split: the product 4 of the factors is not known to reach the extent 6 of loop i
matmul : s.split(loops(s, "C")[0], [None, None]) => split: at most one of the factors is None
matmul : s.split(loops(s, "C")[0], [None, 0]) => split: a factor is positive, found 0
CARRIED : s.split(loops(s, "B")[0], [None, 2]) => split: loop i begins at 1
matmul : s.fuse(*loops(s, "C")[::2]) => fuse: loop k is not the only content of loop i
chain : s.reorder(loops(s, "B")[0], loops(s, "C")[0])
    => reorder: the loops are not one chain: there are other statements between them
CARRIED : s.parallel(loops(s, "B")[0]) => parallel: block B reads B[vi - 1]
CARRIED : s.vectorize(loops(s, "B")[0]) => vectorize: block B reads B[vi - 1]
OVERWRITES : s.reorder(*loops(s, "B")[::-1])
    => reorder: block B may write an element of B for several values
DIRECT : s.reorder(*loops(s, "B")[::-1])
    => reorder: block B may write an element of B for several values
TABLE_OF_TWO : s.reorder(*loops(s, "B")[::-1])
    => reorder: block B may write an element of L for several values
TABLE_THAT_CHANGES : s.parallel(loops(s, "B")[0])
    => parallel: block B may write an element of L for several values
LAST_WINS : s.reorder(*loops(s, "B")[:0:-1])
    => reorder: block B is not a known commutative reduction
kernel(SHIFTED, buffers="A, B, C") : s.parallel(loops(s, "B")[0])
    => parallel: blocks B and C may use an element of B in different iterations of i
kernel(SHIFTED, buffers="A, B, C") : s.reorder(*loops(s, "B")[::-1])
    => reorder: blocks B and C may use an element of B in different iterations of i
VIEWED : s.parallel(loops(s, "B")[0]) => parallel: block B reads and writes B
BARE_CALL : s.parallel(loops(s, "B")[0]) => parallel: a statement is not in a block
matmul : s.parallel(loops(s, "C")[2]) => parallel: loop k is a reduction loop of block C
matmul : s.bind(loops(s, "C")[2], "blockIdx.x") => bind: loop k is a reduction loop of block C
AXIS : s.parallel(loops(s, "B")[0]) => parallel: variable vi of block B is
matmul : s.unannotate(loops(s, "C")[0], "key") => unannotate: there is no annotation 'key'
matmul_relu : s.compute_inline("C") => compute_inline: block C is a reduction, expected none
chain : s.compute_inline("D") => compute_inline: D, which block D writes,
    is not allocated in the same scope
TWICE : s.compute_inline("L") => compute_inline: block A writes A after block L reads it
chain : s.reverse_compute_inline("D")
    => reverse_compute_inline: block D reads local buffers of 2 blocks, expected one
matmul_relu : s.reverse_compute_inline("D")
    => reverse_compute_inline: block C is a reduction, expected none
kernel(FEWER_COPIED_SUMS, buffers="A, C") : s.reverse_compute_inline("C")
    => reverse_compute_inline: block B computes more elements than block C reads
kernel(PARTIAL_SUMS, buffers="A, C") : s.reverse_compute_inline("C")
    => reverse_compute_inline: block C is inside of loop k, over which block B reduces
kernel(ROW_OF_INITS, buffers="A, C") : s.reverse_compute_inline("C")
    => reverse_compute_inline: block B
kernel(DOUBLED_SUMS, buffers="A, C") : s.reverse_compute_inline("C")
    => reverse_compute_inline: block B is a reduction, expected none
LET_OF_OLD : s.rfactor(loops(s, "B")[1], 0)
    => rfactor: block B is not a known commutative reduction
LET_OF_CALL : s.rfactor(loops(s, "B")[1], 0)
    => rfactor: block B is not a known commutative reduction
kernel(DIGITS.replace("C[va]", "C[va * 12 + vb]"), buffers="A, C", size=48)
    : s.reverse_compute_at("C", loops(s, "B")[0])
    => which other iterations of loop i may write
kernel(NESTED, buffers="A, B, C") : s.cache_read("outer", "A", "local")
    => cache_read: block outer writes A, too
kernel(NESTED, buffers="A, B, C") : s.cache_read("C", "A", "local", ["outer", "C"])
    => cache_read: block outer writes A, too
matmul_relu : s.fuse_reduction_epilogue("C", "D")
    => fuse_reduction_epilogue: block D does not combine C with another value as block C does
matmul_relu : s.fuse_reduction_epilogue("D", "C")
    => fuse_reduction_epilogue: block D is not a known reduction next to block C
kernel(TWO_SUMS, buffers="A, C, D") : s.fuse_reduction_epilogue("B", "C")
    => fuse_reduction_epilogue: other blocks read B, too
kernel(FEWER_SUMS, buffers="A, C") : s.fuse_reduction_epilogue("B", "C")
    => fuse_reduction_epilogue: block B computes more elements than block C reads
PADDED : s.reverse_compute_inline("B")
    => reverse_compute_inline: block B has iterations for which block L is not known to write L
chain : s.compute_at("B", loops(s, "C")[0])
    => compute_at: block D reads what block B writes, and is not inside of loop i
chain : s.compute_at("D", loops(s, "C")[0])
    => compute_at: D is not allocated in the scope of block D
matmul : s.compute_at("C", loops(s, "C")[1]) => compute_at: block C is inside of loop j already
after(matmul_relu, lambda s: s.parallel(loops(s, "C")[0]))
    : s.compute_at("A2", loops(s, "C")[1]) => compute_at: loop i is parallel: move the block before
matmul_relu : s.compute_at("A2", loops(s, "C")[1], index=1)
    => block A2 can be at the positions 0 to 0 of loop j, not 1
kernel(SHIFTED_LATER, buffers="A, C") : s.reverse_compute_at("C", loops(s, "B")[0])
    => block C reads B at vi + 1, which other iterations of loop i may write
matmul_relu : s.reverse_compute_at("D", loops(s, "C")[2])
    => reverse_compute_at: block C reduces over loop k, so it is not complete there
chain : s.reverse_compute_at("D", loops(s, "B")[0])
    => block C writes what block D reads, and may do so after loop i
after(transposed, lambda s: s.fuse(*loops(s, "C"))) : s.cache_write("C", 0, "local")
    => block C is not known to write all elements of a region of C
matmul : s.storage_align("C", 0, 2, 16, 8) => storage_align: C has no axis 2
FUSED : s.reorder(*loops(s, "C")[:0:-1])
    => is one of reduction and of spatial variables of block C, whose init would not come first
matmul : s.cache_read("C", "D", "local") => cache_read: block C reads A, B, not buffer 'D'
chain : s.cache_read("B", 0, "local", ["C"]) => cache_read: not all of the consumer blocks read A
chain : s.cache_read("B", 0, "local", ["B", "C"])
    => cache_read: not all of the consumer blocks read A
BOTH_WRITE : s.cache_write("first", 0, "local") => cache_write: 2 blocks write B, expected one
CARRIED : s.cache_write("B", 0, "local") => cache_write: block B reads what B has before
matmul : s.set_scope("C", 0, "local") => set_scope: C is a parameter, which keeps its scope
chain : s.decompose_reduction("B", loops(s, "B")[0]) => decompose_reduction: block B has no T.init()
chain : s.rfactor(loops(s, "B")[0], 0) => rfactor: block B is not a known commutative reduction
matmul : s.rfactor(loops(s, "C")[0], 0) => rfactor: loop i is not a reduction loop of block C
matmul : s.rfactor(loops(s, "C")[2], 3) => rfactor: factor_axis 3 is outside of [-3, 2]
SHORT : s.rfactor(loops(s, "C")[2], 0)
    => rfactor: an iteration of loop k_0 may have nothing to reduce
TURNED : s.decompose_reduction("C", loops(s, "C")[2])
    => decompose_reduction: block C reduces over loop k, which is outside of loop j
SHORT : s.blockize(loops(s, "C")[3])
    => blockize: the condition k_0 * 3 + k_1 < 8 of block C is over loops outside and inside
after(matmul, lambda s: s.split(s.fuse(*loops(s, "C")[:2]), [None, 6]))
    : s.blockize(loops(s, "C")[1])
    => blockize: block C cannot be divided into the loops outside of loop i_j_fused_1
kernel(SHIFTED, buffers="A, B, C") : s.blockize(loops(s, "B")[0])
    => blockize: there are 2 blocks in loop i
matmul : s.tensorize(loops(s, "C")[0], "dot_4x4")
    => tensorize: there is no tensor intrinsic 'dot_4x4'
matmul : s.transform_layout("C", ("read", 2), lambda i, j: (j, i))
    => transform_layout: block C reads A, B, not buffer 2
matmul : s.transform_layout("C", "A", lambda i, j: (i // 2, j))
    => transform_layout: the map is not known to be injective
matmul : s.transform_block_layout("C", lambda i, j, k: (i, j + k))
    => transform_block_layout: the map is not known to be bijective
matmul : s.transform_block_layout("C", lambda i, j, k: (i, j * 8 + k))
    => is of spatial and of reduction variables
after(matmul, lambda s: s.split(loops(s, "C")[0], [2, 3]))
    : s.transform_block_layout("C", lambda i, j, k: (i, k, j))
    => the variables of block C are not one for each of its loops, in their order
LAST_WINS : s.transform_block_layout("B", lambda i, j, k: (i, k, j))
    => transform_block_layout: block B is not a known commutative reduction
matmul : s.pad_einsum("C", [1, 0, 1]) => pad_einsum: padding is positive, found 0
SCALED : s.pad_einsum("B", [1, 3])
    => pad_einsum: block B is not a sum to which operands of zeros add nothing
WINDOWED : s.pad_einsum("B", [4, 1])
    => pad_einsum: block B does not access A at one tuple of its variables
maxima : s.pad_einsum("M", [1, 2]) => pad_einsum: block M is not an einsum of products and sums
chain : s.decompose_padding("B", loops(s, "B")[0])
    => decompose_padding: block B is not one store of T.if_then_else
conv : s.reindex("P", ("read", 0))
    => reindex: index vi - 1 is not known to be in A for all iterations of block P
transposed : s.reindex("C", "B") => reindex:
conv : s.rolling_buffer("C", 0) => rolling_buffer: C is not allocated in the block around C
conv : s.rolling_buffer("P", 0) => rolling_buffer: block P and the readers of P share no loop
UNROLLED : s.rolling_buffer("P", 0)
    => rolling_buffer: loop i_0 is unrolled, expected a serial one
after(matmul_relu, lambda s: s.compute_at("A2", loops(s, "C")[0])) : s.rolling_buffer("A2", 0)
    => rolling_buffer: no loop writes elements of A2 again in its next iteration
matmul : s.reindex_cache_read("C", 0, "local", lambda i, j, k: (i, j))
    => reindex_cache_read: variable vj of block C is in the map alone
chain : s.reindex_cache_write("B", 0, "local", lambda i, j: (i + j,))
    => reindex_cache_write: the map is not known to be injective
transposed : s.reindex_cache_read("C", 0, "local", lambda i, j: (i, j))
    => reindex_cache_read: block C accesses B at several indices
maxima : s.merge(loops(s, "M")[1], loops(s, "C")[1])
    => merge: blocks M and C may use an element of M in different iterations of i_m, k_m
kernel(PART, buffers="A, C") : s.compute_at("B", loops(s, "C")[0])
    => compute_at: the loops of block B do not cover its variables
kernel(PART.replace("A[vi] + 1", "A[vi + 1]"), buffers="A, C") : s.compute_at("B", loops(s, "C")[0])
    => compute_at: the loops of block B do not cover its variables
TILES_MEET : s.decompose_reduction("B", loops(s, "B")[1])
    => decompose_reduction: block B may write an element of B by several stores
TILES_MEET.replace("in range(4):", "in range(5):", 1) : s.decompose_reduction("B", loops(s, "B")[1])
    => decompose_reduction: block B may write an element of B for several values of its spatial
"""
)


@pytest.mark.parametrize(("source", "step", "message"), ROWS, ids=[row[2][:60] for row in ROWS])
def test_a_primitive_says_why_it_cannot_be_applied(source: str, step: str, message: str) -> None:
    names = {**globals(), **{name: func for name, (func, _) in KERNELS.items()}}
    func = eval(source, names)
    sch = Sch(kernel(func) if isinstance(func, str) else func)
    before = sch.mod["main"]
    with pytest.raises(ScheduleError) as info:
        eval(step, {**names, "s": sch})
    assert message in str(info.value)
    relaxpy.ir.assert_structural_equal(sch.mod["main"], before)


def test_names_of_blocks_and_loops_outlive_changes_of_others_and_end_with_their_own() -> None:
    sch = Sch(named("chain"))
    block, inlined = sch.get_block("D"), sch.get_block("B")
    (i, j), (gone, _) = sch.get_loops(block), sch.get_loops(inlined)
    sch.compute_inline(inlined)
    outer, _inner = sch.split(i, [2, 3])
    assert sch.get(block).name_hint == "D"
    assert [sch.get(loop).loop_var.name for loop in (outer, j)] == ["i_0", "j"]
    for name in (inlined, gone, i):
        with pytest.raises(ScheduleError, match="is not in the kernel any more"):
            sch.get(name)


def test_what_a_block_only_writes_through_a_view_runs_in_any_order() -> None:
    sch = Sch(kernel(VIEWED.replace("B[vi] + ", "")))
    (loop,) = loops(sch, "B")
    sch.parallel(loop)
    assert sch.get(loop).kind == tir.ForKind.PARALLEL


def test_what_is_not_a_name_is_refused() -> None:
    sch = Sch(named("chain"))
    for wrong in (3, None, sch.get_block("B")):
        with pytest.raises(MisuseError, match="expected a loop"):
            sch.split(wrong, [None, 2])  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="expected a PrimFunc or a module"):
        Sch(3)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="expected a thread axis"):
        sch.bind(sch.get_loops("B")[0], "core.x")
