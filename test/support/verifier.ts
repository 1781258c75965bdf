import { type JWTVerifyGetKey, jwtVerify } from "jose";
import { type KeyResolver, verify } from "../../src/verify/token/verify.ts";

/** Tokens that stay valid until `next` is called with the number of the window after the next one. */
export interface Window {
  readonly number: number;
  readonly tokens: readonly string[];
  /** Invalid tokens, in the last window only. */
  readonly refused?: readonly string[];
}

/** Waits for the window after a number. The call confirms that the verifier no longer uses the tokens of windows before the previous one. */
export type NextWindow = (after: number) => Promise<Window>;

/** A verifier's report. */
export interface Report {
  readonly verified: number;
  /** Number of refused valid tokens by error. */
  readonly failures: Readonly<Record<string, number>>;
  /** Results of the invalid tokens. */
  readonly refusals: readonly string[];
  /** State of the key set for a cold start. */
  readonly state?: unknown;
}

/** Verifies a token with jose and with jwksd over the same keys. They must agree. @throws jose's error */
export async function verifyByBoth(
  token: string,
  keys: KeyResolver,
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

/** Verifies continuously, on any runtime: four lanes take turns with the tokens, and each new token is verified immediately. */
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
  const inFlight: Promise<void>[] = [];
  const running = Array.from({ length: lanes }, async (_, lane) => {
    for (let turn = lane; !end.signal.aborted; turn += 1) {
      inFlight[lane] = check(window.tokens[turn % window.tokens.length] as string);
      await inFlight[lane];
      // A page that is never idle gets no responses, and a refusal may happen without any event.
      await new Promise((resolve) => setTimeout(resolve));
    }
  });
  let before: Promise<unknown> = Promise.resolve();
  for (;;) {
    const done = Promise.all([...window.tokens.map(check), ...inFlight]);
    // Wait for the previous window only: a token of the next one may arrive while a refetch for this one is in flight.
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
