"""JSON of the IR: a versioned, deterministic format that keeps sharing.

Reading does not execute anything, and checks everything.

`{"format", "version", "kinds": [[name, field, ...], ...], "root": row, "nodes": [row, ...]}`: a row
is the index of its kind and a value for each of the kind's fields. A value is null, a Boolean, a
string, a list, the index of an earlier row, or an object with one member, whose key is its type.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields as dataclass_fields, is_dataclass
from enum import IntEnum
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy import plugin
from relaxpy.errors import MisuseError, RelaxpyError, Span, check_type, unexpected
from relaxpy.ir import global_info
from relaxpy.ir.core import device
from relaxpy.ir.core.budget import MAX_STEPS, Budget, written_out
from relaxpy.ir.core.dtype import Array as Array, DataType
from relaxpy.ir.core.float_text import exact_hex, from_hex
from relaxpy.ir.core.memo import Elements
from relaxpy.ir.core.node import Attrs, Copied, Node, collect_nodes
from relaxpy.ir.core.tensor import Tensor
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import distributed, static_type as ty
from relaxpy.ir.tir import (
    buffer as tir_buffer,
    expr as tir,
    iteration,
    reduce as tir_reduce,
    stmt as tir_stmt,
)
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused

Store: TypeAlias = Callable[[Array], int]
StoreLiteral: TypeAlias = Callable[[Elements], int]
Locate: TypeAlias = Callable[[Span], "int | None"]
FORMAT = "relaxpy-ir"
VERSION = 1
_MAX_WRITTEN_OUT = 4_000_000
_DIGITS = 40
_MAX_PRIM_EXPR = 100_000
#: Nodes that later traversals visit once per use, so that shared ones count at each use; and nodes
#: that contain them but do not count themselves, such as calls.
_COUNTED = (tir.PrimExpr, tir_stmt.Stmt, ty.Type, rx.If, rx.SeqExpr, rx.BaseFunc)
_CONTAINERS = (rx.Call, rx.Tuple, rx.TupleGetItem, rx.VarBinding, rx.MatchCast, rx.BindingBlock)
_ENUMS: dict[str, type[IntEnum]] = {"ForKind": tir_stmt.ForKind, "IterVarKind": tir.IterVarKind}
_ABSTRACT = (
    Node,
    Copied,
    *(rx.Expr, rx.StructInfo, rx.BaseFunc, ty.Type, tir.PrimExpr, tir_stmt.Stmt),
    *(
        global_info.GlobalInfo,
        tir.ConstExpr,
        tir.BinaryOpExpr,
        tir.CmpExpr,
        tir.LogicalExpr,
        tir.Junction,
    ),
)
#: Positions, and the types of expressions of Relay, which inference finds.
_NOT_SAVED = ("span", "checked_type_")


def _concrete(module: ModuleType, prefix: str) -> dict[str, type[Node]]:
    """The concrete kinds of node in a module that are defined in its package."""
    return {
        f"{prefix}.{name}": kind
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and issubclass(kind, Node)
        and kind.__module__.rpartition(".")[0] == module.__package__
        and kind not in _ABSTRACT
    }


KINDS: dict[str, type[Node]] = {
    **_concrete(rx, "relax"),
    **_concrete(tir, "tir"),
    **_concrete(tir_buffer, "tir"),
    **_concrete(iteration, "tir"),
    **_concrete(tir_stmt, "tir"),
    **_concrete(tir_reduce, "tir"),
    **_concrete(ty, "relax"),
    **_concrete(distributed, "relax"),
    **_concrete(global_info, "ir"),
    **_concrete(device, "ir"),
    "tir.PrimFunc": PrimFunc,
    "tir.IndexMap": IndexMap,
    "ir.DummyGlobalInfo": global_info.DummyGlobalInfo,
    "ir.Op": Op,
    "ir.VDevice": global_info.VDevice,
    "ir.IRModule": IRModule,
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """The serialisation of one kind of node: saving and rebuilding; positions are not saved."""

    name: str
    fields: tuple[str, ...]
    values: Callable[[Any], tuple[object, ...]]
    build: Callable[..., Any]
    counted: bool = False
    max_count: int = 0

    def written_out(self, values: list[object], counts: list[int]) -> int:
        """Count the counted nodes in a row, by those of the rows before it."""
        counted, limit = self.counted, self.max_count
        return written_out(self.name, values, counts, counted=counted, limit=limit)


def _kind(name: str, kind: type[Node]) -> _Kind:
    result = _uncounted_kind(name, kind)
    counted = issubclass(kind, _COUNTED) and not issubclass(kind, tir.Var)
    if not counted and not issubclass(kind, _CONTAINERS):
        return result
    max_count = _MAX_PRIM_EXPR if issubclass(kind, tir.PrimExpr) else _MAX_WRITTEN_OUT
    return replace(result, counted=counted, max_count=max_count)


def _uncounted_kind(name: str, kind: type[Node]) -> _Kind:
    special = _SPECIAL.get(kind)
    if special is not None:
        return _Kind(name, *special)
    if issubclass(kind, tir.Var):
        return _Kind(name, ("name", "dtype"), lambda v: (v.name, v.type_annotation), kind)
    fields: tuple[str, ...]
    if is_dataclass(kind):
        fields = tuple(
            f.name for f in dataclass_fields(kind) if f.init and f.name not in _NOT_SAVED
        )
    else:
        fields = kind.__match_args__  # type: ignore[attr-defined]
    return _Kind(name, fields, _getter(fields), _keyed(kind, fields))


def _getter(fields: tuple[str, ...]) -> Callable[[Any], tuple[object, ...]]:
    if len(fields) < 2:  # attrgetter returns tuples only for two or more
        return lambda node: tuple(getattr(node, name) for name in fields)
    return attrgetter(*fields)


def _keyed(kind: type[Node], fields: tuple[str, ...]) -> Callable[..., Any]:
    return lambda *values: kind(**dict(zip(fields, values, strict=True)))


def _module(functions: Any, attrs: Any, global_infos: Any) -> IRModule:
    return IRModule(dict(functions), attrs, {k: tuple(v) for k, v in global_infos.items()})


def _prim_func(params: Any, body: Any, ret_type: Any, buffer_map: Any, attrs: Any) -> PrimFunc:
    return PrimFunc(params, body, ret_type, dict(buffer_map), attrs)


def _derivation(sinfo: rx.FuncStructInfo) -> object:
    """The name of a packed function's `derive_func`; True if the result is always `ret`."""
    func = sinfo.derive_func
    if func is None or func in rx.DERIVATIONS.values():
        return func and func.name
    if func == rx.FuncStructInfo.opaque_func(ret=sinfo.ret).derive_func:
        return True
    raise MisuseError(
        f"the derive_func {func.name!r} is known only to this process and cannot be saved"
    )


