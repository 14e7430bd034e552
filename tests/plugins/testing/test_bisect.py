"""Which pass is wrong: bisection, the check of values, and reproducers of passes that fail."""

import re
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, tir
from relaxpy.errors import MisuseError, RuntimeCheckError, TransformError, WellFormedError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.plugins.cli.main import main
from relaxpy.relax import transform as T
from relaxpy.script import from_source
from relaxpy.testing import random_inputs
from relaxpy.transform import Pass, PassContext, Sequential, bisect, module_pass

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32"), i: R.Tensor(("n",), "int32")):
        a = R.add(x, x)
        b = R.multiply(a, x)
        return (b, i)

    @R.function
    def fill(x: R.Tensor((2,), "float32")):
        y = R.negative(x)
        return y
"""
X, INDICES = np.array([[1, 2], [3, 4]], "float32"), np.arange(2, dtype="int32")


def module() -> IRModule:
    return from_source(TEXT)


def replaced(old: str, new: str) -> Pass:
    """A pass that changes the text of a program: every kind of error can be made so."""

    def change(mod: IRModule, ctx: PassContext) -> IRModule:
        text = mod.script()
        assert old in text
        return from_source(text.replace(old, new))

    return module_pass(change, opt_level=0, name="Replace")


def failing(mod: IRModule, ctx: PassContext) -> IRModule:
    return {}["missing"]


def ill_formed(mod: IRModule, ctx: PassContext) -> IRModule:
    after = mod.clone()
    after["main"] = rx.Function([], rx.Var("unbound", rx.ObjectStructInfo()))
    return after


FAIL = module_pass(failing, opt_level=0, name="Fail")
BREAK = module_pass(ill_formed, opt_level=0, name="Break")
WRONG: dict[str, tuple[Pass, str]] = {
    "value": (
        replaced("R.multiply(a, x)", "R.multiply(a, a)"),
        r"element \(0, 0\) of field 0 of the result is 4.0, expected 2.0; 4 of 4 elements differ",
    ),
    "field": (replaced("(b, i)", "(b, b)"), "field 1 of the result has dtype float32, expected"),
    "count": (replaced("(b, i)", "(b, i, i)"), "expected 2 fields"),
    "shape": (replaced("(b, i)", "(R.flatten(b), i)"), r"shape \(4,\), expected \(2, 2\)"),
    "run-time error": (
        replaced("R.add(x, x)", 'R.take(x, R.const([5, 6], "int64"), axis=1)'),
        "it raises RuntimeCheckError: .* 5",
    ),
    "failure": (FAIL, "it raises KeyError: 'missing'"),
    "ill-formed": (BREAK, "its result is ill-formed: .*unbound"),
}


@pytest.mark.rule("OPT-1")
@pytest.mark.parametrize("kind", WRONG)
def test_bisect_names_the_first_wrong_pass(kind: str) -> None:
    wrong, problem = WRONG[kind]
    steps = [T.Normalize(), T.CanonicalizeBindings(), wrong, T.LegalizeOps()]
    for pipeline, args in ((steps, (X, INDICES)), (Sequential([Sequential(steps)]), (X, INDICES))):
        found = bisect(module(), pipeline, *args)
        assert found is not None
        assert (found.index, found.name) == (2, wrong.info.name)
        assert re.search(problem, found.problem), found.problem
        assert str(found).startswith(f"pass 2, {found.name}: ")
        assert "R.multiply(a, x)" in str(found)  # the program before the pass, or the diff
        assert "<pre " in found._repr_html_()
        if found.function is not None:
            np.testing.assert_array_equal(found.expected[0], 2 * X * X)


@pytest.mark.parametrize("pipeline", ["default", "default_build", "legalize", "zero"])
def test_bisect_finds_nothing_wrong_with_pipelines(pipeline: str) -> None:
    assert bisect(module(), pipeline) is None
    assert bisect(module(), pipeline, X, INDICES) is None
    assert bisect(module(), relaxpy.get_pipeline(pipeline), X[0], function="fill") is None


def test_bisect_compares_all_functions_with_random_arguments() -> None:
    found = bisect(module(), [T.Normalize(), replaced("R.negative", "R.abs")])
    assert found is not None
    assert (found.index, found.function) == (1, "fill")
    assert bisect(module(), [replaced("R.negative", "R.abs")], X, INDICES) is None


def test_bisect_looks_at_arguments_that_are_overwritten() -> None:
    text = '_ = R.call_packed("tests.bisect.clear", x, sinfo_args=R.Tuple())'
    relaxpy.register_func("tests.bisect.clear", lambda x: x.fill(0), override=True)
    impure = TEXT.replace("R.function", "R.function(pure=False)")
    step = replaced("y: R.Tensor", f"{text}\n        y: R.Tensor")
    clean = from_source(impure.replace("negative", "zeros_like"))
    found = bisect(clean, [step], X[0], function="fill")
    assert found is not None
    assert found.problem.startswith("element (0,) of argument 0 after the call is 0.0, expected 1")
    assert X[0, 0] == 1


def test_bisect_goes_on_after_a_pass_that_changes_parameters() -> None:
    bound = T.BindParams("main", {"x": X})
    wrong = replaced("R.multiply", "R.subtract")
    found = bisect(module(), [bound, wrong], X, INDICES)
    assert found is not None
    assert found.index == 1


def test_bisect_allows_for_rounding() -> None:
    text = '@R.function\ndef main(x: R.Tensor((3,), "float16")):\n    y = R.exp(x)\n    return y'
    mod = IRModule.from_expr(from_source(text))
    near = replaced("R.exp(x)", 'R.multiply(R.exp(x), R.const(1.01, "float16"))')
    assert bisect(mod, [near]) is None
    assert bisect(mod, [near], rtol=1e-3) is not None
    assert bisect(mod, [near], np.array([np.nan, np.inf, -np.inf], "float16"), rtol=0) is None


def test_bisect_refuses_what_it_cannot_run() -> None:
    with pytest.raises(MisuseError, match="bisect takes an IRModule or a function, found list"):
        bisect([], "default")
    with pytest.raises(MisuseError, match="expected a pipeline or a pass, found 3"):
        bisect(module(), 3)
    with pytest.raises(MisuseError, match="expected a pass"):
        bisect(module(), [3])
    with pytest.raises(RuntimeCheckError, match="parameter x of main"):
        bisect(module(), "default", X[0], INDICES)
    with pytest.raises(KeyError, match="other"):
        bisect(module(), "default", X, function="other")


def test_values_are_checked_after_each_pass() -> None:
    wrong, problem = WRONG["value"]
    pipeline = Sequential([T.LegalizeOps(), T.FuseOps()])
    with PassContext(check="values"):
        after = pipeline(module())
        assert "call_tir" in after.script()
        with pytest.raises(TransformError, match="pass Replace changes what the program") as caught:
            Sequential([T.Normalize(), wrong, T.LegalizeOps()])(module())
        assert '+    b: R.Tensor((n, 2), dtype="float32") = R.multiply(a, a)' in str(caught.value)
        assert caught.value.__notes__ == ["after pass Replace"]
        with pytest.raises(WellFormedError, match="unbound"):
            BREAK(module())
    given = {"main": (X, INDICES)}
    with PassContext(check="values", check_inputs=given), pytest.raises(TransformError) as caught:
        wrong(module())
    assert re.search(problem, str(caught.value))
    with PassContext(check="values", check_inputs={"fill": [X[0]]}):
        wrong(module())  # which changes another function


def test_values_are_checked_of_passes_inside_compile() -> None:
    with PassContext(check="values"):
        executable = relaxpy.compile(module(), "numpy")
    np.testing.assert_array_equal(executable["main"](X, INDICES)[0], 2 * X * X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check": "value"}, "check is a bool or \"values\", found 'value'"),
        ({"check_inputs": {"main": (X,)}}, 'check_inputs is for check="values"'),
        ({"check": "values", "check_inputs": (X,)}, "arguments by names of functions"),
        ({"check": "values", "check_inputs": {"main": X}}, "arguments by names of functions"),
    ],
)
def test_contexts_refuse_other_checks(options: dict[str, object], message: str) -> None:
    with pytest.raises(MisuseError, match=re.escape(message)):
        PassContext(**options)


# Reproducers


def reproducer(folder: Path, run: Callable[[], object], error: type[Exception], way: str) -> Path:
    """The file that a failure wrote, which is the only one in the folder."""
    with PassContext(reproducer_dir=folder), pytest.raises(error) as caught:
        run()
    (path,) = folder.iterdir()
    assert f"the module and the passes are in {path}: {way}" in caught.value.__notes__[-1]
    return path


def test_a_failure_leaves_the_module_and_the_passes(tmp_path: Path) -> None:
    step = T.FuseOps(fuse_opt_level=0)
    inner = Sequential([FAIL, step, T.FuseOps(rule=T.fusion_pays)])
    pipeline = Sequential([T.LegalizeOps(), inner, T.DeadCodeElimination(["main"])])
    way = "apply them in Python, as Fail cannot be read from a text"
    path = reproducer(tmp_path, lambda: pipeline(module()), KeyError, way)
    head = path.read_text().splitlines()
    assert head[0] == "# relaxpy reproducer of KeyError: 'missing'"
    passes = "Fail, FuseOps(fuse_opt_level=0), FuseOps(rule=fusion_pays)"
    assert head[1] == f"# passes: {passes}, DeadCodeElimination(entry_functions=('main',))"
    assert_structural_equal(from_source(path.read_text()), T.LegalizeOps()(module()))
    pipeline_again = Sequential([T.LegalizeOps(), FAIL])
    way = "apply them in Python, as Fail cannot be read from a text"
    reproducer(tmp_path / "other", lambda: pipeline_again(module()), KeyError, way)
    own = Sequential([FAIL, T.LegalizeOps({"relax.add": lambda builder, call: call})])
    way = "apply them in Python, as Fail, LegalizeOps cannot be read from a text"
    reproducer(tmp_path / "own", lambda: own(module()), KeyError, way)
    unknown = Sequential([T.BindSymbolicVars({"zz": 1}), T.FuseOps(fuse_opt_level=0)])
    reproducer(tmp_path / "more", lambda: unknown(module()), KeyError, "relaxpy opt ")


def test_opt_runs_a_reproducer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = Sequential([T.LegalizeOps(), T.SpecializePrimFuncBasedOnCallSite(), FAIL])
    config = {"relax.FuseOps.max_depth": 2}
    context = PassContext(opt_level=3, config=config, reproducer_dir=tmp_path)
    with context, relaxpy.target.Target("native"), pytest.raises(KeyError):
        broken(module())
    (path,) = tmp_path.iterdir()
    text = path.read_text()
    assert f"# context: {{'opt_level': 3, 'config': {config}}}\n# target: native\n" in text
    assert main(["opt", str(path)]) == 2
    assert "there is no pass 'Fail'" in capsys.readouterr().err
    passes = "ConvertToDataflow(min_size=1), AnnotateTIROpPattern, FuseOps, FuseTIR"
    path.write_text(text.replace("# passes: Fail", f"# passes: {passes}"))
    assert main(["opt", str(path)]) == 0
    assert "fused_add_multiply" in capsys.readouterr().out
    assert main(["opt", str(path), "--bisect"]) == 0
    assert capsys.readouterr().out == "no pass changes what the program computes\n"
    path.write_text(text.replace("'relax.FuseOps.max_depth': 2", "'none': 3"))
    assert main(["opt", str(path), "--passes", "FuseOps"]) == 0  # other passes, no context
    assert main(["opt", str(path), "--random", "3", "--bisect", "--pipeline", "zero"]) == 0


@pytest.mark.parametrize("line", ["# context: {1: 2}", "# context: [", "# passes: eval('1')"])
def test_opt_reads_reproducers_as_data(line, tmp_path, capsys) -> None:
    path = tmp_path / "hostile.py"
    head = [*("# relaxpy reproducer of E", "# passes: FuseOps", "# context: {}", "# target: "), ""]
    head[1 if "passes" in line else 2] = line
    path.write_text("\n".join(head) + TEXT)
    assert main(["opt", str(path)]) == (2 if "passes" in line else 0)
    capsys.readouterr()


def test_a_file_that_cannot_be_written_hides_no_error(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RELAXPY_REPRODUCER_DIR", str(tmp_path / "file"))
    with pytest.raises(KeyError, match="missing") as caught:
        FAIL(module())
    assert caught.value.__notes__[-1].startswith("there is no reproducer: ")
    monkeypatch.delenv("RELAXPY_REPRODUCER_DIR")
    with pytest.raises(KeyError) as caught:
        Sequential([FAIL])(module())
    advice = "RELAXPY_REPRODUCER_DIR=FOLDER saves the module and the passes that were left"
    assert caught.value.__notes__ == ["in pass Fail", advice]
    with pytest.raises(TransformError) as told, PassContext(check="values"):
        WRONG["value"][0](module())
    assert told.value.__notes__ == ["after pass Replace"]  # an error of the program


# Random arguments

KINDS = """
@R.function
def main(
    x: R.Tensor(("n * 2", "n - 1"), "bfloat16"),
    b: R.Tensor(("n",), "bool"),
    t: R.Tuple(R.Tensor((3,), "float8_e4m3fn"), R.Shape(["n", 2])),
    s: R.Prim("float32"),
    p: R.Prim(value="n"),
    u: R.Tensor(ndim=3, dtype="int8"),
    v: R.Tensor,
    w: R.Shape(ndim=1),
):
    n = T.int64()
    return (x, b, t, s, p, u, v, w)
