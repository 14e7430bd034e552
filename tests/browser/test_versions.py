"""The sites of several versions that stand in one folder."""

import importlib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_versions_are_listed_from_the_newest_on(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    for name in ("0.9.0", "0.10.0", "0.10.0rc1", "not a site"):
        (tmp_path / name).mkdir()
        if name[0].isdigit():
            (tmp_path / name / "index.html").write_text("a site")
    importlib.import_module("build_site").list_versions(tmp_path)
    listed = (tmp_path / "versions.js").read_text()
    assert listed == 'window.relaxpyVersions = ["0.10.0", "0.10.0rc1", "0.9.0"];\n'
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text()
