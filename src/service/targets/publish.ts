import { resolve } from "node:path";
import { serial } from "../../base/async.ts";
import { IoError, RotationError, invalidOption } from "../../base/errors.ts";
import { quoted } from "../../base/printable.ts";
import { type JwkSet, jwkSetOf } from "../../publish/jwk-set.ts";
import { type Keysets, checkKeysets } from "../../publish/keyset-check.ts";
import type { KeyRecord } from "../../rotation/rules/key-records.ts";
import { readSite } from "../config/document-settings.ts";
import type { Logger } from "../config/logger.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { signersOf } from "../config/signers.ts";
import { storeSettingsOf } from "../config/store-settings.ts";
import { every } from "../config/watch-files.ts";
import { type FileKeys, openFileKeys } from "../keys/file-keys.ts";
import { type OpenedManager, openManager } from "../keys/open-manager.ts";
import { savedSetOf } from "../keys/store-keys.ts";
import { type TargetSite, type DocumentSet, baseOf, documentSetOf, pathsOf, urlsOf } from "./documents.ts";
import { folderTarget } from "./folder.ts";
import { type ChangedFile, keysIn, whyKept } from "./overwrite-check.ts";
import { purgeSeconds, runPurge } from "./purge-command.ts";
import { readBack } from "./read-back.ts";
import { bucketTarget, parseBucketUrl } from "./s3-bucket.ts";
import type { Target } from "./target.ts";

/**
 * Interval at which the documents are recreated, in milliseconds. This is necessary because a target may have been
 * unavailable, and because encryption keys from files expire.
 */
const pollEveryMs = 10_000;

/** The documents in a target, once they have been read back. */
export interface Published {
  readonly documentSet: DocumentSet;
  /** Paths of the documents that were written; empty if the target already had all of them. */
  readonly written: readonly string[];
}

export interface PublishOptions {
  /** Path of a folder, or `s3://BUCKET/PREFIX`. */
  readonly target: string;
  /** Base URL from which the documents are read back. Default: the issuer. */
  readonly verifyUrl?: string | undefined;
  readonly purgeCommand?: string | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly onPublished: (published: Published) => void;
  /** Receives each failure, after which jwksd retries. */
  readonly onFailure: (error: unknown) => void;
  /**
   * Signal that aborts everything startup waits for: a target, a read-back, or a purge command. `stop` does the same.
   */
  readonly signal?: AbortSignal | undefined;
}

