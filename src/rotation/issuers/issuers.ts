import { mapInParallel, withDeadline } from "../../base/async.ts";
import { type Instant, instantNow, longestSince, systemClock } from "../../base/clock.ts";
import { ConfigError, StoreError, codeOf, invalidOption } from "../../base/errors.ts";
import { type MetricValue, counter, createTally, gauge, seconds } from "../../base/metrics.ts";
import {
  type Given,
  type Rules,
  callback,
  checkOptions,
  clock as clockRule,
  number,
  object,
  required,
  string,
  wholeNumber,
} from "../../base/options.ts";
import { outlivesRequests } from "../../base/runtime-support.ts";
import { createProvider } from "../../provider/create-provider.ts";
import { headerLines, writeReply } from "../../publish/node-response.ts";
import { notFound, problem, unavailable, withoutBodyOnHead } from "../../publish/respond.ts";
import { fetchHandler, toResponse } from "../../publish/web-response.ts";
import { readWrappingKeys } from "../custody/key-wrapping.ts";
import { readRegister } from "../custody/read-register.ts";
import { issuerStatus } from "../explain/issuer-status.ts";
import { managerWith } from "../manager/manager.ts";
import { registerRule, wrappingKeysRule } from "../manager/options.ts";
import type { KeyManager, KeyManagerOptions } from "../manager/types.ts";
import { isDecommissioned } from "../rules/key-records.ts";
import { rotationPolicy } from "../rules/policy.ts";
import type { DueIssuer, ListedIssuer, Register } from "../store/register.ts";
import { createIssuerTemplate } from "./issuer-template.ts";
import { createRecent } from "./lru-cache.ts";
import { spreadPolicy } from "./rotation-jitter.ts";
import type {
  DueStepsReport,
  HostRequest,
  Issuers,
  IssuersOptions,
  ListIssuersOptions,
  ManagedIssuer,
} from "./types.ts";

const rules: Rules<IssuersOptions> = {
  issuer: required(string),
  store: required(callback),
  wrappingKeys: required(wrappingKeysRule),
  initialPolicy: object,
  metadata: callback,
  refreshSeconds: number(1),
  maxIssuers: number(1),
  waitUntil: callback,
  onEvent: callback,
  clock: clockRule,
};
const listRules: Rules<ListIssuersOptions> = { after: object, limit: wholeNumber(1, 10_000) };

/** Maximum number of unusable names to remember. There is a limit because anyone can invent names. */
const maxUnusable = 10_000;
/**
 * Maximum number of lookups in flight or waiting. The limit applies separately to requests and to the application's
 * calls.
 */
const maxLookups = 100;
/**
 * Maximum number of concurrent lookups for requests. A connection pool may have only five connections; the others are
 * left for the application.
 */
const requestsInParallel = 3;
const lookupMs = 10_000;
const pageLength = 100;
const inParallel = 10;
/** Maximum memory for all issuers, in bytes, estimated from the length of their documents. */
const maxBytes = 100_000_000;
/** Measured memory use of an issuer with two keys, in bytes. */
const ownBytes = 40_000;
const bytesPerCharacter = 8;

/** Options for a manager that may generate an issuer's first key. */
type FirstKey = Pick<Given<KeyManagerOptions>, "requireStore" | "initialPolicy">;

/** Origin of a name. The application knows its tenants, whereas a request may contain any name. */
type Caller = "application" | "request";

/** An issuer that has no keys or could not be loaded. */
interface Unusable {
  readonly at: Instant;
  readonly error?: unknown;
}

/**
 * Publishes and signs for many issuers, each with its own keys. Nothing is read until an issuer is needed, and there is
 * no timer.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_ISSUER_INVALID`, `ERR_POLICY_INVALID`,
 * `ERR_WRAPPING_KEY_INVALID`
 */
