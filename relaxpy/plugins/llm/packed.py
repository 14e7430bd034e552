"""Weights of GGUF that stay packed: integers with a scale, and maybe an offset, for each group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.ir.relax.group_quantization import Quantization, as_quantization
from relaxpy.plugins.nn.modules import Embedding, Linear
from relaxpy.plugins.nn.quantization import Mutator, QuantizedEmbedding, QuantizedLinear
from relaxpy.plugins.weights.files import StoredTensor
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import op
from relaxpy.support.dataclass import dataclass, replace

Parts: TypeAlias = tuple[Any, Any, Any]
"""Of blocks (rows, blocks, bytes): the integers, int8, the scales, and the offsets or None."""


def _half(data: Any) -> Any:
    return np.ascontiguousarray(data).view("<f2").astype(np.float32)


def _fields(data: Any, bits: int, run: int) -> Any:
    """Integers of a few bits: a run of bytes has first the lowest bits of all, then the next."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, np.newaxis]
    runs = data.reshape(*data.shape[:-1], -1, 1, run) >> shifts
    return (runs & ((1 << bits) - 1)).reshape(*data.shape[:-1], -1)


def _plain(blocks: Any, *, bits: int, has_offset: bool = False) -> Parts:
    """Q4_0, Q5_0 and Q8_0; of Q4_1 and Q5_1 a group has the least weight, too."""
    scale, middle = _half(blocks[..., :2]), 1 << (bits - 1)
    if bits == 8:
        return blocks[..., 2:].view(np.int8), scale, None
    integers = _fields(blocks[..., -16:], 4, 16)
    if bits == 5:
        integers |= np.unpackbits(blocks[..., -20:-16], axis=-1, bitorder="little") << 4
    integers = integers.view(np.int8) - np.int8(middle)
    return integers, scale, _half(blocks[..., 2:4]) + middle * scale if has_offset else None


def _with_least(blocks: Any, *, bits: int) -> Parts:
    """Q4_K and Q5_K: scales and least weights of eight groups have six bits each."""
    first, second, third = np.split(blocks[..., 4:16], 3, axis=-1)
    scale = np.concatenate([first & 63, third & 15 | first >> 2 & 48], axis=-1)
    least = np.concatenate([second & 63, third >> 4 | second >> 2 & 48], axis=-1)
    scale, least = scale * _half(blocks[..., :2]), least * _half(blocks[..., 2:4])
    integers, middle = _fields(blocks[..., -128:], 4, 32), 1 << (bits - 1)
    if bits == 5:
        integers |= _fields(blocks[..., 16:48], 1, 32) << 4
    return integers.view(np.int8) - np.int8(middle), scale, middle * scale - least


def _q6_k(blocks: Any) -> Parts:
    integers = _fields(blocks[..., :128], 4, 64) | _fields(blocks[..., 128:192], 2, 32) << 4
    scale = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8) * _half(blocks[..., 208:])
    return integers.view(np.int8) - np.int8(32), scale, None


@dataclass(frozen=True)
class _Format:
    """A format of a file, and the form that it has here."""

    bits: int
    group: int
    size: int
    """The bytes of a block."""
    has_offset: bool
    parts: Callable[[Any], Parts]


FORMATS: Final[Mapping[str, _Format]] = {
    "Q4_0": _Format(4, 32, 18, False, partial(_plain, bits=4)),
    "Q4_1": _Format(4, 32, 20, True, partial(_plain, bits=4, has_offset=True)),
    "Q5_0": _Format(8, 32, 22, False, partial(_plain, bits=5)),
    "Q5_1": _Format(8, 32, 24, True, partial(_plain, bits=5, has_offset=True)),
    "Q8_0": _Format(8, 32, 34, False, partial(_plain, bits=8)),
    "Q4_K": _Format(4, 32, 144, True, partial(_with_least, bits=4)),
    "Q5_K": _Format(8, 32, 176, True, partial(_with_least, bits=5)),
    "Q6_K": _Format(8, 16, 210, False, _q6_k),
}
"""The formats that have a form of ours; integers of five and six bits have eight here."""


