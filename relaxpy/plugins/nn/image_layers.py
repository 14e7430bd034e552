"""Layers of networks for images, and of modules in order: PyTorch has them, and TVM does not."""

from __future__ import annotations

from relaxpy.errors import unexpected
from relaxpy.ir.relax.nodes import TupleGetItem
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.nn.core import Dim, Parameter, Tensor, emit_tensor, expr_of
from relaxpy.plugins.nn.module import Module, ModuleList
from relaxpy.plugins.nn.modules import Window
from relaxpy.support.entry import user_facing


class Sequential(ModuleList):
    """Modules in order, each of which gets the result of the one before it."""

    @user_facing
    def __init__(self, *modules: Module) -> None:
        """Errors: MisuseError (also TypeError) if an item is not a module."""
        super().__init__(modules)


class Flatten(Module):
    """The elements in the axes from `start_dim` to `end_dim` along one axis."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Tensor) -> Tensor:
        """`x.flatten(start_dim, end_dim)`."""
        return x.flatten(self.start_dim, self.end_dim)


class Dropout(Module):
    """The input itself: elements are dropped in training alone, and a model of nn only runs."""

    def __init__(self, p: float = 0.5) -> None:
        """Errors: MisuseError if `p` is not a probability."""
        if not 0 <= p <= 1:
            raise unexpected(p, "expected a probability from 0 to 1")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x


class _BatchNorm(Module):
    """x with its running mean subtracted and divided by the root of its running variance.

    Shapes:
        weight, bias               (num_features,), in `dtype`; None without `affine`
        running_mean, running_var  (num_features,), in `dtype`
    """

    def __init__(
        self, num_features: Dim, eps: float = 1e-5, affine: bool = True, dtype: str | None = None
    ) -> None:
        self.num_features = num_features
        self.eps = eps
        self.weight = Parameter((num_features,), dtype) if affine else None
        self.bias = Parameter((num_features,), dtype) if affine else None
        self.running_mean = Parameter((num_features,), dtype)
        self.running_var = Parameter((num_features,), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The result for `x`, whose axis 1 are the features."""
        mean, variance = expr_of(self.running_mean), expr_of(self.running_var)
        gamma = R.ones_like(mean) if self.weight is None else expr_of(self.weight)
        beta = R.zeros_like(mean) if self.bias is None else expr_of(self.bias)
        options = {"axis": 1, "epsilon": self.eps, "training": False}
        result = R.nn.batch_norm(expr_of(x), gamma, beta, mean, variance, **options)
        return emit_tensor(TupleGetItem(result, 0), "batch_norm")


class BatchNorm1D(_BatchNorm):
    """Batch normalisation as a trained model has it, of x of shape (batch, features[, width])."""


class BatchNorm2D(_BatchNorm):
    """Batch normalisation as a trained model has it, of x of shape (batch, features, h, w)."""


class _Pool2D(Module):
    """A window that moves over the last two axes, by default without overlap."""

    def __init__(
        self, kernel_size: Window, stride: Window | None = None, padding: Window = 0
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding


class MaxPool2D(_Pool2D):
    """Max pooling of x of shape (batch, channels, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        """The result for `x`."""
        options = {"strides": self.stride, "padding": self.padding}
        return emit_tensor(R.nn.max_pool2d(expr_of(x), self.kernel_size, **options), "max_pool2d")


class AvgPool2D(_Pool2D):
    """The mean of each window of x of shape (batch, channels, height, width).

    As in PyTorch, what is padded counts as zeros, unless `count_include_pad` is False.
    """

    def __init__(
        self,
        kernel_size: Window,
        stride: Window | None = None,
        padding: Window = 0,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """The result for `x`."""
        options = {"strides": self.stride, "padding": self.padding}
        pooled = R.nn.avg_pool2d(
            expr_of(x), self.kernel_size, count_include_pad=self.count_include_pad, **options
        )
        return emit_tensor(pooled, "avg_pool2d")


class AdaptiveAvgPool2D(Module):
    """The means of as many windows as `output_size` says, along the last two axes."""

    def __init__(self, output_size: Window) -> None:
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """The result for `x`, of shape (batch, channels, height, width)."""
        pooled = R.nn.adaptive_avg_pool2d(expr_of(x), self.output_size)
        return emit_tensor(pooled, "adaptive_avg_pool2d")
