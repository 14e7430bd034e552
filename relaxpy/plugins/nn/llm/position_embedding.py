"""Rotary position embeddings of fused queries, keys and values, and their angles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from relaxpy.errors import MisuseError
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import create_prim_func
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.nn.core import Tensor
from relaxpy.plugins.nn.ops.custom import tensor_ir_op
from relaxpy.support.entry import user_facing

Frequencies: TypeAlias = tuple[tir.PrimExpr, tir.PrimExpr, dict[tir.Var, tir.PrimExpr]]
FrequencyFunc: TypeAlias = Callable[..., Frequencies]


def _float(value: float) -> tir.PrimExpr:
    return ops.const(value, "float32")


def _divisor(exponent: tir.PrimExpr, d_range: int, theta: float | tir.PrimExpr) -> tir.PrimExpr:
    """theta ** (exponent / d_range): what positions are divided by."""
    base = theta if isinstance(theta, tir.PrimExpr) else _float(theta)
    return intrin.pow(base, exponent.astype("float32") / _float(d_range))


def _doubled(d: tir.PrimExpr, d_range: int) -> tir.PrimExpr:
    """Twice the number of the pair that `d` is in, where halves of the dimensions are paired."""
    return d * 2 % d_range


def _adjacent(d: tir.PrimExpr, d_range: int) -> tir.PrimExpr:
    """Twice the number of the pair that `d` is in, where neighbours are paired."""
    return d // 2 * 2 % d_range


def _rotation(
    angle: tir.PrimExpr, dtype: str, name: str = "freq", magnitude: float = 1.0
) -> Frequencies:
    """The cosine and the sine of an angle, which is bound to a variable, times `magnitude`."""
    var = tir.Var(name, "float32")
    cos, sin = intrin.cos(var), intrin.sin(var)
    if magnitude != 1.0:
        cos, sin = cos * _float(magnitude), sin * _float(magnitude)
    return cos.astype(dtype), sin.astype(dtype), {var: angle}


def rope_freq_default(
    s: tir.PrimExpr, d: tir.PrimExpr, d_range: int, theta: float, dtype: str
) -> Frequencies:
    """The rotation by s / theta ** (2i / d_range), where `d` is in the pair i of two halves."""
    return _rotation(s / _divisor(_doubled(d, d_range), d_range, theta), dtype)


def rope_freq_gptj(
    s: tir.PrimExpr, d: tir.PrimExpr, d_range: int, theta: float, dtype: str
) -> Frequencies:
    """The rotation by s / theta ** (2i / d_range), where `d` is in the pair i of neighbours."""
    return _rotation(s / _divisor(_adjacent(d, d_range), d_range, theta), dtype)


def rope_freq_linear(
    s: tir.PrimExpr, d: tir.PrimExpr, d_range: int, theta: float, dtype: str, factor: float
) -> Frequencies:
    """The default rotation of positions that are divided by `factor`."""
    return rope_freq_default(s / _float(factor), d, d_range, theta, dtype)


def _stretched(
    s: tir.PrimExpr,
    divisor: tir.PrimExpr,
    dtype: str,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> Frequencies:
    """The rotation of Llama 3: low frequencies divided by `factor`, high ones kept, mixed between.

    How many waves the original positions contain decides: fewer than `low_freq_factor` is low,
    more than `high_freq_factor` is high.
    """
    orig = tir.Var("orig_freq", "float32")
    waves = orig * _float(original_max_position_embeddings / (2 * math.pi))
    if high_freq_factor == low_freq_factor:
        kept = intrin.if_then_else(waves < _float(low_freq_factor), _float(0), _float(1))
    else:
        share = 1.0 / (high_freq_factor - low_freq_factor)
        kept = ops.maximum(
            _float(0), ops.minimum(_float(1), (waves - _float(low_freq_factor)) * _float(share))
        )
    angle = s * ((_float(1) - kept) * orig * _float(1.0 / factor) + kept * orig)
    cos, sin, table = _rotation(angle, dtype, "smoothed_freq")
    return cos, sin, table | {orig: _float(1) / divisor}


def rope_freq_llama3(
    s: tir.PrimExpr, d: tir.PrimExpr, d_range: int, theta: float, dtype: str, **scaling: float
) -> Frequencies:
    """The rotation of Llama 3: the parameters are those of its configuration."""
    return _stretched(s, _divisor(_doubled(d, d_range), d_range, theta), dtype, **scaling)


def rope_freq_llama4(
    s: tir.PrimExpr, d: tir.PrimExpr, d_range: int, theta: float, dtype: str, **scaling: float
) -> Frequencies:
    """The rotation of Llama 4: that of Llama 3 for pairs of neighbours."""
    return _stretched(s, _divisor(_adjacent(d, d_range), d_range, theta), dtype, **scaling)


def rope_freq_longrope(
    s: tir.PrimExpr,
    d: tir.PrimExpr,
    d_range: int,
    theta: float,
    dtype: str,
    max_position_embeddings: int,
    original_max_position_embeddings: int,
    ext_factors: Any = None,
) -> Frequencies:
    """The rotation of LongRoPE: `ext_factors` multiply the divisors, one for each pair."""
    scale = max_position_embeddings / original_max_position_embeddings
    magnitude = (
        math.sqrt(1 + math.log(scale) / math.log(original_max_position_embeddings))
        if scale > 1.0
        else 1.0
    )
    divisor = _divisor(_doubled(d, d_range), d_range, theta)
    if ext_factors is not None:
        divisor = ext_factors[d % (d_range // 2)] * divisor
    return _rotation(s / divisor, dtype, magnitude=magnitude)


def yarn_find_correction_dim(
    num_rotations: float, d: float, theta: float, max_position_embeddings: int
) -> float:
    """The index of the pair (of `d` / 2) with that many rotations within that many positions."""
    turns = max_position_embeddings / (num_rotations * 2 * math.pi)
    return d * math.log(turns) / (2 * math.log(theta))


def yarn_find_correction_range(
    low_rot: float,
    high_rot: float,
    d: int,
    theta: float,
    max_position_embeddings: int,
    truncate: bool = True,
) -> tuple[float, float]:
    """The pairs between which YaRN mixes, by how often they turn; whole ones if `truncate`."""
    low = yarn_find_correction_dim(low_rot, d, theta, max_position_embeddings)
    high = yarn_find_correction_dim(high_rot, d, theta, max_position_embeddings)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, d - 1)


def rope_freq_yarn(
    s: tir.PrimExpr,
    d: tir.PrimExpr,
    d_range: int,
    theta: float,
    dtype: str,
    original_max_position_embeddings: int,
    scaling_factor: float,
    beta_fast: float = 32,
    beta_slow: float = 1,
    attention_factor: float = 1.0,
    truncate: bool = True,
) -> Frequencies:
    """The rotation of YaRN: pairs that turn seldom are slowed by `scaling_factor`, fast ones kept.

    Rule:
        Peng, Quesnelle, Fan & Shippole, "YaRN", 2023, section 3.2, as in transformers.
    """
    low, high = yarn_find_correction_range(
        beta_fast, beta_slow, d_range, theta, original_max_position_embeddings, truncate
    )
    pair = (d % (d_range // 2)).astype("float32")
    width = high - low if high != low else 0.001
    slowed = ops.maximum(
        _float(0), ops.minimum(_float(1), (pair - _float(low)) * _float(1 / width))
    )
    frequency = _float(1) / _divisor(_doubled(d, d_range), d_range, theta)
    angle = s * frequency * (slowed * _float(1 / scaling_factor) + (_float(1) - slowed))
    return _rotation(angle, dtype, magnitude=attention_factor)


def _yarn_magnitude(scaling: Mapping[str, Any]) -> float:
    """YaRN's factor of queries and keys (mscale), unless the configuration sets it."""
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])

    def magnitude(weight: float) -> float:
        factor = float(scaling["factor"])
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return magnitude(scaling["mscale"]) / magnitude(scaling["mscale_all_dim"])
    return magnitude(1.0)


