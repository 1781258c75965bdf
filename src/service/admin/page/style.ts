import { chartStyle } from "../../../rotation/explain/plan-chart.ts";

export const style = `
:root {
  --paper: #ffffff; --ground: #f3f5f8; --ink: #1c2430; --quiet: #566070; --line: #d5dbe3; --code: #eef1f5;
  --good: #23693f; --wrong: #a8201a; --doubt: #7a5300; --link: #2a5d94;
  --wrong-ground: #fdeeed; --doubt-ground: #fff6dd; --good-ground: #e8f5ec;
}
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #161b22; --ground: #0d1117; --ink: #e6eaf0; --quiet: #9aa6b5; --line: #303843; --code: #212832;
  --good: #6fcf97; --wrong: #ff8a80; --doubt: #f0c04a; --link: #7fb0e6;
  --wrong-ground: #3a1a1a; --doubt-ground: #362a0d; --good-ground: #14301f;
} }
* { box-sizing: border-box; }
html { background: var(--ground); color: var(--ink); -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 70rem; padding: 1.25rem; font: 0.9375rem/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1, h2, h3, p, dl, dd, ol, ul, pre { margin: 0; padding: 0; }
h1 { font-size: 1.25rem; font-weight: 400; }
.brand { font-weight: 700; }
.issuer { color: var(--quiet); }
h2 { font-size: 1rem; margin-bottom: 0.75rem; }
h3 { font-size: 0.875rem; margin: 1.25rem 0 0.5rem; }
code, pre { font: 0.84375rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.quiet { color: var(--quiet); }
.good { color: var(--good); }
.wrong { color: var(--wrong); }
.doubtful { color: var(--doubt); }
.skip { position: absolute; left: -100vw; background: var(--paper); color: var(--link); padding: 0.5rem; }
.skip:focus { left: 1rem; top: 1rem; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
header { display: flex; flex-wrap: wrap; gap: 0.25rem 1.5rem; justify-content: space-between; align-items: baseline; margin-bottom: 1rem; }
.live { color: var(--quiet); font-size: 0.875rem; }
.live[data-state]::before { content: ""; display: inline-block; width: 0.6em; height: 0.6em; margin-right: 0.4em; border-radius: 50%; background: var(--good); }
.live[data-state="lost"]::before { background: none; border: 2px solid var(--wrong); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 1rem 1.25rem; margin-bottom: 1rem; }
#headline { font-size: 1.0625rem; }
section:has(.verdict.good) { background: var(--good-ground); }
section:has(.verdict.wrong) { background: var(--wrong-ground); }
section:has(.verdict.doubtful) { background: var(--doubt-ground); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: 0.75rem 1.5rem; }
dt { color: var(--quiet); font-size: 0.8125rem; }
.glance .verb, .glance .quiet { display: block; }
.glance .quiet { font-size: 0.8125rem; }
.faults { list-style: none; margin-top: 0.75rem; display: grid; gap: 1rem; }
.fault { border-left: 4px solid var(--wrong); padding-left: 0.875rem; display: grid; gap: 0.375rem; }
.fault.warning { border-color: var(--doubt); }
.fault-kind { font-size: 0.875rem; }
.badge { display: inline-block; padding: 0 0.5em; border: 1px solid var(--line); border-radius: 1em; font-size: 0.8125rem; white-space: nowrap; }
.badge.active { background: #2f7d4f; border-color: #2f7d4f; color: #ffffff; }
.badge.announced { border: 1px dashed var(--doubt); color: var(--doubt); background: var(--doubt-ground); }
.badge.retiring { border-color: var(--link); color: var(--link); }
.badge.error, .badge.stale, .badge.revoked { border-color: var(--wrong); color: var(--wrong); }
.badge.warn, .badge.warning { border-color: var(--doubt); color: var(--doubt); }
.copyable { position: relative; margin-top: 0.5rem; }
pre { background: var(--code); border-radius: 6px; padding: 0.625rem 0.75rem; white-space: pre-wrap; max-height: 22rem; overflow-y: auto; }
button { display: none; position: absolute; top: 0.375rem; right: 0.375rem; font: inherit; font-size: 0.8125rem; padding: 0.125rem 0.625rem; background: var(--paper); color: var(--ink); border: 1px solid var(--line); border-radius: 6px; cursor: pointer; }
.scripted button { display: block; }
.scripted pre { padding-right: 5.5rem; }
.scroll { overflow-x: auto; }
.chart { display: block; max-width: 100%; height: auto; margin: 0 auto; }
.chart.wide { width: 100%; }
.chart.swatch { display: inline-block; vertical-align: -2px; margin: 0; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; margin-top: 0.5rem; font-size: 0.8125rem; }
.waits { border-left: 4px solid var(--doubt); padding-left: 0.875rem; margin-top: 0.75rem; }
.steps { list-style: none; display: grid; gap: 0.75rem; }
.columns { display: grid; grid-template-columns: 3fr 2fr; gap: 0 2.5rem; }
.step-time { font-size: 0.875rem; font-weight: 600; }
.step-time .quiet { font-weight: 400; }
.step-number { display: inline-block; min-width: 1.5em; border-radius: 1em; background: var(--ink); color: var(--paper); font-size: 0.8125rem; text-align: center; }
.steps p.quiet { font-size: 0.875rem; }
table { width: 100%; border-collapse: collapse; font-size: 0.875rem; }
th, td { text-align: left; vertical-align: top; padding: 0.375rem 1rem 0.375rem 0; border-top: 1px solid var(--line); font-weight: 400; }
/* A kid wraps to two lines at most; the table scrolls instead. */
td { min-width: 4.5rem; }
tbody th, td:has(code) { min-width: 13rem; }
td time, th time { white-space: nowrap; }
td .quiet:has(.relative), th .quiet:has(.relative), td .verb { display: block; }
thead th { border-top: 0; color: var(--quiet); font-size: 0.8125rem; white-space: nowrap; }
.detail { color: var(--quiet); }
footer { color: var(--quiet); font-size: 0.8125rem; }
svg.chart {${chartStyle}
}
@media (max-width: 46rem) {
  body { padding: 0.75rem; }
  section { padding: 0.75rem 0.875rem; }
  .columns { display: block; }
  .chart.wide { width: auto; max-width: none; }
}
`;
