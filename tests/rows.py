"""Rows of parametrised tests."""

import ast
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, TypeVar

import pytest

from relaxpy import errors
from tests.fuzz.seed import SEED

T = TypeVar("T")
_CONFIG: list[pytest.Config] = []


def configure(config: pytest.Config) -> None:
    _CONFIG[:] = [config]


def whole_tables() -> bool:
    """Whether this is `make test-all`, which runs all rows of tables."""
    return any(config.getoption("--whole-table") for config in _CONFIG)


def targets(name: str) -> tuple[str, ...]:
    """The target, drawn by a name, of a program whose importer is tested; both in `make test-all`.

    What kernels compute is tested for both targets by the tables of operators.
    """
    both = ("native", "numpy")
    if whole_tables():
        return both
    return (random.Random(f"{SEED} {name}").choice(both),)


def by_rule(table: str) -> list[Any]:
    """The cases of a table, each named after its first rule and its number there.

    A line is `RULES: case`; lines that begin with a space continue the one before.
    """
    cases: list[Any] = []
    numbers: Counter[str] = Counter()
    for line in re.sub(r"\n +", " ", table).strip().splitlines():
        rules, _, case = line.partition(": ")
        first = rules.split()[0]
        cases.append(pytest.param(case, id=f"{first}-{numbers[first]}"))
        numbers[first] += 1
    return cases


