"""The nodes of Relax: expressions, bindings and StructInfo, which name each other.

Expressions, bindings, blocks and functions are compared by identity; infos by structure, up to the
names of their own shape variables (RES-13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeGuard, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir import hooks
from relaxpy.ir.dtype import INT64, VOID, DataType
from relaxpy.ir.node import EMPTY_ATTRS, Attrs, Node, as_attrs
from relaxpy.ir.op import Op
from relaxpy.ir.structural import structural_key
from relaxpy.ir.tir import expr as tir, ops

if TYPE_CHECKING:
    from relaxpy.errors import Span

Array: TypeAlias = npt.NDArray[Any]


def _set(node: Node, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(node, name, value)


def _operator(sign: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method behind `expr sign other`, or behind `other sign expr`."""

    def apply(self: Expr, other: object) -> Any:
        operands = (other, self) if reflected else (self, other)
        return hooks.call("apply_operator", sign, *operands)

    apply.__doc__ = f"The call of the operator that `{sign}` stands for."
    return apply


class Expr(Node):
    """Base of all Relax expressions; compared by identity.

    `struct_info` is None where nothing was derived yet: the BlockBuilder answers with nodes that
    have it.
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy leaves `array + expr` to the expression
    struct_info: StructInfo | None
    span: Span | None

    __add__, __radd__ = _operator("+"), _operator("+", reflected=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", reflected=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", reflected=True)
    __truediv__, __rtruediv__ = _operator("/"), _operator("/", reflected=True)
    __floordiv__, __rfloordiv__ = _operator("//"), _operator("//", reflected=True)
    __mod__, __rmod__ = _operator("%"), _operator("%", reflected=True)
    __pow__, __rpow__ = _operator("**"), _operator("**", reflected=True)
    __matmul__, __rmatmul__ = _operator("@"), _operator("@", reflected=True)
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))

    def __neg__(self) -> Call:
        """The elements with the other sign."""
        return cast("Call", hooks.call("negate_elements", self))

    def astype(self, dtype: str) -> Call:
        """The elements in another datatype."""
        return cast("Call", hooks.call("convert_elements", self, dtype))

    def __call__(self, *args: object, attrs: Mapping[str, object] | None = None) -> Call:
        """A call of this expression; Python numbers, strings and sequences become expressions."""
        return Call(self, tuple(convert_to_expr(a) for a in args), as_attrs(attrs))

    def __getitem__(self, index: int) -> Expr:
        """Field `index` of this tuple.

        Errors:
            MisuseError: `index` is no integer; IndexError: the tuple is known to be shorter.
        """
        if not isinstance(index, int):
            raise MisuseError(
                f"[ ] projects a tuple and takes an integer, found {index!r}",
                rule="AST-9",
                hint="to index a tensor use R.take or R.strided_slice",
            )
        info = self.struct_info
        if isinstance(info, TupleStructInfo) and not 0 <= index < len(info.fields):
            raise IndexError(f"index {index} of a tuple with {len(info.fields)} fields")
        return TupleGetItem(self, index)

    def __iter__(self) -> Iterator[Expr]:
        """The fields of this tuple, whose number is known.

        Errors:
            MisuseError (also TypeError): it is not known to be a tuple.
        """
        info = self.struct_info
        if not isinstance(info, TupleStructInfo):
            found = "" if info is None else f", found {info}"
            raise MisuseError(
                f"only a tuple whose fields are known can be gone through{found}", rule="DER-32"
            )
        return iter([TupleGetItem(self, index) for index in range(len(info.fields))])

    def with_struct_info(self, struct_info: StructInfo | None) -> Self:
        """This node built anew with another info."""
        return replace(self, struct_info=struct_info)  # type: ignore[type-var]


class StructInfo(Node):
    """What is known about a value at compile time. `==` is sameness up to own shape variables."""

    __slots__ = ("_key",)
    _key: tuple[object, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """A value that is equal for equal infos and for no others, while both are alive."""
        try:
            return self._key
        except AttributeError:
            object.__setattr__(self, "_key", structural_key(self))
            return self._key

    def is_base_of(self, derived: StructInfo) -> bool:
        """Whether `derived` is at least as specific as this info: `derived <<: self` (SUB)."""
        found: bool = hooks.call("is_base_of", self, derived)
        return found

    @override
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, StructInfo) and self.key == other.key

    @override
    def __hash__(self) -> int:
        return hash(self.key)

    @override
    def __str__(self) -> str:
        text: str = hooks.call("short_text", self)
        return text


def as_struct_info(value: object) -> StructInfo:
    """`value` as an info: itself, or what `R.Tensor` and its siblings give outside a program.

    Errors:
        MisuseError (also TypeError): it is none.
    """
    if isinstance(value, StructInfo):
        return value
    as_info = getattr(value, "__struct_info__", None)
    if as_info is not None:
        return cast("StructInfo", as_info())
    raise MisuseError(
        f"expected a StructInfo, found {type(value).__name__} {value!r:.60}", about=value
    )


def as_shape(values: Sequence[tir.ExprLike]) -> tuple[tir.PrimExpr, ...]:
    """Dimensions as PrimExprs: Python integers become int64 literals (PX-9).

    Errors:
        MisuseError (also TypeError): a member is no integer expression.
    """
    out = []
    for value in values:
        if isinstance(value, (bool, float, str)):
            raise MisuseError(
                f"a dimension is an integer, found {value!r}", rule="PX-9", about=value
            )
        if isinstance(value, (int, np.integer)):
            out.append(ops.const(int(value), INT64))
            continue
        size = ops.convert(value)
        if isinstance(size, tir.IntImm) and size.dtype != INT64:
            size = ops.const(size.value, INT64)
        if not size.dtype.is_int or size.dtype.lanes != 1:
            raise MisuseError(
                f"a dimension is an integer, found `{size}` of {size.dtype}",
                rule="PX-9",
                about=value,
            )
        out.append(size)
    return tuple(out)


def _rank(ndim: int | None, known: int) -> int:
    if ndim is None:
        return known
    if ndim < -1:
        raise MisuseError(f"ndim is -1 (unknown) or at least 0, found {ndim}", rule="SI-11")
    return int(ndim)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ObjectStructInfo(StructInfo):
    """Any value (SI-10)."""

    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrimStructInfo(StructInfo):
    """A prim value of `dtype`, perhaps known to be `value` (SI-5).

    Errors:
        MisuseError: neither datatype nor value is given.
    """

    _fields = ("dtype", "value")
    dtype: DataType = field(default=None)  # type: ignore[assignment]
    value: tir.PrimExpr | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        if isinstance(self.dtype, (tir.PrimExpr, int, float)):
            raise MisuseError("PrimStructInfo takes a dtype first; write value=...")
        value = self.value
        if value is None and self.dtype is None:
            raise MisuseError("PrimStructInfo needs a dtype or a value")
        if isinstance(value, (bool, int, float)) and not isinstance(value, tir.PrimExpr):
            default = INT64 if type(value) is int else None
            value = ops.const(value, self.dtype or default)
        elif value is not None:
            value = ops.convert(value)
        kind = value.dtype if self.dtype is None and value is not None else DataType(self.dtype)
        _set(self, dtype=kind, value=value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShapeStructInfo(StructInfo):
    """A shape value: its members where known, else its rank where known (SI-4)."""

    _fields = ("ndim", "values")
    values: tuple[tir.PrimExpr, ...] | None = None
    ndim: int = field(default=None)  # type: ignore[assignment]
    span: Span | None = None

    def __post_init__(self) -> None:
        values = None if self.values is None else as_shape(self.values)
        _set(self, values=values, ndim=_rank(self.ndim, -1 if values is None else len(values)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TensorStructInfo(StructInfo):
    """A tensor: datatype (Void: unknown), rank (-1: unknown), and shape where known (SI-2).

    `shape` is a ShapeExpr, or a Var that holds a shape value (SI-3); a sequence of dimensions
    becomes a ShapeExpr.
    """

    _fields = ("dtype", "ndim", "shape", "vdevice")
    shape: Expr | None = None
    dtype: DataType = DataType("float32")  # noqa: RUF009
    vdevice: object = None
    ndim: int = field(default=None)  # type: ignore[assignment]
    span: Span | None = None

    def __post_init__(self) -> None:
        shape: object = self.shape
        if shape is not None and not isinstance(shape, Expr):
            if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
                raise MisuseError(
                    f"a shape is a sequence of dimensions, found {shape!r}", rule="SI-3"
                )
            shape = ShapeExpr(tuple(shape))
        known = -1
        if isinstance(shape, ShapeExpr):
            known = len(shape.values)
        elif isinstance(shape, Var) and isinstance(shape.struct_info, ShapeStructInfo):
            known = shape.struct_info.ndim
        elif isinstance(shape, Var) and shape.struct_info is not None:
            raise MisuseError(
                f"a shape variable holds a shape, but {shape.name_hint} is {shape.struct_info}",
                rule="SI-3",
            )
        dtype = VOID if self.dtype is None else DataType(self.dtype)
        _set(self, shape=shape, dtype=dtype, ndim=_rank(self.ndim, known))

    def get_shape(self) -> tuple[tir.PrimExpr, ...] | None:
        """The dimensions, where they are known one by one (through a shape variable, too)."""
        if isinstance(self.shape, ShapeExpr):
            return self.shape.values
        if isinstance(self.shape, Expr) and isinstance(self.shape.struct_info, ShapeStructInfo):
            return self.shape.struct_info.values
        return None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleStructInfo(StructInfo):
    """A tuple, field by field (SI-6)."""

    _fields = ("fields",)
    fields: tuple[StructInfo, ...] = ()
    span: Span | None = None

    def __post_init__(self) -> None:
        _set(self, fields=tuple(as_struct_info(f) for f in self.fields))


DeriveFunc: TypeAlias = Callable[["Call", Any], StructInfo]


@dataclass(frozen=True, slots=True)
class EnvFunc:
    """A compile-time function known by name, such as a derivation of infos (SI-12)."""

    name: str
    func: DeriveFunc = field(compare=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FuncStructInfo(StructInfo):
    """A function: in closure form with `params`, in packed form with `derive_func` (SI-7, SI-8)."""

    _fields = ("purity", "derive_func", "params", "ret")
    _binds = frozenset(("params",))
    _binds_sizes = frozenset(("params",))
    _scope = True
    params: tuple[StructInfo, ...] | None
    ret: StructInfo
    purity: bool = True
    derive_func: EnvFunc | None = field(default=None, kw_only=True)
    span: Span | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        params = self.params
        if params is not None:
            params = tuple(as_struct_info(p) for p in params)
        _set(self, params=params, ret=as_struct_info(self.ret), purity=bool(self.purity))

    @staticmethod
    def opaque_func(
        *,
        ret: StructInfo | None = None,
        derive_func: EnvFunc | None = None,
        purity: bool = False,
    ) -> FuncStructInfo:
        """The packed form; without a `derive_func`, the one that gives `ret` for every call."""
        if derive_func is None:
            given = ret
            derive_func = (
                EMPTY_DERIVE if given is None else EnvFunc(f"ret: {given}", lambda c, x: given)
            )
        return FuncStructInfo(None, ret or ObjectStructInfo(), purity, derive_func=derive_func)


def _default_derive(call: Call, context: object) -> StructInfo:
    """DER-28 to DER-30: what the call's `sinfo_args` say."""
    infos = call.sinfo_args
    if not infos:
        return ObjectStructInfo()
    return infos[0] if len(infos) == 1 else TupleStructInfo(infos)


