"""Expressions: variables, literals, tuples and calls, compared by identity."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, counted, digits
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, as_attrs
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes.base import (
    MAX_NODES,
    Expr,
    StructInfo,
    as_declared,
    as_members,
    as_struct_info,
    check_expr,
    check_kind,
    check_name,
    convert_declared,
    count_nodes,
    member,
    set_fields,
)
from relaxpy.ir.relax.nodes.evaluation import evaluated
from relaxpy.ir.relax.nodes.struct_info import (
    ObjectStructInfo,
    PrimStructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_infos,
    as_scalar,
)
from relaxpy.ir.tir import expr as tir, ops

if TYPE_CHECKING:
    from relaxpy.errors import Span

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalVar(Expr):
    """An entry of the module, by name (AST-8). Its info is the module's to give."""

    _fields = ("name_hint",)
    _variable = True
    name_hint: str
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_name(self.name_hint, "the name of a variable")
        convert_declared(self)


@dataclass(frozen=True, slots=True)
class Id:
    """What is one and the same wherever a variable is meant: as `Var.vid`, with its name."""

    var: Var

    @property
    def name_hint(self) -> str:
        """The name of the variable."""
        return self.var.name_hint


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """A local variable (AST-7): the name is a hint, the object is the variable.

    The `vid` of another variable lends its name.
    """

    _fields = ("struct_info",)
    _variable = True
    name_hint: str
    struct_info: StructInfo | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        if isinstance(self.name_hint, Id):
            set_fields(self, name_hint=self.name_hint.name_hint)
        check_name(self.name_hint, "the name of a variable")
        convert_declared(self)

    @property
    def vid(self) -> Id:
        """The identity of this variable."""
        return Id(self)

    @property
    def struct_info_annotation(self) -> StructInfo | None:
        """The info the variable was declared with, or that its value gave it."""
        return self.struct_info


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataflowVar(Var):
    """A variable that lives inside one DataflowBlock (SC-7)."""


MASKED = (
    "found an array with masked elements, which tensors cannot have: "
    "x.filled(value) is the array with a value in their place"
)


def is_masked(value: object) -> bool:
    """Whether `value` is an array of NumPy's that masks some of its elements."""
    if type(value) is np.ndarray or not isinstance(value, np.ndarray):
        return False
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Expr):
    """A tensor literal (AST-6); the array is copied unless it already cannot be written."""

    _fields = ("data",)
    _compared_as: ClassVar[Mapping[str, str]] = {"data": "placed_data"}
    data: Array
    struct_info: StructInfo | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        if is_masked(self.data):
            raise MisuseError(MASKED, about=self.data)
        try:
            data = np.asarray(self.data)
        except ValueError as error:
            raise MisuseError(f"no tensor can be made of {self.data!r:.60}: {error}") from None
        dtype = DataType(data.dtype)
        if not data.dtype.isnative:
            data = data.astype(data.dtype.newbyteorder("="))
        if data is not self.data or _may_be_written(data):
            data = data.copy()
            data.flags.writeable = False
        info = self.struct_info
        if info is None:
            info = TensorStructInfo(data.shape, dtype)  # type: ignore[arg-type]
        set_fields(self, data=data, struct_info=_constant_info(data, as_struct_info(info)))

    @property
    def spread_info(self) -> StructInfo | None:
        """Of a literal that several devices hold together, how they do."""
        return None if isinstance(self.struct_info, TensorStructInfo) else self.struct_info

    @property
    def placed_data(self) -> Array | tuple[Array, StructInfo]:
        """What makes two literals the same: the data, and how several devices hold them."""
        return self.data if self.spread_info is None else (self.data, self.spread_info)


def _constant_info(data: Array, info: StructInfo) -> StructInfo:
    """DER-4: `info`, which says of the literal what it is, and may say where it lies.

    Errors:
        MisuseError: it says something else.
    """
    whole = getattr(info, "tensor_sinfo", info)  # of a tensor over several devices
    if not isinstance(whole, TensorStructInfo) or not (
        whole.dtype == data.dtype
        and whole.ndim == data.ndim
        and (
            whole.shape is None
            or whole.get_shape() == tuple(ops.const(s, INT64) for s in data.shape)
        )
    ):
        found = TensorStructInfo(data.shape, DataType(data.dtype))  # type: ignore[arg-type]
        raise MisuseError(f"the literal is {found}, not {info}", rule="DER-4", about=info)
    return info


