"""Programs of one dataflow block as text."""

import ast
import textwrap

from relaxpy.ir.module import IRModule
from relaxpy.script import from_source


def graph(text: str) -> IRModule:
    """The module of one function, given by its signature, its bindings and what it returns.

    The bindings are a dataflow block; its outputs are those that the function returns.
    """
    [function] = ast.parse(textwrap.dedent(text)).body
    assert isinstance(function, ast.FunctionDef)
    *bindings, result = function.body
    names = [n for b in bindings for n in ast.walk(b) if isinstance(n, ast.Name)]
    bound = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    used = [n.id for n in ast.walk(result) if isinstance(n, ast.Name) and n.id in bound]
    block = ast.parse(f"with R.dataflow():\n    R.output({', '.join(dict.fromkeys(used))})").body[0]
    assert isinstance(block, ast.With)
    sizes = [b for b in bindings if ast.unparse(b).endswith("= T.int64()")]
    block.body[:0] = [b for b in bindings if b not in sizes]
    function.body = [*sizes, block, result]
    function.decorator_list = [ast.parse("R.function", mode="eval").body]
    text = textwrap.indent(ast.unparse(function), "    ")
    found = from_source(f"@I.ir_module\nclass Module:\n{text}")
    assert isinstance(found, IRModule)
    return found
