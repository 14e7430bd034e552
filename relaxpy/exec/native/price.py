"""Whether a kernel is faster as native code than on NumPy."""

from __future__ import annotations

from collections.abc import Iterable

from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.steps import ArrayStep, Contract, Map, Scalar, flatten_steps
from relaxpy.exec.native.contract import product_of
from relaxpy.exec.native.frame import RefusedError
from relaxpy.exec.native.groups import group_of
from relaxpy.exec.native.llvm import Function
from relaxpy.exec.native.machine import host
from relaxpy.exec.native.tree import Program
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import Call
from relaxpy.ir.tir.substitution import mentions

_SMALL_PRODUCT = 1 << 15
"""Multiplications up to which a product of matrices takes less time than a call of BLAS."""

_LONGEST_BLOCK = 4000
"""Instructions between two jumps up to which LLVM takes less than a second."""


def check_price(program: Program) -> None:
    """Check that native code is faster.

    Errors:
        RefusedError: it is not.
    """
    steps = list(flatten_steps(program.plan.steps))
    if host().vector_bits >= 512 and steps and all(map(_is_power, steps)):
        raise RefusedError("NumPy has a faster function for powers")
    for step in steps:
        if not isinstance(step, Contract) or not _reuses(step):
            continue
        if product_of(group_of(step, (), frozenset()), program.root):
            continue
        count = as_poly(1)
        for axis in (*step.axes, *step.over):
            count = count * axis.extent
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


def _is_power(step: ArrayStep | Scalar) -> bool:
    """Whether a step computes powers of single precision from memory, and nothing else."""
    match step:
        case Map(statement=Assignment(value=Call(op=Op(name="tir.pow"), args=args) as value)):
            return str(value.dtype) == "float32" and all(isinstance(a, BufferLoad) for a in args)
        case _:
            return False


def _reuses(step: Contract) -> bool:
    """Whether several elements of the target need the same element of a factor."""
    return any(not mentions(f, {a.var}) for f in step.factors for a in step.axes)
