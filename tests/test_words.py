"""Phrases that a reader reads twice become fewer: the counts in `ALLOWED` only fall.

Counted are the docstrings in relaxpy/, of attributes, too, its messages (the other strings of three
words or more), and the prose of all documents and notebooks, without code and pages that tools
write. A count above the table means that a phrase is new: reword it as the comment beside
its pattern says. After counts have fallen, lower the table: `python -m tests.test_words` prints
today's.
"""

import ast
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "relaxpy/**/*.md", "notebooks/*.md", "benchmarks/*.md")
WRITTEN_BY_TOOLS = {"operators.md", "passes.md", "onnx-operators.md"}
#: A count may be so much below the table before the table has to follow.
SLACK = 20
#: The patterns, over texts whose white space is one space, and how often each occurs.
ALLOWED: Mapping[str, int] = {
    r"\A(What|Which)\b": 0,  # a noun: "The mask of ...", or a verb: "Find ..."
    r"(?<=\. )What [a-z]+": 19,  # a noun, as above: "Parts that ..."
    r"\AWhether\b": 0,  # "True if ..."
    r", of which\b": 3,  # two sentences
    r"\bas (it is|they are)\b": 9,  # unchanged
    r"\bin (the )?place of\b": 1,  # instead of
    r"\btakes? the place of\b": 1,  # replaces
    r"\bthat there (is|are)\b": 2,  # leave it out
    r"\bno condition of\b|\bof nothing\b": 0,  # "is not needed for", "of an empty ..."
    r"(?<![Tt]here )\bis no(?! longer| more| less)\b": 2,  # "is not a"
    r"\bproducts? of (matrices|bytes)\b": 3,  # matmul, GEMM, int8
    r"\bextremes?\b": 3,  # max and min
    r"\bprocessors?\b": 1,  # the CPU
    r"\bthe greatest\b": 0,  # the maximum
    r"\btruths\b": 1,  # Booleans
    r"\bso many\b": 35,  # that many, n
    r"\b(and|its|of that) kin\b": 0,  # name them
    r"(?<![Tt]here )\bare no(?! longer| more| less)\b": 2,  # "are not"
    r"\bwhatever there\b|\bwhat there is\b": 0,  # name it
    r"\bdo not know of each other\b": 0,  # independent
    r"\bgiv(e|es|en|ing) (back|on)\b|\bhand(s|ed|ing)? (on|out)\b": 0,  # return, pass
    r"\btaken? apart\b|\bsurroundings\b": 0,  # split; the enclosing scope
    r"\b(files?|folders?|models?) of (GGUF|Hugging Face|ONNX|PyTorch)\b": 0,  # a GGUF file
    r"\banew\b": 0,  # again
    r"\bsmall differences\b": 0,  # finite differences
    r"\bmakes? of (it|that|this|them)\b": 0,  # the result of
    r"\b(as|the way) (it was|they were)\b": 2,  # unchanged
    r"\bthe time that passes\b": 0,  # wall-clock time
    r"(?i)\bmend(s|ed|ing)?\b": 0,  # fix
    r", too[.,:;)]": 89,  # leave it out, or put "also" before the verb
    r"\bgradients?( of [^.,]*)? by (its|the|their) \w+": 0,  # with respect to
}
#: The same for messages: some of these patterns, and how often each occurs.
IN_MESSAGES: Mapping[str, int] = {
    r", of which\b": 2,
    r"\bas (it is|they are)\b": 7,
    r"\bin (the )?place of\b": 1,
    r"\bthat there (is|are)\b": 2,
    r"(?<![Tt]here )\bis no(?! longer| more| less)\b": 2,
    r"(?<![Tt]here )\bare no(?! longer| more| less)\b": 1,
    r"\bproducts? of (matrices|bytes)\b": 1,
    r"\bextremes?\b": 0,
    r"\bprocessors?\b": 0,
    r"\btruths?\b(?! value)": 1,
    r"\bso many\b": 2,
}

