"""Walking and rewriting of nodes, generic over the fields that each kind of node declares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields as dataclass_fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node

N = TypeVar("N", bound=Node)
V = TypeVar("V", bound=Node)


def children(node: Node) -> Iterator[Node]:
    """The nodes in the fields of `node`, in order, those in tuples and tables included."""
    return iter(_children(node))


# Values that are or hold no nodes: most fields have one, and to ask for a Mapping takes long.
_PLAIN = frozenset((str, int, bool, float, DataType, type(None)))


def _children(node: Node) -> list[Node]:
    found: list[Node] = []
    for name in node._fields:
        value = getattr(node, name)
        kind = type(value)
        if kind is tuple:
            for item in value:
                if isinstance(item, Node):
                    found.append(item)
                else:
                    _collect(item, found)
        elif isinstance(value, Node):
            found.append(value)
        elif kind not in _PLAIN and value is not EMPTY_ATTRS:
            _collect(value, found)
    return found


def _collect(value: object, found: list[Node]) -> None:
    """Enter the nodes in a value, however deep in tuples and tables."""
    if isinstance(value, Node):
        found.append(value)
    elif isinstance(value, tuple):
        for item in value:
            _collect(item, found)
    elif type(value) not in _PLAIN and isinstance(value, Mapping):
        for item in value.values():
            _collect(item, found)


def walk(root: Node) -> Iterator[Node]:
    """Every node under `root` once, children before parents.

    Variables are not entered: neither the info of a Relax Var nor the shape of a Buffer.
    """
    seen = {id(root)}
    stack = [(root, iter(_children(root)))]
    while stack:
        node, below = stack[-1]
        for child in below:
            key = id(child)
            if key in seen:
                continue
            seen.add(key)
            if not child._variable and (parts := _children(child)):
                stack.append((child, iter(parts)))
                break
            yield child
        else:
            stack.pop()
            yield node


def map_children(fn: Callable[[Node], Node], node: N) -> N:
    """`node` rebuilt over `fn` of its children, or `node` itself if none changed."""
    changes = {}
    for name in node._fields:
        old = getattr(node, name)
        new = _map(fn, old)
        if new is not old:
            changes[name] = new
    return node if not changes else rebuild(node, **changes)


def _map(fn: Callable[[Node], Node], value: Any) -> Any:
    if isinstance(value, Node):
        return fn(value)
    if isinstance(value, tuple):
        out = tuple(_map(fn, item) for item in value)
        return value if all(a is b for a, b in zip(out, value, strict=True)) else out
    if isinstance(value, Attrs):
        table = {k: _map(fn, v) for k, v in value.items()}
        return value if all(table[k] is v for k, v in value.items()) else Attrs(table)
    if isinstance(value, dict):
        return {k: _map(fn, v) for k, v in value.items()}
    return value


def rebuild(node: N, **changes: object) -> N:
    """`node` with some fields replaced; what was derived from the old ones is dropped."""
    with_fields = getattr(node, "with_fields", None)
    if with_fields is not None:
        return cast("N", with_fields(**changes))
    assert is_dataclass(node)
    derived = {f.name for f in dataclass_fields(node)} & {"struct_info"} - set(node._fields)
    return cast("N", replace(node, **changes, **dict.fromkeys(derived)))


def rewrite(root: N, rule: Callable[[Node], Node | None]) -> Node:
    """`root` with `rule` applied once to each node, children first; None leaves a node as it is.

    What is shared stays shared; variables are offered to the rule, but not entered.
    """
    done: dict[int, Node] = {}
    stack: list[tuple[Node, Sequence[Node] | None]] = [(root, None)]
    while stack:
        node, below = stack.pop()
        if id(node) in done:
            continue
        if below is None:
            below = _children(node) if node is root or not node._variable else ()
            if below:
                stack.append((node, below))
                stack += [(child, None) for child in below if id(child) not in done]
                continue
        same = all(done[id(child)] is child for child in below)
        rebuilt = node if same else map_children(lambda child: done[id(child)], node)
        changed = rule(rebuilt)
        done[id(node)] = rebuilt if changed is None else changed
    return done[id(root)]


def rename(root: N, table: Mapping[V, Node], renewed: Collection[Node] = ()) -> N:
    """`root` with variables replaced by others of their kind at every place, infos included.

    What was derived of the old ones holds of the new ones and is kept. Variables and buffers that
    mention a replaced one are made anew, once each, and so are those in `renewed` in any case.
    """
    done: dict[int, Node] = {id(old): new for old, new in table.items()}
    again = {id(node) for node in renewed}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        if ready:
            done[id(node)] = _renamed(node, done, id(node) in again)
            continue
        stack.append((node, True))
        stack += [(child, False) for child in children(node) if id(child) not in done]
        info = _derived_info(node)
        if info is not None and id(info) not in done:
            stack.append((info, False))
    return cast("N", done[id(root)])


def _derived_info(node: Node) -> Node | None:
    """What is known of a node, where that is no part of it."""
    if "struct_info" in node._fields:
        return None
    info: Node | None = getattr(node, "struct_info", None)
    return info


def _renamed(node: Node, done: Mapping[int, Node], again: bool) -> Node:
    changes: dict[str, object] = {}
    for name in node._fields:
        old = getattr(node, name)
        new = _map(lambda child: done[id(child)], old)
        if new is not old:
            changes[name] = new
    info = _derived_info(node)
    known = None if info is None else done[id(info)]
    if not changes and known is info and not again:
        return node
    if info is None or hasattr(node, "with_fields"):
        return rebuild(node, **changes)
    return replace(node, **changes, struct_info=known)  # type: ignore[type-var]
