"""Decision trees whose nodes name what there is not, and trees of unknown number."""

from typing import Any

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.api.compile import compile
from relaxpy.ir import ops as op
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import TensorStructInfo, Var
from tests.ir.ops.cases.decision_trees import leaves, table


def program(*shapes: Any) -> IRModule:
    params = [
        Var(f"x{k}", TensorStructInfo(shape, dtype))
        for k, (shape, dtype) in enumerate(zip(shapes, ("float32", "int32", "int32"), strict=True))
    ]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(op.tree_leaves(*params, 5))
    return builder.get()


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
@pytest.mark.parametrize(("field", "value"), [(0, 2), (0, -1), (3, 3), (3, -1)])
def test_a_feature_or_a_node_that_there_is_not_is_an_error(field, value, target) -> None:
    nodes = np.array([[0, 0, 1, 1], [1, 0, 2, 2], [0, 0, 2, 2]], "int32")
    main = compile(program((1, 2), (3, 4), (1,)), target)["main"]
    args = np.zeros((1, 2), "float32"), np.zeros(1, "int32")
    assert main(args[0], nodes, args[1]).tolist() == [[2]]
    nodes[1, field] = value
    with pytest.raises(RuntimeCheckError):
        main(args[0], nodes, args[1])


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
def test_the_number_of_trees_may_be_unknown(target: str) -> None:
    x, nodes, roots = table("float32", 9, 5)
    found = compile(program(None, None, None), target)["main"](x, nodes, roots)
    np.testing.assert_array_equal(found, leaves(x, nodes, roots, 5))
