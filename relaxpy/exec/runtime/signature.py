"""The parameters of a kernel, and the check of its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from typing_extensions import override

from relaxpy.errors import RuntimeCheckError, counted
from relaxpy.exec.runtime.arguments import check_layout, conversion, described, scalar
from relaxpy.exec.runtime.scalar import Scalar, ScalarEvaluator
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.dtype import INT64, Array
from relaxpy.ir.core.types import PointerType
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.ops import int_range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Param:
    """A parameter: an array if it has a buffer, else a number, or a handle of any object."""

    var: Var
    buffer: Buffer | None

    @property
    def name(self) -> str:
        """The name in the program."""
        return self.var.name if self.buffer is None else self.buffer.name

    @property
    def is_scalar(self) -> bool:
        """True if it is a number."""
        is_handle = isinstance(self.var.type_annotation, PointerType)
        return self.buffer is None and not is_handle and self.var.dtype.family != "handle"

    @property
    def sizes(self) -> list[str]:
        """The dimensions in the terms of the program."""
        shape = () if self.buffer is None else self.buffer.shape
        return [
            str(size.value) if isinstance(size, IntImm) else ShortText().prim(size, INT64)
            for size in shape
        ]

    @property
    def kind(self) -> str:
        """The datatype, and the shape of an array."""
        if self.buffer is None:
            return str(self.var.dtype)
        return f"{self.buffer.dtype}[{', '.join(self.sizes)}]"


@dataclass(frozen=True, slots=True, eq=False)
class KernelSignature:
    """The parameters of the kernel `name`, which are those of `func`."""

    name: str
    func: PrimFunc

    @property
    def params(self) -> list[Param]:
        """The parameters, in order."""
        return [Param(var, self.func.buffer_of(var)) for var in self.func.params]

    @override
    def __str__(self) -> str:
        params = ", ".join(f"{param.name}: {param.kind}" for param in self.params)
        return f"{self.name}({params})"

    def bind(self, args: Sequence[Value]) -> dict[Var, Scalar]:
        """The values of scalar parameters, and of the variables that the arguments determine.

        Errors:
            RuntimeCheckError: an argument does not fit its parameter.
        """
        try:
            return self._bind(args)
        except RuntimeCheckError as error:
            raise error.ruled("EV-27").located(self.func.span) from None

    def _bind(self, args: Sequence[Value]) -> dict[Var, Scalar]:
        if len(args) != len(self.func.params):
            expected = counted(len(self.func.params), "argument")
            raise RuntimeCheckError(
                f"{self.name} takes {expected}, found {len(args)}", rule="FN-11"
            )
        values: dict[Var, Scalar] = {}
        arrays: list[tuple[Param, Buffer, Array]] = []
        pairs = [*zip(self.params, args, strict=True)]
        for param, arg in pairs:  # scalars first: kernels on NumPy convert them before
            if param.is_scalar:
                kind = param.var.dtype.numpy().type
                values[param.var] = scalar(self.name, param.name, arg, kind)
        for param, arg in pairs:
            if param.buffer is not None:
                self._check_form(param, param.buffer, arg)
                arrays.append((param, param.buffer, arg))
        for _, buffer, array in arrays:
            for size, actual in layout_of(buffer, array):
                if isinstance(size, Var) and size not in values:
                    values[size] = self._in_range(size, actual)
        evaluate = ScalarEvaluator(values).value
        for param, buffer, array in arrays:
            for axis, (actual, size) in enumerate(zip(array.shape, buffer.shape, strict=True)):
                if actual != (expected := evaluate(size)):
                    is_literal = isinstance(size, IntImm)
                    text = expected if is_literal else f"{param.sizes[axis]} = {expected}"
                    raise RuntimeCheckError(
                        f"{self._declared(param)}, found {described(array)}: "
                        f"dimension {axis} should be {text}"
                    )
        for param, buffer, array in arrays:
            strides = tuple(map(evaluate, buffer.strides))
            title = f"{self.name}: {param.name}"
            check_layout(title, array, strides, evaluate(buffer.elem_offset))
        return values

    def _declared(self, param: Param) -> str:
        return f"{self.name}: {param.name} is {param.kind}"

    def _check_form(self, param: Param, buffer: Buffer, arg: Value) -> None:
        """Check the datatype and the rank of an argument."""
        expected, shape = (
            buffer.dtype.numpy(),
            f"({', '.join(param.sizes)}{',' * (buffer.ndim == 1)})",
        )
        if not isinstance(arg, np.ndarray):
            hint = f'pass an array: np.full({shape}, value, "{buffer.dtype}")'
        elif arg.dtype != expected:
            hint = f"convert it with {conversion(str(buffer.dtype))}"
        elif arg.ndim != buffer.ndim:
            hint = f"pass an array of {counted(buffer.ndim, 'dimension')}"
        else:
            return
        raise RuntimeCheckError(f"{self._declared(param)}, found {described(arg)}", hint=hint)

    def _in_range(self, size: Var, actual: int) -> int:
        low, high = int_range(size.dtype)
        if low <= actual <= high:
            return actual
        raise RuntimeCheckError(
            f"{self.name}: the argument for {size.name} is outside the range of {size.dtype}"
        )


def layout_of(buffer: Buffer, array: Array, offset: int = 0) -> Iterator[tuple[PrimExpr, int]]:
    """Pairs of each dimension, stride and offset of a buffer with that of the array.

    Units:
        offset  elements
    """
    yield from zip(buffer.shape, array.shape, strict=True)
    for stride, in_bytes in zip(buffer.strides, array.strides, strict=False):
        yield stride, in_bytes // array.itemsize
    yield buffer.elem_offset, offset
