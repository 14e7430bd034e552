"""Corners of kernels: each is printed as it is written here, and reads back."""

import re
from textwrap import dedent

import pytest

from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt
from relaxpy.ir.tir.buffer import BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, tir as T

A = decl_buffer((8, 8), "float32", "A")
NOTHING = stmt.Evaluate(0)
K = tir.Var("k")
MASK = tir.Broadcast(ops.const(True), 4)
FOUR = tir.Broadcast(ops.const(1.0), 4)


def printed(body: stmt.Stmt | PrimFunc, *params: object) -> str:
    """The text of a function with this body, from its first line on."""
    func = body if isinstance(body, PrimFunc) else PrimFunc(params or (A,), body)
    text = func.script()
    return text[text.index("def main(") :]


def text(body: str) -> str:
    return dedent(body).strip()


READ_BACK = {
    "a typed pointer": (
        PrimFunc([tir.Var("p", PointerType(PrimType("int8"), "shared"))], NOTHING),
        'def main(p: T.handle("int8", "shared")):\n    T.evaluate(0)',
    ),
    "a size": (
        PrimFunc([tir.SizeVar("n", "int64")], NOTHING),
        "def main(n: T.int64(is_size_var=True)):\n    T.evaluate(0)",
    ),
    "a buffer with all that one can have": (
        PrimFunc(
            [
                decl_buffer(
                    (4, 8),
                    "int8",
                    "B",
                    strides=(8, 1),
                    elem_offset=ops.const(4),
                    scope="shared",
                    data_alignment=16,
                    offset_factor=2,
                    axis_separators=[1],
                )
            ],
            NOTHING,
        ),
        """
        def main(
            B: T.Buffer(
                (4, 8),
                "int8",
                strides=(8, 1),
                elem_offset=4,
                scope="shared",
                align=16,
                offset_factor=2,
                axis_separators=[1],
            ),
        ):
            T.evaluate(0)
        """,
    ),
    "an offset of its own": (
        PrimFunc([decl_buffer((4,), "int8", "B", offset_factor=2)], NOTHING),
        """
        def main(var_B: T.handle):
            B_elem_offset = T.int32()
            B = T.match_buffer(var_B, (4,), "int8", elem_offset=B_elem_offset, offset_factor=2)
            T.evaluate(0)
        """,
    ),
    "two buffers on one piece of memory": (
        PrimFunc([A, decl_buffer((64,), "float32", "flat", data=A.data)], NOTHING),
        """
        def main(var_A: T.handle, var_flat: T.handle):
            A = T.match_buffer(var_A, (8, 8))
            flat = T.match_buffer(var_flat, (64,), data=A.data)
            T.evaluate(0)
        """,
    ),
    "raw memory": (
        stmt.Evaluate(intrin.call_extern("int32", "f", A.data, intrin.address_of(A[K, 0]))),
        """
        def main(A: T.Buffer((8, 8), "float32")):
            k = T.int32()
            T.call_extern("int32", "f", A.data, T.address_of(A[k, 0]))
        """,
    ),
    "vectors": (
        stmt.BufferStore(A, A[0, 0:4:1] + FOUR, (0, tir.Ramp(4, 1, 4))),
        """
        def main(A: T.Buffer((8, 8), "float32")):
            A[0, 4:8] = A[0, 0:4] + T.Broadcast(T.float32(1.0), 4)
        """,
    ),
    "a root block with attributes stays": (
        stmt.BlockRealize((), True, stmt.Block((), (), (), "root", NOTHING, annotations={"a": 1})),
        """
        def main(A: T.Buffer((8, 8), "float32")):
            with T.block("root"):
                T.reads()
                T.writes()
                T.block_attr({"a": 1})
                T.evaluate(0)
        """,
    ),
    "a root block that nothing calls for stays": (
        stmt.BlockRealize((), True, stmt.Block((), (), (), "root", NOTHING)),
        """
        def main(A: T.Buffer((8, 8), "float32")):
            with T.block("root"):
                T.reads()
                T.writes()
                T.evaluate(0)
        """,
    ),
    "loops that depend on each other are not merged": (
        stmt.For(K, 0, 4, 0, stmt.For(tir.Var("j"), 0, K, 0, NOTHING)),
        """
        def main(A: T.Buffer((8, 8), "float32")):
            for k in range(4):
                for j in range(k):
                    T.evaluate(0)
        """,
    ),
    "an upper end that is no sum": (
        stmt.For(K, 1, ops.sub(tir.Var("n"), 1), 0, NOTHING),
        """
        def main(A: T.Buffer((8, 8), "float32")):
            n = T.int32()
            for k in range(1, n):
                T.evaluate(0)
        """,
    ),
    "threads": (
        stmt.For(
            K, 0, 32, 4, NOTHING, IterVar(None, tir.Var("t"), 1, "threadIdx.x"), {"pragma": True}
        ),
        """
        def main(A: T.Buffer((8, 8), "float32")):
            for k in T.thread_binding(32, thread="threadIdx.x", annotations={"pragma": True}):
                T.evaluate(0)
        """,
    ),
}


