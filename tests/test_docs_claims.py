"""What the documents claim about the code holds: files, names, imports, settings, tables."""

import ast
import contextlib
import functools
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.ir.op import Op
from relaxpy.ir.transform import PassContext
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.test_layering import FILES, FLOORS, ROOMS, ROOT
from tests.test_words import messages_of

FOLDERS = ("docs", "relaxpy", "tests", "tools", "examples", "benchmarks", "notebooks")
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(p for f in FOLDERS for p in (ROOT / f).rglob("*.md"))]
    if path.name != "CHANGELOG.md"  # it names what there was
)
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: The pages beside the code, by their folders.
READMES = {
    path.parent.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "relaxpy").rglob("README.md"))
}
KNOWN = {
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*"), *(p for folder in FOLDERS for p in (ROOT / folder).rglob("*"))]
    if "__pycache__" not in path.parts
}
#: Files that a document tells its reader to write, or that programs write.
NOT_THERE = {
    "docs/how-to/add-a-pass.md": {
        "relaxpy/ir/passes/cancel_negatives.py",
        "tests/ir/relax/test_cancel_negatives.py",
        "examples/passes/CancelNegatives.py",
    },
    "docs/running-passes.md": {"000_LegalizeOps.py"},
    "docs/editors.md": {"languages.toml"},
    "benchmarks/README.md": {"benchmarks/NAME.py"},
}
_SUFFIXES = "py|pyi|md|toml|txt|ipynb"


def quoted(text: str) -> list[str]:
    """What stands between backticks in prose."""
    text = re.sub(r"^ *(```+)[^\n]*\n.*?^ *\1[ ]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def paths_of(text: str) -> Iterator[str]:
    """The files and folders that a document names."""
    for code in quoted(text):
        for word in re.findall(r"[\w./-]+", code):
            is_file = re.fullmatch(rf"[\w/.-]*\w\.({_SUFFIXES})", word)
            if is_file or re.fullmatch(rf"({'|'.join(FOLDERS)})(/[\w.-]*)+", word):
                yield word.lstrip("./").rstrip("/")


def test_the_files_of_documents_are_there() -> None:
    endings = {"/".join(PurePosixPath(p).parts[k:]) for p in KNOWN for k in range(p.count("/") + 1)}
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS}
    missing = {name: {*paths_of(text)} - endings for name, text in texts.items()}
    assert {name: paths for name, paths in missing.items() if paths} == NOT_THERE


def of_folders(text: str, folder: str) -> Iterator[tuple[str, set[str]]]:
    """The files that a page beside the code names, with the folders that may have them.

    These are its own, and those named before; a paragraph that begins in bold, or a section, is
    about other folders than those before it.
    """
    folders = {folder}
    for paragraph in re.split(r"\n\n(?=\*\*|#|\|)", text):
        if paragraph.startswith(("**", "#")):
            folders = {folder}
        inner = [code.rstrip("/") for code in quoted(paragraph) if re.fullmatch(r"\w+/", code)]
        folders |= {f"{f}/{name}" for name in inner for f in folders if f"{f}/{name}" in KNOWN}
        for path in paths_of(paragraph):
            if path in KNOWN:
                folders.add(path if (ROOT / path).is_dir() else str(PurePosixPath(path).parent))
            elif "/" in path:
                found = {f for f in folders if f"{f}/{path}" in KNOWN}
                yield path, found
                folders |= {str(PurePosixPath(f, path).parent) for f in found}
            elif path.endswith(".py"):
                yield path, {f for f in folders if f"{f}/{path}" in KNOWN}


def test_the_files_of_a_paragraph_are_in_the_folders_that_it_names() -> None:
    named = [
        (folder, *found) for folder, text in READMES.items() for found in of_folders(text, folder)
    ]
    assert len(named) > 40
    assert [(folder, path) for folder, path, found in named if not found] == []


