"""Warnings are Python's: filters see the user's file, module and line, and each shows once."""

import importlib.util
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from relaxpy.errors import RelaxpyWarning
from relaxpy.script import from_source

PROGRAM = """\
from relaxpy.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function
    def four(x: R.Tensor((4,), "float32")):
        return x

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        return Module.four(x)
"""
TEXT = """\
argument 1 of four is R.Tensor((n,), dtype="float32"), expected R.Tensor((4,), dtype="float32"): \
dimension 0: n may not be 4 [DER-41]
            return Module.four(x)
                               ^
  hint: declare what it is first: R.match_cast(..., R.Tensor((4,), dtype="float32"))"""


def load(path: Path) -> None:
    spec = importlib.util.spec_from_file_location("my_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["my_model"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["my_model"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "my_model.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.rule("DER-41")
def test_a_warning_stands_at_the_argument(model: Path) -> None:
    with pytest.warns(RelaxpyWarning) as caught:
        load(model)
    [found] = caught
    assert str(found.message) == TEXT
    assert (found.filename, found.lineno) == (str(model), 11)
    assert isinstance(found.message, RelaxpyWarning)
    diagnostic = found.message.diagnostic
    assert diagnostic is not None
    assert diagnostic.rule == "DER-41"
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == (11, 28)


@pytest.mark.parametrize(
    ("module", "line", "silent"),
    [("my_model", 0, True), ("my_model", 11, True), ("my_model", 10, False), ("other", 0, False)],
)
def test_filters_by_module_and_line_work(model: Path, module: str, line: int, silent: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=module, lineno=line)
        load(model)
    assert (caught == []) is silent


def test_a_place_is_warned_of_once(tmp_path: Path) -> None:
    body = "\n".join(PROGRAM.splitlines()[2:])
    indented = "\n".join("    " + line for line in body.splitlines())
    script = tmp_path / "script.py"
    script.write_text(f"{PROGRAM.splitlines()[0]}\nfor _ in range(3):\n{indented}\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RelaxpyWarning") == 1
    assert done.stderr.startswith(f"{script}:11: RelaxpyWarning: argument 1 of four is R.Tensor")


@pytest.mark.rule("DER-26", "RES-19")
@pytest.mark.parametrize(
    ("value", "sinfo", "reason", "marked"),
    [
        ("x", 'R.Tensor((5,), "int8")', "dimension 0: 4 is not 5", "x"),
        ("x", 'R.Tensor((4, 1), "int8")', "rank 1 is not rank 2", "x"),
        (
            "(o, x)",
            "R.Tuple(R.Shape, R.Tensor((2,)))",
            "field 1: dimension 0: 4 is not 2",
            "(o, x)",
        ),
        ("u", 'R.Tuple(R.Tensor((2,), "int8"), R.Shape)', "field 1: a tensor is not a shape", "u"),
    ],
)
def test_a_cast_that_always_fails_says_what_is_at_odds(value, sinfo, reason, marked) -> None:
    """What is only open, here the datatype of x, is not the reason."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_source(
            "@R.function\n"
            "def main(x: R.Tensor((4,)), o: R.Object, u: R.Tuple(R.Tensor, R.Tensor)):\n"
            f"    y = R.match_cast({value}, {sinfo})\n"
            "    return y\n"
        )
    [found] = caught
    message, line, carets = str(found.message).splitlines()
    assert f"always fails: {reason}" in message
    start = carets.index("^")
    assert line[start : len(carets)] == marked


@pytest.mark.rule("DER-20", "SI-14", "LEG-26")
def test_an_annotation_that_may_not_fit_says_how_to_check_it() -> None:
    with pytest.warns(RelaxpyWarning, match="may not fit") as caught:
        from_source(
            "@R.function\n"
            'def main(x: R.Tensor(("n",), "float32")):\n'
            '    y: R.Tensor((4,), "float32") = x\n'
            "    return y\n"
        )
    hint = 'declare what it is first: R.match_cast(..., R.Tensor((4,), dtype="float32"))'
    assert str(caught[0].message).splitlines()[-1] == f"  hint: {hint}"


@pytest.mark.rule("DER-45")
def test_a_result_that_may_not_fit_is_warned_of_at_the_return() -> None:
    with pytest.warns(RelaxpyWarning, match="may not fit") as caught:
        from_source(
            "@R.function\n"
            'def main(x: R.Tensor(("n",), "float32")) -> R.Tensor((4,), "float32"):\n'
            "    return x\n"
        )
    assert str(caught[0].message).splitlines()[1:] == ["        return x", "               ^"]
