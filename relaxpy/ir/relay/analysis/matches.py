"""Completeness of `match` (RLY-93): the cases that no clause fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.trampoline import Task, run
from relaxpy.ir.relay.expr import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)

if TYPE_CHECKING:
    from relaxpy.ir.relay.module import RelayModule

_Row: TypeAlias = tuple[Pattern, ...]
_MAX_STEPS = 100_000


class Case:
    """A pattern that no clause fits; its text is what a message shows."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    @override
    def __str__(self) -> str:
        return case_text(self.pattern)

    __repr__ = __str__


def case_text(root: Pattern) -> str:
    """Return the text of a pattern without variables."""
    pieces: list[str] = []
    stack: list[Pattern | str] = [root]
    while stack:
        part = stack.pop()
        inner: Sequence[Pattern] = ()
        if isinstance(part, str):
            pieces.append(part)
            continue
        if isinstance(part, PatternConstructor):
            pieces.append(part.constructor.name_hint)
            inner = part.patterns
        elif isinstance(part, PatternTuple):
            inner = part.patterns
            if not inner:
                pieces.append("()")
        else:
            pieces.append("_")
        if inner:
            listed: list[Pattern | str] = ["("]
            for index, pattern in enumerate(inner):
                listed += (", ", pattern) if index else (pattern,)
            stack += reversed([*listed, ")"])
    return "".join(pieces)


@user_facing
def unmatched_cases(match: Match, mod: RelayModule | None = None) -> list[Case]:
    """Return a case that no clause of a match fits, in a list; it is empty if there is none.

    Errors:
        MisuseError: a data type of the patterns is not in the module, or there are too many
            combinations of patterns to decide it.
    """
    rows: list[_Row] = [(clause.lhs,) for clause in match.clauses]
    witness = run(_Completeness(mod).witness(rows, 1))
    return [] if witness is None else [Case(witness[0])]


class _Completeness:
    """The search for values that fit no row of patterns, by columns.

    Rule:
        Maranget, Journal of Functional Programming 17(3), 2007, section 3.
    """

    def __init__(self, module: RelayModule | None) -> None:
        self.module = module
        self.steps = 0

    def witness(self, rows: list[_Row], width: int) -> Task[_Row | None]:
        """Return patterns for `width` values that fit no row, or None."""
        self.steps += 1 + len(rows)
        if self.steps > _MAX_STEPS:
            raise MisuseError(
                "the patterns of a match have too many combinations to be checked",
                rule="RLY-93",
                hint="write match? or split the match",
            )
        if not rows:
            return (PatternWildcard(),) * width
        if width == 0:
            return None
        heads = [row[0] for row in rows]
        tuples = [head for head in heads if isinstance(head, PatternTuple)]
        if tuples:
            count = len(tuples[0].patterns)
            inner = yield self.witness(_specialised(rows, None, count), count + width - 1)
            if inner is None:
                return None
            return (PatternTuple(inner[:count]), *inner[count:])
        used = {
            h.constructor.name_hint: h.constructor
            for h in heads
            if isinstance(h, PatternConstructor)
        }
        if not used:
            rest = yield self.witness([row[1:] for row in rows], width - 1)
            return None if rest is None else (PatternWildcard(), *rest)
        every = self._constructors(next(iter(used.values())))
        for constructor in every:
            if constructor.name_hint not in used:
                defaults = [row[1:] for row in rows if _is_wildcard(row[0])]
                rest = yield self.witness(defaults, width - 1)
                if rest is None:
                    break
                missing = PatternConstructor(
                    constructor,
                    [PatternWildcard()] * len(constructor.inputs),  # type: ignore[arg-type]
                )
                return (missing, *rest)
        for constructor in every:
            if constructor.name_hint in used:
                count = len(constructor.inputs)
                inner = yield self.witness(
                    _specialised(rows, constructor, count), count + width - 1
                )
                if inner is not None:
                    return (PatternConstructor(constructor, inner[:count]), *inner[count:])
        return None

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


def _is_wildcard(pattern: Pattern) -> bool:
    return isinstance(pattern, (PatternWildcard, PatternVar))


def _specialised(rows: list[_Row], constructor: Constructor | None, count: int) -> list[_Row]:
    """Return the rows whose head fits a constructor, or a tuple, with its fields in front."""
    out: list[_Row] = []
    for head, *rest in rows:
        match head:
            case PatternConstructor(constructor=other, patterns=patterns):
                if constructor is not None and other.name_hint == constructor.name_hint:
                    out.append((*patterns, *rest))
            case PatternTuple(patterns=patterns):
                out.append((*patterns, *rest))
            case _:
                out.append((*[PatternWildcard()] * count, *rest))
    return out