/** A running `jwksd publish`. */
export interface Publishing {
  /** Whether the latest keys have been published and read back, and the store has recorded that. */
  readonly isDone: boolean;
  /** Reads the key files again. */
  reload(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Publishes the configured keys to a target. Publishes them again when they change.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`; IoError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`, as well as the same
 * errors as `startService`
 */
export async function startPublishing(settings: Settings, options: PublishOptions, log: Logger): Promise<Publishing> {
  const { environment, purgeCommand, onPublished } = options;
  const stopping = new AbortController();
  const signal = AbortSignal.any([stopping.signal, ...(options.signal === undefined ? [] : [options.signal])]);
  const onFailure = (error: unknown): void => {
    if (!signal.aborted) options.onFailure(error);
  };
  const site = await siteOf(settings);
  const store = storeSettingsOf(settings);
  const paths = pathsOf(site);
  const target = targetOf(options, paths, store.replicaName, signal);
  const base = baseOf(options.verifyUrl ?? site.issuer);

  let done: DocumentSet | undefined;
  let written: readonly string[] = [];
  let isPurged = true;
  const inTurn = serial();

  /**
   * Writes documents. Resolves once an external read that bypasses caches returns them. After a failure, the next call
   * continues where this call failed.
   */
  async function write(documentSet: DocumentSet, replaced?: readonly ChangedFile[]): Promise<void> {
    const paths = await target.put(documentSet, replaced);
    if (paths.length > 0) isPurged = purgeCommand === undefined;
    written = [...new Set([...written, ...paths])];
    if (!isPurged && purgeCommand !== undefined) {
      log.info(`running the purge command for at most ${purgeSeconds} s`);
      await runPurge(purgeCommand, { urls: urlsOf(site), environment, signal });
      isPurged = true;
    }
    await readBack(base, documentSet.documents, signal);
    onPublished({ documentSet, written });
    written = [];
    done = documentSet;
  }

  const latestSet = async (): Promise<DocumentSet> => {
    return documentSetOf(keys, site, isRotating || settings.rotationMode);
  };
  const publish = (): Promise<void> => inTurn(async () => write(await latestSet()));

  // Opened before the keys are read, so that an older set never replaces a newer one.
  for (const warning of await target.open()) log.warn(warning);
  let isRotating = false;
  let files: FileKeys;
  let keys = await jwkSetOf([]);
  let managing: OpenedManager | undefined;
  let managed: Keysets | undefined;
  const inTurnKeys = serial();
  /** Switches to a manager's new keys or to new keys from files, unless their kids clash. */
  const take = (next: { readonly managed?: Keysets; readonly files?: Keysets }): Promise<void> =>
    inTurnKeys(async () => {
      keys = await setOf(next.managed ?? managed, next.files ?? files.keysets);
      managed = next.managed ?? managed;
    });
  try {
    files = await openFileKeys(settings, log);
    if (settings.keys === undefined) {
      const current = await target.content(paths[0] as string);
      const signers = await signersOf(settings, log);
      managing = await openManager({ store, signers }, log, {
        target: {
          name: target.name,
          async update(keysets, mode) {
            await take({ managed: keysets });
            ({ isRotating } = mode);
            await publish();
          },
        },
        savedSet: await savedSetOf(store),
        onFailure: ({ error }) => onFailure(error),
        async check(custody) {
          const { text } = await custody.register.read();
          checkKnownKeys(current, text === undefined ? [] : (await custody.open(text)).records, target.name);
        },
      });
    } else await take({});
  } catch (error) {
    await target.close();
    throw error;
  }

  /**
   * Publishes changes that were made to key files. The manager itself publishes changes to the keys that it manages,
   * and retries.
   */
  const refresh = async (): Promise<void> => {
    if (managing?.manager.isPublished === false || isSameDocumentSet(await latestSet(), done)) return;
    await managing?.manager.runDueSteps();
    await publish();
  };
  /** Restores files that another process has changed or removed since they were published. */
  const restore = async (): Promise<void> => {
    const documentSet = done;
    const changed = documentSet === undefined ? [] : await target.changed(documentSet);
    if (documentSet === undefined || changed.length === 0) return;
    // The manager reads the store after the target has been read, so it knows about every key that another publisher
    // with this store may have written.
    await managing?.manager.runDueSteps();
    await inTurn(async () => {
      if (!isSameDocumentSet(await latestSet(), documentSet)) return;
      const known = [...(managing?.manager.records ?? []), ...keys.entries.map(({ jwk }) => jwk)];
      for (const change of changed) {
        const why = whyKept(change, documentSet, (kid) => known.some((key) => key.kid === kid));
        if (why !== undefined) {
          throw new IoError(
            "ERR_TARGET",
            `another process wrote ${change.path} in ${target.name}, and its version contains ${why}. The file was not overwritten; make sure that only one publisher writes there`,
          );
        }
      }
      const paths = changed.map(({ path }) => path).join(", ");
      log.warn(`another process has changed ${target.name}; writing these files again: ${paths}`);
      done = undefined;
      await write(documentSet, changed);
    });
  };
  const poll = (): Promise<void> => restore().catch(onFailure).then(refresh).catch(onFailure);
  const reload = (): Promise<void> => files.reload((next) => take({ files: next })).then(poll, onFailure);
  const timer = every(pollEveryMs, poll);
  const watch = files.watch(reload);
  await refresh().catch(onFailure);

  let stopped: Promise<void> | undefined;
  async function stop(): Promise<void> {
    stopping.abort();
    watch.stop();
    timer.stop();
    await inTurn(async () => {});
    await managing?.close();
    await target.close();
  }

  return {
    get isDone() {
      return done !== undefined && managing?.manager.isPublished !== false;
    },
    reload,
    stop: () => (stopped ??= stop()),
  };
}

/**
 * Creates the set from key files and, if there is a manager, from its keys.
 *
 * @throws KeyMaterialError, for the same reasons as `checkKeysets`
 */
async function setOf(managed: Keysets | undefined, files: Keysets): Promise<JwkSet> {
  const { keyset, encryptionKeyset } = managed ?? { keyset: files.keyset, encryptionKeyset: [] };
  const both = { keyset, encryptionKeyset: [...encryptionKeyset, ...files.encryptionKeyset] };
  return (await checkKeysets(both)).set;
}

/** Creates the target for a folder or, for `s3://BUCKET/PREFIX`, a bucket. @throws ConfigError `ERR_OPTION_INVALID` */
function targetOf(
  { target, environment }: PublishOptions,
  paths: readonly string[],
  replicaName: string,
  signal: AbortSignal,
): Target {
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

/**
 * Reads the site: the issuer, and the settings for its documents.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_CONFIG_FORMAT`
 */
async function siteOf(settings: Settings): Promise<TargetSite> {
  const { issuer } = settings;
  if (issuer === undefined) {
    throw invalidOption("the issuer is missing; set --issuer to the URL at which relying parties find the documents");
  }
  return { ...(await readSite(settings)), issuer };
}

const comparable = ({ documents }: DocumentSet): string =>
  JSON.stringify(documents.map((document) => ({ ...document, body: Buffer.from(document.body).toString() })));

/**
 * Reports whether two sets are the same, including their headers. Sets with the same keys but different modes are not
 * the same.
 */
function isSameDocumentSet(documentSet: DocumentSet, other: DocumentSet | undefined): boolean {
  return other !== undefined && comparable(documentSet) === comparable(other);
}

/**
 * Checks that every key in the set to be replaced has been in this store. If one has not, the set comes from a
 * different store or from a newer state of this store, or was made by hand. Replacing it would make tokens signed with
 * its keys fail.
 *
 * @throws RotationError `ERR_KID_UNMANAGED`
 */
function checkKnownKeys(current: Uint8Array | undefined, records: readonly KeyRecord[], name: string): void {
  const known = new Set<unknown>(records.map(({ kid }) => kid));
  const unknown = keysIn(current)?.find(
    ({ kid, use = "sig" }) => use === "sig" && kid !== undefined && !known.has(kid),
  );
  if (unknown === undefined) return;
  throw new RotationError(
    "ERR_KID_UNMANAGED",
    `${name} contains the signing key ${quoted(unknown["kid"])}, which was never in this store, so nothing was written. Use the store that has the key, or import the key (jwksd keys import); if no tokens signed with it are in use, you can remove the JWK Set there`,
  );
}
