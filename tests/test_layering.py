"""The tree is the architecture: who may import whom, read off the source of every file."""

import ast
import dataclasses
import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from relaxpy.ir.core.target import NAMES
from relaxpy.ir.core.traverse import strongly_connected
from relaxpy.plugin import Plugin

ROOT = Path(__file__).parents[1]
FILES = dict.fromkeys(
    sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "relaxpy").rglob("*.py"))
)

CORE = {"errors", "plugin", "support"}
#: The rooms of the core, and what each may import: only these of ours.
ROOMS = {
    "support": {"errors"},
    "errors": {"support"},
    "plugin": {"errors", "support"},
    "rules": {"errors", "support"},
    "ir": CORE,
    "script": CORE | {"ir"},
    "exec": CORE | {"__version__", "ir"},  # which is a part of keys
}
LANGUAGE = {"errors", "support", "ir"}
#: The plug-ins, and what each may import, beside the plug-ins that its manifest says it needs:
#: of those that are named here, it does without.
PLUGINS = {
    "importing": LANGUAGE | {"exec"},
    "nn": LANGUAGE | {"exec"},
    "weights": LANGUAGE | {"exec"},
    "llm": LANGUAGE | {"__version__", "exec", "relax", "script", "te", "tir"},
    "onnx": LANGUAGE | {"exec"},
    "torch": LANGUAGE | {"exec"},
    "training": LANGUAGE,
    "distributed": LANGUAGE,
    "schedule": LANGUAGE,
    "relay": LANGUAGE | {"exec"},
    "pictures": LANGUAGE,
    "testing": LANGUAGE | {"exec", "script"},
    "cli": LANGUAGE
    | {"__version__", "exec", "llm", "plugin", "plugins.llm", "plugins.onnx", "plugins.pictures"}
    | {"plugins.testing", "relax", "rules", "script", "tir"},
}
ROOMS["tvm"] = LANGUAGE | {"exec", "plugins.nn"}
#: What the manifests say.
MANIFESTS = {
    folder.removeprefix("plugins/"): json.loads(
        (ROOT / "relaxpy" / folder / "manifest.json").read_text("utf-8")
    )
    for folder in (*(f"plugins/{name}" for name in PLUGINS), "tvm")
}
ROOMS |= {
    f"plugins.{name}": allowed | {f"plugins.{need}" for need in MANIFESTS[name].get("needs", ())}
    for name, allowed in PLUGINS.items()
}
#: The rooms of a package whose files import each other in one direction only.
INNER = {
    "relaxpy.ir.arith": {
        "algebra": {"algebra"},
        "stack": set(),
        "engine": {"algebra"},
        "rules": {"algebra", "engine"},  # and no other rule
        "canonical": {"algebra", "engine", "rules", "stack"},
        "prove": {"algebra", "canonical", "engine", "rules"},
        "tvm": {"algebra", "canonical", "engine", "prove", "rules", "stack", "tvm"},
    }
}
#: Files where the name of a target means something else: a package, or the text of a user.
OTHER_WORDS = {
    *("relaxpy/script/parser/evaluate/evaluator.py", "relaxpy/plugins/nn/compiled.py"),
    *("relaxpy/script/language/wording.py", "relaxpy/exec/api/cross.py"),
}
DEPENDENCIES = {"astor", "ml_dtypes", "numpy", "rich", "typing_extensions"}
#: What is there where a room is used.
LOADED_BY = {
    "plugins.onnx": {"onnx", "google"},
    "plugins.torch": {"torch", "sympy"},
    "plugins.weights": {"safetensors", "gguf"},
    "plugins.distributed": {"mpi4py"},
    "plugins.testing": {"hypothesis", "mypy", "pytest"},
    "plugins.cli": {"lsprotocol", "pygls"},
}
#: A file of the lowest floor as it must not be.
LATE_FROM_ABOVE = {
    "relaxpy/ir/core/node.py": "def f():\n from relaxpy.ir.relax.block_builder import builder"
}
LAZY_FACES = {"relaxpy/ir/te/topi/__init__.py"}
RESOLVES_NAMES = {
    *(
        "relaxpy/support/lazy.py",
        "relaxpy/support/missing.py",
        "relaxpy/plugins/relay/op/makers.py",
    ),
    "relaxpy/ir/te/topi/__init__.py",
    "relaxpy/ir/te/topi/functions.py",
    "relaxpy/ir/te/topi/nn.py",
    "relaxpy/ir/op.py",
    "relaxpy/ir/hooks.py",
    "relaxpy/plugin.py",
}
#: Files that start a process with a module of ours as its program.
STARTS_PROGRAMS = {"relaxpy/exec/native/machine_code/self_test.py"}

