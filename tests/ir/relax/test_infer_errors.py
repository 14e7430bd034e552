"""Errors and warnings of derivation: class, rule, position, and what to write instead."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from relaxpy.errors import RelaxpyWarning, StructInfoError, StructInfoTypeError, WellFormedError
from relaxpy.ir import IRModule, Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_function
from tests.ir.relax import sinfos
from tests.ir.relax.graphs import at, function, pure, show, size, var
from tests.ir.relax.sinfos import Object, func, prim, shape, tensor, tuple_of
from tests.rows import table

UNIT = rx.Tuple(())
N = size("n")
F = var("f", func(tensor(2), ret=tensor(2)))
X, Y, Z = var("x", tensor(2)), var("y", tensor(N)), var("z", tensor(3))
ANY, T, S = var("o", Object), var("t", tuple_of(prim())), var("s", shape(2))
PARAMS = [F, X, Y, Z, ANY, T, S]
CAST = "declare what it is first: R.match_cast(..., {})"

#: Lines: of the operand at fault, of the call or value, of the binding, of the function.
OPERAND, VALUE, BINDING, FUNCTION = 1, 2, 3, 4


@dataclass(frozen=True)
class Case:
    """A value (or binding) with what is reported of it; `at` is its line if all have theirs."""

    make: Callable[[int | None, int | None], rx.Expr]
    kind: type[StructInfoError]
    rule: str
    at: int
    hint: str | None = None
    target: rx.Var | None = None
    cast: rx.StructInfo | None = None


def const(line: int | None) -> rx.Constant:
    """A literal of shape (3,)."""
    return replace(rx.const([1.0, 2.0, 3.0]), span=at(line))


def call(callee: rx.Expr, *args: rx.Expr, line: int | None) -> rx.Call:
    return rx.Call(callee, args, span=at(line))


def case(outcome: str, value: str, more: str = "") -> Case:
    """What a row says: the class of the error, its rule and its line; the value; and the rest."""
    kind, rule, line = outcome.split()
    make = eval(f"lambda operand, value: {value}", vars(sinfos) | globals())
    return Case(make, eval(kind), rule, eval(line), **eval(f"dict({more})"))


WRONG, WRONG_KIND = StructInfoError, StructInfoTypeError
CASES = {
    label: case(*columns)
    for label, *columns in table(
        """
a tensor is called : WRONG_KIND DER-37 OPERAND : call(const(operand), X, line=value)
a variable that is no function is called : WRONG_KIND DER-37 VALUE : call(X, X, line=value)
an object is called : WRONG_KIND DER-37 VALUE : call(ANY, X, line=value)
    : hint="declare with R.match_cast that it is a function"
a function of which neither parameters nor derivation is known : WRONG WF-17b VALUE
    : call(var("h", rx.FuncStructInfo(None, Object)), X, line=value)
too many arguments : WRONG_KIND DER-39 OPERAND : call(F, X, const(operand), X, line=value)
too few arguments : WRONG_KIND DER-39 VALUE : call(F, line=value)
an argument of another length : WRONG DER-41 OPERAND : call(F, const(operand), line=value)
an argument of another rank : WRONG DER-41 VALUE : call(F, var("r", rank(2)), line=value)
an argument of another datatype : WRONG_KIND DER-41 OPERAND
    : call(F, replace(rx.const([1, 2]), span=at(operand)), line=value)
an argument of another kind : WRONG_KIND DER-41 OPERAND
    : call(F, rx.Tuple((), span=at(operand)), line=value)
an argument of which too little is known : WRONG_KIND DER-41 VALUE : call(F, ANY, line=value)
    : hint=CAST.format(tensor(2))
a function of which another is expected : WRONG DER-41 VALUE
    : call(var("g", func(func(tensor(2), ret=prim()), ret=prim())), F, line=value)
an object where a function is expected : WRONG_KIND DER-41 VALUE
    : call(var("g", func(F.struct_info, ret=prim())), ANY, line=value)
    : hint=CAST.format(F.struct_info)
a field of a tensor : WRONG_KIND DER-32 VALUE : rx.TupleGetItem(X, 0, span=at(value))
    : hint="to index a tensor use R.take or R.strided_slice"
a field of a shape : WRONG_KIND DER-32 VALUE : rx.TupleGetItem(S, 0, span=at(value))
    : hint="name the dimensions of a shape, as in R.match_cast(s, R.Shape([n, m]))"
