import { kidText } from "../../../base/format.ts";
import { type Html, html } from "../../../base/html.ts";
import { planVerbs } from "../../../rotation/explain/plan-scale.ts";
import type { PlanStep } from "../../../rotation/explain/plan.ts";
import { caughtUpText } from "../../../rotation/explain/replicas.ts";
import type { Status } from "../status.ts";
import { facts, moment, plural, relative } from "./elements.ts";

/** Renders the active key, the next step, and whether the replicas have caught up. */
export function glancePart(status: Status): Html {
  const { keys, next, now, waits, source } = status;
  const active = keys.find(({ use, state }) => use === "sig" && state === "active");
  const signs =
    active === undefined
      ? html`<span class="quiet"
          >${status.rotationMode.because === "decommissioned" ? "none: the issuer has been decommissioned" : "no key"}</span
        >`
      : html`<code>${kidText(active.kid)}</code>
          <span class="quiet"
            >${active.alg}${active.since === undefined ? undefined : html`, since ${sinceText(active.since)}`}</span
          >`;
  const waiting =
    waits.length === 0 ? undefined : html` <span class="quiet">${plural(waits.length, "step")} waiting</span>`;
  const step = next && html`<span class="verb">${stepText(next)}</span> ${moment(next.at, now)}`;
  return facts(
    [
      [source === "saved-set" ? "First key" : "Active key", signs],
      ["Next step", html`${step ?? nothingNext(source)}${waiting}`],
      ["Rotation mode", modeText(status)],
      ["Replicas", replicasText(status)],
      ["Store", storeText(status)],
      ["This process", processText(status)],
    ],
    "glance",
  );
}

function processText({ phase, notReady, pid }: Status): Html {
  const state = notReady === undefined ? html`ready` : html`<span class="wrong">not ready</span>: ${notReady}`;
  return html`${phase}, ${state} <span class="quiet">process ${pid}</span>`;
}

function nothingNext(source: Status["source"]): Html {
  if (source === "store") return html`<span class="quiet">none</span>`;
  return source === "files"
    ? html`<span class="quiet">jwksd does not manage these keys; it reads them from files</span>`
    : html`<span class="quiet">none until the store is reachable</span>`;
}

function stepText({ action, use, kid }: PlanStep): Html {
  return html`${planVerbs[action]} ${use} ${kid === undefined ? "(next)" : html`<code>${kidText(kid)}</code>`}`;
}

function modeText({ rotationMode: { isOn, because, since } }: Status): Html {
  if (!isOn) return html`off: caches keep the set for up to 2 hours`;
  const why = {
    keys: "a key is announced or retiring",
    decommissioned: "the issuer has been decommissioned",
    setting: "set by --rotation-mode",
    outage: "the store is unreachable",
  }[because ?? "setting"];
  return html`on: caches keep the set for 5 minutes
    <span class="quiet">${why}${since === undefined ? undefined : html`, since ${sinceText(since)}`}</span>`;
}

function replicasText({ source, replicas, revision }: Status): Html {
  if (source === "files") return html`<span class="quiet">none: there is no store</span>`;
  const caughtUp = replicas.filter(({ behind, isStale }) => behind === 0 && !isStale).length;
  const published =
    revision === undefined
      ? undefined
      : html` <span class="quiet"
          >revision ${revision.published} is published here; revision ${revision.stored} is stored</span
        >`;
  return html`${caughtUpText(caughtUp, replicas.length)}${published}`;
}

function storeText({ source, store, now }: Status): Html {
  if (source === "files" || store === undefined) return html`<span class="quiet">none: keys are read from files</span>`;
  const { lastSuccessAt, lastError } = store;
  const isUnreachable = lastError !== undefined && lastError.at > (lastSuccessAt ?? 0);
  const reached =
    lastSuccessAt === undefined
      ? html`never reached`
      : html`last reached ${relative(Math.min(lastSuccessAt, now), now)}`;
  return isUnreachable
    ? html`<span class="wrong">unreachable</span> <span class="quiet">${reached}, ${lastError.code}</span>`
    : reached;
}

/** Renders a past time as a date, because the exact time does not matter here. */
function sinceText(at: number): Html {
  const date = new Date(at).toISOString();
  return html`<time datetime="${date}">${date.slice(0, 10)}</time>`;
}
