"""The types of the patterns of a match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaxpy.errors import counted
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.ty import FuncType, TupleType, Type

if TYPE_CHECKING:
    from relaxpy.plugins.relay.infer.exprs import ExprInference


def bind_pattern(inference: ExprInference, root: rl.Pattern, data: Type) -> None:
    """Unify the type of a pattern with that of its input, and bind its variables (RLY-91)."""
    bound: set[rl.Var] = set()
    stack: list[tuple[rl.Pattern, Type]] = [(root, data)]
    while stack:
        pattern, ty = stack.pop()
        match pattern:
            case rl.PatternVar(var=var):
                if var in bound:
                    message = f"the pattern binds %{var.name_hint} twice"
                    inference.report(message, "RLY-92", pattern.span)
                    continue
                bound.add(var)
                if var.type_annotation is not None:
                    annotation = inference.annotation(var.type_annotation, var.span)
                    what = f"the pattern %{var.name_hint}"
                    inference.expect(ty, annotation, what, "RLY-91", pattern.span)
                inference.bind(var, ty)
            case rl.PatternTuple(patterns=patterns):
                fields = tuple(inference.solver.hole() for _ in patterns)
                inference.expect(ty, TupleType(fields), "the pattern", "RLY-91", pattern.span)
                stack += reversed(list(zip(patterns, fields, strict=True)))
            case rl.PatternConstructor(constructor=constructor, patterns=patterns):
                inputs = _field_types(inference, pattern, ty)
                if len(inputs) != len(patterns):
                    inference.report(
                        f"{constructor.name_hint} has {counted(len(inputs), 'field')}, "
                        f"found {counted(len(patterns), 'pattern')}",
                        "RLY-91",
                        pattern.span,
                    )
                    inputs = tuple(inference.solver.hole() for _ in patterns)
                stack += reversed(list(zip(patterns, inputs, strict=True)))
            case _:
                pass


def _field_types(
    inference: ExprInference, pattern: rl.PatternConstructor, ty: Type
) -> tuple[Type, ...]:
    """Return the field types of a constructor pattern for an input of type `ty`."""
    constructor = pattern.constructor
    function = inference.constructor_type(constructor)
    if not isinstance(function, FuncType):
        return tuple(inference.solver.hole() for _ in pattern.patterns)
    mono, _ = inference.instantiate(function, (), pattern.span)
    what = f"the pattern {constructor.name_hint}"
    inference.expect(ty, mono.ret_type, what, "RLY-91", pattern.span)
    return mono.arg_types
