"""The matrix as a picture: one bar per cell, its quartiles as a whisker, and the lines that matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

ROW, LEFT, WIDE, TOP, BOTTOM, RIGHT = 22, 150, 480, 62, 34, 60
FASTER, SLOWER = "#1f6fb4", "#d1495b"


@dataclass(frozen=True, slots=True)
class Bar:
    """One cell. `low` and `high` are its quartiles."""

    label: str
    ratio: float
    low: float
    high: float


def ratio_plot(bars: Sequence[Bar], *, title: str, subtitle: str, least: float) -> str:
    """An SVG document. Bars below `least` have another colour.

    Raises:
        ValueError: no bar to show.
    """
    if not bars:
        raise ValueError("there is no cell to plot; measure at least one")
    top = max(1.2, *(bar.high for bar in bars), *(bar.ratio for bar in bars)) * 1.05
    width, height = LEFT + WIDE + RIGHT, TOP + ROW * len(bars) + BOTTOM
    foot = TOP + ROW * len(bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        "<style>text{font-size:12px}.title{font-size:15px}</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" class="title">{escape(title)}</text>',
        f'<text x="12" y="44" fill="#555">{escape(subtitle)}</text>',
    ]
    for place, bar in enumerate(bars):
        parts += _row(bar, TOP + ROW * place, top, SLOWER if bar.ratio < least else FASTER)
    for value, dash in ((1.0, ""), (least, ' stroke-dasharray="3 3"')):
        parts.append(f'<path d="M{_x(value, top):.1f} {TOP - 4}V{foot}" stroke="#333"{dash}/>')
    step = 0.5 if top < 4 else 1.0 if top < 8 else 5.0
    for count in range(int(top / step) + 1):
        at = _x(count * step, top)
        parts.append(f'<text x="{at:.1f}" y="{foot + 18}" text-anchor="middle">{count * step:g}x</text>')
    return "\n".join([*parts, "</svg>", ""])


def _row(bar: Bar, y: int, top: float, colour: str) -> list[str]:
    middle = y + ROW / 2
    low, high = _x(bar.low, top), _x(bar.high, top)
    return [
        f'<text x="{LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect x="{LEFT}" y="{y + 4}" width="{_x(bar.ratio, top) - LEFT:.1f}" height="{ROW - 8}" fill="{colour}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8" stroke="#111"/>',
        f'<text x="{high + 6:.1f}" y="{middle + 4:.1f}">{bar.ratio:.2f}</text>',
    ]


def _x(ratio: float, top: float) -> float:
    return LEFT + WIDE * ratio / top
