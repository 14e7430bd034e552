"""What the oracle looks for in the text of a kernel."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.kernels.semantics import BITS, FLOATS

DTYPES = {*BITS, *FLOATS, "bool"}
_IGNORED = {"where", "reads", "writes", "block_attr", "func_attr"}


class UnreadableError(Exception):
    """The text has what the oracle does not know, or what is not a program."""


@dataclass(frozen=True)
class Value:
    """An expression: the Python that computes it, and its datatype ("" of a plain number)."""

    code: str
    dtype: str


@dataclass(frozen=True)
class Variable:
    """What a name of the text stands for."""

    code: str
    dtype: str
    rank: int = -1
    """Of a buffer; -1 of a scalar."""


@dataclass(frozen=True)
class Axis:
    """An axis of a block: its variable, the start of its domain, what it is bound to."""

    code: str
    start: str
    reduces: bool
    binding: str


class Layout:
    """The arguments of `T.Buffer`, `T.match_buffer`, `T.alloc_buffer`, `T.decl_buffer`."""

    def __init__(self, call: ast.Call, skip: int = 0) -> None:
        given = dict(zip(("shape", "dtype"), call.args[skip:], strict=False))
        given |= {str(k.arg): k.value for k in call.keywords}
        shape = given.get("shape")
        if shape is None:
            raise UnreadableError(ast.unparse(call))
        self.shape = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else [shape]
        strides = given.get("strides")
        self.strides = strides.elts if isinstance(strides, (ast.Tuple, ast.List)) else None
        self.offset = given.get("elem_offset")
        self.data = given.get("data")
        dtype = given.get("dtype", ast.Constant("float32"))
        if not isinstance(dtype, ast.Constant) or dtype.value not in DTYPES:
            raise UnreadableError(ast.unparse(call))
        self.dtype = str(dtype.value)


class Given(ast.expr):
    """The bounds of the inner loops of a grid, which are computed already."""

    def __init__(self, ranges: list[tuple[Value, Value]]) -> None:
        super().__init__()
        self.ranges = ranges


def inner_loop(inner: list[Any], node: ast.For) -> ast.For:
    """The inner loops of a grid."""
    names, ranges = zip(*inner, strict=True)
    target = ast.Tuple([ast.Name(name) for name in names])
    return ast.For(target, Given(list(ranges)), node.body, [])


def name_of(node: ast.AST | None) -> str:
    """The last part of a dotted name."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) == name


def is_call_of(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and calls(node.value, name)


def is_ignored(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and (
        isinstance(node.value, ast.Constant)
        or (isinstance(node.value, ast.Call) and name_of(node.value.func) in _IGNORED)
    )


def predicate_of(body: Sequence[ast.stmt]) -> ast.expr | None:
    """The condition of a block."""
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Call(func=func, args=[condition])) if name_of(func) == "where":
                return condition
    return None


def is_init(node: ast.AST) -> bool:
    return isinstance(node, ast.With) and calls(node.items[0].context_expr, "init")


def may_reduce(loop: str, body: Sequence[ast.stmt]) -> bool:
    """Whether a block in a loop may have an init and be a reduction along the loop."""
    nodes = [node for part in body for node in ast.walk(part)]
    if any(isinstance(node, ast.AnnAssign) or _is_let(node) for node in nodes):
        return True  # the variable may be that of the loop under another name
    blocks = [node for node in nodes if isinstance(node, ast.With)]
    return any(
        any(map(is_init, block.body)) and loop in _only_reduced(block.body) for block in blocks
    )


def _is_let(node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name()], value=value):
            return not isinstance(value, ast.Call)
        case _:
            return False


def _only_reduced(body: Sequence[ast.stmt]) -> set[str]:
    """The names to which only axes of a block are bound that are reduced."""
    reduced: set[str] = set()
    kept: set[str] = set()
    for node in body:
        match node:
            case ast.Assign(value=ast.Call(func=func, args=[first, second])) if ast.unparse(
                func
            ).startswith("T.axis."):
                if isinstance(second, ast.List):
                    pairs = list(zip(ast.literal_eval(first), second.elts, strict=True))
                else:
                    pairs = [(name_of(func)[0].upper(), second)]
                for letter, binding in pairs:
                    names = names_in(ast.unparse(binding))
                    (reduced if letter == "R" else kept).update(names)
    return reduced - kept


def parts_of(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def names_in(code: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(code, mode="eval")) if isinstance(n, ast.Name)}


def conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for part in node.values:
            yield from conjuncts(part)
    else:
        yield node


def literal_type(node: ast.expr) -> str:
    """The datatype of a plain number that is bound."""
    try:
        return "float32" if isinstance(ast.literal_eval(node), float) else "int32"
    except ValueError:
        return "int32"
