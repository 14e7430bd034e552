"""Calls of kernels that tensor expressions define: `BlockBuilder.call_te` and legalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.nodes import (
    Call,
    DataTypeImm,
    Expr,
    GlobalVar,
    PrimStructInfo,
    ShapeStructInfo,
    StringImm,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from relaxpy.ir.relax.op.call import call_tir, call_tir_with_grad
from relaxpy.ir.relax.relations.shape_vars import variables_of
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import create_prim_func
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, IterVar
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import For, LetStmt
from relaxpy.ir.tir.substitution import substitute

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

_LOWER = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel of a module, and what a call of it says, over the kernel's own shape variables."""

    gvar: GlobalVar
    func: PrimFunc
    outputs: tuple[te.Tensor, ...]
    several: bool
    scalars: tuple[tir.Var, ...]
    sizes: tuple[tir.Var, ...]


@dataclass(slots=True)
class KernelTable:
    """The kernels that a builder made by legalisation, by the function and the kinds of arguments.

    `numbers` stand for the shape variables of the arguments, in the order of their occurrence.
    """

    made: dict[object, _Kernel] = field(default_factory=dict)
    numbers: dict[tuple[int, DataType], tir.Var] = field(default_factory=dict)

    def number(self, index: int, var: tir.Var) -> tir.Var:
        """What stands for the variable that occurs as number `index`."""
        key = index, var.dtype
        if key not in self.numbers:
            self.numbers[key] = var.renamed(f"size{index}")
        return self.numbers[key]


class _Arguments:
    """What a function of tensors is called with: placeholders for tensors, values for the rest.

    Shape variables are replaced by what `rename` gives for each, so that the kernel owns its sizes.
    """

    def __init__(self, builder: BlockBuilder, rename: Callable[[int, tir.Var], tir.Var]) -> None:
        self.builder = builder
        self.rename = rename
        self.sizes: dict[tir.Var, tir.Var] = {}
        self.operands: list[Expr] = []
        self.params: list[te.Tensor | tir.Var] = []
        self.vdevice: object = None

    def convert(self, value: object) -> Any:
        """`value` as the function takes it.

        Errors:
            MisuseError (also TypeError): nothing there stands for it.
        """
        if isinstance(value, Expr):
            return self._expr(value)
        if isinstance(value, (list, tuple)):
            return [self.convert(v) for v in value]
        if isinstance(value, tir.PrimExpr):
            return self._own(value)
        if isinstance(value, np.generic):
            return value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Mapping):
            return {k: self.convert(v) for k, v in value.items()}
        raise MisuseError(
            f"a tensor expression takes no {type(value).__name__}, found {value!r:.60}", about=value
        )

    def _expr(self, expr: Expr) -> Any:
        if isinstance(expr, Tuple):
            return [self.convert(f) for f in expr.fields]
        if isinstance(expr, StringImm):
            return expr.value
        if isinstance(expr, DataTypeImm):
            return str(expr.value)
        if expr.struct_info is None:
            expr = self.builder.normalize(expr)
        info = self.builder.struct_info_of(expr)
        match info:
            case TensorStructInfo():
                return self._tensor(expr, info)
            case ShapeStructInfo(values=values) if values is not None:
                return [self._own(v) for v in values]
            case PrimStructInfo(value=value) if value is not None:
                return self._own(value)
            case PrimStructInfo(dtype=dtype):
                return self._operand(expr, None, dtype)
            case TupleStructInfo(fields=fields):
                return [self._expr(TupleGetItem(expr, i)) for i in range(len(fields))]
            case _:
                raise MisuseError(f"a tensor expression takes no value of {info}", about=expr)

    def _tensor(self, expr: Expr, info: TensorStructInfo) -> object:
        shape = info.get_shape()
        if shape is None or info.dtype.is_void:
            raise MisuseError(
                f"a tensor expression needs shape and datatype of its operands, found {info}",
                hint="say what they are with R.match_cast first",
                about=expr,
            )
        self.vdevice = self.vdevice or info.vdevice
        return self._operand(expr, tuple(map(self._own, shape)), info.dtype)

    def _operand(self, expr: Expr, shape: tuple[tir.PrimExpr, ...] | None, dtype: DataType) -> Any:
        """What stands for an operand, which has a shape if it is a tensor."""
        if shape is None:
            param: te.Tensor | tir.Var = tir.Var(self._name(expr, _LOWER), dtype)
        else:
            param = te.placeholder(shape, dtype, self._name(expr, _LOWER.upper()))
        self.operands.append(expr)
        self.params.append(param)
        return param

    def _name(self, expr: Expr, letters: str) -> str:
        if isinstance(expr, Var):
            return expr.name_hint
        index = len(self.operands)
        return letters[index] if index < len(letters) else f"tensor_input_{index}"

    def _own(self, value: tir.PrimExpr) -> tir.PrimExpr:
        """`value` over the kernel's own variables."""
        for var in variables_of(value):
            if var not in self.sizes:
                self.sizes[var] = self.rename(len(self.sizes), var)
        return substitute(value, self.sizes)


class _Kinds(_Arguments):
    """Arguments with, in place of placeholders, all that a kernel depends on."""

    @override
    def _operand(self, expr: Expr, shape: tuple[tir.PrimExpr, ...] | None, dtype: DataType) -> Any:
        self.operands.append(expr)
        return shape, dtype


