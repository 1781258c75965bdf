import { relativeText, timeText } from "../../../base/format.ts";
import { type Html, html } from "../../../base/html.ts";

/** Renders a time, and how long ago or how far ahead it is. */
export function moment(at: number | undefined, now: number): Html {
  if (at === undefined || !Number.isFinite(at)) return html`<span class="quiet">never</span>`;
  return html`<time datetime="${isoText(at)}">${timeText(at)}</time> <span class="quiet">${relative(at, now)}</span>`;
}

/** Renders how long ago or how far ahead a time is. */
export function relative(at: number, now: number): Html {
  return html`<time class="relative" datetime="${isoText(at)}" title="${timeText(at)}">${relativeText(at, now)}</time>`;
}

/** Renders content that can be scrolled on a narrow screen, by touch or with the keyboard. */
export const scrolled = (name: string, content: Html): Html =>
  html`<div class="scroll" tabindex="0" role="group" aria-label="${name}">${content}</div>`;

/** Renders text and a button that copies the text. The button is hidden unless the script runs. */
export function copyable(id: string, label: string, content: Html): Html {
  return html`<div class="copyable">
    <pre id="${id}" tabindex="0" role="region" aria-label="${label}">${content}</pre>
    <button type="button" id="copy-${id}" data-copy="${id}" aria-label="Copy: ${label}">Copy</button>
  </div>`;
}

/** Renders a list of facts with their names. */
export function facts(rows: readonly (readonly [name: string, fact: Html])[], kind = ""): Html {
  return html`<dl class="facts ${kind}">
    ${rows.map(
      ([name, fact]) =>
        html`<div>
          <dt>${name}</dt>
          <dd>${fact}</dd>
        </div>`,
    )}
  </dl>`;
}

export function badge(state: string): Html {
  return html`<span class="badge ${state}">${state}</span>`;
}

export const plural = (count: number, one: string): string => `${count} ${one}${count === 1 ? "" : "s"}`;

const isoText = (at: number): string => new Date(at).toISOString();
