"""The Python functions that build calls of operators: `relay.add(x, y)`, `relay.nn.dense(x, w)`."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from relaxpy.errors import MisuseError, UnknownAttributeError, close_names, counted, unexpected
from relaxpy.plugins.relay.expr import Call, Constant, RelayExpr, Tuple, const
from relaxpy.plugins.relay.op.registry import REQUIRED, Op, OpRecord, is_op_name, list_op_names
from relaxpy.support.absent import instead_of
from relaxpy.support.entry import user_facing
from relaxpy.support.missing import LOOKS_UP_NAMES as LOOKS_UP_NAMES, attribute_error

Maker = Callable[..., Any]

_FUNCTIONS: Final[dict[str, Maker]] = {}
_CONSTANTS: Final = ("float32", "int32", "int64")


class Makers:
    """The functions that build calls of a family of operators, such as `relay.qnn`."""

    __slots__ = ("_family",)

    def __init__(self, family: str) -> None:
        self._family = family

    def __getattr__(self, name: str) -> Maker | Makers:
        return maker(f"{self._family}.{name}")


def public(name: str) -> Callable[[Maker], Maker]:
    """Decorate the function that users call under `name`.

    It replaces the function that `maker` writes for an operator, where the parameters of TVM's
    function are not the operands followed by the attributes.
    """

    def enter(function: Maker) -> Maker:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            _bound(name, signature, args, kwargs)
            return function(*args, **kwargs)

        checked.__name__ = checked.__qualname__ = name.rpartition(".")[2]
        _FUNCTIONS[name] = user_facing(checked)
        return function

    return enter


def public_signature(text: str, operator: str = "") -> None:
    """Define the function of a signature, such as `gather(data, axis, indices)`.

    The name before the bracket is that of the operator, unless another is given. Parameters are
    operands and attributes of it. An annotation is the name that one has there, or the datatype of
    the constant that a number becomes.
    """
    name, _, parameters = text.partition("(")
    function = ast.parse(f"def f({parameters}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    signature: Any = _written(function.args)
    record = Op.get(operator or name).record
    other = {
        p.arg: p.annotation.id for p in function.args.args if isinstance(p.annotation, ast.Name)
    }

    def make(*args: Any, **kwargs: Any) -> Call:
        bound = _bound(name, signature, args, kwargs)
        bound.apply_defaults()
        given: dict[str, Any] = {}
        for key, value in bound.arguments.items():
            target = other.get(key, key)
            if target in _CONSTANTS:
                given[key] = number(value, target)
            else:
                given[target] = value
        operands = [given.pop(operand) for operand in record.operands]
        return build(record.name, *operands, **given)

    _FUNCTIONS[name] = _described(make, name, signature, record)


def _written(args: ast.arguments) -> inspect.Signature:
    """The signature of parameters that are written as text."""
    names = [arg.arg for arg in args.args]
    defaults = [inspect.Parameter.empty] * (len(names) - len(args.defaults))
    values = [*defaults, *map(ast.literal_eval, args.defaults)]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    pairs = zip(names, values, strict=True)
    return inspect.Signature([inspect.Parameter(n, kind, default=value) for n, value in pairs])


def _described(make: Maker, name: str, signature: inspect.Signature, record: OpRecord) -> Maker:
    """A function with the name, the signature and the description of an operator's."""
    make.__name__ = make.__qualname__ = name.rpartition(".")[2]
    operands = counted(len(record.operands), "operand")
    make.__doc__ = (
        record.description or f"Return a call of the operator `{record.name}`: {operands}."
    )
    make.__signature__ = signature  # type: ignore[attr-defined]
    return user_facing(make)


def public_name(module: str, name: str) -> Maker | Makers:
    """The member of a module of Relay with a name that is not listed: `maker` of its path.

    Errors:
        UnknownAttributeError (also AttributeError): there is no such operator.
    """
    if instead_of(f"{module}.{name}"):
        raise attribute_error(module, name)
    family = module.removeprefix("relaxpy.relay").removeprefix(".op").removeprefix(".")
    return maker(f"{family}.{name}" if family else name)


