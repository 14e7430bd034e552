"""Files of executables: what they have in common with what was saved, and what is refused."""

import hashlib
import json
import mmap
import os
import pickle
import re
import stat
import struct
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, RelaxpyError, WellFormedError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.serialize import save_table
from relaxpy.script import from_source
from tests.ir.relax import texts

Scaled = texts.module("""
@kernel
def scale(x: T.handle, y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n,))
    Y = T.match_buffer(y, (n,))
    for i in S(n, "scale"):
        Y[vi] = X[vi] * T.float32(2)

def main(x: f32[n]):
    y = R.call_tir(cls.scale, (x,), out_sinfo=f32[n])
    z = R.const([1.0, float("inf")], "float32")
    return (y, z)
""")


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_saved_executable_runs_as_it_did(tmp_path: Path, target: str) -> None:
    path = tmp_path / "scaled.rxp"
    relaxpy.compile(Scaled, target).save(path)
    again = relaxpy.load_executable(path)
    assert again.target == target
    for size in (0, 1, 5):
        y, z = again["main"](np.arange(size, dtype="float32"))
        np.testing.assert_array_equal(y, 2 * np.arange(size))
        np.testing.assert_array_equal(z, [1.0, np.inf])


def test_tvms_names_for_saving_and_loading(tmp_path: Path) -> None:
    ex = relaxpy.compile(Scaled)
    ex.save(tmp_path / "one.rxp")
    ex.export_library(str(tmp_path / "two.so"), workspace_dir=str(tmp_path), fcompile=None)
    with pytest.raises(MisuseError, match="expected the path of a file, found 3"):
        ex.export_library(3)  # type: ignore[arg-type]
    assert (tmp_path / "one.rxp").read_bytes() == (tmp_path / "two.so").read_bytes()
    y, _ = relaxpy.runtime.load_module(tmp_path / "two.so")["main"](np.ones(3, "float32"))
    np.testing.assert_array_equal(y, [2, 2, 2])


WEIGHTS = [
    np.arange(6, dtype="float32").reshape(2, 3),
    np.array([[1, 2, 3]], ml_dtypes.bfloat16),
    np.array([0.5, -2, np.nan], ml_dtypes.float8_e4m3fn),
    np.array([-8, 7], ml_dtypes.int4),
    np.array([True, False]),
    np.array(2.5, "float64"),
    np.zeros((0, 5), "int8"),
    np.asfortranarray(np.arange(12, dtype="int16").reshape(3, 4)),
]


