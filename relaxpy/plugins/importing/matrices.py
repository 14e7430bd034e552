"""Calls of the packed functions of matrices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from relaxpy.exec.runtime.matrices import PREFIX
from relaxpy.ir.relax.nodes import Expr, StringImm, TupleStructInfo
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.tensors import Size, tensor_of

#: The number of a result, its shape, its datatype (that of its parts), and whether it is complex.
Result = tuple[int, Sequence[Size], str, bool]


def call(
    name: str,
    tensors: Sequence[Expr],
    results: Sequence[Result],
    *,
    pairs: Sequence[int] = (),
    names: Sequence[str] = (),
    **options: Any,
) -> Expr:
    """The results that are used, or the only one.

    `pairs` are the operands that are complex, `names` the names of the last operands.
    """
    kinds = [(k, dtype, is_complex) for k, _, dtype, is_complex in results]
    text = json.dumps({**options, "complex": pairs, "names": names, "results": kinds})
    infos = [
        tensor_of([*sizes, *([2] if is_complex else [])], dtype)
        for _, sizes, dtype, is_complex in results
    ]
    info = infos[0] if len(infos) == 1 else TupleStructInfo(tuple(infos))
    found: Expr = R.call_pure_packed(PREFIX + name, StringImm(text), *tensors, sinfo_args=[info])
    return found
