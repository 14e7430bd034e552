"""Programs that say in comments where they are wrong: carets, message, rule and hint.

A long comment goes on in lines that begin with dots.
"""

import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from relaxpy.errors import Diagnostic, RelaxpyError
from relaxpy.script import from_source


def expected(text: str) -> list[str]:
    """The marks in `text`: `line:column-column message [rule]`, a hint behind it."""
    found: list[str] = []
    code = 0
    for number, line in enumerate(text.split("\n"), 1):
        comment = line.strip()
        if not comment.startswith("#"):
            code = number
        if comment.startswith("# hint: ") and found:
            found[-1] += "\n" + comment.removeprefix("# ")
        elif comment.startswith("# ... ") and found:
            found[-1] += " " + comment.removeprefix("# ... ")
        elif comment.startswith("#") and "^" in comment:
            start = line.index("^")
            end = line.rindex("^") + 1
            found.append(f"{code}:{start + 1}-{end + 1} {line[end:].strip()}")
    return found


def shown(found: Diagnostic) -> str:
    """A diagnostic as the marks have it."""
    span = found.span
    assert span is not None, f"no position: {found}"
    end = span.end_column if span.end_line == span.line else "?"
    rule = f" [{found.rule}]" if found.rule else ""
    hint = f"\nhint: {found.hint}" if found.hint else ""
    return f"{span.line}:{span.column}-{end} {found.message}{rule}{hint}"


def check_marks(text: str, kind: type[RelaxpyError] = RelaxpyError, **names: object) -> None:
    """Read a program that is wrong exactly where its marks say."""
    text = textwrap.dedent(text).strip("\n") + "\n"
    with pytest.raises(kind) as caught:
        from_source(text, **names)  # type: ignore[arg-type]
    found, wanted = [shown(d) for d in caught.value.diagnostics], expected(text)
    assert found == wanted, "\n".join(["found:", *found, "expected:", *wanted])


@contextmanager
def rejected(
    kind: type[RelaxpyError] | tuple[type[RelaxpyError], ...], pattern: str
) -> Iterator[None]:
    """The body raises an error with a message, rule or hint like `pattern`.

    The line of the program that the error quotes is not searched: it may contain the pattern.
    """
    with pytest.raises(kind) as caught:
        yield
    texts = [
        d.message + (f" [{d.rule}]" if d.rule else "") + (f"\n{d.hint}" if d.hint else "")
        for d in caught.value.diagnostics
    ]
    assert any(re.search(pattern, text) for text in texts), texts


def check_line(
    text: str, line: int, pattern: str, kind: type[RelaxpyError] | tuple[type[RelaxpyError], ...]
) -> None:
    """Read a program that is wrong in this line, with a message like `pattern`."""
    with pytest.raises(kind, match=pattern) as caught:
        from_source(text)
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.line == line
