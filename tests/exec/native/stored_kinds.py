"""Programs of each kind that the disk cache keeps, and a process that compiles and calls them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from traceback import walk_stack
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import RelaxpyError
from relaxpy.exec.api import lowered as module_of_lowering
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.llm import CompiledDecoder, config_of
from relaxpy.plugins.llm import compiled
from relaxpy.relax.training import SetupTrainer, Trainer
from relaxpy.relax.training.loss import MSELoss
from relaxpy.relax.training.optimizer import Adam
from relaxpy.script import from_source

Calls: TypeAlias = Callable[[relaxpy.Executable], object]
ROOT = Path(__file__).parents[3]
X = np.linspace(-1, 1, 24, dtype="float32").reshape(3, 8)
W, B = np.linspace(-2, 1, 64, dtype="float32").reshape(8, 8), np.arange(8, dtype="float32")
PROGRAMS: Mapping[str, tuple[str, Calls]] = {
    "tuples and objects": (
        """
@R.function
def main(x: R.Tensor(("n", 8), "float32"),
         p: R.Tuple(R.Tensor((8, 8), "float32"), R.Tensor((8,), "float32")), o: R.Object):
    return (R.add(R.matmul(x, p[0]), p[1]), o)
""",
        lambda ex: ex["main"](X, (W, B), "s")[0],
    ),
    "packed calls": (
        """
@R.function(pure=False)
def main(x: R.Tensor(("n", 8), "float32")):
    n = T.int64()
    y = R.call_pure_packed("stored.twice", R.exp(x), sinfo_args=R.Tensor((n, 8), "float32"))
    z = R.call_dps_packed("stored.into", (y,), out_sinfo=R.Tensor((n, 8), "float32"))
    return R.nn.softmax(z)
""",
        lambda ex: ex["main"](X),
    ),
    "several functions": (
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), f: R.Object):
        @R.function
        def local(y: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            return R.add(x, R.exp(y))
        s: R.Tensor(dtype="float32") = R.sum(Module.helper(local(x)))
        z = R.match_cast(R.abs(s), R.Tensor((), "float32"))
        return (z, Module.count(x, R.const(3, "int64")))

    @R.function
    def helper(x: R.Tensor(("n", 8), "float32")):
        return R.multiply(x, R.const([3.0] * 8, "float32"))

    @R.function
    def count(x: R.Tensor(("n", 8), "float32"), k: R.Tensor((), "int64")
              ) -> R.Tensor(("n", 8), "float32"):
        if R.less(k, R.const(1, "int64")):
            r = x
        else:
            r = Module.count(R.add(x, x), R.subtract(k, R.const(1, "int64")))
        return r
""",
        lambda ex: (ex["main"](X, "s"), ex["helper"](X), ex["count"](X, np.int64(2))),
    ),
    "operators at run time": (
        """
@R.function
def main(x: R.Tensor(dtype="float32"), y: R.Tensor(ndim=2, dtype="float32")):
    z = R.add(R.exp(x), y)
    return (z, R.reshape(z, R.shape([24])), R.add(z, R.const([1.5] * 8, "float32")))
""",
        lambda ex: (ex["main"](X, X), ex["main"](X[:1], X)),
    ),
    "public kernels": (
        """
@I.ir_module
class Module:
    @T.prim_func
    def scale(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = A[i] * T.float32(2)

    @T.prim_func
    def shout(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = T.cast(T.call_packed("stored.number", A[i]), "float32")

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        cls = Module
        y = R.call_tir(cls.scale, (x,), out_sinfo=R.Tensor((8,), "float32"))
        return R.call_tir(cls.shout, (y,), out_sinfo=R.Tensor((8,), "float32"))
""",
        lambda ex: (ex["main"](B), called_kernels(ex)),
    ),
    "kernels that fail": (
        """
@I.ir_module
class Module:
    @T.prim_func
    def gather(I: T.Buffer((8,), "int64"), A: T.Buffer((8,), "float32"),
               C: T.Buffer((8,), "float32")):
        for i in range(8):
            C[i] = A[I[i]]

    @R.function
    def main(o: R.Object, i: R.Tensor((8,), "int64"), x: R.Tensor((8,), "float32")):
        y = R.call_tir(Module.gather, (i, x), out_sinfo=R.Tensor((8,), "float32"))
        return (o, y)
""",
        lambda ex: ex["main"](0, np.arange(8)[::-1].copy(), B),
    ),
}
WRONG: Mapping[str, Calls] = {
    "tuples and objects": lambda ex: ex["main"](X, (W, B[:7]), 0),
    "packed calls": lambda ex: ex["main"](np.full((2, 8), np.nan, "float32")),
    "several functions": lambda ex: ex["main"](X[:, :7], 0),
    "operators at run time": lambda ex: ex["main"](X, X[:2]),
    "public kernels": lambda ex: called_wrongly(ex),
    "kernels that fail": lambda ex: ex["main"](0, np.full(8, 9), B),
}
"""Calls that fail: their messages have the positions of the program."""


def called_kernels(ex: relaxpy.Executable) -> object:
    results = np.zeros((2, 8), "float32")
    ex["scale"](B, results[0])
    ex["shout"](B, results[1])
    return results


def called_wrongly(ex: relaxpy.Executable) -> None:
    """Call kernels with an argument that is read and written, which is allowed, and fail."""
    same = B.copy()
    for name in ("scale", "shout"):
        ex[name](same, same)
    np.testing.assert_array_equal(same, 2 * B + 3)
    ex["scale"](B, B[:4])


