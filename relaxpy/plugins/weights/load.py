"""`load_weights`: the values of a model's parameters, from files that name them otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import Diagnostic, MisuseError, counted, unexpected
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.plugins.nn.core import Parameter
from relaxpy.plugins.nn.module import Module
from relaxpy.plugins.weights.files import Weights, open_weights
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.progress import long_work

Combine: TypeAlias = Callable[..., Any]
Origin: TypeAlias = str | Sequence[str] | tuple[Sequence[str], Combine]
Names: TypeAlias = Mapping[str, Origin] | Callable[[str], Origin] | None
Params: TypeAlias = Module | Mapping[str, Any] | Iterable[tuple[str, Any]]

_MOST_NOTES = 20


@dataclass(frozen=True)
class _Wanted:
    """A parameter, and the tensors of which its value is made."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sources: tuple[str, ...]
    combine: Combine | None


@user_facing
def load_weights(
    source: str | os.PathLike[str] | Mapping[str, Any],
    params: Params,
    names: Names = None,
    *,
    ignore: Sequence[str] = (),
    progress: bool | None = None,
) -> dict[str, Array]:
    """The values of parameters, in their order and datatypes, from a file or folder of weights.

    `source` is what `open_weights` takes, or a table of arrays. `params` is a model of `nn`, its
    `state_dict()`, or the list that `export_tvm` returns. `names` says where the value of a
    parameter comes from: the name of a tensor; several names, whose tensors are joined along the
    first axis; or `(names, function)` for the function's result on these tensors. A parameter
    without an entry has its own name. Tensors may be left over whose names match a pattern of
    `ignore`, such as "*.inv_freq".

    One tensor after the other is read and converted; what needs no conversion stays mapped. On a
    terminal, `progress` is shown by default. The result fits `Module.load_state_dict`.

    Errors:
        FrontendError (also ValueError): the error lists all tensors that are missing, left over, or
            of another shape; or as for `open_weights`.
        MisuseError (also TypeError): `params` or `names` are something else.
    """
    return Values(source, params, names, ignore).read(progress)


class Values(Mapping[str, Array]):
    """The values that `load_weights` returns, each read on access. Errors: as for that."""

    def __init__(
        self,
        source: str | os.PathLike[str] | Mapping[str, Any],
        params: Params,
        names: Names,
        ignore: Sequence[str],
    ) -> None:
        self._weights = source if isinstance(source, Mapping) else open_weights(source)
        self._wanted = {param.name: param for param in _wanted(params, names, self._weights)}
        _check_names(self._weights, [*self._wanted.values()], ignore)

    @override
    def __getitem__(self, name: str) -> Array:
        try:
            return _value(self._weights, self._wanted[name])
        except _UnfitError:
            problems = [*filter(None, map(self._problem, self._wanted.values()))]
        raise _listed(f"{counted(len(problems), 'parameter')} cannot have these values", problems)

    def read(self, progress: bool | None) -> dict[str, Array]:
        """All values, with a line of how many are read where it can be seen."""
        found = {}
        with long_work("loading weights", len(self), shown=progress) as work:
            for name in self:
                work.now(name)
                found[name] = self[name]
                work.done += 1
        return found

    def _problem(self, param: _Wanted) -> str:
        """The reason why a parameter cannot have its value, or empty."""
        try:
            _value(self._weights, param)
        except _UnfitError as error:
            return f"{param.name}: {error}"
        return ""

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._wanted

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._wanted)

    @override
    def __len__(self) -> int:
        return len(self._wanted)


class _UnfitError(Exception):
    """A value that a parameter cannot have."""


def _wanted(params: Params, names: Names, weights: Mapping[str, Any]) -> list[_Wanted]:
    """The parameters. Of the names of one parameter, those are left out that have no tensors."""
    if isinstance(params, Module):
        params = params.state_dict()
    pairs = params.items() if isinstance(params, Mapping) else params
    if names is not None and not callable(names) and not isinstance(names, Mapping):
        raise unexpected(names, "names is a table or a function")
    try:
        described = [(name, param) for name, param in pairs]
    except (TypeError, ValueError):
        raise unexpected(params, "params is a model, or names with parameters") from None
    wanted: list[_Wanted] = []
    owners: dict[int, list[_Wanted]] = {}
    for name, param in described:
        shape, dtype = _described(name, param)
        origin: Any = name
        if callable(names):
            origin = names(name)
        elif names is not None:
            origin = names.get(name, name)
        sources, combine = _origin(name, origin)
        wanted.append(_Wanted(name, shape, dtype, sources, combine))
        owners.setdefault(id(param), []).append(wanted[-1])
    kept: set[str] = set()
    for several in owners.values():
        there = [param for param in several if all(s in weights for s in param.sources)]
        kept |= {param.name for param in there or several[:1]}
    return [param for param in wanted if param.name in kept]


