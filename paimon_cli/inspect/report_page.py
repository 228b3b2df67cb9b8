"""The page of `report`: one HTML file without scripts and without references to anything outside of it.

Every chart is followed by the same figures as a table. Colours follow the reader's choice of light or dark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone

from paimon_cli.inspect.charts import (
    STYLE,
    Axis,
    Bar,
    Line,
    Part,
    bars,
    binned,
    columns,
    escape,
    figure,
    lines,
    table_of,
)
from paimon_cli.inspect.health_report import HEALTHY, NEEDS_CARE
from paimon_cli.inspect.report_buckets import compaction_debt, key_ranges, levels_of_buckets
from paimon_cli.inspect.report_figures import Moment, ReportFigures
from paimon_cli.options.option_text import counted, human_size

MOST_LINES, MOST_VALUES = 60, 100
"""The most lines of a table below a chart, and the most columns and options that are listed."""
KIND_ORDER = ("APPEND", "COMPACT", "OVERWRITE", "ANALYZE")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

PAGE_STYLE = """\
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
h3 { font-size: .95rem; margin: 1rem 0 .3rem; font-weight: 600; overflow-wrap: anywhere; } p { margin: .3rem 0; }
.faint { color: var(--faint); } code { font: .85rem ui-monospace, monospace; overflow-wrap: anywhere; }
.verdict { display: inline-block; padding: .05rem .6rem; border: 1.5px solid currentColor; border-radius: 1rem;
  font-weight: 600; }
.good { color: var(--good); } .care { color: var(--care); } .bad { color: var(--bad); }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
dl.tiles > div { background: var(--panel); border-radius: .4rem; padding: .5rem .8rem; }
dl.tiles dt { color: var(--faint); font-size: .8rem; } dl.tiles dd { margin: 0; font-size: 1.15rem; overflow-wrap: anywhere; }
figure { margin: .4rem 0 1rem; }
.scroll { overflow-x: auto; } svg { display: block; width: 100%; min-width: 34rem; height: auto; }
ul.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; padding: 0; margin: .3rem 0; font-size: .85rem; }
ul.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .35rem; }
table { border-collapse: collapse; font-size: .85rem; } th, td { text-align: left; padding: .15rem .8rem .15rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; } .number { text-align: right; font-variant-numeric: tabular-nums; }
td { max-width: 28rem; overflow-wrap: anywhere; } th { white-space: nowrap; }
details { margin: .3rem 0; } summary { cursor: pointer; color: var(--faint); font-size: .85rem; }
ol.findings { padding-left: 1.3rem; } ol.findings li { margin: .5rem 0; } pre { background: var(--panel); padding: .5rem .8rem;
  border-radius: .4rem; overflow-x: auto; margin: .3rem 0; font: .85rem ui-monospace, monospace; }
"""


def report_page(figures: ReportFigures, version: str) -> str:
    """The page as text."""
    sections = (_head, _findings, _history, _commits, levels_of_buckets, key_ranges, compaction_debt, _definition)
    body = "\n".join(part for section in sections for part in section(figures))
    policy = "default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;"
    made = f"Made by paimon-cli {escape(version)} on {_time(figures.millis)} UTC from the metadata of the table."
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(figures.name)}: Paimon table</title>
<style>
{STYLE}{PAGE_STYLE}</style>
</head>
<body>
<main>
{body}
<p class="faint">{made}</p>
</main>
</body>
</html>
"""


