import { checkMetadata } from "../../publish/discovery.ts";
import type { Site } from "../../publish/publisher.ts";
import { readJsonObject } from "./json-file.ts";
import type { Settings } from "./setting-definitions.ts";

type SiteSettings = Pick<Settings, "issuer" | "mountPrefix" | "jwksPath" | "noCors" | "noDiscovery" | "metadata">;

/**
 * Returns the site that the settings describe. A site contains no secrets.
 *
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_OPTION_INVALID` for the metadata file
 */
export async function readSite({
  issuer,
  mountPrefix,
  jwksPath,
  noCors,
  noDiscovery,
  metadata: file,
}: SiteSettings): Promise<Site> {
  const metadata = file === undefined ? undefined : await readJsonObject(file, "the metadata file");
  if (metadata !== undefined) checkMetadata(metadata, `the metadata file ${file}`);
  return { issuer, mountPrefix, jwksPath, cors: !noCors, discovery: !noDiscovery, metadata };
}
