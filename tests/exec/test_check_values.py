"""The first operator that makes NaN, infinities or subnormal numbers, and where it is."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import relaxpy
from relaxpy.errors import RuntimeCheckError, UnknownNameError
from relaxpy.script import from_source, ir as I, relax as R, tir as T

TARGETS = ["native", "numpy", "reference"]
ONES = np.ones((4, 4), "float32")


@I.ir_module
class Chain:
    @T.prim_func(private=True)
    def halve(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            b[i, j] = a[i, j] * T.float32(0.5)

    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        cls = Chain
        with R.dataflow():
            a = R.matmul(x, w)
            h = R.call_tir(cls.halve, (a,), out_sinfo=R.Tensor((4, 4), "float32"))
            b = R.log(h)  # the line
            c = R.nn.softmax(R.matmul(b, w))
            d = R.log(R.matmul(c, x))
            R.output(d)
        return d


LINES = Path(__file__).read_text("utf-8").splitlines()
LINE = next(n for n, line in enumerate(LINES, 1) if line.endswith("# the line"))


@pytest.mark.parametrize("target", TARGETS)
def test_the_first_operator_is_found_at_its_line(target: str) -> None:
    ex = relaxpy.compile(Chain, target)
    x = -ONES
    check = ex.check_values(x, ONES)
    assert not check
    assert (check.problem, check.operator) == ("NaN", "log")
    assert check.source == f"{__file__}:{LINE}"
    assert str(check).startswith(f"{__file__}:{LINE}: log makes NaN\n")
    (operand,), (result,) = check.operands, check.results
    assert (operand.name, operand.dtype, operand.shape) == ("h", "float32", (4, 4))
    assert (operand.least, operand.greatest, operand.mean) == (-2, -2, -2)
    assert (operand.nans, operand.infinities, operand.subnormals) == (0, 0, 0)
    assert result.nans == 16
    assert np.isnan(result.mean)
    assert (x == -ONES).all()
    fine = ex.check_values(ONES, ONES)
    assert fine
    assert str(fine) == "all values are finite"


@pytest.mark.parametrize("target", TARGETS)
def test_an_argument_that_is_not_a_number_is_found_first(target: str) -> None:
    x = ONES.copy()
    x[0, 1] = np.nan
    check = relaxpy.compile(Chain, target).check_values(x, ONES)
    assert (check.problem, check.operator) == ("NaN", "")
    assert check.message == "argument x has NaN"
    assert check.results[0].nans == 1


OPERATORS = {
    "log": np.log,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "negative": np.negative,
    "sinh": np.sinh,
    "square": np.square,
    "tanh": np.tanh,
}


@given(
    names=st.lists(st.sampled_from([*OPERATORS]), min_size=1, max_size=8),
    value=st.sampled_from([-90.0, -2.0, 0.0, 0.5, 1.0, 3.0, 60.0, 1e20, np.inf]),
    target=st.sampled_from(["native", "numpy"]),
)
@settings(max_examples=30, deadline=None)
def test_the_operator_of_a_random_chain_is_that_of_numpy(names, value, target) -> None:
    lines = [f"    v{n + 1} = R.{name}(v{n})" for n, name in enumerate(names)]
    header = '@R.function\ndef main(v0: R.Tensor((3,), "float32")):\n'
    text = header + "\n".join((*lines, f"    return v{len(names)}\n"))
    last, expected = np.array([value, -value, value], "float32"), ("", "")  # of both signs
    check = relaxpy.compile(from_source(text), target).check_values(last)
    for name in names:
        with np.errstate(all="ignore"):
            new = OPERATORS[name](last)
        tiny = (new != 0) & (np.abs(new) < np.finfo("float32").smallest_normal)
        for problem, here, before in (
            ("NaN", np.isnan(new), False),
            ("infinity", np.isinf(new), np.isinf(last)),
            ("subnormal numbers", tiny, False),
        ):
            if np.any(here) and not np.any(before) and expected == ("", ""):
                expected = problem, name
        last = new
    assert (check.problem, check.operator) == expected


def test_an_infinity_of_a_mask_is_meant() -> None:
    masked = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32"), keep: R.Tensor((4,), "bool")):
    y = R.where(keep, x, R.const(float("-inf"), "float32"))
    z = R.nn.softmax(y)
    return R.log(z)
""",
        {"R": R, "float": float},
    )
    keep = np.array([True, False, True, True])
    check = relaxpy.compile(masked).check_values(ONES[0], keep)
    assert (check.problem, check.operator) == ("infinity", "log")
    check = relaxpy.compile(masked).check_values(ONES[0], ~keep & keep)
    assert (check.problem, check.operator) == ("NaN", "softmax")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_datatypes_have_their_own_subnormal_numbers(dtype: str) -> None:
    text = f"""
@R.function
def main(x: R.Tensor((4,), "{dtype}")):
    return R.multiply(x, x)
"""
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    ex = relaxpy.compile(from_source(text))
    least = float(ml_dtypes.finfo(kind).smallest_normal)
    assert ex.check_values(np.full(4, np.sqrt(least) * 2, kind))
    check = ex.check_values(np.full(4, np.sqrt(least) / 2, kind))
    assert (check.problem, check.operator) == ("subnormal numbers", "multiply")
    assert check.results[0].subnormals == 4
    with np.errstate(over="ignore"):
        large = np.full(4, ml_dtypes.finfo(kind).max)
    check = ex.check_values(large.astype(kind))
    assert (check.problem, check.results[0].infinities) == ("infinity", 4)


