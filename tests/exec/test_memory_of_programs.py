"""The memory of a call before it runs: formulas, and what a process measures."""

import json
import os
import subprocess
import sys
import tracemalloc
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
        ({"n": 6000}, {"n": 3500}),
    ),
    "perceptron": (
        """
def main(x: R.Tensor(("n", 64), "float32"), a: R.Tensor((64, 256), "float32"),
         b: R.Tensor((256, 64), "float32")):
    h = R.nn.relu(R.matmul(x, a))
    return R.nn.softmax(R.nn.silu(R.matmul(h, b)), axis=-1)
""",
        ({"n": 40000}, {"n": 20000}),
    ),
    "convolutions": (
        """
def main(x: R.Tensor(("n", 3, 32, 32), "float32"), w: R.Tensor((16, 3, 3, 3), "float32")):
    y = R.nn.relu(R.nn.conv2d(x, w, padding=1))
    return R.mean(R.nn.max_pool2d(y, (2, 2), strides=2), axis=[2, 3])
""",
        ({"n": 500}, {"n": 300}),
    ),
    "attention": (
        """
def main(q: R.Tensor((4, "n", 16), "float32"), k: R.Tensor((4, "m", 16), "float32")):
    s = R.nn.softmax(R.matmul(q, R.permute_dims(k, [0, 2, 1])), axis=-1)
    return R.cumsum(R.matmul(s, k), axis=1)
""",
        ({"n": 9000, "m": 5000}, {"n": 60000, "m": 8}),
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
        ({"n": 100000}, {"n": 60000}),
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
        ({"n": 100000}, {"n": 60000}),
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
        ({"n": 100000}, {"n": 60000}),
    ),
    "views of values in a kernel": (
        """
def main(x: R.Tensor(("n", 64), "float32")):
    y = R.flatten(R.exp(x))
    return R.add(R.cumsum(y, axis=0), y)
""",
        ({"n": 100000}, {"n": 60000}),
    ),
    "constants": (
        """
def main(x: R.Tensor(("n", 64), "float32")):
    y = R.cumsum(R.matmul(x, R.const(WEIGHT)), axis=0)
    return R.matmul(y, R.const(WEIGHT))
""",
        ({"n": 100000}, {"n": 60000}),
    ),
    "values of half the size": (
        """
def main(x: R.Tensor(("n", 64), "float32")):
    y = R.cumsum(R.astype(x, "float16"), axis=0)
    return R.cumsum(R.astype(R.cumsum(y, axis=1), "float64"), axis=0)
""",
        ({"n": 100000}, {"n": 60000}),
    ),
}
TARGETS = ("native", "numpy")
WEIGHT = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
KIB = 1024
#: What is not of the programs: pages of this process, and blocks that fit into a cache.
CONSTANTS = {"native": 4 << 20, "numpy": 1 << 19}


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
    """The bytes by which a call raises the peak of this process, or of its arrays on NumPy."""
    from relaxpy.exec.native.threads.freed_memory import memory

    args = arguments(ex, sizes)
    if ex.target == "numpy":
        tracemalloc.start()
        ex(*args)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most
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
        if target == "numpy":  # where it is exact
            calls = [{size: n // 6 for size, n in sizes.items()} for sizes in calls]
            ex(*arguments(ex, calls[0]))  # blocks of rows keep their memory
        ex(*arguments(ex, dict.fromkeys(calls[0], 2)))
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
        if abs(found - said) > 0.03 * said + CONSTANTS[target]
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


@pytest.mark.parametrize("target", TARGETS)
def test_what_packed_functions_take_is_a_size_with_their_name(target: str) -> None:
    relaxpy.register_func("test.memory.own", lambda x: x + x, override=True)
    text = """
@R.function(pure=False)
def main(x: R.Tensor(("n", 4), "float32")):
    n = T.int64()
    y = R.cumsum(x, axis=0)
    z = R.call_packed("test.memory.own", y, sinfo_args=R.Tensor((n, 4), "float32"))
    return R.cumsum(z, axis=0)
"""
    memory = relaxpy.compile(from_source(text), target).memory()
    assert memory.sizes == ("bytes_of_test_memory_own", "n")
    with pytest.raises(MisuseError, match="missing: bytes_of_test_memory_own, n"):
        memory.bytes()
    assert memory.bytes(n=1000, bytes_of_test_memory_own=0) == 32_000  # z and the result
    assert memory.bytes(n=1000, bytes_of_test_memory_own=50_000) == 66_000  # y besides


def test_sizes_that_depend_on_data_are_sizes_of_the_formula() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    found = T.int64()
    u = R.unique(x)
    v = R.match_cast(u, R.Tensor((found,), "float32"))
    return R.cumsum(v, axis=0)
"""
    memory = relaxpy.compile(from_source(text), "numpy").memory()
    assert "found" in memory.sizes
    assert any("unique" in size for size in memory.sizes)


def test_sizes_that_are_wrong_are_named() -> None:
    memory = compiled("two sizes and two results", "numpy").memory()
    with pytest.raises(MisuseError, match="depends on m, n; missing: m, n"):
        memory.bytes()
    with pytest.raises(MisuseError, match="missing: m"):
        memory.bytes(n=3)
    with pytest.raises(UnknownNameError, match="depends on m, n, found k"):
        memory.bytes(k=1, n=1, m=1)
    with pytest.raises(MisuseError, match="the size n is at least 0, found -1"):
        memory.bytes(n=-1, m=0)
    with pytest.raises(MisuseError, match=r"the size m is an integer, found 2\.5"):
        memory.bytes(n=1, m=2.5)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="no function 'other'"):
        compiled("views", "numpy").memory("other")
    with pytest.raises(MisuseError, match="the reference evaluator has no plan"):
        compiled("views", "reference").memory()


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_weights_are_constants_with_their_packed_copies(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = np.random.default_rng(1).integers(-9, 9, (72, 130)).astype(kind)
    packed: list[tuple[int, int]] = []
    copy = Packing.packed

    def noted(self: Packing, data: np.ndarray) -> np.ndarray:
        result = copy(self, data)
        packed.append((self.nbytes(data.itemsize), result.nbytes))
        return result

    monkeypatch.setattr(Packing, "packed", noted)
    result = "int32" if kind == "int8" else kind
    text = f"""
@R.function
def main(x: R.Tensor(("n", 72), "{kind}")):
    return R.matmul(x, R.const(WEIGHT), out_dtype="{result}")
"""
    module = from_source(text, {"R": R, "WEIGHT": weight})
    ex = relaxpy.compile(module, "native")
    ex(np.ones((3, 72), kind))
    assert packed
    assert all(said == found for said, found in packed)
    assert ex.memory().weights == weight.nbytes + sum(found for _, found in packed)
    assert relaxpy.compile(module, "numpy").memory().weights == weight.nbytes


def test_programs_from_files_have_it_too(tmp_path: Path) -> None:
    ex = compiled("branch", "native")
    ex.save(tmp_path / "branch.rxp")
    loaded = relaxpy.load_executable(tmp_path / "branch.rxp")
    assert str(loaded.memory()) == str(ex.memory())


@pytest.mark.parametrize("target", TARGETS)
def test_charts_have_the_peak_of_the_formula(target: str) -> None:
    ex = compiled("matmul and cumsum", target)
    memory = ex.memory()
    assert f"peak {memory.formula} bytes" in repr(ex.memory_chart())
    assert memory.formula in ex.memory_chart().to_svg()
    chart = ex.memory_chart(sizes={"n": 1234})
    assert chart.peak == memory.bytes(n=1234)
    assert "unknown" not in repr(chart)


def test_it_is_shown_as_a_table() -> None:
    memory = compiled("views", "native").memory()
    rows = {line[:10].strip(): line.split()[-1] for line in str(memory).splitlines()}
    assert rows["results"] == "256*n"
    assert rows["workspace"] == "768*n"
    assert rows["a call at"] == memory.formula == "1024*n"
    assert "<table>" in memory._repr_html_()


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_below_a_page_count_where_they_are_known(target: str) -> None:
    text = "@R.function\ndef main(x: R.Tensor((4, 4), 'float32')):\n    return R.add(R.exp(x), x)\n"
    memory = relaxpy.compile(from_source(text), target).memory()
    assert str(memory.results.expr()) == "T.int64(64)"
    assert memory.bytes() == int(memory.formula) >= 64
