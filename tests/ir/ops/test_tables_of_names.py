"""Facts about operators are columns of their records, and their names are spelled rightly."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import relaxpy
from relaxpy.ir.ops.definition.registry import registered_ops

ROOT = Path(relaxpy.__file__).parent
#: Tables that say what a pass or an operator does, which is a fact about nothing else.
ALLOWED = {
    "ir/passes/algebra/decompose_ops.py: _MOMENTS": "the calls of this pass",
    "ir/passes/distributed/lower_dist_ir.py: _NEEDED_BEFORE": "calls of earlier passes",
    "tvm/lowering/call_tir_rewrite.py: _SCANS": "the calls of this pass",
    "tvm/lowering/call_tir_rewrite.py: _SORTS": "the calls of this pass",
    "tvm/lowering/call_tir_rewrite.py: _LOWERINGS": "the calls of this pass",
    "tvm/lowering/rewrite_cuda_graph.py: _BESIDE": "what a graph may not contain",
    "tvm/lowering/rewrite_cuda_graph.py: _BETWEEN": "what a graph may not contain",
    "tvm/libraries/patterns.py: Start": "how patterns of a library begin",
    "tvm/relax/op_attrs.py: _SHARED": "names of attribute classes of TVM",
    "plugins/testing/random_inputs.py: _CONVOLUTIONS": "how random arguments are chosen",
    "plugins/testing/random_inputs.py: _OPERANDS": "how random arguments are chosen",
    "plugins/testing/random_inputs.py: _SAME_VALUES": "how random arguments are chosen",
    "plugins/nn/methods.py: INSTEAD": "names of PyTorch",
    "plugins/nn/methods.py: _REFLECTED": "functions of NumPy",
    "script/language/wording.py: _MEMORY": "functions of NumPy",
    "script/language/wording.py: _NAMES_ELSEWHERE": "names of other libraries",
    "script/language/wording.py: _OF_SCALARS": "functions of Python",
}


def tables(path: Path) -> Iterator[str]:
    """The names of module variables with several operators by name."""
    text = path.read_text("utf-8")
    prefix = "relax." if re.search(r'removeprefix\("relax\.|f"relax\.\{', text) else ""
    for node in ast.parse(text).body if '"relax.' in text else ():
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        constants = (c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant))
        names = {name for name in constants if isinstance(name, str)}
        if sum(n in registered_ops() or prefix + n in registered_ops() for n in names) > 1:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield f"{path.relative_to(ROOT).as_posix()}: {ast.unparse(target)}"


def test_no_table_by_names_of_operators_is_outside_the_records() -> None:
    records = ROOT / "ir" / "ops"
    files = (p for p in ROOT.rglob("*.py") if "relay" not in p.parts and records not in p.parents)
    found = {table for path in files for table in tables(path)}
    assert found == ALLOWED.keys()


#: Names with the prefix of operators that are of other things.
NOT_OPERATORS = {
    "an option of a pass": r"relax\.(FoldConstant|FuseOps|backend|rewrite_cuda_graph)\.\w+|"
    r"relax\.lift_transform_params\.consume_params",
    "an attribute of functions and calls": r"relax\.(force_pure|unused|"
    r"memory_plan_dynamic_func_output|rewrite_cuda_graph\.capture_symbolic_vars)",
    "a module or a class": r"relax\.(frontend|pipeline|transform|expr\.Constant)",
    "a function of the namespace that returns calls of others": r"relax\.nn\.relu6",
}


def spelled(path: Path) -> Iterator[str]:
    """The whole strings in a file that have the form of an operator's name."""
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    parts = {part for n in nodes if isinstance(n, ast.JoinedStr) for part in n.values}
    texts = (n.value for n in nodes if isinstance(n, ast.Constant) and n not in parts)
    yield from (t for t in texts if isinstance(t, str) and re.fullmatch(r"relax(\.\w+)+", t))


def test_every_operator_that_is_named_in_the_package_exists() -> None:
    files = [p for p in ROOT.rglob("*.py") if "relax." in p.read_text("utf-8")]
    names = {name: path for path in files for name in spelled(path)}
    others = re.compile("|".join(NOT_OPERATORS.values()))
    families = {re.sub(r"\dd(_\w+)?$", "", name) for name in registered_ops()}
    known = {*registered_ops(), *families, "relax.call_"}
    missing = {n: p for n, p in names.items() if n not in known and not others.fullmatch(n)}
    assert len(names) > 150
    assert not missing
