"""Calls of packed functions with their context, of closures, and of Python functions by name."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import StructInfoTypeError, check_type, counted
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallArguments, CallKind, Memory
from relaxpy.ir.ops.call import (
    Operands,
    StructInfos,
    index_list,
    operand_of_output,
    operand_tuple,
    output_sinfo,
    packed_callee,
    packed_derivation,
    packed_result,
    sinfo_list,
)
from relaxpy.ir.ops.definition.registry import Operand, register
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import fields_of
from relaxpy.ir.relax.nodes import Call, Expr, StructInfo, TupleStructInfo, convert_to_expr
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.support.dataclass import replace


def _infer_inplace(call: Call, ctx: Context) -> StructInfo:
    result = packed_result(replace(call, attrs=EMPTY_ATTRS), ctx)
    outputs = fields_of(result)
    inputs = [ctx.sinfo_of(arg) for arg in call.args[1:]]
    indices = operand_of_output(call, len(inputs), len(outputs), names=("argument", "result"))
    for index, output in zip(indices, outputs, strict=True):
        if index != -1 and not is_base_of(output, inputs[index]):
            raise StructInfoTypeError(
                f"argument {index + 1}, {inputs[index]}, cannot be the result {output}",
                about=call.args[index + 1],
            )
    return result


@register(
    "relax.call_inplace_packed", pure=True, infer=_infer_inplace, calls=CallKind.INPLACE_PACKED
)
def call_inplace_packed(
    func: Expr | str,
    *args: Operand,
    inplace_indices: int | Sequence[int],
    sinfo_args: StructInfos = (),
) -> Call:
    """The result of a packed function that writes into arguments.

    Declared pure: whoever writes it promises that nothing else sees those arguments afterwards.

    Shapes:
        inplace_indices  for each result the argument that it is, -1 for a new one
        result           `sinfo_args`, a tuple of several
    Errors:
        StructInfoError: `func` is not a packed function, or a result does not fit its argument.
    """
    return Call(
        call_inplace_packed.op,
        (packed_callee(func), *(convert_to_expr(a) for a in args)),
        Attrs({"inplace_indices": index_list(inplace_indices)}),
        sinfo_list(sinfo_args),
    )


def _infer_with_context(call: Call, ctx: Context) -> StructInfo:
    packed_derivation(call, ctx)
    packed = ctx.sinfo_of(call.args[1]) if len(call.args) == 2 else None
    if not isinstance(packed, TupleStructInfo):
        raise StructInfoTypeError("takes what to call and a tuple of arguments", about=call)
    return declared_sinfo(call.sinfo_args, TupleStructInfo(()))


@register(
    "relax.call_builtin_with_ctx", infer=_infer_with_context, calls=CallKind.PACKED_WITH_CONTEXT
)
def call_builtin_with_ctx(
    func: Expr | str, args: Operands, *, sinfo_args: StructInfos = ()
) -> Call:
    """The result of a packed function whose first argument is the context of the run; impure.

    Shapes:
        args    the arguments after the context, in a tuple
        result  `sinfo_args`, a tuple of several, unit for none
    Errors:
        StructInfoError: `func` is not a packed function.
    """
    return Call(
        call_builtin_with_ctx.op,
        (packed_callee(func), operand_tuple(args)),
        EMPTY_ATTRS,
        sinfo_list(sinfo_args),
    )


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
    """As `invoke_closure`, of a closure that the call declares to be pure."""
    return _invoke(invoke_pure_closure.op, closure, args, sinfo_args)


def python_callee(call: rx.Call) -> tuple[str, tuple[rx.Expr, ...]]:
    """The name of the function that a `call_py_func` calls, and its arguments.

    Errors:
        StructInfoError: the call has another form.
    """
    match call.args:
        case (rx.StringImm(value=name), rx.Tuple(fields=fields)):
            return name, fields
        case (
            rx.StringImm(value=name),
            rx.Expr(struct_info=rx.TupleStructInfo(fields=sinfos)) as packed,
        ):
            return name, tuple(rx.TupleGetItem(packed, i) for i in range(len(sinfos)))
        case _:
            raise StructInfoTypeError(
                "takes the name of a function and a tuple of arguments", about=call
            )


def _infer(call: rx.Call, ctx: Context) -> rx.StructInfo:
    for arg in call.args:
        ctx.sinfo_of(arg)
    python_callee(call)
    if len(call.sinfo_args) != 1:
        raise StructInfoTypeError(
            f"takes the struct info of one result, found {len(call.sinfo_args)}",
            hint="declare the result: out_sinfo=R.Tensor(...)",
            about=call,
        )
    return call.sinfo_args[0]


def _written(call: rx.Call) -> CallArguments:
    name, fields = python_callee(call)
    [sinfo] = call.sinfo_args
    shown = list(sinfo.fields) if isinstance(sinfo, rx.TupleStructInfo) else sinfo
    return [name, rx.Tuple(fields)], {"out_sinfo": shown}


@register("relax.call_py_func", pure=True, infer=_infer, unmake=_written, calls=CallKind.PYTHON)
def call_py_func(py_func_name: str, *args: Operand, out_sinfo: StructInfos) -> rx.Call:
    """The result of a Python function for `args`: one of the module, else a registered one.

    Declared pure: whoever writes it promises that the call has no visible effect.

    Shapes:
        args    any, one by one or in one tuple
        result  `out_sinfo`, which is checked where it matters; a tuple for a list
    Errors:
        MisuseError (also TypeError): the name is not a string.
    """
    name = py_func_name.value if isinstance(py_func_name, rx.StringImm) else py_func_name
    check_type(name, str, "a Python function is called by its name")
    if len(args) == 1 and isinstance(args[0], (tuple, list, rx.Tuple)):
        args = tuple(args[0].fields if isinstance(args[0], rx.Tuple) else args[0])
    return rx.Call(
        call_py_func.op,
        (rx.StringImm(name), rx.Tuple(tuple(rx.convert_to_expr(a) for a in args))),
        EMPTY_ATTRS,
        (output_sinfo(out_sinfo),),
    )
