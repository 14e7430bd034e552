"""Expressions: variables, literals, tuples and calls, compared by identity."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeGuard, TypeVar, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, counted, unexpected
from relaxpy.ir.core.dtype import INT64, Array, DataType
from relaxpy.ir.core.fork_lock import ForkLock
from relaxpy.ir.core.memo import LARGE, Elements
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node, as_attrs, set_fields
from relaxpy.ir.core.tensor import (
    MASKED,
    Tensor,
    check_elements,
    is_masked,
    literal_array,
    read_array,
)
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import base_classes as bases
from relaxpy.ir.relax.nodes.struct_info import (
    ObjectStructInfo,
    PrimStructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_scalar,
    as_struct_infos,
)
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.missing import described, digits
from relaxpy.support.scopes import ScopedValue

if TYPE_CHECKING:
    from relaxpy.errors import Span


Evaluate: TypeAlias = Callable[[bases.Expr], bases.Expr]
E = TypeVar("E", bound=bases.Expr)

_evaluate: ScopedValue[Evaluate | None] = ScopedValue("relaxpy_evaluate")


@contextmanager
def evaluating(evaluate: Evaluate | None) -> Iterator[None]:
    """Pass each expression to `evaluate` as soon as user code builds it; None switches this off."""
    with _evaluate.set(evaluate):
        yield


def is_evaluating() -> bool:
    """True if user code is building expressions of a program that is being parsed."""
    return _evaluate.get() is not None


def evaluated(expr: E) -> E:
    """Evaluate an expression that user code has just built, if a program is being parsed."""
    evaluate = _evaluate.get()
    return expr if evaluate is None else cast("E", evaluate(expr))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalVar(bases.Expr):
    """A reference to a function of the module by name (AST-8); the module knows its signature."""

    _fields = ("name_hint",)
    _variable = True
    name_hint: str
    struct_info: bases.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        bases.check_name(self.name_hint, "the name of a variable")
        bases.convert_declared(self)

    @override
    def __prim_expr__(self) -> tir.PrimExpr:
        """Refuse the function as a scalar: in a module it may hide a number of its name."""
        name = self.name_hint
        raise MisuseError(
            f"expected a scalar expression, found function {name} of the module",
            rule="AST-21",
            about=self,
            hint=f"if a value of Python is meant, the function hides it: rename one {name}",
        )


@dataclass(frozen=True, slots=True)
class Id:
    """The identity of a variable, with its name (`Var.vid`)."""

    var: Var

    @property
    def name_hint(self) -> str:
        """The name of the variable."""
        return self.var.name_hint


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(bases.Expr):
    """A local variable (AST-7), identified by the object; the name is a hint.

    The `vid` of another variable as a name stands for the name of that variable.
    """

    _fields = ("struct_info",)
    _variable = True
    name_hint: str
    struct_info: bases.StructInfo | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        if isinstance(self.name_hint, Id):
            set_fields(self, name_hint=self.name_hint.name_hint)
        bases.check_name(self.name_hint, "the name of a variable")
        bases.convert_declared(self)

    @property
    def name(self) -> str:
        """The name of `name_hint` in TVM after v0.27."""
        return self.name_hint

    @property
    def vid(self) -> Id:
        """The identity of this variable."""
        return Id(self)

    @property
    def struct_info_annotation(self) -> bases.StructInfo | None:
        """TVM's name for the struct info of the variable."""
        return self.struct_info


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataflowVar(Var):
    """A variable that is in scope only inside one DataflowBlock (SC-7)."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(bases.Expr):
    """A tensor literal (AST-6); the array is copied unless it is already read-only.

    `data` is an array of NumPy that also has `numpy()`, as the tensors of TVM have. If it is large,
    and after `release`, its slot is empty, and `_elements` returns it.
    """

    _fields = ("data",)
    _compared_as: ClassVar[Mapping[str, str]] = {"data": "data_and_placement"}
    data: Array
    struct_info: bases.StructInfo | None = None
    span: Span | None = None
    _elements: Elements = field(init=False)

    def __post_init__(self) -> None:
        given = self.data.view(np.ndarray) if isinstance(self.data, Tensor) else self.data
        data = literal_array(given, self.data, "VAL-1")
        actual = TensorStructInfo(data.shape, DataType(data.dtype))
        declared = bases.as_declared(self.struct_info)
        if declared is not None:
            _check_constant(actual, declared)
        sinfo = actual if declared is None else declared
        kept = data is given and isinstance(self.data, Tensor)
        tensor = self.data if kept else data.view(Tensor)
        set_fields(self, data=tensor, struct_info=sinfo)
        if data.nbytes >= LARGE or not data.flags.aligned:
            self._set_apart()

    @override
    def _nodes_in_fields(self) -> list[Node]:
        return []

    if not TYPE_CHECKING:  # it would make a type checker accept every name

        def __getattr__(self, name):
            if name == "data":
                return self._elements()
            return bases.Expr.__getattribute__(self, name)

    def _set_apart(self) -> Elements:
        """Move the array from the slot `data` to its elements."""
        with _RELEASING:
            if not hasattr(self, "_elements"):
                set_fields(self, _elements=Elements(self.data))  # type: ignore[arg-type]
                object.__delattr__(self, "data")
        return self._elements

    def release(self, restore: Callable[[], Array]) -> None:
        """Release the array; `restore` recomputes it, bit for bit, when `data` is read."""
        self._set_apart().release(restore)

    def memory(self, *, aligned: bool = True) -> Array:
        """The array `data`, or one at any address; `noted_reads` do not have it."""
        if not hasattr(self, "_elements"):
            return self.data
        return self._elements.aligned() if aligned else self._elements.anywhere()

    @property
    def elements(self) -> Array | Elements:
        """The array `data`, or that which returns it if it is large or released."""
        return self._elements if hasattr(self, "_elements") else self.data

    @property
    def data_sinfo(self) -> TensorStructInfo:
        """The datatype and the dimensions of `data`, which is not read."""
        of = self.elements
        return TensorStructInfo(of.shape, DataType(of.dtype))

    @property
    def size(self) -> int:
        """The number of the elements of `data`, which is not read."""
        return prod(self.elements.shape)

    @property
    def nbytes(self) -> int:
        """The size of `data`, which is not read.

        Units: bytes
        """
        return self.size * self.elements.dtype.itemsize

    @property
    def distributed_sinfo(self) -> bases.StructInfo | None:
        """The struct info of a literal that is distributed over several devices."""
        return None if isinstance(self.struct_info, TensorStructInfo) else self.struct_info

    @property
    def data_and_placement(self) -> Array | Elements | tuple[object, ...]:
        """The key of structural equality: the data, and the struct info if it is distributed."""
        placed, elements = self.distributed_sinfo, self.elements
        return elements if placed is None else (elements, placed)


_RELEASING: Final = ForkLock()


def _check_constant(actual: TensorStructInfo, declared: bases.StructInfo) -> None:
    """DER-4: the declared struct info fits the data, and may add a device or a placement."""
    tensor = getattr(declared, "tensor_sinfo", declared)
    if (
        not isinstance(tensor, TensorStructInfo)
        or (tensor.dtype, tensor.ndim) != (actual.dtype, actual.ndim)
        or (tensor.shape is not None and tensor.get_shape() != actual.get_shape())
    ):
        raise MisuseError(f"the literal is {actual}, not {declared}", rule="DER-4", about=declared)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrimValue(bases.Expr):
    """A scalar (AST-6): a Python int or bool becomes int64, a float float32."""

    _fields = ("value",)
    value: tir.PrimExpr
    struct_info: bases.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            value: tir.ExprLike,
            span: Span | None = ...,
            *,
            struct_info: bases.StructInfo | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        value: object = self.value
        if isinstance(value, (bool, int)):
            value = ops.const(int(value), INT64)
        scalar = as_scalar(value)
        sinfo = self.struct_info
        if not isinstance(sinfo, PrimStructInfo) or sinfo.value is not scalar:
            sinfo = PrimStructInfo(scalar.dtype, scalar)
        set_fields(self, value=scalar, struct_info=sinfo)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StringImm(bases.Expr):
    """A string (AST-6)."""

    _fields = ("value",)
    value: str
    struct_info: bases.StructInfo | None = field(default=ObjectStructInfo(), kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        bases.check_name(self.value, "the value of a StringImm")
        if not isinstance(self.struct_info, ObjectStructInfo):
            set_fields(self, struct_info=ObjectStructInfo())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataTypeImm(bases.Expr):
    """A datatype as a value (AST-6)."""

    _fields = ("value",)
    value: DataType
    struct_info: bases.StructInfo | None = field(default=ObjectStructInfo(), kw_only=True)
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self, value: str, span: Span | None = ..., *, struct_info: bases.StructInfo | None = ...
        ) -> None: ...

    def __post_init__(self) -> None:
        set_fields(self, value=DataType(self.value))
        if not isinstance(self.struct_info, ObjectStructInfo):
            set_fields(self, struct_info=ObjectStructInfo())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuple(bases.Expr):
    """A tuple of expressions (AST-9); its struct info is known once those of all fields are."""

    _fields = ("fields",)
    fields: tuple[bases.Expr, ...]
    struct_info: bases.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            fields: bases.Expr | Sequence[Any],
            span: Span | None = ...,
            *,
            struct_info: bases.StructInfo | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        members: Any = self.fields
        if not isinstance(members, bases.Expr):
            members = bases.as_members(members, "fields", "AST-9")
        # An operator is not a value, but this is reported by the well-formedness check (WF-9).
        fields = tuple(f if isinstance(f, Op) else convert_to_expr(f) for f in members)
        declared = bases.as_declared(self.struct_info)
        set_fields(self, fields=fields, struct_info=_tuple_sinfo(fields, declared))

    @property
    def has_field_sinfos(self) -> bool:
        """True if its struct info consists of those of its fields."""
        return self.struct_info is not None and all(f.struct_info for f in self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @override
    def __getitem__(self, index: int) -> bases.Expr:
        return bases.member(self.fields, index, "Tuple")

    @override
    def __iter__(self) -> Iterator[bases.Expr]:
        return iter(self.fields)


def _tuple_sinfo(
    fields: tuple[bases.Expr | Op, ...], declared: bases.StructInfo | None
) -> bases.StructInfo | None:
    """DER-5: the struct info of the fields, or the declared one if some fields have none."""
    sinfos = tuple(s for f in fields if (s := getattr(f, "struct_info", None)) is not None)
    if len(sinfos) < len(fields):
        return declared
    if declared is None and bases.count_nodes(sinfos) > bases.MAX_NODES:
        return None  # an error only where the struct info of the tuple is needed
    if (
        isinstance(declared, TupleStructInfo)
        and len(declared.fields) == len(sinfos)
        and all(a is b or a == b for a, b in zip(declared.fields, sinfos, strict=True))
    ):
        return declared
    return TupleStructInfo(sinfos)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleGetItem(bases.Expr):
    """Field `index` of a tuple, counted from 0 (AST-9)."""

    _fields = ("tuple_value", "index")
    tuple_value: bases.Expr
    index: int
    struct_info: bases.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        bases.check_kind(self.tuple_value, bases.Expr, "a Relax expression", "AST-9")
        index = _as_index(self.index)
        if index is None or index < 0:
            raise MisuseError(
                f"a tuple index is an integer >= 0, found {self.index!r}",
                rule="AST-9",
                about=self.index,
            )
        sinfo = bases.as_declared(self.struct_info)
        operand = self.tuple_value.struct_info
        if sinfo is None and isinstance(operand, TupleStructInfo):
            if index >= len(operand.fields):
                raise MisuseError(
                    f"index {index} is out of bounds for a tuple of {len(operand.fields)} fields",
                    rule="DER-33",
                    about=self.index,
                )
            sinfo = operand.fields[index]
        set_fields(self, index=index, struct_info=sinfo)


def _as_index(value: object) -> int | None:
    """`value` as a Python integer; None if it is not one, or is a Boolean."""
    if type(value) is int:
        return value
    try:
        return None if isinstance(value, (bool, np.bool_)) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def project_tuple(expr: bases.Expr, index: object) -> TupleGetItem:
    """The value of `expr[index]`, where `expr` may be a tuple."""
    number, sinfo = _as_index(index), expr.struct_info
    if number is None:
        raise MisuseError(
            f"[ ] projects a tuple and takes an integer, found {index!r}",
            rule="AST-9",
            hint="unpack it: first, *rest = ..."
            if isinstance(sinfo, TupleStructInfo)
            else "a tensor is indexed once its struct info is known, or by R.take and "
            "R.strided_slice",
        )
    if isinstance(sinfo, TupleStructInfo) and not 0 <= number < len(sinfo.fields):
        fields = counted(len(sinfo.fields), "field")
        raise IndexError(f"index {index} is out of range for a tuple with {fields}")
    return evaluated(TupleGetItem(expr, number))


def unpack_tuple(expr: bases.Expr) -> Iterator[bases.Expr]:
    """The fields of `expr`, as Python iterates over it."""
    sinfo = expr.struct_info
    if not isinstance(sinfo, TupleStructInfo):
        actual = "" if sinfo is None else f", found {sinfo}"
        raise MisuseError(
            f"only a tuple whose fields are known can be iterated over{actual}", rule="DER-32"
        )
    return (evaluated(TupleGetItem(expr, index)) for index in range(len(sinfo.fields)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(bases.Expr):
    """`op` applied to `args` (AST-15); `sinfo_args` are struct infos that the source states.

    `sinfo_is_derived` means that the struct info is the result of derivation, not a declaration.
    """

    _fields = ("op", "args", "attrs", "sinfo_args")
    op: bases.Expr | Op
    args: tuple[bases.Expr, ...]
    attrs: Attrs = EMPTY_ATTRS
    sinfo_args: tuple[bases.StructInfo, ...] = ()
    struct_info: bases.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None
    sinfo_is_derived: bool = field(default=False, init=False)

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            op: bases.Expr | Op,
            args: Sequence[bases.Expr],
            attrs: Mapping[str, object] | None = ...,
            sinfo_args: Sequence[bases.StructInfo] = ...,
            span: Span | None = ...,
            *,
            struct_info: bases.StructInfo | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        bases.check_expr(self.op)
        args = bases.as_members(self.args, "arguments", "AST-15")
        for arg in args:
            bases.check_expr(arg)
        if args is not self.args:
            set_fields(self, args=args)
        if type(self.attrs) is not Attrs:
            set_fields(self, attrs=as_attrs(self.attrs))
        if self.sinfo_args or type(self.sinfo_args) is not tuple:
            set_fields(self, sinfo_args=as_struct_infos(self.sinfo_args) if self.sinfo_args else ())
        bases.convert_declared(self)

    @property
    def ty_args(self) -> tuple[bases.StructInfo, ...]:
        """The name of `sinfo_args` in TVM after v0.22."""
        return self.sinfo_args

    def __bool__(self) -> bool:
        """True: the call as a node, not its result.

        Errors:
            MisuseError (also TypeError): Python would use a comparison of tensors as a condition,
                as `max(x, y)` does.
        """
        if isinstance(self.op, Op) and self.op.record.ordering:
            raise MisuseError(
                "whether one tensor is greater than another is known only when the program runs",
                about=self,
                hint="write R.maximum(x, y) or R.minimum(x, y), or choose by R.where(x > y, x, y)",
            )
        return True


def is_call_of(value: object, *names: str) -> TypeGuard[Call]:
    """True if a value is a call of an operator with one of these names."""
    return isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in names


def make_call(
    callee: bases.Expr, args: tuple[object, ...], attrs: Mapping[str, object] | None = None
) -> Call:
    """The value of `callee(*args)`."""
    return evaluated(Call(callee, tuple(convert_to_expr(a) for a in args), as_attrs(attrs)))


@user_facing
def const(value: object, dtype: str | None = None) -> Constant:
    """A tensor literal; without `dtype`, int64 data become int32 and float64 data float32.

    With `dtype`, a string stands for an element that has no Python literal: "nan", "inf", or its
    bits, as in "0x7fc00001".

    Errors:
        MisuseError (also TypeError): `value` is not an array of numbers.
    """
    if is_masked(value):
        raise MisuseError(MASKED, about=value)
    target = DataType(dtype) if dtype else None
    if target is not None:
        target.of_elements()
    if isinstance(value, np.ndarray) and target is not None:
        data = value.astype(target.numpy(), copy=False)
    else:
        try:
            data = _array(read_array(value), target)
        except (ValueError, TypeError, OverflowError, BufferError) as error:
            why = "lists differ in length" if "inhomogeneous" in str(error) else str(error)
            raise MisuseError(
                f"cannot make a tensor of {digits(value)}: {why}", rule="VAL-1", about=value
            ) from None
        if dtype is None and not isinstance(value, np.generic):
            data = _narrowed(data, value)
    check_elements(data, value, "VAL-1")
    if data is not value:
        data.flags.writeable = False  # already a copy, so that the literal need not copy it
    return Constant(data)


def _narrowed(data: Array, value: object) -> Array:
    """The 32-bit array that Python numbers become in tensors."""
    narrower = {"int64": "int32", "float64": "float32"}.get(data.dtype.name)
    if narrower is None:
        return data
    with np.errstate(over="ignore"):
        result = data.astype(narrower)
    if narrower == "int32" and not np.array_equal(result, data):
        raise MisuseError(
            f"int32 cannot represent {value!r:.60}",
            rule="DT-8",
            hint='name the datatype: const(..., "int64")',
            about=value,
        )
    return result


def _array(value: object, dtype: DataType | None) -> Array:
    """An array of `value`, which may contain "nan", "inf", "-inf" and bits as strings."""
    if dtype is None:
        return value if isinstance(value, np.ndarray) else np.array(value)
    with np.errstate(over="ignore"):  # floats that are too large become infinite
        try:
            if dtype.is_float and dtype.family != "float":  # NumPy's own floats accept strings
                return np.array(value, np.float64).astype(dtype.numpy())
            return np.array(value, dtype.numpy())
        except ValueError:
            elements = np.array(value, np.object_)
            if not any(map(_is_bits, elements.flat)):
                raise
            result = np.empty(elements.shape, dtype.numpy())
            word = np.dtype(f"u{result.itemsize}")
            for i, element in enumerate(elements.flat):
                if _is_bits(element):
                    result.flat[i] = np.array(int(element, 16), word).view(result.dtype)
                else:
                    result.flat[i] = _array(element, dtype)
            return result


def _is_bits(element: object) -> TypeGuard[str]:
    return isinstance(element, str) and element.startswith("0x")


@user_facing
def convert_to_expr(value: object) -> bases.Expr:
    """Convert numbers to PrimValue, strings to StringImm, and sequences to Tuple.

    Errors:
        MisuseError (also TypeError): `value` cannot be converted.
    """
    if isinstance(value, bases.Expr):
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
        try:
            return Tuple(tuple(convert_to_expr(v) for v in value))
        except RecursionError:
            raise MisuseError("a list is nested too deeply, or contains itself") from None
    raise MisuseError(
        f"expected a Relax expression, found {described(value)}",
        rule="AST-15",
        about=value,
        hint="the value for nothing is the empty tuple, ()"
        if value is None
        else "several values are a tuple"
        if isinstance(value, dict)
        else f"call it: {described(value)}(...)"
        if isinstance(getattr(value, "op", None), Op)
        else "R.stack and R.concat join tensors, NumPy does not"
        if isinstance(value, np.ndarray) and value.dtype == object
        else "relax.const(array) is a constant"
        if hasattr(value, "__dlpack__")
        else None,
    )


def set_name(node: Any, name: str) -> None:
    """Set the name of a variable or buffer of a program that is being built.

    Names are hints and do not affect the meaning of a program. The variables of a buffer that are
    named after it are renamed, too.

    Errors:
        MisuseError (also TypeError): `node` is neither, or `name` is not a string.
    """
    check_type(name, str, "a variable is named by a string")
    match node:
        case IterVar(var=var):
            set_name(var, name)
        case Buffer():
            for field, suffix in ((node.data, ""), (node.elem_offset, "_elem_offset")):
                if isinstance(field, tir.Var) and field.name == node.name + suffix:
                    set_name(field, name + suffix)
            object.__setattr__(node, "name", name)
        case tir.Var():
            object.__setattr__(node, "name", name)
        case Var():
            object.__setattr__(node, "name_hint", name)
        case _:
            raise unexpected(node, "expected a variable or a buffer to rename")
