"""The parser calls what a text names only in `user_calls.py`, behind the guard: it is read."""

import ast
from collections.abc import Iterator
from pathlib import Path

import relaxpy.script.parser

SCRIPT = Path(relaxpy.script.parser.__file__).parents[1]
#: What reads a text, and what it reads the names of.
READERS = sorted(
    [*(SCRIPT / "language").rglob("*.py"), *(SCRIPT / "parser").rglob("*.py"), SCRIPT / "read.py"]
)
FUNCTION = ast.FunctionDef | ast.Lambda

#: Built-in functions that reach into an object which a text may have chosen.
REACHING = frozenset(
    ("__import__", "compile", "delattr", "eval", "exec", "format", "getattr", "iter", "next")
) | {"setattr", "vars"}

#: Attributes under which a function of the user's may be kept.
HOLDERS = frozenset(("__wrapped__", "callback", "combiner", "func", "function", "mapping"))

#: The calls of values outside of that module, by file and function, and what is called there.
REVIEWED = {
    "language/annotations.py": {
        "_StructInfoGetter.__get__": "a class of annotations",
        "_plain": "a class of annotations, or the name of a type",
        "_dims": "the reader's meaning of a string dimension",
        "Prim.to_struct_info": "the reader's meaning of a string dimension",
        "as_type": "the name of a type, or a class of types",
        "TypeName.__call__": "the function of a namespace that makes a type",
    },
    "parser/decorate.py": {
        "Deferred.__call__": "what a decorator made of a function of the user's own",
        "Deferred.__getattr__": "what a decorator made of a function of the user's own",
        "parse_class": "the names in a class of the user's own",
    },
    "parser/evaluate/conditions.py": {
        "computed": "ops.all_of and its like",
        "_filter": "Evaluator.invoke, for one member",
        "_map": "Evaluator.invoke, for one row",
        "combine_conditions": "ops.all_of or ops.any_of",
    },
    "parser/evaluate/displays.py": {"unpack": "the reader that binds a name"},
    "parser/evaluate/evaluator.py": {
        "Evaluator.value": "the evaluator's method for a kind of expression",
        "Evaluator.invoke": "the evaluator's method for a built-in function",
    },
    "language/records.py": {
        "directive.call": "a function of a namespace",
        "_call_eagerly": "a function of a namespace; the reader that acts upon what it gives",
        "Form.__init__": "a field of a record",
        "Form._values": "a field of a record",
        "Form.__repr__": "a field of a record",
        "HandleName.__getitem__": "T.handle",
        "BufferSpec.__class_getitem__": "T.Buffer",
        "BufferSpec.__post_init__": "a field of a record",
        "BufferSpec.__repr__": "a field of a record",
    },
    "read.py": {"_Text.read": "the reader of a definition"},
    "parser/graph/relax_function.py": {"GraphReader.local_function": "the reader of a definition"},
    "parser/graph/bindings.py": {"new_variable": "a class of variables"},
    "parser/graph/state.py": {"GraphState._global_var": "an iterator over names"},
    "parser/graph/expressions.py": {
        "GraphEvaluator.iterable": "an iterator that user_calls.members gave",
        "GraphEvaluator._on_listed_devices": "the module's devices or meshes",
        "_defines": "a class of the user's own, asked for an operator",
    },
    "language/kernel_builder.py": {
        "KernelBuilder.call_at": "a function of relaxpy",
        "KernelBuilder.scoped": "a statement that waits for its body",
        "Body.fold": "a statement that waits for its body",
    },
    "parser/evaluate/macros.py": {"Macro.signature": "inspect.Parameter"},
    "parser/reading.py": {
        "FunctionsReader.graph": "the reader of a definition",
        "FunctionsReader.kernel": "the reader of a definition",
    },
    "parser/graph/signature_reader.py": {"SignatureReader.variable": "a class of variables"},
    "parser/source.py": {
        "Report.failure": "a class of errors",
        "Statements.read": "the reader of statements",
        "type_parameters": "the reader's error; a dict",
        "": "Python's built-in functions, by the names in a list",
        "Program.error": "a class of errors",
        "bound_names": "the nodes of a syntax tree",
        "parse_text": "an iterator over lines",
        "_compiled_lines": "what `python -c` or the prompt runs, compiled to be compared",
    },
    "language/wording.py": {
        "_enclosing_function": "the lists of statements of a syntax tree",
        "offers": "a namespace, asked for a name",
        "public_names": "a namespace, asked for its names",
    },
    "language/hardware.py": {
        "ignoring_dtype.call": "a function of a namespace",
        "intrinsic": "an intrinsic by its name",
        "leading_dtype.call": "a function of a namespace",
    },
    "parser/kernel.py": {
        "KernelReader.call_at": "a function of relaxpy",
        "KernelReader.statement": "the intrinsic for break or continue",
    },
}

