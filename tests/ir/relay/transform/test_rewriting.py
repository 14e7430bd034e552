"""Passes that rewrite calls of operators: results stay, and the calls become what is promised."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError
from relaxpy.ir import structural_equal
from relaxpy.relay import transform
from tests.relay_programs import PROGRAMS, result_of

EXACT = [
    transform.CanonicalizeCast(),
    transform.CanonicalizeOps(),
    transform.SimplifyExpr(),
    transform.SplitArgs(2),
]
ROUNDED = [
    transform.DivToMul(),
    transform.FastMath(),
]


def name_of(step: transform.RelayPass) -> str:
    return str(step)[:50]


@pytest.mark.rule("RLY-106")
@pytest.mark.rule("RLY-108")
@pytest.mark.parametrize("step", EXACT + ROUNDED, ids=name_of)
def test_passes_keep_values_and_the_given_module(step: transform.RelayPass) -> None:
    for text in PROGRAMS:
        module = relay.parse(text)
        before = module.astext()
        result = step(module)
        assert result_of(result) == result_of(module), text
        assert module.astext() == before, text
        assert structural_equal(step(result), result), text


class Networks:
    """A random program of operators on matrices and images, and its parameters."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.params: list[relay.Var] = []
        self.matrices: list[relay.Expr] = [self.param(4, 4)]
        self.images: list[relay.Expr] = [self.param(1, 4, 4, 4)]

    def param(self, *shape: int) -> relay.Var:
        self.params.append(relay.var(f"p{len(self.params)}", shape=shape))
        return self.params[-1]

    def constant(self, *shape: int) -> relay.Expr:
        values = [self.rng.choice((0.5, 1.0, 2.0)) for _ in range(int(np.prod(shape)))]
        return relay.const(np.array(values, "float32").reshape(shape))

    def matrix(self) -> relay.Expr:
        x, y = (self.rng.choice(self.matrices) for _ in range(2))
        choices = [
            lambda: relay.nn.dense(x, self.param(4, 4)),
            lambda: relay.nn.dense(x * self.constant(4), self.param(4, 4), units=4),
            lambda: relay.nn.dense(x, self.constant(4, 4)) * self.constant(1, 4),
            lambda: relay.squeeze(relay.nn.batch_matmul(
                relay.expand_dims(x, 0), relay.expand_dims(self.constant(4, 4), 0)), [0]),
            lambda: relay.reshape(relay.reshape(x, (2, 8)), (4, -1)),
            lambda: relay.transpose(relay.transpose(x, (1, 0)), (1, 0)),
            lambda: relay.transpose(x),
            lambda: x * relay.const(1.0) + y,
            lambda: x / self.constant(),
            lambda: relay.tanh(relay.nn.bias_add(x, self.constant(4))),
            lambda: x.astype("float64").astype("float32"),
            lambda: relay.nn.softmax(x - y),
            lambda: relay.reshape(x, relay.shape_of(y)),
            lambda: relay.strided_slice(relay.concatenate([x, y, x, y, x], 0), [4], [8]),
        ]  # fmt: skip
        return self.rng.choice(choices)()

    def image(self) -> relay.Expr:
        x, y = (self.rng.choice(self.images) for _ in range(2))
        conv = {"padding": (1, 1), "kernel_size": (3, 3), "channels": 4}
        choices = [
            lambda: relay.nn.conv2d(x, self.param(4, 4, 3, 3), **conv),
            lambda: relay.nn.conv2d(x, self.constant(4, 4, 1, 1)) * self.constant(4, 1, 1),
            lambda: relay.nn.conv2d(x * self.constant(4, 1, 1), self.param(4, 4, 3, 3), **conv),
            lambda: relay.nn.relu(relay.nn.bias_add(x, self.constant(4))),
            lambda: relay.nn.max_pool2d(x, (3, 3), padding=(1, 1)),
            lambda: relay.maximum(x, y),
            lambda: relay.nn.conv2d(x, self.constant(4, 1, 1, 1), groups=4) / self.constant(),
        ]
        return self.rng.choice(choices)()

    def function(self) -> relay.Function:
        for _ in range(6):
            self.matrices.append(self.matrix())
        for _ in range(4):
            self.images.append(self.image())
        ends = relay.Tuple([*self.matrices[-3:], *self.images[-2:]])
        return relay.Function(self.params, ends)


