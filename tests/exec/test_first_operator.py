"""The first program of a process: its operators have their implementations, whichever they are."""

import subprocess
import sys

import pytest

PROGRAM = '''
import numpy as np
import relaxpy
from relaxpy.script import from_source

module = from_source("""
@R.function(pure=False)
def main(x: R.Tensor((), "float32")):
    _ = R.assert_op(R.greater(x, R.const(0.0)), format="x is not positive")
    return x
""")
main = relaxpy.compile(module, {target!r})["main"]
assert main(np.float32(4)) == 4
try:
    main(np.float32(-4))
except relaxpy.errors.RelaxpyError as error:
    print(error)
'''


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_an_operator_without_a_kernel_may_be_the_first(target: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(target=target)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    assert "x is not positive" in run.stdout
