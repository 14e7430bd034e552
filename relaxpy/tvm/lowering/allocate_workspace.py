"""AllocateWorkspace: functions of back ends receive the memory for intermediate results."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import count
from typing import Final

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.tir import ops
from relaxpy.support.dataclass import dataclass, replace

_SIZE: Final = "WorkspaceSize"
_BYTES: Final = DataType("uint8")


@dataclass(frozen=True)
class AllocateWorkspace(Pass):
    """Passes a workspace to functions with the attribute `WorkspaceSize`, the bytes that they need.

    These are functions for back ends, with the attribute `Codegen` or `Composite`. They get a last
    parameter, and a new name if they are global. The workspace is as large as the largest that one
    of them needs. Other functions allocate it in each block that calls one.

    Errors:
        TransformError: a size is not a number of bytes, or such a function is used as a value.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        functions = [func for func in mod.functions.values() if isinstance(func, rx.Function)]
        nodes = [node for func in functions for node in walk(func)]
        needing = [
            node for node in nodes if isinstance(node, rx.Function) and _needs_workspace(node)
        ]
        if not needing:
            return mod
        size, names = max(map(_size, needing)), _new_names(mod)
        _require_calls(nodes, names)
        workspace = _Workspace(size, names)
        result = mod.clone()
        for name in names:
            del result[name]
        for name, func in mod.functions_by_name.items():
            if isinstance(func, rx.Function):
                new = workspace.expr(func)
                if name in names and "global_symbol" in func.attrs:
                    new = new.with_attr("global_symbol", names[name])
                result[names.get(name, name)] = new
        return normalize_module(result)


def _needs_workspace(func: rx.Function) -> bool:
    return _SIZE in func.attrs and bool({"Codegen", "Composite"} & func.attrs.keys())


def _size(func: rx.Function) -> int:
    size = func.attrs[_SIZE]
    if not isinstance(size, int) or size < 0:
        raise TransformError(
            f"{_SIZE} is a number of bytes, found {size!r:.60}", span=func.span, about=func
        )
    return size


def _require_calls(nodes: Sequence[Node], names: Container[str]) -> None:
    """Errors: TransformError if a function that receives a workspace is used as a value."""
    local = {
        node.var
        for node in nodes
        if isinstance(node, rx.VarBinding)
        and isinstance(node.value, rx.Function)
        and _needs_workspace(node.value)
    }
    for node in nodes:
        match node:
            case rx.Call(args=args):
                used: Iterable[Node] = args
            case rx.VarBinding(value=value):
                used = (value,)
            case _:
                used = children(node)
        for operand in used:
            is_global = isinstance(operand, rx.GlobalVar) and operand.name_hint in names
            if is_global or operand in local:
                raise TransformError(
                    f"{operand} is used as a value; only calls of it can pass its workspace",
                    span=getattr(node, "span", None),
                    about=node,
                )


def _new_names(mod: IRModule) -> dict[str, str]:
    """The new names of the global functions that receive a workspace."""
    taken, names = set(mod.functions_by_name), {}
    for name, func in mod.functions_by_name.items():
        if isinstance(func, rx.Function) and _needs_workspace(func):
            new = next(f"{name}{k}" for k in count(1) if f"{name}{k}" not in taken)
            taken.add(new)
            names[name] = new
    return names


class _Workspace(BindingRewriter):
    """Adds parameters for the workspace to functions, and arguments to their calls."""

    def __init__(self, size: int, names: Mapping[str, str]) -> None:
        super().__init__()
        self._shape = rx.ShapeExpr((ops.const(size, INT64),))
        self._names = names
        self._received: set[Node] = set()
        self._workspace: rx.Var | None = None
        self._is_parameter = False

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer = self._workspace, self._is_parameter
        receives = _needs_workspace(func)
        if receives:
            sinfo = rx.TensorStructInfo(self._shape, _BYTES)
            self._workspace, self._is_parameter = rx.Var("workspace", sinfo, func.span), True
            func = replace(func, params=(*func.params, self._workspace), struct_info=None)
        new = super().function(func)
        self._workspace, self._is_parameter = outer
        if receives:
            new = new.without_attr(_SIZE)
            self._received.add(new)
        return new

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if self._is_parameter:
            return super().block(block)
        outer, self._workspace = self._workspace, None
        first, *others = super().block(block)
        workspace, self._workspace = self._workspace, outer
        if workspace is None:
            return [first, *others]
        args = (self._shape, rx.DataTypeImm(_BYTES), rx.PrimValue(ops.const(0, INT64)))
        span = block.bindings[0].value.span
        call = rx.Call(
            Op.get("relax.builtin.alloc_tensor"), (*args, rx.StringImm("global")), span=span
        )
        allocation = rx.VarBinding(workspace, call, span)
        return [replace(first, bindings=(allocation, *first.bindings)), *others]

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value = binding.value
        if value in self._received and isinstance(binding, rx.VarBinding):
            var = type(binding.var)(binding.var.name_hint, None, binding.var.span)
            self._remap[binding.var] = var
            self._received.add(var)
            return replace(binding, var=var)
        if not isinstance(value, rx.Call):
            return None
        callee = value.op
        if isinstance(callee, rx.GlobalVar) and callee.name_hint in self._names:
            callee = rx.GlobalVar(self._names[callee.name_hint])
        elif callee not in self._received:
            return None
        if self._workspace is None:
            kind = rx.DataflowVar if isinstance(block, rx.DataflowBlock) else rx.Var
            self._workspace = kind("workspace_main", None, value.span)
        return rebuild(value, op=callee, args=(*value.args, self._workspace))
