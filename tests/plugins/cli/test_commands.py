"""The command line, mostly through `main`, which is what the command calls."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.exec.store.container import Container
from relaxpy.ir import assert_structural_equal, load_json
from relaxpy.plugins.cli.main import main
from relaxpy.plugins.cli.named_passes import public_passes
from relaxpy.script import from_source

ROOT = Path(__file__).parents[3]
IMPORTS = "from relaxpy.script import ir as I, relax as R"
MODEL = """
@I.ir_module
class Model:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 2), "float32")
    ) -> R.Tensor(("n", 2), "float32"):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            R.output(y)
        return y
"""
MAIN = MODEL.partition("class Model:\n")[2]
FLAWS = (
    MODEL.replace("(4, 2)", "(5, 2)")
    + "\n"
    + MAIN.replace("def main", "def other").replace("R.nn.relu", "R.nn.rel")
)
X = np.arange(12, dtype="float32").reshape(3, 4) - 5
W = np.linspace(-1, 1, 8, dtype="float32").reshape(4, 2)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAXPY_TARGET", "numpy")  # which compiles in less time
    (tmp_path / "model.py").write_text(IMPORTS + MODEL)
    (tmp_path / "flaws.py").write_text(FLAWS)
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "both.npz", x=X, w=W)
    return tmp_path


def command(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(shlex.split(line))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_check_accepts_a_correct_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("check model.py", capsys) == (0, "no errors in 1 file\n", "")
    assert command("check -q model.py", capsys) == (0, "", "")


def test_check_reports_all_errors_with_carets(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = command("check model.py flaws.py", capsys)
    assert (code, err) == (1, "")
    first, second = re.findall(r"^flaws\.py:\d+:\d+: .*\n +.*\n +\^+$", out, re.M)
    assert "relax.matmul" in first
    assert "R.nn has no attribute 'rel'" in second
    assert "did you mean `R.nn.relu`?" in out
    assert out.endswith("\n2 errors in 2 files\n")


def test_a_program_is_read_from_standard_input_and_never_run(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("print('run')\n" + MODEL))
    code, out, err = command("check -", capsys)
    assert (code, out) == (0, "no errors in 1 file\n")
    assert "<stdin>:1: 1 statement outside of programs is not executed" in err
    assert "to import a file with this text as Python does, write --import" in err
    assert "run\n" not in err
    used = MODEL.replace("R.matmul(x, w)", "R.matmul(x, v)")
    monkeypatch.setattr(sys, "stdin", io.StringIO("v = print('run')\n" + used))
    code, out, err = command("check -", capsys)
    assert code == 1
    assert re.match(r"<stdin>:10:\d+: error: unknown name 'v'", out)
    assert "run\n" not in out + err
    monkeypatch.setattr(sys, "stdin", io.StringIO(MODEL))
    assert command("check -", capsys)[0] == 0


def test_warnings_have_a_position(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    text = "@R.function\ndef main(x: R.Tensor((4,))):\n    return R.match_cast(x, R.Tensor((5,)))\n"
    (folder / "unsure.py").write_text(text)
    code, out, err = command("check unsure.py", capsys)
    assert (code, out) == (0, "no errors in 1 file\n")
    assert err.startswith("unsure.py:3:25: warning: this cast of R.Tensor((4,)) to ")


@pytest.mark.parametrize(
    ("params", "body", "said"),
    [
        ("x: R.Tensor(('n', 4))", "R.matmul(x, x)", "n = 420, relax.matmul: the last dimension"),
        ("x: R.Tensor(('n',)), y: R.Tensor(('m',))", "R.add(x, y)", "n = 420, m = 480, relax.add"),
        ("x: R.Tensor((6, 'n'))", "R.reshape(x, (6, 5))", "n = 420, relax.reshape"),
        ("x: R.Tensor(('n', 4)), y: R.Tensor((4, 'n'))", "R.matmul(x, y)", None),
        ("x: R.Tensor(('n',)), y: R.Tensor((1,))", "R.add(x, y)", None),
        ("x: R.Tensor(('n',))", "R.split(x, 2)", None),
        ("x: R.Tensor(('n',)), y: R.Tensor((64,))", "R.add(x, y[:n])", None),
        ("x: R.Tensor(('n', 4))", "R.reshape(x, (n // 2, 8))", None),
    ],
)
def test_check_warns_of_programs_that_run_for_special_sizes_only(
    capsys: pytest.CaptureFixture[str], folder: Path, params: str, body: str, said: str | None
) -> None:
    types = params.replace("))", "), 'float32')")
    body = body.replace("y[:n]", "R.strided_slice(y, [0], [0], [n])")
    text = f"@R.function\ndef main({types}):\n    n = T.int64()\n    return {body}\n"
    (folder / "sizes.py").write_text(text)
    code, out, err = command("check sizes.py", capsys)
    assert (code, out) == (0, "no errors in 1 file\n")
    assert (f"sizes.py:4:12: warning: runs for special sizes only; with {said}" in err) == bool(
        said
    )
    assert bool(err) == bool(said)


def test_print_writes_normal_form(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command("print model.py", capsys)
    assert code == 0
    assert 'lv: R.Tensor((n, 2), dtype="float32") = R.matmul(x, w)' in out
    assert_structural_equal(from_source(out), from_source(MODEL))


def test_graph_draws_programs_also_ill_formed_ones(capsys, folder) -> None:
    code, out, err = command("graph model.py", capsys)
    assert (code, err) == (0, "")
    assert out.startswith("flowchart TD")
    assert "nn.relu" in out
    code, out, err = command("graph model.py --pipeline default -o a.svg --fold none", capsys)
    assert (code, out, err) == (0, "a.svg: <Graph of 5 items and 3 uses>\n", "")
    assert "fused_matmul_relu" in (folder / "a.svg").read_text("utf-8")
    sinfo = relaxpy.relax.TensorStructInfo((2,), "float32")
    lost = relaxpy.relax.Function([], relaxpy.relax.Var("lost", sinfo), sinfo)
    mod = relaxpy.IRModule({"main": lost.with_attr("global_symbol", "main")})
    (folder / "lost.json").write_text(relaxpy.ir.save_json(mod))
    code, out, err = command("graph lost.json", capsys)
    assert code == 1
    assert "faulty" in out
    assert "WF-" in err
    assert command("graph model.py -o a.png", capsys)[0] == 2


WRONG = """
@R.function
def main(x: R.Tensor((3, 4), "float32"), flag: R.Tensor((), "bool")):
    with R.dataflow():
        a = R.exp(x)
        hidden = R.sqrt(a)
        R.output(a)
    if flag:
        z = R.abs(a)
    else:
        z = R.negative(a)
    return z
