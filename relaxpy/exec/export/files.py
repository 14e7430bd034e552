"""Writes exported programs: objects, archives, and shared libraries, with their headers."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.api.cross import Native
from relaxpy.exec.export.c_header import header_of
from relaxpy.exec.export.cpu import exporting_machine
from relaxpy.exec.export.exported import exported_program, identifier
from relaxpy.exec.export.object_file import linked_by, object_of
from relaxpy.exec.export.prepare import with_bounds
from relaxpy.exec.export.table import ExportedProgram
from relaxpy.exec.export.thread_pool import pool_of
from relaxpy.exec.export.web import WEB_SUFFIX, web_files
from relaxpy.exec.machine.platforms import LINUX, MACOS, WEB, WINDOWS, Platform
from relaxpy.exec.machine.process import own_platform
from relaxpy.exec.store.container import path_to_write

if TYPE_CHECKING:
    from relaxpy.exec.api.executable import Executable

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
    at_most: Mapping[str, int] | None = None,
) -> tuple[Path, ...]:
    """Write a program as a library: what `Executable.export` does. Errors: as for that."""
    out = path_to_write(path)
    suffix = out.suffix.lower()
    if suffix not in (*_FINISHERS, WEB_SUFFIX):
        known = ", ".join((*_FINISHERS, WEB_SUFFIX))
        raise MisuseError(f"the suffix {out.suffix!r} is not one of libraries: {known}", about=path)
    beside = None if weights is None else path_to_write(weights)
    if beside is not None and beside.suffix.lower() in _OTHERS:
        raise MisuseError(
            f"the weights are not in a file that ends in {beside.suffix}", about=weights
        )
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
    module = with_bounds(executable.program.module, at_most or {})
    if suffix == WEB_SUFFIX:
        if pool or extern:
            raise MisuseError("programs for WebAssembly have neither threads nor functions of C")
        files = web_files(module, out, machine, prefix, beside)
        write_files(files)
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
    write_files(files)
    return tuple(files)


def finished(program: ExportedProgram, out: Path) -> bytes:
    """The content of the file `out`, whose suffix says what it is."""
    return _FINISHERS[out.suffix.lower()](program, out)


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files, which are complete when they have their names; or none, if one is not written.

    Errors:
        OSError: a file cannot be written.
    """
    with ExitStack() as stack:
        temporaries = [stack.enter_context(_temporary(f, content)) for f, content in files.items()]
        for temporary, file in zip(temporaries, files, strict=True):
            os.replace(temporary, file)


@contextmanager
def _temporary(file: Path, content: bytes) -> Iterator[str]:
    """A file beside another one, which it may replace."""
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    try:
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(file)) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o755 if file.suffix in _SHARED else 0o644)
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


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
        return linked_by(command, result)


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
_OTHERS: Final = (*_FINISHERS, WEB_SUFFIX, ".h", ".js", ".ts")
"""The suffixes of the files that are written besides the weights."""
