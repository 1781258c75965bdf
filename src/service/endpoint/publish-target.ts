import { resolve } from "node:path";
import { ConfigError } from "../../base/errors.ts";
import { bucketTarget, parseBucketUrl } from "../copies/bucket.ts";
import { type Place, pathsOf } from "../copies/documents.ts";
import { folderTarget } from "../copies/folder.ts";
import { checkServable } from "../copies/server-configs.ts";
import type { Target } from "../copies/target.ts";
import { hostName } from "./manager-events.ts";
import { readPlace } from "./place.ts";
import type { Settings } from "../config/setting-definitions.ts";

/**
 * Where relying parties find what is published.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`, `ERR_PATH_CLASH`, `ERR_CONFIG_FORMAT`
 */
export async function placeOf(settings: Settings): Promise<Place> {
  const { issuer } = settings;
  if (issuer === undefined) {
    throw new ConfigError(
      "ERR_OPTION_INVALID",
      "the URL is missing at which relying parties find what is published; give it with --issuer",
    );
  }
  const place = { ...(await readPlace(settings)), issuer };
  // Refuses wrong ones before anything is opened.
  pathsOf(place);
  return place;
}

/**
 * The folder, or the bucket of `s3://BUCKET/PREFIX`.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function targetOf(
  target: string,
  place: Place,
  settings: Settings,
  environment: Readonly<Record<string, string | undefined>>,
): Target {
  if (target.startsWith("s3:")) {
    const endpoint = environment["AWS_ENDPOINT_URL_S3"] ?? environment["AWS_ENDPOINT_URL"];
    return bucketTarget(parseBucketUrl(target), pathsOf(place), { endpoint });
  }
  if (/^[a-z][a-z\d+.-]*:\/\//i.test(target)) {
    throw new ConfigError("ERR_OPTION_INVALID", `${JSON.stringify(target)} is neither a folder nor s3://BUCKET/PREFIX`);
  }
  const folder = resolve(target);
  checkServable(folder);
  return folderTarget(folder, `${folder} on ${settings.replicaName ?? hostName()}`, place);
}
