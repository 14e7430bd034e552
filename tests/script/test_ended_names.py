"""A name whose block has ended is not visible, whatever Python has under this name."""

import numpy as np
import pytest

from relaxpy import relax
from relaxpy.errors import ParseError
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.rows import sections
from tests.script.marked import check_marks

PROGRAMS = sections("""
--- a dataflow block
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        y = R.exp(x)
        z = R.exp(y)
        R.output(z)
    return R.add(z, y)
    #               ^ 'y' is not visible here: it ends with its dataflow block [SC-7]
    # hint: list it in R.output(y) at the end of the block
--- a branch
@R.function
def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
    if c:
        y = R.exp(x)
        z = R.exp(y)
    else:
        z = x
    return R.add(z, y)
    #               ^ unknown name 'y' [WF-24]
    # hint: names bound in a branch end with it: bind the same name last in both branches
--- a block with an error
@R.function
def main(x: R.Tensor((4,), "float32")):
    try:
#   ^^^ try is not part of Relax [EV-24]
    # hint: errors of a running program end it; check before with an if
        y = R.exp(x)
    finally:
        z = x
    return R.add(y, z)
--- a loop without members
@R.function
def main(x: R.Tensor((4,), "float32")):
    for i in range(0):
        y = R.exp(x)
    return R.add(x, y)
    #               ^ unknown name 'y' [WF-24]
    # hint: names bound in a block end with it: use them there, or bind them before it
--- the members of a loop without members
@R.function
def main(x: R.Tensor((4,), "float32")):
    for i, (y, *z) in []:
        pass
    return R.multiply(x, y)
    #                    ^ unknown name 'y' [WF-24]
    # hint: names bound in a block end with it: use them there, or bind them before it
--- a loop of a kernel
@T.prim_func
def main(o: T.Buffer((4,), "float32")):
    for y in range(4):
        o[y] = T.float32(1)
    o[0] = o[0] + y
    #             ^ unknown name 'y'
    # hint: names bound in a block end with it: use them there, or bind them before it
--- a block of a kernel
@T.prim_func
def main(o: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("b"):
            v = T.axis.spatial(4, i)
            y = T.alloc_buffer((4,), "float32")
            o[v] = y[v]
    o[0] = y[0]
    #      ^ unknown name 'y'
    # hint: names bound in a block end with it: use them there, or bind them before it
--- a branch that does not run
@R.function
def main(x: R.Tensor((4,), "float32")):
    if False:
        y = R.exp(x)
    return R.add(x, y)
    #               ^ unknown name 'y' [WF-24]
    # hint: `if False` does not run that branch: bind y before it
--- a branch of a kernel that does not run
@T.prim_func
def main(o: T.Buffer((4,), "float32")):
    if 1 > 2:
        y = T.float32(1)
    o[0] = y
    #      ^ unknown name 'y'
    # hint: names bound in a branch end with it: choose by a if c else b, or store to a buffer
""")
CAPTURED = {"nothing": {}, "a number": {"y": 2.0}, "an array": {"y": np.ones(4, "float32")}}


@pytest.mark.rule("SC-6", "SC-7", "WF-24")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("captured", CAPTURED.values(), ids=CAPTURED)
def test_a_name_that_has_ended_is_not_one_of_python(name: str, captured: dict[str, object]) -> None:
    check_marks(PROGRAMS[name], ParseError, extra_vars={"I": I, "R": R, "T": T, **captured})


def test_a_name_that_has_ended_can_be_bound_again() -> None:
    @T.prim_func
    def kernel(o: T.Buffer((4,), "int32")):
        for y in range(4):
            o[y] = y
        y = T.int32(3)
        o[0] = y

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.exp(y)
            R.output(z)
        y = R.exp(z)
        return y

    assert "o[0] = y" in kernel.script()
    assert "= R.exp(z)" in main.script()


def test_a_name_of_python_is_visible_until_a_block_binds_it() -> None:
    text = """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        w = R.multiply(x, y)
        y = R.exp(w)
        R.output(y)
    return y
"""
    main = from_source(text, extra_vars={"R": R, "y": 2.0})
    assert isinstance(main, relax.Function)
    assert "R.multiply(x, R.const(2.0" in main.script()


@pytest.mark.parametrize("name", ["T", "max", "weigh", "expand"])
def test_modules_and_functions_of_python_are_visible_after_a_block_that_binds_their_name(
    name: str,
) -> None:
    @T.macro
    def expand(o, k):
        o[k] = 2

    text = f"""
@T.prim_func
def main(o: T.Buffer((8,), "int32")):
    for {name} in range(8):
        o[{name}] = 0
    for k in range(max(2, 3)):
        o[k] = T.int32(weigh(1))
    expand(o, 4)
"""
    names = {"T": T, "weigh": lambda k: k + 2, "expand": expand}
    kernel = from_source(text, extra_vars=names)
    assert all(line in kernel.script() for line in ("in range(3)", "o[k] = 3", "o[4] = 2"))


def test_a_name_of_python_that_was_used_before_a_block_is_meant_after_it() -> None:
    kernel = from_source(
        """
@T.prim_func
def main(o: T.Buffer((k, 4), "int32")):
    more = T.meta_var(lambda n: n + m)
    o[0, 0] = more(1)
    for i, k in T.grid(4, k):
        o[k, i] = 0
    for m in range(2):
        o[m, m] = 1
    o[0, 0] = more(2)
    for i, k in T.grid(4, k):
        with T.block("b"):
            v, w = T.axis.remap("SS", [i, k])
            o[w, v] = o[w, v] + k
""",
        extra_vars={"T": T, "k": 7, "m": 20},
    )
    assert kernel.script().count("T.grid(4, 7)") == 2
    assert all(f"o[0, 0] = {value}" in kernel.script() for value in (21, 22))
    main = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        z = R.multiply(x, y)
        y = R.exp(z)
        z = R.exp(y)
        R.output(z)
    return R.add(z, y)
""",
        extra_vars={"R": R, "y": 2.0},
    )
    assert "R.add(z_1, R.const(2.0" in main.script()
