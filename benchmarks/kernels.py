"""Kernels written as loops beside NumPy by hand, and beside JAX and PyTorch where installed.

`PYTHONPATH=. python benchmarks/kernels.py` prints, for each kernel, the least time of a call of
the NumPy code, and the ratios of the least times of the targets "native" and "numpy", of JAX and
of PyTorch to it: below 1, a call takes less time than NumPy. All are called in turn, after pauses
in which the threads of the one before fall asleep; each may use all threads. Several kernels write
into arrays that they are given, NumPy does so as well; JAX and PyTorch return new ones. An argument
selects the rows whose name contains it.
"""

from __future__ import annotations

import itertools
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import relaxpy
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, tir as T

try:
    import jax
    from jax import numpy as jnp
except ImportError:
    jax = None
try:
    import torch
except ImportError:
    torch = None

Array = np.ndarray[Any, Any]
Work = Callable[[], object]
SECONDS = 3.0
PAUSE = 0.2
"""Seconds after which no library's threads wait actively any longer."""
TARGETS = ("native", "numpy")


class Case(NamedTuple):
    """A kernel, the arguments of a call, the same by NumPy, and by the peers from some of them."""

    name: str
    kernel: PrimFunc
    args: tuple[Any, ...]
    numpy: Work
    jax: Callable[..., Any]
    inputs: tuple[int, ...]
    torch: Callable[..., Any] | None = None


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
def column_sums(x: T.handle, s: T.handle):
    """Sum of each column."""
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    S = T.match_buffer(s, (m,), "float32")
    for j in range(m):
        S[j] = T.float32(0)
    for k, j in T.grid(n, m):
        S[j] = S[j] + X[k, j]


@T.prim_func
def quantised(a: T.handle, b: T.handle, c: T.handle):
    """Product of matrices of bytes, summed in 32 bits."""
    n = T.int64()
    A = T.match_buffer(a, (n, n), "uint8")
    B = T.match_buffer(b, (n, n), "int8")
    C = T.match_buffer(c, (n, n), "int32")
    for i, j, k in T.grid(n, n, n):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + T.int32(A[vi, vk]) * T.int32(B[vk, vj])


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


def product(order: str) -> PrimFunc:
    """A matrix product as three loops in an order, such as "ikj"."""
    i, j, k = ("ijk"[position] for position in range(3))
    return from_source(f"""
@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    B = T.match_buffer(b, (n, n), "float32")
    C = T.match_buffer(c, (n, n), "float32")
    for {i}, {j} in T.grid(n, n):
        C[{i}, {j}] = T.float32(0)
    for {", ".join(order)} in T.grid(n, n, n):
        C[{i}, {j}] = C[{i}, {j}] + A[{i}, {k}] * B[{k}, {j}]
""")


def floats(*shape: int) -> Array:
    """Normally distributed numbers."""
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def dense_case(n: int, m: int, h: int) -> Case:
    """A product with a small weight, a bias and relu."""
    x, w, b, y, z = floats(n, m), floats(m, h), floats(h), floats(n, h), floats(n, h)

    def hand() -> None:
        np.matmul(x, w, out=z)
        np.add(z, b, out=z)
        np.maximum(z, 0, out=z)

    def peer(x: Any, w: Any, b: Any) -> Any:
        return jnp.maximum(x @ w + b, 0)

    def eager(x: Any, w: Any, b: Any) -> Any:
        return torch.addmm(b, x, w).relu_()

    name = f"dense + relu {n}x{m}x{h}"
    return Case(name, dense_relu, (x, w, b, y), hand, peer, (0, 1, 2), eager)


def softmax_case(n: int, m: int) -> Case:
    """Softmax over rows."""
    x, y, z = floats(n, m), floats(n, m), floats(n, m)

    def hand() -> None:
        np.subtract(x, x.max(axis=1, keepdims=True), out=z)
        np.exp(z, out=z)
        np.divide(z, z.sum(axis=1, keepdims=True), out=z)

    def peer(x: Any) -> Any:
        return jax.nn.softmax(x)

    name = f"softmax {n}x{m}"
    return Case(name, softmax, (x, y), hand, peer, (0,), lambda x: torch.softmax(x, -1))


