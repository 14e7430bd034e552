"""`from_exported_program`: the importer as TVM has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.module import IRModule
from relaxpy.plugins.importing.unsupported import FrontendError, UnsupportedError
from relaxpy.plugins.torch.arrays import refuse_form
from relaxpy.plugins.torch.decompose import decomposed, functional
from relaxpy.plugins.torch.importer import Importer, Options, imported
from relaxpy.plugins.torch.program import of_exported
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
    program = of_exported(functional(exported), options.bound)
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
