"""Programs on disk: what was compiled before needs no passes, and everything else is compiled."""

import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import RelaxpyError
from relaxpy.exec.api.compile import compile_made
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op import Op
from relaxpy.script import from_source, ir as I, relax as R
from relaxpy.transform import PassContext

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        y = R.matmul(R.exp(x), R.add(w, R.const(2.0, "float32")))
        z = R.add(R.const(1.5, "float32"), R.const(2.0, "float32"))
        return (R.nn.softmax(y), R.multiply(x, z))

    @R.function
    def other(x: R.Tensor((3, 4), "float32")):
        return R.sum(x, axis=[1])
"""
X, W = np.linspace(-1, 1, 24, dtype="float32").reshape(3, 8), np.eye(8, dtype="float32")


pytestmark = pytest.mark.usefixtures("lowered")


def compiled(text: str = TEXT) -> relaxpy.Executable:
    return relaxpy.compile(from_source(text), target="native")


def message(executable: relaxpy.Executable, *args: object) -> str:
    with pytest.raises(RelaxpyError) as caught:
        executable["main"](*args)
    return str(caught.value)


WAYS = ["compiled", "with its code", "loaded"]
"""How a program starts without being lowered: from the cache, or a file with its code or not."""


def lowered_and_not(way: str, folder: Path) -> tuple[relaxpy.Executable, relaxpy.Executable]:
    """An executable, and one that starts in such a way; files have no positions in the text."""
    first = compiled()
    if way == "compiled":
        return first, compiled()
    first.save(folder / "model.rxp")
    loaded = relaxpy.load_executable(folder / "model.rxp")
    has_code = way == "with its code"
    return loaded, relaxpy.load_executable(folder / "model.rxp", native_code=has_code)


@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16", "float8_e4m3fn", "float4_e2m1fn"])
@pytest.mark.parametrize("read", ["bool", "bfloat16", "float8_e4m3fn", "float4_e2m1fn"])
def test_a_program_from_the_disk_knows_the_datatypes_of_unused_parameters(
    dtype: str, read: str, lowered: list[str]
) -> None:
    text = f"""
@R.function
def main(x: R.Tensor((3, "n"), "{dtype}"), y: R.Tensor((3, "n"), "{read}")):
    return R.astype(y, "float32")
