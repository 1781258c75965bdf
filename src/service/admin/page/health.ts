import { type Html, html } from "../../../base/html.ts";
import type { Fault } from "../faults.ts";
import { guideUrl } from "../remedies.ts";
import type { Status } from "../status.ts";
import { copyable, plural, relative } from "./elements.ts";

/**
 * Renders the service's state as a sentence. The sentence does not say how much time has passed, because screen readers
 * announce every change.
 */
export function headlinePart({ faults, phase }: Status): Html {
  if (phase !== "running") return html`<strong class="verdict wrong">The service is ${phase}.</strong>`;
  if (faults.length === 0) return html`<strong class="verdict good">No errors or warnings.</strong>`;
  const errors = faults.filter(({ severity }) => severity === "error").length;
  const warnings = faults.length - errors;
  const counts = [errors > 0 ? plural(errors, "error") : "", warnings > 0 ? plural(warnings, "warning") : ""];
  const text = counts.filter((count) => count !== "").join(" and ");
  return html`<strong class="verdict ${errors > 0 ? "wrong" : "doubtful"}">${text}.</strong>`;
}

/** Renders the faults, worst first. */
export function healthPart({ faults, now }: Status): Html {
  if (faults.length === 0) return html``;
  return html`<ol class="faults">
      ${faults.map((fault, index) => faultItem(fault, index, now))}
    </ol>
    <p class="quiet">
      Run these commands on this machine, with the same JWKSD_ variables as this service. They may contain the wrapping
      key.
    </p>`;
}

function faultItem({ severity, code, text, since, remedy, command, guide }: Fault, index: number, now: number): Html {
  const began = since === undefined || since > now ? undefined : html`, began ${relative(since, now)}`;
  return html`<li class="fault ${severity}">
    <p class="fault-kind"><span class="badge ${severity}">${severity}</span> <code>${code}</code>${began}</p>
    <p>${text}</p>
    <p>${remedy}</p>
    ${copyable(`command-${index + 1}`, "Command", html`${command}`)}
    ${guide === undefined ? undefined : html`<p><a href="${guideUrl(guide)}">docs/${guide}</a></p>`}
  </li>`;
}
