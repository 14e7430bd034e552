"""Translation of a module: `relay.to_relax`, what prepares it, and why functions have none."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from relaxpy.errors import Diagnostic, RelayTypeError, Span, TransformError, check_type
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rename, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.transform.cleanup.dataflow_blocks import ConvertToDataflow
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.scopes import Scopes, same_scope, scope_roots
from relaxpy.plugins.relay.infer.module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.to_relax import functions
from relaxpy.plugins.relay.transform.fuse_ops import defused
from relaxpy.plugins.relay.transform.inline import is_polymorphic, values_expanded
from relaxpy.plugins.relay.transform.passes import map_functions, with_fresh_variables
from relaxpy.plugins.relay.ty import RefType, Type, TypeCall, TypeKind
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused

_MAX_INSTANCES: Final = 4096
"""The number of instances of local functions in a function."""


def prepared(module: RelayModule) -> RelayModule:
    """A typed module for translation.

    Operators and polymorphic functions that are values become functions that call them. Local
    polymorphic functions are replaced by their instances.
    """
    result = _inferred(module, defused)
    with suppress(RelayTypeError):  # the use of a value does not say its whole type
        result = _inferred(result, partial(values_expanded, module=result))
    return _inferred(result, _specialised)


def _inferred(module: RelayModule, transform: Callable[[rl.Function], rl.RelayExpr]) -> RelayModule:
    """The typed module of transformed functions; the given one if none changed."""
    new = map_functions(module, transform)
    return module if new is module else infer_module(new)


# Instances of local functions


def _specialised(function: rl.Function) -> rl.RelayExpr:
    """A function in which calls of local polymorphic functions call instances of these.

    It is the function itself if there are none, or none whose types are known.
    """

    def rule(node: Node) -> Node | None:
        match node:
            case rl.Call(op=rl.Function() as callee) if is_polymorphic(callee) and node.type_args:
                instance = instance_of(callee, node.type_args)
                return replace(node, op=instance, type_args=other_type_args(callee, node.type_args))
            case _:
                return None

    return _Specialisation(rl.rewrite(function, rule)).result()


class _Specialisation:
    """The instances of the polymorphic functions that lets bind in a function.

    Each has its own let, instead of that of the polymorphic function. Its body is a copy, in which
    calls demand instances of other functions.
    """

    def __init__(self, function: rl.Function) -> None:
        self.function = function
        self.templates: dict[rl.Var, rl.Function] = {}
        self.names: dict[rl.Var, dict[tuple[Any, ...], rl.Var]] = {}
        self.instances: dict[rl.Var, rl.RelayExpr] = {}

    def result(self) -> rl.RelayExpr:
        """The function with the instances; itself if there are none, or too many."""
        waiting: list[rl.RelayExpr] = [self.function]
        while waiting:
            for var, args in self._demanded(waiting.pop()):
                names, template = self.names[var], self.templates[var]
                if args in names or args in ((), template.type_params):  # or it calls itself
                    continue
                if len(self.instances) == _MAX_INSTANCES:
                    return self.function
                name = names[args] = rl.Var(f"{var.name_hint}_{len(names)}", span=var.span)
                instance = instance_of(rename(template, {var: name}), args)
                self.instances[name] = _without_type_args(instance, name)
                waiting.append(self.instances[name])
        if not self.templates:
            return self.function
        for name, body in reversed(list(self.instances.items())):  # instances inside others first
            self.instances[name] = self._rewritten(body)
        return self._rewritten(self.function)

    def _demanded(self, root: rl.RelayExpr) -> list[tuple[rl.Var, tuple[Any, ...]]]:
        """The callees and type arguments of calls in `root`, outside polymorphic functions.

        There are none if one of these functions is not translated: it is not bound by a let, calls
        itself with other types, or is used as a value.
        """
        found: dict[rl.Var, rl.Function] = {}
        uses: list[rl.Var] = []
        calls: list[rl.Var] = []
        closures = 0
        for node in walk(root):
            closures += node is not self.function and is_polymorphic(node)
            uses += (part for part in children(node) if isinstance(part, rl.Var))
            if isinstance(node, rl.Call) and isinstance(node.op, rl.Var):
                calls.append(node.op)
            elif isinstance(node, rl.Let) and is_polymorphic(node.value):
                assert isinstance(node.value, rl.Function)
                found[node.var] = node.value
                calls.append(node.var)
        as_values = Counter(uses) - Counter(calls)
        if closures > len(found) or any(var in as_values for var in found):
            return []
        if any(map(_is_polymorphic_recursion, found, found.values())):
            return []
        self.templates |= found
        self.names |= {var: {} for var in found}
        templates = set(map(id, found.values()))
        demanded: list[tuple[rl.Var, tuple[Any, ...]]] = []
        visited: set[int] = set()
        stack: list[Node] = [root]
        while stack:
            node = stack.pop()
            if id(node) in visited or id(node) in templates or isinstance(node, Type):
                continue
            visited.add(id(node))
            if isinstance(node, rl.Call) and node.op in self.templates:
                demanded.append((node.op, node.type_args))
            stack += children(node)
        return demanded

    def _rewritten(self, expr: rl.RelayExpr) -> rl.RelayExpr:
        """An expression that binds and calls instances."""

        def rule(node: Node) -> Node | None:
            match node:
                case rl.Call(op=rl.Var() as op, type_args=args) if op in self.names:
                    name = self.names[op].get(args)
                    others = other_type_args(self.templates[op], args) if name is not None else ()
                    return None if name is None else replace(node, op=name, type_args=others)
                case rl.Let(var=var, body=body) if var in self.names:
                    for name in reversed(self.names[var].values()):
                        body = rl.Let(name, self.instances[name], body, span=node.span)
                    return body
                case _:
                    return None

        return rl.rewrite(expr, rule)


def _is_polymorphic_recursion(var: rl.Var, function: rl.Function) -> bool:
    """True if a function calls itself with other type arguments than its parameters."""
    return any(
        isinstance(node, rl.Call)
        and node.op is var
        and node.type_args not in ((), function.type_params)
        for node in walk(function)
    )


def _without_type_args(function: rl.Function, var: rl.Var) -> rl.RelayExpr:
    """An instance whose calls of itself have no type arguments any more."""

    def rule(node: Node) -> Node | None:
        is_call = isinstance(node, rl.Call) and node.op is var
        return replace(node, type_args=()) if is_call else None  # type: ignore[type-var]

    return rl.rewrite(function, rule)


def instance_of(function: rl.Function, args: tuple[Any, ...]) -> rl.Function:
    """A copy of a function, with variables of its own, for these type arguments."""
    types: dict[Node, Node] = {
        param: arg
        for param, arg in zip(function.type_params, args, strict=True)
        if param.kind is TypeKind.Type
    }
    rest = tuple(param for param in function.type_params if param not in types)
    mono = rename(replace(function, type_params=rest, checked_type_=None), types)
    return with_fresh_variables(mono)


def other_type_args(function: rl.Function, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of the type parameters that an instance still has."""
    pairs = zip(function.type_params, args, strict=True)
    return tuple(arg for param, arg in pairs if param.kind is not TypeKind.Type)


