"""Sequences: tuples where their length is known, else objects on which packed functions compute.

Strings are read by packed functions too (`importing/strings.py`).

Dictionaries as inputs are objects in Relax, which packed functions convert to tensors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from onnx import TensorProto

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import Expr, TensorStructInfo, TupleGetItem, TupleStructInfo
from relaxpy.plugins.importing.sequences import PREFIX
from relaxpy.plugins.importing.strings import pattern_of
from relaxpy.plugins.importing.tensors import (
    LIMIT,
    Contents,
    normal_axis,
    rank_of,
    shape_of,
    tensor_info,
    tensor_of,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import (
    CLASSICAL as DOMAIN,
    Context,
    Value,
    call as string_call,
    converter,
    shaped_as,
    storage,
)
from relaxpy.plugins.onnx.ops.movement import with_parts
from relaxpy.plugins.onnx.view import MapType, OptionalType, SequenceType, dtype_of as dtype_of_code

OBJECT = rx.ObjectStructInfo()


def call(cx: Context, name: str, result: rx.StructInfo, *args: Any) -> rx.Var:
    """A call of a packed function on sequences."""
    return cx.emit(R.call_pure_packed(PREFIX + name, *args, sinfo_args=[result]))


def parts_of(cx: Context, sequence: rx.Expr) -> list[rx.Expr] | None:
    """The values of a sequence of known length, or None.

    Errors:
        UnsupportedError: it is a tensor.
    """
    if isinstance(sequence, rx.Tuple):
        return list(sequence.fields)
    info = sequence.struct_info
    if isinstance(info, rx.TupleStructInfo):
        items = [rx.TupleGetItem(sequence, k) for k in range(len(info.fields))]
        return [cx.as_strings(cx.emit(item), sequence) for item in items]
    if isinstance(info, rx.TensorStructInfo):
        raise UnsupportedError(f"expected a sequence, found the tensor {info}")
    return None


def as_object(cx: Context, sequence: rx.Expr) -> rx.Expr:
    """A sequence as one of unknown length."""
    parts = parts_of(cx, sequence)
    if parts is None:
        return sequence
    packed = cx.as_strings(call(cx, "pack", OBJECT, *parts), sequence)
    return _known(cx, packed, item_info(cx, sequence))


def item_info(cx: Context, sequence: rx.Expr) -> rx.TensorStructInfo:
    """The datatype and the rank, if it is known, of the values of a sequence."""
    known = cx.importer.items.get(sequence)
    if known is not None:
        return known
    parts = sequence.fields if isinstance(sequence, rx.Tuple) else ()
    return _joint([tensor_info(part) for part in parts]) if parts else tensor_of(None, "float32")


def _joint(infos: Sequence[rx.TensorStructInfo]) -> rx.TensorStructInfo:
    """The datatype of tensors, and their rank if it is the same."""
    ranks = {info.ndim for info in infos}
    return rx.TensorStructInfo(None, infos[0].dtype, ndim=ranks.pop() if len(ranks) == 1 else -1)


def _known(cx: Context, sequence: rx.Expr, item: rx.TensorStructInfo) -> rx.Expr:
    cx.importer.items[sequence] = item
    return sequence


def _tuple(cx: Context, parts: list[rx.Expr], empty: rx.TensorStructInfo) -> rx.Expr:
    """A sequence of known length; `empty` is what its values would be if there are none."""
    found = _joint([tensor_info(part) for part in parts]) if parts else empty
    return _known(cx, rx.Tuple(tuple(parts)), found)


def _position(cx: Context, position: Value, count: int, places: int) -> int | None:
    """A known position in a sequence of this length, counted from the front."""
    known = None if position is None else cx.integers(position)
    if known is None or not isinstance(known[0], int):
        return None
    place = known[0] + count if known[0] < 0 else known[0]
    if not 0 <= place < places:
        raise UnsupportedError(f"position {known[0]} is not in a sequence of {count}")
    return place


def _at_run_time(cx: Context, position: Value) -> list[rx.Expr]:
    return [] if position is None else [cx.tensor(position)]


@converter("SequenceEmpty", strings=True)
def sequence_empty(cx: Context, *, dtype: int = 1) -> rx.Expr:
    if dtype == TensorProto.STRING:
        return cx.strings(_tuple(cx, [], tensor_of(None, "int64")))
    return _tuple(cx, [], tensor_of(None, dtype_of_code(dtype)))


@converter("SequenceConstruct", strings=True)
def sequence_construct(cx: Context, *inputs: rx.Expr) -> rx.Expr:
    parts = [cx.as_strings(cx.emit(x), x) for x in inputs]
    return cx.as_strings(_tuple(cx, parts, tensor_info(inputs[0])), *parts)


@converter("SequenceLength", strings=True)
def sequence_length(cx: Context, sequence: rx.Expr) -> rx.Expr:
    parts = parts_of(cx, sequence)
    if parts is not None:
        return rx.const(len(parts), "int64")
    return call(cx, "length", tensor_of((), "int64"), sequence)


@converter("SequenceAt", strings=True)
def sequence_at(cx: Context, sequence: rx.Expr, position: Value) -> rx.Expr:
    parts = parts_of(cx, sequence)
    if parts is not None:
        place = _position(cx, position, len(parts), len(parts))
        if place is not None:
            return parts[place]
    packed = as_object(cx, sequence)
    found = call(cx, "at", item_info(cx, sequence), packed, *_at_run_time(cx, position))
    return cx.as_strings(found, sequence)


@converter("SequenceInsert", strings=True)
def sequence_insert(
    cx: Context, sequence: rx.Expr, tensor: rx.Expr, position: Value = None
) -> rx.Expr:
    info = tensor_info(tensor)
    if cx.has_strings(sequence) != cx.has_strings(tensor):
        raise UnsupportedError("the sequence and the tensor are not both of strings or of numbers")
    parts = parts_of(cx, sequence)
    if parts is not None:
        count = len(parts)
        place = count if position is None else _position(cx, position, count, count + 1)
        if place is not None:
            part = cx.as_strings(cx.emit(tensor), tensor)
            return _tuple(cx, [*parts[:place], part, *parts[place:]], info)
    packed = as_object(cx, sequence)
    made = call(cx, "insert", OBJECT, packed, tensor, *_at_run_time(cx, position))
    return _known(cx, made, _joint([item_info(cx, sequence), info]))


@converter("SequenceErase", strings=True)
def sequence_erase(cx: Context, sequence: rx.Expr, position: Value = None) -> rx.Expr:
    info = item_info(cx, sequence)
    parts = parts_of(cx, sequence)
    if parts is not None:
        last = rx.const(-1, "int64") if position is None else position
        place = _position(cx, last, len(parts), len(parts))
        if place is not None:
            return _tuple(cx, [*parts[:place], *parts[place + 1 :]], info)
    packed = as_object(cx, sequence)
    return _known(cx, call(cx, "erase", OBJECT, packed, *_at_run_time(cx, position)), info)


@converter("ConcatFromSequence", strings=True)
def concat_from_sequence(
    cx: Context, sequence: rx.Expr, *, axis: int, new_axis: int = 0
) -> rx.Expr:
    parts = parts_of(cx, sequence)
    if parts:
        fields = rx.Tuple(tuple(parts))
        joined = R.stack(fields, axis) if new_axis else R.concat(fields, axis)
        return cx.as_strings(joined, sequence)
    item = item_info(cx, sequence)
    rank = item.ndim if item.ndim < 0 else item.ndim + new_axis
    info = rx.TensorStructInfo(None, item.dtype, ndim=rank)
    return cx.as_strings(call(cx, "concat", info, sequence, axis, new_axis), sequence)


@converter("SplitToSequence", strings=True)
def split_to_sequence(
    cx: Context, x: rx.Expr, split: Value = None, *, axis: int = 0, keepdims: int = 1
) -> rx.Expr:
    place = normal_axis(axis, rank_of(x))
    whole = shape_of(x)[place]
    sizes = [1] if split is None else cx.integers(split)
    info = _joint([tensor_info(x)])
    if split is None and not keepdims:
        info = rx.TensorStructInfo(None, info.dtype, ndim=info.ndim - 1)
    if sizes is None or not isinstance(whole, int):
        if info.ndim < rank_of(x):
            return _known(cx, cx.as_strings(call(cx, "unstack", OBJECT, x, place), x), info)
        wanted = rx.const(1, "int64") if split is None else cx.tensor(split)
        return _known(cx, cx.as_strings(call(cx, "split", OBJECT, x, wanted, place), x), info)
    is_scalar = split is None or _rank(split) == 0
    known = [size for size in sizes if isinstance(size, int)]
    if is_scalar and (known[0] < 1 or whole // known[0] > LIMIT):
        raise UnsupportedError(f"{whole} is split into parts of {known[0]}")
    if is_scalar:
        known = [min(known[0], whole - k) for k in range(0, whole, known[0])]
    whole_x = with_parts(cx, x, place, known)
    begin = 0
    parts: list[rx.Expr] = []
    for size in known:
        part = R.strided_slice(whole_x, [place], [begin], [begin + size])
        begin += size
        part = R.squeeze(part, [place]) if info.ndim < rank_of(x) else part
        parts.append(cx.as_strings(cx.emit(part), x))
    return cx.as_strings(_tuple(cx, parts, info), x)


def _rank(value: Value) -> int:
    if isinstance(value, Contents):
        return int(value.array.ndim)
    assert value is not None
    return rank_of(value)


@converter("Optional", strings=True)
def optional(cx: Context, value: Value = None, *, type: Any = None) -> Value:
    if value is not None:
        return value
    kind = type.item if isinstance(type, OptionalType) else type
    if isinstance(kind, SequenceType):
        kind = kind.item
    dtype = getattr(kind, "dtype", "float32")
    absent = cx.builder.emit(R.null_value())
    if dtype == "string":
        return _known(cx, cx.strings(absent), tensor_of(None, "int64"))
    return _known(cx, absent, tensor_of(None, dtype))


def _may_be_absent(value: Value) -> bool:
    return isinstance(value, rx.Expr) and isinstance(value.struct_info, rx.ObjectStructInfo)


@converter("OptionalHasElement", strings=True)
def optional_has_element(cx: Context, value: Value = None) -> rx.Expr:
    if value is not None and _may_be_absent(value):
        return call(cx, "has", tensor_of((), "bool"), value)
    return rx.const(value is not None)


@converter("OptionalGetElement", strings=True)
def optional_get_element(cx: Context, value: Value) -> Value:
    if not _may_be_absent(value):
        return value
    assert isinstance(value, rx.Expr)
    kind = cx.importer.optionals.get(value)
    if isinstance(kind, rx.TensorStructInfo):
        # Names of sizes have their values from here on, unless another input has them, too.
        read = cx.emit(call(cx, "get", tensor_of(None, str(kind.dtype)), value))
        cast = cx.builder.match_cast(read, kind)
        assert cast is not None
        return cx.as_strings(cast, value)
    found = cx.as_strings(call(cx, "get", OBJECT, value), value)
    return _known(cx, found, item_info(cx, value))


def _map_type(cx: Context, x: Expr) -> MapType:
    """The type of a map."""
    if x not in cx.importer.maps:
        raise UnsupportedError(f"expected a map, found {x.struct_info}")
    return cx.importer.maps[x]


@converter("DictVectorizer", domain=DOMAIN)
def dict_vectorizer(
    cx: Context,
    x: Expr,
    *,
    int64_vocabulary: Sequence[int] = (),
    string_vocabulary: Sequence[str] = (),
) -> Expr:
    kind = _map_type(cx, x)
    keys = list(int64_vocabulary or string_vocabulary)
    info = tensor_of((1, len(keys)), storage(kind.value))
    row = cx.importer.strings.call("map_values", info, x, json.dumps(keys), kind.value)
    return cx.strings(row) if kind.value == "string" else row


_CAST_MAP = {"cast_to": ("TO_FLOAT", "TO_STRING", "TO_INT64"), "map_form": ("DENSE", "SPARSE")}


@converter("CastMap", domain=DOMAIN, admitted=_CAST_MAP)
def cast_map(
    cx: Context, x: Expr, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Expr:
    kind = _map_type(cx, x)
    dtype = {"TO_FLOAT": "float32", "TO_INT64": "int64", "TO_STRING": "string"}[cast_to]
    length = max_map if map_form == "SPARSE" else -1
    info = TensorStructInfo(dtype=DataType(storage(dtype)), ndim=2)
    row = cx.importer.strings.call("cast_map", info, x, length, kind.value, dtype)
    width = cx.new_size("count") if length < 0 else length
    row = cx.match(row, [1, width], storage(dtype))
    return cx.strings(row) if dtype == "string" else row


MICROSOFT = "com.microsoft"


@converter("StringConcat", strings=True)
def string_concat(cx: Context, x: Expr, y: Expr) -> Expr:
    info = tensor_info(cx.broadcast(R.add, x, y))
    return cx.importer.strings.call("concat", info, x, y)


@converter("RegexFullMatch", strings=True)
def regex_full_match(cx: Context, x: Expr, *, pattern: str) -> Expr:
    pattern_of(pattern)
    return cx.importer.strings.call("full_match", shaped_as(x, "bool"), x, pattern)


@converter("StringSplit", strings=True)
def string_split(cx: Context, x: Expr, *, delimiter: str = "", maxsplit: int = -1) -> list[Expr]:
    parts = TensorStructInfo(dtype=DataType("int64"), ndim=rank_of(x) + 1)
    info = TupleStructInfo((parts, shaped_as(x, "int64")))
    both = cx.emit(cx.importer.strings.call("split", info, x, delimiter, maxsplit))
    wide = cx.match(TupleGetItem(both, 0), [*shape_of(x), cx.new_size("parts")], "int64")
    return [cx.strings(wide), TupleGetItem(both, 1)]


@converter("Tokenizer", domain=MICROSOFT, ignored=["stopwords"], strings=True)
def tokenizer(
    cx: Context,
    x: Expr,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
) -> Expr:
    if bool(separators) == bool(tokenexp):
        raise UnsupportedError("expected either separators or tokenexp")
    if mincharnum < 1 or (mincharnum > 1 and list(separators) == [""]):
        raise UnsupportedError(f"mincharnum is {mincharnum}, expected 1 or, of words, more")
    for pattern in (*separators, tokenexp):
        pattern_of(pattern)
    info = TensorStructInfo(dtype=DataType("int64"), ndim=rank_of(x) + 1)
    settings = (json.dumps(list(separators)), tokenexp, mincharnum, pad_value, mark)
    tokens = cx.importer.strings.call("tokenize", info, x, *settings)
    return cx.strings(cx.match(tokens, [*shape_of(x), cx.new_size("tokens")], "int64"))


@converter("MurmurHash3", domain=MICROSOFT, strings=True)
def murmur_hash(cx: Context, x: Expr, *, positive: int = 1, seed: int = 0) -> Expr:
    dtype = "uint32" if positive else "int32"
    settings = (int(cx.has_strings(x)), seed, dtype)
    return cx.importer.strings.call("murmur_hash", shaped_as(x, dtype), x, *settings)


_CASES = {"case_change_action": ("NONE", "LOWER", "UPPER")}


@converter("StringNormalizer", admitted=_CASES, strings=True)
def string_normalizer(
    cx: Context,
    x: Expr,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "en_US",
    stopwords: Sequence[str] = (),
) -> Expr:
    is_ascii = locale in ("C", "POSIX")
    settings = json.dumps([case_change_action, bool(is_case_sensitive), is_ascii, list(stopwords)])
    info = TensorStructInfo(dtype=DataType("int64"), ndim=rank_of(x))
    kept = cx.importer.strings.call("normalize", info, x, settings)
    count = cx.new_size("count")
    return cx.strings(cx.match(kept, [count] if rank_of(x) == 1 else [1, count], "int64"))


@converter("TfIdfVectorizer", admitted={"mode": ("TF", "IDF", "TFIDF")}, strings=True)
def tf_idf_vectorizer(
    cx: Context,
    x: Expr,
    *,
    mode: str,
    min_gram_length: int,
    max_gram_length: int,
    max_skip_count: int,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> Expr:
    if bool(pool_strings) != cx.has_strings(x):
        raise UnsupportedError("the pool and the operand are not both strings or both numbers")
    settings = {
        "mode": mode,
        "min_gram_length": min_gram_length,
        "max_gram_length": max_gram_length,
        "max_skip_count": max_skip_count,
        "ngram_counts": list(ngram_counts),
        "ngram_indexes": list(ngram_indexes),
        "pool": list(pool_int64s) or cx.importer.strings.codes(pool_strings),
        "weights": list(weights),
    }
    info = tensor_of([*shape_of(x)[:-1], max(ngram_indexes) + 1], "float32")
    return string_call("tf_idf", info, x, json.dumps(settings))
