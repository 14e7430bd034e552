"""Programs as short texts: what every function of a test would repeat is left out.

`f32[n, 4]` is `R.Tensor(("n", 4), "float32")`, and `f32` a tensor of rank 0; in a kernel, they are
buffers. A function without a decorator is an `R.function`, `@private`, `@impure` and `@kernel` are
those of `R.function(private=True)`, `R.function(pure=False)` and `T.prim_func(private=True)`.
In `@kernel64`, integers are of datatype int64, as in the kernels of operators. A loop in `SR(n, m)`
of a kernel is a block, see `Blocks`.
Functions of the module are attributes of `cls`. What a dataflow block returns is found by its uses,
and dimensions that the signature names are defined where the body has them.
"""

import ast
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.rows import titled

_KINDS = {"f": "float", "i": "int", "u": "uint", "bf": "bfloat"}
#: The short names of datatypes.
DTYPES = {
    **{short + bits: _KINDS[short] + bits for short in _KINDS for bits in ("8", "16", "32", "64")},
    "bool": "bool",
}
_DECORATORS = {
    "private": "R.function(private=True)",
    "impure": "R.function(pure=False)",
    "kernel": "T.prim_func(private=True)",
    "kernel64": "T.prim_func(private=True)",
}


def module(text: str, names: Mapping[str, Any] | None = None) -> IRModule:
    """The module of the functions of a text, which may use `names`, too."""
    body = ast.parse(textwrap.dedent(text)).body
    for function in body:
        if isinstance(function, ast.FunctionDef):
            _complete(function)
    whole = ast.ClassDef("Module", [], [], body, [ast.parse("I.ir_module", mode="eval").body])
    source = ast.unparse(ast.fix_missing_locations(whole))
    found = from_source(source, {"I": I, "R": R, "T": T, **(names or {})})
    assert isinstance(found, IRModule)
    return found


def graph(text: str) -> IRModule:
    """The module of the functions of a text, the bindings of each of which are a dataflow block."""
    body = ast.parse(textwrap.dedent(text)).body
    for function in body:
        assert isinstance(function, ast.FunctionDef)
        if _is_kernel(function) or len(function.body) == 1:
            continue
        block = ast.parse("with R.dataflow():\n    pass").body[0]
        assert isinstance(block, ast.With)
        *bindings, result = function.body
        first = [b for b in bindings if re.search(r"= T\.int64\(\)$|^R\.func_attr", ast.unparse(b))]
        block.body = [b for b in bindings if b not in first]
        function.body = [*first, block, result]
    return module(ast.unparse(ast.Module(body, [])))


def flow(params: str, lines: str, result: str = "y") -> IRModule:
    """The module of a function `main` of one dataflow block, whose bindings `; ` may divide."""
    body = "\n    ".join(re.split(r"; |\n *", lines.strip()))
    return graph(f"def main({params}):\n    {body}\n    return {result}")


def private(body: str, params: str, *, pure: bool = True) -> rx.Function:
    """A private function `main` with these lines, written out."""
    lines = textwrap.indent(body.strip(), "    ")
    found = from_source(f"@R.function(private=True, pure={pure})\ndef main({params}):\n{lines}")
    assert isinstance(found, rx.Function)
    return found


def changes(text: str) -> list[Any]:
    """Rows of programs before and after: `--- name`, or `--- RULE-1 RULE-2: name`, and the text.

    The two are divided by a line `=>`, after which an indented text has the signature of the one
    before; or they are one text in which `-` marks the lines before, and `+` those after. A text
    without either stays as it is.
    """
    return [pytest.param(*both(body), id=name, marks=marks) for name, marks, body in titled(text)]


def both(body: str) -> tuple[str, str]:
    """The text before and the text after, of a row of `changes`."""
    before, arrow, after = body.partition("\n=>\n")
    if arrow:
        signature = before[: before.index("\n    ")]
        return before, f"{signature}\n{after}" if after.startswith("    ") else after
    lines = body.splitlines()
    return _version(lines, "-"), _version(lines, "+")


def pair(text: str, read: Callable[[str], IRModule] = module) -> tuple[IRModule, IRModule]:
    """The module before and the module after, of a row of `changes`."""
    before, after = both(textwrap.dedent(text))
    return read(before), read(after)


def _version(lines: list[str], mark: str) -> str:
    kept = [line for line in lines if line[:1] not in ("-", "+") or line[0] == mark]
    return "\n".join(re.sub(r"^[-+](?= )", " ", line).lstrip("+-") for line in kept)


def _is_kernel(function: ast.FunctionDef) -> bool:
    marks = map(ast.unparse, function.decorator_list)
    return any("prim_func" in mark or "kernel" in mark for mark in marks)


