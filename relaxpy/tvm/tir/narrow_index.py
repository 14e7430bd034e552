"""ForceNarrowIndexToInt32: loops, indices and shapes of kernels in 32 bits."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.dtype import INT32, INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, rebuild, rewrite
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Allocate, AttrStmt, BlockRealize, BufferStore, For, LetStmt, Stmt
from relaxpy.support.dataclass import dataclass

_ARITHMETIC = (
    *(tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod),
    *(tir.Min, tir.Max),
)


@dataclass(frozen=True, slots=True)
class ForceNarrowIndexToInt32(Pass):
    """Makes variables of int64 in kernels, and indices, shapes and loops over them, int32.

    Errors:
        TransformError: a buffer holds integers of 64 bits.
    Rule:
        Arithmetic on variables and literals is that of int32, so it must not be larger; other
        values of int64 are computed as before, from variables that are cast. Integers that
        `call_tir` passes to kernels are cast, too.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        narrow = map_functions(mod, PrimFunc, _narrowed)
        if narrow is mod:
            return mod

        def fitted(func: rx.Function) -> Node:
            return rewrite(func, lambda node: _fitted(node, narrow))

        result = map_functions(narrow, rx.Function, fitted)
        return normalize_module(result)


def _fitted(call: Node, mod: IRModule) -> Node | None:
    """A call of a kernel with its scalars in the datatypes that the kernel takes."""
    match call:
        case rx.Call(args=(rx.GlobalVar() as kernel, operands, rx.ShapeExpr(values=values))):
            func = mod.functions_by_name.get(kernel.name_hint)
            if isinstance(func, PrimFunc):
                scalars = [p for p in func.params if func.buffer_of(p) is None][-len(values) :]
                pairs = zip(values, scalars, strict=True)
                cast = tuple(ops.cast_to(v, p.dtype) if p.dtype == INT32 else v for v, p in pairs)
                return rebuild(call, args=(kernel, operands, rx.ShapeExpr(cast)))
        case _:
            pass
    return None


def _narrowed(func: PrimFunc) -> PrimFunc:
    work = _Narrowing()
    params = tuple(map(work.variable, func.params))
    buffers = tuple(None if b is None else work.buffer(b) for b in func.buffer_map_items)
    body = work.node(func.body)
    new, old = (*params, *buffers, body), (*func.params, *func.buffer_map_items, func.body)
    if all(a is b for a, b in zip(new, old, strict=True)):
        return func
    return func.with_fields(params=params, buffer_map_items=buffers, body=body)


class _Narrowing:
    """The changes of one kernel: new variables and buffers for old ones."""

    def __init__(self) -> None:
        self.variables: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def variable(self, var: Var) -> Var:
        if var.dtype != INT64:
            return var
        if var not in self.variables:
            self.variables[var] = type(var)(var.name, INT32)
        return self.variables[var]

    def buffer(self, buffer: Buffer) -> Buffer:
        if buffer.dtype.is_int and buffer.dtype.bits > 32:
            raise TransformError(
                f"buffer {buffer.name} holds {buffer.dtype}: its elements cannot be narrowed",
                about=buffer,
            )
        if buffer not in self.buffers:
            shape, strides = (tuple(map(self.index, s)) for s in (buffer.shape, buffer.strides))
            offset, old = self.index(buffer.elem_offset), buffer
            new, before = (*shape, *strides, offset), (*old.shape, *old.strides, old.elem_offset)
            same = all(a is b for a, b in zip(new, before, strict=True))
            changed = rebuild(buffer, shape=shape, strides=strides, elem_offset=offset)
            self.buffers[buffer] = buffer if same else changed
        return self.buffers[buffer]

    def node(self, node: Any) -> Any:
        """A node with narrow variables; an expression keeps its datatype."""
        match node:
            case Buffer():
                return self.buffer(node)
            case PrimExpr():
                return self.value(node)
            case For(min=first, extent=extent):
                return self.with_indices(node, first, extent)
            case Range():
                return map_children(self.index, node)
            case IterVar(var=var):
                kept = self.variable(var)
                dom = None if node.dom is None else self.node(node.dom)
                same = kept is var and dom is node.dom
                return node if same else rebuild(node, var=kept, dom=dom)
            case BlockRealize(iter_values=values):
                return self.with_indices(node, *values)
            case BufferStore(indices=indices):
                return self.with_indices(node, *indices)
            case Allocate(extents=extents):
                return self.with_indices(node, *extents)
            case AttrStmt(value=value, attr_key="thread_extent" | "virtual_thread"):
                return self.with_indices(node, value)
            case LetStmt(var=Var(dtype=dtype) as var) if dtype == INT64:
                value, body = self.index(node.value), self.node(node.body)
                return rebuild(node, var=self.variable(var), value=value, body=body)
            case _:
                return map_children(self.node, node)

    def with_indices(self, node: Stmt | BufferLoad, *indices: PrimExpr) -> Any:
        """A node some of whose children are indices; the variable that it binds is narrow, too."""
        places = set(map(id, indices))
        variable = getattr(node, "loop_var", None)

        def changed(child: Node) -> Any:
            if child is variable:
                return self.variable(child)
            return self.index(child) if id(child) in places else self.node(child)

        return map_children(changed, node)

    def index(self, expr: Any) -> PrimExpr:
        """An index, of int32 if it was one of int64."""
        if isinstance(expr, tir.Ramp):
            return map_children(self.index, expr)
        narrow = self.narrow(expr, forced=True)
        if narrow is not None:
            return narrow
        value = self.value(expr)
        return ops.cast_to(value, INT32.spread(expr.dtype)) if expr.dtype.bits == 64 else value

    def narrow(self, expr: PrimExpr, *, forced: bool = False) -> PrimExpr | None:
        """`expr` of int64 in int32; None unless it is arithmetic on variables and literals.

        If it is `forced`, casts from any values to int64 may occur in it.
        """
        if expr.dtype != INT64:
            return None
        match expr:
            case Var():
                return self.variable(expr)
            case tir.IntImm(value=value):
                return ops.const(value, INT32) if -(2**31) <= value < 2**31 else None
            case tir.Cast(value=value):
                if not forced and not (isinstance(value, Var) and value.dtype.is_int):
                    return None
                return ops.cast_to(self.value(value), INT32)
            case tir.BinaryOpExpr(a=a, b=b) if isinstance(expr, _ARITHMETIC):
                x, y = self.narrow(a, forced=forced), self.narrow(b, forced=forced)
                return None if x is None or y is None else type(expr)(x, y)
            case _:
                return None

    def value(self, expr: PrimExpr) -> PrimExpr:
        """`expr` in its datatype, from narrow variables."""
        narrow = self.narrow(expr)
        if narrow is not None:
            return expr if isinstance(expr, tir.IntImm) else ops.cast_to(narrow, INT64)
        match expr:
            case BufferLoad(indices=indices):
                load: PrimExpr = self.with_indices(expr, *indices)
                return load
            case tir.Cast(value=value):
                inner = self.narrow(value)
                if inner is not None:
                    return ops.cast_to(inner, expr.dtype)
            case tir.CmpExpr(a=a, b=b):
                x, y = self.narrow(a), self.narrow(b)
                if x is not None and y is not None:
                    return type(expr)(x, y)
            case tir.Let(var=Var(dtype=dtype) as var) if dtype == INT64:
                value, body = self.index(expr.value), self.value(expr.body)
                return rebuild(expr, var=self.variable(var), value=value, body=body)
            case _:
                pass
        return map_children(self.node, expr)
