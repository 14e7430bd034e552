"""The networks of relay.testing, and analyses of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relay
from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.relay import testing
from relaxpy.relay.analysis import CallGraph, extract_fused_functions, get_total_mac_number

#: The first convolution, four stages with shortcuts, the classes; of images of 32 by 32.
RESNET_18 = (
    256 * 64 * 3 * 49
    + 4 * 64 * 64 * 9 * 64
    + 64 * 64 * 64
    + sum(32 * w * w * n for w, n in ((128, 16), (256, 4), (512, 1)))
    + 512 * 10
)


@pytest.mark.parametrize(
    ("model", "args", "shape", "result", "macs"),
    [
        (testing.mlp, {"batch_size": 2}, (2, 1, 28, 28), (2, 10), 2 * (784 * 128 + 128 * 64 + 640)),
        (testing.lstm, {"iterations": 3, "num_hidden": 4}, (3, 1, 4), (1, 4), 3 * 2 * 64),
        (
            testing.resnet,
            {"image_shape": (3, 32, 32), "num_classes": 10},
            (1, 3, 32, 32),
            (1, 10),
            RESNET_18,
        ),
        (
            testing.resnet,
            {"image_shape": (3, 32, 32), "num_classes": 10, "num_layers": 50},
            (1, 3, 32, 32),
            (1, 10),
            None,
        ),
        (
            testing.mobilenet,
            {"image_shape": (3, 32, 32), "num_classes": 10},
            (1, 3, 32, 32),
            (1, 10),
            None,
        ),
        (testing.dqn, {"batch_size": 1}, (1, 4, 84, 84), (1, 18), 9_352_192),
        (testing.squeezenet, {"image_shape": (3, 64, 64)}, (1, 3, 64, 64), (1, 1000), None),
        (testing.dcgan, {"batch_size": 1, "ngf": 4}, (1, 100), (1, 3, 64, 64), None),
        (testing.synthetic, {}, (1, 3, 24, 12), (1, 6, 24, 12), None),
    ],
)
def test_networks_run(model: Any, args: Any, shape: Any, result: Any, macs: int | None) -> None:
    module, weights = model.get_workload(**args)
    data = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    found = relay.build(module, params=weights)["main"](data)
    assert found.shape == result
    assert np.isfinite(found).all()
    if macs is not None:
        assert get_total_mac_number(module["main"]) == macs
    if model is testing.mlp:
        run = relay.create_executor("debug", mod=module, params=weights).evaluate()
        np.testing.assert_allclose(run(data=data), found, 1e-5)


def parameters(module: relay.IRModule) -> int:
    return sum(int(np.prod(p.checked_type.concrete_shape)) for p in module["main"].params[1:])


@pytest.mark.parametrize(
    ("model", "args", "number"),
    [
        (testing.vgg, {"batch_size": 1}, 132_863_336),
        (testing.vgg, {"batch_size": 1, "num_layers": 16}, 138_357_544),
        (testing.squeezenet, {}, 1_248_424),
        (testing.squeezenet, {"version": "1.1"}, 1_235_496),
        (testing.densenet, {"batch_size": 1}, 7_978_856),
        (testing.inception_v3, {}, 23_834_568),
    ],
)
def test_networks_have_the_number_of_weights_that_is_published(
    model: Any, args: Any, number: int
) -> None:
    """Beside the trained weights, normalisations have two statistics for each channel."""
    module = relay.transform.InferType()(relay.IRModule.from_expr(model.get_net(**args)))
    statistics = sum(
        int(np.prod(p.checked_type.concrete_shape))
        for p in module["main"].params[1:]
        if p.name_hint.endswith(("moving_mean", "moving_var"))
    )
    assert parameters(module) - statistics == number


def test_networks_that_are_not_known_are_refused() -> None:
    for build, args in (
        (testing.vgg, {"batch_size": 1, "num_layers": 12}),
        (testing.squeezenet, {"version": "2"}),
        (testing.densenet, {"densenet_size": 1}),
        (testing.dcgan, {"batch_size": 1, "oshape": (3, 32, 32)}),
    ):
        with pytest.raises(MisuseError, match="found"):
            build.get_workload(**args)
    with pytest.raises(MisuseError, match="num_layers is one of 18, 34, 50, 101"):
        testing.resnet.get_workload(num_layers=20)


def test_mac_numbers_need_known_dimensions() -> None:
    module = relay.parse("fn(%x: Tensor[(?, 3), float32]) { nn.dense(%x, %x) }")
    with pytest.raises(MisuseError, match="not known"):
        get_total_mac_number(module["main"])
    assert get_total_mac_number(testing.run_infer_type(relay.const(1.0) + relay.const(2.0))) == 0


def test_fused_functions_are_extracted() -> None:
    module = relay.parse("fn(%x: float32) { let %y = exp(%x) + 1f; exp(%y) + 1f }")
    functions = extract_fused_functions(relay.transform.FuseOps(2)(module))
    assert [type(function) for function in functions.values()] == [relay.Function]
    assert list(functions) == [relaxpy.ir.structural_hash(f) for f in functions.values()]


def test_a_call_graph_counts_references() -> None:
    graph = CallGraph(
        relay.parse(
            """def @leaf(%x: int32) { %x }
               def @twice(%x: int32) { @leaf(@leaf(%x)) }
               def @loop(%x: int32) -> int32 { if (%x == 0) { @twice(%x) } else { @loop(%x - 1) } }
               def @even(%x: int32) -> int32 { @odd(%x) } def @odd(%x: int32) -> int32 { @even(%x) }
               def @main(%x: int32) { @loop(@twice(%x)) }"""
        )
    )
    assert [graph.ref_count(name) for name in ("leaf", "twice", "loop", "main")] == [2, 2, 2, 0]
    assert [graph.global_call_count(name) for name in ("leaf", "twice", "main")] == [0, 2, 2]
    assert [n for n in ("leaf", "loop", "even", "main") if graph.is_recursive(n)] == [
        "loop",
        "even",
    ]
    assert graph.print_var("twice") == "@twice, referred to 2 times\n@leaf: 2"
    assert "@main, referred to 0 times" in str(graph)
    with pytest.raises(UnknownNameError, match="other"):
        graph.ref_count("other")
