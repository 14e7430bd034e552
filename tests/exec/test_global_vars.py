"""A GlobalVar stands for the function of its name, whichever object it is (AST-8)."""

from collections.abc import Callable

import numpy as np
import pytest

import relaxpy
from relaxpy.ir import IRModule, ops as op, structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.script import from_source
from tests.ir.relax.graphs import bind, block, function, seq, var
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import module

MODULE = module("""
def g(x: f32[4]) -> f32[4]:
    return R.add(x, x)

@kernel
def h(A: f32[4]):
    for i in range(4):
        A[i] = A[i] * T.float32(2)

@kernel
def k(A: f32[4], B: f32[4]):
    for i in range(4):
        B[i] = A[i] + T.float32(1)
""")
USES: dict[str, Callable[[rx.Var], rx.Expr]] = {
    "call": lambda x: rx.Call(rx.GlobalVar("g"), (x,)),
    "value": lambda x: rx.Tuple((rx.GlobalVar("g"), x)),
    "kernel": lambda x: op.call_tir(rx.GlobalVar("k"), (x,), tensor(4)),
    "kernel as a value": lambda x: rx.Tuple((rx.GlobalVar("h"), x)),
    "itself": lambda x: rx.Tuple((rx.GlobalVar("main"), x)),
}


@pytest.mark.rule("AST-8", "SC-1", "TOP-6")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("pipeline", ["default", None])
def test_a_new_global_var_means_the_function_of_its_name(use, target, pipeline) -> None:
    x, result = var("x", tensor(4)), var("result")
    main = function([x], seq(block(bind(result, USES[use](x))), result), global_symbol="main")
    assert isinstance(MODULE, IRModule)
    mod = MODULE.clone()
    mod["main"] = main
    assert rx.GlobalVar("g") in mod
    assert check_well_formed(mod) == []
    found = relaxpy.compile(mod, target, relax_pipeline=pipeline)["main"](np.ones(4, "float32"))
    array = found[1] if isinstance(found, tuple) else found
    assert array.tolist() == ([1] * 4 if isinstance(found, tuple) else [2] * 4)
    normal = relaxpy.relax.transform.Normalize()(mod)
    assert structural_equal(from_source(normal.script()), normal)
