"""The mesh and placement of each tensor of a function, inferred from annotations."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Final, TypeAlias

from relaxpy.errors import TransformError
from relaxpy.ir.core.traverse import Groups, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import (
    DeviceMesh,
    DTensorStructInfo,
    Placement,
    PlacementSpec,
)
from relaxpy.ir.relax.transform.distributed import call_axes
from relaxpy.ir.tir.expr import IntImm

Field: TypeAlias = tuple[rx.Var, int]
"""A tensor that a variable is, or has as a field of a tuple."""

Axis: TypeAlias = tuple[rx.Var, int, int]
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
        self._axes: Groups[Axis] = Groups()
        self._tensors: Groups[Field] = Groups()
        self._split: dict[Axis, tuple[int, ...] | None] = {}
        """The axes of the mesh along which an axis is split."""
        self._unsplit: list[Axis] = []
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
                for index in range(len(call_axes.fields_of(var.struct_info))):
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
            case rx.Call() if (
                axes := call_axes.axes_of_call(value, var.struct_info, self.mod)
            ) is not None:
                for index in range(len(call_axes.fields_of(var.struct_info))):
                    for arg in call_axes.tensors_of(value):
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

    def _join_axes(self, var: rx.Var, axes: call_axes.CallAxes) -> None:
        """Join the axes that have one label."""
        first: dict[call_axes.Label, Axis] = {}
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

    def _annotate(self, binding: rx.VarBinding, unsplit: Container[Axis]) -> None:
        call, var = binding.value, binding.var
        assert isinstance(call, rx.Call)
        mesh, placement = _said(call)
        if self._meshes.setdefault(self._tensors.find((var, 0)), mesh) != mesh:
            raise _contradiction(binding)
        sinfo = var.struct_info
        if isinstance(sinfo, rx.TensorStructInfo):
            _require_equal_parts(binding, mesh, placement, sinfo)
        along = _along(placement)
        own: set[Axis] = set()
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
    """Refuse to split an axis whose size is not a multiple of the number of shards.

    Errors:
        TransformError: there is such an axis.
    """
    dims = sinfo.get_shape()
    for axis, along in _along(placement).items():
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
    """Return whether a value is a call of `R.dist.annotate_sharding`."""
    return rx.is_call_of(value, "relax.dist.annotate_sharding")


def _rank(var: rx.Var, index: int) -> int:
    """The rank of a tensor that a variable is, or has as a field."""
    sinfo = call_axes.fields_of(var.struct_info)[index]
    return max(sinfo.ndim, 0) if isinstance(sinfo, rx.TensorStructInfo) else 0
