"""The systems and CPUs that native code is generated for: the only place for their names.

Code asks a record what holds for a platform; nothing else compares triples or names of systems.
Objects have the format ELF on all systems, which LLVM writes for triples that end with `-elf`: one
loader reads them all, and symbols have the same names everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from relaxpy.support.dataclass import dataclass

LINE_BYTES: Final = 64
"""The bytes of a cache line, and of the widest vector register: the alignment of memory."""
PAGE_BYTES: Final = 4096
"""The bytes of a page, all of which can be read if one can; some systems have larger pages."""


@dataclass(frozen=True, slots=True, eq=False)
class Architecture:
    """A kind of CPU.

    Fields:
        name: its name in triples and in the names of platforms.
        names: all of its names, in triples and of Python's `platform.machine`.
        needed: the features of LLVM without which no code is generated.
        vector_bits: the width of a vector register in bits.
        vector_registers: the number of vector registers.
        vector_operand: the letter of a vector register for LLVM's inline assembly.
        fills_vectors: whether there are no shorter vectors in such registers.
        wide: the features with which there are 32 registers of 512 bits; none if it has no such.
        masked: the bits of elements that instructions load and store in the lanes of a mask.
        has_extremes: whether an instruction has the maximum of floats, and a NaN if one of them is.
        saturates: whether a float becomes the nearest integer if it is out of range, and a NaN 0;
            elsewhere both become the smallest integer.
        lookup: the instruction that selects among the numbers of a table in registers.
        has_half: whether instructions convert float16.
        gathers: whether an instruction loads elements at several addresses.
        fusing: the feature that fuses a product and a sum, if not every CPU does.
        fused: the intrinsic for it on vectors of one register, if it is not LLVM's `fma`.
        products: the features that have instructions for dot products, and their names. Those for
            matrix tiles begin with `TILE`.
        pause: the instruction of a thread that spins.
        control: the register that decides how a thread rounds, and whether it takes subnormal
            numbers for zeros, if there is one.
        levels: the CPUs that code for other machines is generated for, and their features.
        skipped: the options that skip passes of LLVM which take long and make no kernel faster.
    """

    name: str
    names: frozenset[str]
    needed: frozenset[str]
    vector_bits: int
    vector_registers: int
    vector_operand: str
    fills_vectors: bool
    wide: frozenset[str]
    masked: frozenset[int]
    has_extremes: bool
    saturates: bool
    lookup: Literal["permute", "tbl", "swizzle"]
    has_half: bool
    gathers: bool
    fusing: str
    fused: str
    products: Mapping[tuple[str, ...], tuple[str, ...]]
    pause: str
    control: Literal["mxcsr", "fpcr", "none"]
    levels: Mapping[str, tuple[str, ...]]
    skipped: Mapping[str, bool]


TILE: Final = "tdpb"
"""The beginning of the names of instructions for products in matrix tiles."""
_V3: Final = ("avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt")
# Masks of bytes and 64-bit integers need more than AVX-512F.
_AVX512: Final = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
_V4: Final = (*_V3, *_AVX512, "avx512cd")
_N1: Final = ("neon", "lse", "rdm", "fullfp16", "dotprod")
# Loop strength reduction takes most of the time for tiles of convolutions. CodeGenPrepare moves
# addresses to the blocks that use them.
_SKIPPED: Final = {"disable-lsr": True, "disable-cgp": True}

X86_64: Final = Architecture(
    name="x86_64",
    names=frozenset(("x86_64", "amd64")),
    needed=frozenset(("avx2", "fma")),
    vector_bits=256,
    vector_registers=16,
    vector_operand="x",
    fills_vectors=False,
    wide=frozenset(_AVX512),
    masked=frozenset((32, 64)),
    has_extremes=False,
    saturates=False,
    lookup="permute",
    has_half=True,
    gathers=True,
    fusing="fma",
    fused="",
    products={
        (): ("pmaddwd",),
        ("avxvnni",): ("vpdpbusd",),
        ("avx512vnni", "avx512vl"): ("vpdpbusd",),
        ("avx512bf16", *_AVX512): ("dpbf16ps",),
        ("amx-tile", "amx-int8", *_AVX512): ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"),
        ("amx-tile", "amx-bf16", *_AVX512): ("tdpbf16ps",),
    },
    pause="@llvm.x86.sse2.pause()",
    control="mxcsr",
    levels={"x86-64-v3": _V3, "x86-64-v4": _V4, "znver4": (*_V4, "avx512vnni", "avx512bf16")},
    # The scheduler of machine instructions, which these CPUs reorder themselves.
    skipped={**_SKIPPED, "enable-misched": False},
)
AARCH64: Final = Architecture(
    name="aarch64",
    names=frozenset(("aarch64", "arm64")),
    needed=frozenset(),
    vector_bits=128,
    vector_registers=32,
    vector_operand="w",
    fills_vectors=False,
    wide=frozenset(),
    masked=frozenset(),
    has_extremes=True,
    saturates=True,
    lookup="tbl",
    has_half=True,
    gathers=True,
    fusing="",
    fused="",
    products={("dotprod",): ("sdot", "udot"), ("i8mm",): ("usdot", "smmla", "ummla", "usmmla")},
    pause="@llvm.aarch64.hint(i32 1)",
    control="fpcr",
    levels={
        "generic": ("neon",),
        "neoverse-n1": _N1,
        "neoverse-v1": (*_N1, "bf16", "i8mm"),
        "neoverse-v2": (*_N1, "bf16", "i8mm"),
        "apple-m1": _N1,
        "apple-m2": (*_N1, "bf16", "i8mm"),
    },
    skipped=_SKIPPED,
)
_WASM: Final = (
    *("bulk-memory", "bulk-memory-opt", "mutable-globals", "nontrapping-fptoint"),
    *("sign-ext", "simd128"),
)
WASM32: Final = Architecture(
    name="wasm32",
    names=frozenset(("wasm32",)),
    needed=frozenset(("simd128",)),
    vector_bits=128,
    # Engines for x86-64 keep one of its 16 registers for themselves.
    vector_registers=15,
    vector_operand="r",
    fills_vectors=True,
    wide=frozenset(),
    masked=frozenset(),
    has_extremes=True,
    saturates=True,
    lookup="swizzle",
    has_half=False,
    gathers=False,
    fusing="relaxed-simd",
    fused="wasm.relaxed.madd",
    products={(): ("dot_i16x8_s",)},
    pause="",
    control="none",
    levels={"relaxed-simd": (*_WASM, "relaxed-simd"), "simd128": _WASM},
    skipped=_SKIPPED,
)


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """An operating system.

    Fields:
        name: its name in the names of platforms.
        names: what its triples and Python's `sys.platform` begin with.
        libraries: the C libraries with the functions that code calls; None is the process itself.
        renamed: the names of C functions that differ there.
        pages: how code allocates memory: by mmap with these flags, or by VirtualAlloc.
        huge_pages: the advice of madvise for huge pages, if there is one.
        trim: the function that returns freed memory to the system, if there is one.
        threads: the functions by which threads of native code start and wait.
        has_threads: whether Python starts threads.
        has_affinity: whether Python sets the CPUs that a thread may use.
        clock: the number of the clock of Python's perf_counter; None for the performance counter.
        caches: the directory for caches of a user.
        llvm: the file of llvmlite with LLVM.
        visible: LLVM's word for functions that callers of a shared library see.
        library: the suffix of shared libraries.
    """

    name: str
    names: tuple[str, ...]
    libraries: tuple[str | None, ...] = (None,)
    renamed: Mapping[str, str] = field(default_factory=dict)
    pages: int | Literal["VirtualAlloc"] = 0x22
    huge_pages: int | None = None
    trim: str = ""
    threads: Literal["futex", "os_sync", "WaitOnAddress", "none"] = "none"
    has_threads: bool = True
    has_affinity: bool = False
    clock: int | None = 1
    caches: str = "~/.cache"
    llvm: str = "libllvmlite.so"
    visible: str = ""
    library: str = ".so"


LINUX: Final = System(
    "linux", ("linux",), huge_pages=14, trim="malloc_trim", threads="futex", has_affinity=True
)
MACOS: Final = System(
    "macos",
    ("darwin", "macos"),
    pages=0x1002,
    threads="os_sync",
    clock=8,
    caches="~/Library/Caches",
    llvm="libllvmlite.dylib",
    library=".dylib",
)
WINDOWS: Final = System(
    "windows",
    ("windows", "win32"),
    # ntdll has the function that code calls to enlarge its stack by more than a page.
    libraries=("ucrtbase", "ntdll", "kernel32", "kernelbase"),
    renamed={"time": "_time64"},
    pages="VirtualAlloc",
    threads="WaitOnAddress",
    clock=None,
    caches="~/AppData/Local",
    llvm="llvmlite.dll",
    visible="dllexport",
    library=".dll",
)
BROWSER: Final = System("browser", ("emscripten", "wasi"), has_threads=False)
"""Python in WebAssembly, as Pyodide has it in a browser: a CPU of 32 bits, and no native code."""
WEB: Final = System("web", ("web",), has_threads=False)
"""An engine of WebAssembly: code for it is exported, and no Python calls it."""
OTHER: Final = System("other", ())
"""Any other system, for which no native code is generated."""


@dataclass(frozen=True, slots=True, eq=False)
class Platform:
    """A system on an architecture.

    Fields:
        triple: the target triple of LLVM. It decides the calling convention.
        linked: that of objects for the linkers of the system.
        features: the features of LLVM that all code needs: registers that the system reserves.
        attributes: attributes of LLVM that all functions have.
        calls: the numbers of system calls of Linux.
        is_confirmed: whether native code has been run there. Elsewhere a test decides at first use.
    """

    system: System
    architecture: Architecture
    triple: str
    linked: str
    features: str = ""
    attributes: str = ""
    calls: Mapping[str, int] = field(default_factory=dict)
    is_confirmed: bool = False

    @property
    def name(self) -> str:
        """The name, such as `linux-aarch64`, or `wasm32`."""
        architecture = self.architecture.name
        return architecture if self.system is WEB else f"{self.system.name}-{architecture}"

    @property
    def pointer_bytes(self) -> int:
        """The size of an address."""
        return 4 if self.system is WEB else 8

    @property
    def most_bytes(self) -> float:
        """No tensor is as large, so that sizes and differences of addresses do not overflow."""
        return float(1 << (31 if self.pointer_bytes == 4 else 50))


_CALLS: Final = ("futex", "gettid", "set_affinity", "get_affinity", "arch_prctl")
PLATFORMS: Final = (
    Platform(
        *(LINUX, X86_64, "x86_64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"),
        calls=dict(zip(_CALLS, (202, 186, 203, 204, 158), strict=True)),
        is_confirmed=True,
    ),
    Platform(
        *(LINUX, AARCH64, "aarch64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"),
        calls=dict(zip(_CALLS, (98, 178, 122, 123), strict=False)),
        is_confirmed=True,
    ),
    Platform(MACOS, X86_64, "x86_64-apple-macosx11-elf", "x86_64-apple-macosx11"),
    Platform(MACOS, AARCH64, "aarch64-apple-macosx11-elf", "arm64-apple-macosx11"),
    Platform(WINDOWS, X86_64, "x86_64-pc-windows-msvc-elf", "x86_64-pc-windows-gnu"),
    # LLVM writes no ELF for Windows on ARM. Its convention is that of bare CPUs, without
    # register 18; and the stack is touched page by page, since Windows adds one page at a time.
    Platform(
        *(WINDOWS, AARCH64, "aarch64-unknown-none-elf", "aarch64-pc-windows-gnu"),
        features="+reserve-x18",
        attributes='"probe-stack"="inline-asm"',
    ),
    Platform(WEB, WASM32, "wasm32-unknown-unknown", "wasm32-unknown-unknown"),
)
_BY_TRIPLE: Final = {platform.triple: platform for platform in PLATFORMS}


def platform_of_triple(triple: str) -> Platform | None:
    """The platform of a triple, which may be that of LLVM for a process; None if there is none."""
    known = _BY_TRIPLE.get(triple)
    if known is None:
        first, *rest = triple.split("-")
        words = [first, next((w for w in rest for s in _SYSTEMS if w.startswith(s.names)), "")]
        known = platform_of_words(*words)
    return known


def platform_of_words(architecture: str, system: str) -> Platform | None:
    """The platform of an architecture and of a system, both by any name; None if there is none."""
    for platform in PLATFORMS:
        is_system = system.startswith(platform.system.names)
        if is_system and architecture.lower() in platform.architecture.names:
            return platform
    return None


def system_of(name: str) -> System:
    """The system of a name like that of `sys.platform`."""
    return next((system for system in _SYSTEMS if name.startswith(system.names)), OTHER)


_SYSTEMS: Final = (LINUX, MACOS, WINDOWS, BROWSER, WEB)
