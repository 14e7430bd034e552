"""Printing of Relay programs: what is printed reads back equal."""

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError
from relaxpy.ir import structural_equal
from tests.relay_programs import LIST, NAT, prelude

PROGRAMS = [
    "1",
    "()",
    "(1,)",
    "1.5",
    "-2",
    "1i64",
    "2.5f64",
    "1f16",
    "True",
    "0.1",
    "1e30",
    "-1e-30",
    "let %x = 1; %x + 2",
    "%0 = 1 + 2\n(%0, %0)",
    "let %f = fn(%x) { %x }; (%f(1), %f(()))",
    "(if (True) { 1 } else if (False) { 2 } else { 3 }) + 4",
    "(let %x = 1; %x + 1) * (let %y = 2; %y)",
    "let %r = ref(1); ref_write(%r, 2); ref_read(%r)",
    "{ let %x = 1; let %x = %x + 1; %x }",
    "let %f = fn(%n: int32) -> int32 { if (%n == 0) { 0 } else { %f(%n - 1) } }; %f(3)",
    "(%0 = fn(%x: int32) { %x }; (%0(1), %0(2)))",
    "%0 = 3 * 3\nlet %f = fn(%x: int32) { %x + %0 }; (%f(1), %0)",
    NAT + "let %n = (match (Z) { case Z { S(Z) } case S(%m) { %m } }); (%n, S)",
    LIST
    + "let %l : List[int32] = Nil; match? ((%l, 1)) { (Nil, %x) => %x, (Cons(%x, _), _) => %x }",
    "def @f<a, b, c>(%x: a, %y: b) -> c where Broadcast { %x + %y }\n@f(1, 2)",
    "fn<s : Shape, b : BaseType, n : ShapeVar>(%x: Tensor[s, "
    "b], %y: Tensor[(n, ?), b]) { (%x, %y) }",
    "let %t = (1, (2, 3)); %t.1.0",
    "Constant(1.5, (2, 2), float32)",
    "let %x = 1; %0 = %x + 1\nlet %y = %0 * 2; (%0, %y, if (True) { %0 } else { %y })",
]


def round_trip(module: relay.IRModule) -> str:
    """The text of a module, which reads back equal."""
    text = module.astext()
    again = relay.parse(text)
    assert structural_equal(module, again), text
    return text


@pytest.mark.rule("RLY-111")
@pytest.mark.parametrize("text", PROGRAMS)
def test_programs_read_back_equal(text: str) -> None:
    round_trip(relay.parse(text))


@pytest.mark.rule("RLY-111")
@pytest.mark.parametrize("text", PROGRAMS)
def test_programs_without_types_read_back_equal(text: str) -> None:
    if "\ndef" in text or text.startswith(("def", "data", "type")):
        return
    expr = relay.parse_expr(text)
    again = relay.parse_expr(expr.astext())
    assert structural_equal(expr, again, map_free_vars=True), expr.astext()


@pytest.mark.rule("RLY-111")
def test_the_prelude_reads_back_equal() -> None:
    round_trip(prelude())


@pytest.mark.rule("RLY-58", "RLY-111")
def test_the_format_is_that_of_tvm() -> None:
    text = (
        LIST
        + "def @f[A](%x: A, %n: int32) -> int32 { if (%n == 0) { 1 } else { (%n + 1) * (%n + 1) } }"
    )
    assert relay.parse(text).astext() == (
        '#[version = "0.0.5"]\n'
        "type List[A] {\n"
        "  Cons(A, List[A]),\n"
        "  Nil,\n"
        "}\n"
        "\n"
        "def @f[A](%x: A, %n: int32) -> int32 {\n"
        "  %0 = equal(%n, 0) /* ty=bool */;\n"
        "  if (%0) {\n"
        "    1\n"
        "  } else {\n"
        "    %1 = add(%n, 1) /* ty=int32 */;\n"
        "    %2 = add(%n, 1) /* ty=int32 */;\n"
        "    multiply(%1, %2) /* ty=int32 */\n"
        "  }\n"
        "}\n"
    )


