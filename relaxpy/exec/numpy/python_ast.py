"""Constructors of Python syntax trees for generated code, and its source text."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Any, Final, TypeAlias, TypeGuard

from relaxpy.errors import CompileError, Span
from relaxpy.ir.core.float_text import bits_of, exact_hex
from relaxpy.support.pysource import load, render, spans_by_line

Code: TypeAlias = "ast.expr | str | int | float | bool | EllipsisType | tuple[Code, ...] | None"
_NOT_NODES: Final = frozenset(("id", "attr", "arg", "name", "ctx", "op", "ops", "type_comment"))
"""Fields with names, contexts and operators."""
_FIELDS: Final = {
    kind: tuple([name for name in kind._fields if name not in _NOT_NODES])
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
} | {ast.Constant: ()}


def path(text: str) -> ast.expr:
    """The dotted name `text`."""
    first, *rest = text.split(".")
    node: ast.expr = ast.Name(first, ast.Load())
    for part in rest:
        node = ast.Attribute(node, part, ast.Load())
    return node


def code(value: Code) -> ast.expr:
    """`value` as an expression: a str is a dotted name, numbers and None are literals."""
    if isinstance(value, ast.expr):
        return value
    if isinstance(value, str):
        return path(value)
    if isinstance(value, tuple):
        return tuple_of(value)
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return path("np.nan") if exact_hex(value) == "nan" else _other_nan(value)
        return path("np.inf") if value > 0 else ast.UnaryOp(ast.USub(), path("np.inf"))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _negative(value):
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def _other_nan(value: float) -> ast.expr:
    """A NaN with another sign or other bits than NumPy's."""
    bits = call("np.uint64", bits_of(value))
    return call(attribute(call(attribute(bits, "view"), text("float64")), "item"))


def _negative(value: float) -> bool:
    return value < 0 or (value == 0 and math.copysign(1.0, value) < 0)


def tuple_of(fields: Iterable[Code]) -> ast.expr:
    """A tuple of `fields`."""
    return ast.Tuple([code(f) for f in fields], ast.Load())


def text(value: str) -> ast.expr:
    """The string literal `value`."""
    return ast.Constant(value)


def docstring(value: str) -> ast.stmt:
    """A docstring; Python 3.13 accepts only text that can be encoded."""
    return do(text(value.encode(errors="backslashreplace").decode()))


def call(function: Code, *args: Code, **keywords: Code) -> ast.Call:
    """`function(*args, **keywords)`."""
    named = [ast.keyword(k, code(v)) for k, v in keywords.items()]
    return ast.Call(code(function), [code(a) for a in args], named)


def attribute(value: Code, name: str) -> ast.expr:
    """`value.name`."""
    return ast.Attribute(code(value), name, ast.Load())


def item(value: Code, *indices: Code) -> ast.Subscript:
    """`value[indices]`; without indices, `value[()]`."""
    nodes = [code(i) for i in indices]
    index: ast.expr = nodes[0] if len(nodes) == 1 else ast.Tuple(nodes, ast.Load())
    return ast.Subscript(code(value), index, ast.Load())


def binary(left: Code, op: type[ast.operator], right: Code) -> ast.expr:
    """`left op right`."""
    return ast.BinOp(code(left), op(), code(right))


def compare(left: Code, op: type[ast.cmpop], right: Code) -> ast.expr:
    """`left op right` as a comparison."""
    return ast.Compare(code(left), [op()], [code(right)])


def both(operands: Iterable[Code]) -> ast.expr:
    """The conjunction of at least one operand."""
    return _joined(ast.And, operands)


def either(operands: Iterable[Code]) -> ast.expr:
    """The disjunction of at least one operand."""
    return _joined(ast.Or, operands)


def _joined(kind: type[ast.boolop], operands: Iterable[Code]) -> ast.expr:
    values: list[ast.expr] = []
    for operand in map(code, operands):
        match operand:
            case ast.BoolOp(op=op, values=inner) if isinstance(op, kind):
                values += inner
            case _:
                values.append(operand)
    return values[0] if len(values) == 1 else ast.BoolOp(kind(), values)


def negated(condition: Code) -> ast.expr:
    """`not condition`."""
    return ast.UnaryOp(ast.Not(), code(condition))


