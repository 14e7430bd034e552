"""Programs whose results have the same bits everywhere: prints a digest of each as JSON.

`test_same_bits.py` runs it in other processes: `python -m tests.exec.native.same_bits CPU` compiles
code for a CPU of this system, or for this one if the name is empty, and runs it; `save FOLDER
TARGET` saves executables for a target; `load FOLDER` runs these without llvmlite. More arguments
are the names of programs.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import relaxpy
from relaxpy import relax
from relaxpy.exec.machine.process import own_platform
from relaxpy.exec.native.machine_code.machine import generating_for, machine_of
from relaxpy.script import from_source
from relaxpy.target import Native

Array: TypeAlias = np.ndarray[Any, Any]
HEAD = "from relaxpy.script import ir as I, relax as R, tir as T\n"
ONE = """
@I.ir_module
class Program:
    @R.function
    def main({parameters}):
        with R.dataflow():
            y = {result}
            R.output(y)
        return y
"""
F32 = "float32"
SINGLE: Mapping[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "matmul": ("R.matmul(x, w)", ((301, 777), (777, 333))),
    "matmul of one row": ("R.matmul(x, w)", ((1, 777), (777, 333))),
    "convolution": (
        "R.nn.conv2d(x, w, strides=(2, 2), padding=(1, 1))",
        ((2, 24, 31, 29), (40, 24, 3, 3)),
    ),
    "attention": ("R.nn.attention(x, w, w)", ((2, 37, 3, 40), (2, 70, 3, 40))),
    "layer norm": ("R.nn.layer_norm(x, w, w, axes=[-1])", ((130, 517), (517,))),
    "rms norm": ("R.nn.rms_norm(x, w)", ((130, 517), (517,))),
    "softmax": ("R.nn.softmax(R.multiply(x, w))", ((130, 517), (517,))),
    "sum": ("R.sum(R.multiply(x, w))", ((130, 517), (517,))),
    "sum of columns": ("R.sum(R.multiply(x, w), axis=0)", ((130, 517), (517,))),
    "mean": ("R.mean(R.multiply(x, w), axis=1)", ((130, 517), (517,))),
    "variance": ("R.variance(R.multiply(x, w))", ((130, 517), (517,))),
    "product": ("R.prod(R.cos(R.multiply(x, w)), axis=1)", ((130, 9), (9,))),
    "running sum": ("R.cumsum(R.multiply(x, w), axis=1)", ((130, 517), (517,))),
    "gelu": ("R.nn.gelu(R.multiply(x, w))", ((130, 517), (517,))),
    "functions": (
        "R.add(R.tanh(R.exp(R.sin(x))), R.log(R.add(R.abs(w), R.const(1, 'float32'))))",
        ((130, 517), (517,)),
    ),
}
"""An operator of each kind, and the shapes of `x` and `w`."""
CNN = """
@I.ir_module
class Program:
    @R.function
    def main(x: R.Tensor(("n", 3, 32, 32), "float32"), w1: R.Tensor((16, 3, 3, 3), "float32"),
             w2: R.Tensor((24, 16, 3, 3), "float32"), w3: R.Tensor((24, 10), "float32")):
        with R.dataflow():
            a = R.nn.max_pool2d(R.nn.relu(R.nn.conv2d(x, w1, padding=(1, 1))), (2, 2), (2, 2))
            b = R.nn.silu(R.nn.conv2d(a, w2, padding=(1, 1)))
            y = R.nn.softmax(R.matmul(R.mean(b, axis=[2, 3]), w3))
            R.output(y)
        return y
"""
PACKED = """
@I.ir_module
class Program:
    @R.function
    def main(x: R.Tensor(("n", 96), "float32"), w1: R.Tensor((96, 160), "float32"),
             w2: R.Tensor((160, 64), "float32")):
        with R.dataflow():
            y = R.matmul(R.nn.gelu(R.matmul(x, w1)), w2)
            R.output(y)
        return y
