"""Saves the machine code of an executable, and loads it from a file that the user trusts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.exec.native.machine_code.loader import is_loadable
from relaxpy.exec.native.machine_code.machine import (
    Machine,
    current,
    host,
    machine_of_file,
    untrusted,
)
from relaxpy.exec.native.machine_code.objects import TrustedObject, trust
from relaxpy.exec.native.machine_code.processor import interface, processor
from relaxpy.support.dataclass import dataclass


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
    words = processor() if machine == host() else ""
    if not objects or (machine == host() and not words):
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
    if problem := untrusted(machine.platform):
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
