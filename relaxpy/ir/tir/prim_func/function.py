"""PrimFunc: a loop-level kernel with its signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from relaxpy.errors import check_type, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.function import function_attrs
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.prim_func.specialize import specialized
from relaxpy.ir.tir.stmt import Stmt
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PrimFunc(rx.BaseFunc):
    """A kernel (AST-4) over scalars and handles; `buffer_map` maps handles to buffers.

    A Buffer among `params` is replaced by a handle of the same name with an entry in `buffer_map`.
    """

    _fields = ("params", "buffer_map_items", "ret_type", "body", "attrs")
    _binds = frozenset(("params", "buffer_map_items"))
    _scope = True
    params: tuple[Var, ...]
    body: Stmt
    ret_type: DataType | None = None
    buffer_map: Mapping[Var, Buffer] = field(default_factory=dict)
    attrs: Attrs = EMPTY_ATTRS
    struct_info: rx.StructInfo | None = field(default=None, kw_only=True)
    span: Span | None = None

    def __post_init__(self) -> None:
        params: list[Var] = []
        check_type(self.params, (list, tuple), "expected a list of parameters", rule="AST-4")
        check_type(self.body, Stmt, "the body is a statement", rule="AST-4")
        buffers = dict(self.buffer_map or {})
        for buffer in buffers.values():
            check_type(buffer, Buffer, "buffer_map maps handles to Buffers", rule="AST-4")
        for param in self.params:
            if isinstance(param, Buffer):
                handle = Var(param.name, "handle")
                buffers[handle] = param
                params.append(handle)
            elif isinstance(param, Var):
                params.append(param)
            else:
                raise unexpected(param, "a parameter is a Var or a Buffer", rule="AST-4")
        for stranger in buffers.keys() - set(params):
            raise unexpected(
                stranger,
                "buffer_map maps parameters to Buffers",
                rule="AST-4",
                hint="list it among the parameters",
            )
        ret = self.ret_type
        if isinstance(ret, PrimType):
            ret = ret.dtype
        set_field = object.__setattr__
        set_field(self, "params", tuple(params))
        set_field(self, "buffer_map", MappingProxyType(buffers))
        set_field(self, "ret_type", DataType(ret or "") or None)
        set_field(self, "attrs", function_attrs(self.attrs))
        set_field(self, "struct_info", _signature(self))

    @property
    def buffer_map_items(self) -> tuple[Buffer | None, ...]:
        """The buffer of each parameter, or None."""
        return tuple(self.buffer_map.get(p) for p in self.params)

    def buffer_of(self, param: Var) -> Buffer | None:
        """Return the buffer of the handle `param`, or None."""
        return self.buffer_map.get(param)

    @override
    def _with_attrs(self, attrs: Attrs) -> Self:
        copy = object.__new__(type(self))  # values that do not depend on attributes are shared
        for name in ("params", "body", "ret_type", "buffer_map", "struct_info", "span"):
            object.__setattr__(copy, name, getattr(self, name))
        object.__setattr__(copy, "attrs", function_attrs(attrs))
        return copy

    def with_fields(self, **changes: Any) -> PrimFunc:
        """Replace some of `_fields`; the signature is derived from the new fields."""
        params = changes.get("params", self.params)
        buffers = changes.get("buffer_map_items", self.buffer_map_items)
        return PrimFunc(
            params,
            changes.get("body", self.body),
            changes.get("ret_type", self.ret_type),
            {p: b for p, b in zip(params, buffers, strict=True) if b is not None},
            changes.get("attrs", self.attrs),
            span=self.span,
        )

    def with_body(self, body: Stmt) -> PrimFunc:
        """Replace the body."""
        return self.with_fields(body=body)

    @user_facing
    def specialize(self, param_map: Mapping[Var, Any]) -> PrimFunc:
        """Replace scalar parameters by values, and the shapes of handles by those of Buffers.

        The replaced scalar parameters are removed, and operations on literals are folded.

        Errors:
            MisuseError (also TypeError, ValueError): a key is not a parameter; a value has another
                datatype, rank, alignment or offset factor; two values contradict each other; or a
                dimension that differs is not a variable.
        """
        return specialized(self, param_map)

    @override
    @user_facing
    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        """Run this kernel on arrays (it writes into them), or build a Call on Relax expressions."""
        if any(isinstance(a, rx.Expr) for a in args):
            return rx.Expr.__call__(self, *args)
        return hooks.call("call_function", self, args, kwargs)


def _signature(func: PrimFunc) -> rx.FuncStructInfo:
    """Derive the signature of a kernel (DER-49): the impure closure form over its parameters."""
    bound = {p for p in func.params if func.buffer_of(p) is None and p.dtype.is_int}
    for mapped in func.buffer_map.values():
        bound |= {s for s in mapped.shape if isinstance(s, Var)}
    params: list[rx.StructInfo] = []
    for param in func.params:
        buffer = func.buffer_of(param)
        if buffer is not None:
            is_known = all(
                var in bound
                for size in buffer.shape
                if not isinstance(size, IntImm)
                for var in walk(size)
                if isinstance(var, Var)
            )
            params.append(
                rx.TensorStructInfo(
                    _as_int64(buffer.shape) if is_known else None,  # type: ignore[arg-type]
                    buffer.dtype,
                    ndim=buffer.ndim,
                )
            )
        elif isinstance(param.type_annotation, PointerType) or param.dtype.family == "handle":
            params.append(rx.ObjectStructInfo())
        else:
            params.append(rx.PrimStructInfo(param.dtype, param))
    ret: rx.StructInfo = (
        rx.TupleStructInfo(()) if func.ret_type is None else rx.PrimStructInfo(func.ret_type)
    )
    return rx.FuncStructInfo(tuple(params), ret, False)


def _as_int64(shape: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    return tuple(s if s.dtype == INT64 else ops.cast_to(s, INT64) for s in shape)
