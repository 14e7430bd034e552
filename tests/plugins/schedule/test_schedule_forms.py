"""The kernels that primitives make, and the traces that they leave, are those of TVM."""

import inspect
import re
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import MisuseError, ScheduleError
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source, tir as T
from relaxpy.tir.schedule import BlockRV, Instruction, InstructionKind, LoopRV, Trace, testing
from tests.exec.loops.written import kernel
from tests.rows import commented, follow, rows

chain = kernel("""
def chain(A: f32[12, 8], C: f32[12, 8]):
    B = T.alloc_buffer((12, 8))
    for i, j in SS(12, 8):
        B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in SS(12, 8):
        C[vi, vj] = B[vi, vj] + T.float32(1)
""")


@T.prim_func
def row_sum(A: T.Buffer((12, 8), "float32"), B: T.Buffer((12,), "float32")):
    for i, k in T.grid(12, 8):
        with T.block("B"):
            T.block_attr({"note": 1})
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]


def same_values(before: tir.PrimFunc, after: relaxpy.IRModule) -> None:
    """Assert that the last array has the same values after both kernels."""
    rng = np.random.default_rng(0)
    buffers = [before.buffer_map[param] for param in before.params]
    arrays = [rng.integers(-4, 4, [int(n) for n in b.shape]).astype(b.dtype) for b in buffers]
    wanted, found = [a.copy() for a in arrays], [a.copy() for a in arrays]
    relaxpy.compile(before, target="reference")[before.__name__](*wanted)
    relaxpy.compile(after, target="numpy")["main"](*found)
    np.testing.assert_array_equal(found[-1], wanted[-1])


def loop_names(sch: tir.Schedule, block: str) -> list[str]:
    return [sch.get(loop).loop_var.name for loop in sch.get_loops(block)]


def extents(sch: tir.Schedule, block: str) -> list[int]:
    return [int(sch.get(loop).extent) for loop in sch.get_loops(block)]


def block_names(sch: tir.Schedule) -> list[str]:
    return re.findall(r'T.block\("(\w+)"\)', sch.mod.script())


def reads(sch: tir.Schedule, block: str) -> list[str]:
    return [str(region).split("\n")[-1] for region in sch.get(sch.get_block(block)).reads]


