"""Errors as people meet them: in scripts, IPython, notebooks, pytest, `python -c`, the prompt."""

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.errors.mistakes import DEFINED, IMPORTS, cell, kinds, program, test_case as as_test

ROOT = Path(__file__).parents[2]
MOST_LINES = 15
INSIDES = re.compile(
    r"relaxpy[/\\](?!__init__|n)|<relaxpy |site-packages|, in __init__|^<string>:", re.M
)


def python(*args: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    names = {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *args],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **names},
    )


def without_places(text: str) -> str:
    """`text` without the names of files that messages themselves speak of."""
    return text.replace(f"{ROOT}/relaxpy/__init__.py is not a saved executable", "")


def check_short(text: str) -> None:
    assert len(text.splitlines()) <= MOST_LINES, text
    assert not INSIDES.search(without_places(text)), text


# Each program runs as a script would: what is printed is what Python itself prints of what nobody
# caught, but for the frame of this driver.
SCRIPTS = """
import sys
sys.stderr = sys.stdout
for path in sys.argv[1:]:
    names = {"__name__": "__main__", "__file__": path}
    with open(path) as file:
        code = compile(file.read(), path, "exec")
    try:
        exec(code, names)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__.tb_next)
    print("=" * 20)
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("scripts")
    paths = []
    for k, kind in enumerate(kinds):
        paths.append(folder / f"model{k}.py")
        paths[-1].write_text(program(kind))
    done = python("-c", SCRIPTS, *map(str, paths))
    assert done.returncode == 0, done.stderr
    return dict(zip(kinds, done.stdout.split("=" * 20 + "\n"), strict=False))


@pytest.mark.parametrize("kind", kinds)
def test_a_script_shows_the_users_lines_and_the_message(scripts: dict[str, str], kind: str) -> None:
    found = scripts[kind]
    assert found.startswith("Traceback (most recent call last):\n"), found
    assert "relaxpy.errors." in found
    check_short(found)


def test_a_script_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(program("function"))
    done = python(str(script))
    assert done.returncode == 1
    assert done.stdout == ""
    check_short(done.stderr)
    first, *rest = done.stderr.splitlines()[-3:]
    assert first.startswith(f"relaxpy.errors.StructInfoError: {script}:13:18: relax.matmul: the ")
    assert rest == ["        y = R.matmul(x, x)", "                     ^"]


def test_python_c_reads_programs_and_tells_mistakes() -> None:
    good = "@R.function\ndef f(x: R.Tensor((3,))):\n    return x\nprint(f.script())\n"
    module = DEFINED + "print(Module.script())\n"
    done = python("-c", f"{IMPORTS}\n{good}\n{module}\n{cell('function in a function')}\n")
    assert "def f(x: R.Tensor((3,)))" in done.stdout
    assert "class Module" in done.stdout
    assert done.returncode == 1
    check_short(done.stderr)
    assert done.stderr.splitlines()[-1].strip() == "^"


def test_without_any_text_the_error_says_what_to_do() -> None:
    text = f"{IMPORTS}\n{DEFINED}"
    for done in (python("-", text=text), python("-c", f"exec({text!r})")):
        assert done.returncode == 1
        check_short(done.stderr)
        assert "the source text of 'Module' cannot be found: Python keeps none for" in done.stderr
        assert "or pass its text to relaxpy.script.from_source(text)" in done.stderr


def test_a_text_that_is_executed_in_python_c_is_not_taken_for_the_command() -> None:
    inner = f"{IMPORTS}@R.function\ndef f(x: R.Tensor((3,))):\n    return x\n"
    outer = f"exec({inner!r})\n\n\n@R.function\ndef f(x): return x"
    done = python("-c", outer)
    assert "the source text of 'f' cannot be found" in done.stderr


def test_future_annotations_and_names_used_in_annotations_alone(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    body = """
        def make(n):
            @R.function
            def main(x: R.Tensor((n, "m"), "float32")):
                return x

            @I.ir_module
            class Module:
                @R.function
                def main(x: R.Tensor((n, 2), "float32")) -> R.Tensor((n, 2), "float32"):
                    return x

            return main, Module

        main, module = make(7)
        print(main.params[0].struct_info, module["main"].ret_struct_info)
    """
    script.write_text("from __future__ import annotations\n" + IMPORTS + textwrap.dedent(body))
    done = python(str(script))
    assert done.stderr == ""
    assert done.stdout == ('R.Tensor((7, m), dtype="float32") R.Tensor((7, 2), dtype="float32")\n')


def test_all_frames_are_there_for_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "model.py"
    script.write_text(program("argument of a call"))
    monkeypatch.setenv("RELAXPY_FULL_TRACEBACK", "1")
    done = python(str(script))
    assert "relaxpy/exec/runtime/checks.py" in done.stderr


CELLS = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
for text in sys.stdin.read().split("=" * 20 + "\\n"):
    shell.run_cell(text, store_history=True)
    print("=" * 20)
"""


