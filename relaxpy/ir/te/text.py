"""Kernels as text: functions of `T`'s statements, which the parser of programs reads.

`ir` cannot import the parser, so a text is read when a kernel is needed. The parameters of a text
are the buffers of the kernel, and values of Python: numbers, datatypes, options, functions of
expressions. One text can use another one as a statement, and as an expression if it ends in its
only return. `T.meta_var` names an expression without a variable in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from relaxpy.ir import hooks
from relaxpy.ir.tir import stmt
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.te.tensor import Tensor


class _Language:
    """`T`, which is imported when a text is read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(hooks.resolve("directives"), name)


T: Any = _Language()
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False)
class KernelText:
    """The text of a function, which Python never runs."""

    function: FunctionType

    def statements(self, **values: object) -> stmt.Stmt:
        """The statements of the text, with these values of its parameters."""
        bound = signature(self.function).bind(**values)
        bound.apply_defaults()
        found: stmt.Stmt = hooks.call("statements", self, bound.arguments)
        return found


def kernel_text(function: F) -> F:
    """A decorator: the function is a text of statements, as a macro of `T` is."""
    return KernelText(function)  # type: ignore[return-value, arg-type]


@kernel_text
def variable(value: Any) -> Any:
    """A buffer of one element, with an initial value."""
    buffer = T.decl_buffer((1,), value.dtype)
    buffer[0] = value
    return buffer


def written(
    name: str,
    outputs: Mapping[str, tuple[Sequence[Any], str]],
    inputs: Mapping[str, Tensor | None],
    text: Callable[..., None],
    **options: object,
) -> list[Tensor]:
    """The results of a kernel, of these shapes and datatypes.

    The parameters of `text` are its buffers, and the others. An input that is None has no buffer.
    """
    from relaxpy.ir.te.tensor import extern, whole  # the parser, which reads texts, needs none

    tensors = {parameter: tensor for parameter, tensor in inputs.items() if tensor is not None}

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> stmt.Stmt:
        assert isinstance(text, KernelText)
        buffers = dict(zip((*tensors, *outputs), (*ins, *outs), strict=True))
        return text.statements(**buffers, **options)

    shapes = [tuple(map(whole, shape)) for shape, _ in outputs.values()]
    dtypes = [dtype for _, dtype in outputs.values()]
    found = extern(shapes, list(tensors.values()), body, name, dtypes)
    return [found] if len(outputs) == 1 else list(found)
