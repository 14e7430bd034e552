"""Closures with bound last arguments, and calls of closures without known parameters."""

from __future__ import annotations

from relaxpy.errors import StructInfoTypeError, counted
from relaxpy.ir.core.node import EMPTY_ATTRS
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind, Memory
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.call import Operands, operand_tuple
from relaxpy.ir.relax.op.definition.registry import register
from relaxpy.ir.relax.op.outputs import StructInfos, sinfo_list
from relaxpy.ir.relax.relations.context import Context


def declared_sinfo(sinfos: tuple[rx.StructInfo, ...], otherwise: rx.StructInfo) -> rx.StructInfo:
    """The struct info that a call declares, a tuple of several; else `otherwise`."""
    if not sinfos:
        return otherwise
    return sinfos[0] if len(sinfos) == 1 else rx.TupleStructInfo(sinfos)


def _function_and_tuple(call: rx.Call, ctx: Context) -> tuple[rx.StructInfo, rx.TupleStructInfo]:
    """The struct info of both arguments."""
    if len(call.args) != 2:
        raise StructInfoTypeError("takes a function and a tuple of arguments", about=call)
    callee, packed = map(ctx.sinfo_of, call.args)
    if not isinstance(callee, (rx.FuncStructInfo, rx.ObjectStructInfo)):
        raise StructInfoTypeError(f"expected a function, found {callee}", about=call.args[0])
    if not isinstance(packed, rx.TupleStructInfo):
        raise StructInfoTypeError(f"the arguments are a tuple, found {packed}", about=call.args[1])
    return callee, packed


def _infer_make(call: rx.Call, ctx: Context) -> rx.StructInfo:
    callee, arguments = _function_and_tuple(call, ctx)
    params = callee.params if isinstance(callee, rx.FuncStructInfo) else None
    if params is not None and len(arguments.fields) > len(params):
        raise StructInfoTypeError(
            f"the function takes {counted(len(params), 'argument')}, "
            f"{len(arguments.fields)} are bound",
            about=call.args[1],
        )
    return rx.ObjectStructInfo()


@register("relax.make_closure", pure=True, infer=_infer_make, memory=Memory.ANY)
def make_closure(func: rx.Expr, args: Operands) -> rx.Call:
    """`func` with its last arguments bound: calling the closure takes those before them.

    Shapes:
        args    the arguments to hold, in a tuple
        result  an object, to be called by `invoke_closure` or `invoke_pure_closure`
    Errors:
        StructInfoError: `func` is not a function, or takes fewer arguments.
    """
    return rx.Call(make_closure.op, (rx.convert_to_expr(func), operand_tuple(args)))


def _infer_invoke(call: rx.Call, ctx: Context) -> rx.StructInfo:
    _function_and_tuple(call, ctx)
    return declared_sinfo(call.sinfo_args, rx.ObjectStructInfo())


def _invoke(op: Op, closure: rx.Expr, args: Operands, sinfo_args: StructInfos) -> rx.Call:
    packed = (
        args
        if isinstance(args, rx.Expr) and not isinstance(args, rx.Tuple)
        else operand_tuple(args)
    )
    return rx.Call(op, (rx.convert_to_expr(closure), packed), EMPTY_ATTRS, sinfo_list(sinfo_args))


@register("relax.invoke_closure", infer=_infer_invoke, calls=CallKind.CLOSURE)
def invoke_closure(closure: rx.Expr, args: Operands, sinfo_args: StructInfos = ()) -> rx.Call:
    """The result of a closure for a tuple of arguments; impure.

    Shapes:
        result  `sinfo_args`: of one value, a list for a tuple, none for any object
    Errors:
        StructInfoError: `closure` is not a function, or `args` not a tuple.
    """
    return _invoke(invoke_closure.op, closure, args, sinfo_args)


@register("relax.invoke_pure_closure", pure=True, infer=_infer_invoke, calls=CallKind.CLOSURE)
def invoke_pure_closure(closure: rx.Expr, args: Operands, sinfo_args: StructInfos = ()) -> rx.Call:
    """As `invoke_closure`, of a closure that whoever writes it promises to be pure."""
    return _invoke(invoke_pure_closure.op, closure, args, sinfo_args)
