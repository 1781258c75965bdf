import { kidText } from "../../../base/format.ts";
import { type Html, html } from "../../../base/html.ts";
import { planVerbs } from "../../../rotation/explain/plan-scale.ts";
import { publishesText, unlistedText, unreadTexts, unsignedTexts } from "../../../rotation/explain/replicas.ts";
import type { LogEvent } from "../service-snapshot.ts";
import type { KeyStatus, SeenReplica, Status } from "../status.ts";
import { badge, moment, relative, scrolled } from "./elements.ts";

function table(name: string, columns: readonly string[], rows: readonly (readonly Html[])[]): Html {
  return scrolled(
    name,
    html`<table>
      <thead>
        <tr>
          ${columns.map((column) => html`<th scope="col">${column}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          ([first, ...others]) =>
            html`<tr>
              <th scope="row">${first}</th>
              ${others.map((cell) => html`<td>${cell}</td>`)}
            </tr>`,
        )}
      </tbody>
    </table>`,
  );
}

export function keysPart({ keys, now }: Status): Html {
  if (keys.length === 0) return html`<p class="quiet">There are no keys yet.</p>`;
  const columns = ["Key", "Use", "State", "Since", "Private key", "Next step"];
  return table(
    "Keys",
    columns,
    keys.map((key) => [
      html`<code>${kidText(key.kid)}</code>`,
      html`${key.use} <span class="quiet">${key.alg}</span>`,
      badge(key.state),
      key.since === undefined ? html`<span class="quiet">unknown</span>` : moment(key.since, now),
      locationCell(key),
      nextOf(key, now),
    ]),
  );
}

function locationCell({ privateHalf, uri }: KeyStatus): Html {
  return privateHalf === "external" ? html`<code>${kidText(uri ?? "")}</code>` : html`${privateHalf}`;
}

function nextOf({ next, notAfter }: KeyStatus, now: number): Html {
  if (next !== undefined) return html`<span class="verb">${planVerbs[next.action]}</span> ${moment(next.at, now)}`;
  if (notAfter !== undefined) return html`no longer published ${moment(notAfter, now)}`;
  return html`<span class="quiet">none</span>`;
}

export function replicasPart(status: Status): Html {
  const { replicas, targets, source, now } = status;
  if (source === "files")
    return html`<p class="quiet">There is no store, so jwksd cannot know about other replicas.</p>`;
  const columns = ["Replica", "Publishes", "Signs with", "Last check-in", "Stale at"];
  const rows = replicas.map((replica) => {
    const { name, version, isSelf, lastCheckInAt, staleAt } = replica;
    return [
      html`${name} <span class="quiet">${version}${isSelf ? " this process" : undefined}</span>`,
      publishesOf(replica),
      signsWith(replica),
      relative(lastCheckInAt, now),
      moment(staleAt, now),
    ];
  });
  const replicaTable =
    rows.length === 0 ? html`<p class="quiet">No replicas are listed.</p>` : table("Replicas", columns, rows);
  return html`${replicaTable}
  ${[...unreadTexts(status), unlistedText].map((text) => html`<p class="quiet">${text}</p>`)}
  ${targets.length === 0 ? undefined : targetsTable(targets, now)}`;
}

function publishesOf({ revision, behind, isStale }: SeenReplica): Html {
  if (isStale) return badge("stale");
  const text = publishesText({ revision, behind });
  return behind === 0 || revision === 0 ? html`${text}` : html`<span class="wrong">${text}</span>`;
}

function signsWith({ signing, kid, isStale }: SeenReplica): Html {
  if (isStale) return html`<span class="quiet">nothing while stale</span>`;
  return signing === "signs"
    ? html`<code>${kidText(kid ?? "")}</code>`
    : html`<span class="quiet">${unsignedTexts[signing]}</span>`;
}

function targetsTable(targets: Status["targets"], now: number): Html {
  const rows = targets.map(({ name, revision, at, isBehind }) => [
    html`${name}`,
    isBehind ? html`<span class="wrong">behind</span>` : html`up to date`,
    revision === 0 ? html`never` : relative(at, now),
  ]);
  return table("Targets", ["Target", "Status", "Last read back"], rows);
}

export function eventsPart({ events, now }: Status): Html {
  if (events.length === 0) return html`<p class="quiet">There are no events yet.</p>`;
  return table(
    "Recent events",
    ["Time", "Level", "Event"],
    events.map((event) => [moment(event.at, now), badge(event.level), messageOf(event)]),
  );
}

function messageOf({ message, details }: LogEvent): Html {
  const fields = Object.entries(details).map(
    ([name, value]) => html` <span class="detail">${name}=<code>${value}</code></span>`,
  );
  return html`${message}${fields}`;
}
