"""Digits drawn in the terminal: two pixels per character cell, in greys where there is colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
RAMP = " .:*#@"


def grey(ink: float) -> str:
    """The colour of a pixel with that much ink, 0 to 1: light on dark."""
    level = round(40 + 215 * ink)
    return f"rgb({level},{level},{level})"


def draw(pixels: NDArray[np.floating[Any]], console: Console) -> Text:
    """A picture of even height with ink from 0 to 1, as well as `console` can show it."""
    text = Text(no_wrap=True)
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=True):
        if text:
            text.append("\n")
        for top, bottom in zip(upper.tolist(), lower.tolist(), strict=True):
            if console.encoding.lower().replace("-", "") != "utf8":
                text.append(RAMP[round((top + bottom) / 2 * (len(RAMP) - 1))])
            elif console.color_system is None or console.no_color:
                text.append(HALVES[top >= 0.5, bottom >= 0.5])
            else:
                text.append("▀", Style(color=grey(top), bgcolor=grey(bottom)))
    return text


def gallery(
    pictures: NDArray[np.floating[Any]], captions: Sequence[str | Text], console: Console
) -> Table:
    """Pictures of 8 x 8 pixels side by side, each over its caption."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in pictures:
        table.add_column(no_wrap=True, min_width=8)
    table.add_row(*(draw(pixels.reshape(8, 8), console) for pixels in pictures))
    table.add_row(*captions)
    return table
