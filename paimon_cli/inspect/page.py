"""The frame of every HTML page that the program writes: one file without scripts and without external references.

The policy in its head forbids a browser to load anything, whatever the texts in the body are. Colours follow the reader's light
or dark theme.
"""

from __future__ import annotations

from paimon_cli.inspect.charts import STYLE, escape

PAGE_STYLE = """\
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
h3 { font-size: .95rem; margin: 1rem 0 .3rem; font-weight: 600; overflow-wrap: anywhere; } p { margin: .3rem 0; }
.faint { color: var(--faint); } code { font: .85rem ui-monospace, monospace; overflow-wrap: anywhere; }
.verdict { display: inline-block; padding: .05rem .6rem; border: 1.5px solid currentColor; border-radius: 1rem;
  font-weight: 600; white-space: nowrap; }
.good { color: var(--good); } .care { color: var(--care); } .bad { color: var(--bad); }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
dl.tiles > div { background: var(--panel); border-radius: .4rem; padding: .5rem .8rem; }
dl.tiles dt { color: var(--faint); font-size: .8rem; } dl.tiles dd { margin: 0; font-size: 1.15rem; overflow-wrap: anywhere; }
figure { margin: .4rem 0 1rem; }
.scroll { overflow-x: auto; } svg { display: block; width: 100%; height: auto; }
.narrow { display: none; max-width: 30rem; }
@media screen and (max-width: 48rem) { .wide { display: none; } .narrow { display: block; } }
@media print { :root { color-scheme: light; } body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  figure, li, dl.tiles > div { break-inside: avoid; } h1, h2, h3 { break-after: avoid; } details:not([open]) { display: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
ul.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; padding: 0; margin: .3rem 0; font-size: .85rem; }
ul.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .35rem; }
table { border-collapse: collapse; font-size: .85rem; } th, td { text-align: left; padding: .15rem .8rem .15rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; } .number { text-align: right; font-variant-numeric: tabular-nums; }
td { max-width: 28rem; overflow-wrap: anywhere; } th { white-space: nowrap; }
details { margin: .3rem 0; } summary { cursor: pointer; color: var(--faint); font-size: .85rem; }
ol.findings { padding-left: 1.3rem; } ol.findings li { margin: .5rem 0; } pre { background: var(--panel); padding: .5rem .8rem;
  border-radius: .4rem; white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; font: .85rem ui-monospace, monospace; }
"""


def page(title: str, body: str, made: str, style: str = "") -> str:
    """A page as text. `body`: HTML whose texts are escaped; `made`: who made the page, and from what; `style`: more CSS."""
    policy = "default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>
{STYLE}{PAGE_STYLE}{style}</style>
</head>
<body>
<main>
{body}
<p class="faint">{escape(made)}</p>
</main>
</body>
</html>
"""
