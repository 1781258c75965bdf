import { type Configured, drivers, versionOf } from "../../lab/npm/drivers.ts";

export { type Configured, audience, nonce } from "../../lab/npm/drivers.ts";

export interface Client {
  readonly name: string;
  readonly version: string;
  /** Whether it finds the keys through discovery. */
  readonly discovers: boolean;
  /** Whether it fetches the keys itself. */
  readonly fetches: boolean;
  /** Rejects a token that it does not accept; its cache is empty. */
  readonly verify: (token: string, configured: Configured) => Promise<unknown>;
}

/** Verifiers that read documents in different ways; the lab's other verifiers build on them. */
const tried = new Set(["jose", "jwks-rsa + jsonwebtoken", "get-jwks + fast-jwt", "aws-jwt-verify", "openid-client"]);

/** The npm verifiers of the test matrix, without options. */
export const clients: readonly Client[] = drivers
  .filter(({ name }) => tried.has(name))
  .map(({ name, packages, discovers = false, make }) => ({
    name,
    version: versionOf(packages),
    discovers,
    fetches: true,
    verify: async (token, configured) => (await make(configured))(token),
  }));
