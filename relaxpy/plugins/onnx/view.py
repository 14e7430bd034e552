"""A typed view of ONNX files: graphs, nodes and attributes as Python values, tensors as arrays.

A model is read without its weights, which are read one by one from where they stand in its file or
its bytes. Large ones are views of the bytes until a program is linked with them.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorProto,
    TypeProto,
    helper,
)

from relaxpy.errors import Diagnostic, warn
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.memo import LARGE
from relaxpy.ir.core.traverse import postorder
from relaxpy.plugins.importing.tensors import has_arrays
from relaxpy.plugins.importing.unsupported import (
    FrontendError,
    FrontendTypeError,
    MissingFileError,
    UnreadableFileError,
    UnsupportedError,
    pointer_hint,
)
from relaxpy.support.dataclass import dataclass, replace

_GRAPH = 7
_INITIALIZER = 5
_RAW_DATA = 9
_BYTES = 2
#: The bytes of a tensor from which on it is left in the file.
_LEAST = 1 << 12
_SIZES = {1: 8, 5: 4}
#: The key that says that external data are read, not mapped: the file of a model may be replaced,
#: and its bytes may be gone.
COPIED = "copied"


Data: TypeAlias = bytes | mmap.mmap
Source: TypeAlias = Path | bytes | None
"""Where external data is: in files of a folder, or in the bytes of the model itself."""


class _DamagedError(Exception):
    """A message does not end where it should, or has a field of no known kind."""


def model_bytes(path: Path) -> bytes:
    """The bytes of a model, in which large weights are external data in the file itself.

    A file that is damaged, or that a symbolic link leads to, is read whole.

    Errors:
        OSError: the file cannot be read.
    """
    if path.is_symlink() or path.stat().st_size <= _LEAST:
        return path.read_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _without_weights(data, path.name)


def _without_weights(data: Data, name: str) -> bytes:
    """The bytes of a model, in which large weights are references to their positions."""
    try:
        return _model(data, name)
    except _DamagedError:
        return bytes(data)


def _model(data: Data, name: str) -> bytes:
    result = bytearray()
    for number, start, begin, end in _fields(data, 0, len(data)):
        if number == _GRAPH and begin:
            graph = bytearray()
            for inner, first, inside, last in _fields(data, begin, end):
                if inner == _INITIALIZER and inside:
                    _append(graph, _INITIALIZER, _tensor(data, inside, last, name))
                else:
                    graph += data[first:last]
            _append(result, _GRAPH, graph)
        else:
            result += data[start:end]
    return bytes(result)


def _tensor(data: Data, begin: int, end: int, name: str) -> bytes:
    """The bytes of a tensor; large data is replaced by a reference to its position in the file."""
    fields = list(_fields(data, begin, end))
    raw = [item for item in fields if item[0] == _RAW_DATA and item[2]]
    if len(raw) != 1 or raw[0][3] - raw[0][2] < _LEAST:
        return bytes(data[begin:end])
    _, _, first, last = raw[0]
    result = b"".join(data[start:stop] for n, start, _, stop in fields if n != _RAW_DATA)
    place = {"location": name, "offset": str(first), "length": str(last - first), COPIED: "1"}
    entries = [StringStringEntryProto(key=key, value=value) for key, value in place.items()]
    moved = TensorProto(external_data=entries, data_location=TensorProto.EXTERNAL)
    added: bytes = moved.SerializeToString()
    return result + added


def _fields(data: Data, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field: its number, where it starts, where its bytes begin (else 0), where it ends."""
    at = begin
    while at < end:
        start = at
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        inside = 0
        if kind == 0:
            _, at = _varint(data, at, end)
        elif kind == _BYTES:
            size, at = _varint(data, at, end)
            inside, at = at, at + size
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            raise _DamagedError
        if at > end:
            raise _DamagedError
        yield number, start, inside, at


