"""The dimensions of a function that a program with explicit shapes keeps in memory."""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import children
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations.shape_vars import nested_infos, sizes_of, variables_of
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, SeqStmt
from relaxpy.ir.tir.substitution import substitute


class ShapeSlots:
    """The number of each dimension that is not a literal: variables, and expressions over them.

    `known` are those whose value has been stored at the position of the program that is lowered.
    """

    def __init__(self, func: rx.Function) -> None:
        self._numbers: dict[tir.PrimExpr, int] = {}
        self._exprs: list[tir.PrimExpr] = []
        self.known: set[int] = set()
        for expr in _dimensions(func):
            self._enter(expr)
        self._users: dict[int, list[int]] = {}
        self._missing: dict[int, int] = {}
        self._ready: list[int] = []
        for number, expr in enumerate(self._exprs):
            if not isinstance(expr, tir.Var):
                self._await(number, variables_of(expr))

    def __len__(self) -> int:
        return len(self._exprs)

    def _enter(self, expr: tir.PrimExpr) -> None:
        if isinstance(expr, tir.IntImm) or self._find(expr) is not None:
            return
        self._numbers[expr] = len(self._exprs)
        self._exprs.append(expr)

    def _find(self, expr: tir.PrimExpr) -> int | None:
        return self._numbers.get(expr)

    def number(self, expr: tir.PrimExpr) -> int:
        """The number of a dimension of the function."""
        return self._numbers[expr]

    def _await(self, number: int, variables: tuple[tir.Var, ...]) -> None:
        """Note the variables that an expression needs; some may never be stored."""
        self._missing[number] = len(variables)
        if not variables:
            self._ready.append(number)
        for var in variables:
            operand = self._find(var)
            if operand is not None:
                self._users.setdefault(operand, []).append(number)

    def store(self, number: int) -> None:
        """Note that the value of a variable has been stored."""
        self.known.add(number)
        for user in self._users.pop(number, ()):
            self._missing[user] -= 1
            if not self._missing[user]:
                self._ready.append(user)

    def computable(self) -> list[int]:
        """The expressions that can be computed since the last call of this method."""
        ready, self._ready = sorted(self._ready), []
        return ready

    def kernel(self, numbers: list[int]) -> PrimFunc:
        """A kernel that stores the values of these expressions after the stored variables."""
        buffer = decl_buffer((ops.const(len(self), INT64),), "int64", "H")
        loads = {
            var: BufferLoad(buffer, (ops.const(number, INT64),))
            for number, var in enumerate(self._exprs)
            if isinstance(var, tir.Var)
        }
        stores = [
            BufferStore(
                buffer,
                ops.cast_to(substitute(self._exprs[number], loads), INT64),
                (ops.const(number, INT64),),
            )
            for number in numbers
        ]
        body = stores[0] if len(stores) == 1 else SeqStmt(tuple(stores))
        heap = tir.Var("H", "handle")
        kernel = PrimFunc((heap,), body, buffer_map={heap: buffer})
        return kernel.with_attr("tir.is_host_func", True)


def _dimensions(func: rx.Function) -> Iterator[tir.PrimExpr]:
    """The dimensions in parameters, casts, shapes, scalars and the result, in order."""
    for param in func.params:
        if param.struct_info is not None:
            yield from sinfo_dimensions(param.struct_info)
    yield from _expr_dimensions(func.body)
    if func.ret_struct_info is not None:
        yield from sinfo_dimensions(func.ret_struct_info)


def sinfo_dimensions(sinfo: rx.StructInfo) -> Iterator[tir.PrimExpr]:
    """The dimensions of a struct info, without those of functions."""
    yield from sizes_of(sinfo)
    if not isinstance(sinfo, rx.FuncStructInfo):
        for nested in nested_infos(sinfo):
            yield from sinfo_dimensions(nested)


def _expr_dimensions(node: object) -> Iterator[tir.PrimExpr]:
    match node:
        case rx.Function() | rx.Var() | rx.StructInfo():
            return
        case rx.MatchCast(value=value, struct_info=sinfo):
            yield from _expr_dimensions(value)
            yield from sinfo_dimensions(sinfo)
        case rx.VarBinding(value=value):
            yield from _expr_dimensions(value)
        case rx.ShapeExpr(values=values):
            yield from values
        case rx.PrimValue(value=value):
            if variables_of(value):
                yield value
        case rx.Expr() | rx.BindingBlock():
            for child in children(node):
                yield from _expr_dimensions(child)
        case _:
            return
