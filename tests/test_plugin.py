"""Plug-ins of other packages: the one of docs/how-to/write-a-plug-in.md, built and installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relaxpy import plugin

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "how-to" / "write-a-plug-in.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of the page, and `site`, where its package is installed."""
    home = tmp_path_factory.mktemp("plugin")
    for file, text in re.findall(r"```\w+\n# (\S+)\n(.*?)```", PAGE, re.DOTALL):
        (home / file).parent.mkdir(exist_ok=True)
        (home / file).write_text(text, encoding="utf-8")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", "site", "."]
    subprocess.run(pip, cwd=home, check=True, capture_output=True)
    return home


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """What Python does with the package installed, and its folder of sources out of reach."""
    paths = os.pathsep.join([str(folder / "site"), str(ROOT)])
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder / "site",
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_program_uses_what_the_package_of_the_page_adds(folder: Path) -> None:
    done = run(folder, str(folder / "use.py"))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_line_knows_the_pass(folder: Path) -> None:
    program = folder / "program.py"
    program.write_text(
        "from relaxpy.script import ir as I, relax as R\n"
        "@I.ir_module\nclass Module:\n    @R.function\n"
        '    def main(x: R.Tensor((2,), "float32")):\n        return R.demo.softsign(x)\n',
        encoding="utf-8",
    )
    done = run(folder, "-m", "relaxpy", "opt", str(program), "--passes", "MarkFunctions")
    assert done.returncode == 0, done.stderr
    assert '"demo.seen": True' in done.stdout


def test_packed_functions_of_plug_ins_are_listed(folder: Path) -> None:
    """Those of the package, of the importers and of TVM's names, before one of them is called."""
    statement = """
from relaxpy.runtime import list_global_func_names
names = "demo.double", "relaxpy.matrices.lu_unpack", "vm.builtin.tensor_cache.load"
assert {*names} <= {*list_global_func_names()}
"""
    done = run(folder, "-c", statement)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("relaxpy.relax.op.demo.softsing", "did you mean 'softsign'"),
        ("relaxpy.compile(relaxpy.IRModule({}), target='countin')", "did you mean 'counting'"),
        ("relaxpy.get_global_func('demo.dubble')", "did you mean 'demo.double'"),
    ],
)
def test_names_of_the_package_are_suggested(folder: Path, statement: str, message: str) -> None:
    done = run(folder, "-c", f"import relaxpy\n{statement}")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        ("PLUGIN = 1", "relaxpy_demo:PLUGIN is a int, not a Plugin"),
        ("import nothing_of_the_kind", "No module named 'nothing_of_the_kind'"),
        (
            "from relaxpy.plugin import Plugin\nPLUGIN = Plugin(operators=('missing_module',))",
            "No module named 'missing_module'",
        ),
    ],
)
def test_a_package_that_cannot_be_loaded_is_a_warning(folder, plugin, message) -> None:
    file = folder / "site" / "relaxpy_demo" / "__init__.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(plugin, encoding="utf-8")
    try:
        done = run(folder, "-c", "import relaxpy\nrelaxpy.relax.op.demo")
    finally:
        file.write_text(text, encoding="utf-8")
    assert "RelaxpyWarning: the plug-in 'demo' cannot be loaded" in done.stderr
    assert message in done.stderr
    assert "has no attribute 'demo'" in done.stderr


def test_a_plug_in_without_what_it_needs_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that needs it; each still has its models, so that to read one is an error."""
    a, b = plugin.Plugin(), plugin.Plugin(needs=("lost",))
    c = plugin.Plugin(needs=("b",), models={".c": "m:f"})
    monkeypatch.setattr(plugin, "manifests", lambda: {"a": a, "b": b, "c": c})
    assert plugin.own.__wrapped__() == (a,)
    assert plugin.models.__wrapped__()[".c"] == "m:f"
