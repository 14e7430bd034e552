"""The types of weights that follow from those of the data, where nothing else declares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from relaxpy.plugins.relay.ty import Dim, TensorType

Shape: TypeAlias = tuple[Dim, ...]
Weights: TypeAlias = Callable[[Shape, Mapping[str, Any]], Sequence[Shape] | None]
"""The shapes of the other operands, of the shape of the data and the attributes, or None."""


def weight_types(
    operator: str, data: object, attrs: Mapping[str, Any]
) -> Sequence[TensorType] | None:
    """The types that the operands after the data have if they are not declared.

    They have the datatype of the data.
    """
    rule = _WEIGHTS.get(operator)
    if (
        rule is None
        or not attrs
        or not isinstance(data, TensorType)
        or not isinstance(data.shape, tuple)
    ):
        return None
    shapes = rule(data.shape, attrs) if data.shape else None
    return None if shapes is None else [TensorType(shape, data.dtype) for shape in shapes]


def _dense(data: Shape, attrs: Mapping[str, Any]) -> Sequence[Shape] | None:
    units = attrs["units"]
    return None if units is None else [(units, data[-1])]


def _matmul(data: Shape, attrs: Mapping[str, Any]) -> Sequence[Shape] | None:
    units = attrs["units"]
    if units is None or len(data) < 2:
        return None
    size = data[-2] if attrs["transpose_a"] else data[-1]
    return [(units, size) if attrs["transpose_b"] else (size, units)]


def _convolution(data: Shape, attrs: Mapping[str, Any]) -> Sequence[Shape] | None:
    """Outputs O, inputs I of a group, and the kernel; transposed ones exchange O and I."""
    layout, kernel = attrs["data_layout"], attrs["kernel_layout"]
    channels, size, groups = attrs["channels"], attrs["kernel_size"], attrs["groups"]
    if channels is None or size is None or len(layout) != len(data) or len(kernel) != len(data):
        return None
    inputs = data[layout.index("C")]
    if not isinstance(inputs, int):
        return None
    rank = len(data) - 2
    sizes = size if isinstance(size, tuple) else (size,) * rank
    transposed = "output_padding" in attrs
    outputs, inputs = (channels // groups, inputs) if transposed else (channels, inputs // groups)
    known = {"O": outputs, "I": inputs} | dict(zip("DHW"[3 - rank :], sizes, strict=False))
    return [tuple(known[axis] for axis in kernel)] if set(kernel) == set(known) else None


def _channels(number: int) -> Weights:
    """Operands that have an element for each channel."""

    def rule(data: Shape, attrs: Mapping[str, Any]) -> Sequence[Shape] | None:
        axis = int(attrs["axis"])
        return [(data[axis],)] * number if -len(data) <= axis < len(data) else None

    return rule


_WEIGHTS: Final[dict[str, Weights]] = {
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.bias_add": _channels(1),
    "nn.prelu": _channels(1),
    "nn.batch_norm": _channels(4),
    **{f"nn.{kind}_norm": _channels(2) for kind in ("layer", "instance", "group")},
    **{f"nn.conv{n}d{end}": _convolution for n in (1, 2, 3) for end in ("", "_transpose")},
}
