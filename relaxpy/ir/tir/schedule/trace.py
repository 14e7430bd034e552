"""The record of the primitives that were applied to a Schedule, as data and as Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.serialize import load_json, save_json
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.expr import ConstExpr, StringImm

if TYPE_CHECKING:
    from relaxpy.ir.tir.schedule.schedule import Schedule


class BlockRV:
    """A name for a block of a Schedule, which stays valid as the kernel changes."""


class LoopRV:
    """A name for a loop of a Schedule, which stays valid as the kernel changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One primitive with its arguments, and the blocks and loops that it returned."""

    kind: str
    arguments: Mapping[str, Any]
    outputs: tuple[BlockRV | LoopRV, ...]


class Trace:
    """The instructions of a Schedule in the order in which they were applied."""

    def __init__(self, insts: Sequence[Instruction] = ()) -> None:
        self.insts: list[Instruction] = list(insts)

    def _names(self) -> dict[object, str]:
        names: dict[object, str] = {}
        for inst in self.insts:
            for output in inst.outputs:
                letter = "b" if isinstance(output, BlockRV) else "l"
                names.setdefault(output, f"{letter}{len(names)}")
        return names

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """Return one line of Python for each instruction."""
        names = self._names()
        lines = []
        for inst in self.insts:
            args = ", ".join(
                _written(value, names)[1:-1]
                if key.startswith("*")
                else f"{key}={_written(value, names)}"
                for key, value in inst.arguments.items()
            )
            outputs = ", ".join(names[output] for output in inst.outputs)
            if inst.kind in _LISTS and len(inst.outputs) == 1:
                outputs += ","
            lines.append(
                f"{outputs} = sch.{inst.kind}({args})" if outputs else f"sch.{inst.kind}({args})"
            )
        return lines

    @override
    def __str__(self) -> str:
        return "\n".join(
            [
                "# from relaxpy import tir",
                "def apply_trace(sch: tir.Schedule) -> None:",
                *(f"  {line}" for line in self.as_python() or ["pass"]),
            ]
        )

    def show(self) -> None:
        """Print the Python of the instructions."""
        print(self)

    def as_json(self, remove_postproc: bool = False) -> list[Any]:
        """Return the instructions as lists of strings, numbers and tables."""
        names = self._names()
        return [
            [inst.kind, _plain(dict(inst.arguments), names), [names[o] for o in inst.outputs]]
            for inst in self.insts
        ]

    def apply_to_schedule(self, sch: Schedule, remove_postproc: bool = False) -> None:
        """Apply the instructions to another Schedule.

        Errors:
            ScheduleError: one of them cannot be applied there.
        """
        known: dict[object, BlockRV | LoopRV] = {}
        for inst in self.insts:
            arguments = {key: _renamed(value, known) for key, value in inst.arguments.items()}
            _apply(sch, inst.kind, arguments, inst.outputs, known)

    @staticmethod
    def apply_json_to_schedule(json_obj: object, sch: Schedule) -> None:
        """Apply the instructions of `as_json`, as lists or as text, to a Schedule.

        Errors:
            MisuseError: `json_obj` is not what `as_json` returns.
            ScheduleError: an instruction cannot be applied there.
        """
        try:
            items = json.loads(json_obj) if isinstance(json_obj, str) else json_obj
        except ValueError:
            raise unexpected(json_obj, "a trace is JSON") from None
        known: dict[object, BlockRV | LoopRV] = {}
        for item in items if isinstance(items, list) else [items]:
            match item:
                case [str(kind), dict(arguments), list(outputs)]:
                    _apply(sch, kind, _named(arguments, known), outputs, known)
                case _:
                    raise unexpected(item, "an instruction is [name, arguments, results]")


_LISTS = frozenset(
    (
        "get_loops",
        "get_child_blocks",
        "get_producers",
        "get_consumers",
        "split",
        "get_output_blocks",
    )
)


def _apply(
    sch: Schedule,
    kind: str,
    arguments: Mapping[str, Any],
    outputs: Sequence[object],
    known: dict[object, BlockRV | LoopRV],
) -> None:
    method = sch.primitives.get(kind)
    if method is None:
        raise MisuseError(f"there is no primitive {kind!r:.40} of a Schedule")
    keywords = {key: value for key, value in arguments.items() if not key.startswith("*")}
    starred = [v for key, value in arguments.items() if key.startswith("*") for v in value]
    result = method(sch, *starred, **keywords)
    results = [] if result is None else result if isinstance(result, list) else [result]
    if len(results) != len(outputs):
        raise MisuseError(f"{kind} returned {len(results)} results, the trace has {len(outputs)}")
    known |= dict(zip(outputs, results, strict=True))


def _written(value: object, names: Mapping[object, str]) -> str:
    match value:
        case BlockRV() | LoopRV():
            return names.get(value, "_")
        case list() | tuple():
            return f"[{', '.join(_written(item, names) for item in value)}]"
        case StringImm() | ConstExpr():
            return repr(value.value)
        case IndexMap():
            indices = ", ".join(var.name for var in value.initial_indices)
            results = "".join(f"{index}, " for index in value.final_indices)
            return f"lambda {indices}: ({results.rstrip()})"
        case str():
            return json.dumps(value)
        case _:
            return str(value)


def _plain(value: object, names: Mapping[object, str]) -> Any:
    match value:
        case BlockRV() | LoopRV():
            return {"rv": names.get(value, "_")}
        case list() | tuple():
            return [_plain(item, names) for item in value]
        case Mapping():
            return {key: _plain(item, names) for key, item in value.items()}
        case StringImm() | ConstExpr():
            return value.value
        case IndexMap():
            return {"index_map": save_json(value)}
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise MisuseError(f"{value!r:.60} cannot be written as JSON", about=value)


def _named(value: Any, known: Mapping[object, BlockRV | LoopRV]) -> Any:
    match value:
        case {"rv": str(name)}:
            if name not in known:
                raise MisuseError(f"the trace uses {name} before an instruction returns it")
            return known[name]
        case {"index_map": str(text)}:
            return load_json(text)
        case list():
            return [_named(item, known) for item in value]
        case dict():
            return {key: _named(item, known) for key, item in value.items()}
        case _:
            return value


def _renamed(value: Any, known: Mapping[object, BlockRV | LoopRV]) -> Any:
    if isinstance(value, (BlockRV, LoopRV)):
        return known[value]
    return [_renamed(v, known) for v in value] if isinstance(value, (list, tuple)) else value
