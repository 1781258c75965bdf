import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { StubRequest } from "./stub-server.ts";

/** The credentials with which a request must be signed. */
export interface SigV4Expectation {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
  readonly region: string;
  readonly service: string;
}

const sha256 = (data: string | Uint8Array): string => createHash("sha256").update(data).digest("hex");
const hmac = (key: string | Uint8Array, data: string): Buffer => createHmac("sha256", key).update(data).digest();

/**
 * Returns why a request's signature is not valid for AWS, or `undefined`.
 *
 * @see https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
 */
export function sigV4Problem(request: StubRequest, expected: SigV4Expectation): string | undefined {
  const { method, url, headers, body } = request;
  const [, credential, names, signature] =
    /^AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$/.exec(
      headers.authorization ?? "",
    ) ?? [];
  if (credential === undefined || names === undefined || signature === undefined) return "no SigV4 authorization";
  const date = String(headers["x-amz-date"]);
  const [, year, month, day, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(date) ?? [];
  const signedAt = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  if (!(Math.abs(Date.now() - signedAt) < 300_000)) return "signed at another time";
  const scope = `${date.slice(0, 8)}/${expected.region}/${expected.service}/aws4_request`;
  if (credential !== `${expected.accessKeyId}/${scope}`) return "another access key, date, region or service";
  if (headers["x-amz-security-token"] !== expected.sessionToken) return "another session token";
  const signed = names.split(";");
  const own = expected.service === "s3" ? "x-amz-content-sha256" : "x-amz-target";
  const needed = ["host", "x-amz-date", own, ...(expected.sessionToken ? ["x-amz-security-token"] : [])];
  const missing = needed.filter((name) => !signed.includes(name));
  if (missing.length > 0 || signed.join() !== signed.toSorted().join()) return `headers not signed: ${missing.join()}`;
  if (own === "x-amz-content-sha256" && headers[own] !== sha256(body)) return "another body than was signed";
  const [path = "", query = ""] = url.split("?");
  const canonical = [
    method,
    path,
    query,
    ...signed.map((name) => `${name}:${String(headers[name]).trim().replaceAll(/ +/g, " ")}`),
    "",
    names,
    sha256(body),
  ].join("\n");
  const text = ["AWS4-HMAC-SHA256", date, scope, sha256(canonical)].join("\n");
  const key = [date.slice(0, 8), expected.region, expected.service, "aws4_request"].reduce<string | Uint8Array>(
    (secret, part) => hmac(secret, part),
    `AWS4${expected.secretAccessKey}`,
  );
  return timingSafeEqual(hmac(key, text), Buffer.from(signature, "hex")) ? undefined : "a wrong signature";
}
