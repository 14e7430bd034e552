"""`from_exported_program`: the importer as TVM has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.importing.unsupported import FrontendError, UnsupportedError
from relaxpy.plugins.torch.arrays import refuse_form
from relaxpy.plugins.torch.decompose import decomposed, functional
from relaxpy.plugins.torch.fx_graph import of_exported, output_of
from relaxpy.plugins.torch.importer import Importer, Options, imported
from relaxpy.plugins.torch.mutation import Followed
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing
from relaxpy.support.progress import long_work


@user_facing
def from_exported_program(
    exported_program: torch.export.ExportedProgram,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Callable[[Any, Importer], Any]] | None = None,
    run_ep_decomposition: bool = False,
) -> IRModule:
    """The module whose function `main` computes what an exported program does.

    The parameters of `main` are the inputs of the program in the order of its signature, and with
    `keep_params_as_input` its parameters, whose values are then the attribute `params`
    (`detach_params` takes them out). Constants are over the memory of PyTorch's tensors, but copies
    of those that the program changes. The result is a tuple: the new values of buffers and inputs
    that the program changes, then what it returns; with `unwrap_unit_return_tuple` a single one
    stands by itself. Sizes that the program names are shape variables of these names; where the
    program is right for some sizes only, `main` begins with assertions.

    `custom_convert_map` has converters of the caller's by the names of operators
    (`"relu.default"`); each takes a node and the importer. With `run_ep_decomposition` the program
    is first decomposed to Core ATen; otherwise only operators without a converter are.

    Errors:
        OpNotImplemented (also ValueError, NotImplementedError): nodes cannot be imported; the
            message has each with the reason.
        FrontendError (also ValueError): the program has objects that Relax does not have.
    """
    if not isinstance(exported_program, torch.export.ExportedProgram):
        raise MisuseError(
            f"expected an ExportedProgram, found {type(exported_program).__name__}",
            about=exported_program,
            hint="torch.export.load(path) reads one from a file"
            if isinstance(exported_program, (str, PathLike))
            else "torch.export.export(model, example_args) gives one",
        )
    options = Options(
        keep_params_as_input,
        no_bind_return_tuple,
        converters(custom_convert_map),
        unit_tuple=not unwrap_unit_return_tuple,
    )
    if run_ep_decomposition:
        exported_program = decomposed(exported_program, None)
    return import_exported(exported_program, options, "main")


def converters(custom: Any) -> Mapping[str, Callable[[Any, Importer], Any]]:
    """The caller's converters.

    Errors:
        MisuseError: they are not functions by names of operators.
    """
    if custom is None:
        return {}
    if not isinstance(custom, Mapping) or not all(
        isinstance(name, str) and callable(function) for name, function in custom.items()
    ):
        raise unexpected(
            custom,
            "custom_convert_map has functions by names of operators",
            hint='{"relu.default": function}',
        )
    return dict(custom)


def import_exported(
    exported: Any, options: Options, name: str, mod: IRModule | None = None
) -> IRModule:
    """The module with the function of a program and the functions of `mod`, which is not changed.

    Errors:
        OpNotImplemented: nodes cannot be imported.
        FrontendError: an input is not a tensor that Relax has.
    """
    _refuse_inputs(exported)
    followed = Followed()
    program = of_exported(functional(exported, followed), options.bound, followed)
    with long_work("importing"):
        return imported(program, options, name, mod)[1]


def _refuse_inputs(exported: Any) -> None:
    for name, constant in exported.constants.items():
        if isinstance(constant, torch.Tensor) and is_functorch_wrapped_tensor(constant):
            raise FrontendError(
                f"PyTorch exported {name!r}, which torch.func has while it differentiates, as a "
                "constant",
                hint="import the function itself; relax.transform.Gradient differentiates it",
            )
    for node in exported.graph.find_nodes(op="placeholder"):
        meta = node.meta.get("val")
        try:
            if isinstance(meta, torch.Tensor):
                refuse_form(meta)
        except UnsupportedError as error:
            raise FrontendError(f"the input {node.name!r} cannot be imported: {error}") from None


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
    """The shape and PyTorch's datatype of an input."""
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
