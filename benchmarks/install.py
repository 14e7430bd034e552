"""From `pip install` to a first result, and the size and start of a model, in empty environments.

`PYTHONPATH=. python benchmarks/install.py` builds the wheel, installs it with its extras, and ONNX
Runtime and PyTorch alone, in environments below build/install, runs the models of README.md and a
small GGUF file there, and writes the tables of docs/how-to/run-a-model-without-its-framework.md.
The Python that runs this has PyTorch, onnx, gguf and tokenizers, which write the models.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.run import written
from tools import dist

PLACE = dist.ROOT / "build" / "install"
PAGE = dist.ROOT / "docs" / "how-to" / "run-a-model-without-its-framework.md"
BEGIN = "<!-- written by benchmarks/install.py: {} -->\n"
RUNS = 7
TORCH, ONNX, DECORATED = re.findall(
    r"^```py(?:thon)?\n(.*?)^```$",
    (dist.ROOT / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)[:3]
"""The programs of the three models of README.md."""
JOURNEYS = {
    "a decorated function": ("native", ("-c", f"import numpy as np\n{DECORATED}")),
    "an ONNX file": ("native,onnx", ("-c", ONNX)),
    "a PyTorch module": ("native,torch", ("-c", TORCH)),
    "a GGUF file": (
        "native,llm",
        ("-m", "relaxpy", "generate", "chat.gguf", "the cat sat", "--max-tokens", "20"),
    ),
}
"""Models, the extras of relaxpy that they need, and the words after python of a first result."""
LOADED = """
import numpy as np, relaxpy
ex = relaxpy.load_executable("cnn.rxp", native_code={})
ex(np.load("x.npy"))
"""
STARTS = {
    "relaxpy, machine code from the file": ("relaxpy", LOADED.format(True)),
    "relaxpy and llvmlite, machine code from the file": ("relaxpy[native]", LOADED.format(True)),
    "relaxpy and llvmlite, compiled at the start": ("relaxpy[native]", LOADED.format(False)),
    "relaxpy alone, run by NumPy": ("relaxpy", LOADED.format(False)),
    "ONNX Runtime, the model as ONNX": (
        "onnxruntime",
        "import numpy as np, onnxruntime\n"
        'session = onnxruntime.InferenceSession("cnn.onnx")\n'
        'session.run(None, {"x": np.load("x.npy")})',
    ),
    "PyTorch for CPUs, `torch.load`": (
        "torch numpy",
        "import numpy as np, torch\n"
        'torch.load("cnn.pt", weights_only=False)(torch.from_numpy(np.load("x.npy")))',
    ),
    "PyTorch for CPUs, `torch.export.load`": (
        "torch numpy",
        "import numpy as np, torch\n"
        'torch.export.load("cnn.pt2").module()(torch.from_numpy(np.load("x.npy")))',
    ),
}
"""What runs the CNN, the packages of its environment, and the program."""


class Took(NamedTuple):
    """Seconds of a command: of all its processes on CPUs, and on the wall."""

    cpu: float
    wall: float


def took(command: Sequence[str | Path], folder: Path, **settings: str) -> Took:
    """The seconds of a command that sees no other relaxpy and no cache but that of the settings."""
    hidden = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    env = {key: value for key, value in os.environ.items() if key not in hidden} | settings
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{shlex.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(cpu, wall)


def load() -> str:
    """A sentence on how busy the machine is, which decides the seconds that pass."""
    return f"The machine has {os.cpu_count()} CPUs and a load of {os.getloadavg()[0]:.0f}.\n"


def megabytes(python: Path) -> float:
    """The size of the packages beside pip, in units of 2**20 bytes."""
    [site] = python.parents[1].glob("lib/python*/site-packages")
    others = [path for path in site.iterdir() if not path.name.startswith(("pip", "setuptools"))]
    files = [file for path in others for file in (path, *path.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files) / 2**20


def write_models(folder: Path) -> int:
    """Write the models in each format; return the number of weights of the CNN."""
    import numpy as np
    import torch
    from torch import nn

    import relaxpy
    from tests.plugins.llm import tiny

    def onnx(
        model: nn.Module, x: torch.Tensor, path: Path, sizes: dict[str, dict[int, str]]
    ) -> None:
        torch.onnx.export(
            model, (x,), path, input_names=["x"], dynamic_axes=sizes, dynamo=False, verbose=False
        )

    torch.manual_seed(0)
    linear = nn.Sequential(nn.Linear(64, 10), nn.Softmax(-1)).eval()
    onnx(linear, torch.ones(2, 64), folder / "model.onnx", {"x": {0: "batch"}})
    layers = (nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 3, 2), nn.Conv2d(64, 128, 3, 2))
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)
    cnn = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), *ends).eval()
    x = torch.randn(1, 3, 64, 64)
    np.save(folder / "x.npy", x.numpy())
    onnx(cnn, x, folder / "cnn.onnx", {})
    torch.save(cnn, folder / "cnn.pt")
    torch.export.save(torch.export.export(cnn, (x,)), folder / "cnn.pt2")
    relaxpy.compile(cnn, args=(x,)).save(folder / "cnn.rxp")
    raw = tiny.config(num_hidden_layers=4, hidden_size=256, intermediate_size=512, head_dim=64)
    tiny.write_gguf(folder / "chat.gguf", raw, tiny.weights(raw), "Q4_0")
    return sum(weight.numel() for weight in cnn.parameters())


def made(packages: str, wheel: Path) -> tuple[Path, Took]:
    """The Python of an environment with packages, which is new, and what pip took."""
    folder = PLACE / (re.sub(r"\W+", "-", packages) or "env")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True, symlinks=True)
    python = dist.python_of(folder)
    words = [word.replace("relaxpy", str(wheel)) for word in packages.split()]
    options = ["--quiet", "--disable-pip-version-check", "--constraint", str(dist.PINS)]
    return python, took([python, "-m", "pip", "install", *options, *words], folder)


def journeys(wheel: Path, models: Path) -> str:
    """The table of what it takes from pip to a first result."""
    rows = [
        "| model | pip install | on disk | pip, CPU seconds | seconds | first result, CPU seconds "
        "| seconds | second, CPU seconds | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, (extras, words) in JOURNEYS.items():
        python, installed = made(f"relaxpy[{extras}]", wheel)
        with tempfile.TemporaryDirectory() as cache:
            results = [
                took([python, *words], models, RELAXPY_CACHE_DIR=cache, RELAXPY_CACHE="1")
                for _ in range(2)
            ]
        size = f"{megabytes(python):.0f} MB"
        cells = [f"{t.cpu:.1f} | {t.wall:.1f}" for t in (installed, *results)]
        rows.append(f"| {name} | `relaxpy[{extras}]` | {size} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    return f"{load()}\n" + "\n".join(rows) + "\n"


def starts(wheel: Path, models: Path, count: int) -> str:
    """The table of sizes, and of times from the start of a process to the first result."""
    pythons = {packages: made(packages, wheel)[0] for packages, _ in STARTS.values()}
    runs: dict[str, list[Took]] = {name: [] for name in STARTS}
    for _ in range(RUNS + 1):
        for name, (packages, program) in STARTS.items():
            command = [pythons[packages], "-c", program]
            runs[name].append(took(command, models, RELAXPY_CACHE="0"))
    rows = ["| environment | on disk | CPU seconds | seconds |", "| --- | --- | --- | --- |"]
    for name, (packages, _) in STARTS.items():
        cpu, wall = (statistics.median(values) for values in zip(*runs[name][1:], strict=True))
        rows.append(f"| {name} | {megabytes(pythons[packages]):.0f} MB | {cpu:.2f} | {wall:.2f} |")
    return (
        f"A CNN of three convolutions with {count:,} weights, images of 64 x 64, medians of {RUNS} "
        f"runs in turn. {load()}\n" + "\n".join(rows) + "\n"
    )


def main() -> None:
    """Build, install, measure, and write the tables."""
    PLACE.mkdir(parents=True, exist_ok=True)
    [wheel] = dist.build(PLACE / "wheel", "wheel")
    models = PLACE / "models"
    models.mkdir(exist_ok=True)
    count = write_models(models)
    tables = {
        "first result": lambda: journeys(wheel, models),
        "start": lambda: starts(wheel, models, count),
    }
    for name, measured in tables.items():
        section = measured()
        print(section)
        page = written(PAGE.read_text(encoding="utf-8"), section, BEGIN.format(name))
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    if sys.platform == "win32":
        raise SystemExit("the seconds of other processes are not known on Windows")
    main()
