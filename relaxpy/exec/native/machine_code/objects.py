"""Compiles LLVM IR to objects, caches them on disk, and links them into this process."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.exec.machine.process import process
from relaxpy.exec.machine.tuning import CodeSize
from relaxpy.exec.native.llvm.writer import PROMOTED
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.native.machine_code.loader import LoadedObject, is_loadable
from relaxpy.exec.native.machine_code.machine import (
    Machine,
    current,
    forbidden,
    is_current_here,
    is_host,
    llvm,
    machine_of_file,
    target_machine,
    untrusted,
)
from relaxpy.exec.native.machine_code.processor import generator, interface, processor
from relaxpy.support.dataclass import dataclass
from relaxpy.support.scopes import setting

_LOCK: Final = threading.RLock()
"""Held while llvmlite works: only one thread may generate or link code at a time."""
if hasattr(os, "register_at_fork"):
    # A child gets no generator that another thread was using.
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


class Library(Mapping[str, int]):
    """The addresses of the exported functions of an object that is linked into this process.

    The code lives as long as this mapping: whoever keeps an address has to keep the library.
    """

    def __init__(self, code: bytes, addresses: Mapping[str, int], keep: object) -> None:
        self.code = code
        self._addresses, self._kept = dict(addresses), [keep]

    def keep(self, used: object) -> None:
        """Keep an object that the code uses as long as this mapping exists."""
        self._kept.append(used)

    @override
    def __getitem__(self, name: str) -> int:
        return self._addresses[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._addresses)

    @override
    def __len__(self) -> int:
        return len(self._addresses)


class TrustedObject:
    """An object file that replaces generated code as long as this exists."""

    __slots__ = ("__weakref__", "code")

    def __init__(self, code: bytes) -> None:
        self.code = code


_TRUSTED: Final[WeakValueDictionary[str, TrustedObject]] = WeakValueDictionary()
_RECORDED: Final[ContextVar[dict[str, bytes] | None]] = ContextVar("recorded", default=None)


def trust(key: str, code: bytes) -> TrustedObject:
    """Use `code` instead of generating it for `key`."""
    return _TRUSTED.setdefault(key, TrustedObject(code))


@contextmanager
def recorded() -> Iterator[Mapping[str, bytes]]:
    """The objects that this thread compiles or finds in the cache, by key."""
    objects: dict[str, bytes] = {}
    with setting(_RECORDED, objects):
        yield objects


def record(objects: Mapping[str, bytes]) -> None:
    """Add objects to those that are `recorded`, if any are."""
    if (known := _RECORDED.get()) is not None:
        known.update(objects)


def compile_object(text: str = "", slow: str = "", *, machine: Machine | None = None) -> bytes:
    """The object file (ELF) of a module of LLVM IR, from the disk if it was compiled before.

    That of a second part, `slow`, follows it. This takes less time to compile, and longer to run.
    """
    target = machine or current()

    def generate(part: str, *, optimised: bool) -> bytes:
        code: bytes = _generate("emit_object", part, target, optimised=optimised)
        return code

    return b"".join(
        _kept((kind, part), target, partial(generate, part, optimised=kind == "object"))
        for kind, part in (("object", text), ("slow object", slow))
        if part
    )


def emitted_object(text: str, machine: Machine) -> bytes:
    """The object file of a module of LLVM IR in the format of its triple, which is not kept."""
    code: bytes = _generate("emit_object", text, machine)
    return code


def process_object(name: str, write: Callable[[], Sequence[str]]) -> bytes:
    """The object file of code that every process has; `write` returns the texts to compile.

    As these follow from the source of relaxpy, they are written only if the code is not kept, or
    if it is recorded: other versions, whose source differs, find it in a file by its text.
    """
    if not (source := interface()):
        return compile_object(*write())
    generate = cache(lambda: compile_object(*write()))
    if _RECORDED.get() is not None:
        generate()
    return _kept(("code", name, source), current(), generate)


def _kept(parts: Sequence[str], machine: Machine, generate: Callable[[], bytes]) -> bytes:
    """The object of which `parts` decide: that of a file or the disk, or a new one, now kept."""
    key = disk_cache.key_of(*parts, machine.triple, machine.cpu, machine.features)
    trusted = _TRUSTED.get(key)
    code = _stored_object(key, machine, generate) if trusted is None else trusted.code
    record({key: code})
    return code


def _stored_object(key: str, machine: Machine, generate: Callable[[], bytes]) -> bytes:
    """The object from the disk, or else a new one, which is stored."""
    version = generator()
    file = disk_cache.key_of(key, version) if version else ""
    stored = disk_cache.load(file) if file else None
    code = None if stored is None else bytes(stored)
    if code is None or not is_loadable(code, machine.platform.architecture):
        code = generate()
        if file and generator() == version:
            disk_cache.store(file, [code])
    return code


def compile_assembly(text: str, machine: Machine | None = None) -> str:
    """The assembly of a module of LLVM IR, for reading."""
    assembly: str = _generate("emit_assembly", text, machine or current())
    return assembly


def _generate(method: str, text: str, machine: Machine, *, optimised: bool = True) -> Any:
    binding = llvm()
    # Types and constants live as long as their context does.
    with (
        _LOCK,
        _code_as_written(machine.platform.architecture.skipped),
        binding.create_context() as context,
        binding.parse_assembly(text, context) as parsed,
    ):
        target = target_machine(machine, optimised=optimised)
        if PROMOTED in text:
            _promote(parsed, target)
        result = getattr(target, method)(parsed)
    if len(text) >= CodeSize.LONG:
        return_memory()
    return result


def _promote(module: Any, target: Any) -> None:
    """Keep local variables of the functions with the attribute in registers.

    `instcombine` then removes what their values repeat: tests of a byte, extensions, selections.
    Floats are rounded as before, as neither pass changes arithmetic without fast-math flags.
    """
    binding = llvm()
    passes = binding.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    builder = binding.create_pass_builder(target, binding.PipelineTuningOptions())
    for function in module.functions:
        if any(PROMOTED.encode() in attributes for attributes in function.attributes):
            passes.run(function, builder)


def return_memory() -> None:
    """Return freed memory to the system: glibc keeps fragments between used blocks."""
    if (name := process().system.trim) and process().has(name):
        process().function(name, ctypes.c_int, ctypes.c_size_t)(0)


@contextmanager
def _code_as_written(skipped: Mapping[str, bool]) -> Iterator[None]:
    """A context in which LLVM has the options that skip passes.

    The options are process-wide, and others may use LLVM too.
    """
    binding = llvm()
    for name, value in skipped.items():
        binding.set_option("relaxpy", f"-{name}={value}".lower())
    try:
        yield
    finally:
        for name, value in skipped.items():
            binding.set_option("relaxpy", f"-{name}={not value}".lower())


def link_object(code: bytes, exports: Collection[str]) -> Library:
    """The addresses of the functions and variables of an object that `exports` names.

    Functions that the object declares are looked up in this process (libc). Code for another
    machine than the host is not executable.

    Errors:
        OSError: this process may not run it.
    """
    if is_current_here() and (problem := forbidden()):
        raise OSError(problem)
    other = None if is_current_here() else current().platform.architecture
    loaded = LoadedObject(code, other)
    return Library(code, loaded.addresses(exports), loaded)


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """The machine code of a file, used as long as its objects are kept.

    `problem` is the reason why it is not used. If all functions of the program are native,
    `library` is their code, and `program` the table of `saved_code`. The code is for `machine`.
    """

    machine: Machine | None = None
    objects: Sequence[TrustedObject] = ()
    problem: str = ""
    library: bytes = b""
    program: Mapping[str, Any] | None = None


def saved_code(
    objects: Mapping[str, bytes],
    store: Callable[[np.ndarray[Any, Any]], int],
    library: bytes = b"",
    program: Mapping[str, Any] | None = None,
) -> dict[str, Any] | None:
    """The JSON form of objects, which `store` numbers; None if no process could load them.

    The code of a `library`, which some of them are, belongs to a table of a `program`.
    """
    machine = current()
    is_own = is_host(machine)
    words = processor() if is_own else ""
    if not objects or (is_own and not words):
        return None
    return {
        "processor": words,
        "machine": [machine.triple, machine.cpu, machine.features],
        "objects": {key: store(np.frombuffer(code, np.uint8)) for key, code in objects.items()},
        "library": _parts(library, objects),
        "interface": interface(),
        "program": program,
    }


def _parts(library: bytes, objects: Mapping[str, bytes]) -> list[str]:
    """The keys of the objects that a library consists of, in order."""
    keys: list[str] = []
    start = 0
    while start < len(library):
        keys.append(next(k for k, code in objects.items() if library.startswith(code, start)))
        start += len(objects[keys[-1]])
    return keys


def load_code(saved: object, arrays: Sequence[Any], source: str) -> LoadedCode:
    """The machine code of a file that the user trusts, which messages call `source`.

    Errors:
        MisuseError (also ValueError): it is damaged.
    """
    if saved is None:
        return LoadedCode(problem="the file has no machine code")
    several: list[Any] = saved if isinstance(saved, list) else [saved]
    usable = [(machine, code) for code in several if (machine := _machine_of(code, source))]
    if not usable:
        return LoadedCode(problem="the machine code of the file is for another CPU")
    machine, best = max(usable, key=lambda each: each[0].features.count("+"))
    if problem := forbidden() or untrusted(machine.platform):
        return LoadedCode(problem=f"the machine code of the file is not used: {problem}")
    codes = {key: _code(number, arrays, source) for key, number in best["objects"].items()}
    objects = [trust(key, code) for key, code in codes.items()]
    match best:
        case {"library": list() as keys, "interface": str() as own, "program": dict() as program}:
            if own and own == interface() and all(key in codes for key in keys):
                library = b"".join(codes[key] for key in keys)
                return LoadedCode(machine, objects, library=library, program=program)
        case _:
            pass
    return LoadedCode(machine, objects)


def _machine_of(code: object, source: str) -> Machine | None:
    """The machine that saved code is for, if it runs here."""
    match code:
        case {
            "processor": str() as words,
            "machine": [str() as triple, str() as cpu, str() as features],
            "objects": dict(),
        }:
            return machine_of_file(triple, cpu, features, words)
        case _:
            raise damaged_code(source, "it is not of the form that Executable.save writes")


def _code(number: object, arrays: Sequence[Any], source: str) -> bytes:
    if type(number) is not int or not 0 <= number < len(arrays):
        raise damaged_code(source, f"there is no section {number!r:.60}")
    code: bytes = arrays[number].tobytes()
    if not is_loadable(code):
        raise damaged_code(source, "an object is not a relocatable one of ELF for this CPU")
    return code


def damaged_code(source: str, problem: str) -> MisuseError:
    """The error that the machine code of a file, which messages call `source`, is damaged."""
    return MisuseError(
        f"the machine code in {source} is damaged: {problem}",
        hint="load it without `native_code=True`, which compiles it again",
        about=source,
    )
