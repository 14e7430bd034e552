"""Calls of kernels that are defined by tensor expressions, for `call_te` and legalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import set_fields
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.ops.call import call_tir, call_tir_with_grad
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.normalize import note_fit
from relaxpy.ir.relax.nodes.expr import evaluated
from relaxpy.ir.relax.relations.shape_vars import sizes_of, variables_of
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import are_values_as_written, create_prim_func
from relaxpy.ir.te.topi.elementwise import identity
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import For, LetStmt
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.missing import described

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

_LOWER = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel of no module yet, with the outputs of its calls over its own `shape_vars`."""

    func: PrimFunc
    outputs: tuple[rx.TensorStructInfo, ...]
    returns_tuple: bool
    scalars: tuple[tir.Var, ...]
    shape_vars: tuple[tir.Var, ...]


@dataclass(frozen=True, slots=True)
class _KernelOfModule:
    """A kernel that a builder has added to its module.

    `out_sinfos` has the struct infos of outputs by the shape variables of a caller, and the device.
    """

    gvar: rx.GlobalVar
    kernel: _Kernel
    signature: rx.StructInfo
    out_sinfos: dict[object, rx.StructInfo] = field(default_factory=dict)


KernelTable: TypeAlias = dict[object, _KernelOfModule]
"""The kernels that a builder can reuse, by the function and the kinds of its arguments.

Two lists of arguments are of the same kind if they are equal after their shape variables are
replaced by canonical ones, in the order of their occurrence.
"""


@dataclass(slots=True, eq=False)
class _Request:
    """A kernel that is looked up by `key`, and otherwise lowered by `lower`."""

    key: object
    lower: Callable[[], _Kernel] | None

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Request) and self.key == other.key

    @override
    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=1 << 8)
def _kept(request: _Request) -> _Kernel:
    assert request.lower is not None
    return request.lower()


def _shared(key: object, lower: Callable[[], _Kernel]) -> _Kernel:
    """The kernel of a key, which modules share: lowered only if it is not kept."""
    request = _Request(key, lower)
    try:
        return _kept(request)
    finally:
        request.lower = None  # which refers to a builder


@lru_cache(maxsize=1 << 10)
def _canonical_var(index: int, dtype: DataType, is_size: bool) -> tir.Var:
    """The canonical variable for the one of this kind that occurs as number `index`."""
    return (tir.SizeVar if is_size else tir.Var)(f"size{index}", dtype)


class _Arguments:
    """Arguments of a function of tensors: placeholders for tensors, values for the rest.

    `rename` gives the kernel's own variable for each shape variable. A dimension of a tensor is a
    SizeVar while the kernel is built, which simplifies its shapes; `plain` has its replacement.
    """

    def __init__(self, builder: BlockBuilder, rename: Callable[[int, tir.Var], tir.Var]) -> None:
        self.builder = builder
        self.rename = rename
        self.sizes = builder.context.sizes
        self.shape_vars: dict[tir.Var, tir.Var] = {}
        self.plain: dict[tir.Var, tir.Var] = {}
        self.operands: list[rx.Expr] = []
        self.params: list[te.Tensor | tir.Var] = []
        self.vdevice: object = None

    def convert(self, value: object) -> Any:
        """`value` as the function takes it.

        Errors:
            MisuseError (also TypeError): tensor expressions have no such values.
        """
        if isinstance(value, rx.Expr):
            return self._expr(value)
        if isinstance(value, (list, tuple)):
            return [self.convert(v) for v in value]
        if isinstance(value, tir.PrimExpr):
            return self._renamed(value)
        if isinstance(value, np.generic):
            return value.item()
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Mapping):
            return {k: self.convert(v) for k, v in value.items()}
        raise unexpected(value, f"a tensor expression takes no {type(value).__name__}")

    def _expr(self, expr: rx.Expr) -> Any:
        if isinstance(expr, rx.Tuple):
            return [self.convert(f) for f in expr.fields]
        if isinstance(expr, rx.StringImm):
            return expr.value
        if isinstance(expr, rx.DataTypeImm):
            return str(expr.value)
        if expr.struct_info is None:
            expr = self.builder.normalize(expr)
        sinfo = self.builder.struct_info_of(expr)
        match sinfo:
            case rx.TensorStructInfo():
                return self._tensor(expr, sinfo)
            case rx.ShapeStructInfo(values=values) if values is not None:
                return [self._renamed(v) for v in values]
            case rx.PrimStructInfo(value=value) if value is not None:
                return self._renamed(value)
            case rx.PrimStructInfo(dtype=dtype):
                return self._operand(expr, None, dtype)
            case rx.TupleStructInfo(fields=fields):
                return [self._expr(rx.TupleGetItem(expr, i)) for i in range(len(fields))]
            case _:
                raise MisuseError(f"a tensor expression takes no value of {sinfo}", about=expr)

    def _tensor(self, expr: rx.Expr, sinfo: rx.TensorStructInfo) -> object:
        shape = sinfo.get_shape()
        if shape is None or sinfo.dtype.is_void:
            raise MisuseError(
                f"a tensor expression needs the shape and datatype of its operands, found {sinfo}",
                hint="declare them with R.match_cast first",
                about=expr,
            )
        self.vdevice = self.vdevice or sinfo.vdevice
        return self._operand(expr, tuple(map(self._renamed, shape)), sinfo.dtype)

    def _operand(
        self, expr: rx.Expr, shape: tuple[tir.PrimExpr, ...] | None, dtype: DataType
    ) -> Any:
        """The parameter for an operand, which has a shape if it is a tensor."""
        if shape is None:
            param: te.Tensor | tir.Var = tir.Var(self._name(expr, _LOWER), dtype)
        else:
            param = te.placeholder(shape, dtype, self._name(expr, _LOWER.upper()))
        self.operands.append(expr)
        self.params.append(param)
        return param

    def _name(self, expr: rx.Expr, letters: str) -> str:
        if isinstance(expr, rx.Var):
            return expr.name_hint
        index = len(self.operands)
        return letters[index] if index < len(letters) else f"tensor_input_{index}"

    def _renamed(self, value: tir.PrimExpr) -> tir.PrimExpr:
        """`value` over the kernel's own shape variables."""
        if isinstance(value, tir.IntImm):
            return value
        for var in variables_of(value):
            if var not in self.shape_vars:
                is_size = var in self.sizes and not isinstance(var, tir.SizeVar)
                known = tir.SizeVar(var.name, var.dtype) if is_size else var
                self.shape_vars[var] = self.rename(len(self.shape_vars), known)
                if is_size:
                    self.plain[self.shape_vars[var]] = var.renamed(var.name)
        return substitute(value, self.shape_vars)


