"""Saved text that was tampered with is refused, or gives what nothing else trips over."""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import MisuseError, RelaxpyError, StructInfoError
from relaxpy.ir import Op, load_json, save_json, structural_equal, structural_hash
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder import normalize
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from tests.fuzz.seed import COUNT
from tests.ir.relax import texts

Sample = texts.module("""
I.module_global_infos({"vdevice": [I.vdevice("llvm", 0)]})

@kernel
def k(x: T.handle, B: f32[4]):
    n = T.int64()
    A = T.match_buffer(x, (n, 4), "float32")
    for i, j in RS(n, 4, "total"):
        with T.init():
            B[vj] = T.float32(0)
        B[vj] = B[vj] + T.max(A[vi, vj], T.float32(0))

@T.prim_func
def low(A: f32[4], B: f32[4], m: T.int32):
    C = T.alloc_buffer((4,), "float32")
    with T.LetStmt(m + 1) as q:
        for i in T.parallel(4):
            C[i] = T.Select(A[i] > T.float32(0), A[i], T.exp(A[i])) * T.Cast("float32", q)
        for i in T.serial(0, 4, annotations={"pragma": 1}):
            if i < m:
                B[i] = C[i]
            else:
                T.evaluate(T.call_extern("int32", "foo", i))

@private
def helper(x: f32[n, 4]) -> f32[n, 4]:
    return R.add(x, R.const([1, 2, 3, 4], "float32"))

@impure
def main(
    x: f32[n, 4],
    c: bool,
    f: R.Callable((R.Tensor,), R.Tensor, True),
    t: R.Tuple(R.Tensor, R.Prim("int64")),
) -> R.Object:
    n, m = (T.int64(), T.int64())
    with R.dataflow():
        lv = R.call_tir(cls.k, (x,), out_sinfo=f32[4])
        lv2 = R.match_cast(t[0], f32[m, 4])
        lv3 = R.nn.softmax(R.matmul(x, R.permute_dims(lv2)), axis=-1)
        gv = R.reshape(lv3, R.shape([n * m]))
        gv2 = R.strided_slice(R.concat((lv, lv)), axes=[0], begin=[0], end=[2])
    g = cls.helper(x)
    if c:
        y = R.sum(g, axis=[0])
    else:
        z = f(g)
        y = R.call_packed("foo", z, R.str("a"), sinfo_args=f32[4])
    _ = R.print(y, format="{}")
    w = (y, (gv, R.shape_of(x)), gv2)
    v = w[1]
    return v
""")


