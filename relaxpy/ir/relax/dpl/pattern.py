"""The patterns: nodes that say which expressions they match. Each object is a key of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, fields as dataclass_fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, as_attrs
from relaxpy.ir.op import Op
from relaxpy.ir.relax.dpl import constraints
from relaxpy.ir.relax.nodes import Expr, StructInfo, Var, as_shape, as_struct_info
from relaxpy.ir.relax.nodes.base import check_name, set_fields
from relaxpy.ir.tir.expr import PrimExpr

if TYPE_CHECKING:
    Found: TypeAlias = dict["DFPattern", Any]


class DFPattern:
    """Base of all patterns; compared by identity, so each is a key of what a match gives."""

    __slots__ = ()

    @user_facing
    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern:
        """The pattern of a call of what this matches; see `CallPattern`."""
        return CallPattern(self, args, varg_default_wildcard, add_constraint)

    @user_facing
    def __or__(self, other: DFPattern) -> OrPattern:
        """What matches either; this one is tried first."""
        return OrPattern(self, other)

    @user_facing
    def __and__(self, other: DFPattern) -> AndPattern:
        """What matches both."""
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        """What this does not match."""
        return NotPattern(self)

    @user_facing
    def has_attr(self, attrs: Mapping[str, object]) -> AttrPattern:
        """This pattern, for what has these attributes, among others maybe."""
        return AttrPattern(self, _attributes(attrs))

    @user_facing
    def has_struct_info(self, struct_info: StructInfo) -> StructInfoPattern:
        """This pattern, for what provably has this info; see `StructInfoPattern`."""
        return StructInfoPattern(self, struct_info)

    @user_facing
    def has_dtype(self, dtype: str) -> DataTypePattern:
        """This pattern, for tensors of this datatype."""
        return DataTypePattern(self, DataType(dtype))

    @user_facing
    def has_shape(self, shape: Sequence[PrimExpr | int]) -> ShapePattern:
        """This pattern, for tensors of provably this shape."""
        return ShapePattern(self, _sizes(shape))

    @user_facing
    def match(self, expr: Expr | Op, var2val: Mapping[Var, Expr] | None = None) -> bool:
        """Whether `expr` matches, variables standing for their values in `var2val`."""
        return self.extract_matched_expr(expr, var2val) is not None

    @user_facing
    def extract_matched_expr(
        self, expr: Expr | Op, var2val: Mapping[Var, Expr] | None = None
    ) -> Found | None:
        """What each pattern in this one matches, or None if `expr` does not match.

        A pattern that occurs twice matches one and the same value. Variables stand for their values
        in `var2val`, as `relax.analysis.get_var2val` gives them.
        """
        from relaxpy.ir.relax.dpl.matcher import extract_matched_expr

        return extract_matched_expr(self, expr, var2val)

    @user_facing
    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Ask the current PatternContext that `other` have this as an operand, also `^`."""
        return _used_by(_chain([self]), other, index, only=False)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    @user_facing
    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """Ask the current PatternContext that `other`, and nothing else in the block, use this.

        It is also written `>>`.
        """
        return _used_by(_chain([self]), other, index, only=True)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    @user_facing
    def fork_to(self, *args: DFPattern | PatternSeq) -> None:
        """Ask the current PatternContext that each of `args` use this."""
        for arg in args:
            self.used_by(arg)

    def dup(self) -> DFPattern:
        """A pattern like this of new objects, under like constraints in the current context."""
        return _copies([self])[self]

    @user_facing
    def same_shape_as(self, *args: DFPattern) -> SameShapeConstraint:
        """Ask the current PatternContext that these and this provably have one shape."""
        return SameShapeConstraint(self, *args)


def check_pattern(value: object) -> None:
    """Check that a value is a pattern.

    Errors:
        MisuseError (also TypeError): it is none.
    """
    if not isinstance(value, DFPattern):
        hint = None
        if isinstance(value, Expr):
            hint = "is_expr(...) makes a pattern of an expression"
        raise MisuseError(
            f"expected a pattern, found {type(value).__name__} {value!r:.60}",
            about=value,
            hint=hint,
        )


def _patterns(values: object, what: str) -> tuple[DFPattern, ...]:
    if not isinstance(values, (list, tuple)):
        raise MisuseError(f"{what} are a list of patterns, found {values!r:.60}", about=values)
    for value in values:
        check_pattern(value)
    return tuple(values)


@dataclass(frozen=True, slots=True, eq=False)
class WildcardPattern(DFPattern):
    """Matches anything."""


@dataclass(frozen=True, slots=True, eq=False)
class ExprPattern(DFPattern):
    """Matches an operator, or what is structurally equal to an expression."""

    expr: Expr | Op

    def __post_init__(self) -> None:
        if not isinstance(self.expr, (Expr, Op)):
            raise MisuseError(f"expected an expression, found {self.expr!r:.60}", about=self.expr)


