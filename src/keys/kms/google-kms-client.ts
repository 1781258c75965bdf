import type { KeyManagementServiceClient } from "@google-cloud/kms";
import { importFailure } from "../../base/optional-package.ts";
import type { FailureCode, ServiceCall } from "./key-service.ts";

// Clients are shared, because creating one costs half a second of CPU time. In REST mode, they need not be closed.
const clients = new Map<string, Promise<KeyManagementServiceClient>>();

/** Returns the shared client for an endpoint. */
export function clientFor(endpoint: string | undefined): Promise<KeyManagementServiceClient> {
  const cacheKey = endpoint ?? "";
  const known = clients.get(cacheKey);
  if (known !== undefined) return known;
  const connecting = connect(endpoint);
  clients.set(cacheKey, connecting);
  connecting.catch(() => clients.delete(cacheKey));
  return connecting;
}

async function connect(endpoint: string | undefined): Promise<KeyManagementServiceClient> {
  let sdk;
  try {
    sdk = await import("@google-cloud/kms");
  } catch (error) {
    throw importFailure("@google-cloud/kms", error);
  }
  const url = endpoint === undefined ? undefined : new URL(endpoint);
  const client = new sdk.KeyManagementServiceClient({
    fallback: true,
    ...(url !== undefined && {
      apiEndpoint: url.hostname,
      protocol: url.protocol.replace(":", ""),
      port: Number(url.port) || (url.protocol === "http:" ? 80 : 443),
    }),
  });
  try {
    // Without this call, the SDK ends the process if it finds no credentials.
    await client.initialize();
  } catch (error) {
    throw new CredentialsError(error);
  }
  return client;
}

/** Thrown if the SDK found no credentials. The cause contains the reason. */
class CredentialsError extends Error {
  constructor(cause: unknown) {
    super("no credentials", { cause });
  }
}

/** Returns call settings that allow at most three retries. By default, the SDK would retry for ten minutes. */
export function settingsFor({ signal, timeoutMs }: ServiceCall<unknown>): { signal: AbortSignal; retry: object } {
  return {
    signal,
    retry: {
      backoffSettings: {
        initialRetryDelayMillis: 100,
        retryDelayMultiplier: 2,
        maxRetryDelayMillis: 1000,
        initialRpcTimeoutMillis: timeoutMs,
        rpcTimeoutMultiplier: 1,
        maxRpcTimeoutMillis: timeoutMs,
        totalTimeoutMillis: null,
        maxRetries: 3,
      },
    },
  };
}

/** gRPC status codes, which the SDK also uses over REST. */
export const status = { notFound: 5, alreadyExists: 6 } as const;
// @see https://grpc.io/docs/guides/status-codes/
const failures: ReadonlyMap<unknown, readonly [FailureCode, detail: string]> = new Map([
  [3, ["ERR_SIGNER_KEY_STATE", "INVALID_ARGUMENT"]],
  [4, ["ERR_SIGNER_UNAVAILABLE", "DEADLINE_EXCEEDED"]],
  [5, ["ERR_SIGNER_KEY_STATE", "NOT_FOUND"]],
  [7, ["ERR_SIGNER_UNAUTHORIZED", "PERMISSION_DENIED"]],
  [8, ["ERR_SIGNER_THROTTLED", "RESOURCE_EXHAUSTED"]],
  [9, ["ERR_SIGNER_KEY_STATE", "FAILED_PRECONDITION"]],
  [13, ["ERR_SIGNER_UNAVAILABLE", "INTERNAL"]],
  [14, ["ERR_SIGNER_UNAVAILABLE", "UNAVAILABLE"]],
  [16, ["ERR_SIGNER_UNAUTHORIZED", "UNAUTHENTICATED"]],
]);

export const codeOf = (error: unknown): unknown => (error as { code?: unknown } | undefined)?.code;

/** Classifies an error from the SDK. @see {@link KeyService.classifyError} */
export function classifyError(error: unknown): readonly [FailureCode, detail: string] {
  const { cause } = error as { cause?: { status?: unknown; config?: unknown } };
  // The token service's status. Errors from the API itself have a code instead.
  const tokenStatus = typeof cause?.status === "number" ? cause.status : undefined;
  if (error instanceof CredentialsError) {
    const isFailing = tokenStatus === undefined ? cause?.config !== undefined : tokenStatus >= 500;
    return [
      isFailing ? "ERR_SIGNER_UNAVAILABLE" : "ERR_SIGNER_UNAUTHORIZED",
      tokenStatus === undefined ? "no credentials found" : `no credentials: status ${tokenStatus}`,
    ];
  }
  if (tokenStatus === 400) return ["ERR_SIGNER_UNAUTHORIZED", "no token: status 400"];
  return failures.get(codeOf(error)) ?? ["ERR_SIGNER_UNAVAILABLE", "no usable response"];
}
