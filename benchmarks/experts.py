"""The models of `benchmarks/models.py` in NumPy, as an expert writes them.

Results are computed in place, windows are views, products of matrices are those of BLAS, and what
only depends on weights is computed once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Array = np.ndarray[Any, Any]
ROOT = np.float32(0.7978845608028654)


def gelu(x: Array) -> Array:
    """GELU by tanh, in a new array."""
    y = x * x
    y *= np.float32(0.044715)
    y += np.float32(1)
    y *= x
    y *= ROOT
    np.tanh(y, out=y)
    y += np.float32(1)
    y *= x
    y *= np.float32(0.5)
    return y


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    """Layer normalisation of the last axis, in place."""
    x -= x.mean(-1, keepdims=True)
    deviation = np.einsum("...i,...i->...", x, x)[..., None]
    deviation /= x.shape[-1]
    deviation += np.float32(1e-5)
    np.sqrt(deviation, out=deviation)
    x /= deviation
    x *= gamma
    x += beta
    return x


def normalised(x: Array, r: Array, gamma: Array, beta: Array) -> Array:
    """GELU, residual, layer normalisation."""
    y = gelu(x)
    y += r
    return layer_norm(y, gamma, beta)


def softmax_inplace(x: Array) -> Array:
    """Softmax along the last axis."""
    x -= x.max(-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(-1, keepdims=True)
    return x


def softmax(x: Array) -> Array:
    """Softmax along the last axis, in a new array."""
    y = x - x.max(-1, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(-1, keepdims=True)
    return y


def linear(x: Array, w: Array, b: Array | None = None) -> Array:
    """A dense layer with weights as the outputs by the inputs."""
    y = x @ w.T
    if b is not None:
        y += b
    return y


def encoder_layer(x: Array, *weights: Array) -> Array:
    """One layer of BERT-base."""
    wq, bq, wk, bk, wv, bv, wo, bo, g1, e1, w1, b1, w2, b2, g2, e2 = weights
    q, k, v = (
        linear(x, w, b).reshape(1, 128, 12, 64).transpose(0, 2, 1, 3)
        for w, b in ((wq, bq), (wk, bk), (wv, bv))
    )
    scores = q @ k.swapaxes(2, 3)
    scores *= np.float32(0.125)
    mixed = softmax_inplace(scores) @ v
    y = linear(mixed.transpose(0, 2, 1, 3).reshape(1, 128, 768), wo, bo)
    y += x
    layer_norm(y, g1, e1)
    z = linear(gelu(linear(y, w1, b1)), w2, b2)
    z += y
    return layer_norm(z, g2, e2)


def rms_norm(x: Array, weight: Array) -> Array:
    """Root mean square normalisation of the last axis, in a new array."""
    mean = np.einsum("...i,...i->...", x, x)[..., None]
    mean /= x.shape[-1]
    mean += np.float32(1e-5)
    np.sqrt(mean, out=mean)
    y = x / mean
    y *= weight
    return y


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    """Rotary embedding of (1, s, h, d), in a new array."""
    y = x * cos
    y[..., :32] -= x[..., 32:] * sin[..., :32]
    y[..., 32:] += x[..., :32] * sin[..., 32:]
    return y


def decoder(x: Array, cos: Array, sin: Array, mask: Array, *rest: Array) -> tuple[Array, ...]:
    """Four layers like those of Llama."""
    caches, weights = rest[:8], rest[8:]
    tokens = x.shape[1]
    new: list[Array] = []
    for layer in range(4):
        n1, wq, wk, wv, wo, n2, gate, up, down = weights[9 * layer : 9 * layer + 9]
        h = rms_norm(x, n1)
        q = rotated((h @ wq.T).reshape(1, tokens, 4, 64), cos, sin)
        k = rotated((h @ wk.T).reshape(1, tokens, 4, 64), cos, sin)
        v = (h @ wv.T).reshape(1, tokens, 4, 64)
        keys = np.concatenate([caches[2 * layer], k], 1)
        values = np.concatenate([caches[2 * layer + 1], v], 1)
        new += [keys, values]
        scores = q.transpose(0, 2, 1, 3) @ keys.transpose(0, 2, 3, 1)
        scores *= np.float32(0.125)
        scores += mask
        mixed = softmax_inplace(scores) @ values.transpose(0, 2, 1, 3)
        y = mixed.transpose(0, 2, 1, 3).reshape(1, tokens, 256) @ wo.T
        y += x
        h = rms_norm(y, n2)
        inner = h @ gate.T
        share = np.negative(inner)
        np.exp(share, out=share)
        share += np.float32(1)
        inner /= share
        inner *= h @ up.T
        x = inner @ down.T
        x += y
    norm, head = weights[36:]
    return rms_norm(x[:, -1:], norm) @ head.T, *new


def tiny_operations(x: Array, y: Array) -> Array:
    """A chain of additions, products and maxima."""
    out = x.copy()
    for _ in range(33):
        np.add(out, y, out=out)
        np.multiply(out, y, out=out)
        np.maximum(out, y, out=out)
    return np.add(out, y, out=out)


def perceptron(x: Array, w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array) -> Array:
    """Three dense layers."""
    x = linear(x, w1, b1)
    np.maximum(x, 0, out=x)
    x = linear(x, w2, b2)
    np.maximum(x, 0, out=x)
    return linear(x, w3, b3)


def causal_attention(q: Array, k: Array, v: Array) -> Array:
    """Attention of (1, s, h, d) to what comes before."""
    scores = q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1)
    scores *= np.float32(0.125)
    scores += np.triu(np.full((128, 128), -np.inf, "float32"), 1)
    mixed = softmax_inplace(scores) @ v.transpose(0, 2, 1, 3)
    return mixed.transpose(0, 2, 1, 3)


def conv2d(x: Array, w: Array, stride: int, pad: int) -> Array:
    """A convolution of one image, as one product of matrices."""
    out, _, height, width = w.shape
    if (height, width) == (1, 1):
        part = x[:, :, ::stride, ::stride]
        y = w.reshape(out, -1) @ part.reshape(part.shape[1], -1)
        return y.reshape(1, out, *part.shape[2:])
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = sliding_window_view(x[0], (height, width), (1, 2))[:, ::stride, ::stride]
    rows, columns = windows.shape[1:3]
    matrix = windows.transpose(0, 3, 4, 1, 2).reshape(-1, rows * columns)
    return (w.reshape(out, -1) @ matrix).reshape(1, out, rows, columns)


def convolution(x: Array, w: Array, b: Array) -> Array:
    """Convolution, bias, relu."""
    y = conv2d(x, w, 1, 1)
    y += b
    return np.maximum(y, 0, out=y)


class ResidualNetwork:
    """ResNet-18 with normalisations as part of the kernels of convolutions."""

    def __init__(self, weights: tuple[Array, ...]) -> None:
        self.kernels: list[tuple[Array, Array]] = []
        for k in range(0, len(weights) - 2, 5):
            kernel, gamma, beta, mean, variance = weights[k : k + 5]
            factor = gamma / np.sqrt(variance + np.float32(1e-5))
            bias = (beta - mean * factor)[None, :, None, None]
            self.kernels.append((kernel * factor[:, None, None, None], bias))
        self.dense = weights[-2:]

    def __call__(self, x: Array) -> Array:
        """The classes of an image."""
        rest = iter(self.kernels)

        def conv(x: Array, stride: int, pad: int) -> Array:
            kernel, bias = next(rest)
            y = conv2d(x, kernel, stride, pad)
            y += bias
            return y

        def relu(x: Array) -> Array:
            return np.maximum(x, 0, out=x)

        x = np.pad(relu(conv(x, 2, 3)), ((0, 0), (0, 0), (1, 1), (1, 1)))
        y = x[:, :, 0:-2:2, 0:-2:2].copy()
        for i in range(3):
            for j in range(3):
                np.maximum(y, x[:, :, i : i + 111 : 2, j : j + 111 : 2], out=y)
        x = y
        for stage in range(4):
            for block in range(2):
                stride = 2 if stage and not block else 1
                y = conv(relu(conv(x, stride, 1)), 1, 1)
                y += conv(x, 2, 0) if stride == 2 else x
                x = relu(y)
        return linear(x.mean((2, 3)), *self.dense)


def moments(x: Array) -> tuple[Array, ...]:
    """Sum, mean, variance and maximum of rows."""
    total = x.sum(1)
    mean = total / np.float32(x.shape[1])
    centred = x - mean[:, None]
    variance = np.einsum("ij,ij->i", centred, centred)
    variance /= x.shape[1]
    return total, mean, variance, x.max(1)
