"""The system of this process: its C functions, memory for code, CPUs, and their description."""

from __future__ import annotations

import ctypes
import gc
import math
import mmap
import os
import platform
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, Final
from weakref import WeakValueDictionary, finalize

from typing_extensions import override

from relaxpy.exec.machine.platforms import (
    LINUX,
    MACOS,
    WINDOWS,
    Architecture,
    Platform,
    System,
    platform_of_words,
    system_of,
)

_POINTER: Final = ctypes.c_void_p
_CPUINFO: Final = "/proc/cpuinfo"
_FIELDS: Final = frozenset(
    (
        *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
        *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
        "Features",
    )
)
"""The fields of /proc/cpuinfo, for x86-64 and aarch64, that identify a CPU."""
_RENAMED: Final = {
    "bmi1": "bmi",
    "abm": "lzcnt",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx_vnni": "avxvnni",
}
"""The names of LLVM for features of CPUs that Linux and macOS name otherwise."""
CAPABILITIES: Final = {
    16: {1: "neon", 8: "lse", 10: "fullfp16", 12: "rdm", 20: "dotprod"},
    26: {13: "i8mm", 14: "bf16"},
}
"""LLVM's features by the bits of AT_HWCAP and AT_HWCAP2 of Linux on AArch64."""
OF_APPLE: Final = {
    "lse": "LSE",
    "fullfp16": "FP16",
    "rdm": "RDM",
    "dotprod": "DotProd",
    "i8mm": "I8MM",
    "bf16": "BF16",
}
"""The names of macOS for features of LLVM."""
OF_WINDOWS: Final = {34: "lse", 43: "dotprod"}
"""LLVM's features by the numbers of Windows for features of AArch64."""
_TILE_DATA: Final = 0x1023, 18
"""An argument of arch_prctl of Linux, which permits the state of matrix tiles."""
_GROUPS: Final = "/sys/fs/cgroup"
_OWN_GROUPS: Final = "/proc/self/cgroup"
"""The control groups of Linux, by which containers are limited, and those of this process."""
_USE, _RUN = 0x3, 0x4
"""Memory that is read and written, and such with code."""
_MAP_NEW, _MAP_FIXED, _MAP_JIT = 0x1002, 0x10, 0x800
"""Flags of macOS for new memory, at an address, and with code."""
_AVX2: Final = 40
"""The number of Windows for AVX2. All CPUs with it that Windows supports are of level 3."""


