"""The communication between the workers of a program, predicted; and their parts of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, Span, counted
from relaxpy.ir import hooks
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.distributed import current_workers, split
from relaxpy.ir.passes.distributed.propagate_sharding import PropagateSharding
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import shape_of
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import Table


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


Bytes: TypeAlias = PrimExpr | int | None
_WIDEST = 50
"""The characters of an expression that a table or a message shows."""


@dataclass(frozen=True)
class Collective:
    """A call of a collective operator: its workers, and what the busiest sends or receives.

    The bytes are an expression of the sizes of the program, or None where a shape is not known.
    `steps` are messages that wait for each other.
    """

    op: str
    sinfo: rx.StructInfo | None
    workers: int
    steps: int
    sent: Bytes
    span: Span | None


@dataclass(frozen=True)
class Communication:
    """The collective operators of a function that `workers` run; it prints as a table."""

    workers: int
    calls: tuple[Collective, ...]

    @property
    def sent(self) -> Bytes:
        """The bytes of all calls; None if those of one are not known."""
        total: Bytes = 0
        for call in self.calls:
            total = _plus(total, call.sent)
        return total

    @user_facing
    def seconds(self, latency: float, bandwidth: float) -> float:
        """The time of all calls, one after the other, if nothing else uses the network.

        Units: seconds of a message without content, bytes in a second, and seconds.

        Errors:
            MisuseError (also TypeError, ValueError): the bytes depend on sizes that are not known,
                or a number is not one.
        """
        if not (latency >= 0 and bandwidth > 0):
            raise MisuseError(
                f"latency is at least 0 and bandwidth more, found {latency} and {bandwidth}"
            )
        if not isinstance(self.sent, int):
            raise MisuseError(
                f"the workers send {_shown(self.sent)} bytes, which is not a number",
                hint="BindSymbolicVars replaces variables of shapes by numbers",
                about=self,
            )
        return sum(call.steps for call in self.calls) * latency + self.sent / bandwidth

    @property
    def table(self) -> Table:
        """The calls with their lines, and the sum."""
        rows = [
            (
                call.op,
                _clipped(str(call.sinfo)),
                "" if call.span is None else str(call.span.line),
                str(call.workers),
                _shown(call.sent),
            )
            for call in self.calls
        ]
        rows.append((counted(len(rows), "call"), "", "", "", _shown(self.sent)))
        return Table(("operator", "tensor", "line", "workers", "bytes"), tuple(rows), 3, 1)

    @override
    def __str__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table.html()


@user_facing
def communication(
    mod: IRModule, workers: int | None = None, func_name: str = "main"
) -> Communication:
    """The communication between `workers` workers in one call of a function.

    `mod` is the program of each worker, as the pipeline "distributed" makes it. By default it says
    how many workers there are, by its mesh or by `num_workers` of a call; otherwise they are those
    of this process. Calls in branches
    and in local functions count once. An `allreduce` of n bytes among p workers is counted as
    2 n (p - 1) / p bytes in 2 log2(p) steps, and others as the algorithms of MPI for large tensors.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such Relax function.
    """
    func = mod.functions_by_name.get(func_name)
    if not isinstance(func, rx.Function):
        raise MisuseError(f"the module has no Relax function {func_name!r:.60}", about=mod)
    calls = [
        (node, node.op.name, node.op.record.sends)
        for node in walk(func.body)
        if isinstance(node, rx.Call) and isinstance(node.op, Op) and node.op.record.sends
    ]
    if workers is None:
        meshes = (i for infos in mod.global_infos.values() for i in infos)
        sizes = [math.prod(mesh.shape) for mesh in meshes if isinstance(mesh, DeviceMesh)]
        counts = (call.attrs.get("num_workers") for call, _, _ in calls)
        sizes += [count for count in counts if isinstance(count, int)]
        workers = max(sizes) if sizes else current_workers().size
    found = [_collective(call, name, sends, workers) for call, name, sends in calls]
    return Communication(workers, tuple(found))


def _collective(call: rx.Call, name: str, sends: tuple[int, int], everybody: int) -> Collective:
    among = call.attrs.get("among")
    count = call.attrs.get("num_workers", everybody) if among is None else among[0]
    sinfo = call.args[0].struct_info
    times, of_all = sends
    share = Fraction(times * (count - 1) * (count if of_all else 1), count)
    steps = times * (count - 1).bit_length()
    sent = _bytes(sinfo, share)
    return Collective(name.removeprefix("relax."), sinfo, count, steps, sent, call.span)


def _shown(size: Bytes) -> str:
    return "unknown" if size is None else _clipped(str(size))


def _clipped(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _bytes(sinfo: rx.StructInfo | None, share: Fraction) -> Bytes:
    dims = shape_of(sinfo)
    if dims is None or not isinstance(sinfo, rx.TensorStructInfo):
        return None
    size: PrimExpr = ops.const(sinfo.dtype.numpy().itemsize * share.numerator, "int64")
    for dim in dims:
        size = size * dim
    return _tidy(size // share.denominator)


def _plus(a: Bytes, b: Bytes) -> Bytes:
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return _tidy(ops.cast_to(a, "int64") + ops.cast_to(b, "int64"))


def _tidy(size: PrimExpr) -> PrimExpr | int:
    found = Analyzer().simplify(size)
    return found.value if isinstance(found, IntImm) else found
