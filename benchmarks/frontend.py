"""Measure parsing, printing, checking and compiling per binding, and whether they are linear.

Modules are chains of elementwise operators on (n, 128), of a smaller and a larger size. Another has
100 kernels, which every tenth binding calls, another has operators of several kinds, and the last
one has 100 kernels and one binding (its times are those per kernel). Prints microseconds of
processor time per binding, the best of some rounds, and the growth from the smaller to the larger
module (1.0 is linear); then the time to compile one operator of many operands, and to start.
"""

import argparse
import gc
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import relaxpy
from relaxpy.ir.equality.structural import structural_equal, structural_hash
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.passes.rewrite_pass import Normalize
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.nodes import Function
from relaxpy.ir.serialize import load_json, save_json
from relaxpy.script import from_source

OPERATORS = ("add", "multiply", "subtract", "maximum")
KINDS = (
    "R.matmul({y}, w)",
    "R.reshape({y}, R.shape([n, 2, 64]))",
    "R.permute_dims({y}, [0, 2, 1])",
    "R.reshape({y}, R.shape([n, 128]))",
    "R.nn.softmax({y}, axis=1)",
    "R.concat([{y}, {y}], axis=1)",
    "R.sum({y}, axis=[1], keepdims=True)",
    "R.add({y}, x)",
    "R.nn.relu({y})",
    "R.strided_slice({y}, axes=[1], begin=[0], end=[128])",
)
KERNEL = """
    @T.prim_func(private=True)
    def kernel{k}(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 128), "float32")
        B = T.match_buffer(b, (n, 128), "float32")
        for i, j in T.grid(n, 128):
            with T.block("kernel{k}"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32({k})
"""


def source(bindings: int, kernels: int = 0, *, kinds: bool = False) -> str:
    """The text of a module."""
    lines = ["@I.ir_module", "class Chain:"]
    for k in range(kernels):
        lines += KERNEL.format(k=k).splitlines()
    sinfo = 'R.Tensor(("n", 128), "float32")'
    params = f'x: {sinfo}, w: R.Tensor((128, 128), "float32")'
    lines += ["    @R.function", f"    def main({params}) -> {sinfo}:", "        n = T.int64()"]
    lines += ["        cls = Chain", "        with R.dataflow():"]
    for i in range(bindings):
        last = f"y{i - 1}" if i else "x"
        value = KINDS[i % 10].format(y=last) if kinds else f"R.{OPERATORS[i % 4]}({last}, x)"
        if kernels and i % 10 == 9:
            out = 'R.Tensor((n, 128), "float32")'
            value = f"R.call_tir(cls.kernel{i // 10 % kernels}, (y{i - 1},), out_sinfo={out})"
        lines.append(f"            y{i} = {value}")
    lines += [f"            R.output(y{bindings - 1})", f"        return y{bindings - 1}"]
    return "\n".join(lines) + "\n"


def decorated(text: str) -> Callable[[], object]:
    """A function that runs a compiled file with the module in decorated form."""
    file = Path(tempfile.mkdtemp()) / "chain.py"
    file.write_text(f"from relaxpy.script import ir as I, relax as R, tir as T\n\n{text}")
    code = compile(file.read_text(), str(file), "exec")
    return lambda: exec(code, {"__name__": "chain", "__file__": str(file)})


def wide(operator: str, operands: int) -> Callable[[], object]:
    """A function that compiles one operator of many operands."""
    names = [f"x{i}" for i in range(operands)]
    params = ", ".join(f'{name}: R.Tensor((4,), "float32")' for name in names)
    lines = ["@R.function", f"def main({params}):"]
    module = from_source("\n".join([*lines, f"    return R.{operator}([{', '.join(names)}])"]))
    return lambda: relaxpy.compile(module)


def copied(module: IRModule) -> IRModule:
    """Copy the Relax functions of a module, since the normal form of functions is cached."""
    return map_functions(module, Function, replace)


