"""Operators of users that change arguments, exported and captured: on copies of these."""

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from relaxpy.relax.frontend.torch import from_exported_program  # noqa: E402
from tests.plugins.torch.test_values import ROADS, Function, exported  # noqa: E402


def _bump(a: Any) -> None:
    a.add_(1)


def _two(a: Any, x: Any, b: Any, s: float) -> Any:
    a.add_(x)
    b.mul_(s)
    return a * b


def _maybe(a: Any, b: Any) -> None:
    a.add_(1)
    if b is not None:
        b.add_(2)


def _host(a: Any) -> None:
    a.copy_(torch.from_numpy(a.numpy()[::-1].copy()))


def _operator(function: Any, schema: str, changed: tuple[str, ...]) -> Any:
    name = f"meadow::{function.__name__[1:]}"
    return torch.library.custom_op(name, function, mutates_args=changed, schema=schema)


bump = _operator(_bump, "(Tensor(a!) a) -> ()", ("a",))
two = _operator(_two, "(Tensor(a!) a, Tensor x, Tensor(b!) b, float s) -> Tensor", ("a", "b"))
two.register_fake(lambda a, x, b, s: torch.empty_like(a))
maybe = _operator(_maybe, "(Tensor(a!) a, Tensor(b!)? b) -> ()", ("a", "b"))
host = _operator(_host, "(Tensor(a!) a) -> ()", ("a",))


def _changed(place: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that changes a part of a new tensor."""

    def function(x: Any) -> Any:
        y = x * 2
        bump(place(y))
        return y, y + 1

    return function


def _results(x: Any) -> Any:
    a, b = x + 1, x * 2
    return two(a, x, b, 3.0), a, b


def _parts(x: Any) -> Any:
    y = x * 2
    two(y[:1], x[:1], y[1:2], 2.0)
    maybe(y[2:], None)
    maybe(y[0], x[1])
    return y, x * 1


def _twice(x: Any) -> Any:
    bump(x)
    y = x[1:]
    bump(x)
    return y * 1


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "whole": _changed(lambda y: y),
    "rows": _changed(lambda y: y[1:]),
    "steps": _changed(lambda y: y.view(-1)[::2]),
    "columns": _changed(lambda y: y.mT[0]),
    "results": _results,
    "parts": _parts,
    "input": _twice,
}


@ROADS
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_are_changed_as_the_operator_does(name: str, road: Any) -> None:
    x = torch.arange(12.0).reshape(4, 3)
    theirs, ours = x.clone(), x.clone()
    expected = torch.utils._pytree.tree_leaves(FUNCTIONS[name](theirs))
    found = road(FUNCTIONS[name], x.clone())(ours)
    if road is exported and name in ("parts", "input"):  # the new value of the input comes first
        torch.testing.assert_close(torch.as_tensor(found.pop(0)), theirs)
    elif road is not exported:
        torch.testing.assert_close(ours, theirs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other)


@pytest.mark.filterwarnings("ignore")
def test_an_operator_that_reads_elements_is_refused_by_its_name() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        host(y)
        return y

    program = torch.export.export(Function(function), (torch.ones(3),))
    with pytest.raises(NotImplementedError, match=r"meadow\.host\.default\(mul.*no converter"):
        from_exported_program(program)
