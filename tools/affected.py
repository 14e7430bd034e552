"""Run the tests that a change is most likely to break: `make affected`.

The change is what git reports since BASE (the last commit, or the one before it where nothing has
changed since). Files of tests are taken, the best first, until their quick tests fill the time.
How likely a file of tests is to fail is a sum over the changed modules:

- `tests/modules.txt` has it: of the files whose tests execute the module, those that together
  execute each of its lines, again and again, in little time;
- it is the file of that module's name, or an area of tools/mutants.py has both;
- it imports the module, or mentions names that the module defines, rare names more than common;
- it is in the folder of that name, as tests/ir/ops is for relaxpy/ir/ops. What the others leave of
  the time is for these, and then for any: first those whose own names are words of the module, as
  test_outline.py is of a module with a function `_outline`, then the quickest.

A change of the tests themselves, of their helpers or of data runs what it changes, and what
imports it.

`python tools/affected.py --record`, which `make times` runs, writes `tests/modules.txt` by the
quick layer under coverage. A table that is somewhat old still serves: it names files, not lines.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import math
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests import layers  # noqa: E402
from tools.mutants import AREAS, PYTEST, Recorder  # noqa: E402

TABLE = ROOT / "tests" / "modules.txt"

SECONDS = 60.0
"""Processor time of the quick tests that are run, beside what it takes to collect them."""
_WORD = re.compile(r"[A-Za-z_]\w{2,}")
_NEW_FILE = 1.0
"""Seconds that are expected of a file that the table does not have."""
_FILES = 12
"""The most files of tests that `tests/modules.txt` has for a module."""
_LIKELY, _UNLIKELY = 0.6, 0.3
"""How likely a file that executes a broken line fails: one of the module's folder, and another."""
HEADER = """\
# Written by tools/affected.py --record. A module of relaxpy, and folders of tests with the names of
# files in them, without test_, whose quick tests execute the module.
"""


def changed_files(base: str | None) -> list[str]:
    """The files that differ from `base`, and those that git does not know yet."""

    def git(*arguments: str) -> list[str]:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if line]

    new = git("ls-files", "--others", "--exclude-standard")
    found = new + git("diff", "--name-only", base or "HEAD")
    return found if found or base else git("diff", "--name-only", "HEAD~1")


def defined_names(text: str) -> set[str]:
    """The public functions and classes of a module, and the names that its decorators register."""
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            names.add(node.name)
    return {*names, *re.findall(r"\"(?:relax|tir)\.(?:\w+\.)*(\w+)\"", text)}


@functools.cache
def words_of(text: str) -> frozenset[str]:
    """The names in a text."""
    return frozenset(_WORD.findall(text))


def parts_of(text: str) -> set[str]:
    """The words that names in a text are made of."""
    return {part for name in words_of(text) for part in name.lower().split("_") if part}


def scores(changed: Iterable[str], tests: Mapping[str, str]) -> Counter[str]:
    """How likely each file of tests is to fail; `tests` has their texts."""
    words = {file: words_of(text) for file, text in tests.items()}
    frequency = Counter(word for found in words.values() for word in found)
    found: Counter[str] = Counter()
    for file in changed:
        if not file.endswith(".py"):
            folder, name = file.partition("/")[0], Path(file).name
            for test, text in tests.items():
                found[test] += 1000 * (name in text) + 10 * (f'"{folder}"' in text)
            continue
        module, stem = file.removesuffix(".py").replace("/", "."), Path(file).stem
        if file in tests:
            found[file] += 1000
        text_of_module = _text_of(file) if file.startswith("relaxpy/") else ""
        rare, parts = defined_names(text_of_module), parts_of(text_of_module)
        for test in executing().get(file, set()) & tests.keys():
            found[test] += 200
        for test, text in tests.items():
            found[test] += file.startswith("relaxpy/") + 5 * common_folders(file, test)
            found[test] += 3 * (parts >= {*Path(test).stem.split("_")[1:]})
            package, _, name = module.rpartition(".")
            if re.search(
                rf"\b{re.escape(module)}\b|from {re.escape(package)} import .*\b{name}\b", text
            ):
                found[test] += 100
            if Path(test).stem in (f"test_{stem}", f"test_{stem}s"):
                found[test] += 100
            for name in rare & words[test]:
                found[test] += 20 * math.log(1 + len(tests) / frequency[name]) / (1 + len(rare))
        for test in _tests_of_area(file) & tests.keys():
            found[test] += 10
    return found


def _tests_of_area(file: str) -> set[str]:
    """The files of tests that areas of tools/mutants.py have for a module."""
    chosen = [t for modules, tests in AREAS.values() if file in modules for t in tests]
    files: set[str] = set()
    for name in chosen:
        path = ROOT / name
        found = path.rglob("test_*.py") if path.is_dir() else [path]
        files.update(each.relative_to(ROOT).as_posix() for each in found)
    return files


def common_folders(file: str, test: str) -> int:
    """How many folders of a module of the package and of a file of tests have the same names."""
    (package, *folders), (_, *others) = Path(file).parts[:-1] or (".",), Path(test).parts[:-1]
    if package != "relaxpy":
        return 0
    pairs = list(zip(folders, others, strict=False))
    return next((k for k, (a, b) in enumerate(pairs) if a != b), len(pairs))


