"""Kernels that differ in sizes and numbers alone are one kernel, which takes them as arguments.

An extent may be an argument if it is long, and if only whole dimensions and loops have it. So may a
number that is an operand of arithmetic. Kernels that are the same without these belong to one
class, which is compiled once. What all members have in common is not an argument. Of products with
weights of few bits, only the number of columns may be one; that of rows may be a variable.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar, cast

from typing_extensions import override

from relaxpy.exec.machine.tuning import Shared
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, rewrite
from relaxpy.ir.equality.walk import KINDS, Walk
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import (
    Add,
    BinaryOpExpr,
    Cast,
    FloatImm,
    FloorDiv,
    IntImm,
    IterVarKind,
    Max,
    Min,
    Mul,
    PrimExpr,
    Sub,
    Var,
)
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, SeqStmt, Stmt
from relaxpy.support.dataclass import dataclass, replace

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class KernelClass:
    """The kernels `members`, each with the values of the further parameters of `func`.

    Fields:
        multiples: these parameters, and a power of two that divides each size.
        is_short: whether the kernels take less time than to start threads.
    """

    func: PrimFunc
    multiples: Mapping[Var, int]
    is_short: bool
    members: Mapping[PrimFunc, Mapping[Var, PrimExpr]]


def classes_of(functions: Iterable[PrimFunc]) -> Iterator[KernelClass]:
    """The classes of kernels with at least two members, or more if these are faster alone."""
    for similar in _groups(functions, _parameters):
        readers = [reader for func in similar if (reader := _read(func)) is not None]
        for alike in _groups(readers, _Reader.form):
            for same in _groups(alike, _text):
                for members in _by_multiples(same):
                    if len(members) >= Shared.MANY:
                        yield _class_of(members)
                    elif not members[0].has_product:
                        yield from map(
                            _class_of, _groups(members, lambda reader: reader.short_sums)
                        )


def _by_multiples(readers: Iterable[_Reader]) -> Iterable[Sequence[_Reader]]:
    """The readers in groups whose sizes are multiples of a vector at the same places.

    If only a few short kernels have these, they join many that have multiples at some of them.
    """
    groups: dict[tuple[int, ...], list[_Reader]] = defaultdict(list)
    for reader in readers:
        groups[reader.multiples].append(reader)
    joined = {multiples: [*members] for multiples, members in groups.items()}
    for multiples, members in groups.items():
        if len(members) >= Shared.MANY or not members[0].is_short:
            continue
        for others, many in groups.items():
            weaker = all(a <= b for a, b in zip(others, multiples, strict=True))
            if len(many) >= Shared.MANY and weaker:
                joined[others] += joined.pop(multiples)
                break
    return joined.values()


def _groups(items: Iterable[T], key: Callable[[T], Hashable]) -> Iterator[list[T]]:
    """The groups of at least two items with the same key, in order."""
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return (group for group in groups.values() if len(group) > 1)


def _parameters(func: PrimFunc) -> Hashable:
    return tuple(None if b is None else (b.dtype, b.ndim) for b in func.buffer_map_items)


class _Form(Walk):
    """The traversal of structural equality, without extents and numbers that may be arguments.

    The extents are those of buffers and loops; `numbers` has the numbers. Which of them are equal
    is part of the tokens.

    Rule:
        The regions that blocks read and write follow from the rest.
    """

    def __init__(self) -> None:
        super().__init__(map_free_vars=False)
        self.numbers: dict[PrimExpr, int] = {}

    @override
    def complete(
        self, fields: list[object], subject: Node, kind: Any, *operands: Any
    ) -> tuple[object, ...]:
        if not (isinstance(subject, _ARITHMETIC) and any(map(_is_number, (subject.a, subject.b)))):
            return super().complete(fields, subject, _SIZELESS[type(subject)], *operands)
        for value in (subject.a, subject.b):
            if _is_number(value):
                number = self.numbers.setdefault(value, len(self.numbers))
                fields.append(("number", value.dtype, number))
            else:
                fields.append(self.component(value, False, *operands))
        return tuple(fields)


def _is_number(value: PrimExpr) -> bool:
    return isinstance(value, FloatImm) and value.dtype.bits >= 32


class _Sizeless(dict[type[Node], Any]):
    """The properties of each node class for a walk that visits no extents."""

    def __missing__(self, cls: type[Node]) -> Any:
        kind = KINDS[cls]
        fields = tuple(field for field in kind.fields if field[0] not in _SIZES)
        self[cls] = found = kind._replace(fields=fields)
        return found


_SIZELESS: Final = _Sizeless()
_SIZES: Final = frozenset(("extent", "shape", "reads", "writes"))
_ARITHMETIC: Final = (Add, Sub, Mul, Min, Max)
"""Expressions whose code does not depend on the numbers in them."""


def _text(reader: _Reader) -> Hashable:
    """A key of a kernel that is equal for kernels that differ in extents and numbers alone."""
    func, form = reader.func.without_attr("global_symbol"), _Form()
    tokens = tuple(islice(form.tokens(func), Shared.MOST_TOKENS))
    reader.numbers = list(form.numbers)
    try:
        hash(tokens)
    except TypeError:  # an attribute has no hash
        return object()
    return tokens if len(tokens) < Shared.MOST_TOKENS else object()


def _read(func: PrimFunc) -> _Reader | None:
    try:
        return _Reader(func)
    except RefusedError:
        return None


def _class_of(readers: Sequence[_Reader]) -> KernelClass:
    first, rows = readers[0], [reader.values for reader in readers]
    different = [n for n, column in enumerate(zip(*rows, strict=True)) if len(set(column)) > 1]
    general = first.general(different)
    params = general.params[len(first.func.params) :]
    members = {
        reader.func: dict(zip(params, (row[n] for n in different), strict=True))
        for reader, row in zip(readers, rows, strict=True)
    }
    multiples = {
        param: min(_multiple(values[param]) for values in members.values()) for param in params
    }
    is_short = first.is_short and any(param.dtype.is_int for param in params)
    return KernelClass(general, multiples, is_short, members)


def _multiple(value: PrimExpr) -> int:
    return Shared.LANES if isinstance(value, IntImm) and value.value % Shared.LANES == 0 else 1


class _Reader:
    """Finds the extents of a kernel that are equal because an index relates them.

    These are numbered: first those of the dimensions of each buffer and of each variable.

    Errors:
        RefusedError: its code depends on its sizes.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.numbers: Sequence[PrimExpr] = ()
        """The numbers that may be arguments, which `_text` finds."""
        self._numbers: dict[Buffer | Var, int] = {}
        self._extents: list[PrimExpr] = []
        self._sizes: list[int] = []
        """The values of the extents, and for each variable a number that no other extent has."""
        self._related: list[int] = []
        """For each extent the number of an earlier one that it is related to, or its own."""
        self._variables: dict[Var, int] = {}
        self._constant: set[int] = set()
        self._summed: set[Var] = set()
        iterations = 0
        statements = [*occurrences(func.body, Stmt)]
        products = [n for n in statements if isinstance(n, BufferStore) and _is_product(n)]
        self._is_decoded = bool(products) and all(map(_is_decoded, products))
        for buffer in func.buffer_map.values():
            self._enter_buffer(buffer)
        for node in statements:
            iterations += self._enter(node)
        self.has_product = bool(products) and not self._is_decoded
        if self.has_product:
            self._check_product(iterations)
        self.is_short = self.has_product or iterations <= Shared.SHORT_KERNEL
        for node in statements:
            match node:
                case BlockRealize(iter_values=values, block=Block(iter_vars=iter_vars)):
                    for each, value in zip(iter_vars, values, strict=True):
                        self._relate(self._numbers[each.var], value)
                case BufferStore():
                    self._read_store(node)
                case _:
                    pass
        self.short_sums: tuple[int, ...] = ()
        """The lengths of those sums that are faster if their code has them."""
        self._places = self._long_extents()

    def _check_product(self, iterations: int) -> None:
        """Check that products are cheap; those of few rows or columns have code of their own."""
        if iterations > Shared.CHEAP_PRODUCT or min(self._sizes) < Shared.LANES:
            raise RefusedError("the tiles of products depend on sizes")

    # ---- extents

    def _enter_buffer(self, buffer: Buffer) -> None:
        if buffer.strides or not _is_zero(buffer.elem_offset):
            raise RefusedError("a buffer is not contiguous")
        self._enter_extents(buffer, buffer.shape)

    def _enter_extents(self, owner: Buffer | Var, extents: Sequence[PrimExpr]) -> None:
        if owner in self._numbers:
            raise RefusedError("two loops have the same variable")
        self._numbers[owner] = len(self._extents)
        for extent in extents:
            number = len(self._extents)
            if isinstance(extent, IntImm):
                size = extent.value
            elif self._is_decoded and isinstance(extent, Var):
                size = sys.maxsize - self._variables.setdefault(extent, len(self._variables))
                self._constant.add(number)
            else:
                raise RefusedError("its sizes are variables")
            self._related.append(number)
            self._extents.append(extent)
            self._sizes.append(size)

    def _enter(self, node: Stmt) -> int:
        """Enter the extents of a statement; the number of its iterations if it is a block."""
        match node:
            case For(loop_var=var, kind=ForKind.SERIAL, thread_binding=None) if (
                _is_zero(node.min) and not node.annotations
            ):
                self._enter_extents(var, [node.extent])
            case Block(iter_vars=iter_vars, match_buffers=()):
                for each in iter_vars:
                    if each.dom is None or not _is_zero(each.dom.min):
                        raise RefusedError("a loop does not start at 0")
                    self._enter_extents(each.var, [each.dom.extent])
                    if each.iter_type == IterVarKind.CommReduce:
                        self._summed.add(each.var)
                for buffer in node.alloc_buffers:
                    self._enter_buffer(buffer)
                extents = (self._sizes[self._numbers[each.var]] for each in iter_vars)
                return math.prod(extents) if iter_vars else 0
            case BlockRealize(predicate=IntImm(value=1)) | BufferStore(predicate=None) | SeqStmt():
                pass
            case _:
                raise RefusedError("it has other statements")
        return 0

    # ---- relations

    def _read_store(self, store: BufferStore) -> None:
        """Relate extents by the indices of a store and of what it reads."""
        self._access(store.buffer, store.indices)
        if not self.is_short and store.buffer.ndim:
            row = self._sizes[self._numbers[store.buffer] + store.buffer.ndim - 1]
            if row < Shared.LONG_ROW:
                raise RefusedError("its rows are short")
        stack: list[Node] = [store.value]
        while stack:
            node = stack.pop()
            if isinstance(node, BufferLoad):
                self._access(node.buffer, node.indices)
                if not self.is_short:
                    self._check_order(store.indices, node.indices)
                stack += (index for index in node.indices if not isinstance(index, Var))
            elif isinstance(node, Var):
                self._keep(node)
            else:
                stack += node._children()

    def _access(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> None:
        if buffer not in self._numbers:
            raise RefusedError("it has other memory")
        for number, index in enumerate(indices, self._numbers[buffer]):
            self._relate(number, index)

    def _relate(self, number: int, index: PrimExpr) -> None:
        """Relate the extent of a dimension to that of the variable which is its index."""
        match index:
            case Var() if index in self._numbers:
                first, second = sorted((self._first(number), self._first(self._numbers[index])))
                if self._sizes[first] != self._sizes[second]:
                    raise RefusedError("an index does not pass through a whole dimension")
                if self._extents[first].dtype != self._extents[second].dtype:
                    raise RefusedError("its sizes have two datatypes")
                self._related[second] = first
                if second in self._constant:
                    self._constant.add(first)
            case _ if isinstance(index, IntImm) or self._is_decoded:
                self._constant.add(self._first(number))
            case BufferLoad() | Cast(value=BufferLoad()):
                pass
            case _:
                raise RefusedError("an index is computed")

    def _keep(self, var: Var) -> None:
        """Keep the extent of a variable that is used as a number."""
        if var in self._numbers:
            self._constant.add(self._first(self._numbers[var]))

    def _first(self, number: int) -> int:
        while (earlier := self._related[number]) != number:
            number = earlier
        return number

    def _check_order(self, stored: Sequence[PrimExpr], read: Sequence[PrimExpr]) -> None:
        """Check that a long kernel reads elements in the order of memory, or in whole squares.

        Sums across rows are split by their length, and the rest of squares is slow.
        """
        if any(index in self._summed for index in read[:-1]):
            raise RefusedError("it sums across rows")
        if stored and read and stored[-1] in read[:-1] and read[-1] in stored[:-1]:
            last = (self._numbers[v] for v in (stored[-1], read[-1]) if isinstance(v, Var))
            if any(self._sizes[number] % Shared.LANES for number in last):
                raise RefusedError("it transposes squares that are not whole")

    # ---- the kernel for all sizes

    def _long_extents(self) -> Mapping[int, int]:
        """For each extent that is replaced the first one that it is related to."""
        summed = {self._first(self._numbers[var]) for var in self._summed}
        local = sum(isinstance(b, Buffer) for b in self._numbers) > len(self.func.buffer_map)
        places = {}
        for number, size in enumerate(self._sizes):
            first, least = self._first(number), Shared.LANES
            if first in summed and not self.has_product:
                least = Shared.LONG_SUM_OF_ROW if local and size % Shared.LANES else Shared.LONG_SUM
                if self.is_short and Shared.LONG_SUM_OF_ROW <= size < least:
                    least = Shared.LONG_SUM_OF_ROW
                    self.short_sums += (size,)
            if first not in self._constant and size >= least:
                places[number] = first
        return places

    @property
    def values(self) -> list[PrimExpr]:
        """The extents, then the numbers, that variables may replace."""
        return [*(self._extents[first] for first in self._firsts), *self.numbers]

    @property
    def _firsts(self) -> list[int]:
        return list(dict.fromkeys(self._places.values()))

    @property
    def multiples(self) -> tuple[int, ...]:
        """For each extent among the `values` a power of two that divides it."""
        return tuple(_multiple(self._extents[first]) for first in self._firsts)

    def form(self) -> Hashable:
        """The facts that kernels of a class have in common beside the text."""
        extents = tuple(
            (extent.dtype, None if n in self._places else size)
            for n, (extent, size) in enumerate(zip(self._extents, self._sizes, strict=True))
        )
        return self.is_short, tuple(self._places.items()), extents

    def general(self, different: Sequence[int]) -> PrimFunc:
        """The kernel with variables for those `values`, which are its last parameters."""
        values, firsts = self.values, self._firsts
        new = {n: Var(f"n{n}", values[n].dtype) for n in different}
        sizes = {first: new[n] for n, first in enumerate(firsts) if n in new}
        numbers = {values[n]: var for n, var in new.items() if n >= len(firsts)}
        extents = [
            sizes.get(self._places.get(n, -1), extent) for n, extent in enumerate(self._extents)
        ]
        buffers: dict[int, Buffer] = {}

        def buffer(old: Buffer) -> Buffer:
            if id(old) not in buffers:
                first = self._numbers[old]
                shape = tuple(extents[first : first + old.ndim])
                buffers[id(old)] = replace(old, shape=shape)
            return buffers[id(old)]

        def rule(node: Node) -> Node | None:
            match node:
                case Buffer():
                    return buffer(node)
                case For(loop_var=var):
                    return replace(node, extent=extents[self._numbers[var]])
                case IterVar(var=var, dom=Range(min=least)):
                    return replace(node, dom=Range(least, extents[self._numbers[var]]))
                case Block():
                    return replace(node, reads=(), writes=())
                case BinaryOpExpr(a=a, b=b) if isinstance(node, _ARITHMETIC):
                    if a in numbers or b in numbers:
                        return node.with_fields(a=numbers.get(a, a), b=numbers.get(b, b))
                    return None
                case _:
                    return None

        func = self.func.without_attr("global_symbol")
        body = cast("Stmt", rewrite(func.body, rule))
        params = (*func.params, *new.values())
        buffer_map = {param: buffer(old) for param, old in func.buffer_map.items()}
        return PrimFunc(params, body, func.ret_type, buffer_map, func.attrs, span=func.span)


def _is_zero(value: PrimExpr) -> bool:
    return isinstance(value, IntImm) and value.value == 0


def _is_product(store: BufferStore) -> bool:
    """True if a sum is one of products of elements, whose tiles depend on sizes."""
    match store.value:
        case Add(a=BufferLoad(), b=Mul(a=a, b=b)):
            return all(next(occurrences(x, BufferLoad), None) is not None for x in (a, b))
        case _:
            return False


def _is_decoded(product: BufferStore) -> bool:
    """True if a sum of products decodes weights, several of which are in an element of memory."""
    return any(
        load.buffer.dtype.startswith("uint") and any(isinstance(i, FloorDiv) for i in load.indices)
        for load in occurrences(product.value, BufferLoad)
    )
