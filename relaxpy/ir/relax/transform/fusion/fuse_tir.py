"""FuseTIR: each function of kernel calls becomes one kernel."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from relaxpy.ir.core.node import as_attrs
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, PrecedingBindings, Rewritten
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import canonical_module
from relaxpy.ir.relax.transform.fusion.kernels import FusedKernel, fused_kernel
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class FuseTIR(Pass):
    """Makes one private kernel of each function with the attribute `Primitive` of FuseOps.

    Intermediate results are local buffers of the kernel, shapes that the function takes become
    scalars, and tuples their fields. A function that does more than call kernels on tensors of
    known shapes stays unchanged, and so does one that is used other than by calls, or that is
    public and not called. Private kernels that are not called any more are removed.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        before = normalize_module(mod)
        functions = before.functions_by_name
        primitive = {
            name: func
            for name, func in functions.items()
            if isinstance(func, rx.Function) and func.attrs.get("Primitive")
        }
        if not primitive:
            return before
        public = {name for name, func in primitive.items() if "global_symbol" in func.attrs}
        if public:
            public.difference_update(*map(mentioned_globals, functions.values()))
        kernels = {
            name: kernel
            for name, func in primitive.items()
            if name not in public  # unless it is called
            if (kernel := fused_kernel(func, functions)) is not None
        }
        for func in functions.values() if kernels else ():
            for name in _otherwise_used(func, kernels):
                del kernels[name]
        if not kernels:
            return before
        result = before.clone()
        for var, func in before.items():
            if var.name_hint in kernels:
                result[var] = kernels[var.name_hint].func
            elif isinstance(func, rx.Function):
                result[var] = _Caller(kernels).expr(func)
        _remove_unused_kernels(result)
        return canonical_module(result, refuse_contradictions=False)


def _otherwise_used(func: rx.BaseFunc, kernels: Mapping[str, FusedKernel]) -> set[str]:
    """The functions that a function mentions other than in calls that can be rewritten."""
    names: set[str] = set()
    if kernels.keys().isdisjoint(mentioned_globals(func)):
        return names
    for node in walk(func):
        operands = list(children(node))
        if isinstance(node, rx.Call) and isinstance(node.op, rx.GlobalVar):
            kernel = kernels.get(node.op.name_hint)
            if kernel is not None and _is_callable(kernel, node):
                operands = list(node.args)
        names |= {operand.name_hint for operand in operands if isinstance(operand, rx.GlobalVar)}
    return names & kernels.keys()


def _is_callable(kernel: FusedKernel, call: rx.Call) -> bool:
    """True if the struct info of a call and its arguments suffices for a call of the kernel."""
    sinfo = call.struct_info
    outputs = sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)
    return all(
        isinstance(output, rx.TensorStructInfo)
        and isinstance(output.shape, rx.ShapeExpr)
        and not output.dtype.is_void
        for output in outputs
    ) and all(len(_sizes(call.args[param])) > axis for param, axis in kernel.scalars)


def _sizes(arg: rx.Expr) -> tuple[tir.PrimExpr, ...]:
    sinfo = arg.struct_info
    if isinstance(arg, rx.ShapeExpr):
        return arg.values
    return (sinfo.values or ()) if isinstance(sinfo, rx.ShapeStructInfo) else ()


class _Caller(BindingRewriter):
    """Replaces calls of functions by calls of the kernels that they became."""

    def __init__(self, kernels: Mapping[str, FusedKernel]) -> None:
        super().__init__()
        self.kernels = kernels

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, rx.GlobalVar):
            return None
        kernel = self.kernels.get(call.op.name_hint)
        if kernel is None:
            return None
        fields = _Fields(binding, block)
        operands = [fields.at(param, path) for param, path in kernel.operands]
        sizes = [_sizes(call.args[param])[axis] for param, axis in kernel.scalars]
        assert isinstance(call.struct_info, rx.StructInfo)
        inplace = kernel.inplace_indices
        new = rx.Call(
            Op.get("relax.call_tir_inplace" if inplace else "relax.call_tir"),
            (call.op, rx.Tuple(tuple(operands)), *([rx.ShapeExpr(tuple(sizes))] if sizes else [])),
            as_attrs({"inplace_indices": inplace} if inplace else None),
            (call.struct_info,),
            span=call.span,
        )
        return fields.ended(new)


class _Fields(PrecedingBindings):
    """Arguments of a call and their fields, which `bindings` get from them, each once."""

    def __init__(self, binding: rx.Binding, block: rx.BindingBlock) -> None:
        super().__init__(binding, block)
        assert isinstance(binding.value, rx.Call)
        self.call = binding.value
        self._known: dict[tuple[int, tuple[int, ...]], rx.Expr] = {}

    def at(self, param: int, path: tuple[int, ...]) -> rx.Expr:
        if not path:
            return self.call.args[param]
        if (param, path) not in self._known:
            self._known[param, path] = self._field(self.at(param, path[:-1]), path[-1])
        return self._known[param, path]

    def _field(self, whole: rx.Expr, index: int) -> rx.Expr:
        if isinstance(whole, rx.Tuple):
            return whole.fields[index]
        return self.bound(rx.TupleGetItem(whole, index))


def _remove_unused_kernels(mod: IRModule) -> None:
    """Remove the private kernels that nothing mentions."""
    functions = mod.functions_by_name.values()
    mentioned = {name for func in functions for name in mentioned_globals(func)}
    for var, func in mod.items():
        is_private = "global_symbol" not in func.attrs
        if isinstance(func, PrimFunc) and is_private and var.name_hint not in mentioned:
            del mod[var]
