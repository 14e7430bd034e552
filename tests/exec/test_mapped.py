"""The identity of large arrays, by which programs on disk are found."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from relaxpy.exec.machine import tuning
from relaxpy.exec.store import mapped
from relaxpy.exec.store.container import digest
from relaxpy.exec.store.mapped import MappedFiles
from relaxpy.ir.core.dtype import Array

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux lists mapped files")


def identity(array: Array) -> str:
    return MappedFiles().identity(array)


def written(path: Path, data: Array, age: float = 60) -> Path:
    data.tofile(path)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_a_mapped_array_is_its_place_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "_SETTLED", -60)  # as if the files had been there for a while
    data = np.arange(tuning.Kept.OF_FILE // 2, dtype=np.float32)
    path = written(tmp_path / "a file.bin", data)
    first, second = (np.memmap(path, np.float32, "r") for _ in range(2))
    assert str(path) in identity(first)
    assert identity(first) == identity(second)
    half = tuning.Kept.OF_FILE // 4
    assert len({identity(first), identity(first[half:]), identity(first[:-1])}) == 2
    del first, second
    before = identity(np.memmap(path, np.float32, "r"))
    written(path, data + 1, age=30)
    assert identity(np.memmap(path, np.float32, "r")) != before


def test_other_arrays_are_their_elements(tmp_path: Path) -> None:
    data = np.arange(tuning.Kept.OF_FILE // 4, dtype=np.float32)
    path = written(tmp_path / "weights", data)
    private = np.memmap(path, np.float32, "c")  # which may have been written
    private.flags.writeable = False
    small, strided = (np.memmap(path, np.float32, "r")[part] for part in (np.s_[1:], np.s_[::2]))
    new = np.memmap(written(tmp_path / "new", data, age=0), np.float32, "r")
    gone = np.memmap(written(tmp_path / "gone", data), np.float32, "r")
    (tmp_path / "gone").unlink()
    for array in (data, private, small, strided, new, gone):
        assert identity(array) == digest(array) == digest(np.array(array))


def test_a_file_that_is_written_through_memory_is_its_elements_until_that_sets_its_time(
    tmp_path: Path,
) -> None:
    data = np.zeros(tuning.Kept.OF_FILE, np.uint8)
    path = written(tmp_path / "weights", data)
    writer, hashes = np.memmap(path, np.uint8, "r+"), []
    for number in (1, 2):
        writer[-1] = number
        files = MappedFiles()
        files._begin += 30  # the seconds since the last change
        hashes.append(files.identity(np.memmap(path, np.uint8, "r")))
    assert hashes[0] != hashes[1]


def test_hashes_are_those_of_the_elements_now() -> None:
    data = np.zeros(tuning.Kept.OF_FILE, np.uint8)
    hashes = {digest(data)}
    data[0] = 1
    view = data[:]
    view.flags.writeable = False
    hashes |= {digest(data), digest(view)}
    data[0] = 2
    hashes.add(digest(view))
    assert len(hashes) == 3
    for number in range(4):  # arrays that may have the same address
        fixed = np.full(tuning.Kept.OF_FILE, number, np.uint8)
        fixed.flags.writeable = False
        hashes |= {digest(fixed), digest(fixed)}
        del fixed
    assert len(hashes) == 6
