"""Operators beside NumPy as an expert writes it.

`PYTHONPATH=. python benchmarks/operators.py` prints, for each call, the least time of NumPy, and
the ratio of relaxpy's least time to it, with the quartiles of the ratios of all pairs; then the ten
worst ratios and the geometric mean of each family. Both are called in turn, so that they meet the
same noise. The family "small" has calls of each other family with at most 8 elements along an axis,
where the overhead of a call counts. The time to compile is that of a module with this one call. An
argument selects the rows whose name contains it.

`RELAXPY_NUM_THREADS=1 python benchmarks/operators.py --floats` prints calls in floats of 32, 16 and
8 bits instead: the least processor time in float32, the ratio of each other datatype to it, and to
that of PyTorch in the same datatype, where it is installed and has the operator.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from relaxpy.exec.api.compile import compile
from relaxpy.ir import ops as op
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir

try:
    import torch
except ImportError:
    torch = None

Array = np.ndarray[Any, Any]
SECONDS = 0.4
SMALL = {
    *("add", "exp", "where", "sum axis 1", "argmax axis 1", "matmul", "softmax axis -1", "relu"),
    *("layer_norm", "conv2d 3x3", "max_pool2d", "permute_dims", "concat", "pad constant", "take"),
    *("gather_elements", "sort"),
}
"""The rows of the family "small"."""


class Row(NamedTuple):
    """A call of an operator on arrays, and the same by NumPy."""

    family: str
    name: str
    call: Callable[..., rx.Expr]
    inputs: tuple[Array, ...]
    numpy: Callable[..., Any]


def floats(*shape: int, seed: int = 0) -> Array:
    """Normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def rows() -> Iterator[Row]:
    """All rows."""
    for family in (elementwise, reductions, networks, windows, movements, positions):
        for row in family():
            yield row
            if row.name in SMALL:
                yield row._replace(family="small", inputs=tuple(map(_corner, row.inputs)))


def _corner(x: Array) -> Array:
    """At most 8 elements along each axis; integers are indices."""
    x = x[(slice(8),) * x.ndim].copy()
    return x % 8 if x.dtype.kind == "i" else x


def elementwise() -> Iterator[Row]:
    """Functions of single elements."""
    x, y, row = floats(1000, 1000), floats(1000, 1000, seed=1), floats(1000, seed=2)
    for name in ("add", "multiply", "maximum", "less"):
        yield Row("elementwise", name, getattr(op, name), (x, y), getattr(np, name))
    yield Row("elementwise", "add a row", op.add, (x, row), np.add)
    yield Row("elementwise", "power", op.power, (np.abs(x), y), np.power)
    for name in ("exp", "tanh", "sqrt", "abs", "floor"):
        data = np.abs(x) if name == "sqrt" else x
        yield Row("elementwise", name, getattr(op, name), (data,), getattr(np, name))
    yield Row("elementwise", "sigmoid", op.sigmoid, (x,), _sigmoid)
    yield Row("elementwise", "where", op.where, (x > 0, x, y), np.where)
    yield Row("elementwise", "clip", lambda v: op.clip(v, -1, 1), (x,), lambda v: v.clip(-1, 1))
    yield Row("elementwise", "astype", lambda v: op.astype(v, "int32"), (x,), _to_int32)


def _sigmoid(x: Array) -> Array:
    out = np.negative(x)
    np.exp(out, out=out)
    out += 1
    return np.reciprocal(out, out=out)


def _to_int32(x: Array) -> Array:
    return x.astype(np.int32)


