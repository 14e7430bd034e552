"""The arguments of a call, from files, from literals and at random; and its results."""

from __future__ import annotations

import ast
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxpy.errors import MisuseError, close_names
from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.cli.show import UsageError, writing
from relaxpy.plugins.testing.random_inputs import dimension_names, random_values

if TYPE_CHECKING:
    from relaxpy.exec.api.executable import EntryPoint

_NAMED = re.compile(r"([^\W\d]\w*)=(.*)", re.DOTALL)


def arguments(
    function: EntryPoint, words: Sequence[str], dims: Sequence[str], seed: int | None
) -> tuple[object, ...]:
    """The arguments that the words of the command line describe, in the order of the parameters.

    With a `seed`, parameters without a value get random ones: floats of a normal distribution,
    integers from 0 to 9. Dimensions that no other value fixes are those in `dims`.

    Errors:
        UsageError: a file or a literal cannot be read, a name is written twice, a dimension is not
            known, or there are no inputs.
        RuntimeCheckError: an argument is missing, unexpected or passed twice.
    """
    params = function.signature.params
    if params and not words and not dims and seed is None:
        raise UsageError(
            f"there are no inputs, expected {', '.join(p.name_hint for p in params)}",
            hint=f"write {params[0].name_hint}=… with a file or a literal, or --random 0",
        )
    positional: list[object] = []
    named: dict[str, object] = {}
    for word in words:
        match = _NAMED.fullmatch(word)
        if match is None and not word.endswith(".npz"):
            positional.append(_value(word))
            continue
        inputs = _arrays(word) if match is None else {match[1]: _value(match[2])}
        if twice := inputs.keys() & named.keys():
            raise UsageError(f"there are two inputs for {min(twice)}")
        named |= inputs
    for index, value in enumerate(positional[: len(params)]):
        positional[index] = _typed(value, params[index].struct_info)
    for param in params:
        if param.name_hint in named:
            named[param.name_hint] = _typed(named[param.name_hint], param.struct_info)
    if seed is not None and named.keys() <= {param.name_hint for param in params}:
        values = dict(zip((p.name_hint for p in params), positional, strict=False)) | named
        others = [param for param in params if param.name_hint not in values]
        strings = function.signature.string_sizes or {}
        sizes = _sizes(params, values, dims, strings)
        if text := next((p.name_hint for p in others if p.name_hint in strings), None):
            raise UsageError(
                f"parameter {text} has strings, for which there are no random values",
                hint=f"""write {text}='["a", "b"]', or such lists in a list, by its shape""",
            )
        drawn = _drawn(others, sizes, seed)
        named |= zip((param.name_hint for param in others), drawn, strict=True)
    elif dims and seed is None:
        raise UsageError("--dim is for the random inputs of --random")
    return function.positional_args(tuple(positional), named)


def _value(word: str) -> object:
    """An array in a .npy file, or else a Python literal."""
    if word.endswith(".npy"):
        loaded = _loaded(word)
        if isinstance(loaded, dict):
            raise UsageError(f"{word} is several arrays, expected one in a .npy file")
        return loaded
    try:
        return ast.literal_eval(word)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise UsageError(
            f"{word!r:.60} is not an input",
            hint="write the name of a .npy or .npz file, or a Python literal; NAME= may precede it",
        ) from None


def _arrays(path: str) -> dict[str, object]:
    """The arrays in a .npz file by name."""
    loaded = _loaded(path)
    if not isinstance(loaded, dict):
        raise UsageError(f"{path} is one array, expected several in a .npz file")
    return loaded


