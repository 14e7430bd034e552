"""The struct info of calls on distributed tensors, by the labels of their axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import override

from relaxpy.errors import RelaxpyError, StructInfoError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.relax.known import shape_of
from relaxpy.ir.relax.nodes import Call, StructInfo, TensorStructInfo, TupleStructInfo, Var
from relaxpy.ir.relax.nodes.distributed import (
    DeviceMesh,
    DTensorStructInfo,
    Placement,
    PlacementSpec,
)
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.op_record import AxesRule

Labels: TypeAlias = Sequence[int | None]
_HINT = "change how one of them is distributed by R.dist.redistribute"


def infer_distributed(
    infer: Callable[[Call], StructInfo],
    rule: AxesRule | None,
    call: Call,
    sinfos: Sequence[StructInfo],
    names: Sequence[str],
) -> StructInfo:
    """The struct info of a call on distributed tensors, by `infer` of one on whole tensors.

    `sinfos` are those of the operands, and `names` are their parameters. Without a rule all
    operands have to be whole on every device, and so is the result.

    Errors:
        StructInfoError: the operator does not take such tensors, only some of the tensors are
            distributed, or they are distributed in ways that do not agree.
    """
    wholes = [s.tensor_sinfo if isinstance(s, DTensorStructInfo) else s for s in sinfos]
    stand_ins = [
        Var(name, whole) if whole is not sinfo else arg
        for name, whole, sinfo, arg in zip(names, wholes, sinfos, call.args, strict=True)
    ]
    originals = {id(new): arg for new, arg in zip(stand_ins, call.args, strict=True)}
    try:
        result = infer(Call(call.op, tuple(stand_ins), call.attrs, call.sinfo_args, span=call.span))
    except RelaxpyError as error:
        error.about = originals.get(id(error.about), error.about)
        raise
    pairs = list(zip(names, sinfos, strict=True))
    placed = {
        k: _Operand(name, sinfo)
        for k, (name, sinfo) in enumerate(pairs)
        if isinstance(sinfo, DTensorStructInfo)
    }
    first, *others = placed.values()
    for name, sinfo in pairs:
        if isinstance(sinfo, TensorStructInfo):
            raise _refused(
                f"all tensors are distributed or none, found {first} and {name} {sinfo}",
                hint="write R.dist.const for a constant",
                about=sinfo,
            )
    for operand in others:
        if operand.sinfo.device_mesh != first.sinfo.device_mesh:
            raise _refused(
                f"the operands are on one mesh, found {first} and {operand}", about=operand.sinfo
            )
    labels: Sequence[Labels] = [()] * len(pairs)
    if rule is not None and isinstance(result, TensorStructInfo):
        labels = rule(call, wholes, result)
    for k, operand in placed.items():
        operand.enter(labels[k], result)
    if rule is None or not isinstance(result, TensorStructInfo):
        return _whole_on(first.sinfo.device_mesh, result)
    return _placed_alike([first, *others], result)


def _whole_on(mesh: DeviceMesh, sinfo: StructInfo) -> StructInfo:
    """The struct info with its tensors replicated over all devices of a mesh."""
    if isinstance(sinfo, TupleStructInfo):
        return TupleStructInfo(tuple(_whole_on(mesh, field) for field in sinfo.fields))
    if not isinstance(sinfo, TensorStructInfo):
        return sinfo
    return DTensorStructInfo(sinfo, mesh, Placement((PlacementSpec.replica(),) * len(mesh.shape)))


class _Operand:
    """A distributed operand, and for each axis of the mesh the label of the axis split along it."""

    def __init__(self, name: str, sinfo: DTensorStructInfo) -> None:
        self.name, self.sinfo = name, sinfo
        self.labels: list[int | None] = []

    @override
    def __str__(self) -> str:
        return f"{self.name} {self.sinfo}"

    def enter(self, labels: Labels, result: StructInfo) -> None:
        """Set the labels.

        Errors:
            StructInfoError: an axis is split that has to be whole.
        """
        for spec in self.sinfo.placement.dim_specs:
            label = None
            if spec.kind == "sharding":
                label = labels[spec.axis] if spec.axis < len(labels) else None
                if label is None or not self._stays_split(spec.axis, label, result):
                    raise _refused(
                        f"axis {spec.axis} of {self} has to be whole on every device, the result "
                        f"is {result}",
                        hint="distribute it in another way by R.dist.redistribute first",
                        about=self.sinfo,
                    )
            self.labels.append(label)

    def _stays_split(self, axis: int, label: int, result: StructInfo) -> bool:
        """True if the shards of an axis are those of the axis of the result."""
        old, new = self.sinfo.tensor_sinfo.get_shape(), shape_of(result)
        if label < 0 or old is None or new is None or prove_equal(old[axis], new[label]) is True:
            return True
        count = 1
        for spec, size in zip(
            self.sinfo.placement.dim_specs, self.sinfo.device_mesh.shape, strict=True
        ):
            count *= size if spec == PlacementSpec.sharding(axis) else 1
        return all(_divides(count, size) for size in (old[axis], new[label]))

    def mesh_axes(self, label: int) -> list[int]:
        """The axes of the mesh along which an axis with this label is split."""
        return [k for k, found in enumerate(self.labels) if found == label]


def _divides(count: int, size: PrimExpr) -> bool:
    rest = size % ops.const(count, size.dtype)
    return prove_equal(rest, ops.const(0, size.dtype)) is True


def _placed_alike(placed: Sequence[_Operand], result: TensorStructInfo) -> DTensorStructInfo:
    """The result, split as its operands are."""
    mesh = placed[0].sinfo.device_mesh
    splits: list[int | None] = []
    for axis in range(len(mesh.shape)):
        split = [operand for operand in placed if operand.labels[axis] is not None]
        for operand in split[1:]:
            if operand.labels[axis] != split[0].labels[axis]:
                raise _refused(
                    f"different axes are split along axis {axis} of the mesh: {split[0]} and "
                    f"{operand}",
                    hint=_HINT,
                    about=operand.sinfo,
                )
        splits.append(split[0].labels[axis] if split else None)
    for label in {label for label in splits if label is not None}:
        split = [operand for operand in placed if operand.mesh_axes(label)]
        for operand in split[1:]:
            if operand.mesh_axes(label) != split[0].mesh_axes(label):
                raise _refused(
                    f"an axis is split along different axes of the mesh: {split[0]} and {operand}",
                    hint=_HINT,
                    about=operand.sinfo,
                )
    specs = [
        PlacementSpec.replica() if label is None or label < 0 else PlacementSpec.sharding(label)
        for label in splits
    ]
    return DTensorStructInfo(result, mesh, Placement(tuple(specs)))


def _refused(message: str, hint: str | None = None, about: object = None) -> StructInfoError:
    return StructInfoError(message, rule="DER-36", hint=hint, about=about)
