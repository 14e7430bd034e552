"""Refuse operands for which PyTorch has no kernel; PyTorch itself fails only at run time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.arrays import part_name

#: Operators that are for floats only: rounded to integers, they mean nothing.
_OF_FLOATS = frozenset(
    {
        *("softmax", "_softmax", "log_softmax", "_log_softmax", "gelu", "silu", "mish", "glu"),
        *("elu", "selu", "celu", "softplus", "hardswish", "hardsigmoid", "log_sigmoid", "var"),
        *("std", "var_mean", "std_mean", "layer_norm", "group_norm", "frac", "lerp"),
        *("logcumsumexp", "smooth_l1_loss", "binary_cross_entropy", "nll_loss", "nll_loss_nd"),
        *("nll_loss2d", "nll_loss_forward", "upsample_linear1d", "upsample_trilinear3d"),
    }
)
#: Those that are for uint8, too.
_OF_IMAGES = frozenset(f"upsample_{kind}2d" for kind in ("nearest", "bilinear", "bicubic"))
#: Those that are for all numbers, but not for Booleans.
_OF_NUMBERS = frozenset(
    {
        *("mm", "bmm", "matmul", "addmm", "baddbmm", "mv", "dot", "linear", "einsum", "ceil"),
        *("floor", "round", "trunc", "abs", "relu", "threshold", "median", "topk", "argmax"),
        "argmin",
    }
)
#: Operands that must have the datatype of the first operand.
_LIKE_FIRST = {
    **dict.fromkeys(("index_add", "index_copy"), ("source",)),
    "index_put": ("values",),
    **dict.fromkeys(("layer_norm", "group_norm"), ("weight", "bias")),
    **dict.fromkeys(("batch_norm", "instance_norm"), ("weight", "bias", "running_mean")),
}
#: Those that write a number, which has to be one of the datatype of the result.
_FILLING = frozenset(
    {
        *("fill", "full", "full_like", "new_full", "masked_fill", "index_fill", "scatter"),
        *("constant_pad_nd", "pad"),
    }
)


def require_kernel(node: Any) -> None:
    """Check that PyTorch has a kernel for the operator of a node and its operands.

    Errors:
        UnsupportedError: it does not.
    """
    schema = node.target._schema
    name = schema.name.rpartition(":")[2].rstrip("_")
    pairs = zip((argument.name for argument in schema.arguments), node.args, strict=False)
    args: dict[str, Any] = {**dict(pairs), **node.kwargs}
    result = _tensor(node.meta.get("val"))
    first = next(filter(None, map(_dtype, args.values())), None)
    dtype = None if result is None else result.dtype
    if first is not None and "softmax" not in name:  # whose result may be of another datatype
        _require_kind(name, first)
    elif dtype is not None:
        _require_kind(name, dtype)
    for other in (_dtype(args.get(part)) for part in _LIKE_FIRST.get(name, ())):
        is_wide = "norm" in name and other is torch.float32 and first in _NARROW
        if other not in (None, first) and not is_wide:
            raise UnsupportedError(
                f"PyTorch has it for operands of one datatype, found {part_name(first)} and "
                f"{part_name(other)}"
            )
    if dtype is not None:
        _require_numbers(name, args, dtype)


_NARROW = (torch.float16, torch.bfloat16)


def _require_kind(name: str, dtype: Any) -> None:
    is_whole = not (dtype.is_floating_point or dtype.is_complex)
    kinds = None
    if name in _OF_FLOATS and is_whole:
        kinds = "floats"
    elif name in _OF_IMAGES and is_whole and dtype is not torch.uint8:
        kinds = "floats and uint8"
    elif name in _OF_NUMBERS and dtype is torch.bool:
        kinds = "numbers"
    if kinds is not None:
        raise UnsupportedError(f"PyTorch has it for {kinds} only, found {part_name(dtype)}")


def _require_numbers(name: str, args: Mapping[str, Any], dtype: Any) -> None:
    is_whole = not (dtype.is_floating_point or dtype.is_complex)
    if name in ("clamp", "clamp_min", "clamp_max") and is_whole:
        for bound in (args.get("min"), args.get("max")):
            if isinstance(bound, int) and not _is_number_of(bound, dtype):
                raise UnsupportedError(f"the bound {bound} is out of range for {part_name(dtype)}")
    if name in _FILLING:
        value = args.get("value", args.get("fill_value"))
        if isinstance(value, (int, float)) and not _is_number_of(value, dtype):
            raise UnsupportedError(f"the value {value} is out of range for {part_name(dtype)}")
    exponent = args.get("exponent")
    if name == "pow" and is_whole and isinstance(exponent, int) and exponent < 0:
        raise UnsupportedError("PyTorch has no negative powers of integers")
    if name == "smooth_l1_loss" and args.get("beta", 1.0) < 0:
        raise UnsupportedError("PyTorch has no smooth_l1_loss of a negative beta")


def _is_number_of(value: float, dtype: Any) -> bool:
    """True if PyTorch converts a number to a datatype: infinity to a float, not to an integer."""
    if dtype.is_complex or dtype is torch.bool:
        return True
    if dtype.is_floating_point:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    info = torch.iinfo(dtype)
    # Negative values of unsigned integers wrap around.
    return math.isfinite(value) and min(info.min, -info.max) <= value <= info.max


def _tensor(value: Any) -> Any:
    """A tensor, or the first one of several, without elements; None if it is something else."""
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    return first if isinstance(first, torch.Tensor) else None


def _dtype(argument: Any) -> Any:
    """The datatype of an argument that is a tensor, or of the first of several; or None."""
    if isinstance(argument, (tuple, list)) and argument:
        return _dtype(argument[0])
    found = _tensor(argument.meta.get("val")) if isinstance(argument, torch.fx.Node) else None
    return None if found is None else found.dtype
