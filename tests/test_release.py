"""What a release consists of: changelog, constraints, packages, workflows, forms, owners."""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import relaxpy
from benchmarks import run as benchmarks
from tests.test_layering import ROOMS
from tools import dist

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FRAGMENTS = sorted({*(ROOT / "changes").iterdir()} - {ROOT / "changes" / "README.md"})
YAML = [
    path
    for path in sorted([*ROOT.glob(".github/**/*.yml"), *ROOT.glob(".*.yaml"), *ROOT.glob("*.cff")])
    if path.is_file()
]


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# --- the changelog


def test_the_newest_version_of_the_changelog_is_the_one_that_is_cited() -> None:
    versions = re.findall(r"^## (\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)$", CHANGELOG, re.MULTILINE)
    citation = load(ROOT / "CITATION.cff")
    assert versions[0] == (citation["version"], str(citation["date-released"]))
    assert relaxpy.__version__ == citation["version"]
    dates = [date.fromisoformat(day) for _, day in versions]
    assert dates == sorted(dates, reverse=True)


def test_a_version_fits_on_a_page() -> None:
    sections = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]
    assert all(len(section.split()) < 800 for section in sections)


def wrong_fragments(fragments: list[Path]) -> list[str]:
    """The files of entries that are not as changes/README.md wants them."""
    types = {kind["directory"] for kind in PYPROJECT["tool"]["towncrier"]["type"]}
    found = []
    for path in fragments:
        lines = path.read_text(encoding="utf-8").splitlines()
        name = re.fullmatch(r"(\d+|\+[\w-]+)\.(\w+)\.md", path.name)
        if not name or name[2] not in types or len(lines) != 1 or not 8 < len(lines[0]) <= 160:
            found.append(path.name)
    return found


def test_entries_are_files_of_one_line_and_of_a_known_type() -> None:
    assert wrong_fragments(FRAGMENTS) == []