def _func_sinfo(params: Any, ret: Any, purity: Any, derivation: Any) -> rx.FuncStructInfo:
    if derivation is True:
        return rx.FuncStructInfo.opaque_func(ret=ret, purity=purity)
    func = None if derivation is None else rx.DERIVATIONS[derivation]
    return rx.FuncStructInfo(params, ret, purity, derive_func=func)


_Special = tuple[tuple[str, ...], Callable[[Any], tuple[object, ...]], Callable[..., Any]]
_SPECIAL: dict[type[Node], _Special] = {
    IRModule: (
        ("functions", "attrs", "global_infos"),
        lambda m: (tuple(m.functions.items()), m.attrs, Attrs(m.global_infos)),
        _module,
    ),
    PrimFunc: (
        ("params", "body", "ret_type", "buffer_map", "attrs"),
        lambda f: (f.params, f.body, f.ret_type, tuple(f.buffer_map.items()), f.attrs),
        _prim_func,
    ),
    rx.FuncStructInfo: (
        ("params", "ret", "purity", "derive_func"),
        lambda s: (s.params, s.ret, s.purity, _derivation(s)),
        _func_sinfo,
    ),
    iteration.Range: (
        ("min", "extent"),
        attrgetter("min", "extent"),
        iteration.Range.from_min_extent,
    ),
    tir_reduce.Reduce: (
        ("combiner", "source", "axis", "condition", "value_index", "init"),
        attrgetter("combiner", "source", "axis", "condition", "value_index", "init"),
        tir_reduce.Reduce,
    ),
    Op: (("name",), lambda op: (op.name,), Op),
    rx.Constant: (("data", "struct_info"), attrgetter("elements", "struct_info"), rx.Constant),
}
_BY_NAME = {name: _kind(name, kind) for name, kind in KINDS.items()}
_BY_TYPE = {kind: _BY_NAME[name] for name, kind in KINDS.items()}


