"""LiftTransformParams: computations that depend on weights only are lifted to a function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeGuard, cast

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import children, rebuild, rename, walk
from relaxpy.ir.equality.structural import structural_equal, structural_hash
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.passes.bind_params import bundled, input_count
from relaxpy.ir.passes.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.passes.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.passes.cleanup.private_functions import calls_of
from relaxpy.ir.passes.rewrite_pass import find_function
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Effects, computes, is_of_operands
from relaxpy.ir.relax.analysis.variables import (
    bind_equally,
    binding_operands,
    free_vars,
    occurring_vars,
    used_shape_vars,
)
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, shape_vars_of
from relaxpy.ir.relax.rewrite import map_bindings as rewriting
from relaxpy.ir.relax.rewrite.bind import in_place_of_parameters
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const
from relaxpy.support.dataclass import dataclass, replace


def lifting_of(mod: IRModule, names: Sequence[str]) -> Lifting:
    """The bindings lifted together from several functions.

    Errors:
        TransformError: their weights are not alike.
    """
    members = [_Member(mod, cast("rx.Function", mod[name])) for name in names]
    first = members[0]
    for name, member in zip(names, members, strict=True):
        if not structural_equal(member.weight_info, first.weight_info, map_free_vars=True):
            raise TransformError(
                f"LiftTransformParams: {names[0]} and {name} have no shared transformation, as "
                f"their parameters after the inputs differ: {first.weight_info} and "
                f"{member.weight_info}",
                span=member.func.span,
            )
    return Lifting(members)


def _sinfo(expr: rx.Expr) -> rx.StructInfo:
    return expr.struct_info or rx.ObjectStructInfo()


class _Member:
    """A function: its weights, and the bindings that may be computed before it is called."""

    def __init__(self, mod: IRModule, func: rx.Function) -> None:
        self.func = func
        count = cast("int", func.attrs["num_input"])
        self.inputs, self.weights = func.params[:count], func.params[count:]
        self.weight_info = rx.TupleStructInfo(tuple(map(_sinfo, self.weights)))
        self.weight_sizes = definable_shape_vars(self.weight_info)
        self.input_sizes = set(shape_vars_of(self.inputs))
        self.candidates: list[rx.Binding] = list(self._liftable(mod))

    def _liftable(self, mod: IRModule) -> Iterator[rx.Binding]:
        """Bindings of dataflow blocks that use only weights and earlier bindings of this kind."""
        effects = Effects(Context(), mod.functions_by_name, self.func)
        known, sizes = set(self.weights), set(self.weight_sizes)
        exposed = _exposed(self.func.body, effects)
        for block in self.func.body.blocks:
            for binding in block.bindings:
                operands = set(occurring_vars(binding.value))
                if effects.is_barrier(binding) and not known.isdisjoint(operands):
                    return  # it may change a weight
                if (
                    isinstance(block, rx.DataflowBlock)
                    and _may_be_lifted(binding)
                    and (binding.var not in exposed or is_of_operands(binding.value))
                    and known.issuperset(free_vars(binding.value))
                    and sizes.issuperset(
                        s for n in binding_operands(binding) for s in used_shape_vars(n)
                    )
                ):
                    known.add(cast("rx.Var", binding.var))
                    yield binding


def _may_be_lifted(binding: rx.Binding) -> bool:
    value, var = binding.value, binding.var
    if var is None or isinstance(var.struct_info, rx.FuncStructInfo):
        return False
    if rx.is_call_of(value, "relax.builtin.stop_lift_params"):
        return False
    return not isinstance(value, rx.ExternFunc)


def _exposed(seq: rx.SeqExpr, effects: Effects) -> set[rx.Var]:
    """The variables whose values the caller or a call with effects gets, and may change."""
    exposed = set(occurring_vars(seq.body))
    for block in reversed(seq.blocks):
        for binding in reversed(block.bindings):
            aliases = not computes(binding.value) and binding.var in exposed
            if aliases or effects.is_barrier(binding):
                exposed.update(occurring_vars(binding.value))
    return exposed


@dataclass(frozen=True)
class _Shared:
    """A binding in terms of the weights of the first function, and its variable in each one."""

    binding: rx.Binding
    variables: list[list[rx.Var]]


class Lifting:
    """The transformation of weights that functions share, and the remaining functions."""

    def __init__(self, members: Sequence[_Member]) -> None:
        self.members = members
        self.weights = members[0].weights
        self.lifted = self._shared_bindings()
        depends: set[rx.Var] = set(self.weights)
        for shared in self.lifted:
            if not depends.isdisjoint(free_vars(shared.binding.value)):
                depends.add(cast("rx.Var", shared.binding.var))
        self.moved = [s for s in self.lifted if s.binding.var in depends]
        dropped = [{v for s in self.moved for v in s.variables[k]} for k in range(len(members))]
        self._rest = [_Rest(gone).expr(m.func) for gone, m in zip(dropped, members, strict=True)]
        self._used = [set(occurring_vars(rest.body)) for rest in self._rest]

    def _shared_bindings(self) -> list[_Shared]:
        """The bindings that each function has, in terms of the first one."""
        by_key: dict[int, list[_Shared]] = {}
        ordered: list[_Shared] = []
        first = self.members[0]
        for k, member in enumerate(self.members):
            images: dict[Node, Node] = dict(zip(member.weights, first.weights, strict=True))
            images |= zip(member.weight_sizes, first.weight_sizes, strict=True)
            images = {var: image for var, image in images.items() if var is not image}
            for binding in member.candidates:
                here = rewriting.replace_variables(binding, images)
                same = by_key.setdefault(structural_hash(here.value, whole_arrays=False), [])
                shared = next((s for s in same if bind_equally(s.binding, here)), None)
                if shared is None or len(self.members) == 1:
                    shared = _Shared(here, [[] for _ in self.members])
                    same.append(shared)
                    ordered.append(shared)
                shared.variables[k].append(cast("rx.Var", binding.var))
                if binding.var is not shared.binding.var:
                    images[cast("rx.Var", binding.var)] = cast("rx.Var", shared.binding.var)
        return [shared for shared in ordered if all(shared.variables)]

    @late_property
    def outputs(self) -> list[tuple[rx.Var, list[list[rx.Var]]]]:
        """The results of the transformation, and the variables in each function that have them."""
        weights = [(w, [[m.weights[k]] for m in self.members]) for k, w in enumerate(self.weights)]
        moved = [(cast("rx.Var", s.binding.var), s.variables) for s in self.moved]
        return [
            (var, variables)
            for var, variables in (*weights, *moved)
            if any(not used.isdisjoint(v) for used, v in zip(self._used, variables, strict=True))
        ]

    @late_property
    def sizes(self) -> list[int]:
        """The indices of shape variables of weights that only a shape can pass on."""
        sinfos = [_sinfo(var) for var, _ in self.outputs]
        sizes = self.members[0].weight_sizes
        passed = set(definable_shape_vars(*sinfos))
        mentioned = {size for sinfo in sinfos for size in used_shape_vars(sinfo)}
        needed = [self._needed_sizes(k, mentioned) for k in range(len(self.members))]
        return [
            k for k, s in enumerate(sizes) if s not in passed and any(k in need for need in needed)
        ]

    def _needed_sizes(self, k: int, mentioned: set[tir.Var]) -> set[int]:
        """The indices of the shape variables that a function needs and its inputs do not have."""
        member, rest = self.members[k], self._rest[k]
        nodes: list[Node] = [rest.body, *map(_sinfo, member.inputs)]
        if rest.ret_struct_info is not None:
            nodes.append(rest.ret_struct_info)
        used = {size for node in nodes for size in used_shape_vars(node)}
        pairs = zip(member.weight_sizes, self.members[0].weight_sizes, strict=True)
        return {
            index
            for index, (size, common) in enumerate(pairs)
            if (size in used or common in mentioned) and size not in member.input_sizes
        }

    @property
    def transformation(self) -> rx.Function:
        """The function that computes the outputs from the weights."""
        func = self.members[0].func
        fields: list[rx.Expr] = [var for var, _ in self.outputs]
        if self.sizes:
            fields.insert(
                0, rx.ShapeExpr(tuple(self.members[0].weight_sizes[k] for k in self.sizes))
            )
        value = rx.Tuple(tuple(fields))
        sinfo = rx.TupleStructInfo(tuple(map(_sinfo, fields)))
        if fields:
            result = rx.Var("result", sinfo, func.span)
            bindings = (*(s.binding for s in self.lifted), rx.VarBinding(result, value, func.span))
            body = rx.SeqExpr((rx.DataflowBlock(bindings),), result)
        else:
            body = rx.SeqExpr((), value)
        attrs = Attrs({"num_input": 0})
        return rx.Function(self.weights, body, sinfo, attrs=attrs, span=func.span)

    @property
    def functions(self) -> list[rx.Function]:
        """The functions that take the outputs instead of the weights."""
        return [self._after(k) for k in range(len(self.members))]

    @property
    def changes(self) -> bool:
        """True if a function changes."""
        return any(a is not m.func for a, m in zip(self.functions, self.members, strict=True))

    def _after(self, k: int) -> rx.Function:
        member, rest = self.members[k], self._rest[k]
        weights = set(member.weights)
        images: dict[rx.Var, rx.Var] = {}
        params: list[rx.Var] = [*member.inputs]
        if self.sizes:
            sizes = rx.ShapeStructInfo(tuple(member.weight_sizes[size] for size in self.sizes))
            params.append(rx.Var("vars_from_compile_time_params", sizes, member.func.span))
        for _, variables in self.outputs:
            var, *others = variables[k]
            new = var if var in weights else rx.Var(var.name_hint, var.struct_info, var.span)
            params.append(new)
            images.update({v: new for v in (var, *others) if v is not new})
        if rest is member.func and tuple(params) == tuple(rest.params):
            return rest
        body = rename(rest.body, images) if images else rest.body
        return rebuild(rest, params=tuple(params), body=body)


class _Rest(rewriting.BindingRewriter):
    """Removes bindings of variables that become parameters, and marks of where lifting stops."""

    def __init__(self, dropped: set[rx.Var]) -> None:
        super().__init__()
        self.dropped = dropped

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
        value = binding.value
        if binding.var in self.dropped:
            return ()
        if rx.is_call_of(value, "relax.builtin.stop_lift_params"):
            return value.args[0]
        return None


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
        func = bundled(rewriting.copy_with_new_vars(lifting.transformation), "model_params")
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
        after = without_dead_code(after)
        return _consuming(after) if (ctx.config or {}).get(_OPTION) else after


def _composed(first: rx.Function, second: rx.Function) -> rx.Function:
    """The composition of one function with another."""
    first = rewriting.copy_with_new_vars(first)
    pairs = [(second.params[0], first.body.body)]
    checked, images = in_place_of_parameters(pairs, second.body, second.span)
    rest = rewriting.replace_variables(checked, images)
    blocks = rewriting.joined((*first.body.blocks, *rest.blocks))
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
        blocks.append(rewriting.with_bindings(block, bindings))
    return rebuild(func, body=rebuild(func.body, blocks=tuple(blocks)))


def _is_field(node: Node, pack: rx.Var) -> TypeGuard[rx.TupleGetItem]:
    return isinstance(node, rx.TupleGetItem) and node.tuple_value is pack
