import { resolve } from "node:path";
import { serial } from "../../base/async.ts";
import { ServiceError, StateError, invalidOption } from "../../base/errors.ts";
import { quoted } from "../../base/printable.ts";
import { type JwkSet, jwkSetOf } from "../../publish/jwk-set.ts";
import { type Keysets, checkKeysets } from "../../publish/keyset.ts";
import type { KeyRecord } from "../../rotation/rules/records.ts";
import type { Logger } from "../config/log.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { signersOf } from "../config/signers.ts";
import { readSite } from "../config/site.ts";
import { storeSettingsOf } from "../config/store-settings.ts";
import { every } from "../config/watch.ts";
import { type FileKeys, openFileKeys } from "../keys/file-keys.ts";
import { type OpenedManager, openManager } from "../keys/open-manager.ts";
import { savedSetOf } from "../keys/service-keys.ts";
import { bucketTarget, parseBucketUrl } from "./bucket.ts";
import { type ChangedFile, keysIn, whyLeft } from "./changed.ts";
import { type TargetSite, type DocumentSet, baseOf, documentSetOf, pathsOf, urlsOf } from "./documents.ts";
import { folderTarget } from "./folder.ts";
import { purgeSeconds, runPurge } from "./purge.ts";
import { readBack } from "./read-back.ts";
import type { Target } from "./target.ts";

/** How often documents are made anew: a target may be away for a while, and encryption keys of files come to their end. */
const everyMs = 10_000;

/** The documents that a target has, after they were read back. */
export interface Published {
  readonly documentSet: DocumentSet;
  /** Paths that were written; none where the target had all documents already. */
  readonly written: readonly string[];
}

export interface PublishOptions {
  /** A folder, or `s3://BUCKET/PREFIX`. */
  readonly target: string;
  /** Default: the issuer. */
  readonly verifyUrl?: string | undefined;
  readonly purgeCommand?: string | undefined;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly onPublished: (published: Published) => void;
  /** Is called with each failure, after which jwksd tries again. */
  readonly onFailure: (error: unknown) => void;
  /** Aborts what a start waits for: a target, a read from outside, a purge command. `stop` aborts them, too. */
  readonly signal?: AbortSignal | undefined;
}