a field that a tuple has not : WRONG DER-33 VALUE
    : rx.TupleGetItem(pure("g", sinfo=tuple_of(prim())), 1, span=at(value))
a condition that is no Boolean : WRONG_KIND DER-9 OPERAND
    : rx.If(const(operand), UNIT, UNIT, span=at(value))
    : hint="R.where(condition, x, y) chooses for each element"
a condition of which too little is known : WRONG_KIND DER-9 VALUE
    : rx.If(ANY, UNIT, UNIT, span=at(value)) : hint=CAST.format(tensor(dtype="bool"))
a variable of another length : WRONG DER-18 VALUE : call(F, X, line=value)
    : target=var("r", tensor(3))
a variable of another kind : WRONG_KIND DER-18 VALUE : call(F, X, line=value)
    : target=var("r", prim())
a variable of which too little is known : WRONG_KIND DER-18 VALUE
    : replace(pure("g"), span=at(value)) : hint=CAST.format(tensor(2)), target=var("r", tensor(2))
a cast whose variable is of another length : WRONG DER-25 VALUE
    : replace(pure("g"), span=at(value)) : target=var("r", tensor(3)), cast=tensor(2)
"""
    )
}


def program(
    case: Case, operand: int | None, value: int | None, binding: int | None, line: int | None
) -> rx.Function:
    target = case.target or var("r")
    made = case.make(operand, value)
    bound: rx.Binding = rx.VarBinding(target, made, span=at(binding))
    if case.cast is not None:
        bound = rx.MatchCast(target, made, case.cast, span=at(binding))
    body = rx.SeqExpr((rx.BindingBlock([bound]),), UNIT)
    used = [v for v in rx_vars(made) if v not in PARAMS]
    return replace(function([*PARAMS, *used], body), span=at(line))


def rx_vars(value: rx.Expr) -> list[rx.Var]:
    """The variables that a call applies, or applies something to."""
    if not isinstance(value, rx.Call):
        return []
    return [v for v in (value.op, *value.args) if isinstance(v, rx.Var)]


@pytest.mark.rule("DER-9", "DER-18", "DER-25", "DER-32", "DER-33", "DER-37", "DER-39", "DER-41")
@pytest.mark.parametrize("kind", CASES)
def test_an_error_names_its_rule_and_position_and_what_to_write_instead(kind: str) -> None:
    case = CASES[kind]
    for known in range(OPERAND, FUNCTION + 1):
        lines = [line if line >= known else None for line in (OPERAND, VALUE, BINDING, FUNCTION)]
        with pytest.raises(StructInfoError) as caught:
            normalize_function(program(case, *lines))
        [found] = caught.value.diagnostics
        assert type(caught.value) is case.kind
        assert (found.rule, found.hint) == (case.rule, case.hint)
        assert found.span == at(max(known, case.at))
        about = caught.value.about
        assert isinstance(about, rx.Expr)
        if known == case.at == OPERAND:
            assert about.span == at(OPERAND)


@pytest.mark.rule("PU-5", "PU-8", "WF-7d")
def test_an_impure_call_that_is_refused_is_shown_and_is_what_the_error_is_about() -> None:
    for known in range(1, 4):
        lines = [line if line >= known else None for line in range(1, 4)]
        value = replace(show(X), span=at(lines[0]))
        binding = rx.VarBinding(var("a"), value, span=at(lines[1]))
        for kind, rule, hint in (
            (rx.DataflowBlock, "PU-5", "move the call out of the dataflow block"),
            (rx.BindingBlock, "PU-8", "declare the function with pure=False"),
        ):
            program = function([X], rx.SeqExpr((kind([binding]),), X))
            with pytest.raises(StructInfoError) as caught:
                normalize_function(replace(program, span=at(lines[2])))
            [found] = caught.value.diagnostics
            assert (found.rule, found.hint) == (rule, hint)
            assert type(caught.value) is StructInfoError
            assert caught.value.about.op == value.op  # type: ignore[attr-defined]
            assert found.span in (at(known), at(lines[2]))


G = var("g", func(tensor(4), ret=tensor(4)))
GIVES_Y = pure("g", Y, sinfo=tensor(N))


def bound(binding: rx.Binding) -> rx.SeqExpr:
    return rx.SeqExpr((rx.BindingBlock([binding]),), UNIT)


#: Each warning: the function that causes it with positions on its nodes, the rule and the hint.
WARNINGS: dict[str, tuple[Callable[..., rx.Function], str, str | None]] = {
    "an argument": (
        lambda value: function([G, Y], call(G, Y, line=value)),
        "DER-41",
        CAST.format(tensor(4)),
    ),
    "a variable": (
        lambda value: function(
            [Y], bound(rx.VarBinding(var("r", tensor(4)), replace(GIVES_Y, span=at(value))))
        ),
        "DER-20",
        CAST.format(tensor(4)),
    ),
    "the variable of a cast": (
        lambda value: function(
            [Y],
            bound(rx.MatchCast(var("r", tensor(4)), replace(GIVES_Y, span=at(value)), tensor(N))),
        ),
        "DER-25",
        CAST.format(tensor(4)),
    ),
    "a result, which is checked when the program runs": (
        lambda value: function([Y], replace(GIVES_Y, span=at(value)), tensor(4)),
        "DER-45",
        None,
    ),
    "a cast that always fails": (
        lambda value: function(
            [X],
            bound(
                rx.MatchCast(None, replace(pure("g", sinfo=tensor(2)), span=at(value)), tensor(3))
            ),
        ),
        "DER-26",
        None,
    ),
}


@pytest.mark.rule("NF-15")
def test_an_ordinary_block_in_a_dataflow_block_is_shown_where_it_begins() -> None:
    for known in range(1, 6):
        lines = [line if line >= known else None for line in range(1, 6)]
        inner = rx.BindingBlock([rx.VarBinding(var("a"), X, span=at(lines[0]))], span=at(lines[1]))
        value = rx.SeqExpr((inner,), X, span=at(lines[2]))
        outer = rx.DataflowBlock([rx.VarBinding(var("b"), value, span=at(lines[3]))])
        whole = function([X], rx.SeqExpr((outer,), X))
        with pytest.raises(WellFormedError) as caught:
            normalize_function(replace(whole, span=at(lines[4])))
        [found] = caught.value.diagnostics
        assert (found.rule, found.span) == ("NF-15", at(known))


@pytest.mark.rule("DER-20", "DER-25", "DER-26", "DER-41", "DER-45", "SI-14")
@pytest.mark.parametrize("kind", WARNINGS)
def test_a_warning_names_its_rule_and_position_and_what_to_write_instead(kind: str) -> None:
    make, rule, hint = WARNINGS[kind]
    count = make.__code__.co_argcount
    with pytest.warns(RelaxpyWarning) as caught:
        normalize_function(make(*range(1, count + 1)))
    [found] = [w.message.diagnostic for w in caught]  # type: ignore[union-attr]
    assert (found.rule, found.hint) == (rule, hint)
    assert found.span == at(1)


@pytest.mark.rule("DER-26", "DER-20", "DER-41")
@pytest.mark.parametrize("kind", WARNINGS)
def test_a_program_that_was_derived_before_warns_no_more(kind: str) -> None:
    make, *_ = WARNINGS[kind]
    with pytest.warns(RelaxpyWarning):
        once = normalize_function(make(*[None] * make.__code__.co_argcount))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert normalize_function(once) is once


@pytest.mark.rule("DER-2")
def test_every_function_of_a_cycle_is_derived_where_one_has_no_normal_form() -> None:
    f, g = rx.GlobalVar("f"), rx.GlobalVar("g")
    functions: dict[rx.GlobalVar, rx.Function] = {}
    for own, other in ((f, g), (g, f)):
        x, y = rx.Var("x", tensor(2)), rx.Var("y", tensor(3))
        called, wrong = rx.Var("c"), rx.Var("w")
        bindings = (
            rx.VarBinding(called, rx.Call(other, (x, y))),
            rx.VarBinding(wrong, rx.Call(Op("relax.add"), (x, y))),
        )
        body = rx.SeqExpr((rx.BindingBlock(bindings),), wrong)
        attrs = {"global_symbol": own.name_hint}
        functions[own] = rx.Function((x, y), body, tensor(2), True, attrs)
    found = check_well_formed(IRModule(functions))
    assert len([d for d in found if "do not broadcast" in d.message]) == 2
