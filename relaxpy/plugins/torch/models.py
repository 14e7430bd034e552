"""Models of PyTorch for `relaxpy.compile`: exported programs, modules with example arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.ir.core.tensor import as_torch
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.outputs import OUTPUT_TREE, RETURNS_TREE
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.plugins.torch.api import from_exported_program
from relaxpy.support.progress import long_work


def program_module(program: torch.export.ExportedProgram) -> IRModule:
    """The module of an exported program, whose calls return what the model does, if that has names.

    A single result is not in a tuple.

    Errors: as for `from_exported_program`.
    """
    module = from_exported_program(program, unwrap_unit_return_tuple=True)
    if OUTPUT_TREE in module["main"].attrs:
        module["main"] = module["main"].with_attr(RETURNS_TREE, True)
    return module


def file_module(path: str | PathLike[str]) -> IRModule:
    """The module of an exported program that `torch.export.save` wrote.

    Errors:
        FrontendError (also ValueError): the file has something else, or is damaged.
        Those of `from_exported_program`.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        try:
            program = torch.export.load(file)
        except Exception as error:  # of zip, pickle, JSON and all else that PyTorch reads with
            reason = str(error).partition(".")[0]
            raise FrontendError(
                f"{path}: not an exported program, or a damaged one: {reason}",
                hint="torch.export.save(program, path) writes one",
            ) from error
    return program_module(program)


