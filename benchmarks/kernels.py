"""Compare generated kernels with NumPy code written by hand: `python benchmarks/kernels.py`.

Each row calls the two alternately, so that both have the same noise, and shows medians in
microseconds with the spread (first to third quartile of the ratio).
"""

from __future__ import annotations

import ast
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxpy import pysource
from relaxpy.exec.kernel import compile_kernel, runtime
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import tir as T

Work = Callable[[], object]


@T.prim_func
def dense_relu(x: T.handle, w: T.handle, b: T.handle, y: T.handle):
    """Dense layer with bias and relu."""
    n = T.int64()
    m = T.int64()
    h = T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    W = T.match_buffer(w, (m, h), "float32")
    B = T.match_buffer(b, (h,), "float32")
    Y = T.match_buffer(y, (n, h), "float32")
    acc = T.alloc_buffer((n, h), "float32")
    out = T.alloc_buffer((n, h), "float32")
    for i, j, k in T.grid(n, h, m):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                acc[vi, vj] = T.float32(0)
            acc[vi, vj] = acc[vi, vj] + X[vi, vk] * W[vk, vj]
    for i, j in T.grid(n, h):
        with T.block("bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            out[vi, vj] = acc[vi, vj] + B[vj]
    for i, j in T.grid(n, h):
        with T.block("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = T.max(out[vi, vj], T.float32(0))


@T.prim_func
def softmax(x: T.handle, y: T.handle):
    """Softmax over rows, in its four stages."""
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    Y = T.match_buffer(y, (n, m), "float32")
    highest = T.alloc_buffer((n,), "float32")
    powers = T.alloc_buffer((n, m), "float32")
    total = T.alloc_buffer((n,), "float32")
    for i, k in T.grid(n, m):
        with T.block("max"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                highest[vi] = T.min_value("float32")
            highest[vi] = T.max(highest[vi], X[vi, vk])
    for i, j in T.grid(n, m):
        with T.block("exp"):
            vi, vj = T.axis.remap("SS", [i, j])
            powers[vi, vj] = T.exp(X[vi, vj] - highest[vi])
    for i, k in T.grid(n, m):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] = total[vi] + powers[vi, vk]
    for i, j in T.grid(n, m):
        with T.block("norm"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = powers[vi, vj] / total[vi]


@T.prim_func
def matmul(a: T.handle, b: T.handle, c: T.handle):
    """Matrix product as three plain loops."""
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    B = T.match_buffer(b, (n, n), "float32")
    C = T.match_buffer(c, (n, n), "float32")
    for i in range(n):
        for j in range(n):
            C[i, j] = T.float32(0)
            for k in range(n):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]


@T.prim_func
def stencil(a: T.handle, b: T.handle, sweeps: T.int32):
    """Five-point stencil, back and forth."""
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    B = T.match_buffer(b, (n, n), "float32")
    for _sweep in range(sweeps):
        for i, j in T.grid(n - 2, n - 2):
            B[i + 1, j + 1] = T.float32(0.2) * (
                A[i + 1, j + 1] + A[i, j + 1] + A[i + 2, j + 1] + A[i + 1, j] + A[i + 1, j + 2]
            )
        for i, j in T.grid(n - 2, n - 2):
            A[i + 1, j + 1] = T.float32(0.2) * (
                B[i + 1, j + 1] + B[i, j + 1] + B[i + 2, j + 1] + B[i + 1, j] + B[i + 1, j + 2]
            )


@T.prim_func
def row_statistics(x: T.handle, s: T.handle, q: T.handle, h: T.handle):
    """Sum, sum of squares and maximum of each row."""
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    S = T.match_buffer(s, (n,), "float32")
    Q = T.match_buffer(q, (n,), "float32")
    H = T.match_buffer(h, (n,), "float32")
    for i, k in T.grid(n, m):
        with T.block("stats"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
                Q[vi] = T.float32(0)
                H[vi] = T.min_value("float32")
            S[vi] = S[vi] + X[vi, vk]
            Q[vi] = Q[vi] + X[vi, vk] * X[vi, vk]
            H[vi] = T.max(H[vi], X[vi, vk])


@T.prim_func
def add(x: T.handle, y: T.handle, z: T.handle):
    """One addition."""
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    Z = T.match_buffer(z, (n,), "float32")
    for i in range(n):
        Z[i] = X[i] + Y[i]


@T.prim_func
def gelu(x: T.handle, y: T.handle):
    """GELU in its tanh form, one long expression."""
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    Y = T.match_buffer(y, (n, m), "float32")
    for i, j in T.grid(n, m):
        Y[i, j] = (
            T.float32(0.5)
            * X[i, j]
            * (
                T.float32(1)
                + T.tanh(
                    T.float32(0.79788456)
                    * (X[i, j] + T.float32(0.044715) * X[i, j] * X[i, j] * X[i, j])
                )
            )
        )


def loaded(func: PrimFunc) -> Callable[..., Any]:
    """Compile and load the kernel of `func`."""
    text = pysource.render(ast.Module([compile_kernel(func, "kernel").tree], []))
    names = {"np": np, "math": math, "rt": runtime}
    kernel: Callable[..., Any] = pysource.load(text, "kernel", names)["kernel"]
    return kernel


def cases() -> list[tuple[str, Work, Work, float]]:
    """Return rows of name, generated kernel, NumPy by hand, and seconds to spend."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    rows: list[tuple[str, Work, Work, float]] = []

    def dense_case(n: int, m: int, h: int) -> None:
        x, w, b, y, z = floats(n, m), floats(m, h), floats(h), floats(n, h), floats(n, h)
        kernel = loaded(dense_relu)

        def hand() -> None:
            np.matmul(x, w, out=z)
            np.add(z, b, out=z)
            np.maximum(z, 0, out=z)

        rows.append((f"dense + relu {n}x{m}x{h}", lambda: kernel(x, w, b, y), hand, 0.5))

    for n in (1, 32, 1000):
        dense_case(n, 64, 128)
    dense_case(1, 784, 512)

    def softmax_case(n: int, m: int) -> None:
        x, y, z = floats(n, m), floats(n, m), floats(n, m)
        kernel = loaded(softmax)

        def hand() -> None:
            np.subtract(x, x.max(axis=1, keepdims=True), out=z)
            np.exp(z, out=z)
            np.divide(z, z.sum(axis=1, keepdims=True), out=z)

        rows.append((f"softmax {n}x{m}", lambda: kernel(x, y), hand, 1.0))

    softmax_case(1, 10)
    softmax_case(4096, 1024)

    a, b, c, d = (floats(512, 512) for _ in range(4))
    product = loaded(matmul)
    rows.append(
        ("naive matmul 512^3", lambda: product(a, b, c), lambda: np.matmul(a, b, out=d), 1.0)
    )

    grid, other, scratch = floats(2048, 2048), floats(2048, 2048), floats(2046, 2046)
    sweep = loaded(stencil)

    def sweep_by_hand() -> None:
        for _ in range(5):
            for p, q in ((grid, other), (other, grid)):
                np.add(p[1:-1, 1:-1], p[:-2, 1:-1], out=scratch)
                np.add(scratch, p[2:, 1:-1], out=scratch)
                np.add(scratch, p[1:-1, :-2], out=scratch)
                np.add(scratch, p[1:-1, 2:], out=scratch)
                np.multiply(scratch, np.float32(0.2), out=q[1:-1, 1:-1])

    rows.append(("stencil 2048x2048, 10", lambda: sweep(grid, other, 5), sweep_by_hand, 2.0))

    x = floats(8192, 2048)
    s, q, h = floats(8192), floats(8192), floats(8192)
    statistics_kernel = loaded(row_statistics)

    def statistics_by_hand() -> None:
        x.sum(axis=1, out=s)
        np.einsum("ij,ij->i", x, x, out=q)
        x.max(axis=1, out=h)

    rows.append(
        ("row statistics 8192x2048", lambda: statistics_kernel(x, s, q, h), statistics_by_hand, 1.0)
    )

    u, v, w = floats(16), floats(16), floats(16)
    adder = loaded(add)
    rows.append(("add 16", lambda: adder(u, v, w), lambda: np.add(u, v, out=w), 0.3))

    g, r = floats(2048, 2048), floats(2048, 2048)
    chain = loaded(gelu)

    def gelu_by_hand() -> None:
        np.multiply(g, g, out=r)
        np.multiply(r, g, out=r)
        np.multiply(r, np.float32(0.044715), out=r)
        np.add(r, g, out=r)
        np.multiply(r, np.float32(0.79788456), out=r)
        np.tanh(r, out=r)
        np.add(r, 1, out=r)
        np.multiply(r, g, out=r)
        np.multiply(r, np.float32(0.5), out=r)

    rows.append(("tanh-GELU 2048x2048", lambda: chain(g, r), gelu_by_hand, 1.0))
    return rows


def timed(work: Work, rounds: int) -> float:
    """Return the microseconds per call over `rounds` calls."""
    start = time.perf_counter()
    for _ in range(rounds):
        work()
    return (time.perf_counter() - start) / rounds * 1e6


def main() -> None:
    """Print the table."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    pinned = os.environ.get("OPENBLAS_CORETYPE", "not set")
    print(f"{platform.machine()}, {cores} cores, NumPy {np.__version__}, ", end="")
    print(f"OPENBLAS_CORETYPE {pinned}")
    print(f"{'':28}{'kernel us':>12}{'NumPy us':>12}{'ratio':>8}   quartiles")
    for name, kernel, hand, seconds in cases():
        kernel()
        hand()
        rounds = max(1, min(2000, int(2e4 / max(timed(hand, 1), 1.0))))
        ours, theirs = [], []
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline or len(ours) < 5:
            ours.append(timed(kernel, rounds))
            theirs.append(timed(hand, rounds))
        ratios = [p / q for p, q in zip(ours, theirs, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        line = f"{name:28}{statistics.median(ours):12.1f}{statistics.median(theirs):12.1f}"
        print(f"{line}{middle:8.2f}   {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()
