"""The mesh and placement of each tensor of a function, inferred from annotations."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, TypeAlias

from relaxpy.errors import TransformError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import Groups, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import fields_of
from relaxpy.ir.relax.nodes.distributed import (
    DeviceMesh,
    DTensorStructInfo,
    Placement,
    PlacementSpec,
)
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.analysis.axis_groups import Axis, AxisGroups
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace

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


def axes_of_call(call: rx.Call, result: rx.StructInfo | None, mod: IRModule) -> CallAxes | None:
    """The labels of the axes of the call of an operator, None for other calls."""
    if not isinstance(call.op, Op) or result is None:
        return None
    result = whole(result)
    if call.op.name == "relax.call_tir" and (found := kernel_of(call, mod)) is not None:
        return _axes_of_kernel(call, *found)
    rule = call.op.record.axes
    sinfos = [arg.struct_info for arg in call.args]
    wholes = [whole(sinfo) for sinfo in sinfos if sinfo is not None]
    if rule is None or len(wholes) < len(sinfos) or not isinstance(result, rx.TensorStructInfo):
        return whole_axes(call, result)
    labels: Sequence[Labels] = rule(call, wholes, result)
    computed: set[Label | None] = {label for own in labels for label in own}
    kept: Labels = tuple(axis if axis in computed else None for axis in range(max(result.ndim, 0)))
    is_combined = _is_combined(call, wholes)
    return CallAxes(
        tuple(zip(call.args, labels, strict=False)),
        (kept,),
        lambda label: label in kept or is_combined,
    )


def _is_combined(call: rx.Call, operands: Sequence[rx.StructInfo]) -> bool:
    """True if partial results of an operator, or of simpler ones, can be combined."""
    assert isinstance(call.op, Op)
    if call.op.record.partial is None:
        return False
    args = tuple(rx.Var("x", sinfo) for sinfo in operands)
    return call.op.record.partial(replace(call, args=args), lambda value: value) is not None


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
    """True if the axes with a label can be split into this many shards.

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
    """True if a size is provably a multiple of a number."""
    if isinstance(size, IntImm):
        return size.value % count == 0
    rest = size % ops.const(count, size.dtype)
    return prove_equal(rest, ops.const(0, rest.dtype)) is True


Field: TypeAlias = tuple[rx.Var, int]
"""A tensor that a variable is, or has as a field of a tuple."""

VarAxis: TypeAlias = tuple[rx.Var, int, int]
"""An axis of such a tensor."""

OF_PARTS: Final = {
    f"vm.builtin.attention_kv_cache_{name}": f"vm.builtin.distributed.attention_kv_cache_{name}"
    for name in ("append", "view")
}
"""The functions of caches, and those of caches of which each device has a part."""


