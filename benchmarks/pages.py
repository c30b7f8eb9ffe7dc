"""Tables and pictures of the documents, from the figures in docs/explanation/data.

    python -m benchmarks.pages          (or: make figures)

A table stands below a line `<!-- table: NAME -->` of a page. It has the rows and columns that decide; the CSV file has all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.tables import FOLDER, Row, markdown, read_table
from hubbub.text import format_count

DOCS = FOLDER.parents[1]
PAGES = sorted([*DOCS.glob("explanation/*.md"), *DOCS.glob("how-to/*.md")])
PICTURES = DOCS / "images"
REPORTS = "100000"
"""Number of reports in the picture of the frequency oracles."""
OURS = "hubbub, bit counts"
CATEGORIES = "hubbub, categories"
LAWS = ("OUE", "OLH", "subset selection", "SUE", "GRR")
_BLOCK = re.compile(r"^<!-- table: ([\w-]+) -->\n(?:\|.*\n)*", re.MULTILINE)
_OURS, _OTHERS = "#2563a8", ("#d9480f", "#2b8a3e", "#862e9c", "#868e96", "#e8a400")


def grid() -> list[Row]:
    """google/rappor's grid: detections of both decoders; a thousand reports (`tiny`) hardly detect anything."""
    return [
        {
            "cell": f"{row['size']} {row['config']}",
            "R: found": row["found_r"],
            "R: false %": row["false_percent_r"],
            "found": row["found"],
            "false %": row["false_percent"],
            "found at R's false %": row["found_at_false_of_r"],
        }
        for row in read_table("google-rappor-grid")
        if row["size"] != "tiny"
    ]


def random_tasks() -> list[Row]:
    """Random tasks: calibration of all tasks, and by the kind of counts and the number of cohorts."""
    chosen = ("all tasks", "counts", "cohorts")
    return [
        {
            "tasks": f"{row['stratum']} {row['value']}".strip().removeprefix("counts "),
            "number": row["tasks"],
            "error / declared": f"{row['error_over_declared']} ({row['error_over_declared_se']})",
            "covers": f"{row['covers_all']} ({row['covers_all_se']})",
            "covers detected": f"{row['covers_selected']} ({row['covers_selected_se']})",
            "false %": f"{row['false_percent']} ({row['false_percent_se']})",
        }
        for row in read_table("random-tasks")
        if row["stratum"] in chosen
    ]


def curator() -> list[Row]:
    """Errors of a count of a million clients, without and with a trusted curator."""
    return [
        {
            "eps": row["eps"],
            "randomized response": f"{float(row['randomized_response']):,.0f}",
            "Gaussian": row["gaussian"],
            "Laplace": row["laplace"],
            "randomized response / Laplace": row["randomized_response_over_laplace"],
        }
        for row in read_table("curator")
        if row["clients"] == "1000000"
    ]


def _cells() -> Mapping[tuple[str, str, str], Mapping[str, Row]]:
    """Rows of the frequency oracles by cell (eps, values, reports) and oracle; hubbub's name without its parameters."""
    cells: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in read_table("frequency-oracles"):
        cell = cells.setdefault((row["eps"], row["values"], row["reports"]), {})
        cell[OURS if row["oracle"].startswith(OURS) else row["oracle"].removesuffix(", exact")] = row
    return cells


def largest_errors() -> list[Row]:
    """Largest errors of the bit counts for each epsilon, and the cells in which their total variation is the smallest."""
    rows = []
    for epsilon in sorted({eps for eps, _, _ in _cells()}):
        cells = [cell for (eps, _, _), cell in _cells().items() if eps == epsilon]
        first = [
            float(cell[OURS]["total_variation"])
            <= min(float(row["total_variation"]) for name, row in cell.items() if "hubbub" not in name)
            for cell in cells
        ]
        largest = {name: max(float(cell[OURS][name]) for cell in cells) for name in ("error_over_optimum", "declared")}
        rows.append(
            {
                "eps": epsilon,
                "cells": f"{len(cells)}",
                "largest error / optimum": f"{largest['error_over_optimum']:.3f}",
                "largest declared": f"{largest['declared']:.3f}",
                "smallest total variation in": f"{sum(first)}",
            }
        )
    return rows


