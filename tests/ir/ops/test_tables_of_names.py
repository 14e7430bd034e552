"""Facts about operators are columns of their records, not tables by name elsewhere."""

import ast
from collections.abc import Iterator
from pathlib import Path

import relaxpy
from relaxpy.ir.ops.definition.registry import registered_ops

ROOT = Path(relaxpy.__file__).parent
#: Tables that say what a pass or an operator does, which is a fact about nothing else.
ALLOWED = {
    "ir/passes/compile.py: _IN_LOOPS": "operators that native code runs in loops",
    "ir/passes/distributed/lower_dist_ir.py: _NEEDED_BEFORE": "calls of earlier passes",
    "tvm/lowering/call_tir_rewrite.py: _SCANS": "the calls of this pass",
    "tvm/lowering/call_tir_rewrite.py: _SORTS": "the calls of this pass",
    "tvm/lowering/call_tir_rewrite.py: _LOWERINGS": "the calls of this pass",
    "tvm/lowering/rewrite_cuda_graph.py: _BESIDE": "what a graph may not contain",
    "tvm/relax/op_attrs.py: _SHARED": "names of attribute classes of TVM",
}


def tables(path: Path) -> Iterator[str]:
    """The names of module variables with several operators by name."""
    text = path.read_text("utf-8")
    for node in ast.parse(text).body if '"relax.' in text else ():
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        constants = (c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant))
        names = {name for name in constants if isinstance(name, str) and name in registered_ops()}
        if len(names) > 1:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield f"{path.relative_to(ROOT).as_posix()}: {ast.unparse(target)}"


def test_no_table_by_names_of_operators_is_outside_the_records() -> None:
    files = (p for p in ROOT.rglob("*.py") if "relay" not in p.parts)
    found = {table for path in files for table in tables(path)}
    assert found == ALLOWED.keys()
