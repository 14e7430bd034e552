"""JSON schemas as the package llguidance follows them: rightly, and in little time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

from relaxpy.plugins.llm.config import ParameterError

_Kind: TypeAlias = Literal["schema", "table", "value"]
SPACES: Final = r" |\n[ \t]{0,20}"
"""The expression of spaces in JSON: without a bound models may write these for ever."""
_OPTIONS: Final = {"whitespace_pattern": SPACES, "json_allowed_escapes": 'nrtbf\\"'}
"""No character is written by its code, as the package does not see which property that names."""
SHARED: Final = ("$defs", "definitions")
"""Where the schemas are that others refer to."""
TABLES: Final = (*SHARED, "properties", "patternProperties")
"""The entries of a schema that are tables of schemas by names."""
_VALUES: Final = ("const", "enum", "default", "examples")
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_FORMATS: Final = (
    *("date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname"),
    *("ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template"),
    *("json-pointer", "relative-json-pointer", "regex"),
)
"""The formats of the standard; others, as pydantic writes for paths and passwords, are notes."""
_LARGEST: Final = 1 << 53
"""The package reads numbers as doubles: larger integers become others, or end the process."""
_LEAST: Final = 1e-30
_MOST_REMAINDERS: Final = 200_000
"""The states of all numbers together by `multipleOf`, which take some 2 s."""


def followable(schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Schemas of one grammar by their names, without what the package follows wrongly.

    Errors:
        ParameterError: one has numbers that it cannot follow, or not in little time.
    """
    bounds: list[tuple[str, float]] = []
    found = {}
    for name, schema in schemas.items():
        place, own = f"#/{name}" if name else "#", schema.get("x-guidance", {})
        if not isinstance(own, Mapping):
            raise _refused(f"{place}/x-guidance", f"expected an object, found {own!r:.60}")
        checked = _checked(schema, place, "schema", bounds)
        found[name] = {**checked, "x-guidance": {**_OPTIONS, **own}}
    multiples = [Decimal(repr(value)) for name, value in bounds if name == "multipleOf"]
    decimals = max((-int(own.normalize().as_tuple().exponent) for own in multiples), default=0)
    states = math.lcm(*(int(own.scaleb(max(decimals, 0))) for own in multiples))
    if states > 1 and states * len(bounds) > _MOST_REMAINDERS:
        raise _refused("#", f"more than {_MOST_REMAINDERS} remainders of numbers by multipleOf")
    return found


def _checked(node: Any, place: str, kind: _Kind, bounds: list[tuple[str, float]]) -> Any:
    """A part of a schema whose exclusive bounds are not integers; `bounds` gets all of them."""
    if isinstance(node, list):
        return [_checked(one, f"{place}/{k}", kind, bounds) for k, one in enumerate(node)]
    if not isinstance(node, Mapping):
        if isinstance(node, (int, float)) and not abs(node) <= _LARGEST:
            raise _refused(place, f"expected numbers from -2**53 to 2**53, found {node!r:.60}")
        return node
    found = {}
    for name, value in node.items():
        if kind == "schema" and name == "format" and type(value) is str and value not in _FORMATS:
            continue
        inner: _Kind = "schema" if kind == "table" else "value"
        if kind == "schema" and name not in _VALUES:
            inner = "table" if name in TABLES else "schema"
        step = name.replace("~", "~0").replace("/", "~1")
        found[name] = _checked(value, f"{place}/{step}", inner, bounds)
        if kind == "schema" and name in _BOUNDS and type(value) in (int, float):
            bounds.append((name, value))
            if name.startswith("exclusive") and value == int(value):
                # The package would accept the integer for a range within those around it.
                toward = math.inf if name == "exclusiveMinimum" else -math.inf
                own = math.nextafter(value, toward) if value else math.copysign(_LEAST, toward)
                found[name] = own
    return found


def _refused(place: str, message: str) -> ParameterError:
    return ParameterError(f"schema cannot be followed at {place}: {message}", param="schema")
