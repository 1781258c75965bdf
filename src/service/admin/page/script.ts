/**
 * Keeps the page current: asks for the page again every two seconds, shows the parts that are new, and copies texts. A part that is selected
 * stays as it is until the selection is given up.
 */
export const script = `
"use strict";
const live = document.getElementById("live");
const sent = new Map();
const waiting = new Map();
document.documentElement.classList.add("scripted");

const isSelected = (part) => {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(part, true);
};
const show = () => {
  for (const [id, markup] of waiting) {
    const part = document.getElementById(id);
    if (part && isSelected(part)) continue;
    waiting.delete(id);
    if (!part) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    part.innerHTML = markup;
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }
};
document.addEventListener("selectionchange", () => waiting.size && show());

const say = (state, text) => {
  live.dataset.state = state;
  live.textContent = text;
};
const ask = async () => {
  const answer = await fetch("", { signal: AbortSignal.timeout(10000) }).catch(() => undefined);
  const text = answer?.ok ? await answer.text().catch(() => undefined) : undefined;
  if (text === undefined) return say("lost", "The service does not answer. It is asked again.");
  const next = document.createElement("template");
  // Without the head: its style has a nonce of its own.
  next.innerHTML = text.slice(text.indexOf("<main"), text.lastIndexOf("</main>"));
  for (const { id, innerHTML } of next.content.querySelectorAll("[data-part]")) {
    if (sent.get(id) !== innerHTML) waiting.set(id, innerHTML);
    sent.set(id, innerHTML);
  }
  show();
  say("live", "Live");
};
const askOn = () => ask().finally(() => setTimeout(askOn, 2000));
askOn();

document.addEventListener("click", async ({ target }) => {
  const id = target.dataset.copy;
  if (!id) return;
  const text = document.getElementById(id);
  try {
    await navigator.clipboard.writeText(text.textContent);
    target.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(text);
    target.textContent = "Selected";
  }
  setTimeout(() => (target.textContent = "Copy"), 2000);
});
`;
