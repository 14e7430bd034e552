"""Relay programs in tests: their values, types and errors."""

from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RelaxpyError
from relaxpy.plugins.relay.run.values import value_text

NAT = "data Nat { Z : () -> Nat  S : (Nat) -> Nat }\n"
LIST = "type List[A] { Cons(A, List[A]), Nil }\n"
PROGRAMS = [
    "1",
    "(1 + 2) * (3 + 4)",
    "%0 = 1 + 2\n(%0, %0 * %0)",
    "let %x = 1 + 2; let %y = %x * %x; (%x, %y)",
    "(let %x = 1; %x + 1) * (let %y = 2 + 3; %y)",
    "if (1 + 1 == 2) { 1 + 2 } else { 3 * 4 }",
    "%0 = 3 * 3\nif (%0 == 9) { %0 + 1 } else { %0 - 1 }",
    "let %f = fn(%n: int32) -> int32 { if (%n == 0) { 0 } else { %n + %f(%n - 1) } }; %f(4)",
    "(let %f = fn(%n: int32) -> int32 { if (%n == 0) { 0 } else { %f(%n - 1) } }; %f(3)) + 1",
    "let %r = ref(1); let %a = ref_read(%r); ref_write(%r, %a + 1); (ref_read(%r), %a)",
    "let %r = ref(0); let %inc = fn() { ref_write(%r, ref_read(%r) + 1); ref_read(%r) };"
    "let %a = %inc(); (%inc(), %a, %inc() + 1)",
    NAT + "match (S(S(Z))) { case S(S(%n)) { (%n, 1 + 2) } case _ { (Z, 2 * 2) } }",
    LIST + "let %l = Cons(1 + 2, Nil); match? (%l) { Cons(%x, _) => %x * %x }",
    "let %r = ref(1); %0 = ref_read(%r)\nlet %u = ref_write(%r, 2); (%0, %0)",
    "((1, 2 + 3).1, fn(%x: int32) { %x + 1 }(2))",
    "let %k = 3; let %f = fn(%x: int32) { %x + %k }; let %unused = %f(1); %f(%f(%k))",
    "let %k = 2; let %f = fn(%n: int32) -> int32 { if (%n == 0) { %k } else { %f(%n - 1) * %k } };"
    "%f(5)",
    "let %id = fn<t>(%x: t) -> t { %x }; (%id(1), %id((2, 3)))",
    "def @g(%x: int32) { let %h = fn(%y: int32) { %x * %y }; %h }\n(@g(3)(4), @g(1)(2))",
    "let %r = ref(1); let %u = (if (True) { ref_write(%r, 5) } else { () }); ref_read(%r)",
    "%0 = 2 + 3\nlet %f = fn() { %0 * 2 }; if (%0 == 5) { %f() + %0 } else { 0 }",
    LIST
    + "let %a = fn(%n: int32) { Cons(%n, Nil) }; match? (%a(3 * 3)) { Cons(%x, _) => (%x, %x) }",
]
"""Programs without parameters, whose passes are compared by value."""


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


def result_of(module: relay.IRModule) -> Any:
    """The value of a module's main function, with tensors as numbers or lists."""
    return plain(relay.create_executor(mod=module).evaluate()())
