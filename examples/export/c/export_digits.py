"""Trains the digits model, and writes it as a library for C, with pictures to try it on."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1] / "digits"))

import data  # noqa: E402
import numpy as np  # noqa: E402
import train  # noqa: E402
from model import MODULE  # noqa: E402

import relaxpy  # noqa: E402
from relaxpy import relax  # noqa: E402

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
digits = data.load()
weights = train.train(digits)
model = relax.transform.BindParams("main", weights)(MODULE)
for file in relaxpy.compile(model).export(folder / "digits.a"):
    print(file)

# Each picture is 64 numbers and its digit, as float32.
rows = np.column_stack([digits.x_test, digits.y_test]).astype("float32")
rows.tofile(folder / "pictures.bin")