def _match_in_block() -> stmt.Stmt:
    view = decl_buffer((4, 4), "float32", "view", strides=(tir.Var("s"), 1))
    source = BufferRegion(A, (Range(4), Range(4)))
    match = stmt.MatchBufferRegion(view, source)
    block = stmt.Block(
        (), (source,), (), "b", stmt.BufferStore(view, 0.0, (0, 0)), match_buffers=(match,)
    )
    root = stmt.Block((), (), (), "root", stmt.SeqStmt([stmt.BlockRealize((), True, block)] * 2))
    return stmt.BlockRealize((), True, root)


READ_BACK["a view of a region"] = (
    _match_in_block().block.body.seq[0],
    """
    def main(A: T.Buffer((8, 8), "float32")):
        with T.block("b"):
            T.reads(A[0:4, 0:4])
            T.writes()
            s = T.int32()
            view = T.match_buffer(A[0:4, 0:4], (4, 4), strides=(s, 1))
            view[0, 0] = T.float32(0.0)
    """,
)


@pytest.mark.parametrize("case", READ_BACK)
def test_corners_of_kernels_read_back(case: str):
    body, shown = READ_BACK[case]
    assert printed(body) == text(shown)
    func = body if isinstance(body, PrimFunc) else PrimFunc((A,), body)
    again = from_source(func.script(), check_well_formed=False)
    assert_structural_equal(func, again, map_free_vars=True)


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (
            stmt.Block((), (), (), "b", NOTHING),
            'with T.block("b", no_realize=True):\n    T.reads()\n    T.writes()\n    T.evaluate(0)',
        ),
        (
            stmt.BufferStore(A, FOUR, (0, tir.Ramp(0, 1, 4)), MASK),
            "A.vstore([0, T.Ramp(0, 1, 4)], T.Broadcast(T.float32(1.0), 4), "
            "predicate=T.Broadcast(T.bool(True), 4))",
        ),
        (
            BufferLoad(A, (0, tir.Ramp(0, 1, 4)), MASK),
            "A.vload([0, T.Ramp(0, 1, 4)], predicate=T.Broadcast(T.bool(True), 4))",
        ),
        (
            stmt.AttrStmt(IterVar(None, "t", 1, "threadIdx.x"), "thread_extent", 32, NOTHING),
            'with T.launch_thread("threadIdx.x", 32) as t:\n    T.evaluate(0)',
        ),
        (
            stmt.BufferRealize(A, (Range(4), Range(8)), ops.const(True), NOTHING),
            'with T.realize(A[0:4, 0:8], ""):\n    T.evaluate(0)',
        ),
        (
            stmt.AllocateConst(A.data, "float32", (ops.const(2),), (1.0, 2.0), NOTHING),
            'with T.allocate_const([1.0, 2.0], "float32", [2]) as A:\n    T.evaluate(0)',
        ),
        (
            stmt.Allocate(A.data, "float32", (K,), K < 4, NOTHING),
            'with T.allocate([k], "float32", "global", condition=k < 4) as A:\n    T.evaluate(0)',
        ),
        (
            stmt.SeqStmt([stmt.AssertStmt(K < 4, "no", NOTHING), NOTHING]),
            'with T.Assert(k < 4, "no"):\n    T.evaluate(0)\nT.evaluate(0)',
        ),
        (stmt.Evaluate(tir.Call("int32", rx.GlobalVar("f"), (K,))), "f(k)"),
    ],
)
def test_parts_are_printed(node, shown: str):
    assert node.script(width=200) == shown


SOURCE = decl_buffer((8, 8), "float32", "src")
MEMORY = tir.Var("p", PointerType(PrimType("float32")))
VIEW = decl_buffer((4,), "float32", "V", data=MEMORY)


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (
            stmt.MatchBufferRegion(
                decl_buffer((K, 4), "float32", "tgt"),
                BufferRegion(SOURCE, (Range(0, K), Range(4, 8))),
            ),
            """
            src = T.Buffer((8, 8))
            k = T.int32()
            tgt = T.match_buffer(src[0:k, 4:8], (k, 4))
            """,
        ),
        (
            IterVar((0, 8), "a", IterVar.DataPar),
            """
            a = T.int32()
            T.iter_var(a, T.Range(0, 8), "DataPar", "")
            """,
        ),
        (
            stmt.DeclBuffer(VIEW, stmt.Evaluate(VIEW[1])),
            """
            p = T.handle("float32")
            with T.decl_buffer((4,), data=p) as V:
                T.evaluate(V[1])
            """,
        ),
    ],
)
def test_parts_are_printed_with_what_they_refer_to(node, shown: str):
    assert node.script(verbose_expr=True) == dedent(shown).strip()


