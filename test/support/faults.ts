import { randomUUID } from "node:crypto";
import type { Register } from "../../src/rotation/store/register.ts";
import type { RegisterUnderTest } from "../../src/testing/register.ts";
import { type Cut, type Cuttable, cuttable } from "./cuttable.ts";
import type { Daemon } from "./daemon.ts";

export interface Networked extends RegisterUnderTest {
  readonly network: Cuttable;
}

/** What a client of the caller does at the end. */
type Ends = (() => unknown)[];

export type Open = (
  port: number,
  options: { issuer: string; timeoutMs: number },
  ends: Ends,
) => Register | Promise<Register>;

/** For `checkRegister`: registers that reach the server on a port over lines that can be cut, with issuers of their own. */
export const throughNetwork = (port: number, open: Open) => async (): Promise<Networked> => {
  const network = await cuttable(port);
  const run = randomUUID();
  const ends: Ends = [];
  return {
    network,
    handle: async (issuer) => open(network.port, { issuer: `${issuer}#${run}`, timeoutMs: 3_000 }, ends),
    async end() {
      for (const end of ends) await end();
      await network.close();
    },
  };
};

const cuts: Readonly<Record<string, Cut>> = {
  "the connection breaks before the server hears of it": "before the server hears it",
  "the connection breaks before its answer": "after the server has answered",
  "the network falls silent": "silent from then on",
};

type Faults = Record<string, (under: Networked) => Promise<() => Promise<void>>>;

/** Faults for `checkRegister`, at the moment at which a client says a word that only writes have. */
export const networkFaults = (word: string): Faults =>
  Object.fromEntries(
    Object.entries(cuts).map(([name, cut]) => [
      name,
      async ({ network }) => {
        network.cutAt(word, cut);
        return async () => network.mend();
      },
    ]),
  );

/** The same for a server, in the middle of a write. */
export const serverFaults = (word: string, server: Daemon): Faults => ({
  "the server dies": async ({ network }) => {
    network.cutAt(word, "after the server has answered", () => void server.kill());
    return () => server.start();
  },
  "the server stands still for a while": async ({ network }) => {
    network.cutAt(word, "after the server has answered", () => server.pause());
    return async () => server.resume();
  },
});
