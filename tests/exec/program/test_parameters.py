"""Native functions whose parameters are tuples, shapes and objects."""

import gc
import sys
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.ir.module import IRModule
from relaxpy.runtime import ShapeTuple
from tests.exec.program.agreement import agree, programs
from tests.ir.relax.texts import module

pytest.importorskip("llvmlite")

X = np.arange(12, dtype="float32").reshape(3, 4) / 12
W, B = X[::-1].copy(), np.arange(4, dtype="float32")
PROGRAMS = programs(
    """
--- nested tuples <- X, (W, (B, 'object'))
def main(x: f32[n, 4], w: R.Tuple(f32[n, 4], R.Tuple(f32[4], R.Object))):
    n = T.int64()
    a = R.multiply(x, w[0])
    b = R.add(R.exp(a), w[1][0])
    return (R.sum(b, axis=[1]), w[1], w, x)
--- a size of a shape <- B, ShapeTuple([2, 3])
def main(x: f32[4], s: R.Shape(['n', 'm'])):
    n = T.int64()
    m = T.int64()
    return R.broadcast_to(R.exp(x), (m, n, 4))
--- known and computed sizes in a shape <- X, ShapeTuple([3, 4, 4])
def main(x: f32[n, 4], s: R.Shape(['n', 4, 'n + 1'])):
    n = T.int64()
    return R.sum(R.exp(x), axis=[1])
--- a number in a tuple <- B, (3, X)
def main(x: f32[4], s: R.Tuple(R.Prim(value='n'), R.Tensor(('n', 4), 'float32'))):
    n = T.int64()
    return (R.add(R.broadcast_to(x, (n, 4)), s[1]), s[0])
--- objects <- {'a': 1}, X, None, np.array(True)
def main(o: R.Object, x: f32[3, 4], p: R.Object, c: bool[()]):
    if c:
        y = (R.exp(x), o)
    else:
        y = (R.tanh(x), o)
    return (p, y, o, p)
--- an empty tuple <- (), X, ((),)
def main(t: R.Tuple(), x: f32[3, 4], u: R.Tuple(R.Tuple())):
    return (R.exp(x), u, t)
""",
    globals(),
)


def program(name: str) -> IRModule:
    return module(PROGRAMS[name][0])


@pytest.mark.usefixtures("no_text")
@pytest.mark.parametrize("name", PROGRAMS)
def test_native_functions_take_them(name: str) -> None:
    args = PROGRAMS[name][1]
    main = relaxpy.compile(program(name), "native")["main"]
    agree(main(*args), relaxpy.compile(program(name), "reference")["main"](*args))


def refused(value: Any) -> list[Any]:
    """Values that are almost the same: with other types, lengths or sizes, at any depth."""
    match value:
        case ShapeTuple():
            return [(*value,), ShapeTuple([*value, 1]), ShapeTuple(value[:-1]), ShapeTuple([9] * 3)]
        case tuple():
            inner = [
                (*value[:k], v, *value[k + 1 :])
                for k in range(len(value))
                for v in refused(value[k])
            ]
            return (
                [*inner, value[:-1], (*value, 1), None, 7, object(), X] if value else [(1,), None]
            )
        case np.ndarray() if value.ndim:
            return [value[1:], value[:, None], value.astype("float64"), "text", (value,), 1.5]
        case int():
            return [value + 1, 1.5, X]
        case _:
            return []


@pytest.mark.parametrize("name", PROGRAMS)
def test_errors_are_those_of_the_text(name: str) -> None:
    args = PROGRAMS[name][1]
    native = relaxpy.compile(program(name), "native")["main"]
    text = relaxpy.compile(program(name), "numpy")["main"]
    count = 0
    for changed in refused(args):
        if not isinstance(changed, tuple) or len(changed) != len(args):
            continue
        results = []
        for main in (native, text):
            try:
                results.append((None, main(*changed)))
            except RelaxpyError as error:
                results.append((type(error), str(error)))
        (kind, found), (other, expected) = results
        assert kind is other
        count += kind is not None
        if kind is None:
            agree(found, expected)
        else:
            assert found == expected
    assert count > 1


