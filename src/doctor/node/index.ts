export { type Happening } from "../timeline.ts";
export { type ObserveOptions, asking, observe, observeBody } from "./observe.ts";
export { type WatchOptions, watch } from "./watch.ts";
