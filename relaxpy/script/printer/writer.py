"""Lines of program text, and the table of metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from typing_extensions import override

from relaxpy.ir.core.memo import VisitBudget
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import reindented
from relaxpy.ir.short_text.document import (
    Concat,
    Doc,
    Group,
    Layout,
    call,
    flat,
    string_text,
    width_of,
)
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.script.language.hardware import INTRINSICS
from relaxpy.script.printer.names import Names
from relaxpy.script.printer.options import Options
from relaxpy.script.printer.underlines import Marks

METADATA = "metadata"
ELIDED = "...  # nested too deeply to be shown"
_LINE_COST = 16  # in visits of a node
_MAX_DEPTH = 96  # Python reads up to 100 levels of indentation


class Writer:
    """Collects lines of text at the current indentation."""

    def __init__(self, options: Options, printed: Node, marks: Marks | None = None) -> None:
        self._visits = VisitBudget(printed)
        self.lines: list[str] = []
        self._marks = marks
        self.step = options.indent_spaces
        self.indent = 0
        self._layout = Layout(options.width, options.indent_spaces)

    @property
    def is_too_deep(self) -> bool:
        """True if a suite opened here would be nested too deeply for Python."""
        return self.indent >= _MAX_DEPTH * self.step

    def line(self, *docs: Doc) -> None:
        """Write one statement, on several lines if it is too long for one."""
        self._visits.spend(_LINE_COST)
        doc = docs[0] if len(docs) == 1 else Concat(*docs)
        self.lines += self._layout.lines(doc, self.indent)

    def header(self, name: str, params: Iterable[Doc], result: Doc | None) -> None:
        """Write the first line of a function; its parameters are the first to break."""
        if result is None:
            self.line(Group(f"def {name}(", params, "):"))
        elif self.indent + width_of(result) + len(") -> :") <= self._layout.width:
            self.line(Group(f"def {name}(", params, f") -> {flat(result)}:"))
        else:
            self.line(Group(f"def {name}(", params, ")"), " -> ", result, ":")

    def verbatim(self, text: str) -> None:
        """Write Python source unchanged but for the current indentation."""
        self.lines += reindented(text, "", " " * self.indent).split("\n")

    def blank(self) -> None:
        """Write an empty line."""
        self.lines.append("")

    def marked(self, *nodes: Node) -> AbstractContextManager[None]:
        """Mark the lines written inside as those of `nodes`."""
        if self._marks is None:
            return nullcontext()
        return self._marks.statement(self.lines, nodes)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Indent the lines written inside."""
        self.indent += self.step
        yield
        self.indent -= self.step


class Metadata:
    """The objects that a text refers to but does not contain, by kind and in order."""

    def __init__(self) -> None:
        self.table: dict[str, list[object]] = {}
        self._references: dict[int, str] = {}

    def reference(self, key: str, value: object) -> str:
        """The expression that refers to `value`."""
        reference = self._references.get(id(value))
        if reference is None:
            entries = self.table.setdefault(key, [])
            reference = self._references[id(value)] = f'{METADATA}["{key}"][{len(entries)}]'
            entries.append(value)
        return reference


def listed_devices(module: IRModule) -> dict[VDevice, str] | None:
    """The names of the devices that `module` lists, such as "cuda:1"; None if it has no list."""
    listed = module.global_infos.get("vdevice")
    if listed is None:
        return None
    names: dict[VDevice, str] = {}
    counts: Counter[str] = Counter()
    for device in listed:
        if isinstance(device, VDevice) and device.kind:
            names.setdefault(device, f"{device.kind}:{counts[device.kind]}")
            counts[device.kind] += 1
    return names


class ScriptText(ShortText):
    """Writes the leaves of a program; large constants and opaque objects go into the metadata.

    `devices` are the names of the devices that a module lists.
    """

    def __init__(
        self,
        names: Names,
        options: Options,
        metadata: Metadata,
        devices: Mapping[VDevice, str] | None,
    ) -> None:
        super().__init__(
            names.of,
            tir_prefix=options.tir_prefix,
            relax_prefix=options.relax_prefix,
            ir_prefix=options.ir_prefix,
        )
        self.marks = names.marks
        self._names = names
        self.metadata = metadata
        self.devices = devices

    @property
    @override
    def intrinsics(self) -> Mapping[str, Callable[..., tir.PrimExpr]]:
        return INTRINSICS

    @override
    def written(self, node: Node, doc: Doc) -> Doc:
        return doc if self.marks is None else self.marks.doc(node, doc)

    @override
    def struct_info_doc(
        self, sinfo: rx.StructInfo, quoted: frozenset[tir.Var] = frozenset()
    ) -> Doc:
        return self.written(sinfo, super().struct_info_doc(sinfo, quoted))

    @override
    def device_doc(self, device: object) -> Doc:
        if self.devices is None or not isinstance(device, VDevice):
            return super().device_doc(device)
        name = self.devices.get(device)
        return self.listed_device_doc(device) if name is None else string_text(name)

    @override
    def constant_doc(self, expr: rx.Constant) -> Doc:
        inline = self.small_constant(expr)
        doc = inline or self.metadata.reference("relax.expr.Constant", expr)
        sinfo = expr.distributed_sinfo
        if sinfo is None:
            return doc
        return call(f"{self.relax_prefix}.dist.const", doc, self.struct_info_doc(sinfo))

    def function_attrs_doc(self, attrs: Attrs) -> Doc:
        """The attributes of a function or module; what a text cannot say goes into the metadata.

        That is a value with variables that no text before it declares.
        """
        entries = (
            Concat(
                f"{string_text(key)}: ",
                self.attr_doc(value) if self._is_closed(value) else self.opaque_doc(value),
            )
            for key, value in attrs.items()
        )
        return Group("{", entries, "}")

    def _is_closed(self, value: object) -> bool:
        """True if all variables in the value of an attribute have names."""
        match value:
            case tuple() | list():
                return all(map(self._is_closed, value))
            case Mapping():
                return all(map(self._is_closed, value.values()))
            case tir.PrimExpr() | rx.StructInfo() | rx.Expr() | Buffer() | IterVar():
                return all(
                    node in self._names
                    for node in walk(value)
                    if isinstance(node, (tir.Var, Buffer, rx.Var, rx.GlobalVar))
                )
            case _:
                return True

    @override
    def opaque_doc(self, value: object) -> Doc:
        return self.metadata.reference(type(value).__name__, value)