def _varint(data: Data, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _DamagedError
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _DamagedError


def _append(result: bytearray, number: int, content: bytes | bytearray) -> None:
    """Append a field of bytes."""
    for value in (number << 3 | _BYTES, len(content)):
        while value > 127:
            result.append(value & 127 | 128)
            value >>= 7
        result.append(value)
    result += content


Attributes: TypeAlias = Mapping[str, Any]
_DEFAULT_DOMAINS = ("", "ai.onnx")
_OLDEST_IR = 3
#: The newest versions whose rules the importer follows: of the format, and of each domain.
NEWEST_IR: Final = 14
NEWEST_OPSETS: Final = {"": 28, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1}
#: No version of a domain is as large: schemas of ONNX have theirs in 32 bits.
_OPSET_LIMIT = 1 << 31
#: How many graphs may stand within each other.
_MAX_DEPTH = 64
#: The elements of the largest tensor that a file may state by few of them.
_MOST_ELEMENTS = 1 << 27
#: Types of ONNX that have another name in Relax.
_DTYPES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT16": "float16",
    "BFLOAT16": "bfloat16",
    **{
        f"{sign}INT{bits}": f"{sign.lower()}int{bits}"
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
    "BOOL": "bool",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "FLOAT8E8M0": "float8_e8m0fnu",
    "FLOAT4E2M1": "float4_e2m1fn",
    "FLOAT6E2M3": "float6_e2m3fn",
    "FLOAT6E3M2": "float6_e3m2fn",
}


#: Sub-byte types, whose elements are stored one per byte: the number of bits, and the new type.
NARROW: Mapping[int, tuple[int, str]] = {
    TensorProto.INT4: (4, "int8"),
    TensorProto.UINT4: (4, "uint8"),
    TensorProto.INT2: (2, "int8"),
    TensorProto.UINT2: (2, "uint8"),
}
#: The codes of these types, by the datatypes that arrays of them have in this view.
NARROW_CODES: Mapping[str, int] = {
    np.dtype(helper.tensor_dtype_to_np_dtype(code)).name: code for code in NARROW
}


def dtype_of(code: int) -> str:
    """The name in Relax of an element type of ONNX.

    Errors:
        UnsupportedError: Relax has no such type (strings, complex numbers).
        FrontendError: there is no such code.
    """
    try:
        name = TensorProto.DataType.Name(code)
    except ValueError:
        raise FrontendError(f"ONNX has no element type {code}") from None
    if code in NARROW:
        return NARROW[code][1]
    if name not in _DTYPES:
        raise UnsupportedError(f"Relax has no tensors of {name}")
    return _DTYPES[name]


def code_of(dtype: str) -> int:
    """The element type of ONNX for a datatype of Relax."""
    names = {name: code for code, name in _DTYPES.items()}
    return int(TensorProto.DataType.Value(names[dtype]))


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor: its datatype, and sizes if the rank is known (None: not known)."""

    dtype: str
    sizes: tuple[int | str | None, ...] | None
    code: int


@dataclass(frozen=True)
class SequenceType:
    """The type of a sequence; `item` is the type of each of its values."""

    item: ValueType


@dataclass(frozen=True)
class OptionalType:
    """The type of a value that may be absent."""

    item: ValueType


@dataclass(frozen=True)
class MapType:
    """The type of a dictionary, whose keys and values are numbers or strings."""

    key: str
    value: str


ValueType: TypeAlias = TensorType | SequenceType | OptionalType | MapType | None


@dataclass(frozen=True, eq=False)
class Node:
    """A node: an operator, the names of what it reads and defines ("" for what is left out)."""

    name: str
    index: int
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Attributes
    proto: NodeProto

    @property
    def where(self) -> str:
        """The node's name, or its number in the graph."""
        return f"node {self.name!r}" if self.name else f"node {self.index}"

    def names_read(self) -> set[str]:
        """The names that the node reads, those that its bodies capture included."""
        names = set(self.inputs)
        for body in self.attributes.values():
            if isinstance(body, Graph):
                names |= body.captured_names()
        return names


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph: inputs with their types, initialisers, nodes, names of the outputs."""

    name: str
    inputs: Mapping[str, ValueType]
    initializers: Mapping[str, Initializer]
    nodes: Sequence[Node]
    outputs: Sequence[str]
    #: The ranks that it states of values: its inputs, its outputs, and what its nodes define.
    ranks: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", _in_order(self.nodes))

    def captured_names(self) -> set[str]:
        """The names that are read in the graph and defined outside."""
        read = {*self.outputs}.union(*(node.names_read() for node in self.nodes))
        defined = {*self.inputs, *self.initializers}
        return read.difference(defined, *(node.outputs for node in self.nodes))

    def require_distinct_names(self) -> None:
        """Check that no two values have one name.

        Errors:
            FrontendError: a node defines a name for the second time.
        """
        known = {*self.inputs, *self.initializers}
        for node in self.nodes:
            for name in filter(None, node.outputs):
                if name in known:
                    raise FrontendError(f"{node.where} defines {name!r} for the second time")
                known.add(name)

    def unused_nodes(self) -> set[Node]:
        """The nodes on which no output depends."""
        needed, unused = set(self.outputs), set()
        for node in reversed(self.nodes):
            if needed.isdisjoint(filter(None, node.outputs)):
                unused.add(node)
            else:
                needed.update(node.names_read())
        return unused


def _in_order(nodes: Sequence[Node]) -> Sequence[Node]:
    """The nodes, each after those that define what it reads, unless these depend on it.

    ONNX says that they stand so, but tools append nodes, and ONNX Runtime runs such files.
    """
    writers = {name: node for node in nodes for name in node.outputs if name}

    def needed(node: Node) -> list[Node]:
        return [writers[name] for name in sorted(node.names_read()) if name in writers]

    return list(postorder(nodes, needed))


@dataclass(frozen=True, eq=False)
class LocalFunction:
    """A function of the model: `nodes` read attributes of the call where they refer to them."""

    proto: onnx.FunctionProto
    opsets: Mapping[str, int]

    def instance(self, attributes: Attributes) -> Graph:
        """The body for a call with these attributes."""
        proto = self.proto
        known = {a.name: attribute_value(a, Path(), 0) for a in proto.attribute_proto}
        given = {**known, **attributes}
        return Graph(
            proto.name,
            dict.fromkeys(proto.input),
            {},
            [node_view(k, node, Path(), 0, given) for k, node in enumerate(proto.node)],
            tuple(proto.output),
        )


@dataclass(frozen=True, eq=False)
class Model:
    """A model: its graph, the version of each domain, the functions that it defines."""

    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], LocalFunction]
    proto: ModelProto


class Initializer:
    """A tensor of a file, read on access; external data is mapped."""

    def __init__(self, proto: TensorProto | SparseTensorProto, source: Source) -> None:
        self._proto = proto
        self._source = source

    @cached_property
    def array(self) -> Array:
        """The elements."""
        return read_array(self._proto, self._source)


def read_array(proto: TensorProto | SparseTensorProto, source: Source) -> Array:
    """The elements of a tensor; those that a sparse one leaves out are 0.

    Errors:
        FrontendError: the tensor is damaged, or its data is not in `source`.
        UnsupportedError: its elements are none of Relax.
    """
    if isinstance(proto, TensorProto):
        return tensor_array(proto, source)
    values = tensor_array(proto.values, source)
    places = tensor_array(proto.indices, source)
    sizes = tuple(proto.dims)
    name = f"the sparse tensor {proto.values.name!r}"
    if min(sizes, default=0) < 0 or math.prod(sizes) > _MOST_ELEMENTS:
        raise FrontendError(
            f"{name} has the shape {sizes}, expected one of at most {_MOST_ELEMENTS} elements"
        )
    if places.shape not in (values.shape, (values.size, len(sizes))) or values.ndim != 1:
        raise FrontendError(f"{name} has {values.size} elements and {places.shape} indices")
    try:
        flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), sizes)
        dense = np.zeros(sizes, values.dtype)
        if flat.size and not 0 <= flat.min() <= flat.max() < dense.size:
            raise ValueError("an index is outside the shape")
    except (ValueError, TypeError) as error:
        raise FrontendError(f"{name} is damaged: {error}") from None
    dense.reshape(-1)[flat] = values
    return dense


def tensor_array(proto: TensorProto, source: Source) -> Array:
    """The elements of a tensor.

    Errors:
        FrontendError: the tensor is damaged, or its data is not in `source`.
        UnsupportedError: its elements are none of Relax.
    """
    name = f"tensor {proto.name!r}" if proto.name else "a tensor"
    count = math.prod(proto.dims)
    if not has_arrays(proto.dims, np.dtype(np.complex128)):
        raise FrontendError(f"{name} has the shape {tuple(proto.dims)}")
    if proto.data_type == TensorProto.STRING:
        if len(proto.string_data) != count:
            raise FrontendError(f"{name} has {len(proto.string_data)} strings, expected {count}")
        texts = [text.decode("utf-8", "replace") for text in proto.string_data]
        return np.array(texts, object).reshape(tuple(proto.dims))
    dtype = dtype_of(proto.data_type)
    if proto.data_location == TensorProto.EXTERNAL:
        return _external_array(proto, name, dtype, count, source)
    if proto.HasField("raw_data"):
        return _raw_array(proto, name, dtype, count, proto.raw_data)
    if (
        count
        > sum(len(getattr(proto, f.name)) for f, _ in proto.ListFields() if "_data" in f.name) * 8
    ):
        raise FrontendError(f"{name} of shape {tuple(proto.dims)} has fewer elements than that")
    return _unpacked(proto, name)


def _raw_array(proto: TensorProto, name: str, dtype: str, count: int, raw: bytes) -> Array:
    """The elements of a tensor with these bytes, which a message copies for each read."""
    size = _byte_count(proto.data_type, dtype, count)
    if len(raw) != size:
        raise FrontendError(f"{name} of {count} x {dtype} has {len(raw)} bytes, expected {size}")
    if _is_plain(proto.data_type, dtype):
        return _read_only(np.frombuffer(raw, _numpy(dtype)), proto)
    inner = TensorProto(dims=proto.dims, data_type=proto.data_type, raw_data=raw)
    return _unpacked(inner, name)


def _is_plain(code: int, dtype: str) -> bool:
    """True if the elements have the same layout in files as in arrays."""
    return code not in NARROW and "float4" not in dtype and "float6" not in dtype


def _byte_count(code: int, dtype: str, count: int) -> int:
    bits = 4 if "float4" in dtype else NARROW[code][0] if code in NARROW else None
    return count * _numpy(dtype).itemsize if bits is None else -(-count * bits // 8)


def _numpy(dtype: str) -> np.dtype[Any]:
    return DataType(dtype).numpy()


def _read_only(flat: Array, proto: TensorProto) -> Array:
    result = flat.reshape(tuple(proto.dims))
    result.flags.writeable = False
    return result


def _external_array(proto: TensorProto, name: str, dtype: str, count: int, source: Source) -> Array:
    """The elements of a tensor in a file of its own, mapped, or in the model itself, read."""
    places = {entry.key: entry.value for entry in proto.external_data}
    size = _byte_count(proto.data_type, dtype, count)
    if isinstance(source, bytes) and COPIED in places:
        offset = _offset(places, name, size, "the model", len(source))
        if size >= LARGE and _is_plain(proto.data_type, dtype):
            return _read_only(np.frombuffer(source, _numpy(dtype), count, offset), proto)
        return _raw_array(proto, name, dtype, count, source[offset : offset + size])
    location = places.get("location", "")
    if not isinstance(source, Path):
        raise FrontendError(
            f"the data of {name} is in the file {location!r}",
            hint="pass the path of the model, or load it by onnx.load(path)",
        )
    path = source / location
    inside = path.resolve().is_relative_to(source.resolve()) and path.is_file()
    if not inside or path.is_symlink():
        raise FrontendError(
            f"the data of {name} is not a file in the model's folder: {str(path)!r}"
        )
    offset = _offset(places, name, size, repr(str(path)), path.stat().st_size)
    if count and _is_plain(proto.data_type, dtype):
        if COPIED in places:
            elements = np.fromfile(path, np.uint8, size, offset=offset)
        else:
            elements = np.memmap(path, np.uint8, "r", offset, (size,))
        if elements.size != size:
            raise FrontendError(f"{str(path)!r} has changed since it was read")
        elements.flags.writeable = False
        return _read_only(elements.view(_numpy(dtype)), proto)
    with path.open("rb") as file:
        file.seek(offset)
        return _raw_array(proto, name, dtype, count, file.read(size))


def _offset(places: Mapping[str, str], name: str, size: int, where: str, available: int) -> int:
    """Where the bytes of a tensor begin in a file, or in a model, that has `available` bytes."""
    try:
        offset, length = int(places.get("offset", 0)), int(places.get("length", size))
    except ValueError:
        raise FrontendError(f"{name} has no numbers for its place in {where}") from None
    if offset < 0 or length != size or offset + size > available:
        raise FrontendError(
            f"{name} needs {size} bytes from {offset} of {where}, which has {available}; "
            f"the model says {length}"
        )
    return offset


def _unpacked(proto: TensorProto, name: str) -> Array:
    """The elements of a tensor; those of less than a byte keep their type."""
    code = proto.data_type
    dtype = helper.tensor_dtype_to_np_dtype(code) if code in NARROW else _numpy(dtype_of(code))
    try:
        return np.asarray(onnx.numpy_helper.to_array(proto)).astype(dtype, copy=False)
    except (ValueError, TypeError) as error:
        raise FrontendError(f"{name} is damaged: {error}") from None


def read_model(model: ModelProto | str | bytes | os.PathLike[str], opset: int | None) -> Model:
    """The view of a model, of its bytes, or of the file with this path.

    Errors:
        FrontendError: it is not an ONNX model, or a damaged one.
        UnreadableFileError (also OSError): the file cannot be read; MissingFileError (also
            FileNotFoundError): there is none.
    """
    source: Source = None
    match model:
        case ModelProto():
            proto = model
        case bytes():
            source = model
            small = model if len(model) <= _LEAST else _without_weights(model, "")
            proto = _parsed(small, "the bytes")
        case str() | os.PathLike():
            path = Path(model)
            source = path.parent
            try:
                data = model_bytes(path)
            except FileNotFoundError as error:
                raise MissingFileError(f"{path}: {error.strerror}") from None
            except OSError as error:
                raise UnreadableFileError(f"{path}: {error.strerror}") from None
            proto = _parsed(data, str(path))
        case _:
            raise FrontendTypeError(
                f"from_onnx takes a ModelProto of onnx, a path, or bytes, found {model!r:.60}"
            )
    if proto.ir_version < _OLDEST_IR:
        raise FrontendError(
            f"the model has IR version {proto.ir_version}, expected {_OLDEST_IR} or later"
        )
    opsets = opset_versions(proto.opset_import)
    if opset is not None:
        opsets[""] = opset
    opsets.setdefault("", 1)
    _warn_of_newer(proto.ir_version, opsets)
    try:
        graph = graph_view(proto.graph, source, 0)
    except UnsupportedError as error:
        raise FrontendError(f"the graph cannot be imported: {error}") from None
    return Model(
        graph,
        opsets,
        {
            (domain_of(f.domain), f.name): LocalFunction(f, opset_versions(f.opset_import))
            for f in proto.functions
        },
        proto,
    )


def _warn_of_newer(ir_version: int, opsets: Mapping[str, int]) -> None:
    """Warn of versions that are newer than those that the importer knows."""
    pairs = [(f"opset {v} of {d or 'ai.onnx'}", v, NEWEST_OPSETS.get(d)) for d, v in opsets.items()]
    for what, version, newest in ((f"IR version {ir_version}", ir_version, NEWEST_IR), *pairs):
        if newest is not None and version > newest:
            message = (
                f"the model has {what}, the newest that relaxpy knows is {newest}: what changed "
                "since then is not followed"
            )
            warn(Diagnostic(message))


def _parsed(data: bytes, source: str) -> ModelProto:
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise FrontendError(
            f"{source}: not an ONNX model, or a damaged one: {error}", hint=pointer_hint(data)
        ) from None
    if not proto.HasField("graph"):
        reason = "it has no graph" if data else "it is empty"
        raise FrontendError(f"{source}: not an ONNX model: {reason}", hint=pointer_hint(data))
    return proto


def domain_of(domain: str) -> str:
    """The domain, "" for the default one."""
    return "" if domain in _DEFAULT_DOMAINS else domain


def opset_versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The version of each domain.

    Errors:
        FrontendError: one is not a version that a domain can have.
    """
    result = {domain_of(text_of(item.domain)): item.version for item in imports}
    for domain, version in result.items():
        if not 0 < version < _OPSET_LIMIT:
            raise FrontendError(
                f"the model imports version {version} of the domain {domain or 'ai.onnx'!r}, "
                f"expected a number from 1 to {_OPSET_LIMIT - 1}"
            )
    return result


def graph_view(graph: GraphProto, source: Source, depth: int) -> Graph:
    """The view of a graph."""
    if depth > _MAX_DEPTH:
        raise FrontendError(f"more than {_MAX_DEPTH} graphs stand within each other")
    initializers: dict[str, Initializer] = {}
    sparse = [(tensor.values.name, tensor) for tensor in graph.sparse_initializer]
    for given, tensor in (*((t.name, t) for t in graph.initializer), *sparse):
        name = text_of(given)
        if name in initializers:
            raise FrontendError(f"the graph has two initializers {name!r}")
        initializers[name] = Initializer(tensor, source)
    inputs: dict[str, ValueType] = {}
    for value in graph.input:
        name = text_of(value.name)
        if name in inputs:
            raise FrontendError(f"the graph has two inputs {name!r}")
        if name not in initializers:
            inputs[name] = type_view(value.type)
    nodes = [node_view(k, node, source, depth) for k, node in enumerate(graph.node)]
    outputs = [text_of(value.name) for value in graph.output]
    ranks = {
        text_of(value.name): len(value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }
    return Graph(text_of(graph.name), inputs, initializers, nodes, outputs, ranks)


def text_of(name: str | bytes) -> str:
    """A name of a file; one that is not text in UTF-8 comes as bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def type_view(proto: TypeProto) -> ValueType:
    """The view of a type; None where it is not stated."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            tensor = proto.tensor_type
            sizes = None
            if tensor.HasField("shape"):
                sizes = tuple(_size(dim) for dim in tensor.shape.dim)
            return (
                TensorType(_input_dtype(tensor.elem_type), sizes, tensor.elem_type)
                if tensor.elem_type
                else None
            )
        case "sequence_type":
            return SequenceType(type_view(proto.sequence_type.elem_type))
        case "optional_type":
            return OptionalType(type_view(proto.optional_type.elem_type))
        case "map_type":
            value = type_view(proto.map_type.value_type)
            if not isinstance(value, TensorType):
                raise FrontendError("a map has values that are not tensors")
            return MapType(_input_dtype(proto.map_type.key_type), value.dtype)
        case None:
            return None
        case other:
            raise FrontendError(f"Relax has no values of the type {other}")


def _input_dtype(code: int) -> str:
    """The datatype of a tensor, "string" for one of strings."""
    return "string" if code == TensorProto.STRING else dtype_of(code)


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        if dim.dim_value < 0:
            return None
        return dim.dim_value
    return text_of(dim.dim_param) or None


def node_view(
    index: int, node: NodeProto, source: Source, depth: int, given: Attributes | None = None
) -> Node:
    """The view of a node; `given` are the attributes of the call whose function has the node."""
    attributes = {}
    for attribute in node.attribute:
        if attribute.name in attributes:
            raise FrontendError(f"node {index} has two attributes {text_of(attribute.name)!r}")
        if attribute.ref_attr_name:
            if given is None or attribute.ref_attr_name not in given:
                continue
            attributes[attribute.name] = given[attribute.ref_attr_name]
        else:
            attributes[attribute.name] = attribute_value(attribute, source, depth, given)
    return Node(
        text_of(node.name),
        index,
        text_of(node.op_type),
        domain_of(text_of(node.domain)),
        tuple(map(text_of, node.input)),
        tuple(map(text_of, node.output)),
        attributes,
        node,
    )


def attribute_value(
    attribute: AttributeProto, source: Source, depth: int, given: Attributes | None = None
) -> Any:
    """The value of an attribute: a number, a text, an array, a graph, or a list of these."""
    kinds = AttributeProto
    match attribute.type:
        case kinds.TENSOR:
            return tensor_array(attribute.t, source)
        case kinds.TENSORS:
            return [tensor_array(tensor, source) for tensor in attribute.tensors]
        case kinds.SPARSE_TENSOR:
            return read_array(attribute.sparse_tensor, source)
        case kinds.GRAPH:
            return _graph_with(attribute.g, source, depth + 1, given)
        case kinds.STRING:
            return attribute.s.decode("utf-8", "replace")
        case kinds.STRINGS:
            return [text.decode("utf-8", "replace") for text in attribute.strings]
        case kinds.FLOAT | kinds.INT | kinds.FLOATS | kinds.INTS:
            value = helper.get_attribute_value(attribute)
            return list(value) if attribute.type in (kinds.FLOATS, kinds.INTS) else value
        case kinds.TYPE_PROTO:
            return type_view(attribute.tp)
        case _:
            raise FrontendError(f"the attribute {attribute.name!r} has a type that Relax lacks")


def _graph_with(graph: GraphProto, source: Source, depth: int, given: Attributes | None) -> Graph:
    view = graph_view(graph, source, depth)
    if given is None:
        return view
    nodes = [node_view(k, node, source, depth, given) for k, node in enumerate(graph.node)]
    return replace(view, nodes=nodes)
