"""Every command where native code cannot be generated, or is not what the environment selects."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from relaxpy.plugins.cli.main import _parser
from tests.plugins.llm.tiny import config, write_folder

ROOT = Path(__file__).parents[3]
#: What the import machinery of a Python finds where llvmlite is not installed.
ABSENT = """
import sys
from importlib.machinery import PathFinder


class WithoutLlvmlite(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_absent = name.partition(".")[0] == "llvmlite"
        return None if is_absent else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *args, **kwargs):
        found = super().find_distributions(*args, **kwargs)
        return (entry for entry in found if entry.metadata["Name"] != "llvmlite")


sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutLlvmlite
"""
#: The shared library of llvmlite is for another system.
DAMAGED = "raise OSError('libllvmlite.so: invalid ELF header')"
MODEL = """
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 2), "float32")):
        with R.dataflow():
            y = R.nn.softmax(R.matmul(x, w))
            R.output(y)
        return y
"""
#: A command line for each command; `lsp` waits for an editor, and says how it is installed.
#: Commands of language models have a test of their own.
COMMANDS = {
    "check": "check model.py",
    "print": "print model.py",
    "opt": "opt model.py --pipeline default --explain",
    "compile": "compile model.py -o compiled",
    "warm": "warm model.py",
    "export": "export --help",
    "cache": "cache",
    "run": "run model.py --random 0 --dim n=3",
    "profile": "profile model.py --random 0 --dim n=3 --repeat 1",
    "report": "report model.py",
    "source": "source model.py --kind tree",
    "graph": "graph model.py",
    "lsp": "lsp --help",
    "passes": "passes",
    "targets": "targets",
    "doctor": "doctor",
    "explain": "explain DER-36",
    **{name: f"{name} --help" for name in ("generate", "chat", "serve", "perplexity")},
}
OTHERS = (
    "opt model.py --pipeline default --bisect",
    "source model.py",
    "run saved_before --random 0 --dim n=3",
    "report model.py --target numpy",
    "report model.py --target reference",
    "run model.py --target reference --random 0 --dim n=3",
)
DRIVER = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from relaxpy.plugins.cli.main import main

rows = []
for line in sys.argv[1:]:
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        code = main(line.split())
    rows.append((output.getvalue(), errors.getvalue(), code))
print(json.dumps(rows))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "cache").mkdir(mode=0o700)
    script = (
        "from relaxpy.plugins.cli.main import main\n"
        "main(['compile', 'model.py', '-o', 'saved_before'])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RELAXPY_TARGET": "numpy"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, check=True)
    return tmp_path


def written(folder: Path, env: Mapping[str, str]) -> dict[str, tuple[str, str, int]]:
    """The output, the errors and the exit code of each command; the first one is `doctor`."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("RELAXPY_")}
    variables |= {"RELAXPY_CACHE_DIR": str(folder / "cache"), **env}
    lines = [COMMANDS["doctor"], *COMMANDS.values(), *OTHERS]
    command = [sys.executable, "-c", DRIVER, *lines]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return {line: tuple(row) for line, row in zip(lines, json.loads(done.stdout), strict=True)}


def site(folder: Path, text: str) -> str:
    """A PYTHONPATH with which every Python executes `text` when it starts."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(text)
    return os.pathsep.join([str(folder / "site"), str(ROOT)])


def assert_all_work(found: Mapping[str, tuple[str, str, int]]) -> None:
    for line, (output, errors, code) in found.items():
        assert (code, errors) == (0, ""), line
        assert output, line
    row = next(line for line in found["report model.py"][0].splitlines() if "softmax" in line)
    assert " numpy " in row


def test_each_command_has_a_row() -> None:
    assert set(COMMANDS) == set(_parser()[1])


def test_language_models_answer_on_numpy_and_say_so(folder: Path) -> None:
    pytest.importorskip("tokenizers")
    write_folder(folder / "lm", config())
    line = "generate lm cat --max-tokens 2"
    env = {**os.environ, "PYTHONPATH": site(folder, ABSENT), "RELAXPY_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", DRIVER, line]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    [[output, errors, code]] = json.loads(done.stdout)
    assert (bool(output), code) == (True, 0), errors
    assert "NumPy" in errors


def test_commands_work_where_llvmlite_is_not_installed(folder: Path) -> None:
    found = written(folder, {"PYTHONPATH": site(folder, ABSENT)})
    assert_all_work(found)
    doctor = found["doctor"][0]
    assert re.search(r"^llvmlite +not installed +pip install 'relaxpy\[native\]'$", doctor, re.M)
    assert re.search(
        r"^calls +kernels run on NumPy +.*llvmlite: it is not installed$", doctor, re.M
    )
    assert re.search(r"^targets +numpy \(default\), reference ", doctor, re.M)
    assert "the default is numpy: llvmlite: it is not installed" in found["targets"][0]


def test_commands_work_where_llvmlite_cannot_be_loaded(folder: Path) -> None:
    package = folder / "site" / "llvmlite"
    path = site(folder, "")
    package.mkdir()
    (package / "__init__.py").write_text(DAMAGED)
    found = written(folder, {"PYTHONPATH": path})
    assert_all_work(found)
    assert re.search(r"^llvmlite .* cannot be loaded: libllvmlite.so: ", found["doctor"][0], re.M)


def test_commands_work_where_the_environment_selects_numpy(folder: Path) -> None:
    found = written(folder, {"PYTHONPATH": site(folder, ""), "RELAXPY_TARGET": "numpy"})
    assert_all_work(found)
    assert re.search(r"^targets .*numpy \(default\), reference ", found["doctor"][0], re.M)
