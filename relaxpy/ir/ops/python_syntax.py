"""Python's operators, subscripts and attributes on Relax expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final, TypeAlias, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, counted, unexpected
from relaxpy.ir.core.dtype import INT32, INT64, DataType
from relaxpy.ir.op_record import OpRecord
from relaxpy.ir.ops.definition.registry import OpDef, R, enter, register
from relaxpy.ir.ops.definition.rules import normal_axis, refuse, refuse_type
from relaxpy.ir.ops.elementwise import BINARY, UNARY, astype
from relaxpy.ir.ops.linear_algebra import matmul
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, PrimStructInfo, PrimValue, TensorStructInfo
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.nodes.expr import is_evaluating
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.prim_expr import PrimExpr

_BINARY: dict[str, OpDef] = {op_def.record.sign: op_def for op_def in (*BINARY.values(), matmul)}
_BINARY |= {"<<": BINARY["left_shift"], ">>": BINARY["right_shift"]}
_LOGICAL = {"&": "and", "|": "or", "^": "xor", "~": "not"}
#: The meanings of an operator on integers and on Booleans.
_BY_DTYPE = {
    sign: (BINARY[f"bitwise_{name}"], BINARY[f"logical_{name}"])
    for sign, name in _LOGICAL.items()
    if sign != "~"
}


def apply(sign: str, left: object, right: object) -> Any:
    """`left sign right`, one of them being an expression; tuples are joined by `+`.

    Errors:
        MisuseError (also TypeError, ValueError): `%`, whose rounding must be chosen; `&`, `|` or
            `^` of other operands than Booleans, or integers.
        StructInfoError: the operands do not fit together.
    """
    if sign == "%":
        raise MisuseError(
            "% leaves the sign of the remainder open",
            hint="use R.floor_mod (as Python's %) or R.mod (as C's)",
        )
    if sign == "+":
        fields = _fields(left), _fields(right)
        if fields[0] is not None and fields[1] is not None:
            return fields[0] + fields[1]
    if sign in _BY_DTYPE:
        return _BY_DTYPE[sign][_holds_truth(sign, left, right)](left, right)
    return _BINARY[sign](left, right)


def apply_unary(sign: str, operand: rx.Expr) -> rx.Call:
    """`sign operand`, or `abs(operand)`.

    Errors:
        MisuseError (also TypeError, ValueError): `~` of floats or an unknown datatype; `+`.
        StructInfoError: the operator is not defined on the operand.
    """
    match sign:
        case "-":
            return UNARY["negative"](operand)
        case "abs":
            return UNARY["abs"](operand)
        case "~":
            truth = _holds_truth(sign, operand)
            return UNARY["logical_not" if truth else "bitwise_not"](operand)
        case _:
            raise MisuseError(
                f"{sign} is not defined on Relax expressions", hint=f"write {_shown(operand)}"
            )


def _holds_truth(sign: str, *operands: object) -> bool:
    """True if operands are Booleans, where `&` is logical as in NumPy; False for integers."""
    dtypes = [dtype for dtype in map(_dtype, operands) if dtype is not None]
    booleans = [dtype.is_bool for dtype in dtypes]
    if all(dtype.is_int for dtype in dtypes) and (all(booleans) or not any(booleans)):
        return bool(booleans) and booleans[0]
    found = " and ".join("an unknown datatype" if d.is_void else str(d) for d in dtypes)
    args, name = ", ".join(map(_shown, operands)), _LOGICAL[sign]
    raise MisuseError(
        f"{sign} is for Booleans or for integers, found {found}",
        hint=f"write R.logical_{name}({args}), or R.bitwise_{name}({args}) for the bits of "
        "integers",
    )


def _shown(operand: object) -> str:
    """The name or number of an operand, for a hint."""
    return (
        operand.name_hint
        if isinstance(operand, rx.Var)
        else "..."
        if isinstance(operand, rx.Expr)
        else str(operand)
    )


def _dtype(operand: object) -> DataType | None:
    """The datatype of a tensor or scalar; None of a number, which takes that of the other."""
    sinfo = operand.struct_info if isinstance(operand, rx.Expr) else None
    if isinstance(sinfo, (rx.TensorStructInfo, rx.PrimStructInfo, DTensorStructInfo)):
        return sinfo.dtype
    return DataType(operand.dtype) if isinstance(operand, (np.ndarray, PrimExpr)) else None


def _fields(value: object) -> tuple[object, ...] | None:
    """The fields of a tuple, of the program or of Python."""
    if isinstance(value, rx.Tuple):
        return value.fields
    sinfo = value.struct_info if isinstance(value, rx.Expr) else None
    if isinstance(sinfo, rx.TupleStructInfo):
        return tuple(rx.TupleGetItem(value, i) for i in range(len(sinfo.fields)))  # type: ignore[arg-type]
    return tuple(value) if isinstance(value, (list, tuple)) else None


def convert(operand: rx.Expr, dtype: str) -> rx.Expr:
    """The elements of `operand` in another datatype."""
    return astype(operand, dtype)


Bind: TypeAlias = Callable[[rx.Call, str], rx.Expr]
Bounds: TypeAlias = tuple[Any, Any, int]
"""The first index, the index after the last one, and the stride of a slice."""
_END: Final = (1 << 63) - 1
"""The end that strided_slice gets for an axis whose size is not known."""


def subscript(x: rx.Expr, key: object, bind: Bind = lambda call, _: call) -> rx.Expr:
    """`x[key]` of a tensor: at integers, slices, `...`, `None` and one tensor of integers.

    Integers and slices become strided_slice and squeeze, `None` becomes expand_dims, and a tensor,
    or a list of integers, take. Indices of a tensor count from 0. `bind` makes a value of each call
    and of the name of its operator.

    Errors:
        MisuseError (also TypeError, ValueError): an index is something else or outside of its axis,
            there are too many, or the rank has to be known.
        As the operators raise.
    """
    sinfo = tensor_of(x)
    items = _items(key, sinfo)
    sizes = sinfo.get_shape() or (None,) * max(sinfo.ndim, len(items))
    slices: dict[int, Bounds] = {}
    single: dict[int, Bounds] = {}
    added: list[int] = []
    taken: tuple[rx.Expr, int] | None = None
    axis = left = result_axis = 0  # `left` counts axes without those at integers
    for item in items:
        if item is None:
            added.append(result_axis)
            result_axis += 1
            continue
        if isinstance(item, slice):
            if any(bound is not None for bound in (item.start, item.stop, item.step)):
                slices[axis] = _bounds(item, sizes[axis])
        elif isinstance(item, rx.Expr):
            taken = item, left
            result_axis += _rank(item) - 1
        else:
            single[axis] = _at(item, axis, sinfo, key)
        if isinstance(item, (slice, rx.Expr)):
            left += 1
            result_axis += 1
        axis += 1
    # A slice from an index to the next one has one element if both are known to be inside.
    promised = {} if all(_is_known(single[n], sizes[n]) for n in single) else single
    slices |= {} if promised else single
    for part in (promised, dict(sorted(slices.items()))):
        if part:
            begin, end, steps = zip(*part.values(), strict=True)
            options: dict[str, Any] = {} if set(steps) == {1} else {"strides": steps}
            if part is promised:
                options["assume_inbound"] = True
            x = bind(R.strided_slice(x, list(part), begin, end, **options), "strided_slice")
    if single:
        x = bind(R.squeeze(x, list(single)), "squeeze")
    if taken is not None:
        x = bind(R.take(x, taken[0], axis=taken[1]), "take")
    if added:
        x = bind(R.expand_dims(x, added), "expand_dims")
    return x


def _items(key: object, sinfo: rx.TensorStructInfo) -> list[Any]:
    """The indices of the first axes, with slices for `...`, and None for each new axis.

    Integers are those of Python or PrimExprs; tensors, and scalars of unknown value, expressions.
    """
    keys = key.fields if isinstance(key, rx.Tuple) else key if isinstance(key, tuple) else (key,)
    items = list(map(_item, keys))
    count = sum(item is not None and item is not Ellipsis for item in items)
    dots = [position for position, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise MisuseError("a subscript has one ellipsis, found two", about=key)
    if 0 <= sinfo.ndim < count:
        raise MisuseError(
            f"a tensor of rank {sinfo.ndim} cannot have {counted(count, 'index', 'indices')}: "
            f"it is {sinfo}",
            about=key,
        )
    if dots:
        position = dots[0]
        if sinfo.ndim < 0 and items[position + 1 :]:
            raise MisuseError(
                "indices after ... need a known rank",
                about=key,
                hint="declare it: R.match_cast(x, R.Tensor(ndim=3)) has rank 3",
            )
        items[position : position + 1] = [slice(None)] * (sinfo.ndim - count)
    _check_tensors(items, key)
    return items


def _item(item: object) -> Any:
    """One index. Errors: MisuseError if it has no meaning."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if (number := _integer(item)) is not None:
        return number
    if isinstance(item, list) or (isinstance(item, np.ndarray) and item.ndim):
        return _listed(item)
    if isinstance(item, rx.Expr):
        found = item.struct_info
        dtype = found.dtype if isinstance(found, rx.TensorStructInfo) else None
        if dtype is not None and dtype.is_bool:
            raise MisuseError(
                "the number of elements that a mask selects is known only when the program runs",
                about=item,
                hint="R.where(mask, x, y) takes the others from y; R.nonzero(mask) has the indices "
                "of the elements that are true",
            )
        if dtype is not None and dtype.is_float:
            raise MisuseError(
                f"an index holds integers, found {found}",
                about=item,
                hint='convert it: R.astype(i, "int64")',
            )
        if dtype is not None or isinstance(found, rx.PrimStructInfo):
            return item
    raise unexpected(
        item,
        "an index of a tensor is an integer, a slice, ..., None or a tensor of integers",
        hint="R.take(x, indices, axis) reads at indices, R.where(mask, x, y) where a mask is true",
    )


