import type { Clock } from "../clock.ts";
import { type Budget, createBudget } from "../relying-party/budget.ts";
import type { Fetch } from "../relying-party/fetch-json.ts";
import { type RemoteKeySet, createKeySet, keysLater } from "../relying-party/remote-key-set.ts";

const maxSets = 1_000;
// What a client publishes is small; what an attacker publishes need not be.
const maxBytes = 65_536;
const timeoutMs = 5_000;

interface Kept {
  readonly set: RemoteKeySet;
  readonly budget: Budget;
}

/**
 * The key sets of many URLs, the least recently used of them being dropped first. Tokens that anybody can make up decide which are
 * used, so what a set may cost is not dropped with it: its budget pays for asking again, too.
 */
export function createRemoteSets(fetch: Fetch, clock: Clock): (jwksUri: string) => RemoteKeySet {
  const kept = new Map<string, Kept>();
  /** Of sets that were dropped within about the last minute. */
  const budgets = new Map<string, Budget>();

  /** @throws FetchError `ERR_KEYS_LATER`, `ERR_URL_INSECURE` */
  function create(jwksUri: string): Kept {
    const now = clock.now();
    const budget = budgets.get(jwksUri) ?? createBudget();
    const pauseMs = budget.waitMs(now);
    if (pauseMs > 0) throw keysLater(pauseMs);
    const set = createKeySet({ jwksUri, fetch, clock, maxBytes, timeoutMs }, { budget });
    budget.spend(now);
    budgets.delete(jwksUri);
    return { set, budget };
  }

  function drop(jwksUri: string, { budget }: Kept): void {
    kept.delete(jwksUri);
    budgets.set(jwksUri, budget);
    for (const [uri, budget] of budgets) {
      if (!budget.isWhole(clock.now())) break;
      budgets.delete(uri);
    }
  }

  return (jwksUri) => {
    const used = kept.get(jwksUri) ?? create(jwksUri);
    kept.delete(jwksUri);
    kept.set(jwksUri, used);
    const [oldest] = kept;
    if (kept.size > maxSets && oldest !== undefined) drop(...oldest);
    return used.set;
  };
}
