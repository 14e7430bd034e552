"""Code for other processors: emitted here, inspected, and run where the convention is known."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from benchmarks import emitted
from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.machine.platforms import LINUX, PLATFORMS, WEB, X86_64, platform_of_triple
from relaxpy.exec.machine.process import own_platform, process
from relaxpy.exec.native.machine_code import machine, objects
from relaxpy.exec.native.machine_code.loader import LoadedObject
from relaxpy.exec.native.machine_code.objects import LoadedCode
from relaxpy.exec.store.container import Container, Sections
from relaxpy.script import from_source
from relaxpy.target import Native
from tests.exec.cross_programs import PROGRAM, results

here = own_platform()
needs_linux = pytest.mark.skipif(
    here is None or here.system is not LINUX or here.architecture is not X86_64,
    reason="the code is for x86-64, and some runs on Linux",
)


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    yield
    objects._TRUSTED.clear()


def machine_of_code(executable: relaxpy.Executable) -> machine.Machine:
    """The machine of the code that a loaded executable uses."""
    code = executable._program.keep
    assert isinstance(code, LoadedCode)
    assert code.machine is not None
    return code.machine


SAVED = [platform for platform in PLATFORMS if platform.system is not WEB]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A file with code for all platforms and levels, and the results of the executable here."""
    path = tmp_path_factory.mktemp("saved") / "model.rxp"
    targets = [Native(platform.name, cpu) for platform in SAVED for cpu in _levels(platform.name)]
    executable = relaxpy.compile(from_source(PROGRAM), targets)
    executable.save(path)
    return path, results(executable)


def _levels(platform: str) -> tuple[str, ...]:
    if platform.startswith("linux"):
        return ("x86-64-v3", "x86-64-v4") if "x86" in platform else ("generic", "neoverse-n1")
    return ("x86-64-v3",) if "x86" in platform else ("apple-m1",)


def test_objects_of_each_system_have_known_relocations_and_functions(saved) -> None:
    container = Container.read(saved[0])
    found = set()
    for code in container.content["native"]:
        triple, _, features = code["machine"]
        platform = platform_of_triple(triple)
        assert platform is not None
        assert code["program"] is not None
        parts = {key: container.arrays[n].tobytes() for key, n in code["objects"].items()}
        library = b"".join(parts[key] for key in code["library"])
        for linked in (library, b"".join(parts.values())):
            undefined = LoadedObject(linked, platform.architecture).undefined
            assert undefined <= emitted.allowed(platform.system)
        found.add((platform.name, features.count("+")))
    assert len(found) == 8


@pytest.mark.parametrize("number", range(len(SAVED)), ids=[p.name for p in SAVED])
def test_objects_of_benchmarks_have_known_relocations_and_functions(number: int) -> None:
    """Each program is emitted for one of the platforms."""
    machine = Native(SAVED[number].name).machine_or_host()
    assert machine is not None
    for module in [*emitted.programs().values()][number :: len(SAVED)]:
        objects = emitted.objects(module, machine)
        assert objects
        assert emitted.calls(objects, machine) <= emitted.allowed(machine.platform.system)


def test_a_target_that_is_named_twice_is_saved_once(tmp_path: Path) -> None:
    first = Native("linux-aarch64"), Native("linux-aarch64", "generic"), Native("linux-aarch64")
    for name, targets in (("several", first), ("one", first[:1])):
        relaxpy.compile(from_source(PROGRAM), targets).save(tmp_path / name)
    assert (tmp_path / "several").read_bytes() == (tmp_path / "one").read_bytes()


@needs_linux
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_the_best_code_that_the_processor_has_runs_without_llvmlite(level, saved, monkeypatch):
    present = process().features(X86_64)
    if not present >= set(X86_64.levels[level]):
        pytest.skip(f"this processor is not of level {level}")
    features = frozenset(X86_64.levels[level])
    monkeypatch.setattr(type(process()), "features", lambda self, architecture: features)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    executable = relaxpy.load_executable(saved[0], native_code=True)
    used = machine_of_code(executable)
    assert (used.cpu, used.vector_bits) == (level, 512 if level == "x86-64-v4" else 256)
    assert results(executable) == saved[1]
    assert {row.backend for row in executable.report()} == {"native"}