_MAX_INSIDE: Final = 12
"""The number of instances of a function that may demand each other, one by one."""
#: The rule of functions that have no translation since they refer to one that has none.
REFERENCE: Final = "RLY-5"

_Key = tuple[str, tuple[Any, ...]]


@user_facing
def to_relax(mod: RelayModule, entry_functions: Sequence[str] | None = None) -> IRModule:
    """The Relax module of the entry functions and of all functions that they refer to.

    Without entry functions, `main` is the entry; if there is no `main`, every function is one that
    is not polymorphic. Functions keep their names; a polymorphic one has a translation for each
    instance. The module is well-formed and in normal form.

    Errors:
        RelayTypeError: the module is not well-typed.
        TransformError: an expression or a type is not one of Relax; all are reported.
        UnknownNameError: the module does not have an entry function.
    """
    check_type(mod, RelayModule, "expected a Relay module")
    module = infer_module(mod)
    if entry_functions is None:
        entry_functions = ["main"] if "main" in module else _monomorphic(module)
    translation = ModuleTranslation(module)
    for name in entry_functions:
        translation.require(name)
    reasons = {d: None for found in translation.obstacles.values() for d in found}
    if reasons:  # those of functions that refer to others are no reasons of their own
        raise TransformError([d for d in reasons if d.rule != REFERENCE])
    return translation.result()


def _monomorphic(mod: RelayModule) -> list[str]:
    """The names of the functions without type parameters that stand for any type."""
    return [
        var.name_hint
        for var, function in mod.functions.items()
        if all(param.kind is not TypeKind.Type for param in function.type_params)
    ]


def _no_translation(name: str) -> str:
    return f"the function refers to @{name}, which has no translation"


@user_facing
def untranslatable(mod: RelayModule) -> dict[str, tuple[Diagnostic, ...]]:
    """The functions that `to_relax` refuses, by name, each with the reasons.

    Errors:
        RelayTypeError: the module is not well-typed.
    """
    check_type(mod, RelayModule, "expected a Relay module")
    return translate_all(infer_module(mod)).obstacles_by_name()


def translate_all(module: RelayModule) -> ModuleTranslation:
    """The translation of all functions of a typed module that have one."""
    translation = ModuleTranslation(module)
    for var in module.functions:
        translation.require(var.name_hint)
    return translation


