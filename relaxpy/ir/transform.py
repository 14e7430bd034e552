"""Passes and named pipelines of them, under one name."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, UnknownNameError, close_names
from relaxpy.ir.instrument import (
    DumpIR,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintIR,
    WellFormedInstrument,
)
from relaxpy.ir.pass_infra.apply_pass import ApplyPassToFunction
from relaxpy.ir.pass_infra.passes import (
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    Sequential,
    module_pass,
    pass_instrument,
)
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.ir.relax.transform.normalize import Normalize

__all__ = [
    "ApplyPassToFunction",
    "DumpIR",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintIR",
    "Sequential",
    "WellFormedInstrument",
    "get_pipeline",
    "list_pipelines",
    "module_pass",
    "pass_instrument",
    "register_pipeline",
]

_pipelines: dict[str, Callable[..., Pass]] = {}


@user_facing
def register_pipeline(name: str) -> Callable[[Callable[..., Pass]], Callable[..., Pass]]:
    """Enter the decorated function, which makes a pass from options, as pipeline `name`.

    Errors:
        MisuseError: the name is taken.
    """
    if not isinstance(name, str):
        raise MisuseError(f"a pipeline has a string for a name, found {name!r:.60}", about=name)
    if name in _pipelines:
        raise MisuseError(f"a pipeline {name!r} is already registered", about=name)

    def enter(make: Callable[..., Pass]) -> Callable[..., Pass]:
        _pipelines[name] = make
        return make

    return enter


@user_facing
def get_pipeline(name: str = "default", **options: object) -> Pass:
    """The pipeline `name`: normal-form, well-formed modules come out of every one.

    Errors:
        UnknownNameError (also ValueError, KeyError): there is none of that name.
    """
    make = _pipelines.get(name) if isinstance(name, str) else None
    if make is None:
        raise UnknownNameError(
            f"there is no pipeline {name!r}; pipelines are {', '.join(sorted(_pipelines))}",
            hint=close_names(str(name), _pipelines),
            about=name,
        )
    return make(**options)


def list_pipelines() -> list[str]:
    """The names of all pipelines, sorted."""
    return sorted(_pipelines)


@register_pipeline("default")
def default_pipeline() -> Pass:
    """What `compile` runs first: normal form with every info derived, operators as kernels."""
    return Sequential((Normalize(), LegalizeOps()), name="default")
