"""The kinds of values that attributes of operators have (RLY-71)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import freeze


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values: what a message calls it, and whether a value, frozen, is of it."""

    described: str
    accepts: Callable[[Any], bool]


def _each(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Accept a value, or a list of lists of values that are accepted, however deep."""

    def accepts_all(value: Any) -> bool:
        return all(map(accepts_all, value)) if isinstance(value, tuple) else accepts(value)

    return accepts_all


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_float(value: Any) -> bool:
    return type(value) in (int, float)


def _is_dtype(value: Any) -> bool:
    """Accept the name of a datatype; `""` and `"None"` stand for that of an operand."""
    if not isinstance(value, str):
        return False
    try:
        return value == "None" or DataType(value) is not None
    except MisuseError:
        return False


INT: Final = Kind("an integer", _is_int)
INTS: Final = Kind("an integer or a list of integers", _each(_is_int))
FLOAT: Final = Kind("a number", _is_float)
FLOATS: Final = Kind("a number or a list of numbers", _each(_is_float))
BOOL: Final = Kind("True or False", lambda value: type(value) is bool or value in (0, 1))
TEXT: Final = Kind("a string", lambda value: isinstance(value, str))
DTYPE: Final = Kind("the name of a datatype", _is_dtype)
ANY: Final = Kind("anything", lambda value: True)

_OF_DEFAULTS: Final = {bool: BOOL, int: INT, float: FLOAT, str: TEXT}
#: The kinds of attributes whose defaults do not show them, by their names.
_BY_NAME: Final[Mapping[str, Kind]] = {
    name: kind
    for kind, names in (
        (INT, "block_size channels depth index_rank lhs_end num_groups repeats rhs_end units"),
        (INTS, "axes axis begin end indices_or_sections kernel_size newshape output_size pad_width "
               "pool_size reps shape size strides target_shape"),
        (FLOAT, "a_max a_min"),
        (TEXT, "data_layout dst_layout equation kernel_layout src_layout"),
        (DTYPE, "compute_dtype dtype out_dtype"),
    )
    for name in names.split()
}  # fmt: skip
#: Attributes that may be None although that is not the default.
_OPTIONAL: Final = {"axis", "strides"}


def kinds_of(attributes: Mapping[str, object]) -> dict[str, Kind]:
    """Return the kinds of attributes, by their names and defaults."""
    return {name: _kind(name, default) for name, default in attributes.items()}


def _kind(name: str, default: object) -> Kind:
    if isinstance(default, tuple):
        return FLOATS if default and isinstance(default[0], float) else INTS
    if name in _BY_NAME and type(default) is not int:
        return _BY_NAME[name]
    return _OF_DEFAULTS.get(type(default), ANY)


def check_attribute(operator: str, name: str, kind: Kind, default: object, value: object) -> None:
    """Check the value of an attribute of an operator.

    Errors:
        MisuseError (also TypeError): the value is not of the kind of the attribute.
    """
    if value is None and (default is None or name in _OPTIONAL):
        return
    if not kind.accepts(freeze(value)):
        raise unexpected(value, f"{operator}: {name} is {kind.described}", rule="RLY-71")
