"""The printer's choice of names where something else would hide what they mean."""

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.ir.global_info import DummyGlobalInfo, VDevice
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import TensorStructInfo as Tensor
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.reduce import CommReducer, Reduce
from relaxpy.script import from_source, relax as R
from relaxpy.script.printer import script
from tests.counting import calls
from tests.script.round_trips import round_trip

F = Tensor((4,), "float32")
X = rx.Var("x", F)


@R.function
def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    return R.exp(x)


callee = helper


@R.function
def caller(helper: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    return callee(helper)


def test_a_variable_does_not_hide_a_function_that_is_called():
    shown = caller.script()
    assert "def caller(helper_1:" in shown
    assert "= helper(helper_1)" in shown
    module = from_source(shown)
    assert_structural_equal(module["caller"], IRModule({"caller": caller})["caller"])


def test_a_function_is_not_given_the_name_of_one_that_it_calls():
    with pytest.raises(MisuseError, match="'helper' is the name of a function that this one calls"):
        caller.script(name="helper")


def test_a_unit_value_that_a_fragment_returns_has_a_name():
    unit = rx.Var("unit", rx.TupleStructInfo(()))
    call = rx.Call(rx.ExternFunc("f"), [X], sinfo_args=[rx.TupleStructInfo(())])
    block = rx.BindingBlock([rx.VarBinding(unit, call)])
    shown = 'R.call_packed("f", x, sinfo_args=(R.Tuple(),))'
    assert script(rx.SeqExpr([block], unit)) == f"unit: R.Tuple() = {shown}\nunit"
    assert script(block) == shown


def maps() -> list[IndexMap]:
    names = ["class", "T", "__i", "ü"]
    single = [IndexMap([i := tir.Var(name, "int32")], [tir.Mod(i, i)]) for name in names]
    i, j = tir.Var("i", "int64"), tir.Var("i", "int64")
    return [*single, IndexMap([i, j], [j + 1, tir.IntImm("int64", 3)])]


@pytest.mark.parametrize("index_map", maps(), ids=str)
@pytest.mark.parametrize("prefix", ["T", "v0", "tir"])
def test_the_variables_of_index_maps_get_names_that_python_can_read(index_map, prefix) -> None:
    func = rx.Function([X], X, attrs={"map": index_map})
    round_trip(func, tir_prefix=prefix)
    call = rx.Call(rx.ExternFunc("f"), [X], attrs={"map": index_map}, sinfo_args=[F])
    y = rx.Var("y", F)
    body = rx.SeqExpr([rx.BindingBlock([rx.VarBinding(y, call)])], y)
    again = round_trip(rx.Function([X], body, is_pure=False), tir_prefix=prefix)
    assert "= T.int" not in again.script(), "no variable of a lambda is declared"


def test_a_map_shows_the_names_of_the_text_around_it():
    n = tir.Var("class", "int64")
    i = tir.Var("class_1", "int64")
    x = rx.Var("x", Tensor((n,), "float32"))
    y = rx.Var("y", F)
    call = rx.Call(rx.ExternFunc("f"), [x], attrs={"map": IndexMap([i], [i + n])}, sinfo_args=[F])
    body = rx.SeqExpr([rx.BindingBlock([rx.VarBinding(y, call)])], y)
    func = rx.Function([x], body, is_pure=False)
    assert "lambda v0: (v0 + class_1,)" in func.script()
    round_trip(func)


@pytest.mark.parametrize("prefix", ["T", "x", "tir"])
def test_reductions_read_back(prefix: str):
    b = decl_buffer((8,), "int32", "B")
    k = tir.Var("k", "int32")
    axis = IterVar(Range(8), k, 2)
    x, y, u, v = (tir.Var(name, "int32") for name in ("x", "y", "lambda", "T"))
    plus = CommReducer([x], [y], [x + y], [ops.const(0)])
    both = CommReducer([x, u], [y, v], [tir.Mod(x, y), u], [ops.const(0), ops.const(1)])
    for value in (
        Reduce(plus, [b[k]], [axis], ops.const(True), 0, []),
        Reduce(plus, [b[k]], [axis], b[0] < 2, 0, [ops.const(3)]),
        Reduce(both, [b[k], b[k]], [axis], ops.const(True), 1, []),
    ):
        round_trip(PrimFunc([b], stmt.Evaluate(value)), tir_prefix=prefix)


def test_scalable_vectors_use_the_prefix():
    ramp = tir.Ramp(ops.const(0), ops.const(1), intrin.vscale() * 4)
    spread = tir.Broadcast(ops.const(0), intrin.vscale() * 4)
    func = PrimFunc([], stmt.SeqStmt([stmt.Evaluate(ramp), stmt.Evaluate(spread)]))
    round_trip(func, tir_prefix="tir")


def test_a_kernel_that_returns_void_has_no_result_in_its_header():
    func = PrimFunc([], stmt.Evaluate(0), "void")
    assert "def main():" in func.script()
    round_trip(func)


def test_a_tuple_in_attributes_stays_a_tuple():
    value = rx.Tuple([rx.PrimValue(1), rx.Tuple([]), rx.Tuple([rx.StringImm("s")])])
    round_trip(rx.Function([X], X, attrs={"t": value}))


@pytest.mark.parametrize(
    "options",
    [
        {"relax_prefix": "metadata"},
        {"tir_prefix": "range"},
        {"ir_prefix": "_"},
        {"module_alias": "__cls"},
        {"module_alias": "metadata"},
        {"name": "metadata"},
        {"name": "range"},
    ],
    ids=str,
)
def test_options_do_not_take_names_that_have_a_meaning(options: dict[str, str]):
    [(key, value)] = options.items()
    with pytest.raises(MisuseError, match=f"{key} cannot be '{value}', which is reserved"):
        caller.script(**options)


@pytest.mark.parametrize("key", ["show_meta", "show_all_struct_info", "verbose_expr"])
def test_options_are_true_or_false(key: str):
    with pytest.raises(MisuseError, match=f"{key} is True or False, found 'no'"):
        caller.script(**{key: "no"})


def test_a_wrong_option_is_located():
    with pytest.raises(MisuseError) as caught:
        caller.show(width=80, indent_spaces=0)
    [_, line, caret] = str(caught.value).split("\n")
    assert line.strip() == "caller.show(width=80, indent_spaces=0)"
    assert caret.index("^") == line.index("0)")


def test_global_infos_are_shown_as_in_a_module():
    assert script(VDevice("cuda", 1, "shared")) == 'I.vdevice("cuda", 1, "shared")'
    assert script(VDevice("llvm"), ir_prefix="ir") == 'ir.vdevice("llvm")'
    assert script(DummyGlobalInfo()) == "I.dummy_global_info()"


def on_devices(count: int) -> IRModule:
    devices = [VDevice("llvm", k) for k in range(count)]
    params = [rx.Var("x", Tensor((4,), "float32", d)) for d in devices]
    return IRModule({"main": rx.Function(params, params[0])}, global_infos={"vdevice": devices})


def test_many_devices_are_named_in_linear_time():
    few, many = on_devices(50), on_devices(200)
    few.script()
    assert 'x_199: R.Tensor((4,), dtype="float32", vdevice="llvm:199")' in many.script()
    assert calls(many.script) < 4.6 * calls(few.script)


def test_devices_outside_functions_are_written_in_full():
    first, second = VDevice("cuda", 1), VDevice("cuda", 0)
    sinfo = Tensor((4,), "float32", first)
    extern = rx.ExternFunc("f", rx.FuncStructInfo.opaque_func(ret=sinfo))
    sinfos = {"vdevice": [first, second]}
    round_trip(IRModule({"f": extern}, {"sinfo": sinfo}, sinfos))


@pytest.mark.parametrize("dtype", ["int2", "int4", "uint2", "uint4"])
def test_integers_of_few_bits_read_back(dtype: str):
    n = tir.Var("n", dtype)
    round_trip(PrimFunc([n], stmt.Evaluate(n + tir.IntImm(dtype, 1)), dtype))
