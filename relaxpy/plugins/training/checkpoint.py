"""Checkpoints of functions that build programs: their results are rematerialised for gradients."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from relaxpy.errors import BuilderStateError, MisuseError, unexpected
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Expr, Var
from relaxpy.support.entry import user_facing


@user_facing
def checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of `func(*args)`, rematerialised in the backward pass.

    Variables among the arguments are replaced by `R.grad.start_checkpoint` of them, and results, an
    expression or a list of them, by `R.grad.end_checkpoint`. Nothing is emitted.

    Errors:
        MisuseError (also TypeError): `func` is not a function, or does not return expressions.
    """
    return _between(func, args, kwargs, R.grad.start_checkpoint, R.grad.end_checkpoint)


@user_facing
def emit_checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As `checkpoint`, with its operators and results bound to variables by the current builder.

    Their names end in `_scp` and `_ecp`.

    Errors:
        BuilderStateError (also RuntimeError): no function is being built.
        MisuseError (also TypeError): `func` is not a function, or does not return expressions.
    """
    builder = _current()

    def start(var: Var) -> Var:
        return builder.emit(R.grad.start_checkpoint(var), f"{var.name_hint}_scp")

    def end(value: Expr) -> Var:
        var = value if isinstance(value, Var) else builder.emit(value)
        return builder.emit(R.grad.end_checkpoint(var), f"{var.name_hint}_ecp")

    return _between(func, args, kwargs, start, end)


@user_facing
def emit_checkpoint_sequential(
    functions: Sequence[Callable[[Any], Any]],
    segments: int | Sequence[int],
    input: Expr,
    checkpoint_last: bool = False,
) -> Var:
    """Apply functions one after the other, with a checkpoint around each segment of them.

    `segments` are the indices at which segments begin, or their number n: each but the last has
    len(functions) // n functions, and if that leaves a rest, it is one more segment. The last
    segment has a checkpoint only with `checkpoint_last`.

    Errors:
        BuilderStateError (also RuntimeError): no function is being built.
        MisuseError (also TypeError, ValueError): there are no functions, fewer than segments, or
            the indices do not begin with 0 and increase.
    """
    builder = _current()
    starts = _starts(functions, segments)
    value: Any = input
    for start, end in zip(starts, [*starts[1:], len(functions)], strict=True):

        def segment(value: Any, chosen: Sequence[Callable[[Any], Any]]) -> Any:
            return reduce(lambda result, function: function(result), chosen, value)

        chosen = functions[start:end]
        if end < len(functions) or checkpoint_last:
            value = emit_checkpoint(segment, value, chosen=chosen)
        else:
            value = segment(value, chosen)
    return value if isinstance(value, Var) else builder.emit(value)


def _starts(functions: Sequence[object], segments: int | Sequence[int]) -> list[int]:
    """The indices at which segments begin."""
    count = len(functions)
    if isinstance(segments, int) and not isinstance(segments, bool) and 0 < segments <= count:
        return list(range(0, count, count // segments))
    if isinstance(segments, (list, tuple)):
        starts = list(segments[:-1] if segments and segments[-1] == count else segments)
        limits = [-1, *starts, count]
        if starts[:1] == [0] and all(map(operator.lt, limits, limits[1:])):
            return starts
    raise unexpected(
        segments,
        f"segments are a number from 1 to {count}, or increasing indices below that from 0",
    )


def _between(
    func: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    start: Callable[[Var], Any],
    end: Callable[[Expr], Any],
) -> Any:
    if not callable(func):
        raise unexpected(func, "a checkpoint is around a function")
    result = func(
        *(start(arg) if isinstance(arg, Var) else arg for arg in args),
        **{key: start(arg) if isinstance(arg, Var) else arg for key, arg in kwargs.items()},
    )
    if isinstance(result, (list, tuple)):
        return [end(value) if isinstance(value, Expr) else value for value in result]
    if not isinstance(result, Expr):
        raise MisuseError(
            f"the function of a checkpoint returns expressions, found {result!r:.60}", about=func
        )
    return end(result)


def _current() -> BlockBuilder:
    builder = BlockBuilder.current()
    if builder is None:
        raise BuilderStateError(
            "a checkpoint is emitted where no function is being built",
            hint="call it inside `with builder.function(...)`",
        )
    return builder
