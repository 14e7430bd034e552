"""Types of Relay programs: inference, relations, kinds and matches."""

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError
from relaxpy.ir import structural_equal
from tests.counting import calls
from tests.relay_programs import LIST, NAT, prelude, refused, signature, type_of

OPTION = "type Option[A] { Some(A), None }\n"


F = "let %f = fn<a, b>(%x : a, %y : b) -> a { %x }; "
S = "let %f = fn<s : Shape, b : BaseType>(%x : Tensor[s, b]) -> Tensor[s, b] { %x }; "
V = "let %f = fn<n : ShapeVar>(%x : Tensor[(n, 2), int32]) { %x }; "
R = "def @f<a, b, c>(%x: a, %y: b) -> c where Broadcast { %x + %y }\n"
TYPED = [
    # the rules, an expression after declarations, and its type
    ("RLY-12", "(fn(%x: int32) -> int32 { %x })(1)", "int32"),
    ("RLY-13", "let %x = (1, True); %x.1", "bool"),
    ("RLY-13", "let %f = fn(%x) { (%x, %x) }; (%f(1), %f(True))", "((int32, int32), (bool, bool))"),
    ("RLY-13", "let %f = fn(%g, %x) { %g(%g(%x)) }; %f(fn(%y) { %y + 1.5 }, 2)", "float32"),
    ("RLY-13", LIST + "let %e : List[bool] = Nil; %e", "List[bool]"),
    ("RLY-16", "let %id = fn<t : Type>(%x : t) -> t { %x }; (%id(1), %id(()))", "(int32, ())"),
    ("RLY-97", "let %id = fn<t : Type>(%x : t) -> t { %x }; (%id(1), %id(()))", "(int32, ())"),
    ("RLY-18", S + "(%f(1i64), %f(Constant(1, (2, 3), bool)))", "(int64, Tensor[(2, 3), bool])"),
    ("RLY-18", V + "%f(Constant(1, (5, 2), int32))", "Tensor[(5, 2), int32]"),
    ("RLY-19", F + "%f<int64, bool>(1, True)", "int64"),
    ("RLY-19", F + "%f<int64>(1, True)", "int64"),
    ("RLY-22", R + "@f(1, 2)", "int32"),
    (
        "RLY-21",
        R + "@f(Constant(1, (2, 1), int8), Constant(1, (3,), int8))",
        "Tensor[(2, 3), int8]",
    ),
    ("RLY-99", R + "(@f(1, 2), @f(2.5, 1.5))", "(int32, float32)"),
    ("RLY-23", "Constant(1, (2, 3), int8) + Constant(1, (3,), int8)", "Tensor[(2, 3), int8]"),
    ("RLY-23", "Constant(1, (2, 1), int8) + Constant(1, (1, 3), int8)", "Tensor[(2, 3), int8]"),
    ("RLY-24", "Constant(1, (), int8) + Constant(1, (4,), int8)", "Tensor[(4,), int8]"),
    ("RLY-24", "Constant(1, (0,), int8) + Constant(1, (1,), int8)", "Tensor[(0,), int8]"),
    ("RLY-40", "(1, (True, 2.5)).1.0", "bool"),
    (
        "RLY-87",
        "let %x0 = 1; " + "".join(f"let %x{i + 1} = (%x{i}, %x{i}); " for i in range(60)) + "1",
        "int32",
    ),
    ("RLY-96", "let %f = fn(%g : fn(int32, int32) -> int32) { %g(1, 2) }; %f(add)", "int32"),
    (
        "RLY-96",
        OPTION + "let %f = fn(%g : fn(int32) -> Option[int32]) { %g(1) }; %f(Some)",
        "Option[int32]",
    ),
    ("RLY-100", "(fn(%x, %y) { %x + %y })(1, 2.5)", "float32"),
    ("RLY-104", "(fn(%t) { %t.0 })((1, 2.5))", "int32"),
    ("RLY-102", "less(Constant(1, (2, 1), int8), Constant(1, (3,), int8))", "Tensor[(2, 3), bool]"),
    ("RLY-102", "sqrt(Constant(1, (2,), float64))", "Tensor[(2,), float64]"),
    ("RLY-98", "let %f = fn(%x) { exp(%x) }; %f(1f)", "float32"),
    (
        "RLY-98",
        "def @f(%x) { nn.softmax(copy(%x)) }\n@f(Constant(1, (2,), int8))",
        "Tensor[(2,), int8]",
    ),
    ("RLY-105", "ref(1)", "ref(int32)"),
    ("RLY-105", "ref_read(ref(True))", "bool"),
    ("RLY-105", "ref_write(ref(True), False)", "()"),
]


