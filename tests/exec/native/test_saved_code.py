"""Machine code in files of executables is loaded on request, if it fits and is whole."""

import functools
import gc
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.exec.api import lowered as module_of_lowering
from relaxpy.exec.machine import tuning
from relaxpy.exec.native.machine_code import objects
from relaxpy.exec.store.container import Container, Sections
from relaxpy.script import from_source

ROOT = Path(__file__).parents[3]
TEXT = """
@R.function
def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
    return R.nn.softmax(R.matmul(R.exp(x), w))
"""
ARGS = np.ones((3, 8), "float32"), np.eye(8, dtype="float32")


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No code is on disk, which would not be generated again."""
    monkeypatch.setenv("RELAXPY_CACHE", "0")


@functools.cache
def saved() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.rxp")
        relaxpy.compile(from_source(TEXT), target="native").save(path)
        return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "model.rxp").write_bytes(saved())
    gc.collect()  # code that is in memory would not be generated again
    return tmp_path / "model.rxp"


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that LLVM compiles during a test, without those that need not be fast."""
    texts: list[str] = []
    generate = objects._generate

    def record(method: str, text: str, machine: Any, *, optimised: bool = True) -> Any:
        if optimised:
            texts.append(text)
        return generate(method, text, machine, optimised=optimised)

    monkeypatch.setattr(objects, "_generate", record)
    return texts


def change(path: Path, edit: Callable[[dict[str, Any]], object], **others: object) -> None:
    """Edit the table of machine code in a file, to which a section "junk" is added, and others."""
    saved, sections = Container.read(path), Sections()
    for array in (*saved.arrays, np.zeros(100, np.uint8)):
        junk = sections.add(array)
    native = saved.content["native"]
    edit(native)
    if isinstance(native["objects"], dict):
        native["objects"] = {k: junk if n == "junk" else n for k, n in native["objects"].items()}
    Container.of({**saved.content, **others}, sections).write(path)


def test_code_is_loaded_on_request_alone(path: Path, generated: list[str]) -> None:
    expected = relaxpy.load_executable(path)["main"](*ARGS)
    assert len(generated) == 1
    loaded = relaxpy.load_executable(path, native_code=True)
    np.testing.assert_array_equal(loaded["main"](*ARGS), expected)
    assert len(generated) == 1
    assert loaded.target == "native"
    assert loaded.report().remark == ""
    del loaded
    gc.collect()
    relaxpy.load_executable(path)
    assert len(generated) == 2


def test_saving_generates_each_code_once(tmp_path: Path, generated: list[str]) -> None:
    built = relaxpy.compile(from_source(TEXT), target="native")
    generated.clear()  # which has the code that this process alone needs
    built.save(tmp_path / "model.rxp")
    assert generated
    assert len(set(generated)) == len(generated)


IN_PARTS = """
@R.function
def main(
    x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), i: R.Tensor((2,), "int64")
):
    y = R.matmul(R.sin(x), w)
    z = R.take(R.cos(y), i, axis=0, mode="fast")
    return R.nn.softmax(z), R.sort(y, axis=0), R.sum(R.abs(x), axis=1)
"""
"""Kernels whose parts share functions, constants, the pool of threads, and reports."""


def test_parts_that_were_compiled_ahead_are_saved(tmp_path, generated, monkeypatch) -> None:
    monkeypatch.setattr(tuning.CodeSize, "PART", 1)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((600, 8), "float32") * 1e5
    args = x, rng.standard_normal((8, 8), "float32"), np.array([599, 4])
    module = from_source(IN_PARTS)
    expected = relaxpy.compile(module, target="numpy")["main"](*args)
    built = relaxpy.compile(module, target="native")
    assert sum("@kernel" in text for text in generated) > 3
    built.save(tmp_path / "model.rxp")
    count = len(generated)
    del built
    gc.collect()
    loaded = relaxpy.load_executable(tmp_path / "model.rxp", native_code=True)
    assert len(generated) == count
    for result, value in zip(loaded["main"](*args), expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-4)
    with pytest.raises(RelaxpyError, match="600"):
        loaded["main"](*args[:2], np.array([600, 4]))


def test_other_programs_do_not_use_the_code(path: Path, generated: list[str]) -> None:
    loaded = relaxpy.load_executable(path, native_code=True)
    other = from_source(TEXT.replace("R.exp(x)", "R.tanh(x)"))
    relaxpy.compile(other, target="native")
    assert len(generated) == 1
    assert loaded.target == "native"


