import { hostname } from "node:os";
import type { KeyManager, ManagerEvent } from "../manager/types.ts";
import { manageKeys } from "../manager/manager.ts";
import { servedBy } from "../manager/owner.ts";
import { printable } from "../printable.ts";
import type { KeyRecord } from "../store/store.ts";
import type { Logger } from "./logger.ts";
import { openManaged } from "./open-store.ts";
import { type PublicKeys, publicHalves } from "./public-keys.ts";
import type { Settings } from "./settings.ts";
import { signersOf } from "./signers.ts";

/** Keys that a manager of this process drives through their lives. */
export interface ManagedKeys {
  /** As they were when it started. */
  readonly keys: PublicKeys;
  /** Why the other replicas do not rely on this process, so that it should get no requests; `undefined` where they do. */
  notReady(): string | undefined;
  /** Calls back with the keys as they are, and with every change from now on. */
  follow(update: (keys: PublicKeys) => Promise<void>): Promise<void>;
  /** Remembers where they are served, for commands that are given no issuer. */
  servedAs(issuer: string): Promise<void>;
  stop(): Promise<void>;
}

/** @throws see `openManaged` and `createKeyManager` */
export async function startManagedKeys(settings: Settings, log: Logger): Promise<ManagedKeys> {
  const signers = await signersOf(settings, log);
  const { vault, policy } = await openManaged(settings, log, { create: true, ownerRule: servedBy });
  const { store } = vault;
  let manager: KeyManager;
  let known: readonly KeyRecord[] = [];
  let failure: string | undefined;
  try {
    manager = await manageKeys(vault, {
      issuer: vault.owner.issuer,
      policy,
      ...signers,
      signs: false,
      replicaName: settings.replicaName ?? hostName(),
      onEvent: (event) => {
        logEvent(event, known, log);
        if (event.type === "failed") failure = event.error.code;
        if (event.type === "recovered") failure = undefined;
        if (event.type === "changed") known = event.records;
      },
    });
  } catch (error) {
    await store.close();
    throw error;
  }
  known = manager.records;
  const { keyset, encryptionKeyset, jwksRotationActive } = manager.options;
  return {
    keys: { ...publicHalves(keyset, encryptionKeyset), isRotating: jwksRotationActive() },
    notReady() {
      if (manager.isReady || settings.readyWithoutStore) return undefined;
      const why = failure === undefined ? "" : `; the last failure is ${failure}`;
      return `the other replicas do not rely on this one: its lease has ended, or it does not publish the keys of the store yet${why}`;
    },
    follow: (update) =>
      manager.attach({
        update: ({ keyset, encryptionKeyset }, { isRotating }) =>
          update({ ...publicHalves(keyset, encryptionKeyset), isRotating }),
      }),
    async servedAs(issuer) {
      await vault.noteIssuer(issuer).catch((error: unknown) => {
        const { code, message } = error as { readonly code?: string; readonly message: string };
        log.warn({ code }, `the issuer could not be noted in the store; give it to commands with --issuer: ${message}`);
      });
    },
    async stop() {
      await manager.close();
      await store.close();
    },
  };
}

/** As a lease can bear it. */
function hostName(): string {
  return printable(hostname()).slice(0, 255).toWellFormed() || "jwksd";
}

function logEvent(event: ManagerEvent, before: readonly KeyRecord[], log: Logger): void {
  switch (event.type) {
    case "changed":
      for (const { type, kid, use, reason } of event.events) {
        log.info({ kid, use, reason }, `key ${type}`);
      }
      if (event.by !== "another") break;
      for (const { kid, use, state } of event.records) {
        const isSame = before.some((record) => record.kid === kid && record.state === state);
        if (!isSame) log.info({ kid, use }, `key ${state}, by another process`);
      }
      break;
    case "failed":
      log.error(
        { code: event.error.code, retryInMs: event.retryInMs },
        `keys cannot be managed, the last good ones stay: ${event.error.message}`,
      );
      break;
    case "fenced":
      log.error(
        {},
        "the lease of this replica has ended, so the others no longer rely on it: /readyz says 503 until the store is reached again; /jwks is answered all the same",
      );
      break;
    case "unsealed":
      log.warn(
        {},
        "the store has no seal, since an earlier jwksd made it: whoever can write it can have keys of their own published; seal it with: jwksd keys rewrap",
      );
      break;
    case "held-back":
      log.error(
        { kid: event.kid, code: event.error.code },
        `the next key cannot sign, the active one stays: ${event.error.message}`,
      );
      break;
    case "unopened":
      log.error(
        { kid: event.kid, code: event.error.code },
        `the active key cannot be opened here, and is published all the same: ${event.error.message}`,
      );
      break;
    case "destroyed":
      if (event.error === undefined) log.info({ kid: event.kid, uri: event.uri }, "key destroyed where it was made");
      else {
        log.error(
          { kid: event.kid, uri: event.uri, code: event.error.code },
          `a key that is gone could not be destroyed where it was made: ${event.error.message}`,
        );
      }
      break;
    case "orphaned":
      if (event.isDestroyed) log.info({ uri: event.uri }, "a key was made that was not needed, and destroyed again");
      else log.warn({ uri: event.uri }, "a key was made that could not be recorded or was not needed; nothing uses it");
      break;
    case "recovered":
      log.info({}, "keys are managed again");
  }
}
