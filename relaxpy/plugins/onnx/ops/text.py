"""Operators that read strings: packed functions compute on them (`importing/strings.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Expr, TensorStructInfo, TupleGetItem, TupleStructInfo
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.strings import pattern_of
from relaxpy.plugins.importing.tensors import rank_of, shape_of, tensor_info, tensor_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context, call, shaped_as
from relaxpy.plugins.onnx.registry import converter

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
    return call("tf_idf", info, x, json.dumps(settings))