def _yarn_options(scaling: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "original_max_position_embeddings": scaling["original_max_position_embeddings"],
        "scaling_factor": scaling["factor"],
        "beta_fast": scaling.get("beta_fast") or 32,
        "beta_slow": scaling.get("beta_slow") or 1,
        "attention_factor": _yarn_magnitude(scaling),
        "truncate": scaling.get("truncate", True),
    }


def _named(*names: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """The members of a configuration that a frequency function takes by these names."""
    return lambda scaling: {name: scaling[name] for name in names}


_LLAMA = _named("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_KINDS: Mapping[
    str, tuple[Callable[..., Frequencies], Callable[[Mapping[str, Any]], dict[str, Any]]]
] = {
    "default": (rope_freq_default, _named()),
    "gptj": (rope_freq_gptj, _named()),
    "linear": (rope_freq_linear, _named("factor")),
    "llama3": (rope_freq_llama3, _LLAMA),
    "llama4": (rope_freq_llama4, _LLAMA),
    "longrope": (
        rope_freq_longrope,
        _named("max_position_embeddings", "original_max_position_embeddings"),
    ),
    "yarn": (rope_freq_yarn, _yarn_options),
}
PAIRS_OF_NEIGHBOURS = ("gptj", "llama4")
"""The kinds that rotate neighbouring dimensions; the others rotate halves of the dimensions."""


_NUMBERS: Mapping[str, float] = {
    "factor": 0,
    "low_freq_factor": 0,
    "high_freq_factor": 0,
    "max_position_embeddings": 0,
    "original_max_position_embeddings": 1,
}
"""The members that are numbers above these; those of `_OPTIONAL` are not negative, or None."""
_OPTIONAL = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")


def _check_number(kind: str, name: str, scaling: Mapping[str, Any]) -> None:
    """Check a member of a configuration. Errors: MisuseError (also ValueError)."""
    value = scaling[name]
    if name in _OPTIONAL and value is None:
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name in _OPTIONAL:
        expected, suits = "a number that is not negative", is_number and 0 <= value < math.inf
    else:
        least = _NUMBERS[name]
        expected, suits = f"a number above {least}", is_number and least < value < math.inf
    if not suits:
        raise MisuseError(
            f"a rotary embedding of type {kind!r} has the {name} {value!r:.60}, "
            f"expected {expected}",
            about=scaling,
        )


@user_facing
def switch_rope_freq_func(rope_scaling: Mapping[str, Any]) -> FrequencyFunc:
    """The frequency function for a configuration: its "rope_type" and the options of that.

    Errors:
        MisuseError (also ValueError): the type is unknown, or a member is missing or no number.
    """
    kind = rope_scaling.get("rope_type", "default")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise MisuseError(
            f"there is no rotary embedding of type {kind!r:.60}",
            hint=f"the types are {', '.join(_KINDS)}",
            about=rope_scaling,
        )
    func, options = _KINDS[kind]
    for name in (*_NUMBERS, *_OPTIONAL):
        if name in rope_scaling:
            _check_number(kind, name, rope_scaling)
    try:
        found = options(rope_scaling)
    except KeyError as error:
        raise MisuseError(
            f"a rotary embedding of type {kind!r} needs {error.args[0]!r} in its configuration",
            about=rope_scaling,
        ) from None
    for name, value in found.items():
        if not isinstance(value, (int, float)):
            raise MisuseError(
                f"a rotary embedding of type {kind!r} has the {name} {value!r:.60}, expected a "
                "number",
                about=rope_scaling,
            )
    return partial(func, **found)


_OPAQUE = 8
"""The number of the operator pattern of kernels that are not fused."""


def _computed(shape: Sequence[Any], element: Callable[..., Any], name: str) -> te.Tensor:
    made: te.Tensor = te.compute(shape, element, name=name)
    return made


class Rotary:
    """The rotation of the first `rotary_dim` dimensions of heads, by tables of angles.

    The angles of a position are the same for all heads: they are computed once, in float32.
    """

    def __init__(
        self,
        rope_scaling: Mapping[str, Any],
        theta: float | tir.PrimExpr,
        head_dim: int,
        rotary_dim: int | None,
        dtype: str,
    ) -> None:
        self.frequencies = switch_rope_freq_func(rope_scaling)
        self.neighbours = rope_scaling.get("rope_type") in PAIRS_OF_NEIGHBOURS
        self.theta = theta
        self.head_dim = head_dim
        self.rotary_dim = head_dim if rotary_dim is None else rotary_dim
        self.dtype = dtype
        if not 0 < self.rotary_dim <= head_dim or self.rotary_dim % 2:
            raise MisuseError(
                f"an even number from 2 to {head_dim} of a head's dimensions can be rotated, "
                f"found {rotary_dim}",
                about=rotary_dim,
            )

    def tables(
        self, rows: tir.PrimExpr, position: Callable[[tir.Var], tir.PrimExpr], **options: object
    ) -> tuple[te.Tensor, te.Tensor]:
        """The cosines and the sines of the angles at the positions of rows."""

        def table(which: int) -> te.Tensor:
            def angle(s: tir.Var, d: tir.Var) -> Any:
                found: Any = self.frequencies(
                    position(s), d, self.rotary_dim, self.theta, "float32", **options
                )
                expr = found[which]
                for var, value in found[2].items():
                    expr = tir.Let(var, value, expr)
                return expr

            return _computed((rows, self.rotary_dim), angle, name=("cos", "sin")[which])

        return table(0), table(1)

    def heads(
        self,
        qkv: te.Tensor,
        first: int,
        count: int,
        name: str,
        tables: tuple[te.Tensor, te.Tensor] | None = None,
        condition: tir.PrimExpr | None = None,
    ) -> te.Tensor:
        """`count` heads of `qkv`, which are rotated where there are tables and `condition` holds.

        The last axis but two of `qkv` is that of the rows of the tables.
        """
        *lead, _, _ = qkv.shape

        def element(*indices: tir.Var) -> Any:
            *row, h, d = indices
            plain: Any = qkv[(*row, h + first, d)]
            if tables is None:
                return plain
            cos, sin = cast("tuple[Any, Any]", tables)
            rotated = plain.astype("float32") * cos[row[-1], d] + (
                self._partner(qkv, (*row, h + first), d) * sin[row[-1], d]
            )
            inside = d < self.rotary_dim
            inside = inside if condition is None else ops.all_of(condition, inside)
            return intrin.if_then_else(inside, rotated.astype(self.dtype), plain)

        return _computed((*lead, count, self.head_dim), element, name=name)

    def _partner(self, x: te.Tensor, head: Sequence[tir.PrimExpr], d: tir.Var) -> tir.PrimExpr:
        """The other member of the pair that `d` is in, negative for the first of the two."""
        step = 1 if self.neighbours else self.rotary_dim // 2
        is_first = (d % 2).equal(0) if self.neighbours else d < step
        before: Any = x[(*head, d - step)]
        after: Any = x[(*head, d + step)]
        return intrin.if_then_else(is_first, -after.astype("float32"), before.astype("float32"))

    def split(
        self,
        qkv: te.Tensor,
        tables: tuple[te.Tensor, te.Tensor],
        q_heads: int,
        kv_heads: int,
        condition: tir.PrimExpr | None = None,
    ) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
        """The queries and keys, rotated, and the values."""
        return (
            self.heads(qkv, 0, q_heads, "q", tables, condition),
            self.heads(qkv, q_heads, kv_heads, "k", tables, condition),
            self.heads(qkv, q_heads + kv_heads, kv_heads, "v"),
        )


def kernel_of(params: Sequence[te.Tensor | tir.Var]) -> PrimFunc:
    """The kernel of these parameters, which is not fused with others."""
    kernel = create_prim_func(list(params))
    return kernel.without_attr("global_symbol").with_attrs(
        {"op_pattern": _OPAQUE, "tir.noalias": True}
    )


@user_facing
def llama_rope(
    qkv: Tensor,
    total_seq_len: tir.PrimExpr,
    theta: float,
    scale: float,
    num_q_heads: int,
    num_kv_heads: int,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The queries and keys of `qkv`, rotated by their positions, and the values.

    The rows are the last of `total_seq_len`; positions are multiplied by `scale`.

    Shapes:
        qkv      (batch, rows, num_q_heads + 2 * num_kv_heads, head_dim)
        results  (batch, rows, num_q_heads or num_kv_heads, head_dim)
    Errors:
        MisuseError (also ValueError): the number of heads differs, or as `switch_rope_freq_func`.
    """
    batch, rows, fused, head_dim = qkv.shape
    if fused != num_q_heads + 2 * num_kv_heads:
        raise MisuseError(
            f"expected {num_q_heads} + 2 * {num_kv_heads} heads of queries, keys and values, "
            f"found {fused}",
            about=qkv,
        )
    rotary = Rotary(rope_scaling, theta, cast(int, head_dim), rotary_dim, qkv.dtype)
    lead = (te.var("batch_size", "int64"), te.var("seq_len", "int64"))
    total = tir.Var("total_seq_len", "int64")
    data = te.placeholder((*lead, fused, head_dim), qkv.dtype, "qkv")
    tables = rotary.tables(
        lead[1], lambda s: (s + total - lead[1]).astype("float32") * ops.const(scale, "float32")
    )
    outputs = rotary.split(data, tables, num_q_heads, num_kv_heads)
    kernel = kernel_of((data, *outputs, total))
    heads = (num_q_heads, num_kv_heads, num_kv_heads)
    out = [Tensor.placeholder((batch, rows, count, head_dim), qkv.dtype) for count in heads]
    q, k, v = tensor_ir_op(kernel, "llama_rope", [qkv, total_seq_len], out)
    return q, k, v


@user_facing
def llama_rope_with_position_map(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> PrimFunc:
    """A kernel that splits fused heads and rotates queries and keys by positions in a tensor.

    Its parameters are the fused heads, the positions (int32), the results for queries, keys and
    values, and the number `apply_rope`: for 0 nothing is rotated. For "longrope", the last is a
    tensor of float32 factors, one for each pair of dimensions, instead. It may have others after
    these, for calls whose positions are all below `original_max_position_embeddings`.

    Shapes:
        fused heads  (rows, num_q_heads + 2 * num_kv_heads, head_dim)
        positions    (rows,)
        results      (rows, num_q_heads or num_kv_heads, head_dim)
    Errors:
        MisuseError (also ValueError): as for `switch_rope_freq_func`.
    """
    rotary = Rotary(rope_scaling, theta, head_dim, rotary_dim, dtype)
    rows = te.var("seq_len", "int64")
    data = te.placeholder((rows, num_q_heads + 2 * num_kv_heads, head_dim), dtype, "qkv")
    positions = te.placeholder((rows,), "int32", "position_map")

    def position(s: tir.Var) -> Any:
        at: Any = positions[s]
        return at.astype("float32") * ops.const(scale, "float32")

    if rope_scaling.get("rope_type") == "longrope":
        given = te.placeholder((te.var("factors", "int64"),), "float32", "ext_factors")
        r, pairs = te.reduce_axis((0, rows), "r"), rotary.rotary_dim // 2
        last = te.compute((1,), lambda _: reduce.max(positions[r], r), name="last")
        is_short = last[0] < rope_scaling["original_max_position_embeddings"]
        first = intrin.if_then_else(is_short, given.shape[0] - pairs, ops.const(0, "int64"))
        factors = te.compute((pairs,), lambda pair: given[first + pair], name="factors")
        tables = rotary.tables(rows, position, ext_factors=factors)
        outputs = rotary.split(data, tables, num_q_heads, num_kv_heads)
        return kernel_of((data, positions, *outputs, given))
    apply_rope = tir.Var("apply_rope", "int64")
    tables = rotary.tables(rows, position)
    outputs = rotary.split(data, tables, num_q_heads, num_kv_heads, apply_rope > 0)
    return kernel_of((data, positions, *outputs, apply_rope))


llama4_rope_with_position_map = llama_rope_with_position_map
"""The same: the type "llama4" in the configuration decides which dimensions are pairs."""