#: Kernels, or their names, before and after the schedule `s`.
SCHEDULES = rows("""
--- a reduction begins with what is added to it
epilogue
=>
def after(A: f32[8, 8], C: f32[8], D: f32[8, 8]):
    B = T.alloc_buffer((8, 8))
    for i, j, k in SSR(8, 8, 8, "B"):
        with T.init():
            D[vj, vi] = C[vj]
        D[vj, vi] = D[vj, vi] + A[vi, vk] * A[vj, vk]
# do: s.fuse_reduction_epilogue("B", "D")
--- a reduction over an outer loop begins with what is added to it
epilogue
# do: i, _, k = s.get_loops("B")
# do: s.reorder(k, i)
# do: s.fuse_reduction_epilogue("B", "D")
--- split keeps loops of one iteration
row_sum
=>
def after(A: f32[12, 8], B: f32[12]):
    for i_0, i_1, k in T.grid(1, 16, 8):
        with T.block("B"):
            T.block_attr({"note": 1})
            vi = T.axis.spatial(12, i_0 * 16 + i_1)
            vk = T.axis.reduce(8, k)
            T.where(i_0 * 16 + i_1 < 12)
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
# do: s.split(s.get_loops("B")[0], [None, 16])
--- the condition of a split is as it was built
chain
# do: s.split(s.get_loops("C")[0], [4, 2, 2])
# holds: s.state.get_sref(s.get(s.get_block("C"))).stmt.name_hint == "C"
# holds: "(i_0 * 2 + i_1) * 2 + i_2 < 12" in s.mod["main"].script()
--- a reduction goes on in the later parts of its loop
row_sum
# do: s.loop_partition(s.get_loops("B")[1], [3])
# do: blocks = [s.get(s.get_block(f"B_k{part}")) for part in range(2)]
# holds: [block.init is None for block in blocks] == [False, True]
--- copies at indices of a map are those of TVM
chain
=>
def after(A: f32[12, 8], C: f32[12, 8]):
    B = T.alloc_buffer((12, 8))
    B_local = T.alloc_buffer((8, 12), scope="local")
    B_shared = T.alloc_buffer((8, 6, 2), scope="shared")
    for i, j in SS(12, 8, "B"):
        B_local[vj, vi] = A[vi, vj] * T.float32(2)
    for i, j in SS(12, 8, "B_local"):
        B[vi, vj] = B_local[vj, vi]
    for i, j in SS(12, 8):
        B_shared[vj, vi // 2, vi % 2] = B[vi, vj]
    for i, j in SS(12, 8):
        C[vi, vj] = B_shared[vj, vi // 2, vi % 2] + T.float32(1)
# do: s.reindex_cache_write("B", 0, "local", lambda i, j: (j, i))
# do: s.reindex_cache_read("C", 0, "shared", lambda i, j: (j, i // 2, i % 2))
--- a rolling buffer is that of TVM
def before(A: f32[4, 12], C: f32[4, 8]):
    B = T.alloc_buffer((4, 10))
    for c in range(4):
        for i, k in T.grid(10, 3):
            with T.block("B"):
                cc, vi, vk = T.axis.remap("SSR", [c, i, k])
                with T.init():
                    B[cc, vi] = T.float32(0)
                B[cc, vi] = B[cc, vi] + A[cc, vi + vk]
        for i, k in T.grid(8, 3):
            with T.block("C"):
                cc, vi, vk = T.axis.remap("SSR", [c, i, k])
                with T.init():
                    C[cc, vi] = T.float32(0)
                C[cc, vi] = C[cc, vi] + B[cc, vi + vk]
=>
def after(A: f32[4, 12], C: f32[4, 8]):
    B = T.alloc_buffer((4, 6))
    for c, i_0 in T.grid(4, 2):
        for ax0, ax1 in T.grid(6, 3):
            with T.block("B"):
                T.where(i_0 < 1 or 2 <= ax0)
                cc = T.axis.spatial(4, c)
                vi = T.axis.opaque(10, i_0 * 4 + ax0)
                vk = T.axis.reduce(3, ax1)
                with T.init():
                    B[cc, vi % 6] = T.float32(0)
                B[cc, vi % 6] = B[cc, vi % 6] + A[cc, vi + vk]
        for i_1, k in T.grid(4, 3):
            with T.block("C"):
                cc = T.axis.spatial(4, c)
                vi = T.axis.opaque(8, i_0 * 4 + i_1)
                vk = T.axis.reduce(3, k)
                with T.init():
                    C[cc, vi] = T.float32(0)
                C[cc, vi] = C[cc, vi] + B[cc, (vi + vk) % 6]
# do: s.compute_at("B", s.split(s.get_loops("C")[1], [2, 4])[0])
# do: s.rolling_buffer("B", 0)
--- merge makes one loop of two
apart
=>
def after(A: f32[4, 6], C: f32[4, 6], D: f32[4, 3]):
    for i_m in range(4):
        for j in range(6):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i_m, j])
                C[vi, vj] = A[vi, vj] + T.float32(1)
        for j in range(3):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i_m, j])
                D[vi, vj] = A[vi, vj] + T.float32(2)
# do: s.merge(s.get_loops("C")[0], s.get_loops("D")[0])
--- a block that nothing reads is removed
def before(A: f32[8], C: f32[8]):
    B = T.alloc_buffer((8,))
    for i in S(8):
        B[vi] = A[vi]
    for i in S(8):
        C[vi] = A[vi]
=>
def after(A: f32[8], C: f32[8]):
    for i in S(8):
        C[vi] = A[vi]
# do: s.compute_inline("B")
--- the init of a reduction keeps the kinds of loops
row_sum
# do: i, k = s.get_loops("B")
# do: s.reorder(k, i)
# do: s.vectorize(i)
# do: start = s.decompose_reduction("B", k)
# holds: [s.get(loop).kind.name for loop in s.get_loops(start)] == ["VECTORIZED"]
# holds: [region.buffer.name for region in s.get(s.get_block("B_update")).reads] == ["B", "A"]
--- the first block of rfactor keeps annotations
row_sum
# do: part = s.rfactor(s.get_loops("B")[1], 0)
# holds: dict(s.get(part).annotations) == {"note": 1}
--- a moved block has the offset of its loop first
chain
# do: outer, _ = s.split(s.get_loops("C")[0], [3, 4])
# do: s.compute_at("B", outer)
# holds: "T.axis.spatial(12, i_0 * 4 + ax0)" in s.mod["main"].script()
--- only the tiles that are read are computed
chain
# do: i, j = s.get_loops("B")
# do: i0, i1 = s.split(i, [6, 2])
# do: j0, j1 = s.split(j, [2, 4])
# do: s.reorder(i0, j0, i1, j1)
# do: tile = s.blockize(i1)
# do: rows, _ = s.split(s.get_loops("C")[0], [3, 4])
# do: s.compute_at(tile, rows)
# holds: extents(s, tile) == [3, 2, 2]
--- variables of blocks change their order
row_sum
# do: s.reorder_block_iter_var("B", [1, 0])
# holds: [it.var.name for it in s.get(s.get_block("B")).iter_vars] == ["vk", "vi"]
# error: s.reorder_block_iter_var("B", [0]) -> ScheduleError: each of the numbers 0 to 1 once
# error: s.reorder_block_iter_var("B", [0, 0]) -> ScheduleError: each of the numbers 0 to 1 once
# error: s.reorder_block_iter_var("B", [1, 2]) -> ScheduleError: each of the numbers 0 to 1 once
# error: s.reorder_block_iter_var("B", [-1, 0]) -> ScheduleError: each of the numbers 0 to 1 once
--- a local buffer gets another datatype
chain
=>
def after(A: f32[12, 8], C: f32[12, 8]):
    B = T.alloc_buffer((12, 8), "float16")
    for i, j in SS(12, 8):
        B[vi, vj] = T.Cast("float16", A[vi, vj] * T.float32(2))
    for i, j in SS(12, 8):
        C[vi, vj] = T.Cast("float32", B[vi, vj]) + T.float32(1)
# error: s.unsafe_set_dtype("C", 0, "float16") -> ScheduleError: C is a parameter
# error: s.unsafe_set_dtype("B", 1, "float16") -> ScheduleError: writes 1 buffers
# do: s.unsafe_set_dtype("B", 0, "float16")
--- axes of a buffer are divided
chain
=>
divided
# do: s.set_axis_separator("B", ("write", 0), [1])
--- axes of a buffer are divided by its layout
chain
=>
divided
# do: s.transform_layout("B", "B", lambda i, j: [i, tir.IndexMap.AXIS_SEPARATOR, j])
--- axes of a parameter are divided
chain
# do: s.set_axis_separator("B", ("read", 0), [1])
# holds: [b.axis_separators for b in s.mod["main"].buffer_map.values()] == [(1,), ()]
--- a consumer reads a producer in another layout
def before(A: f32[12, 8], C: f32[11, 8]):
    B = T.alloc_buffer((3, 8, 4))
    for i, j, k in SSS(3, 8, 4):
        B[vi, vj, vk] = A[vi * 4 + vk, vj] * T.float32(2)
    for i, j in SS(11, 8):
        C[vi, vj] = B[vi // 4, vj, vi % 4] + T.float32(1)
# do: s.reverse_compute_inline("C")
# holds: str(s.get(s.get_block("B")).body.indices[0]) in ("vi * 4 + vk", "vk + vi * 4")
--- parts of a loop declare what they access
def before(A: f32[12, 8], B: f32[12, 8]):
    for i, j in SS(12, 8):
        B[vi, vj] = A[vi, vj] * T.float32(2)
# do: s.loop_partition(s.get_loops("B")[0], [5])
# do: s.loop_partition(s.get_loops("B_i1")[1], [2])
# holds: reads(s, "B_i1_j0") == ["A[5:12, 0:2]"]
# holds: reads(s, "B_i1_j1") == ["A[5:12, 2:8]"]
--- parts of a loop are named after its outermost block
chain
# do: s.blockize(s.get_loops("B")[1])
# do: s.loop_partition(s.get_loops("B_o")[0], [5])
# holds: s.get(s.get_block("B_o_i_common")).name_hint == "B_o_i_common"
--- the terms of a sum of floats are padded
def before(A: f32[6, 5], B: f32[5, 7], C: f32[6, 7]):
    for i, j, k in SSR(6, 7, 5):
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
# do: s.pad_einsum("C", [4, 4, 4])
# do: root = s.get(s.get_block("root"))
# holds: [b.name for b in root.alloc_buffers] == ["A_pad", "B_pad", "C_pad"]
--- loops run between the padding of a block
padded
# do: s.decompose_padding("B", s.get_loops("B")[0])
# holds: extents(s, "B") == [5, 7]
--- inner loops run between the padding of a block
padded
# do: s.decompose_padding("B", s.get_loops("B")[1])
# holds: extents(s, "B") == [9, 7]
--- a block begins at the bounds of its padding under loops that stay
def before(A: i32[1, 5, 7], B: i32[1, 9, 10]):
    for o, i, j in SSS(1, 9, 10):
        B[vo, vi, vj] = T.if_then_else(
            vi >= 2 and vi < 7 and 3 <= vj and vi + vj != 6, A[vo, vi - 2, vj - 3], 8
        )
=>
def after(A: i32[1, 5, 7], B: i32[1, 9, 10]):
    for o, i in T.grid(1, 9):
        for j in range(10):
            with T.block("B_pad_const"):
                vo = T.axis.spatial(1, 0)
                vi, vj = T.axis.remap("SS", [i, j])
                B[vo, vi, vj] = 8
        for j in range(7):
            with T.block("B"):
                vo = T.axis.spatial(1, 0)
                vi = T.axis.spatial(5, i - 2)
                vj = T.axis.spatial(7, j)
                T.where(2 <= i and i < 7 and i + (j + 3) != 6)
                B[vo, vi + 2, vj + 3] = A[vo, vi, vj]
# do: s.decompose_padding("B", s.get_loops("B")[2])
--- the other blocks in the loops of a padded one stay
def before(A: i32[5, 7], C: i32[9, 7]):
    B = T.alloc_buffer((5, 7), "int32")
    for i, j in SS(5, 7):
        B[vi, vj] = A[vi, vj] * 2
    for i, j in SS(9, 7):
        C[vi, vj] = T.if_then_else(vi >= 2 and vi < 7, B[vi - 2, vj], 8)
# do: s.compute_at("B", s.get_loops("C")[0])
# do: s.decompose_padding("C", s.get_loops("C")[0])
# holds: len(s.get_loops("B")) == 2
--- a block between no values is not moved
def before(A: i32[5], B: i32[9]):
    for i in S(9):
        B[vi] = T.if_then_else(vi >= 7 and vi < 4, A[vi - 7], 8)
# do: s.decompose_padding("B", s.get_loops("B")[0])
--- regions of a block are declared
chain
# do: s.annotate_buffer_access("B", 0, "read", lambda i, j: ((i - 1, i + 2), j))
# holds: reads(s, "B") == ["A[vi - 1:vi - 1 + 3, vj]"]
# holds: dict(s.get(s.get_block("B")).annotations) == {"explicit_read_region": (0,)}
# error: s.annotate_buffer_access("B", 1, "read", lambda i, j: (i, j)) -> ScheduleError: reads 1
#   buffers, not 1
# error: s.annotate_buffer_access("B", 0, "both", lambda i, j: (i, j)) -> MisuseError: 'read' or
#   'write'
--- a consumer of columns follows each row that is written
flattened
# do: s.reverse_compute_at("C", s.get_loops("B")[0])
# holds: loop_names(s, "C") == ["i", "ax0"]
--- a consumer of columns follows each element that is written
flattened
# do: s.reverse_compute_at("C", s.get_loops("B")[1])
# holds: loop_names(s, "C") == ["i", "j"]
--- the init of a block of tiles runs before the loops over which it reduces
epilogue
# do: i, j, k = s.get_loops("B")
# do: (i0, i1), (j0, j1), (k0, k1) = (s.split(loop, [None, 4]) for loop in (i, j, k))
# do: s.reorder(i0, j0, k0, i1, j1, k1)
# do: tile = s.blockize(i1)
# do: start = s.decompose_reduction(tile, k0)
# holds: loop_names(s, start) == ["i_0", "j_0"]
# holds: s.get(s.get_block("B_o_update")).init is None
--- a change of layout is computed for each iteration that writes all digits of its indices
def before(A: f32[3, 5, 16], C: f32[6, 5, 8]):
    B = T.alloc_buffer((3, 5, 16))
    for i, j, k in SSS(3, 5, 16):
        B[vi, vj, vk] = A[vi, vj, vk] + T.float32(1)
    for a, b, c in SSS(6, 5, 8):
        C[va, vb, vc] = B[(va * 8 + vc) // 16, vb, (va * 8 + vc) % 16]
=>
def after(A: f32[3, 5, 16], C: f32[6, 5, 8]):
    B = T.alloc_buffer((3, 5, 16))
    for i in range(3):
        for j, k in T.grid(5, 16):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                B[vi, vj, vk] = A[vi, vj, vk] + T.float32(1)
        for ax0, ax1, ax2 in T.grid(2, 5, 8):
            with T.block("C"):
                va = T.axis.spatial(6, i * 2 + ax0)
                vb, vc = T.axis.remap("SS", [ax1, ax2])
                C[va, vb, vc] = B[(va * 8 + vc) // 16, vb, (va * 8 + vc) % 16]
# do: s.reverse_compute_at("C", s.get_loops("B")[0])
--- a change of layout whose digits are not those of an iteration of either size
def before(A: f32[6, 8], C: f32[3, 4, 4]):
    B = T.alloc_buffer((6, 8))
    for i, j in SS(6, 8):
        B[vi, vj] = A[vi, vj] + T.float32(1)
    for a, b, c in SSS(3, 4, 4):
        C[va, vb, vc] = B[(va * 16 + vb * 4 + vc) // 8, (va * 16 + vb * 4 + vc) % 8]
# do: outer, _ = s.split(s.get_loops("B")[0], [3, 2])
# do: s.reverse_compute_at("C", outer)
# holds: extents(s, "C") == [3, 4, 4]
--- a reduction is stored where a transposed copy of it was
copied_sum
=>
def after(A: f32[8, 6, 4], D: f32[6, 8]):
    for i, j, k in SSR(8, 6, 4, "B"):
        with T.init():
            D[vj, vi] = T.float32(3)
        D[vj, vi] = D[vj, vi] + A[vi, vj, vk]
# do: s.reverse_compute_inline("D")
--- a block with an init, and without a reduction, is stored where a copy of it was
def before(A: f32[8, 6], D: f32[6, 8]):
    B = T.alloc_buffer((8, 6))
    for i, j, k in SSR(8, 6, 1, "B"):
        with T.init():
            B[vi, vj] = T.float32(1)
        B[vi, vj] = T.max(B[vi, vj], A[vi, vj])
    for i, j in SS(8, 6):
        D[vj, vi] = B[vi, vj]
# do: s.reverse_compute_inline("D")
# holds: block_names(s) == ["root", "B"]
--- a sum that a let writes is factored
let_sum
=>
def after(A: f32[12, 8], B: f32[12]):
    B_rf = T.alloc_buffer((8, 12))
    for i, k in T.grid(12, 8):
        with T.block("B_rf"):
            vk, vi = T.axis.remap("SS", [k, i])
            B_rf[vk, vi] = A[vi, vk] * A[vi, vk]
    for i, k in T.grid(12, 8):
        with T.block("B"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + B_rf[vk, vi]
# do: s.rfactor(s.get_loops("B")[1], 0)
--- blocks that write a buffer do not read its copy
nested
=>
def after(B: f32[32], C: f32[32]):
    A = T.alloc_buffer((32,))
    A_global = T.alloc_buffer((32,))
    for i in range(8):
        with T.block("scope"):
            vi = T.axis.spatial(8, i)
            for j in range(4):
                with T.block("A"):
                    vj = T.axis.spatial(32, vi * 4 + j)
                    A[vj] = T.Cast("float32", vj)
            for j in range(4):
                with T.block("B"):
                    vj = T.axis.spatial(32, vi * 4 + j)
                    B[vj] = A[vj] + T.float32(1)
    for ax0 in range(32):
        with T.block("A_global"):
            v0 = T.axis.spatial(32, ax0)
            A_global[v0] = A[v0]
    for i in S(32, "C"):
        C[vi] = A_global[vi] * T.float32(2)
# do: s.cache_read("C", 0, "global")
--- a partial result of one element is that element
row_sum
=>
def after(A: f32[12, 8], B: f32[12]):
    B_rf = T.alloc_buffer((8, 12))
    for k, i in T.grid(8, 12):
        with T.block("B_rf"):
            T.block_attr({"note": 1})
            vk, vi = T.axis.remap("SS", [k, i])
            B_rf[vk, vi] = A[vi, vk]
    for k, i in T.grid(8, 12):
        with T.block("B"):
            T.block_attr({"note": 1})
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + B_rf[vk, vi]
# do: i, k = s.get_loops("B")
# do: s.reorder(k, i)
# do: s.rfactor(k, 0)
--- a buffer in another memory scope is named after it
chain
# do: s.set_scope("B", 0, "shared.dyn")
# holds: [b.name for b in s.get(s.get_block("root")).alloc_buffers] == ["B_shared_dyn"]
# error: s.set_scope("B", 0, "here") -> ScheduleError: no memory scope 'here'
--- copies are just before the blocks that read them, and otherwise last
forked
# do: copies = s.cache_read("D", 0, "local"), s.cache_write("C", 0, "shared")
# holds: [s.get(copy).name_hint for copy in copies] == ["B_local", "C_shared"]
# holds: block_names(s) == ["root", "B", "C", "B_local", "D", "E", "C_shared"]
--- a copy that some blocks read is just before the others
forked
# do: s.cache_write("B", 0, "local", consumer_blocks=["E"])
# holds: block_names(s) == ["root", "B", "C", "B_local", "D", "E"]
--- the row that an iteration reads is copied
by_rows
# do: copy = s.cache_read("D", 0, "local")
# holds: extents(s, copy) == [6, 1, 8]
# holds: loop_names(s, copy) == ["i", "ax0", "ax1"]
--- a copy of a part of a row moves to its reader
beginnings
# do: copy = s.cache_read("C", 0, "local")
# holds: extents(s, copy) == [6, 5]
# do: s.compute_at(copy, s.get_loops("C")[0])
# holds: extents(s, copy) == [6, 5]
--- the iterators of an index keep their order
chain
# do: i, j = s.get_loops("C")
# do: (i0, i1), (j0, j1) = s.split(i, [3, 4]), s.split(j, [2, 4])
# do: s.reorder(i0, j0, i1, j1)
# do: s.fuse(i0, j0)
# holds: "T.axis.spatial(12, i_0_j_0_fused // 2 * 4 + i_1)" in s.mod["main"].script()
""")
epilogue = kernel("""
def epilogue(A: f32[8, 8], C: f32[8], D: f32[8, 8]):
    B = T.alloc_buffer((8, 8))
    for i, j, k in SSR(8, 8, 8):
        with T.init():
            B[vi, vj] = T.float32(0)
        B[vi, vj] = B[vi, vj] + A[vi, vk] * A[vj, vk]
    for i, j in SS(8, 8):
        D[vj, vi] = C[vj] + B[vi, vj]
""")
copied_sum = kernel("""
def copied_sum(A: f32[8, 6, 4], D: f32[6, 8]):
    B = T.alloc_buffer((8, 6))
    for i, j, k in SSR(8, 6, 4):
        with T.init():
            B[vi, vj] = T.float32(3)
        B[vi, vj] = B[vi, vj] + A[vi, vj, vk]
    for i, j in SS(8, 6):
        D[vj, vi] = B[vi, vj]
""")


