"""Code on disk: what is found again, what is not trusted, and that no failure is an error."""

import itertools
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.exec.api import lowered as compilation
from relaxpy.exec.machine import tuning
from relaxpy.exec.native.machine_code import disk_cache, machine, processor
from relaxpy.exec.native.machine_code.disk_cache import key_of, load, store, usage
from relaxpy.exec.native.machine_code.objects import compile_object
from relaxpy.exec.store.container import Container, Sections
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.serialize import save_table
from relaxpy.script import from_source, relax as R

ROOT = Path(__file__).parents[3]
KEY = key_of("test")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a cache that is switched on."""
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def file_of(place: Path) -> Path:
    [path] = place.iterdir()
    return path


def test_what_is_stored_is_found_and_belongs_to_the_user_alone(place: Path) -> None:
    assert load(KEY) is None
    assert not place.exists()
    store(KEY, [b"code"])
    assert load(KEY) == b"code"
    assert load(key_of("other")) is None
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(place).stat().st_mode) == 0o600
    assert (usage().files, usage().path, usage().problem) == (1, str(place), "")


def test_folders_without_source_have_no_state(tmp_path: Path) -> None:
    """As where modules are installed as bytecode alone, all versions of which look alike."""
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "module.pyc").touch()
    assert not processor.files_in(str(tmp_path))
    assert not processor.files_in(str(tmp_path / "missing"))
    (tmp_path / "part" / "module.py").touch()
    assert processor.files_in(str(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_folders_whose_names_are_not_text_have_a_state(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    (folder / "module.py").touch()
    assert processor.files_in(str(folder))


def test_keys_depend_on_the_parts_and_on_where_one_ends() -> None:
    assert len({key_of("ab", "c"), key_of("a", "bc"), key_of("abc"), key_of("abc", "")}) == 4


@pytest.mark.parametrize("change", ["flip", "cut", "empty", "magic"])
def test_a_damaged_file_is_not_used_and_is_replaced(place: Path, change: str) -> None:
    store(KEY, [b"code" * 100])
    path = file_of(place)
    content = path.read_bytes()
    path.write_bytes(
        {
            "flip": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
            "cut": content[:-1],
            "empty": b"",
            "magic": b"R" + content[1:],
        }[change]
    )
    assert load(KEY) is None
    store(KEY, [b"code" * 100])
    assert load(KEY) == b"code" * 100


def test_files_that_others_can_write_are_not_used(place: Path) -> None:
    store(KEY, [b"code"])
    file_of(place).chmod(0o622)
    assert load(KEY) is None
    store(KEY, [b"new"])
    assert load(KEY) == b"new"
    content = file_of(place)
    elsewhere = place.parent / "elsewhere"
    content.rename(elsewhere)
    content.symlink_to(elsewhere)
    assert load(KEY) is None


def test_a_directory_that_others_can_write_is_not_used(place: Path) -> None:
    store(KEY, [b"code"])
    place.chmod(0o777)
    assert load(KEY) is None
    store(key_of("other"), [b"more"])
    assert len(list(place.iterdir())) == 1
    assert usage().problem == "other users can write it"


def test_the_owner_is_this_user_or_the_superuser() -> None:
    def found(uid: int) -> os.stat_result:
        return os.stat_result((0o100600, 0, 0, 1, uid, 0, 0, 0, 0, 0))

    mine, other = os.geteuid(), os.geteuid() + 1
    assert [disk_cache._problem(found(uid), stat.S_ISREG) for uid in (mine, 0, other)] == [
        *("", ""),
        "it belongs to another user",
    ]


def test_a_directory_that_cannot_be_written_is_no_error(place, monkeypatch) -> None:
    place.write_text("a file")
    store(KEY, [b"code"])
    assert load(KEY) is None
    assert usage().problem
    monkeypatch.setenv("RELAXPY_CACHE_DIR", "/proc/none")
    store(KEY, [b"code"])
    assert load(KEY) is None


def test_a_full_disk_leaves_no_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    store(KEY, [b"code"])
    assert list(place.iterdir()) == []


def test_the_switch_keeps_nothing_on_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    store(KEY, [b"code"])
    assert load(KEY) is None
    assert not place.exists()
    assert usage().problem == "RELAXPY_CACHE=0"
    monkeypatch.setenv("RELAXPY_CACHE", "off")
    with pytest.raises(MisuseError, match="RELAXPY_CACHE is 'off', expected 0, 1 or code"):
        load(KEY)


def test_the_directory_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELAXPY_CACHE", raising=False)
    monkeypatch.delenv("RELAXPY_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert disk_cache.directory() == "/home/someone/.cache/relaxpy"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/someone")
    assert disk_cache.directory() == "/var/cache/someone/relaxpy"


@pytest.mark.parametrize("home", ["", "~unknown", "relative"])
def test_a_user_without_a_home_directory_has_no_cache(home, monkeypatch, tmp_path) -> None:
    """A user that only has a number, as in containers; the working directory gets no folder '~'."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    for name in ("RELAXPY_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path.replace("~", home or "~"))
    store(KEY, [b"code"])
    assert load(KEY) is None
    assert disk_cache.directory() is None
    assert "RELAXPY_CACHE_DIR names one" in usage().problem
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows removes no directory in use")
def test_the_working_directory_of_a_relative_cache_may_be_removed(monkeypatch, tmp_path) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", "relative")
    store(KEY, [b"code"])
    assert load(KEY) is None
    assert not disk_cache.keeps_programs()


