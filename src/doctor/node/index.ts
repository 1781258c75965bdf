export { type ObserveOptions, observe, observeBody } from "./observe.ts";
