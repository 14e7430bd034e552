"""LiftTransformParams: computations that depend on weights only are lifted to a function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeGuard

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.rewrite.arguments import in_place_of_parameters
from relaxpy.ir.relax.rewrite.map_bindings import joined, with_bindings
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars, replace_variables
from relaxpy.ir.relax.rewrite.unused import remove_all_unused
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.relax.transform.cleanup.private_functions import calls_of
from relaxpy.ir.relax.transform.find_function import find_function
from relaxpy.ir.relax.transform.params.bundle_model_params import bundled, input_count
from relaxpy.ir.relax.transform.params.lifting import Lifting, lifting_of
from relaxpy.ir.tir.ops import const
from relaxpy.support.dataclass import dataclass, replace

_OPTION: Final = "relax.lift_transform_params.consume_params"
register_config(_OPTION, bool)

_SUFFIX: Final = "transform_params"
_RESET: Final = "vm.builtin.tuple_reset_item"


@dataclass(frozen=True)
class LiftTransformParams(Pass):
    """Lifts bindings that depend only on the parameters after the first `num_input` ones.

    For each function `f` with the attribute `num_input`, the module gets `f_transform_params`. It
    takes a tuple of these parameters, and returns a tuple of the values that `f` then takes
    instead: parameters that it still needs, and the values computed from parameters. Bindings of
    dataflow blocks are moved, except for those after `R.builtin.stop_lift_params`, and for values
    that a mutation could change (OPT-11). Functions that the module calls stay unchanged.

    If `shared_transform` is True, or a list of names, one function `transform_params` serves all
    functions, or those of the list. It computes what is the same in all of them. Where such a
    function exists, it is extended.

    If the option `relax.lift_transform_params.consume_params` is set, each new function resets the
    fields of its tuple after reading them, which frees memory where tuples can change. relaxpy's
    tuples never do.

    Errors:
        TransformError: the parameters of functions with a shared transformation differ, a function
            of the list is not a Relax function, lacks `num_input`, or is called by the module, or
            `num_input` is not a number of parameters.
        UnknownNameError (also KeyError, ValueError): the module has no function of the list.
        MisuseError (also TypeError): `shared_transform` is neither a bool nor a list of names.
    """

    shared_transform: bool | Sequence[str] = False

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        names = self._names(mod)
        groups: dict[str, list[str]] = {f"{name}_{_SUFFIX}": [name] for name in names}
        if self.shared_transform:
            groups = {_SUFFIX: names} if names else {}
        result = mod
        for name, members in groups.items():
            lifting = lifting_of(mod, members)
            if name in mod.functions_by_name and not lifting.changes:
                continue
            result = result.clone() if result is mod else result
            for member, func in zip(members, lifting.functions, strict=True):
                result[member] = func
            result[name] = self._transformation(name, lifting, result, ctx)
        return normalize_module(result)

    def _names(self, mod: IRModule) -> list[str]:
        """The functions from which is lifted, in alphabetical order."""
        called = calls_of(mod)
        if not isinstance(self.shared_transform, bool) and self.shared_transform:
            for name in self.shared_transform:
                func = find_function(mod, name, "LiftTransformParams")[1]
                if input_count(func, "LiftTransformParams") is None or name in called:
                    problem = "is called by the module" if name in called else "has no num_input"
                    raise TransformError(
                        f"LiftTransformParams: function {name} {problem}", span=func.span
                    )
            return list(dict.fromkeys(self.shared_transform))
        return sorted(
            name
            for name, func in mod.functions_by_name.items()
            if isinstance(func, rx.Function)
            and input_count(func, "LiftTransformParams") is not None
            and not name.endswith(_SUFFIX)
            and name not in called
        )

    def _transformation(
        self, name: str, lifting: Lifting, mod: IRModule, ctx: PassContext
    ) -> rx.Function:
        """The function that computes the new parameters, after the one that there was before."""
        func = bundled(copy_with_new_vars(lifting.transformation), "model_params")
        before = mod.functions_by_name.get(name)
        if before is not None:
            if not isinstance(before, rx.Function):
                raise TransformError(
                    f"LiftTransformParams: {name} is not a Relax function", about=before
                )
            func = _composed(before, func)
        func = func.with_attr("global_symbol", name)
        alone = mod.clone()
        alone[name] = func
        after = CanonicalizeBindings()(normalize_module(alone)).functions_by_name[name]
        assert isinstance(after, rx.Function)
        after = remove_all_unused(after)
        return _consuming(after) if (ctx.config or {}).get(_OPTION) else after


def _composed(first: rx.Function, second: rx.Function) -> rx.Function:
    """The composition of one function with another."""
    first = copy_with_new_vars(first)
    pairs = [(second.params[0], first.body.body)]
    checked, images = in_place_of_parameters(pairs, second.body, second.span)
    rest = replace_variables(checked, images)
    blocks = joined((*first.body.blocks, *rest.blocks))
    return rebuild(first, body=rebuild(rest, blocks=tuple(blocks)), ret_struct_info=None)


def _consuming(func: rx.Function) -> rx.Function:
    """The function with each field of its tuple reset after it is read, if it is read once."""
    pack = func.params[-1]
    reads = Counter(n.index for n in walk(func.body) if _is_field(n, pack))
    uses = sum(child is pack for node in walk(func.body) for child in children(node))
    if uses != reads.total():
        return func
    blocks = []
    for block in func.body.blocks:
        bindings: list[rx.Binding] = []
        for binding in block.bindings:
            bindings.append(binding)
            value = binding.value
            if _is_field(value, pack) and reads[value.index] == 1:
                index = rx.PrimValue(const(value.index, "int32"))
                unit = rx.TupleStructInfo(())
                call = R.call_pure_packed(rx.ExternFunc(_RESET), pack, index, sinfo_args=unit)
                assert binding.var is not None
                var = type(binding.var)("_", unit)
                bindings.append(rx.VarBinding(var, replace(call, span=value.span), binding.span))
        blocks.append(with_bindings(block, bindings))
    return rebuild(func, body=rebuild(func.body, blocks=tuple(blocks)))


def _is_field(node: Node, pack: rx.Var) -> TypeGuard[rx.TupleGetItem]:
    return isinstance(node, rx.TupleGetItem) and node.tuple_value is pack
