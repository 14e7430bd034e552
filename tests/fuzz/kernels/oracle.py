"""An oracle for kernels: the text of a PrimFunc as plain Python loops over scalars.

It reads nothing but Python's own `ast` of the text, writes a Python function (`Oracle.python`,
worth reading when a program fails) and runs it. What single operations mean is in `semantics`, what
buffers do in `memory`, how text becomes Python in `writer` and `values`; none of these uses
anything of relaxpy.

What it reads is what the generator writes, with a little more for programs written by hand: see
`UnreadableError`.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.fuzz.kernels.machine import Machine
from tests.fuzz.kernels.reading import UnreadableError
from tests.fuzz.kernels.semantics import Semantics
from tests.fuzz.kernels.writer import Writer


class Oracle:
    """The program of one text."""

    def __init__(self, text: str) -> None:
        tree = ast.parse(textwrap.dedent(text))
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        if len(functions) != 1:
            raise UnreadableError("expected one function")
        self.name = functions[0].name
        writer = Writer(functions[0])
        self.python = "\n".join(writer.lines) + "\n"
        space: dict[str, Any] = {}
        exec(compile(self.python, "<oracle>", "exec"), space)
        self._function = space["program"]

    def run(self, arguments: Sequence[Any]) -> Semantics:
        """Run the program on `arguments`, writing into its arrays; how precise the results are.

        Errors:
            RefusedError: the program ends in an error.
            UndefinedError: it does what nothing promises anything about, or does not end.
        """
        machine = Machine()
        with np.errstate(all="ignore"):
            self._function(machine, *arguments)
        return machine.semantics
