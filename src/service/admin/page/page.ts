import { timeText } from "../../../base/format.ts";
import { Html, html } from "../../../base/html.ts";
import type { Status } from "../status.ts";
import { headlinePart, healthPart } from "./health.ts";
import { script } from "./script.ts";
import { type ServedSet, servedPart, faultOfServed } from "./served-set.ts";
import { style } from "./style.ts";
import { glancePart } from "./summary.ts";
import { eventsPart, keysPart, replicasPart } from "./tables.ts";
import { timelinePart } from "./timeline.ts";

type PartId = "headline" | "health" | "glance" | "timeline" | "keys" | "replicas" | "jwks" | "events";

/** Renders the parts of the page that change, keyed by the id of their element. */
export function pageParts(service: Status, served: ServedSet): Readonly<Record<PartId, Html>> {
  const fault = faultOfServed(served, service.jwksUri);
  const status = fault === undefined ? service : { ...service, faults: [fault, ...service.faults] };
  return {
    headline: headlinePart(status),
    health: healthPart(status),
    glance: glancePart(status),
    timeline: timelinePart(status),
    keys: keysPart(status),
    replicas: replicasPart(status),
    jwks: servedPart(served, status.jwksUri),
    events: eventsPart(status),
  };
}

/**
 * Returns the page's Content-Security-Policy, which allows only the page's own script, style and origin.
 *
 * @see Content Security Policy Level 3
 */
export function pagePolicy(nonce: string): string {
  return [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    `style-src 'nonce-${nonce}'`,
    "img-src data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}

const sections: readonly (readonly [id: PartId, heading: string])[] = [
  ["glance", "At a glance"],
  ["timeline", "Timeline"],
  ["keys", "Keys"],
  ["replicas", "Replicas"],
  ["jwks", "The JWK Set as currently served"],
  ["events", "Recent events"],
];

/**
 * Renders a service's page. The page is readable without its script.
 *
 * @param nonce random value, which must be new for each response and must match the nonce in that response's
 * {@link pagePolicy}
 */
export function page(status: Status, served: ServedSet, nonce: string): string {
  const parts = pageParts(status, served);
  const { issuer, now, replicas, commandFlags } = status;
  const self = replicas.find(({ isSelf }) => isSelf);
  const title = self === undefined ? issuer : `${issuer}, ${self.name}`;
  const { text } = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <title>jwksd: ${issuer}</title>
        <link rel="icon" href="data:image/svg+xml,${icon}" />
        <style nonce="${nonce}">
          ${new Html(style)}
        </style>
      </head>
      <body>
        <a class="skip" href="#main">Skip to content</a>
        <header>
          <h1><span class="brand">jwksd</span> <span class="issuer">${title}</span></h1>
          <p class="live" id="live">
            As of
            <time datetime="${new Date(now).toISOString()}">${timeText(now)}</time>. Reload the page to update it.
          </p>
        </header>
        <main id="main">
          <section aria-labelledby="health-heading">
            <h2 id="health-heading">Health</h2>
            <p id="headline" role="status" data-part>${parts.headline}</p>
            <div id="health" data-part>${parts.health}</div>
          </section>
          ${sections.map(
            ([id, heading]) =>
              html`<section aria-labelledby="${id}-heading">
                <h2 id="${id}-heading">${heading}</h2>
                <div id="${id}" data-part>${parts[id]}</div>
              </section>`,
          )}
        </main>
        <footer>
          <p>
            This page is read-only. To take steps, use <code>jwksd keys</code>, <code>jwksd rotate</code> and
            <code>jwksd policy</code
            >${commandFlags === "" ? undefined : html`, each with <code>${commandFlags}</code>`}.
          </p>
        </footer>
        <script nonce="${nonce}">
          ${new Html(script)};
        </script>
      </body>
    </html> `;
  return text;
}

/** Icon that shows a key. */
const icon = encodeURIComponent(
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path d="M7 9l7-7M11 5l2 2" stroke="#2f7d4f" stroke-width="2" fill="none"/><circle cx="5" cy="11" r="3" stroke="#2f7d4f" stroke-width="2" fill="none"/></svg>',
);
