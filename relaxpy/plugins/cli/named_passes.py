"""The passes that the command line knows by name, and the text that selects them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType

from relaxpy import plugin
from relaxpy.errors import MisuseError, close_names
from relaxpy.ir.pass_infra.functional import FunctionalPass
from relaxpy.ir.pass_infra.passes import Pass, Sequential
from relaxpy.plugins.cli.show import UsageError


def public_passes() -> dict[str, type[Pass]]:
    """The passes over Relax programs and their kernels, by name."""
    from relaxpy.relax import transform
    from relaxpy.relax.distributed import transform as distributed
    from relaxpy.tir import transform as kernels

    modules = (transform, distributed, kernels, *plugin.load("passes"))
    return {
        name: value
        for module in modules
        for name in dir(module)
        if isinstance(value := getattr(module, name), type)
        and issubclass(value, Pass)
        and _is_selectable(name, value)
    }


def _is_selectable(name: str, kind: type[Pass]) -> bool:
    """True if this is a pass by its own name, and neither a base nor infrastructure."""
    package = kind.__module__.rpartition(".")[0]
    is_base = issubclass(kind, FunctionalPass) or package in ("relaxpy.ir", "relaxpy.ir.pass_infra")
    return name == kind.__name__ and not is_base


def sequence(text: str) -> Sequential:
    """The passes of a list such as `FoldConstant,FuseOps(fuse_opt_level=0)`, one after the other.

    Options are Python literals, and names of functions in `relaxpy.relax.transform`.

    Errors:
        UsageError: the text is not a list of passes, or a name or an option is unknown.
    """
    try:
        tree = ast.parse(f"[{text}\n]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if not isinstance(tree, ast.List):
        raise UsageError(f"--passes is a list of passes, found {text!r:.60}", hint=_EXAMPLE)
    return Sequential([_pass_of(node) for node in tree.elts])


_EXAMPLE = "write --passes 'LegalizeOps,FuseOps(fuse_opt_level=0)'"


def _pass_named(name: str) -> type[Pass]:
    known = public_passes()
    if name not in known:
        hint = close_names(name, known) or "relaxpy passes lists the passes"
        raise UsageError(f"there is no pass {name!r:.60}", hint=hint)
    return known[name]


def _pass_of(node: ast.expr) -> Pass:
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if not isinstance(call.func, ast.Name):
        raise UsageError(f"{ast.unparse(node)!r:.60} is not a pass", hint=_EXAMPLE)
    name = call.func.id
    kind = _pass_named(name)
    try:
        values = [_option(arg) for arg in call.args]
        options = {str(k.arg): _option(k.value) for k in call.keywords}
    except (ValueError, TypeError):
        raise UsageError(
            f"the options of {name} are Python literals, found {ast.unparse(node)!r:.60}"
        ) from None
    try:
        inspect.signature(kind).bind(*values, **options)
        return kind(*values, **options)
    except MisuseError as error:
        raise UsageError(error.diagnostics) from None
    except TypeError as error:
        raise UsageError(
            f"{name}: {error}", notes=(f"its options are {signature(kind)}",)
        ) from None


def _option(node: ast.expr) -> object:
    from relaxpy.relax import transform

    named = getattr(transform, node.id, None) if isinstance(node, ast.Name) else None
    return named if isinstance(named, FunctionType) else ast.literal_eval(node)


def signature(kind: type[Pass]) -> str:
    """How a pass is created, without annotations."""
    empty = inspect.Parameter.empty
    plain = [p.replace(annotation=empty) for p in inspect.signature(kind).parameters.values()]
    return f"{kind.__name__}{inspect.Signature(plain)}"


def example(name: str) -> str | None:
    """The program of a pass in examples/passes, without its docstring; None if there is none."""
    package = Path(__file__).parents[2]
    for folder in (package / "examples", package.parent / "examples"):  # installed, or a checkout
        if (file := folder / "passes" / f"{name}.py").is_file():
            return file.read_text(encoding="utf-8").partition("\n\n")[2]
    return None


def described(name: str) -> str:
    """The signature, documentation and example of a pass.

    Errors:
        UsageError: there is no pass of this name.
    """
    kind = _pass_named(name)
    sections = (signature(kind), inspect.getdoc(kind), example(name))
    return "\n\n".join(section.strip() for section in sections if section)


def listed(catalogue: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The names of a catalogue of passes or pipelines with the first line of each docstring."""
    for name, value in sorted(catalogue.items()):
        yield name, inspect.cleandoc(value.__doc__ or "").partition("\n")[0]
