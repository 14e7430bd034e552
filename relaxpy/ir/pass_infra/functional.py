"""Passes from Python functions, and the decorators that make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.core.node import Node, is_function
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo, Requirement, listed
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

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
            return PassInfo(pass_name, level, listed(required, "passes or their names"), traceable)

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

    decorator.__name__ = decorator.__qualname__ = decorator_name
    decorator.__doc__ = f"""A pass from `f({arguments})`, or a class with `{method}({arguments})`.

    Errors:
        MisuseError (also TypeError): it is neither, or `opt_level` is missing.
    """
    return decorator


module_pass = pass_decorator(
    "module_pass", ModulePass, "transform_module", "mod, ctx", lambda function: function
)