@dataclass(frozen=True)
class PackedWeight:
    """The weight of a layer as files have it: the rows of several tensors, joined."""

    parts: Sequence[StoredTensor]
    join: Callable[..., Any]
    """Joins arrays whose rows are those of the tensors."""
    quantization: Quantization
    has_offset: bool

    @classmethod
    def of(cls, parts: Sequence[StoredTensor], join: Callable[..., Any]) -> PackedWeight | None:
        """The weight, if all tensors have formats of `FORMATS`."""
        if not parts or not all(part.kind.name in FORMATS for part in parts):
            return None
        formats = [FORMATS[part.kind.name] for part in parts]
        bits, group = max(f.bits for f in formats), min(f.group for f in formats)
        form = Quantization(f"q{bits}f32_{group}", bits, group, "float32")
        return cls(parts, join, form, any(f.has_offset for f in formats))

    def read(self) -> dict[str, Any]:
        """The values of the parameters: the integers and scales are exactly those of the file.

        Integers of a file are from -128 to 127, or from -8 to 7; ours are from -127 to 128, and
        from -7 to 8. So the signs of integers and scales are exchanged.
        """
        group, bits = self.quantization.group, self.quantization.bits
        listed = []
        for part in self.parts:
            form = FORMATS[part.kind.name]
            rows = part.blocks()
            integers, scale, offset = form.parts(rows.reshape(len(rows), -1, form.size))
            arrays = [scale, np.zeros_like(scale) if offset is None else offset]
            arrays = [array.reshape(len(rows), -1) for array in arrays]
            arrays = [np.repeat(array, form.group // group, axis=1) for array in arrays]
            listed.append((integers.reshape(len(rows), -1), *arrays))
        integers, scale, offset = (self.join(*arrays) for arrays in zip(*listed, strict=True))
        stored = (np.int16(self.quantization.greatest) - integers).astype(np.uint8)
        if bits == 4:
            stored = stored[:, ::2] | stored[:, 1::2] << 4
        words = np.ascontiguousarray(stored).view("<u4").astype(np.uint32, copy=False)
        found = {"q_weight": words, "q_scale": -scale}
        return {**found, "q_offset": offset} if self.has_offset else found


Packed: TypeAlias = Mapping[str, PackedWeight]
"""Layers by their paths whose weights a file has in a form of ours."""


def packed_as(quantization: str | None, packed: Packed) -> Packed:
    """The layers that need not be rounded again: those with the same bits and groups, or all."""
    if quantization is None:
        return packed
    chosen = as_quantization(quantization)
    return {
        layer: replace(weight, quantization=chosen)
        for layer, weight in packed.items()
        if replace(chosen, name="", rounds_operands=False) == replace(weight.quantization, name="")
    }


class _Linear(QuantizedLinear):
    """The weights of a group have an offset, which multiplies the sum of its elements."""

    def __init__(self, linear: Linear, quantization: Quantization) -> None:
        super().__init__(linear, quantization)
        self.q_offset = nn.Parameter(self.q_scale.shape, quantization.dtype)

    @override
    def product(self, x: nn.Tensor, out_dtype: str | None) -> nn.Tensor:
        return super().product(x, out_dtype) + _offsets(x, self.q_offset, out_dtype)


class _Embedding(QuantizedEmbedding):
    """The same for rows of a table."""

    def __init__(self, embedding: Embedding, quantization: Quantization) -> None:
        super().__init__(embedding, quantization)
        self.q_offset = nn.Parameter(self.q_scale.shape, quantization.dtype)

    @override
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        _, groups = self.q_offset.shape
        offset = op.take(self.q_offset, op.reshape(x, [-1]), axis=0)
        offset = op.reshape(offset, [*x.shape, groups, 1])
        rows = op.reshape(super().forward(x), [*x.shape, groups, self.quantization.group])
        return op.reshape(rows + offset, [*x.shape, self.dim])

    @override
    def product(self, x: nn.Tensor, out_dtype: str | None) -> nn.Tensor:
        return super().product(x, out_dtype) + _offsets(x, self.q_offset, out_dtype)


def _offsets(x: nn.Tensor, offset: nn.Tensor, out_dtype: str | None) -> nn.Tensor:
    """The product with the offsets of groups alone."""
    *rows, size = x.shape
    _, groups = offset.shape
    sums = op.sum(op.reshape(x, [*rows, groups, size // groups]), axis=-1)
    return op.matmul(sums, op.permute_dims(offset), out_dtype=out_dtype)


class WithPacked(Mutator):
    """Replaces the layers whose weights are packed."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed

    @override
    def visit_module(self, name: str, node: Any) -> Any:
        if name not in self.packed:
            return self.visit(name, node)
        own = self.packed[name]
        if isinstance(node, Embedding):
            return (_Embedding if own.has_offset else QuantizedEmbedding)(node, own.quantization)
        assert isinstance(node, Linear)
        return (_Linear if own.has_offset else QuantizedLinear)(node, own.quantization)