@T.prim_func
def let_sum(A: T.Buffer((12, 8), "float32"), B: T.Buffer((12,), "float32")):
    for i, k in T.grid(12, 8):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            a: T.float32 = A[vi, vk]
            total: T.float32 = B[vi] + a * a
            B[vi] = total


@T.prim_func
def nested(B: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
    A = T.alloc_buffer((32,))
    for i in range(8):
        with T.block("scope"):
            vi = T.axis.spatial(8, i)
            for j in range(4):
                with T.block("A"):
                    vj = T.axis.spatial(32, vi * 4 + j)
                    A[vj] = T.Cast("float32", vj)
            for j in range(4):
                with T.block("B"):
                    vj = T.axis.spatial(32, vi * 4 + j)
                    B[vj] = A[vj] + T.float32(1)
    for i in range(32):
        with T.block("C"):
            vi = T.axis.spatial(32, i)
            C[vi] = A[vi] * T.float32(2)


divided = kernel("""
def after(A: f32[12, 8], C: f32[12, 8]):
    B = T.alloc_buffer((12, 8), axis_separators=[1])
    for i, j in SS(12, 8):
        B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in SS(12, 8):
        C[vi, vj] = B[vi, vj] + T.float32(1)
""")
padded = kernel("""
def padded(A: i32[5, 7], B: i32[9, 10]):
    for i, j in SS(9, 10):
        B[vi, vj] = T.if_then_else(
            vi >= 2 and vi < 7 and 3 <= vj and vi + vj != 6, A[vi - 2, vj - 3], 8
        )
""")
flattened = kernel("""
def flattened(A: f32[6, 8], C: f32[44]):
    B = T.alloc_buffer((6, 8))
    for i, j in SS(6, 8):
        B[vi, vj] = A[vi, vj] * T.float32(2)
    for k in S(44):
        C[vk] = B[vk // 8, vk % 8]
""")
forked = kernel("""
def forked(A: f32[6, 8], C: f32[6, 8], D: f32[6, 8], E: f32[6, 8]):
    B = T.alloc_buffer((6, 8))
    for i, j in SS(6, 8):
        B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in SS(6, 8):
        C[vi, vj] = A[vi, vj] + T.float32(1)
    for i, j in SS(6, 8):
        D[vi, vj] = B[vi, vj] + T.float32(3)
    for i, j in SS(6, 8):
        E[vi, vj] = B[vi, vj] + T.float32(4)
""")
beginnings = kernel("""
def beginnings(A: f32[6, 8], C: f32[6, 5]):
    B = T.alloc_buffer((6, 8))
    for i, j in SS(6, 8):
        B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in SS(6, 5):
        C[vi, vj] = B[vi, vj] + T.float32(1)
""")


@T.prim_func
def by_rows(A: T.Buffer((6, 8), "float32"), D: T.Buffer((6, 8), "float32")):
    B = T.alloc_buffer((6, 8))
    for i in range(6):
        for j in range(8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = B[vi, vj] + T.float32(3)


def written(text: str) -> tir.PrimFunc:
    return globals().get(text.strip()) or kernel(text)


def check_schedule(row: str) -> None:
    """The values stay, and the trace leads to the same kernel, which is the one that a row has."""
    text, comments = commented(row)
    source, _, expected = text.partition("=>\n")
    before = written(source)
    sch = tir.Schedule(before)
    names = {**globals(), "s": sch}
    follow(comments, names)
    if expected:
        after = written(expected)
        testing.assert_structural_equal_ignore_global_symbol(sch.mod["main"], after)
    testing.verify_trace_roundtrip(sch, before)
    same_values(before, sch.mod)


@pytest.mark.parametrize("row", SCHEDULES)
def test_a_schedule_makes_a_kernel_of_the_same_values(row: str) -> None:
    check_schedule(row)


PARTITIONED = """
row_sum
=>
def after(A: f32[12, 8], B: f32[12]):
    with T.block("root"):
        T.reads()
        T.writes()
        with T.block("B_i_common"):
            T.reads()
            T.writes()
            with T.block("B_i0_partition"):
                T.reads()
                T.writes()
                for i0, k in T.grid(5, 8):
                    with T.block("B_i0"):
                        T.block_attr({"note": 1})
                        vi, vk = T.axis.remap("SR", [i0, k])
                        T.reads(A[0:5, 0:8])
                        T.writes(B[0:5])
                        with T.init():
                            B[vi] = T.float32(0)
                        B[vi] = B[vi] + A[vi, vk]
            with T.block("B_i1_partition"):
                T.reads()
                T.writes()
                for i1 in range(5, 12):
                    for k in range(8):
                        with T.block("B_i1"):
                            T.block_attr({"note": 1})
                            vi, vk = T.axis.remap("SR", [i1, k])
                            T.reads(A[5:12, 0:8])
                            T.writes(B[5:12])
                            with T.init():
                                B[vi] = T.float32(0)
                            B[vi] = B[vi] + A[vi, vk]
# do: s.loop_partition(s.get_loops("B")[0], FACTORS)
"""


@pytest.mark.parametrize("factors", ["[5]", "[5, None]", "[None, 7]"])
def test_partition_puts_each_loop_into_a_block_of_its_own(factors: str) -> None:
    check_schedule(PARTITIONED.replace("FACTORS", factors))


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([13], "exceed the extent 12"),
        ([None, 12], "exceed the extent 12"),
        ([None, None], "at most one"),
        ([0, None], "a factor is positive, found 0"),
    ],
)
def test_factors_of_a_partition_have_to_fit(factors: list[Any], message: str) -> None:
    sch = tir.Schedule(row_sum)
    with pytest.raises(ScheduleError, match=message):
        sch.loop_partition(sch.get_loops("B")[0], factors)
    assert sch.mod["main"].body is row_sum.body


