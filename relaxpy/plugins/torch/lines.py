"""The lines of a user's model, read from the stack traces that PyTorch keeps of nodes."""

from __future__ import annotations

import linecache
import os
import re
from typing import Any

import torch

from relaxpy.errors import Source, Span

_FRAME = 'File "'
_PYTORCH = _FRAME + os.path.dirname(torch.__file__) + os.sep
#: A file, a line, its text and, where PyTorch marks a part of that, the marks below it.
_LINE = re.compile(
    r'File "([^"\n]*)", line (\d+), in [^\n]*(?:\n +(\S[^\n]*)(?:\n    ( *)([~^]+))?)?'
)


class Lines:
    """The lines from which the nodes of a graph come; nodes of one line share its span."""

    def __init__(self) -> None:
        self._spans: dict[str, Span | None] = {}

    def span(self, node: Any) -> Span | None:
        """The innermost line of a node that is not PyTorch's own; or that, if there is no other."""
        trace = node.meta.get("stack_trace")
        if not trace:
            return None
        begin = innermost = trace.rfind(_FRAME)
        while begin >= 0 and trace.startswith(_PYTORCH, begin):
            begin = trace.rfind(_FRAME, 0, begin)
        if begin < 0:
            begin = innermost
        end = trace.find(_FRAME, begin + len(_FRAME))
        frame = trace[begin:] if end < 0 else trace[begin:end]
        if frame not in self._spans:
            self._spans[frame] = _span(frame)
        return self._spans[frame]


def _span(frame: str) -> Span | None:
    """The span of a frame, of the text that was run: the file may be another one by now."""
    found = _LINE.match(frame)
    if found is None:
        return None
    file, number, text, before, marks = found.groups()
    line, text = int(number), (text or "").rstrip()
    now = linecache.getline(file, line).rstrip()
    indent = len(now) - len(text) if now.endswith(text) else 0
    if now[:indent].isspace():
        text = now
    else:
        indent = 0
    begin = indent + len(before or "")
    end = begin + len(marks) if marks else len(text)
    return Span(Source(file, text, line), line, begin + 1, line, end + 1)
