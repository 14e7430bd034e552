"""The perceptron of the examples, trained by all workers for some epochs: prints the curve.

A second argument is the checkpoint to go on from.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "examples" / "digits"))

import data
import trainer as example

from relaxpy.distributed import current_workers

epochs, *checkpoint = sys.argv[1:]
curve = example.train(
    *(example.create(), data.load()),
    epochs=int(epochs),
    checkpoint=next(map(Path, checkpoint), None),
)
if current_workers().rank == 0:
    print(*curve)
