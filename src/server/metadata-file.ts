import { checkMetadata } from "../provider/discovery.ts";
import type { Metadata } from "../provider/options.ts";
import { readJsonObject } from "./json-file.ts";

/**
 * Reads more members of the discovery document.
 *
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_METADATA_RESERVED`
 */
export async function readMetadata(file: string): Promise<Metadata> {
  const metadata = await readJsonObject(file, "the metadata file");
  checkMetadata(metadata, `the metadata file ${file}`);
  return metadata;
}
