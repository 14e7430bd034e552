"""Short ways to build the Python trees of generated code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence


def name(identifier: str) -> ast.Name:
    """The variable `identifier`."""
    return ast.Name(identifier, ast.Load())


def literal(value: bool | int | float | str | None) -> ast.expr:
    """A finite number, text or None as it stands."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def dotted(path: str) -> ast.expr:
    """`a.b.c`."""
    first, *rest = path.split(".")
    expr: ast.expr = name(first)
    for part in rest:
        expr = attribute(expr, part)
    return expr


def attribute(of: ast.expr, field: str) -> ast.expr:
    """`of.field`."""
    return ast.Attribute(of, field, ast.Load())


def item(of: ast.expr, index: int) -> ast.expr:
    """`of[index]`."""
    return ast.Subscript(of, ast.Constant(index), ast.Load())


def call(function: str | ast.expr, *args: ast.expr, **named: ast.expr) -> ast.Call:
    """A call; a function may be given by its dotted name."""
    callee = dotted(function) if isinstance(function, str) else function
    return ast.Call(callee, list(args), [ast.keyword(key, value) for key, value in named.items()])


def tuple_of(fields: Iterable[ast.expr]) -> ast.expr:
    """A tuple."""
    return ast.Tuple(list(fields), ast.Load())


def compare(left: ast.expr, sign: ast.cmpop, right: ast.expr) -> ast.expr:
    """A comparison."""
    return ast.Compare(left, [sign], [right])


def binary(left: ast.expr, sign: ast.operator, right: ast.expr) -> ast.expr:
    """An operation of two operands."""
    return ast.BinOp(left, sign, right)


def all_of(conditions: Sequence[ast.expr]) -> ast.expr:
    """The conjunction of at least one condition."""
    return conditions[0] if len(conditions) == 1 else ast.BoolOp(ast.And(), list(conditions))


def negated(condition: ast.expr) -> ast.expr:
    """not condition."""
    return ast.UnaryOp(ast.Not(), condition)


def assign(target: str, value: ast.expr) -> ast.stmt:
    """`target = value`."""
    return ast.Assign([ast.Name(target, ast.Store())], value, lineno=0)


def evaluated(value: ast.expr) -> ast.stmt:
    """An expression as a statement."""
    return ast.Expr(value)


def function_def(
    identifier: str, params: Sequence[str], body: Sequence[ast.stmt], doc: str = ""
) -> ast.FunctionDef:
    """`def identifier(params): body`, beginning with a docstring if there is one."""
    statements = [evaluated(literal(doc)), *body] if doc else list(body)
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(p) for p in params],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    return ast.FunctionDef(
        name=identifier, args=arguments, body=statements, decorator_list=[], lineno=0
    )
