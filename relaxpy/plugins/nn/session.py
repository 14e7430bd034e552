"""The export that is in progress, which operators with effects and external modules refer to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING

from relaxpy.errors import BuilderStateError, MisuseError
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Var
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.plugins.nn.effects import IOEffect
    from relaxpy.plugins.nn.extern import ExternModule

_current: ContextVar[Session | None] = ContextVar("relaxpy_nn_session", default=None)


class ImpureMethod(Exception):  # noqa: N818  # a signal to the exporter, not an error
    """A method that is exported as pure calls a function with effects; it is exported again."""


@dataclass
class Session:
    """One call of `export_tvm`; `pure` says how the present method is exported.

    `omitted` has the mode for each variable that a mode leaves out of the parameters.
    """

    builder: BlockBuilder
    io_effect: IOEffect | None
    extern_mods: list[ExternModule] = field(default_factory=list)
    omitted: dict[Var, str] = field(default_factory=dict)
    pure: bool = True

    @contextmanager
    def active(self) -> Iterator[None]:
        """The scope in which this export is the current one."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def require_impure(self) -> None:
        """Note that the present method has effects. Errors: ImpureMethod, if it was pure so far."""
        if self.pure:
            raise ImpureMethod

    def add_extern(self, mod: ExternModule) -> None:
        """Add a module of external functions. Errors: MisuseError if it has a symbol again."""
        known = {symbol for other in self.extern_mods for symbol in other.symbols}
        if repeated := sorted(known & mod.symbols.keys()):
            raise MisuseError(
                f"external modules have symbols twice: {', '.join(repeated)}", about=mod
            )
        self.extern_mods.append(mod)


def current_session() -> Session | None:
    """The export that is in progress, or None."""
    return _current.get()


def required_session(action: str) -> Session:
    """The export that is in progress. Errors: BuilderStateError (also RuntimeError) if none is."""
    session = _current.get()
    if session is None:
        raise BuilderStateError(
            f"{action} belongs in a method that is being exported",
            hint="call it in a method of an nn.Module, and export_tvm exports the method",
        )
    return session
