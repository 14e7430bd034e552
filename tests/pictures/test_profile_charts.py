"""Charts of profiles: bars of time, and rooflines."""

from xml.etree import ElementTree

import pytest

from relaxpy.errors import MisuseError
from relaxpy.exec.profile import Profile, ProfileRow
from relaxpy.pictures.profile import MAX_BARS, Roofline

SVG = "{http://www.w3.org/2000/svg}"


def profile(count: int) -> Profile:
    rows = [
        ProfileRow(f"k{i}<&", "numpy", 1, (i + 1) * 1e-6, 100, 50 * i, None, "kernel", "m.py:1")
        for i in range(count)
    ]
    rows.append(ProfileRow("main", "", 1, 1e-6, kind="between kernels"))
    return Profile(tuple(rows), sum(row.duration for row in rows))


@pytest.mark.parametrize("count", [0, 1, 5, 200])
def test_bars_are_as_long_as_calls_took(count: int) -> None:
    root = ElementTree.fromstring(profile(count).plot().to_svg())
    bars = [float(rect.get("width") or 0) for rect in root.iter(f"{SVG}rect")]
    assert len(bars) == min(count + 1, MAX_BARS + 1)
    shown = sorted((row.duration for row in profile(count)), reverse=True)[:MAX_BARS]
    rest = sum(row.duration for row in profile(count)) - sum(shown)
    longest = max([*shown, rest])
    assert bars[: len(shown)] == pytest.approx([420 * t / longest for t in shown], abs=0.5)


def test_a_roofline_has_kernels_at_their_rates() -> None:
    rows = profile(3).rows
    chart = Roofline(rows, 1e12, 1e10)
    assert chart.points == [
        ("k1<&", pytest.approx(0.5), pytest.approx(50 / 2e-6)),
        ("k2<&", pytest.approx(1.0), pytest.approx(100 / 3e-6)),
    ]
    root = ElementTree.fromstring(chart.to_svg())
    circles = list(root.iter(f"{SVG}circle"))
    one, other = ((float(c.get("cx") or 0), float(c.get("cy") or 0)) for c in circles)
    assert one[0] < other[0]
    assert one[1] > other[1]  # more operations per second are further up
    [path] = [p for p in root.iter(f"{SVG}path") if p.get("class") == "used"]
    ridge = [float(n) for n in (path.get("d") or "").split("L")[1].split()]
    assert ridge[0] > other[0]  # both are limited by memory
    assert repr(chart) == "<Roofline of 2 kernels, below 1e+03 Gflop/s, 10 GB/s>"


def test_plots_of_other_kinds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MisuseError, match="expected 'bars' or 'roofline', found 'pie'"):
        profile(1).plot("pie")
    monkeypatch.setattr("relaxpy.exec.profile.obstacle", lambda: "none here")
    with pytest.raises(MisuseError, match="without native code"):
        profile(1).plot("roofline")
