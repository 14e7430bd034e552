"""Run the tests that a change is most likely to break: `make affected`.

The change is what git reports since BASE (the last commit, or the one before it where nothing has
changed since). Files of tests are taken, the best first, until their quick tests fill the time.
How likely a file of tests is to fail is a sum over the changed modules:

- it is the file of that module's name, or an area of tools/mutants.py has both;
- it imports the module, or mentions names that the module defines, rare names more than common.

A change of the tests themselves, of their helpers or of data runs what it changes, and what
imports it.
"""

from __future__ import annotations

import argparse
import ast
import functools
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests import layers  # noqa: E402
from tools.mutants import AREAS  # noqa: E402

SECONDS = 60.0
"""Processor time of the quick tests that are run, beside what it takes to collect them."""
_WORD = re.compile(r"[A-Za-z_]\w{2,}")
_NEW_FILE = 1.0
"""Seconds that are expected of a file that the table does not have."""


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
        rare = defined_names(_text_of(file)) if file.startswith("relaxpy/") else set()
        for test, text in tests.items():
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


def _text_of(file: str) -> str:
    path = ROOT / file
    return path.read_text("utf-8") if path.exists() else ""


def within(seconds: float, found: Counter[str]) -> list[str]:
    """The most likely files whose quick tests take less time than that together."""
    times = layers.table().files
    chosen, total = [], 0.0
    for test, score in found.most_common():
        if not score:
            break
        total += times.get(test, _NEW_FILE)
        if chosen and total > seconds:
            break
        chosen.append(test)
    return chosen


def main() -> int:
    """Run the tests; the exit status of pytest."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", help="compare with this commit")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--list", action="store_true", help="print the files and run none")
    options = parser.parse_args()
    changed = changed_files(options.base)
    tests = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    found = scores(changed, tests)
    chosen = within(options.seconds, found)
    print(f"{len(changed)} changed files; {len(chosen)} of {len(found)} files of tests")
    if options.list or not chosen:
        print(*chosen, sep="\n")
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "--layer=quick", *chosen]
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
