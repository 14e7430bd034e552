"""Dictionaries as inputs: objects in Relax, which packed functions convert to tensors."""

from __future__ import annotations

import json
from collections.abc import Sequence

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Expr, TensorStructInfo
from relaxpy.plugins.importing.tensors import tensor_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context, storage
from relaxpy.plugins.onnx.ops.classical import DOMAIN
from relaxpy.plugins.onnx.registry import converter
from relaxpy.plugins.onnx.view import MapType


def _map_type(cx: Context, x: Expr) -> MapType:
    """The type of a map.

    Errors:
        UnsupportedError: the value is something else.
    """
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
