"""IRBuilder: the context in which the directives of `relaxpy.script.ir_builder` build IR."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from relaxpy.errors import BuilderStateError, MisuseError, check_type, counted
from relaxpy.ir.core.node import Node
from relaxpy.ir.relax.nodes.naming import set_name
from relaxpy.script.ir_builder.frame import IRBuilderFrame, current_builder, handler, open_builders
from relaxpy.script.language.eager import handling
from relaxpy.script.language.kernel_builder import Body, KernelBuilder
from relaxpy.support.entry import user_facing

N = TypeVar("N")
F = TypeVar("F", bound=IRBuilderFrame)


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