def test_a_file_of_another_folder_is_found() -> None:
    folders = "relaxpy/exec/native", "relaxpy/exec/program/graph"
    text = "**A**: `{}/`. `values/packing.py`\n\n**B**: `{}/`. {{}}".format(*folders)
    for name, is_there in (("`emit.py`", True), ("`memory.py`", False), ("`price.py`", False)):
        found = [bool(found) for _, found in of_folders(text.format(name), "relaxpy")]
        assert found == [True, is_there]


def test_the_table_of_imports_is_that_of_the_rooms() -> None:
    listed: dict[str, set[str]] = {}
    rows = re.findall(r"^\| \[?(`relaxpy/.*) \| (.*) \| (.*) \|$", ARCHITECTURE, re.MULTILINE)
    for files, _, allowed in rows:
        match = re.match(r"`relaxpy/(plugins/\w+|\w+)", files)
        assert match is not None
        if allowed != "everything":
            listed[match[1].replace("/", ".")] = set(re.findall(r"`([\w.]+)`", allowed))
    assert listed == {room: allowed - {room} for room, allowed in ROOMS.items()}


def test_the_first_import_reads_the_files_that_are_named() -> None:
    _, _, after = ARCHITECTURE.partition("`import relaxpy` therefore reads ")
    sentence, _, _ = after.partition(", and a program")
    files = re.findall(r"`([\w/.]+\.py)`", sentence)
    named = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in files}
    program = "import sys, relaxpy; print(*(m for m in sys.modules if m.startswith('relaxpy')))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert named == set(done.stdout.split())


def test_the_package_is_described_alike() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (relaxpy.__doc__ or "").splitlines()[0].rstrip(".") == project["description"]


# --- environment variables


def assigned(tree: ast.Module) -> dict[str, list[str]]:
    """The strings that the names of a module stand for."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            with contextlib.suppress(ValueError):
                value = ast.literal_eval(node.value)
                texts = [value] if isinstance(value, str) else value
                if isinstance(texts, list | tuple) and all(isinstance(t, str) for t in texts):
                    found[ast.unparse(target)] = list(texts)
    return found


def keys_of_environment(node: ast.AST) -> Iterator[ast.expr]:
    """What a node reads from `os.environ`."""
    match node:
        case ast.Call(func=ast.Attribute(value=table), args=[key, *_]):
            tables = [table]
        case ast.Subscript(value=table, slice=key):
            tables = [table]
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=tables):
            pass
        case _:
            return
    if any(ast.unparse(table) in ("os.environ", "environ") for table in tables):
        yield key
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.getenv", "getenv"):
        yield key


def read_by_code(trees: Mapping[str, ast.Module]) -> set[str]:
    """The environment variables that the modules read, by their names or those of constants."""
    constants = {file: assigned(tree) for file, tree in trees.items()}
    found: set[str] = set()
    for file, tree in trees.items():
        names = dict(constants[file])
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                source = f"{node.module.replace('.', '/')}.py"
                for alias in node.names:
                    if alias.name in constants.get(source, {}):
                        names[alias.asname or alias.name] = constants[source][alias.name]
            if isinstance(node, ast.comprehension) and isinstance(node.iter, ast.Name):
                loop = ast.unparse(node.target)
                names[loop] = [*names.get(loop, []), *names.get(node.iter.id, [])]
        for node in ast.walk(tree):
            for key in keys_of_environment(node):
                found |= set([key.value] if isinstance(key, ast.Constant) else names[key.id])  # type: ignore[attr-defined,list-item]
    return found


def trees_with(pattern: str) -> dict[str, ast.Module]:
    """The trees of the modules whose texts have a pattern."""
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in FILES}
    return {file: ast.parse(text) for file, text in texts.items() if re.search(pattern, text)}


def test_variables_that_are_read_in_any_way_are_found() -> None:
    text = """
