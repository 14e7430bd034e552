"""Types of weights that nothing declares follow from those of the data (RLY-100)."""

from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RelayTypeError
from relaxpy.relay import testing, transform

IMAGES = (1, 4, 8, 8)
CASES: list[tuple[Any, tuple[int, ...], list[tuple[int, ...]]]] = [
    (lambda x, w: relay.nn.dense(x, w, units=5), (2, 3), [(5, 3)]),
    (lambda x, w: relay.nn.matmul(x, w, units=5), (2, 3), [(3, 5)]),
    (lambda x, w: relay.nn.matmul(x, w, 5, "", True, True), (2, 3), [(5, 2)]),
    (lambda x, b: relay.nn.bias_add(x, b), IMAGES, [(4,)]),
    (lambda x, b: relay.nn.bias_add(x, b, axis=-1), (2, 3), [(3,)]),
    (lambda x, a: relay.nn.prelu(x, a), IMAGES, [(4,)]),
    (lambda x, *p: relay.nn.batch_norm(x, *p)[0], IMAGES, [(4,)] * 4),
    (lambda x, *p: relay.nn.layer_norm(x, *p), IMAGES, [(8,)] * 2),
    (lambda x, *p: relay.nn.group_norm(x, *p, num_groups=2), IMAGES, [(4,)] * 2),
    (lambda x, w: relay.nn.conv2d(x, w, channels=6, kernel_size=(3, 3)), IMAGES, [(6, 4, 3, 3)]),
    (lambda x, w: relay.nn.conv2d(x, w, channels=6, kernel_size=3, groups=2), IMAGES,
     [(6, 2, 3, 3)]),
    (lambda x, w: relay.nn.conv2d(x, w, channels=6, kernel_size=(1, 3), data_layout="NHWC",
                                  kernel_layout="HWIO"), (1, 8, 8, 4), [(1, 3, 4, 6)]),
    (lambda x, w: relay.nn.conv1d(x, w, channels=6, kernel_size=3), (1, 4, 8), [(6, 4, 3)]),
    (lambda x, w: relay.nn.conv3d(x, w, channels=6, kernel_size=(1, 2, 3)), (1, 4, 8, 8, 8),
     [(6, 4, 1, 2, 3)]),
    (lambda x, w: relay.nn.conv2d_transpose(x, w, channels=6, kernel_size=(3, 3)), IMAGES,
     [(4, 6, 3, 3)]),
]  # fmt: skip


@pytest.mark.rule("RLY-100")
@pytest.mark.parametrize(("build", "data", "weights"), CASES)
def test_weights_have_the_types_that_the_data_demands(build, data, weights) -> None:
    x = relay.var("x", shape=data)
    params = [relay.var(f"w{number}") for number in range(len(weights))]
    function = testing.run_infer_type(relay.Function([x, *params], build(x, *params)))
    found = [param.type_annotation for param in function.params[1:]]
    assert found == [relay.TensorType(shape, "float32") for shape in weights]


def test_a_network_declares_the_type_of_its_data_only() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8), dtype="float64")
    names = iter(range(100))

    def free() -> relay.Var:
        return relay.var(f"w{next(names)}")

    y = x
    for channels in (4, 6):
        y = relay.nn.conv2d(y, free(), channels=channels, kernel_size=(3, 3), padding=(1, 1))
        y = relay.nn.relu(relay.nn.batch_norm(y, *(free() for _ in range(4)))[0])
    y = relay.nn.dense(relay.nn.batch_flatten(y), free(), units=10)
    y = relay.nn.softmax(relay.nn.bias_add(y, free()))
    mod = transform.InferType()(relay.IRModule.from_expr(y))
    shapes = [tuple(param.checked_type.shape) for param in mod["main"].params]
    assert shapes[-2:] == [(10, 6 * 64), (10,)]
    rng = np.random.default_rng(0)
    args = [rng.uniform(0.1, 1, shape) for shape in shapes]
    assert relay.create_executor(mod=mod).evaluate()(*args).dtype == "float64"


def test_what_is_declared_or_computed_comes_first() -> None:
    text = "fn(%x: Tensor[(2, 3), int8], %n: Tensor[(5, 3), int8]) {{ nn.dense(%x, {}, units=5) }}"
    assert relay.parse(text.format("%n * %n"))
    with pytest.raises(RelayTypeError):
        relay.parse(text.format('cast(%n, dtype="float32")'))
    with pytest.raises(RelayTypeError, match="cannot be decided"):
        relay.parse("fn(%x: Tensor[(2, 3), int8], %w) { nn.dense(%x, %w) }")


def test_quantised_operators_have_the_path_of_tvm() -> None:
    assert relay.qnn.op.dense.__name__ == relay.qnn.dense.__name__ == "dense"
