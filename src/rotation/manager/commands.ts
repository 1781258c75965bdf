import { ConfigError } from "../../base/errors.ts";
import { type Rules, boolean, checkOptions, oneOf, text } from "../../base/options.ts";
import type { Change } from "../rules/advance.ts";
import type { Command, NewKey } from "../rules/commands.ts";
import { type KeyRecord, type KeyUse, activeKey, announcedKey } from "../rules/records.ts";
import type { ForceOptions, KeyManager, RotateOptions } from "./types.ts";

interface CommandsOptions {
  /** Looks at the store, where others may have changed the keys. */
  readonly runDueSteps: () => Promise<void>;
  readonly execute: (command: Command, made?: NewKey) => Promise<Change>;
  readonly makeKey: (use: KeyUse, alg?: string) => Promise<NewKey>;
  readonly records: () => readonly KeyRecord[];
}

const rotateRules: Rules<RotateOptions> = { use: oneOf("sig", "enc"), alg: text, now: boolean };
const forceRules: Rules<ForceOptions> = { force: boolean };

function checkKid(kid: unknown): string {
  if (text.holds(kid)) return kid;
  throw new ConfigError("ERR_OPTION_INVALID", `the kid must be ${text.must}`);
}

/** The commands of operators as methods of a manager. A wrong argument is refused before a key is made. */
export function createCommands({
  runDueSteps,
  execute,
  makeKey,
  records,
}: CommandsOptions): Pick<KeyManager, "rotate" | "activate" | "retire" | "remove" | "revoke"> {
  const early =
    (type: "activate" | "retire" | "remove") =>
    async (kid: string, options: ForceOptions = {}): Promise<Change> => {
      const { force = false } = checkOptions(options, forceRules);
      return execute({ type, kid: checkKid(kid), force });
    };

  return {
    async rotate(options = {}) {
      const { use = "sig", alg, now = false } = checkOptions(options, rotateRules);
      await runDueSteps().catch(() => {});
      // With `now`, an announced key is the next one already.
      const isThere = now && announcedKey(records(), use) !== undefined;
      const key = isThere ? undefined : await makeKey(use, alg);
      return execute({ type: "rotate", use, now, key }, key);
    },
    activate: early("activate"),
    retire: early("retire"),
    remove: early("remove"),
    async revoke(kid) {
      checkKid(kid);
      await runDueSteps().catch(() => {});
      const { use } = records().find((record) => record.kid === kid) ?? {};
      const isActive = use !== undefined && activeKey(records(), use)?.kid === kid;
      const isAlone = isActive && announcedKey(records(), use) === undefined;
      const replacement = isAlone ? await makeKey(use) : undefined;
      return execute({ type: "revoke", kid, replacement }, replacement);
    },
  };
}
