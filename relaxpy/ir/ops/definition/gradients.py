"""Helpers of gradient rules: elementwise derivatives, sums over broadcast axes, wider floats.

A rule maps the gradient of the result of a call to those of its operands (reverse mode). The
gradient of an operand without one is `relax.grad.no_grad` of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

from relaxpy.errors import MisuseError, UnknownNameError, close_names, counted, unexpected
from relaxpy.ir.core.dtype import FLOAT32, DataType, accumulator
from relaxpy.ir.core.node import EMPTY_ATTRS
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.registry import R, find
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape, tensor_sinfo
from relaxpy.ir.relax.nodes import Call, Expr, Tuple, TupleGetItem, TupleStructInfo
from relaxpy.ir.relax.relations import explain_disjointness, provably_disjoint
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.ir.op import Op
    from relaxpy.ir.op_record import Gradient, Legalization
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def is_narrow(sinfo: rx.StructInfo | None) -> bool:
    """True if a tensor or a scalar holds floats narrower than float32."""
    known = isinstance(sinfo, (rx.TensorStructInfo, rx.PrimStructInfo))
    return known and accumulator(sinfo.dtype) != sinfo.dtype  # type: ignore[union-attr]


def widened(call: rx.Call, bind: Callable[[rx.Expr], rx.Expr]) -> rx.Call:
    """The call on operands cast to float32; itself if none of them is narrower.

    `bind` returns variables for the casts.
    """
    args = tuple(_wide(arg, bind) for arg in call.args)
    if all(new is old for new, old in zip(args, call.args, strict=True)):
        return call
    operator = find(cast("Op", call.op))
    assert operator is not None
    wide = rx.Call(call.op, args, call.attrs, call.sinfo_args, span=call.span)
    return replace(wide, struct_info=operator.infer(wide, Context()))


def _wide(expr: rx.Expr, bind: Callable[[rx.Expr], rx.Expr]) -> rx.Expr:
    sinfo = expr.struct_info
    if not is_narrow(sinfo):
        return expr
    if isinstance(expr, rx.Constant):
        return rx.Constant(expr.data.astype(FLOAT32.numpy()))
    if isinstance(sinfo, rx.TensorStructInfo):
        return bind(R.astype(expr, FLOAT32))
    assert isinstance(sinfo, rx.PrimStructInfo)
    return expr if sinfo.value is None else rx.PrimValue(ops.cast_to(sinfo.value, FLOAT32))


def narrowed(value: rx.Expr, sinfo: rx.StructInfo | None) -> rx.Expr:
    """A value with the datatypes of narrower floats that `sinfo` has."""
    if isinstance(sinfo, rx.TupleStructInfo):
        is_tuple = isinstance(value, rx.Tuple)
        fields = value.fields if is_tuple else ()  # type: ignore[attr-defined]
        items = fields or tuple(rx.TupleGetItem(value, k) for k in range(len(sinfo.fields)))
        return rx.Tuple(tuple(map(narrowed, items, sinfo.fields)))
    if not is_narrow(sinfo):
        return value
    return cast("rx.Expr", R.astype(value, cast("rx.TensorStructInfo", sinfo).dtype))


def gradient_in_float32(rule: Gradient) -> Gradient:
    """The gradient rule on operands, result and gradient in float32 instead of narrower floats.

    The result is computed again from these operands: it is rounded no more than they are.
    """

    def wide_rule(
        var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
    ) -> Sequence[rx.Expr]:
        wide = widened(call, builder.emit)
        if wide is call:
            return rule(var, call, gradient, builder)
        wide_gradient = _wide_fields(gradient, builder)
        partials = rule(cast("rx.Var", wide), wide, wide_gradient, builder)
        return [
            _of_operand(partial, operand)
            for partial, operand in zip(partials, call.args, strict=True)
        ]

    return wide_rule


def _wide_fields(gradient: rx.Expr, builder: BlockBuilder) -> rx.Expr:
    if isinstance(gradient, rx.Tuple):
        return rx.Tuple(tuple(_wide_fields(field, builder) for field in gradient.fields))
    sinfo = gradient.struct_info
    if isinstance(sinfo, rx.TupleStructInfo):
        items = (rx.TupleGetItem(gradient, k) for k in range(len(sinfo.fields)))
        return rx.Tuple(tuple(_wide_fields(builder.emit(item), builder) for item in items))
    return _wide(gradient, builder.emit)


def _of_operand(partial: rx.Expr, operand: rx.Expr) -> rx.Expr:
    if rx.is_call_of(partial, "relax.grad.no_grad"):
        return cast("rx.Expr", R.grad.no_grad(operand))
    return narrowed(partial, operand.struct_info)


def legalization_in_float32(rule: Legalization) -> Legalization:
    """The legalisation of the call on operands in float32 instead of narrower floats."""

    def wide_rule(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        wide = widened(call, builder.emit)
        value = cast("rx.Expr", rule(builder, wide))
        return value if wide is call else narrowed(value, call.struct_info)

    return wide_rule


Derivative: TypeAlias = Callable[..., Any] | None


def is_differentiable(expr: rx.Expr) -> bool:
    """True if `expr` is a tensor of floats or of unknown datatype."""
    sinfo = tensor_sinfo(expr)
    return sinfo is not None and (sinfo.dtype.is_float or sinfo.dtype.is_void)


def require_rank(expr: rx.Expr, name: str) -> int:
    """The rank of a tensor, which the gradient of the operator `name` needs.

    Errors:
        StructInfoError: it is unknown.
    """
    sinfo = tensor_sinfo(expr)
    if sinfo is None or sinfo.ndim < 0:
        raise rules.refuse(
            f"the gradient of {name} needs the rank of its operands, found {sinfo}",
            expr,
            hint="state it by R.match_cast",
        )
    return sinfo.ndim


def require_shape(expr: rx.Expr, name: str) -> rules.Sizes:
    """The shape of a tensor, which the gradient of the operator `name` needs.

    Errors:
        StructInfoError: it is unknown.
    """
    sinfo = tensor_sinfo(expr)
    shape = literal_shape(sinfo)
    if shape is None:
        raise rules.refuse(
            f"the gradient of {name} needs the shape of its operand, found {sinfo}",
            expr,
            hint="state it by R.match_cast",
        )
    return shape


def shape_like(expr: rx.Expr) -> rx.Expr:
    """The shape of a tensor: a literal if it is known, else evaluated at run time."""
    sinfo = tensor_sinfo(expr)
    known = None if sinfo is None else sinfo.shape
    return known if known is not None else cast("rx.Expr", R.shape_of(expr))


def unbroadcast(gradient: rx.Expr, operand: rx.Expr) -> rx.Expr:
    """The gradient of an operand that was broadcast to the shape of `gradient`."""
    target, source = tensor_sinfo(operand), tensor_sinfo(gradient)
    assert target is not None
    assert source is not None
    target_shape, source_shape = literal_shape(target), literal_shape(source)
    is_comparable = (
        target_shape is not None
        and source_shape is not None
        and len(target_shape) == len(source_shape)
    )
    if is_comparable and all(map(rules.same, target_shape or (), source_shape or ())):
        return gradient
    return cast("rx.Expr", R.collapse_sum_to(gradient, shape_like(operand)))


def with_reduced_axes(reduced: rx.Expr, call: rx.Call) -> rx.Expr:
    """Insert axes of size 1 for the reduced ones into the result of `call`, or its gradient.

    If the call has no axis, the result has rank 0 and broadcasts without them.
    """
    axis = call.attrs["axis"]
    if call.attrs["keepdims"] or axis is None:
        return reduced
    return cast("rx.Expr", R.expand_dims(reduced, axis))


def count_reduced(call: rx.Call, dtype: DataType) -> Any:
    """The number of elements that the reduction `call` combines into one, a scalar of `dtype`."""
    [x] = call.args
    sinfo, axis = tensor_sinfo(x), call.attrs["axis"]
    shape = literal_shape(sinfo)
    if shape is None:
        return R.sum(R.ones_like(x), axis, keepdims=True)
    axes = range(len(shape)) if axis is None else rules.normal_axes(cast("Any", axis), len(shape))
    return scalar(product([shape[a] for a in axes]), dtype)


def scalar(size: PrimExpr, dtype: DataType) -> rx.Expr:
    """A size as a scalar of `dtype`: a constant tensor if it is a literal, as in TVM."""
    if isinstance(size, IntImm) and dtype.bits >= 32:
        return rx.const(size.value, dtype)
    return rx.PrimValue(ops.cast_to(size, dtype))


def tuple_fields(gradients: rx.Expr, count: int) -> list[rx.Expr]:
    """The fields of the gradient of a result of `count` tensors; a single one is not a tuple."""
    if isinstance(gradients, rx.Tuple):
        return list(gradients.fields)
    return [gradients] if count == 1 else [rx.TupleGetItem(gradients, k) for k in range(count)]


def masked(gradient: rx.Expr, condition: rx.Expr) -> rx.Expr:
    """The gradient where the condition is true, else 0."""
    return cast("rx.Expr", R.where(condition, gradient, R.zeros_like(gradient)))


def no_gradient(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """The rule of an operator whose result is piecewise constant or does not contain floats."""
    return [R.grad.no_grad(arg) for arg in call.args]


def identity_gradient(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """The rule of an operator whose result has the elements of its first operand."""
    if not is_differentiable(call.args[0]):
        return no_gradient(var, call, gradient, builder)
    return [gradient, *map(R.grad.no_grad, call.args[1:])]


def of_operand(derivative: Callable[[rx.Expr, rx.Expr, rx.Expr, rx.Call], Any]) -> Gradient:
    """The rule of an operator on one tensor, from a function of four arguments.

    It returns the gradient of the operand from that of the result, the operand, the result and the
    call.
    """

    def rule(
        var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
    ) -> Sequence[rx.Expr]:
        if not is_differentiable(call.args[0]) or not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        others = (R.grad.no_grad(arg) for arg in call.args[1:])
        return [derivative(gradient, call.args[0], var, call), *others]

    return rule


def of_operands(derivatives: Callable[..., Sequence[rx.Expr]]) -> Gradient:
    """The rule of an operator from a function that returns the gradients of all operands.

    It takes the gradient of the result, the operands, and by their names the attributes.
    """
    return lambda var, call, gradient, builder: derivatives(gradient, *call.args, **call.attrs)


def by_transpose(name: str, *kept: int) -> Gradient:
    """The rule of an operator that is linear in its first operand, by its transpose `relax.<name>`.

    The transpose has the same attributes, and after the gradient the `kept` operands. An operator
    that selects elements, such as a maximum, is linear near almost all values of the operand.
    """

    def rule(
        var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
    ) -> Sequence[rx.Expr]:
        if not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        operator = attrgetter(name)(R)
        back = operator(gradient, *(call.args[k] for k in kept), **call.attrs)
        return [back, *map(R.grad.no_grad, call.args[1:])]

    return rule


def elementwise(*derivatives: Derivative, exact: bool = False) -> Gradient:
    """The rule of an operator on elements, from one function for each operand.

    It returns the gradient of the operand from that of the result, the operands, and the result,
    before sums over broadcasts; None for an operand without a gradient. Those that are `exact`
    only select or negate, so that narrow floats need no float32.
    """

    def rule(
        var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
    ) -> Sequence[rx.Expr]:
        if not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        out: list[rx.Expr] = []
        for operand, derivative in zip(call.args, derivatives, strict=True):
            if derivative is None or not is_differentiable(operand):
                out.append(R.grad.no_grad(operand))
            else:
                out.append(unbroadcast(derivative(gradient, *call.args, var), operand))
        return out

    return rule if exact else gradient_in_float32(rule)


F = TypeVar("F", bound=Callable[..., Any])

_table: dict[str, Callable[..., Any]] = {}


@overload
def register_te_gradient(te_grad_name: str, te_grad_func: F) -> F: ...
@overload
def register_te_gradient(te_grad_name: str, te_grad_func: None = None) -> Callable[[F], F]: ...
@user_facing
def register_te_gradient(te_grad_name: str, te_grad_func: Any = None) -> Any:
    """Register the gradient that `call_tir_with_grad` names; without a function, a decorator.

    It is called as `te_grad_func(output_grad, *args, **te_grad_kwargs)`, with the gradient of the
    result (a list of those of several results) and the inputs of the kernel, as tensors of tensor
    expressions. It returns the gradient of the input, or a list with that of each input. A later
    function replaces an earlier one.

    Errors:
        MisuseError (also TypeError): the name is not a string, or the gradient not a function.
    """
    if not isinstance(te_grad_name, str) or not te_grad_name:
        raise unexpected(te_grad_name, "te_grad_name is a string")

    @user_facing
    def register(function: F) -> F:
        if not callable(function):
            raise unexpected(function, "a gradient is a function")
        _table[te_grad_name] = function
        return function

    return register if te_grad_func is None else register(te_grad_func)


def te_gradient(name: str) -> Callable[..., Any]:
    """The gradient that is registered under `name`.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is none.
    """
    if name not in _table:
        raise UnknownNameError(
            f"no gradient of a kernel is registered as {name!r:.60}",
            hint=close_names(name, _table) or "relax.training.utils.register_te_gradient does that",
            about=name,
        )
    return _table[name]


def gradient_of_kernel(
    var: Expr, call: Call, gradient: Expr, builder: BlockBuilder
) -> Sequence[Expr]:
    """The gradient rule of `call_tir_with_grad`: a call of the kernel of the named gradient.

    Errors:
        UnknownNameError (also KeyError, ValueError): no gradient has the name.
        MisuseError (also TypeError): it does not return a tensor like each input.
    """
    name, named = str(call.attrs["te_grad_name"]), call.attrs.get("te_grad_kwargs", EMPTY_ATTRS)
    callee, inputs, *scalars = call.args
    assert isinstance(inputs, Tuple)
    assert isinstance(named, Mapping)
    function = te_gradient(name)

    def tensors(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        single = isinstance(result, (list, tuple)) and len(result) == 1
        return result[0] if single else result

    partials = builder.emit(
        builder.call_te(tensors, gradient, *inputs.fields, primfunc_name_hint=name, **named)
    )
    sinfo = partials.struct_info
    fields: list[Expr] = [partials]
    if isinstance(sinfo, TupleStructInfo):
        fields = [TupleGetItem(partials, k) for k in range(len(sinfo.fields))]
    if len(fields) != len(inputs.fields):
        raise MisuseError(
            f"the gradient {name!r} returns {counted(len(fields), 'tensor')} for "
            f"{counted(len(inputs.fields), 'input')}",
            about=call,
        )
    found = sinfo.fields if isinstance(sinfo, TupleStructInfo) else [sinfo]
    for k, (field, operand) in enumerate(zip(found, inputs.fields, strict=True)):
        if not is_differentiable(operand):
            fields[k] = cast("Expr", R.grad.no_grad(operand))
        elif field and operand.struct_info and provably_disjoint(field, operand.struct_info):
            raise MisuseError(
                f"the gradient {name!r} returns {field} for input {k}, which is "
                f"{operand.struct_info}",
                hint=explain_disjointness(field, operand.struct_info),
                about=call,
            )
    return [callee, Tuple(tuple(fields)), *scalars]
