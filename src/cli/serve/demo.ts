import { type Clock, monotonicNow, systemClock } from "../../base/clock.ts";
import { newWrappingKey } from "../../rotation/custody/key-wrapping.ts";
import { memoryStore } from "../../rotation/store/memory.ts";
import { createLog } from "../../service/config/logger.ts";
import { type SettingName, variableName } from "../../service/config/setting-definitions.ts";
import { resolveSettings } from "../../service/config/settings.ts";
import { type Service, startService } from "../../service/endpoint/service.ts";
import { Command } from "../command.ts";
import { type Io, print } from "../io.ts";
import { handleSignals } from "../signals.ts";

/** Speed of the demo's clock. A day takes two minutes. */
export const timesAsFast = 720;

/**
 * Settings of the demo. `serve` would accept this policy, too: the demo follows the same rules, only with a faster
 * clock.
 */
const demoSettings = {
  host: "127.0.0.1",
  port: "0",
  admin: "127.0.0.1:0",
  replicaName: "jwksd demo, not for production: a day takes two minutes",
  rotateEveryDays: "1",
  announceForSeconds: "43200",
  maxTokenLifetimeSeconds: "10800",
  // 15 s in real time, so that the demo does not become stale if the machine is briefly busy.
  maxStaleSeconds: "10800",
  noDiscovery: "true",
  // The demo writes no files.
  maxSavedSetSeconds: "0",
} as const satisfies Partial<Record<SettingName, string>>;

export function commandOf(io: Io): Command {
  return new Command("demo")
    .notes(`
The demo runs jwksd serve on free ports of this machine, with a clock that runs
720 times as fast, so a day takes two minutes. It rotates every day. The next
key is announced after one minute and signs after two, and the old key is
removed half a minute later. The keys are only in memory. Flags, settings and
environment variables for jwksd serve have no effect.

Example:
  $ jwksd demo        print the URL of a page; open it and watch`)
    .action(() => demo(io));
}

async function demo(io: Io): Promise<void> {
  const starting = startDemo(io, fastClock(timesAsFast));
  handleSignals(starting);
  const service = await starting;
  print(io, await welcomeText(service));
}

/** Starts the same service as `jwksd serve`, but with keys in memory and a different clock. */
export async function startDemo(io: Io, clock: FastClock): Promise<Service> {
  // A real service's settings must not apply here.
  const environment = { [variableName("wrappingKeys")]: newWrappingKey() };
  const settings = await resolveSettings({ flags: demoSettings, environment });
  const log = createLog(settings, io, clock);
  const service = await startService(settings, log, { clock, store: memoryStore({ clock }) });
  // If the clock were already fast during startup, starting on a busy machine would seem to take hours.
  clock.hurry();
  return service;
}

/** A clock that runs at normal speed until `hurry` is called. */
export interface FastClock extends Clock {
  hurry(): void;
}

/**
 * Creates a clock that starts at the machine's time and runs faster than real time. Timers of less than a second keep
 * their real duration, because they are timeouts for calls, which do not get faster. Longer timers take at least a
 * second.
 */
export function fastClock(times: number, real: Clock = systemClock): FastClock {
  const start = real.now();
  const realMs = (): number => Number(monotonicNow(real));
  let [passedMs, sinceMs, pace] = [0, realMs(), 1];
  const passed = (): number => passedMs + (realMs() - sinceMs) * pace;
  return {
    now: () => start + passed(),
    monotonic: passed,
    setTimer: (callback, delayMs) => real.setTimer(callback, Math.max(delayMs / times, Math.min(delayMs, 1000))),
    hurry(): void {
      [passedMs, sinceMs, pace] = [passed(), realMs(), times];
    },
  };
}

async function welcomeText({ url, adminUrl, status }: Service): Promise<string> {
  const { plan, now } = await status();
  const steps = (plan?.steps ?? []).map(
    ({ at, action }) => `  ${minutes((at - now) / timesAsFast)}  a key is ${action}`,
  );
  return [
    "This is a demo, not for production: the keys are only in memory and are lost when this process exits.",
    "A day takes two minutes. The next steps, in minutes from now:",
    ...steps,
    "",
    `  see  ${adminUrl}`,
    `  try  curl -i ${url}`,
    "",
    "Press Ctrl-C to stop it.",
  ].join("\n");
}

function minutes(ms: number): string {
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}
