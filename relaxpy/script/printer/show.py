"""The printer's public functions: as text, on the screen, for notebooks, and as differences."""

from __future__ import annotations

import html as markup
import importlib
import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from difflib import unified_diff

from relaxpy.errors import MisuseError, RelaxpyError, check_type, unexpected
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.script.printer.document import Document
from relaxpy.script.printer.writer import Marks, Options, has_paths, is_marked
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused
from relaxpy.support.screen import ipython, program_html

_MAX_LINES = 2000
_THEMES = {"light": "ansi_light", "dark": "ansi_dark", "ansi": "ansi_dark"}
# Colours of middle brightness: legible (contrast 4.5 or nearly) on white and on black pages alike.
_COLOURS = {
    "comment": "#767676",
    "string": "#1f8240",
    "decorator": "#a66300",
    "number": "#0078c8",
    "keyword": "#a45bc9",
}
_TOKENS = re.compile(
    r"(?P<comment>#[^\n]*)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<decorator>(?<![^\s])@[\w.]+)"
    r"|(?P<number>\b\d[\w.]*)"
    rf"|(?P<keyword>\b(?:{'|'.join(keyword.kwlist)})\b)"
    r"|(?P<name>\w+)"
)


@user_facing
@gc_paused
def script(node: Node | PrimType | PointerType, **options: object) -> str:
    """The TVMScript text of a node or a type; see `Options`.

    Errors:
        MisuseError (also TypeError, ValueError): an option is unknown or has a wrong value, or the
            node is nested too deeply.
    """
    checked = Options.of(options)
    if isinstance(node, PrimType):
        return f"{checked.tir_prefix}.{node.dtype}"
    if isinstance(node, PointerType):
        scope = node.storage_scope or "global"
        return f'{checked.tir_prefix}.handle("{node.element_type.dtype}", "{scope}")'
    try:
        if not is_marked(checked):
            return Document(node, checked).text()
        marks = Marks(node, checked)
        if has_paths(checked):  # which components the text shows is known after it is written
            Document(node, checked, marks)
            marks = Marks(node, checked, frozenset(marks.shown))
        return Document(node, checked, marks).text()
    except RecursionError:
        raise MisuseError(
            f"a {type(node).__name__} is nested too deeply to be shown", about=node
        ) from None


@user_facing
def metadata(node: Node, **options: object) -> Mapping[str, Sequence[object]]:
    """The value of `metadata` in the text of `node`: large constants, and objects without a text.

    With it in `extra_vars`, `from_source` can read the text.
    """
    return Document(node, Options.of(options)).metadata.table


@user_facing
def show(
    node: Node, style: str | None = None, black_format: bool | None = None, **options: object
) -> None:
    """Print the text of `node`, in colour on a terminal and in a notebook.

    With a `style`, "light", "dark" or "ansi", it is in colour everywhere. The layout is always that
    of black; `black_format` has no effect.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such style, or as for `script`.
    """
    _check_style(style)
    _print(node.script(**options), style)


@user_facing
def cprint(
    printable: Node | str, style: str | None = None, black_format: bool | None = None
) -> None:
    """Print a program, a node or the text of one, in colour; the arguments are those of `show`.

    Errors:
        MisuseError (also TypeError, ValueError): `printable` is something else, or as for `show`.
    """
    if isinstance(printable, Node):
        show(printable, style)
        return
    check_type(printable, str, "expected a program or a text")
    _check_style(style)
    _print(printable, style)


def _check_style(style: object) -> None:
    if style is not None and style not in _THEMES:
        raise unexpected(style, f"a style is one of {', '.join(_THEMES)}")


def _print(text: str, style: str | None) -> None:
    """Print a text, in colour on a terminal and in a notebook, and everywhere with a style."""
    if style is None and hasattr(ipython(), "kernel"):
        page = {"text/plain": text, "text/html": _page(text)}
        importlib.import_module("IPython.display").display(page, raw=True)
        return
    if not (sys.stdout.isatty() or style):
        print(text)
        return
    # rich takes long to load, and is needed only here.
    console = importlib.import_module("rich.console").Console(force_terminal=bool(style) or None)
    syntax = importlib.import_module("rich.syntax").Syntax
    theme = _THEMES[style or "dark"]
    coloured = syntax("", "python", theme=theme, background_color="default").highlight(text)
    # Without soft_wrap rich would cut lines that are wider than the terminal.
    console.print(coloured, soft_wrap=True, end="")


def html(node: Node) -> dict[str, str]:
    """The text of `node` for a notebook: plain, and in colours for light and dark pages."""
    text = str(node)
    return {"text/plain": text, "text/html": _page(text)}


def _page(text: str) -> str:
    """The text as HTML, without scripts or style sheets."""
    lines = text.split("\n")
    rest = len(lines) - _MAX_LINES
    if rest > 0:
        lines = [*lines[:_MAX_LINES], f"# … and {rest} more lines: print(….script())"]
    return program_html(_coloured(chr(10).join(lines)))


def _coloured(text: str) -> str:
    out: list[str] = []
    end = 0
    for match in _TOKENS.finditer(text):
        out.append(markup.escape(text[end : match.start()]))
        token = markup.escape(match.group())
        colour = _COLOURS.get(match.lastgroup or "")
        out.append(token if colour is None else f'<span style="color: {colour}">{token}</span>')
        end = match.end()
    out.append(markup.escape(text[end:]))
    return "".join(out)


def program_diff(before: object, after: object, labels: tuple[str, str]) -> str:
    """The texts of two programs as a unified diff, of those functions that differ structurally.

    It is empty if the texts are equal, if one of the two is neither a module nor a function, or if
    one has no text, since it is ill-formed or larger than what is printed.
    """
    old, new = _functions(before), _functions(after)
    lines: list[str] = []
    for name in {**old, **new}:
        if structural_equal(old.get(name), new.get(name)):
            continue
        try:
            texts = _lines(name, old.get(name)), _lines(name, new.get(name))
        except RelaxpyError:
            continue
        one, other = (f"{name} {label}".strip() for label in labels)
        lines += unified_diff(*texts, one, other, lineterm="")
    return "\n".join(lines)


def _functions(program: object) -> Mapping[str, BaseFunc]:
    """The functions of a module by name; a function alone has the name ""."""
    if isinstance(program, IRModule):
        return program.functions_by_name
    return {"": program} if isinstance(program, BaseFunc) else {}


def _lines(name: str, func: BaseFunc | None) -> list[str]:
    """The lines of the text of a function, without the imports; none for None."""
    lines = [] if func is None else script(func, **({"name": name} if name else {})).splitlines()
    return [line for line in lines if not line.startswith("# from ")]
