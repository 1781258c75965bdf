import assert from "node:assert/strict";
import { createHash, createPrivateKey, sign } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { type RequestListener, createServer } from "node:http";
import { join } from "node:path";
import { Readable } from "node:stream";
import { type TestContext, describe, test } from "node:test";
import type { Cause } from "../../src/cli/doctor/verification-advice.ts";
import type { Step } from "../../src/cli/doctor/verification-steps.ts";
import { run } from "../../src/cli/run.ts";
import { codes } from "../../src/doctor/index.ts";
import { certificateFor } from "../client/certificate.ts";
import { bytes, published, sound } from "../doctor/observed.ts";
import { providing, serveHttp, serveRaw, serveTls } from "../doctor/server.ts";
import { ecKey, keyMaterial, rsaKey } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { runCli, temporaryFolder } from "../support/service.ts";
import { compact, encode, noSignature, signature } from "../token/compact.ts";

const insecure = "--allow-insecure";
/** Characters that a terminal interprets or hides. */
// oxlint-disable-next-line no-control-regex
const obeyed = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202f\u2066-\u2069]/;

async function fileOf(t: TestContext, content: unknown): Promise<string> {
  const file = join(await temporaryFolder(t), "keys.json");
  await writeFile(file, bytes(content));
  return file;
}

const base64 = (from: string): string => Buffer.from(from).toString("base64");

const provider = (t: TestContext, keys: readonly unknown[], headers: Readonly<Record<string, string>> = {}) => {
  const body = bytes({ keys });
  return serveHttp(
    t,
    providing((_, response) =>
      response
        .writeHead(200, {
          "content-type": "application/json",
          "content-length": body.length,
          "cache-control": "max-age=600",
          "last-modified": "Fri, 20 Nov 2026 12:00:00 GMT",
          "access-control-allow-origin": "*",
          ...headers,
        })
        .end(body),
    ),
  );
};

/** Runs the command with this standard input. Returns the exit code and the output. */
const through = async (input: Iterable<Uint8Array>, ...args: string[]) => {
  let stdout = "";
  const write = (text: string): void => void (stdout += text);
  const io = { stdin: Readable.from(input), stdout: { write }, stderr: { write }, environment: {}, exitCode: 0 };
  return [await run(["doctor", ...args], io), stdout] as const;
};

