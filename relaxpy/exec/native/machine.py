"""The processors that native kernels are compiled for, and the only import of llvmlite."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from relaxpy.dataclass import dataclass
from relaxpy.errors import CompileError
from relaxpy.exec.native import disk_cache
from relaxpy.exec.native.processor import generator, processor

OPTIONS: Final = {
    "opt": 3,
    "codemodel": "small",
    "reloc": "pic",
    "jit": True,
}
"""The options of code generation."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor that code is generated for.

    Fields:
        triple: the target triple of LLVM.
        cpu: the name of the processor in LLVM, such as `znver4`.
        features: the features of LLVM, such as `+avx2,-avx512f`.
        vector_bits: the width of a vector register in bits.
        vector_registers: the number of vector registers.
    """

    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int

    def lanes(self, bits: int) -> int:
        """The number of elements of `bits` bits in a vector register."""
        return self.vector_bits // bits

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature of LLVM, such as `avx512vnni`."""
        return f"+{feature}" in self.features.split(",")


@cache
def llvm() -> Any:
    """`llvmlite.binding`, with the code generator of this machine initialised.

    Errors:
        CompileError: llvmlite is not installed.
    """
    try:
        from llvmlite import binding
    except ImportError as error:
        raise CompileError(
            'target "native" generates code with llvmlite, which is not installed',
            hint="install it with `pip install relaxpy[native]`, or compile for `numpy`",
        ) from error
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def host() -> Machine:
    """The machine that runs this process, as LLVM has described it once, which is on disk.

    Errors:
        CompileError: llvmlite is not installed, or the processor has neither AVX2 and FMA nor NEON.
    """
    parts = processor(), generator()
    key = disk_cache.key_of("machine", *parts) if all(parts) else ""
    stored = disk_cache.load(key) if key else None
    if stored is not None:
        return _machine(*json.loads(stored))
    binding = llvm()
    features = binding.get_host_cpu_features().flatten()
    machine = _machine(binding.get_process_triple(), binding.get_host_cpu_name(), features)
    if key:
        content = json.dumps([machine.triple, machine.cpu, machine.features])
        disk_cache.store(key, content.encode())
    return machine


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
    if triple.startswith("x86_64") and {"+avx2", "+fma"} <= present:
        # Masks of bytes and 64-bit integers need more than the foundation of AVX-512.
        if {"+avx512f", "+avx512bw", "+avx512dq", "+avx512vl"} <= present:
            return Machine(triple, cpu, features, 512, 32)
        return Machine(triple, cpu, features, 256, 16)
    raise CompileError(
        f'target "native" requires AVX2 and FMA, or NEON; found {cpu} ({triple})',
        hint='compile for target="numpy" on this machine',
    )


@cache
def target_machine(machine: Machine) -> Any:
    """The code generator of llvmlite for `machine`, for one thread at a time."""
    target = llvm().Target.from_triple(machine.triple)
    return target.create_target_machine(cpu=machine.cpu, features=machine.features, **OPTIONS)
