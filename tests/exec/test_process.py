"""Systems by their interfaces: those that cannot run here have functions that tests define."""

from __future__ import annotations

import ast
import ctypes
import gc
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaxpy.exec.machine import process
from relaxpy.exec.machine.platforms import (
    AARCH64,
    LINUX,
    MACOS,
    PLATFORMS,
    WINDOWS,
    X86_64,
    platform_of_triple,
    platform_of_words,
    system_of,
)
from relaxpy.exec.machine.process import Apple, Linux, Process, Windows, own_platform
from relaxpy.exec.native.threads import pool
from relaxpy.exec.runtime import threads

ROOT = Path(__file__).parents[2] / "relaxpy"
INT, SIZE, POINTER, U32 = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint32


class Functions(dict[str, int]):
    """The addresses of C functions that Python defines."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []

    def define(self, result: Any, *params: Any) -> Callable[[Callable[..., Any]], None]:
        def enter(function: Callable[..., Any]) -> None:
            callback = ctypes.CFUNCTYPE(result, *params)(function)
            self._kept.append(callback)
            self[function.__name__] = ctypes.cast(callback, POINTER).value or 0

        return enter


def apple(**values: bytes) -> Apple:
    """macOS with values of `sysctlbyname`, in whose names `__` is a point."""
    functions = Functions()
    known = {name.replace("__", "."): value for name, value in values.items()}

    @functions.define(INT, ctypes.c_char_p, POINTER, POINTER, POINTER, SIZE)
    def sysctlbyname(name: bytes, value: int | None, size: int, new: object, length: int) -> int:
        found = known.get(name.decode())
        if found is None:
            return -1
        SIZE.from_address(size).value = len(found)
        if value is not None:
            ctypes.memmove(value, found, len(found))
        return 0

    return Apple(MACOS, functions)


def test_no_other_code_names_a_system_or_a_processor() -> None:
    names = re.compile(r"(linux|darwin|macos|win32|windows|x86_64|aarch64|arm64)(-|$)")
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        if path in (ROOT / "exec/machine/platforms.py", ROOT / "exec/machine/process.py"):
            continue
        if path == ROOT / "ir/te/topi/__init__.py":  # its windows are those of pools
            continue
        source = path.read_text()
        suspicious = re.search(rf"sys\.platform|os\.name|[}}'\"]{names.pattern[:-5]}", source)
        for node in ast.walk(ast.parse(source)) if suspicious else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.platform", "os.name"):
                found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(node, ast.Constant) and isinstance(text, str) and names.match(text):
                found.append(f"{path}:{node.lineno}: {node.value!r}")
    assert found == []


@pytest.mark.parametrize(
    ("triple", "name"),
    [
        ("x86_64-unknown-linux-gnu", "linux-x86_64"),
        ("x86_64-conda-linux-gnu", "linux-x86_64"),
        ("arm64-apple-darwin23.6.0", "macos-aarch64"),
        ("x86_64-apple-darwin21.6.0", "macos-x86_64"),
        ("x86_64-pc-windows-msvc", "windows-x86_64"),
        ("aarch64-pc-windows-msvc", "windows-aarch64"),
        *((platform.triple, platform.name) for platform in PLATFORMS),
    ],
)
def test_triples_have_a_platform(triple: str, name: str) -> None:
    platform = platform_of_triple(triple)
    assert platform is not None
    assert platform.name == name


@pytest.mark.parametrize(
    "triple", ["riscv64-unknown-linux-gnu", "x86_64-unknown-freebsd", "i686-pc-windows-msvc", ""]
)
def test_other_triples_have_none(triple: str) -> None:
    assert platform_of_triple(triple) is None


def test_systems_have_pythons_names() -> None:
    names = [system_of(name).name for name in ("linux", "darwin", "win32", "freebsd14", "cygwin")]
    assert names == ["linux", "macos", "windows", "other", "other"]


def test_macos_describes_an_arm_processor() -> None:
    chip = apple(
        machdep__cpu__brand_string=b"Apple M1\0",
        hw__model=b"Macmini9,1\0",
        hw__perflevel0__logicalcpu=b"\4\0\0\0",
        **{f"hw__optional__arm__FEAT_{name}": b"\1\0\0\0" for name in ("LSE", "DotProd", "FP16")},
        hw__optional__arm__FEAT_I8MM=b"\0\0\0\0",
    )
    assert (chip.processor(), chip.cpus()) == ("Apple M1", 4)
    assert chip.features(AARCH64) == {"neon", "lse", "dotprod", "fullfp16"}
    assert chip.description().splitlines() == ["Apple M1", "Macmini9,1", "dotprod fullfp16 lse"]


def test_macos_describes_an_x86_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    chip = apple(
        machdep__cpu__brand_string=b"Intel(R) Core(TM) i7\0",
        machdep__cpu__features=b"FMA MOVBE POPCNT AVX1.0 F16C\0",
        machdep__cpu__leaf7_features=b"BMI1 AVX2 BMI2\0",
        machdep__cpu__extfeatures=b"SYSCALL LZCNT\0",
    )
    assert chip.cpus() == 12
    assert chip.features(X86_64) >= set(X86_64.levels["x86-64-v3"])


def apple_memory(*, jit: int = 1) -> tuple[Apple, list[tuple[Any, ...]]]:
    """macOS on AArch64 over memory of Linux, and the calls of its functions."""
    functions, calls = Functions(), list[tuple[Any, ...]]()
    here = Linux(LINUX)
    kinds = POINTER, SIZE, INT, INT, INT, ctypes.c_int64
    allocate = here.function("mmap", ctypes.c_ssize_t, *kinds)
    free = here.function("munmap", INT, POINTER, SIZE)

    @functions.define(ctypes.c_ssize_t, *kinds)
    def mmap(place: int | None, size: int, access: int, flags: int, file: int, at: int) -> int:
        calls.append(("map", place is not None, size, access, flags))
        assert not (flags & 0x10 and flags & 0x800)  # macOS refuses both together
        if flags & 0x800 and jit < 0:
            return -1
        return allocate(place, size, 3, 0x22 | flags & 0x10, file, at)

    @functions.define(INT, POINTER, SIZE)
    def munmap(place: int, size: int) -> int:
        calls.append(("unmap", size))
        return free(place, size)

    @functions.define(INT)
    def pthread_jit_write_protect_supported_np() -> int:
        return int(jit != 0)

    @functions.define(None, INT)
    def pthread_jit_write_protect_np(enabled: int) -> None:
        assert not gc.isenabled()
        calls.append(("protect", enabled))

    @functions.define(INT, POINTER, SIZE, INT)
    def mprotect(place: int, size: int, access: int) -> int:
        calls.append(("mprotect", size, access))
        return 0

    @functions.define(None, POINTER, SIZE)
    def sys_icache_invalidate(place: int, size: int) -> None:
        calls.append(("flush", size))

    return Apple(MACOS, functions), calls


def test_macos_copies_code_to_memory_of_map_jit() -> None:
    system, calls = apple_memory()
    memory, start = system.pages(3 * 4096)
    memory[5:8] = b"abc"
    memory[4096:4098] = b"de"
    assert ctypes.string_at(start, 9) == bytes(9)  # nothing is written there yet
    system.make_executable(start, 4096)
    assert gc.isenabled()
    assert ctypes.string_at(start, 9) == b"\0\0\0\0\0abc\0"
    assert ctypes.string_at(start + 4096, 3) == b"de\0"
    assert calls == [
        ("map", False, 3 * 4096, 7, 0x1802),
        ("map", True, 2 * 4096, 3, 0x1012),
        ("protect", 0),
        ("protect", 1),
        ("flush", 4096),
    ]
    del memory
    assert calls[5:] == [("unmap", 3 * 4096)]


@pytest.mark.parametrize(("jit", "maps"), [(0, 0), (-1, 1)], ids=["x86-64", "refused"])
def test_macos_without_map_jit_protects_pages(jit: int, maps: int) -> None:
    system, calls = apple_memory(jit=jit)
    memory, start = system.pages(4096)
    memory[5:8] = b"abc"
    assert ctypes.string_at(start, 9) == b"\0\0\0\0\0abc\0"
    system.make_executable(start, 4096)
    assert calls[maps:] == [("mprotect", 4096, 5), ("flush", 4096)]


def windows_memory(*, refuses: str = "") -> tuple[Windows, list[tuple[Any, ...]]]:
    """Windows, whose memory is that of an array, and the calls of its functions."""
    functions, calls = Functions(), list[tuple[Any, ...]]()
    block = (ctypes.c_char * 20000)()

    @functions.define(POINTER, POINTER, SIZE, U32, U32)
    def VirtualAlloc(place: object, size: int, kind: int, access: int) -> int:  # noqa: N802
        calls.append(("allocate", size, kind, access))
        return 0 if refuses == "memory" else ctypes.addressof(block)

    @functions.define(INT, POINTER, SIZE, U32)
    def VirtualFree(place: int, size: int, kind: int) -> int:  # noqa: N802
        calls.append(("free", place == ctypes.addressof(block), size, kind))
        return 1

    @functions.define(INT, POINTER, SIZE, U32, POINTER)
    def VirtualProtect(place: int, size: int, access: int, old: int) -> int:  # noqa: N802
        calls.append(("protect", size, access))
        return int(refuses != "code")

    @functions.define(POINTER)
    def GetCurrentProcess() -> int:  # noqa: N802
        return 77

    @functions.define(INT, POINTER, POINTER, SIZE)
    def FlushInstructionCache(process: int, place: int, size: int) -> int:  # noqa: N802
        calls.append(("flush", process, size))
        return 1

    @functions.define(INT, U32)
    def IsProcessorFeaturePresent(number: int) -> int:  # noqa: N802
        return int(number in (40, 43))

    return Windows(WINDOWS, functions), calls


def test_windows_allocates_protects_and_frees_memory_for_code() -> None:
    system, calls = windows_memory()
    memory, start = system.pages(20000)
    memory[5:8] = b"abc"
    assert ctypes.string_at(start, 9) == b"\0\0\0\0\0abc\0"
    system.make_executable(start, 4096)
    assert calls == [
        ("allocate", 20000, 0x3000, 0x04),
        ("protect", 4096, 0x20),
        ("flush", 77, 4096),
    ]
    del memory
    assert calls[3:] == [("free", True, 0, 0x8000)]


def test_windows_without_memory_is_an_error() -> None:
    with pytest.raises(OSError, match="no memory for native code"):
        windows_memory(refuses="memory")[0].pages(100)
    system, _ = windows_memory(refuses="code")
    _, start = system.pages(100)
    with pytest.raises(OSError, match="cannot be made executable"):
        system.make_executable(start, 100)


def test_windows_knows_features_and_other_names_of_functions() -> None:
    system, _ = windows_memory()
    assert system.features(X86_64) == set(X86_64.levels["x86-64-v3"])
    assert system.features(AARCH64) == {"neon", "dotprod"}
    assert system.description() == ""  # without a registry
    assert Windows(WINDOWS, {"_time64": 5}).address("time") == 5


def test_an_emulated_process_of_windows_has_its_own_architecture(monkeypatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "ARM64")
    monkeypatch.setattr("sysconfig.get_platform", lambda: "win-amd64")
    platform = platform_of_words(Windows(WINDOWS).machine(), "win32")
    assert platform is not None
    assert platform.name == "windows-x86_64"


def test_caches_are_where_each_system_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    systems = Linux(LINUX), Apple(MACOS), Windows(WINDOWS)
    assert [system.caches() for system in systems] == [
        "/home/ada/.cache",
        "/home/ada/Library/Caches",
        "/home/ada/AppData/Local",
    ]
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert [system.caches() for system in systems] == ["/caches", "/caches", "/local"]


def test_functions_that_do_not_exist_are_errors() -> None:
    with pytest.raises(LookupError, match="no function 'no_such_function'"):
        Linux(LINUX).address("no_such_function")
    assert not Linux(LINUX).has("malloc", "no_such_function")
    assert Linux(LINUX).has("malloc", "free")


def test_linux_reports_what_its_level_needs() -> None:
    platform = own_platform()
    if platform is None or platform.system is not LINUX:
        pytest.skip("this is not Linux")
    least = platform.architecture.needed
    assert Linux(LINUX).features(platform.architecture) >= (least or {"neon"})


@pytest.mark.parametrize(
    ("groups", "files", "cpus"),
    [
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/\n", {"cpu.max": "150000 100000"}, 2),
        ("0::/\n", {"cpu.max": "5000 100000"}, 1),
        ("0::/\n", {"cpu.max": "1600000 100000"}, 8),
        ("0::/\n", {}, 8),
        ("0::/\n", {"cpu.max": "damaged"}, 8),
        ("", {"cpu.max": "100000 100000"}, 8),
        (
            "0::/kubepods/pod:1/web\n",
            {"kubepods/pod:1/cpu.max": "300000 100000", "kubepods/pod:1/web/cpu.max": "max 100000"},
            3,
        ),
        ("0::/../outside\n", {"cpu.max": "200000 100000"}, 2),
        (
            "12:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/\n",
            {"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"},
            3,
        ),
        (
            "4:cpu,cpuacct:/docker/1\n",
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "cpu/docker/1/cpu.cfs_quota_us": "50000",
                "cpu/docker/1/cpu.cfs_period_us": "50000",
            },
            1,
        ),
    ],
)
def test_containers_have_as_many_threads_as_cpus(
    groups: str, files: dict[str, str], cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text(groups)
    monkeypatch.setattr(process, "_GROUPS", str(tmp_path))
    monkeypatch.setattr(process, "_OWN_GROUPS", str(tmp_path / "own"))
    monkeypatch.setattr(process, "_granted", process._granted.__wrapped__)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert Linux(LINUX).cpus() == cpus


@pytest.mark.parametrize("has_functions", [False, True])
def test_threads_share_loops_where_they_can_wait(has_functions, monkeypatch) -> None:
    functions = Functions()
    names = ["pthread_self", "pthread_threadid_np", "pthread_create", "sched_yield"]
    if has_functions:
        names += ["os_sync_wait_on_address", "os_sync_wake_by_address_all"]

    @functions.define(INT, ctypes.c_char_p, POINTER, POINTER, POINTER, SIZE)
    def sysctlbyname(*args: object) -> int:
        return -1

    functions.update(dict.fromkeys(names, 1))
    system: Process = Apple(MACOS, functions)
    monkeypatch.delenv(threads.THREADS, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    for module in (pool, threads):
        monkeypatch.setattr(module, "process", lambda: system)
    assert threads.thread_count() == 6
    assert pool.native_threads() == (6 if has_functions else 1)
    monkeypatch.setenv(threads.THREADS, "3")
    assert pool.native_threads() == (3 if has_functions else 1)
