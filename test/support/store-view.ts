import type { StoreDocument } from "../../src/rotation/custody/document.ts";
import type { PresenceRecord } from "../../src/rotation/custody/presence-records.ts";
import type { KeyRecord } from "../../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import type { ServiceSnapshot } from "../../src/service/admin/service-snapshot.ts";
import { start } from "../rules/key-records.ts";

/** Creates the document of a store at revision 5. */
export function storeDocument(records: readonly KeyRecord[], more: Partial<StoreDocument> = {}): StoreDocument {
  return {
    format: 1,
    revision: 5,
    owner: { issuer: "https://login.example.com", isChosen: true },
    policy: rotationPolicy(),
    records,
    targets: [],
    events: [],
    commits: ["c4", "c5"],
    ...more,
  };
}

/** Creates the presence record of a process that signs with "a" and has caught up. */
export function presenceRecord(id: string, members: Partial<PresenceRecord> = {}): PresenceRecord {
  const { revision = 5 } = members;
  return {
    id,
    name: id,
    revision,
    commit: `c${revision}`,
    kid: "a",
    signs: true,
    wrappingKeys: ["w"],
    at: start,
    ...members,
  };
}

/** Creates a service's knowledge about itself, without a key. */
export function known(more: Partial<ServiceSnapshot> = {}): ServiceSnapshot {
  return {
    now: start,
    phase: "running",
    issuer: "https://op.example",
    jwksUri: "https://op.example/jwks",
    pid: 42,
    commandFlags: "",
    isShortBySetting: false,
    isShort: false,
    published: [],
    events: [],
    ...more,
  };
}
