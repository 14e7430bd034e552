"""One table of programs that every oracle runs over: text, JSON, executors, visitors and passes."""

import functools
import itertools

import pytest

from relaxpy import relay
from relaxpy.ir import load_json, save_json, structural_equal
from relaxpy.relay import transform
from tests.relay_programs import PROGRAMS, plain, prelude, result_of

FORMS = [transform.ToANormalForm(), transform.ToGraphNormalForm()]
PASSES = [
    transform.DeadCodeElimination(),
    transform.DeadCodeElimination(inline_once=True),
    transform.EliminateCommonSubexpr(),
    transform.EtaExpand(expand_constructor=True, expand_global_var=True),
    transform.FoldConstant(),
    transform.FuseOps(),
    transform.Inline(),
    transform.LambdaLift(),
    transform.PartialEvaluate(),
    transform.RemoveUnusedFunctions(),
    transform.SimplifyExpr(),
    transform.SimplifyInference(),
    transform.ToBasicBlockNormalForm(),
    *FORMS,
]
EACH_PROGRAM = pytest.mark.parametrize("text", PROGRAMS)


@functools.cache
def expected_of(text: str) -> object:
    """The value of a program before all passes."""
    return result_of(relay.parse(text))


@EACH_PROGRAM
@pytest.mark.rule("RLY-111", "RLY-112")
def test_programs_read_back_and_run_the_same_in_all_executors(text: str) -> None:
    module = relay.parse(text)
    saved = save_json(module)
    loaded = load_json(saved)
    for again in (relay.parse(module.astext()), loaded):
        assert structural_equal(again, module)
    assert (loaded.astext(), save_json(loaded)) == (module.astext(), saved)
    assert plain(relay.create_executor("vm", mod=module).evaluate()()) == expected_of(text)
    assert relay.analysis.well_formed(module)
    assert relay.ExprMutator().visit(module["main"]) is module["main"]


@pytest.mark.rule("RLY-48", "RLY-106", "RLY-108", "RLY-110")
@pytest.mark.parametrize("step", PASSES, ids=repr)
def test_passes_keep_value_type_and_given_module(step: transform.RelayPass) -> None:
    for text in PROGRAMS:
        module = relay.parse(text)
        before = module.astext()
        result = step(module)
        assert result_of(result) == expected_of(text), text
        assert str(result["main"].ret_type) == str(module["main"].ret_type), text
        assert structural_equal(relay.parse(result.astext()), result), text
        assert module.astext() == before, text
        assert structural_equal(step(result), result), text


def test_pairs_of_passes_keep_the_value() -> None:
    pairs = itertools.chain(itertools.permutations(FORMS, 2), itertools.permutations(PASSES, 2))
    for (one, other), text in zip(pairs, itertools.cycle(PROGRAMS), strict=False):
        module = relay.parse(text)
        assert result_of(other(one(module))) == expected_of(text), (one, other, text)


def test_the_prelude_survives_all_passes_and_is_saved() -> None:
    text = "@foldl(fn(%a, %x) { %a * 10 + %x }, 0, @map(fn(%x) { %x + 1 }, Cons(1, Cons(2, Nil))))"
    module = relay.parse(text, init_module=prelude())
    for step in PASSES:
        module = step(module)
    assert result_of(load_json(save_json(module))) == 23


@EACH_PROGRAM
def test_defuse_ops_is_the_inverse_of_fuse_ops(text: str) -> None:
    module = relay.parse(text)
    assert structural_equal(transform.DefuseOps()(transform.FuseOps(2)(module)), module)


@EACH_PROGRAM
@pytest.mark.rule("RLY-48")
def test_a_normal_form_has_atoms_as_operands(text: str) -> None:
    module = transform.ToANormalForm()(relay.parse(text))
    assert transform.ToANormalForm()(module) is module
    stack = [module["main"].body]
    while stack:
        expr = stack.pop()
        if isinstance(expr, relay.Let):
            assert not isinstance(expr.value, relay.Let)
            stack += [expr.value, expr.body]
        elif isinstance(expr, relay.Function):
            stack.append(expr.body)
        elif isinstance(expr, relay.If):
            assert isinstance(expr.cond, (relay.Var, relay.Constant))
            stack += [expr.true_branch, expr.false_branch]
        elif isinstance(expr, relay.Match):
            stack += [clause.rhs for clause in expr.clauses]
        elif isinstance(expr, relay.Call):
            kinds = (relay.Var, relay.Constant, relay.GlobalVar, relay.Constructor, relay.op.Op)
            assert all(isinstance(arg, kinds) for arg in expr.args)