class _ArgumentKinds(_Arguments):
    """Arguments with a shape and a datatype instead of each tensor."""

    @override
    def _operand(
        self, expr: rx.Expr, shape: tuple[tir.PrimExpr, ...] | None, dtype: DataType
    ) -> Any:
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
) -> rx.Call:
    """`R.call_tir` of the kernel that computes the result of `func`; see `BlockBuilder.call_te`.

    With `reuse`, `func` promises to depend on its arguments alone, and a kernel that was built for
    arguments of the same kinds is called again.

    Errors:
        MisuseError: the shape or datatype of a tensor is unknown, or `func` does not return
            tensors.
    """
    called = name or _name_of(func)

    def own() -> _Arguments:
        return _Arguments(builder, lambda index, var: var.renamed(var.name))

    if not reuse:
        arguments = own()
        kernel = _lowered(called, func, args, kwargs, arguments, captures=True)
        func_with_attrs = kernel.func.with_attrs(attrs) if attrs else kernel.func
        gvar = builder.add_func(func_with_attrs, called)
        return _call_kernel(_of_module(builder, gvar, kernel), arguments)
    kinds = _ArgumentKinds(
        builder, lambda index, var: _canonical_var(index, var.dtype, isinstance(var, tir.SizeVar))
    )
    kind = _kind(kinds.convert(args)), _kind(kinds.convert(kwargs))
    key = func, name, kind, _kind(dict(attrs or {})), are_values_as_written()
    known = builder.kernels.get(key)
    if known is None or not builder.has_func(known.gvar, known.kernel.func):
        # Names are part of the key, so that they do not depend on other modules.
        names = tuple(arg.name_hint if isinstance(arg, rx.Var) else "" for arg in kinds.operands)
        shared_key = key, names, tuple(var.name for var in kinds.shape_vars), te.tagged("")

        def lower() -> _Kernel:
            kernel = _lowered(called, func, args, kwargs, own(), captures=False)
            return replace(kernel, func=kernel.func.with_attrs(attrs)) if attrs else kernel

        kernel = _shared(shared_key, lower)
        known = _of_module(builder, builder.add_func(kernel.func, called), kernel)
        builder.kernels[key] = known
    return _call_kernel(known, kinds)


def _of_module(builder: BlockBuilder, gvar: rx.GlobalVar, kernel: _Kernel) -> _KernelOfModule:
    return _KernelOfModule(gvar, kernel, builder.context.signatures[gvar.name_hint])


def with_gradient(call: rx.Call, name: str, kwargs: Mapping[str, object] | None) -> rx.Call:
    """A call of a kernel with the gradient that is registered as `name`."""
    gvar, operands, *tir_vars = call.args
    return call_tir_with_grad(gvar, operands, call.sinfo_args[0], name, kwargs, *tir_vars)