/** A running `jwksd publish`. */
export interface Publishing {
  /** Whether the newest keys are published and were read back, and the store knows. */
  readonly isDone: boolean;
  /** Reads the key files again. */
  reload(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Publishes the keys of a configuration to a target, and goes on when they change.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`; ServiceError `ERR_TARGET`, `ERR_FILE_UNWRITABLE`; and what `startService` throws
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

  /** Resolves when a read from outside, past caches, finds these documents. After a failure, the next call goes on where this one ended. */
  async function write(documentSet: DocumentSet, replaced?: readonly ChangedFile[]): Promise<void> {
    const paths = await target.put(documentSet, replaced);
    if (paths.length > 0) isPurged = purgeCommand === undefined;
    written = [...new Set([...written, ...paths])];
    if (!isPurged && purgeCommand !== undefined) {
      log.info(`the purge command runs; it is ended after ${purgeSeconds} s`);
      await runPurge(purgeCommand, { urls: urlsOf(site), environment, signal });
      isPurged = true;
    }
    await readBack(base, documentSet.documents, signal);
    onPublished({ documentSet, written });
    written = [];
    done = documentSet;
  }

  const newest = async (): Promise<DocumentSet> => {
    return documentSetOf(keys, site, isRotating || settings.rotationMode);
  };
  const publish = (): Promise<void> => inTurn(async () => write(await newest()));

  // Before the keys are read, so that an older set never takes the place of a newer one.
  for (const warning of await target.open()) log.warn(warning);
  let isRotating = false;
  let files: FileKeys;
  let keys = await jwkSetOf([]);
  let managing: OpenedManager | undefined;
  let managed: Keysets | undefined;
  const inTurnKeys = serial();
  /** Takes the keys of a manager or of files, unless they clash. */
  const take = (next: { readonly managed?: Keysets; readonly files?: Keysets }): Promise<void> =>
    inTurnKeys(async () => {
      keys = await setOf(next.managed ?? managed, next.files ?? files.keysets);
      managed = next.managed ?? managed;
    });
  try {
    files = await openFileKeys(settings, log);
    if (settings.keys === undefined) {
      const there = await target.content(paths[0] as string);
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
          checkOurs(there, text === undefined ? [] : (await custody.open(text)).records, target.name);
        },
      });
    } else await take({});
  } catch (error) {
    await target.close();
    throw error;
  }

  /** Publishes changes of key files. The manager itself tries again to publish its keys. */
  const refresh = async (): Promise<void> => {
    if (managing?.manager.isPublished === false || isSame(await newest(), done)) return;
    await managing?.manager.runDueSteps();
    await publish();
  };
  /** Writes files again that somebody else has changed or removed since they were published. */
  const mend = async (): Promise<void> => {
    const documentSet = done;
    const changed = documentSet === undefined ? [] : await target.changed(documentSet);
    if (documentSet === undefined || changed.length === 0) return;
    // The manager looks at the store after the look at the target: so it knows every key that another publisher of the store may have written.
    await managing?.manager.runDueSteps();
    await inTurn(async () => {
      if (!isSame(await newest(), documentSet)) return;
      const known = [...(managing?.manager.records ?? []), ...keys.entries.map(({ jwk }) => jwk)];
      for (const change of changed) {
        const why = whyLeft(change, documentSet, (kid) => known.some((key) => key.kid === kid));
        if (why !== undefined) {
          throw new ServiceError(
            "ERR_TARGET",
            `somebody else has written ${change.path} of ${target.name}, with ${why}, and it is left as it is; let one configuration of jwksd publish write there, and nothing else`,
          );
        }
      }
      const paths = changed.map(({ path }) => path).join(", ");
      log.warn(`somebody else has changed ${target.name}, and it is written again: ${paths}`);
      done = undefined;
      await write(documentSet, changed);
    });
  };
  const look = (): Promise<void> => mend().catch(onFailure).then(refresh).catch(onFailure);
  const reload = (): Promise<void> => files.reload((next) => take({ files: next })).then(look, onFailure);
  const timer = every(everyMs, look);
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

/** Makes the set of the keys of a manager, if there is one, and of files. @throws KeyMaterialError see `checkKeysets` */
async function setOf(managed: Keysets | undefined, files: Keysets): Promise<JwkSet> {
  const { keyset, encryptionKeyset } = managed ?? { keyset: files.keyset, encryptionKeyset: [] };
  const both = { keyset, encryptionKeyset: [...encryptionKeyset, ...files.encryptionKeyset] };
  return (await checkKeysets(both)).set;
}

/** The folder, or the bucket of `s3://BUCKET/PREFIX`. @throws ConfigError `ERR_OPTION_INVALID` */
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
 * Where relying parties find what is published.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_CONFIG_FORMAT`
 */
async function siteOf(settings: Settings): Promise<TargetSite> {
  const { issuer } = settings;
  if (issuer === undefined) {
    throw invalidOption("the URL is missing at which relying parties find what is published; give it with --issuer");
  }
  return { ...(await readSite(settings)), issuer };
}

const textOf = ({ documents }: DocumentSet): string =>
  JSON.stringify(documents.map((document) => ({ ...document, body: Buffer.from(document.body).toString() })));

/** Compares header fields, too, so the same keys in the other mode are not the same. */
function isSame(documentSet: DocumentSet, other: DocumentSet | undefined): boolean {
  return other !== undefined && textOf(documentSet) === textOf(other);
}

/**
 * Refuses to replace a set with a key that the store has never had. That set is of another store, of a newer one, or was made by hand, and the
 * tokens of that key would fail.
 *
 * @throws StateError `ERR_KID_UNMANAGED`
 */
function checkOurs(there: Uint8Array | undefined, records: readonly KeyRecord[], name: string): void {
  const known = new Set<unknown>(records.map(({ kid }) => kid));
  const unknown = keysIn(there)?.find(({ kid, use = "sig" }) => use === "sig" && kid !== undefined && !known.has(kid));
  if (unknown === undefined) return;
  throw new StateError(
    "ERR_KID_UNMANAGED",
    `${name} holds the signing key ${quoted(unknown["kid"])}, which this store has never had, and nothing was written; give the right store, or take over the key (jwksd keys import), or remove the JWK Set there if no token of that key is in use`,
  );
}
