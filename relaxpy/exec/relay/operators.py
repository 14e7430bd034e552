"""The run time of operators: each call runs as the Relax expression that translates it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.exec.compile import compile
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relay.op.registry import Op
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.translate import require_runnable, translated
from relaxpy.ir.relay.ty import Type

_Key: TypeAlias = Any


def run_operator(op: Op, args: Sequence[Any], attrs: Attrs, result: Type | None = None) -> Any:
    """Return the result of an operator for tensors and tuples of tensors.

    A user's computation receives the type of the `result`.

    Errors:
        RuntimeCheckError: the shapes do not fit, or the operator cannot be run.
    """
    require_runnable(op.record)
    completed = Attrs(op.record.text_attrs(attrs))
    key = tuple(map(_key, args))
    try:
        given = None if op.record.compute is None else result
        return _compiled(op, _Identity(op.record), _frozen(completed), key, given)(*args)
    except RelaxpyError as error:
        if isinstance(error, RuntimeCheckError):
            raise
        message = f"{op.name}: {error.diagnostic.message}"
        raise RuntimeCheckError(message, rule=error.diagnostic.rule) from None
    except RelationError as error:
        raise RuntimeCheckError(f"{op.name}: {error}", rule="RLY-28") from None


def _key(value: Any) -> _Key:
    """Return the datatype and the shape of a tensor, or those of the fields of a tuple."""
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if not isinstance(value, np.ndarray):
        raise RuntimeCheckError(f"expected a tensor, found {value!r:.60}", rule="RLY-35")
    return str(DataType(value.dtype)), value.shape


class _Identity:
    """A key that is equal for the same object only, and keeps it alive."""

    def __init__(self, subject: object) -> None:
        self.subject = subject

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.subject is other.subject

    @override
    def __hash__(self) -> int:
        return id(self.subject)


def _frozen(attrs: Attrs) -> tuple[tuple[str, Any], ...]:
    return tuple((name, _hashable(value)) for name, value in attrs.items())


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return "array", value.dtype.name, value.shape, value.tobytes()
    return tuple(map(_hashable, value)) if isinstance(value, tuple) else (type(value), value)


def _thawed(value: Any) -> Any:
    match value:
        case ("array", str() as name, tuple() as shape, bytes() as data):
            return np.frombuffer(data, name).reshape(shape)
        case (type(), plain):
            return plain
        case _:
            return tuple(map(_thawed, value))


@lru_cache(maxsize=1024)
def _compiled(
    op: Op,
    record: object,
    attrs: tuple[tuple[str, Any], ...],
    key: tuple[_Key, ...],
    ty: Type | None,
) -> Callable[..., Any]:
    """Return the compiled function of a call; `record` makes it outdated when it changes."""
    operands = op.record.operands or tuple(f"arg{i}" for i in range(len(key)))
    params = [rx.Var(n, _struct_info(k)) for n, k in zip(operands, key, strict=True)]
    table = Attrs({name: _thawed(value) for name, value in attrs})
    builder = BlockBuilder()
    with builder.function("main", params):
        result = builder.emit(translated(builder, op.record, tuple(params), table, ty))
        builder.emit_func_output(result)
    return compile(builder.get())["main"]


def _struct_info(key: _Key) -> rx.StructInfo:
    match key:
        case (str() as dtype, shape):
            return rx.TensorStructInfo(shape, DataType(dtype))
        case _:
            return rx.TupleStructInfo(tuple(map(_struct_info, key)))