def packed_twice(x: Any) -> Any:
    if np.isnan(x).any():
        raise ValueError("not a number")
    return x * 2


def into(x: Any, out: Any) -> None:
    out[...] = x + 1


def large() -> tuple[IRModule, Calls]:
    """A program with constants, one in a mapped file, and one that passes compute from it."""
    path = Path(sys.argv[1], "weights.bin")
    weights = np.memmap(path, np.float32, "r", shape=(640, 640))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((1, 640), "float32"))
    with builder.function("main", [x]):
        twice = builder.emit(relax.op.add(relax.const(weights), relax.const(weights)))
        product = builder.emit(relax.op.matmul(x, relax.const(weights)))
        builder.emit_func_output(builder.emit(relax.op.matmul(product, twice)))
    return builder.get(), lambda ex: ex["main"](np.ones((1, 640), "float32"))


def training() -> tuple[IRModule, Calls]:
    """A training step of a linear model."""
    module = from_source("""
@I.ir_module
class Module:
    I.module_attrs({"param_num": 2, "state_num": 0})
    @R.function
    def backbone(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32"),
                 b: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.add(R.matmul(x, w), b)
            R.output(y)
        return y
""")
    sinfo = relax.TensorStructInfo((4, 2), "float32")
    module = SetupTrainer(MSELoss(), Adam(0.05), [sinfo, sinfo])(module)

    def run(ex: relaxpy.Executable) -> object:
        trainer = Trainer(module, relax.VirtualMachine(ex), None, True)
        data, target = X.reshape(-1)[:12].reshape(4, 3), X.reshape(-1)[:8].reshape(4, 2)
        return [trainer.update(data, target) for _ in range(3)]

    return module, run


def language_model() -> tuple[IRModule, Calls]:
    """A decoder with a cache of pages and quantised weights."""
    sizes = {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 41,
        "max_position_embeddings": 96,
        "rms_norm_eps": 1e-5,
    }
    random = np.random.default_rng(0)
    shapes = {"embed_tokens": (41, 32), "norm": (32,)}
    for n in range(2):
        layer = f"layers.{n}."
        shapes |= {f"{layer}self_attn.{p}_proj": (32 if p in "qo" else 16, 32) for p in "qkvo"}
        shapes |= {f"{layer}mlp.{p}_proj": (64, 32) for p in ("gate", "up")}
        shapes |= {f"{layer}mlp.down_proj": (32, 64), f"{layer}input_layernorm": (32,)}
        shapes |= {f"{layer}post_attention_layernorm": (32,)}
    weights = {
        f"model.{name}.weight": random.standard_normal(shape).astype("float32") / 8
        for name, shape in shapes.items()
    }
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    modules: list[IRModule] = []

    def noted(make: Callable[[], IRModule], recipe: str, target: str | None) -> SimpleNamespace:
        modules.append(make())
        return SimpleNamespace(target=target)

    def decoder(compile_made: Callable[..., object]) -> CompiledDecoder:
        compile_now, compiled.compile_made = compiled.compile_made, compile_made
        model = CompiledDecoder(config_of(sizes), weights, quantization="q4f32_1", tokens=64)
        compiled.compile_made = compile_now
        return model

    decoder(noted)

    def run(ex: relaxpy.Executable) -> object:
        model = decoder(lambda make, recipe, target: ex)
        cache = model.new_cache()
        model.state("add_sequence", cache, 0)
        return model.run(cache, [0], [[3, 1, 4]], [2]), model.run(cache, [0], [[1]], [0])

    return modules[0], run


BUILT = {"large constants": large, "training": training, "language model": language_model}
KINDS = [*PROGRAMS, *BUILT]


def fingerprint(value: object) -> str:
    """A hash of the arrays in a value."""
    if isinstance(value, list | tuple):
        return hashlib.sha256("".join(map(fingerprint, value)).encode()).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def message(call: Calls, ex: relaxpy.Executable) -> str:
    """The text of the error of a call."""
    try:
        call(ex)
    except (RelaxpyError, ValueError) as error:
        return str(error)
    raise AssertionError("it did not fail")


def callers() -> str:
    """The qualified names of the functions that run."""
    return " ".join(each.f_code.co_qualname for each, _ in walk_stack(sys._getframe()))


def main() -> None:
    """Print what each program does, and what compiling it has taken."""
    relaxpy.register_func("stored.twice", packed_twice)
    relaxpy.register_func("stored.into", into)
    relaxpy.register_func("stored.number", lambda x: int(x) + 3)
    ran: list[str] = []
    for name in ("lower_module", "transformed"):
        function = getattr(module_of_lowering, name)

        def noted(*args: Any, name: str = name, function: Any = function, **named: Any) -> Any:
            is_native = name != "lower_module" or args[1] is GraphBackend
            # Operators at run time are compiled in each process, for the operands that they get.
            if is_native and "DynamicPrograms" not in callers():
                ran.append(name)
            return function(*args, **named)

        setattr(module_of_lowering, name, noted)
    found = {}
    for kind in KINDS:
        text, calls = PROGRAMS.get(kind, ("", None))
        module, calls = (from_source(text), calls) if calls is not None else BUILT[kind]()
        ran.clear()
        executable = relaxpy.compile(module, target="native")
        result = fingerprint(calls(executable))
        took, is_generated = [*ran], "llvmlite" in sys.modules
        found[kind] = {
            "result": result,
            "took": took,
            "llvmlite": is_generated,
            "error": message(WRONG[kind], executable) if kind in WRONG else "",
            "report": str(executable.report()),
            "functions": repr(executable),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