def random_network(seed: int) -> tuple[relay.IRModule, tuple[np.ndarray, ...], Any]:
    module = transform.InferType()(relay.IRModule.from_expr(Networks(seed).function()))
    rng = np.random.default_rng(seed)
    args = tuple(
        rng.integers(-2, 3, [int(d) for d in p.checked_type.shape]).astype("float32") / 2
        for p in module["main"].params
    )
    return module, args, relay.create_executor("vm", mod=module).evaluate()(*args)


@pytest.mark.rule("RLY-108")
@pytest.mark.parametrize("seed", range(2))
def test_random_networks_keep_their_results(seed: int) -> None:
    module, args, expected = random_network(seed)
    for step in EXACT + ROUNDED:
        result = step(module)
        found = relay.create_executor("vm", mod=result).evaluate()(*args)
        for one, other in zip(found, expected, strict=True):
            if step in EXACT:
                assert np.array_equal(one, other, equal_nan=True), step
            else:
                np.testing.assert_allclose(one, other, 1e-4, 1e-4, err_msg=str(step))


def becomes(body: str, expected: str, step: transform.RelayPass, params: str = "") -> None:
    params = params or "%x: Tensor[(2, 3), float32], %n: int32"
    result = step(relay.parse(f"fn({params}) {{ {body} }}"))
    target = relay.parse(f"fn({params}) {{ {expected} }}")
    assert structural_equal(result, target), result.astext()


SIMPLE = [
    ("reshape(reshape(%x, newshape=[6]), newshape=[3, 2])", "reshape(%x, newshape=[3, 2])"),
    ("reshape(expand_dims(%x, axis=0), newshape=[2, 3])", "%x"),
    ("reshape(%x, newshape=[0, -1])", "%x"),
    ("transpose(transpose(%x))", "%x"),
    ("transpose(transpose(expand_dims(%x, axis=0), axes=[1, 2, 0]), axes=[1, 2, 0])",
     "transpose(expand_dims(%x, axis=0), axes=[2, 0, 1])"),
    ('cast(%x, dtype="float32")', "%x"),
    ('cast(cast(%n, dtype="int64"), dtype="float32")', 'cast(%n, dtype="float32")'),
    ('cast(cast(%n, dtype="int8"), dtype="float32")',
     'cast(cast(%n, dtype="int8"), dtype="float32")'),
    ("1f * (%x - 0f) / 1f", "%x"),
    ("%x + 0f", "%x + 0f"),
    ("%x - -0f", "%x - -0f"),
    ("%n + 0", "%n"),
    ("0 - %n", "0 - %n"),
    ("%n * ones_like(%n) + full(0, shape=[])", "%n"),
    ("cast_like(%x, 1f)", "%x"),
    ('layout_transform(layout_transform(%x, src_layout="NC", dst_layout="CN"), '
     'src_layout="CN", dst_layout="NC")', "%x"),
    ('layout_transform(layout_transform(%x, src_layout="NC", dst_layout="NC3c"), '
     'src_layout="NC3c", dst_layout="CN")',
     'layout_transform(%x, src_layout="NC", dst_layout="CN")'),
    ("contrib_reverse_reshape(reshape(%x, newshape=[6]), newshape=[3, -1])",
     "reshape(%x, newshape=[3, 2])"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), SIMPLE)
def test_expressions_are_simplified(body: str, expected: str) -> None:
    becomes(body, expected, transform.SimplifyExpr())


def test_operators_are_replaced_by_fast_ones() -> None:
    step = transform.FastMath()
    becomes("(exp(%x), erf(%x))", "(fast_exp(%x), fast_erf(%x))", step)
    becomes("nn.softmax(%x, axis=0)", "nn.fast_softmax(%x, axis=0)", step)


def test_quotients_by_constants_become_products() -> None:
    becomes("%x / 4f", "%x * 0.25f", transform.DivToMul())
    becomes("(%n / 4, %x / 0f)", "(%n / 4, %x / 0f)", transform.DivToMul())


def test_each_user_of_a_cast_has_its_own() -> None:
    body = '%0 = cast(%n, dtype="float32");\n(%0 * 2f, %0 + 1f)'
    result = transform.CanonicalizeCast()(relay.parse(f"fn(%n: int32) {{ {body} }}"))
    assert result.astext().count("cast(") == 2


def test_concatenations_are_split() -> None:
    inner = "annotation.stop_fusion(concatenate((%x, %x)))"
    becomes("concatenate((%x, %x, %x, %x))", f"concatenate(({inner}, {inner}))",
            transform.SplitArgs(2))  # fmt: skip
    with pytest.raises(MisuseError, match="max_function_args is an integer of at least 2"):
        transform.SplitArgs(1)
