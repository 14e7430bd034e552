"""Models of PyTorch for `relaxpy.compile`: exported programs, modules with example arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.ir.module import IRModule
from relaxpy.plugins.torch.api import from_exported_program


def program_module(program: torch.export.ExportedProgram) -> IRModule:
    """The module of an exported program; a single result is not a tuple.

    Errors: as for `from_exported_program`.
    """
    return from_exported_program(program, unwrap_unit_return_tuple=True)


def file_module(path: str | PathLike[str]) -> IRModule:
    """The module of an exported program that `torch.export.save` wrote.

    Errors: as for `torch.export.load` and `from_exported_program`.
    """
    with open(path, "rb"):  # whose error is that of all files
        return program_module(torch.export.load(path))


def model_module(
    model: torch.nn.Module,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    dynamic: Mapping[str, object] | Sequence[object] | None = None,
) -> IRModule:
    """The module of a model, exported for inference with example arguments.

    Errors:
        MisuseError (also TypeError, ValueError): there are no arguments, or `dynamic` names what
            the model does not have.
        Those of `torch.export.export` and `from_exported_program`.
    """
    if args is None and kwargs is None:
        raise MisuseError(
            f"the torch module {type(model).__name__} is exported with example arguments, which "
            "are missing",
            hint="write args=(x,) with a tensor of the shape and datatype of an input",
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise unexpected(kwargs, "kwargs are example arguments by name")
    examples = tuple(args) if isinstance(args, (tuple, list)) else () if args is None else (args,)
    positional = tree_map(_tensor, examples)
    named = {str(name): tree_map(_tensor, value) for name, value in (kwargs or {}).items()}
    sizes = None if dynamic is None else _sizes(model, dynamic, len(positional), list(named))
    with _evaluating(model):
        program = torch.export.export(model, positional, named, dynamic_shapes=sizes)
    return program_module(program)


def _tensor(leaf: object) -> object:
    """An example argument for PyTorch: an array becomes a tensor."""
    return torch.from_numpy(leaf.copy()) if isinstance(leaf, np.ndarray) else leaf


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put all parts of a model in evaluation mode, and restore the mode of each."""
    training = [part for part in model.modules() if part.training]
    try:
        for part in training:
            part.training = False
        yield
    finally:
        for part in training:
            part.training = True


def _sizes(
    model: torch.nn.Module, dynamic: object, positional: int, named: Sequence[str]
) -> dict[str, object] | tuple[object, ...]:
    """The `dynamic_shapes` of `torch.export.export`, in which a name of a size is a dimension.

    Arguments that are not mentioned have fixed sizes.
    """
    dims: dict[str, Any] = {}

    def dimension(value: object) -> object:
        if isinstance(value, str):
            if not value.isidentifier():
                raise MisuseError(f"a size has an identifier as its name, found {value!r:.60}")
            return dims.setdefault(value, torch.export.Dim(value))
        if isinstance(value, Mapping):
            return {key: dimension(item) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(dimension(item) for item in value)
        return value

    if isinstance(dynamic, (tuple, list)):
        return tuple(dimension(value) for value in dynamic)
    if not isinstance(dynamic, Mapping):
        raise unexpected(dynamic, "dynamic names sizes of arguments", hint='{"x": {0: "batch"}}')
    known = [*_parameters(model, positional), *named]
    for name in dynamic:
        if name not in known:
            raise MisuseError(
                f"dynamic names {name!r:.60}, which is not an argument of the model",
                hint=close_names(str(name), known) or f"its arguments are {', '.join(known)}",
            )
    return {name: dimension(dynamic.get(name)) for name in known}


def _parameters(model: torch.nn.Module, count: int) -> list[str]:
    """The names of the first parameters of the model's `forward`; a variadic one has one name."""
    return [*inspect.signature(model.forward).parameters][:count]
