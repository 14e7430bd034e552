"""Tensors of PyTorch as constants over the same memory, and its datatypes by name."""

from __future__ import annotations

from typing import Any

import torch

from relaxpy.ir.core.tensor import as_numpy
from relaxpy.ir.relax.nodes import Constant
from relaxpy.plugins.importing.unsupported import UnsupportedError

_NAMES = [
    *("float16", "bfloat16", "float32", "float64", "bool"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
]
_DTYPES = {getattr(torch, name): name for name in _NAMES if hasattr(torch, name)}


def dtype_name(dtype: Any) -> str:
    """The name of a datatype of PyTorch.

    Errors:
        UnsupportedError: Relax has no such datatype: quantised tensors.
    """
    if dtype not in _DTYPES:
        raise UnsupportedError(f"Relax has no datatype {str(dtype).removeprefix('torch.')}")
    return _DTYPES[dtype]


def part_name(dtype: Any) -> str:
    """The name of a datatype of PyTorch; that of the real part, if it is complex."""
    return dtype_name(dtype.to_real() if dtype.is_complex else dtype)


def refuse_form(tensor: Any) -> None:
    """Check that a tensor, or a fake one, has a form in Relax.

    Errors:
        UnsupportedError: it is sparse, nested or quantised.
    """
    part_name(tensor.dtype)
    if tensor.layout is not torch.strided:
        kind = str(tensor.layout).removeprefix("torch.")
        raise UnsupportedError(f"Relax has no tensors in the layout {kind}; to_dense() makes one")


def constant(tensor: Any) -> Constant:
    """A constant over the memory of a tensor, which is copied only where its strides are negative.

    Errors:
        UnsupportedError: its elements are not in main memory, or its datatype is none of Relax.
    """
    refuse_form(tensor)
    data = tensor.detach()
    if data.is_conj() or data.is_neg():
        data = data.resolve_conj().resolve_neg()
    if data.device.type != "cpu":
        if data.is_meta:
            raise UnsupportedError("a tensor is on meta, where it has no elements")
        raise UnsupportedError(f"a tensor is on {data.device}; model.cpu() is in main memory")
    array = as_numpy(data)
    base = array
    while base is not None and hasattr(base, "flags"):
        base.flags.writeable = False
        base = base.base
    return Constant(array)


def memory_order(meta: Any) -> list[int] | None:
    """The axes of a tensor in the order in which they fill its memory, if it is not theirs.

    It is None where the tensor does not fill memory, or its strides are not known.
    """
    if not isinstance(meta, torch.Tensor) or meta.layout is not torch.strided:
        return None
    if not all(isinstance(stride, int) for stride in meta.stride()):
        return None
    order = sorted(range(meta.ndim), key=lambda axis: -meta.stride()[axis])
    is_other = not meta.is_contiguous() and meta.permute(order).is_contiguous()
    return order if is_other else None


def real_view(tensor: Any) -> Any:
    """A tensor of complex numbers as one of floats, whose last axis has the two parts."""
    return torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor


def complex_view(parts: Any) -> Any:
    """The tensor of complex numbers whose parts are in the last axis of a tensor of floats."""
    if not parts.numel():  # whose strides are arbitrary
        return parts.new_empty(parts.shape[:-1], dtype=parts.dtype.to_complex())
    return torch.view_as_complex(parts)


def identity(tensor: Any) -> tuple[object, ...]:
    """A key that is equal for tensors with the same elements in the same memory."""
    return (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