def add_kinds(
    kinds: Mapping[str, type[Node]],
    special: Mapping[type[Node], _Special],
    enums: Iterable[type[IntEnum]],
    counted: type[Node],
) -> None:
    """Add kinds of node, by the names under which they are saved, and enumerations in their fields.

    The kinds in `special` are saved in a way of their own. Nodes derived from `counted` count at
    each use.
    """
    _ENUMS.update({enum.__name__: enum for enum in enums})
    _SPECIAL.update(special)
    KINDS.update(kinds)
    for name, kind in kinds.items():
        result = _uncounted_kind(name, kind)
        if issubclass(kind, counted):
            result = replace(result, counted=True, max_count=_MAX_WRITTEN_OUT)
        _BY_NAME[name] = _BY_TYPE[kind] = result


def _kind_of(node: Node) -> _Kind:
    """The way to save a node. The kinds of plug-ins are added when one is met."""
    kind = _BY_TYPE.get(type(node))
    if kind is None:
        plugin.load("nodes")
        kind = _BY_TYPE.get(type(node))
    if kind is None:
        raise MisuseError(f"a {type(node).__name__} cannot be saved")
    return kind


_AS_WRITTEN: Final = frozenset((bool, str, type(None)))


class _Writer:
    """Rows of nodes.

    When nodes are pickled, the variables inside of them are `external`: pickle saves them itself,
    and row [-1, k] refers to the k-th. Saved text has no such rows. Arrays are numbers that `store`
    returns, or part of the text without it. The `located` nodes have spans, by the numbers that
    `locate` returns.
    """

    def __init__(
        self,
        *,
        external_variables: bool = False,
        store: Store | None = None,
        store_literal: StoreLiteral | None = None,
        locate: Locate | None = None,
    ) -> None:
        self.external: list[Node] | None = [] if external_variables else None
        self.store, self.store_literal, self.locate = store, store_literal, locate
        self.located: list[tuple[int, int]] = []
        self.index: dict[int, int] = {}
        self.kinds: dict[str, int] = {}
        self.rows: list[list[object]] = []
        self.counts: list[int] = []

    def add(self, root: Node) -> int:
        """Add `root` and all nodes in it, children first; return the index of its row."""
        index, rows, value = self.index, self.rows, self.value
        stack: list[tuple[Node, _Kind | None, tuple[object, ...]]] = [(root, None, ())]
        while stack:
            node, kind, values = stack.pop()
            key = id(node)
            if key in index:
                continue
            if kind is None:
                if self.external is not None and node._variable and node is not root:
                    index[key] = len(rows)
                    rows.append([-1, len(self.external)])
                    self.counts.append(0)
                    self.external.append(node)
                    continue
                kind = _kind_of(node)
                values = kind.values(node)
                operands: list[Node] = []
                collect_nodes(values, operands)
                missing = [(c, None, ()) for c in operands if id(c) not in index]
                if missing:
                    stack.append((node, kind, values))
                    stack += reversed(missing)
                    continue
            row = [v if type(v) in _AS_WRITTEN else value(v) for v in values]
            self.counts.append(kind.written_out(row, self.counts) if kind.max_count else 0)
            index[key] = len(rows)
            rows.append([self.kinds.setdefault(kind.name, len(self.kinds)), *row])
            if self.locate is not None and (span := getattr(node, "span", None)) is not None:
                self.note(index[key], self.locate(span))
        return index[id(root)]

    def note(self, row: int, position: int | None) -> None:
        if position is not None:
            self.located.append((row, position))

    def value(self, value: object) -> object:
        if isinstance(value, Node):
            return self.index[id(value)]
        if type(value) is tuple:
            return [v if type(v) in _AS_WRITTEN else self.value(v) for v in value]
        match value:
            case DataType():
                return {"dtype": str(value)}
            case None | bool() | str():
                return value
            case tuple():
                return [self.value(v) for v in value]
            case IntEnum():
                return {"enum": [type(value).__name__, int(value)]}
            case int():
                return {"int": value if abs(value) < 1 << 53 else str(value)}
            case float():
                return {"float": exact_hex(value)}
            case dict() if not all(isinstance(key, str) for key in value):
                return {"map": [[self.value(k), self.value(v)] for k, v in value.items()]}
            case Attrs() | dict():
                tag = "dict" if isinstance(value, dict) else "table"
                return {tag: [[k, self.value(v)] for k, v in value.items()]}
            case rx.EnvFunc(name=name):
                return {"function": name}
            case PointerType(element_type=element, storage_scope=scope):
                return {"pointer": [str(element.dtype), scope]}
            case PrimType(dtype=dtype):
                return {"prim": str(dtype)}
            case Elements() if self.store_literal is not None:
                return {"array": self.store_literal(value)}
            case Elements():
                return self.value(value())
            case np.ndarray() if self.store is not None:
                return {"array": self.store(value)}
            case np.ndarray() | np.generic():
                return {
                    "scalar" if isinstance(value, np.generic) else "array": _array_fields(value)
                }
            case _:
                raise MisuseError(
                    f"a value of type {type(value).__name__} cannot be saved: {value!r:.60}"
                )


