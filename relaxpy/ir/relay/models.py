"""Small networks as Relay modules with random weights: `relay.testing`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.op.makers import maker
from relaxpy.ir.relay.ty import TensorType

Workload = tuple[RelayModule, dict[str, np.ndarray]]


class Network:
    """A network that is being built: its parameters in their order."""

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.params: list[rl.Var] = []

    def param(self, name: str, *shape: int) -> rl.Var:
        """Return a new parameter."""
        var = rl.var(name, shape=shape, dtype=self.dtype)
        self.params.append(var)
        return var

    def dense(self, name: str, data: rl.RelayExpr, inputs: int, units: int) -> rl.RelayExpr:
        """Return a dense layer with a bias."""
        weight, bias = (
            self.param(f"{name}_weight", units, inputs),
            self.param(f"{name}_bias", units),
        )
        product = call("nn.dense", data, weight, units=units)
        return call("nn.bias_add", product, bias, axis=-1)

    def conv2d(
        self, name: str, data: rl.RelayExpr, inputs: int, channels: int, size: int, **attrs: Any
    ) -> rl.RelayExpr:
        """Return a convolution without a bias; `groups` divides the channels of the operand."""
        weight = self.param(
            f"{name}_weight", channels, inputs // attrs.get("groups", 1), size, size
        )
        return call("nn.conv2d", data, weight, channels=channels, kernel_size=(size, size), **attrs)

    def batch_norm(self, name: str, data: rl.RelayExpr, channels: int) -> rl.RelayExpr:
        """Return a batch normalisation."""
        names = "gamma", "beta", "moving_mean", "moving_var"
        params = [self.param(f"{name}_{part}", channels) for part in names]
        return rl.TupleGetItem(call("nn.batch_norm", data, *params, epsilon=2e-5), 0)

    def function(self, body: rl.RelayExpr) -> rl.Function:
        """Return the function of all parameters."""
        return rl.Function(tuple(self.params), body)


def call(name: str, *args: rl.RelayExpr, **attrs: Any) -> rl.Call:
    """Return a call of an operator, with the defaults of Python."""
    result: rl.Call = maker(name)(*args, **attrs)  # type: ignore[operator]
    return result


def relu(data: rl.RelayExpr) -> rl.RelayExpr:
    """Return a rectified tensor."""
    return call("nn.relu", data)


def create_workload(net: rl.Function, seed: int = 0) -> Workload:
    """Return the typed module of a network and random weights by the names of parameters.

    The first parameter is the input. Weights have the scale of Glorot and Bengio; scales and
    variances are 1, biases and means 0.
    """
    module = infer_module(RelayModule.from_expr(net))
    rng = np.random.default_rng(seed)
    params = module["main"].params[1:]
    return module, {param.name_hint: _initial(param, rng) for param in params}


def _initial(param: rl.Var, rng: np.random.Generator) -> np.ndarray:
    ty = param.checked_type
    assert isinstance(ty, TensorType)
    assert isinstance(ty.shape, tuple)
    shape = tuple(dim for dim in ty.shape if isinstance(dim, int))
    if param.name_hint.endswith(("gamma", "moving_var")):
        return np.ones(shape, str(ty.dtype))
    if not param.name_hint.endswith("weight"):
        return np.zeros(shape, str(ty.dtype))
    receptive = math.prod(shape[2:])
    limit = math.sqrt(6 / (receptive * (shape[0] + shape[1])))
    return rng.uniform(-limit, limit, shape).astype(str(ty.dtype))


# Networks


def _mlp(
    batch_size: int,
    num_classes: int = 10,
    image_shape: tuple[int, ...] = (1, 28, 28),
    dtype: str = "float32",
) -> rl.Function:
    """Return three dense layers and a softmax."""
    net = Network(dtype)
    data: rl.RelayExpr = net.param("data", batch_size, *image_shape)
    data = call("nn.batch_flatten", data)
    size = math.prod(image_shape)
    for number, units in enumerate((128, 64), 1):
        data, size = relu(net.dense(f"fc{number}", data, size, units)), units
    return net.function(call("nn.softmax", net.dense("fc3", data, size, num_classes)))


_UNITS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def _resnet(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> rl.Function:
    """Return a residual network with normalisations before the convolutions (He et al., 2016)."""
    if num_layers not in _UNITS or layout != "NCHW":
        known = ", ".join(map(str, _UNITS))
        raise MisuseError(
            f"num_layers is one of {known} and the layout NCHW, found {num_layers} and {layout!r}"
        )
    net, deep = Network(dtype), num_layers >= 50
    data: rl.RelayExpr = net.param("data", batch_size, *image_shape)
    data = net.conv2d("conv0", data, image_shape[0], 64, 7, strides=(2, 2), padding=(3, 3))
    data = relu(net.batch_norm("bn0", data, 64))
    data = call("nn.max_pool2d", data, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    size = 64
    for stage, units in enumerate(_UNITS[num_layers]):
        width = 64 << stage
        channels = width * 4 if deep else width
        for unit in range(units):
            stride = 2 if stage and not unit else 1
            name = f"stage{stage + 1}_unit{unit + 1}"
            data = _residual(net, name, data, size, channels, stride, first=not unit, deep=deep)
            size = channels
    data = relu(net.batch_norm("bn1", data, size))
    data = call("nn.batch_flatten", call("nn.global_avg_pool2d", data))
    return net.function(call("nn.softmax", net.dense("fc1", data, size, num_classes)))


def _residual(
    net: Network,
    name: str,
    data: rl.RelayExpr,
    size: int,
    channels: int,
    stride: int,
    *,
    first: bool,
    deep: bool,
) -> rl.RelayExpr:
    start = relu(net.batch_norm(f"{name}_bn1", data, size))
    strides = (stride, stride)
    if deep:
        width = channels // 4
        inner = net.conv2d(f"{name}_conv1", start, size, width, 1)
        inner = relu(net.batch_norm(f"{name}_bn2", inner, width))
        inner = net.conv2d(f"{name}_conv2", inner, width, width, 3, strides=strides, padding=(1, 1))
        inner = relu(net.batch_norm(f"{name}_bn3", inner, width))
        inner = net.conv2d(f"{name}_conv3", inner, width, channels, 1)
    else:
        inner = net.conv2d(
            f"{name}_conv1", start, size, channels, 3, strides=strides, padding=(1, 1)
        )
        inner = relu(net.batch_norm(f"{name}_bn2", inner, channels))
        inner = net.conv2d(f"{name}_conv2", inner, channels, channels, 3, padding=(1, 1))
    if first:
        data = net.conv2d(f"{name}_sc", start, size, channels, 1, strides=strides)
    result: rl.RelayExpr = inner + data
    return result


def _mobilenet(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> rl.Function:
    """Return a network of depthwise and pointwise convolutions (Howard et al., 2017)."""
    net = Network(dtype)
    data: rl.RelayExpr = net.param("data", batch_size, *image_shape)
    data = net.conv2d("conv_0", data, image_shape[0], 32, 3, strides=(2, 2), padding=(1, 1))
    data, size = relu(net.batch_norm("bn_0", data, 32)), 32
    layers = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5,
              (1024, 2), (1024, 1))  # fmt: skip
    for number, (channels, stride) in enumerate(layers, 1):
        data = net.conv2d(
            f"dw_{number}", data, size, size, 3, strides=(stride, stride), padding=(1, 1),
            groups=size,
        )  # fmt: skip
        data = relu(net.batch_norm(f"dw_bn_{number}", data, size))
        data = net.conv2d(f"pw_{number}", data, size, channels, 1)
        data, size = relu(net.batch_norm(f"pw_bn_{number}", data, channels)), channels
    data = call("nn.batch_flatten", call("nn.global_avg_pool2d", data))
    return net.function(call("nn.softmax", net.dense("fc", data, size, num_classes)))


def _lstm(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> rl.Function:
    """Return a long short-term memory, unrolled; it returns the last output."""
    net = Network(dtype)
    data: rl.RelayExpr = net.param("data", iterations, batch_size, num_hidden)
    weights = [
        (net.param(f"{name}_weight", 4 * num_hidden, num_hidden),
         net.param(f"{name}_bias", 4 * num_hidden))
        for name in ("i2h", "h2h")
    ]  # fmt: skip
    zeros = rl.const(np.zeros((batch_size, num_hidden), dtype))
    output, state = zeros, zeros  # type: tuple[rl.RelayExpr, rl.RelayExpr]
    for step in range(iterations):
        item = call("take", data, rl.const(step), axis=0)
        sums = [
            call("nn.bias_add", call("nn.dense", value, weight), bias, axis=-1)
            for value, (weight, bias) in zip((item, output), weights, strict=True)
        ]
        gates = call("split", sums[0] + sums[1], indices_or_sections=4, axis=1)
        into, forget, new, out = (rl.TupleGetItem(gates, index) for index in range(4))
        state = call("sigmoid", forget) * state + call("sigmoid", into) * call("tanh", new)
        output = call("sigmoid", out) * call("tanh", state)
    return net.function(output)


def _dqn(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
) -> rl.Function:
    """Return the network of deep Q-learning (Mnih et al., 2015)."""
    net = Network(dtype)
    data: rl.RelayExpr = net.param("data", batch_size, *image_shape)
    channels, *extent = image_shape
    for number, (width, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 1):
        data = relu(net.conv2d(f"conv{number}", data, channels, width, size, strides=(stride,) * 2))
        channels, extent = width, [(pixels - size) // stride + 1 for pixels in extent]
    data = call("nn.batch_flatten", data)
    data = relu(net.dense("dense1", data, channels * math.prod(extent), 512))
    return net.function(net.dense("dense2", data, 512, num_actions))


class Model:
    """A network under TVM's names: `relay.testing.mlp.get_workload(...)`."""

    def __init__(self, build: Callable[..., rl.Function]) -> None:
        self.get_net = build
        self.__doc__ = build.__doc__

    @user_facing
    def get_workload(self, *args: Any, **kwargs: Any) -> Workload:
        """Return the module and weights of the network, built with these arguments."""
        return create_workload(self.get_net(*args, **kwargs))


mlp, resnet, mobilenet = Model(_mlp), Model(_resnet), Model(_mobilenet)
lstm, dqn = Model(_lstm), Model(_dqn)


@user_facing
def run_infer_type(expr: rl.RelayExpr) -> rl.RelayExpr:
    """Return an expression with types."""
    typed: rl.Function = infer_module(RelayModule.from_expr(expr))["main"]
    return typed if isinstance(expr, rl.Function) else typed.body


@user_facing
def run_opt_pass(
    expr: rl.RelayExpr, opt_pass: Callable[[RelayModule], RelayModule], import_prelude: bool = False
) -> rl.RelayExpr:
    """Return what a pass, or a sequence of passes, makes of an expression, with types."""
    module = RelayModule.from_expr(expr)
    if import_prelude:
        module.import_from_std("prelude.rly")
    result: rl.Function = infer_module(opt_pass(module))["main"]
    return result if isinstance(expr, rl.Function) else result.body
