"""The function of an exported program that asks whether the CPU has the instructions it uses.

It is the only code of a program that asks the system. On x86-64 the bytes of two instructions stand
in front of functions, since LLVM has no name for them. The answer is kept in a word, which all
calls set alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from relaxpy.exec.machine.platforms import MACOS, WASM32, WINDOWS, X86_64
from relaxpy.exec.machine.process import CAPABILITIES, OF_APPLE, OF_WINDOWS
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I32, I64, POINTER, Function, Value
from relaxpy.exec.native.machine_code.machine import Machine, host, machine_of
from relaxpy.support.dataclass import replace

LEAVES: Final[Mapping[tuple[int, int, int], Mapping[int, str]]] = {
    (1, 0, 2): {12: "fma", 22: "movbe", 23: "popcnt", 29: "f16c"},
    (7, 0, 1): {
        3: "bmi",
        5: "avx2",
        8: "bmi2",
        16: "avx512f",
        17: "avx512dq",
        28: "avx512cd",
        30: "avx512bw",
        31: "avx512vl",
    },
    (7, 0, 2): {11: "avx512vnni"},
    (7, 1, 0): {4: "avxvnni", 5: "avx512bf16"},
    (0x80000001, 0, 2): {5: "lzcnt"},
}
"""LLVM's features by the bits of a leaf, a subleaf and a register (eax, ebx, ecx, edx)."""
_STATE: Final = (1, 0, 2, 27)
"""The bit that the system lets programs read which registers it saves."""
_AVX, _AVX512 = 0x6, 0xE6
"""The registers of vectors that the system has to save."""
_CPUID: Final = "53 4989d0 89f8 89f1 0fa2 418900 41895804 41894808 4189500c 5b c3"
"""push rbx; mov r8, rdx; mov eax, edi; mov ecx, esi; cpuid; four stores at r8; pop rbx; ret."""
_XGETBV: Final = "31c9 0f01d0 c3"
"""xor ecx, ecx; xgetbv; ret."""


def exporting_machine() -> Machine:
    """This machine, without features that exported programs cannot ask for on another CPU.

    Errors:
        CompileError: native code is not generated for it.
    """
    own = host()
    known = {feature for bits in LEAVES.values() for feature in bits.values()}
    known |= {feature for bits in CAPABILITIES.values() for feature in bits.values()}
    levels = own.platform.architecture.levels
    best = [name for name, needed in levels.items() if all(map(own.has, needed))]
    base = machine_of(own.platform, best[-1] if best else next(iter(levels)))
    present = {name[1:] for name in own.features.split(",") if name[:1] == "+"}
    features = dict.fromkeys(
        [*base.features.split(","), *(f"+{n}" for n in sorted(present & known))]
    )
    return replace(base, features=",".join(features))


def emit_cpu(module: Module, prefix: str, machine: Machine) -> None:
    """Emit `PREFIX_cpu`: 0 if the CPU can run the code for `machine`, or else -1."""
    f = module.function(f"{prefix}_cpu", [], I32, optimised=False)
    f.is_public = True
    known = f"{prefix}.cpu_known"
    module.add_text(f"@{known} = internal global i32 1")
    place = Value(f, POINTER, f"@{known}")
    kept = f.new(I32, f"load atomic i32, {place} monotonic, align 4")

    def ask() -> list[Value]:
        missing = f.const(I32, 0)
        for has in _tests(f, machine):
            absent = f.select(f.compare("ne", has, 0), f.const(I32, 0), f.const(I32, -1))
            missing = f.arithmetic("or", missing, absent)
        f.put(f"store atomic {missing}, {place} monotonic, align 4")
        return [missing]

    f.ret(f.branch(f.compare("eq", kept, 1), ask, lambda: [kept])[0])


