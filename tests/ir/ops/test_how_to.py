"""docs/how-to/add-an-operator.md, followed step by step."""

import dataclasses
import importlib
import inspect
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxpy.exec.api.compile import compile
from relaxpy.ir import IRModule, Op, ops as op
from relaxpy.ir.op_record import COLUMNS, OpRecord
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.script import from_source
from tests.ir.ops import test_gradients, test_kernels
from tests.ir.ops.cases import CASES, Case
from tests.ir.ops.scratch import forgotten_operators
from tests.ir.ops.variants import program
from tests.script.test_round_trip_operators import read_back

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "add-an-operator.md").read_text(encoding="utf-8")
X = np.array([-1.0, 0.0, 3.0], "float32")


def fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def home_of(text: str) -> str | None:
    """The name of the module of operators that a fence shows."""
    found = re.match(r"# relaxpy/ir/ops/(\w+)\.py\n", text)
    return None if found is None else found[1]


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the Python of the page defines; its home of operators is one of the package."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(op, "__path__", [*op.__path__, str(tmp_path)])
    with forgotten_operators():
        for number, text in enumerate(fences("python")):
            home = home_of(text)
            file = tmp_path / f"{home or f'step{number}'}.py"
            file.write_text(text, encoding="utf-8")
            if home is None:
                found |= runpy.run_path(str(file), found)
                continue
            module = f"{op.__name__}.{home}"
            importlib.import_module(module)
            del sys.modules[module]
            delattr(op, home)
        yield found


@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
def test_the_operator_of_a_program_runs_prints_and_parses(names, target) -> None:
    main = IRModule({"main": names["main"]})
    again = from_source(main.script())
    for module in (main, again):
        np.testing.assert_allclose(compile(module, target)["main"](X), X / (1 + np.abs(X)))
    assert "R.softsign(x)" in main.script()


@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
def test_the_operator_of_a_program_runs_without_a_known_shape(names, target) -> None:
    func = from_source("@R.function\ndef main(x: R.Tensor):\n    return R.softsign(x)\n")
    found = compile(IRModule({"main": func}), target)["main"](X)
    np.testing.assert_allclose(found, X / (1 + np.abs(X)))


@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
def test_the_gradient_of_the_page_is_that_of_the_operator(names, target) -> None:
    found = compile(names["backward"], target)["backward"](X, np.array([1, 2, 3], "float32"))
    np.testing.assert_allclose(found, np.array([1, 2, 3]) / (1 + np.abs(X)) ** 2, rtol=1e-6)


def test_what_the_page_registers_is_what_it_says(names: dict[str, Any]) -> None:
    purity = {"softsign": True, "hypot": True, "nonzero_count": True}
    for name, pure in purity.items():
        operator = registered_ops()[f"relax.{name}"]
        assert operator.pure is Op.get(f"relax.{name}").get_attr("FPurity") is pure
        assert inspect.getsource(operator).splitlines()[0].startswith("@")
        assert (operator.__doc__ or "").partition("\n")[0] in PAGE
    assert registered_ops()["relax.hypot"].record.commutative
    with pytest.raises(TypeError, match=r"relax\.hypot: x1 is a tensor, found R\.Shape"):
        op.hypot(rx.ShapeExpr([2]), rx.const(1.0))


@pytest.mark.parametrize(
    "use",
    [
        "from relaxpy.script import relax as R; R.hypot",
        "from relaxpy.ir import ops; ops.hypot",
        "from relaxpy.ir import Op; Op.get('relax.hypot')",
        "from relaxpy import relax; assert 'relax.hypot' in relax.op.registered_ops()",
    ],
)
def test_a_new_family_is_found_without_another_change(use: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "relaxpy", tmp_path / "relaxpy")
    [text] = [text for text in fences("python") if home_of(text)]
    (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", use], env=env, cwd=tmp_path, check=True)


@pytest.mark.parametrize("symbolic", [False, True])
def test_one_row_is_enough_for_the_tests_of_the_catalogue(names, symbolic) -> None:
    rows: Callable[[], Iterator[Case]] = names["cases"]
    knowledge = "symbolic" if symbolic else "static"
    for case in rows():
        test_kernels.test_the_kernel_computes_the_definition(case, knowledge)
        test_gradients.assert_gradient(case, symbolic, partial(test_gradients.derivatives, case))
        read_back(program(case, knowledge))


def test_the_catalogue_misses_an_operator_without_a_row(names: dict[str, Any]) -> None:
    assert "relax.hypot" not in {case.operator for case in CASES}
    with pytest.raises(AssertionError, match=r"relax\.hypot: no oracle"):
        test_kernels.test_every_operator_is_documented_lowered_and_compared()


@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
def test_the_operator_without_a_kernel_runs(names: dict[str, Any], target: Any) -> None:
    func = from_source(
        '@R.function\ndef main(x: R.Tensor((3,), "float32")):\n    return R.nonzero_count(x)\n'
    )
    assert compile(IRModule({"main": func}), target)["main"](X) == 2


def test_what_the_page_quotes_stands_in_the_files() -> None:
    quotes = fences("text")
    assert quotes
    for quote in quotes:
        first, _, text = quote.partition("\n")
        assert text in (ROOT / first.removeprefix("# ")).read_text(encoding="utf-8")


def test_the_page_lists_every_column() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", PAGE, re.MULTILINE)
    fields = {field.name for field in dataclasses.fields(OpRecord)} - {"name", "function", "doc"}
    assert {column for column, _ in listed} == fields
    assert {tvm: column for column, tvm in listed if tvm} == COLUMNS
