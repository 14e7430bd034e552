"""Forwards copies: statements read the original; a reshaped parameter aliases its memory."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from relaxpy.exec.loops.nest.bounds import is_inside, may_fail
from relaxpy.exec.loops.nest.domain import is_point
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.dependence import common_axes
from relaxpy.exec.loops.plan.statements import Assignment, Statement
from relaxpy.exec.loops.plan.tree import Run, Tree, runs, written_memory
from relaxpy.exec.machine.tuning import Plans
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly, number_of
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite
from relaxpy.ir.relax.analysis.op_pattern import inner_indices
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import replace


def forward_copies(
    statements: Sequence[Statement],
    local: Container[Buffer],
    shape_vars: Container[Var],
    roots: Mapping[Buffer, Buffer],
) -> tuple[list[Statement], set[Buffer]]:
    """The statements that remain without some buffers of `local`, and these buffers.

    `roots` maps buffers to the buffers that own their memory.

    Rule:
        One statement computes all elements of the buffer, and nothing changes its operands later.
        If it copies a slice of an array with the axes in the same order, its readers read that
        slice. If its only reader copies it, that one computes the elements where it stores them.
    """
    forwarding = _Forwarding(statements, shape_vars, roots)
    candidates = (s.target for s in statements if isinstance(s, Assignment) and s.target in local)
    removed = {buffer for buffer in dict.fromkeys(candidates) if forwarding.removes(buffer)}
    return [s for s in forwarding.statements if s is not None], removed


class _Forwarding:
    def __init__(
        self,
        statements: Sequence[Statement],
        shape_vars: Container[Var],
        roots: Mapping[Buffer, Buffer],
    ) -> None:
        self.statements: list[Statement | None] = [*statements]
        self.shape_vars = shape_vars
        self.roots = roots
        self.readers: dict[Buffer, list[int]] = {}
        self.writers: dict[Buffer, list[int]] = {}
        for number, statement in enumerate(statements):
            for buffer in {read.buffer for read in statement.reads}:
                self.readers.setdefault(buffer, []).append(number)
            for buffer in {self._root(write.buffer) for write in statement.writes}:
                self.writers.setdefault(buffer, []).append(number)

    def _root(self, buffer: Buffer) -> Buffer:
        return self.roots.get(buffer, buffer)

    def removes(self, buffer: Buffer) -> bool:
        """Forward `buffer` to its readers if that is possible, and return whether it is.

        The buffer is not an alias of other memory.
        """
        writers, positions = self.writers[buffer], self.readers.get(buffer, [])
        if len(writers) != 1 or not positions or min(positions) <= writers[0]:
            return False
        source = self.statements[writers[0]]
        reading = [self.statements[position] for position in positions]
        readers = [s for s in reading if isinstance(s, Assignment) and _is_plain(s, buffer)]
        if not isinstance(source, Assignment) or len(readers) != len(positions):
            return False
        if not _is_slice(source, readers) and not _is_only_copied(source, readers):
            return False
        if not self._computes_all(source) or not self._is_constant(source, writers[0], readers):
            return False
        for reader in readers:
            for load in _loads_of(buffer, reader):
                fits = all(a.dtype == b.dtype for a, b in _paired(source, load))
                if not fits or may_fail(load, reader.axes, self.shape_vars):
                    return False
        for position, reader in zip(positions, readers, strict=True):
            self.statements[position] = _forwarded(source, reader)
        self.statements[writers[0]] = None
        for operand in {read.buffer for read in source.reads}:
            others = {n for n in self.readers[operand] if n != writers[0]}
            self.readers[operand] = sorted(others.union(positions))
        return True

    def _computes_all(self, statement: Assignment) -> bool:
        """True if a statement stores each element of its target once, and cannot fail."""
        if statement.guards or statement.ordered:
            return False
        if any(read.buffer is statement.target for read in statement.reads):
            return False
        if may_fail(statement.value, statement.axes, self.shape_vars):
            return False
        axes = {a.var: a for a in statement.axes if not is_point(a)}
        for index, size in zip(statement.indices, statement.target.shape, strict=True):
            if as_poly(index).same(0) and as_poly(size).same(1):
                continue
            axis = axes.pop(index, None) if isinstance(index, Var) else None
            if axis is None or not as_poly(axis.start).same(0):
                return False
            if not axis.extent.same(as_poly(size)):
                return False
        return not axes

    def _is_constant(
        self, source: Assignment, position: int, readers: Collection[Assignment]
    ) -> bool:
        """True if no statement changes the operands of `source` while or after it runs."""
        operands = {self._root(read.buffer) for read in source.reads}
        if not operands.isdisjoint(self._root(reader.target) for reader in readers):
            return False
        return all(
            number < position and (writer is None or not common_axes(writer, source))
            for operand in operands
            for number in self.writers.get(operand, ())
            for writer in (self.statements[number],)
        )


def _is_plain(statement: Assignment, buffer: Buffer) -> bool:
    """True if an assignment does not read `buffer` for the bounds of its loops."""
    return not any(
        load.buffer is buffer
        for axis in statement.axes
        for bound in (axis.start, axis.stop)
        for load in loads(bound)
    )


def _loads_of(buffer: Buffer, statement: Assignment) -> Iterator[BufferLoad]:
    for expr in (statement.value, *statement.indices, *statement.guards):
        yield from (load for load in loads(expr) if load.buffer is buffer)


def _paired(source: Assignment, load: BufferLoad) -> Iterator[tuple[Var, PrimExpr]]:
    """The axes of `source`, each with the index of a load of its target."""
    for index, at in zip(source.indices, load.indices, strict=True):
        if isinstance(index, Var):
            yield index, at


def _is_slice(source: Assignment, readers: Sequence[Assignment]) -> bool:
    """True if `source` copies a slice that is as fast to read, with axes in the same order.

    It may also repeat the slice, unless its elements are accumulated.
    """
    load = source.value
    if not isinstance(load, BufferLoad) or load.dtype != source.target.dtype:
        return False
    axes = [index for index in source.indices if isinstance(index, Var)]
    used: list[Var] = []
    for index in load.indices:
        linear = affine(index, set(axes)) if next(loads(index), None) is None else None
        if linear is None or len(linear.coefficients) > 1:
            return False
        for var, factor in linear.coefficients.items():
            if not factor.same(1):
                return False
            used.append(var)
    if used != [var for var in axes if var in set(used)]:
        return False
    if len(used) < len(axes) and any(reader.update is not None for reader in readers):
        return False
    count = sum(1 for reader in readers for _ in _loads_of(source.target, reader))
    run = as_poly(source.target.shape[-1]).constant if source.target.shape else 1
    return count == 1 or (run is not None and run >= Plans.LONG_RUN)


def _is_only_copied(source: Assignment, readers: Sequence[Assignment]) -> bool:
    """True if one statement reads each element at most once, and copies it."""
    [reader, *others] = readers
    load = reader.value
    if others or reader.guards or not isinstance(load, BufferLoad):
        return False
    if load.buffer is not source.target or load.dtype != reader.target.dtype:
        return False
    if sum(1 for _ in _loads_of(source.target, reader)) != 1:
        return False
    variables = [a.var for a in reader.axes if not is_point(a)]
    used: list[Var] = []
    for index in load.indices:
        linear = affine(index, set(variables)) if next(loads(index), None) is None else None
        if linear is None or len(linear.coefficients) > 1:
            return False
        used += linear.coefficients
    return len(used) == len(set(used)) == len(variables)


def _forwarded(source: Assignment, reader: Assignment) -> Assignment:
    """`reader` with loads of the target of `source` replaced by its value."""

    def rule(node: Node) -> Node | None:
        if not isinstance(node, BufferLoad) or node.buffer is not source.target:
            return None
        return substitute(source.value, dict(_paired(source, node)))

    def changed(expr: PrimExpr) -> PrimExpr:
        return cast("PrimExpr", rewrite(expr, rule))

    return replace(
        reader,
        indices=tuple(map(changed, reader.indices)),
        value=changed(reader.value),
        guards=tuple(map(changed, reader.guards)),
    )


Size: TypeAlias = PrimExpr | IndexPoly


def reshaped_parameters(
    trees: Sequence[Tree],
    parameters: Iterable[Buffer],
    local: Container[Buffer],
    roots: Mapping[Buffer, Buffer],
    shape_vars: Container[Var],
) -> dict[Buffer, Buffer]:
    """The buffers of `local` that are copies of a parameter in row-major order, and the parameters.

    The parameter is not written, nor is the buffer elsewhere, so they may share memory. `roots`
    maps buffers to the buffers that own their memory.
    """
    writes = [w.buffer for run in runs(trees) for w in run.statement.writes]
    unwritten = {*parameters} - written_memory(trees, lambda b: roots.get(b, b))
    result = {}
    for tree in trees:
        match tree:
            case Run(store=Assignment(target=target, value=BufferLoad() as load) as store):
                is_safe = load.buffer in unwritten and target in local
                is_safe = is_safe and writes.count(target) == 1
                if is_safe and is_reshape(tree.axes, store, load, shape_vars):
                    result[target] = load.buffer
            case _:
                pass
    return result


def reshapes_first(trees: Sequence[Tree], reshaped: Container[Buffer]) -> list[Tree]:
    """The trees with those first that compute the buffers in `reshaped`."""

    def is_later(tree: Tree) -> bool:
        match tree:
            case Run(store=Assignment(target=target)):
                return target not in reshaped
            case _:
                return True

    return sorted(trees, key=is_later)


def is_reshape(
    axes: Sequence[Axis], store: Assignment, load: BufferLoad, shape_vars: Container[Var]
) -> bool:
    """True if a store provably copies all elements in row-major order, each from its indices."""
    if store.guards or load.dtype != store.target.dtype:
        return False
    if not all(as_poly(axis.start).same(0) for axis in axes):
        return False
    extents, variables = [a.extent for a in axes], [a.var for a in axes]
    position, count = _position(variables, extents), number_of(extents)
    return all(
        _position(indices, buffer.shape).same(position)
        and number_of(buffer.shape).same(count)
        and all(is_inside(*inner, axes, shape_vars) for inner in inner_indices(indices, buffer))
        for indices, buffer in ((store.indices, store.target), (load.indices, load.buffer))
    )


def _position(indices: Sequence[PrimExpr], shape: Sequence[Size]) -> IndexPoly:
    """The position of an element in row-major order."""
    position = as_poly(0)
    for index, size in zip(indices, shape, strict=True):
        position = position * as_poly(size) + as_poly(index)
    return position
