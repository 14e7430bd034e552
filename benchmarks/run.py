"""Models beside other systems, in an environment of their own: `make benchmarks`.

`python -m benchmarks.run [SELECT]` installs the other systems in build/benchmarks at the versions
of tools/constraints/newest.txt, runs `models.py --wall` there, each run in a new process, and
prints the median ratios and their spread. If all models were measured, the section "Models" of
README.md beside this file and docs/images/speed.svg are written. The machine should do nothing
else; three runs of all models take about half an hour.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "benchmarks"
PAGE = ROOT / "benchmarks" / "README.md"
PICTURE = ROOT / "docs" / "images" / "speed.svg"
PEERS = {
    "NumPy": "numpy",
    "ONNX Runtime": "onnxruntime",
    "OpenVINO": "openvino",
    "JAX": "jax",
    "PyTorch": "torch",
    "torch.compile": "torch",
    "TVM": "apache-tvm",
}
"""The contestants beside relaxpy, and their packages."""
KINDS = {
    "networks": ("decoder", "BERT", "ResNet"),
    "small MLPs": ("MLP",),
    "many small operations": ("100 operations",),
}
"""The kinds of models, by how their names begin; all others are kernels and chains of them."""
LEGEND = (
    "relaxpy's time divided by that of each system: below 1 relaxpy is faster. The last column is\n"
    "relaxpy's time with weights as arguments, divided by that of the fastest of the others.\n"
)
BEGIN, END = "<!-- written by make benchmarks -->\n", "<!-- end -->\n"
Times = Mapping[str, Mapping[str, float]]
"""The least microseconds of each contestant, for each model.

relaxpy is `default`, and `arguments` where the model has weights and gets them in each call.
"""
OWN = "default", "arguments"


def ratios(runs: Sequence[Times], model: str, peer: str) -> list[float]:
    """relaxpy's time divided by that of a peer, in each run that has both."""
    times = [run[model] for run in runs if peer in run[model]]
    return [time["default"] / time[peer] for time in times]


def to_fastest(runs: Sequence[Times], model: str, own: str = "default") -> list[float]:
    """relaxpy's time divided by that of the fastest peer, in each run that has the former."""
    return [
        times[own] / min(time for name, time in times.items() if name not in OWN)
        for times in (run[model] for run in runs)
        if own in times
    ]


def table(runs: Sequence[Times]) -> str:
    """The median ratios of each model, with the spread of the ratio to the fastest peer."""
    peers = [peer for peer in PEERS if any(peer in times for times in runs[0].values())]
    titles = ["model", *(f"/ {peer}" for peer in peers), "/ fastest", "spread", "as arguments"]
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    for model in runs[0]:
        found = [ratios(runs, model, peer) for peer in peers]
        cells = [f"{statistics.median(values):.2f}" if values else "" for values in found]
        best = to_fastest(runs, model)
        cells += [f"{statistics.median(best):.2f}", f"{min(best):.2f} to {max(best):.2f}"]
        given = to_fastest(runs, model, "arguments")
        cells.append(f"{statistics.median(given):.2f}" if given else "")
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def kind(model: str) -> str:
    """The kind of a model, by which figures are summed up."""
    return next((kind for kind, starts in KINDS.items() if model.startswith(starts)), "kernels")


def speed(times: Iterable[float]) -> str:
    """How many times as fast relaxpy is, in the geometric mean of ratios of its time."""
    found = 1 / math.exp(statistics.fmean(map(math.log, times)))
    return f"{found:.{0 if found >= 10 else 1 if found >= 1 else 2}f}"