@pytest.mark.rule("RLY-45", "RLY-111")
def test_sharing_is_kept_and_compared() -> None:
    shared = relay.parse("%0 = 1 + 2\n%0 * %0")
    written_out = relay.parse("(1 + 2) * (1 + 2)")
    assert not structural_equal(shared, written_out)
    x = relay.var("x", "int32")
    expr: relay.Expr = x
    for _ in range(60):
        expr = expr + expr
    module = relay.transform.InferType()(relay.IRModule.from_expr(expr))
    assert len(round_trip(module).splitlines()) < 70


@pytest.mark.rule("RLY-111")
def test_names_that_clash_or_are_no_names_are_changed() -> None:
    x, other, odd = relay.var("x", "int32"), relay.var("x", "int32"), relay.var("1/é", "int32")
    function = relay.Function([x, other, odd], relay.Tuple([odd, other, x]))
    text = function.astext()
    assert text.startswith("fn (%x: int32, %x1: int32, %v1__: int32) {")
    assert structural_equal(relay.parse_expr(text), function)


@pytest.mark.rule("RLY-65", "RLY-111")
@pytest.mark.parametrize(
    "data",
    [
        *(np.arange(6, dtype="int8").reshape(2, 3), np.array(np.nan, "float32")),
        *(np.array(-0.0, "float64"), np.array(np.inf), np.zeros((0, 2)), np.array(3, "uint8")),
        *(np.array([True, False]), np.array(1.5, "float32"), np.array(1e-45, "float32")),
    ],
)
def test_constants_keep_every_bit(data: np.ndarray) -> None:
    module = relay.transform.InferType()(relay.IRModule.from_expr(relay.Constant(data)))
    body = relay.parse(round_trip(module))["main"].body
    assert body.data.tobytes() == data.tobytes()
    assert body.data.dtype == data.dtype


@pytest.mark.rule("RLY-56")
def test_temporary_nodes_have_no_text() -> None:
    class Mine(relay.TempExpr):
        pass

    with pytest.raises(MisuseError, match="only inside a pass"):
        relay.Tuple([Mine()]).astext()


@pytest.mark.rule("RLY-57")
def test_a_pass_that_leaves_a_temporary_node_is_reported() -> None:
    class Mine(relay.TempExpr):
        pass

    @relay.transform.function_pass(opt_level=0, name="Broken")
    def broken(function: relay.Function, module: relay.IRModule, context: object) -> relay.Function:
        return relay.Function([], relay.Tuple([Mine()]))

    with pytest.raises(ValueError, match="pass Broken left Mine in the program"):
        broken(relay.parse("1"))


@pytest.mark.rule("RLY-111")
def test_long_programs_are_printed_in_linear_time() -> None:
    lets = "".join(f"let %x{i + 1} = %x{i} + 1; " for i in range(3_000))
    module = relay.parse(f"let %x0 = 1; {lets} %x3000")
    assert len(module.astext().splitlines()) == 3_005


@pytest.mark.rule("RLY-111")
def test_comments_of_the_user_take_the_place_of_types() -> None:
    module = relay.parse("1 + 2")
    assert "add(1, 2) /* mine */" in module.astext(annotate=lambda expr: "/* mine */")


def test_show_prints_the_text_of_relay(capsys: pytest.CaptureFixture[str]) -> None:
    """RLY-111: of modules and of expressions."""
    module = relay.parse("def @main(%x: int32) { %x + 1 }")
    module.show()
    module["main"].body.show()
    assert capsys.readouterr().out == f"{module.astext()}\n{module['main'].body.astext()}\n"


