import { isDeepStrictEqual } from "node:util";
import { serial } from "../../base/async.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { codeOf, invalidOption } from "../../base/errors.ts";
import type { Metric } from "../../base/metrics.ts";
import { writeReply } from "../../publish/node-response.ts";
import { notFound, unavailable } from "../../publish/respond.ts";
import { memoryReplayStore } from "../../verify/bearer/index.ts";
import { healthPage, metricsPage, startAdmin } from "../admin/admin.ts";
import { processMetrics } from "../admin/prometheus-text.ts";
import { commonMetrics } from "../admin/service-metrics.ts";
import { hostAndPort } from "../config/addresses.ts";
import type { Logger } from "../config/logger.ts";
import { watchPaths } from "../config/watch-files.ts";
import { type Wanted, checkFree, startHttpServer } from "../listen/http-server.ts";
import { type Stops, startParts, stopAll } from "../listen/lifecycle.ts";
import type { Handler } from "../listen/pause-requests.ts";
import { createDecisionLog } from "./decision-log.ts";
import { type CheckContext, type Decision, type Source, decide } from "./decision.ts";
import { type GuardConfig, warningsOf } from "./guard-config.ts";
import { type Hosts, type SharedOptions, hostsOf } from "./host-config.ts";
import { createKeySets } from "./key-sets.ts";
import { conventions } from "./proxy-conventions.ts";
import { createSameRequests } from "./repeated-checks.ts";
import { redisReplayStore } from "./replay-store.ts";

/** Maximum size of a request head, in bytes. nginx accepts 32 KiB from a client and includes all of it in the check. */
export const maxHeaderBytes = 131_072;

/** A running `jwksd guard`. */
export interface RunningGuard {
  /** Port on which the guard listens for the proxy's checks; 0 for a Unix socket. */
  readonly port: number;
  /** URL of the admin address, or `undefined` if there is none. */
  readonly adminUrl: string | undefined;
  /**
   * Reads the configuration again. If it is invalid, logs the error, keeps the old configuration in use, and resolves
   * to `false`.
   */
  reload(this: void): Promise<boolean>;
  /** Stops accepting connections and finishes checks in flight. @param signal the reason, for the log */
  stop(this: void, signal?: NodeJS.Signals): Promise<void>;
}

/**
 * Starts a guard.
 *
 * @param config initial configuration, which has already been read
 * @param read reads the configuration again
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @throws IoError `ERR_LISTEN`
 */
export const startGuard = (
  config: GuardConfig,
  read: () => Promise<GuardConfig>,
  log: Logger,
  clock: Clock = systemClock,
): Promise<RunningGuard> => startParts((stops) => start(config, read, log, clock, stops));

async function start(
  config: GuardConfig,
  read: () => Promise<GuardConfig>,
  log: Logger,
  clock: Clock,
  stops: Stops,
): Promise<RunningGuard> {
  const { settings, proxy, address, file } = config;
  const decisions = createDecisionLog(log, clock);
  const keySets = createKeySets(clock, log);
  const store = settings.replayStore === undefined ? undefined : redisReplayStore(settings.replayStore);
  stops.push(async () => {
    decisions.end();
    keySets.close();
    store?.close();
  });
  const shared: SharedOptions = {
    clock,
    replay: store?.replay ?? memoryReplayStore({ clock }),
    nonceSecret: config.nonceSecret,
    certificate: settings.certificateHeader === undefined ? undefined : (source: Source) => source.certificate,
  };

  const adminAddress = hostAndPort(settings.admin);
  const wanted: Wanted[] = [[address, "--listen"]];
  if (adminAddress !== undefined) wanted.push([adminAddress, "--admin"]);
  await checkFree(wanted);

  /**
   * Returns a configuration's hosts and switches to their key sets. If the hosts are invalid, throws and changes
   * nothing.
   */
  function apply(next: GuardConfig): Hosts {
    const hosts = keySets.replace((use) => hostsOf(next.hosts, use, shared));
    for (const warning of warningsOf(next, hosts)) log.warn(warning);
    return hosts;
  }
  let hosts = apply(config);
  let isRefused = false;
  let isStopping = false;

  const context: CheckContext = {
    convention: conventions[proxy],
    certificateHeader: settings.certificateHeader,
    sameRequests: createSameRequests(clock),
  };
  const failed = context.convention.deny(unavailable.get);
  const handle: Handler = ({ url = "", rawHeaders }, response) => {
    if (url.split("?", 1)[0] !== "/check") return writeReply(response, notFound.get);
    const respond = (decision: Decision): void => {
      decisions.record(decision);
      writeReply(response, decision.reply);
    };
    decide(rawHeaders, hosts, context).then(respond, (error: unknown) => {
      log.error({ code: codeOf(error) }, `a check failed: ${(error as Error).message}`);
      respond({ status: 503, reason: codeOf(error), reply: failed });
    });
  };

  const notReady = (): string | undefined => {
    if (isStopping) return "it is stopping";
    const missing = keySets.missing();
    return missing.length === 0 ? undefined : `the keys of ${missing.join(", ")} have not been fetched yet`;
  };
  const metrics = async (): Promise<readonly Metric[]> => [
    ...commonMetrics(notReady() === undefined),
    ...decisions.metrics(isRefused),
    ...keySets.metrics(),
    ...(await processMetrics()),
  ];
  const server = await startHttpServer(address, () => handle, {
    maxHeaderBytes,
    ignoresExpect: true,
    onOverload: log.warn,
    remedy: "start a second guard",
    onRefusal: (status) => decisions.record({ status, reason: "http" }),
  });
  stops.unshift(server.stop);
  const pages = {
    "/livez": healthPage(() => undefined),
    "/readyz": healthPage(notReady),
    "/metrics": metricsPage(metrics),
  };
  const admin = adminAddress && (await startAdmin(adminAddress, pages, log));
  // Stops after the server, so that /readyz reports that the guard is stopping.
  if (admin !== undefined) stops.splice(1, 0, admin.stop);

  const oneByOne = serial();
  const reload = (): Promise<boolean> =>
    oneByOne(async () => {
      try {
        const next = await read();
        if (!isDeepStrictEqual(fixed(next), fixed(config)))
          throw invalidOption("only hosts can change while the guard runs; to change other settings, restart it");
        hosts = apply(next);
        isRefused = false;
        log.info({ hosts: [...hosts.keys()] }, "configuration reloaded");
      } catch (error) {
        isRefused = true;
        log.error(
          { code: codeOf(error) },
          `the old configuration remains in use, because the new one was rejected: ${(error as Error).message}`,
        );
      }
      return !isRefused;
    });
  const watch = file && watchPaths([file.path], file.fingerprint, reload);
  log.info(
    { listen: settings.listen, port: server.port, proxy, admin: admin?.url, hosts: [...hosts.keys()] },
    "started",
  );
  return {
    port: server.port,
    adminUrl: admin?.url,
    reload,
    async stop(signal) {
      isStopping = true;
      log.info({ signal }, "stopping");
      watch?.stop();
      await oneByOne(async () => {});
      await stopAll(stops);
      log.info("stopped");
    },
  };
}

/** Returns the parts of a configuration that cannot change while the guard runs. */
function fixed(config: GuardConfig): object {
  const { hosts: _, file: __, ...others } = config;
  return others;
}