describe("jwksd doctor", () => {
  test("if nothing is wrong with the provider, says what it checked and how keys rotate", async (t) => {
    const url = await provider(t, [sound, published("next")]);
    const { code, stdout, stderr } = await runCli(t, ["doctor", url, insecure]);
    assert.deepEqual([code, stderr], [0, ""]);
    const [summary, rotation] = stdout.split("\n\n");
    assert.equal(summary, `${url}: no problems found. Checked as an issuer: 2 keys, HTTP in 7 requests, discovery.`);
    assert.match(
      rotation ?? "",
      /^Key rotation:\n  2 signing keys are published: [^]*?\n  Caches may keep the set for 10 min/,
    );
    assert.match(
      (rotation ?? "").replaceAll(/\n\s+/g, " "),
      /these verifiers trust a key that was removed from the set: .*aws-jwt-verify.* until they are restarted\./,
    );
  });

  test("lists findings, worst first, each with its locations, rule, remedy and link, and ends with a summary", async (t) => {
    const keys = [
      { ...sound, alg: undefined },
      { ...published("rsa", rsaKey(), "RS256"), kid: 7 },
    ];
    const url = await provider(t, keys, { "cache-control": "no-store" });
    const { code, stdout } = await runCli(t, ["doctor", url, insecure], { COLUMNS: "60" });
    assert.equal(code, 1);
    const heads = stdout.match(/^(broken|risk|advice) {2}\w+/gm);
    assert.deepEqual(heads, ["broken  JWKS_KID_TYPE", "risk  HTTP_NO_STORE", "advice  JWKS_ALG_MISSING"]);
    assert.match(stdout, /^ {2}seen {4}key 2 \(kid 7\)$/m);
    assert.match(stdout, /^ {2}effect {2}It never equals a token's `kid`, and/m);
    assert.match(stdout, /^ {2}fails {3}All tokens fail in: aws-jwt-verify [\d.]+, go-jose/m);
    assert.match(
      stdout,
      /^ {10}Tokens signed with this key fail in: jose [\d.]+,\s+jwks-rsa [\d.]+\s+with\s+jsonwebtoken [\d.]+,/m,
    );
    assert.match(stdout, /^ {2}rule {4}RFC 7517 section 4\.5$/m);
    assert.match(stdout, /^ {2}do {6}Write the `kid` as a JSON string\.$/m);
    assert.match(stdout, /^ {2}more {4}https:\S+#jwks_kid_type$/m);
    assert.match(
      stdout,
      /: 1 broken, 1 risk, 1 advice\. Checked as an issuer: 2 keys, HTTP in 7 requests, discovery\.\n/,
    );
    const long = stdout.split("\n").filter((line) => line.length > 60 && !/https?:/.test(line) && !/^\w/.test(line));
    assert.deepEqual(long, []);
  });

  test("--json prints everything in ASCII", async (t) => {
    const file = await fileOf(t, { keys: [{ ...sound, kid: "Zürich\u001b[2J", alg: undefined }] });
    const { code, stdout } = await runCli(t, ["doctor", file, "--json"]);
    assert.equal(code, 0);
    assert.match(stdout, /^[\n -~]*$/);
    const { target, checked, keys, findings } = JSON.parse(stdout) as Record<string, unknown>;
    assert.deepEqual([target, checked, keys], [file, ["1 key"], 1]);
    assert.partialDeepStrictEqual(findings, [
      {
        code: "JWKS_ALG_MISSING",
        severity: "advice",
        seen: ['key 1 (kid "Zürich\\u001b[2J")'],
        count: 1,
        effect: codes.JWKS_ALG_MISSING.why,
        rule: "RFC 7517 section 4.4",
        ruleUrl: "https://www.rfc-editor.org/rfc/rfc7517#section-4.4",
      },
    ]);
  });

  const unreadable: readonly (readonly [body: string, said: string])[] = [
    ["", "it is empty"],
    ["\u001b[2J<!doctype html><title>Log in</title>", "it is an HTML login page (40 characters)"],
    ["<html><p>404", "it is an HTML page (12 characters)"],
    ['{"keys":[{"kty":"EC"', "it is invalid JSON (20 characters)"],
    ["-----BEGIN CERTIFICATE-----\nAQAB", "it is PEM (32 characters)"],
    ["not found", "it is text (9 characters)"],
  ];
  test("describes an unreadable body by its kind and length", async (t) => {
    for (const [body, said] of unreadable) {
      const { stdout } = await runCli(t, ["doctor", await fileOf(t, body), "--only", "JWKS_NOT_JSON"]);
      assert.ok(stdout.includes(`  seen    ${said}\n`), stdout);
    }
  });

  test("--html writes the findings and the documents as a page without scripts or private keys", async (t) => {
    const evil = "</pre><script>alert(1)</script>";
    const leaked = { ...ecKey("leaked"), kid: "leaked", use: evil };
    const url = await provider(t, [sound, leaked], { "x-evil": evil });
    const page = join(await temporaryFolder(t), "findings.html");
    const { code, stdout } = await runCli(t, ["doctor", url, insecure, "--html", page]);
    assert.equal(code, 1);
    const text = await readFile(page, "utf8");
    for (const [, finding] of stdout.matchAll(/^(?:broken|risk|advice) {2}(\w+):/gm))
      assert.ok(text.includes(`>${finding}</a>`));
    assert.match(text, /<dt>Effect<[^]*<dt>What to do<[^]*<dt>Rule<[^]*Key rotation/);
    assert.match(text, /&quot;d&quot;: &quot;\(removed\)&quot;/);
    assert.ok(text.includes(String(sound["x"])) && text.includes("jwks_uri"));
    assert.ok(!text.includes(leaked.d));
    assert.doesNotMatch(text, /<script|<img|<link|javascript:| on\w+=/i);
    const unwritable = await runCli(t, ["doctor", url, insecure, "--html", "/nowhere/findings.html"]);
    assert.equal(unwritable.code, 2);
    assert.match(unwritable.stderr, /ERR_FILE_UNWRITABLE/);
  });

  test("explains why a token fails if its key is not published, even without --watch", async (t) => {
    const url = await provider(t, [sound]);
    const claims = { iss: url, aud: "a", exp: 2 ** 33 };
    const token = compact({ alg: "ES256", kid: "next" }, claims, signature("ES256", ecKey("next")));
    const { stdout } = await runCli(t, ["doctor", url, insecure, "--token", token]);
    assert.match(stdout, /kid "next" is used for signing but is not published:/);
  });

  test("--fail-on, --only and --skip select findings", async (t) => {
    const file = await fileOf(t, { keys: [{ ...sound, alg: undefined, x5c: ["AQAB"] }] });
    const rows: readonly [code: number, flags: string][] = [
      [1, ""],
      [0, "--skip JWKS_X5C_FORMAT"],
      [0, "--skip JWKS_X5C_FORMAT --fail-on risk"],
      [1, "--skip JWKS_X5C_FORMAT --fail-on advice"],
      [0, "--only JWKS_ALG_MISSING"],
      [0, "--only HTTP --fail-on advice"],
      [1, "--only HTTP --only JWKS"],
      [0, "--only JWKS --skip JWKS"],
    ];
    for (const [code, flags] of rows)
      assert.equal((await runCli(t, ["doctor", file, ...flags.split(" ").filter(Boolean)])).code, code, flags);
    const { code, stderr } = await runCli(t, ["doctor", file, "--only", "JWKS_NOPE"]);
    assert.equal(code, 2);
    assert.match(stderr, /'JWKS_NOPE' is invalid\. There is no such code/);
  });

  test("exits with code 2 and prints the reason if there is nothing to check", async (t) => {
    const server = createServer();
    const port = await listening(t, server);
    await new Promise((resolve) => server.close(resolve));
    const rows: readonly (readonly [target: string, says: RegExp, ...flags: string[]])[] = [
      [
        "/nowhere/keys.json",
        /cannot read the file .* \(ENOENT\); if it is a URL, include https:\/\/ \[ERR_FILE_UNREADABLE\]/,
      ],
      ["http://login.example.com", /is not an https URL; set --allow-insecure .*\[ERR_URL_INSECURE\]/],
      ["https://127.0.0.1", /not public; set --allow-insecure .*\[ERR_ADDRESS_FORBIDDEN\]/],
      [`http://127.0.0.1:${port}`, /no connection \(ECONNREFUSED\) \[ERR_FETCH_FAILED\]/, insecure],
      ["https://", /\[ERR_URL_INSECURE\]/],
      [
        "https://user:secret@login.example.com",
        /^jwksd: the URL contains a user name or password; remove it \[ERR_URL_INSECURE\]\n$/,
      ],
      ["a", /unknown option '--nope'/, "--nope"],
    ];
    for (const [target, says, ...flags] of rows) {
      const { code, stdout, stderr } = await runCli(t, ["doctor", target, ...flags]);
      assert.deepEqual([code, stdout], [2, ""], target);
      assert.match(stderr, says);
    }
    assert.equal((await runCli(t, ["doctor", "--help"])).code, 0);
  });

  test("reports a server that switches protocols as broken, and still finishes", async (t) => {
    const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    const url = await serveRaw(t, (socket) => void socket.once("data", () => socket.write(answer)));
    const { code, stdout } = await runCli(t, ["doctor", `${url}/jwks`, insecure]);
    assert.equal(code, 1);
    assert.match(stdout, /HTTP_STATUS[^]*status 101, which the request did not ask for/);
  });

  test("reports an untrusted certificate as broken", async (t) => {
    const url = await serveTls(t, certificateFor("localhost"), () => {});
    const { code, stdout } = await runCli(t, ["doctor", url, insecure]);
    assert.equal(code, 1);
    assert.match(stdout, /TLS_INVALID[^]*DEPTH_ZERO_SELF_SIGNED_CERT; if[^]*set\s+NODE_EXTRA_CA_CERTS to the path/);
  });

  test(`"-" reads standard input, up to the maximum size of a set`, async () => {
    assert.deepEqual(await through([bytes({ keys: [sound] })], "-"), [
      0,
      "-: no problems found. Checked as a JWK Set: 1 key.\n",
    ]);
    const [code, output] = await through(
      Array.from({ length: 100 }, () => Buffer.alloc(65_536, " ")),
      "-",
    );
    assert.equal(code, 2);
    assert.match(output, /standard input is larger than 1,000,000 bytes/);
  });

  test("--blocklist accepts thumbprints and lines from openssl-blacklist", async (t) => {
    const rsa = published("rsa", rsaKey(), "RS256");
    const file = await fileOf(t, { keys: [sound, rsa] });
    const hex = BigInt(`0x${Buffer.from(rsa["n"] as string, "base64url").toString("hex")}`)
      .toString(16)
      .toUpperCase();
    const digest = createHash("sha1").update(`Modulus=${hex}\n`).digest("hex").slice(20);
    const { x, y } = sound;
    const thumbprint = createHash("sha256")
      .update(JSON.stringify({ crv: "P-256", kty: "EC", x, y }))
      .digest("base64url");
    const list = join(await temporaryFolder(t), "list");
    const seen = async (text: string): Promise<string> => {
      await writeFile(list, text);
      return (await runCli(t, ["doctor", file, "--blocklist", list])).stdout;
    };
    assert.match(await seen(`# comment\n\n${digest}\n`), /key 2 \(kid "rsa"\) is on the blocklist/);
    assert.match(await seen(`${thumbprint}  # ours\n`), /key 1 \(kid "sound"\) is on the blocklist/);
    assert.match(await seen(`${"0".repeat(20)}\n`), /no problems found/);
    await writeFile(list, "abc\n");
    const { code, stderr } = await runCli(t, ["doctor", file, "--blocklist", list]);
    assert.equal(code, 2);
    assert.match(stderr, /list: line 1 is neither .*\[ERR_CONFIG_FORMAT\]/);
  });

  test("prints no terminal control characters, whatever their source", async (t) => {
    const evil = "\u001b]0;owned\u0007\u0000\r\u009b31m\u202e\u2028\nbroken  FORGED";
    const evilKey = { kty: evil, kid: evil, alg: evil, crv: evil, use: evil, key_ops: [evil], x5c: [evil], x: evil };
    const keys = [
      evilKey,
      { ...sound, kid: evil, alg: evil, key_ops: ["sign", evil] },
      { kty: "EC", crv: evil, kid: evil },
      evil,
    ];
    const metadata = (origin: string) => ({
      issuer: `${origin}${evil}`,
      jwks_uri: `${origin}/jwks#${evil}`,
      id_token_signing_alg_values_supported: [evil],
      authorization_endpoint: evil,
    });
    const url = await serveHttp(
      t,
      providing(
        (_, response) =>
          response.writeHead(200, { "content-type": "text/x\u009b31m", etag: 'W/"\u009b"' }).end(bytes({ keys })),
        metadata,
      ),
    );
    const { code, stdout, stderr } = await runCli(t, ["doctor", url, insecure]);
    assert.equal(code, 1);
    assert.doesNotMatch(stdout, obeyed);
    assert.doesNotMatch(stderr, obeyed);
    assert.doesNotMatch(stdout, /^broken {2}FORGED/m);
    assert.doesNotMatch((await runCli(t, ["doctor", url, insecure, "--json"])).stdout, obeyed);
    const refused = await runCli(t, ["doctor", `https://${evil}`]);
    assert.equal(refused.code, 2);
    assert.doesNotMatch(refused.stderr, obeyed);
  });

  const leaked = rsaKey();
  const ec = ecKey("leaked");
  const text = JSON.stringify(ec);
  const { n: _, ...halves } = leaked;
  const secrets = keyMaterial(halves);
  const pem = createPrivateKey({ key: { ...ec }, format: "jwk" }).export({ type: "pkcs8", format: "pem" }) as string;
  const leaks: Readonly<Record<string, unknown>> = {
    "an entry": { keys: [{ ...leaked, kid: "leaked", alg: "RS256", use: "sig" }] },
    "a JWK in a string": { keys: [sound], backup: text },
    "a JWK in a string in a string": { keys: [sound], backup: JSON.stringify({ of: JSON.stringify({ is: text }) }) },
    "a JWK in base64": { keys: [{ ...sound, backup: base64(text) }] },
    "PEM in base64": { keys: [sound], backup: base64(pem) },
    "numbers with padding": { keys: [sound], backup: { d: `+/${ec.d}==` } },
    "a keys member that is a string": { keys: text },
    "an entry that is a string": { keys: [sound, text] },
    "a set that is a string": JSON.stringify(text),
    "a kid": { keys: [{ ...sound, kid: text }] },
    "a kid that is PEM": { keys: [{ ...sound, kid: pem }] },
    "a member's name, twice": `{"keys":[],${JSON.stringify(text)}:1,${JSON.stringify(text)}:1}`,
    PEM: pem,
    "PEM after a comment": `# ours\n${pem}`,
    "JSON that is cut off": `{"keys":[${text}`,
    JSONP: `callback({"keys":[${text}]})`,
    "a symmetric key in a string": { keys: [sound], backup: `{"kty":"oct","k":"${ec.d}"}` },
  };
  for (const [about, document] of Object.entries(leaks)) {
    test(`reports a private key without printing it: ${about}`, async (t) => {
      const page = join(await temporaryFolder(t), "findings.html");
      const file = await fileOf(t, document);
      const { stdout } = await runCli(t, ["doctor", file, "--html", page]);
      assert.match(stdout, /^broken {2}JWKS_PRIVATE_MEMBERS/m);
      const { stdout: json } = await runCli(t, ["doctor", file, "--json"]);
      const told = [stdout, json, await readFile(page, "utf8")].join("\n");
      for (const secret of [ec.d, ...secrets, base64(text).slice(8, 60), pem.slice(30, 60)])
        assert.ok(!told.includes(secret), told);
    });
  }

  test("reports only the length of a key found where a short value belongs, and prints URLs without their query strings", async (t) => {
    const odd = { ...sound, alg: ec.d, use: ec.d, x5u: `data:application/json,${text}` };
    const url = await serveHttp(t, (request, response) => {
      if (request.url === "/jwks?token=secret")
        return response.writeHead(302, { location: `/a/${ec.d}?token=secret`, "set-cookie": "a=secret" }).end();
      return response.writeHead(200, { "x-of": text, "set-cookie": "a=secret" }).end(bytes({ keys: [odd] }));
    });
    const page = join(await temporaryFolder(t), "findings.html");
    const { stdout } = await runCli(t, ["doctor", `${url}/jwks?token=secret`, insecure, "--html", page]);
    assert.match(stdout, /has alg \(a string of 43 characters\)/);
    assert.match(stdout, /JWKS_X5U_HTTP[^]*: data:…/);
    assert.match(stdout, /HTTP_REDIRECT[^]*\/jwks →\s+http\S+\/a\/…\n/);
    const whole = stdout + (await readFile(page, "utf8")).replace(/<title>.*|<h1>.*/g, "");
    const documents = whole.replaceAll(/&quot;(alg|use)&quot;: .*/g, "");
    for (const secret of [ec.d, "a=secret"]) assert.ok(!documents.includes(secret), documents);
  });
});

const redirect: RequestListener = (_, response) => response.writeHead(302, { location: "/login?state=a" }).end();

const answers =
  (status: number, body = ""): RequestListener =>
  (_, response) =>
    response.writeHead(status).end(body);

describe("--token", () => {
  const key = ecKey("sound");
  const exp = Math.floor(Date.now() / 1000) + 600;
  const es256 = { alg: "ES256", kid: "sound" };
  const signed = (header: object, claims: object, privateKey: object = key): string =>
    compact({ ...es256, ...header }, { aud: "my-api", exp, ...claims }, signature("ES256", privateKey));

  test("explains a token in the same steps as the jwksd verify command, using the keys that were found", async (t) => {
    const url = await provider(t, [sound]);
    const { code, stdout } = await runCli(t, ["doctor", url, insecure, "--token", signed({}, { iss: url })]);
    assert.equal(code, 0);
    assert.match(
      stdout,
      /^The token:\nok {4}token .*\nok {4}jwks .*\nok {4}key .*\nok {4}signature .*\nok {4}claims .*\n\nThe token is valid\.\n\n.*no problems found\./,
    );
  });

  const der = (input: Buffer): Uint8Array =>
    sign("sha256", input, createPrivateKey({ key: { ...key }, format: "jwk" }));
  /** Last step of the explanation. */
  const stepOf = {
    CRIT: "signature",
    KID: "key",
    ALG: "key",
    SIGNATURE: "signature",
    CLAIM: "claims",
    EXPIRED: "claims",
    MALFORMED: "token",
  };
  const noKid = { kid: undefined };
  const rows: readonly (readonly [about: string, token: (iss: string) => string, code: string, cause: Cause])[] = [
    ["a different issuer", () => signed({}, { iss: "https://other.example" }), "ERR_TOKEN_CLAIM", "iss"],
    ["an issuer with an extra slash", (iss) => signed({}, { iss: `${iss}/` }), "ERR_TOKEN_CLAIM", "iss"],
    ["a missing kid", (iss) => signed(noKid, { iss }), "ERR_TOKEN_KID_MISSING", "other key"],
    ["an empty kid", (iss) => signed({ kid: "" }, { iss }, ecKey("empty")), "ERR_TOKEN_KID_UNKNOWN", "unusable key"],
    [
      "an unknown kid",
      (iss) => signed({ kid: "next" }, { iss }, ecKey("next")),
      "ERR_TOKEN_KID_UNKNOWN",
      "unknown kid",
    ],
    ["a kid that is not published", (iss) => signed({ kid: "next" }, { iss }), "ERR_TOKEN_KID_UNKNOWN", "other key"],
    [
      "the kid of an unusable key",
      (iss) => signed({ kid: "leaked" }, { iss }),
      "ERR_TOKEN_KID_UNKNOWN",
      "unusable key",
    ],
    [
      "a signature that no published key verifies",
      (iss) => signed({}, { iss }, ecKey("other")),
      "ERR_TOKEN_SIGNATURE",
      "signature",
    ],
    ["a missing signature", (iss) => compact(es256, { iss, exp }, noSignature), "ERR_TOKEN_SIGNATURE", "malformed"],
    [
      "a signature made with a key under a different kid",
      (iss) => signed({}, { iss }, ecKey("nameless")),
      "ERR_TOKEN_SIGNATURE",
      "other key",
    ],
    ["a signature in DER", (iss) => compact(es256, { iss, aud: "a", exp }, der), "ERR_TOKEN_SIGNATURE", "der"],
    ["an exp that has passed", (iss) => signed({}, { iss, exp: 1 }), "ERR_TOKEN_EXPIRED", "expired"],
    [
      "an exp that has passed and a missing aud",
      (iss) => signed({}, { iss, exp: 1, aud: undefined }),
      "ERR_TOKEN_EXPIRED",
      "expired",
    ],
    ["an nbf in the future", (iss) => signed({}, { iss, nbf: exp }), "ERR_TOKEN_CLAIM", "nbf"],
    ["an aud that is a number", (iss) => signed({}, { iss, aud: 5 }), "ERR_TOKEN_CLAIM", "aud"],
    ["an aud that is an empty list", (iss) => signed({}, { iss, aud: [] }), "ERR_TOKEN_CLAIM", "aud"],
    ["a critical header", (iss) => signed({ crit: ["x"], x: 1 }, { iss }), "ERR_TOKEN_CRIT", "critical header"],
    ["an opaque token", () => "ya29.a0AfH6SMB", "ERR_TOKEN_MALFORMED", "opaque"],
    ["an encrypted token", () => `${encode({ enc: "A256GCM" })}.YQ.YQ.YQ.YQ`, "ERR_TOKEN_MALFORMED", "encrypted"],
    ["three parts that are not a JWT", () => "a.b.c", "ERR_TOKEN_MALFORMED", "malformed"],
    ["HS256", (iss) => signed({ alg: "HS256", ...noKid }, { iss }), "ERR_TOKEN_ALG", "shared secret"],
    ["an alg of none", (iss) => signed({ alg: "none", ...noKid }, { iss }), "ERR_TOKEN_ALG", "unsigned"],
  ];
  for (const [about, token, failure, cause] of rows) {
    test(`rejects ${about}, with exit code 1, a cause and advice`, async (t) => {
      const nameless = { ...published("nameless"), kid: undefined };
      const leakedKey = { ...published("leaked"), d: ecKey("leaked").d };
      const url = await provider(t, [nameless, sound, leakedKey, { ...published("empty"), kid: "" }]);
      const flags = [insecure, "--json", "--skip", "JWKS", "--token", token(url)];
      const { code, stdout } = await runCli(t, ["doctor", url, ...flags]);
      const { token: explanation } = JSON.parse(stdout) as {
        token: { verified: boolean; steps: { step: string; code?: string; cause?: string }[]; advice?: string };
      };
      assert.deepEqual([code, explanation.verified], [1, false]);
      const last = explanation.steps.at(-1);
      const step = stepOf[failure.split("_")[2] as keyof typeof stepOf];
      assert.deepEqual([last?.step, last?.code, last?.cause], [step, failure, cause]);
      assert.match(explanation.advice ?? "", /\.$| --allow-insecure --watch 10m$/);
    });
  }

  /** Forms of input that people paste, made from a valid token, and the expected detail. */
  const pasted: readonly (readonly [form: string, paste: (token: string) => string, said: string])[] = [
    ["a line break", (token) => `${token.slice(0, 60)}\n${token.slice(60)}`, "it contains spaces or line breaks"],
    ["a space", (token) => token.replace(".", ". "), "it contains spaces or line breaks"],
    ["padding", (token) => token.replace(".", "==."), "it contains padding (=)"],
    ["a dot at the end", (token) => `${token}.`, "it begins or ends with a dot"],
    ["a URL", (token) => `https://app.example.com/cb#access_token=${token}`, "it is a URL"],
    ["JSON", (token) => JSON.stringify({ access_token: token }), "it is JSON"],
    ["a header field", (token) => `Bearer ${token}`, "it begins with the name of a header or parameter"],
    ["quotation marks", (token) => `"${token}"`, "it contains quotation marks"],
    ["curly quotation marks", (token) => `\u201c${token}\u201d`, "it contains quotation marks"],
    ["a zero-width space", (token) => token.replace(".", ".\u200b"), "it contains invisible characters"],
    ["a soft hyphen", (token) => token.replace(".", ".\u00ad"), "it contains invisible characters"],
    ["percent-encoding", (token) => token.replaceAll(".", "%2E"), "it is percent-encoded"],
    ["a comma", (token) => `${token},`, "it contains a comma or semicolon"],
    ["a semicolon", (token) => `${token};`, "it contains a comma or semicolon"],
    [
      "a dash inserted by a word processor",
      (token) => token.replace(".", ".\u2013"),
      "it contains characters that never",
    ],
    ["an ellipsis", (token) => `${token.slice(0, 30)}…${token.slice(-30)}`, "part of it is missing"],
    ["two parts", (token) => token.slice(0, token.lastIndexOf(".")), "it has 2 parts, not three"],
    ["five parts that are not encrypted", (token) => `${token}.YQ.YQ`, "it has 5 parts, not three"],
  ];
  test("in the first step, rejects a token that was pasted with other text and describes that text", async (t) => {
    const url = await provider(t, [sound]);
    const token = signed({}, { iss: url });
    for (const [form, paste, said] of pasted)
      for (const command of [
        ["doctor", url, insecure, "--token", paste(token)],
        ["verify", paste(token), "--issuer", url, "--aud", "my-api"],
      ]) {
        const { code, stdout } = await runCli(t, command, { COLUMNS: "500" });
        assert.equal(code, 1, form);
        const [, detail = "", advice = ""] =
          /^FAIL {2}token .*?; (.*) \[ERR_TOKEN_MALFORMED\]\n\nWhat to do: (.*)$/m.exec(stdout) ?? [];
        assert.ok(detail.startsWith(said), `${form}: ${stdout}`);
        assert.match(advice, /^Pass the whole token and nothing else/);
        assert.doesNotMatch(stdout, /^ok/m);
      }
  });

  test("accepts a token without an audience and warns that other verifiers may reject it", async (t) => {
    const url = await provider(t, [sound]);
    const token = signed({}, { iss: url, aud: undefined, client_id: "app" });
    const { code, stdout } = await runCli(t, ["doctor", url, insecure, "--token", token], { COLUMNS: "500" });
    assert.equal(code, 0);
    assert.match(
      stdout,
      /^ok {4}claims .*, aud missing, expires in \d+ s\n\nThe token is valid\.\n\nWhat to do: Like access tokens from Amazon Cognito, the token has no aud/m,
    );
    const verified = await runCli(t, ["verify", token, "--issuer", url, "--aud", "my-api"]);
    assert.equal(verified.code, 1);
    assert.match(verified.stdout, /aud is missing, but my-api was expected \[ERR_TOKEN_CLAIM\]/);
  });

  test("reports that a token has expired, whatever else is wrong with it", async (t) => {
    const url = await provider(t, [sound]);
    const expired = { iss: url, exp: Math.floor(Date.now() / 1000) - 600 };
    for (const [token, code] of [
      [signed({ typ: "at+jwt" }, { ...expired, aud: "another" }), "ERR_TOKEN_CLAIM"],
      [signed({ kid: "gone" }, expired, ecKey("gone")), "ERR_TOKEN_KID_UNKNOWN"],
      [signed({ typ: "JWT" }, expired), "ERR_TOKEN_TYP"],
    ] as const) {
      const { stdout } = await runCli(t, ["verify", token, "--issuer", url, "--aud", "my-api", "--typ", "at+jwt"]);
      assert.match(stdout, new RegExp(`exp is .* UTC, 10 min .*ago \\[${code}\\]`));
    }
  });

  test("blames an unknown kid on a cached set that is older than the token", async (t) => {
    const iat = Math.floor(Date.now() / 1000) - 3600;
    for (const [age, cause] of [
      ["90000", "cached set"],
      ["3000", "unknown kid"],
      ["", "unknown kid"],
    ] as const) {
      const url = await provider(t, [sound], age === "" ? {} : { age });
      const token = signed({ kid: "next" }, { iss: url, iat }, ecKey("next"));
      for (const command of [
        ["doctor", url, insecure, "--token", token],
        ["verify", token, "--issuer", url, "--aud", "my-api"],
      ]) {
        const { stdout } = await runCli(t, [...command, "--json"]);
        const { token: explanation = JSON.parse(stdout) } = JSON.parse(stdout) as { token?: { steps: Step[] } };
        const { cause: found, detail } = (explanation as { steps: Step[] }).steps.at(-1) ?? {};
        assert.equal(found, cause, stdout);
        if (cause === "cached set")
          assert.match(detail ?? "", /from a cache and is 1 d 1 h old \(Age: 90000\), so it is older than the token/);
      }
    }
  });

  test("reports a rejected token on the --html page and in the summary, without the token itself", async (t) => {
    const url = await provider(t, [sound]);
    const page = join(await temporaryFolder(t), "findings.html");
    const token = signed({}, { iss: "https://other.example" });
    const { stdout } = await runCli(t, ["doctor", url, insecure, "--token", token, "--html", page]);
    assert.match(stdout, /: no problems found\. .* The token is rejected\.$/m);
    const text = await readFile(page, "utf8");
    assert.match(text, /The token is rejected[^]*iss is https:\/\/other\.example[^]*What to do/);
    assert.ok(!text.includes(token.slice(-40)));
  });

  test("verifies a token from the command line or standard input with a set from a file; standard input cannot be used for both", async (t) => {
    const file = await fileOf(t, { keys: [sound] });
    assert.equal((await runCli(t, ["doctor", file, "--token", signed({}, { iss: "https://any.example" })])).code, 0);
    const [code, output] = await through(
      [Buffer.from(signed({}, { iss: "https://any.example" }))],
      file,
      "--token",
      "-",
    );
    assert.match(output, /ok {4}claims/);
    assert.equal(code, 0);
    const both = await runCli(t, ["doctor", "-", "--token", "-"]);
    assert.equal(both.code, 2);
    assert.match(both.stderr, /standard input cannot be both/);
  });

  const [at, login] = ["URL/jwks (its jwks_uri)", "URL/jwks → URL/login (its jwks_uri)"];
  const away: readonly (readonly [about: string, jwks: RequestListener, said: string])[] = [
    ["a status", answers(503), `${at}: status 503 [ERR_FETCH_STATUS]`],
    ["a firewall", answers(403, "<!doctype html>no"), `${at}: status 403, with an HTML page [ERR_FETCH_STATUS]`],
    ["a redirect to a login", redirect, `${login}: it is an HTML login page (46 characters) [ERR_FETCH_REDIRECT]`],
    ["a page", answers(200, "<html>"), `${at}: it is an HTML page (6 characters) [ERR_FETCH_BODY]`],
    ["no keys", answers(200, "{}"), 'a JWK Set must have a "keys" array (RFC 7517 section 5) [ERR_KEY_FORMAT]'],
  ];
  for (const [about, jwks, said] of away) {
    test(`reports which URL has no keys, and what it returned: ${about}`, async (t) => {
      const url = await serveHttp(t, (request, response) =>
        request.url?.startsWith("/login") === true
          ? response.end('<!doctype html><input name=p type="password"/>')
          : providing(jwks)(request, response),
      );
      const { code, stdout } = await runCli(t, ["doctor", url, insecure, "--token", signed({}, { iss: url })], {
        COLUMNS: "500",
      });
      assert.equal(code, 1);
      const [, detail] =
        /^FAIL {2}jwks {7}(.*)\n\nWhat to do: (?=The keys .*; the findings say what is wrong\.\n)/m.exec(stdout) ?? [];
      assert.equal(detail?.replaceAll(url, "URL"), said, stdout);
    });
  }

  test("reports a discovery document that has no jwks_uri and a file that has no keys", async (t) => {
    const token = signed({}, { iss: "a" });
    const url = await serveHttp(
      t,
      providing(
        () => {},
        (issuer) => ({ issuer }),
      ),
    );
    const { stdout } = await runCli(t, ["doctor", url, insecure, "--token", token], { COLUMNS: "500" });
    assert.match(
      stdout,
      /^FAIL {2}jwks {7}http\S+openid-configuration \(the discovery document\): its jwks_uri is missing/m,
    );
    const file = await runCli(t, ["doctor", await fileOf(t, "no set"), "--token", token], { COLUMNS: "500" });
    assert.match(file.stdout, /^FAIL {2}jwks {7}the file: it is text \(6 characters\) \[ERR_FETCH_BODY\]$/m);
  });

  test("warns that a valid token may be checked against an older set if caches keep sets for more than a day", async (t) => {
    const says = async (maxAge: number): Promise<string> => {
      const url = await provider(t, [sound], { "cache-control": `max-age=${maxAge}` });
      return (await runCli(t, ["doctor", url, insecure, "--token", signed({}, { iss: url })])).stdout;
    };
    assert.match(await says(31_536_000), /The token is valid\.\n\nWhat to do: If your API rejects[^]*up to 365\sd\./);
    assert.doesNotMatch(await says(86_400), /What to do/);
  });
});

describe("--watch", () => {
  const exp = Math.floor(Date.now() / 1000) + 600;
  const token = compact({ alg: "ES256", kid: "next" }, { exp, iat: exp - 600 }, signature("ES256", ecKey("next")));

  test("prints each event with its time, then the findings", async (t) => {
    const url = await provider(t, [sound]);
    const flags = ["--watch", "1s", "--token-command", `echo ${token}`];
    const { code, stdout, stderr } = await runCli(t, ["doctor", url, insecure, ...flags]);
    assert.deepEqual([code, stderr], [1, ""]);
    assert.match(stdout, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC {2}one key: "sound"\n/);
    assert.match(
      stdout,
      /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC {2}first token with kid "next"\n\nbroken {2}WATCH_SIGNS_UNANNOUNCED/m,
    );
    assert.ok(!stdout.includes(token.slice(-20)));
  });

  test("--json prints the timeline; tokens can be piped in, one per line", async (t) => {
    const url = await provider(t, [sound]);
    const input = [Buffer.from(`${token}\n${token.slice(0, 40)}`), Buffer.from(`${token.slice(40)}\nnonsense`)];
    const [code, output] = await through(input, url, insecure, "--watch", "1s", "--token", "-", "--json");
    assert.equal(code, 1);
    const { timeline, findings } = JSON.parse(output) as {
      timeline: { at: string; text: string }[];
      findings: { code: string }[];
    };
    assert.deepEqual(
      timeline.map(({ text }) => text),
      ['one key: "sound"', "caches may serve this set for 600 s", 'first token with kid "next"'],
    );
    assert.match(timeline[0]?.at ?? "", /^\d{4}-\d\d-\d\dT/);
    assert.deepEqual(
      findings.map(({ code }) => code),
      ["WATCH_SIGNS_UNANNOUNCED"],
    );
  });

  test("reports a failing token command only once", async (t) => {
    const url = await provider(t, [sound]);
    const { code, stderr } = await runCli(t, ["doctor", url, insecure, "--watch", "1s", "--token-command", "exit 3"]);
    assert.deepEqual([code, stderr], [0, "jwksd: the token command failed (3)\n"]);
  });

  const wrong: readonly (readonly [says: RegExp, flags: string])[] = [
    [/Must be a duration/, "https://a.example --watch soon"],
    [/Must be a duration/, "https://a.example --watch 31d"],
    [/--watch requires a URL/, "keys.json --watch 1s"],
    [/--token-command requires --watch/, "https://a.example --token-command true"],
    [
      /--token-command and --token - cannot be used together/,
      "https://a.example --watch 1s --token - --token-command true",
    ],
  ];
  for (const [says, flags] of wrong) {
    test(`${flags} is rejected`, async (t) => {
      const { code, stderr } = await runCli(t, ["doctor", ...flags.split(" ")]);
      assert.equal(code, 2);
      assert.match(stderr, says);
    });
  }
});
