"""Loads relocatable objects (ELF, x86-64) into this process, without llvmlite.

Concatenated objects are loaded as one, and see each other's functions and variables.

Pages with code and constants are read-only, and pages with variables are not executable. The memory
is unmapped when its `LoadedObject` is no longer used.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from relaxpy.support.dataclass import dataclass

_ELF_HEADER: Final = 64
_WRITE, _ALLOC = 0x1, 0x2
_SYMBOLS, _ADDENDS, _ZEROS = 2, 4, 8
_ABSOLUTE, _RELATIVE_64 = 1, 24
_RELATIVE, _CALL = 2, 4
_TABLE = frozenset((9, 41, 42))
#: A jump to the address in the 8 bytes that follow the padding.
_JUMP: Final = bytes.fromhex("ff25020000009090")


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


@dataclass(frozen=True, slots=True)
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
    """Objects in memory. Functions that none of them defines are those of libc.

    Errors:
        ValueError: the object is of another format, or has a relocation that is not supported.
        OSError: the memory cannot be protected.
    """

    def __init__(self, code: bytes) -> None:
        if not is_loadable(code):
            raise ValueError("expected a relocatable ELF object for x86-64")
        self._code = code
        self._sections: list[_Section] = []
        self._symbols: list[_Symbol] = []
        relocations: list[_Relocation] = []
        start = 0
        while start < len(code):
            start = self._read(start, relocations)
        places, slots, fixed, end = self._layout(relocations)
        # A forked child has its own variables.
        self._memory = mmap.mmap(-1, end, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
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
        libc, defined = ctypes.CDLL(None), self._by_name()
        for symbol in {r.symbol for r in relocations} - self._addresses.keys():
            self._addresses[symbol] = defined.get(symbol.name) or _address(libc, symbol.name)
        for symbol, slot in slots.items():
            self._memory[slot : slot + 16] = _JUMP + struct.pack("<Q", self._addresses[symbol])
        for relocation in relocations:
            self._relocate(relocation, places, slots)
        protect = libc.mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if protect(self._base, fixed, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError("the memory of native code cannot be made executable")

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
        far = dict.fromkeys(r.symbol for r in relocations if _is_far(r))
        slots = {symbol: start + 16 * n for n, symbol in enumerate(far)}
        fixed = _rounded(start + 16 * len(slots) + 1, mmap.PAGESIZE)
        return places, slots, fixed, after(fixed, _ALLOC | _WRITE)

    def _relocate(
        self, relocation: _Relocation, places: Mapping[int, int], slots: Mapping[_Symbol, int]
    ) -> None:
        at = places[relocation.section] + relocation.offset
        target = self._addresses[relocation.symbol]
        if relocation.type in _TABLE:
            target = self._base + slots[relocation.symbol] + 8
        elif _is_far(relocation):
            target = self._base + slots[relocation.symbol]
        value = target + relocation.addend
        if relocation.type == _ABSOLUTE:
            struct.pack_into("<Q", self._memory, at, value)
        elif relocation.type == _RELATIVE_64:
            struct.pack_into("<q", self._memory, at, value - self._base - at)
        elif relocation.type in {_RELATIVE, _CALL, *_TABLE}:
            struct.pack_into("<i", self._memory, at, value - self._base - at)
        else:
            raise ValueError(f"relocation {relocation.type} is not supported")


def is_loadable(code: bytes) -> bool:
    """Return whether `code` is a sequence of relocatable ELF objects for x86-64."""
    start = 0
    while len(code) - start >= _ELF_HEADER:
        is_elf = code[start : start + 6] == b"\x7fELF\x02\x01"
        if not is_elf or struct.unpack_from("<HH", code, start + 16) != (1, 62):
            return False
        start = _end(code, start)
    return start == len(code) > 0


def _end(code: bytes, start: int) -> int:
    """The position after the object at `start`: LLVM writes the section table last."""
    table: int
    size: int
    count: int
    (table,) = struct.unpack_from("<Q", code, start + 0x28)
    size, count = struct.unpack_from("<HH", code, start + 0x3A)
    return start + table + size * count


def _is_far(relocation: _Relocation) -> bool:
    """Return whether a symbol is reached through a slot, as its address may exceed 32 bits."""
    return relocation.type in _TABLE or (relocation.type == _CALL and not relocation.symbol.section)


def _address(libc: ctypes.CDLL, name: str) -> int:
    try:
        function = getattr(libc, name)
    except AttributeError:
        raise ValueError(f"there is no function {name!r} in this process") from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
