"""Passes, and named pipelines of passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relaxpy import plugin
from relaxpy.errors import MisuseError, UnknownNameError, check_type, close_names
from relaxpy.ir.instrument import (
    DumpIR as DumpIR,
    PassPrintingInstrument as PassPrintingInstrument,
    PassTimingInstrument as PassTimingInstrument,
    PrintAfterAll as PrintAfterAll,
    PrintBeforeAll as PrintBeforeAll,
    PrintIR as PrintIR,
    StructuralInstrument as StructuralInstrument,
    WellFormedInstrument as WellFormedInstrument,
)
from relaxpy.ir.pass_infra.functional import (
    ApplyPassToFunction as ApplyPassToFunction,
    ModulePass as ModulePass,
    module_pass as module_pass,
)
from relaxpy.ir.pass_infra.passes import (
    Pass as Pass,
    PassContext as PassContext,
    PassInfo as PassInfo,
    PassInstrument as PassInstrument,
    Sequential as Sequential,
    pass_instrument as pass_instrument,
)
from relaxpy.ir.passes.compile import PIPELINES
from relaxpy.support.entry import user_facing

_pipelines: dict[str, Callable[..., Pass]] = dict(PIPELINES)


def pipelines() -> Mapping[str, Callable[..., Pass]]:
    """The functions that create the pipelines, by name; those of plug-ins are loaded for this."""
    for module in plugin.load("pipelines"):
        for name, create in module.pipelines().items():
            _pipelines.setdefault(name, create)
    return _pipelines


@user_facing
def register_pipeline(name: str) -> Callable[[Callable[..., Pass]], Callable[..., Pass]]:
    """Register the decorated function, which creates a pass from options, as pipeline `name`.

    Errors:
        MisuseError: the name is taken.
    """
    _check_name(name)
    if name in pipelines():
        raise MisuseError(f"a pipeline {name!r} is already registered", about=name)

    def register(create: Callable[..., Pass]) -> Callable[..., Pass]:
        _pipelines[name] = create
        return create

    return register


@user_facing
def get_pipeline(name: str = "default", **options: object) -> Pass:
    """Create the pipeline `name`.

    Errors:
        MisuseError (also TypeError): `name` is not a string.
        UnknownNameError (also ValueError, KeyError): there is no pipeline of that name.
    """
    _check_name(name)
    create = _pipelines.get(name) or pipelines().get(name)
    if create is None:
        raise UnknownNameError(
            f"there is no pipeline {name!r}; pipelines are {', '.join(list_pipelines())}",
            hint=close_names(name, _pipelines, "get_pipeline"),
            about=name,
        )
    return create(**options)


def _check_name(name: object) -> None:
    check_type(name, str, "the name of a pipeline is a string")


def list_pipelines() -> list[str]:
    """The sorted names of all pipelines."""
    return sorted(pipelines())
