/**
 * Keeps the page current: takes its parts as they change from the stream of events, counts the times, copies. What is selected stays as it
 * is until the selection is given up.
 */
export const script = `
"use strict";
const live = document.getElementById("live");
const aheadMs = Number(document.body.dataset.now) - Date.now();
const waiting = new Map();
document.documentElement.classList.add("scripted");

const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const duration = (ms) => {
  const seconds = Math.round(Math.abs(ms) / 1000);
  const largest = units.findIndex(([, size]) => seconds >= size);
  const least = (units[Math.min(largest + 1, 3)] || units[3])[1];
  let left = Math.round(seconds / least) * least;
  const parts = units.flatMap(([name, size]) => {
    const count = Math.floor(left / size);
    left -= count * size;
    return count === 0 ? [] : [count + " " + name];
  });
  return parts.join(" ") || "0 s";
};
const count = () => {
  const now = Date.now() + aheadMs;
  for (const time of document.querySelectorAll("time.relative")) {
    const ms = Date.parse(time.dateTime) - now;
    const text = Math.abs(ms) < 500 ? "now" : ms > 0 ? "in " + duration(ms) : duration(ms) + " ago";
    if (time.textContent !== text) time.textContent = text;
  }
};
setInterval(count, 1000);

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
  count();
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