def test_a_wrong_entry_is_found(tmp_path: Path) -> None:
    texts = {
        "+good.feature.md": "Softmax takes a mask.\n",
        "12.bugfix.md": "Masks may be empty.\n",
        "word.feature.md": "A word without its plus sign.\n",
        "+a.fix.md": "A type that does not exist.\n",
        "+b.doc.md": "Two lines.\nThe second.\n",
        "+c.doc.md": "x" * 161,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert wrong_fragments(sorted(tmp_path.iterdir())) == sorted([*texts][2:])


def test_the_page_lists_the_types_of_entries() -> None:
    page = (ROOT / "changes" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert rows == [kind["directory"] for kind in PYPROJECT["tool"]["towncrier"]["type"]]


def test_entries_become_a_section_of_the_changelog(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "changes", tmp_path / "changes")
    (tmp_path / "changes" / "+mask.feature.md").write_text("Softmax takes a mask.\n")
    (tmp_path / "changes" / "7.bugfix.md").write_text("Masks may be empty.\n")
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.0.0"]
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    subprocess.run([*command, "--date", "2030-01-31"], cwd=tmp_path, check=True, env=env)
    _, _, rest = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8").partition("start -->\n\n")
    assert rest.startswith("## 9.0.0 (2030-01-31)\n\n### Added\n\n")
    section = rest.partition(f"\n## {relaxpy.__version__} (")[0]
    assert "\n- Softmax takes a mask.\n" in section
    assert "\n- Masks may be empty. (#7)\n" in section
    assert [path.name for path in (tmp_path / "changes").iterdir()] == ["README.md"]


# --- constraints


def pins(name: str) -> dict[str, list[Version]]:
    """The versions of each package in a file of constraints."""
    found: dict[str, list[Version]] = {}
    lines = (ROOT / "tools" / "constraints" / f"{name}.txt").read_text("utf-8").splitlines()
    for requirement in (Requirement(line) for line in lines if not line.startswith("#")):
        [pin] = requirement.specifier
        assert pin.operator == "==", requirement
        found.setdefault(canonicalize_name(requirement.name), []).append(Version(pin.version))
    return found


def requirements(*extras: str) -> list[Requirement]:
    """What the package requires, with extras, and those that they name."""
    listed = [*PROJECT["dependencies"]]
    listed += [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    found = []
    for requirement in map(Requirement, listed):
        inner = requirement.name == "relaxpy"
        found += requirements(*requirement.extras) if inner else [requirement]
    return found


def test_the_newest_versions_are_those_of_every_package_that_make_installs() -> None:
    newest = pins("newest")
    for requirement in requirements("dev", "oracle", "docs", "release"):
        versions = newest[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(version) for version in versions), requirement
    declared = re.findall(r"^(?:TORCH|RAY|LAB) := (.+)$", MAKEFILE, re.MULTILINE)
    for requirement in map(Requirement, [*declared, "expecttest"]):
        assert all(map(requirement.specifier.contains, newest[requirement.name])), requirement
    assert len(declared) == 3


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    oldest = pins("oldest")
    for requirement in requirements("native", "onnx", "safetensors", "gguf", "serve", "lsp", "mpi"):
        bounds = [Version(bound.version) for bound in requirement.specifier]
        assert oldest[canonicalize_name(requirement.name)] == [max(bounds)], requirement


@pytest.mark.parametrize("origin", ["file", "command line"])
def test_versions_that_cannot_be_had_are_replaced_unless_the_user_named_them(tmp_path, origin):
    pip = tmp_path / "pip.sh"
    pip.write_text('echo "pip $*"; case "$*" in *constraint*) exit 1;; esac\n')
    arguments = [f"sh {pip}", "pins.txt", origin, "--editable", ".[dev]"]
    command = ["sh", str(ROOT / "tools" / "install.sh"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    first, *rest = done.stdout.splitlines()
    assert first == "pip --constraint pins.txt --editable .[dev]"
    if origin == "file":
        assert (done.returncode, rest) == (0, ["pip --editable .[dev]"])
        assert done.stderr.startswith("pins.txt has versions that cannot be installed here")
    else:
        assert (done.returncode, rest) == (1, [])


# --- the packages


def test_files_that_a_package_lacks_are_found() -> None:
    files = {"relaxpy/a.py", "relaxpy/b.toml", "tests/t.py"}
    wheel = ["relaxpy/a.py", "relaxpy-1.dist-info/RECORD", "tests/t.py"]
    sdist = [
        "relaxpy-1/relaxpy/a.py",
        "relaxpy-1/relaxpy/b.toml",
        "relaxpy-1/x",
        "relaxpy-1/PKG-INFO",
    ]
    assert dist.left_out(wheel, sdist, files) == [
        "the wheel lacks relaxpy/b.toml",
        "the wheel has tests/t.py",
        "the sdist lacks tests/t.py",
        "the sdist has x",
    ]


# --- workflows, forms, owners


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_the_file_is_yaml(path: Path) -> None:
    assert isinstance(load(path), dict)


def test_workflows_call_targets_of_make_and_pin_actions_by_commit() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    called = set()
    for path in ROOT.glob(".github/workflows/*.yml"):
        text = path.read_text(encoding="utf-8")
        actions = re.findall(r"uses: (.*)", text)
        assert all(re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use) for use in actions)
        steps = [step for job in load(path)["jobs"].values() for step in job["steps"]]
        called |= {
            step["run"].split()[1] for step in steps if step.get("run", "").startswith("make ")
        }
    assert called <= targets
    assert called >= {"demo", "check", "test", "test-slow", "docs", "dist"}


def test_jobs_have_a_machine_a_limit_and_the_axes_that_they_name() -> None:
    for path in ROOT.glob(".github/workflows/*.yml"):
        for name, job in load(path)["jobs"].items():
            assert {"runs-on", "timeout-minutes", "steps"} <= {*job}, name
            axes = {*job.get("strategy", {}).get("matrix", {})}
            assert {*re.findall(r"\{\{ *matrix\.(\w+)", str(job))} == axes, name
            assert all(("run" in step) != ("uses" in step) for step in job["steps"]), name


def test_documents_name_targets_of_make_that_exist() -> None:
    targets = {*re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)}
    named = {
        (path.name, target)
        for path in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("docs/**/*.md")]
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert ("versions.md", "test-arm") in named
    assert {(page, target) for page, target in named if target not in targets} == set()


def test_a_version_is_published_in_five_steps() -> None:
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    steps = re.findall(r"^(\d)\. \*\*", page.partition("## How to publish")[2], re.MULTILINE)
    assert steps == [*"12345"]


def test_workflows_run_each_python_that_the_package_names() -> None:
    jobs = load(ROOT / ".github" / "workflows" / "check.yml")["jobs"]
    prefix = "Programming Language :: Python :: 3."
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith(prefix)]
    assert jobs["check"]["strategy"]["matrix"]["python"][: len(named)] == named


def test_forms_ask_for_something() -> None:
    for path in {*ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")} - {
        ROOT / ".github/ISSUE_TEMPLATE/config.yml"
    }:
        form = load(path)
        assert form["name"], path
        assert form["description"], path
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert all(field["attributes"]["label"] for field in fields), path
        assert any(field.get("validations", {}).get("required") for field in fields), path


def test_every_room_has_an_owner() -> None:
    text = (ROOT / ".github" / "CODEOWNERS").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    assert all(owner.startswith("@") for _, owner in rows)
    paths = [path.strip("/") for path, _ in rows if path != "*"]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    rooms = {f"relaxpy/{room.replace('.', '/')}" for room in ROOMS if room != "plugins"}
    assert {room for room in rooms if not {room, f"{room}.py"} & {*paths}} == set()


# --- benchmarks

RUNS = [
    {
        "softmax": {"default": 2.0, "NumPy": 8.0, "JAX": 4.0},
        "MLP": {"default": 3.0, "arguments": 6.0, "NumPy": 2.0},
    },
    {
        "softmax": {"default": 2.0, "NumPy": 10.0, "JAX": 2.5},
        "MLP": {"default": 4.0, "arguments": 8.0, "NumPy": 2.0},
    },
    {
        "softmax": {"default": 2.0, "NumPy": 4.0, "JAX": 4.0},
        "MLP": {"default": 5.0, "arguments": 10.0, "NumPy": 2.0},
    },
]


def test_the_table_of_benchmarks_has_medians_and_the_spread() -> None:
    assert benchmarks.table(RUNS).splitlines() == [
        "| model | / NumPy | / JAX | / fastest | spread | as arguments |",
        "| --- | --- | --- | --- | --- | --- |",
        "| softmax | 0.25 | 0.50 | 0.50 | 0.50 to 0.80 |  |",
        "| MLP | 2.00 |  | 2.00 | 1.50 to 2.50 | 4.00 |",
    ]
    best = {"softmax": 0.5, "BERT": 0.25, "ResNet-18": 1.0, "100 operations": 0.04}
    assert benchmarks.summary(best, {"BERT": 0.2}).splitlines()[2:] == [
        "| kind | models | the fastest of the others | torch.compile | the worst model |",
        "| --- | --- | --- | --- | --- |",
        "| networks | 2 | 2.0 | 5.0 | 1.0 |",
        "| many small operations | 1 | 25 |  | 25 |",
        "| kernels | 1 | 2.0 |  | 2.0 |",
    ]
    assert benchmarks.speed([1.25, 5.0]) == "0.40"


def test_the_section_of_benchmarks_is_replaced_and_the_rest_stays() -> None:
    page = benchmarks.PAGE.read_text(encoding="utf-8")
    once = benchmarks.written(page, "new\n")
    assert once.count("new") == page.count("new") + 1
    assert benchmarks.written(once, "newer\n") == once.replace("new\n\n<!--", "newer\n\n<!--")
    with pytest.raises(SystemExit, match="has 0 sections"):
        benchmarks.written("# Benchmarks\n", "new\n")


def test_the_tables_of_installations_have_their_models_and_can_be_written_again() -> None:
    pytest.importorskip("resource")
    from benchmarks import install

    page = install.PAGE.read_text(encoding="utf-8")
    for name, rows in (("first result", install.JOURNEYS), ("start", install.STARTS)):
        begin = install.BEGIN.format(name)
        section = page.partition(begin)[2].partition(benchmarks.END)[0]
        assert [row[0] for row in rows_of(section)[2:]] == [*rows]
        assert benchmarks.written(page, section[1:-1], begin) == page
    ours, *_, theirs, _ = rows_of(section)[2:]
    words = " ".join((ROOT / "docs" / "highlights.md").read_text(encoding="utf-8").split())
    assert f"take {ours[1]} where PyTorch takes {theirs[1]}" in words
    assert f"after {ours[2]} instead of {theirs[2]} seconds of CPU time" in words
    programs = [words[1] for _, words in install.JOURNEYS.values() if words[0] == "-c"]
    assert {len([line for line in p.splitlines() if line]) for p in programs} == {4, 5, 6}
    assert "four to six lines" in " ".join(page.split())


def rows_of(text: str) -> list[list[str]]:
    """The cells of the rows of tables."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_figures_of_the_first_page_are_those_of_the_benchmarks() -> None:
    page = benchmarks.PAGE.read_text(encoding="utf-8")
    rows = rows_of(page.partition(benchmarks.BEGIN)[2].partition(benchmarks.END)[0])
    names, *measured = rows[next(k for k, row in enumerate(rows) if row[0] == "model") :]
    columns = dict(zip(names, zip(*measured[1:], strict=True), strict=True))
    best, own = (
        dict(zip(columns["model"], map(float, columns[name]), strict=True))
        for name in ("/ fastest", "/ torch.compile")
    )
    summary = benchmarks.summary(best, own).partition("\n\n")[2]
    assert summary in page
    first = (ROOT / "README.md").read_text(encoding="utf-8")
    assert first.count(summary) == 1
    peers = [name[2:] for name in names if name.startswith("/ ") and name != "/ fastest"]
    assert [peer for peer in peers if peer not in first.partition("## How fast")[2]] == []


def test_the_figures_of_models_of_pytorch_are_those_of_the_benchmarks() -> None:
    page = benchmarks.PAGE.read_text(encoding="utf-8").partition("## Models of PyTorch")[2]
    section = page.partition("\n## ")[0]
    names, _, *rows = rows_of(section)
    exported, compiled = (
        benchmarks.speed(float(row[names.index(name)]) for row in rows)
        for name in ("exported", "compiled")
    )
    for text in (
        section,
        *(path.read_text("utf-8") for path in (ROOT / "README.md", ROOT / "docs/pytorch.md")),
    ):
        words = " ".join(text.split())
        assert f"{exported} times as fast as the fastest of" in words
    assert f"{compiled} times as fast" in " ".join(section.split())
    first = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Exported PyTorch models, {len(rows)} from" in first


def test_the_figures_of_torch_compile_are_those_of_the_benchmarks() -> None:
    page = benchmarks.PAGE.read_text(encoding="utf-8")
    names, _, *rows = rows_of(
        page.partition("## Models under torch.compile")[2].partition("\n## ")[0]
    )
    ratios = [float(row[names.index("compiled")]) for row in rows]
    assert max(ratios) < 1
    for path in (ROOT / "README.md", ROOT / "docs/pytorch.md"):
        words = " ".join(path.read_text("utf-8").split())
        assert f"f {len(rows)} small " in words
        assert f"takes {statistics.geometric_mean(ratios):.2f} times as long" in words
