import { timeText } from "../../base/format.ts";
import { type Html, html, lines } from "../../base/html.ts";
import { jsonOf } from "../../base/json.ts";
import type { HttpExchange, Finding, Observations } from "../../doctor/index.ts";
import { isPrivateText, withoutSecrets } from "../../doctor/private-key-patterns.ts";
import { setResponse } from "../../doctor/read-exchange.ts";
import { bodyText, urlText } from "../../doctor/value-text.ts";
import { counts, partsOf, scopeText } from "./findings-text.ts";
import type { Explanation } from "./verification-steps.ts";

const maxCharacters = 100_000;

/** Results to show on the page. */
interface Results {
  readonly findings: readonly Finding[];
  readonly rotation: readonly string[];
  readonly explanation: (Explanation & { readonly advice: string | undefined }) | undefined;
}

/**
 * Renders the results and the documents as one page without scripts. The page contains neither private keys nor the
 * token.
 */
export function findingsPage(
  target: string,
  observations: Observations,
  { findings, rotation, explanation }: Results,
): string {
  return html`<!doctype html>
    <html lang="en">
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width" />
      <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'" />
      <title>Keys of ${target}</title>
      <style>
        ${style}
      </style>
      <header>
        <h1>Keys of ${target}</h1>
        <p>
          ${findings.length === 0 ? "No problems found" : counts(findings)}. ${scopeText(observations)} Time of the
          check:
          <time>${timeText(observations.at)}</time>.
        </p>
      </header>
      <main>
        <section aria-label="Findings">
          ${explanation === undefined ? undefined : tokenSection(explanation)} ${findings.map(section)}
          ${
            rotation.length === 0
              ? undefined
              : html`<h2>Key rotation</h2>
                  <ul>
                    ${rotation.map((text) => html`<li>${text}</li>`)}
                  </ul>`
          }
        </section>
        <section aria-label="Documents">
          ${document("Discovery document", observations.discovery)}
          ${document("JWK Set", setResponse(observations) ?? observations.set)}
        </section>
      </main>
    </html> `.text;
}

function tokenSection({ verified, steps, advice }: NonNullable<Results["explanation"]>): Html {
  return html`<article class="${verified ? "good" : "broken"}">
    <h2>The token is ${verified ? "valid" : "rejected"}</h2>
    <dl>
      ${steps.map(
        ({ step, ok, detail }) =>
          html`<dt>${step}: ${ok ? "ok" : "failed"}</dt>
            <dd>${detail}</dd>`,
      )}
      ${
        advice === undefined
          ? undefined
          : html`<dt>What to do</dt>
              <dd>${advice}</dd>`
      }
    </dl>
  </article> `;
}

/** Formats a sentence from a finding. Text in backticks becomes code. */
function prose(text: string): Html {
  const [first = "", ...rest] = text.split("`");
  const parts = rest.map((part, index) => (index % 2 === 0 ? html`<code>${part}</code>` : html`${part}`));
  return html`${first}${parts}`;
}

/** Headings for a finding's parts, keyed by label. */
const headings = {
  seen: "Seen",
  effect: "Effect",
  fails: "Failing verifiers",
  do: "What to do",
  rule: "Rule",
  more: "More",
};

function section(finding: Finding): Html {
  const { code, severity, title, ruleUrl, link } = finding;
  const part = (label: keyof typeof headings, text: string): Html => {
    if (label === "more") return html`<a href="${link}">${code}</a>`;
    if (label === "rule" && ruleUrl !== undefined) return html`<a href="${ruleUrl}">${text}</a>`;
    return label === "effect" || label === "do" ? prose(text) : html`${text}`;
  };
  return html`<article class="${severity}">
    <h2>${severity}: ${prose(title)}</h2>
    <dl>
      ${partsOf(finding).map(
        ([label, texts]) =>
          html`<dt>${headings[label]}</dt>
            ${texts.map((text) => html`<dd>${part(label, text)}</dd>`)}`,
      )}
    </dl>
  </article> `;
}

function document(name: string, exchange: HttpExchange | undefined): Html | undefined {
  if (exchange === undefined) return undefined;
  const { url, status, headers = [], body } = exchange;
  const head = [...(status === undefined ? [] : [`status ${status}`]), ...headers.map(headerText)];
  return html`<h2>${name}</h2>
    <p>${url === undefined ? undefined : urlText(url)}</p>
    ${head.length === 0 ? undefined : html`<pre>${lines(head.join("\n"))}</pre>`}
    <pre>${lines(body === undefined ? "There is no body." : documentText(body))}</pre> `;
}

/** Formats a header for a page that may be shared. Leaves out cookies, keys and a redirect's query. */
function headerText([name, value]: readonly [name: string, value: string]): string {
  if (name === "location") return `${name}: ${urlText(value)}`;
  return `${name}: ${name === "set-cookie" || isPrivateText(value) ? "(removed)" : value}`;
}

function documentText(body: Uint8Array): string {
  const text = new TextDecoder().decode(body);
  const value = jsonOf(text);
  if (value === undefined) return `Not JSON: ${bodyText(text)}.`;
  const whole = withoutSecrets(value);
  return whole.length > maxCharacters ? `${whole.slice(0, maxCharacters)}\n…` : whole;
}

const style = html`
  :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; } body { margin: 0 auto; max-width: 110rem;
  padding: 1rem; } main { display: grid; gap: 2rem; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%),
  1fr)); } h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; } article { border-left: .4rem
  solid #577; margin-bottom: 2rem; padding-left: 1rem; } .broken { border-color: #c22; } .risk { border-color: #c80; }
  .good { border-color: #282; } dt { font-weight: bold; } dd { margin: 0 0 .3rem; overflow-wrap: anywhere; } pre {
  border: 1px solid #8888; overflow-x: auto; padding: .5rem; white-space: pre-wrap; overflow-wrap: anywhere; }
`;