"""


def test_random_inputs_fit_the_struct_info() -> None:
    mod = IRModule.from_expr(from_source(KINDS))
    executable = relaxpy.compile(mod, "reference")
    for seed in range(5):
        for func in (mod, mod["main"], executable["main"]):
            args = random_inputs(func, seed=seed)
            n = len(args[1])
            assert args[0].shape == (2 * n, n - 1)
            assert args[0].dtype == ml_dtypes.bfloat16
            assert args[2][1] == (n, 2)
            assert (args[4], args[5].ndim, args[6].dtype) == (n, 3, "float32")
            executable["main"](*args)
    assert random_inputs(mod, {"n": 7})[1].shape == (7,)
    one, again, other = (random_inputs(mod, seed=seed)[0].tolist() for seed in (0, 0, 1))
    assert one == again != other


def test_random_inputs_say_what_they_cannot_draw() -> None:
    def drawn(text: str, **sizes: object) -> None:
        random_inputs(from_source(f"@R.function\ndef main({text}):\n    return x"), sizes)

    with pytest.raises(MisuseError, match=r"no random values for parameter x: R\.Object"):
        drawn("x: R.Object")
    with pytest.raises(
        MisuseError, match=r"dimension n - .*9.* of parameter y is not a size for n = 4"
    ):
        drawn('x: R.Tensor(("n",), "int8"), y: R.Tensor(("n - 9",), "int8")', n=4)
    with pytest.raises(MisuseError, match="no parameter has a dimension m"):
        drawn('x: R.Tensor(("n",), "int8")', m=4)
    with pytest.raises(MisuseError, match="dimension n is -1, expected a size"):
        drawn('x: R.Tensor(("n",), "int8")', n=-1)
    with pytest.raises(MisuseError, match="does not fit in memory"):
        drawn('x: R.Tensor(("n",), "int8")', n=1 << 62)
    with pytest.raises(MisuseError, match="expected a Relax function, found 3"):
        random_inputs(3)
    with pytest.raises(MisuseError, match="expected a Relax function"):
        random_inputs(tir.Var("n", "int64"))