def maker(name: str) -> Maker | Makers:
    """The function that builds calls of the operator `name`, or those of a family.

    Errors:
        UnknownAttributeError (also AttributeError): there is no such operator.
    """
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name == "qnn.op":  # the path in TVM
        return Makers("qnn")
    if not is_op_name(name):
        known = {*_FUNCTIONS, *list_op_names()}
        if any(other.startswith(f"{name}.") for other in known):
            return Makers(name)
        raise UnknownAttributeError(
            f"relay has no attribute {name}", hint=close_names(name, sorted(known))
        )
    op = Op.get(name)
    signature = _signature(op)

    def make(*args: Any, **kwargs: Any) -> Call:
        bound = _bound(name, signature, args, kwargs)
        bound.apply_defaults()
        given = [bound.arguments.pop(o) for o in op.record.operands]
        return build(name, *given, **bound.arguments)

    return _described(make, name, signature, op.record)


def build(operator: str, /, *operands: Any, **attrs: Any) -> Call:
    """A call of an operator.

    An attribute that is None has its default. Where an attribute is an expression, the value of a
    constant is taken, and of others the operator `dyn.` of the same name.
    """
    record = Op.get(operator).record
    defaults = {**record.attributes, **record.maker_defaults}
    for name, value in attrs.items():
        if isinstance(value, Constant):
            attrs[name] = value.data.tolist()
    if any(isinstance(value, RelayExpr) for value in attrs.values()):
        return _dynamic(operator, dict(zip(record.operands, operands, strict=True)), attrs)
    given = {
        name: value
        for name, value in attrs.items()
        if value is not None or defaults.get(name) in (None, REQUIRED)
    }
    nodes = [_operand(operator, value) for value in operands]
    return Call(Op.get(operator), nodes, record.maker_attrs(given))  # type: ignore[arg-type]


def number(value: Any, dtype: str) -> Any:
    """A number, or a list of numbers, as a constant; expressions stay."""
    return value if isinstance(value, RelayExpr) else const(np.asarray(value, dtype))


def _dynamic(name: str, given: Mapping[str, Any], attrs: Mapping[str, Any]) -> Call:
    """The call of `dyn.name`, whose operands are some of the attributes of `name`."""
    if not is_op_name(f"dyn.{name}"):
        found = next(key for key, value in attrs.items() if isinstance(value, RelayExpr))
        raise MisuseError(f"{name}: {found} is a number or a list, found an expression")
    record, arguments = Op.get(f"dyn.{name}").record, {**given, **attrs}
    operands = [
        value if isinstance(value, RelayExpr) else const(value)
        for value in map(arguments.get, record.operands)
    ]
    rest = {key: value for key, value in attrs.items() if key in record.attributes}
    return build(record.name, *operands, **rest)


def _bound(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        raise MisuseError(f"{name}: {error}", rule="RLY-94") from None


def _signature(op: Op) -> inspect.Signature:
    record = op.record
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {**record.attributes, **record.maker_defaults}
    required = [n for n, value in defaults.items() if value is REQUIRED]
    optional = [n for n in defaults if n not in required]
    first = [inspect.Parameter(n, kind) for n in (*record.operands, *required)]
    return inspect.Signature(
        [*first, *(inspect.Parameter(n, kind, default=defaults[n]) for n in optional)]
    )


def _operand(name: str, value: Any) -> RelayExpr:
    if isinstance(value, (tuple, list)) and all(isinstance(v, RelayExpr) for v in value):
        return Tuple(value)  # type: ignore[arg-type]
    if not isinstance(value, RelayExpr):
        raise unexpected(
            value, f"{name} takes Relay expressions", hint=f"write relay.const({value!r:.60})"
        )
    return value
