"""The distribution of each tensor of a function, as it follows from annotations."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final, TypeAlias

from relaxpy.errors import TransformError
from relaxpy.ir.core.groups import Groups
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
from relaxpy.ir.tir.analysis.axis_groups import AxisGroups
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm
from relaxpy.ir.tir.prim_func.function import PrimFunc

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
    them. An annotation holds for what is computed from it, and also for what it is computed from,
    as far as no other annotation says otherwise.

    Errors:
        TransformError: two annotations contradict each other.
    """

    def __init__(self, func: rx.Function, mod: IRModule) -> None:
        self._mod = mod
        self._axes: Groups[Axis] = Groups()
        self._tensors: Groups[Field] = Groups()
        self._split: dict[Axis, int | None] = {}
        self._unsplit: list[Axis] = []
        """Axes of results that are no axes of operands: operators do not compute parts of them."""
        self._meshes: dict[Field, DeviceMesh] = {}
        bindings = [node for node in walk(func.body) if isinstance(node, rx.VarBinding)]
        self.annotations = [b for b in bindings if is_annotation(b.value)]
        if not self.annotations:
            return
        for binding in bindings:
            if not is_annotation(binding.value):
                self._join(binding.var, binding.value)
        unsplit = {self._axes.find(axis) for axis in self._unsplit}
        for binding in self.annotations:
            self._annotate(binding, unsplit)

    def sinfo(self, var: rx.Var) -> rx.StructInfo | None:
        """The struct info of a variable with distributed tensors in place of its tensors.

        Errors:
            TransformError: nothing says on which mesh a tensor is, or two of its axes are split
                along one axis of the mesh.
        """
        sinfo = var.struct_info
        if isinstance(sinfo, rx.TupleStructInfo):
            fields = [
                self._placed(var, index, field) if isinstance(field, rx.TensorStructInfo) else field
                for index, field in enumerate(sinfo.fields)
            ]
            return rx.TupleStructInfo(tuple(fields))
        return self._placed(var, 0, sinfo) if isinstance(sinfo, rx.TensorStructInfo) else sinfo

    def mesh(self, var: rx.Var) -> DeviceMesh | None:
        """The mesh on which a tensor is, or the first one of a tuple."""
        return self._meshes.get(self._tensors.find((var, 0)))

    def _placed(self, var: rx.Var, index: int, sinfo: rx.TensorStructInfo) -> DTensorStructInfo:
        mesh = self._meshes.get(self._tensors.find((var, index)))
        if mesh is None:
            raise TransformError(
                f"PropagateSharding: nothing says on which devices {var.name_hint} is, which is "
                "not computed together with an annotated tensor",
                span=var.span,
                hint="annotate it by R.dist.annotate_sharding",
                about=var,
            )
        specs = [PlacementSpec.replica()] * len(mesh.shape)
        dims = sinfo.get_shape()
        for axis in range(max(sinfo.ndim, 0)):
            along = self._split.get(self._axes.find((var, index, axis)))
            size = None if dims is None else dims[axis]
            if along is None:
                continue
            if isinstance(size, IntImm) and size.value < max(2, mesh.shape[along]):
                continue
            if specs[along].kind == "sharding":
                raise TransformError(
                    f"PropagateSharding: axes {specs[along].axis} and {axis} of {var.name_hint} "
                    f"would both be split along axis {along} of its mesh",
                    span=var.span,
                    about=var,
                )
            specs[along] = PlacementSpec.sharding(axis)
        return DTensorStructInfo(sinfo, mesh, Placement(tuple(specs)))

    # --- what is computed from what

    def _join(self, var: rx.Var, value: rx.Expr) -> None:
        match value:
            case rx.Var():
                for index in range(_count(var.struct_info)):
                    self._same((var, index), (value, index), var.struct_info)
            case rx.TupleGetItem(tuple_value=rx.Var() as source, index=index):
                self._same((var, 0), (source, index), var.struct_info)
            case rx.Tuple(fields=fields):
                for index, field in enumerate(fields):
                    if isinstance(field, rx.Var):
                        self._same((var, index), (field, 0), field.struct_info)
            case rx.Call(op=Op() as op):
                args = _tensors(value)
                for index in range(_count(var.struct_info)):
                    for arg in args:
                        self._tensors.join((arg, 0), (var, index))
                if op.name == "relax.call_tir":
                    self._join_kernel(var, value)
                elif op.record.sharding is not None:
                    self._join_operator(var, value, op)
            case _:
                pass

    def _same(self, field: Field, other: Field, sinfo: rx.StructInfo | None) -> None:
        self._tensors.join(other, field)
        if isinstance(sinfo, rx.TupleStructInfo):
            sinfo = sinfo.fields[field[1]]
        for axis in range(max(sinfo.ndim, 0) if isinstance(sinfo, rx.TensorStructInfo) else 0):
            self._axes.join((*other, axis), (*field, axis))

    def _join_operator(self, var: rx.Var, call: rx.Call, op: Op) -> None:
        result, rule = var.struct_info, op.record.sharding
        if not isinstance(result, rx.TensorStructInfo) or rule is None:
            return
        sinfos = [arg.struct_info for arg in call.args]
        if any(sinfo is None for sinfo in sinfos):
            return
        contracted: dict[int, Axis] = {}
        labels_of = rule(call, [s for s in sinfos if s is not None], result)
        computed = {label for labels in labels_of for label in labels}
        axes = range(max(result.ndim, 0))
        self._unsplit += [(var, 0, axis) for axis in axes if axis not in computed]
        for arg, labels in zip(call.args, labels_of, strict=False):
            sinfo = arg.struct_info
            if not isinstance(arg, rx.Var) or not isinstance(sinfo, rx.TensorStructInfo):
                continue
            for axis, label in zip(range(max(sinfo.ndim, 0)), labels, strict=False):
                if label is not None and label >= 0:
                    self._axes.join((arg, 0, axis), (var, 0, label))
                elif label is not None:
                    self._axes.join(contracted.setdefault(label, (arg, 0, axis)), (arg, 0, axis))

    def _join_kernel(self, var: rx.Var, call: rx.Call) -> None:
        found = kernel_of(call, self._mod)
        if found is None:
            return
        groups, buffers = found
        first: dict[object, Axis] = {}
        fields: list[tuple[Field | None, Buffer]] = [
            ((arg, 0) if isinstance(arg, rx.Var) else None, buffer)
            for arg, buffer in zip(kernel_inputs(call), buffers, strict=False)
        ]
        outputs = buffers[len(fields) :]
        fields += [((var, index), buffer) for index, buffer in enumerate(outputs)]
        for field, buffer in fields:
            for axis in range(len(buffer.shape)):
                group = groups.group(buffer, axis)
                if field is not None and group is not None:
                    here = (*field, axis)
                    self._axes.join(first.setdefault(group, here), here)

    # --- annotations

    def _annotate(self, binding: rx.VarBinding, unsplit: Container[Axis]) -> None:
        call, var = binding.value, binding.var
        assert isinstance(call, rx.Call)
        mesh, placement = call.attrs["device_mesh"], call.attrs["placement"]
        assert isinstance(mesh, DeviceMesh)
        assert isinstance(placement, Placement)
        if self._meshes.setdefault(self._tensors.find((var, 0)), mesh) != mesh:
            raise _contradiction(binding)
        along = {s.axis: k for k, s in enumerate(placement.dim_specs) if s.kind == "sharding"}
        for axis in range(max(var.struct_info.ndim, 0)):  # type: ignore[union-attr]
            group = self._axes.find((var, 0, axis))
            if (
                self._split.get(group) is not None
                and along.get(axis, self._split[group]) != (self._split[group])
            ):
                raise _contradiction(binding)
            self._split[group] = along.get(axis, self._split.get(group))
        source = call.args[0]
        if isinstance(source, rx.Var):
            tensor = self._tensors.find((source, 0))
            if self._meshes.setdefault(tensor, mesh) == mesh:
                for axis, k in along.items():
                    group = self._axes.find((source, 0, axis))
                    if group not in unsplit:
                        self._split.setdefault(group, k)


def _contradiction(binding: rx.VarBinding) -> TransformError:
    return TransformError(
        "PropagateSharding: the annotation contradicts another one",
        span=binding.value.span,
        about=binding.value,
    )


def is_annotation(value: rx.Expr) -> bool:
    """Whether a value is a call of `R.dist.annotate_sharding`."""
    return rx.is_call_of(value, "relax.dist.annotate_sharding")


def _count(sinfo: rx.StructInfo | None) -> int:
    """How many tensors a variable is, or has as fields."""
    return len(sinfo.fields) if isinstance(sinfo, rx.TupleStructInfo) else 1


def _tensors(call: rx.Call) -> Iterator[rx.Var] | Sequence[rx.Var]:
    """The variables among the operands of a call, also in tuples, that are tensors."""
    operands = [
        f for arg in call.args for f in (arg.fields if isinstance(arg, rx.Tuple) else (arg,))
    ]
    return [
        arg
        for arg in operands
        if isinstance(arg, rx.Var) and isinstance(arg.struct_info, rx.TensorStructInfo)
    ]


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
