"""Arguments of the Python API that have no meaning: errors of relaxpy, never of its insides."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import arith, ir, relax, runtime, te, tir, topi
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.relax.frontend import nn
from relaxpy.script import from_source

TEXT = "@R.function\ndef main(x: R.Tensor((3,), 'float32')):\n    return R.exp(x)\n"
MODULE = relaxpy.IRModule({"main": from_source(TEXT)})
EXECUTABLE = relaxpy.compile(MODULE, target="numpy")
NOT_PATHS = [None, 3, b"a", ["a"], np.ones(2), "a\0b", "\ud800"]
NOT_NAMES = [None, 3, b"a", ["a"], np.ones(2), 1.5]


@pytest.mark.parametrize(
    ("use", "values"),
    [
        (EXECUTABLE.save, NOT_PATHS),
        (relaxpy.load_executable, NOT_PATHS),
        (lambda value: relaxpy.compile(MODULE, target=value), [3, np.ones(2), ["a"], "a"]),
        (lambda value: from_source(TEXT, {value: 3}), [3, None, 1.5, b"a"]),
        (lambda value: from_source(TEXT).with_attr(value, 1), NOT_NAMES),
        (lambda value: relax.transform.DeadCodeElimination([value])(MODULE), NOT_NAMES),
    ],
    ids=["save", "load", "target", "extra_vars", "with_attr", "entry_functions"],
)
def test_an_argument_without_meaning(use: Callable[[Any], object], values: list[object]) -> None:
    for value in values:
        with pytest.raises(RelaxpyError):
            use(value)


def test_paths_and_names_that_have_a_meaning(tmp_path: Path) -> None:
    for path in (tmp_path / "é", str(tmp_path / "program")):
        EXECUTABLE.save(path)
        assert relaxpy.load_executable(path)["main"](np.zeros(3, "float32")).tolist() == [1] * 3
    func = from_source(TEXT).with_attr({"a": 1})
    assert func.attrs["a"] == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda: MODULE["main"].bind_params(3),
        lambda: MODULE["main"].bind_symbolic_vars(3),
        lambda: MODULE["main"].inline_functions(3),
        lambda: MODULE["main"].with_attrs("a"),
        lambda: MODULE["main"].without_attr(np.ones(2)),
        lambda: MODULE.replace_global_vars(3),
        lambda: MODULE.with_attr({}, 1),
        lambda: MODULE.get_attr([]),
        lambda: tir.Schedule(MODULE).work_on([]),
        lambda: tir.Schedule(MODULE).seed([]),
    ],
)
def test_an_argument_of_a_method_without_meaning(use: Callable[[], object]) -> None:
    with pytest.raises(MisuseError, match=r"is (a table|a string|an integer)|with_attr"):
        use()


def functions_of(*modules: ModuleType) -> Iterator[Callable[..., Any]]:
    """The public functions that begin at the boundary to user code."""
    for module in modules:
        for name in dir(module):
            function = None if name.startswith("_") else getattr(module, name, None)
            if inspect.isfunction(function) and hasattr(function, "__wrapped__"):
                yield function


def test_an_array_is_not_a_string_a_number_or_a_boolean() -> None:
    plain = {"str", "int", "float", "bool", "str | None", "int | None", "bool | None"}
    modules = (relaxpy, arith, ir, relax, relax.analysis, relax.dpl, relax.op, relax.op.nn)
    seen = 0
    for function in functions_of(*modules, runtime, te, tir, topi, topi.nn):
        params = [
            param
            for param in inspect.signature(function).parameters.values()
            if param.kind is param.POSITIONAL_OR_KEYWORD
        ]
        seen += any(param.annotation in plain for param in params)
        args = [np.ones(2) if param.annotation in plain else None for param in params]
        with suppress(RelaxpyError):
            function(*args)
    assert seen > 150


KERNEL = from_source("@T.prim_func\ndef f(): T.evaluate(0)")
ITSELF: list[object] = []
ITSELF.append(ITSELF)
NONSENSE = {
    "nothing": None,
    "a number": 3,
    "a string": "x",
    "an empty list": [],
    "a list of itself": ITSELF,
    "an object": object(),
    "an array": np.ones(2),
    "a module": MODULE,
    "a tensor": te.placeholder((3,), "float32"),
}
SWEPT = (
    *(relaxpy, arith, ir, relax, relax.analysis, relax.dpl, relax.op, relax.op.nn, relax.utils),
    *(runtime, te, tir, tir.analysis, tir.stmt_functor, tir.transform, topi, topi.image, topi.nn),
    *(relax.transform, relaxpy.transform, relaxpy.target, relax.frontend.nn),
)
FUNCTIONS = {
    value: None
    for module in SWEPT
    for name in dir(module)
    if not name.startswith("_")
    if inspect.isfunction(value := getattr(module, name, None))
    if value.__module__.startswith("relaxpy.")
}
"""The public functions, each once."""


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_of_a_kind_is_refused_by_every_function(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    errors = []
    for function in FUNCTIONS:
        named = {
            p.name: NONSENSE[kind]
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        }
        try:
            function(**named)
        except (RelaxpyError, OSError):  # a file of this name is not there
            pass
        except Exception as error:
            errors.append((function.__module__, function.__qualname__, error))
    assert not errors


def test_arguments_that_are_missing_are_named() -> None:
    for function in functions_of(*SWEPT):
        params = inspect.signature(function).parameters.values()
        required = [
            p.name
            for p in params
            if p.default is p.empty
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        if required:
            with pytest.raises(MisuseError, match=required[0]):
                function()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: te.scan(3, x, x), "scan: init is a tensor expression or a list of tensor expr"),
        (lambda x: tir.decl_buffer((3,), scope=[]), "decl_buffer: scope is a string"),
        (lambda x: tir.analysis.expr_deep_equal(3, 3), "expr_deep_equal: lhs is a scalar expr"),
        (lambda x: topi.reshape(x, 3.5), "topi.reshape: newshape is a list of scalars"),
        (lambda x: topi.concatenate([x, [x]]), "a_tuple is a list of tensor expressions"),
        (lambda x: topi.broadcast_to(x, (1,)), "shape is a repetition of placeholder of (3,)"),
        (lambda x: topi.broadcast_to(x, ()), "shape is a repetition of placeholder of (3,)"),
        (lambda x: topi.tensordot(x, x, 2), "axes is between 0 and 1, found 2"),
        (lambda x: topi.tensordot(x, x, [[0]]), "axes are pairs"),
        (lambda x: topi.trilu(x, 0, True), "data has at least 2 axes"),
        (lambda x: topi.nn.conv1d(x, x, 1, 0, 1), "has the axes NCW, found rank 1"),
        (lambda x: topi.matrix_set_diag(x, x, []), "k is an integer or two of them"),
        (lambda x: te.sum([], te.reduce_axis((0, 3))), "expr is a scalar or several of them"),
        (lambda x: relax.Tuple(ITSELF), "contains itself"),
        (lambda x: relax.Var("x") + ITSELF, "contains itself"),
        (lambda x: tir.AttrStmt(ITSELF, "key", 0, tir.Evaluate(0)), "contains itself"),
        (lambda x: relax.BlockBuilder().lookup_binding([]), "lookup_binding: var is a Var"),
        (lambda x: relax.BlockBuilder().has_func(3, 4), "has_func: gvar is a GlobalVar"),
        (lambda x: tir.Schedule(KERNEL).remove_rv([]), "remove_rv: rand_var is a BlockRV or"),
        (lambda x: nn.Linear(3, 4).state_dict(destination=3), "destination is a table"),
        (lambda x: relaxpy.transform.PassContext(check=np.ones(2)), 'check is a bool or "values"'),
    ],
)
def test_an_argument_without_meaning_is_named(use: Callable[[Any], object], message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        use(te.placeholder((3,), "float32"))
    assert message in str(caught.value)


def test_an_error_of_a_function_of_the_user_is_not_one_of_an_argument() -> None:
    with pytest.raises(ValueError, match="invalid literal for int") as caught:
        te.compute((3,), lambda i: int("x"), attrs=3)
    assert not isinstance(caught.value, RelaxpyError)


LAYERS = [
    (name, param.name)
    for name, layer in inspect.getmembers(nn, inspect.isclass)
    if layer.__module__ == nn.Linear.__module__
    for param in inspect.signature(layer).parameters.values()
    if param.annotation in ("bool", "str | None")
]


@pytest.mark.parametrize(("layer", "option"), LAYERS)
def test_an_array_is_not_an_option_of_a_layer(layer: str, option: str) -> None:
    kind = getattr(nn, layer)
    needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
    with suppress(MisuseError):
        kind(**{p.name: 4 for p in needed}, **{option: np.ones(2)})
