"""Compilation depends on the program alone: not on hashes or addresses, which processes choose."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMPILED = '''
import hashlib, json
import numpy as np
import relaxpy
from relaxpy.exec.native.calls import jit
from relaxpy.script import from_source

texts = []
compile_object = jit.compile_object
def noted(*parts, **options):
    texts.append(parts)
    return compile_object(*parts, **options)
jit.compile_object = noted

random = np.random.default_rng(0)
weights = {
    "w1": random.standard_normal((16, 3, 3, 3)),
    "w2": random.standard_normal((32, 16, 1, 1)),
    "w3": random.standard_normal((32, 1, 5, 5)),
    "w4": random.standard_normal((16, 32, 1, 1)),
    "w5": random.standard_normal((8, 32, 1, 1)),
    "w6": random.standard_normal((32, 8, 1, 1)),
}
function = from_source("""
@R.function
def main(x: R.Tensor((1, 3, 32, 32), "float32"), w1: R.Tensor((16, 3, 3, 3), "float32"),
         w2: R.Tensor((32, 16, 1, 1), "float32"), w3: R.Tensor((32, 1, 5, 5), "float32"),
         w4: R.Tensor((16, 32, 1, 1), "float32"), w5: R.Tensor((8, 32, 1, 1), "float32"),
         w6: R.Tensor((32, 8, 1, 1), "float32")):
    a = R.nn.relu(R.nn.conv2d(x, w1, strides=[2, 2], padding=[1, 1]))
    b = R.nn.silu(R.nn.conv2d(a, w2))
    c = R.nn.silu(R.nn.conv2d(b, w3, padding=[2, 2], groups=32))
    s = R.nn.relu(R.nn.conv2d(R.nn.adaptive_avg_pool2d(c, [1, 1]), w5))
    d = R.multiply(c, R.sigmoid(R.nn.conv2d(s, w6)))
    e = R.add(a, R.nn.conv2d(d, w4))
    f = R.nn.max_pool2d(e, pool_size=[2, 2], strides=[2, 2])
    g = R.image.resize2d(f, R.shape([16, 16]), method="nearest_neighbor", layout="NCHW")
    h = R.concat([e, g], axis=1)
    return (R.nn.softmax(R.mean(h, axis=[2, 3])), R.topk(R.reshape(h, R.shape([32, 256])), k=3))
""")
weights = {name: array.astype("float32") for name, array in weights.items()}
main = function.with_attr("global_symbol", "main").bind_params(weights)
executable = relaxpy.compile(relaxpy.IRModule({"main": main}), "native")
found = [executable.as_text(), executable.source, *sorted(map("".join, texts))]
print(json.dumps([hashlib.sha256(text.encode()).hexdigest() for text in found]))
'''


def test_processes_generate_the_same_code() -> None:
    pytest.importorskip("llvmlite")
    found = []
    for seed in range(10):
        env = {**os.environ, "RELAXPY_CACHE": "code", "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", COMPILED]
        run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        found.append(json.loads(run.stdout))
    assert len(found[0]) > 2
    assert found == [found[0]] * 10
