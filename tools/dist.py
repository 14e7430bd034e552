"""Build the wheel and the sdist in `dist`, check them, and try each in an empty environment.

`make dist` runs this. The wheel runs the demo and the command line. The sdist, unpacked elsewhere,
runs a tenth of its tests. `dist/about` has the packages that the wheel's extras bring, as a
CycloneDX SBOM, and their licences.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
TRIAL = ROOT / "build" / "dist"
PINS = ROOT / "tools" / "constraints" / "newest.txt"
EXTRAS = "native,onnx,safetensors,gguf,llm,serve,lsp"
"""The extras of users, but PyTorch and MPI, which are large or need a system's library."""
PROGRAM = """\
from relaxpy.script import ir as I, relax as R
@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")):
        y = R.add(x, x)
        return y
"""


def tool(name: str) -> str:
    """The path of a program beside the Python that runs this."""
    return str(Path(sys.executable).parent / name)


def run(*command: str | Path, folder: Path = ROOT, shown: bool = True) -> None:
    """Run a command that sees no other relaxpy, and stop if it fails.

    Without `shown`, what it writes is seen only then.
    """
    print("$", *command, flush=True)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    output = None if shown else subprocess.PIPE
    done = subprocess.run([*map(str, command)], cwd=folder, env=env, stdout=output, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout or ''}failed in {folder}: {' '.join(map(str, command))}")


def build(folder: Path, *kinds: str) -> list[Path]:
    """Build the packages of these kinds ("wheel", "sdist") in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    options = [option for kind in kinds for option in ("-t", kind)]
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, *options)
    return sorted(folder.iterdir())


def python_of(folder: Path) -> Path:
    """The Python of a virtual environment."""
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def environment(folder: Path, *requirements: str) -> Path:
    """Make a virtual environment with these packages and nothing else; return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    python = python_of(folder)
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--constraint", PINS]
    run(python, "-m", "pip", "install", *options, *requirements, folder=folder)
    return python


def tracked() -> set[str]:
    """The files of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


def left_out(wheel: Iterable[str], sdist: Iterable[str], files: set[str]) -> list[str]:
    """What is wrong with the names of the files in the packages, given those of the repository."""
    package = {name for name in files if name.startswith("relaxpy/")}
    packed = {name.partition("/")[2] for name in sdist} - {"PKG-INFO"}
    alien = {name for name in wheel if not name.startswith(("relaxpy/", "relaxpy-"))}
    return [
        *(f"the wheel lacks {name}" for name in sorted(package - set(wheel))),
        *(f"the wheel has {name}" for name in sorted(alien)),
        *(f"the sdist lacks {name}" for name in sorted(files - packed)),
        *(f"the sdist has {name}" for name in sorted(packed - files)),
    ]


def check(sdist: Path, wheel: Path) -> None:
    """Stop if a package is not as an index wants it, or has other files than the repository."""
    run(tool("twine"), "check", "--strict", sdist, wheel)
    with tarfile.open(sdist) as archive, zipfile.ZipFile(wheel) as packed:
        members = [member.name for member in archive if member.isfile()]
        if wrong := left_out(packed.namelist(), members, tracked()):
            raise SystemExit("\n".join(wrong))


def try_wheel(wheel: Path, examples: Path) -> Path:
    """Run the demo and the command line on an installed wheel; return the Python."""
    start = time.perf_counter()
    environment(TRIAL / "plain", str(wheel))
    plain = time.perf_counter() - start
    python = environment(TRIAL / "wheel", f"{wheel}[{EXTRAS},examples]")
    empty = TRIAL / "empty"
    empty.mkdir(exist_ok=True)
    run(python, examples / "digits" / "demo.py", folder=empty)
    (empty / "model.py").write_text(PROGRAM, encoding="utf-8")
    for arguments in (["--version"], ["doctor"], ["check", "model.py"], ["report", "model.py"]):
        run(python.with_name("relaxpy"), *arguments, folder=empty)
    size = wheel.stat().st_size / 1e6
    print(f"wheel: {size:.2f} MB, {plain:.0f} s to install without extras in a new environment")
    return python


def try_sdist(sdist: Path, source: Path) -> None:
    """Collect all tests of an unpacked sdist, which is installed, and run each tenth file."""
    python = environment(TRIAL / "sdist", f"{sdist}[dev,oracle]")
    run(python, "-m", "pytest", "-qq", "--collect-only", folder=source, shown=False)
    files = [path.relative_to(source) for path in sorted(source.glob("tests/**/test_*.py"))[::10]]
    start = time.perf_counter()
    run(python, "-m", "pytest", "-q", "--layer=quick", "-n", "auto", *files, folder=source)
    print(f"sdist: {len(files)} files of tests ran in {time.perf_counter() - start:.0f} s")


def list_dependencies(python: Path, folder: Path) -> None:
    """Write the packages of an environment as an SBOM, and their licences as a table."""
    folder.mkdir()
    bom = ["--output-reproducible", "--of", "JSON", "-o", folder / "sbom.cdx.json"]
    run(tool("cyclonedx-py"), "environment", "--pyproject", ROOT / "pyproject.toml", *bom, python)
    table = ["--format=markdown", "--with-urls", f"--output-file={folder / 'licences.md'}"]
    run(tool("pip-licenses"), f"--python={python}", *table)


def main() -> None:
    """Build, check and try."""
    shutil.rmtree(TRIAL, ignore_errors=True)
    wheel, sdist = sorted(build(DIST, "wheel", "sdist"), key=lambda path: path.suffix != ".whl")
    check(sdist, wheel)
    with tarfile.open(sdist) as archive:
        archive.extractall(TRIAL / "unpacked", filter="data")
    [source] = (TRIAL / "unpacked").iterdir()
    list_dependencies(try_wheel(wheel, source / "examples"), DIST / "about")
    try_sdist(sdist, source)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if "urls" not in project:
        print("before it is published, [project.urls] in pyproject.toml needs a public address")
    print(f"{wheel.name} and {sdist.name} are in {DIST}")


if __name__ == "__main__":
    main()
