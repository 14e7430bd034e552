"""Passes for several GPUs leave modules as they are; AttachExternModules."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, PackedFuncError
from relaxpy.ir.pass_infra.passes import Pass
from relaxpy.relax import transform
from tests.ir.relax.texts import module

Mod = module("""
def main(x: f32[4]) -> f32[4]:
    y = R.call_pure_packed("test.halved", x, sinfo_args=f32[4])
    return y
""")


@pytest.mark.parametrize(
    "step", [transform.IPCAllReduceRewrite(1), transform.LowerGPUIPCAllocStorage()]
)
def test_passes_for_several_gpus_change_nothing(step: Pass) -> None:
    assert step(Mod) is Mod
    assert step.info.name == type(step).__name__


def halved(x: Any) -> Any:
    return x / np.float32(2)


class Extern:
    """An extern module that has to be loaded."""

    def load(self) -> Any:
        return {"test.halved": halved}


def test_functions_of_extern_modules_are_called() -> None:
    after = transform.AttachExternModules([Extern(), {"test.square": np.square}])(Mod)
    assert after.get_attr("external_mods") == ("test.halved", "test.square")
    assert Mod.get_attr("external_mods") is None
    assert transform.AttachExternModules([Extern()])(after) is after
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(relaxpy.compile(after)["main"](x), x / 2)


def test_an_extern_module_is_a_table_and_takes_no_name_of_another_function() -> None:
    relaxpy.register_func("test.taken", np.sin, override=True)
    with pytest.raises(MisuseError, match=r"table of functions by name, found 'a.o'"):
        transform.AttachExternModules(["a.o"])(Mod)
    with pytest.raises(MisuseError, match=r"table of functions by name, found \{'f': 3\}"):
        transform.AttachExternModules([{"f": 3}])(Mod)
    with pytest.raises(PackedFuncError, match=r"test\.taken"):
        transform.AttachExternModules([{"test.taken": np.cos}])(Mod)