#: Who calls it, all of them behind `Evaluator.invoke`, which asks the guard first.
CALLERS = {
    "Evaluator.on_call",
    "GraphEvaluator.on_call",
    "GraphReader.call_helper",
    "KernelEvaluator.on_call",
    "KernelEvaluator.call_helper",
}
#: Who calls those.
CALLED_BY = {
    "on_call": {"Evaluator.invoke"},
    "call_helper": {"GraphEvaluator.on_call", "KernelEvaluator.on_call"},
}


def parameters(node: FUNCTION) -> set[str]:
    spec = node.args
    named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    return {arg.arg for arg in (*named, *filter(None, (spec.vararg, spec.kwarg)))}


def bound(node: ast.FunctionDef) -> set[str]:
    """The names that a function gives to values: what they are, only a running program knows."""
    names = parameters(node)
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
        if isinstance(part, (ast.MatchAs, ast.MatchStar)) and part.name:
            names.add(part.name)
    return names


def calls(tree: ast.AST, values: frozenset[str], where: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a value, with the function in which it stands."""
    for node in ast.iter_child_nodes(tree):
        inside, name = values, where
        if isinstance(node, ast.ClassDef):
            name = f"{where}{node.name}."
        elif isinstance(node, ast.FunctionDef):
            inside, name = values | bound(node), f"{where}{node.name}."
        elif isinstance(node, ast.Lambda):
            inside = values | parameters(node)
        elif isinstance(node, ast.Call) and is_of_a_value(node, values):
            yield where.removesuffix("."), node
        yield from calls(node, frozenset(inside), name)


def is_of_a_value(node: ast.Call, values: frozenset[str]) -> bool:
    match node.func:
        case ast.Name(id="getattr") if isinstance(node.args[1], ast.Constant):
            return False
        case ast.Name(id="next") if isinstance(node.args[0], ast.GeneratorExp):
            return False
        case ast.Name(id=name):
            return name in REACHING or name in values
        case ast.Attribute(value=ast.Name(id="operator")):
            return True
        case ast.Attribute(attr=name):
            return name in HOLDERS
        case _:
            return True


def found() -> Iterator[tuple[str, str, str]]:
    for file in READERS:
        if file.name != "user_calls.py":
            tree = ast.parse(file.read_text())
            for where, call in calls(tree, frozenset(), ""):
                yield file.relative_to(SCRIPT).as_posix(), where, ast.unparse(call)


def callers(name: str, owner: str | None = None) -> set[str]:
    """The methods of the parser in which `owner.name(...)` stands, or that of whatever owner."""
    return {
        f"{kind.name}.{method.name}"
        for file in READERS
        for kind in ast.walk(ast.parse(file.read_text()))
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef)
        for node in ast.walk(method)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
        and owner in (None, ast.unparse(node.func.value))
    }


def test_values_are_called_in_user_calls_and_at_reviewed_places_alone() -> None:
    places: dict[str, set[str]] = {}
    for file, where, _ in found():
        places.setdefault(file, set()).add(where)
    assert places == {file: set(reviewed) for file, reviewed in REVIEWED.items()}


def test_user_calls_follow_the_guard() -> None:
    assert callers("call", "user_calls") == CALLERS
    assert callers("call", "self.guard") == {"Evaluator.invoke"}
    for name, makers in CALLED_BY.items():
        assert callers(name) == makers


def test_a_call_elsewhere_would_be_found() -> None:
    text = """
def annotation(value):
    kind, *arguments = parts(value)
    return kind(*arguments)
def decorated(node, decorators):
    return decorators[0](node)
def attribute(owner, name):
    return getattr(owner, name), iter(owner), operator.add(owner, name), name.function()
"""
    seen = [ast.unparse(call) for _, call in calls(ast.parse(text), frozenset(), "")]
    assert seen == [
        "kind(*arguments)",
        "decorators[0](node)",
        "getattr(owner, name)",
        "iter(owner)",
        "operator.add(owner, name)",
        "name.function()",
    ]
