"""What generated kernels look like."""

from collections.abc import Callable

from tests.exec.kernel.support import source_of
from tests.exec.kernel.test_kinds import collatz, conv, cumsum
from tests.exec.kernel.test_model_kernels import argmax, dense, softmax

Golden = Callable[[str], None]


def test_dense(golden: Golden) -> None:
    golden(source_of(dense, "dense"))


def test_softmax(golden: Golden) -> None:
    golden(source_of(softmax, "softmax"))


def test_argmax(golden: Golden) -> None:
    golden(source_of(argmax, "argmax"))


def test_conv(golden: Golden) -> None:
    golden(source_of(conv, "conv"))


def test_cumsum(golden: Golden) -> None:
    golden(source_of(cumsum, "cumsum"))


def test_collatz(golden: Golden) -> None:
    golden(source_of(collatz, "collatz"))
