import { StoreError } from "../../base/errors.ts";

/** Whose keys a store holds. */
export interface Owner {
  /** Issuer identifier. Where none was chosen: the URL on this machine under which the keys were last served. */
  readonly issuer: string;
  /** Whether somebody has set it. */
  readonly isChosen: boolean;
}

/**
 * Decides for whom the keys of a store are used and committed from now on. `found` is their owner by the MAC; `undefined` for a store without keys.
 *
 * @throws StoreError `ERR_STORE_ISSUER`: those of another issuer
 */
export type IssuerCheck = (found: Owner | undefined) => Owner;

/** To which private keys are bound while no issuer is chosen: what stands in for one changes with host and port. */
const noIssuer = "http://localhost";

/** To which issuer private keys are bound. */
export function bindingOf({ issuer, isChosen }: Owner): string {
  return isChosen ? issuer : noIssuer;
}

/** The owner of private keys that are bound to this issuer. Where no issuer was chosen, the binding does not say where they are served. */
export function ownerOfBinding(issuer: string, wanted: Owner): Owner {
  if (issuer !== noIssuer) return { issuer, isChosen: true };
  return wanted.isChosen ? { issuer, isChosen: false } : wanted;
}

/** The check of a service: a store for which no issuer was chosen takes the issuer of the service. */
export function servedBy(wanted: Owner): IssuerCheck {
  return (found = wanted) => {
    if (!wanted.isChosen && found.isChosen) throw other(found, `no issuer is set; ${command(found.issuer)} goes on`);
    if (!wanted.isChosen) return found;
    if (!found.isChosen || found.issuer === wanted.issuer) return wanted;
    throw other(found, ofAnother(found, wanted));
  };
}

/** The check of a command: without an issuer it acts for the issuer of the store. */
export function commandedBy(wanted: Owner): IssuerCheck {
  return (found = wanted) => {
    if (!wanted.isChosen || found.issuer === wanted.issuer) return found;
    throw other(found, found.isChosen ? ofAnother(found, wanted) : notTaken(wanted));
  };
}

/** The check of the command that gives a store to another issuer, if an issuer is set. */
export function movedBy(wanted: Owner): IssuerCheck {
  return wanted.isChosen ? servedBy(wanted) : commandedBy(wanted);
}

const ofAnother = (found: Owner, wanted: Owner): string =>
  `this is issuer ${JSON.stringify(wanted.issuer)}; go on with the issuer ${found.issuer}, or use another store`;

const notTaken = ({ issuer }: Owner): string =>
  `this is issuer ${JSON.stringify(issuer)}; go on without --issuer, or let the store take it: ${command(issuer)}, or jwksd keys rewrap --issuer ${issuer}`;

const command = (issuer: string): string => `jwksd serve --issuer ${issuer}`;

function other({ issuer, isChosen }: Owner, rule: string): StoreError {
  const whose = isChosen
    ? `are those of issuer ${JSON.stringify(issuer)}`
    : `are those of no issuer yet (last served as ${JSON.stringify(issuer)})`;
  return new StoreError("ERR_STORE_ISSUER", `the keys of the store ${whose}, and ${rule}`);
}
