"""Short spellings of graph-level programs for tests, built node by node."""

import ast
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from relaxpy.errors import Source, Span
from relaxpy.ir import IRModule, Op
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Evaluate
from tests.ir.relax import sinfos

BOOL = rx.TensorStructInfo((), "bool")  # type: ignore[arg-type]
UNIT = rx.TupleStructInfo(())
SOURCE = Source("program.py", "")


def at(line: int | None) -> Span | None:
    """A position in a program without text."""
    return None if line is None else Span(SOURCE, line, 1, line, 2)


def size(name: str) -> tir.Var:
    return tir.Var(name, "int64")


def var(name: str, sinfo: rx.StructInfo | None = None) -> rx.Var:
    return rx.Var(name, sinfo)


def local(name: str, sinfo: rx.StructInfo | None = None) -> rx.DataflowVar:
    return rx.DataflowVar(name, sinfo)


def shape_of(expr: rx.Expr) -> rx.Call:
    """A pure call."""
    return rx.Call(Op("relax.shape_of"), (expr,))


def show(*values: rx.Expr) -> rx.Call:
    """An impure call."""
    return rx.Call(Op("relax.print"), values)


def pure(name: str, *args: rx.Expr, sinfo: rx.StructInfo | None = None) -> rx.Call:
    """A call of a packed function that is declared pure, for any number of arguments."""
    sinfos = () if sinfo is None else (sinfo,)
    return rx.Call(rx.ExternFunc(name), args, Attrs({"pure": True}), sinfos)


def bind(target: rx.Var, value: rx.Expr) -> rx.VarBinding:
    return rx.VarBinding(target, value)


def cast(target: rx.Var | None, value: rx.Expr, sinfo: rx.StructInfo) -> rx.MatchCast:
    return rx.MatchCast(target, value, sinfo)


def block(*bindings: rx.Binding) -> rx.BindingBlock:
    return rx.BindingBlock(bindings)


def dataflow(*bindings: rx.Binding) -> rx.DataflowBlock:
    return rx.DataflowBlock(bindings)


def seq(*parts: rx.BindingBlock | rx.Expr) -> rx.SeqExpr:
    """Blocks, then the result."""
    *blocks, body = parts
    return rx.SeqExpr(blocks, body)  # type: ignore[arg-type]


def function(
    params: list[rx.Var],
    body: rx.Expr,
    ret: rx.StructInfo | None = None,
    *,
    is_pure: bool = True,
    **attrs: object,
) -> rx.Function:
    return rx.Function(tuple(params), body, ret, is_pure, Attrs(attrs))


def module(**functions: rx.BaseFunc) -> IRModule:
    """A module of public functions."""
    return IRModule({n: f.with_attr("global_symbol", n) for n, f in functions.items()})


def kernel(*shapes: tuple[object, ...], dtype: str = "float32") -> PrimFunc:
    """A PrimFunc over buffers of these shapes that does nothing."""
    buffers = [decl_buffer(s, dtype, f"A{i}") for i, s in enumerate(shapes)]  # type: ignore[arg-type]
    return PrimFunc(tuple(buffers), Evaluate(0))  # type: ignore[arg-type]


def bindings(expr: rx.Expr) -> list[rx.Binding]:
    """The bindings of a SeqExpr or of a function's body, in order."""
    body = expr.body if isinstance(expr, rx.Function) else expr
    assert isinstance(body, rx.SeqExpr)
    return [b for part in body.blocks for b in part.bindings]


def called(expr: rx.Expr) -> list[str]:
    """The names of what the bindings call, in order."""
    calls = [b.value for b in bindings(expr) if isinstance(b.value, rx.Call)]
    return [getattr(c.op, "global_symbol", None) or getattr(c.op, "name", "?") for c in calls]


def returning(make: Callable[..., rx.Expr], *sinfos: rx.StructInfo, **options: bool) -> IRModule:
    """A module whose `main` returns what `make` gives for parameters of these struct infos."""
    return built(lambda _, *params: make(*params), *sinfos, **options)


def built(
    body: Callable[..., rx.Expr], *sinfos: rx.StructInfo, dataflow: bool = True, pure: bool = True
) -> IRModule:
    """A module whose `main` returns what `body` makes of a builder and parameters `x0`, `x1`, …"""
    builder = BlockBuilder()
    params = [rx.Var(f"x{k}", sinfo) for k, sinfo in enumerate(sinfos)]
    with builder.function("main", params, pure=pure):
        with builder.dataflow() if dataflow else nullcontext():
            result = body(builder, *params)
            result = builder.emit_output(result) if dataflow else builder.emit(result)
        builder.emit_func_output(result)
    return builder.get()


def variables(text: str, names: dict[str, Any]) -> list[rx.Var]:
    """The variables of a row, which `names` has from now on."""
    [call] = (ast.parse(f"f({text})", mode="eval").body,)
    made = []
    for keyword in call.keywords:  # type: ignore[attr-defined]
        name = str(keyword.arg)
        kind = rx.DataflowVar if name.endswith("_") else rx.Var
        names[name] = kind(name.rstrip("_"), eval(ast.unparse(keyword.value), names))
        made.append(names[name])
    return made


def written(case: str, more: dict[str, Any]) -> tuple[rx.Function, str, dict[str, Any]]:
    """The function of a row, what the row says of it, and the names that this may use.

    A row `PARAMETERS; VARIABLES | BODY -> RESULT => OUTCOME` has the names and struct infos of
    parameters and of other variables (those of dataflow blocks with `_` at the end), the body
    (after `impure:` that of an impure function), and what it is declared to return; sizes are n, m
    and k.
    """
    names = {**globals(), **vars(sinfos), **more, **{name: size(name) for name in "nmk"}}
    declared, body, outcome = re.split(r" \| | => ", f" {case.strip()} ")
    outer, _, inner = declared.partition(";")
    params = variables(outer, names)
    variables(inner, names)
    body, _, ret = body.strip().partition(" -> ")
    is_pure = not body.startswith("impure:")
    value = eval(body.removeprefix("impure:").strip(), names)
    sinfo = eval(ret, names) if ret else None
    return function(params, value, sinfo, is_pure=is_pure), outcome.strip(), names
