"""What somebody meets who installs the wheel: an environment without the repository."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.plugins.llm import tiny
from tests.test_docs import python_of, write_model
from tools import dist

ROOT = Path(__file__).parents[1]
#: Pages whose Python a stranger copies first.
PAGES = [name for name in ("README.md", "docs/getting-started.md") if (ROOT / name).exists()]
#: The notebooks of the course, which are numbered.
COURSE = sorted((ROOT / "notebooks").glob("0*.ipynb"))
INSTALLED = """
import importlib.metadata, importlib.util, pathlib, relaxpy
package = pathlib.Path(relaxpy.__file__).parent
assert "site-packages" in package.parts, package
assert importlib.metadata.version("relaxpy") == relaxpy.__version__
assert all((package / name).exists() for name in ("py.typed", "script/operators.pyi"))
assert importlib.util.find_spec("tests") is None and importlib.util.find_spec("torch") is None
assert "WF-6a" in str(relaxpy.explain("WF-6a"))
"""
ONNX = """
import numpy as np, relaxpy
main = relaxpy.compile("model.onnx")
x = np.array([[-1, 2], [3, -4]], "float32")
np.testing.assert_array_equal(main(x), [[0, 4], [6, 0]])
"""
TORCH = """
import importlib.util, pathlib, torch, relaxpy
from relaxpy.relax.frontend.torch import from_exported_program
assert importlib.util.find_spec("tests") is None
assert pathlib.Path(relaxpy.__file__).is_relative_to(pathlib.Path("env").resolve())
layers = [torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)]
net, x = torch.nn.Sequential(*layers).eval(), torch.ones(3, 4)
batch = {"input": {0: torch.export.Dim("batch")}}
program = torch.export.export(net, (x,), dynamic_shapes=batch)
main = relaxpy.compile(from_exported_program(program))["main"]
torch.testing.assert_close(torch.tensor(main(x[:2].numpy())[0]), net(x[:2]).detach())
compiled = torch.compile(net, backend="relaxpy")
torch.testing.assert_close(compiled(x), net(x))
"""
MODEL = """
import relaxpy
lm = relaxpy.llm.load("model")
assert lm.generate("hello", max_tokens=5) == lm.generate("hello", max_tokens=5)
assert len("".join(lm.stream([{"role": "user", "content": "hello"}], max_tokens=5))) > 0
"""


def environment(folder: Path) -> dict[str, str]:
    """Variables of somebody who has set none for Python and relaxpy."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RELAXPY_", "PYTHON"))}
    return kept | {"RELAXPY_CACHE_DIR": str(folder / "cache"), "NO_COLOR": "1"}


def add_torch(python: Path) -> bool:
    """Let an environment find the packages of these tests after its own, for PyTorch's sake."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    report = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", report], capture_output=True, text=True, check=True).stdout
    line = f"{Path(spec.origin).parents[1]}\n"
    (Path(own.strip()) / "torch.pth").write_text(line, encoding="utf-8")
    return True


def write_models(folder: Path) -> None:
    """An ONNX model, its input, and a language model of random weights."""
    write_model(folder)
    np.save(folder / "x.npy", np.ones((3, 2), "float32"))
    tiny.write_folder(folder / "model", tiny.config())


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What a command writes."""
    env = environment(folder)
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def failures(commands: Mapping[str, list[str]], folder: Path) -> dict[str, str]:
    """What the commands that fail have written."""
    found = {}
    for name, command in commands.items():
        done = run(command, folder)
        if done.returncode:
            found[name] = done.stdout + done.stderr
    return found


@pytest.mark.timeout(1200)
def test_the_wheel_alone_does_what_the_first_pages_show(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    if subprocess.run([*pip, tmp_path, "astor"], capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached")
    [wheel] = dist.build(tmp_path / "dist", "wheel")
    folder = tmp_path / "home"
    folder.mkdir()
    python = dist.environment(folder / "env", f"{wheel}[native,onnx,llm,notebook]")
    program = str(python.with_name("relaxpy"))
    write_models(folder)
    commands = {"installed": ["-c", INSTALLED], "onnx": ["-c", ONNX], "model": ["-c", MODEL]}
    (folder / "program.py").write_text(dist.PROGRAM, encoding="utf-8")
    for page in PAGES:
        text = python_of((ROOT / page).read_text(encoding="utf-8"))
        (folder / f"{Path(page).stem}.py").write_text(text, encoding="utf-8")
        commands[page] = [f"{Path(page).stem}.py"]
    commands = {name: [str(python), *arguments] for name, arguments in commands.items()}
    usage = run([program, "--help"], folder).stdout
    [listed] = re.findall(r"^  COMMAND\n((?:    .*\n)+)", usage, re.MULTILINE)
    names = re.findall(r"^    (\w+) ", listed, re.MULTILINE)
    assert {"check", "run", "doctor", "generate"} <= {*names}
    commands |= {f"{name} --help": [program, name, "--help"] for name in names}
    commands |= {
        "doctor": [program, "doctor"],
        "check": [program, "check", "program.py"],
        "run": [program, "run", "model.onnx", "x.npy"],
        "generate": [program, "generate", "model", "hello", "--max-tokens", "5"],
    }
    for notebook in COURSE:
        shutil.copy(notebook, folder)
        commands[notebook.name] = [str(python.with_name("jupyter-execute")), notebook.name]
    assert failures(commands, folder) == {}
    if add_torch(python):
        assert failures({"torch": [str(python), "-c", TORCH]}, folder) == {}
