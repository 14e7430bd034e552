"""Traversal and rewriting of nodes, generic over the fields that each node class declares.

Also the orders in which trees and graphs are visited, and sets that are joined step by step.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from operator import is_, methodcaller
from typing import Any, Final, Generic, TypeVar, cast

from relaxpy.ir.core.node import PLAIN_TYPES, Attrs, Copied, Node, field_values
from relaxpy.support.dataclass import replace

N = TypeVar("N", bound=Node)
V = TypeVar("V", bound=Node)


def visit_methods(kinds: Iterable[type], suffix: str = "") -> dict[type, str]:
    """The names of methods for kinds of nodes: `visit_floor_div` for FloorDiv."""
    words = {kind: "_".join(re.findall("[A-Z][a-z]+|[A-Z]+", kind.__name__)) for kind in kinds}
    named = {kind: f"visit_{name.lower()}{suffix}" for kind, name in words.items()}
    return {kind: name.replace("get_item", "getitem") for kind, name in named.items()}


def children(node: Node) -> Iterator[Node]:
    """The nodes in the fields of `node`, in order; tuples and mappings are searched."""
    return iter(node._children())


def walk(root: Node) -> Iterator[Node]:
    """Visit every node under `root` once, children before parents (post-order).

    The fields of variables are not visited: neither the struct info of a Relax Var nor the shape of
    a Buffer.
    """
    visited = {id(root)}
    stack = [(root, iter(root._children()))]
    while stack:
        node, remaining = stack[-1]
        for child in remaining:
            key = id(child)
            if key in visited:
                continue
            visited.add(key)
            if not child._variable and (operands := child._children()):
                stack.append((child, iter(operands)))
                break
            yield child
        else:
            stack.pop()
            yield node


def tree_size(root: Node) -> int:
    """The number of nodes under `root` as a tree, where a shared node counts at each use."""
    sizes: defaultdict[Node, int] = defaultdict(int)
    for node in walk(root):
        sizes[node] = 1 + sum(map(sizes.__getitem__, node._children()))
    return sizes[root]


def occurrences(root: Node, *kinds: type[N]) -> Iterator[N]:
    """Visit the nodes of some classes, in the order of `walk`.

    Nodes that contain none are not entered.
    """
    bits = 0
    for kind in kinds:
        bits |= kind._bits
    if not root._bits_inside & bits:
        return iter(())
    if root._children():
        return _occurrences(root, kinds, bits)
    return iter((root,) if isinstance(root, kinds) else ())


def _occurrences(root: Node, kinds: tuple[type[N], ...], bits: int) -> Iterator[N]:
    visited = {id(root)}
    stack = [(root, iter(root._children()))]
    while stack:
        node, remaining = stack[-1]
        for child in remaining:
            if not child._bits_inside & bits:
                continue
            key = id(child)
            if key in visited:
                continue
            visited.add(key)
            if not child._variable and (operands := child._children()):
                stack.append((child, iter(operands)))
                break
            if isinstance(child, kinds):
                yield child
        else:
            stack.pop()
            if isinstance(node, kinds):
                yield node


def map_children(fn: Callable[[Node], Node], node: N) -> N:
    """Rebuild `node` with `fn` applied to its children, or return `node` if none changed."""
    changed: dict[int, Node] = {}
    for child in node._children():
        new = fn(child)
        if new is not child:
            changed[id(child)] = new
    return rebuild(node, **_changes(node, changed)) if changed else node


def _changes(node: Node, changed: Mapping[int, Node]) -> dict[str, object]:
    """The fields of `node` with a child that `changed` replaces, by its identity."""
    changes: dict[str, object] = {}
    for name, old in zip(node._fields, field_values(node), strict=True):
        if type(old) in PLAIN_TYPES:
            continue
        new = changed.get(id(old), old) if isinstance(old, Node) else _replaced(old, changed)
        if new is not old:
            changes[name] = new
    return changes


def _replaced(value: Any, changed: Mapping[int, Node]) -> Any:
    if isinstance(value, Node):
        return changed.get(id(value), value)
    if isinstance(value, tuple):
        out = [
            changed.get(id(item), item) if isinstance(item, Node) else _replaced(item, changed)
            for item in value
        ]
        return value if all(map(is_, out, value)) else tuple(out)
    if type(value) is Attrs:
        table = {k: _replaced(v, changed) for k, v in value.items()}
        return value if all(table[k] is v for k, v in value.items()) else Attrs(table)
    if isinstance(value, dict):
        return {k: _replaced(v, changed) for k, v in value.items()}
    return value


def rebuild(node: N, /, **changes: object) -> N:
    """Rebuild `node` with some fields replaced; struct info derived from old fields is dropped.

    Passes change the operands of an expression with this function only: `dataclasses.replace`
    keeps the struct info, which then declares what derivation may contradict. Where the struct info
    follows from that of some operands (`_derived_from`), it is kept if theirs is the same object.
    """
    with_fields = getattr(node, "with_fields", None)
    if with_fields is not None:
        return cast("N", with_fields(**changes))
    assert is_dataclass(node)
    derived = "struct_info" in node.__dataclass_fields__ and "struct_info" not in node._fields
    if derived and node._derived_from is not None:
        relevant = {name: new for name, new in changes.items() if name in node._derived_from}
        if all(_same_struct_info(getattr(node, name), new) for name, new in relevant.items()):
            derived = False
    return cast("N", replace(node, **changes, **({"struct_info": None} if derived else {})))


def _same_struct_info(old: object, new: object) -> bool:
    """True if two operands, or two lists of them, have the same struct info."""
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(_same_struct_info, old, new))
    known = getattr(old, "struct_info", None)
    return old is new or (known is not None and known is getattr(new, "struct_info", None))


def rewrite(root: Node, rule: Callable[[Node], Node | None]) -> Node:
    """Apply `rule` once to each node under `root`, children first; None leaves a node unchanged.

    Shared nodes stay shared. The rule is applied to variables, but not to their fields.
    """
    root_children = root._children()
    if not root_children:
        result = rule(root)
        return root if result is None else result
    changed: dict[int, Node] = {}

    def operands(node: Node) -> Sequence[Node]:
        return root_children if node is root else () if node._variable else node._children()

    for node, below in last_first(root, operands, set()):
        rebuilt = node
        if changed and not changed.keys().isdisjoint(map(id, below)):
            rebuilt = rebuild(node, **_changes(node, changed))
        result = rule(rebuilt)
        if result is None:
            result = rebuilt
        if result is not node:
            changed[id(node)] = result
    return changed.get(id(root), root)


def last_first(
    root: Node, operands: Callable[[Node], Sequence[Node]], visited: set[int]
) -> Iterator[tuple[Node, Sequence[Node]]]:
    """Visit every node under `root` once, after its operands, the last of which comes first.

    Those in `visited`, by identity, are not entered.
    """
    visited.add(id(root))
    below = operands(root)
    stack = [(root, below, reversed(below))]
    while stack:
        node, operands_of_node, remaining = stack[-1]
        for child in remaining:
            key = id(child)
            if key in visited:
                continue
            visited.add(key)
            if below := operands(child):
                stack.append((child, below, reversed(below)))
                break
            yield child, below
        else:
            stack.pop()
            yield node, operands_of_node


def rename(root: N, table: Mapping[V, Node], renewed: Collection[Node] = ()) -> N:
    """Replace variables everywhere in `root`, in struct info too, by others of the same kind.

    Derived struct info stays valid and is kept. Variables and buffers that mention a replaced
    variable are rebuilt once each, and those in `renewed` are always rebuilt.
    """
    changed: dict[int, Node] = {id(old): new for old, new in table.items() if new is not old}
    forced = {id(node) for node in renewed}
    if root not in table and (changed or forced):
        below_of = _CHILDREN if isinstance(root, Copied) else _with_struct_info
        for node, below in last_first(root, below_of, set(map(id, table))):
            if id(node) in forced or not changed.keys().isdisjoint(map(id, below)):
                changed[id(node)] = _renamed(node, changed)
    return cast("N", changed.get(id(root), root))


_CHILDREN: Final[Callable[[Node], Sequence[Node]]] = methodcaller("_children")


def _with_struct_info(node: Node) -> Sequence[Node]:
    """The children of a node, and its struct info where that is derived."""
    sinfo = _derived_sinfo(node)
    return node._children() if sinfo is None else [*node._children(), sinfo]


def _derived_sinfo(node: Node) -> Node | None:
    """The struct info of a node where it is derived and not one of its fields."""
    cls = type(node)
    derives = _derives.get(cls)
    if derives is None:
        derives = _derives[cls] = "struct_info" not in cls._fields and hasattr(cls, "struct_info")
    return getattr(node, "struct_info", None) if derives else None


_derives: Final[dict[type[Node], bool]] = {}
"""For each class, True if its nodes have struct info that is not one of their fields."""


def _renamed(node: Node, changed: Mapping[int, Node]) -> Node:
    changes = _changes(node, changed)
    alike = node._alike(changes)
    if alike is not None:
        return alike
    sinfo = _derived_sinfo(node)
    if sinfo is None or hasattr(node, "with_fields"):
        return rebuild(node, **changes)
    return replace(node, **changes, struct_info=changed.get(id(sinfo), sinfo))  # type: ignore[type-var]


T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def preorder(roots: Iterable[T], below: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Visit trees from the left, each item before those below it; a shared item at each use."""
    stack = [*roots][::-1]
    while stack:
        item = stack.pop()
        yield item
        stack += [*below(item)][::-1]