def _integer(value: object) -> int | tir.PrimExpr | None:
    """The value of an integer or of a scalar of known value; None of others and of Booleans."""
    sinfo = value.struct_info if isinstance(value, rx.Expr) else None
    if isinstance(sinfo, rx.PrimStructInfo) and sinfo.value is not None:
        value = sinfo.value
    if isinstance(value, tir.IntImm):
        return None if value.dtype.is_bool else value.value
    if isinstance(value, tir.PrimExpr):
        return ops.cast_to(value, "int64") if value.dtype.is_int else None
    if isinstance(value, (bool, np.bool_, rx.Expr)) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array that is not of one integer
        return None


def _listed(numbers: Any) -> rx.Expr:
    """The tensor of the integers in a list. Errors: MisuseError for others and negative ones."""
    try:
        array = np.asarray(numbers) if len(numbers) else np.zeros(0, "int64")
    except ValueError:
        raise unexpected(numbers, "the lists in an index are of one length") from None
    if array.dtype.kind not in "iu":
        raise unexpected(
            numbers,
            "a list of indices holds integers",
            hint="R.where(mask, x, y) selects the elements where a mask is true",
        )
    if array.size and array.min() < 0:
        raise unexpected(
            numbers,
            "indices in a list count from 0",
            hint="a single index, or the bound of a slice, may count from the end",
        )
    return rx.const(array.astype("int64"), "int64")


