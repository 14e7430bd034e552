"""Generated programs give the same after rewriting by rules that are equations."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import relaxpy
from relaxpy import relax as rx
from relaxpy.ir import IRModule
from relaxpy.ir.core.traverse import walk
from relaxpy.relax.analysis import check_well_formed
from relaxpy.relax.dpl import (
    DFPattern,
    PatternContext,
    PatternMatchingRewriter,
    is_op,
    is_tuple,
    rewrite_bindings,
    wildcard,
)
from relaxpy.script import relax as R
from tests.fuzz.operator_chains import INFO, bodies, chains
from tests.fuzz.seed import COUNT
from tests.ir.relax.texts import module

seen: list[np.ndarray] = []


@pytest.fixture(autouse=True)
def packed_functions() -> None:
    """What programs call: one remembers what it is given, one gives that back, one changes it."""

    def remember(value: np.ndarray) -> np.ndarray:
        seen.append(np.array(value))
        return np.array(value)

    def change(value: np.ndarray) -> None:
        seen.append(np.array(value))
        value[...] += 1

    relaxpy.register_func("test.dpl.remember", remember, override=True)
    relaxpy.register_func("test.dpl.change", change, override=True)


A, B = wildcard().has_shape([4]), wildcard().has_shape([4])


def op(name: str, *args: DFPattern) -> DFPattern:
    return is_op(f"relax.{name}")(*args)


FROM_PATTERNS: dict[str, tuple[DFPattern, Callable[[dict[DFPattern, rx.Expr]], rx.Expr]]] = {
    "a sum of two equals": (op("add", A, A), lambda m: R.multiply(m[A], R.const(2.0, "float32"))),
    "a difference": (op("subtract", A, B), lambda m: R.add(m[A], R.negative(m[B]))),
    "a maximum": (op("maximum", A, B), lambda m: R.where(R.greater(m[A], m[B]), m[A], m[B])),
    "two signs": (
        op("negative", op("negative", A)),
        lambda m: R.multiply(m[A], R.const(1.0, "float32")),
    ),
    "an absolute value of a negative one": (op("abs", op("negative", A)), lambda m: R.abs(m[A])),
    "a product of signs": (
        op("multiply", op("negative", A), op("negative", B)),
        lambda m: R.multiply(m[A], m[B]),
    ),
    "two absolute values": (
        is_tuple([op("abs", A), op("abs", B)]),
        lambda m: R.split(R.abs(R.concat((m[A], m[B]))), 2),
    ),
    "a sign and a value of one": (
        is_tuple([op("negative", A), op("abs", A)]),
        lambda m: rx.Tuple(
            [R.subtract(R.const([0.0] * 4), m[A]), R.maximum(m[A], R.negative(m[A]))]
        ),
    ),
}


def from_pattern(name: str) -> PatternMatchingRewriter:
    pattern, give = FROM_PATTERNS[name]
    return PatternMatchingRewriter.from_pattern(pattern, lambda _, m: give(m))


with PatternContext() as SHARED:
    OPERAND, LEFT, RIGHT = wildcard(), wildcard(), wildcard()
    SUMS = [op("add", LEFT, OPERAND), op("add", RIGHT, OPERAND)]


def at_once(matches: dict[DFPattern, rx.Var], bindings: object) -> dict[rx.Var, rx.Expr]:
    both = R.concat((matches[LEFT], matches[RIGHT]))
    whole = R.add(both, R.concat((matches[OPERAND], matches[OPERAND])))
    parts = R.split(whole, 2)
    shape = [tuple(matches[p].struct_info.shape.values) for p in (LEFT, OPERAND, RIGHT)]
    if len(set(map(str, shape))) > 1:
        return {}
    found: dict[rx.Var, rx.Expr] = {
        matches[total]: R.reshape(parts[i], (4,)) for i, total in enumerate(SUMS)
    }
    return found


def program(lines: list[str], result: str) -> IRModule:
    text = "\n    ".join([*lines, f"result = {result}", "return result"])
    return module(f"@impure\ndef main(x: {INFO}, y: {INFO}, c: bool):\n    {text}")


Outcome = tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]


def outcomes(mod: IRModule, conditions: tuple[bool, ...]) -> list[Outcome]:
    """The result, the effects and the arguments afterwards, by the reference."""
    main = relaxpy.compile(mod, target="reference")["main"]
    found: list[Outcome] = []
    for condition in conditions:
        seen.clear()
        args = [np.array([1.5, -2, 0, 3], "float32"), np.array([-1, -2, 4, 0.5], "float32")]
        result = main(*args, np.array(condition))
        found.append(([np.array(result)], list(seen), args))
    return found


def check(mod: IRModule, after: IRModule) -> None:
    assert check_well_formed(after, normal_form=True) == []
    branches = any(isinstance(node, rx.If) for node in walk(mod["main"]))
    conditions = (True, False) if branches else (True,)
    expected, actual = outcomes(mod, conditions), outcomes(after, conditions)
    for before, found in zip(expected, actual, strict=True):
        for wanted, arrays in zip(before, found, strict=True):
            np.testing.assert_array_equal(np.array(wanted), np.array(arrays))


@pytest.mark.rule("OPT-1", "OPT-2", "OPT-4")
@given(bodies(), st.permutations(sorted(FROM_PATTERNS)))
@settings(max_examples=60, deadline=None)
def test_rewritten_programs_have_the_same_results_and_effects(
    body: tuple[list[str], str], names: list[str]
) -> None:
    mod = program(*body)
    rewriter = from_pattern(names[0])
    for name in names[1:]:
        rewriter = rewriter | from_pattern(name)
    after = rewriter(mod)
    check(mod, after)
    assert rewriter(after) is after


@pytest.mark.rule("OPT-3", "OPT-11")
@given(chains())
@settings(max_examples=2 * COUNT, deadline=None)
def test_values_before_and_after_a_change_are_distinguished(body: tuple[list[str], str]) -> None:
    mod = program(*body)
    rewriter = from_pattern("a sum of two equals")
    for name in ("an absolute value of a negative one", "two signs", "a product of signs"):
        rewriter = rewriter | from_pattern(name)
    check(mod, rewriter(mod))


@pytest.mark.rule("OPT-1")
@given(bodies())
@settings(max_examples=60, deadline=None)
def test_programs_give_the_same_after_several_bindings_are_rewritten_at_once(
    body: tuple[list[str], str],
) -> None:
    mod = program(*body)
    after = mod.clone()
    after["main"] = rewrite_bindings(SHARED, at_once, mod["main"])
    check(mod, after)


@pytest.mark.rule("OPT-1")
@given(bodies(impure=False), st.sampled_from(sorted(FROM_PATTERNS)))
@settings(max_examples=40, deadline=None)
def test_kernels_give_what_the_reference_gives(body: tuple[list[str], str], name: str) -> None:
    after = from_pattern(name)(program(*body))
    args = [np.array([1.5, -2, 0, 3], "float32"), np.array([-1, -2, 4, 0.5], "float32")]
    expected = relaxpy.compile(after, target="reference")["main"](*args, np.array(True))
    found = relaxpy.compile(after, target="numpy")["main"](*args, np.array(True))
    np.testing.assert_array_equal(np.array(found), np.array(expected))