@pytest.mark.parametrize(("limit", "most"), [("DISK", 3 * 4096), ("FILES", 3)])
def test_the_files_that_were_used_least_recently_are_removed(
    limit, most, place, monkeypatch
) -> None:
    monkeypatch.setattr(tuning.Kept, limit, most)
    monkeypatch.setattr(disk_cache, "_sweep", disk_cache._Sweep())
    keys = [key_of(str(n)) for n in range(4)]
    for age, key in enumerate(keys):
        store(key, [bytes(30)])
        os.utime(place / f"{key}.o", (time.time() - 100 + age,) * 2)
    assert load(keys[1]) is not None  # which makes it the most recent one
    store(key_of("new"), [bytes(30)])
    assert [load(key) is not None for key in keys] == [False, True, False, True]
    assert (usage().files, usage().size) == (3, 3 * 4096)


@pytest.mark.parametrize("most", [10, 40])
def test_a_sweep_that_takes_long_removes_old_ones_of_the_files_that_it_has_seen(
    most, place, monkeypatch
) -> None:
    """The clock moves by a step with each question, so that 20 files are seen in time."""
    keys = [key_of(str(n)) for n in range(50)]
    for age, key in enumerate(keys):
        store(key, [b"code"])
        os.utime(place / f"{key}.o", (time.time() - 100 + age,) * 2)
    clock = iter(range(1 << 20))
    monkeypatch.setattr(tuning.Kept, "FILES", most)
    monkeypatch.setattr(tuning.Kept, "SWEEP", 20)
    monkeypatch.setattr(disk_cache.time, "monotonic", lambda: next(clock))
    left = [50]
    for _ in range(40):
        with disk_cache._directory() as descriptor:
            disk_cache._Sweep().now(descriptor)
        left.append(len(list(place.iterdir())))
    assert all(0 <= before - after <= 20 for before, after in itertools.pairwise(left))
    assert 0.6 * most <= left[-1] <= most
    kept = [number for number, key in enumerate(keys) if (place / f"{key}.o").exists()]
    assert np.mean(kept) > 24.5  # the younger ones


def test_processes_that_write_few_files_seldom_sweep(place, monkeypatch) -> None:
    """Together they sweep as often as one that writes as much."""
    monkeypatch.setattr(tuning.Kept, "FILES", 160)
    swept: list[object] = []
    monkeypatch.setattr(disk_cache._Sweep, "now", lambda self, place: swept.append(place))
    for n in range(1000):
        disk_cache._Sweep().after(30, n)  # type: ignore[arg-type]
    assert 50 < len(swept) < 150  # a tenth; five standard deviations on either side
    swept.clear()
    process = disk_cache._Sweep()
    for n in range(1000):
        process.after(30, n)  # type: ignore[arg-type]
    assert 80 < len(swept) < 110


@pytest.mark.skipif(not hasattr(os, "truncate"), reason="files have no holes")
def test_a_file_that_is_longer_than_it_says_is_not_read(place, monkeypatch) -> None:
    store(KEY, [b"code"])
    os.truncate(file_of(place), 1 << 34)
    read: list[int] = []
    header = disk_cache._header
    monkeypatch.setattr(
        disk_cache, "_header", lambda key, rest: read.append(len(rest)) or header(key, rest)
    )
    assert load(KEY) is None
    assert not read
    store(KEY, [b"code"])
    assert load(KEY) == b"code"


def test_files_of_processes_that_ended_while_writing_are_removed(place: Path) -> None:
    store(KEY, [b"code"])
    old, new = place / "a.1.1.tmp", place / "b.1.1.tmp"
    for path in (old, new):
        path.write_bytes(b"part")
    os.utime(old, (time.time() - 7200,) * 2)
    with disk_cache._directory() as descriptor:
        disk_cache._Sweep().now(descriptor)
    assert (old.exists(), new.exists()) == (False, True)