class ModuleTranslation:
    """The functions of a typed module that were translated, and the `obstacles` of the others."""

    def __init__(self, module: RelayModule) -> None:
        self.module = prepared(module)
        self.builder = BlockBuilder(suppress_warnings=True)
        self.names: dict[_Key, rx.GlobalVar] = {}
        self.instances: defaultdict[str, int] = defaultdict(int)
        self.obstacles: dict[_Key, tuple[Diagnostic, ...]] = {}
        self.callers: defaultdict[_Key, list[_Key]] = defaultdict(list)
        self.demanded_by: dict[_Key, _Key] = {}
        self._queue: list[tuple[_Key, functions.StructInfos, list[rx.Var], rx.StructInfo]] = []

    @gc_paused
    def require(self, name: str) -> None:
        """Translate a function and all that it refers to, as far as they have translations."""
        self.module.get_global_var(name)
        key: _Key = (name, ())
        try:
            self._declare(key)
        except functions.UntranslatableError as error:
            polymorphic = Diagnostic(str(error), error.rule, self.module[name].span)
            self._refuse(key, obstacles(self.module[name]) or [polymorphic])
        while self._queue:
            self._define(*self._queue.pop())

    def _refuse(self, key: _Key, diagnostics: Sequence[Diagnostic]) -> None:
        """Enter the obstacles of a function, and of all functions that refer to it."""
        self.obstacles.setdefault(key, tuple(diagnostics))
        stack = [key]
        while stack:
            refused = stack.pop()
            for caller in self.callers[refused]:
                if caller not in self.obstacles:
                    span = self.module[caller[0]].span
                    message = _no_translation(refused[0])
                    self.obstacles[caller] = (Diagnostic(message, REFERENCE, span),)
                    stack.append(caller)

    def _declare(self, key: _Key) -> rx.GlobalVar:
        """The Relax name of an instance of a function; its translation will follow.

        Errors:
            UntranslatableError: its type arguments are not known, or there is no end of instances.
        """
        known = self.names.get(key)
        if known is not None:
            return known
        name, args = key
        function = self.module[name]
        params = [p for p in function.type_params if p.kind is TypeKind.Type]
        if len(params) != len(args):
            raise functions.UntranslatableError(
                f"@{name} is polymorphic: only its instances, at calls, have translations", "RLY-97"
            )
        if params and self._demanding(key) > _MAX_INSIDE:
            raise functions.UntranslatableError(
                f"@{name} calls itself with other types each time: it has no end of instances",
                "RLY-97",
            )
        count = self.instances[name]
        self.instances[name] = count + 1
        infos = functions.StructInfos(dict(zip(params, args, strict=True)))
        gvar = rx.GlobalVar(self._instance_name(f"{name}_{count}") if params else name)
        self.names[key] = gvar
        try:
            found = obstacles(function)
            if found:
                raise functions.Obstacles(found)
            variables, result = functions.signature(function, infos)
        except functions.Obstacles as error:
            self._refuse(key, error.diagnostics)
        else:
            self.builder.declare_global(gvar, functions.translated_sinfo(variables, result))
            self._queue.append((key, infos, variables, result))
        return gvar

    def _demanding(self, key: _Key) -> int:
        """The number of instances of a function that demanded an instance, through others."""
        count, caller = 0, self.demanded_by.get(key)
        while caller is not None:
            count += caller[0] == key[0]
            caller = self.demanded_by.get(caller)
        return count

    def _instance_name(self, name: str) -> str:
        """The name of an instance, which no function of the module has."""
        while name in self.module:
            name += "_"
        return name

    def _define(
        self, key: _Key, infos: functions.StructInfos, params: list[rx.Var], result: rx.StructInfo
    ) -> None:
        function = self.module[key[0]]

        def callee(name: str, type_args: tuple[Any, ...]) -> rx.GlobalVar:
            parameters = self.module[name].type_params
            pairs = zip(parameters, type_args, strict=bool(type_args))
            types = tuple(arg for param, arg in pairs if param.kind is TypeKind.Type)
            other: _Key = (name, types)
            if other not in self.names:
                self.demanded_by[other] = key
            gvar = self._declare(other)
            self.callers[other].append(key)
            if other in self.obstacles:
                raise functions.UntranslatableError(_no_translation(name), REFERENCE)
            return gvar

        translation = functions.FunctionTranslation(
            self.module, self.builder, function, infos, callee
        )
        gvar = self.names[key]
        try:
            with self.builder.inner_scope():
                self.builder.begin_scope(params)
                body = self.builder.end_scope(translation.body(params))
        except functions.Obstacles as error:
            self._refuse(key, error.diagnostics)
        else:
            attrs = functions.kept_attrs(function)
            if not key[1]:
                attrs["global_symbol"] = gvar.name_hint
            defined = rx.Function(params, body, result, True, attrs, span=function.span)  # type: ignore[arg-type]
            self.builder.update_func(gvar, defined)

    def obstacles_by_name(self) -> dict[str, tuple[Diagnostic, ...]]:
        """The obstacles of the functions by name; those of all instances together."""
        named: defaultdict[str, dict[Diagnostic, None]] = defaultdict(dict)
        for (name, _), diagnostics in self.obstacles.items():
            own = [d for d in diagnostics if d.message != _no_translation(name)]
            named[name].update(dict.fromkeys(own))
        return {name: tuple(found) for name, found in named.items()}

    def result(self) -> IRModule:
        """The module of all functions without obstacles."""
        module = self.builder.get()
        for key in self.obstacles:
            if key in self.names and self.names[key].name_hint in module:
                del module[self.names[key]]
        return ConvertToDataflow(min_size=1)(module)


