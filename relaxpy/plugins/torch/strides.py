"""Checks whether tensors of PyTorch have all of their memory, and in which order of their axes.

Sizes and strides may be expressions; no function here makes a guard on them.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch

from relaxpy.plugins.torch.symbols import is_symbolic, sympy_of


def has_memory(meta: Any) -> bool:
    """True for a tensor whose elements are in memory by strides."""
    return isinstance(meta, torch.Tensor) and meta.layout is torch.strided


def is_whole(meta: Any) -> bool:
    """True if a result has all of its memory, with its elements in order."""
    if not has_memory(meta) or sympy_of(meta.storage_offset()) != 0:
        return False
    stride: Any = 1
    for size, found in zip(reversed(meta.shape), reversed(meta.stride()), strict=True):
        if sympy_of(size) != 1 and _of_elements(found) != stride:
            return False
        stride = stride * sympy_of(size)
    size = _of_elements(meta.untyped_storage().nbytes())
    return bool(sympy.expand(stride * meta.itemsize - size) == 0)


def _of_elements(number: Any) -> Any:
    """A number without `Max(1, size)`, which is not the size only if there are no elements."""
    number = sympy_of(number)
    if not isinstance(number, sympy.Expr):
        return number

    def is_size(e: Any) -> bool:  # the class is that of PyTorch or of sympy
        return type(e).__name__ == "Max" and len(e.args) == 2 and 1 in e.args

    return number.replace(is_size, lambda e: next(arg for arg in e.args if arg != 1))


def memory_order(meta: Any) -> list[int] | None:
    """The axes of a tensor in the order in which they fill its memory, if it is not theirs.

    It is None where they do not fill it, or PyTorch does not know strides that are symbolic.
    """
    strides = [s.node.hint if is_symbolic(s) else s for s in meta.stride()]
    if meta.layout is not torch.strided or None in strides:
        return None
    order = sorted(range(meta.ndim), key=lambda axis: -strides[axis])
    is_other = order != sorted(order) and not is_whole(meta)
    return order if is_other and is_whole(meta.permute(order)) else None


def fills_memory(meta: Any, *, in_order: bool = False) -> bool:
    """True if a result has all of its memory, with its elements, and axes, in order."""
    if not has_memory(meta) or meta.is_conj() or meta.is_neg():
        return False
    return is_whole(meta) or (not in_order and memory_order(meta) is not None)
