"""Random modules do what PyTorch's do; each day others, under its date.

`RELAXPY_FUZZ_SEED` runs the modules of another day again, `RELAXPY_FUZZ_COUNT` more of them.
"""

import pytest

pytest.importorskip("torch")

from tests.fuzz import torch_modules
from tests.fuzz.seed import COUNT, SEED
from tests.fuzz.torch_modules import WAYS, Redraw, check

AT_ONCE = 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", range(-(-COUNT // AT_ONCE)))
def test_modules_do_what_pytorch_does(batch: int) -> None:
    for k in range(AT_ONCE * batch, min(AT_ONCE * (batch + 1), COUNT)):
        check(f"{SEED}.{k}", WAYS[k % len(WAYS)])


def test_what_pytorch_refuses_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []

    def refuses_twice(case: torch_modules.Case, way: str) -> None:
        texts.append(case.text)
        if len(texts) < 3:
            raise Redraw

    monkeypatch.setattr(torch_modules, "run", refuses_twice)
    check("again.0", WAYS[0])
    assert len(set(texts)) == 3
