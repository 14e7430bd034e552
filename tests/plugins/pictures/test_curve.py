"""The curve of a training, as a picture."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from relaxpy.errors import MisuseError
from relaxpy.plugins.training.trainer import History


def points(losses: list[float]) -> list[tuple[str, float, float]]:
    """The texts and places of the points that are drawn."""
    root = ET.fromstring(History(losses=losses).plot().to_svg())
    found = []
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        if group.get("class") == "point":
            title, circle = list(group)
            found.append((str(title.text), float(circle.get("cx")), float(circle.get("cy"))))
    return found


@pytest.mark.parametrize("losses", [[4.0, 2.0, 1.0], [1.0, 1e-3, 1e-6], [3.0, -1.0, -2.0]])
def test_lower_losses_are_drawn_lower_and_later_ones_further_right(losses: list[float]) -> None:
    texts, across, down = zip(*points(losses), strict=True)
    assert [text.split(":")[0] for text in texts] == ["epoch 1", "epoch 2", "epoch 3"]
    assert list(across) == sorted(set(across))
    assert list(down) == sorted(set(down))


def test_wide_ranges_are_logarithmic() -> None:
    _, _, down = zip(*points([1.0, 1e-3, 1e-6]), strict=True)
    assert down[1] - down[0] == pytest.approx(down[2] - down[1], abs=0.2)


def test_losses_that_are_not_finite_are_left_out() -> None:
    inf, nan = float("inf"), float("nan")
    assert [text for text, _, _ in points([nan, 2.0, inf, 1.0])] == ["epoch 2: 2", "epoch 4: 1"]
    assert points([]) == points([nan]) == []


def test_long_curves_have_a_bounded_number_of_points() -> None:
    found = points([float(n) for n in range(10_000)])
    assert len(found) <= 501
    assert found[-1][0].startswith("epoch 10000:")


def test_a_curve_is_saved_and_shown(tmp_path: Path) -> None:
    chart = History(losses=[2.0, 0.5]).plot()
    assert repr(chart) == "<Curve of 2 losses, the last one 0.5>"
    chart.save(tmp_path / "curve.svg")
    assert re.search("<svg", (tmp_path / "curve.svg").read_text(encoding="utf-8"))
    with pytest.raises(MisuseError, match=r"the path of a file \.svg"):
        chart.save(tmp_path / "curve.png")
