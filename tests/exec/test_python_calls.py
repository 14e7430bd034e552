"""Programs that call Python functions by name, for their results."""

from collections.abc import Iterator

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import ParseError, RuntimeCheckError, StructInfoError, UnknownPackedFuncError
from relaxpy.ir import load_json, save_json, structural_equal
from relaxpy.script import from_source, relax as R, tir as T
from tests.script.marked import check_line

TARGETS = pytest.mark.parametrize("target", ["native", "numpy", "reference"])


@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    n = T.int64()
    with R.dataflow():
        y = R.call_py_func("test.scale", x, R.prim_value(3), out_sinfo=R.Tensor((n,), "float32"))
        z = R.call_py_func("test.split", y, out_sinfo=[R.Tensor((n,), "float32"), R.Shape([n])])
        w = z[0]
        R.output(w)
    return w


@pytest.fixture(autouse=True)
def _functions() -> Iterator[None]:
    relaxpy.register_func("test.scale", lambda x, k: x * np.float32(k))
    relaxpy.register_func("test.split", lambda x: (x + np.float32(1), x.shape))
    yield
    relaxpy.runtime.remove_global_func("test.scale")
    relaxpy.runtime.remove_global_func("test.split")


@TARGETS
def test_python_functions_run(target: str) -> None:
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(relaxpy.compile(main, target)["main"](x), x * 3 + 1)


def test_the_call_is_read_and_written() -> None:
    [y, z, _] = [b.value for b in main.body.blocks[0].bindings]
    assert isinstance(y.args[0], relax.StringImm)
    assert isinstance(y.args[1], relax.Tuple)
    assert len(z.struct_info.fields) == 2
    for copy in (from_source(main.script()), load_json(save_json(main))):
        assert structural_equal(copy, main)
    x = relax.Var("x", relax.TensorStructInfo((4,)))
    made = relax.op.call_py_func("f", x, out_sinfo=relax.TensorStructInfo((4,)))
    assert made.struct_info == relax.TensorStructInfo((4,))


@TARGETS
def test_the_result_is_checked(target: str) -> None:
    relaxpy.register_func("test.scale", lambda x, k: x[1:], override=True)
    with pytest.raises(RuntimeCheckError):
        relaxpy.compile(main, target)["main"](np.zeros(4, "float32"))


@TARGETS
def test_an_unknown_function_is_met_at_run_time(target: str) -> None:
    program = from_source(main.script().replace("test.scale", "test.sclae"))
    run = relaxpy.compile(program, target)["main"]
    with pytest.raises(UnknownPackedFuncError, match=r"test\.sclae"):
        run(np.zeros(4, "float32"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("R.call_py_func(x, out_sinfo=R.Object)", "called by its name"),
        ('R.call_py_func("f", x)', "out_sinfo"),
        ('R.call_py_func("f", x, out_sinfo=3)', "expected a StructInfo"),
    ],
)
def test_wrong_calls_are_located(call: str, message: str) -> None:
    text = f"""
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Object:
    y = {call}
    return y
"""
    check_line(text, 4, message, ParseError)


def test_a_call_by_hand_needs_its_parts() -> None:
    x = relax.Var("x", relax.TensorStructInfo((4,)))
    op = relaxpy.ir.Op.get("relax.call_py_func")
    for args, sinfos in (
        ((x,), [relax.ObjectStructInfo()]),
        ((relax.StringImm("f"), R.tuple(x)), []),
    ):
        call = relax.Call(op, args, sinfo_args=sinfos)
        func = relax.Function([x], relax.SeqExpr([], call), relax.ObjectStructInfo())
        with pytest.raises(StructInfoError, match="takes"):
            relax.BlockBuilder().normalize(func)