def _check_tensors(items: Sequence[Any], key: object) -> None:
    """Errors: MisuseError for several tensors, and for one that NumPy does not leave in place."""
    advanced = [n for n, item in enumerate(items) if isinstance(item, (int, tir.PrimExpr, rx.Expr))]
    tensors = [n for n in advanced if isinstance(items[n], rx.Expr)]
    if len(tensors) > 1:
        raise MisuseError(
            "a subscript has one index that is a tensor, found two",
            about=key,
            hint="R.index_tensor(x, (i, j)) reads at pairs of indices, x[i][:, j] rows and columns",
        )
    has_new_axis = any(item is None for item in items)
    if tensors and has_new_axis and _rank(items[tensors[0]]) < 0:
        raise MisuseError("a new axis beside a tensor whose rank is not known", about=key)
    is_apart = any(after - before > 1 for before, after in pairwise(advanced))
    if tensors and is_apart and _rank(items[tensors[0]]):
        raise MisuseError(
            "an integer and a tensor, apart from each other, would move axes to the front",
            about=key,
            hint="use two subscripts: x[:, :, i][0] instead of x[0, :, i]",
        )


def _rank(index: rx.Expr) -> int:
    """The rank of an index; -1 if it is not known."""
    sinfo = index.struct_info
    return sinfo.ndim if isinstance(sinfo, rx.TensorStructInfo) else 0


