"""Keys on disk contain the code that runs: another version finds nothing, nor does an upgrade."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import relaxpy
from relaxpy.exec.native.machine_code.processor import processor

pytestmark = pytest.mark.skipif(not processor(), reason="nothing is kept without a description")
PACKAGE = Path(relaxpy.__file__).parent


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package."""
    place = tmp_path_factory.mktemp("copy")
    shutil.copytree(PACKAGE, place / "relaxpy")
    return place


@pytest.fixture
def copy(unchanged: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the package, to edit."""
    shutil.copytree(unchanged, tmp_path / "copy", copy_function=os.link)
    return tmp_path / "copy"


def edit(path: Path, old: str, new: str) -> None:
    """Replace a file by one with another text."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.unlink()
    path.write_text(text.replace(old, new), encoding="utf-8")


def settle() -> None:
    """Wait until the clock of the files is past what was written."""
    time.sleep(0.05)


def output(program: str, copy: Path, cache: Path | None, *args: object) -> Any:
    """The JSON that a process prints, which uses the copy."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "RELAXPY_NUM_THREADS": "2"}
    environment |= {"RELAXPY_CACHE": "0" if cache is None else "1"}
    environment |= {"RELAXPY_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", program, *map(str, args)]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


KEYS = """
import json, sys, relaxpy
from relaxpy.exec.store import stored
from relaxpy.exec.native.machine_code import disk_cache, machine, objects, processor, self_test
asked = {}
def ask(kind, function):
    keys = []
    load = disk_cache.load
    disk_cache.load = lambda key: keys.append(key) and None
    try:
        function()
    finally:
        disk_cache.load = load
    asked[kind] = keys[-1]
ask("machine", machine._stored_processor)
ask("self-test", lambda: self_test.self_test("none"))
host = machine.host()
ask("object", lambda: objects._stored_object("text", host, lambda: b""))
ask("code", lambda: objects.process_object("pool", lambda: ("",)))
asked |= {"program": stored.surroundings(), "file": processor.interface()}
print(json.dumps(asked))
""".replace(
    'self_test.self_test("none")', 'setattr(self_test, "_run", str) or self_test.self_test()'
)
OF_LLVM = {"machine", "object"}
OF_EXECUTOR = {"code", "file", "self-test", "program"}


@pytest.fixture(scope="module")
def keys(unchanged: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The keys of a process, by kind, as two processes have them."""
    settle()
    cache = tmp_path_factory.mktemp("cache")
    first, second = (output(KEYS, unchanged, cache) for _ in range(2))
    assert first == second
    assert all(first.values())
    return first


def test_a_build_whose_files_have_the_same_sizes_and_times_has_other_keys(copy, tmp_path) -> None:
    record = copy / f"relaxpy-{relaxpy.__version__}.dist-info" / "RECORD"
    record.parent.mkdir()
    found = []
    for number in (1, 2):
        path = copy / "relaxpy" / "exec" / "machine" / "tuning.py"
        text = path.read_text(encoding="utf-8")
        path.unlink()
        path.write_text(f"{text.partition('# build')[0]}# build {number}\n", encoding="utf-8")
        os.utime(path, (10**9, 10**9))
        record.write_text(f"relaxpy/exec/machine/tuning.py,sha256={number},9\n", encoding="utf-8")
        settle()
        found.append(output(KEYS, copy, tmp_path / "cache"))
    first, second = found
    assert {kind for kind in first if first[kind] != second[kind]} == OF_EXECUTOR


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("exec/runtime/threads.py", OF_EXECUTOR),
        ("exec/machine/tuning.py", OF_EXECUTOR),
        ("exec/program/saved_text.py", OF_EXECUTOR),
        ("exec/machine/platforms.py", {*OF_LLVM, *OF_EXECUTOR}),
        ("exec/native/machine_code/objects.py", {*OF_LLVM, *OF_EXECUTOR}),
        ("ir/te/topi/layers.py", {"program"}),
        ("plugins/nn/session.py", {"program"}),
    ],
)
def test_another_process_with_an_edited_file_has_other_keys(
    file, changed, unchanged, keys, tmp_path
) -> None:
    path = unchanged / "relaxpy" / file
    kept = path.rename(tmp_path / "kept")
    path.write_text(f"{kept.read_text(encoding='utf-8')}# Edited.\n", encoding="utf-8")
    settle()
    after = output(KEYS, unchanged, tmp_path / "cache")
    kept.rename(path)
    assert all(after.values())
    assert {kind for kind in keys if keys[kind] != after[kind]} == changed