@functools.cache
def executing() -> dict[str, set[str]]:
    """The files of tests that the table has for each module."""
    found: dict[str, set[str]] = defaultdict(set)
    module = ""
    for line in TABLE.read_text("utf-8").splitlines() if TABLE.exists() else ():
        if line.startswith(" "):
            folder, *names = line.split()
            found[module].update(
                (Path("tests") / folder / f"test_{n}.py").as_posix() for n in names
            )
        else:
            module = f"relaxpy/{line}"
    return found


def _text_of(file: str) -> str:
    path = ROOT / file
    return path.read_text("utf-8") if path.exists() else ""


def within(seconds: float, found: Counter[str]) -> list[str]:
    """The most likely files whose quick tests take less time than that together."""
    times = layers.table().files
    chosen, total = [], 0.0
    ordered = sorted(found.items(), key=lambda item: (-item[1], times.get(item[0], _NEW_FILE)))
    for test, score in ordered:
        needed = times.get(test, _NEW_FILE)
        if score and (not chosen or total + needed <= seconds):
            chosen.append(test)
            total += needed
    return chosen


# --- the table of what executes a module ----------------------------------------------------------


def best_files(module: str, lines: Mapping[str, set[int]], seconds: float) -> list[str]:
    """The files of tests that are the likeliest to find a broken line of a module in that time.

    `lines` are those that the tests of a file execute.
    """
    times = layers.table().files
    room = max((common_folders(module, test) for test in lines), default=0)
    chances = {t: _LIKELY if common_folders(module, t) == room else _UNLIKELY for t in lines}
    missed = dict.fromkeys(set().union(*lines.values()), 1.0)
    """How likely the chosen files are not to notice that a line is broken."""
    chosen: list[str] = []
    total = 0.0
    while len(chosen) < _FILES:
        gains = {
            test: sum(missed[line] for line in lines[test])
            * chances[test]
            / (0.2 + times.get(test, _NEW_FILE))
            for test in lines
            if test not in chosen and total + times.get(test, _NEW_FILE) <= seconds
        }
        if not gains:
            break
        best = max(sorted(gains), key=gains.__getitem__)
        chosen.append(best)
        total += times.get(best, _NEW_FILE)
        for line in lines[best]:
            missed[line] *= 1 - chances[best]
    return chosen


def table_lines(executed: Mapping[str, Mapping[str, set[int]]], seconds: float) -> Iterator[str]:
    """The lines of the table, of what tests execute in each module."""
    for module, lines in sorted(executed.items()):
        by_folder: dict[str, list[str]] = defaultdict(list)
        for test in sorted(best_files(module, lines, seconds)):
            path = Path(test).relative_to("tests")
            by_folder[path.parent.as_posix()].append(path.stem.removeprefix("test_"))
        if by_folder:
            yield module.removeprefix("relaxpy/")
            yield from (f"  {' '.join([folder, *names])}" for folder, names in by_folder.items())


class _Files(Recorder):
    """Records which files of tests execute each line."""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Attribute the lines that run from here on to the file of this test."""
        super().pytest_runtest_logstart(nodeid.partition("::")[0])


def recorded(tests: Iterable[str]) -> dict[str, dict[str, set[int]]]:
    """The lines of each module that the quick tests of each file execute."""
    import coverage
    import pytest

    measured = coverage.Coverage(include=[str(ROOT / "relaxpy" / "*")], data_file=None)
    measured.start()
    pytest.main([*PYTEST, "--layer=quick", *tests], [_Files(measured)])
    measured.stop()
    data, found = measured.get_data(), dict[str, dict[str, set[int]]]()
    for file in data.measured_files():
        lines = found.setdefault(Path(file).relative_to(ROOT).as_posix(), defaultdict(set))
        for line, names in data.contexts_by_lineno(file).items():
            for name in filter(None, names):
                lines[name].add(line)
    return found


def record() -> None:
    """Write the table. Each folder of tests has a process, whose caches the next does not find."""
    folders = sorted({path.parent for path in (ROOT / "tests").rglob("test_*.py")})
    executed: dict[str, dict[str, set[int]]] = defaultdict(dict)
    for folder in folders:
        tests = sorted(path.relative_to(ROOT).as_posix() for path in folder.glob("test_*.py"))
        with tempfile.NamedTemporaryFile("r") as answer:
            command = [sys.executable, __file__, "--record-into", answer.name, *tests]
            subprocess.run(command, cwd=ROOT, check=True)
            for module, lines in json.load(answer).items():
                executed[module].update((test, set(found)) for test, found in lines.items())
    TABLE.write_text(HEADER + "".join(f"{r}\n" for r in table_lines(executed, SECONDS)), "utf-8")


def main() -> int:
    """Run the tests; the exit status of pytest."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", help="compare with this commit")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--list", action="store_true", help="print the files and run none")
    parser.add_argument("--record", action="store_true", help="write tests/modules.txt")
    parser.add_argument("--record-into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("tests", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record()
        return 0
    if options.record_into is not None:
        plain: Any = recorded(options.tests)
        options.record_into.write_text(json.dumps(plain, default=sorted), "utf-8")
        return 0
    changed = changed_files(options.base)
    tests = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    found = scores(changed, tests)
    chosen = within(options.seconds, found)
    print(f"{len(changed)} changed files; {len(chosen)} of {len(tests)} files of tests")
    if not chosen:
        print("no test is chosen for", *changed, file=sys.stderr)
        return 1
    if options.list:
        print(*chosen, sep="\n")
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "--layer=quick", *chosen]
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