def constants(values: Sequence[np.ndarray]) -> relaxpy.Executable:
    """The executable of a function that returns these constants."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        builder.emit_func_output(relax.Tuple([relax.const(v, v.dtype.name) for v in values]))
    return relaxpy.compile(builder.get(), "numpy")


def test_constants_of_all_datatypes_are_aligned_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "constants.rxp"
    constants(WEIGHTS).save(path)
    module = relaxpy.load_executable(path)._program.module
    found = [node.data for node in walk(module["main"]) if isinstance(node, relax.Constant)]
    for value, again in zip(WEIGHTS, found, strict=True):
        assert (value.dtype, value.shape) == (again.dtype, again.shape)
        assert value.tobytes() == again.tobytes()
        assert again.ctypes.data % 64 == 0
        assert not again.flags.writeable
        root = again
        while isinstance(root.base, np.ndarray):
            root = root.base
        assert isinstance(root.base, memoryview)
        assert isinstance(root.base.obj, mmap.mmap)


def test_equal_constants_are_stored_once(tmp_path: Path) -> None:
    data = np.random.default_rng(0).random((256, 256))
    constants([data, data.copy(), data.T.copy()]).save(tmp_path / "model.rxp")
    assert (tmp_path / "model.rxp").stat().st_size < 2.2 * data.nbytes


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_nothing_copies_the_constants(tmp_path: Path, target: str) -> None:
    weight = np.random.default_rng(0).random((1024, 512)).astype("float32")
    weight.flags.writeable = False
    main = from_source(
        "@R.function\n"
        'def main(x: R.Tensor((512, 16), "float32"), w: R.Tensor((1024, 512), "float32")):\n'
        "    return R.matmul(w, x)"
    ).bind_params({"w": weight})
    path = tmp_path / "model.rxp"

    def work() -> None:
        relaxpy.compile(relaxpy.IRModule({"main": main}), target).save(path)
        again = relaxpy.load_executable(path)
        again["main"](np.ones((512, 16), "float32"))
        again.save(path)

    work()  # what is imported and compiled once
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < weight.nbytes


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_has_the_constants_as_they_are(protocol: int) -> None:
    found = pickle.loads(pickle.dumps(constants(WEIGHTS), protocol))["main"]()
    for value, again in zip(WEIGHTS, found, strict=True):
        assert (value.dtype, value.shape) == (again.dtype, again.shape)
        assert value.tobytes() == again.tobytes()


def test_large_constants_stay_out_of_the_pickle() -> None:
    data = np.random.default_rng(0).random((256, 256))
    data.flags.writeable = False
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(constants([data]), 5, buffer_callback=buffers.append)
    assert len(text) < 10_000
    [one] = buffers
    assert np.shares_memory(np.frombuffer(one, np.uint8), data)
    module = pickle.loads(text, buffers=[data])._program.module
    [again] = [node.data for node in walk(module["main"]) if isinstance(node, relax.Constant)]
    assert np.shares_memory(again, data)


def test_a_file_is_replaced_while_it_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "model.rxp"
    constants(WEIGHTS[:1]).save(path)
    path.chmod(0o640)
    (tmp_path / "link.rxp").symlink_to(path)
    first = relaxpy.load_executable(path)
    constants([WEIGHTS[0] + 1]).save(tmp_path / "link.rxp")
    np.testing.assert_array_equal(first["main"]()[0], WEIGHTS[0])
    np.testing.assert_array_equal(relaxpy.load_executable(path)["main"]()[0], WEIGHTS[0] + 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (tmp_path / "link.rxp").is_symlink()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.rxp", "model.rxp"]


def test_a_file_stays_as_it_is_if_the_new_one_cannot_be_written(tmp_path, monkeypatch) -> None:
    path = tmp_path / "model.rxp"
    constants(WEIGHTS[:1]).save(path)

    def full(*args: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        constants(WEIGHTS[1:]).save(path)
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(relaxpy.load_executable(path)["main"]()[0], WEIGHTS[0])


def refused(path: Path, content: bytes) -> str:
    """The message for a file of this content, which names it."""
    path.write_bytes(content)
    with pytest.raises(RelaxpyError) as caught:
        relaxpy.load_executable(path)
    assert isinstance(caught.value, ValueError)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.fixture
def saved(tmp_path: Path) -> bytes:
    """A file with constants."""
    constants(WEIGHTS).save(tmp_path / "whole.rxp")
    return (tmp_path / "whole.rxp").read_bytes()


def test_what_is_cut_off_is_missed_everywhere(tmp_path: Path, saved: bytes) -> None:
    for size in {*range(80), *range(80, len(saved), 41), *range(len(saved) - 70, len(saved))}:
        message = refused(tmp_path / "cut.rxp", saved[:size])
        assert ("not a saved executable" if size < 8 else "is damaged") in message
    assert "is damaged" in refused(tmp_path / "more.rxp", saved + b"0")


def test_a_changed_byte_is_found_everywhere(tmp_path: Path, saved: bytes) -> None:
    for at in (*range(64), *range(64, len(saved), 29)):
        changed = saved[:at] + bytes([saved[at] ^ 0x24]) + saved[at + 1 :]
        refused(tmp_path / "changed.rxp", changed)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_written_and_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=constants(WEIGHTS[:1]).save, args=(tmp_path / "pipe",))
    writer.start()
    [found] = relaxpy.load_executable(tmp_path / "pipe")["main"]()
    writer.join()
    np.testing.assert_array_equal(found, WEIGHTS[0])


def test_a_file_is_read_where_files_cannot_be_mapped(tmp_path: Path, monkeypatch) -> None:
    constants(WEIGHTS[:1]).save(tmp_path / "model.rxp")

    class Refused:
        def __init__(self, *_: object, **__: object) -> None:
            raise OSError("mmap is unavailable")

    monkeypatch.setattr(mmap, "mmap", Refused)
    [found] = relaxpy.load_executable(tmp_path / "model.rxp")["main"]()
    np.testing.assert_array_equal(found, WEIGHTS[0])


SECTION = ["float32", [1], hashlib.sha256(bytes(4)).hexdigest()]


def forged(table: object, sections: bytes = b"", version: int = 2) -> bytes:
    """A file of a table that has the right hash."""
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    begin = struct.pack("<8sIIQ32s8x", b"\x93relaxpy", version, 0, len(text), digest(text))
    padding = bytes(-(len(begin) + len(text)) % 64 if b'"sections": [[' in text else 0)
    return begin + text + padding + sections


def digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def rows(*rows: object) -> dict[str, object]:
    return {"content": {}, "sections": list(rows)}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a saved executable"),
        (b"[]", "not a saved executable"),
        (b'{"a":' * 100_000, "not a saved executable"),
        (b'{"format": "relaxpy-executable", "version": 1', "older format"),
        (forged({}, version=3), "version 3, expected version 2"),
        (forged(b"{"), "table cannot be read"),
        (forged(b"\xff"), "table cannot be read"),
        (forged(b'{"a":' * 100_000), "table cannot be read"),
        (forged(b'{"content":{},"content":{},"sections":[]}'), "duplicate key"),
        (forged(b'{"sections":[' + b"[]," * 3_100_000), "more than 3000000 steps"),
        (forged({}), "has no sections"),
        (forged({"content": [], "sections": []}), "has no sections"),
        (forged(rows(1)), "1 is not a section"),
        (forged(rows(["float32", [float("nan")], ""])), "not a section"),
        (forged(rows(["float32", [1.0], ""])), "not a section"),
        (forged(rows(["float32", [-1], ""])), "not a section"),
        (forged(rows(["float32", [True], ""])), "not a section"),
        (forged(rows(["float31", [1], ""])), "float31"),
        (forged(rows(["handle", [1], ""])), "cannot be read"),
        (forged(rows(["float32", [1 << 70], ""])), "according to its table"),
        (forged(rows(["float32", [10] * 4000, ""])), "according to its table"),
        (forged(rows(["float32", [0, 1 << 70], digest(b"").hex()])), "no such shape"),
        (forged(rows(["float32", [1] * 99, SECTION[2]]), bytes(4)), "no such shape"),
        (forged(rows(SECTION)), "according to its table"),
        (forged(rows(SECTION), bytes(8)), "according to its table"),
        (forged(rows(SECTION), b"1234"), "section 0 does not have the hash"),
        (forged(rows(SECTION), bytes(4)), "not a saved relaxpy program"),
        (forged({"content": {"module": {"format": "relaxpy-ir"}}, "sections": []}), "version 1"),
    ],
)
def test_a_file_that_holds_no_executable_is_refused(tmp_path, content, says) -> None:
    assert says in refused(tmp_path / "forged.rxp", content)


def module_in_file(module: relaxpy.IRModule, array: object = 0) -> bytes:
    """The file of a module whose constants are `array`; section 0 is float32 of shape (1,)."""
    table = save_table(module, lambda data: array)  # type: ignore[arg-type,return-value]
    return forged(
        {"content": {"target": "numpy", "module": table}, "sections": [SECTION]}, bytes(4)
    )


@pytest.mark.parametrize("target", ["unheard", "", None, 1, ["numpy"], {"kind": "numpy"}])
def test_a_forged_target_is_refused(tmp_path: Path, target: object) -> None:
    content = {"target": target, "module": save_table(Scaled, lambda data: 0)}
    table = {"content": content, "sections": [["float32", [2], digest(bytes(8)).hex()]]}
    refused(tmp_path / "forged.rxp", forged(table, bytes(8)))


def test_a_forged_program_is_checked(tmp_path: Path) -> None:
    x = relax.Var("x", relax.ObjectStructInfo())
    module = relaxpy.IRModule({"main": relax.Function([], relax.SeqExpr([], x))})
    (tmp_path / "forged.rxp").write_bytes(module_in_file(module))
    with pytest.raises(WellFormedError, match="WF-2a"):
        relaxpy.load_executable(tmp_path / "forged.rxp")


@pytest.mark.parametrize("array", [0, 1, -1, True, 0.0, "0", None, [0]])
def test_a_constant_is_a_section_of_its_type(tmp_path: Path, array: object) -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        builder.emit_func_output(relax.const(np.zeros(2, "float32")))
    refused(tmp_path / "forged.rxp", module_in_file(builder.get(), array))


def test_a_missing_folder_is_noticed_before_the_work(tmp_path: Path) -> None:
    path, executable = tmp_path / "nowhere" / "x.rxp", relaxpy.compile(Scaled)
    with pytest.raises(FileNotFoundError, match=re.escape(repr(str(path.parent)))):
        executable.save(path)
    assert "saved" not in vars(executable.program)
    executable.save(tmp_path / "x.rxp")
    assert "saved" in vars(executable.program)
