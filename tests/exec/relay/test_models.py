"""Models of Relay, from text and built by calls, beside NumPy: evaluated and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import relaxpy
from relaxpy import relax, relay
from tests.relay_programs import prelude

RNG = np.random.default_rng(1)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:] or shape))).astype("float32")


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# A residual network, built by calls


def batch_norm(data: relay.Expr, name: str) -> relay.Expr:
    size = 4
    parts = [
        relay.var(f"{name}_{part}", shape=(size,)) for part in ("gamma", "beta", "mean", "var")
    ]
    return relay.TupleGetItem(relay.nn.batch_norm(data, *parts), 0)


def block(data: relay.Expr, name: str) -> relay.Expr:
    """Two convolutions beside the identity."""
    hidden = data
    for k in (1, 2):
        weight = relay.var(f"{name}_conv{k}", shape=(4, 4, 3, 3))
        hidden = relay.nn.conv2d(
            relay.nn.relu(batch_norm(hidden, f"{name}_bn{k}")), weight, padding=(1, 1)
        )
    return relay.add(hidden, data)


def resnet() -> relay.IRModule:
    data = relay.var("data", shape=(2, 3, 8, 8))
    stem = relay.nn.conv2d(
        data, relay.var("stem", shape=(4, 3, 3, 3)), strides=(2, 2), padding=(1, 1)
    )
    body = block(block(stem, "b1"), "b2")
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(body)))
    logits = relay.nn.bias_add(
        relay.nn.dense(pooled, relay.var("fc", shape=(5, 4))), relay.var("bias", shape=(5,))
    )
    return relay.transform.InferType()(relay.IRModule.from_expr(relay.nn.softmax(logits)))


def convolved(x: np.ndarray, w: np.ndarray, stride: int = 1) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", view[:, :, ::stride, ::stride], w)


def resnet_in_numpy(p: dict[str, np.ndarray]) -> np.ndarray:
    def normal(x: np.ndarray, name: str) -> np.ndarray:
        gamma, beta, mean, var = (
            p[f"{name}_{part}"][:, None, None] for part in ("gamma", "beta", "mean", "var")
        )
        return (x - mean) / np.sqrt(var + 1e-5) * gamma + beta

    x = convolved(p["data"], p["stem"], 2)
    for b in ("b1", "b2"):
        hidden = x
        for k in (1, 2):
            hidden = convolved(np.maximum(normal(hidden, f"{b}_bn{k}"), 0), p[f"{b}_conv{k}"])
        x = hidden + x
    logits = np.maximum(x, 0).mean((2, 3)) @ p["fc"].T + p["bias"]
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_a_residual_network_runs_evaluated_and_compiled() -> None:
    """RLY-48, RLY-110: also after passes, and with weights that are bound at compile time."""
    module = resnet()
    params = {
        param.name_hint: np.abs(weights(*param.checked_type.concrete_shape))
        if param.name_hint.endswith("_var")
        else weights(*param.checked_type.concrete_shape)
        for param in module["main"].params
    }
    expected = resnet_in_numpy(params)
    for kind in ("debug", "vm"):
        close(relay.create_executor(kind, mod=module, params=params).evaluate()(), expected)
    translated = relay.to_relax(module)
    assert relax.analysis.check_well_formed(translated) == []
    assert [v.name_hint for v in translated.functions] == ["main"]
    lets = relay.transform.ToANormalForm()(module)
    close(relaxpy.compile(relay.to_relax(lets))["main"](*params.values()), expected)
    data = params.pop("data")
    close(relay.build(module, params=params)["main"](data), expected)


# A long short-term memory over a list, from text

LSTM = """
#[version = "0.0.5"]
def @cell(%state: (Tensor[(1, 4), float32], Tensor[(1, 4), float32]), %x: Tensor[(1, 3), float32],
          %w: Tensor[(16, 7), float32], %b: Tensor[(16,), float32]) {
  %0 = nn.bias_add(nn.dense(concatenate((%x, %state.0), axis=1), %w), %b);
  %1 = split(%0, indices_or_sections=4, axis=1);
  let %c = sigmoid(%1.1) * %state.1 + sigmoid(%1.0) * tanh(%1.2);
  (sigmoid(%1.3) * tanh(%c), %c)
}
def @main(%xs: List[Tensor[(1, 3), float32]], %w: Tensor[(16, 7), float32],
          %b: Tensor[(16,), float32]) {
  let %zero = zeros(shape=[1, 4], dtype="float32");
  let %last = @foldl(fn(%s, %x) { @cell(%s, %x, %w, %b) }, (%zero, %zero), %xs);
  %last.0
}
"""


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def as_list(module: relay.IRModule, items: Sequence[Any]) -> relay.ConstructorValue:
    cons, nil = (module.get_constructor(name) for name in ("Cons", "Nil"))
    result = relay.ConstructorValue(nil.tag, (), nil)
    for item in reversed(items):
        result = relay.ConstructorValue(cons.tag, (item, result), cons)
    return result


def test_a_recurrent_network_over_a_list_runs_with_a_compiled_cell() -> None:
    """RLY-34, RLY-113: the fold is evaluated, its cell compiled."""
    module = relay.parse(LSTM, init_module=prelude())
    w, b, xs = weights(16, 7), weights(16), [weights(1, 3) for _ in range(12)]
    h = c = np.zeros((1, 4), "float32")
    for x in xs:
        gates = np.split(np.concatenate([x, h], 1) @ w.T + b, 4, axis=1)
        c = sigmoid(gates[1]) * c + sigmoid(gates[0]) * np.tanh(gates[2])
        h = sigmoid(gates[3]) * np.tanh(c)
    machine = relay.create_executor("vm", mod=module)
    ways = {row.function: row.method for row in machine.report()}
    assert ways == {"main": "evaluated", "cell": "compiled", "foldl": "evaluated"}
    for executor in (machine, relay.create_executor("debug", mod=module)):
        close(executor.evaluate()(as_list(module, xs), w, b), h)
    cell = relaxpy.compile(relay.to_relax(module, ["cell"]))["cell"]
    state = (np.zeros((1, 4), "float32"),) * 2
    for x in xs:
        state = cell(state, x, w, b)
    close(state[0], h)


# A network over trees, from text

TREES = """
type Node { Leaf(Tensor[(4,), float32]), Pair(Node, Node) }
def @join(%l: Tensor[(4,), float32], %r: Tensor[(4,), float32], %w: Tensor[(4, 8), float32]) {
  tanh(reshape(nn.dense(reshape(concatenate((%l, %r)), newshape=[1, 8]), %w), newshape=[4]))
}
def @embed(%t: Node, %w: Tensor[(4, 8), float32]) -> Tensor[(4,), float32] {
  match (%t) {
    Leaf(%x) => %x,
    Pair(%l, %r) => @join(@embed(%l, %w), @embed(%r, %w), %w),
  }
}
def @main(%t: Node, %w: Tensor[(4, 8), float32]) { @embed(%t, %w) }
"""


def test_a_network_over_trees_runs_with_a_compiled_join() -> None:
    """RLY-31, RLY-51: recursion over a data type of the program."""
    module = relay.parse(TREES)
    leaf, pair = (module.get_constructor(name) for name in ("Leaf", "Pair"))
    w = weights(4, 8)

    def tree(depth: int) -> tuple[relay.ConstructorValue, np.ndarray]:
        if depth == 0:
            x = weights(4)
            return relay.ConstructorValue(leaf.tag, (x,), leaf), x
        left, one = tree(depth - 1)
        right, other = tree(depth // 2)
        joined = np.tanh(w @ np.concatenate([one, other]))
        return relay.ConstructorValue(pair.tag, (left, right), pair), joined

    value, expected = tree(5)
    for kind in ("debug", "vm"):
        close(relay.create_executor(kind, mod=module).evaluate()(value, w), expected)
    reasons = relay.analysis.untranslatable(module)
    assert set(reasons) == {"embed", "main"}
    assert {d.rule for d in reasons["embed"]} == {"RLY-31", "RLY-52"}
    translated = relay.to_relax(module, ["join"])
    x = weights(4)
    join = relaxpy.compile(translated)["join"]
    close(join(x, x, w), np.tanh(w @ np.concatenate([x, x])))
