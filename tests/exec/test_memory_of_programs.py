"""The memory of a call before it runs: formulas, and what a process measures."""

import json
import os
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.exec.native.values.packing import Packing
from relaxpy.script import from_source, relax as R, tir as T

#: The function `main` of each program, and its sizes in two calls.
PROGRAMS = {
    "matmul and cumsum": (
        """
def main(x: R.Tensor(("n", 512), "float32"), w: R.Tensor((512, 512), "float32")):
    a = R.matmul(x, w)
    c = R.matmul(R.cumsum(a, axis=0), w)
    return R.nn.relu(R.matmul(R.add(R.cumsum(c, axis=1), a), w))
""",
        ({"n": 9000}, {"n": 5000}),
    ),
    "perceptron": (
        """
def main(x: R.Tensor(("n", 64), "float32"), a: R.Tensor((64, 256), "float32"),
         b: R.Tensor((256, 64), "float32")):
    h = R.nn.relu(R.matmul(x, a))
    return R.nn.softmax(R.nn.silu(R.matmul(h, b)), axis=-1)
""",
        ({"n": 60000}, {"n": 30000}),
    ),
    "convolutions": (
        """
def main(x: R.Tensor(("n", 3, 32, 32), "float32"), w: R.Tensor((16, 3, 3, 3), "float32")):
    y = R.nn.relu(R.nn.conv2d(x, w, padding=1))
    return R.mean(R.nn.max_pool2d(y, (2, 2), strides=2), axis=[2, 3])
""",
        ({"n": 700}, {"n": 400}),
    ),
    "attention": (
        """
def main(q: R.Tensor((4, "n", 16), "float32"), k: R.Tensor((4, "m", 16), "float32")):
    s = R.nn.softmax(R.matmul(q, R.permute_dims(k, [0, 2, 1])), axis=-1)
    return R.cumsum(R.matmul(s, k), axis=1)
""",
        ({"n": 1000, "m": 3000}, {"n": 60000, "m": 8}),
    ),
    "branch": (
        """
def main(x: R.Tensor(("n", 64), "float32"), c: R.Tensor((), "bool")):
    y = R.cumsum(x, axis=0)
    if c:
        z = R.cumsum(R.cumsum(y, axis=1), axis=0)
    else:
        z = R.nn.softmax(y)
    return R.cumsum(z, axis=1)
""",
        ({"n": 150000}, {"n": 80000}),
    ),
    "loop": (
        """
def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
    n = T.int64()
    @R.function
    def step(i: R.Tensor((), "int64"), s: R.Tensor((n, 64), "float32")) -> R.Tensor(
        (n, 64), "float32"
    ):
        c = R.less(i, R.const(3, "int64"))
        if c:
            r = step(R.add(i, R.const(1, "int64")), R.add(R.cumsum(s, axis=0), s))
        else:
            r = s
        return r
    return step(R.const(0, "int64"), x)
""",
        ({"n": 150000}, {"n": 80000}),
    ),
    "two sizes and two results": (
        """
def main(x: R.Tensor(("n", 64), "float32"), y: R.Tensor(("m", 64), "float32")):
    a = R.cumsum(x, axis=0)
    b = R.cumsum(y, axis=0)
    c = R.sum(R.cumsum(a, axis=1))
    return R.add(b, c), R.cumsum(R.cumsum(a, axis=0), axis=1)
""",
        ({"n": 90000, "m": 40000}, {"n": 20000, "m": 120000}),
    ),
    "views": (
        """
def main(x: R.Tensor(("n", 64), "float32")):
    y = R.flatten(R.cumsum(R.exp(x), axis=0))
    return R.add(R.cumsum(y, axis=0), y)
""",
        ({"n": 150000}, {"n": 80000}),
    ),
    "constants": (
        """
def main(x: R.Tensor(("n", 64), "float32")):
    y = R.cumsum(R.matmul(x, R.const(WEIGHT)), axis=0)
    return R.matmul(y, R.const(WEIGHT))
""",
        ({"n": 150000}, {"n": 80000}),
    ),
    "values of half the size": (
        """
def main(x: R.Tensor(("n", 64), "float32")):
    y = R.cumsum(R.astype(x, "float16"), axis=0)
    return R.cumsum(R.astype(R.cumsum(y, axis=1), "float64"), axis=0)
""",
        ({"n": 150000}, {"n": 80000}),
    ),
}
TARGETS = ("native", "numpy")
WEIGHT = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
KIB = 1024
#: What is not of the programs: pages of threads and of BLAS, blocks that fit into a cache.
CONSTANT = 6 << 20


def compiled(name: str, target: str) -> relaxpy.Executable:
    text = "@R.function" + PROGRAMS[name][0]
    return relaxpy.compile(from_source(text, {"R": R, "T": T, "WEIGHT": WEIGHT}), target)


def arguments(ex: relaxpy.Executable, sizes: dict[str, int]) -> list[np.ndarray]:
    result = []
    for param in ex["main"].signature.params:
        dims = param.struct_info.shape.values
        shape = [sizes[d.name] if hasattr(d, "name") else d.value for d in dims]
        result.append(np.ones(shape, str(param.struct_info.dtype)))
    return result


def status(key: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if key in x)
    return int(line.split()[1]) * KIB


def peak_of(ex: relaxpy.Executable, sizes: dict[str, int]) -> int:
    """The bytes by which a call raises the peak of this process."""
    from relaxpy.exec.native.threads.freed_memory import memory

    args = arguments(ex, sizes)
    if ex.target == "native":
        memory().trim()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    before = status("VmRSS")
    result = ex(*args)
    after = status("VmHWM")
    del result
    return after - before


def measure(target: str) -> dict[str, list[tuple[int, int, str]]]:
    """For each call of each program, the bytes measured and declared, and the formula."""
    square = np.ones((700, 700), "float32")
    square @ square
    found = {}
    for name, (_, calls) in PROGRAMS.items():
        ex = compiled(name, target)
        ex(*arguments(ex, {size: 2 for size in calls[0]}))
        memory = ex.memory()
        found[name] = [
            (peak_of(ex, sizes), memory.bytes(**sizes), memory.formula) for sizes in calls
        ]
    return found


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("target", TARGETS)
def test_a_process_measures_what_the_formula_says(target: str) -> None:
    code = [sys.executable, __file__, target]
    env = {**os.environ, "RELAXPY_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(code, capture_output=True, text=True, env=env, check=True)
    problems = [
        f"{name}: measured {found}, expected {said} = {formula}"
        for name, calls in json.loads(run.stdout).items()
        for found, said, formula in calls
        if abs(found - said) > 0.03 * said + CONSTANT
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_formulas_are_arithmetic_that_grows_with_each_size(name: str, target: str) -> None:
    memory = compiled(name, target).memory()
    names = memory.sizes
    assert names == tuple(sorted(PROGRAMS[name][1][0]))
    grid = (0, 1, 2, 7, 64, 1000, 123_457)
    for values in product(grid, repeat=len(names)):
        sizes = dict(zip(names, values, strict=True))
        evaluated = eval(memory.formula, {"max": max, "min": min, "__builtins__": {}}, sizes)
        assert memory.bytes(**sizes) == evaluated
    for fixed in names:
        rest = dict.fromkeys(names, 100)
        series = [memory.bytes(**rest | {fixed: size}) for size in grid]
        assert all(a <= b for a, b in pairwise(series))
        assert series[0] < series[-1]