"""


@pytest.mark.parametrize(
    ("old", "new", "marked"),
    [
        ("R.sqrt(a)", "R.matmul(\n            a, a\n        )", [("R.matmul", "DER-36")]),
        ("R.sqrt(a)", "R.sqrtt(a)", [("R.sqrtt", "error")]),
        ("R.sqrt(a)", "R.add(a, lost)", [("R.add", "WF-2a")]),
        ("R.negative(a)", "R.abs(hidden)", [("R.abs", "SC-7")]),
        ("if flag", "if R.exp(x)", [("if", "DER-9")]),
        ("return z", "return R.add(z, later)", [("R.add", "WF-2a")]),
        ("R.output(a)", "R.output(a, later)", [("", "")]),
        ("R.sqrt(a)", "R.matmul(a, a)\n        b = R.expp(hidden)", [("R.matmul", "DER-36")]),
    ],
)
def test_graph_draws_what_is_there_of_a_text_with_errors(capsys, folder, old, new, marked) -> None:
    (folder / "wrong.py").write_text(WRONG.replace(old, new))
    code, out, err = command("graph wrong.py", capsys)
    assert code == 1
    assert err.count("error:") >= 1
    assert "call_pure_packed" not in out + err
    assert "classDef faulty" in out
    for label, rule in marked:
        assert re.search(rf'n\d+\["{label}[^"]*{rule}"\]', out), out
    assert "exp<br>" in out


def test_graph_of_what_is_not_python_is_an_error(capsys, folder) -> None:
    (folder / "wrong.py").write_text("@R.function\ndef main(x:")
    assert command("graph wrong.py -o a.svg", capsys)[0] == 1
    assert not (folder / "a.svg").exists()


def test_print_writes_json_which_the_other_commands_read(capsys, folder) -> None:
    assert command("print model.py -o model.json", capsys) == (0, "", "")
    module = load_json((folder / "model.json").read_text())
    assert_structural_equal(module, from_source(MODEL))
    assert command("print model.json -o again.py", capsys)[0] == 0
    assert_structural_equal(from_source((folder / "again.py").read_text()), from_source(MODEL))
    assert command("check model.json", capsys)[0] == 0


def test_opt_applies_passes_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = command("opt model.py --passes LegalizeOps,'FuseOps(fuse_opt_level=0)'", capsys)
    transform = relaxpy.relax.transform
    passes = relaxpy.transform.Sequential(
        [transform.LegalizeOps(), transform.FuseOps(fuse_opt_level=0)]
    )
    assert_structural_equal(from_source(out), passes(from_source(MODEL)))


def test_opt_applies_a_pipeline_and_explains_it(capsys, folder) -> None:
    _, out, _ = command("opt model.py --pipeline legalize", capsys)
    assert_structural_equal(from_source(out), relaxpy.get_pipeline("legalize")(from_source(MODEL)))
    code, out, _ = command("opt model.py --pipeline legalize --explain -o out.py", capsys)
    assert code == 0
    assert re.search(r"^ *LegalizeOps ", out, re.M)
    assert "call_tir" in (folder / "out.py").read_text()
    _, out, _ = command("opt model.py --passes LegalizeOps --diff", capsys)
    assert "--- main before LegalizeOps" in out


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_run_takes_arrays_from_files(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"run model.py --target {target} both.npz -o y.npy"
    assert command(line, capsys) == (0, "", "")
    np.testing.assert_allclose(np.load("y.npy"), np.maximum(X @ W, 0), rtol=1e-5, atol=1e-6)
    words = " ".join(map(str, W.tolist())).replace(" ", "").replace("][", "],[")
    code, out, _ = command(f"run model.py x.npy --target {target} 'w=[{words}]'", capsys)
    assert code == 0
    assert out.startswith("float32 (3, 2)\n[[")


def test_run_draws_random_inputs_that_a_seed_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    line = "run model.py --target reference --random {} --dim n=2 -o {}"
    for seed, file in ((0, "a.npy"), (0, "b.npy"), (1, "c.npy")):
        assert command(line.format(seed, file), capsys)[0] == 0
    a, b, c = (np.load(name) for name in ("a.npy", "b.npy", "c.npy"))
    assert a.shape == (2, 2)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    # The input that is given decides n.
    code, out, _ = command("run model.py x.npy --target reference --random 0", capsys)
    assert (code, out.split("\n")[0]) == (0, "float32 (3, 2)")


def test_random_inputs_of_every_kind(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "kinds.py").write_text(
        """
@R.function
def main(
    x: R.Tensor(("n * 2",), "bfloat16"),
    b: R.Tensor(("n",), "bool"),
    t: R.Tuple(R.Tensor((3,), "int8"), R.Shape(["n", 2])),
    s: R.Prim("int64"),
):
    n = T.int64()
    return (x, (b, t[0]))
