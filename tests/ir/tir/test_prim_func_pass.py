"""Passes over PrimFuncs made of Python functions."""

import pytest

from relaxpy import IRModule, tir
from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.transform import PassContext
from relaxpy.tir.transform import Apply, Filter, prim_func_pass


def kernel(value: int) -> tir.PrimFunc:
    return tir.PrimFunc([], tir.Evaluate(value))


@pytest.fixture
def mod() -> IRModule:
    x = rx.Var("x", rx.ObjectStructInfo())
    return IRModule({"f": kernel(1), "main": rx.Function([x], x), "g": kernel(2)})


def test_a_function_is_applied_to_every_kernel(mod: IRModule) -> None:
    after = Apply(lambda f: f.with_attr("seen", 1))(mod)
    assert [after[name].attrs.get("seen") for name in ("f", "main", "g")] == [1, None, 1]
    assert mod["f"].attrs == {}
    assert Apply(lambda f: f)(mod) is mod


def test_kernels_are_chosen(mod: IRModule) -> None:
    after = Filter(lambda f: f.body.value.value == 2)(mod)
    assert [v.name_hint for v in after] == ["main", "g"]
    assert Filter(lambda f: True)(mod) is mod


def test_a_decorated_function_or_class_is_a_pass(mod: IRModule) -> None:
    @prim_func_pass(opt_level=1)
    def marked(func: tir.PrimFunc, mod: IRModule, ctx: PassContext) -> tir.PrimFunc:
        return func.with_attr("functions", len(mod))

    @prim_func_pass(opt_level=2, name="named")
    class Marked:
        def __init__(self, value: int) -> None:
            self.value = value

        def transform_function(
            self, func: tir.PrimFunc, mod: IRModule, ctx: PassContext
        ) -> tir.PrimFunc:
            return func.with_attr("value", self.value)

    assert marked(mod)["f"].attrs == {"functions": 3}
    assert Marked(5)(mod)["g"].attrs == {"value": 5}
    assert (marked.info.opt_level, Marked(5).info.name) == (1, "named")


def test_other_results_are_refused(mod: IRModule) -> None:
    with pytest.raises(TransformError, match="over PrimFuncs returned int for f"):
        Apply(lambda f: 3)(mod)
    with pytest.raises(MisuseError, match="needs an opt_level"):
        prim_func_pass(lambda func, mod, ctx: func)
    with pytest.raises(MisuseError, match="opt_level is an integer, found '2'"):
        prim_func_pass(lambda func, mod, ctx: func, opt_level="2")
    for make in (Apply, Filter):
        with pytest.raises(MisuseError, match="a function of PrimFuncs, found None"):
            make(None)