class Process:
    """A POSIX system; `addresses` are those of C functions, for tests."""

    def __init__(self, system: System, addresses: Mapping[str, int] | None = None) -> None:
        self.system = system
        self._addresses = addresses
        self._libraries: list[Any] = []
        self._found: dict[str, int] = {}

    def address(self, name: str) -> int:
        """The address of a C function. Errors: LookupError if there is none."""
        name = self.system.renamed.get(name, name)
        if self._addresses is not None:
            return self._addresses[name]
        if not self._libraries:
            self._libraries.extend(map(ctypes.CDLL, self.system.libraries))
        if name not in self._found:
            library = next((lib for lib in self._libraries if hasattr(lib, name)), None)
            if library is None:
                raise LookupError(f"there is no function {name!r} in this process")
            self._found[name] = ctypes.cast(getattr(library, name), _POINTER).value or 0
        return self._found[name]

    def has(self, *names: str) -> bool:
        """True if there are C functions of these names."""
        try:
            return all(map(self.address, names))
        except LookupError:
            return False

    def function(self, name: str, result: Any, *params: Any) -> Callable[..., Any]:
        """A C function. Errors: LookupError if there is none."""
        return ctypes.CFUNCTYPE(result, *params)(self.address(name))

    def pages(self, size: int) -> tuple[memoryview, int]:
        """New memory of zeros that lives as long as the view, and its address."""
        # A forked child has its own variables.
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return memoryview(memory), ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def make_executable(self, start: int, size: int) -> None:
        """Make whole pages executable and read-only. Errors: OSError."""
        params = _POINTER, ctypes.c_size_t, ctypes.c_int
        protect = self.function("mprotect", ctypes.c_int, *params)
        if protect(start, size, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError("the memory of native code cannot be made executable")
        self._forget_instructions(start, size)

    def _forget_instructions(self, start: int, size: int) -> None:
        """Let the CPU read new instructions; x86-64 notices by itself that they have changed.

        Linux does this for pages that become executable for the first time; libgcc always.
        """
        with suppress(OSError, AttributeError):
            clear = getattr(ctypes.CDLL("libgcc_s.so.1"), "__clear_cache")
            clear.argtypes = (_POINTER, _POINTER)
            clear(start, start + size)

    def allow_tiles(self) -> bool:
        """Let code of this process use matrix tiles; return whether it may."""
        return False

    def machine(self) -> str:
        """The name of the architecture of this process, which may be emulated."""
        return platform.machine()

    def caches(self) -> str:
        """The directory for caches of this user; empty if no home directory is known."""
        return self._chosen(os.environ.get("XDG_CACHE_HOME", ""))

    def _chosen(self, path: str) -> str:
        # The specification has other paths ignored.
        folder = path if os.path.isabs(path) else os.path.expanduser(self.system.caches)
        return folder if os.path.isabs(folder) else ""

    def cpus(self) -> int:
        """The number of CPUs that this process may use."""
        return os.cpu_count() or 1

    def thread_id(self) -> int:
        """The number of the calling thread: that of the system where native code runs."""
        if self.system.threads == "none":
            return threading.get_ident()
        return threading.get_native_id()

    def description(self) -> str:
        """Lines that identify the first CPU; empty if unknown."""
        return ""

    def processor(self) -> str:
        """The name of the first CPU."""
        return platform.processor() or platform.machine()

    def features(self, architecture: Architecture) -> frozenset[str]:
        """The features of LLVM that the CPU is known to have, without llvmlite."""
        return frozenset()


class Linux(Process):
    """Linux, which describes its CPUs in a file."""

    @override
    def allow_tiles(self) -> bool:
        """Let code of this process use matrix tiles; return whether it may."""
        here = own_platform()
        number = here.calls.get("arch_prctl") if here is not None else None
        call = self.function("syscall", ctypes.c_long, *3 * (ctypes.c_long,))
        return number is not None and call(number, *_TILE_DATA) == 0

    @override
    def cpus(self) -> int:
        """The number of CPUs of the affinity of this process, or whose time its container has."""
        return max(1, math.ceil(min(len(os.sched_getaffinity(0)), _granted())))

    @override
    def description(self) -> str:
        """The fields of the first CPU."""
        found = []
        try:
            with open(_CPUINFO, encoding="utf-8", errors="replace", buffering=8192) as file:
                for line in file:
                    if line.isspace():  # the next CPU
                        break
                    name, _, value = line.partition(":")
                    if name.strip() in _FIELDS:
                        found.append(f"{name.strip()}: {value.strip()}")
        except OSError:
            return ""
        return "\n".join([os.uname().machine, *found]) if found else ""

    @override
    def processor(self) -> str:
        """The name of the first CPU."""
        fields = dict(line.partition(": ")[::2] for line in self.description().splitlines())
        return fields.get("model name") or super().processor()

    @override
    def features(self, architecture: Architecture) -> frozenset[str]:
        """Those of the file, and on AArch64 those that the kernel passes to each process."""
        if not architecture.wide:
            read = self.function("getauxval", ctypes.c_ulong, ctypes.c_ulong)
            return frozenset(
                feature
                for word, features in CAPABILITIES.items()
                for bit, feature in features.items()
                if read(word) >> bit & 1
            )
        lines = (line.partition(": ") for line in self.description().splitlines())
        return _named(next((flags for name, _, flags in lines if name == "flags"), ""))


class Apple(Process):
    """macOS, which describes its CPUs by `sysctlbyname`.

    On AArch64, code runs in memory of MAP_JIT, which a thread either writes or runs. What is
    written to `pages` is copied there by `make_executable`. Its caller's thread runs no native code
    meanwhile: what frees arrays may be such, so garbage is not collected.
    """

    def __init__(self, system: System, addresses: Mapping[str, int] | None = None) -> None:
        Process.__init__(self, system, addresses)
        self._copied: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def _map(self, start: int | None, size: int, access: int, flags: int) -> int:
        """The address of new memory, or 0."""
        kinds = ctypes.c_int, ctypes.c_int, ctypes.c_int
        params = _POINTER, ctypes.c_size_t, *kinds, ctypes.c_int64
        found = self.function("mmap", ctypes.c_ssize_t, *params)(
            start, size, access, _MAP_NEW | flags, -1, 0
        )
        return 0 if found == -1 else int(found)

    @override
    def pages(self, size: int) -> tuple[memoryview, int]:
        """New memory of zeros that lives as long as the view, and its address."""
        names = "pthread_jit_write_protect_supported_np", "pthread_jit_write_protect_np"
        is_protected = self.has(*names) and self.function(names[0], ctypes.c_int)()
        start = self._map(None, size, _RUN | _USE, _MAP_JIT) if is_protected else 0
        if not start:  # also where this process may have no memory of MAP_JIT
            return Process.pages(self, size)
        content = (ctypes.c_char * size)()
        self._copied[start] = content
        free = self.function("munmap", ctypes.c_int, _POINTER, ctypes.c_size_t)
        finalize(content, free, start, size).atexit = False
        return memoryview(content).cast("B"), start

    @override
    def make_executable(self, start: int, size: int) -> None:
        """Make whole pages executable and read-only. Errors: OSError."""
        content = self._copied.pop(start, None)
        if content is None:
            return Process.make_executable(self, start, size)
        rest = ctypes.sizeof(content) - size
        # Variables are written while code runs.
        if rest > 0 and not self._map(start + size, rest, _USE, _MAP_FIXED):
            raise OSError("there is no memory for the variables of native code")
        protect = self.function("pthread_jit_write_protect_np", None, ctypes.c_int)
        collects = gc.isenabled()
        gc.disable()
        protect(0)
        try:
            ctypes.memmove(start, content, ctypes.sizeof(content))
        finally:
            protect(1)
            if collects:
                gc.enable()
        return self._forget_instructions(start, size)

    def _read(self, name: str) -> bytes:
        """The value of a name; empty if there is none."""
        params = ctypes.c_char_p, _POINTER, _POINTER, _POINTER, ctypes.c_size_t
        read = self.function("sysctlbyname", ctypes.c_int, *params)
        size = ctypes.c_size_t(0)
        if read(name.encode(), None, ctypes.addressof(size), None, 0) or not size.value:
            return b""
        value = ctypes.create_string_buffer(size.value)
        if read(name.encode(), value, ctypes.addressof(size), None, 0):
            return b""
        return value.raw[: size.value]

    def _number(self, name: str) -> int:
        return int.from_bytes(self._read(name), "little")

    def _text(self, name: str) -> str:
        return self._read(name).rstrip(b"\0").decode(errors="replace")

    @override
    def _forget_instructions(self, start: int, size: int) -> None:
        params = _POINTER, ctypes.c_size_t
        self.function("sys_icache_invalidate", None, *params)(start, size)

    @override
    def cpus(self) -> int:
        """The number of fast CPUs; all if they are of one kind."""
        return self._number("hw.perflevel0.logicalcpu") or super().cpus()

    @override
    def description(self) -> str:
        """The name and the features of the CPU."""
        words = sorted(self._features())
        return "\n".join(filter(None, (self.processor(), self._text("hw.model"), " ".join(words))))

    @override
    def processor(self) -> str:
        """The name of the CPU."""
        return self._text("machdep.cpu.brand_string") or super().processor()

    def _features(self) -> frozenset[str]:
        texts = ("features", "leaf7_features", "extfeatures")
        words = " ".join(self._text(f"machdep.cpu.{name}") for name in texts)
        found = {f for f, name in OF_APPLE.items() if self._number(f"hw.optional.arm.FEAT_{name}")}
        return _named(words) | found

    @override
    def features(self, architecture: Architecture) -> frozenset[str]:
        """Those of `sysctlbyname`; all CPUs of AArch64 there have NEON."""
        found = self._features()
        return found if architecture.wide else found | {"neon"}


class Windows(Process):
    """Windows, whose memory is allocated and protected by functions of its own."""

    @override
    def pages(self, size: int) -> tuple[memoryview, int]:
        """New memory of zeros that lives as long as the view, and its address. Errors: OSError."""
        kinds = ctypes.c_uint32, ctypes.c_uint32
        allocate = self.function("VirtualAlloc", _POINTER, _POINTER, ctypes.c_size_t, *kinds)
        start = allocate(None, size, 0x3000, 0x04)  # reserved and committed, for writing
        if not start:
            raise OSError("there is no memory for native code")
        content = (ctypes.c_char * size).from_address(start)
        free = self.function("VirtualFree", ctypes.c_int, _POINTER, ctypes.c_size_t, kinds[0])
        finalize(content, free, start, 0, 0x8000).atexit = False
        return memoryview(content).cast("B"), start

    @override
    def make_executable(self, start: int, size: int) -> None:
        """Make whole pages executable and read-only. Errors: OSError."""
        old = ctypes.c_uint32()
        params = _POINTER, ctypes.c_size_t, ctypes.c_uint32, _POINTER
        protect = self.function("VirtualProtect", ctypes.c_int, *params)
        if not protect(start, size, 0x20, ctypes.addressof(old)):
            raise OSError("the memory of native code cannot be made executable")
        self._forget_instructions(start, size)

    @override
    def _forget_instructions(self, start: int, size: int) -> None:
        params = _POINTER, _POINTER, ctypes.c_size_t
        current = self.function("GetCurrentProcess", _POINTER)()
        self.function("FlushInstructionCache", ctypes.c_int, *params)(current, start, size)

    @override
    def machine(self) -> str:
        """The name of the architecture of this process; Windows names that of the CPU."""
        import sysconfig

        return sysconfig.get_platform().rpartition("-")[2]

    @override
    def caches(self) -> str:
        """The directory for caches of this user on this machine; empty if no home is known."""
        return self._chosen(os.environ.get("LOCALAPPDATA", ""))

    @override
    def description(self) -> str:
        """The name, the kind, and the features of the CPU, from the registry."""
        names = "ProcessorNameString", "Identifier", "VendorIdentifier"
        values = [*map(self._registry, names)]
        known = [n for n in (*OF_WINDOWS, _AVX2) if self._has_feature(n)]
        return "\n".join([*values, str(known)]) if any(values) else ""

    @override
    def processor(self) -> str:
        """The name of the CPU."""
        return self._registry("ProcessorNameString").strip() or super().processor()

    def _registry(self, name: str) -> str:
        try:
            registry: Any = import_module("winreg")
            path = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
            with registry.OpenKey(registry.HKEY_LOCAL_MACHINE, path) as key:
                return str(registry.QueryValueEx(key, name)[0])
        except (ImportError, OSError):
            return ""

    def _has_feature(self, number: int) -> bool:
        read = self.function("IsProcessorFeaturePresent", ctypes.c_int, ctypes.c_uint32)
        return bool(read(number))

    @override
    def features(self, architecture: Architecture) -> frozenset[str]:
        """Those that Windows reports; all CPUs of AArch64 there have NEON."""
        if not architecture.wide:
            return frozenset(f for n, f in OF_WINDOWS.items() if self._has_feature(n)) | {"neon"}
        return frozenset(architecture.levels["x86-64-v3"] if self._has_feature(_AVX2) else ())


@cache
def _granted() -> float:
    """The CPUs whose time the control groups of this process have; infinity if not limited."""
    try:
        with open(_OWN_GROUPS, encoding="utf-8", errors="replace") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return math.inf
    least = math.inf
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Groups above have limits too, and a container sees its own one as the root.
        parts = path.strip("/").split("/")
        for count in range(len(parts) + 1):
            folder = os.path.join(_GROUPS, controllers and "cpu", *parts[:count])
            least = min(least, _quota(folder))
    return least


def _quota(folder: str) -> float:
    """The CPUs whose time a control group has: those of version 2 have one file, of 1 two."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        words = list[str]()
        for name in names:
            with suppress(OSError), open(os.path.join(folder, name), encoding="utf-8") as file:
                words += file.read().split()
        if len(words) == 2 and all(map(str.isdecimal, words)) and int(words[1]):
            return int(words[0]) / int(words[1])
    return math.inf


def _named(words: str) -> frozenset[str]:
    """The features of LLVM in a list of words."""
    return frozenset(_RENAMED.get(word, word) for word in words.lower().split())


_KINDS: Final[Mapping[str, type[Process]]] = {
    LINUX.name: Linux,
    MACOS.name: Apple,
    WINDOWS.name: Windows,
}


@cache
def process() -> Process:
    """The system of this process."""
    system = system_of(sys.platform)
    return _KINDS.get(system.name, Process)(system)


@cache
def own_platform() -> Platform | None:
    """The platform of this process; None if no native code is generated for it."""
    return platform_of_words(process().machine(), sys.platform)
