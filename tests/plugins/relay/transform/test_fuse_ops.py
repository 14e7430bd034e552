"""FuseOps makes primitive functions of calls of operators; DefuseOps takes them apart."""

import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError
from relaxpy.ir import structural_equal
from relaxpy.relay import transform

TEXT = """fn(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32],
             %b: Tensor[(4,), float32]) {
  %0 = nn.conv2d(%x, %w)
  %1 = nn.bias_add(%0, %b)
  %2 = nn.relu(%1)
  %3 = sum(%2, axis=[1]) * 2f
  %4 = split(%3, indices_or_sections=2, axis=1)
  concatenate((%4.0 + 1f, exp(%4.1)), axis=1) }"""


def groups(module: relay.IRModule) -> list[list[str]]:
    """The operators of each primitive function, in order."""
    found: list[list[str]] = []

    def visit(node: object) -> None:
        if isinstance(node, relay.Function) and "Primitive" in node.attrs:
            inside: list[str] = []
            relay.analysis.post_order_visit(
                node, lambda n: inside.append(n.op.name) if isinstance(n, relay.Call) else None
            )
            found.append(inside)

    relay.analysis.post_order_visit(module["main"], visit)
    return found


def test_calls_are_grouped_as_their_kernels_permit() -> None:
    fused = transform.FuseOps(2)(relay.parse(TEXT))
    assert sorted(groups(fused)) == [
        ["multiply", "split", "add", "exp", "concatenate"],
        ["nn.conv2d", "nn.bias_add", "nn.relu"],
        ["sum"],
    ]
    assert structural_equal(transform.FuseOps(2)(fused), fused)


def test_level_0_makes_a_function_of_each_call() -> None:
    assert all(len(group) == 1 for group in groups(transform.FuseOps(0)(relay.parse(TEXT))))
    with pytest.raises(MisuseError, match="fuse_opt_level is an integer"):
        transform.FuseOps("2")


def test_defuse_ops_is_the_inverse() -> None:
    module = relay.parse(TEXT)
    assert structural_equal(transform.DefuseOps()(transform.FuseOps(2)(module)), module)


def test_values_that_are_used_elsewhere_end_a_group() -> None:
    text = "fn(%x: float32) { %0 = exp(%x); %1 = %0 + 1f; (%0, %1 * 2f, fn() { %1 }) }"
    assert all(len(group) == 1 for group in groups(transform.FuseOps(2)(relay.parse(text))))


def test_dimensions_may_be_unknown() -> None:
    text = "fn<n: ShapeVar>(%x: Tensor[(n, ?), float32]) { exp(%x) + 1f }"
    assert groups(transform.FuseOps(2)(relay.parse(text))) == [["exp", "add"]]
