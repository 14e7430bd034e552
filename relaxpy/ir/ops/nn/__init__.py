"""The operators of neural networks, `relax.nn.*`, each module one family."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from relaxpy.ir.op_families import FAMILIES
from relaxpy.ir.ops.definition.registry import R

if TYPE_CHECKING:
    from relaxpy.ir.ops.nn.activation import relu6

__all__ = ["relu6"]


def __getattr__(name: str) -> Any:
    """The operator registered as `relax.nn.` and this name, a module, or the function `relu6`."""
    if f"\nnn.{name}:" in FAMILIES:
        return resolve_name(f"{__name__}.{name}:")
    if name == "relu6":
        return resolve_name(f"{__name__}.activation:{name}")
    return getattr(R.nn, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(R.nn)})
