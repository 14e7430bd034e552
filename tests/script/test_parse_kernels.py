"""Kernels as text become the statements they describe."""

import itertools
import re
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import ParseError, RelaxpyError, WellFormedError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.nodes import PrimStructInfo, TensorStructInfo
from relaxpy.ir.short_text.nodes import short_text
from relaxpy.ir.tir import expr as tir, stmt
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import ForKind
from relaxpy.script import from_source, tir as T

HEADER = "@T.prim_func\ndef f(A: T.Buffer((16, 16), 'float32'), n: T.int32, x: T.float32):\n"


def kernel(body: str, header: str = HEADER) -> PrimFunc:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    func = from_source(header + lines, check_well_formed=False)
    assert isinstance(func, PrimFunc)
    return func


def only(func: PrimFunc, kind: type) -> object:
    found = [node for node in walk(func.body) if isinstance(node, kind)]
    assert len(found) == 1
    return found[0]


def block_named(func: PrimFunc, name: str) -> stmt.Block:
    [found] = [n for n in walk(func.body) if isinstance(n, stmt.Block) and n.name_hint == name]
    return found


@T.prim_func
def matmul(a: T.handle, B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16))):
    T.func_attr({"tir.noalias": True})
    n = T.int32()
    A = T.match_buffer(a, (16, n), "float32")
    for i, j, k in T.grid(16, 16, n):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] += A[vi, vk] * B[vk, vj]


def test_a_decorated_kernel_is_a_prim_func() -> None:
    assert isinstance(matmul, PrimFunc)
    assert [p.name for p in matmul.params] == ["a", "B", "C"]
    assert dict(matmul.attrs) == {"tir.noalias": True, "global_symbol": "matmul"}
    assert matmul.ret_type is None
    assert {p.name: b.name for p, b in matmul.buffer_map.items()} == {"a": "A", "B": "B", "C": "C"}
    assert matmul.span is not None
    assert matmul.span.file == __file__


def test_blocks_get_regions_and_the_kernel_a_root_block() -> None:
    assert isinstance(matmul.body, stmt.BlockRealize)
    root = matmul.body.block
    assert (root.name_hint, root.iter_vars, root.reads, root.writes) == ("root", (), (), ())
    block = block_named(matmul, "C")
    assert [short_text(r) for r in block.reads] == ["A[vi, vk]", "B[vk, vj]"]
    assert [short_text(r) for r in block.writes] == ["C[vi, vj]"]
    assert [v.iter_type.name for v in block.iter_vars] == ["DataPar", "DataPar", "CommReduce"]
    assert [str(v.dom.extent) for v in block.iter_vars if v.dom] == ["16", "16", "n"]
    assert isinstance(block.init, stmt.BufferStore)
    assert str(block.init.value) == "T.float32(0.0)"


def test_declared_regions_stay_even_empty_ones() -> None:
    func = kernel("""
for i in range(4):
    with T.block("b"):
        v = T.axis.spatial(4, i)
        T.reads([])
        A[v, 0] = A[v, 1]
""")
    block = block_named(func, "b")
    assert block.reads == ()
    assert [short_text(r) for r in block.writes] == ["A[v, 0]"]


def test_a_lone_block_without_variables_is_the_root_itself() -> None:
    func = kernel("""
with T.block("root"):
    A[0, 0] = 1.0
""")
    assert isinstance(func.body, stmt.BlockRealize)
    assert func.body.block.name_hint == "root"
    assert isinstance(func.body.block.body, stmt.BufferStore)
    assert func.body.block.writes == ()