def _array_fields(value: Array | np.generic) -> list[object]:
    """The datatype, the shape, and the elements in little-endian order."""
    data = np.ascontiguousarray(value)
    text = base64.b64encode(data.tobytes()).decode("ascii")
    return [str(DataType(data.dtype)), list(value.shape), text]


@user_facing
@gc_paused
def save_json(node: object) -> str:
    """The JSON text of a node, module, array or string, or of a list or dict of values.

    The text depends only on the program. It contains names and sharing, but no source positions.

    Errors:
        MisuseError: the value of an attribute cannot be saved, or the key of a dict is neither a
            string nor a node.
    """
    return _json_text(_Writer(), _frozen(node))


@gc_paused
def save_table(
    node: Node | tuple[object, ...],
    store: Store,
    locate: Locate | None = None,
    *,
    store_literal: StoreLiteral | None = None,
) -> dict[str, object]:
    """The text that `save_json` writes, with the number that `store` returns for each array.

    Those of large literals are what `store_literal` returns, if it is there. With `locate`, which
    numbers positions or omits them, it also has those of nodes.

    Errors:
        MisuseError: the value of an attribute cannot be saved.
    """
    writer = _Writer(store=store, store_literal=store_literal, locate=locate)
    table = _table(writer, node)
    return {**table, "spans": writer.located} if writer.located else table