#: Verbs that, with and without an s, are nothing else at the beginning of a docstring.
VERBS = (
    "Add|Append|Apply|Bind|Build|Convert|Create|Emit|Evaluate|Give|Make|Merge|Parse|Read|Register"
    "|Remove|Replace|Report|Rewrite|Run|Set|Stop|Take|Tell|Write"
)
#: Here, to return is what the function does.
FREES = ("Return freed", "Return unused", "Return unit", "Return from")


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
def trees() -> tuple[ast.Module, ...]:
    """The modules of relaxpy."""
    files = (ROOT / "relaxpy").rglob("*.py")
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in files)


@functools.cache
def texts() -> tuple[str, ...]:
    """The docstrings and documents."""
    pages = [
        prose(path.read_text(encoding="utf-8"))
        for pattern in PAGES
        for path in ROOT.glob(pattern)
        if path.name not in WRITTEN_BY_TOOLS
    ]
    pages += [
        prose("".join(cell["source"]))
        for path in ROOT.glob("notebooks/*.ipynb")
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    ]
    found = [doc for tree in trees() for doc in docstrings(tree)]
    return tuple(" ".join(text.split()) for text in [*found, *pages])


def messages_of(tree: ast.Module) -> Iterator[str]:
    """The strings of three words or more that are not statements."""
    documents = set(docstrings(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if len(text.split()) > 2 and text not in documents:
                yield text


@functools.cache
def messages() -> tuple[str, ...]:
    """The messages of relaxpy."""
    return tuple(" ".join(text.split()) for tree in trees() for text in messages_of(tree))


def count(pattern: str, among: Sequence[str]) -> int:
    """How often a pattern occurs."""
    compiled = re.compile(pattern)
    return sum(len(compiled.findall(text)) for text in among)


def check(pattern: str, allowed: int, among: Sequence[str]) -> None:
    found = count(pattern, among)
    assert found <= allowed, f"{pattern!r} occurs {found} times, {allowed} are allowed: reword it"
    assert found >= allowed - SLACK, f"{pattern!r} occurs {found} times: lower the table to that"


@pytest.mark.parametrize("pattern", ALLOWED)
def test_the_count_of_a_phrase_only_falls(pattern: str) -> None:
    check(pattern, ALLOWED[pattern], texts())


@pytest.mark.parametrize("pattern", IN_MESSAGES)
def test_the_count_of_a_phrase_in_messages_only_falls(pattern: str) -> None:
    check(pattern, IN_MESSAGES[pattern], messages())


def test_docstrings_have_one_mood() -> None:
    """That of a function names the result or is imperative; classes are in the third person."""
    wanted = {
        ast.FunctionDef: (rf"(Return|Yield)s? |({VERBS})s ", "The result ..., or: Add a ..."),
        ast.ClassDef: (rf"(Return|Yield|{VERBS}) ", "The ..., or: Adds a ..."),
    }
    found = [
        f"{node.name}: {doc.splitlines()[0]!r}; write {instead!r}"
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (doc := ast.get_docstring(node))
        for pattern, instead in [wanted[type(node)]]
        if re.match(pattern, doc) and not doc.startswith(FREES)
    ]
    assert found == []


def test_messages_are_strings_that_are_not_docstrings() -> None:
    tree = ast.parse('"""A text of words."""\nx = f"one two three {x} is not"\ny = "two words"\n')
    assert list(messages_of(tree)) == ["one two three "]


def test_docstrings_of_attributes_and_prose_are_read() -> None:
    tree = ast.parse('"""One."""\nx = 1\n"""Two."""\nclass A:\n    """Three."""\n    y = "no"\n')
    assert sorted(docstrings(tree)) == ["One.", "Three.", "Two."]
    assert prose("a\n```python\nin place of\n```\nb `as it is` c\n") == "a\n\nb `` c\n"


if __name__ == "__main__":
    for name, table, among in (("ALLOWED", ALLOWED, texts()), ("MESSAGES", {}, messages())):
        print(name)
        for phrase in table or ALLOWED:
            print(f"{count(phrase, among):5}  {phrase}")
