"""JSON of the IR: versioned, stable, sharing kept; reading it runs nothing and trusts nothing."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from enum import IntEnum
from typing import Any, cast

import numpy as np

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.node import Attrs, Node
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import buffer as tir_buffer, expr as tir, stmt as tir_stmt
from relaxpy.ir.tir.function import PrimFunc
from relaxpy.ir.types import PointerType, PrimType

FORMAT = "relaxpy-ir"
VERSION = 1
_LIMIT = 4_000_000
_NOT_SAVED = frozenset(("span",))
_ENUMS: dict[str, type[IntEnum]] = {
    "ForKind": tir_stmt.ForKind,
    "IterVarKind": tir.IterVarKind,
}
_ENV_FUNCS = {f.name: f for f in (rx.DEFAULT_DERIVE, rx.EMPTY_DERIVE)}


def _concrete(module: object, prefix: str) -> dict[str, type[Node]]:
    return {
        f"{prefix}.{name}": kind
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and issubclass(kind, Node)
        and kind.__module__ == getattr(module, "__name__", "")
        and not name.startswith("_")
    }


_KINDS: dict[str, type[Node]] = {
    **_concrete(rx, "relax"),
    **_concrete(tir, "tir"),
    **_concrete(tir_buffer, "tir"),
    **_concrete(tir_stmt, "tir"),
    "tir.PrimFunc": PrimFunc,
    "ir.Op": Op,
    "ir.IRModule": IRModule,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def _stored(node: Node) -> dict[str, object]:
    """What a node is built from again: the arguments of its constructor, less positions."""
    if isinstance(node, IRModule):
        return {
            "functions": tuple(node.functions.items()),
            "attrs": node.attrs,
            "global_infos": Attrs(node.global_infos),
        }
    if isinstance(node, tir.Var):
        return {"name": node.name, "dtype": node.type_annotation}
    if isinstance(node, tir_buffer.Range):
        return {"min": node.min, "extent": node.extent}
    if isinstance(node, (tir.PrimExpr, Op)):
        names: Sequence[str] = node.__match_args__  # type: ignore[union-attr]
        return {name: getattr(node, name) for name in names}
    found = {
        f.name: getattr(node, f.name)
        for f in dataclass_fields(cast("Any", node))
        if f.init and f.name not in _NOT_SAVED
    }
    if isinstance(node, PrimFunc):
        del found["struct_info"]
        found["buffer_map"] = tuple(node.buffer_map.items())
    return found


def _node_children(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _node_children(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _node_children(item)


class _Writer:
    def __init__(self) -> None:
        self.index: dict[int, int] = {}
        self.rows: list[list[object]] = []

    def add(self, root: Node) -> int:
        """Enter `root` and all below it, children first; its row number."""
        stack: list[tuple[Node, dict[str, object] | None]] = [(root, None)]
        while stack:
            node, stored = stack.pop()
            if id(node) in self.index:
                continue
            if stored is None:
                stored = _stored(node)
                stack.append((node, stored))
                below = [c for v in stored.values() for c in _node_children(v)]
                stack += [(c, None) for c in reversed(below) if id(c) not in self.index]
                continue
            name = _NAMES.get(type(node))
            if name is None:
                raise MisuseError(f"a {type(node).__name__} cannot be saved")
            self.rows.append([name, {k: self.value(v) for k, v in stored.items()}])
            self.index[id(node)] = len(self.rows) - 1
        return self.index[id(root)]

    def value(self, value: object) -> object:
        match value:
            case DataType():
                return {"dtype": str(value)}
            case None | bool() | str():
                return value
            case IntEnum():
                return {"enum": [type(value).__name__, int(value)]}
            case int():
                return value if abs(value) < 1 << 53 else {"int": str(value)}
            case float():
                return {"float": value.hex()}
            case Node():
                return {"node": self.index[id(value)]}
            case tuple():
                return [self.value(v) for v in value]
            case Attrs():
                return {"table": {k: self.value(v) for k, v in value.items()}}
            case PointerType(element_type=element, storage_scope=scope):
                return {"pointer": [str(element.dtype), scope]}
            case PrimType(dtype=dtype):
                return {"prim": str(dtype)}
            case np.ndarray():
                data = np.ascontiguousarray(value)
                text = base64.b64encode(data.tobytes()).decode("ascii")
                return {"array": [str(DataType(data.dtype)), list(value.shape), text]}
            case rx.EnvFunc(name=name) if name in _ENV_FUNCS:
                return {"env_func": name}
            case _:
                raise MisuseError(
                    f"a value of type {type(value).__name__} cannot be saved: {value!r:.60}"
                )


@user_facing
def save_json(node: Node) -> str:
    """The JSON text of a node or module; equal objects give equal text, positions are not saved.

    Errors:
        MisuseError: an attribute holds what has no JSON form.
    """
    writer = _Writer()
    root = writer.add(node)
    table = {"format": FORMAT, "version": VERSION, "root": root, "nodes": writer.rows}
    return json.dumps(table, separators=(",", ":"), allow_nan=False)


class _Reader:
    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def value(self, value: object) -> object:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, list):
            return tuple(self.value(v) for v in value)
        if not isinstance(value, dict) or len(value) != 1:
            raise MisuseError(f"not a saved value: {value!r:.60}")
        ((tag, content),) = value.items()
        match tag, content:
            case "node", int() if 0 <= content < len(self.nodes):
                return self.nodes[content]
            case "dtype", str():
                return DataType(content)
            case "int", str():
                return int(content[:40])
            case "float", str():
                return float.fromhex(content)
            case "enum", [str() as name, int() as number] if name in _ENUMS:
                return _ENUMS[name](number)
            case "table", dict():
                return Attrs({k: self.value(v) for k, v in content.items()})
            case "pointer", [str() as dtype, str() as scope]:
                return PointerType(PrimType(DataType(dtype)), scope)
            case "prim", str():
                return PrimType(DataType(content))
            case "env_func", str() if content in _ENV_FUNCS:
                return _ENV_FUNCS[content]
            case "array", [str() as dtype, list() as shape, str() as text]:
                return _array(DataType(dtype), shape, text)
            case _:
                raise MisuseError(f"not a saved value: {value!r:.60}")

    def build(self, row: object) -> Node:
        match row:
            case [str() as name, dict() as stored] if name in _KINDS:
                values: dict[str, Any] = {str(k): self.value(v) for k, v in stored.items()}
            case _:
                raise MisuseError(f"not a saved node: {row!r:.60}")
        kind: Any = _KINDS[name]
        if kind is tir_buffer.Range:
            return tir_buffer.Range.from_min_extent(values["min"], values["extent"])
        if kind is IRModule:
            infos = {k: tuple(v) for k, v in values["global_infos"].items()}
            return IRModule(dict(values["functions"]), values["attrs"], infos)
        if kind is PrimFunc:
            values["buffer_map"] = dict(values["buffer_map"])
        return cast("Node", kind(**values))


def _array(dtype: DataType, shape: list[object], text: str) -> np.ndarray[Any, Any]:
    sizes = [s for s in shape if isinstance(s, int) and s >= 0]
    data = base64.b64decode(text, validate=True)
    kind = dtype.numpy()
    if len(sizes) != len(shape) or len(data) != int(np.prod(sizes, dtype=object)) * kind.itemsize:
        raise MisuseError(f"a saved array of {dtype} has another size than its shape {shape}")
    found = np.frombuffer(data, kind).reshape(sizes)
    found.flags.writeable = False
    return found


@user_facing
def load_json(text: str) -> Node:
    """The node that `save_json` made `text` from.

    Errors:
        MisuseError (also ValueError): the text is no such JSON, of another version, or breaks a
            law of the nodes it describes.
    """
    try:
        table = json.loads(text)
        if not isinstance(table, dict) or table.get("format") != FORMAT:
            raise MisuseError("this is not a saved relaxpy program")
        if table.get("version") != VERSION:
            raise MisuseError(
                f"the program was saved in version {table.get('version')!r}, this reads {VERSION}"
            )
        rows, root = table.get("nodes"), table.get("root")
        if not isinstance(rows, list) or len(rows) > _LIMIT or not isinstance(root, int):
            raise MisuseError("the table of nodes is missing or too large")
        reader = _Reader()
        for row in rows:
            reader.nodes.append(reader.build(row))
        if not 0 <= root < len(reader.nodes):
            raise MisuseError("the root is no node of the table")
        return reader.nodes[root]
    except RelaxpyError:
        raise
    except RecursionError:
        raise MisuseError("the saved program is nested too deeply") from None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, binascii.Error) as error:
        raise MisuseError(f"the saved program cannot be read: {error}") from None
