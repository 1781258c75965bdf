import assert from "node:assert/strict";
import { createServer } from "node:http";
import { type TestContext, describe, test } from "node:test";
import { inspect } from "node:util";
import { ecKey, named, rsaKey, withoutPrivate } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { runCli } from "../support/service.ts";
import { compact, encode, signature } from "../token/compact.ts";

const timeout = 60_000;
const good = { alg: "ES256", kid: "a" };
const goodKey = withoutPrivate(named("a"));
const es256 = signature("ES256", ecKey("a"));
// String() and template literals throw for it.
const thrower = { toString: 1, valueOf: 1 };
const deep = "[".repeat(100_000) + "]".repeat(100_000);

interface Publisher {
  readonly issuer: string;
  /** Sets the document, and the document of later responses if they differ. */
  readonly set: (text: string, later?: string) => void;
  /** Requests so far. */
  readonly requests: readonly unknown[];
}

/** Starts a provider that publishes any document. */
async function publish(t: TestContext): Promise<Publisher> {
  let text = JSON.stringify({ keys: [goodKey] });
  let laterText = text;
  const requests: unknown[] = [];
  const server = createServer((request, response) => {
    requests.push(request.url);
    const isSet = request.url === "/jwks";
    response.end(isSet ? text : JSON.stringify({ issuer, jwks_uri: `${issuer}/jwks` }));
    if (isSet) text = laterText;
  });
  const issuer = `http://127.0.0.1:${await listening(t, server)}`;
  const set = (next: string, later = next): void => void ([text, laterText] = [next, later]);
  return { issuer, set, requests };
}

const ownClaims = (issuer: string): object => ({ iss: issuer, aud: "me", exp: Date.now() / 1000 + 3600 });

interface Given {
  readonly header?: object;
  readonly claims?: object;
  /** Times in the token, relative to now. */
  readonly inSeconds?: Readonly<Record<string, number>>;
  readonly keys?: readonly unknown[];
  /** The document, if it is not made from `keys`. */
  readonly text?: string;
  readonly flags?: readonly string[];
  readonly change?: (token: string) => string;
}

/** Runs `jwksd verify` on a token that is valid except for these changes. */
async function verified(t: TestContext, given: Given = {}) {
  const { header, claims, inSeconds = {}, keys = [goodKey], text = JSON.stringify({ keys }) } = given;
  const { flags = [], change = String } = given;
  const { issuer, set, requests } = await publish(t);
  set(text);
  const now = Math.floor(Date.now() / 1000);
  const times = Object.fromEntries(Object.entries(inSeconds).map(([claim, seconds]) => [claim, now + seconds]));
  const token = compact({ ...good, ...header }, { ...ownClaims(issuer), ...claims, ...times }, es256);
  return { ...(await runCli(t, ["verify", change(token), "--issuer", issuer, "--aud", "me", ...flags])), requests };
}

/** `code`: error code of a refused token; `says`: pattern of the output; `steps`: number of steps, if not five */
type Row = readonly [name: string, code: string, says: RegExp, given?: Given, advice?: RegExp, steps?: number];
const claim = "ERR_TOKEN_CLAIM";
const foreign = `{"keys":[{"kid":${deep}},${JSON.stringify(goodKey)}]}`;
const asAccessToken = ["--typ", "at+jwt"];

