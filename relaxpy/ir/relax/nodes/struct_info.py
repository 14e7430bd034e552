"""The kinds of struct info, and the shape expressions in them.

They are compared by structure, up to the names of bound shape variables (RES-13).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, check_type, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import INT64, VOID, DataType
from relaxpy.ir.core.node import set_fields
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.relax.nodes import base_classes as base
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import dataclass
from relaxpy.support.missing import described, digits

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.ir.relax.nodes.expr import Call


#: The hint for None, ... or "?" as a dimension.
UNKNOWN_SIZE: Final = 'give a size that is not known a name, as in "n", or tir.Var("n", "int64")'


def integer_hint(value: object) -> str | None:
    """A hint for a float that is equal to an integer, for a text, or for a placeholder."""
    if value is None or value is ...:
        return UNKNOWN_SIZE
    if isinstance(value, str):
        declared = f"write {value}, after {value} = T.int64()"
        return declared if value.isidentifier() else "write it without quotes"
    return f"write {int(value)}" if isinstance(value, float) and value.is_integer() else None


def _is_size(value: object) -> bool:
    return isinstance(value, tir.PrimExpr) and value.dtype == INT64


def as_shape(values: Sequence[tir.ExprLike]) -> tuple[tir.PrimExpr, ...]:
    """Convert dimensions to PrimExprs; Python integers become int64 literals (PX-9).

    Errors:
        MisuseError (also TypeError): a dimension is not an integer expression.
    """
    if type(values) is tuple and all(map(_is_size, values)):
        return values
    out = []
    for value in base.as_members(values, "dimensions", "PX-9"):
        if value is None or isinstance(value, (bool, np.bool_, float, str)):
            raise MisuseError(
                f"a dimension is an integer, found {value!r}",
                rule="PX-9",
                about=value,
                hint=integer_hint(value),
            )
        if isinstance(value, (int, np.integer)):
            low, high = ops.int_range(INT64)
            if not low <= value <= high:
                raise MisuseError(
                    f"a dimension is an integer of 64 bits, found {digits(int(value))}",
                    rule="PX-9",
                    about=value,
                )
            out.append(ops.const(int(value), INT64))
            continue
        size = ops.convert(value)
        if not size.dtype.is_int or size.dtype.is_bool or size.dtype.lanes != 1:
            raise MisuseError(
                f"a dimension is an integer, found `{size}` of {size.dtype}",
                rule="PX-9",
                about=value,
            )
        if isinstance(size, tir.IntImm) and size.dtype != INT64:
            size = ops.const(size.value, INT64)
        out.append(size)
    return tuple(out)


MAX_RANK: Final = 1 << 20
"""The maximal rank, since derivation may create an expression for each dimension."""


def _rank(ndim: int | None, known: int) -> int:
    if ndim is None:
        return known
    try:
        rank = operator.index(ndim)
    except TypeError:
        rank = -2
    if not -1 <= rank <= MAX_RANK:
        raise MisuseError(
            f"ndim is -1 (unknown) or from 0 to {MAX_RANK}, found {digits(ndim)}",
            rule="SI-11",
            about=ndim,
        )
    return rank


def check_sizes(values: Sequence[object]) -> None:
    """Raise MisuseError if the dimensions of a tensor contain a negative literal."""
    for value in values:
        number = value.value if isinstance(value, tir.IntImm) else value
        if isinstance(number, int) and number < 0:
            raise MisuseError(
                f"a tensor has no dimension of {digits(number)} elements",
                rule="SI-2",
                about=value,
                hint="leave the shape unknown, as in R.Tensor(ndim=2), or use a shape variable",
            )


def _same_members(
    declared: tuple[tir.PrimExpr, ...] | None, values: tuple[tir.PrimExpr, ...]
) -> bool:
    """True if a declared struct info has the identical members of a shape."""
    return declared is values or (
        declared is not None
        and len(declared) == len(values)
        and all(a is b for a, b in zip(declared, values, strict=True))
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShapeExpr(base.Expr):
    """A shape value, built of its members (AST-16)."""

    _fields = ("values",)
    values: tuple[tir.PrimExpr, ...]
    struct_info: base.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            values: Sequence[tir.ExprLike],
            span: Span | None = ...,
            *,
            struct_info: base.StructInfo | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        values = as_shape(self.values)
        sinfo = self.struct_info
        if not isinstance(sinfo, ShapeStructInfo) or not _same_members(sinfo.values, values):
            sinfo = ShapeStructInfo(values)
        set_fields(self, values=values, struct_info=sinfo)

    def __len__(self) -> int:
        return len(self.values)

    @override
    def __getitem__(self, index: int) -> tir.PrimExpr:  # type: ignore[override]
        return base.member(self.values, index, "ShapeExpr")

    @override
    def __iter__(self) -> Iterator[tir.PrimExpr]:  # type: ignore[override]
        return iter(self.values)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ObjectStructInfo(base.StructInfo):
    """Any value (SI-10)."""

    span: Span | None = None


def as_scalar(value: object) -> tir.PrimExpr:
    """Convert a number to a scalar expression; a NumPy scalar keeps its datatype (DER-7).

    Errors:
        MisuseError (also TypeError): it is not a number.
    """
    if isinstance(value, str):
        raise unexpected(value, "a scalar is a number", rule="RES-46")
    if isinstance(value, np.number):
        return ops.const(value.item(), DataType(value.dtype))
    return ops.convert(value)


def _exact_const(value: float, dtype: DataType | str | None) -> tir.PrimExpr:
    """A Python number as a literal of a datatype that can represent it."""
    if isinstance(value, float) and dtype is not None and DataType(dtype).is_int:
        if not value.is_integer():
            raise MisuseError(
                f"{value} is not an {DataType(dtype)} value", rule="WF-22", about=value
            )
        value = int(value)
    return ops.const(value, dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrimStructInfo(base.StructInfo):
    """A scalar of `dtype`, whose value may be known (SI-5).

    Errors:
        MisuseError: there is neither a datatype nor a value.
    """

    _fields = ("dtype", "value")
    dtype: DataType = field(default=None)  # type: ignore[assignment]
    value: tir.PrimExpr | None = None
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self, dtype: str | None = ..., value: tir.ExprLike | None = ..., span: Span | None = ...
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.dtype, (tir.PrimExpr, int, float)):
            raise MisuseError("PrimStructInfo takes a dtype first; write value=...")
        value, kind = self.value, None if self.dtype is None else DataType(self.dtype)
        if value is None and kind is None:
            raise MisuseError("PrimStructInfo needs a dtype or a value")
        if isinstance(value, (bool, int, float)):
            default = INT64 if type(value) is int else None
            value = _exact_const(value, kind or default)
        elif value is not None:
            value = as_scalar(value)
        if kind is None and value is not None:
            kind = value.dtype
        set_fields(self, dtype=kind, value=value)


def scalar_value(expr: base.Expr) -> tir.PrimExpr:
    """The value of a scalar, as its struct info states it.

    Errors:
        MisuseError (also TypeError): it is not a scalar, or its value is not known.
    """
    sinfo = expr.struct_info
    if isinstance(sinfo, PrimStructInfo) and sinfo.value is not None:
        return sinfo.value
    raise MisuseError(
        f"expected a scalar expression, found {described(expr)}",
        rule="AST-21",
        about=expr,
        hint="name its value: R.match_cast(..., R.Prim(value=m)) binds m"
        if isinstance(sinfo, PrimStructInfo)
        else None,
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShapeStructInfo(base.StructInfo):
    """A shape value, whose members or rank may be known (SI-4)."""

    _fields = ("ndim", "values")
    values: tuple[tir.PrimExpr, ...] | None = None
    ndim: int = field(default=None)  # type: ignore[assignment]
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            values: Sequence[tir.ExprLike] | None = ...,
            ndim: int | None = ...,
            span: Span | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        values = None if self.values is None else as_shape(self.values)
        set_fields(
            self, values=values, ndim=_rank(self.ndim, -1 if values is None else len(values))
        )

    @property
    @override
    def node_count(self) -> int:
        return 1 + len(self.values or ())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TensorStructInfo(base.StructInfo):
    """A tensor: datatype (Void: unknown), rank (-1: unknown), and shape if known (SI-2).

    `shape` is a ShapeExpr, or a Var whose value is a shape (SI-3); a sequence of dimensions
    becomes a ShapeExpr.
    """

    _fields = ("dtype", "ndim", "shape", "vdevice")
    shape: base.Expr | None = None
    dtype: DataType = DataType("float32")
    vdevice: object = None
    ndim: int = field(default=None)  # type: ignore[assignment]
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            shape: base.Expr | Sequence[tir.ExprLike] | None = ...,
            dtype: str | None = ...,
            vdevice: object = ...,
            ndim: int | None = ...,
            span: Span | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        shape: object = self.shape
        known = -1
        if shape is not None:
            if not isinstance(shape, base.Expr):
                if not isinstance(shape, (tuple, list)) and (
                    isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence)
                ):
                    raise MisuseError(
                        f"a shape is a sequence of dimensions, found {shape!r}",
                        rule="SI-3",
                        about=shape,
                    )
                shape = ShapeExpr(tuple(shape))
            sinfo = shape.struct_info
            if isinstance(sinfo, ShapeStructInfo):
                known = sinfo.ndim
                check_sizes(sinfo.values or ())
            elif sinfo is not None:
                raise MisuseError(
                    f"the shape of a tensor is a shape value, but {shape} is {sinfo}",
                    rule="SI-3",
                    about=shape,
                )
        if self.vdevice is not None and not isinstance(self.vdevice, (VDevice, str)):
            raise unexpected(self.vdevice, "a tensor is on a VDevice")
        dtype = VOID if self.dtype is None else DataType(self.dtype)
        set_fields(self, shape=shape, dtype=dtype, ndim=_rank(self.ndim, known))

    @property
    @override
    def node_count(self) -> int:
        return 1 + (len(self.shape.values) if isinstance(self.shape, ShapeExpr) else 0)

    @override
    def _computed_key(self) -> object:
        sizes = self.shape.values if isinstance(self.shape, ShapeExpr) else None
        if sizes is None or self.vdevice is not None or any(size._children() for size in sizes):
            return base.StructInfo._computed_key(self)
        return "sizes", self.dtype, *map(id, sizes)  # equal literals and variables are one object

    def get_shape(self) -> tuple[tir.PrimExpr, ...] | None:
        """The dimensions if they are known, perhaps from the struct info of a Var as shape."""
        if isinstance(self.shape, ShapeExpr):
            return self.shape.values
        sinfo = None if self.shape is None else self.shape.struct_info
        return sinfo.values if isinstance(sinfo, ShapeStructInfo) else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleStructInfo(base.StructInfo):
    """A tuple, field by field (SI-6)."""

    _fields = ("fields",)
    fields: tuple[base.StructInfo, ...] = ()
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self, fields: Sequence[base.StructInfo] = ..., span: Span | None = ...
        ) -> None: ...

    def __post_init__(self) -> None:
        fields = as_struct_infos(self.fields)
        set_fields(self, fields=fields, _node_count=base.checked_node_count(fields))


def as_struct_infos(values: object) -> tuple[base.StructInfo, ...]:
    """Convert a list of struct infos or annotations to a tuple.

    Errors:
        MisuseError (also TypeError): it is not a list, or a member is something else.
    """
    return tuple(map(base.as_struct_info, base.as_members(values, "struct infos", "AST-5")))


DeriveFunc: TypeAlias = Callable[["Call", Any], base.StructInfo]


@dataclass(frozen=True, slots=True)
class EnvFunc:
    """A named compile-time function, such as the derivation of a packed function (SI-12)."""

    name: str
    func: DeriveFunc

    @classmethod
    def get(cls, name: str) -> EnvFunc:
        """The derivation or registered packed function of that name.

        Errors:
            UnknownPackedFuncError (also ValueError, KeyError): there is none (EV-13).
        """
        known = DERIVATIONS.get(name) if isinstance(name, str) else None
        return known or cls(name, hooks.call("packed_function", name))

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return self.func(*args)


@dataclass(frozen=True, slots=True)
class _Always:
    """The derivation with the same result for every call."""

    ret: base.StructInfo

    def __call__(self, call: Call, context: object) -> base.StructInfo:
        return self.ret


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FuncStructInfo(base.StructInfo):
    """A Callable, with `params` or, for packed functions, with a `derive_func` (SI-7, SI-8)."""

    _fields = ("purity", "derive_func", "params", "ret")
    _binds_bare_shape_vars = frozenset(("params",))
    _scope = True
    params: tuple[base.StructInfo, ...] | None
    ret: base.StructInfo
    purity: bool = True
    derive_func: EnvFunc | None = field(default=None, kw_only=True)
    span: Span | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            params: Sequence[base.StructInfo] | None,
            ret: base.StructInfo,
            purity: bool = ...,
            *,
            derive_func: EnvFunc | str | None = ...,
            span: Span | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        params = None if self.params is None else as_struct_infos(self.params)
        derive = self.derive_func
        if derive is not None and not isinstance(derive, EnvFunc):
            derive = known_derivation(derive)
        ret = base.as_struct_info(self.ret)
        set_fields(
            self,
            params=params,
            ret=ret,
            purity=bool(self.purity),
            derive_func=derive,
            _node_count=base.checked_node_count((*(params or ()), ret)),
        )

    @staticmethod
    def opaque_func(
        *,
        ret: base.StructInfo | None = None,
        derive_func: EnvFunc | str | None = None,
        purity: bool = False,
    ) -> FuncStructInfo:
        """A packed function; without a `derive_func`, all calls return `ret`."""
        result = ObjectStructInfo() if ret is None else base.as_struct_info(ret)
        if derive_func is None:
            derive_func = EMPTY_DERIVE if ret is None else EnvFunc(f"ret: {ret}", _Always(result))
        return FuncStructInfo(None, result, purity, derive_func=derive_func)


def _default_derive(call: Call, context: object) -> base.StructInfo:
    """The struct info that `sinfo_args` of the call declare (DER-28, DER-29, DER-30)."""
    sinfos = call.sinfo_args
    if not sinfos:
        return ObjectStructInfo()
    return sinfos[0] if len(sinfos) == 1 else TupleStructInfo(sinfos)


def _empty_derive(call: Call, context: object) -> base.StructInfo:
    """DER-31: the result is unknown (Object)."""
    return ObjectStructInfo()


DEFAULT_DERIVE = EnvFunc("default_derive", _default_derive)
EMPTY_DERIVE = EnvFunc("empty_derive", _empty_derive)

#: The derivations that a program may name.
DERIVATIONS: dict[str, EnvFunc] = {func.name: func for func in (DEFAULT_DERIVE, EMPTY_DERIVE)}


def known_derivation(name: object) -> EnvFunc:
    """The derivation of that name.

    Errors:
        MisuseError (also TypeError): `name` is not a string.
        UnknownNameError: there is no such derivation.
    """
    check_type(name, str, "a derive_func is an EnvFunc")
    if name not in DERIVATIONS:
        raise UnknownNameError(
            f"no derivation is named {name!r}; there are {', '.join(DERIVATIONS)}", about=name
        )
    return DERIVATIONS[name]