@dataclass(frozen=True, slots=True, eq=False)
class _NamedPattern(DFPattern):
    name: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "the name in a pattern")

    @property
    def name_hint(self) -> str:
        """The name; empty for any."""
        return self.name


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
class ExternFuncPattern(_NamedPattern):
    """Matches a packed function; that of this name, if it is not empty."""

    @property
    def global_symbol(self) -> str:
        """The name; empty for any."""
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class ConstantPattern(DFPattern):
    """Matches a tensor literal."""


@dataclass(frozen=True, slots=True, eq=False)
class CallPattern(DFPattern):
    """Matches a call of `op` with `args`; with others behind them if `varg_default_wildcard`.

    The operands of `relax.add` and `relax.multiply` match in either order. With `add_constraint` a
    match of the current PatternContext says what the arguments are, too.
    """

    op: DFPattern
    args: tuple[DFPattern, ...]
    varg_default_wildcard: bool = False
    add_constraint: InitVar[bool] = True

    def __post_init__(self, add_constraint: bool) -> None:
        check_pattern(self.op)
        set_fields(self, args=_patterns(self.args, "the arguments in a pattern"))
        found = constraints.current()
        if add_constraint and found is not None:
            found.edges.extend(
                constraints.Edge(arg, self, index, implied=True)
                for index, arg in enumerate(self.args)
            )


@dataclass(frozen=True, slots=True, eq=False)
class FunctionPattern(DFPattern):
    """Matches a function by its parameters and its result, its variables standing for values."""

    params: tuple[DFPattern, ...]
    body: DFPattern

    def __post_init__(self) -> None:
        set_fields(self, params=_patterns(self.params, "the parameters in a pattern"))
        check_pattern(self.body)


@dataclass(frozen=True, slots=True, eq=False)
class _FieldsPattern(DFPattern):
    fields: tuple[DFPattern, ...]

    def __post_init__(self) -> None:
        set_fields(self, fields=_patterns(self.fields, "the fields in a pattern"))

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
    """Matches a tuple whose fields match in some order, each its own."""


def _check_index(index: object) -> None:
    if isinstance(index, bool) or not isinstance(index, int):
        raise MisuseError(f"an index is an integer, found {index!r:.60}", about=index)


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItemPattern(DFPattern):
    """Matches field `index` of a tuple, or any field for None."""

    tuple: DFPattern
    index: int | None = None

    def __post_init__(self) -> None:
        check_pattern(self.tuple)
        if self.index is not None:
            _check_index(self.index)
            if self.index == -1:  # TVM's word for any
                set_fields(self, index=None)
            elif self.index < 0:
                raise MisuseError(f"fields are numbered from 0, found {self.index}")

    @property
    def tuple_value(self) -> DFPattern:
        """The pattern of the tuple."""
        return self.tuple


@dataclass(frozen=True, slots=True, eq=False)
class _PairPattern(DFPattern):
    left: DFPattern
    right: DFPattern

    def __post_init__(self) -> None:
        check_pattern(self.left)
        check_pattern(self.right)


@dataclass(frozen=True, slots=True, eq=False)
class OrPattern(_PairPattern):
    """Matches what `left` matches, else what `right` matches."""


@dataclass(frozen=True, slots=True, eq=False)
class AndPattern(_PairPattern):
    """Matches what `left` and `right` both match."""


@dataclass(frozen=True, slots=True, eq=False)
class NotPattern(DFPattern):
    """Matches what `reject` does not match; patterns in it match nothing that could be told."""

    reject: DFPattern

    def __post_init__(self) -> None:
        check_pattern(self.reject)


@dataclass(frozen=True, slots=True, eq=False)
class StructInfoPattern(DFPattern):
    """Matches what `pattern` does and provably has an info at least as specific as `struct_info`.

    A shape variable in it stands for whatever size it meets, everywhere the same.
    """

    pattern: DFPattern
    struct_info: StructInfo

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        set_fields(self, struct_info=as_struct_info(self.struct_info))


@dataclass(frozen=True, slots=True, eq=False)
class DataTypePattern(DFPattern):
    """Matches the tensors that `pattern` matches and that are known to have this datatype."""

    pattern: DFPattern
    dtype: DataType

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        set_fields(self, dtype=DataType(self.dtype))


def _sizes(shape: object) -> tuple[PrimExpr, ...]:
    if not isinstance(shape, (list, tuple)):
        raise MisuseError(f"a shape is a list of sizes, found {shape!r:.60}", about=shape)
    return as_shape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class ShapePattern(DFPattern):
    """Matches the tensors that `pattern` matches and that provably have this shape."""

    pattern: DFPattern
    shape: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        set_fields(self, shape=_sizes(self.shape))


@dataclass(frozen=True, slots=True, eq=False)
class PrimArrPattern(DFPattern):
    """Matches a shape of provably these sizes."""

    fields: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        set_fields(self, fields=_sizes(self.fields))

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> PrimExpr:
        _check_index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} sizes")
        return self.fields[index]


