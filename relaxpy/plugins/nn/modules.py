"""The layers that models are made of, those for images included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import TupleGetItem
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.nn.core import Dim, Parameter, Tensor, emit_tensor, expr_of, items_of
from relaxpy.plugins.nn.module import Module, ModuleList
from relaxpy.plugins.nn.ops import layers
from relaxpy.support.entry import user_constructed, user_facing

Window: TypeAlias = int | Sequence[int]


class Identity(Module):
    """The input itself."""

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """`op.relu(x)`."""
        return layers.relu(x)


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """`op.silu(x)`."""
        return layers.silu(x)


class GELU(Module):
    """x times the distribution function of the normal distribution at x."""

    def forward(self, x: Tensor) -> Tensor:
        """`op.gelu(x)`."""
        return layers.gelu(x)


@user_constructed
class Linear(Module):
    """x @ weight^T + bias.

    Shapes:
        weight  (out_features, in_features), in `dtype`
        bias    (out_features,), in `out_dtype` if that is passed; the product is computed in it
    """

    def __init__(
        self,
        in_features: Dim,
        out_features: Dim,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.out_dtype = out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), out_dtype or dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """The result for `x`, of shape (..., in_features)."""
        transposed = layers.permute_dims(self.weight)
        result = layers.matmul(x, transposed, out_dtype=self.out_dtype)
        return result if self.bias is None else result + self.bias

    @override
    def to(self, dtype: str | None = None) -> None:
        self.weight.to(dtype=dtype)
        if self.bias is not None and self.out_dtype is None:
            self.bias.to(dtype=dtype)


class _Convolution(Module):
    """A convolution with a window; `options` are what its operator takes besides parameters."""

    _operator: ClassVar[Callable[..., Tensor]]

    def _set_up(
        self,
        channels: tuple[Dim, Dim],
        window: Window,
        *,
        bias: bool,
        dtype: str | None,
        transposed: bool = False,
        **options: Any,
    ) -> None:
        self.in_channels, self.out_channels = channels
        self.kernel_size = window
        first, second = channels if transposed else reversed(channels)
        sizes = [window] if isinstance(window, int) else window
        self.weight = Parameter(
            (first, _channels_of_group(second, options["groups"]), *sizes), dtype
        )
        self.bias = Parameter((self.out_channels,), dtype) if bias else None
        self._options = options
        vars(self).update(options)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of `x`."""
        return type(self)._operator(x, self.weight, self.bias, **self._options)


@user_constructed
class Conv1D(_Convolution):
    """A convolution along one axis, of x of shape (batch, in_channels, width)."""

    _operator = layers.conv1d

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        options: Any = {"stride": stride, "padding": padding, "dilation": dilation}
        options["groups"] = groups
        channels = (in_channels, out_channels)
        self._set_up(channels, kernel_size, bias=bias, dtype=dtype, **options)


@user_constructed
class ConvTranspose1D(_Convolution):
    """A transposed convolution along one axis, of x of shape (batch, in_channels, width)."""

    _operator = layers.conv1d_transpose

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        options: Any = {"stride": stride, "padding": padding, "output_padding": output_padding}
        options |= {"dilation": dilation, "groups": groups}
        channels = (in_channels, out_channels)
        self._set_up(channels, kernel_size, bias=bias, dtype=dtype, transposed=True, **options)


def _with_layout(axes: str) -> Callable[..., None]:
    """The constructor of a convolution along these axes, whose data have any layout."""

    def __init__(  # noqa: N807
        self: _Convolution,
        in_channels: Dim,
        out_channels: Dim,
        kernel_size: Window,
        stride: Window = 1,
        padding: Window = 0,
        dilation: Window = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = f"NC{axes}",
    ) -> None:
        options: Any = {"stride": stride, "padding": padding, "dilation": dilation}
        options |= {"groups": groups, "data_layout": data_layout}
        channels, window = (in_channels, out_channels), _window(kernel_size, len(axes))
        self._set_up(channels, window, bias=bias, dtype=dtype, **options)

    __init__.__qualname__ = f"Conv{len(axes)}D.__init__"
    return user_facing(__init__)


