"""One small program for each way in which users meet an error; `kinds` names them all."""

import textwrap

from tests.rows import sections

IMPORTS = """\
import numpy as np
import relaxpy
from relaxpy.script import ir as I, relax as R, tir as T
"""

DEFINED = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        return R.add(x, x)
"""

_BODIES = sections("""
--- function
@R.function
def main(x: R.Tensor((3, 4), "float32")):
    y = R.matmul(x, x)
    return y
--- function in a function
def make(n):
    @R.function
    def main(x: R.Tensor((n, 4), "float32")):
        return R.matmul(x, x)

    return main

make(3)
--- functions that call functions
def build(n):
    '''Makes a model.'''
    rows = 3

    @R.function
    def main(x: R.Tensor((rows, n), "float32")):
        return R.matmul(x, x)

    return main

def built(n):
    return build(n)

built(4)
--- module
@I.ir_module
class Wrong:
    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        return R.matmul(x, x)
--- name in an annotation
@R.function
def main(x: R.Tensr((3, 4), "float32")):
    return x
--- value in an annotation
@R.function
def main(x: R.Tensor((3, 4.5), "float32")):
    return x
--- return annotation
@R.function
def main(x: R.Tensor(("n", 5))) -> R.Tensor(("n", 6)):
    return x
--- text
relaxpy.script.from_source("@R.function\\ndef f(x: R.Tensor):\\n    return y\\n")
--- builder
bb = relaxpy.relax.BlockBuilder()
x = relaxpy.relax.Var("x", relaxpy.relax.TensorStructInfo((3, 4), "float32"))
with bb.function("main", [x]):
    bb.emit(R.matmul(x, x))
--- builder out of turn
relaxpy.relax.BlockBuilder().emit_func_output(relaxpy.relax.const(1))
--- function of a module
Module["mian"]
--- target
relaxpy.build(Module, "nunpy")
--- pipeline
relaxpy.build(Module, relax_pipeline="defalt")
--- pass
relaxpy.relax.transform.LegalizeOps()(Module["main"])
--- passes
relaxpy.transform.Sequential([3])
--- argument of a call
vm = relaxpy.VirtualMachine(relaxpy.build(Module))
vm["main"](np.zeros((3, 5), "float32"))
--- number of arguments
relaxpy.build(Module)["main"]()
--- function called at once
Module["main"](np.zeros((3, 5), "float32"))
--- function of an executable
relaxpy.VirtualMachine(relaxpy.build(Module))["mian"]
--- closure
@R.function
def make(x: R.Tensor((3,), "float32")):
    @R.function
    def inner(y: R.Tensor((3,), "float32")):
        return R.add(x, y)

    return inner

make(np.zeros(3, "float32"))(np.zeros(4, "float32"))
--- packed function
@R.function
def main(x: R.Tensor((3,), "float32")):
    return R.call_pure_packed("my.own", x, sinfo_args=R.Tensor((3,), "float32"))

main(np.zeros(3, "float32"))
--- packed function by name
relaxpy.get_global_func("my.own")
--- file
relaxpy.load_executable(relaxpy.__file__)
--- tensor expression
relaxpy.te.compute((4,), lambda i, j: i + j)
--- node
relaxpy.relax.Var("x", R.Tensor(("n", 4), "float32"))
--- scalar
relaxpy.tir.Var("x", "int64") << 1.5
--- tensor function
relaxpy.topi.exp(3)
--- function of a tensor expression
a = relaxpy.te.placeholder((4,))
relaxpy.te.create_prim_func([a, a, 3])
""")

kinds = tuple(_BODIES)


def program(kind: str) -> str:
    """The whole text of a program with this mistake."""
    return IMPORTS + DEFINED + "\n" + _BODIES[kind]


def cell(kind: str) -> str:
    """What stands in a cell of a notebook behind one with the imports and definitions."""
    return _BODIES[kind].strip()


def test_case(kind: str) -> str:
    """A failing test with this mistake."""
    name = "test_" + kind.replace(" ", "_")
    return f"def {name}():\n{textwrap.indent(cell(kind), '    ')}\n"
