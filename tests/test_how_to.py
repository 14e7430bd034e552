"""The pages of docs/how-to that change relaxpy, followed in a copy of it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.processes import arguments, outcomes
from tests.test_docs import python_of

ROOT = Path(__file__).parents[1]
PAGES = ["add-a-well-formedness-rule", "add-an-intrinsic", "add-an-annotation", "add-a-statement"]


def text_of(page: str) -> str:
    return (ROOT / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")


def change(folder: Path, fence: str) -> None:
    """Apply a fence: the path after `#`, then lines that stay, that go (-) and that come (+)."""
    first, *lines = fence.splitlines()
    assert all(line[:1] in ("", " ", "+", "-") for line in lines)
    old = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
    new = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
    file = folder / first.removeprefix("# ")
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{file} has not once:\n{old}"
    file.write_text(text.replace(old, new), encoding="utf-8")


def run(relaxpy: Path, folder: Path, target: str = "native") -> dict[str, tuple[str, int]]:
    """What the program of each page writes as an error, and its exit code.

    `target` is the default one.
    """
    programs = [folder / f"{page}.py" for page in PAGES]
    for page, program in zip(PAGES, programs, strict=True):
        program.write_text(python_of(text_of(page)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *arguments(programs)],
        env={**os.environ, "PYTHONPATH": str(relaxpy), "RELAXPY_TARGET": target},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(PAGES, outcomes(done.stderr), strict=True))


def changed(folder: Path) -> Path:
    """A copy of relaxpy with the changes of all pages."""
    shutil.copytree(ROOT / "relaxpy", folder / "relaxpy")  # also what is compiled
    for page in PAGES:
        fences = re.findall(r"^```diff\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL)
        assert fences
        for fence in fences:
            change(folder, fence)
    return folder


def test_the_program_of_a_page_runs_after_its_changes_and_not_before(tmp_path: Path) -> None:
    relaxpy = changed(tmp_path / "changed")
    for target in ("native", "numpy"):
        found = run(relaxpy, tmp_path, target)
        failed = {page: text for page, (text, code) in found.items() if code}
        assert failed == {}, target
    assert [code for _, code in run(ROOT, tmp_path).values()] == [1] * len(PAGES)