#: The rooms of each package from the ground up, and the modules beside them: each imports
#: only from those before it. Exempt are `if TYPE_CHECKING` and the faces of folders.
FLOORS = {
    "relaxpy/ir": """
        hooks.py op_families.py op_record.py core global_info.py op.py tir equality relax/nodes
        link.py diagnostics.py module.py analysis.py arith tir/prim_func.py
        tir/analysis serialize.py tir/rewrite
        relax/known.py relax/call_graph.py relax/outputs.py te te/topi short_text
        relax/relations ops/definition ops relax/block_builder
        relax/group_quantization.py relax/analysis pass_infra relax/rewrite
        instrument.py relax/dpl
        passes
        transform.py
    """,
    "relaxpy/exec": """
        machine runtime loops/nest loops/plan loops numpy/python_ast.py numpy/emit numpy
        native/llvm native/machine_code native/threads native/maths native/calls native/trees
        native/values native/contraction native/loops native
        program/memory.py program/lower program/graph program store/container.py store reference
        api/__init__.py api/as_module.py api/stateful.py api/executable.py api/assembled.py
        api/lowered.py api/cross.py api/vm.py api/compile.py api/bind.py api/eager.py
        inspect export/table.py export
    """,
    "relaxpy/script": """
        error_screen.py language printer dist.py ir_builder
        parser/source.py parser/evaluate parser/graph parser/kernel.py parser
        tir.py relax.py ir.py read.py ir_builder/ir ir_builder/tir ir_builder/relax
    """,
    "relaxpy/support": """
        frames.py dataclass.py scopes.py gc_pause.py launched.py absent.py missing.py imported.py
        lazy.py screen.py diagnostics.py progress.py misfit.py entry.py pysource.py
    """,
    "relaxpy/plugins/llm": """
        config.py sampling.py hooks.py decoders.py weight_names.py packed.py tokens.py gguf.py
        adapters.py exported.py compiled.py profiled.py gbnf.py json_schema.py answer_parts.py
        structured.py drafts.py engine.py
        template_process.py template.py hub.py files.py continuation.py
        expressions.py exported_tokens.py exported_page.py perplexity.py language_model.py
        cross_encoder.py
        worker.py connections.py openai_api.py ollama_api.py responses_api.py models.py server.py
    """,
    "relaxpy/plugins/onnx": """
        view.py folding.py context.py ops
        bodies.py importer.py backend.py
    """,
    "relaxpy/plugins/torch": """
        registry.py symbols.py strides.py arrays.py context.py complexes.py mutation.py ops
        backward.py recurrent.py
        decompose.py fx_graph.py importer.py
        api.py models.py dynamo.py
    """,
    "relaxpy/plugins/relay": """
        ty.py expr.py variables.py module.py op/relations.py
        op/registry.py op/struct_info.py op/define.py op analysis.py
        infer saved.py functors.py scope_builder.py transform to_relax.py text run
    """,
    "relaxpy/plugins/testing": """
        mypy_plugin.py random_inputs.py verify.py bisect.py golden.py targets.py strategies.py
        pytest_helpers.py pytest_plugin.py
    """,
    "relaxpy/plugins/pictures": """
        model.py build.py layout.py
        svg.py graph.py chart.py
    """,
    "relaxpy/plugins/cli": """
        show.py sketch.py
        programs.py named_passes.py inputs.py chat_history.py language_models.py
        lsp/findings.py lsp/names.py lsp/answers.py lsp/server.py lsp
        commands.py main.py
    """,
}
#: Nodes some of whose methods are performed by a room above, which they import when called.
PERFORMED_ABOVE = {
    *("relaxpy/ir/core/node.py", "relaxpy/ir/core/types.py"),
    *("relaxpy/ir/tir/prim_expr.py", "relaxpy/ir/tir/buffer.py"),
    *("relaxpy/ir/te/tensor.py", "relaxpy/ir/relax/nodes/base_classes.py"),
    "relaxpy/ir/relax/nodes/function.py",
    *("relaxpy/plugins/relay/ty.py", "relaxpy/plugins/relay/expr.py"),
}
FACES = {
    *(f for f in FILES if "# Written by tools/faces.py" in (ROOT / f).read_text("utf-8")[:500]),
    *("relaxpy/ir/__init__.py", "relaxpy/ir/arith/__init__.py", "relaxpy/ir/relax/__init__.py"),
    *("relaxpy/script/__init__.py", "relaxpy/script/ir_builder/__init__.py"),
    *("relaxpy/plugins/relay/__init__.py", "relaxpy/plugins/cli/__init__.py"),
    *("relaxpy/plugins/onnx/__init__.py", "relaxpy/plugins/llm/__init__.py"),
    *("relaxpy/plugins/torch/__init__.py", "relaxpy/plugins/pictures/__init__.py"),
    *("relaxpy/plugins/testing/__init__.py", "relaxpy/support/__init__.py"),
}


