import { createPublicKey } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { ConfigError, JwksdError, SignerError, TokenError, invalidClaims } from "../../base/errors.ts";
import type { FormerKey } from "./former-kubernetes-keys.ts";
import { CallError, type Unary, createGrpcServer } from "./grpc.ts";
import type { SocketSigning } from "./handler.ts";
import { bytesField, numberField, readFields, stringField } from "./protobuf.ts";
import { checkServiceAccountClaims } from "./service-account-claims.ts";

interface KubernetesOptions {
  readonly issuer: string;
  readonly formerKeys: readonly FormerKey[];
  readonly clock: Clock;
}

/**
 * How long the API server may cache the keys, in seconds. It equals the cache lifetime in rotation mode, so that a
 * revoked key disappears promptly.
 */
const refreshSeconds = 300;

/**
 * Creates the external signer for Kubernetes, which signs only service account tokens.
 *
 * @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-auth/740-service-account-external-signing
 * @see k8s.io/externaljwt/apis/v1/api.proto, Kubernetes 1.34 to 1.36
 */
export function createKubernetesSigner(
  { signing, policy, audit }: SocketSigning,
  { issuer, formerKeys, clock }: KubernetesOptions,
) {
  const maxLifetimeSeconds = (): number => policy.maxLifetimeSeconds ?? signing.source.maxTokenLifetimeSeconds;

  async function signClaims(message: Uint8Array): Promise<Uint8Array> {
    const claims = claimsIn(message);
    const rules = { issuer, policy, maxLifetimeSeconds: maxLifetimeSeconds(), now: clock.now() };
    checkServiceAccountClaims(claims, rules);
    const { header, signature } = await signing.signPayload(claims);
    return Buffer.concat([bytesField(1, header), bytesField(2, signature)]);
  }

  const Sign: Unary = (message, connection) => audit.sign(connection, () => signClaims(message));

  const FetchKeys: Unary = async () => {
    const published = signing.signingRecords();
    // The API server also rejects an empty set. It then keeps the keys that it has.
    if (published.length === 0) {
      throw new SignerError("ERR_SIGNER_STALE", "this process has been unable to reach its store since startup");
    }
    const own = published.map(({ kid, publicJwk }) => {
      const spki = createPublicKey({ key: { ...publicJwk }, format: "jwk" }).export({ type: "spki", format: "der" });
      return keyField(kid, spki);
    });
    const former = formerKeys.map(({ kid, spki }) => keyField(kid, spki, numberField(3, 1)));
    const takenAt = numberField(1, Math.floor(signing.source.takenAt / 1000));
    return Buffer.concat([...own, ...former, bytesField(2, takenAt), numberField(3, refreshSeconds)]);
  };

  const Metadata: Unary = async () => numberField(1, maxLifetimeSeconds());

  const service = "/v1.ExternalJWTSigner";
  return createGrpcServer(
    { [`${service}/Sign`]: Sign, [`${service}/FetchKeys`]: FetchKeys, [`${service}/Metadata`]: Metadata },
    toCallError,
  );
}

/** Encodes a key in `FetchKeysResponse`. */
const keyField = (kid: string, spki: Uint8Array, ...more: readonly Uint8Array[]): Uint8Array =>
  bytesField(1, Buffer.concat([bytesField(1, kid), bytesField(2, spki), ...more]));

/** Returns the claims in a `SignJWTRequest`. @throws TokenError `ERR_CLAIMS_INVALID` */
function claimsIn(message: Uint8Array): string {
  try {
    return stringField(readFields(message), 1);
  } catch (cause) {
    throw invalidClaims("the message is not a SignJWTRequest", { cause });
  }
}

/**
 * Converts an error to the one that the caller receives. Omits the message of an unknown error, because it might quote
 * secrets.
 */
function toCallError(error: unknown): CallError {
  if (!(error instanceof JwksdError)) return new CallError("internal", "an unexpected error occurred");
  const { code, retryable, message } = error;
  const isCallerError = error instanceof TokenError || error instanceof ConfigError;
  const kind = code === "ERR_CLAIMS_FORBIDDEN" ? "permissionDenied" : isCallerError ? "invalidArgument" : "internal";
  return new CallError(retryable ? "unavailable" : kind, `${code}: ${message}`);
}
