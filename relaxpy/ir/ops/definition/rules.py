"""Helpers of struct info rules: errors, broadcasting, datatypes, axes, legalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from operator import attrgetter
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from relaxpy.errors import StructInfoError, StructInfoTypeError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import find
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import dims_of, literal_shape
from relaxpy.ir.relax.relations.compatibility import shown as shown
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.shapes import (
    broadcast_sizes as te_broadcast_sizes,
    normal_axis as te_normal_axis,
)
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Sizes: TypeAlias = tuple[PrimExpr, ...]
Legalize: TypeAlias = "Callable[[BlockBuilder, rx.Call], rx.Expr]"
RULE = "DER-36"


def refuse(message: str, about: object = None, hint: str | None = None) -> StructInfoError:
    """The error of a rule that rejects its operands or attributes."""
    return StructInfoError(message, rule=RULE, hint=hint, about=about)


def refuse_type(message: str, about: object = None, hint: str | None = None) -> StructInfoError:
    """The error of a rule whose operand has a wrong kind, rank or datatype."""
    return StructInfoTypeError(message, rule=RULE, hint=hint, about=about)


normal_axis = partial(te_normal_axis, refuse=refuse)
is_one = partial(ops.is_const, value=1)


def shape_text(sizes: Sequence[PrimExpr]) -> str:
    """The text of a shape in messages."""
    texts = list(map(shown, sizes))
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def tensor(
    shape: Sequence[PrimExpr] | rx.Expr | None,
    dtype: DataType,
    vdevice: object = None,
    ndim: int | None = None,
) -> rx.TensorStructInfo:
    """The struct info of a tensor; `ndim` is used if there is no shape."""
    dims = shape if shape is None or isinstance(shape, rx.Expr) else rx.ShapeExpr(tuple(shape))
    if dims is not None:
        return rx.TensorStructInfo(dims, dtype, vdevice)
    return rx.TensorStructInfo(None, dtype, vdevice, -1 if ndim is None else ndim)


def shape_operand(expr: rx.Expr, sinfo: rx.ShapeStructInfo) -> rx.Expr | Sizes | None:
    """The shape of a new tensor from the shape value `expr`: `expr` itself if it is a leaf."""
    return expr if isinstance(expr, (rx.ShapeExpr, rx.Var)) else sinfo.values


def scalar_literal(expr: rx.Expr) -> PrimExpr | None:
    """The value of a literal tensor of rank 0; None for anything else."""
    if not isinstance(expr, rx.Constant) or expr.data.ndim:
        return None
    dtype, number = DataType(expr.data.dtype), expr.data[()]
    return ops.const(int(number) if dtype.is_int else float(number), dtype)


def with_dtype(sinfo: rx.TensorStructInfo, dtype: DataType) -> rx.TensorStructInfo:
    """The struct info with another datatype."""
    return replace(sinfo, dtype=dtype, span=None) if sinfo.dtype != dtype else sinfo


def differ(a: PrimExpr, b: PrimExpr) -> bool:
    """True if two sizes are provably different."""
    return prove_equal(a, b) is False


def same(a: PrimExpr, b: PrimExpr) -> bool:
    """True if two sizes are provably equal; if that is undecided, the values decide at run time."""
    return prove_equal(a, b) is True


def one() -> PrimExpr:
    """The size 1."""
    return ops.const(1, "int64")


#: The hint where a tensor has another datatype than an operator takes.
CONVERT: Final = "convert it with R.astype first"


def require_float(sinfo: rx.TensorStructInfo, name: str) -> None:
    """Refuse a tensor whose elements are known not to be floats.

    Errors:
        StructInfoTypeError: they are not.
    """
    if not sinfo.dtype.is_void and not sinfo.dtype.is_float:
        raise refuse_type(f"{name} holds floats, found {sinfo}", sinfo, hint=CONVERT)


def require_integer(dtype: DataType, name: str, about: object) -> None:
    """Refuse a datatype that is known not to be an integer type.

    Errors:
        StructInfoTypeError: it is not.
    """
    if not dtype.is_void and (not dtype.is_int or dtype.is_bool):
        hint = CONVERT if isinstance(about, rx.TensorStructInfo) else None
        raise refuse_type(f"{name} holds integers, found {about}", about, hint=hint)


def require_dtype_of(
    sinfo: rx.TensorStructInfo, name: str, model: rx.TensorStructInfo, model_name: str = "data"
) -> None:
    """Refuse a tensor whose datatype is known to differ from that of `model`.

    Errors:
        StructInfoTypeError: it differs.
    """
    if sinfo.dtype != model.dtype and not (sinfo.dtype.is_void or model.dtype.is_void):
        raise refuse_type(
            f"{name} has the datatype of {model_name}, found {sinfo.dtype} and {model.dtype}", sinfo
        )


def normal_axes(axes: Sequence[int], ndim: int, name: str = "axis") -> tuple[int, ...]:
    """AXIS: axes counted from the front, in their order.

    Errors:
        StructInfoError: one is outside [-ndim, ndim), or occurs twice.
    """
    result: list[int] = []
    for axis in axes:
        position = normal_axis(axis, ndim, name)
        if position in result:
            raise refuse(f"{name} {axis} occurs twice in {list(axes)}", axes)
        result.append(position)
    return tuple(result)


def joint_dtype(first: rx.StructInfo, second: rx.StructInfo, names: tuple[str, str]) -> DataType:
    """BDT: the common datatype; that of the first if one is Bool; unknown if one is unknown.

    Errors:
        StructInfoTypeError: they differ.
    """
    assert isinstance(first, (rx.TensorStructInfo, rx.PrimStructInfo))
    assert isinstance(second, (rx.TensorStructInfo, rx.PrimStructInfo))
    a, b = first.dtype, second.dtype
    if a.is_void or b.is_void:
        return VOID
    if a != b and not (a.is_bool or b.is_bool):
        target = a if isinstance(second, rx.PrimStructInfo) else b
        raise refuse_type(
            f"{names[0]} and {names[1]} have one datatype, found {a} and {b}",
            second,
            hint=f'convert the scalar: write T.cast(n, "{target}") for n'
            if isinstance(first, rx.PrimStructInfo) or isinstance(second, rx.PrimStructInfo)
            else f'write R.astype({names[0]}, "{b}"), R.astype({names[1]}, "{a}"), '
            "or a constant as R.const(value, dtype)",
        )
    return a


def common_dtype(sinfos: Sequence[rx.TensorStructInfo], name: str) -> DataType:
    """The common datatype of tensors; unknown if that of one is.

    Errors:
        StructInfoTypeError: two differ.
    """
    known = [sinfo for sinfo in sinfos if not sinfo.dtype.is_void]
    for sinfo in known[1:]:
        if sinfo.dtype != known[0].dtype:
            raise refuse_type(
                f"{name} have one datatype, found {known[0].dtype} and {sinfo.dtype}", sinfo
            )
    return known[0].dtype if len(known) == len(sinfos) else VOID


def common_rank(sinfos: Sequence[rx.TensorStructInfo], name: str) -> int:
    """The common rank of tensors, or -1 if it is unknown.

    Errors:
        StructInfoTypeError: two differ.
    """
    known = [sinfo for sinfo in sinfos if sinfo.ndim >= 0]
    for sinfo in known[1:]:
        if sinfo.ndim != known[0].ndim:
            raise refuse_type(
                f"{name} have one rank, found {known[0].ndim} and {sinfo.ndim}", sinfo
            )
    return known[0].ndim if known else -1


def joint_vdevice(sinfos: Sequence[rx.TensorStructInfo], *, strict: bool) -> object:
    """BVD: the common device of tensors; None if they differ and need not agree.

    Errors:
        StructInfoTypeError: they disagree, and `strict` is set.
    """
    known = [sinfo.vdevice for sinfo in sinfos if sinfo.vdevice is not None]
    if any(v != known[0] for v in known[1:]):
        if strict:
            raise refuse_type(f"the operands are on one device, found {known[0]} and {known[1]}")
        return None
    return known[0] if known else None


def broadcast_sizes(
    first: Sizes, second: Sizes, names: tuple[str, str], about: object = None
) -> Sizes | None:
    """BC: the shape that two shapes broadcast to, aligned at the right; None if undecided.

    Errors:
        StructInfoError: two literal sizes differ, and neither is 1.
    """

    def clash(axis: int) -> StructInfoError:
        return refuse(
            f"{names[0]} and {names[1]} do not broadcast: dimension {len(first) + axis} of "
            f"{names[0]} {shape_text(first)} is {shown(first[axis])}, dimension "
            f"{len(second) + axis} of {names[1]} {shape_text(second)} is {shown(second[axis])}",
            about,
        )

    sizes = te_broadcast_sizes(first, second, lambda a, b: None, clash)
    return None if any(size is None for size in sizes) else cast("Sizes", sizes)


def broadcast(sinfos: Sequence[rx.TensorStructInfo], names: Sequence[str]) -> tuple[Any, int]:
    """BC over several tensors: the broadcast shape, or None, and its rank.

    Errors:
        StructInfoError: two of them cannot broadcast.
    """
    ndim = -1 if any(sinfo.ndim < 0 for sinfo in sinfos) else max(sinfo.ndim for sinfo in sinfos)
    if all(sinfo.shape is sinfos[0].shape for sinfo in sinfos):
        return sinfos[0].shape, ndim
    shapes = [literal_shape(sinfo) for sinfo in sinfos]
    known = [(k, shape) for k, shape in enumerate(shapes) if shape is not None]
    pairs = [
        broadcast_sizes(first, second, (names[j], names[k]), sinfos[k])
        for (j, first), (k, second) in combinations(known, 2)
    ]
    if len(known) < len(shapes):
        return None, ndim
    common = pairs[0]
    for k, shape in known[2:]:
        if common is not None:
            common = broadcast_sizes(common, shape, (names[0], names[k]), sinfos[k])
    unchanged = (sinfo.shape for sinfo in sinfos if literal_shape(sinfo) is common)
    return next(unchanged, common), ndim


def unified_shapes(
    sinfos: Sequence[rx.TensorStructInfo], noun: str, skip: int | None = None
) -> list[Sizes] | None:
    """The shapes of tensors of one rank, if known and provably equal except along axis `skip`.

    Errors:
        StructInfoError: two shapes are provably different; names the first dimension that is.
    """
    shapes = list(map(literal_shape, sinfos))
    known = [(number, shape) for number, shape in enumerate(shapes, start=1) if shape is not None]
    decided = len(known) == len(shapes)
    for number, shape in known[1:]:
        first = known[0][1]
        for axis, (a, b) in enumerate(zip(first, shape, strict=True)):
            equal = axis == skip or prove_equal(a, b)
            if equal is False:
                raise refuse(
                    f"{noun} differ in dimension {axis}: {shown(a)} in number {known[0][0]} of "
                    f"shape {shape_text(first)}, {shown(b)} in number {number} of shape "
                    f"{shape_text(shape)}",
                    sinfos[number - 1],
                )
            decided = decided and equal is True
    return [shape for _, shape in known] if decided else None


def by_te(function: Callable[..., Any] | str, name: str | None = None, **renamed: str) -> Legalize:
    """The legalisation that calls a tensor function on operands and attributes.

    A string names a function of topi, which is loaded when it is first used. `renamed` has the
    function's names of attributes that the operator calls otherwise.
    """

    def legalize(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        record = find(call.op) if isinstance(call.op, Op) else None
        operands = call.args if record is None else record.operands(call)
        compute = attrgetter(function)(topi) if isinstance(function, str) else function
        attrs = {renamed.get(key, key): value for key, value in call.attrs.items()}
        return builder.call_te_cached(compute, operands, attrs, name=name)

    return legalize


def late(place: str) -> Legalize:
    """The legalisation at "module:function", which is imported when it is first used."""
    return lambda builder, call: resolve_name(place)(builder, call)


def of_bits(legalize: Legalize) -> Legalize:
    """Restrict `legalize` of a bitwise operator to integers; TVM infers it for floats as well.

    Errors:
        StructInfoTypeError: an operand does not hold integers or Booleans.
    """

    def checked(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        assert isinstance(call.op, Op)
        for arg in call.args:
            sinfo = builder.struct_info_of(arg)
            assert isinstance(sinfo, (rx.TensorStructInfo, rx.PrimStructInfo))
            if not sinfo.dtype.is_int:
                raise refuse_type(f"{call.op.name}: only integers have bits, found {sinfo}", call)
        return legalize(builder, call)

    return checked


def known_shape(builder: BlockBuilder, operand: rx.Expr) -> Sizes:
    """The dimensions of an operand of a call that is legalised, which are known."""
    return dims_of(builder.struct_info_of(operand))


def te_kernel(
    builder: BlockBuilder, function: Callable[..., Any], name: str, *args: object, **attrs: object
) -> rx.Call:
    """Build a call of the kernel of `function`, which depends on its arguments only."""
    return builder.call_te_cached(function, args, attrs, name=name)
