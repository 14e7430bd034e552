"""The parts of tensors that a worker has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, counted
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.op.workers import Array, current_workers, split
from relaxpy.ir.relax.transform.distributed.propagate_sharding import PropagateSharding


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
    return np.ascontiguousarray(part)


@user_facing
def own_parts(
    mod: IRModule, values: Sequence[Any] | Mapping[str, Any], func_name: str = "main"
) -> list[Array]:
    """The parts that this worker has of the parameters of a function after the first `num_input`.

    `mod` has annotations of how tensors are split. `values` are the whole tensors in the order of
    the parameters, or by their names, such as those that `open_weights` maps. The result is what
    the function takes that the pipeline `get_pipeline("distributed", own_params=True)` makes.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such function with `num_input`, or
            there are other values.
    """
    func = PropagateSharding()(mod).functions_by_name.get(func_name)
    count = func.attrs.get("num_input") if isinstance(func, rx.Function) else None
    if not isinstance(func, rx.Function) or not isinstance(count, int):
        raise MisuseError(
            f"the module has no Relax function {func_name!r:.60} with the attribute num_input",
            about=mod,
        )
    params = func.params[count:]
    names = [param.name_hint for param in params]
    found: list[Any] = (
        [values.get(name) for name in names] if isinstance(values, Mapping) else list(values)
    )
    missing = [name for name, value in zip(names, found, strict=False) if value is None]
    if len(found) != len(params) or missing:
        raise MisuseError(
            f"{func_name} takes {counted(len(params), 'tensor')} of weights, "
            + (f"there is none for {missing}" if missing else f"found {len(found)}"),
            about=values,
        )
    return [
        own_part(value, param.struct_info)
        if isinstance(param.struct_info, DTensorStructInfo)
        else value
        for value, param in zip(found, params, strict=True)
    ]
