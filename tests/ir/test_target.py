"""Targets: the names and objects that `compile`, `build` and pipelines take."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError
from relaxpy.ir.core.target import default_target
from relaxpy.script import ir as I, relax as R
from relaxpy.target import Target


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.add(x, x)
        return y


TARGETS = [
    *(None, "llvm", "llvm -mcpu=core-avx2", "c", "cpu", {"kind": "llvm", "mcpu": "x"}),
    *(Target("llvm"), Target({"kind": "c"}), Target(Target("cpu")), Target("llvm", host="llvm")),
]


@pytest.mark.parametrize("target", TARGETS)
def test_processors_mean_the_default_target(target: Any) -> None:
    for ex in relaxpy.compile(Module, target), relax.build(Module, target=target):
        assert ex.target == default_target()[0]
        assert ex["main"](np.ones(2, "float32")).tolist() == [2, 2]
    relax.get_default_pipeline(target)(Module)
    relaxpy.get_pipeline("default", target=target)(Module)


def test_a_target_that_is_entered_is_that_of_compile() -> None:
    assert Target.current() is None
    with pytest.raises(MisuseError, match="no target has been entered"):
        Target.current(allow_none=False)
    with Target("reference") as outer:
        assert relaxpy.compile(Module).target == "reference"
        with Target("llvm") as inner, inner:
            assert Target.current() is inner
            assert relaxpy.compile(Module).target == inner.name == default_target()[0]
        assert Target.current(allow_none=False) is outer
        assert relaxpy.compile(Module, "numpy").target == "numpy"
    assert Target.current() is None


def test_a_target_shows_what_was_written() -> None:
    target = Target("llvm -mcpu=core-avx2")
    assert (str(target), target.kind.name) == ("llvm -mcpu=core-avx2", "llvm")
    assert target.name == default_target()[0]
    assert Target(Target("numpy")).name == "numpy"
    assert str(Target({"kind": "c", "keys": ["cpu"]})) == str(Target("c").kind) == "c"
    assert Target("llvm") == Target("llvm") != Target("numpy")
    assert len({Target("c"), Target("c"), Target({"kind": "c"})}) == 2


@pytest.mark.parametrize("target", ["cuda", "cuda -arch=sm_80", "", " ", 5, {"kind": 3}, {}, ["c"]])
def test_other_targets_are_errors(target: Any) -> None:
    for use in (
        lambda: relaxpy.compile(Module, target),
        lambda: relax.get_default_pipeline(target),
        lambda: Target(target),
        lambda: Target("llvm", target),
    ):
        with pytest.raises(MisuseError, match=r"there is no target .*; targets are numpy, nat"):
            use()


def test_a_misspelt_target_has_a_hint() -> None:
    with pytest.raises(MisuseError, match="did you mean 'llvm'"):
        relaxpy.compile(Module, "lvm")
    with pytest.raises(MisuseError, match="programs run on the processor: omit the target"):
        Target("opencl")
    with pytest.raises(MisuseError, match=r"""write Target\("llvm"\)"""):
        Target(None)  # type: ignore[arg-type]
