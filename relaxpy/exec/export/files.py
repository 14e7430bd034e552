"""Writes exported programs: objects, archives, and shared libraries, with their headers."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.api.cross import Native
from relaxpy.exec.export.c_header import header_of
from relaxpy.exec.export.cpu import exporting_machine
from relaxpy.exec.export.exported import exported_program, identifier
from relaxpy.exec.export.object_file import object_of
from relaxpy.exec.export.table import ExportedProgram
from relaxpy.exec.export.thread_pool import pool_of
from relaxpy.exec.export.web import WEB_SUFFIX, web_files
from relaxpy.exec.machine.platforms import LINUX, MACOS, WEB, WINDOWS, Platform
from relaxpy.exec.machine.process import own_platform
from relaxpy.exec.store.container import as_path
from relaxpy.support.progress import stage

if TYPE_CHECKING:
    from relaxpy.exec.api.executable import Executable

MOST_SECONDS: Final = 1800
"""The longest that a linker takes: that of ziglang first builds a C library for a system."""
MOST_INSIDE: Final = 1 << 30
"""The most bytes of weights that are put into a library."""


def export(
    executable: Executable,
    path: str | os.PathLike[str],
    *,
    target: Native | str | None = None,
    name: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    pool: bool = False,
    extern: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Write a program as a library: what `Executable.export` does. Errors: as for that."""
    out = Path(as_path(path))
    suffix = out.suffix.lower()
    if suffix not in (*_FINISHERS, WEB_SUFFIX):
        known = ", ".join((*_FINISHERS, WEB_SUFFIX))
        raise MisuseError(f"the suffix {out.suffix!r} is not one of libraries: {known}", about=path)
    if not out.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(out.parent))
    native = Native.of_text(target) if isinstance(target, str) else target
    if native is not None and not isinstance(native, Native):
        raise MisuseError(
            f"the target of an export is a relaxpy.target.Native, found {type(target).__name__}",
            about=target,
        )
    machine = native.machine_or_host() if native is not None else None
    prefix = identifier(name if name is not None else out.name.partition(".")[0])
    if name is not None and prefix != name:
        raise MisuseError(f"the name is an identifier of C, found {name!r:.60}", about=name)
    module, beside = executable.program.module, None if weights is None else Path(as_path(weights))
    if suffix == WEB_SUFFIX:
        if pool or extern:
            raise MisuseError("programs for WebAssembly have neither threads nor functions of C")
        files = web_files(module, out, machine, prefix, beside)
        for file, content in files.items():
            write_file(file, content)
        return tuple(files)
    machine = machine or exporting_machine()
    if machine.platform.system is WEB:
        raise MisuseError(f"a program for {machine.platform.name} ends in {WEB_SUFFIX}", about=path)
    program = exported_program(
        module,
        machine,
        prefix,
        weights_inside=beside is None,
        externs=[extern] if isinstance(extern, str) else extern,
    )
    if weights is None and program.weights_bytes > MOST_INSIDE:
        raise MisuseError(
            f"the weights have {program.weights_bytes} bytes, and a library at most {MOST_INSIDE}",
            hint="write them to a file beside it: weights=path",
        )
    files = {out: finished(program, out)}
    if beside is not None:
        files[beside] = bytes(program.weights())
    files[out.with_name(f"{prefix}.h")] = header_of(program).encode()
    if pool:
        files[out.with_name(f"{prefix}_pool.h")] = pool_of(prefix).encode()
    for file, content in files.items():
        write_file(file, content)
    return tuple(files)


def finished(program: ExportedProgram, out: Path) -> bytes:
    """The content of the file `out`, whose suffix says what it is."""
    return _FINISHERS[out.suffix.lower()](program, out)


