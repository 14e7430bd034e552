"""Executors of Relay modules: `relay.create_executor` (RLY-112), and what runs compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import Diagnostic, MisuseError, check_type, close_names
from relaxpy.exec.api.compile import compile
from relaxpy.ir.core.traverse import reached, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.expr import Function, GlobalVar, RelayExpr, Var
from relaxpy.plugins.relay.infer.whole_module import infer_module
from relaxpy.plugins.relay.module import RelayModule, as_function, global_names
from relaxpy.plugins.relay.run.evaluator import Evaluator
from relaxpy.plugins.relay.run.nesting import nesting_functions
from relaxpy.plugins.relay.run.values import FunctionValue
from relaxpy.plugins.relay.to_relax import ModuleTranslation
from relaxpy.plugins.relay.ty import FuncType
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import Table

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
        """The value of an expression; functions are values that Python can call.

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
        """The way each function that an expression refers to runs, and why not compiled.

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
        """The typed module with an expression as a function, and the function's name."""
        if isinstance(expr, GlobalVar):
            return infer_module(self.mod), expr.name_hint
        module = self.mod.clone()
        name = "main"
        while name in module:
            name += "_"
        module[name] = as_function(expr)
        return infer_module(module), name

    def _with_params(self, function: Callable[..., Any], declared: Function) -> Any:
        """A function that Python calls with arguments by position or by name."""
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
    """An executor of expressions in the scope of `mod`.

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


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """How a function runs, "compiled" or "evaluated", with the reasons if it is not compiled."""

    function: str
    method: str
    reasons: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionReport:
    """How each function runs that an entry refers to; `str` is a table."""

    rows: tuple[FunctionRow, ...]

    def __iter__(self) -> Iterator[FunctionRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @override
    def __str__(self) -> str:
        rows = tuple(
            (row.function, row.method, "; ".join(f"{d.where}{d.message}" for d in row.reasons))
            for row in self.rows
        )
        return str(Table(("function", "runs", "because"), rows, text_columns=3))


def reachable(module: RelayModule, entry: str) -> list[str]:
    """The names of the functions that a function refers to, itself first."""
    return [*reached([entry], lambda name: _called(module, name))]


def _called(module: RelayModule, name: str) -> list[str]:
    return [called for called in sorted(global_names(module[name])) if called in module]


def report_of(module: RelayModule, entry: str) -> tuple[ModuleTranslation, FunctionReport]:
    """The translation of the functions that an entry refers to, and how each will run."""
    translation = ModuleTranslation(module)
    names = reachable(module, entry)
    try:
        for name in names:
            translation.require(name)
    except RecursionError:
        message = "a function or a type is nested too deeply for Python's stack"
        deep = Diagnostic(message, "RLY-5", module[entry].span)
        rows = [FunctionRow(name, "evaluated", (deep,)) for name in names]
        return translation, FunctionReport(tuple(rows))
    refused = translation.obstacles_by_name()
    nesting = nesting_functions(module)
    rows = []
    for name in names:
        reasons = refused.get(name, ())
        if not reasons and _takes_functions(module[name]):
            message = "it takes or returns functions, which are closures of the evaluator"
            reasons = (Diagnostic(message, "RLY-10", module[name].span),)
        if not reasons and name in nesting:
            message = "its calls may nest more deeply than Python's stack allows"
            reasons = (Diagnostic(message, "RLY-14", module[name].span),)
        rows.append(FunctionRow(name, "evaluated" if reasons else "compiled", reasons))
    return translation, FunctionReport(tuple(rows))


def _takes_functions(function: rl.Function) -> bool:
    """True if a parameter or the result of a function contains a function."""
    ty = function.checked_type
    assert isinstance(ty, FuncType)
    parts = (*ty.arg_types, ty.ret_type)
    return any(isinstance(part, FuncType) for root in parts for part in walk(root))


def compiled_functions(module: RelayModule, entry: str) -> dict[str, FunctionValue]:
    """The functions that an entry refers to and that run compiled, as values by name."""
    translation, report = report_of(module, entry)
    names = [row.function for row in report if row.method == "compiled"]
    if not names:
        return {}
    executable = compile(translation.result())

    def value(name: str) -> FunctionValue:
        call = executable[name]
        return FunctionValue(f"@{name}", module[name].checked_type, lambda args: call(*args))

    return {name: value(name) for name in names}