def packages() -> list[Row]:
    """Packages beside hubbub: 1,000 values, 10,000 reports, epsilon 2."""
    return [
        {
            "oracle": name,
            "total variation": row["total_variation"],
            "seconds": row["processor_seconds"],
            "MB": row["memory_mb"],
        }
        for name, row in _cells()["2", "1000", "10000"].items()
        if row["memory_mb"]
    ]


def _few_values() -> Mapping[tuple[str, str], Mapping[str, float]]:
    """Errors of the cells (eps, values) with few values, as a ratio to OUE's, by oracle."""
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for row in read_table("few-values"):
        cell = cells.setdefault((row["eps"], row["values"]), {})
        cell[row["oracle"].removesuffix(", exact")] = float(row["error_over_optimum"])
        if row["oracle"] == CATEGORIES:
            cell["declared"] = float(row["declared"])
    return cells


def few_values() -> list[Row]:
    """Errors of categorical metrics and of the oracles of few values at epsilon 2, as a ratio to OUE's."""
    columns = {
        "hubbub": CATEGORIES,
        "declared": "declared",
        "subset selection": "subset selection",
        "GRR": "GRR",
        "multi-freq-ldpy GRR": "multi-freq-ldpy GRR",
        "two stages: hubbub": f"{CATEGORIES}, at most 2 eps of all reports",
        "L-GRR": "multi-freq-ldpy L-GRR",
    }
    return [
        {"values": values, **{column: f"{cell[name]:.2f}" for column, name in columns.items()}}
        for (eps, values), cell in _few_values().items()
        if eps == "2"
    ]


def _set_errors(error: str) -> list[Row]:
    """Errors of the mechanisms for sets by their formulas, and the measured one of hubbub, a row for each epsilon and size.

    error : "small" or "wide"
    """
    cells: dict[tuple[str, str, str], Row] = {}
    for row in read_table("sets"):
        cell = cells.setdefault((row["eps"], row["items"], row["own"]), {})
        if row["mechanism"] == "hubbub":
            cell["measured"] = _set_error(row[error])
        cell[row["mechanism"]] = _set_error(row[f"{error}_formula"])
    return [{"eps": eps, "M, m": f"{int(items):,}, {own}", **errors} for (eps, items, own), errors in cells.items()]


def _set_error(text: str) -> str:
    return f"{float(f'{float(text):.3g}'):,g}"


def sets() -> list[Row]:
    """Errors of a small share of sets."""
    return _set_errors("small")


def wide_sets() -> list[Row]:
    """Errors of shares from 1/m to 1 of sets."""
    return _set_errors("wide")


def hashed_sets() -> list[Row]:
    """Errors of hashed items, the mean of all items."""
    columns = {"measured": "error", "law": "law", "Wheel": "Wheel", "ask one": "ask one", "below 1 %": "rare"}
    return [
        {
            "eps": row["eps"],
            "M, m": f"{int(row['items']):,}, {row['own']}",
            "clients": f"{int(row['clients']):,}",
            **{column: _set_error(row[name]) for column, name in columns.items()},
            "coverage": f"{float(row['coverage']):.3f}",
        }
        for row in read_table("hashed-sets")
    ]


def hashed_strings() -> list[Row]:
    """Errors of hashed rows over those of the planned bits, of one report, by epsilon and number of values."""
    rows = [row for row in read_table("hashed-strings") if (row["reports"], row["mechanism"]) == ("1", "row")]
    cells: dict[str, Row] = {}
    for row in rows:
        cells.setdefault(row["eps"], {})[f"{int(row['values']):,} values"] = row["error"]
    return [{"eps": eps, **errors} for eps, errors in cells.items()]


def repeated_strings() -> list[Row]:
    """Errors over those of the planned bits and entropies of permanent responses, of thirty reports."""
    cells: dict[tuple[str, str], dict[str, Row]] = {}
    for row in read_table("hashed-strings"):
        if row["reports"] == "30":
            cells.setdefault((row["eps"], row["values"]), {})[row["mechanism"]] = row
    return [
        {
            "eps": eps,
            "values": f"{int(values):,}",
            **{f"{name} / bits": cell[name]["error"] for name in ("index", "noisy")},
            **{f"name of {name}": cell[name]["name_bits"] for name in ("bits", "index", "noisy")},
        }
        for (eps, values), cell in cells.items()
    ]


