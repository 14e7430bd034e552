"""Expressions and patterns of Relay (RLY-82, RLY-83), compared by identity."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar as TypingVar, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, RelayTypeError, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.core import node
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.tensor import check_elements, literal_array, read_array
from relaxpy.ir.core.traverse import rewrite as rewrite_nodes
from relaxpy.plugins.relay import ty as types
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.errors import Span


def _operator(name: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method of a Python operator; the reflected one has the expression on the right."""

    def apply(self: RelayExpr, other: object) -> Call:
        from relaxpy.plugins.relay.op.registry import Op

        if not isinstance(other, RelayExpr):
            raise unexpected(
                other, "expected a Relay expression", hint=f"write relay.const({other!r:.60})"
            )
        return Call(Op.get(name), (other, self) if reflected else (self, other))

    apply.__doc__ = f"Return the call of the operator `{name}`."
    return apply


class Textual(node.Node):
    """The base class of nodes that have a program text, and whose fields are checked."""

    __slots__ = ()
    _conversions: ClassVar[node.Conversions]

    if not TYPE_CHECKING:  # which each kind with more checks would have to override

        def __post_init__(self):
            self._conversions.apply(self)

    @override
    def astext(
        self, show_meta_data: bool = True, annotate: Callable[[RelayExpr], str] | None = None
    ) -> str:
        """The program text (RLY-111); `annotate` gives comments instead of types."""
        text: str = hooks.call("relay_text", self, show_meta_data, annotate)
        return text

    @override
    def script(self, **options: object) -> str:
        """The program text."""
        text: str = hooks.call("relay_text", self, **options)
        return text


