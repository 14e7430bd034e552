"""Emits contractions as matmuls of views, so that BLAS needs no copies."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Container, Sequence

from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Contraction, Run
from relaxpy.exec.machine.tuning import NumPy
from relaxpy.exec.numpy.emit.arrays import ArrayEmitter
from relaxpy.exec.numpy.emit.scope import KernelScope, dtype_name
from relaxpy.exec.numpy.python_ast import Code, assign, attribute, call, do, item, path, text
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.core.dtype import accumulator
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Roles:
    """The roles of axes in a product of two factors: in the left or right factor only, or summed.

    The `batch` axes are the outermost, in one or both factors.
    """

    batch: tuple[Axis, ...]
    left: tuple[Axis, ...]
    right: tuple[Axis, ...]
    summed: tuple[Axis, ...]


class ContractionEmitter:
    """Emits the contraction `product` of `run`; `emitter` creates an ArrayEmitter for a layout."""

    def __init__(
        self,
        scope: KernelScope,
        emitter: Callable[[Sequence[Axis]], ArrayEmitter],
        run: Run,
        statement: Assignment,
        product: Contraction,
    ) -> None:
        self.scope = scope
        self.emitter = emitter
        self.run, self.statement, self.product = run, statement, product
        self.dtype = statement.target.dtype
        self.body: list[ast.stmt] = []
        self.values: list[ast.expr] = []
        """The factors, each assigned to a variable if they are regrouped."""
        self.spatial = self._target_order()

    def _target_order(self) -> tuple[Axis, ...]:
        """The spatial axes in the order of the target's dimensions."""
        order: list[Axis] = []
        variables = {a.var for a in self.run.axes}
        for index in self.statement.indices:
            linear = affine(index, variables)
            coefficients = linear.coefficients if linear is not None else {}
            order += [a for a in self.run.axes if a.var in coefficients and a not in order]
        return tuple(order)

    def lines(self, *, accumulate: bool) -> list[ast.stmt]:
        """Lines that store the contraction in the target, or add it."""
        summed = {a.var for a in self.run.over}
        factors = self.product.factors
        summed_factors = [f for f in factors if mentions(f, summed)]
        scales = [f for f in factors if not mentions(f, summed)]
        roles = self._roles(summed_factors) if len(summed_factors) == 2 else None
        if roles is not None:
            self.spatial = (*roles.batch, *roles.left, *roles.right)
        target = self.emitter(self.spatial)
        statement = self.statement
        out = target.output(statement.target, statement.indices)
        self.body += target.lines
        reads = any(
            load.buffer is statement.target for f in self.product.factors for load in loads(f)
        )
        direct = not (accumulate or scales or reads or accumulator(self.dtype) is not self.dtype)
        if roles is None:
            product: ast.expr = self._einsum(summed_factors, out.node if direct else None)
        else:
            product = self._product(summed_factors, roles, out.node if direct else None)
        if direct:
            self.body.append(do(product))
            return self.body
        for factor in scales:
            scale = self.emitter(self.spatial)
            value = scale.compute(factor)
            self.body += scale.lines
            product = call("np.multiply", product, self._named(value.node))
        if accumulator(self.dtype) is not self.dtype:
            product = call(attribute(product, "astype"), dtype_name(self.dtype))
        if accumulate:
            self.body.append(do(call("np.add", out.node, product, out=out.node)))
        else:
            node = out.node if isinstance(out.node, ast.Subscript) else item(out.node, ...)
            self.body.append(assign(node, product))
        return self.body

    def _axes(self, factor: PrimExpr) -> set[Var]:
        return {a.var for a in (*self.run.axes, *self.run.over) if mentions(factor, {a.var})}

    def _roles(self, factors: Sequence[PrimExpr]) -> _Roles | None:
        """The roles of axes if the factors form a matmul, or None."""
        a, b = (self._axes(f) for f in factors)
        if any(x.var not in a or x.var not in b for x in self.run.over):
            return None
        if any(x.var not in a | b for x in self.spatial):
            return None
        for count in range(len(self.spatial) + 1):
            # With fewer batch axes the matrices are larger.
            batch, matrix_axes = self.spatial[:count], self.spatial[count:]
            left = tuple(x for x in matrix_axes if x.var not in b)
            right = tuple(x for x in matrix_axes if x.var not in a)
            if matrix_axes not in ((*left, *right), (*right, *left)):
                continue
            if not (left and right) and (roles := self._transposed_roles(a, b)) is not None:
                return roles
            rows, columns = (left, right) if matrix_axes == (*left, *right) else (right, left)
            return _Roles(batch, rows, columns, self.run.over)
        return None

    def _transposed_roles(self, a: Container[Var], b: Container[Var]) -> _Roles | None:
        """The roles of axes if the contraction is a matmul with another order of batch axes.

        Matrices must have one axis of rows and one of columns, the last axis of the target.
        """
        batch = tuple(x for x in self.spatial if x.var in a and x.var in b)
        others = tuple(x for x in self.spatial if x not in batch)
        if len(others) != 2 or others[1] is not self.spatial[-1]:
            return None
        rows, columns = others
        if (rows.var in a) == (columns.var in a):
            return None
        return _Roles(batch, (rows,), (columns,), self.run.over)

    def _factor(self, factor: PrimExpr, layout: Sequence[Axis]) -> ast.expr:
        arrays = self.emitter(layout)
        value = arrays.compute(factor)
        self.body += arrays.lines
        node = value.node
        if not self._axes(factor) <= value.dims:
            # A factor may mention an axis on which its value does not depend.
            node = call("rt.broadcast_to", node, tuple(self.scope.index(a.extent) for a in layout))
        wide = accumulator(self.dtype)
        if wide is not self.dtype:
            node = call(attribute(node, "astype"), dtype_name(wide))
        return self._named(node)

    def _named(self, factor: ast.expr) -> ast.expr:
        """A factor, assigned to a variable if factors are regrouped, to be tested for overflow."""
        if self.product.regrouped and not isinstance(factor, ast.Name):
            name = self.scope.names.fresh("t")
            self.body.append(assign(name, factor))
            factor = path(name)
        self.values.append(factor)
        return factor

    def _product(
        self, factors: Sequence[PrimExpr], roles: _Roles, out: ast.expr | None
    ) -> ast.expr:
        first, second = factors
        if any(x.var not in self._axes(first) for x in roles.left) or (
            not roles.left and any(x.var in self._axes(first) for x in roles.right)
        ):
            first, second = second, first
        batch, left, right, summed = roles.batch, roles.left, roles.right, roles.summed
        counts = [len(batch), len(left), len(right), len(summed)]
        if max(counts[1:]) > 1:
            a = self._factor(first, (*batch, *left, *summed))
            b = self._factor(second, (*batch, *summed, *right))
            return self._called("rt.contract", [a, b, tuple(counts)], out)
        if not left and not right:
            a = self._factor(first, (*batch, *summed))
            b = self._factor(second, (*batch, *summed))
            return self._called("np.vecdot", [a, b], out)
        a = self._factor(first, (*batch, *left, *summed))
        b = self._factor(second, (*batch, *summed, *right))
        if out is not None and not batch and self._is_short(left, right, summed):
            return call("rt.dot", a, b, out)
        name = "rt.matmul" if self.dtype.is_int else "np.matmul"
        if not batch or (left and right):
            return self._called(name, [a, b], out)
        # A vector of each batch is a matrix of one row or of one column.
        row, column = (..., None, ast.Slice()), (..., None)
        a, b = (a, item(b, *column)) if left else (item(a, *row), b)
        if out is not None:
            return call(name, a, b, out=item(out, *(column if left else row)))
        product = call(name, a, b)
        return item(product, ..., 0) if left else item(product, ..., 0, ast.Slice())

    def _is_short(self, *axes: Sequence[Axis]) -> bool:
        """True if a float matmul is so small that the overhead of its call matters.

        The last axes are those of the sum. For sums of one element, `ndarray.dot` loses NaN.
        """
        counts = [math.prod((a.extent for a in group), start=as_poly(1)) for group in axes]
        total, summed = math.prod(counts, start=as_poly(1)).constant, counts[-1].constant
        if total is None or summed is None or not accumulator(self.dtype).is_float:
            return False
        return total < NumPy.FEW_PRODUCTS and summed != 1

    def _called(self, name: str, args: Sequence[Code], out: ast.expr | None) -> ast.expr:
        return call(name, *args) if out is None else call(name, *args, out=out)

    def _einsum(self, factors: Sequence[PrimExpr], out: ast.expr | None) -> ast.expr:
        axes = (*self.spatial, *self.run.over)
        letters = {a.var: chr(ord("a") + n) for n, a in enumerate(axes)}
        operands, nodes = [], []
        for factor in factors:
            inside = self._axes(factor)
            layout = [a for a in axes if a.var in inside]
            operands.append("".join(letters[a.var] for a in layout))
            nodes.append(self._factor(factor, layout))
        covered = [a for a in self.spatial if any(letters[a.var] in o for o in operands)]
        result = "".join(letters[a.var] for a in covered)
        subscripts = f"{','.join(operands)}->{result}"
        keywords: dict[str, Code] = {"optimize": True} if len(factors) > 2 else {}
        if len(covered) == len(self.spatial):
            if out is not None:
                keywords["out"] = out
            return call("np.einsum", text(subscripts), *nodes, **keywords)
        node: ast.expr = call("np.einsum", text(subscripts), *nodes, **keywords)
        indices = [ast.Slice() if a in covered else None for a in self.spatial]
        node = item(node, *indices) if covered else node
        if out is None:
            return node
        return call("np.copyto", out, node)