def write_file(file: Path, content: bytes) -> None:
    """Write a file, which is complete when it has its name."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o755 if file.suffix in _SHARED else 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def _object(program: ExportedProgram, out: Path) -> bytes:
    return object_of(program)


def _archive(program: ExportedProgram, out: Path) -> bytes:
    """A static library: the object, after the list of its symbols that linkers look for."""
    code, names = object_of(program), symbols(program)
    if program.machine.platform.system is MACOS:
        table = b"".join(f"_{name}\0".encode() for name in names)
        table += bytes(-len(table) % 8)
        starts, position = [], 0
        for name in names:
            starts.append(position)
            position += len(name) + 2
        size = 8 * len(names) + 8 + len(table)
        first = 8 + 60 + size
        ranlib = b"".join(_word(n) + _word(first) for n in starts)
        index = _word(8 * len(names)) + ranlib + _word(len(table)) + table
        return b"!<arch>\n" + _member("__.SYMDEF", index) + _member("model.o", code)
    table = b"".join(f"{name}\0".encode() for name in names)
    table += bytes(len(table) % 2)
    first = 8 + 60 + 4 + 4 * len(names) + len(table)
    index = len(names).to_bytes(4, "big") + first.to_bytes(4, "big") * len(names) + table
    return b"!<arch>\n" + _member("/", index) + _member("model.o/", code)


def _word(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _member(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(content):<10}`\n".encode()
    return head + content + b"\n" * (len(content) % 2)


def symbols(program: ExportedProgram) -> list[str]:
    """The names of the functions that callers of a library see."""
    names = [f"{program.name}_{name}" for name in ("cpu", "version", "cpu_needed", "error")]
    for function in program.functions:
        names += [f"{function.symbol}{end}" for end in ("", "_workspace", "_result_sizes")]
    return names


def _shared(program: ExportedProgram, out: Path) -> bytes:
    """A shared library, which a C compiler or zig links."""
    platform = program.machine.platform
    expected = platform.system.library
    if out.suffix.lower() != expected:
        raise MisuseError(
            f"a shared library for {platform.name} ends in {expected}, found {out.name!r:.60}",
            about=str(out),
        )
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "model.o"), Path(folder, out.name)
        source.write_bytes(object_of(program))
        options = ["-dynamiclib", f"-Wl,-install_name,@rpath/{out.name}"]
        if platform.system is not MACOS:
            options = ["-shared"]
        if platform.system is LINUX:
            options += [f"-Wl,-soname,{out.name}"]
            options += [] if program.externs else ["-Wl,-z,defs"]
        command = [*linker(platform), *options, "-o", str(result), str(source)]
        try:
            with stage("linking"):
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
                )
        except subprocess.TimeoutExpired:
            raise CompileError(f"{command[0]} links for longer than {MOST_SECONDS} s") from None
        if done.returncode or not result.exists():
            raise CompileError(f"{command[0]} cannot link {out.name}: {done.stderr.strip()[:2000]}")
        return result.read_bytes()


def linker(platform: Platform) -> list[str]:
    """The command of a C compiler that links for a platform.

    Errors:
        CompileError: there is none.
    """
    if platform is own_platform():
        for name in ("cc", "clang", "gcc"):
            if found := shutil.which(name):
                return [found]
    if find_spec("ziglang") is not None:
        system = f"{platform.system.name}-gnu".removesuffix(
            "-gnu" if platform.system is MACOS else ""
        )
        triple = f"{platform.architecture.name}-{system}"
        return [sys.executable, "-m", "ziglang", "cc", "-target", triple]
    raise CompileError(
        f"there is no linker for shared libraries of {platform.name}: no C compiler was found",
        hint="install one with `pip install 'relaxpy[export]'` (ziglang), or write an archive (.a)",
    )


_SHARED: Final = tuple(system.library for system in (LINUX, MACOS, WINDOWS))
_FINISHERS: Final[Mapping[str, Callable[[ExportedProgram, Path], bytes]]] = {
    ".o": _object,
    ".obj": _object,
    ".a": _archive,
    ".lib": _archive,
    **dict.fromkeys(_SHARED, _shared),
}
"""How a program is finished, by the suffix of the file."""