def _described(name: object, param: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape = param.shape if isinstance(param, (Parameter, np.ndarray)) else None
    if not isinstance(name, str) or shape is None:
        raise MisuseError(
            f"params has names and parameters, found {name!r:.60} and {param!r:.60}", about=param
        )
    if not all(isinstance(size, int) for size in shape):
        raise MisuseError(
            f"the sizes of parameter {name} are not known: {list(shape)}",
            hint="give the model sizes that are numbers",
            about=param,
        )
    return tuple(shape), DataType(str(param.dtype)).numpy()


def _origin(name: str, origin: Any) -> tuple[tuple[str, ...], Combine | None]:
    combine = None
    if isinstance(origin, tuple) and len(origin) == 2 and callable(origin[1]):
        origin, combine = origin
    several = tuple(origin) if isinstance(origin, (list, tuple)) else ()
    sources = (origin,) if isinstance(origin, str) else several
    if not sources or not all(isinstance(source, str) for source in sources):
        raise unexpected(
            origin,
            f"the value of parameter {name} comes from a name, names, or names and a function",
        )
    return sources, combine


def _check_names(
    weights: Mapping[str, Any], wanted: Sequence[_Wanted], ignore: Sequence[str]
) -> None:
    """Errors: FrontendError with all tensors that are missing or left over."""
    used = {source: param.name for param in wanted for source in param.sources}
    problems = [
        f"missing: {source}" + (f", for {name}" if name != source else "")
        for source, name in used.items()
        if source not in weights
    ]
    missing = len(problems)
    problems += [
        f"left over: {name}"
        for name in weights
        if name not in used and not any(fnmatchcase(name, pattern) for pattern in ignore)
    ]
    if problems:
        raise _listed(
            f"the weights do not fit the model: {missing} missing, "
            f"{len(problems) - missing} left over",
            problems,
            hint='`names` maps parameters to tensors, `ignore=["..."]` are patterns of tensors '
            "that the model does not need",
        )


def _listed(message: str, problems: Sequence[str], hint: str | None = None) -> FrontendError:
    notes = list(problems[:_MOST_NOTES])
    if len(problems) > _MOST_NOTES:
        notes.append(f"and {len(problems) - _MOST_NOTES} more")
    return FrontendError(Diagnostic(message, hint=hint, notes=tuple(notes)))


def _value(weights: Mapping[str, Any], param: _Wanted) -> Array:
    if param.combine is None:
        _check_joined(weights, param)
    parts = [np.asarray(weights[source]) for source in param.sources]
    if param.combine is not None:
        value = np.asarray(param.combine(*parts))
    elif len(parts) > 1:
        for part in parts:
            _check_kind(param, part.dtype)
        value = np.concatenate(parts)
    else:
        [value] = parts
    if value.shape != param.shape:
        raise _UnfitError(f"expected the shape {param.shape}, found {value.shape}")
    if value.dtype == param.dtype:
        return value
    _check_kind(param, value.dtype)
    return value.astype(param.dtype)


def _check_kind(param: _Wanted, dtype: np.dtype[Any]) -> None:
    """Errors: _UnfitError if the one is of floats, and the other is not."""
    if _kind(dtype) != _kind(param.dtype):
        raise _UnfitError(f"expected {param.dtype}, found {dtype}")


def _check_joined(weights: Mapping[str, Any], param: _Wanted) -> None:
    """Errors: _UnfitError if the tensors that are joined have other shapes than the parameter."""
    shapes = [
        weights.entry(source).shape
        if isinstance(weights, Weights)
        else np.asarray(weights[source]).shape
        for source in param.sources
    ]
    first = shapes[0]
    rows = sum(shape[0] if shape else 0 for shape in shapes)
    joined = first if len(shapes) == 1 else (rows, *first[1:])
    if joined != param.shape or any(shape[1:] != first[1:] for shape in shapes):
        found = first if len(shapes) == 1 else ", ".join(map(str, shapes))
        raise _UnfitError(f"expected the shape {param.shape}, found {found}")


def _kind(dtype: np.dtype[Any]) -> str:
    found = DataType(dtype)
    return "float" if found.is_float else "bool" if dtype.kind == "b" else "integer"