UNQUOTED = """
@R.function
def d(x: R.Tensor((n, 4), "float32")):
    return x
"""
HINT = 'hint: write "n", if it is the name of a size or a datatype\n'


def test_names_of_sizes_without_quotation_marks_have_a_hint(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    script, file = tmp_path / "model.py", tmp_path / "test_model.py"
    script.write_text(IMPORTS + UNQUOTED)
    assert python(str(script)).stderr.endswith(HINT)
    bar = "=" * 20 + "\n"
    shown = python("-c", CELLS, text=bar.join([IMPORTS, UNQUOTED, "other"])).stdout.split(bar)
    assert shown[1].rstrip().endswith(HINT.rstrip())
    assert "hint" not in shown[2]
    file.write_text(IMPORTS + "def test_model():\n" + textwrap.indent(UNQUOTED, "    "))
    [found] = pytest_runs(file, [str(script), "--continue-on-collection-errors"])
    assert f"\nE   {HINT}" in found
    assert f"\nE       {HINT}" in found


PROMPT = """
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-i", "-q"])
os.write(terminal, sys.argv[1].encode())
found = b""
while True:
    try:
        found += os.read(terminal, 4096)
    except OSError:  # the terminal is closed
        break
os.waitpid(pid, 0)
print(found.decode())
"""
TYPED = """
@R.function
def f(x: R.Tensor((3,), "float32")):
    y = R.add(x, x)
    return y

print("f", f(np.ones(3, "float32")))
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        return R.add(x, x)

print("M", M["main"](np.ones(3, "float32")))
def make():
    @R.function
    def g(x: R.Tensor((3,), "float32")):
        return R.matmul(x, 4)
    return g

make()
exit()
"""


def test_programs_are_typed_at_the_prompt_of_python() -> None:
    pytest.importorskip("readline")
    found = python("-c", PROMPT, f"{IMPORTS}{TYPED}").stdout
    assert "\nf [2. 2. 2.]" in found
    assert "\nM [2. 2. 2.]" in found
    assert "<stdin>:4:28: relax.matmul: x1 and x2 have one datatype" in found


@pytest.fixture(scope="module")
def cells() -> dict[str, str]:
    pytest.importorskip("IPython")
    bar = "=" * 20 + "\n"
    text = bar.join([IMPORTS + DEFINED, *map(cell, kinds)])
    done = python("-c", CELLS, text=text)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.split(bar)
    assert first == ""
    return dict(zip(kinds, rest, strict=False))


@pytest.mark.parametrize("kind", kinds)
def test_ipython_shows_the_users_lines_and_the_message(cells: dict[str, str], kind: str) -> None:
    found = cells[kind]
    assert "Error: " in found
    assert "ipython-input" not in found
    check_short(found)


def test_ipython_names_the_cell(cells: dict[str, str]) -> None:
    number = kinds.index("function") + 2
    first, *lines = cells["function"].splitlines()
    assert first.startswith(f"StructInfoError: Cell In[{number}], line 3, column 18: relax.matmul:")
    assert lines == ["        y = R.matmul(x, x)", "                     ^"]
    number = kinds.index("argument of a call") + 2
    assert cells["argument of a call"].splitlines()[:2] == [
        f"Cell In[{number}], line 2",
        '    vm["main"](np.zeros((3, 5), "float32"))',
    ]


def test_a_notebook_shows_errors_in_colour() -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    texts = [IMPORTS + DEFINED, cell("module"), cell("argument of a call")]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(t) for t in texts])
    client = nbclient.NotebookClient(book, timeout=60, allow_errors=True)
    asyncio.run(client.async_execute())
    assert book.cells[0].outputs == []
    for found in book.cells[1:]:
        [output] = found.outputs
        assert output.output_type == "error"
        text = "\n".join(output.traceback)
        assert f"\x1b[96m [{output.evalue.rpartition('[')[2].partition(']')[0]}]" in text
        assert "\x1b[1m" in text
        assert "31m" not in text, "red on a red background"
        plain = re.sub(r"\x1b\[[\d;]*m", "", text)
        check_short(plain)
        assert any(line.startswith(f"{output.ename}: Cell In[") for line in plain.splitlines())


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = tmp_path_factory.mktemp("project") / "test_model.py"
    file.write_text(IMPORTS + DEFINED + "\n\n".join(map(as_test, kinds)))
    done = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={file.parent}", str(file)
    )
    assert done.returncode == 1, done.stdout + done.stderr
    parts = re.split(r"^_+ (test_\w+) _+\n", done.stdout.partition("\n= short")[0], flags=re.M)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {kind: found["test_" + kind.replace(" ", "_")] for kind in kinds}


