"""The environment of generated code: known values, and the loop level to which each is hoisted.

Value numbering with LICM: a value is computed once, at the outermost loop level at which its
operands are known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from relaxpy.exec.loops.nest.bounds import unproved
from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.machine.platforms import LINE_BYTES
from relaxpy.exec.machine.tuning import Vectors
from relaxpy.exec.native.llvm.interleave import interleaved, load_every, parted
from relaxpy.exec.native.llvm.writer import I8, I64, Function, Slot, Type, Value
from relaxpy.exec.native.values.datatypes import RefusedError, storage_type
from relaxpy.exec.native.values.failures import Failures
from relaxpy.exec.native.values.packing import Packing
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import FloorDiv, FloorMod, PrimExpr, Var
from relaxpy.support.dataclass import dataclass

NOW = 1 << 30
"""The level of values that depend on memory which the current loop writes."""


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """The variable whose consecutive values are lanes, the first value, and the active lanes.

    The active lanes are the first ones.
    """

    var: Var
    start: Value
    count: int
    mask: Value | None


@dataclass(frozen=True, slots=True, eq=False)
class Address:
    """The memory of an element, or of one in each lane: at `offsets`, or consecutive.

    If it is `reversed`, the last lane comes first.
    """

    pointer: Value
    offsets: Value | None
    lanes: int
    reversed: bool = False


class Frame(ABC):
    """The value-numbering environment of a function: pointers, variables, and known values.

    `written` are the buffers that the kernel writes; `shape_vars` are never negative.
    """

    def __init__(
        self,
        function: Function,
        pointers: Mapping[Buffer, Value],
        sizes: Mapping[Var, Value],
        written: Container[Buffer],
        shape_vars: Container[Var],
    ) -> None:
        self.function = function
        self.pointers = dict(pointers)
        self.written = written
        self.shape_vars = shape_vars
        self.axes: list[Axis] = []
        self.lanes: Lanes | None = None
        self.stored: dict[tuple[Buffer, tuple[PrimExpr, ...]], Value] = {}
        """Values that the current iteration stored."""
        self.blocks: dict[Buffer, tuple[Sequence[IndexPoly], IndexPoly]] = {}
        """The strides of buffers with memory for some rows only, and the position of index 0."""
        self.ahead: Mapping[Buffer, int] = {}
        """The distance in bytes of the vectors of buffers that are prefetched."""
        self.long: Container[Var] = ()
        """Sizes of more rows than those for which a product has code of its own."""
        self.packable: dict[Buffer, Packing | None] = {}
        """The parameters with a single reader, and their packing, if they may be packed."""
        self.packed: Container[Buffer] = ()
        """Those of them that are always packed, if they may be."""
        self.failures: Failures | None = None
        """The reporter of obligations that fail after the first write."""
        self.bound: dict[Var, Value] = {}
        """The variables with values of their own datatypes."""
        self.widened_from: dict[tuple[str, DataType], Value] = {}
        """The bits of memory that values of float32 come from, by the name and the datatype."""
        self.rounded_from: dict[tuple[str, DataType], Value] = {}
        """The values of float32 that others of a float of 8 bits were rounded from."""
        self._positions: dict[tuple[Buffer, tuple[PrimExpr, ...]], IndexPoly] = {}
        self._affine: dict[tuple[IndexPoly, Var], Affine | None] = {}
        self._unproved: dict[object, Mapping[int, PrimExpr]] = {}
        self._variables: dict[Var, Value] = dict(sizes)
        self._levels: dict[str, int] = {}
        self._slots: list[Slot] = [function.slot()]
        self._memos: list[dict[object, Value]] = [{}]
        self._now: dict[object, Value] = {}
        self._busy: tuple[Container[Buffer], int] | None = None

    @property
    def variables(self) -> Mapping[Var, Value]:
        """The variables that are known here."""
        return self._variables

    # ---- levels

    @contextmanager
    def level(
        self, variables: Mapping[Var, Value] | None = None, lanes: Lanes | None = None
    ) -> Iterator[None]:
        """A hoist level at this position, at which `variables` are known."""
        number = len(self._slots)
        known = [*(variables or {}).values()]
        outer = dict(self._variables), self.lanes, dict(self.bound)
        self._variables |= variables or {}
        if lanes is not None:
            self.lanes = lanes
            known += [lanes.start] if lanes.mask is None else [lanes.start, lanes.mask]
        new = {v.name for v in known if v.name[0] == "%" and v.name not in self._levels}
        levels = dict.fromkeys(new, number)
        if lanes is not None and lanes.start.name[0] == "%" and lanes.start.name not in new:
            # Addresses and loads of the last vector would be kept in registers by the loop before.
            levels[lanes.start.name] = max(number, self._levels[lanes.start.name])
        known_outside = {name: self._levels[name] for name in levels if name not in new}
        self._levels |= levels
        self._now = {}
        self._slots.append(self.function.slot())
        self._memos.append({})
        yield
        self._slots.pop()
        self._memos.pop()
        for name in new:  # some are known outside of the level, too
            self._levels.pop(name, None)
        self._levels |= known_outside
        self._variables, self.lanes, self.bound = outer
        self.forget()

    @contextmanager
    def writing(self, buffers: Container[Buffer]) -> Iterator[None]:
        """A hoist level in which only `buffers` are written."""
        outer = self._busy
        with self.level():
            self._busy = buffers, len(self._slots) - 1
            yield
        self._busy = outer

    @contextmanager
    def conditionally(self) -> Iterator[None]:
        """Code that may be skipped: its values are not known after it."""
        self._now = dict(self._now)
        outer = dict(self.bound)
        yield
        self.bound = outer
        self.forget()

    @contextmanager
    def within(self, axis: Axis) -> Iterator[None]:
        """The iterations of a loop, with the bounds that proofs use."""
        self.axes.append(axis)
        yield
        self.axes.pop()

    def pin(self, values: Sequence[Value]) -> None:
        """Prevent users of these values, such as sums, from being hoisted out of the iteration."""
        for value in values:
            if value.name[0] == "%":
                self._levels[value.name] = NOW

    def settle(self, values: Iterable[Value]) -> None:
        """Set the hoist level of values to the current one."""
        for value in values:
            if value.name[0] == "%":
                self._levels[value.name] = len(self._slots) - 1

    def forget(self) -> None:
        """Invalidate values that were loaded from memory which has changed."""
        self._now = {}

    def level_of(self, value: Value) -> int:
        """The level at which `value` is known."""
        return self._levels.get(value.name, 0)

    def place(
        self, key: object, operands: Sequence[Value], build: Callable[[], Value], *, floor: int = 0
    ) -> Value:
        """`build()` at the outermost level, not below `floor`, at which the operands are known.

        The value with the same `key` at that level is not computed again.
        """
        levels = self._levels
        level = max([floor, *[levels.get(value.name, 0) for value in operands]])
        memo = self._now if level >= NOW else self._memos[level]
        found = memo.get(key)
        if found is not None:
            return found
        value = build() if level >= NOW else self.function.at(self._slots[level], build)
        self._levels.setdefault(value.name, level)
        if value.name[0] != "%":
            self._levels[value.name] = 0
        memo[key] = value
        return value

    def apply(self, name: str, build: Callable[..., Value], *operands: Value) -> Value:
        """`build`, which `name` identifies, of operands broadcast to the widest one."""
        lanes = max([o.type.lanes for o in operands])
        wide = [o if o.type.lanes == lanes else self.wide(o, lanes) for o in operands]
        # The name of a literal does not tell its type.
        key = name, *[o.name if o.name[0] == "%" else (o.name, o.type) for o in wide]
        return self.place(key, wide, lambda: build(*wide))

    def wide(self, value: Value, lanes: int) -> Value:
        """`value`, broadcast to `lanes`."""
        if value.type.lanes == lanes:
            return value
        key = "splat", value.name, value.type, lanes
        return self.place(key, (value,), lambda: self.function.splat(value, lanes))

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """The conjunction of both conditions; None is true."""
        if a is None or b is None:
            return a if b is None else b
        return self.apply("and", lambda x, y: self.function.arithmetic("and", x, y), a, b)

    # ---- variables and indices

    def variable(self, var: Var) -> Value:
        """The value of a variable: an i64 if it is a size or the index of a loop.

        Errors:
            RefusedError: it has none here.
        """
        if self.lanes is not None and var is self.lanes.var:
            return self._lane_numbers(self.lanes)
        value = self._variables.get(var)
        if value is None:
            raise RefusedError(f"the variable {var.name} is not an integer of 64 bits")
        return value

    def _lane_numbers(self, lanes: Lanes) -> Value:
        if lanes.count == 1:
            return lanes.start
        f = self.function
        numbers = f.iota(Type("i64", lanes.count))
        start = self.wide(lanes.start, lanes.count)
        return self.apply("add", lambda x: f.arithmetic("add nsw", x, numbers), start)

    def index(self, value: IndexPoly | PrimExpr | int) -> Value:
        """An index as an i64; a vector if it depends on the lane."""
        terms = []
        constant = 0
        for monomial, factor in as_poly(value).terms.items():
            if not monomial:
                constant = factor
                continue
            product = self.atom(monomial[0])
            for atom in monomial[1:]:
                product = self.integer("mul", product, self.atom(atom))
            terms.append(self.integer("mul", product, self.function.const(I64, factor)))
        terms.sort(key=self.level_of)
        if constant or not terms:
            terms.insert(0, self.function.const(I64, constant))
        total = terms[0]
        for term in terms[1:]:
            total = self.integer("add", total, term)
        return total

    def integer(self, name: str, a: Value, b: Value) -> Value:
        """`add`, `sub` or `mul` of two i64; numbers are computed here."""
        if a.name.lstrip("-").isdigit() and b.name.lstrip("-").isdigit():
            x, y = int(a.name), int(b.name)
            return self.function.const(I64, {"add": x + y, "sub": x - y, "mul": x * y}[name])
        if name == "mul" and b.name == "1":
            return a
        if (name == "add" and a.name == "0") or (name == "mul" and a.name == "1"):
            return b
        if b.name == "0" and name != "mul":
            return a
        return self.apply(name, lambda x, y: self.function.arithmetic(name, x, y), a, b)

    def extent(self, size: PrimExpr) -> Value:
        """A dimension; 0 if its expression is negative."""
        value = self.index(size)
        if as_poly(size).is_at_least(0, self.shape_vars):
            return value
        build = lambda x: self.function.intrinsic("smax", x, 0)  # noqa: E731
        return self.apply("extent", build, value)

    @abstractmethod
    def atom(self, atom: PrimExpr) -> Value:
        """The value of an atom of an index, as an i64."""

    # ---- memory

    def position(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> IndexPoly:
        """The position of an element in the memory of its buffer, in elements."""
        block = self.blocks.get(buffer)
        if block is None:
            key = buffer, tuple(indices)
            found = self._positions.get(key)
            if found is None:
                found = self._positions[key] = position_of(buffer, indices)
            return found
        strides, total = block
        for index, stride in zip(indices, strides, strict=True):
            total = total + as_poly(index) * stride
        return total

    def unproved(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> Value | None:
        """The condition that unproved indices are in bounds; None if all are proved."""
        condition = None
        f = self.function
        key = buffer, tuple(indices), tuple(self.axes)
        found = self._unproved.get(key)
        if found is None:
            found = unproved(buffer, indices, self.axes, self.shape_vars)
            self._unproved[key] = found
        for n, index in found.items():
            value, end = self.index(index), self.extent(buffer.shape[n])
            inside = self.apply("inside", lambda x, y: f.compare("ult", x, y), value, end)
            condition = self.both(condition, inside)
        return condition

    def floor(self, buffer: Buffer) -> int:
        """The outermost level at which the elements of `buffer` can be read."""
        if buffer not in self.written:
            return 0
        if self._busy is None or buffer in self._busy[0]:
            return NOW
        return self._busy[1]

    def address(self, buffer: Buffer, indices: Sequence[PrimExpr], type: Type) -> Address:
        """The address of an element, or of the element in each lane."""
        pointer = self.pointers[buffer]
        position = self.position(buffer, indices)
        lanes = self.lanes
        across = 1
        linear = self._along_lanes(position)
        if lanes is not None and (linear is None or linear.coefficients):
            across = lanes.count
            step = None if linear is None else linear.constant(lanes.var)
            if linear is not None and (step == 1 or step == -1):
                first = lanes.start
                if step == -1:
                    last = self.integer("add", first, self.function.const(I64, across - 1))
                    first = self.integer("mul", last, self.function.const(I64, -1))
                place = self._place_of(pointer, linear.offset, first, type)
                return Address(place, None, across, step == -1)
        offset = self.index(position)
        if offset.type.lanes == 1:
            none = self.function.const(I64, 0)
            return Address(self._place_of(pointer, position, none, type), None, 1)
        return Address(pointer, offset, across)

    def _along_lanes(self, position: IndexPoly) -> Affine | None:
        """A position as an affine map of the variable whose values are lanes, if it is one."""
        lanes = self.lanes
        if lanes is None or lanes.count == 1:
            return Affine({}, position)
        key = position, lanes.var
        if key not in self._affine:
            self._affine[key] = affine(position, {lanes.var})
        return self._affine[key]

    def _place_of(self, pointer: Value, position: IndexPoly, more: Value, type: Type) -> Value:
        """The address at a position and `more`; constant offsets share one register."""
        distance = position.terms.get((), 0)
        offset = self.integer("add", self.index(position - distance), more)
        place = self._element(pointer, offset, type)
        return self._element(place, self.function.const(I64, distance), type)

    def _element(self, pointer: Value, offset: Value, type: Type) -> Value:
        if offset.name == "0":
            return pointer
        key = "address", pointer.name, offset.name, type.element
        build = lambda: self.function.element(pointer, offset, type)  # noqa: E731
        return self.place(key, (pointer, offset), build)

    def load(self, load: BufferLoad) -> Value:
        """The element of a buffer in memory's type; 0 where it is out of bounds.

        Errors:
            RefusedError: the element is the same in all lanes, but in bounds only in some of them.
        """
        f, buffer = self.function, load.buffer
        type = storage_type(buffer.dtype)
        inside = self.unproved(buffer, load.indices)
        address = self.address(buffer, load.indices, type)
        pointer, offsets = address.pointer, address.offsets
        floor = self.floor(buffer)
        if address.lanes == 1:
            if inside is not None and inside.type.lanes > 1:
                raise RefusedError("a condition of a scalar index that depends on the lane")
            if inside is not None:
                pointer = self.apply("select", f.select, inside, pointer, f.zero())
            key: object = ("load", pointer.name, type.element)
            return self.place(key, (pointer,), lambda: f.load(type, pointer), floor=floor)
        assert self.lanes is not None
        mask = self.both(self.lanes.mask, inside)
        if mask is not None:
            mask = self._turned(self.wide(mask, address.lanes), address)
        vector = Type(type.element, address.lanes)
        every_other = offsets is not None and inside is None
        found = self._every(buffer, load.indices) if every_other else None
        if found is not None:
            step, first = found
            place = self._element(pointer, first, type)
            operands = [place] if mask is None else [place, mask]
            key = ("every", step, vector, *(v.name for v in operands))
            every = lambda: load_every(f, vector, step, *operands)  # noqa: E731
            return self.place(key, operands, every, floor=floor)
        if every_other and (order := self._distances(buffer, load.indices)) is not None:
            return self._ordered(load, order, mask, floor)
        operands = [v for v in (pointer, offsets, mask) if v is not None]
        ahead = self.ahead.get(buffer, 0)

        def build() -> Value:
            if offsets is not None:
                return f.gather(type, pointer, offsets, mask)
            for line in range(0, vector.bits * vector.lanes // 8 if ahead else 0, LINE_BYTES):
                f.prefetch(f.element(pointer, ahead + line, I8))
            return f.load(vector, pointer) if mask is None else f.masked_load(vector, pointer, mask)

        key = ("load", vector, *(v.name for v in operands))
        return self._turned(self.place(key, operands, build, floor=floor), address)

    def _turned(self, value: Value, address: Address) -> Value:
        """A vector in the order of memory, or of the lanes."""
        if not address.reversed:
            return value
        order = range(address.lanes)[::-1]
        return self.apply("reverse", lambda x: self.function.shuffle(x, None, order), value)

    def _every(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> tuple[int, Value] | None:
        """The short stride of the lanes' elements, and the position of the first one."""
        assert self.lanes is not None
        linear = affine(self.position(buffer, indices), {self.lanes.var})
        step = None if linear is None else linear.constant(self.lanes.var)
        if linear is None or step is None or not 2 <= step <= Vectors.LONGEST_STEP:
            return None
        if step > 4 and self.lanes.count * storage_type(buffer.dtype).bits > 512:
            return None  # vectors of several registers; each result needs all of them
        start = self.integer("mul", self.lanes.start, self.function.const(I64, step))
        return step, self.integer("add", self.index(linear.offset), start)

    def _distances(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> Sequence[int] | None:
        lanes = self.lanes
        assert lanes is not None
        position = self.position(buffer, indices)
        return distances(position, lanes.var, lanes.count, lanes.start.multiple)

    def _ordered(
        self, load: BufferLoad, order: Sequence[int], mask: Value | None, floor: int
    ) -> Value:
        """The elements at known distances from that of the first lane; each is read once.

        Those between the first and the last one are in bounds, too.
        """
        f, lanes, type = self.function, self.lanes, storage_type(load.buffer.dtype)
        assert lanes is not None
        outer, self.lanes = self._variables, None
        self._variables = {**outer, lanes.var: lanes.start}
        first = self.index(self.position(load.buffer, load.indices))
        self._variables, self.lanes = outer, lanes
        place = self._element(self.pointers[load.buffer], first, type)
        count = order[-1] + 1
        vector = Type(type.element, count)
        operands = [place] if mask is None else [place, mask]

        def build() -> Value:
            if count == 1:
                return f.splat(f.load(vector, place), lanes.count)
            if mask is None:
                return f.shuffle(f.load(vector, place), None, order)
            users = [next(k for k, n in enumerate(order) if n >= at) for at in range(count)]
            needed = f.shuffle(mask, None, users)
            return f.shuffle(f.masked_load(vector, place, needed), None, order)

        key = ("order", tuple(order), type.element, *(v.name for v in operands))
        return self.place(key, operands, build, floor=floor)

    def store(
        self,
        buffer: Buffer,
        indices: Sequence[PrimExpr],
        value: Value,
        condition: Value | None = None,
    ) -> None:
        """Store a value of memory's type where the lane is active and the `condition` holds.

        Errors:
            RefusedError: a condition depends on the lane, but all lanes share the element.
        """
        f = self.function
        address = self.address(buffer, indices, Type(value.type.element))
        if address.lanes == 1:
            if condition is not None or (self.lanes is not None and self.lanes.count > 1):
                raise RefusedError("lanes store into the same element")
            f.store(value, address.pointer)
            self.forget()
            return
        assert self.lanes is not None
        value = self._turned(self.wide(value, address.lanes), address)
        mask = self.both(self.lanes.mask, condition)
        is_shared = mask is not None and mask.type.lanes == 1 and address.offsets is None
        if mask is not None and is_shared and not f.module.has_avx512:
            # A masked store takes longer than a branch, which all lanes share.
            f.branch(mask, lambda: f.store(value, address.pointer))
            self.forget()
            return
        if mask is not None:
            mask = self._turned(self.wide(mask, address.lanes), address)
        found = self._every(buffer, indices) if address.offsets is not None else None
        if found is not None:
            step, first = found
            _store_every(f, value, step, f.element(address.pointer, first, value.type), mask)
        elif address.offsets is not None:
            f.scatter(value, address.pointer, address.offsets, mask)
        elif mask is None:
            f.store(value, address.pointer)
        else:
            f.masked_store(value, address.pointer, mask)
        self.forget()

    def load_offsets(
        self, load: BufferLoad, offsets: Sequence[int], zero: Sequence[Axis], ahead: int = 0
    ) -> Value:
        """The elements of memory where the variables of `zero` are 0, and at distances from there.

        One vector is read from memory; each distance has a lane of it. The memory `ahead` bytes
        further is prefetched.
        """
        f, buffer = self.function, load.buffer
        position = affine(self.position(buffer, load.indices), {axis.var for axis in zero})
        assert position is not None
        type, least = storage_type(buffer.dtype), min(offsets)
        none = f.const(I64, 0)
        pointer = self._place_of(self.pointers[buffer], position.offset + least, none, type)
        span = max(offsets) - least + 1
        if ahead:
            f.prefetch(f.element(pointer, ahead, I8))
        value = f.load(Type(type.element, span), pointer)
        lanes = [n - least for n in offsets]
        if span > 1 and lanes != [*range(span)]:
            value = f.shuffle(value, None, lanes)
        self.pin([value])
        return value

    def load_rows(self, first: BufferLoad) -> list[Value]:
        """The adjacent elements of each lane; lanes are adjacent, too."""
        f, lanes = self.function, self.lanes
        assert lanes is not None
        found = self._every(first.buffer, first.indices)
        assert found is not None
        count, position = found
        type = Type(storage_type(first.buffer.dtype).element, lanes.count)
        at = f.element(self.pointers[first.buffer], position, type)
        vectors = []
        for number in range(count):
            place = f.element(at, number * lanes.count, type)
            mask = self._mask_of_rows(count, number)
            vectors.append(
                f.load(type, place) if mask is None else f.masked_load(type, place, mask)
            )
        return [column for [column] in parted(f, vectors, count)]

    def _mask_of_rows(self, count: int, number: int) -> Value | None:
        """The elements of active lanes in one of the vectors that have `count` of each lane."""
        lanes = self.lanes
        assert lanes is not None
        if lanes.mask is None:
            return None
        rows = [(number * lanes.count + n) // count for n in range(lanes.count)]
        return self.function.shuffle(lanes.mask, None, rows)

    def store_rows(self, first: BufferLoad, values: Sequence[Value]) -> None:
        """Store the adjacent elements of each lane; lanes are adjacent, too."""
        f, lanes = self.function, self.lanes
        assert lanes is not None
        found = self._every(first.buffer, first.indices)
        assert found is not None
        step, position = found
        columns = [[self.wide(value, lanes.count)] for value in values]
        at = f.element(self.pointers[first.buffer], position, Type(values[0].type.element))
        for number, vector in enumerate(interleaved(f, columns)):
            place = f.element(at, number * lanes.count, vector.type)
            mask = self._mask_of_rows(step, number)
            if mask is None:
                f.store(vector, place)
            else:
                f.masked_store(vector, place, mask)
        self.forget()


def _store_every(f: Function, value: Value, step: int, at: Value, mask: Value | None) -> None:
    """Store the active lanes at multiples of `step`, with masks that skip the gaps.

    Without AVX-512, masked stores take as long as several stores of elements.
    """
    type = value.type
    lanes = type.lanes
    if mask is None and not f.module.has_avx512:
        for n in range(lanes):
            f.store(f.lane(value, n), f.element(at, n * step, type))
        return
    for first in range(0, lanes * step, lanes):
        sources = [-(-(first + n) // step) for n in range(lanes)]
        stored = [(first + n) % step == 0 for n in range(lanes)]
        spread = f.shuffle(value, None, [min(n, lanes - 1) for n in sources])
        bits = ", ".join(f"i1 {int(one)}" for one in stored)
        active = Value(f, Type("i1", lanes), f"<{bits}>")
        if mask is not None:
            others = f.shuffle(mask, None, [min(n, lanes - 1) for n in sources])
            active = f.arithmetic("and", others, active)
        f.masked_store(spread, f.element(at, first, type), active)


def distances(position: IndexPoly, var: Var, count: int, multiple: int) -> Sequence[int] | None:
    """The offset of the element of each of `count` lanes from that of the first one, if known.

    The lanes are consecutive values of `var`; the first is divisible by `multiple`. None
    if a distance is unknown, is not less than `count`, or decreases.
    """
    total = [0] * count
    for monomial, factor in position.terms.items():
        inside = [atom for atom in monomial if IndexPoly({(atom,): 1}).mentions({var})]
        if not inside:
            continue
        steps = _steps(inside[0], var, count, multiple) if len(monomial) == 1 else None
        if steps is None:
            return None
        total = [n + factor * step for n, step in zip(total, steps, strict=True)]
    order = [n - total[0] for n in total]
    return order if order == sorted(order) and order[-1] < count else None


def _steps(atom: PrimExpr, var: Var, count: int, multiple: int) -> Sequence[int] | None:
    """The value of an atom in each lane, without the part common to all."""
    if atom is var:
        return range(count)
    if not isinstance(atom, (FloorDiv, FloorMod)):
        return None
    divisor, linear = as_poly(atom.b).constant, affine(atom.a, {var})
    if divisor is None or divisor <= 0 or linear is None:
        return None
    step, offset = linear.constant(var), linear.offset.constant
    if step is None or offset is None:
        return None
    is_quotient = isinstance(atom, FloorDiv)
    if step * multiple % divisor == 0:
        values = [step * n + offset for n in range(count)]
        return [n // divisor if is_quotient else n % divisor for n in values]
    if step == 1 and multiple % count == 0 == divisor % count == offset % count:
        return [0] * count if is_quotient else range(count)
    return None
