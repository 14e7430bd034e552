"""The traversal that structural equality compares, as a stream of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.float_text import exact_hex
from relaxpy.ir.core.memo import BEGINNING, Elements
from relaxpy.ir.core.node import EMPTY_ATTRS, Node
from relaxpy.ir.equality.mismatch import Key, Path
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir

# A node to visit: whether it is defined there, whether its shape variables are, and its path.
Visit: TypeAlias = tuple[Node, bool, bool, Path]
_PENDING = ...
_NOTHING = ("table", ())
_NO_ITEMS: tuple[()] = ()
_EMPTY = ("tuple",)
_DEPTH = 3  # nodes nested at most this deep are part of their parent's token


class _Kind(NamedTuple):
    """The properties of a node class that the walk needs."""

    name: str
    variable: bool
    scope: bool
    operation: bool
    shared: bool
    leaf: Callable[[Any], object] | None
    fields: tuple[tuple[str, str, bool, bool], ...]


def _leaf(kind: type[Node]) -> Callable[[Any], object] | None:
    """The function that builds the token of a class with plain values only, or None."""
    name = kind.__name__
    if issubclass(kind, tir.IntImm):
        return lambda node: (name, node.dtype, node.value)
    if issubclass(kind, (tir.ConstExpr, Op)):
        return lambda node: (name, *[_plain(getattr(node, field)) for field in kind._fields])
    return None


def fields_of(kind: _Kind, subject: Any) -> tuple[tuple[str, str, bool, bool], ...]:
    """The fields of a node in visiting order.

    A bound value comes before its variable, so that a difference is reported in the value. Only a
    function may refer to the variable that it is bound to (SC-4), which therefore comes first.
    """
    if kind.name == "VarBinding" and not subject.value._scope:
        return kind.fields[::-1]
    return kind.fields


class _Kinds(dict[type[Node], _Kind]):
    """The properties of each node class, computed on first use."""

    def __missing__(self, kind: type[Node]) -> _Kind:
        entry = self[kind] = _Kind(
            kind.__name__,
            kind._variable,
            kind._scope,
            issubclass(kind, (tir.BinaryOpExpr, tir.LogicalExpr, tir.Select, tir.Cast)),
            kind._shared and not kind._variable,
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
        return entry


KINDS = _Kinds()


class EndScope(NamedTuple):
    """The end of a scope: the number of definitions before it, and the operations shared there."""

    known: int
    shared: dict[int, int]


class EndPair(NamedTuple):
    """The end of two equal nodes, with the state of the walks at their beginning."""

    pair: tuple[object, ...]
    counterpart: Node
    changes: tuple[int, int]
    level: int
    used: int


# The name of a variable: its number, and a bit for the number of enclosing scopes.
_Name: TypeAlias = tuple[str, int, int]


class Walk:
    """A traversal that yields a stream of tokens; equal streams mean equality up to renaming.

    A token is the name of a node class with the fields of the node. Plain values, variables that
    are already defined, literals and tuples of these are part of the token. Other nodes follow in
    tokens of their own. A variable is numbered where it is defined. A use is that number, or the
    identity of a free variable (a number with `map_free_vars`, and always for a buffer). An
    operation on scalars that was visited before is a back reference, since structurally equal ones
    are one object. So is a node of a graph (`_shared`), whose sharing is compared. The walk keeps
    an explicit stack, so that depth is not limited. `visit` is the visit of the last token, or None
    before the first node.

    `used` has the bits of the variables used. While `changes` and `renamings` do not change, no
    variable changes its name.
    """

    def __init__(
        self, *, map_free_vars: bool, skip_tensor_content: bool = False, whole_arrays: bool = True
    ) -> None:
        self.map_free_vars = map_free_vars
        self.skip_tensor_content = skip_tensor_content
        self.whole_arrays = whole_arrays
        self.visit: Visit | None = None
        self.names: dict[int, _Name] = {}
        self.defined: list[int] = []
        self.undefined: dict[int, _Name] = {}
        self.counter = 0
        self.announced: set[int] = set()
        self.shared: dict[int, int] = {}
        self.graph: dict[int, int] = {}
        self.stack: list[Visit | EndScope | EndPair | None] = []
        self.level = 0
        self.used = 0
        self.changes = 0
        self.renamings = 0
        self._free: set[int] = set()

    def tokens(self, root: object) -> Iterator[object]:
        """The tokens of `root`; each token determines how many follow it."""
        first = self.begin(root)
        if first is not _PENDING:
            yield first
        while self.stack:
            visit = self.stack.pop()
            if type(visit) is EndScope:
                self.end_scope(visit)
            else:
                yield self.token(cast("Visit", visit))

    def begin(self, root: object) -> object:
        """Push the children of `root` on the stack, and return its token."""
        pending: list[Visit] = []
        token = self.component(root, False, False, None, pending, _DEPTH)
        self.stack += reversed(pending)
        return token

    def token(self, visit: Visit) -> object:
        """Push the children of a visit on the stack, and return its token."""
        self.visit = visit
        subject, defines, binds_dims, path = visit
        kind = KINDS[type(subject)]
        token: list[object] = [kind.name]
        if kind.variable:
            name, visited = self.variable(subject, defines, binds_dims)
            if visited:
                return name
            token.append(name)
        elif kind.operation:
            number = self.shared.get(id(subject))
            if number is not None:
                return "again", number
            self.shared[id(subject)] = len(self.shared)
        elif kind.shared:
            number = self.graph.get(id(subject))
            if number is not None:
                return "again", number
            self.graph[id(subject)] = len(self.graph)
        if kind.scope:
            self.begin_scope(subject)
        pending: list[Visit] = []
        complete = self.complete(token, subject, kind, binds_dims, path, pending, 0)
        if len(pending) > 1:
            pending.reverse()
        self.stack += pending
        return complete

    def complete(
        self,
        fields: list[object],
        subject: Node,
        kind: _Kind,
        binds_dims: bool,
        path: Path,
        pending: list[Visit],
        depth: int,
    ) -> tuple[object, ...]:
        """Append the fields of a node to `fields`, and its other children to `pending`."""
        for field, compared, binds, field_binds_dims in fields_of(kind, subject):
            value = getattr(subject, compared)
            if type(value) in _PLAIN:
                fields.append(value)
            elif value is EMPTY_ATTRS:
                fields.append(_NOTHING)
            elif value is _NO_ITEMS:
                fields.append(_EMPTY)
            else:
                step = (path, field)
                fields.append(
                    self.component(
                        value, binds, binds_dims or field_binds_dims, step, pending, depth
                    )
                )
        return tuple(fields)

    def component(
        self,
        value: object,
        defines: bool,
        binds_dims: bool,
        path: Path,
        pending: list[Visit],
        depth: int,
    ) -> object:
        """The representation of a value inside the token of its parent."""
        if isinstance(value, Node):
            kind = KINDS[type(value)]
            if kind.leaf is not None:
                return kind.leaf(value)
            if pending or defines or depth == _DEPTH:
                pass
            elif kind.variable:
                name = self.names.get(id(value))
                if name is not None and id(value) not in self.announced:
                    self.used |= name[2]
                    return name
                if name is None and not (binds_dims or self.map_free_vars or value._defines_itself):
                    return self.free(value)
            elif not (kind.operation or kind.scope or kind.shared):
                return self.complete([kind.name], value, kind, binds_dims, path, pending, depth + 1)
            pending.append((value, defines, binds_dims, path))
            return _PENDING
        if isinstance(value, (tuple, list)):
            fields: list[object] = ["tuple"]
            for i, item in enumerate(value):
                fields.append(self.component(item, defines, binds_dims, (path, i), pending, depth))
            return tuple(fields)
        if isinstance(value, Mapping):
            keys = sorted(value, key=str)
            members = [
                self.component(value[key], False, False, (path, Key(str(key))), pending, depth)
                for key in keys
            ]
            return "table", tuple(map(str, keys)), *members
        if self.skip_tensor_content and isinstance(value, (np.ndarray, Elements)):
            return "array", value.dtype.name, value.shape
        return _plain(value, whole_arrays=self.whole_arrays)

    def variable(self, subject: Node, defines: bool, binds_dims: bool) -> tuple[object, bool]:
        """The name of a variable, and whether it was visited before."""
        name = self.names.get(id(subject))
        if name is None and not (defines or binds_dims):
            if not (self.map_free_vars or subject._defines_itself):
                return self.free(subject), True
            visited = id(subject) in self.undefined
            name = self.undefined[id(subject)] if visited else self.define_free(subject)
            self.used |= name[2]
            return name, visited
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
        """The token of a free variable; a GlobalVar is known by its name."""
        if type(variable).__name__ == "GlobalVar":
            return "global", getattr(variable, "name_hint", None)
        self._free.add(id(variable))
        return "free", id(variable)

    def define(self, variable: Node) -> _Name:
        """Number a variable that is defined here, and return its name."""
        self.counter += 1
        self.changes += 1
        self.renamings += id(variable) in self._free
        self.defined.append(id(variable))
        name = self.names[id(variable)] = ("var", self.counter, 1 << self.level)
        return name

    def define_free(self, variable: Node) -> _Name:
        """Number a free variable, which has the same name in all scopes."""
        self.counter += 1
        self.changes += 1
        self._free.add(id(variable))
        name = self.undefined[id(variable)] = ("var", self.counter, 1)
        return name

    def begin_scope(self, scope: Node) -> None:
        """Begin a scope, and push its end on the stack."""
        self.stack.append(EndScope(len(self.defined), self.shared))
        self.level += 1
        self.shared = {}
        for variable in (
            _bound_shape_vars(scope) if scope._binds_bare_shape_vars else _outer_shape_vars(scope)
        ):
            if id(variable) not in self.names:
                self.define(variable)
                self.announced.add(id(variable))

    def end_scope(self, scope: EndScope) -> None:
        """Forget the variables defined since the scope began."""
        for known in self.defined[scope.known :]:
            del self.names[known]
        self.level -= 1
        self.changes -= len(self.defined) - scope.known
        del self.defined[scope.known :]
        self.shared = scope.shared


def _bound_shape_vars(scope: Node) -> Iterator[Node]:
    """The shape variables that are whole dimensions in the parameters of a Func (SC-16)."""
    stack = [getattr(scope, field) for field in scope._binds_bare_shape_vars]
    while stack:
        value = stack.pop()
        if isinstance(value, tir.Var):
            yield value
        elif isinstance(value, tuple):
            stack += reversed(value)
        elif isinstance(value, Node) and not (
            isinstance(value, tir.PrimExpr) or value._scope or value._variable
        ):
            stack += [getattr(value, field) for field in reversed(value._fields)]


def _outer_shape_vars(scope: Node) -> Iterable[Node]:
    """The shape variables that a signature defines outside its nested signatures (SC-16).

    They have to be defined in advance only if there are nested signatures. Otherwise the first
    occurrence of each is its definition.
    """
    variables: list[Node] = []
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
            if isinstance(value, tir.Var):
                variables.append(value)
            stack += [getattr(value, field) for field in reversed(value._fields)]
    return variables if nested else ()


# Types whose values can be compared directly, unlike 1 and True, or 0.0 and -0.0.
_PLAIN = frozenset((str, int, DataType, type(None)))


def _plain(value: object, *, whole_arrays: bool = True) -> object:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Elements):
        if not whole_arrays:
            return "array", value.dtype.name, value.shape, value.beginning
        value = value()
    if isinstance(value, (np.ndarray, np.generic)):
        data = np.ascontiguousarray(value)
        elements = data.reshape(-1).view(np.uint8).data
        is_hashed = whole_arrays and data.nbytes > BEGINNING
        content = sha256(elements).digest() if is_hashed else elements[:BEGINNING].tobytes()
        return "array", data.dtype.name, value.shape, content
    if isinstance(value, float):
        return "float", exact_hex(value)
    if isinstance(value, bool):
        return "bool", value
    return value
