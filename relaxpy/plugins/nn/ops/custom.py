"""Operators that call what users define: tensor expressions, kernels, packed functions, prints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from relaxpy.errors import BuilderStateError, unexpected
from relaxpy.ir.relax.nodes import Expr, ObjectStructInfo, ShapeExpr, StringImm, StructInfo
from relaxpy.ir.relax.op import call_tir, call_tir_inplace
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.nn.core import Tensor, current_builder, items_of, wrap_nested
from relaxpy.plugins.nn.extern import as_argument, call_external, output_sinfo
from relaxpy.plugins.nn.session import required_session
from relaxpy.support.entry import user_facing
from relaxpy.support.frames import is_user_frame

Out: TypeAlias = Tensor | Sequence[Tensor]
KernelArgs: TypeAlias = Tensor | Sequence[Tensor | ShapeExpr | int | tir.PrimExpr]


@user_facing
def tensor_expr_op(
    tensor_expr_func: Callable[..., Any],
    name_hint: str,
    args: Sequence[object],
    *,
    attrs: Mapping[str, object] | None = None,
) -> Any:
    """The tensors that a function of tensor expressions computes, by a kernel of its own.

    `attrs` are attributes of the kernel. Errors: as for `BlockBuilder.emit_te`.
    """
    operands = [
        arg._expr if isinstance(arg, Tensor) else arg for arg in items_of(args, "arguments")
    ]
    result = current_builder().emit_te(
        tensor_expr_func, *operands, primfunc_name_hint=name_hint, primfunc_attrs=attrs
    )
    return wrap_nested(result, name_hint)


@user_facing
def tensor_ir_op(func: PrimFunc, name_hint: str, args: KernelArgs, out: Out) -> Any:
    """The tensors that a kernel computes. They are described by `out`, as its parameters are.

    Scalars and the members of shapes among `args` become the scalar arguments of the kernel, in the
    integers that it takes.

    Errors:
        MisuseError (also TypeError): an argument is neither a tensor nor a scalar nor a shape.
        StructInfoError: the arguments do not fit the kernel.
    """
    tensors, scalars = _kernel_arguments(func, args)
    builder = current_builder()
    kernel = builder.add_func(func, name_hint)
    return wrap_nested(builder.emit(call_tir(kernel, tensors, _outputs(out), scalars)), name_hint)


@user_facing
def tensor_ir_inplace_op(
    func: PrimFunc, name_hint: str, args: KernelArgs, inplace_indices: int | Sequence[int], out: Out
) -> Any:
    """As `tensor_ir_op`, for a kernel that writes results into arguments.

    `inplace_indices` is the argument for each result, -1 for a new tensor.
    """
    tensors, scalars = _kernel_arguments(func, args)
    builder = current_builder()
    kernel = builder.add_func(func, name_hint)
    call = call_tir_inplace(kernel, tensors, inplace_indices, _outputs(out), scalars)
    return wrap_nested(builder.emit(call), name_hint)


def _kernel_arguments(
    func: PrimFunc, args: object
) -> tuple[list[Expr], list[int | tir.PrimExpr] | None]:
    """The tensors and the scalars among the arguments of a kernel.

    Sizes, which are in int64, are cast to the integers that the kernel takes.
    """
    tensors: list[Expr] = []
    scalars: list[int | tir.PrimExpr] = []
    for arg in args if isinstance(args, (tuple, list)) else [args]:
        match arg:
            case Tensor():
                tensors.append(arg._expr)
            case ShapeExpr():
                scalars.extend(arg.values)
            case int() | tir.PrimExpr():
                scalars.append(arg)
            case _:
                raise unexpected(arg, "a kernel takes tensors, shapes and scalars")
    taken = [param.dtype for param in func.params if param not in func.buffer_map]
    if len(taken) == len(scalars):
        scalars = [
            tir.Cast(dtype, arg)
            if isinstance(arg, tir.PrimExpr)
            and arg.dtype.is_int
            and dtype.is_int
            and arg.dtype != dtype
            else arg
            for arg, dtype in zip(scalars, taken, strict=True)
        ]
    return tensors, scalars or None


def _outputs(out: Out) -> StructInfo | list[StructInfo]:
    """The struct info of the results; a single tensor is not in a tuple."""
    outputs: list[StructInfo] = [t.struct_info for t in ([out] if isinstance(out, Tensor) else out)]
    return outputs[0] if len(outputs) == 1 else outputs


@user_facing
def extern(name: str, args: Sequence[object], out: Out) -> Any:
    """The results of the packed function `name`, which it writes to its last arguments.

    Placeholders `out` describe them. The method that is being exported becomes impure.

    Errors:
        MisuseError (also TypeError): an argument is neither a tensor nor a scalar nor a string.
    """
    return call_external(name, args, output_sinfo(out))


@user_facing
def debug_func(
    name: str, *args: Tensor | tir.PrimExpr | float | str, _line_info: str | None = None
) -> None:
    """Call the packed function `name`, with the file and line of this call and `args`, when run.

    Errors:
        BuilderStateError (also RuntimeError): the model is not exported with `debug=True`.
    """
    io = required_session("a call of debug_func").io_effect
    if io is None:
        raise BuilderStateError(
            "debug_func and print_ need the model to be exported for debugging",
            hint="export_tvm(spec, debug=True)",
        )
    assert io.effect is not None
    call = R.call_pure_packed(
        "vm.builtin.invoke_debug_func",
        io.effect,
        StringImm(name),
        StringImm(_line_info or _position()),
        *(as_argument(arg, "float32") for arg in args),
        sinfo_args=ObjectStructInfo(),
    )
    io.effect = current_builder().emit(call, io.effect.name_hint)


@user_facing
def print_(tensor: Tensor) -> None:
    """Print a tensor when the model runs, after the file and line of this call.

    Errors:
        BuilderStateError (also RuntimeError): the model is not exported with `debug=True`.
    """
    debug_func("vm.builtin.debug_print", tensor)


def _position() -> str:
    """The file and line of the user's code that is running."""
    frame = sys._getframe(1)
    while not is_user_frame(frame) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
