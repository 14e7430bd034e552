"""Write tests/times.txt, which divides the tests into a quick and a slow layer, and rare tests.

Run `make times`, which measures all tests, or `python tools/slow_tests.py FILE...` with files that
`pytest --record-times=FILE` has written. Of several times of a test the shortest counts: what is
made once in a process is paid by whichever test comes first.

`python tools/slow_tests.py --keep FILE...` needs the times of the quick layer alone: what was not
measured has the times of the table, and is not quick.

The quick layer has, of each test function, each rule of the specification and each kind of slow
tests, the row that takes the least time, unless that takes more than `MOST` seconds, the rows in
`SHARP`, rows of operators in which each value of each attribute occurs, and then the tests that
take the least time, as many as its budget allows. Likewise the slow layer has a row of each other
test function, and then as many of the rest as its budget allows.
Only `make test-all` runs the others.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests import layers  # noqa: E402
from tests.ir.ops.cases import CASES  # noqa: E402

BUDGETS = 240.0, 640.0
"""Seconds of processor time of the quick and the slow layer, beside the collection of tests."""
MOST = 0.3
"""Seconds beyond which a test function has no row in the quick layer."""

#: Beginnings of names. Of each group the quick layer has the test that takes the least time: one of
#: each kind of what is slow.
KINDS = {
    "a notebook": ("tests/test_notebooks.py::test_a_notebook",),
    "MPI": ("tests/plugins/distributed/test_mpi.py",),
    "Dask": ("tests/exec/test_pickle.py::test_tasks_of_dask",),
    "a session of the language server": ("tests/plugins/cli/test_lsp.py",),
    "torch.compile": ("tests/plugins/torch/test_regions.py",),
    "a pretrained model": ("tests/plugins/onnx/test_pretrained.py",),
}
OPERATORS = "tests/ir/ops/test_kernels.py::test_the_kernel_computes_the_definition"
#: Rows of test functions that the quick layer has: they alone notice some mutants of the package.
SHARP = {
    "tests/exec/loops/test_empty.py::test_without_iterations_only_the_init_evaluates_a_binding": (
        "Y[vi] = T.if_then_else(D[vi] != 0, vj, i64(5))-",
    ),
    "tests/exec/loops/test_initial_stores.py::test_a_store_is_what_an_accumulation_begins_with": (
        "on the diagonal",
    ),
    "tests/exec/loops/test_initial_stores.py::test_a_store_stays": ("of one element",),
    "tests/exec/loops/test_inits.py::test_a_block_is_initialised_once": (
        "split, the outer half outside",
    ),
    "tests/exec/loops/test_loops.py::test_a_schedule_leaves_no_trace_in_the_source": (
        "another shape",
        "a flat copy",
    ),
    "tests/exec/loops/test_loops_by_hand.py::test_loops_run_as_they_would_be_written": (
        "written3",
    ),
    "tests/exec/loops/test_mistakes.py::test_the_checkers_find_a_mistake": (
        "hoist an initialisation out of a loop",
    ),
    "tests/exec/loops/test_numbered_axes.py::test_stores_of_initial_values": (
        "f32(7)-i * 4 + j - 4",
        "x[i, 0] * f32(2)-j * 4 + i",
    ),
    "tests/exec/native/test_forms.py::test_few_rows_by_matrices_of_all_sizes": tuple(
        map(str, range(1, 18))
    ),
    "tests/exec/native/test_loops.py::test_native_loops": (
        "the iterations of inner loops are compared in the same outer iteration",
    ),
    "tests/fuzz/kernels/test_regressions.py::test_what_was_found_stays_mended": (
        "a sum without iterations begins in the iteration in which its iterators do",
    ),
    "tests/ir/relax/test_relations_bounds.py::test_bounds_of_struct_infos_are_the_closest_ones": (
        "spread tensors",
        "tensors",
    ),
}
HEADER = """\
# Written by tools/slow_tests.py. A line that begins with a file has the seconds of its quick tests;
# the lines that follow it name tests that are slow, functions with all their rows where they can.
# Only make test-all runs rare tests.
"""


def measured(paths: Iterable[Path]) -> dict[str, float]:
    """The shortest time of each test.

    Units: seconds
    """
    times: dict[str, float] = {}
    for path in paths:
        for line in path.read_text("utf-8").splitlines():
            seconds, _, name = line.partition(" ")
            times[name] = min(float(seconds), times.get(name, float("inf")))
    return times


def kept(times: Mapping[str, float]) -> dict[str, float]:
    """The entries of the table of which nothing was measured.

    Units: seconds
    """
    _, entries, _ = layers.table()
    left = entries.keys() - times.keys() - {*map(function_of, times)}
    return {name: entries[name] for name in left}


def function_of(name: str) -> str:
    """The name of a test without its row."""
    return name.partition("[")[0]


def rules_of(files: Iterable[str]) -> dict[str, list[str]]:
    """The test functions of each rule that a mark names."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in files:
        for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("mark.rule"):
                    for rule in mark.args:
                        found[ast.literal_eval(rule)].append(f"{file}::{node.name}")
    return found


