"""A model of the matrix tiles of x86-64 (AMX), which runs the text of functions that use them.

It knows the integer instructions that LLVM writes around them, and refuses others. Shapes and
operands are checked as the manual of the processor demands (Intel, volume 2: LDTILECFG, TILELOADD,
TDPBSSD, TDPBF16PS).
"""

import operator
import re
from collections.abc import Callable, Mapping

import numpy as np

_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_PLACE = re.compile(r"^(-?\d*)\((%\w+)?(?:,(%\w+)(?:,(\d))?)?\)$")
_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "and": operator.and_,
    "add": operator.add,
    "sub": operator.sub,
    "imul": operator.mul,
    "shl": operator.lshift,
}
_IGNORED = ("pushq", "popq", "vzeroupper", "nop")
_MASK = (1 << 64) - 1
_WORD = 1 << 63


def _name(register: str) -> str:
    """The register of 64 bits that a part belongs to."""
    name = register.lstrip("%")
    if found := re.fullmatch(r"(r\d+)[bwd]?", name):
        return found[1]
    letters = re.sub(r"^[er]|[lhx]$", "", name) if len(name) < 4 else name
    return {"a": "rax", "b": "rbx", "c": "rcx", "d": "rdx"}.get(
        letters, f"r{letters.removesuffix('l')}"
    )


