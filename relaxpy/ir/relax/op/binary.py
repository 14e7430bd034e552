"""Operators on the elements of two operands that broadcast."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.dtype import BOOL, DataType
from relaxpy.ir.relax.nodes import (
    Call,
    Constant,
    Expr,
    PrimStructInfo,
    PrimValue,
    TensorStructInfo,
    const,
)
from relaxpy.ir.relax.op.registry import OpDef, register
from relaxpy.ir.relax.op.rules import (
    Legalize,
    broadcast,
    joint_dtype,
    joint_vdevice,
    of_bits,
    te_kernel,
    tensor,
)
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.builder import BlockBuilder

_NAMES = ("x1", "x2")
_ARITHMETIC = {
    "add": "x1 + x2",
    "subtract": "x1 - x2",
    "multiply": "x1 * x2",
    "divide": "x1 / x2, on integers rounded toward zero",
    "power": "x1 to the power x2, on integers modulo their range",
    "floor_divide": "x1 / x2 rounded down",
    "mod": "the remainder of x1 / x2 rounded toward zero, with the sign of x1",
    "floor_mod": "the remainder of x1 / x2 rounded down, with the sign of x2",
    "log_add_exp": "log(exp(x1) + exp(x2)), without overflow",
    "maximum": "the larger one; NaN if one is",
    "minimum": "the smaller one; NaN if one is",
    "logical_and": "whether both are other than 0",
    "logical_or": "whether one is other than 0",
    "logical_xor": "whether exactly one is other than 0",
    "bitwise_and": "the bits that both have",
    "bitwise_or": "the bits that one has",
    "bitwise_xor": "the bits that exactly one has",
    "left_shift": "the bits of x1 moved up by x2 places",
    "right_shift": "the bits of x1 moved down by x2 places, its sign repeated",
}
_COMPARISONS = {
    "equal": "x1 == x2",
    "not_equal": "x1 != x2",
    "less": "x1 < x2",
    "less_equal": "x1 <= x2",
    "greater": "x1 > x2",
    "greater_equal": "x1 >= x2",
}
_INTEGERS = frozenset(("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"))
_DOC = """Element by element: {meaning}.

Shapes:
    x1, x2  tensors that broadcast, or scalars{kind}; a number takes the datatype of the other one
    result  what they broadcast to{dtype}; a scalar where both are, else a scalar has rank 0
Errors:
    StructInfoError: a known size differs and is not 1{error}.