"""
    x, y = (np.ones((3, 4), DataType(name).numpy()) for name in (dtype, read))
    for _ in range(2):
        np.testing.assert_array_equal(compiled(text)["main"](x, y), np.ones((3, 4)))
    assert len(lowered) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_program_from_the_disk_is_what_it_was(way, lowered, tmp_path) -> None:
    first, second = lowered_and_not(way, tmp_path)
    count = 1 if way == "compiled" else 2
    assert len(lowered) == count
    assert list(first) == list(second)
    for one, same in zip(first["main"](X, W), second["main"](X, W), strict=True):
        np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(second["other"](X[:, :4].copy()), X[:, :4].sum(axis=1))
    assert repr(first) == repr(second)
    assert first.report() == second.report()
    assert str(first["main"].signature) == str(second["main"].signature)
    assert len(lowered) == count
    # The rest is compiled when it is needed.
    assert first.source == second.source
    assert first.as_text() == second.as_text()
    assert first.stats() == second.stats()
    assert len(lowered) == count + 1
    name = first.report().rows[0].kernel
    assert first.kernel_source(name, "llvm") == second.kernel_source(name, "llvm")
    assert {row.name for row in second.profile(X, W, function="main")} == {
        row.name for row in first.profile(X, W, function="main")
    }


@pytest.mark.parametrize("way", WAYS)
def test_what_native_code_refuses_runs_as_the_text_says(way, lowered, tmp_path) -> None:
    first, second = lowered_and_not(way, tmp_path)
    assert len(lowered) == (1 if way == "compiled" else 2)
    for wrong in ((X, W[:4]), (X.astype("float64"), W), (X,), (X[:, :4], W)):
        assert message(first, *wrong) == message(second, *wrong)
    strided = np.asfortranarray(X)
    for one, same in zip(first["main"](strided, W), second["main"](strided, W), strict=True):
        np.testing.assert_array_equal(one, same)
    private = first.report().rows[0].kernel
    unknown = []
    for executable in (first, second):
        with pytest.raises(KeyError) as caught:
            executable[private]
        unknown.append(str(caught.value))
    assert unknown[0] == unknown[1]
    assert "private" in unknown[0]


def test_it_is_saved_and_pickled(lowered: list[str], tmp_path: Path) -> None:
    compiled()
    second = compiled()
    second.save(tmp_path / "model.json")
    for again in (
        relaxpy.load_executable(tmp_path / "model.json", native_code=True),
        pickle.loads(pickle.dumps(second)),
    ):
        np.testing.assert_array_equal(again["main"](X, W)[0], second["main"](X, W)[0])


def test_a_module_that_changes_later_has_no_effect(lowered: list[str]) -> None:
    compiled()
    module = from_source(TEXT)
    second = relaxpy.compile(module, target="native")
    del module["other"]
    assert "def other" in second.source
    with PassContext(disabled_pass=["FuseOps"]):
        third = compiled()
        assert second.as_text() != third.as_text()


def test_the_same_functions_share_code(lowered: list[str]) -> None:
    module = from_source(TEXT)
    first = relaxpy.compile(module, target="native")
    text = first.as_text()
    second = relaxpy.compile(module.clone(), target="native")
    third = relaxpy.compile(module, target="native")
    del first  # the others keep it
    fourth = relaxpy.compile(module, target="native")
    assert len(lowered) == 1
    executables = second, third, fourth
    assert len({*map(id, executables)}) == 3
    for number, executable in enumerate(executables):
        executable.set_input("other", np.full((3, 4), number, "float32"))
    for number, executable in enumerate(executables):
        executable.invoke_stateful("other")
        result = executable.get_outputs("other")
        np.testing.assert_array_equal(result, np.full(3, 4 * number, "float32"))
        assert executable.as_text() == text
    with PassContext(disabled_pass=["FuseOps"]):
        assert relaxpy.compile(module, target="native").as_text() != text
    del module["other"]
    assert list(relaxpy.compile(module, target="native")) == ["main"]
    assert len(lowered) == 3


def test_attributes_that_are_equal_but_not_the_same_are_kept_apart(lowered: list[str]) -> None:
    module = from_source(
        "@R.function\ndef main(x: R.Tensor((3,), 'float32')):\n    return R.exp(x)"
    )
    module = module if isinstance(module, relaxpy.IRModule) else relaxpy.IRModule({"main": module})
    values = [1, True, 1.0]
    kept = [relaxpy.compile(module.with_attr("k", value), "native") for value in values]
    found = [executable._program.module.attrs["k"] for executable in kept]
    assert [*map(type, found)] == [int, bool, float]


def test_positions_are_those_of_the_program(lowered: list[str]) -> None:
    def fail(x: object) -> object:
        raise ValueError("it fails")

    relaxpy.register_func("test.failing", fail, override=True)
    text = """
@R.function
def main(x: R.Tensor((3, 8), "float32"), y: R.Tensor((2,), "float32")):
    return R.call_pure_packed("test.failing", x, sinfo_args=R.Tensor((3, 8), "float32"))