def floor_of(file: str) -> tuple[str, int] | None:
    """The package of a file, and the number of its room there: the innermost that is listed."""
    for package, text in FLOORS.items():
        if file.startswith(f"{package}/") and file not in FACES:
            rooms = text.split()
            inside = file.removeprefix(f"{package}/")
            known = [room for room in rooms if inside == room or inside.startswith(f"{room}/")]
            return package, rooms.index(max(known, key=len)) if known else -1
    return None


class Import(NamedTuple):
    """An import, or a string that is the name of a module or of a part of one."""

    node: ast.Import | ast.ImportFrom
    places: frozenset[str]
    """Of "typing", "function" and "string": what it is in."""


def statements(node: ast.AST, places: frozenset[str]) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """The statements in `node`, and what they are in; expressions have none, and are left out."""
    if isinstance(node, ast.If) and is_type_checking(node):
        places |= {"typing"}
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        places |= {"function"}
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield child, places
            yield from statements(child, places)


@functools.cache  # a file is asked about several times
def imports(text: str, file: str = "") -> list[Import]:
    """The imports of a file, and as such the strings that name modules."""
    tree = ast.parse(text)
    found = [
        Import(node, places)
        for node, places in statements(tree, frozenset())
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    if file in RESOLVES_NAMES | STARTS_PROGRAMS or not re.search(r"[\"']relaxpy\.", text):
        return found
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(value)) if value.startswith("relaxpy."):
                module, _, name = value.partition(":")
                if file_of(module) in FILES:
                    base, _, last = module.rpartition(".")
                    alias = ast.alias(name or last)
                    named = ast.ImportFrom(module if name else base, [alias], 0)
                    found.append(Import(ast.copy_location(named, node), frozenset({"string"})))
    return found


def file_of(module: str) -> str:
    """The file of a module, which may be none."""
    path = module.replace(".", "/")
    return f"{path}.py" if f"{path}.py" in FILES else f"{path}/__init__.py"


