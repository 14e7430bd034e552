"""The axes of the operands and results of a call that are split together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast

from relaxpy.errors import TransformError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import (
    DeviceMesh,
    DTensorStructInfo,
    Placement,
    PlacementSpec,
)
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.analysis.index_map import Axis, AxisGroups
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass

Label: TypeAlias = Axis | int
Labels: TypeAlias = Sequence[Label | None]


@dataclass(frozen=True)
class CallAxes:
    """The labels of the axes of a call: those with one label are split together.

    An axis without a label has to be whole on every device. A label of operands only is that of
    axes that are reduced. `is_divided` says whether devices can compute on shards of the labelled
    axes, and combine partial results.
    """

    operands: tuple[tuple[rx.Expr, Labels], ...]
    results: tuple[Labels, ...]
    is_divided: Callable[[Label], bool]


def whole(sinfo: rx.StructInfo) -> rx.StructInfo:
    """The struct info with whole tensors instead of distributed ones."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return rx.TupleStructInfo(tuple(map(whole, sinfo.fields)))
    return sinfo.tensor_sinfo if isinstance(sinfo, DTensorStructInfo) else sinfo


def fields_of(sinfo: rx.StructInfo | None) -> tuple[rx.StructInfo | None, ...]:
    """The fields of a tuple, or the one value."""
    return sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)


def axes_of_call(call: rx.Call, result: rx.StructInfo | None, mod: IRModule) -> CallAxes | None:
    """The labels of the axes of the call of an operator, None for other calls."""
    if not isinstance(call.op, Op) or result is None:
        return None
    result = whole(result)
    if call.op.name == "relax.call_tir" and (found := kernel_of(call, mod)) is not None:
        return _axes_of_kernel(call, *found)
    rule = call.op.record.sharding
    sinfos = [arg.struct_info for arg in call.args]
    wholes = [whole(sinfo) for sinfo in sinfos if sinfo is not None]
    if rule is None or len(wholes) < len(sinfos) or not isinstance(result, rx.TensorStructInfo):
        return whole_axes(call, result)
    labels: Sequence[Labels] = rule(call, wholes, result)
    computed: set[Label | None] = {label for own in labels for label in own}
    kept: Labels = tuple(axis if axis in computed else None for axis in range(max(result.ndim, 0)))
    is_combined = _is_combined(call, wholes[0], result)
    return CallAxes(
        tuple(zip(call.args, labels, strict=False)),
        (kept,),
        lambda label: label in kept or is_combined,
    )


_COMBINED = {"sum", "prod", "max", "min", "matmul"}
_MEANS = {"mean", "variance", "std"}


def _is_combined(call: rx.Call, operand: rx.StructInfo, result: rx.TensorStructInfo) -> bool:
    """Return whether partial results of an operator, or of simpler ones, can be combined."""
    assert isinstance(call.op, Op)
    name = call.op.name.removeprefix("relax.")
    if name in _MEANS and isinstance(operand, rx.TensorStructInfo):
        return result.dtype.is_float and reduced_count(call, operand) is not None
    return name in _COMBINED


def reduced_count(call: rx.Call, operand: rx.TensorStructInfo) -> int | None:
    """The number of elements that a reduction combines to one, if known."""
    dims = operand.get_shape()
    axes = cast("int | Sequence[int] | None", call.attrs["axis"])
    if dims is None:
        return None
    taken = range(len(dims)) if axes is None else ([axes] if isinstance(axes, int) else axes)
    sizes = [dims[axis] for axis in taken]
    known = [size.value for size in sizes if isinstance(size, IntImm)]
    return math.prod(known) if len(known) == len(sizes) else None


def whole_axes(call: rx.Call, result: rx.StructInfo | None) -> CallAxes:
    """The labels of a call that needs all tensors whole: none."""
    operands: tuple[tuple[rx.Expr, Labels], ...] = tuple((arg, ()) for arg in tensors_of(call))
    return CallAxes(operands, ((),) * len(fields_of(result)), lambda _: False)


def _axes_of_kernel(call: rx.Call, groups: AxisGroups, buffers: Sequence[Buffer]) -> CallAxes:
    inputs = kernel_inputs(call)
    labels = [[groups.group(b, axis) for axis in range(len(b.shape))] for b in buffers]
    results = tuple(labels[len(inputs) :])

    def is_divided(label: Label) -> bool:
        tensors = [*labels[: len(inputs)], *results]
        if any(sum(one == label for one in own) > 1 for own in tensors):
            return False
        try:
            is_reduced = bool(groups.reductions({label}))  # type: ignore[arg-type]
        except TransformError:
            return False
        return is_reduced == all(label not in own for own in results) and not (
            is_reduced and len(results) > 1
        )

    return CallAxes(tuple(zip(inputs, labels, strict=False)), results, is_divided)