def call_te(
    builder: BlockBuilder,
    func: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    name: str | None = None,
    attrs: Mapping[str, object] | None = None,
    reuse: bool = False,
) -> Call:
    """`R.call_tir` of the kernel that computes what `func` gives for the arguments.

    `func` receives placeholders for tensors, lists for shapes and tuples, scalar expressions for
    scalars, and everything else as it is; it gives a tensor or several. The kernel is entered into
    the builder's module, where equal ones are shared. With `reuse`, `func` promises to depend on
    its arguments alone, and a kernel made for the like before is called again.

    Errors:
        MisuseError: shape or datatype of a tensor is unknown, or `func` gives something else.
    """
    key: object = None
    if reuse:
        kinds = _Kinds(builder, builder.kernels.number)
        key = func, name, _kind(kinds.convert(args)), _kind(kinds.convert(kwargs))
        kernel = builder.kernels.made.get(key)
        if kernel is not None and builder.has_func(kernel.gvar, kernel.func):
            return _call_kernel(kernel, kinds)
    arguments = _Arguments(builder, lambda index, var: var.renamed(var.name))
    result = func(*[arguments.convert(a) for a in args], **arguments.convert(kwargs))
    kernel = _enter_kernel(builder, name or _name_of(func), result, arguments, attrs)
    if reuse:
        builder.kernels.made[key] = kernel
    return _call_kernel(kernel, arguments)


def with_gradient(call: Call, name: str, named: Mapping[str, object] | None) -> Call:
    """A call of a kernel, with the gradient registered as `name` for its tensor expressions."""
    gvar, operands, *sizes = call.args
    made = call_tir_with_grad(
        gvar, operands, call.sinfo_args[0], name, named, sizes[0] if sizes else None
    )
    assert isinstance(made, Call)
    return made


def _kind(value: object) -> object:
    """What two arguments have in common for which one kernel serves."""
    if isinstance(value, tir.PrimExpr):
        return value
    if isinstance(value, (list, tuple)):
        return tuple([_kind(v) for v in value])
    if isinstance(value, dict):
        return tuple((k, _kind(v)) for k, v in value.items())
    return type(value), repr(value)


def _name_of(func: Callable[..., Any]) -> str:
    """The function's name, or one that can stand in a program."""
    name = getattr(func, "__name__", "")
    return name if name.isidentifier() else "te_func"


def _enter_kernel(
    builder: BlockBuilder,
    name: str,
    result: object,
    arguments: _Arguments,
    attrs: Mapping[str, object] | None,
) -> _Kernel:
    several = isinstance(result, (list, tuple))
    outputs = tuple(result) if isinstance(result, (list, tuple)) else (result,)
    if not outputs:
        raise MisuseError(f"{name} gives no tensor")
    for k, output in enumerate(outputs):
        if not isinstance(output, te.Tensor):
            raise MisuseError(
                f"{name} gives tensors, found {type(output).__name__} {output!r:.60}", about=output
            )
        if output in arguments.params or output in outputs[:k]:
            raise MisuseError(f"{name} gives tensor {output.name} twice, or without computing it")
    func = create_prim_func([*arguments.params, *outputs], "int64").without_attr("global_symbol")
    scalars = _unbound_sizes(func)
    if scalars:
        func = func.with_fields(
            params=(*func.params, *scalars),
            buffer_map_items=(*func.buffer_map_items, *(None for _ in scalars)),
        )
    if attrs:
        func = func.with_attrs(attrs)
    sizes = tuple(arguments.sizes.values())
    return _Kernel(builder.add_func(func, name), func, outputs, several, scalars, sizes)


def _unbound_sizes(func: PrimFunc) -> tuple[tir.Var, ...]:
    """The shape variables that a kernel uses and neither its buffers nor its loops bind."""
    used: dict[tir.Var, None] = {}
    bound = set(func.params)
    for buffer in func.buffer_map.values():
        bound.update(s for s in buffer.shape if isinstance(s, tir.Var))
        used.update((v, None) for s in buffer.shape for v in variables_of(s))
    for node in walk(func.body):
        match node:
            case tir.Var():
                used[node] = None
            case Buffer():
                bound.add(node.data)
                used.update((v, None) for s in node.shape for v in variables_of(s))
            case For(loop_var=var) | IterVar(var=var) | LetStmt(var=var) | tir.Let(var=var):
                bound.add(var)
            case _:
                pass
    return tuple(var for var in used if var not in bound)


def _call_kernel(kernel: _Kernel, arguments: _Arguments) -> Call:
    """The call in terms of the shape variables around it."""
    meant = dict(zip(kernel.sizes, arguments.sizes, strict=True))
    infos = [
        TensorStructInfo(
            tuple(substitute(s, meant) for s in output.shape),  # type: ignore[arg-type]
            DataType(output.dtype),
            arguments.vdevice,
        )
        for output in kernel.outputs
    ]
    scalars = [meant.get(var, var) for var in kernel.scalars]
    made = call_tir(
        kernel.gvar,
        arguments.operands,
        infos if kernel.several else infos[0],
        tir_vars=scalars or None,
    )
    assert isinstance(made, Call)
    return made