@pytest.mark.parametrize(
    "version", ["relaxpy.__version__", "numpy.__version__", "ml_dtypes.__version__"]
)
def test_another_version_has_other_keys(version, unchanged, keys, tmp_path) -> None:
    other = f"import relaxpy, numpy, ml_dtypes\n{version} += '.1'\n"
    after = output(other + KEYS, unchanged, tmp_path / "cache")
    assert {kind for kind in keys if keys[kind] != after[kind]} == OF_EXECUTOR


EACH = """
import json, os, sys, relaxpy
from relaxpy.exec.native.machine_code import processor
from relaxpy.support import imported
imported.is_younger = processor.is_younger = lambda found: False
def found():
    for function in (processor._files, processor._interface, processor._generator):
        function.cache_clear()
    return [processor.package(), processor.interface(), processor.generator()]
before, missing = found(), []
for path, group in json.loads(sys.argv[1]).items():
    state = os.stat(path)
    content = open(path, "rb").read()
    with open(path, "ab") as file:
        file.write(b"#")
    after = found()
    missing += [(path, n) for n in range(group) if after[n] == before[n] or not after[n]]
    with open(path, "wb") as file:
        file.write(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
assert found() == before
print(json.dumps(missing))
"""


def test_fingerprints_cover_each_file_that_decides(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(PACKAGE, copy / "relaxpy")
    executor = copy / "relaxpy" / "exec"
    code = executor / "native" / "machine_code"
    facts = executor / "machine"
    asks_llvm = {*code.glob("*.py"), facts / "platforms.py", facts / "process.py"}
    groups = {str(path): 2 + (path in asks_llvm) for path in executor.rglob("*.py")}
    folders = {path.parent: path for path in (copy / "relaxpy").rglob("*.py")}
    groups = {**{str(path): 1 for path in folders.values()}, **groups}
    assert len(groups) > 200
    assert output(EACH, copy, tmp_path / "cache", json.dumps(groups)) == []


LEAKY = '''
import json, os, sys, time
import numpy as np, relaxpy, relaxpy.ir.te.topi.layers
from relaxpy.script import from_source
path, when = sys.argv[1:]
def upgrade():
    time.sleep(0.05)
    with open(path) as file:
        text = file.read()
    os.unlink(path)
    with open(path, "w") as file:
        file.write(text.replace("alpha * alpha", "alpha"))
if when == "before":
    upgrade()
executable = relaxpy.compile(from_source("""
@R.function
def main(x: R.Tensor((2,), "float32")):
    return R.nn.leakyrelu(x, 0.25)
"""), "native")
result = executable["main"](np.array([-4, 2], "float32")).tolist()
print(json.dumps([result, executable.report().remark]))
'''


@pytest.fixture
def faulty(copy: Path) -> tuple[Path, Path]:
    """A copy of the package with a fault in a file, and that file."""
    path = copy / "relaxpy" / "ir" / "te" / "topi" / "layers.py"
    edit(path, "v * ops.const(alpha, v.dtype)", "v * ops.const(alpha * alpha, v.dtype)")
    settle()
    return copy, path


def test_a_process_that_outlives_an_upgrade_stores_nothing(faulty, tmp_path) -> None:
    copy, path = faulty
    result, remark = output(LEAKY, copy, tmp_path / "cache", path, "before")
    assert result == [-0.25, 2.0]  # it still runs the code that it has imported
    assert remark == (
        "not kept on disk: files of relaxpy have changed since this process imported it"
    )
    settle()
    for cache in (tmp_path / "cache", None):
        assert output(LEAKY, copy, cache, path, "never")[0] == [-1.0, 2.0]


LATE = """
import json, os, sys, time
import numpy as np, relaxpy
from relaxpy.script import from_source
path, has_upgrade = sys.argv[1], sys.argv[2:]
def compiled(call):
    text = '@R.function\\ndef main(x: R.Tensor((2,), "float32")):\\n    return CALL'
    return relaxpy.compile(from_source(text.replace("CALL", call)), "native")
compiled("R.exp(x)")
assert "relaxpy.ir.te.topi.layers" not in sys.modules
if has_upgrade:
    time.sleep(0.05)
    with open(path) as file:
        text = file.read()
    os.unlink(path)
    with open(path, "w") as file:
        file.write(text.replace("const(alpha, v", "const(alpha * alpha, v"))
executable = compiled("R.nn.leakyrelu(x, 0.25)")
result = executable["main"](np.array([-4, 2], "float32")).tolist()
print(json.dumps([result, executable.report().remark]))
"""


def test_modules_that_are_imported_after_an_upgrade_store_nothing(copy, tmp_path) -> None:
    """The process has taken the fingerprint, and then imports a file of the later version."""
    path = copy / "relaxpy" / "ir" / "te" / "topi" / "layers.py"
    times = os.stat(path)
    text = path.read_text(encoding="utf-8")
    settle()
    result, remark = output(LATE, copy, tmp_path / "cache", path, "upgrade")
    assert result == [-0.25, 2.0]
    assert "have changed since" in remark
    # The first version comes back, with its time.
    path.unlink()
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    settle()
    assert output(LATE, copy, tmp_path / "cache", path) == [[-1.0, 2.0], ""]


def test_a_package_that_is_moved_away_is_not_the_one_that_runs(copy, tmp_path) -> None:
    """All files of the other folder are older than the process."""
    later = tmp_path / "later"
    shutil.copytree(copy / "relaxpy", later)
    edit(later / "ir" / "te" / "topi" / "layers.py", "const(alpha, v", "const(alpha * alpha, v")
    settle()
    program = f"""
import os, relaxpy, relaxpy.ir.te.topi.layers
os.rename({str(copy / "relaxpy")!r}, {str(tmp_path / "gone")!r})
os.rename({str(later)!r}, {str(copy / "relaxpy")!r})
""" + LEAKY.replace("path, when = sys.argv[1:]", "when = path = ''")
    result, remark = output(program, copy, tmp_path / "cache")
    assert result == [-1.0, 2.0]
    assert "have changed since" in remark
    assert output(LEAKY, copy, tmp_path / "cache", "", "")[0] == [-0.25, 2.0]


RING = """
import json, sys
import numpy as np, relaxpy
from relaxpy.script import from_source
from relaxpy.exec.native.threads.pool import CODE
from relaxpy.exec.runtime import threads
from relaxpy.exec.native.machine_code import objects
made = []
generate = objects._generate
objects._generate = lambda how, text, *a, **k: made.append(text) or generate(how, text, *a, **k)
CODE.object()
print(json.dumps([threads.ENTRIES, any("@times" in text for text in made)]))
"""


def test_code_of_the_process_has_the_numbers_of_its_version(copy, tmp_path) -> None:
    """Workers write to a ring of memory of this many entries."""
    settle()
    assert output(RING, copy, tmp_path / "cache") == [1 << 16, True]
    assert output(RING, copy, tmp_path / "cache") == [1 << 16, False]
    edit(
        copy / "relaxpy/exec/runtime/threads.py",
        "ENTRIES: Final = 1 << 16",
        "ENTRIES: Final = 1 << 8",
    )
    settle()
    assert output(RING, copy, tmp_path / "cache") == [1 << 8, True]


SAVE = """
import json, sys
import numpy as np, relaxpy
from relaxpy.script import from_source
text = '@R.function\\ndef main(x: R.Tensor((4,), "float32")):\\n    return R.add(x, x)'
relaxpy.compile(from_source(text), "native").save(sys.argv[1])
print(1)
"""
LOAD = """
import json, sys
import numpy as np, relaxpy
from relaxpy.exec.api import lowered
lower, ran = lowered.lower_module, []
lowered.lower_module = lambda *a, **k: ran.append(1) or lower(*a, **k)
loaded = relaxpy.load_executable(sys.argv[1], native_code=True)
print(json.dumps([loaded["main"](np.ones(4, "float32")).tolist(), len(ran)]))
"""


def test_a_file_of_a_version_with_another_table_is_lowered_again(copy, tmp_path) -> None:
    output(SAVE, copy, None, tmp_path / "model.rxp")
    assert output(LOAD, copy, None, tmp_path / "model.rxp") == [[2.0] * 4, 0]
    edit(copy / "relaxpy" / "exec" / "program" / "saved.py", '"private"', '"hidden"')
    settle()
    assert output(LOAD, copy, None, tmp_path / "model.rxp") == [[2.0] * 4, 1]
