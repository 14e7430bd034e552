"""Lines of program text, with options, names, underlined components, and the table of metadata."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, close_names, unexpected
from relaxpy.ir.core.memo import VisitBudget
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.equality.mismatch import AccessPath
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DeviceMesh
from relaxpy.ir.relax.nodes.python_function import reindented
from relaxpy.ir.short_text import document
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.script.language.hardware import INTRINSICS
from relaxpy.support.dataclass import dataclass

_PYTHON = frozenset((*keyword.kwlist, *dir(builtins)))
#: No names for the functions of a module, which may have other built-in names such as `sum`.
_NOT_FUNCTIONS = frozenset((*keyword.kwlist, "range"))


def hint_of(node: Node) -> str:
    """The preferred name of a variable."""
    if isinstance(node, Buffer):
        return node.name or "buffer"
    if isinstance(node, tir.Var):
        return node.name
    return str(getattr(node, "name_hint", ""))


def as_identifier(hint: str) -> str:
    """A Python name like `hint`, without the leading underscores that the parser rejects."""
    if hint.isascii() and hint.isidentifier() and not hint.startswith("__"):
        return hint
    name = re.sub(r"\W", "_", unicodedata.normalize("NFKC", hint))
    name = re.sub(r"^__+", "_", name)
    return name if name.isidentifier() else f"v{name}"


def is_name(text: str) -> bool:
    """True if `text` is an identifier that Python's normalisation (NFKC) leaves unchanged."""
    plain = text.isascii() or unicodedata.normalize("NFKC", text) == text
    return plain and text.isidentifier() and not keyword.iskeyword(text)


def function_names(hints: Iterable[str], reserved: Iterable[str]) -> dict[str, str]:
    """The names in the text of the functions called `hints`: the same where that is possible.

    The functions of a module are attributes of its class, so few other names clash with theirs.
    """
    taken = {*_NOT_FUNCTIONS, *reserved}
    names: dict[str, str] = {}
    for hint in sorted(hints, key=lambda h: as_identifier(h) != h):
        base = name = as_identifier(hint)
        count = 0
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        names[hint] = name
    return names


def _key(node: Node) -> int | str:
    """The key of a variable; a GlobalVar is identified by its name (AST-8)."""
    return node.name_hint if isinstance(node, rx.GlobalVar) else id(node)


