"""Operators that take graphs: branches, loops, and regions that change how PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from relaxpy.frontend.shared.tensors import rank_of, reshaped
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.registry import Value
from relaxpy.ir.relax.nodes import Expr, If, SeqExpr, Tuple, TupleGetItem, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.ops import const as number
from relaxpy.ir.tir.prim_expr import PrimExpr


def _region(cx: Context, *args: Any) -> Any:
    """A graph that is computed here; the arguments before it say how PyTorch would."""
    at = next(k for k, arg in enumerate(args) if hasattr(arg, "graph"))
    return cx.importer.inlined(args[at], args[at + 1 :])


def _test(cx: Context, condition: Value) -> Expr:
    if isinstance(condition, PrimExpr):
        chosen = if_then_else(condition, number(1, "int64"), number(0, "int64"))
        return R.not_equal(cx.tensor(chosen), const(0, "int64"))
    x = cx.tensor(condition)
    return x if rank_of(x) == 0 else reshaped(x, [])


def _closed(cx: Context, body: Callable[[], Sequence[Any]]) -> SeqExpr:
    """What a function emits, as a sequence of its own whose result is a tuple."""
    cx.builder.begin_scope([])
    try:
        exprs = [cx.builder.normalize(cx.tensor(value)) for value in body()]
    except BaseException:
        cx.builder.end_scope()
        raise
    return cx.builder.end_scope(Tuple(tuple(exprs)))


def _cond(
    cx: Context, condition: Value, then: Any, otherwise: Any, operands: Sequence[Value] = ()
) -> Any:
    if isinstance(condition, bool):
        return cx.importer.inlined(then if condition else otherwise, operands)
    test = cx.builder.emit(_test(cx, condition))
    first, second = (
        _closed(cx, partial(cx.importer.inlined, graph, operands)) for graph in (then, otherwise)
    )
    result = cx.builder.emit(If(test, first, second))
    metas = cx.meta()
    return tuple(
        _matched(cx, cx.builder.emit(TupleGetItem(result, k)), meta) for k, meta in enumerate(metas)
    )


def _matched(cx: Context, value: Expr, meta: Any) -> Expr:
    """The value with the shape that PyTorch knows, if it has none."""
    return cx.importer.variable(cx.name, value, meta)


HIGHER_ORDER: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "wrap_with_set_grad_enabled": _region,
    "wrap_with_autocast": _region,
    "hints_wrapper": _region,
}