export async function createIssuers(options: IssuersOptions): Promise<Issuers> {
  const given = checkOptions(options, rules);
  const {
    issuer: template,
    store,
    wrappingKeys,
    initialPolicy,
    metadata,
    waitUntil,
    onEvent,
    clock = systemClock,
  } = given;
  const { refreshSeconds = 30, maxIssuers = 1_000 } = given;
  const names = createIssuerTemplate(template);
  // Checked here, so that invalid options fail now instead of on the first request.
  rotationPolicy(initialPolicy);
  const keys = await readWrappingKeys(wrappingKeys, (index) => `wrappingKeys[${index}]`);

  const kept = createRecent<ManagedIssuer>(maxIssuers, maxBytes);
  /** Oldest first. */
  const unusable = new Map<string, Unusable>();
  /**
   * Lookups in flight, by caller. The application never waits for a request's lookup, so requests for invented names
   * cannot keep it from signing.
   */
  const lookups: Readonly<Record<Caller, Map<string, Promise<ManagedIssuer | undefined>>>> = {
    application: new Map(),
    request: new Map(),
  };
  const closing = new AbortController();
  /** Database calls in flight. `close` waits for them. */
  const inFlight = new Set<Promise<unknown>>();
  const [loads, failures] = [createTally(), createTally()];
  let lastRun: (DueStepsReport & { readonly at: number }) | undefined;
  let running = 0;
  const waiting: (() => void)[] = [];

  function managerOf(issuer: string, register: Register, more: FirstKey = {}): Promise<KeyManager> {
    return managerWith(keys, {
      issuer,
      store: register,
      onDemand: true,
      refreshSeconds,
      waitUntil,
      clock,
      onEvent(event) {
        if (event.type === "failed") failures.add(event.error.code);
        onEvent?.(event, issuer);
      },
      ...more,
    });
  }

  async function registerOf(issuer: string): Promise<Register> {
    const register = await store(issuer);
    if (!registerRule.holds(register)) throw invalidOption(`the "store" option must return ${registerRule.must}`);
    return register;
  }

  /** Runs work with a time limit, because a database or the `store` option may hang. */
  const inTime = async <T>(work: (signal: AbortSignal) => T | Promise<T>): Promise<T> =>
    withDeadline(async (signal) => work(signal), { clock, timeoutMs: lookupMs, signal: closing.signal, expired: late });

  function tracked<T>(work: Promise<T>): Promise<T> {
    inFlight.add(work);
    void work.catch(() => {}).finally(() => inFlight.delete(work));
    return work;
  }

  /** Takes the due steps with a temporary manager. @param then function that is called with the manager afterwards */
  async function runDueStepsOnce(
    issuer: string,
    more?: FirstKey,
    then: (keys: KeyManager) => Promise<unknown> = async () => {},
  ): Promise<void> {
    if (!names.holds(issuer)) {
      throw new ConfigError("ERR_ISSUER_INVALID", `issuer ${JSON.stringify(issuer)} does not match ${template}`);
    }
    const keys = await managerOf(issuer, await inTime(() => registerOf(issuer)), more);
    try {
      await keys.runDueSteps();
      await then(keys);
    } catch (error) {
      throw codeOf(error) === "ERR_STORE_EMPTY" ? lacksKeys(issuer) : error;
    } finally {
      await keys.close();
    }
  }

  function recordUnusable(issuer: string, fault: Unusable): void {
    // Another lookup has loaded the issuer in the meantime.
    if (kept.peek(issuer) !== undefined) return;
    unusable.delete(issuer);
    unusable.set(issuer, fault);
    if (unusable.size > maxUnusable) unusable.delete(unusable.keys().next().value as string);
  }

  /** Loads an issuer if it has keys. Uses a plain read to find out, because an invented name must not cost a write. */
  async function load(issuer: string): Promise<ManagedIssuer | undefined> {
    const at = instantNow(clock);
    try {
      const { register, text } = await inTime(async (signal) => {
        const register = await registerOf(issuer);
        return { register, ...(await readRegister(register, undefined, { signal })) };
      });
      if (text === undefined) {
        recordUnusable(issuer, { at });
        loads.add("unknown");
        return undefined;
      }
      const keys = await managerOf(issuer, register);
      // Reads the issuer's records now. A failed write does not matter as long as the keys may be used.
      await keys.runDueSteps().catch((error: unknown) => {
        if (!keys.isReady) throw error;
      });
      const provider = await createProvider({ keys, clock, metadata: metadata?.(issuer) });
      const loaded = Object.freeze({ keys, provider });
      kept.set(issuer, loaded, ownBytes + bytesPerCharacter * text.length);
      unusable.delete(issuer);
      loads.add("ok");
      return loaded;
    } catch (error) {
      loads.add(codeOf(error));
      recordUnusable(issuer, { at, error });
      throw error;
    }
  }

  /** Loads an issuer for a request as soon as a slot is free, within the time limit. */
  const loadInTurn = (issuer: string): Promise<ManagedIssuer | undefined> =>
    inTime(async (signal) => {
      if (running < requestsInParallel) running += 1;
      else await new Promise<void>((start) => waiting.push(start));
      try {
        signal.throwIfAborted();
        return kept.peek(issuer) ?? (await tracked(load(issuer)));
      } finally {
        const next = waiting.shift();
        if (next === undefined) running -= 1;
        else next();
      }
    });

  async function find(issuer: string, caller: Caller): Promise<ManagedIssuer | undefined> {
    const { at, error } = unusable.get(issuer) ?? {};
    if (at !== undefined && longestSince(at, clock) < refreshSeconds * 1000) {
      if (error === undefined) return undefined;
      // Only the application triggers another read. A request must not, because anyone can send one, and the extra
      // reads could keep the application from signing.
      if (caller === "request") throw error;
    }
    if (!names.holds(issuer)) return undefined;
    const own = lookups[caller];
    const lookup = lookups.application.get(issuer) ?? own.get(issuer);
    if (lookup !== undefined) return lookup;
    if (own.size >= maxLookups)
      throw new StoreError("ERR_STORE_UNAVAILABLE", `${maxLookups} issuer lookups are in flight; try again`);
    if (!outlivesRequests) return load(issuer);
    const loading = (caller === "request" ? loadInTurn(issuer) : tracked(load(issuer))).finally(() =>
      own.delete(issuer),
    );
    own.set(issuer, loading);
    return loading;
  }

  const get: Issuers["get"] = async (issuer) => kept.get(issuer) ?? find(issuer, "application");

  const runDueSteps: Issuers["runDueSteps"] = async (issuer) =>
    kept.peek(issuer)?.keys.runDueSteps() ?? tracked(runDueStepsOnce(issuer));

  return Object.freeze({
    get,
    runDueSteps,

    async create(issuer) {
      const firstKey = { requireStore: false, initialPolicy: await spreadPolicy(issuer, initialPolicy) };
      await tracked(runDueStepsOnce(issuer, firstKey, restart));
      const created = await tracked(load(issuer));
      if (created === undefined) throw lacksKeys(issuer);
      return created;
    },

    async decommission(issuer, options) {
      const decommission = (keys: KeyManager): Promise<unknown> => keys.decommission(options);
      const held = kept.peek(issuer)?.keys;
      await tracked(held === undefined ? runDueStepsOnce(issuer, {}, decommission) : decommission(held));
    },

    async sign(issuer, claims, options) {
      const found = await get(issuer);
      if (found === undefined) throw lacksKeys(issuer);
      return found.provider.sign(claims, options);
    },

    fetch: fetchHandler((request) => {
      const { method, url } = request;
      const otherwise = (replies: typeof notFound): Response => toResponse(withoutBodyOnHead(replies, method));
      const issuer = names.issuerOf(url);
      if (issuer === undefined) return otherwise(notFound);
      const held = kept.get(issuer);
      if (held !== undefined) return held.provider.fetch(request);
      return find(issuer, "request").then(
        (found) => found?.provider.fetch(request) ?? otherwise(notFound),
        () => otherwise(unavailable),
      );
    }),

    node(request, response, next) {
      const { method = "GET", headers, rawHeaders } = request;
      const otherwise = (replies: typeof notFound): void => {
        if (replies === notFound && next !== undefined) next();
        else writeReply(response, withoutBodyOnHead(replies, method));
      };
      const host = headers[":authority"] ?? headers.host;
      const issuer = names.issuerOf(request.originalUrl ?? request.url ?? "/", host?.toString());
      if (issuer === undefined) return otherwise(notFound);
      if (namesTwoHosts(headers[":authority"], rawHeaders)) return otherwise(twoHosts);
      const held = kept.get(issuer);
      if (held !== undefined) return held.provider.node(request, response, next);
      void find(issuer, "request").then(
        (found) => (found === undefined ? otherwise(notFound) : found.provider.node(request, response, next)),
        () => otherwise(unavailable),
      );
    },

    async list(options = {}) {
      const { after, limit = pageLength } = checkOptions(options, listRules);
      const register = await inTime(() => registerOf(template));
      const listPage = register.list?.bind(register);
      if (listPage === undefined)
        throw invalidOption(`the store ${register.name} cannot list issuers; call get() for each of them`);
      const found: ListedIssuer[] = [];
      for (let last = after; found.length < limit;) {
        const page: readonly ListedIssuer[] = await inTime((signal) => listPage(limit, last, { signal }));
        if (page.length === 0) break;
        last = page.at(-1);
        // The database may hold other issuers.
        found.push(...page.filter(({ issuer }) => names.holds(issuer)));
      }
      return mapInParallel(found.slice(0, limit), inParallel, async (row) => {
        const status = await issuerStatus(row, registerOf, keys, clock);
        const { failure } = kept.peek(row.issuer)?.keys.health ?? {};
        return failure === undefined ? status : { error: failure, ...status, state: "failing" };
      });
    },

    async runAllDueSteps() {
      // Any issuer's register lists all issuers.
      const register = await inTime(() => registerOf(template));
      const due = register.due?.bind(register);
      if (due === undefined)
        throw invalidOption(`the store ${register.name} cannot list issuers; call runDueSteps() for each of them`);
      const failed = new Map<string, unknown>();
      let [issuers, last]: [number, DueIssuer | undefined] = [0, undefined];
      for (;;) {
        const page: readonly DueIssuer[] = await inTime((signal) => due(pageLength, last, { signal }));
        if (page.length === 0) {
          lastRun = { at: clock.now(), issuers, failed };
          return lastRun;
        }
        last = page.at(-1);
        const matching = page.filter(({ issuer }) => names.holds(issuer));
        issuers += matching.length;
        await mapInParallel(matching, inParallel, ({ issuer }) =>
          runDueSteps(issuer).catch((error: unknown) => void failed.set(issuer, error)),
        );
      }
    },

    metrics() {
      const inMemory = kept.values();
      const failedNow = [...unusable.values()].filter(
        ({ at, error }) => error !== undefined && longestSince(at, clock) < refreshSeconds * 1000,
      );
      const unmanaged = inMemory.filter(({ keys }) => keys.health.failure !== undefined).length;
      const counts = { ok: inMemory.length - unmanaged, failing: unmanaged + failedNow.length };
      const ran = lastRun && { ok: lastRun.issuers - lastRun.failed.size, failed: lastRun.failed.size };
      return [
        gauge(
          ["jwksd_issuers", "Issuers in memory, by state. Failing issuers include those that recently failed to load."],
          byLabel("state", counts),
        ),
        counter(
          ["jwksd_issuer_loads_total", "Attempts to load an issuer, by result: ok, unknown or the error code."],
          loads.values("result"),
        ),
        counter(
          ["jwksd_issuer_failures_total", "Failed attempts to manage an issuer's keys, by error code."],
          failures.values("code"),
        ),
        gauge(
          ["jwksd_due_run_issuers", "Issuers that had a step due in the last run of runAllDueSteps, by result."],
          byLabel("result", ran ?? {}),
        ),
        gauge(
          ["jwksd_due_run_timestamp_seconds", "Time at which the last run of runAllDueSteps ended."],
          seconds(lastRun?.at),
        ),
      ];
    },

    async close() {
      closing.abort(new StoreError("ERR_CLOSED", "the issuers were closed"));
      await Promise.allSettled(inFlight);
      await Promise.all(kept.clear().map(({ keys }) => keys.close()));
    },
  } satisfies Issuers);
}

