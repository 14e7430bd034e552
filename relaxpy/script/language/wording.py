"""The wording of messages and hints, and the conversion of errors to located parse errors."""

from __future__ import annotations

import ast
import inspect
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from itertools import islice
from typing import TypeGuard

import numpy as np

from relaxpy.errors import MisuseError, ParseTypeError, RelaxpyError, Span, UnknownAttributeError
from relaxpy.ir.core.node import Node
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.relax.nodes import Expr, TensorStructInfo
from relaxpy.ir.tir import intrin
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.missing import article, described, nearest


def offers(space: object, name: str) -> bool:
    """True if a namespace has `name` in addition to its `__all__`."""
    has_name: Callable[[str], bool] | None = getattr(space, "_offers", None)
    return has_name is not None and has_name(name)


def public_names(space: object) -> Collection[str]:
    """The names of a namespace that are not in its `__all__`: operators registered later."""
    list_names: Callable[[], Collection[str]] | None = getattr(space, "_public_names", None)
    return () if list_names is None else list_names()


#: Nodes of a function that are searched for a hint, which may happen for each error of a program.
MAX_NODES_SEARCHED = 20_000


def as_parse_error(error: RelaxpyError, span: Span) -> RelaxpyError:
    """Locate `error` at `span`; a MisuseError that the program caused becomes a ParseTypeError."""
    if isinstance(error, MisuseError):
        return ParseTypeError(error.diagnostics).located(span)
    return error.located(span)