VALUES: list[Any] = [
    *(None, True, "", "main", "float32", 0, 1, -1, 10**30, [], [[]], {}, 1.5, "\ud800", ["a"]),
    *({"int": 0}, {"int": -1}, {"int": 1 << 40}, {"int": "9223372036854775808"}),
    *({"float": "nan"}, {"float": "inf"}, {"dtype": "handle"}, {"dtype": "int64x4"}),
    *({"dtype": ""}, {"table": []}, {"table": [["global_symbol", {"int": 3}]]}),
    *({"enum": ["ForKind", 4]}, {"pointer": ["float32", "global"]}, {"prim": "int32"}),
    *({"array": ["float32", [0], ""]}, {"scalar": ["float32", [], "AAAAAA=="]}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every part of a saved value."""
    parts = range(len(value)) if isinstance(value, list) else value
    if not isinstance(value, (list, dict)):
        return []
    return [p for key in parts for p in ((*path, key), *places(value[key], (*path, key)))]


def tampered(table: dict[str, Any], choose: random.Random) -> None:
    """Change something in one row."""
    number = choose.randrange(len(table["nodes"]))
    row = table["nodes"][number]
    *way, last = choose.choice(places(row)[1:] or [(0,)])
    for step in way:
        row = row[step]
    changes: list[Callable[[], Any]] = [
        lambda: choose.choice(VALUES),
        lambda: choose.randrange(max(1, number)),
        lambda: choose.choice(choose.choice(table["nodes"])[1:] or [None]),
        lambda: [row[last]],
        lambda: [choose.randrange(max(1, number)) for _ in range(choose.randrange(3))],
    ]
    row[last] = choose.choice(changes)()


USES: list[Callable[[IRModule], object]] = [
    lambda module: module.script(),
    repr,
    structural_hash,
    lambda module: structural_equal(module, load_json(save_json(module))),
    relax.analysis.check_well_formed,
    relax.transform.Normalize(),
    relax.transform.LegalizeOps(),
    relaxpy.compile,
    lambda module: relaxpy.compile(module, target="reference"),
]


def accepted(text: str) -> object:
    """What `load_json` gives; None for text that it refuses, as a ValueError of ours."""
    try:
        return load_json(text)
    except ValueError as error:
        if not isinstance(error, RelaxpyError):
            raise
        return None


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@pytest.mark.parametrize("seed", range(max(3, COUNT // 10)))
def test_tampered_text_is_refused_or_harmless(seed: int) -> None:
    choose = random.Random(seed)
    text = save_json(Sample)
    loaded = 0
    for _ in range(25):
        table = json.loads(text)
        tampered(table, choose)
        found = accepted(json.dumps(table))
        if isinstance(found, IRModule):
            loaded += 1
            for use in USES:
                with suppress(RelaxpyError):
                    use(found)
    assert loaded


# --- what such text brought to light

BUFFER = tir.decl_buffer((4,), "float32", "A")
REGION = tir.BufferRegion(BUFFER, [tir.Range(0, 4)])
PASS = tir.Evaluate(0)
X = rx.Var("x", rx.TensorStructInfo((4,), "float32"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tir.Block([], [], [], "b", PASS, init="k"), "expected a statement"),
        (lambda: tir.AttrStmt(None, 3, 0, PASS), "named by a string"),
        (lambda: tir.MatchBufferRegion(BUFFER, BUFFER), "expected a BufferRegion"),
        (lambda: tir.MatchBufferRegion(REGION, REGION), "expected a Buffer"),
        (lambda: tir.BufferRegion(X, [tir.Range(0, 4)]), "expected a Buffer, found x"),
        (lambda: tir.BufferRealize(BUFFER, [0], True, PASS), "expected a list of Ranges"),
        (lambda: tir.BufferRealize(X, [], True, PASS), "expected a Buffer"),
        (lambda: tir.IterVar((0, 4), "i", 0, 3), "named by a string"),
        (lambda: tir.Call("int32", "tir.if_then_else", (1, 2)), "takes 3 operands, found 2"),
        (lambda: tir.Call("float32", "tir.exp", (1.0, 2.0)), "takes 1 operand, found 2"),
        (lambda: rx.TensorStructInfo((4,), "float32", np.zeros(2)), "on a VDevice"),
        (lambda: rx.Function([X], X, attrs={"relax.force_pure": [1]}), "WF-21"),
    ],
)
def test_parts_of_the_wrong_kind_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        make()


@pytest.mark.rule("AST-4")
def test_a_block_may_begin_with_a_statement() -> None:
    assert tir.Block([], [], [], "b", PASS, init=PASS).init is PASS


@pytest.mark.rule("WF-13")
def test_a_global_symbol_is_a_string() -> None:
    assert rx.Function([X], X, attrs={"global_symbol": "f"}).attrs.global_symbol == "f"
    with pytest.raises(MisuseError, match="global_symbol is a string"):
        rx.Function([X], X, attrs={"global_symbol": 3})
    with pytest.raises(MisuseError, match="global_symbol is a string"):
        tir.PrimFunc([], PASS, attrs={"global_symbol": np.zeros(0)})


@pytest.mark.rule("SI-11")
def test_a_rank_has_a_limit() -> None:
    assert rx.TensorStructInfo(ndim=64).ndim == 64
    for rank in (-2, 1 << 40):
        with pytest.raises(MisuseError, match="ndim is -1"):
            rx.TensorStructInfo(ndim=rank)


@pytest.mark.rule("DER-5")
def test_a_tuple_has_the_struct_infos_of_its_fields_whatever_it_is_given() -> None:
    wrong = rx.TupleStructInfo((rx.ObjectStructInfo(),))
    assert rx.Tuple([X], struct_info=wrong).struct_info == rx.TupleStructInfo((X.struct_info,))
    untyped = rx.Var("y")
    assert rx.Tuple([untyped], struct_info=wrong).struct_info is wrong


def legalized(value: rx.Expr, *params: rx.Var) -> IRModule:
    y = rx.Var("y", value.struct_info)
    body = rx.SeqExpr([rx.BindingBlock([rx.VarBinding(y, value)])], y)
    func = rx.Function(params, body, value.struct_info, attrs={"global_symbol": "main"})
    return relax.transform.LegalizeOps()(IRModule({"main": func}))


@pytest.mark.rule("DER-36")
def test_what_a_call_claims_to_be_does_not_hide_what_its_operator_refuses() -> None:
    def call(*args: rx.Expr) -> rx.Call:
        attrs = {"axis": None, "keepdims": False}
        return rx.Call(Op("relax.sum"), args, attrs, struct_info=rx.TensorStructInfo((), "float32"))

    assert len(legalized(call(X), X)) == 2
    with pytest.raises(StructInfoError, match="takes 1 operand, found 0"):
        legalized(call(), X)


def test_only_calls_that_declare_their_struct_info_are_derived_again(monkeypatch) -> None:
    asked = []
    infer = normalize.infer.infer_call
    monkeypatch.setattr(
        normalize.infer, "infer_call", lambda *a: asked.append(a[0].op.name) or infer(*a)
    )
    made = relax.op.nn.relu(X)
    assert len(legalized(made, X)) == 2
    assert "relax.nn.relu" not in asked
    legalized(made.with_struct_info(X.struct_info), X)
    assert asked.count("relax.nn.relu") == 1


@pytest.mark.rule("WF-14d")
def test_operands_have_as_many_dimensions_as_they_say() -> None:
    def call(x: rx.Var) -> rx.Call:
        return rx.Call(Op("relax.nn.relu"), [x], struct_info=rx.TensorStructInfo((4,), "float32"))

    assert len(legalized(call(X), X)) == 2
    wrong = rx.Var("x", rx.TensorStructInfo((4,), "float32", ndim=2))
    with pytest.raises(StructInfoError, match="ndim 2"):
        legalized(call(wrong), wrong)


@pytest.mark.rule("DER-4", "RES-15")
def test_literals_are_what_they_are_whatever_they_are_given() -> None:
    wrong = rx.TensorStructInfo((9,), "int8")
    vague = rx.PrimStructInfo("int64")
    assert rx.PrimValue(3, struct_info=vague).struct_info == rx.PrimValue(3).struct_info
    assert rx.ShapeExpr((2,), struct_info=wrong).struct_info == rx.ShapeStructInfo((2,))
    assert rx.StringImm("a", struct_info=wrong).struct_info == rx.ObjectStructInfo()
    assert rx.DataTypeImm("int8", struct_info=wrong).struct_info == rx.ObjectStructInfo()
    data = np.zeros(4, "float32")
    placed = rx.TensorStructInfo((4,), "float32", VDevice("llvm"))
    assert rx.Constant(data, placed).struct_info == placed
    for sinfo in (wrong, vague, rx.TensorStructInfo((4,), "int8"), rx.TensorStructInfo((5,))):
        with pytest.raises(MisuseError, match="DER-4"):
            rx.Constant(data, sinfo)


@pytest.mark.rule("WF-17b")
def test_a_function_of_neither_form_is_not_called() -> None:
    def call(sinfo: rx.StructInfo) -> IRModule:
        f = rx.Var("f", sinfo)
        body = rx.Call(f, [])
        func = rx.Function([f], body, rx.ObjectStructInfo(), False)
        return relax.transform.Normalize()(IRModule({"main": func}))

    assert len(call(rx.FuncStructInfo.opaque_func())) == 1
    with pytest.raises(StructInfoError, match="f has neither params nor derive_func"):
        call(rx.FuncStructInfo(None, rx.ObjectStructInfo()))
    neither = rx.Var("f", rx.FuncStructInfo(None, rx.ObjectStructInfo()))
    for name in ("call_pure_packed", "call_inplace_packed"):
        with pytest.raises(StructInfoError, match="expected a packed function"):
            BlockBuilder().normalize(rx.Call(Op(f"relax.{name}"), [neither]))


def doubled(program: IRModule, kind: str, fields: list[str]) -> str:
    """The saved program, with a node of `kind` that contains itself twice, at every depth."""
    table = json.loads(save_json(program))
    names = [name for name, *_ in table["kinds"]]
    place = next(i for i, row in enumerate(table["nodes"]) if names[row[0]] == kind)
    row = table["nodes"][place]
    _, *known = table["kinds"][row[0]]
    for last in range(place, place + 60):
        more = list(row)
        for field in fields:
            old = row[1 + known.index(field)]
            more[1 + known.index(field)] = [last, last] if isinstance(old, list) else last
        table["nodes"].insert(last + 1, more)
    # What follows is cut off: the tower itself is the root.
    table["nodes"] = table["nodes"][: place + 61]
    table["root"] = place + 60
    return json.dumps(table)


Towers = texts.module("""
@T.prim_func
def k(A: f32[4]):
    A[0] = T.float32(1)
    A[1] = T.float32(2)

def main(x: R.Tensor(("n",)), c: bool) -> R.Object:
    if c:
        y = R.shape([n + n])
        z = (y, y)
    else:
        z = (R.shape([n]), R.shape([n]))
    return z
""")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("tir.SeqStmt", ["seq"]),
        ("tir.Add", ["a", "b"]),
        ("relax.If", ["true_branch", "false_branch"]),
        ("relax.Tuple", ["fields"]),
    ],
)
def test_what_holds_itself_twice_over_and_over_is_refused(kind: str, fields: list[str]) -> None:
    with pytest.raises(MisuseError, match=r"parts|nodes"):
        load_json(doubled(Towers, kind, fields))


def test_calls_may_stand_in_many_places() -> None:
    """The residual blocks of a network that nobody normalised are read, and run."""
    value: rx.Expr = rx.Var("x", rx.TensorStructInfo((2,)))
    param = value
    for _ in range(60):
        value = rx.Call(Op("relax.add"), [value, value])
    main = rx.Function([param], rx.SeqExpr([], value)).with_attr("global_symbol", "main")
    again = load_json(save_json(IRModule({"main": main})))
    assert isinstance(again, IRModule)
    x = np.array([1, 3], "float32")
    np.testing.assert_array_equal(relaxpy.compile(again)["main"](x), x * 2**60)