def leaves(value: Any) -> Iterator[Any]:
    """The value, or the leaves of the fields of a tuple, from left to right."""
    if type(value) is tuple:
        for field in value:
            yield from leaves(field)
    else:
        yield value


def reached(roots: Iterable[K], below: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Visit the roots of a graph and all that it leads to, each item once, as `preorder` does."""
    visited: set[K] = set()
    stack = [*roots][::-1]
    while stack:
        item = stack.pop()
        if item not in visited:
            visited.add(item)
            yield item
            stack += [*below(item)][::-1]


def postorder(roots: Iterable[K], below: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Visit what `reached` does, each item after those below it that do not lead back to it."""
    visited: set[K] = set()
    stack = [(root, False) for root in roots][::-1]
    while stack:
        item, is_entered = stack.pop()
        if is_entered:
            yield item
        elif item not in visited:
            visited.add(item)
            stack.append((item, True))
            stack += [(inner, False) for inner in below(item)][::-1]


def strongly_connected(graph: Mapping[K, Iterable[K]]) -> list[tuple[K, ...]]:
    """The strongly connected components, each after the components that it points to.

    Rule:
        Tarjan, SIAM J. Comput. 1(2), 1972, with an explicit stack.
    """
    index: dict[K, int] = {}
    low: dict[K, int] = {}
    open_nodes: dict[K, None] = {}
    groups: list[tuple[K, ...]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        open_nodes[root] = None
        while work:
            node, successors = work[-1]
            step = next((s for s in successors if s in graph and s not in index), None)
            if step is not None:
                index[step] = low[step] = len(index)
                open_nodes[step] = None
                work.append((step, iter(graph[step])))
                continue
            work.pop()
            low[node] = min([low[node], *(low[s] for s in graph[node] if s in open_nodes)])
            if low[node] == index[node]:
                group = []
                while True:
                    member, _ = open_nodes.popitem()
                    group.append(member)
                    if member == node:
                        break
                groups.append(tuple(reversed(group)))
    return groups


class Groups(Generic[K]):
    """Disjoint sets of keys; a key that was never joined is alone in its set."""

    def __init__(self) -> None:
        self._above: dict[K, K] = {}

    def find(self, key: K) -> K:
        """The representative of the set of `key`, until that set is joined with another one."""
        path = []
        while (above := self._above.get(key)) is not None:
            path.append(key)
            key = above
        for below in path[:-1]:
            self._above[below] = key
        return key

    def join(self, first: K, second: K) -> None:
        """Join the sets of two keys."""
        one, other = self.find(first), self.find(second)
        if other not in {one: None}:  # scalar expressions have no plain ==
            self._above[other] = one