class Placements:
    """The meshes and placements of the tensors of a function, set by `R.dist.annotate_sharding`.

    Axes along which the same elements lie, or that are contracted together, are split together, and
    tensors that are computed from each other are on one mesh; calls of `annotate_sharding` separate
    them. An annotation propagates forward to the users of a tensor, and backward to its operands,
    as far as no other annotation says otherwise.

    Errors:
        TransformError: two annotations contradict each other.
    """

    def __init__(self, func: rx.Function, mod: IRModule) -> None:
        self.mod = mod
        self._axes: Groups[VarAxis] = Groups()
        self._tensors: Groups[Field] = Groups()
        self._split: dict[VarAxis, tuple[int, ...] | None] = {}
        """The axes of the mesh along which an axis is split."""
        self._unsplit: list[VarAxis] = []
        """Axes of results but not of operands: operators do not compute shards of them."""
        self._meshes: dict[Field, DeviceMesh] = {}
        self._only_mesh: DeviceMesh | None = None
        """The mesh of tensors without annotation, if there is only one mesh."""
        bindings = [node for node in walk(func.body) if isinstance(node, rx.VarBinding)]
        self.annotations = [b for b in bindings if is_annotation(b.value)]
        if not self.annotations:
            return
        for binding in bindings:
            if not is_annotation(binding.value):
                self._join(binding.var, binding.value)
        said = {binding.var: _said(binding.value) for binding in self.annotations}
        meshes = {mesh for mesh, _ in said.values()}
        if len(meshes) == 1:
            [self._only_mesh] = meshes
        self._annotated = {var: _along(placement) for var, (_, placement) in said.items()}
        unsplit = {self._axes.find(axis) for axis in self._unsplit}
        for binding in self.annotations:
            self._annotate(binding, unsplit)

    def sinfo(self, var: rx.Var) -> rx.StructInfo | None:
        """The struct info of a variable with distributed tensors instead of its tensors.

        Errors:
            TransformError: the mesh of a tensor is not determined, or two of its axes are split
                along one axis of the mesh.
        """
        sinfo = var.struct_info
        if isinstance(sinfo, rx.TupleStructInfo):
            if any(isinstance(field, rx.TupleStructInfo) for field in sinfo.fields):
                raise TransformError(
                    f"PropagateSharding: {var.name_hint} is a tuple in a tuple",
                    span=var.span,
                    hint="use one tuple with all tensors",
                    about=var,
                )
            fields = [
                self._placed(var, index, field) if isinstance(field, rx.TensorStructInfo) else field
                for index, field in enumerate(sinfo.fields)
            ]
            return rx.TupleStructInfo(tuple(fields))
        return self._placed(var, 0, sinfo) if isinstance(sinfo, rx.TensorStructInfo) else sinfo

    def mesh(self, var: rx.Var) -> DeviceMesh | None:
        """The mesh on which a tensor is, or the first one of a tuple."""
        return self._meshes.get(self._tensors.find((var, 0))) or self._only_mesh

    def _placed(self, var: rx.Var, index: int, sinfo: rx.TensorStructInfo) -> DTensorStructInfo:
        mesh = self._meshes.get(self._tensors.find((var, index))) or self._only_mesh
        if mesh is None:
            raise TransformError(
                f"PropagateSharding: nothing says on which of several meshes {var.name_hint} is, "
                "which is not computed together with an annotated tensor",
                span=var.span,
                hint="annotate it by R.dist.annotate_sharding",
                about=var,
            )
        specs = [PlacementSpec.replica()] * len(mesh.shape)
        dims = sinfo.get_shape()
        own = self._annotated.get(var, {})
        for axis in sorted(range(max(sinfo.ndim, 0)), key=lambda axis: axis not in own):
            group = self._axes.find((var, index, axis))
            along = own.get(axis) or self._split.get(group) or ()
            size = None if dims is None else dims[axis]
            count = math.prod(mesh.shape[k] for k in along)
            if isinstance(size, IntImm) and (size.value < 2 or size.value % count):
                continue
            for k in along:
                if specs[k].kind == "replica":
                    specs[k] = PlacementSpec.sharding(axis)
                elif own and group != self._axes.find((var, index, specs[k].axis)):
                    raise TransformError(
                        f"PropagateSharding: axes {specs[k].axis} and {axis} of {var.name_hint} "
                        f"would both be split along axis {k} of its mesh",
                        span=var.span,
                        hint="annotate what is computed in between, too",
                        about=var,
                    )
        return DTensorStructInfo(sinfo, mesh, Placement(tuple(specs)))

    # --- dependences

    def _join(self, var: rx.Var, value: rx.Expr) -> None:
        match value:
            case rx.Var():
                for index in range(len(fields_of(var.struct_info))):
                    self._same((var, index), (value, index), var.struct_info)
            case rx.TupleGetItem(tuple_value=rx.Var() as source, index=index):
                self._same((var, 0), (source, index), var.struct_info)
            case rx.Tuple(fields=fields):
                for index, field in enumerate(fields):
                    if isinstance(field, rx.Var):
                        self._same((var, index), (field, 0), field.struct_info)
            case rx.If(true_branch=yes, false_branch=no):
                for branch in (yes.body, no.body):
                    self._join(var, branch)
            case rx.Call() if (axes := axes_of_call(value, var.struct_info, self.mod)) is not None:
                for index in range(len(fields_of(var.struct_info))):
                    for arg in tensors_of(value):
                        if isinstance(arg, rx.Var):
                            self._tensors.join((arg, 0), (var, index))
                self._join_axes(var, axes)
            case _:
                pass

    def _same(self, field: Field, other: Field, sinfo: rx.StructInfo | None) -> None:
        self._tensors.join(other, field)
        if isinstance(sinfo, rx.TupleStructInfo):
            sinfo = sinfo.fields[field[1]]
        for axis in range(max(sinfo.ndim, 0) if isinstance(sinfo, rx.TensorStructInfo) else 0):
            self._axes.join((*other, axis), (*field, axis))

    def _join_axes(self, var: rx.Var, axes: CallAxes) -> None:
        """Join the axes that have one label."""
        first: dict[Label, VarAxis] = {}
        fields = [((arg, 0), labels) for arg, labels in axes.operands if isinstance(arg, rx.Var)]
        computed = {label for _, labels in axes.operands for label in labels}
        for index, labels in enumerate(axes.results):
            self._unsplit += [
                (var, index, axis)
                for axis in range(_rank(var, index))
                if axis >= len(labels) or labels[axis] not in computed - {None}
            ]
        fields += [((var, index), labels) for index, labels in enumerate(axes.results)]
        for (owner, index), labels in fields:
            for axis, label in zip(range(_rank(owner, index)), labels, strict=False):
                if label is not None:
                    here = (owner, index, axis)
                    self._axes.join(first.setdefault(label, here), here)

    # --- annotations

    def _annotate(self, binding: rx.VarBinding, unsplit: Container[VarAxis]) -> None:
        call, var = binding.value, binding.var
        assert isinstance(call, rx.Call)
        mesh, placement = _said(call)
        if self._meshes.setdefault(self._tensors.find((var, 0)), mesh) != mesh:
            raise _contradiction(binding)
        sinfo = var.struct_info
        if isinstance(sinfo, rx.TensorStructInfo):
            _require_equal_parts(binding, mesh, placement, sinfo)
        along = _along(placement)
        own: set[VarAxis] = set()
        for axis in range(max(var.struct_info.ndim, 0)):  # type: ignore[union-attr]
            group = self._axes.find((var, 0, axis))
            if (
                group not in own
                and self._split.get(group) is not None
                and along.get(axis, self._split[group]) != (self._split[group])
            ):
                raise _contradiction(binding)
            if group not in own:
                self._split[group] = along.get(axis, self._split.get(group))
            if axis in along:
                own.add(group)
        source = call.args[0]
        if isinstance(source, rx.Var):
            tensor = self._tensors.find((source, 0))
            if self._meshes.setdefault(tensor, mesh) == mesh:
                for axis, split in along.items():
                    group = self._axes.find((source, 0, axis))
                    if group not in unsplit:
                        self._split.setdefault(group, split)


