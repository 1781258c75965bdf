import type { Clock } from "../../base/clock.ts";
import { timeText } from "../../base/format.ts";
import { isFirstKey } from "../../rotation/manager/options.ts";
import type { Filling, KeyManagerEvent } from "../../rotation/manager/types.ts";
import { type AuditEvent, type KeyRecord, isDecommissioned, isRotating } from "../../rotation/rules/key-records.ts";
import { withFlags } from "../config/flags-in-messages.ts";
import type { Logger } from "../config/logger.ts";
import { policyDifference } from "../config/policy-difference.ts";
import type { StoreSettings } from "../config/store-settings.ts";

/** Logs a manager's events. */
export interface ManagerLog {
  /** Logs an event. */
  logEvent(this: void, event: KeyManagerEvent): void;
  /** Logs the mode at startup. */
  started(this: void, records: Modes): void;
}

type Modes = readonly Pick<KeyRecord, "use" | "state">[];

export function createManagerLog(settings: StoreSettings, log: Logger, clock: Clock): ManagerLog {
  let isOn = false;
  let wasDecommissioned = false;

  /** Logs a change of mode, and the decommissioning of the issuer. */
  function logMode(records: Modes): void {
    if (isDecommissioned(records) && !wasDecommissioned)
      log.warn("the issuer has been decommissioned, so no key signs for it (ERR_SIGNER_DECOMMISSIONED)");
    wasDecommissioned = isDecommissioned(records);
    const was = isOn;
    isOn = isRotating(records);
    if (isOn === was) return;
    log.info(
      isOn
        ? "rotation mode is on: caches keep the set for 5 minutes"
        : "rotation mode is off: caches keep the set for up to 2 hours",
    );
  }

  return {
    logEvent(event) {
      if (event.type !== "changed") {
        const [level, fields, message] = entryFor(event, clock.now());
        return log[level](fields, message);
      }
      for (const step of event.events) logStep(step, event.by, log);
      if (isFirstKey(event) && settings.issuer !== undefined) warnOfNewKeys(settings, log);
      logMode(event.records);
    },
    started: logMode,
  };
}

/** Logs a step, with the same message whether this or another process took it. */
function logStep({ type, kid, use, reason }: AuditEvent, by: "this" | "another", log: Logger): void {
  const level = type === "revoked" ? "warn" : "info";
  const fields = { kid, use, reason, by: by === "another" ? "another process" : undefined };
  log[level](fields, type === "policy" ? "policy changed" : `key ${type}`);
}

type LogEntry = readonly [level: "info" | "warn" | "error", fields: object, message: string];

function entryFor(event: Exclude<KeyManagerEvent, { readonly type: "changed" }>, now: number): LogEntry {
  const { code, message } =
    "error" in event && event.error !== undefined ? event.error : { code: undefined, message: "" };
  const why = withFlags(message);
  switch (event.type) {
    case "failed": {
      const use = event.staleAt > now ? `are used until ${timeText(event.staleAt)}` : "no longer sign";
      const { retryInMs } = event;
      return ["error", { code, retryInMs }, `keys cannot be managed: ${why}; the last valid keys ${use}`];
    }
    case "stale":
      return ["error", { code }, `${why}; /readyz returns 503 until this process recovers, and /jwks is still served`];
    case "fresh":
      return ["info", {}, "this process can sign again"];
    case "policy-differs": {
      const { text, flags } = policyDifference(event.given, event.stored);
      const remedy = `remove these settings, or write them to the store with: jwksd policy ${flags}`;
      return ["warn", {}, `${text}; ${remedy}`];
    }
    case "store-nearly-full": {
      const { bytes, maxBytes } = event;
      return [
        "warn",
        { bytes, maxBytes },
        `${fillingText(event)}; before the store is full, copy the keys to a larger store with: jwksd store migrate`,
      ];
    }
    case "store-emptied":
      return ["warn", { code }, why];
    case "activation-blocked":
      return ["error", { kid: event.kid, code }, `the next key cannot sign, so the active key stays active: ${why}`];
    case "key-unavailable": {
      return [
        "error",
        { kid: event.kid, code },
        `the active key cannot be opened by this process but is still published: ${why}`,
      ];
    }
    case "destroyed":
      return ["info", { kid: event.kid, uri: event.uri }, "key destroyed in its HSM or key service"];
    case "destroy-failed":
      return ["error", { kid: event.kid, uri: event.uri, code }, `a removed key could not be destroyed: ${why}`];
    case "orphaned": {
      const { uri, isDestroyed } = event;
      if (isDestroyed) return ["info", { uri }, "a generated key was not needed, so it was destroyed"];
      return ["warn", { uri }, "a generated key could not be recorded or was not needed; nothing uses it"];
    }
    default:
      return ["info", {}, "keys can be managed again"];
  }
}

export const fillingText = ({ bytes, maxBytes }: Filling): string =>
  `the stored document uses ${bytes.toLocaleString("en")} of the ${maxBytes.toLocaleString("en")} bytes allowed, and every removed key leaves a tombstone in it`;

/** Warns that new keys were generated, because a lost store or a mistyped store URL looks like a first start. */
function warnOfNewKeys({ issuer, name, flag }: StoreSettings, log: Pick<Logger, "warn">): void {
  log.warn(
    { issuer },
    `${name} had no keys for ${issuer}, so new keys were generated. If this is the first start for this issuer, this is expected: set --require-store (JWKSD_REQUIRE_STORE=true) from now on. If the issuer had keys before, every verifier that fetches this set rejects the tokens signed with those keys: stop this process, correct ${flag} or --issuer, and start it again; if the store is lost, see "A lost store" in docs/emergencies.md`,
  );
}
