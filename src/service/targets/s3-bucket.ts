import type * as Sdk from "@aws-sdk/client-s3";
import { bytesWithin } from "../../base/bytes.ts";
import { ConfigError, IoError, invalidOption } from "../../base/errors.ts";
import { loadPackage } from "../../base/optional-package.ts";
import type { StaticDocument } from "./documents.ts";
import type { ChangedFile, TargetFile } from "./overwrite-check.ts";
import type { Target } from "./target.ts";

/** A bucket, and a prefix in the bucket. */
export interface BucketUrl {
  readonly bucket: string;
  /** Path without leading or trailing slashes; may be empty. */
  readonly prefix: string;
}

export interface BucketOptions {
  /** URL of a service that speaks the S3 protocol and accepts bucket names in the path. Default: AWS. */
  readonly endpoint?: string | undefined;
  /** Signal that aborts requests. */
  readonly signal?: AbortSignal | undefined;
}

const requestMs = 20_000;
/** Maximum size of a document, in bytes. No jwksd document is larger. */
const maxBytes = 1_000_000;

/** Parses a bucket URL, such as `s3://BUCKET/PREFIX`. @throws ConfigError `ERR_OPTION_INVALID` */
export function parseBucketUrl(url: string): BucketUrl {
  const [, bucket, prefix = ""] = /^s3:\/\/([a-z\d][a-z\d.-]{1,61}[a-z\d])(?:\/([\w!.*'()/-]*))?$/.exec(url) ?? [];
  const trimmed = prefix.replace(/\/$/, "");
  const isPath = trimmed === "" || !trimmed.split("/").some((part) => ["", ".", ".."].includes(part));
  if (bucket !== undefined && isPath) return { bucket, prefix: trimmed };
  throw invalidOption(`${JSON.stringify(url)} is not a bucket URL; write it as s3://BUCKET/PREFIX`);
}

const writtenMeanwhile =
  "another process has written there in the meantime; make sure that only one jwksd publish process writes there";

/**
 * Creates a target for objects in a bucket, using the `@aws-sdk/client-s3` SDK. An object is replaced only if it still
 * has the recorded ETag (`If-Match`), and created only if it does not exist (`If-None-Match`). The SDK reads the region
 * and credentials from the environment.
 *
 * @param paths the documents' paths
 * @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
 */
export function bucketTarget(
  { bucket, prefix }: BucketUrl,
  paths: readonly string[],
  { endpoint, signal }: BucketOptions = {},
): Target {
  const url = `s3://${[bucket, prefix].filter((part) => part !== "").join("/")}`;
  const name = endpoint === undefined ? url : `${url} at ${new URL(endpoint).host}`;
  const keyOf = (path: string): string => (prefix === "" ? path : `${prefix}/${path}`);
  const seen = new Map<string, TargetFile | undefined>();
  const requestSignal = (): AbortSignal =>
    AbortSignal.any([AbortSignal.timeout(requestMs), ...(signal === undefined ? [] : [signal])]);
  let client: { readonly sdk: typeof Sdk; readonly s3: Sdk.S3Client } | undefined;

  async function connect(): Promise<NonNullable<typeof client>> {
    const sdk = await loadPackage("@aws-sdk/client-s3", () => import("@aws-sdk/client-s3"));
    const s3 = new sdk.S3Client({
      ...(endpoint !== undefined && { endpoint, forcePathStyle: true }),
      // Not every S3-compatible service accepts checksums, and documents are read back anyway.
      requestChecksumCalculation: "WHEN_REQUIRED",
      responseChecksumValidation: "WHEN_REQUIRED",
    });
    await s3.config.region().catch(() => {
      throw invalidOption(`the region of ${name} is unknown; set AWS_REGION`);
    });
    return { sdk, s3 };
  }

  async function readObject(path: string): Promise<TargetFile | undefined> {
    const { sdk, s3 } = (client ??= await connect());
    const abortSignal = requestSignal();
    try {
      const command = new sdk.GetObjectCommand({ Bucket: bucket, Key: keyOf(path) });
      const { Body, ETag, ContentType, CacheControl } = await s3.send(command, { abortSignal });
      const body = await bytesWithin(Body?.transformToWebStream() ?? null, maxBytes);
      return { etag: ETag, body: body ?? new Uint8Array(), contentType: ContentType, cacheControl: CacheControl };
    } catch (error) {
      if (errorName(error) === "NoSuchKey" || errorName(error) === "NotFound") return undefined;
      // The error has no `cause`, because the SDK's error contains the request.
      throw error instanceof ConfigError
        ? error
        : new IoError("ERR_TARGET", `cannot read ${name}: ${failureText(error, bucket)}`);
    }
  }

  /** Writes a document. Resolves to whether a write was needed. */
  async function put(document: StaticDocument): Promise<boolean> {
    const { path, body, contentType, cacheControl } = document;
    // If the object was not recorded before the keys were read from the store, it may be newer than this document.
    if (!seen.has(path)) return recheck(document, writtenMeanwhile);
    const before = seen.get(path);
    if (isSameObject(before, document)) return false;
    const { sdk, s3 } = (client ??= await connect());
    const condition = before === undefined ? { IfNoneMatch: "*" } : { IfMatch: before.etag };
    const command = new sdk.PutObjectCommand({
      Bucket: bucket,
      Key: keyOf(path),
      Body: body,
      ContentType: contentType,
      CacheControl: cacheControl,
      ...condition,
    });
    try {
      const { ETag } = await s3.send(command, { abortSignal: requestSignal() });
      seen.set(path, { etag: ETag, body, contentType, cacheControl });
      return true;
    } catch (error) {
      return recheck(document, failureText(error, bucket));
    }
  }

  /**
   * Reads the object again after a failure. Otherwise, if the object had been written but the response had been lost,
   * the next write would fail because its condition would be out of date.
   *
   * @throws IoError `ERR_TARGET` if the object is not this document
   */
  async function recheck(document: StaticDocument, reason: string): Promise<boolean> {
    seen.delete(document.path);
    const current = await readObject(document.path);
    seen.set(document.path, current);
    if (isSameObject(current, document)) return true;
    throw new IoError("ERR_TARGET", `cannot write ${name}: ${reason}`);
  }

  return {
    name,
    async open() {
      for (const path of paths) seen.set(path, await readObject(path));
      return [];
    },
    content: async (path) => seen.get(path)?.body,
    async changed({ documents }) {
      const changed: ChangedFile[] = [];
      for (const document of documents) {
        const current = await readObject(document.path);
        if (!isSameObject(current, document)) changed.push({ path: document.path, current });
      }
      return changed;
    },
    async put({ documents }, replaced = []) {
      for (const { path, current } of replaced) seen.set(path, current);
      const written: string[] = [];
      for (const document of documents) if (await put(document)) written.push(document.path);
      return written;
    },
    async close() {
      client?.s3.destroy();
      client = undefined;
    },
  };
}

function isSameObject(seen: TargetFile | undefined, { body, contentType, cacheControl }: StaticDocument): boolean {
  if (seen?.contentType !== contentType || seen.cacheControl !== cacheControl) return false;
  return Buffer.from(seen.body).equals(body);
}

/**
 * Returns the cause of an error and how to fix it.
 *
 * @see https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
 */
function failureText(error: unknown, bucket: string): string {
  const { code, $metadata } = error as {
    readonly code?: string;
    readonly $metadata?: { readonly httpStatusCode?: number };
  };
  const name = errorName(error);
  const status = $metadata?.httpStatusCode;
  if (name === "NoSuchBucket") return `there is no bucket ${bucket}; create it or correct the URL`;
  if (status === 412 || status === 409) return writtenMeanwhile;
  if (status === 501)
    return "the service does not support conditional writes (If-Match), so jwksd cannot write to it safely; use another service";
  if (name === "CredentialsProviderError") {
    return "there are no credentials; set AWS_PROFILE, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role";
  }
  if (status === 401 || status === 403) {
    return `access is denied (${name}); allow s3:GetObject and s3:PutObject on the objects, and s3:ListBucket on the bucket (without it, a missing object looks like a forbidden one)`;
  }
  return status === undefined ? `no response (${code ?? name})` : `the service returned ${status} (${name})`;
}

/** Returns the name of the service's error, without its message. */
function errorName(error: unknown): string {
  const { name } = error as { readonly name?: unknown };
  return typeof name === "string" && /^\w{1,64}$/.test(name) ? name : "unknown";
}
