/**
 * Keeps the page up to date: fetches it every two seconds and shows the parts that have changed. A part with selected
 * text is not updated until the selection is cleared. The script also copies text to the clipboard.
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

const showConnection = (state, text) => {
  live.dataset.state = state;
  live.textContent = text;
};
const refresh = async () => {
  const response = await fetch("", { signal: AbortSignal.timeout(10000) }).catch(() => undefined);
  const text = response?.ok ? await response.text().catch(() => undefined) : undefined;
  if (text === undefined) return showConnection("lost", "The service is not responding. Retrying.");
  const next = document.createElement("template");
  // Compares without the head, because its style has a new nonce each time.
  next.innerHTML = text.slice(text.indexOf("<main"), text.lastIndexOf("</main>"));
  for (const { id, innerHTML } of next.content.querySelectorAll("[data-part]")) {
    if (sent.get(id) !== innerHTML) waiting.set(id, innerHTML);
    sent.set(id, innerHTML);
  }
  show();
  showConnection("live", "Live");
};
const keepRefreshing = () => refresh().finally(() => setTimeout(keepRefreshing, 2000));
keepRefreshing();

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
