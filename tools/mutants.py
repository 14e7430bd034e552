"""Mutation testing: change one thing in the package and see whether a test fails.

Run `make mutants`, or `python tools/mutants.py --area relations --sample 100 --seed 7`.

1. Record, once for each state of the code: the tests of an area run under coverage, which records
   which tests execute each line and how long each takes.
2. List the mutants of each module: one changed operator, constant, condition, argument, statement
   or case. Annotations, docstrings and the wording of messages are not mutated.
3. For each mutant of a random sample: a forked process imports the package with the mutated module
   and runs the tests that execute the changed line, until one fails: those of the quick layer
   first, and the fastest first. What only slow tests notice is printed with the test.

A mutant that no test notices survives and is printed with its line. A mutant counts as killed if a
test fails, if the package cannot be imported, or if the process crashes or does not end. Any other
failure stops the run, and so does a failure of the control trial, which changes nothing.
Equivalent mutants, which no test can detect because the changed program means the same, are listed
with the reason in `tools/equivalent_mutants.txt`; they do not count.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.layers import is_slow, listed  # noqa: E402

RECORDS = ROOT / ".mutants"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.txt"

RELAX = "relaxpy/ir/relax"
RELATIONS = f"{RELAX}/relations"
KERNEL = "relaxpy/exec/loops"
OF_RELAX = "tests/ir/relax"


def below(folder: str) -> tuple[str, ...]:
    """The modules below a folder."""
    found = sorted((ROOT / folder).rglob("*.py"))
    return tuple(path.relative_to(ROOT).as_posix() for path in found)


#: Each area: the modules to mutate, and the tests that are written for the area. A mutant that only
#: other tests detect counts as a survivor.
AREAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "relations": (
        (
            *(f"{RELATIONS}/{n}.py" for n in ("compatibility", "shape_vars")),
            f"{RELAX}/nodes/static_type.py",
        ),
        (
            *(f"{OF_RELAX}/test_relations_{n}.py" for n in ("bounds", "compatibility", "erasure")),
            *(f"{OF_RELAX}/test_relations_{n}.py" for n in ("laws", "order")),
            *(
                f"{OF_RELAX}/test_{n}.py"
                for n in ("growth", "infer", "sizes", "struct_info", "utils", "well_formed")
            ),
            *("tests/exec/test_match_cast.py", "tests/tvm/test_realize_vdevice.py"),
        ),
    ),
    "derivation": (
        (
            *(f"{RELAX}/block_builder/{n}.py" for n in ("derive", "infer", "normalize")),
            f"{RELATIONS}/shape_vars.py",
        ),
        (
            *(
                f"{OF_RELAX}/test_{n}.py"
                for n in (
                    "bind",
                    "builder",
                    "stronger_annotations",
                    "infer",
                    "fnormalize",
                    "growth",
                    "infer_errors",
                    "inline",
                    "struct_info",
                    "normalize",
                    "normalize_moved",
                    "sized_programs",
                    "sizes",
                    "utils",
                    "well_formed",
                    "well_formed_scopes",
                )
            ),
            *(
                f"{OF_RELAX}/test_relations_{n}.py"
                for n in ("bounds", "compatibility", "erasure", "order")
            ),
            *(f"tests/ir/ops/test_{n}.py" for n in ("call", "inspect")),
            "tests/ir/passes/test_runtime_lowering.py",
            "tests/ir/test_sharing.py",
            *(f"tests/script/test_{n}.py" for n in ("errors_relax", "parse_graphs")),
        ),
    ),
    "well-formedness": (
        tuple(f"{RELAX}/analysis/{n}.py" for n in ("effects", "survey", "well_formed")),
        (
            *(f"{OF_RELAX}/test_{n}.py" for n in ("stronger_annotations", "infer", "normalize")),
            f"{OF_RELAX}/test_well_formed.py",
            *(f"{OF_RELAX}/test_well_formed_{n}.py" for n in ("positions", "scopes")),
            f"{OF_RELAX}/analysis",
            "tests/ir/passes/test_dead_code_elimination.py",
            *(f"{OF_RELAX}/dpl/test_rewrite_{n}.py" for n in ("bindings", "call")),
            "tests/script/test_errors_relax.py",
        ),
    ),
    "dependence": (
        tuple(f"{KERNEL}/plan/{n}.py" for n in ("dependence", "memory")),
        ("tests/exec/loops", "tests/exec/native/test_loops.py", "tests/fuzz"),
    ),
    "schedule": (
        tuple(f"{KERNEL}/plan/{n}.py" for n in ("schedule", "unschedule", "initialisation")),
        ("tests/exec/loops", "tests/fuzz"),
    ),
    "nodes": (
        (*below(f"{RELAX}/nodes"), *below("relaxpy/ir/core")),
        (
            *(
                f"tests/ir/test_{n}.py"
                for n in (
                    *("dtype", "memo", "nodes", "nodes_errors", "nodes_module", "nodes_traverse"),
                    *("serialize", "sharing", "structural", "target", "text"),
                )
            ),
            *(f"{OF_RELAX}/test_{n}.py" for n in ("struct_info", "utils")),
            *("tests/ir/ops/test_operators.py", "tests/exec/test_tensors.py"),
            *(f"tests/script/test_parse_{n}.py" for n in ("distributed", "python_functions")),
        ),
    ),
    "kernels": (
        below("relaxpy/ir/tir"),
        (
            *("tests/ir/tir", "tests/ir/test_prim_expr.py", "tests/ir/test_nodes_kernels.py"),
            *(f"tests/plugins/schedule/test_schedule_{n}.py" for n in ("errors", "forms")),
            *(f"tests/script/test_{n}.py" for n in ("external_kernels", "parse_kernels")),
            *(f"tests/ir/{n}.py" for n in ("passes/test_distributed_passes", "test_structural")),
            *(f"tests/exec/loops/test_{n}.py" for n in ("coverage", "forms")),
            *("tests/exec/native/test_intrinsics.py", "tests/ir/te/test_create_prim_func.py"),
        ),
    ),
    "parser": (below("relaxpy/script/parser"), ("tests/script",)),
}
#: Seconds of recorded test time that one mutant may take before it counts as a survivor.
BUDGET = 30.0
#: Seconds after which a mutant counts as killed, because it does not end.
LIMIT = 240.0
#: Bytes of address space after which a mutant runs out of memory.
MEMORY = 8 << 30
#: Verdicts that are not the name of a test.
SURVIVED, NO_IMPORT, CRASH, NO_END = "survived", "no import", "a crash", "no end"
#: The prefix of a verdict if neither a test nor the package has failed, but the trial itself.
FAULT = "fault: "
#: Rewritten assertions would load the package past the mutated module.
PYTEST = ["-q", "-p", "no:cacheprovider", "--assert=plain"]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}
#: Calls whose text arguments are the wording of a message.
MESSAGES = ("error", "Error", "diagnostic", "warn", "hint")


@dataclass(frozen=True)
class Mutant:
    """One change of one module: the nodes are counted in the order of `ast.walk`.

    `statement` is the first line of the statement that the node is in.
    """

    file: str
    line: int
    statement: int
    change: str
    position: int
    variant: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.change}"


# --- the mutants of a module ----------------------------------------------------------------------


def _unmutated(tree: ast.Module) -> set[int]:
    """The ids of nodes that are not mutated: annotations, docstrings, types, messages."""
    skipped: set[int] = set()

    def skip(node: ast.AST | None) -> None:
        if node is not None:
            skipped.update(map(id, ast.walk(node)))

    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                skip(annotation)
            case ast.FunctionDef(returns=returns):
                skip(returns)
            case ast.Subscript(value=ast.Name(id="Literal")):
                skip(node)
            case ast.keyword(arg="strict"):  # of zip: an assertion
                skip(node)
            case ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
                skip(node)
            case ast.Assert() | ast.Import() | ast.ImportFrom() | ast.JoinedStr():
                skip(node)
            case ast.ClassDef(decorator_list=decorators):
                for decorator in decorators:
                    skip(decorator)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                skip(node)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("__"):
                skip(node)
            case ast.Expr(value=ast.Constant(value=str())):
                skip(node)
            case ast.Call(func=ast.Name(id="cast" | "assert_never" | "TypeVar")):
                skip(node)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name.endswith(
                MESSAGES
            ):
                for child in ast.walk(node):
                    if isinstance(child, ast.Constant) and isinstance(child.value, str):
                        skipped.add(id(child))
    return skipped


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], ast.AST]]]:
    """The changes of a node: a name, and a function from the node to the changed node."""
    match node:
        case ast.Compare(ops=ops):
            for k, op in enumerate(ops):
                other = COMPARISONS[type(op)]

                def compare(n: Any, k: int = k, other: type[ast.cmpop] = other) -> ast.AST:
                    n.ops[k] = other()
                    return n

                yield f"{type(op).__name__} -> {other.__name__}", compare
        case ast.BoolOp(op=op, values=values):
            swapped = ast.Or if isinstance(op, ast.And) else ast.And

            def swap(n: Any, swapped: type[ast.boolop] = swapped) -> ast.AST:
                n.op = swapped()
                return n

            yield f"{type(op).__name__} -> {swapped.__name__}", swap
            for k, value in enumerate(values):

                def drop(n: Any, k: int = k) -> ast.AST:
                    del n.values[k]
                    return n if len(n.values) > 1 else n.values[0]

                yield f"without `{ast.unparse(value)}`", drop
        case ast.UnaryOp(op=ast.Not()):
            yield "not x -> x", lambda n: n.operand
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            changed = OPERATORS[type(op)]

            def operate(n: Any, changed: type[ast.operator] = changed) -> ast.AST:
                n.op = changed()
                return n

            yield f"{type(op).__name__} -> {changed.__name__}", operate
        case ast.Constant(value=bool() as value):
            yield f"{value} -> {not value}", lambda n: ast.Constant(not n.value)
        case ast.Constant(value=int() as value):
            yield f"{value} -> {value + 1}", lambda n: ast.Constant(n.value + 1)
        case ast.Constant(value=str() as value) if value and " " not in value:
            yield f"{value!r} -> {value + '_'!r}", lambda n: ast.Constant(n.value + "_")
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):

            def negate(n: Any) -> ast.AST:
                n.test = ast.UnaryOp(ast.Not(), n.test)
                return n

            yield f"if {ast.unparse(test)} -> if not", negate
        case ast.comprehension(ifs=[first, *_]):

            def unfilter(n: Any) -> ast.AST:
                n.ifs = n.ifs[1:]
                return n

            yield f"comprehension without `if {ast.unparse(first)}`", unfilter
        case ast.match_case(guard=ast.expr() as guard):

            def unguard(n: Any) -> ast.AST:
                n.guard = ast.Constant(True)
                return n

            def shut(n: Any) -> ast.AST:
                n.guard = ast.Constant(False)
                return n

            yield f"case without `if {ast.unparse(guard)}`", unguard
            yield f"case {ast.unparse(node.pattern)} if ... never taken", shut
        case ast.match_case(pattern=pattern) if not isinstance(pattern, ast.MatchAs):

            def close(n: Any) -> ast.AST:
                n.guard = ast.Constant(False)
                return n

            yield f"case {ast.unparse(pattern)} never taken", close
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:

            def call(n: Any) -> ast.AST:
                n.func.id = CALLS[n.func.id]
                return n

            yield f"{name} -> {CALLS[name]}", call
        case ast.Call(keywords=keywords):
            for k, keyword in enumerate(keywords):
                if keyword.arg is not None and keyword.arg not in (
                    "span",
                    "hint",
                    "suppress_warnings",
                    "strict",
                ):

                    def unset(n: Any, k: int = k) -> ast.AST:
                        del n.keywords[k]
                        return n

                    yield f"{ast.unparse(node.func)}(...) without {keyword.arg}=", unset
        case ast.Break():
            yield "break -> continue", lambda n: ast.Continue()
        case ast.Continue():
            yield "continue -> break", lambda n: ast.Break()
        case ast.Raise(exc=ast.expr()):
            yield "raise -> pass", lambda n: ast.Pass()
        case ast.AugAssign():
            yield ("x op= y -> x = y", lambda n: ast.Assign([n.target], n.value, lineno=n.lineno))
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom() as value):
            kept = isinstance(value, ast.Yield | ast.YieldFrom)
            # A generator stays one without its last yield.
            yield (
                f"without `{ast.unparse(value)[:60]}`",
                lambda n, kept=kept: (
                    ast.Expr(ast.YieldFrom(ast.Tuple([], ast.Load()))) if kept else ast.Pass()
                ),
            )
        case _:
            pass


def mutants_of(file: str) -> list[Mutant]:
    """The mutants of a module, in the order of its text."""
    tree = ast.parse((ROOT / file).read_text())
    skipped = _unmutated(tree)
    statements: dict[int, int] = {}
    for node in ast.walk(tree):  # inner statements come after those that contain them
        if isinstance(node, ast.stmt):
            statements.update((id(child), node.lineno) for child in ast.walk(node))
    mutants: list[Mutant] = []
    counts: Counter[tuple[int, str]] = Counter()
    for position, node in enumerate(ast.walk(tree)):
        if id(node) not in statements or id(node) in skipped:
            continue
        for variant, (change, _) in enumerate(changes(node)):
            line, text = _line(node), " ".join(change.split())
            counts[line, text] += 1
            if (count := counts[line, text]) > 1:
                text = f"{text} ({count})"
            mutants.append(Mutant(file, line, statements[id(node)], text, position, variant))
    return sorted(mutants, key=lambda m: (m.line, m.position, m.variant))


def _line(node: ast.AST) -> int:
    """The line whose execution reaches a node."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    if isinstance(node, ast.comprehension):
        return node.iter.lineno
    return int(getattr(node, "lineno", 1))


