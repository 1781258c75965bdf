import type * as Sdk from "@aws-sdk/client-s3";
import { bytesWithin } from "../../base/bytes.ts";
import { ConfigError, ServiceError, invalidOption } from "../../base/errors.ts";
import { loadPackage } from "../../base/optional-package.ts";
import type { ChangedFile, TargetFile } from "./changed.ts";
import type { StaticDocument } from "./documents.ts";
import type { Target } from "./target.ts";

/** Where in which bucket. */
export interface BucketUrl {
  readonly bucket: string;
  /** Without a slash at its ends; may be empty. */
  readonly prefix: string;
}

export interface BucketOptions {
  /** URL of a service with the protocol of S3. Its buckets are in the path. Default: AWS. */
  readonly endpoint?: string | undefined;
  /** Aborts requests. */
  readonly signal?: AbortSignal | undefined;
}

const requestMs = 20_000;
/** No document of jwksd is larger. */
const maxBytes = 1_000_000;

/** @throws ConfigError `ERR_OPTION_INVALID` */
export function parseBucketUrl(url: string): BucketUrl {
  const [, bucket, prefix = ""] = /^s3:\/\/([a-z\d][a-z\d.-]{1,61}[a-z\d])(?:\/([\w!.*'()/-]*))?$/.exec(url) ?? [];
  const trimmed = prefix.replace(/\/$/, "");
  const isPath = trimmed === "" || !trimmed.split("/").some((part) => ["", ".", ".."].includes(part));
  if (bucket !== undefined && isPath) return { bucket, prefix: trimmed };
  throw invalidOption(`${JSON.stringify(url)} is no bucket; write it like s3://BUCKET/PREFIX`);
}

const meanwhile = "somebody else has written it in the meantime; let jwksd publish write it, and nothing else";

/**
 * Objects of a bucket, through the SDK `@aws-sdk/client-s3`. An object is replaced only if its ETag is the one that was noted (`If-Match`), and
 * made only if there is none (`If-None-Match`). Region and credentials come from the environment, as the SDK reads it.
 *
 * @param paths of the documents
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
      // Not every service with this protocol takes checksums, and documents are read back in any case.
      requestChecksumCalculation: "WHEN_REQUIRED",
      responseChecksumValidation: "WHEN_REQUIRED",
    });
    await s3.config.region().catch(() => {
      throw invalidOption(`the region of ${name} is not known; set AWS_REGION`);
    });
    return { sdk, s3 };
  }

  async function look(path: string): Promise<TargetFile | undefined> {
    const { sdk, s3 } = (client ??= await connect());
    const abortSignal = requestSignal();
    try {
      const command = new sdk.GetObjectCommand({ Bucket: bucket, Key: keyOf(path) });
      const { Body, ETag, ContentType, CacheControl } = await s3.send(command, { abortSignal });
      const body = await bytesWithin(Body?.transformToWebStream() ?? null, maxBytes);
      return { etag: ETag, body: body ?? new Uint8Array(), contentType: ContentType, cacheControl: CacheControl };
    } catch (error) {
      if (nameOf(error) === "NoSuchKey" || nameOf(error) === "NotFound") return undefined;
      // Without the error as its cause, which holds the request.
      throw error instanceof ConfigError
        ? error
        : new ServiceError("ERR_TARGET", `${name} cannot be read: ${reasonOf(error, bucket)}`);
    }
  }

  /** Resolves to whether the document was written. */
  async function put(document: StaticDocument): Promise<boolean> {
    const { path, body, contentType, cacheControl } = document;
    // The object was not noted before the store gave the keys, so the object may be newer than this document.
    if (!seen.has(path)) return noteNow(document, meanwhile);
    const before = seen.get(path);
    if (isSame(before, document)) return false;
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
      return noteNow(document, reasonOf(error, bucket));
    }
  }

  /**
   * Looks again after a failure. The object may have been written although the answer was lost, and then the next write under the old
   * condition is refused.
   *
   * @throws ServiceError `ERR_TARGET` unless it is done
   */
  async function noteNow(document: StaticDocument, reason: string): Promise<boolean> {
    seen.delete(document.path);
    const now = await look(document.path);
    seen.set(document.path, now);
    if (isSame(now, document)) return true;
    throw new ServiceError("ERR_TARGET", `${name} cannot be written: ${reason}`);
  }

  return {
    name,
    async open() {
      for (const path of paths) seen.set(path, await look(path));
      return [];
    },
    content: async (path) => seen.get(path)?.body,
    async changed({ documents }) {
      const changed: ChangedFile[] = [];
      for (const document of documents) {
        const there = await look(document.path);
        if (!isSame(there, document)) changed.push({ path: document.path, there });
      }
      return changed;
    },
    async put({ documents }, replaced = []) {
      for (const { path, there } of replaced) seen.set(path, there);
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

function isSame(seen: TargetFile | undefined, { body, contentType, cacheControl }: StaticDocument): boolean {
  if (seen?.contentType !== contentType || seen.cacheControl !== cacheControl) return false;
  return Buffer.from(seen.body).equals(body);
}

/** What to do, by the name of the error. @see https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html */
function reasonOf(error: unknown, bucket: string): string {
  const { code, $metadata } = error as {
    readonly code?: string;
    readonly $metadata?: { readonly httpStatusCode?: number };
  };
  const name = nameOf(error);
  const status = $metadata?.httpStatusCode;
  if (name === "NoSuchBucket") return `there is no bucket ${bucket}; make it, or correct the URL`;
  if (status === 412 || status === 409) return meanwhile;
  if (status === 501) return "the service knows no conditional writes (If-Match), so it cannot be written safely";
  if (name === "CredentialsProviderError") {
    return "there are no credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role";
  }
  if (status === 401 || status === 403) {
    return `access is denied (${name}); it takes s3:GetObject and s3:PutObject on the objects, and s3:ListBucket on the bucket, without which a missing object looks like a forbidden one`;
  }
  return status === undefined ? `no answer (${code ?? name})` : `it answered ${status} (${name})`;
}

/** The name of an error of the service, and no text of the service. */
function nameOf(error: unknown): string {
  const { name } = error as { readonly name?: unknown };
  return typeof name === "string" && /^\w{1,64}$/.test(name) ? name : "unknown";
}
