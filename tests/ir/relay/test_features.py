"""What Relay programs consist of."""

import pytest

from relaxpy import relay
from relaxpy.errors import RelaxpyError
from relaxpy.relay.analysis import (
    Feature,
    all_dtypes,
    alpha_equal,
    count_layers,
    detect_feature,
    list_op_freqs,
)
from tests.relay_programs import NAT


def names(text: str) -> set[str]:
    """The features of the body of a program, without those of its function."""
    return {feature.name for feature in detect_feature(relay.parse(text)["main"].body)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "fConstant"),
        ("1 + 2", "fConstant fCall fOp"),
        ("%0 = 1 + 2\n(%0, %0)", "fConstant fCall fOp fTuple fGraph"),
        ("let %x = 1; (%x, 2).0", "fConstant fLet fVar fTuple fTupleGetItem"),
        ("if (True) { 1 } else { 2 }", "fConstant fIf"),
        ("let %f = fn() -> int32 { %f() }; 1", "fConstant fLet fLetRec fFunction fVar fCall"),
        ("let %f = fn() { 2 }; %f()", "fConstant fLet fFunction fVar fCall"),
        ("ref_read(ref(1))", "fConstant fRefRead fRefCreate"),
        ("ref_write(ref(1), 2)", "fConstant fRefWrite fRefCreate"),
        (NAT + "match (Z) { case Z { 1 } case S(_) { 2 } }", "fConstant fMatch fConstructor fCall"),
    ],
)
def test_features(text: str, expected: str) -> None:
    assert names(text) - {"fCall"} == set(expected.split()) - {"fCall"}
    assert ("fCall" in names(text)) >= ("fOp" in names(text))


def test_the_features_of_a_module_are_those_of_its_functions() -> None:
    module = relay.parse("def @f() { ref(1) }\ndef @main() { (@f(), 2) }")
    found = {Feature.fFunction, Feature.fRefCreate, Feature.fConstant, Feature.fTuple}
    found |= {Feature.fCall, Feature.fGlobalVar}
    assert detect_feature(module) == found
    assert detect_feature(relay.const(1), module) == found
    with pytest.raises(RelaxpyError, match="expected a Relay expression or module"):
        detect_feature("main")


def test_datatypes_and_operators_are_counted() -> None:
    module = relay.parse(
        "def @main(%x: Tensor[(2), float32]) { cast(%x + %x, dtype=int32) + 1 + 2 }"
    )
    assert all_dtypes(module["main"]) == {"float32", "int32"}
    assert list_op_freqs(module) == {"add": 3, "cast": 1}
    assert list_op_freqs(module["main"].body) == {"add": 3, "cast": 1}


def test_layers_are_counted_along_the_longest_path() -> None:
    text = "fn(%x: float32) { let %a = exp(%x); let %b = exp(%a); (exp(%b) + %a, log(exp(%a))) }"
    body = relay.parse_expr(text)
    assert count_layers(body, ["exp"]) == 3
    assert count_layers(body, ["log", "add"]) == 1
    assert count_layers(relay.var("x"), ["exp"]) == 0


def test_alpha_equality_renames_bound_variables() -> None:
    one, other, different = (
        relay.parse_expr(f"fn(%x: int32, %y: int32) {{ {body} }}")
        for body in ("let %a = %x; (%a, %y)", "let %b = %x; (%b, %y)", "let %a = %y; (%a, %y)")
    )
    assert alpha_equal(one, other)
    assert not alpha_equal(one, different)
