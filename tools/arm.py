"""Python for AArch64 under an emulator, in the folder `.arm`, for the tests that run there.

`python tools/arm.py` downloads it: Python and its libraries from Debian, NumPy and llvmlite from
the package index, and the emulator `qemu-aarch64` from Debian, unless it is installed. Nothing is
installed outside of the folder.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".arm"
COMMAND = HOME / "python"
"""Runs Python for AArch64, with the packages that relaxpy needs and those of PYTHONPATH."""
DEBIAN = "https://deb.debian.org/debian"
SUITE = "bookworm"
PACKAGES = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libgcc-s1"),
    *("libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0", "liblzma5"),
)
PINNED = ("numpy", "llvmlite", "ml_dtypes", "typing_extensions", "rich", "astor")
PLATFORMS = ("manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")


def packages(architecture: str, names: tuple[str, ...]) -> Iterator[bytes]:
    """Packages of Debian, whose checksums are those of its index. Errors: OSError."""
    index = _read(f"{DEBIAN}/dists/{SUITE}/main/binary-{architecture}/Packages.xz")
    for entry in lzma.decompress(index).decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line)
        if fields.get("Package") in names:
            content = _read(f"{DEBIAN}/{fields['Filename']}")
            if hashlib.sha256(content).hexdigest() != fields["SHA256"]:
                raise OSError(f"the package {fields['Package']} is damaged")
            yield content


def _read(url: str) -> bytes:
    with urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
        return content


def unpack(package: bytes, folder: Path) -> None:
    """Write the files of a package of Debian, which is an archive of `ar`, to a folder."""
    start = 8
    while start < len(package):
        name = package[start : start + 16].decode().strip()
        size = int(package[start + 48 : start + 58])
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(package[start + 60 : start + 60 + size])) as files:
                files.extractall(folder, filter="tar")
        start += 60 + size + size % 2


def make() -> None:
    """Make the folder. Errors: OSError, CalledProcessError: something cannot be downloaded."""
    shutil.rmtree(HOME, ignore_errors=True)
    for package in packages("arm64", PACKAGES):
        unpack(package, HOME / "root")
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        own = {"x86_64": "amd64"}.get(platform.machine(), platform.machine())
        for package in packages(own, ("qemu-user-static",)):
            unpack(package, HOME / "emulator")
        emulator = str(HOME / "emulator" / "usr" / "bin" / "qemu-aarch64-static")
    wanted = [f"{name}=={version(name)}" for name in PINNED]
    options = [option for name in PLATFORMS for option in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    pip += [
        "--only-binary=:all:",
        "--python-version=3.11",
        *options,
        "--dest",
        str(HOME / "wheels"),
    ]
    subprocess.run([*pip, *wanted], check=True)
    for wheel in (HOME / "wheels").iterdir():
        with zipfile.ZipFile(wheel) as files:
            files.extractall(HOME / "site")
    shutil.rmtree(HOME / "wheels")
    COMMAND.write_text(
        "#!/bin/sh\n"
        f"export PYTHONHOME='{HOME}/root/usr' PYTHONPATH=\"{HOME}/site:$PYTHONPATH\"\n"
        f"exec '{emulator}' -L '{HOME}/root' '{HOME}/root/usr/bin/python3.11' \"$@\"\n"
    )
    COMMAND.chmod(0o755)
    command = [str(COMMAND), "-c", "import numpy, llvmlite, platform; print(platform.machine())"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ})
    if done.stdout != "aarch64\n":
        raise OSError(f"expected an emulated aarch64, found {done.stdout!r}")


if __name__ == "__main__":
    try:
        make()
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(HOME, ignore_errors=True)
        print(f"AArch64 is not available here: its tests are skipped ({error})", file=sys.stderr)