@needs_linux
def test_a_loaded_file_is_saved_for_the_same_level(saved, tmp_path) -> None:
    first = relaxpy.load_executable(saved[0], native_code=True)
    first.save(tmp_path / "again.rxp")
    again = relaxpy.load_executable(tmp_path / "again.rxp", native_code=True)
    assert machine_of_code(again) == machine_of_code(first)
    assert results(again) == saved[1]


@needs_linux
def test_code_for_another_processor_is_not_used(saved, monkeypatch) -> None:
    monkeypatch.setattr(type(process()), "features", lambda self, architecture: frozenset(["avx"]))
    executable = relaxpy.load_executable(saved[0], native_code=True)
    assert "the machine code of the file is for another CPU" in str(executable.report())
    assert results(executable) == saved[1]


def test_what_the_process_uses_runs_here_if_other_code_is_first() -> None:
    program = """
import numpy as np
import relaxpy
from relaxpy.exec.api.lowered import Lowered, new_backend
from relaxpy.exec.native.machine_code.machine import generating_for
from relaxpy.script import from_source
from relaxpy.target import Native
text = "@R.function\\ndef main(x: R.Tensor((3,), 'float32')):\\n    return R.add(x, x)"
module = relaxpy.IRModule.from_expr(from_source(text))
module = relaxpy.relax.get_pipeline("default", target="native")(module)
with generating_for(Native("linux-aarch64").machine_or_host()):
    assert Lowered(lambda: module, new_backend("native", None)).source()
print(relaxpy.compile(module, "native")["main"](np.ones(3, "float32")).tolist())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[2.0, 2.0, 2.0]\n"), done.stderr


def test_this_processor_is_one_of_several(tmp_path: Path) -> None:
    path = tmp_path / "own.rxp"
    text = "@R.function\ndef main(x: R.Tensor((3,), 'float32')):\n    return R.add(x, x)\n"
    executable = relaxpy.compile(from_source(text), [Native(), Native("windows-x86_64")])
    executable.save(path)
    loaded = relaxpy.load_executable(path, native_code=True)
    assert machine_of_code(loaded) == machine.host()
    assert loaded["main"](np.ones(3, "float32")).tolist() == [2, 2, 2]


def test_what_a_file_has_does_not_change_other_executables() -> None:
    module = from_source(PROGRAM)
    usual = relaxpy.compile(module)
    relaxpy.compile(module, Native("linux-aarch64"))
    assert relaxpy.compile(module)._program is not None
    assert not isinstance(usual._program.saved.content["native"], list)


PRODUCT = """
@R.function
def main(x: R.Tensor((40, 2), "float32"), y: R.Tensor((2, 40), "float32")):
    with R.dataflow():
        z = R.matmul(x, y)
        R.output(z)
    return z
