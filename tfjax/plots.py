"""Line plots as SVG text: axes with round ticks, one line and one colour per series, a legend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

type Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#8a5fbf", "#c77d0a", "#4a4a4a")
"""Distinct in colour and in lightness; they repeat after the last."""


def line_plot(series: Mapping[str, Points], *, title: str, x: str, y: str, dots: bool = False) -> str:
    """An SVG document that shows each series as a line.

    Args:
        series: name -> points; points with a coordinate that is not finite are left out.
        title: the heading.
        x: what the horizontal axis counts, with its unit.
        y: the same of the vertical axis.
        dots: a dot for each point instead of a line through them.

    Raises:
        ValueError: no series has a point to show.
    """
    shown = {
        name: [p for p in points if math.isfinite(p[0]) and math.isfinite(p[1])] for name, points in series.items()
    }
    everything = [point for points in shown.values() for point in points]
    if not everything:
        raise ValueError(f"plot {title!r} has no finite point; give at least one")
    x_ticks = ticks(min(p[0] for p in everything), max(p[0] for p in everything))
    y_ticks = ticks(min(p[1] for p in everything), max(p[1] for p in everything))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 22, title, anchor="middle", size=15),
        *_axes(x_ticks, y_ticks, x, y),
    ]
    for index, (name, points) in enumerate(shown.items()):
        colour = COLOURS[index % len(COLOURS)]
        places = [(_across(px, x_ticks), _down(py, y_ticks)) for px, py in points]
        parts += [_dot(*place, colour) for place in places] if dots else [_line(places, colour)]
        parts += _legend(index, name, colour)
    return "\n".join([*parts, "</svg>", ""])


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers, evenly apart, the first at or below `low` and the last at or above `high`."""
    if low == high:
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
    rough = (high - low) / (most - 1)
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def _axes(x_ticks: list[float], y_ticks: list[float], x: str, y: str) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in x_ticks:
        at = _across(value, x_ticks)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom}" stroke="#e4e4e4"/>')
        parts.append(_text(at, bottom + 18, f"{value:.6g}", anchor="middle"))
    for value in y_ticks:
        at = _down(value, y_ticks)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" stroke="#e4e4e4"/>')
        parts.append(_text(LEFT - 8, at + 4, f"{value:.6g}", anchor="end"))
    parts.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#333"/>')
    parts.append(_text((LEFT + right) / 2, HEIGHT - 12, x, anchor="middle"))
    middle = (TOP + bottom) / 2
    parts.append(f'<g transform="rotate(-90 16 {middle})">{_text(16, middle, y, anchor="middle")}</g>')
    return parts


def _line(places: Points, colour: str) -> str:
    drawn = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    return f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.8"/>'


def _dot(px: float, py: float, colour: str) -> str:
    return f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}" fill-opacity="0.8"/>'


def _legend(index: int, name: str, colour: str) -> list[str]:
    at = TOP + 14 + 18 * index
    right = WIDTH - RIGHT - 10
    line = f'<line x1="{right - 22}" y1="{at - 4}" x2="{right}" y2="{at - 4}" stroke="{colour}" stroke-width="3"/>'
    return [line, _text(right - 28, at, name, anchor="end")]


def _text(x: float, y: float, text: str, *, anchor: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _across(value: float, axis: list[float]) -> float:
    return LEFT + (value - axis[0]) / (axis[-1] - axis[0]) * (WIDTH - LEFT - RIGHT)


def _down(value: float, axis: list[float]) -> float:
    return HEIGHT - BOTTOM - (value - axis[0]) / (axis[-1] - axis[0]) * (HEIGHT - TOP - BOTTOM)
