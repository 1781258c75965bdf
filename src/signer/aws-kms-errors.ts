import { type Failure, kindOfStatus, word } from "./remote.ts";

const kinds: Readonly<Record<string, Failure["code"]>> = {
  AccessDenied: "ERR_SIGNER_UNAUTHORIZED",
  AccessDeniedException: "ERR_SIGNER_UNAUTHORIZED",
  CredentialsProviderError: "ERR_SIGNER_UNAUTHORIZED",
  TokenProviderError: "ERR_SIGNER_UNAUTHORIZED",
  ExpiredTokenException: "ERR_SIGNER_UNAUTHORIZED",
  IncompleteSignature: "ERR_SIGNER_UNAUTHORIZED",
  InvalidClientTokenId: "ERR_SIGNER_UNAUTHORIZED",
  InvalidSignatureException: "ERR_SIGNER_UNAUTHORIZED",
  MissingAuthenticationTokenException: "ERR_SIGNER_UNAUTHORIZED",
  NotAuthorized: "ERR_SIGNER_UNAUTHORIZED",
  OptInRequired: "ERR_SIGNER_UNAUTHORIZED",
  UnrecognizedClientException: "ERR_SIGNER_UNAUTHORIZED",
  LimitExceededException: "ERR_SIGNER_THROTTLED",
  RequestLimitExceeded: "ERR_SIGNER_THROTTLED",
  ThrottlingException: "ERR_SIGNER_THROTTLED",
  TooManyRequestsException: "ERR_SIGNER_THROTTLED",
  DisabledException: "ERR_SIGNER_KEY_STATE",
  KMSInvalidStateException: "ERR_SIGNER_KEY_STATE",
  NotFoundException: "ERR_SIGNER_KEY_STATE",
  KeyUnavailableException: "ERR_SIGNER_UNAVAILABLE",
  DependencyTimeoutException: "ERR_SIGNER_UNAVAILABLE",
};

/** @see https://docs.aws.amazon.com/kms/latest/APIReference/CommonErrors.html */
export function kindOfAwsError(error: unknown): Failure {
  const { name, code, $metadata } = error as {
    name?: unknown;
    code?: unknown;
    $metadata?: { httpStatusCode?: number };
  };
  const status = $metadata?.httpStatusCode;
  const known = Object.entries(kinds).find(([kind]) => kind === name)?.[1];
  const detail = word(status === undefined ? (code ?? name) : name) ?? "no connection";
  return { code: known ?? (status === undefined ? "ERR_SIGNER_UNAVAILABLE" : kindOfStatus(status)), detail };
}
