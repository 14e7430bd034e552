"""Profiles of calls by kernel: calls, bytes, operations, and the share of measured peaks."""

import copy
import csv
import io
import json
import linecache
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import (
    FunctionSignatureError,
    MisuseError,
    PackedFuncError,
    RuntimeCheckError,
    UnknownNameError,
)
from relaxpy.exec.api.assembled import timed
from relaxpy.exec.inspect import profile as profiler
from relaxpy.exec.inspect.profile import Profile, ProfileRow, copied, may_write_arrays
from relaxpy.exec.loops.report import operation_count
from relaxpy.exec.native import peak
from relaxpy.exec.program.graph import times as times_of_graphs
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import spec
from relaxpy.script import from_source, ir as I, relax as R, tir as T


@I.ir_module
class Module:
    @T.prim_func
    def product(a: T.handle, B: T.Buffer((8, 4), "float32"), c: T.handle):
        n = T.int64()
        A, C = T.match_buffer(a, (n, 8)), T.match_buffer(c, (n, 4))
        for i, j, k in T.grid(n, 4, 8):
            with T.block("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 4), "float32")):
        n = T.int64()
        y = R.call_tir(Module.product, (x, w), out_sinfo=R.Tensor((n, 4), "float32"))
        z = R.call_tir(Module.product, (x, w), out_sinfo=R.Tensor((n, 4), "float32"))
        return (y, z)

    @R.function
    def other(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 4), "float32")):
        n = T.int64()
        return R.call_tir(Module.product, (x, w), out_sinfo=R.Tensor((n, 4), "float32"))


ARGS = np.ones((5, 8), "float32"), np.ones((8, 4), "float32")


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_profile_counts_calls_bytes_and_operations(target: str) -> None:
    executable = relaxpy.compile(Module, target, relax_pipeline=None)
    profile = executable.profile(*ARGS, repeat=2)
    rows = {row.name: row for row in profile}
    assert rows.keys() == {"main", "product"}
    kernel = rows["product"]
    assert kernel.calls == 2
    assert kernel.backend == ("" if target == "reference" else target)
    assert kernel.bytes == 2 * 4 * (5 * 8 + 8 * 4 + 5 * 4)
    assert kernel.flops == 2 * 2 * 5 * 4 * 8
    assert kernel.share is None or kernel.share > 0
    assert 0 < kernel.duration < profile.duration
    assert abs(sum(row.duration for row in profile) - profile.duration) < 1e-6 + 1e-6
    assert executable.profile(*ARGS, function="other", repeat=1).rows[0].calls == 1


STEPS = """
from relaxpy.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @R.function
    def branch(x: R.Tensor(("n", 4), "float32"), b: R.Tensor((), "bool")):
        if b:
            y = R.concat([R.exp(x), R.exp(x)])
        else:
            y = R.concat([R.sin(x), x, x])
        return y

    @R.function
    def loop(x: R.Tensor(("n", 4), "float32"), k: R.Tensor((), "int64")) -> R.Tensor(ndim=2):
        @R.function
        def again(
            i: R.Tensor((), "int64"), y: R.Tensor(("m", 4), "float32")
        ) -> R.Tensor(("m", 4), "float32"):
            m = T.int64()
            go = R.less(i, k)
            if go:
                z = again(R.add(i, R.const(1, "int64")), R.multiply(y, y))
            else:
                z = y
            return z
        return again(R.const(0, "int64"), R.exp(x))

    @R.function
    def apart(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        n = T.int64()
        a = R.matmul(R.exp(x), w)
        b = R.call_pure_packed("test.profile.same", a, sinfo_args=R.Tensor((n, 4), "float32"))
        c = R.matmul(R.exp(b), w)
        return (R.add(c, c), R.subtract(b, c))
"""
X = np.linspace(0, 1, 12, dtype="float32").reshape(3, 4)
CALLS: dict[str, tuple[Any, ...]] = {
    "branch": (X, np.array(True)),
    "loop": (X, np.array(5)),
    "apart": (X, np.ones((4, 4), "float32")),
}


