"""Native functions in threads with small stacks, as servers and embedded interpreters have them."""

import subprocess
import sys

SCRIPT = '''
import threading

import numpy as np

import relaxpy
from relaxpy.script import from_source

rng = np.random.default_rng(0)


def graph(body, **arrays):
    """A function of these arrays, and these."""
    params = ", ".join(f'{n}: R.Tensor({a.shape}, "{a.dtype}")' for n, a in arrays.items())
    text = f"@R.function\\ndef main({params}):\\n    y = {body}\\n    return y\\n"
    return relaxpy.compile(from_source(text), target="native")["main"], tuple(arrays.values())


def chain(count, size, value):
    """A kernel with so many local buffers, each computed from the one before it."""
    lines = [f'def f(A: T.Buffer(({size},), "float32"), C: T.Buffer(({size},), "float32")):']
    names = ["A", *(f"B{n}" for n in range(count)), "C"]
    lines += [f'    {name} = T.alloc_buffer(({size},), "float32")' for name in names[1:-1]]
    for before, name in zip(names, names[1:]):
        lines += [f"    for i in range({size}):", f"        {name}[i] = {value.format(before)}"]
    main = relaxpy.compile(from_source("@T.prim_func\\n" + "\\n".join(lines)), target="native")["f"]
    return main, (floats(size), floats(size))


def floats(*shape):
    return rng.normal(size=shape).astype("float32")


def bytes_(*shape):
    return rng.integers(-3, 3, shape).astype("int8")


programs = {
    "products": graph("R.matmul(x, R.permute_dims(w))", x=floats(300, 1100), w=floats(130, 1100)),
    "few rows": graph("R.matmul(x, R.permute_dims(w))", x=floats(3, 4000), w=floats(20, 4000)),
    "bytes": graph('R.matmul(x, w, out_dtype="int32")', x=bytes_(300, 1100), w=bytes_(1100, 130)),
    "images": graph(
        "R.nn.relu(R.nn.conv2d(x, w, padding=(1, 1)))",
        x=floats(1, 32, 20, 20), w=floats(32, 32, 3, 3),
    ),
    "attention": graph(
        "R.nn.attention(q, k, v)",
        q=floats(2, 128, 4, 32), k=floats(2, 128, 4, 32), v=floats(2, 128, 4, 32),
    ),
    "model": graph(
        "R.matmul(R.nn.softmax(R.nn.relu(R.matmul(x, w))), u)",
        x=floats(64, 300), w=floats(300, 500), u=floats(500, 40),
    ),
    "sorting": graph("R.argsort(x, axis=1)", x=floats(40, 3000)),
    "largest": graph('R.topk(x, k=10, ret_type="indices")', x=floats(40, 3000)),
    "functions": graph("R.sin(R.cos(R.tan(R.atan(R.erf(x)))))", x=floats(300, 900)),
    "buffers": chain(150, 2000, "{0}[1999 - i] + {0}[i] * T.float32(0.5)"),
    "buffers of tasks": chain(40, 100000, "T.sin({0}[99999 - i]) + {0}[i]"),
}
expected = {name: (f(*args), *map(np.copy, args)) for name, (f, args) in programs.items()}
threading.stack_size(64 << 10)
for name, (f, args) in programs.items():
    print(name, flush=True)
    found = []
    thread = threading.Thread(target=lambda: found.append(f(*args)))
    thread.start()
    thread.join()
    for one, other in zip((found[0], *args), expected[name], strict=True):
        np.testing.assert_array_equal(one, other)
print("done")
'''


def test_programs_in_a_thread_with_a_small_stack() -> None:
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", SCRIPT]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.stdout.endswith("done\n"), result.stdout[-200:] + result.stderr[-2000:]
