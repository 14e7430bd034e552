"""The parts of tensors that a worker has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError, counted
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.op.distributed import Array, current_workers, split
from relaxpy.ir.relax.transform.distributed.propagate_sharding import PropagateSharding
from relaxpy.support.entry import user_facing


@user_facing
def own_part(whole: Array, placed: DTensorStructInfo) -> Array:
    """The part of a tensor that this worker has of a distributed one.

    The number of a worker is its position in the mesh, in row-major order. Of an array that is a
    mapped file, only this part is read.

    Errors:
        MisuseError: the mesh has other workers.
        RuntimeCheckError: a size is not a multiple of the number of parts.
    """
    workers, mesh = current_workers(), placed.device_mesh
    count = int(np.prod(mesh.shape))
    if workers.size != count:
        raise MisuseError(f"the mesh {mesh} has {count} workers, there are {workers.size}")
    part = np.asarray(whole)
    for k, spec in enumerate(placed.placement.dim_specs):
        if spec.kind == "sharding":
            place = workers.rank // mesh.stride(k) % mesh.shape[k]
            part = split(part, mesh.shape[k], spec.axis)[place]
    return np.asarray(part, order="C")


@user_facing
def own_parts(
    mod: IRModule,
    values: Sequence[Any] | Mapping[str, Any] | str | PathLike[str],
    func_name: str = "main",
) -> list[Array]:
    """The parts that this worker has of the parameters of a function after the first `num_input`.

    `mod` has annotations of how tensors are split. `values` are the whole tensors in the order of
    the parameters, or by their names, or the file or folder of weights that has them, of which no
    more than the parts is read. Floats are converted to the datatypes of the parameters. The result
    is what the function takes that the pipeline `get_pipeline("distributed", own_params=True)`
    makes.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such function with `num_input`, or
            there are other values, also of other shapes or datatypes.
        FrontendError (also ValueError): a file is damaged, or its kind is not known.
        FileNotFoundError: there is no such file.
    """
    func = PropagateSharding()(mod).functions_by_name.get(func_name)
    count = func.attrs.get("num_input") if isinstance(func, rx.Function) else None
    if not isinstance(func, rx.Function) or not isinstance(count, int):
        raise MisuseError(
            f"the module has no Relax function {func_name!r:.60} with the attribute num_input",
            about=mod,
        )
    given: Sequence[Any] | Mapping[str, Any] = (
        hooks.call("open_weights", values) if isinstance(values, (str, PathLike)) else values
    )
    params = func.params[count:]
    names = [param.name_hint for param in params]
    found: list[Any] = (
        [given.get(name) for name in names] if isinstance(given, Mapping) else list(given)
    )
    missing = [name for name, value in zip(names, found, strict=False) if value is None]
    if len(found) != len(params) or missing:
        raise MisuseError(
            f"{func_name} takes {counted(len(params), 'tensor')} of weights, "
            + (f"there is none for {missing}" if missing else f"found {len(found)}"),
            about=values,
        )
    return [_part(param, np.asarray(value)) for param, value in zip(params, found, strict=True)]


def _part(param: rx.Var, whole: Array) -> Array:
    """This worker's part of the value of a parameter, in the datatype of the parameter."""
    placed = param.struct_info
    sinfo = placed.tensor_sinfo if isinstance(placed, DTensorStructInfo) else placed
    dtype = whole.dtype
    if isinstance(sinfo, rx.TensorStructInfo):
        shape = sinfo.get_shape()
        sizes = whole.shape if shape is None else [getattr(d, "value", None) for d in shape]
        fits = len(sizes) == whole.ndim and all(
            size in (None, own) for size, own in zip(sizes, whole.shape, strict=True)
        )
        dtype = whole.dtype if sinfo.dtype.is_void else sinfo.dtype.numpy()
        are_floats = DataType(dtype).is_float and DataType(whole.dtype).is_float
        if not fits or (dtype != whole.dtype and not are_floats):
            raise MisuseError(
                f"weight {param.name_hint} is {sinfo}, found {whole.dtype} of shape {whole.shape}",
                about=whole,
            )
    part = own_part(whole, placed) if isinstance(placed, DTensorStructInfo) else whole
    return part.astype(dtype, copy=False)
