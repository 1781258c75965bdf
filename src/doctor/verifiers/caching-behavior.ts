/**
 * A verifier's measured behavior over time, while tokens keep arriving. Times are in seconds and may be up to 50 s too
 * long, because tokens arrive that far apart. `null` means that the behavior does not end on its own: it lasts until
 * the process is restarted, or for as long as the tokens in question arrive.
 */
export interface Behavior {
  readonly name: string;
  readonly version: string;
  /**
   * Time after which the verifier refetches the set on its own if `max-age` is an hour. 0 means that it refetches the
   * set for every token, and `null` means that it never does.
   */
  readonly pollSeconds: number | null;
  /** Whether the verifier refetches the set when a token names an unknown kid. */
  readonly refetchesUnknownKid: boolean;
  /** How long the verifier rejects tokens signed with a key that is used as soon as it is published. */
  readonly refusesNewKey: {
    /** How long the verifier rejects these tokens if it has just fetched the set. */
    readonly afterFetch: number | null;
    /**
     * How long the verifier rejects these tokens if it has sent no request for at least ten minutes, apart from
     * refetches that it makes on its own.
     */
    readonly inCalm: number | null;
    /** How long the verifier rejects these tokens if a forged kid has just caused a useless refetch. */
    readonly afterForgedKid: number | null;
  };
  /** How long the verifier trusts a removed key if no token names an unknown kid, for each `max-age` of the set. */
  readonly trustsRemovedKey: Readonly<Record<MaxAge, number | null>>;
  /** How long the verifier trusts a key that was replaced immediately, while tokens signed with the new key arrive. */
  readonly trustsRevokedKey: number | null;
  /**
   * How long the verifier accepts tokens during a day-long outage that begins just before a refetch. `null` means that
   * it accepts them throughout the outage.
   */
  readonly livesThrough: number | null;
  /** Number of requests caused by 1,000 tokens with forged kids that arrive within 103 seconds. */
  readonly floodRequests: number;
}

/** A `max-age` for which behavior was measured, in seconds. */
export type MaxAge = 0 | 300 | 3600 | 31536000;

// Written by `node lab/main.ts`, from lab/data.json. A test runs verifiers again and compares.

/** Date of the measurement. */
export const measuredOn = "2026-11-28";

