"""Activations and normalisations."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from relaxpy.ir.relax import op
from tests.ir.relax.op.cases.case import ODD, SPECIAL, Array, Case, floats


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)  # type: ignore[no-any-return]


def _softmax(x: Array, axis: int) -> Array:
    power = np.exp(x - x.max(axis=axis, keepdims=True))
    return power / power.sum(axis=axis, keepdims=True)  # type: ignore[no-any-return]


def _layer_norm(x: Array, gamma: Array, beta: Array, axes: tuple[int, ...]) -> Array:
    mean, spread = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(spread + 1e-5) * gamma + beta  # type: ignore[no-any-return]


def cases() -> Iterator[Case]:
    x = floats(3, 4)
    yield Case("relax.nn.relu", "floats", (x,), op.nn.relu, lambda v: np.maximum(v, 0))
    yield Case("relax.nn.relu", "special", (SPECIAL,), op.nn.relu, lambda v: np.maximum(v, 0))
    yield Case("relax.nn.relu", "ints", (ODD,), op.nn.relu, lambda v: np.maximum(v, 0))
    yield Case(
        "relax.nn.leakyrelu",
        "floats",
        (x,),
        lambda v: op.nn.leakyrelu(v, 0.1),
        lambda v: np.where(v > 0, v, v * 0.1),
    )
    yield Case(
        "relax.nn.gelu",
        "floats",
        (x,),
        op.nn.gelu,
        lambda v: v * (1 + _erf(v / math.sqrt(2))) / 2,
        roundings=32,
    )
    inner = lambda v: math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)  # noqa: E731
    yield Case(
        "relax.nn.gelu_tanh",
        "floats",
        (x,),
        op.nn.gelu_tanh,
        lambda v: v * (1 + np.tanh(inner(v))) / 2,
        roundings=64,
    )
    yield Case("relax.nn.silu", "floats", (x,), op.nn.silu, lambda v: v / (1 + np.exp(-v)))
    for axis in (-1, 0):
        yield Case(
            "relax.nn.softmax",
            str(axis),
            (x * 40,),
            lambda v, a=axis: op.nn.softmax(v, a),
            lambda v, a=axis: _softmax(v, a),
            roundings=64,
        )
        yield Case(
            "relax.nn.log_softmax",
            str(axis),
            (x * 40,),
            lambda v, a=axis: op.nn.log_softmax(v, a),
            lambda v, a=axis: np.log(np.maximum(_softmax(v, a), 1e-300)),
            roundings=64,
        )
    gamma, beta = floats(4, seed=8), floats(4, seed=9)
    yield Case(
        "relax.nn.layer_norm",
        "last",
        (x, gamma, beta),
        lambda *v: op.nn.layer_norm(*v, axes=-1),
        lambda v, g, b: _layer_norm(v, g, b, (-1,)),
        roundings=64,
    )
    yield Case(
        "relax.nn.layer_norm",
        "far from zero",
        (x + 1000, gamma, beta),
        lambda *v: op.nn.layer_norm(*v, axes=[1]),
        lambda v, g, b: _layer_norm(v, g, b, (1,)),
        roundings=2000,
        smooth=False,  # differences lose what is small beside 1000
    )
    yield Case(
        "relax.nn.layer_norm",
        "two axes",
        (floats(2, 3, 4), floats(3, 4, seed=8), floats(3, 4)),
        lambda *v: op.nn.layer_norm(*v, axes=[1, 2]),
        lambda v, g, b: _layer_norm(v, g, b, (1, 2)),
        roundings=64,
    )
    yield Case(
        "relax.nn.layer_norm",
        "axes not in order",
        (floats(2, 3, 4), floats(4, 2, seed=8), floats(4, 2)),
        lambda *v: op.nn.layer_norm(*v, axes=[2, 0]),
        lambda v, g, b: _layer_norm(v, g.T[:, None], b.T[:, None], (0, 2)),
        roundings=64,
    )
    yield Case(
        "relax.nn.rms_norm",
        "axes not in order",
        (floats(2, 3, 4), floats(4, 2, 3, seed=8)),
        lambda *v: op.nn.rms_norm(*v, axes=[-1, 0, 1]),
        lambda v, w: v / np.sqrt((v * v).mean() + 1e-5) * w.transpose(1, 2, 0),
        roundings=32,
    )
    yield Case(
        "relax.nn.layer_norm",
        "plain",
        (x, gamma, beta),
        lambda *v: op.nn.layer_norm(*v, axes=[-1], center=False, scale=False),
        lambda v, g, b: _layer_norm(v, np.float64(1), np.float64(0), (-1,)),
        roundings=64,
    )
    yield Case(
        "relax.nn.rms_norm",
        "last",
        (x, gamma),
        op.nn.rms_norm,
        lambda v, w: v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-5) * w,
        roundings=32,
    )