def test_blocks_beside_others_are_not_roots() -> None:
    func = kernel("""
with T.block("one"):
    A[0, 0] = 1.0
with T.block("two"):
    A[0, 1] = A[0, 0]
""")
    assert isinstance(func.body, stmt.BlockRealize)
    assert func.body.block.name_hint == "root"
    assert [short_text(r) for r in block_named(func, "two").reads] == ["A[0, 0]"]


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("range(8)", ForKind.SERIAL),
        ("T.serial(0, 8)", ForKind.SERIAL),
        ("T.parallel(8)", ForKind.PARALLEL),
        ("T.vectorized(8)", ForKind.VECTORIZED),
        ("T.unroll(8)", ForKind.UNROLLED),
        ("T.thread_binding(8, thread='threadIdx.x')", ForKind.THREAD_BINDING),
        ("T.thread_binding(8, 'threadIdx.x')", ForKind.THREAD_BINDING),
    ],
)
def test_every_kind_of_loop(form: str, kind: ForKind) -> None:
    func = kernel(f"for i in {form}:\n    A[i, 0] = 0.0")
    loop = only(func, stmt.For)
    assert isinstance(loop, stmt.For)
    assert loop.kind is kind
    assert (str(loop.min), str(loop.extent)) == ("0", "8")
    assert (loop.thread_binding is not None) == (kind is ForKind.THREAD_BINDING)


def test_loop_bounds_and_annotations() -> None:
    func = kernel("for i in T.serial(n, n + 4, annotations={'pragma': 1}):\n    A[i, 0] = 0.0")
    loop = only(func, stmt.For)
    assert isinstance(loop, stmt.For)
    assert (str(loop.min), dict(loop.annotations)) == ("n", {"pragma": 1})


def test_targets_of_a_grid() -> None:
    func = kernel("for i, *rest in T.grid(2, 3, 4):\n    A[i, rest[0] + rest[1]] = 0.0")
    loops = [node for node in walk(func.body) if isinstance(node, stmt.For)]
    assert [loop.loop_var.name for loop in reversed(loops)] == ["i", "rest_0", "rest_1"]


@pytest.mark.parametrize(
    ("target", "extents", "names"),
    [
        ("*rest, i", "4", ["i"]),
        ("(*rest,)", "4", ["rest_0"]),
        ("(*rest,)", "2, 3", ["rest_0", "rest_1"]),
        ("(*rest,)", "", []),
    ],
)
def test_a_starred_target_of_any_number_of_loops(
    target: str, extents: str, names: list[str]
) -> None:
    func = kernel(f"for {target} in T.grid({extents}):\n    A[0, 0] = 0.0")
    loops = [node for node in walk(func.body) if isinstance(node, stmt.For)]
    assert [loop.loop_var.name for loop in reversed(loops)] == names


def test_sixty_four_bit_loops_give_sixty_four_bit_variables() -> None:
    func = kernel("for i in range(T.int64(8)):\n    A[i, 0] = 0.0")
    loop = only(func, stmt.For)
    assert isinstance(loop, stmt.For)
    assert loop.loop_var.dtype == "int64"


def test_values_of_stores_take_the_dtype_of_the_buffer() -> None:
    func = kernel("A[0, 0] = 1\nA[0, 1] = n\nA[0, 2] = T.float64(2)\nA[0, 3] = True")
    stores = [s for s in walk(func.body) if isinstance(s, stmt.BufferStore)]
    assert [s.value.dtype for s in stores] == ["float32"] * 4
    assert str(stores[1].value) == 'T.Cast("float32", n)'


def test_augmented_assignment_and_vector_stores() -> None:
    func = kernel("A[n, 0] *= x\nA[n, 4:8] = T.broadcast(x, 4)\nA[n, n:n + 8:2] = x")
    first, second, third = (s for s in walk(func.body) if isinstance(s, stmt.BufferStore))
    assert str(first.value) == "A[n, 0] * x"
    assert second.indices[1].dtype == "int32x4"
    assert isinstance(third.value, tir.Broadcast)
    assert isinstance(third.indices[1], tir.Ramp)


def test_slices_of_constant_length_are_vectors_among_values() -> None:
    func = kernel("""
A[n, 0:4] = A[0, 0:4] + x
A[n, 0:4] = -A[0, n:n + 4] / A[n - 1, 4:8]
A[n, 2] = A[n, 2:3]
T.evaluate((A[0, 0:4] > 0) and (x < 1))
T.evaluate((A[0, 0:4] > 0) or (0 < 1))
""")
    first, second, third = (s for s in walk(func.body) if isinstance(s, stmt.BufferStore))
    assert str(first.value) == "A[0, 0:4] + T.Broadcast(x, 4)"
    assert second.value.dtype == "float32x4"
    assert str(third.value) == "A[n, 2]"
    both, either = (s.value for s in walk(func.body) if isinstance(s, stmt.Evaluate))
    assert isinstance(both, tir.Call)
    assert both.op.name == "tir.bitwise_and"
    assert str(both.args[1]) == "T.Broadcast(x < T.float32(1.0), 4)"
    assert isinstance(either, tir.Call)
    assert (either.op.name, str(either.args[1])) == (
        "tir.bitwise_or",
        "T.Broadcast(T.bool(True), 4)",
    )


