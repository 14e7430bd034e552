"""More networks of `relay.testing`, for images: VGG, SqueezeNet, DenseNet, Inception and DCGAN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.models import Model, Network, call, relu

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Images:
    """Images of a network that is being built, and their number of channels."""

    net: Network
    data: rl.RelayExpr
    channels: int

    def _convolution(
        self, name: str, channels: int, size: int | tuple[int, int], attrs: dict[str, Any]
    ) -> rl.RelayExpr:
        kernel = (size, size) if isinstance(size, int) else size
        weight = self.net.param(f"{name}_weight", channels, self.channels, *kernel)
        return call("nn.conv2d", self.data, weight, channels=channels, kernel_size=kernel, **attrs)

    def conv(self, name: str, channels: int, size: int | tuple[int, int], **attrs: Any) -> Images:
        """Return a convolution with a bias."""
        product = self._convolution(name, channels, size, attrs)
        bias = self.net.param(f"{name}_bias", channels)
        return Images(self.net, call("nn.bias_add", product, bias), channels)

    def unit(self, name: str, channels: int, size: int | tuple[int, int], **attrs: Any) -> Images:
        """Return a convolution without a bias, normalised and rectified."""
        product = self._convolution(f"{name}_conv", channels, size, attrs)
        return Images(self.net, product, channels).norm(f"{name}_bn")

    def norm(self, name: str) -> Images:
        """Return the images normalised and rectified."""
        data = relu(self.net.batch_norm(name, self.data, self.channels))
        return Images(self.net, data, self.channels)

    def relu(self) -> Images:
        """Return rectified images."""
        return Images(self.net, relu(self.data), self.channels)

    def pool(self, kind: str, size: int, stride: int, padding: int = 0, **attrs: Any) -> Images:
        """Return the maximum or mean of windows."""
        attrs |= {"pool_size": (size,) * 2, "strides": (stride,) * 2, "padding": (padding,) * 2}
        return Images(self.net, call(f"nn.{kind}_pool2d", self.data, **attrs), self.channels)

    def joined(self, *others: Images) -> Images:
        """Return images with the channels of several."""
        branches = (self, *others)
        data = call("concatenate", rl.Tuple(tuple(b.data for b in branches)), axis=1)
        return Images(self.net, data, sum(b.channels for b in branches))

    def classes(self, name: str, number: int) -> rl.Function:
        """Return the function that classifies the images by the means of their channels."""
        data = call("nn.batch_flatten", call("nn.global_avg_pool2d", self.data))
        scores = self.net.dense(name, data, self.channels, number)
        return self.net.function(call("nn.softmax", scores))


def _start(batch_size: int, image_shape: Shape, dtype: str) -> Images:
    net = Network(dtype)
    return Images(net, net.param("data", batch_size, *image_shape), image_shape[0])


_VGG = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def _vgg(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: Shape = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> rl.Function:
    """Return a deep network of small convolutions (Simonyan and Zisserman, 2015)."""
    if num_layers not in _VGG:
        raise MisuseError(f"num_layers is one of {', '.join(map(str, _VGG))}, found {num_layers}")
    images = _start(batch_size, image_shape, dtype)
    for group, (count, channels) in enumerate(
        zip(_VGG[num_layers], (64, 128, 256, 512, 512), strict=True), 1
    ):
        for layer in range(1, count + 1):
            images = images.conv(f"conv{group}_{layer}", channels, 3, padding=(1, 1))
            images = images.norm(f"bn{group}_{layer}") if batch_norm else images.relu()
        images = images.pool("max", 2, 2)
    net = images.net
    data: rl.RelayExpr = call("nn.batch_flatten", images.data)
    inputs = images.channels * math.prod(size // 32 for size in image_shape[1:])
    for number in (6, 7):
        data = relu(net.dense(f"fc{number}", data, inputs, 4096))
        data, inputs = call("nn.dropout", data, rate=0.5), 4096
    return net.function(call("nn.softmax", net.dense("fc8", data, inputs, num_classes)))


_FIRES = {
    "1.0": ((96, 7), ((16, 64), (16, 64), (32, 128)), ((32, 128), (48, 192), (48, 192), (64, 256)),
            ((64, 256),)),
    "1.1": ((64, 3), ((16, 64), (16, 64)), ((32, 128), (32, 128)),
            ((48, 192), (48, 192), (64, 256), (64, 256))),
}  # fmt: skip


def _squeezenet(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: Shape = (3, 224, 224),
    dtype: str = "float32",
) -> rl.Function:
    """Return a network of few parameters (Iandola et al., 2016)."""
    if version not in _FIRES:
        raise MisuseError(f"version is one of {', '.join(_FIRES)}, found {version!r}")
    (channels, size), *stages = _FIRES[version]
    images = _start(batch_size, image_shape, dtype)
    attrs = {"strides": (2, 2), "padding": (size // 2, size // 2)}
    images = images.conv("conv1", channels, size, **attrs).relu()
    number = 2
    for stage in stages:
        images = images.pool("max", 3, 2)
        for squeeze, expand in stage:
            images = images.conv(f"fire{number}_squeeze", squeeze, 1).relu()
            wide = images.conv(f"fire{number}_expand3", expand, 3, padding=(1, 1)).relu()
            images = images.conv(f"fire{number}_expand1", expand, 1).relu().joined(wide)
            number += 1
    data = call("nn.dropout", images.data, rate=0.5)
    images = Images(images.net, data, images.channels).conv("conv_last", num_classes, 1).relu()
    scores = call("nn.batch_flatten", call("nn.global_avg_pool2d", images.data))
    return images.net.function(call("nn.softmax", scores))


_DENSE = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}


def _densenet(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: Shape = (3, 224, 224),
    dtype: str = "float32",
) -> rl.Function:
    """Return a network whose layers read all before them in a block (Huang et al., 2017)."""
    if densenet_size not in _DENSE:
        known = ", ".join(map(str, _DENSE))
        raise MisuseError(f"densenet_size is one of {known}, found {densenet_size}")
    first, growth, blocks = _DENSE[densenet_size]
    images = _start(batch_size, image_shape, dtype)
    images = images.unit("first", first, 7, strides=(2, 2), padding=(3, 3)).pool("max", 3, 2, 1)
    for number, layers in enumerate(blocks, 1):
        for layer in range(layers):
            name = f"block{number}_layer{layer}"
            inner = images.norm(f"{name}_bn").unit(name, 4 * growth, 1)
            weight = inner.net.param(f"{name}_out_weight", growth, inner.channels, 3, 3)
            data = call("nn.conv2d", inner.data, weight, channels=growth, kernel_size=(3, 3),
                        padding=(1, 1))  # fmt: skip
            images = images.joined(Images(images.net, data, growth))
        images = images.norm(f"transition{number}_bn")
        if number < len(blocks):
            half = images.channels // 2
            weight = images.net.param(f"transition{number}_weight", half, images.channels, 1, 1)
            data = call("nn.conv2d", images.data, weight, channels=half, kernel_size=(1, 1))
            images = Images(images.net, data, half).pool("avg", 2, 2)
    return images.classes("fc", classes)


def _tower(images: Images, name: str, *layers: Sequence[Any]) -> Images:
    """Return a sequence of units: of channels, size, and further attributes."""
    for number, (channels, size, *rest) in enumerate(layers):
        attrs = rest[0] if rest else {}
        images = images.unit(f"{name}_{number}", channels, size, **attrs)
    return images


def _half(size: int | tuple[int, int]) -> dict[str, Any]:
    """Return the padding that keeps the size of images."""
    height, width = (size, size) if isinstance(size, int) else size
    return {"padding": (height // 2, width // 2)}


_HALVED = {"strides": (2, 2)}
_ROW, _COLUMN = ((1, 7), _half((1, 7))), ((7, 1), _half((7, 1)))


def _inception_v3(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Shape = (3, 299, 299),
    dtype: str = "float32",
) -> rl.Function:
    """Return the third Inception network (Szegedy et al., 2016)."""
    x = _start(batch_size, image_shape, dtype)
    x = _tower(x, "stem_a", (32, 3, _HALVED), (32, 3), (64, 3, _half(3))).pool("max", 3, 2)
    x = _tower(x, "stem_b", (80, 1), (192, 3)).pool("max", 3, 2)
    for number, features in enumerate((32, 64, 64)):
        name = f"a{number}"
        x = _tower(x, f"{name}_one", (64, 1)).joined(
            _tower(x, f"{name}_five", (48, 1), (64, 5, _half(5))),
            _tower(x, f"{name}_three", (64, 1), (96, 3, _half(3)), (96, 3, _half(3))),
            _tower(x.pool("avg", 3, 1, 1), f"{name}_pool", (features, 1)),
        )
    x = _tower(x, "b_three", (384, 3, _HALVED)).joined(
        _tower(x, "b_double", (64, 1), (96, 3, _half(3)), (96, 3, _HALVED)),
        x.pool("max", 3, 2),
    )
    for number, width in enumerate((128, 160, 160, 192)):
        name = f"c{number}"
        x = _tower(x, f"{name}_one", (192, 1)).joined(
            _tower(x, f"{name}_seven", (width, 1), (width, *_ROW), (192, *_COLUMN)),
            _tower(x, f"{name}_double", (width, 1), (width, *_COLUMN), (width, *_ROW),
                   (width, *_COLUMN), (192, *_ROW)),
            _tower(x.pool("avg", 3, 1, 1), f"{name}_pool", (192, 1)),
        )  # fmt: skip
    x = _tower(x, "d_three", (192, 1), (320, 3, _HALVED)).joined(
        _tower(x, "d_seven", (192, 1), (192, *_ROW), (192, *_COLUMN), (192, 3, _HALVED)),
        x.pool("max", 3, 2),
    )
    for number, kind in enumerate(("avg", "max")):
        name = f"e{number}"
        three = _tower(x, f"{name}_three", (384, 1))
        double = _tower(x, f"{name}_double", (448, 1), (384, 3, _half(3)))
        x = _tower(x, f"{name}_one", (320, 1)).joined(
            *(
                _tower(branch, f"{name}_{part}_{size[0]}", (384, size, _half(size)))
                for part, branch in (("three", three), ("double", double))
                for size in ((1, 3), (3, 1))
            ),
            _tower(x.pool(kind, 3, 1, 1), f"{name}_pool", (192, 1)),
        )
    return x.classes("fc1", num_classes)


def _dcgan(
    batch_size: int,
    oshape: Shape = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> rl.Function:
    """Return the generator of a network that draws images (Radford et al., 2016)."""
    if oshape[1:] != (64, 64) or layout != "NCHW":
        raise MisuseError(
            f"images are of 64 by 64 pixels and the layout NCHW, found {oshape} and {layout!r}"
        )
    net = Network(dtype)
    code = net.param("data", batch_size, random_len)
    channels = 8 * ngf
    weight = net.param("dense_weight", channels * 16, random_len)
    data = relu(call("nn.dense", code, weight))
    data = call("reshape", data, newshape=(-1, channels, 4, 4))
    for number, width in enumerate((4 * ngf, 2 * ngf, ngf, oshape[0]), 2):
        weight = net.param(f"g{number}_weight", channels, width, 4, 4)
        data = call("nn.conv2d_transpose", data, weight, channels=width, kernel_size=(4, 4),
                    strides=(2, 2), padding=(1, 1))  # fmt: skip
        channels = width
        if number < 5:
            data = relu(net.batch_norm(f"g{number}_bn", data, width))
    return net.function(call("tanh", data))


def _synthetic(input_shape: Shape = (1, 3, 24, 12), dtype: str = "float32") -> rl.Function:
    """Return two convolutions and a sum: a small network for tests."""
    net = Network(dtype)
    images = Images(net, net.param("data", *input_shape), input_shape[1])
    images = images.conv("conv1", 6, 3, padding=(1, 1)).relu()
    again = images.conv("conv2", 6, 3, padding=(1, 1)).relu()
    return net.function(images.data + again.data)


vgg, squeezenet, densenet = Model(_vgg), Model(_squeezenet), Model(_densenet)
inception_v3, dcgan, synthetic = Model(_inception_v3), Model(_dcgan), Model(_synthetic)
