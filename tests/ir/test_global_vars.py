"""Functions of a module under other names."""

import pytest

from relaxpy import IRModule, relax
from relaxpy.errors import MisuseError, TransformError, UnknownNameError
from relaxpy.ir.analysis import collect_call_map
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.script import from_source

TEXT = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def kernel(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                v = T.axis.spatial(4, i)
                B[v] = A[v]

    @R.function(private=True)
    def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.call_tir(Module.kernel, (x,), out_sinfo=R.Tensor((4,), "float32"))
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = Module.helper(x)
        return y
"""


@pytest.fixture
def mod() -> IRModule:
    found = from_source(TEXT)
    assert isinstance(found, IRModule)
    return found


def test_functions_are_renamed_at_every_use(mod: IRModule) -> None:
    helper = mod.get_global_var("helper")
    after = mod.replace_global_vars({helper: "assist", "kernel": rx.GlobalVar("copy")})
    assert [v.name_hint for v in after] == ["copy", "assist", "main"]
    assert after["main"].struct_info == mod["main"].struct_info
    assert check_well_formed(after) == []
    assert after.script() == mod.script().replace("helper", "assist").replace("kernel", "copy")
    assert "helper" in mod


def test_what_does_not_mention_the_name_is_shared(mod: IRModule) -> None:
    after = mod.replace_global_vars({"helper": "assist"})
    assert after["kernel"] is mod["kernel"]
    assert after["assist"] is mod["helper"]
    assert mod.replace_global_vars({}) is mod


def test_a_public_function_is_public_under_its_new_name(mod: IRModule) -> None:
    after = mod.replace_global_vars({"main": "run", "helper": "main"})
    assert after["run"].attrs["global_symbol"] == "run"
    assert "global_symbol" not in after["main"].attrs
    assert check_well_formed(after) == []


def test_names_stay_apart(mod: IRModule) -> None:
    with pytest.raises(MisuseError, match="two functions would be called helper"):
        mod.replace_global_vars({"main": "helper"})
    with pytest.raises(UnknownNameError, match="no function 'man'"):
        mod.replace_global_vars({"man": "helper"})


def test_public_functions_go_by_their_symbols(mod: IRModule) -> None:
    mod["main"] = mod["main"].with_attr("global_symbol", "helper")
    after = relax.transform.NormalizeGlobalVar()(mod)
    assert after["helper"].attrs["global_symbol"] == "helper"
    assert [v.name_hint for v in after] == ["kernel", "helper1", "helper"]
    assert "helper1" in after["helper"].script()
    assert relax.transform.NormalizeGlobalVar()(after) is after


def test_one_symbol_is_one_function(mod: IRModule) -> None:
    mod["helper"] = mod["helper"].with_attr("global_symbol", "main")
    with pytest.raises(TransformError, match="two public functions are called main"):
        relax.transform.NormalizeGlobalVar()(mod)


def test_a_builder_gives_public_functions_their_names_in_the_end() -> None:
    bb = BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((2,), "float32"))  # type: ignore[arg-type]
    with bb.function("f", [x], attrs={"global_symbol": "g"}):
        bb.emit_func_output(x)
    assert [v.name_hint for v in bb.get()] == ["f"]
    assert [v.name_hint for v in bb.finalize()] == ["g"]


def test_calls_between_functions(mod: IRModule) -> None:
    table = {
        v.name_hint: [c.name_hint for c in called] for v, called in collect_call_map(mod).items()
    }
    assert table == {"kernel": [], "helper": ["kernel"], "main": ["helper"]}
