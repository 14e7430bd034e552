"""Functions for a back end: one that is called, with the functions that patterns matched in it."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, copy_with_new_vars
from relaxpy.support.dataclass import replace


def codegen_name(func: rx.BaseFunc | None) -> str | None:
    """The back end of a composite function: the name of its pattern up to the first dot.

    Errors:
        TransformError: the name has no dot.
    """
    name = func.attrs.get("Composite") if isinstance(func, rx.Function) else None
    if not isinstance(name, str):
        return None
    backend, dot, _ = name.partition(".")
    if not dot or not backend:
        raise TransformError(
            f"pattern {name!r} names no back end",
            hint='begin the names of patterns with that of the back end and a dot: "mine.matmul"',
        )
    return backend


def without_primitive(func: rx.Function) -> rx.Function:
    """The function without the attribute by which FuseTIR knows it."""
    attrs = {key: value for key, value in func.attrs.items() if key != "Primitive"}
    return rebuild(func, attrs=attrs)


def annotated_for_codegen(mod: IRModule) -> IRModule:
    """The module with each called composite function wrapped in a function for its back end."""
    wrappers = _Wrappers(mod)
    for var, func in mod.items():
        if isinstance(func, rx.Function) and not {"Composite", "Codegen"} & func.attrs.keys():
            after = _Redirect(wrappers).expr(func)
            if after is not func:
                wrappers.result[var] = after
    return normalize_module(wrappers.result) if wrappers.names else mod


class _Wrappers:
    """The wrappers of the functions of a module, which they replace in `result`."""

    def __init__(self, mod: IRModule) -> None:
        self.mod, self.result = mod, mod.clone()
        self.names: dict[str, rx.GlobalVar] = {}

    def of(self, name: str) -> rx.GlobalVar | None:
        """The function to call instead of this one, if this one is composite."""
        if name in self.names:
            return self.names[name]
        func = self.mod.find_function(name)
        backend = codegen_name(func)
        if backend is None or not isinstance(func, rx.Function):
            return None
        symbol = f"{name}_{backend}"
        outer = copy_with_new_vars(func)
        inner = rx.Var("gv")
        result = rx.Var("gv1")
        bindings = (
            rx.VarBinding(inner, without_primitive(func), func.span),
            rx.VarBinding(result, rx.Call(inner, outer.params, span=func.span), func.span),
        )
        self.names[name] = rx.GlobalVar(symbol)
        del self.result[name]
        self.result[self.names[name]] = rx.Function(
            outer.params,
            rx.SeqExpr((rx.BindingBlock(bindings),), result),
            is_pure=func.is_pure,
            attrs=Attrs({"Codegen": backend, "global_symbol": symbol}),
            span=func.span,
        )
        return self.names[name]


class _Redirect(BindingRewriter):
    def __init__(self, wrappers: _Wrappers) -> None:
        super().__init__()
        self.wrappers = wrappers

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, rx.GlobalVar):
            return None
        name = self.wrappers.of(call.op.name_hint)
        return None if name is None else replace(binding, value=rebuild(call, op=name))
