"""Products in the matrix tiles of x86-64 (AMX): 16 rows by 16 columns in one instruction.

Tiles read the copies that the dot products of `dots.py` read: rows of the first operand, and joined
rows of the second one, with adjacent elements of each group: four of int8, or two of
bfloat16. Sums are kept in memory between tiles.

Those of bfloat16 are rounded otherwise than elsewhere. An instruction adds the products of the even
elements of up to 16 groups, those of the odd ones, both sums, and then the result to the sum in the
tile; subnormal numbers are zeros, as operands and as sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Final

from relaxpy.exec.native.contraction.dots import Dots
from relaxpy.exec.native.contraction.geometry import RegisterTile
from relaxpy.exec.native.contraction.operands import Size
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I8, I64, POINTER, VOID, Function, Type, Value
from relaxpy.exec.native.machine_code.loader import TILES

SIZE: Final = RegisterTile(16, 2, 16)
"""The sums of two tiles: eight have room for these, their operands, and those of the last step."""
_GROUPS: Final = 16
"""The groups of products that an instruction adds to each sum, at most."""
_BYTES: Final = 4
"""The bytes of a group, and of a sum."""
_TILE: Final = Type("x86_amx")


def add_products(
    f: Function,
    dots: Dots,
    shape: tuple[int, Sequence[int]],
    sums: Value,
    a: tuple[Value, int],
    b: tuple[Value, int],
    groups: Size,
) -> None:
    """Add the products of `groups` joined rows to sums in memory, whose rows are adjacent.

    `shape` is the number of rows, and the lanes of each vector of columns. Operands have a pitch in
    groups.
    """
    rows, lanes = shape
    name = f"{TILES}{dots.instruction}.{rows}.{'.'.join(map(str, lanes))}"
    if name not in f.module.functions:
        _define(f.module, name, dots.instruction, rows, lanes)
    (first, pitch), (second, width) = a, b
    strides = f.const(I64, _BYTES * pitch), f.const(I64, _BYTES * width)
    f.call(name, VOID, sums, first, strides[0], second, strides[1], f.index(groups))


def _define(module: Module, name: str, instruction: str, rows: int, lanes: Sequence[int]) -> None:
    """Define the function that adds products; its strides are bytes."""
    operands = {"sums": POINTER, "a": POINTER, "pitch": I64, "b": POINTER, "width": I64}
    params = [(type, n) for n, type in (operands | {"groups": I64}).items()]
    f = module.function(name, params)
    sums, a, pitch, b, width, groups = f.params
    load, add, keep = (
        f"llvm.x86.{kind}.internal" for kind in ("tileloadd64", instruction, "tilestored64")
    )
    module.declare(load, _TILE, ["i16", "i16", "ptr", "i64"])
    module.declare(add, _TILE, ["i16", "i16", "i16", _TILE, _TILE, _TILE])
    module.declare(keep, VOID, ["i16", "i16", "ptr", "i64", _TILE])
    # LLVM configures all tiles before the first one is read: their shapes are known by then.
    whole = f.arithmetic("and", groups - 1, -_GROUPS)
    rest = f.cast("trunc", groups - whole, "i16")
    rest_bytes = rest * _BYTES
    starts = [0, *accumulate(_BYTES * n for n in lanes)]
    stride = f.const(I64, starts.pop())
    places = [f.element(sums, start, I8) for start in starts]

    def loaded(height: object, width: object, place: Value, stride: Value) -> Value:
        return f.new(_TILE, f"call {_TILE} @{load}(i16 {height}, i16 {width}, {place}, {stride})")

    def added(index: Value, *tiles: Value, height: object, depth: object) -> list[Value]:
        first = loaded(rows, depth, f.element(a, index * _BYTES, I8), pitch)
        there = f.element(b, index * width, I8)
        results = []
        for tile, start, count in zip(tiles, starts, lanes, strict=True):
            second = loaded(height, _BYTES * count, f.element(there, start, I8), width)
            shape = f"i16 {rows}, i16 {_BYTES * count}, i16 {depth}"
            text = f"call {_TILE} @{add}({shape}, {tile}, {first}, {second})"
            results.append(f.new(_TILE, text))
        return results

    def all_groups() -> None:
        tiles: Sequence[Value] = [
            loaded(rows, _BYTES * n, place, stride) for n, place in zip(lanes, places, strict=True)
        ]
        full = partial(added, height=_GROUPS, depth=_GROUPS * _BYTES)
        tiles = f.loop(0, whole, _GROUPS, tiles, full)
        tiles = added(whole, *tiles, height=rest.name, depth=rest_bytes.name)
        for n, place, tile in zip(lanes, places, tiles, strict=True):
            f.put(f"call void @{keep}(i16 {rows}, i16 {_BYTES * n}, {place}, {stride}, {tile})")

    f.branch(f.compare("sgt", groups, 0), all_groups)
    f.ret()
