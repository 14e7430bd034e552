"""Compilation targets, by name or as an object of TVM's programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import field
from typing import Any, Final, Self

from typing_extensions import override

from relaxpy import plugin
from relaxpy.errors import MisuseError, close_names
from relaxpy.ir import hooks
from relaxpy.ir.core.device import Device, device as device_of
from relaxpy.ir.core.node import Attrs, freeze
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_constructed

DEFAULT = "cpu"
"""The name of the default target, which `default_target` decides on each machine."""


@dataclass(frozen=True)
class TargetFacts:
    """Differences between the targets of this package before code generation."""

    can_be_default: bool = True
    is_native: bool = False
    """True if machine code runs, and is cached on the disk."""
    runs_as_written: bool = False
    """True if programs run without optimisation passes, as a reference for their results."""


TARGETS: Final[Mapping[str, TargetFacts]] = {
    "numpy": TargetFacts(),
    "native": TargetFacts(is_native=True),
    "reference": TargetFacts(can_be_default=False, runs_as_written=True),
}
NAMES = tuple(TARGETS)
_OF_PLUGIN: Final = TargetFacts(can_be_default=False)
DEFAULTS = tuple(name for name, facts in TARGETS.items() if facts.can_be_default)
PROCESSORS = ("llvm", DEFAULT)
"""TVM's names of CPUs; all mean the default target."""
DEVICES = ("cuda", "hexagon", "metal", "nvptx", "opencl", "rocm", "vulkan", "webgpu")
"""TVM's names of other devices: a target can describe one, but is not compiled for."""
_THREADS: Final = dict.fromkeys(DEVICES, 256) | {"cuda": 1024, "nvptx": 1024}
"""The threads of a block on devices, as TVM assumes them."""
_WARPS: Final = {"cuda": 32, "metal": 16, "nvptx": 32, "rocm": 64}
"""The threads that run together on devices, as TVM assumes them, where there are several."""
_NO_OPTIONS: Final = frozenset(("kind", "host"))
VARIABLE = "RELAXPY_TARGET"
"""The environment variable that names the default target."""


def target_name(target: object) -> str:
    """The name of the target that a name, table or object of TVM's programs describes.

    None and TVM's names of CPUs are `default_target`. Options after a name have no effect.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such target.
    """
    kind = target_kind(target)
    return default_target()[0] if kind == DEFAULT else kind


def default_target() -> tuple[str, str]:
    """The name of the default target on this machine, and why it is not "native".

    It is "native" where llvmlite is installed and the CPU has vectors, or else "numpy". The
    environment variable RELAXPY_TARGET decides otherwise.

    Errors:
        MisuseError (also ValueError): RELAXPY_TARGET is neither "numpy" nor "native".
    """
    name = os.environ.get(VARIABLE)
    if name is None:
        obstacle: str | None = hooks.call("native_obstacle")
        return ("native", "") if obstacle is None else ("numpy", obstacle)
    if name not in DEFAULTS:
        raise MisuseError(
            f'{VARIABLE} is {name!r:.60}, expected "numpy" or "native"',
            hint=close_names(name, DEFAULTS) or f"unset {VARIABLE}, or correct it",
        )
    return name, "" if TARGETS[name].is_native else f"{VARIABLE} is {name}"


def target_kind(target: object) -> str:
    """`target_name`, where the default target is "cpu".

    Errors:
        MisuseError (also TypeError, ValueError): there is no such target.
    """
    kind = _kind_of(target)
    if target is None:
        return DEFAULT
    if isinstance(kind, str) and kind in PROCESSORS:
        return DEFAULT
    names = _names(kind)
    if not isinstance(kind, str) or kind not in names:
        is_c = isinstance(kind, str) and kind == "c"
        other = "no source text of C is written" if is_c else "programs run on the CPU"
        raise MisuseError(
            f"there is no target {kind!r:.60}; targets are {', '.join(names)}",
            hint=(None if str(kind) == "gpu" else close_names(str(kind), (*names, *PROCESSORS)))
            or f'{other}: omit the target, or write "native"',
            about=target,
        )
    return str(kind)


def target_facts(name: str) -> TargetFacts:
    """The facts of a target, which may be that of a plug-in."""
    return TARGETS.get(name, _OF_PLUGIN)


def _names(kind: object) -> tuple[str, ...]:
    """The names of targets; those of plug-ins are included unless `kind` is another name."""
    is_known = isinstance(kind, str) and kind in NAMES
    return NAMES if is_known else (*NAMES, *plugin.targets())


def _kind_of(target: object) -> object:
    """The kind that a name with options, a table or an object states."""
    while isinstance(target, Target):
        target = target.target
    text = target.get("kind") if isinstance(target, Mapping) else target
    words = text.split() if isinstance(text, str) else []
    return words[0] if words else text


def target_attr(target: object, host: object = None) -> str | Attrs:
    """The attribute that describes a target: its kind, or a table with a "kind" and its host."""
    value = freeze(target)
    if not isinstance(value, str | Attrs):
        raise MisuseError(f"a target is a string or a table, found {value!r:.60}", about=target)
    if host is None:
        return value
    table: Mapping[str, object] = {"kind": value} if isinstance(value, str) else value
    return Attrs({**table, "host": target_attr(host)})


def _option(text: str) -> int | str:
    """The value of an option of a target that is written as a string."""
    return int(text) if text.lstrip("-").isdecimal() else text


@dataclass(frozen=True)
class TargetKind:
    """The kind of a target, by name."""

    name: str

    @override
    def __str__(self) -> str:
        return self.name