def reductions() -> Iterator[Row]:
    """Sums and searches along axes."""
    x = floats(1000, 1000)
    for name in ("sum", "max", "mean", "argmax", "variance"):
        function = getattr(np, {"variance": "var"}.get(name, name))
        for axis in (0, 1):
            yield Row(
                "reductions",
                f"{name} axis {axis}",
                lambda v, a=axis, n=name: getattr(op, n)(v, a),
                (x,),
                lambda v, a=axis, f=function: f(v, axis=a),
            )
    yield Row("reductions", "cumsum", lambda v: op.cumsum(v, 1), (x,), lambda v: v.cumsum(1))
    yield Row("reductions", "matmul", op.matmul, (floats(512, 512), floats(512, 512)), np.matmul)
    batch = floats(8, 12, 128, 64), floats(8, 12, 64, 128, seed=1)
    yield Row("reductions", "matmul of batches", op.matmul, batch, np.matmul)
    pair = floats(64, 128, 32), floats(64, 32, 128, seed=1)
    text = "bij,bjk->bik"
    yield Row("reductions", "einsum", lambda *v: op.einsum(v, text), pair, np.matmul)


def _softmax(x: Array, axis: int) -> Array:
    out = x - x.max(axis=axis, keepdims=True)
    np.exp(out, out=out)
    out /= out.sum(axis=axis, keepdims=True)
    return out


def _normal(x: Array, axis: Any, epsilon: float = 1e-5) -> Array:
    out = x - x.mean(axis=axis, keepdims=True)
    out /= np.sqrt(np.square(out).mean(axis=axis, keepdims=True) + epsilon)
    return out


def _gelu_tanh(x: Array) -> Array:
    out = x * x
    out *= np.float32(0.044715)
    out += 1
    out *= x
    out *= np.float32(math.sqrt(2 / math.pi))
    np.tanh(out, out=out)
    out += 1
    out *= x
    out *= np.float32(0.5)
    return out


def _attend(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2)
    scores *= np.float32(1 / math.sqrt(q.shape[-1]))
    return (_softmax(scores, -1) @ v).transpose(0, 2, 1, 3)


def networks() -> Iterator[Row]:
    """Activations, normalisations, attention."""
    x, g, b = floats(512, 768), floats(768, seed=1), floats(768, seed=2)
    for axis in (-1, 0):
        yield Row(
            "networks",
            f"softmax axis {axis}",
            lambda v, a=axis: op.nn.softmax(v, a),
            (x,),
            lambda v, a=axis: _softmax(v, a),
        )
    yield Row("networks", "relu", op.nn.relu, (x,), lambda v: np.maximum(v, np.float32(0)))
    yield Row("networks", "gelu_tanh", op.nn.gelu_tanh, (x,), _gelu_tanh)
    yield Row("networks", "silu", op.nn.silu, (x,), lambda v: v * _sigmoid(v))
    yield Row(
        "networks",
        "layer_norm",
        lambda *v: op.nn.layer_norm(*v, axes=[-1]),
        (x, g, b),
        lambda v, g, b: _normal(v, -1) * g + b,
    )
    yield Row(
        "networks",
        "rms_norm",
        lambda *v: op.nn.rms_norm(*v, axes=[-1]),
        (x, g),
        lambda v, w: v / np.sqrt(np.square(v).mean(-1, keepdims=True) + np.float32(1e-5)) * w,
    )
    images = floats(8, 32, 28, 28)
    channels = tuple(np.abs(floats(32, seed=k)) for k in range(4))
    column = (slice(None), None, None)
    yield Row(
        "networks",
        "batch_norm",
        lambda *v: op.nn.batch_norm(*v, axis=1, training=False),
        (images, *channels),
        lambda v, g, b, m, s: (
            v * (g / np.sqrt(s + np.float32(1e-5)))[column]
            + (b - m * g / np.sqrt(s + np.float32(1e-5)))[column],
            m,
            s,
        ),
    )
    heads = tuple(floats(2, 128, 8, 64, seed=k) for k in range(3))
    yield Row("networks", "attention", op.nn.attention, heads, _attend)
    targets = np.random.default_rng(0).integers(0, 768, 512)
    yield Row(
        "networks",
        "nll_loss",
        op.nn.nll_loss,
        (x, targets),
        lambda p, t: -p[np.arange(len(t)), t].mean(),
    )


