"""Targets: what programs are compiled for, by name or as an object of TVM's programs."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from dataclasses import field
from typing import Any, Self

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.entry import user_constructed
from relaxpy.errors import MisuseError, close_names
from relaxpy.ir.core.node import Attrs

DEFAULT = "numpy"
NAMES = (DEFAULT, "native", "reference")
PROCESSORS = ("llvm", "c", "cpu")
"""TVM's names of processors, all of which mean the default target."""


def target_name(target: object) -> str:
    """The name of the target that a name, table or object of TVM's programs describes.

    None and TVM's names of processors are the default. Options after a name have no effect.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such target.
    """
    if isinstance(target, Target):
        return target.name
    text = target.get("kind") if isinstance(target, Mapping) else target
    if text is None and target is None:
        return DEFAULT
    words = text.split() if isinstance(text, str) else []
    kind = words[0] if words else text
    if kind in PROCESSORS:
        return DEFAULT
    if kind not in NAMES:
        raise MisuseError(
            f"there is no target {kind!r:.60}; targets are {', '.join(NAMES)}",
            hint=close_names(str(kind), (*NAMES, *PROCESSORS))
            or "relaxpy runs on NumPy, on any processor: omit the target",
            about=target,
        )
    return str(kind)


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
    """What a program is compiled for: `Target("llvm")`, or a table with its kind.

    A target that is entered by `with` is the one of `compile` if that gets none. The options of
    a target, and the host, exist for programs of TVM and have no effect.

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
        target_name(self.target)
        target_name(self.host)
        for name, value in (("target", self.target), ("host", self.host)):
            if isinstance(value, Mapping):
                object.__setattr__(self, name, Attrs(value))

    @property
    def name(self) -> str:
        """The name of the target of this package."""
        return target_name(self.target)

    @property
    def kind(self) -> TargetKind:
        """The kind, as it was written."""
        if isinstance(self.target, Target):
            return self.target.kind
        text = self.target["kind"] if isinstance(self.target, Mapping) else self.target
        return TargetKind(text.split()[0])

    @override
    def __str__(self) -> str:
        return self.target if isinstance(self.target, str) else self.kind.name

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

    def __enter__(self) -> Self:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        _current.reset(self._tokens.pop())
