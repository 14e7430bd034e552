"""Types and kinds of Relay, and their text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar as TypingVar

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core import node
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.traverse import preorder
from relaxpy.ir.equality.structural import structural_equal, structural_hash
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.plugins.relay.expr import Constructor


class TypeKind(IntEnum):
    """The kind of a type or type parameter (RLY-17), with TVM's numbers."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
    Shape = 3
    Constraint = 4
    AdtHandle = 5
    TypeData = 6


@memoised
def _hash_of(type: Type) -> int:
    return structural_hash(type)


@dataclass(init=False, frozen=True, slots=True, eq=False, repr=False)
class Type(node.Node):
    """The base class of all types, which are equal if their structure is (RLY-86)."""

    span: Span | None = field(default=None, kw_only=True)

    if not TYPE_CHECKING:  # which each kind with more checks would have to override

        def __post_init__(self):
            _CONVERSIONS.apply(self)

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Type) and structural_equal(self, other))

    @override
    def __hash__(self) -> int:
        return _hash_of(self)

    @override
    def __str__(self) -> str:

        return type_text(self)


#: Words of Relay text, and the datatypes: names that its declarations cannot have.
_KEYWORDS = re.compile(
    r"_|fn|fun|if|else|let|def|type|extern|match|True|False|ref|ref_read|ref_write|Constant|meta"
    r"|Tensor|where|free_var|bool|(u?int|float|bfloat|float8_e|float4_e|float6_e)\w*"
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_name(value: object, what: str) -> None:
    """Errors: MisuseError (also TypeError) unless `value` is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise unexpected(value, f"{what} is a non-empty string")


def check_identifier(value: object, what: str, *, allows_keywords: bool = False) -> None:
    """Check a name that Relay text repeats unchanged (RLY-60).

    Errors:
        MisuseError (also TypeError): it is not an identifier, or a word of Relay text.
    """
    check_name(value, what)
    assert isinstance(value, str)
    if not _IDENTIFIER.fullmatch(value):
        raise unexpected(
            value,
            f"{what} consists of letters, digits and _ and does not begin with a digit",
            rule="RLY-60",
        )
    if not allows_keywords and is_keyword(value):
        raise unexpected(value, f"{what} is not a word of Relay text", rule="RLY-60")


def is_keyword(name: str) -> bool:
    """True if Relay text gives this name a meaning, so that no declaration can have it."""
    return _KEYWORDS.fullmatch(name) is not None


def as_kind(value: object) -> TypeKind:
    """A kind given as a member of the enumeration or as its number."""
    try:
        return TypeKind(value)  # type: ignore[arg-type]
    except ValueError:
        raise unexpected(value, "expected a TypeKind", rule="RLY-17") from None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypeVar(Type):
    """A type parameter, identified by the object; the name is a hint (RLY-16, RLY-17)."""

    _fields = ("kind",)
    _variable = True
    name_hint: str
    kind: TypeKind = TypeKind.Type

    def __post_init__(self) -> None:
        check_name(self.name_hint, "the name of a type parameter")
        _CONVERSIONS.apply(self)

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalTypeVar(Type):
    """The name of a data type, which is equal only to itself (RLY-86)."""

    _fields = ("name_hint",)
    name_hint: str
    kind: TypeKind = TypeKind.AdtHandle

    def __post_init__(self) -> None:
        check_identifier(self.name_hint, "the name of a data type")
        node.set_fields(self, kind=as_kind(self.kind))

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalTypeVar) and self.name_hint == other.name_hint

    @override
    def __hash__(self) -> int:
        return hash((GlobalTypeVar, self.name_hint))

    def __call__(self, *args: Type) -> TypeCall:
        """This data type applied to types (RLY-67)."""
        return TypeCall(self, args)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IncompleteType(Type):
    """An omitted type, or a component of one, that inference fills in (RLY-87)."""

    _fields = ("kind",)
    _variable = True
    kind: TypeKind = TypeKind.Type

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, repr=False)
class UnknownDim(node.Node):
    """A dimension that is not known before run time, written `?` (RLY-68): `relay.Any`."""

    _fields: ClassVar[tuple[str, ...]] = ()

    @override
    def __str__(self) -> str:
        return "?"


ANY: Final = UnknownDim()

Dim: TypeAlias = int | UnknownDim | TypeVar | IncompleteType
Shape: TypeAlias = tuple[Dim, ...] | TypeVar | IncompleteType
Dtype: TypeAlias = DataType | TypeVar | IncompleteType


def _as_dim(value: object) -> Dim:
    if isinstance(value, (bool, np.bool_)):
        pass
    elif isinstance(value, (int, np.integer)):
        if value >= 0:
            return int(value)
    elif isinstance(value, UnknownDim):
        return value
    elif isinstance(value, (TypeVar, IncompleteType)):
        if value.kind is TypeKind.ShapeVar:
            return value
        raise MisuseError(
            f"a dimension is of kind ShapeVar, but {value} is of kind {value.kind.name}",
            rule="RLY-17",
            about=value,
        )
    elif isinstance(number := getattr(value, "value", None), int):  # an IntImm of TIR
        return _as_dim(number)
    raise unexpected(value, "a dimension is an integer >= 0, a ShapeVar or ?", rule="RLY-68")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TensorType(Type):
    """A tensor; its shape, a dimension and its datatype may be type parameters (RLY-17, RLY-66)."""

    _fields = ("shape", "dtype")
    shape: Shape
    dtype: Dtype = DataType("float32")

    def __post_init__(self) -> None:
        shape: Any = self.shape
        if isinstance(shape, (TypeVar, IncompleteType)):
            if shape.kind is not TypeKind.Shape:
                raise MisuseError(
                    f"a shape is of kind Shape, but {shape} is of kind {shape.kind.name}",
                    rule="RLY-17",
                    about=shape,
                )
        elif isinstance(shape, (str, node.Node)) or not isinstance(shape, Iterable):
            raise unexpected(shape, "a shape is a list of dimensions")
        else:
            shape = tuple(map(_as_dim, shape))
        dtype: Any = self.dtype
        if isinstance(dtype, (TypeVar, IncompleteType)):
            if dtype.kind is not TypeKind.BaseType:
                raise MisuseError(
                    f"a datatype is of kind BaseType, but {dtype} is of kind {dtype.kind.name}",
                    rule="RLY-17",
                    about=dtype,
                )
        else:
            dtype = DataType(dtype)
        node.set_fields(self, shape=shape, dtype=dtype)

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape as integers.

        Errors:
            MisuseError (also TypeError): a dimension is not known.
        """
        if isinstance(self.shape, tuple) and all(isinstance(dim, int) for dim in self.shape):
            return self.shape  # type: ignore[return-value]
        raise MisuseError(f"the shape of {self} is not known", about=self)


def shape_var(name: str) -> TypeVar:
    """A type parameter that stands for one dimension: `relay.ShapeVar`."""
    return TypeVar(name, TypeKind.ShapeVar)


def scalar_type(dtype: object) -> TensorType:
    """The type of tensors of rank 0 with this datatype."""
    return TensorType((), dtype)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleType(Type):
    """A tuple (RLY-66)."""

    _fields = ("fields",)
    fields: tuple[Type, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefType(Type):
    """A reference cell (RLY-105)."""

    _fields = ("value",)
    value: Type


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypeCall(Type):
    """A data type applied to types (RLY-67)."""

    _fields = ("func", "args")
    func: GlobalTypeVar
    args: tuple[Type, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypeRelation(Type):
    """The constraint that a relation holds between types (RLY-21, RLY-84).

    `func` is its name; the first `num_inputs` of `args` are inputs.
    """

    _fields = ("func", "args", "num_inputs", "attrs")
    func: str
    args: tuple[Type, ...]
    num_inputs: int | None = None
    attrs: node.Attrs = node.EMPTY_ATTRS

    def __post_init__(self) -> None:
        check_name(self.func, "the name of a type relation")
        _CONVERSIONS.apply(self)
        if self.num_inputs is None:
            node.set_fields(self, num_inputs=max(len(self.args) - 1, 0))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FuncType(Type):
    """A function, polymorphic in `type_params` and subject to `type_constraints` (RLY-84)."""

    _fields = ("type_params", "arg_types", "ret_type", "type_constraints")
    _binds = frozenset(("type_params",))
    _scope = True
    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()
    type_constraints: tuple[TypeRelation, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypeData(Type):
    """An algebraic data type: its type parameters and its constructors (RLY-31)."""

    _fields = ("header", "type_vars", "constructors")
    _binds = frozenset(("type_vars",))
    _scope = True
    _compared_as: ClassVar[dict[str, str]] = {"constructors": "signatures"}
    header: GlobalTypeVar
    type_vars: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]

    def __post_init__(self) -> None:
        _CONVERSIONS.apply(self)
        for index, constructor in enumerate(self.constructors):
            constructor.enter(self.header, self.type_vars, index)

    @property
    def signatures(self) -> tuple[tuple[str, tuple[Type, ...]], ...]:
        """The name and the field types of each constructor."""
        return tuple((c.name_hint, c.inputs) for c in self.constructors)


NOUNS: Final[Mapping[type[node.Node], str]] = {
    Type: "type",
    TypeVar: "type parameter",
    TypeRelation: "type relation",
    GlobalTypeVar: "data type",
}
_CONVERSIONS: Final = node.Conversions(
    {
        **node.checks_of(NOUNS, "RLY-84"),
        "tuple[Constructor, ...]": node.checks_of({node.Node: "constructor"}, "RLY-84")[
            "tuple[Node, ...]"
        ],
        "TypeKind": as_kind,
        "Attrs": node.as_attrs,
    }
)
UNIT: Final = TupleType(())

AnyType: TypeAlias = (
    TensorType
    | TupleType
    | FuncType
    | RefType
    | TypeVar
    | GlobalTypeVar
    | TypeCall
    | TypeData
    | TypeRelation
    | IncompleteType
)


T = TypingVar("T")
NameOf: TypeAlias = Callable[[TypeVar], str]
_Piece: TypeAlias = "str | node.Node"
MAX_PIECES = 2_000
"""The text of a message stops here: shared components of a type would be printed at each use."""


def _hint(variable: TypeVar) -> str:
    return variable.name_hint


def type_text(ty: node.Node, name_of: NameOf = _hint, limit: int | None = MAX_PIECES) -> str:
    """The text of a type as TVM prints it (RLY-66).

    `name_of` names type parameters. With a `limit`, a longer text ends in an ellipsis.
    """
    pieces: list[str] = []
    roots: list[_Piece] = [ty]
    for piece in preorder(roots, lambda p: () if isinstance(p, str) else _pieces(p, name_of)):
        if isinstance(piece, str):
            pieces.append(piece)
        if limit is not None and len(pieces) > limit:
            pieces.append("…")
            break
    return "".join(pieces)


def parameter_text(variable: TypeVar, name_of: NameOf) -> str:
    """A type parameter as a list of parameters declares it, with its kind (RLY-74)."""
    kind = variable.kind
    name = name_of(variable)
    return name if kind is TypeKind.Type else f"{name}: {kind.name}"


def listed(items: Iterable[T], single: str = "") -> list[T | str]:
    """Items with commas between them; a single one is followed by `single`."""
    out: list[T | str] = []
    for item in items:
        out += (", ", item) if out else (item,)
    return [*out, single] if len(out) == 1 else out


def _pieces(ty: node.Node, name_of: NameOf) -> Sequence[_Piece]:
    """The text of a type in which its components stand as nodes."""
    match ty:
        case TensorType(shape=()):
            return [ty.dtype if isinstance(ty.dtype, str) else _scalar(ty.dtype, name_of)]
        case TensorType(shape=shape, dtype=dtype):
            dims: list[_Piece] = [shape] if isinstance(shape, node.Node) else []
            if isinstance(shape, tuple):
                dims = ["(", *listed((_dim(d) for d in shape), ","), ")"]
            return ["Tensor[", *dims, ", ", str(dtype) if isinstance(dtype, str) else dtype, "]"]
        case TupleType(fields=fields):
            return ["(", *listed(fields, ","), ")"]
        case FuncType():
            names = [parameter_text(p, name_of) for p in ty.type_params]
            params = f"[{', '.join(names)}]" if names else ""
            where = [" where ", *listed(ty.type_constraints)] if ty.type_constraints else []
            return [f"fn {params}(", *listed(ty.arg_types), ") -> ", ty.ret_type, *where]
        case RefType(value=value):
            return ["ref(", value, ")"]
        case TypeCall(func=func, args=args):
            return [func.name_hint, "[", *listed(args), "]"]
        case TypeRelation(func=func, args=args):
            return [func, "(", *listed(args), ")"]
        case TypeVar():
            return [name_of(ty)]
        case GlobalTypeVar(name_hint=name):
            return [name]
        case IncompleteType(kind=kind):
            return ["?" if kind is TypeKind.ShapeVar else "_"]
        case TypeData():
            return [ty.header.name_hint]
        case _:
            return [str(ty)]


def _scalar(dtype: node.Node, name_of: NameOf) -> str:
    name = name_of(dtype) if isinstance(dtype, TypeVar) else "_"
    return f"Tensor[(), {name}]"


def _dim(dim: object) -> _Piece:
    return dim if isinstance(dim, node.Node) else str(dim)
