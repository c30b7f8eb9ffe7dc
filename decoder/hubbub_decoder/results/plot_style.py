"""Axes, colours, percentages and label texts that all plots share (matplotlib)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, cast

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from hubbub.text import escape_untrusted, short_labels

ESTIMATE, TRUTH, FAINT, INK = "#2563a8", "#d9480f", "#868e96", "#495057"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")
"""Colours that colour-blind readers tell apart (Okabe and Ito 2008, https://jfly.uni-koeln.de/color/)."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""One for each of `SERIES`, so that a copy without colour can be read."""

_LABEL_SIZE = 8
_LONGEST_LABEL, _LONGEST_TITLE = 44, 90
_ROW_HEIGHT, _FRAME_HEIGHT = 0.23, 1.7  # inches
_FALLBACK_FONTS = (
    *(
        "Noto Sans",
        "Noto Sans CJK SC",
        "Noto Sans CJK JP",
        "Noto Sans CJK KR",
        "Noto Sans CJK TC",
        "Source Han Sans SC",
    ),
    *("WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "IPAGothic", "Noto Sans Arabic"),
    *("Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji", "Symbola", "Unifont"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Arial Unicode MS"),
    *("Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Segoe UI", "Segoe UI Emoji"),
)
"""Families that complete the default font, as far as they are installed: Linux, macOS, Windows."""


def row_height(num_rows: int) -> float:
    """Return the height in inches of a figure with so many labelled rows."""
    return _FRAME_HEIGHT + _ROW_HEIGHT * max(num_rows, 2)


def axes_or_new(ax: Axes | Figure | None, height: float, width: float = 8) -> Axes:
    """Return the given axes, those of an empty figure, or those of a new pyplot figure, which a notebook displays; sizes in inches."""
    if isinstance(ax, Axes):
        return ax
    return sized_figure(ax, height, width).subplots()


def sized_figure(figure: Figure | None, height: float, width: float = 8) -> Figure:
    """Return an empty figure with its size set, or a new pyplot figure; sizes in inches."""
    if figure is None:
        from matplotlib import pyplot

        figure = pyplot.figure()
    figure.set_size_inches(width, height)
    figure.set_layout_engine("constrained")
    return figure


def figure_of(axes: Axes) -> Figure:
    """Return the figure of axes, also of those in a subfigure."""
    return cast(Figure, axes.get_figure(root=True))


def finish_axes(axes: Axes, title: str, about: str = "", *, grid: str = "both", columns: int = 4) -> None:
    """Write the title with a line about the data, put the legend below it, and remove what carries no data."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        legend = axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=columns,
            frameon=False,
            fontsize=_LABEL_SIZE,
            borderaxespad=0,
            borderpad=0.4,
            handletextpad=0.5,
            columnspacing=1.4,
        )
        write_labels(legend.get_texts(), labels)
    lines = -(-len(handles) // columns)
    shown = [printable(text) for text in short_labels([text for text in (title, about) if text], _LONGEST_TITLE)]
    heading = axes.set_title(
        "\n".join(text for text, _ in shown), loc="left", fontsize=10, pad=8 + 13 * lines, parse_math=False
    )
    families = [family for _, needed in shown for family in needed]
    heading.set_fontfamily(list(dict.fromkeys(families or matplotlib.rcParams["font.family"])))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis=grid, color="#e6e9ec", linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows 0, 1, ... of an axes from top to bottom."""
    shown = [printable(name) for name in short_labels(names, _LONGEST_LABEL)]
    axes.set_yticks(range(len(names)), [text for text, _ in shown], fontsize=_LABEL_SIZE)
    _set_fonts(axes.get_yticklabels(), shown)
    axes.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def label_columns(axes: Axes, places: Sequence[float], names: Sequence[str], *, rotated: bool) -> None:
    """Label places on the horizontal axis."""
    shown = [printable(name) for name in short_labels(names, _LONGEST_LABEL)]
    axes.set_xticks(
        places,
        [text for text, _ in shown],
        fontsize=_LABEL_SIZE,
        rotation=30 if rotated else 0,
        ha="right" if rotated else "center",
    )
    _set_fonts(axes.get_xticklabels(), shown)


def write_labels(texts: Sequence[Text], names: Iterable[str]) -> None:
    """Write untrusted names: no mathematics between `$`, long names shortened, characters without a glyph escaped."""
    shown = [printable(name) for name in short_labels(list(names), _LONGEST_LABEL)]
    for text, (name, _) in zip(texts, shown, strict=True):
        text.set_text(name)
    _set_fonts(texts, shown)


def _set_fonts(texts: Iterable[Text], shown: Sequence[tuple[str, list[str]]]) -> None:
    for text, (_, families) in zip(texts, shown, strict=True):
        text.set_parse_math(False)
        text.set_fontfamily(families)


def printable(name: str) -> tuple[str, list[str]]:
    """Return a name with escapes for characters that no installed font has, and the font families that it needs.

    >>> printable("a$b")[0], printable("a\\u202eb")[0]
    ('a$b', 'a\\\\u202eb')
    """
    name = "".join(escape_untrusted(character) for character in name)
    default = list(matplotlib.rcParams["font.family"])
    missing = {character for character in name if not _has_glyph(None, character)}
    families = []
    for family in _installed(_FALLBACK_FONTS) if missing else ():
        found = {character for character in missing if _has_glyph(family, character)}
        if found:
            families.append(family)
            missing -= found
    shown = "".join(_escape(character) if character in missing else character for character in name)
    return shown, [*default, *families]


def percent_axis(axis: Any) -> None:
    """Label an axis of shares in percent, with as many digits as its ticks need."""
    axis.set_major_formatter(FuncFormatter(lambda share, _: format_percent(share)))


def format_percent(share: float) -> str:
    """Return a share in percent, with the minus sign of mathematics.

    >>> format_percent(0.125), format_percent(-0.00002), format_percent(0.0)
    ('12.5 %', '−0.002 %', '0 %')
    """
    text = f"{100 * share:.6f}".rstrip("0").rstrip(".")
    return f"{'0' if text == '-0' else text} %".replace("-", "−")


def _escape(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode()


@cache
def _has_glyph(family: str | None, character: str) -> bool:
    """Whether a family, or the default font, has a glyph for a character."""
    properties = FontProperties() if family is None else FontProperties(family=family)
    return bool(get_font(fontManager.findfont(properties)).get_char_index(ord(character)))


@cache
def _installed(families: tuple[str, ...]) -> tuple[str, ...]:
    known = {entry.name for entry in fontManager.ttflist}
    return tuple(family for family in families if family in known)
