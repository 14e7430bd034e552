"""Exported programs in an engine of WebAssembly have the bits of native code.

Relaxed SIMD is compared with native code on an engine that fuses products and sums, and plain SIMD
with strict native code.
"""

from __future__ import annotations

import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import relaxpy
from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.export import web
from relaxpy.exec.native.machine_code.machine import Machine, host
from relaxpy.script import from_source
from tests.exec.export import test_export
from tests.exec.export.in_node import (
    CPUS,
    Case,
    check_same,
    needs_linker,
    needs_node,
    node,
    run_in_node,
    run_natively,
    typed,
)
from tests.exec.export.test_c import ERRORS, NAMES, named
from tests.exec.native import same_bits
from tests.exec.native.forms import DTYPES, KINDS, PRODUCTS, Form, drawn_product, generator
from tests.exec.native.test_contract import numbers
from tests.exec.native.test_packing import TWO_PRODUCTS
from tests.exec.program import test_loops as loops
from tests.ir.relax.texts import module as module_of
from tests.rows import whole_tables
from tests.test_docs import python_of

pytestmark = [needs_node, needs_linker]
ROOT = Path(__file__).parents[3]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
SCRIPT = Path(__file__).with_name("module_test.mjs")
Array = np.ndarray[Any, Any]
ALL_SIZES = [{"n": 5, "m": 9, "k": 4}, {"n": 1, "m": 1, "k": 1}, {"n": 67, "m": 131, "k": 19}]
NATIVE: Mapping[str, Callable[[], Machine]] = {
    "relaxed-simd": host,
    "simd128": lambda: host().strict(),
}


def check(cases: Mapping[str, Case], cpu: str, folder: Path) -> None:
    """Check that all cases have the same results in node and as native code."""
    found = run_in_node([*cases.values()], cpu, folder)
    for (name, case), each in zip(cases.items(), found, strict=True):
        check_same(each, run_natively(case, NATIVE[cpu]()), name)


@pytest.mark.parametrize("cpu", CPUS)
def test_programs_have_the_bits_of_native_code(cpu: str, tmp_path: Path) -> None:
    names = [name for name in same_bits.texts() if name not in ("decoder", "packed weights")]
    cases = {}
    for name in names:
        shapes = same_bits.CNN_SHAPES if name == "network" else same_bits.SINGLE[name][1]
        given = [same_bits.numbers(*shape, seed=7 * n + 1) for n, shape in enumerate(shapes)]
        cases[name] = Case(same_bits.module_of(name), given)
    for rows in (1, 7):
        given = [same_bits.numbers(rows, 96)]
        cases[f"packed weights, {rows}"] = Case(same_bits.module_of("packed weights"), given)
    check(cases, cpu, tmp_path)


@pytest.mark.each_choice
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("sizes", ALL_SIZES, ids=lambda sizes: f"n={sizes['n']}")
def test_programs_of_all_kinds(sizes: dict[str, int], cpu: str, tmp_path: Path) -> None:
    """Branches, tuples, symbolic and computed sizes, all datatypes, calls, assertions."""
    cases = {}
    for name in test_export.PROGRAMS:
        module = test_export.program(name)
        given = test_export.flat(tuple(test_export.arguments(module, sizes)))
        cases[name] = Case(module, given, sizes=sizes)
    check(cases, cpu, tmp_path)


def test_loops(tmp_path: Path) -> None:
    cases = {}
    for name, text in loops.LOOPS.items():
        values = loops.ARGUMENTS.get(name, [(n, loops.VALUES) for n in loops.COUNTS])
        for number, each in enumerate(values[:2]):
            module = module_of(text + loops.KERNELS)
            cases[f"{name} {number}"] = Case(module, [*map(np.array, each)])
    check(cases, "simd128", tmp_path)


