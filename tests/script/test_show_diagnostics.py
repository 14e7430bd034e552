import io

import pytest
from rich.text import Text

from relaxpy.errors import Diagnostic, MisuseError, ParseError
from relaxpy.script import from_source, show_diagnostics
from relaxpy.support.screen import coloured

WRONG = """
@R.function
def f(x: R.Tensor((2,), "float32")):
    y = R.nn.reluu(x)
    z = R.exq(x)
    return x
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def failure() -> ParseError:
    with pytest.raises(ParseError) as caught:
        from_source(WRONG)
    return caught.value


def test_elsewhere_the_text_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    error = failure()
    show_diagnostics(error)
    assert capsys.readouterr().err == f"{error}\n"
    show_diagnostics(error.diagnostics)
    assert capsys.readouterr().err == f"{error}\n"


def test_a_terminal_gets_colours_and_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failure()
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show_diagnostics(error)
    shown = screen.getvalue()
    assert "\x1b[" in shown
    assert Text.from_ansi(shown).plain.rstrip("\n") == str(error)


@pytest.mark.parametrize(
    "diagnostic",
    [
        Diagnostic("nothing but a message"),
        Diagnostic("a [bold]message[/bold]", "WF-1a", hint="a [hint]", notes=("one", "two")),
    ],
)
def test_markup_in_messages_is_text(diagnostic, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = coloured(str(diagnostic), [list(diagnostic.styled_texts(""))], Terminal())
    assert "\x1b[" in shown
    assert Text.from_ansi(shown).plain == str(diagnostic)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colours_gets_none(name, value, monkeypatch) -> None:
    error = failure()
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv(name, value)
    show_diagnostics(error)
    assert screen.getvalue() == f"{error}\n"


@pytest.mark.parametrize("value", [3, ["text"], None])
def test_only_diagnostics_are_shown(value: object) -> None:
    with pytest.raises(MisuseError, match="expected an error or diagnostics, found"):
        show_diagnostics(value)  # type: ignore[arg-type]
