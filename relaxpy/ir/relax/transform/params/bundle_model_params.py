"""BundleModelParams: the parameters after the inputs become one tuple."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    ObjectStructInfo,
    SeqExpr,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, joined
from relaxpy.ir.relax.rewrite.replace import replace_variables

N = TypeVar("N", bound=Node)


@dataclass(frozen=True)
class BundleModelParams(Pass):
    """Puts the parameters after the first `num_input` ones into one tuple, the last parameter.

    Functions without the attribute `num_input` stay as they are. A field is read before its first
    use. The tuple is named `param_tuple_name`, or else `model_params`.

    Example:
        @I.ir_module
        class Before:
            @R.function
            def main(
                x: R.Tensor((4,), "float32"),
                v: R.Tensor((4,), "float32"),
                w: R.Tensor((4,), "float32"),
            ):
                R.func_attr({"num_input": 1})
                y = R.multiply(x, v)
                z = R.add(y, w)
                return z

        @I.ir_module
        class After:
            @R.function
            def main(
                x: R.Tensor((4,), "float32"),
                weights: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
            ):
                R.func_attr({"num_input": 1})
                v = weights[0]
                y = R.multiply(x, v)
                w = weights[1]
                z = R.add(y, w)
                return z

        BundleModelParams("weights")

    Errors:
        TransformError: `num_input` is not a number of parameters of its function.
        MisuseError (also TypeError): `param_tuple_name` is not a string.

    """

    param_tuple_name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.param_tuple_name, str | None):
            raise MisuseError(
                f"param_tuple_name is a name, found {self.param_tuple_name!r:.60}",
                about=self.param_tuple_name,
            )

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        name = self.param_tuple_name or "model_params"
        mod = normalize_module(mod)
        return normalize_module(map_functions(mod, Function, lambda f: bundled(f, name)))


def input_count(func: Function, pass_name: str) -> int | None:
    """The attribute `num_input` of a function: how many parameters are inputs, not weights.

    Errors:
        TransformError: it is not a number of parameters of the function.
    """
    count = func.attrs.get("num_input")
    if count is None:
        return None
    if not isinstance(count, int) or not 0 <= count <= len(func.params):
        raise TransformError(
            f"{pass_name}: num_input counts some of the {len(func.params)} parameters, found "
            f"{count!r:.60}",
            span=func.span,
        )
    return count


def bundled(func: Function, name: str) -> Function:
    """The function with one tuple in place of the parameters after its inputs."""
    count = input_count(func, "BundleModelParams")
    if count is None:
        return func
    weights = func.params[count:]
    sinfos = tuple(param.struct_info or ObjectStructInfo() for param in weights)
    pack = Var(name, TupleStructInfo(sinfos), func.span)
    fields = {var: TupleGetItem(pack, k) for k, var in enumerate(weights)}
    return rebuild(
        func, params=(*func.params[:count], pack), body=ReadBeforeUse(fields).sequence(func.body)
    )


class ReadBeforeUse(BindingRewriter):
    """Binds each variable of a table to its value just before it is used where it is not bound."""

    def __init__(self, values: Mapping[Var, TupleGetItem]) -> None:
        super().__init__()
        self.values = values
        self._read: dict[Node, Var] = {}

    def read(self, var: Var, kind: type[Var]) -> tuple[Var, list[Binding]]:
        """A new variable with the value of `var`, and its bindings."""
        new = kind(var.name_hint, None, var.span)
        return new, [VarBinding(new, replace(self.values[var], span=var.span), var.span)]

    @override
    def sequence(self, seq: SeqExpr) -> SeqExpr:
        outer = dict(self._read)
        after = super().sequence(seq)
        before, body = self._with_reads(after.body, Var)
        if before:
            blocks = joined((*after.blocks, BindingBlock(tuple(before))))
            after = rebuild(after, blocks=tuple(blocks), body=body)
        elif body is not after.body:
            after = rebuild(after, body=body)
        self._read = outer
        return after

    @override
    def block(self, block: BindingBlock) -> list[BindingBlock]:
        outer = dict(self._read)
        after = list(super().block(block))
        if isinstance(block, DataflowBlock):
            self._read = outer
        return after

    @override
    def binding(self, binding: Binding, block: BindingBlock) -> Iterable[Binding | BindingBlock]:
        kind = DataflowVar if isinstance(block, DataflowBlock) else Var
        if isinstance(binding.value, If):
            before, cond = self._with_reads(binding.value.cond, kind)
            if cond is not binding.value.cond:
                binding = replace(binding, value=rebuild(binding.value, cond=cond))
        elif isinstance(binding.value, Function):
            before = []
        else:
            before, binding = self._with_reads(binding, kind)
        return [*before, *super().binding(binding, block)]

    def _with_reads(self, node: N, kind: type[Var]) -> tuple[list[Binding], N]:
        """What must be bound before a node is evaluated, and the node with the new variables."""
        used = [var for var in occurring_vars(node) if var in self.values]
        before: list[Binding] = []
        for var in used:
            if var not in self._read:
                self._read[var], bindings = self.read(var, kind)
                before += bindings
        if used:
            node = replace_variables(node, {var: self._read[var] for var in used})
        return before, node