@pytest.mark.rule("RLY-111")
def test_negative_zeros_keep_their_sign() -> None:
    for dtype in ("float32", "float64"):
        function = relay.Function([], relay.const(-0.0, dtype))
        read = relay.parse(relay.IRModule.from_expr(function).astext())
        assert np.signbit(read["main"].body.data)


@pytest.mark.rule("RLY-111")
@pytest.mark.parametrize(
    "value",
    [
        *(float("inf"), float("-inf"), 1e300, -1e-300, 0.1, 1e16, -0.0, -7, 10**300, None, True),
        *('it"s\n', (1, (2.5, None), "x"), ()),
    ],
)
@pytest.mark.parametrize("key", ["k", "Compiler", "a.b", "fn"])
def test_attributes_of_functions_read_back_equal(key: str, value: object) -> None:
    x = relay.var("x", shape=(2,), dtype="float32")
    module = relay.IRModule.from_expr(relay.Function([x], x).with_attr(key, value))
    module = relay.transform.InferType()(module)
    assert structural_equal(relay.parse(module.astext()), module)


def test_attributes_that_are_not_numbers_read_back() -> None:
    x = relay.var("x", shape=(2,), dtype="float32")
    for value in (float("inf"), float("nan")):
        module = relay.IRModule.from_expr(relay.Function([x], relay.clip(x, value, value)))
        text = relay.transform.InferType()(module).astext()
        assert relay.parse(text).astext() == text


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("k", {"a": 1}, "Relay text has no dictionaries"),
        ("k", 10**500, "at most 400 digits"),
        *((key, 1, "names consist of letters") for key in ("", "a b", "é", "0", "\n", "a.", ".a")),
    ],
)
def test_attributes_that_no_text_can_have_are_refused(key: str, value: object, reason: str) -> None:
    x = relay.var("x", shape=(2,), dtype="float32")
    with pytest.raises(MisuseError, match=reason):
        relay.Function([x], x).with_attr(key, value).astext()


@pytest.mark.rule("RLY-60")
@pytest.mark.parametrize("name", ["fused.add", "a b", "é", "0", "\n", "1a", "a-b"])
def test_names_of_declarations_are_those_that_text_can_have(name: str) -> None:
    data = relay.GlobalTypeVar("D")
    for build in (relay.GlobalVar, relay.GlobalTypeVar, lambda n: relay.Constructor(n, [], data)):
        with pytest.raises(MisuseError, match="consists of letters, digits and _"):
            build(name)


@pytest.mark.rule("RLY-60")
@pytest.mark.parametrize("name", ["fn", "_", "Tensor", "int32", "bool", "True", "ref", "match"])
def test_keywords_name_global_functions_and_variables_only(name: str) -> None:
    data = relay.GlobalTypeVar("D")
    for build in (relay.GlobalTypeVar, lambda n: relay.Constructor(n, [], data)):
        with pytest.raises(MisuseError, match="is not a word of Relay text"):
            build(name)
    param = relay.TypeVar(name)
    x = relay.Var(name, relay.TupleType([param, relay.TensorType((), "int32")]))
    module = relay.IRModule({relay.GlobalVar(name): relay.Function([x], x, type_params=[param])})
    module = relay.transform.InferType()(module)
    assert structural_equal(relay.parse(module.astext()), module)


@pytest.mark.rule("RLY-60")
def test_an_operator_with_the_name_of_a_constructor_has_no_text() -> None:
    header, x = relay.GlobalTypeVar("T"), relay.var("x", "int32")
    constructor = relay.Constructor("negative", [relay.scalar_type("int32")], header)
    module = relay.IRModule()
    module[header] = relay.TypeData(header, [], [constructor])
    module["main"] = relay.Function([x], constructor(x))
    module = relay.transform.InferType()(module)
    assert structural_equal(relay.parse(module.astext()), module)
    module["main"] = relay.Function([x], relay.negative(x))
    with pytest.raises(MisuseError, match="the operator negative cannot be printed"):
        module.astext()
