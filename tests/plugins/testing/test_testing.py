"""`relaxpy.testing`: golden files, targets, inputs and passes, with pytest and without."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import find, given, settings

import relaxpy
from relaxpy import IRModule, testing
from relaxpy.errors import FunctionSignatureError, MisuseError, TransformError
from relaxpy.relax import transform
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Model:
    @R.function
    def main(
        x: R.Tensor(("n", "m"), "float32"), i: R.Tensor(("m",), "int64"), k: R.Tensor((2,), "bool")
    ) -> R.Tensor(("n", "m"), "float32"):
        with R.dataflow():
            y = R.add(R.exp(x), R.astype(i, "float32"))
            R.output(y)
        return y


@R.function
def half(x: R.Tensor(("n // 2", "n"), "float32")) -> R.Tensor(("n // 2", "n"), "float32"):
    return R.negative(x)


@R.function(pure=False)
def fails(x: R.Tensor(("n",), "float32")) -> R.Tensor((100,), "float32"):
    return R.match_cast(x, R.Tensor((100,), "float32"))


def exact(x: np.ndarray, i: np.ndarray, k: np.ndarray) -> np.ndarray:
    return np.exp(x.astype("float64")) + i


def test_targets_that_agree_with_an_oracle_pass() -> None:
    testing.check_targets(Model)
    testing.check_targets(Model, oracle=exact, sizes={"n": 4}, seed=5, runs=2)
    testing.check_targets(Model, oracle="numpy", targets=["reference"], runs=1)
    x, i, k = testing.random_inputs(Model["main"])
    testing.check_targets(Model["main"], x, i, k, oracle=exact)
    testing.check_targets(half)
    testing.check_targets(fails)  # every target raises the same error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"oracle": lambda x, i, k: exact(x, i, k) + 1},
            r"main on numpy, random inputs of seed 3:",
        ),
        ({"oracle": lambda x, i, k: exact(x, i, k) * 1.0001}, r"element \(0, 0\) of the result is"),
        ({"oracle": lambda x, i, k: x[:0]}, r"has shape \(\d, \d\), expected \(0, \d\)"),
        ({"oracle": lambda x, i, k: x > 0}, "has dtype float32, expected bool"),
        ({"oracle": lambda x, i, k: (x, x)}, "an array, but the oracle returned a tuple"),
        ({"oracle": lambda x, i, k: x.tolist()}, "an array, but the oracle returned a list"),
    ],
)
def test_targets_that_differ_are_shown(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message) as caught:
        testing.check_targets(Model, targets=["numpy"], seed=3, **options)
    assert re.search(r"inputs: float32\[\d, \d\], int64\[\d\], bool\[2\]$", str(caught.value))


@pytest.mark.parametrize("options", [{"runs": 0}, {"oracle": 3}, {"targets": ["cpu9"]}])
def test_options_of_targets_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(MisuseError):
        testing.check_targets(Model, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"oracle": lambda x: x}, r"the oracle takes \(x\), found 3 arguments"),
        ({"oracle": lambda x, i, k, *, y: x}, r"the oracle takes \(x, i, k, \*, y\), found 3"),
        ({"sizes": {"nn": 3}}, r"has a dimension nn(.*\n)*  hint: the dimensions are m, n"),
        ({"sizes": {"N": 3}}, r"no parameter has a dimension N(.*\n)*  hint: did you mean 'n'"),
    ],
)
def test_mistakes_in_options_say_what_to_write(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        testing.check_targets(Model, targets=["numpy"], **options)


def test_an_oracle_runs_once_for_all_targets() -> None:
    calls = []

    def oracle(*values: Any) -> Any:
        calls.append(values)
        return exact(*values)

    testing.check_targets(Model, targets=["numpy", "reference"], oracle=oracle, runs=2)
    assert len(calls) == 2


def test_an_error_of_an_oracle_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        testing.check_targets(Model, targets=["numpy"], oracle=lambda *_: 1 / 0)


@settings(max_examples=30)
@given(testing.inputs(Model["main"], max_size=3))
def test_drawn_inputs_fit_the_parameters(values: tuple[Any, ...]) -> None:
    x, i, k = values
    assert (x.dtype, i.dtype, k.dtype) == (np.float32, np.int64, bool)
    assert x.shape[1:] == i.shape
    assert max(x.shape) <= 3
    relaxpy.compile(Model, "reference")["main"](*values)


def test_inputs_that_fail_shrink() -> None:
    drawn = testing.inputs(Model["main"], {"n": 2})
    x, i, _ = find(drawn, lambda values: bool((values[0] == 100).any()))
    assert x.shape == (2, 1)
    assert sorted(x.flat) == [0, 100]
    assert not i.any()
    x, *_ = find(testing.inputs(half), lambda values: values[0].shape[1] > 2)
    assert x.shape == (1, 3)


@I.ir_module
class Restricted:
    @R.function
    def main(
        x: R.Tensor(("n", "m"), "float32"),
        unit: R.Tensor(("n",), "float16"),
        divisor: R.Tensor(("n",), "int32"),
        i: R.Tensor(("k",), "int64"),
        pair: R.Tuple(R.Tensor(("k",), "int64"), R.Tensor(("k",), "int64")),
        free: R.Tensor(("n",), "float32"),
        flag: R.Tensor((), "bool"),
    ):
        m = T.int64()
        n = T.int64()
        k = T.int64()
        with R.dataflow():
            rows = R.reshape(R.permute_dims(x), (m, n))
            a = R.take(rows, i, axis=0)
            b = R.index_tensor(x, (R.astype(pair[0], "int32"), pair[1]))
            c = R.add(
                R.acos(unit), R.astype(R.floor_divide(R.const(7, "int32"), divisor), "float16")
            )
            R.output(rows, a, b, c)
        if flag:  # noqa: SIM108
            roots = R.sqrt(R.log(rows))
        else:
            roots = R.power(rows, R.const(0.5, "float32"))
        d = R.add(R.sum(a), R.add(R.sum(b), R.sum(R.astype(c, "float32"))))
        return (
            R.add(R.sum(R.rsqrt(rows), axis=[0, 1]), d),
            R.sum(R.abs(roots)),
            R.add(free, R.const(1.0, "float32")),
        )


def is_inside(values: tuple[Any, ...]) -> bool:
    x, unit, divisor, i, pair, *_ = values
    return bool(
        (x > 0).all()
        and (abs(unit) <= 1).all()
        and (divisor > 0).all()
        and (i < x.shape[1]).all()
        and (pair[0] < x.shape[0]).all()
        and (pair[1] < x.shape[1]).all()
    )


def test_random_inputs_stay_in_the_domains_of_operators() -> None:
    run = relaxpy.compile(Restricted)["main"]
    free = []
    for seed in range(12):
        values = testing.random_inputs(Restricted, seed=seed)
        assert is_inside(values)
        assert np.isfinite(run(*values)[0]).all()
        free += [*values[5]]
    assert min(free) < 0 < max(free), "what no operator restricts has all values"
    same = testing.random_inputs(Model["main"], {"n": 3, "m": 4}, seed=1)[0]
    assert (same < 0).any(), "exp takes all numbers"


@settings(max_examples=30, deadline=None)
@given(testing.inputs(Restricted["main"], max_size=3))
def test_drawn_inputs_stay_in_the_domains_of_operators(values: tuple[Any, ...]) -> None:
    assert is_inside(values)


def test_targets_are_compared_inside_the_domains_of_operators() -> None:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), i: R.Tensor((4,), "int64")):
        with R.dataflow():
            y = R.take(R.log(x), i, axis=1)
            R.output(y)
        return y

    testing.check_targets(main, oracle=lambda x, i: np.log(x)[:, i])
    with pytest.raises(AssertionError, match="differ"):
        testing.check_targets(main, oracle=lambda x, i: np.log(x)[:, 0 * i])


def test_inputs_of_a_parameter_without_values_are_refused() -> None:
    @R.function
    def takes_object(x: R.Object) -> R.Object:
        return x

    with pytest.raises(MisuseError, match="no random values for parameter x"):
        testing.inputs(takes_object)


LEGAL = transform.LegalizeOps()(Model)


def test_passes_that_do_what_is_expected_pass() -> None:
    testing.assert_transforms(Model, transform.LegalizeOps(), LEGAL)
    testing.assert_transforms(Model, _refuse, TransformError)
    diff = testing.pass_diff(Model, transform.LegalizeOps())
    assert re.search(r"^-.*R\.exp\(x\)$", diff, re.MULTILINE)
    assert re.search(r"^\+.*R\.call_tir\(", diff, re.MULTILINE)
    assert testing.pass_diff(LEGAL, transform.LegalizeOps()) == ""


def _refuse(mod: IRModule) -> IRModule:
    raise TransformError("no")


@pytest.mark.parametrize(
    ("expected", "texts"),
    [
        (LEGAL, ["+++ main as it is", "the pass changed:\nnothing"]),
        (TransformError, ["the pass raises no TransformError", "the pass changed:\nnothing"]),
    ],
)
def test_passes_that_do_something_else_are_shown(expected: Any, texts: list[str]) -> None:
    with pytest.raises(AssertionError) as caught:
        testing.assert_transforms(Model, lambda mod: mod, expected)
    assert [text for text in texts if text not in str(caught.value)] == []


def test_golden_files_without_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "golden" / "model.txt"
    with pytest.raises(AssertionError, match=r"there is no golden file .*RELAXPY_UPDATE_GOLDEN=1"):
        testing.assert_golden(Model, path)
    monkeypatch.setenv("RELAXPY_UPDATE_GOLDEN", "1")
    testing.assert_golden(Model, path)
    monkeypatch.delenv("RELAXPY_UPDATE_GOLDEN")
    testing.assert_golden(Model, path)
    with pytest.raises(AssertionError) as caught:
        testing.assert_golden(LEGAL, path)
    assert "\n-" in str(caught.value)
    assert "R.exp(x)" in str(caught.value)
    with pytest.raises(MisuseError, match="expected a program, a string, or arrays, found 3"):
        testing.assert_golden(3, path)


X, Y = np.arange(4, dtype="float32"), np.ones((4,), "float32")
GOLDEN = {
    "a number": np.float32(2),
    "a vector": np.full(4, 2, "float32"),
    "a row": np.full((1, 4), 2, "float32"),
    "a matrix": np.full((4, 5), 2, "float32"),
    "nothing": np.zeros(0, "float32"),
    "float64": np.full(4, 2.0),
    "bfloat16": np.full(4, 2, ml_dtypes.bfloat16),
    "float8": np.full(4, 2, ml_dtypes.float8_e4m3fn),
    "a tuple of one": (np.full(4, 2, "float32"),),
    "two": (X, Y),
    "stacked": np.stack((X, Y)),
    "nested": ((X, Y), X),
    "nested and stacked": (np.stack((X, Y)), X),
    "nested otherwise": (X, (Y, X)),
    "unequal shapes": ((X, np.float32(1)), X),
    "ids": np.array([100000, 200000]),
    "next ids": np.array([100001, 200002]),
    "large ids": np.array([2**62]),
    "next large ids": np.array([2**62 + 1]),
    "a mask": np.array([True, False]),
    "another mask": np.array([True, True]),
    "strings": np.array(["a", "bc"]),
    "longer strings": np.array(["a", "bcd"]),
    "bytes": np.array([b"a", b"bc"]),
    "times": np.array(["2026-01-01", "NaT"], "datetime64[D]"),
    "other times": np.array(["2026-01-01", "2026-01-02"], "datetime64[D]"),
    "a text": "a\nb",
    "carriage returns": "a\r\nb",
    "a lone carriage return": "a\rb",
    "another separator": "a\x0bb",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_file_is_of_one_value(name: str, tmp_path: Path) -> None:
    path = tmp_path / "golden"
    testing.assert_golden(GOLDEN[name], path, update=True)
    for other, value in GOLDEN.items():
        if other == name:
            testing.assert_golden(value, path, update=False)
            continue
        with pytest.raises(AssertionError) as caught:
            testing.assert_golden(value, path, update=False)
        assert len(str(caught.value).splitlines()) != 2, "the difference is not shown"


@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize(
    "value", [np.array([{}, None]), (X, np.array([object()])), np.zeros(2, "i4,f4")]
)
def test_objects_are_not_golden(value: object, update: bool, tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="expected numbers or strings, not an array of"):
        testing.assert_golden(value, tmp_path / "y.npz", update=update)
    assert not [*tmp_path.iterdir()]


TESTS = """
import os
import pytest, relaxpy
from relaxpy.script import relax as R

