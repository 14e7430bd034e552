"""The picture of two versions of a program: what was added, removed and kept."""

from __future__ import annotations

from relaxpy.dataclass import replace
from relaxpy.pictures.model import MODULE, Picture


def merged(old: Picture, new: Picture) -> Picture:
    """The new picture, with the items of the old one that it lacks, each with its change.

    An item is kept if a group that is kept has one of the same name, operation and struct info.
    """
    places = {key: number for number, key in enumerate(_keys(new))}
    moved = {MODULE: MODULE}
    for number, key in enumerate(_keys(old)):
        if key in places:
            moved[number] = places[key]
    kept = set(moved.values())
    result = Picture([replace(item) for item in new.items], dict(new.uses))
    for item in result.items[1:]:
        item.change = "kept" if item.number in kept else "added"
    previous: dict[int, float] = {}
    for item in old.items[1:]:
        if item.number not in moved:
            order = previous.get(item.parent, result.items[moved[item.parent]].order) + 1e-6
            copy = result.add(item.kind, item.label, moved[item.parent])
            number = copy.number
            result.items[number] = replace(
                item, number=number, parent=copy.parent, order=order, change="removed"
            )
            moved[item.number] = number
        previous[item.parent] = result.items[moved[item.number]].order
    for value, user in old.uses:
        if "removed" in (result.items[moved[value]].change, result.items[moved[user]].change):
            result.use(moved[value], moved[user])
    return result


def _keys(picture: Picture) -> list[object]:
    """For each item what identifies it in its group, and the group."""
    keys: list[object] = [()]
    numbers: dict[object, int] = {}
    counts: dict[object, int] = {}
    for item in picture.items[1:]:
        group = numbers.setdefault(keys[item.parent], len(numbers))
        key = (group, item.kind, item.name, item.label, item.detail, item.program)
        counts[key] = counts.get(key, 0) + 1
        keys.append((key, counts[key]))
    return keys
