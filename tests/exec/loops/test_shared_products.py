"""Threads share products of matrices of a batch; BLAS divides those of blocks of windows."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.machine import tuning
from relaxpy.exec.numpy import row_blocks
from tests.ir.relax.texts import flow

Array = np.ndarray[Any, Any]


def module(shapes: dict[str, str], body: str, result: str = "y") -> IRModule:
    params = ", ".join(f"{name}: R.Tensor({shape}, 'float32')" for name, shape in shapes.items())
    return flow(params, body, result)


ATTENTION = module(
    dict.fromkeys("qkv", "(1, 6, 12, 4)"), "y = R.nn.attention(q, k, v, causal_mask='TopLeft')"
)
BATCH = module(dict.fromkeys("qkv", "('b', 3, 1, 4)"), "y = R.nn.attention(q, k, v)")


def convolution(images: int, channels: int, kernels: int, side: int, **attrs: int) -> IRModule:
    shapes = {
        "x": str((images, channels, side, side)),
        "w": str((kernels, channels, 3, 3)),
        "b": str((1, kernels, 1, 1)),
    }
    extra = "".join(f", {name}={value}" for name, value in attrs.items())
    body = f"c = R.nn.conv2d(x, w, padding=1{extra})\ns = R.add(c, b)\ny = R.nn.relu(s)"
    return module(shapes, body)


CONVOLUTIONS = {
    "windows": convolution(1, 2, 3, 8),
    "strides": convolution(1, 2, 3, 15, strides=2),
    "images": convolution(4, 2, 3, 5),
}


def arguments(mod: IRModule, **sizes: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(0)
    main = mod["main"]
    assert isinstance(main, relax.Function)
    shapes = [
        [sizes[str(n)] if str(n) in sizes else int(n) for n in p.struct_info.shape.values]
        for p in main.params
    ]
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Two threads share all products; the value has the rows and the size of blocks of each."""
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    monkeypatch.setattr(tuning.Blocks, "WORTH_THREADS", 1)
    monkeypatch.setattr(tuning.Blocks, "MUCH_WORK", 1)
    monkeypatch.setattr(tuning.Blocks, "LEAST_BYTES", 0)
    found: list[tuple[int, int]] = []
    share = row_blocks._share

    def noted(rows: Callable[..., None], start: int, stop: int, step: int) -> None:
        found.append((stop - start, step))
        share(rows, start, stop, step)

    monkeypatch.setattr(row_blocks, "_share", noted)
    return found


def test_threads_share_a_batch(shared: list[tuple[int, int]]) -> None:
    check(ATTENTION)
    assert (12, 6) in shared


@pytest.mark.each_choice
@pytest.mark.parametrize("target", [1, 1 << 10, 1 << 21])
@pytest.mark.parametrize("mod", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_windows_are_multiplied_in_blocks_on_threads_of_blas(mod, target, shared, monkeypatch):
    monkeypatch.setattr(tuning.Blocks, "TARGET", target)
    monkeypatch.setattr(tuning.Blocks, "WORTH_SCRATCH", 0)
    check(mod)
    assert not shared
    assert "by_blas=True" in text(relaxpy.compile(mod, "numpy"))


@cache
def reference(mod: IRModule) -> Any:
    return relaxpy.compile(mod, "reference")["main"](*arguments(mod))


def check(mod: IRModule) -> None:
    """Compare with the reference evaluator, and with one thread."""
    args = arguments(mod)
    main = relaxpy.compile(mod, "numpy")["main"]
    found = main(*args)
    np.testing.assert_allclose(found, reference(mod), rtol=1e-4, atol=1e-4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_blocks, "threads", lambda: 1)
        np.testing.assert_allclose(main(*args), found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("batch", "is_shared"), [(0, False), (1, False), (3, False), (6, True), (9, True)]
)
def test_a_batch_is_shared_if_the_threads_get_equal_parts(batch, is_shared, shared) -> None:
    args = arguments(BATCH, b=batch)
    found = relaxpy.compile(BATCH, "numpy")["main"](*args)
    assert bool(shared) == is_shared
    q, k, v = (a[:, :, 0] for a in args)
    scores = np.exp(q @ k.swapaxes(1, 2) / 2)
    expected = scores / scores.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(found[:, :, 0], expected, rtol=1e-3, atol=1e-5)


DENSE = module({"x": "(64, 64)", "w": "(64, 64)"}, "s = R.matmul(x, w)\ny = R.nn.relu(s)")


@pytest.mark.parametrize("mod", [DENSE, convolution(1, 3, 16, 3)])
def test_dense_layers_and_large_kernels_are_left_to_blas(mod: IRModule) -> None:
    source = text(relaxpy.compile(mod, "numpy"))
    assert "of_batch" not in source
    assert "by_blas" not in source


def text(executable: Executable) -> str:
    names = {row.kernel for row in executable.report()}
    return "\n".join(executable.kernel_source(name) for name in names)


def test_several_threads_may_call_a_program() -> None:
    mod = CONVOLUTIONS["windows"]
    main = relaxpy.compile(mod, "numpy")["main"]
    args = arguments(mod)
    expected = main(*args)
    barrier = threading.Barrier(4)

    def caller(factor: int) -> bool:
        barrier.wait(10)
        x, *weights = args
        scaled = (x * np.float32(2**factor), *weights[:1], weights[1] * np.float32(2**factor))
        results = [main(*scaled) for _ in range(10)]
        return all(np.array_equal(r, expected * np.float32(2**factor)) for r in results)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(caller, range(4)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_process_shares_products_with_threads_of_its_own() -> None:
    main = relaxpy.compile(ATTENTION, "numpy")["main"]
    args = arguments(ATTENTION)
    expected = main(*args)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(main(*args), expected) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert np.array_equal(main(*args), expected)


def test_sums_that_are_much_work_are_shared(shared, monkeypatch) -> None:
    monkeypatch.setattr(tuning.Blocks, "MUCH_WORK", 1 << 20)
    mod = module({"x": "(1024, 1024)"}, "y = R.sum(x, axis=1)")
    x = arguments(mod)[0]
    found = relaxpy.compile(mod, "numpy")["main"](x)
    assert shared
    np.testing.assert_allclose(found, x.sum(1, dtype="float64"), rtol=1e-3, atol=1e-3)
    few = module({"x": "(64, 64)"}, "y = R.sum(x, axis=1)")
    assert "rt.blocks" not in text(relaxpy.compile(few, "numpy"))