@pytest.mark.parametrize("as_list", [False, True])
def test_arguments_of_users_are_converted(as_list: bool) -> None:
    args = (X, [np.asfortranarray(W), (B.view(np.memmap), "object")])
    expected = relaxpy.compile(program("nested tuples"), "numpy")["main"](*args)
    main = relaxpy.compile(program("nested tuples"), "native")["main"]
    args = args if as_list else (X, tuple(args[1]))
    for one, other in zip(main(*args), expected, strict=True):
        agree(one, other)


class Exporter:
    """An array of another library."""

    def __dlpack__(self, **options: Any) -> Any:
        return X.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return X.__dlpack_device__()


def test_objects_of_users_are_converted() -> None:
    mod = module("def main(o: R.Object, x: f32[3, 4]):\n    return (o, R.exp(x))")
    for target in ("native", "numpy"):
        found, _ = relaxpy.compile(mod, target)["main"]((Exporter(), 1), X)
        np.testing.assert_array_equal(found[0], X)
        with pytest.raises(RelaxpyError, match="64 bits"):
            relaxpy.compile(mod, target)["main"](1 << 70, X)


def test_references_are_counted() -> None:
    main = relaxpy.compile(program("nested tuples"), "native")["main"]
    thing = object()
    args = (X, (W, (B, thing)))
    main(*args)
    gc.collect()
    before = [sys.getrefcount(o) for o in (thing, X, W, B, args[1], args[1][1])]
    for _ in range(50):
        main(*args)
    for wrong in ((X, (W, (B,))), (X, (W[1:], (B, thing)))):
        with pytest.raises(RelaxpyError):
            main(*wrong)
    del wrong
    gc.collect()
    assert [sys.getrefcount(o) for o in (thing, X, W, B, args[1], args[1][1])] == before


def test_a_field_that_a_kernel_writes_is_written() -> None:
    mod = module("""
    def main(x: f32[3, 4]):
        a = R.exp(x)
        b = cls.inner((R.tanh(x), a))
        return (b, R.add(a, x))

    @private
    def inner(t: R.Tuple(R.Tensor((3, 4), "float32"), R.Tensor((3, 4), "float32"))):
        z = R.call_tir_inplace(cls.fill, (t[0], t[1]), [0], f32[3, 4])
        return (z, R.add(z, t[1]))

    @kernel
    def fill(x: f32[3, 4], rows: f32[3, 4]):
        for i, j in T.grid(3, 4):
            x[i, j] = rows[i, j] * T.float32(2)
    """)
    a = np.exp(X)
    agree(relaxpy.compile(mod, "native")["main"](X), ((2 * a, 3 * a), a + X))


def test_models_of_nn_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxpy.relax.frontend import nn

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(40)])

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            for layer in self.layers:
                x = nn.op.relu(layer(x))
            return x

    spec = {"forward": {"x": nn.spec.Tensor(["n", 8], "float32"), "$": {"param_mode": "packed"}}}
    mod, params = Model().export_tvm(spec)
    names: dict[str, bool] = {}
    compile_graph = GraphBackend.compile_graph

    def spy(self: Any, context: Any, func: Any, name: str) -> bool:
        names[name] = compile_graph(self, context, func, name)
        return names[name]

    monkeypatch.setattr(GraphBackend, "compile_graph", spy)
    main = relaxpy.compile(mod, "native")["forward"]
    assert names == {"forward": True}
    rng = np.random.default_rng(0)
    values = [rng.standard_normal([int(n) for n in p.shape], "float32") / 3 for _, p in params]
    x = rng.standard_normal((5, 8), "float32")
    agree(main(x, values), relaxpy.compile(mod, "numpy")["forward"](x, values))


@pytest.mark.parametrize("size", ["R.Prim(value='n')", "R.Shape(['n'])"])
def test_a_negative_size_is_refused(size: str) -> None:
    mod = module(f"""
    def main(x: f32[4], s: {size}):
        n = T.int64()
        a = R.broadcast_to(R.sum(R.exp(x)), (n, 2))
        b = R.sum(a, axis=[1])
        return R.sum(R.tanh(b))
    """)
    value = -1 if "Prim" in size else ShapeTuple([-1])
    messages = []
    for target in ("native", "numpy"):
        with pytest.raises(RelaxpyError, match=r"shape \(-1, 2\)") as error:
            relaxpy.compile(mod, target, relax_pipeline="legalize")["main"](B, value)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