class Names:
    """The names of variables in a text, none of which is in `reserved`.

    `functions` has the text for each function of the module, such as `cls.main`.
    """

    def __init__(
        self, reserved: Iterable[str] = (), functions: Mapping[str, str] | None = None
    ) -> None:
        self.marks: Marks | None = None
        self.show_address = False
        self._taken = {*_PYTHON, *reserved}
        self._counts: dict[str, int] = {}
        self._functions: Mapping[Any, str] = functions or {}
        self._names: dict[int | str, str] = {}
        self._undo: list[tuple[Node | None, str, str, int]] = []

    def __contains__(self, node: Node) -> bool:
        return _key(node) in self._names or _key(node) in self._functions

    def fresh(self, hint: str) -> str:
        """An unused name."""
        return self._claim(None, hint)

    def bind(self, node: Node, hint: str | None = None) -> str:
        """Choose a new name for `node`, like `hint` or else its preferred name."""
        hint = hint_of(node) if hint is None else hint
        name = self._claim(node, f"{hint}_{id(node):#x}" if self.show_address else hint)
        self._names[_key(node)] = name
        return name

    def alias(self, node: Node, name: str) -> None:
        """Give `node` a name that is already in use."""
        self._names[_key(node)] = name

    def of(self, node: Node) -> str:
        """The name of `node`; one without a definition gets a name here."""
        key = _key(node)
        name = self._names.get(key) or self._functions.get(key)
        name = self.bind(node) if name is None else name
        return name if self.marks is None else self.marks.name(node, name)

    def _claim(self, node: Node | None, hint: str) -> str:
        base = as_identifier(hint)
        previous = count = self._counts.get(base, 0)
        name = base
        if count or name in self._taken:
            stem = base if base.endswith("_") else f"{base}_"
            count = max(count, 1)
            while (name := f"{stem}{count}") in self._taken:
                count += 1
        self._undo.append((node, name, base, previous))
        self._taken.add(name)
        self._counts[base] = count + 1
        return name

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Open a scope, whose names are available again when it ends."""
        start = len(self._undo)
        yield
        while len(self._undo) > start:
            node, name, base, count = self._undo.pop()
            self._taken.discard(name)
            self._counts[base] = count
            if node is not None:
                self._names.pop(_key(node), None)


_SWITCHES = (
    "show_meta",
    "show_all_struct_info",
    "verbose_expr",
    "syntax_sugar",
    "show_object_address",
    "print_line_numbers",
)

#: The names of options in TVM after v0.27.
_NEWER = {"show_all_ty": "show_all_struct_info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a program is printed.

    `name` is the name of the printed module or function. `show_meta` writes large constants, too.
    `module_alias` is the name of the module inside its functions, "" for that of the class. Without
    `show_all_struct_info` bindings have no annotations. With `verbose_expr` the text of a part of a
    program begins with lines that describe its free variables. Without `syntax_sugar` each loop,
    axis, allocation and parameter of a kernel is a statement by itself. With `show_object_address`
    the names of variables end in a number that identifies the object.

    `obj_to_underline` and `path_to_underline` are components of the program, by themselves or by
    their paths; `obj_to_annotate` and `path_to_annotate` have the comment for each. Lines have
    numbers with `print_line_numbers`. If `num_context_lines` is not negative, only lines at most
    that far from an underlined one are printed.

    Units:
        indent_spaces, width  characters
        num_context_lines     lines
    """

    name: str | None = None
    show_meta: bool = False
    ir_prefix: str = "I"
    tir_prefix: str = "T"
    relax_prefix: str = "R"
    module_alias: str = "cls"
    indent_spaces: int = document.INDENT
    show_all_struct_info: bool = True
    verbose_expr: bool = False
    syntax_sugar: bool = True
    show_object_address: bool = False
    width: int = document.WIDTH
    print_line_numbers: bool = False
    num_context_lines: int = -1
    obj_to_underline: Sequence[object] | None = None
    obj_to_annotate: Mapping[object, str] | None = None
    path_to_underline: Sequence[AccessPath] | None = None
    path_to_annotate: Mapping[AccessPath, str] | None = None

    def __post_init__(self) -> None:
        for key in ("ir_prefix", "tir_prefix", "relax_prefix"):
            _require_name(key, getattr(self, key))
        if self.name is not None:
            _require_name("name", self.name)
        if self.module_alias != "":
            _require_name("module_alias", self.module_alias)
        names = [self.ir_prefix, self.tir_prefix, self.relax_prefix, self.module_alias]
        names += [] if self.name is None else [self.name]
        if len(set(names)) < len(names):
            raise MisuseError(
                f"the prefixes, the module's alias and the name must differ from each other, "
                f"found {', '.join(names)}"
            )
        for key in _SWITCHES:
            value = getattr(self, key)
            check_type(value, bool, f"{key} is True or False")
        for key in ("obj_to_underline", "path_to_underline"):
            value = getattr(self, key)
            if value is not None and not isinstance(value, (list, tuple)):
                raise unexpected(value, f"{key} is a list")
        for key in ("obj_to_annotate", "path_to_annotate"):
            value = getattr(self, key)
            if value is not None and not isinstance(value, Mapping):
                raise unexpected(value, f"{key} is a mapping to texts")
        for key in ("indent_spaces", "width"):
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise unexpected(value, f"{key} is a positive integer")

    @staticmethod
    def of(keywords: Mapping[str, object]) -> Options:
        """Create options from keywords.

        Errors:
            MisuseError (also TypeError, ValueError): an option is unknown or has a wrong value.
        """
        known = [f.name for f in fields(Options)]
        keywords = {_NEWER.get(key, key): value for key, value in keywords.items()}
        for key, value in keywords.items():
            if key not in known:
                raise MisuseError(
                    f"the printer has no option {key!r}; it has {', '.join(known)}",
                    about=value,
                    hint=close_names(key, known),
                )
        return Options(**keywords)  # type: ignore[arg-type]


def _require_name(key: str, value: object) -> None:
    if not isinstance(value, str) or not is_name(value):
        raise unexpected(value, f"{key} is a Python name")
    if value.startswith("__") or value in ("_", "metadata", "range"):
        raise MisuseError(
            f"{key} cannot be {value!r:.60}, which is reserved in a program", about=value
        )


START, END = "\ufdd0", "\ufdd1"  # no text contains these: string literals escape them


