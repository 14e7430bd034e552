"""Global infos of a module: virtual devices and dummies."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from relaxpy.errors import check_type, unexpected
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.support.dataclass import dataclass


class GlobalInfo(Node):
    """The base class of the global infos that a module lists by name."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class DummyGlobalInfo(GlobalInfo):
    """A global info without content, for tests."""


@dataclass(frozen=True, slots=True, repr=False)
class VDevice(GlobalInfo):
    """A virtual device: a target, a number and a memory scope.

    `target` is the kind of device, such as "cuda", a longer description that begins with the kind,
    or a dictionary with the key "kind".

    Errors:
        MisuseError (also TypeError): the number is not an integer >= 0, or a name is not a string.
    """

    _fields = ("target", "vdevice_id", "memory_scope")
    target: str | Attrs | None = None
    vdevice_id: int = 0
    memory_scope: str = "global"

    def __post_init__(self) -> None:
        number, target = self.vdevice_id, self.target
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise unexpected(number, "devices are numbered from 0")
        check_type(self.memory_scope, str, "a memory scope is a string")
        if isinstance(target, Mapping):
            object.__setattr__(self, "target", Attrs(target))
        elif not isinstance(target, str | None):
            raise unexpected(target, "a target is a string or a table")

    @property
    def kind(self) -> str:
        """The kind of device, such as "cuda"; empty if there is none."""
        target = self.target
        if isinstance(target, Attrs):
            return str(target.get("kind", ""))
        return (target or "").split(" ")[0]

    @override
    def __str__(self) -> str:
        return f"{self.kind}:{self.vdevice_id}"
