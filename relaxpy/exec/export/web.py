"""Links exported programs as modules of WebAssembly, and writes what loads them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.export.exported import exported_program
from relaxpy.exec.export.javascript import declarations_of, javascript_of
from relaxpy.exec.export.object_file import linked_by, object_of
from relaxpy.exec.export.table import ExportedProgram
from relaxpy.exec.machine.platforms import PLATFORMS, WASM32, WEB
from relaxpy.exec.native.machine_code.machine import Machine, machine_of
from relaxpy.exec.native.machine_code.objects import emitted_object
from relaxpy.ir.module import IRModule

WEB_SUFFIX: Final = ".wasm"
MOST_WEIGHTS: Final = 1 << 30
"""The most bytes of weights, which share 2 GiB with all other memory."""
_STACK: Final = 1 << 20
"""The bytes of the stack, which is below all data: an overflow is an error of the engine."""
_SUPPORT: Final = """\
target triple = "wasm32-unknown-unknown"
define hidden void @__multi3(ptr %result, i64 %al, i64 %ah, i64 %bl, i64 %bh) nounwind {
  %a0 = and i64 %al, 4294967295
  %a1 = lshr i64 %al, 32
  %b0 = and i64 %bl, 4294967295
  %b1 = lshr i64 %bl, 32
  %low = mul i64 %a0, %b0
  %middle = mul i64 %a1, %b0
  %other = mul i64 %a0, %b1
  %high = mul i64 %a1, %b1
  %carry = lshr i64 %low, 32
  %sum = add i64 %middle, %carry
  %sum.low = and i64 %sum, 4294967295
  %sum.high = lshr i64 %sum, 32
  %all = add i64 %other, %sum.low
  %all.high = lshr i64 %all, 32
  %upper = shl i64 %all, 32
  %low.low = and i64 %low, 4294967295
  %first = or i64 %upper, %low.low
  %second.0 = add i64 %high, %sum.high
  %second.1 = add i64 %second.0, %all.high
  %cross.0 = mul i64 %al, %bh
  %cross.1 = mul i64 %ah, %bl
  %second.2 = add i64 %second.1, %cross.0
  %second = add i64 %second.2, %cross.1
  store i64 %first, ptr %result
  %place = getelementptr i8, ptr %result, i32 8
  store i64 %second, ptr %place
  ret void
}
"""
"""The function that LLVM calls for products of 128 bits: of an index, or in large angles."""


def web_files(
    module: IRModule, out: Path, machine: Machine | None, prefix: str, weights: Path | None
) -> dict[Path, bytes]:
    """The files of a module: for one CPU, or else for each, with what loads them.

    Those for CPUs without relaxed SIMD are beside `out`, as `NAME.simd128.wasm`.

    Errors:
        CompileError: functions need Python, all of which are named; or there is no linker.
        MisuseError: `machine` is no engine of WebAssembly, or there are too many weights.
    """
    if machine is not None and machine.platform.system is not WEB:
        raise MisuseError(
            f"a {WEB_SUFFIX} is for wasm32, found the target {machine.platform.name}",
            hint="omit the target",
        )
    [platform] = (platform for platform in PLATFORMS if platform.system is WEB)
    levels = [machine_of(platform, level) for level in WASM32.levels]
    builds: dict[str, Path] = {}
    files: dict[Path, bytes] = {}
    program: ExportedProgram
    for each in [machine] if machine is not None else levels:
        program = exported_program(module, each, prefix, weights_inside=weights is None)
        if program.weights_bytes > MOST_WEIGHTS:
            raise MisuseError(
                f"the weights have {program.weights_bytes} bytes, and the memory of WebAssembly has"
                f" room for {MOST_WEIGHTS}"
            )
        cpu = cpu_of(each)
        builds[cpu] = out if not builds else out.with_suffix(f".{cpu}{WEB_SUFFIX}")
        files[builds[cpu]] = linked(program)
        if weights is not None:
            content = bytes(program.weights())
            first = files.setdefault(weights, content)
            assert first == content, "engines have the same packing"
    return {**files, **scripts(program, builds, weights)}


def cpu_of(machine: Machine) -> str:
    """The name of the instructions that code for an engine uses."""
    return next(level for level, needed in WASM32.levels.items() if all(map(machine.has, needed)))


def linked(program: ExportedProgram) -> bytes:
    """The module of a program.

    Errors:
        CompileError: there is no linker, or it fails.
    """
    command = [*linker(), "--no-entry", "--gc-sections", "--strip-all", "--stack-first"]
    names = [f"{program.name}_error", "__heap_base"]
    for function in program.functions:
        names += [function.symbol, f"{function.symbol}_workspace"]
    command += ["-z", f"stack-size={_STACK}", *(f"--export={name}" for name in names)]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, f"{program.name}{WEB_SUFFIX}")
        for name, code in (
            ("model.o", object_of(program)),
            ("support.o", emitted_object(_SUPPORT, program.machine)),
        ):
            Path(folder, name).write_bytes(code)
            command.append(str(Path(folder, name)))
        command += ["-o", str(result)]
        return linked_by(command, result)


def linker() -> Sequence[str]:
    """The command of a linker of WebAssembly.

    Errors:
        CompileError: there is none.
    """
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "wasm-ld"]
    if found := shutil.which("wasm-ld"):
        return [found]
    raise CompileError(
        "there is no linker for WebAssembly: wasm-ld was not found",
        hint="install one with `pip install 'relaxpy[export]'` (ziglang)",
    )


def scripts(
    program: ExportedProgram, builds: Mapping[str, Path], weights: Path | None
) -> Mapping[Path, bytes]:
    """The files that load a program whose modules are `builds`, by the CPU: the first is the best.

    Errors: as for `javascript_of`.
    """
    out = next(iter(builds.values()))
    names = {cpu: path.name for cpu, path in builds.items()}
    text = javascript_of(program, names, None if weights is None else weights.name)
    return {
        out.with_suffix(".js"): text.encode(),
        out.with_suffix(".d.ts"): declarations_of(program).encode(),
    }
