"""Bodies of functions in place of calls."""

from dataclasses import replace

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MatchCastError, MisuseError, RelaxpyWarning, TransformError
from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_module
from tests.ir.relax import texts
from tests.ir.relax.graphs import bind, bindings, block, function, seq, var
from tests.ir.relax.sinfos import func as func_info, rank, tensor

PLAIN = """
    C1 = R.concat([B0, B0], axis=1)
    return C1
"""
DATAFLOW = """
    with R.dataflow():
        X = R.add(B0, B0)
        C1 = R.concat([X, X], axis=1)
    return C1
"""
CALLER = """
    B = R.multiply(A, A)
    C = {call}
    D = R.add(C, C)
    return D
"""
DATAFLOW_CALLER = """
    with R.dataflow():
        B = R.multiply(A, A)
        {call}
        D = R.add(C, C)
    return D
"""


def module(main: str, sub: str = PLAIN, size: object = "n") -> IRModule:
    """A module of `main` and a function that it may call, with these bodies."""
    return texts.module(f"""
def main(A: i32[{size}, 16]):
{main}
@private
def sub(B0: i32[n, 16]) -> i32[n, 32]:
{sub}
""")


def inlined(mod: IRModule, *names: str) -> rx.Function:
    main = mod["main"]
    assert isinstance(main, rx.Function)
    after = main.inline_functions({n: mod[n] for n in names or ("sub",)})  # type: ignore[misc]
    assert check_well_formed(after, normal_form=True) == []
    return after


@pytest.mark.parametrize("size", ["n", 8])
def test_a_body_stands_in_place_of_the_call(size: object) -> None:
    mod = module(CALLER.format(call="cls.sub(B)"), size=size)
    expected = module(CALLER.format(call="R.concat([B, B], axis=1)"), size=size)["main"]
    after = inlined(mod)
    assert_structural_equal(after, expected)
    assert_structural_equal(
        mod["main"].inline_functions({mod.get_global_var("sub"): mod["sub"]}),  # type: ignore[attr-defined]
        expected,
    )
    assert bindings(after)[-1].var.name_hint == "D"  # type: ignore[union-attr]


def test_a_dataflow_block_takes_in_a_body_of_dataflow() -> None:
    mod = module(DATAFLOW_CALLER.format(call="C = cls.sub(B)"), DATAFLOW)
    expected = module(
        DATAFLOW_CALLER.format(call="X = R.add(B, B)\n        C = R.concat([X, X], axis=1)")
    )
    assert_structural_equal(inlined(mod), expected["main"])


def test_an_ordinary_body_splits_the_dataflow_block() -> None:
    mod = module(DATAFLOW_CALLER.format(call="C = cls.sub(B)"))
    expected = module("""
    with R.dataflow():
        B = R.multiply(A, A)
    C = R.concat([B, B], axis=1)
    with R.dataflow():
        D = R.add(C, C)
    return D
""")
    assert_structural_equal(inlined(mod), expected["main"])


@pytest.mark.rule("SC-9")
def test_each_copy_has_variables_of_its_own() -> None:
    mod = module("    B = cls.sub(A)\n    C = cls.sub(A)\n    return (B, C)", DATAFLOW)
    names = [b.var.name_hint for b in bindings(inlined(mod)) if b.var]
    assert names == ["X", "B", "X", "C"]


def test_bodies_are_inlined_in_bodies_branches_and_local_functions() -> None:
    mod = texts.module("""
    def main(x: R.Tensor((4,)), c: bool):
        def local(y: R.Tensor((4,))) -> R.Tensor((4,)):
            z = cls.first(y)
            return z
        if c:
            r = cls.first(x)
        else:
            r = local(x)
        return r

    @private
    def first(x: R.Tensor(("n",))) -> R.Tensor(("n",)):
        y = cls.second(x)
        return y

    @private
    def second(x: R.Tensor(("n",))) -> R.Tensor(("n",)):
        y = R.add(x, x)
        return y
    """)
    after = inlined(mod, "first", "second")
    assert "Module" not in str(after)
    assert str(after).count("R.add") == 2


@pytest.mark.filterwarnings("ignore:.*DER-41")
def test_arguments_that_may_not_fit_are_checked() -> None:
    mod = texts.module("""
    def main(x: R.Tensor(ndim=1, dtype="float32")):
        y = cls.sub(x)
        return y

    @private
    def sub(x: f32[n]):
        y = R.zeros((n,), "float32")
        return y
    """)
    check, zeros = bindings(inlined(mod))
    assert isinstance(check, rx.MatchCast)
    (n,) = check.struct_info.get_shape()  # type: ignore[attr-defined]
    assert zeros.value.struct_info == tensor(n)


