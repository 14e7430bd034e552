"""The intrinsics of TIR: a record of each, which every part of relaxpy asks.

Functions that build their calls are in `intrin.py`, emitters of machine code by name in
`exec/native/maths/by_name.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

import numpy as np

from relaxpy.ir.core.dtype import INT32, DataType
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Call, IntImm, PrimExpr, Select
from relaxpy.support.dataclass import dataclass


class CallEffectKind(IntEnum):
    """The side effects that a call of an intrinsic may have."""

    ExprAnnotation = 0
    Pure = 1
    ReadState = 2
    UpdateState = 3
    SpecialCallArg = 4
    EmbedInfo = 5
    ControlJump = 6


@dataclass(slots=True, frozen=True)
class Intrinsic:
    """The facts of `T.<name>`.

    `numpy` is the function that kernels on NumPy call; those of `rt` accept `out=` as ufuncs do.
    `scalar` computes one value in float64, for the reference evaluator.
    """

    name: str
    operands: int | None = None
    """The number of operands, if it is fixed."""
    numpy: str = ""
    scalar: Callable[..., Any] | None = None
    effect: CallEffectKind = CallEffectKind.Pure
    of_bits: bool = False
    """The operands are integers."""
    is_math: bool = False
    """It is a function of numbers, in the datatype of the first operand."""
    is_composed: bool = False
    """NumPy rounds between several functions; the others round once to 16 bits."""
    is_costly: bool = False
    """It takes several times as long as an addition."""
    is_hint: bool = False
    """Its value is its operand."""
    is_foreign: bool = False
    """It calls the registered function that its first operand names."""
    is_evaluated: bool = True
    """Programs run with it on a host, where no pass has lowered it."""
    definition: Callable[..., PrimExpr | None] | None = None
    """The expression over its operands that computes it, or None where nothing does."""

    @property
    def is_widened(self) -> bool:
        """True if floats of less than 16 bits are computed in float32, and rounded once.

        ml_dtypes has bugs in some of these: `copysign` of 0 is NaN.
        """
        return self.is_math and self.name != "nextafter"


def _real(
    name: str,
    scalar: Callable[..., Any],
    numpy: str = "",
    operands: int = 1,
    *,
    is_composed: bool = False,
    is_costly: bool = False,
) -> Intrinsic:
    return Intrinsic(
        name,
        operands,
        numpy or f"np.{name}",
        scalar,
        is_math=True,
        is_composed=is_composed,
        is_costly=is_costly,
    )


def _exact(
    name: str, scalar: Callable[..., Any] | None, numpy: str = "", operands: int = 1
) -> Intrinsic:
    return Intrinsic(name, operands, numpy or f"np.{name}", scalar, is_math=True)


def _bits(name: str, operands: int, numpy: str, *, is_math: bool = False) -> Intrinsic:
    return Intrinsic(name, operands, numpy, of_bits=True, is_math=is_math)


def _other(name: str, effect: CallEffectKind = CallEffectKind.Pure, **facts: Any) -> Intrinsic:
    return Intrinsic(name, effect=effect, **facts)


def _q_multiply_shift(x: PrimExpr, y: PrimExpr, q: PrimExpr, s: PrimExpr) -> PrimExpr:
    """x * y * 2**(s - q)."""
    return _fixed_point_product(x, y, ops.maximum(s, 0), q + ops.maximum(-s, 0))


def _q_multiply_shift_per_axis(
    x: PrimExpr,
    y: PrimExpr,
    left: PrimExpr,
    right: PrimExpr,
    q: PrimExpr,
    has_left: PrimExpr,
    has_right: PrimExpr,
) -> PrimExpr:
    """x * y * 2**(left - right - q), without the shifts that are not required."""
    left, right = (
        Select(ops.truth(has), shift, ops.const(0, shift.dtype))
        for has, shift in ((has_left, left), (has_right, right))
    )
    return _fixed_point_product(x, y, left, q + right)


def _fixed_point_product(x: PrimExpr, y: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """x * y * 2**(left - right) in 64 bits, where a half is rounded up."""
    wide = DataType("int64").with_lanes(x.dtype.lanes)
    x, y, left, right = (ops.cast_to(value, wide) for value in (x, y, left, right))
    half = ops.const(1, wide) << (right - 1)
    return ops.cast_to(((x << left) * y + half) >> right, INT32.with_lanes(wide.lanes))


_OF_LLVM: Final = {
    **{name: name for name in ("fabs", "sqrt", "exp", "exp2", "exp10", "log", "log2", "log10")},
    **{name: name for name in ("sin", "cos", "tan", "floor", "ceil", "trunc", "pow", "copysign")},
    **dict.fromkeys(("nearbyint", "rint", "roundeven"), "nearbyint"),
    "ctpop": "popcount",
    "ctlz": "clz",
}
_WITHOUT_EFFECT: Final = ("assume", "donothing", "prefetch")


def _llvm_intrinsic(symbol: PrimExpr | None = None, *operands: PrimExpr) -> PrimExpr | None:
    """The value of an intrinsic of LLVM, such as `llvm.sqrt.f32`.

    Before its operands there may be their number, as a literal of uint32.
    """
    name = str(getattr(symbol, "value", "")).removeprefix("llvm.").partition(".")[0]
    if name in _WITHOUT_EFFECT:
        return ops.const(0)
    if len(operands) > 1 and isinstance(operands[0], IntImm) and operands[0].dtype == "uint32":
        operands = operands[1:]
    if name == "ctlz":
        operands = operands[:1]  # without whether the value for 0 is undefined
    record = INTRINSICS.get(_OF_LLVM.get(name, ""))
    if record is None or len(operands) != record.operands:
        return None
    [kind, *others] = {x.dtype for x in operands}
    if others or not (kind.is_int if record.of_bits else kind.is_float):
        return None
    dtype = INT32.with_lanes(kind.lanes) if record.name == "clz" else kind
    return ops.cast_to(Call(dtype, f"tir.{record.name}", operands), kind)


def _foreign(name: str, effect: CallEffectKind = CallEffectKind.UpdateState) -> Intrinsic:
    return Intrinsic(name, effect=effect, is_foreign=True)


_TABLE: Final = (
    _real("exp", np.exp, is_costly=True),
    _real("exp2", np.exp2),
    _real("exp10", lambda x: np.power(np.float64(10), x), "rt.exp10", is_composed=True),
    _real("log", np.log, is_costly=True),
    _real("log2", np.log2),
    _real("log10", np.log10),
    _real("log1p", np.log1p),
    _real("sqrt", np.sqrt),
    _real("rsqrt", lambda x: 1 / np.sqrt(x), "rt.rsqrt", is_composed=True),
    _real("sin", np.sin, is_costly=True),
    _real("cos", np.cos, is_costly=True),
    _real("tan", np.tan),
    _real("asin", np.arcsin, "np.arcsin"),
    _real("acos", np.arccos, "np.arccos"),
    _real("atan", np.arctan, "np.arctan"),
    _real("sinh", np.sinh),
    _real("cosh", np.cosh),
    _real("tanh", np.tanh, is_costly=True),
    _real("asinh", np.arcsinh, "np.arcsinh"),
    _real("acosh", np.arccosh, "np.arccosh"),
    _real("atanh", np.arctanh, "np.arctanh"),
    _real("erf", math.erf, "rt.erf", is_composed=True, is_costly=True),
    _real(
        "sigmoid", lambda x: 1 / (1 + np.exp(-x)), "rt.sigmoid", is_composed=True, is_costly=True
    ),
    _real("atan2", np.arctan2, "np.arctan2", 2),
    _real("hypot", np.hypot, operands=2),
    # With one exponent of 0.5, np.power is np.sqrt.
    _real("pow", lambda x, y: np.power([x, x], [y, y])[0], "rt.pow", 2, is_costly=True),
    _exact("fabs", np.fabs, "np.abs"),  # which, unlike np.fabs, is vectorised
    _exact("floor", np.floor),
    _exact("ceil", np.ceil),
    _exact("trunc", np.trunc),
    _exact("round", np.rint, "np.rint"),
    _exact("nearbyint", np.rint, "np.rint"),
    _exact("copysign", np.copysign, operands=2),
    _exact("fmod", np.fmod, operands=2),
    _exact("nextafter", None, operands=2),
    _exact("ldexp", lambda x, e: np.ldexp(x, int(min(5000, max(-5000, e)))), "rt.ldexp", 2),
    _bits("popcount", 1, "rt.popcount", is_math=True),
    _bits("clz", 1, "rt.clz", is_math=True),
    _bits("bitwise_and", 2, "np.bitwise_and"),
    _bits("bitwise_or", 2, "np.bitwise_or"),
    _bits("bitwise_xor", 2, "np.bitwise_xor"),
    _bits("bitwise_not", 1, "np.invert"),
    _bits("shift_left", 2, "rt.shift_left"),
    _bits("shift_right", 2, "rt.shift_right"),
    _other("isnan", operands=1, numpy="np.isnan"),
    _other("reinterpret", operands=1),
    _other("if_then_else", operands=3),
    _other("large_uint_imm"),
    _other("vscale"),
    _other("address_of"),
    _other("isnullptr"),
    _foreign("call_pure_extern", CallEffectKind.Pure),
    _other("likely", CallEffectKind.ExprAnnotation, operands=1, is_hint=True),
    _other("assume", CallEffectKind.EmbedInfo, is_hint=True),
    _other("tvm_thread_invariant", CallEffectKind.UpdateState, is_hint=True),
    _other("tvm_storage_sync", CallEffectKind.UpdateState),
    _other("q_multiply_shift", operands=4, definition=_q_multiply_shift),
    _other("q_multiply_shift_per_axis", operands=7, definition=_q_multiply_shift_per_axis),
    _other("call_llvm_pure_intrin", definition=_llvm_intrinsic),
    _other("call_llvm_intrin", CallEffectKind.UpdateState, definition=_llvm_intrinsic),
    _other("prefetch", CallEffectKind.UpdateState, definition=lambda *_: ops.const(0)),
    _other("undef", CallEffectKind.ReadState),
    _foreign("call_extern"),
    _foreign("tvm_call_packed"),
    _foreign("tvm_call_cpacked"),
    _other("ret", CallEffectKind.ControlJump),
    _other("break_loop", CallEffectKind.ControlJump),
    _other("continue_loop", CallEffectKind.ControlJump),
    _other("tvm_struct_get", CallEffectKind.ReadState, is_evaluated=False),
    _other("tvm_struct_set", CallEffectKind.UpdateState, is_evaluated=False),
    _other("tvm_access_ptr", CallEffectKind.SpecialCallArg, is_evaluated=False),
)

INTRINSICS: Final[Mapping[str, Intrinsic]] = {record.name: record for record in _TABLE}
"""The record of each intrinsic by its name, without the prefix `tir.`"""


def _names(chosen: Callable[[Intrinsic], bool]) -> tuple[str, ...]:
    return tuple(name for name, record in INTRINSICS.items() if chosen(record))


UNARY_MATH: Final = _names(lambda record: record.is_math and record.operands == 1)
BINARY_MATH: Final = _names(lambda record: record.is_math and record.operands == 2)
BITWISE: Final = _names(lambda record: record.of_bits and not record.is_math)

for _record in _TABLE:
    _op = Op(f"tir.{_record.name}")
    _op.set_attr("TCallEffectKind", _record.effect)
    if _record.operands is not None:
        _op.set_attr("num_inputs", _record.operands)


def intrinsic_of(op: object) -> Intrinsic | None:
    """The record of an operator, or None if it is another one, or a function."""
    return INTRINSICS.get(op.name.removeprefix("tir.")) if isinstance(op, Op) else None


def is_foreign(op: object) -> bool:
    """True if `op` calls the registered function that its first operand names."""
    record = intrinsic_of(op)
    return record is not None and record.is_foreign


def is_external(call: Call) -> bool:
    """True if `call` calls a registered function, a kernel, or a function of the module."""
    return not isinstance(call.op, Op) or is_foreign(call.op) or call.op is Op("tir.call_kernel")


def effect_of(call: Call) -> CallEffectKind:
    """The effect of `call`; functions and unknown intrinsics update state."""
    kind = call.op.get_attr("TCallEffectKind") if isinstance(call.op, Op) else None
    return kind if isinstance(kind, CallEffectKind) else CallEffectKind.UpdateState
