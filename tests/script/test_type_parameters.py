"""`def f[n](...)` declares shape variables, where Python has the notation (from 3.12 on).

The programs are texts, so that older Pythons can import this file.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from relaxpy.errors import RelaxpyError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source

IMPORTS = """
import numpy as np
import relaxpy
from relaxpy.script import ir as I, relax as R, tir as T
"""

SAME = {
    "function": (
        """
        @R.function
        def main[n, m](x: R.Tensor((n, 4), "float32"), s: R.Shape([n, m])) -> R.Tensor((n, 4)):
            y = R.reshape(x, R.shape([n * 4]))
            z = R.reshape(y, R.shape([n, 4]))
            return z
        """,
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n", "m"])) -> R.Tensor(("n", 4)):
            n = T.int64()
            y = R.reshape(x, R.shape([n * 4]))
            z = R.reshape(y, R.shape([n, 4]))
            return z
        """,
    ),
    "kernel": (
        """
        @T.prim_func
        def main[n](A: T.Buffer((n, 4), "float32"), B: T.Buffer((n * 4,), "float32")):
            for i, j in T.grid(n, 4):
                B[i * 4 + j] = A[i, j]
        """,
        """
        @T.prim_func
        def main(a: T.handle, b: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n, 4), "float32")
            B = T.match_buffer(b, (n * 4,), "float32")
            for i, j in T.grid(n, 4):
                B[i * 4 + j] = A[i, j]
        """,
    ),
    "module": (
        """
        @I.ir_module
        class Module:
            @T.prim_func(private=True)
            def k[n](A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32")):
                for i in range(n):
                    B[i] = A[i] + T.float32(1)

            @R.function
            def main[n](x: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
                @R.function
                def inner[m](a: R.Tensor((m, n), "float32")) -> R.Tensor((m, n), "float32"):
                    return a

                y = R.call_tir(Module.k, (x,), out_sinfo=R.Tensor((n,), "float32"))
                return y
        """,
        """
        @I.ir_module
        class Module:
            @T.prim_func(private=True)
            def k(a: T.handle, b: T.handle):
                n = T.int64()
                A = T.match_buffer(a, (n,), "float32")
                B = T.match_buffer(b, (n,), "float32")
                for i in range(n):
                    B[i] = A[i] + T.float32(1)

            @R.function
            def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
                n = T.int64()

                @R.function
                def inner(a: R.Tensor(("m", n), "float32")) -> R.Tensor(("m", n), "float32"):
                    return a

                y = R.call_tir(Module.k, (x,), out_sinfo=R.Tensor((n,), "float32"))
                return y
        """,
    ),
}

WRONG = {
    "several sizes": (
        'def f[*n](x: R.Tensor((n, 4), "float32")):',
        "<string>:3:7: n is one shape variable, without a star [SC-12]",
    ),
    "parameters": (
        'def f[**n](x: R.Tensor((4,), "float32")):',
        "<string>:3:7: n is one shape variable, without a star [SC-12]",
    ),
    "a type": (
        'def f[n: int](x: R.Tensor((n, 4), "float32")):',
        "<string>:3:7: shape variable n is an int64 and has neither type nor default [PX-9]",
    ),
    "twice": (
        'def f[m, m](x: R.Tensor((m,), "float32")):',
        "<string>:3:10: m is the name of a shape variable already [SC-9]",
    ),
    "parameter of that name": (
        'def f[x](x: R.Tensor((4,), "float32")):',
        "<string>:3:7: x is the name of a parameter already [SC-9]",
    ),
    "bound nowhere": (
        'def f[n](x: R.Tensor((n * 2,), "float32")):',
        "shape variable n is not a whole dimension of any parameter [WF-6a]",
    ),
}
WRONG_KERNELS = {
    "several sizes": ("def f[*n](A: T.Buffer((4,))):", "<string>:3:7: n is to be one size"),
    "a type": ("def f[n: int](A: T.Buffer((n,))):", "<string>:3:7: shape variable n is an int64"),
    "parameter of that name": ("def f[A](A: T.Buffer((4,))):", "A is the name of a parameter"),
}

