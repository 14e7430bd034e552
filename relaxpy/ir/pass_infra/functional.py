"""Passes from Python functions, and passes over some functions of a module."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError, check_type, unexpected
from relaxpy.ir.core.node import Node, is_function
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo, Requirement, listed
from relaxpy.ir.relax.nodes import BaseFunc, ExternFunc, GlobalVar
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import found_at, user_facing

ModuleFunction: TypeAlias = Callable[[IRModule, PassContext], IRModule]


@dataclass(frozen=True)
class FunctionalPass(Pass):
    """A pass from a Python function; `owner` is the object if that is a method."""

    function: ModuleFunction
    known_as: PassInfo
    owner: object | None = None

    @property
    @override
    def info(self) -> PassInfo:
        return self.known_as

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self.function(mod, ctx)

    def __getattr__(self, name: str) -> Any:
        """Attributes of the object whose method the pass runs."""
        owner = self.__dict__.get("owner")
        if owner is None:
            raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}", name=name)
        return getattr(owner, name)


class ModulePass(FunctionalPass):
    """A pass from a function over modules; `module_pass` creates it."""


def pass_decorator(
    name: str,
    kind: type[FunctionalPass],
    method: str,
    arguments: str,
    lift: Callable[[Callable[..., Any]], ModuleFunction],
) -> Callable[..., Any]:
    """The decorator of functions with these arguments, and of classes with such a method."""
    decorator_name = name

    @user_facing
    def decorator(
        pass_func: object | None = None,
        opt_level: int | None = None,
        name: str | None = None,
        required: Sequence[Requirement] | None = None,
        traceable: bool = False,
    ) -> Any:
        if opt_level is None:
            if isinstance(pass_func, Node):
                raise unexpected(pass_func, "a pass is a function or a class")
            raise MisuseError("a pass needs an opt_level, from which on it runs")
        level = opt_level
        check_type(level, int, "opt_level is an integer")

        def info(decorated: object) -> PassInfo:
            pass_name = str(name or getattr(decorated, "__name__", "pass"))
            return PassInfo(level, pass_name, listed(required, "passes or their names"), traceable)

        def decorate(decorated: Any) -> Any:
            if not is_function(decorated):
                raise unexpected(decorated, "a pass is a function or a class")
            if not isinstance(decorated, type):
                return kind(lift(decorated), info(decorated))
            if getattr(decorated, method, None) is None:
                raise MisuseError(f"class {decorated.__name__} has no method {method}")

            @wraps(decorated, updated=())
            def construct(*args: Any, **kwargs: Any) -> FunctionalPass:
                owner = decorated(*args, **kwargs)
                return kind(lift(getattr(owner, method)), info(decorated), owner)

            return construct

        return decorate if pass_func is None else decorate(pass_func)

    decorator.__name__ = decorator_name
    found_at(sys._getframe(1).f_globals["__name__"], decorator)
    decorator.__doc__ = f"""A pass from `f({arguments})`, or a class with `{method}({arguments})`.

    Errors:
        MisuseError (also TypeError): it is neither, or `opt_level` is missing.
    """
    return decorator


module_pass = pass_decorator(
    "module_pass", ModulePass, "transform_module", "mod, ctx", lambda function: function
)


@dataclass(frozen=True)
class ApplyPassToFunction(Pass):
    """Applies a pass to the functions whose whole name the regular expression matches.

    The pass sees packed functions with the same signatures instead of the others.

    Errors:
        MisuseError: `pass_` is not a pass, or `func_name_regex` is not a regular expression.
        TransformError: no name matches, and `error_if_no_function_matches_regex` is set.
    """

    pass_: Pass
    func_name_regex: str
    error_if_no_function_matches_regex: bool = False

    @user_facing
    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            re.compile(self.func_name_regex)
        except re.error as error:
            raise MisuseError(
                f"expected a regular expression, found {self.func_name_regex!r:.60}: {error}",
                about=self.func_name_regex,
            ) from None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        chosen = {v for v in mod if re.fullmatch(self.func_name_regex, v.name_hint)}
        if not chosen:
            if self.error_if_no_function_matches_regex:
                names = ", ".join(v.name_hint for v in mod) or "none"
                raise TransformError(
                    f"no function name matches {self.func_name_regex!r}; there are {names}"
                )
            return mod
        # Private functions are made public for the pass, since their users may be hidden.
        private = {v for v in chosen if "global_symbol" not in mod[v].attrs}
        marks = {v: mod[v].with_attr("global_symbol", v.name_hint) for v in private}
        hidden = {v: ExternFunc(v.name_hint, func.struct_info) for v, func in mod.items()}
        seen = IRModule(
            {v: marks.get(v, func) if v in chosen else hidden[v] for v, func in mod.items()},
            mod.attrs,
            mod.global_infos,
        )
        after = self.pass_(seen)
        if after is seen:
            return mod
        functions: dict[GlobalVar, BaseFunc] = {}
        for var, func in mod.items():
            if var not in chosen:
                functions[var] = func
            elif var in private and var in after:
                same = after[var] is marks[var]
                functions[var] = func if same else after[var].without_attr("global_symbol")
            elif var in after:
                functions[var] = after[var]
        functions |= {v: func for v, func in after.items() if v not in mod}
        return IRModule(functions, after.attrs, after.global_infos)


F = TypeVar("F", bound=BaseFunc)


def map_functions(
    mod: IRModule, kind: type[F], step: Callable[[F], Any], *, removes: bool = False
) -> IRModule:
    """The module with `step(func)` instead of each function of a kind; itself if none changes.

    If the step `removes` functions, it returns None for them.

    Errors:
        TransformError: a step returns something other than a function of the kind.
    """
    result = mod
    for var, func in mod.items():
        changed = step(func) if isinstance(func, kind) else func
        if changed is func:
            continue
        result = mod.clone() if result is mod else result
        if changed is None and removes:
            del result[var]
        elif isinstance(changed, kind):
            result[var] = changed
        else:
            raise TransformError(
                f"a pass over {kind.__name__}s returned {type(changed).__name__} for "
                f"{var.name_hint}",
                rule="TOP-8",
            )
    return result