const rows: readonly Row[] = [
  ["a kid that is an object", "ERR_TOKEN_KID_MISSING", /kid \(an object\)/, { header: { kid: thrower } }],
  ["a kid that is empty", "ERR_TOKEN_KID_MISSING", /kid "",/, { header: { kid: "" } }],
  ["an alg that is an object", "ERR_TOKEN_ALG", /alg \(an object\)/, { header: { alg: thrower } }],
  ["no alg", "ERR_TOKEN_ALG", /alg missing/, { header: { alg: undefined } }],
  ["a typ that is an object", "", /typ \(an object\)/, { header: { typ: { toString: null } } }],
  ["a typ that is a list of objects", "", /typ \(a list\)/, { header: { typ: [thrower] } }],
  ["a typ of null", "", /typ null/, { header: { typ: null } }],
  ["an aud that holds an object", "", /aud me, \(an object\),/, { claims: { aud: ["me", thrower] } }],
  ["a set that holds null", "", /has 2 keys: \(no kid\), a/, { keys: [null, goodKey] }],
  ["a set that holds no keys at all", "", /3 keys: \(no kid\), \(no kid\), a/, { keys: ["x", 5, goodKey] }],
  ["another key's kid that is an object", "", /2 keys: \(an object\), a/, { keys: [{ kid: thrower }, goodKey] }],
  ["another key's kid that is deeply nested", "", /2 keys: \(a list\), a/, { text: foreign }],
  [
    "iss",
    claim,
    /; iss is https:\/\/x\.example, but http:\/\/127\.0\.0\.1:\d+ was expected \[/,
    { claims: { iss: "https://x.example" } },
  ],
  ["no iss", claim, /; iss is missing, but http:.* was expected/, { claims: { iss: undefined } }],
  ["aud", claim, /not have the expected value; aud is you, but me was expected \[/, { claims: { aud: "you" } }],
  [
    "audiences",
    claim,
    /; aud is a, b, but me or us was expected \[/,
    { claims: { aud: ["a", "b"] }, flags: ["--aud", "us"] },
  ],
  [
    "both",
    claim,
    /; iss is x, but .* was expected; aud is you, but me was expected \[/,
    { claims: { iss: "x", aud: "you" } },
  ],
  [
    "a broken signature",
    "ERR_TOKEN_SIGNATURE",
    /\[ERR_TOKEN_SIGNATURE\]/,
    { change: (token) => `${token.slice(0, -4)}AAAA` },
    /token again[^]*does not publish/,
    4,
  ],
  [
    "an unknown kid",
    "ERR_TOKEN_KID_UNKNOWN",
    /\[ERR_TOKEN_KID_UNKNOWN\]/,
    { change: (token) => [encode({ ...good, kid: "unknown" }), ...token.split(".").slice(1)].join(".") },
    /issued this token[^]*doctor/,
    3,
  ],
  [
    "a token over 16 KiB",
    "ERR_TOKEN_TOO_LARGE",
    /\[ERR_TOKEN_TOO_LARGE\]/,
    { change: (token) => token + "A".repeat(16_384) },
    /whole\stoken/,
    1,
  ],
  ["no token", "ERR_TOKEN_MALFORMED", /MALFORMED/, { change: () => "nonsense" }, /whole\stoken/, 1],
  ["exp", "ERR_TOKEN_EXPIRED", /exp is \d{4}-.* UTC, 10 min (\d s )?ago \[/, { inSeconds: { exp: -600 } }],
  ["exp, long ago", "ERR_TOKEN_EXPIRED", /has expired; exp is -1e\+300 \[/, { claims: { exp: -1e300 } }],
  ["nbf", claim, /; nbf is \d{4}-.* UTC, in 2 h( \d+ min)? \[/, { inSeconds: { nbf: 7_230 } }],
  [
    "typ",
    "ERR_TOKEN_TYP",
    /; typ is JWT, but at\+jwt was expected \[/,
    { flags: asAccessToken, header: { typ: "JWT" } },
  ],
  ["no typ", "ERR_TOKEN_TYP", /; typ is missing, but at\+jwt was expected \[/, { flags: asAccessToken }],
  [
    "alg",
    "ERR_TOKEN_ALG",
    /; alg is ES256, but RS256 was expected; to accept it, add --alg ES256 \[/,
    { flags: ["--alg", "RS256"] },
  ],
  [
    "an alg that no verifier accepts",
    "ERR_TOKEN_ALG",
    /alg none cannot be verified with a published key; /,
    { header: { alg: "none" } },
  ],
];

describe("jwksd verify explains each step, whatever the token or the set contains", { timeout }, () => {
  for (const [name, refusal, says, given = {}, advice = /\]\n\nWhat to do: /, steps] of rows) {
    test(name, async (t) => {
      const { code, stdout, stderr } = await verified(t, given);
      assert.deepEqual({ code, stderr }, { code: refusal === "" ? 0 : 1, stderr: "" });
      assert.match(stdout, says);
      if (refusal !== "") assert.match(stdout, advice);
      if (steps !== undefined) assert.equal(stdout.match(/^(ok|FAIL) /gm)?.length, steps);
      const json = await verified(t, { ...given, flags: [...(given.flags ?? []), "--json"] });
      const told = (JSON.parse(json.stdout) as { steps: { code?: string }[] }).steps;
      assert.equal(told.at(-1)?.code ?? "", refusal);
    });
  }

  test("an RS256 token from a provider with RSA keys", async (t) => {
    const { issuer, set } = await publish(t);
    set(JSON.stringify({ keys: [{ ...withoutPrivate(named("a", rsaKey())), alg: "RS256" }] }));
    const token = compact({ ...good, alg: "RS256" }, ownClaims(issuer), signature("RS256", rsaKey()));
    const args = ["verify", token, "--issuer", issuer, "--aud", "me"];
    const refused = await runCli(t, args);
    assert.match(
      refused.stdout,
      /; alg is RS256, but ES256 was expected; to accept it, add --alg RS256 \[ERR_TOKEN_ALG\]\n\n/,
    );
    assert.equal((await runCli(t, [...args, "--alg", "RS256"])).code, 0);
  });

  test("a discovery document that names a different issuer", async (t) => {
    const { issuer } = await publish(t);
    const asked = issuer.replace("127.0.0.1", "localhost");
    const token = compact(good, ownClaims(issuer), es256);
    const { code, stdout } = await runCli(t, ["verify", token, "--issuer", asked, "--aud", "me"]);
    assert.equal(code, 1);
    assert.ok(stdout.includes(`the document's issuer is "${issuer}", not "${asked}" [`), stdout);
    assert.match(
      stdout,
      / \[ERR_DISCOVERY_ISSUER\]\n\nWhat to do: If this is the right provider, pass --issuer exactly/,
    );
  });
});

test("jwksd verify reports a key that appears only in the next response, and gives advice", { timeout }, async (t) => {
  const { issuer, set } = await publish(t);
  set(JSON.stringify({ keys: [withoutPrivate(named("b"))] }), JSON.stringify({ keys: [goodKey] }));
  const token = compact(good, ownClaims(issuer), es256);
  const { code, stdout } = await runCli(t, ["verify", token, "--issuer", issuer, "--aud", "me"]);
  assert.equal(code, 0);
  assert.match(
    stdout,
    /; it was missing from the response above, but the next response has it\n[^]*\n\nThe token is valid\.\n\nWhat to do: If the key is not new, the provider's servers/,
  );
});

test(
  "jwksd verify reports a provider whose tokens and discovery document name different issuers",
  { timeout },
  async (t) => {
    const { issuer } = await publish(t);
    const other = issuer.replace("127.0.0.1", "localhost");
    const token = compact(good, ownClaims(other), es256);
    const { code, stdout } = await runCli(t, ["verify", token, "--issuer", other, "--aud", "me"]);
    assert.equal(code, 1);
    assert.match(
      stdout,
      /; the token's iss is http:\/\/localhost:\d+ \[ERR_DISCOVERY_ISSUER\]\n\nWhat to do: Configure the provider to use the same issuer everywhere/,
    );
  },
);

describe("jwksd verify --jwks-uri", { timeout }, () => {
  test("fetches the set from that URL, without discovery", async (t) => {
    const { issuer, requests } = await publish(t);
    const token = compact(good, { ...ownClaims(issuer), iss: "accounts.example" }, es256);
    const args = ["--issuer", "accounts.example", "--jwks-uri", `${issuer}/jwks`, "--aud", "me"];
    const { code, stdout } = await runCli(t, ["verify", token, ...args]);
    assert.equal(code, 0, stdout);
    assert.match(stdout, /^ok {4}jwks {7}http:.*\/jwks has 1 key: a$/m);
    assert.deepEqual(requests, ["/jwks"]);
  });

  test("must be an https URL", async (t) => {
    const args = ["--issuer", "a", "--jwks-uri", "http://op.example/jwks", "--aud", "me"];
    const { code, stderr } = await runCli(t, ["verify", compact(good, {}, es256), ...args]);
    assert.equal(code, 1);
    assert.match(stderr, /^jwksd: jwksUri is not an https URL .*\[ERR_URL_INSECURE\]\n$/);
  });
});

test(
  "jwksd verify --json prints only printable ASCII, which parses back to the original strings",
  { timeout },
  async (t) => {
    const odd = "\u0000\u001b\u007f\u009b8m\u202e\u2028 ü 𝄞 \ud800";
    const { stdout } = await verified(t, { header: { typ: odd }, flags: ["--json"] });
    assert.match(stdout, /^[\n -~]+$/);
    const { steps } = JSON.parse(stdout) as { steps: { detail: string }[] };
    assert.ok(steps[0]?.detail.endsWith(`typ ${odd}`), stdout);
  },
);

describe("jwksd verify rejects an invalid option before it fetches anything", { timeout }, () => {
  const rows: [flags: string[], says: RegExp][] = [
    [["--alg", "HS256"], /"HS256" is not a public-key algorithm \[ERR_OPTION_INVALID\]/],
    [["--alg", ""], /"algorithms".*\[ERR_OPTION_INVALID\]/],
    [["--typ", ""], /"typ" option must be a non-empty string \[ERR_OPTION_INVALID\]/],
    [["--aud", ""], /"audience".*\[ERR_OPTION_INVALID\]/],
  ];
  for (const [flags, says] of rows) {
    test(flags.join(" "), async (t) => {
      const { code, stdout, stderr, requests } = await verified(t, { flags });
      assert.deepEqual({ code, stdout, requests }, { code: 1, stdout: "", requests: [] });
      assert.match(stderr, says);
    });
  }
});

for (const payload of ["no JSON", "[]", "", Uint8Array.from([0x7b, 0xff, 0x7d])]) {
  test(`jwksd verify does not blame a valid signature if the claims are ${inspect(payload)}`, async (t) => {
    const { issuer } = await publish(t);
    const input = `${encode(good)}.${Buffer.from(payload as string).toString("base64url")}`;
    const token = `${input}.${Buffer.from(es256(Buffer.from(input))).toString("base64url")}`;
    const run = await runCli(t, ["verify", token, "--issuer", issuer, "--aud", "me"]);
    assert.equal(run.code, 1);
    assert.match(run.stdout, /^FAIL {2}token .* JSON claims and a signature \[ERR_TOKEN_MALFORMED\]\n\nWhat to do: /);
  });
}

const verifyInput = (t: TestContext, input: Iterable<string>, issuer: string) =>
  runCli(t, ["verify", "-", "--issuer", issuer, "--aud", "me"], {}, input);

describe("jwksd verify -", { timeout }, () => {
  test("accepts a token with whitespace around it", async (t) => {
    const { issuer } = await publish(t);
    const token = compact(good, ownClaims(issuer), es256);
    const { code, stderr } = await verifyInput(
      t,
      [" \n", token.slice(0, 50), token.slice(50), "\n".repeat(900)],
      issuer,
    );
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
  });

  for (const text of ["A", " "]) {
    test(`stops reading an endless stream of ${inspect(text)}`, async (t) => {
      const { issuer, requests } = await publish(t);
      let chunks = 0;
      function* endless() {
        yield compact(good, ownClaims(issuer), es256);
        for (;;) {
          chunks += 1;
          yield text.repeat(65_536);
        }
      }
      const { code, stdout, stderr } = await verifyInput(t, endless(), issuer);
      assert.deepEqual({ code, stderr, requests }, { code: 1, stderr: "", requests: [] });
      assert.match(stdout, /^FAIL {2}token .*16384 bytes \[ERR_TOKEN_TOO_LARGE\]\n\nWhat to do: /);
      assert.ok(chunks < 100, `${chunks} chunks`);
    });
  }
});