def mutated(tree: ast.Module, position: int, variant: int) -> ast.Module:
    """Apply one change to one node of a tree."""
    target = next(n for k, n in enumerate(ast.walk(tree)) if k == position)
    change = list(changes(target))[variant][1]
    replacement = change(copy.deepcopy(target))

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return replacement if node is target else self.generic_visit(node)

    changed: ast.Module = Replace().visit(tree)
    return ast.fix_missing_locations(changed)


def _code_of(mutant: Mutant) -> CodeType:
    """Compile the module with the change applied."""
    path = ROOT / mutant.file
    changed = mutated(ast.parse(path.read_text()), mutant.position, mutant.variant)
    return compile(changed, str(path), "exec")


# --- which tests execute which lines --------------------------------------------------------------


class Recorder:
    """A pytest plugin: passes the running test to coverage, and records the time of each test."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Attribute the lines that run from here on to this test."""
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add the time of one phase."""
        before = self.seconds.get(report.nodeid, 0.0)
        self.seconds[report.nodeid] = before + report.duration


def _state_of(tests: tuple[str, ...]) -> str:
    digest = hashlib.sha256(repr(tests).encode())
    for path in sorted([*ROOT.glob("relaxpy/**/*.py"), *ROOT.glob("tests/**/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def record(area: str) -> dict[str, Any]:
    """The tests that execute each line of an area, from a file for this state of code."""
    files, tests = AREAS[area]
    path = RECORDS / f"{area}-{_state_of(tests)}.json"
    if not path.exists():
        RECORDS.mkdir(exist_ok=True)
        print(f"{area}: running {' '.join(tests)} under coverage", flush=True)
        child = os.fork()
        if child == 0:
            _record_here(files, tests, path)
            os._exit(0)
        os.waitpid(child, 0)
    recorded: dict[str, Any] = json.loads(path.read_text())
    return recorded


def _record_here(files: tuple[str, ...], tests: tuple[str, ...], path: Path) -> None:
    import coverage
    import pytest

    measured = coverage.Coverage(include=[str(ROOT / f) for f in files], data_file=None)
    measured.start()
    recorder = Recorder(measured)
    code = pytest.main([*PYTEST, *tests], [recorder])
    measured.stop()
    if code != 0:
        sys.exit("the tests fail without any mutant")
    lines: dict[str, dict[str, list[str]]] = {}
    for file in files:
        contexts = measured.get_data().contexts_by_lineno(str(ROOT / file))
        lines[file] = {str(n): sorted(filter(None, names)) for n, names in contexts.items()}
    path.write_text(json.dumps({"lines": lines, "seconds": recorder.seconds}))


@functools.cache
def slow_tests() -> frozenset[str]:
    """The entries of the table of slow tests."""
    return frozenset(listed())


def tests_for(mutant: Mutant, recorded: dict[str, Any], killers: dict[str, int]) -> list[str]:
    """The tests that execute the mutant's line: quick ones, recent killers, the fastest."""
    lines = recorded["lines"][mutant.file]
    seconds = recorded["seconds"]
    names = lines.get(str(mutant.line)) or lines.get(str(mutant.statement), ())
    if not names:  # a line that only the import executes
        names = sorted({name for covering in lines.values() for name in covering})
    slow = slow_tests()
    ordered = sorted(
        names, key=lambda t: (is_slow(t, slow), -killers.get(t, 0), seconds.get(t, 0.0))
    )
    chosen, total = [], 0.0
    for name in ordered:
        total += seconds.get(name, 0.0)
        if chosen and total > BUDGET:
            break
        chosen.append(name)
    return chosen