def test_a_kernel_gets_packed_and_other_weights(tmp_path: Path) -> None:
    """Addresses of 32 bits have no room to say which."""
    x, w, p = numbers((64, 256)), numbers((256, 256), seed=1), numbers((256, 256), seed=2)
    module = relaxpy.IRModule({"main": from_source(TWO_PRODUCTS)})
    module["main"] = module["main"].bind_params({"w": w})
    for cpu in CPUS:
        check({"two products": Case(module, [x, p])}, cpu, tmp_path / cpu)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other CPUs always fuse them")
def test_an_engine_may_not_fuse_products_and_sums(tmp_path: Path) -> None:
    """Its results are those of strict code, and the module says so."""
    module = relaxpy.IRModule({"main": from_source(TWO_PRODUCTS)})
    case = Case(module, [numbers((64, 256)), numbers((256, 256)), numbers((256, 256), seed=2)])
    options = ["--no-enable-fma3"]
    [found] = run_in_node([case], "relaxed-simd", tmp_path, *options)
    assert not found.fuses
    check_same(found, run_natively(case, host().strict()), "not fused")


def test_errors_have_numbers_and_texts(tmp_path: Path) -> None:
    module = from_source(same_bits.HEAD + ERRORS)
    x, n = same_bits.numbers(7, 5), np.arange(3)
    calls: list[tuple[str, list[Array], str]] = [
        ("rows", [x, np.array([0, 6, 7])], "outside dimension 0 of buffer x.*index 7, size 7"),
        ("rows", [x, np.array([0, 1 << 40])], "outside dimension 0 of buffer x"),
        ("asserted", [np.full(3, 4, "float32")], "assertion failed: too large"),
        ("equal", [x[0], x[:, 0].copy()], "expected to be n, and is not .index 7, size 5"),
        ("divided", [n, np.array([1, 0, 2])], "division by zero"),
    ]
    cases = [Case(module, given, name) for name, given, _ in calls]
    cases.append(Case(module, [n, n + 1], "divided"))
    *wrong, right = run_in_node(cases, "simd128", tmp_path)
    for found, (name, _, text) in zip(wrong, calls, strict=True):
        assert found.status > 0
        assert re.match(f"{name}: .*{text}", found.message), found.message
    assert right.outputs[0].tolist() == [0, 0, 0]


MODEL = """
@I.ir_module
class Program:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, 2), "float32")):
        return R.matmul(x, w)
    @R.function
    def fixed(x: R.Tensor((2,), "int8")):
        return R.add(x, x)
    @R.function
    def scaled(x: R.Tensor(("n",), "float32"), w: R.Tensor((2,), "float32")):
        return R.multiply(R.sum(x), w)
"""


def test_names_that_mean_something_else(tmp_path: Path) -> None:
    """Parameters and a size."""
    sizes = ("function", "var", "Math", "constructor", "NaN", "arguments")
    arrays = [np.full(3, n, "float32") for n, _ in enumerate(NAMES)]
    modules = [named([*NAMES[1:], size]).program.module for size in sizes]
    cases = [Case(module, arrays) for module in modules]
    for each in run_in_node(cases, "simd128", tmp_path):
        assert each.outputs[0] == 3 * sum(range(len(NAMES)))