@pytest.mark.parametrize("name", CALLS)
def test_native_code_notes_what_an_instrument_sees(name: str) -> None:
    """The calls, bytes, operations and arguments are those that the evaluator reports."""
    relaxpy.register_func("test.profile.same", lambda x: x, override=True)
    native, reference = (
        relaxpy.compile(from_source(STEPS), target, relax_pipeline="legalize").profile(
            *CALLS[name], function=name, repeat=1
        )
        for target in ("native", "reference")
    )
    one, other = (
        {row.name: (row.calls, row.bytes, row.flops) for row in profile if row.kind == "kernel"}
        for profile in (native, reference)
    )
    assert one == other
    assert len(one) > 1
    events, others = (
        [(e.name, e.arrays) for e in sorted(p.events, key=lambda e: e.start) if e.name in one]
        for p in (native, reference)
    )
    assert events == others
    for event in native.events:
        assert 0 <= event.start <= event.start + event.duration <= native.duration + 1e-6
    assert sum(row.duration for row in native) == pytest.approx(native.duration, abs=2e-6)


FUNCTION_OF_KERNEL = re.compile(r"kernel\.[0-9a-f]{24}")


def kernels_of(program: Any) -> set[str]:
    """The functions of kernels that the native functions of a program call."""
    native = program.form()._lowered().backend.native
    texts = [f.text() for name, f in native.module.functions.items() if name.startswith("graph")]
    called = [name for graph in native.graphs.values() for name in graph.exports]
    return {found for text in (*texts, *called) for found in FUNCTION_OF_KERNEL.findall(text)}


def bound_layers() -> relaxpy.IRModule:
    """Products that are packed, one alone and several in a function."""
    module = from_source("""
from relaxpy.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((70, 64), "float32"), w: R.Tensor((64, 96), "float32")):
        return R.matmul(x, w)

    @R.function
    def two(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        return R.matmul(R.nn.relu(R.matmul(x, w)), w)
""")
    rng = np.random.default_rng(0)
    for name, width in (("main", 96), ("two", 64)):
        weights = rng.standard_normal((64, width), "float32")
        module[name] = module[name].bind_params({"w": weights})
    return module


@pytest.mark.parametrize("module", [bound_layers, lambda: from_source(STEPS)])
def test_a_profile_runs_the_kernels_of_a_call(module: Any) -> None:
    """They are the same functions of machine code: those for packed weights, in particular."""
    executable = relaxpy.compile(module(), "native")
    _, times = timed(executable, lambda *call: None)
    assert times is not None
    expected = kernels_of(executable.program)
    assert {step.function for step in times.steps} == expected
    assert expected


def test_a_native_call_that_is_refused_is_counted_once() -> None:
    executable = relaxpy.compile(bound_layers(), "native")
    x = np.broadcast_to(np.float32(1), (1 << 15, 64))  # whose copy would be too large
    profile = executable.profile(x, function="two", repeat=1)
    assert {row.calls for row in profile if row.kind == "kernel"} == {1}


def test_native_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times_of_graphs, "EVENTS", 2)
    executable = relaxpy.compile(from_source(STEPS), "native", relax_pipeline="legalize")
    profile = executable.profile(*CALLS["loop"], function="loop", repeat=1)
    calls = sum(row.calls for row in profile if row.kind == "kernel")
    assert calls == 1 + 6 + 5 + 5
    shown = [event for event in profile.events if event.name != "loop"]
    assert (len(shown), profile.dropped_events) == (2, calls - 2)


def test_a_profile_is_a_table() -> None:
    rows = (
        ProfileRow("k", "native", 2, 3e-6, 6000, 12000, 0.5),
        ProfileRow("main", "", 1, 1e-6, kind="between kernels"),
    )
    profile = Profile(rows, 4e-6)
    lines = [" ".join(line.split()) for line in str(profile).splitlines()]
    assert lines[0] == "kernel back end calls us % MB Mflop GB/s Gflop/s peak"
    assert lines[2] == "k native 2 3.0 75.0 0.006 0.012 2.0 4.0 50 %"
    assert lines[3] == "main (between kernels) 1 1.0 25.0"
    assert lines[5] == "total 3 4.0 100.0"
    assert repr(profile) == str(profile)
    assert profile._repr_html_().count("<tr>") == 4