@pytest.mark.rule("FN-8", "OPT-8")
@pytest.mark.filterwarnings("ignore:.*DER-45")
@pytest.mark.parametrize("cast", [False, True])
def test_a_result_that_may_not_be_what_was_promised_is_checked(cast: bool) -> None:
    use = "R.match_cast(cls.sub(x), R.Tensor(ndim=1))" if cast else "cls.sub(x)"
    mod = texts.module(f"""
    def main(x: f32[5]):
        y = {use}
        return y

    @private
    def sub(x: f32[k]) -> f32[k - 1]:
        n = T.int64()
        z = R.match_cast(x, f32[n])
        return z
    """)
    _, check, *rest = bindings(inlined(mod))
    assert isinstance(check, rx.MatchCast)
    assert check.struct_info == tensor(4)
    assert len(rest) == cast


def test_a_function_that_is_not_called_changes_nothing() -> None:
    mod = module("    return A")
    assert inlined(mod) is mod["main"]


def test_a_function_inside_itself_is_refused() -> None:
    mod = texts.module("""
    def main(x: R.Tensor((4,))) -> R.Tensor((4,)):
        y = cls.a(x)
        return y

    @private
    def a(x: R.Tensor((4,))) -> R.Tensor((4,)):
        y = cls.b(x)
        return y

    @private
    def b(x: R.Tensor((4,))) -> R.Tensor((4,)):
        y = cls.a(x)
        return y
    """)
    main = mod["main"]
    with pytest.raises(TransformError, match="a -> b -> a"):
        main.inline_functions({"a": mod["a"], "b": mod["b"]})
    once = bindings(main.inline_functions({"a": mod["a"]}))[0].value
    assert once.op.name_hint == "b"  # type: ignore[attr-defined]
    assert once.struct_info == main.ret_struct_info


def test_bodies_that_double_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = texts.module(
        """
    def main(x: R.Tensor((4,))) -> R.Tensor((4,)):
        y = cls.f0(x)
        return y
    """
        + "".join(
            f"""
    @private
    def f{n}(x: R.Tensor((4,))) -> R.Tensor((4,)):
        y = {f"cls.f{n + 1}(x)" if n < 3 else "R.exp(x)"}
        z = {f"cls.f{n + 1}(y)" if n < 3 else "R.exp(y)"}
        return z
    """
            for n in range(4)
        )
    )
    table = {f"f{n}": mod[f"f{n}"] for n in range(4)}
    assert len(bindings(mod["main"].inline_functions(table))) >= 16  # type: ignore[attr-defined,arg-type]
    monkeypatch.setattr("relaxpy.ir.relax.rewrite.bind.MOST_BODIES", 14)  # there are 15
    with pytest.raises(TransformError, match="there are more than 14 calls of functions"):
        mod["main"].inline_functions(table)  # type: ignore[attr-defined,arg-type]


def test_names_and_functions_are_checked() -> None:
    mod = module("    return A")
    main, gvar = mod["main"], mod.get_global_var("sub")
    with pytest.raises(ValueError, match="sub occurs twice"):
        main.inline_functions({gvar: mod["sub"], "sub": mod["sub"]})  # type: ignore[attr-defined]
    with pytest.raises(MisuseError, match="not a Relax function"):
        main.inline_functions({"sub": 3})  # type: ignore[attr-defined]


@pytest.mark.rule("FN-1", "FN-5", "WF-2a")
def test_an_argument_whose_size_follows_from_another_one_is_checked() -> None:
    with pytest.warns(RelaxpyWarning, match="the shape is not known"):
        mod = texts.module("""
        @private
        def g(x: f32[m], w: f32[2 * m]):
            return R.add(w, w)

        def main(a: f32[n], b: R.Tensor("float32", ndim=1)):
            return cls.g(a, b)
        """)
    after = mod["main"].inline_functions({"g": mod["g"]})
    assert check_well_formed(after) == []
    ex = relaxpy.compile(after)
    ones = [np.ones(size, "float32") for size in range(5)]
    assert ex["main"](ones[2], ones[4]).tolist() == [2, 2, 2, 2]
    with pytest.raises(MatchCastError):
        ex["main"](ones[3], ones[4])


@pytest.mark.rule("FN-8", "DER-43")
def test_a_check_of_the_result_is_not_dropped_for_what_a_body_declares() -> None:
    x = var("x", rank(1))
    body = replace(seq(x), struct_info=tensor(4))
    callee = replace(function([x], body, tensor(4)), struct_info=func_info(rank(1), ret=tensor(4)))
    y, z = var("y", rank(1)), var("z")
    main = function([y], seq(block(bind(z, rx.Call(rx.GlobalVar("g"), (y,)))), z))
    mod = IRModule({"main": main, "g": callee})
    after = normalize_module(mod)["main"].inline_functions({"g": callee})
    assert any(isinstance(b, rx.MatchCast) for b in bindings(after))
