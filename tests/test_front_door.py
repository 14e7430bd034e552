"""`relaxpy.compile` and `relaxpy.load` take models in every form."""

import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RelaxpyError, UnknownNameError
from relaxpy.script import from_source

TEXT = """
@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    return R.add(x, x)
"""
FILE = """
import os
from relaxpy.script import relax as R

print("executed")
""" + TEXT.replace("import", "")
X = np.arange(8, dtype="float32").reshape(2, 4)


def onnx_model():
    onnx = pytest.importorskip("onnx")
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19]>'
        "g (float[n, 4] x) => (float[n, 4] y) { y = Add(x, x) }"
    )


def torch_model():
    torch = pytest.importorskip("torch")

    class Doubled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, x):
            return self.dropout(x + x)

    return Doubled()


def exported():
    torch = pytest.importorskip("torch")
    sizes = {"x": {0: torch.export.Dim("n")}}
    return torch.export.export(torch_model().eval(), (torch.ones(2, 4),), dynamic_shapes=sizes)


def file_of(kind: str, folder: Path) -> Path:
    path = folder / f"model.{kind}"
    if kind == "onnx":
        path.write_bytes(onnx_model().SerializeToString())
    elif kind == "pt2":
        pytest.importorskip("torch").export.save(exported(), path)
    elif kind == "json":
        path.write_text(relaxpy.ir.save_json(relaxpy.load(from_source(TEXT))))
    elif kind == "rxp":
        relaxpy.compile(from_source(TEXT)).save(path)
    else:
        path.write_text(TEXT)
    return path


MODELS = {
    "function": lambda: from_source(TEXT),
    "module": lambda: relaxpy.IRModule.from_expr(from_source(TEXT)),
    "onnx": onnx_model,
    "exported": exported,
}


@pytest.mark.parametrize("kind", MODELS)
def test_each_object_that_is_a_model_is_compiled_and_loaded(kind: str) -> None:
    model = MODELS[kind]()
    assert relaxpy.compile(model)(X).tolist() == (X + X).tolist()
    module = relaxpy.load(model)
    assert isinstance(module, relaxpy.IRModule)
    assert relaxpy.compile(module)(X[:1]).tolist() == (X + X)[:1].tolist()


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("kind", ["onnx", "pt2", "rxp", "json", "py"])
def test_each_file_that_is_a_model_is_compiled_and_loaded(kind, as_text, tmp_path) -> None:
    path = file_of(kind, tmp_path)
    model = str(path) if as_text else path
    assert relaxpy.compile(model)(X).tolist() == (X + X).tolist()
    assert relaxpy.compile(model, "reference")(X).tolist() == (X + X).tolist()
    assert isinstance(relaxpy.load(model), relaxpy.IRModule)


def test_a_saved_executable_keeps_its_target(tmp_path: Path) -> None:
    path = tmp_path / "model.rxp"
    relaxpy.compile(from_source(TEXT), "reference").save(path)
    assert relaxpy.compile(path).target == "reference"
    assert relaxpy.compile(path, "numpy").target == "numpy"


def test_a_python_file_is_read_and_not_executed(tmp_path: Path, capsys) -> None:
    path = tmp_path / "model.py"
    path.write_text(FILE)
    with pytest.warns(relaxpy.errors.RelaxpyWarning, match="not executed") as caught:
        module = relaxpy.load(path)
    assert "import it, and pass the module or function" in str(caught[0].message)
    assert "--import" not in str(caught[0].message)
    assert [*module.functions_by_name] == ["main"]
    assert capsys.readouterr().out == ""


def test_a_torch_module_is_exported_for_inference_and_is_not_changed() -> None:
    torch = pytest.importorskip("torch")
    model = torch_model()
    model.dropout.eval()
    model.other = torch.nn.Dropout(0.5)
    ex = relaxpy.compile(model, args=(torch.ones(2, 4),), dynamic={"x": {0: "batch"}})
    assert "batch" in str(ex)
    assert ex(X).tolist() == (X + X).tolist()
    assert ex(X[:1]).shape == (1, 4)
    assert [part.training for part in model.modules()] == [True, False, True]


