"""Ranges and iteration variables."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, TypeVar

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.core.dtype import INT32, DataType
from relaxpy.ir.core.node import Copied, Node
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Add, ExprLike, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.prim_expr import ScalarOperators
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(frozen=True, slots=True, repr=False)
class Range(Copied):
    """The half-open range [min, min + extent)."""

    _fields = ("min", "extent")
    min: PrimExpr
    extent: PrimExpr

    def __init__(self, begin: ExprLike, end: ExprLike | None = None) -> None:
        """`Range(begin, end)`, or `Range(end)` from 0."""
        if end is None:
            stop = check_integer(ops.convert(begin), "an end")
            start, size = ops.const(0, stop.dtype), stop
        else:
            check_integer(ops.convert(begin), "a begin")
            check_integer(ops.convert(end), "an end")
            start, stop = ops.match_dtypes(begin, end)
            size = extent_between(start, stop)
        object.__setattr__(self, "min", start)
        object.__setattr__(self, "extent", size)

    @classmethod
    def from_min_extent(cls, min_value: ExprLike, extent: ExprLike) -> Range:
        """The range [min, min + extent)."""
        rng = object.__new__(cls)
        start, size = ops.match_dtypes(min_value, extent)
        check_integer(size, "an extent")
        object.__setattr__(rng, "min", start)
        object.__setattr__(rng, "extent", size)
        return rng

    @classmethod
    def point(cls, index: PrimExpr) -> Range:
        """The range [index, index + 1)."""
        return cls.from_min_extent(index, ops.const(1, index.dtype))

    def with_fields(self, **changes: PrimExpr) -> Range:
        """This range with another `min` or `extent`."""
        return Range.from_min_extent(
            changes.get("min", self.min), changes.get("extent", self.extent)
        )

    @property
    @override
    def _bits_inside(self) -> int:  # type: ignore[override]
        return self.min._bits_inside | self.extent._bits_inside

    @override
    def _children(self) -> tuple[Node, ...]:
        return self.min, self.extent

    @property
    def stop(self) -> PrimExpr:
        """The exclusive end, `min + extent`."""
        return self.min + self.extent


def check_integer(value: PrimExpr, noun: str, buffer: str | None = None) -> PrimExpr:
    """`value`. Errors: MisuseError (also TypeError) if it is not a scalar integer."""
    kind = value.dtype
    if not kind.is_int or kind.is_bool or kind.vector:
        whose = "" if buffer is None else f" of buffer {buffer}"
        raise MisuseError(f"{noun}{whose} is an integer, found `{value}` of {kind}", about=value)
    return value


def extent_between(start: PrimExpr, stop: PrimExpr) -> PrimExpr:
    """`stop - start`.

    If `stop` is the node `start + extent`, that is `extent` itself, and if both are sums of one
    node and numbers, the difference of the numbers.
    """
    if stop is start:
        return ops.const(0, stop.dtype)
    if isinstance(stop, Add):
        if stop.a is start:
            return stop.b
        if isinstance(start, Add) and start.a is stop.a:
            first, last = start.b, stop.b
            if isinstance(first, IntImm) and isinstance(last, IntImm):
                return last - first
    return stop - start


K = TypeVar("K", bound=IntEnum)


def enumerated(kinds: type[K], value: object) -> K:
    """The member of `kinds` for a member or number. Errors: MisuseError if there is none."""
    if isinstance(value, kinds):
        return value
    try:
        return kinds(value)  # type: ignore[arg-type]
    except ValueError:
        names = ", ".join(f"{kind.value} ({kind.name})" for kind in kinds)
        raise MisuseError(
            f"no {kinds.__name__} is {value!r:.60}; there are {names}", about=value
        ) from None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IterVar(Copied, ScalarOperators):
    """An iteration variable with its domain, which can be used as an expression.

    The kinds are also attributes, such as `IterVar.CommReduce`.
    """

    DataPar: ClassVar[IterVarKind] = IterVarKind.DataPar
    ThreadIndex: ClassVar[IterVarKind] = IterVarKind.ThreadIndex
    CommReduce: ClassVar[IterVarKind] = IterVarKind.CommReduce
    Ordered: ClassVar[IterVarKind] = IterVarKind.Ordered
    Opaque: ClassVar[IterVarKind] = IterVarKind.Opaque
    Unrolled: ClassVar[IterVarKind] = IterVarKind.Unrolled
    Vectorized: ClassVar[IterVarKind] = IterVarKind.Vectorized
    Parallelized: ClassVar[IterVarKind] = IterVarKind.Parallelized
    Tensorized: ClassVar[IterVarKind] = IterVarKind.Tensorized
    _fields = ("dom", "var", "iter_type", "thread_tag")
    _binds = frozenset(("var",))
    dom: Range | None
    var: Var
    iter_type: IterVarKind
    thread_tag: str = ""
    span: Span | None = None

    def __post_init__(self) -> None:
        dom = self.dom
        if isinstance(dom, (tuple, list)) and len(dom) == 2:
            dom = Range(*dom)
            object.__setattr__(self, "dom", dom)
        if dom is not None and not isinstance(dom, Range):
            raise unexpected(dom, "a domain is a Range, a pair (begin, end) or None")
        if isinstance(self.var, str):
            kind = dom.extent.dtype if isinstance(dom, Range) else INT32
            object.__setattr__(self, "var", Var(self.var, kind))
        ops.check_variable(self.var, "an iteration variable")
        check_type(self.thread_tag, str, "a thread is named by a string")
        object.__setattr__(self, "iter_type", enumerated(IterVarKind, self.iter_type))

    @override
    def __prim_expr__(self) -> PrimExpr:
        return self.var

    @property
    @override
    def _bits_inside(self) -> int:  # type: ignore[override]
        own = self.var._bits_inside
        return own if self.dom is None else own | self.dom._bits_inside

    @property
    def dtype(self) -> DataType:
        """The datatype of the variable."""
        return self.var.dtype