def _attributes(attrs: object) -> Attrs:
    if not isinstance(attrs, Mapping):
        raise MisuseError(f"attributes are a dict, found {attrs!r:.60}", about=attrs)
    return as_attrs(attrs)


@dataclass(frozen=True, slots=True, eq=False)
class AttrPattern(DFPattern):
    """Matches the operators, calls and functions that `pattern` matches and that have `attrs`."""

    pattern: DFPattern
    attrs: Attrs

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        set_fields(self, attrs=_attributes(self.attrs))


# The closed set, for `match`; `DFPattern` is the base class.
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


def parts(pattern: DFPattern) -> list[DFPattern]:
    """The patterns that stand in the fields of a pattern, in order."""
    found: list[DFPattern] = []
    for field in dataclass_fields(pattern):  # type: ignore[arg-type]
        value = getattr(pattern, field.name)
        if isinstance(value, DFPattern):
            found.append(value)
        elif isinstance(value, tuple):
            found += [item for item in value if isinstance(item, DFPattern)]
    return found


def all_parts(roots: Sequence[DFPattern]) -> list[DFPattern]:
    """The patterns under `roots`, themselves included, each once, parts before what has them."""
    found: dict[DFPattern, None] = {}
    stack: list[tuple[DFPattern, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        pattern, ready = stack.pop()
        if ready:
            found[pattern] = None
        elif pattern not in found:
            stack.append((pattern, True))
            stack += [(part, False) for part in reversed(parts(pattern))]
    return list(found)


def _copies(roots: Sequence[DFPattern]) -> dict[DFPattern, DFPattern]:
    """New patterns for those under `roots`, what is shared still shared, with their constraints."""
    table: dict[DFPattern, DFPattern] = {}
    for pattern in all_parts(roots):
        made = object.__new__(type(pattern))
        for field in dataclass_fields(pattern):  # type: ignore[arg-type]
            value = getattr(pattern, field.name)
            if isinstance(value, DFPattern):
                value = table[value]
            elif isinstance(value, tuple):
                value = tuple(table[v] if isinstance(v, DFPattern) else v for v in value)
            object.__setattr__(made, field.name, value)
        table[pattern] = made
    found = constraints.current()
    if found is not None:
        found.repeat_for(table)
    return table


@dataclass(frozen=True, slots=True, eq=False, init=False)
class SameShapeConstraint:
    """Asks the current PatternContext that what these patterns match provably has one shape."""

    args: tuple[DFPattern, ...]

    @user_facing
    def __init__(self, *args: DFPattern) -> None:
        set_fields(self, args=_patterns(args, "patterns of one shape"))
        _constraints("one shape").same_shapes.append(self.args)


def _constraints(what: str) -> constraints.Constraints:
    found = constraints.current()
    if found is None:
        raise MisuseError(
            f"nothing is asked to have {what}: no PatternContext is open",
            hint="write it inside: with PatternContext() as ctx: ...",
        )
    return found


@dataclass(frozen=True, slots=True, eq=False)
class PatternSeq:
    """A chain of patterns, each used by the next."""

    patterns: tuple[DFPattern, ...]
    only_use: InitVar[bool] = False

    def __post_init__(self, only_use: bool) -> None:
        given = _patterns(self.patterns, "the patterns of a chain")
        if not given:
            raise MisuseError("a chain has at least one pattern")
        set_fields(self, patterns=given)
        for used, user in pairwise(given):
            _constrain(used, user, -1, only=only_use)

    @user_facing
    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """This chain and `other`, whose first pattern has the last one here as an operand."""
        return _used_by(self, other, index, only=False)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    @user_facing
    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """This chain and `other`, whose first pattern alone uses the last one here."""
        return _used_by(self, other, index, only=True)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

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
        """A chain like this of new patterns, under like constraints in the current context."""
        table = _copies(self.patterns)
        return _chain([table[pattern] for pattern in self.patterns])


def _chain(patterns: Sequence[DFPattern]) -> PatternSeq:
    """A chain of patterns between which there are constraints already."""
    made = object.__new__(PatternSeq)
    set_fields(made, patterns=tuple(patterns))
    return made


def _used_by(
    left: PatternSeq, right: DFPattern | PatternSeq, index: int, *, only: bool
) -> PatternSeq:
    if not isinstance(right, PatternSeq):
        check_pattern(right)
        right = _chain([right])
    _constrain(left.patterns[-1], right.patterns[0], index, only=only)
    return _chain([*left.patterns, *right.patterns])


def _constrain(used: DFPattern, user: DFPattern, index: int, *, only: bool) -> None:
    _check_index(index)
    if index < -1:
        raise MisuseError(f"operands are numbered from 0, found {index}", about=index)
    edges = _constraints("a user").edges
    edges.append(constraints.Edge(used, user, index, only))
