"""Models beside NumPy as an expert writes it, and beside its peers where they are installed.

`PYTHONPATH=. python benchmarks/models.py` prints, for each model, the least time of NumPy, and the
ratios of relaxpy's least time to those of the others; then the times of compilation, and the memory
of an encoder layer beside what its live values need. Weights are constants for relaxpy as for ONNX
Runtime, OpenVINO and torch.compile; `arguments` is relaxpy with weights as arguments of each call,
as NumPy and JAX have them. All are called in turn, so that they meet the
same noise. Times are those of the processor, so that OPENBLAS_NUM_THREADS=1 with
RELAXPY_NUM_THREADS=1 makes them comparable; `--wall` measures the time that passes, which several
threads shorten. An argument selects the rows whose name contains it; `--pipeline` adds a column
with another pipeline. `run.py` calls it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import experts, peers
from relaxpy.exec.api.compile import compile
from relaxpy.ir import ops as op
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir

Array = np.ndarray[Any, Any]
Emit = Callable[[rx.Expr], rx.Var]
SECONDS = 2.0
PAUSE = 0.2
"""Seconds after which no library's threads wait actively any longer."""
clock = time.process_time


class Row(NamedTuple):
    """A model, the values of its parameters, and the same by NumPy.

    The first `inputs` parameters are data, the others weights.
    """

    name: str
    model: IRModule
    values: tuple[Array, ...]
    numpy: Callable[..., Any]
    inputs: int


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """Normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * np.float32(scale)


def model(
    body: Callable[..., rx.Expr | tuple[rx.Expr, ...]],
    values: tuple[Array, ...],
    open_size: int | None = None,
) -> IRModule:
    """A module with one function of a dataflow block.

    `body` gets a function that emits expressions, and the parameters. Dimensions of `open_size`
    are symbolic, and those that are one larger.
    """
    n = tir.Var("n", "int64")
    sizes = {} if open_size is None else {open_size: n, open_size + 1: n + 1}
    params = [
        rx.Var(f"x{k}", rx.TensorStructInfo([sizes.get(n, n) for n in v.shape], str(v.dtype)))
        for k, v in enumerate(values)
    ]
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = body(builder.emit, *params)
            outputs = builder.emit_output(rx.Tuple(result) if isinstance(result, tuple) else result)
        builder.emit_func_output(outputs)
    return builder.finalize()


def scalar(value: float) -> rx.Constant:
    """A constant of rank 0."""
    return rx.const(value, "float32")


def split_heads(emit: Emit, x: rx.Expr, shape: tuple[Any, ...]) -> rx.Expr:
    """(1, s, h * d) as (1, h, s, d)."""
    return emit(op.permute_dims(emit(op.reshape(x, shape)), (0, 2, 1, 3)))


def encoder_layer(emit: Emit, x: rx.Expr, *weights: rx.Expr) -> rx.Expr:
    """One layer of BERT-base."""
    wq, bq, wk, bk, wv, bv, wo, bo, g1, e1, w1, b1, w2, b2, g2, e2 = weights
    split = 1, 128, 12, 64
    q, k, v = (
        split_heads(emit, emit(op.linear(x, w, b)), split)
        for w, b in ((wq, bq), (wk, bk), (wv, bv))
    )
    scores = emit(op.matmul(q, emit(op.permute_dims(k, (0, 1, 3, 2)))))
    shares = emit(op.nn.softmax(emit(op.multiply(scores, scalar(0.125)))))
    mixed = emit(op.permute_dims(emit(op.matmul(shares, v)), (0, 2, 1, 3)))
    mixed = emit(op.linear(emit(op.reshape(mixed, (1, 128, 768))), wo, bo))
    x = emit(op.nn.layer_norm(emit(op.add(mixed, x)), g1, e1, [-1]))
    inner = emit(op.nn.gelu_tanh(emit(op.linear(x, w1, b1))))
    return emit(op.nn.layer_norm(emit(op.add(emit(op.linear(inner, w2, b2)), x)), g2, e2, [-1]))


def encoder_weights() -> tuple[Array, ...]:
    """Weights as the outputs by the inputs, biases, and the factors of normalisations."""
    shapes = [(768, 768), (768,)] * 4 + [(768,)] * 2 + [(3072, 768), (3072,), (768, 3072), (768,)]
    return tuple(floats(*s, seed=k, scale=0.05) for k, s in enumerate([*shapes, (768,), (768,)]))


def decoder(emit: Emit, *params: rx.Expr) -> tuple[rx.Expr, ...]:
    """Four layers like those of Llama: tokens, positions, mask, caches, weights.

    There are two caches (1, n, heads, d) a layer; the results are logits of the last token, and
    the caches with the new tokens.
    """
    x, cos, sin, mask = params[:4]
    caches, weights = params[4:12], params[12:]
    tokens = x.struct_info.shape.values[1]  # type: ignore[union-attr]
    split = 1, tokens, 4, 64
    new: list[rx.Expr] = []

    def rotated(v: rx.Expr) -> rx.Expr:
        halves = emit(op.split(v, 2, 3))
        low, high = emit(rx.TupleGetItem(halves, 0)), emit(rx.TupleGetItem(halves, 1))
        turned = emit(op.concat([emit(op.negative(high)), low], 3))
        return emit(op.add(emit(op.multiply(v, cos)), emit(op.multiply(turned, sin))))

    for layer in range(4):
        n1, wq, wk, wv, wo, n2, gate, up, down = weights[9 * layer : 9 * layer + 9]
        h = emit(op.nn.rms_norm(x, n1, [-1]))
        q = rotated(emit(op.reshape(emit(op.linear(h, wq)), split)))
        k = rotated(emit(op.reshape(emit(op.linear(h, wk)), split)))
        v = emit(op.reshape(emit(op.linear(h, wv)), split))
        keys = emit(op.concat([caches[2 * layer], k], 1))
        values = emit(op.concat([caches[2 * layer + 1], v], 1))
        new += [keys, values]
        scores = emit(
            op.matmul(
                emit(op.permute_dims(q, (0, 2, 1, 3))), emit(op.permute_dims(keys, (0, 2, 3, 1)))
            )
        )
        scores = emit(op.add(emit(op.multiply(scores, scalar(0.125))), mask))
        shares = emit(op.nn.softmax(scores))
        mixed = emit(op.matmul(shares, emit(op.permute_dims(values, (0, 2, 1, 3)))))
        mixed = emit(op.reshape(emit(op.permute_dims(mixed, (0, 2, 1, 3))), (1, tokens, 256)))
        x = emit(op.add(x, emit(op.linear(mixed, wo))))
        h = emit(op.nn.rms_norm(x, n2, [-1]))
        inner = emit(
            op.multiply(emit(op.nn.silu(emit(op.linear(h, gate)))), emit(op.linear(h, up)))
        )
        x = emit(op.add(x, emit(op.linear(inner, down))))
    norm, head = weights[36:]
    last = emit(op.strided_slice(x, [1], [-1], [tokens]))
    return emit(op.linear(emit(op.nn.rms_norm(last, norm, [-1])), head)), *new


def decoder_values(tokens: int, cached: int) -> tuple[Array, ...]:
    """Values of the parameters of the decoder."""
    angles = np.arange(cached, cached + tokens)[:, None] * 1e4 ** (-np.arange(0, 64, 2) / 64)
    angles = np.concatenate([angles, angles], 1).astype("float32")[None, :, None, :]
    mask = np.triu(np.full((tokens, tokens + cached), -1e9, "float32"), cached + 1)
    layer = [(256,), *[(256, 256)] * 4, (256,), (688, 256), (688, 256), (256, 688)]
    shapes = [*layer * 4, (256,), (1000, 256)]
    return (
        floats(1, tokens, 256),
        np.cos(angles),
        np.sin(angles),
        mask,
        *(floats(1, cached, 4, 64, seed=k) for k in range(8)),
        *(floats(*s, seed=k, scale=0.05) for k, s in enumerate(shapes)),
    )


def residual_network(emit: Emit, image: rx.Expr, *weights: rx.Expr) -> rx.Expr:
    """ResNet-18: convolutions with batch normalisation, and a classifier."""
    rest = iter(weights)

    def conv(x: rx.Expr, stride: int, pad: int) -> rx.Expr:
        y = emit(op.nn.conv2d(x, next(rest), stride, pad))
        norm = op.nn.batch_norm(y, *(next(rest) for _ in range(4)), axis=1, training=False)
        return emit(rx.TupleGetItem(emit(norm), 0))

    x = emit(op.nn.relu(conv(image, 2, 3)))
    x = emit(op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)))
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = conv(emit(op.nn.relu(conv(x, stride, 1))), 1, 1)
            x = emit(op.nn.relu(emit(op.add(y, conv(x, 2, 0) if stride == 2 else x))))
    return emit(op.linear(emit(op.mean(x, [2, 3])), next(rest), next(rest)))


def residual_weights() -> tuple[Array, ...]:
    """Kernels, each with the four parameters of its normalisation, and those of the classifier."""
    shapes = [(64, 3, 7, 7)]
    before = 64
    for width in (64, 128, 256, 512):
        shapes += [(width, before, 3, 3), (width, width, 3, 3)]
        shapes += [(width, before, 1, 1)] if width != before else []
        shapes += [(width, width, 3, 3)] * 2
        before = width
    values: list[Array] = []
    for k, (out, inner, *window) in enumerate(shapes):
        count = inner * int(np.prod(window))
        values.append(floats(out, inner, *window, seed=k, scale=count**-0.5))
        values += [
            np.abs(floats(out, seed=k + n)) + 0.5 if n != 1 else floats(out) for n in range(4)
        ]
    return (*values, floats(1000, 512, scale=0.05), floats(1000))


def tiny_operations(emit: Emit, x: rx.Expr, y: rx.Expr, count: int = 100) -> rx.Expr:
    """A chain of additions, products and maxima."""
    for k in range(count):
        x = emit((op.add, op.multiply, op.maximum)[k % 3](x, y))
    return x


def perceptron(emit: Emit, x: rx.Expr, *weights: rx.Expr) -> rx.Expr:
    """Three dense layers."""
    w1, b1, w2, b2, w3, b3 = weights
    x = emit(op.nn.relu(emit(op.linear(x, w1, b1))))
    x = emit(op.nn.relu(emit(op.linear(x, w2, b2))))
    return emit(op.linear(x, w3, b3))


def normalised(emit: Emit, x: rx.Expr, r: rx.Expr, g: rx.Expr, b: rx.Expr) -> rx.Expr:
    """GELU, residual, layer normalisation."""
    return emit(op.nn.layer_norm(emit(op.add(emit(op.nn.gelu_tanh(x)), r)), g, b, [-1]))


def rows() -> Iterator[Row]:
    """All models."""
    values: tuple[Array, ...]
    values = floats(2048, 2048), floats(2048, 2048, seed=1), floats(2048, seed=2), floats(2048)
    yield Row(
        "GELU, residual, layer norm", model(normalised, values), values, experts.normalised, 2
    )
    values = (floats(4096, 1024),)
    softmax = model(lambda emit, x: emit(op.nn.softmax(x)), values)
    yield Row("softmax 4096 x 1024", softmax, values, experts.softmax, 1)
    values = decoder_values(1, 173)
    step = model(decoder, values, 173)
    yield Row("decoder, a token after 173", step, values, experts.decoder, 12)
    values = decoder_values(128, 0)
    yield Row("decoder, prompt of 128", model(decoder, values), values, experts.decoder, 12)
    values = floats(16), np.full(16, 0.9, "float32")
    chain = model(tiny_operations, values)
    yield Row("100 operations on 16 floats", chain, values, experts.tiny_operations, 2)
    shapes = (512, 784), (512,), (256, 512), (256,), (10, 256), (10,)
    weights = tuple(floats(*s, seed=k, scale=0.05) for k, s in enumerate(shapes))
    artefact = model(perceptron, (floats(3, 784), *weights), 3)
    for batch in (1, 128):
        values = (floats(batch, 784), *weights)
        yield Row(f"MLP, batch {batch}", model(perceptron, values), values, experts.perceptron, 1)
    for batch in (5, 57):
        values = (floats(batch, 784), *weights)
        yield Row(f"MLP, any batch, here {batch}", artefact, values, experts.perceptron, 1)
    values = tuple(floats(1, 128, 12, 64, seed=k) for k in range(3))
    attention = model(lambda emit, *qkv: emit(op.nn.attention(*qkv, causal_mask="TopLeft")), values)
    yield Row("causal attention", attention, values, experts.causal_attention, 3)
    values = (floats(1, 128, 768), *encoder_weights())
    yield Row("BERT-base layer", model(encoder_layer, values), values, experts.encoder_layer, 1)
    values = floats(1, 64, 56, 56), floats(64, 64, 3, 3, seed=1, scale=0.05), floats(1, 64, 1, 1)
    convolution = model(
        lambda emit, x, w, b: emit(
            op.nn.relu(emit(op.add(emit(op.nn.conv2d(x, w, padding=1)), b)))
        ),
        values,
    )
    yield Row("conv 3 x 3, bias, relu", convolution, values, experts.convolution, 1)
    image, weights = floats(1, 3, 224, 224), residual_weights()
    values, folded = (image, *weights), experts.ResidualNetwork(weights)
    network = model(residual_network, values)
    yield Row("ResNet-18", network, values, lambda image, *weights: folded(image), 1)
    values = (floats(4096, 1024),)
    moments = model(
        lambda emit, x: tuple(emit(f(x, 1)) for f in (op.sum, op.mean, op.variance, op.max)), values
    )
    yield Row("sum, mean, variance, max", moments, values, experts.moments, 1)


def leaves(value: Any) -> list[Array]:
    """The arrays in a result."""
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple | list) else [value]


def check(name: str, found: Any, expected: Any) -> None:
    """Stop if two results differ."""
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        if not np.allclose(a, b, rtol=1e-2, atol=1e-3 * max(1.0, float(np.abs(b).max()))):
            raise SystemExit(f"{name}: results differ")


def timed(work: Callable[[], Any], count: int) -> float:
    """The microseconds of a call."""
    start = clock()
    for _ in range(count):
        work()
    return (clock() - start) / count * 1e6


def bound(row: Row) -> IRModule:
    """The model with its weights as constants."""
    module = row.model.clone()
    weights = {f"x{k}": v for k, v in enumerate(row.values) if k >= row.inputs}
    module["main"] = module["main"].bind_params(weights)
    return module


def measure(row: Row, pipelines: list[str]) -> dict[str, float]:
    """The least microseconds of each contestant."""
    expected = row.numpy(*row.values)
    works: dict[str, Callable[[], Any]] = {"NumPy": lambda: row.numpy(*row.values)}
    inputs = row.values[: row.inputs]
    for pipeline in pipelines:
        main = compile(bound(row), relax_pipeline=pipeline)["main"]
        works[pipeline] = lambda main=main: main(*inputs)
    if row.values[row.inputs :]:
        general = compile(row.model)["main"]
        works["arguments"] = lambda: general(*row.values)
    works |= peers.sessions(row.model, row.values, row.inputs)
    for name, work in works.items():
        check(f"{row.name}, {name}", work(), expected)
    count = max(1, min(1000, int(5e3 / max(timed(works["NumPy"], 1), 1.0))))
    best = dict.fromkeys(works, float("inf"))
    deadline = time.perf_counter() + SECONDS
    turns = 0
    while time.perf_counter() < deadline or turns < 7:
        turns += 1
        for name, work in works.items():
            if clock is time.perf_counter:  # threads of others fall asleep, and its own wake
                time.sleep(PAUSE)
                warm = time.perf_counter() + 0.05
                while time.perf_counter() < warm:
                    work()
            best[name] = min(best[name], timed(work, count))
    return best


def compile_seconds(mod: IRModule, pipeline: str) -> float:
    """The least processor time of three compilations."""
    times = []
    for _ in range(3):
        start = time.process_time()
        compile(mod, relax_pipeline=pipeline)
        times.append(time.process_time() - start)
    return min(times)


def live_bytes(mod: IRModule) -> int:
    """The most bytes that results of operators need at a time, if each dies after its last use."""
    main = mod["main"]
    assert isinstance(main, rx.Function)
    bindings = [b for block in main.body.blocks for b in block.bindings]
    last = {v: k for k, b in enumerate(bindings) for v in occurring_vars(b.value)}
    most = total = 0
    dying: dict[int, int] = {}
    for k, binding in enumerate(bindings):
        op_name = getattr(getattr(binding.value, "op", None), "name", "")
        if op_name not in ("relax.reshape", "relax.permute_dims"):
            size = 4 * int(np.prod([int(n) for n in binding.var.struct_info.shape.values]))
            total += size
            end = last.get(binding.var, len(bindings))
            dying[end] = dying.get(end, 0) + size
        most = max(most, total)
        total -= dying.get(k, 0)
    return most


def peak_bytes(work: Callable[[], Any]) -> int:
    """The most bytes that are allocated during a call, beyond those before it."""
    work()
    tracemalloc.start()
    work()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    work()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--pipeline", action="append", default=[])
    parser.add_argument("--wall", action="store_true")
    parser.add_argument("--json", type=Path, help="write the times of models to a file, and stop")
    options = parser.parse_args()
    if options.wall:
        global clock
        clock = time.perf_counter
    pipelines = ["default", *options.pipeline]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{platform.machine()}, {cores} cores, NumPy {np.__version__}")
    print("relaxpy's time divided by that of others: below 1, relaxpy is faster")
    others = ["NumPy", *pipelines[1:], "arguments", *peers.NAMES]
    print(f"{'':30}{'NumPy us':>10}" + "".join(f"{'/ ' + name:>16}" for name in others))
    times = {}
    for row in rows():
        if options.pattern in row.name:
            times[row.name] = best = measure(row, pipelines)
            cells = [f"{best['default'] / best[n]:16.2f}" if n in best else "" for n in others]
            print(f"{row.name:30}{best['NumPy']:10.1f}" + "".join(cells), flush=True)
    if options.json:
        options.json.write_text(json.dumps(times), encoding="utf-8")
    if options.json or options.pattern not in "compile":
        return
    values = (floats(1, 128, 768), *encoder_weights())
    layer = model(encoder_layer, values)
    small = floats(16), floats(16)
    chains = {
        f"{n} operations": model(lambda emit, x, y, n=n: tiny_operations(emit, x, y, n), small)
        for n in (1000, 10000)
    }
    print("\nseconds to compile")
    for name, mod in ({"BERT-base layer": layer} | chains).items():
        cells = [f"{compile_seconds(mod, p):16.2f}" for p in pipelines]
        print(f"{name:40}" + "".join(cells), flush=True)
    print("\npeak memory of a call, divided by that of live values: BERT-base layer")
    for pipeline in pipelines:
        run = compile(layer, relax_pipeline=pipeline)["main"]
        print(f"{pipeline:40}{peak_bytes(lambda run=run: run(*values)) / live_bytes(layer):16.2f}")


if __name__ == "__main__":
    main()
