"""Functions said to an IRBuilder: each statement of a text becomes the call that builds it."""

import ast
from ast import unparse
from collections.abc import Callable, Iterator
from typing import Any

from relaxpy.script.ir_builder import IRBuilder, relax as R, tir as T

Lines = Iterator[str]


def said(text: str) -> Any:
    """What a builder is given for the function of a text, which is named."""
    [function] = ast.parse(text.strip()).body
    assert isinstance(function, ast.FunctionDef)
    lines = _frame(function, "builder", name=function.name)
    names: dict[str, Any] = {"IRBuilder": IRBuilder, "R": R, "T": T, "range": T.serial}
    exec("\n".join(lines), names)
    return names["builder"].get()


def built(build: Callable[[], object]) -> Any:
    """What a builder is given by these calls."""
    with IRBuilder() as builder:
        build()
    return builder.get()


def _frame(function: ast.FunctionDef, builder: str, name: str | None = None) -> Lines:
    kernel = "prim_func" in unparse(function.decorator_list[0])
    module, frame = ("T", "T.prim_func") if kernel else ("R", "R.function")
    yield f"with IRBuilder() as {builder}, {frame}():"
    if name:
        yield f"    {module}.func_name({name!r})"
    for arg in function.args.args:
        assert arg.annotation is not None
        yield f"    {arg.arg} = {module}.arg({arg.arg!r}, {unparse(arg.annotation)})"
    yield from _inside(_kernel if kernel else _graph, function.body)


def _inside(translate: Callable[[list[ast.stmt]], Lines], body: list[ast.stmt]) -> Lines:
    yield from (f"    {line}" for line in translate(body))


def _branches(module: str, head: str, node: ast.If, translate: Any) -> Lines:
    yield f"with {module}.If({unparse(node.test)}){head}:"
    for frame, body in (("Then", node.body), ("Else", node.orelse)):
        if body:
            yield f"    with {module}.{frame}():"
            yield from (f"    {line}" for line in _inside(translate, body))


def _kernel(body: list[ast.stmt]) -> Lines:
    for number, statement in enumerate(body):
        match statement:
            case ast.Assign([ast.Subscript(value, index)], right):
                indices = index.elts if isinstance(index, ast.Tuple) else [index]
                places = ", ".join(map(unparse, indices))
                yield f"T.buffer_store({unparse(value)}, {unparse(right)}, [{places}])"
            case ast.For(target, values, inner):
                yield f"with {unparse(values)} as {unparse(target)}:"
                yield from _inside(_kernel, inner)
            case ast.If():
                yield from _branches("T", "", statement, _kernel)
            case ast.While(test, inner):
                yield f"with T.While({unparse(test)}):"
                yield from _inside(_kernel, inner)
            case ast.With(items, inner):
                yield f"with {', '.join(map(unparse, items))}:"
                yield from _inside(_kernel, inner)
            case ast.Assert(test, ast.expr() as message):
                yield f"with T.Assert({unparse(test)}, {unparse(message)}):"
                yield from _inside(_kernel, body[number + 1 :])
                return
            case ast.AnnAssign(target, _, ast.expr() as value):
                yield f"with T.LetStmt({unparse(value)}) as {unparse(target)}:"
                yield from _inside(_kernel, body[number + 1 :])
                return
            case ast.Break():
                yield "T.evaluate(T.break_loop())"
            case _:
                yield unparse(statement)


def _graph(body: list[ast.stmt]) -> Lines:
    for statement in body:
        own = f"_{statement.lineno}"
        match statement:
            case ast.Assign([target], value) if unparse(value).startswith(("R.match_cast", "T.")):
                yield unparse(statement)
            case ast.Assign([target], value):
                yield f"{unparse(target)} = R.emit({unparse(value)})"
            case ast.AnnAssign(target, annotation, ast.expr() as value):
                yield f"{unparse(target)} = R.emit({unparse(value)}, {unparse(annotation)})"
            case ast.If():
                yield from _branches("R", f" as {own}", statement, _graph)
                yield f"{_last(statement)} = {own}.var"
            case ast.With(_, [*_, ast.Expr(ast.Call(_, outputs))]):
                yield f"with R.dataflow() as {own}:"
                yield from _inside(_graph, statement.body)
                if outputs:
                    yield f"{', '.join(map(unparse, outputs))}, = {own}.output_vars"
            case ast.FunctionDef(name):
                yield from _frame(statement, own)
                yield f"{name} = R.emit({own}.get())"
            case ast.Return(ast.expr() as value):
                yield f"R.func_ret_value({unparse(value)})"
            case _:
                yield unparse(statement)


def _last(statement: ast.stmt) -> str:
    """The variable that a statement binds last."""
    match statement:
        case ast.If(_, [*_, last]):
            return _last(last)
        case ast.Assign([target]) | ast.AnnAssign(target):
            return unparse(target)
    raise AssertionError(unparse(statement))
