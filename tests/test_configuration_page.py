"""docs/configuration.md has every setting of the code, with its default."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping

import pytest

import relaxpy
from relaxpy.ir.passes.cleanup.fold_constant import MAX_BYTES
from relaxpy.ir.passes.fusion.fuse_ops import MAX_DEPTH, MAX_DEPTH_BY_RULE
from relaxpy.transform import PassContext
from tests.test_docs_claims import read_by_code, trees_with
from tests.test_layering import ROOT


@functools.cache
def rows(title: str) -> dict[str, list[str]]:
    """The other cells of the rows of a section, by the code in their first cells."""
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    _, _, section = page.partition(f"\n## {title}\n")
    found = {}
    for line in section.partition("\n## ")[0].splitlines():
        names, *cells = line.strip("|").split("|")
        for name in re.findall(r"`([\w.]+)`", names) if cells else ():
            found[name] = [cell.strip() for cell in cells]
    return found


def test_the_page_has_every_environment_variable() -> None:
    trees = trees_with(r"environ|getenv|[\"'][A-Z][A-Z0-9_]+[\"']")  # the last: names of variables
    assert sorted(rows("Environment variables")) == sorted(read_by_code(trees))


OPTIONS: Mapping[str, Callable[..., object]] = {
    "Options of `relaxpy.compile`": relaxpy.compile,
    "Options of `relaxpy.load_executable`": relaxpy.load_executable,
    "PassContext": PassContext,
}


@pytest.mark.parametrize("title", OPTIONS)
def test_the_page_has_every_option_with_its_default(title: str) -> None:
    defaults = {p.name: p.default for p in inspect.signature(OPTIONS[title]).parameters.values()}
    empty = inspect.Parameter.empty
    expected = {
        name: "" if value is empty else f"`{value!r}`".replace("'", '"')
        for name, value in defaults.items()
    }
    assert {name: cells[0] for name, cells in rows(title).items()} == expected


def test_the_page_says_how_the_options_of_build_differ() -> None:
    assert relaxpy.build is relaxpy.compile
    listed = set(rows("Options of `relaxpy.compile`"))
    of_build = set(inspect.signature(relaxpy.relax.build).parameters)
    assert listed - of_build == {"schedules", "args", "kwargs", "dynamic", "name"}
    assert of_build - listed == {"params", "exec_mode", "system_lib"}


def test_the_page_has_every_key_of_the_configuration_of_passes() -> None:
    table = rows("Keys of `PassContext.config`")
    configs = PassContext.list_configs()
    assert {name: cells[0] for name, cells in table.items()} == {
        name: spec["type"] for name, spec in configs.items()
    }
    depth = table["relax.FuseOps.max_depth"][1]
    assert depth == f"{MAX_DEPTH}; {MAX_DEPTH_BY_RULE} in the default pipeline"
    assert table["relax.FoldConstant.max_bytes"][1] == str(MAX_BYTES)


def test_other_pages_have_no_table_of_their_own() -> None:
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if path.name != "configuration.md":
            text = path.read_text(encoding="utf-8")
            assert not re.findall(r"^\| `RELAXPY_\w+` \|", text, re.MULTILINE), path.name
            assert not re.findall(r"^\| `opt_level` \|", text, re.MULTILINE), path.name
