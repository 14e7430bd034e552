import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAVY = {
    "astor",
    "rich",
    "sklearn",
    "matplotlib",
    "IPython",
    "llvmlite",
    "relaxpy.relax",
    "relaxpy.script",
    "relaxpy.exec",
}


def loaded_by(program: str) -> set[str]:
    """The names of all modules in a fresh interpreter that has run `program`."""
    report = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(report.stdout.split())


def test_import_relaxpy_loads_nothing_heavy() -> None:
    loaded = loaded_by("import relaxpy")
    assert "relaxpy" in loaded
    assert not loaded & HEAVY


def test_the_language_loads_neither_front_end_nor_executor() -> None:
    loaded = loaded_by("import relaxpy.ir, relaxpy.ir.relax, relaxpy.ir.tir")
    assert not loaded & HEAVY


def test_the_namespaces_load_no_functions_of_topi_and_use_light_dataclasses() -> None:
    loaded = loaded_by("from relaxpy.script import ir, relax, tir")
    assert not loaded & {"relaxpy.ir.te.topi.functions", "relaxpy.ir.arith.tvm", "html", "astor"}
    for module in sorted(name for name in loaded if name.startswith("relaxpy.")):
        path = ROOT / module.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        text = file.read_text(encoding="utf-8")
        decorated = "\n@dataclass" in text and module != "relaxpy.support.dataclass"
        assert not decorated or "from relaxpy.support.dataclass import dataclass" in text, module


def test_a_program_is_compiled_without_slow_modules_of_python() -> None:
    text = """
@R.function
def main(x: R.Tensor((4, 4), "float32")):
    return R.nn.softmax(x)
"""
    loaded = loaded_by(
        f"import relaxpy; from relaxpy.script import from_source; "
        f"relaxpy.compile(from_source({text!r}), 'numpy')"
    )
    assert "relaxpy.exec.kernel" in loaded
    assert not loaded & {"importlib.metadata", "subprocess", "statistics", "email"}
