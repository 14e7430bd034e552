"""Reproducers: files with the module that a pass failed on, and the passes that were left.

A file is TVMScript below comments that `relaxpy opt` reads, so that it can be cut down by hand.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.target import Target
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from relaxpy.ir.pass_infra.passes import Pass

VARIABLE: Final = "RELAXPY_REPRODUCER_DIR"
TITLE: Final = "# relaxpy reproducer of "
_LARGEST: Final = 1 << 26
"""Bytes of constants beyond which no file is written."""


@dataclass(slots=True, eq=False)
class _Failure:
    """An error, the module on which a pass raised it, that pass, and those that were left."""

    error: BaseException | None = None
    mod: IRModule | None = None
    passes: list[Pass] | None = None


_current: ContextVar[_Failure | None] = ContextVar("relaxpy_failure", default=None)


@contextmanager
def reproducible(
    step: Pass, mod: IRModule, folder: str | os.PathLike[str] | None, context: Mapping[str, object]
) -> Iterator[None]:
    """Write a file if the pass fails, unless it runs inside another one, which writes it."""
    outer = _current.get()
    folder = folder or os.environ.get(VARIABLE)
    if outer is None and not folder:
        with _advising():
            yield
        return
    failure = outer or _Failure()
    token = _current.set(failure)
    try:
        yield
    except Exception as error:  # of any kind: it is raised again
        if failure.error is not error:
            failure.error, failure.mod, failure.passes = error, mod, [step]
        if outer is None and folder:
            from pathlib import Path

            error.add_note(_written(failure, Path(folder), context))
        raise
    finally:
        _current.reset(token)


@contextmanager
def _advising() -> Iterator[None]:
    """Add a note on how to get a reproducer to internal errors."""
    try:
        yield
    except Exception as error:  # of any kind: it is raised again with a note
        notes = getattr(error, "__notes__", ())
        if not isinstance(error, RelaxpyError) and not any(VARIABLE in note for note in notes):
            error.add_note(f"{VARIABLE}=FOLDER saves the module and the passes that were left")
        raise


def add_remaining(error: BaseException, passes: Sequence[Pass]) -> None:
    """Record the passes that a sequence has left after one that failed."""
    failure = _current.get()
    if failure is not None and failure.error is error and failure.passes is not None:
        failure.passes += passes


def _written(failure: _Failure, folder: Path, context: Mapping[str, object]) -> str:
    """Write the file of a failure, and return a note that says where it is, or why it is not."""
    assert failure.error is not None
    assert failure.mod is not None
    if not isinstance(failure.mod, IRModule):  # one of Relay
        return f"there is no reproducer of a {type(failure.mod).__name__}"
    try:
        size = sum(c.nbytes for c in _constants(failure.mod))
        if size > _LARGEST:
            return f"there is no reproducer: the constants of the module have {size} bytes"
        text = _text(failure.error, failure.mod, failure.passes or [], context)
        name = re.sub(r"\W", "_", (failure.passes or [])[0].info.name)
        path = folder / f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except Exception as error:  # which must not hide the one that is reported
        return f"there is no reproducer: {type(error).__name__}: {error}"
    own = [step.info.name for step in failure.passes or [] if not _is_readable(step)]
    if own:
        way = f"apply them in Python, as {', '.join(own)} cannot be read from a text"
        return f"the module and the passes are in {path}: {way}"
    return f"the module and the passes are in {path}: relaxpy opt {path}"


def _constants(mod: IRModule) -> Iterator[rx.Constant]:
    for func in mod.functions_by_name.values():
        yield from occurrences(func, rx.Constant)


def _text(
    error: BaseException, mod: IRModule, passes: Sequence[Pass], context: Mapping[str, object]
) -> str:
    message = f"{type(error).__name__}: {error}".splitlines()[0]
    target = Target.current()
    head = {
        "passes": ", ".join(map(pass_text, passes)),
        "context": repr(dict(context)),
        "target": "" if target is None else str(target),
    }
    lines = [f"{TITLE}{message:.200}", *(f"# {key}: {value}" for key, value in head.items())]
    return "\n".join((*lines, mod.script(show_meta=True), ""))


def pass_text(step: Pass) -> str:
    """The text that `relaxpy opt --passes` takes for a pass: its name, and options with values.

    A sequence is the passes in it. Functions are written by their names; other values that are not
    literals have no text that can be read.
    """
    inner: Sequence[Pass] | None = getattr(step, "passes", None)
    if inner is not None:
        return ", ".join(map(pass_text, inner))
    if not is_dataclass(step) or hasattr(step, "function"):
        return step.info.name
    options = [
        f"{field.name}={_option(getattr(step, field.name))}"
        for field in fields(step)
        if field.init and not _is_default(step, field)
    ]
    return f"{step.info.name}({', '.join(options)})" if options else step.info.name


def _is_readable(step: Pass) -> bool:
    """True if `relaxpy opt` can create the pass, which is one of relaxpy, from its text."""
    inner: Sequence[Pass] | None = getattr(step, "passes", None)
    if inner is not None:
        return all(map(_is_readable, inner))
    if not is_dataclass(step) or hasattr(step, "function"):
        return False
    options = (getattr(step, f.name) for f in fields(step) if f.init and not _is_default(step, f))
    return _is_own(type(step)) and all(map(_has_text, options))


def _is_own(value: object) -> bool:
    return str(getattr(value, "__module__", "")).startswith("relaxpy.")


def _has_text(value: object) -> bool:
    """True if the value of an option is a literal, or a function of relaxpy, which has a name."""
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return _is_own(value)
    try:
        ast.literal_eval(_option(value))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _is_default(step: object, field: Field[Any]) -> bool:
    value = getattr(step, field.name)
    default = field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    return value is default or (type(value) is type(default) and repr(value) == repr(default))


def _option(value: object) -> str:
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return str(getattr(value, "__name__", type(value).__name__))
    if isinstance(value, Mapping):
        value = dict(value)
    return repr(value)


def read_header(text: str) -> dict[str, str] | None:
    """The passes, context and target of a reproducer; None if the source is not one."""
    if not text.startswith(TITLE):
        return None
    found: dict[str, str] = {}
    for line in text.splitlines()[1:4]:
        key, _, value = line.removeprefix("# ").partition(": ")
        found[key.rstrip(":")] = value
    return found


def read_context(text: str) -> dict[str, Any]:
    """The options of the context that a reproducer names; none if they are not literals."""
    try:
        options = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return {}
    names = ("opt_level", "required_pass", "disabled_pass", "config")
    return {k: v for k, v in options.items() if k in names} if isinstance(options, dict) else {}