"""
    for lines in (0, 3, 5):
        executable = compiled("\n" * lines + text)
        assert message(executable, X, X[0, :2]).startswith(f"<string>:{lines + 4}:12: packed")
        assert message(executable, X, X).startswith(f"<string>:{lines + 3}:42: parameter y")
    assert len(lowered) == 1


def test_what_has_no_name_is_reported(lowered: list[str]) -> None:
    @I.ir_module
    class Module(relax.BasePyModule):
        @I.pyfunc
        def twice(self, x):  # type: ignore[no-untyped-def]
            return x + x

        @R.function(pure=False)
        def main(x: R.Tensor((3, 8), "float32")):  # type: ignore[no-untyped-def]
            return R.call_py_func("twice", (x,), out_sinfo=R.Tensor((3, 8), "float32"))

    for _ in range(2):
        executable = relaxpy.compile(Module, target="native")
        np.testing.assert_array_equal(executable["main"](X), 2 * X)
    assert "not kept on disk: it calls the Python function twice" in str(executable.report())
    assert len(lowered) == 2


def test_the_stages_of_a_compilation_are_reported(lowered: list[str], tmp_path: Path) -> None:
    module = from_source(TEXT)
    first = relaxpy.compile(module, target="native")
    reports = [
        first.compile_report(),
        compiled().compile_report(),
        relaxpy.compile(module, target="native").compile_report(),
        relaxpy.compile(module, target="numpy").compile_report(),
    ]
    new = {"passes", "planning of kernels", "emission of kernels", "code generation by LLVM"}
    stages = [{*report.stages} for report in reports]
    assert stages[0] >= new | {"storing", "linking", "hash of the program"}
    assert stages[1] == {"hash of the program", "loading from the disk", "linking", "other"}
    assert stages[2] == {"other"}
    assert stages[3] >= {"passes", "planning of kernels", "Python functions"}
    assert [report.is_new for report in reports] == [True, False, False, True]
    assert reports[1].seconds == pytest.approx(sum(reports[1].stages.values()))
    shown = str(reports[0]).splitlines()
    assert shown[0].split() == ["stage", "ms"]
    assert shown[-1].split()[0] == "all"
    first.save(tmp_path / "model.rxp")
    loaded = relaxpy.load_executable(tmp_path / "model.rxp").compile_report()
    assert {"reading of the file", "planning of kernels"} <= {*loaded.stages}


CHANGES = [
    *(("2.0", "3.0"), ("exp", "tanh"), ("axis=[1]", "axis=[0]"), ("(3, 4)", "(4, 4)")),
    *(("def main", "def first"), ('("n", 8)', "(3, 8)"), ("data", "rows"), ("float32", "float64")),
]


def test_another_program_is_not_found(lowered: list[str]) -> None:
    text = """
@I.ir_module
class Module:
    @R.function
    def main(data: R.Tensor(("n", 8), "float32")):
        return R.add(R.exp(data), R.const(2.0, "float32"))

    @R.function
    def other(x: R.Tensor((3, 4), "float32")):
        return R.sum(x, axis=[1])
"""
    compiled(text)
    for number, change in enumerate(CHANGES):
        compiled(text.replace(*change))
        assert len(lowered) == number + 2, change
    compiled(text)
    assert len(lowered) == len(CHANGES) + 1


def test_constants_are_those_of_the_program(lowered: list[str]) -> None:
    """Large ones are not stored; they are part of the key."""
    for factor in (1, 2):
        data = np.arange(12, dtype="float32").reshape(3, 4) * factor
        for _ in range(2):
            x = relax.Var("x", relax.TensorStructInfo((3, 4), "float32"))
            builder = relax.BlockBuilder()
            with builder.function("main", [x]):
                weight = relax.op.multiply(relax.const(data), relax.const(data))
                builder.emit_func_output(
                    builder.emit(
                        relax.op.add(relax.op.add(x, relax.const(data)), builder.emit(weight))
                    )
                )
            found = relaxpy.compile(builder.get(), target="native")["main"](X[:, :4].copy())
            np.testing.assert_allclose(found, X[:, :4] + data + data * data, rtol=1e-6)
    assert len(lowered) == 2


@pytest.mark.parametrize("size", [16, 256, 640])
def test_constants_in_memory_that_others_write_are_those_of_now(size, lowered, tmp_path) -> None:
    memory = bytearray(size * size * 4)
    weight = np.frombuffer(memoryview(memory).toreadonly(), "float32").reshape(size, size)
    x = relax.Var("x", relax.TensorStructInfo((64, size), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.matmul(x, relax.const(weight))))
    module, data, executables = builder.get(), np.ones((64, size), "float32"), []
    for value in (1, 2):
        np.frombuffer(memory, "float32")[:] = value
        executable = relaxpy.compile(module, target="native")
        executables.append(executable)  # its copies of constants stay
        executable.save(tmp_path / "model.rxp")
        for each in executable, relaxpy.load_executable(tmp_path / "model.rxp"):
            np.testing.assert_array_equal(each["main"](data), data * size * value)


def test_what_users_register_or_configure_is_not_stored(lowered, monkeypatch) -> None:
    compiled()
    with PassContext(disabled_pass=["FuseOps"]):
        unfused = compiled(), compiled()
    assert len(lowered) == 3
    assert unfused[0].report() == unfused[1].report() != compiled().report()
    assert len(lowered) == 3
    exp = Op.get("relax.exp")
    legalize = exp.record.legalize
    exp.extend(legalize=lambda builder, call: relax.op.tanh(call.args[0]))
    try:
        found = compiled()["main"](X, W)[1]
        changed = compiled()["main"](X, W)[0]
    finally:
        exp.extend(legalize=legalize)
    assert len(lowered) == 5
    np.testing.assert_array_equal(found, X * np.float32(3.5))
    logits = np.tanh(X) @ (W + 2)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(changed, weights / weights.sum(axis=1, keepdims=True), rtol=1e-5)
    assert Op.user_changes > 0


def test_packed_functions_are_looked_up(lowered: list[str]) -> None:
    text = """