def _kind(value: object) -> object:
    """A key that is equal for arguments for which the same kernel is right."""
    if isinstance(value, tir.PrimExpr):
        return value
    if isinstance(value, (list, tuple)):
        return tuple([_kind(v) for v in value])
    if isinstance(value, dict):
        return tuple((k, _kind(v)) for k, v in value.items())
    return type(value), repr(value)


def _name_of(func: Callable[..., Any]) -> str:
    """The name of the function if it is an identifier, or else a general one."""
    name = getattr(func, "__name__", "")
    return name if name.isidentifier() else "te_func"


def _lowered(
    name: str,
    compute: Callable[..., Any],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    arguments: _Arguments,
    *,
    captures: bool,
) -> _Kernel:
    """The kernel of a function of tensors, which may capture shape variables."""
    result = compute(*[arguments.convert(a) for a in args], **arguments.convert(kwargs))
    returns_tuple = isinstance(result, (list, tuple))
    outputs = tuple(result) if isinstance(result, (list, tuple)) else (result,)
    if not outputs:
        raise MisuseError(f"{name} does not return a tensor")
    for k, output in enumerate(outputs):
        if not isinstance(output, te.Tensor):
            raise MisuseError(f"{name} returns tensors, found {described(output)}", about=output)
        if output in arguments.params or output in outputs[:k]:
            outputs = (*outputs[:k], identity(output), *outputs[k + 1 :])
    func = create_prim_func([*arguments.params, *outputs], "int64").without_attr("global_symbol")
    func = substitute(func, arguments.plain)
    is_closed = not (captures or arguments.shape_vars)
    scalars = () if is_closed else _unbound_shape_vars(func)
    if scalars:
        func = func.with_fields(
            params=(*func.params, *scalars),
            buffer_map_items=(*func.buffer_map_items, *(None for _ in scalars)),
        )
    plain = arguments.plain
    shape_vars = tuple(plain.get(var, var) for var in arguments.shape_vars.values())
    sinfos = tuple(
        rx.TensorStructInfo(
            tuple(substitute(size, plain) for size in output.shape), DataType(output.dtype)
        )
        for output in outputs
    )
    return _Kernel(func, sinfos, returns_tuple, scalars, shape_vars)


def _unbound_shape_vars(func: PrimFunc) -> tuple[tir.Var, ...]:
    """The shape variables that a kernel uses and that neither its buffers nor its loops bind."""
    used: dict[tir.Var, None] = {}
    bound = set(func.params)
    for buffer in func.buffer_map.values():
        sizes = _symbolic_sizes(buffer)
        bound.update(s for s in sizes if isinstance(s, tir.Var))
        used.update((v, None) for s in sizes for v in variables_of(s))
    for node in walk(func.body):
        match node:
            case tir.Var():
                used[node] = None
            case Buffer():
                bound.add(node.data)
                used.update((v, None) for s in _symbolic_sizes(node) for v in variables_of(s))
            case For(loop_var=var) | IterVar(var=var) | LetStmt(var=var) | tir.Let(var=var):
                bound.add(var)
            case _:
                pass
    return tuple(var for var in used if var not in bound)


def _symbolic_sizes(buffer: Buffer) -> list[tir.PrimExpr]:
    return [size for size in buffer.shape if not isinstance(size, tir.IntImm)]


def _call_kernel(known: _KernelOfModule, arguments: _Arguments) -> rx.Call:
    """The call of a kernel with arguments over the shape variables of the caller."""
    kernel = known.kernel
    images = dict(zip(kernel.shape_vars, arguments.shape_vars, strict=True))
    key = arguments.vdevice, *arguments.shape_vars
    sinfo = known.out_sinfos.get(key)
    if sinfo is None:
        outputs = tuple(
            rx.TensorStructInfo(
                tuple(substitute(s, images) for s in sizes_of(output)),
                output.dtype,
                arguments.vdevice,
            )
            for output in kernel.outputs
        )
        sinfo = rx.TupleStructInfo(outputs) if kernel.returns_tuple else outputs[0]
        known.out_sinfos[key] = sinfo
    scalars = tuple(images.get(var, var) for var in kernel.scalars)
    args = (
        known.gvar,
        rx.Tuple(tuple(arguments.operands)),
        *([rx.ShapeExpr(scalars)] if scalars else []),
    )
    call = rx.Call(call_tir.op, args, sinfo_args=(sinfo,), struct_info=sinfo)
    set_fields(call, sinfo_is_derived=True)  # by the rule of call_tir, which checks nothing here
    note_fit(call, known.signature)
    return evaluated(call)
