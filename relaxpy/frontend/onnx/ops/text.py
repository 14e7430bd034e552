"""Strings: objects in Relax, on which packed functions compute (`onnx/strings.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from relaxpy.frontend.onnx.context import Context
from relaxpy.frontend.onnx.registry import converter
from relaxpy.frontend.onnx.strings import PREFIX
from relaxpy.frontend.shared.tensors import as_size, shape_of, tensor_of
from relaxpy.ir.relax.nodes import (
    Expr,
    ObjectStructInfo,
    ShapeExpr,
    StringImm,
    StructInfo,
    TensorStructInfo,
    TupleGetItem,
    TupleStructInfo,
)
from relaxpy.ir.relax.op.definition.registry import R

OBJECT = ObjectStructInfo()


def call(name: str, result: StructInfo, *args: Any) -> Expr:
    """A call of a packed function on strings."""
    return R.call_pure_packed(PREFIX + name, *map(_argument, args), sinfo_args=[result])


def _argument(value: Any) -> Any:
    return StringImm(value) if isinstance(value, str) else value


def literal(texts: Sequence[str], shape: Sequence[int]) -> Expr:
    """An array of strings that is known at import."""
    return call("literal", OBJECT, json.dumps(list(texts)), ShapeExpr(tuple(map(as_size, shape))))


def are_strings(x: Expr) -> bool:
    """Whether a value is no tensor, so that its elements are strings."""
    return not isinstance(x.struct_info, TensorStructInfo)


@converter("StringConcat")
def string_concat(cx: Context, x: Expr, y: Expr) -> Expr:
    return call("concat", OBJECT, x, y)


@converter("RegexFullMatch")
def regex_full_match(cx: Context, x: Expr, *, pattern: str) -> Expr:
    return call("full_match", tensor_of(None, "bool"), x, pattern)


@converter("StringSplit")
def string_split(cx: Context, x: Expr, *, delimiter: str = "", maxsplit: int = -1) -> list[Expr]:
    info = TupleStructInfo((OBJECT, tensor_of(None, "int64")))
    both = cx.emit(call("split", info, x, delimiter, maxsplit))
    return [TupleGetItem(both, 0), TupleGetItem(both, 1)]


_CASES = {"case_change_action": ("NONE", "LOWER", "UPPER")}


@converter("StringNormalizer", ignored=["locale"], admitted=_CASES)
def string_normalizer(
    cx: Context,
    x: Expr,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    stopwords: Sequence[str] = (),
) -> Expr:
    stop = json.dumps(list(stopwords))
    return call("normalize", OBJECT, x, case_change_action, is_case_sensitive, stop)


@converter("TfIdfVectorizer", admitted={"mode": ("TF", "IDF", "TFIDF")})
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
    settings = {
        "mode": mode,
        "min_gram_length": min_gram_length,
        "max_gram_length": max_gram_length,
        "max_skip_count": max_skip_count,
        "ngram_counts": list(ngram_counts),
        "ngram_indexes": list(ngram_indexes),
        "pool": list[Any](pool_int64s or pool_strings),
        "weights": list(weights),
    }
    info = tensor_of(None, "float32")
    if not are_strings(x):
        info = tensor_of([*shape_of(x)[:-1], max(ngram_indexes) + 1], "float32")
    return call("tf_idf", info, x, json.dumps(settings))
