"""Emits the programs that are measured for other CPUs, and inspects the objects.

`PYTHONPATH=. python benchmarks/emitted.py` prints a row for each target: its programs, their
objects, their bytes, and the functions of the system that they call. A relocation that the loader
does not know, or a function that is not one of the system, is an error. Those of `breadth.py` are
among the programs where JAX and PyTorch are installed. Arguments select targets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

from benchmarks import kernels, models
from relaxpy import IRModule
from relaxpy.exec.api.as_module import as_module
from relaxpy.exec.api.lowered import Lowered, new_backend, pipeline
from relaxpy.exec.machine.platforms import WINDOWS, System
from relaxpy.exec.native.machine_code.loader import LoadedObject
from relaxpy.exec.native.machine_code.machine import Machine, generating_for
from relaxpy.exec.store.container import Sections
from relaxpy.target import Native

TARGETS = (
    "linux-aarch64:neoverse-n1",
    "linux-aarch64:neoverse-v1",
    "linux-aarch64:neoverse-v2",
    "macos-aarch64:apple-m1",
    "macos-x86_64:x86-64-v3",
    "windows-x86_64:x86-64-v3",
    "windows-aarch64:generic",
)
POSIX = {"mmap", "munmap", "clock_gettime", "malloc", "free", "time"}
MICROSOFT = {"VirtualAlloc", "VirtualFree", "malloc", "free", "time", "__chkstk"}
COPIES = {"memcpy", "memset", "memmove", "bzero"}


def allowed(system: System) -> set[str]:
    """The functions of a system that code may call."""
    return COPIES | (MICROSOFT if system is WINDOWS else POSIX)


@cache
def programs() -> dict[str, IRModule]:
    """The programs by name, after the passes for native code."""
    return {name: pipeline("default", "native")(module) for name, module in _sources()}


def _sources() -> Iterator[tuple[str, IRModule]]:
    for row in models.rows():
        yield row.name, as_module(row.model, "compile")
    for case in kernels.cases():
        yield case.name, as_module(case.kernel, "compile")
    with suppress(ImportError):
        from benchmarks import breadth

        for line in breadth.rows():
            yield line.name, models.model(line.body, line.values)


def objects(module: IRModule, machine: Machine) -> list[bytes]:
    """The objects of a program for a machine."""
    sections = Sections()
    with generating_for(machine):
        code = Lowered(lambda: module, new_backend("native", None)).machine_code(sections)
    return [sections[n].tobytes() for n in code["objects"].values()] if code else []


def calls(parts: list[bytes], machine: Machine) -> set[str]:
    """The functions that objects call and do not define.

    Errors:
        ValueError: they have a relocation that is not supported.
    """
    return LoadedObject(b"".join(parts), machine.platform.architecture).undefined


def main(*names: str) -> None:
    """Print the table."""
    print(f"{'target':28}{'programs':>10}{'objects':>9}{'KiB':>8}  functions")
    for name in names or TARGETS:
        machine = Native.of_text(name).machine_or_host()
        assert machine is not None
        count, size, found = 0, 0, set[str]()
        for program, module in programs().items():
            parts = objects(module, machine)
            called = calls(parts, machine)
            unknown = called - allowed(machine.platform.system)
            assert not unknown, f"{program} calls {', '.join(sorted(unknown))} on {name}"
            count, size, found = count + len(parts), size + sum(map(len, parts)), found | called
        words = " ".join(sorted(found))
        print(f"{name:28}{len(programs()):10}{count:9}{size / 1024:8.0f}  {words}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