"""


def _operand(info: TensorStructInfo | PrimStructInfo) -> TensorStructInfo:
    """A scalar beside a tensor is a tensor of rank 0."""
    return info if isinstance(info, TensorStructInfo) else tensor((), info.dtype)


def _result(
    x1: TensorStructInfo | PrimStructInfo, x2: TensorStructInfo | PrimStructInfo, dtype: DataType
) -> TensorStructInfo | PrimStructInfo:
    if isinstance(x1, PrimStructInfo) and isinstance(x2, PrimStructInfo):
        return PrimStructInfo(dtype)
    infos = (_operand(x1), _operand(x2))
    shape, ndim = broadcast(infos, _NAMES)
    return tensor(shape, dtype, joint_vdevice(infos, strict=True), ndim)


def literal(value: object, dtype: DataType) -> Constant:
    """A Python number as a tensor of rank 0 of this datatype, beside which it is written.

    Errors:
        MisuseError: the datatype is open, or has no such value.
    """
    if dtype.is_void:
        raise MisuseError(
            f"the datatype of {value!r} is open beside a tensor of unknown datatype",
            hint="write R.const(value, dtype)",
            about=value,
        )
    whole = isinstance(value, (numbers.Integral, np.bool_))
    if dtype.is_int:
        low, high = ops.int_range(dtype)
        if not whole or not low <= int(value) <= high:  # type: ignore[call-overload]
            raise MisuseError(
                f"{value!r} is no {dtype}",
                about=value,
                hint=None if whole else "convert the other operand with R.astype",
            )
    return const(value, dtype)


def fit_numbers(arguments: dict[str, Any]) -> None:
    """Let a Python number among two operands take the datatype of the other one.

    An array keeps its datatype where the other operand has it, else it is what `const` makes of it.
    """
    for name, other in (_NAMES, _NAMES[::-1]):
        array, beside = arguments[name], arguments[other]
        if isinstance(array, np.ndarray):
            info = beside.struct_info if isinstance(beside, Expr) else None
            same = isinstance(info, TensorStructInfo) and info.dtype == DataType(array.dtype)
            arguments[name] = Constant(array) if same else const(array)
    for name, other in (_NAMES, _NAMES[::-1]):
        value, beside = arguments[name], arguments[other]
        if isinstance(value, Expr) or not isinstance(value, (bool, numbers.Real, np.bool_)):
            continue
        info = beside.struct_info if isinstance(beside, Expr) else None
        if isinstance(info, TensorStructInfo):
            arguments[name] = literal(value, info.dtype)
        elif isinstance(info, PrimStructInfo):
            number = literal(value, info.dtype).data.item()
            arguments[name] = PrimValue(ops.const(number, info.dtype))
        elif isinstance(beside, Expr) and info is None:
            raise MisuseError(
                f"the datatype of {value!r} is open: nothing is known yet about the other operand",
                hint="write R.const(value, dtype)",
                about=value,
            )


def _immediate(expr: Expr) -> PrimExpr | None:
    """The value of a literal tensor of rank 0."""
    if not isinstance(expr, Constant) or expr.data.ndim:
        return None
    dtype, number = DataType(expr.data.dtype), expr.data[()]
    return ops.const(int(number) if dtype.is_int else float(number), dtype)


def _kernel(name: str) -> Callable[..., Tensor]:
    """The function of two operands in the datatype that the operator gives."""
    function = getattr(topi, name)

    def kernel(x1: Any, x2: Any, dtype: str) -> Tensor:
        result: Tensor = function(x1, x2)
        return result if result.dtype == dtype else topi.cast(result, dtype)

    kernel.__name__ = kernel.__qualname__ = name
    return kernel


def _legalization(name: str) -> Legalize:
    """A scalar literal stands in the kernel; scalars alone are computed at once."""
    function, kernel = getattr(topi, name), _kernel(name)

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        info = builder.struct_info_of(call)
        infos = [builder.struct_info_of(a) for a in call.args]
        if isinstance(info, PrimStructInfo):
            known = [v.value for v in infos if isinstance(v, PrimStructInfo)]
            return call if None in known else PrimValue(ops.cast_to(function(*known), info.dtype))
        assert isinstance(info, TensorStructInfo)
        args: list[object] = list(call.args)
        for k in (1, 0):
            value = _immediate(call.args[k])
            if value is not None and isinstance(infos[1 - k], TensorStructInfo):
                args[k] = value
                break
        return te_kernel(builder, kernel, name, *args, dtype=str(info.dtype))

    return legalize


def _family(table: dict[str, str], *, compares: bool, **words: str) -> dict[str, OpDef]:
    """One operator for each entry, all under the same rule."""
    made = {}
    for name, meaning in table.items():

        def infer(
            x1: TensorStructInfo | PrimStructInfo, x2: TensorStructInfo | PrimStructInfo
        ) -> TensorStructInfo | PrimStructInfo:
            return _result(x1, x2, BOOL if compares else joint_dtype(x1, x2, _NAMES))

        infer.__name__ = infer.__qualname__ = name
        infer.__doc__ = _DOC.format(meaning=meaning, **words)
        legalize = _legalization(name)
        made[name] = register(
            f"relax.{name}",
            pure=True,
            legalize=of_bits(legalize) if name in _INTEGERS else legalize,
            adapt=fit_numbers,
        )(infer)
    return made


BINARY = {
    **_family(
        _ARITHMETIC,
        compares=False,
        kind=" of one datatype (or one Bool)",
        dtype=", in the datatype of x1",
        error=", or the datatypes do",
    ),
    **_family(_COMPARISONS, compares=True, kind="", dtype=", Bool", error=""),
}
"""The operators of this family by their names without `relax.`"""
