import { readFile, stat } from "node:fs/promises";
import type { Logger } from "pino";
import { ConfigError } from "../errors.ts";
import { permissionWarnings } from "../node/key-files.ts";
import { type BackendOptions, type SignerBackend, signerBackend } from "../signer/open-signer.ts";
import type { ExternalSigner } from "../signer/signer.ts";
import type { Settings } from "./settings.ts";

type SignalOption = { readonly signal?: AbortSignal | undefined };

/** The HSMs and key services of a configuration, in the form in which a key manager takes them. */
export interface Signers {
  openSigner(this: void, uri: string, options?: SignalOption): Promise<ExternalSigner>;
  /** Where new signing keys are made; `undefined` for the store. */
  readonly createSigner: ((request: { readonly issuer: string } & SignalOption) => Promise<ExternalSigner>) | undefined;
  /** `undefined` where keys stay when they are removed. */
  readonly destroySigner: ((uri: string, options?: SignalOption) => Promise<unknown>) | undefined;
}

/**
 * Reads how to reach them; nothing is connected to before it is used. What is wrong with the options for new keys is said now, not when
 * the next key is due.
 *
 * @param log is told of files with secrets that others can read
 * @throws ConfigError `ERR_CONFIG_FORMAT`, and see `signerBackend`
 */
export async function signersOf(
  settings: Pick<Settings, "signers" | "signerType" | "destroyExternal">,
  log?: Pick<Logger, "warn">,
): Promise<Signers> {
  const options = settings.signers === undefined ? {} : await readOptions(settings.signers);
  if (log !== undefined) await warnOfSecrets(options, log);
  const backends = new Map<string, Promise<SignerBackend>>();
  /** One for each kind, because some keep a process or connections for all their keys. */
  const backendOf = (uriOrType: string): Promise<SignerBackend> => {
    const [type = ""] = uriOrType.split(":", 1);
    const backend = backends.get(type) ?? signerBackend(uriOrType, options);
    backends.set(type, backend);
    // One that could not be made is made anew the next time.
    backend.catch(() => backends.delete(type));
    return backend;
  };
  if (settings.signerType !== "local") await backendOf(settings.signerType);
  return {
    openSigner: async (uri, { signal } = {}) => (await backendOf(uri)).open(uri, { signal }),
    createSigner:
      settings.signerType === "local"
        ? undefined
        : async (request) => (await backendOf(settings.signerType)).create(request),
    destroySigner: settings.destroyExternal
      ? async (uri, { signal } = {}) => (await backendOf(uri)).destroy(uri, { signal })
      : undefined,
  };
}

/** A file that is not there is an error when it is used. */
async function warnOfSecrets({ pkcs11, vaultTransit }: BackendOptions, log: Pick<Logger, "warn">): Promise<void> {
  const { file: pinFile } = { file: undefined, ...pkcs11?.pin };
  // What a file of options holds was not looked at yet.
  const files = [pinFile, vaultTransit?.tokenFile].filter((file) => typeof file === "string");
  for (const file of files) {
    const stats = await stat(file).catch(() => undefined);
    const warnings = stats?.isFile() === true ? permissionWarnings(file, stats.mode & 0o777) : [];
    for (const warning of warnings) log.warn({ file }, warning);
  }
}

async function readOptions(path: string): Promise<BackendOptions> {
  let options: unknown;
  try {
    options = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    // What a parser says quotes the text, and a credential may be in it.
    const reason = (error as NodeJS.ErrnoException).code ?? "not JSON";
    throw new ConfigError("ERR_CONFIG_FORMAT", `the signers file ${path} cannot be read (${reason})`);
  }
  if (!isObject(options)) throw new ConfigError("ERR_CONFIG_FORMAT", `the signers file ${path} is not a JSON object`);
  if (!Object.values(options).every(isObject)) {
    throw new ConfigError("ERR_CONFIG_FORMAT", `the signers file ${path} has a member that is not a JSON object`);
  }
  return options;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