class Marks:
    """The components to underline and to annotate, and the lines that were written for them.

    A path means the component at its end or, where the text does not show that one, the longest
    prefix whose component it shows. `shown` has the components that were written so far.
    """

    def __init__(self, root: Node, options: Options, shown: frozenset[int] | None = None) -> None:
        self.shown: set[int] = set()
        self._underlined: set[int] = set()
        self._annotations: dict[int, str] = {}
        self._lines: list[range] = []
        self._comments: list[tuple[int, str]] = []
        for component in options.obj_to_underline or ():
            self._underlined.add(id(component))
        for component, text in (options.obj_to_annotate or {}).items():
            self._annotations[id(component)] = text
        for path in options.path_to_underline or ():
            self._underlined.update(_targets(root, path, shown))
        for path, text in (options.path_to_annotate or {}).items():
            self._annotations.update(dict.fromkeys(_targets(root, path, shown), text))

    @contextmanager
    def statement(self, lines: list[str], nodes: Iterable[Node]) -> Iterator[None]:
        """Mark the lines that are written inside as those of `nodes`."""
        start = len(lines)
        yield
        for key in map(id, nodes):
            self.shown.add(key)
            if key in self._underlined:
                self._lines.append(range(start, len(lines)))
            if key in self._annotations:
                self._comments.append((start, self._annotations[key]))

    def doc(self, node: object, doc: document.Doc) -> document.Doc:
        """`doc`, the text of `node`, marked if it is to be underlined."""
        self.shown.add(id(node))
        if id(node) not in self._underlined:
            return doc
        marked = document.Concat(START, doc, END)
        marked.width -= 2  # the marks are removed
        return marked

    def name(self, node: object, name: str) -> str:
        """The name of a variable, marked if it is to be underlined."""
        self.shown.add(id(node))
        return f"{START}{name}{END}" if id(node) in self._underlined else name

    def finished(self, lines: list[str], options: Options) -> list[str]:
        """The lines with underlines and comments, numbered and cut as in `options`."""
        plain, spans = _without_marks(lines)
        for marked in self._lines:
            for index in marked:
                text = plain[index]
                if text:
                    spans[index].append((len(text) - len(text.lstrip()), len(text)))
        for index, comment in self._comments:
            plain[index] += f"  # {comment}"
        return _shown(plain, spans, options.print_line_numbers, options.num_context_lines)


def _shown(
    plain: list[str], spans: list[list[tuple[int, int]]], numbered: bool, context: int
) -> list[str]:
    """The lines with the columns in `spans` underlined, and others left out."""
    kept = _excerpt([bool(found) for found in spans], context)
    width = len(str(len(plain))) + 1 if numbered else 0
    out: list[str] = []
    skipped = 0
    for index, text in enumerate(plain):
        if not kept[index]:
            skipped += 1
            if index + 1 == len(plain) or kept[index + 1]:
                out.append(f"(... {skipped} lines skipped ...)")
                skipped = 0
            continue
        number = f"{index + 1:>{width - 1}} " if width else ""
        out.append(f"{number}{text}".rstrip())
        if spans[index]:
            out.append(" " * width + _underline(spans[index]))
    return out


def _targets(root: Node, path: AccessPath, shown: frozenset[int] | None) -> list[int]:
    """The component that `path` means; all that it may mean while `shown` is unknown."""
    check_type(path, AccessPath, "expected an AccessPath")
    value: object = root
    found = [id(root)]
    for kind, step in path.steps:
        try:
            value = getattr(value, str(step)) if kind == "attr" else value[step]  # type: ignore[index]
        except (AttributeError, LookupError, TypeError):
            break
        found.append(id(value))
    if shown is None:
        return []
    return [key for key in found if key in shown][-1:]


def _without_marks(lines: Iterable[str]) -> tuple[list[str], list[list[tuple[int, int]]]]:
    """Remove the marks; return the lines and the columns of what is marked in each of them."""
    plain: list[str] = []
    spans: list[list[tuple[int, int]]] = []
    opened = 0
    for line in lines:
        text = ""
        found: list[tuple[int, int]] = []
        indent = len(line) - len(line.lstrip())
        begin = [indent] * opened
        for char in line:
            if char == START:
                begin.append(len(text))
            elif char == END:
                found.append((begin.pop(), len(text)))
            else:
                text += char
        opened = len(begin)
        found += ((start, len(text)) for start in begin)
        plain.append(text)
        spans.append([span for span in found if span[0] < span[1]])
    return plain, spans


def _excerpt(is_marked: list[bool], context: int) -> list[bool]:
    """The lines to keep: those around a mark; a single line is not left out."""
    if context < 0 or not any(is_marked):
        return [True] * len(is_marked)
    kept = [any(is_marked[max(0, i - context) : i + context + 1]) for i in range(len(is_marked))]
    for i, keep in enumerate(kept):
        before, after = kept[i - 1] if i else True, kept[i + 1] if i + 1 < len(kept) else True
        if not keep and before and after:
            kept[i] = True
    return kept


def _underline(spans: list[tuple[int, int]]) -> str:
    columns = {column for start, stop in spans for column in range(start, stop)}
    return "".join("^" if i in columns else " " for i in range(max(columns) + 1))


def is_marked(options: Options) -> bool:
    """True if the text has underlines, comments or line numbers."""
    paths: tuple[object, ...] = (options.path_to_underline, options.path_to_annotate)
    objects: tuple[object, ...] = (options.obj_to_underline, options.obj_to_annotate)
    return bool(options.print_line_numbers or any(paths) or any(objects))