def test_a_profile_is_data() -> None:
    row = ProfileRow("k", "native", 2, 3e-6, 6000, 12000, 0.5, "kernel", "model.py:3")
    profile = Profile((row, ProfileRow("main", "", 1, 1e-6)), 4e-6)
    header, _, first_line, *_ = str(profile).splitlines()
    assert (header.split()[-1], first_line.split()[-1]) == ("line", "3")
    twice = Profile((row, replace(row, source="/folder/other.py:4")), 4e-6)
    header, _, first_line, second_line, *_ = str(twice).splitlines()
    assert header.split()[-1] == "at"
    assert [line.split()[-1] for line in (first_line, second_line)] == ["model.py:3", "other.py:4"]
    assert profile.table() == str(profile)
    first, second = json.loads(profile.json())
    assert first == {
        "Name": "k",
        "Duration (us)": pytest.approx(3),
        "Percent": pytest.approx(75),
        "Count": 2,
        "Kind": "kernel",
        "Back end": "native",
        "Bytes": 6000,
        "Operations": 12000,
        "Peak": 0.5,
        "Source": "model.py:3",
    }
    lines = list(csv.DictReader(io.StringIO(profile.csv())))
    assert [line["Name"] for line in lines] == ["k", "main"]
    assert lines[0].keys() == second.keys()
    assert row.count == 2


def test_kernels_of_the_same_operators_are_summed() -> None:
    names = (
        "fused_conv2d6_relu",
        "fused_conv2d_relu12",
        "exp",
        "exp21",
        "atan2_add",
        "atan21_add3",
    )
    rows = [ProfileRow(name, "numpy", 1, 1e-6, 10, 20, 0.5, "kernel") for name in names]
    rows.append(ProfileRow("f1", "", 1, 3e-6, kind="between kernels"))
    sums = {row.name: row for row in Profile(tuple(rows), 9e-6).by_operator()}
    assert sums.keys() == {"fused_conv2d_relu", "exp", "atan2_add", "f1"}
    assert sums["exp"].calls == 2
    assert sums["exp"].duration == pytest.approx(2e-6)
    assert (sums["exp"].bytes, sums["exp"].flops) == (20, 40)
    assert sums["exp"].share == pytest.approx(0.5)
    assert sums["f1"].duration == 3e-6


def test_kernels_of_one_line_are_summed() -> None:
    rows = [ProfileRow(n, "numpy", 1, 1e-6, 10, 20, 0.5, "kernel", "m.py:3") for n in "ab"]
    rows += [ProfileRow("c", "numpy", 1, 5e-6, 0, 0, None, "kernel", "m.py:4")]
    rows += [ProfileRow("main", "", 1, 1e-6, kind="between kernels")]
    by_line = Profile(tuple(rows), 8e-6).by_line()
    assert [(row.name, row.calls) for row in by_line] == [("m.py:4", 1), ("m.py:3", 2), ("main", 1)]
    assert (by_line.rows[1].bytes, by_line.duration) == (20, 8e-6)


def test_profiles_are_compared() -> None:
    one = Profile((ProfileRow("k", "", 1, 2e-6), ProfileRow("only", "", 1, 1e-6)), 3e-6)
    other = Profile((ProfileRow("k", "", 1, 8e-6), ProfileRow("new", "", 1, 4e-6)), 12e-6)
    compared = one.compare(other)
    assert [" ".join(line.split()) for line in str(compared).splitlines()[2:]] == [
        *("k 2.0 8.0 0.25", "new 4.0", "only 1.0", "------ --- -------- -----"),
        "total 3.0 12.0 0.25",
    ]
    assert compared.ratio == pytest.approx(0.25)
    numpy = relaxpy.compile(Module, "numpy", relax_pipeline=None)
    reference = relaxpy.compile(Module, "reference", relax_pipeline=None)
    found = numpy.profile(*ARGS, repeat=1, compare=reference)
    assert {name for name, _, _ in found.rows()} == {"main", "product"}
    assert found.ratio < 1
    with pytest.raises(MisuseError, match="expected a profile, found 3"):
        numpy.profile(*ARGS, compare=3)