@pytest.mark.parametrize("beside", [False, True], ids=["weights inside", "weights beside"])
def test_the_module_of_javascript(beside: bool, tmp_path: Path) -> None:
    """Names, shapes, sizes, views and errors; the files are those of `Executable.export`."""
    module = from_source(same_bits.HEAD + MODEL)
    module["main"] = module["main"].bind_params({"w": np.ones((3, 2), "float32")})
    executable = relaxpy.compile(module, target="native")
    weights = tmp_path / "model.weights" if beside else None
    files = executable.export(tmp_path / "model.wasm", weights=weights)
    names = ["model.wasm", "model.simd128.wasm", "model.js", "model.d.ts"]
    assert {file.name for file in files} == {*names, *(["model.weights"] if beside else [])}
    (tmp_path / "model.js").rename(tmp_path / "model.mjs")  # for any version of node
    command = [node() or "", str(SCRIPT), str(tmp_path), *([weights.name] if weights else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr


def test_the_page_about_the_web_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "export-to-the-web.md").read_text(encoding="utf-8")
    (tmp_path / "page.py").write_text(python_of(page))
    names = runpy.run_path(str(tmp_path / "page.py"))
    names["ex"].export(tmp_path / "model.wasm")
    (tmp_path / "model.js").rename(tmp_path / "model.mjs")
    [script] = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    (tmp_path / "script.mjs").write_text(script.replace("model.js", "model.mjs"))
    command = [node() or "", str(tmp_path / "script.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[ 1, 2 ] Float32Array(2) [ 0.5, 0.5"), done.stdout


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_digits_are_read_in_a_browser(tmp_path: Path) -> None:
    """The page is a file that needs no other; it reads the first of its pictures when it loads."""
    pytest.importorskip("sklearn")
    example = ROOT / "examples" / "export" / "web" / "export_digits.py"
    made = subprocess.run(
        [sys.executable, str(example), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert made.stdout.strip() == str(tmp_path / "digits.html")
    assert (tmp_path / "digits.wasm").stat().st_size < 25000
    page = (tmp_path / "digits.html").as_uri()
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/user"]
    command = [BROWSER or "", *options, "--virtual-time-budget=5000", "--dump-dom", page]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert re.search(r'id="found"[^>]*>This is a 0\.</p>', done.stdout), done.stdout[-2000:]


def test_modules_are_small(tmp_path: Path) -> None:
    """That of 64 pixels to 10 digits has less than 25 kB with its weights."""
    shapes = {"w": (64, 32), "b": (32,), "v": (32, 10), "c": (10,)}
    module = relaxpy.IRModule({"main": from_source(DIGITS)})
    weights = {name: np.ones(shape, "float32") for name, shape in shapes.items()}
    module["main"] = module["main"].bind_params(weights)
    executable = relaxpy.compile(module, target="native")
    for file in executable.export(tmp_path / "digits.wasm"):
        assert file.stat().st_size < 25000


DIGITS = """
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 32), "float32"),
         b: R.Tensor((32,), "float32"), v: R.Tensor((32, 10), "float32"),
         c: R.Tensor((10,), "float32")):
    h = R.nn.relu(R.add(R.matmul(x, w), b))
    return R.nn.softmax(R.add(R.matmul(h, v), c))
"""


def test_misuse_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = relaxpy.compile(from_source(same_bits.HEAD + MODEL), target="native")
    path = tmp_path / "model.wasm"
    with pytest.raises(
        MisuseError, match=r"a \.wasm is for wasm32, found the target linux-aarch64"
    ):
        executable.export(path, target="linux-aarch64")
    options: dict[str, Any]
    for options in ({"pool": True}, {"extern": ["f"]}):
        with pytest.raises(MisuseError, match="have neither threads nor functions of C"):
            executable.export(path, **options)
    with pytest.raises(MisuseError, match=r"a program for wasm32 ends in \.wasm"):
        executable.export(tmp_path / "model.so", target="wasm32")
    monkeypatch.setattr(web, "find_spec", lambda name: None)
    monkeypatch.setattr(web.shutil, "which", lambda name: None)
    with pytest.raises(CompileError, match="no linker for WebAssembly") as caught:
        executable.export(path)
    assert "relaxpy[export]" in str(caught.value.diagnostic.hint)
    assert not [*tmp_path.iterdir()]


def _case(form: Form) -> Case:
    given = [array for name, array in form.operands.items() if name not in form.constant]
    return Case(form.module(), given)


@pytest.mark.each_choice
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_kernels_are_right(kind: str, cpu: str, tmp_path: Path) -> None:
    rng = generator("in node", kind, cpu)
    forms = [KINDS[kind](rng) for _ in range(12 if whole_tables() else 2)]
    check_forms(forms, cpu, tmp_path)


@pytest.mark.each_choice
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_right(dtype: str, cpu: str, tmp_path: Path) -> None:
    rng = generator("products in node", dtype, cpu)
    chosen = rng.sample(PRODUCTS, 16 if whole_tables() else 3)
    check_forms([drawn_product(how, dtype, "node", cpu) for how in chosen], cpu, tmp_path)


def check_forms(forms: list[Form], cpu: str, folder: Path) -> None:
    """Check the results of programs whose exact results are known."""
    found = run_in_node([_case(form) for form in forms], cpu, folder)
    for form, each in zip(forms, found, strict=True):
        [output] = each.outputs
        assert output.dtype == form.wanted.dtype
        np.testing.assert_array_equal(
            output.astype("f8"), form.wanted.astype("f8"), err_msg=form.body
        )


ELEMENTWISE = """
@R.function
def main(x: R.Tensor(("n",), "{dtype}"), y: R.Tensor(("n",), "{dtype}")):
    return {body}
"""
BODIES = {
    "float": [
        *(f"R.{n}(x)" for n in ("exp", "log", "sin", "cos", "tan", "tanh", "erf", "sqrt", "rsqrt")),
        *(f"R.{n}(x)" for n in ("sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh")),
        *(f"R.{n}(x)" for n in ("sigmoid", "floor", "ceil", "round", "trunc", "abs", "sign")),
        *(f"R.{n}(x, y)" for n in ("add", "multiply", "divide", "power", "maximum", "minimum")),
        *(f"R.{n}(x, y)" for n in ("floor_divide", "mod", "less", "equal")),
        *(f'R.astype(x, "{n}")' for n in ("int8", "int32", "int64", "uint8", "float16")),
        *(f'R.astype(x, "{n}")' for n in ("bfloat16", "float32", "float64", "bool")),
        *("R.sum(x)", "R.max(x)", "R.argmax(x)", "R.cumsum(x)", "R.nn.softmax(x)", "R.nn.gelu(x)"),
    ],
    "int": [
        *(f"R.{n}(x, y)" for n in ("add", "multiply", "maximum", "less", "bitwise_xor")),
        *(f"R.{n}(x)" for n in ("abs", "sign", "negative")),
        *(f'R.astype(x, "{n}")' for n in ("int8", "int64", "float16", "float32", "float64")),
        *("R.sum(x)", "R.max(x)", "R.argmin(x)", "R.cumsum(x)"),
    ],
}


@pytest.mark.each_choice
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"]
)
def test_operators_have_the_bits_of_native_code(dtype: str, cpu: str, tmp_path: Path) -> None:
    """Numbers are special ones, large and small ones, and those that any operator likes."""
    rng = np.random.default_rng(5)
    kind = "float" if "float" in dtype else "int"
    if kind == "float":
        special = [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-310, 1e30, 70000, -3e9, 65504]
        drawn = np.concatenate([rng.uniform(-3, 3, 40), rng.uniform(-1e5, 1e5, 8)])
        every = np.concatenate([special, drawn])
    else:
        every = np.concatenate([rng.integers(0, 127, 50), [0, 1, 127]])
    with np.errstate(all="ignore"):
        x = every.astype(typed(dtype))
        y = rng.permutation(every).astype(typed(dtype))
    bodies = (
        BODIES[kind] if whole_tables() else generator("operators", dtype).sample(BODIES[kind], 6)
    )
    cases = {}
    for body in bodies:
        if dtype.startswith("u") and ("abs" in body or "negative" in body):
            continue
        func = from_source(ELEMENTWISE.format(dtype=dtype, body=body))
        cases[body] = Case(relaxpy.IRModule({"main": func}), [x, y])
    check(cases, cpu, tmp_path)
