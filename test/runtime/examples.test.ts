import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { delimiter, join, resolve } from "node:path";
import { type TestContext, after, describe, test } from "node:test";
import { comparable, methodNotAllowed, notFound, notModified, ok, withoutBody } from "../spec/table.ts";
import { builtClone } from "../support/build.ts";
import { familiesOf } from "../support/scrape.ts";
import { temporaryFolder } from "../support/service.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";
import { type WireReply, type WireRequest, pipeline } from "../support/wire.ts";

type Row = readonly [name: string, request: WireRequest, reply: WireReply];

const root = resolve(import.meta.dirname, "../..");
const binaries = join(root, "node_modules/.bin");
const issuer = "https://op.example";

// Bounds the build, the start and the tests together.
const lifetimeMs = 120_000;

/** Properties of an example. */
interface ExampleOptions {
  /** Paths below which a provider with its own issuer is mounted. Default: only the root. */
  readonly mounts?: readonly string[];
  /** Whether the provider answers every path, without an application. Default: `false`. */
  readonly alone?: boolean;
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs the command at the top of an example and compares every response on the wire with the endpoint specification. */
async function checkExample(t: TestContext, file: string, options: ExampleOptions = {}): Promise<void> {
  await checkReplies(await startExample(t, file, options.env), options);
}

async function checkReplies(port: number, { mounts = [""], alone = false }: ExampleOptions = {}): Promise<void> {
  const send = async (...requests: WireRequest[]): Promise<WireReply[]> =>
    (await pipeline(port, requests)).map(comparable);
  const bodyOf = async (target: string): Promise<string> => {
    const [reply] = await send({ target });
    assert.equal(reply?.status, 200, `status of ${target}`);
    return reply.body;
  };

  for (const mount of mounts) {
    const jwks = `${mount}/jwks`;
    const discovery = `${mount}/.well-known/openid-configuration`;
    const jwkSet = await bodyOf(jwks);
    const metadata = await bodyOf(discovery);
    const { issuer: itsIssuer, jwks_uri: jwksUri } = JSON.parse(metadata) as Record<string, unknown>;
    assert.deepEqual([itsIssuer, jwksUri], [issuer + mount, issuer + jwks], discovery);
    const { keys } = JSON.parse(jwkSet) as { keys: Record<string, unknown>[] };
    const members = keys.map(({ x: _x, y: _y, kid: _kid, ...members }) => members);
    assert.deepEqual(members, [{ kty: "EC", crv: "P-256", alg: "ES256", use: "sig" }], jwks);

    const rows = [
      ...documentRows(jwks, jwkSet, true),
      ...documentRows(discovery, metadata, false),
      ...(alone ? notFoundRows : []),
    ];
    const expected = rows.map(([name, , reply]) => [name, reply]);
    const named = (replies: readonly WireReply[]) => replies.map((reply, index) => [rows[index]?.[0], reply]);
    const each: WireReply[] = [];
    for (const [, request] of rows) each.push(...(await send(request)));
    assert.deepEqual(named(each), expected);
    assert.deepEqual(named(await send(...rows.map(([, request]) => request))), expected, "on one connection");
  }

  if (!alone) {
    const [reply] = await send({ target: "/nothing" });
    assert.equal(reply?.status, 404, "other paths are left to the application");
    assert.notEqual(reply.headers["content-type"], "application/problem+json");
  }
}

/** Returns the responses that the endpoint specification requires for a document, with exactly these headers. */
function documentRows(target: string, text: string, isJwkSet: boolean): Row[] {
  const etag = `"${createHash("sha256").update(text, "latin1").digest("hex")}"`;
  const ofDocument = ({ headers, ...reply }: WireReply): WireReply => {
    const own = { "content-type": "application/json", "cache-control": "public, max-age=3600" };
    const kept = Object.entries(own).filter(([name]) => !isJwkSet && name in headers);
    return { ...reply, headers: { ...headers, ...Object.fromEntries(kept) } };
  };
  const [whole, unchanged] = [ofDocument(ok({ text, etag })), ofDocument(notModified({ text, etag }))];
  const condition = (...values: string[]): WireRequest => ({
    target,
    headers: values.map((value) => ["If-None-Match", value]),
  });
  return [
    [`GET ${target}`, { target }, whole],
    [`HEAD ${target}`, { method: "HEAD", target }, withoutBody(whole)],
    [`GET ${target} with a query`, { target: `${target}?a=/b` }, whole],
    // A runtime that compresses would have to make the ETag weak, and a weak one never matches.
    [`GET ${target}, Accept-Encoding`, { target, headers: [["Accept-Encoding", "gzip, br, zstd"]] }, whole],
    [`GET ${target}, If-None-Match: the ETag`, condition(etag), unchanged],
    [`HEAD ${target}, If-None-Match: the ETag`, { ...condition(etag), method: "HEAD" }, unchanged],
    [`GET ${target}, If-None-Match: *`, condition("*"), unchanged],
    [`GET ${target}, If-None-Match: the ETag as a weak one`, condition(`W/${etag}`), whole],
    [`GET ${target}, If-None-Match: another ETag`, condition('"0"'), whole],
    [`GET ${target}, If-None-Match twice, the ETag first`, condition(etag, '"0"'), unchanged],
    [`GET ${target}, If-None-Match twice, the ETag last`, condition('"0"', etag), unchanged],
    ...["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"].map((method): Row => [
      `${method} ${target}`,
      { method, target },
      methodNotAllowed,
    ]),
  ];
}

const notFoundRows: Row[] = [
  ["GET /nothing", { target: "/nothing" }, notFound],
  ["HEAD /nothing", { method: "HEAD", target: "/nothing" }, withoutBody(notFound)],
  ["POST /nothing", { method: "POST", target: "/nothing" }, notFound],
  ["GET /jwks/", { target: "/jwks/" }, notFound],
];

/** Runs an example in a built clone. Returns its port. */
async function startExample(t: TestContext, file: string, own: Readonly<Record<string, string>> = {}): Promise<number> {
  const command = await commandOf(file);
  const clone = await builtClone();

  // npm would take these for its own settings, and the checkout for its prefix.
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("npm_"));
  const path = [binaries, process.env["PATH"]].join(delimiter);
  const child = spawn("sh", ["-c", command], {
    cwd: clone,
    env: { ...Object.fromEntries(inherited), PATH: path, PORT: "0", ISSUER: issuer, ...own },
    stdio: ["ignore", "pipe", "pipe"],
    timeout: lifetimeMs,
  });
  const exited = once(child, "exit");
  t.after(async () => {
    child.kill();
    await exited;
  });
  return new Promise((resolve, reject) => {
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text;
        // An earlier error in its output may have the address of a key service.
        const [, port] = /(?:(?:at|on|server:) http:\/\/[^/\s]+|"port"):(\d+)\D/.exec(output) ?? [];
        if (port !== undefined) resolve(Number(port));
      });
    child.once("exit", () => reject(new Error(`the example ended before it listened: ${command}\n${output}`)));
  });
}

