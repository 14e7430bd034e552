"""Tests of passes: their changes, compared with the expected ones."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.errors import RelaxpyError, check_type
from relaxpy.exec.explain import module_diff
from relaxpy.ir import hooks
from relaxpy.ir.equality.structural import first_mismatch
from relaxpy.ir.module import IRModule
from relaxpy.support.entry import user_facing


@user_facing
def pass_diff(mod: IRModule, transform: Callable[[IRModule], IRModule]) -> str:
    """The unified diff of a module's text before and after a pass; empty if they are equal."""
    return module_diff(mod, transform(mod), "the pass")


@user_facing
def assert_transforms(
    before: IRModule,
    transform: Callable[[IRModule], IRModule],
    expected: IRModule | type[RelaxpyError],
) -> None:
    """Assert that a pass makes `expected` of a module, up to the names of variables.

    `expected` may be the class of the error that the pass raises.

    Errors:
        AssertionError: it makes something else; the message has the first difference, a diff from
            the expected program, and what the pass changed.
        MisuseError (also TypeError): `expected` is something else.
    """
    __tracebackhide__ = True
    if isinstance(expected, type) and issubclass(expected, BaseException):
        try:
            changed = pass_diff(before, transform)
        except expected:
            return
        raise AssertionError(_text(f"the pass raises no {expected.__name__}", changed=changed))
    check_type(expected, IRModule, "expected a module")
    after = transform(before)
    mismatch = first_mismatch(after, expected)
    if mismatch is not None:
        diff: str = hooks.call("program_diff", expected, after, ("as expected", "as it is"))
        raise AssertionError(_text(str(mismatch), diff, module_diff(before, after, "the pass")))


def _text(message: str, diff: str = "", changed: str = "") -> str:
    parts = [message, diff, f"the pass changed:\n{changed or 'nothing'}"]
    return "\n\n".join(filter(None, parts))