def _frozen(value: object) -> object:
    """Convert lists to tuples, and mappings to dicts, in which literals of TIR stay nodes."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    if not isinstance(value, Mapping):
        return value
    for key in value:
        check_type(key, (str, Node), "the keys of a dict to save are strings or nodes")
    return {key: _frozen(item) for key, item in value.items()}


def _json_text(writer: _Writer, node: object) -> str:
    text = json.dumps(_table(writer, node), separators=(",", ":"), allow_nan=False)
    check_size(text)
    return text


def check_size(text: str) -> None:
    """Check that a text has few enough lists and tables, each of which is a step."""
    Budget(error=MisuseError).spend_steps(text.count("[") + text.count("{"))


def _table(writer: _Writer, node: object) -> dict[str, object]:
    kinds_of_root = (Node, tuple, Attrs, dict, np.ndarray, str, rx.EnvFunc)
    check_type(node, kinds_of_root, "expected a node or a module")
    roots: list[Node] = []
    collect_nodes(node, roots)
    for child in roots:
        writer.add(child)
    root = writer.value(node)
    kinds = [[name, *_BY_NAME[name].fields] for name in writer.kinds]
    table = {"format": FORMAT, "version": VERSION, "kinds": kinds, "root": root}
    return {**table, "nodes": writer.rows}


@gc_paused
def reduced(node: Node) -> tuple[Callable[..., Node], tuple[str, tuple[Node, ...]]]:
    """The `__reduce__` of a node: a function, and its arguments, the text and variables.

    Errors:
        MisuseError: the value of an attribute cannot be saved.
    """
    writer = _Writer(external_variables=True)
    text = _json_text(writer, node)
    return _restored, (text, tuple(writer.external or ()))


@gc_paused
def _restored(text: str, variables: tuple[Node, ...]) -> Node:
    node: Node = _read(text, variables)
    return node


class _Reader:
    def __init__(
        self,
        kinds: list[object],
        variables: tuple[Node, ...],
        arrays: Sequence[Array],
        spans: Mapping[int, Span | None],
    ) -> None:
        self.variables, self.arrays, self.spans = variables, arrays, spans
        self.nodes: list[Node] = []
        self.counts: list[int] = []
        self.kinds = list(map(_known_kind, kinds))

    def value(self, value: object) -> object:
        if type(value) is int and 0 <= value < len(self.nodes):
            return self.nodes[value]
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, list):
            return tuple(map(self.value, value))
        if not isinstance(value, dict) or len(value) != 1:
            raise MisuseError(f"not a saved value: {value!r:.60}")
        ((tag, content),) = value.items()
        match tag, content:
            case "dtype", str():
                return DataType(content)
            case "int", int() if not isinstance(content, bool):
                return content
            case "int", str() if len(content) <= _DIGITS:
                return int(content)
            case "float", str():
                return from_hex(content)
            case "enum", [str() as name, int() as number] if name in _ENUMS:
                return _ENUMS[name](number)
            case "table" | "dict", list():
                table = unique_members([(key, self.value(v)) for key, v in content])
                return table if tag == "dict" else Attrs(table)
            case "map", list():
                return {self.value(key): self.value(item) for key, item in content}
            case "function", str():
                return rx.EnvFunc.get(content)
            case "pointer", [str() as dtype, str() as scope]:
                return PointerType(PrimType(DataType(dtype)), scope)
            case "prim", str():
                return PrimType(DataType(content))
            case "array", [str() as dtype, list() as shape, str() as text]:
                return _array(DataType(dtype), shape, text)
            case "array", int() if type(content) is int and 0 <= content < len(self.arrays):
                return self.arrays[content]
            case "scalar", [str() as dtype, [], str() as text]:
                return _array(DataType(dtype), [], text)[()]
            case _:
                raise MisuseError(f"not a saved value: {value!r:.60}")

    def add(self, row: object) -> None:
        """Build the node of the next row."""
        match row:
            case [-1, int() as index] if 0 <= index < len(self.variables):
                self.nodes.append(self.variables[index])
                self.counts.append(0)
                return
            case [int() as number, *values] if 0 <= number < len(self.kinds):
                kind = self.kinds[number]
            case _:
                raise MisuseError(f"not a saved node: {row!r:.60}")
        if len(values) != len(kind.fields):
            raise MisuseError(f"a {kind.name} has {len(kind.fields)} fields, found {len(values)}")
        self.counts.append(kind.written_out(values, self.counts))
        node = kind.build(*map(self.value, values))
        span = self.spans.get(len(self.nodes))
        self.nodes.append(node if span is None else replace(node, span=span))


def _known_kind(entry: object) -> _Kind:
    match entry:
        case [str() as name, *_] if name not in _BY_NAME:
            plugin.load("nodes")
        case _:
            pass
    match entry:
        case [str() as name, *fields] if name in _BY_NAME:
            kind = _BY_NAME[name]
            if list(kind.fields) == fields:
                return kind
    raise MisuseError(f"this version has no such kind of node: {entry!r:.200}")


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict of pairs with different keys."""
    table = dict(pairs)
    if len(table) != len(pairs) or not all(isinstance(key, str) for key in table):
        raise MisuseError("a table has a duplicate key, or a key that is not a string")
    return table


