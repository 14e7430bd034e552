"""Random ONNX models return what ONNX Runtime does; each day others, under its date.

`RELAXPY_FUZZ_SEED` runs the models of another day again, `RELAXPY_FUZZ_COUNT` more of them.
"""

import warnings

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import relaxpy
from relaxpy.relax.frontend.onnx import from_onnx
from tests.fuzz.onnx_draw import Redraw, run_reference
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


def test_means_before_opset_7_exclude_padding_whatever_the_reference_counts() -> None:
    """The text says that the sum is "divided by the number of elements exclude pad"."""
    text = """
        <ir_version: 8, opset_import: ["" : 6]>
        g (float[1, 1, 3] x) => (float[1, 1, 4] y) {
            y = AveragePool <kernel_shape = [2], pads = [1, 1]> (x)
        }
    """
    model, x = onnx.parser.parse_model(text), np.ones((1, 1, 3), "float32")
    found = relaxpy.compile(from_onnx(model))["main"](x)
    np.testing.assert_array_equal(found, np.ones((1, 1, 4), "float32"))
    with pytest.raises(Redraw, match="there is no oracle"):
        run_reference(model, {"x": x})
