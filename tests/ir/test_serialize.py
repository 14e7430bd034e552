import base64
import contextlib
import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy import DataType, IRModule, register_func, te
from relaxpy.errors import MisuseError, UnknownPackedFuncError
from relaxpy.ir import DictAttrs, EnvFunc, Op, assert_structural_equal, serialize
from relaxpy.ir.core.node import Node
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.serialize import load_json, save_json
from relaxpy.ir.tir import buffer, expr as tir, iteration, stmt
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind
from relaxpy.script import from_source
from tests.ir.ops.cases import CASES
from tests.ir.ops.variants import program
from tests.script.test_round_trip import kernels
from tests.script.test_round_trip_graphs import modules


def kernel() -> PrimFunc:
    n, i = tir.Var("n", "int64"), tir.Var("i", "int64")
    a, b = decl_buffer((n,), "float32", "A"), decl_buffer((n,), "float32", "B")
    store = BufferStore(b, a[i] * 2.0 + 1.0, (i,))
    return PrimFunc((a, b), For(i, 0, n, ForKind.PARALLEL, store), attrs={"tir.noalias": True})


def module() -> IRModule:
    n = tir.Var("n", "int64")
    sinfo = rx.TensorStructInfo((n, n * 2), "float32")
    x = rx.Var("x", sinfo)
    literal = rx.Constant(np.array([1.5, np.nan, -0.0, np.inf], "float32"))
    y = rx.Var("y", literal.struct_info)
    block = rx.DataflowBlock([rx.VarBinding(y, literal)])
    func = rx.Function([x], rx.SeqExpr([block], rx.Tuple([x, y])), attrs={"global_symbol": "main"})
    return IRModule({"main": func, "scale": kernel()}, {"k": (1, "two", 3.5)}, {"mesh": [1, 2]})


def test_a_module_reads_back_equal_and_its_text_is_stable() -> None:
    text = save_json(module())
    again = load_json(text)
    assert isinstance(again, IRModule)
    assert_structural_equal(again, module())
    assert save_json(again) == text
    assert again["main"].params[0].name_hint == "x"


def test_constants_keep_every_bit() -> None:
    data = np.array([np.nan, -0.0, 1e-45], "float32")
    again = load_json(save_json(rx.Constant(data)))
    assert isinstance(again, rx.Constant)
    assert again.data.tobytes() == data.tobytes()
    assert not again.data.flags.writeable


def test_shared_nodes_stay_shared() -> None:
    x = rx.Var("x", rx.ObjectStructInfo())
    again = load_json(save_json(rx.Tuple([x, x])))
    assert isinstance(again, rx.Tuple)
    assert again.fields[0] is again.fields[1]


def test_lists_and_tables_of_nodes_share_what_they_have_in_common() -> None:
    one = tir.IntImm("int32", 1)
    twice = tir.Add(one, one)
    total, first = load_json(save_json([twice, one]))
    assert_structural_equal([total, first], [twice, one])
    assert total.a is total.b is first
    inner, plain = load_json(save_json([[twice], "s"]))
    assert_structural_equal(inner[0], twice)
    assert plain == "s"
    table = load_json(save_json({"sum": twice, "count": 3}))
    assert_structural_equal(table["sum"], twice)
    assert table["count"] == 3
    assert_structural_equal(load_json(save_json([{"a": one}])), [{"a": one}])
    assert load_json(save_json([])) == ()
    for other in (3, None, {1, 2}):
        with pytest.raises(MisuseError, match="expected a node or a module, found"):
            save_json(other)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="of type object cannot be saved"):
        save_json([object()])  # type: ignore[list-item]


@pytest.mark.parametrize("value", ["xy\x01z", np.arange(4, dtype="float32"), np.zeros((2, 0))])
def test_arrays_and_strings_read_back(value: object) -> None:
    read = load_json(save_json(value))
    assert_structural_equal(read, value)
    assert isinstance(value, str) or np.array_equal(read.numpy(), value)
    assert_structural_equal(load_json(save_json({"a": [value]}))["a"][0], value)


