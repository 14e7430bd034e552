"""Emits loops over the iterations of axes, and over vectors of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise

from relaxpy.exec.loops.nest.bounds import bounds_of
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.machine.tuning import Signals, Vectors
from relaxpy.exec.native.calls.interrupt import Interrupt
from relaxpy.exec.native.llvm.writer import I64, I128, Function, Operand, Value
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.exec.native.trees.program import KernelProgram
from relaxpy.exec.native.values.environment import Lanes
from relaxpy.exec.native.values.expressions import Values
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions


class Loops:
    """Emits loops of `program` in the function of `frame`.

    `proofs` has the axes whose bounds are used in proofs, instead of those that start with a
    variable, the first iteration of a block.
    """

    def __init__(self, program: KernelProgram, frame: Values) -> None:
        self.program, self.plan = program, program.plan
        self.frame: Values = frame
        self.function: Function = frame.function
        self.proofs: dict[PrimExpr, Axis] = {}
        self.in_task = False
        """True if the function is that of a task."""
        self.tested = False
        """True if it is that of a task that tests obligations, so that another one may fail."""
        self.interrupt: Interrupt | None = None
        """The check that ends long loops if a Python signal arrives."""
        self._inside = 1
        """The iterations of the enclosing loops that do not poll signals."""

    def where(self, tests: Sequence[PrimExpr], body: Callable[[], None]) -> None:
        """`body` if all of `tests` hold."""
        if not tests:
            body()
            return
        frame = self.frame
        condition: Value | None = None
        for test in tests:
            condition = frame.both(condition, frame.value(test))
        assert condition is not None

        def inside() -> None:
            with frame.conditionally():
                body()

        self.function.branch(condition, inside)

    def loop(
        self,
        axis: Axis,
        body: Callable[..., Sequence[Value] | None],
        carried: Sequence[Value] = (),
        *,
        listens: bool = False,
    ) -> list[Value]:
        """`carried = body(*carried)` in each iteration of the axis.

        If it `listens`, Python signals may end it.
        """
        frame = self.frame
        start, stop = self.bounds(axis)

        def inside(index: Value, *values: Value) -> Sequence[Value] | None:
            frame.pin(values)
            if self.tested:
                self.leave_if_failed()
            with frame.level({axis.var: index}), self.opened(axis):
                result = body(*values)
            if listens:
                self.listen()
            return result

        make = self.function.loop if listens else self.stretches
        results = make(start, stop, 1, carried, inside)
        frame.pin(results)
        frame.forget()
        return results

    def listen(self, iterations: Operand = 1) -> None:
        """Leave if a Python signal has arrived and its handler raises."""
        if self.interrupt is not None and self.interrupt.function is self.function:
            self.interrupt.poll(iterations)

    def stretches(
        self,
        start: Operand,
        stop: Operand,
        step: int,
        carried: Sequence[Value],
        body: Callable[..., Sequence[Value] | None],
    ) -> list[Value]:
        """A strip-mined loop of the function, which polls signals between strips if it is long."""
        f = self.function
        if self.interrupt is None or self.interrupt.function is not f:
            return f.loop(start, stop, step, carried, body)
        inside = self._inside
        if isinstance(start, int) and isinstance(stop, int):
            self._inside *= max(1, (stop - start) // step)
            if self._inside <= Signals.SHORT:
                results = f.loop(start, stop, step, carried, body)
                self._inside = inside
                return results
        self._inside = 1
        end, first_of_all = f.index(stop), f.index(start)

        def stretch(first: Value, *values: Value) -> list[Value]:
            first.multiple = min(
                first_of_all.multiple, f.const(I64, Signals.STRETCH * step).multiple
            )
            count = f.intrinsic("smin", end - first, Signals.STRETCH * step)
            results = f.loop(first, first + count, step, values, body)
            self.listen(count)
            return [first + count, *results]

        results = f.while_loop(
            [first_of_all, *carried], lambda first, *_: f.compare("slt", first, end), stretch
        )
        self._inside = inside
        return results[1:]

    def require(self, obligations: Sequence[Obligation], depth: int = 0) -> None:
        """Leave where an obligation does not hold, after the first `depth` of their axes.

        Those with the same axes share loops, as in the source, where each loop may never end unless
        one of them fails.
        """
        groups: dict[object, list[Obligation]] = {}
        for obligation in obligations:
            if len(obligation.axes) == depth:
                self.frame.require(obligation)
            elif (outside := self._outside(obligation, obligation.axes[depth:])) is None:
                axis = obligation.axes[depth]
                groups.setdefault((axis.var, axis.start, axis.stop), []).append(obligation)
            elif self.frame.failures is None:
                self.function.leave(outside)
            else:
                self.function.branch(outside, partial(self._first_outside, obligation, depth))
        for group in groups.values():
            axis = group[0].axes[depth]
            if all(len(o.axes) == depth + 1 for o in group):
                self.chunks(axis, Vectors.TESTED, 1, partial(self._tested, group), ())
            else:
                self.loop(axis, partial(self.require, group, depth + 1))

    def _first_outside(self, obligation: Obligation, depth: int) -> None:
        """Find the first iteration in which an index is out of bounds."""
        with self.frame.conditionally():
            self.loop(obligation.axes[depth], partial(self.require, [obligation], depth + 1))

    def _outside(self, obligation: Obligation, axes: Sequence[Axis]) -> Value | None:
        """True if an index is out of bounds in an iteration of `axes`, by its min and max.

        It is None where these do not decide that, or where integers of 128 bits may not hold them.
        """
        f, variables, shape_vars = self.function, {a.var for a in axes}, self.plan.shape_vars
        bounds = [as_poly(bound) for a in axes for bound in (a.start, a.stop)]
        linear = affine(obligation.index, variables)
        if obligation.size is None or linear is None:
            return None
        if any(bound.mentions(variables) for bound in bounds):
            return None
        if any(mentions(test, variables) for test in obligation.path):
            return None
        ends = bounds_of(linear, axes, shape_vars)
        if ends is None:
            return None
        low, high, size = *ends, as_poly(obligation.size)
        if not all(map(_is_small, (low, high, size))):
            return None
        outside = f.compare("slt", self._wide(low), 0)
        above = f.compare("sge", self._wide(high), self._wide(size))
        outside = f.arithmetic("or", outside, above)
        for test in obligation.path:
            outside = f.arithmetic("and", outside, self.frame.value(test))
        for axis in axes:
            if not axis.extent.is_at_least(1, shape_vars):
                runs = f.compare("slt", *map(f.index, self.bounds(axis)))
                outside = f.arithmetic("and", outside, runs)
        return outside

    def _wide(self, value: IndexPoly) -> Value:
        """An index as an i128, so that nothing overflows."""
        f = self.function
        total = f.const(I128, 0)
        for monomial, factor in value.terms.items():
            term = f.const(I128, factor)
            for atom in monomial:
                term = f.cast("sext", self.frame.atom(atom), I128.element) * term
            total = total + term
        return total

    def _tested(self, required: Sequence[Obligation], lanes: Lanes, number: int) -> Sequence[Value]:
        if self.tested:
            self.leave_if_failed()
        with self.frame.level(lanes=lanes):
            for obligation in required:
                self.frame.require(obligation)
        return ()

    def leave_if_failed(self) -> None:
        """Leave if a task has failed; a task itself, if that is one before it."""
        assert self.frame.failures is not None
        self.frame.failures.leave_if_failed()

    def nested(
        self, axes: Sequence[Axis], body: Callable[..., Sequence[Value]], carried: Sequence[Value]
    ) -> list[Value]:
        """`carried = body(*carried)` in each iteration of nested loops."""
        if not axes:
            return list(body(*carried))
        return self.loop(axes[0], lambda *c: self.nested(axes[1:], body, c), carried)

    def unrolled(
        self, axis: Axis, count: int, body: Callable[..., Sequence[Value]], *carried: Value
    ) -> list[Value]:
        """`carried = body(*carried)` in each iteration of the axis, `count` of them at a time."""
        steps, results = (count, 1), list(carried)
        for (low, high), step in zip(pairwise(self.cuts(axis, steps)), steps, strict=False):

            def inside(index: Value, *values: Value, step: int = step) -> Sequence[Value]:
                if self.tested:
                    self.leave_if_failed()
                for n in range(step):
                    self.frame.pin(values)
                    with self.frame.level({axis.var: index + n}), self.opened(axis):
                        values = tuple(body(*values))
                return values

            results = self.stretches(low, high, step, results, inside)
            self.frame.pin(results)
            self.frame.forget()
        return results

    def bounds(self, axis: Axis) -> tuple[Value | int, Value | int]:
        """The bounds of an axis, as numbers where they are known."""
        start, stop = as_poly(axis.start), as_poly(axis.stop)
        low: Value | int | None = start.constant
        high: Value | int | None = stop.constant
        low = self.frame.index(start) if low is None else low
        return low, self.frame.index(stop) if high is None else high

    def cuts(self, axis: Axis, steps: Sequence[int]) -> list[Value | int]:
        """The start of an axis, where each of `steps` that follow it ends, and the stop."""
        start, stop = self.bounds(axis)
        if isinstance(start, int) and isinstance(stop, int):
            stop = max(stop, start)
            return [start, *(start + (stop - start) // s * s for s in steps), stop]
        f, apply = self.function, self.frame.apply
        first, last = f.index(start), f.index(stop)
        if not axis.extent.is_at_least(0, self.plan.shape_vars):
            last = apply("smax", partial(f.intrinsic, "smax"), last, first)

        def cut(step: int) -> Value:
            return apply(f"cut {step}", lambda a, b: b - f.remainder(b - a, step), first, last)

        return [first, *map(cut, steps), last]

    def opened(self, axis: Axis) -> AbstractContextManager[None]:
        """A context in which the bounds of `axis` are used in proofs."""
        proof = self.proofs.get(axis.start)
        known = axis if proof is None else Axis(axis.var, proof.start, proof.stop)
        return self.frame.within(known)

    def iterations(
        self, axes: Sequence[Axis], body: Callable[[], None], *, listens: bool = False
    ) -> None:
        """`body` in each iteration of nested loops.

        Python signals may end all but the innermost one, and this too if it `listens`.
        """
        if not axes:
            body()
            return
        inner = axes[1:]
        self.loop(
            axes[0],
            lambda: self.iterations(inner, body, listens=listens),
            listens=listens or bool(inner),
        )

    def several(
        self,
        axis: Axis | None,
        most: int,
        body: Callable[[Sequence[Mapping[Var, Value]]], None],
        *,
        twice: bool = False,
    ) -> None:
        """`body` with the values of the variable in all iterations, at most so many at once.

        The last group may overlap the one before it if iterations may run `twice`.
        """
        if axis is None:
            return body([{}])
        extent, frame = axis.extent.constant, self.frame
        steps = [most >> n for n in range(most.bit_length())]
        if extent is not None and extent <= most:
            steps = [max(extent, 1)]

        def some(index: Value, count: int) -> None:
            places = [index, *(index + n for n in range(1, count))]
            with frame.level(), self.opened(axis):
                frame.settle(places)
                body([{axis.var: place} for place in places])

        if twice and extent is not None and extent > most:
            step = min(range(most, most // 2, -1), key=lambda n: -(-extent // n) * n)
            start, stop = self.bounds(axis)
            last = self.function.index(stop) - step

            def overlapping(index: Value) -> None:
                some(self.function.intrinsic("smin", index, last), step)

            self.stretches(start, stop, step, (), overlapping)
            return None
        cuts = self.cuts(axis, steps)
        for (low, high), step in zip(pairwise(cuts), steps, strict=False):
            self.stretches(low, high, step, (), partial(some, count=step))
        return None

    def chunks(
        self,
        axis: Axis,
        count: int,
        unroll: int,
        body: Callable[..., Sequence[Value]],
        carried: Sequence[Value],
        *,
        wide: bool = False,
        twice: bool = False,
        is_long: bool = False,
    ) -> list[Value]:
        """`carried = body(lanes, number, *carried)` for vectors of iterations of the axis.

        `number` is the position of a vector among `unroll` vectors that follow each other. These
        are the same vector if it is `wide`, and then an iteration may run `twice` if that says so.
        A body that `is_long` is not written again for the rest, then.
        """
        f, frame = self.function, self.frame
        _, stop = self.bounds(axis)

        def full(step: int) -> Callable[..., Sequence[Value]]:
            copies, lanes = (1, step) if wide else (step // count, count)

            def inside(index: Value, *values: Value) -> Sequence[Value]:
                frame.pin(values)
                result: Sequence[Value] = values
                for number in range(copies):
                    at = index if number == 0 else index + number * lanes
                    with self.opened(axis):
                        result = body(Lanes(axis.var, at, lanes, None), number, *result)
                    frame.pin(result)
                return result

            return inside

        def rest(index: Value, *values: Value) -> Sequence[Value]:
            frame.pin(values)
            mask = self._first_lanes(index, f.index(stop), count)
            with self.opened(axis):
                return body(Lanes(axis.var, index, count, mask), 0, *values)

        strides = sorted({count * unroll, count}, reverse=True)
        cuts = self.cuts(axis, strides)
        values = list(carried)
        if wide and twice and is_long and (last := _last_start(cuts, count)) is not None:

            def overlapping(index: Value) -> Sequence[Value]:
                return full(count)(f.intrinsic("smin", index, last))

            for (low, high), step in zip(pairwise(cuts[:-2]), strides, strict=False):
                self.stretches(low, high, step, (), full(step))
            self.stretches(cuts[-3], cuts[-1], count, (), overlapping)
            frame.forget()
            return values
        for (low, high), step in zip(pairwise(cuts), strides, strict=False):
            values = self.stretches(low, high, step, values, full(step))
            frame.pin(values)
        if wide and (places := self._last_vectors(cuts, twice)) is not None:
            for place, lanes in places:
                full(lanes)(f.index(place))
            frame.forget()
            return values
        low, high = map(f.index, cuts[-2:])
        # As a loop, it would add to an index that may be close to the maximum.
        values = f.branch(f.compare("slt", low, high), lambda: rest(low, *values), lambda: values)
        frame.pin(values)
        frame.forget()
        return values

    def _last_vectors(
        self, cuts: Sequence[Value | int], twice: bool
    ) -> list[tuple[int, int]] | None:
        """Vectors without masks between the last two cuts, as starts and lanes; None to have masks.

        They may overlap earlier ones if iterations may run `twice`. With AVX-512, masks are free.
        """
        start, low, stop = cuts[0], *cuts[-2:]
        if not (isinstance(start, int) and isinstance(low, int) and isinstance(stop, int)):
            return None
        rest, every = stop - low, stop - start
        if rest == 0:
            return []
        lanes = max(1 << (rest - 1).bit_length(), 2)
        if every < 2 or self.function.module.has_avx512 or (lanes > rest and not twice):
            return None
        if lanes <= every:
            return [(stop - lanes, lanes)]
        return [(start, lanes // 2), (stop - lanes // 2, lanes // 2)]

    def _first_lanes(self, start: Value, stop: Value, count: int) -> Value:
        """The mask of the lanes from `start` on that are below `stop`."""
        f = self.function
        if not f.module.has_avx512:
            return f.lanes_below(stop - start, count)
        lanes = partial(f.lanes_below, lanes=count)
        return self.frame.apply(f"lanes {count}", lambda a, b: lanes(b - a), start, stop)


def _last_start(cuts: Sequence[Value | int], count: int) -> int | None:
    """The start of the last vector of `count` iterations, if it has to overlap the one before it.

    It is None if there is no rest, or no vector that is complete.
    """
    start, low, stop = cuts[0], *cuts[-2:]
    if not (isinstance(start, int) and isinstance(low, int) and isinstance(stop, int)):
        return None
    return stop - count if low < stop and start + count <= stop else None


def _is_small(value: IndexPoly) -> bool:
    """True if 128 bits hold a value whose atoms have 64 bits, and each part of it."""
    factors = value.terms.items()
    return len(factors) < 1 << 10 and all(len(m) < 2 and abs(n) < 1 << 50 for m, n in factors)
