"""The instructions of a function in LLVM IR on scalars, explicit vectors and memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from relaxpy.exec.machine.platforms import PAGE_BYTES
from relaxpy.exec.machine.tuning import Vectors
from relaxpy.exec.native.llvm.narrow_floats import HALF, narrowed, widened
from relaxpy.exec.native.llvm.typed_values import (
    BOOL,
    I64,
    POINTER,
    VOID,
    Operand,
    Signature,
    Type,
    Value,
    compared,
    folded,
    literal,
    power_of_two_in,
)

if TYPE_CHECKING:
    from relaxpy.exec.native.llvm.llvm_module import Module

Slot: TypeAlias = list["str | Slot"]
"""A position among the instructions of a function, where others can be inserted later."""


class Instructions(ABC):
    """Appends instructions to the open block of a function.

    Pure instructions are not repeated within a block (local CSE), which LLVM would have to find.
    `flags` are the fast-math flags of the floating-point arithmetic that follows. `contract` lets a
    product and a sum become one FMA, the same on every CPU that has it; code of a module that does
    not fuse them has no flags.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.flags = "contract" if module.fuses else ""
        self._lines: Slot = []
        self._known: dict[str, Value] = {}
        self._count = 0
        self._first: dict[str, int | Value] = {}
        """The masks of first lanes and their number, if masked accesses may be unavailable."""

    @abstractmethod
    def _shared(self, words: int) -> Value:
        """The address of `words` words of 64 bits; the next caller may reuse them."""

    def _number(self) -> int:
        self._count += 1
        return self._count

    def put(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self._lines.append(f"  {instruction}")

    def new(self, type: Type, instruction: str) -> Value:
        """Append an instruction, whose result has `type`."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {instruction}")
        return Value(self, type, name)

    def computed(self, type: Type, instruction: str) -> Value:
        """The result of a pure instruction, which a block has only once."""
        known = self._known.get(instruction)
        if known is None:
            known = self._known[instruction] = self.new(type, instruction)
        return known

    def const(self, type: Type, value: float) -> Value:
        """A constant; the same number in all lanes of a vector."""
        if type is I64:
            number = Value(self, type, str(int(value)))
            number.multiple = power_of_two_in(int(value))
            return number
        text = literal(type.element, value)
        return Value(self, type, f"splat ({type.element} {text})" if type.lanes > 1 else text)

    def index(self, value: Operand) -> Value:
        """`value` as a value of i64 if it is a number."""
        return value if isinstance(value, Value) else self.const(I64, value)

    def iota(self, type: Type) -> Value:
        """The numbers 0, 1, 2... in the lanes of a vector."""
        return self.constants(type, range(type.lanes))

    def constants(self, type: Type, numbers: Sequence[float]) -> Value:
        """Numbers in the lanes of a vector of elements of `type`."""
        found = [literal(type.element, n) for n in numbers]
        if len(found) == 1:
            return Value(self, Type(type.element), found[0])
        text = ", ".join(f"{type.element} {n}" for n in found)
        return Value(self, Type(type.element, len(found)), f"<{text}>")

    def like(self, value: Value, other: Operand) -> Value:
        """`other` as an operand beside `value`: numbers become constants, scalars are broadcast."""
        if not isinstance(other, Value):
            return self.const(value.type, other)
        return self.splat(other, value.type.lanes) if other.type.lanes == 1 else other

    def arithmetic(self, name: str, a: Value, b: Operand) -> Value:
        """`add`, `sub`, `mul` or `div` of floats, or an instruction on two integers by its name."""
        b = self.like(a, b)
        if a.type.lanes == 1 < b.type.lanes:
            a = self.splat(a, b.type.lanes)
        if a.type.is_float:
            name = f"f{name} {self.flags}" if self.flags else f"f{name}"
        elif a.type.lanes == 1 and (known := folded(name, a.name, b.name, a.type.bits)) is not None:
            operands = {b.name: b, a.name: a}
            return operands[known] if known in operands else self.const(a.type, int(known))
        result = self.computed(a.type, f"{name} {a}, {b.name}")
        if name in ("add", "sub"):
            result.multiple = min(a.multiple, b.multiple)
        elif name == "mul":
            result.multiple = a.multiple * b.multiple
        return result

    def remainder(self, a: Operand, divisor: int) -> Value:
        """The remainder of a non-negative i64 divided by a positive number."""
        a = self.index(a)
        if a.multiple % divisor == 0:
            return self.const(I64, 0)
        return self.new(I64, f"urem {a}, {divisor}")

    def compare(self, predicate: str, a: Value, b: Operand) -> Value:
        """A comparison by the predicate of `fcmp` or `icmp`, such as `olt` or `slt`."""
        b = self.like(a, b)
        known = compared(predicate, a.name, b.name)
        if known is not None:
            return self.const(BOOL, known)
        kind = "fcmp" if a.type.is_float else "icmp"
        return self.computed(a.type.of("i1"), f"{kind} {predicate} {a}, {b.name}")

    def select(self, condition: Value, yes: Value, no: Operand) -> Value:
        """`yes` where the condition holds, else `no`, in each lane."""
        no = self.like(yes, no)
        if condition.name in ("true", "false"):
            return yes if condition.name == "true" else no
        if condition.type.lanes > 1:
            yes, no = self.splat(yes, condition.type.lanes), self.splat(no, condition.type.lanes)
        result = self.computed(yes.type, f"select {condition}, {yes}, {no}")
        result.multiple = min(yes.multiple, no.multiple)
        return result

    def cast(self, instruction: str, value: Value, element: str) -> Value:
        """A conversion such as `sitofp` or `bitcast`, with the same number of lanes."""
        if not self.module.platform.architecture.has_half:
            if instruction == "fpext" and value.type.element == "half":
                wide = widened(self, self.cast("bitcast", value, "i16"), HALF)
                return wide if element == "float" else self.cast("fpext", wide, element)
            if instruction == "fptrunc" and element == "half":
                assert value.type.element == "float"
                return self.cast("bitcast", narrowed(self, value, HALF), "half")
        type = value.type.of(element)
        return self.computed(type, f"{instruction} {value} to {type}")

    def call(self, name: str, result: Type, *args: Value) -> Value:
        """A call of a function that is in the module or defined elsewhere.

        Errors:
            AssertionError: the function has another signature.
        """
        self.module.require(name, Signature(result, tuple(a.type for a in args)))
        self.module.declare(name, result, [a.type for a in args])
        text = f"call {result} @{name}({', '.join(map(str, args))})"
        if result == VOID:
            self.put(text)
            return Value(self, VOID, "")
        return self.new(result, text)

    def intrinsic(self, name: str, a: Value, *others: Operand) -> Value:
        """An intrinsic whose operands and result have the type of `a`, such as `fma` or `smax`."""
        operands = [a, *(self.like(a, o) for o in others)]
        full = f"llvm.{name}.{a.type.suffix}"
        self.module.declare(full, a.type, [o.type for o in operands])
        result = self.computed(a.type, f"call {a.type} @{full}({', '.join(map(str, operands))})")
        if name in ("smin", "smax"):
            result.multiple = min(o.multiple for o in operands)
        return result

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """`a * b + c`, rounded once if the module fuses products and sums, which is faster then.

        This is the only place that decides how such a pair is written.
        """
        if not self.module.fuses:
            return self.arithmetic("add", self.arithmetic("mul", a, b), c)
        if not (symbol := self.module.platform.architecture.fused):
            return self.intrinsic("fma", a, b, c)
        operands = [self.splat(self.like(a, x), a.type.lanes) for x in (a, b, c)]
        lanes, whole = a.type.lanes, self.module.vector_bits // a.type.bits
        if lanes > whole:
            sides = range(lanes // 2), range(lanes // 2, lanes)
            low, high = (self.fma(*(self.shuffle(x, None, s) for x in operands)) for s in sides)
            return self.shuffle(low, high, range(lanes))
        if lanes < whole:
            wide = [self.wider(x, whole) for x in operands]
            return self.shuffle(self.fma(*wide), None, range(lanes))
        return self.intrinsic(symbol, *operands)

    def wider(self, value: Value, lanes: int) -> Value:
        """A scalar or a vector as the first of more lanes, which repeat its last one."""
        last = value.type.lanes - 1
        if last == 0:
            return self.splat(value, lanes)
        return self.shuffle(value, None, [min(n, last) for n in range(lanes)])

    def fence(self, value: Value) -> Value:
        """`value`, which LLVM does not combine with its uses: what they would give, or how fast."""
        return self.intrinsic("arithmetic.fence", value) if value.type.is_float else value

    # ---- memory

    def barrier(self) -> None:
        """A compiler barrier: memory accesses are not moved across it."""
        self.put('call void asm sideeffect "", "~{memory}"()')

    def ordered(self, value: Value) -> Value:
        """`value` of a register, computed before memory is accessed again."""
        if (lanes := value.type.lanes) * value.type.bits > self.module.vector_bits:
            sides = range(lanes // 2), range(lanes // 2, lanes)
            low, high = (self.ordered(self.shuffle(value, None, side)) for side in sides)
            return self.shuffle(low, high, range(lanes))
        architecture = self.module.platform.architecture
        if architecture.fills_vectors and lanes * value.type.bits < self.module.vector_bits:
            return value
        letter = architecture.vector_operand
        text = f'asm sideeffect "", "={letter},0,~{{memory}}"({value})'
        return self.new(value.type, f"call {value.type} {text}")

    def element(
        self, pointer: Value, index: Operand, type: Type, *, is_ahead: bool = False
    ) -> Value:
        """The address of the element at `index` of an array of the scalar type of `type`.

        One that `is_ahead` of an address in the same memory is a part of loads in WebAssembly.
        """
        position = str(index) if isinstance(index, Value) else f"i64 {int(index)}"
        if position == "i64 0":
            return pointer
        flag = "nuw " if is_ahead and self.module.platform.pointer_bytes == 4 else ""
        address = f"getelementptr {flag}{type.element}, ptr {pointer.name}, {position}"
        return self.computed(POINTER, address)

    def load(self, type: Type, pointer: Value, align: int | None = None) -> Value:
        """The value at `pointer`; by default aligned as one element of the type."""
        return self.new(type, f"load {type}, {pointer}, align {align or type.alignment}")

    def store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        """Store `value` at `pointer`; by default aligned as one element of the type."""
        self.put(f"store {value}, {pointer}, align {align or value.type.alignment}")

    def lanes_below(self, count: Value, lanes: int) -> Value:
        """The mask of the first `count` lanes; all if there are fewer."""
        bits, is_known = 64, not count.name.startswith("%")
        first: int | Value | None = None
        if not self.module.has_avx512:  # there a mask has the bits of the elements
            bits = min(32, 512 // lanes) if lanes <= 64 else 16  # that hold the number of lanes
            if is_known:
                count = self.const(I64, first := min(max(int(count.name), 0), lanes))
            else:
                count = first = self.intrinsic("smax", self.intrinsic("smin", count, lanes), 0)
        if is_known:  # LLVM 22 may load lanes that are not in the mask if it knows the mask
            count = self.computed(I64, f'call i64 asm "", "=r,0"({count})')
        numbers = self.iota(Type(f"i{bits}", lanes))
        if bits < 64:
            count = self.cast("trunc", count, numbers.type.element)
        mask = self.compare("slt", numbers, self.splat(count, lanes))
        if first is not None:
            self._first[mask.name] = first
        return mask

    def masked_load(self, type: Type, pointer: Value, mask: Value, other: Operand = 0) -> Value:
        """The lanes of the mask from memory, and `other` in the rest, which are not read."""
        other = other if isinstance(other, Value) else self.const(type, other)
        if type.element == "half":
            # LLVM 22 crashes on halves of masked vectors in functions that it does not optimise.
            bits = self.cast("bitcast", other, "i16")
            return self.cast("bitcast", self.masked_load(bits.type, pointer, mask, bits), "half")
        present = self._present(type, mask)
        if isinstance(present, Value):
            size = present * (type.bits // 8)
            name = _first_elements(self.module, type)
            whole = self.new(type, f"call {type} @{name}({pointer}, {size})")
            return self.select(mask, whole, other)
        if present is not None:
            for at, count in _pieces(present):
                part = self.load(Type(type.element, count), self.element(pointer, at, type))
                wide = self.wider(part, type.lanes)
                places = range(at, at + count)
                sources = [type.lanes + n - at if n in places else n for n in range(type.lanes)]
                other = self.shuffle(other, wide, sources)
            return other
        name = f"llvm.masked.load.{type.suffix}.p0"
        self.module.declare(name, type, ["ptr", "i32 immarg", mask.type, type])
        arguments = f"{pointer}, i32 {type.alignment}, {mask}, {other}"
        return self.new(type, f"call {type} @{name}({arguments})")

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes of the mask; the memory of the others is not touched."""
        type = value.type
        present = self._present(type, mask)
        if isinstance(present, Value):
            whole = self._shared(-(-type.bits * type.lanes // 64))
            self.store(value, whole)
            _declare_copy(self.module)
            size = present * (type.bits // 8)
            self.put(f"call void @{_COPY}({pointer}, {whole}, {size}, i1 false)")
            return
        if present is not None:
            for at, count in _pieces(present):
                part = self.shuffle(value, None, range(at, at + count))
                self.store(part, self.element(pointer, at, type))
            return
        # LLVM 22 narrows integers in masked stores of AVX-512, and stores all bits if it knows that
        # a mask has one lane. Floats are not narrowed there; nothing is known of a hidden mask.
        if value.type.element == "i32":
            value = self.cast("bitcast", value, "float")
        elif value.type.element in ("i8", "i16"):
            mask = self._hidden(mask)
        name = f"llvm.masked.store.{value.type.suffix}.p0"
        self.module.declare(name, VOID, [value.type, "ptr", "i32 immarg", mask.type])
        self.put(f"call void @{name}({value}, {pointer}, i32 {value.type.alignment}, {mask})")

    def _present(self, type: Type, mask: Value) -> int | Value | None:
        """The number of lanes of a mask, which are the first ones; None if these are tested.

        They are where it is unknown which ones they are, or few, or have masked accesses.
        """
        if type.bits in self.module.platform.architecture.masked:
            return None
        first = self._first.get(mask.name)
        return None if isinstance(first, Value) and type.lanes <= Vectors.SEPARATE else first

    def _hidden(self, mask: Value) -> Value:
        """`mask` as the result of an empty piece of assembly, in a mask register.

        In a general register it would be read from a vector with an instruction of AVX2, which LLVM
        22 also takes for those of the 32 vector registers that only AVX-512 has.
        """
        if not self.module.has_avx512:
            return mask
        count = mask.type.lanes
        if count > 64:  # more than a register has
            parts = (range(count // 2), range(count // 2, count))
            low, high = (self._hidden(self.shuffle(mask, None, part)) for part in parts)
            return self.shuffle(low, high, range(count))
        lanes = max(count, 8)
        if lanes > count:
            mask = self.shuffle(mask, self.const(mask.type, 0), [min(n, count) for n in range(8)])
        mask = self.new(mask.type, f'call {mask.type} asm "", "=k,0"({mask})')
        return mask if lanes == count else self.shuffle(mask, None, range(count))

    def gather(
        self, type: Type, pointer: Value, offsets: Value, mask: Value | None = None
    ) -> Value:
        """The elements of `type` at `offsets` from `pointer`; 0 where the mask does not hold."""
        if offsets.type.lanes == 1:
            return self.load(type, self.element(pointer, offsets, type))
        if type.element == "half":  # as for masked loads
            return self.cast("bitcast", self.gather(Type("i16"), pointer, offsets, mask), "half")
        result, places = self._places(type, pointer, offsets)
        if "gather" not in self.module.instructions:
            if mask is not None:
                places = self.select(mask, places, self.zero())
            every = (self.lane(places, n) for n in range(places.type.lanes))
            return self.joined([self.load(Type(type.element), place) for place in every])
        mask = mask or self.const(result.of("i1"), 1)
        name = f"llvm.masked.gather.{result.suffix}.{places.type.suffix}"
        self.module.declare(name, result, [places.type, "i32 immarg", mask.type, result])
        arguments = f"{places}, i32 {type.alignment}, {mask}, {self.const(result, 0)}"
        return self.new(result, f"call {result} @{name}({arguments})")

    def zero(self) -> Value:
        """The address of a zero of any type."""
        self.module.add_text("@zero = internal constant [8 x i8] zeroinitializer, align 8")
        return Value(self, POINTER, "@zero")

    def scatter(
        self, value: Value, pointer: Value, offsets: Value, mask: Value | None = None
    ) -> None:
        """Store the elements of `value` at `offsets` from `pointer`, in the lanes of the mask."""
        type = Type(value.type.element)
        if offsets.type.lanes == 1:
            self.store(value, self.element(pointer, offsets, type))
            return
        _, places = self._places(type, pointer, offsets)
        mask = mask or self.const(value.type.of("i1"), 1)
        name = f"llvm.masked.scatter.{value.type.suffix}.{places.type.suffix}"
        self.module.declare(name, VOID, [value.type, places.type, "i32 immarg", mask.type])
        self.put(f"call void @{name}({value}, {places}, i32 {type.alignment}, {mask})")

    def _places(self, type: Type, pointer: Value, offsets: Value) -> tuple[Type, Value]:
        lanes = offsets.type.lanes
        address = f"getelementptr {type.element}, {pointer}, {offsets}"
        return Type(type.element, lanes), self.computed(Type("ptr", lanes), address)

    def prefetch(self, pointer: Value, *, level: int = 1) -> None:
        """Prefetch the cache line at `pointer`, which need not be valid, into a cache."""
        self.module.declare(
            "llvm.prefetch.p0", VOID, ["ptr", "i32 immarg", "i32 immarg", "i32 immarg"]
        )
        self.put(f"call void @llvm.prefetch.p0({pointer}, i32 0, i32 {4 - level}, i32 1)")

    # ---- vectors

    def splat(self, value: Value, lanes: int) -> Value:
        """A vector with `value` in all lanes; a vector is returned unchanged."""
        if lanes == 1 or value.type.lanes > 1:
            return value
        type = Type(value.type.element, lanes)
        if value.name[0] not in "%@":
            return Value(self, type, f"splat ({value})")
        first = self.computed(type, f"insertelement {type} poison, {value}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.computed(type, f"shufflevector {first}, {type} poison, {zeros}")

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """The given lanes of `a` followed by `b`; a scalar if there is one."""
        if len(lanes) == 1 and b is None:
            return self.lane(a, lanes[0])
        numbers = ", ".join(f"i32 {n}" for n in lanes)
        other = f"{a.type} {'poison' if b is None else b.name}"
        type = Type(a.type.element, len(lanes))
        text = f"shufflevector {a}, {other}, <{len(lanes)} x i32> <{numbers}>"
        result = self.computed(type, text)
        if b is None and a.name in self._first and [*lanes] == [*range(a.type.lanes)]:
            self._first[result.name] = self._first[a.name]
        return result

    def lane(self, value: Value, lane: int) -> Value:
        """One lane of a vector."""
        return self.computed(Type(value.type.element), f"extractelement {value}, i64 {lane}")

    def joined(self, scalars: Sequence[Value]) -> Value:
        """A vector of at least two scalars."""
        result = Value(self, Type(scalars[0].type.element, len(scalars)), "poison")
        for lane, scalar in enumerate(scalars):
            result = self.computed(result.type, f"insertelement {result}, {scalar}, i64 {lane}")
        return result

    def fold_lanes(
        self, values: Sequence[Value], combine: Callable[[Value, Value], Value]
    ) -> list[Value]:
        """The 2**k lanes of each value reduced to a scalar, in a tree of fixed order.

        The halves of two vectors are combined at once, so that no lanes are unused.
        """
        parts, width = list(values), values[0].type.lanes
        while (half := width // 2) > 0:
            pairs: list[tuple[Value, Value | None]] = []
            for part in parts:
                if pairs and pairs[-1][1] is None and pairs[-1][0].type == part.type:
                    pairs[-1] = pairs[-1][0], part
                else:
                    pairs.append((part, None))
            parts = []
            for a, b in pairs:
                starts = range(0, a.type.lanes * (1 if b is None else 2), width)
                low, high = (
                    self.shuffle(a, b, [start + n for start in starts for n in lanes])
                    for lanes in (range(half), range(half, width))
                )
                parts.append(combine(low, high))
            width = half
        return [
            part if part.type.lanes == 1 else self.lane(part, lane)
            for part in parts
            for lane in range(part.type.lanes)
        ]


def _pieces(known: int) -> Iterator[tuple[int, int]]:
    """The starts and lanes of the vectors that a number of lanes consists of."""
    at = 0
    while at < known:
        count = 1 << (known - at).bit_length() - 1
        yield at, count
        at += count


_COPY = "llvm.memcpy.p0.p0.i64"


def _declare_copy(module: Module) -> None:
    module.declare(_COPY, VOID, ["ptr", "ptr", "i64", "i1 immarg"])


def _first_elements(module: Module, type: Type) -> str:
    """The name of a function that returns a vector whose first bytes are those at a pointer.

    The others are any. They are read too if they are in the page of the first one.
    """
    name, size = f"relaxpy.first.{type.suffix}", type.bits * type.lanes // 8
    _declare_copy(module)
    module.add_text(
        f"""define internal {type} @{name}(ptr %from, i64 %size) #0 {{
  %copy = alloca {type}, align 16
  %address = ptrtoint ptr %from to i64
  %offset = and i64 %address, {PAGE_BYTES - 1}
  %fits = icmp ule i64 %offset, {PAGE_BYTES - size}
  %exists = icmp ne i64 %size, 0
  %readable = and i1 %fits, %exists
  br i1 %readable, label %whole, label %part
whole:
  %all = load {type}, ptr %from, align 1
  ret {type} %all
part:
  call void @{_COPY}(ptr %copy, ptr %from, i64 %size, i1 false)
  %some = load {type}, ptr %copy, align 16
  ret {type} %some
}}
"""
    )
    return name
