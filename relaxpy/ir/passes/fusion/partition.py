"""Partitioning of a dataflow graph into fused groups, by post-dominators.

As in TVM, each node is tried with its immediate post-dominator, the first node that all paths from
it lead through. They are fused, with all nodes between them, if the kinds on the paths permit that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Final

from relaxpy.ir.core.traverse import Groups, reached
from relaxpy.ir.relax.analysis.op_pattern import OpPatternKind
from relaxpy.support.dataclass import dataclass

_ELEMWISE = OpPatternKind.ELEMWISE
_BROADCAST = OpPatternKind.BROADCAST
_INJECTIVE = OpPatternKind.INJECTIVE
_COMM_REDUCE = OpPatternKind.COMM_REDUCE
_OUT_EWISE_FUSABLE = OpPatternKind.OUT_EWISE_FUSABLE
_TUPLE = OpPatternKind.TUPLE
_OPAQUE = OpPatternKind.OPAQUE

_STEPS: Final = 64
"""The groups that the tests for cycles visit at most, for each node of the graph."""


@dataclass(slots=True, eq=False)
class GraphNode:
    """A node: its kind, the indices of its users, and whether its value leaves the graph.

    A reshape needs no memory where it is computed together with its only user. Row-local kernels
    are fused and run in blocks of rows, reductions among them. So are two batched matmuls with
    row-local kernels between them. `rows` are the tensors whose rows a row-local kernel computes or
    reads, one after the other.
    """

    kind: OpPatternKind
    users: list[int] = field(default_factory=list)
    leaves: bool = False
    reshapes: bool = False
    row_wise: bool = False
    products: int = 0
    rows: Sequence[Hashable] = ()

    @property
    def contracts(self) -> bool:
        """True if this is a contraction, which has blocks of its own."""
        return self.kind is _OUT_EWISE_FUSABLE and not self.row_wise


@dataclass(slots=True, eq=False)
class Group:
    """A set of nodes: the representative of joined sets has the kind and the size of the whole."""

    kind: OpPatternKind
    anchored: bool
    contracts: bool
    size: int = 1
    products: int = 0


def partition(
    nodes: Sequence[GraphNode], max_size: int, pays: Callable[[int, int], bool]
) -> list[Group]:
    """The group of each node; groups have at most about `max_size` nodes.

    The users of a node come after it. `pays` decides for a node and a user of it.
    """
    fusion = _Fusion(nodes, max_size, pays)
    for index in range(len(nodes)):
        fusion.try_reshape(index)
    for phase in range(3):
        for index in range(len(nodes)):
            fusion.try_node(index, phase)
    for index in range(len(nodes)):
        fusion.try_rows(index)
    for index in range(len(nodes)):
        fusion.try_products(index)
    fusion.try_siblings()
    return list(map(fusion.root, range(len(nodes))))


@dataclass(slots=True, eq=False)
class _Dominated:
    """A node of the post-dominator tree: its dominator, and the hardest kind on the way there."""

    parent: int | None
    depth: int
    kind: OpPatternKind


def _post_dominators(nodes: Sequence[GraphNode], limit: int) -> list[_Dominated]:
    """The tree; dominators farther away than `limit` steps are left out."""
    tree: list[_Dominated] = [_Dominated(None, 1, _OPAQUE)] * len(nodes)
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        if node.leaves or not node.users:
            continue
        parent: int | None = node.users[0]
        kind = max(nodes[user].kind for user in node.users)
        for user in dict.fromkeys(node.users):
            parent, passed = _common_ancestor(tree, parent, user, limit)
            kind = max(kind, passed)
        depth = 1 if parent is None else tree[parent].depth + 1
        tree[index] = _Dominated(parent, depth, kind)
    return tree


def _common_ancestor(
    tree: Sequence[_Dominated], one: int | None, other: int | None, limit: int
) -> tuple[int | None, OpPatternKind]:
    """The nearest common ancestor of two nodes, and the hardest kind on the ways there."""
    kind = _ELEMWISE
    for _ in range(limit):
        if one == other or one is None or other is None:
            break
        first, second = tree[one], tree[other]
        if first.depth >= second.depth:
            kind, one = max(kind, first.kind), first.parent
        if second.depth >= first.depth:
            kind, other = max(kind, second.kind), second.parent
    return (one if one == other else None), kind


class _Fusion:
    def __init__(
        self, nodes: Sequence[GraphNode], max_size: int, pays: Callable[[int, int], bool]
    ) -> None:
        self.nodes, self.max_size, self.pays = nodes, max_size, pays
        self.groups = [
            Group(
                node.kind,
                anchored=node.kind is _OUT_EWISE_FUSABLE,
                contracts=node.contracts,
                products=node.products,
            )
            for node in nodes
        ]
        self._joined = Groups[Group]()
        self.tree = _post_dominators(nodes, max_size + 1)

    def root(self, index: int) -> Group:
        """The group of a node."""
        return self._joined.find(self.groups[index])

    def try_reshape(self, index: int) -> None:
        """Fuse a reshape with its user, if that is one kernel of whatever kind."""
        node = self.nodes[index]
        users = set(node.users)
        if not node.reshapes or node.leaves or len(users) != 1:
            return
        user = users.pop()
        is_kernel = self.nodes[user].kind is not _OPAQUE
        if is_kernel and self.pays(index, user) and self._size_with(index, user) <= self.max_size:
            self._fuse(index, user)

    def try_rows(self, index: int) -> None:
        """Fuse a node with its dominator if that and all nodes between them are row-local.

        Two contractions stay apart.
        """
        node, sink = self.nodes[index], self.tree[index].parent
        if sink is None or not (node.row_wise or node.contracts):
            return
        group, target = self.root(index), self.root(sink)
        if group is target or (group.contracts and target.contracts):
            return
        between = [self.nodes[k] for k in self._between(index, sink) if k != index]
        if not all(other.row_wise for other in (self.nodes[sink], *between)):
            return
        if self._size_with(index, sink) <= self.max_size and self._pays(index, sink):
            self._fuse(index, sink)

    def try_products(self, index: int) -> None:
        """Fuse row-local kernels after a batched matmul with the batched matmul that uses them."""
        node, users = self.nodes[index], set(self.nodes[index].users)
        if not node.row_wise or node.leaves or len(users) != 1:
            return
        user = users.pop()
        first, second = self.root(index), self.root(user)
        if self.nodes[user].products and first.products == second.products == 1:
            fits = first.size + second.size <= self.max_size
            if first is not second and fits and self.pays(index, user):
                self._fuse(index, user)

    def try_siblings(self) -> None:
        """Fuse row-local groups, reductions among them, that need rows of the same tensor.

        Then each row comes from memory once. Several results of the group may be used elsewhere.
        """
        members: dict[Group, list[int]] = {}
        users: dict[Hashable, list[int]] = {}
        for index, node in enumerate(self.nodes):
            members.setdefault(self.root(index), []).append(index)
            for tensor in node.rows:
                users.setdefault(tensor, []).append(index)
        pairs = [pair for indices in users.values() for pair in pairwise(indices)]
        steps = iter(range(_STEPS * len(self.nodes)))
        for pair in pairs * 2:  # as what is between two groups may become part of one
            one, other = map(self.root, pair)
            joined = [*members[one], *members[other]]
            if one is other or len(joined) > self.max_size or not self._have_rows(joined):
                continue
            above = self._above(joined, members)
            if self.pays(*pair) and all(
                group not in (one, other) and next(steps, None) is not None for group in above
            ):
                one.size += other.size
                self._joined.join(one, other)
                members[one] = joined

    def _have_rows(self, indices: Sequence[int]) -> bool:
        """True if nodes are row-local, and some of them are reductions."""
        nodes = [self.nodes[index] for index in indices]
        return all(n.row_wise for n in nodes) and any(n.kind is _COMM_REDUCE for n in nodes)

    def _above(
        self, indices: Sequence[int], members: Mapping[Group, Sequence[int]]
    ) -> Iterator[Group]:
        """The other groups that depend on those of nodes, and these if they depend on others."""
        own = {self.root(index) for index in indices}

        def users(nodes: Sequence[int]) -> Iterator[Group]:
            return (self.root(user) for node in nodes for user in self.nodes[node].users)

        others = (group for group in users(indices) if group not in own)
        return reached(others, lambda group: () if group in own else users(members[group]))

    def try_node(self, index: int, phase: int) -> None:
        """Fuse a node with its dominator if this is the phase for its kind and the paths permit.

        Convolutions and elementwise kernels come first, injective ones second, so that they do not
        keep the former apart. In the third phase tuples that became part of a group absorb their
        fields.
        """
        group, dominated = self.groups[index], self.tree[index]
        sink = dominated.parent
        if group.kind is _OPAQUE or sink is None or self._size_with(index, sink) > self.max_size:
            return
        target = self.groups[sink]
        if phase == 2:
            root = self.root(sink)
            in_tuple = target.kind is _TUPLE and root.kind <= _INJECTIVE
            if group.kind <= _INJECTIVE and in_tuple and self._permits(index, sink, _is_injective):
                self._fuse(index, sink)
        elif self.root(index) is self.root(sink) or target.kind is _TUPLE:
            return
        elif group.kind is _OUT_EWISE_FUSABLE:
            if phase == 0 and dominated.kind is _ELEMWISE:
                self._fuse_if(index, sink, _is_broadcast)
        elif group.kind <= _BROADCAST:
            if dominated.kind <= _INJECTIVE or dominated.kind is _COMM_REDUCE:
                self._fuse_if(index, sink, _is_fusable)
        elif group.kind in (_INJECTIVE, _TUPLE) and phase == 1:
            self._fuse_if(index, sink, _is_injective)

    def _fuse_if(self, index: int, sink: int, condition: _Condition) -> None:
        if self._permits(index, sink, condition):
            self._fuse(index, sink)

    def _between(self, index: int, sink: int) -> Iterator[int]:
        """The node and all nodes on paths from it to the sink."""
        return reached([index], lambda n: (u for u in sorted(self.nodes[n].users) if u != sink))

    def _size_with(self, index: int, sink: int) -> int:
        """The size of the sink's group with the nodes before it; large numbers are not exact."""
        size = self.root(sink).size
        for node in self._between(index, sink):
            size += self.groups[node].size
            if size > self.max_size:
                break
        return size

    def _permits(self, index: int, sink: int, condition: _Condition) -> bool:
        """True if all nodes on the way to the sink, and the sink, satisfy the condition."""
        between = (node for node in self._between(index, sink) if node != index)
        return (
            condition(self.root(sink).kind, True)
            and all(condition(self.root(node).kind, False) for node in between)
            and self._pays(index, sink)
        )

    def _pays(self, index: int, sink: int) -> bool:
        """True if fusion pays for each node on the way to the sink with each of its users."""
        return all(
            self.pays(node, user)
            for node in self._between(index, sink)
            for user in self.nodes[node].users
        )

    def _fuse(self, index: int, sink: int) -> None:
        for node in list(self._between(index, sink)):
            child, parent = self.root(node), self.root(sink)
            if child is parent:
                continue
            parent.size += child.size
            parent.products += child.products
            self._joined.join(parent, child)
            parent.contracts |= child.contracts
            if child.anchored:
                parent.anchored = True
                parent.kind = max(child.kind, parent.kind)


_Condition = Callable[[OpPatternKind, bool], bool]


def _is_injective(kind: OpPatternKind, is_sink: bool) -> bool:
    return kind <= _INJECTIVE


def _is_broadcast(kind: OpPatternKind, is_sink: bool) -> bool:
    return kind <= _BROADCAST


def _is_fusable(kind: OpPatternKind, is_sink: bool) -> bool:
    return kind <= (_OUT_EWISE_FUSABLE if is_sink else _INJECTIVE)
