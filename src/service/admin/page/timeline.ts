import { kidText } from "../../../rotation/rules/format.ts";
import { type RotationPlan, planKeyName } from "../../../rotation/rules/plan.ts";
import {
  type ChartLayout,
  axisHeight,
  chartLegend,
  chartPatterns,
  narrowLayout,
  planChart,
  wideLayout,
} from "../plan-chart.ts";
import { numberedSteps, planVerbs } from "../plan-scale.ts";
import type { Status } from "../status.ts";
import { Html, html } from "./html.ts";
import { moment, plural } from "./words.ts";

/** The picture of the rotation, with the steps that were taken and those that are planned. */
export function timelinePart({ plan, past, now, waits, source }: Status): Html {
  if (plan === undefined) {
    return source === "files"
      ? html`<p class="quiet">
          jwksd does not manage these keys, so it knows no steps. It reads them again when their files change.
        </p>`
      : html`<p class="quiet">The steps are in the store, which was not reached since the start.</p>`;
  }
  return html`${charts(plan)} ${waits.map(({ text }) => html`<p class="waits">${text}</p>`)}
    <div class="columns">
      <div>
        <h3>Planned</h3>
        ${plannedSteps(plan)}
      </div>
      <div>
        <h3>Past</h3>
        ${pastSteps(past, now)}
      </div>
    </div>`;
}

function pastSteps(past: Status["past"], now: number): Html {
  if (past.length === 0) return html`<p class="quiet">The audit log is empty.</p>`;
  return html`<ol class="steps" role="list">
    ${past.map(
      ({ at, type, use, kid, reason }) =>
        html`<li>
          <p class="step-time">${moment(at, now)}</p>
          <p>${type}${kid === undefined ? undefined : html` ${use} <code>${kidText(kid)}</code>`}</p>
          <p class="quiet">${reason}</p>
        </li>`,
    )}
  </ol>`;
}

function charts(plan: RotationPlan): Html {
  const label = `Timeline of ${plural(plan.keys.length, "key")}; the steps are listed below`;
  // Patterns in a picture that is not displayed would fill nothing.
  return html`<svg class="chart patterns" width="0" height="0" aria-hidden="true">${new Html(chartPatterns)}</svg>
    ${chart(plan, { ...wideLayout, margin: 2 }, axisHeight.wide, "wide", label)}
    ${chart(plan, narrowLayout, axisHeight.narrow, "narrow", label)} ${legend(plan)}`;
}

const top = 50;

function chart(plan: RotationPlan, layout: ChartLayout, below: number, name: string, label: string): Html {
  const { width, bottom, parts } = planChart(plan, layout, top);
  const height = bottom + below;
  return html`<svg
    class="chart ${name}"
    viewBox="0 0 ${width} ${height}"
    width="${width}"
    height="${height}"
    role="img"
    aria-label="${label}"
  >
    ${new Html(parts.join("\n"))}
  </svg>`;
}

function legend(plan: RotationPlan): Html {
  return html`<ul class="legend" role="list">
    ${chartLegend(plan).map(
      ([pattern, meaning]) =>
        html`<li>
          <svg class="chart swatch" width="28" height="15" aria-hidden="true">
            <rect class="${pattern}" x="1" y="1" width="26" height="13" rx="2" />
          </svg>
          ${meaning}
        </li>`,
    )}
    <li class="quiet">not to scale; all times are UTC</li>
  </ul>`;
}

function plannedSteps(plan: RotationPlan): Html {
  const moments = numberedSteps(plan);
  if (moments.length === 0) return html`<p class="quiet">No step is ahead.</p>`;
  return html`<ol class="steps" role="list">
    ${moments.map(
      ({ number, at, steps }) =>
        html`<li>
          <p class="step-time"><span class="step-number">${number}</span> ${moment(at, plan.now)}</p>
          ${steps.map(
            (step) =>
              html`<p>${planVerbs[step.action]} ${step.use} <code>${planKeyName(plan, step)}</code></p>
                <p class="quiet">${step.reason}<span class="bound"> [${step.bound}]</span></p>`,
          )}
        </li>`,
    )}
  </ol>`;
}