def test_slices_that_are_not_vectors_are_not_values() -> None:
    for place in ("0:4, 2", "0, 0:n", "0:2, 0:4"):
        with pytest.raises(ParseError, match="a slice of buffer A is a region, not a value"):
            kernel(f"A[0, 0] = A[{place}] + x")


def test_let_statements() -> None:
    func = kernel("y = x + T.float32(1)\nz: T.int64 = 3\nA[0, 0] = y\nw = 5\nA[0, w] = y")
    lets = [node for node in walk(func.body) if isinstance(node, stmt.LetStmt)]
    names = {let.var.name: (let.var.dtype, str(let.value)) for let in lets}
    assert names == {
        "y": ("float32", "x + T.float32(1.0)"),
        "z": ("int64", "T.int64(3)"),
        "w": ("int32", "5"),
    }


def test_a_variable_of_a_let_may_be_a_dimension_of_an_allocation() -> None:
    func = kernel("""
size = T.int64(16)
half = size // T.int64(2)
B = T.alloc_buffer((size, half), "float32")
B[0, 0] = x
A[0, 0] = B[0, 0]
""")
    [block] = [node for node in walk(func.body) if isinstance(node, stmt.Block)]
    assert [str(size) for size in block.alloc_buffers[0].shape] == ["T.int64(16)", "T.int64(8)"]
    with pytest.raises(RelaxpyError, match="a variable is used without a definition: 'size'"):
        from_source(
            HEADER + '    size = T.Cast("int64", A[0, 0])\n    B = T.alloc_buffer((size,))\n'
        )


def test_a_size_that_mentions_no_named_value_stays_as_it_is_written() -> None:
    func = kernel('half = n // 2\nB = T.alloc_buffer(((n - 3) // 2 + 1,), "float32")\nB[0] = x')
    [block] = [node for node in walk(func.body) if isinstance(node, stmt.Block)]
    assert [str(size) for size in block.alloc_buffers[0].shape] == ["(n - 3) // 2 + 1"]


def test_an_inner_scope_may_use_a_name_again() -> None:
    func = kernel("y = n\nfor i in range(3):\n    y = i\n    A[y, 0] = 0.0\nA[y, 0] = 1.0")
    stores = [s for s in walk(func.body) if isinstance(s, stmt.BufferStore)]
    assert stores[0].indices[0] is not stores[1].indices[0]


def test_branches_and_loops_with_conditions() -> None:
    func = kernel("""
if n > 3 and not n == 5:
    A[0, 0] = 0.0
elif n < 2:
    A[0, 1] = 0.0
else:
    A[0, 2] = 0.0
while n < 9:
    if 1 < n < 5:
        continue
    break
""")
    outer = [node for node in walk(func.body) if isinstance(node, stmt.IfThenElse)]
    assert [str(i.condition) for i in outer] == ["n < 2", "n > 3 and not n == 5", "1 < n and n < 5"]
    calls = [str(n.value) for n in walk(func.body) if isinstance(n, stmt.Evaluate)]
    assert calls == ["T.continue_loop()", "T.break_loop()"]


def test_a_condition_known_while_reading_chooses_at_once() -> None:
    func = kernel("""
if len([1, 2]) == 2:
    A[0, 0] = 1.0
else:
    A[0, 0] = nothing
B = A if True else missing
B[0, 1] = 2.0 if False else 3.0
""")
    stores = [s for s in walk(func.body) if isinstance(s, stmt.BufferStore)]
    assert [str(s.value) for s in stores] == ["T.float32(1.0)", "T.float32(3.0)"]


