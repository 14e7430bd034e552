"""Sameness of programs up to the names of variables: equality, hash, and the first difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, cast

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.gc_pause import gc_paused
from relaxpy.ir.core.node import Node
from relaxpy.ir.equality.access_path import AccessPath
from relaxpy.ir.equality.mismatch import (
    ABSENT,
    Key,
    Mismatch,
    Place,
    Step,
    StructuralMismatch,
    access_path,
)
from relaxpy.ir.equality.walk import KINDS, EndPair, EndScope, Visit, Walk, fields_of

# What is shared is met at each place, so that there can be more tokens than any time suffices for.
_HASHED = 1 << 15
_KEYED = 1 << 12


def structural_key(node: object) -> object:
    """A hashable value equal for structurally equal nodes, as long as both are alive."""
    tokens = tuple(islice(Walk(map_free_vars=False).tokens(node), _KEYED))
    return tokens if len(tokens) < _KEYED else _LongKey(hash(tokens), node)


class _LongKey(NamedTuple):
    """The key of a node with too many parts to be listed."""

    hash: int
    node: object

    @override
    def __hash__(self) -> int:
        return self.hash

    @override
    def __eq__(self, other: object) -> bool:
        alike = isinstance(other, _LongKey) and self.hash == other.hash
        return alike and structural_equal(self.node, other.node)  # type: ignore[attr-defined]


@gc_paused
def structural_hash(node: object, map_free_vars: bool = False) -> int:
    """A hash that structurally equal nodes share; what comes after many parts has no influence.

    Errors:
        MisuseError (also TypeError): there is something in it that has no hash.
    """
    tokens = Walk(map_free_vars=map_free_vars).tokens(_as_node(node))
    try:
        return hash(tuple(islice(tokens, _HASHED)))
    except TypeError as error:
        raise MisuseError(f"nodes and plain values have a hash: {error}", about=node) from None


def _as_node(value: object) -> object:
    """The info that `R.Tensor` and its siblings stand for outside a program; else the value.

    Errors:
        MisuseError: a list holds itself, or others too deeply.
    """
    try:
        if isinstance(value, (list, tuple)):
            return tuple(map(_as_node, value))
    except RecursionError:
        raise MisuseError("a list is nested too deeply, or holds itself") from None
    as_info = None if isinstance(value, Node) else getattr(value, "__struct_info__", None)
    return value if as_info is None else as_info()


@gc_paused
def first_mismatch(
    lhs: object, rhs: object, map_free_vars: bool = False, skip_tensor_content: bool = False
) -> Mismatch | None:
    """The first place where the two differ, or None if they are structurally equal."""
    lhs, rhs = _as_node(lhs), _as_node(rhs)
    if lhs is rhs:
        return None
    left, right = (
        Walk(map_free_vars=map_free_vars, skip_tensor_content=skip_tensor_content) for _ in range(2)
    )
    found = _first_difference(left, right, lhs, rhs)
    return None if found is None else _among_members(found, left, right) or found


def _first_difference(left: Walk, right: Walk, lhs: object, rhs: object) -> Mismatch | None:
    one, other = left.begin(lhs), right.begin(rhs)
    known = _KnownPairs(left, right)
    while one == other:
        # As long as they agree, as much is to follow on either side.
        if not left.stack:
            return None
        here, there = left.stack.pop(), right.stack.pop()
        if type(here) is EndScope:
            left.end_scope(here)
            right.end_scope(cast("EndScope", there))
            known.end_scope()
        elif type(here) is EndPair:
            known.end(here)
        elif not known.begin(cast("Visit", here), cast("Visit", there)):
            one, other = left.token(cast("Visit", here)), right.token(cast("Visit", there))
    return _difference(one, other, _place(left, lhs), _place(right, rhs))


class _KnownPairs:
    """Nodes that were found equal, so that what is shared is compared a few times, not at each use.

    Where a node is met again, it is noted down with its counterpart, provided that each variable
    was known by one name all the while. Together with the variables that they use, the two are
    equal wherever the scopes of these are still open.
    """

    def __init__(self, left: Walk, right: Walk) -> None:
        self.left = left
        self.right = right
        self.met: dict[int, Node] = {}
        self.renamings = (0, 0)
        self.known: list[dict[tuple[object, ...], tuple[int, Node]]] = []

    def begin(self, here: Visit, there: Visit) -> bool:
        """Whether two visits need not be made: it is known that they find no difference."""
        subject, defines, sizes, _ = here
        if id(subject) not in self.met:
            self.met[id(subject)] = subject
            return False
        if subject._variable:
            return False
        self._forget_renamed()
        left, right = self.left, self.right
        pair = id(subject), id(there[0]), defines, sizes
        for table in self.known:
            if pair in table:
                left.used |= table[pair][0]
                return True
        changes = left.changes, right.changes
        left.stack.append(EndPair(pair, there[0], changes, left.level, left.used))
        right.stack.append(None)
        left.used = 0
        return False

    def end(self, found: EndPair) -> None:
        """Note down two nodes that are equal in all their parts."""
        left, right = self.left, self.right
        used = left.used & ((2 << found.level) - 1)  # less what is defined inside them
        left.used = found.used | used
        self._forget_renamed()
        if (left.changes, right.changes) == found.changes:
            level = max(0, used.bit_length() - 1)
            self.known += [{} for _ in range(level + 1 - len(self.known))]
            self.known[level][found.pair] = used, found.counterpart

    def end_scope(self) -> None:
        """Forget what holds only where the scope that has just ended is open."""
        del self.known[self.left.level + 1 :]

    def _forget_renamed(self) -> None:
        renamings = self.left.renamings, self.right.renamings
        if renamings != self.renamings:
            self.renamings = renamings
            self.known.clear()


def _place(walk: Walk, root: object) -> Place:
    return (walk.visit[3], walk.visit[0]) if walk.visit else (None, root)


def _among_members(found: Mismatch, left: Walk, right: Walk) -> Mismatch | None:
    """Where two lists or tables differ that have not the same number of members, or the same keys.

    Members that both have come first. Variables are defined together, so that their number is what
    is to be told.
    """
    match found.lhs, found.rhs:
        case tuple() as one, tuple() as other:
            return _among(dict(enumerate(one)), dict(enumerate(other)), _ITEM, found, left, right)
        case Mapping() as one, Mapping() as other:
            return _among(one, other, _KEY, found, left, right)
        case _:
            return None


_Steps: TypeAlias = tuple[Callable[[AccessPath, Any], AccessPath], ...]
_ITEM: _Steps = AccessPath.array_item, AccessPath.array_item_missing
_KEY: _Steps = AccessPath.map_item, AccessPath.map_item_missing


def _among(
    one: Mapping[Any, object],
    other: Mapping[Any, object],
    steps: _Steps,
    found: Mismatch,
    left: Walk,
    right: Walk,
) -> Mismatch | None:
    for key in sorted(one.keys() & other.keys()):
        lhs, rhs = one[key], other[key]
        if isinstance(lhs, Node) and KINDS[type(lhs)].variable:
            break
        for walk in (left, right):
            walk.stack.clear()
            walk.visit = None
        inner = _first_difference(left, right, lhs, rhs)
        if inner is not None:
            inner = _among_members(inner, left, right) or inner
            place = steps[0](found.place, key)
            return replace(
                inner, place=place.join(inner.place), other_place=place.join(inner.other_place)
            )
    for key in sorted(one.keys() ^ other.keys()):
        here, there = (steps[key not in side](found.place, key) for side in (one, other))
        return Mismatch(here, there, one.get(key, ABSENT), other.get(key, ABSENT))
    return None


def _difference(left: object, right: object, lhs: Place, rhs: Place) -> Mismatch:
    """Where in two tokens the difference is."""
    (path, one), (_, other) = lhs, rhs
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        steps, others = _members(one), _members(other)
        named = len(left) - len(steps)  # what stands before the fields: kind and number
        whole = not isinstance(one, Node) or left[0] == type(one).__name__  # no mere use
        if whole and len(steps) == len(others) and left[:named] == right[:named]:
            tokens = zip(left[named:], right[named:], steps, others, strict=True)
            for a, b, (step, value), (_, other_value) in tokens:
                if a != b:
                    return _difference(a, b, ((path, step), value), ((path, step), other_value))
    place = access_path(path)
    return Mismatch(place, place, one, other)


def _members(subject: object) -> list[tuple[Step, object]]:
    """The parts of a node, a tuple or a table, each with the step that leads to it."""
    if isinstance(subject, Node):
        fields = fields_of(KINDS[type(subject)], subject)
        return [(name, getattr(subject, judged)) for name, judged, _, _ in fields]
    if isinstance(subject, (tuple, list)):
        return list(enumerate(subject))
    if isinstance(subject, Mapping):
        return [(Key(str(key)), subject[key]) for key in sorted(subject, key=str)]
    return []


def get_first_structural_mismatch(
    lhs: object, rhs: object, map_free_vars: bool = False, skip_tensor_content: bool = False
) -> tuple[AccessPath, AccessPath] | None:
    """The paths to the first difference on either side, or None if there is none."""
    found = first_mismatch(lhs, rhs, map_free_vars, skip_tensor_content)
    return None if found is None else (found.place, found.other_place)


def structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> bool:
    """Whether the two are the same program up to the names of variables.

    With `map_free_vars`, variables defined nowhere in them may differ in name, too.
    """
    return first_mismatch(lhs, rhs, map_free_vars) is None


def assert_structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> None:
    """Check structural equality.

    Errors:
        StructuralMismatch (a ValueError and an AssertionError): they differ; the text shows where.
    """
    mismatch = first_mismatch(lhs, rhs, map_free_vars)
    if mismatch is not None:
        raise StructuralMismatch(str(mismatch))