apart = kernel("""
def apart(A: f32[4, 6], C: f32[4, 6], D: f32[4, 3]):
    for i, j in SS(4, 6):
        C[vi, vj] = A[vi, vj] + T.float32(1)
    for i, j in SS(4, 3):
        D[vi, vj] = A[vi, vj] + T.float32(2)
""")


def test_loops_that_differ_or_depend_on_each_other_are_not_merged() -> None:
    sch = tir.Schedule(apart)
    with pytest.raises(ScheduleError, match="different extents"):
        sch.merge(sch.get_loops("C")[1], sch.get_loops("D")[1])
    with pytest.raises(ScheduleError, match="not at the same level"):
        sch.merge(sch.get_loops("C")[0], sch.get_loops("D")[1])

    shifted = kernel("""
def shifted(A: f32[8], C: f32[8]):
    B = T.alloc_buffer((8,))
    for i in S(8):
        B[vi] = A[vi]
    for i in S(8):
        C[vi] = B[7 - vi]
""")

    sch = tir.Schedule(shifted)
    with pytest.raises(ScheduleError, match="different iterations"):
        sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    assert sch.mod["main"].body is shifted.body


def test_equal_kernels_are_scheduled_once() -> None:
    def scheduled(size: int, factors: list[Any], refused: list[Any]) -> tir.Schedule:
        @T.prim_func
        def twice(A: T.Buffer((size,), "float32"), B: T.Buffer((size,), "float32")):
            for i in range(size):
                with T.block("B"):
                    vi = T.axis.spatial(size, i)
                    B[vi] = A[vi] * T.float32(2)

        sch = tir.Schedule(twice)
        loop = sch.get_loops("B")[0]
        with pytest.raises(ScheduleError, match="split: "):
            sch.split(loop, refused)
        _, inner = sch.split(loop, factors)
        sch.vectorize(inner)
        sch.annotate(inner, "note", 1)
        testing.verify_trace_roundtrip(sch, twice)
        same_values(twice, sch.mod)
        return sch

    first, *others = [scheduled(12, [3, None], [3, 3]) for _ in range(3)]
    assert all(other.mod["main"] is first.mod["main"] for other in others)
    assert str(others[0].trace) == str(first.trace)
    for size, factors in ((12, [None, 3]), (12, [3, 4]), (24, [3, None])):
        assert scheduled(size, factors, [0, None]).mod["main"] is not first.mod["main"]