def test_a_view_shows_the_memory_that_it_is_of():
    func = PrimFunc([MEMORY], stmt.DeclBuffer(VIEW, stmt.Evaluate(VIEW[1])))
    assert "V = T.decl_buffer((4,), data=p)" in func.script()
    assert_structural_equal(from_source(func.script()), func)
    free = PrimFunc([], stmt.DeclBuffer(VIEW, stmt.Evaluate(VIEW[1])))
    assert 'p = T.handle("float32")\n    V = T.decl_buffer((4,), data=p)' in free.script()


def test_kernels_call_each_other_through_the_module():
    f, g = rx.GlobalVar("f"), rx.GlobalVar("g")
    module = IRModule(
        {
            f: PrimFunc([K], stmt.Evaluate(intrin.ret(K)), "int32"),
            g: PrimFunc([], stmt.Evaluate(tir.Call("int32", f, (ops.const(1),)))),
        },
        attrs={"level": 2},
    )
    assert module.script() == text(
        """
        # from relaxpy.script import ir as I, tir as T

        @I.ir_module
        class Module:
            I.module_attrs({"level": 2})

            @T.prim_func(private=True)
            def f(k: T.int32) -> T.int32:
                return k

            @T.prim_func(private=True)
            def g():
                cls = Module
                cls.f(1)
        """
    )
    assert_structural_equal(module, from_source(module.script(), check_well_formed=False))


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (
            ["main", "sum", "max", "print", "cls", "match"],
            ["main", "sum", "max", "print", "cls", "match"],
        ),
        (
            ["class", "None", "R", "range", "Module"],
            ["class_1", "None_1", "R_1", "range_1", "Module_1"],
        ),
        (["a b", "a_b", "a.b", "a_b_1"], ["a_b_2", "a_b", "a_b_3", "a_b_1"]),
        (["1st", "", "__x"], ["v1st", "v", "_x"]),
    ],
)
def test_functions_keep_the_names_that_python_lets_them_have(names: list[str], shown: list[str]):
    variables = [rx.GlobalVar(name) for name in names]
    x = rx.Var("x", rx.ObjectStructInfo())
    functions = {}
    for k, var in enumerate(variables):
        y = rx.Var("y", x.struct_info)
        call = rx.VarBinding(y, rx.Call(variables[k - 1], [x]))
        body = rx.SeqExpr([rx.BindingBlock([call])], y)
        functions[var] = rx.Function([x], body, x.struct_info, attrs={"global_symbol": names[k]})
    text = IRModule(functions).script()
    assert re.findall(r"def (\w+)", text) == shown
    assert re.findall(r"= cls.(\w+)", text) == [*shown[-1:], *shown[:-1]]
    again = from_source(text)
    assert [var.name_hint for var in again.functions] == names
    assert_structural_equal(again, IRModule(functions))
    for name in names:
        lone = rx.Function([x], x, x.struct_info, attrs={"global_symbol": name})
        assert from_source(lone.script()).attrs["global_symbol"] == name


def test_packed_functions_stand_in_a_module():
    module = IRModule({"ext": rx.ExternFunc("my.func")}, global_infos={"mesh": [1, 2]})
    assert module.script() == text(
        """
        # from relaxpy.script import ir as I, relax as R, tir as T

        @I.ir_module
        class Module:
            I.module_global_infos({"mesh": [1, 2]})

            ext = R.ExternFunc("my.func")
        """
    )


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        ("x", "x"),
        ("class", "class_1"),
        ("None", "None_1"),
        ("max", "max_1"),
        ("T", "T_1"),
        ("cls", "cls_1"),
        ("metadata", "metadata_1"),
        ("Module", "Module_1"),
        ("", "v"),
        ("1st", "v1st"),
        ("a b-c", "a_b_c"),
        ("__dunder__", "_dunder__"),
        ("ﬁ", "fi"),
        ("ünï", "ünï"),
        ("_", "_"),
    ],
)
def test_names_are_python_names_that_mean_nothing_else(hint: str, name: str):
    assert (
        printed(PrimFunc([tir.Var(hint)], NOTHING))
        == f"def main({name}: T.int32):\n    T.evaluate(0)"
    )


def test_names_are_unique_and_the_same_every_time():
    params = [tir.Var(h) for h in ("x", "x", "x_1", "x", "_", "_", "max", "max")]
    shown = printed(PrimFunc(params, NOTHING))
    assert shown == printed(PrimFunc(params, NOTHING))
    names = re.findall(r"(\w+): T.int32", shown)
    assert names == ["x", "x_1", "x_1_1", "x_2", "_", "_1", "max_1", "max_2"]


@pytest.mark.parametrize("value", ["A[0:4] < A[1:5]", "A[0:3] < A[1:4]", "A[0:3] + A[1:4]"])
def test_vectors_of_any_number_of_lanes_can_be_named(value: str) -> None:
    func = from_source(f"@T.prim_func\ndef f(A: T.Buffer((8,))):\n    z = {value}\n")
    assert_structural_equal(from_source(func.script()), func)


def test_what_is_not_a_datatype_is_not_a_name() -> None:
    for name in ("float32x0", "nothingx4", "float32x99999999999"):
        with pytest.raises(AttributeError, match=f"T has no attribute '{name}'"):
            getattr(T, name)
