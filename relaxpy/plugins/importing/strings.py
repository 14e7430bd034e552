"""Interned strings: the vocabulary of a call, and the packed functions that read the strings.

A tensor of strings is an int64 tensor in Relax, whose elements index the vocabulary. Equal strings
have the same index, so operators that move or compare elements need no strings.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.registry import provided
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.ops.definition import rules
from relaxpy.support.dataclass import dataclass

PREFIX = "relaxpy.onnx."
_DENSE: Final = 1 << 20
"""The range of integers from which a table of all of them would be too large."""


class Vocabulary:
    """The distinct strings of one call of a program, those that the model has first."""

    __slots__ = ("_places", "_strings")

    def __init__(self, known: Sequence[str]) -> None:
        self._strings = list(known)
        self._places = {text: place for place, text in enumerate(known)}

    def encode(self, texts: Sequence[str], shape: Sequence[int]) -> Array:
        """The places of strings, in a tensor of int64; strings that are new are added."""
        strings, places = self._strings, self._places
        for text in dict.fromkeys(texts):
            if text not in places:
                places[text] = len(strings)
                strings.append(text)
        found = np.fromiter(map(places.__getitem__, texts), np.int64, len(texts))
        return found.reshape(tuple(shape))

    def decode(self, codes: Any) -> list[str]:
        """The strings at places, in row-major order."""
        strings = self._strings
        return [strings[place] for place in np.asarray(codes).reshape(-1).tolist()]


@functools.lru_cache(maxsize=64)
def _known(words: str) -> tuple[str, ...]:
    return tuple(json.loads(words))


def vocabulary(words: str) -> Vocabulary:
    """The vocabulary of a call, at first the strings of a JSON list."""
    return Vocabulary(_known(words))


def encode(known: Vocabulary, x: Any, name: str = "", sizes: str = "null") -> Any:
    """The places of the strings of an array, or of the arrays of a sequence.

    `name` is that of the parameter, and `sizes` a JSON list of its sizes, numbers or names, if its
    rank is stated.

    Errors:
        RuntimeCheckError: the array has no strings, or another shape.
    """
    if x is None or isinstance(x, tuple):
        return x if x is None else tuple(encode(known, value, name) for value in x)
    array, stated = np.asarray(x), json.loads(sizes)
    shape = "" if stated is None else f" of shape ({', '.join(map(str, stated))})"
    expected = f"{name and f'parameter {name}: '}expected an array of strings{shape}"
    if isinstance(x, str):
        raise RuntimeCheckError(f"{expected}, found one string")
    if array.dtype.kind not in "OSUT":
        raise RuntimeCheckError(f"{expected}, found one of {array.dtype}")
    if stated is not None and (
        len(stated) != array.ndim
        or any(isinstance(a, int) and a != b for a, b in zip(stated, array.shape, strict=True))
    ):
        raise RuntimeCheckError(f"{expected}, found shape {array.shape}")
    texts = array.reshape(-1).tolist()
    if set(map(type, texts)) != {str}:
        try:
            texts = [item.decode() if isinstance(item, bytes) else str(item) for item in texts]
        except UnicodeDecodeError as error:
            raise RuntimeCheckError(f"expected strings in UTF-8: {error}") from None
    return known.encode(texts, array.shape)


def decode(known: Vocabulary, codes: Any) -> Any:
    """The strings at places as an array of objects, or the arrays of a sequence."""
    if codes is None or isinstance(codes, tuple):
        return codes if codes is None else tuple(decode(known, value) for value in codes)
    result = np.empty(np.size(codes), object)
    result[:] = known.decode(codes)
    return result.reshape(np.shape(codes))


def ranks(known: Vocabulary, x: Any) -> Array:
    """The place of each string among the distinct ones of the tensor, sorted by code points."""
    texts = known.decode(x)
    order = {text: rank for rank, text in enumerate(sorted(set(texts)))}
    return np.array([order[text] for text in texts], np.int64).reshape(np.shape(x))


def concat(known: Vocabulary, x: Any, y: Any) -> Array:
    """The strings joined element by element; shapes broadcast."""
    left, right = np.broadcast_arrays(x, y)
    pairs = zip(known.decode(left), known.decode(right), strict=True)
    return known.encode([a + b for a, b in pairs], left.shape)


#: Character classes that Python lacks, and their characters.
_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "ascii": r"\x00-\x7f",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\s",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}


@functools.lru_cache(maxsize=256)
def pattern_of(text: str) -> re.Pattern[str]:
    """An RE2 pattern, with ASCII character classes.

    Errors:
        ValueError: Python has no such patterns.
    """
    plain = re.sub(r"\[:(\w+):\]", lambda m: _CLASSES.get(m[1], m[0]), text)
    try:
        return re.compile(plain, re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern {text!r} is not one of Python: {error}") from None


def full_match(known: Vocabulary, x: Any, pattern: str) -> Array:
    """True if each string matches the pattern as a whole."""
    compiled = pattern_of(pattern)
    found = [compiled.fullmatch(text) is not None for text in known.decode(x)]
    return np.array(found, bool).reshape(np.shape(x))


def split(known: Vocabulary, x: Any, delimiter: str, maxsplit: int) -> tuple[Array, Array]:
    """The parts of each string, padded by empty ones, and their numbers."""
    most = -1 if maxsplit < 0 else maxsplit
    parts = [text.split(delimiter or None, most) for text in known.decode(x)]
    counts = np.array([len(row) for row in parts], np.int64).reshape(np.shape(x))
    return _padded(known, parts, np.shape(x), ""), counts


def _padded(
    known: Vocabulary, rows: Sequence[Sequence[str]], shape: Sequence[int], pad: str
) -> Array:
    """Rows of strings as a tensor, which are filled up to the longest."""
    width = max(map(len, rows), default=0)
    texts = [text for row in rows for text in (*row, *[pad] * (width - len(row)))]
    return known.encode(texts, (*shape, width))


def tokenize(
    known: Vocabulary,
    x: Any,
    separators: str,
    expression: str,
    least: int,
    pad: str,
    has_marks: int,
) -> Array:
    """The tokens of each string, along a new axis that is filled up to the longest row.

    Tokens are the matches of the expression, or the text between separators, a JSON list of
    patterns; they have `least` characters or more. An empty separator is between all characters.
    """
    patterns = [pattern_of(text) for text in json.loads(separators)]
    rows = []
    for text in known.decode(x):
        if expression:
            row = [match[0] for match in pattern_of(expression).finditer(text) if match[0]]
        elif [pattern.pattern for pattern in patterns] == [""]:
            row = list(text)
        else:
            row = [text]
            for pattern in patterns:
                row = [part for whole in row for part in _between(pattern, whole)]
        rows.append([token for token in row if len(token) >= least])
    if has_marks and any(rows):
        rows = [["\x02", *row, "\x03"] for row in rows]
    return _padded(known, rows, np.shape(x), pad)


def _between(pattern: re.Pattern[str], text: str) -> list[str]:
    """The parts of a text between matches of a pattern."""
    parts, begin = [], 0
    for match in pattern.finditer(text):
        parts.append(text[begin : match.start()])
        begin = match.end()
    return [*parts, text[begin:]]


def map_values(known: Vocabulary, x: Any, keys: str, dtype: str) -> Array:
    """The values that a map has for the keys of a JSON list, else 0 or the empty string, as a row.

    Errors:
        RuntimeCheckError: it is not a map, or has values of another kind.
    """
    return _map_row(known, _mapping(x), json.loads(keys), "", dtype)


def cast_map(known: Vocabulary, x: Any, length: int, source: str, dtype: str) -> Array:
    """The values of a map in the order of its keys, or those of the keys 0 to `length`, as a row.

    Errors:
        RuntimeCheckError: it is not a map of numbers, or has values of another kind.
    """
    found = dict(sorted(_mapping(x).items()))
    if length >= 0 and min(found, default=0) < 0:
        raise RuntimeCheckError(f"a map has the key {min(found)}, expected none below 0")
    if source == "float32" and dtype == "string":
        found = {key: f"{value:.6f}" for key, value in found.items()}
    return _map_row(known, found, range(length) if length >= 0 else list(found), "0.f", dtype)


def _mapping(x: Any) -> Mapping[Any, Any]:
    if not isinstance(x, Mapping):
        raise RuntimeCheckError(f"expected a dict, found {type(x).__name__}")
    return x


def _map_row(
    known: Vocabulary, x: Mapping[Any, Any], keys: Sequence[Any], absent: str, dtype: str
) -> Array:
    """The values of keys as a tensor of one row."""
    if dtype == "string":
        return known.encode([str(x.get(key, absent)) for key in keys], (1, len(keys)))
    read = int if dtype == "int64" else float
    try:
        return np.array([[read(x.get(key, 0)) for key in keys]], dtype)
    except (ValueError, TypeError) as error:
        raise RuntimeCheckError(f"a value of a map is not of {dtype}: {error}") from None


def murmur_hash(known: Vocabulary, x: Any, has_strings: int, seed: int, dtype: str) -> Array:
    """The 32-bit hash of each string, or of the bytes of each number."""
    if has_strings:
        items = [text.encode() for text in known.decode(x)]
    else:
        items = [item.tobytes() for item in np.asarray(x).reshape(-1)]
    hashes = np.array([_murmur(item, seed) for item in items], np.uint32)
    return hashes.astype(dtype).reshape(np.shape(x))


def _murmur(data: bytes, seed: int) -> int:
    """The hash MurmurHash3_x86_32 of Austin Appleby."""
    mask = (1 << 32) - 1

    def rotated(number: int, bits: int) -> int:
        return (number << bits | number >> (32 - bits)) & mask

    def mixed(block: bytes) -> int:
        number = int.from_bytes(block, "little") * 0xCC9E2D51 & mask
        return rotated(number, 15) * 0x1B873593 & mask

    result = seed & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        result = rotated(result ^ mixed(data[at : at + 4]), 13) * 5 + 0xE6546B64 & mask
    result ^= mixed(data[whole:]) ^ len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        result = (result ^ result >> shift) * factor & mask
    return result ^ result >> 16


def normalize(known: Vocabulary, x: Any, settings: str) -> Array:
    """The strings in lower or upper case, without stop words; `settings` are the attributes."""
    change, case_sensitive, is_ascii, stop = json.loads(settings)

    def fold(text: str) -> str:
        return text if change == "NONE" else _folded(text, change, is_ascii=is_ascii)

    def compared(text: str) -> str:
        wanted = "LOWER" if change == "NONE" else change
        return text if case_sensitive else _folded(text, wanted, is_ascii=is_ascii)

    unwanted = set(map(compared, stop))
    kept = [fold(text) for text in known.decode(x) if compared(text) not in unwanted]
    kept = kept or [""]
    return known.encode(kept, (1, len(kept)) if np.ndim(x) == 2 else (len(kept),))


def _folded(text: str, change: str, *, is_ascii: bool) -> str:
    """A text in lower or upper case, character by character, as in the C library."""
    fold = str.lower if change == "LOWER" else str.upper
    if text.isascii():
        return fold(text)
    if is_ascii:
        return "".join(fold(c) if c.isascii() else c for c in text)
    if change == "LOWER":
        return "".join(c.lower()[0] for c in text)
    return "".join(c.upper() if len(c.upper()) == 1 else c for c in text)


def from_numbers(known: Vocabulary, x: Any) -> Array:
    """The texts of numbers."""
    array = np.asarray(x)
    return known.encode([_number_text(item) for item in array.reshape(-1)], array.shape)


def _number_text(item: Any) -> str:
    if isinstance(item, (bool, np.bool_)):
        return "1" if item else "0"
    if isinstance(item, np.integer):
        return str(int(item))
    return str(item) if np.isfinite(item) else {"inf": "INF", "-inf": "-INF"}.get(str(item), "NaN")


def to_numbers(known: Vocabulary, x: Any, dtype: str) -> Array:
    """The numbers that texts represent; integers are rounded towards zero.

    Errors:
        RuntimeCheckError: a text stands for none.
    """
    texts = known.decode(x)
    numbers = [_number(text, is_integer="int" in dtype) for text in texts]
    try:
        with np.errstate(over="ignore"):
            return np.array(numbers).astype(DataType(dtype).numpy()).reshape(np.shape(x))
    except OverflowError:
        raise RuntimeCheckError(f"a number among {texts} is outside {dtype}") from None


def _number(text: str, *, is_integer: bool) -> float:
    try:
        if "_" in text:
            raise ValueError
        if not is_integer:
            return float(text)
        return int(text) if text.strip().lstrip("+-").isdecimal() else int(float(text))
    except (ValueError, OverflowError):
        raise RuntimeCheckError(f"expected the text of a number, found {text!r}") from None


@dataclass(frozen=True, slots=True)
class _NGrams:
    """The n-grams of a pool that have one length, as a trie.

    A node is an n-gram's beginning: one of one item is the item's place among the sorted `items`,
    a longer one is its place in the sorted keys of its length. Its key is `_key` of the node before
    and the last item. `columns` are those of the result. If the items are close to each other,
    `dense` has their places, and 0 for the integers between them; else it is empty.
    """

    items: Array
    dense: Array
    keys: list[Array]
    columns: Array


def _n_gram_table(grams: Mapping[tuple[int, ...], int]) -> _NGrams:
    """The trie of n-grams of one length, which are mapped to columns."""
    texts = np.array([*grams], np.int64)
    items, codes = np.unique(texts, return_inverse=True)
    codes = codes.reshape(texts.shape)
    nodes, keys = codes[:, 0], []
    for code in codes.T[1:]:
        level, nodes = np.unique(_key(nodes, code, items), return_inverse=True)
        keys.append(level)
    columns = np.zeros(nodes.max() + 1, np.int64)
    columns[nodes] = [*grams.values()]
    dense = np.zeros(0, np.int64)
    if int(items[-1]) - int(items[0]) < _DENSE:
        dense = np.zeros(items[-1] - items[0] + 1, np.int64)
        dense[items - items[0]] = np.arange(len(items))
    return _NGrams(items, dense, keys, columns)


def _key(nodes: Array, codes: Array, items: Array) -> Array:
    """The keys of the nodes after others; an absent item, -1, has none of a node."""
    return nodes * (len(items) + 1) + codes + 1


def _item_places(table: _NGrams, matrix: Array) -> Array:
    """The places of the elements among the items, -1 if they are absent."""
    if not len(table.dense):
        return _places(table.items, matrix)
    least, last = table.items[0], table.items[-1]
    return _if_there(table.items, table.dense[np.clip(matrix, least, last) - least], matrix)


def _places(table: Array, values: Array) -> Array:
    """The places of values in a sorted table, -1 if they are absent."""
    return _if_there(table, np.minimum(np.searchsorted(table, values), len(table) - 1), values)


def _if_there(table: Array, places: Array, values: Array) -> Array:
    return np.where(table[places] == values, places, -1)


@functools.lru_cache(maxsize=64)
def _n_grams(settings: str) -> tuple[dict[str, Any], dict[int, _NGrams]]:
    """The attributes of a TfIdfVectorizer, and the n-grams of its pool by their length."""
    known = json.loads(settings)
    pool = known["pool"]
    grams: dict[int, dict[tuple[int, ...], int]] = {}
    starts = [*known["ngram_counts"], len(pool)]
    at = 0
    for n in range(1, len(starts)):
        for start in range(starts[n - 1], starts[n], n):
            if n >= known["min_gram_length"] and n <= known["max_gram_length"]:
                column = known["ngram_indexes"][at]
                grams.setdefault(n, {})[tuple(pool[start : start + n])] = column
            at += 1
    return known, {n: _n_gram_table(each) for n, each in grams.items()}


def tf_idf(x: Any, settings: str) -> Array:
    """The counts of a pool's n-grams in each row; `settings` are the attributes, in JSON."""
    known, tables = _n_grams(settings)
    rows = np.asarray(x, np.int64)
    matrix = rows.reshape(1, -1) if rows.ndim == 1 else rows
    indexes = known["ngram_indexes"]
    width = max(indexes) + 1
    found = [np.zeros(0, np.int64)]
    for n, table in tables.items():
        codes = _item_places(table, matrix)
        for skip in range(1, known["max_skip_count"] + 2 if n > 1 else 2):
            row, first = np.nonzero(codes[:, : max(codes.shape[1] - (n - 1) * skip, 0)] >= 0)
            nodes = codes[row, first]
            for step, level in enumerate(table.keys, 1):
                nodes = _places(level, _key(nodes, codes[row, first + step * skip], table.items))
                kept = nodes >= 0
                row, first, nodes = row[kept], first[kept], nodes[kept]
            found.append(row * width + table.columns[nodes])
    places = np.concatenate(found).astype(np.intp, copy=False)
    totals = np.bincount(places, minlength=len(matrix) * width)
    counts = totals.reshape(len(matrix), width).astype(np.float32)
    weights = known["weights"]
    scale = np.ones(width, np.float32)
    if weights:
        scale[indexes] = weights
    result = {"TF": counts, "IDF": np.where(counts > 0, scale, 0), "TFIDF": counts * scale}[
        known["mode"]
    ].astype(np.float32)
    return result[0] if rows.ndim == 1 else result


