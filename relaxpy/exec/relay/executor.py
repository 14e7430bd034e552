"""Executors of Relay modules: `relay.create_executor` (RLY-112)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, check_type, close_names
from relaxpy.exec.relay.compiled import (
    FunctionReport,
    FunctionRow,
    compiled_functions,
    reachable,
    report_of,
)
from relaxpy.exec.relay.evaluator import Evaluator
from relaxpy.ir.relay.expr import Function, GlobalVar, RelayExpr, Var
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule, as_function

_KINDS: Final = ("debug", "vm", "graph", "aot")


class Executor:
    """An executor of expressions in the scope of a module."""

    def __init__(self, mod: RelayModule, kind: str, params: Mapping[str, Any]) -> None:
        self.mod = mod
        self.kind = kind
        self.params = params

    @user_facing
    def evaluate(
        self, expr: RelayExpr | None = None, binds: Mapping[Var, Any] | None = None
    ) -> Any:
        """Return the value of an expression; functions are values that Python can call.

        Without an expression, it is the function `main` of the module. `binds` are values of free
        variables.

        Errors:
            RelayTypeError: the program is not well-typed.
            UnknownNameError: the module has no function `main`.
            RuntimeCheckError: a check at run time fails.
        """
        if binds:
            with_params = Function(tuple(binds), self._expr(expr))
            return self.evaluate(with_params)(*binds.values())
        module, name = self._entry(self._expr(expr))
        compiled = {} if self.kind == "debug" else compiled_functions(module, name)
        evaluator = Evaluator(module, compiled)
        function = evaluator.function(name)
        if expr is not None and not isinstance(expr, (GlobalVar, Function)):
            return evaluator.call(function, ())
        return self._with_params(lambda *args: evaluator.call(function, args), module[name])

    @user_facing
    def report(self, expr: RelayExpr | None = None) -> FunctionReport:
        """Return how each function runs that an expression refers to, and why not compiled.

        Without an expression, it is the function `main` of the module.

        Errors:
            RelayTypeError: the program is not well-typed.
        """
        module, name = self._entry(self._expr(expr))
        if self.kind == "debug":
            rows = [FunctionRow(function, "evaluated") for function in reachable(module, name)]
            return FunctionReport(tuple(rows))
        return report_of(module, name)[1]

    def _expr(self, expr: RelayExpr | None) -> RelayExpr:
        if expr is None:
            return self.mod.get_global_var("main")
        check_type(expr, RelayExpr, "expected a Relay expression")
        return expr

    def _entry(self, expr: RelayExpr) -> tuple[RelayModule, str]:
        """Return the typed module with an expression as a function, and the function's name."""
        if isinstance(expr, GlobalVar):
            return infer_module(self.mod), expr.name_hint
        module = self.mod.clone()
        name = "main"
        while name in module:
            name += "_"
        module[name] = as_function(expr)
        return infer_module(module), name

    def _with_params(self, function: Callable[..., Any], declared: Function) -> Any:
        """Return a function that Python calls with arguments by position or by name."""
        names = [param.name_hint for param in declared.params]

        def call(*args: Any, **kwargs: Any) -> Any:
            given = {**self.params, **kwargs}
            for name in kwargs:
                if name not in names:
                    raise MisuseError(
                        f"the function has no parameter {name}", hint=close_names(name, names)
                    )
            rest = names[len(args) :]
            missing = [name for name in rest if name not in given]
            if missing and (kwargs or self.params):
                raise MisuseError(f"there is no argument for {', '.join(missing)}", rule="RLY-94")
            return function(*args, *(given[name] for name in rest if name in given))

        return user_facing(call)


@user_facing
def create_executor(
    kind: str = "debug",
    mod: RelayModule | None = None,
    device: object = None,
    target: object = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Executor:
    """Return an executor of expressions in the scope of `mod`.

    All kinds give the same values. "debug" evaluates everything, literally by the rules; the others
    compile the functions that `to_relax` translates and that take and return tensors and tuples,
    and evaluate the rest: `report()` of the executor says which, and
    `relaxpy.compile(to_relax(mod))` compiles all or nothing. `device` and `target` exist for
    programs of TVM; `params` are arguments by the names of parameters.

    Errors:
        MisuseError (also ValueError): the kind is unknown.
    """
    if kind not in _KINDS:
        raise MisuseError(
            f"there is no executor {kind!r:.60}; kinds are {', '.join(_KINDS)}",
            hint=close_names(str(kind), _KINDS),
            about=kind,
        )
    check_type(mod, RelayModule | None, "expected a Relay module")
    return Executor(RelayModule() if mod is None else mod, kind, dict(params or {}))