# --- running one mutant ---------------------------------------------------------------------------


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class Finder(importlib.abc.MetaPathFinder):
    """Finds the mutated module before the usual finders do."""

    def __init__(self, file: str, code: CodeType) -> None:
        self.name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.file, self.code = ROOT / file, code

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """The spec of the mutated module, if that is requested."""
        if fullname != self.name:
            return None
        loader = _Loader(fullname, str(self.file), self.code)
        return importlib.util.spec_from_file_location(fullname, self.file, loader=loader)


class _First:
    """A pytest plugin: runs tests in this order, and records the first failure, of a file perhaps.

    Tests that a mutant gives other names, which may hold values of the package, are left out.
    """

    def __init__(self, tests: list[str]) -> None:
        self.places = {name: k for k, name in enumerate(tests)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out tests of other names."""
        found = [item for item in items if item.nodeid in self.places]
        items[:] = sorted(found, key=lambda item: self.places[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    pytest_collectreport = pytest_runtest_logreport


@dataclass(frozen=True)
class Trial:
    """A forked process in which the tests of one mutant run."""

    mutant: Mutant | None
    process: int
    answers: int
    started: float

    def verdict(self) -> str | None:
        """None while the trial runs, then 'survived', or what killed the mutant.

        Errors:
            RuntimeError: the trial itself has failed.
        """
        ended = os.waitpid(self.process, os.WNOHANG)[0] != 0
        late = time.monotonic() - self.started > LIMIT
        if not (ended or late):
            return None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, signal.SIGKILL)
        if not ended:
            os.waitpid(self.process, 0)
        with os.fdopen(self.answers, "rb") as source:
            answer = source.read().decode()
        if answer.startswith(FAULT):
            raise RuntimeError(f"{self.mutant}: {answer}")
        return (answer or CRASH) if ended else NO_END


def begin(mutant: Mutant, tests: list[str]) -> Trial:
    """Start the tests of a mutant in a separate process."""
    return start(mutant, Finder(mutant.file, _code_of(mutant)), tests)


def start(mutant: Mutant | None, finder: Finder | None, tests: list[str]) -> Trial:
    """Start tests in a separate process, with the finder's module if there is a finder."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        os.setpgrp()
        _run_here(finder, tests, writing)
    os.close(writing)
    return Trial(mutant, process, reading, time.monotonic())


def _run_here(finder: Finder | None, tests: list[str], writing: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        answer = _answer(finder, tests)
    except BaseException as error:
        answer = f"{FAULT}{error!r}"
    os.write(writing, answer.encode())
    os._exit(0)


def _answer(finder: Finder | None, tests: list[str]) -> str:
    import pytest

    if finder is not None:
        sys.meta_path.insert(0, finder)
        try:
            importlib.import_module(finder.name)
        except Exception:
            return NO_IMPORT
    first = _First(tests)
    files = dict.fromkeys(name.partition("::")[0] for name in tests)
    code = pytest.main([*PYTEST, "-x", *files], [first])
    renamed = finder is not None and code == pytest.ExitCode.NO_TESTS_COLLECTED
    if renamed or code == pytest.ExitCode.OK:
        return SURVIVED
    return first.failed or f"{FAULT}pytest ends with {code!r} and no test failed"


# --- the command ----------------------------------------------------------------------------------


def equivalent() -> dict[str, str]:
    """The equivalent mutants with reasons, by `file: change | text of the line`."""
    if not EQUIVALENT.exists():
        return {}
    rows = [r for r in EQUIVALENT.read_text().splitlines() if r and not r.startswith("#")]
    return dict(tuple(row.split("  # ", 1)) for row in rows)  # type: ignore[misc]


def identity(mutant: Mutant) -> str:
    """A name for a mutant that does not depend on changes elsewhere in its file."""
    line = (ROOT / mutant.file).read_text().splitlines()[mutant.line - 1].strip()
    return f"{mutant.file}: {mutant.change} | {line}"


def run_area(area: str, sample: int, seed: int, jobs: int) -> tuple[int, list[Mutant]]:
    """Try mutants of an area; return their number, and those that survived."""
    recorded = record(area)
    known = equivalent()
    candidates = [m for file in AREAS[area][0] for m in mutants_of(file)]
    possible = [m for m in candidates if identity(m) not in known]
    random.Random(f"{seed}-{area}").shuffle(possible)
    chosen = possible[: sample or len(possible)]
    print(
        f"{area}: {len(chosen)} of {len(candidates)} mutants, seed {seed}; "
        f"{len(candidates) - len(possible)} are listed as equivalent",
        flush=True,
    )
    killers: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    survivors: list[Mutant] = []
    verdicts: Counter[str] = Counter()

    every = sorted(recorded["seconds"], key=recorded["seconds"].__getitem__)
    control = start(None, None, every[: len(every) // 2 : 5])
    while (verdict := control.verdict()) is None:
        time.sleep(0.02)
    if verdict != SURVIVED:
        raise RuntimeError(f"{verdict} without any change")

    remaining, running = list(reversed(chosen)), list[Trial]()
    while remaining or running:
        while remaining and len(running) < jobs:
            mutant = remaining.pop()
            running.append(begin(mutant, tests_for(mutant, recorded, killers[mutant.file])))
        time.sleep(0.02)
        for trial in running[:]:
            verdict = trial.verdict()
            if verdict is None:
                continue
            running.remove(trial)
            mutant = trial.mutant
            assert mutant is not None
            if not verdict.startswith("tests"):
                verdicts[verdict] += 1
            elif is_slow(verdict, slow_tests()):
                verdicts["a slow test alone"] += 1
                print(f"  quick tests miss  {mutant}\n            {verdict}", flush=True)
            else:
                verdicts["a quick test"] += 1
            if verdict == SURVIVED:
                survivors.append(mutant)
                print(f"  survived  {mutant}\n            {identity(mutant)}", flush=True)
            else:
                killers[mutant.file][verdict] += 1
            if (tried := verdicts.total()) % 25 == 0:
                print(f"  {tried} tried, {len(survivors)} survived", flush=True)
    print(f"{area}: verdicts {dict(verdicts)}")
    return len(chosen), survivors


def main() -> int:
    """Run the requested areas; the exit code is 0 if each of them reaches the bar."""
    parser = argparse.ArgumentParser(description="mutation testing of the core of relaxpy")
    parser.add_argument("--area", choices=AREAS, action="append", help="only these areas")
    parser.add_argument("--sample", type=int, default=100, help="mutants an area; 0 for all")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bar", type=float, default=90.0, help="per cent that have to be killed")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Loaded before the processes fork, so that each starts quickly; the package itself is not.
    for name in ("pytest", "hypothesis", "numpy", "ml_dtypes", "rich", "astor"):
        importlib.import_module(name)
    rows = [
        (a, *run_area(a, options.sample, options.seed, options.jobs)) for a in options.area or AREAS
    ]
    missed = False
    for area, tried, survivors in rows:
        killed = tried - len(survivors)
        share = 100.0 * killed / max(1, tried)
        missed |= share < options.bar
        print(f"{area:16} {killed:5} of {tried:5} killed: {share:5.1f} %")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