for _function in (
    *(vocabulary, encode, decode, ranks, concat, full_match),
    *(split, tokenize, normalize, murmur_hash, tf_idf),
    *(from_numbers, to_numbers, map_values, cast_map),
):
    provided(PREFIX + _function.__name__, pure=True)(_function)


CHECK: Final = "relaxpy.check_elements"
"""The packed function that checks the elements of a tensor."""


@provided(CHECK, pure=True, alone=rules.late("relaxpy.plugins.importing.checks:as_kernel"))
def check_elements(name: str, x: Array, least: float, most: float) -> Array:
    """The tensor, all of whose elements are from `least` to `most`.

    Errors:
        RuntimeCheckError: one is not.
    """
    problem = outside(name, x, least, most)
    if problem:
        raise RuntimeCheckError(problem)
    return x


def outside(name: str, x: Array, least: float, most: float) -> str:
    """The error of an element that is not in [`least`, `most`]; "" if all are."""
    array = np.asarray(x)
    if not array.size:
        return ""
    if least == 0 and array.dtype.kind == "i":  # negative numbers are large unsigned ones
        is_inside = array.view(f"u{array.dtype.itemsize}").max() <= most
    else:
        is_inside = array.min() >= least and array.max() <= most
    if is_inside:
        return ""
    wrong = array[~((array >= least) & (array <= most))]
    expected = f"at least {least}" if most == np.iinfo(np.int64).max else f"{least} to {most}"
    return f"{name} is {wrong.flat[0]}, expected {expected}"