def test_kernels_that_differ_in_what_their_text_leaves_out_keep_it() -> None:
    tables = [np.full(3000, value, "float32") for value in (1, 2)]
    for table in tables:
        sch = tir.Schedule(chain.with_attr("table", relaxpy.runtime.tensor(table)))
        sch.split(sch.get_loops("C")[0], [3, None])
        np.testing.assert_array_equal(sch.mod["main"].attrs["table"], table)


def _by_fives(sch: tir.Schedule, **how: Any) -> None:
    sch.transform_layout("B", "B", lambda i: (i // 5, i % 5), **how)


@pytest.mark.parametrize(("pad", "value"), [("-1", "-1"), ("lambda i, j: i + j", "vi + vj")])
def test_the_only_writer_of_a_padded_buffer_computes_its_padding(pad: str, value: str) -> None:
    check_schedule(f"""
def before(A: i32[12, 8], C: i32[12]):
    B = T.alloc_buffer((12,), "int32")
    for i, k in SR(12, 8):
        with T.init():
            B[vi] = 0
        B[vi] = B[vi] + A[vi, vk]
    for i in S(12):
        C[vi] = B[vi] * 2
=>
def after(A: i32[12, 8], C: i32[12]):
    B = T.alloc_buffer((3, 5), "int32")
    for i, j, k in SSR(3, 5, 8):
        with T.init():
            B[vi, vj] = T.if_then_else(vi == 2 and 2 <= vj, {value}, 0)
        B[vi, vj] = T.if_then_else(
            vi == 2 and 2 <= vj, {value}, B[vi, vj] + A[vi * 5 + vj, vk]
        )
    for i in S(12):
        C[vi] = B[vi // 5, vi % 5] * 2
# do: _by_fives(s, pad_value={pad})
""")


def test_a_number_for_padding_is_one_of_the_buffer() -> None:
    sch = tir.Schedule(
        kernel("""
def before(A: i32[12], B: i32[12]):
    for i in S(12):
        B[vi] = A[vi] * 2
""")
    )
    with pytest.raises(MisuseError) as caught:
        _by_fives(sch, pad_value=1.5)
    assert caught.value.diagnostics[0].message == "pad_value is 1.5, and B is int32"


def test_padding_is_stored_where_a_block_only_declares_that_it_writes() -> None:
    before = from_source("""
@T.prim_func
def before(A: T.Buffer((12,), "int32"), B: T.Buffer((12,), "int32")):
    for i in T.grid(12):
        with T.block("B"):
            vi = T.axis.spatial(12, i)
            T.reads(A[vi])
            T.writes(B[vi])
            T.evaluate(0)
""")
    sch = tir.Schedule(before)
    _by_fives(sch, pad_value=-1)
    found = np.zeros((3, 5), "int32")
    relaxpy.compile(sch.mod, target="numpy")["main"](np.ones(12, "int32"), found)
    np.testing.assert_array_equal(found.ravel(), [0] * 12 + [-1] * 3)


_ROWS = "for i in S(12):\n        "
_OTHER_WRITERS = {
    "of two buffers": f"{_ROWS}B[vi] = A[vi] * 2\n        C[vi] = A[vi]",
    "of a part": "for i in S(7):\n        B[vi] = A[vi] * 2",
    "in another order": f"{_ROWS}B[11 - vi] = A[vi] * 2",
    "after another": f"{_ROWS}B[vi] = A[vi]\n    {_ROWS}B[vi] = B[vi] * 2",
}


@pytest.mark.parametrize("writer", _OTHER_WRITERS)
def test_padding_is_stored_after_other_writers(writer: str) -> None:
    before = kernel(f"""
def before(A: i32[12], B: i32[12], C: i32[12]):
    {_OTHER_WRITERS[writer]}
""")
    sch = tir.Schedule(before)
    first, *_ = sch.get_child_blocks(sch.get_block("root"))
    sch.transform_layout(first, "B", lambda i: (i // 5, i % 5), pad_value=-1)
    after = [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_block("root"))]
    assert after[-1] == "B_padding"
    found = np.zeros((3, 5), "int32")
    relaxpy.compile(sch.mod, target="numpy")["main"](
        np.arange(12, dtype="int32"), found, np.zeros(12, "int32")
    )
    wanted = np.zeros(12, "int32")
    relaxpy.compile(before, target="reference")["before"](
        np.arange(12, dtype="int32"), wanted, np.zeros(12, "int32")
    )
    np.testing.assert_array_equal(found.ravel(), [*wanted, -1, -1, -1])


@pytest.mark.parametrize(
    ("where", "condition"), [("True", "i < 11 and j < 7"), ("j < 7", "j < 7 and i < 11")]
)
def test_an_inlined_consumer_of_a_part_is_a_predicate(where: str, condition: str) -> None:
    check_schedule(f"""
def before(A: f32[12, 8], C: f32[11, 7]):
    B = T.alloc_buffer((12, 8))
    for i, j in T.grid(12, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where({where})
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in SS(11, 7):
        C[vi, vj] = B[vi, vj] + T.float32(1)
=>
def after(A: f32[12, 8], C: f32[11, 7]):
    for i, j in T.grid(12, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where({condition})
            C[vi, vj] = A[vi, vj] * T.float32(2) + T.float32(1)
# do: s.reverse_compute_inline("C")
""")


@pytest.mark.parametrize("last", ["unroll", "parallel", "bind"])
def test_the_kind_of_a_loop_may_change_again(last: str) -> None:
    again, once = tir.Schedule(chain), tir.Schedule(chain)
    again.bind(again.get_loops("B")[0], "blockIdx.x")
    for sch in (again, once):
        getattr(sch, last)(sch.get_loops("B")[0], *(["threadIdx.x"] if last == "bind" else []))
    assert_structural_equal(again.mod, once.mod)


def test_names_that_a_schedule_does_not_know_are_index_errors() -> None:
    sch = tir.Schedule(chain)
    block = sch.get_block("B")
    copy = sch.copy()
    loop, _ = copy.split(copy.get_loops(block)[0], [None, 2])
    assert copy.get_sref(loop).stmt is copy.get(loop)
    assert copy.get_sref(copy.get(loop)).same_as(copy.get_sref(loop))
    assert copy.get_sref(loop).parent is not None
    with pytest.raises(IndexError):
        sch.get(loop)
    sch.remove_rv(block)
    with pytest.raises(IndexError):
        sch.get(block)
    assert sch.func_working_on is not None
    assert sch.func_working_on.name_hint == "main"


def lookup(name: str, output: BlockRV) -> Instruction:
    return Instruction(InstructionKind.get("GetBlock"), [], [name, "main"], [output])


def test_traces_write_the_buffers_of_blocks_as_pairs() -> None:
    sch = tir.Schedule(chain)
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i, j: (j, i))
    sch.reindex(sch.get_block("C"), ("read", 0))
    index_map = "index_map=lambda i, j: (j, i,)"
    assert sch.trace.as_python()[1::2] == [
        f'sch.transform_layout(block=b0, buffer=("write", 0), {index_map}, pad_value=None, '
        "assume_injective_transform=False)",
        'b2 = sch.reindex(block=b1, buffer=("read", 0))',
    ]


def test_traces_are_built_of_instructions() -> None:
    block, loops = BlockRV(), [LoopRV(), LoopRV()]
    trace = Trace([lookup("B", block)], {})
    trace.append(Instruction(InstructionKind.get("GetLoops"), [block], [], loops))
    trace.append(Instruction(InstructionKind.get("ComputeInline"), [block], [], []))
    assert trace.as_python() == [
        'b0 = sch.get_block(name="B", func_name="main")',
        "l1, l2 = sch.get_loops(block=b0)",
        "sch.compute_inline(block=b0)",
    ]
    assert str(trace.insts[1]) == "_, _ = sch.get_loops(block=_)"
    assert trace.as_json() == [
        [
            ["GetBlock", [], ["B", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2"]],
            ["ComputeInline", ["b0"], [], []],
        ],
        [],
    ]
    assert [inst.kind.name for inst in trace.simplified().insts] == ["GetBlock", "ComputeInline"]
    sch = tir.Schedule(chain)
    trace.apply_to_schedule(sch)
    assert [sch.get(b).name_hint for b in sch.get_child_blocks("root")] == ["C"]
    assert trace.pop() is not None
    assert trace.get_decision(trace.insts[0]) is None
    assert Trace().pop() is None
    assert not InstructionKind.get("ComputeInline").is_pure
    assert InstructionKind.get("GetLoops").is_pure
    sch.get_sblock("C")  # the name of TVM 0.27
    assert sch.trace.as_json()[0][-1][:3] == ["GetSBlock", [], ["C", "main"]]


def test_a_trace_ends_before_postprocessing() -> None:
    sch = tir.Schedule(chain)
    sch.compute_inline("B")
    sch.enter_postproc()
    sch.parallel(sch.get_loops("C")[0])
    assert len(sch.trace.as_python()) == 4
    assert sch.trace.as_python(remove_postproc=True) == ['sch.compute_inline(block="B")']
    assert len(sch.trace.simplified(remove_postproc=True).insts) == 1


@pytest.mark.parametrize("annotation", ["SSR", "", '""', '"', {"a": [1, 2]}, [1, "x"], 0.5])
def test_annotations_survive_json(annotation: Any) -> None:
    sch = tir.Schedule(chain)
    sch.annotate("B", "key", annotation)
    testing.verify_trace_roundtrip(sch, chain, text_format="json")


@pytest.mark.parametrize(
    "trace",
    [
        [["GetBlock", [], ["B", "main"], ["b0"]]],
        [[["NoSuchKind", [], [], []]], []],
        [[["GetLoops", ["b0"], [], ["l1"]]], []],
        [[["GetBlock", ['"B"'], ["B", "main"], ["b0"]]], []],
        [[["GetBlock", [], ["B"], ["b0"]]], []],
    ],
)
def test_what_is_not_a_trace_is_refused(trace: Any) -> None:
    with pytest.raises(MisuseError):
        Trace.apply_json_to_schedule(trace, tir.Schedule(chain))


@pytest.mark.parametrize(("keep", "binding"), [(True, "i0"), (False, "0")])
def test_blockize_keeps_unit_loops_in_bindings_if_asked(keep: bool, binding: str):
    @T.prim_func
    def tiled(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        for i0, j0, i1, j1 in T.grid(1, 2, 4, 4):
            with T.block("B"):
                vi = T.axis.spatial(4, i0 * 4 + i1)
                vj = T.axis.spatial(8, j0 * 4 + j1)
                B[vi, vj] = A[vi, vj] + T.float32(1)

    sch = tir.Schedule(tiled)
    _, _, inner, _ = sch.get_loops("B")
    outer = sch.blockize(inner, preserve_unit_iters=keep)
    realize = sch.mod["main"].body.block.body.body.body
    assert realize.block.name_hint == sch.get(outer).name_hint
    assert str(realize.iter_values[0]) == binding
    arrays = [np.arange(32, dtype="float32").reshape(4, 8), np.zeros((4, 8), "float32")]
    relaxpy.compile(sch.mod, target="numpy")["main"](*arrays)
    assert (arrays[1] == arrays[0] + 1).all()


def test_signatures_name_classes_without_the_modules_that_define_them() -> None:
    for name, method in inspect.getmembers(tir.Schedule, inspect.isfunction):
        if not name.startswith("_"):
            written = [p.annotation for p in inspect.signature(method).parameters.values()]
            assert not [text for text in written if re.search(r"\b[a-z_]+\.[A-Z]", str(text))], name


@pytest.mark.parametrize("size", [7, 9])
def test_columns_that_are_not_those_written_are_refused(size: int) -> None:
    before = kernel(f"""
def flatten(A: f32[6, 8], C: f32[40]):
    B = T.alloc_buffer((6, 8))
    for i, j in SS(6, 8):
        B[vi, vj] = A[vi, vj] * T.float32(2)
    for k in S(40):
        C[vk] = B[vk // {size}, vk % {size}]
""")
    sch = tir.Schedule(before)
    with pytest.raises(ScheduleError, match=r"may write|not known to write"):
        sch.reverse_compute_at(sch.get_block("C"), sch.get_loops(sch.get_block("B"))[0])