def describe(value: object) -> str:
    """The description of a value for messages."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, PrimExpr):
        return f"`{value}` of {value.dtype or 'void'}"
    if isinstance(value, Buffer):
        return f"buffer {value.name}"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape}"
    if inspect.isroutine(value) or inspect.isclass(value):
        return described(value)
    hint = getattr(value, "name_hint", None) if isinstance(value, Node) else None
    kind = getattr(value, "display_name", type(value).__name__)
    return f"{kind} {hint!r}" if isinstance(hint, str) else f"{article(kind)} {kind}"


def operators_called(name: str) -> list[str]:
    """The operators, as programs spell them, called `name` here or in other libraries."""
    dotted = f".{name}"
    known = (n for n in registered_ops() if n.startswith("relax.") and n.endswith(dotted))
    names = [f"R.{n.removeprefix('relax.')}" for n in known]
    return names or [
        f"R.{n}" for n in _NAMES_ELSEWHERE.get(name, ()) if f"relax.{n}" in registered_ops()
    ]


#: Names of operators in NumPy, PyTorch and others.
_NAMES_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "cat": ("concat",),
    "concatenate": ("concat",),
    "div": ("divide",),
    "dot": ("matmul",),
    "eq": ("equal",),
    "gather": ("gather_elements",),
    "index_select": ("take",),
    "mul": ("multiply",),
    "neg": ("negative",),
    "pow": ("power",),
    "repeat_interleave": ("repeat",),
    "scatter": ("scatter_elements",),
    "sub": ("subtract",),
    "swapaxes": ("permute_dims",),
    "take_along_axis": ("gather_elements",),
    "to": ("astype",),
    "transpose": ("permute_dims",),
    "unsqueeze": ("expand_dims",),
    "var": ("variance",),
    "view": ("reshape",),
}
#: Replacements for operators that do not exist.
_INSTEAD: Mapping[str, str] = {
    "py_module": "decorate the class with @I.ir_module, and let it inherit from relax.BasePyModule",
    "linear": "write R.linear(x, weight, bias), or R.matmul(x, R.permute_dims(weight))",
}
#: Functions of NumPy that make arrays, and what makes one in a kernel.
_MEMORY: Mapping[str, str] = dict.fromkeys(("empty", "ones", "zeros"), "T.alloc_buffer")


def _operators_nearly_called(name: str) -> list[str]:
    last_names = [n.rpartition(".")[2] for n in registered_ops()]
    known = [*last_names, *_NAMES_ELSEWHERE]
    return [full for near in nearest(name, known) for full in operators_called(near)]


#: Names that users look up in the wrong namespace.
_OF_OTHER_NAMESPACES = (
    "I.ir_module",
    "I.module_attrs",
    "R.function",
    "R.dataflow",
    "R.call_tir",
    "T.prim_func",
)


def attribute_hint(display_name: str, name: str, known: Iterable[str]) -> str | None:
    """A suggestion for `name` in the namespace `display_name`, which has the names `known`."""
    if display_name.partition(".")[0] == "R":
        full = f"{display_name}.{name}".removeprefix("R.")
        if full in registered_ops():
            return f"operators of R have names such as relax.{full}; this one is called {full}"
        if name.lower() in _INSTEAD:
            return _INSTEAD[name.lower()]
    known = list(known)
    suggestions = [f"{display_name}.{near}" for near in nearest(name, known)]
    if display_name == "T" and name in _MEMORY:
        suggestions = [_MEMORY[name]]
    suggestions = suggestions or [f"{display_name}.{n}" for n in known if n.endswith(f"_{name}")]
    if display_name.partition(".")[0] == "R":
        suggestions = operators_called(name) or suggestions or _operators_nearly_called(name)
    suggestions = suggestions or [n for n in _OF_OTHER_NAMESPACES if n.endswith(f".{name}")]
    return (
        f"did you mean {' or '.join(f'`{f}`' for f in suggestions[:2])}?" if suggestions else None
    )


def unknown_member(space: object, display_name: str, name: str) -> AttributeError:
    """Create the error for a name that is not in the namespace `space`, called `display_name`."""
    message = f"{display_name} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(message, name=name, obj=space)
    known = {*getattr(space, "__all__", ()), *public_names(space)}
    hint = attribute_hint(display_name, name, known)
    return UnknownAttributeError(message, hint=hint, about=name)


def member_hint(name: str, display_name: str) -> str | None:
    """A replacement for an attribute that values have in other libraries only."""
    if name == "shape":
        return (
            'name dimensions in the annotation, as in R.Tensor(("n", 4)), and declare n = T.int64()'
            f"; R.shape_of({display_name}) is a value"
        )
    if name == "range":
        return None  # R.arange, which has nearly this name, makes no loop
    if name == "T":
        return f"write R.permute_dims({display_name})"
    names = operators_called(name) or _operators_nearly_called(name)
    if not names:
        return None
    record = registered_ops()[names[0].replace("R.", "relax.", 1)]
    rest = ", ..." if len(record.parameters) > 1 else ""
    return f"operators are functions: {names[0]}({display_name}{rest})"


#: Replacements for Python's built-in functions on scalars of the program.
_OF_SCALARS = {
    "abs": "write T.abs({0})",
    "divmod": "write // and %",
    "float": 'write T.cast({0}, "float32")',
    "int": 'write T.cast({0}, "int32")',
    "range": "a loop with a symbolic extent belongs in a kernel: @T.prim_func",
    "round": "write T.round({0})",
    "sum": "add the terms in a loop, to an element of a buffer",
}


def scalar_hint(name: str, display_name: str) -> str | None:
    """A replacement for a built-in function of Python on a scalar of the program."""
    hint = _OF_SCALARS.get(name)
    return None if hint is None else hint.format(display_name)


def library_hint(name: str) -> str | None:
    """A replacement for an unknown name that is usually another library, or was not printed."""
    if name == "metadata":
        return "print the program by script(show_meta=True), which writes large constants, too"
    if name not in ("F", "jnp", "math", "np", "numpy", "tf", "torch", "tvm"):
        return None
    return "operators are functions of R, as in R.exp(x), in kernels of T, as in T.exp(x)"


def truth_hint(node: ast.expr) -> str | None:
    """A replacement for `node`, which uses a value of the program as a Python boolean."""
    match node:
        case ast.UnaryOp(operand=operand):
            return f"for tensors write R.logical_not({shown(operand)})"
        case ast.BoolOp(op=op, values=values):
            name = "and" if isinstance(op, ast.And) else "or"
            return f"for tensors write {_logical_calls(name, map(shown, values))}"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            operands = ", ".join(map(shown, (test, body, orelse)))
            return f"write an if statement with an else, or R.where({operands})"
        case _:
            return None


def shown(node: ast.expr) -> str:
    """The source text of an expression, for a hint; `...` if it is long."""
    text = ast.unparse(node)
    return text if len(text) <= 40 else "..."


def _logical_calls(name: str, operands: Iterable[str]) -> str:
    """The text of the conjunction (`and`) or disjunction (`or`) of tensors."""
    return reduce(lambda a, b: f"R.logical_{name}({a}, {b})", operands)


def chain_hint(node: ast.Compare) -> str:
    """A replacement for `a < b < c` on tensors."""
    operands = [node.left, *node.comparators]
    steps = (
        shown(ast.Compare(left, [op], [right]))
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False)
    )
    return f"write {_logical_calls('and', steps)}"


#: Keywords of PyTorch, as operators call them.
_KEYWORDS: Mapping[str | None, str] = {"dim": "axis", "keepdim": "keepdims"}


def array_hint(node: ast.Call, name: str, value: Node) -> str | None:
    """A replacement for a call of another library's function `name` on a value of the program."""
    names = operators_called({"max": "maximum", "min": "minimum"}.get(name, name))
    if isinstance(value, PrimExpr):
        names = [f"T.{name}"] if hasattr(intrin, name) else []
    if not names:
        return None
    record = registered_ops().get(names[0].replace("R.", "relax.", 1))
    known = {parameter.name for parameter in record.parameters} if record else set()
    arguments = [*map(shown, node.args)]
    for keyword in node.keywords:
        word = _KEYWORDS.get(keyword.arg, keyword.arg)
        arguments.append(f"{word}={shown(keyword.value)}" if word in known else "...")
    return f"write {names[0]}({', '.join(arguments)})"


