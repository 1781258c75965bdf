import { kidText } from "../../../rotation/rules/format.ts";
import { drainSeconds } from "../../../rotation/rules/policy.ts";
import type { LogEvent } from "../known.ts";
import type { KeyStatus, SeenReplica, Status } from "../status.ts";
import { type Html, html } from "./html.ts";
import { unsignedTexts } from "../replicas.ts";
import { badge, moment, relative } from "./words.ts";

/** A table that a narrow screen shows as a list, with the name of its column beside each cell. Roles keep it a table for screen readers. */
function table(caption: string, columns: readonly string[], rows: readonly (readonly Html[])[]): Html {
  return html`<table role="table">
    <caption class="unseen">
      ${caption}
    </caption>
    <thead role="rowgroup">
      <tr role="row">
        ${columns.map((name) => html`<th scope="col" role="columnheader">${name}</th>`)}
      </tr>
    </thead>
    <tbody role="rowgroup">
      ${rows.map(
        ([first, ...others]) =>
          html`<tr role="row">
            <th scope="row" role="rowheader">${first}</th>
            ${others.map(
              (cell, index) =>
                html`<td role="cell">
                  <span class="column" aria-hidden="true">${columns[index + 1]}</span><span>${cell}</span>
                </td>`,
            )}
          </tr>`,
      )}
    </tbody>
  </table>`;
}

export function keysPart({ keys, now }: Status): Html {
  if (keys.length === 0) return html`<p class="quiet">There are no keys yet.</p>`;
  const columns = ["Key", "Use", "State", "Since", "Private half", "Next step"];
  return table(
    "The keys",
    columns,
    keys.map((key) => [
      html`<code>${kidText(key.kid)}</code>`,
      html`${key.use} <span class="quiet">${key.alg}</span>`,
      badge(key.state),
      key.since === undefined ? html`<span class="quiet">not known</span>` : moment(key.since, now),
      placeOf(key),
      nextOf(key, now),
    ]),
  );
}

function placeOf({ privateHalf, uri }: KeyStatus): Html {
  return privateHalf === "external" ? html`<code>${kidText(uri ?? "")}</code>` : html`${privateHalf}`;
}

function nextOf({ next, notAfter }: KeyStatus, now: number): Html {
  if (next !== undefined) return html`<span class="verb">${next.verb}</span> ${moment(next.at, now)}`;
  if (notAfter !== undefined) return html`leaves the set ${moment(notAfter, now)}`;
  return html`<span class="quiet">none</span>`;
}

export function replicasPart({ replicas, source, now }: Status): Html {
  if (replicas.length === 0) {
    return source === "files"
      ? html`<p class="quiet">There is no store by which replicas could know of each other.</p>`
      : html`<p class="quiet">The store knows of no replica.</p>`;
  }
  const columns = ["Replica", "Publishes", "Signs with", "Last seen", "Relied on until"];
  return table(
    "The replicas",
    columns,
    replicas.map((replica) => [
      html`${replica.name}${replica.isSelf ? html` <span class="quiet">this one</span>` : undefined}`,
      publishesOf(replica),
      replica.signing !== "signs"
        ? html`<span class="quiet">${unsignedText(replica)}</span>`
        : html`${replica.signsWith.map((kid) => signsWith(kid, replica.drains.includes(kid)))}`,
      relative(replica.lastSeenAt, now),
      Number.isFinite(replica.until) ? moment(replica.until, now) : html`it is ended by hand`,
    ]),
  );
}

function unsignedText({ signing, isFenced }: SeenReplica): string {
  if (isFenced) return "nothing while it is fenced";
  return unsignedTexts[signing === "signs" ? "unknown" : signing];
}

const signsWith = (kid: string, drains: boolean): Html =>
  html`<code>${kidText(kid)}</code>
    ${drains ? html`<span class="quiet">replaced, for ${drainSeconds} s at most</span> ` : undefined}`;

function publishesOf({ publishes, behind, isFenced }: SeenReplica): Html {
  if (isFenced) return html`${badge("fenced")}`;
  if (publishes === 0) return html`nothing yet`;
  if (behind === 0) return html`revision ${publishes}, the newest`;
  if (behind < 0) return html`revision ${publishes}, <span class="wrong">which the store no longer has</span>`;
  return html`revision ${publishes}, <span class="wrong">${behind} behind</span>`;
}

export function eventsPart({ events, now }: Status): Html {
  if (events.length === 0) return html`<p class="quiet">There are no events yet.</p>`;
  return table(
    "The last events",
    ["When", "Level", "Event"],
    events.map((event) => [moment(event.at, now), badge(event.level), messageOf(event)]),
  );
}

function messageOf({ message, details }: LogEvent): Html {
  const shown = Object.entries(details).map(
    ([name, value]) => html` <span class="detail">${name}=<code>${value}</code></span>`,
  );
  return html`${message}${shown}`;
}
