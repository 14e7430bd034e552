"""What is said of mistakes, read as a person would: `tests/golden/errors/messages.txt`.

Each entry there is a program and, below `# ...`, the whole message. Where this says what to write,
the program that does so follows below `# instead`.
"""

import linecache
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.script import ir as I, relax as R, tir as T
from tests.rows import check_all

GOLDEN = Path(__file__).parents[1] / "golden" / "errors" / "messages.txt"
_PARTS = re.split(r"^# --- (.+)\n", GOLDEN.read_text(encoding="utf-8"), flags=re.M)[1:]
ENTRIES = dict(zip(_PARTS[::2], _PARTS[1::2], strict=True))
INSTEAD = "# instead\n"
LIBRARIES = {"I": I, "R": R, "T": T, "np": np, "relaxpy": relaxpy}


def run(program: str) -> None:
    """Run `program` as the file model.py."""
    lines = program.splitlines(keepends=True)
    linecache.cache["model.py"] = (len(program), None, lines, "model.py")
    try:
        exec(compile(program, "model.py", "exec"), {"__name__": "model", **LIBRARIES})
    finally:
        del linecache.cache["model.py"]


def message(program: str) -> str:
    """What the error says that `program` ends with."""
    with pytest.raises(RelaxpyError) as caught:
        run(program)
    return f"{caught.typename}: {caught.value}"


@pytest.fixture(autouse=True)
def _no_packed_functions_stay() -> Iterator[None]:
    yield
    if "my.own" in relaxpy.runtime.list_global_func_names():
        relaxpy.runtime.remove_global_func("my.own")


@pytest.mark.parametrize("name", ENTRIES)
def test_messages_are_as_written(name: str, request: pytest.FixtureRequest) -> None:
    program, _, rest = ENTRIES[name].partition("# ...\n")
    wanted, _, _ = rest.partition(INSTEAD)
    found = message(program)
    if request.config.getoption("--update-golden"):
        text = GOLDEN.read_text(encoding="utf-8")
        entry = f"# --- {name}\n{program}# ...\n"
        before, _, after = text.partition(entry)
        rest = after[len(wanted.rstrip("\n")) :]
        GOLDEN.write_text(before + entry + found + rest, encoding="utf-8")
    else:
        assert found == wanted.strip("\n")


def check_form(name: str) -> None:
    text = ENTRIES[name].partition("# ...\n")[2].partition(INSTEAD)[0]
    first, *rest = text.strip("\n").splitlines()
    assert re.match(r"\w+: model\.py:\d+:\d+: ", first), first
    assert len(rest) <= 5
    assert set(rest[1].strip()) == {"^"}
    assert not first.endswith(".")


def test_messages_are_short_and_say_where() -> None:
    check_all(ENTRIES, check_form)


@pytest.mark.parametrize("name", [n for n, entry in ENTRIES.items() if INSTEAD in entry])
def test_what_messages_say_to_write_is_right(name: str) -> None:
    run(ENTRIES[name].partition(INSTEAD)[2])


def test_there_are_enough_of_them() -> None:
    assert len(ENTRIES) >= 120


def test_every_error_is_a_runtime_error_as_with_tvm() -> None:
    assert issubclass(RelaxpyError, RuntimeError)