def test_names_of_other_profilers_say_what_to_use() -> None:
    executable = relaxpy.compile(Module, "numpy", relax_pipeline=None)
    with pytest.raises(MisuseError, match="found the name 'main' before them") as caught:
        executable.profile("main", *ARGS)
    assert 'profile(..., function="main")' in str(caught.value)
    profile = executable.profile(*ARGS, repeat=1)
    for name, instead in [
        *(("export_chrome_trace", "to_chrome_trace(path)"), ("save", "to_json()")),
        *(("key_averages", "by_operator()"), ("by_oprator", "by_operator")),
    ]:
        with pytest.raises(AttributeError, match=f"Profile has no attribute '{name}'") as missing:
            getattr(profile, name)
        assert instead in str(missing.value)
    assert copy.deepcopy(profile) == profile
    with pytest.raises(AttributeError, match="Executable has no attribute 'to'") as missing:
        executable.to("cuda")
    assert "runs on this CPU" in str(missing.value)


def test_a_trace_has_each_call_inside_the_one_that_made_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    executable = relaxpy.compile(Module, "numpy", relax_pipeline=None)
    profile = executable.profile(*ARGS, repeat=2, trace=path)
    saved = json.loads(path.read_text())
    profile.to_chrome_trace(path)
    assert json.loads(path.read_text()) == saved
    calls = [event for event in saved["traceEvents"] if event["ph"] == "X"]
    outer, *inner = calls
    assert (outer["name"], outer["ts"]) == ("main", 0)
    assert outer["dur"] == pytest.approx(profile.duration * 1e6)
    assert [event["name"] for event in inner] == ["product", "product"]
    for event in inner:
        assert 0 < event["ts"] < event["ts"] + event["dur"] < outer["dur"] + 1e-3
        assert event["args"]["arguments"] == "float32[5, 8], float32[8, 4], float32[5, 4]"
        assert (event["cat"], event["args"]["back end"]) == ("kernel", "numpy")
        assert text_at(event["args"]["source"]).strip().startswith("y = R.call_tir")
    threads = [event for event in saved["traceEvents"] if event["name"] == "thread_name"]
    assert {event["tid"] for event in calls} == {event["tid"] for event in threads}
    with pytest.raises(MisuseError, match="no single calls"):
        profile.by_line().to_chrome_trace(path)