@pytest.mark.parametrize("kind", kinds)
def test_pytest_reports_the_test_and_the_message(reports: dict[str, str], kind: str) -> None:
    report = reports[kind].partition("\n=====")[0]
    lines = report.strip("\n").splitlines()
    assert len([line for line in lines if line.startswith("E ")]) <= 5
    assert len(lines) <= MOST_LINES, report
    assert not INSIDES.search(without_places(report)), report


COMPARISONS = """
import pytest
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source, ir as I, relax as R

TEXT = "@R.function\\ndef f(x: R.Tensor((3,))):\\n    y = R.nn.relu(x)\\n    return y\\n"

@pytest.fixture
def mod():
    return from_source(TEXT + TEXT.replace("f(", "g("))

def test_modules(mod):
    assert mod == from_source(TEXT.replace("relu", "gelu") + TEXT.replace("f(", "g("))

def test_one_function_twice():
    assert from_source(TEXT) == from_source(TEXT)

def test_functions(mod):
    assert_structural_equal(mod["f"], from_source(TEXT.replace("relu", "gelu")))
"""


def test_pytest_shows_what_two_programs_differ_in(tmp_path: Path) -> None:
    file = tmp_path / "test_compare.py"
    file.write_text(COMPARISONS)
    done = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(file)
    )
    modules, twice, functions = re.split(r"^_+ test_\w+ _+\n", done.stdout, flags=re.M)[1:]
    assert "\nmod = <IRModule of f, g>\n" in modules
    assert "E         -    y: R.Tensor((3,)) = R.nn.relu(x)\n" in modules
    assert "E         +    y: R.Tensor((3,)) = R.nn.gelu(x)\n" in modules
    assert "def g" not in modules
    assert "are structurally equal, but two objects" in twice
    assert "  left:  relax.nn.relu\n" in functions
    assert "\nE   -    y: R.Tensor((3,)) = R.nn.relu(x)\n" in functions


# One process runs pytest several times, since starting takes longer than what is tested.
RUNS = """
import json, sys, pytest
for args in json.loads(sys.argv[1]):
    pytest.main(["-p", "no:cacheprovider", *args])
    print("=" * 20, flush=True)
"""


def pytest_runs(file: Path, *options: list[str]) -> list[str]:
    """What pytest prints of a file with each of some lists of options."""
    args = [[f"--rootdir={file.parent}", str(file), *more] for more in options]
    *found, rest = re.split(r"^={20}\n", python("-c", RUNS, json.dumps(args)).stdout, flags=re.M)
    assert rest == ""
    return found


def test_pytest_shows_as_much_as_it_is_asked_to(tmp_path: Path) -> None:
    file = tmp_path / "test_model.py"
    file.write_text(IMPORTS + as_test("functions that call functions"))
    plain, long, line = pytest_runs(file, [], ["--tb=long"], ["--tb=line"])
    assert "in build" in plain
    comment = "Makes a model."
    assert comment not in plain
    assert comment in long
    assert "test_model.py" in line
    assert "in build" not in line


def test_pytest_says_once_where_the_broken_rules_are_explained(tmp_path: Path) -> None:
    file = tmp_path / "test_model.py"
    tests = [as_test(kind) for kind in ("function", "module", "functions that call functions")]
    passing = "def test_passing(): pass"
    file.write_text("\n\n".join([IMPORTS + DEFINED, *tests, passing]))
    *failed, passed = pytest_runs(file, ["--tb=auto"], ["-n1"], ["-k", "passing"])
    for found in failed:
        rules = dict.fromkeys(re.findall(r"^E .*\[([A-Z]+-\w+)\]$", found, re.MULTILINE))
        assert rules
        [line] = [line for line in found.splitlines() if "relaxpy.explain" in line]
        assert line == f'about {", ".join(rules)}: relaxpy.explain("{next(iter(rules))}")'
    assert "1 passed" in passed
    assert "relaxpy.explain" not in passed
