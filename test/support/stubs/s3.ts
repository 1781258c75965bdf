import { createHash } from "node:crypto";
import { type SigV4Expectation, sigV4Problem } from "./sigv4.ts";
import { Refusal, type StubAnswer, type StubRequest, type StubServer, stubServer } from "./stub-server.ts";

/** An object in the stub. */
export interface S3Object {
  readonly body: Buffer;
  readonly contentType: string;
  readonly cacheControl: string;
  readonly etag: string;
}

const usual: SigV4Expectation = {
  accessKeyId: "AKIAEXAMPLE",
  secretAccessKey: "secret",
  region: "eu-central-1",
  service: "s3",
};

/** Environment variables with the stub's credentials, which the SDK reads. */
export const s3Variables = {
  AWS_ACCESS_KEY_ID: usual.accessKeyId,
  AWS_SECRET_ACCESS_KEY: usual.secretAccessKey,
  AWS_REGION: usual.region,
};

/** A bucket. Operations: `GetObject`, `PutObject`, and `read`, which is public. */
export interface S3Stub extends StubServer {
  readonly bucket: string;
  /** Objects by key, in the order of their first writes. */
  readonly objects: Map<string, S3Object>;
  /** Keys in the order of all writes. */
  readonly writes: readonly string[];
  /** Number of signed and public reads that still return the object from before the last write. */
  readonly stale: { signed: number; read: number };
  /** Writes an object as another program. */
  overwrite(key: string, text: string): void;
}

const error = (status: number, code: string): StubAnswer => ({
  status,
  headers: { "Content-Type": "application/xml" },
  body: `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${code}</Code><Message>a message that must not be shown</Message></Error>`,
});

/** Starts a stub of the part of S3 that stores objects, with its checks. @see https://docs.aws.amazon.com/AmazonS3/latest/API/ */
export async function s3Stub(access = usual, bucket = "example-issuer"): Promise<S3Stub> {
  const objects = new Map<string, S3Object>();
  const before = new Map<string, S3Object>();
  const writes: string[] = [];
  const stale = { signed: 0, read: 0 };
  const server = await stubServer(operationOf, answer);

  function put(key: string, object: Omit<S3Object, "etag">): S3Object {
    const old = objects.get(key);
    if (old !== undefined) before.set(key, old);
    const etag = `"${createHash("md5").update(object.body).digest("hex")}"`;
    objects.set(key, { ...object, etag });
    writes.push(key);
    return { ...object, etag };
  }

  function found(key: string, who: keyof typeof stale): S3Object | undefined {
    if (stale[who] === 0 || !objects.has(key)) return objects.get(key);
    stale[who] -= 1;
    return before.get(key);
  }

  function answer(operation: string, request: StubRequest): StubAnswer {
    const [, inBucket = "", key = ""] = /^\/([^/]+)\/([^?]+)/.exec(request.url) ?? [];
    const isRead = operation === "read";
    const problem = isRead ? undefined : sigV4Problem(request, access);
    if (problem !== undefined) throw new Refusal(problem, error(403, "SignatureDoesNotMatch"));
    if (inBucket !== bucket) return error(404, "NoSuchBucket");
    if (operation === "PutObject") return write(key, request);
    const object = found(key, isRead ? "read" : "signed");
    if (object === undefined) return error(404, "NoSuchKey");
    const { body, contentType, cacheControl, etag } = object;
    return { status: 200, headers: { "Content-Type": contentType, "Cache-Control": cacheControl, ETag: etag }, body };
  }

  /** @see https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html */
  function write(key: string, { headers, body }: StubRequest): StubAnswer {
    const [ifMatch, ifNoneMatch] = [headers["if-match"], headers["if-none-match"]];
    const there = objects.get(key);
    if (ifMatch === undefined && ifNoneMatch !== "*") throw new Refusal("no condition", error(400, "InvalidRequest"));
    if (ifMatch !== undefined && there === undefined) return error(404, "NoSuchKey");
    if (ifMatch !== undefined ? there?.etag !== ifMatch : there !== undefined) return error(412, "PreconditionFailed");
    const [contentType, cacheControl] = [headers["content-type"], headers["cache-control"]];
    if (contentType === undefined || cacheControl === undefined) {
      throw new Refusal("no metadata", error(400, "InvalidRequest"));
    }
    const { etag } = put(key, { body, contentType, cacheControl });
    return { status: 200, headers: { ETag: etag } };
  }

  return Object.assign(server, {
    bucket,
    objects,
    writes,
    stale,
    overwrite: (key: string, text: string) =>
      void put(key, { body: Buffer.from(text), contentType: "text/plain", cacheControl: "no-store" }),
  });
}

function operationOf({ method, headers }: StubRequest): string {
  if (headers.authorization === undefined) return "read";
  return method === "PUT" ? "PutObject" : "GetObject";
}
