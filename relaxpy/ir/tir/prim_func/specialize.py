"""Specialisation of kernels: values for parameters and for the shape variables of buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite, walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.stmt import DeclBuffer, LetStmt, Stmt
from relaxpy.ir.tir.substitution import substitute

if TYPE_CHECKING:
    from relaxpy.ir.tir.prim_func.function import PrimFunc

_FOLDED: dict[type[Node], Callable[[ExprLike, ExprLike], PrimExpr]] = {
    tir.Add: ops.add,
    tir.Sub: ops.sub,
    tir.Mul: ops.mul,
    tir.Div: ops.div,
    tir.Mod: ops.truncmod,
    tir.FloorDiv: ops.floordiv,
    tir.FloorMod: ops.floormod,
    tir.Min: ops.minimum,
    tir.Max: ops.maximum,
    tir.And: ops.all_of,
    tir.Or: ops.any_of,
}


def specialized(
    func: PrimFunc, param_map: Mapping[Var, ExprLike | Buffer], *, are_arguments: bool = False
) -> PrimFunc:
    """Specialise `func` for the values of parameters in `param_map`.

    If they `are_arguments` of a call in a well-formed program, computed dimensions need not be
    provably equal: they are compared when the kernel is called.

    Errors:
        MisuseError (also TypeError, ValueError): see `PrimFunc.specialize`.
    """
    check_type(param_map, Mapping, "param_map maps parameters to values")
    if not param_map:
        return func
    values = _Values(func)
    for param, value in param_map.items():
        if not isinstance(param, Var) or param not in func.params:
            raise MisuseError(f"{param!r:.60} is not a parameter of the function", about=param_map)
        values.enter(param, value)
    values.check(are_arguments=are_arguments)
    params = [p for p in func.params if p not in values.values and p not in values.pointers]
    buffers = {p: b for p, b in func.buffer_map.items() if p in params}
    body = values.with_pointers(func.body)
    partial = func.with_fields(
        params=tuple(params), buffer_map_items=tuple(buffers.get(p) for p in params), body=body
    )
    return substitute(partial, values.values, folded_literals)


def folded_literals(node: Node) -> Node | None:
    """Fold an operation on literals; division by zero is not folded."""
    match node:
        case tir.BinaryOpExpr(a=tir.ConstExpr(), b=tir.ConstExpr() as b):
            zero = isinstance(node, (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)) and b.value == 0
            if zero:
                return None
            if isinstance(node, tir.CmpExpr):
                return ops.compare(type(node), node.a, node.b)
            return _FOLDED[type(node)](node.a, node.b)
        case tir.Junction(a=tir.IntImm()) | tir.Junction(b=tir.IntImm()):
            return _FOLDED[type(node)](node.a, node.b)
        case tir.Not(a=tir.IntImm() as a):
            return ops.logical_not(a)
        case tir.Cast(value=tir.ConstExpr() as value, dtype=dtype):
            try:
                return ops.cast_to(value, dtype)
            except MisuseError:  # no number of that datatype: how it is converted, a run decides
                return None
        case tir.Select(condition=tir.IntImm(value=chosen)):
            return node.true_value if chosen else node.false_value
        case _:
            return None


class _Values:
    """The values of variables, derived from the values of parameters."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.values: dict[Var, PrimExpr] = {}
        self.pointers: dict[Var, PrimExpr] = {}
        self._derived: list[tuple[Buffer, PrimExpr, Buffer, PrimExpr]] = []

    def check(self, *, are_arguments: bool) -> None:
        """Check that expressions over variables have the declared values.

        Errors:
            MisuseError: a dimension of a buffer is another one.
        """
        for old, old_value, new, new_value in self._derived:
            equal = prove_equal(substitute(old_value, self.values), new_value)
            if equal is False or (equal is None and not are_arguments):
                raise MisuseError(
                    f"buffer {old.name} has `{old_value}`, found `{new_value}`; only a variable "
                    "dimension can be specialised",
                    about=new,
                )

    def enter(self, param: Var, value: ExprLike | Buffer) -> None:
        buffer = self.func.buffer_of(param)
        if isinstance(value, Buffer):
            if buffer is None:
                raise MisuseError(
                    f"{param.name} has no buffer, found buffer {value.name}", about=value
                )
            self.unify(buffer, value)
            return
        if buffer is not None:
            raise MisuseError(
                f"{param.name} is a handle of buffer {buffer.name}, whose value is a Buffer",
                about=value,
            )
        new = ops.const(value, param.dtype) if type(value) is int else ops.convert(value)
        if new.dtype != param.dtype:
            raise MisuseError(f"{param.name} of {param.dtype} cannot be {new.dtype} `{new}`")
        if param.dtype.family == "handle" and not isinstance(new, Var):
            self.pointers[param] = new
        else:
            self.assign(param, new)

    def unify(self, old: Buffer, new: Buffer) -> None:
        """Unify the shape, strides and offset of `old` with those of `new`."""
        if old.dtype != new.dtype:
            raise MisuseError(f"buffer {old.name} holds {old.dtype}, found {new.dtype}")
        for noun, old_count, new_count in (
            ("dimensions", len(old.shape), len(new.shape)),
            ("strides", len(old.strides), len(new.strides)),
            ("as alignment", old.data_alignment, new.data_alignment),
            ("as offset factor", old.offset_factor, new.offset_factor),
        ):
            if old_count != new_count:
                raise MisuseError(f"buffer {old.name} has {old_count} {noun}, found {new_count}")
        old_values = (*old.shape, *old.strides, old.elem_offset)
        new_values = (*new.shape, *new.strides, new.elem_offset)
        for old_value, new_value in zip(old_values, new_values, strict=True):
            if isinstance(old_value, Var):
                self.assign(old_value, ops.cast_to(new_value, old_value.dtype))
            else:
                self._derived.append((old, old_value, new, new_value))
        if any(new is buffer for buffer in self.func.buffer_map.values()):
            self.assign(old.data, new.data)

    def assign(self, var: Var, value: PrimExpr) -> None:
        if value is var:
            return
        assigned = self.values.setdefault(var, value)
        if prove_equal(assigned, value) is not True:
            raise MisuseError(f"{var.name} has two values, `{assigned}` and `{value}`")

    def with_pointers(self, body: Stmt) -> Stmt:
        """Wrap the declarations of buffers in bindings of the pointers that they use."""
        for var, value in self.pointers.items():
            used = [n for n in walk(body) if isinstance(n, DeclBuffer) and n.buffer.data is var]

            def bound(node: Node, var: Var = var, value: PrimExpr = value) -> Node | None:
                declares = isinstance(node, DeclBuffer) and node.buffer.data is var
                return LetStmt(var, value, node) if declares else None  # type: ignore[arg-type]

            changed = rewrite(body, bound) if used else LetStmt(var, value, body)
            assert isinstance(changed, Stmt)
            body = changed
        return body
