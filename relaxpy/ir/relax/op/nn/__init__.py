"""The operators of neural networks, `relax.nn.*`, each module one family."""

from pkgutil import iter_modules, resolve_name
from typing import Any

from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.nn.activation import relu6

__all__ = ["relu6"]

for _family in iter_modules(__path__):
    resolve_name(f"{__name__}.{_family.name}")


def __getattr__(name: str) -> Any:
    """The operator registered as `relax.nn.` and this name."""
    return getattr(R.nn, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(R.nn)})