def _may_be_written(data: Array) -> bool:
    """Whether an array, or one that it is a view of, can be changed."""
    base: object = data
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrimValue(Expr):
    """A scalar (AST-6): an int or bool is read as int64, a float as float32."""

    _fields = ("value",)
    value: tir.PrimExpr
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        value: object = self.value
        if isinstance(value, (bool, int)):
            value = ops.const(int(value), INT64)
        scalar = as_scalar(value)
        info = self.struct_info
        if not isinstance(info, PrimStructInfo) or info.value is not scalar:
            info = PrimStructInfo(scalar.dtype, scalar)
        set_fields(self, value=scalar, struct_info=info)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StringImm(Expr):
    """A string (AST-6)."""

    _fields = ("value",)
    value: str
    struct_info: StructInfo | None = field(default=ObjectStructInfo(), kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        check_name(self.value, "the value of a StringImm")
        if not isinstance(self.struct_info, ObjectStructInfo):
            set_fields(self, struct_info=ObjectStructInfo())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataTypeImm(Expr):
    """A datatype as a value (AST-6)."""

    _fields = ("value",)
    value: DataType
    struct_info: StructInfo | None = field(default=ObjectStructInfo(), kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        set_fields(self, value=DataType(self.value))
        if not isinstance(self.struct_info, ObjectStructInfo):
            set_fields(self, struct_info=ObjectStructInfo())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuple(Expr):
    """A tuple of expressions (AST-9); its info is known once those of its fields are."""

    _fields = ("fields",)
    fields: tuple[Expr, ...]
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        given: object = self.fields
        fields = tuple(given if isinstance(given, Expr) else as_members(given, "fields", "AST-9"))
        # An operator is no value, which is for the check of well-formedness to say (WF-9).
        fields = tuple(f if isinstance(f, Op) else convert_to_expr(f) for f in fields)
        declared = as_declared(self.struct_info)
        set_fields(self, fields=fields, struct_info=_tuple_info(fields, declared))

    @property
    def has_field_infos(self) -> bool:
        """Whether its struct info consists of those of its fields."""
        return self.struct_info is not None and all(f.struct_info for f in self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @override
    def __getitem__(self, index: int) -> Expr:
        return member(self.fields, index, "Tuple")

    @override
    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)


def _tuple_info(fields: tuple[Expr, ...], given: StructInfo | None) -> StructInfo | None:
    """DER-5: what a tuple of these fields is once they have their infos, whatever is `given`."""
    infos = tuple(i for f in fields if (i := getattr(f, "struct_info", None)) is not None)
    if len(infos) < len(fields):
        return given
    if given is None and count_nodes(infos) > MAX_NODES:
        return None  # an error only where the struct info of the tuple is needed
    if (
        isinstance(given, TupleStructInfo)
        and len(given.fields) == len(infos)
        and all(a is b or a == b for a, b in zip(given.fields, infos, strict=True))
    ):
        return given
    return TupleStructInfo(infos)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleGetItem(Expr):
    """Field `index` of a tuple, counted from 0 (AST-9)."""

    _fields = ("tuple_value", "index")
    tuple_value: Expr
    index: int
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        check_kind(self.tuple_value, Expr, "a Relax expression", "AST-9")
        index = _as_index(self.index)
        if index is None or index < 0:
            raise MisuseError(
                f"a tuple index is an integer from 0, found {self.index!r}",
                rule="AST-9",
                about=self.index,
            )
        found = as_declared(self.struct_info)
        info = self.tuple_value.struct_info
        if found is None and isinstance(info, TupleStructInfo):
            if index >= len(info.fields):
                raise MisuseError(
                    f"index {index} is out of bounds for a tuple of {len(info.fields)} fields",
                    rule="DER-33",
                    about=self.index,
                )
            found = info.fields[index]
        set_fields(self, index=index, struct_info=found)


def _as_index(value: object) -> int | None:
    """`value` as a Python integer, or None; True and False are none."""
    if type(value) is int:
        return value
    try:
        return None if isinstance(value, (bool, np.bool_)) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def project_tuple(expr: Expr, index: object) -> TupleGetItem:
    """What `expr[index]` is."""
    place, info = _as_index(index), expr.struct_info
    if place is None:
        raise MisuseError(
            f"[ ] projects a tuple and takes an integer, found {index!r}",
            rule="AST-9",
            hint="take it apart: first, *rest = ..."
            if isinstance(info, TupleStructInfo)
            else "to index a tensor use R.take or R.strided_slice",
        )
    if isinstance(info, TupleStructInfo) and not 0 <= place < len(info.fields):
        fields = counted(len(info.fields), "field")
        raise IndexError(f"index {index} is out of range for a tuple with {fields}")
    return evaluated(TupleGetItem(expr, place))


def unpack_tuple(expr: Expr) -> Iterator[Expr]:
    """What going through `expr` gives: its fields."""
    info = expr.struct_info
    if not isinstance(info, TupleStructInfo):
        found = "" if info is None else f", found {info}"
        raise MisuseError(
            f"only a tuple whose fields are known can be gone through{found}", rule="DER-32"
        )
    return (evaluated(TupleGetItem(expr, index)) for index in range(len(info.fields)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """`op` applied to `args` (AST-15); `sinfo_args` are infos given in the text.

    `info_is_derived` tells calls whose info comes from their operator from those built with one.
    """

    _fields = ("op", "args", "attrs", "sinfo_args")
    op: Expr | Op
    args: tuple[Expr, ...]
    attrs: Attrs = EMPTY_ATTRS
    sinfo_args: tuple[StructInfo, ...] = ()
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None
    info_is_derived: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        check_expr(self.op)
        args = as_members(self.args, "arguments", "AST-15")
        for arg in args:
            check_expr(arg)
        if args is not self.args:
            set_fields(self, args=args)
        if type(self.attrs) is not Attrs:
            set_fields(self, attrs=as_attrs(self.attrs))
        if self.sinfo_args or type(self.sinfo_args) is not tuple:
            set_fields(self, sinfo_args=as_infos(self.sinfo_args) if self.sinfo_args else ())
        convert_declared(self)

    def __bool__(self) -> bool:
        """Whether this is a call, which it is; Python must not take that for what it gives.

        Errors:
            MisuseError (also TypeError): it compares tensors, as `max(x, y)` would.
        """
        if isinstance(self.op, Op) and self.op.record.ordering:
            raise MisuseError(
                "whether one tensor is greater than another is known only when the program runs",
                about=self,
                hint="write R.maximum(x, y) or R.minimum(x, y), or choose by R.where(x > y, x, y)",
            )
        return True


def make_call(
    callee: Expr, args: tuple[object, ...], attrs: Mapping[str, object] | None = None
) -> Call:
    """What `callee(*args)` is."""
    return evaluated(Call(callee, tuple(convert_to_expr(a) for a in args), as_attrs(attrs)))


@user_facing
def const(value: object, dtype: str | None = None) -> Constant:
    """A tensor literal; without `dtype`, int64 data become int32 and float64 data float32.

    With `dtype`, a string stands for an element that Python has no literal of: "nan", "inf", or its
    bits, as in "0x7fc00001".

    Errors:
        MisuseError (also TypeError): `value` is no array of numbers.
    """
    if is_masked(value):
        raise MisuseError(MASKED, about=value)
    if isinstance(value, np.ndarray) and dtype is not None:
        data = value.astype(DataType(dtype).numpy())
    else:
        try:
            data = _array(value, DataType(dtype) if dtype else None)
        except (ValueError, TypeError, OverflowError) as error:
            why = "lists differ in length" if "inhomogeneous" in str(error) else str(error)
            raise MisuseError(
                f"no tensor can be made of {digits(value)}: {why}", about=value
            ) from None
        if dtype is None and not isinstance(value, np.generic):
            data = _narrowed(data, value)
    if data.dtype.hasobject and isinstance(value, int):
        raise MisuseError(f"no datatype holds {digits(value)}", rule="VAL-1", about=value)
    if data.dtype.hasobject or data.dtype.kind in "USmMc":
        raise MisuseError(
            f"a tensor holds numbers or Booleans, found {digits(value)}", rule="VAL-1", about=value
        )
    return Constant(data)


def _narrowed(data: Array, value: object) -> Array:
    """What Python's numbers are in tensors: 32 bits wide."""
    narrower = {"int64": "int32", "float64": "float32"}.get(data.dtype.name)
    if narrower is None:
        return data
    with np.errstate(over="ignore"):
        found = data.astype(narrower)
    if narrower == "int32" and not np.array_equal(found, data):
        raise MisuseError(
            f"int32 cannot hold {value!r:.60}",
            rule="DT-8",
            hint='name the datatype: const(..., "int64")',
            about=value,
        )
    return found


def _array(value: object, dtype: DataType | None) -> Array:
    """An array of `value`, where "nan", "inf", "-inf" and bits may stand among floats."""
    if dtype is None:
        return np.array(value)
    with np.errstate(over="ignore"):  # what is too large for the datatype is infinite in it
        try:
            if dtype.is_float and dtype.family != "float":  # NumPy's own floats read strings, too
                return np.array(value, np.float64).astype(dtype.numpy())
            return np.array(value, dtype.numpy())
        except ValueError:
            elements = np.array(value, np.object_)
            if not any(map(_is_bits, elements.flat)):
                raise
            found = np.empty(elements.shape, dtype.numpy())
            word = np.dtype(f"u{found.itemsize}")
            for i, element in enumerate(elements.flat):
                if _is_bits(element):
                    found.flat[i] = np.array(int(element, 16), word).view(found.dtype)
                else:
                    found.flat[i] = _array(element, dtype)
            return found


def _is_bits(element: object) -> TypeGuard[str]:
    return isinstance(element, str) and element.startswith("0x")


@user_facing
def convert_to_expr(value: object) -> Expr:
    """`value` as an expression: numbers as PrimValue, strings, sequences as Tuple.

    Errors:
        MisuseError (also TypeError): there is no such expression.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return PrimValue(ops.const(value, "bool"))
    if isinstance(value, int):
        return PrimValue(ops.const(value, INT64))
    if isinstance(value, float) and not isinstance(value, np.generic):
        return PrimValue(ops.const(value, "float64"))
    if isinstance(value, (np.bool_, np.number)):
        return PrimValue(as_scalar(value))
    if isinstance(value, tir.PrimExpr) and not isinstance(value, tir.StringImm):
        return PrimValue(value)
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (tuple, list)):
        return Tuple(tuple(convert_to_expr(v) for v in value))
    raise MisuseError(
        f"expected a Relax expression, found {type(value).__name__} {value!r:.60}",
        about=value,
        hint="the value of nothing is unit, ()" if value is None else None,
    )