def is_type_checking(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def is_exempt(file: str, places: frozenset[str]) -> bool:
    """Whether an import is under `if TYPE_CHECKING`, or in a method that a room above performs."""
    return "typing" in places or ("function" in places and file in PERFORMED_ABOVE)


def arrows_up(file: str, text: str) -> list[str]:
    """The imports of `file` from a room above its own, one line each."""
    home = floor_of(file)
    if home is None:
        return []
    found = []
    for node, places in imports(text, file):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        for alias in node.names:
            path = node.module.replace(".", "/")
            names = (f"{path}/{alias.name}.py", f"{path}/{alias.name}/__init__.py")
            target = next((name for name in names if name in FILES), None)
            module = target or file_of(node.module)
            there = floor_of(module)
            is_above = there is not None and there[0] == home[0] and there[1] > home[1]
            if is_above and not is_exempt(file, places):
                found.append(f"{file}:{node.lineno}: imports {module} from above")
    return found


def home_of(file: str) -> str:
    """The room of a file, empty for public names: those of `ir` stand beside it."""
    return "" if file == "relaxpy/ir/__init__.py" else room_of(module_of(file))


def room_of(module: str) -> str:
    names = module.split(".")[1:3]
    return ".".join(names) if names[:1] == ["plugins"] else names[0] if names else ""


def module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(node: ast.Import | ast.ImportFrom, file: str) -> Iterator[str]:
    """The absolute names of the modules that `node` imports."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            package = Path(file).parts[: -level or None] if level else ()
            base = ".".join([*package, *([module] if module else [])])
            yield from (f"{base}.{alias.name}" if base == "relaxpy" else base for alias in names)


def inner_room(package: str, module: str) -> str:
    """The room of `module` in `package`, empty for its face and for what is not in it."""
    return module.removeprefix(f"{package}.").split(".")[0] if module != package else ""


def circle(package: str, texts: Mapping[str, str]) -> list[str]:
    """Modules of `package` that import each other in turn, wherever the imports stand."""
    modules = {module_of(file): file for file in texts if module_of(file) != package}
    graph: dict[str, set[str]] = {}
    for module, file in modules.items():
        names = {
            name
            for node, _ in imports(texts[file], file)
            for name in (*imported(node, file), *members(node))
        }
        graph[module] = names & modules.keys()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def graph_of(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The modules that each module of `texts` imports, wherever the imports stand."""
    modules = {module_of(file): file for file in texts}
    graph = {}
    for module, file in modules.items():
        graph[module] = [
            next((m for m in (f"{name}.{alias.name}", name) if m in modules), module)
            for node, places in imports(texts[file], file)
            if "typing" not in places
            for name in imported(node, file)
            for alias in node.names
        ]
    return graph


def largest_circle(graph: Mapping[str, list[str]]) -> list[str]:
    """The most modules that import each other in turn."""
    circles = strongly_connected(graph)
    return sorted(max(circles, key=len))


def members(node: ast.AST) -> Iterator[str]:
    """What an absolute import takes from a module, by its full name: this may be a module too."""
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def faults(file: str, text: str) -> list[str]:
    """What in the text of `file` goes against the architecture, one line each."""
    room = home_of(file)
    nodes = imports(text, file)
    names = [(node.lineno, name) for node, _ in nodes for name in imported(node, file)]
    found = []
    if room in ROOMS:
        found += [
            f"{file}:{line}: {room} imports {name}"
            for line, name in names
            if name.split(".")[0] == "relaxpy" and room_of(name) not in ROOMS[room] | {room}
        ]
    for package, rooms in INNER.items():
        inner = inner_room(package, module_of(file))
        if module_of(file).startswith(f"{package}.") and inner in rooms:
            found += [
                f"{file}:{line}: {inner} imports {name}"
                for line, name in names
                if name.startswith(package) and inner_room(package, name) not in rooms[inner]
            ]
    if room not in ROOMS or file in LAZY_FACES:
        tree = ast.parse(text)
        found += [
            f"{file}:{node.lineno}: a face defines {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and not (file in LAZY_FACES and node.name in {"__getattr__", "__dir__"})
            # What type checkers read where a function finds the names.
            and not (node.name == "__getattr__" and node not in tree.body)
        ]
    if file != "relaxpy/support/pysource.py":
        found += [
            f"{file}:{line}: astor is for pysource alone"
            for line, name in names
            if name.split(".")[0] == "astor"
        ]
    if file != "relaxpy/exec/native/machine_code/machine.py":
        found += [
            f"{file}:{line}: llvmlite is for exec/native/machine_code alone"
            for line, name in names
            if name.split(".")[0] == "llvmlite"
        ]
    if room in {"", "ir"} and file not in RESOLVES_NAMES:
        found += [
            f"{file}:{line}: modules are named in strings in ir/hooks.py alone"
            for line, name in names
            if name.split(".")[0] == "importlib"
        ]
    known = {"relaxpy", *DEPENDENCIES, *LOADED_BY.get(room, ()), *sys.stdlib_module_names}
    found += [
        f"{file}:{node.lineno}: {name} is not a dependency that is always there"
        for node, places in nodes
        if not places & {"function", "string"}
        for name in imported(node, file)
        if name.split(".")[0] not in known
    ]
    return found


def targets_in_code(file: str, tree: ast.AST) -> list[str]:
    """The places that ask which target or back end there is, and not what it can do."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=[right, *_]):
                sides = [n for x in (left, right) for n in (x, *getattr(x, "elts", ()))]
                names = [n.value for n in sides if isinstance(n, ast.Constant) and n.value in NAMES]
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                words = [n.id for n in ast.walk(kinds) if isinstance(n, ast.Name)]
                names = [word for word in words if word.endswith("Backend")]
            case _:
                continue
        found += [f"{file}:{node.lineno}: is it {name}?" for name in names]
    return [] if file in OTHER_WORDS else found


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_names_what_there_is(name: str) -> None:
    """All that it names is in the plug-in itself, or a public name, and can be found."""
    kinds = {field.name for field in dataclasses.fields(Plugin)}
    assert MANIFESTS[name].keys() <= kinds
    needs, *others = (MANIFESTS[name].get(kind, ()) for kind in ("needs", *(kinds - {"needs"})))
    assert {*needs} <= MANIFESTS.keys()
    for place in (p for table in others for p in getattr(table, "values", lambda t=table: t)()):
        file = place.partition(":")[0].replace(".", "/")
        assert f"{file}.py" in FILES or f"{file}/__init__.py" in FILES, place


def plug_ins_in_text(file: str, tree: ast.AST) -> list[str]:
    """The strings of a file of the core that name a module of a plug-in."""
    return [
        f"{file}:{node.lineno}: names {found[0]}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for found in [re.search(r"\brelaxpy[./](plugins[./]\w+|tvm\b)", node.value)]
        if found and home_of(file) in CORE | {"ir", "script", "exec", "rules"}
    ]


def test_the_core_names_no_plug_in_in_strings() -> None:
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in FILES}
    some = [file for file in FILES if re.search(r"relaxpy[./](plugins|tvm)", texts[file])]
    assert [x for file in some for x in plug_ins_in_text(file, ast.parse(texts[file]))] == []


@pytest.mark.parametrize(
    "text",
    ['x.startswith("relaxpy.plugins.relay.")', 'f("relaxpy.tvm:a")', '"""See relaxpy/tvm."""'],
)
def test_a_string_that_names_a_plug_in_is_found(text: str) -> None:
    assert plug_ins_in_text("relaxpy/ir/a.py", ast.parse(text))
    assert not plug_ins_in_text("relaxpy/plugins/nn/a.py", ast.parse(text))
    assert not plug_ins_in_text("relaxpy/ir/a.py", ast.parse('GROUP = "relaxpy.plugins"'))


def test_every_module_has_a_floor() -> None:
    assert [file for file in FILES if floor_of(file) in {(package, -1) for package in FLOORS}] == [
        "relaxpy/exec/__init__.py"
    ]


def test_imports_follow_the_architecture_and_run_down() -> None:
    """What a room may import, it imports; and nothing else."""
    found: list[str] = []
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for file in FILES:
        text = (ROOT / file).read_text(encoding="utf-8")
        found += arrows_up(file, text) + faults(file, text)
        names = [name for node, _ in imports(text, file) for name in imported(node, file)]
        used.setdefault(home_of(file), set()).update(
            room_of(name) for name in names if name.split(".")[0] == "relaxpy"
        )
    assert found == []
    unused = {room: allowed - used[room] - {room} for room, allowed in ROOMS.items()}
    assert unused == {room: set() for room in ROOMS}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("relaxpy/ir/core/node.py", "from relaxpy.ir.tir import expr"),
        ("relaxpy/ir/relax/nodes/expr.py", "from relaxpy.ir.relax.relations import is_base_of"),
        ("relaxpy/ir/ops/a.py", "def f():\n from relaxpy.ir.relax.dpl.matcher import a"),
        ("relaxpy/exec/loops/a.py", "from relaxpy.exec.api import vm"),
        ("relaxpy/exec/loops/a.py", 'late("relaxpy.exec.api.vm")'),
        ("relaxpy/exec/loops/a.py", 'A = ["relaxpy.exec.api.vm:VirtualMachine"]'),
    ],
)
def test_an_import_from_above_is_found(file: str, text: str) -> None:
    [found] = arrows_up(file, text)
    assert "from above" in found


def test_code_asks_what_a_target_can_do_and_not_which_it_is() -> None:
    """`relaxpy/ir/core/target.py` has a table of what each can do, and back ends have methods."""
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in FILES}
    some = [file for file in FILES if re.search(rf'"({"|".join(NAMES)})"|Backend\b', texts[file])]
    assert [x for file in some for x in targets_in_code(file, ast.parse(texts[file]))] == []
    assert all({*NAMES} & set(re.findall(r'"(\w+)"', texts[file])) for file in OTHER_WORDS)


@pytest.mark.parametrize(
    "text",
    [
        'if target == "native": 0',
        'x = name not in ("numpy", "reference")',
        'x = 1 if "numpy" != f(y) else 2',
        "isinstance(backend, GraphBackend)",
        "isinstance(x, (int, m.Backend | NumpyBackend))",
    ],
)
def test_a_comparison_of_targets_is_found(text: str) -> None:
    assert targets_in_code("relaxpy/exec/a.py", ast.parse(text))
    assert not targets_in_code("relaxpy/exec/a.py", ast.parse('run(x, target="native") == "c"'))


@pytest.mark.parametrize("package", INNER)
def test_no_files_of_a_package_import_each_other_in_turn(package: str) -> None:
    home = f"{package.replace('.', '/')}/"
    texts = {f: (ROOT / f).read_text(encoding="utf-8") for f in FILES if f.startswith(home)}
    assert circle(package, texts) == []


def test_few_files_import_each_other_in_turn() -> None:
    """Late imports are counted, and faces are not: they import what they name on first use."""
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in FILES}
    own = {f: text for f, text in texts.items() if "\n# Written by tools/faces.py" not in text}
    assert len(found := largest_circle(graph_of(own))) <= 10, found
    assert len(largest_circle(graph_of({**own, **LATE_FROM_ABOVE}))) > 10


def test_a_circle_of_imports_inside_functions_is_found() -> None:
    package = "relaxpy.ir.arith"
    texts = {
        "relaxpy/ir/arith/__init__.py": "from relaxpy.ir.arith.a import x",
        "relaxpy/ir/arith/a.py": "from relaxpy.ir.arith.b import y",
        "relaxpy/ir/arith/b.py": "def f():\n from relaxpy.ir.arith import a",
    }
    assert sorted(set(circle(package, texts))) == [f"{package}.a", f"{package}.b"]
    del texts["relaxpy/ir/arith/b.py"]
    assert circle(package, texts) == []


@pytest.mark.parametrize("package", INNER)
def test_every_file_of_a_package_is_in_one_of_its_rooms(package: str) -> None:
    modules = {m for m in map(module_of, FILES) if m.startswith(f"{package}.")}
    assert {inner_room(package, module) for module in modules} == INNER[package].keys()


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("relaxpy/errors.py", "import relaxpy.ir", "errors imports relaxpy.ir"),
        ("relaxpy/support/pysource.py", "from relaxpy import ir", "support imports relaxpy.ir"),
        ("relaxpy/ir/core/node.py", "import relaxpy", "ir imports relaxpy"),
        ("relaxpy/ir/tir/expr.py", "from ...script import I", "ir imports relaxpy.script"),
        ("relaxpy/ir/a.py", "def f():\n from relaxpy.exec import b", "ir imports relaxpy.exec"),
        (
            "relaxpy/ir/arith/rules/bounds.py",
            "from relaxpy.ir.arith.rules.bounds import of_poly",
            "rules imports relaxpy.ir.arith.rules.bounds",
        ),
        (
            "relaxpy/ir/arith/algebra/poly.py",
            "def f():\n from relaxpy.ir.arith import canonical",
            "algebra imports relaxpy.ir.arith",
        ),
        (
            "relaxpy/ir/arith/canonical.py",
            "from relaxpy.ir.arith.tvm import analyzer",
            "canonical imports relaxpy.ir.arith.tvm",
        ),
        ("relaxpy/ir/a.py", "import importlib", "modules are named in strings"),
        ("relaxpy/script/__init__.py", "from ..exec import a", "script imports relaxpy.exec"),
        ("relaxpy/exec/a.py", "from relaxpy import tir", "exec imports relaxpy.tir"),
        ("relaxpy/exec/a.py", "from relaxpy.relax import op", "exec imports relaxpy.relax"),
        ("relaxpy/exec/a.py", "def f():\n import astor", "astor is for pysource alone"),
        ("relaxpy/exec/a.py", "def f():\n import llvmlite.binding", "llvmlite is for exec/native"),
        (
            "relaxpy/exec/native/machine_code/machine.py",
            "import llvmlite",
            "llvmlite is not a dependency",
        ),
        ("relaxpy/exec/a.py", "try:\n import torch\nfinally: 0", "torch is not a dependency"),
        ("relaxpy/support/screen.py", "import pytest", "pytest is not a dependency"),
        (
            "relaxpy/plugins/onnx/a.py",
            "import relaxpy.plugins.torch",
            "imports relaxpy.plugins.torch",
        ),
        ("relaxpy/exec/a.py", "import relaxpy.plugins.nn", "exec imports relaxpy.plugins.nn"),
        ("relaxpy/tir.py", "def f(): ...", "a face defines f"),
        ("relaxpy/__init__.py", "class A: ...", "a face defines A"),
    ],
)
def test_an_import_against_the_architecture_is_found(file: str, text: str, fault: str) -> None:
    [found] = faults(file, text)
    assert fault in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("relaxpy/ir/ops/base.py", "from ..tir import expr\nfrom . import info"),
        ("relaxpy/ir/te/topi/__init__.py", "def __getattr__(name): ..."),
        ("relaxpy/script/a.py", "from relaxpy import errors, support\nimport rich.console"),
        ("relaxpy/exec/a.py", "def f():\n import torch"),
        ("relaxpy/tir.py", "from relaxpy.exec import a\nfrom relaxpy.ir.tir.expr import Add"),
    ],
)
def test_an_import_along_the_architecture_passes(file: str, text: str) -> None:
    assert faults(file, text) == []
