"""Long work shows a line on terminals and in notebooks, and nowhere else."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import relaxpy
from relaxpy.script import relax as R
from relaxpy.support import progress
from tests.test_notebooks import ThisInterpreter

ROOT = Path(__file__).parents[1]
WORK = """
import sys, time
from relaxpy.support import progress

progress.DELAY = float(sys.argv[1])
with progress.long_work("outer work", 3) as work:
    for name in ("first", "second", "third"):
        with progress.long_work("inner work"):
            progress.now(name)
            time.sleep(0.15)
        print("said", name)
        work.advance(name)
    if len(sys.argv) > 2:
        time.sleep(20)
"""


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTEST_CURRENT_TEST", "NO_COLOR")}
    return kept | {"PYTHONPATH": str(ROOT), "TERM": "xterm", progress.SETTING: "1"} | more


def on_terminal(
    *args: str, program: tuple[str, ...] = ("-c", WORK), interrupt: bool = False, **more: str
) -> tuple[str, int]:
    """What a program shows on a terminal, and how it ends."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, *program, *args], stdout=theirs, stderr=theirs, env=environment(**more)
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the terminal is closed
            break
        if not part:
            break
        seen += part
        if interrupt and b"said third" in seen:
            interrupt = False
            time.sleep(0.3)
            child.send_signal(signal.SIGINT)
    os.close(ours)
    return seen.decode(), child.wait(60)


def test_a_terminal_has_one_line_which_goes() -> None:
    text, status = on_terminal("0.1")
    assert status == 0
    assert "outer work" in text
    assert "/3" in text
    assert "second" in text
    assert all(f"said {name}" in text for name in ("first", "second", "third"))
    assert "\x1b[?25h" in text, "the cursor is there again"


def test_short_work_shows_nothing() -> None:
    text, _ = on_terminal("30")
    assert text.split() == ["said", "first", "said", "second", "said", "third"]


@pytest.mark.parametrize("more", [{progress.SETTING: "0"}, {"TERM": "dumb"}])
def test_a_terminal_without_a_line(more: dict[str, str]) -> None:
    assert "work" not in on_terminal("0.1", **more)[0]


def test_an_interrupt_leaves_the_terminal_in_order() -> None:
    text, status = on_terminal("0.1", "more", interrupt=True)
    assert status != 0
    assert "KeyboardInterrupt" in text
    assert text.rindex("\x1b[?25h") < text.rindex("KeyboardInterrupt")


def test_runs_of_random_programs_say_how_far_they_are() -> None:
    program = (
        "from relaxpy.support import progress; progress.DELAY = 0\n"  # runs may be short
        "from tests.fuzz.schedules import main; main(8, 'a seed')"
    )
    text, status = on_terminal(program=("-c", program))
    assert status == 0
    line, _, summary = text.rstrip().rpartition("\r")
    assert "schedules" in line
    assert "/8" in line
    assert summary.endswith("8 schedules from seed a seed, 0 failures")


CHECK = """
from relaxpy import relax, testing
from relaxpy.support import progress

progress.DELAY = 0.05
block = relax.BlockBuilder()
x = relax.Var("x", relax.TensorStructInfo((2, 60), "float32"))
w = relax.Var("w", relax.TensorStructInfo((60, 90), "float32"))
with block.function("main", [x, w]):
    block.emit_func_output(block.emit(relax.op.matmul(x, w)))
testing.check_targets(block.get(), targets=["numpy"], runs=1)
"""


def test_a_check_of_targets_names_the_kernel_that_the_reference_evaluator_runs() -> None:
    text, status = on_terminal(program=("-c", CHECK))
    assert status == 0, text
    assert "checking targets" in text
    assert "matmul" in text


def test_work_without_a_delay_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = []
    monkeypatch.setattr(progress, "_terminal_line", lambda work: lines.append(work.title) or LINE)
    for delay, count in ((60, 0), (0, 1)):
        with progress.long_work("exporting", shown=True, delay=delay) as work:
            work.now("by another library")
        assert len(lines) == count


def test_an_export_is_long_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")

    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.add(x, x)

    ex, lines = relaxpy.compile(main, "native"), []
    monkeypatch.setattr(progress, "DELAY", 0)
    monkeypatch.setattr(progress, "_is_wanted", lambda: True)
    monkeypatch.setattr(progress, "_terminal_line", lambda work: lines.append(work.title) or LINE)
    ex.export(tmp_path / "main.o")
    assert lines == ["exporting"]


class _SilentLine:
    def show(self, text: str, done: int) -> None:
        pass

    def close(self) -> None:
        pass


LINE = _SilentLine()


def test_a_log_has_no_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK, "0.1"], capture_output=True, text=True, env=environment()
    )
    assert done.stdout.split() == ["said", "first", "said", "second", "said", "third"]
    assert done.stderr == ""


def test_a_notebook_shows_a_text_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.SETTING, "1")
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    cell = WORK.replace("sys.argv[1]", "0.1").replace("len(sys.argv) > 2", "False")
    book = new_notebook(cells=[new_code_cell(cell.replace("0.15", "0.4"))])
    updates: list[str] = []

    class Client(NotebookClient):
        def process_message(self, msg, cell, cell_index):  # type: ignore[no-untyped-def]
            if msg["msg_type"] in ("display_data", "update_display_data"):
                updates.append(msg["content"]["data"]["text/plain"])
            return super().process_message(msg, cell, cell_index)

    client = Client(book, timeout=120, kernel_manager_class=ThisInterpreter)
    asyncio.run(client.async_execute())
    nbformat.validate(book)
    assert any(text.startswith("outer work") for text in updates)
    assert updates[-1] == ""


def test_compiling_says_its_passes_and_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, list[str]] = {}

    def now(self: progress.Work, text: str) -> None:
        said.setdefault(self.title, []).append(text)

    monkeypatch.setattr(progress.Work, "now", now)
    import relaxpy
    from relaxpy.script import relax as R

    @R.function
    def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        return R.add(x, x)

    relaxpy.compile(relaxpy.IRModule({"main": main}))
    assert "LegalizeOps" in said["compiling"]
