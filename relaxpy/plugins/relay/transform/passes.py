"""Passes over Relay modules: their base class, passes made of functions, and lets by values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar as _TypeVar

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError, unexpected
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children, rename, walk
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import is_atom
from relaxpy.plugins.relay.expr import Function, RelayExpr, TempExpr
from relaxpy.plugins.relay.infer.whole_module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.ty import Type, TypeVar, UnknownDim
from relaxpy.plugins.relay.variables import bound_vars, free_type_vars, free_vars_of_functions
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing

E = _TypeVar("E", bound=rl.RelayExpr)


class RelayPass(Pass):
    """The base class of passes over Relay modules; their results have types.

    Relax has passes of the same names, so that these are not found by name.
    """

    module_kind: ClassVar[type[Node]] = RelayModule

    @override
    def __init_subclass__(cls) -> None:
        """Leave the table of names to the passes of Relax."""

    @property
    @override
    def info(self) -> PassInfo:
        cls = type(self)
        full_name = f"{cls.__module__}.{cls.__qualname__}"
        return PassInfo(self.opt_level, cls.__name__, self.required, full_name=full_name)

    if TYPE_CHECKING:

        @override
        def __call__(self, mod: Any) -> Any: ...

    @override
    def transform(self, mod: Any, ctx: PassContext) -> Any:
        result = self.apply(mod)
        if result is mod:
            return mod
        leftovers = [
            node
            for function in result.functions.values()
            for node in walk(function)
            if isinstance(node, TempExpr)
        ]
        if leftovers:
            raise TransformError(
                f"pass {self.info.name} left {type(leftovers[0]).__name__} in the program",
                rule="RLY-57",
                hint="replace each TempExpr by what its realize() returns",
            )
        return infer_module(result)

    @abstractmethod
    def apply(self, mod: RelayModule) -> RelayModule:
        """The module after the pass, with or without types; `mod` if nothing changed."""

    @override
    def verify(self, mod: Any) -> None:
        """Check that the result is well-typed."""
        infer_module(mod)


def map_functions(mod: RelayModule, transform: Callable[[Function], RelayExpr]) -> RelayModule:
    """A module whose functions are transformed; the module itself if none changed."""
    result = mod
    for var, function in mod.functions.items():
        new = transform(function)
        if new is not function:
            result = result.clone() if result is mod else result
            result[var] = new
    return result


def map_typed(mod: RelayModule, transform: Callable[[Function], RelayExpr]) -> RelayModule:
    """A module whose functions, with types, are transformed; itself if none changed."""
    typed = infer_module(mod)
    result = map_functions(typed, transform)
    return mod if result is typed else result


@dataclass(frozen=True)
class InferType(RelayPass):
    """Gives every expression its type, and fills in the annotations that are missing (RLY-101)."""

    @override
    def transform(self, mod: Any, ctx: PassContext) -> Any:
        return self.apply(mod)

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return infer_module(mod)


@dataclass(frozen=True)
class _FunctionPass(RelayPass):
    """A pass that applies a Python function to each function of a module."""

    function: Callable[[Function, RelayModule, PassContext], Function]
    opt_level: int = 0  # type: ignore[misc]
    name: str = ""
    required: Sequence[Any] = ()  # type: ignore[misc,assignment]

    @property
    @override
    def info(self) -> PassInfo:
        return PassInfo(self.opt_level, self.name, tuple(self.required))

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        context = PassContext.current()

        def transformed(function: Function) -> Function:
            new = self.function(function, mod, context)
            if not isinstance(new, Function):
                raise TransformError(
                    f"pass {self.name} returned {type(new).__name__}, not a Function"
                )
            return new

        return map_functions(mod, transformed)


@user_facing
def function_pass(
    pass_func: Callable[..., Any] | type | None = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Sequence[Any] | None = None,
) -> Any:
    """A pass of a function `(function, module, context) -> function`, or a decorator.

    A class has the method `transform_function`; the result is then a function that takes the
    arguments of its constructor and returns the pass.

    Errors:
        MisuseError (also TypeError): `pass_func` is neither a function nor such a class.
    """
    if pass_func is None:
        return lambda function: function_pass(function, opt_level, name, required)
    title = str(name or getattr(pass_func, "__name__", "function_pass"))
    if isinstance(pass_func, type):
        method = getattr(pass_func, "transform_function", None)
        if method is None:
            raise MisuseError(f"{title} has no method transform_function", about=pass_func)

        def create(*args: Any, **kwargs: Any) -> RelayPass:
            subject = pass_func(*args, **kwargs)
            return _FunctionPass(
                subject.transform_function, opt_level, title, tuple(required or ())
            )

        return create
    if not callable(pass_func):
        raise unexpected(pass_func, "expected a function")
    return _FunctionPass(pass_func, opt_level, title, tuple(required or ()))


def recursive_functions(root: rl.RelayExpr) -> Callable[[rl.Let], bool]:
    """True if a let in an expression binds a function that mentions its own variable."""
    free = free_vars_of_functions(root)
    return lambda let: let.var in free.get(id(let.value), ())


def is_cast(annotation: Type | None, actual: Type | None) -> bool:
    """True if a variable has another type than the value that it is bound to.

    One of them has `?` where the other has a size (RLY-88): the size is checked, or forgotten.
    """
    if annotation is None or actual is None or annotation is actual:
        return False
    is_open = any(isinstance(part, UnknownDim) for ty in (annotation, actual) for part in walk(ty))
    return is_open and annotation != actual


def with_fresh_variables(function: rl.Function) -> rl.Function:
    """A copy of a function that shares neither variables nor other expressions with it."""
    variables = {
        var: rl.Var(var.name_hint, var.type_annotation, span=var.span)
        for var in bound_vars(function)
    }
    inside = [n for n in walk(function) if isinstance(n, rl.RelayExpr) and not is_atom(n)]
    return rename(function, variables, inside)


def closed_over_types(function: rl.Function) -> rl.Function:
    """A function whose first type parameters are those that were free in it."""
    types = {var: TypeVar(var.name_hint, var.kind) for var in free_type_vars(function)}
    if not types:
        return function
    params = (*types.values(), *function.type_params)
    return replace(rename(function, types), type_params=params)


def replace_lets(
    expr: rl.RelayExpr,
    stays: Callable[[rl.Let, rl.RelayExpr], bool],
    rule: Callable[[Node], Node | None] = lambda node: None,
) -> rl.RelayExpr:
    """An expression without the lets that do not stay; shared nodes stay shared.

    `stays` receives a let and its new value. `rule` is applied once to each other expression,
    children first, after the variables in it were replaced; None leaves it unchanged.
    """
    done: dict[int, Any] = {}
    replaced: set[rl.Var] = set()
    # A let is visited before its value, before its body, and after both; other nodes twice.
    stack: list[tuple[Node, int]] = [(expr, 0)]
    while stack:
        node, visit = stack.pop()
        if id(node) in done:
            continue
        if isinstance(node, rl.Var):
            done[id(node)] = node  # it has another value from its let on
        elif isinstance(node, (Type, rl.Constructor)):
            done[id(node)] = node
        elif isinstance(node, rl.Let):
            if visit == 0:
                stack += [(node, 1), (node.value, 0)]
            elif visit == 1:
                value = done[id(node.value)]
                if not stays(node, value):
                    replaced.add(node.var)
                    done[id(node.var)] = value
                stack += [(node, 2), (node.body, 0)]
            else:
                done[id(node)] = _rebuilt(node, done, replaced=node.var in replaced)
        elif visit == 0:
            stack.append((node, 1))
            stack += [(c, 0) for c in reversed(list(children(node))) if id(c) not in done]
        else:
            rebuilt = map_children(lambda child: done.get(id(child), child), node)
            result = rule(rebuilt)
            done[id(node)] = rebuilt if result is None else result
    new: rl.RelayExpr = done[id(expr)]
    return new


def _rebuilt(let: rl.Let, done: dict[int, Any], *, replaced: bool) -> rl.RelayExpr:
    value, body = done[id(let.value)], done[id(let.body)]
    if replaced:
        return body  # type: ignore[no-any-return]
    same = value is let.value and body is let.body
    return let if same else rl.Let(let.var, value, body, span=let.span)


@user_facing
def run_infer_type(expr: E) -> E:
    """An expression with types."""
    typed: Any = infer_module(RelayModule.from_expr(expr))["main"]
    result: E = typed if isinstance(expr, rl.Function) else typed.body
    return result


@user_facing
def run_opt_pass(
    expr: rl.RelayExpr, opt_pass: Callable[[RelayModule], RelayModule], import_prelude: bool = False
) -> rl.RelayExpr:
    """The result of a pass, or a sequence of passes, on an expression, with types."""
    module = RelayModule.from_expr(expr)
    if import_prelude:
        module.import_from_std("prelude.rly")
    result: rl.Function = infer_module(opt_pass(module))["main"]
    return result if isinstance(expr, rl.Function) else result.body