class Conv2D(_Convolution):
    """A convolution along two axes, of x of shape (batch, in_channels, height, width)."""

    _operator = layers.conv2d
    __init__ = _with_layout("HW")


class Conv3D(_Convolution):
    """A convolution along three axes, of x of shape (batch, in_channels, depth, height, width)."""

    _operator = layers.conv3d
    __init__ = _with_layout("DHW")


def _window(size: Window, count: int) -> list[int]:
    sizes = [size] * count if isinstance(size, int) else items_of(size, "sizes")
    if len(sizes) != count:
        raise unexpected(size, f"a window has {count} sizes")
    return sizes


def _channels_of_group(channels: Dim, groups: int) -> Dim:
    if not isinstance(groups, int) or groups < 1:
        raise MisuseError(f"the number of groups is an integer from 1, found {groups!r:.60}")
    if isinstance(channels, int):
        if channels % groups:
            raise MisuseError(f"{channels} channels cannot be divided into {groups} groups")
        return channels // groups
    dim = tir.Var(channels, "int64") if isinstance(channels, str) else channels
    return dim if groups == 1 else dim // groups


@user_constructed
class LayerNorm(Module):
    """The tensor with mean 0 and variance 1 along the last axis, times `weight`, plus `bias`."""

    def __init__(
        self,
        normalized_shape: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter((normalized_shape,), dtype) if elementwise_affine else None
        self.bias = Parameter((normalized_shape,), dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        """The normalised `x`."""
        return layers.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


@user_constructed
class RMSNorm(Module):
    """The tensor, divided by the root of the mean of squares, times `weight`, plus `bias`."""

    def __init__(
        self,
        hidden_size: Dim,
        axes: int | list[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.axes = axes
        self.epsilon = epsilon
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """The normalised `x`."""
        result = layers.rms_norm(x, self.weight, self.axes, self.epsilon)
        return result if self.bias is None else layers.add(result, self.bias)


@user_constructed
class GroupNorm(Module):
    """The tensor with mean 0 and variance 1 in groups of channels, times `weight`, plus `bias`."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(
        self, x: Tensor, channel_axis: int = 1, axes: Sequence[int] | None = None
    ) -> Tensor:
        """The normalised `x`; `axes` are as for `op.group_norm`."""
        affine = (self.weight, self.bias, self.eps)
        return layers.group_norm(x, self.num_groups, *affine, channel_axis, axes)


@user_constructed
class Embedding(Module):
    """A row of `weight`, of shape (num, dim), for each integer."""

    def __init__(self, num: Dim, dim: Dim, dtype: str | None = None) -> None:
        self.num = num
        self.dim = dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The rows for integers of any shape."""
        if x.ndim == 1:
            return layers.take(self.weight, x, axis=0)
        rows = layers.take(self.weight, layers.reshape(x, [-1]), axis=0)
        return layers.reshape(rows, [*x.shape, self.weight.shape[1]])


@user_constructed
class Timesteps(Module):
    """Sines and cosines of times; see `op.get_timestep_embedding`."""

    def __init__(
        self, num_channels: int, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1
    ) -> None:
        self.num_channels = num_channels
        self.flip_sin_to_cos = flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift

    def forward(self, x: Tensor) -> Tensor:
        """The embedding of a vector of times."""
        return layers.get_timestep_embedding(
            x, self.num_channels, self.flip_sin_to_cos, self.downscale_freq_shift
        )


@user_constructed
class TimestepEmbedding(Module):
    """Two linear layers with SiLU between them, and after them if `post_act_fn` is "silu".

    With `cond_proj_dim`, a condition of that size may be added to the input.
    """

    def __init__(
        self,
        in_channels: int,
        time_embed_dim: int,
        act_fn: str = "silu",
        out_dim: int | None = None,
        post_act_fn: str | None = None,
        cond_proj_dim: int | None = None,
    ) -> None:
        """Errors: MisuseError if an activation is not "silu"."""
        for activation in (act_fn, post_act_fn or "silu"):
            if activation != "silu":
                raise MisuseError(f'the activation is "silu", found {activation!r:.60}')
        self.linear_1 = Linear(in_channels, time_embed_dim)
        self.cond_proj = None
        if cond_proj_dim is not None:
            self.cond_proj = Linear(cond_proj_dim, in_channels, bias=False)
        self.act = SiLU()
        self.linear_2 = Linear(time_embed_dim, out_dim or time_embed_dim)
        self.post_act = SiLU() if post_act_fn else None

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        """The result for `sample`, of shape (batch, in_channels)."""
        if condition is not None:
            if self.cond_proj is None:
                raise MisuseError("a condition needs TimestepEmbedding(..., cond_proj_dim=...)")
            sample = sample + self.cond_proj(condition)
        result: Tensor = self.linear_2(self.act(self.linear_1(sample)))
        return self.post_act(result) if self.post_act else result


@user_constructed
class Attention(Module):
    """Attention of positions to each other, or to those of another sequence, with projections.

    Shapes:
        hidden_states          (batch, positions, query_dim)
        encoder_hidden_states  (batch, other positions, cross_attention_dim)
        result                 as hidden_states
    """

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        bias: bool = False,
        norm_num_groups: int | None = None,
        out_bias: bool = True,
        scale_qk: bool = True,
    ) -> None:
        self.query_dim = query_dim
        self.cross_attention_dim = cross_attention_dim or query_dim
        self.heads = heads
        self.dim_head = dim_head
        self.bias = bias
        self.norm_num_groups = norm_num_groups
        self.out_bias = out_bias
        self.scale_qk = scale_qk
        self.scale = dim_head**-0.5 if scale_qk else 1.0
        self.inner_dim = dim_head * heads
        self.to_q = Linear(query_dim, self.inner_dim, bias=bias)
        self.to_k = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.to_v = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.group_norm = None
        if norm_num_groups is not None:
            self.group_norm = GroupNorm(norm_num_groups, query_dim)
        self.to_out = ModuleList([Linear(self.inner_dim, query_dim, bias=out_bias)])

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **cross_attention_kwargs: Any,
    ) -> Tensor:
        """The attention of `hidden_states`, to `encoder_hidden_states` if they are passed."""
        if attention_mask is not None:
            raise MisuseError("nn.Attention takes no attention_mask", about=attention_mask)
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states, channel_axis=2, axes=[1])
        others = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        query, key, value = self.to_q(hidden_states), self.to_k(others), self.to_v(others)
        heads = [0, -1, self.heads, self.dim_head]
        attended = layers.scaled_dot_product_attention(
            layers.reshape(query, heads),
            layers.reshape(key, heads),
            layers.reshape(value, heads),
            scale=None if self.scale_qk else self.scale,
        )
        joined = layers.reshape(attended, [0, -1, self.inner_dim])
        result: Tensor = self.to_out[0](joined)
        return result


@user_constructed
class Sequential(ModuleList):
    """Modules in order, each of which gets the result of the one before it."""

    @user_facing
    def __init__(self, *modules: Module) -> None:
        """Errors: MisuseError (also TypeError) if an item is not a module."""
        super().__init__(modules)


@user_constructed
class Flatten(Module):
    """The elements in the axes from `start_dim` to `end_dim` along one axis."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Tensor) -> Tensor:
        """`x.flatten(start_dim, end_dim)`."""
        return x.flatten(self.start_dim, self.end_dim)


@user_constructed
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


@user_constructed
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


@user_constructed
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


@user_constructed
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


@user_constructed
class AdaptiveAvgPool2D(Module):
    """The means of as many windows as `output_size` says, along the last two axes."""

    def __init__(self, output_size: Window) -> None:
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """The result for `x`, of shape (batch, channels, height, width)."""
        pooled = R.nn.adaptive_avg_pool2d(expr_of(x), self.output_size)
        return emit_tensor(pooled, "adaptive_avg_pool2d")
