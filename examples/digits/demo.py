"""A model trained on handwritten digits, from decorated functions to predictions: `make demo`."""

from __future__ import annotations

import argparse
import ast
import sys
from functools import partial
from pathlib import Path
from time import perf_counter

import data
import numpy as np
import numpy_model
import train
from model import MODULE
from numpy.typing import NDArray
from picture import gallery
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from timing import interleaved

import relaxpy
from relaxpy import relax
from relaxpy.errors import RelaxpyError

BATCHES = (1, 32, 1000)
WANTED = 0.95


class ShortfallError(Exception):
    """The model runs, but does not do what the demo promises."""


def trained_weights(path: Path, digits: data.Digits, console: Console) -> train.Weights:
    """The weights at `path`, trained and written there first if there are none yet."""
    if path.exists():
        console.print(f"Weights of an earlier run: {path}", soft_wrap=True)
        return train.load_weights(path)
    start = perf_counter()
    weights = train.train(digits)
    train.save_weights(path, weights)
    console.print(
        f"Trained in plain NumPy in {perf_counter() - start:.1f} s; weights kept in {path}",
        soft_wrap=True,
    )
    return weights


def bindings() -> Table:
    """What every variable of `main` was inferred to be."""
    table = Table(box=None, pad_edge=False)
    table.add_column("variable", style="bold")
    table.add_column("inferred struct info")
    main = MODULE["main"]
    assert isinstance(main, relax.Function)
    assert isinstance(main.body, relax.SeqExpr)
    for block in main.body.blocks:
        for binding in block.bindings:
            if binding.var is not None:
                table.add_row(binding.var.name_hint, Text(str(binding.var.struct_info)))
    return table


def work_of(source: str, name: str) -> str:
    """The function called `name` in Python `source`."""
    function = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    text = ast.get_source_segment(source, function)
    assert text is not None
    return text


def caption(label: int, share: float, truth: int) -> Text:
    """The prediction and how sure it is, and the truth where that is another."""
    if label == truth:
        return Text(f"{label}  {share:4.0%}", style="green")
    return Text(f"{label} not {truth}", style="bold red")


def some_digits(
    x: NDArray[np.float32],
    truth: NDArray[np.int64],
    probabilities: NDArray[np.float32],
    labels: NDArray[np.int64],
    console: Console,
) -> Table:
    """Eight pictures: the first of several digits, and the first two that the model misreads."""
    wrong = np.flatnonzero(labels != truth)[:2]
    known = np.unique(truth, return_index=True)[1]
    chosen = [*known[~np.isin(known, wrong)][: 8 - len(wrong)], *wrong]
    captions = [
        caption(int(labels[i]), float(probabilities[i, labels[i]]), int(truth[i])) for i in chosen
    ]
    return gallery(x[chosen], captions, console)


def speed(
    executable: relaxpy.Executable,
    x: NDArray[np.float32],
    weights: tuple[NDArray[np.float32], ...],
    samples: int,
) -> Table:
    """Time per batch of the one executable, beside the same model in plain NumPy."""
    table = Table(box=None, pad_edge=False)
    for heading in ("batch", "relaxpy", "plain NumPy", "ratio"):
        table.add_column(heading, justify="right")
    main = executable["main"]
    for batch in BATCHES:
        pictures = np.resize(x, (batch, 64))
        ours, theirs = interleaved(
            [partial(main, pictures, *weights), partial(numpy_model.main, pictures, *weights)],
            samples=samples,
        )
        table.add_row(str(batch), str(ours), str(theirs), f"{ours.ratio(theirs):.2f}")
    return table


def demo(console: Console, *, path: Path, samples: int) -> None:
    """Everything that the demo shows, in order.

    Errors:
        ShortfallError: test accuracy is too low, or the predictions are not plain NumPy's.
    """
    digits = data.load()
    console.rule("The module", align="left")
    MODULE.show(name="Digits", show_all_struct_info=False, width=min(console.width, 100))

    console.rule("What was inferred of main", align="left")
    console.print(bindings())

    console.rule("Some of the generated Python", align="left")
    executable = relaxpy.compile(MODULE)
    for name in ("fused_dense_relu", "fused_dense_softmax", "main"):
        text = work_of(executable.source, name)
        console.print(Syntax(text, "python", background_color="default", word_wrap=True))

    console.rule("How the kernels run", align="left")
    console.print(Text(str(executable.report())), soft_wrap=True)

    console.rule("On real data", align="left")
    weights = trained_weights(path, digits, console)
    arguments = train.arguments(weights)
    probabilities, labels = executable["main"](digits.x_test, *arguments)
    _, expected = numpy_model.main(digits.x_test, *arguments)
    share = float(np.mean(labels == digits.y_test))
    same = int(np.sum(labels == expected))
    console.print(
        f"Test accuracy {share:.1%} on {len(labels)} pictures; "
        f"{same} of {len(labels)} predictions as plain NumPy's"
    )
    gallery_table = some_digits(digits.x_test, digits.y_test, probabilities, labels, console)
    console.print(Padding(gallery_table, (1, 0)))
    if same != len(labels):
        raise ShortfallError(f"{len(labels) - same} predictions differ from plain NumPy's")
    if share < WANTED:
        raise ShortfallError(f"test accuracy {share:.1%} is below {WANTED:.0%}")

    console.rule("Time per batch, one executable for all", align="left")
    console.print(speed(executable, digits.x_test, arguments, samples))


def main(argv: list[str] | None = None) -> int:
    """Show the demo; 0 if it kept its promises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure times only roughly")
    parser.add_argument(
        "--weights", type=Path, default=train.FILE, help=f"file of weights (default: {train.FILE})"
    )
    options = parser.parse_args(argv)
    console = Console()
    try:
        demo(console, path=options.weights, samples=3 if options.quick else 30)
    except (ModuleNotFoundError, RelaxpyError, ShortfallError) as err:
        console.file.flush()
        print(err, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
