"""The CPUs that native kernels are compiled for, and the only import of llvmlite."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from typing import Any, Final, ParamSpec, TypeVar

from relaxpy.errors import CompileError
from relaxpy.exec.machine.platforms import WEB, Platform, platform_of_triple
from relaxpy.exec.machine.process import own_platform, process
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.native.machine_code.processor import generator, processor
from relaxpy.exec.native.machine_code.self_test import TILED, is_testing, self_test
from relaxpy.ir.core.target import VARIABLE, target_facts
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.scopes import setting

STRICT: Final = "strict"
_LLVM_VERSION: Final = 20
"""The oldest version of LLVM that parses the IR of kernels, that of llvmlite 0.45."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU that code is generated for.

    Fields:
        platform: its system and architecture.
        cpu: LLVM's name of the CPU, such as `znver4`.
        features: the features of LLVM, such as `+avx2,-avx512f`, and `strict` if no product and
            sum are fused, as on CPUs that cannot.
        vector_bits: the width of a vector register in bits.
        vector_registers: the number of vector registers.
    """

    platform: Platform
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int

    @property
    def triple(self) -> str:
        """The target triple of LLVM."""
        return self.platform.triple

    def lanes(self, bits: int) -> int:
        """The number of elements of `bits` bits in a vector register."""
        return self.vector_bits // bits

    def has(self, feature: str) -> bool:
        """True if the CPU has an LLVM feature, such as `avx512vnni`."""
        return f"+{feature}" in self.features.split(",")

    @property
    def fuses(self) -> bool:
        """True if a product and a sum are rounded once."""
        needed = self.platform.architecture.fusing
        return not self.is_strict and (not needed or self.has(needed))

    @property
    def is_strict(self) -> bool:
        """True if code for it does not fuse a product and a sum although it can."""
        return STRICT in self.features.split(",")

    def strict(self) -> Machine:
        """The same machine, whose code does not fuse a product and a sum."""
        return replace(self, features=f"{self.features},{STRICT}".lstrip(","))

    def module(self, *, is_exported: bool = False) -> Module:
        """An empty module of code for it."""
        return Module(
            *(self.triple, self.vector_bits, self.instructions),
            fuses=self.fuses,
            is_exported=is_exported,
        )

    @property
    def instructions(self) -> frozenset[str]:
        """The instructions that not every CPU of its kind has, or not as fast as others.

        These are those for dot products, and "gather", which AMD's CPUs compute in more time than
        loads of single elements. Products of bfloat16 are fused with their sums.
        """
        kind = self.platform.architecture
        found = {
            n
            for needed, names in kind.products.items()
            if all(map(self.has, needed))
            for n in names
            if not (self.is_strict and n.endswith("bf16ps"))
        }
        gathers = kind.gathers and not self.cpu.startswith("znver")
        return frozenset({*found, "gather"} if gathers else found)


@cache
def llvm() -> Any:
    """`llvmlite.binding`, with the code generator of this machine initialised.

    Errors:
        CompileError: llvmlite is not installed.
    """
    binding, problem = _binding()
    if problem:
        raise CompileError(
            f'target "native" generates code with llvmlite: {problem}',
            hint="install it with `pip install 'relaxpy[native]'`, or compile for `numpy`",
        )
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def _binding() -> tuple[Any, str]:
    """`llvmlite.binding`, and the reason if it is unusable."""
    try:
        from llvmlite import binding
    except ImportError:
        return None, "it is not installed"
    except OSError as error:  # its library is damaged, or was built for another system
        return None, f"it cannot be loaded: {error}"
    if binding.llvm_version_info[0] < _LLVM_VERSION:
        found = binding.llvm_version_info[0]
        return None, f"it has LLVM {found}, expected LLVM {_LLVM_VERSION} or newer"
    return binding, ""


@cache
def host() -> Machine:
    """The machine that runs this process, as described by LLVM; the description is cached on disk.

    Errors:
        CompileError: llvmlite is not installed, or the CPU has neither AVX2 and FMA nor NEON.
    """
    return _machine(*_own_processor())


def is_host(machine: Machine) -> bool:
    """True if a machine is the one that runs this process. Errors: as for `unfit`."""
    return not unfit() and machine == host()


@cache
def unfit() -> str:
    """The reason why no native code runs on this CPU; empty if there is none.

    Errors:
        CompileError: llvmlite is not installed.
    """
    return _unfit(*_own_processor())


def _own_processor() -> tuple[str, str, str]:
    return _stored_processor() or _described.get("host") or _processor(llvm())


def _unfit(triple: str, cpu: str, features: str) -> str:
    platform = platform_of_triple(triple)
    if platform is None:
        return f"no native code is generated for {triple}"
    missing = _missing(platform, features)
    return f"the CPU {cpu} has no {missing}" if missing else ""


_described: Final[dict[str, tuple[str, str, str]]] = {}
"""The host, if a file has described it."""


def machine_of_file(triple: str, cpu: str, features: str, words: str) -> Machine | None:
    """The machine that the code of a file is for, if its code runs here; or else None.

    With the `words` of this CPU, the file describes it, so that `host` needs no llvmlite. Without
    them, the CPU has to have the features.
    """
    platform = platform_of_triple(triple)
    if platform is None or platform is not own_platform() or _missing(platform, features):
        return None
    machine = _machine(triple, cpu, features)
    if words and words == processor():
        _described["host"] = triple, cpu, features
        return machine
    present = process().features(platform.architecture)
    needed = {name[1:] for name in features.split(",") if name[:1] == "+"}
    own = {platform.features[1:]}
    return machine if not words and needed - own <= present else None


def _processor(binding: Any) -> tuple[str, str, str]:
    """The triple, name and features of this CPU; they are cached on disk."""
    triple = binding.get_process_triple()
    platform = platform_of_triple(triple)
    features = binding.get_host_cpu_features().flatten()
    if platform is not None and not platform.architecture.wide:
        # LLVM does not report all of them.
        reported = features.split(",")
        own = {f"+{name}" for name in process().features(platform.architecture)}
        features = ",".join(filter(None, [features, *sorted(own.difference(reported))]))
    found = triple, binding.get_host_cpu_name(), features
    if key := _processor_key():
        disk_cache.store(key, [json.dumps(found).encode()])
    return found


def _stored_processor() -> tuple[str, str, str] | None:
    """The CPU that `_processor` has stored, if any."""
    key = _processor_key()
    stored = disk_cache.load(key) if key else None
    if stored is None:
        return None
    try:
        found = json.loads(bytes(stored))
    except (ValueError, RecursionError):
        return None  # another program has written it
    if not isinstance(found, list) or [*map(type, found)] != [str] * 3:
        return None
    triple, cpu, features = found
    return triple, cpu, features


def _processor_key() -> str:
    parts = processor(), generator()
    return disk_cache.key_of("machine", *parts) if all(parts) else ""


@cache
def obstacle() -> str | None:
    """The reason why the default target is not "native" on this machine; None if it is.

    It is where llvmlite is installed and the CPU has what its architecture needs. On systems where
    nobody has confirmed that native code runs, the self-test decides.
    """
    found = _stored_processor()
    if found is None:
        binding, problem = _binding()
        if problem:
            return f"llvmlite: {problem}"
        found = _processor(binding)
    platform = platform_of_triple(found[0])
    return _unfit(*found) or forbidden() or (platform and untrusted(platform)) or None


@cache
def forbidden() -> str:
    """The reason why this process may run no code that it makes; empty if there is none."""
    if sys.implementation.name == "cpython":
        kind = ctypes.PYFUNCTYPE(ctypes.c_void_p)
        names = "PyInterpreterState_Get", "PyInterpreterState_Main"
        own, main = (kind((name, ctypes.pythonapi))() for name in names)
        if own != main:
            return "native code runs in the main interpreter of a process only"
    try:
        memory, start = process().pages(mmap.PAGESIZE)
        process().make_executable(start, mmap.PAGESIZE)
        del memory
    except OSError as error:
        return f"this system permits no new machine code: {error}"
    return ""


def untrusted(platform: Platform) -> str:
    """The reason why no code is run on a system unless it is requested; empty if there is none."""
    requested = target_facts(os.environ.get(VARIABLE, "")).is_native
    return "" if platform.is_confirmed or requested else self_test()


def _missing(platform: Platform, features: str) -> str:
    """The features that code for a platform needs and that are not there, for messages."""
    present = features.split(",")
    needed = sorted(platform.architecture.needed)
    return " and ".join(name.upper() for name in needed if f"+{name}" not in present)


@cache
def tiles_are_confirmed() -> bool:
    """True if matrix tiles are permitted here, and the self-test passes with them."""
    return process().allow_tiles() and (is_testing(TILED) or not self_test(TILED))


def narrow() -> Machine:
    """The host limited to AVX2 and FMA; the host itself if it is not an x86-64."""
    machine = host()
    if not machine.platform.architecture.wide:
        return machine
    return machine_of(machine.platform, "x86-64-v3")


def machine_of(platform: Platform, level: str) -> Machine:
    """The machine of a platform whose CPU has the features of one of its levels, and no others.

    Errors:
        KeyError: there is no such level.
    """
    features = ",".join(f"+{name}" for name in platform.architecture.levels[level])
    cpu = level if platform.architecture.wide else "generic"
    return _machine(platform.triple, cpu, features)


def _machine(triple: str, cpu: str, features: str) -> Machine:
    platform = platform_of_triple(triple)
    if platform is None or _missing(platform, features):
        raise CompileError(
            f'target "native" requires AVX2 and FMA, or NEON; found {cpu} ({triple})',
            hint='compile for target="numpy" on this machine',
        )
    if platform.features and platform.features not in features:
        features = ",".join(filter(None, (features, platform.features)))
    kind, present = platform.architecture, features.split(",")
    if kind.wide and all(f"+{name}" in present for name in kind.wide):
        return Machine(platform, cpu, features, 512, 32)
    return Machine(platform, cpu, features, kind.vector_bits, kind.vector_registers)


_CURRENT: Final[ContextVar[tuple[Machine, bool] | None]] = ContextVar("machine", default=None)


def current() -> Machine:
    """The machine that code is generated for: the host, or that of `generating_for`.

    Errors: as for `host`.
    """
    chosen = _CURRENT.get()
    return host() if chosen is None else chosen[0]


def is_current_here() -> bool:
    """True if the code that is generated runs in this process."""
    chosen = _CURRENT.get()
    return chosen is None or chosen[1]


def running_here() -> AbstractContextManager[None]:
    """A context in which code is generated that runs here: for the host, if the other does not."""
    return setting(_CURRENT, _CURRENT.get() if is_current_here() else None)


def with_current(function: Callable[P, T]) -> Callable[P, T]:
    """A function that later generates code for the machine that is current now."""
    chosen = _CURRENT.get()

    def later(*args: P.args, **kwargs: P.kwargs) -> T:
        with setting(_CURRENT, chosen):
            return function(*args, **kwargs)

    return later


def generating_for(machine: Machine, *, runs_here: bool = False) -> AbstractContextManager[None]:
    """A context in which code is generated for a machine, which may run here."""
    return setting(_CURRENT, (machine, runs_here))


@cache
def target_machine(machine: Machine, *, optimised: bool = True) -> Any:
    """The code generator of llvmlite for `machine`, for one thread at a time.

    If it is not `optimised`, it compiles in a third of the time, and the code takes twice as long.
    The levels above 1 take longer than that one, and their code does not take less time.
    """
    own = own_platform()
    if own is None or machine.platform.architecture is not own.architecture:
        llvm().initialize_all_targets()
        llvm().initialize_all_asmprinters()
    target, is_linked = llvm().Target.from_triple(machine.triple), machine.platform.system is WEB
    return target.create_target_machine(
        cpu=machine.cpu,
        features=",".join(name for name in machine.features.split(",") if name != STRICT),
        opt=1 if optimised else 0,
        codemodel="small",
        reloc="static" if is_linked else "pic",
        jit=not is_linked,
    )