"""
    )
    line = "run kinds.py --target reference --random 3 --dim n=4"
    code, out, _ = command(line, capsys)
    assert code == 0
    assert re.findall(r"^(\S+: \w+ \(.*\))$", out, re.M) == [
        "0: bfloat16 (8,)",
        "1.0: bool (4,)",
        "1.1: int8 (3,)",
    ]
    assert command(f"{line} -o out.npz", capsys)[0] == 0
    with np.load("out.npz") as saved:
        first = saved["0"]
        assert sorted(saved.files) == ["0", "1.0", "1.1"]
    # A file has only the bytes of bfloat16, and its parameter tells what they are.
    np.save("x.npy", first)
    assert command(f"{line} x.npy -o again.npz", capsys)[0] == 0
    with np.load("again.npz") as saved:
        assert np.array_equal(saved["0"].view(ml_dtypes.bfloat16), first.view(ml_dtypes.bfloat16))


def test_compile_saves_an_executable_that_the_other_commands_read(capsys, folder) -> None:
    code, out, _ = command("compile model.py --target numpy -o model.rxp", capsys)
    assert code == 0
    assert out.startswith("model.rxp: <Executable for numpy>\n  main(x: ")
    assert relaxpy.load_executable("model.rxp").target == "numpy"
    assert command("run model.rxp both.npz -o y.npy", capsys) == (0, "", "")
    np.testing.assert_allclose(np.load("y.npy"), np.maximum(X @ W, 0), rtol=1e-5, atol=1e-6)
    _, out, _ = command("print model.rxp", capsys)
    assert "call_tir" in out
    code, _, err = command("run model.rxp both.npz --target reference", capsys)
    assert code == 2
    assert "is a saved executable" in err


def test_compile_saves_code_for_other_systems(capsys, folder) -> None:
    pytest.importorskip("llvmlite")
    systems = "--for linux-aarch64:neoverse-n1 --for windows-x86_64"
    code, out, _ = command(f"compile model.py {systems} -o model.exe", capsys)
    assert (code, out.partition("\n")[0]) == (0, "model.exe: <Executable for native>")
    codes = Container.read(Path("model.exe")).content["native"]
    assert ["linux" in codes[0]["machine"][0], "windows" in codes[1]["machine"][0]] == [True] * 2
    assert command("compile model.exe --for macos-aarch64 -o again.exe", capsys)[0] == 0
    [only] = Container.read(Path("again.exe")).content["native"]
    assert "apple" in only["machine"][0]
    for options, problem in (
        ("--for linux-arm", "there is no system 'linux-arm'"),
        ("--for native --target numpy", "--for is for native code"),
    ):
        code, _, err = command(f"compile model.py {options} -o other.exe", capsys)
        assert code == 2
        assert problem in err
    assert not Path("other.exe").exists()


def test_warm_fills_the_cache(capsys, folder, monkeypatch) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(folder / "cache"))
    models = folder / "models"
    models.mkdir()
    (models / "a.py").write_text(IMPORTS + MODEL)
    relaxpy.compile(from_source(MODEL), "numpy").save(models / "b.rxp")
    code, out, _ = command("warm models --target native", capsys)
    a, b, total = out.splitlines()
    assert re.fullmatch(r"models/a.py: 1 function, \d+ KiB stored, compiled in \d+\.\d s", a)
    assert "b.rxp" not in a
    assert b == "models/b.rxp: 1 function, nothing is kept on disk for the target numpy"
    assert re.fullmatch(rf"{folder}/cache: \d+ files, \d+ KiB", total)
    assert code == 0
    code, out, _ = command("warm models/a.py models/c.py flaws.py --target native", capsys)
    assert "models/a.py: 1 function, it was stored before" in out
    assert code == 2
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    code, out, errors = command("warm models", capsys)
    assert (code, out) == (2, "")
    assert "programs are not kept on disk: RELAXPY_CACHE=0" in errors


def test_report_source_and_profile(capsys: pytest.CaptureFixture[str]) -> None:
    executable = relaxpy.compile(from_source(IMPORTS + MODEL, filename="model.py"), target="numpy")
    _, out, _ = command("report model.py --target numpy", capsys)
    assert out == f"{executable.report()}\n"
    _, out, _ = command("source model.py", capsys)
    assert out == f"{executable.source}\n"
    kernel = executable.report().rows[0].kernel
    for rest in ("", f" --kernel {kernel}"):
        _, out, _ = command(f"source model.py --kind tree{rest}", capsys)
        assert out == f"{executable.kernel_source(kernel, 'tree')}\n"
    _, out, _ = command("profile model.py both.npz --repeat 1", capsys)
    assert out.startswith("kernel ")
    assert f"\n{kernel} " in out
    code, out, err = command("source model.py --kind llvm", capsys)
    assert (code, out) == (1, "")
    assert err.startswith(f"{kernel}: error: the kernel {kernel!r} has no llvm source")


def test_listings(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = command("passes", capsys)
    listed = re.findall(r"^  (\w+) +\S", out, re.M)
    assert set(listed) == {*public_passes(), *relaxpy.transform.list_pipelines()}
    _, out, _ = command("passes FuseOps", capsys)
    assert out.startswith("FuseOps(fuse_opt_level=-1, rule=None)")
    assert "class Before:" in out
    assert "step = FuseOps()" in out
    _, out, _ = command("targets", capsys)
    assert re.findall(r"^  (\w+) ", out, re.M) == ["numpy", "native", "reference"]
    assert re.search(r"^the default is (numpy|native)", out, re.M)
    _, out, _ = command("doctor", capsys)
    assert out.startswith("topic ")
    _, out, _ = command("explain DER-36 WF-12", capsys)
    assert re.findall(r"^([A-Z]+-\d+) \(", out, re.M) == ["DER-36", "WF-12"]
    assert command("--version", capsys) == (0, f"relaxpy {relaxpy.__version__}\n", "")
    _, out, _ = command("--help", capsys)
    for name in ("check", "print", "opt", "compile", "run", "profile", "report", "source"):
        assert f"\n    {name} " in out
    assert "exit codes:" in out


def test_files_after_one_that_cannot_be_read_are_checked(folder, capsys) -> None:
    code, out, err = command("check missing.py flaws.py x.npy model.py", capsys)
    assert code == 2
    assert "flaws.py:9:" in out
    assert out.endswith(" in 2 files\n")
    assert err.startswith("relaxpy: error: missing.py: No such file")
    assert "x.npy is not a text in UTF-8" in err
    assert command("check missing.py", capsys)[:2] == (2, "")


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("check missing.py", 2, "relaxpy: error: missing.py: No such file"),
        ("print .", 2, "relaxpy: error: .: Is a directory"),
        ("print flaws.py", 1, "flaws.py:9:"),
        ("check x.npy", 2, "x.npy is not a text in UTF-8"),
        ("opt model.py --pipeline defaul", 2, "did you mean 'default'?"),
        ("opt model.py --passes FuseOp", 2, "did you mean 'FuseOps'?"),
        ("passes FuseOp", 2, "did you mean 'FuseOps'?"),
        ("opt model.py --passes 'FuseOps(bar=1)'", 2, "its options are FuseOps(fuse_opt_level=-1"),
        ("opt model.py --passes 'FuseOps(print(1))'", 2, "options of FuseOps are Python literals"),
        ("opt model.py --passes 'a b'", 2, "--passes is a list of passes, found 'a b'"),
        ("opt model.py --passes 1", 2, "'1' is not a pass"),
        ("opt model.py", 2, "write --passes 'LegalizeOps,FuseOps' or --pipeline default"),
        ("report model.py --target nump", 2, "did you mean 'numpy'?"),
        ("run model.py --function mai --random 0", 2, "did you mean 'main'?"),
        ("run model.py", 2, "there are no inputs, expected x, w"),
        ("run model.py x.npy x.npy", 1, "parameter w of main"),
        ("run model.py both.npz v=1", 1, "main has no parameter 'v'"),
        ("run model.py v=1 --random 0", 1, "main has no parameter 'v'"),
        ("run model.py v=1 --random 0 --dim m=1", 1, "main has no parameter 'v'"),
        ("run model.py --random 0", 2, "write --dim n=4"),
        ("run model.py --random 0 --dim n", 2, "--dim takes NAME=SIZE, found 'n'"),
        ("run model.py --random 0 --dim n=1 --dim n=2", 2, "there are two sizes for n"),
        ("run model.py --dim n=1", 2, "--dim is for the random inputs"),
        ("run model.py none.npy", 2, "none.npy: No such file"),
        ("run model.py model.py", 2, "'model.py' is not an input"),
        ("run model.py flaws.npy", 2, "flaws.npy cannot be read"),
        ("run model.py '[[1],[2,3]]'", 2, "float32: its rows have different lengths"),
        ("run model.py '[[1],[\"a\"]]'", 2, "is not an array of float32: could not convert"),
        ("run missing.onnx x.npy", 2, "relaxpy: error: missing.onnx: No such file"),
        ("check missing.onnx", 2, "relaxpy: error: missing.onnx: No such file"),
        ("graph model.py -o model.png", 2, "expected the path of a file .svg"),
        ("run model.py both.npz -o y.txt", 2, "is written to a .npy or .npz file"),
        ("run model.py both.npz -o none/y.npy", 2, "-o/--output: there is no folder 'none'"),
        ("profile model.py both.npz --repeat 0", 2, "expected a positive integer, found '0'"),
        ("source model.py --kernel k", 2, "the executable has no kernel 'k'"),
        ("explain NONE-0", 2, "NONE-0"),
        ("compile model.py", 2, "required: -o/--output"),
        (
            "export model.py -o m.o --for linux-x86_64 --for linux-aarch64",
            2,
            "a library is for one system, found linux-x86_64 and linux-aarch64",
        ),
        ("run chat.gguf", 2, "relaxpy generate, chat, serve, profile and export take one"),
        ("check model.py --what", 2, "unrecognized arguments: --what\n"),
        ("run model.py --rando 0", 2, "unrecognized arguments: --rando 0; did you mean '--random'"),
        ("run --targt numpy model.py", 2, "arguments: --targt; did you mean '--target'"),
        ("", 2, "required: COMMAND"),
    ],
)
def test_errors_have_a_message_and_an_exit_code(line, code, message, capsys, folder) -> None:
    (folder / "flaws.npy").write_text("no array")
    found, _, err = command(line, capsys)
    assert message in err
    assert found == code
    assert "Traceback" not in err


def test_a_missing_file_is_named_before_a_missing_package(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "relaxpy.plugins.onnx.importer", None)
    assert main(["run", "missing.onnx", "x.npy"]) == 2
    assert "relaxpy: error: missing.onnx: No such file" in capsys.readouterr().err


def test_a_folder_without_programs_is_not_said_to_be_without_errors(capsys, folder) -> None:
    (folder / "none").mkdir()
    assert command("check none", capsys) == (0, "no errors as no file has a program\n", "")


def test_a_text_without_its_large_constants_is_not_written_silently(capsys, folder) -> None:
    constant = "R.const(" + str([float(i) for i in range(100)]) + ', "float32")'
    (folder / "constant.py").write_text(f"@R.function\ndef main():\n    return {constant}\n")
    code, _, err = command("print constant.py -o again.py", capsys)
    assert code == 0
    assert "warning: again.py has no large constants, so it cannot be read again" in err
    assert "ends in .json" in err
    assert command("print constant.py -o again.json", capsys) == (0, "", "")
    assert command("check again.json", capsys)[0] == 0
    assert command("print model.py -o again.py", capsys) == (0, "", "")


def test_a_broken_json_is_an_error(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for text in ("{", '{"format": 1}', "{}"):
        (folder / "broken.json").write_text(text)
        for name in ("check", "print", "report"):
            code, out, err = command(f"{name} broken.json", capsys)
            assert code == 1, (text, name)
            assert ("broken.json: " if name == "check" else "relaxpy: ") in out + err


def test_the_module_is_the_command(folder: Path) -> None:
    python = [sys.executable, "-m", "relaxpy"]
    options = {"capture_output": True, "text": True, "check": False}
    checked = subprocess.run([*python, "check", folder / "flaws.py"], cwd=ROOT, **options)
    assert checked.returncode == 1
    assert "Traceback" not in checked.stdout + checked.stderr
    shown = subprocess.run(
        [*python, "--help"], cwd=ROOT, env={"PYTHONPROFILEIMPORTTIME": "1"}, **options
    )
    assert shown.returncode == 0
    assert shown.stdout.startswith("usage: relaxpy ")
    loaded = set(re.findall(r"\| +([\w.]+)$", shown.stderr, re.M))
    assert "relaxpy.plugins.cli.main" in loaded
    assert not loaded & {"numpy", "rich", "relaxpy.ir", "relaxpy.script", "relaxpy.exec"}


def test_the_entry_point_is_the_command() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.scripts]\nrelaxpy = "relaxpy.plugins.cli.main:main"\n' in text


def test_a_reader_that_ends_early_is_no_error() -> None:
    rules = " ".join(["DER-36"] * 2000)  # more text than a pipe holds
    line = f"{sys.executable} -m relaxpy explain {rules} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (done.stdout[:6], done.stdout.count("\n"), done.stderr) == ("DER-36", 1, "")


def test_the_examples_of_the_page_run(capsys, folder, monkeypatch) -> None:
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(folder / "cache"))
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ relaxpy (.*?)(?:  #.*)?$", text, re.M)
    lines = [line for line in lines if " MODEL " not in line]  # of a language model
    assert len(lines) > 10
    for line in lines:
        monkeypatch.setattr(sys, "stdin", io.StringIO(MODEL))
        code, _, err = command(line, capsys)
        assert (code, err) == (0, ""), line
    named = {line.split()[0] for line in lines}
    _, out, _ = command("--help", capsys)
    elsewhere = {"lsp", "generate", "chat", "serve"}  # they await an editor, or a model
    assert named | elsewhere >= set(re.findall(r"^    (\w+) ", out, re.M))


@pytest.mark.parametrize("command_name", ["run", "profile"])
def test_without_inputs_the_message_says_how_to_get_some(command_name, capsys) -> None:
    code, out, err = command(f"{command_name} model.py", capsys)
    assert (code, out) == (2, "")
    assert "there are no inputs, expected x, w" in err
    assert "--random 0" in err


def test_damaged_files_of_arrays_are_refused(capsys, folder) -> None:
    whole = {name: (folder / name).read_bytes() for name in ("x.npy", "both.npz")}
    (folder / "renamed.npz").write_bytes(whole["x.npy"])
    code, _, err = command("run model.py renamed.npz", capsys)
    assert (code, err.count("\n")) == (2, 1)
    np.save("objects.npy", np.array([print], object))
    (folder / "text.npz").write_text("text")
    for name in ("objects.npy", "text.npz"):
        code, _, err = command(f"run model.py {name}", capsys)
        assert (code, "pickle" in err) == (2, False)
    huge = whole["x.npy"].replace(b"(3, 4), ", b"(9" + b"0" * 14 + b",),")
    variants = [*(whole["x.npy"][:size] for size in (0, 5, 40, 140)), huge]
    variants += [data[:-30] for data in whole.values()]
    for variant in variants:
        (folder / "damaged.npy").write_bytes(variant)
        assert command("run model.py damaged.npy", capsys)[0] == 2


def test_two_inputs_for_a_parameter_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("x=x.npy x=x.npy", "x=x.npy both.npz"):
        code, _, err = command(f"run model.py {words}", capsys)
        assert (code, err) == (2, "relaxpy: error: there are two inputs for x\n")


VALUES = """
@R.function
def main(
    s: R.Shape(["n"]), x: R.Tensor(("n",), "float32"),
    t: R.Tuple(R.Tensor(("m",), "int8"), R.Prim("int64")),
    p: R.Prim(value="k"), q: R.Tensor(("k", "m"), "bool"), o: R.Tensor
):
    return (R.shape_of(x), R.shape_of(q), t)
