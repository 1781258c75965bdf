import { type JWTVerifyGetKey, jwtVerify } from "jose";
import { type KeySource, verify } from "../../src/verify/token/verify.ts";

/** Tokens that stay valid until `next` is called with the number of the window after the next one. */
export interface Window {
  readonly number: number;
  readonly tokens: readonly string[];
  /** In the last window only: tokens that are not valid. */
  readonly refused?: readonly string[];
}

/** Waits for the window after a number. The call says that the tokens of windows before the one before it are done with. */
export type NextWindow = (after: number) => Promise<Window>;

/** What a verifier has to say in the end. */
export interface Report {
  readonly verified: number;
  /** Why valid tokens were refused, and how often. */
  readonly failures: Readonly<Record<string, number>>;
  /** What became of the tokens that are not valid. */
  readonly refusals: readonly string[];
  /** What the key set gives for a cold start. */
  readonly state?: unknown;
}

/** Verifies a token with jose and with jwksd over the same keys, and throws what jose throws. They must not disagree. */
export async function verifyByBoth(
  token: string,
  keys: KeySource,
  expected: { readonly issuer: string; readonly audience: string },
): Promise<void> {
  const options = { ...expected, algorithms: ["ES256"] };
  const [byJose, byJwksd] = await Promise.allSettled([
    jwtVerify(token, keys as JWTVerifyGetKey, options),
    verify(token, { ...options, keys }),
  ]);
  if (byJose.status !== byJwksd.status) throw new Error(`jose: ${byJose.status}, jwksd: ${byJwksd.status}`);
  if (byJose.status === "rejected") throw byJose.reason;
}

const lanes = 4;

/** Verifies without pause, on any runtime: four lanes take turns with the tokens, and each new token is looked at at once. */
export async function verifyWithoutPause(
  next: NextWindow,
  verify: (token: string) => Promise<unknown>,
): Promise<Report> {
  let verified = 0;
  const failures: Record<string, number> = {};
  const check = async (token: string): Promise<void> => {
    try {
      await verify(token);
      verified += 1;
    } catch (error) {
      failures[nameOf(error)] = (failures[nameOf(error)] ?? 0) + 1;
    }
  };

  let window = await next(-1);
  const end = new AbortController();
  const underWay: Promise<void>[] = [];
  const running = Array.from({ length: lanes }, async (_, lane) => {
    for (let turn = lane; !end.signal.aborted; turn += 1) {
      underWay[lane] = check(window.tokens[turn % window.tokens.length] as string);
      await underWay[lane];
      // A page that is never idle gets no responses, and a refusal may need no event at all.
      await new Promise((resolve) => setTimeout(resolve));
    }
  });
  let before: Promise<unknown> = Promise.resolve();
  for (;;) {
    const done = Promise.all([...window.tokens.map(check), ...underWay]);
    // Not for this window: a token of the next one may come while a refetch for this one is under way.
    await before;
    before = done;
    if (window.refused !== undefined) break;
    window = await next(window.number);
  }
  await before;
  end.abort();
  await Promise.all(running);

  const refusals: string[] = [];
  for (const token of window.refused) refusals.push(await verify(token).then(() => "verified", nameOf));
  return { verified, failures, refusals };
}

function nameOf(error: unknown): string {
  return (error as { code?: string }).code ?? String(error);
}