def assign(target: Code, value: Code) -> ast.stmt:
    """`target = value`."""
    node = code(target)
    assert isinstance(node, ast.Name | ast.Subscript)
    if isinstance(node, ast.Name):
        return ast.Assign([ast.Name(node.id, ast.Store())], code(value))
    return ast.Assign([ast.Subscript(node.value, node.slice, ast.Store())], code(value))


def do(value: Code) -> ast.stmt:
    """`value` as a statement."""
    return ast.Expr(code(value))


def loop(name: str, start: Code, stop: Code, body: list[ast.stmt]) -> ast.stmt:
    """`for name in range(start, stop)`."""
    first = code(start)
    zero = isinstance(first, ast.Constant) and first.value == 0
    bounds = (code(stop),) if zero else (first, code(stop))
    return ast.For(ast.Name(name, ast.Store()), call("range", *bounds), body or [ast.Pass()], [])


def when(condition: Code, body: list[ast.stmt], orelse: list[ast.stmt] | None = None) -> ast.stmt:
    """`if condition: body`."""
    return ast.If(code(condition), body or [ast.Pass()], orelse or [])


def nodes_in(roots: Iterable[ast.AST]) -> list[ast.AST]:
    """The nodes of generated trees in the order of `ast.walk`, without contexts and operators."""
    nodes = [*roots]
    for node in nodes:
        nodes += child_nodes(node)  # the list grows meanwhile
    return nodes


def child_nodes(node: ast.AST) -> list[ast.AST]:
    """The child nodes of a node of a generated tree, without contexts and operators."""
    children: list[ast.AST] = []
    for name in _FIELDS[type(node)]:
        value = getattr(node, name)
        if isinstance(value, list):
            children += value
        elif value is not None:
            children.append(value)
    return children


def is_tuple_of_names(node: ast.expr) -> TypeGuard[ast.Tuple]:
    """True if an expression is a tuple of names."""
    return isinstance(node, ast.Tuple) and all(isinstance(field, ast.Name) for field in node.elts)


def leaves(statements: Sequence[ast.stmt]) -> bool:
    """True if every path through `statements` ends with a return or continue."""
    match statements:
        case [*_, ast.Continue() | ast.Return()]:
            return True
        case [*_, ast.If(body=yes, orelse=no)]:
            return leaves(yes) and leaves(no)
        case _:
            return False


def function(
    name: str, args: Iterable[str], body: list[ast.stmt], decorators: Iterable[ast.expr] = ()
) -> ast.FunctionDef:
    """`def name(args): body`."""
    arguments = ast.arguments([], [ast.arg(a) for a in args], None, [], [], None, [])
    node = ast.FunctionDef(name, arguments, body or [ast.Pass()], list(decorators), None, None)
    if "type_params" in ast.FunctionDef._fields:
        node.type_params = []  # type: ignore[attr-defined, unused-ignore]
    return node


def load_text(
    definitions: Sequence[ast.stmt], stem: str, names: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The source of generated definitions, and `names` with those that it defines.

    Errors:
        CompileError: blocks nest deeper than in Python.
    """
    text, span_of_line = rendered(definitions)
    return text, load_source(text, stem, names, span_of_line)


def rendered(definitions: Sequence[ast.stmt]) -> tuple[str, Callable[[int], Span | None]]:
    """The source of generated definitions, and the program spans of its lines."""
    tree = ast.Module([*definitions], [])
    text = render(tree)
    return text, spans_by_line(tree, text)


def load_source(
    text: str, stem: str, names: Mapping[str, Any], span_of_line: Callable[[int], Span | None]
) -> dict[str, Any]:
    """The `names` with those that a generated source defines.

    Errors:
        CompileError: blocks nest deeper than in Python.
    """
    try:
        return load(text, stem, dict(names), span_of_line)
    except IndentationError:
        raise CompileError(
            "branches and local functions nest deeper than Python's 100 levels of indentation",
            hint="move inner functions or branches to functions of the module",
        ) from None
    except SyntaxError as error:  # Python limits the nesting of blocks
        raise CompileError(
            f"the loops of a kernel nest deeper than Python does: {error.msg}",
            hint='fuse loops, or use target="reference"',
        ) from None
