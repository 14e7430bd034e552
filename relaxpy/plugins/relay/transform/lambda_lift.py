"""Lifts local functions to the module."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import rename, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.effects import Effects
from relaxpy.plugins.relay.analysis.variables import free_vars
from relaxpy.plugins.relay.infer.module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.transform.lets import closed_over_types
from relaxpy.plugins.relay.transform.normal_forms import basic_block_normal_form
from relaxpy.plugins.relay.transform.passes import RelayPass, map_functions
from relaxpy.plugins.relay.ty import Type
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class LambdaLift(RelayPass):
    """Make every local function a function of the module.

    A function that captures variables becomes one that takes them and returns the rest; it has the
    attribute `Closure=1`. Functions with the attribute `Primitive` stay where they are.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        # Lets bind what functions share with their surroundings, so that it can be captured.
        effects = Effects(mod)
        bound = map_functions(mod, lambda function: basic_block_normal_form(function, effects))
        typed = infer_module(bound)
        lifter = _Lifter(typed)
        for name, function in typed.functions_by_name.items():
            lifter.lift_all(name, function)
        return lifter.result if lifter.changed else mod


class _Lifter:
    def __init__(self, module: RelayModule) -> None:
        self.result = module.clone()
        self.changed = False

    def lift_all(self, name: str, function: rl.Function) -> None:
        """Lift all functions inside a function of the module, inner ones first."""
        replaced: dict[Node, Node] = {}
        names: dict[int, rl.Var] = {}
        local: list[rl.Function] = []
        for node in walk(function):
            if isinstance(node, rl.Let) and isinstance(node.value, rl.Function):
                names[id(node.value)] = node.var
            elif isinstance(node, rl.Function) and node is not function:
                local.append(node)
        if "Closure" in function.attrs:
            local = [inner for inner in local if inner is not function.body]
        for inner in local:
            if "Primitive" not in inner.attrs:
                variable = names.get(id(inner))
                replaced[inner] = self.lifted(name, rename(inner, replaced), variable)
        if replaced:
            self.changed = True
            self.result[name] = rename(function, replaced)

    def lifted(self, owner: str, function: Node, variable: rl.Var | None) -> rl.RelayExpr:
        """Add a function to the module, and return what stands for it in its place.

        A let binds the function to `variable`, by which it may recurse.
        """
        assert isinstance(function, rl.Function)
        name = self.unique(f"{owner}_{variable.name_hint if variable is not None else 'lambda'}")
        self.result[name] = function
        callee = self.result.get_global_var(name)
        free = free_vars(function)
        captured = tuple(var for var in free if var is not variable)
        calls_itself = variable in free
        params = {var: rl.Var(var.name_hint, _type_of(var), span=var.span) for var in captured}
        place: rl.RelayExpr = rl.Call(callee, captured, span=function.span) if captured else callee
        if calls_itself and not captured:
            assert variable is not None
            function = rename(function, {variable: callee})
        elif calls_itself:
            assert variable is not None
            itself = rl.Var(variable.name_hint, span=variable.span)
            again = rl.Call(callee, captured, span=function.span)
            body = rename(function.body, {variable: itself})
            function = replace(function, body=rl.Let(itself, again, body, span=function.span))
        if captured:
            inner, taken = rename(function, params), tuple(params.values())
            ty = rl.function_type(inner)
            function = rl.Function(taken, inner, ty, attrs=Attrs({"Closure": 1}))
        self.result[name] = closed_over_types(function)
        return place

    def unique(self, name: str) -> str:
        """Return a name that no function of the module has."""
        number, result = 0, name
        while result in self.result:
            number += 1
            result = f"{name}{number}"
        return result


def _type_of(var: rl.Var) -> Type | None:
    return var.type_annotation or var.checked_type_