def test_a_conditional_expression_of_the_program() -> None:
    func = kernel("A[0, 0] = A[0, 1] if n < 3 else 0")
    assert str(only(func, stmt.BufferStore).value) == (  # type: ignore[attr-defined]
        "T.if_then_else(n < 3, A[0, 1], T.float32(0.0))"
    )


def test_return_and_its_dtype() -> None:
    func = kernel("return 3", "@T.prim_func\ndef f(n: T.int32) -> T.int64:\n")
    assert func.ret_type == "int64"
    assert str(only(func, stmt.Evaluate).value) == "T.ret(T.int64(3))"  # type: ignore[attr-defined]
    sinfo = func.struct_info
    assert sinfo is not None
    assert sinfo.ret == PrimStructInfo("int64")  # type: ignore[attr-defined]


def test_assertions_enclose_what_follows() -> None:
    func = kernel('assert n > 0, "positive"\nA[0, 0] = 1.0')
    assert isinstance(func.body, stmt.AssertStmt)
    assert isinstance(func.body.body, stmt.BufferStore)
    assert isinstance(kernel('T.Assert(n > 0, "m")\nA[0, 0] = 1.0').body, stmt.AssertStmt)


def test_memory_of_its_own() -> None:
    func = kernel("""
B = T.alloc_buffer((4,), "int8", scope="local")
p = T.allocate([16], "float32", "global")
C = T.decl_buffer((16,), "float32", data=p)
with T.decl_buffer((4,), "int32") as D:
    D[0] = 1
C[0] = 1.0
with T.attr(n, "key", 3):
    B[0] = 1
""")
    assert isinstance(func.body, stmt.BlockRealize)
    [buffer] = func.body.block.alloc_buffers
    assert (buffer.name, buffer.dtype, buffer.scope()) == ("B", "int8", "local")
    kinds = [type(n).__name__ for n in walk(func.body) if isinstance(n, stmt.Stmt)]
    assert kinds.count("Allocate") == 2
    assert kinds.count("DeclBuffer") == 2
    assert kinds.count("AttrStmt") == 1


def test_memory_that_is_named_in_a_loop_belongs_to_the_block_around_it() -> None:
    func = kernel("""
for i in range(4):
    with T.block("outer"):
        v = T.axis.spatial(4, i)
        for j in range(2):
            if j < 1:
                B = T.alloc_buffer((1,), "int8")
                B[0] = 1
            with T.block("inner"):
                w = T.axis.spatial(2, j)
                for k in range(3):
                    C = T.alloc_buffer((2,), "int8")
                    C[0] = 2
""")
    allocated = {name: block_named(func, name).alloc_buffers for name in ("root", "outer", "inner")}
    names = {name: [b.name for b in buffers] for name, buffers in allocated.items()}
    assert names == {"root": [], "outer": ["B"], "inner": ["C"]}


def test_tables_of_block_attributes_are_merged() -> None:
    func = kernel("""
with T.block("b"):
    T.block_attr({"a": {"x": 1, "deep": {"p": 1}}, "n": 2})
    T.block_attr({"a": {"y": 2, "deep": {"q": 2}}, "n": 2})
    T.evaluate(0)
T.evaluate(0)
""")
    expected = Attrs({"a": {"x": 1, "deep": {"p": 1, "q": 2}, "y": 2}, "n": 2})
    assert block_named(func, "b").annotations == expected


def test_views_of_regions_in_blocks() -> None:
    func = kernel("""
with T.block("b"):
    T.where(n < 3)
    T.block_attr({"a": 1})
    V = T.match_buffer(A[0:4, 2], (4, 1), "float32")
    V[0, 0] = 1.0
A[0, 0] = 1.0
""")
    block = block_named(func, "b")
    [match] = block.match_buffers
    assert short_text(match.source) == "A[0:4, 2]"
    assert dict(block.annotations) == {"a": 1}
    assert [short_text(r) for r in block.writes] == ["A[0:4, 2]"]
    [realize] = [
        n for n in walk(func.body) if isinstance(n, stmt.BlockRealize) and n.block is block
    ]
    assert str(realize.predicate) == "n < 3"