def _is_known(bounds: Bounds, size: Any) -> bool:
    return isinstance(size, tir.IntImm) and isinstance(bounds[0], int)


def _at(item: Any, axis: int, sinfo: rx.TensorStructInfo, key: object) -> Bounds:
    """The slice of one element at an integer. Errors: MisuseError if it is outside of the axis."""
    sizes = sinfo.get_shape()
    size: Any = None if sizes is None else sizes[axis]
    if isinstance(item, int) and isinstance(size, tir.IntImm):
        if not -size.value <= item < size.value:
            raise MisuseError(
                f"index {item} is outside of axis {axis}, which has size {size.value}: "
                f"the tensor is {sinfo}",
                about=key,
            )
        item %= size.value
    after = _END if isinstance(item, int) and item == -1 else item + 1
    if isinstance(item, int) and item < 0 and size is not None:
        item, after = size - abs(item), size if item == -1 else size - abs(after)
    return item, after, 1


def _bounds(item: slice, size: Any) -> Bounds:
    """The bounds of a slice, all of which are written."""
    step = 1 if item.step is None else _integer(item.step)
    if not isinstance(step, int) or step == 0:
        raise unexpected(
            item.step, "the stride of a slice is an integer other than 0 that is written here"
        )
    start, stop = (None if bound is None else _bound(bound) for bound in (item.start, item.stop))
    if step > 0:
        first, last = 0, _END if size is None else size
    else:
        first, last = (_END, -_END) if size is None else (size - 1, -size - 1)
    return _plain(first if start is None else start), _plain(last if stop is None else stop), step


def _plain(bound: Any) -> Any:
    return bound.value if isinstance(bound, tir.IntImm) else bound


def _bound(bound: object) -> Any:
    """A bound of a slice. Errors: MisuseError if it is not a scalar."""
    number = _integer(bound)
    if number is not None:
        return number
    sinfo = bound.struct_info if isinstance(bound, rx.Expr) else None
    if isinstance(sinfo, rx.PrimStructInfo):
        return bound
    hint = None
    if isinstance(sinfo, rx.TensorStructInfo):
        hint = "R.dynamic_strided_slice(x, begin, end, strides) takes tensors; a number that a "
        hint += "program binds to a name is one: name it outside of the function"
    raise unexpected(bound, "the bound of a slice is an integer or a scalar", hint=hint)


UINT8, UINT16, UINT64 = DataType("uint8"), DataType("uint16"), DataType("uint64")


def _property(
    name: str, meaning: str, dtype: DataType, value_of: Callable[[TensorStructInfo], int | None]
) -> OpDef:
    """The operator that reads a number of a tensor, which `value_of` knows from struct info."""

    def rule(tensor: TensorStructInfo) -> PrimStructInfo:
        value = value_of(tensor)
        return PrimStructInfo(dtype, None if value is None else ops.const(value, dtype))

    doc = f"""{meaning}

    Shapes:
        tensor  any
        result  a scalar of {dtype}, known where struct info tells it
    """
    record = OpRecord(f"relax.inspect.tensor_{name}", rule, doc, pure=True, literal=True)
    return enter(record)


def _of_dtype(name: str) -> Callable[[TensorStructInfo], int | None]:
    return lambda x: None if x.dtype.is_void else cast("int", getattr(x.dtype, name))


def _offset(tensor: TensorStructInfo) -> int | None:
    return None if tensor.get_shape() is None else 0


tensor_dtype_code = _property(
    "dtype_code",
    "The kind of elements as a number, as DLPack counts them: `x.dtype.type_code`.",
    UINT8,
    _of_dtype("type_code"),
)
tensor_dtype_bits = _property(
    "dtype_bits",
    "The bits of an element, 1 for a Boolean: `x.dtype.bits`.",
    UINT8,
    _of_dtype("bits"),
)
tensor_dtype_lanes = _property(
    "dtype_lanes", "The lanes of an element: `x.dtype.lanes`.", UINT16, _of_dtype("lanes")
)
tensor_ndim = _property(
    "ndim", "The rank: `x.ndim`.", INT32, lambda x: None if x.ndim < 0 else x.ndim
)
tensor_byte_offset = _property(
    "byte_offset",
    "Bytes from the beginning of the memory of a tensor to its first element: `x.byte_offset`.",
    UINT64,
    _offset,
)
tensor_elem_offset = _property(
    "elem_offset",
    "Elements from the beginning of the memory of a tensor to its first: `x.elem_offset`.",
    UINT64,
    _offset,
)


