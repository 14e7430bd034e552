"""What a notebook shows of executables, reports and profiles: tables, in HTML of the same words."""

from html.parser import HTMLParser

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.runtime.report import ExecutionReport, ReportRow
from tests.ir.relax.texts import module

Module = module("""
def main(x: f32[n, 3]) -> f32[n, 3]:
    y = R.exp(x)
    z = R.add(y, x)
    return z
""")


class Cells(HTMLParser):
    """The texts of the cells of all tables, row by row; each tag has to be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.rows[-1][-1] += data


def test_a_report_is_a_table() -> None:
    rows = (ReportRow("k<1>", "b", "a ufunc", ""), ReportRow("k2", "c", "a loop", "x & y"))
    cells = Cells(ExecutionReport(rows)._repr_html_()).rows
    assert cells == [
        ["kernel", "block", "runs as", "because"],
        ["k<1>", "b", "a ufunc", ""],
        ["k2", "c", "a loop", "x & y"],
    ]
    assert str(ExecutionReport(rows)).splitlines() == [
        "kernel  block  runs as  because",
        "------  -----  -------  -------",
        "k<1>    b      a ufunc",
        "k2      c      a loop   x & y",
    ]
    assert Cells(ExecutionReport(rows[:1])._repr_html_()).rows[0] == ["kernel", "block", "runs as"]


def test_a_report_shows_back_ends_and_threads_where_they_are_known() -> None:
    rows = (
        ReportRow("k1", "b", "native, elementwise", backend="native", threads="2"),
        ReportRow("k2", "c", "elementwise", backend="numpy", threads="1"),
    )
    assert Cells(ExecutionReport(rows)._repr_html_()).rows == [
        ["kernel", "block", "back end", "runs as", "threads"],
        ["k1", "b", "native", "elementwise", "2"],
        ["k2", "c", "numpy", "elementwise", "1"],
    ]


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_the_back_end_of_each_kernel_is_reported(target: str) -> None:
    rows = list(relaxpy.compile(Module, target).report())
    assert {row.backend for row in rows} == {target}
    assert all(row.threads.isdecimal() for row in rows)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_an_executable_shows_its_functions_and_how_kernels_run(target: str) -> None:
    ex = relaxpy.compile(Module, target)
    cells = [cell for row in Cells(ex._repr_html_()).rows for cell in row]
    assert any(cell.startswith("main(x: R.Tensor((n, 3)") for cell in cells)
    kernels = {"reference": {"tir_exp", "add"}, "numpy": {"fused_tir_exp_add"}}
    assert kernels[target] <= set(cells)
    profile = relaxpy.VirtualMachine(ex).profile("main", np.ones((2, 3), "float32"))
    assert Cells(profile._repr_html_()).rows[-1][0] == "total"
