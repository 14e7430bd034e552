"""docs/how-to/add-a-pass.md, followed step by step."""

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxpy.exec.api.compile import compile
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.rewrite.map_bindings import map_bindings
from relaxpy.script import from_source
from tests.ir.relax.texts import graph

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "add-a-pass.md").read_text(encoding="utf-8")
X = np.array([-1.0, 0.0, 3.0], "float32")


def fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the Python of the page defines; its own assertions hold."""
    found: dict[str, Any] = {}
    folder = tmp_path_factory.mktemp("pass")
    for number, text in enumerate(fences("python")):
        file = folder / f"step{number}.py"
        file.write_text(text, encoding="utf-8")
        found |= runpy.run_path(str(file), found)
    return found


@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
@pytest.mark.parametrize(
    ("step", "before", "after", "args"),
    [
        ("square_products", "Products", "Squares", [X, np.array(True)]),
        ("square_products", "Products", "Squares", [X, np.array(False)]),
        ("CancelNegatives", "Before", "After", [X]),
    ],
)
def test_the_passes_of_the_page_keep_values(names, target, step, before, after, args) -> None:
    run = names[step]() if isinstance(names[step], type) else names[step]
    with PassContext(check=True):
        found = run(names[before])
    assert_structural_equal(found, names[after])
    assert check_well_formed(found, normal_form=True) == []
    values = [compile(mod, target)["main"](*args) for mod in (names[before], found)]
    np.testing.assert_array_equal(*values)


def test_negatives_are_not_cancelled_across_the_end_of_a_block(names: dict[str, Any]) -> None:
    mod = graph("""
    def main(x: f32[3]):
        lv = R.exp(x)
        a = R.negative(lv)
        return R.negative(a)
    """)
    assert names["CancelNegatives"]()(mod) is mod


def test_a_step_may_return_what_the_page_lists() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)[2:]
    func = from_source("""
@R.function
def main(x: R.Tensor((3,), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.abs(a)
        R.output(b)
    return b
""")
    assert isinstance(func, rx.Function)
    [block] = func.body.blocks
    first, second = block.bindings
    alone = rx.BindingBlock((rx.VarBinding(rx.Var("new", first.value.struct_info), first.value),))
    returned: dict[str, tuple[Any, list[list[str]]]] = {
        "None, or the binding": (first, [["a", "b"]]),
        "a leaf, such as a variable or a constant": (func.params[0], [["b"]]),
        "another expression": (second.value, [["a", "b"]]),
        "a binding, or a list of bindings": ([], [["b"]]),
        "a list with binding blocks in it": ([alone, first], [["new"], ["a", "b"]]),
    }
    assert list(returned) == rows
    for result, expected in returned.values():
        after = map_bindings(func, lambda b, _, result=result: result if b is first else None)  # type: ignore[misc]
        bound = [[b.var.name_hint for b in found.bindings if b.var] for found in after.body.blocks]
        assert bound == expected


def test_what_the_page_quotes_stands_in_the_files() -> None:
    for quote in fences("text"):
        first, _, text = quote.partition("\n")
        assert text in (ROOT / first.removeprefix("# ")).read_text(encoding="utf-8")
    missing = {"cancel_negatives.py", "test_cancel_negatives.py"}
    files = set(re.findall(r"`((?:relaxpy|tests)/[\w/]+\.py)`", PAGE))
    assert {Path(file).name for file in files if not (ROOT / file).exists()} == missing
