"""Rows with random options, for operators whose options matter more than their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from relaxpy.ir.relax.op.definition.registry import R
from tests.ir.relax.op.cases import Array, Case

AXES = "DHW"


def _floats(draw: Random, *shape: int) -> Array:
    return np.random.default_rng(draw.getrandbits(32)).standard_normal(shape).astype("float32")


def _indices(draw: Random, size: int, *shape: int) -> Array:
    random = np.random.default_rng(draw.getrandbits(32))
    return random.integers(-size, size, shape).astype("int64")


def _case(name: str, inputs: tuple[Array, ...], call: Callable[..., Any], attrs: object) -> Case:
    """A row that PyTorch alone defines."""
    return Case(f"relax.{name}", f"random {attrs}", inputs, call, expected=definition_is_torch)


def definition_is_torch(*inputs: Array) -> Any:
    raise AssertionError("see torch_functions.TABLE")


def _each(draw: Random, rank: int, low: int, high: int) -> list[int]:
    return [draw.randint(low, high) for _ in range(rank)]


def _convolution(rank: int, *, transposed: bool) -> Callable[[Random], Case]:
    name = f"nn.conv{rank}d" + ("_transpose" if transposed else "")
    operator: Any = getattr(R.nn, f"conv{rank}d" + ("_transpose" if transposed else ""))

    def row(draw: Random) -> Case:
        groups = draw.choice([1, 1, 2, 3])
        inner, outer = draw.randint(1, 2), draw.randint(1, 2)
        kernel, strides = _each(draw, rank, 1, 3), _each(draw, rank, 1, 3)
        attrs: dict[str, Any] = {
            "strides": strides,
            "padding": _each(draw, 2 * rank, 0, 1 if transposed else 2),
            "dilation": _each(draw, rank, 1, 2),
            "groups": groups,
        }
        if transposed:
            attrs["output_padding"] = [draw.randint(0, s - 1) for s in strides]
            weight = _floats(draw, inner * groups, outer, *kernel)
        else:
            weight = _floats(draw, outer * groups, inner, *kernel)
        low = 4 if transposed else 5
        data = _floats(draw, draw.randint(1, 2), inner * groups, *_each(draw, rank, low, 6))
        return _case(name, (data, weight), lambda x, w: operator(x, w, **attrs), attrs)

    return row


def _pool(kind: str, rank: int) -> Callable[[Random], Case]:
    operator: Any = getattr(R.nn, f"{kind}_pool{rank}d")

    def row(draw: Random) -> Case:
        attrs: dict[str, Any] = {
            "pool_size": _each(draw, rank, 1, 3),
            "strides": _each(draw, rank, 1, 3),
            "padding": _each(draw, 2 * rank, 0, 2),
            "dilation": _each(draw, rank, 1, 2),
            "ceil_mode": draw.random() < 0.5,
            "count_include_pad": draw.random() < 0.5,
        }
        data = _floats(draw, 2, 2, *_each(draw, rank, 5, 7))
        return _case(f"nn.{kind}_pool{rank}d", (data,), lambda x: operator(x, **attrs), attrs)

    return row


def _adaptive_pool(rank: int) -> Callable[[Random], Case]:
    operator: Any = getattr(R.nn, f"adaptive_avg_pool{rank}d")

    def row(draw: Random) -> Case:
        size = _each(draw, rank, 1, 7)
        data = _floats(draw, 1, 2, *_each(draw, rank, 1, 6))
        return _case(f"nn.adaptive_avg_pool{rank}d", (data,), lambda x: operator(x, size), size)

    return row


def _grid_sample(draw: Random) -> Case:
    rank = draw.choice([2, 2, 3])
    attrs: dict[str, Any] = {
        "method": draw.choice(["nearest", "bilinear", "bicubic"][: 5 - rank]),
        "layout": f"NC{AXES[-rank:]}",
        "padding_mode": draw.choice(["zeros", "border", "reflection"]),
        "align_corners": draw.random() < 0.5,
    }
    data = _floats(draw, 2, 2, *_each(draw, rank, 1, 5))
    grid = _floats(draw, 2, rank, *_each(draw, rank, 1, 3))
    call = lambda x, y: R.image.grid_sample(x, y, **attrs)  # noqa: E731
    return _case("image.grid_sample", (data, grid), call, attrs)


def _resize(draw: Random) -> Case:
    method, place, rounding = draw.choice(
        [
            ("nearest_neighbor", "asymmetric", "floor"),
            ("nearest_neighbor", "half_pixel", "round_prefer_ceil"),
            ("linear", "half_pixel", ""),
            ("linear", "align_corners", ""),
            ("cubic", "half_pixel", ""),
            ("cubic", "align_corners", ""),
        ]
    )
    attrs: dict[str, Any] = {"method": method, "coordinate_transformation_mode": place}
    if rounding:
        attrs["rounding_method"] = rounding
    size = _each(draw, 2, 1, 9)
    data = _floats(draw, 1, 2, *_each(draw, 2, 1, 7))
    call = lambda x: R.image.resize2d(x, size, **attrs)  # noqa: E731
    return _case("image.resize2d", (data,), call, (size, attrs))


def _attention(draw: Random) -> Case:
    heads, group = draw.randint(1, 2), draw.randint(1, 3)
    queries, keys, width = draw.randint(1, 4), draw.randint(1, 5), draw.randint(1, 3)
    attrs: dict[str, Any] = {
        "scale": draw.choice([None, 0.3]),
        "causal_mask": draw.choice([None, "TopLeft", "BottomRight"]),
        "window_size": draw.choice([None, None, 2]),
    }
    inputs = [
        _floats(draw, 2, queries, heads * group, width),
        _floats(draw, 2, keys, heads, width),
        _floats(draw, 2, keys, heads, draw.randint(1, 3)),
    ]
    if draw.random() < 0.5:
        inputs.append(_floats(draw, draw.choice([1, 2]), 1, queries, keys))
    name = "nn.attention_bias" if len(inputs) == 4 else "nn.attention"
    return _case(name, tuple(inputs), lambda *x: R.nn.attention(*x, **attrs), attrs)


def _scatter_elements(draw: Random) -> Case:
    shape = _each(draw, draw.randint(1, 3), 1, 4)
    axis = draw.randrange(-len(shape), len(shape))
    reduction = draw.choice(["add", "mul", "mean", "max", "min"])
    count = [draw.randint(1, n) for n in shape]
    count[axis] = draw.randint(1, 6)
    data, updates = _floats(draw, *shape), _floats(draw, *count)
    if draw.random() < 0.5:  # zeros and ties
        data, updates = np.round(data), np.round(updates)
    inputs = (data, _indices(draw, shape[axis], *count), updates)
    call = lambda x, i, u: R.scatter_elements(x, i, u, axis=axis, reduction=reduction)  # noqa: E731
    return _case("scatter_elements", inputs, call, (axis, reduction))


def _scatter_nd(draw: Random) -> Case:
    shape, count = _each(draw, 3, 1, 3), draw.randint(1, 3)
    lines = draw.randint(1, 5)
    indices = np.stack([_indices(draw, n, lines) for n in shape[:count]], -1)
    reduction = draw.choice(["add", "mul", "mean", "max", "min"])
    inputs = (_floats(draw, *shape), indices, _floats(draw, lines, *shape[count:]))
    call = lambda x, i, u: R.scatter_nd(x, i, u, reduction)  # noqa: E731
    return replace(_case("scatter_nd", inputs, call, (count, reduction)), literal=((1, 1),))


def _index_put(draw: Random) -> Case:
    shape, count, lines = _each(draw, 3, 1, 3), draw.randint(1, 3), draw.randint(1, 5)
    indices = [_indices(draw, n, draw.choice([1, lines])) for n in shape[:count]]
    indices[0] = _indices(draw, shape[0], lines)
    values = _floats(draw, draw.choice([1, lines]), *shape[count:])

    def call(x: Any, v: Any, *i: Any) -> Any:
        return R.index_put(x, i, v, True)

    return _case("index_put", (_floats(draw, *shape), values, *indices), call, count)


def _norm(draw: Random) -> Case:
    kind = draw.choice(["layer_norm", "group_norm", "instance_norm", "batch_norm"])
    groups, each = draw.randint(1, 3), draw.randint(1, 2)
    sizes = _each(draw, draw.randint(1, 2), 2, 4)
    data = _floats(draw, 2, groups * each, *sizes)
    flags: dict[str, Any] = {"center": draw.random() < 0.8, "scale": draw.random() < 0.8}
    axes = list(range(2, data.ndim))
    if kind == "layer_norm":
        gamma = _floats(draw, *sizes)
        call = lambda x, a, b: R.nn.layer_norm(x, a, b, axes, **flags)  # noqa: E731
    else:
        gamma = _floats(draw, groups * each)
        calls = {
            "group_norm": lambda x, a, b: R.nn.group_norm(x, a, b, groups, 1, axes, **flags),
            "instance_norm": lambda x, a, b: R.nn.instance_norm(x, a, b, 1, axes, **flags),
            "batch_norm": lambda x, a, b: R.nn.batch_norm(x, a, b, a, R.multiply(b, b), 1, **flags),
        }
        call = calls[kind]
    beta = _floats(draw, *gamma.shape)
    if kind == "batch_norm":
        moving = _floats(draw, *gamma.shape), np.abs(_floats(draw, *gamma.shape))
        training = draw.random() < 0.5
        call = lambda *x: R.nn.batch_norm(*x, 1, training=training, **flags)  # noqa: E731
        return _case(f"nn.{kind}", (data, gamma, beta, *moving), call, (training, flags))
    return _case(f"nn.{kind}", (data, gamma, beta), call, (groups, flags))


def _loss(draw: Random) -> Case:
    classes = draw.randint(2, 4)
    sizes = _each(draw, draw.randint(0, 2), 1, 3)
    batch = draw.randint(1, 4)
    targets = np.abs(_indices(draw, classes, batch, *sizes)) % classes
    ignored = draw.choice([-100, 0, classes - 1])
    reduction = draw.choice(["none", "sum", "mean"])
    targets[0] = classes // 2  # with one target that counts, no mean is 0 / 0
    if ignored == classes // 2:
        ignored = -100
    weights = np.abs(_floats(draw, classes)) + 1
    inputs = (_floats(draw, batch, classes, *sizes), targets, weights)[: draw.choice([2, 3])]
    call = lambda *x: R.nn.nll_loss(*x, reduction=reduction, ignore_index=ignored)  # noqa: E731
    return _case("nn.nll_loss", inputs, call, (reduction, ignored))


def _quantize(draw: Random) -> Case:
    shape = _each(draw, 2, 1, 4)
    axis = draw.randrange(-2, 2)
    scale = np.abs(_floats(draw, shape[axis])) + np.float32(0.1)
    zero = _indices(draw, 9, shape[axis]).astype("int8")
    call = lambda x, s, z: R.quantize(x, s, z, axis, "int8")  # noqa: E731
    return _case("quantize", (_floats(draw, *shape) * 9, scale, zero), call, axis)


def _ordered(draw: Random) -> Case:
    shape = _each(draw, draw.randint(1, 3), 1, 5)
    axis = draw.randrange(-len(shape), len(shape))
    data = np.round(_floats(draw, *shape)) + 0.0  # with ties, and one zero
    k, largest = draw.randint(1, 6), draw.random() < 0.5
    name = draw.choice(["topk", "sort", "argsort", "unique", "bucketize"])
    calls: dict[str, Any] = {
        "topk": lambda x: R.topk(x, k, axis, "both", largest),
        "sort": lambda x: R.sort(x, axis, largest),
        "argsort": lambda x: R.argsort(x, axis, largest),
        "unique": lambda x: R.unique(x, True, True, True, True),
    }
    if name == "bucketize":
        bounds = np.sort(np.round(_floats(draw, draw.randint(1, 5))))
        call = lambda x, b: R.bucketize(x, b, False, largest)  # noqa: E731
        return _case(name, (data, bounds), call, largest)
    return _case(name, (data,), calls[name], (axis, k, largest))


#: For each family, a function from a random generator to a row.
FAMILIES: dict[str, Callable[[Random], Case]] = {
    **{f"conv{n}d": _convolution(n, transposed=False) for n in (1, 2, 3)},
    **{f"conv{n}d_transpose": _convolution(n, transposed=True) for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d": _pool(kind, n) for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive_pool(n) for n in (1, 2, 3)},
    "grid_sample": _grid_sample,
    "resize": _resize,
    "attention": _attention,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "index_put": _index_put,
    "norm": _norm,
    "loss": _loss,
    "quantize": _quantize,
    "ordered": _ordered,
}