def _complete(function: ast.FunctionDef) -> None:
    """Write out in a function what the text leaves out."""
    is_kernel = _is_kernel(function)
    is_wide = "kernel64" in map(ast.unparse, function.decorator_list)
    dims = set()
    bound = {n.id for n in _names(function.body, ast.Store)}
    for node in [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef)]:
        decorators = [ast.unparse(d) for d in node.decorator_list] or ["R.function"]
        node.decorator_list = [
            ast.parse(_DECORATORS.get(d, d), mode="eval").body for d in decorators
        ]
        signature = _Tensors("T.Buffer" if is_kernel else "R.Tensor", bound, as_text=not is_kernel)
        for arg in node.args.args:
            arg.annotation = arg.annotation and signature.visit(arg.annotation)
        node.returns = node.returns and signature.visit(node.returns)
        dims |= signature.dims if node is function else set()
    body = _Tensors("T.Buffer" if is_kernel else "R.Tensor", bound, as_text=False)
    function.body = [body.visit(statement) for statement in function.body]
    if is_kernel:
        Blocks().visit(function)
    if is_wide:
        _Wide().visit(function)
    if is_kernel:
        return
    _add_outputs(function)
    names = {n.id: n.ctx for n in ast.walk(function) if isinstance(n, ast.Name)}
    head = [f"{dim} = T.int64()" for dim in sorted(dims) if dim in names and dim not in bound]
    if "cls" in names and "cls" not in bound:
        head.append("cls = Module")
    function.body[:0] = ast.parse("\n".join(head)).body


def _names(nodes: list[ast.stmt], kind: type[ast.expr_context]) -> Iterator[ast.Name]:
    for statement in nodes:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, kind):
                yield node


def _add_outputs(function: ast.FunctionDef) -> None:
    """Add the statement of outputs to dataflow blocks without one."""
    blocks = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.With) and "dataflow" in ast.unparse(n.items)
    ]
    for block in blocks:
        if ast.unparse(block.body[-1]).startswith("R.output("):
            continue
        inside = list(_names(block.body, ast.Load))
        uses = [n.id for n in _names([function], ast.Load) if all(n is not i for i in inside)]
        bound = {n.id for n in _names(block.body, ast.Store)}
        bound |= {s.name for s in block.body if isinstance(s, ast.FunctionDef)}
        outputs = ", ".join(dict.fromkeys(name for name in uses if name in bound))
        block.body = [s for s in block.body if not isinstance(s, ast.Pass)]
        block.body += ast.parse(f"R.output({outputs})").body


class Blocks(ast.NodeTransformer):
    """Loops `for i, k in SR(n, m, "name"):` become a block of the axes `vi`, spatial, and `vk`,
    reduced; without a name, it has that of the buffer that it stores to first.
    """

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        match node.iter:
            case ast.Call(func=ast.Name(id=kinds), args=[*extents]) if re.fullmatch("[SR]+", kinds):
                named = [e.value for e in extents if isinstance(e, ast.Constant)][-1:]
                named = [n for n in named if isinstance(n, str)]
                extents = extents[: len(extents) - len(named)]
                loops = ast.unparse(node.target).strip("()")
                axes = ", ".join(f"v{name.lstrip('_')}" for name in loops.split(", "))
                grid = "range" if len(extents) == 1 else "T.grid"
                head = f"for {loops} in {grid}({', '.join(map(ast.unparse, extents))}):"
                remap = f"{axes} = T.axis.remap('{kinds}', [{loops}])"
                lines = (n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Assign))
                stores = (t for n in lines for t in n.targets if isinstance(t, ast.Subscript))
                [name] = named or [ast.unparse(next(stores).value)]
                [loop] = ast.parse(f"{head}\n with T.block({name!r}):\n  {remap}").body
                loop.body[0].body += node.body  # type: ignore[attr-defined]
                return loop
        return node


class _Tensors(ast.NodeTransformer):
    """The long form of tensors, where no variable has such a name; in a signature, with texts."""

    def __init__(self, kind: str, bound: set[str], *, as_text: bool) -> None:
        self.kind, self.bound, self.as_text = kind, bound, as_text
        self.dims: set[str] = set()

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not isinstance(node.value, ast.Name) or not self.is_dtype(node.value.id):
            return self.generic_visit(node)
        dims = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return self.tensor(node.value.id, dims)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.tensor(node.id, []) if self.is_dtype(node.id) else node

    def is_dtype(self, name: str) -> bool:
        return name in DTYPES and name not in self.bound

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """The signatures of local functions are done already."""
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def tensor(self, dtype: str, dims: list[ast.expr]) -> ast.AST:
        self.dims |= {n.id for d in dims for n in ast.walk(d) if isinstance(n, ast.Name)}
        if self.as_text:
            dims = [
                d if isinstance(d, ast.Constant) else ast.Constant(ast.unparse(d)) for d in dims
            ]
        shape = ast.Tuple(dims, ast.Load())
        return ast.parse(f"{self.kind}({ast.unparse(shape)}, {DTYPES[dtype]!r})", mode="eval").body


class _Wide(ast.NodeTransformer):
    """Integers of datatype int64."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is not int:
            return node
        return ast.parse(f"T.int64({node.value})", mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Constants of a datatype, and attributes, stay."""
        name = ast.unparse(node.func)
        is_typed = name.removeprefix("T.") in DTYPES.values() or name.endswith("_attr")
        return node if is_typed else self.generic_visit(node)
