import type { Optional } from "../../base/options.ts";
import type { Clock } from "../../base/clock.ts";
import type { NodeRequest, NodeResponse } from "../../publish/node.ts";
import type { Metadata } from "../../publish/discovery.ts";
import type { Provider } from "../../provider/types.ts";
import type { Claims, SignOptions } from "../../sign/token/sign-options.ts";
import type { KeyManager, ManagerEvent } from "../manager/types.ts";
import type { RotationPolicyOptions } from "../rules/policy.ts";
import type { Register } from "../store/register.ts";

/** Options of `createIssuers`. */
export interface IssuersOptions {
  /**
   * Issuer identifier with one `*`. In the path, such as `https://login.example.com/*`, it stands for 1 to 128 letters, digits, `-`, `.`, `_` and
   * `~`, with no dot first. In the host, such as `https://*.example.com`, for one label; alone there, for a whole host.
   */
  readonly issuer: string;
  /**
   * Gives the register of an issuer, whenever one is taken up; for `runAllDueSteps`, it gets the option `issuer` with its `*`, and any register of the
   * database will do. Registers share a pool or a client, which is yours to end; nobody closes a
   * register.
   */
  readonly store: (issuer: string) => Register | Promise<Register>;
  /** See `createKeyManager`. The same for all issuers. */
  readonly wrappingKeys: string | readonly string[];
  /** How the keys of new issuers rotate. The period of each is up to a tenth shorter. Default: that of {@link RotationPolicyOptions}. */
  readonly policy?: Optional<RotationPolicyOptions>;
  /** More members of the discovery document of an issuer. See `createProvider`. Default: none. */
  readonly metadata?: Optional<(issuer: string) => Metadata>;
  /** How old a read may be, in seconds. See `createKeyManager`. Default: 30. */
  readonly refreshSeconds?: Optional<number>;
  /** How many issuers are kept in memory; those that were not used for the longest time are forgotten first. They take at most about 100 MB. Default: 1,000. */
  readonly maxIssuers?: Optional<number>;
  /** Keeps the platform from ending a read with the request that began it. See `createKeyManager`. Default: none. */
  readonly waitUntil?: Optional<(promise: Promise<unknown>) => unknown>;
  /** Gets changes of keys, and failures, of issuers in memory. Default: nobody listens. */
  readonly onEvent?: Optional<(event: ManagerEvent, issuer: string) => void>;
  /** Tells the time. Default: the clock of the machine. */
  readonly clock?: Optional<Clock>;
}

/** One of many issuers. It goes on working when it is forgotten, and needs no end. */
export interface ManagedIssuer {
  readonly keys: KeyManager;
  readonly provider: Provider;
}

/** A request with the names of its host. */
export interface HostRequest extends NodeRequest {
  /** All header fields: name, value, name, value. They show a second `Host` field, which `headers` leaves out. */
  readonly rawHeaders?: readonly string[] | undefined;
  readonly headers: NodeRequest["headers"] & {
    readonly host?: string | undefined;
    readonly ":authority"?: string | readonly string[] | undefined;
  };
}

/** What {@link Issuers.runAllDueSteps} did. */
export interface DueStepsReport {
  /** How many issuers had a step that was due. */
  readonly issuers: number;
  /** Those that could not be looked at, and why. */
  readonly failed: ReadonlyMap<string, unknown>;
}

/** Publishes and signs for many issuers, and takes up each when it is asked for. */
export interface Issuers {
  /** `undefined` where the issuer has no keys; makes none. @throws StoreError `ERR_STORE_UNAVAILABLE`, and what the option `store` throws */
  get(this: void, issuer: string): Promise<ManagedIssuer | undefined>;
  /**
   * Makes the first key of an issuer that has none, such as when a tenant signs up. Do not call it for names that came with a request.
   *
   * @throws ConfigError `ERR_ISSUER_INVALID`; and see `createKeyManager`
   */
  create(this: void, issuer: string): Promise<ManagedIssuer>;
  /** Signs claims for an issuer. @throws StoreError `ERR_STORE_EMPTY`: it has no keys; and see `get` and `Provider.sign` */
  sign(this: void, issuer: string, claims: Claims, options: SignOptions): Promise<string>;
  /** Answers a request for the document of an issuer, by its URL; 404 for others, and 503 where keys cannot be read. */
  fetch(this: void, request: Request): Response | Promise<Response>;
  /**
   * Answers a request of `node:http`, Express or Connect. For the path it goes by the URL, for the host by the Host header. For other requests,
   * calls `next` if it is given, else answers 404.
   */
  node(this: void, request: HostRequest, response: NodeResponse, next?: () => void): void;
  /** Takes the steps of an issuer that are due. It is not kept in memory for that. @throws StoreError; see `KeyManager.runDueSteps` */
  runDueSteps(this: void, issuer: string): Promise<void>;
  /**
   * Looks at all issuers whose next step is due, ten at a time, the longest due first. One that fails is no obstacle to the others. Call it
   * once an hour.
   *
   * @throws ConfigError `ERR_OPTION_INVALID`: the store cannot list them
   * @throws StoreError `ERR_STORE_UNAVAILABLE`
   */
  runAllDueSteps(this: void): Promise<DueStepsReport>;
}
