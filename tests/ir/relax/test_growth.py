"""Work that grows with the program and no faster, and rewrites that share what they leave alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from relaxpy.ir import ops as op
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import register
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function, normalize_module
from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.tvm.relax.binding_rewrite import DataflowBlockRewrite
from relaxpy.tvm.relax.dump_ast import PyExprVisitor
from tests.counting import calls
from tests.ir.ops.scratch import forgotten_operators
from tests.ir.relax.graphs import (
    BOOL,
    bind,
    bindings,
    block,
    cast,
    dataflow,
    function,
    kernel,
    local,
    pure,
    seq,
    size,
    var,
)
from tests.ir.relax.sinfos import rank, shape, tensor

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
        first = seq(block(bind(a, pure("f", value, sinfo=tensor(N, 4)))), pure("g", a))
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


@pytest.mark.each_choice
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


def test_annotations_that_mention_nothing_that_is_built_anew_are_shared() -> None:
    x, y = var("x", rank(1)), var("y")
    made = [
        cast(var("z", sinfo), x, sinfo)
        for sinfo in (rank(1), tensor(4), rx.TensorStructInfo(None, "", ndim=-1))
    ]
    func = normalize_function(function([x], seq(block(*made), x)))
    before = bindings(func)
    body = seq(block(bind(y, pure("f", x)), *before), x)
    _, *after = bindings(normalize_function(function([x], body)))
    assert all(a is b for a, b in zip(after, before, strict=True))


def steps(make: Callable[[rx.Expr], rx.Call]) -> Callable[[int], rx.Function]:
    """Functions of calls, each of the result of the one before."""

    def program(length: int) -> rx.Function:
        x = var("x", tensor(4))
        made: list[rx.Binding] = []
        value: rx.Var = x
        for i in range(length):
            made.append(bind(target := var(f"v{i}"), make(value)))
            value = target
        return function([x], seq(block(*made), value), global_symbol="main")

    return program


@pytest.mark.parametrize(
    ("make", "share"),
    [
        (lambda v: rx.Call(op.add.op, (v, v)), 0.2),
        (lambda v: pure("f", v, sinfo=tensor(4)), 0.27),
        (lambda v: pure("f", rx.Tuple((v, v)), rx.const(1.0), sinfo=tensor(4)), 0.2),
    ],
    ids=["operator", "packed function", "tuple and literal"],
)
def test_a_derived_call_whose_operands_stay_is_only_looked_at(make, share) -> None:
    """The share of the work that deriving once more takes: half of it where this is not so."""
    program = steps(make)
    first = calls(lambda: normalize_function(program(200)))
    func = normalize_function(program(200))
    assert calls(lambda: normalize_function(func)) < share * first


@forgotten_operators()
def test_an_operator_is_derived_where_it_is_built_and_not_where_it_is_emitted() -> None:
    derived: list[rx.TensorStructInfo] = []

    @register("test.counted", pure=True)
    def counted(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
        derived.append(x)
        return x

    bb, x = BlockBuilder(), var("x", tensor(4))
    with bb.function("main", [x]):
        bb.emit_func_output(counted(counted(counted(x))))
    assert derived == [tensor(4)] * 3
    assert [b.value.struct_info for b in bindings(bb.get()["main"])] == derived


@pytest.mark.parametrize(
    "make",
    [
        lambda v: rx.Call(op.add.op, (v, v)),
        lambda v: rx.Call(op.reshape.op, (v, rx.ShapeExpr((4,)))),
    ],
    ids=["operator", "rule that reads the call"],
)
def test_calls_that_mention_nothing_that_is_built_anew_are_only_looked_at(make) -> None:
    program = steps(make)
    first = calls(lambda: normalize_function(program(200)))
    func = normalize_function(program(200))
    anew = bind(var("y"), pure("f", func.params[0]))
    edited = function([*func.params], seq(block(anew, *bindings(func)), func.body.body))
    assert calls(lambda: normalize_function(edited)) < 0.5 * first


def test_a_module_of_one_function_takes_as_long_as_its_function() -> None:
    module = IRModule({"main": chain(200), "k": kernel((4,))})
    func = chain(200)
    alone = calls(lambda: normalize_function(func))
    assert calls(lambda: normalize_module(module)) < 1.1 * alone
    done = normalize_module(module)
    assert normalize_module(done) is done


def test_a_tuple_that_stands_in_many_places_is_looked_at_once() -> None:
    def work(depth: int) -> int:
        x = var("x", tensor(4))
        value: rx.Expr = x
        for _ in range(depth):
            value = rx.Tuple((value, value))
        func = function([x], value)
        return calls(lambda: check_well_formed(func, check_struct_info=False, normal_form=True))

    assert work(12) < 3 * work(6)


def test_a_division_that_stands_in_many_places_of_a_size_is_looked_at_once() -> None:
    def work(depth: int) -> int:
        value: tir.PrimExpr = N // 2
        for _ in range(depth):
            value = value + value
        func = function([var("x", shape(N))], rx.PrimValue(value))
        return calls(lambda: check_well_formed(func))

    work(1)  # imports modules
    assert work(12) < 3 * work(6)


def test_inlining_shares_what_it_leaves_alone() -> None:
    x, y, z = var("x", tensor(2)), var("y"), var("z")
    g = rx.GlobalVar("g")
    callee = function([p := var("p", tensor(2))], p, global_symbol="g")
    first = bind(y, pure("f", x, sinfo=tensor(2)))
    main = function([x], seq(block(first, bind(z, g(y))), z), global_symbol="main")
    mod = normalize_module(IRModule({"g": callee, "main": main}))
    func = mod["main"]
    assert isinstance(func, rx.Function)
    after = func.inline_functions({"g": mod["g"]})  # type: ignore[dict-item]
    assert shared(func, after) == 1
