"""The names of a model's outputs, which importers record as an attribute of its function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from relaxpy.ir.relax.nodes import BaseFunc

#: The attribute: a mapping by names, a sequence, or None, nested as the model returns its outputs;
#: an output is its place among the fields of the tuple that the function returns. The place of an
#: output that the function returns without a tuple is 0.
OUTPUT_TREE: Final = "output_tree"
#: The attribute of a function whose calls return the tree instead of the tuple.
RETURNS_TREE: Final = "returns_tree"
#: The attribute for parameters that are tensors of strings, which have no struct info: a mapping
#: from their names to their sizes, numbers or names; None where the rank is not known.
STRING_SIZES: Final = "string_sizes"


def in_tree(tree: object, values: Sequence[Any]) -> Any:
    """The values at their places in a tree: mappings become dicts, and sequences tuples."""
    if isinstance(tree, int):
        return values[tree]
    if isinstance(tree, Mapping):
        return {name: in_tree(item, values) for name, item in tree.items()}
    if isinstance(tree, (tuple, list)):
        return tuple(in_tree(item, values) for item in tree)
    return None


def output_names(func: BaseFunc) -> tuple[str, ...]:
    """The names of the values that a function returns, in their order; none if unknown.

    Names within others are joined by points, and items of sequences are numbers: `hidden.0`. What
    the model does not return by a name, as the new value of a buffer, has the name "".
    """
    return names_of(func.attrs.get(OUTPUT_TREE))


def names_of(tree: object) -> tuple[str, ...]:
    """The names of the outputs of the tree that is the attribute, as `output_names` has them."""
    found = {place: name for name, place in _places("", tree)}
    return tuple(found.get(k, "") for k in range(max(found, default=-1) + 1))


def _places(name: str, tree: object) -> Iterator[tuple[str, int]]:
    items: Iterator[tuple[object, object]] = iter(())
    if isinstance(tree, int):
        yield name, tree
    elif isinstance(tree, Mapping):
        items = iter(tree.items())
    elif isinstance(tree, (tuple, list)):
        items = iter(enumerate(tree))
    for key, item in items:
        yield from _places(f"{name}.{key}" if name else str(key), item)
