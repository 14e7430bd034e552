"""Executables with machine code for other CPUs, which is saved and does not run here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeAlias

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.exec.api.executable import Executable, Form, Program
from relaxpy.exec.machine.platforms import PLATFORMS, WEB
from relaxpy.exec.machine.process import own_platform
from relaxpy.exec.native.machine_code.machine import (
    STRICT,
    Machine,
    generating_for,
    host,
    machine_of,
)
from relaxpy.exec.store.container import Sections
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_constructed

if TYPE_CHECKING:
    pass

Codes: TypeAlias = "Native | Sequence[Native]"


@user_constructed
@dataclass(frozen=True)
class Native:
    """A system and a CPU that a saved executable has machine code for.

    `Native("linux-aarch64", cpu="neoverse-n1")` is one of another machine, `Native()` this one.
    `compile` takes one or several as its target. The executable runs here as usual. What it saves
    has code for these CPUs only, and `load_executable(..., native_code=True)` runs the code
    that fits best, without llvmlite.

    The systems are linux, macos and windows, each for x86_64 and aarch64. The code uses the
    instructions that `cpu` names, and runs on all CPUs that have them: x86-64-v3, x86-64-v4,
    znver4; generic, neoverse-n1, neoverse-v1, neoverse-v2, apple-m1, apple-m2. Without `cpu`, it
    runs on all CPUs of the kind that native code needs. `strict` code rounds each product before it
    is added to a sum, which takes more time: its results are those of CPUs that cannot do both at
    once, such as an engine of WebAssembly without relaxed SIMD.

    `Native("wasm32")` is such an engine, `Native("wasm32", cpu="simd128")` one without relaxed
    SIMD: programs are exported for it, and not saved.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such system or CPU.
    """

    platform: str = ""
    cpu: str = ""
    strict: bool = False

    def __post_init__(self) -> None:
        self.machine_or_host()

    @classmethod
    def of_text(cls, text: str) -> Native:
        """The target that `linux-aarch64:neoverse-n1` describes. Errors: as for the class.

        After another colon, or after the system, `strict` may follow.
        """
        platform, *rest = text.split(":")
        strict = rest[-1:] == [STRICT]
        cpu = rest[: len(rest) - strict]
        if not platform or len(cpu) > 1 or "" in cpu:
            raise unexpected(text, "expected a system, or a system:cpu", hint="write `native`")
        return cls("" if platform == "native" else platform, "".join(cpu), strict)

    def machine_or_host(self) -> Machine | None:
        """The machine that code is generated for; None for the host.

        Errors: as for the class.
        """
        machine = self._machine()
        return (machine or host()).strict() if self.strict else machine

    def _machine(self) -> Machine | None:
        own = own_platform()
        if not self.platform and not self.cpu:
            return None
        name = self.platform or (own.name if own else "")
        known = {platform.name: platform for platform in PLATFORMS}
        found = known.get(name) if isinstance(name, str) else None
        if found is None:
            raise MisuseError(
                f"there is no system {name!r:.60}; systems are {', '.join(known)}",
                hint=close_names(str(name), known),
                about=self,
            )
        levels = found.architecture.levels
        if self.cpu and not (isinstance(self.cpu, str) and self.cpu in levels):
            raise MisuseError(
                f"there is no CPU {self.cpu!r:.60} of {name}; it has {', '.join(levels)}",
                hint=close_names(str(self.cpu), levels),
                about=self,
            )
        return machine_of(found, self.cpu or next(iter(levels)))


def is_native(target: object) -> bool:
    """True if a target is one or several of Native."""
    several = target if isinstance(target, list | tuple) else [target]
    return bool(several) and all(isinstance(each, Native) for each in several)


def with_code_for(executable: Executable, targets: Codes) -> Executable:
    """An executable whose file has code for these targets, and only for these."""
    chosen = [targets] if isinstance(targets, Native) else targets
    for each in chosen:
        machine = each.machine_or_host()
        if machine is not None and machine.platform.system is WEB:
            raise MisuseError(
                "no Python runs code for WebAssembly, so none is saved",
                hint='export the program: `ex.export("model.wasm")`',
                about=each,
            )
    machines = dict.fromkeys(each.machine_or_host() for each in chosen)
    old = executable._program
    program = copy(old)
    program.form = lambda: _ForMachines(old.form(), program, machines)
    program.codes = targets
    return executable.sharing(program)


class _ForMachines:
    """A form of a program whose file has code for other machines."""

    def __init__(self, form: Form, program: Program, machines: Iterable[Machine | None]) -> None:
        self._form, self._program, self._machines = form, program, machines
        self.source, self.instrumented = form.source, form.instrumented
        self.timed = form.timed
        self.new_backend = form.new_backend

    def machine_code(self, sections: Sections) -> Sequence[Mapping[str, Any]]:
        """The code for each machine."""
        codes = (_code_for(self._program, machine, sections) for machine in self._machines)
        return [code for code in codes if code is not None]


def _code_for(
    program: Program, machine: Machine | None, sections: Sections
) -> Mapping[str, Any] | None:
    """The machine code of a program for a machine, or for the host."""
    from relaxpy.exec.api.lowered import Lowered, new_backend

    with generating_for(machine or host()):
        lowered = Lowered(lambda: program.module, new_backend("native", program.schedules))
        return lowered.machine_code(sections)
