"""The frames of an IRBuilder, and the application of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import singledispatch
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from relaxpy.errors import BuilderStateError, check_type, unexpected
from relaxpy.script.language import records
from relaxpy.script.language.eager import is_eager, not_iterable
from relaxpy.script.language.kernel_builder import FRAMES, KernelBuilder
from relaxpy.script.language.wording import describe
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.script.ir_builder.base import IRBuilder

open_builders: ContextVar[tuple[IRBuilder, ...]] = ContextVar("relaxpy_ir_builders", default=())


def current_builder() -> IRBuilder:
    """The innermost open builder.

    Errors:
        BuilderStateError (also ValueError): there is none.
    """
    builders = open_builders.get()
    if not builders:
        hint = "a function that a parsed program calls uses R and I of relaxpy.script"
        raise BuilderStateError(
            "no IRBuilder is open", hint=hint if is_eager() else "with IRBuilder() as builder: ..."
        )
    return builders[-1]


def check_option(value: object, name: str) -> None:
    """Errors: MisuseError (also TypeError) if an option is neither True nor False."""
    check_type(value, bool, f"{name} is True or False")


class _Aborted(Exception):  # noqa: N818
    """The error that aborts a frame that was never left."""


class IRBuilderFrame:
    """A frame: a `with` block that collects the directives called in it.

    Errors:
        BuilderStateError (also ValueError): it is not allowed here, or is entered twice.
    """

    display_name = "frame"
    kernel: KernelBuilder | None = None

    def __init__(self) -> None:
        self.context: AbstractContextManager[object] | None = None
        self._builder: IRBuilder | None = None
        self._callbacks: list[Callable[[], object]] = []
        if open_builders.get():
            current_builder().expect(self)

    def open_context(self, builder: IRBuilder) -> AbstractContextManager[object]:
        """Open this frame; entering returns the value after `as`, or None for the frame itself."""
        raise AssertionError("every subclass overrides this")

    @user_facing
    def __enter__(self) -> Any:
        builder = current_builder()
        if self._builder is not None:
            raise BuilderStateError(f"{self} is entered twice", hint="create another one")
        self._builder = builder
        return builder.enter(self)

    @user_facing
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        builder, context = self._builder, self.context
        if builder is None or context is None or self not in builder.frames:
            raise BuilderStateError(f"{self} is left without being open")
        try:
            while error is None and self._callbacks:
                self._callbacks.pop()()
            aborted = builder.close_inside(self, kind, error, trace)
            if aborted and error is None:
                raise BuilderStateError(f"{aborted[-1]} is still open", hint="leave it first")
        except BaseException as failure:
            builder.close_inside(self, type(failure), failure, None)
            builder.frames.pop()
            self.abort(type(failure), failure, None)
            raise
        builder.frames.pop()
        context.__exit__(kind, error, trace)

    def abort(self, *raised: Any) -> None:
        """Abort this frame, so that it adds nothing."""
        assert self.context is not None
        failure = raised[1] if raised and raised[1] is not None else _Aborted()
        try:
            self.context.__exit__(type(failure), failure, None)
        except BaseException as error:
            if error is not failure:
                raise

    @user_facing
    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` when this frame is left; callbacks run in reverse order."""
        if not callable(callback):
            raise unexpected(callback, "a callback is a function")
        self._callbacks.append(callback)

    @override
    def __str__(self) -> str:
        return describe(self)


class TIRFrame(IRBuilderFrame):
    """The frame of a directive of T that encloses statements, such as a loop or a block."""

    def __init__(self, form: records.Form) -> None:
        super().__init__()
        self.form = form
        self.display_name = form.display_name

    def __iter__(self) -> Iterator[object]:
        raise not_iterable(self.form)

    @override
    def open_context(self, builder: IRBuilder) -> AbstractContextManager[object]:
        self.kernel = builder.kernel(str(self))
        return self.kernel.unnamed_frame(self.form, None)


@singledispatch
def handler(form: records.Form) -> Any:
    """Apply a record in the open builder, and return its result.

    The records of R are applied by `relaxpy.script.ir_builder.relax`.
    """
    if isinstance(form, FRAMES):
        return TIRFrame(form)
    return current_builder().kernel(describe(form)).apply(form, None)
