"""Parts of unusual language models, written as users of `nn` write them: against NumPy."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, te, tir
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import IntExpr, Tensor, op, spec
from relaxpy.relax.frontend.nn.llm import position_embedding
from relaxpy.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode
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


# --- caches and states


def sizes_of(*numbers: int) -> list[Any]:
    return [relaxpy.runtime.ShapeTuple([n]) for n in numbers]


LIMITS = ("sequences", "tokens", "chunk", "page", "sliding")
MODES = {"param_mode": "packed", "effect_mode": "none"}


class Session:
    """A compiled model whose sequences are read in calls of several tokens."""

    def __init__(self, model: nn.Module, target: str, methods: list[str], width: int) -> None:
        state = {name: spec.Object(object_type=kind) for name, kind in model.states.items()}
        inputs = {"x": spec.Tensor(["batch", "rows", width], "float32"), **state, "$": MODES}
        create = {**dict.fromkeys(LIMITS, int), "$": MODES | {"param_mode": "none"}}
        specs = {**dict.fromkeys(methods, inputs), "create": create}
        mod, params = model.export_tvm(spec.ModuleSpec.from_raw(specs, model))
        relaxpy.ir.assert_structural_equal(from_source(mod.script()), mod)
        self.weights = {
            name: random(*map(int, p.shape), seed=seed) / 2 for seed, (name, p) in enumerate(params)
        }
        self.program = relaxpy.compile(mod, target)
        self.states = self.program["create"](*sizes_of(4, 64, 32, 4, 0))
        if not isinstance(self.states, tuple):
            self.states = (self.states,)

    def state(self, name: str, *args: Any) -> None:
        for one in self.states:
            relaxpy.get_global_func(f"vm.builtin.kv_state_{name}")(one, *args)

    def read(self, method: str, rows: dict[int, Any]) -> dict[int, Any]:
        """The results for new rows of sequences, which are as many for each."""
        lengths = [len(x) for x in rows.values()]
        self.state("begin_forward", tuple(rows), tuple(lengths))
        x = np.stack(list(rows.values()))
        if method != "decode":
            x = x.reshape(1, -1, x.shape[-1])
        found, *_ = self.program[method](x, *self.states, list(self.weights.values()))
        self.state("end_forward")
        parts = np.asarray(found).reshape(len(rows), lengths[0], -1)
        return dict(zip(rows, parts, strict=True))

    def read_all(self, texts: dict[int, Any], steps: list[tuple[str, int]]) -> dict[int, Any]:
        """What is computed of whole texts, a number of rows in each call."""
        for seq_id in texts:
            self.state("add_sequence", seq_id)
        found: dict[int, list[Any]] = {seq_id: [] for seq_id in texts}
        start = 0
        for method, count in steps:
            rows = {i: np.ascontiguousarray(x[start : start + count]) for i, x in texts.items()}
            for seq_id, part in self.read(method, rows).items():
                found[seq_id].append(part)
            start += count
        return {seq_id: np.concatenate(parts) for seq_id, parts in found.items()}


WIDTH, HEADS, KV_HEADS, D, WINDOW = 12, 4, 2, 8, 3


def attention(q: Any, k: Any, v: Any, *, scale: float, window: int = 99, sinks: Any = None) -> Any:
    """Causal attention to the last tokens, and to a sink, in float64."""
    count = len(q)
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("nhd,mhd->hnm", q, k) * scale
    near = np.tri(count, dtype=bool) & ~np.tri(count, k=-window, dtype=bool)
    weights = np.exp(np.where(near, scores, -np.inf))
    total = weights.sum(-1)
    if sinks is not None:
        total += np.exp(sinks.astype("float64"))[:, None]
    return np.einsum("hnm,mhd->nhd", weights / total[..., None], v).reshape(count, -1)


class Windows(nn.Module):
    """A layer that sees all, one with sinks that sees a window, and one with keys of the first."""

    states: ClassVar[dict[str, Any]] = {"cache": PagedKVCache}

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.qkv = nn.ModuleList(
            [nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * D, bias=False) for _ in range(2)]
        )
        self.q = nn.Linear(WIDTH, HEADS * D, bias=False)
        self.out = nn.ModuleList([nn.Linear(HEADS * D, WIDTH, bias=False) for _ in range(3)])
        self.sinks = nn.Parameter((HEADS,))

    def forward(self, x: Tensor, cache: PagedKVCache) -> Any:
        b, s, _ = x.shape
        scale = D**-0.5
        first = self.qkv[0](x).reshape(b, s, HEADS + 2 * KV_HEADS, D)
        found = cache.attention_with_fused_qkv(0, first, HEADS, scale)
        x = x + self.out[0](found.reshape(b, s, HEADS * D))
        second = self.qkv[1](x).reshape(b, s, HEADS + 2 * KV_HEADS, D)
        found = cache.attention_with_fused_qkv(1, second, HEADS, sm_scale=scale, sinks=self.sinks)
        x = x + self.out[1](found.reshape(b, s, HEADS * D))
        _, k, v = op.split(first, [HEADS, HEADS + KV_HEADS], axis=2)
        q = self.q(x).reshape(b, s, HEADS, D)
        found = cache.attention_with_shared_kv(0, q, k, v, sm_scale=scale)
        return x + self.out[2](found.reshape(b, s, HEADS * D)), cache

    def create(self, sequences: Any, tokens: Any, chunk: Any, page: Any, sliding: Any) -> Any:
        return PagedKVCache.create_generic(
            attn_kind=["mha", "mha_sliding"],
            max_batch_size=sequences,
            max_total_seq_len=tokens,
            prefill_chunk_size=chunk,
            page_size=page,
            support_sliding_window=sliding,
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            qk_head_dim=D,
            v_head_dim=D,
            rope_mode=RopeMode.NONE,
            rope_scale=1,
            rope_theta=10_000,
            dtype="float32",
            **self.options,
        )


@pytest.mark.each_choice
@TARGETS
@pytest.mark.parametrize(
    "options",
    [{"layer_sliding_window_size": WINDOW}, {"is_sinks": True, "sliding_window_size": WINDOW}],
)
def test_layers_have_windows_sinks_and_keys_of_others(target: str, options: Any) -> None:
    session = Session(Windows(**options), target, ["forward"], WIDTH)
    texts = {3: random(9, WIDTH, seed=50), 1: random(9, WIDTH, seed=51)}
    found = session.read_all(texts, [("forward", n) for n in (5, 1, 2, 1)])
    w = {name: value.astype("float64") for name, value in session.weights.items()}
    for seq_id, text in texts.items():
        x = text.astype("float64")
        keys: list[Any] = []
        for layer, options in enumerate(({}, {"window": WINDOW, "sinks": w["sinks"]})):
            qkv = (x @ w[f"qkv.{layer}.weight"].T).reshape(len(x), -1, D)
            q, k, v = np.split(qkv, [HEADS, HEADS + KV_HEADS], axis=1)
            keys.append((k, v))
            mixed = attention(q, k, v, scale=D**-0.5, **options)
            x = x + mixed @ w[f"out.{layer}.weight"].T
        q = (x @ w["q.weight"].T).reshape(len(x), HEADS, D)
        x = x + attention(q, *keys[0], scale=D**-0.5) @ w["out.2.weight"].T
        np.testing.assert_allclose(found[seq_id], x, rtol=1e-4, atol=1e-4)


LATENT, ROTATED, PLAIN, VALUE = 10, 4, 6, 5


class Latent(nn.Module):
    """Multi-head latent attention: of prompts to keys of heads, of others as the cache has them."""

    states: ClassVar[dict[str, Any]] = {"cache": PagedKVCache}

    def __init__(self) -> None:
        self.q = nn.Linear(WIDTH, HEADS * (PLAIN + ROTATED), bias=False)
        self.down = nn.Linear(WIDTH, LATENT + ROTATED, bias=False)
        self.up = nn.Linear(LATENT, HEADS * (PLAIN + VALUE), bias=False)
        self.out = nn.Linear(HEADS * VALUE, WIDTH, bias=False)
        self.turn = position_embedding.switch_rope_freq_func({"rope_type": "gptj"})

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        def turn(x: te.Tensor, positions: te.Tensor) -> te.Tensor:
            def value(b: Any, s: Any, h: Any, d: Any) -> Any:
                cos, sin, table = self.turn(
                    positions[b * x.shape[1] + s], d, ROTATED, 10000.0, x.dtype
                )
                other = tir.if_then_else(d % 2 == 0, -x[b, s, h, d + 1], x[b, s, h, d - 1])
                found = x[b, s, h, d] * cos + other * sin
                for var, angle in table.items():
                    found = tir.Let(var, angle, found)
                return found

            return te.compute(x.shape, value, name="rotated")

        return op.tensor_expr_op(turn, "rotated", [x, positions])

    def parts(self, x: Tensor, cache: PagedKVCache) -> Any:
        b, s, _ = x.shape
        positions = cache.get_query_positions(b * s)
        plain, turned = op.split(self.q(x).reshape(b, s, HEADS, -1), [PLAIN], axis=-1)
        latent, key = op.split(self.down(x).reshape(b, s, 1, -1), [LATENT], axis=-1)
        turned, key = self.rotated(turned, positions), self.rotated(key, positions)
        cache = cache.append_mla_kv(0, op.concat([latent, key], dim=-1))
        return plain, turned, latent, key, cache

    def own(self, plain: Tensor, turned: Tensor, latent: Tensor, key: Tensor, cache: Any) -> Any:
        b, s = plain.shape[:2]
        k, v = op.split(self.up(latent).reshape(b, s, HEADS, PLAIN + VALUE), [PLAIN], axis=-1)
        key = op.broadcast_to(key, (b, s, HEADS, ROTATED))
        queries, keys = op.concat([plain, turned], dim=-1), op.concat([k, key], dim=-1)
        return cache.self_attention(0, queries, keys, v, (PLAIN + ROTATED) ** -0.5)

    def past(self, plain: Tensor, turned: Tensor, cache: Any) -> Any:
        b, s = plain.shape[:2]
        up = op.reshape(self.up.weight, (HEADS, PLAIN + VALUE, LATENT))
        of_keys, of_values = op.split(up, [PLAIN], axis=1)
        rows = plain.reshape(b * s, HEADS, PLAIN).permute_dims(1, 0, 2)
        inner = op.matmul(rows, of_keys).permute_dims(1, 0, 2).reshape(b, s, HEADS, LATENT)
        found, lse = cache.cross_attention(
            0,
            op.concat([inner, turned], dim=-1),
            v_head_dim=LATENT,
            sm_scale=(PLAIN + ROTATED) ** -0.5,
        )
        rows = found.reshape(b * s, HEADS, LATENT).permute_dims(1, 0, 2)
        mixed = op.matmul(rows, of_values.permute_dims(0, 2, 1)).permute_dims(1, 0, 2)
        return mixed.reshape(b, s, HEADS, VALUE), lse

    def result(self, x: Tensor, mixed: Tensor) -> Tensor:
        return x + self.out(mixed.reshape(x.shape[0], x.shape[1], HEADS * VALUE))

    def prefill(self, x: Tensor, cache: PagedKVCache) -> Any:
        *parts, cache = self.parts(x, cache)
        return self.result(x, self.own(*parts, cache)[0]), cache

    def decode(self, x: Tensor, cache: PagedKVCache) -> Any:
        plain, turned, _, _, cache = self.parts(x, cache)
        return self.result(x, self.past(plain, turned, cache)[0]), cache

    def extend(self, x: Tensor, cache: PagedKVCache) -> Any:
        *parts, cache = self.parts(x, cache)
        own, past = self.own(*parts, cache), self.past(parts[0], parts[1], cache)
        return self.result(x, cache.merge_attn_output_inplace(*own, *past)[0]), cache

    def create(self, sequences: Any, tokens: Any, chunk: Any, page: Any, sliding: Any) -> Any:
        return PagedKVCache.create_generic(
            "mla",
            sequences,
            tokens,
            chunk,
            page,
            sliding,
            num_hidden_layers=1,
            num_attention_heads=HEADS,
            num_key_value_heads=1,
            qk_head_dim=LATENT + ROTATED,
            v_head_dim=LATENT,
            mla_original_qk_head_dim=PLAIN + ROTATED,
            mla_original_v_head_dim=VALUE,
            rope_mode=RopeMode.NONE,
            rope_scale=1,
            rope_theta=10000,
            dtype="float32",
        )


@TARGETS
def test_latent_attention_reads_prompts_and_decodes(target: str) -> None:
    session = Session(Latent(), target, ["prefill", "decode", "extend"], WIDTH)
    texts = {2: random(10, WIDTH, seed=60), 0: random(10, WIDTH, seed=61)}
    steps = [("prefill", 4), ("extend", 3), ("decode", 1), ("extend", 1), ("decode", 1)]
    found = session.read_all(texts, steps)
    w = {name: value.astype("float64") for name, value in session.weights.items()}

    def turned(x: Any) -> Any:
        angle = np.arange(10)[:, None, None] / 10000.0 ** (np.arange(0, ROTATED, 2) / ROTATED)
        pairs = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
        return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)

    for seq_id, text in texts.items():
        x = text.astype("float64")
        q = (x @ w["q.weight"].T).reshape(10, HEADS, -1)
        down = x @ w["down.weight"].T
        up = (down[:, :LATENT] @ w["up.weight"].T).reshape(10, HEADS, -1)
        q = np.concatenate([q[..., :PLAIN], turned(q[..., PLAIN:])], -1)
        key = np.repeat(turned(down[:, None, LATENT:]), HEADS, 1)
        k = np.concatenate([up[..., :PLAIN], key], -1)
        mixed = attention(q, k, up[..., PLAIN:], scale=(PLAIN + ROTATED) ** -0.5)
        wanted = x + mixed @ w["out.weight"].T
        np.testing.assert_allclose(found[seq_id], wanted, rtol=1e-4, atol=1e-4)