def _convolve(x: Array, w: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = sliding_window_view(padded, (3, 3), (2, 3))
    n, c, h, width = views.shape[:4]
    columns = views.transpose(0, 1, 4, 5, 2, 3).reshape(n, c * 9, h * width)
    return (w.reshape(len(w), -1) @ columns).reshape(n, len(w), h, width)


def _depthwise(x: Array, w: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = x.shape[2:]
    out, scratch = np.zeros_like(x), np.empty_like(x)
    for i in range(3):
        for j in range(3):
            block = padded[:, :, i : i + height, j : j + width]
            out += np.multiply(block, w[:, 0, i, j, None, None], out=scratch)
    return out


def _windows(x: Array, join: Any) -> Array:
    corners = [x[:, :, i::2, j::2] for i in range(2) for j in range(2)]
    out = join(corners[0], corners[1])
    for other in corners[2:]:
        join(out, other, out=out)
    return out


def windows() -> Iterator[Row]:
    """Convolutions, pools and resized images."""
    x, w = floats(1, 64, 56, 56), floats(64, 64, 3, 3, seed=1)
    yield Row("windows", "conv2d 3x3", lambda *v: op.nn.conv2d(*v, padding=1), (x, w), _convolve)
    small = floats(1, 3, 32, 32), floats(16, 3, 3, 3, seed=1)
    yield Row("windows", "conv2d small", lambda *v: op.nn.conv2d(*v, padding=1), small, _convolve)
    one = floats(64, 64, 1, 1, seed=1)
    yield Row(
        "windows",
        "conv2d 1x1",
        op.nn.conv2d,
        (x, one),
        lambda x, w: (w[:, :, 0, 0] @ x.reshape(1, 64, -1)).reshape(x.shape),
    )
    yield Row(
        "windows",
        "conv2d depthwise",
        lambda *v: op.nn.conv2d(*v, padding=1, groups=64),
        (x, w[:, :1].copy()),
        _depthwise,
    )
    options = {"pool_size": 2, "strides": 2}
    yield Row(
        "windows",
        "max_pool2d",
        lambda v: op.nn.max_pool2d(v, **options),
        (x,),
        lambda v: _windows(v, np.maximum),
    )
    yield Row(
        "windows",
        "avg_pool2d",
        lambda v: op.nn.avg_pool2d(v, **options),
        (x,),
        lambda v: _windows(v, np.add) * np.float32(0.25),
    )
    yield Row(
        "windows",
        "adaptive_avg_pool2d",
        lambda v: op.nn.adaptive_avg_pool2d(v, 1),
        (x,),
        lambda v: v.mean((2, 3), keepdims=True),
    )
    near = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
    yield Row(
        "windows",
        "resize2d nearest",
        lambda v: op.image.resize2d(v, (112, 112), rounding_method="floor", **near),
        (x,),
        lambda v: v.repeat(2, 2).repeat(2, 3),
    )
    yield Row(
        "windows",
        "resize2d linear",
        lambda v: op.image.resize2d(v, (112, 112), method="linear"),
        (x,),
        lambda v: _twice(_twice(v, 2), 3),
    )


def _twice(x: Array, axis: int) -> Array:
    """Linear, at half pixels."""
    x = np.moveaxis(x, axis, -1)
    wide = np.concatenate([x[..., :1], x, x[..., -1:]], -1)
    out = np.empty((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    near = x * np.float32(0.75)
    np.add(near, wide[..., :-2] * np.float32(0.25), out=out[..., ::2])
    np.add(near, wide[..., 2:] * np.float32(0.25), out=out[..., 1::2])
    return np.moveaxis(out, -1, axis)


def movements() -> Iterator[Row]:
    """Elements at other positions."""
    x = floats(64, 128, 128)
    copy = np.ascontiguousarray
    yield Row("movements", "permute_dims", op.permute_dims, (x,), lambda v: copy(v.T))
    yield Row(
        "movements", "concat", lambda *v: op.concat(v, 1), (x, x), lambda *v: np.concatenate(v, 1)
    )
    yield Row(
        "movements",
        "split",
        lambda v: op.split(v, 4, 1),
        (x,),
        lambda v: tuple(copy(part) for part in np.split(v, 4, 1)),
    )
    yield Row("movements", "flip", lambda v: op.flip(v, 2), (x,), lambda v: copy(v[..., ::-1]))
    yield Row("movements", "roll", lambda v: op.roll(v, 3, 1), (x,), lambda v: np.roll(v, 3, 1))
    yield Row("movements", "tile", lambda v: op.tile(v, (1, 2)), (x[0],), lambda v: np.tile(v, 2))
    yield Row("movements", "repeat", lambda v: op.repeat(v, 2, 1), (x,), lambda v: v.repeat(2, 1))
    widths = (0, 0, 1, 1, 2, 2)
    pairs = tuple(zip(widths[::2], widths[1::2], strict=True))
    for mode, name in (("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge")):
        yield Row(
            "movements",
            f"pad {mode}",
            lambda v, m=mode: op.nn.pad(v, widths, m),
            (x,),
            lambda v, m=name: np.pad(v, pairs, mode=m),
        )
    yield Row("movements", "triu", op.triu, (x,), np.triu)
    number = rx.PrimValue(1000)
    yield Row("movements", "eye", lambda: op.eye(number), (), lambda: np.eye(1000, dtype="f"))
    yield Row(
        "movements",
        "strided_slice",
        lambda v: op.strided_slice(v, [1], [1], [120], [3]),
        (x,),
        lambda v: copy(v[:, 1:120:3]),
    )


def positions() -> Iterator[Row]:
    """Elements at computed positions, and orders."""
    random = np.random.default_rng(0)
    x = floats(10000, 64)
    rows, columns = random.integers(0, 10000, 4096), random.integers(0, 64, (10000, 8))
    yield Row("positions", "take", lambda v, i: op.take(v, i, 0), (x, rows), lambda v, i: v[i])
    yield Row(
        "positions",
        "gather_elements",
        lambda v, i: op.gather_elements(v, i, 1),
        (x, columns),
        lambda v, i: np.take_along_axis(v, i, 1),
    )
    yield Row("positions", "gather_nd", op.gather_nd, (x, rows[:, None]), lambda v, i: v[i[:, 0]])
    updates = floats(4096, 64, seed=1)

    def added(v: Array, i: Array, u: Array) -> Array:
        out = v.copy()
        np.add.at(out, i[:, 0], u)
        return out

    def stored(v: Array, i: Array, u: Array) -> Array:
        out = v.copy()
        out[i[:, 0]] = u
        return out

    for reduction, function in (("update", stored), ("add", added)):
        yield Row(
            "positions",
            f"scatter_nd {reduction}",
            lambda v, i, u, r=reduction: op.scatter_nd(v, i, u, r),
            (x, rows[:, None], updates),
            function,
        )
    yield Row(
        "positions",
        "one_hot",
        lambda i: op.one_hot(
            i, *(rx.PrimValue(tir.FloatImm("float32", n)) for n in (1.0, 0.0)), 1000
        ),
        (rows % 1000,),
        lambda i: np.eye(1000, dtype=np.float32)[i],
    )
    m = floats(1000, 1000)
    yield Row("positions", "sort", op.sort, (m,), lambda v: np.sort(v, -1))
    yield Row("positions", "argsort", op.argsort, (m,), lambda v: np.argsort(v, -1, stable=True))

    def best(v: Array) -> tuple[Array, Array]:
        few = np.argpartition(v, -10, -1)[:, -10:]
        order = np.take_along_axis(v, few, -1).argsort(-1)[:, ::-1]
        few = np.take_along_axis(few, order, -1)
        return np.take_along_axis(v, few, -1), few

    yield Row("positions", "topk 10", lambda v: op.topk(v, 10), (m,), best)
    edges = np.sort(floats(100))
    yield Row("positions", "bucketize", op.bucketize, (m, edges), lambda v, e: e.searchsorted(v))
    yield Row("positions", "unique", op.unique, (rows,), np.unique)
    yield Row("positions", "nonzero", op.nonzero, (m > 1,), lambda v: np.stack(np.nonzero(v)))


def compiled(row: Row) -> tuple[Callable[..., Any], float]:
    """A function that computes the call with shapes known, and the milliseconds to compile."""
    params = [
        rx.Var(f"x{k}", rx.TensorStructInfo(x.shape, DataType(x.dtype)))
        for k, x in enumerate(row.inputs)
    ]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(row.call(*params)))
    module = builder.finalize()
    times = []
    for _ in range(3):
        start = time.thread_time()
        executable = compile(module)
        times.append(time.thread_time() - start)
    return executable["main"], min(times) * 1e3


def check(row: Row, found: Any, expected: Any) -> None:
    """Stop if NumPy computes something else."""
    pairs = zip(
        found if isinstance(found, tuple) else (found,),
        expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    )
    for a, b in pairs:
        if not np.allclose(a, b, rtol=1e-3, atol=1e-3):
            raise SystemExit(f"{row.name}: relaxpy and NumPy differ")


def timed(work: Callable[..., Any], inputs: tuple[Array, ...], count: int) -> float:
    """The microseconds of a call."""
    start = time.perf_counter()
    for _ in range(count):
        work(*inputs)
    return (time.perf_counter() - start) / count * 1e6


class Result(NamedTuple):
    """The least time of NumPy, ratios to it, and the time to compile."""

    numpy: float
    ratio: float
    quartiles: list[float]
    compile_ms: float


def measure(row: Row) -> Result:
    """The times of one row."""
    ours, compile_ms = compiled(row)
    check(row, ours(*row.inputs), row.numpy(*row.inputs))
    count = max(1, min(1000, int(5e3 / max(timed(row.numpy, row.inputs, 1), 1.0))))
    times: list[tuple[float, float]] = []
    deadline = time.perf_counter() + SECONDS
    while time.perf_counter() < deadline or len(times) < 7:
        times.append((timed(ours, row.inputs, count), timed(row.numpy, row.inputs, count)))
    quartiles = statistics.quantiles([a / b for a, b in times], n=4)
    ours_least, numpy = (min(column) for column in zip(*times, strict=True))
    return Result(numpy, ours_least / numpy, quartiles, compile_ms)


FLOATS = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


class FloatRow(NamedTuple):
    """A call, its inputs in float32, the same by PyTorch, and the number of constant inputs."""

    name: str
    call: Callable[..., rx.Expr]
    inputs: tuple[Array, ...]
    torch: Callable[..., Any]
    constants: int = 0


def float_rows() -> Iterator[FloatRow]:
    """Products, a convolution, and calls on arrays that no cache holds."""
    conv = lambda *v: op.nn.conv2d(*v, padding=1)  # noqa: E731
    torch_conv = lambda *v: torch.nn.functional.conv2d(*v, padding=1)  # noqa: E731
    image, window = floats(1, 64, 56, 56), floats(64, 64, 3, 3) / np.float32(20)
    weight = floats(768, 3072, seed=1) / np.float32(20)
    for constants, end in ((0, ""), (1, ", constant weight")):
        for count in (1, 8, 128):
            x, text = floats(count, 768), f"{count}x768x3072{end}"
            yield FloatRow(f"matmul {text}", op.matmul, (x, weight), lambda x, w: x @ w, constants)
            pair = x, np.ascontiguousarray(weight.T)
            yield FloatRow(f"linear {text}", op.linear, pair, lambda x, w: x @ w.T, constants)
        yield FloatRow(f"conv2d 3x3{end}", conv, (image, window), torch_conv, constants)
    large, other, row = floats(8192, 2048), floats(8192, 2048, seed=1), floats(2048)
    yield FloatRow("add", op.add, (large, other), lambda x, y: x + y)
    yield FloatRow("softmax", op.nn.softmax, (large,), lambda x: x.softmax(-1))
    yield FloatRow(
        "layer_norm",
        lambda *v: op.nn.layer_norm(*v, axes=[-1]),
        (large, row, row),
        lambda x, *v: torch.nn.functional.layer_norm(x, x.shape[-1:], *v),
    )
    yield FloatRow("sum axis 1", lambda v: op.sum(v, 1), (large,), lambda x: x.sum(1))
    yield FloatRow("to int8", lambda v: op.astype(v, "int8"), (large,), lambda x: x.char())
    yield FloatRow("to float32", lambda v: op.astype(v, "float32"), (large,), lambda x: x.float())


def least_times(row: FloatRow) -> dict[tuple[str, str], float]:
    """The least microseconds of relaxpy and PyTorch by the datatype, called in turn."""
    works: dict[tuple[str, str], Callable[[], Any]] = {}
    first = len(row.inputs) - row.constants
    for name in FLOATS:
        values = [x.astype(DataType(name).numpy()) for x in row.inputs]
        constants = [rx.const(x) for x in values[first:]]
        call = lambda *v, c=constants: row.call(*v, *c)  # noqa: E731
        main, _ = compiled(Row("", row.name, call, tuple(values[:first]), call))
        works["relaxpy", name] = lambda main=main, values=values: main(*values[:first])
        if torch is not None:
            tensors = [torch.from_numpy(x).to(getattr(torch, name)) for x in row.inputs]
            with contextlib.suppress(RuntimeError, NotImplementedError):
                row.torch(*tensors)
                works["torch", name] = lambda tensors=tensors: row.torch(*tensors)
    least = dict.fromkeys(works, math.inf)
    deadline = time.perf_counter() + SECONDS * len(works)
    while time.perf_counter() < deadline or math.inf in least.values():
        for key, work in works.items():
            start = time.process_time()
            work()
            least[key] = min(least[key], (time.process_time() - start) * 1e6)
    return least


def print_floats(pattern: str = "") -> None:
    """Print the table of floats: ratios to float32, and to PyTorch."""
    if torch is not None:
        torch.set_num_threads(1)
    print(f"{'':38}{'us':>9}" + "".join(f"{name:>16}" for name in FLOATS))
    for row in float_rows():
        if pattern in row.name:
            least = least_times(row)
            one = least["relaxpy", "float32"]
            cells = []
            for name in FLOATS:
                own, other = least["relaxpy", name], least.get(("torch", name), math.nan)
                cells.append(f"{own / one:9.2f}{own / other:7.2f}")
            print(f"{row.name:38}{one:9.0f}{''.join(cells)}", flush=True)


def main(pattern: str = "", *others: str) -> None:
    """Print the table."""
    if pattern == "--floats":
        print_floats(*others)
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{platform.machine()}, {cores} cores, NumPy {np.__version__}")
    print("ratios of times: below 1, relaxpy is faster")
    print(f"{'':34}{'NumPy us':>10}{'/ NumPy':>9}   {'quartiles':14}{'compile ms':>11}")
    ratios: dict[str, list[tuple[float, str]]] = {}
    times = []
    for row in rows():
        if pattern in f"{row.family} {row.name}":
            result = measure(row)
            ratios.setdefault(row.family, []).append((result.ratio, row.name))
            times.append(result.compile_ms)
            spread = "{0:.2f} to {2:.2f}".format(*result.quartiles)
            print(
                f"{row.family:13}{row.name:21}{result.numpy:10.1f}{result.ratio:9.2f}"
                f"   {spread:14}{result.compile_ms:11.1f}"
            )
    print("\nworst")
    large = (r for family, found in ratios.items() if family != "small" for r in found)
    for ratio, name in sorted(large, reverse=True)[:10]:
        print(f"{name:34}{ratio:10.2f}")
    print("\ngeometric means")
    for family, found in ratios.items():
        print(f"{family:34}{math.exp(statistics.fmean(math.log(r) for r, _ in found)):10.2f}")
    print(
        f"\nmilliseconds to compile: median {statistics.median(times):.1f}, most {max(times):.1f}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
