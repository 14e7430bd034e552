"""Tables of 8 numbers of `float` in registers, from which one instruction selects in all lanes."""

from __future__ import annotations

from typing import TypeAlias

from relaxpy.exec.native.llvm.function import F32, POINTER, Type, Value
from relaxpy.exec.native.llvm.literals import literal
from relaxpy.exec.native.maths.numbers import both

Table: TypeAlias = tuple[tuple[float, ...], ...]
"""Rows of 8 numbers."""


def selected(name: str, table: Table, positions: Value) -> list[Value]:
    """The values of all rows of a table, in each lane, whose numbers are `positions` modulo 8."""
    f, lanes = positions.function, positions.type.lanes
    by_bytes = f.module.platform.architecture.lookup == "tbl"
    if lanes == 1:
        symbol = f"relaxpy.{name}.table"
        rows = ", ".join(f"[8 x float] [{_listed(row)}]" for row in table)
        type = f"[{len(table)} x [8 x float]]"
        f.module.add_text(f"@{symbol} = internal constant {type} [{rows}]")
        start = both(positions, 7)
        here = Value(f, POINTER, f"@{symbol}")
        return [f.gather(F32, here, start + 8 * row) for row in range(len(table))]
    width = 4 if by_bytes else 16 if f.module.has_avx512 else 8
    if lanes < width:
        whole = f.shuffle(positions, None, [min(n, lanes - 1) for n in range(width)])
        return [f.shuffle(v, None, range(lanes)) for v in selected(name, table, whole)]
    if lanes > width:
        halves = (range(lanes // 2), range(lanes // 2, lanes))
        low, high = (selected(name, table, f.shuffle(positions, None, half)) for half in halves)
        return [f.shuffle(a, b, range(lanes)) for a, b in zip(low, high, strict=True)]
    if by_bytes:
        words = both(positions, 7) * 0x04040404 + 0x03020100  # the four bytes of each number
        chosen = f.computed(Type("i8", 16), f"bitcast {words} to {Type('i8', 16)}")
        return [_looked_up(row, chosen) for row in table]
    return [_permuted(row, positions) for row in table]


def _looked_up(row: tuple[float, ...], chosen: Value) -> Value:
    """The elements of 8 whose bytes the lanes of a register select."""
    f, type = chosen.function, chosen.type
    halves = [
        f.computed(type, f"bitcast <4 x float> <{_listed(half)}> to {type}")
        for half in (row[:4], row[4:])
    ]
    found = f.call("llvm.aarch64.neon.tbl2.v16i8", type, *halves, chosen)
    return f.computed(Type("float", 4), f"bitcast {found} to {Type('float', 4)}")


def _permuted(row: tuple[float, ...], positions: Value) -> Value:
    """The elements of 8 that the lanes of a register select."""
    f, index = positions.function, positions.type
    type = index.of("float")
    instruction = "avx512.permvar.sf.512" if index.lanes == 16 else "avx2.permps"
    symbol = f"llvm.x86.{instruction}"
    f.module.declare(symbol, type, [type, index])
    numbers = _listed(row * (index.lanes // len(row)))
    return f.computed(type, f"call {type} @{symbol}({type} <{numbers}>, {positions})")


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"float {literal('float', value)}" for value in values)