MAX_DEPTH: Final = 60
"""The number of branches and local functions inside each other in a function of Relax."""
MAX_TYPE_DEPTH: Final = 100
"""The number of tuples, or functions, inside each other in a type of Relax."""
_EVALUATED: Final = 'relay.create_executor("vm") runs it'
_INSTANCES: Final = f"call it where its type arguments are known; {_EVALUATED}"


def obstacles(function: rl.Function) -> list[Diagnostic]:
    """The reasons why a function of a typed module has no translation, one an expression."""
    found: list[Diagnostic] = []
    depths: dict[int, int] = {}
    scopes = Scopes(function)
    deepest = _deepest(scopes)
    if deepest is not None:
        what = f"more than {MAX_DEPTH} branches and functions are inside each other"
        return [Diagnostic(what, "RLY-50", deepest.span or function.span, _EVALUATED)]
    for node in scopes.nodes:
        if _depth(node.checked_type_, depths) > MAX_TYPE_DEPTH:
            what = f"a type contains more than {MAX_TYPE_DEPTH} types inside each other"
            return [Diagnostic(what, "RLY-66", node.span or function.span)]
        found += _of_node(node, is_local=node is not function)
    return found


def _depth(ty: Type | None, known: dict[int, int]) -> int:
    """The number of types inside each other in a type; `known` are depths by identity."""
    if ty is None:
        return 0
    if id(ty) not in known:
        for part in walk(ty):
            known[id(part)] = 1 + max((known[id(inner)] for inner in children(part)), default=0)
    return known[id(ty)]


def _deepest(scopes: Scopes) -> rl.RelayExpr | None:
    """An expression that is nested in too many branches and functions, if there is one."""
    depths = {id(scopes.outermost): 0}
    for node in reversed(scopes.nodes):
        depth = depths[id(scopes.of[id(node)])] + isinstance(node, (rl.If, rl.Function))
        if depth > MAX_DEPTH:
            return node
        depths.update((id(scope), depth) for scope in scopes.inner.get(id(node), ()))
    return None


def _of_node(node: rl.RelayExpr, *, is_local: bool) -> list[Diagnostic]:
    """The reason why an expression, apart from its operands, has no translation."""
    operands = (*same_scope(node), *scope_roots(node))
    callee = node.op if isinstance(node, rl.Call) else None
    reasons: list[tuple[str, str, Span | None]] = []
    hint: str | None = None
    for operand in operands:
        if isinstance(operand, rl.Constructor):
            name = operand.name_hint
            reasons.append((f"{name} constructs an instance of a data type", "RLY-34", None))
        elif isinstance(operand, Op) and operand is not callee:
            reasons.append((f"the operator {operand.name} is used as a value", "RLY-96", None))
    match node:
        case rl.RefCreate() | rl.RefRead() | rl.RefWrite():
            reasons.append(("Relax has no reference cells", "RLY-107", None))
        case rl.Match(clauses=clauses):
            if any(isinstance(p, rl.PatternConstructor) for c in clauses for p in walk(c.lhs)):
                reasons.append(("a match takes instances of data types apart", "RLY-52", None))
        case rl.Function():
            if is_local and is_polymorphic(node):
                ty = node.checked_type
                reasons.append((f"a closure is polymorphic, of type {ty}", "RLY-97", None))
                hint = _INSTANCES
            for param in node.params:
                part = next(
                    (p for p in walk(param.checked_type) if isinstance(p, (TypeCall, RefType))),
                    None,
                )
                if part is not None:
                    what = f"%{param.name_hint} has the type {part}, which Relax does not have"
                    rule = "RLY-31" if isinstance(part, TypeCall) else "RLY-105"
                    reasons.append((what, rule, param.span))
        case _:
            pass
    return [Diagnostic(what, rule, span or node.span, hint) for what, rule, span in reasons]