@I.ir_module
class Changing:
    @T.prim_func(private=True)
    def root(a: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            a[i, j] = T.sqrt(a[i, j])

    @R.function(pure=False)
    def main(x: R.Tensor((4, 4), "float32")):
        cls = Changing
        sinfo = R.Tensor((4, 4), "float32")
        y = R.call_tir_inplace(cls.root, (x,), inplace_indices=[0], out_sinfo=sinfo)
        return y


@pytest.mark.parametrize("target", TARGETS)
def test_operands_that_a_kernel_overwrites_are_those_of_before(target: str) -> None:
    x = -ONES
    check = relaxpy.compile(Changing, target).check_values(x)
    assert (check.problem, check.operator) == ("NaN", "root")
    assert [value.least for value in check.operands] == [-1]
    assert (x == -ONES).all()


def test_values_of_packed_functions_and_branches_are_looked_at() -> None:
    relaxpy.register_func("test.reciprocal", lambda a: 1 / a, override=True)
    module = from_source("""
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
    if c:
        y = R.call_packed("test.reciprocal", x, sinfo_args=R.Tensor((4,), "float32"))
    else:
        y = R.add(x, x)
    return y
""")
    zeros = np.zeros(4, "float32")
    ex = relaxpy.compile(module)
    with np.errstate(divide="ignore"):
        check = ex.check_values(zeros, np.array(True))
    assert (check.problem, check.operator) == ("infinity", "test.reciprocal")
    assert ex.check_values(zeros, np.array(False))


def test_calls_in_the_context_raise_at_the_line_of_the_operator() -> None:
    ex, vm = relaxpy.compile(Chain), relaxpy.VirtualMachine(relaxpy.compile(Chain))
    calls = lambda x: ex["main"](x, ONES), lambda x: ex(x, w=ONES), lambda x: vm["main"](x, ONES)
    with relaxpy.check_values():
        for call in calls:
            with pytest.raises(RuntimeCheckError) as caught:
                call(-ONES)
            assert str(caught.value).startswith(f"{__file__}:{LINE}:17: log makes NaN\n")
        for call in calls:
            np.testing.assert_array_equal(call(ONES), ex.entry_point("main")(ONES, ONES))
    for call in calls:
        assert np.isnan(call(-ONES)).any()


@R.function
def logarithm(x: R.Tensor((4,), "float32")):
    return R.log(x)


def test_calls_of_decorated_functions_in_the_context_are_checked() -> None:
    for _ in range(2):  # the first call compiles it
        with relaxpy.check_values(), pytest.raises(RuntimeCheckError, match="log makes infinity"):
            logarithm(np.zeros(4, "float32"))
        assert np.isneginf(logarithm(np.zeros(4, "float32"))).all()


def test_a_function_is_named_if_there_are_several() -> None:
    text = '@R.function\ndef NAME(x: R.Tensor((4,), "float32")):\n    return R.log(x)\n'
    ex = relaxpy.compile(from_source(text.replace("NAME", "a") + text.replace("NAME", "b")))
    assert ex.check_values(ONES[0], function="a")
    assert not ex.check_values(-ONES[0], function="b")
    with pytest.raises(UnknownNameError, match="check_values"):
        ex.check_values(ONES[0])
    with pytest.raises(RuntimeCheckError, match="takes 1 argument, found 0"):
        ex.check_values(function="a")


def test_a_program_from_a_file_has_its_kernels_after_fusion(tmp_path) -> None:
    relaxpy.compile(Chain).save(tmp_path / "chain.rxp")
    check = relaxpy.load_executable(tmp_path / "chain.rxp").check_values(-ONES, ONES)
    assert (check.problem, check.source) == ("NaN", "")
    assert "log" in check.operator


def test_threads_check_at_once() -> None:
    ex, found = relaxpy.compile(Chain), {}
    ex.check_values(ONES, ONES)

    def check(sign: int) -> None:
        found[sign] = [bool(ex.check_values(sign * ONES, ONES)) for _ in range(20)]

    threads = [threading.Thread(target=check, args=(sign,)) for sign in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {1: [True] * 20, -1: [False] * 20}
