"""Errors that nobody catches, in colour on a terminal; everything else as Python has it."""

import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.text import Text

from relaxpy import relax
from relaxpy.errors import MisuseError
from relaxpy.script import from_source
from relaxpy.support.screen import coloured
from tests.processes import arguments, outcomes

pty = pytest.importorskip("pty")

ROOT = Path(__file__).parents[2]
HEAD = """
import sys
from relaxpy.errors import RelaxpyError
from relaxpy.script import relax as R, from_source

def wrong():
    from_source("@R.function\\ndef f(x: R.Tensor):\\n    return y\\n")
"""
PROGRAMS = {
    "decorated": """
        @R.function
        def main(x: R.Tensor((3, 4), "float32")):
            y = R.matmul(x, x)
            return R.nn.reluu(x)
    """,
    "called": "wrong()",
    "caught before": """
        try:
            wrong()
        except RelaxpyError as error:
            kept = error
        raise kept
    """,
    "from another": """
        try:
            wrong()
        except RelaxpyError as error:
            kept = error
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise kept from error
    """,
    "while another is handled": """
        try:
            1 / 0
        except ZeroDivisionError:
            wrong()
    """,
    "the cause of its like": """
        try:
            wrong()
        except RelaxpyError as error:
            wrong_again = RelaxpyError("not this program", notes=["it is wrong"])
            error.add_note("a note of the user's")
            raise wrong_again from error
    """,
}
PLAIN = {
    "another error": """
        try:
            wrong()
        except RelaxpyError:
            pass
        1 / 0
    """,
    "the cause of another": """
        try:
            wrong()
        except RelaxpyError as error:
            raise OSError("no") from error
    """,
    "in a group": """
        try:
            wrong()
        except RelaxpyError as error:
            kept = error
        raise ExceptionGroup("several", [kept, ValueError("and this")])
    """,
    "a hook of the user's": """
        def hook(kind, error, trace):
            sys.stderr.write(f"mine: {error}")
        sys.excepthook = hook
        wrong()
    """,
    "in a thread": """
        import threading
        thread = threading.Thread(target=wrong, name="T")
        thread.start()
        thread.join()
    """,
}


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "30", **changes}


def on_terminal(*args: str, **changes: str) -> str:
    """What a Python program writes to the terminal on which it runs."""
    ours, theirs = pty.openpty()
    command = [sys.executable, *args]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**changes)
    ):
        os.close(theirs)
        out = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            out += part
    os.close(ours)
    return out.decode().replace("\r\n", "\n")


def elsewhere(*args: str) -> str:
    command = [sys.executable, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    return done.stderr


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "model.py"
    path.write_text(HEAD + textwrap.dedent(body))
    return str(path)


def test_a_message_without_text_is_nowhere() -> None:
    assert coloured("RelaxpyError", [[("", "bold"), ("", "bold red")]], io.StringIO())


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """What each program writes on a terminal and elsewhere."""
    found = {}
    # Newer Pythons have colours of their own, which they do without for this.
    for programs, changes in ((PROGRAMS, {}), (PLAIN, {"PYTHON_COLORS": "0"})):
        paths = [script(tmp_path_factory.mktemp("kind"), body) for body in programs.values()]
        texts = on_terminal(*arguments(paths), **changes), elsewhere(*arguments(paths))
        shown, plain = ([text for text, _ in outcomes(written)] for written in texts)
        found |= dict(zip(programs, zip(shown, plain, strict=True), strict=True))
    return found


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_nobody_caught_is_coloured_and_says_the_same(both, kind) -> None:
    shown, plain = both[kind]
    assert "\x1b" not in plain
    assert "relaxpy.errors." in plain
    assert "\x1b[1;31m" in shown
    assert Text.from_ansi(shown).plain.rstrip("\n") == plain.rstrip("\n")


@pytest.mark.parametrize("kind", PLAIN)
def test_everything_else_is_as_python_has_it(both: dict[str, tuple[str, str]], kind: str) -> None:
    shown, plain = both[kind]
    assert shown == plain != ""


@pytest.mark.parametrize("name", ["NO_COLOR", "TERM"])
def test_who_wants_no_colours_gets_none(tmp_path: Path, name: str) -> None:
    path = script(tmp_path, PROGRAMS["decorated"])
    assert on_terminal(path, **{name: "dumb"}, PYTHON_COLORS="0") == elsewhere(path)


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ('def f(x: R.Tensor((n, 4), "float32")): ...', 'hint: write "n"'),
        ("def f(x) -> R.Prim(int64): ...", 'hint: write "int64"'),
        ("R.Tensor((3, 4), float32)", ""),
    ],
)
def test_names_in_annotations_that_are_not_defined_have_a_hint(tmp_path, body, hint) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"from relaxpy.script import relax as R\n{body}\n")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert "NameError: name" in done.stderr
    assert hint in done.stderr
    assert ("hint" in done.stderr) == bool(hint)


def test_uncaught_errors_have_a_hook_and_caught_ones_cost_nothing(tmp_path: Path) -> None:
    body = """
        print(sys.excepthook is sys.__excepthook__)
        try:
            wrong()
        except RelaxpyError:
            print(sys.excepthook is sys.__excepthook__, "rich" in sys.modules)
    """
    path = script(tmp_path, body)
    assert on_terminal(path) == "False\nFalse False\n"
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nFalse False\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_ipython_on_a_terminal_gets_colours_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown name") as caught:
        from_source("@R.function\ndef f(x: R.Tensor):\n    return y\n")
    error = caught.value
    error.add_note("a note")
    plain = error._render_traceback_()
    assert plain[-4:] == [
        "ParseNameError: File <string>, line 3, column 12: unknown name 'y' [WF-2a]",
        "        return y",
        "               ^",
        "a note",
    ]
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = "\n".join(error._render_traceback_())
    assert "\x1b[1;31munknown name 'y'" in shown
    assert Text.from_ansi(shown).plain == "\n".join(plain)


def test_what_relaxpy_and_python_were_handling_is_not_shown() -> None:
    with pytest.raises(MisuseError) as caught:
        relax.op.matmul(1)  # type: ignore[call-arg]
    assert caught.value.__context__ is None


def test_what_users_were_handling_stays_the_context() -> None:
    def handle() -> None:
        try:
            raise OSError("mine")
        except OSError:
            from_source("@R.function\ndef f(x: R.Tensor):\n    return y\n")

    with pytest.raises(ValueError, match="unknown name") as caught:
        handle()
    assert isinstance(caught.value.__context__, OSError)
    assert not caught.value.__suppress_context__