def draw(
    config: pytest.Config,
    rows: Sequence[T],
    group: Callable[[T], str],
    choices: Callable[[T], Iterable[object]] = lambda row: (),
) -> list[T]:
    """A tenth of the rows of each group, one at least, drawn with the seed.

    Others are drawn until each choice occurs in one. `make test-all` runs all of them
    (`--whole-table`).
    """
    if config.getoption("--whole-table"):
        return list(rows)
    chosen: set[int] = set()
    for name, numbers in grouped(range(len(rows)), lambda number: group(rows[number])).items():
        count = -(-len(numbers) // 10)
        generator = random.Random(f"{SEED} {name}")
        drawn = generator.sample(numbers, count)
        seen = {choice for number in drawn for choice in choices(rows[number])}
        chosen.update(drawn)
        for number in generator.sample(numbers, len(numbers)):
            found = {*choices(rows[number])}
            if not found <= seen:
                chosen.add(number)
                seen |= found
    return [row for number, row in enumerate(rows) if number in chosen]


def third(rows: Iterable[T]) -> list[T]:
    """A third of the rows, drawn with the seed; all of them in `make test-all`."""
    rows = list(rows)
    return rows if whole_tables() else random.Random(SEED).sample(rows, -(-len(rows) // 3))


def grouped(rows: Iterable[T], group: Callable[[T], str]) -> dict[str, list[T]]:
    """The rows of each group, in their order."""
    found: dict[str, list[T]] = {}
    for row in rows:
        found.setdefault(group(row), []).append(row)
    return found


def check_all(rows: Iterable[T], check: Callable[[T], object]) -> None:
    """Check all rows of a test.

    Errors:
        BaseExceptionGroup: those of the rows that fail, each with a note of its row.
    """
    errors = []
    for row in rows:
        try:
            check(row)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"of the row: {row}")
            errors.append(error)
    if errors:
        raise BaseExceptionGroup(f"{len(errors)} rows fail", errors)


def keep_each_choice(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the rows of a test marked `each_choice`, keep some in which each choice occurs.

    A choice is what one `parametrize` of the test lists. Rows are drawn with the seed; `make
    test-all` runs all combinations (`--whole-table`).
    """
    if config.getoption("--whole-table"):
        return
    tables: dict[str, dict[Any, set[Any]]] = {}
    for item in items:
        if item.get_closest_marker("each_choice"):
            name = item.nodeid.partition("[")[0]
            tables.setdefault(name, {})[item] = set(_choices(item))
    left = set()
    for name, rows in tables.items():
        missing = set().union(*rows.values())
        for row in random.Random(f"{SEED} {name}").sample([*rows], len(rows)):
            if missing.isdisjoint(rows[row]):
                left.add(row)
            missing -= rows[row]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=list(left))


def _choices(item: Any) -> Iterator[tuple[int, ...]]:
    """The values that each `parametrize` gives to its parameters, as numbers that stand for it."""
    for number, mark in enumerate(item.iter_markers("parametrize")):
        names = mark.args[0]
        names = names.split(",") if isinstance(names, str) else names
        yield (number, *(id(item.callspec.params[name.strip()]) for name in names))


def sections(text: str) -> dict[str, str]:
    """The texts of a table by their names, each in the line `--- name` before its text."""
    found = {}
    for section in re.split(r"^--- ", text, flags=re.MULTILINE)[1:]:
        name, _, body = section.partition("\n")
        found[name] = body
    return found


def titled(text: str) -> Iterator[tuple[str, list[Any], str]]:
    """The name, the marks and the text of each row of a table.

    The line before a text is `--- name`, or `--- RULE-1 RULE-2: name`.
    """
    for title, body in sections(text).items():
        rules, _, name = title.rpartition(": ")
        yield name, [pytest.mark.rule(*rules.split())] if rules else [], body


def rows(text: str) -> list[Any]:
    """The texts of a table, each a row that is named, and marked with its rules."""
    return [pytest.param(body, id=name, marks=marks) for name, marks, body in titled(text)]


def commented(row: str) -> tuple[str, list[tuple[str, str]]]:
    """The program of a row, and the comments after it, which `follow` explains."""
    text, *comments = re.split(r"^# (?=do: |holds: |error: )", row, flags=re.MULTILINE)
    parts = (comment.replace("\n#   ", " ").strip().partition(": ") for comment in comments)
    return text, [(kind, code) for kind, _, code in parts]


def follow(comments: Iterable[tuple[str, str]], names: dict[str, Any]) -> None:
    """Do and check what the comments after a program say, whose statements bind names.

        # do: first, second = bindings(func)
        # holds: first.var is None
        # error: func(3) -> RelaxpyError: expected a tensor

    Errors are those of `relaxpy.errors`.

    Errors:
        AssertionError: an expression does not hold; the message has both sides of a comparison.
    """
    for kind, code in comments:
        match kind:
            case "do":
                exec(code, names)
            case "holds":
                assert eval(code, names), "\n".join([code, *_sides(code, names)])
            case _:
                call, _, error = code.rpartition(" -> ")
                name, _, message = error.partition(": ")
                with pytest.raises(getattr(errors, name), match=message):
                    eval(call, names)


def _sides(code: str, names: dict[str, Any]) -> list[str]:
    match ast.parse(code, mode="eval").body:
        case ast.Compare(left=left, comparators=others):
            return [repr(eval(ast.unparse(side), names)) for side in (left, *others)]
    return []


def variants(text: str) -> list[str]:
    """The texts that lines `# with F N: f32 7 | f64 8` make of one, by what stands for the words.

    Each value occurs once at least; in `make test-all`, each with each of other lines.
    """
    choices: list[list[dict[str, str]]] = []

    def keep(line: re.Match[str]) -> str:
        names, values = line[1].split(), line[2].replace("\n#   ", " ").split(" | ")
        parts = [value.split() if len(names) > 1 else [value.strip()] for value in values]
        choices.append([dict(zip(names, part, strict=True)) for part in parts])
        return ""

    text = re.sub(r"^# with ([\w ]+): (.*(?:\n#   .*)*)\n?", keep, text, flags=re.MULTILINE)
    if not choices:
        return [text]
    count = max(map(len, choices))
    combined = [[choice[k % len(choice)] for choice in choices] for k in range(count)]
    if _CONFIG[0].getoption("--whole-table"):
        combined = [[*parts] for parts in product(*choices)]
    found = []
    for parts in combined:
        values = {name: value for part in parts for name, value in part.items()}
        words = re.compile(rf"\b({'|'.join(values)})\b")
        made = text
        for _ in range(2):  # values may have words, too
            made = words.sub(lambda word, values=values: values[word[0]], made)
        found.append(made)
    return found


def table(text: str) -> list[list[str]]:
    """The columns of each line, which ` <- `, ` : ` and ` => ` divide.

    Lines that begin with a space continue the one before, and those that begin with "# " are
    comments.
    """
    lines = re.sub(r"\n +", " ", text).strip().splitlines()
    return [re.split(r" *(?: : |<-|=>) *", line) for line in lines if not line.startswith("# ")]
