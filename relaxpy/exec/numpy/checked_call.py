"""Decorates kernels so that they check their arguments, and accept aliased ones."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial, wraps
from types import FunctionType
from typing import Any, Literal, TypeAlias

import numpy as np

from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.runtime.arguments import overlap, rollback, scalar
from relaxpy.exec.runtime.signature import KernelSignature, Param
from relaxpy.exec.runtime.threads import silent_context
from relaxpy.support.dataclass import dataclass
from relaxpy.support.pysource import load, render

Kernel: TypeAlias = Callable[..., Any]
Kind: TypeAlias = Literal["array", "strided", "scalar", "handle"]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A noalias requirement: the written argument `target` must not overlap the `others`.

    The last `same` of these may be the identical array.
    """

    target: int
    others: tuple[int, ...]
    same: int


@dataclass(frozen=True, slots=True, eq=False)
class CheckedKernel:
    """Decorates a kernel that assumes valid arguments, so that it checks any.

    If written arguments alias others, it runs the function that `in_text_order` compiles for the
    names of a module. User functions that a kernel calls see the context variables of the caller.
    """

    signature: KernelSignature
    exclusions: tuple[Exclusion, ...]
    in_text_order: Callable[[dict[str, Any]], Kernel]
    calls_users: bool = False

    def checked(self, work: FunctionType) -> Kernel:
        """The kernel `work` with checks of its arguments, cached for those like the last ones."""
        params = self.signature.params
        returns = self.signature.func.ret_type is not None
        decorate = _decorator(tuple(map(_kind, params)), self.exclusions, returns)
        converters = [self._converter(param) if param.is_scalar else None for param in params]
        ordered = cache(lambda: self._restoring(self.in_text_order(work.__globals__)))
        context = _Errstate if self.calls_users else silent_context
        return wraps(work)(decorate(work, self.signature.bind, converters, ordered, context))

    def _converter(self, param: Param) -> Callable[[Any], Any]:
        kind, span = param.var.dtype.numpy().type, self.signature.func.span
        return partial(scalar, self.signature.name, param.name, kind=kind, span=span)

    def _restoring(self, run: Kernel) -> Kernel:
        """The function `run`, which restores arrays if a store to one of them fails."""
        targets = [exclusion.target for exclusion in self.exclusions]
        names = [self.signature.params[n].name for n in targets]
        title = f"{self.signature.name}: {', '.join(names)}"

        def restoring(*args: Any) -> Any:
            with rollback(title, *[args[n] for n in targets]):
                return run(*args)

        return restoring


class _Errstate:
    """The context of the caller, with NumPy's warnings suppressed."""

    def run(self, function: Kernel, *args: Any) -> Any:
        """The result of a function."""
        with np.errstate(all="ignore"):
            return function(*args)


def _kind(param: Param) -> Kind:
    if param.buffer is not None:
        return "strided" if param.buffer.strides else "array"
    return "scalar" if param.is_scalar else "handle"


@lru_cache(maxsize=256)
def _decorator(kinds: tuple[Kind, ...], exclusions: tuple[Exclusion, ...], returns: bool) -> Kernel:
    """The decorator of kernels with parameters of these kinds, which return a number or unit.

    Its source compares the checked attributes of the arguments with those of the last call, in a
    third of the time of a loop over the arguments.
    """
    names = [f"p{n}" for n in range(len(kinds))]
    forms = py.tuple_of(
        py.attribute(name, part) if part else name
        for name, kind in zip(names, kinds, strict=True)
        for part in _PARTS[kind]
    )
    last = py.item("last", 0)
    body = [
        py.assign(name, py.call(py.item("converters", n), name))
        for n, (name, kind) in enumerate(zip(names, kinds, strict=True))
        if kind == "scalar"
    ]
    # An object that is not an array may raise anything when it is asked for a shape.
    handler = ast.ExceptHandler(py.path("Exception"), None, [py.assign("fits", False)])
    body += [
        ast.Try([py.assign("fits", py.compare(forms, ast.Eq, last))], [handler], [], []),
        py.when(py.negated("fits"), [py.do(py.call("bind", tuple(names))), py.assign(last, forms)]),
    ]
    tests = [_overlap(names[e.target], [names[n] for n in e.others], e.same) for e in exclusions]
    work = py.path("work")
    if tests:
        work = ast.IfExp(py.either(tests), py.call("ordered"), work)
    result = py.call(py.attribute(py.call("context"), "run"), work, *names)
    body += [ast.Return(result)] if returns else [py.do(result), ast.Return(py.tuple_of(()))]
    first = py.assign("last", ast.List([py.code(None)], ast.Load()))
    checked = py.function("checked", names, body)
    decorator = py.function(
        "decorate",
        ["work", "bind", "converters", "ordered", "context"],
        [first, checked, ast.Return(py.path("checked"))],
    )
    text = render(ast.Module([decorator], []))
    function: Kernel = load(text, "check of arguments", {"overlap": overlap})["decorate"]
    return function


def _overlap(target: str, others: Sequence[str], same: int) -> ast.expr:
    """The call of `overlap`, unless all arrays own their memory, as most do."""
    owners = [py.compare(py.attribute(n, "base"), ast.Is, None) for n in (target, *others)]
    differ = [py.compare(n, ast.IsNot, target) for n in others]
    alone = py.both([*owners, *differ, py.path(f"{target}.flags.carray")])
    return py.both([py.negated(alone), py.call("overlap", target, tuple(others), same)])


_PARTS: dict[Kind, tuple[str, ...]] = {
    "array": ("__class__", "dtype", "shape"),
    "strided": ("__class__", "dtype", "shape", "strides"),
    "scalar": ("",),
    "handle": (),
}
"""The attributes of an argument that are checked; a scalar is compared itself."""