def number_hint(value: object) -> str | None:
    """A replacement for a number that a program binds to a name, where Python needs it."""
    sinfo = value.struct_info if isinstance(value, Expr) else None
    if not isinstance(sinfo, TensorStructInfo) or sinfo.ndim != 0:
        return None
    return "a number that a program binds is a tensor: write the number here, or name it outside"


def binding_hint(tree: ast.AST, node: ast.Name) -> tuple[str | None, str | None]:
    """A hint about the binding of an unknown name elsewhere in the same function.

    The rule that the use of the name breaks follows; None if there is none, as in kernels.
    """
    enclosing = _enclosing_function(tree, node)
    decorators = [ast.unparse(d).partition("(")[0] for d in _decorators(enclosing)]
    in_graph = any(d.rpartition(".")[2] == "function" for d in decorators)
    unbound = "WF-2a" if in_graph else None
    if len(getattr(enclosing, "body", ())) > MAX_NODES_SEARCHED:
        return None, unbound
    nodes = list(islice(ast.walk(enclosing), MAX_NODES_SEARCHED + 1))
    if len(nodes) > MAX_NODES_SEARCHED:
        return None, unbound
    hint = _dimension_hint(enclosing, nodes, node)
    if hint is not None:
        return hint, "PX-7" if in_graph else None
    lines = [child.lineno for child in nodes if _binds(child, node.id)]
    if not lines:
        params = _params(nodes) - _params(ast.walk(getattr(enclosing, "args", enclosing)))
        return None, "WF-24" if in_graph and node.id in params else unbound
    first = min(lines)
    if first >= node.lineno:
        hint = "it is bound further down: move that before its first use"
        return hint, "WF-3" if in_graph else None
    branches = [
        child
        for child in nodes
        if isinstance(child, ast.If) and child.lineno <= first <= (child.end_lineno or first)
    ]
    literal = next((b.test for b in branches if isinstance(b.test, ast.Constant)), None)
    if literal is not None:
        hint = f"`if {literal.value!r}` does not run that branch: bind {node.id} before it"
    elif not branches:
        hint = "names bound in a block end with it: use them there, or bind them before it"
    elif any(d.endswith("prim_func") for d in decorators):
        hint = "names bound in a branch end with it: choose by a if c else b, or store to a buffer"
    else:
        hint = "names bound in a branch end with it: bind the same name last in both branches"
    return hint, "WF-24" if in_graph else None


