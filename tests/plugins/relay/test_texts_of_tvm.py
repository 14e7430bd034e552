"""Texts and programs as TVM's tests of its parser, data types, evaluation and VM have them."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relay
from relaxpy.errors import RelaxpyError
from relaxpy.ir import structural_equal
from relaxpy.relay import transform

X, UNIT, ANY = relay.Var("x"), relay.Tuple([]), relay.Var("_")
INT = relay.scalar_type("int32")
XI, YI = relay.Var("x", INT), relay.Var("y", INT)
BINARY = {
    "*": relay.multiply, "/": relay.divide, "+": relay.add, "-": relay.subtract,
    "<": relay.less, ">": relay.greater, "<=": relay.less_equal, ">=": relay.greater_equal,
    "==": relay.equal, "!=": relay.not_equal,
}  # fmt: skip


def one(value: Any, dtype: str | None = None) -> relay.Constant:
    return relay.const(value, dtype)


def typed(expr: relay.Expr) -> relay.Expr:
    return relay.testing.run_infer_type(expr)


TEXTS: list[tuple[str, relay.Expr]] = [
    ("// a line\n()", UNIT),
    ("/* a block /* in a block */ */ ()", UNIT),
    ("-100", one(-100)),
    ("-05", one(-5)),
    ("9223372036854775807", one(9223372036854775807, "int64")),
    ("2147483648", one(2147483648, "int64")),
    ("-42i", one(-42)),
    ("-42i16", one(-42, "int16")),
    ("-42i64", one(-42, "int64")),
    ("1E+1f", one(10.0)),
    ("1.0e-1f", one(0.1)),
    ("3f16", one(3.0, "float16")),
    ("3f64", one(3.0, "float64")),
    ("True", one(True)),
    *((f"1 {sign} 1", make(one(1), one(1))) for sign, make in BINARY.items()),
    ("let %x = 1; ()", relay.Let(X, one(1), UNIT)),
    ("(); ()", relay.Let(ANY, relay.Tuple([]), UNIT)),
    ("%0 = (); %1 = 1; (%0, %0, %1)", relay.Tuple([UNIT, UNIT, one(1)])),
    ("(0,)", relay.Tuple([one(0)])),
    ("(0, 1, 2).2", relay.TupleGetItem(relay.Tuple([one(0), one(1), one(2)]), 2)),
    ("fn (%x: int32, %y: int32) -> int32 { %x + %y }", relay.Function([XI, YI], XI + YI, INT)),
    ("fn () { 0 }", relay.Function([], one(0))),
    ("if (True) { 0 } else { 1 }", relay.If(one(True), one(0), one(1))),
    ("(fn (%x) { %x })(0)", relay.Call(relay.Function([X], X), [one(0)])),
    ("abs(1)", relay.Call(relay.op.get("abs"), [one(1)])),
    ("let %_: (int32,) = (0,); ()",
     relay.Let(relay.Var("_", relay.TupleType([INT])), relay.Tuple([one(0)]), UNIT)),
    ("let %_: fn (int32) -> int32 = fn (%x: int32) -> int32 { 0 }; ()",
     relay.Let(relay.Var("_", relay.FuncType([INT], INT)), relay.Function([XI], one(0), INT),
               UNIT)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expr"), TEXTS)
def test_texts_stand_for_expressions(text: str, expr: relay.Expr) -> None:
    """After inference, since numbers in text have no datatype before."""
    assert structural_equal(typed(relay.parse_expr(text)), typed(expr), map_free_vars=True)


@pytest.mark.parametrize(
    ("text", "grouped"),
    [("1 * 1 + 1", "(1 * 1) + 1"), ("1 * 1 + 1 < 1 == True", "(((1 * 1) + 1) < 1) == True"),
     ("1 - 2 - 3", "(1 - 2) - 3")],
)  # fmt: skip
def test_signs_have_an_order(text: str, grouped: str) -> None:
    assert structural_equal(relay.parse_expr(text), relay.parse_expr(grouped))


@pytest.mark.parametrize(
    "text",
    ["2147483648i32", "32768i16", "3.40283e+38f32", "meta[type_key][1337]", "let @x = 1; ()",
     "let x = 1; ()", "if (True) { let %x = (); () } else { %x }", "let %x = 1; %y",
     'fn(%x: Tensor[(2,), float32]) { foo(%x) }', "type A { B } type A { C }"],
)  # fmt: skip
def test_texts_that_are_refused(text: str) -> None:
    with pytest.raises(RelaxpyError):
        relay.parse(text)


def test_names_in_text() -> None:
    prelude = relay.Prelude(relay.IRModule()).mod
    assert (
        relay.parse("@length(Cons(1, Nil))", init_module=prelude)["main"].body.op.name_hint
        == "length"
    )
    assert relay.parse_expr("nn.global_avg_pool2d") is relay.op.get("nn.global_avg_pool2d")
    assert relay.parse_expr("let %foo = (); %foo").body.name_hint == "foo"


@pytest.mark.parametrize("name", ["int8", "uint64", "float16", "bool", "int8x4", "float16x4"])
def test_names_of_datatypes(name: str) -> None:
    let = relay.parse_expr(f"let %_ : {name} = (); ()")
    assert str(let.var.type_annotation.dtype) == name


# Data types


def natural() -> tuple[relay.Prelude, relay.Constructor, relay.Constructor]:
    prelude = relay.Prelude(relay.IRModule())
    prelude.mod.import_from_std("nat.rly")
    _, zero, successor = prelude.mod.get_type("nat")
    return prelude, zero, successor


def test_types_of_constructors() -> None:
    prelude, zero, successor = natural()
    nat, *_ = prelude.mod.get_type("nat")
    prelude.mod["main"] = relay.Function([], successor(zero()))
    mod = transform.InferType()(prelude.mod)
    assert mod["main"].body.checked_type == nat()
    a = relay.TypeVar("a")
    lists = prelude.mod.get_type("List")[0]
    assert mod["length"].checked_type == relay.FuncType([lists(a)], INT, [a])


def test_matches_take_the_first_clause_that_fits() -> None:
    prelude, zero, successor = natural()
    _, cons, nil = prelude.mod.get_type("List")
    x, head, second, rest = (relay.Var(name) for name in ("x", "h", "s", "t"))
    inner = relay.PatternConstructor(cons, [relay.PatternVar(second), relay.PatternVar(rest)])
    nested = relay.PatternConstructor(cons, [relay.PatternVar(head), inner])
    clauses = [relay.Clause(nested, second), relay.Clause(relay.PatternWildcard(), zero())]
    get = relay.Function([x], relay.Match(x, clauses))
    items = cons(successor(zero()), cons(successor(successor(zero())), nil()))
    executor = relay.create_executor(mod=prelude.mod)
    assert str(executor.evaluate(get(items))) == "succ(succ(zero))"
    reverse = relay.Function([x], relay.Match(x, clauses[::-1]))
    assert str(executor.evaluate(reverse(items))) == "zero"


# Partial evaluation


def evaluated(mod: relay.IRModule, body: relay.Expr) -> relay.Expr:
    mod["main"] = relay.Function([], body)
    steps = [transform.PartialEvaluate(), transform.DeadCodeElimination(inline_once=True)]
    return relaxpy.transform.Sequential(steps)(mod)["main"].body


def test_known_calls_are_evaluated() -> None:
    double = relay.Function([X], X + X)
    assert evaluated(relay.IRModule(), double(one(4.0))).data == 8
    prelude, zero, successor = natural()
    _, cons, nil = prelude.mod.get_type("List")
    head = prelude.mod.get_global_var("hd")
    assert evaluated(prelude.mod, head(cons(one(3), nil()))).data == 3
    twice = prelude.mod.get_global_var("nat_double")
    two = successor(successor(zero()))
    result = evaluated(prelude.mod, twice(two))
    assert structural_equal(result, typed_in(prelude.mod, successor(successor(two))))


def typed_in(mod: relay.IRModule, body: relay.Expr) -> relay.Expr:
    mod["main"] = relay.Function([], body)
    return transform.InferType()(mod)["main"].body


def test_cells_behind_functions_are_respected() -> None:
    d, r, u, done = relay.Var("d", relay.scalar_type("bool")), *map(relay.Var, ("r", "u", "e"))
    update = relay.Function([], relay.RefWrite(r, relay.RefRead(r) + relay.RefRead(r)))
    body = relay.Let(done, relay.If(d, u(), u()), relay.RefRead(r))
    function = relay.Function(
        [d], relay.Let(r, relay.RefCreate(one(1)), relay.Let(u, update, body))
    )
    for step in (transform.PartialEvaluate(), transform.ToANormalForm(), transform.InferType()):
        changed = relay.testing.run_opt_pass(function, step)
        assert relay.create_executor().evaluate(changed)(one(True)) == 2


def test_a_loop_without_end_is_left_alone() -> None:
    mod = relay.IRModule()
    t, loop = relay.TypeVar("t"), relay.GlobalVar("loop")
    x = relay.Var("x", t)
    mod[loop] = relay.Function([x], loop(x), t, [t])
    assert "@loop" in evaluated(mod, loop(one(1))).astext()


# The VM


@pytest.mark.parametrize("kind", ["debug", "vm", "graph", "aot"])
def test_programs_of_the_vm(kind: str) -> None:
    def run(function: relay.Function, *args: Any) -> Any:
        mod = relay.IRModule()
        mod["main"] = function
        return relay.create_executor(kind, mod=mod).evaluate()(*args)

    x, y = relay.var("x", shape=(3, 3)), relay.var("y", shape=(3, 3))
    same = relay.op.min(relay.op.nn.batch_flatten(relay.op.equal(x, y)), axis=[0, 1])
    function = relay.Function([x, y], relay.If(same, x, y))
    ones, zeros = np.ones((3, 3), "float32"), np.zeros((3, 3), "float32")
    assert (run(function, ones, zeros) == zeros).all()
    assert (run(function, ones, ones) == ones).all()
    z = relay.var("z", shape=(12,))
    parts = run(relay.Function([z], relay.split(z, 3).astuple()), np.arange(12, dtype="float32"))
    assert [part.tolist() for part in parts] == np.arange(12).reshape(3, 4).tolist()
    first = relay.concatenate([relay.split(z, 3)[0]], axis=0)
    assert run(relay.Function([z], first), np.arange(12, dtype="float32")).tolist() == [0, 1, 2, 3]
