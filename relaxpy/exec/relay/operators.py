"""The run time of operators: each call runs as the Relax expression that translates it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.exec.compile import compile
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relay.op.registry import Op, OpRecord
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.translate import translated
from relaxpy.ir.relay.ty import Type

_Key: TypeAlias = Any


def run_operator(op: Op, args: Sequence[Any], attrs: Attrs, result: Type | None = None) -> Any:
    """Return the result of an operator for tensors and tuples of tensors.

    A user's computation receives the type of the `result`.

    Errors:
        RuntimeCheckError: the shapes do not fit, or the operator cannot be run.
    """
    completed = Attrs(op.record.text_attrs(attrs))
    key = tuple(map(_key, args))
    try:
        given = None if op.record.compute is None else result
        return _compiled(op, op.record, completed, key, given)(*args)
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


@lru_cache(maxsize=1024)
def _compiled(
    op: Op,
    record: OpRecord,
    attrs: Attrs,
    key: tuple[_Key, ...],
    ty: Type | None,
) -> Callable[..., Any]:
    """Return the compiled function of a call; `record` makes it outdated when it changes."""
    operands = record.operands or tuple(f"arg{i}" for i in range(len(key)))
    params = [rx.Var(n, _struct_info(k)) for n, k in zip(operands, key, strict=True)]
    builder = BlockBuilder()
    with builder.function("main", params):
        result = builder.emit(translated(builder, record, tuple(params), attrs, ty))
        builder.emit_func_output(result)
    return compile(builder.get())["main"]


def _struct_info(key: _Key) -> rx.StructInfo:
    match key:
        case (str() as dtype, shape):
            return rx.TensorStructInfo(shape, DataType(dtype))
        case _:
            return rx.TupleStructInfo(tuple(map(_struct_info, key)))
