import { kidText } from "../../../base/format.ts";
import { Html, html } from "../../../base/html.ts";
import { axisHeight, chartLegend, chartPatterns, planChart } from "../../../rotation/explain/plan-chart.ts";
import { numberedSteps, planVerbs } from "../../../rotation/explain/plan-scale.ts";
import { type RotationPlan, planKeyName } from "../../../rotation/explain/plan.ts";
import type { Status } from "../status.ts";
import { moment, plural, scrolled } from "./elements.ts";

/** Renders the chart of the rotation, with past and planned steps. */
export function timelinePart({ plan, past, now, waits, source }: Status): Html {
  if (plan === undefined) {
    return source === "files"
      ? html`<p class="quiet">
          jwksd does not manage these keys, so there are no steps. It reads the key files again when they change.
        </p>`
      : html`<p class="quiet">The steps are in the store, which has not been reached since startup.</p>`;
  }
  return html`${chart(plan)} ${waits.map(({ text }) => html`<p class="waits">${text}</p>`)}
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

function chart(plan: RotationPlan): Html {
  const { width, bottom, parts } = planChart(plan, 2, 50);
  const height = bottom + axisHeight;
  const label = `Timeline of ${plural(plan.keys.length, "key")}; the steps are listed below`;
  const svg = html`<svg
    class="chart wide"
    viewBox="0 0 ${width} ${height}"
    width="${width}"
    height="${height}"
    role="img"
    aria-label="${label}"
  >
    ${new Html(chartPatterns)} ${new Html(parts.join("\n"))}
  </svg>`;
  return html`${scrolled("Timeline", svg)} ${legend(plan)}`;
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
  if (moments.length === 0) return html`<p class="quiet">No steps are planned.</p>`;
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