"""


def test_dimensions_are_those_of_inputs_of_all_kinds(capsys, folder) -> None:
    (folder / "values.py").write_text(VALUES)
    line = "run values.py --random 0 's=(3,)' p=2 't=([4, 5, 6, 7], 8)' o=x.npy"
    code, out, err = command(line, capsys)
    assert (code, err) == (0, "")
    expected = "0: ShapeTuple(3)", "1: ShapeTuple(2, 4)", "2.0: int8 (4,)", "[4 5 6 7]", "2.1: 8"
    assert [re.sub(r"[\[\]]|, ?(?=\))", "", line) for line in out.splitlines()] == [
        re.sub(r"[\[\]]|, ?(?=\))", "", line) for line in expected
    ]
    code, _, err = command(line.replace("[4,", "[4.5,"), capsys)
    assert (code, "expected integers" in err) == (2, True)


def test_several_functions_need_a_name(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    text = MODEL.replace("def main", "def one") + MAIN.replace("def main", "def two")
    (folder / "two.py").write_text(text)
    code, _, err = command("run two.py both.npz", capsys)
    assert code == 2
    assert "the name of one of one, two" in err
    assert "--function one" in err
    assert command("run two.py both.npz --function two", capsys)[0] == 0


def test_what_a_program_lacks_is_no_wrong_command(capsys, folder) -> None:
    call = 'R.call_packed("missing", sinfo_args=R.Object)'
    text = f"@R.function(pure=False)\ndef main():\n    return {call}"
    (folder / "packed.py").write_text(text)
    code, _, err = command("run packed.py", capsys)
    assert code == 1
    assert err.startswith("packed.py:3:12: error: no packed function is registered as 'missing'")


@pytest.mark.parametrize("seed", ["-1", "x", "1.5", "9" * 5000])
def test_a_seed_is_a_natural_number(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command(f"run model.py --dim n=2 --random={seed}", capsys)
    assert code == 2
    assert "--random: expected 0, 1, 2, ... with up to 18 digits, found" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
@pytest.mark.parametrize(
    "words",
    [
        "compile model.py -o {}",
        "print model.py -o {}",
        "run model.py --random 0 --dim n=2 -o {}",
        "graph model.py -o {}",
    ],
)
def test_a_full_disk_names_the_file(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("full", "full.npy", "full.json", "full.svg"):
        (folder / name).symlink_to("/dev/full")
    ending = {"run": ".npy", "graph": ".svg"}.get(words.split()[0], "")
    code, _, err = command(words.format(f"full{ending}"), capsys)
    assert (code, err) == (2, f"relaxpy: error: full{ending}: No space left on device\n")


@pytest.mark.parametrize("name", ["run", "check", "print", "compile -o out"])
@pytest.mark.parametrize("text", ['{"format": "x"}', '{"format"'])
def test_a_saved_program_that_is_wrong_is_named(
    name: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.json").write_text(text)
    code, out, err = command(f"{name} bad.json", capsys)
    assert code == 1
    assert "bad.json" in out + err


@pytest.mark.parametrize("system", ["", ":", "linux-x86_64:", ":x86-64-v3"])
def test_code_is_for_a_system_with_a_name(
    system: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = command(f"compile model.py --for={system} -o out", capsys)
    assert code == 2
    assert f"expected a system, or a system:cpu, found {system!r}" in err
    assert not (folder / "out").exists()


@pytest.mark.parametrize("size", [8, 60, 200, -1])
def test_a_damaged_executable_is_a_file_that_cannot_be_read(size, capsys, folder) -> None:
    relaxpy.compile(from_source(MODEL)).save("model.rxp")
    (folder / "half.rxp").write_bytes((folder / "model.rxp").read_bytes()[:size])
    for name in ("run", "report", "check", "print"):
        code, out, err = command(f"{name} half.rxp", capsys)
        assert (code, out) == (2, "")
        assert err.startswith("relaxpy: error: the executable in half.rxp is damaged: ")


def test_an_executable_of_the_older_format_is_compiled_again(capsys, folder) -> None:
    (folder / "old.rxp").write_text('{"format": "relaxpy-executable", "version": 1}')
    code, _, err = command("run old.rxp", capsys)
    assert code == 2
    assert err.startswith("relaxpy: error: old.rxp is an executable of an older format\n")
    assert "compile the program again" in err


def test_an_executable_on_standard_input(folder: Path) -> None:
    relaxpy.compile(from_source(MODEL)).save("model.rxp")
    python = [sys.executable, "-m", "relaxpy", "print", "-"]
    with open("model.rxp", "rb") as file:
        done = subprocess.run(python, cwd=ROOT, stdin=file, capture_output=True, check=True)
    assert b"def main(" in done.stdout


def test_an_executable_does_not_replace_its_program(capsys, folder) -> None:
    code, _, err = command("compile model.py -o ./model.py", capsys)
    assert code == 2
    assert "is the program" in err
    assert (folder / "model.py").read_text() == IMPORTS + MODEL


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("print model.py >&-", 0, ""),
        ("check missing.py 2>&-", 2, ""),
        ("check - <&-", 2, "relaxpy: error: standard input is closed"),
        ("check - <x.npy", 2, "relaxpy: error: <stdin> is not a text in UTF-8"),
        ("PYTHONIOENCODING=ascii check wide.py", 1, "wide.py:8:142: "),
    ],
)
def test_streams_may_be_closed_and_have_any_encoding(line, code, message, folder) -> None:
    wide = MODEL.replace("R.nn.relu", f"{'R.exp(' * 20}R.nn.relü").replace("w))", "w))" + ")" * 20)
    (folder / "wide.py").write_text(wide.partition("\n")[2], "utf-8")
    setting, _, words = line.rpartition("ascii ")
    script = f"{setting}{setting and 'ascii'} {shlex.quote(sys.executable)} -m relaxpy {words}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=60, env=environment
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert message in done.stdout + done.stderr


SCRIPT = f"""
import numpy as np
import relaxpy
from relaxpy.script import ir as I, relax as R

