"""What functions outside the program return is checked against what their calls declare."""

from collections.abc import Callable

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import FunctionSignatureError
from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.ir.relax import nodes as rx
from relaxpy.script import from_source
from tests.ir.relax.graphs import bind, block, function, seq, var
from tests.ir.relax.sinfos import func, tensor

CALLS = {
    "packed": 'R.call_packed("test.declared", x, sinfo_args={})',
    "pure": 'R.call_pure_packed("test.declared", x, sinfo_args={})',
    "Python": 'R.call_py_func("test.declared", x, out_sinfo={})',
}
TENSOR = 'R.Tensor((n,), "float32")'


@pytest.fixture(params=["native", "numpy", "reference"])
def run(request: pytest.FixtureRequest) -> Callable[..., object]:
    def run(call: str, sinfo: str, returned: object, size: int = 4) -> object:
        relaxpy.register_func("test.declared", lambda x: returned, override=True)
        program = from_source(f"""
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    y = {CALLS[call].format(sinfo)}
    return y
""")
        return relaxpy.compile(program, request.param)["main"](np.ones(size, "float32"))

    return run


@pytest.mark.rule("DER-29", "OP-8")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("sinfo", "returned", "why"),
    [
        (TENSOR, np.ones(5, "float32"), "dimension 0 is 5"),
        (TENSOR, np.ones(4, "int32"), "int32"),
        (TENSOR, (1, 2), "a tuple is not a tensor"),
        (TENSOR, None, "the null object"),
        ("R.Shape([n])", None, "the null object"),
        (f"[{TENSOR}, R.Object]", None, "the null object"),
        (f"[{TENSOR}, R.Object]", np.ones(4, "float32"), "a tensor is not a tuple"),
        (f"[{TENSOR}, {TENSOR}]", (np.ones(4, "float32"),) * 3, "3 fields"),
        ("R.Shape([n])", ShapeTuple([5]), "5"),
        ('R.Prim("int64")', "text", "expected R.Prim"),
    ],
)
def test_a_result_that_does_not_fit_is_refused(run, call, sinfo, returned, why) -> None:
    with pytest.raises(FunctionSignatureError, match=why) as caught:
        run(call, sinfo, returned)
    assert caught.value.diagnostic.rule == "DER-29"
    assert "the result of" in str(caught.value)
    assert "test.declared" in str(caught.value)


@pytest.mark.rule("VAL-13", "VAL-16")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("sinfo", "returned"),
    [
        ("R.Object", None),
        ("R.Object", "anything"),
        ("R.Shape([n])", (4,)),
        ("R.Tensor", np.ones(7)),
    ],
)
def test_a_result_that_fits_is_the_value(run, call, sinfo, returned) -> None:
    assert run(call, sinfo, returned) is returned or run(call, sinfo, returned) == returned


@pytest.mark.rule("VAL-16", "DER-29")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("call", CALLS)
def test_the_call_that_returns_nothing_is_to_blame_for_its_use(call: str, target: str) -> None:
    """Not the operator that finds no tensor; what is called for its effect may return nothing."""
    relaxpy.register_func("test.declared", lambda x: None, override=True)
    text = f"""
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    y = {CALLS[call].format(TENSOR)}
    return R.add(x, {{}})
"""
    ones = np.ones(4, "float32")
    unused = relaxpy.compile(from_source(text.format("x")), target)["main"]
    np.testing.assert_array_equal(unused(ones), ones + ones)
    used = relaxpy.compile(from_source(text.format("y")), target)["main"]
    with pytest.raises(FunctionSignatureError, match=r"the result of .*declared.*null object"):
        used(ones)


REMOVED_USES = [
    "z = y",
    "z = (y, x)",
    "z = R.add(x, y)",
    'z = R.match_cast(y, R.Tensor((n,), "float32"))',
    "with R.dataflow():\n        z = R.add(x, y)\n        w = R.exp(x)\n        R.output(w)",
    "if b:\n        z = y\n    else:\n        z = x",
]


@pytest.mark.rule("VAL-16", "DER-29")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("use", REMOVED_USES)
def test_a_use_that_passes_remove_is_a_use(use: str, target: str) -> None:
    relaxpy.register_func("test.declared", lambda x: None, override=True)
    program = from_source(f"""
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32"), b: R.Tensor((), "bool")):
    n = T.int64()
    y = {CALLS["pure"].format(TENSOR)}
    {use}
    return x
""")
    ones = np.ones(4, "float32")
    with pytest.raises(FunctionSignatureError, match=r"the result of .*declared.*null object"):
        relaxpy.compile(program, target)["main"](ones, np.array(True))


@pytest.mark.rule("VAL-16")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("pipeline", ["default", None])
def test_an_unused_result_is_null_in_programs_that_were_saved(pipeline, target, tmp_path) -> None:
    """A packed function gets no keyword that says so."""
    relaxpy.register_func("test.declared", lambda x: None, override=True)
    program = from_source(f"""
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    y = {CALLS["packed"].format(TENSOR)}
    return x
""")
    executable = relaxpy.compile(program, target, relax_pipeline=pipeline)
    executable.save(tmp_path / "program")
    for main in (executable["main"], relaxpy.load_executable(tmp_path / "program")["main"]):
        np.testing.assert_array_equal(main(np.ones(4, "float32")), np.ones(4))


@pytest.mark.rule("DER-42")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_signature_declared_for_a_packed_function_holds_for_its_result(target: str) -> None:
    relaxpy.register_func("test.declared", lambda x: np.ones(5, "float32"), override=True)
    x, y = var("x", tensor(4)), var("y")
    callee = rx.ExternFunc("test.declared", func(tensor(4), ret=tensor(4)))
    main = function([x], seq(block(bind(y, rx.Call(callee, (x,)))), y), global_symbol="main")
    with pytest.raises(FunctionSignatureError, match="dimension 0 is 5, not 4"):
        relaxpy.compile(main, target)["main"](np.ones(4, "float32"))
