"""Patterns of Relay expressions: what they match, rewriting and partitioning by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir import structural_equal
from relaxpy.relay.dataflow_pattern import (
    DFPattern,
    DFPatternCallback,
    dominates,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite,
    wildcard,
)

TENSOR = "Tensor[(2, 3), float32]"


def body(text: str) -> relay.Expr:
    """The typed body of a function of %x and %y."""
    module = relay.parse(f"fn(%x: {TENSOR}, %y: {TENSOR}) {{ {text} }}")
    return module["main"].body


def same(expr: relay.Expr, text: str) -> bool:
    return structural_equal(expr, body(text), map_free_vars=True)


X = wildcard()


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (wildcard(), "%x", True),
        (is_op("add")(wildcard(), wildcard()), "%x + %y", True),
        (is_op("add")(wildcard(), wildcard()), "%x * %y", False),
        (is_op("add")(), "%x + %y", True),
        (X + X, "%x + %x", True),
        (X + X, "%x + %y", False),
        (is_var("x") * is_var(), "%x * %y", True),
        (is_var("y") * is_var(), "%x * %y", False),
        (wildcard() - is_constant(), "%x - 1f", True),
        (wildcard() / is_expr(relay.const(2.0)), "%x / 2f", True),
        (wildcard() / is_expr(relay.const(2.0)), "%x / 3f", False),
        (is_op("exp")(wildcard()) | is_op("tanh")(wildcard()), "tanh(%x)", True),
        (is_op("exp")(wildcard()).optional(lambda p: is_op("abs")(p)), "abs(exp(%x))", True),
        (is_op("exp")(wildcard()).optional(lambda p: is_op("abs")(p)), "exp(%x)", True),
        (is_tuple([is_var("x"), wildcard()]), "(%x, 1)", True),
        (is_tuple([is_var("x")]), "(%x, 1)", False),
        (is_tuple(), "(%x, 1)", True),
        (is_tuple_get_item(wildcard(), 1), "split(%x, indices_or_sections=3, axis=1).1", True),
        (is_tuple_get_item(wildcard(), 0), "split(%x, indices_or_sections=3, axis=1).1", False),
        (is_if(wildcard(), is_var("x"), is_var("y")), "if (True) { %x } else { %y }", True),
        (is_let(is_var("z"), wildcard(), wildcard()), "let %z = exp(%x); %z", True),
        (has_dtype("float32"), "%x + %y", True),
        (has_dtype("int32"), "%x + %y", False),
        (has_shape((2,), is_op("sum")(wildcard())), "sum(%x, axis=[1])", True),
        (has_shape((3,)), "sum(%x, axis=[1])", False),
        (has_type(relay.TensorType((), "bool")), "less(1, 2)", True),
        (is_op("sum")(wildcard()).has_attr({"keepdims": True}), "sum(%x, keepdims=True)", True),
        (is_op("sum")(wildcard()).has_attr({"keepdims": True}), "sum(%x)", False),
        (is_op("sum")(wildcard()).has_attr({"other": True}), "sum(%x)", False),
    ],
)
def test_patterns_match_expressions(pattern: DFPattern, text: str, expected: bool) -> None:
    assert pattern.match(body(text)) is expected


def test_a_dominator_ends_all_ways() -> None:
    pattern = dominates(
        is_op("multiply")(wildcard(), wildcard()),
        is_op("exp")(wildcard()) | is_op("abs")(wildcard()),
        is_op("tanh")(wildcard()),
    )
    assert pattern.match(body("%0 = tanh(%x)\nexp(%0) * abs(exp(%0))"))
    assert not pattern.match(body("%0 = tanh(%x)\nexp(%0) * sin(%0)"))
    assert not pattern.match(body("exp(tanh(%x)) * tanh(%y)"))
    assert not pattern.match(body("exp(%x) * exp(%y)"))
    exps = dominates(is_op("exp")(wildcard()), is_op("exp")(wildcard()), is_var("x"))
    assert exps.match(body("exp(exp(exp(%x)))"))
    assert not exps.match(body("exp(abs(exp(%x)))"))


class Doubles(DFPatternCallback):
    """x + x becomes x * 2."""

    def __init__(self, **options: bool) -> None:
        super().__init__(**options)
        self.x = wildcard()
        self.pattern = self.x + self.x

    def callback(
        self, pre: relay.Expr, post: relay.Expr, node_map: Mapping[DFPattern, Any]
    ) -> relay.Expr:
        return node_map[self.x][0] * relay.const(2.0)


def test_rewriting_applies_rules_everywhere() -> None:
    expr = body("%0 = %x + %x\nlet %z = %0 + %0; if (True) { %z + %z } else { %0 }")
    expected = "%0 = %x * 2f\nlet %z = %0 * 2f; if (True) { %z * 2f } else { %0 }"
    assert same(rewrite(Doubles(), expr), expected)
    assert same(Doubles(require_type=True).rewrite(expr), expected)
    pattern = is_op("exp")(X)
    assert same(pattern.rewrite(lambda node, found: found[X][0], body("exp(%x) + %y")), "%x + %y")


class Restless(Doubles):
    """A rule that always finds something to do."""

    def callback(
        self, pre: relay.Expr, post: relay.Expr, node_map: Mapping[DFPattern, Any]
    ) -> relay.Expr:
        return relay.exp(post)


def test_rules_that_do_not_rest_are_refused() -> None:
    assert same(Restless(rewrite_once=True).rewrite(body("%x + %x")), "exp(%x + %x)")
    with pytest.raises(TransformError, match="does not come to rest"):
        Restless().rewrite(body("%x + %x"))
    with pytest.raises(TransformError, match="the callback returned 3"):
        X.rewrite(lambda node, found: 3, body("%x"))
    with pytest.raises(MisuseError, match="Relay expression"):
        wildcard().match("%x")


def test_partitions_are_functions() -> None:
    pattern = is_op("exp")(is_op("add")(wildcard(), is_constant()))
    result = pattern.partition(body("exp(%x + 1f) * exp(%y + 2f)"), {"Composite": "f"})
    functions = [arg.op for arg in result.args]
    for function, number in zip(functions, "12", strict=True):
        assert function.attrs["Composite"] == "f"
        assert function.attrs["PartitionedFromPattern"] == "add_exp_"
        assert f"add(%FunctionVar_0_0, {number}f)" in function.astext()
    untouched = body("exp(%x + 1f)")
    assert pattern.partition(untouched, check=lambda expr: False) is untouched
    shared = body("%0 = %x + 1f\nexp(%0) * %0")
    assert structural_equal(pattern.partition(shared), shared)