CROP = """
@T.prim_func
def crop(a: T.handle, b: T.handle, top: T.int64, left: T.int64):
    h, w, rows, columns = T.int64(), T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (h, w), "float32")
    B = T.match_buffer(b, (rows, columns), "float32")
    for i, j in T.grid(rows, columns):
        with T.block("crop"):
            {}
"""
DECLARATIONS = (
    "T.reads(A[i + top, j + left])",
    "T.writes(B[i, j])",
    "T.where(i < rows - 1)",
    'T.block_attr({"k": 1})',
)
COPY = "B[i, j] = A[i + top, j + left]"
SCOPES = {
    "if": "if i + top < h and j + left < w:\n    @",
    "else": "if i + top >= h or j + left >= w:\n    T.evaluate(0)\nelse:\n    @",
    "loop": "for k in range(1):\n    @",
    "branch of a loop": "for k in range(1):\n    if i + top < h and j + left < w:\n        @",
    "value": "with T.LetStmt(i + top):\n    @",
    "attribute": "with T.attr(0, 'pragma_k', 1):\n    @",
}


def crop(scope: str, inside: Sequence[str]) -> str:
    """A kernel whose block declares some properties in `scope`, and the others at its top."""
    before, indent, _ = re.split(r"(?m)^( *)@", scope)
    lines = [indent + line for line in (*inside, COPY)]
    body = "\n".join([*(d for d in DECLARATIONS if d not in inside), before + "\n".join(lines)])
    return CROP.format(body.replace("\n", "\n            "))


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_a_block_is_described_in_the_statements_inside_it(scope: str) -> None:
    described_first = from_source(crop(scope, ()))
    for count in range(1, 1 + len(DECLARATIONS)):
        for inside in itertools.combinations(DECLARATIONS, count):
            assert_structural_equal(from_source(crop(scope, inside)), described_first)
    x = np.arange(30, dtype="float32").reshape(5, 6)
    expected = np.full((3, 2), -1, "float32")
    expected[:2] = x[1:3, 3:5]
    for target in ("numpy", "native", "reference"):
        out = np.full((3, 2), -1, "float32")
        mod = IRModule({"crop": from_source(crop(scope, DECLARATIONS))})
        relaxpy.compile(mod, target=target)["crop"](x, out, 1, 3)
        assert_array_equal(out, expected)


def test_a_description_of_a_block_belongs_to_the_innermost_block() -> None:
    func = kernel("""
with T.block("outer"):
    if n < 3:
        with T.block("inner"):
            if n < 2:
                T.reads(A[0, 0])
                T.where(n < 1)
                A[0, 1] = A[0, 0]
        T.reads(A[0, 0:4])
T.evaluate(0)
""")
    outer, inner = block_named(func, "outer"), block_named(func, "inner")
    assert [short_text(r) for r in outer.reads] == ["A[0, 0:4]"]
    assert [short_text(r) for r in inner.reads] == ["A[0, 0]"]


@pytest.mark.rule("PX-7")
@pytest.mark.parametrize(
    "description", ["T.reads(A[k, 0])", "T.where(k < 3)", "B = T.alloc_buffer((k + 1,), 'int8')"]
)
def test_a_description_of_a_block_has_no_variable_of_its_loops(description: str) -> None:
    body = f"""
        with T.block("b"):
            for k in range(4):
                {description}
                A[k, 1] = A[k, 0]
    """
    with pytest.raises(WellFormedError, match="without a definition: 'k'"):
        from_source(HEADER + body)


def test_symbolic_shapes_are_in_the_signature() -> None:
    sinfo = matmul.struct_info
    assert sinfo is not None
    first = sinfo.params[0]  # type: ignore[attr-defined]
    assert isinstance(first, TensorStructInfo)
    assert first.ndim == 2


def test_parameters_see_those_before_them() -> None:
    func = kernel(
        "A[0, 0] = 1.0", "@T.prim_func\ndef f(n: T.int32, A: T.Buffer((n, 4), 'float32')):\n"
    )
    assert func.buffer_map[func.params[1]].shape[0] is func.params[0]


