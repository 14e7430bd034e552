"""Structural equality, structural hash, and the first difference of two programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, cast

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir import hooks
from relaxpy.ir.core.memo import Elements
from relaxpy.ir.core.node import Node
from relaxpy.ir.equality.mismatch import (
    ABSENT,
    AccessPath,
    Key,
    Located,
    Mismatch,
    Step,
    StructuralMismatch,
    access_path,
)
from relaxpy.ir.equality.walk import KINDS, EndPair, EndScope, Visit, Walk, fields_of
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused

# Shared nodes yield tokens at each use, so that there may be too many tokens to enumerate.
_MAX_HASHED_TOKENS = 1 << 15
_MAX_KEY_TOKENS = 1 << 12


def structural_key(node: object) -> object:
    """A key that is equal for structurally equal nodes while both are alive.

    It is hashable if all values in the node are.

    Errors:
        MisuseError (also TypeError): the node is large, and contains a value that is not hashable.
    """
    tokens = tuple(islice(Walk(map_free_vars=False).tokens(node), _MAX_KEY_TOKENS))
    return tokens if len(tokens) < _MAX_KEY_TOKENS else _LongKey(_hash(tokens, node), node)


class _LongKey(NamedTuple):
    """The key of a node with too many tokens to be stored."""

    hash: int
    node: object

    @override
    def __hash__(self) -> int:
        return self.hash

    @override
    def __eq__(self, other: object) -> bool:
        same_hash = isinstance(other, _LongKey) and self.hash == other.hash
        return same_hash and structural_equal(self.node, other.node)  # type: ignore[attr-defined]


@user_facing
@gc_paused
def structural_hash(node: object, map_free_vars: bool = False, *, whole_arrays: bool = True) -> int:
    """A hash that structurally equal nodes share; only the first tokens are hashed.

    Without `whole_arrays`, the same holds for the elements of arrays; callers then compare nodes
    with equal hashes.

    Errors:
        MisuseError (also TypeError): the node contains a value that is not hashable.
    """
    walk = Walk(map_free_vars=map_free_vars, whole_arrays=whole_arrays)
    tokens = walk.tokens(_as_node(node))
    return _hash(tuple(islice(tokens, _MAX_HASHED_TOKENS)), node)


def function_key(func: Node) -> object:
    """The structural key of a function, whose attributes may be of any kind.

    Errors:
        MisuseError (also TypeError): the function contains a value that is not hashable.
    """
    key = structural_key(func)
    _hash(key, func)
    return key


def _hash(tokens: object, node: object) -> int:
    try:
        return hash(tokens)
    except TypeError as error:
        raise MisuseError(f"nodes and plain values have a hash: {error}", about=node) from None


def _as_node(value: object) -> object:
    """Convert annotations such as `R.Tensor` to struct info and lists to tuples."""
    try:
        if isinstance(value, (list, tuple)):
            return tuple(map(_as_node, value))
    except RecursionError:
        raise MisuseError("a list is nested too deeply, or contains itself") from None
    as_sinfo = None if isinstance(value, Node) else getattr(value, "__struct_info__", None)
    return value if as_sinfo is None else as_sinfo()


def _beside(value: object, other: object) -> object:
    """Convert numbers that are compared with expressions, also in lists, to literals."""
    if isinstance(value, tuple) and isinstance(other, tuple) and len(value) == len(other):
        return tuple(map(_beside, value, other))
    is_number = isinstance(value, (int, float)) and isinstance(other, PrimExpr)
    return ops.convert(value) if is_number else value


@user_facing
@gc_paused
def first_mismatch(
    lhs: object, rhs: object, map_free_vars: bool = False, skip_tensor_content: bool = False
) -> Mismatch | None:
    """The first difference of the two, or None if they are structurally equal."""
    lhs, rhs = _as_node(lhs), _as_node(rhs)
    lhs, rhs = _beside(lhs, rhs), _beside(rhs, lhs)
    if lhs is rhs:
        return None
    left, right = (
        Walk(map_free_vars=map_free_vars, skip_tensor_content=skip_tensor_content) for _ in range(2)
    )
    mismatch = _first_difference(left, right, lhs, rhs)
    return None if mismatch is None else _refined(mismatch, left, right) or mismatch


def _first_difference(left: Walk, right: Walk, lhs: object, rhs: object) -> Mismatch | None:
    one, other = left.begin(lhs), right.begin(rhs)
    known = _EqualPairs(left, right)
    while one == other:
        # As long as the tokens are equal, both stacks have the same length.
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
    return _difference(one, other, _located(left, lhs), _located(right, rhs))


class _EqualPairs:
    """A cache of pairs of equal nodes, so that shared nodes are not compared again at each use.

    A node that is visited again is stored with its counterpart, provided that no variable changed
    its number during the visit. The pair is equal wherever the scopes of the variables that the
    two nodes use are still open.
    """

    def __init__(self, left: Walk, right: Walk) -> None:
        self.left = left
        self.right = right
        self.visited: dict[int, Node] = {}
        self.renamings = (0, 0)
        self.known: list[dict[tuple[object, ...], tuple[int, Node]]] = []

    def begin(self, here: Visit, there: Visit) -> bool:
        """True if the two visits can be skipped, since the nodes are known to be equal."""
        subject, defines, sizes, _ = here
        if id(subject) not in self.visited:
            self.visited[id(subject)] = subject
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

    def end(self, pair: EndPair) -> None:
        """Memoise that two nodes are equal, since all of their fields are."""
        left, right = self.left, self.right
        used = left.used & ((2 << pair.level) - 1)  # without variables defined inside them
        left.used = pair.used | used
        self._forget_renamed()
        if (left.changes, right.changes) == pair.changes:
            level = max(0, used.bit_length() - 1)
            self.known += [{} for _ in range(level + 1 - len(self.known))]
            self.known[level][pair.pair] = used, pair.counterpart

    def end_scope(self) -> None:
        """Forget the pairs that are equal only inside the scope that has just ended."""
        del self.known[self.left.level + 1 :]

    def _forget_renamed(self) -> None:
        renamings = self.left.renamings, self.right.renamings
        if renamings != self.renamings:
            self.renamings = renamings
            self.known.clear()


def _located(walk: Walk, root: object) -> Located:
    return (walk.visit[3], walk.visit[0]) if walk.visit else (None, root)


def _refined(mismatch: Mismatch, left: Walk, right: Walk) -> Mismatch | None:
    """Find the differing element of two lists of different lengths, or mappings of different keys.

    Elements that both have are compared first, unless they are variables: of parameters only the
    number is reported.
    """
    match mismatch.lhs, mismatch.rhs:
        case tuple() as one, tuple() as other:
            return _first_member_mismatch(
                dict(enumerate(one)), dict(enumerate(other)), _ITEM, mismatch, left, right
            )
        case Mapping() as one, Mapping() as other:
            return _first_member_mismatch(one, other, _KEY, mismatch, left, right)
        case _:
            return None


_Steps: TypeAlias = tuple[Callable[[AccessPath, Any], AccessPath], ...]
_ITEM: _Steps = AccessPath.array_item, AccessPath.array_item_missing
_KEY: _Steps = AccessPath.map_item, AccessPath.map_item_missing


def _first_member_mismatch(
    one: Mapping[Any, object],
    other: Mapping[Any, object],
    steps: _Steps,
    mismatch: Mismatch,
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
            inner = _refined(inner, left, right) or inner
            path = steps[0](mismatch.lhs_path, key)
            return replace(
                inner, lhs_path=path.join(inner.lhs_path), rhs_path=path.join(inner.rhs_path)
            )
    item, missing_item = steps
    for key in sorted(one.keys() ^ other.keys()):
        lhs_path, rhs_path = (
            (item if key in side else missing_item)(mismatch.lhs_path, key) for side in (one, other)
        )
        return Mismatch(lhs_path, rhs_path, one.get(key, ABSENT), other.get(key, ABSENT))
    return None


def _difference(left: object, right: object, lhs: Located, rhs: Located) -> Mismatch:
    """Locate the difference of two tokens."""
    (path, one), (_, other) = lhs, rhs
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        steps, others = _members(one), _members(other)
        header = len(left) - len(steps)  # the kind and the number precede the fields
        is_use = isinstance(one, Node) and left[0] != type(one).__name__
        if not is_use and len(steps) == len(others) and left[:header] == right[:header]:
            tokens = zip(left[header:], right[header:], steps, others, strict=True)
            for a, b, (step, value), (_, other_value) in tokens:
                if a != b:
                    return _difference(a, b, ((path, step), value), ((path, step), other_value))
    difference = access_path(path)
    return Mismatch(difference, difference, one, other)


def _members(subject: object) -> list[tuple[Step, object]]:
    """The components of a node, tuple or mapping, each with the step that leads to it."""
    if isinstance(subject, Node):
        fields = fields_of(KINDS[type(subject)], subject)
        values = ((name, getattr(subject, compared)) for name, compared, _, _ in fields)
        return [(name, v() if isinstance(v, Elements) else v) for name, v in values]
    if isinstance(subject, (tuple, list)):
        return list(enumerate(subject))
    if isinstance(subject, Mapping):
        return [(Key(str(key)), subject[key]) for key in sorted(subject, key=str)]
    return []


@user_facing
def get_first_structural_mismatch(
    lhs: object, rhs: object, map_free_vars: bool = False, skip_tensor_content: bool = False
) -> tuple[AccessPath, AccessPath] | None:
    """The paths to the first difference on both sides, or None if there is none."""
    mismatch = first_mismatch(lhs, rhs, map_free_vars, skip_tensor_content)
    return None if mismatch is None else (mismatch.lhs_path, mismatch.rhs_path)


@user_facing
def structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> bool:
    """True if the two are the same program up to the names of variables.

    With `map_free_vars`, free variables may be renamed, too.
    """
    return first_mismatch(lhs, rhs, map_free_vars) is None


def assert_structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> None:
    """Check structural equality.

    Errors:
        StructuralMismatch (a ValueError and an AssertionError): they differ. The message has the
            first difference and, of modules and functions, a unified diff of the texts.
    """
    mismatch = first_mismatch(lhs, rhs, map_free_vars)
    if mismatch is not None:
        diff = hooks.call("program_diff", lhs, rhs, ("left", "right"))
        raise StructuralMismatch(f"{mismatch}\n{diff}" if diff else str(mismatch))
