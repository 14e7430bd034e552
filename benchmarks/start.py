"""From a model in memory to its first result, in fresh processes, beside ONNX Runtime and OpenVINO.

`PYTHONPATH=. python benchmarks/start.py [NAME]` prints seconds of CPU time, each the least of
several processes: imports of ours, import of the model, compilation and the first call. It is
"cold" with an empty cache on disk, "second" in the next process. What is not counted: the start of
Python, the imports of NumPy and onnx, and the making of weights. Each runs on one thread.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

REPEATS = 3


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Random values."""
    return np.random.default_rng(0).random(shape, np.float32)


def function(name: str, parameters: Mapping[str, Any], lines: list[str]) -> str:
    """A function of a dataflow block in text that returns its last value."""
    infos = ", ".join(f"{x}: R.Tensor({v.shape}, '{v.dtype}')" for x, v in parameters.items())
    body = "".join(f"        {line}\n" for line in lines)
    last = lines[-1].split(" = ")[0]
    return (
        f"@R.function\ndef {name}({infos}):\n    with R.dataflow():\n{body}"
        f"        R.output({last})\n    return {last}\n"
    )


def perceptron(sizes: tuple[int, ...]) -> tuple[dict[str, Any], list[str]]:
    """The parameters and the lines of layers of such widths."""
    values: dict[str, Any] = {"x": floats(32, sizes[0])}
    lines, last = [], "x"
    for k, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        values |= {f"w{k}": floats(rows, columns), f"b{k}": floats(columns)}
        lines.append(f"y{k} = R.add(R.matmul({last}, w{k}), b{k})")
        lines.append(f"z{k} = R.nn.relu(y{k})")
        last = f"z{k}"
    return values, lines[:-1]


def transformer(length: int, width: int, layers: int) -> tuple[dict[str, Any], list[str]]:
    """The parameters and the lines of layers of one head of attention and a perceptron."""
    values: dict[str, Any] = {"x": floats(length, width)}
    lines, last = [], "x"
    for k in range(layers):
        values |= {f"{name}{k}": floats(width, width) for name in "qkvo"}
        values |= {f"g{k}": floats(width), f"c{k}": floats(width)}
        values |= {f"u{k}": floats(width, 4 * width), f"d{k}": floats(4 * width, width)}
        lines += [
            f"n{k} = R.nn.layer_norm({last}, g{k}, c{k}, axes=[-1])",
            *(f"{part}{part}{k} = R.matmul(n{k}, {part}{k})" for part in "qkv"),
            f"s{k} = R.nn.softmax(R.matmul(qq{k}, R.permute_dims(kk{k})) * R.const({width**-0.5}))",
            f"a{k} = R.add({last}, R.matmul(R.matmul(s{k}, vv{k}), o{k}))",
            f"h{k} = R.nn.gelu(R.matmul(a{k}, u{k}))",
            f"y{k} = R.add(a{k}, R.matmul(h{k}, d{k}))",
        ]
        last = f"y{k}"
    return values, lines


def compiled(text: str, *values: Any) -> None:
    """Read, compile and call a program."""
    import relaxpy
    from relaxpy.script import from_source

    relaxpy.compile(from_source(text))["main"](*values)


def readme() -> Callable[[], None]:
    """README's program."""
    values = floats(3, 64), floats(64, 256), floats(256, 10)
    text = (
        '@R.function\ndef main(x: R.Tensor(("n", 64), "float32"), '
        'w1: R.Tensor((64, 256), "float32"), w2: R.Tensor((256, 10), "float32")):\n'
        "    with R.dataflow():\n        h = R.nn.relu(R.matmul(x, w1))\n"
        "        y = R.nn.softmax(R.matmul(h, w2))\n        R.output(y)\n    return y\n"
    )
    return lambda: compiled(text, *values)


def small_kernels() -> Callable[[], None]:
    """300 calls of six operators whose sizes all differ."""
    values = {f"x{k}": floats(20 + k, 64 + k) for k in range(50)}
    kinds = ("exp({})", "nn.softmax({})", "permute_dims({})", "sum({}, axis=1)",
             "matmul({}, R.permute_dims({}))", "nn.relu({})")  # fmt: skip
    lines = [f"{x}_{n} = R.{kind.replace('{}', x)}" for x in values for n, kind in enumerate(kinds)]
    names = ", ".join(line.split(" = ")[0] for line in lines)
    text = function("main", values, [*lines, f"results = ({names})"])
    return lambda: compiled(text, *values.values())


def chain() -> Callable[[], None]:
    """1,000 bindings."""
    values = {"x0": floats(16, 16), "c": floats(16, 16)}
    text = function("main", values, [f"x{k + 1} = x{k} + c" for k in range(1000)])
    return lambda: compiled(text, *values.values())


def training(layers: tuple[dict[str, Any], list[str]]) -> Callable[[], None]:
    """One step of training by Adam."""
    values, lines = layers
    text = function("backbone", values, lines)
    x, *weights = values.values()
    shape = (len(x), weights[-1].shape[-1])

    def run() -> None:
        import relaxpy
        from relaxpy.relax.training import SetupTrainer, Trainer
        from relaxpy.relax.training.loss import MSELoss
        from relaxpy.relax.training.optimizer import Adam
        from relaxpy.script import from_source, relax as R

        attributes = f'    I.module_attrs({{"param_num": {len(weights)}, "state_num": 0}})\n'
        body = "".join(f"    {line}\n" for line in text.splitlines())
        module = from_source(f"@I.ir_module\nclass Model:\n{attributes}{body}")
        info = R.Tensor(shape, "float32")
        module = SetupTrainer(MSELoss(), Adam(0.01), [info, info])(module)
        trainer = Trainer(module, relaxpy.VirtualMachine(relaxpy.compile(module)))
        trainer.load_params(weights)
        trainer.update(x, floats(*shape))

    return run


