"""Where decorators find the text: files, notebook cells, closures, annotations that are strings."""

import copy
import importlib
import linecache
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest

from relaxpy.errors import MisuseError, ParseError
from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.ir.relax.nodes import Function
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, ir as I, parse, relax as R, tir as T
from tests.counting import calls

IMPORTS = "from relaxpy.script import ir as I, relax as R, tir as T\n"


def run(text: str, name: str = "<cell>") -> dict[str, object]:
    """Run `text` as a notebook does: its lines are known to linecache under a name of their own."""
    names: dict[str, object] = {"__name__": "__main__"}
    lines = text.splitlines(keepends=True)
    linecache.cache[name] = (len(text), None, lines, name)
    try:
        exec(compile(text, name, "exec"), names)
    finally:
        del linecache.cache[name]
    return names


CELL = IMPORTS + textwrap.dedent("""
    size = 4

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((size, "n"), "float32")):
            return x

    @R.function
    def f(x: R.Tensor((size, "n"), "float32")):
        return x

    @T.prim_func(private=True)
    def g(A: T.Buffer((size,), "float32")):
        A[0] = 1.0
""")


def test_a_notebook_cell() -> None:
    found = run(CELL, "/tmp/ipykernel_7/1234.py")
    assert isinstance(found["Module"], IRModule)
    assert isinstance(found["f"], Function)
    assert isinstance(found["g"], PrimFunc)
    assert found["f"].span is not None
    assert (found["f"].span.file, found["f"].span.line) == ("/tmp/ipykernel_7/1234.py", 12)


@pytest.mark.parametrize("magic", ["%%time", "%%timeit -n1 -r1"])
def test_a_notebook_cell_that_is_timed(magic: str) -> None:
    pytest.importorskip("IPython")
    program = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
good = {magic + chr(10) + CELL!r}
assert shell.run_cell(good).success
result = shell.run_cell(good.replace("return x", "return y"))
print(result.error_in_exec)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "9:16: unknown name 'y' [WF-2a]\n            return y\n" in done.stdout


def test_a_module_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "models.zip", "w") as archive:
        archive.writestr("archived_models.py", CELL)
    monkeypatch.syspath_prepend(str(tmp_path / "models.zip"))
    found = importlib.import_module("archived_models")
    assert isinstance(found.Module, IRModule)
    assert isinstance(found.f, Function)


def test_functions_in_classes_of_the_user() -> None:
    class Holder:
        @R.function
        def plain(x: R.Tensor((3,), "float32")):
            return R.add(x, x)

        @staticmethod
        @R.function
        def static(x: R.Tensor((3,), "float32")):
            return R.add(x, x)

    ones = np.ones(3, "float32")
    for function in (Holder.plain, Holder().plain, Holder.static, Holder().static):
        assert function(ones).tolist() == [2, 2, 2]
        assert "R.add(x, x)" in function.script()


def test_annotations_that_python_never_evaluates() -> None:
    found = run("from __future__ import annotations\n" + CELL)
    assert isinstance(found["Module"], IRModule)
    assert isinstance(found["g"], PrimFunc)


def test_names_used_in_annotations_alone() -> None:
    text = (
        "from __future__ import annotations\n"
        + IMPORTS
        + textwrap.dedent("""
        def make(n):
            @R.function
            def f(x: R.Tensor((n, "m"), "float32")):
                return x

            @I.ir_module
            class Module:
                @R.function
                def main(x: R.Tensor((n, "m"), "float32")):
                    return x

            return f, Module

        def outer(n):
            def inner(k):
                @R.function
                def f(x: R.Tensor((n, k), "float32")):
                    return x

                return f

            return inner(2)

        f, Module = make(7)
        nested = outer(7)
    """)
    )
    for future in (text, text.partition("\n")[2]):
        found = run(future)
        for func in (found["f"], found["Module"]["main"], found["nested"]):  # type: ignore[index]
            assert str(func.params[0].struct_info.get_shape()[0]) == "T.int64(7)"
        assert found["Module"].__name__ == "Module"  # type: ignore[attr-defined]


def test_code_without_text_says_what_to_do() -> None:
    with pytest.raises(ParseError) as caught:
        exec(IMPORTS + "@R.function\ndef f(x: R.Tensor):\n    return x\n", {})
    assert "the source text of 'f' cannot be found" in str(caught.value)
    assert "relaxpy.script.from_source(text)" in str(caught.value)
    with pytest.raises(ParseError, match="source text of 'M' cannot be found"):
        exec(IMPORTS + "@I.ir_module\nclass M:\n    pass\n", {"__name__": "__main__"})


