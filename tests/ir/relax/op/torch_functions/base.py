"""What the tables of PyTorch's functions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

try:
    import torch
except ImportError:  # the tables still say which operators have a counterpart
    torch = None  # type: ignore[assignment]

#: The function of PyTorch for an operator, from its operands and attributes; or why there is none.
Table: TypeAlias = dict[str, Callable[..., Any] | str]


class NoCounterpartError(Exception):
    """PyTorch's function has not this option."""


def number(x: Any) -> Any:
    """A number as a tensor; tensors as they are."""
    return x if isinstance(x, torch.Tensor) else torch.as_tensor(x)


def of_dtype(dtype: Any, default: Any = None) -> Any:
    """The datatype of PyTorch with this name."""
    return default if dtype is None or str(dtype) in ("", "void") else getattr(torch, str(dtype))


def moved(x: Any, layout: str, target: str) -> Any:
    """A tensor of one layout in another, which has the same axes in another order."""
    if sorted(layout) != sorted(target):
        raise NoCounterpartError(layout)
    return x.permute([layout.index(axis) for axis in target])


def vjp(function: Callable[..., Any], gradient: Any, *operands: Any) -> Any:
    """The gradients of the operands from that of the result, which have gradients themselves."""
    with torch.enable_grad():
        leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in operands]
        result = function(*leaves)
        found = torch.autograd.grad(result, leaves, gradient, create_graph=True, allow_unused=True)
    grads = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
    return grads[0] if len(grads) == 1 else tuple(grads)