def stencil_case() -> Case:
    """Ten sweeps of a stencil over a matrix that no cache holds."""
    grid, other, scratch = floats(2048, 2048), floats(2048, 2048), floats(2046, 2046)

    def hand() -> None:
        for _ in range(5):
            for p, q in ((grid, other), (other, grid)):
                np.add(p[1:-1, 1:-1], p[:-2, 1:-1], out=scratch)
                np.add(scratch, p[2:, 1:-1], out=scratch)
                np.add(scratch, p[1:-1, :-2], out=scratch)
                np.add(scratch, p[1:-1, 2:], out=scratch)
                np.multiply(scratch, np.float32(0.2), out=q[1:-1, 1:-1])

    def sweep(p: Any, q: Any) -> Any:
        inner = p[1:-1, 1:-1] + p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        return q.at[1:-1, 1:-1].set(np.float32(0.2) * inner)

    def peer(p: Any, q: Any) -> Any:
        def both(_: Any, pair: Any) -> Any:
            q = sweep(*pair)
            return sweep(q, pair[0]), q

        return jax.lax.fori_loop(0, 5, both, (p, q))

    def eager(p: Any, q: Any) -> Any:
        for _ in range(5):
            for source, target in ((p, q), (q, p)):
                inner = target[1:-1, 1:-1]
                torch.add(source[1:-1, 1:-1], source[:-2, 1:-1], out=inner)
                for other in (source[2:, 1:-1], source[1:-1, :-2], source[1:-1, 2:]):
                    inner += other
                inner *= 0.2
        return p

    return Case("stencil 2048x2048, 10", stencil, (grid, other, 5), hand, peer, (0, 1), eager)


def statistics_case() -> Case:
    """Three reductions of the same rows."""
    x, s, q, h = floats(8192, 2048), floats(8192), floats(8192), floats(8192)

    def hand() -> None:
        x.sum(axis=1, out=s)
        np.einsum("ij,ij->i", x, x, out=q)
        x.max(axis=1, out=h)

    def peer(x: Any) -> Any:
        return x.sum(axis=1), (x * x).sum(axis=1), x.max(axis=1)

    def eager(x: Any) -> Any:
        return x.sum(1), (x * x).sum(1), x.amax(1)

    return Case("row statistics 8192x2048", row_statistics, (x, s, q, h), hand, peer, (0,), eager)


def gelu_case() -> Case:
    """A long expression of each element."""
    g, r = floats(2048, 2048), floats(2048, 2048)

    def hand() -> None:
        np.multiply(g, g, out=r)
        np.multiply(r, g, out=r)
        np.multiply(r, np.float32(0.044715), out=r)
        np.add(r, g, out=r)
        np.multiply(r, np.float32(0.79788456), out=r)
        np.tanh(r, out=r)
        np.add(r, 1, out=r)
        np.multiply(r, g, out=r)
        np.multiply(r, np.float32(0.5), out=r)

    def eager(x: Any) -> Any:
        return torch.nn.functional.gelu(x, approximate="tanh")

    name = "tanh-GELU 2048x2048"
    return Case(name, gelu, (g, r), hand, lambda x: jax.nn.gelu(x), (0,), eager)


