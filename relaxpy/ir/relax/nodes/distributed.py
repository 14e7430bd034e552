"""Distributed tensors: meshes of devices, placements, and the struct info."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.global_info import GlobalInfo
from relaxpy.ir.relax.nodes import Expr, StructInfo, TensorStructInfo
from relaxpy.ir.tir.expr import IntImm
from relaxpy.ir.tir.iteration import Range
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.errors import Span


MAX_DEVICES = 65_536


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True, repr=False)
class DeviceMesh(GlobalInfo):
    """Devices by their numbers, laid out along axes.

    Shapes:
        shape       the number of devices along each axis
        device_ids  the number of each device, in row-major order; or a range of numbers
    Errors:
        MisuseError (also TypeError, ValueError): there are more or fewer numbers than devices.
    """

    _fields = ("shape", "device_ids")
    shape: tuple[int, ...]
    device_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        shape, ids = self.shape, self.device_ids
        if not isinstance(shape, (tuple, list)) or not all(map(_is_natural, shape)):
            raise unexpected(shape, "the shape of a mesh is a list of integers")
        if 0 in shape:
            raise unexpected(shape, "a mesh has at least one device along each axis")
        if math.prod(shape) > MAX_DEVICES:
            raise MisuseError(f"a mesh has at most {MAX_DEVICES} devices", about=shape)
        if isinstance(ids, Range):
            start, extent = ids.min, ids.extent
            if not isinstance(start, IntImm) or not isinstance(extent, IntImm):
                raise MisuseError(f"the numbers of devices are constants, found {ids}", about=ids)
            if extent.value != math.prod(shape):
                raise _wrong_count(shape, extent.value)
            ids = tuple(range(start.value, start.value + extent.value))
        elif not isinstance(ids, (tuple, list, range)) or not all(map(_is_natural, ids)):
            raise unexpected(ids, "devices are numbered from 0")
        if len(ids) != math.prod(shape):
            raise _wrong_count(shape, len(ids))
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "device_ids", tuple(ids))

    def stride(self, axis: int) -> int:
        """The stride of an axis: the distance of the positions of neighbouring devices along it."""
        return math.prod(self.shape[axis + 1 :])

    @property
    def device_range(self) -> Range | None:
        """The range of the numbers of the devices, if they are consecutive."""
        start, count = self.device_ids[0], len(self.device_ids)
        is_range = self.device_ids == tuple(range(start, start + count))
        return Range(start, start + count) if is_range else None


def _wrong_count(shape: Sequence[int], count: int) -> MisuseError:
    return MisuseError(
        f"a mesh of shape {tuple(shape)} has {math.prod(shape)} devices, found {count}"
    )


def device_mesh(shape: Sequence[int], device_ids: Sequence[int] | Range) -> DeviceMesh:
    """The mesh of these devices."""
    return DeviceMesh(shape, device_ids)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, repr=False)
class PlacementSpec(Node):
    """The placement along one axis of a mesh: the tensor is split along `axis`, or replicated.

    Errors:
        MisuseError (also TypeError, ValueError): the axis is not an integer >= 0.
    """

    _fields = ("kind", "axis")
    axis: int
    kind: Literal["sharding", "replica"] = "sharding"

    def __post_init__(self) -> None:
        if self.kind not in ("sharding", "replica"):
            raise unexpected(self.kind, "a placement is sharding or replica")
        if self.kind == "replica":
            object.__setattr__(self, "axis", -1)
        elif not _is_natural(self.axis):
            raise unexpected(self.axis, "an axis is an integer >= 0")

    @staticmethod
    def sharding(axis: int) -> PlacementSpec:
        """The tensor is split along `axis`."""
        return PlacementSpec(axis)

    @staticmethod
    def replica() -> PlacementSpec:
        """Every device has the whole tensor."""
        return PlacementSpec(-1, "replica")

    @override
    def __str__(self) -> str:
        return "R" if self.kind == "replica" else f"S[{self.axis}]"


@dataclass(frozen=True, slots=True, repr=False)
class Placement(Node):
    """The placement of a tensor along each axis of a mesh.

    Errors:
        MisuseError (also TypeError): a member is not a PlacementSpec.
    """

    _fields = ("dim_specs",)
    dim_specs: tuple[PlacementSpec, ...]

    def __post_init__(self) -> None:
        specs = self.dim_specs
        if not isinstance(specs, (tuple, list)) or not all(
            isinstance(s, PlacementSpec) for s in specs
        ):
            raise MisuseError(f"a placement is a list of PlacementSpec, found {specs!r:.60}")
        object.__setattr__(self, "dim_specs", tuple(specs))

    @staticmethod
    def from_text(text: str) -> Placement:
        """The placement written as "S[0], R".

        Errors:
            MisuseError (also ValueError): it is malformed.
        """
        specs = []
        for word in map(str.strip, text.split(",")) if text.strip() else ():
            axis = word[2:-1] if word.startswith("S[") and word.endswith("]") else ""
            if word == "R":
                specs.append(PlacementSpec.replica())
            elif axis.isascii() and axis.isdigit() and len(axis) < 4:
                specs.append(PlacementSpec.sharding(int(axis)))
            else:
                raise MisuseError(
                    f"a placement consists of R and S[axis], found {word!r:.60}",
                    about=text,
                    hint='write "S[0], R": split along axis 0, then copied',
                )
        return Placement(tuple(specs))

    @override
    def __str__(self) -> str:
        return ", ".join(map(str, self.dim_specs))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DTensorStructInfo(StructInfo):
    """A tensor that is distributed over the devices of a mesh.

    Errors:
        MisuseError (also TypeError, ValueError): the placement has another number of axes than the
            mesh, or splits an axis that the tensor does not have.
    """

    _fields = ("device_mesh", "placement", "tensor_sinfo")
    tensor_sinfo: TensorStructInfo
    device_mesh: DeviceMesh
    placement: Placement
    span: Span | None = None

    def __post_init__(self) -> None:
        tensor, mesh = self.tensor_sinfo, self.device_mesh
        if not isinstance(tensor, TensorStructInfo):
            raise MisuseError(f"expected a TensorStructInfo, found {tensor!s:.60}", about=tensor)
        if not isinstance(mesh, DeviceMesh):
            raise unexpected(mesh, "expected a DeviceMesh")
        placement: object = self.placement
        if isinstance(placement, str):
            placement = Placement.from_text(placement)
            object.__setattr__(self, "placement", placement)
        if not isinstance(placement, Placement):
            raise unexpected(placement, "expected a Placement")
        if len(placement.dim_specs) != len(mesh.shape):
            raise MisuseError(
                f"the mesh has {len(mesh.shape)} axes, the placement {len(placement.dim_specs)}",
                about=placement,
            )
        for spec in placement.dim_specs:
            if spec.kind == "sharding" and -1 < tensor.ndim <= spec.axis:
                raise MisuseError(
                    f"a tensor of rank {tensor.ndim} has no axis {spec.axis} to split",
                    about=placement,
                )

    def is_placed_like(self, other: DTensorStructInfo) -> bool:
        """True if both have the same mesh and placement."""
        return self.device_mesh == other.device_mesh and self.placement == other.placement

    @property
    def is_whole(self) -> bool:
        """True if every device has the whole tensor."""
        return all(spec.kind == "replica" for spec in self.placement.dim_specs)

    @property
    @override
    def node_count(self) -> int:
        return self.tensor_sinfo.node_count

    @property
    def shape(self) -> Expr | None:
        """The shape of the whole tensor."""
        return self.tensor_sinfo.shape

    @property
    def dtype(self) -> DataType:
        """The datatype of the elements."""
        return self.tensor_sinfo.dtype

    @property
    def ndim(self) -> int:
        """The rank of the whole tensor."""
        return self.tensor_sinfo.ndim
