"""Operators that call what users define, and those that choose elements by their probabilities."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from relaxpy.errors import BuilderStateError, MisuseError, unexpected
from relaxpy.ir.ops import call_tir, call_tir_inplace
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, ObjectStructInfo, ShapeExpr, StringImm, StructInfo
from relaxpy.ir.te import tensor as te
from relaxpy.ir.tir import expr as tir, ops, reduce
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.nn.core import (
    Tensor,
    current_builder,
    emit_tensor,
    expr_of,
    items_of,
    wrap_nested,
)
from relaxpy.plugins.nn.ops.layers import cumsum, sum
from relaxpy.plugins.nn.session import as_argument, call_external, output_sinfo, required_session
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


@user_facing
def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """For each uniform sample the element that it chooses from a row of probabilities.

    Shapes:
        prob            (rows, elements); rows sum to 1
        uniform_sample  (n, 1); between 0 and 1
        sample_indices  (n, 1), the row for each sample; without it, there are n rows
        result          (n, 1)
    """
    data, samples = expr_of(prob), expr_of(uniform_sample)
    operands = (data, samples, expr_of(_rows(prob, uniform_sample, sample_indices)))
    return emit_tensor(R.multinomial_from_uniform(*operands, dtype), name)


@user_facing
def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """For each uniform sample the element that it chooses among the most probable ones.

    These are the first in a row that together reach `top_p`, and at most `top_k`.

    Shapes:
        sorted_prob     (rows, elements), in descending order; rows sum to 1
        sorted_index    (rows, elements), what is chosen
        top_p, top_k    (rows, 1)
        uniform_sample  (n, 1); between 0 and 1
        sample_indices  (n, 1), the row for each sample; without it, there are n rows
        result          (n, 1)
    """
    sums = cumsum(sorted_prob, axis=1)
    expr_of(uniform_sample)
    rows = _rows(sorted_prob, uniform_sample, sample_indices)
    limits = [expr_of(top_p), expr_of(top_k)]
    total = tensor_expr_op(_last_sum, "get_renorm_prob", [sums, sums, *limits])
    operands = [sums, sorted_index, total, uniform_sample, rows]
    return tensor_expr_op(_choose, "get_index_from_sorted", operands)  # type: ignore[no-any-return]


@user_facing
def renormalize_top_p_top_k_prob(
    prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor
) -> Tensor:
    """Probabilities that are 0 for all but the most probable elements, and sum to 1.

    These are the first in a sorted row that together reach `top_p`, and at most `top_k`.

    Shapes:
        prob          (rows, elements)
        sorted_prob   (rows, elements), the same in descending order
        top_p, top_k  (rows, 1)
    """
    sums = cumsum(sorted_prob, axis=1)
    limits = [expr_of(top_p), expr_of(top_k)]
    cutoff = tensor_expr_op(_last_sum, "get_renorm_cutoff", [sorted_prob, sums, *limits])
    kept = tensor_expr_op(_at_least, "filter_with_top_p_top_k", [prob, cutoff])
    return kept / sum(kept, axis=1, keepdims=True)  # type: ignore[no-any-return]


def _rows(prob: Tensor, uniform_sample: Tensor, sample_indices: Tensor | None) -> Tensor:
    """The row of each sample: as many rows as samples, unless they are passed."""
    if sample_indices is not None:
        expr_of(sample_indices)
        if sample_indices.shape != uniform_sample.shape:
            raise MisuseError(
                f"sample_indices have shape {sample_indices.shape}, and uniform_sample "
                f"{uniform_sample.shape}: there is an index for each sample",
                about=sample_indices,
            )
        return sample_indices
    count = uniform_sample.shape[0]
    if not isinstance(count, int) or prob.shape[0] != count:
        raise MisuseError(
            f"there are {prob.shape[0]} rows of probabilities and {count} samples",
            hint="pass sample_indices, the row for each sample",
            about=uniform_sample,
        )
    return Tensor.from_const(np.arange(count, dtype="int64").reshape(count, 1))


def _last_sum(values: Any, sums: Any, top_p: Any, top_k: Any) -> Any:
    """In each row the value at the first element that reaches `top_p` or is the last of `top_k`."""
    rows, elements = sums.shape
    j = te.reduce_axis((0, elements), "j")

    def precedes(i: Any) -> Any:
        before = reduce.all(sums[i, j] < top_p[i, 0], j + 1 < top_k[i, 0])
        return tir.Select(before, ops.const(1, "int64"), ops.const(0, "int64"))

    count = te.compute((rows,), lambda i: reduce.sum(precedes(i), axis=j), name="count")
    return te.compute(
        (rows, 1), lambda i, _: values[i, ops.minimum(count[i], elements - 1)], name="last"
    )


def _choose(sums: Any, index: Any, total: Any, sample: Any, rows: Any) -> Any:
    """For each sample the first element at which the sum of its row exceeds its part of all."""
    elements = sums.shape[1]
    j = te.reduce_axis((0, elements), "j")

    def precedes(i: Any) -> Any:
        row = rows[i, 0]
        before = sample[i, 0] >= sums[row, j] / total[row, 0]
        return tir.Select(before, ops.const(1, "int64"), ops.const(0, "int64"))

    samples = sample.shape[0]
    count = te.compute((samples,), lambda i: reduce.sum(precedes(i), axis=j), name="count")
    return te.compute(
        (samples, 1),
        lambda i, _: index[rows[i, 0], ops.minimum(count[i], elements - 1)],
        name="chosen",
    )


def _at_least(prob: Any, cutoff: Any) -> Any:
    """The probabilities that are not below the limit of their row, and 0 for the others."""
    zero = ops.const(0, prob.dtype)
    return te.compute(
        prob.shape,
        lambda i, j: tir.Select(prob[i, j] >= cutoff[i, 0], prob[i, j], zero),
        name="filter_with_top_p_top_k",
    )
