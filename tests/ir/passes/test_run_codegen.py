"""RunCodegen: what a back end receives, and what takes the place of its functions."""

import gc
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import TransformError, UnknownPackedFuncError
from relaxpy.ir import assert_structural_equal, load_json, save_json
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.dpl import is_op, wildcard
from relaxpy.relax.transform import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen
from relaxpy.runtime import get_global_func, list_global_func_names
from relaxpy.script import from_source
from tests.ir.passes.before_after import stays
from tests.ir.relax.texts import graph, module

X = np.arange(4, dtype="float32")
ONE_TO_4 = X + 1
PATTERNS = [
    ("testing.add", is_op("relax.add")(wildcard(), wildcard())),
    ("testing.exp", is_op("relax.exp")(wildcard())),
]

Module = graph("""
def main(x: f32[4]):
    a = R.add(x, R.const([1, 2, 3, 4], "float32"))
    b = R.exp(a)
    c = R.abs(b)
    return c
""")


class BackEnd:
    """Interprets its functions, and keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[relax.Function], dict[str, Any], dict[Any, str]]] = []

    def __call__(self, functions: Any, options: Any, names: Any) -> Mapping[str, Any]:
        self.calls.append((functions, options, names))
        return {func.attrs["global_symbol"]: self.compiled(func) for func in functions}

    def compiled(self, func: relax.Function) -> Any:
        name = str(func.attrs["global_symbol"])
        return relaxpy.compile(relaxpy.IRModule({name: func}), target="reference")[name]


@pytest.fixture
def back_end() -> Iterator[BackEnd]:
    backend = BackEnd()
    relaxpy.register_func("relax.ext.testing", backend)
    yield backend
    relaxpy.runtime.remove_global_func("relax.ext.testing")


def partitioned(*, merge: bool) -> relaxpy.IRModule:
    if merge:
        return MergeCompositeFunctions()(FuseOpsByPattern(PATTERNS)(Module))
    return FuseOpsByPattern(PATTERNS, annotate_codegen=True)(Module)


@pytest.mark.parametrize("merge", [False, True])
def test_functions_for_a_back_end_are_replaced_by_what_it_returns(back_end, merge) -> None:
    before = partitioned(merge=merge)
    after = RunCodegen(target_options={"testing": {"level": 3}, "other": {}})(before)
    assert check_well_formed(after, normal_form=True) == []
    assert set(after.functions_by_name) == {"main"}
    ((functions, options, names),) = back_end.calls
    assert len(functions) == (1 if merge else 2)
    assert options == {"level": 3}
    assert len(names) == 1
    for target in ("numpy", "reference"):
        actual = relaxpy.compile(after, target=target)["main"](X)
        np.testing.assert_allclose(actual, np.exp(X + ONE_TO_4), rtol=1e-6)
    stays(RunCodegen(), after)


def test_functions_of_one_name_in_two_modules_stay_different(back_end: BackEnd) -> None:
    Other = graph("""
    def main(x: f32[4]):
        a = R.add(x, R.const([5, 5, 5, 5], "float32"))
        return a
    """)
    first, second = (
        RunCodegen()(FuseOpsByPattern(PATTERNS[:1], annotate_codegen=True)(mod))
        for mod in (Module, Other)
    )
    np.testing.assert_allclose(relaxpy.compile(second)["main"](X), X + 5)
    actual = relaxpy.compile(first)["main"](X)
    np.testing.assert_allclose(actual, np.exp(X + ONE_TO_4), rtol=1e-6)


def test_what_a_back_end_returns_belongs_to_the_module(back_end: BackEnd) -> None:
    names = list_global_func_names()
    functions = []
    back_end.compiled = lambda func: functions.append(lambda x: x) or functions[-1]  # type: ignore[method-assign]
    after = RunCodegen()(partitioned(merge=True))
    assert list_global_func_names() == names
    executable = relaxpy.compile(after)
    np.testing.assert_array_equal(executable["main"](X), X)
    lifetime = weakref.ref(functions.pop())
    del after, executable
    gc.collect()
    assert lifetime() is None


def test_a_saved_module_names_what_is_missing(back_end: BackEnd) -> None:
    after = RunCodegen()(partitioned(merge=True))
    name = "fused_relax_add_relax_exp_testing"
    for mod in (load_json(save_json(after)), from_source(after.script())):
        assert_structural_equal(mod, after)
        for target in ("numpy", "reference"):
            with pytest.raises(UnknownPackedFuncError, match=f"registered as '{name}'"):
                relaxpy.compile(mod, target=target)["main"](X)


def test_functions_of_one_name_in_one_module_stay_different(back_end: BackEnd) -> None:
    Other = graph("""
    def other(x: f32[4]):
        a = R.add(x, R.const([5, 5, 5, 5], "float32"))
        return a
    """)
    first, second = (
        RunCodegen()(FuseOpsByPattern(PATTERNS[:1], annotate_codegen=True)(mod))
        for mod in (Module, Other)
    )
    both = relaxpy.IRModule({"main": first["main"], "other": second["other"]})
    for target in ("numpy", "reference"):
        executable = relaxpy.compile(both, target=target)
        np.testing.assert_array_equal(executable["other"](X), X + 5)
        np.testing.assert_allclose(executable["main"](X), np.exp(X + ONE_TO_4), rtol=1e-6)


def test_modules_without_such_functions_stay() -> None:
    stays(RunCodegen(), Module)


def test_a_back_end_that_is_not_registered_is_named() -> None:
    with pytest.raises(UnknownPackedFuncError, match=r"relax\.ext\.testing"):
        RunCodegen()(partitioned(merge=True))


def test_what_a_back_end_returns_is_checked() -> None:
    for result, message in (({}, "returned no function for fused_relax_add"), (3, "returned 3")):
        relaxpy.register_func("relax.ext.testing", lambda *_, result=result: result)
        try:
            with pytest.raises(TransformError, match=message):
                RunCodegen()(partitioned(merge=True))
        finally:
            relaxpy.runtime.remove_global_func("relax.ext.testing")
    assert get_global_func("relax.ext.testing", allow_missing=True) is None


def test_tuples_and_unknown_shapes(back_end: BackEnd) -> None:
    Unknown = module("""
    def both(x: R.Tuple(R.Tensor(ndim=1, dtype="float32"), f32[4])):
        R.func_attr({"Codegen": "testing"})
        one = x[0]
        other = x[1]
        y = R.add(one, one)
        return (y, other)

    def main(x: R.Tensor(ndim=1, dtype="float32"), y: f32[4]):
        z = cls.both((x, y))
        return z
    """)
    after = RunCodegen()(Unknown)
    one, other = relaxpy.compile(after)["main"](X[:3], X)
    np.testing.assert_array_equal(one, X[:3] * 2)
    np.testing.assert_array_equal(other, X)


def test_an_impure_function_is_refused(back_end: BackEnd) -> None:
    Impure = module("""
    @impure
    def main(x: f32[4]):
        R.func_attr({"Codegen": "testing"})
        R.print(x)
        return x
    """)
    with pytest.raises(TransformError, match="main is impure"):
        RunCodegen()(Impure)


def test_equal_passes_have_equal_hashes() -> None:
    options = {"example": {"level": 1}}
    one, other = (RunCodegen(dict(options), ["main"]) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != RunCodegen()
