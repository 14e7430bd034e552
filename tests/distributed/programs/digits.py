"""The perceptron of the examples, trained by all workers: prints the curve."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "digits"))

import data
import trainer as example

from relaxpy.distributed import current_workers

curve = example.train(example.create(), data.load(), epochs=3)
if current_workers().rank == 0:
    print(*curve)
