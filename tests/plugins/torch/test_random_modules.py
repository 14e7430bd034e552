"""Random modules do what PyTorch's do; each day others, under its date.

`RELAXPY_FUZZ_SEED` runs the modules of another day again, `RELAXPY_FUZZ_COUNT` more of them.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.fuzz.seed import COUNT, SEED
from tests.fuzz.torch_modules import WAYS, Redraw, run, write

AT_ONCE = 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", range(-(-COUNT // AT_ONCE)))
def test_modules_do_what_pytorch_does(batch: int) -> None:
    refused = 0
    for k in range(AT_ONCE * batch, min(AT_ONCE * (batch + 1), COUNT)):
        seed = f"{SEED}.{k}"
        case = write(seed)
        try:
            run(case, WAYS[k % len(WAYS)])
        except Redraw:  # PyTorch itself refuses it
            refused += 1
        except Exception as error:
            error.add_note(f"seed {seed}\n{case.text}")
            raise
    assert refused < AT_ONCE