@register("relax.inspect.tensor_shape_i", pure=True, literal=True)
def tensor_shape_i(tensor: TensorStructInfo, axis: PrimStructInfo) -> PrimStructInfo:
    """The size along an axis: `x.shape[axis]`.

    Shapes:
        tensor  any
        axis    an integer, from 0 up to the rank
        result  an int64 scalar, known where the axis and the shape are
    Errors:
        StructInfoError: the axis is not an integer, or it is known to be out of range.
    """
    sizes, position = tensor.get_shape(), _position(tensor, axis)
    size = None if sizes is None or position is None else sizes[position]
    return PrimStructInfo(INT64, None if size is None else size.astype(INT64))


@register("relax.inspect.tensor_stride_i", pure=True, literal=True)
def tensor_stride_i(tensor: TensorStructInfo, axis: PrimStructInfo) -> PrimStructInfo:
    """Elements between neighbours along an axis, rows lying one after another: `x.strides[axis]`.

    Shapes:
        tensor  any
        axis    an integer, from 0 up to the rank
        result  an int64 scalar, known where the axis and the shape are
    Errors:
        StructInfoError: the axis is not an integer, or it is known to be out of range.
    """
    sizes, position = tensor.get_shape(), _position(tensor, axis)
    stride = None if sizes is None or position is None else strides_of(sizes)[position]
    return PrimStructInfo(INT64, stride)


def strides_of(sizes: tuple[tir.PrimExpr, ...]) -> tuple[tir.PrimExpr, ...]:
    """Elements between neighbours along each axis, rows lying one after another."""
    return tuple(product(sizes[i + 1 :]).astype(INT64) for i in range(len(sizes)))


def _position(tensor: TensorStructInfo, axis: PrimStructInfo) -> int | None:
    """The axis, where it is known."""
    if not axis.dtype.is_int or axis.dtype.is_bool:
        raise refuse_type(f"the axis is an integer, found {axis}", axis)
    if not isinstance(axis.value, tir.IntImm):
        return None
    position = axis.value.value
    if position < 0 or 0 <= tensor.ndim <= position:
        rank = f" for rank {tensor.ndim}" if tensor.ndim >= 0 else ": they are counted from 0"
        raise refuse(f"axis {position} is out of range{rank}", axis)
    return position


class _Property:
    """A property of a tensor that is read when the program runs."""

    __slots__ = ("tensor",)
    _name: ClassVar[str]
    hint: ClassVar[str]

    def __init__(self, tensor: Expr) -> None:
        self.tensor = tensor

    @override
    def __eq__(self, other: object) -> bool:
        raise MisuseError(f"{self} is known only when the program runs", hint=self.hint)

    __hash__ = None  # type: ignore[assignment]

    @override
    def __repr__(self) -> str:
        return f"{_shown_tensor(self.tensor)}.{self._name}"


class TensorDtype(_Property):
    """`x.dtype` of a tensor: each property of it is the call of an operator."""

    __slots__ = ()
    display_name = "datatype of a tensor"
    hint = "compare its .type_code, .bits and .lanes, or declare it with R.match_cast first"
    _name = "dtype"

    @property
    def type_code(self) -> Call:
        """The kind of elements as a number, as DLPack counts them."""
        return tensor_dtype_code.make(self.tensor)

    @property
    def bits(self) -> Call:
        """The bits of an element."""
        return tensor_dtype_bits.make(self.tensor)

    @property
    def lanes(self) -> Call:
        """The lanes of an element."""
        return tensor_dtype_lanes.make(self.tensor)


