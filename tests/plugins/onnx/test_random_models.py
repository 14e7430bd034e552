"""Random ONNX models return what ONNX Runtime does; each day others, under its date.

`RELAXPY_FUZZ_SEED` runs the models of another day again, `RELAXPY_FUZZ_COUNT` more of them.
"""

import warnings

import onnx
import pytest

pytest.importorskip("onnxruntime")

from tests.fuzz.onnx_models import TARGETS, is_refused, run, write
from tests.fuzz.seed import COUNT, SEED

AT_ONCE = 10


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", range(-(-COUNT // AT_ONCE)))
def test_models_return_what_onnx_runtime_does(batch: int) -> None:
    refused = 0
    for k in range(AT_ONCE * batch, min(AT_ONCE * (batch + 1), COUNT)):
        seed = f"{SEED}.{k}"
        case = write(seed)
        try:
            run(case, TARGETS[k % 2 : k % 2 + 1])
        except Exception as error:
            refused += is_refused(case, error)
            if not is_refused(case, error):
                error.add_note(f"seed {seed}\n{onnx.printer.to_text(case.proto)}")
                raise
    assert refused < AT_ONCE / 2


def test_models_are_the_same_for_one_seed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, again, other = write("a").proto, write("a").proto, write("b").proto
    assert first == again != other