D = 4
{MODEL.replace("4, 2", "D, 2")}

@R.function(private=True)
def half(x: R.Tensor(("n", D), "float32")):
    return x

if __name__ == "__main__":
    raise SystemExit("the file runs as a script")
"""


@pytest.fixture
def script(folder: Path) -> Path:
    path = folder / "first.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.usefixtures("script")
def test_a_file_that_imports_is_read_or_imported(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command("check first.py", capsys)
    assert code == 1
    assert re.match(r"first\.py:\d+:\d+: error: unknown name 'D'", out)
    assert (
        "note: first.py is read, not executed; to import it as Python does, write --import" in out
    )
    code, out, _ = command("check flaws.py", capsys)
    assert code == 1
    assert "--import" not in out
    for line in ("check --import first.py", "check first.py:Model", "check first:Model"):
        assert command(line, capsys)[:2] == (0, "no errors in 1 file\n")
    expected = np.maximum(X @ W, 0)
    for program in ("--import first.py", "first.py:Model"):
        code, _, err = command(f"run {program} both.npz -o y.npy", capsys)
        assert (code, err) == (0, "")
        np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-5)
    code, out, _ = command("print first:half", capsys)
    assert code == 0
    assert 'main(x: R.Tensor(("n", 4), dtype="float32")):\n    return x\n' in out


@pytest.mark.parametrize(
    ("text", "line", "code", "message"),
    [
        ("", "check --import first.py", 2, "relaxpy: error: first.py has no program"),
        (MODEL, "check first.py:Modle", 2, "first.py has no 'Modle'\n  hint: did you mean Model?"),
        (MODEL, "check first.py:np.pi", 2, "first.py has no 'np.pi'"),
        ("n = 3", "check first.py:n", 2, "first.py:n is a int, not a program"),
        (MODEL, "check nothing:Model", 2, "relaxpy: error: there is no module 'nothing' here"),
        (MODEL, "check --import nothing.py", 2, "relaxpy: error: nothing.py: No such file"),
        (f"x = np.pi\n{MODEL}", "check first.py", 0, "warning: first.py:2: 1 statement outside"),
        (f"import numpy as np\n{MODEL}", "check first.py", 0, "no errors in 1 file\n"),
        ("x = 1\ndef f(y): return y\n", "check first.py", 1, "write --import"),
        (
            f"{MODEL}\n{MODEL.replace('Model', 'Other')}",
            "check --import first.py",
            2,
            "first.py has several modules: Model, Other\n  hint: name one of them: first.py:Model",
        ),
        (
            "import nowhere",
            "check --import first.py",
            1,
            "first.py:2:1: error: first.py cannot be imported: ModuleNotFoundError: No module",
        ),
        ("x = (1 +", "check --import first.py", 1, "first.py cannot be imported: SyntaxError"),
        ("raise SystemExit(3)", "run --import first.py", 1, "cannot be imported: SystemExit: 3"),
        (MODEL.replace("(4, 2)", "(5, 2)"), "run --import first.py", 1, "[DER-36]"),
    ],
)
def test_files_that_cannot_be_imported(text, line, code, message, folder, capsys) -> None:
    (folder / "first.py").write_text(f"{IMPORTS}\n{text.lstrip()}")
    found, out, err = command(line, capsys)
    assert found == code
    assert message in out + err
    assert "Traceback" not in err


def test_a_script_is_read_without_what_only_python_executes(folder, capsys) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    script = f"""
import os, sys
from pathlib import Path
import numpy as np; import relaxpy
{IMPORTS}
print("executed"); os.abort()