def test_code_for_another_processor_is_generated_again(path: Path, generated: list[str]) -> None:
    change(path, lambda native: native.update(processor="another"))
    loaded = relaxpy.load_executable(path, native_code=True)
    assert len(generated) == 1
    reason = "the machine code of the file is for another CPU"
    assert loaded.report().remark == reason
    assert reason in str(loaded.report())
    assert reason in loaded.report()._repr_html_()
    loaded["main"](*ARGS)


def entry(native: dict[str, Any], number: object) -> None:
    """Let an object be another section."""
    native["objects"][next(iter(native["objects"]))] = number


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda n: n["program"].clear(), "its table of functions has no 'functions'"),
        (lambda n: n["program"].update(functions=[]), "its table of functions has no 'main'"),
        (lambda n: entry(n, -1), "there is no section -1"),
        (lambda n: entry(n, 100), "there is no section 100"),
        (lambda n: entry(n, True), "there is no section True"),
        (lambda n: entry(n, "0"), "there is no section '0'"),
        (lambda n: entry(n, "junk"), "not a relocatable one of ELF"),
        (lambda n: n.update(objects=[]), "not of the form"),
        (lambda n: n.update(machine=["x86_64"]), "not of the form"),
    ],
)
def test_damaged_code_is_an_error_where_it_is_requested(path, edit, says) -> None:
    change(path, edit)
    with pytest.raises(MisuseError, match=f"machine code in .*rxp is damaged: .*{says}") as error:
        relaxpy.load_executable(path, native_code=True)
    assert "load it without `native_code=True`" in str(error.value)
    relaxpy.load_executable(path)["main"](*ARGS)


def test_code_for_another_interface_is_linked_piece_by_piece(path, generated, monkeypatch) -> None:
    """Programs of another version are lowered, and use those objects that they would compile to."""
    lowered: list[object] = []
    lower = module_of_lowering.lower_module

    def noted(*args: Any, **named: Any) -> Any:
        lowered.append(args)
        return lower(*args, **named)

    monkeypatch.setattr(module_of_lowering, "lower_module", noted)
    relaxpy.load_executable(path, native_code=True)["main"](*ARGS)
    assert not lowered
    change(path, lambda native: native.update(interface="another"))
    relaxpy.load_executable(path, native_code=True)["main"](*ARGS)
    assert len(lowered) == 1
    assert not generated


def test_a_file_without_code_says_so(tmp_path: Path) -> None:
    relaxpy.compile(from_source(TEXT), target="numpy").save(tmp_path / "model.rxp")
    assert Container.read(tmp_path / "model.rxp").content["native"] is None
    loaded = relaxpy.load_executable(tmp_path / "model.rxp", native_code=True)
    assert loaded.report().remark == "the file has no machine code"
    assert loaded.target == "numpy"


WITHOUT_LLVMLITE = """
import sys
sys.modules["llvmlite"] = None
from relaxpy.exec.native.llvm.llvm_module import Module
if "no text" in sys.argv:
    Module.text = None
import numpy as np, relaxpy
loaded = relaxpy.load_executable(sys.argv[1], native_code=True)
print(loaded.target, loaded.report().remark)
print(loaded["main"](np.ones((3, 8), "float32"), np.eye(8, dtype="float32")).tolist())
"""


def test_code_runs_without_llvmlite_and_without_writing_text_for_it(path: Path) -> None:
    def run(*options: str) -> list[str]:
        command = [sys.executable, "-c", WITHOUT_LLVMLITE, str(path), *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    expected = str(relaxpy.load_executable(path)["main"](*ARGS).tolist())
    assert run("no text") == ["native ", expected]
    # Code for a kernel is missing, and the target is not requested.
    one = lambda native: native.update(objects={"another": native["objects"].popitem()[1]})  # noqa: E731
    change(path, one, target="cpu")
    target, result = run()
    reason = 'target "native" generates code with llvmlite: it is not installed'
    assert target == f"numpy the machine code of the file is not used: {reason}"
    found = np.array(json.loads(result))
    np.testing.assert_allclose(found, json.loads(expected), rtol=1e-6)


def test_a_pickle_is_loaded_once_with_its_code(generated: list[str]) -> None:
    program = from_source(TEXT.replace("R.exp(x)", "R.sin(x)"))
    pickled = pickle.dumps(relaxpy.compile(program, "native"))
    gc.collect()  # code that is in memory would not be generated again
    count = len(generated)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(pickle.loads, [pickled] * 4))
    assert len(generated) == count
    assert len(set(map(id, found))) == 1
    assert (found[0].target, found[0].report().remark) == ("native", "")
    assert pickle.dumps(found[0]) == pickled
    expected = relaxpy.compile(program, "native")["main"](*ARGS)
    np.testing.assert_array_equal(found[0]["main"](*ARGS), expected)
