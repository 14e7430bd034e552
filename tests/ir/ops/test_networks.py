"""Attention with a bias, and without groups of heads."""

import relaxpy
from relaxpy.ir import ops as op
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relax import nodes as rx
from tests.ir.ops.test_rules import M, N
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import tensor

Q, K, V = tensor(2, N, 4, 8), tensor(2, M, 2, 8), tensor(2, M, 2, 5)


def test_attention_with_a_bias_is_a_call_of_attention_bias() -> None:
    q, k, v, bias = (
        rx.Var(name, sinfo)
        for name, sinfo in zip("qkvb", (Q, K, V, tensor(2, 1, N, M)), strict=True)
    )
    biased = op.nn.attention(q, k, v, bias, causal_mask="TopLeft")
    assert structural_equal(
        biased, op.nn.attention_bias(q, k, v, bias, causal_mask="TopLeft"), map_free_vars=True
    )
    assert biased.op == op.nn.attention_bias.op
    assert op.nn.attention(q, k, v, scale=0.5).op == op.nn.attention.op


def test_attention_without_groups_of_heads_is_two_products_of_matrices() -> None:
    module = returning(op.nn.attention, *(tensor(2, N, 4, width) for width in (8, 8, 5)))
    source = relaxpy.compile(module).source
    assert source.count("np.matmul(") == 2
    assert "contract" not in source
    assert "reshape" not in source
