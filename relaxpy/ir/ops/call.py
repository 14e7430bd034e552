"""Operators that call PrimFuncs and packed functions, and the struct info of their outputs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy.errors import (
    MissingArgumentError,
    MisuseError,
    StructInfoError,
    StructInfoTypeError,
    check_type,
    counted,
    unexpected,
)
from relaxpy.ir.core.memo import NodeTable
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, as_attrs
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.ops.definition.gradients import gradient_of_kernel
from relaxpy.ir.ops.definition.registry import Operand, register, renamed
from relaxpy.ir.relax import nodes as rx, relations
from relaxpy.ir.relax.known import fields_of
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.nodes.expr import evaluated
from relaxpy.ir.relax.nodes.struct_info import EnvFunc
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.support.entry import user_facing

StructInfos: TypeAlias = rx.StructInfo | Sequence[rx.StructInfo]
OutputShape: TypeAlias = rx.Expr | Sequence[PrimExpr | int]


def output_sinfo(out_sinfo: StructInfos) -> rx.StructInfo:
    """Convert declared struct info; a list is that of a tuple, unless it has one member."""
    if isinstance(out_sinfo, (list, tuple)):
        members = tuple(rx.as_struct_info(s) for s in out_sinfo)
        return members[0] if len(members) == 1 else rx.TupleStructInfo(members)
    return rx.as_struct_info(out_sinfo)


def sinfo_list(sinfo_args: StructInfos) -> tuple[rx.StructInfo, ...]:
    """Convert one struct info or a list of them to a tuple."""
    if isinstance(sinfo_args, (list, tuple)):
        return tuple(rx.as_struct_info(s) for s in sinfo_args)
    return (rx.as_struct_info(sinfo_args),)


def flat_operands(
    arguments: Sequence[object], shape: object, sinfo_args: StructInfos | None
) -> tuple[Any, Any] | None:
    """The operands and the shape of `f, args..., shape, sinfo_args=[A]` (OP-1, OP-9).

    `arguments` are the arguments after `f`. None if the call has another form: with the operands in
    a tuple, and with `out_sinfo` or `shape` by name.
    """
    values = [value for value in arguments if value is not None]
    if sinfo_args is None or shape is not None or not values:
        return None
    *operands, last = values
    is_value = isinstance(last, rx.Expr) or (
        isinstance(last, (list, tuple))
        and all(isinstance(m, (rx.Expr, PrimExpr, int, list, tuple)) for m in last)
    )
    if not is_value or (not operands and not _is_shape(last)):
        return None
    return (operands[0] if len(operands) == 1 else operands), last


def _is_shape(value: object) -> bool:
    """True if a value is certainly a shape, or a tuple of shapes."""
    if isinstance(value, (list, tuple, rx.Tuple)):
        members = value.fields if isinstance(value, rx.Tuple) else value
        return bool(members) and all(map(_is_shape, members))
    return isinstance(value, rx.Expr) and isinstance(value.struct_info, rx.ShapeStructInfo)


def declared_outputs(
    out_sinfo: StructInfos | None,
    shape: OutputShape | Sequence[OutputShape] | None,
    sinfo_args: StructInfos | None,
    rule: str,
) -> rx.StructInfo:
    """The struct info of the outputs: `out_sinfo` or A of `sinfo_args=[A]`, with `shape` in it.

    Errors:
        MisuseError: neither or both are passed (OP-3, OP-11), or `shape` is not a shape (OP-2).
        StructInfoError: A is not of outputs with such shapes (OP-2, OP-3, RES-50).
    """
    if (out_sinfo is None) is (sinfo_args is None):
        hint = 'declare the outputs once: out_sinfo=R.Tensor((4, 4), "float32")'
        if out_sinfo is None:
            raise MissingArgumentError("argument 'out_sinfo' is missing", rule=rule, hint=hint)
        raise MisuseError(
            "pass either out_sinfo or sinfo_args, found both",
            rule=rule,
            hint=hint,
            about=sinfo_args,
        )
    if out_sinfo is not None:
        sinfo = output_sinfo(out_sinfo)
    else:
        declared = sinfo_list(() if sinfo_args is None else sinfo_args)
        if len(declared) != 1:
            raise StructInfoError(
                f"takes the struct info of one output, found {len(declared)}",
                rule=rule,
                hint="several outputs are one R.Tuple",
                about=sinfo_args,
            )
        [sinfo] = declared
    return sinfo if shape is None else _sized(sinfo, shape)


def _sized(sinfo: rx.StructInfo, shape: object) -> rx.StructInfo:
    """OP-4, RES-50: `sinfo` with the sizes of `shape`."""
    if isinstance(sinfo, rx.TupleStructInfo):
        shapes = shape.fields if isinstance(shape, rx.Tuple) else shape
        if not isinstance(shapes, (list, tuple)) or len(shapes) != len(sinfo.fields):
            actual = counted(len(shapes), "shape") if isinstance(shapes, (list, tuple)) else shape
            raise StructInfoTypeError(
                f"shape holds one for each of {len(sinfo.fields)} outputs, found {actual}",
                rule="OP-3",
                about=shape,
            )
        fields = zip(sinfo.fields, shapes, strict=True)
        return rx.TupleStructInfo(
            tuple(_sized(field, field_shape) for field, field_shape in fields)
        )
    if not isinstance(sinfo, rx.TensorStructInfo):
        raise StructInfoTypeError(f"outputs are tensors, found {sinfo}", rule="OP-3", about=sinfo)
    sizes = _read_shape(shape)
    sized = rx.TensorStructInfo(sizes, sinfo.dtype, sinfo.vdevice)
    reason = relations.explain_incompatibility(sized, sinfo)
    if reason is not None:
        raise StructInfoError(
            f"shape {sizes} does not fit the output {sinfo}: {reason}",
            rule="OP-8",
            hint="declare the sizes once",
            about=shape,
        )
    return sized


def _read_shape(shape: object) -> rx.Expr:
    """OP-2: sizes, or a variable that holds a shape."""
    match shape:
        case list() | tuple():
            return rx.ShapeExpr(tuple(shape))
        case rx.ShapeExpr() | rx.Var(struct_info=rx.ShapeStructInfo()):
            return shape
        case rx.Expr():
            sinfo = shape.struct_info
            raise StructInfoTypeError(
                f"shape is a shape, found {shape if sinfo is None else sinfo}",
                rule="OP-2",
                hint="bind the shape to a variable first and write that"
                if isinstance(sinfo, rx.ShapeStructInfo)
                else None,
                about=shape,
            )
        case _:
            raise unexpected(shape, "a shape is a list of sizes or a shape value", rule="OP-2")


Operands: TypeAlias = Operand | Sequence[Operand]


def operand_tuple(args: Operands) -> rx.Tuple:
    """The operands as a tuple expression: a variable that holds a tuple becomes its fields."""
    if isinstance(args, (list, tuple)):
        return rx.Tuple(tuple(rx.convert_to_expr(a) for a in args))
    expr = rx.convert_to_expr(args)
    if isinstance(expr, rx.Tuple):
        return expr
    sinfo = expr.struct_info
    if isinstance(sinfo, rx.TupleStructInfo):
        return rx.Tuple(tuple(rx.TupleGetItem(expr, i) for i in range(len(sinfo.fields))))
    return rx.Tuple((expr,))


def index_list(indices: int | Sequence[int]) -> tuple[int, ...]:
    """Convert one index or a list of indices to a tuple.

    Errors:
        MisuseError (also TypeError): a value is not an integer.
    """
    index_tuple = indices if isinstance(indices, (list, tuple)) else (indices,)
    if not all(isinstance(i, (int, np.integer)) and not isinstance(i, bool) for i in index_tuple):
        raise unexpected(indices, "inplace_indices is int or a list of them")
    return tuple(map(int, index_tuple))


def packed_callee(func: rx.Expr | str) -> rx.Expr:
    """A packed function by its name; an expression is itself.

    Errors:
        MisuseError (also TypeError): it is neither.
    """
    if isinstance(func, str):
        return rx.ExternFunc(func)
    if isinstance(func, rx.Expr):
        return func
    raise unexpected(func, "expected a packed function or its name")


def operand_sinfo(call: rx.Call, ctx: Context) -> tuple[rx.Expr, tuple[rx.StructInfo, ...]]:
    """The callee, and the struct info of the operands in the tuple after it."""
    if len(call.args) < 2:
        raise StructInfoTypeError(
            "takes what to call and a tuple of operands", rule="OP-5", about=call
        )
    callee, packed = call.args[0], call.args[1]
    sinfo = ctx.sinfo_of(packed)
    if not isinstance(sinfo, rx.TupleStructInfo):
        raise StructInfoTypeError(f"the operands are a tuple, found {sinfo}", about=packed)
    return callee, sinfo.fields


def _outputs(call: rx.Call, rule: str) -> tuple[rx.TensorStructInfo, ...]:
    """OP-2, OP-3, OP-11: the struct info of the outputs, with the datatype and shape of each."""
    if len(call.sinfo_args) != 1:
        raise StructInfoError(
            f"takes the struct info of one output, found {len(call.sinfo_args)}",
            rule=rule,
            hint="several outputs are a list: out_sinfo=[R.Tensor(...), R.Tensor(...)]",
            about=call,
        )
    [sinfo] = call.sinfo_args
    fields = fields_of(sinfo)
    outputs = []
    for field in map(_undistributed, fields):
        if not isinstance(field, rx.TensorStructInfo):
            raise StructInfoTypeError(
                f"outputs are tensors, found {field}", rule="OP-3", about=field
            )
        if field.dtype.is_void:
            raise StructInfoTypeError(
                f"the output {field} has no datatype", rule="OP-3", about=field
            )
        if field.shape is None:
            raise StructInfoTypeError(
                f"the output {field} has no shape, so it cannot be allocated",
                rule="OP-2",
                about=field,
            )
        outputs.append(field)
    return tuple(outputs)


def _undistributed(sinfo: rx.StructInfo) -> rx.StructInfo:
    """The struct info of a distributed tensor as a whole; any other struct info itself."""
    return sinfo.tensor_sinfo if isinstance(sinfo, DTensorStructInfo) else sinfo


def _scalars(call: rx.Call, ctx: Context) -> tuple[rx.StructInfo, ...]:
    """The struct info of the scalars that are the members of the shape after the operands."""
    if len(call.args) < 3:
        return ()
    sinfo = ctx.sinfo_of(call.args[2])
    if len(call.args) > 3 or not isinstance(sinfo, rx.ShapeStructInfo) or sinfo.values is None:
        raise StructInfoTypeError(
            f"tir_vars is a shape with known members, found {sinfo}", about=call.args[2]
        )
    return tuple(rx.PrimStructInfo(v.dtype, v) for v in sinfo.values)


def _check_callee(callee: rx.Expr, ctx: Context) -> rx.GlobalVar:
    """Check OP-1: the callee is a global function of the module, and not a Relax function."""
    if not isinstance(callee, rx.GlobalVar):
        raise StructInfoTypeError(
            "only a PrimFunc of the module can be called so",
            rule="OP-1",
            hint="a packed function is called with R.call_dps_packed"
            if isinstance(callee, rx.ExternFunc)
            else "bb.add_func(kernel, name) enters one and returns its GlobalVar",
            about=callee,
        )
    declared = ctx.signatures.get(callee.name_hint)
    is_pure = isinstance(declared, rx.FuncStructInfo) and declared.purity  # DER-49
    if is_pure or isinstance(ctx.function_of(callee), rx.Function):
        raise StructInfoTypeError(
            f"{callee.name_hint} is a Relax function, not a PrimFunc",
            rule="OP-1",
            hint=f"call it directly: {callee.name_hint}(...)",
            about=callee,
        )
    return callee


def _check_kernel(
    callee: rx.Expr,
    inputs: Sequence[rx.StructInfo],
    outputs: Sequence[rx.TensorStructInfo],
    scalars: Sequence[rx.StructInfo],
    call: rx.Call,
    ctx: Context,
) -> None:
    """Check OP-1 and OP-8: the callee is a PrimFunc of the module, and no type provably differs."""
    callee = _check_callee(callee, ctx)
    if ctx.as_written:
        return
    if not ctx.knows(callee):
        if ctx.closed:
            ctx.global_sinfo(callee)
        return
    arguments = (*inputs, *outputs, *scalars)
    signature = ctx.signatures[callee.name_hint]
    if _fit_without_proof(arguments, signature, ctx.shape_vars):
        return
    fitting, sizes = _FITTING.get(signature), tuple(map(_known, arguments))
    if fitting is not None and sizes in fitting:
        return
    sinfo = ctx.callee_sinfo(callee)
    if not isinstance(sinfo, rx.FuncStructInfo) or sinfo.params is None:
        raise StructInfoTypeError(
            f"{callee.name_hint} is {sinfo}, not a PrimFunc", rule="OP-1", about=callee
        )
    if len(arguments) != len(sinfo.params):
        counts = [counted(len(inputs), "operand"), counted(len(outputs), "output")]
        counts += [counted(len(scalars), "scalar")] if scalars else []
        raise StructInfoTypeError(
            f"{callee.name_hint} takes {counted(len(sinfo.params), 'argument')}, "
            f"found {', '.join(counts[:-1])} and {counts[-1]}",
            rule="OP-5",
            about=call.args[1],
        )
    images = relations.map_params(sinfo.params, arguments, ctx.shape_vars)
    for i, (actual, param) in enumerate(zip(arguments, sinfo.params, strict=True)):
        expected = relations.substitute_info(param, images)
        if not relations.provably_disjoint(actual, expected, ctx.shape_vars):
            continue
        is_input = i < len(inputs)
        noun = f"operand {i + 1}" if is_input else f"output {i - len(inputs) + 1}"
        if i >= len(inputs) + len(outputs):
            noun = f"scalar {i - len(inputs) - len(outputs) + 1}"
        reason = relations.explain_disjointness(actual, expected, ctx.shape_vars)
        packed, [out] = call.args[1], call.sinfo_args
        raise StructInfoTypeError(
            f"{noun} of {callee.name_hint} is {actual}, the kernel takes {expected}: {reason}",
            rule="OP-8",
            about=packed.fields[i] if is_input and isinstance(packed, rx.Tuple) else out,
        )
    if None not in sizes:
        if fitting is None or len(fitting) >= _MOST_FITTING:
            fitting = _FITTING[signature] = set()
        fitting.add(sizes)


_FITTING: Final[NodeTable[set[tuple[object, ...]]]] = NodeTable()
"""Operands that provably fit kernel signatures, cached since each pass would repeat the proof."""
_MOST_FITTING: Final = 64


def _known(sinfo: rx.StructInfo) -> tuple[object, ...] | None:
    """All that a tensor or a scalar has to do with a signature, if it is known."""
    sizes = _known_sizes(sinfo)
    return None if sizes is None else (type(sinfo), sinfo.dtype, sizes)  # type: ignore[attr-defined]


def _fit_without_proof(
    arguments: Sequence[rx.StructInfo], signature: rx.StructInfo, bound: Container[Var]
) -> bool:
    """True if operands agree with parameters without a proof, which is the common case.

    Parameters are patterns: each variable of theirs matches one size of the operands. Expressions
    of variables need a proof.
    """
    params = signature.params if isinstance(signature, rx.FuncStructInfo) else None
    if params is None or len(arguments) != len(params):
        return False
    images: dict[PrimExpr, PrimExpr] = {}
    for actual, param in zip(arguments, params, strict=True):
        sizes, patterns = _known_sizes(actual), _known_sizes(param)
        if sizes is None or patterns is None or len(sizes) != len(patterns):
            return False
        if type(actual) is not type(param) or actual.dtype != param.dtype:  # type: ignore[attr-defined]
            return False
        for a, b in zip(sizes, patterns, strict=True):
            is_bound = isinstance(b, Var) and b not in bound and a.dtype == b.dtype
            if b.height or (images.setdefault(b, a) if is_bound else b) is not a:
                return False
    return True


def _known_sizes(sinfo: rx.StructInfo) -> tuple[PrimExpr, ...] | None:
    """The shape of a tensor, or the value of a scalar."""
    if isinstance(sinfo, rx.TensorStructInfo):
        return sinfo.shape.values if isinstance(sinfo.shape, rx.ShapeExpr) else None
    if isinstance(sinfo, rx.PrimStructInfo) and sinfo.value is not None:
        return (sinfo.value,)
    return None


def _infer_call_tir(call: rx.Call, ctx: Context) -> rx.StructInfo:
    callee, inputs = operand_sinfo(call, ctx)
    outputs = _outputs(call, "OP-3")
    _check_kernel(
        callee, tuple(map(_undistributed, inputs)), outputs, _scalars(call, ctx), call, ctx
    )
    return call.sinfo_args[0]


def kernel_args(gvar: rx.Expr, args: Operands, tir_vars: object) -> tuple[rx.Expr, ...]:
    """The operands of a call of a PrimFunc: itself, the tuple of inputs, and scalars as a shape."""
    if not isinstance(gvar, rx.Expr):
        named = isinstance(gvar, str) and gvar.isidentifier()
        raise unexpected(
            gvar,
            "expected a PrimFunc of the module",
            rule="OP-1",
            hint=f"name it as a member of the module's class: Module.{gvar}" if named else None,
        )
    if tir_vars is None:
        return gvar, operand_tuple(args)
    if isinstance(tir_vars, (list, tuple)):
        tir_vars = rx.ShapeExpr(tuple(tir_vars))
    if not isinstance(tir_vars, rx.Expr):
        raise unexpected(tir_vars, "tir_vars is a shape")
    return gvar, operand_tuple(args), tir_vars


@register("relax.call_tir", pure=True, calls=CallKind.KERNEL, infer=_infer_call_tir)
def call_tir(
    gvar: rx.Expr,
    args: Operands,
    out_sinfo: StructInfos | None = None,
    tir_vars: rx.Expr | Sequence[PrimExpr | int] | None = None,
    *others: Operand,
    shape: OutputShape | Sequence[OutputShape] | None = None,
    sinfo_args: StructInfos | None = None,
) -> rx.Call:
    """The new tensors that the PrimFunc `gvar` writes, as `out_sinfo` describes them.

    Shapes:
        args       what the PrimFunc takes before its outputs; `tir_vars` are its scalars at the end
        out_sinfo  the tensors to allocate, with datatype and shape; a list for several
        result     the tensor, or the tuple of them
    Errors:
        StructInfoError: `gvar` is not a PrimFunc of the module, or struct info provably
            disagrees with it.
    Rule:
        OP-1, OP-2, OP-3, OP-4, OP-5, OP-6, OP-7, OP-8. `f, args..., shape, sinfo_args=[A]` is read,
        too: shape and A become the one struct info of the outputs (RES-50).
    """
    loose = flat_operands((args, out_sinfo, tir_vars, *others), shape, sinfo_args)
    if loose is not None:
        (args, shape), out_sinfo, tir_vars = loose, None, None
    elif others:
        raise MisuseError("takes at most 4 positional arguments", about=others[0])
    return rx.Call(
        call_tir.op,
        kernel_args(gvar, args, tir_vars),
        sinfo_args=(declared_outputs(out_sinfo, shape, sinfo_args, "OP-3"),),
    )


def _infer_with_grad(call: rx.Call, ctx: Context) -> rx.StructInfo:
    name, kwargs = call.attrs.get("te_grad_name"), call.attrs.get("te_grad_kwargs", EMPTY_ATTRS)
    if not isinstance(name, str) or not name:
        raise StructInfoTypeError(f"te_grad_name names a gradient, found {name!r:.60}", about=name)
    if not isinstance(kwargs, Mapping):
        raise StructInfoTypeError(
            f"te_grad_kwargs is a table of arguments by name, found {kwargs!r:.60}", about=kwargs
        )
    return _infer_call_tir(call, ctx)


def without_gradient(builder: object, call: rx.Call) -> rx.Call:
    """The `call_tir` of which `call` is one with a gradient."""
    return rx.Call(call_tir.op, call.args, sinfo_args=call.sinfo_args, span=call.span)


@register(
    "relax.call_tir_with_grad",
    pure=True,
    calls=CallKind.KERNEL,
    infer=_infer_with_grad,
    legalize=without_gradient,
    gradient=gradient_of_kernel,
)
def call_tir_with_grad(
    gvar: rx.Expr,
    args: Operands,
    out_sinfo: StructInfos,
    te_grad_name: str,
    te_grad_kwargs: Mapping[str, object] | None = None,
    tir_vars: rx.Expr | Sequence[PrimExpr | int] | None = None,
) -> rx.Call:
    """As `call_tir`, with a gradient: that of tensor expressions registered as `te_grad_name`.

    The gradient is called with `te_grad_kwargs` in addition; the values are those of `call_tir`.

    Errors:
        StructInfoError: as for `call_tir`, or name and arguments of the gradient are none.
    """
    attrs: dict[str, object] = {"te_grad_name": te_grad_name}
    has_no_kwargs = te_grad_kwargs is None or (
        isinstance(te_grad_kwargs, Mapping) and not te_grad_kwargs
    )
    if not has_no_kwargs:
        attrs["te_grad_kwargs"] = te_grad_kwargs
    return rx.Call(
        call_tir_with_grad.op,
        kernel_args(gvar, args, tir_vars),
        Attrs(attrs),
        (output_sinfo(out_sinfo),),
    )


def operand_of_output(
    call: rx.Call, operands: int, outputs: int, *, names: tuple[str, str]
) -> tuple[int, ...]:
    """For each output, the index of the operand that it overwrites, or -1 for a new tensor.

    Errors:
        StructInfoTypeError: `inplace_indices` does not name a different operand for each of them.
    """
    operand, output = names
    indices = call.attrs.get("inplace_indices")
    if not isinstance(indices, tuple) or len(indices) != outputs:
        raise StructInfoTypeError(
            f"inplace_indices has one entry for each of {counted(outputs, output)}, "
            f"found {indices!r}",
            about=call,
        )
    used = [i for i in indices if i != -1]
    if not used or len(set(used)) != len(used):
        raise StructInfoTypeError(
            f"inplace_indices names different {operand}s, at least one, found {indices!r}",
            about=call,
        )
    for index in used:
        if not isinstance(index, int) or not 0 <= index < operands:
            raise StructInfoTypeError(
                f"inplace index {index!r} names none of {counted(operands, operand)}", about=call
            )
    return indices


def _infer_inplace(call: rx.Call, ctx: Context) -> rx.StructInfo:
    callee, inputs = operand_sinfo(call, ctx)
    outputs = _outputs(call, "OP-3")
    indices = operand_of_output(call, len(inputs), len(outputs), names=("operand", "output"))
    for index, output in zip(indices, outputs, strict=True):
        if index != -1:
            _check_same_tensor(inputs[index], output, index, ctx)
    fresh = [output for index, output in zip(indices, outputs, strict=True) if index == -1]
    _check_kernel(callee, inputs, fresh, _scalars(call, ctx), call, ctx)
    return call.sinfo_args[0]


def _check_same_tensor(
    actual: rx.StructInfo, output: rx.TensorStructInfo, index: int, ctx: Context
) -> None:
    """Check that an operand that becomes an output provably has its datatype and shape."""
    same = isinstance(actual, rx.TensorStructInfo) and actual.dtype == output.dtype
    if isinstance(actual, rx.TensorStructInfo) and same:
        sizes, expected = actual.get_shape(), output.get_shape()
        same = actual.shape is output.shape or (
            sizes is not None
            and expected is not None
            and len(sizes) == len(expected)
            and all(ctx.prove_equal(a, b) for a, b in zip(sizes, expected, strict=True))
        )
    if not same and not ctx.as_written:
        raise StructInfoTypeError(
            f"operand {index + 1}, {actual}, cannot hold the output {output}", about=actual
        )


@register("relax.call_tir_inplace", pure=True, calls=CallKind.INPLACE_KERNEL, infer=_infer_inplace)
def call_tir_inplace(
    gvar: rx.Expr,
    args: Operands,
    inplace_indices: int | Sequence[int],
    out_sinfo: StructInfos,
    tir_vars: rx.Expr | Sequence[PrimExpr | int] | None = None,
) -> rx.Call:
    """As `call_tir`, but output i is the operand that `inplace_indices[i]` names, -1 being new.

    Declared pure: whoever writes it promises that nothing else sees those operands afterwards.

    Errors:
        StructInfoError: as for `call_tir`, or an operand differs from the output that it becomes.
    """
    return rx.Call(
        call_tir_inplace.op,
        kernel_args(gvar, args, tir_vars),
        Attrs({"inplace_indices": index_list(inplace_indices)}),
        (output_sinfo(out_sinfo),),
    )


def packed_result(call: rx.Call, ctx: Context) -> rx.StructInfo:
    """The struct info that the called packed function derives for the other operands (DER-38).

    Errors:
        StructInfoError: there is no packed function, or it refuses them.
    """
    derive, args = packed_derivation(call, ctx), call.args[1:]
    return derive.func(
        rx.Call(call.args[0], args, call.attrs, call.sinfo_args, span=call.span), ctx
    )


def packed_derivation(call: rx.Call, ctx: Context) -> EnvFunc:
    """The function by which the called packed function derives struct info.

    Errors:
        StructInfoTypeError: the first operand is not a packed function.
    """
    if not call.args:
        raise StructInfoTypeError("takes what to call", about=call)
    sinfo = ctx.sinfo_of(call.args[0])
    if (
        not isinstance(sinfo, rx.FuncStructInfo)
        or sinfo.params is not None
        or not sinfo.derive_func
    ):
        raise _not_packed(call.args[0], sinfo, ctx)
    return sinfo.derive_func


def _not_packed(callee: rx.Expr, sinfo: rx.StructInfo, ctx: Context) -> StructInfoTypeError:
    """The error for a callee that is not a packed function."""
    function = ctx.function_of(callee) if isinstance(callee, rx.GlobalVar) else None
    found, hint = str(sinfo), None
    if isinstance(callee, rx.GlobalVar) and isinstance(function, rx.Function):
        found = f"the Relax function {callee.name_hint}"
        hint = f"call it directly: {callee.name_hint}(...)"
    elif isinstance(callee, rx.GlobalVar) and function is not None:
        found = f"the PrimFunc {callee.name_hint}"
        hint = f"R.call_tir({callee.name_hint}, (...), out_sinfo=...) allocates its outputs"
    return StructInfoTypeError(
        f"expected a packed function, found {found}", rule="OP-9", hint=hint, about=callee
    )


def _infer_dps_packed(call: rx.Call, ctx: Context) -> rx.StructInfo:
    operand_sinfo(call, ctx)
    _outputs(call, "OP-11")
    packed_derivation(call, ctx)
    return call.sinfo_args[0]


@register("relax.call_dps_packed", infer=_infer_dps_packed, calls=CallKind.DPS_PACKED)
def call_dps_packed(
    func: rx.Expr | str,
    args: Operands,
    out_sinfo: StructInfos | None = None,
    *others: Operand,
    shape: OutputShape | Sequence[OutputShape] | None = None,
    sinfo_args: StructInfos | None = None,
) -> rx.Call:
    """The new tensors that the packed function `func` writes, as `out_sinfo` describes them.

    Shapes:
        as for `call_tir`
    Errors:
        StructInfoError: `out_sinfo` is missing, or leaves datatype or shape open.
    Rule:
        OP-9, OP-10, OP-11: impure, since the callee may change its inputs, unless the packed
        function is registered as pure. Written in the forms of `call_tir`.
    """
    loose = flat_operands((args, out_sinfo, *others), shape, sinfo_args)
    if loose is not None:
        (args, shape), out_sinfo = loose, None
    elif others:
        raise MisuseError("takes at most 3 positional arguments", about=others[0])
    return rx.Call(
        call_dps_packed.op,
        (packed_callee(func), operand_tuple(args)),
        sinfo_args=(declared_outputs(out_sinfo, shape, sinfo_args, "OP-11"),),
    )


@register("relax.call_pure_packed", pure=True, infer=packed_result, calls=CallKind.PACKED)
def call_pure_packed(
    func: rx.Expr | str, *args: Operand, sinfo_args: StructInfos = (), **attrs: object
) -> rx.Call:
    """The result of a packed function, which the call declares to be pure.

    Errors:
        StructInfoError: `func` is not a packed function.
    Rule:
        DER-38 with the derivation of `func`; PU-13.
    """
    return rx.Call(
        call_pure_packed.op,
        (packed_callee(func), *(rx.convert_to_expr(a) for a in args)),
        as_attrs(attrs),
        sinfo_list(sinfo_args),
    )


@user_facing
def call_packed(
    func: rx.Expr | str, *args: Operand, sinfo_args: StructInfos = (), **attrs: object
) -> rx.Call:
    """A plain call of a packed function, which counts as impure unless registered otherwise."""
    named = renamed({"sinfo_args": sinfo_args, **attrs})
    result = sinfo_list(named.pop("sinfo_args"))
    operands = tuple(rx.convert_to_expr(a) for a in args)
    call = rx.Call(packed_callee(func), operands, as_attrs(named), result)
    return evaluated(call)


@user_facing
def call_tir_packed(gvar: rx.Expr, args: Operands) -> rx.Call:
    """A plain call of the kernel `gvar` with everything that it takes: `gvar(*args)`.

    It is impure, since the kernel may write all tensors that it is given. The result is what the
    kernel returns, `R.Tuple()` if that is nothing.
    """
    check_type(gvar, rx.Expr, "a kernel is a global variable, as in cls.kernel")
    return evaluated(rx.Call(gvar, operand_tuple(args).fields))
