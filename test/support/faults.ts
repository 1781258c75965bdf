import type { Cut, Cuttable } from "./cuttable.ts";

const cuts: Readonly<Record<string, Cut>> = {
  "the connection breaks before the server hears of it": "before the server hears it",
  "the connection breaks before its answer": "after the server has answered",
  "the network falls silent": "silent from then on",
};

/** Faults for `checkRegister`, at the moment at which a client says a word that only writes have. */
export const networkFaults = (
  word: string,
): Record<string, (under: { readonly network: Cuttable }) => Promise<() => Promise<void>>> =>
  Object.fromEntries(
    Object.entries(cuts).map(([name, cut]) => [
      name,
      async ({ network }) => {
        network.cutAt(word, cut);
        return async () => network.mend();
      },
    ]),
  );
