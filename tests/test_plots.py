"""Line plots: every point at its place, round ticks, names as text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tfjax.plots import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, line_plot, ticks

SVG = "{http://www.w3.org/2000/svg}"


def drawn(series: dict[str, list[tuple[float, float]]]) -> ET.Element:
    return ET.fromstring(line_plot(series, title="a < b", x="steps", y="loss & more"))  # noqa: S314 - our own text


def test_points_lie_between_the_outer_ticks() -> None:
    root = drawn({"one": [(0, 0), (5, 10), (10, 5)]})
    places = root.find(f"{SVG}polyline").attrib["points"].replace(",", " ").split()
    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM
    expected = [left, bottom, (left + right) / 2, top, right, (top + bottom) / 2]
    assert [float(number) for number in places] == pytest.approx(expected)


def test_one_line_per_series_each_with_its_own_colour_and_name() -> None:
    root = drawn({"train": [(0, 1), (1, 2)], "held <out>": [(0, 2), (1, 1)]})
    lines = root.findall(f"{SVG}polyline")
    assert len({line.attrib["stroke"] for line in lines}) == 2
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"train", "held <out>", "a < b", "steps", "loss & more"} <= set(words)


def test_points_that_are_not_finite_are_left_out() -> None:
    root = drawn({"one": [(0, 1), (1, float("nan")), (2, float("inf")), (3, 2)]})
    assert len(root.find(f"{SVG}polyline").attrib["points"].split()) == 2


def test_nothing_to_show_is_an_error_that_names_the_plot() -> None:
    with pytest.raises(ValueError, match="'a < b' has no finite point"):
        drawn({"one": [(0, float("nan"))]})


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 6, [0, 1, 2, 3, 4, 5, 6]),
        (0.13, 0.97, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (-3, 40, [-10, 0, 10, 20, 30, 40]),
        (7, 7, [2, 4, 6, 8, 10, 12]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_ticks_are_round_and_enclose_the_values(low: float, high: float, expected: list[float]) -> None:
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert found == pytest.approx(expected)


def test_dots_stand_alone() -> None:
    plot = line_plot({"a": [(1, 2), (3, 4)], "b": [(2, 2)]}, title="t", x="x", y="y", dots=True)
    assert plot.count("<circle") == 3
    assert "polyline" not in plot
