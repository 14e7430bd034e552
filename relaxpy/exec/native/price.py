"""Whether a kernel is faster as native code than on NumPy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Contraction, Run, runs
from relaxpy.exec.native.llvm.function import Function
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.trees.lanes import with_best_order
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.program import KernelProgram
from relaxpy.exec.native.trees.repeated import repeated_loads
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import Call
from relaxpy.ir.tir.substitution import mentions

_SMALL_PRODUCT = 1 << 15
"""Multiplications up to which a product of matrices takes less time than a call of BLAS."""

_SHORT_SUM = 16
"""Products of an element up to which BLAS gains less than what it reads has cost to compute."""

_LONGEST_BLOCK = 4000
"""Instructions between two jumps up to which LLVM takes less than a second."""


def check_price(program: KernelProgram) -> None:
    """Check that native code is expected to be faster than NumPy.

    Errors:
        RefusedError: it is not.
    """
    members = list(runs(program.plan.trees))
    if host().vector_bits >= 512 and members and all(map(_is_power, members)):
        raise RefusedError("NumPy has a faster function for powers")
    for run in members:
        match run:
            case Run(accumulation=Assignment(), idiom=Contraction() as product):
                pass
            case _:
                continue
        if not _reuses(product, run.axes):
            continue
        if product_of(with_best_order(run)) or repeated_loads(run, program.plan):
            continue
        depth = math.prod((axis.extent for axis in run.over), start=as_poly(1))
        if depth.constant is not None and depth.constant <= _SHORT_SUM:
            continue
        count = math.prod((axis.extent for axis in run.loops), start=as_poly(1))
        if count.constant is None or count.constant > _SMALL_PRODUCT:
            raise RefusedError("a product of matrices runs on BLAS")


def check_length(functions: Iterable[Function]) -> None:
    """Check that functions of a kernel compile in less than a second.

    The time that LLVM takes grows with the square of the longest basic block.

    Errors:
        RefusedError: they take longer.
    """
    longest = max(function.longest_block() for function in functions)
    if longest > _LONGEST_BLOCK:
        raise RefusedError(f"{longest} instructions without a loop take long to compile")


def _is_power(run: Run) -> bool:
    """Whether a run computes powers of single precision from memory, and nothing else."""
    match run.store:
        case Assignment(value=Call(op=Op(name="tir.pow"), args=args) as value):
            return str(value.dtype) == "float32" and all(isinstance(a, BufferLoad) for a in args)
        case _:
            return False


def _reuses(product: Contraction, axes: Sequence[Axis]) -> bool:
    """Whether several elements of the target need the same element of a factor."""
    return any(not mentions(f, {a.var}) for f in product.factors for a in axes)
