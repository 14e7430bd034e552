"""What reading, printing, checking and compiling cost for a binding, and whether they are linear.

Modules are chains of elementwise operators on (n, 128), of a smaller and a larger size; one more
has 100 kernels that every tenth binding calls. Prints microseconds of processor time a binding, the
best of some rounds, and the growth from the smaller to the larger module (1.0 is linear).
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
from pathlib import Path
from typing import Any

import relaxpy
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.ir.relax.transform.normalize import Normalize
from relaxpy.ir.serialize import load_json, save_json
from relaxpy.ir.structural import structural_equal, structural_hash
from relaxpy.script import from_source

OPERATORS = ("add", "multiply", "subtract", "maximum")
LARGEST_COMPILED = 1_000
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


def source(bindings: int, kernels: int = 0) -> str:
    """A module in the language's own words."""
    lines = ["@I.ir_module", "class Chain:"]
    for k in range(kernels):
        lines += KERNEL.format(k=k).splitlines()
    info = 'R.Tensor(("n", 128), "float32")'
    lines += ["    @R.function", f"    def main(x: {info}) -> {info}:", "        n = T.int64()"]
    lines += ["        cls = Chain", "        with R.dataflow():"]
    for i in range(bindings):
        value = f"R.{OPERATORS[i % 4]}({f'y{i - 1}' if i else 'x'}, x)"
        if kernels and i % 10 == 9:
            out = 'R.Tensor((n, 128), "float32")'
            value = f"R.call_tir(cls.kernel{i // 10 % kernels}, (y{i - 1},), out_sinfo={out})"
        lines.append(f"            y{i} = {value}")
    lines += [f"            R.output(y{bindings - 1})", f"        return y{bindings - 1}"]
    return "\n".join(lines) + "\n"


def decorated(text: str) -> Callable[[], object]:
    """Running a file that has the module in decorated form, which the interpreter has compiled."""
    file = Path(tempfile.mkdtemp()) / "chain.py"
    file.write_text(f"from relaxpy.script import ir as I, relax as R, tir as T\n\n{text}")
    code = compile(file.read_text(), str(file), "exec")
    return lambda: exec(code, {"__name__": "chain", "__file__": str(file)})


def steps(text: str, bindings: int) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    module: Any = from_source(text)
    again, printed, saved = from_source(text), module.script(), save_json(module)
    assert isinstance(module, IRModule)
    found: dict[str, Callable[[], object]] = {
        "parse, decorated": decorated(text),
        "parse, from text": lambda: from_source(text),
        "the same, not checked": lambda: from_source(text, check_well_formed=False),
        "parse what was printed": lambda: from_source(printed),
        "print": lambda: module.script(),
        "normalise (normal form)": lambda: Normalize()(module),
        "well_formed": lambda: check_well_formed(module),
        "structural_equal": lambda: structural_equal(module, again),
        "structural_hash": lambda: structural_hash(module),
        "LegalizeOps": lambda: LegalizeOps()(module),
        "save_json": lambda: save_json(module),
        "load_json": lambda: load_json(saved),
    }
    if bindings <= LARGEST_COMPILED:
        found["compile (numpy)"] = lambda: relaxpy.compile(module, target="numpy")
    return found


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
    """The least processor time of a fresh interpreter for `statement`, beyond importing NumPy.

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

        plain, whole = "import numpy, ml_dtypes", f"import numpy, ml_dtypes; {statement}"
        pairs = [(start(plain), start(whole)) for _ in range(rounds)]
        return (min(w for _, w in pairs) - min(p for p, _ in pairs)) * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs=2, default=(1_000, 10_000))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    small, large = options.sizes
    print(f"Python {platform.python_version()}, {platform.machine()}, best of {options.rounds}\n")
    columns = [(small, 0), (large, 0), (small, 100)]
    tables = [
        {
            name: seconds(run, options.rounds) / bindings * 1e6
            for name, run in steps(source(bindings, kernels), bindings).items()
        }
        for bindings, kernels in columns
    ]
    heads = [f"{b:,}" + (f" + {k} kernels" if k else "") for b, k in columns]
    print("| us a binding | " + " | ".join(heads) + " | growth |")
    print("|---|" + "---:|" * 4)
    for name, first in tables[0].items():
        cells = [f"{t[name]:.1f}" if name in t else "" for t in tables]
        growth = f"{tables[1][name] / first:.2f}" if name in tables[1] else ""
        print("| " + " | ".join([name, *cells, growth]) + " |")
    print()
    for statement in (
        "import relaxpy",
        "from relaxpy.script import ir, relax, tir",
        "from relaxpy import relax",
    ):
        print(f"{statement}: {import_milliseconds(statement):.0f} ms beyond NumPy's own import")


if __name__ == "__main__":
    main()
