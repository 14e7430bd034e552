"""Calls of Python functions by name."""

from __future__ import annotations

from relaxpy.errors import StructInfoTypeError, check_type
from relaxpy.ir.core.node import EMPTY_ATTRS
from relaxpy.ir.op_record import CallArguments, CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition.registry import Operand, register
from relaxpy.ir.relax.op.outputs import StructInfos, output_sinfo
from relaxpy.ir.relax.relations.context import Context


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
