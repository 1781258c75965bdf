/**
 * Keeps the page current: shows the parts that come from the stream of events, and copies texts. A part that is selected stays as it is until the
 * selection is given up.
 */
export const script = `
"use strict";
const live = document.getElementById("live");
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

const stream = new EventSource("events");
const say = (state, text) => {
  live.dataset.state = state;
  live.textContent = text;
};
stream.onopen = () => say("live", "Live");
stream.onerror = () =>
  stream.readyState === 2
    ? say("lost", "Not live. Load the page again to see what is new.")
    : say("lost", "The service does not answer. It is asked again.");
stream.onmessage = ({ data }) => {
  for (const [id, markup] of Object.entries(JSON.parse(data))) waiting.set(id, markup);
  show();
};

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