def test_calls_between_kernels_have_the_dtype_of_the_callee() -> None:
    mod = from_source("""
@I.ir_module
class Module:
    @T.prim_func
    def caller(A: T.Buffer((4,), "int64")):
        A[0] = Module.callee(A[1])
        A[2] = callee(1)

    @T.prim_func(private=True)
    def callee(n: T.int64) -> T.int64:
        return n + T.int64(1)
""")
    calls = [n for n in walk(mod["caller"]) if isinstance(n, tir.Call)]
    assert [call.dtype for call in calls] == ["int64", "int64"]
    assert calls[0].op is mod.get_global_var("callee")


SIZE, TABLE = 8, [1, 2, 3]


def scaled(buffer: object, index: object) -> object:
    return buffer[index, 0] * 2.0  # type: ignore[index]


def test_python_around_a_kernel_is_used_while_it_is_read() -> None:
    width = 4

    @T.prim_func
    def f(A: T.Buffer((SIZE, width), "float32")):
        for i in range(len(TABLE)):
            A[i, 1] = scaled(A, i) + np.float32(3)
        A[0, 0] = T.float32(sum(t * t for t in TABLE))

    stores = [s for s in walk(f.body) if isinstance(s, stmt.BufferStore)]
    assert [str(s.value) for s in stores] == [
        "A[i, 0] * T.float32(2.0) + T.float32(3.0)",
        "T.float32(14.0)",
    ]


def test_members_of_a_meta_tuple_are_not_statements() -> None:
    func = kernel("i, j = T.meta_var((n + 1, n * 2))\nA[i, j] = 1.0")
    assert isinstance(func.body, stmt.BufferStore)
    assert [str(index) for index in func.body.indices] == ["n + 1", "n * 2"]
    let = kernel("i, j = (n + 1, n * 2)\nA[i, j] = 1.0").body
    assert isinstance(let, stmt.LetStmt)


def test_meta_variables_are_not_statements() -> None:
    func = kernel("k = T.meta_var(3)\nA[k, k + 1] = 0.0\naxes = [n, 2]\nA[axes[0], axes[1]] = 1.0")
    assert [
        str(i) for s in walk(func.body) if isinstance(s, stmt.BufferStore) for i in s.indices
    ] == [*("3", "4"), *("n", "2")]


def test_private_kernels_have_no_global_symbol() -> None:
    func = kernel("T.evaluate(n)", HEADER.replace("prim_func", "prim_func(private=True)"))
    assert "global_symbol" not in func.attrs


def test_a_long_chain_of_operators_is_read() -> None:
    func = kernel("A[0, 0] = " + " + ".join(["x"] * 900))
    assert only(func, stmt.BufferStore)


def test_statements_know_their_lines() -> None:
    func = kernel("for i in range(4):\n    A[i, 0] = 0.0")
    store = only(func, stmt.BufferStore)
    assert isinstance(store, stmt.BufferStore)
    assert store.span is not None
    assert (store.span.line, store.span.column, store.span.end_column) == (4, 9, 22)


def test_a_kernel_that_needs_its_regions_said() -> None:
    body = """
with T.block("b"):
    v = T.axis.spatial(4, n)
    T.evaluate(T.call_extern("int32", "g", A.data))
"""
    with pytest.raises(ParseError, match=r"declare them with T.reads\(...\) and T.writes\(...\)"):
        kernel(body)
    said = body.replace("    T.eval", "    T.reads(A[0, 0])\n    T.writes()\n    T.eval")
    assert block_named(kernel(said), "b").writes == ()


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("1 == n", tir.EQ),
        ("1 != n", tir.NE),
        ("1 < n", tir.LT),
        ("1 <= n", tir.LE),
        ("1 > n", tir.GT),
        ("1 >= n", tir.GE),
    ],
)
def test_comparisons_stand_as_they_are_written(text: str, node: type[tir.CmpExpr]) -> None:
    func = kernel(f"if {text}:\n    A[0, 0] = 0.0")
    (found,) = [n.condition for n in walk(func.body) if isinstance(n, stmt.IfThenElse)]
    assert type(found) is node
    assert found.a.dtype == found.b.dtype == "int32"
    assert str(found) == text


