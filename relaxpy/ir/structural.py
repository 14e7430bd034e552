"""Sameness of programs up to the names of variables: equality, hash, and the first difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.access_path import AccessPath
from relaxpy.ir.bulk import in_bulk
from relaxpy.ir.dtype import DataType
from relaxpy.ir.mismatch import (
    ABSENT,
    Key,
    Mismatch,
    Path,
    Place,
    Step,
    StructuralMismatch,
    access_path,
)
from relaxpy.ir.node import EMPTY_ATTRS, Node
from relaxpy.ir.op import Op
from relaxpy.ir.tir.expr import (
    BinaryOpExpr,
    Cast,
    ConstExpr,
    IntImm,
    LogicalExpr,
    PrimExpr,
    Select,
    Var,
)

# What is to be visited: the value, whether it is defined here, and its shape variables with it.
_Visit: TypeAlias = tuple[Node, bool, bool, Path]
_LATER = ...
_NOTHING = ("table", ())
_NO_ITEMS: tuple[()] = ()
_EMPTY = ("tuple",)
_DEPTH = 3  # what is flat stands in one token; the walk itself does not depend on the stack
# What is shared is met at each place, so that there can be more tokens than any time suffices for.
_HASHED = 1 << 15
_KEYED = 1 << 12


class _Kind(NamedTuple):
    """What the walk has to know of a kind of nodes."""

    name: str
    variable: bool
    scope: bool
    operation: bool
    leaf: Callable[[Any], object] | None
    fields: tuple[tuple[str, str, bool, bool], ...]


def _leaf(kind: type[Node]) -> Callable[[Any], object] | None:
    """What gives the whole token of a kind that holds plain values only."""
    name = kind.__name__
    if issubclass(kind, IntImm):
        return lambda node: (name, node.dtype, node.value)
    if issubclass(kind, (ConstExpr, Op)):
        return lambda node: (name, *[_plain(getattr(node, field)) for field in kind._fields])
    return None


def _fields_of(kind: _Kind, subject: Any) -> tuple[tuple[str, str, bool, bool], ...]:
    """The fields of a node in the order of visits.

    What is bound comes before its variable, so that a difference is found where it comes from;
    only a function is known in itself by the variable that it is bound to (SC-4).
    """
    if kind.name == "VarBinding" and not subject.value._scope:
        return kind.fields[::-1]
    return kind.fields


class _Kinds(dict[type[Node], _Kind]):
    """The kinds of nodes, each read off its class when it is first met."""

    def __missing__(self, kind: type[Node]) -> _Kind:
        found = self[kind] = _Kind(
            kind.__name__,
            kind._variable,
            kind._scope,
            issubclass(kind, (BinaryOpExpr, LogicalExpr, Select, Cast)),
            _leaf(kind),
            tuple(
                (
                    name,
                    kind._judged_by.get(name, name),
                    name in kind._binds,
                    name in kind._binds_sizes,
                )
                for name in kind._fields
            ),
        )
        return found


_KINDS = _Kinds()


class _EndScope(NamedTuple):
    """Where the definitions of a scope end: how many were known before it, and what was shared."""

    known: int
    shared: dict[int, int]


class _EndPair(NamedTuple):
    """Where two nodes turn out to be equal, and what the walks were like where they began."""

    pair: tuple[object, ...]
    counterpart: Node
    changes: tuple[int, int]
    level: int
    used: int


# What a variable is known by: its number, and as a bit how many scopes are open around it.
_Name: TypeAlias = tuple[str, int, int]


class _Walk:
    """Gives the structure of a node as a stream of tokens: equal ones mean equal up to renaming.

    A token is the name of a kind with its fields: plain values, variables that are known by then,
    literals and tuples of these stand in it, all else follows in tokens of its own. A variable is
    numbered where it is defined; a use is the number, or for a free variable its identity (its
    number, too, with `map_free_vars`, and for a buffer always). An operation on scalars that was
    met before is given by its place, since structurally equal ones are one object. The walk keeps
    its own stack, so that depth is no limit. `visit` is that of the token that was last given, or
    None before the first node.

    `used` has the bits of the variables used. As long as `changes` stays as it is, and `renamings`,
    each variable is known by what it was known by.
    """

    def __init__(self, *, map_free_vars: bool, skip_tensor_content: bool = False) -> None:
        self.map_free_vars = map_free_vars
        self.skip_tensor_content = skip_tensor_content
        self.visit: _Visit | None = None
        self.names: dict[int, _Name] = {}
        self.defined: list[int] = []
        self.undefined: dict[int, _Name] = {}
        self.counter = 0
        self.announced: set[int] = set()
        self.shared: dict[int, int] = {}
        self.stack: list[_Visit | _EndScope | _EndPair | None] = []
        self.level = 0
        self.used = 0
        self.changes = 0
        self.renamings = 0
        self._free: set[int] = set()

    def tokens(self, root: object) -> Iterator[object]:
        """The structure of `root`; each token tells how many are to follow it."""
        first = self.begin(root)
        if first is not _LATER:
            yield first
        while self.stack:
            visit = self.stack.pop()
            if type(visit) is _EndScope:
                self.end_scope(visit)
            else:
                yield self.token(cast("_Visit", visit))

    def begin(self, root: object) -> object:
        """A token of `root`, and on the stack what is to be visited first."""
        later: list[_Visit] = []
        token = self.part(root, False, False, None, later, _DEPTH)
        self.stack += reversed(later)
        return token

    def token(self, visit: _Visit) -> object:
        """The token of a visit; what is to follow it is put on the stack."""
        self.visit = visit
        subject, defines, sizes, path = visit
        kind = _KINDS[type(subject)]
        token: list[object] = [kind.name]
        if kind.variable:
            name, met = self.variable(subject, defines, sizes)
            if met:
                return name
            token.append(name)
        elif kind.operation:
            place = self.shared.get(id(subject))
            if place is not None:
                return "again", place
            self.shared[id(subject)] = len(self.shared)
        elif kind.scope:
            self.begin_scope(subject)
        later: list[_Visit] = []
        whole = self.whole(token, subject, kind, sizes, path, later, 0)
        if len(later) > 1:
            later.reverse()
        self.stack += later
        return whole

    def whole(
        self,
        parts: list[object],
        subject: Node,
        kind: _Kind,
        sizes: bool,
        path: Path,
        later: list[_Visit],
        depth: int,
    ) -> tuple[object, ...]:
        """A token that begins with `parts`, with the fields; the rest is to be visited `later`."""
        for field, judged, binds, binds_sizes in _fields_of(kind, subject):
            value = getattr(subject, judged)
            if type(value) in _PLAIN:
                parts.append(value)
            elif value is EMPTY_ATTRS:
                parts.append(_NOTHING)
            elif value is _NO_ITEMS:
                parts.append(_EMPTY)
            else:
                step = (path, field)
                parts.append(self.part(value, binds, sizes or binds_sizes, step, later, depth))
        return tuple(parts)

    def part(
        self, value: object, defines: bool, sizes: bool, path: Path, later: list[_Visit], depth: int
    ) -> object:
        """What stands for a value in the token that it is a part of."""
        if isinstance(value, Node):
            kind = _KINDS[type(value)]
            if kind.leaf is not None:
                return kind.leaf(value)
            if later or defines or depth == _DEPTH:
                pass
            elif kind.variable:
                name = self.names.get(id(value))
                if name is not None and id(value) not in self.announced:
                    self.used |= name[2]
                    return name
                if name is None and not (sizes or self.map_free_vars or value._defines_itself):
                    return self.free(value)
            elif not (kind.operation or kind.scope):
                return self.whole([kind.name], value, kind, sizes, path, later, depth + 1)
            later.append((value, defines, sizes, path))
            return _LATER
        if isinstance(value, (tuple, list)):
            parts: list[object] = ["tuple"]
            for i, item in enumerate(value):
                parts.append(self.part(item, defines, sizes, (path, i), later, depth))
            return tuple(parts)
        if isinstance(value, Mapping):
            keys = sorted(value, key=str)
            members = [
                self.part(value[key], False, False, (path, Key(str(key))), later, depth)
                for key in keys
            ]
            return "table", tuple(map(str, keys)), *members
        if self.skip_tensor_content and isinstance(value, np.ndarray):
            return "array", value.dtype.name, value.shape
        return _plain(value)

    def variable(self, subject: Node, defines: bool, sizes: bool) -> tuple[object, bool]:
        """What a variable is known by, and whether that says it all: it was met before."""
        name = self.names.get(id(subject))
        if name is None and not (defines or sizes):
            if not (self.map_free_vars or subject._defines_itself):
                return self.free(subject), True
            met = id(subject) in self.undefined
            name = self.undefined[id(subject)] if met else self.define_outside(subject)
            self.used |= name[2]
            return name, met
        if name is None:
            name = self.define(subject)
        elif not defines and id(subject) not in self.announced:
            self.used |= name[2]
            return name, True
        self.used |= name[2]
        if id(subject) in self.announced:
            self.announced.discard(id(subject))
            self.changes += 1
        return name, False

    def free(self, variable: Node) -> object:
        """What a variable defined nowhere in the walk is known by: global ones by name."""
        if type(variable).__name__ == "GlobalVar":
            return "global", getattr(variable, "name_hint", None)
        self._free.add(id(variable))
        return "free", id(variable)

    def define(self, variable: Node) -> _Name:
        self.counter += 1
        self.changes += 1
        self.renamings += id(variable) in self._free
        self.defined.append(id(variable))
        name = self.names[id(variable)] = ("var", self.counter, 1 << self.level)
        return name

    def define_outside(self, variable: Node) -> _Name:
        """Number a variable that is defined nowhere around: it is the same in all scopes."""
        self.counter += 1
        self.changes += 1
        self._free.add(id(variable))
        name = self.undefined[id(variable)] = ("var", self.counter, 1)
        return name

    def begin_scope(self, scope: Node) -> None:
        self.stack.append(_EndScope(len(self.defined), self.shared))
        self.level += 1
        self.shared = {}
        for variable in _own_sizes(scope) if scope._owns_sizes else _outer_sizes(scope):
            if id(variable) not in self.names:
                self.define(variable)
                self.announced.add(id(variable))

    def end_scope(self, scope: _EndScope) -> None:
        for known in self.defined[scope.known :]:
            del self.names[known]
        self.level -= 1
        self.changes -= len(self.defined) - scope.known
        del self.defined[scope.known :]
        self.shared = scope.shared


def _own_sizes(scope: Node) -> Iterator[Node]:
    """The shape variables that stand alone in the parameters of a Func info (SC-16)."""
    stack = [getattr(scope, field) for field in scope._owns_sizes]
    while stack:
        value = stack.pop()
        if isinstance(value, Var):
            yield value
        elif isinstance(value, tuple):
            stack += reversed(value)
        elif isinstance(value, Node) and not (
            isinstance(value, PrimExpr) or value._scope or value._variable
        ):
            stack += [getattr(value, field) for field in reversed(value._fields)]


def _outer_sizes(scope: Node) -> Iterable[Node]:
    """The shape variables that a signature defines outside the signatures inside it (SC-16).

    Nothing has to be known of them beforehand unless there are signatures inside: without these,
    each is met first where it is defined.
    """
    found: list[Node] = []
    nested = False
    stack = [getattr(scope, field) for field in scope._fields if field in scope._binds_sizes]
    while stack:
        value = stack.pop()
        if isinstance(value, tuple):
            stack += reversed(value)
        elif isinstance(value, Node):
            if value._scope:
                nested = True
                continue
            if isinstance(value, Var):
                found.append(value)
            stack += [getattr(value, field) for field in reversed(value._fields)]
    return found if nested else ()


# Types whose values are equal as they stand, as against 1 and True, or 0.0 and -0.0.
_PLAIN = frozenset((str, int, DataType, type(None)))


def _plain(value: object) -> object:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        data = np.ascontiguousarray(value)
        return "array", data.dtype.name, value.shape, data.tobytes()
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, bool):
        return "bool", value
    return value


def structural_key(node: object) -> object:
    """A hashable value equal for structurally equal nodes, as long as both are alive."""
    tokens = tuple(islice(_Walk(map_free_vars=False).tokens(node), _KEYED))
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


@in_bulk
def structural_hash(node: object, map_free_vars: bool = False) -> int:
    """A hash that structurally equal nodes share; what comes after many parts has no influence.

    Errors:
        MisuseError (also TypeError): there is something in it that has no hash.
    """
    tokens = _Walk(map_free_vars=map_free_vars).tokens(_as_node(node))
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


@in_bulk
def first_mismatch(
    lhs: object, rhs: object, map_free_vars: bool = False, skip_tensor_content: bool = False
) -> Mismatch | None:
    """The first place where the two differ, or None if they are structurally equal."""
    lhs, rhs = _as_node(lhs), _as_node(rhs)
    if lhs is rhs:
        return None
    left, right = (
        _Walk(map_free_vars=map_free_vars, skip_tensor_content=skip_tensor_content)
        for _ in range(2)
    )
    found = _first_difference(left, right, lhs, rhs)
    return None if found is None else _among_members(found, left, right) or found


def _first_difference(left: _Walk, right: _Walk, lhs: object, rhs: object) -> Mismatch | None:
    one, other = left.begin(lhs), right.begin(rhs)
    known = _KnownPairs(left, right)
    while one == other:
        # As long as they agree, as much is to follow on either side.
        if not left.stack:
            return None
        here, there = left.stack.pop(), right.stack.pop()
        if type(here) is _EndScope:
            left.end_scope(here)
            right.end_scope(cast("_EndScope", there))
            known.end_scope()
        elif type(here) is _EndPair:
            known.end(here)
        elif not known.begin(cast("_Visit", here), cast("_Visit", there)):
            one, other = left.token(cast("_Visit", here)), right.token(cast("_Visit", there))
    return _difference(one, other, _place(left, lhs), _place(right, rhs))


class _KnownPairs:
    """Nodes that were found equal, so that what is shared is compared a few times, not at each use.

    Where a node is met again, it is noted down with its counterpart, provided that each variable
    was known by one name all the while. Together with the variables that they use, the two are
    equal wherever the scopes of these are still open.
    """

    def __init__(self, left: _Walk, right: _Walk) -> None:
        self.left = left
        self.right = right
        self.met: dict[int, Node] = {}
        self.renamings = (0, 0)
        self.known: list[dict[tuple[object, ...], tuple[int, Node]]] = []

    def begin(self, here: _Visit, there: _Visit) -> bool:
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
        left.stack.append(_EndPair(pair, there[0], changes, left.level, left.used))
        right.stack.append(None)
        left.used = 0
        return False

    def end(self, found: _EndPair) -> None:
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


def _place(walk: _Walk, root: object) -> Place:
    return (walk.visit[3], walk.visit[0]) if walk.visit else (None, root)


def _among_members(found: Mismatch, left: _Walk, right: _Walk) -> Mismatch | None:
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
    left: _Walk,
    right: _Walk,
) -> Mismatch | None:
    for key in sorted(one.keys() & other.keys()):
        lhs, rhs = one[key], other[key]
        if isinstance(lhs, Node) and _KINDS[type(lhs)].variable:
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
        fields = _fields_of(_KINDS[type(subject)], subject)
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
