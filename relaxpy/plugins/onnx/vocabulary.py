"""Strings at import: which values are tensors of strings, and the strings that the model has.

A tensor of strings is one of int64, whose elements are places in the vocabulary of a call
(`exec/runtime/onnx_strings.py`). The strings of the model have their places at import.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from relaxpy.exec.runtime.onnx_strings import PREFIX
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import (
    Constant,
    DataflowVar,
    Expr,
    Function,
    ObjectStructInfo,
    PrimValue,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.tensors import as_size, literal, tensor_info
from relaxpy.plugins.onnx.registry import Value
from relaxpy.support.dataclass import dataclass

OBJECT = ObjectStructInfo()


def call(name: str, result: StructInfo, *args: Any) -> Expr:
    """A call of a packed function on strings."""
    made: Expr = R.call_pure_packed(PREFIX + name, *map(_argument, args), sinfo_args=[result])
    return made


def _argument(value: Any) -> Any:
    if isinstance(value, int):
        return PrimValue(as_size(value))
    return StringImm(value) if isinstance(value, str) else value


def storage(dtype: str) -> str:
    """The datatype in Relax of tensors of a datatype of ONNX, "string" for strings."""
    return "int64" if dtype == "string" else dtype


def shaped_as(x: Expr, dtype: str) -> TensorStructInfo:
    """The struct info of a tensor that has the shape of another."""
    info = tensor_info(x)
    return TensorStructInfo(info.shape, DataType(dtype), ndim=info.ndim)


@dataclass(eq=False)
class Strings:
    """The strings of a model, and the values that are tensors or sequences of strings."""

    #: The vocabulary of a call, an object.
    vocabulary: Var
    #: The places of the strings of the model. Padding is 0, so the empty string is the first.
    places: dict[str, int] = field(default_factory=lambda: {"": 0})
    values: set[Value] = field(default_factory=set)
    _is_read: bool = False

    def codes(self, texts: Iterable[str]) -> list[int]:
        """The places of strings of the model."""
        return [self.places.setdefault(text, len(self.places)) for text in texts]

    def constant(self, texts: Iterable[str], shape: Sequence[int]) -> Constant:
        """A tensor of strings that is known at import."""
        result = literal(np.array(self.codes(texts), np.int64).reshape(tuple(shape)))
        self.values.add(result)
        return result

    def call(self, name: str, result: StructInfo, *args: Any) -> Expr:
        """A call of a packed function that reads or adds strings."""
        self._is_read = True
        return call(name, result, self.vocabulary, *args)

    def with_vocabulary(self, module: IRModule) -> IRModule:
        """The module, whose function `main` begins with the vocabulary if a function reads it."""
        if not self._is_read:
            return module
        words = json.dumps(list(self.places), ensure_ascii=False)
        binding = VarBinding(self.vocabulary, call("vocabulary", OBJECT, words))
        main = module["main"]
        assert isinstance(main, Function)
        first, *others = main.body.blocks
        blocks = (replace(first, bindings=(binding, *first.bindings)), *others)
        module["main"] = replace(main, body=replace(main.body, blocks=blocks))
        return module


def vocabulary_var(*, is_dataflow: bool) -> Var:
    """The variable of the vocabulary, which a dataflow block binds or another one."""
    return (DataflowVar if is_dataflow else Var)("vocabulary", OBJECT)
