"""Primitives that draw at random: numbers, the extents of tiles, and where to compute a block.

What was drawn is the decision of the instruction in the trace, so that it is not drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from math import comb, prod
from random import Random

from relaxpy.errors import MisuseError, ScheduleError, unexpected
from relaxpy.ir.core.dtype import INT32
from relaxpy.ir.tir.expr import FloatImm, IntImm, IterVarKind, Var
from relaxpy.ir.tir.rewrite import inline
from relaxpy.ir.tir.rewrite.state import State, outermost_blocks, refused
from relaxpy.ir.tir.stmt import Block, For
from relaxpy.ir.tir.substitution import mentions
from relaxpy.plugins.schedule import move, scheduled
from relaxpy.plugins.schedule.trace import BlockRV, ExprRV, LoopRV


class Location(IntEnum):
    """Where a block can be computed besides in a loop: in its consumers, or where it is."""

    INLINE = -2
    ROOT = -1


class SamplingKernels(scheduled.ScheduledKernels):
    """Kernels whose schedule is partly drawn at random, by a generator with a seed."""

    @scheduled.primitive
    def sample_categorical(
        self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
    ) -> ExprRV:
        """Draw one of several numbers by their probabilities.

        `decision` is the position of the number to take instead of a drawn one.

        Errors:
            MisuseError (also ValueError): the lists differ in length, or there is no such position.
        """
        numbers = [_number(value) for value in candidates]
        weights = [_number(value) for value in probs]
        if not numbers or len(numbers) != len(weights) or min(weights) < 0 or not sum(weights):
            raise unexpected(probs, f"expected a probability for each of {len(numbers)} candidates")
        if decision is None:
            (decision,) = self._random.choices(range(len(numbers)), weights)
        elif not 0 <= decision < len(numbers):
            raise MisuseError(f"there is no candidate {decision} among {len(numbers)}")
        return self._drawn(decision, [int(numbers[decision])])[0]

    @scheduled.primitive
    def sample_perfect_tile(
        self,
        loop: LoopRV,
        n: int,
        max_innermost_factor: int = 16,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """Draw `n` factors whose product is the extent of a loop, for `split`; all are as likely.

        The last one is at most `max_innermost_factor`, unless that is -1.

        Errors:
            ScheduleError: the extent is not a number, or it has no such factors.
            MisuseError (also ValueError): `decision` is not a list of such factors.
        """
        _, node = self._loop(loop)
        extent = node.extent
        if not isinstance(extent, IntImm):
            raise refused(f"the extent {extent} of loop {node.loop_var.name} is not a number", node)
        if decision is None:
            factors = _tile(self._random, extent.value, n, max_innermost_factor)
            if factors is None:
                raise refused(
                    f"there are no {n} factors of {extent.value} of which the last is at most "
                    f"{max_innermost_factor}",
                    node,
                )
        else:
            factors = [int(_number(factor)) for factor in decision]
            if len(factors) != n or prod(factors) != extent.value:
                raise unexpected(decision, f"expected {n} factors of {extent.value}")
        return self._drawn(factors, factors)

    @scheduled.primitive
    def sample_compute_location(self, block: BlockRV | str, decision: int | None = None) -> LoopRV:
        """Draw a loop for `compute_at`, or that the block is inlined there, or stays where it is.

        Loops of one iteration, and those inside of reductions, are not drawn. `decision` is the
        number of the loop among those around a consumer, -1 for none, and -2 for inlining; of
        numbers that cannot be taken, the next smaller one is.
        """
        state, node = self._block(block)
        places = _locations(state, node)
        chosen = self._random.choice(list(places))
        if decision is not None:
            chosen = max((n for n in places if n <= decision), default=min(places))
        self._decided = int(chosen)
        place = places[chosen]
        if isinstance(place, For):
            return self._loop_rv(state, place)
        return self._enter(state, LoopRV(), place)

    def _place(self, rv: LoopRV) -> For | Location:
        """The loop of a name, or the other location that was drawn."""
        _, item = self._item(rv, LoopRV)
        return item if isinstance(item, Location) else self._loop(rv)[1]

    def _drawn(self, decision: object, values: Sequence[int]) -> list[ExprRV]:
        self._decided = decision
        names = [Var("v", INT32) for _ in values]
        self._numbers |= {name: IntImm(INT32, v) for name, v in zip(names, values, strict=True)}
        return names


def _number(value: object) -> int | float:
    if isinstance(value, (IntImm, FloatImm)):
        return value.value
    if not isinstance(value, (int, float)):
        raise unexpected(value, "expected a number")
    return value


def _tile(random: Random, extent: int, n: int, max_last: int) -> list[int] | None:
    """Draw factors of `extent`, the last one at most `max_last`; None if there are none.

    A divisor is drawn as the last factor as often as the rest has factorizations, so that all
    lists of factors are as likely. An exponent is divided among the others by bars among stars.
    """
    largest = extent if max_last == -1 else min(max_last, extent)
    divisors = [d for d in range(1, largest + 1) if extent % d == 0]
    ways = [_factorizations(extent // d, n - 1) for d in divisors]
    if not any(ways):
        return None
    (last,) = random.choices(divisors, ways)
    factors = [1] * (n - 1)
    for prime, exponent in _primes(extent // last).items():
        bars = sorted(random.sample(range(exponent + n - 2), n - 2))
        ends = [-1, *bars, exponent + n - 2]
        for k in range(n - 1):
            factors[k] *= prime ** (ends[k + 1] - ends[k] - 1)
    return [*factors, last]


def _factorizations(number: int, n: int) -> int:
    """The number of lists of `n` factors whose product is `number`."""
    if n <= 0:
        return int(n == 0 and number == 1)
    return prod(comb(exponent + n - 1, n - 1) for exponent in _primes(number).values())


def _primes(number: int) -> dict[int, int]:
    """The prime factors of a number, and how often each occurs."""
    found: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            number //= divisor
        divisor += 1
    if number > 1:
        found[number] = found.get(number, 0) + 1
    return found


def _locations(state: State, block: Block) -> dict[int, For | Location]:
    """The loops around a consumer in which `block` can be computed, by their numbers there."""
    places: dict[int, For | Location] = {}
    if _is_possible(state, lambda copy: inline.compute_inline(copy, block)):
        places[Location.INLINE] = Location.INLINE
    places[Location.ROOT] = Location.ROOT
    nests = [state.loops(consumer) for consumer in scheduled.consumers(state, block)]
    common = [loop for loop in nests[0] if all(loop in nest for nest in nests)] if nests else []
    parallel = [_is_spatial(loop) for loop in common]
    inside_reduction = False
    for number, loop in enumerate(common):
        if isinstance(loop.extent, IntImm) and loop.extent.value == 1:
            continue
        if parallel[number] and inside_reduction:
            break
        inside_reduction = inside_reduction or not parallel[number]
        if not any(parallel[number:]):
            break
        if _is_possible(state, lambda copy, at=loop: _compute_at(copy, block, at)):  # type: ignore[misc]
            places[number] = loop
    return places


def _compute_at(state: State, block: Block, loop: For) -> None:
    move.compute_at(state, block, loop, move.LAST, preserve_unit_loops=True)


def _is_possible(state: State, step: Callable[[State], None]) -> bool:
    try:
        step(state.copy())
    except ScheduleError:
        return False
    return True


def _is_spatial(loop: For) -> bool:
    """True if no reduction variable of its blocks depends on a loop."""
    return all(
        it.iter_type == IterVarKind.DataPar
        for realize in outermost_blocks(loop)
        for it, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if mentions(value, {loop.loop_var})
    )
