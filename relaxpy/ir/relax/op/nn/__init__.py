"""The operators of neural networks, `relax.nn.*`, each module one family."""

from typing import TYPE_CHECKING, Any

from relaxpy.ir.relax.op.definition.registry import R

if TYPE_CHECKING:
    from relaxpy.ir.relax.op.nn.activation import relu6

__all__ = ["relu6"]


def __getattr__(name: str) -> Any:
    """The operator registered as `relax.nn.` and this name, or the function `relu6`."""
    if name == "relu6":
        from relaxpy.ir.relax.op.nn import activation

        return activation.relu6
    return getattr(R.nn, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(R.nn)})
