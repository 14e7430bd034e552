"""The expressions, variables and datatypes that values and annotations denote in a kernel."""

from __future__ import annotations

import numpy as np

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import HANDLE, DataType
from relaxpy.ir.core.types import PrimType
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.script.language import records
from relaxpy.script.language.wording import describe


def typed_var(name: str, argument: object) -> Var | None:
    """Return the variable that an annotation such as `T.int32` or `T.handle` declares, or None."""
    if isinstance(argument, (records.DatatypeName, records.HandleName)):
        return Var(name, argument.dtype) if argument.dtype else None
    if isinstance(argument, Var):
        return argument if argument.name else argument.renamed(name)
    return None


def result_type(argument: object) -> DataType | None:
    """Return the datatype of a kernel's result, from its annotation; None if there is no result.

    Errors: MisuseError if it is not a datatype.
    """
    match argument:
        case None:
            return None
        case records.DatatypeName() | records.HandleName() | Var() | PrimType():
            return argument.dtype
        case str():
            return DataType(argument)
        case _:
            raise MisuseError(
                f"a kernel returns a scalar datatype, found {describe(argument)}", about=argument
            )


def scalar(value: object, dtype: DataType | None) -> PrimExpr:
    """Convert `value` to an expression; a Python number takes `dtype`.

    Errors: MisuseError if that is not possible.
    """
    if dtype is not None and isinstance(value, (bool, int, float, np.number, np.bool_)):
        return ops.const(value, dtype)
    if isinstance(value, str) and dtype != HANDLE:
        raise unexpected(value, "expected a scalar expression")
    expr = ops.convert(value)
    if not expr.dtype:
        raise MisuseError(f"`{expr}` has no value", about=value)
    return expr
