"""Activations and normalisations."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from tests.ir.ops.cases.case import ODD, SPECIAL, Array, Case, case, floats, same, slopes


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)  # type: ignore[no-any-return]


def _softmax(x: Array, axis: int) -> Array:
    power = np.exp(x - x.max(axis=axis, keepdims=True))
    return power / power.sum(axis=axis, keepdims=True)  # type: ignore[no-any-return]


def _log_softmax(x: Array, axis: int) -> Array:
    below = x - x.max(axis=axis, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=axis, keepdims=True))  # type: ignore[no-any-return]


def _layer_norm(x: Array, gamma: Array, beta: Array, axes: tuple[int, ...]) -> Array:
    mean, spread = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(spread + 1e-5) * gamma + beta  # type: ignore[no-any-return]


def cases() -> Iterator[Case]:
    x = floats(3, 4)
    yield case("nn.relu", "floats", (x,), lambda v: np.maximum(v, 0))
    yield case("nn.relu", "special", (SPECIAL,), lambda v: np.maximum(v, 0))
    yield case("nn.relu", "ints", (ODD,), lambda v: np.maximum(v, 0))
    yield case("nn.leakyrelu", "floats", (x,), lambda v: np.where(v > 0, v, v * 0.1), 0.1)
    yield case("nn.gelu", "floats", (x,), lambda v: v * (1 + _erf(v / math.sqrt(2))) / 2)
    inner = lambda v: math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)  # noqa: E731
    yield case("nn.gelu_tanh", "floats", (x,), lambda v: v * (1 + np.tanh(inner(v))) / 2)
    yield case("nn.silu", "floats", (x,), lambda v: v / (1 + np.exp(-v)))
    for axis in (-1, 0):
        yield same("nn.softmax", str(axis), (x * 40,), _softmax, axis)
        yield same("nn.log_softmax", str(axis), (x * 40,), _log_softmax, axis)
    gamma, beta = floats(4, seed=8), floats(4, seed=9)
    yield case(
        "nn.layer_norm",
        "last",
        (x, gamma, beta),
        lambda v, g, b: _layer_norm(v, g, b, (-1,)),
        axes=-1,
    )
    yield case(
        "nn.layer_norm",
        "far from zero",
        (x + 1000, gamma, beta),
        lambda v, g, b: _layer_norm(v, g, b, (1,)),
        axes=[1],
        smooth=False,  # differences lose what is small beside 1000
    )
    yield case(
        "nn.layer_norm",
        "two axes",
        (floats(2, 3, 4), floats(3, 4, seed=8), floats(3, 4)),
        lambda v, g, b: _layer_norm(v, g, b, (1, 2)),
        axes=[1, 2],
    )
    yield case(
        "nn.layer_norm",
        "axes not in order",
        (floats(2, 3, 4), floats(4, 2, seed=8), floats(4, 2)),
        lambda v, g, b: _layer_norm(v, g.T[:, None], b.T[:, None], (0, 2)),
        axes=[2, 0],
    )
    yield case(
        "nn.rms_norm",
        "axes not in order",
        (floats(2, 3, 4), floats(4, 2, 3, seed=8)),
        lambda v, w: v / np.sqrt((v * v).mean() + 1e-05) * w.transpose(1, 2, 0),
        axes=[-1, 0, 1],
    )
    yield Case(
        "relax.nn.layer_norm",
        "plain",
        (x, gamma, beta),
        lambda *v: op.nn.layer_norm(*v, axes=[-1], center=False, scale=False),
        lambda v, g, b: _layer_norm(v, np.float64(1), np.float64(0), (-1,)),
    )
    yield case(
        "nn.rms_norm",
        "last",
        (x, gamma),
        lambda v, w: v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-05) * w,
    )
    yield from _more_activations()
    yield from _moments()
    yield from _losses()
    yield from _attention()
    yield from _sequence_attention()


def _more_activations() -> Iterator[Case]:
    x = floats(2, 3, 4)
    scale, slope = 1.0507009873554805, 1.6732632423543773
    yield case(
        "nn.selu", "floats", (x,), lambda v: scale * np.where(v > 0, v, slope * (np.exp(v) - 1))
    )
    yield case(
        "nn.selu",
        "special",
        (SPECIAL,),
        lambda v: scale * np.where(v <= 0, slope * np.expm1(np.minimum(v, 0)), v),
    )
    yield case(
        "nn.selu",
        "almost 0",
        (np.array([-1e-07, -3e-06, 2e-06, -7e-09], "float32"),),
        lambda v: scale * np.where(v <= 0, slope * np.expm1(v), v),
        smooth=False,
    )
    for beta, threshold in ((1.0, 20.0), (2.5, 1.0)):
        yield Case(
            "relax.nn.softplus",
            f"{beta} {threshold}",
            (x,),
            lambda v, b=beta, t=threshold: op.nn.softplus(v, b, t),
            lambda v, b=beta, t=threshold: np.where(v * b > t, v, np.log1p(np.exp(v * b)) / b),
        )
    large = np.array([-200, -50, 0, 50, 200], "float32")
    yield case("nn.softplus", "large", (large,), lambda v: np.logaddexp(v, 0))
    slopes = floats(3, seed=4)
    for axis, alpha in (
        (1, slopes),
        (-1, floats(4, seed=5)),
        (0, floats(1, seed=6)),
        (2, slopes[:1]),
    ):
        shape = [1, 1, 1]
        shape[axis] = alpha.size
        yield case(
            "nn.prelu",
            f"axis {axis} {alpha.size} slopes",
            (x, alpha),
            lambda v, a, s=tuple(shape): np.where(v > 0, v, v * a.reshape(s)),
            axis,
        )
    yield case("nn.dropout", "nothing is dropped", (x,), lambda v: (v, np.ones_like(v)))


def _moments() -> Iterator[Case]:
    x = floats(2, 4, 3)
    channels = floats(4, seed=1), floats(4, seed=2)
    moving = floats(4, seed=3), np.abs(floats(4, seed=4)) + np.float32(0.5)

    def batch(
        v: Array, g: Array, b: Array, m: Array, s: Array, training: bool, center: bool, scale: bool
    ) -> tuple[Array, Array, Array]:
        column = (slice(None), None)
        mean, spread = (v.mean((0, 2)), v.var((0, 2))) if training else (m, s)
        out = (v - mean[column]) / np.sqrt(spread[column] + 1e-3)
        out = out * g[column] if scale else out
        out = out + b[column] if center else out
        if not training:
            return out, m, s
        return out, m * 0.8 + mean * 0.2, s * 0.8 + spread * 0.2

    for training in (False, True):
        for center, scale in ((True, True), (False, True), (True, False)):
            yield Case(
                "relax.nn.batch_norm",
                f"training {training} center {center} scale {scale}",
                (x, *channels, *moving),
                lambda *v, t=training, c=center, s=scale: op.nn.batch_norm(
                    *v, axis=1, epsilon=1e-3, center=c, scale=s, momentum=0.2, training=t
                ),
                lambda *v, t=training, c=center, s=scale: batch(*v, t, c, s),
            )
    yield Case(
        "relax.nn.batch_norm",
        "half, last axis",
        tuple(y.astype("float16") for y in (x[:, :, 0], *channels, *moving)),
        lambda *v: op.nn.batch_norm(*v, axis=-1, training=False),
        lambda v, g, b, m, s: ((v - m) / np.sqrt(s + 1e-5) * g + b, m, s),
    )

    def normal(v: Array, axes: tuple[int, ...]) -> Array:
        mean, spread = v.mean(axes, keepdims=True), v.var(axes, keepdims=True)
        return (v - mean) / np.sqrt(spread + 1e-5)  # type: ignore[no-any-return]

    column = (slice(None), None)
    for center, scale in ((True, True), (False, False)):
        yield Case(
            "relax.nn.instance_norm",
            f"center {center} scale {scale}",
            (x, *channels),
            lambda *v, c=center, s=scale: op.nn.instance_norm(*v, 1, [2], center=c, scale=s),
            lambda v, g, b, c=center, s=scale: (
                normal(v, (2,)) * (g[column] if s else 1) + (b[column] if c else 0)
            ),
        )
        for groups in (1, 2, 4):
            yield Case(
                "relax.nn.group_norm",
                f"{groups} groups center {center} scale {scale}",
                (x, *channels),
                lambda *v, n=groups, c=center, s=scale: op.nn.group_norm(
                    *v, n, 1, [2], center=c, scale=s
                ),
                lambda v, g, b, n=groups, c=center, s=scale: (
                    normal(v.reshape(2, n, 4 // n, 3), (2, 3)).reshape(v.shape)
                    * (g[column] if s else 1)
                    + (b[column] if c else 0)
                ),
            )
    yield Case(
        "relax.nn.group_norm",
        "channels last",
        (x.transpose(0, 2, 1).copy(), *channels),
        lambda *v: op.nn.group_norm(*v, 2, -1, [1]),
        lambda v, g, b: normal(v.reshape(2, 3, 2, 2), (1, 3)).reshape(v.shape) * g + b,
    )


def _nll(
    p: Array, t: Array, w: Array | None, reduction: str, ignored: int
) -> Array | np.floating[Any]:
    whole = p if p.ndim > 1 else p[None]
    places = t if p.ndim > 1 else np.asarray(t)[None]
    losses, weights = np.zeros(places.shape), np.zeros(places.shape)
    for index in np.ndindex(*places.shape):
        k = int(places[index])
        if k != ignored:
            weights[index] = 1 if w is None else w[k]
            losses[index] = -whole[(index[0], k, *index[1:])] * weights[index]
    if reduction == "none":
        return losses if p.ndim > 1 else losses[0]
    return losses.sum() / (weights.sum() if reduction == "mean" else 1)


def _losses() -> Iterator[Case]:
    logits, labels = floats(3, 4), np.abs(floats(3, 4, seed=1))
    for label, given in (("matrix", (logits, labels)), ("vector", (logits[0], labels[0]))):
        yield case(
            "nn.cross_entropy_with_logits",
            label,
            given,
            lambda p, y: -(p * y).sum() / (len(p) if p.ndim > 1 else 1),
        )
    weights = np.abs(floats(4, seed=3))
    images = floats(2, 4, 2, 2, seed=5)
    cases: dict[str, tuple[Array, Array]] = {
        "matrix": (logits, np.array([1, 3, 1], "int64")),
        "images": (images, np.array([[[0, 1], [3, 2]], [[1, 1], [0, 3]]], "int32")),
        "vector": (logits[0], np.array(2, "int64")),
    }
    yield case(
        "nn.nll_loss",
        "unsigned targets and the default index",
        (logits, np.array([1, 3, 1], "uint8"), weights),
        lambda p, t, w: _nll(p, t, w, "mean", -100),
    )
    for label, (p, t) in cases.items():
        for reduction in ("none", "sum", "mean"):
            for weighted in (False, True):
                operands = (p, t, weights) if weighted else (p, t)
                yield Case(
                    "relax.nn.nll_loss",
                    f"{label} {reduction}{' weighted' if weighted else ''}",
                    operands,
                    lambda *v, r=reduction: op.nn.nll_loss(*v, reduction=r, ignore_index=1),
                    lambda p, t, w=None, r=reduction: _nll(p, t, w, r, 1),
                )

        def slope(g: Array, p: Array, t: Array, w: Array, r: str) -> Array:
            out = np.zeros(p.shape)
            for index in np.ndindex(*p.shape):
                unit = np.zeros(p.shape)
                unit[index] = 1
                out[index] = np.sum(g * np.asarray(_nll(unit, t, w, r, 1)))
            return out

        for reduction in ("none", "sum", "mean"):
            shape = t.shape if reduction == "none" else ()
            yield Case(
                "relax.grad.nll_loss_backward",
                f"{label} {reduction}",
                (np.asarray(floats(*shape, seed=9), "float32"), p, t, weights),
                lambda *v, r=reduction: op.grad.nll_loss_backward(*v, reduction=r, ignore_index=1),
                lambda g, p, t, w, r=reduction: slope(g, p, t, w, r),
                only=("values", "shape"),
            )


def _attended(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | float = 0.0,
    scale: float | None = None,
    causal: str | None = None,
    window: int | None = None,
) -> Array:
    """Query by query."""
    batch, queries, heads, width = q.shape
    out = np.zeros((batch, queries, heads, v.shape[3]))
    if not heads or not width or not k.shape[2]:
        raise ValueError("there is no attention without heads or without elements to compare")
    bias = np.broadcast_to(bias, (batch, heads, queries, k.shape[1]))
    offset = k.shape[1] - queries if causal == "BottomRight" else 0
    for b, i, h in np.ndindex(batch, queries, heads):
        shared = h // (heads // k.shape[2])
        seen = [
            j
            for j in range(k.shape[1])
            if (causal is None or j <= i + offset) and (window is None or j > i + offset - window)
        ]
        if not seen:
            continue
        scores = np.array([q[b, i, h] @ k[b, j, shared] for j in seen])
        scores = scores * (1 / math.sqrt(width) if scale is None else scale)
        share = np.exp(scores + bias[b, h, i, seen] - (scores + bias[b, h, i, seen]).max())
        out[b, i, h] = (share / share.sum()) @ v[b, seen, shared]
    return out


def _attention() -> Iterator[Case]:
    def operands(queries: int, keys: int, heads: int, shared: int, batch: int = 1) -> Any:
        return (
            floats(batch, queries, heads, 2),
            floats(batch, keys, shared, 2, seed=1),
            floats(batch, keys, shared, 3, seed=2),
        )

    plain, wide = operands(2, 3, 2, 2), operands(4, 2, 1, 1)
    settings: dict[str, tuple[Any, dict[str, Any]]] = {
        "plain": (plain, {}),
        "batch": (operands(2, 2, 1, 1, batch=2), {}),
        "scale": (plain, {"scale": 0.3}),
        "groups of heads": (operands(1, 2, 4, 2), {}),
        "causal": (plain, {"causal_mask": "TopLeft"}),
        "causal at the end": (plain, {"causal_mask": "BottomRight"}),
        "nothing to attend to": (wide, {"causal_mask": "BottomRight"}),
        "window": (operands(3, 3, 1, 1), {"causal_mask": "TopLeft", "window_size": 2}),
        "half": (tuple(x.astype("float16") for x in plain), {}),
    }
    for label, (inputs, attrs) in settings.items():
        yield Case(
            "relax.nn.attention",
            label,
            inputs,
            lambda *v, a=attrs: op.nn.attention(*v, **a),
            lambda *v, a=attrs: _attended(
                *v, 0.0, a.get("scale"), a.get("causal_mask"), a.get("window_size")
            ),
            needs=("numbers",) if label == "groups of heads" else (),
            # What is masked may be multiplied by 0.
            only=("values",) if "causal_mask" in attrs else (),
        )
    large = np.full((1, 2, 1, 40), 60, "float16")  # its products with itself exceed float16
    values = floats(1, 2, 1, 3, dtype="float16")
    yield case("nn.attention", "large halves", (large, large, values), _attended, smooth=False)
    for label, shape in (("whole", (1, 2, 2, 3)), ("broadcast", (1, 1, 2, 3))):
        for name in ("attention", "attention_bias"):
            yield Case(
                f"relax.nn.{name}",
                f"bias {label}",
                (*plain, floats(*shape, seed=3)),
                getattr(op.nn, name),
                _attended,
            )
    for mask in ("TopLeft", "BottomRight"):
        yield Case(
            "relax.nn.attention_bias",
            f"bias {mask}",
            (*plain, floats(1, 2, 2, 3, seed=3)),
            lambda *v, m=mask: op.nn.attention_bias(*v, causal_mask=m),
            lambda *v, m=mask: _attended(*v, causal=m),
            only=("values",),  # what is masked may be multiplied by 0
        )


def _sequence_attention() -> Iterator[Case]:
    def of(heads: int, shared: int, queries: int, keys: int) -> tuple[Array, ...]:
        return (
            floats(1, queries, heads, 2),
            floats(1, keys, shared, 2, seed=1),
            floats(1, keys, shared, 3, seed=2),
        )

    starts, others = np.array([0, 2, 5], "int32"), np.array([0, 4, 4], "int64")
    settings: dict[str, tuple[tuple[Array, ...], tuple[Array, ...], dict[str, Any]]] = {
        "two sequences": (of(2, 1, 5, 5), (starts,), {"causal_mask": "TopLeft"}),
        "without keys": (of(2, 2, 5, 4), (starts, others), {"scale": 0.5}),
        "window": (of(1, 1, 5, 5), (starts,), {"causal_mask": "BottomRight", "window_size": 2}),
    }
    holes = tuple(np.where(np.abs(x) < 0.3, np.nan, x) for x in of(2, 1, 5, 5))
    settings["holes"] = (holes, (starts,), {})
    for label, (operands, ends, attrs) in settings.items():

        def by_sequence(
            q: Array, k: Array, v: Array, *s: Array, a: dict[str, Any] = attrs
        ) -> Array:
            rows, columns = ([slice(*pair) for pair in pairwise(e)] for e in (s[0], s[-1]))
            options = (0.0, a.get("scale"), a.get("causal_mask"), a.get("window_size"))
            found = [
                _attended(q[:, i], k[:, j], v[:, j], *options)
                for i, j in zip(rows, columns, strict=True)
            ]
            return np.concatenate(found, axis=1)

        def backward(
            g: Array, q: Array, k: Array, v: Array, *s: Array, f: Any = by_sequence
        ) -> tuple[Array, ...]:
            return (
                slopes(lambda x: (g * f(x, k, v, *s)).sum(), q),
                slopes(lambda x: (g * f(q, x, v, *s)).sum(), k),
                slopes(lambda x: (g * f(q, k, x, *s)).sum(), v),
            )

        def attend(*x: Any, a: dict[str, Any] = attrs) -> Any:
            return op.nn.attention_var_len(*x[:4], 3, *x[4:], **a)

        yield Case(
            "relax.nn.attention_var_len",
            label,
            (*operands, *ends),
            attend,
            by_sequence,
            only=("values", "shape"),  # of which the starts of sequences speak
        )
        if label == "holes":
            continue
        heads = operands[0].shape[2]
        yield Case(
            "relax.grad.attention_var_len_backward",
            label,
            (floats(1, 5, heads, 3, seed=3), *operands, *ends),
            lambda *x, a=attrs: op.grad.attention_var_len_backward(*x, **a),
            backward,
            only=("values", "shape", "dtype"),  # whose differences are exact enough
        )
