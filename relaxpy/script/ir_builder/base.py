"""IRBuilder: the context in which the directives of `relaxpy.script.ir_builder` build IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import singledispatch
from types import TracebackType
from typing import Any, Self, TypeVar

from typing_extensions import override

from relaxpy.errors import BuilderStateError, MisuseError, check_type, counted, unexpected
from relaxpy.ir.core.node import Node
from relaxpy.ir.relax.nodes.expr import set_name
from relaxpy.script.language import records
from relaxpy.script.language.kernel_builder import FRAMES, Body, KernelBuilder
from relaxpy.script.language.records import handling, is_eager, not_iterable
from relaxpy.script.language.wording import describe
from relaxpy.support.entry import user_facing

N = TypeVar("N")
F = TypeVar("F", bound="IRBuilderFrame")


class IRBuilder:
    """Builds a function, a module or a statement from the directives called while it is open.

    Each `with` opens a frame, which contains the directives called inside it. A frame that an error
    leaves adds nothing: the builder returns to its state before the frame.

    Errors:
        BuilderStateError (also ValueError): a directive is called where it is not allowed.
    """

    def __init__(self) -> None:
        self.frames: list[IRBuilderFrame] = []
        self.named: set[Node] = set()
        self._not_entered: dict[IRBuilderFrame, None] = {}
        self._result: object = None
        self._statements: KernelBuilder | None = None
        self._handling: AbstractContextManager[None] | None = None

    @user_facing
    def __enter__(self) -> Self:
        if self._handling is not None:
            raise BuilderStateError("this IRBuilder is already open")
        IRBuilder.__init__(self)
        open_builders.set((*open_builders.get(), self))
        self._handling = handling(handler)
        self._handling.__enter__()
        return self

    @user_facing
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handling is None or open_builders.get()[-1:] != (self,):
            raise BuilderStateError(
                "this IRBuilder is not the innermost one that is open here",
                hint="leave it in the thread that entered it, after the builders inside it",
            )
        self._handling.__exit__(None, None, None)
        self._handling = None
        open_builders.set(open_builders.get()[:-1])
        outermost = self.frames[:1]
        self.close_inside(None, kind, error, trace)
        if outermost and error is None:
            raise BuilderStateError(f"{outermost[0]} is still open", hint="leave it first")

    @staticmethod
    @user_facing
    def current() -> IRBuilder:
        """The innermost open builder.

        Errors:
            BuilderStateError (also ValueError): there is none.
        """
        return current_builder()

    @staticmethod
    def is_in_scope() -> bool:
        """True if a builder is open."""
        return bool(open_builders.get())

    @user_facing
    def get(self) -> Any:
        """The result: an IRModule, a function, or a statement of a kernel.

        Errors:
            BuilderStateError (also ValueError): nothing was built, or a frame has not ended.
        """
        if self.frames:
            raise BuilderStateError(f"{self.frames[-1]} has not ended yet")
        if self._not_entered:
            raise BuilderStateError(
                f"{next(iter(self._not_entered))} is never entered", hint="write `with ...:`"
            )
        if self._statements is not None and self._result is None:
            return self._statements.bodies[0].fold()
        if self._result is None:
            raise BuilderStateError("nothing was built")
        return self._result

    @staticmethod
    @user_facing
    def name(s: str, v: N) -> N:
        """Name the variable or buffer `v`, and return it.

        Errors:
            MisuseError (also TypeError): it is neither, or the name is not a string.
        """
        set_name(v, s)
        if IRBuilder.is_in_scope():
            IRBuilder.current().named.add(v)  # type: ignore[arg-type]
        return v

    @staticmethod
    @user_facing
    def name_many(s: Sequence[str], vs: Sequence[N]) -> list[N]:
        """Name each of `vs` by the names in `s`, and return them.

        Errors:
            MisuseError (also TypeError): the two lists have different lengths.
        """
        for values in (s, vs):
            check_type(values, (tuple, list), "expected a list")
        if len(s) != len(vs):
            raise MisuseError(
                f"{counted(len(s), 'name')} for {counted(len(vs), 'variable')}", about=s
            )
        return [IRBuilder.name(name, value) for name, value in zip(s, vs, strict=True)]

    # --- for frames and directives

    def innermost(self, kind: type[F]) -> F | None:
        """The innermost frame if it is of this kind."""
        frame = self.frames[-1] if self.frames else None
        return frame if isinstance(frame, kind) else None

    def kernel(self, directive: str) -> KernelBuilder:
        """The enclosing kernel; outside functions, one whose body is the result.

        Errors:
            BuilderStateError: no enclosing frame is part of a kernel.
        """
        for frame in reversed(self.frames):
            if frame.kernel is not None:
                return frame.kernel
        if self.frames or self._result is not None:
            raise BuilderStateError(
                f"{directive} belongs in a kernel", hint="open one: with T.prim_func():"
            )
        if self._statements is None:
            self._statements = KernelBuilder()
            self._statements.bodies.append(Body("inner"))
        return self._statements

    def set_result(self, result: object) -> None:
        """Set the result of the builder, when an outermost frame ends.

        Errors:
            BuilderStateError: there is a result already.
        """
        if self._result is not None or self._statements is not None:
            raise BuilderStateError(
                "an IRBuilder returns one result, and already has one",
                hint="put several functions into one with I.ir_module():",
            )
        self._result = result

    def expect(self, frame: IRBuilderFrame) -> None:
        """Record that `frame` was created and must be entered."""
        self._not_entered[frame] = None

    def enter(self, frame: IRBuilderFrame) -> object:
        """Enter `frame` and return its value."""
        self._not_entered.pop(frame, None)
        context = frame.context = frame.open_context(self)
        value = context.__enter__()
        self.frames.append(frame)
        return frame if value is None else value

    def close_inside(self, frame: IRBuilderFrame | None, *raised: Any) -> list[IRBuilderFrame]:
        """Abort the frames that are open inside `frame`, or all frames."""
        aborted: list[IRBuilderFrame] = []
        while self.frames and self.frames[-1] is not frame:
            aborted.append(self.frames.pop())
            aborted[-1].abort(*raised)
        return aborted


__all__ = ["IRBuilder", "IRBuilderFrame"]


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
