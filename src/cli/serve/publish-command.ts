import { sleep } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { JwksdError, IoError, invalidOption } from "../../base/errors.ts";
import { printable } from "../../base/printable.ts";
import { createCommandLog } from "../../service/config/logger.ts";
import { settingsWith } from "../../service/config/setting-definitions.ts";
import type { Published } from "../../service/targets/publish.ts";
import { type Publishing, startPublishing } from "../../service/targets/publish.ts";
import { waitSeconds } from "../argument-parsers.ts";
import { Command } from "../command.ts";
import { type Io, print, printNotice } from "../io.ts";
import type { Flags } from "../managed-keys/open-keys.ts";
import { notCaughtUp } from "../managed-keys/wait-for-replicas.ts";
import { addSettings, settingsFrom } from "../setting-flags.ts";
import { handleSignals } from "../signals.ts";

interface PublishFlags extends Flags {
  readonly follow?: true;
  readonly verifyUrl?: string;
  readonly purgeCommand?: string;
  readonly json?: true;
  /** How long to wait, in seconds. */
  readonly wait: number;
}

const pollMs = 50;

export function commandOf(io: Io): Command {
  const command = new Command("publish")
    .argument("<target>", "folder, or s3://BUCKET/PREFIX")
    .option("--follow", "keep running, and write again whenever the keys change")
    .option("--verify-url <url>", "public URL of the target (default: the issuer)")
    .option(
      "--purge-command <command>",
      "command to run after a write, to purge a CDN; the JWKSD_URLS variable contains the URLs",
    )
    .option("--wait <seconds>", "without --follow: how long to wait for the target to be read back", waitSeconds, 30)
    .option("--json", "JSON output; with --follow, one line per write");
  return addSettings(command, settingsWith("publish"))
    .notes(`
The issuer's web server must serve the target: TARGET/jwks at ISSUER/jwks. The
documents are the same as those from jwksd serve. A key signs only after jwksd
has read it back from the target, bypassing caches. That holds even when this
process is not running: if the target is no longer in use, run jwksd targets
forget NAME. See docs/publish.md.

For a folder, docs/publish.md has configurations for nginx and Caddy. A bucket
needs the @aws-sdk/client-s3 package, which finds credentials, AWS_REGION and
AWS_ENDPOINT_URL_S3 in the usual places.

Exit code 3: the target was written but cannot be read from the outside yet. Run
the command again, or use --follow.

Examples:
  $ jwksd publish /srv/www --issuer https://login.example.com
  $ jwksd publish s3://example-issuer/cluster-1 --follow \\
      --issuer https://example-issuer.s3.eu-central-1.amazonaws.com/cluster-1
  $ jwksd publish s3://example-issuer --issuer https://oidc.example.com \\
      --purge-command 'aws cloudfront create-invalidation \\
      --distribution-id E2EXAMPLE --paths "/*"'`)
    .action((target: string, flags: PublishFlags) => publish(io, target, flags));
}

async function publish(io: Io, target: string, flags: PublishFlags): Promise<void> {
  const { follow, verifyUrl, purgeCommand, json, wait, ...rest } = flags;
  const settings = await settingsFrom(io, rest);
  if (target === "") throw invalidOption("the target is empty; pass a folder or s3://BUCKET/PREFIX");
  checkVerifyUrl(verifyUrl);
  const log = createCommandLog(settings, io);
  const stopping = new AbortController();
  let failure: unknown;
  let published: Published | undefined;
  const starting = startPublishing(
    settings,
    {
      target,
      verifyUrl,
      purgeCommand,
      environment: io.environment,
      signal: stopping.signal,
      onPublished(now) {
        [published, failure] = [now, undefined];
        if (follow === true)
          print(io, json === true ? JSON.stringify(publishedJson(target, now)) : lineOf(target, now));
      },
      onFailure(error) {
        const isNew = messageOf(error) !== messageOf(failure);
        failure = error;
        if (isNew && follow === true) printNotice(io, `${messageOf(error)}; retrying`);
      },
    },
    log,
  );
  const { signal } = stopping;
  const releaseSignals = handleSignals(starting, () => stopping.abort());
  if (follow === true) {
    await starting.catch((error: unknown) => {
      // A startup that was interrupted has not failed.
      if (!signal.aborted) throw error;
    });
    return;
  }
  try {
    const publishing = await starting;
    try {
      await isDoneWithin(publishing, wait, signal);
      printResult(publishing);
    } finally {
      await publishing.stop();
    }
  } finally {
    releaseSignals();
  }

  function printResult(publishing: Publishing): void {
    if (publishing.isDone && published !== undefined) {
      print(
        io,
        json === true ? JSON.stringify(publishedJson(target, published), undefined, 2) : lineOf(target, published),
      );
      return;
    }
    if (signal.aborted || !(failure instanceof JwksdError) || failure.code !== "ERR_NOT_SERVED") {
      throw failure ?? new IoError("ERR_TARGET", `${target} was not published, because the command was stopped`);
    }
    printNotice(io, `${target} was written, but ${messageOf(failure)}`);
    io.exitCode = notCaughtUp;
  }
}

async function isDoneWithin(publishing: Publishing, seconds: number, signal: AbortSignal): Promise<void> {
  const end = performance.now() + seconds * 1000;
  while (!publishing.isDone && !signal.aborted && performance.now() < end) await sleep(pollMs, systemClock);
}

/** Rejects an invalid `--verify-url`. @throws ConfigError `ERR_OPTION_INVALID` */
function checkVerifyUrl(url: string | undefined): void {
  if (url === undefined || (/^https?:\/\/[^?#]+$/.test(url) && URL.canParse(url))) return;
  throw invalidOption("--verify-url must be an http or https URL without a query or fragment");
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return "";
  const { message, code = "ERR_INTERNAL" }: NodeJS.ErrnoException = error;
  return `${message} [${code}]`;
}

function publishedJson(target: string, { documentSet, written }: Published) {
  const documents = documentSet.documents.map(({ path, cacheControl }) => ({ path, cacheControl }));
  return { target, written, documents, kids: documentSet.kids, mode: documentSet.isShort ? "rotation" : "long" };
}

function lineOf(target: string, { documentSet, written }: Published): string {
  const summary = written.length === 0 ? "Nothing to write" : `Wrote ${written.join(", ")}`;
  const kids = documentSet.kids.map((kid) => printable(kid));
  return `${summary}. ${target} was read back and has the keys ${kids.join(", ")}.`;
}
