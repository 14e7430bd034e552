"""Charts of profiles: bars of time, and rooflines."""

from xml.etree import ElementTree

import pytest

from relaxpy.errors import MisuseError
from relaxpy.exec.inspect.profile import Profile, ProfileRow
from relaxpy.plugins.pictures.chart import MAX_BARS, Chart, Roofline

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
    assert repr(chart) == "<Roofline of 2 kernels, peaks 1e+03 Gflop/s, 10 GB/s>"


def test_a_kernel_above_the_roof_says_why() -> None:
    rows = profile(3).rows
    texts = [text.text or "" for text in texts_of(Roofline(rows, 1e12, 1e10))]
    assert not any("above the line" in text or text.endswith("*") for text in texts)
    assert "k1<&" in texts  # k2 is so near that its name would cover this one
    low = Roofline(rows, 1e12, 40e6)  # k1 reads 50 MB a second, k2 33
    texts = [text.text or "" for text in texts_of(low)]
    assert "k1<& *" in texts
    assert any(text.startswith("* above the line") for text in texts)
    tips = [e.text or "" for e in ElementTree.fromstring(low.to_svg()).iter(f"{SVG}title")]
    assert ["above the line" in tip for tip in tips if tip.startswith("k")] == [True, False]


def test_the_bar_of_a_function_says_what_its_time_is() -> None:
    assert "main (between kernels)" in {text.text for text in texts_of(profile(1).plot())}


def texts_of(chart: Chart) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(chart.to_svg()).iter(f"{SVG}text"))


def test_plots_of_other_kinds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MisuseError, match="expected 'bars' or 'roofline', found 'pie'"):
        profile(1).plot("pie")
    monkeypatch.setattr("relaxpy.exec.inspect.profile.obstacle", lambda: "none here")
    with pytest.raises(MisuseError, match="without native code"):
        profile(1).plot("roofline")
