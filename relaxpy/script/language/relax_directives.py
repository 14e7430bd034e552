"""The words of `R` that are no operators, and the operators as namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx, op as _op  # noqa: F401  (registers the operators)
from relaxpy.ir.relax.op.call import call_packed as _call_packed
from relaxpy.ir.relax.op.registry import OpDef, registered_ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.script.language import records
from relaxpy.script.language.annotations import resolve
from relaxpy.script.language.eager import word
from relaxpy.script.language.wording import unknown_member


@word
def dataflow() -> records.DataflowForm:
    """A block of bindings without side effects: `with R.dataflow():`."""
    return records.DataflowForm()


@word
def SeqExpr() -> records.SeqForm:
    """Bindings with names of their own: `with R.SeqExpr():`."""
    return records.SeqForm()


@word
def output(*variables: rx.Var) -> records.OutputForm:
    """The variables that the dataflow block hands on."""
    return records.OutputForm(variables)


@word
def match_cast(value: object, struct_info: object) -> records.MatchCastForm:
    """`value` checked at run time against an info, whose new lone variables it binds.

    An if or a function, which takes statements to write, stands in the block of
    `with R.match_cast(..., struct_info):`.
    """
    return records.MatchCastForm(value, struct_info)


@word
def func_attr(attrs: Mapping[str, object]) -> records.AttrsForm:
    """Attributes of the function."""
    return records.AttrsForm("function", records.attributes(attrs))


@word
def emit(value: object) -> records.EmitForm:
    """`value`, bound to the variable on the left."""
    return records.EmitForm(value)


def const(
    value: object, dtype: str | None = None, *, shape: Sequence[int] | None = None
) -> rx.Constant:
    """A tensor literal; without `dtype`, integers are int32 and floats float32.

    `shape` says what the nesting of lists cannot, such as how long no rows are.
    """
    found = rx.const(value, dtype)
    if shape is None:
        return found
    try:
        return rx.Constant(found.data.reshape(shape))
    except (ValueError, TypeError):
        raise MisuseError(
            f"{found.data.size} elements have no shape {shape!r:.60}", about=shape
        ) from None


def prim_value(value: ExprLike) -> rx.PrimValue:
    """A scalar."""
    return rx.PrimValue(value)  # type: ignore[arg-type]


def string(value: str) -> rx.StringImm:
    """A string."""
    if not isinstance(value, str):
        raise MisuseError(f"expected a string, found {value!r:.60}", about=value)
    return rx.StringImm(value)


def dtype(value: str) -> rx.DataTypeImm:
    """A datatype as a value."""
    return rx.DataTypeImm(DataType(value))


def shape(values: Sequence[PrimExpr | int]) -> rx.ShapeExpr:
    """A shape value."""
    if not isinstance(values, (tuple, list)):
        raise MisuseError(f"a shape has a list of members, found {values!r:.60}", about=values)
    return rx.ShapeExpr(tuple(values))


def make_tuple(*fields: object) -> rx.Tuple:
    """A tuple."""
    return rx.Tuple(tuple(rx.convert_to_expr(field) for field in fields))


def ExternFunc(global_symbol: str, struct_info: object = None) -> rx.ExternFunc:
    """The packed function registered under a name."""
    if not isinstance(global_symbol, str):
        raise MisuseError(
            f"a packed function is named by a string, found {global_symbol!r:.60}",
            about=global_symbol,
        )
    return rx.ExternFunc(global_symbol, None if struct_info is None else resolve(struct_info))


def TupleGetItem(tuple_value: object, index: int) -> rx.TupleGetItem:
    """Field `index` of a tuple, taken when the program runs: `(x, y)[0]` is `x` at once."""
    return rx.TupleGetItem(rx.convert_to_expr(tuple_value), index)


def call_packed(
    func: rx.Expr | str, *args: Any, sinfo_args: object = (), **attrs: object
) -> rx.Call:
    """A call of a packed function, by name; `sinfo_args` says what it gives."""
    return _call_packed(func, *args, sinfo_args=sinfo_args, **attrs)  # type: ignore[arg-type]


class OpSpace:
    """The operators whose names begin with `prefix`; more may be registered later."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    @user_facing
    def __getattr__(self, name: str) -> OpDef | OpSpace:
        found = find(self._prefix + name)
        if found is None:
            display_name = self._prefix.replace("relax", "R", 1).removesuffix(".")
            raise unknown_member(self, display_name, name)
        return found

    def _offers(self, name: str) -> bool:
        """Whether there is such a name."""
        return find(self._prefix + name) is not None

    def _public_names(self) -> set[str]:
        """The names there are."""
        return public(self._prefix)

    @override
    def __dir__(self) -> list[str]:
        return sorted(self._public_names())

    @override
    def __repr__(self) -> str:
        return f"<operators {self._prefix}*>"


def find(name: str) -> OpDef | OpSpace | None:
    """The operator of this full name, or the space of those below it."""
    table = registered_ops()
    record = table.get(name)
    if record is not None:
        return record
    below = f"{name}."
    return OpSpace(below) if below in _prefixes(len(table)) else None


@lru_cache(maxsize=1)
def _prefixes(count: int) -> frozenset[str]:
    """What stands before a dot in the names of the `count` operators that are registered."""
    parts = (name.split(".") for name in registered_ops())
    return frozenset(".".join(p[:k]) + "." for p in parts for k in range(1, len(p)))


def public(prefix: str) -> set[str]:
    """The first words of operators' names after `prefix`."""
    start = len(prefix)
    return {n[start:].split(".")[0] for n in registered_ops() if n.startswith(prefix)}