@R.function
def main(x: R.Tensor((3, 8), "float32")):
    return R.call_pure_packed("test.stored", R.exp(x), sinfo_args=R.Tensor((3, 8), "float32"))
"""
    for number in (1, 2):
        add = partial(np.add, np.float32(number))
        relaxpy.register_func("test.stored", add, override=True)
        np.testing.assert_allclose(compiled(text)["main"](X), np.exp(X) + number, rtol=1e-6)
    assert len(lowered) == 1


def test_kernels_that_can_be_called_are_stored(lowered: list[str]) -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[i] * T.float32(2)
"""
    for _ in range(2):
        result = np.zeros(4, "float32")
        compiled(text)["main"](np.ones(4, "float32"), result)
        np.testing.assert_array_equal(result, np.full(4, 2, "float32"))
    assert len(lowered) == 1


def test_damaged_files_are_compiled_again(lowered: list[str], tmp_path: Path) -> None:
    expected = compiled()["main"](X, W)[0]
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    np.testing.assert_array_equal(compiled()["main"](X, W)[0], expected)
    assert len(lowered) == 2
    compiled()
    assert len(lowered) == 2


def test_the_cache_can_be_switched_off(lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled()
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    compiled()
    assert len(lowered) == 2


def test_a_recipe_starts_a_program_that_is_not_made(lowered: list[str]) -> None:
    made: list[str] = []

    def start(recipe: str, text: str = TEXT) -> relaxpy.Executable:
        def make() -> relaxpy.IRModule:
            made.append(recipe)
            return from_source(text)

        return compile_made(make, recipe, "native")

    first, second = start("one"), start("one")
    assert (made, len(lowered)) == (["one"], 1)
    for one, same in zip(first["main"](X, W), second["main"](X, W), strict=True):
        np.testing.assert_array_equal(one, same)
    assert list(first) == list(second)
    assert str(first["main"].signature) == str(second["main"].signature)
    # The rest is made when it is needed.
    assert made == ["one"]
    assert message(first, X, W[:7]) == message(second, X, W[:7])
    assert first.report() == second.report()
    assert first.source == second.source
    assert made == ["one", "one"]
    # Another recipe is another program.
    other = start("two", TEXT.replace("1.5", "2.5"))
    assert made[-1] == "two"
    np.testing.assert_array_equal(other["main"](X, W)[1], X * np.float32(4.5))
    np.testing.assert_array_equal(second["main"](X, W)[1], X * np.float32(3.5))


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_a_recipe_is_made_where_nothing_is_kept(target, monkeypatch) -> None:
    monkeypatch.setenv("RELAXPY_CACHE", "0" if target == "native" else "1")
    made: list[int] = []
    for count in (1, 2):
        executable = compile_made(lambda: made.append(1) or from_source(TEXT), "one", target)
        assert (len(made), executable.target) == (count, target)
        np.testing.assert_array_equal(executable["main"](X, W)[1], X * np.float32(3.5))