def test_names_of_the_function_around_may_be_said_to_be_that() -> None:
    size = 4

    @T.prim_func
    def func(A: T.Buffer((4,), "float32")) -> None:
        nonlocal size
        for i in range(size):
            A[i] = T.float32(0)

    assert "for i in range(4)" in func.script()
    with pytest.raises(ParseError, match="global is not part of a kernel"):
        kernel("global size")


def test_steps_of_a_slice_stay_beside_other_slices() -> None:
    func = kernel("A[0, 0:4] = A[1:2, 0:8:2]\nA[0, n + 1:n + 5] += x")
    first, second = (s for s in walk(func.body) if isinstance(s, stmt.BufferStore))
    assert str(first.value) == "A[1, 0:8:2]"
    assert str(second.value) == "A[0, n + 1:n + 1 + 4] + T.Broadcast(x, 4)"


def test_members_of_lists_are_defined_like_names() -> None:
    func = kernel("""
for i, j, k in T.grid(4, 4, 4):
    with T.block("b"):
        *vs, vk = T.axis.remap("SSR", [i, j, k])
        buffers = {"a": T.alloc_buffer((4,)), "b": [T.alloc_buffer((4,)), 2]}
        buffers["a"][vs[0]] = buffers["b"][0][vs[1]] + buffers["b"][1]
""")
    block = block_named(func, "b")
    assert [v.var.name for v in block.iter_vars] == ["vs_0", "vs_1", "vk"]
    assert [b.name for b in block.alloc_buffers] == ["buffers_0", "buffers_1_0"]
    [store] = [s for s in walk(func.body) if isinstance(s, stmt.BufferStore)]
    assert str(store.value) == "buffers_1_0[vs_1] + T.float32(2.0)"


def test_contexts_in_one_statement_are_nested() -> None:
    func = kernel('with T.block("b"), T.init():\n    A[0, 0] = 1.0')
    assert isinstance(block_named(func, "b").init, stmt.BufferStore)


def bumped(buffer: Buffer) -> int:
    T.buffer_store(buffer, 1.0, [0])
    return 2


def test_the_index_of_an_augmented_assignment_is_read_once() -> None:
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        A[bumped(A)] += 3.0

    stores = [s for s in walk(f.body) if isinstance(s, stmt.BufferStore)]
    assert [str(s.value) for s in reversed(stores)] == ["A[2] + T.float32(3.0)", "T.float32(1.0)"]


THREE, HALF = np.int64(3), np.float32(0.5)


def test_scalars_of_numpy_take_the_declared_datatype() -> None:
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")) -> T.float64:
        x: T.float64 = THREE
        A[THREE] = THREE
        return HALF

    values = [s.value for s in walk(f.body) if isinstance(s, (stmt.LetStmt, stmt.BufferStore))]
    assert sorted(map(str, values)) == ["T.float32(3.0)", "T.float64(3.0)"]
    assert str(only(f, stmt.Evaluate).value) == "T.ret(T.float64(0.5))"  # type: ignore[attr-defined]


def test_meta_variables_in_starred_targets_and_operands() -> None:
    func = kernel("k, *rest = T.meta_var((1, 2, 3))\nA[k, rest[1]] = T.meta_var(2.0)")
    [store] = [s for s in walk(func.body) if isinstance(s, stmt.BufferStore)]
    assert [str(i) for i in store.indices] == ["1", "3"]
    assert str(store.value) == "T.float32(2.0)"


def test_members_of_lists_keep_what_they_have_read() -> None:
    func = kernel(
        "old = [A[0, 0], (A[0, 1] + x, n)]\nA[0, 0] = old[1][0]\nA[old[1][1], 1] = old[0]"
    )
    lets = [node for node in walk(func.body) if isinstance(node, stmt.LetStmt)]
    names = {let.var.name: str(let.value) for let in lets}
    assert names == {"old_0": "A[0, 0]", "old_1_0": "A[0, 1] + x"}
    first, second = (s for s in walk(func.body) if isinstance(s, stmt.BufferStore))
    assert [str(first.value), str(second.value)] == ["old_1_0", "old_0"]
    assert str(second.indices[0]) == "n"