/** Returns the command at the top of an example without the build, with binaries from node_modules instead of `npx`. */
async function commandOf(file: string): Promise<string> {
  const [, lines] = /^\/\/ Run: (.+(?:\n\/\/ .+)*)/.exec(await readFile(join(root, file), "utf8")) ?? [];
  assert.ok(lines, `${file} does not say how to run it`);
  const [, command] = /^npm run build && (.+)$/.exec(lines.replaceAll(/\n\/\/ +/g, " ")) ?? [];
  assert.ok(command, `${file} does not build first`);
  for (const [, name = ""] of command.matchAll(/npx (\S+)/g))
    assert.ok(existsSync(join(binaries, name)), `the npm package "${name}" is missing; install it with: npm ci`);
  // `exec` replaces the shell, so that the server receives signals.
  return command.replaceAll("npx ", "").replace(/^(.* && )?/, "$&exec ");
}

const vault = await vaultStub("a-token");
after(() => vault.close());
const signers = join(await temporaryFolder({ after }), "signers.json");
await writeFile(signers, JSON.stringify({ vaultTransit: { mount: `${vault.url}/transit` } }));
const inVault = { SIGNER_TYPE: "vault-transit", SIGNERS: signers, VAULT_TOKEN: "a-token" };

const examples: readonly (readonly [runtime: string, file: string, options?: ExampleOptions])[] = [
  ["node:http", "node-http.ts", { alone: true }],
  ["Express", "express.ts", { mounts: ["", "/tenant"] }],
  ["Fastify", "fastify.ts"],
  ["Hono", "hono.ts", { alone: true }],
  ["Bun", "bun.ts", { alone: true }],
  ["Deno", "deno.ts", { alone: true }],
  ["workerd", "workerd/worker.ts", { alone: true }],
  ["a managed keyset", "managed.ts", { alone: true }],
  ["a managed keyset in a key service", "managed-hsm.ts", { alone: true, env: inVault }],
];

describe("each example serves what the endpoint specification requires", { concurrency: 2 }, () => {
  for (const [runtime, file, options] of examples) {
    test(`${runtime} (${file})`, (t) => checkExample(t, `examples/${file}`, options));
  }

  test("prom-client (metrics.ts) reports metrics from the provider, the manager and the key set", async (t) => {
    const port = await startExample(t, "examples/metrics.ts");
    const get = async (path: string): Promise<string> => (await fetch(`http://127.0.0.1:${port}${path}`)).text();
    await get("/jwks");
    const text = await get("/metrics");
    const families = familiesOf(text);
    for (const name of ["responses_total", "signature_duration_seconds", "key_info", "remote_set_unknown_kids_total"])
      assert.ok(families.includes(`jwksd_${name}`), name);
    assert.match(text, /^jwksd_responses_total\{document="jwks",code="200"\} 1$/m);
    await get("/jwks");
    assert.match(await get("/metrics"), /^jwksd_responses_total\{document="jwks",code="200"\} 2$/m);
    await checkReplies(port);
  });
});