@pytest.mark.rule("RLY-13", "RLY-18", "RLY-19", "RLY-21", "RLY-22", "RLY-24", "RLY-87", "RLY-99")
@pytest.mark.rule("RLY-102", "RLY-104", "RLY-105")
@pytest.mark.parametrize(
    ("text", "ty"),
    [
        pytest.param(text, ty, marks=pytest.mark.rule(rule), id=f"{rule}-{number}")
        for number, (rule, text, ty) in enumerate(TYPED)
    ],
)
def test_an_expression_has_the_type(text: str, ty: str) -> None:
    assert type_of(text) == ty


@pytest.mark.rule("RLY-17")
def test_check_kind() -> None:
    assert relay.analysis.check_kind(relay.TensorType((1, 2))) is relay.TypeKind.Type
    box = relay.GlobalTypeVar("Box")
    assert relay.analysis.check_kind(box) is relay.TypeKind.AdtHandle
    with pytest.raises(relay.RelayTypeError, match="no data type Box"):
        relay.analysis.check_kind(box(), relay.IRModule())
    with pytest.raises(relay.RelayTypeError, match="of kind AdtHandle"):
        relay.analysis.check_kind(relay.TupleType([box]))


@pytest.mark.rule("RLY-25")
def test_relations_come_from_outside() -> None:
    op = relay.op.register("test.first", "The first operand.")
    try:
        op.set_num_inputs(2)
        op.add_type_rel("First", lambda types, attrs: types[0])
        assert str(relay.parse("test.first(1, True)")["main"].ret_type) == "int32"
        with pytest.raises(MisuseError):
            relay.op.register("test.first")
    finally:
        relay.op.Op._table.pop("test.first")


@pytest.mark.rule("RLY-27", "RLY-29")
def test_operators_are_one_object_with_columns() -> None:
    add = relay.op.get("add")
    assert add is relay.op.get("add")
    call = relay.parse_expr("add(1, 2)")
    assert isinstance(call, relay.Call)
    assert call.op is add
    assert add.get_attr("test.column") is None
    add.set_attr("test.column", 3)
    assert add.get_attr("test.column") == 3
    add.set_attr("test.column", None)
    with pytest.raises(ValueError, match="no operator"):
        relay.op.get("ad")


@pytest.mark.rule("RLY-28")
def test_the_type_of_an_operator_is_a_function_under_one_relation() -> None:
    ty = relay.op.get("add").checked_type
    assert str(ty) == "fn [a0, a1, r](a0, a1) -> r where Broadcast(a0, a1, r)"


@pytest.mark.rule("RLY-32")
def test_constructors_have_function_types() -> None:
    module = relay.parse("type D[a, b] { C1(a, b), C2 }\n1")
    _, one, two = module.get_type("D")
    assert str(one.checked_type) == "fn [a, b](a, b) -> D[a, b]"
    assert str(two.checked_type) == "fn [a, b]() -> D[a, b]"


@pytest.mark.rule("RLY-56")
def test_programs_contain_no_temporary_nodes() -> None:
    class Mine(relay.TempExpr):
        pass

    module = relay.IRModule.from_expr(relay.Function([], relay.Tuple([Mine()])))
    with pytest.raises(relay.RelayTypeError, match="no TempExpr"):
        relay.transform.InferType()(module)


@pytest.mark.rule("RLY-86")
def test_types_are_equal_by_structure_and_data_types_by_name() -> None:
    a, b = relay.TypeVar("a"), relay.TypeVar("b")
    assert relay.FuncType([a], a, [a]) == relay.FuncType([b], b, [b])
    assert relay.FuncType([a], a, [a]) != relay.FuncType([relay.TupleType([b])], b, [b])
    assert a != b
    assert relay.TensorType((2,)) == relay.TensorType([2], "float32")
    assert relay.GlobalTypeVar("L") != relay.GlobalTypeVar("M")