def _said(annotation: rx.Expr) -> tuple[DeviceMesh, Placement]:
    """The mesh and the placement of an annotation."""
    assert isinstance(annotation, rx.Call)
    mesh, placement = annotation.attrs["device_mesh"], annotation.attrs["placement"]
    assert isinstance(mesh, DeviceMesh)
    assert isinstance(placement, Placement)
    return mesh, placement


def _along(placement: Placement) -> dict[int, tuple[int, ...]]:
    """The axes of the mesh along which axes of a tensor are split."""
    along: dict[int, tuple[int, ...]] = {}
    for k, spec in enumerate(placement.dim_specs):
        if spec.kind == "sharding":
            along[spec.axis] = (*along.get(spec.axis, ()), k)
    return along


def _require_equal_parts(
    binding: rx.VarBinding, mesh: DeviceMesh, placement: Placement, sinfo: rx.TensorStructInfo
) -> None:
    """Refuse to split an axis whose size is not a multiple of the number of shards."""
    dims = sinfo.get_shape()
    for axis, along in _along(placement).items():
        if sinfo.ndim < 0:
            raise TransformError(
                f"PropagateSharding: axis {axis} is split of a tensor of unknown rank, {sinfo}",
                span=binding.value.span,
                hint="declare the rank of the parameter that it is computed from",
                about=binding.value,
            )
        count = math.prod(mesh.shape[k] for k in along)
        dim = None if dims is None else dims[axis]
        if isinstance(dim, IntImm) and dim.value % count:
            raise TransformError(
                f"PropagateSharding: axis {axis} of {sinfo} cannot be divided in {count} equal "
                "parts",
                span=binding.value.span,
                hint="pad the tensor, or split another axis",
                about=binding.value,
            )


def _contradiction(binding: rx.VarBinding) -> TransformError:
    return TransformError(
        "PropagateSharding: the annotation contradicts another one",
        span=binding.value.span,
        hint="annotate what is computed in between, too",
        about=binding.value,
    )


def is_annotation(value: rx.Expr) -> bool:
    """True if a value is a call of `R.dist.annotate_sharding`."""
    return rx.is_call_of(value, "relax.dist.annotate_sharding")


def _rank(var: rx.Var, index: int) -> int:
    """The rank of a tensor that a variable is, or has as a field."""
    sinfo = fields_of(var.struct_info)[index]
    return max(sinfo.ndim, 0) if isinstance(sinfo, rx.TensorStructInfo) else 0