def summary(best: Mapping[str, float], own: Mapping[str, float]) -> str:
    """How many times as fast relaxpy is, for each kind of models.

    `best` has the ratios of its time to the fastest peer, and `own` to torch.compile.
    """
    lines = [
        "| kind | models | the fastest of the others | torch.compile | the worst model |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in [*KINDS, "kernels"]:
        models = [model for model in best if kind(model) == name]
        if models:
            worst = speed([max(best[model] for model in models)])
            compiled = [own[model] for model in models if model in own]
            fastest = speed(best[model] for model in models)
            cells = [name, len(models), fastest, speed(compiled) if compiled else "", worst]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "How many times as fast relaxpy is, in geometric means:\n\n" + "\n".join(lines) + "\n"


def conditions(count: int) -> str:
    """When, where and with what was measured."""
    import relaxpy
    from benchmarks import core_latency, peers

    machine = relaxpy.doctor()
    there = {"NumPy", *peers.NAMES} - {"torch.compile"}
    shown = {name: package for name, package in PEERS.items() if name in there}
    facts = [
        f"{date.today()}, relaxpy {relaxpy.__version__}, Python {platform.python_version()}",
        *(f"{name} {version(package)}" for name, package in shown.items()),
        platform.system(),
        *(machine[topic].value for topic in ("CPU", "vectors", "threads")),
        f"a line from the cache of one CPU to another in {core_latency.nanoseconds():.0f} ns",
        f"load of the machine before {os.getloadavg()[0]:.1f}",
        f"medians of {count} runs",
    ]
    return "; ".join(facts) + ".\n"


def plot(best: Mapping[str, float], file: Path) -> None:
    """A picture of relaxpy's time divided by that of the fastest peer."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "relaxpy"}):
        figure = Figure(figsize=(7, 0.28 * len(best) + 0.9), layout="constrained")
        axes = figure.subplots()
        colours = ["#1b7f3b" if value <= 1 else "#c62828" for value in best.values()]
        bars = axes.barh([*best], [*best.values()], color=colours)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        axes.bar_label(bars, fmt="%.2f", padding=3, bbox=box)
        axes.axvline(1, color="#5d6678", linewidth=1)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("time of relaxpy / time of the fastest of the others")
        figure.savefig(file, metadata={"Date": None})


def written(page: str, section: str, begin: str = BEGIN) -> str:
    """The page with another section between its marks."""
    pattern = re.escape(begin) + ".*?" + re.escape(END)
    found, count = re.subn(pattern, lambda _: f"{begin}\n{section}\n{END}", page, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"the page has {count} sections that begin with {begin.strip()}")
    return found


def install() -> Path:
    """The Python of the environment with the peers, which is made if its versions are not these."""
    from tools import dist

    pins = dist.PINS.read_text(encoding="utf-8")
    done, folder = PLACE / "installed.txt", PLACE / "env"
    if not done.exists() or done.read_text(encoding="utf-8") != pins:
        peers = [*dict.fromkeys(PEERS.values()), "matplotlib"]
        dist.environment(folder, "--editable", f"{ROOT}[native,onnx]", *peers)
        done.write_text(pins, encoding="utf-8")
    return dist.python_of(folder)


def measure(select: str, count: int) -> list[Times]:
    """The times of each run."""
    runs = []
    for k in range(count):
        file = PLACE / f"run{k}.json"
        command = [sys.executable, "-m", "benchmarks.models", "--wall", "--json", str(file), select]
        subprocess.run(command, cwd=ROOT, check=True)
        runs.append(json.loads(file.read_text(encoding="utf-8")))
    return runs


def main() -> None:
    """Install the peers, measure in their environment, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("select", nargs="?", default="", help="a part of the names of models")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--here", action="store_true", help="measure with the Python that runs this"
    )
    options = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    if not options.here:
        command = [install(), "-m", "benchmarks.run", "--here", *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, cwd=ROOT, check=False).returncode)
    where = conditions(options.runs)
    runs = measure(options.select, options.runs)
    # Rounded as in the table, so that readers get the same means of its figures.
    best = {model: round(statistics.median(to_fastest(runs, model)), 2) for model in runs[0]}
    compared = {model: ratios(runs, model, "torch.compile") for model in best}
    own = {model: round(statistics.median(found), 2) for model, found in compared.items() if found}
    section = f"{where}\n{summary(best, own)}\n{LEGEND}\n{table(runs)}"
    print(section)
    if not options.select:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written(page, section), encoding="utf-8")
        plot(best, PICTURE)
        print(f"{PAGE} and {PICTURE} are written; README.md has its first table, too")


if __name__ == "__main__":
    main()
