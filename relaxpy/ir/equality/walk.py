"""The walk through a program, part by part, in which sameness is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Node
from relaxpy.ir.equality.mismatch import (
    Key,
    Path,
)
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
Visit: TypeAlias = tuple[Node, bool, bool, Path]
_LATER = ...
_NOTHING = ("table", ())
_NO_ITEMS: tuple[()] = ()
_EMPTY = ("tuple",)
_DEPTH = 3  # what is flat stands in one token; the walk itself does not depend on the stack


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


def fields_of(kind: _Kind, subject: Any) -> tuple[tuple[str, str, bool, bool], ...]:
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
                    kind._compared_as.get(name, name),
                    name in kind._binds,
                    name in kind._binds_shape_vars,
                )
                for name in kind._fields
            ),
        )
        return found


KINDS = _Kinds()


class EndScope(NamedTuple):
    """Where the definitions of a scope end: how many were known before it, and what was shared."""

    known: int
    shared: dict[int, int]


class EndPair(NamedTuple):
    """Where two nodes turn out to be equal, and what the walks were like where they began."""

    pair: tuple[object, ...]
    counterpart: Node
    changes: tuple[int, int]
    level: int
    used: int


# What a variable is known by: its number, and as a bit how many scopes are open around it.
_Name: TypeAlias = tuple[str, int, int]


class Walk:
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
        self.visit: Visit | None = None
        self.names: dict[int, _Name] = {}
        self.defined: list[int] = []
        self.undefined: dict[int, _Name] = {}
        self.counter = 0
        self.announced: set[int] = set()
        self.shared: dict[int, int] = {}
        self.stack: list[Visit | EndScope | EndPair | None] = []
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
            if type(visit) is EndScope:
                self.end_scope(visit)
            else:
                yield self.token(cast("Visit", visit))

    def begin(self, root: object) -> object:
        """A token of `root`, and on the stack what is to be visited first."""
        later: list[Visit] = []
        token = self.part(root, False, False, None, later, _DEPTH)
        self.stack += reversed(later)
        return token

    def token(self, visit: Visit) -> object:
        """The token of a visit; what is to follow it is put on the stack."""
        self.visit = visit
        subject, defines, sizes, path = visit
        kind = KINDS[type(subject)]
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
        later: list[Visit] = []
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
        later: list[Visit],
        depth: int,
    ) -> tuple[object, ...]:
        """A token that begins with `parts`, with the fields; the rest is to be visited `later`."""
        for field, judged, binds, binds_sizes in fields_of(kind, subject):
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
        self, value: object, defines: bool, sizes: bool, path: Path, later: list[Visit], depth: int
    ) -> object:
        """What stands for a value in the token that it is a part of."""
        if isinstance(value, Node):
            kind = KINDS[type(value)]
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
        """The name by which a variable that is defined here is known from now on."""
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
        """Remember what is known before `scope`, which ends with its definitions."""
        self.stack.append(EndScope(len(self.defined), self.shared))
        self.level += 1
        self.shared = {}
        for variable in _own_sizes(scope) if scope._binds_bare_shape_vars else _outer_sizes(scope):
            if id(variable) not in self.names:
                self.define(variable)
                self.announced.add(id(variable))

    def end_scope(self, scope: EndScope) -> None:
        """Forget what was defined since the scope began."""
        for known in self.defined[scope.known :]:
            del self.names[known]
        self.level -= 1
        self.changes -= len(self.defined) - scope.known
        del self.defined[scope.known :]
        self.shared = scope.shared


def _own_sizes(scope: Node) -> Iterator[Node]:
    """The shape variables that stand alone in the parameters of a Func info (SC-16)."""
    stack = [getattr(scope, field) for field in scope._binds_bare_shape_vars]
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
    stack = [getattr(scope, field) for field in scope._fields if field in scope._binds_shape_vars]
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
