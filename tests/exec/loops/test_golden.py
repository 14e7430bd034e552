"""What generated kernels look like."""

from collections.abc import Callable

from tests.exec.loops.support import source_of
from tests.exec.loops.test_model_kernels import CLASSIFIER
from tests.exec.loops.test_strategies import KINDS
from tests.exec.loops.written import kernel

Golden = Callable[[str], None]


def test_dense(golden: Golden) -> None:
    golden(source_of(kernel(CLASSIFIER["a dense layer"]), "dense"))


def test_softmax(golden: Golden) -> None:
    golden(source_of(kernel(CLASSIFIER["softmax"]), "softmax"))


def test_argmax(golden: Golden) -> None:
    golden(
        source_of(
            kernel(CLASSIFIER["an argmax takes the first of equals and passes over nan"]), "argmax"
        )
    )


def test_conv(golden: Golden) -> None:
    golden(source_of(kernel(KINDS["a convolution"]), "conv"))


def test_cumsum(golden: Golden) -> None:
    golden(source_of(kernel(KINDS["a running sum accumulates over all rows at once"]), "cumsum"))


def test_collatz(golden: Golden) -> None:
    golden(
        source_of(kernel(KINDS["a while loop runs one element at a time and says so"]), "collatz")
    )
