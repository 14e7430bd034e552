"""Built-in functions that ask for truth values or call what they are given, as a text calls them.

Python's own would decide by identity what only the running program knows, and would call past the
door.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.parser.evaluate.call_faults import culprit
from relaxpy.script.parser.evaluate.comparisons import joined
from relaxpy.script.parser.evaluate.displays import Displays


class BuiltinCalls(Displays):
    """The part of an evaluator that stands in for some of Python's functions."""

    def invoke(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """What a call gives."""
        raise AssertionError("given by the whole evaluator")

    def with_key(self, function: object, kwargs: dict[str, Any], node: ast.Call) -> dict[str, Any]:
        """The keywords of a call, of which `key` of `sorted` and its like is called by the text."""
        if "key" not in kwargs or not any(function is f for f in (max, min, sorted)):
            return kwargs
        return kwargs | {"key": self._passed(kwargs["key"], node)}

    def _passed(self, function: object, node: ast.Call) -> Callable[..., object]:
        """What a built-in function calls in place of `function`, its argument in `node`."""
        if function is None:
            return lambda value: value
        given = [*node.args, *(k.value for k in node.keywords if k.arg == "key")]
        called = ast.copy_location(ast.Call(given[0] if given else node.func, [], []), node)
        return lambda *args: self.invoke(function, list(args), {}, called)

    def _map(self, function: object, *lists: object, node: ast.Call) -> Iterator[object]:
        called = self._passed(function, node)
        columns = [self.iterable(values, node) for values in lists]
        return (called(*row) for row in zip(*columns, strict=False))

    def _filter(self, function: object, values: object, *, node: ast.Call) -> Iterator[object]:
        keeps = self._passed(function, node)
        return (v for v in self.iterable(values, node) if self.truth(keeps(v), node))

    def _any(self, values: object, *, node: ast.Call) -> object:
        return joined(ops.any_of, self._conditions(values, node))

    def _all(self, values: object, *, node: ast.Call) -> object:
        return joined(ops.all_of, self._conditions(values, node))

    def _bool(self, value: object, *, node: ast.Call) -> object:
        return self._condition(value, value, node)

    def _conditions(self, values: object, node: ast.Call) -> Iterator[PrimExpr | bool]:
        if isinstance(values, Expr):
            self._condition(values, values, node)
        for value in self.iterable(values, node):
            yield self._condition(value, values, node)

    def _condition(self, value: object, argument: object, node: ast.Call) -> PrimExpr | bool:
        """What `value`, of an argument of a built-in function, says as a condition."""
        if isinstance(value, PrimExpr):
            return ops.truth(value)
        where = culprit(node, [argument], {}, value) if isinstance(value, Expr) else None
        return self.truth(value, where or node)


#: What stands for a built-in function, by its id.
IN_PLACE_OF: Mapping[int, Callable[..., object]] = {
    id(map): BuiltinCalls._map,
    id(filter): BuiltinCalls._filter,
    id(any): BuiltinCalls._any,
    id(all): BuiltinCalls._all,
    id(bool): BuiltinCalls._bool,
}
