import { resolve } from "node:path";
import { invalidOption } from "../../base/errors.ts";
import { bucketTarget, parseBucketUrl } from "./bucket.ts";
import { folderTarget } from "./folder.ts";
import type { Target } from "./target.ts";

interface TargetOptions {
  /** Of the documents. */
  readonly paths: readonly string[];
  readonly replicaName: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
}

/** The folder, or the bucket of `s3://BUCKET/PREFIX`. @throws ConfigError `ERR_OPTION_INVALID` */
export function targetOf(target: string, { paths, replicaName, environment, signal }: TargetOptions): Target {
  if (target.startsWith("s3:")) {
    const endpoint = environment["AWS_ENDPOINT_URL_S3"] ?? environment["AWS_ENDPOINT_URL"];
    return bucketTarget(parseBucketUrl(target), paths, { endpoint, signal });
  }
  if (/^[a-z][a-z\d+.-]*:\/\//i.test(target)) {
    throw invalidOption(`${JSON.stringify(target)} is neither a folder nor s3://BUCKET/PREFIX`);
  }
  const folder = resolve(target);
  return folderTarget(folder, `${folder} on ${replicaName}`);
}
