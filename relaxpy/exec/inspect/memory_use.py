"""The memory that a call of a function takes, as a formula in its symbolic sizes.

The program is lowered once more for it (`live_memory.py` reads the result), so that nothing is
stored for it, and loaded programs also have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, check_type, close_names
from relaxpy.exec.api.lowered import dynamic_programs, new_backend
from relaxpy.exec.inspect.live_memory import MemoryReader
from relaxpy.exec.inspect.memory_values import size_of_blocks
from relaxpy.exec.machine.tuning import Kept
from relaxpy.exec.program.graph.program import Constant
from relaxpy.exec.program.lower.python_module import lower_module
from relaxpy.exec.runtime.checks import public_signatures
from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked
from relaxpy.ir.arith.algebra.affine import IndexPoly
from relaxpy.ir.core.target import target_facts
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import ShownAsTable, Table

if TYPE_CHECKING:
    from relaxpy.exec.api.executable import EntryPoint


@dataclass(frozen=True, slots=True, repr=False)
class MemoryUse(ShownAsTable):
    """The memory that a call of a function takes at most, besides its arguments.

    An amount that is unknown before a call, such as that of packed functions, is a variable of the
    formula whose name begins with `bytes_of_`.

    Fields:
        weights: the constants of the function, with packed copies; they stay in memory.
        peak: the largest sum at any time of what follows.
        results: the new arrays that the call returns.
        workspace: other tensors, and the memory of kernels with all their threads.
        per_thread: what each of the `threads` has of it.
    Units:
        bytes
    """

    function: str
    weights: int
    peak: IndexPoly
    results: IndexPoly
    workspace: IndexPoly
    per_thread: IndexPoly
    threads: int

    @property
    def formula(self) -> str:
        """The bytes that a call takes at most, besides weights, as an expression of sizes."""
        return _text(self.peak)

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the sizes in the formula."""
        return tuple(sorted({var.name for var in self._variables}))

    @property
    def _variables(self) -> list[tir.Var]:
        return [node for node in walk(self.peak.expr()) if isinstance(node, tir.Var)]

    @user_facing
    def bytes(self, **sizes: int) -> int:
        """The value of the formula for these sizes.

        Errors:
            UnknownNameError (also KeyError, ValueError): the formula has no such size.
            MisuseError (also TypeError, ValueError): sizes are missing, or are not integers from 0.
        """
        known = self.sizes
        missing = [name for name in known if name not in sizes]
        others = [name for name in sizes if name not in known]
        listed = f"the memory of {self.function} depends on {', '.join(known) or 'no size'}"
        hint = f"write bytes({', '.join(f'{name}=...' for name in known)})"
        if others:
            raise UnknownNameError(
                f"{listed}, found {', '.join(others)}",
                hint=close_names(others[0], known) or hint,
                about=others[0],
            )
        if missing:
            raise MisuseError(f"{listed}; missing: {', '.join(missing)}", hint=hint)
        for name, size in sizes.items():
            check_type(size, int, f"the size {name} is an integer")
            if size < 0:
                raise MisuseError(f"the size {name} is at least 0, found {size}", about=size)
        values = {var: sizes[var.name] for var in self._variables}
        return int(ScalarEvaluator(values, checked).value(self.peak.expr()))

    @property
    @override
    def _table(self) -> Table:
        rows = (
            ("weights", "as long as the program is there", str(self.weights)),
            ("results", "", _text(self.results)),
            ("workspace", "", _text(self.workspace)),
            ("", f"of it, each of {self.threads} threads", _text(self.per_thread)),
            ("a call at most", "besides weights", self.formula),
        )
        return Table((f"memory of {self.function}", "", "bytes"), rows, text_columns=3, totals=1)


def _text(size: IndexPoly) -> str:
    """A size as arithmetic of Python."""
    return _written(size.expr())


_OPERATORS: Final = {tir.Mul: "*", tir.FloorDiv: "//", tir.FloorMod: "%"}


def _written(expr: tir.PrimExpr) -> str:
    match expr:
        case tir.Max() | tir.Min():
            kind, operands = type(expr), [expr.a, expr.b]
            for operand in operands:  # the list grows meanwhile
                if isinstance(operand, kind):
                    operands += [operand.a, operand.b]
            written = [_written(each) for each in operands if not isinstance(each, kind)]
            return f"{kind.__name__.lower()}({', '.join(written)})"
        case tir.Add(a=a, b=b):
            return f"{_written(a)} + {_written(b)}"
        case tir.Sub(a=a, b=b):
            return f"{_written(a)} - {_factor(b)}"
        case tir.Mul(a=a, b=b) | tir.FloorDiv(a=a, b=b) | tir.FloorMod(a=a, b=b):
            return f"{_factor(a)}{_OPERATORS[type(expr)]}{_factor(b)}"
        case tir.Cast(value=value):
            return _written(value)
        case _:
            return str(expr.value) if isinstance(expr, tir.IntImm) else str(expr)


def _factor(expr: tir.PrimExpr) -> str:
    is_sum = isinstance(expr, tir.Add | tir.Sub | tir.FloorDiv | tir.FloorMod)
    return f"({_written(expr)})" if is_sum else _written(expr)


def memory_use(entry: EntryPoint) -> MemoryUse:
    """The memory of a function of an executable.

    Errors:
        MisuseError: the reference evaluator runs the program.
    """
    program, symbol = entry.program, entry.signature.name
    if target_facts(program.target).runs_as_written:
        raise MisuseError(
            "the reference evaluator has no plan of its memory",
            hint='compile for target="numpy" or "native"',
        )
    make = new_backend(program.target, program.schedules)
    lowered = lower_module(program.module, make, dynamic_programs(make))
    reader = MemoryReader(lowered.lowering, lowered.backend.native)
    results = reader.read(public_signatures(program.module)[symbol][0])
    return MemoryUse(
        symbol,
        _weights(reader.weights.values()),
        *(reader.peak, size_of_blocks(results), reader.others(results), reader.per_thread),
        reader.threads,
    )


def _weights(constants: Iterable[Constant]) -> int:
    """The bytes of constants; large ones are dropped when all their uses are packed copies."""
    constants = list(constants)
    packed = {c.literal: c for c in constants if c.packing is not None}
    unpacked = {c.literal for c in constants if c.packing is None}
    is_large = sum(c.literal.nbytes for c in packed.values()) >= Kept.PACKED_LAZILY
    total = sum(literal.nbytes for literal in unpacked)
    for constant in constants:
        if constant.packing is not None:
            total += constant.packing.nbytes(constant.literal.elements.dtype.itemsize)
            if constant.literal not in unpacked and not is_large:
                total += constant.literal.nbytes
    return total