import os
from relaxpy.support.frames import NAME as OTHER
_A, _MANY = "A", ("M", "N")
B = "B"
x = os.environ.get(B), os.environ["C"], "D" in os.environ, os.getenv("E", ""), os.environ.get(OTHER)
y = [os.environ.get(name) for name in MANY]
MANY = ("M", "N")
"""
    trees = {"relaxpy/a.py": ast.parse(text), "relaxpy/support/frames.py": ast.parse('NAME = "F"')}
    assert read_by_code(trees) == set("BCDEFMN")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_environment_variables_of_a_document_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert set(re.findall(r"RELAXPY_[A-Z_]+", text)) <= variables_of_code()


@functools.cache
def variables_of_code() -> set[str]:
    return {
        variable
        for folder in ("relaxpy", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for variable in re.findall(r"RELAXPY_[A-Z_]+", path.read_text(encoding="utf-8"))
    }


# --- names

NAMESPACES: Mapping[str, Any] = {"relaxpy": relaxpy, "I": I, "R": R, "T": T} | {
    name: getattr(relaxpy, name)
    for name in ("relax", "tir", "te", "topi", "arith", "relay", "transform")
}
#: Names that a document says are absent, the beginning of names, or what a reader adds.
ABSENT_NAMES = {
    "docs/relay.md": {"relay.frontend"},
    "docs/how-to/add-an-intrinsic.md": {"T.cbrt"},
    "docs/how-to/add-an-annotation.md": {"R.Square"},
    "docs/how-to/write-a-plug-in.md": {"R.demo.softsign"},
    "docs/how-to/add-an-operator.md": {"R.softsign", "R.hypot", "relax.op.hypot"},
}
#: The pages of names that are absent or differ.
OF_OTHERS = {"docs/differences.md"}


def exists(name: str) -> bool:
    """Whether a dotted name is one of a namespace, an operator, or an option of passes."""
    head, *rest = name.split(".")
    value = NAMESPACES[head]
    for k, part in enumerate(rest):
        try:
            value = getattr(value, part)
        except (AttributeError, RelaxpyError):
            if head != "relaxpy":
                return name in Op.list_op_names() or name in PassContext.list_configs()
            try:
                value = importlib.import_module(".".join([head, *rest[: k + 1]]))
            except ImportError:
                return False
    return True


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in OF_OTHERS])
def test_the_names_of_a_document_exist(name: str) -> None:
    heads = "|".join(NAMESPACES)
    named = {
        found
        for code in quoted((ROOT / name).read_text(encoding="utf-8"))
        for found in re.findall(rf"(?<![\w./\"'-])((?:{heads})(?:\.[A-Za-z_]\w*)+)", code)
        if not found.endswith((".py", ".toml", ".md"))
    }
    assert {found for found in named if not exists(found)} == ABSENT_NAMES.get(name, set())


def test_each_page_of_tasks_is_followed_by_a_test() -> None:
    tests = {*(ROOT / "tests").rglob("test_*.py")} - {Path(__file__)}
    sources = [path.read_text(encoding="utf-8") for path in tests]
    pages = [path.stem for path in sorted((ROOT / "docs" / "how-to").glob("*.md"))]
    unread = [name for name in pages if not any(name in text for text in sources)]
    assert pages
    assert unread == []


def test_messages_cite_no_file_of_documents() -> None:
    """A wheel has none of them: a message says what to do, or names `relaxpy.explain`."""
    cited = [
        (file, text)
        for file, tree in trees_with(r"\.md\b").items()
        for text in messages_of(tree)
        if re.search(r"\bdocs/|\w\.md\b", text)
    ]
    assert cited == []


# --- operators


def operator_of(node: ast.expr) -> str | None:
    """The operator of Relax that an expression names, as a string or by `Op`."""
    match node:
        case ast.Constant(value=str(name)) if name.startswith("relax."):
            return name if name in Op.list_op_names() else None
        case ast.Call(func=func, args=[name]) if ast.unparse(func) in ("Op", "Op.get"):
            return operator_of(name)
    return None


def tables_of_operators(tree: ast.AST) -> Iterator[int]:
    """The lines of tables and sets of two operators or more."""
    for node in ast.walk(tree):
        keys = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        if sum(key is not None and operator_of(key) is not None for key in keys) > 1:
            yield node.lineno  # type: ignore[attr-defined]


def test_tables_by_operators_are_in_passes_and_beside_the_records() -> None:
    found = [
        f"{file}:{line}"
        for file, tree in trees_with(r"[\"']relax\.|\bOp\b").items()
        for line in tables_of_operators(tree)
    ]
    homes = ("relaxpy/ir/passes/", "relaxpy/ir/ops/", "relaxpy/tvm/")
    assert found
    assert [place for place in found if not place.startswith(homes)] == []


def test_a_table_of_operators_is_found() -> None:
    text = 'A = {"relax.add": 1, "relax.multiply": 2}\nB = {Op("relax.add"), Op.get("relax.exp")}\n'
    assert list(tables_of_operators(ast.parse(text))) == [1, 2]
    assert list(tables_of_operators(ast.parse('A = {"relax.add": 1, "relax.nothing": 2}'))) == []


# --- numbers

TRANSFORM = "relaxpy.ir.passes"
BUDGET = "relaxpy.ir.core.budget"
TEXT = "relaxpy.script.parser.source"
TUNING = "relaxpy.exec.machine.tuning"
GUARD = "relaxpy.script.parser.evaluate.guard"
#: What documents say of constants of the code, with @ for the number, and its unit.
NUMBERS: Mapping[str, Sequence[tuple[str, str, int]]] = {
    "relaxpy/exec/native/README.md": [
        ("kernels with more than @ of them", f"{TUNING}.CodeSize.LONGEST_BLOCK", 1),
        ("has @ KiB of the stack", f"{TUNING}.Allocations.STACK", 1 << 10),
        ("they have at most @ MiB", f"{TUNING}.Kept.DISK", 1 << 20),
    ],
    "relaxpy/exec/README.md": [
        ("than @ MiB of constants that passes", f"{TUNING}.Kept.FOLDED", 1 << 20),
        ("those of @ MiB or more in a function", f"{TUNING}.Kept.PACKED_LAZILY", 1 << 20),
    ],
    "relaxpy/ir/README.md": [
        ("in one, which is @", f"{TRANSFORM}.fusion.fuse_ops.MAX_DEPTH_BY_RULE", 1)
    ],
    "docs/decisions/native-code-by-llvmlite.md": [
        ("with more than @ instructions", f"{TUNING}.CodeSize.LONGEST_BLOCK", 1)
    ],
    "docs/decisions/fusion-without-a-cost-model.md": [
        ("at most @ kernels", f"{TRANSFORM}.fusion.fuse_ops.MAX_DEPTH_BY_RULE", 1)
    ],
    "docs/differences.md": [
        ("of more than @ nodes", "relaxpy.ir.relax.nodes.base_classes.MAX_NODES", 1)
    ],
    "docs/security.md": [
        ("| characters | @ |", f"{BUDGET}.MAX_CHARACTERS", 1),
        ("| tokens | @ |", f"{BUDGET}.MAX_TOKENS", 1),
        ("| steps | @ |", f"{BUDGET}.MAX_STEPS", 1),
        ("filled with one value | @ |", f"{BUDGET}.MAX_BYTES", 1),
        ("that inference visits | @ |", f"{BUDGET}.MAX_TYPE_NODES", 1),
        ("functions inside of each other | @ |", f"{BUDGET}.MAX_DEPTH", 1),
        ("| @ levels of anything |", f"{TEXT}.MAX_DEPTH", 1),
        (
            "at most @ dimensions in a constant",
            "relaxpy.plugins.relay.text.cursor.MAX_DIMENSIONS",
            1,
        ),
        ("@ digits in a number", "relaxpy.plugins.relay.text.printer.MAX_DIGITS", 1),
        ("@ levels of lists", "relaxpy.plugins.relay.text.cursor._MAX_DEPTH", 1),
        ("most @ nodes of statements", "relaxpy.ir.serialize._MAX_WRITTEN_OUT", 1),
        ("@ of a scalar expression", "relaxpy.ir.serialize._MAX_PRIM_EXPR", 1),
        ("the characters of the string | @ |", f"{TEXT}.MAX_SCANNED", 1),
        ("such as a dimension | @ characters", f"{TEXT}.MAX_QUOTED", 1),
        ("| @ | at each |", "relaxpy.script.parser.evaluate.macros.MAX_UNROLLED", 1),
        ("including members of members | @ |", f"{GUARD}.MAX_ITEMS", 1),
        ("that are not strings | @, ", f"{GUARD}.MAX_KEYS", 1),
        (", @ of them with one hash", f"{GUARD}.MAX_COLLISIONS", 1),
        ("bits of an integer | @ |", f"{GUARD}.MAX_BITS", 1),
        ("with dimensions | @ |", "relaxpy.ir.relax.nodes.base_classes.MAX_NODES", 1),
        ("iterators over iterators | @ levels", f"{GUARD}.MAX_NESTED", 1),
        ("in an annotation | @ |", "relaxpy.script.language.annotations.MAX_RANK", 1),
        ("| errors reported | @ |", "relaxpy.script.parser.source.MAX_ERRORS", 1),
        ("a quoted line | @, ", "relaxpy.support.diagnostics.MAX_MESSAGE", 1),
        (", @ and 160 characters", "relaxpy.support.diagnostics.MAX_WORD", 1),
        (" and @ characters |", "relaxpy.support.diagnostics.MAX_LINE", 1),
    ],
}


@pytest.mark.parametrize(
    ("document", "phrase", "name", "unit"),
    [(document, *row) for document, rows in NUMBERS.items() for row in rows],
)
def test_the_number_of_a_document_is_that_of_the_code(document, phrase, name, unit) -> None:
    value = pkgutil.resolve_name(name)
    assert value % unit == 0
    text = " ".join((ROOT / document).read_text(encoding="utf-8").split())
    numbers = (f"{value // unit:,}", str(value // unit))
    assert any(phrase.replace("@", number) in text for number in numbers), (phrase, numbers)


def test_native_code_is_listed_in_the_order_of_its_folders() -> None:
    page = READMES["relaxpy/exec/native"]
    rows = re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)
    floors = FLOORS["relaxpy/exec"].split()
    assert rows == [f.removeprefix("native/") for f in floors if f.startswith("native/")]


# --- what programs do


@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
@pytest.mark.parametrize("end", ["n - 10", "n - 2", "n + 3", "-2", "0 - n", "n // 2"])
def test_computed_bounds_of_slices_have_the_meaning_of_python(end: str, target: str) -> None:
    func = from_source(f"""
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    return R.strided_slice(x, axes=[0], begin=[0], end=[{end}])
""")
    executable = relaxpy.compile(relaxpy.IRModule({"main": func}), target)
    for n in (0, 1, 6, 10, 13):
        x = np.arange(n, dtype="float32")
        np.testing.assert_array_equal(executable["main"](x), x[: eval(end, {"n": n})])


def test_the_importer_of_pytorch_follows_views_and_leaves_the_rest_to_pytorch() -> None:
    torch = pytest.importorskip("torch")
    decompose = importlib.import_module("relaxpy.plugins.torch.decompose")
    followed = importlib.import_module("relaxpy.plugins.torch.mutation").Followed

    class Followed(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            y = x * 2
            y[:, 1].add_(1)
            y.t()[0].mul_(3)
            return y

    class LeftToPyTorch(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            y = x * 2
            y.view(torch.int32).bitwise_and_(0xFF)
            return y

    x = (torch.ones(3, 4),)
    for module, is_followed in ((Followed(), True), (LeftToPyTorch(), False)):
        program = torch.export.export(module, x)
        assert (decompose.functional(program, followed()) is program) == is_followed
