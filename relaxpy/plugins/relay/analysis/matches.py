"""Completeness of `match` (RLY-93), and the kinds of types (RLY-17, RLY-67)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from typing_extensions import override

from relaxpy.errors import Diagnostic, MisuseError, RelayTypeError, counted
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, preorder
from relaxpy.plugins.relay.expr import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Var,
)
from relaxpy.plugins.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeData,
    TypeKind,
    TypeRelation,
    TypeVar,
    listed,
)
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.plugins.relay.module import RelayModule

_Row: TypeAlias = dict[int, PatternConstructor | PatternTuple]
"""A row of the match matrix: a clause's refutable patterns by position."""
_Choices: TypeAlias = "tuple[int, Constructor | None, list[int], _Choices] | None"
"""The places that were decided, the last one first: each with its constructor and its fields."""
_MAX_VISITED: Final = 2_000_000
"""The number of rows and demands that are looked at before a match is given up."""


class Case:
    """A pattern that no clause fits; its text is shown in messages."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    @override
    def __str__(self) -> str:
        return pattern_text(self.pattern)

    __repr__ = __str__


def pattern_text(root: Pattern, name_of: Callable[[Var], str] = lambda var: "_") -> str:
    """Return the text of a pattern; `name_of` names its variables."""

    def pieces(part: Pattern | str) -> Iterable[Pattern | str]:
        match part:
            case PatternVar(var=var):
                return (name_of(var),)
            case PatternConstructor(constructor=constructor, patterns=()):
                return (constructor.name_hint,)
            case PatternConstructor(constructor=constructor, patterns=patterns):
                return (f"{constructor.name_hint}(", *listed(patterns), ")")
            case PatternTuple(patterns=patterns):
                return ("(", *listed(patterns, ","), ")")
            case _:
                return () if isinstance(part, str) else ("_",)

    roots: list[Pattern | str] = [root]
    return "".join(part for part in preorder(roots, pieces) if isinstance(part, str))


@user_facing
def unmatched_cases(match: Match, mod: RelayModule | None = None) -> list[Case]:
    """Return a case that no clause of a match fits, in a list; it is empty if there is none.

    Errors:
        MisuseError: a data type of the patterns is not in the module, or there are too many
            combinations of patterns to decide it.
    """
    try:
        return missing_cases(match, mod)
    except TooManyCasesError as error:
        raise MisuseError(
            str(error), rule="RLY-93", hint=TooManyCasesError.hint, about=match
        ) from None


class TooManyCasesError(Exception):
    """The completeness of a match takes too long to decide: it is as hard as satisfiability."""

    hint = "write match?, or split the match into several"

    def __init__(self) -> None:
        super().__init__("the patterns of the match have too many combinations to be checked")


def missing_cases(match: Match, mod: RelayModule | None) -> list[Case]:
    """Return what `unmatched_cases` returns.

    Errors:
        TooManyCasesError: it cannot be decided in bounded time.
    """
    return [Case(pattern) for pattern in _Completeness(mod).cases(match)]


class _Completeness:
    """The search for a value that fits no row of patterns.

    The parts of a value have numbered places: 0 is the whole value, and each field of an instance
    or a tuple has one. The search decides places one after the other.

    Rule:
        Maranget, Journal of Functional Programming 17(3), 2007, section 3. A row contains only what
        it demands, and the next place is one of the row that demands least, so that rows that do
        not exclude each other are decided one by one.
    """

    def __init__(self, module: RelayModule | None) -> None:
        self.module = module
        self.visited = 0
        self.places: dict[tuple[int, int], int] = {}

    def cases(self, match: Match) -> list[Pattern]:
        """Return a pattern of values that fit no clause, if there are such values."""
        start = [_row([(0, clause.lhs)]) for clause in match.clauses]
        stack: list[tuple[list[_Row], _Choices]] = [(start, None)]
        while stack:
            rows, choices = stack.pop()
            if not rows:
                return [self._pattern(choices)]
            shortest = min(rows, key=len)
            if shortest:  # a row that demands nothing fits all values
                stack += reversed(self._decided(rows, next(iter(shortest)), choices))
        return []

    def _decided(
        self, rows: list[_Row], place: int, choices: _Choices
    ) -> list[tuple[list[_Row], _Choices]]:
        """Return the rows specialised to the values that may be at a place."""
        heads = [row[place] for row in rows if place in row]
        if isinstance(heads[0], PatternTuple):
            return [self._chosen(rows, place, None, len(heads[0].patterns), choices)]
        names = {h.constructor.name_hint for h in heads if isinstance(h, PatternConstructor)}
        every = self._constructors(heads[0].constructor)
        # A value that no row mentions fits only rows that any other value fits as well.
        free = [constructor for constructor in every if constructor.name_hint not in names]
        return [
            self._chosen(rows, place, constructor, len(constructor.inputs), choices)
            for constructor in free[:1] or every
        ]

    def _chosen(
        self,
        rows: list[_Row],
        place: int,
        constructor: Constructor | None,
        count: int,
        choices: _Choices,
    ) -> tuple[list[_Row], _Choices]:
        """Return the rows specialised to a constructor, or a tuple, at a place."""
        fields = [self.places.setdefault((place, i), len(self.places) + 1) for i in range(count)]
        left: list[_Row] = []
        self.visited += len(rows)
        for row in rows:
            head = row.get(place)
            if head is None:
                left.append(row)
            elif constructor is None or constructor.name_hint == _name(head):
                rest = {other: pattern for other, pattern in row.items() if other != place}
                left.append(rest | _row(zip(fields, head.patterns, strict=True)))
                self.visited += len(left[-1])
        if self.visited > _MAX_VISITED:
            raise TooManyCasesError
        return left, (place, constructor, fields, choices)

    def _pattern(self, choices: _Choices) -> Pattern:
        """Return the pattern of the values that were chosen."""
        patterns: dict[int, Pattern] = {}
        while choices is not None:  # fields were chosen after what contains them
            place, constructor, fields, choices = choices
            inner = [patterns.get(field) or PatternWildcard() for field in fields]
            patterns[place] = (
                PatternTuple(inner)  # type: ignore[arg-type]
                if constructor is None
                else PatternConstructor(constructor, inner)  # type: ignore[arg-type]
            )
        return patterns.get(0) or PatternWildcard()

    def _constructors(self, known: Constructor) -> Sequence[Constructor]:
        """Return all constructors of the data type of one."""
        header = known.belong_to
        data = None
        if self.module is not None:
            data = self.module.definitions_by_name.get(header.name_hint)
        if data is None:
            raise MisuseError(
                f"the module has no data type {header}",
                rule="RLY-95",
                hint="pass the module that has it as the second argument",
            )
        return data.constructors


def _row(patterns: Iterable[tuple[int, Pattern]]) -> _Row:
    """Return what patterns at places demand."""
    return {
        place: pattern
        for place, pattern in patterns
        if isinstance(pattern, (PatternConstructor, PatternTuple))
    }


def _name(pattern: Pattern) -> str:
    return pattern.constructor.name_hint if isinstance(pattern, PatternConstructor) else ""


@user_facing
def check_kind(t: Type, mod: RelayModule | None = None) -> TypeKind:
    """Return the kind of a type.

    Errors:
        RelayTypeError: a component is of another kind than is needed there, or a data type is
            unknown to `mod` or applied to the wrong number of types.
    """
    errors = kind_errors(t, mod)
    if errors:
        raise RelayTypeError([Diagnostic(message, rule, t.span) for rule, message in errors])
    return kind_of(t)


def kind_of(ty: Node) -> TypeKind:
    """Return the kind of a type whose components are right."""
    match ty:
        case TypeVar(kind=kind) | IncompleteType(kind=kind):
            return kind
        case GlobalTypeVar():
            return TypeKind.AdtHandle
        case TypeData():
            return TypeKind.TypeData
        case TypeRelation():
            return TypeKind.Constraint
        case _:
            return TypeKind.Type


def kind_errors(
    root: Type, module: RelayModule | None, checked: dict[int, Node] | None = None
) -> list[tuple[str, str]]:
    """Return the rule and the message of each wrong kind in a type.

    `checked` are types without errors, by identity; it receives those in `root`.
    """
    errors: list[tuple[str, str]] = []
    known = {} if checked is None else checked
    visited: dict[int, Node] = {}
    stack: list[Node] = [root]
    while stack:
        ty = stack.pop()
        if id(ty) in visited or id(ty) in known:
            continue
        visited[id(ty)] = ty
        for part in _types_in(ty):
            kind = kind_of(part)
            if kind is not TypeKind.Type:
                text = f"expected a type, found {part}, which is of kind {kind.name}"
                errors.append(("RLY-17", text))
        if isinstance(ty, TypeCall):
            errors += _call_errors(ty, module)
        if not isinstance(ty, (TypeVar, TensorType)):
            stack += children(ty)
    if not errors:
        known.update(visited)
    return errors


def _types_in(ty: Node) -> tuple[Node, ...]:
    """Return the components of a type that have to be of kind Type."""
    match ty:
        case TupleType(fields=fields):
            return fields
        case FuncType(arg_types=args, ret_type=result):
            return (*args, result)
        case RefType(value=value):
            return (value,)
        case TypeCall(args=args):
            return args
        case TypeData(constructors=constructors):
            return tuple(field for constructor in constructors for field in constructor.inputs)
        case _:
            return ()


def _call_errors(call: TypeCall, module: RelayModule | None) -> list[tuple[str, str]]:
    if module is None:
        return []
    data = module.definitions_by_name.get(call.func.name_hint)
    if data is None:
        return [("RLY-95", f"the module has no data type {call.func}")]
    if len(call.args) != len(data.type_vars):
        number = counted(len(data.type_vars), "type")
        return [("RLY-67", f"the data type {call.func} takes {number}, found {len(call.args)}")]
    return []
