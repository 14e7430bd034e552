"""The exporter: from the methods of a model, a tree of parts, to the functions of a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import free_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute
from relaxpy.plugins.nn import spec as specs
from relaxpy.plugins.nn.core import Effect, Parameter, Tensor
from relaxpy.plugins.nn.session import (
    ExternModule,
    ImpureMethod,
    IOEffect,
    Session,
    required_session,
)
from relaxpy.plugins.nn.subroutine import result_expr
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing

T = TypeVar("T")


class Branch:
    """A part of a model whose items are its attributes, or the elements of a collection."""

    def items_by_name(self) -> Iterable[tuple[str, Any]]:
        """The items with the last component of their paths."""
        return list(vars(self).items())

    def replace_item(self, name: str, item: Any) -> None:
        """Replace the item with this name."""
        setattr(self, name, item)


def named_items(root: Branch, kind: type[T], prefix: str = "") -> Iterator[tuple[str, T]]:
    """The items of a class below `root`, with their paths, such as `layers.0.weight`."""
    for name, item in root.items_by_name():
        if isinstance(item, kind):
            yield f"{prefix}{name}", item
        elif isinstance(item, Branch):
            yield from named_items(item, kind, f"{prefix}{name}.")


def unique_items(root: Branch, kind: type[T], prefix: str = "") -> Iterator[tuple[str, T]]:
    """The items of a class below `root`, each once, by the first of its paths."""
    seen: set[int] = set()
    for name, item in named_items(root, kind, prefix):
        if id(item) not in seen:
            seen.add(id(item))
            yield name, item


Params: TypeAlias = list[tuple[str, Parameter]]
Effects: TypeAlias = Sequence[tuple[str, Effect]]
ShapeVars: TypeAlias = dict[str, tir.Var]


@user_facing
def add_extern(mod: ExternModule) -> None:
    """Add external functions to the model that is being exported.

    Errors:
        BuilderStateError (also RuntimeError): no model is being exported.
        MisuseError (also ValueError): one of the symbols has been added already.
    """
    required_session("add_extern").add_extern(mod)


def export(spec: specs.ModuleSpec, *, debug: bool) -> tuple[IRModule, Params, list[ExternModule]]:
    """The module, the parameters by their paths, and the external modules that were added."""
    builder = BlockBuilder()
    builder.claim_names(spec.method_names)
    session = Session(builder, IOEffect() if debug else None)
    effects: list[tuple[str, Effect]] = list(unique_items(spec.module, Effect))
    if session.io_effect is not None:
        effects.insert(0, ("", session.io_effect))
    params = list(unique_items(spec.module, Parameter))
    with session.active():
        if effects:
            _emit_initial_effects(builder, effects)
        for name, method in zip(spec.method_names, spec.method_specs, strict=True):
            _export_method(session, name, method, params, effects)
    mod = builder.finalize()
    for name, func in mod.functions_by_name.items():
        if isinstance(func, rx.Function):
            _check_variables(name, func, session.omitted)
            if isinstance(func.struct_info, rx.FuncStructInfo):
                mod[name] = replace(func, ret_struct_info=func.struct_info.ret)
    return mod, params, session.extern_mods


def _check_variables(name: str, func: rx.Function, omitted: Mapping[rx.Var, str]) -> None:
    """Refuse a function that uses values which nothing passes to it.

    `omitted` has the mode for each variable that a mode leaves out.
    """
    for var in free_vars(func):
        value = f"{var.name_hint}: {var.struct_info}"
        if var in omitted:
            raise MisuseError(
                f"method {name} uses {value}, which {omitted[var]} omits",
                hint=f'"$": {{"{omitted[var]}": "plain"}} in the specification passes it',
            )
        raise MisuseError(
            f"method {name} uses {value}, which is not a part of the model",
            hint="a layer is an attribute of a module or in an nn.ModuleList or nn.ModuleDict; one "
            "in a list, or that a method creates, is not found",
        )


def _emit_initial_effects(builder: BlockBuilder, effects: Effects) -> None:
    with builder.function("_initialize_effect", []):
        with builder.dataflow():
            initial = [var for name, effect in effects for var in effect.emit_init(name, builder)]
            output = builder.emit_output(builder.emit(rx.Tuple(tuple(initial))))
        builder.emit_func_output(output)


def _export_method(
    session: Session, name: str, method: specs.MethodSpec, params: Params, effects: Effects
) -> None:
    """Export a method as a pure function; if it has effects, once more as an impure one."""
    externs = list(session.extern_mods)
    session.pure = True
    try:
        _emit_method(session, name, method, params, effects)
    except ImpureMethod:
        session.pure = False
        session.extern_mods[:] = externs
        _emit_method(session, name, method, params, effects)


def _emit_method(
    session: Session, name: str, method: specs.MethodSpec, params: Params, effects: Effects
) -> None:
    builder = session.builder
    inputs = _Inputs(method, params, effects)
    counts = {"plain": len(effects), "packed": 1, "none": 0}
    count = len(inputs.explicit) + counts[method.effect_mode]
    attrs = {"num_input": count}
    with builder.function(name, inputs.variables(), attrs, pure=session.pure):
        if session.pure:
            with builder.dataflow():
                output = builder.emit_output(_emit_body(builder, method, inputs, effects))
        else:
            output = builder.emit(_emit_body(builder, method, inputs, effects))
        builder.emit_func_output(output)
    session.omitted.update(inputs.omitted())


def _emit_body(
    builder: BlockBuilder, method: specs.MethodSpec, inputs: _Inputs, effects: Effects
) -> Any:
    """Call the method; return its result, with the final state of effects if it has them."""
    inputs.unpack(builder, effects)
    arguments = [
        _argument(builder, spec, value)
        for spec, value in zip(method.arg_specs, inputs.explicit, strict=True)
    ]
    result = result_expr(method.method(*arguments))
    final = [var for _, effect in effects for var in effect.finalize()]
    if not final or method.effect_mode == "none":
        return result
    return rx.Tuple((result, rx.Tuple(tuple(final))))


class _Inputs:
    """The parameters of an exported function: explicit ones, effects, and weights.

    Shape variables of one name are one variable among the explicit ones, and among the weights.
    """

    def __init__(self, method: specs.MethodSpec, params: Params, effects: Effects) -> None:
        named: ShapeVars = {}
        weight_dims: ShapeVars = {}
        pairs = zip(method.arg_names, method.arg_specs, strict=True)
        self.method = method
        self.explicit = [_input(name, spec, named) for name, spec in pairs]
        self.params = params
        self.weights = [rx.Var(name, _renamed(param, weight_dims)) for name, param in params]
        self.states = [effect.create(name) for name, effect in effects]
        flat = [var for state in self.states for var in state]
        self.packed_weights = _packed("packed_params", self.weights)
        self.packed_states = _packed("packed_effects", flat)
        self.flat_states = flat

    def variables(self) -> list[rx.Var]:
        """All parameters of the function."""
        states = {"plain": self.flat_states, "packed": [self.packed_states], "none": []}
        weights = {"plain": self.weights, "packed": [self.packed_weights], "none": []}
        result = [*self.explicit, *states[self.method.effect_mode]]
        return [*result, *weights[self.method.param_mode]]

    def omitted(self) -> dict[rx.Var, str]:
        """The mode for each variable that is left out of the parameters."""
        kinds = {"param_mode": self.weights, "effect_mode": self.flat_states}
        return {
            var: mode
            for mode, variables in kinds.items()
            for var in variables
            if getattr(self.method, mode) == "none"
        }

    def unpack(self, builder: BlockBuilder, effects: Effects) -> None:
        """Take fields out of packed parameters, and give their variables to the model."""
        states, weights = self.flat_states, self.weights
        if self.method.effect_mode == "packed":
            states = _fields(builder, self.packed_states, states)
        if self.method.param_mode == "packed":
            weights = _fields(builder, self.packed_weights, weights)
        for (_, param), var in zip(self.params, weights, strict=True):
            param._expr = var
        remaining = iter(states)
        for (_, effect), state in zip(effects, self.states, strict=True):
            effect.set_state([next(remaining) for _ in state])


def _packed(name: str, fields: Sequence[rx.Var]) -> rx.Var:
    return rx.Var(name, rx.TupleStructInfo(tuple(_sinfo(var) for var in fields)))


def _fields(builder: BlockBuilder, packed: rx.Var, fields: Sequence[rx.Var]) -> list[rx.Var]:
    """The fields of a tuple, bound to variables with the names of `fields`."""
    return [
        builder.emit(rx.TupleGetItem(packed, i), field.name_hint) for i, field in enumerate(fields)
    ]


def _sinfo(var: rx.Var) -> rx.StructInfo:
    assert var.struct_info is not None
    return var.struct_info


def _renamed(param: Parameter, known: ShapeVars) -> rx.TensorStructInfo:
    """The struct info of a weight in one function, with shape variables of its own."""
    dims = param.struct_info.get_shape()
    assert dims is not None
    used = {node for dim in dims for node in walk(dim) if isinstance(node, tir.Var)}
    table = {var: _shape_var(var.name, known) for var in used}
    return rx.TensorStructInfo([substitute(dim, table) for dim in dims], param.dtype)


def _input(name: str, spec: specs.ArgSpec, dims: ShapeVars) -> rx.Var:
    return rx.Var(name, _input_sinfo(name, spec, dims))


def _input_sinfo(name: str, spec: specs.ArgSpec, dims: ShapeVars) -> rx.StructInfo:
    """The struct info of an explicit input; `dims` has the shape variables so far."""
    match spec:
        case specs.Int():
            return rx.ShapeStructInfo((_shape_var(name, dims),))
        case specs.Tensor(shape=shape, dtype=dtype):
            sizes = [_shape_var(dim, dims) if isinstance(dim, str) else dim for dim in shape]
            return rx.TensorStructInfo(sizes, dtype)
        case specs.Object():
            return rx.ObjectStructInfo()
        case specs.Tuple(elements=elements):
            fields = enumerate(elements)
            return rx.TupleStructInfo([_input_sinfo(f"{name}_{i}", e, dims) for i, e in fields])
    raise MisuseError(f"parameter {name} is specified by {spec!r:.60}", about=spec)


def _shape_var(name: str, known: ShapeVars) -> tir.Var:
    if name not in known:
        known[name] = tir.Var(name, "int64")
    return known[name]


def _argument(builder: BlockBuilder, spec: specs.ArgSpec, var: rx.Var) -> Any:
    """The argument of the method for an input."""
    match spec:
        case specs.Int():
            sinfo = var.struct_info
            assert isinstance(sinfo, rx.ShapeStructInfo)
            assert sinfo.values is not None
            return sinfo.values[0]
        case specs.Tensor():
            return Tensor(_expr=var)
        case specs.Object(object_type=kind):
            return kind(_expr=var, _name=var.name_hint)
        case specs.Tuple(elements=elements):
            fields = [
                _argument(builder, e, builder.emit(rx.TupleGetItem(var, i), f"{var.name_hint}_{i}"))
                for i, e in enumerate(elements)
            ]
            return type(elements)(fields)