WORK = """
import sys
from relaxpy.exec.native.machine_code.disk_cache import key_of, load, store
keys = [key_of(str(n)) for n in range(3)]
for turn in range(150):
    n = turn % 3
    content = bytes([65 + n]) * 20_000
    store(keys[n], [content])
    assert load(keys[n]) in (None, content)
    assert all(load(k) in (None, bytes([65 + m]) * 20_000) for m, k in enumerate(keys))
"""


def test_several_processes_write_the_same_files(place: Path) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", WORK], cwd=ROOT) for _ in range(3)]
    assert [worker.wait(timeout=60) for worker in workers] == [0, 0, 0]
    assert usage().files == 3
    assert all(path.suffix == ".o" for path in place.iterdir())


@pytest.fixture
def fresh_machine() -> Iterator[None]:
    machine.host.cache_clear()
    machine._described.clear()
    yield
    machine.host.cache_clear()


def test_the_machine_on_disk_is_that_of_llvm(place: Path, fresh_machine: None) -> None:
    first = machine.host()
    machine.host.cache_clear()
    assert machine.host() == first
    features = machine.llvm().get_host_cpu_features().flatten()
    assert (first.cpu, first.features) == (machine.llvm().get_host_cpu_name(), features)
    if first.triple.startswith("x86_64"):
        assert ("avx512f" in processor.processor()) == first.has("avx512f")


def test_another_processor_or_llvmlite_finds_nothing(place, fresh_machine, monkeypatch) -> None:
    text = f'target triple = "{machine.host().triple}"\ndefine void @f() {{\n  ret void\n}}\n'
    code = compile_object(text)
    assert usage().files == 2
    assert compile_object(text) == code
    assert usage().files == 2
    compile_object(text, machine=machine.narrow())
    assert usage().files == 3
    monkeypatch.setattr("relaxpy.exec.native.machine_code.objects.generator", lambda: "version 0.0")
    compile_object(text)
    assert usage().files == 4
    monkeypatch.setattr("relaxpy.exec.native.machine_code.machine.processor", lambda: "another")
    machine.host.cache_clear()
    machine.host()
    assert usage().files == 5


START = """
import numpy as np, sys, relaxpy
from relaxpy.exec.native.llvm.llvm_module import Module
texts, write = [], Module.text
Module.text = lambda module: texts.append(write(module)) or texts[-1]
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.script import from_source, relax as R
main = from_source('''
@R.function
def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
    return R.nn.softmax(R.matmul(R.exp(x), w))
''')
x = np.ones((3, 8), "float32")
ex = relaxpy.compile(main, target="native")
print(ex["main"](x, np.eye(8, dtype="float32")).tolist())
print("llvmlite" in sys.modules, texts != [], all("native" in row.method for row in ex.report()))
"""


def test_a_warm_start_neither_imports_llvmlite_nor_writes_text_for_it(place: Path) -> None:
    def run() -> list[str]:
        command = [sys.executable, "-c", START]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    cold, warm = run(), run()
    assert cold[0] == warm[0]
    assert cold[1] == "True True True"
    is_loadable = machine.host().triple.startswith("x86_64") and sys.platform == "linux"
    assert warm[1] == f"{not is_loadable} {not is_loadable} True"


def record_of(calls: list[object]) -> Callable[..., Any]:
    """What runs passes, and appends the module of each call."""
    original = compilation.transformed

    def transformed(module: IRModule, pipeline: object) -> IRModule:
        calls.append(module)
        return original(module, pipeline)

    return transformed


