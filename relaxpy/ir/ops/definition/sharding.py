"""Operators on distributed tensors: how the axes of operands become those of the result.

A sharding rule returns for each axis of each operand a label. A label >= 0 is the axis of the
result along which the same elements lie, and a negative one means axes that are reduced or
contracted together. An axis without a label has to be whole on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

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
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.op_record import ShardingRule

Labels: TypeAlias = Sequence[int | None]
_HINT = "change how one of them is distributed by R.dist.redistribute"


def infer_distributed(
    infer: Callable[[Call], StructInfo],
    rule: ShardingRule | None,
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


# ---- the rules of families


def _rank(sinfo: StructInfo) -> int:
    return sinfo.ndim if isinstance(sinfo, TensorStructInfo) else 0


def same_axes(call: Call, operands: Sequence[StructInfo], result: TensorStructInfo) -> list[Labels]:
    """The rule of an operator on each element of its first operand."""
    first = operands[0]
    placed = range(_rank(first)) if _rank(first) >= 0 else range(_MOST_AXES)
    return [placed, *((None,) * max(_rank(sinfo), 0) for sinfo in operands[1:])]


_MOST_AXES = 1_000
"""More axes than a placement can split."""


def broadcast_axes(
    call: Call, operands: Sequence[StructInfo], result: TensorStructInfo
) -> list[Labels]:
    """The rule of an operator on the elements of operands that broadcast."""
    return [_last_axes(sinfo, result, result.ndim) for sinfo in operands]


def _last_axes(
    sinfo: StructInfo, result: TensorStructInfo, end: int, count: int | None = None
) -> list[int | None]:
    """The labels of axes that broadcast to those of the result before axis `end`.

    These are the first `count` axes of an operand, all by default.
    """
    count = _rank(sinfo) if count is None else count
    if count < 0 or end < 0:
        return []
    old, new = shape_of(sinfo), shape_of(result)
    labels: list[int | None] = []
    for axis in range(count):
        label = end - count + axis
        one = old is not None and ops.is_const(old[axis], 1)
        is_repeated = one and (new is None or not ops.is_const(new[label], 1))
        labels.append(None if is_repeated else label)
    return labels


def permuted_axes(
    call: Call, operands: Sequence[StructInfo], result: TensorStructInfo
) -> list[Labels]:
    """The rule of a transposition by the attribute `axes`."""
    rank = result.ndim
    axes = cast("tuple[int, ...] | None", call.attrs["axes"])
    order = list(range(rank))[::-1] if axes is None else [axis % rank for axis in axes]
    return [[order.index(axis) for axis in range(rank)]]


def reduced_axes(
    call: Call, operands: Sequence[StructInfo], result: TensorStructInfo
) -> list[Labels]:
    """The rule of a reduction along the attribute `axis`."""
    rank = _rank(operands[0])
    axes = cast("tuple[int, ...] | int | None", call.attrs["axis"])
    if axes is None:
        gone = set(range(rank))
    else:
        gone = {axis % rank for axis in ((axes,) if isinstance(axes, int) else axes)}
    labels: list[int | None] = []
    position = 0
    for axis in range(rank):
        labels.append(-1 - axis if axis in gone else position)
        position += axis not in gone or bool(call.attrs["keepdims"])
    return [labels]


def whole_along(
    call: Call, operands: Sequence[StructInfo], result: TensorStructInfo
) -> list[Labels]:
    """The rule of an operator that needs all elements along the attribute `axis` or `axes` at once.

    Other operands than the first have to be whole.
    """
    rank = _rank(operands[0])
    axes = cast("tuple[int, ...] | int", call.attrs.get("axes", call.attrs.get("axis")))
    whole = {axis % rank for axis in ((axes,) if isinstance(axes, int) else axes)}
    labels = [None if k in whole else k for k in range(rank)]
    return [labels, *((None,) * max(_rank(sinfo), 0) for sinfo in operands[1:])]


def matmul_axes(
    call: Call, operands: Sequence[StructInfo], result: TensorStructInfo
) -> list[Labels]:
    """The rule of matmul, which contracts the common axis."""
    first, second = operands
    rank = result.ndim
    if rank < 0:
        return [[], []]
    rows, columns = _rank(first) > 1, _rank(second) > 1
    batch = rank - rows - columns
    left = _last_axes(first, result, batch, max(_rank(first) - 2, 0))
    right = _last_axes(second, result, batch, max(_rank(second) - 2, 0))
    return [[*left, *([batch] if rows else []), -1], [*right, -1, *([rank - 1] if columns else [])]]


def repeated_axes(
    call: Call, operands: Sequence[StructInfo], result: TensorStructInfo
) -> list[Labels]:
    """The rule of an operator that repeats each slice along the attribute `axis`."""
    rank = max(_rank(operands[0]), 0)
    return [range(rank) if call.attrs["axis"] is not None or rank == 1 else (None,) * rank]


def reshaped_axes(
    call: Call, operands: Sequence[StructInfo], result: TensorStructInfo
) -> list[Labels]:
    """The rule of an operator that keeps the order of elements.

    Axes that become others together can be split along the first of them.
    """
    old, new = shape_of(operands[0]), shape_of(result)
    labels: list[int | None] = [None] * max(_rank(operands[0]), 0)
    if old is not None and new is not None:
        sources = [axis for axis, size in enumerate(old) if not ops.is_const(size, 1)]
        targets = [axis for axis, size in enumerate(new) if not ops.is_const(size, 1)]
        while sources and targets:
            source, target = _next_group(old, sources, new, targets)
            labels[sources[0]] = targets[0]
            sources, targets = sources[source:], targets[target:]
    return [labels, *([] for _ in operands[1:])]


def _next_group(
    old: Sequence[PrimExpr], sources: Sequence[int], new: Sequence[PrimExpr], targets: Sequence[int]
) -> tuple[int, int]:
    """The numbers of leading old and new axes in the smallest group with equally many elements."""
    for total in range(2, len(sources) + len(targets)):
        for count in range(1, total):
            if count > len(sources) or total - count > len(targets):
                continue
            before = product([old[axis] for axis in sources[:count]])
            after = product([new[axis] for axis in targets[: total - count]])
            if prove_equal(before, after) is True:
                return count, total - count
    return len(sources), len(targets)
