"""Parts of unusual language models, written as users of `nn` write them: against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, tir
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import IntExpr, Tensor, op, spec
from relaxpy.script import from_source, tir as T

TARGETS = pytest.mark.parametrize("target", ["native", "numpy"])


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def results(
    forward: Callable[..., Any], inputs: dict[str, Any], target: str, **sizes: list[Any]
) -> Any:
    """What a method returns for arrays; `sizes` are the shapes with names."""

    class Model(nn.Module):
        pass

    Model.forward = forward  # type: ignore[attr-defined]
    shapes = {name: sizes.get(name, list(x.shape)) for name, x in inputs.items()}
    specs = {name: spec.Tensor(shapes[name], str(x.dtype)) for name, x in inputs.items()}
    mod, _ = Model().export_tvm({"forward": specs})
    relaxpy.ir.assert_structural_equal(from_source(mod.script()), mod)
    return relaxpy.compile(mod, target)["forward"](*inputs.values())


# --- mixtures of experts


def places_by_expert(experts: Tensor, count: IntExpr) -> Tensor:
    """Where each choice of a token goes when choices are sorted by expert, int32."""
    tokens, chosen = experts.shape
    width = 4

    @T.prim_func(private=True)
    def places(choices: T.handle, result: T.handle) -> None:
        n = T.SizeVar("n", "int32")
        e = T.match_buffer(choices, (n, chosen), "int32")
        p = T.match_buffer(result, (n * chosen,), "int32")
        start = T.alloc_buffer((count,), "int32", scope="shared")
        for x in T.serial(count):
            start[x] = 0
        for t, c in T.grid(n, chosen):
            for x in T.serial(count):
                if e[t, c] < x:
                    start[x] += 1
        for block in T.thread_binding(0, T.ceildiv(n * chosen, width), "blockIdx.x"):
            for inner in T.serial(width):
                if block * width + inner < n * chosen:
                    own: T.int32 = e[
                        T.floordiv(block * width + inner, chosen),
                        T.floormod(block * width + inner, chosen),
                    ]
                    p[block * width + inner] = start[own]
                    start[own] += 1

    out = Tensor.placeholder([tokens * chosen], "int32")
    return op.tensor_ir_op(places, "places", [experts], out)


@TARGETS
def test_choices_of_experts_are_sorted(target: str) -> None:
    rng = np.random.default_rng(0)
    experts = np.stack([rng.permutation(5)[:2] for _ in range(7)]).astype("int32")

    def forward(self: Any, experts: Tensor) -> Any:
        return places_by_expert(experts, 5) * 2

    found = results(forward, {"experts": experts}, target, experts=["tokens", 2])
    order = np.argsort(experts.ravel(), kind="stable")
    np.testing.assert_array_equal(found[order], 2 * np.arange(14))


# --- images


def scheduled(func: tir.PrimFunc, block: str) -> tir.PrimFunc:
    """The kernel in tiles of its last two loops."""
    sch = tir.Schedule(func)
    *_, x, y = sch.get_loops(sch.get_sblock(block))
    outer_x, inner_x = sch.split(x, factors=[4, None])
    outer_y, inner_y = sch.split(y, factors=[None, 8])
    sch.reorder(outer_x, outer_y, inner_x, inner_y)
    sch.bind(sch.fuse(outer_x, outer_y), "threadIdx.x")
    found = sch.mod["main"].with_attr("tir.is_scheduled", 1)
    assert isinstance(found, tir.PrimFunc)
    return found


def lighter(image: Tensor) -> Tensor:
    """The pixels of an image between 0 and 1."""

    @T.prim_func
    def kernel(image: T.handle, out: T.handle) -> None:
        c, h, w = T.int64(), T.int64(), T.int64()
        x = T.match_buffer(image, (c, h, w), "uint8")
        y = T.match_buffer(out, (c, h, w), "float32")
        for k in T.thread_binding(c, thread="blockIdx.x"):
            for i, j in T.grid(h, w):
                with T.sblock("pixel"):
                    if i < h and j < w:
                        y[k, i, j] = T.cast(x[k, i, j], "float32") * (1 / 255)

    out = [Tensor.placeholder(image.shape, "float32")]
    return op.tensor_ir_op(scheduled(kernel, "pixel"), "lighter", [image], out)


def padded(image: Tensor, multiple: int) -> Tensor:
    """An image whose height is a multiple, with rows of 255 above and below."""

    @T.prim_func
    def kernel(image: T.handle, out: T.handle, above: T.int64(), below: T.int64()) -> None:
        c, h, w = T.int64(), T.int64(), T.int64()
        x = T.match_buffer(image, (c, h, w), "uint8")
        y = T.match_buffer(out, (c, h + above + below, w), "uint8")
        for k in T.serial(c):
            for i, j in T.grid(h + above + below, w):
                with T.sblock("row"):
                    if i < above or i >= h + above:
                        y[k, i, j] = 255
                    else:
                        y[k, i, j] = x[k, i - above, j]

    c, h, w = image.shape
    whole = tir.truncdiv(h + (multiple - 1), multiple) * multiple
    above = tir.div(whole - h, 2)
    out = Tensor.placeholder((c, whole, w), "uint8")
    args = [image, above, whole - h - above]
    return op.tensor_ir_op(scheduled(kernel, "row"), "padded", args, out)


def standardized(image: Tensor) -> Tensor:
    """The channels of an image, of their means 0.5, 0.25 and 0, divided by 2, 4 and 8."""

    @T.prim_func
    def kernel(image: T.handle, out: T.handle) -> None:
        h, w = T.int64(), T.int64()
        x = T.match_buffer(image, (3, h, w), "float32")
        y = T.match_buffer(out, (3, h, w), "float32")
        mean = T.alloc_buffer((3,), "float32", scope="local")
        scale = T.alloc_buffer((3,), "float32", scope="local")
        for k in T.thread_binding(3, thread="blockIdx.x"):
            for i, j in T.grid(h, w):
                with T.sblock("pixel"):
                    with T.init():
                        mean[0] = 0.5
                        mean[1] = 0.25
                        mean[2] = 0.0
                        scale[0] = 2.0
                        scale[1] = 4.0
                        scale[2] = 8.0
                    y[k, i, j] = (x[k, i, j] - mean[k]) / scale[k]

    out = Tensor.placeholder(image.shape, "float32")
    return op.tensor_ir_op(scheduled(kernel, "pixel"), "standardized", [image], out)


@TARGETS
def test_an_image_of_any_size_becomes_a_known_number_of_tiles(target: str) -> None:
    tiles = 5

    def forward(self: Any, image: Tensor) -> Any:
        pixels = standardized(lighter(padded(image, 8)))
        _, h, w = pixels.shape
        assert isinstance(h, tir.Mul)
        assert isinstance(h.b, tir.IntImm)
        assert h.b.value == 8
        parts = op.reshape(pixels, shape=(3, h.a, 8, w // 8, 8))
        parts = op.reshape(op.permute_dims(parts, axes=(1, 3, 0, 2, 4)), shape=(-1, 3, 8, 8))
        rest = op.zeros((tiles - parts.shape[0], 3, 8, 8))
        whole = op.concat([parts, rest], dim=0)
        cast = relax.BlockBuilder.current().match_cast(
            whole._expr, relax.TensorStructInfo([tiles, 3, 8, 8], "float32")
        )
        return op.wrap_nested(cast, "tiles")

    image = np.random.default_rng(0).integers(0, 255, (3, 13, 16)).astype("uint8")
    found = results(forward, {"image": image}, target, image=[3, "height", "width"])
    pixels = np.pad(image, ((0, 0), (1, 2), (0, 0)), constant_values=255) / 255
    pixels -= np.array([0.5, 0.25, 0])[:, None, None]
    pixels /= np.array([2, 4, 8])[:, None, None]
    parts = pixels.reshape(3, 2, 8, 2, 8).transpose(1, 3, 0, 2, 4).reshape(4, 3, 8, 8)
    np.testing.assert_allclose(found[:4], parts, rtol=1e-6, atol=1e-6)
    assert not found[4].any()


@TARGETS
def test_the_shorter_edge_of_an_image_gets_a_size(target: str) -> None:
    def forward(self: Any, image: Tensor) -> Any:
        h, w = image.shape[2:]
        ratio = tir.div(
            *(tir.generic.cast(choose(h > w, h, w), "float32") for choose in (tir.Select, _other))
        )
        longer = tir.generic.cast(4 * ratio, "int64")
        size = (
            tir.Select(h > w, longer, tir.IntImm("int64", 4)),
            tir.Select(h > w, tir.IntImm("int64", 4), longer),
        )
        return op.interpolate(image, size, data_layout="NCHW", mode="nearest")

    image = random(1, 1, 12, 8)
    found = results(forward, {"image": image}, target, image=[1, 1, "height", "width"])
    np.testing.assert_array_equal(found, image[:, :, ::2, ::2])


def _other(condition: Any, true: Any, false: Any) -> Any:
    return tir.Select(condition, false, true)