def test_keys_that_are_numbers_are_not_turned_into_strings() -> None:
    with pytest.raises(MisuseError, match="the keys of a dict to save are strings or nodes, found"):
        save_json([{"a": 1}, {1: 2}])


def test_dicts_whose_keys_are_nodes_read_back() -> None:
    n, m = tir.Var("n"), tir.Var("m")
    ((table, again),) = (load_json(save_json([{n: m + 1, m: 2}, n])),)
    assert [key.name for key in table] == ["n", "m"]
    assert again in table
    assert again is next(iter(table))
    assert next(iter(table.values())).a is list(table)[1]
    assert load_json(save_json({n: 1})).popitem()[1] == 1


def test_a_function_of_the_environment_is_saved_by_its_name() -> None:
    register_func("test.saved_by_name", lambda x: x + 1)
    func = EnvFunc.get("test.saved_by_name")
    assert load_json(save_json(func))(1) == 2
    assert load_json(save_json(DictAttrs({"func": func, "count": 3})))["func"].name == func.name
    text = save_json([func]).replace("saved_by_name", "unknown_name")
    with pytest.raises(UnknownPackedFuncError, match="unknown_name"):
        load_json(text)


def test_depth_is_not_a_limit() -> None:
    expr: tir.PrimExpr = tir.Var("n", "int64")
    for _ in range(5000):
        expr = tir.Add(expr, tir.IntImm("int64", 1))
    again = load_json(save_json(expr))
    depth = 0
    while isinstance(again, tir.Add):
        again, depth = again.a, depth + 1
    assert depth == 5000


def forged(**changes: object) -> str:
    kinds = [["relax.StringImm", "value", "struct_info"]]
    table = {"format": "relaxpy-ir", "version": 1, "kinds": kinds, "root": 0}
    return json.dumps({**table, "nodes": [[0, "s", None]], **changes})


def array(shape: list[int], data: bytes) -> dict[str, object]:
    return {"array": ["float32", shape, base64.b64encode(data).decode()]}


NaN = float("nan")
INT = [["tir.IntImm", "dtype", "value"]]
TENSOR = [["relax.Constant", "data", "struct_info"]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("[1]", "not a saved relaxpy program"),
        (forged(version=99), "found 99"),
        (forged(nodes=3), "table of nodes"),
        (forged(root=7), "root"),
        (forged(root=True), "root"),
        (forged(root=[7]), "not a saved value"),
        (forged(root={"table": [["a", 7]]}), "not a saved value"),
        (forged(root={"array": [1]}), "not a saved value"),
        (forged(root={"int": 1}), "root"),
        (forged(kinds=3), "table of nodes"),
        (forged(kinds=[["os.system", "command"]], nodes=[[0, "true"]]), "no such kind of node"),
        (forged(kinds=[["relax.Expr"]], nodes=[[0]]), "no such kind of node"),
        (forged(kinds=[["relax.StringImm", "nothing"]]), "no such kind of node"),
        (forged(nodes=[[1, "s"]]), "not a saved node"),
        (forged(nodes=["s"]), "not a saved node"),
        (forged(nodes=[[-1, 0]]), "not a saved node"),
        (forged(nodes=[[0]]), "has 2 fields, found 0"),
        (forged(nodes=[[0, 0, None]]), "not a saved value"),
        (forged(nodes=[[0, {"int": "9" * 5000}, None]]), "not a saved value"),
        (forged(nodes=[[0, {"dtype": "complex64"}, None]]), "complex64"),
        (forged(nodes=[[0, {"table": [["a", None], ["a", None]]}, None]]), "duplicate key"),
        (forged(kinds=INT, nodes=[[0, {"dtype": "int8"}, {"int": 300}]]), "outside"),
        (forged(kinds=TENSOR, nodes=[[0, array([1 << 40], b"1234"), None]]), "another size"),
        (forged(kinds=TENSOR, nodes=[[0, array([-2, -2], b"1234"), None]]), "another size"),
        (forged(kinds=TENSOR, nodes=[[0, array([1] * 99, b"1234"), None]]), "cannot be read"),
        ('{"format": "relaxpy-ir", "format": "relaxpy-ir"}', "duplicate key"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "deep"),
        (forged(nodes=[[0, NaN, None]]), "not a saved value"),
    ],
)
def test_hostile_text_is_refused(text: str, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        load_json(text)


@settings(max_examples=100)
@given(st.data())
def test_forged_rows_are_read_or_refused(data: st.DataObject) -> None:
    table = json.loads(save_json(module()))
    rows = table["nodes"]
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, len(rows)),
        st.sampled_from(["x", "float32", ""]),
        st.sampled_from(
            [[], {"int": 3}, {"dtype": "int64"}, {"enum": ["ForKind", 9]}, {"table": []}]
        ),
    )
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.sampled_from(rows))
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(leaves)
    with contextlib.suppress(MisuseError):
        load_json(json.dumps(table))


