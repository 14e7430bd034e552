"""Charts of memory: the bytes that functions hold and use at each binding."""

from base64 import b64decode
from pathlib import Path
from xml.etree import ElementTree

import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.plugins.pictures.chart import WIDTH, MemoryChart, size_text
from relaxpy.script import from_source, ir as I, relax as R

PASSES = relaxpy.transform.Sequential(
    [
        *(relax.transform.LegalizeOps(), relax.transform.ToNonDataflow()),
        *(relax.transform.CallTIRRewrite(), relax.transform.StaticPlanBlockMemory()),
    ]
)


@I.ir_module
class Planned:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        one = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        a = R.memory.alloc_tensor(one, 0, R.shape([4]), "float32")
        two = R.memory.alloc_storage(R.shape([100]), 0, "global", "float32")
        b = R.memory.alloc_tensor(two, 0, R.shape([2]), "float32")
        c = R.memory.alloc_tensor(one, 0, R.shape([4]), "float32")
        d = c
        e = (d, x)
        f = R.builtin.alloc_tensor(R.shape([3]), "float32", 0)
        return e[0]


def test_storages_are_held_and_tensors_used_as_long_as_they_are_needed() -> None:
    chart = Planned.memory_chart()
    rows = {row.name: (row.held, row.used) for row in chart.rows}
    expected = {
        "one": (16, 0),
        "a": (16, 16),
        "two": (116, 0),
        "b": (116, 8),
        "c": (16, 16),
        "d": (16, 16),
        "e": (16, 16),
        "f": (28, 28),
    }
    assert {name: rows[name] for name in expected} == expected
    assert chart.peak == 116
    assert repr(chart).startswith("<MemoryChart of main: ")


def chain(count: int) -> relaxpy.IRModule:
    lines = ["@R.function", 'def main(x: R.Tensor(("n", 4), "float32")):', "    v = x"]
    lines += ["    v = R.add(v, R.exp(v))"] * count
    return relaxpy.IRModule.from_expr(from_source("\n".join([*lines, "    return v"])))


def test_planned_memory_holds_what_is_used() -> None:
    sized = relax.transform.BindSymbolicVars({"n": 8})(chain(9))
    chart = PASSES(sized).memory_chart()
    assert all(row.used <= row.held for row in chart.rows)
    assert 3 * 128 == max(row.used for row in chart.rows) <= chart.peak <= 4 * 128
    before = relax.transform.LegalizeOps()(sized).memory_chart()
    assert before.peak == 3 * 128
    assert all(row.used == row.held for row in before.rows)


def test_operators_that_are_not_kernels_yet_are_unplanned() -> None:
    chart = chain(3).memory_chart(sizes={"n": 2})
    assert (chart.peak, chart.unplanned) == (0, 6)
    note = "unplanned: LegalizeOps makes kernels of 6 operators, whose results then count"
    assert repr(chart) == f"<MemoryChart of main: 7 bindings, {note}>"
    assert note in chart.to_svg()
    legal = relax.transform.LegalizeOps()(chain(3)).memory_chart(sizes={"n": 2})
    assert legal.unplanned == 0
    assert "unplanned" not in repr(legal) + legal.to_svg()


def test_sizes_decide_what_is_unknown() -> None:
    legal = relax.transform.LegalizeOps()(chain(3))
    unknown = legal.memory_chart()
    assert (unknown.peak, unknown.unknown) == (0, 6)
    assert "6 allocations of unknown size" in repr(unknown)
    assert legal.memory_chart("main", {"n": 2}).peak == 3 * 32
    compiled = relaxpy.compile(chain(3), "numpy").memory_chart(sizes={"n": 1000})
    assert compiled.peak >= 16_000
    with pytest.raises(UnknownNameError, match="no function 'mian'"):
        legal.memory_chart("mian")
    with pytest.raises(MisuseError, match="expected a Relax function, found PrimFunc"):
        legal.memory_chart("add")


@pytest.mark.parametrize("count", [0, 1, 500])
def test_charts_are_well_formed(count: int, tmp_path: Path) -> None:
    chart: MemoryChart = relax.transform.LegalizeOps()(chain(count)).memory_chart(sizes={"n": 5})
    chart.save(tmp_path / "memory.svg")
    root = ElementTree.parse(tmp_path / "memory.svg").getroot()
    bars = [e for e in root.iter() if e.get("class") == "bar"]
    assert (count > 0) <= len(bars) <= WIDTH
    assert len(bars) == len(chart.rows) or len(chart.rows) > WIDTH
    encoded = chart._repr_mimebundle_()["text/html"].partition("base64,")[2].partition('"')[0]
    assert b64decode(encoded).decode() == chart.to_svg()
    with pytest.raises(MisuseError, match=r"the path of a file \.svg"):
        chart.save("memory.png")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (25_600_000, "25.6 MB"), (3 * 10**15, "3000 TB")],
)
def test_bytes_are_readable(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text
