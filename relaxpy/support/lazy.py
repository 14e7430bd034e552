"""Names of modules that are found on first use, so that importing the module stays fast."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING as TYPE_CHECKING, Any

import relaxpy.support.imported  # noqa: F401  # it notes the time
from relaxpy.support.absent import instead_of
from relaxpy.support.gc_pause import gc_paused
from relaxpy.support.missing import (
    LOOKS_UP_NAMES as LOOKS_UP_NAMES,
    attribute_error,
    names_toml,
    part_of,
)


def face(namespace: dict[str, Any], table: str, lookup: str = "") -> None:
    """Make a module, whose globals are `namespace`, find its public names on first use (PEP 562).

    They are the `names` of a table in `names.toml`, which describes them. `lookup`,
    "module:function", says where a function is that takes the name of the module and one that is
    not listed: it returns its value, or raises.
    """
    text = names_toml().partition(f'["{table}"]')[2]
    names = text.partition('names = """')[2].partition('"""')[0]
    module, locations, others = "", {}, []
    for token in names.split():
        if token.endswith(":"):
            module = token[:-1]
        elif token == "*":
            others.append(module)
        else:
            name, _, old = token.partition("=")
            locations[name] = (
                f"{module}{old or name}" if module[-1] == "." else f"{module}:{old or name}"
            )
    find = finder(namespace, locations, others, lookup)
    namespace["__getattr__"] = find
    namespace["__dir__"] = lister(namespace, locations, others)


def submodule(package: str, name: str) -> ModuleType:
    """Import a module that a package does not list, as it needs an extra: a `lookup` of `face`.

    Errors:
        AttributeError: there is no such module.
    """
    module = f"{package}.{name}"
    if instead_of(module) or find_spec(module) is None:
        there = {found.name for found in iter_modules(import_module(package).__path__)}
        raise attribute_error(package, name, there - {name})
    return import_module(module)


def public_names(place: str) -> Collection[str]:
    """The public names of "module", and those of the dictionary "module:attribute"."""
    module, _, table = place.partition(":")
    loaded = import_module(module)
    if table or "__dir__" not in vars(loaded):
        names: Collection[str] = getattr(loaded, table or "__all__", ())
        if names:
            return names
    return [name for name in dir(loaded) if not name.startswith("_")]


def finder(
    namespace: dict[str, Any],
    locations: Mapping[str, str],
    others: Sequence[str] = (),
    lookup: str = "",
) -> Callable[[str], Any]:
    """The `__getattr__` (PEP 562) of the module whose globals are `namespace`.

    `locations` says where each name is: "module:attribute", or "module" for the module itself;
    `others` and `lookup` are those of `face`.

    Errors:
        AttributeError: by the function, of a name that has no location.
    """

    @gc_paused  # which would visit all that numpy and relaxpy have created for good
    def __getattr__(name: str) -> Any:  # noqa: N807
        if name == "__all__":
            found = _listed(locations, others)
            return sorted(known for known in found if not known.startswith("_"))
        if name not in locations:
            return _found_elsewhere(namespace, name, locations, others, lookup)
        module, _, attribute = locations[name].partition(":")
        value: Any = _imported(module, namespace["__name__"], name)
        for part in attribute.split(".") if attribute else ():
            value = getattr(value, part)
        namespace[name] = value
        return value

    return __getattr__


def _imported(place: str, module: str, name: str) -> ModuleType:
    """Import the module `place` for a name of `module`."""
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if (part := error.name or "").partition(".")[0] != "relaxpy" or part != part_of(part):
            raise
        raise attribute_error(module, name, hint=str(error)) from None


def _found_elsewhere(
    namespace: dict[str, Any],
    name: str,
    locations: Mapping[str, str],
    others: Sequence[str],
    lookup: str,
) -> Any:
    """The value of a name in one of `others`, which keeps it, or else the one `lookup` returns.

    No operator is kept: it may be defined again, or removed.
    """
    module = namespace["__name__"]
    for other in others if not name.startswith("_") else ():
        place, _, table = other.partition(":")
        loaded = import_module(place)
        if table:
            if name in (values := getattr(loaded, table)):
                return values[name]
        elif hasattr(loaded, "__getattr__") or name in public_names(other):
            with suppress(AttributeError, ImportError):
                value = getattr(loaded, name)
                if not isinstance(value, ModuleType) or name in public_names(other):
                    if name in vars(loaded):
                        namespace[name] = value
                    return value  # and no module that happens to be imported
    if lookup and not name.startswith("__"):
        place, _, function = lookup.partition(":")
        return getattr(_imported(place, module, name), function)(module, name)
    raise attribute_error(module, name, locations)


def _listed(locations: Mapping[str, str], others: Sequence[str]) -> set[str]:
    """The names of a module, without those of parts of relaxpy that are not installed."""
    there = {name for name, place in locations.items() if _is_installed(part_of(place))}
    return there.union(*(public_names(o) for o in others if _is_installed(part_of(o))))


@cache
def _is_installed(part: str) -> bool:
    try:
        return find_spec(part) is not None
    except ModuleNotFoundError:
        return False


def lister(
    namespace: Mapping[str, Any], locations: Mapping[str, str], others: Sequence[str] = ()
) -> Callable[[], list[str]]:
    """The `__dir__` of a module: its names, also those that are not loaded yet.

    Modules that are not listed are in the namespace only because something has imported them.
    """

    def __dir__() -> list[str]:  # noqa: N807
        imported = {name for name, value in namespace.items() if isinstance(value, ModuleType)}
        return sorted({*namespace} - imported - {"TYPE_CHECKING"} | _listed(locations, others))

    return __dir__
