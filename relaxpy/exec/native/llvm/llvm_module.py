"""Modules of LLVM IR, which become object files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from relaxpy.exec.machine.platforms import Platform, platform_of_triple
from relaxpy.exec.machine.tuning import CodeSize
from relaxpy.exec.native.llvm.typed_values import Signature
from relaxpy.exec.native.llvm.writer import VOID, Function, Type

_DEFINED = re.compile(r"^(?:define .*?)?@([\w.]+)(?: =|\()", re.MULTILINE)
"""The names that a text defines."""
_USED = re.compile(r"@([\w.]+)")
"""The names that a text uses or defines."""


class Module:
    """Functions and constants that become one object file.

    `vector_bits` is the width of vector registers that the code generator may use, and
    `instructions` are those of `Machine.instructions`. A product and a sum are rounded once if the
    module `fuses` them. One that `is_exported` knows no Python: its functions take their memory and
    their context as arguments, and only those that callers call have names outside.
    """

    def __init__(
        self,
        triple: str,
        vector_bits: int,
        instructions: Collection[str] = frozenset(),
        *,
        fuses: bool = True,
        is_exported: bool = False,
    ) -> None:
        self.triple, self.vector_bits, self.instructions = triple, vector_bits, instructions
        self.fuses, self.is_exported = fuses, is_exported
        self.functions: dict[str, Function] = {}
        self._declarations: dict[str, str] = {}
        self._signatures: dict[str, Signature] = {}
        """Those of the functions that are defined or called."""
        self._variables: dict[str, int] = {}
        self._has_variables = True
        self._texts: list[str] = []

    @property
    def platform(self) -> Platform:
        """The platform that the code is for."""
        platform = platform_of_triple(self.triple)
        assert platform is not None
        return platform

    @property
    def has_avx512(self) -> bool:
        """True if the code is for an x86-64 CPU with 512-bit vectors."""
        return self.vector_bits == 512

    @property
    def vector_registers(self) -> int:
        """The number of vector registers, but for one that products take if they are not fused."""
        if self.has_avx512:
            return 32
        kind = self.platform.architecture
        return kind.vector_registers - int(bool(kind.fusing) and not self.fuses)

    def _empty(self) -> Module:
        return Module(
            *(self.triple, self.vector_bits, self.instructions),
            fuses=self.fuses,
            is_exported=self.is_exported,
        )

    def copy(self) -> Module:
        """A copy of the module, as a checkpoint."""
        other = self._empty()
        other.functions = dict(self.functions)
        other._declarations, other._texts = dict(self._declarations), list(self._texts)
        other._variables, other._has_variables = dict(self._variables), self._has_variables
        other._signatures = dict(self._signatures)
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
        self.require(name, Signature(result, tuple(type for type, _ in params)))
        function = Function(self, name, params, result, optimised=optimised)
        self.functions[name] = function
        return function

    def rename(self, names: Iterable[str], old: str, new: str) -> list[str]:
        """Replace the start `old` of names in closed functions; the names that they have now.

        Those whose new names are known are equal to known ones, which remain.
        """
        functions = [self.functions.pop(name) for name in names]
        for function in functions:
            signature = self._signatures.pop(function.name)
            function.rename(old, new)
            self.require(function.name, signature)
            self.functions.setdefault(function.name, function)
        return [function.name for function in functions]

    def declare(self, name: str, result: Type, params: Iterable[str | Type]) -> None:
        """Declare a function that is defined elsewhere."""
        if name not in self._declarations and name not in self.functions:
            self._declarations[name] = f"declare {result} @{name}({', '.join(map(str, params))})"

    def require(self, name: str, signature: Signature) -> None:
        """Require that all definitions and calls of a function have one signature.

        LLVM does not check calls of functions that are defined elsewhere or called by address: a
        mismatch would read uninitialised registers and memory.

        Errors:
            AssertionError: another signature was required before, an internal error.
        """
        known = self._signatures.setdefault(name, signature)
        if known != signature:
            raise AssertionError(f"{name} is {known}, and is used as {signature}")

    def words(self, name: str, count: int) -> None:
        """Add a zero-initialised variable of `count` words of 64 bits."""
        self._variables[name] = count

    def add_text(self, text: str) -> None:
        """Add definitions that are already text, before all functions."""
        if text not in self._texts:
            self._texts.append(text)

    def text(self) -> str:
        """The module as LLVM IR."""
        declared = (d for n, d in self._declarations.items() if n not in self.functions)
        kind, value = "", " zeroinitializer"
        if not self._has_variables:
            kind, value = "external ", ""
        attributes = f'nounwind "prefer-vector-width"="{self.vector_bits}"'
        if self.platform.attributes:
            attributes = f"{attributes} {self.platform.attributes}"
        return "\n".join(
            [
                f'target triple = "{self.triple}"',
                *(f"@{n} = {kind}global [{c} x i64]{value}" for n, c in self._variables.items()),
                *self._texts,
                *declared,
                *(f.text() for f in self.functions.values()),
                f"attributes #0 = {{ {attributes} }}",
                "",
            ]
        )

    def part(self, names: Sequence[str], *, has_variables: bool = False) -> Module:
        """The functions `names`, with copies of the texts that they mention.

        Variables are those of another part, unless it `has_variables`. Equal functions are equal
        parts of all modules.
        """
        part = self._empty()
        part.functions = {name: self.functions[name] for name in names}
        used = {used for f in part.functions.values() for used in _USED.findall(f.text())}
        for text in reversed(self._texts):
            if not used.isdisjoint(_DEFINED.findall(text)):
                part._texts.append(text)
                used.update(_USED.findall(text))
        part._texts.sort()
        for name in sorted(used):
            if name in self._declarations:
                part._declarations[name] = self._declarations[name]
            if name in self.functions and name not in part.functions:
                part._declarations[name] = self.functions[name].head("declare")
        part._has_variables = has_variables
        for name, count in sorted(self._variables.items()):
            if has_variables or name in used:
                part._variables[name] = count
        return part

    def parts(self, names: Iterable[str], *, has_variables: bool = True) -> tuple[Module, Module]:
        """The functions `names` in two parts; the last one may have the variables.

        The second has the functions that need not be fast. It has none if they are short: a second
        part takes as long as a function of some length.
        """
        chosen = list(names)
        slow = {name for name in chosen if not self.functions[name].is_optimised}
        if sum(len(self.functions[name]) for name in slow) < CodeSize.FEW:
            slow = set()
        fast, rest = ([n for n in chosen if (n in slow) == is_slow] for is_slow in (False, True))
        return (
            self.part(fast, has_variables=has_variables and not slow),
            self.part(rest, has_variables=has_variables),
        )