@dataclass(init=False, frozen=True, slots=True, eq=False, repr=False)
class RelayExpr(Textual):
    """The base class of all expressions; inference rebuilds them with their types."""

    __array_ufunc__ = None  # NumPy leaves `array + expr` to the expression
    _shared = True
    checked_type_: types.Type | None = field(default=None, kw_only=True)
    span: Span | None = field(default=None, kw_only=True)

    __add__, __radd__ = _operator("add"), _operator("add", reflected=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", reflected=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", reflected=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", reflected=True)
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")

    def __neg__(self) -> Call:
        """The call of the operator `negative`."""
        from relaxpy.plugins.relay.op.registry import Op

        return Call(Op.get("negative"), (self,))

    def astype(self, dtype: str) -> Call:
        """The call of the operator `cast`."""
        from relaxpy.plugins.relay.op.makers import build

        return build("cast", self, dtype=dtype)

    def __call__(self, *args: RelayExpr) -> Call:
        """A call of this expression."""
        return Call(self, args)

    @property
    def checked_type(self) -> types.Type:
        """The type that inference found.

        Errors:
            RelayTypeError: inference has not visited this expression.
        """
        if self.checked_type_ is None:
            raise RelayTypeError(
                "this expression has no type yet",
                hint="relay.transform.InferType()(mod) returns the module with types",
                about=self,
            )
        return self.checked_type_

    def with_type(self, ty: types.Type) -> Self:
        """A copy of this node with another `checked_type`."""
        return replace(self, checked_type_=ty)


E = TypingVar("E", bound=RelayExpr)
Component: TypeAlias = Any
"""A type argument: a type, a shape, a dimension or a datatype, by the kind of the parameter."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalVar(RelayExpr):
    """A reference to a function of the module by name (RLY-5)."""

    _fields = ("name_hint",)
    _variable = True
    name_hint: str

    def __post_init__(self) -> None:
        types.check_identifier(
            self.name_hint, "the name of a global function", allows_keywords=True
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
class Var(RelayExpr):
    """A local variable, identified by the object; the name is a hint (RLY-7, RLY-9)."""

    _fields = ("type_annotation",)
    _variable = True
    name_hint: str
    type_annotation: types.Type | None = None

    def __post_init__(self) -> None:
        if isinstance(self.name_hint, Id):
            node.set_fields(self, name_hint=self.name_hint.name_hint)
        if not isinstance(self.name_hint, str):
            types.check_name(self.name_hint, "the name of a variable")
        self._conversions.apply(self)

    @property
    def vid(self) -> Id:
        """The identity of this variable."""
        return Id(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(RelayExpr):
    """A tensor (RLY-39); the array is copied unless it is already read-only."""

    _fields = ("data",)
    _shared = False
    data: Array

    def __post_init__(self) -> None:
        data = literal_array(self.data, self.data, "RLY-39")
        checked = types.TensorType(data.shape, DataType(data.dtype))
        node.set_fields(self, data=data, checked_type_=checked)

    @property
    def is_scalar(self) -> bool:
        """True if the rank is 0."""
        return self.data.ndim == 0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(RelayExpr):
    """A number in text whose datatype its uses decide (RLY-63); inference makes it a Constant."""

    _fields = ("value",)
    _shared = False
    value: int | float

    def as_constant(self, dtype: DataType | None = None) -> Constant:
        """The constant of this datatype, or of the default one (RLY-63)."""
        return Constant(np.array(self.value, dtype or self.default_dtype), span=self.span)

    @property
    def default_dtype(self) -> DataType:
        """float32, int32, or int64 where the number does not fit int32."""
        if isinstance(self.value, float):
            return DataType("float32")
        return DataType("int32" if -(1 << 31) <= self.value < 1 << 31 else "int64")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuple(RelayExpr):
    """A tuple of expressions (RLY-40)."""

    _fields = ("fields",)
    fields: tuple[RelayExpr, ...]

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> RelayExpr:
        return self.fields[index]

    def __iter__(self) -> Iterator[RelayExpr]:
        return iter(self.fields)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleGetItem(RelayExpr):
    """Field `index` of a tuple, counted from 0 (RLY-41)."""

    _fields = ("tuple_value", "index")
    tuple_value: RelayExpr
    index: int

    def __post_init__(self) -> None:
        self._conversions.apply(self)
        index: object = self.index
        if isinstance(index, (bool, np.bool_)) or not isinstance(index, (int, np.integer)):
            raise unexpected(index, "a tuple index is an integer", rule="RLY-41")
        if index < 0:
            raise MisuseError(
                f"a tuple index is at least 0, found {index}", rule="RLY-41", about=index
            )
        node.set_fields(self, index=int(index))

    @property
    def tuple(self) -> RelayExpr:
        """The tuple, under the name of RLY-82."""
        return self.tuple_value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(RelayExpr):
    """A function, polymorphic in `type_params` and subject to `constraints` (RLY-16, RLY-21)."""

    _fields = ("type_params", "params", "ret_type", "constraints", "body", "attrs")
    module_hint = "functions of Relay are in modules of their own: relay.IRModule"
    _binds = frozenset(("type_params", "params"))
    _scope = True
    params: tuple[Var, ...]
    body: RelayExpr
    ret_type: types.Type | None = None
    type_params: tuple[types.TypeVar, ...] = ()
    attrs: node.Attrs = node.EMPTY_ATTRS
    constraints: tuple[types.TypeRelation, ...] = field(default=(), kw_only=True)

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            params: Sequence[Var],
            body: RelayExpr,
            ret_type: types.Type | None = ...,
            type_params: Sequence[types.TypeVar] = ...,
            attrs: Mapping[str, object] | None = ...,
            *,
            constraints: Sequence[types.TypeRelation] = ...,
            checked_type_: types.Type | None = ...,
            span: Span | None = ...,
        ) -> None: ...

    def with_attr(
        self, attr_key_or_dict: str | Mapping[str, object], attr_value: object = None
    ) -> Function:
        """This function with one attribute, or several, added or replaced."""
        changes = (
            attr_key_or_dict
            if isinstance(attr_key_or_dict, Mapping)
            else {attr_key_or_dict: attr_value}
        )
        return replace(self, attrs=self.attrs.updated(changes))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(RelayExpr):
    """A call of a function, an operator or a constructor (RLY-35)."""

    _fields = ("op", "args", "attrs", "type_args")
    op: RelayExpr
    args: tuple[RelayExpr, ...]
    attrs: node.Attrs = node.EMPTY_ATTRS
    type_args: tuple[Component, ...] = ()

    def astuple(self) -> Call:
        """This call; with it, `len` and indices it stands for TVM's TupleWrapper."""
        return self

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """The number of results of the operator.

        Errors:
            MisuseError (also TypeError): it has one, or the callee is not an operator.
        """
        number: int = getattr(self.op, "number_of_results", lambda call: 1)(self)
        if number == 1:
            raise MisuseError(
                "this call does not have several results",
                hint="write relay.TupleGetItem(call, index) for a field of a tuple",
                about=self,
            )
        return number

    def __getitem__(self, index: int) -> TupleGetItem:
        """The projection of result `index`."""
        return TupleGetItem(self, range(len(self))[index])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(RelayExpr):
    """`let var = value; body` (RLY-42)."""

    _fields = ("var", "value", "body")
    _binds = frozenset(("var",))
    var: Var
    value: RelayExpr
    body: RelayExpr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(RelayExpr):
    """A choice between two branches (RLY-49, RLY-50)."""

    _fields = ("cond", "true_branch", "false_branch")
    cond: RelayExpr
    true_branch: RelayExpr
    false_branch: RelayExpr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constructor(RelayExpr):
    """A constructor of a data type (RLY-32); its `tag` is set when the TypeData is built."""

    _fields = ("name_hint", "belong_to")
    _shared = False
    name_hint: str
    inputs: tuple[types.Type, ...]
    belong_to: types.GlobalTypeVar
    tag: int = field(default=-1, kw_only=True)

    def __post_init__(self) -> None:
        types.check_identifier(self.name_hint, "the name of a constructor")
        self._conversions.apply(self)
        node.set_fields(self, inputs=types.TupleType(self.inputs).fields)

    def enter(
        self, header: types.GlobalTypeVar, type_vars: tuple[types.TypeVar, ...], index: int
    ) -> None:
        """Set the tag and the type of constructor number `index` of the data type `header`.

        Errors:
            MisuseError: the constructor belongs to another data type.
        """
        if self.belong_to != header:
            raise MisuseError(
                f"constructor {self.name_hint} belongs to {self.belong_to}, not to {header}",
                rule="RLY-31",
                about=self,
            )
        tag = (zlib.crc32(header.name_hint.encode()) & 0xFF) << 24 | index
        ty = types.FuncType(self.inputs, types.TypeCall(header, type_vars), type_vars)
        node.set_fields(self, tag=tag, checked_type_=ty)


@dataclass(init=False, frozen=True, slots=True, eq=False, repr=False)
class Pattern(Textual):
    """The base class of patterns."""

    span: Span | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PatternWildcard(Pattern):
    """`_`, which fits everything (RLY-54)."""

    _fields: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PatternVar(Pattern):
    """A variable, which fits everything and is bound to it (RLY-109)."""

    _fields = ("var",)
    _binds = frozenset(("var",))
    var: Var


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PatternConstructor(Pattern):
    """An instance of a constructor whose fields fit the inner patterns (RLY-52)."""

    _fields = ("constructor", "patterns")
    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PatternTuple(Pattern):
    """A tuple whose fields fit the inner patterns (RLY-109)."""

    _fields = ("patterns",)
    patterns: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Clause(node.Node):
    """A pattern, and the expression that is evaluated where it fits (RLY-83)."""

    _fields = ("lhs", "rhs")
    _scope = True
    lhs: Pattern
    rhs: RelayExpr
    span: Span | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        Textual._conversions.apply(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Match(RelayExpr):
    """`match`, or with `complete` false `match?` (RLY-51, RLY-55)."""

    _fields = ("data", "clauses", "complete")
    data: RelayExpr
    clauses: tuple[Clause, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefCreate(RelayExpr):
    """A new reference cell (RLY-81)."""

    _fields = ("value",)
    value: RelayExpr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefRead(RelayExpr):
    """The content of a reference cell (RLY-81)."""

    _fields = ("ref",)
    ref: RelayExpr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefWrite(RelayExpr):
    """The replacement of the content of a reference cell, which is the unit (RLY-81)."""

    _fields = ("ref", "value")
    ref: RelayExpr
    value: RelayExpr


class TempExpr(RelayExpr):
    """The base class of the temporary nodes of passes (RLY-56), which users derive from."""

    __slots__ = ()
    checked_type_ = None
    span = None

    def realize(self) -> RelayExpr:
        """The expression that this node stands for."""
        raise MisuseError(f"{type(self).__name__} does not define realize()", about=self)


Textual._conversions = node.Conversions(
    {
        **node.checks_of(
            {**types.NOUNS, RelayExpr: "Relay expression", Var: "variable", Clause: "clause"},
            "RLY-82",
        ),
        **node.checks_of({Pattern: "pattern", Constructor: "constructor"}, "RLY-83"),
        "tuple[Component, ...]": tuple,
        "Attrs": node.as_attrs,
        "bool": bool,
    }
)


def var(
    name_hint: str,
    type_annotation: types.Type | str | None = None,
    shape: object = None,
    dtype: str = "float32",
) -> Var:
    """A variable; a datatype as annotation stands for a scalar, and a shape for a tensor.

    Errors:
        MisuseError (also TypeError, ValueError): there are both an annotation and a shape.
    """
    if type_annotation is not None and shape is not None:
        raise MisuseError("a variable has a type annotation or a shape, not both", about=shape)
    if shape is not None:
        return Var(name_hint, types.TensorType(shape, dtype))  # type: ignore[arg-type]
    if isinstance(type_annotation, str):
        return Var(name_hint, types.scalar_type(type_annotation))
    return Var(name_hint, type_annotation)


def const(value: object, dtype: str | None = None) -> Constant:
    """A constant; Python integers are int32 and floats float32, as 64-bit lists are.

    Errors:
        MisuseError (also TypeError, ValueError): the value is not a tensor.
    """
    target = None if dtype is None else DataType(dtype).of_elements()
    if isinstance(value, np.ndarray):
        data = value if target is None else value.astype(target)
    else:
        try:
            data = np.array(read_array(value), target)
        except (TypeError, ValueError, OverflowError, BufferError) as error:
            raise MisuseError(
                f"cannot make a tensor of {value!r:.60}: {error}", rule="RLY-39", about=value
            ) from None
        check_elements(data, value, "RLY-39")
        narrow = {"int64": "int32", "float64": "float32"}.get(data.dtype.name)
        if dtype is None and narrow and not isinstance(value, np.generic):
            data = data.astype(narrow)
    return Constant(data)


def rewrite(root: E, rule: Callable[[node.Node], node.Node | None]) -> E:
    """Apply a rule to each node, children first, that replaces expressions of the root's kind."""
    return cast("E", rewrite_nodes(root, rule))


def function_type(function: Function) -> types.FuncType | None:
    """The type that the annotations of a function declare; None if one is missing."""
    args = [p.type_annotation for p in function.params]
    if function.ret_type is None or any(ty is None for ty in args):
        return None
    return types.FuncType(args, function.ret_type, function.type_params, function.constraints)  # type: ignore[arg-type]