if sys.version_info >= (3, 12):

    @pytest.mark.rule("SC-12", "SC-15")
    @pytest.mark.parametrize(("text", "older"), SAME.values(), ids=SAME)
    def test_type_parameters_are_shape_variables(text: str, older: str) -> None:
        found = from_source(textwrap.dedent(text))
        assert_structural_equal(found, from_source(textwrap.dedent(older)))
        assert_structural_equal(found, from_source(found.script()))

    @pytest.mark.rule("SC-12", "SC-9", "PX-9", "WF-6a")
    @pytest.mark.parametrize(("header", "message"), WRONG.values(), ids=WRONG)
    def test_type_parameters_are_names_of_sizes(header: str, message: str) -> None:
        with pytest.raises(RelaxpyError) as caught:
            from_source(f"\n@R.function\n{header}\n    return x\n")
        assert message in str(caught.value)

    @pytest.mark.rule("SC-12", "SC-9", "PX-9")
    @pytest.mark.parametrize(("header", "message"), WRONG_KERNELS.values(), ids=WRONG_KERNELS)
    def test_so_they_are_in_kernels(header: str, message: str) -> None:
        with pytest.raises(RelaxpyError) as caught:
            from_source(f"\n@T.prim_func\n{header}\n    T.evaluate(0)\n")
        assert message in str(caught.value)

    @pytest.mark.rule("SC-12")
    def test_a_module_has_no_shape_variables_of_its_own() -> None:
        text = "class M[n]:\n    @R.function\n    def f(x: R.Tensor):\n        return x\n"
        with pytest.raises(RelaxpyError, match=r"2:9: the class of a module has no type param"):
            from_source(f"@I.ir_module\n{text}")

    # Without the import, Python evaluates the annotations of the kernel, and knows no `n * 4`.
    @pytest.mark.parametrize(
        ("name", "future"),
        [(name, "") for name in SAME if name != "kernel"]
        + [(name, "from __future__ import annotations\n") for name in SAME],
    )
    def test_decorated_functions_may_have_them(tmp_path: Path, name: str, future: str) -> None:
        decorated, older = (textwrap.dedent(text) for text in SAME[name])
        defined = "Module" if name == "module" else "main"
        inside = textwrap.indent(decorated, "    ")
        file = tmp_path / "program.py"
        file.write_text(
            f"{future}{IMPORTS}{decorated}\n"
            f"def make():\n{inside}\n    return {defined}\n\n"
            f"older = relaxpy.script.from_source({older!r})\n"
            f"for found in ({defined}, make()):\n"
            "    relaxpy.ir.assert_structural_equal(found, older)\n",
            encoding="utf-8",
        )
        run = subprocess.run(
            [sys.executable, str(file)], capture_output=True, text=True, check=False
        )
        assert (run.returncode, run.stderr) == (0, "")

    def test_programs_with_them_run(tmp_path: Path) -> None:
        text = textwrap.dedent(SAME["module"][0])
        use = "print(relaxpy.compile(Module)['main'](np.zeros(3, 'float32')).tolist())"
        command = f"{IMPORTS}{text}\n{use}\n"
        run = subprocess.run(
            [sys.executable, "-c", command], capture_output=True, text=True, check=False
        )
        if run.returncode:  # before 3.13 Python keeps no text of a command
            assert sys.version_info < (3, 13)
            assert "MisuseError" in run.stderr
        else:
            assert run.stdout == "[1.0, 1.0, 1.0]\n"


if sys.version_info >= (3, 13):

    @pytest.mark.rule("PX-9")
    def test_shape_variables_have_no_default() -> None:
        text = '\n@R.function\ndef f[n = 3](x: R.Tensor((n,), "float32")):\n    return x\n'
        with pytest.raises(RelaxpyError, match="neither type nor default"):
            from_source(text)