def _tests(f: Function, machine: Machine) -> Iterator[Value]:
    """Numbers that are 0 if the CPU lacks something."""
    needed = {name[1:] for name in machine.features.split(",") if name[:1] == "+"}
    system, kind = machine.platform.system, machine.platform.architecture
    if kind is X86_64:
        yield from _tests_of_x86(f, needed)
    elif system is MACOS:
        for feature, name in OF_APPLE.items():
            if feature in needed:
                yield _apple(f, f"hw.optional.arm.FEAT_{name}")
    elif system is WINDOWS:
        for number, feature in OF_WINDOWS.items():
            if feature in needed:
                yield f.call("IsProcessorFeaturePresent", I32, f.const(I32, number))
    else:
        for word, bits in CAPABILITIES.items():
            mask = sum(1 << bit for bit, feature in bits.items() if feature in needed - {"neon"})
            if mask:
                found = f.call("getauxval", I64, f.const(I64, word))
                yield _all_of(f, found, mask)


def _all_of(f: Function, found: Value, mask: int) -> Value:
    """Not 0 if all bits of a mask are set."""
    same = f.compare("eq", f.arithmetic("and", found, mask), mask)
    return f.cast("zext", same, "i32")


def _tests_of_x86(f: Function, needed: set[str]) -> Iterator[Value]:
    for name, params, code in (
        ("relaxpy.cpuid", "i32, i32, ptr", _CPUID),
        ("relaxpy.xgetbv", "", _XGETBV),
    ):
        result = "i32" if name.endswith("xgetbv") else "void"
        raw = bytes.fromhex(code)
        f.module.add_text(
            f"define internal x86_64_sysvcc {result} @{name}({params}) noinline"
            f' prologue [{len(raw)} x i8] c"\\{raw.hex(chr(92))}" {{ unreachable }}'
        )
    registers = f.alloca(I32, 4)

    def asked(leaf: int, subleaf: int, register: int) -> Value:
        leaf -= (leaf >> 31) << 32
        f.put(f"call x86_64_sysvcc void @relaxpy.cpuid(i32 {leaf}, i32 {subleaf}, {registers})")
        return f.load(I32, f.element(registers, register, I32))

    most, more = asked(0, 0, 0), asked(0x80000000, 0, 0)
    yield f.cast("zext", f.compare("uge", most, 7), "i32")
    yield f.cast("zext", f.compare("uge", more, 0x80000001 - (1 << 32)), "i32")
    for place, bits in LEAVES.items():
        mask = sum(1 << bit for bit, feature in bits.items() if feature in needed)
        if mask:
            yield _all_of(f, asked(*place), mask - ((mask >> 31) << 32))
    leaf, subleaf, register, bit = _STATE
    saves = f.arithmetic("and", asked(leaf, subleaf, register), 1 << bit)

    def state() -> list[Value]:
        found = f.new(I32, "call x86_64_sysvcc i32 @relaxpy.xgetbv()")
        return [_all_of(f, found, _AVX512 if "avx512f" in needed else _AVX)]

    yield f.branch(f.compare("ne", saves, 0), state, lambda: [f.const(I32, 0)])[0]


def _apple(f: Function, name: str) -> Value:
    label = f"relaxpy.{name}"
    f.module.add_text(f'@{label} = internal constant [{len(name) + 1} x i8] c"{name}\\00"')
    value, size = f.alloca(I64, 1), f.alloca(I64, 1)
    f.store(f.const(I64, 0), value)
    f.store(f.const(I64, 4), size)
    null, zero = f.const(POINTER, 0), f.const(I64, 0)
    f.call("sysctlbyname", I32, Value(f, POINTER, f"@{label}"), value, size, null, zero)
    return f.load(I32, value)


def public_attributes(machine: Machine) -> str:
    """The attributes of functions that any CPU of the kind of `machine` can run.

    Engines read a module of WebAssembly as a whole, and LLVM has one set of features for it.
    """
    if machine.platform.architecture is WASM32:
        return "attributes #1 = { nounwind noinline optnone }\n"
    cpu = "x86-64" if machine.platform.architecture is X86_64 else "generic"
    return (
        "attributes #1 = { nounwind noinline optnone"
        f' "target-cpu"="{cpu}" "target-features"="" }}\n'
    )
