"""Without assert statements, as under `python -O`, the same is computed and stored."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Functions that an assert may call, as they change nothing.
HARMLESS = frozenset(
    (
        *("all", "any", "callable", "hasattr", "is_dataclass", "isinstance", "issubclass", "len"),
        *("map", "set", "sorted", "tuple", "type", "zip"),
    )
)
KERNELS = ("assert is_inside(x[*row,])", "assert T.Cast(")
"""The beginnings of statements of kernels, which Python does not run."""
PROGRAM = """
import hashlib, json, sys
from pathlib import Path
import numpy as np, relaxpy
from relaxpy.exec.store.container import Container
from tests.ir.relax.texts import module

found = {"debug": __debug__}
for name, text in {
    "fixed": "def main(x: f32[4]): return R.add(x, R.const(1.0))",
    "symbolic": "def main(x: f32[n, 4]): return R.nn.softmax(R.matmul(R.exp(x), x[:4]))"
    .replace("x[:4]", "R.ones((4, 4), 'float32')"),
    "branch": '''
def main(x: f32[4], c: bool):
    if c:
        y = R.add(x, x)
    else:
        y = R.cumsum(x, axis=0)
    return y
''',
}.items():
    for target in ("native", "numpy"):
        ex = relaxpy.compile(module(text), target)
        ex.save(sys.argv[1])
        native = Container.read(Path(sys.argv[1])).content.get("native") or {}
        found[f"{name} {target}"] = sorted(native.get("objects", ()))
        x = np.ones((2, 4) if name == "symbolic" else 4, "float32")
        loaded = relaxpy.load_executable(sys.argv[1])
        args = (x, np.array(True)) if name == "branch" else (x,)
        for run in (ex["main"], loaded["main"]):
            found.setdefault(f"{name} {target} values", []).append(run(*args).tolist())
        found[f"{name} {target} text"] = hashlib.sha256(ex.source.encode()).hexdigest()
print(json.dumps(found))
"""


def test_asserts_have_no_effects() -> None:
    wrong = []
    for path in sorted((ROOT / "relaxpy").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "assert " in text else ():
            if not isinstance(node, ast.Assert):
                continue
            if ast.unparse(node).startswith(KERNELS):
                continue
            parts = [*ast.walk(node.test)]
            called = [ast.unparse(n.func) for n in parts if isinstance(n, ast.Call)]
            binds = any(isinstance(n, ast.NamedExpr) for n in parts)
            is_bare = isinstance(node.test, ast.Attribute)  # which may be a property
            if binds or is_bare or not HARMLESS.issuperset(called):
                wrong.append(f"{path}:{node.lineno}: {ast.unparse(node.test)}")
    assert wrong == []


def test_files_and_values_are_the_same_without_asserts(tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    found = []
    for options in ([], ["-O"]):
        command = [sys.executable, *options, "-c", PROGRAM, str(tmp_path / "model.rxp")]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
        assert run.returncode == 0, run.stderr
        found.append(json.loads(run.stdout))
    assert [f.pop("debug") for f in found] == [True, False]
    assert found[0] == found[1]


@pytest.mark.skipif(not __debug__, reason="runs once")
def test_a_sample_of_tests_passes_without_asserts() -> None:
    names = (
        *("test_pass_pairs.py", "native/test_static_entry.py", "test_formats.py"),
        *("test_fast_paths.py", "test_executable.py", "test_lower.py"),
    )
    command = [
        *(sys.executable, "-O", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
        *("-W", "ignore::pytest.PytestConfigWarning", "--layer=quick"),
        *(str(ROOT / "tests" / "exec" / name) for name in names),
    ]
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=250
    )
    assert run.returncode == 0, run.stdout + run.stderr
