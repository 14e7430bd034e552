"""flex_attention, exported and captured, beside PyTorch's own kernel of matrices."""

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

from tests.plugins.torch.test_values import ROADS  # noqa: E402

SLOPES = torch.tensor([0.5, -0.25, 1.0, 0.125])


def _masked(q: Any, k: Any, v: Any) -> Any:
    def near(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i - j < 3) & (i != 5)  # of row 5, all is masked

    mask = create_block_mask(near, None, None, q.shape[2], k.shape[2], device="cpu")
    return flex_attention(q, k, v, _biased, mask, scale=0.25)


def _biased(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return score + (j - i) * SLOPES[h]


FORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "plain": flex_attention,
    "scores": lambda q, k, v: flex_attention(q, k, v, score_mod=_biased),
    "mask": _masked,
    "grouped": lambda q, k, v: flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
    "sums": lambda q, k, v: flex_attention(q, k, v, return_lse=True),
    "16 bits": lambda q, k, v: flex_attention(q.half(), k.half(), v.half()),
}


@ROADS
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
def test_scores_are_changed_and_masked_as_pytorch_does(form: str, road: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 4, 7, 3, generator=generator) for _ in range(3))
    expected = torch.utils._pytree.tree_leaves(FORMS[form](q, k, v))
    for ours, theirs in zip(road(FORMS[form], q, k, v)(q, k, v), expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(ours), theirs)