@R.function
def double(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    return R.add(x, x)

def test_program(golden):
    golden(double)

@pytest.mark.parametrize("text", ["a/b", "c"])
def test_texts(golden, text):
    golden(text)
    golden(text * 2, name=f"twice {text}")

@pytest.mark.relaxpy_targets
def test_names(target):
    print("on", target)

@pytest.mark.relaxpy_targets("numpy", "native")
def test_default():
    assert relaxpy.compile(double).target == os.environ["RELAXPY_TARGET"]
"""


def run(folder: Path, *options: str) -> tuple[int, str]:
    plugins = ["-p", "relaxpy.plugins.testing.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "-s", *plugins, *options]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def test_the_plugin_writes_and_compares_golden_files(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(TESTS)
    code, out = run(tmp_path)
    assert code == 1
    assert "to accept it: pytest --update-golden test_it.py::test_program" in out
    assert "to accept it: pytest --update-golden 'test_it.py::test_texts[a/b]'" in out
    assert {line for line in out.split() if line in ("numpy", "reference")} == {
        *("numpy", "reference")
    }
    assert run(tmp_path, "--update-golden")[0] == 0  # which runs on each default target, too
    written = {path.name for path in (tmp_path / "golden" / "test_it").iterdir()}
    assert written == {
        *("test_program.txt", "test_texts-a-b-.txt", "test_texts-c-.txt"),
        *("twice-a-b.txt", "twice-c.txt"),
    }
    test.write_text(TESTS.replace("R.add(x, x)", "R.multiply(x, x)"))
    code, out = run(tmp_path, "-k", "program or text")
    assert code == 1
    assert "1 failed, 2 passed" in out
    assert re.search(r"^-.*R\.add\(x, x\)$", out, re.MULTILINE)
    assert re.search(r"^\+.*R\.multiply\(x, x\)$", out, re.MULTILINE)
    assert "Traceback" not in out
    assert "All traceback entries are hidden" not in out
    assert "During handling" not in out


ARRAYS = """
import numpy as np

def test_arrays(golden):
    golden("text")
    golden(np.array([1.0, 2.0]) * FACTOR, name="one", rtol=1e-3)
    golden((np.ones(2, "float32"), np.arange(3)), name="two")
"""


def test_arrays_are_golden_with_a_tolerance(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(f"{ARRAYS}\nFACTOR = 1.0")
    code, out = run(tmp_path)
    assert code == 1
    assert "test_it.py:5: there is no golden file" in out
    assert run(tmp_path, "--update-golden")[0] == 0
    names = {path.name for path in (tmp_path / "golden" / "test_it").iterdir()}
    assert names == {"test_arrays.txt", "one.npz", "two.npz"}
    for factor, accepted in (("1.0005", True), ("1.005", False), ("np.float32(1)", True)):
        test.write_text(f"{ARRAYS}\nFACTOR = {factor}")
        code, out = run(tmp_path)
        assert (code == 0) == accepted
        assert accepted or "test_it.py:6: Not equal to tolerance rtol=0.001" in out
        assert accepted or "to accept it: pytest --update-golden test_it.py::test_arrays" in out
    test.write_text(f"{ARRAYS.replace('np.arange(3)', 'np.arange(3.0)')}\nFACTOR = 1.0")
    assert "arr_1 of the test has datatype float64, expected int64" in run(tmp_path)[1]


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")])
def test_golden_files_that_no_test_compares_are_reported(tmp_path, workers) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "def test_a(golden):\n    golden('a')\n\ndef test_b(golden):\n    golden('b')\n"
    )
    assert run(tmp_path, "--update-golden")[0] == 0
    report = (
        f"no test compares the golden file {Path('golden', 'test_it', 'test_b.txt')}: remove it"
    )
    assert "no test compares" not in run(tmp_path, *workers)[1]
    test.write_text("def test_a(golden):\n    golden('a')\n")
    code, out = run(tmp_path, *workers)
    assert (code, report in out) == (0, True)
    if not workers:
        for options in (("-k", "test_a"), ("test_it.py::test_a",), ("-x",)):
            assert "no test compares" not in run(tmp_path, *options)[1]
        test.write_text("def test_a(golden):\n    golden('other')\n")
        assert "no test compares" not in run(tmp_path)[1]


def test_two_texts_of_a_test_do_not_share_a_golden_file(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_texts(golden):\n    golden('a')\n    golden('b')\n"
    )
    for options in ((), ("--update-golden",)):
        code, out = run(tmp_path, *options)
        assert code == 1
    assert "golden compares two texts with" in out
    assert "test_texts.txt; golden(program, name=...) gives each a file" in out


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2", "--dist", "loadgroup")])
def test_two_tests_share_a_golden_file_if_they_have_one_text(tmp_path: Path, workers) -> None:
    program = (
        "import pytest\n\n@pytest.mark.parametrize('text', {})\n"
        "def test_texts(golden, text):\n    golden(text, name='same')\n"
    )
    (tmp_path / "test_it.py").write_text(program.format(["a", "a"]))
    assert run(tmp_path, "--update-golden", *workers)[0] == 0
    assert run(tmp_path)[0] == 0
    (tmp_path / "test_it.py").write_text(program.format(["a", "b"]))
    code, out = run(tmp_path, "--update-golden", *workers)
    assert code == 1
    assert "another test has written another text to" in out
    assert "1 failed, 1 passed" in out


def test_the_marker_of_targets_refuses_other_names(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.relaxpy_targets('numpi')\ndef test_it(target):\n    pass\n"
    )
    code, out = run(tmp_path)
    assert code == 2
    assert "test_it.py::test_it: the marker relaxpy_targets takes names of native, numpy" in out
    assert "found 'numpi'" in out


def test_pytest_does_not_rewrite_relaxpy(tmp_path: Path) -> None:
    """It would, as the plugin is in the package; without bytecode, that takes seconds each time."""
    (tmp_path / "conftest.py").write_text(
        "import pytest\npytest.register_assert_rewrite('relaxpy', 'theirs')\n"
    )
    (tmp_path / "theirs.py").write_text("")
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n"
        "def test_loaders():\n"
        "    import relaxpy.ir.relax, theirs\n"
        "    ours = relaxpy.ir.relax.__loader__, relaxpy.ir.module.__loader__\n"
        "    kinds = [type(loader).__name__ for loader in (*ours, theirs.__loader__)]\n"
        "    assert kinds == ['SourceFileLoader'] * 2 + ['AssertionRewritingHook']\n"
    )
    code, out = run(tmp_path)
    assert code == 0, out


@pytest.mark.parametrize("oracle", ["reference", "numpy"])
def test_a_call_that_no_target_takes_is_no_agreement(oracle: str) -> None:
    with pytest.raises(FunctionSignatureError, match=r"parameter x of half.*found"):
        testing.check_targets(half, np.ones((2, 7), "float32"), oracle=oracle)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": []}, "a target other than the oracle"),
        ({"targets": ["numpy"], "oracle": "numpy"}, "a target other than the oracle"),
        ({"rtol": -0.1}, "rtol of at least 0"),
        ({"rtol": float("nan")}, "rtol of at least 0"),
    ],
)
def test_a_check_that_compares_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        testing.check_targets(half, **options)
