"""`from_onnx`: the importer as TVM has it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from relaxpy.errors import MisuseError
from relaxpy.ir.module import IRModule
from relaxpy.plugins.onnx.importer import Importer, Options
from relaxpy.plugins.onnx.view import read_model
from relaxpy.support.entry import user_facing
from relaxpy.support.progress import long_work


@user_facing
def from_onnx(
    model: onnx.ModelProto | str | bytes | os.PathLike[str],
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule:
    """The module whose function `main` computes an ONNX model.

    `model` is a ModelProto, the path of a file (whose external data are mapped from its folder), or
    the bytes of one. The parameters of `main` are the inputs of the graph, and with
    `keep_params_in_input` its initializers, whose values are then the attribute `params`
    (`detach_params` takes them out). `shape_dict` replaces shapes of inputs by name, `dtype_dict`
    their datatypes, `opset` the version of the default domain. Sizes that the model names are shape
    variables of these names. `sanitize_input_names` makes names of inputs such that Relax can
    print them.

    Errors:
        OpNotImplemented (also ValueError, NotImplementedError): nodes cannot be imported; the
            message has each with the reason.
        FrontendError (also ValueError): the model is damaged, or not well-formed.
    """
    shapes = dict(shape_dict or {})
    dtypes = dict(dtype_dict) if isinstance(dtype_dict, Mapping) else {}
    read = read_model(model, opset)
    unknown = [name for name in (*shapes, *dtypes) if name not in read.graph.inputs]
    if unknown:
        raise MisuseError(
            f"the model has no input {unknown[0]!r}",
            hint=f"its inputs are {', '.join(read.graph.inputs) or 'none'}",
        )
    options = Options(shapes, dtypes, keep_params_in_input, sanitize_input_names)
    with long_work("importing"):
        return Importer(read, options).module()
