"""Replaces operators whose shapes are operands by those whose shapes are attributes."""

from __future__ import annotations

from typing import Final

import numpy as np
from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.op.makers import build
from relaxpy.ir.relay.op.registry import Op
from relaxpy.ir.relay.transform.fold_constant import FoldConstant
from relaxpy.ir.relay.transform.passes import RelayPass
from relaxpy.ir.relay.transform.rewriting import CallRewriter, Uses, attributes, shape_of


@dataclass(frozen=True)
class DynamicToStatic(RelayPass):
    """Replace calls of `dyn` operators by those of static ones, where the shapes are constants.

    Shapes of tensors whose dimensions are known are constants, too, and constants are folded,
    until nothing changes.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: Tensor[(2, 3), float32])"
        ...                   " { dyn.reshape(%x, Constant(6, (1,), int64)) }")
        >>> new = relay.transform.DynamicToStatic()(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: Tensor[(2, 3), float32]) -> Tensor[(?,), float32] {
          reshape(%x, newshape=[6])
        }

    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        while True:
            new = _Static().apply(FoldConstant().apply(mod))
            if new is mod:
                return mod
            mod = infer_module(new)


_SCALARS: Final = {"k", "depth", "scale_d", "scale_h", "scale_w"}


@dataclass(frozen=True)
class _Static(CallRewriter):
    """One step: the calls all of whose shapes are constants."""

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        if name == "shape_of":
            shape = shape_of(call.args[0])
            known = shape is not None and isinstance(call.args[0], (rl.Var, rl.Constant))
            return rl.const(np.array(shape).astype(attributes(call)["dtype"])) if known else None
        if not name.startswith("dyn."):
            return None
        static = Op.get(name.removeprefix("dyn.")).record
        assert isinstance(call.op, Op)
        arguments = dict(zip(call.op.record.operands, call.args, strict=True))
        shapes = {key: arg for key, arg in arguments.items() if key in static.attributes}
        if not all(isinstance(arg, rl.Constant) for arg in shapes.values()):
            return None
        for key in shapes.keys() & _SCALARS:  # dyn operators take tensors of one element, too
            shapes[key] = rl.const(np.reshape(shapes[key].data, ()))  # type: ignore[attr-defined]
        operands = [arguments[key] for key in static.operands]
        attrs = {key: value for key, value in call.attrs.items() if key in static.attributes}
        return build(static.name, *operands, **attrs, **shapes)