def ingestion_cost() -> list[Row]:
    """Processor time of a batch, before and after the append on the driver's connection, and its ratios to other applications."""
    before = {(row["reports"], row["connections"]): row for row in read_table("ingestion-cost-before")}
    return [
        {
            "reports": f"{int(row['reports']):,}",
            "connections": row["connections"],
            "ASGI, us": row["raw_us"],
            "FastAPI, us": row["fastapi_us"],
            "inserts, us": row["inserts_us"],
            "aggregator, us": f"{old['aggregator_us']}, now {row['aggregator_us']}",
            "/ FastAPI": f"{old['us_over_fastapi']}, now {row['us_over_fastapi']}",
            "/ inserts": f"{old['us_over_inserts']}, now {row['us_over_inserts']}",
            "rate / inserts": f"{old['rate_over_inserts']}, now {row['rate_over_inserts']}",
        }
        for row in read_table("ingestion-cost")
        if (old := before.get((row["reports"], row["connections"])))
    ]


def decode_time() -> list[Row]:
    """Seconds of decoding by the number of candidates."""
    return [
        {
            "counts": row["counts"],
            "candidates": f"{int(row['candidates']):,}",
            "`decode`, s": row["decode_seconds"],
            "process, s": row["process_seconds"],
        }
        for row in read_table("decode-time")
        if row["num_hashes"] == "1" and int(row["candidates"]) in {300, 1_000, 10_000, 100_000}
    ]


def folds() -> list[Row]:
    """Seconds and memory of a fold by both engines."""
    rows = read_table("folds")
    both = [
        {row["engine"]: row for row in rows if row["reports"] == reports}
        for reports in dict.fromkeys(r["reports"] for r in rows)
    ]
    return [
        {
            "reports": f"{int(cell['arrow']['reports']):,}",
            "`arrow`, s": cell["arrow"]["seconds"],
            "`spark`, s": cell["spark"]["seconds"],
            "start of `spark`, s": cell["spark"]["start_seconds"],
            "`arrow`, MB": cell["arrow"]["memory_mb"],
            "`spark`, MB": cell["spark"]["memory_mb"],
        }
        for cell in both
    ]


def audit_leaks() -> list[Row]:
    """Broken clients and the verdict of an audit of each."""
    rows = []
    for row in read_table("audit-leaks"):
        first, *others = row["by"].split(", ")
        by = f"{first} and {format_count(len(others), 'other test')}" if others else first
        rows.append(
            {
                "leak": row["leak"],
                "verdict": row["verdict"],
                "by": by,
                "clients": row["clients"],
                "seconds": row["seconds"],
            }
        )
    return rows


def smallest_leaks() -> list[Row]:
    """Smallest share of true reports that an audit shows, by definition."""
    return [{name: row[name] for name in row if name != "commit"} for row in read_table("audit-smallest-leaks")]


TABLES: Mapping[str, Callable[[], list[Row]]] = {
    "grid": grid,
    "random-tasks": random_tasks,
    "curator": curator,
    "largest-errors": largest_errors,
    "packages": packages,
    "few-values": few_values,
    "sets": sets,
    "wide-sets": wide_sets,
    "hashed-sets": hashed_sets,
    "hashed-strings": hashed_strings,
    "repeated-strings": repeated_strings,
    "ingestion-cost": ingestion_cost,
    "decode-time": decode_time,
    "folds": folds,
    "audit-leaks": audit_leaks,
    "audit-smallest-leaks": smallest_leaks,
}


def with_tables(page: str) -> str:
    """Text of a page with its tables written again."""
    return _BLOCK.sub(lambda found: "\n".join([found[0].partition("\n")[0], *markdown(TABLES[found[1]]()), ""]), page)


