import { stat } from "node:fs/promises";
import { parsePkcs11Uri } from "../../keys/pkcs11/uri.ts";
import { type SignerBackendOptions, signerBackend, typesOf } from "../../keys/signer-backends.ts";
import type { ExternalSigner, SignerBackend } from "../../keys/signer/signer.ts";
import { permissionWarnings } from "../../node/read-key-files.ts";
import { readJsonObject } from "./json-file.ts";
import type { Logger } from "./logger.ts";
import type { Settings } from "./setting-definitions.ts";

type SignalOption = { readonly signal?: AbortSignal | undefined };

/** The configured HSMs and key services, as options for a key manager. */
export interface Signers {
  readonly openSigner: (uri: string, options?: SignalOption) => Promise<ExternalSigner>;
  /** Generates a signing key; `undefined` if new keys are generated in the store. */
  readonly createSigner: ((request: { readonly issuer: string } & SignalOption) => Promise<ExternalSigner>) | undefined;
  /** Destroys a key; `undefined` if removed keys are kept. */
  readonly destroySigner: ((uri: string, options?: SignalOption) => Promise<unknown>) | undefined;
}

/**
 * Reads the signers file and checks all options. Connections are not opened until they are needed.
 *
 * @param log receives warnings about secret files that other users can read
 * @throws ConfigError `ERR_CONFIG_FORMAT`, and the same errors as `signerBackend`
 */
export async function signersOf(
  settings: Pick<Settings, "signers" | "signerType" | "destroyExternal">,
  log?: Pick<Logger, "warn">,
): Promise<Signers> {
  const options: SignerBackendOptions =
    settings.signers === undefined ? {} : await readJsonObject(settings.signers, "the signers file");
  const backends = new Map<string, Promise<SignerBackend>>();
  /**
   * Returns the backend for a type. There is only one per type, because in some backends, keys share a process or
   * connections.
   */
  const backendOf = (uriOrType: string): Promise<SignerBackend> => {
    const [type = ""] = uriOrType.split(":", 1);
    const backend = backends.get(type) ?? signerBackend(uriOrType, options);
    backends.set(type, backend);
    // If creating a backend fails, the next call tries again.
    backend.catch(() => backends.delete(type));
    return backend;
  };
  // Options for unused types are checked too, so that a mistake shows up now instead of with the first key.
  for (const type of typesOf(options)) await backendOf(type);
  if (settings.signerType !== "local") await backendOf(settings.signerType);
  const warn = warnOnce(log);
  const { pin } = options.pkcs11 ?? {};
  await warn(pin && "file" in pin ? pin.file : undefined);
  await warn(options.vaultTransit?.tokenFile ?? undefined);
  return {
    async openSigner(uri, { signal } = {}) {
      const backend = await backendOf(uri);
      if (uri.startsWith("pkcs11:")) await warn(parsePkcs11Uri(uri).pinFile);
      return backend.open(uri, { signal });
    },
    createSigner:
      settings.signerType === "local"
        ? undefined
        : async (request) => (await backendOf(settings.signerType)).create(request),
    destroySigner: settings.destroyExternal
      ? async (uri, { signal } = {}) => (await backendOf(uri)).destroy(uri, { signal })
      : undefined,
  };
}

/**
 * Creates a function that warns once about each secret file that other users can read. Ignores a missing file, because
 * the code that reads it reports the error.
 */
function warnOnce(log: Pick<Logger, "warn"> | undefined): (file: string | undefined) => Promise<void> {
  const seen = new Set<string>();
  return async (file) => {
    if (log === undefined || file === undefined || seen.has(file)) return;
    seen.add(file);
    const stats = await stat(file).catch(() => undefined);
    const warnings = stats === undefined ? [] : permissionWarnings(file, stats);
    for (const warning of warnings) log.warn({ file }, warning);
  };
}
