"""Computes several products of the same data as one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from itertools import accumulate
from typing import Any, ClassVar

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.scopes import Scopes, is_atom
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.op.makers import build
from relaxpy.ir.relay.transform.passes import RelayPass, map_functions
from relaxpy.ir.relay.transform.rewriting import attributes, called, shape_of


@dataclass(frozen=True)
class Combination:
    """How calls are combined: the axes of the outputs, and the attribute with their number."""

    weight_axis: int
    result_axis: int
    outputs: str = ""


@dataclass(frozen=True)
class CombineParallel(RelayPass):
    """Compute products with the same data and attributes as one, from `min_num_branches` on.

    Their weights are names and constants of known shapes, which are concatenated; the result is
    sliced.

    Errors:
        MisuseError (also TypeError): `min_num_branches` is not an integer.
    """

    min_num_branches: int = 3
    operator: ClassVar[str]

    def __post_init__(self) -> None:
        number = self.min_num_branches
        if isinstance(number, bool) or not isinstance(number, int):
            raise MisuseError(f"min_num_branches is an integer, found {number!r:.60}", about=number)

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        new = mod
        while True:
            typed = infer_module(new)
            combined = map_functions(typed, self._combined)
            if combined is typed:
                return new
            new = combined

    def _combined(self, function: rl.Function) -> rl.RelayExpr:
        """Return a function in which one group of calls is replaced."""
        scopes = Scopes(function)
        groups: dict[Hashable, list[rl.Call]] = {}
        for node in scopes.nodes:
            if isinstance(node, rl.Call) and called(node, self.operator):
                key = self._key(node)
                if key is not None:
                    groups.setdefault((id(scopes.of[id(node)]), *key), []).append(node)
        for group in groups.values():
            if len(group) >= self.min_num_branches:
                return _replaced(function, group, self.combined(group))
        return function

    def _key(self, call: rl.Call) -> tuple[Hashable, ...] | None:
        """Return what the calls of a group have in common; None if a call stays."""
        data, weight = call.args
        plan, shape = self.plan(attributes(call)), shape_of(weight)
        if plan is None or shape is None or not is_atom(weight) or shape_of(data) is None:
            return None
        kept = [size for axis, size in enumerate(shape) if axis != plan.weight_axis]
        attrs = {k: str(v) for k, v in attributes(call).items() if k != plan.outputs}
        dtype = weight.checked_type.dtype  # type: ignore[attr-defined]
        return id(data), dtype, tuple(kept), *sorted(attrs.items())

    @abstractmethod
    def plan(self, attrs: Mapping[str, Any]) -> Combination | None:
        """Return how calls with these attributes are combined; None if they stay."""

    def combined(self, group: list[rl.Call]) -> list[rl.RelayExpr]:
        """Return what replaces the calls of a group."""
        attrs, data = dict(attributes(group[0])), group[0].args[0]
        plan = self.plan(attrs)
        assert plan is not None
        sizes = [shape_of(call.args[1])[plan.weight_axis] for call in group]  # type: ignore[index]
        weights = rl.Tuple(tuple(call.args[1] for call in group))
        weight = build("concatenate", weights, axis=plan.weight_axis)
        if plan.outputs:
            attrs[plan.outputs] = sum(sizes)
        whole = build(self.operator, data, weight, **attrs)
        ends = [*accumulate(sizes)]
        return [
            build("strided_slice", whole, begin=(end - size,), end=(end,), axes=(plan.result_axis,))
            for end, size in zip(ends, sizes, strict=True)
        ]


@dataclass(frozen=True)
class CombineParallelConv2D(CombineParallel):
    """Compute convolutions of the same images, without groups, as one with more channels."""

    operator = "nn.conv2d"

    @override
    def plan(self, attrs: Mapping[str, Any]) -> Combination | None:
        kernel, layout = attrs["kernel_layout"], attrs["out_layout"] or attrs["data_layout"]
        if attrs["groups"] != 1 or len(kernel) != 4 or len(layout) != 4:
            return None
        return Combination(kernel.index("O"), layout.index("C"), "channels")


@dataclass(frozen=True)
class CombineParallelBatchMatmul(CombineParallel):
    """Compute products of the same batch of matrices with several as one."""

    operator = "nn.batch_matmul"

    @override
    def plan(self, attrs: Mapping[str, Any]) -> Combination | None:
        return Combination(1 if attrs["transpose_b"] else 2, 2)


@dataclass(frozen=True)
class CombineParallelDense(CombineParallel):
    """Compute dense layers of the same matrix as one.

    With `to_batch` it is a product of batches, and the layers have weights of the same shape;
    without it, it is a dense layer of more units.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: Tensor[(1, 2), int8], %w: Tensor[(3, 2), int8])"
        ...                   " { nn.dense(%x, %w) - nn.dense(%x, %w) }")
        >>> new = relay.transform.CombineParallelDense(2, to_batch=False)(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: Tensor[(1, 2), int8], %w: Tensor[(3, 2), int8]) -> Tensor[(1, 3), int8] {
          %0 = (%w, %w);
          %1 = concatenate(%0);
          %2 = nn.dense(%x, %1, units=6);
          %3 = strided_slice(%2, begin=[0], end=[3], axes=[1]);
          %4 = strided_slice(%2, begin=[3], end=[6], axes=[1]);
          subtract(%3, %4)
        }

    """

    to_batch: bool = True
    operator = "nn.dense"

    @override
    def plan(self, attrs: Mapping[str, Any]) -> Combination | None:
        return Combination(0, 1, "units")

    @override
    def _key(self, call: rl.Call) -> tuple[Hashable, ...] | None:
        key = super()._key(call)
        shapes = shape_of(call.args[0]), shape_of(call.args[1])
        if key is None or len(shapes[0] or ()) != 2:
            return None
        return (*key, *(shapes[1] or ())) if self.to_batch else key

    @override
    def combined(self, group: list[rl.Call]) -> list[rl.RelayExpr]:
        if not self.to_batch:
            return super().combined(group)
        data = build("expand_dims", group[0].args[0], axis=0)
        weight = build("stack", rl.Tuple(tuple(call.args[1] for call in group)), axis=0)
        dtype = attributes(group[0])["out_dtype"]
        whole = build("nn.batch_matmul", data, weight, out_dtype=dtype, transpose_b=True)
        return [
            build(
                "squeeze",
                build("strided_slice", whole, begin=(number,), end=(number + 1,), axes=(0,)),
                axis=(0,),
            )
            for number in range(len(group))
        ]


def _replaced(function: rl.Function, old: list[rl.Call], new: list[rl.RelayExpr]) -> rl.RelayExpr:
    """Return a function with other expressions in the places of some that do not contain others."""
    table = dict(zip(map(id, old), new, strict=True))
    return rl.rewrite(function, lambda node: table.get(id(node)))