def draw_grid() -> Figure:
    """Total variation of both decoders in each cell of google/rappor's grid."""
    rows = read_table("google-rappor-grid")
    axes = (figure := Figure(figsize=(7, 4.4), layout="constrained")).subplots()
    places = np.arange(len(rows))[::-1]
    theirs, ours = (np.array([float(row[name]) for row in rows]) for name in ("tv_r", "tv"))
    axes.hlines(places, ours, theirs, color="#ced4da", linewidth=2, zorder=1)
    axes.plot(theirs, places, "o", color=_OTHERS[0], label="google/rappor's decoder")
    axes.plot(ours, places, "o", color=_OURS, label="hubbub")
    axes.set_yticks(places, [f"{row['size']} {row['config']}" for row in rows])
    axes.set(xlabel="total variation between estimated and true distribution (smaller is better)", xlim=(0, None))
    _finish(axes)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def draw_curator() -> Figure:
    """Error of the share over the number of clients, one panel for each epsilon; the line of randomized response is its law."""
    rows = read_table("curator")
    panels = _panels(figure := Figure(figsize=(10.2, 3.6), layout="constrained"))
    for axes, epsilon in zip(panels, ("1", "2", "4"), strict=True):
        group = [row for row in rows if row["eps"] == epsilon]
        clients, eps = np.array([int(row["clients"]) for row in group]), float(epsilon)
        axes.plot(clients, math.exp(eps / 2) / math.expm1(eps) / np.sqrt(clients), color=_OURS, linewidth=1)
        for name, marker, colour in zip(
            ("randomized response", "Gaussian", "Laplace"), "os^", (_OURS, *_OTHERS[:2]), strict=True
        ):
            errors = np.array([float(row[name.lower().replace(" ", "_")]) for row in group]) / clients
            line = "none" if colour == _OURS else "-"
            label = name if axes is panels[0] else None
            axes.plot(clients, errors, marker, color=colour, linestyle=line, linewidth=1, markersize=4.5, label=label)
        axes.set(xscale="log", yscale="log", xlabel="clients N", title=f"epsilon = {epsilon}")
        _finish(axes)
    panels[0].set_ylabel("standard error of the share")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def draw_oracles() -> Figure:
    """Total variation of the oracles over the number of values, one panel for each epsilon."""
    panels = _panels(figure := Figure(figsize=(10.2, 3.6), layout="constrained"))
    for axes, epsilon in zip(panels, ("1", "2", "4"), strict=True):
        cells = {
            int(values): cell
            for (eps, values, reports), cell in _cells().items()
            if (eps, reports) == (epsilon, REPORTS)
        }
        for name, colour in zip((OURS, *LAWS), (_OURS, *_OTHERS), strict=True):
            variation = [float(cell[name]["total_variation"]) for cell in cells.values()]
            label = name if axes is panels[0] else None
            axes.plot(
                list(cells), variation, "o-", color=colour, linewidth=1 + (name == OURS), markersize=4.5, label=label
            )
        axes.set(xscale="log", xlabel="values", title=f"epsilon = {epsilon}", ylim=(0, 1.02))
        _finish(axes)
    panels[0].set_ylabel("total variation")
    figure.legend(loc="outside upper center", ncols=6, frameon=False)
    return figure


def _panels(figure: Figure) -> list[Axes]:
    return list(figure.subplots(1, 3, sharey=True))


def _finish(axes: Axes) -> None:
    axes.grid(visible=True, color="#e3e6ea", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_few_values() -> Figure:
    """Error of categorical metrics over the number of values, beside the laws of subset selection and GRR."""
    panels = _panels(figure := Figure(figsize=(10.2, 3.6), layout="constrained"))
    for axes, epsilon in zip(panels, ("1", "2", "4"), strict=True):
        cells = {int(values): cell for (eps, values), cell in _few_values().items() if eps == epsilon}
        axes.axhline(1, color=_OTHERS[2], linewidth=1, label="OUE" if axes is panels[0] else None)
        for name, label, colour in (
            ("declared", "hubbub, declared", _OURS),
            ("subset selection", "subset selection", _OTHERS[0]),
            ("GRR", "GRR", _OTHERS[1]),
        ):
            errors = [cell[name] for cell in cells.values()]
            axes.plot(list(cells), errors, "-", color=colour, label=label if axes is panels[0] else None)
        measured = [cell[CATEGORIES] for cell in cells.values()]
        legend = "hubbub, measured" if axes is panels[0] else None
        axes.plot(list(cells), measured, "o", color=_OURS, markersize=4.5, label=legend)
        axes.set(xscale="log", yscale="log", xlabel="values M", title=f"epsilon = {epsilon}")
        axes.set_xticks(list(cells), list(map(str, cells)))
        axes.minorticks_off()
        _finish(axes)
    panels[0].set_ylabel("error / that of OUE")
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    return figure


PICTURE_OF: Mapping[str, Callable[[], Figure]] = {
    "accuracy.svg": draw_grid,
    "central-comparison.svg": draw_curator,
    "frequency-oracles.svg": draw_oracles,
    "few-values.svg": draw_few_values,
}


def main() -> None:
    """Write the tables into the pages, and the pictures."""
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name, draw in PICTURE_OF.items():
        with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
            draw().savefig(Path(PICTURES / name), metadata={"Date": None})


if __name__ == "__main__":
    main()
