"""Traversal and rewriting of nodes, generic over the fields that each node class declares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, TypeVar, cast

from relaxpy.dataclass import replace
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node

N = TypeVar("N", bound=Node)
V = TypeVar("V", bound=Node)


def children(node: Node) -> Iterator[Node]:
    """Return the nodes in the fields of `node`, in order; tuples and mappings are searched."""
    return iter(_children(node))


# Types without nodes inside. Most fields have one of them, and `isinstance(.., Mapping)` is slow.
_PLAIN = frozenset((str, int, bool, float, DataType, type(None)))


def _children(node: Node) -> list[Node]:
    nodes: list[Node] = []
    for name in node._fields:
        value = getattr(node, name)
        kind = type(value)
        if kind is tuple:
            for item in value:
                if isinstance(item, Node):
                    nodes.append(item)
                else:
                    _collect(item, nodes)
        elif isinstance(value, Node):
            nodes.append(value)
        elif kind not in _PLAIN and value is not EMPTY_ATTRS:
            _collect(value, nodes)
    return nodes


def _collect(value: object, nodes: list[Node]) -> None:
    """Append the nodes in a value to `nodes`, however deep in tuples and mappings."""
    if isinstance(value, Node):
        nodes.append(value)
    elif isinstance(value, tuple):
        for item in value:
            _collect(item, nodes)
    elif type(value) not in _PLAIN and isinstance(value, Mapping):
        for item in value.values():
            _collect(item, nodes)


def walk(root: Node) -> Iterator[Node]:
    """Visit every node under `root` once, children before parents (post-order).

    The fields of variables are not visited: neither the struct info of a Relax Var nor the shape of
    a Buffer.
    """
    visited = {id(root)}
    stack = [(root, iter(_children(root)))]
    while stack:
        node, remaining = stack[-1]
        for child in remaining:
            key = id(child)
            if key in visited:
                continue
            visited.add(key)
            if not child._variable and (operands := _children(child)):
                stack.append((child, iter(operands)))
                break
            yield child
        else:
            stack.pop()
            yield node


def map_children(fn: Callable[[Node], Node], node: N) -> N:
    """Rebuild `node` with `fn` applied to its children, or return `node` if none changed."""
    changes = {}
    for name in node._fields:
        old = getattr(node, name)
        if type(old) not in _PLAIN and (new := _map(fn, old)) is not old:
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
    """Return whether two operands, or two lists of them, have the same struct info."""
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(_same_struct_info, old, new))
    known = getattr(old, "struct_info", None)
    return old is new or (known is not None and known is getattr(new, "struct_info", None))


def rewrite(root: N, rule: Callable[[Node], Node | None]) -> Node:
    """Apply `rule` once to each node under `root`, children first; None leaves a node as it is.

    Shared nodes stay shared. The rule is applied to variables, but not to their fields.
    """
    done: dict[int, Node] = {}
    stack: list[tuple[Node, Sequence[Node] | None]] = [(root, None)]
    while stack:
        node, operands = stack.pop()
        if id(node) in done:
            continue
        if operands is None:
            operands = _children(node) if node is root or not node._variable else ()
            if operands:
                stack.append((node, operands))
                stack += [(child, None) for child in operands if id(child) not in done]
                continue
        unchanged = all(done[id(child)] is child for child in operands)
        rebuilt = node if unchanged else map_children(lambda child: done[id(child)], node)
        result = rule(rebuilt)
        done[id(node)] = rebuilt if result is None else result
    return done[id(root)]


def rename(root: N, table: Mapping[V, Node], renewed: Collection[Node] = ()) -> N:
    """Replace variables everywhere in `root`, in struct info too, by others of the same kind.

    Derived struct info stays valid and is kept. Variables and buffers that mention a replaced
    variable are rebuilt once each, and those in `renewed` are always rebuilt.
    """
    done: dict[int, Node] = {id(old): new for old, new in table.items()}
    forced = {id(node) for node in renewed}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        if ready:
            done[id(node)] = _renamed(node, done, id(node) in forced)
            continue
        stack.append((node, True))
        stack += [(child, False) for child in children(node) if id(child) not in done]
        sinfo = _derived_sinfo(node)
        if sinfo is not None and id(sinfo) not in done:
            stack.append((sinfo, False))
    return cast("N", done[id(root)])


def _derived_sinfo(node: Node) -> Node | None:
    """Return the struct info of a node where it is derived and not one of its fields."""
    if "struct_info" in node._fields:
        return None
    sinfo: Node | None = getattr(node, "struct_info", None)
    return sinfo


def _renamed(node: Node, done: Mapping[int, Node], forced: bool) -> Node:
    changes: dict[str, object] = {}
    for name in node._fields:
        old = getattr(node, name)
        new = _map(lambda child: done[id(child)], old)
        if new is not old:
            changes[name] = new
    sinfo = _derived_sinfo(node)
    new_sinfo = None if sinfo is None else done[id(sinfo)]
    if not changes and new_sinfo is sinfo and not forced:
        return node
    if sinfo is None or hasattr(node, "with_fields"):
        return rebuild(node, **changes)
    return replace(node, **changes, struct_info=new_sinfo)
