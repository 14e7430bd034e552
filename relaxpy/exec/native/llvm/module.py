"""Modules of LLVM IR, which become object files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from relaxpy.exec.native.llvm.function import VOID, Function, Type

_DEFINED = re.compile(r"^(?:define .*?)?@([\w.]+)(?: =|\()", re.MULTILINE)
"""The names that a text defines."""
_FEW = 64
"""The number of values of functions from which on they are compiled by themselves."""


class Module:
    """Functions and constants that become one object file.

    `vector_bits` is the width of vector registers that the code generator may use, and
    `has_byte_dots` whether x86-64 has the instruction for sums of products of bytes.
    """

    def __init__(self, triple: str, vector_bits: int, *, has_byte_dots: bool = False) -> None:
        self.triple, self.vector_bits, self.has_byte_dots = triple, vector_bits, has_byte_dots
        self.functions: dict[str, Function] = {}
        self._declarations: dict[str, str] = {}
        self._variables: dict[str, str] = {}
        self._texts: list[str] = []

    @property
    def has_avx512(self) -> bool:
        """Whether the code is for an x86-64 processor with vectors of 512 bits."""
        return self.vector_bits == 512 and self.triple.startswith("x86_64")

    def copy(self) -> Module:
        """A module with the same functions so far, to return to."""
        other = Module(self.triple, self.vector_bits, has_byte_dots=self.has_byte_dots)
        other.functions = dict(self.functions)
        other._declarations, other._texts = dict(self._declarations), list(self._texts)
        other._variables = dict(self._variables)
        return other

    def function(
        self,
        name: str,
        params: Sequence[tuple[Type, str]],
        result: Type = VOID,
        *,
        optimised: bool = True,
    ) -> Function:
        """A new function with the named parameters, whose first block is open."""
        function = Function(self, name, params, result, optimised=optimised)
        self.functions[name] = function
        return function

    def declare(self, name: str, result: Type, params: Iterable[str | Type]) -> None:
        """Declare a function that is defined elsewhere."""
        if name not in self._declarations and name not in self.functions:
            self._declarations[name] = f"declare {result} @{name}({', '.join(map(str, params))})"

    def words(self, name: str, count: int) -> None:
        """Add a variable of `count` words of 64 bits, which are zero at first."""
        self._variables[name] = f"@{name} = global [{count} x i64] zeroinitializer"

    def add_text(self, text: str) -> None:
        """Add definitions that are already text, before all functions."""
        if text not in self._texts:
            self._texts.append(text)

    def text(self) -> str:
        """The module as LLVM IR."""
        declared = (d for n, d in self._declarations.items() if n not in self.functions)
        attributes = f'nounwind "prefer-vector-width"="{self.vector_bits}"'
        return "\n".join(
            [
                f'target triple = "{self.triple}"',
                *self._variables.values(),
                *self._texts,
                *declared,
                *(f.text() for f in self.functions.values()),
                f"attributes #0 = {{ {attributes} }}",
                "",
            ]
        )

    def parts(self) -> tuple[Module, Module]:
        """The module in two parts, of which the second has the functions that need not be fast.

        It has none if they are short: a second part takes as long as a function of some length.
        """
        if sum(len(f) for f in self.functions.values() if not f.is_optimised) < _FEW:
            return self.copy(), Module(self.triple, self.vector_bits)
        defined = [f"@{name}" for text in self._texts for name in _DEFINED.findall(text)]
        fast, slow = self.copy(), Module(self.triple, self.vector_bits)
        for name, function in self.functions.items():
            if not function.is_optimised and not function.mentions(defined):
                slow.functions[name] = fast.functions.pop(name)
        for part, other in ((fast, slow), (slow, fast)):
            heads = {name: f.head("declare") for name, f in other.functions.items()}
            part._declarations = self._declarations | heads
        for name, text in self._variables.items():
            slow._variables[name] = text.replace("global", "external global").rpartition(" ")[0]
        return fast, slow