const byLabel = (label: string, counts: Readonly<Record<string, number>>): MetricValue[] =>
  Object.entries(counts).map(([name, value]) => ({ labels: { [label]: name }, value }));

/**
 * Generates a first key for an issuer that has been decommissioned, once its name can be used again.
 *
 * @throws RotationError `ERR_ISSUER_DECOMMISSIONED`
 */
const restart = async (keys: KeyManager): Promise<unknown> => isDecommissioned(keys.records) && keys.rotate();

const twoHosts = problem(400, "Bad Request", "The request names more than one host.");

/**
 * Reports whether a proxy may have used a different host from the one that `node:http` used.
 *
 * @see RFC 9112 section 3.2; RFC 9113 section 8.3.1
 */
function namesTwoHosts(authority: HostRequest["headers"][":authority"], rawHeaders?: readonly string[]): boolean {
  const hosts = headerLines("host", rawHeaders);
  return hosts.length > 1 || (authority !== undefined && hosts.some((host) => host !== authority.toString()));
}

const late = (): StoreError =>
  new StoreError("ERR_STORE_UNAVAILABLE", `the store did not respond within ${lookupMs / 1000} s`);

const lacksKeys = (issuer: string): StoreError =>
  new StoreError("ERR_STORE_EMPTY", `the store has no keys for ${issuer}; generate the first one with create()`);
