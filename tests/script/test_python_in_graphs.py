"""Python's own functions and expressions where tensors stand."""

import numpy as np
import pytest

from relaxpy import relax, tir
from relaxpy.errors import MisuseError, ParseError
from relaxpy.script import from_source, relax as R
from tests.script.marked import check_marks

X = relax.Var("x", R.Tensor((3,), "float32"))
Y = relax.Var("y", R.Tensor((3,), "float32"))


def test_what_asks_for_the_truth_of_tensors_is_refused() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
            a = max(x, y)
            #   ^^^^^^^^^ whether one tensor is greater than another is known only when the program
            # ... runs
            # hint: write R.maximum(x, y) or R.minimum(x, y), or choose by R.where(x > y, x, y)
            b = sorted([x, y])
            #   ^^^^^^^^^^^^^^ whether one tensor is greater than another is known only when the
            # ... program runs
            # hint: write R.maximum(x, y) or R.minimum(x, y), or choose by R.where(x > y, x, y)
            c = any([1 > 2, x])
            #               ^ the truth value of Var 'x' is not known at parse time
            d = bool(y)
            #        ^ the truth value of Var 'y' is not known at parse time
            e = all((x, y))
            #        ^ the truth value of Var 'x' is not known at parse time
            f = len(x)
            #       ^ Var 'x' has no length
            # hint: name dimensions in the annotation, as in R.Tensor(("n", 4)), and declare n =
            # ... T.int64(); R.shape_of(x) is a value
            return x
    """)


def test_helpers_of_the_user_do_not_choose_between_tensors_either() -> None:
    def largest(*tensors: object) -> object:
        return max(tensors)

    with pytest.raises(ParseError, match="is known only when the program runs"):

        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
            z = largest(x, y)
            return z

    with pytest.raises(MisuseError, match=r"write R\.maximum"):
        bool(X > Y)


@pytest.mark.rule("AST-15")
def test_other_calls_are_true_as_objects_are() -> None:
    assert relax.op.add(X, Y)
    assert relax.Call(relax.ExternFunc("f"), [X])


def test_the_fields_of_a_tuple_can_be_counted() -> None:
    func = from_source("""
        @R.function
        def main(t: R.Tuple(R.Tensor((3,), "float32"), R.Tensor((3,), "float32"))):
            return sum(t[i] * 2 for i in range(len(t)))
    """)
    ones = np.ones(3, "float32")
    assert func((ones, 2 * ones)).tolist() == [6, 6, 6]


@pytest.mark.rule("AST-9")
def test_a_tuple_is_not_sliced() -> None:
    check_marks("""
        @R.function
        def main(t: R.Tuple(R.Tensor, R.Tensor), x: R.Tensor):
            a = t[1:]
            #   ^^^^^ [ ] projects a tuple and takes an integer, found slice(1, None, None) [AST-9]
            # hint: unpack it: first, *rest = ...
            return x
    """)


def test_a_mistake_in_a_name_is_told_once() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            (y := R.add(x, x))
        #    ^^^^^^^^^^^^^^^^ an assignment inside an expression cannot occur in a program
            # hint: give it a line of its own
            return y
    """)


def test_what_no_tensor_can_be_made_of_is_the_argument() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            a = R.const([[1, 2], [3]])
            #           ^^^^^^^^^^^^^ cannot make a tensor of [[1, 2], [3]]: lists differ in
            # ... length [VAL-1]
            b = R.const("a")
            #           ^^^ a tensor contains numbers or Booleans, found 'a' [VAL-1]
            return None
            #      ^^^^ expected a Relax expression, found None [AST-15]
            # hint: the value for nothing is the empty tuple, ()
    """)
    n = tir.Var("n", "int64")
    assert relax.const([1, 2]).data.tolist() == [1, 2]
    with pytest.raises(MisuseError):
        relax.const([n])


def test_an_annotated_comparison_is_one_binding() -> None:
    func = from_source(
        """
@R.function
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    less: R.Tensor((4,), "bool") = x < y
    vague: R.Tensor("bool", ndim=1) = x > y
    return (less, vague)
"""
    )
    names = [b.var.name_hint for block in func.body.blocks for b in block.bindings]
    assert names[0] == "less"
    assert (
        str(func.body.struct_info)
        == 'R.Tuple(R.Tensor((4,), dtype="bool"), R.Tensor(dtype="bool", ndim=1))'
    )