def test_a_script_shows_its_mistake_and_little_else(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(
        IMPORTS + "\n@R.function\ndef main(x: R.Tensor):\n    y = R.shape_of(zz)\n    return y\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) <= 12
    where = f"{script}:5:20: unknown name 'zz'"
    assert lines[-3:] == [
        f"relaxpy.errors.ParseNameError: {where} [WF-2a]",
        "        y = R.shape_of(zz)",
        "                       ^^",
    ]


def test_tabs_and_deep_indentation() -> None:
    text = (
        IMPORTS
        + "if True:\n\tif True:\n\t\t@R.function\n\t\tdef f(x: R.Tensor):\n\t\t\treturn zz\n"
    )
    with pytest.raises(ParseError) as caught:
        run(text)
    span = caught.value.diagnostic.span
    assert span is not None
    assert (span.line, span.column, span.end_column) == (6, 11, 13)
    assert str(caught.value).endswith("    \t\t\treturn zz\n    \t\t\t       ^^")


def test_decorators_over_several_lines_and_others_beside() -> None:
    def other(value: object) -> object:
        return value

    # fmt: off
    @other
    @R.function(
        private=True,
        pure=False,
    )
    def f(x: R.Tensor((4,), "float32")):
        text = """
not indented
"""
        return x

    assert isinstance(f, Function)
    assert not f.is_pure

    @other
    @I.ir_module(
        check_well_formed=True,
    )
    class Module:
        @R.function
        @staticmethod
        def main(x: R.Tensor((4,), "float32")):
            return x

        @staticmethod
        @R.function
        def other(x: R.Tensor((4,), "float32")):
            return x
    # fmt: on

    assert isinstance(Module, IRModule)
    assert [var.name_hint for var in Module.functions] == ["main", "other"]


def test_a_function_in_a_class_is_read_when_python_asks_for_it() -> None:
    with pytest.raises(ParseError) as caught:

        @I.ir_module
        class Module:
            @R.function
            def first(x: R.Tensor((4,), "float32")):
                return y  # noqa: F821

            @staticmethod
            @R.function
            def second(x: R.Tensor((4,), "float32")):
                return z  # noqa: F821

    assert [d.message for d in caught.value.diagnostics] == ["unknown name 'y'", "unknown name 'z'"]

    class Holder:
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            return x

        g = copy.copy(f)

    assert isinstance(Holder.g, Function)


def test_parts_of_a_function_that_are_captured() -> None:
    class Config:
        width = 3
        names: tuple[str, ...] = ("a", "b")

    @R.function
    def f(x: R.Tensor((Config.width, len(Config.names)), "float32")):
        return R.shape([Config.width, *[len(n) for n in Config.names]])

    assert str(f.body.body) == "R.shape([3, 1, 1])"


def test_a_helper_that_fails_is_named_with_its_place() -> None:
    def helper(value: object) -> object:
        raise ValueError("no way")

    with pytest.raises(ParseError, match="helper: no way") as caught:

        @R.function
        def f(x: R.Tensor):
            return helper(x)

    [note] = caught.value.diagnostic.notes
    assert note.startswith(f"raised at {__file__}:")


def test_what_is_not_a_function() -> None:
    with pytest.raises(ParseError, match="write def, not async def"):

        @R.function
        async def f(x: R.Tensor):
            return x

    with pytest.raises(MisuseError, match="decorates a function, found lambda"):
        R.function(lambda x: x)
    with pytest.raises(MisuseError, match="found type") as caught:

        @R.function
        class C:
            pass

    assert caught.value.diagnostic.hint == "classes are decorated with @I.ir_module"
    assert "@R.function\n             ^^^^^^^^^^\n" in str(caught.value)
    with pytest.raises(MisuseError, match="found function") as caught:

        @I.ir_module
        def g() -> None: ...

    assert caught.value.diagnostic.hint == (
        "functions are decorated with @R.function or @T.prim_func"
    )


def test_a_file_that_has_changed_since_python_read_it(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(f"{IMPORTS}def make():\n    @R.function\n    def f(x):\n        return x\n")
    names: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    file.write_text(file.read_text().replace("def f", "def g"))
    with pytest.raises(ParseError, match="'f' is not what Python has compiled") as caught:
        names["make"]()  # type: ignore[operator]
    assert caught.value.diagnostic.hint == f"if {file} has changed since then, run it again"


# --- text


def test_text_of_one_function_one_module_or_several() -> None:
    function = "@R.function\ndef f(x: R.Tensor):\n    return x\n"
    kernel = "@T.prim_func\ndef g(n: T.int32):\n    T.evaluate(n)\n"
    module = "@I.ir_module\nclass M:\n    @R.function\n    def h(x: R.Tensor):\n        return x\n"
    assert isinstance(from_source(function), Function)
    assert isinstance(from_source(kernel), PrimFunc)
    assert isinstance(from_source(module), IRModule)
    both = from_source(function + kernel)
    assert [v.name_hint for v in both.get_global_vars()] == ["f", "g"]
    everything = from_source(module + function)
    assert [v.name_hint for v in everything.get_global_vars()] == ["h", "f"]
    assert parse is from_source


TABLES = """
@I.ir_module
class {name}:
    I.module_attrs({{"{name}": 1, "both": {both}}})
    I.module_global_infos({{"vdevice": [I.vdevice("llvm"), I.vdevice("{kind}")]}})
    @R.function
    def {function}(x: R.Tensor((4,), "float32", "{kind}:0")) -> R.Tensor((4,), "float32"):
        return x
"""


def test_modules_of_one_text_keep_their_attributes_and_global_infos() -> None:
    first = TABLES.format(name="A", both=2, kind="cuda", function="f")
    module = from_source(first + TABLES.format(name="B", both=2, kind="metal", function="g"))
    assert module.attrs == {"A": 1, "both": 2, "B": 1}
    devices = [str(device) for device in module.global_infos["vdevice"]]
    assert devices == ["llvm:0", "cuda:0", "metal:0"]
    assert_structural_equal(from_source(module.script()), module)
    with pytest.raises(ParseError, match="two modules of the text have an attribute 'both'"):
        from_source(first + TABLES.format(name="B", both=3, kind="metal", function="g"))
    with pytest.raises(ParseError, match="<string>:15:9: the text defines 'f' twice"):
        from_source(first + TABLES.format(name="B", both=2, kind="metal", function="f"))


@pytest.mark.parametrize("names", [5, [1], "R"])
def test_extra_vars_are_a_table(names: object) -> None:
    with pytest.raises(ParseError, match="extra_vars is a dict of names and values, found"):
        from_source("", names)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        "from relaxpy.script import ir as I, relax as R, tir as T",
        "from tvm.script import relax as R",
        "from tvm.script.parser import relax as R",
        "from __future__ import annotations\nfrom relaxpy.script import relax as R",
        "# a comment",
        '"""A docstring."""',
    ],
)
def test_imports_of_the_namespaces(line: str) -> None:
    assert isinstance(
        from_source(f"{line}\n@R.function\ndef f(x: R.Tensor):\n    return x\n"), Function
    )


def test_other_names_for_the_namespaces() -> None:
    text = "from relaxpy.script import relax as r\n@r.function\ndef f(x: r.Tensor):\n    return x\n"
    assert isinstance(from_source(text), Function)
    assert isinstance(from_source(text.partition("\n")[2], {"r": R}), Function)


def test_names_that_the_caller_hands_in() -> None:
    text = "@R.function\ndef f(x: R.Tensor((n, 4))):\n    return double(x)\n"
    names = {"R": R, "n": 3, "double": lambda x: R.tuple(x, x)}
    assert isinstance(from_source(text, names), Function)
    with pytest.raises(ParseError, match="unknown name 'R'"):
        from_source(text, {"n": 3})


def test_an_indented_text() -> None:
    func = from_source("""
        @R.function
        def f(x: R.Tensor):
            return x
    """)
    assert func.span.line == 3
    assert func.span.column == 13


def test_the_name_of_the_text_stands_in_errors() -> None:
    with pytest.raises(ParseError, match=r"model\.txt:3:12: unknown name"):
        from_source("@R.function\ndef f(x: R.Tensor):\n    return y\n", filename="model.txt")


def test_reading_is_linear() -> None:
    def work(count: int) -> int:
        lines = [f"    x = (x, R.shape_of(y))[1] if {k} < 0 else y" for k in range(count)]
        text = "@R.function\ndef f(y: R.Tensor((4,))):\n" + "\n".join(lines) + "\n    return x\n"
        return calls(lambda: from_source(text))

    work(10)
    assert work(400) < 4.4 * work(100)


_ = T


def test_a_property_that_fails_is_named_where_it_is_read() -> None:
    class Config:
        @property
        def size(self) -> int:
            return {"sizes": 3}["size"]

    config = Config()
    with pytest.raises(ParseError, match=r"config\.size: KeyError: 'size'") as caught:

        @R.function
        def main(x: R.Tensor((3,), "float32")):
            return R.zeros((config.size,), "float32")

    assert caught.value.diagnostic.notes[0].startswith("raised at ")


def test_the_errors_of_all_classes_of_a_text_are_reported_together() -> None:
    text = """
@I.ir_module
class A:
    @R.function
    def first(x: R.Tensor((4,), "float32")):
        return R.nothing(x)

@I.ir_module
class B:
    @R.function
    def second(x: R.Tensor((4,), "float32")):
        return x

@I.ir_module
class C:
    @R.function
    def third(x: R.Tensor((4,), "float32"), w: R.Tensor((5,), "float32")):
        return R.add(x, w)
"""
    with pytest.raises(ParseError) as caught:
        from_source(text)
    assert [(d.span and d.span.line) for d in caught.value.diagnostics] == [6, 18]
    with pytest.raises(ParseError) as caught:
        from_source(text.replace("R.add(x, w)", "x"))
    assert len(caught.value.diagnostics) == 1
