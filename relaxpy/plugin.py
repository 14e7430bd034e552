"""Plug-ins: what other packages add to relaxpy.

A package has a `Plugin`, and names it as an entry point:

    [project.entry-points."relaxpy.plugins"]
    mine = "my_package:PLUGIN"

Where relaxpy meets an operator, pass, function or target that it does not know, it loads what the
plug-ins of installed packages add of that kind, and looks again.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import cache
from importlib import import_module
from itertools import chain
from pkgutil import get_data, iter_modules
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias

from relaxpy.errors import MisuseError, RelaxpyWarning
from relaxpy.support.dataclass import dataclass

GROUP: Final = "relaxpy.plugins"
"""The group of the entry points, and the package of the plug-ins that come with relaxpy."""
Kind: TypeAlias = Literal["operators", "passes", "functions", "nodes", "pipelines"]


@dataclass(frozen=True)
class Plugin:
    """The additions of a package. None is imported before it is needed.

    `operators` are modules that register operators when they are imported, `passes` those that
    define classes of passes, `functions` those that register packed functions, `nodes` those that
    register kinds of nodes to be saved, and `pipelines` those with a function `pipelines`, which
    returns the functions that create pipelines, by name. `targets` has for each name
    "module:class": without arguments, the class creates the back end of a module, as
    `relaxpy.exec.program.lower.python_module.NumpyBackend` is one. `hooks` are the functions,
    "module:function", that the core calls by name, such as the one for the picture of a module;
    only the plug-ins that come with relaxpy have some. `models` are functions that make a module
    or function of a model for `relaxpy.load`: by the suffix of a file (".onnx"), or by the package
    and the class of an object ("onnx.ModelProto"). They take the path or the object, and those of
    `args`, `kwargs` and `dynamic` that they declare. Without those of relaxpy's plug-ins that it
    `needs`, a plug-in adds nothing, and to read its models is an error.
    """

    operators: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    targets: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


@cache
def manifests() -> Mapping[str, Plugin]:
    """The plug-ins that come with relaxpy, by their folders: each with a `manifest.json`.

    They are sorted from the last name to the first: packed functions are looked for in this order,
    and those of language models (nn) take less time to import than those of importers.
    """
    found = {}
    for package in (GROUP, GROUP.partition(".")[0]):
        folders = sorted(m.name for m in iter_modules(import_module(package).__path__) if m.ispkg)
        for name in reversed(folders):
            with suppress(OSError):  # it is no plug-in
                data = get_data(package, f"{name}/manifest.json") or b"{}"
                found[name] = Plugin(**json.loads(data))
    return found


@cache
def own() -> tuple[Plugin, ...]:
    """The plug-ins that come with relaxpy, and have all that they need."""
    found = dict(manifests())
    while lacking := [name for name in found if not found.keys() >= {*found[name].needs}]:
        for name in lacking:
            del found[name]
    return tuple(found.values())


@cache
def hooks() -> Mapping[str, str]:
    """The functions of the plug-ins that come with relaxpy, by the names that the core has."""
    return {name: place for plugin in own() for name, place in plugin.hooks.items()}


@cache
def installed() -> Mapping[str, Plugin]:
    """The plug-ins of the packages that are installed, by the names of their entry points."""
    from importlib.metadata import entry_points  # slow, and rarely needed

    found = {}
    for entry in sorted(entry_points(group=GROUP)):
        with _reported(entry.name):
            plugin = entry.load()
            if not isinstance(plugin, Plugin):
                raise MisuseError(f"{entry.value} is a {type(plugin).__name__}, not a Plugin")
            found[entry.name] = plugin
    return found


@cache
def models() -> Mapping[str, str]:
    """The functions of all plug-ins that read models; those of relaxpy have priority."""
    others = (plugin.models for plugin in installed().values())
    return dict(
        chain.from_iterable(t.items() for t in (*others, *(p.models for p in manifests().values())))
    )


@contextmanager
def _reported(name: str) -> Iterator[None]:
    """Turn errors into warnings, so that a broken package does not affect others."""
    try:
        yield
    except Exception as error:  # whatever an installed package raises at import
        message = f"the plug-in {name!r} cannot be loaded: {type(error).__name__}: {error}"
        warnings.warn(message, RelaxpyWarning, stacklevel=2)


_modules: Final[dict[Kind, list[ModuleType]]] = {}


def load(kind: Kind) -> list[ModuleType]:
    """The modules by which all plug-ins add something of this kind, imported once."""
    if kind not in _modules:
        ours = [import_module(module) for plugin in own() for module in getattr(plugin, kind)]
        found = _modules[kind] = ours  # now, so that a module may look up what nobody has
        for name, plugin in installed().items():
            for module in getattr(plugin, kind):
                with _reported(name):
                    found.append(import_module(module))
    return _modules[kind]


def targets() -> list[str]:
    """The names of the targets that plug-ins add."""
    return [name for plugin in installed().values() for name in plugin.targets]


def backend(target: str) -> Callable[[], Any]:
    """The factory of the back end of a target that a plug-in adds.

    Errors:
        KeyError: there is no such target.
        ImportError, AttributeError: the plug-in names a class that it does not have.
    """
    places = {name: place for p in installed().values() for name, place in p.targets.items()}
    module, _, name = places[target].partition(":")
    found: Callable[[], Any] = getattr(import_module(module), name)
    return found
