"""Relay programs in tests: their values, types and errors."""

from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RelaxpyError
from relaxpy.exec.relay.values import value_text

NAT = "data Nat { Z : () -> Nat  S : (Nat) -> Nat }\n"
LIST = "type List[A] { Cons(A, List[A]), Nil }\n"


def prelude() -> relay.IRModule:
    """A module with the Prelude."""
    module = relay.IRModule()
    module.import_from_std("prelude.rly")
    return module


def value(text: str, module: relay.IRModule | None = None) -> Any:
    """The value of the expression after the declarations of a text."""
    typed = relay.parse(text, init_module=module)
    return relay.create_executor(mod=typed).evaluate()()


def plain(result: Any) -> Any:
    """A value with tensors as numbers or lists, and instances as their text."""
    if isinstance(result, tuple):
        return tuple(map(plain, result))
    return result.tolist() if isinstance(result, np.ndarray) else value_text(result)


def numbers(text: str, module: relay.IRModule | None = None) -> Any:
    """The value of a text, with tensors as numbers or lists."""
    return plain(value(text, module))


def type_of(text: str) -> str:
    """The type of the expression after the declarations of a text."""
    return str(relay.parse(text)["main"].ret_type)


def signature(text: str, name: str = "main") -> str:
    """The type of a function of a text."""
    return str(relay.parse(text)[name].checked_type)


def refused(text: str, *rules: str) -> str:
    """The message of the errors of a text, which name these rules and have positions."""
    with pytest.raises(RelaxpyError) as caught:
        relay.parse(text)
    assert tuple(sorted({d.rule or "" for d in caught.value.diagnostics})) == tuple(sorted(rules))
    for diagnostic in caught.value.diagnostics:
        assert diagnostic.span is not None, str(diagnostic)
    return str(caught.value)
