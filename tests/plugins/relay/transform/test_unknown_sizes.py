"""Passes keep the sizes that a program checks, and the `?` that it writes (RLY-88)."""

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RuntimeCheckError

PASSES = [
    relay.transform.ToGraphNormalForm(),
    relay.transform.ToANormalForm(),
    relay.transform.DeadCodeElimination(inline_once=True),
    relay.transform.Inline(),
    relay.transform.PartialEvaluate(),
    relay.transform.LambdaLift(),
    relay.transform.FoldConstant(),
    relay.transform.FuseOps(),
]
EACH_PASS = pytest.mark.parametrize("transform", PASSES, ids=lambda p: p.info.name)


@EACH_PASS
@pytest.mark.rule("RLY-88")
@pytest.mark.parametrize(
    "text",
    [
        "def @main(%x: Tensor[(?,), float32]) { let %z: Tensor[(2,), float32] = %x; sum(%z) }",
        "def @f(%x: Tensor[(2,), float32], Inline=1) { sum(%x) }"
        "def @main(%x: Tensor[(?,), float32]) { @f(%x) }",
        "def @f(%x: Tensor[(?,), float32], Inline=1) -> Tensor[(2,), float32] { %x }"
        "def @main(%x: Tensor[(?,), float32]) { sum(@f(%x)) }",
    ],
)
def test_a_size_is_checked_as_before(transform: relay.transform.RelayPass, text: str) -> None:
    run = relay.create_executor(mod=transform(relay.parse(text))).evaluate()
    assert run(np.ones(2, "float32")) == 2
    with pytest.raises(RuntimeCheckError, match="RLY-88"):
        run(np.ones(3, "float32"))


@EACH_PASS
@pytest.mark.rule("RLY-88")
@pytest.mark.parametrize(
    "body",
    [
        "let %z: Tensor[(?,), float32] = %y; if (%c) { %x } else { %z }",
        "if (%c) { @view(%x) } else { @view(%y) }",
        "let %t = @pair(%y); if (%c) { %x } else { %t.0 }",
        "let %f = fn(%a: Tensor[(?,), float32]) { nn.relu(%a) }; if (%c) {%f(%x)} else {%f(%y)}",
    ],
)
def test_an_unknown_size_stays_unknown(transform: relay.transform.RelayPass, body: str) -> None:
    """The branches would have two types, if a pass put a known size in the place of `?`."""
    text = f"""
    def @view(%x: Tensor[(?,), float32], Inline=1) -> Tensor[(?,), float32] {{ %x }}
    def @pair(%x: Tensor[(?,), float32], Inline=1) {{ (%x, 1) }}
    def @main(%c: bool, %x: Tensor[(4,), float32], %y: Tensor[(3,), float32]) {{ {body} }}
    """
    run = relay.create_executor(mod=transform(relay.parse(text))).evaluate()
    x, y = np.ones(4, "float32"), np.ones(3, "float32")
    assert run(True, x, y).shape == (4,)
    assert run(False, x, y).shape == (3,)


@pytest.mark.rule("RLY-97")
@pytest.mark.parametrize(
    "text",
    [
        "def @main(%x: float32) { let %f = fn(%y) { %y }; let %g = fn(%z) { %f(%z) }; %g(%x) }",
        "def @main(%x: float32) { let %f = fn(%y) { (%x, %y) }; (%f(1), %f(True)) }",
        "def @main(%x: float32) { let %t = (fn[t](%y: t) -> t { %y }, 1); %t.0(%x) }",
        "def @main(%x: float32) { let %r = ref(fn[t](%y: t) -> t { %y }); ref_read(%r)(%x) }",
    ],
)
@EACH_PASS
def test_polymorphic_closures_keep_their_types(transform, text) -> None:
    module = relay.parse(text)
    result = transform(module)
    assert str(result["main"].checked_type) == str(module["main"].checked_type)
    expected, found = (relay.create_executor(mod=m).evaluate()(2.0) for m in (module, result))
    assert found == expected