def quick_tests(times: Mapping[str, float], budget: float) -> set[str]:
    """The tests of the quick layer."""
    rows = rows_of(times)
    quick = {names[0] for names in rows.values() if times[names[0]] <= MOST}
    for functions in rules_of({name.partition("::")[0] for name in times}).values():
        of_rule = [rows[function][0] for function in functions if function in rows]
        quick.update(sorted(of_rule, key=times.__getitem__)[:1])
    for begins in KINDS.values():
        of_kind = [name for name in times if name.startswith(begins)]
        quick.update(sorted(of_kind, key=times.__getitem__)[:1])
    sharp = {f"{function}[{row}]" for function, names in SHARP.items() for row in names}
    quick.update(sharp & times.keys(), rows_of_operators(times))
    return with_the_cheapest(quick, times, budget)


def rows_of_operators(times: Mapping[str, float]) -> Iterator[str]:
    """The quickest rows of `OPERATORS` in which each value of each attribute occurs."""
    choices = {case.name: {(case.operator, *c) for c in case.choices()} for case in CASES}
    missing = set().union(*choices.values())
    for name in rows_of(times)[OPERATORS]:
        found = choices.get(name.partition("[")[2].rpartition("-")[0], set())
        if not missing.isdisjoint(found):
            missing -= found
            yield name


def slow_tests(times: Mapping[str, float], quick: set[str], budget: float) -> set[str]:
    """The tests of the slow layer."""
    functions = {function_of(name) for name in quick}
    left = {t: s for t, s in times.items() if t not in quick and not layers.is_kept_out(t)}
    slow = {names[0] for function, names in rows_of(left).items() if function not in functions}
    return with_the_cheapest(slow, left, budget)


def rows_of(times: Mapping[str, float]) -> dict[str, list[str]]:
    """The tests of each function, by what they take."""
    rows: dict[str, list[str]] = defaultdict(list)
    for name in sorted(times, key=times.__getitem__):
        rows[function_of(name)].append(name)
    return rows


def with_the_cheapest(chosen: set[str], times: Mapping[str, float], budget: float) -> set[str]:
    """Chosen tests, and as many others as take no more than `budget` seconds together with them."""
    total, found = sum(times[name] for name in chosen), {*chosen}
    for name in sorted(times.keys() - chosen, key=times.__getitem__):
        total += times[name]
        if total > budget:
            break
        found.add(name)
    return found


def lines(times: Mapping[str, float], quick: set[str], slow: set[str]) -> Iterator[str]:
    """The lines of the table."""
    by_file: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in times:
        by_file[name.partition("::")[0]][function_of(name)].append(name)
    for file, functions in sorted(by_file.items()):
        names = [name for rows in functions.values() for name in rows if name in quick]
        yield f"{sum(map(times.__getitem__, names)):.2f} {file}"
        for function, rows in sorted(functions.items()):
            for kind, others in ("", slow), (layers.RARE, times.keys() - quick - slow):
                some = sorted(name for name in rows if name in others)
                for entry in [function] if len(some) == len(rows) else some:
                    seconds = sum(times[name] for name in some if name.startswith(entry))
                    yield f"  {seconds:.2f} {kind}{entry.removeprefix(f'{file}::')}"


def main() -> None:
    """Write the table for the times in files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--keep", action="store_true", help="keep what was not measured")
    options = parser.parse_args()
    times = measured(options.files)
    others = kept(times) if options.keep else {}
    quick = quick_tests(times, BUDGETS[0])
    times |= others
    slow = slow_tests(times, quick, BUDGETS[1])
    layers.TABLE.write_text(
        HEADER + "".join(f"{line}\n" for line in lines(times, quick, slow)), "utf-8"
    )
    for kind, names in ("quick", quick), ("slow", slow), ("rare", times.keys() - quick - slow):
        seconds = [times[name] for name in names]
        print(
            f"{kind}: {len(names)} tests, {sum(seconds):.0f} s, the longest"
            f" {max(seconds, default=0):.2f} s"
        )


if __name__ == "__main__":
    main()
