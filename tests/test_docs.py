"""What the documents show runs: the Python in each Markdown file, the doctests of the modules."""

import doctest
import re
import runpy
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import StructInfoError
from tools.document_types import python_of as blocks_of

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
MODULES = [
    path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".")
    for path in sorted((ROOT / "relaxpy").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def python_of(text: str, language: str = "python") -> str:
    """The lines of `text` inside fences of a language, at their line numbers."""
    return blocks_of(text, language)


def write_model(folder: Path) -> None:
    """The ONNX file that readers of README.md have."""
    onnx = pytest.importorskip("onnx")
    model = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[n, m] x) => (float[n, m] y) { h = Add(x, x)  y = Relu(h) }
    """
    onnx.save(onnx.parser.parse_model(model), folder / "model.onnx")


def program_without_onnx(page: str, folder: Path) -> str:
    """The Python of a page, in which relaxpy has saved what would be an ONNX file."""
    text = python_of((ROOT / page).read_text(encoding="utf-8"))
    if '"model.onnx"' not in text:
        return text
    write_model(folder)
    relaxpy.compile(folder / "model.onnx", "numpy").save(folder / "model.rxp")
    saved = (folder / "model.rxp").read_bytes()
    text = text.replace("model.onnx", "model.rxp")
    return f"open('model.rxp', 'wb').write({saved!r})\n{text}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_python_in_document_runs(name, tmp_path, monkeypatch) -> None:
    program = tmp_path / f"{Path(name).stem}.py"
    python = python_of((ROOT / name).read_text(encoding="utf-8"))
    if "\nimport torch\n" in python:
        pytest.importorskip("torch")
    program.write_text(python, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    if name == "README.md":
        write_model(tmp_path)
    runpy.run_path(str(program))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_python_that_needs_pytorch_runs(name, tmp_path, monkeypatch) -> None:
    """The fences called py run by themselves, and among the others, as readers run the page."""
    text = (ROOT / name).read_text(encoding="utf-8")
    python = python_of(text, "py")
    if python.strip():
        pytest.importorskip("torch")
        program = tmp_path / f"{Path(name).stem}_torch.py"
        monkeypatch.chdir(tmp_path)
        write_model(tmp_path)
        for source in (python, python_of(text.replace("```py\n", "```python\n"))):
            program.write_text(source, encoding="utf-8")
            runpy.run_path(str(program))


def test_the_three_models_of_the_first_page_are_called_for_other_sizes(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    first = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Three models")[2]
    section = first.partition("\n## ")[0]
    blocks = re.findall(r"^```py(?:thon)?\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    write_model(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(program))
    x, w = np.linspace(-1, 1, 192, dtype="float32").reshape(3, 64), np.eye(64, 10, dtype="float32")
    assert found["ex"](x).tolist() == np.maximum(x + x, 0).tolist()
    e = np.exp(x[:, :10])
    np.testing.assert_allclose(found["classify"](x, w), e / e.sum(1, keepdims=True), rtol=1e-5)
    program.write_text(blocks[0], encoding="utf-8")
    found = runpy.run_path(str(program))
    x = torch.from_numpy(x)
    torch.testing.assert_close(found["ex"](x), found["model"](x).detach())


def test_the_errors_of_getting_started_are_those_shown(tmp_path, monkeypatch, capsys) -> None:
    text = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    (tmp_path / "page.py").write_text(python_of(text), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("page.py")
    printed = " ".join(capsys.readouterr().out.split())
    shown = re.findall(r"^```text\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    assert [message for message in shown if " ".join(message.split()) not in printed] == []
    assert shown


def test_the_error_of_the_first_page_is_the_one_shown(tmp_path, monkeypatch) -> None:
    lines = [
        "from relaxpy.script import relax as R",
        *[""] * 8,
        "@R.function",
        'def main(x: R.Tensor(("n", 5), "float32"), w: R.Tensor((6, 7), "float32")):',
        "    y = R.matmul(x, w)",
        "    return y",
    ]
    (tmp_path / "model.py").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StructInfoError) as caught:
        runpy.run_path("model.py")
    first = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert " ".join(str(caught.value).replace(f"{tmp_path}/", "").split()) in first


@pytest.mark.parametrize("name", MODULES)
def test_doctests_of_module_pass(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


def test_the_glossary_says_where_each_term_is_defined() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (?!term|---)([^|]+) \| [^|]+\. \| `(\w+)` in `([\w/.]+)` \|$", text, re.M
    )
    assert len(rows) == text.count("\n| ") - 2 * text.count("\n| term")
    for term, name, file in rows:
        code = (ROOT / "relaxpy" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(class|def) {name}\b|^{name}\b.* = ", code, re.MULTILINE), term
