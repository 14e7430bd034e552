"""Names of modules that are found on first use, so that importing the module stays fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from relaxpy.gc_pause import gc_paused
from relaxpy.missing import attribute_error


def located(names: Mapping[str, str]) -> dict[str, str]:
    """Return the locations, for `finder`, of names that are listed by their modules.

    `new=old` is another name for `old`; what is listed under the package itself are modules.
    """
    joints = {"relaxpy": "."}
    pairs = [(module, name.split("=")) for module, text in names.items() for name in text.split()]
    return {name[0]: f"{module}{joints.get(module, ':')}{name[-1]}" for module, name in pairs}


def finder(namespace: dict[str, Any], locations: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` (PEP 562) of the module whose globals are `namespace`.

    `locations` says where each name is: "module:attribute", or "module" for the module itself.

    Errors:
        AttributeError: by the function, of a name that has no location.
    """

    @gc_paused  # which would visit all that numpy and relaxpy have created for good
    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in locations:
            raise attribute_error(namespace["__name__"], name, locations)
        module, _, attribute = locations[name].partition(":")
        value: Any = import_module(module)
        if attribute:
            value = getattr(value, attribute)
        namespace[name] = value
        return value

    return __getattr__


def lister(namespace: Mapping[str, Any], locations: Mapping[str, str]) -> Callable[[], list[str]]:
    """The `__dir__` of a module: its names, also those that are not loaded yet."""
    return lambda: sorted({*namespace, *locations} - {"Any", "TYPE_CHECKING"})
