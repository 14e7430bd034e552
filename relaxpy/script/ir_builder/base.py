"""IRBuilder: the context in which the directives of `relaxpy.script.ir_builder` build IR."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from relaxpy.entry import user_facing
from relaxpy.errors import BuilderStateError, MisuseError, counted
from relaxpy.ir.core.node import Node
from relaxpy.ir.relax.nodes.naming import set_name
from relaxpy.script.ir_builder.frame import IRBuilderFrame, current_builder, handler, open_builders
from relaxpy.script.language.eager import handling
from relaxpy.script.language.kernel_body import Body
from relaxpy.script.language.kernel_builder import KernelBuilder

N = TypeVar("N")
F = TypeVar("F", bound=IRBuilderFrame)


class IRBuilder:
    """Builds a function, a module or a statement from the directives called while it is open.

    What is said by `with` is a frame, and holds what stands in it; all else is said by calls. A
    frame that an error leaves adds nothing: the builder is what it was before.

    Errors:
        BuilderStateError (also ValueError): something stands where it cannot.
    """

    def __init__(self) -> None:
        self.frames: list[IRBuilderFrame] = []
        self.named: set[Node] = set()
        self._made: dict[IRBuilderFrame, None] = {}
        self._result: object = None
        self._loose: KernelBuilder | None = None
        self._handling: AbstractContextManager[None] | None = None

    @user_facing
    def __enter__(self) -> Self:
        if self._handling is not None:
            raise BuilderStateError("this IRBuilder is open already")
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
                hint="leave it in the thread that entered it, after those that it holds",
            )
        self._handling.__exit__(None, None, None)
        self._handling = None
        open_builders.set(open_builders.get()[:-1])
        left = self.frames[:1]
        self.close_inside(None, kind, error, trace)
        if left and error is None:
            raise BuilderStateError(f"{left[0]} is still open", hint="leave it first")

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
        """Whether a builder is open."""
        return bool(open_builders.get())

    @user_facing
    def get(self) -> Any:
        """What was built: an IRModule, a function, or a statement of a kernel.

        Errors:
            BuilderStateError (also ValueError): nothing was, or a frame has not ended.
        """
        if self.frames:
            raise BuilderStateError(f"{self.frames[-1]} has not ended yet")
        if self._made:
            raise BuilderStateError(
                f"{next(iter(self._made))} is never entered", hint="write `with ...:`"
            )
        if self._loose is not None and self._result is None:
            return self._loose.bodies[0].fold()
        if self._result is None:
            raise BuilderStateError("nothing was built")
        return self._result

    @staticmethod
    @user_facing
    def name(s: str, v: N) -> N:
        """Name the variable or buffer `v`, and return it.

        Errors:
            MisuseError (also TypeError): it is neither, or the name is no string.
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
            MisuseError (also TypeError): there are more of one than of the other.
        """
        for given in (s, vs):
            if not isinstance(given, (tuple, list)):
                raise MisuseError(f"expected a list, found {given!r:.60}", about=given)
        if len(s) != len(vs):
            raise MisuseError(
                f"{counted(len(s), 'name')} for {counted(len(vs), 'variable')}", about=s
            )
        return [IRBuilder.name(name, value) for name, value in zip(s, vs, strict=True)]

    # --- for frames and words

    def innermost(self, kind: type[F]) -> F | None:
        """The innermost frame if it is of this kind."""
        frame = self.frames[-1] if self.frames else None
        return frame if isinstance(frame, kind) else None

    def kernel(self, what: str) -> KernelBuilder:
        """The enclosing kernel, for `what`; outside functions, a kernel whose body is the result.

        Errors:
            BuilderStateError: the frames around are none of kernels.
        """
        for frame in reversed(self.frames):
            found = frame.kernel
            if found is not None:
                return found
        if self.frames or self._result is not None:
            raise BuilderStateError(
                f"{what} belongs in a kernel", hint="open one: with T.prim_func():"
            )
        if self._loose is None:
            self._loose = KernelBuilder()
            self._loose.bodies.append(Body("inner"))
        return self._loose

    def deliver(self, found: object) -> None:
        """Set the result to `found`, from an outermost frame.

        Errors:
            BuilderStateError: there is one already.
        """
        if self._result is not None or self._loose is not None:
            raise BuilderStateError(
                "an IRBuilder gives one result, and has one already",
                hint="put several functions into one with I.ir_module():",
            )
        self._result = found

    def expect(self, frame: IRBuilderFrame) -> None:
        """Record that `frame` was created and must be entered."""
        self._made[frame] = None

    def enter(self, frame: IRBuilderFrame) -> object:
        """Enter `frame` and return its value."""
        self._made.pop(frame, None)
        held = frame.held = frame.hold(self)
        found = held.__enter__()
        self.frames.append(frame)
        return frame if found is None else found

    def close_inside(self, frame: IRBuilderFrame | None, *raised: Any) -> list[IRBuilderFrame]:
        """Abort the frames that are open inside `frame`, or all frames."""
        ended: list[IRBuilderFrame] = []
        while self.frames and self.frames[-1] is not frame:
            ended.append(self.frames.pop())
            ended[-1].break_off(*raised)
        return ended


__all__ = ["IRBuilder", "IRBuilderFrame"]
