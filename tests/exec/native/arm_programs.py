"""Programs whose results are the same on each processor: prints a digest of each as JSON.

Run by `test_arm.py`, on this processor and under an emulator of another one. Arguments select those
whose names begin with them.
"""

import hashlib
import itertools
import json
import sys
from collections.abc import Iterator

import numpy as np

import relaxpy
from relaxpy.script import from_source

FUNCTIONS = ("exp", "log", "tanh", "sigmoid", "sin", "sqrt", "erf", "nn.gelu")
TEXT = """
from relaxpy.script import ir as I, relax as R
@I.ir_module
class Program:
    @R.function
    def main({parameters}):
        return {result}
"""
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_CENTRED = 'R.subtract(x, R.const(8.0, "{dtype}"))'
_FLOATS = (
    *(f'R.multiply({_CENTRED}, R.const({factor}, "{{dtype}}"))' for factor in (100.0, 1e4, 6e4)),
    f"R.log({_CENTRED})",
    f'R.multiply(R.astype({_CENTRED}, "float64"), R.const(1e9, "float64"))',
    f'R.multiply(R.astype({_CENTRED}, "float64"), R.const(3e18, "float64"))',
)
_INTEGERS = (f'R.astype(R.astype({x}, "{i}"), "int64")' for x in _FLOATS for i in INTEGERS)
CASTS = f"R.concat(({', '.join(_INTEGERS)}))"
"""Floats of which many are out of the range of integers, and NaN."""
KERNEL = """
from relaxpy.script import ir as I, tir as T
@I.ir_module
class Program:
    @T.prim_func
    def main(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n, 33), "{dtype}")
        Y = T.match_buffer(y, (n,), "{dtype}")
        for i, k in T.grid(n, 33):
            with T.block("total"):
                a, b = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[a] = T.Cast("{dtype}", 0)
                Y[a] = Y[a] + X[a, b] * X[a, b]
"""


def programs() -> Iterator[tuple[str, str, list[tuple[tuple[int, ...], str]]]]:
    """Names, texts, and the shapes and datatypes of the operands."""
    for function, dtype in itertools.product(FUNCTIONS, ("float32", "float16")):
        for n in (1, 70):
            text = _text(f"R.{function}(x)", x=((n,), dtype))
            yield f"{function} {dtype} {n}", text, [((n,), dtype)]
    for a, b in itertools.product(("int8", "uint8"), repeat=2):
        for n, k, m in ((1, 5, 7), (9, 37, 33)):
            shapes = [((n, k), a), ((k, m), b)]
            text = _text('R.matmul(x, w, out_dtype="int32")', x=shapes[0], w=shapes[1])
            yield f"{a} {b} {n}", text, shapes
    for dtype in ("float32", "float64", "int32"):
        shapes = [((16, 8), dtype), ((8, 24), dtype)]
        text = _text("R.add(R.matmul(x, w), R.matmul(x, w))", x=shapes[0], w=shapes[1])
        yield f"matmul {dtype}", text, shapes
        yield f"symbolic {dtype}", KERNEL.format(dtype=dtype), [((5, 33), dtype), ((5,), dtype)]
    for dtype in ("int8", "int16", "float16", "float32"):
        text = _text("R.multiply(x, R.sum(x, axis=0))", x=(("n", "m"), dtype))
        yield f"rows {dtype}", text, [((3, 83), dtype)]
    for dtype in ("float16", "float32", "float64"):
        yield (
            f"casts {dtype}",
            _text(CASTS.format(dtype=dtype), x=((251,), dtype)),
            [((251,), dtype)],
        )
    large = ((1 << 16,), "float32")
    yield "threads", _text("R.exp(R.sin(x))", x=large), [large]
    for dtype, out in (("float32", "float32"), ("int8", "int32")):
        shapes = [((70, 96), dtype), ((96, 128), dtype)]
        text = _text(f'R.matmul(x, w, out_dtype="{out}")', x=shapes[0], w=shapes[1])
        yield f"threads {dtype}", text, shapes


def _text(result: str, **operands: tuple[tuple[int | str, ...], str]) -> str:
    parameters = ", ".join(
        f'{name}: R.Tensor({shape}, "{dtype}")' for name, (shape, dtype) in operands.items()
    )
    return TEXT.format(parameters=parameters, result=result)


def operand(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers that any processor draws alike."""
    numbers = np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.int64) * 7919 % 251
    if dtype.startswith("float"):
        return (numbers / 16 + 0.125).astype(dtype).reshape(shape)
    return numbers.astype(dtype).reshape(shape)


def main() -> None:
    found = {}
    for name, text, operands in programs():
        if not name.startswith(tuple(sys.argv[1:]) or ""):
            continue
        for target in ("native", "numpy") if name.startswith("casts") else ("native",):
            executable = relaxpy.compile(from_source(text), target)
            assert all(row.backend == target for row in executable.report()), name
            arrays = [operand(*each) for each in operands]
            result = executable["main"](*arrays)
            result = result if isinstance(result, np.ndarray) else arrays[-1]
            found[f"{name} {target}"] = hashlib.sha256(result.tobytes()).hexdigest()
    print(json.dumps({"digests": found, "llvm": "llvmlite" in sys.modules}))


if __name__ == "__main__":
    main()
