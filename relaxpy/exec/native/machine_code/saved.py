"""Saves the machine code of an executable, and loads it from a file that the user trusts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError
from relaxpy.exec.native.machine_code.loader import is_loadable
from relaxpy.exec.native.machine_code.machine import describe_host, host
from relaxpy.exec.native.machine_code.objects import TrustedObject, trust
from relaxpy.exec.native.machine_code.processor import processor


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """The machine code of a file, which is used as long as its objects are kept.

    `problem` is the reason why it is not used.
    """

    objects: Sequence[TrustedObject] = ()
    problem: str = ""


def saved_code(
    objects: Mapping[str, bytes], store: Callable[[np.ndarray[Any, Any]], int]
) -> dict[str, Any] | None:
    """The JSON form of objects, which `store` numbers; None if no process could load them."""
    if not objects or not processor() or not all(map(is_loadable, objects.values())):
        return None
    machine = host()
    return {
        "processor": processor(),
        "machine": [machine.triple, machine.cpu, machine.features],
        "objects": {key: store(np.frombuffer(code, np.uint8)) for key, code in objects.items()},
    }


def load_code(saved: object, arrays: Sequence[Any], source: str) -> LoadedCode:
    """The machine code of a file that the user trusts, which messages call `source`.

    Errors:
        MisuseError (also ValueError): it is damaged.
    """
    if saved is None:
        return LoadedCode(problem="the file has no machine code")
    match saved:
        case {
            "processor": str() as words,
            "machine": [str() as triple, str() as cpu, str() as features],
            "objects": dict() as stored,
        }:
            codes = {key: _code(number, arrays, source) for key, number in stored.items()}
        case _:
            raise _damaged(source, "it is not of the form that Executable.save writes")
    if words != processor():
        return LoadedCode(problem="the machine code of the file is for another processor")
    describe_host(triple, cpu, features)
    return LoadedCode([trust(key, code) for key, code in codes.items()])


def _code(number: object, arrays: Sequence[Any], source: str) -> bytes:
    if type(number) is not int or not 0 <= number < len(arrays):
        raise _damaged(source, f"there is no section {number!r:.60}")
    code: bytes = arrays[number].tobytes()
    if not is_loadable(code):
        raise _damaged(source, "an object is not a relocatable one of ELF for x86-64")
    return code


def _damaged(source: str, problem: str) -> MisuseError:
    return MisuseError(
        f"the machine code in {source} is damaged: {problem}",
        hint="load it without `native_code=True`, which compiles it again",
        about=source,
    )
