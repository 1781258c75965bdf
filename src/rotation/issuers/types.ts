import type { Clock } from "../../base/clock.ts";
import type { Metric } from "../../base/metrics.ts";
import type { Optional } from "../../base/options.ts";
import type { Provider } from "../../provider/types.ts";
import type { Metadata } from "../../publish/discovery.ts";
import type { NodeRequest, NodeResponse } from "../../publish/node-response.ts";
import type { FetchHandler } from "../../publish/web-response.ts";
import type { Claims, SignOptions } from "../../sign/token/sign-options.ts";
import type { IssuerStatus } from "../explain/issuer-status.ts";
import type { DecommissionOptions, KeyManager, KeyManagerEvent } from "../manager/types.ts";
import type { RotationPolicyOptions } from "../rules/policy.ts";
import type { ListedIssuer, Register } from "../store/register.ts";

/** Options for `createIssuers`. */
export interface IssuersOptions {
  /**
   * Issuer identifier with one `*`. In the path, as in `https://login.example.com/*`, it stands for 1 to 128 letters,
   * digits, `-`, `.`, `_` and `~`, not starting with a dot. In the host, as in `https://*.example.com`, it stands for
   * one label. If the host is only `*`, it stands for a whole host.
   */
  readonly issuer: string;
  /**
   * Returns the register for an issuer that is being loaded. For `runAllDueSteps`, this function receives the `issuer`
   * option, including the `*`, and may return any register in the database. Registers share a pool or a client, which
   * the application closes; jwksd does not close registers.
   */
  readonly store: (issuer: string) => Register | Promise<Register>;
  /** Wrapping keys for all issuers. See `createKeyManager`. */
  readonly wrappingKeys: string | readonly string[];
  /**
   * Rotation policy for new issuers. Each issuer's period is up to a tenth shorter. Default: the defaults of
   * {@link RotationPolicyOptions}.
   */
  readonly initialPolicy?: Optional<RotationPolicyOptions>;
  /** Returns additional members of an issuer's discovery document. See `createProvider`. Default: none. */
  readonly metadata?: Optional<(issuer: string) => Metadata>;
  /** Maximum age of a read before the store is read again, in seconds. See `createKeyManager`. Default: 30. */
  readonly refreshSeconds?: Optional<number>;
  /**
   * Maximum number of issuers in memory. The least recently used ones are dropped first. All of them together take at
   * most about 100 MB. Default: 1,000.
   */
  readonly maxIssuers?: Optional<number>;
  /**
   * Keeps the platform from aborting a read when the request that started it ends. See `createKeyManager`. Default:
   * none.
   */
  readonly waitUntil?: Optional<(promise: Promise<unknown>) => unknown>;
  /** Receives an event for each key change and failure of the issuers in memory. Default: none. */
  readonly onEvent?: Optional<(event: KeyManagerEvent, issuer: string) => void>;
  /** Clock and timers. Default: the machine's. */
  readonly clock?: Optional<Clock>;
}

/** One of many issuers. It continues to work after it has been dropped from memory, and does not need to be closed. */
export interface ManagedIssuer {
  readonly keys: KeyManager;
  readonly provider: Provider;
}

/** A request, including everything that names its host. */
export interface HostRequest extends NodeRequest {
  /**
   * All header fields, as a list of alternating names and values. If there is a second `Host` field, the list includes
   * it, whereas `headers` leaves it out.
   */
  readonly rawHeaders?: readonly string[] | undefined;
  readonly headers: NodeRequest["headers"] & {
    readonly host?: string | undefined;
    readonly ":authority"?: string | readonly string[] | undefined;
  };
}

/** The result of {@link Issuers.runAllDueSteps}. */
export interface DueStepsReport {
  /** Number of issuers that had a due step. */
  readonly issuers: number;
  /** Errors from the issuers that failed, by issuer. */
  readonly failed: ReadonlyMap<string, unknown>;
}

