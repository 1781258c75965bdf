import type { Clock } from "../../base/clock.ts";
import { timeText } from "../../base/format.ts";
import { isFirstKey } from "../../rotation/manager/options.ts";
import type { Filling, ManagerEvent } from "../../rotation/manager/types.ts";
import type { KeyEvent, KeyRecord } from "../../rotation/rules/records.ts";
import type { Logger } from "../config/log.ts";
import { policyDifference } from "../config/policy-difference.ts";
import { withFlags } from "../config/setting-names.ts";
import type { StoreSettings } from "../config/store-settings.ts";

/** The log of a manager. */
export interface ManagerLog {
  /** Logs what happened to its keys. */
  note(this: void, event: ManagerEvent): void;
  /** Logs the mode in which it starts. */
  started(this: void, records: Modes): void;
}

type Modes = readonly Pick<KeyRecord, "state">[];

export function createManagerLog(settings: StoreSettings, log: Logger, clock: Clock): ManagerLog {
  let isRotating = false;

  /** Logs the mode if it has changed. */
  function noteMode(records: Modes): void {
    const was = isRotating;
    isRotating = records.some(({ state }) => state === "announced" || state === "retiring");
    if (isRotating === was) return;
    log.info(
      isRotating
        ? "the rotation mode is on: caches keep the set for 5 minutes"
        : "the rotation mode is off: caches keep the set for up to 2 hours",
    );
  }

  return {
    note(event) {
      if (event.type !== "changed") {
        const [level, fields, message] = lineOf(event, clock.now());
        return log[level](fields, message);
      }
      for (const step of event.events) logStep(step, event.by, log);
      if (isFirstKey(event) && settings.issuer !== undefined) warnOfNewKeys(settings, log);
      noteMode(event.records);
    },
    started: noteMode,
  };
}

/** A step of another process has the same words as an own one. */
function logStep({ type, kid, use, reason }: KeyEvent, by: "this" | "another", log: Logger): void {
  const level = type === "revoked" ? "warn" : "info";
  const fields = { kid, use, reason, by: by === "another" ? "another process" : undefined };
  log[level](fields, type === "policy" ? "policy changed" : `key ${type}`);
}

type Line = readonly [level: "info" | "warn" | "error", fields: object, message: string];

function lineOf(event: Exclude<ManagerEvent, { readonly type: "changed" }>, now: number): Line {
  const { code, message } =
    "error" in event && event.error !== undefined ? event.error : { code: undefined, message: "" };
  const why = withFlags(message);
  switch (event.type) {
    case "failed": {
      const until = event.staleAt > now ? `are used until ${timeText(event.staleAt)}` : "are not used to sign";
      const { retryInMs } = event;
      return ["error", { code, retryInMs }, `keys cannot be managed, and the last good ones ${until}: ${why}`];
    }
    case "stale":
      return ["error", { code }, `${why}; /readyz returns 503 until then; /jwks is served all the same`];
    case "fresh":
      return ["info", {}, "this process may sign again"];
    case "policy-differs": {
      const { text, flags } = policyDifference(event.given, event.stored);
      const remedy = `leave these settings out, or write them into the store: jwksd policy ${flags}`;
      return ["warn", {}, `${text}; ${remedy}`];
    }
    case "store-nearly-full": {
      const { bytes, maxBytes } = event;
      return ["warn", { bytes, maxBytes }, `${fillingText(event)}; before it is full: jwksd store migrate`];
    }
    case "store-emptied":
      return ["warn", { code }, why];
    case "activation-blocked":
      return ["error", { kid: event.kid, code }, `the next key cannot sign, the active one stays: ${why}`];
    case "key-unavailable": {
      const what = "the active key cannot be opened here, and is published all the same";
      return ["error", { kid: event.kid, code }, `${what}: ${why}`];
    }
    case "destroyed":
      return ["info", { kid: event.kid, uri: event.uri }, "key destroyed in its HSM or key service"];
    case "destroy-failed":
      return ["error", { kid: event.kid, uri: event.uri, code }, `a removed key could not be destroyed: ${why}`];
    case "orphaned": {
      const { uri, isDestroyed } = event;
      if (isDestroyed) return ["info", { uri }, "a key was made that was not needed, and destroyed again"];
      return ["warn", { uri }, "a key was made that could not be recorded or was not needed; nothing uses it"];
    }
    default:
      return ["info", {}, "keys are managed again"];
  }
}

export const fillingText = ({ bytes, maxBytes }: Filling): string =>
  `the store takes ${bytes.toLocaleString("en")} of the ${maxBytes.toLocaleString("en")} bytes that it can hold; each key that was removed stays in it as a tombstone`;

/** A lost store, or a mistyped one, looks like a first start. */
function warnOfNewKeys({ issuer, name, flag }: StoreSettings, log: Pick<Logger, "warn">): void {
  log.warn(
    { issuer },
    `${name} held no keys of ${issuer}, so new ones were made. If this is the first start for this issuer, all is well: set --require-store (JWKSD_REQUIRE_STORE=true) from now on. If the issuer had keys before, every token that they signed fails at each verifier that fetches this set: stop this process, correct ${flag} or --issuer, and start it again; if the store is gone, see "A lost store" in docs/emergencies.md`,
  );
}
