"""Work that grows with the program and no faster, and rewrites that share what they leave alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function, normalize_module
from relaxpy.ir.relax.rewrite.binding_rewrite import DataflowBlockRewrite
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator
from relaxpy.ir.relax.rewrite.expr_visitor import PyExprVisitor
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars
from tests.counting import calls
from tests.ir.relax.graphs import (
    BOOL,
    bind,
    bindings,
    block,
    cast,
    dataflow,
    function,
    local,
    pure,
    seq,
    size,
    var,
)
from tests.ir.relax.infos import rank, tensor

N = size("n")
WEIGHT = np.ones(4, "float32")


def chain(length: int) -> rx.Function:
    """Additions in a dataflow block, the last of which takes the parameter `w`."""
    x, w = var("x", tensor(N, 4)), var("w", tensor(4))
    made: list[rx.Binding] = []
    value: rx.Var = x
    for i in range(length):
        target = local(f"v{i}") if i < length - 1 else var("out")
        made.append(bind(target, rx.Call(op.add.op, (value, x if i < length - 1 else w))))
        value = target
    return function([x, w], seq(dataflow(*made), value), global_symbol="main")


def nest(length: int) -> rx.Function:
    """Calls in calls."""
    x, w = var("x", tensor(N, 4)), var("w", tensor(4))
    value: rx.Expr = w
    for _ in range(length):
        value = rx.Call(op.add.op, (x, value))
    return function([x, w], value, global_symbol="main")


def casts(length: int) -> rx.Function:
    """Casts, each to a new size."""
    x, w = var("x", rank(2)), var("w", tensor(4))
    made = [cast(var(f"v{i}"), x, tensor(size(f"m{i}"), 4)) for i in range(length)]
    return function([x, w], seq(block(*made), x), global_symbol="main")


def inner(length: int) -> rx.Function:
    """Sequences, branches and local functions as values."""
    x, w, c = var("x", tensor(N, 4)), var("w", tensor(4)), var("c", BOOL)
    made: list[rx.Binding] = []
    value = x
    for i in range(length):
        a, f, p = var(f"a{i}"), var(f"f{i}"), var("p", tensor(N, 4))
        first = seq(block(bind(a, pure("f", value, info=tensor(N, 4)))), pure("g", a))
        made += [
            bind(var(f"b{i}"), first),
            bind(f, function([p], p)),
            bind(target := var(f"d{i}"), rx.If(c, f(value), value)),
        ]
        value = target
    return function([x, w, c], seq(block(*made), value), global_symbol="main")


PROGRAMS = [chain, nest, casts, inner]
USES: dict[str, Callable[[rx.Function], object]] = {
    "normalise": lambda f: normalize_function(f),
    "normalise again": lambda f: normalize_function(normalize_function(f)),
    "build": lambda f: BlockBuilder().normalize_function(f),
    "visit": lambda f: PyExprVisitor().visit_expr(normalize_function(f)),
    "mutate": lambda f: PyExprMutator().visit_expr(normalize_function(f)),
    "copy": lambda f: copy_with_new_vars(normalize_function(f)),
    "bind": lambda f: normalize_function(f).bind_params({"w": WEIGHT}),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("use", USES)
def test_work_grows_with_the_program(use: str, program: Callable[[int], rx.Function]) -> None:
    def work(length: int) -> int:
        func = program(length)
        return calls(lambda: USES[use](func))

    USES[use](program(2))  # what is made once for all programs is none of this one's work
    short = work(40)
    assert work(120) < 3.3 * short


def test_a_long_program_is_derived_in_one_go() -> None:
    found = normalize_function(chain(10_000))
    assert len(bindings(found)) == 10_000
    assert normalize_function(found) is found
    assert len(bindings(normalize_function(nest(10_000)))) == 10_000


def shared(before: rx.Function, after: rx.Function) -> int:
    """How many bindings are the very same."""
    known = {id(b) for b in bindings(before)}
    return sum(id(b) in known for b in bindings(after))


def test_rewrites_share_what_they_leave_alone() -> None:
    func = normalize_function(chain(50))
    assert shared(func, func.bind_params({"w": WEIGHT})) == 49
    change = DataflowBlockRewrite(func.body.blocks[0], func)  # type: ignore[attr-defined]
    change.add(func.params[0], "more")
    assert shared(func, change.mutated_root_fn()) == 50
    *_, last = bindings(func)
    edited = replace(last, value=rx.Call(op.multiply.op, last.value.args))  # type: ignore[attr-defined]
    body = seq(dataflow(*bindings(func)[:-1], edited), func.body.body)  # type: ignore[attr-defined]
    again = normalize_function(replace(func, body=body, struct_info=None))
    assert shared(func, again) == 49
    mod = IRModule({"main": func, "other": again})
    assert normalize_module(mod) is mod


def test_inlining_shares_what_it_leaves_alone() -> None:
    x, y, z = var("x", tensor(2)), var("y"), var("z")
    g = rx.GlobalVar("g")
    callee = function([p := var("p", tensor(2))], p, global_symbol="g")
    first = bind(y, pure("f", x, info=tensor(2)))
    main = function([x], seq(block(first, bind(z, g(y))), z), global_symbol="main")
    mod = normalize_module(IRModule({"g": callee, "main": main}))
    func = mod["main"]
    assert isinstance(func, rx.Function)
    after = func.inline_functions({"g": mod["g"]})  # type: ignore[dict-item]
    assert shared(func, after) == 1
