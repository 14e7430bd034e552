"""The CPUs that native kernels are compiled for, and the only import of llvmlite."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any, Final

from relaxpy.errors import CompileError
from relaxpy.exec.native.llvm.module import Module
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.native.machine_code.loader import PROCESSORS
from relaxpy.exec.native.machine_code.processor import arm_features, generator, processor
from relaxpy.support.dataclass import dataclass

_FMA: Final = frozenset({"+avx2", "+fma"})
"""The features that x86-64 CPUs need at least."""
_LLVM_VERSION: Final = 20
"""The oldest version of LLVM that parses the IR of kernels, that of llvmlite 0.45."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU that code is generated for.

    Fields:
        triple: the target triple of LLVM.
        cpu: LLVM's name of the CPU, such as `znver4`.
        features: the features of LLVM, such as `+avx2,-avx512f`.
        vector_bits: the width of a vector register in bits.
        vector_registers: the number of vector registers.
    """

    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int

    @property
    def has_loader(self) -> bool:
        """True if `loader` loads objects for it. LLVM, which loads others, takes one at a time."""
        return self.triple.split("-")[0] in PROCESSORS and "linux" in self.triple

    def lanes(self, bits: int) -> int:
        """The number of elements of `bits` bits in a vector register."""
        return self.vector_bits // bits

    def has(self, feature: str) -> bool:
        """Return whether the CPU has an LLVM feature, such as `avx512vnni`."""
        return f"+{feature}" in self.features.split(",")

    def module(self) -> Module:
        """An empty module of code for it."""
        return Module(self.triple, self.vector_bits, self.instructions)

    @property
    def instructions(self) -> frozenset[str]:
        """The instructions for dot products of int8, which not every CPU of its kind has."""
        if self.triple.startswith("aarch64"):
            present = {"dotprod": ("sdot", "udot"), "i8mm": ("usdot",)}
            return frozenset(name for f, names in present.items() if self.has(f) for name in names)
        has_vnni = self.has("avxvnni") or (self.has("avx512vnni") and self.has("avx512vl"))
        return frozenset(("pmaddwd", "vpdpbusd") if has_vnni else ("pmaddwd",))


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
    return _machine(*(_stored_processor() or _described.get("host") or _processor(llvm())))


_described: Final[dict[str, tuple[str, str, str]]] = {}
"""The arguments of `describe_host`."""


def describe_host(triple: str, cpu: str, features: str) -> None:
    """Set LLVM's names of this CPU, so that `host` needs no llvmlite."""
    _described["host"] = triple, cpu, features


def _processor(binding: Any) -> tuple[str, str, str]:
    """The triple, name and features of this CPU; they are cached on disk."""
    features = [binding.get_host_cpu_features().flatten(), *arm_features()]
    found = (
        binding.get_process_triple(),
        binding.get_host_cpu_name(),
        ",".join(filter(None, features)),
    )
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

    It is where llvmlite is installed, on Linux with AVX2 and FMA or on AArch64: code for other
    systems was generated but never run.
    """
    found = _stored_processor()
    if found is None:
        binding, problem = _binding()
        if problem:
            return f"llvmlite: {problem}"
        found = _processor(binding)
    triple, cpu, features = found
    if sys.platform != "linux" or triple.split("-")[0] not in PROCESSORS:
        return f'native code was not tested on {triple}; target="native" generates it'
    if triple.startswith("x86_64") and not _FMA.issubset(features.split(",")):
        return f"the processor {cpu} has no AVX2 and FMA"
    return None


def narrow() -> Machine:
    """The host limited to AVX2 and FMA; the host itself if it is not an x86-64."""
    machine = host()
    if not machine.triple.startswith("x86_64"):
        return machine
    features = "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+popcnt"
    return _machine(machine.triple, "x86-64-v3", features)


def _machine(triple: str, cpu: str, features: str) -> Machine:
    if triple.startswith("aarch64"):
        return Machine(triple, cpu, features, 128, 32)
    present = set(features.split(","))
    if triple.startswith("x86_64") and _FMA.issubset(present):
        # Masks of bytes and 64-bit integers need more than AVX-512F.
        if {"+avx512f", "+avx512bw", "+avx512dq", "+avx512vl"} <= present:
            return Machine(triple, cpu, features, 512, 32)
        return Machine(triple, cpu, features, 256, 16)
    raise CompileError(
        f'target "native" requires AVX2 and FMA, or NEON; found {cpu} ({triple})',
        hint='compile for target="numpy" on this machine',
    )


@cache
def target_machine(machine: Machine, *, optimised: bool = True) -> Any:
    """The code generator of llvmlite for `machine`, for one thread at a time.

    If it is not `optimised`, it compiles in a third of the time, and the code takes twice as long.
    """
    target = llvm().Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu,
        features=machine.features,
        opt=3 if optimised else 0,
        codemodel="small",
        reloc="pic",
        jit=True,
    )
