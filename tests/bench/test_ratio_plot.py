from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tfjax.bench.ratio_plot import FASTER, SLOWER, Bar, ratio_plot

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*bars: Bar) -> ET.Element:
    return ET.fromstring(ratio_plot(bars, title="a < b", subtitle="& so on", least=0.98))  # noqa: S314


def rectangles(root: ET.Element) -> list[tuple[str, float]]:
    return [(rect.get("fill", ""), float(rect.get("width", 0))) for rect in root.iter(f"{SVG}rect")][1:]


def test_bars_are_as_long_as_their_ratios() -> None:
    root = drawn(Bar("one", 2.0, 1.9, 2.2), Bar("two", 1.0, 0.9, 1.1), Bar("three", 0.5, 0.4, 0.97))
    (first, one), (second, two), (third, three) = rectangles(root)
    assert one == pytest.approx(2 * two, abs=0.2)
    assert two == pytest.approx(2 * three, abs=0.2)
    assert (first, second, third) == (FASTER, FASTER, SLOWER)
    words = list(root.itertext())
    assert {"a < b", "& so on", "one", "two", "2.00", "0.50", "1x"} <= set(words)


def test_everything_is_inside_the_picture() -> None:
    root = drawn(Bar("far", 9.0, 8.0, 12.0))
    width = float(root.get("viewBox", "").split()[2])
    assert all(float(text.get("x", 0)) < width for text in root.iter(f"{SVG}text"))


def test_without_bars_there_is_no_plot() -> None:
    with pytest.raises(ValueError, match="no cell to plot"):
        drawn()