class TensorSizes(_Property):
    """Numbers of a tensor, one for each axis; each is the call of an operator."""

    __slots__ = ()
    _operator: ClassVar[OpDef]

    def __getitem__(self, axis: object) -> Call:
        """The value for an axis, which counts from the end if negative and the rank is known.

        Errors:
            MisuseError: `axis` is not an integer; StructInfoError: it is out of range.
        """
        return self._operator.make(self.tensor, self._index(axis))

    def _index(self, axis: object) -> Expr:
        if isinstance(axis, Expr):
            return axis
        if isinstance(axis, tir.PrimExpr) and not isinstance(axis, tir.IntImm):
            return PrimValue(axis)
        try:
            if isinstance(axis, (bool, np.bool_)):
                raise TypeError
            position = axis.value if isinstance(axis, tir.IntImm) else operator.index(axis)  # type: ignore[arg-type]
        except TypeError:
            actual = "a slice" if isinstance(axis, slice) else repr(axis)
            raise MisuseError(
                f"the index of .{self._name} is an integer, found {actual:.60}", about=axis
            ) from None
        rank = self._rank()
        if rank is not None:
            position = normal_axis(position, rank)
        elif position < 0:
            raise refuse(
                f"axis {position} is counted from the end, but the rank is not known",
                axis,
                hint="declare the rank with R.match_cast first",
            )
        return PrimValue(ops.const(position, INT64))

    def _rank(self) -> int | None:
        sinfo = self.tensor.struct_info
        return sinfo.ndim if isinstance(sinfo, TensorStructInfo) and sinfo.ndim >= 0 else None

    def __iter__(self) -> Iterator[Call]:
        """The numbers of all axes, where the rank is known."""
        return iter([self[axis] for axis in range(len(self))])

    def __len__(self) -> int:
        rank = self._rank()
        if rank is None:
            raise MisuseError(
                f"the rank of {_shown_tensor(self.tensor)} is not known",
                hint="index it, or declare the rank with R.match_cast first",
            )
        return rank


class TensorShape(TensorSizes):
    """`x.shape` of a tensor."""

    __slots__ = ()
    display_name = "shape that is not known while the program is parsed"
    hint = "name its sizes with R.match_cast first, or take R.shape_of"
    _operator = tensor_shape_i
    _name = "shape"


class TensorStrides(TensorSizes):
    """`x.strides` of a tensor."""

    __slots__ = ()
    display_name = "list of strides that is not known while the program is parsed"
    hint = "name the sizes of the tensor with R.match_cast first"
    _operator = tensor_stride_i
    _name = "strides"


Inspected: TypeAlias = Call | TensorDtype | TensorSizes


def inspected(tensor: Expr, name: str) -> Inspected:
    """`tensor.name` as a call, or as a property whose members are calls."""
    match name:
        case "dtype":
            return TensorDtype(tensor)
        case "shape":
            return TensorShape(tensor)
        case "strides":
            return TensorStrides(tensor)
        case "ndim":
            return tensor_ndim.make(tensor)
        case "byte_offset":
            return tensor_byte_offset.make(tensor)
        case _:
            return tensor_elem_offset.make(tensor)


def known_property(tensor: TensorStructInfo, name: str) -> object:
    """The value of `x.name` of a tensor `x` for a program being parsed; None if it is not known."""
    sizes = tensor.get_shape()
    match name:
        case "dtype":
            return None if tensor.dtype.is_void else tensor.dtype
        case "ndim":
            return None if tensor.ndim < 0 else tensor.ndim
        case "shape" | "strides":
            return sizes if sizes is None or name == "shape" else strides_of(sizes)
        case _:
            return None if sizes is None else ops.const(0, UINT64)


def property_of(tensor: Expr, name: str) -> object:
    """`tensor.name` for Python code: its known value while a function is parsed, else calls."""
    sinfo = tensor.struct_info
    if is_evaluating() and isinstance(sinfo, TensorStructInfo):
        value = known_property(sinfo, name)
        if value is not None:
            return value
    return inspected(tensor, name)


def hint_for(value: object) -> str | None:
    """The hint for a property that is read when the program runs, where that is not accepted."""
    if isinstance(value, _Property):
        return value.hint
    if isinstance(value, Call) and value.op == tensor_shape_i.op:
        return TensorShape.hint
    return None


NUMBERS = {"ndim": INT32, "bits": UINT8, "type_code": UINT8, "lanes": UINT16}
"""The properties that are numbers of Python where they are known, and their datatypes."""

PROPERTIES = frozenset(("shape", "ndim", "dtype", "strides", "byte_offset", "elem_offset"))
"""The properties of a tensor that programs can read."""


def _shown_tensor(tensor: Expr) -> str:
    return getattr(tensor, "name_hint", "a tensor")
