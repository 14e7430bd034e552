"""Functions of several kinds, and what executables compute with them."""

from __future__ import annotations

from typing import Any

import numpy as np

import relaxpy

PROGRAM = """
from relaxpy.script import ir as I, relax as R
@I.ir_module
class Program:
    @R.function
    def elementwise(x: R.Tensor((1 << 16,), "float32"), y: R.Tensor((1 << 16,), "float32")):
        return R.add(R.exp(R.sin(x)), R.log(y))
    @R.function
    def product(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 48), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            R.output(y)
        return y
    @R.function
    def convolution(x: R.Tensor((1, 8, 14, 14), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
        return R.nn.conv2d(x, w, padding=(1, 1))
    @R.function
    def unknown(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor(("m", "k"), "float32")):
        return R.add(R.matmul(x, w), R.sum(w, axis=0))
    @R.function
    def attention(q: R.Tensor((1, 16, 2, 32), "float16"), k: R.Tensor((1, 16, 2, 32), "float16")):
        return R.nn.attention(q, k, k)
    @R.function
    def int8(x: R.Tensor((9, 40), "int8"), w: R.Tensor((40, 33), "int8")):
        return R.matmul(x, w, out_dtype="int32")
"""


def operands() -> dict[str, tuple[np.ndarray[Any, Any], ...]]:
    draw = np.random.default_rng(3)
    x, y = draw.uniform(0.5, 2, (2, 1 << 16)).astype("float32")
    image, kernel = draw.standard_normal((1, 8, 14, 14)), draw.standard_normal((8, 8, 3, 3))
    heads = draw.standard_normal((2, 1, 16, 2, 32)).astype("float16")
    return {
        "elementwise": (x, y),
        "product": (
            draw.standard_normal((5, 64)).astype("float32"),
            draw.standard_normal((64, 48)).astype("float32"),
        ),
        "unknown": (y[: 5 * 9].reshape(5, 9), x[: 9 * 23].reshape(9, 23)),
        "convolution": (image.astype("float32"), kernel.astype("float32")),
        "attention": (heads[0], heads[1]),
        "int8": (
            draw.integers(-128, 128, (9, 40)).astype("int8"),
            draw.integers(-128, 128, (40, 33)).astype("int8"),
        ),
    }


def results(executable: relaxpy.Executable) -> dict[str, bytes]:
    return {name: executable[name](*args).tobytes() for name, args in operands().items()}
