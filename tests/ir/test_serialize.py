import base64
import json

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.serialize import load_json, save_json
from relaxpy.ir.structural import assert_structural_equal
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.function import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind


def kernel() -> PrimFunc:
    n, i = tir.Var("n", "int64"), tir.Var("i", "int64")
    a, b = decl_buffer((n,), "float32", "A"), decl_buffer((n,), "float32", "B")
    store = BufferStore(b, a[i] * 2.0 + 1.0, (i,))
    return PrimFunc((a, b), For(i, 0, n, ForKind.PARALLEL, store), attrs={"tir.noalias": True})


def module() -> IRModule:
    n = tir.Var("n", "int64")
    info = rx.TensorStructInfo((n, n * 2), "float32")
    x = rx.Var("x", info)
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


def test_depth_is_no_limit() -> None:
    expr: tir.PrimExpr = tir.Var("n", "int64")
    for _ in range(5000):
        expr = tir.Add(expr, tir.IntImm("int64", 1))
    again = load_json(save_json(expr))
    depth = 0
    while isinstance(again, tir.Add):
        again, depth = again.a, depth + 1
    assert depth == 5000


def forged(**changes: object) -> str:
    table = json.loads(save_json(rx.StringImm("s")))
    return json.dumps({**table, **changes})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("[1]", "not a saved relaxpy program"),
        (forged(version=99), "version 99"),
        (forged(nodes=3), "table of nodes"),
        (forged(root=7), "root"),
        (forged(nodes=[["os.system", {"command": "true"}]]), "not a saved node"),
        (forged(nodes=[["relax.StringImm", {"value": {"node": 0}}]]), "not a saved value"),
        (forged(nodes=[["relax.StringImm", {"nothing": 1}]]), "cannot be read"),
        (forged(nodes=[["tir.IntImm", {"dtype": {"dtype": "int8"}, "value": 300}]]), "outside"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "deep"),
    ],
)
def test_hostile_text_is_refused(text: str, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        load_json(text)


def test_an_array_of_another_size_than_its_shape_is_refused() -> None:
    data = base64.b64encode(b"1234").decode()
    row = ["relax.Constant", {"data": {"array": ["float32", [1 << 40], data]}}]
    with pytest.raises(MisuseError, match="another size"):
        load_json(forged(nodes=[row]))
