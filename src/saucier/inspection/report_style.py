"""How a report looks: one style sheet, readable in the light and in the dark, on paper and on a small screen."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbf9f4; --raised: #fffefb; --ink: #26221d; --soft: #6f675c; --line: #e4ddd0; --track: #eee8dc;
  --accent: #a63a24; --accent-soft: #dba694; --second: #2f6b6a; --good: #33713f; --bad: #a63a24;
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "Book Antiqua", "URW Palladio L", Georgia, "Noto Serif",
           "DejaVu Serif", serif;
  --sans: -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, system-ui,
          sans-serif;
  --mono: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono",
          monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #181613; --raised: #201d19; --ink: #ece5d9; --soft: #a79d8e; --line: #38332b; --track: #2b2721;
    --accent: #ef8a6a; --accent-soft: #7d4a39; --second: #7cc0b8; --good: #8cc796; --bad: #ef8a6a;
  }
}
* { box-sizing: border-box; }
html { background: var(--paper); -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 4rem 1.5rem 5rem; max-width: 54rem; color: var(--ink); background: var(--paper);
       font: 1rem/1.55 var(--sans); font-variant-numeric: lining-nums; text-rendering: optimizeLegibility; }
h1, h2 { font-family: var(--serif); font-weight: 600; line-height: 1.15; letter-spacing: -0.01em; }
h1 { margin: 0 0 .6rem; font-size: clamp(2.2rem, 6vw, 3.3rem); }
h2 { margin: 0 0 1.1rem; font-size: 1.45rem; }
h3 { margin: 1.8rem 0 .6rem; font-size: .95rem; font-weight: 600; }
p { margin: 0 0 .9rem; max-width: 40rem; }
a { color: var(--accent); }
section { margin-top: 3.4rem; padding-top: 1.5rem; border-top: 1px solid var(--line); }
.eyebrow { margin: 0 0 .8rem; color: var(--accent); font-size: .78rem; font-weight: 600; letter-spacing: .09em;
           text-transform: uppercase; }
.lead { color: var(--ink); font: 1.2rem/1.5 var(--serif); }
.soft, figcaption, .note { color: var(--soft); }
.note { font-size: .9rem; }
.key { margin-top: -.6rem; }
.scroll + .note { margin-top: .9rem; }
.good { color: var(--good); } .bad { color: var(--bad); }

.headline { display: grid; grid-template-columns: minmax(12rem, 17rem) 1fr; gap: 1.5rem 3rem; align-items: center;
            border-top: 0; margin-top: 2.2rem; padding: 2rem; background: var(--raised); border: 1px solid var(--line);
            border-radius: .6rem; }
.headline .value { font: 600 4rem/1 var(--serif); letter-spacing: -0.03em; color: var(--accent); }
.headline .unit { margin-top: .4rem; font-weight: 600; }
.headline .verdict { margin: .8rem 0 0; font-size: .92rem; line-height: 1.45; color: var(--soft); }
.headline.alone { grid-template-columns: 1fr; }

.bars { position: relative; display: grid; gap: .85rem; font-size: .92rem; }
.bar .name { display: flex; justify-content: space-between; gap: 1rem; align-items: baseline; }
.bar .name b { font-weight: 600; }
.bar .name span { font-variant-numeric: tabular-nums; }
.bar .track { position: relative; height: .8rem; margin-top: .25rem; background: var(--track); border-radius: 2px; }
.bar .fill { height: 100%; background: var(--soft); opacity: .55; border-radius: 2px; }
.bar.ours .fill { background: var(--accent); opacity: 1; }
.bar.ours .name { color: var(--accent); }
.bar .target { position: absolute; top: -.2rem; bottom: -.2rem; width: 0; border-left: 2px solid var(--ink); }
.bar .about { color: var(--soft); font-size: .8rem; line-height: 1.35; margin-top: .15rem; }

.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(7rem, 1fr)); gap: 1.2rem 1rem;
         margin: 2rem 0 0; padding: 0; }
.facts div { border-left: 2px solid var(--line); padding-left: .8rem; }
.facts dt { color: var(--soft); font-size: .8rem; }
.facts dd { margin: .1rem 0 0; font: 600 1.05rem/1.4 var(--serif); white-space: nowrap; }
.facts dd small { display: block; white-space: normal; font: .78rem/1.35 var(--sans); color: var(--soft); }

figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: var(--sans) !important; fill: var(--soft); }
figcaption { margin-top: .8rem; font-size: .9rem; max-width: 40rem; }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums lining-nums; }
th, td { padding: .38rem 1.1rem .38rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-size: .8rem; font-weight: 500; border-bottom-color: var(--soft); white-space: nowrap; }
th.number, td.number { text-align: right; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
table.narrow { max-width: 26rem; margin-bottom: 1.2rem; }
table.anatomy { font-size: .85rem; }
table.anatomy td { padding-top: .2rem; padding-bottom: .2rem; border-bottom: 0; }
table.anatomy td:first-child, table.anatomy td:nth-child(3) { white-space: nowrap; }
table.anatomy tbody tr:hover, table.plain tbody tr:hover { background: var(--track); }
.share { display: inline-block; width: 5rem; height: .5rem; background: var(--track); vertical-align: middle;
         border-radius: 2px; overflow: hidden; }
.share i { display: block; height: 100%; background: var(--second); }

.phases { display: flex; gap: 2px; height: 1.4rem; margin: .2rem 0 1rem; border-radius: 3px; overflow: hidden; }
.phases i { background: var(--second); min-width: 2px; }
.phases i:nth-child(even) { opacity: .55; }

blockquote { margin: 0 0 1.6rem; padding: 1.2rem 1.5rem; background: var(--raised); border: 1px solid var(--line);
             border-left: 3px solid var(--accent); border-radius: .3rem; }
blockquote header { margin-bottom: .7rem; color: var(--soft); font-size: .8rem; }
blockquote pre, pre { margin: 0; font: .84rem/1.55 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; }
blockquote .prompt { color: var(--soft); }
blockquote mark { background: none; color: var(--ink); }
blockquote footer { margin-top: .9rem; padding-top: .7rem; border-top: 1px solid var(--line); font-size: .86rem;
                    color: var(--soft); }

dl.record { display: grid; grid-template-columns: minmax(9rem, max-content) 1fr; gap: .3rem 1.6rem; margin: 0;
            font-size: .9rem; }
dl.record dt { color: var(--soft); }
dl.record dd { margin: 0; overflow-wrap: anywhere; }
dl.record dd dl.record { grid-template-columns: minmax(7rem, max-content) 1fr; }
code { font: .88em var(--mono); overflow-wrap: anywhere; }
details { margin-top: 1.5rem; }
summary { cursor: pointer; font-weight: 600; font-size: .95rem; }
details pre { margin-top: .9rem; padding: 1rem 1.2rem; background: var(--raised); border: 1px solid var(--line);
              border-radius: .3rem; }
body > footer { margin-top: 3.5rem; padding-top: 1.2rem; border-top: 1px solid var(--line); color: var(--soft);
                font-size: .85rem; }

@media (max-width: 44rem) {
  body { padding-top: 2rem; }
  .headline { grid-template-columns: 1fr; padding: 1.4rem; }
  dl.record, dl.record dd dl.record { grid-template-columns: 1fr; gap: .1rem; }
  dl.record dd { margin-bottom: .5rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  section { break-inside: avoid; } blockquote { break-inside: avoid; }
}
"""