class Processor:
    """Registers, tiles, and memory that begins at address 0; the stack is its end."""

    def __init__(self, memory: bytearray) -> None:
        self.memory = memory
        self.registers: dict[str, int] = {"rsp": len(memory)}
        self.tiles: dict[int, np.ndarray] = {}
        self.shapes: dict[int, tuple[int, int]] = {}
        self.products = 0
        self._compared = 0

    def run(self, text: str, *arguments: int) -> None:
        """Run the instructions of a function of integers."""
        self.registers.update(zip(_ARGUMENTS, arguments, strict=False))
        lines = [line.split("#")[0].strip() for line in text.splitlines()]
        lines = [line for line in lines if line.endswith(":") or line[:1].isalpha()]
        labels = {line[:-1]: n for n, line in enumerate(lines) if line.endswith(":")}
        at = 0
        while lines[at] != "retq":
            line = lines[at]
            at += 1
            if line.endswith(":") and line[:-1] in labels:
                continue
            word, _, rest = line.partition("\t")
            operands = re.findall(r"(?:[^,(]|\([^)]*\))+", rest)
            taken = self._step(word, [x.strip() for x in operands], labels)
            at = at if taken is None else taken
        assert not self.shapes, "the tiles are released"

    def _step(self, word: str, operands: list[str], labels: Mapping[str, int]) -> int | None:
        read, bits = self._read, {"b": 8, "w": 16, "l": 32, "q": 64}.get(word[-1], 64)
        match word:
            case "vxorps":
                assert operands == ["%xmm0"] * 3
            case "vmovups":
                assert operands[0] == "%zmm0"
                self._write_bytes(self._place(operands[1]), bytes(64))
            case "movb" | "movw" | "movl" | "movq":
                self._write(operands[1], read(operands[0], bits), bits)
            case "leaq" | "leal":
                self._write(operands[1], self._place(operands[0]), bits)
            case "xorl" if operands[0] == operands[1]:
                self._write(operands[1], 0, 32)
            case "andq" | "andl" | "addq" | "addl" | "subq" | "subl" | "imulq" | "shll" | "shlq":
                a, b = read(operands[1], bits), read(operands[0], bits)
                self._write(operands[1], _OPERATIONS[word[:-1]](a, b), bits)
            case "testq":
                assert operands[0] == operands[1]
                self._compared = _signed(read(operands[0], 64))
            case "cmpq":
                self._compared = _signed(read(operands[1], 64)) - _signed(read(operands[0], 64))
            case "jle" | "jl" | "jge" | "jg" | "jmp":
                value = self._compared
                holds = {"jle": value <= 0, "jl": value < 0, "jge": value >= 0, "jg": value > 0}
                return labels[operands[0]] if holds.get(word, True) else None
            case "ldtilecfg":
                self._configure(self._place(operands[0]))
            case "tileloadd":
                self._load(operands[0], int(operands[1][-1]))
            case "tilestored":
                self._store(int(operands[0][-1]), operands[1])
            case "tdpbssd" | "tdpbsud" | "tdpbusd" | "tdpbuud" | "tdpbf16ps":
                second, first, sums = (int(x[-1]) for x in operands)
                self._multiply(word, sums, first, second)
            case "tilerelease":
                self.shapes, self.tiles = {}, {}
            case _:
                assert word in _IGNORED, f"the model does not know {word}"
        return None

    def _place(self, text: str) -> int:
        found = _PLACE.match(text)
        assert found is not None, text
        offset, base, index, scale = found.groups()
        total = int(offset or 0) + (self.registers[_name(base)] if base else 0)
        return total + (self.registers[_name(index)] * int(scale or 1) if index else 0) & _MASK

    def _read(self, text: str, bits: int) -> int:
        if text[0] == "$":
            return int(text[1:]) & _MASK
        if text[0] == "%":
            return self.registers[_name(text)] & (1 << bits) - 1
        place = self._place(text)
        return int.from_bytes(self.memory[place : place + bits // 8], "little")

    def _write(self, text: str, value: int, bits: int) -> None:
        value &= (1 << bits) - 1
        if text[0] != "%":
            self._write_bytes(self._place(text), value.to_bytes(bits // 8, "little"))
            return
        old = self.registers.get(_name(text), 0)
        kept = old >> bits << bits if bits < 32 else 0
        self.registers[_name(text)] = kept | value

    def _write_bytes(self, place: int, content: bytes) -> None:
        assert place + len(content) <= len(self.memory)
        self.memory[place : place + len(content)] = content

    def _configure(self, place: int) -> None:
        table = bytes(self.memory[place : place + 64])
        assert table[0] == 1, "the only palette"
        assert table[1:16] == bytes(15)
        assert table[32:48] == bytes(16)
        assert table[56:64] == bytes(8)
        self.shapes, self.tiles = {}, {}
        for n in range(8):
            rows, width = table[48 + n], int.from_bytes(table[16 + 2 * n : 18 + 2 * n], "little")
            assert rows <= 16
            assert width <= 64
            assert (rows == 0) == (width == 0), "both or none"
            if rows:
                self.shapes[n] = rows, width
                self.tiles[n] = np.zeros((rows, width), np.uint8)

    def _strided(self, text: str) -> tuple[int, int]:
        found = _PLACE.match(text)
        assert found is not None
        stride = self.registers[_name(found[3])] * int(found[4] or 1)
        return self._place(text) - stride & _MASK, stride

    def _load(self, text: str, tile: int) -> None:
        (rows, width), (start, stride) = self.shapes[tile], self._strided(text)
        for r in range(rows):
            place = start + r * stride
            assert place + width <= len(self.memory)
            row = self.memory[place : place + width]
            self.tiles[tile][r] = np.frombuffer(bytes(row), np.uint8)

    def _store(self, tile: int, text: str) -> None:
        start, stride = self._strided(text)
        for r, row in enumerate(self.tiles[tile]):
            self._write_bytes(start + r * stride, row.tobytes())

    def _multiply(self, word: str, sums: int, first: int, second: int) -> None:
        (m, n), (rows, depth), (groups, width) = (self.shapes[t] for t in (sums, first, second))
        assert (rows, width, groups * 4) == (m, n, depth)
        assert len({sums, first, second}) == 3
        self.products += 1
        if word == "tdpbf16ps":
            left, right = (_floats(self.tiles[n]) for n in (first, second))
            found = self.tiles[sums].view(np.float32)
            by_parity = np.zeros((2, m, n // 4), np.float32)
            for k in range(groups):
                for parity, sum_ in enumerate(by_parity):
                    column, row = left[:, 2 * k + parity], right[k, parity::2]
                    exact = np.multiply.outer(column.astype("f8"), row) + sum_
                    sum_[...] = _flushed(exact.astype(np.float32))
            found[...] = _flushed(_flushed(found) + _flushed(by_parity[0] + by_parity[1]))
            return
        kinds = [np.int8 if kind == "s" else np.uint8 for kind in word[4:6]]
        a = self.tiles[first].view(kinds[0]).astype(np.int32)
        b = self.tiles[second].view(kinds[1]).astype(np.int32).reshape(groups, n // 4, 4)
        total = self.tiles[sums].copy().view(np.int32)
        total += np.einsum("mgk,gnk->mn", a.reshape(m, groups, 4), b)
        self.tiles[sums] = total.view(np.uint8)


def _floats(tile: np.ndarray) -> np.ndarray:
    """The elements of a tile of bfloat16."""
    return _flushed((tile.view(np.uint16).astype(np.uint32) << 16).view(np.float32))


def _flushed(values: np.ndarray) -> np.ndarray:
    """The values, with 0 for subnormal numbers."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, values * 0, values)


def _signed(value: int) -> int:
    return value - (1 << 64) if value & _WORD else value
