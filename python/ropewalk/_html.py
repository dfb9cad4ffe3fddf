"""Tables in notebooks."""

from __future__ import annotations

import re
from html import escape
from typing import Any


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.3f} s"


def _ratio(versus: Any) -> str:
    ratio = versus.get("ratio") if isinstance(versus, dict) else None
    text = "" if ratio is None else f"{(ratio - 1) * 100:+.0f} %"
    return "0 %" if text in ("+0 %", "-0 %") else text


def _text(text: str) -> str:
    """Give text as HTML, with what stands between backticks as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))


def comparison(document: dict[str, Any]) -> str:
    """Show a comparison as the report does: the answer, then a ranking per workload."""
    parts = [f"<p><b>{_text(str(document['verdict']))}</b></p>"]
    for ranking in document["rankings"]:
        head = "".join(
            f"<th>{name}</th>"
            for name in ("", "scheduler", "mean", "p50", "p95", "vs linux", "vs tcp", "finished")
        )
        rows = []
        for row in ranking["rows"]:
            cells = [
                str(row.get("standing", "")),
                str(row["scheduler"]),
                _seconds(row.get("fct_mean_s")),
                _seconds(row.get("fct_p50_s")),
                _seconds(row.get("fct_p95_s")),
                _ratio(row.get("versus_linux")),
                _ratio(row.get("versus_best_tcp")),
                f"{row['finished_runs']} of {row['runs']}",
            ]
            rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
        parts.append(
            f"<h4>{escape(str(ranking['workload']))}</h4><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>"
        )
    return "".join(parts)