/** Options for {@link Issuers.list}. */
export interface ListIssuersOptions {
  /** Last issuer of the previous page. Default: none, for the first page. */
  readonly after?: Optional<ListedIssuer>;
  /** Number of issuers on a page, at most 10,000. Default: 100. */
  readonly limit?: Optional<number>;
}

/** Publishes and signs for many issuers. Each is loaded when it is first needed. */
export interface Issuers {
  /**
   * Returns an issuer, or `undefined` if it has no keys.
   *
   * @throws StoreError `ERR_STORE_UNAVAILABLE`, and errors from the `store` option
   */
  get(this: void, issuer: string): Promise<ManagedIssuer | undefined>;
  /**
   * Generates the first key for an issuer that has no keys, for example when a tenant signs up. Never call it with a
   * name from a request.
   *
   * @throws ConfigError `ERR_ISSUER_INVALID`, and errors from `createKeyManager`
   * @throws RotationError `ERR_ISSUER_DECOMMISSIONED` if the issuer has been decommissioned; `allowedAt` is the time
   * from which its name can be used again
   */
  create(this: void, issuer: string): Promise<ManagedIssuer>;
  /**
   * Decommissions an issuer, for example when a tenant leaves: see `KeyManager.decommission`. Leave its row in the
   * database. If a backup is restored, the issuer must be decommissioned again, with `jwksd decommission --from` or
   * another call.
   *
   * @throws ConfigError `ERR_ISSUER_INVALID`; StoreError `ERR_STORE_EMPTY` if the issuer has no keys, as well as the
   * errors from `KeyManager.decommission`
   */
  decommission(this: void, issuer: string, options?: DecommissionOptions): Promise<void>;
  /**
   * Signs claims for an issuer.
   *
   * @throws StoreError `ERR_STORE_EMPTY` if the issuer has no keys, as well as the errors from `get` and
   * `Provider.sign`
   */
  sign(this: void, issuer: string, claims: Claims, options: SignOptions): Promise<string>;
  /**
   * Responds to a request with the document of the issuer named in the request's URL. If the URL does not name an
   * issuer, responds with 404; if the keys cannot be read, with 503. Also accepts the same arguments as the global
   * `fetch`.
   */
  readonly fetch: FetchHandler;
  /**
   * Responds to a request from `node:http`, Express or Connect with the document of the issuer named in the request's
   * path or Host header. If neither names an issuer, calls `next`, or responds with 404 if there is no `next`. A
   * request with two hosts gets 400.
   */
  node(this: void, request: HostRequest, response: NodeResponse, next?: () => void): void;
  /**
   * Takes an issuer's due steps without loading the issuer into memory.
   *
   * @throws StoreError, for the same reasons as `KeyManager.runDueSteps`
   */
  runDueSteps(this: void, issuer: string): Promise<void>;
  /**
   * Takes the due steps of all issuers: ten issuers at a time, the most overdue first. If one issuer fails, the others
   * are still processed. Call it once an hour.
   *
   * @throws ConfigError `ERR_OPTION_INVALID` if the store cannot list issuers
   * @throws StoreError `ERR_STORE_UNAVAILABLE`
   */
  runAllDueSteps(this: void): Promise<DueStepsReport>;
  /**
   * Lists issuers and their states, ordered by their rows' keys. Reads every listed issuer, ten at a time, and changes
   * nothing. A page with fewer issuers than `limit` is the last page.
   *
   * @throws ConfigError `ERR_OPTION_UNKNOWN`, or `ERR_OPTION_INVALID` if an option is invalid or the store cannot list
   * issuers
   * @throws StoreError `ERR_STORE_UNAVAILABLE`
   */
  list(this: void, options?: ListIssuersOptions): Promise<readonly IssuerStatus[]>;
  /** Returns combined metrics for all issuers, for a scrape. See docs/metrics.md. */
  metrics(this: void): readonly Metric[];
  /**
   * Waits for database calls in flight and closes the managers of all issuers in memory. Afterwards, nothing signs,
   * requests get 503, and other calls throw `ERR_CLOSED`. Call it before you close the database.
   */
  close(this: void): Promise<void>;
}