def helper(x):
    return x


class Config:
    sizes = [
        4,
    ]
{MODEL}
ex = relaxpy.compile(Model)
if __name__ == "__main__":
    assert ex
"""
    for text, warned in (
        (next(text for text in programs if "@R.function" in text), True),
        (script, True),
        (f"import os\n{IMPORTS}{MODEL}", False),
    ):
        (folder / "script.py").write_text(text)
        code, out, err = command("check script.py", capsys)
        assert (code, out) == (0, "no errors in 1 file\n")
        assert ("outside of programs" in err and "not executed" in err) == warned
        code, out, err = command("report script.py", capsys)
        assert code == 0
        assert "executed" not in out
        assert command("graph script.py", capsys)[0] == 0
    wrong = script.replace("(4, 2)", "(5, 2)")
    (folder / "script.py").write_text(wrong)
    _, out, _ = command("check script.py", capsys)
    line = next(n for n, text in enumerate(wrong.split("\n"), 1) if "R.matmul" in text)
    assert out.startswith(f"script.py:{line}:")


@pytest.mark.parametrize("name", ["np", "table", "helper", "Config"])
def test_what_a_program_uses_of_python_needs_an_import(name, folder, capsys) -> None:
    script = (
        f"import numpy as np\ntable = np.ones(4)\ndef helper(): pass\nclass Config: pass\n{IMPORTS}"
    )
    (folder / "script.py").write_text(script + MODEL.replace("R.nn.relu(", f"R.nn.relu({name}, "))
    code, out, _ = command("check script.py", capsys)
    assert code == 1
    assert f"unknown name '{name}'" in out
    assert "to import it as Python does, write --import" in out


@pytest.mark.parametrize(
    "program", ["net1/inner/model.py", "net2/inner/model.py:Model", "net3.inner.model:Model"]
)
def test_a_file_of_a_package_is_its_module(program, folder, capsys) -> None:
    name = program[:4]
    (folder / name / "inner").mkdir(parents=True)
    (folder / name / "__init__.py").write_text("print('imported')")
    (folder / name / "inner" / "__init__.py").touch()
    (folder / name / "sizes.py").write_text("print('sizes')\nWIDTH = 2")
    text = f"{IMPORTS}\nfrom ..sizes import WIDTH\nprint(__name__)\n{MODEL.lstrip()}"
    (folder / name / "inner" / "model.py").write_text(text.replace("(4, 2)", "(4, WIDTH)"))
    code, out, err = command(f"print --import {program}", capsys)
    assert code == 0, err
    assert out.startswith("# from")  # what the code prints is no part of the program
    assert err.split() == ["imported", "sizes", f"{name}.inner.model"]


def test_errors_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("check --json model.py flaws.py", "check --format json model.py flaws.py"):
        code, out, err = command(line, capsys)
        first, second = json.loads(out)
        assert (code, err) == (1, "")
        assert (first["file"], first["line"], first["rule"]) == ("flaws.py", 9, "DER-36")
        assert (second["file"], second["line"]) == ("flaws.py", 18)
        assert set(first) == {
            *("file", "line", "column", "end_line", "end_column"),
            *("rule", "message", "notes", "hint"),
        }
    assert json.loads(command("check --json model.py", capsys)[1]) == []
    code, out, _ = command("check --format github flaws.py", capsys)
    first, second = out.splitlines()
    assert code == 1
    assert first.startswith("::error file=flaws.py,line=9,col=")
    assert ",title=DER-36::relax.matmul: " in first
    assert "%0Ahint: " in second
    rows = json.loads(command("report model.py --json", capsys)[1])
    assert {(row["kernel"], row["backend"]) for row in rows} == {("fused_matmul_relu", "numpy")}
    rows = json.loads(command("profile model.py both.npz --json", capsys)[1])
    assert "fused_matmul_relu" in [row["name"] for row in rows]


def test_check_goes_into_folders(folder, capsys, monkeypatch) -> None:
    (folder / "package" / ".hidden").mkdir(parents=True)
    (folder / "package" / "good.py").write_text(MODEL)
    (folder / "package" / "plain.py").write_text("import os\n")
    (folder / "package" / ".hidden" / "flaws.py").write_text(FLAWS)
    assert command("check package", capsys)[:2] == (0, "no errors in 1 file\n")
    code, out, _ = command("check .", capsys)
    assert code == 1
    assert out.endswith("\n2 errors in 3 files\n")

    changes = iter([lambda: None, lambda: (folder / "package" / "good.py").write_text(FLAWS)])

    def sleep(seconds: float) -> None:
        try:
            next(changes)()
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("relaxpy.plugins.cli.commands.time.sleep", sleep)
    code, out, _ = command("check --watch package", capsys)
    assert (code, out.count("no errors in 1 file\n"), out.count("2 errors in 1 file\n")) == (
        1,
        1,
        1,
    )
    assert command("check --watch -", capsys)[0] == 2


def test_misspelt_commands_and_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command("chek model.py", capsys)
    assert code == 2
    assert err.endswith("relaxpy: error: there is no command 'chek'; did you mean 'check'?\n")
    code, _, err = command("run model.py --random 0 --dim n=2 --dim m=3", capsys)
    assert (code, err) == (
        2,
        "relaxpy: error: no parameter has a dimension 'm'\n  hint: the dimensions are n\n",
    )


@pytest.mark.parametrize("name", ["weights.pt", "weights.pth", "program.pt2"])
def test_files_of_pytorch_are_not_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_bytes(b"")
    code, out, error = command(f"print {name}", capsys)
    assert (code, out) == (2, "")
    assert f"{name}: files of PyTorch are not read here" in error
    assert "hint: save the program in Python: relaxpy.compile(model).save(" in error


@pytest.mark.parametrize("kind", ["onnx", "rxp", "json", "py"])
def test_check_of_a_folder_finds_errors_in_files_of_each_kind(kind, folder, capsys) -> None:
    if kind == "onnx":
        pytest.importorskip("onnx")
    inner = folder / "models" / "inner"
    inner.mkdir(parents=True)
    (folder / "models" / "others.json").write_text('{"name": "not a program"}')
    (folder / "models" / "fine.py").write_text(IMPORTS + MODEL)
    relaxpy.compile(from_source(MODEL)).save(inner / "fine.rxp")
    (inner / "fine.json").write_text(relaxpy.ir.save_json(from_source(MODEL)))
    assert command("check models", capsys) == (0, "no errors in 3 files\n", "")
    broken = {"json": '{"format":"relaxpy-ir","version":1}', "py": FLAWS}.get(kind, "garbage")
    (inner / f"broken.{kind}").write_text(broken)
    code, out, err = command("check models", capsys)
    assert code in (1, 2)
    assert f"broken.{kind}" in out + err
    assert "no errors" not in out
    for line in (out + err).splitlines():
        assert line.count("broken.onnx") < 2


def test_cache_shows_and_removes_what_is_on_disk(folder, capsys, monkeypatch) -> None:
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    assert command("cache", capsys) == (0, f"{folder}/cache: 0 files, 0 KiB\n", "")
    monkeypatch.delenv("RELAXPY_TARGET")
    command("warm model.py", capsys)
    (folder / "cache" / "others").write_text("")
    code, out, _ = command("cache", capsys)
    count = re.match(rf"{folder}/cache: (\d+) files, \d+ KiB\n", out)
    assert count is not None
    assert code == 0
    _, out, _ = command("cache --clear", capsys)
    assert out.startswith(f"{folder}/cache: {count[1]} files removed, ")
    assert [*(folder / "cache").iterdir()] == [folder / "cache" / "others"]
    assert command("cache --clear", capsys)[1] == f"{folder}/cache: 0 files removed, 0 KiB\n"
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    code, _, err = command("cache", capsys)
    assert (code, "nothing is kept on disk: RELAXPY_CACHE=0" in err) == (2, True)


def test_all_sizes_that_are_missing_are_named(folder, capsys) -> None:
    text = MODEL.replace('("n", 4)', '("n", "k")').replace("(4, 2)", '("k", 2)')
    (folder / "sizes.py").write_text(IMPORTS + text)
    code, _, err = command("run sizes.py --random 0", capsys)
    assert code == 2
    assert "the dimensions n of parameter x, k of parameter x are not known" in err
    assert "--dim n=4 --dim k=4" in err
    assert command("run sizes.py --random 0 --dim n=4 --dim k=4", capsys)[0] == 0
    _, _, err = command("run sizes.py --random 0 --dim n=4", capsys)
    assert "the dimension k of parameter x is not known" in err


def test_compile_fixes_dimensions(folder, capsys) -> None:
    code, out, _ = command("compile model.py --dim n=3 -o model.rxp", capsys)
    assert code == 0
    assert "x: R.Tensor((3, 4)" in out
    loaded = relaxpy.load_executable("model.rxp")
    np.testing.assert_allclose(loaded(X, W), np.maximum(X @ W, 0), rtol=1e-5)
    for words, message in (
        ("--dim m=3", "m"),
        ("--dim n", "--dim takes NAME=SIZE"),
        ("--dim n=3 --dim n=4", "two sizes for n"),
    ):
        code, _, err = command(f"compile model.py {words} -o other.rxp", capsys)
        assert code == 2
        assert message in err
    code, _, err = command("compile model.rxp --dim n=3 -o other.rxp", capsys)
    assert (code, "whose passes have run" in err) == (2, True)