def _array(dtype: DataType, shape: list[object], text: str) -> Array:
    sizes = [s for s in shape if isinstance(s, int) and not isinstance(s, bool) and s >= 0]
    data = base64.b64decode(text, validate=True)
    kind = dtype.numpy()
    if len(sizes) != len(shape) or len(data) != math.prod(sizes) * kind.itemsize:
        raise MisuseError(f"a saved array of {dtype} has another size than its shape {shape!r:.60}")
    array = np.frombuffer(data, kind).reshape(sizes)
    array.flags.writeable = False
    return array


@user_facing
@gc_paused
def load_json(json_str: str) -> Any:
    """Read what `save_json` has written; lists become tuples, and arrays tensors.

    Errors:
        MisuseError (also ValueError): the text is malformed or of another version, or a node
            rejects its fields.
    """
    check_type(json_str, str, "expected the text of a saved program")
    return _read(json_str, ())


@gc_paused
def load_table(
    table: object, arrays: Sequence[Array], located: Callable[[int], Span | None] | None = None
) -> Any:
    """Read what `save_table` returned, with the arrays by number, and the `located` spans.

    Errors:
        MisuseError (also ValueError): as for `load_json`.
    """
    return _read(table, (), arrays, located)


def _read(
    saved: object,
    variables: tuple[Node, ...],
    arrays: Sequence[Array] = (),
    located: Callable[[int], Span | None] | None = None,
) -> Any:
    """The node in a text, or in a table."""
    if isinstance(saved, str):
        check_size(saved)
    try:
        hook = unique_members
        table = json.loads(saved, object_pairs_hook=hook) if isinstance(saved, str) else saved
        if not isinstance(table, dict) or table.get("format") != FORMAT:
            raise MisuseError("this is not a saved relaxpy program")
        if table.get("version") != VERSION:
            raise unexpected(table.get("version"), f"expected a program of version {VERSION}")
        kinds, rows, root = table.get("kinds"), table.get("nodes"), table.get("root")
        if not isinstance(rows, list) or len(rows) > MAX_STEPS or not isinstance(kinds, list):
            raise MisuseError("the table of nodes is missing or too large")
        spans = {} if located is None else {n: located(k) for n, k in table.get("spans", ())}
        reader = _Reader(kinds, variables, arrays, spans)
        for row in rows:
            reader.add(row)
        match root:
            case int() if type(root) is int and 0 <= root < len(reader.nodes):
                return reader.nodes[root]
            case {"array": _}:
                return np.asarray(reader.value(root)).view(Tensor)
            case str() | list() | {"dict": _} | {"table": _} | {"map": _} | {"function": _}:
                return reader.value(root)
            case _:
                raise MisuseError("the root is not a node of the table")
    except RelaxpyError:
        raise
    except RecursionError:
        raise MisuseError("the saved program is nested too deeply") from None
    except (
        *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
        *(AssertionError, binascii.Error),
    ) as error:
        raise MisuseError(f"the saved program cannot be read: {error}") from None