def tensors_of(call: rx.Call) -> list[rx.Expr]:
    """The operands of a call that are tensors, also in tuples."""
    operands = [
        f for arg in call.args for f in (arg.fields if isinstance(arg, rx.Tuple) else (arg,))
    ]
    kinds = (rx.TensorStructInfo, DTensorStructInfo)
    return [arg for arg in operands if isinstance(arg.struct_info, kinds)]


def kernel_inputs(call: rx.Call) -> tuple[rx.Expr, ...]:
    """The inputs of a call of a kernel."""
    inputs = call.args[1]
    return inputs.fields if isinstance(inputs, rx.Tuple) else (inputs,)


def kernel_of(call: rx.Call, mod: IRModule) -> tuple[AxisGroups, list[Buffer]] | None:
    """The axes of the kernel that a call names, and the buffers of its inputs and outputs."""
    callee = call.args[0]
    func = mod.find_function(callee.name_hint) if isinstance(callee, rx.GlobalVar) else None
    if not isinstance(func, PrimFunc):
        return None
    buffers = [func.buffer_map[p] for p in func.params if p in func.buffer_map]
    return AxisGroups(func), buffers


# ---- placements of the computation


@dataclass(frozen=True)
class Division:
    """The label that is split along each axis of a mesh, None if every device computes all."""

    mesh: DeviceMesh
    along: tuple[Label | None, ...]

    def placement(self, labels: Labels) -> Placement:
        """The placement of a tensor whose axes have these labels."""
        return Placement(
            tuple(
                PlacementSpec.replica()
                if label is None or label not in labels
                else PlacementSpec.sharding(list(labels).index(label))
                for label in self.along
            )
        )


def division(axes: CallAxes, results: Sequence[DTensorStructInfo], mesh: DeviceMesh) -> Division:
    """The labels that devices split, for these desired results.

    Along an axis of the mesh they split an axis that is split in a result and in an operand;
    otherwise a reduced axis that is split in an operand; otherwise one that is split in a result.
    """
    operands = [
        (arg.struct_info, labels)
        for arg, labels in axes.operands
        if isinstance(arg.struct_info, DTensorStructInfo) and arg.struct_info.device_mesh == mesh
    ]
    wanted = list(zip(results, axes.results, strict=False))
    kept = {label for labels in axes.results for label in labels}
    along: list[Label | None] = []
    for k in range(len(mesh.shape)):
        there = _split_along(operands, k)
        candidates = [label for label in _split_along(wanted, k) if label in there]
        candidates += [label for label in there if label not in kept]
        candidates += _split_along(wanted, k)
        found = (
            label
            for label in candidates
            if axes.is_divided(label)
            and _divides([*operands, *wanted], label, _count(mesh, along, label) * mesh.shape[k])
        )
        along.append(next(found, None))
    return Division(mesh, tuple(along))


def _split_along(placed: Iterable[tuple[DTensorStructInfo, Labels]], k: int) -> list[Label]:
    """The labels of the axes that tensors split along an axis of the mesh."""
    specs = [(sinfo.placement.dim_specs[k], labels) for sinfo, labels in placed]
    found = [
        labels[spec.axis]
        for spec, labels in specs
        if spec.kind == "sharding" and spec.axis < len(labels)
    ]
    return [label for label in found if label is not None]


def _count(mesh: DeviceMesh, along: Sequence[Label | None], label: Label) -> int:
    """The number of shards of the axes with a label, so far."""
    count = 1
    for size, found in zip(mesh.shape, along, strict=False):
        count *= size if found == label else 1
    return count


def _divides(placed: Iterable[tuple[DTensorStructInfo, Labels]], label: Label, count: int) -> bool:
    """Return whether the axes with a label can be split into this many shards.

    An unknown size has to be that of all these axes and not of others, for which a kernel would get
    another number; it is checked at run time.
    """
    sizes: list[PrimExpr] = []
    others: list[PrimExpr] = []
    for sinfo, labels in placed:
        dims = sinfo.tensor_sinfo.get_shape()
        if dims is None and label in labels:
            return False
        for axis, dim in enumerate(dims or ()):
            is_labelled = axis < len(labels) and labels[axis] == label
            (sizes if is_labelled else others).append(dim)
    if all(is_multiple(size, count) for size in sizes):
        return True
    variables = {node for size in sizes for node in walk(size) if isinstance(node, Var)}
    is_independent = not any(node in variables for size in others for node in walk(size))
    return is_independent and all(
        not isinstance(size, IntImm) and prove_equal(size, sizes[0]) is True for size in sizes
    )


def is_multiple(size: PrimExpr, count: int) -> bool:
    """Return whether a size is provably a multiple of a number."""
    if isinstance(size, IntImm):
        return size.value % count == 0
    rest = ops.floormod(size, ops.const(count, size.dtype))
    return prove_equal(rest, ops.const(0, rest.dtype)) is True
