"""How the nodes of Relay are saved as JSON."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from relaxpy.ir import serialize
from relaxpy.plugins.relay import expr as rl, ty
from relaxpy.plugins.relay.infer.whole_module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op

_EXPRESSIONS = (
    *(rl.GlobalVar, rl.Var, rl.Constant, rl.Literal, rl.Tuple, rl.TupleGetItem, rl.Function),
    *(rl.Call, rl.Let, rl.If, rl.Match, rl.Clause, rl.RefCreate, rl.RefRead, rl.RefWrite),
    *(rl.PatternWildcard, rl.PatternVar, rl.PatternConstructor, rl.PatternTuple, rl.Constructor),
)
_TYPES = (
    *(ty.TypeVar, ty.GlobalTypeVar, ty.IncompleteType, ty.UnknownDim, ty.TensorType, ty.TupleType),
    *(ty.RefType, ty.TypeCall, ty.TypeRelation, ty.FuncType, ty.TypeData),
)
_CONSTRUCTOR = ("name_hint", "inputs", "belong_to", "tag", "checked_type_")


def _constructor(name: Any, inputs: Any, belong_to: Any, tag: Any, ty: Any) -> rl.Constructor:
    return rl.Constructor(name, inputs, belong_to, tag=tag, checked_type_=ty)


def _module_fields(module: RelayModule) -> tuple[object, ...]:
    functions = module.functions
    typed = all(function.checked_type_ is not None for function in functions.values())
    return tuple(functions.items()), tuple(module.type_definitions.values()), module.attrs, typed


def _module(functions: Any, definitions: Any, attrs: Any, typed: Any) -> RelayModule:
    module = RelayModule(dict(functions), {data.header: data for data in definitions}, attrs)
    return infer_module(module) if typed else module


def enter() -> None:
    """Add the kinds of Relay to those that can be saved.

    The types of expressions are not saved. A module whose functions had types is inferred when it
    is read.
    """
    kinds = {f"relay.{kind.__name__}": kind for kind in (*_EXPRESSIONS, *_TYPES)}
    serialize.add_kinds(
        {**kinds, "relay.IRModule": RelayModule, "relay.Op": Op},
        {
            rl.Constructor: (_CONSTRUCTOR, attrgetter(*_CONSTRUCTOR), _constructor),
            RelayModule: (
                ("functions", "type_definitions", "attrs", "typed"),
                _module_fields,
                _module,
            ),
            Op: (("name",), lambda op: (op.name,), Op.get),
        },
        (ty.TypeKind,),
        ty.Type,
    )


enter()