def test_many_shared_parts_are_read_in_time() -> None:
    """Sixty pairs of pairs are few nodes and 2**60 leaves; struct info has at most 2**17 nodes."""
    sinfo: rx.StructInfo = rx.ObjectStructInfo()
    value: rx.Expr = rx.Var("x", sinfo)
    for _ in range(16):
        sinfo = rx.TupleStructInfo([sinfo, sinfo])
    for _ in range(60):
        value = rx.Tuple([value, value])
    for node in (sinfo, value):
        assert load_json(save_json(node)) is not None


@pytest.mark.parametrize(
    "sinfo",
    [
        rx.FuncStructInfo.opaque_func(),
        rx.FuncStructInfo.opaque_func(ret=rx.TensorStructInfo((2, 3))),
        rx.FuncStructInfo.opaque_func(derive_func=rx.DEFAULT_DERIVE, purity=True),
        rx.FuncStructInfo([rx.ObjectStructInfo()], rx.ShapeStructInfo(ndim=2), False),
        rx.TensorStructInfo(None, "int8", "cuda:1", ndim=3),
    ],
)
def test_struct_infos_read_back(sinfo: rx.StructInfo) -> None:
    again = load_json(save_json(sinfo))
    assert again == sinfo
    if isinstance(sinfo, rx.FuncStructInfo) and sinfo.derive_func is not None:
        call = rx.Call(rx.ExternFunc("f"), ())
        assert again.derive_func.func(call, None) == sinfo.derive_func.func(call, None)


def test_devices_read_back() -> None:
    device = VDevice({"kind": "cuda", "arch": "sm_90"}, 1, "shared")
    sinfo = rx.TensorStructInfo((2,), "int8", device)
    x = rx.Var("x", sinfo)
    func = rx.Function([x], x, sinfo, attrs={"global_symbol": "main"})
    built = IRModule({"main": func}, global_infos={"vdevice": [VDevice("llvm"), device]})
    again = load_json(save_json(built))
    assert isinstance(again, IRModule)
    assert again.global_infos == built.global_infos
    assert_structural_equal(again, built)
    assert again.script() == built.script()


def test_a_derivation_of_ones_own_cannot_be_saved() -> None:
    own = rx.EnvFunc("mine", lambda call, context: rx.ObjectStructInfo())
    with pytest.raises(MisuseError, match="'mine' is known only to this process"):
        save_json(rx.FuncStructInfo.opaque_func(derive_func=own))


def test_reductions_read_back() -> None:
    k = te.reduce_axis((0, 8), "k")
    a = decl_buffer((8,), "float32", "A")
    total = te.sum(a[k], axis=k)
    again = load_json(save_json(total))
    assert isinstance(again, Reduce)
    assert_structural_equal(again, total, map_free_vars=True)


def test_attributes_of_all_kinds_read_back() -> None:
    attrs = {
        "i": 1 << 60,
        "j": -(1 << 80),
        "f": 0.1,
        "nan": float("inf"),
        "t": (1, [2.5, {"a": None, "b": [True]}]),
        "d": DataType("float16"),
        "s": np.float32(0.1),
        "k": np.int64(3),
        "array": np.arange(6, dtype="int8").reshape(2, 3),
        "sinfo": rx.ShapeStructInfo(ndim=2),
    }
    func = rx.Function([], rx.Tuple(()), attrs=attrs)
    again = load_json(save_json(func))
    assert isinstance(again, rx.Function)
    assert_structural_equal(again, func)
    assert [type(v) for v in again.attrs.values()] == [type(v) for v in func.attrs.values()]


