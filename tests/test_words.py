"""Phrases that a reader reads twice become fewer: the counts in `ALLOWED` only fall.

Counted are the docstrings in relaxpy/, of attributes, too, and the prose of docs/, without code and
without pages that tools write. A count above the table means that a phrase is new: reword it as the
comment beside its pattern says. After counts have fallen, lower the table:
`python -m tests.test_words` prints today's.
"""

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WRITTEN_BY_TOOLS = {"operators.md", "passes.md", "rules.md", "onnx-operators.md"}
#: A count may be so much below the table before the table has to follow.
SLACK = 20
#: The patterns, over texts whose white space is one space, and how often each occurs.
ALLOWED: Mapping[str, int] = {
    r"\A(What|Which)\b": 13,  # a noun: "The mask of ...", or a verb: "Find ..."
    r"\AWhether\b": 2,  # "True if ...", "Return whether ..."
    r", of which\b": 3,  # two sentences
    r"\bas (it is|they are)\b": 9,  # unchanged
    r"\bin (the )?place of\b": 1,  # instead of
    r"\btakes? the place of\b": 1,  # replaces
    r"\bthat there (is|are)\b": 2,  # leave it out
    r"\bno condition of\b|\bof nothing\b": 0,  # "is not needed for", "of an empty ..."
    r"(?<![Tt]here )\bis no(?! longer| more| less)\b": 5,  # "is not a"
    r"\bproducts? of (matrices|bytes)\b": 3,  # matmul, GEMM, int8
    r"\bextremes?\b": 3,  # max and min
    r"\bthe processor\b": 2,  # the CPU
}


def docstrings(tree: ast.Module) -> Iterator[str]:
    """The strings that are statements: docstrings of definitions and of attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text


def prose(text: str) -> str:
    """The text of a document without code."""
    text = re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1[ ]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", "``", text)


@functools.cache
def texts() -> tuple[str, ...]:
    """The docstrings and documents."""
    code = [path.read_text(encoding="utf-8") for path in (ROOT / "relaxpy").rglob("*.py")]
    pages = [
        prose(path.read_text(encoding="utf-8"))
        for path in (ROOT / "docs").rglob("*.md")
        if path.name not in WRITTEN_BY_TOOLS
    ]
    found = [doc for text in code for doc in docstrings(ast.parse(text))]
    return tuple(" ".join(text.split()) for text in [*found, *pages])


def count(pattern: str) -> int:
    """How often a pattern occurs."""
    compiled = re.compile(pattern)
    return sum(len(compiled.findall(text)) for text in texts())


@pytest.mark.parametrize("pattern", ALLOWED)
def test_the_count_of_a_phrase_only_falls(pattern: str) -> None:
    found, allowed = count(pattern), ALLOWED[pattern]
    assert found <= allowed, f"{pattern!r} occurs {found} times, {allowed} are allowed: reword it"
    assert found >= allowed - SLACK, f"{pattern!r} occurs {found} times: lower ALLOWED to that"


def test_docstrings_of_attributes_and_prose_are_read() -> None:
    tree = ast.parse('"""One."""\nx = 1\n"""Two."""\nclass A:\n    """Three."""\n    y = "no"\n')
    assert sorted(docstrings(tree)) == ["One.", "Three.", "Two."]
    assert prose("a\n```python\nin place of\n```\nb `as it is` c\n") == "a\n\nb `` c\n"


if __name__ == "__main__":
    for phrase in ALLOWED:
        print(f"{count(phrase):5}  {phrase}")
