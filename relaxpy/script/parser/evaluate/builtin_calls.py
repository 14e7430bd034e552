"""Replacements for Python's built-in functions that test or call their arguments.

Python's functions would compare scalars by identity, and would bypass the guard when they call an
argument.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.parser.evaluate.comparisons import combine_conditions
from relaxpy.support.entry import argument_node

if TYPE_CHECKING:
    from relaxpy.script.parser.evaluate.evaluator import Evaluator


def is_getattr(node: ast.Call) -> bool:
    """Return whether this is `getattr(owner, name)`, which is evaluated like `owner.name`."""
    is_called = isinstance(node.func, ast.Name) and node.func.id == "getattr"
    return is_called and len(node.args) == 2 and not node.keywords


def attribute_node(node: ast.Call, name: object, evaluator: Evaluator) -> ast.Attribute:
    """Return `owner.name` for `node`, which is `getattr(owner, name)`.

    Errors:
        ParseError: `name` is not the name of an attribute that a program may use.
    """
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("__"):
        message = f"getattr takes the name of a public attribute, found {name!r:.60}"
        raise evaluator.error(node.args[1], message)
    return ast.copy_location(ast.Attribute(node.args[0], name, ast.Load()), node)


def with_key(
    evaluator: Evaluator, function: object, kwargs: dict[str, Any], node: ast.Call
) -> dict[str, Any]:
    """Return the keywords of a call, with a guarded `key` for `sorted`, `min` and `max`."""
    if "key" not in kwargs or not any(function is f for f in (max, min, sorted)):
        return kwargs
    return kwargs | {"key": _guarded(evaluator, kwargs["key"], node)}


def _guarded(evaluator: Evaluator, function: object, node: ast.Call) -> Callable[..., object]:
    """Wrap a function that the built-in function in `node` calls, so that it is guarded."""
    if function is None:
        return lambda value: value
    arguments = [*node.args, *(k.value for k in node.keywords if k.arg == "key")]
    call = ast.copy_location(ast.Call(arguments[0] if arguments else node.func, [], []), node)
    return lambda *args: evaluator.invoke(function, list(args), {}, call)


def _map(
    evaluator: Evaluator, function: object, *lists: object, node: ast.Call
) -> Iterator[object]:
    guarded = _guarded(evaluator, function, node)
    columns = [evaluator.iterable(values, node) for values in lists]
    return (guarded(*row) for row in zip(*columns, strict=False))


def _filter(
    evaluator: Evaluator, function: object, values: object, *, node: ast.Call
) -> Iterator[object]:
    predicate = _guarded(evaluator, function, node)
    return (v for v in evaluator.iterable(values, node) if evaluator.truth(predicate(v), node))


def _any(evaluator: Evaluator, values: object, *, node: ast.Call) -> object:
    return combine_conditions(ops.any_of, _conditions(evaluator, values, node))


def _all(evaluator: Evaluator, values: object, *, node: ast.Call) -> object:
    return combine_conditions(ops.all_of, _conditions(evaluator, values, node))


def _bool(evaluator: Evaluator, value: object, *, node: ast.Call) -> object:
    return _condition(evaluator, value, value, node)


def _sum(evaluator: Evaluator, values: object, start: object = 0, *, node: ast.Call) -> object:
    """Add the members one by one, so that the size of each partial result is checked."""
    members = list(evaluator.iterable(values, node))
    if all(isinstance(value, (int, float)) for value in (start, *members)):
        return sum(members, start)  # type: ignore[call-overload]
    if isinstance(start, str):
        raise evaluator.error(node, "sum adds no strings", hint="write ''.join(...) or an f-string")
    total = start
    for value in members:
        total = evaluator.binary(ast.Add(), total, value, node)
    return total


def _conditions(evaluator: Evaluator, values: object, node: ast.Call) -> Iterator[PrimExpr | bool]:
    if isinstance(values, Expr):
        _condition(evaluator, values, values, node)
    for value in evaluator.iterable(values, node):
        yield _condition(evaluator, value, values, node)


def _condition(
    evaluator: Evaluator, value: object, argument: object, node: ast.Call
) -> PrimExpr | bool:
    """Return the condition for `value`, an argument of a built-in function or a member of one."""
    if isinstance(value, PrimExpr):
        return ops.truth(value)
    where = argument_node(node, [argument], {}, value) if isinstance(value, Expr) else None
    return evaluator.truth(value, where or node)


#: The replacements by the ids of the built-in functions.
REPLACEMENTS: Mapping[int, Callable[..., object]] = {
    id(map): _map,
    id(filter): _filter,
    id(any): _any,
    id(all): _all,
    id(bool): _bool,
    id(sum): _sum,
}