@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@settings(max_examples=60)
@given(st.one_of(modules(), kernels()))
def test_generated_programs_read_back(program: Node) -> None:
    text = save_json(program)
    again = load_json(text)
    assert_structural_equal(again, program)
    assert save_json(again) == text
    assert again.script() == program.script()
    if isinstance(program, IRModule):
        assert_structural_equal(again["main"].struct_info, program["main"].struct_info)


@pytest.mark.parametrize("operator", sorted({case.operator for case in CASES}))
def test_operators_read_back(operator: str) -> None:
    for case in CASES:
        if case.operator == operator:
            built = program(case, "static" if "numbers" in case.needs else "symbolic")
            assert_structural_equal(load_json(save_json(built)), built)


def test_every_kind_of_node_can_be_saved() -> None:
    """What cannot is made of others as soon as it stands in a program."""
    known = set(serialize.KINDS.values())
    kinds = {
        k
        for m in (rx, tir, stmt, buffer, iteration)
        for k in vars(m).values()
        if isinstance(k, type)
    }
    assert {k for k in kinds if issubclass(k, Node)} - known <= {Node, *serialize._ABSTRACT}


def test_pickled_programs_are_equal() -> None:
    axis = te.reduce_axis((0, 8), "k")
    for node in (module(), kernel(), rx.GlobalVar("f"), te.sum(axis.var, axis=axis)):
        assert_structural_equal(pickle.loads(pickle.dumps(node)), node, map_free_vars=True)
    literal = tir.IntImm("int64", 5)
    assert pickle.loads(pickle.dumps(literal)) is literal
    assert pickle.loads(pickle.dumps(Op("relax.add"))) is Op("relax.add")
    attrs = module().attrs
    assert pickle.loads(pickle.dumps(attrs)) == attrs


def test_what_is_pickled_together_has_the_same_variables() -> None:
    n = tir.Var("n", "int64")
    x = rx.Var("x", rx.TensorStructInfo((n,)))
    a = decl_buffer((n,), "float32", "A")
    parts = (n, x, n * 2, rx.Tuple([x, x]), a, a[0])
    n2, x2, double, pair, a2, load = pickle.loads(pickle.dumps(parts))
    assert double is n2 * 2
    assert pair.fields == (x2, x2)
    assert x2.struct_info == rx.TensorStructInfo((n2,))
    assert load is a2[0]
    assert a2.shape == (n2,)


def test_depth_is_not_a_limit_of_pickles_and_copies() -> None:
    n = tir.Var("n", "int64")
    deep: tir.PrimExpr = n
    for _ in range(5000):
        deep = tir.Add(deep, tir.IntImm("int64", 1))
    assert copy.deepcopy(deep) is deep
    again, root = pickle.loads(pickle.dumps((deep, n)))
    while isinstance(again, tir.Add):
        again = again.a
    assert again is root


def test_what_cannot_be_saved_cannot_be_pickled() -> None:
    func = rx.Function([], rx.Tuple(()), attrs={"f": object()})
    with pytest.raises(MisuseError, match="a value of type object cannot be saved"):
        pickle.dumps(func)
    with pytest.raises(MisuseError, match="expected a node or a module, found 3"):
        save_json(3)
    with pytest.raises(MisuseError, match="expected the text of a saved program, found None"):
        load_json(None)


def test_names_are_kept_and_positions_are_not() -> None:
    func = from_source("@R.function\ndef main(x: R.Object) -> R.Object:\n    return x\n")
    text = save_json(func)
    assert "span" not in text
    again = load_json(text)
    assert isinstance(again, rx.Function)
    assert again.params[0].name_hint == "x"
    assert again.params[0].span is None
