"""Reductions as expressions: commutative reducers, and Reduce over iteration variables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from relaxpy.errors import MisuseError, check_type, counted, unexpected
from relaxpy.ir.core.dtype import BOOL, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.tir import intrin, ops
from relaxpy.ir.tir.expr import ExprLike, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.errors import Span

Combine: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CommReducer(Node):
    """A commutative function from `lhs` and `rhs` to `result`, and its identity element.

    All four fields have one element per value that is reduced at the same time.
    """

    _fields = ("lhs", "rhs", "result", "identity_element")
    _binds = frozenset(("lhs", "rhs"))
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[PrimExpr, ...]
    identity_element: tuple[PrimExpr, ...]
    span: Span | None = None

    def __post_init__(self) -> None:
        for name in ("lhs", "rhs", "result", "identity_element"):
            object.__setattr__(self, name, ops.convert_all(getattr(self, name)))
        for operand in (*self.lhs, *self.rhs):
            ops.check_variable(operand, "a reducer")
        if not len(self.lhs) == len(self.rhs) == len(self.result) == len(self.identity_element):
            raise MisuseError(
                "a reducer has as many operands on either side as results and identities"
            )

    def combine(self, left: Sequence[PrimExpr], right: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        """Apply the function to two groups of values."""
        values = dict(zip(self.lhs + self.rhs, (*left, *right), strict=True))
        return tuple(substitute(r, values) for r in self.result)


class Reduce(PrimExpr):
    """Value `value_index` of the reduction of `source` over `axis`, where `condition` holds."""

    __slots__ = ("axis", "combiner", "condition", "init", "source", "value_index")
    __match_args__ = ("combiner", "source", "axis", "condition", "value_index", "init")
    _fields = ("combiner", "axis", "source", "condition", "value_index", "init")
    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr
    value_index: int
    init: tuple[PrimExpr, ...]

    def __new__(
        cls,
        combiner: CommReducer,
        src: Sequence[ExprLike],
        rdom: Sequence[IterVar],
        condition: ExprLike | None = None,
        value_index: int = 0,
        init: Sequence[ExprLike] | None = None,
        span: Span | None = None,
    ) -> Self:
        """Errors: MisuseError if an axis is not a reduction axis or `src` has a wrong length."""
        source, index = ops.convert_all(src), ops.as_int(value_index)
        check_type(combiner, CommReducer, "expected a CommReducer")
        check_type(rdom, (list, tuple), "expected a list of axes")
        axes = tuple(rdom)
        for axis in axes:
            if not isinstance(axis, IterVar) or axis.iter_type != IterVarKind.CommReduce:
                raise MisuseError(
                    f"expected a reduction axis, found {axis}", hint="create it by te.reduce_axis"
                )
        if len(source) != len(combiner.result):
            raise MisuseError(
                f"the reducer takes {len(combiner.result)} values, found {len(source)}"
            )
        if not 0 <= index < len(source):
            raise MisuseError(f"the reduction has {len(source)} values, found index {index}")
        start = ops.convert_all(init or ())
        if start and len(start) != len(source):
            raise MisuseError(f"a reduction of {len(source)} values has as many initial ones")
        test = ops.const(True, BOOL) if condition is None else ops.truth(condition)
        return cls._make(source[index].dtype, combiner, axes, source, test, index, start)


def make_reducer(combine: Combine, identity: Sequence[ExprLike]) -> CommReducer:
    """Build a reducer from a Python function and one identity element per reduced value.

    `combine` takes the left operands, then the right operands.

    Errors:
        MisuseError: `combine` takes or returns a wrong number of values.
    """
    if not callable(combine):
        raise unexpected(combine, "a reducer is a function of values")
    start = ops.convert_all(identity)
    names = list(inspect.signature(combine).parameters)
    if len(names) != 2 * len(start):
        raise MisuseError(
            f"a reducer of {counted(len(start), 'value')} combines {2 * len(start)}, "
            f"this function takes {', '.join(names) or 'none'}"
        )
    kinds = [value.dtype for value in (*start, *start)]
    operands = tuple(Var(name, kind) for name, kind in zip(names, kinds, strict=True))
    combined = combine(*operands)
    result = ops.convert_all(combined if isinstance(combined, tuple) else (combined,))
    return CommReducer(operands[: len(start)], operands[len(start) :], result, start)


Reduction: TypeAlias = PrimExpr | tuple[PrimExpr, ...]


def comm_reducer(
    fcombine: Combine, fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reducer `r(expr, axis, where=None, init=None)` from a function and its identity.

    `fcombine(x, y)` combines two values, or two tuples of values where `expr` is a tuple;
    `fidentity` takes as many datatypes. `r(a, b, ...)` without axes combines its arguments.
    """
    operands = _operand_names(fcombine)
    if not callable(fidentity):
        raise unexpected(
            fidentity,
            "the identity of a reducer is a function of datatypes",
            hint="T.comm_reducer takes a list of values, too",
        )
    check_type(name, str, "a reducer is named by a string")

    def build(expr: Any, axis: Any, where: ExprLike | None, init: Any) -> Reduction:
        axes = list(axis) if isinstance(axis, (list, tuple)) else [axis]
        is_tuple = isinstance(expr, (tuple, list))
        source = [ops.convert(e) for e in (expr if is_tuple else [expr])]
        if not source:
            raise unexpected(expr, f"{name}: expr is a scalar or several of them")
        dtypes = [s.dtype for s in source]
        lhs, rhs = (
            [Var(f"{name}_{k}" if is_tuple else name, d) for k, d in enumerate(dtypes)]
            for name in operands
        )
        result = fcombine(tuple(lhs), tuple(rhs)) if is_tuple else (fcombine(lhs[0], rhs[0]),)
        identity = fidentity(*dtypes) if is_tuple else (fidentity(dtypes[0]),)
        combiner = CommReducer(
            tuple(lhs),
            tuple(rhs),
            tuple(ops.convert(r) for r in result),
            tuple(ops.convert(i) for i in identity),
        )
        start = None if init is None else (list(init) if is_tuple else [init])
        results = tuple(
            Reduce(combiner, source, axes, where, index, start) for index in range(len(source))
        )
        return results if is_tuple else results[0]

    def reducer(
        expr: Any, axis: Any = None, *args: Any, where: ExprLike | None = None, init: Any = None
    ) -> Reduction:
        first = axis[0] if isinstance(axis, (list, tuple)) and axis else axis
        if isinstance(first, IterVar) or (isinstance(axis, (list, tuple)) and not axis):
            if args:
                where, *inits = args
                init = inits[0] if inits else init
            return build(expr, axis, where, init)
        if axis is None:
            raise MisuseError(f"{name} takes axes to reduce over, or several values", about=expr)
        values = (expr, axis, *args)
        grouped = isinstance(expr, (list, tuple))
        return reduce(fcombine, values if grouped else map(ops.convert, values))

    reducer.__name__ = reducer.__qualname__ = name
    reducer.__doc__ = (
        f"Return the {name} of an expression over reduction axes, or of the arguments."
    )
    return reducer


def _operand_names(fcombine: object) -> tuple[str, str]:
    """The names of the two values that a function combines."""
    if not callable(fcombine):
        raise unexpected(fcombine, "a reducer is a function of two values")
    try:
        names = list(inspect.signature(fcombine).parameters)
    except ValueError:
        return "x", "y"  # builtins may have no signature
    if len(names) < 2:
        raise MisuseError(f"a reducer combines two values, {fcombine!r:.60} takes {names}")
    return names[0], names[1]


def _constant(value: float) -> Callable[[DataType], PrimExpr]:
    return lambda dtype: ops.const(value, dtype)


sum = comm_reducer(lambda x, y: x + y, _constant(0), "sum")
prod = comm_reducer(lambda x, y: x * y, _constant(1), "prod")
min = comm_reducer(lambda x, y: ops.minimum(x, y), intrin.max_value, "min")
max = comm_reducer(lambda x, y: ops.maximum(x, y), intrin.min_value, "max")
all = comm_reducer(lambda x, y: ops.all_of(x, y), _constant(True), "all")
any = comm_reducer(lambda x, y: ops.any_of(x, y), _constant(False), "any")