WORKERS = """
import json, sys, threading
import numpy as np
import relaxpy
from relaxpy.script import from_source
source = '''
from relaxpy.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2000, 1000), "float32")):
        with R.dataflow():
            y = R.exp(R.sin(x))
            z = R.sum(R.tanh(y) * R.cos(y), axis=1)
            R.output(z)
        return z
'''
executable = relaxpy.compile(from_source(source), sys.argv[1])
x = np.linspace(-2, 2, 2_000_000, dtype="float32").reshape(2000, 1000)
traces = {}
def profile(name):
    for number in range(20):
        executable.profile(x, repeat=1, trace=sys.argv[2])
        with open(sys.argv[2]) as file:
            traces[name] = json.load(file)["traceEvents"]
        if len({row["tid"] for row in traces[name]}) > 1:
            break
profile("alone")
stop = threading.Event()
def run():
    while not stop.is_set():
        executable["main"](x)
other = threading.Thread(target=run)
other.start()
profile("beside another")
stop.set()
other.join()
print(json.dumps(traces))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="native loops have one thread elsewhere")
@pytest.mark.parametrize("target", ["native", "numpy"])
def test_a_trace_shows_what_workers_did_in_each_kernel(target: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKERS, target, str(tmp_path / "trace.json")]
    environment = os.environ | {"RELAXPY_NUM_THREADS": "3"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    traces = json.loads(found.stdout)
    for rows in traces.values():
        names = {row["tid"]: row["args"]["name"] for row in rows if row["name"] == "thread_name"}
        calls = [row for row in rows if row["ph"] == "X"]
        assert {row["tid"] for row in calls} == set(names)
        here = rows[0]["tid"]
        shares = [row for row in calls if row["tid"] != here]
        for share in shares:
            assert names[share["tid"]].startswith("worker ")
            outer = [
                row
                for row in calls
                if (row["tid"], row["name"], row["cat"]) == (here, share["name"], "kernel")
                and row["ts"] <= share["ts"]
                and share["ts"] + share["dur"] <= row["ts"] + row["dur"] + 1e3
            ]
            assert len(outer) == 1
    workers = {row["tid"] for row in traces["alone"] if row["ph"] == "X"}
    assert 2 <= len(workers) <= 3


def test_a_trace_of_a_failed_call_ends_with_the_failure(tmp_path: Path) -> None:
    def fail(x: Any) -> Any:
        raise ValueError("no")

    relaxpy.register_func("test.profile.fail", fail, override=True)
    executable = relaxpy.compile(from_source(COUNT.replace("count", "fail")), "numpy")
    path = tmp_path / "trace.json"
    with pytest.raises(PackedFuncError):
        executable.profile(1, np.ones(3, "float32"), trace=path)
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert [event["name"] for event in events] == ["main", "test.profile.fail"]
    assert all(event["args"]["failed"] for event in events)


def test_a_trace_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(profiler, "MAX_EVENTS", 2)
    executable = relaxpy.compile(Module, "numpy", relax_pipeline=None)
    profile = executable.profile(*ARGS, repeat=1)
    assert (len(profile.events), profile.dropped_events) == (2, 1)
    profile.to_chrome_trace(tmp_path / "a.json")
    saved = json.loads((tmp_path / "a.json").read_text())
    assert saved["otherData"] == {"calls that are not shown": 1}


def test_a_profile_is_a_table_of_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = Profile((ProfileRow("k", "native", 2, 3e-6),), 4e-6)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert profile.to_pandas() == json.loads(profile.to_json())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MisuseError, match="pip install pandas"):
        profile.to_pandas()


class Layers(nn.Module):
    def __init__(self) -> None:
        self.cache = nn.KVCache(1, [2])
        self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 2)

    def forward(self, x: nn.Tensor, total: Any) -> Any:
        hidden = nn.tanh(self.first(x))
        self.cache.append(self.second(hidden))
        return self.cache.view(total)


def layers() -> Any:
    model = Layers()
    for param in model.parameters():
        param.data = np.ones(param.shape, "float32")
    mode = {"effect_mode": "packed", "param_mode": "packed"}
    return model, {"forward": {"x": spec.Tensor(["n", 2], "float32"), "total": int, "$": mode}}


def text_at(source: str) -> str:
    file, _, line = source.rpartition(":")
    return linecache.getline(file, int(line))


def test_kernels_lead_back_to_lines_of_the_program() -> None:
    model, inputs = layers()
    executable = model.jit(inputs).vm.module
    sources = {text_at(row.source).strip() for row in executable.report() if row.source}
    assert "hidden = nn.tanh(self.first(x))" in sources
    assert "self.cache.append(self.second(hidden))" in sources
    [row] = relaxpy.compile(Module, relax_pipeline=None).report()
    assert "y = R.call_tir(Module.product" in text_at(row.source)


class Counter:
    """A user's object with a state; `lock` cannot be copied."""

    def __init__(self, lock: object = None) -> None:
        self.count, self.lock = 0, lock


def count(counter: Any, x: Any) -> Any:
    counter.count += 1
    x += 1
    return x


