"""Assertions of a program, about values, sizes and what LAPACK returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.tensors import rank_of, reshaped
from relaxpy.plugins.torch.complexes import complex_converter
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.complex_numbers import truth
from relaxpy.plugins.torch.registry import Value, converter

_ABOUT_VALUES = ("_assert_async", "_assert_async.msg", "_functional_assert_async.msg")
_OVERLOADS = frozenset(
    {
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._functional_assert_async.msg,
    }
)
_OF_LAPACK = torch.ops.aten._linalg_check_errors.default


def _operator(node: Any) -> tuple[Any, Any]:
    """The operator of a node and its arguments; a token may order its effects."""
    if str(node.target) == "with_effects":
        return node.args[1], node.args[2:]
    return node.target, node.args


def asserts(node: Any) -> bool:
    """True if a node asserts something about values."""
    return node.op == "call_function" and _operator(node)[0] in _OVERLOADS


def checks_matrices(node: Any) -> bool:
    """True if a node raises where LAPACK's info is not 0."""
    return node.op == "call_function" and _operator(node)[0] is _OF_LAPACK


def checked_names(node: Any) -> Iterator[str]:
    """The names of the functions in whose names results of this node are checked."""
    for field in node.users:
        for user in filter(checks_matrices, field.users):
            yield _operator(user)[1][1]


@complex_converter(*_ABOUT_VALUES)
@converter(*_ABOUT_VALUES)
def assert_values(
    cx: Context, condition: Value, text: str = "an assertion of the program", *unused: Value
) -> None:
    """An assertion that is computed in the order of the program."""
    test: Expr = cx.emit(truth(cx.tensor(condition) if isinstance(condition, bool) else condition))
    shown = text.replace("{", "{{").replace("}", "}}")
    cx.emit(R.assert_op(test if rank_of(test) == 0 else reshaped(test, []), [], shown))


@complex_converter("_assert_tensor_metadata")
@converter(
    *("_assert_scalar", "_assert_tensor_metadata", "_linalg_check_errors", "_make_dep_token"),
    *("sym_constrain_range", "sym_constrain_range_for_size", "_functional_assert_scalar"),
    *("_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size"),
)
def known(cx: Context, *args: Value) -> None:
    """Nothing: sizes are checked where they are bound, matrices where they are factored."""


def in_order(cx: Context, token: Value, op: Any, *args: Value) -> Any:
    """An assertion in the order that tokens give, which is that of the program."""
    if op in _OVERLOADS:
        assert_values(cx, *args)
    return token, None