def _loaded(path: str) -> Any:
    """The array in a .npy file, or the arrays in a .npz file by name."""
    with _reading(path), open(path, "rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            return {name: loaded[name] for name in loaded.files}
        return loaded


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Report what NumPy and its libraries raise for a file that is damaged, or has no arrays."""
    try:
        yield
    except _UNREADABLE as error:
        pickled = "pickle" in str(error)
        reason = "its contents are not arrays of numbers" if pickled else error
        raise UsageError(f"{path} cannot be read: {reason}") from None


_UNREADABLE = (
    *(ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error),
    *(SyntaxError, tokenize.TokenError),  # of the header
    *(NotImplementedError, RuntimeError),  # a method of compression, encryption
)


def _typed(value: object, sinfo: rx.StructInfo | None) -> object:
    """The value for a parameter: a literal as an array or a shape, elements with their datatype.

    Files have no name for bfloat16 and the like, so that these are bytes without a datatype.
    """
    if isinstance(sinfo, rx.ShapeStructInfo) and isinstance(value, tuple):
        return ShapeTuple(value) if all(type(size) is int for size in value) else value
    if isinstance(sinfo, rx.TupleStructInfo) and isinstance(value, tuple):
        rest = (None,) * len(value)
        fields = zip(value, (*sinfo.fields, *rest), strict=False)
        return tuple(_typed(item, field) for item, field in fields)
    if not isinstance(sinfo, rx.TensorStructInfo) or not sinfo.dtype:
        return value
    dtype = sinfo.dtype.numpy()
    if isinstance(value, (list, bool, int, float)):
        try:
            if dtype.kind in "iub" and np.array(value).dtype.kind == "f" and np.size(value):
                raise TypeError("expected integers")
            return np.array(value, dtype)
        except (ValueError, TypeError, OverflowError) as error:
            uneven = "inhomogeneous" in str(error)
            reason = "its rows have different lengths" if uneven else error
            raise UsageError(f"{value!r:.60} is not an array of {sinfo.dtype}: {reason}") from None
    if isinstance(value, np.ndarray) and value.dtype == np.dtype((np.void, dtype.itemsize)):
        return value.view(dtype)
    return value


def _sizes(
    params: Sequence[rx.Var],
    values: Mapping[str, object],
    dims: Sequence[str],
    strings: Mapping[str, Sequence[int | str] | None],
) -> dict[str, int]:
    """The values of dimensions by name: those in `dims`, and those of inputs.

    `strings` has the sizes of parameters that have strings.
    """
    known = list(dict.fromkeys(name for param in params for name in dimension_names(param)))
    sizes: dict[str, int] = {}
    for name, stated in strings.items():
        shape = np.shape(np.asarray(values[name], object)) if name in values else ()
        sizes |= {d: n for d, n in zip(stated or (), shape, strict=False) if isinstance(d, str)}
    for param in params:
        for dim, size in _dimensions(param.struct_info, values.get(param.name_hint)):
            if isinstance(dim, tir.Var):
                sizes.setdefault(dim.name, size)
    for name, size in sizes_of(dims).items():
        if name not in known:
            raise UsageError(
                f"no parameter has a dimension {name!r:.60}",
                hint=close_names(name, known)
                or (f"the dimensions are {', '.join(known)}" if known else "omit --dim"),
            )
        sizes[name] = size
    return sizes


def sizes_of(words: Sequence[str], option: str = "--dim") -> dict[str, int]:
    """The sizes by name that words such as `n=4` say, which an option has.

    Errors:
        UsageError: a word is something else, or there are two sizes for a name.
    """
    sizes: dict[str, int] = {}
    for word in words:
        name, _, text = word.partition("=")
        if not text.isdecimal() or len(text) > 18:
            found = f"{option} takes NAME=SIZE, found {word!r:.60}"
            raise UsageError(found, hint=f"write {option} n=4")
        if name in sizes:
            raise UsageError(f"there are two sizes for {name}")
        sizes[name] = int(text)
    return sizes


def _dimensions(
    sinfo: rx.StructInfo | None, value: object
) -> Iterator[tuple[tir.PrimExpr | None, int]]:
    """The dimensions in struct info, each with its size in a value."""
    match sinfo, value:
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=dims)), np.ndarray():
            yield from zip(dims, value.shape, strict=False)
        case rx.ShapeStructInfo(values=dims), tuple() if dims is not None:
            yield from ((d, v) for d, v in zip(dims, value, strict=False) if isinstance(v, int))
        case rx.PrimStructInfo(value=dim), int():
            yield dim, value
        case rx.TupleStructInfo(fields=fields), tuple():
            for field, item in zip(fields, value, strict=False):
                yield from _dimensions(field, item)
        case _:
            pass


def _drawn(params: Sequence[rx.Var], sizes: Mapping[str, int], seed: int) -> tuple[object, ...]:
    """Random values for parameters."""
    missing: dict[str, rx.Var] = {}
    for param in params:
        for name in dimension_names(param):
            if name not in sizes:
                missing.setdefault(name, param)
    if missing:
        listed = [f"{name} of parameter {param.name_hint}" for name, param in missing.items()]
        several = len(missing) > 1
        raise UsageError(
            f"the dimension{'s' if several else ''} {', '.join(listed)} "
            f"{'are' if several else 'is'} not known",
            hint=f"write {' '.join(f'--dim {name}=4' for name in missing)}, or pass "
            f"{'inputs that have them' if several else 'an input that has it'}",
        )
    try:
        return random_values(params, sizes, seed)
    except MisuseError as error:
        raise UsageError(
            error.diagnostics[0].message, hint="pass NAME=… with a file or a literal"
        ) from None


def print_value(value: object, name: str = "") -> None:
    """Print a value, an array below its datatype and shape; the fields of a tuple one by one."""
    for field, leaf in _leaves(value, name):
        title = f"{field}: " if field else ""
        if isinstance(leaf, np.ndarray):
            print(f"{title}{leaf.dtype.name} {leaf.shape}\n{leaf}")
        else:
            print(f"{title}{leaf!r}")


def save_value(value: object, path: str) -> None:
    """Write an array to a .npy file, or all arrays of a tuple to a .npz file.

    The names in it are `0`, `1`, and `1.0` for the first field of a tuple in a tuple.

    Errors:
        UsageError: the name of the file has another ending, or there are values without a file.
    """
    leaves: dict[str, Any] = dict(_leaves(value, ""))
    for name, leaf in leaves.items():
        if not isinstance(leaf, (np.ndarray, np.generic, int, float)):
            field = f"field {name} of the result" if name else "the result"
            raise UsageError(f"{field} is a {type(leaf).__name__}, for which there is no file")
    if path.endswith(".npz"):
        # A file object, since a path could not have every name of an array.
        with writing(path), open(path, "wb") as file:
            np.savez(file, **{name or "0": leaf for name, leaf in leaves.items()})
    elif path.endswith(".npy") and leaves.keys() == {""}:
        with writing(path), open(path, "wb") as file:
            np.save(file, leaves[""])
    else:
        expected = ".npy or .npz" if leaves.keys() == {""} else ".npz"
        raise UsageError(f"the result is written to a {expected} file, found {path!r:.60}")


def _leaves(value: object, name: str) -> Iterator[tuple[str, object]]:
    """The values in nested tuples, with the path of each."""
    if type(value) is tuple:
        for index, field in enumerate(value):
            yield from _leaves(field, f"{name}.{index}" if name else str(index))
    else:
        yield name, value
