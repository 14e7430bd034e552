"""The record of the primitives that were applied to a Schedule, as data and as Python."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.serialize import load_json, save_json
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import ConstExpr, IntImm, StringImm, Var
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_constructed

if TYPE_CHECKING:
    from relaxpy.plugins.schedule.schedule import Schedule


class _Name:
    display_name: ClassVar[str]
    hint = ""
    """The object that it named when the schedule returned it, such as the name of the block."""

    @override
    def __repr__(self) -> str:
        return f"<{self.display_name.replace(' ', f' {self.hint} ' if self.hint else ' ', 1)}>"

    def same_as(self, other: object) -> bool:
        """True if both are the same name."""
        return self is other


class BlockRV(_Name):
    """A name for a block of a Schedule, which stays valid as the kernel changes."""

    display_name = "block of the schedule"


SBlockRV = BlockRV
"""The name of TVM 0.27."""


class LoopRV(_Name):
    """A name for a loop of a Schedule, which stays valid as the kernel changes."""

    display_name = "loop of the schedule"


ExprRV = Var
"""A name for a number that a Schedule drew at random."""

_SPELLED = {
    "get_sblock": "GetSBlock",
    "rfactor": "RFactor",
    "reindex": "ReIndex",
    "unsafe_set_dtype": "UnsafeSetDType",
}
#: Parameters that are operands of an instruction although they are not blocks or loops.
_OPERANDS = {("annotate", "ann_val")}
_OBJECTS = "index_map"


@user_constructed
class InstructionKind:
    """A primitive as an instruction of a trace: its name, and which parameters are operands.

    The operands, blocks and loops among them, are the inputs of an instruction; the other
    parameters are its attributes.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        """The kind of the primitive `method`."""
        self.method = method
        self.method_name = method.__name__.removeprefix("_")
        words = self.method_name.split("_")
        self.name = _SPELLED.get(self.method_name, "".join(map(str.capitalize, words)))
        self.decides = "decision" in inspect.signature(method).parameters
        self.returns_list = str(inspect.signature(method).return_annotation).startswith("list")
        self.parameters = [
            (name, _role(method.__name__, name, parameter))
            for name, parameter in inspect.signature(method).parameters.items()
            if name not in {"self", "decision"}
        ]

    @staticmethod
    def get(name: str) -> InstructionKind:
        """The kind of a name such as "GetBlock".

        Errors:
            MisuseError (also ValueError): there is no such primitive.
        """
        kind = KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise unexpected(name, "expected the name of a primitive such as 'GetBlock'")
        return kind

    @property
    def is_pure(self) -> bool:
        """True if the primitive does not change the kernels."""
        return self.name.startswith(("Get", "Sample"))

    def same_as(self, other: object) -> bool:
        """True if both are the same kind."""
        return self is other

    def packed(self, arguments: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
        """The inputs and the attributes for the arguments of a call."""
        inputs: list[Any] = []
        attrs: list[Any] = []
        for name, role in self.parameters:
            value = arguments[name]
            if role == "*":
                inputs += value or ()
            else:
                (inputs if role == "input" else attrs).append(value)
        return inputs, attrs

    def unpacked(self, inputs: Sequence[Any], attrs: Sequence[Any]) -> dict[str, Any]:
        """The arguments of a call for the inputs and attributes of an instruction.

        Errors:
            MisuseError (also ValueError): their numbers are not those of the primitive.
        """
        roles = [role for _, role in self.parameters]
        rest = len(inputs) - roles.count("input")
        if rest < 0 or (rest and "*" not in roles) or len(attrs) != roles.count("attr"):
            raise MisuseError(
                f"{self.name} does not have {len(inputs)} inputs and {len(attrs)} attributes"
            )
        operand, attr = iter(inputs), iter(attrs)
        arguments: dict[str, Any] = {}
        for name, role in self.parameters:
            if role == "*":
                arguments[name] = [next(operand) for _ in range(rest)]
            else:
                arguments[name] = next(operand if role == "input" else attr)
        return arguments

    def call(self, sch: Schedule, arguments: Mapping[str, Any]) -> list[Any]:
        """Apply the primitive, and return the list of its results."""
        signature = inspect.signature(self.method)
        starred: list[Any] = []
        keywords = dict(arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind == inspect.Parameter.VAR_POSITIONAL:
                starred = keywords.pop(name)
        result = self.method(sch, *starred, **keywords)
        return [] if result is None else result if isinstance(result, list) else [result]


def _role(method: str, name: str, parameter: inspect.Parameter) -> str:
    annotation = str(parameter.annotation)
    if parameter.kind == inspect.Parameter.VAR_POSITIONAL or name == "factors":
        return "*"
    if "RV" not in annotation and (method, name) not in _OPERANDS:
        return "attr"
    return "*" if annotation.startswith("list") else "input"


#: The primitives by the names of their kinds.
KINDS: dict[str, InstructionKind] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One primitive with its operands and attributes, and the blocks and loops it returned."""

    kind: InstructionKind
    inputs: Sequence[Any]
    attrs: Sequence[Any]
    outputs: Sequence[BlockRV | LoopRV | ExprRV]

    def same_as(self, other: object) -> bool:
        """True if both are the same instruction."""
        return self is other

    def as_python(self, names: Mapping[object, str], decision: object = None) -> str:
        """A line of Python; blocks and loops that have no name are `_`."""
        signature = inspect.signature(self.kind.method)
        args: list[str] = []
        for name, value in self.kind.unpacked(self.inputs, self.attrs).items():
            if signature.parameters[name].kind == inspect.Parameter.VAR_POSITIONAL:
                args += (_written(item, names) for item in value)
            elif value != [] and (value is not None or name == "pad_value"):
                args.append(f"{name}={_argument(name, value, names)}")
        if decision is not None:
            args.append(f"decision={_written(decision, names)}")
        outputs = ", ".join(names.get(output, "_") for output in self.outputs)
        if self.kind.returns_list and len(self.outputs) == 1:
            outputs += ","
        call = f"sch.{self.kind.method_name}({', '.join(args)})"
        return f"{outputs} = {call}" if outputs else call

    @override
    def __str__(self) -> str:
        return self.as_python({})


@user_constructed
class Trace:
    """The instructions of a Schedule in the order in which they were applied."""

    def __init__(
        self,
        insts: Sequence[Instruction] = (),
        decisions: Mapping[Instruction, object] | None = None,
    ) -> None:
        """The trace of `insts`; `decisions` are what those that draw at random have drawn."""
        self.insts: list[Instruction] = list(insts)
        self.decisions: dict[Instruction, object] = dict(decisions or {})

    def get_decision(self, inst: Instruction) -> object | None:
        """The decision of an instruction, or None."""
        return self.decisions.get(inst)

    def append(self, inst: Instruction, decision: object | None = None) -> None:
        """Add an instruction at the end."""
        self.insts.append(inst)
        if decision is not None:
            self.decisions[inst] = decision

    def pop(self) -> Instruction | None:
        """Remove the last instruction and return it; None if there is none."""
        if not self.insts:
            return None
        last = self.insts.pop()
        self.decisions.pop(last, None)
        return last

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """The trace without lookups whose results no later instruction uses.

        `remove_postproc` also leaves out everything from `enter_postproc` on.
        """
        used: set[object] = set()
        kept: list[Instruction] = []
        for inst in reversed(self._before_postproc() if remove_postproc else self.insts):
            if inst.kind.is_pure and used.isdisjoint(inst.outputs):
                continue
            kept.append(inst)
            used.update(_names_in([*inst.inputs, *inst.attrs]))
        kept.reverse()
        return Trace(kept, {i: self.decisions[i] for i in kept if i in self.decisions})

    def _before_postproc(self) -> list[Instruction]:
        names = [inst.kind.name for inst in self.insts]
        return self.insts[: names.index(_POSTPROC)] if _POSTPROC in names else self.insts

    def _names(self) -> dict[object, str]:
        names: dict[object, str] = {}
        for inst in self.insts:
            for output in inst.outputs:
                letter = next(k for kind, k in _LETTERS.items() if isinstance(output, kind))
                names.setdefault(output, f"{letter}{len(names)}")
        return names

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """One line of Python for each instruction."""
        names = self._names()
        insts = self._before_postproc() if remove_postproc else self.insts
        return [inst.as_python(names, self.decisions.get(inst)) for inst in insts]

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
        """A list of instructions, and one of decisions, of strings, numbers and tables.

        An instruction is [kind, inputs, attributes, outputs]. A string among the inputs is a name
        of `outputs`, unless it is a string in quotation marks.
        """
        names = self._names()
        insts = self._before_postproc() if remove_postproc else self.insts
        rows = [
            [
                inst.kind.name,
                [_plain(item, names, quoted=True) for item in inst.inputs],
                [_plain(item, names) for item in inst.attrs],
                [names[output] for output in inst.outputs],
            ]
            for inst in insts
        ]
        made = [
            [i, _plain(self.decisions[x], names)]
            for i, x in enumerate(insts)
            if x in self.decisions
        ]
        return [rows, made]

    def apply_to_schedule(
        self,
        sch: Schedule,
        remove_postproc: bool = False,
        decision_provider: Callable[..., Any] | None = None,
    ) -> None:
        """Apply the instructions to another Schedule, with the decisions that were drawn.

        `decision_provider` replaces them: it gets an instruction, its inputs and attributes, and
        its decision or None.

        Errors:
            ScheduleError: one of them cannot be applied there.
        """
        known: dict[object, Any] = {}
        for inst in self._before_postproc() if remove_postproc else self.insts:
            inputs = [_renamed(value, known) for value in inst.inputs]
            decision = self.decisions.get(inst)
            if decision_provider is not None:
                decision = decision_provider(inst, inputs, inst.attrs, decision)
            arguments = inst.kind.unpacked(inputs, inst.attrs)
            _apply(sch, inst.kind, arguments, inst.outputs, known, decision)

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
        match items:
            case [list(insts), list(made)]:
                pass
            case _:
                raise unexpected(items, "a trace is a list of instructions and one of decisions")
        known: dict[object, Any] = {}
        decisions = _decisions(made)
        for number, item in enumerate(insts):
            match item:
                case [str(name), list(inputs), list(attrs), list(outputs)]:
                    kind = InstructionKind.get(name)
                    operands = [_named(value, known) for value in inputs]
                    arguments = kind.unpacked(operands, [_loaded(value) for value in attrs])
                    _apply(sch, kind, arguments, outputs, known, decisions.get(number))
                case _:
                    raise unexpected(item, "an instruction is [kind, inputs, attributes, outputs]")


_POSTPROC = "EnterPostproc"
#: How names of each kind begin in Python.
_LETTERS: dict[type, str] = {BlockRV: "b", LoopRV: "l", Var: "v"}


def _decisions(rows: list[Any]) -> dict[int, Any]:
    """The decisions by the numbers of their instructions."""
    table: dict[int, Any] = {}
    for row in rows:
        match row:
            case [int(number), decision]:
                table[number] = decision
            case _:
                raise unexpected(row, "a decision is [number of the instruction, decision]")
    return table


def _apply(
    sch: Schedule,
    kind: InstructionKind,
    arguments: Mapping[str, Any],
    outputs: Sequence[object],
    known: dict[object, Any],
    decision: object,
) -> None:
    if kind.decides:
        arguments = {**arguments, "decision": decision}
    results = kind.call(sch, arguments)
    if len(results) != len(outputs):
        raise MisuseError(
            f"{kind.name} returned {len(results)} results, the trace has {len(outputs)}"
        )
    known |= dict(zip(outputs, results, strict=True))


def _names_in(value: object) -> Iterator[object]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _names_in(item)
    elif isinstance(value, (BlockRV, LoopRV, Var)):
        yield value


def _argument(name: str, value: object, names: Mapping[object, str]) -> str:
    """The text of an argument: a buffer of a block is a pair, such as ("read", 0)."""
    text = _written(value, names)
    is_pair = name == "buffer" and isinstance(value, (list, tuple))
    return f"({text[1:-1]})" if is_pair else text


def _written(value: object, names: Mapping[object, str]) -> str:
    match value:
        case BlockRV() | LoopRV() | Var():
            return names.get(value, "_")
        case list() | tuple():
            return f"[{', '.join(_written(item, names) for item in value)}]"
        case StringImm() | ConstExpr():
            is_bool = isinstance(value, IntImm) and value.dtype.is_bool
            return repr(bool(value.value) if is_bool else value.value)
        case IndexMap():
            indices = ", ".join(var.name for var in value.initial_indices)
            results = "".join(f"{index}, " for index in value.final_indices)
            return f"lambda {indices}: ({results.rstrip()})"
        case Buffer():
            return json.dumps(value.name)
        case str():
            return json.dumps(value)
        case _:
            return str(value)


def _plain(value: object, names: Mapping[object, str], *, quoted: bool = False) -> Any:
    match value:
        case BlockRV() | LoopRV() | Var():
            return names.get(value, "_")
        case list() | tuple():
            return [_plain(item, names, quoted=quoted) for item in value]
        case Mapping():
            return {key: _plain(item, names, quoted=quoted) for key, item in value.items()}
        case StringImm(value=text) | str(text):
            return json.dumps(text) if quoted else text
        case ConstExpr():
            return value.value
        case IndexMap():
            return {_OBJECTS: save_json(value)}
        case Buffer():
            return value.name
        case None | bool() | int() | float():
            return value
        case _:
            raise MisuseError(f"{value!r:.60} cannot be written as JSON", about=value)


def _loaded(value: Any) -> Any:
    match value:
        case {"index_map": str(text)}:
            return load_json(text)
        case _:
            return value


def _named(value: Any, known: Mapping[object, Any]) -> Any:
    match value:
        case str() if value.startswith('"'):
            return json.loads(value)
        case str():
            if value not in known:
                raise MisuseError(f"the trace uses {value} before an instruction returns it")
            return known[value]
        case list():
            return [_named(item, known) for item in value]
        case dict():
            return {key: _named(item, known) for key, item in value.items()}
        case _:
            return _loaded(value)


def _renamed(value: Any, known: Mapping[object, Any]) -> Any:
    if isinstance(value, (BlockRV, LoopRV, Var)):
        return known[value]
    return [_renamed(v, known) for v in value] if isinstance(value, (list, tuple)) else value
