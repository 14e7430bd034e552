"""Loads relocatable objects (ELF; x86-64 and AArch64) into this process, without llvmlite.

Concatenated objects are loaded as one, and see each other's functions and variables.

Pages with code and constants are read-only, and pages with variables are not executable. The memory
is unmapped when its `LoadedObject` is no longer used.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from relaxpy.exec.machine.platforms import AARCH64, WASM32, X86_64, Architecture
from relaxpy.exec.machine.process import own_platform, process
from relaxpy.support.dataclass import dataclass

TILES: Final = "relaxpy.tiles."
"""The names of functions that use matrix tiles begin with it: the system has to permit them."""
_ELF_HEADER: Final = 64
_WRITE, _ALLOC = 0x1, 0x2
_SYMBOLS, _ADDENDS, _ZEROS = 2, 4, 8

_Patch: TypeAlias = Callable[[memoryview, int, int, int, int], None]
"""Writes a relocation of a type: the memory, the position there, the type, the value, its place."""


@dataclass(frozen=True, slots=True)
class _Processor:
    """The objects of a CPU.

    Fields:
        number: its number in ELF.
        jump: 8 bytes of code that jump to the address in the 8 bytes that follow.
        table: the types of relocations that refer to the address of a symbol in memory.
        calls: those of calls, which reach functions nearby only.
        patch: writes the other relocations, and these with the address that they refer to.
    """

    number: int
    jump: bytes
    table: frozenset[int]
    calls: frozenset[int]
    patch: _Patch


def _patch_x86_64(memory: memoryview, at: int, type: int, value: int, place: int) -> None:
    if type == 1:
        struct.pack_into("<Q", memory, at, value)
    elif type == 24:
        struct.pack_into("<q", memory, at, value - place)
    elif type in {2, 4, 9, 41, 42}:
        struct.pack_into("<i", memory, at, value - place)
    else:
        raise ValueError(f"relocation {type} is not supported")


_LOW_BITS: Final = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, 312: 3}
"""The relocations for the lower 12 bits of an address, and the bits by which they are shifted."""


def _patch_aarch64(memory: memoryview, at: int, type: int, value: int, place: int) -> None:
    word: int
    if type == 257:
        struct.pack_into("<Q", memory, at, value)
    elif type == 260:
        struct.pack_into("<q", memory, at, value - place)
    elif type == 261:
        struct.pack_into("<i", memory, at, value - place)
    else:
        (word,) = struct.unpack_from("<I", memory, at)
        if type in {282, 283}:  # jumps and calls
            word |= (value - place >> 2) & 0x3FFFFFF
        elif type in {275, 311}:  # the distance in pages of 4 KiB
            pages = (value >> 12) - (place >> 12)
            word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
        elif type in _LOW_BITS:
            word |= (value & 0xFFF) >> _LOW_BITS[type] << 10
        else:
            raise ValueError(f"relocation {type} is not supported")
        struct.pack_into("<I", memory, at, word)


_PROCESSORS: Final[Mapping[str, _Processor]] = {
    X86_64.name: _Processor(
        number=62,
        jump=bytes.fromhex("ff25020000009090"),
        table=frozenset((9, 41, 42)),
        calls=frozenset((4,)),
        patch=_patch_x86_64,
    ),
    AARCH64.name: _Processor(
        number=183,
        jump=bytes.fromhex("5000005800021fd6"),
        table=frozenset((311, 312)),
        calls=frozenset((282, 283)),
        patch=_patch_aarch64,
    ),
}


@dataclass(frozen=True, slots=True)
class _Section:
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


@dataclass(frozen=True, slots=True, eq=False)
class _Symbol:
    name: str
    section: int
    value: int


@dataclass(frozen=True, slots=True)
class _Relocation:
    section: int
    offset: int
    type: int
    symbol: _Symbol
    addend: int


class LoadedObject:
    """Objects in memory. Functions that none of them defines are those of this process.

    Those for another machine are not executable there; the functions need not exist here.

    Errors:
        ValueError: the object is of another format, or has a relocation that is not supported.
        OSError: the memory cannot be allocated or protected.
    """

    def __init__(self, code: bytes, other: Architecture | None = None) -> None:
        if not is_loadable(code, other):
            raise ValueError("expected a relocatable ELF object for this CPU")
        architecture = other or own_architecture()
        assert architecture is not None
        self._code, self._processor = code, _PROCESSORS[architecture.name]
        self._sections: list[_Section] = []
        self._symbols: list[_Symbol] = []
        relocations: list[_Relocation] = []
        start = 0
        while start < len(code):
            start = self._read(start, relocations)
        is_tiled = other is None and any(s.name.startswith(TILES) for s in self._symbols)
        if is_tiled and not process().allow_tiles():
            raise OSError("this system does not permit the matrix tiles that the code uses")
        places, slots, fixed, end = self._layout(relocations)
        self._memory, self._base = process().pages(end)
        for index, place in places.items():
            section = self._sections[index]
            if section.type != _ZEROS:
                stored = code[section.offset : section.offset + section.size]
                self._memory[place : place + section.size] = stored
        self._addresses = {
            symbol: self._base + places[symbol.section] + symbol.value
            for symbol in self._symbols
            if symbol.section in places
        }
        defined = self._by_name()
        unknown = {r.symbol for r in relocations} - self._addresses.keys()
        self.undefined = {symbol.name for symbol in unknown} - defined.keys()
        """The functions that the objects call and do not define."""
        for symbol in unknown:
            found = defined.get(symbol.name)
            self._addresses[symbol] = found or (_address(symbol.name) if other is None else 0)
        for symbol, slot in slots.items():
            address = struct.pack("<Q", self._addresses[symbol])
            self._memory[slot : slot + 16] = self._processor.jump + address
        for relocation in relocations:
            self._relocate(relocation, places, slots)
        if other is None:
            process().make_executable(self._base, fixed)

    def addresses(self, names: Collection[str]) -> Mapping[str, int]:
        """The addresses of functions and variables by name. Errors: KeyError if there is none."""
        by_name = self._by_name()
        return {name: by_name[name] for name in names}

    def _by_name(self) -> dict[str, int]:
        return {symbol.name: place for symbol, place in self._addresses.items()}

    def _read(self, start: int, relocations: list[_Relocation]) -> int:
        """Read the object that begins at `start`; the position after it."""
        table: int
        size: int
        count: int
        (table,) = struct.unpack_from("<Q", self._code, start + 0x28)
        size, count = struct.unpack_from("<HH", self._code, start + 0x3A)
        first = len(self._sections)
        for at in range(start + table, start + table + size * count, size):
            name, type, flags, address, offset, *rest = struct.unpack_from(
                "<IIQQQQIIQQ", self._code, at
            )
            self._sections.append(_Section(name, type, flags, address, start + offset, *rest))
        symbols = list(self._read_symbols(first))
        self._symbols += symbols
        relocations += self._read_relocations(first, symbols)
        return _end(self._code, start)

    def _read_symbols(self, first: int) -> Iterator[_Symbol]:
        """The symbols of the object whose sections begin at `first`; section 0 is undefined."""
        for section in self._sections[first:]:
            if section.type == _SYMBOLS:
                names = self._sections[first + section.link].offset
                for at in range(section.offset, section.offset + section.size, 24):
                    name, _, _, home, value, _ = struct.unpack_from("<IBBHQQ", self._code, at)
                    end = self._code.index(b"\0", names + name)
                    text = self._code[names + name : end].decode()
                    yield _Symbol(text, first + home if home else 0, value)

    def _read_relocations(self, first: int, symbols: Sequence[_Symbol]) -> Iterator[_Relocation]:
        for section in self._sections[first:]:
            target = first + section.info
            if section.type == _ADDENDS and self._sections[target].flags & _ALLOC:
                for at in range(section.offset, section.offset + section.size, 24):
                    offset, info, addend = struct.unpack_from("<QQq", self._code, at)
                    yield _Relocation(
                        target, offset, info & 0xFFFFFFFF, symbols[info >> 32], addend
                    )

    def _layout(
        self, relocations: Collection[_Relocation]
    ) -> tuple[dict[int, int], dict[_Symbol, int], int, int]:
        """The addresses of sections and slots, the end of read-only pages, and the end of all."""
        places: dict[int, int] = {}

        def after(end: int, flags: int) -> int:
            for index, section in enumerate(self._sections):
                if section.flags & (_ALLOC | _WRITE) == flags:
                    places[index] = _rounded(end, max(section.align, 1))
                    end = places[index] + section.size
            return end

        start = _rounded(after(0, _ALLOC), 16)
        far = dict.fromkeys(r.symbol for r in relocations if self._is_far(r))
        slots = {symbol: start + 16 * n for n, symbol in enumerate(far)}
        fixed = _rounded(start + 16 * len(slots) + 1, mmap.PAGESIZE)
        return places, slots, fixed, after(fixed, _ALLOC | _WRITE)

    def _relocate(
        self, relocation: _Relocation, places: Mapping[int, int], slots: Mapping[_Symbol, int]
    ) -> None:
        at = places[relocation.section] + relocation.offset
        target = self._addresses[relocation.symbol]
        if relocation.type in self._processor.table:
            target = self._base + slots[relocation.symbol] + 8
        elif self._is_far(relocation):
            target = self._base + slots[relocation.symbol]
        value = target + relocation.addend
        self._processor.patch(self._memory, at, relocation.type, value, self._base + at)

    def _is_far(self, relocation: _Relocation) -> bool:
        """True if a symbol is reached through a slot, as its address may be too far away."""
        is_call = relocation.type in self._processor.calls
        return relocation.type in self._processor.table or (
            is_call and not relocation.symbol.section
        )


def is_loadable(code: bytes, other: Architecture | None = None) -> bool:
    """True if `code` is a sequence of relocatable ELF objects for this CPU.

    It may be for another one instead; that for WebAssembly is a single object of its format.
    """
    architecture = other or own_architecture()
    if architecture is WASM32:
        return code.startswith(b"\0asm")
    start, number = 0, 0 if architecture is None else _PROCESSORS[architecture.name].number
    while len(code) - start >= _ELF_HEADER:
        is_elf = code[start : start + 6] == b"\x7fELF\x02\x01"
        if not is_elf or struct.unpack_from("<HH", code, start + 16) != (1, number):
            return False
        start = _end(code, start)
    return start == len(code) > 0


def own_architecture() -> Architecture | None:
    """The architecture of this process; None if no native code is generated for it."""
    platform = own_platform()
    return None if platform is None else platform.architecture


def _end(code: bytes, start: int) -> int:
    """The position after the object at `start`: LLVM writes the section table last."""
    table: int
    size: int
    count: int
    (table,) = struct.unpack_from("<Q", code, start + 0x28)
    size, count = struct.unpack_from("<HH", code, start + 0x3A)
    return start + table + size * count


def _address(name: str) -> int:
    try:
        return process().address(name)
    except LookupError as error:
        raise ValueError(str(error.args[0])) from None


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
