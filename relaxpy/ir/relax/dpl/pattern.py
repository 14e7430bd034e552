"""The patterns of expressions, the functions that create them, and contexts of several patterns.

Patterns are compared by identity, so each is a key of a match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields as dataclass_fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, TypeAlias, overload

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, as_attrs, set_fields
from relaxpy.ir.core.traverse import postorder
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import BindingBlock, Expr, StructInfo, Var, as_shape, as_struct_info
from relaxpy.ir.relax.nodes.base_classes import check_name
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing
from relaxpy.support.missing import described

if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.graph import VarMatches


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """`user` has `used` as operand `index`, or as any for -1, and is the only user if `only`.

    The pattern of a call implies an edge that is `implied`.
    """

    used: DFPattern
    user: DFPattern
    index: int = -1
    only: bool = False
    implied: bool = False


class PatternContext:
    """Collects the constraints that are written inside `with`.

    They come from `used_by`, `only_used_by`, `fork_to`, `same_shape_as` and from the arguments of
    call patterns. An `incremental` context inherits those of the enclosing context.
    """

    def __init__(self, incremental: bool = False) -> None:
        if not isinstance(incremental, bool):
            raise MisuseError(f"incremental is True or False, found {incremental!r:.60}")
        self.incremental = incremental
        self.edges: list[Edge] = []
        self.same_shapes: list[tuple[DFPattern, ...]] = []

    def __enter__(self) -> Self:
        enclosing = innermost()
        if self.incremental and enclosing is not None:
            self.edges[:0] = [e for e in enclosing.edges if e not in self.edges]
            self.same_shapes[:0] = [g for g in enclosing.same_shapes if g not in self.same_shapes]
        _open.set((*_open.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        _open.set(_open.get()[:-1])

    @staticmethod
    @user_facing
    def current() -> PatternContext:
        """The innermost context that is open.

        Errors:
            MisuseError: no context is open.
        """
        context = innermost()
        if context is None:
            raise MisuseError(
                "no PatternContext is open", hint="open one: with PatternContext() as ctx: ..."
            )
        return context

    def copy_constraints(self, copies: dict[DFPattern, DFPattern]) -> None:
        """Copy the constraints between patterns for their copies."""
        self.edges.extend(
            replace(edge, used=copies[edge.used], user=copies[edge.user])
            for edge in tuple(self.edges)
            if edge.used in copies and edge.user in copies
        )
        self.same_shapes.extend(
            tuple(copies[p] for p in group)
            for group in tuple(self.same_shapes)
            if all(p in copies for p in group)
        )

    @user_facing
    def match_dfb(self, dfb: BindingBlock) -> VarMatches | None:
        """The variable of the block that each pattern matches, or None if there is no match.

        Different patterns match different variables, unless one is a subpattern that matches the
        same expression as the other. An argument that is not a variable is its own match. `>>`
        counts the uses in the block.

        Errors:
            MisuseError (also TypeError): `dfb` is not a block.
        """
        from relaxpy.ir.relax.dpl.graph import BindingGraph, GraphMatcher

        if not isinstance(dfb, BindingBlock):
            raise MisuseError(
                f"a context is matched against a DataflowBlock, found {type(dfb).__name__}",
                about=dfb,
                hint="func.body.blocks are the blocks of a function",
            )
        return next(GraphMatcher(self, BindingGraph(dfb.bindings)).matches(), None)


_open: ContextVar[tuple[PatternContext, ...]] = ContextVar("relaxpy_pattern_contexts", default=())


def innermost() -> PatternContext | None:
    """The innermost context that is open."""
    contexts = _open.get()
    return contexts[-1] if contexts else None


if TYPE_CHECKING:
    Matches: TypeAlias = dict["DFPattern", Any]


class _Chainable:
    """A pattern or a chain of patterns, in which each uses the one before it."""

    __slots__ = ()

    @user_facing
    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """The chain of this and `other`, whose first pattern must use the last one of this.

        It uses it as operand `index`, or as any for -1. This constraint is added to the current
        PatternContext. The method is also written `^`.
        """
        return _used_by(self, other, index, only=False)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    @user_facing
    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """As `used_by`, but nothing else in the block may use it; also written `>>`."""
        return _used_by(self, other, index, only=True)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)


class DFPattern(_Chainable):
    """Base class of all patterns."""

    __slots__ = ()

    @user_facing
    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern:
        """The pattern of a call of a function that this pattern matches; see `CallPattern`."""
        return CallPattern(self, args, varg_default_wildcard, add_constraint)

    @user_facing
    def __or__(self, other: DFPattern) -> OrPattern:
        """The or-pattern of both operands; the left one is tried first."""
        return OrPattern(self, other)

    @user_facing
    def __and__(self, other: DFPattern) -> AndPattern:
        """The and-pattern of both operands."""
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        """The not-pattern: it matches where this one does not."""
        return NotPattern(self)

    @user_facing
    def has_attr(self, attrs: Mapping[str, object]) -> AttrPattern:
        """This pattern, restricted to expressions with these attributes, and perhaps others."""
        return AttrPattern(self, _attributes(attrs))

    @user_facing
    def has_struct_info(self, struct_info: StructInfo) -> StructInfoPattern:
        """This pattern, restricted by struct info; see `StructInfoPattern`."""
        return StructInfoPattern(self, struct_info)

    #: Its names where types are struct info: in TVM after v0.22, and in older versions.
    has_ty = has_type = has_struct_info

    @user_facing
    def has_dtype(self, dtype: str) -> DataTypePattern:
        """This pattern, restricted to tensors of this datatype."""
        return DataTypePattern(self, DataType(dtype))

    @user_facing
    def has_shape(self, shape: Sequence[PrimExpr | int]) -> ShapePattern:
        """This pattern, restricted to tensors that provably have this shape."""
        return ShapePattern(self, _as_dims(shape))

    @user_facing
    def match(self, expr: Expr | Op, var2val: Mapping[Var, Expr] | None = None) -> bool:
        """True if this pattern matches `expr`; `var2val` has the values of variables."""
        return self.extract_matched_expr(expr, var2val) is not None

    @user_facing
    def extract_matched_expr(
        self, expr: Expr | Op, var2val: Mapping[Var, Expr] | None = None
    ) -> Matches | None:
        """The expression that each subpattern matches, or None if `expr` does not match.

        A pattern that occurs twice matches the same value. `var2val` has the values of variables;
        `relax.analysis.get_var2val` returns them.
        """
        from relaxpy.ir.relax.dpl.matcher import extract_matched_expr

        return extract_matched_expr(self, expr, var2val)

    @user_facing
    def fork_to(self, *args: DFPattern | PatternSeq) -> None:
        """Demand, in the current PatternContext, that each of `args` use this pattern."""
        for arg in args:
            self.used_by(arg)

    def dup(self) -> DFPattern:
        """A copy with new objects as subpatterns, and with copies of their constraints."""
        return _copies([self])[self]

    @user_facing
    def same_shape_as(self, *args: DFPattern) -> SameShapeConstraint:
        """Demand, in the current PatternContext, that `args` provably have the shape of this."""
        return SameShapeConstraint(self, *args)


def check_pattern(value: object) -> None:
    """Check that a value is a pattern.

    Errors:
        MisuseError (also TypeError): it is not.
    """
    if not isinstance(value, DFPattern):
        hint = None
        if isinstance(value, Expr):
            hint = "is_expr(...) is the pattern of an expression"
        raise MisuseError(f"expected a pattern, found {described(value)}", about=value, hint=hint)


def _as_patterns(values: object, what: str) -> tuple[DFPattern, ...]:
    if not isinstance(values, (list, tuple)):
        raise unexpected(values, f"{what} are a list of patterns")
    for value in values:
        check_pattern(value)
    return tuple(values)


@dataclass(frozen=True, slots=True, eq=False)
class WildcardPattern(DFPattern):
    """Matches anything."""


@dataclass(frozen=True, slots=True, eq=False)
class ExprPattern(DFPattern):
    """Matches an operator, or expressions that are structurally equal to `expr`."""

    expr: Expr | Op

    def __post_init__(self) -> None:
        check_type(self.expr, (Expr, Op), "expected an expression")


@dataclass(frozen=True, slots=True, eq=False)
class _NamedPattern(DFPattern):
    name_hint: str = ""

    def __post_init__(self) -> None:
        check_name(self.name_hint, "the name in a pattern")

    @property
    def name(self) -> str:
        """The name; empty for any."""
        return self.name_hint


@dataclass(frozen=True, slots=True, eq=False)
class VarPattern(_NamedPattern):
    """Matches a local variable; one of this name, if it is not empty."""


@dataclass(frozen=True, slots=True, eq=False)
class DataflowVarPattern(VarPattern):
    """Matches a DataflowVar; one of this name, if it is not empty."""


@dataclass(frozen=True, slots=True, eq=False)
class GlobalVarPattern(_NamedPattern):
    """Matches a function of the module; that of this name, if it is not empty."""


@dataclass(frozen=True, slots=True, eq=False)
class ExternFuncPattern(DFPattern):
    """Matches a packed function; that of this name, if it is not empty."""

    global_symbol: str = ""

    def __post_init__(self) -> None:
        check_name(self.global_symbol, "the name in a pattern")

    @property
    def name(self) -> str:
        """The name; empty for any."""
        return self.global_symbol


@dataclass(frozen=True, slots=True, eq=False)
class ConstantPattern(DFPattern):
    """Matches a tensor literal."""


@dataclass(frozen=True, slots=True, eq=False)
class CallPattern(DFPattern):
    """Matches a call of `op` with `args`, and with more arguments if `varg_default_wildcard`.

    The operands of `relax.add` and `relax.multiply` match in either order. With `add_constraint` a
    match of the current PatternContext includes the arguments.
    """

    op: DFPattern
    args: tuple[DFPattern, ...]
    varg_default_wildcard: bool

    def __init__(
        self,
        op: DFPattern,
        args: Sequence[DFPattern],
        varg_default_wildcard: bool = False,
        add_constraint: bool = True,
    ) -> None:
        check_pattern(op)
        patterns = _as_patterns(args, "the arguments in a pattern")
        set_fields(self, op=op, args=patterns, varg_default_wildcard=varg_default_wildcard)
        context = innermost()
        if add_constraint and context is not None:
            context.edges.extend(
                Edge(arg, self, index, implied=True) for index, arg in enumerate(self.args)
            )


@dataclass(frozen=True, slots=True, eq=False)
class FunctionPattern(DFPattern):
    """Matches a function by its parameters and its result, in terms of the values of variables."""

    params: tuple[DFPattern, ...]
    body: DFPattern

    def __post_init__(self) -> None:
        set_fields(self, params=_as_patterns(self.params, "the parameters in a pattern"))
        check_pattern(self.body)


@dataclass(frozen=True, slots=True, eq=False)
class _FieldsPattern(DFPattern):
    fields: tuple[DFPattern, ...]

    def __post_init__(self) -> None:
        set_fields(self, fields=_as_patterns(self.fields, "the fields in a pattern"))

    def __len__(self) -> int:
        return len(self.fields)


@dataclass(frozen=True, slots=True, eq=False)
class TuplePattern(_FieldsPattern):
    """Matches a tuple, field by field."""

    @user_facing
    def __getitem__(self, index: int | None) -> TupleGetItemPattern:
        """The pattern that matches field `index` of such a tuple, or any field for None.

        Errors:
            IndexError: the tuple has no such field.
        """
        if index is None:
            return TupleGetItemPattern(self)
        _check_index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} fields")
        return TupleGetItemPattern(self, index % len(self))

    def __iter__(self) -> Iterator[TupleGetItemPattern]:
        return iter([TupleGetItemPattern(self, index) for index in range(len(self))])


@dataclass(frozen=True, slots=True, eq=False)
class UnorderedTuplePattern(_FieldsPattern):
    """Matches a tuple whose fields match in some order, one for each pattern."""


def _check_index(index: object) -> None:
    if isinstance(index, bool) or not isinstance(index, int):
        raise unexpected(index, "an index is an integer")


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItemPattern(DFPattern):
    """Matches field `index` of a tuple, or any field for None."""

    tuple_value: DFPattern
    index: int | None = None

    def __post_init__(self) -> None:
        check_pattern(self.tuple_value)
        if self.index is not None:
            _check_index(self.index)
            if self.index == -1:  # which means any field in TVM
                set_fields(self, index=None)
            elif self.index < 0:
                raise MisuseError(f"fields are numbered from 0, found {self.index}")

    @property
    def tuple(self) -> DFPattern:
        """The pattern of the tuple."""
        return self.tuple_value


@dataclass(frozen=True, slots=True, eq=False)
class PairPattern(DFPattern):
    """Base of the patterns that combine two patterns of one expression."""

    left: DFPattern
    right: DFPattern

    def __post_init__(self) -> None:
        check_pattern(self.left)
        check_pattern(self.right)


@dataclass(frozen=True, slots=True, eq=False)
class OrPattern(PairPattern):
    """An or-pattern: matches what `left` matches, or else what `right` matches."""


@dataclass(frozen=True, slots=True, eq=False)
class AndPattern(PairPattern):
    """An and-pattern: matches what both `left` and `right` match."""


@dataclass(frozen=True, slots=True, eq=False)
class NotPattern(DFPattern):
    """A not-pattern: matches where `to_reject` does not, and does not include it in the match."""

    to_reject: DFPattern

    def __post_init__(self) -> None:
        check_pattern(self.to_reject)

    @property
    def reject(self) -> DFPattern:
        """The pattern that must not match."""
        return self.to_reject


@dataclass(frozen=True, slots=True, eq=False)
class RestrictedPattern(DFPattern):
    """Base of the patterns that match some of the expressions that `pattern` matches."""

    pattern: DFPattern


@dataclass(frozen=True, slots=True, eq=False)
class StructInfoPattern(RestrictedPattern):
    """Matches what `pattern` matches if `struct_info` is provably a base of its struct info.

    A shape variable in it matches any dimension, but the same one everywhere.
    """

    struct_info: StructInfo

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        set_fields(self, struct_info=as_struct_info(self.struct_info))


@dataclass(frozen=True, slots=True, eq=False)
class DataTypePattern(RestrictedPattern):
    """Matches the tensors that `pattern` matches and that are known to have this datatype."""

    dtype: DataType

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        set_fields(self, dtype=DataType(self.dtype))


def _as_dims(shape: object) -> tuple[PrimExpr, ...]:
    if not isinstance(shape, (list, tuple)):
        raise unexpected(shape, "a shape is a list of dimensions")
    return as_shape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class ShapePattern(RestrictedPattern):
    """Matches the tensors that `pattern` matches and that provably have this shape."""

    shape: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        set_fields(self, shape=_as_dims(self.shape))


@dataclass(frozen=True, slots=True, eq=False)
class PrimArrPattern(DFPattern):
    """Matches a shape that provably has these dimensions."""

    shape: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        set_fields(self, shape=_as_dims(self.shape))

    @property
    def fields(self) -> tuple[PrimExpr, ...]:
        """The dimensions."""
        return self.shape

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> PrimExpr:
        _check_index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} dimensions")
        return self.fields[index]


def _attributes(attrs: object) -> Attrs:
    if not isinstance(attrs, Mapping):
        raise unexpected(attrs, "attributes are a dict")
    return as_attrs(attrs)


@dataclass(frozen=True, slots=True, eq=False)
class AttrPattern(RestrictedPattern):
    """Matches the operators, calls and functions that `pattern` matches and that have `attrs`."""

    attrs: Attrs

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        set_fields(self, attrs=_attributes(self.attrs))


# The closed union for `match`; `DFPattern` is the base class.
AnyPattern: TypeAlias = (
    WildcardPattern
    | ExprPattern
    | VarPattern
    | GlobalVarPattern
    | ExternFuncPattern
    | ConstantPattern
    | CallPattern
    | FunctionPattern
    | TuplePattern
    | UnorderedTuplePattern
    | TupleGetItemPattern
    | OrPattern
    | AndPattern
    | NotPattern
    | StructInfoPattern
    | DataTypePattern
    | ShapePattern
    | PrimArrPattern
    | AttrPattern
)


def subpatterns(pattern: DFPattern) -> list[DFPattern]:
    """The patterns in the fields of a pattern, in order."""
    patterns: list[DFPattern] = []
    for field in dataclass_fields(pattern):  # type: ignore[arg-type]
        value = getattr(pattern, field.name)
        if isinstance(value, DFPattern):
            patterns.append(value)
        elif isinstance(value, tuple):
            patterns += [item for item in value if isinstance(item, DFPattern)]
    return patterns


def all_subpatterns(roots: Sequence[DFPattern]) -> list[DFPattern]:
    """The patterns under `roots`, roots included, each once and after its subpatterns."""
    return list(postorder(roots, subpatterns))


def _copies(roots: Sequence[DFPattern]) -> dict[DFPattern, DFPattern]:
    """Copies of the patterns under `roots`, each copied once, with their constraints."""
    table: dict[DFPattern, DFPattern] = {}
    for pattern in all_subpatterns(roots):
        copy = object.__new__(type(pattern))
        for field in dataclass_fields(pattern):  # type: ignore[arg-type]
            value = getattr(pattern, field.name)
            if isinstance(value, DFPattern):
                value = table[value]
            elif isinstance(value, tuple):
                value = tuple(table[v] if isinstance(v, DFPattern) else v for v in value)
            object.__setattr__(copy, field.name, value)
        table[pattern] = copy
    context = innermost()
    if context is not None:
        context.copy_constraints(table)
    return table


@dataclass(frozen=True, slots=True, eq=False, init=False)
class SameShapeConstraint:
    """Demands, in the current PatternContext, that patterns match values of the same shape."""

    args: tuple[DFPattern, ...]

    @user_facing
    def __init__(self, *args: DFPattern) -> None:
        set_fields(self, args=_as_patterns(args, "patterns of one shape"))
        PatternContext.current().same_shapes.append(self.args)


@dataclass(frozen=True, slots=True, eq=False)
class PatternSeq(_Chainable):
    """A chain of patterns, each used by the next."""

    patterns: tuple[DFPattern, ...]

    def __init__(self, patterns: Sequence[DFPattern], only_use: bool = False) -> None:
        set_fields(self, patterns=_as_patterns(patterns, "the patterns of a chain"))
        if not self.patterns:
            raise MisuseError("a chain has at least one pattern")
        for used, user in pairwise(self.patterns):
            _constrain(used, user, -1, only=only_use)

    @overload
    def __getitem__(self, index: int) -> DFPattern: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[DFPattern, ...]: ...
    def __getitem__(self, index: int | slice) -> DFPattern | tuple[DFPattern, ...]:
        return self.patterns[index]

    def __len__(self) -> int:
        return len(self.patterns)

    @override
    def __repr__(self) -> str:
        return f"PatternSeq({list(self.patterns)!r})"

    def dup(self) -> PatternSeq:
        """A chain of copies of the patterns, with copies of their constraints."""
        table = _copies(self.patterns)
        return _chain([table[pattern] for pattern in self.patterns])


def _chain(patterns: Sequence[DFPattern]) -> PatternSeq:
    """A chain of patterns whose constraints exist already."""
    chain = object.__new__(PatternSeq)
    set_fields(chain, patterns=tuple(patterns))
    return chain


def _used_by(left: object, right: object, index: int, *, only: bool) -> PatternSeq:
    chains = [c.patterns if isinstance(c, PatternSeq) else (c,) for c in (left, right)]
    used, users = (_as_patterns(chain, "the patterns of a chain") for chain in chains)
    _constrain(used[-1], users[0], index, only=only)
    return _chain([*used, *users])


def _constrain(used: DFPattern, user: DFPattern, index: int, *, only: bool) -> None:
    _check_index(index)
    if index < -1:
        raise MisuseError(f"operands are numbered from 0, found {index}", about=index)
    PatternContext.current().edges.append(Edge(used, user, index, only))


Args: TypeAlias = Sequence[DFPattern] | TuplePattern


def wildcard() -> WildcardPattern:
    """The wildcard pattern."""
    return WildcardPattern()


@user_facing
def is_var(name: str = "") -> VarPattern:
    """The pattern of a local variable, of this name unless it is empty."""
    return VarPattern(name)


@user_facing
def is_dfv(name: str = "") -> DataflowVarPattern:
    """The pattern of a DataflowVar, of this name unless it is empty."""
    return DataflowVarPattern(name)


@user_facing
def is_gv(name: str = "") -> GlobalVarPattern:
    """The pattern of a global variable, of this name unless it is empty."""
    return GlobalVarPattern(name)


def is_const() -> ConstantPattern:
    """The pattern of a tensor literal."""
    return ConstantPattern()


@user_facing
def is_expr(expr: Expr | Op) -> ExprPattern:
    """The pattern of expressions that are structurally equal to `expr`."""
    return ExprPattern(expr)


@user_facing
def is_op(op_name: str) -> ExprPattern:
    """The pattern of an operator; a call of it is `is_op(name)(...)`.

    Errors:
        UnknownNameError (also KeyError, ValueError): no operator is registered under the name.
    """
    return ExprPattern(Op.get(op_name))


@user_facing
def is_tuple(
    fields: Sequence[DFPattern], unordered: bool = False
) -> TuplePattern | UnorderedTuplePattern:
    """The pattern of a tuple of these fields, in any order if `unordered`."""
    kind = UnorderedTuplePattern if unordered else TuplePattern
    return kind(fields)  # type: ignore[arg-type]


@user_facing
def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """The pattern of field `index` of a tuple, or of any field for None."""
    return TupleGetItemPattern(tuple_value, index)


@user_facing
def is_shape(shape: Sequence[PrimExpr | int]) -> PrimArrPattern:
    """The pattern of a shape with provably these dimensions; `has_shape` is for tensors."""
    return PrimArrPattern(shape)  # type: ignore[arg-type]


@user_facing
def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """The pattern of tensors of this datatype that `pattern` matches."""
    return DataTypePattern(wildcard() if pattern is None else pattern, DataType(dtype))


@user_facing
def has_attr(attrs: Mapping[str, object], pattern: DFPattern | None = None) -> AttrPattern:
    """The pattern of expressions with these attributes that `pattern` matches."""
    return AttrPattern(wildcard() if pattern is None else pattern, attrs)  # type: ignore[arg-type]


@user_facing
def reject(pattern: DFPattern) -> NotPattern:
    """The not-pattern of `pattern`."""
    return NotPattern(pattern)


def _arguments(args: Args | None) -> DFPattern:
    """The pattern of operands in a tuple."""
    if args is None:
        return wildcard()
    if isinstance(args, DFPattern):
        return args
    return TuplePattern(args)  # type: ignore[arg-type]


@user_facing
def is_call_tir(
    func_name: str, args: Args | None = None, tir_vars: DFPattern | None = None
) -> CallPattern:
    """The pattern of `call_tir` of the kernel of this name, with any arguments if `args` is None.

    If the call passes shape variables to the kernel, `tir_vars` is their pattern.
    """
    shape = () if tir_vars is None else (tir_vars,)
    return is_op("relax.call_tir")(
        GlobalVarPattern(func_name), _arguments(args), *shape, add_constraint=False
    )


@user_facing
def is_call_dps_packed(func_name: str, args: Args | None = None) -> CallPattern:
    """The pattern of `call_dps_packed` of the packed function of this name."""
    return is_op("relax.call_dps_packed")(
        ExternFuncPattern(func_name), _arguments(args), add_constraint=False
    )


@user_facing
def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """The pattern of a call of a packed function, with any arguments if `args` is None."""
    callee = ExternFuncPattern(func_name)
    if args is None:
        return callee(varg_default_wildcard=True, add_constraint=False)
    check_type(args, (list, tuple), "arguments are a list of patterns")
    return callee(*args)


@user_facing
def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> DFPattern:
    """The pattern of an operator of two operands, with a bias and an activation if requested."""
    out: DFPattern = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        out = is_op("relax.add")(out, wildcard())
    return out if activation is None else is_op(activation)(out)