LLAMA = {
    "model_type": "llama", "vocab_size": 32000, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "hidden_size": 512, "num_hidden_layers": 16,
    "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1408,
}  # fmt: skip


def llama(path: str) -> Callable[[], None]:
    """A token of a Llama of 16 layers in 4 bits."""
    with np.load(path) as file:
        weights = dict(file)

    def run() -> None:
        from relaxpy.llm import CompiledDecoder, config_of

        model = CompiledDecoder(config_of(LLAMA), weights, quantization="q4f32_1")
        cache = model.new_cache()
        model.state("add_sequence", cache, 0)
        model.run(cache, [0], [[1]], [0])

    return run


def onnx_model(path: str, system: str) -> Callable[[], None]:
    """A model of a file, and the values of its inputs beside it."""
    data = Path(path).read_bytes()
    with np.load(f"{path}.npz") as file:
        inputs = dict(file)

    def ours() -> None:
        import relaxpy
        from relaxpy.relax.frontend.onnx import from_onnx

        relaxpy.compile(from_onnx(data))["main"](*inputs.values())

    def onnx_runtime() -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        onnxruntime.InferenceSession(data, options).run(None, inputs)

    def openvino() -> None:
        import openvino

        core = openvino.Core()
        core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1})
        core.compile_model(core.read_model(data), "CPU")(inputs)

    if system != "relaxpy":
        return {"onnxruntime": onnx_runtime, "openvino": openvino}[system]
    import onnx  # noqa: F401

    return ours


TEXTS: Mapping[str, tuple[Callable[[], Callable[[], None]], float, float]] = {
    "README's program": (readme, 0.28, 0.18),
    "300 small kernels": (small_kernels, 0.8, 0.4),
    "1,000 bindings": (chain, 0.6, 0.3),
    "training, MLP": (lambda: training(perceptron((64, 128, 128, 10))), 0.6, 0.3),
    "training, transformer": (lambda: training(transformer(32, 64, 2)), 0.8, 0.3),
}
"""The programs in text, and the seconds that are wanted, cold and in the second process."""
FILES = {
    "BERT, 12 layers": ("bert", 1.1, 0.5),
    "ResNet-50": ("resnet", 1.2, 0.4),
    "MobileNetV3": ("mobilenet", 1.2, 0.4),
    "text detection (PP-OCR)": ("text_detection", 2.4, 0.4),
    "objects (YOLO)": ("yolo", 2.5, 0.4),
    "voice (piper)": ("voice", 4.0, 1.0),
    "Llama, 16 layers, 4 bits": ("llama", 1.6, 0.4),
}
"""The same of the models in files, by the functions of `drawn_models`."""
PEERS = [name for name in ("onnxruntime", "openvino") if importlib.util.find_spec(name)]


def write(name: str, path: str) -> None:
    """Write a model of random weights."""
    if name == "llama":
        from benchmarks.llm import weights_of
        from relaxpy.llm import config_of

        np.savez(path, **weights_of(config_of(LLAMA)))  # type: ignore[arg-type]
        return
    from benchmarks import drawn_models

    data, inputs = getattr(drawn_models, name)()
    Path(path).write_bytes(data)
    np.savez(f"{path}.npz", **inputs)


def measure(name: str, path: str, system: str) -> None:
    """Print the seconds to the first result in this process, and how many modules it imported."""
    if name in TEXTS:
        run = TEXTS[name][0]()
    else:
        run = llama(path) if FILES[name][0] == "llama" else onnx_model(path, system)
    start = time.process_time()
    run()
    print(time.process_time() - start, sum(m.startswith("relaxpy") for m in sys.modules))


def seconds(name: str, path: str, system: str, directory: str) -> list[float]:
    """What `measure` prints in a fresh process."""
    env = {**os.environ, "RELAXPY_CACHE": "1", "RELAXPY_CACHE_DIR": directory,
           "RELAXPY_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # the first process makes byte code
    command = [sys.executable, "-m", "benchmarks.start", name, path, system]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main(chosen: str = "") -> None:
    """Print a row for each model whose name contains `chosen`."""
    columns = ("cold", "wanted", "second", "wanted", *PEERS, "modules")
    print(f"{'seconds':26}" + "".join(f"{c:>12}" for c in columns))
    found = []
    for name, (_, *wanted) in {**TEXTS, **FILES}.items():
        if chosen not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path, runs = str(Path(folder, "model.npz")), []
            if name in FILES:
                write(FILES[name][0], path)
            peers = PEERS if name in FILES and FILES[name][0] != "llama" else []
            for k in range(REPEATS):
                cache = str(Path(folder, f"cache{k}"))
                ours = [seconds(name, path, "relaxpy", cache) for _ in range(2)]
                others = [seconds(name, path, peer, cache)[0] for peer in peers]
                runs.append([ours[0][0], ours[1][0], *others, ours[0][1]])
        cold, second, *rest = map(min, zip(*runs, strict=True))
        found.append((cold, second))
        times = [cold, wanted[0], second, wanted[1], *rest[:-1]]
        text = "".join(f"{t:12.2f}" for t in times) + " " * 12 * (len(PEERS) - len(peers))
        print(f"{name:26}{text}{rest[-1]:12.0f}", flush=True)
    cold, second = np.exp(np.mean(np.log(found), axis=0))
    print(f"{'geometric mean':26}{cold:12.2f}{'':12}{second:12.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measure(*sys.argv[1:])
    else:
        main(*sys.argv[1:])
