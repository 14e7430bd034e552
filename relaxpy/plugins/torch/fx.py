"""Graphs that `torch.fx.symbolic_trace` makes, exported for inputs of given shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.plugins.torch.api import converters, import_exported
from relaxpy.plugins.torch.importer import Importer, Options
from relaxpy.plugins.torch.program import output_of
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing


@user_facing
def from_fx(
    model: torch.fx.GraphModule,
    input_info: Sequence[tuple[Sequence[Any], str]],
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Callable[[Any, Importer], Any]] | None = None,
) -> IRModule:
    """The module whose function `main` computes a traced module.

    `input_info` has the shape and the datatype of each input; a name or a `tir.Var` in a shape is
    a symbolic size. The parameters are `inp_0`, `inp_1`, …, and with `keep_params_as_input` those
    of the model, whose values are then the attribute `params`. The result is a tuple where the
    module returns several values, which may be nested.

    Errors:
        OpNotImplemented (also ValueError, NotImplementedError): nodes cannot be imported; the
            message has each with the reason.
        MisuseError (also TypeError): `model` is not a GraphModule, or the form of `input_info` is
            wrong.
    """
    if not isinstance(model, torch.fx.GraphModule):
        raise MisuseError(
            f"expected a GraphModule, found {type(model).__name__}",
            about=model,
            hint="torch.fx.symbolic_trace(model) gives one",
        )
    inputs, sizes, names = _examples(input_info)
    (output,) = output_of(model.graph).args
    places = sum(node.op == "placeholder" for node in model.graph.nodes)
    if places != len(inputs):
        raise MisuseError(
            f"input_info has the inputs of the module: expected {places}, found {len(inputs)}",
            about=input_info,
        )
    options = Options(
        keep_params_as_input,
        no_bind_return_tuple,
        converters(custom_convert_map),
        "inp_",
        isinstance(output, (tuple, list, dict)) and not unwrap_unit_return_tuple,
        sizes=names,
    )
    try:
        exported = torch.export.export(model, tuple(inputs), dynamic_shapes=sizes)
    except Exception as error:  # of PyTorch, which meets what it cannot do with many kinds
        raise FrontendError(
            f"PyTorch cannot export the module for these inputs: {error!s:.300}"
        ) from error
    options = replace(options, form=exported.call_spec.out_spec)
    return import_exported(exported, options, "main")


def _examples(input_info: Sequence[Any]) -> tuple[list[Any], Any, dict[tuple[int, int], str]]:
    """Tensors of these shapes, which of their sizes are symbolic, and the names of these."""
    names: dict[tuple[int, int], str] = {}
    inputs: list[Any] = []
    shapes: list[dict[int, Any]] = []
    known: dict[object, tuple[Any, int]] = {}
    if not isinstance(input_info, (list, tuple)):
        raise MisuseError(
            f"input_info is a list of inputs, found {type(input_info).__name__}",
            about=input_info,
            hint='[((2, "n"), "float32")]',
        )
    for entry in input_info:
        shape, kind = _described(entry)
        numbers: list[int] = []
        dynamic: dict[int, Any] = {}
        for axis, size in enumerate(shape):
            if isinstance(size, (str, tir.Var)):
                text = size if isinstance(size, str) else size.name
                if text not in known:
                    # sizes of examples differ, so that no two of them are taken for one
                    known[text] = torch.export.Dim(text), 3 + 2 * len(known)
                dynamic[axis], number = known[text]
                names[len(shapes), axis] = text
                numbers.append(number)
            else:
                numbers.append(size)
        shapes.append(dynamic)
        inputs.append(torch.zeros(numbers, dtype=kind))
    return inputs, (tuple(shapes) if known else None), names


def _described(entry: Any) -> tuple[Sequence[Any], Any]:
    """The shape and PyTorch's datatype of an input.

    Errors:
        MisuseError: they do not describe one.
    """
    match entry:
        case (list() | tuple() as shape, dtype) if all(map(_is_size, shape)):
            kind = getattr(torch, str(dtype).removeprefix("torch."), None)
            if isinstance(kind, torch.dtype):
                return shape, kind
    raise unexpected(
        entry,
        "an input is described by its shape and its datatype",
        hint="a size is a number from 0 on, a name or a tir.Var",
    )


def _is_size(size: Any) -> bool:
    if isinstance(size, int):
        return size >= 0
    return isinstance(size, tir.Var) or (isinstance(size, str) and size.isidentifier())
