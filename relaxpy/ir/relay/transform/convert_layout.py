"""Changes the layouts of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.op.makers import build
from relaxpy.ir.relay.transform.passes import RelayPass
from relaxpy.ir.relay.transform.rewriting import CallRewriter, Uses, attributes, called

_POOLS: Final = (
    *("nn.max_pool2d", "nn.avg_pool2d", "nn.global_max_pool2d", "nn.global_avg_pool2d"),
    *("nn.adaptive_max_pool2d", "nn.adaptive_avg_pool2d"),
)
_CONVOLUTIONS: Final = ("nn.conv2d",)
_KERNELS: Final = {"NCHW": "OIHW", "NHWC": "HWIO"}
_ELEMENTWISE: Final = (
    *("nn.relu", "nn.leaky_relu", "sigmoid", "tanh", "exp", "sqrt", "rsqrt", "negative", "clip"),
    *("abs", "cast", "copy"),
)
_BINARY: Final = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


@dataclass(frozen=True)
class ConvertLayout(RelayPass):
    """Compute convolutions and poolings of images in other layouts.

    `desired_layouts` maps names of operators to the layout of images, NCHW or NHWC, and for
    `nn.conv2d` to that of weights; "default" is OIHW or HWIO. Operands and results are
    transformed, and what is between them is computed in the new layout, as far as it is
    elementwise; transforms that cancel each other are removed.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: Tensor[(1, 2, 4, 4), int8])"
        ...                   " { nn.relu(nn.global_max_pool2d(%x)) }")
        >>> new = relay.transform.ConvertLayout({"nn.global_max_pool2d": ["NHWC"]})(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: Tensor[(1, 2, 4, 4), int8]) -> Tensor[(1, 2, 1, 1), int8] {
          %0 = layout_transform(%x, src_layout="NCHW", dst_layout="NHWC");
          %1 = nn.global_max_pool2d(%0, layout="NHWC");
          %2 = nn.relu(%1);
          layout_transform(%2, src_layout="NHWC", dst_layout="NCHW")
        }

    Errors:
        MisuseError: an operator or layout is not one of these.

    """

    desired_layouts: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        if not isinstance(self.desired_layouts, Mapping):
            raise MisuseError(
                "desired_layouts maps names of operators to lists of layouts, found "
                f"{self.desired_layouts!r:.60}",
                about=self.desired_layouts,
            )
        for name, layouts in self.desired_layouts.items():
            if name not in (*_CONVOLUTIONS, *_POOLS):
                known = ", ".join((*_CONVOLUTIONS, *_POOLS))
                raise MisuseError(f"layouts of {known} are converted, found {name!r}", about=name)
            listed = isinstance(layouts, Sequence) and not isinstance(layouts, str)
            if not listed or not layouts or layouts[0] not in ("NCHW", "NHWC"):
                raise MisuseError(
                    f'the layouts of {name} are a list: "NCHW" or "NHWC", and that of weights; '
                    f"found {layouts!r:.60}",
                    about=name,
                )
            for kernel in layouts[1:]:
                if kernel != "default" and sorted(str(kernel)) != sorted("OIHW"):
                    raise MisuseError(
                        f"a layout of weights arranges the axes OIHW, found {kernel!r:.60}",
                        about=name,
                    )

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        converted = _Convert(self.desired_layouts).apply(mod)
        if converted is mod:
            return mod
        return _Move().apply(converted)


@dataclass(frozen=True)
class _Convert(CallRewriter):
    """Puts the transforms around the operators."""

    layouts: Mapping[str, Sequence[str]]

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        if name not in self.layouts:
            return None
        attrs, (new, *kernels) = dict(attributes(call)), self.layouts[name]
        key = "data_layout" if name in _CONVOLUTIONS else "layout"
        old = attrs[key]
        if attrs["out_layout"] not in ("", old) or len(old) != 4:
            return None
        operands = [_transformed(call.args[0], old, new)]
        if name in _CONVOLUTIONS:
            kernel = kernels[0] if kernels and kernels[0] != "default" else _KERNELS[new]
            if old == new and kernel == attrs["kernel_layout"]:
                return None
            operands.append(_transformed(call.args[1], attrs["kernel_layout"], kernel))
            attrs["kernel_layout"] = kernel
        elif old == new:
            return None
        attrs |= {key: new, "out_layout": ""}
        return _transformed(build(name, *operands, **attrs), new, old)


def _transformed(data: rl.RelayExpr, old: str, new: str) -> rl.RelayExpr:
    if old == new:
        return data
    return build("layout_transform", data, src_layout=old, dst_layout=new)


def _layouts(expr: rl.RelayExpr) -> tuple[str, str] | None:
    """Return the layouts of a transform that permutes axes."""
    if not called(expr, "layout_transform"):
        return None
    attrs = attributes(expr)
    old, new = str(attrs["src_layout"]), str(attrs["dst_layout"])
    return (old, new) if sorted(old) == sorted(new) and old.isalpha() else None


@dataclass(frozen=True)
class _Move(CallRewriter):
    """Moves transforms behind what is elementwise, and removes those that cancel each other."""

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        layouts = _layouts(call.args[0]) if call.args else None
        if layouts is None:
            return None
        old, new = layouts
        data, *others = call.args
        assert isinstance(data, rl.Call)
        operands, attrs = [data.args[0]], dict(call.attrs)
        if name == "layout_transform":
            return operands[0] if _layouts(call) == (new, old) else None
        if name == "nn.bias_add":
            attrs["axis"] = old.index(new[int(attributes(call)["axis"])])
            operands += others
        elif name in _BINARY:
            if _layouts(others[0]) != layouts:
                return None
            operands += others[0].args  # type: ignore[attr-defined]
        elif name not in _ELEMENTWISE:
            return None
        return _transformed(build(name, *operands, **attrs), old, new)