def cases() -> Iterator[Case]:
    """The rows of the table."""
    for n in (1, 32, 1000):
        yield dense_case(n, 64, 128)
    yield dense_case(1, 784, 512)
    yield softmax_case(1, 10)
    yield softmax_case(4096, 1024)
    a, b, c, d = (floats(512, 512) for _ in range(4))
    for order in map("".join, itertools.permutations("ijk")):
        args, name = (a, b, c), f"product 512^3, loops {order}"
        peers = lambda a, b: a @ b, (0, 1), lambda a, b: a @ b
        yield Case(name, product(order), args, lambda: np.matmul(a, b, out=d), *peers)
    yield stencil_case()
    yield statistics_case()
    x, s, t = floats(8192, 2048), floats(2048), floats(2048)
    name = "column sums 8192x2048"
    sums = lambda x: x.sum(0), (0,), lambda x: x.sum(0)
    yield Case(name, column_sums, (x, s), lambda: x.sum(axis=0, out=t), *sums)
    rng = np.random.default_rng(0)
    p = rng.integers(0, 256, (512, 512), dtype=np.uint8)
    q = rng.integers(-128, 128, (512, 512), dtype=np.int8)
    total = np.empty((512, 512), np.int32)

    def exact() -> Array:
        # NumPy multiplies integers without BLAS; these sums are exact in doubles.
        return (p.astype(np.float64) @ q.astype(np.float64)).astype(np.int32)

    def peer(p: Any, q: Any) -> Any:
        return jnp.matmul(p, q, preferred_element_type=jnp.int32)

    yield Case("int8 matmul 512^3", quantised, (p, q, total), exact, peer, (0, 1))
    u, v, w = floats(16), floats(16), floats(16)
    adds = lambda u, v: u + v, (0, 1), lambda u, v: u + v
    yield Case("add 16", add, (u, v, w), lambda: np.add(u, v, out=w), *adds)
    yield gelu_case()


def contestants(case: Case) -> dict[str, Work]:
    """The ways to call a case: NumPy, the targets of relaxpy, and the peers."""
    name = str(case.kernel.attrs["global_symbol"])
    module = relaxpy.IRModule({name: case.kernel})
    found: dict[str, Work] = {"NumPy": case.numpy}
    for target in TARGETS:
        function = relaxpy.compile(module, target=target)[name]
        found[target] = lambda function=function: function(*case.args)
    if jax is not None:
        compiled = jax.jit(case.jax)
        operands = [jnp.asarray(case.args[position]) for position in case.inputs]
        found["JAX"] = lambda: jax.block_until_ready(compiled(*operands))
    if torch is not None and case.torch is not None:
        tensors = [torch.from_numpy(case.args[position].copy()) for position in case.inputs]
        found["PyTorch"] = lambda: eager(case.torch, tensors)
    return found


def eager(function: Callable[..., Any], tensors: list[Any]) -> object:
    """A call of operators of PyTorch."""
    with torch.inference_mode():
        return function(*tensors)


def timed(work: Work, rounds: int) -> float:
    """The microseconds per call over `rounds` calls."""
    start = time.perf_counter()
    for _ in range(rounds):
        work()
    return (time.perf_counter() - start) / rounds * 1e6


def main() -> None:
    """Print the table."""
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    pinned = os.environ.get("OPENBLAS_CORETYPE", "not set")
    print(f"{platform.machine()}, {cores} cores, NumPy {np.__version__}, ", end="")
    print(f"OPENBLAS_CORETYPE {pinned}")
    peers = [*TARGETS, *(["JAX"] if jax else []), *(["PyTorch"] if torch else [])]
    print(f"{'':28}{'NumPy us':>12}" + "".join(f"{peer:>10}" for peer in peers))
    for case in cases():
        if pattern not in case.name:
            continue
        works = contestants(case)
        # The first call of each compiles or starts something.
        rounds = {
            key: max(1, min(2000, int(2e4 / max(timed(work, 1), timed(work, 1), 1.0))))
            for key, work in works.items()
        }
        least = dict.fromkeys(works, float("inf"))
        deadline = time.perf_counter() + SECONDS
        while time.perf_counter() < deadline:
            for key, work in works.items():
                time.sleep(PAUSE)
                work()
                least[key] = min(least[key], timed(work, rounds[key]))
        ratios = "".join(
            f"{least[peer] / least['NumPy']:10.2f}" if peer in least else " " * 10 for peer in peers
        )
        print(f"{case.name:28}{least['NumPy']:12.1f}{ratios}", flush=True)


if __name__ == "__main__":
    main()
