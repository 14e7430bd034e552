"""A few damaged kernels; `make fuzz` tries very many."""

import sys

import pytest

from relaxpy import tir
from relaxpy.errors import MisuseError
from tests.fuzz import damaged_kernels
from tests.fuzz.seed import COUNT, SEED


@pytest.mark.skipif(sys.platform == "win32", reason="calls are interrupted by an alarm")
def test_damaged_kernels_are_refused_or_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    faults = damaged_kernels.main(COUNT, SEED)
    assert faults == 0, capsys.readouterr().out


@pytest.mark.parametrize("value", [tir.Var("x", "float32"), tir.Var("x", "handle")])
def test_blocks_iterate_over_integers(value: tir.Var) -> None:
    v = tir.IterVar((0, 4), "v", 0)
    block = tir.Block([v], [], [], "b", tir.Evaluate(0))
    with pytest.raises(MisuseError, match="the iteration variable v is an integer, found `x`"):
        tir.BlockRealize([value], True, block)
