"""Outlines runs of kernel calls from Relax functions that run in Python, as native functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from relaxpy.exec.machine.fast_paths import SHARED_WEIGHTS
from relaxpy.exec.machine.tuning import Shared
from relaxpy.exec.program.graph.parameters import is_native
from relaxpy.exec.program.lower.known import OBJECT, Known, kernel_use
from relaxpy.exec.runtime.checks import span_of_binding
from relaxpy.ir.equality.structural import structural_equal, structural_hash
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import (
    binding_vars,
    defined_symbolic_vars,
    occurring_vars,
    used_shape_vars,
)
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.exec.program.lower.python_module import ModuleLowering


Compile: TypeAlias = Callable[[rx.Function], "rx.GlobalVar | None"]


class OutlinedFunctions:
    """The outlined functions of a module.

    Equal runs, as those of layers are, share one; those at other positions share machine code.
    """

    def __init__(self) -> None:
        self._known: dict[int, list[_Outlined]] = {}

    def name_of(self, compiled: Compile, func: rx.Function) -> rx.GlobalVar | None:
        """The name of an equal function at the same positions; maybe a new one."""
        found = self._equal(func)
        spans = _spans(func)
        for other in found:
            if other.spans == spans:
                return other.name
        name = compiled(func)
        self._known[structural_hash(func, whole_arrays=False)].append(_Outlined(func, spans, name))
        return name

    def twin_of(self, func: rx.Function) -> str | None:
        """The name of an equal function at other positions that has a native form."""
        names = (other.name for other in self._equal(func) if other.name is not None)
        return next((name.name_hint for name in names), None)

    def _equal(self, func: rx.Function) -> Sequence[_Outlined]:
        known = self._known.setdefault(structural_hash(func, whole_arrays=False), [])
        return [other for other in known if structural_equal(other.func, func)]


def _spans(func: rx.Function) -> Sequence[object]:
    return [span_of_binding(b) for block in func.body.blocks for b in block.bindings]


@dataclass(frozen=True, slots=True, eq=False)
class _Outlined:
    func: rx.Function
    spans: Sequence[object]
    name: rx.GlobalVar | None


class Outliner:
    """Replaces the runs of native kernel calls in `func` by calls of functions.

    `name_of` is that of a function, or None if it has no native form. The struct info of all
    operands of such a run is known, and that of their variables, which has no size of an inner
    scope.
    """

    def __init__(self, func: rx.Function, context: ModuleLowering, name_of: Compile) -> None:
        self._func, self._context, self._name_of = func, context, name_of
        sizes = frozenset(defined_symbolic_vars(func))
        self._known = Known(context, func, (), lambda: sizes)
        self._known.add_parameters(func)
        self._uses = Counter(_uses_in(func.body))

    def outlined(self) -> rx.Function:
        """The function itself if there is no run."""
        body = self._sequence(self._func.body)
        return self._func if body is self._func.body else replace(self._func, body=body)

    def _sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        blocks = tuple(map(self._block, seq.blocks))
        same = all(a is b for a, b in zip(blocks, seq.blocks, strict=True))
        return seq if same else replace(seq, blocks=blocks)

    def _block(self, block: rx.BindingBlock) -> rx.BindingBlock:
        bindings: list[rx.Binding] = []
        run: list[rx.VarBinding] = []
        bound: set[rx.Var] = set()
        for binding in block.bindings:
            is_independent = bound.isdisjoint(binding_vars(binding))
            if isinstance(binding, rx.VarBinding) and self._is_in_run(binding, bound):
                run.append(binding)
                bound.add(binding.var)
            elif is_independent and self._is_projection(binding):
                bindings.append(binding)  # before the run, which does not affect it
            else:
                bindings += [*self._calls(run), self._nested(binding)]
                run, bound = [], set()
            self._known.add(binding)
        bindings += self._calls(run)
        same = len(bindings) == len(block.bindings)
        return (
            block
            if same and bindings == [*block.bindings]
            else replace(block, bindings=tuple(bindings))
        )

    def _nested(self, binding: rx.Binding) -> rx.Binding:
        value = binding.value
        if not isinstance(value, rx.If):
            return binding
        first, second = self._sequence(value.true_branch), self._sequence(value.false_branch)
        self._known.add_branch(value, [*map(self._known, (value.true_branch, value.false_branch))])
        if first is value.true_branch and second is value.false_branch:
            return binding
        return replace(binding, value=replace(value, true_branch=first, false_branch=second))

    # ---- what is known

    def _is_projection(self, binding: rx.Binding) -> bool:
        """True if a binding selects a field of what is known to be a tuple."""
        value = binding.value
        return isinstance(value, rx.TupleGetItem) and self._known(value) is not OBJECT

    def _is_tensor(self, expr: rx.Expr) -> bool:
        """True if an operand is known to be a tensor that native code takes."""
        known = self._known(expr)
        return is_native(known) and (isinstance(expr, rx.Constant) or known == expr.struct_info)

    def _is_in_run(self, binding: rx.VarBinding, bound: set[rx.Var]) -> bool:
        """True if a binding may be in a run, which has `bound` variables."""
        match binding.value:
            case rx.TupleGetItem(tuple_value=rx.Var() as var):
                return var in bound and self._is_projection(binding)
            case value:
                use = kernel_use(value, self._context.kernel_of)
                return (
                    use is not None
                    and use.callee.kernel is not None
                    and use.callee.kernel.is_native
                    and all(map(self._is_tensor, use.inputs))
                    and all(map(is_native, use.outputs))
                    and binding.var.struct_info == self._known(value)
                )

    # ---- runs

    def _calls(self, run: Sequence[rx.VarBinding]) -> Sequence[rx.Binding]:
        """The bindings instead of a run, whose halves are tried if it has no native form."""
        if sum(map(self._is_work, run)) < Shared.FEWEST_CALLS:
            return run
        func, results = self._function(run)
        name = self._name_of(func)
        if name is None:
            middle = len(run) // 2
            return [*self._calls(run[:middle]), *self._calls(run[middle:])]
        args = tuple(map(_argument, func.params))
        sinfo = func.ret_struct_info
        call = rx.Call(name, args, struct_info=sinfo, span=_span_of(run))
        kind = type(run[-1].var)
        if len(results) == 1:
            return [rx.VarBinding(results[0], call)]
        whole = kind("results", sinfo)
        fields = [
            rx.VarBinding(var, rx.TupleGetItem(whole, index)) for index, var in enumerate(results)
        ]
        return [rx.VarBinding(whole, call), *fields]

    def _is_work(self, binding: rx.VarBinding) -> bool:
        use = kernel_use(binding.value, self._context.kernel_of)
        return use is not None and not self._context.is_reshape(use.callee)

    def _function(self, run: Sequence[rx.VarBinding]) -> tuple[rx.Function, Sequence[rx.Var]]:
        """The function of a run, and the variables that have its results."""
        bound = dict.fromkeys(binding.var for binding in run)
        inner = Counter(var for binding in run for var in binding_vars(binding))
        results = [var for var in bound if self._uses[var] > inner[var]]
        inputs = [var for var in inner if var not in bound]
        sinfos = [self._known(var) for var in inputs]
        known = {
            dim
            for sinfo in sinfos
            if isinstance(sinfo, rx.TensorStructInfo)
            for dim in sinfo.get_shape() or ()
        }
        nodes = (*sinfos, *(binding.value for binding in run))
        sizes = dict.fromkeys(size for node in nodes for size in used_shape_vars(node))
        scalars = [
            rx.Var(size.name, rx.PrimStructInfo(size.dtype, size))
            for size in sizes
            if size not in known
        ]
        block = rx.DataflowBlock(tuple(run))
        result = results[0] if len(results) == 1 else rx.Tuple(tuple(results))
        infos = [self._known(var) for var in results]
        ret = infos[0] if len(results) == 1 else rx.TupleStructInfo(tuple(infos))
        body = rx.SeqExpr((block,), result)
        kept = {k: v for k, v in self._func.attrs.items() if k == SHARED_WEIGHTS}
        return rx.Function((*inputs, *scalars), body, ret, attrs=kept), results


def _argument(param: rx.Var) -> rx.Expr:
    match param.struct_info:
        case rx.PrimStructInfo(value=tir.Var() as size):
            return rx.PrimValue(size)
        case _:
            return param


def _span_of(run: Sequence[rx.Binding]) -> Span | None:
    """The smallest span that covers those of bindings in the same file."""
    spans = [span for binding in run if (span := span_of_binding(binding)) is not None]
    if len({span.source for span in spans}) != 1:
        return None
    first = min(spans, key=lambda span: (span.line, span.column))
    last = max(spans, key=lambda span: (span.end_line, span.end_column))
    return replace(first, end_line=last.end_line, end_column=last.end_column)


def _uses_in(seq: rx.Expr) -> Iterator[rx.Var]:
    """The variables in a body, once for each binding that uses it."""
    if not isinstance(seq, rx.SeqExpr):
        yield from occurring_vars(seq)
        return
    for block in seq.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, rx.If):
                yield from occurring_vars(binding.value.cond)
                yield from _uses_in(binding.value.true_branch)
                yield from _uses_in(binding.value.false_branch)
            else:
                yield from binding_vars(binding)
    yield from occurring_vars(seq.body)