@pytest.mark.rule("RLY-88", "RLY-103")
@pytest.mark.parametrize(("dim", "result"), [("3", "(3,)"), ("1", "(?,)"), ("?", "(?,)")])
def test_unknown_dimensions_agree_and_broadcast(dim: str, result: str) -> None:
    text = f"fn(%x: Tensor[(?,), int32], %y: Tensor[({dim},), int32]) {{ %x + %y }}"
    assert signature(text).endswith(f"-> Tensor[{result}, int32]")
    assert type_of(
        "(fn(%x: Tensor[(3,), int32]) { %x })((fn(%y: Tensor[(?,), "
        "int32]) { %y })(Constant(1, (3,), int32)))"
    )


@pytest.mark.rule("RLY-93")
@pytest.mark.parametrize(
    ("clauses", "missing"),
    [
        ("case Z { 1 }", "S(_)"),
        ("case S(_) { 1 }", "Z"),
        ("case Z { 1 } case S(Z) { 2 }", "S(S(_))"),
        ("case S(S(_)) { 1 } case Z { 2 }", "S(Z)"),
    ],
)
def test_a_match_fits_every_instance(clauses: str, missing: str) -> None:
    message = refused(f"{NAT}fn(%n: Nat) {{ match(%n) {{ {clauses} }} }}", "RLY-93")
    assert f"no clause for {missing} " in message
    assert relay.parse(f"{NAT}fn(%n: Nat) {{ match?(%n) {{ {clauses} }} }}")


@pytest.mark.rule("RLY-93")
def test_completeness_of_tuples_is_decided_by_columns() -> None:
    wide = f"({', '.join(['Z'] * 12)})"
    text = f"{NAT}fn(%x: ({', '.join(['Nat'] * 12)})) {{ match(%x) {{ {wide} => 1, _ => 2 }} }}"
    assert relay.parse(text)
    message = refused(
        NAT + "fn(%x: (Nat, Nat)) { match(%x) { (Z, _) => 1, (_, Z) => 2 } }", "RLY-93"
    )
    assert "(S(_), S(_))" in message


@pytest.mark.rule("RLY-94")
def test_a_callee_without_a_type_becomes_a_function() -> None:
    assert (
        signature("def @f(%g) { (%g(1i), 2i) }", "f") == "fn [t0](fn (int32) -> t0) -> (t0, int32)"
    )


@pytest.mark.rule("RLY-98")
def test_functions_are_generalised_as_far_as_nothing_constrains_them() -> None:
    assert signature("def @f(%x) { %x }", "f") == "fn [t0](t0) -> t0"
    assert type_of("let %id = fn(%x) { %x }; (%id(1), %id(True))") == "(int32, bool)"
    assert type_of("let %f = fn(%x) { %x + 1 }; %f(2.5)") == "float32"
    assert signature("def @f(%x) { let %g = fn(%y) { (%x, %y) }; (%g(1), %g(())) }", "f") == (
        "fn [t0](t0) -> ((t0, int32), (t0, ()))"
    )


@pytest.mark.rule("RLY-98")
def test_mutually_recursive_functions_are_generalised_together() -> None:
    text = """
    def @even(%l) { match(%l) { Nil => True, Cons(_, %r) => @odd(%r) } }
    def @odd(%l) { match(%l) { Nil => False, Cons(_, %r) => @even(%r) } }
    (@even(Cons(1, Nil)), @odd(Cons(True, Nil)))
    """
    assert type_of(LIST + text) == "(bool, bool)"


@pytest.mark.rule("RLY-101")
def test_an_operator_without_types_is_the_only_thing_reported() -> None:
    message = refused("fn(%x, %y) { add(%x, %y) }", "RLY-101")
    assert "1:14: add of _, _ cannot be decided" in message
    assert "as in `%x: Tensor[(2, 3), float32]`" in message
    assert message.count("RLY-101") == 1


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("argwhere(%x)", "Tensor[(?, 2), int64]"),
        ("argwhere(%images)", "Tensor[(?, 4), int64]"),
        ("dyn.topk(%x, %n, axis=-1).1", "Tensor[(n, ?), int32]"),
        ('dyn.topk(%x, %n, axis=0, ret_type="values")', "Tensor[(?, 5), float32]"),
        ("dyn.one_hot(%size, %f, %f, %n, axis=0)", "Tensor[(?, 2), float32]"),
        ("dyn.one_hot(%size, %f, %f, %n)", "Tensor[(2, ?), float32]"),
        ('dyn.image.resize2d(%images, %size, layout="NHWC")', "Tensor[(1, ?, ?, 8), float32]"),
        ("dyn.nn.upsampling(%images, %f, %f)", "Tensor[(1, 3, ?, ?), float32]"),
    ],
)
def test_values_decide_no_dimension_that_follows_from_the_operands(call, expected) -> None:
    params = (
        "%x: Tensor[(n, 5), float32], %images: Tensor[(1, 3, 8, 8), float32], %n: int64, "
        "%size: Tensor[(2,), int64], %f: float32, %places: Tensor[(3, 2), int64], "
        "%n3: Tensor[(3,), int64]"
    )
    assert (
        f"-> {expected} {{"
        in relay.parse(f"def @main[n: ShapeVar]({params}) {{ {call} }}").astext()
    )


