"""RunCodegen: back ends compile the functions that are annotated for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir import hooks
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes.python_function import compiled_function
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.support.dataclass import dataclass, replace

_PREFIX: Final = "relax.ext."


@dataclass(frozen=True)
class RunCodegen(Pass):
    """Compiles functions with the attribute `Codegen` using the back ends that it names.

    The back end of the name `mine` is the packed function `relax.ext.mine`. It is called with the
    list of its functions, with its options in `target_options`, and with a table of the constants
    in the functions to names for them. It returns a table, or a list of tables, with a Python
    function for the `global_symbol` of each of its functions, which takes the arguments and returns
    the result, and which has no visible effect. Calls of the functions of the module, which are
    removed, become calls of these Python functions. They belong to the calls: no name is registered
    for them, and a saved module does not contain them.

    Errors:
        MisuseError (also TypeError): `target_options` is not a table of tables.
        UnknownPackedFuncError (also ValueError, KeyError): there is no such back end.
        TransformError: a back end returns no function for one of its functions, or that is impure.
    """

    target_options: Mapping[str, Mapping[str, object]] | None = field(default=None, hash=False)
    entry_functions: Sequence[str] | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        by_target: dict[str, dict[str, rx.Function]] = {}
        for name, func in mod.functions_by_name.items():
            target = func.attrs.get("Codegen") if isinstance(func, rx.Function) else None
            if isinstance(target, str) and isinstance(func, rx.Function):
                by_target.setdefault(target, {})[name] = func
        if not by_target:
            return mod
        packed: dict[str, rx.ExternFunc] = {}
        for target, functions in by_target.items():
            options = (self.target_options or {}).get(target, {})
            packed |= _compiled(target, functions, options)
        result = mod.clone()
        for name in packed:
            del result[name]
        for var, func in result.items():
            if isinstance(func, rx.Function):
                result[var] = _Caller(packed).expr(func)
        return DeadCodeElimination(self.entry_functions)(normalize_module(result))


def _compiled(
    target: str, functions: Mapping[str, rx.Function], options: Mapping[str, object]
) -> dict[str, rx.ExternFunc]:
    """The functions that a back end provides, by the names of those that it compiled."""
    backend = hooks.call("packed_function", f"{_PREFIX}{target}")
    tables = backend(list(functions.values()), dict(options), _constant_names(functions, target))
    found: dict[str, Callable[..., Any]] = {}
    for table in tables if isinstance(tables, (list, tuple)) else (tables,):
        if not isinstance(table, Mapping):
            raise TransformError(
                f"back end {_PREFIX}{target} returned {table!r:.60}",
                hint="it returns a table of functions by global_symbol, or a list of tables",
            )
        found |= table
    packed: dict[str, rx.ExternFunc] = {}
    for name, func in functions.items():
        symbol = str(func.attrs.get("global_symbol", name))
        if not func.is_pure:
            raise TransformError(f"{name} is impure; back ends compile pure ones", span=func.span)
        if not callable(found.get(symbol)):
            raise TransformError(
                f"back end {_PREFIX}{target} returned no function for {symbol}", span=func.span
            )
        packed[name] = compiled_function(symbol, found[symbol])
    return packed


def _constant_names(functions: Mapping[str, rx.Function], target: str) -> dict[rx.Constant, str]:
    names: dict[rx.Constant, str] = {}
    for name, func in functions.items():
        constants = [node for node in walk(func) if isinstance(node, rx.Constant)]
        for constant in constants:
            names.setdefault(constant, f"{name}_{target}_const_{len(names)}")
    return names


class _Caller(BindingRewriter):
    """Calls packed functions instead of functions of the module."""

    def __init__(self, packed: Mapping[str, rx.ExternFunc]) -> None:
        super().__init__()
        self.packed = packed

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, rx.GlobalVar):
            return None
        callee = self.packed.get(call.op.name_hint)
        if callee is None:
            return None
        assert call.struct_info is not None
        new = rx.Call(
            Op.get("relax.call_pure_packed"),
            (callee, *call.args),
            sinfo_args=(call.struct_info,),
            span=call.span,
        )
        return replace(binding, value=new)