def _head(figures: ReportFigures) -> Iterator[str]:
    table, verdict = figures.description, figures.health.verdict
    colour = {HEALTHY: "good", NEEDS_CARE: "care"}.get(verdict, "bad")
    yield f"<h1>{escape(figures.name)}</h1>"
    yield f'<p><span class="verdict {colour}">{escape(verdict)}</span> <span class="faint">{escape(_kind(figures))}</span></p>'
    tiles = [
        ("Snapshot", "none yet" if table.snapshot_id is None else f"{table.snapshot_id:,}"),
        ("Last commit (UTC)", "-" if table.time is None else _time(table.time)),
        ("Records before merging", f"{table.records:,}"),
        ("Data files", f"{table.files:,}"),
        ("Size", human_size(table.size)),
        ("Partitions", f"{table.partitions:,}"),
        ("Buckets with files", f"{table.buckets:,}"),
        ("Snapshots", f"{table.snapshots:,}"),
    ]
    if table.sorted_runs is not None:
        tiles.append(("Most sorted runs", f"{table.sorted_runs:,}"))
    yield '<dl class="tiles">'
    yield from (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    yield "</dl>"


def _kind(figures: ReportFigures) -> str:
    table = figures.description
    buckets = {"-1": "buckets as needed", "-2": "postponed buckets"}.get(table.bucket, counted(int(table.bucket), "bucket"))
    keyed = f"primary key ({', '.join(table.primary_keys)}), {table.merge_engine}" if table.primary_keys else "append table"
    parted = f", partitioned by {', '.join(table.partition_keys)}" if table.partition_keys else ""
    return f"{keyed}{parted}, {buckets}, branch {table.branch}"


def _findings(figures: ReportFigures) -> Iterator[str]:
    yield "<h2>Findings</h2>"
    if not figures.health.findings:
        yield "<p>No findings.</p>"
        return
    yield '<ol class="findings">'
    for found in figures.health.findings:
        colour = "bad" if found.severity == "error" else "care"
        command = f"<pre>{escape(found.command)}</pre>" if found.command else ""
        what = f"{escape(found.subject)}: {escape(found.message)}"
        yield f'<li><b class="{colour}">{escape(found.severity)}</b> <code>{escape(found.code)}</code> {what}{command}</li>'
    yield "</ol>"


def _history(figures: ReportFigures) -> Iterator[str]:
    moments = figures.history
    yield "<h2>Size and amplification over time</h2>"
    if not moments:
        yield "<p>Nothing was committed yet.</p>"
        return
    if figures.history_ends:
        yield f'<p class="faint">Shown: {escape(figures.history_ends)}.</p>'
    first, last = moments[0], moments[-1]
    span = f"from snapshot {first.snapshot_id} to {last.snapshot_id}"
    across = Axis(str, ends=(_moment(first), _moment(last)))
    size = [Line([(n, moment.size) for n, moment in enumerate(moments)])]
    says = f"{human_size(first.size)} {span} became {human_size(last.size)}"
    yield figure("size", "Bytes of live data files", says, lines(size, Axis(_size, 1024), across))
    files = [Line([(n, moment.files) for n, moment in enumerate(moments)])]
    says = f"{counted(first.files, 'file')} {span} became {last.files:,}"
    yield figure("files", "Live data files", says, lines(files, Axis(_whole), across))
    if figures.has_keys:
        yield from _amplification(moments, across, span)
    shown = [group[-1] for group in binned(moments, MOST_LINES)]
    yield table_of(
        ("Snapshot", "Time (UTC)", "Files", "Size", *(("Most runs", "Mean runs", "Space") if figures.has_keys else ())),
        ([f"{m.snapshot_id}", _time(m.millis), f"{m.files:,}", human_size(m.size), *_runs_cells(m)] for m in reversed(shown)),
        numbers=(0, 2, 3, 4, 5, 6),
    )


def _runs_cells(moment: Moment) -> list[str]:
    return [] if moment.most_runs is None else [f"{moment.most_runs}", f"{moment.mean_runs}", f"{moment.space_percent}%"]


def _amplification(moments: Sequence[Moment], across: Axis, span: str) -> Iterator[str]:
    most = Line([(n, m.most_runs or 0) for n, m in enumerate(moments)], "second", filled=False)
    mean = Line([(n, m.mean_runs or 0) for n, m in enumerate(moments)])
    says = f"sorted runs of a bucket that a reader merges, {span}: at most {max(m.most_runs or 0 for m in moments)}"
    legend = [("accent", "mean of the buckets"), ("l0", "the bucket with most")]
    yield figure("runs", "Read amplification", says, lines([mean, most], Axis(_whole), across), legend)
    space = Line([(n, m.space_percent or 0) for n, m in enumerate(moments)])
    says = f"bytes above the oldest runs in percent of these, {span}: now {moments[-1].space_percent}%"
    yield figure("space", "Space amplification", says, lines([space], Axis(lambda value: f"{value:g}%"), across))


def _commits(figures: ReportFigures) -> Iterator[str]:
    if not figures.kinds:
        return
    yield "<h2>Commits</h2>"
    kinds = [kind for kind in KIND_ORDER if any(found == kind for _, found in figures.kinds)]
    groups = []
    for group in binned(figures.kinds):
        counts = Counter(kind for _, kind in group)
        where = f"snapshot {group[0][0]}" if len(group) == 1 else f"snapshots {group[0][0]} to {group[-1][0]}"
        parts = [Part(counts[k], k.lower(), f"{where}: {counts[k]} {k}") for k in kinds if counts[k]]
        groups.append(Bar(where, parts))
    total = Counter(kind for _, kind in figures.kinds)
    says = f"{counted(len(figures.kinds), 'snapshot')}: " + ", ".join(f"{total[kind]:,} {kind}" for kind in kinds)
    ends = (f"snapshot {figures.kinds[0][0]}", f"snapshot {figures.kinds[-1][0]}")
    legend = [(kind.lower(), kind) for kind in kinds]
    yield figure("kinds", "Snapshot history", says, columns(groups, Axis(_whole), Axis(str, ends=ends)), legend)
    rows = [
        Bar(
            row.user,
            [Part(n, kind.lower(), f"{row.user}: {n:,} {kind}") for kind in kinds if (n := row.kinds.get(kind, 0))],
            f"{row.commits:,}" + (f" of {row.users:,} users" if row.users > 1 else ""),
        )
        for row in figures.committers
    ]
    says = "; ".join(f"{row.user} {row.commits:,}" for row in figures.committers)
    yield figure("users", "Commits by user", says, bars(rows), legend)
    yield table_of(
        ("User", "Users", *kinds, "Last commit (UTC)"),
        (
            [row.user, f"{row.users:,}", *(f"{row.kinds.get(kind, 0):,}" for kind in kinds), _time(row.last)]
            for row in figures.committers
        ),
        numbers=range(1, len(kinds) + 2),
    )


def _definition(figures: ReportFigures) -> Iterator[str]:
    table = figures.description
    yield "<h2>Definition</h2>"
    yield f"<p><code>{escape(table.path)}</code></p>"
    yield table_of(
        ("Column", "Type", "Key", "Comment"),
        ([column.name, column.type, column.key, column.comment or ""] for column in table.columns[:MOST_VALUES]),
        summary=counted(len(table.columns), "column"),
    )
    options = sorted(table.options.items())
    yield table_of(
        ("Option", "Value"), ([key, value] for key, value in options[:MOST_VALUES]), summary=counted(len(options), "option")
    )


def _moment(moment: Moment) -> str:
    return f"{moment.snapshot_id}: {_time(moment.millis)}"


def _time(millis: int) -> str:
    try:
        return f"{_EPOCH + timedelta(milliseconds=millis):%Y-%m-%d %H:%M}"
    except OverflowError:
        return str(millis)


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _size(value: float) -> str:
    return human_size(int(value))