_current: ContextVar[Target | None] = ContextVar("relaxpy_target", default=None)


@user_constructed
@dataclass(frozen=True)
class Target:
    """The target of a compilation: `Target("llvm")`, or a table with its kind.

    A target that is entered by `with` is the one of `compile` if that gets none. The options of
    a target, and the host, exist for programs of TVM and have no effect. Programs may look at a
    target of another device, such as `Target("cuda")`; `compile` refuses it.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such target.
    """

    target: str | Mapping[str, Any] | Target
    host: str | Mapping[str, Any] | Target | None = None
    _tokens: list[Token[Target | None]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.target is None:
            raise MisuseError("a target needs a name", hint='write Target("llvm")')
        if _kind_of(self.target) not in DEVICES:
            target_kind(self.target)
        if isinstance(self.target, Mapping):
            object.__setattr__(self, "target", Attrs(self.target))
        host = self.host
        if host is None and not isinstance(self.target, str):
            host = self.target.host if isinstance(self.target, Target) else self.target.get("host")
        if host is not None:
            object.__setattr__(self, "host", host if isinstance(host, Target) else Target(host))

    @property
    def name(self) -> str:
        """The name of the target of this package."""
        return target_name(self.target)

    @property
    def kind(self) -> TargetKind:
        """The kind, unchanged."""
        if isinstance(self.target, Target):
            return self.target.kind
        text = self.target["kind"] if isinstance(self.target, Mapping) else self.target
        return TargetKind(text.split()[0])

    @property
    def attrs(self) -> Attrs:
        """The options: those of a table without its kind, or those of a string, `-name=value`.

        The options that TVM's kinds of devices have by default are among them.
        """
        return Attrs({**self._defaults, **self._options})

    @property
    def _options(self) -> Mapping[str, Any]:
        """The options, unchanged."""
        if isinstance(self.target, Target):
            return self.target._options
        if isinstance(self.target, Mapping):
            return {name: v for name, v in self.target.items() if name not in _NO_OPTIONS}
        words = [word.lstrip("-").partition("=") for word in self.target.split()[1:]]
        return {name: _option(value) if equal else True for name, equal, value in words}

    @property
    def _defaults(self) -> Mapping[str, Any]:
        """The options of a device that need not be written."""
        tables = {"max_num_threads": _THREADS, "thread_warp_size": _WARPS}
        kind = self.kind.name
        return {name: table[kind] for name, table in tables.items() if kind in table}

    @property
    def max_num_threads(self) -> int:
        """The option of that name: how many threads of a block a kernel may count on.

        A CPU has one: loops over threads run one after another.
        """
        return self._number("max_num_threads")

    @property
    def thread_warp_size(self) -> int:
        """The option of that name, or else 1: how many threads of a block run together."""
        return self._number("thread_warp_size")

    @property
    def keys(self) -> tuple[str, ...]:
        """The option of that name, or else the kind and the sort of device."""
        name = self.kind.name
        default = f"{name},gpu" if name in _THREADS and name != "hexagon" else name
        return self._names("keys", default if name in DEVICES else "cpu")

    @property
    def arch(self) -> str:
        """The option of that name, such as "sm_90a", or ""."""
        return str(self.attrs.get("arch", ""))

    @property
    def mcpu(self) -> str:
        """The option of that name, or ""."""
        return str(self.attrs.get("mcpu", ""))

    @property
    def mattr(self) -> tuple[str, ...]:
        """The option of that name."""
        return self._names("mattr")

    @property
    def libs(self) -> tuple[str, ...]:
        """The option of that name."""
        return self._names("libs")

    @property
    def model(self) -> str:
        """The option of that name, or "unknown"."""
        return str(self.attrs.get("model", "unknown"))

    @property
    def device_name(self) -> str:
        """The option `device`, or ""."""
        return str(self.attrs.get("device", ""))

    def _number(self, name: str) -> int:
        given = self._options.get(name)
        return given if isinstance(given, int) else int(self._defaults.get(name, 1))

    def _names(self, name: str, default: str = "") -> tuple[str, ...]:
        """An option that lists names: a string with commas, or a sequence."""
        given = self.attrs.get(name, default)
        names = given.split(",") if isinstance(given, str) else given
        return tuple(map(str, names)) if isinstance(names, Sequence) and names != [""] else ()

    def with_host(self, host: str | Mapping[str, Any] | Target | None = None) -> Target:
        """This target with another host."""
        return Target(self.target, host)

    def export(self) -> dict[str, Any]:
        """The kind, the options and the host, as a table of which `Target` makes this target."""
        host = {"host": self.host.export()} if isinstance(self.host, Target) else {}
        return {"kind": self.kind.name, **self._options, **host}

    @override
    def __str__(self) -> str:
        return self.target if isinstance(self.target, str) else self.kind.name

    def __attr__(self) -> str | Attrs:
        """The target as an attribute of a function, which can be printed and saved."""
        return target_attr(self.target, self.host)

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target that was entered.

        Errors:
            MisuseError (also ValueError): there is none, and `allow_none` is not set.
        """
        target = _current.get()
        if target is None and not allow_none:
            raise MisuseError("no target has been entered", hint='write with Target("llvm"):')
        return target

    @staticmethod
    def from_device(device: Device | str) -> Target:
        """The target that runs on a device, by TVM's name of it.

        Errors:
            MisuseError (also ValueError): there is no such device.
        """
        kind = (device if isinstance(device, Device) else device_of(device)).kind
        return Target(PROCESSORS[0] if kind == "cpu" else kind)

    def __enter__(self) -> Self:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        _current.reset(self._tokens.pop())