def _params(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.arg for node in nodes if isinstance(node, ast.arg)}


def _binds(node: ast.AST, name: str) -> TypeGuard[ast.Name | ast.FunctionDef]:
    match node:
        case ast.Name(id=bound, ctx=ast.Store()) | ast.FunctionDef(name=bound):
            return bound == name
        case _:
            return False


def _dimension_hint(enclosing: ast.AST, nodes: Sequence[ast.AST], node: ast.Name) -> str | None:
    """A hint about a shape variable that is declared nowhere."""
    kinds = {kind for child in nodes if (kind := _kind_with_dimension(child, node))}
    if "memory" in kinds:
        return f"declare it before: {node.id} = T.int32()"
    if kinds and not _in_signature(enclosing, node):
        return f"declare a new shape variable before: {node.id} = T.int64()"
    if kinds:
        return (
            f"take a handle, as a: T.handle, and begin with {node.id} = T.int32(), then "
            f"A = T.match_buffer(a, ({node.id},))"
            if kinds == {"Buffer"}
            else f"in a signature dimensions are strings: {node.id!r}"
        )
    return None


def _decorators(function: ast.AST) -> Sequence[ast.expr]:
    return function.decorator_list if isinstance(function, ast.FunctionDef) else ()


def _enclosing_function(tree: ast.AST, node: ast.Name) -> ast.AST:
    """The innermost function that contains `node`, or `tree` if there is none."""
    enclosing, worklist = tree, [tree]
    while worklist:
        child = worklist.pop()
        if isinstance(child, ast.FunctionDef):
            enclosing = child
        for field in ("body", "orelse", "finalbody"):
            worklist += _statement_at(node.lineno, getattr(child, field, ()))
    return enclosing


def _statement_at(line: int, statements: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """The statement, among these consecutive ones, that contains this line."""
    index = bisect_right(statements, line, key=lambda s: s.lineno) - 1
    candidates = statements[max(index, 0) : index + 1]
    return [s for s in candidates if line <= (s.end_lineno or s.lineno)]


def _kind_with_dimension(call: ast.AST, node: ast.Name) -> str | None:
    """The kind of annotation that `call` creates, if `node` is among its dimensions."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    shapes = [a for a in call.args[:1] if isinstance(a, (ast.Tuple, ast.List))]
    kind = call.func.attr
    if kind in ("match_buffer", "alloc_buffer"):
        shapes, kind = [a for a in call.args[:2] if isinstance(a, (ast.Tuple, ast.List))], "memory"
    elif kind not in ("Tensor", "Shape", "Buffer"):
        return None
    return kind if any(n is node for shape in shapes for n in ast.walk(shape)) else None


def _in_signature(function: ast.AST, node: ast.Name) -> bool:
    if not isinstance(function, ast.FunctionDef):
        return False
    headers = [function.args, *filter(None, [function.returns])]
    return any(n is node for header in headers for n in ast.walk(header))


_NAMES: dict[type[ast.expr], tuple[str, str | None]] = {
    ast.Await: ("await", None),
    ast.Yield: ("yield", "return the values instead, in a tuple"),
    ast.YieldFrom: ("yield", "return the values instead, in a tuple"),
    ast.NamedExpr: ("an assignment inside an expression", "give it a line of its own"),
    ast.Starred: ("a starred expression", None),
}


def construct(node: ast.expr) -> str:
    """The name of this kind of Python expression."""
    return _NAMES.get(type(node), (type(node).__name__, None))[0]


def construct_hint(node: ast.expr) -> str | None:
    """A replacement for this kind of Python expression."""
    return _NAMES.get(type(node), ("", None))[1]
