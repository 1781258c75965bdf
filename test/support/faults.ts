import type { Cut, Cuttable } from "./cuttable.ts";
import type { Daemon } from "./daemon.ts";

const cuts: Readonly<Record<string, Cut>> = {
  "the connection breaks before the server hears of it": "before the server hears it",
  "the connection breaks before its answer": "after the server has answered",
  "the network falls silent": "silent from then on",
};

type Faults = Record<string, (under: { readonly network: Cuttable }) => Promise<() => Promise<void>>>;

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