def model_module(
    model: torch.nn.Module,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    dynamic: object = None,
) -> IRModule:
    """The module of a model, exported for inference with example arguments.

    Errors:
        MisuseError (also TypeError, ValueError): there are no arguments, they do not fit the model,
            or `dynamic` does not fit them.
        Those of `torch.export.export` and `from_exported_program`.
    """
    kind = type(model).__name__
    if isinstance(model, torch.jit.ScriptModule):
        raise MisuseError(
            f"{kind} is a module of TorchScript, which PyTorch does not export",
            hint="take the torch module that it was made of",
        )
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        raise MisuseError(
            f"the torch module {kind} is on meta, where weights have no values",
            hint="model.to_empty(device='cpu') makes room for weights to load",
        )
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    signature = inspect.signature(model.forward)
    if args is None and kwargs is None and signature.parameters:
        raise MisuseError(
            f"the torch module {kind} is exported with example arguments, which are missing",
            hint="write args=(x,) with a tensor of the shape and datatype of an input",
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise unexpected(kwargs, "kwargs are example arguments by name")
    examples = tuple(args) if isinstance(args, (tuple, list)) else () if args is None else (args,)
    positional = tree_map(_tensor, examples)
    named = {str(name): tree_map(_tensor, value) for name, value in (kwargs or {}).items()}
    try:
        bound: dict[str, object] = signature.bind(*positional, **named).arguments
    except TypeError as error:
        raise MisuseError(
            f"the example arguments do not fit {kind}.forward{signature}: {error}"
        ) from None
    for name in bound:
        if dynamic and signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            raise MisuseError(
                f"PyTorch exports no dynamic sizes where **{name} takes arguments",
                hint="name them among the parameters of forward, as in a module around this one",
            )
    sizes = None if dynamic is None else _Sizes().of_arguments(dynamic, bound)
    with _evaluating(model), long_work("exporting", delay=0) as work:
        work.now("by PyTorch")  # which says nothing until it is done
        program = torch.export.export(model, positional, named, dynamic_shapes=sizes)
    return program_module(program)


def _tensor(leaf: object) -> object:
    """An example argument for PyTorch: an array becomes a tensor."""
    if not isinstance(leaf, (np.ndarray, np.generic)):
        return leaf
    array = np.array(leaf)
    tensor = as_torch(array.astype(array.dtype.newbyteorder("="), copy=False))
    if not isinstance(tensor, torch.Tensor):
        raise MisuseError(f"PyTorch has no tensors of {array.dtype}, found an example with them")
    return tensor


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


class _Sizes:
    """The `dynamic_shapes` of `torch.export.export`, in which a name of a size is a dimension."""

    def __init__(self) -> None:
        self._dims: dict[str, Any] = {}
        self._found: dict[str, tuple[int, str]] = {}
        """The size of each name in the example, and where it is first."""

    def of_arguments(self, dynamic: Any, bound: Mapping[str, object]) -> object:
        """Sizes of all arguments: those that are not mentioned have fixed ones."""
        if isinstance(dynamic, _OF_TORCH):
            return dynamic
        if isinstance(dynamic, (tuple, list)):
            if len(dynamic) != len(bound):
                raise MisuseError(
                    f"dynamic is for {len(dynamic)} arguments, expected {len(bound)}: "
                    f"{', '.join(bound)}"
                )
            dynamic = dict(zip(bound, dynamic, strict=True))
        if not isinstance(dynamic, Mapping):
            raise unexpected(dynamic, "dynamic names sizes of arguments", hint=_EXAMPLE)
        for name in dynamic:
            if name not in bound:
                known = [*bound]
                hint = close_names(str(name), known) or f"its arguments are {', '.join(known)}"
                if isinstance(name, int) and known:
                    hint += ": write {" + f"{known[0]!r}: {dynamic!r:.60}" + "}"
                raise MisuseError(
                    f"dynamic names {name!r:.60}, which is not an argument of the model", hint=hint
                )
        return {name: self._of(dynamic.get(name), value, name) for name, value in bound.items()}

    def _of(self, spec: Any, value: Any, path: str) -> object:
        """The sizes of an argument, or of a part of it, whose path an error names."""
        if isinstance(value, torch.Tensor):
            return self._of_tensor(spec, value, path)
        if isinstance(spec, Mapping):
            items = value if isinstance(value, Mapping) else {}
            return {
                key: self._of(item, items.get(key), f"{path}[{key!r:.60}]")
                for key, item in spec.items()
            }
        if isinstance(spec, (tuple, list)):
            values = value if isinstance(value, (tuple, list)) else ()
            parts: list[Any] = [
                self._of(item, part, f"{path}[{number}]")
                for number, (item, part) in enumerate(zip_longest(spec, values[: len(spec)]))
            ]
            # A named tuple takes its fields one by one.
            kind: Any = type(spec)
            return kind(*parts) if hasattr(spec, "_fields") else kind(parts)
        return spec

    def _of_tensor(self, spec: Any, tensor: torch.Tensor, path: str) -> object:
        if spec is None or isinstance(spec, type(torch.export.Dim.AUTO)):
            return spec
        is_listed = isinstance(spec, (tuple, list))
        axes = dict(enumerate(spec)) if is_listed else spec
        if not isinstance(axes, Mapping):
            raise unexpected(spec, f"dynamic has the sizes of {path} by axis", hint=_EXAMPLE)
        count = tensor.ndim
        if (is_listed and len(axes) != count) or any(
            type(axis) is not int or not -count <= axis < count for axis in axes
        ):
            raise MisuseError(
                f"dynamic has axes of {path} that are not there: {spec!r:.60}, the example has "
                f"{count} of them",
                hint=_EXAMPLE,
            )
        # PyTorch would not relate the name of a size of a negative axis to others.
        return {
            axis % count: self._size(size, tensor.shape[axis], path) for axis, size in axes.items()
        }

    def _size(self, size: object, found: int, path: str) -> object:
        """A dimension, for its name; other sizes stay."""
        if size is None:
            return torch.export.Dim.STATIC
        if isinstance(size, str):
            if not size.isidentifier():
                raise MisuseError(f"a size has an identifier as its name, found {size!r:.60}")
            first, other = self._found.setdefault(size, (found, path))
            if first != found:
                raise MisuseError(
                    f"the size {size} is {first} in {other} and {found} in {path} of the example",
                    hint="sizes of one name are equal: name the other one differently",
                )
            size = self._dims.setdefault(size, torch.export.Dim(size))
        if found < 2 and isinstance(size, torch.export.Dim):
            raise MisuseError(
                f"the size {size.__name__} of {path} is {found} in the example, and PyTorch takes "
                "0 and 1 for fixed sizes",
                hint="give an example whose size is 2 or more: it may be any number in calls",
            )
        return size


_EXAMPLE = '{"x": {0: "batch"}}'
_OF_TORCH = torch.export.ShapesCollection, torch.export.AdditionalInputs
"""Other classes that `dynamic` may have, as in `torch.export.export`."""
