import { StoreError } from "../../base/errors.ts";

/** The owner of the keys in a store. */
export interface Owner {
  /** Issuer identifier. If no issuer was chosen, it is the local URL at which the keys were last served. */
  readonly issuer: string;
  /** Whether an operator has chosen the issuer. */
  readonly isChosen: boolean;
}

/**
 * Returns the owner for which a store's keys will be used and committed from now on. `found` is the keys' owner
 * according to the MAC; it is `undefined` for a store without keys.
 *
 * @throws StoreError `ERR_STORE_ISSUER` if the keys belong to a different issuer
 */
export type IssuerCheck = (found: Owner | undefined) => Owner;

/**
 * Issuer to which private keys are bound until an issuer is chosen. They cannot be bound to the local URL, because it
 * depends on the host and port.
 */
const noIssuer = "http://localhost";

/** Returns the issuer to which the owner's private keys are bound. */
export function bindingOf({ issuer, isChosen }: Owner): string {
  return isChosen ? issuer : noIssuer;
}

/**
 * Returns the owner of private keys with this binding. If no issuer was chosen, the binding does not contain the URL,
 * so the URL is taken from `wanted`.
 */
export function ownerOfBinding(issuer: string, wanted: Owner): Owner {
  if (issuer !== noIssuer) return { issuer, isChosen: true };
  return wanted.isChosen ? { issuer, isChosen: false } : wanted;
}

/** Creates the check for a service. If no issuer was chosen for a store, the service's issuer becomes the store's. */
export function servedBy(wanted: Owner): IssuerCheck {
  return (found = wanted) => {
    if (!wanted.isChosen && found.isChosen) throw wrongIssuer(found, `no issuer is set; run ${command(found.issuer)}`);
    if (!wanted.isChosen) return found;
    if (!found.isChosen || found.issuer === wanted.issuer) return wanted;
    throw wrongIssuer(found, belongsToAnother(found, wanted));
  };
}

/**
 * Creates the check for a program. The program never adopts keys without an issuer, because an attacker could copy them
 * into several issuers' rows, and all of these issuers would then publish the same key.
 */
export function ownedBy(issuer: string): IssuerCheck {
  const wanted = { issuer, isChosen: true };
  return (found = wanted) => {
    if (found.isChosen && found.issuer === issuer) return found;
    throw wrongIssuer(found, found.isChosen ? belongsToAnother(found, wanted) : `${thisIs(wanted)}; ${assign(wanted)}`);
  };
}

/** Creates the check for a command. If no issuer is set, the command acts for the store's issuer. */
export function commandedBy(wanted: Owner): IssuerCheck {
  return (found = wanted) => {
    if (!wanted.isChosen || found.issuer === wanted.issuer) return found;
    throw wrongIssuer(found, found.isChosen ? belongsToAnother(found, wanted) : belongsToNone(wanted));
  };
}

/** Creates the check for the command that, if an issuer is set, moves a store to a different issuer. */
export function movedBy(wanted: Owner): IssuerCheck {
  return wanted.isChosen ? servedBy(wanted) : commandedBy(wanted);
}

const thisIs = ({ issuer }: Owner): string => `this process is configured for issuer ${JSON.stringify(issuer)}`;

const belongsToAnother = (found: Owner, wanted: Owner): string =>
  `${thisIs(wanted)}; set the issuer to ${found.issuer}, or use a different store`;

const belongsToNone = (wanted: Owner): string => `${thisIs(wanted)}; omit --issuer, or ${assign(wanted)}`;

const assign = ({ issuer }: Owner): string =>
  `assign the store to that issuer with ${command(issuer)} or jwksd keys rewrap --issuer ${issuer}`;

const command = (issuer: string): string => `jwksd serve --issuer ${issuer}`;

function wrongIssuer({ issuer, isChosen }: Owner, rule: string): StoreError {
  const owner = isChosen
    ? `issuer ${JSON.stringify(issuer)}`
    : `no issuer yet (they were last served as ${JSON.stringify(issuer)})`;
  return new StoreError("ERR_STORE_ISSUER", `the store's keys belong to ${owner}, but ${rule}`);
}