def steps(text: str) -> dict[str, Callable[[], object]]:
    """The steps to measure, by name."""
    module: Any = from_source(text)
    again, printed, saved = from_source(text), module.script(), save_json(module)
    assert isinstance(module, IRModule)
    return {
        "parse, decorated": decorated(text),
        "parse, from text": lambda: from_source(text),
        "the same, not checked": lambda: from_source(text, check_well_formed=False),
        "parse what was printed": lambda: from_source(printed),
        "print": lambda: module.script(),
        "normalise (normal form)": lambda: Normalize()(copied(module)),
        "normalise once more": lambda: Normalize()(module),
        "well_formed": lambda: check_well_formed(copied(module)),
        "structural_equal": lambda: structural_equal(module, again),
        "structural_hash": lambda: structural_hash(module),
        "LegalizeOps": lambda: LegalizeOps()(module),
        "bind_symbolic_vars": lambda: module["main"].bind_symbolic_vars({"n": 16}),
        "save_json": lambda: save_json(module),
        "load_json": lambda: load_json(saved),
        "compile (numpy)": lambda: relaxpy.compile(module, target="numpy"),
    }


def seconds(run: Callable[[], object], rounds: int) -> float:
    """The best processor time of some runs."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
        del result
    return best


def import_milliseconds(statement: str, rounds: int = 9) -> float:
    """The least processor time of a new interpreter for `statement`, without that of NumPy.

    Bytecode is cached as in an installed package.
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def start(program: str) -> float:
            before = os.times()
            subprocess.run([sys.executable, "-c", program], check=True, env=environment)
            after = os.times()
            spent = after.children_user + after.children_system
            return spent - before.children_user - before.children_system

        base, full = "import numpy, ml_dtypes", f"import numpy, ml_dtypes; {statement}"
        pairs = [(start(base), start(full)) for _ in range(rounds)]
        return (min(f for _, f in pairs) - min(b for b, _ in pairs)) * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs=2, default=(1_000, 10_000))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    small, large = options.sizes
    print(f"Python {platform.python_version()}, {platform.machine()}, best of {options.rounds}\n")
    columns = {
        f"{small:,}": (small, source(small)),
        f"{large:,}": (large, source(large)),
        f"{small:,} + 100 kernels": (small, source(small, 100)),
        f"{small:,} of ten kinds": (small, source(small, kinds=True)),
        "1, 100 kernels": (100, source(1, 100)),
    }
    tables = [
        {name: seconds(run, options.rounds) / bindings * 1e6 for name, run in steps(text).items()}
        for bindings, text in columns.values()
    ]
    print("| us per binding | " + " | ".join(columns) + " | growth |")
    print("|---|" + "---:|" * (len(columns) + 1))
    for name, first in tables[0].items():
        cells = [*(f"{t[name]:.1f}" for t in tables), f"{tables[1][name] / first:.2f}"]
        print("| " + " | ".join([name, *cells]) + " |")
    print()
    for operator in ("concat", "stack"):
        times = [seconds(wide(operator, k), options.rounds) * 1e3 for k in (100, 400)]
        print(f"compile {operator} of 100 and of 400: {times[0]:.0f} and {times[1]:.0f} ms")
    print()
    for statement in (
        "import relaxpy",
        "from relaxpy.script import ir, relax, tir",
        "from relaxpy import relax",
    ):
        print(f"{statement}: {import_milliseconds(statement):.0f} ms beyond NumPy's own import")
    statement = f"from relaxpy.script import from_source; module = from_source({source(1, 1)!r})"
    print(f"the first module: {import_milliseconds(statement):.0f} ms, with the import")
    statement += "; import relaxpy; relaxpy.compile(module, target='numpy')"
    print(f"the first executable: {import_milliseconds(statement):.0f} ms, with the imports")


if __name__ == "__main__":
    main()