@pytest.mark.rule("RLY-12")
def test_messages_name_no_component_if_the_whole_differs() -> None:
    assert "note" not in refused("(fn(%x: int32) { %x })(True)", "RLY-12")


@pytest.mark.rule("RLY-101")
def test_inference_twice_changes_nothing_and_keeps_the_module() -> None:
    before = relay.parse_expr("let %x = 1; let %f = fn(%y) { %y }; (%f(%x), %f(2.5))")
    module = relay.IRModule.from_expr(before)
    typed = relay.transform.InferType()(module)
    assert structural_equal(module["main"].body, before)
    assert typed is not module
    assert relay.transform.InferType()(typed) is typed
    assert str(typed["main"].checked_type) == "fn () -> (int32, float32)"
    with pytest.raises(relay.RelayTypeError, match="no type yet"):
        _ = module["main"].body.checked_type


@pytest.mark.rule("RLY-85")
def test_a_variable_is_bound_once() -> None:
    x = relay.var("x", "int32")
    body = relay.Let(x, relay.const(1), relay.Let(x, relay.const(2), x))
    with pytest.raises(relay.RelayTypeError, match="bound twice"):
        relay.transform.InferType()(relay.IRModule.from_expr(relay.Function([], body)))


@pytest.mark.rule("RLY-82", "RLY-83", "RLY-84")
def test_nodes_have_the_fields_of_the_rules() -> None:
    x, y = relay.var("x", "float32"), relay.var("y", shape=(2, 3))
    call = relay.Call(relay.op.get("add"), [x, y])
    function = relay.Function([x, y], call, None, [], {"Primitive": 1})
    assert function.params == (x, y)
    assert function.attrs["Primitive"] == 1
    assert relay.TupleGetItem(relay.Tuple([x, y]), 1).tuple.fields == (x, y)
    branch = relay.If(relay.const(True), x, x)
    assert (branch.cond.data.item(), branch.true_branch) == (True, x)
    cell = relay.RefWrite(relay.RefCreate(x), relay.RefRead(relay.RefCreate(x)))
    assert isinstance(cell.value, relay.RefRead)
    box = relay.GlobalTypeVar("Box")
    a = relay.TypeVar("a")
    fill = relay.Constructor("Fill", [a], box)
    data = relay.TypeData(box, [a], [fill])
    assert fill.tag & 0xFFFFFF == 0
    clause = relay.Clause(relay.PatternConstructor(fill, [relay.PatternVar(x)]), x)
    match = relay.Match(fill(x), [clause, relay.Clause(relay.PatternWildcard(), x)], False)
    assert not match.complete
    assert relay.PatternTuple([relay.PatternWildcard()]).patterns
    assert data.constructors == (fill,)
    assert str(relay.RefType(box(relay.scalar_type("int8")))) == "ref(Box[int8])"
    assert relay.TypeRelation("Broadcast", [a, a, a]).num_inputs == 2
    assert relay.IncompleteType().kind is relay.TypeKind.Type
    assert relay.TensorType((1, relay.Any())).shape[1] == relay.Any()


@pytest.mark.rule("RLY-82")
def test_operators_of_python_build_calls() -> None:
    x = relay.var("x", "float32")
    for expr, name in (
        (x + x, "add"),
        (x - x, "subtract"),
        (x * x, "multiply"),
        (x / x, "divide"),
        (x < x, "less"),
        (x <= x, "less_equal"),
        (x > x, "greater"),
        (x >= x, "greater_equal"),
    ):
        assert expr.op is relay.op.get(name)
    assert (-x).op is relay.op.get("negative")
    assert x == x
    with pytest.raises(TypeError, match="const"):
        _ = x + 1
    assert relay.add(x, x).op is relay.op.get("add")
    with pytest.raises(AttributeError, match="no attribute"):
        _ = relay.addd


