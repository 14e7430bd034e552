"""The self-test of native code where nobody has confirmed it: failures leave NumPy the default."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyWarning
from relaxpy.exec.inspect import self_test as child
from relaxpy.exec.machine.platforms import MACOS, PLATFORMS
from relaxpy.exec.native.machine_code import machine, self_test as parent
from relaxpy.ir.core.target import default_target
from relaxpy.script import from_source


@pytest.fixture
def unconfirmed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[], str | None]]:
    """The obstacle on a system like this one that nobody has confirmed, as in a new process."""
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("RELAXPY_CACHE", raising=False)
    monkeypatch.delenv("RELAXPY_TARGET", raising=False)
    other = replace(machine.host().platform, is_confirmed=False)
    monkeypatch.setattr(machine, "platform_of_triple", lambda triple: other)
    monkeypatch.setattr(machine, "own_platform", lambda: other)
    machine.obstacle.cache_clear()
    yield machine.obstacle.__wrapped__
    machine.obstacle.cache_clear()


def failing(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """Let the child run another program."""
    (folder / "relaxpy_failing_test.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(parent, "_PROGRAM", "relaxpy_failing_test")


def test_kernels_agree_with_numpy_here() -> None:
    assert [problem for case in child.cases() if (problem := child.problem_of(case))] == []


def test_a_wrong_result_is_a_problem() -> None:
    case = next(child.cases())
    assert child.problem_of(replace(case, expected=np.exp2)) == (
        "native code computes exp of float32[9, 37] wrongly"
    )
    last = replace(case, expected=lambda x: np.exp(x)[:-1])
    assert "wrongly" in child.problem_of(last)
    power = replace(case, operator="power", operands=(*case.operands, *case.operands))
    assert child.problem_of(power).endswith("has no native code")


def test_what_passed_makes_native_code_the_default_and_is_kept(unconfirmed, monkeypatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert unconfirmed() is None
        monkeypatch.setattr(parent, "_run", lambda kind: pytest.fail("it was kept"))
        assert unconfirmed() is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("print('native code computes exp wrongly')", "native code computes exp wrongly"),
        ("import os; os.abort()", "ended with code -6"),
        ("import ctypes; ctypes.string_at(0)", "ended with code -11"),
        ("raise OSError('no memory for native code')", "code 1 (OSError: no memory for native"),
        ("import time; time.sleep(100)", "did not end in 1 seconds"),
    ],
    ids=["wrong", "abort", "crash", "error", "hang"],
)
def test_what_fails_is_a_warning_once_and_leaves_numpy(
    text: str,
    problem: str,
    unconfirmed: Callable[[], str | None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    failing(monkeypatch, tmp_path, text)
    monkeypatch.setattr(parent, "_SECONDS", 1 if "sleep" in text else 120)
    with pytest.warns(RelaxpyWarning, match="programs run on NumPy") as caught:
        first = unconfirmed()
    assert len(caught) == 1
    assert problem in str(first)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert unconfirmed() == first


def test_the_child_has_the_path_and_the_target(unconfirmed, monkeypatch, tmp_path) -> None:
    program = "import os, relaxpy; print(os.environ['RELAXPY_TARGET'], relaxpy.__file__)"
    failing(monkeypatch, tmp_path, program)
    with pytest.warns(RelaxpyWarning):
        assert unconfirmed() == f"native {relaxpy.__file__}"


@pytest.mark.skipif(os.name == "nt", reason="Windows removes no directory in use")
def test_the_working_directory_may_be_removed(unconfirmed, monkeypatch, tmp_path) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    failing(monkeypatch, tmp_path, "print('started')")
    monkeypatch.syspath_prepend("")
    with pytest.warns(RelaxpyWarning):
        assert unconfirmed() == "started"


def test_a_child_that_cannot_be_started_is_a_problem_until_it_can(
    unconfirmed: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", os.path.join(tmp_path, "missing"))
        with pytest.warns(RelaxpyWarning):
            assert "cannot be started" in str(unconfirmed())
    failing(monkeypatch, tmp_path, "print('started')")
    with pytest.warns(RelaxpyWarning):
        assert unconfirmed() == "started"


def test_the_doctor_says_that_a_system_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELAXPY_TARGET", raising=False)
    assert default_target() == ("native", "")
    apple = next(platform for platform in PLATFORMS if platform.system is MACOS)
    monkeypatch.setattr("relaxpy.exec.inspect.doctor.own_platform", lambda: apple)
    advice = relaxpy.doctor()["targets"].advice
    assert advice == "native: built, not yet confirmed on this system; its self-test passed"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A saved program with machine code, for the default target."""
    relaxpy.compile(from_source(SOFTMAX)).save(tmp_path / "model.rxp")
    return tmp_path / "model.rxp"


SOFTMAX = """
@R.function
def main(x: R.Tensor(("n", 8), "float32")):
    return R.nn.softmax(x)
"""


@pytest.mark.usefixtures("file", "unconfirmed")
def test_code_of_a_file_is_used_where_the_self_test_passes(file, monkeypatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(parent, "_run", lambda kind: found.append("ran") or "")
    loaded = relaxpy.load_executable(file, native_code=True)
    assert found == ["ran"]
    assert (loaded.target, loaded.report().remark) == ("native", "")


@pytest.mark.usefixtures("file", "unconfirmed")
def test_code_of_a_file_is_not_used_where_the_self_test_fails(file, monkeypatch) -> None:
    monkeypatch.setattr(parent, "_run", lambda kind: "native code computes exp wrongly")
    with pytest.warns(RelaxpyWarning, match="programs run on NumPy"):
        loaded = relaxpy.load_executable(file, native_code=True)
    remark = "the machine code of the file is not used: native code computes exp wrongly"
    assert (loaded.target, loaded.report().remark) == ("numpy", remark)
    monkeypatch.setenv("RELAXPY_TARGET", "native")  # the user asks for it all the same
    assert relaxpy.load_executable(file, native_code=True).report().remark == ""


@pytest.mark.usefixtures("file", "unconfirmed")
def test_code_of_a_file_is_not_used_where_no_kernel_can_be_compiled(file, monkeypatch) -> None:
    monkeypatch.setattr(parent, "find_spec", lambda name: None)
    loaded = relaxpy.load_executable(file, native_code=True)
    assert loaded.report().remark.endswith("needs llvmlite, which is not installed")


@pytest.mark.usefixtures("unconfirmed")
def test_a_kind_of_code_has_a_test_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[str] = []

    def run(kind: str) -> str:
        kinds.append(kind)
        return "native code computes matmul wrongly" if kind else ""

    monkeypatch.setattr(parent, "_run", run)
    assert parent.self_test() == ""
    with pytest.warns(RelaxpyWarning, match="native code has no matrix tiles: native code") as seen:
        assert parent.self_test(parent.TILED) == "native code computes matmul wrongly"
    assert "target=" not in str(seen[0].message)
    parent.self_test()
    parent.self_test(parent.TILED)
    assert kinds == ["", parent.TILED]