@pytest.mark.parametrize("limit", [None, 1000])
def test_constants_that_passes_compute_are_stored_up_to_a_limit(place, monkeypatch, limit) -> None:
    if limit is not None:
        monkeypatch.setattr("relaxpy.exec.machine.tuning.Kept.FOLDED", limit)
    weight = np.arange(90_000, dtype=np.float32).reshape(300, 300)
    x = rx.Var("x", rx.TensorStructInfo((300, 300), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        wide = builder.emit(R.multiply(rx.const(weight), rx.const(weight)))
        builder.emit_func_output(builder.emit(R.add(x, wide)))
    program = builder.finalize()
    run = lambda: relaxpy.compile(program, "native")["main"](weight)  # noqa: E731
    expected = run()
    np.testing.assert_array_equal(expected, weight + weight * weight)
    passes: list[object] = []
    monkeypatch.setattr("relaxpy.exec.api.lowered.transformed", record_of(passes))
    np.testing.assert_array_equal(run(), expected)
    assert bool(passes) == (limit is not None)


@pytest.mark.parametrize("kind", ["program", "object"])
def test_files_that_another_program_wrote_are_compiled_again(place: Path, kind: str) -> None:
    """Whatever is in them under the right hash: cut anywhere, of other types, without functions."""
    text = '@R.function\ndef main(x: R.Tensor((8,), "float32")):\n    y = R.exp(x)\n    return y'
    x = np.arange(8, dtype=np.float32)
    run = lambda: relaxpy.compile(from_source(text), "native")["main"](x)  # noqa: E731
    expected = run()
    stored = {path: path.read_bytes() for path in place.iterdir()}
    header = disk_cache._HEADER
    [program] = [path for path, content in stored.items() if b'"private"' in content]
    if kind == "program":
        saved = Container.of_memory(stored[program][header:], "the cache")
        tables: list[Any] = [[], {}, None, {**saved.content, "functions": []}]
        [function] = saved.content["functions"]
        for name, value in product(function, (None, {}, [], 3, "text", [[1]])):
            if name == "entry" and value is None:
                continue  # a function may have none
            tables.append({**saved.content, "functions": [{**function, name: value}]})
        texts = ("text", (), ()), ("def f(:", (), ()), ("unknown", (), (("x", (1,)),))
        forms = (save_table((*part, (), ()), len) for part in texts)
        tables += [{**saved.content, "text": form} for form in forms]
        for name, value in product(saved.content, ({}, [], 3, "text", [[1]])):
            if value or name not in ("private", "rows", "kernels", "reports"):
                tables.append({**saved.content, name: value})
        sections = Sections()
        for array in saved.arrays:
            sections.add(array)
        contents = {program: [b"".join(Container.of(table, sections).chunks()) for table in tables]}
    else:
        objects = {path: c[header:] for path, c in stored.items() if c[header:][:4] == b"\x7fELF"}
        assert objects
        contents = {path: [c[: len(c) * n // 9] for n in range(9)] for path, c in objects.items()}
    for path, others in contents.items():
        for content in others:
            program.unlink(missing_ok=True)
            path.write_bytes(disk_cache._header(path.stem, content) + content)
            np.testing.assert_array_equal(run(), expected)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to itself", "socket"])
def test_what_is_no_file_is_not_read(place: Path, kind: str) -> None:
    store(KEY, [b"code"])
    path = file_of(place)
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path, 0o600)
        case "folder":
            path.mkdir()
        case "link to itself":
            path.symlink_to(path)
        case _:
            os.mknod(path, 0o600 | stat.S_IFSOCK)
    assert load(KEY) is None


PRODUCTS = """
@R.function
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    return R.{}(x, y)
"""


def test_files_under_the_keys_of_others_are_not_used(place: Path) -> None:
    """Contents that are whole are exchanged in any way: each program computes what it says."""
    words = {"add": np.add, "multiply": np.multiply, "subtract": np.subtract}
    x, y = np.full(4, 3, np.float32), np.full(4, 3, np.float32)

    def run() -> None:
        machine.host.cache_clear()
        machine.obstacle.cache_clear()
        for word, function in words.items():
            main = relaxpy.compile(from_source(PRODUCTS.format(word)))["main"]
            np.testing.assert_array_equal(main(x, y), function(x, y))

    run()
    contents = {path: path.read_bytes() for path in sorted(place.iterdir())}
    assert len(contents) > 3
    for shift in range(1, len(contents)):
        others = [*contents.values()][shift:] + [*contents.values()][:shift]
        for path, other in zip(contents, others, strict=True):
            path.write_bytes(other)
        run()


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"", b"[", b"3", b'["a", "b"]', b"[1, 2, 3]", b"[" * 100_000]
)
def test_a_damaged_description_of_the_processor_is_made_again(place: Path, content: bytes) -> None:
    machine.host.cache_clear()
    expected = machine.host()
    store(machine._processor_key(), [content])
    for function in (machine.host, machine.obstacle):
        function.cache_clear()
    assert machine.host() == expected
    store(machine._processor_key(), [content])
    assert machine.obstacle() is None


def test_files_are_found_by_path_where_systems_have_nothing_else(monkeypatch, tmp_path) -> None:
    """As on Windows, which has no owners and no flags for links either."""
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "supports_dir_fd", set())
    monkeypatch.delattr(os, "geteuid")
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY"):
        monkeypatch.delattr(os, name)
    assert disk_cache.usage().problem == ""
    assert disk_cache.load("key") is None
    for content in (b"first", b"second"):
        disk_cache.store("key", [content])
        found = disk_cache.load("key")
        assert found is not None
        assert bytes(found) == content
    assert (disk_cache.usage().files, disk_cache.usage().size > 6) == (1, True)
    monkeypatch.setattr(tuning.Kept, "DISK", 1)
    disk_cache._sweep.now(str(tmp_path / "cache"))
    assert disk_cache.usage().files == 0
