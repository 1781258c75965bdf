import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { delimiter, join, resolve } from "node:path";
import { before, describe, test } from "node:test";
import { promisify } from "node:util";
import { builtClone } from "../support/build.ts";

type Json = Readonly<Record<string, unknown>>;

const root = resolve(import.meta.dirname, "../..");
const run = promisify(execFile);

const examples: { file: string; typ: string; lifetimeSeconds: number; claims: Json; others: string[] }[] = [
  {
    file: "id-token.ts",
    typ: "JWT",
    lifetimeSeconds: 300,
    claims: { sub: "248289761001", aud: "s6BhdRkqt3", nonce: "n-0S6_WzA2Mj" },
    others: ["auth_time"],
  },
  {
    file: "access-token.ts",
    typ: "at+jwt",
    lifetimeSeconds: 300,
    claims: { sub: "248289761001", aud: "https://api.example", client_id: "s6BhdRkqt3", scope: "orders:read" },
    others: ["jti"],
  },
  {
    file: "jarm.ts",
    typ: "JWT",
    lifetimeSeconds: 600,
    claims: {
      aud: "s6BhdRkqt3",
      code: "PyyFaux2o7Q0YfXBU32jhw.5FXSQpvr8akv9CeRDSd0QA",
      state: "S8NJ7uqk5fY4EjNvP_G_FtyJu6pUsvH9jsYni9dMAJw",
    },
    others: [],
  },
  {
    file: "userinfo.ts",
    typ: "JWT",
    lifetimeSeconds: 60,
    claims: { sub: "248289761001", aud: "s6BhdRkqt3", name: "Jane Doe", email: "janedoe@example.com" },
    others: [],
  },
];

describe("examples of tokens run as they stand, against a build", () => {
  let clone: string;
  // npm would take these for its own settings, and the checkout for its prefix.
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("npm_"));
  const path = [join(root, "node_modules/.bin"), process.env["PATH"]].join(delimiter);
  const sh = async (command: string): Promise<string> => {
    const env = { ...Object.fromEntries(inherited), PATH: path };
    return (await run("sh", ["-c", command], { cwd: clone, env })).stdout;
  };

  before(async () => {
    clone = await builtClone();
  });

  for (const { file, typ, lifetimeSeconds, claims, others } of examples) {
    test(file, async () => {
      const [, command] =
        /^\/\/ Run: npm run build && (.+)/.exec(await readFile(join(root, "examples/tokens", file), "utf8")) ?? [];
      assert.equal(command, `node examples/tokens/${file}`);
      const before = Math.floor(Date.now() / 1000);
      const printed = JSON.parse(await sh(command)) as { header: Json; claims: Json & { iat: number } };
      assert.deepEqual(printed.header, { alg: "ES256", kid: "2026-11", typ });
      const { iat } = printed.claims;
      assert.ok(iat >= before && iat <= Date.now() / 1000);
      const own = { iss: "https://op.example", iat, exp: iat + lifetimeSeconds };
      const varying = Object.fromEntries(others.map((name) => [name, printed.claims[name]]));
      assert.ok(!Object.values(varying).includes(undefined));
      assert.deepEqual(printed.claims, { ...claims, ...own, ...varying });
    });
  }
});
