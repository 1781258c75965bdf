import { hostname } from "node:os";
import { isFirstKey } from "../../rotation/manager/options.ts";
import type { ManagerEvent } from "../../rotation/manager/types.ts";
import { timeText } from "../../rotation/rules/format.ts";
import { printable } from "../../base/printable.ts";
import type { KeyRecord } from "../../rotation/store/store.ts";
import type { Logger } from "../config/logger.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { placeOf } from "../config/open-store.ts";
import { withFlags } from "../config/setting-names.ts";

/** As a lease can bear it. */
export function hostName(): string {
  return printable(hostname()).slice(0, 255).toWellFormed() || "jwksd";
}

/** Logs what happened to the keys of a manager. @param before the records as they were */
export function logEvent(event: ManagerEvent, before: readonly KeyRecord[], settings: Settings, log: Logger): void {
  switch (event.type) {
    case "changed":
      for (const { type, kid, use, reason } of event.events) {
        log.info({ kid, use, reason }, `key ${type}`);
      }
      if (isFirstKey(event) && settings.issuer !== undefined) warnOfNewKeys(settings, log);
      if (event.by !== "another") break;
      for (const { kid, use, state } of event.records) {
        const isSame = before.some((record) => record.kid === kid && record.state === state);
        if (!isSame) log.info({ kid, use }, `key ${state}, by another process`);
      }
      break;
    case "failed":
      log.error(
        { code: event.error.code, retryInMs: event.retryInMs },
        `keys cannot be managed, the last good ones stay: ${withFlags(event.error.message)}`,
      );
      break;
    case "fenced":
      log.error(
        { code: event.error.code },
        `${withFlags(event.error.message)}; /readyz says 503 until then; /jwks is answered all the same`,
      );
      break;
    case "unfenced":
      log.info("this replica may sign again");
      break;
    case "held-back":
      log.error(
        { kid: event.kid, code: event.error.code },
        `the next key cannot sign, the active one stays: ${withFlags(event.error.message)}`,
      );
      break;
    case "unopened":
      log.error(
        { kid: event.kid, code: event.error.code },
        `the active key cannot be opened here, and is published all the same: ${withFlags(event.error.message)}`,
      );
      break;
    case "destroyed":
      if (event.error === undefined) log.info({ kid: event.kid, uri: event.uri }, "key destroyed where it was made");
      else {
        log.error(
          { kid: event.kid, uri: event.uri, code: event.error.code },
          `a key that is gone could not be destroyed where it was made: ${withFlags(event.error.message)}`,
        );
      }
      break;
    case "orphaned":
      if (event.isDestroyed) log.info({ uri: event.uri }, "a key was made that was not needed, and destroyed again");
      else log.warn({ uri: event.uri }, "a key was made that could not be recorded or was not needed; nothing uses it");
      break;
    case "lease-left":
      log.warn(
        { code: event.error.code },
        `the lease of this replica could not be given up, so steps may wait for it until ${timeText(event.until)}: ${withFlags(event.error.message)}`,
      );
      break;
    case "recovered":
      log.info("keys are managed again");
  }
}

/** A lost store, or a mistyped one, looks like a first start. */
function warnOfNewKeys(settings: Settings, log: Pick<Logger, "warn">): void {
  const { issuer, store } = settings;
  log.warn(
    { issuer },
    `${placeOf(settings)} held no keys of ${issuer}, so new ones were made. If this is the first start for this issuer, all is well: set --require-store (JWKSD_REQUIRE_STORE=true) from now on. If the issuer had keys before, every token that they signed fails at each verifier that fetches this set: stop this process, correct ${store === undefined ? "--data" : "--store"} or --issuer, and start it again; if the store is gone, see "The store is lost" in docs/operations.md`,
  );
}