/** Measured behavior of each verifier. */
export const behaviors: readonly Behavior[] = [
  {
    name: "jose",
    version: "6.2.17",
    pollSeconds: 600,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 30, inCalm: 0, afterForgedKid: 30 },
    trustsRemovedKey: { "0": 600, "300": 600, "3600": 600, "31536000": 600 },
    trustsRevokedKey: 30,
    livesThrough: 0,
    floodRequests: 4,
  },
  {
    name: "jwks-rsa + jsonwebtoken",
    version: "4.1.0 + 9.0.3",
    pollSeconds: 600,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": 600, "300": 600, "3600": 600, "31536000": 600 },
    trustsRevokedKey: 620,
    livesThrough: 0,
    floodRequests: 1000,
  },
  {
    name: "get-jwks + fast-jwt",
    version: "11.0.3 + 6.3.6",
    pollSeconds: 60,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": null, "300": null, "3600": null, "31536000": null },
    trustsRevokedKey: null,
    livesThrough: null,
    floodRequests: 1000,
  },
  {
    name: "aws-jwt-verify",
    version: "5.2.1",
    pollSeconds: null,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 10 },
    trustsRemovedKey: { "0": null, "300": null, "3600": null, "31536000": null },
    trustsRevokedKey: 1,
    livesThrough: null,
    floodRequests: 11,
  },
  {
    name: "openid-client",
    version: "6.9.0",
    pollSeconds: 300,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 60, inCalm: 0, afterForgedKid: 60 },
    trustsRemovedKey: { "0": 300, "300": 300, "3600": 300, "31536000": 300 },
    trustsRevokedKey: 60,
    livesThrough: 0,
    floodRequests: 2,
  },
  {
    name: "oauth4webapi",
    version: "3.8.8",
    pollSeconds: 300,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 60, inCalm: 0, afterForgedKid: 60 },
    trustsRemovedKey: { "0": 300, "300": 300, "3600": 300, "31536000": 300 },
    trustsRevokedKey: 60,
    livesThrough: 0,
    floodRequests: 2,
  },
  {
    name: "jwks-rsa + express-jwt",
    version: "4.1.0 + 8.5.1",
    pollSeconds: 600,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": 600, "300": 600, "3600": 600, "31536000": 600 },
    trustsRevokedKey: 620,
    livesThrough: 0,
    floodRequests: 10,
  },
  {
    name: "jwks-rsa + passport-jwt",
    version: "4.1.0 + 4.0.1",
    pollSeconds: 600,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": 600, "300": 600, "3600": 600, "31536000": 600 },
    trustsRevokedKey: 620,
    livesThrough: 0,
    floodRequests: 10,
  },
  {
    name: "express-oauth2-jwt-bearer",
    version: "1.10.0",
    pollSeconds: 600,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 30, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": 600, "300": 600, "3600": 600, "31536000": 600 },
    trustsRevokedKey: 30,
    livesThrough: 0,
    floodRequests: 5,
  },
  {
    name: "hono/jwk",
    version: "4.13.19",
    pollSeconds: 0,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": 0, "300": 0, "3600": 0, "31536000": 0 },
    trustsRevokedKey: 0,
    livesThrough: 0,
    floodRequests: 1000,
  },
  {
    name: "jwksd guard",
    version: "0.1.0",
    pollSeconds: 3540,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": 5, "300": 240, "3600": 3540, "31536000": 86400 },
    trustsRevokedKey: 1,
    livesThrough: 3700,
    floodRequests: 15,
  },
  {
    name: "jwksd key set",
    version: "0.1.0",
    pollSeconds: 3540,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": 5, "300": 240, "3600": 3540, "31536000": 86400 },
    trustsRevokedKey: 1,
    livesThrough: 3700,
    floodRequests: 15,
  },
  {
    name: "PyJWT",
    version: "2.6.0",
    pollSeconds: 300,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": 300, "300": 300, "3600": 300, "31536000": 300 },
    trustsRevokedKey: 1,
    livesThrough: 0,
    floodRequests: 1000,
  },
  {
    name: "Authlib",
    version: "1.2.0",
    pollSeconds: null,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": null, "300": null, "3600": null, "31536000": null },
    trustsRevokedKey: 1,
    livesThrough: null,
    floodRequests: 1000,
  },
  {
    name: "go-oidc",
    version: "2.1.0",
    pollSeconds: null,
    refetchesUnknownKid: false,
    refusesNewKey: { afterFetch: 3571, inCalm: 2371, afterForgedKid: 2370 },
    trustsRemovedKey: { "0": null, "300": null, "3600": null, "31536000": null },
    trustsRevokedKey: 3620,
    livesThrough: null,
    floodRequests: 0,
  },
  {
    name: "ruby-jwt",
    version: "2.5.0",
    pollSeconds: null,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 301, inCalm: 0, afterForgedKid: 330 },
    trustsRemovedKey: { "0": null, "300": null, "3600": null, "31536000": null },
    trustsRevokedKey: 370,
    livesThrough: null,
    floodRequests: 1,
  },
  {
    name: "mod_auth_openidc",
    version: "2.4.12.3",
    pollSeconds: 3600,
    refetchesUnknownKid: true,
    refusesNewKey: { afterFetch: 0, inCalm: 0, afterForgedKid: 0 },
    trustsRemovedKey: { "0": 3600, "300": 3600, "3600": 3600, "31536000": 3600 },
    trustsRevokedKey: 1,
    livesThrough: 0,
    floodRequests: 1000,
  },
];
