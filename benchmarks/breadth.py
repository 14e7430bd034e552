"""Programs unlike the models, in which a library may be slow, beside JAX and PyTorch.

`PYTHONPATH=. RELAXPY_NUM_THREADS=1 python benchmarks/breadth.py` prints, for each program, the
least processor time of relaxpy on the default target, and its ratios to those of the others, which
are called in turn. JAX is compiled, PyTorch calls operator by operator; both use one thread. An
argument selects the rows whose name contains it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import numpy as np
import torch
from jax import numpy as jnp
from torch.nn import functional

from benchmarks.models import Array, Emit, check, floats, model, timed
from relaxpy.exec.api.compile import compile
from relaxpy.ir import ops as op
from relaxpy.ir.relax import nodes as rx

SECONDS = 0.5


class Row(NamedTuple):
    """A program as a function of emitted expressions, its arguments, and the same for others."""

    name: str
    body: Callable[..., Any]
    values: tuple[Array, ...]
    jax: Callable[..., Any]
    torch: Callable[..., Any]


def transpositions() -> Iterator[Row]:
    """Axes in another order."""
    for shape, axes, dtype in (
        ((1000, 1000), (1, 0), "float32"),
        ((2048, 2048), (1, 0), "float32"),
        ((1000, 1000), (1, 0), "int8"),
        ((1, 64, 56, 56), (0, 2, 3, 1), "float32"),
        ((8, 3, 64, 64), (0, 2, 3, 1), "float32"),
        ((10, 20, 30, 40), (3, 2, 1, 0), "float32"),
    ):
        yield Row(
            f"transpose {'x'.join(map(str, shape))} {dtype}",
            lambda emit, x, axes=axes: emit(op.permute_dims(x, list(axes))),
            ((floats(*shape) * 40).astype(dtype),),
            lambda x, axes=axes: x.transpose(axes),
            lambda x, axes=axes: x.permute(axes).contiguous(),
        )


def reductions() -> Iterator[Row]:
    """Sums, scans, extremes and normalisations."""
    for shape in ((1000, 1000), (20000, 64), (100000, 3)):
        yield Row(
            f"variance of columns {shape[0]}x{shape[1]}",
            lambda emit, x: emit(op.variance(x, 0)),
            (floats(*shape),),
            lambda x: x.var(0),
            lambda x: x.var(0, correction=0),
        )
    for shape in ((1000, 1000), (1000000,)):
        yield Row(
            f"cumsum {'x'.join(map(str, shape))}",
            lambda emit, x: emit(op.cumsum(x, -1)),
            (floats(*shape),),
            lambda x: jnp.cumsum(x, -1),
            lambda x: x.cumsum(-1),
        )
    for count, length in ((100000, 8), (10000, 10)):
        yield Row(
            f"maxima of {count} rows of {length}",
            lambda emit, x: emit(op.max(x, 1)),
            (floats(count, length),),
            lambda x: x.max(1),
            lambda x: x.amax(1),
        )
    for count, length in ((100000, 3), (10000, 10)):
        yield Row(
            f"softmax of {count} rows of {length}",
            lambda emit, x: emit(op.nn.softmax(x)),
            (floats(count, length),),
            lambda x: jax.nn.softmax(x),
            lambda x: functional.softmax(x, -1),
        )
    yield Row(
        "distances of 500 points to 500, 3 axes",
        lambda emit, x, y: emit(op.sqrt(emit(op.sum(emit(op.square(emit(op.subtract(x, y)))), 2)))),
        (floats(500, 1, 3), floats(1, 500, 3, seed=1)),
        lambda x, y: jnp.sqrt(jnp.square(x - y).sum(2)),
        lambda x, y: torch.cdist(x[:, 0], y[0]),
    )


def orders() -> Iterator[Row]:
    """The best elements, and all in order."""
    for shape, k in (((16, 50257), 5), ((1, 50257), 50), ((512, 8), 2)):
        yield Row(
            f"topk {k} of {shape[0]}x{shape[1]}",
            lambda emit, x, k=k: emit(op.topk(x, k, ret_type="values")),
            (floats(*shape),),
            lambda x, k=k: jax.lax.top_k(x, k)[0],
            lambda x, k=k: x.topk(k)[0],
        )
    yield Row(
        "sort a million bytes",
        lambda emit, x: emit(op.sort(x)),
        ((floats(1000000) * 30).astype("int8"),),
        lambda x: jnp.sort(x),
        lambda x: x.sort()[0],
    )
    yield Row(
        "positions of a million integers in order",
        lambda emit, x: emit(op.argsort(x)),
        ((floats(1000000) * 1e8).astype("int32"),),
        lambda x: jnp.argsort(x),
        lambda x: x.argsort(stable=True),
    )


def networks() -> Iterator[Row]:
    """Steps of networks."""

    def cell(emit: Emit, x: rx.Expr, h: rx.Expr, c: rx.Expr, w: rx.Expr, u: rx.Expr) -> rx.Expr:
        gates = emit(op.add(emit(op.matmul(x, w)), emit(op.matmul(h, u))))
        parts = emit(op.split(gates, 4, 1))
        i, f, g, o = (emit(rx.TupleGetItem(parts, k)) for k in range(4))
        kept = emit(op.multiply(emit(op.sigmoid(f)), c))
        c = emit(op.add(kept, emit(op.multiply(emit(op.sigmoid(i)), emit(op.tanh(g))))))
        return emit(op.multiply(emit(op.sigmoid(o)), emit(op.tanh(c))))

    def jax_cell(x: Any, h: Any, c: Any, w: Any, u: Any) -> Any:
        i, f, g, o = jnp.split(x @ w + h @ u, 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c)

    def torch_cell(x: Any, h: Any, c: Any, w: Any, u: Any) -> Any:
        i, f, g, o = (x @ w + h @ u).chunk(4, 1)
        return o.sigmoid() * (f.sigmoid() * c + i.sigmoid() * g.tanh()).tanh()

    def dequantised(emit: Emit, x: rx.Expr, w: rx.Expr, s: rx.Expr) -> rx.Expr:
        parts = (
            emit(op.bitwise_and(w, rx.const(15, "uint8"))),
            emit(op.right_shift(w, rx.const(4, "uint8"))),
        )
        q = emit(op.reshape(emit(op.stack(list(parts), 2)), (1024, 32, 32)))
        q = emit(op.subtract(emit(op.astype(q, "float32")), rx.const(8, "float32")))
        q = emit(op.reshape(emit(op.multiply(q, emit(op.expand_dims(s, 2)))), (1024, 1024)))
        return emit(op.linear(x, q))

    def library_dequantised(stack: Callable[..., Any]) -> Callable[..., Any]:
        def product(x: Any, w: Any, s: Any) -> Any:
            q = stack([w & 15, w >> 4], 2).reshape(1024, 32, 32) - np.float32(8)
            return x @ (q * s[:, :, None]).reshape(1024, 1024).T

        return product

    nibbles = (floats(1024, 512) * 40).astype("int8").view("uint8")
    yield Row(
        "product with weights of 4 bits, 1x1024x1024",
        dequantised,
        (floats(1, 1024), nibbles, floats(1024, 32, scale=0.05)),
        library_dequantised(jnp.stack),
        library_dequantised(torch.stack),
    )
    for keys, width in ((1024, 64), (2048, 128)):
        yield Row(
            f"causal attention, 4 heads, {keys} x {width}",
            lambda emit, q, k, v: emit(op.nn.attention(q, k, v, causal_mask="TopLeft")),
            tuple(floats(1, keys, 4, width, seed=k) for k in range(3)),
            lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
            lambda q, k, v: functional.scaled_dot_product_attention(
                *(x.transpose(1, 2) for x in (q, k, v)), is_causal=True
            ).transpose(1, 2),
        )
    for batch, size in ((1, 64), (32, 256)):
        states = [floats(batch, size, seed=k) for k in range(3)]
        weights = [floats(size, 4 * size, seed=k, scale=0.1) for k in range(2)]
        values = (*states, *weights)
        yield Row(f"LSTM cell, batch {batch}, {size}", cell, values, jax_cell, torch_cell)
    for groups, window in ((144, 3), (96, 7), (32, 3)):
        channels, pad = {32: 128}.get(groups, groups), window // 2
        yield Row(
            f"convolution in {groups} groups, {window}x{window}",
            lambda emit, x, w, p=pad, g=groups: emit(op.nn.conv2d(x, w, padding=p, groups=g)),
            (floats(1, channels, 56, 56), floats(channels, channels // groups, window, window)),
            lambda x, w, p=pad, g=groups: jax.lax.conv_general_dilated(
                x, w, (1, 1), [(p, p)] * 2, feature_group_count=g
            ),
            lambda x, w, p=pad, g=groups: functional.conv2d(x, w, padding=p, groups=g),
        )


def rows() -> Iterator[Row]:
    """All programs."""
    for family in (transpositions, reductions, orders, networks):
        yield from family()


def measure(row: Row) -> dict[str, float]:
    """The least microseconds of each contestant."""
    main, compiled = compile(model(row.body, row.values))["main"], jax.jit(row.jax)
    arrays = [jax.device_put(x) for x in row.values]
    tensors = [torch.from_numpy(x.copy()) for x in row.values]

    @torch.inference_mode()
    def eager() -> Any:
        return row.torch(*tensors)

    works: dict[str, Callable[[], Any]] = {
        "relaxpy": lambda: main(*row.values),
        "JAX": lambda: jax.block_until_ready(compiled(*arrays)),
        "PyTorch": eager,
    }
    expected = np.asarray(eager())
    for name, work in works.items():
        check(f"{row.name}, {name}", np.asarray(work()), expected)
    counts = {name: max(1, int(3e3 / max(timed(work, 1), 1.0))) for name, work in works.items()}
    best = dict.fromkeys(works, float("inf"))
    deadline = time.perf_counter() + SECONDS
    while time.perf_counter() < deadline:
        for name, work in works.items():
            best[name] = min(best[name], timed(work, counts[name]))
    return best


def main(pattern: str = "") -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"{'':40}{'relaxpy us':>12}{'/ JAX':>10}{'/ PyTorch':>12}")
    for row in rows():
        if pattern in row.name:
            best = measure(row)
            ratios = [best["relaxpy"] / best[name] for name in ("JAX", "PyTorch")]
            print(f"{row.name:40}{best['relaxpy']:12.1f}{ratios[0]:10.2f}{ratios[1]:12.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