"""


@needs_linux
def test_strict_code_rounds_products_before_sums(tmp_path: Path) -> None:
    """Other code rounds the second product and its sum with the first one once."""
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 2), np.float32), rng.random((2, 40), np.float32)
    first, second = (x[:, n : n + 1] * y[n] for n in range(2))
    fused = (first + np.outer(x[:, 1].astype("f8"), y[1])).astype(np.float32)
    assert (first + second != fused).any()
    module, level = relaxpy.IRModule({"main": from_source(PRODUCT)}), own_level()
    for strict, expected in ((True, first + second), (False, fused)):
        relaxpy.compile(module, Native("", level, strict=strict)).save(tmp_path / "product.rxp")
        loaded = relaxpy.load_executable(tmp_path / "product.rxp", native_code=True)
        assert machine_of_code(loaded).is_strict == strict
        assert (loaded["main"](x, y) == expected).all()


def own_level() -> str:
    """The first CPU that code for this system can be saved for."""
    return next(iter(machine.host().platform.architecture.levels))


def test_texts_of_targets_may_be_strict() -> None:
    assert Native.of_text("native:strict") == Native(strict=True)
    assert Native.of_text("wasm32:simd128") == Native("wasm32", "simd128")
    expected = Native("linux-aarch64", "generic", strict=True)
    assert Native.of_text("linux-aarch64:generic:strict") == expected
    for text in ("", ":strict", "linux-aarch64::strict", "linux-aarch64:strict:generic"):
        with pytest.raises(MisuseError, match="expected a system, or a system:cpu"):
            Native.of_text(text)
    with pytest.raises(MisuseError, match="no Python runs code for WebAssembly"):
        relaxpy.compile(relaxpy.IRModule({"main": from_source(PRODUCT)}), Native("wasm32"))


@pytest.mark.parametrize(
    ("make", "message", "hint"),
    [
        (lambda: Native("linux-aarch"), "no system 'linux-aarch'", "linux-aarch64"),
        (lambda: Native("linux-aarch64", "neoverse-n2"), "no CPU 'neoverse-n2'", "neoverse"),
        (lambda: Native.of_text("linux-x86_64:x86-64-v5"), "no CPU 'x86-64-v5'", "v4"),
        (lambda: Native(3), "no system 3", None),  # type: ignore[arg-type]
        (lambda: Native(["linux-aarch64"]), "no system", None),  # type: ignore[arg-type]
        (lambda: Native("linux-aarch64", ["generic"]), "no CPU", None),  # type: ignore[arg-type]
    ],
)
def test_unknown_systems_and_processors_are_errors(make: Any, message: str, hint: Any) -> None:
    with pytest.raises(MisuseError, match=message) as caught:
        make()
    assert hint is None or hint in str(caught.value.diagnostic.hint)


@pytest.fixture
def old_processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process, on a CPU without AVX2."""
    described = "x86_64-unknown-linux-gnu", "westmere", "+sse4.2,-avx2,-fma"
    monkeypatch.setattr(machine, "_stored_processor", lambda: described)
    cached = machine.host, machine.unfit, machine.obstacle
    for each in cached:
        each.cache_clear()
    yield
    monkeypatch.undo()
    for each in cached:
        each.cache_clear()


@needs_linux
def test_a_processor_without_native_code_emits_that_of_others(saved, tmp_path, old_processor):
    targets = [Native("macos-aarch64", "apple-m1"), Native("linux-x86_64", "x86-64-v3")]
    executable = relaxpy.compile(from_source(PROGRAM), targets)
    assert {row.backend for row in executable.report()} <= {"numpy", "python"}
    executable.save(tmp_path / "old.rxp")
    usual, found = (objects_of(path) for path in (saved[0], tmp_path / "old.rxp"))
    assert len(found) == len(targets)
    assert all(found[key] == usual[key] for key in found)
    with pytest.raises(CompileError, match="requires AVX2 and FMA"):
        relaxpy.compile(from_source(PROGRAM), Native()).save(tmp_path / "own.rxp")


def objects_of(path: Path) -> dict[tuple[str, ...], dict[str, bytes]]:
    """The objects of a file, by the machine that they are for."""
    container = Container.read(path)
    return {
        tuple(code["machine"]): {
            k: container.arrays[n].tobytes() for k, n in code["objects"].items()
        }
        for code in container.content["native"]
    }


def test_other_code_needs_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = relaxpy.compile(from_source(PROGRAM), Native("linux-aarch64"))
    machine.llvm.cache_clear()
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    try:
        with pytest.raises(CompileError, match="it is not installed"):
            executable._program.form().machine_code(Sections())
    finally:
        machine.llvm.cache_clear()