def _empty_derive(call: Call, context: object) -> StructInfo:
    """DER-31: nothing is known."""
    return ObjectStructInfo()


DEFAULT_DERIVE = EnvFunc("default_derive", _default_derive)
EMPTY_DERIVE = EnvFunc("empty_derive", _empty_derive)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalVar(Expr):
    """An entry of the module, by name (AST-8). Its info is the module's to give."""

    _fields = ("name_hint",)
    _variable = True
    name_hint: str
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = field(default=None, kw_only=True)


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
            _set(self, name_hint=self.name_hint.name_hint)
        if self.struct_info is not None:
            _set(self, struct_info=as_struct_info(self.struct_info))

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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Expr):
    """A tensor literal (AST-6); the array is copied unless it already cannot be written."""

    _fields = ("data",)
    data: Array
    struct_info: StructInfo | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        data = np.asarray(self.data)
        if data.flags.writeable or data is not self.data:
            data = data.copy()
            data.flags.writeable = False
        info = self.struct_info or TensorStructInfo(data.shape, DataType(data.dtype))  # type: ignore[arg-type]
        _set(self, data=data, struct_info=info)


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
        scalar = ops.convert(value)
        info = self.struct_info or PrimStructInfo(scalar.dtype, scalar)
        _set(self, value=scalar, struct_info=info)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StringImm(Expr):
    """A string (AST-6)."""

    _fields = ("value",)
    value: str
    struct_info: StructInfo | None = field(default=ObjectStructInfo(), kw_only=True)
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataTypeImm(Expr):
    """A datatype as a value (AST-6)."""

    _fields = ("value",)
    value: DataType
    struct_info: StructInfo | None = field(default=ObjectStructInfo(), kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        _set(self, value=DataType(self.value))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShapeExpr(Expr):
    """A shape value built from its members (AST-16)."""

    _fields = ("values",)
    values: tuple[tir.PrimExpr, ...]
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        values = as_shape(tuple(self.values))
        _set(self, values=values, struct_info=self.struct_info or ShapeStructInfo(values))

    def __len__(self) -> int:
        return len(self.values)

    @override
    def __getitem__(self, index: int) -> tir.PrimExpr:  # type: ignore[override]
        return self.values[index]

    @override
    def __iter__(self) -> Iterator[tir.PrimExpr]:  # type: ignore[override]
        return iter(self.values)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuple(Expr):
    """A tuple of expressions (AST-9); its info is known once those of its fields are."""

    _fields = ("fields",)
    fields: tuple[Expr, ...]
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        fields = tuple(convert_to_expr(f) for f in self.fields)
        infos = [f.struct_info for f in fields]
        info = self.struct_info
        if info is None and all(i is not None for i in infos):
            info = TupleStructInfo(tuple(i for i in infos if i is not None))
        _set(self, fields=fields, struct_info=info)

    def __len__(self) -> int:
        return len(self.fields)

    @override
    def __getitem__(self, index: int) -> Expr:
        return self.fields[index]

    @override
    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleGetItem(Expr):
    """Field `index` of a tuple, counted from 0 (AST-9)."""

    _fields = ("tuple_value", "index")
    tuple_value: Expr
    index: int
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.index, int) or self.index < 0:
            raise MisuseError(
                f"a tuple index is an integer from 0, found {self.index!r}", rule="AST-9"
            )
        info = self.tuple_value.struct_info
        if self.struct_info is None and isinstance(info, TupleStructInfo):
            if self.index >= len(info.fields):
                raise MisuseError(
                    f"index {self.index} is out of bounds for a tuple of {len(info.fields)} fields",
                    rule="DER-33",
                )
            _set(self, struct_info=info.fields[self.index])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """`op` applied to `args` (AST-15); `sinfo_args` are infos given in the text."""

    _fields = ("op", "args", "attrs", "sinfo_args")
    op: Expr | Op
    args: tuple[Expr, ...]
    attrs: Attrs = EMPTY_ATTRS
    sinfo_args: tuple[StructInfo, ...] = ()
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        _set(
            self,
            args=tuple(self.args),
            attrs=as_attrs(self.attrs),
            sinfo_args=tuple(as_struct_info(s) for s in self.sinfo_args or ()),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(Expr):
    """One of two expressions (AST-13)."""

    _fields = ("cond", "true_branch", "false_branch")
    cond: Expr
    true_branch: Expr
    false_branch: Expr
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VarBinding(Node):
    """`var` = `value` (AST-18)."""

    _fields = ("var", "value")
    _binds = frozenset(("var",))
    var: Var
    value: Expr
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MatchCast(Node):
    """`value` checked against `struct_info`, then bound to `var` if there is one (AST-19)."""

    _fields = ("value", "struct_info", "var")
    _binds = frozenset(("var", "struct_info"))
    _binds_sizes = frozenset(("struct_info",))
    var: Var | None
    value: Expr
    struct_info: StructInfo
    span: Span | None = None

    def __post_init__(self) -> None:
        _set(self, struct_info=as_struct_info(self.struct_info))


Binding: TypeAlias = VarBinding | MatchCast


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BindingBlock(Node):
    """Bindings in order (AST-17)."""

    _fields = ("bindings",)
    bindings: tuple[Binding, ...]
    span: Span | None = None

    def __post_init__(self) -> None:
        _set(self, bindings=tuple(self.bindings))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataflowBlock(BindingBlock):
    """Bindings without side effects or control flow (PU-5, WF-7)."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeqExpr(Expr):
    """Blocks in order, then the value of `body` (AST-10)."""

    _fields = ("blocks", "body")
    blocks: tuple[BindingBlock, ...]
    body: Expr
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        _set(self, blocks=tuple(self.blocks))


class BaseFunc(Expr):
    """What a module may hold: a Relax Function, a PrimFunc or an ExternFunc."""

    __slots__ = ()
    attrs: Attrs

    def with_attr(self, key: str | Mapping[str, object], value: object = None) -> Self:
        """This function with attribute `key` set to `value`, or with a table of attributes set."""
        changes = {key: value} if isinstance(key, str) else dict(key)
        return self._with_attrs(self.attrs.updated(changes))

    def with_attrs(self, attrs: Mapping[str, object]) -> Self:
        """This function with a table of attributes set."""
        return self._with_attrs(self.attrs.updated(attrs))

    def without_attr(self, key: str) -> Self:
        """This function less attribute `key`."""
        return self._with_attrs(self.attrs.without(key))

    def _with_attrs(self, attrs: Attrs) -> Self:
        return replace(self, attrs=attrs)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(BaseFunc):
    """A Relax function (AST-11); it has no name of its own (AST-12)."""

    _fields = ("params", "is_pure", "body", "ret_struct_info", "attrs")
    _binds = frozenset(("params",))
    _binds_sizes = frozenset(("params",))
    _scope = True
    _judged_by: ClassVar[Mapping[str, str]] = {"ret_struct_info": "result_info"}
    params: tuple[Var, ...]
    body: Expr
    ret_struct_info: StructInfo | None = None
    is_pure: bool = True
    attrs: Attrs = EMPTY_ATTRS
    struct_info: StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        ret = None if self.ret_struct_info is None else as_struct_info(self.ret_struct_info)
        params = tuple(self.params)
        _set(
            self,
            params=params,
            ret_struct_info=ret,
            is_pure=True if self.is_pure is None else bool(self.is_pure),
            attrs=as_attrs(self.attrs),
        )

    @property
    def result_info(self) -> StructInfo | None:
        """What the function returns: by its annotation, else as derived, else as its body says.

        Rule:
            DER-46, DER-47. Two functions that differ only in whether this is written are the same.
        """
        if self.ret_struct_info is not None:
            return self.ret_struct_info
        if isinstance(self.struct_info, FuncStructInfo):
            return self.struct_info.ret
        return (self.body.body if isinstance(self.body, SeqExpr) else self.body).struct_info

    @staticmethod
    def create_empty(
        params: Sequence[Var],
        ret_struct_info: StructInfo,
        is_pure: bool = True,
        attrs: Mapping[str, object] | None = None,
    ) -> Function:
        """A declaration: a function whose result is a variable that nothing binds yet."""
        ret = as_struct_info(ret_struct_info)
        body = SeqExpr((), Var("undefined", ret), struct_info=ret)
        infos = tuple(p.struct_info or ObjectStructInfo() for p in params)
        info = FuncStructInfo(infos, ret, is_pure)
        return Function(tuple(params), body, ret, is_pure, as_attrs(attrs), struct_info=info)

    def bind_params(self, binding_map: Mapping[Var | str, object]) -> Function:
        """This function less some parameters; see `relaxpy.ir.relax.bind.bind_params`."""
        return cast("Function", hooks.call("bind_params", self, binding_map))

    def bind_symbolic_vars(
        self, binding_map: Mapping[tir.Var | str, tir.PrimExpr | int]
    ) -> Function:
        """This function for given sizes; see `relaxpy.ir.relax.bind.bind_symbolic_vars`."""
        return cast("Function", hooks.call("bind_symbolic_vars", self, binding_map))

    def inline_functions(self, function_map: Mapping[GlobalVar | str, Function]) -> Function:
        """This function with others inlined; see `relaxpy.ir.relax.inline.inline_functions`."""
        return cast("Function", hooks.call("inline_functions", self, function_map))

    @override
    @user_facing
    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run this function on arrays, or build a Call if an argument is a Relax expression."""
        if any(isinstance(a, Expr) for a in args):
            return Expr.__call__(self, *args)
        return hooks.call("call_function", self, args, kwargs)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ExternFunc(BaseFunc):
    """A packed function by the name it is registered under (AST-14, DER-34)."""

    _fields = ("global_symbol", "attrs")
    global_symbol: str
    struct_info: StructInfo | None = None
    attrs: Attrs = field(default=EMPTY_ATTRS, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        info = self.struct_info
        if info is None:
            info = FuncStructInfo.opaque_func(derive_func=DEFAULT_DERIVE)
        _set(self, struct_info=as_struct_info(info), attrs=as_attrs(self.attrs))


AnyExpr: TypeAlias = (
    GlobalVar
    | Var
    | DataflowVar
    | Constant
    | PrimValue
    | StringImm
    | DataTypeImm
    | ShapeExpr
    | Tuple
    | TupleGetItem
    | Call
    | If
    | SeqExpr
    | Function
    | ExternFunc
    | Op
)
AnyStructInfo: TypeAlias = (
    ObjectStructInfo
    | PrimStructInfo
    | ShapeStructInfo
    | TensorStructInfo
    | TupleStructInfo
    | FuncStructInfo
)


@user_facing
def const(value: object, dtype: str | None = None) -> Constant:
    """A tensor literal; without `dtype`, int64 data become int32 and float64 data float32.

    With `dtype`, a string stands for an element that Python has no literal of: "nan", "inf", or its
    bits, as in "0x7fc00001".

    Errors:
        MisuseError (also TypeError): `value` is no array of numbers.
    """
    if isinstance(value, np.ndarray) and dtype is not None:
        data = value.astype(DataType(dtype).numpy())
    else:
        try:
            data = _array(value, DataType(dtype) if dtype else None)
        except (ValueError, TypeError, OverflowError) as error:
            raise MisuseError(f"no tensor can be made of {value!r:.60}: {error}") from None
        if dtype is None and not isinstance(value, np.generic):
            narrower = {"int64": "int32", "float64": "float32"}.get(data.dtype.name)
            data = data.astype(narrower) if narrower else data
    if data.dtype.hasobject or data.dtype.kind in "USmMc":
        raise MisuseError(f"a tensor holds numbers or Booleans, found {value!r:.60}", rule="VAL-1")
    return Constant(data)


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
    if isinstance(value, (int, np.integer)):
        return PrimValue(ops.const(int(value), INT64))
    if isinstance(value, (float, np.floating)):
        return PrimValue(ops.const(float(value), "float64"))
    if isinstance(value, tir.PrimExpr) and not isinstance(value, tir.StringImm):
        return PrimValue(value)
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (tuple, list)):
        return Tuple(tuple(convert_to_expr(v) for v in value))
    raise MisuseError(
        f"expected a Relax expression, found {type(value).__name__} {value!r:.60}", about=value
    )
