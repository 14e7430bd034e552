"""The angles of rotary position embeddings: the frequency functions, one for each kind of scaling.

Each takes a position `s`, a dimension `d` of `d_range`, the base `theta` and a datatype, and
returns the cosine and the sine of the angle, in terms of variables whose values are in a table:
`for var, value in table.items(): expr = tir.Let(var, value, expr)` completes an expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.ir.tir import expr as tir, intrin, ops
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
    """The index of the pair (of `d` / 2) that makes so many rotations within so many positions."""
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