COUNT = """
@R.function(pure=False)
def main(counter: R.Object, x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
    y = R.call_packed("test.profile.count", counter, x, sinfo_args=R.Tensor((3,), "float32"))
    return y
"""
IN_PLACE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def increment(x: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.block("b"):
                v = T.axis.spatial(3, i)
                x[v] = x[v] + T.float32(1)

    @R.function
    def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        cls = Module
        with R.dataflow():
            y = R.call_tir_inplace(cls.increment, (x,), [0], R.Tensor((3,), "float32"))
            R.output(y)
        return y
"""
KERNEL = """
@T.prim_func
def main(x: T.Buffer((3,), "float32")):
    for i in range(3):
        with T.block("b"):
            v = T.axis.spatial(3, i)
            x[v] = x[v] + T.float32(1)
"""


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("text", [COUNT, IN_PLACE, KERNEL])
def test_a_profile_leaves_its_arguments_as_they_are(text: str, target: str) -> None:
    relaxpy.register_func("test.profile.count", count, override=True)
    executable = relaxpy.compile(from_source(text), target, relax_pipeline=None)
    counter, x = Counter(), np.zeros(3, "float32")
    args = (counter, x) if text is COUNT else (x,)
    for profile in (
        lambda: executable.profile(*args, repeat=3),
        lambda: relaxpy.VirtualMachine(executable).profile("main", *args),
    ):
        assert all(row.calls == 1 for row in profile())
        assert counter.count == 0
        assert not x.any()


def test_arguments_that_cannot_be_copied_are_used_once() -> None:
    relaxpy.register_func("test.profile.count", count, override=True)
    executable = relaxpy.compile(from_source(COUNT), "numpy")
    counter, x = Counter(threading.Lock()), np.zeros(3, "float32")
    executable.profile(counter, x, repeat=3)
    assert counter.count == 1
    assert x.tolist() == [1, 1, 1]


def test_weights_are_not_copied_for_a_profile() -> None:
    model, inputs = layers()
    compiled = model.jit(inputs)
    weight = compiled.params[0]
    assert not may_write_arrays(compiled.vm.module._program.module, "forward")
    copies = copied([(weight,), np.ones(3)], arrays=False)
    assert copies is not None
    assert copies[0][0] is weight


def test_wrong_arguments_are_errors_before_anything_is_measured(monkeypatch) -> None:
    """The program is not compiled once more, nor the machine measured."""
    executable = relaxpy.compile(from_source(TWO_FUNCTIONS))
    monkeypatch.setattr("relaxpy.exec.inspect.profile.timed", None)
    with pytest.raises(FunctionSignatureError, match="its rank"):
        executable.profile(np.ones((3, 3), "float32"), function="decode")
    with pytest.raises(RuntimeCheckError, match="takes 1 argument, found 0"):
        executable.profile(function="decode")
    with pytest.raises(UnknownNameError) as error:
        executable.profile(np.ones(2, "float32"))
    assert error.value.diagnostic.hint == 'name one of them: profile(..., function="decode")'
    with pytest.raises(UnknownNameError) as error:
        executable(np.ones(2, "float32"))
    assert error.value.diagnostic.hint == 'name one of them: ex["decode"](...)'


TWO_FUNCTIONS = """
@I.ir_module
class Module:
    @R.function
    def decode(x: R.Tensor((2,), "float32")):
        return R.exp(x)

    @R.function
    def prefill(x: R.Tensor((2,), "float32")):
        return R.exp(x)
"""


def test_wrong_arguments_are_errors() -> None:
    executable = relaxpy.compile(Module, target="numpy", relax_pipeline=None)
    with pytest.raises(UnknownNameError, match="no function 'mian'"):
        executable.profile(*ARGS, function="mian")
    with pytest.raises(RuntimeCheckError):
        executable.profile(ARGS[0])
    with pytest.raises(MisuseError, match="repeat is a positive integer, found 0"):
        executable.profile(*ARGS, repeat=0)


COUNTS = {
    "B[i] = T.exp(A[i]) * T.float32(2)": 2 * 6,
    "B[i] = T.if_then_else(i < 3, A[i] + A[i + 1], A[0])": 6,
    "B[i + 1 - 1] = A[2 * i - i]": 0,
    "for j in range(i): B[i] = B[i] + A[j]": 6 * 2,  # in the middle, instead of 15
    "while B[i] < A[0]: B[i] = B[i] + T.float32(1)": None,
}


@pytest.mark.parametrize("body", COUNTS)
def test_operations_are_those_of_the_text(body: str) -> None:
    func = from_source(f"""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A, B = T.match_buffer(a, (n,)), T.match_buffer(b, (n,))
    for i in range(n):
        {body}
""")
    assert operation_count(func, [(6,), (6,)]) == COUNTS[body]


def test_peaks_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "_ROUNDS", 1000)
    peak.peak_operations.cache_clear()
    assert peak.peak_operations("float") > 1e8
    peak.peak_operations.cache_clear()
    assert peak.peak_bytes(1000) == peak.peak_bytes(peak.LEAST_BYTES) > 1e7