"""
CNN_SHAPES = (4, 3, 32, 32), (16, 3, 3, 3), (24, 16, 3, 3), (24, 10)
TOKENS, WIDTH, HEADS, LAYERS = 96, 64, 4, 2
WEIGHTS = {"wq": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH)}
WEIGHTS |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH), "norm": (WIDTH,)}


def decoder() -> str:
    """A decoder that takes a token and what it kept of earlier ones, and returns the next token."""
    row, many = (
        f"R.shape([1, 1, {HEADS}, {WIDTH // HEADS}])",
        f'(1, "n", {HEADS}, {WIDTH // HEADS})',
    )
    names = [(name, layer) for layer in range(LAYERS) for name in WEIGHTS]
    parameters = ["t: R.Tensor((1,), 'int64')", f"e: R.Tensor(({TOKENS}, {WIDTH}), 'float32')"]
    parameters += [f"out: R.Tensor(({WIDTH}, {TOKENS}), 'float32')"]
    parameters += [f"{name}{n}: R.Tensor({WEIGHTS[name]}, 'float32')" for name, n in names]
    parameters += [f"{c}{n}: R.Tensor({many}, 'float32')" for n in range(LAYERS) for c in "kv"]
    lines = ["x = R.take(e, t, axis=0)"]
    for n in range(LAYERS):
        lines += [
            f"h = R.nn.rms_norm(x, norm{n})",
            f"q = R.reshape(R.matmul(h, wq{n}), {row})",
            f"nk{n} = R.concat([k{n}, R.reshape(R.matmul(h, wk{n}), {row})], axis=1)",
            f"nv{n} = R.concat([v{n}, R.reshape(R.matmul(h, wv{n}), {row})], axis=1)",
            f"a = R.reshape(R.nn.attention(q, nk{n}, nv{n}), R.shape([1, {WIDTH}]))",
            f"x = R.add(x, R.matmul(a, wo{n}))",
            f"u = R.nn.silu(R.matmul(R.nn.rms_norm(x, norm{n}), up{n}))",
            f"x = R.add(x, R.matmul(u, down{n}))",
        ]
    kept = [f"n{c}{n}" for n in range(LAYERS) for c in "kv"]
    lines += ["s = R.matmul(x, out)", "c = R.argmax(s, axis=1)"]
    results = f"s, c, {', '.join(kept)}"
    body = "\n            ".join([*lines, f"R.output({results})"])
    return (
        f"@I.ir_module\nclass Program:\n    @R.function\n    def main({', '.join(parameters)}):\n"
        f"        with R.dataflow():\n            {body}\n        return ({results})\n"
    )


def texts() -> dict[str, str]:
    """The programs, by name."""
    found = {}
    for name, (result, shapes) in SINGLE.items():
        given = zip("xw", shapes, strict=True)
        parameters = ", ".join(f'{p}: R.Tensor({shape}, "float32")' for p, shape in given)
        found[name] = ONE.format(parameters=parameters, result=result)
    return found | {"network": CNN, "packed weights": PACKED, "decoder": decoder()}


def module_of(name: str) -> relaxpy.IRModule:
    """The module of a program."""
    module: relaxpy.IRModule = from_source(HEAD + texts()[name])
    if name != "packed weights":
        return module
    weights = {"w1": numbers(96, 160), "w2": numbers(160, 64, seed=5)}
    main = module["main"].bind_params(weights).with_attr("global_symbol", "main")
    return relax.transform.QuantizeWeights("q4f32_1")(relaxpy.IRModule({"main": main}))


def numbers(*shape: int, seed: int = 1) -> Array:
    """Floats that any CPU draws alike: sums of them are rounded."""
    drawn = np.arange(seed, seed + np.prod(shape, dtype=int), dtype=np.int64) * 2654435761 % 65521
    return ((drawn - 32760) / 32768).astype(F32).reshape(shape)  # exact


def decoded(main: Callable[..., Any]) -> list[Array]:
    """The scores of 40 tokens, each of which follows the one before it, and the tokens."""
    weights = [numbers(TOKENS, WIDTH), numbers(WIDTH, TOKENS, seed=99)]
    for layer in range(LAYERS):
        for n, shape in enumerate(WEIGHTS.values()):
            weights.append(numbers(*shape, seed=100 * layer + n) / np.float32(8))
    kept = [np.zeros((1, 0, HEADS, WIDTH // HEADS), F32)] * (2 * LAYERS)
    token, scores, tokens = np.array([3]), [], []
    for _ in range(40):
        score, token, *kept = main(np.asarray(token, np.int64), *weights, *kept)
        scores.append(np.asarray(score))
        tokens.append(np.asarray(token))
    assert len(np.unique(tokens)) > 3
    return [*scores, *tokens]


def results(name: str, main: Callable[..., Any]) -> list[Array]:
    """What a program computes."""
    if name == "decoder":
        return decoded(main)
    if name == "packed weights":
        return [np.asarray(main(numbers(rows, 96))) for rows in (1, 7, 34)]
    shapes = CNN_SHAPES if name == "network" else SINGLE[name][1]
    return [np.asarray(main(*(numbers(*s, seed=7 * n + 1) for n, s in enumerate(shapes))))]


def digest(name: str, executable: relaxpy.Executable) -> str:
    """The digest of the bits of what a program computes; it has only kernels of native code."""
    report = executable.report()
    assert not report.varying, report
    assert {row.backend for row in report} == {"native"}, report
    found = hashlib.sha256()
    for array in results(name, executable["main"]):
        assert np.isfinite(array).all(), name
        found.update(array.tobytes())
    return found.hexdigest()


def code_for(cpu: str) -> AbstractContextManager[None]:
    """A context in which code is generated for a CPU of this system, and runs."""
    platform = own_platform()
    assert platform is not None
    return generating_for(machine_of(platform, cpu), runs_here=True) if cpu else nullcontext()


def compiled(cpu: str, names: Iterable[str]) -> dict[str, str]:
    """The digests of programs that are compiled for a CPU."""
    with code_for(cpu):
        return {name: digest(name, relaxpy.compile(module_of(name))) for name in names}


def save(folder: Path, target: str, names: Iterable[str]) -> None:
    """Save programs for a target, such as `linux-aarch64:generic`."""
    for name in names:
        executable = relaxpy.compile(module_of(name), Native.of_text(target))
        executable.save(folder / f"{name}.rxp")


def loaded(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The digests of saved programs, which run without llvmlite."""
    sys.modules["llvmlite"] = None  # type: ignore[assignment]
    return {
        name: digest(name, relaxpy.load_executable(folder / f"{name}.rxp", native_code=True))
        for name in names
    }


def main(kind: str, *rest: str) -> None:
    folder = Path(rest[0]) if kind in ("save", "load") else Path()
    count = {"save": 2, "load": 1}.get(kind, 0)
    names = rest[count:] or [*texts()]
    if kind == "save":
        save(folder, rest[1], names)
    else:
        print(json.dumps(loaded(folder, names) if kind == "load" else compiled(kind, names)))


if __name__ == "__main__":
    main(*sys.argv[1:])
