import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import { type JSONWebKeySet, createLocalJWKSet, decodeProtectedHeader } from "jose";
import { commandStore, keyFor, wrappingKeyOf } from "../support/managed.ts";
import { part, skipWithout } from "../support/parts.ts";
import { eventually, startService, temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { verifyByBoth } from "../support/verifier.ts";
import { audience, verifiers } from "../support/verifier-matrix.ts";

const rotations = soak(20, 1);
const folderOfClients = new URL("../sign-server/", import.meta.url).pathname;
const clients = { python3: "ask.py", php: "ask.php" };
const skip = skipWithout(...Object.keys(clients));

/** A process that gives one token after the other, as fast as they are taken. */
function askWith(t: TestContext, program: string, file: string, socket: string): () => Promise<string> {
  const child = spawn(part(program), [join(folderOfClients, file), socket], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => child.kill());
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return async () => {
    child.stdin.write("\n");
    return ((await lines.next()) as { value: string }).value;
  };
}

test(
  `${rotations} real rotations under load, while Python and PHP sign: every verifier takes each token, and those with a copy ask for no key again`,
  {
    skip,
  },
  async (t) => {
    const folder = await temporaryFolder(t);
    const [data, socket] = [join(folder, "data"), join(folder, "s")];
    const service = await startService(t, ["--data", data, "--sign-socket", socket]);
    const issuer = new URL(service.jwksUri).origin;
    const served = async () =>
      (await (await fetch(service.jwksUri)).json()) as JSONWebKeySet & { keys: { kid: string }[] };
    // What a cache has: it asks again in the time for which a key is announced, and not for a kid.
    let copy = createLocalJWKSet(await served());
    const matrix = verifiers.map(({ make }) => make({ issuer, jwksUri: service.jwksUri }));
    const programs = Object.keys(clients);
    const verified = new Map(programs.map((program) => [program, 0]));
    const kids = new Map(programs.map((program) => [program, new Set<string>()]));
    const state = { isOver: false };

    const loads = Object.entries(clients).map(async ([program, file]) => {
      const ask = askWith(t, program, file, socket);
      while (!state.isOver) {
        const token = await ask();
        await verifyByBoth(token, copy, { issuer, audience });
        await Promise.all(matrix.map((verify) => verify(token)));
        kids.get(program)?.add(decodeProtectedHeader(token).kid ?? "");
        verified.set(program, (verified.get(program) ?? 0) + 1);
      }
    });
    const rotating = async (): Promise<void> => {
      const path = join(data, "keys.db");
      const wrappingKey = await wrappingKeyOf(data);
      for (let count = 0; count < rotations; count += 1) {
        const key = await keyFor(wrappingKey);
        await commandStore(path, { type: "announce", key });
        await eventually("the next key is served", async () => {
          const jwks = await served();
          const isServed = jwks.keys.some(({ kid }) => kid === key.kid);
          if (isServed) copy = createLocalJWKSet(jwks);
          return isServed;
        });
        await commandStore(path, { type: "activate", kid: key.kid, force: true });
        await eventually("each has a token of the next key", () => [...kids.values()].every((of) => of.has(key.kid)));
      }
      state.isOver = true;
    };
    try {
      await Promise.all([...loads, rotating()]);
    } finally {
      state.isOver = true;
    }
    t.diagnostic(`tokens ${JSON.stringify(Object.fromEntries(verified))}`);
  },
);
