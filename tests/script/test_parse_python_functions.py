"""Python functions in the class of a module: kept as they are, printed, and never run by text."""

import textwrap

import numpy as np
import pytest

from relaxpy.errors import ParseError, RelaxpyError
from relaxpy.ir import load_json, save_json, structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax import BasePyModule
from relaxpy.script import from_source, ir as I, relax as R
from tests.script.marked import check_marks


class Helpers(BasePyModule):
    def shifted(self, x):
        return x + 1


@I.ir_module
class Module(Helpers):
    """A docstring."""

    @I.pyfunc
    def scale(self, x, by=2):
        """Text
        that hangs out."""
        return self.shifted(x) * by

    @I.pyfunc
    @staticmethod
    def fixed(x):
        return x

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = x.shape[0]
        return R.call_py_func("scale", (x,), out_sinfo=R.Tensor((n,), "float32"))


def test_python_functions_are_entries_of_the_module() -> None:
    assert list(Module.pyfuncs) == ["scale", "fixed"]
    entry = Module["scale"]
    assert isinstance(entry, rx.ExternFunc)
    assert entry.attrs["is_pyfunc"] is True
    assert Module.pyfuncs["scale"].__name__ == "scale"
    assert isinstance(Module(), Helpers)


def test_their_text_reads_back() -> None:
    text = Module.script()
    again = from_source(text)
    assert structural_equal(again, Module)
    assert again.script() == text
    assert again.pyfuncs == {}
    assert "class Module(BasePyModule):" in text
    assert "    @I.pyfunc\n    def scale(self, x, by=2):" in text
    loaded = load_json(save_json(Module))
    assert structural_equal(loaded, Module)
    assert loaded.pyfuncs == {}
    assert loaded.script() == text
    changed = text.replace("self.shifted(x) * by", "x")
    assert not structural_equal(from_source(changed), Module)


def test_strings_of_several_lines_stay_as_they_are() -> None:
    text = """
@I.ir_module
class Module(BasePyModule):
    @I.pyfunc
    def f(self, x):
        s = '''a
  b
        c'''

        return (s, "d"
                   "e")
"""
    module = from_source(text)
    body = text[text.index("    @I.pyfunc") :].rstrip()
    assert body in module.script()
    again = from_source(module.script())
    assert structural_equal(again, module)
    assert "a\n  b\n        c" in str(again["f"].attrs["python_source"])


def test_what_a_text_says_of_python_is_never_run() -> None:
    module = from_source("""
@I.ir_module
class Module(relax.base.BasePyModule):
    @I.pyfunc
    def harm(self, x):
        raise AssertionError("run")

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return R.call_py_func("harm", (x,), out_sinfo=R.Tensor((2,), "float32"))
""")
    instance = module()
    assert type(instance) is BasePyModule
    with pytest.raises(RelaxpyError, match="no packed function is registered as 'harm'"):
        instance.main(np.zeros(2, "float32"))
    instance.add_python_function("harm", lambda x: x + 1)
    np.testing.assert_array_equal(instance.main(np.zeros(2, "float32")), [1, 1])


def test_text_makes_no_instances() -> None:
    for value in ("M()", "M.pyfuncs", "M.written_as(R.add)"):
        with pytest.raises(ParseError, match=r"text can call only|cannot be used in text"):
            from_source(f"@R.function\ndef f(x):\n    return {value}\n", {"R": R, "M": Module})


def test_a_function_of_python_belongs_to_a_class_of_python() -> None:
    check_marks("""
        @I.ir_module
        class Module:
            @I.pyfunc
            def f(self): pass
        #       ^ Python function 'f' needs a class derived from BasePyModule
        # hint: write class M(BasePyModule), with relaxpy.relax.BasePyModule
    """)
    check_marks("""
        @I.ir_module
        class Module(R.Tensor):
        #            ^^^^^^^^ the class of a module has no base other than BasePyModule
            pass
    """)
    check_marks("""
        @I.ir_module
        class Module(BasePyModule, metaclass=open):
        #                                    ^^^^ the class of a module takes no options
            pass
    """)
    with pytest.raises(ParseError, match="has no base other than"):

        @I.ir_module
        class Wrong(int):
            pass

    with pytest.raises(RelaxpyError, match="a module is not a function; its functions are f, g"):
        from_source("@R.function\ndef f(x): return x\n@R.function\ndef g(x): return x\n")()


@pytest.mark.rule("TOP-1")
@pytest.mark.parametrize(
    "members",
    [
        '@I.pyfunc\ndef f(self): pass\nf = R.ExternFunc("g")',
        'f = R.ExternFunc("g")\n@I.pyfunc\ndef f(self): pass',
        'f = R.ExternFunc("g")\nf = R.ExternFunc("h")',
        "@R.function\ndef f(x): return x\nf = R.ExternFunc('h')",
        "@R.function(name='f')\ndef g(x): return x\nf = R.ExternFunc('h')",
        "f = R.ExternFunc('h')\n@R.function(name='f')\ndef g(x): return x",
        "f = R.ExternFunc('h')\n@R.macro\ndef f(x): return x",
        "@T.prim_func(name='f')\ndef g(): pass\n@I.pyfunc\ndef f(self): pass",
        "@I.pyfunc\ndef f(self): pass\n@T.prim_func(name='f')\ndef g(): pass",
    ],
)
def test_a_name_is_given_once(members: str) -> None:
    body = textwrap.indent(members, "    ")
    with pytest.raises(ParseError, match="two functions named 'f'"):
        from_source(f"@I.ir_module\nclass Module(BasePyModule):\n{body}\n")


def test_the_class_stays_with_a_module_that_is_changed() -> None:
    changed = [
        Module.with_attr("a", 1),
        Module.with_attr("a", 1).without_attr("a"),
        Module.replace_global_vars({"main": "first"}),
        Module.clone(),
    ]
    for module in changed:
        assert module.is_python_class
        assert isinstance(module(), Helpers)