@pytest.mark.rule("RLY-37", "RLY-85")
def test_the_module_is_a_table_of_functions_and_data_types() -> None:
    module = prelude()
    assert "map" in module
    nil = module.get_constructor("Nil")
    assert module.get_constructor(nil.tag) is nil
    assert module.get_type("List")[1].name_hint == "Cons"
    assert set(module.type_definitions) == {
        relay.GlobalTypeVar(n) for n in ("List", "Option", "Tree")
    }
    with pytest.raises(KeyError, match="mpa"):
        module["mpa"]
    with pytest.raises(ValueError, match="no data type"):
        module.get_type("Nothing")
    module["f"] = relay.Function([], relay.const(np.float32(1)))
    assert module[module.get_global_var("f")].body.data == 1
    with pytest.raises(TypeError, match="functions and data types"):
        module["f"] = 3


BOOLEANS = "type B { T, F }\n"


def rows(count: int, *patterns: str) -> str:
    """Clauses for tuples, of which each demands one of some patterns of one field."""
    return ", ".join(
        f"({', '.join(pattern if j == i else '_' for j in range(count))}) => 1"
        for i in range(count)
        for pattern in patterns
    )


@pytest.mark.rule("RLY-93")
def test_completeness_of_many_alternatives_is_decided_fast() -> None:
    """No clause excludes another here, so that there are 2^40 combinations of constructors."""
    header = f"{BOOLEANS}fn(%x: ({', '.join(['B'] * 40)})) {{ match(%x) "
    assert relay.parse(f"{header} {{ {rows(40, 'T', 'F')} }} }}")
    message = refused(f"{header} {{ {rows(40, 'T')} }} }}", "RLY-93")
    assert f"no clause for ({', '.join(['F'] * 40)})" in message
    tree = "type D { N(D, D), L }\nfn(%x: D) { match(%x) "
    clauses = ["L"]
    for depth in range(30):
        clauses.append(f"N(_, {clauses[-1]})" if depth % 2 else f"N({clauses[-1]}, _)")
    text = "".join(f"{clause} => 1, " for clause in clauses)
    assert relay.parse(f"{tree} {{ {text} N(N(_, N(_, _)), _) => 2, _ => 3 }} }}")
    assert "no clause for N(" in refused(f"{tree} {{ {text} }} }}", "RLY-93")


@pytest.mark.rule("RLY-93")
def test_completeness_that_is_not_decided_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completeness is as hard as satisfiability: `match?` asks for none."""
    monkeypatch.setattr("relaxpy.plugins.relay.analysis._MAX_VISITED", 20)
    clauses = rows(3, "T", "F")
    message = refused(f"{BOOLEANS}fn(%x: (B, B, B)) {{ match(%x) {{ {clauses} }} }}", "RLY-93")
    assert "too many combinations" in message
    assert "write match?" in message
    match = relay.parse(f"{BOOLEANS}fn(%x: (B, B, B)) {{ match?(%x) {{ {clauses} }} }}")
    with pytest.raises(MisuseError, match="too many combinations"):
        relay.analysis.unmatched_cases(match["main"].body, match)


@pytest.mark.rule("RLY-39")
@pytest.mark.parametrize("value", ["a", ["a", "b"], 1j, object()])
def test_a_constant_has_numbers_or_booleans(value: object) -> None:
    with pytest.raises(MisuseError, match=r"a tensor contains numbers or Booleans.*\[RLY-39\]"):
        relay.const(value)
    assert relay.const([True, False]).data.dtype == bool


@pytest.mark.rule("RLY-39")
def test_lists_of_unequal_lengths_are_not_a_constant() -> None:
    with pytest.raises(MisuseError, match=r"cannot make a tensor of .*\[RLY-39\]"):
        relay.const([[1, 2], [3]])


def test_an_array_with_masked_elements_is_not_a_constant() -> None:
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    for create in (relay.const, relay.Constant):
        with pytest.raises(MisuseError, match="masked elements"):
            create(masked)


@pytest.mark.rule("RLY-98")
@pytest.mark.parametrize("ty", ["{}int32{}", "fn ({}int32{}) -> int32"])
def test_inference_grows_with_the_depth_of_types(ty: str) -> None:
    """A type that is compared at each of its levels makes the growth quadratic."""

    def work(depth: int) -> int:
        text = f"fn(%x: {ty}) {{{{ %x }}}}".format("(" * depth, ",)" * depth)
        return calls(lambda: relay.parse(text))

    work(5)
    assert work(400) < 2.4 * work(200)
