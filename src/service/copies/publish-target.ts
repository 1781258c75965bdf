import { resolve } from "node:path";
import { invalidOption } from "../../base/errors.ts";
import { bucketTarget, parseBucketUrl } from "./bucket.ts";
import { type CopiedSite, pathsOf } from "./documents.ts";
import { folderTarget } from "./folder.ts";
import type { Target } from "./target.ts";
import { readSite } from "../config/site.ts";
import type { PublishOptions } from "./publish.ts";
import type { Settings } from "../config/setting-definitions.ts";

/**
 * Where relying parties find what is published.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`, `ERR_PATH_CLASH`, `ERR_CONFIG_FORMAT`
 */
export async function siteOf(settings: Settings): Promise<CopiedSite> {
  const { issuer } = settings;
  if (issuer === undefined) {
    throw invalidOption("the URL is missing at which relying parties find what is published; give it with --issuer");
  }
  const site = { ...(await readSite(settings)), issuer };
  // Refuses wrong ones before anything is opened.
  pathsOf(site);
  return site;
}

/**
 * The folder, or the bucket of `s3://BUCKET/PREFIX`.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function targetOf(
  target: string,
  site: CopiedSite,
  replicaName: string,
  { environment, signal }: Pick<PublishOptions, "environment" | "signal">,
): Target {
  if (target.startsWith("s3:")) {
    const endpoint = environment["AWS_ENDPOINT_URL_S3"] ?? environment["AWS_ENDPOINT_URL"];
    return bucketTarget(parseBucketUrl(target), pathsOf(site), { endpoint, signal });
  }
  if (/^[a-z][a-z\d+.-]*:\/\//i.test(target)) {
    throw invalidOption(`${JSON.stringify(target)} is neither a folder nor s3://BUCKET/PREFIX`);
  }
  const folder = resolve(target);
  return folderTarget(folder, `${folder} on ${replicaName}`);
}
