"""Checks that native code of a kernel is expected to beat NumPy, and says why it is slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Contraction, Plan, Run, runs
from relaxpy.exec.machine.tuning import CodeSize, Products
from relaxpy.exec.native.calls.entry import table_offset
from relaxpy.exec.native.calls.interpreter import fits_interpreter
from relaxpy.exec.native.llvm.narrow_floats import IN_BFLOAT16
from relaxpy.exec.native.llvm.writer import Function
from relaxpy.exec.native.machine_code.machine import current, unfit
from relaxpy.exec.native.trees.flat import decoded_again
from relaxpy.exec.native.trees.lanes import with_best_order
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.program import KernelProgram
from relaxpy.exec.native.trees.repeated import repeated_loads
from relaxpy.exec.native.trees.short_factors import short_factors
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import Call, Cast
from relaxpy.ir.tir.substitution import mentions


def check_native(plan: Plan) -> None:
    """Check that a kernel only has constructs that native code supports.

    Errors:
        RefusedError: it has something else.
    """
    # A CPU that runs no native code does not try it; code for others is checked where it is loaded.
    if not (unfit() or (fits_interpreter() and table_offset())):
        raise RefusedError("it cannot read the arrays of this Python or NumPy")
    check_constructs(plan)


def check_constructs(plan: Plan) -> None:
    """Check that a kernel only has constructs that native code supports, whoever calls it.

    Errors:
        RefusedError: it has something else.
    """
    if plan.calls_functions:
        raise RefusedError("it calls functions")
    if plan.views or plan.nest.pointers or plan.nest.constants:
        raise RefusedError("it has views of memory, pointers or constants")


def check_price(program: KernelProgram) -> None:
    """Check that native code is expected to be faster than NumPy.

    Errors:
        RefusedError: it is not.
    """
    members = list(runs(program.plan.trees))
    # On AVX-512, a million powers take 0.9 ms on NumPy, and 2.3 as native code.
    if current().vector_bits >= 512 and members and all(map(_is_power, members)):
        raise RefusedError("NumPy has a faster function for powers")
    products = [
        r for r in members if r.accumulation is not None and isinstance(r.idiom, Contraction)
    ]
    if not all(any(case.holds(run, program) for case in _FAST_PRODUCTS) for run in products):
        raise RefusedError("a product of matrices runs on BLAS")


class _FastProduct(NamedTuple):
    """A case in which a sum of products is as fast as a matmul of BLAS; `why` has the times."""

    holds: Callable[[Run, KernelProgram], bool]
    why: str


def _reads_once(run: Run, program: KernelProgram) -> bool:
    """True if each element of the target needs its own elements of all factors."""
    factors = run.idiom.factors if isinstance(run.idiom, Contraction) else ()
    return all(mentions(factor, {axis.var}) for factor in factors for axis in run.axes)


def _has_windows(run: Run, program: KernelProgram) -> bool:
    """True if memory has where each sum begins."""
    factors = run.idiom.factors if isinstance(run.idiom, Contraction) else ()
    summed, parallel = ({axis.var for axis in axes} for axes in (run.over, run.axes))
    return any(
        mentions(start, parallel) and not mentions(start, summed)
        for factor in factors
        for load in occurrences(factor, BufferLoad)
        for index in load.indices
        if mentions(index, summed)
        for start in occurrences(index, BufferLoad)
    )


def _has_form(run: Run, program: KernelProgram) -> bool:
    """True if it is a matmul in tiles, or of few rows."""
    return product_of(with_best_order(run)) is not None


def _decodes(run: Run, program: KernelProgram) -> bool:
    """True if it has packed weights, or those of an incomplete last group."""
    decoded = _decoded(program)
    return run in decoded or _is_remainder(run, decoded)


def _is_short_sum(run: Run, program: KernelProgram) -> bool:
    """True if it adds up to `SHORT_SUM` products."""
    return _count(run.over) <= Products.SHORT_SUM


def _is_small(run: Run, program: KernelProgram) -> bool:
    """True if it has up to `SMALL` multiplications."""
    return _count(run.loops) <= Products.SMALL


def _count(axes: Sequence[Axis]) -> float:
    """The iterations of `axes`; infinity if they are not known."""
    count = math.prod((axis.extent for axis in axes), start=as_poly(1)).constant
    return math.inf if count is None else count


_FAST_PRODUCTS: Final = (
    _FastProduct(
        _reads_once,
        "no element is reused, which is what BLAS is fast at: 1024 dot products of 16 elements "
        "take 1.6 us, and 15 on NumPy; of 1024 elements 90, and 106",
    ),
    _FastProduct(
        _has_windows,
        "NumPy would copy the elements of all windows: 4096 windows of 64 elements by a vector "
        "take 35 us, and 385; by 64 vectors 0.55 ms, and 0.77; but 256 by 256 vectors 11, and 7.6",
    ),
    _FastProduct(
        _has_form,
        "native code is as fast as BLAS, and fuses the steps after it: a product of 64^3 takes "
        "4.7 us, and 6.3; of 512^3 2.5 ms, and 2.6",
    ),
    _FastProduct(
        _decodes,
        "NumPy would store the decoded weights: 16 rows by 1024 x 1024 weights of 4 bits take "
        "0.44 ms, and 6.5; 128 rows 2.5, and 9.1",
    ),
    _FastProduct(
        _is_short_sum,
        "computing the operands takes longer than BLAS saves: 16 kernels of 3 x 3 over a padded "
        "image of 64 x 64 take 107 us, and 219; 8 steps by 1024 x 1024 sums 0.33 ms, and 0.66, but "
        "by 256 x 256 20 us, and 15",
    ),
    _FastProduct(
        _is_small,
        "a call of BLAS takes longer: 24^3 products of sums take 1.2 us, and 2.9; 64^3 are more "
        "than `SMALL`, and would take 10, and 7.7",
    ),
)
"""The times are of one thread with AVX-512: of native code, and on NumPy."""


def _is_remainder(run: Run, decoded: Sequence[Run]) -> bool:
    """True if a product has the weights of an incomplete last group of packed ones.

    These are few; the others are in the sum that it adds to, one of those in `decoded`.
    """
    targets = {each.accumulation.target for each in decoded if each.accumulation is not None}
    return run.accumulation is not None and run.accumulation.target in targets


def _decoded(program: KernelProgram) -> list[Run]:
    """The sums with packed elements."""
    return [
        run
        for run in runs(program.plan.trees)
        if run.accumulation is not None and repeated_loads(run, program.plan) is not None
    ]


def slow_reasons(program: KernelProgram) -> Iterator[str]:
    """The reason why each native run is slower than others of its kind, if any."""
    decoded = _decoded(program)
    for run in runs(program.plan.trees):
        if run not in decoded:
            reason = "the weights of a last group that is not whole are decoded for each row"
            yield reason if _is_remainder(run, decoded) else ""
        elif axes := decoded_again(run, program):
            names = ", ".join(axis.var.name for axis in axes)
            yield f"weights are decoded again in each iteration of {names}"
        else:
            yield ""


def check_length(functions: Iterable[Function]) -> None:
    """Check that functions of a kernel compile in less than a second.

    LLVM takes time quadratic in the longest basic block.

    Errors:
        RefusedError: they take longer.
    """
    longest = max(function.longest_block() for function in functions)
    if longest > CodeSize.LONGEST_BLOCK:
        raise RefusedError(f"{longest} instructions without a loop take long to compile")


def _is_power(run: Run) -> bool:
    """True if a run only computes float32 powers of elements of memory."""
    match run.store:
        case Assignment(value=Call(op=Op(name="tir.pow"), args=args) as value):
            return str(value.dtype) == "float32" and all(isinstance(a, BufferLoad) for a in args)
        case _:
            return False


def varying_instructions(program: KernelProgram) -> str:
    """The reason why the results of a kernel may have other bits on another CPU; or empty."""
    members = list(runs(program.plan.trees))
    if any(map(_sums_bfloat16, members)) or short_factors(program.plan):
        return "instructions for bfloat16"
    return "NumPy's power on AVX-512" if members and all(map(_is_power, members)) else ""


def _sums_bfloat16(run: Run) -> bool:
    """True if a run sums products of floats for which some CPUs have instructions.

    These round in another way than products and sums of float32.
    """
    match run.idiom:
        case Contraction(factors=factors):
            read = [f.value if isinstance(f, Cast) else f for f in factors]
            return sum(str(f.dtype) in IN_BFLOAT16 for f in read) >= 2
        case _:
            return False