def test_example_arguments_are_arrays_tensors_and_named_ones() -> None:
    torch = pytest.importorskip("torch")

    class Scaled(torch.nn.Module):
        def forward(self, x, *, by):
            return x * by

    for args in (X, (X,), [torch.from_numpy(X)]):
        ex = relaxpy.compile(
            Scaled(), args=args, kwargs={"by": X[0]}, dynamic={"x": {0: "n"}, "by": None}
        )
        assert ex(np.ones((3, 4), "float32"), X[0]).tolist() == [X[0].tolist()] * 3
    sizes = {"x": {0: "n"}}
    module = relaxpy.load(Scaled(), args=X, kwargs={"by": X[0]}, dynamic=sizes)
    assert relaxpy.compile(module)(X, by=X[0]).tolist() == (X * X[0]).tolist()


def test_one_name_of_a_size_is_one_variable() -> None:
    torch = pytest.importorskip("torch")

    class Sum(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    module = relaxpy.load(Sum(), args=(X, X), dynamic={"x": {0: "n"}, "y": ("n", None)})
    x, y = module["main"].params
    assert x.struct_info.shape[0] is y.struct_info.shape[0]
    assert x.struct_info.shape[0].name == "n"


def test_the_error_of_a_model_that_cannot_be_exported_is_its_own() -> None:
    torch = pytest.importorskip("torch")

    class Wrong(torch.nn.Module):
        def forward(self, x):
            raise OSError("no such thing")

    model = Wrong()
    with pytest.raises(OSError, match="no such thing"):
        relaxpy.compile(model, args=X)
    assert model.training


def test_name_renames_main_or_the_only_public_function() -> None:
    ex = relaxpy.compile(from_source(TEXT), name="double")
    assert ex["double"](X).tolist() == (X + X).tolist()
    assert "main" not in ex
    assert [*relaxpy.compile(onnx_model(), name="main")] == ["main"]
    two = relaxpy.IRModule({"main": from_source(TEXT), "other": from_source(TEXT)})
    two["other"] = two["other"].with_attr("global_symbol", "other")
    assert {*relaxpy.compile(two, name="double")} == {"double", "other"}
    with pytest.raises(MisuseError, match="two functions would be called other"):
        relaxpy.compile(two, name="other")
    with pytest.raises(MisuseError, match="is an identifier, found 'a b'"):
        relaxpy.compile(two, name="a b")
    with pytest.raises(UnknownNameError, match="found one, other"):
        relaxpy.compile(two.replace_global_vars({"main": "one"}), name="x")


def test_dynamic_has_the_forms_of_torch_export() -> None:
    torch = pytest.importorskip("torch")
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")

    class Sum(torch.nn.Module):
        def forward(self, x, pair, *rest):
            return x + pair.a + pair.b + sum(rest)

    dim, x = torch.export.Dim("n", max=9), torch.ones(2, 4)
    args = x, Pair(x + 1, x + 2), x + 3
    collected = torch.export.ShapesCollection()
    for leaf in (x, *args[1], args[2]):
        collected[leaf] = {0: dim}
    others = torch.export.AdditionalInputs()
    others.add((torch.ones(3, 4), Pair(torch.ones(3, 4), torch.ones(3, 4)), torch.ones(3, 4)))
    sizes, auto = {0: "n"}, {0: torch.export.Dim.AUTO}
    for dynamic in (
        {"x": sizes, "pair": Pair(sizes, sizes), "rest": (sizes,)},
        {"x": ("n", None), "pair": Pair(["n", 4], sizes), "rest": ({-2: "n"},)},
        (sizes, Pair(sizes, sizes), (sizes,)),
        [{0: dim}, Pair({0: dim}, {0: dim}), ({0: dim},)],
        (auto, Pair(auto, auto), (auto,)),
        collected,
        others,
    ):
        ex = relaxpy.compile(Sum(), args=args, dynamic=dynamic)
        assert ex(*[np.ones((5, 4), "float32")] * 4).tolist() == [[4.0] * 4] * 5


def test_examples_may_be_arrays_of_each_datatype_and_order() -> None:
    torch = pytest.importorskip("torch")
    import ml_dtypes

    for array in (
        np.float32(3),
        X.astype(">f4"),
        X.astype(ml_dtypes.bfloat16),
        X[::-1],
        np.broadcast_to(X[0], (2, 4)),
    ):
        ex = relaxpy.compile(torch_model(), args=array)
        native = np.asarray(array).astype(np.asarray(array).dtype.newbyteorder("="))
        found = ex(native)
        assert found.dtype == native.dtype
        assert found.tolist() == (native + native).tolist()


def test_modules_that_torch_compiled_have_their_own_arguments() -> None:
    torch = pytest.importorskip("torch")
    compiled = torch.compile(torch_model(), backend="eager")
    ex = relaxpy.compile(compiled, args=X, dynamic={"x": {0: "n"}})
    assert ex(X[:1]).tolist() == (X + X)[:1].tolist()


def refused(hint: str, model: object, **options: object) -> None:
    for take in (relaxpy.compile, relaxpy.load):
        with pytest.raises(MisuseError) as caught:
            take(model, **options)
        assert hint in str(caught.value)


def test_what_is_not_a_model_is_refused_with_what_to_write(tmp_path: Path) -> None:
    refused("relaxpy.llm.load(path)", "chat.gguf")
    refused("relaxpy.llm.load(folder)", tmp_path)
    refused("relaxpy.compile(model, args=(x,))", "weights.pt")
    refused("from_source(text)", TEXT)
    refused(".onnx", tmp_path / "model.tflite")
    refused(".onnx", "model.tflite")
    refused("found a string", TEXT)
    refused("onnx.load_model_from_string(data)", b"x")
    refused("@I.ir_module class Path", Path)
    refused("@R.function", refused)
    refused("found int", 3)
    refused("takes a model, a function or a path", 3)
    refused("pass the torch module that has them", {"weight": X})
    refused("call it in a torch module", len)
    refused("the forward of a torch module", refused, args=(X,))
    refused("skl2onnx.to_onnx(model, X)", pytest.importorskip("sklearn.svm").SVC())


def test_a_warning_about_a_file_is_of_the_line_that_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(f"{TEXT}\nprint(1)\n", encoding="utf-8")
    for take in (relaxpy.compile, relaxpy.load):
        with pytest.warns(relaxpy.errors.RelaxpyWarning, match="is not executed") as caught:
            take(path)
        assert [warning.filename for warning in caught] == [__file__]


def test_examples_are_for_torch_modules_only() -> None:
    torch = pytest.importorskip("torch")
    refused("omit args", from_source(TEXT), args=(X,))
    refused("omit dynamic", onnx_model(), dynamic={"x": {0: "n"}})
    refused("omit kwargs", exported(), kwargs={})
    refused("args=(x,)", torch_model())
    refused("its arguments are x", torch_model(), args=X, dynamic={"what": {0: "n"}})
    refused("write {'x': {0: 'n'}}", torch_model(), args=X, dynamic={0: "n"})
    refused("did you mean 'input'", torch.nn.ReLU(), args=X, dynamic={"inputs": {0: "n"}})
    refused("identifier", torch_model(), args=X, dynamic={"x": {0: "a b"}})
    refused("kwargs are example arguments", torch_model(), kwargs=3)
    refused("dynamic is for 2 arguments, expected 1: x", torch_model(), args=X, dynamic=[{}, {}])
    refused("sizes of x by axis, found 'n'", torch_model(), args=X, dynamic={"x": "n"})
    for axes in ({7: "n"}, {"0": "n"}, ["n"], {-3: "n"}):
        refused("the example has 2 of them", torch_model(), args=X, dynamic={"x": axes})
    for count in (0, 1):
        refused("2 or more", torch_model(), args=X[:count], dynamic={"x": {0: "n"}})
    square, names = np.ones((2, 2), "float32"), {0: "n", 1: "n"}
    assert relaxpy.load(torch_model(), args=square, dynamic={"x": names})
    refused("the size n is 2 in x and 4 in x", torch_model(), args=X, dynamic={"x": names})
    refused("missing a required argument: 'x'", torch_model(), args=())
    refused("unexpected keyword argument 'z'", torch_model(), args=X, kwargs={"z": X})
    refused("no tensors of <U1", torch_model(), args=np.array(["a"]))
    refused("make an object of it: ReLU(...)", torch.nn.ReLU, args=X)
    refused("model.to_empty", torch.nn.Linear(4, 4, device="meta"), args=X)
    with pytest.warns(DeprecationWarning, match="jit.trace"):
        script = torch.jit.trace(torch.nn.ReLU(), torch.ones(2))
    refused("the torch module that it was made of", script, args=X)

    class Named(torch.nn.Module):
        def forward(self, x, **others):
            return x + others["y"]

    assert relaxpy.compile(Named(), args=X, kwargs={"y": X})(X, X).tolist() == (X + X).tolist()
    refused("where **others", Named(), args=X, kwargs={"y": X}, dynamic={"x": {0: "n"}})


def test_a_model_without_inputs_needs_no_examples() -> None:
    torch = pytest.importorskip("torch")

    class Weights(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self):
            return self.weight * 2

    assert relaxpy.compile(Weights())().tolist() == [2, 2, 2]


def test_the_tensors_of_a_dictionary_are_arguments_by_themselves() -> None:
    torch = pytest.importorskip("torch")

    class Sum(torch.nn.Module):
        def forward(self, both):
            return both["a"] + both["b"]

    both = {"a": X, "b": X}
    ex = relaxpy.compile(Sum(), args=(both,))
    assert ex(X, X).tolist() == ex(**{f"both_{k}": v for k, v in both.items()}).tolist()
    for call in (ex, ex.check_values):
        with pytest.raises(RelaxpyError, match="pass the tensors of a dictionary or list one by"):
            call(both)


@pytest.mark.parametrize("kind", ["onnx", "pt2", "rxp", "json", "py"])
def test_a_file_that_is_missing_is_a_file_not_found(kind: str, tmp_path: Path) -> None:
    if kind in ("onnx", "pt2"):
        pytest.importorskip({"onnx": "onnx", "pt2": "torch"}[kind])
    for take in (relaxpy.compile, relaxpy.load):
        with pytest.raises(FileNotFoundError, match=f"missing.{kind}"):
            take(tmp_path / f"missing.{kind}")


@pytest.mark.parametrize("kind", ["onnx", "pt2", "rxp", "json", "py"])
def test_a_file_that_is_something_else_is_refused(kind: str, tmp_path: Path) -> None:
    if kind in ("onnx", "pt2"):
        pytest.importorskip({"onnx": "onnx", "pt2": "torch"}[kind])
    path = tmp_path / f"model.{kind}"
    for content in (b"\x93NUMPY\xff\xfe", b"x", b""):
        path.write_bytes(content)
        for take in (relaxpy.compile, relaxpy.load):
            with pytest.raises(RelaxpyError, match=f"model.{kind}") as caught:
                take(path)
            assert (kind == "rxp") == ("is not a saved executable" in str(caught.value))


def test_exported_programs_may_be_damaged_or_have_a_name_in_capitals(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = file_of("pt2", tmp_path)
    capitals = tmp_path / "MODEL.PT2"
    path.rename(capitals)
    assert relaxpy.compile(capitals)(X).tolist() == (X + X).tolist()
    whole = capitals.read_bytes()
    for end in (0, 4, len(whole) // 2, len(whole) - 1):
        capitals.write_bytes(whole[:end])
        with pytest.raises(RelaxpyError, match=r"MODEL\.PT2: not an exported program"):
            relaxpy.load(capitals)
    torch.save({"weight": torch.ones(2)}, capitals)
    with pytest.raises(RelaxpyError, match=r"MODEL\.PT2: not an exported program"):
        relaxpy.load(capitals)


def test_nothing_is_imported_that_the_object_did_not_bring() -> None:
    text = f"""
import sys, numpy as np, relaxpy
from relaxpy.script import from_source
relaxpy.compile(from_source({TEXT!r}))
relaxpy.load(from_source({TEXT!r}))
print({{"torch", "onnx"}} & {{*sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


MISSING = """
import sys, relaxpy
from relaxpy.relax.frontend.weights import open_weights
for package, file, read in (
    ("onnx", "model.onnx", relaxpy.compile),
    ("torch", "model.pt2", relaxpy.load),
    ("gguf", "model.gguf", open_weights),
    ("safetensors", "model.safetensors", open_weights),
):
    sys.modules[package] = None
    open(file, "wb").write(b"GGUF")
    try:
        read(file)
    except ImportError as error:
        print(error.name, error)
"""


def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MISSING]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["onnx", "torch", "gguf", "safetensors"]
    for line in lines:
        name = line.split()[0]
        assert f"need the package {name}, which is missing: pip install 'relaxpy[{name}]'" in line


def named_model():
    torch = pytest.importorskip("torch")

    class Named(torch.nn.Module):
        def forward(self, x):
            return {"logits": x * 2, "hidden": (x + 1, [x.sum(), None])}

    return Named()


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_model_that_returns_a_dict_returns_one_also_from_a_file(target, tmp_path) -> None:
    torch = pytest.importorskip("torch")
    ex = relaxpy.compile(named_model(), target, args=X, dynamic={"x": {0: "batch"}})
    path = tmp_path / "named.rxp"
    ex.save(path)
    for one in (
        ex,
        pickle.loads(pickle.dumps(ex)),
        relaxpy.load_executable(path),
        relaxpy.load_executable(path, native_code=True),
        relaxpy.compile(relaxpy.load(path), target),
    ):
        for call in (one, one["main"], relaxpy.VirtualMachine(one)["main"]):
            found = call(X)
            assert [*found] == ["logits", "hidden"]
            first, (total, nothing) = found["hidden"]
            np.testing.assert_array_equal(found["logits"], X * 2)
            np.testing.assert_array_equal(first, X + 1)
            assert (total, nothing) == (X.sum(), None)
        assert isinstance(one(torch.from_numpy(X))["logits"], torch.Tensor)
        assert [(v.name, v.dtype, v.shape) for v in one.inputs] == [("x", "float32", ("batch", 4))]
        assert [(v.name, v.dtype, v.shape) for v in one.outputs] == [
            ("logits", "float32", ("batch", 4)),
            ("hidden.0", "float32", ("batch", 4)),
            ("hidden.1.0", "float32", ()),
        ]


def test_a_dataclass_of_outputs_and_a_single_one_become_dicts() -> None:
    torch = pytest.importorskip("torch")

    @dataclass
    class Output:
        logits: object
        loss: object = None

    torch.export.register_dataclass(Output)

    class Model(torch.nn.Module):
        def forward(self, x):
            return Output(x * 2)

    found = relaxpy.compile(Model(), args=X)(X)
    assert next(iter(found)) == "logits"
    np.testing.assert_array_equal(found["logits"], X * 2)


WITHOUT = """
import sys
sys.modules |= dict.fromkeys(("torch", "onnx", "llvmlite"))
import numpy as np, relaxpy
ex = relaxpy.load_executable("model.rxp", native_code=True)
np.save("y.npy", ex(np.load("x.npy")))
print({row.backend for row in ex.report()})
"""


def test_a_saved_model_runs_without_its_framework(tmp_path) -> None:
    """As docs/how-to/run-a-model-without-its-framework.md says."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    x = torch.randn(1, 3, 8, 8)
    ex = relaxpy.compile(model, "native", args=(x,))
    ex.save(tmp_path / "model.rxp")
    np.save(tmp_path / "x.npy", x.numpy())
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "{'native'}\n"
    expected = model(x).detach().numpy()
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5, atol=1e-6)


def test_importers_by_the_names_of_tvm_return_tuples() -> None:
    torch = pytest.importorskip("torch")
    from relaxpy.relax.frontend.torch import from_exported_program

    program = torch.export.export(named_model(), (torch.from_numpy(X),))
    found = relaxpy.compile(from_exported_program(program))(X)
    assert isinstance(found, tuple)
    assert len(found) == 3


def test_inputs_and_outputs_have_names_datatypes_and_shapes() -> None:
    ex = relaxpy.compile(onnx_model())
    assert str(ex.inputs) == "(x: float32 (n, 4),)"
    assert str(ex.outputs) == "(y: float32 (n, 4),)"
    assert str(ex).endswith('-> R.Tensor((n, 4), dtype="float32")'), "derived, not declared"
    ex = relaxpy.compile(
        from_source("""
@R.function
def main(x: R.Tensor(ndim=2), s: R.Shape(["n", 2]), k: R.Prim("int64"), t: R.Tuple(R.Object)):
    return x, s
""")
    )
    assert [(v.name, v.dtype, v.shape) for v in ex.inputs] == [
        ("x", "", None),
        ("s", "", None),
        ("k", "int64", None),
        ("t", "", None),
    ]
    assert [v.name for v in ex.outputs] == ["", ""]
    assert str(ex.inputs[1]) == "s: R.Shape([n, 2])"
    two = from_source(TEXT + TEXT.replace("main", "other").replace("@R.f", "\n@R.f"))
    assert relaxpy.compile(two).inputs[0].name == "x"
    other = relaxpy.compile(two.replace_global_vars({"main": "a"}))
    with pytest.raises(MisuseError, match=r'ex\["a"\].inputs'):
        str(other.inputs)