def has_paths(options: Options) -> bool:
    """True if components are given by their paths."""
    return bool(options.path_to_underline or options.path_to_annotate)


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
        self._layout = document.Layout(options.width, options.indent_spaces)

    @property
    def is_too_deep(self) -> bool:
        """True if a suite opened here would be nested too deeply for Python."""
        return self.indent >= _MAX_DEPTH * self.step

    def line(self, *docs: document.Doc) -> None:
        """Write one statement, on several lines if it is too long for one."""
        self._visits.spend(_LINE_COST)
        doc = docs[0] if len(docs) == 1 else document.Concat(*docs)
        self.lines += self._layout.lines(doc, self.indent)

    def header(
        self, name: str, params: Iterable[document.Doc], result: document.Doc | None
    ) -> None:
        """Write the first line of a function; its parameters are the first to break."""
        if result is None:
            self.line(document.Group(f"def {name}(", params, "):"))
        elif self.indent + document.width_of(result) + len(") -> :") <= self._layout.width:
            self.line(document.Group(f"def {name}(", params, f") -> {document.flat(result)}:"))
        else:
            self.line(document.Group(f"def {name}(", params, ")"), " -> ", result, ":")

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


class ListedInfos(NamedTuple):
    """The names of the devices and meshes that a module lists, such as "cuda:1" and "mesh[0]".

    `devices` is None if the module has no list of devices.
    """

    devices: Mapping[VDevice, str] | None = None
    meshes: Mapping[DeviceMesh, str] = MappingProxyType({})

    @classmethod
    def of(cls, module: IRModule) -> Self:
        """The names of what `module` lists."""
        devices: dict[VDevice, str] = {}
        meshes: dict[DeviceMesh, str] = {}
        counts: Counter[str] = Counter()
        for key, infos in module.global_infos.items():
            for number, info in enumerate(infos):
                if isinstance(info, DeviceMesh) and re.fullmatch(r"\w+", key):
                    meshes.setdefault(info, f"{key}[{number}]")
                elif key == "vdevice" and isinstance(info, VDevice) and info.kind:
                    devices.setdefault(info, f"{info.kind}:{counts[info.kind]}")
                    counts[info.kind] += 1
        return cls(devices if "vdevice" in module.global_infos else None, meshes)


class ScriptText(ShortText):
    """Writes the leaves of a program; large constants and opaque objects go into the metadata.

    `listed` are the names of the devices and meshes that a module lists.
    """

    def __init__(
        self, names: Names, options: Options, metadata: Metadata, listed: ListedInfos
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
        self.listed = listed

    @property
    @override
    def intrinsics(self) -> Mapping[str, Callable[..., tir.PrimExpr]]:
        return INTRINSICS

    @override
    def written(self, node: Node, doc: document.Doc) -> document.Doc:
        return doc if self.marks is None else self.marks.doc(node, doc)

    @override
    def struct_info_doc(
        self, sinfo: rx.StructInfo, quoted: frozenset[tir.Var] = frozenset()
    ) -> document.Doc:
        return self.written(sinfo, super().struct_info_doc(sinfo, quoted))

    @override
    def device_doc(self, device: object) -> document.Doc:
        if self.listed.devices is None or not isinstance(device, VDevice):
            return super().device_doc(device)
        name = self.listed.devices.get(device)
        return self.listed_device_doc(device) if name is None else document.string_text(name)

    @override
    def mesh_doc(self, mesh: DeviceMesh) -> document.Doc:
        name = self.listed.meshes.get(mesh)
        return super().mesh_doc(mesh) if name is None else document.string_text(name)

    @override
    def constant_doc(self, expr: rx.Constant) -> document.Doc:
        inline = self.small_constant(expr)
        doc = inline or self.metadata.reference("relax.expr.Constant", expr)
        sinfo = expr.distributed_sinfo
        if sinfo is None:
            return doc
        return document.call(f"{self.relax_prefix}.dist.const", doc, self.struct_info_doc(sinfo))

    def function_attrs_doc(self, attrs: Attrs) -> document.Doc:
        """The attributes of a function or module; what a text cannot say goes into the metadata.

        That is a value with variables that no text before it declares.
        """
        entries = (
            document.Concat(
                f"{document.string_text(key)}: ",
                self.attr_doc(value) if self._is_closed(value) else self.opaque_doc(value),
            )
            for key, value in attrs.items()
        )
        return document.Group("{", entries, "}")

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
    def opaque_doc(self, value: object) -> document.Doc:
        return self.metadata.reference(type(value).__name__, value)
