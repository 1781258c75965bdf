import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type RoutePattern, hiddenRoute, patternOf, selectRoute } from "../../src/service/guard/paths.ts";

/** Creates a route as the configuration does. */
function route(path: string, more: Partial<RoutePattern> = {}): RoutePattern & { readonly path: string } {
  return { ...(patternOf(path) ?? assert.fail(path)), path, ...more };
}

const routes = [
  route("/admin"),
  route("/admin/users/*", { methods: ["GET"] }),
  route("/admin/users/*", { methods: ["POST", "DELETE"] }),
  route("/files/*", { encodedSlashes: true }),
  route("/files-public/*"),
  route("/café%C3%A9".replace("é", "")),
  route("/*"),
];

/** Returns the path of the selected route, "none", or the reason for the refusal. */
function selected(path: string, method = "GET", among = routes): string {
  const result = selectRoute(among, method, path);
  return "problem" in result ? result.problem : (result.route?.path ?? "none");
}

const invalid = {
  start: "the path does not begin with /",
  character: "the path contains a space, a control character or a character outside ASCII",
  delimiter: "the path contains \\, ; or #",
  escape: "the path contains a % that is not part of an escape",
  escaped: "the path contains an escaped \\, %, ;, ?, # or control character",
  unreserved: "the path contains an escaped letter, digit, hyphen, period, underscore or tilde",
  empty: "the path contains an empty segment",
  dots: "the path contains the segment . or ..",
  utf8: "the path's escapes are not valid UTF-8",
  decoded: "the path contains \\ or the segment . or .. when it is decoded",
  slash: "the path contains an escaped slash, which its route does not allow",
  other: "the path would select a different route if it were decoded, lowercased, and stripped of empty segments",
};

const table: Readonly<Record<string, readonly string[]>> = {
  "/admin": ["/admin"],
  "/admin/users/*": ["/admin/users", "/admin/users/", "/admin/users/1", "/admin/users/a b".replace(" ", "%20")],
  "/files/*": ["/files", "/files/a%2fb", "/files/https%3A%2F%2Fgithub.com%2Fa", "/files/a..b", "/files/%22x%22"],
  "/files-public/*": ["/files-public/a"],
  "/caf%C3%A9": ["/caf%C3%A9"],
  "/*": ["/", "/x", "/x/", "/x.", "/adminx", "/a:b@c!$&'()*+,=~_-", '/a|b[c]{d}"<e>^`', "/%E2%82%AC", "/filesx"],
  [invalid.start]: ["", "*", "admin", "http://a.example/admin", "?/admin"],
  [invalid.character]: ["/a b", "/a\tb", "/a\u0000b", "/a\u007fb", "/café", "/a\u00a0"],
  [invalid.delimiter]: ["/admin;a=b", "/x;/../admin", "/x\\admin", "/x#/admin"],
  [invalid.escape]: ["/%", "/a%2", "/%zz", "/%u0041", "/a%%32"],
  [invalid.escaped]: [
    "/a%5cb",
    "/a%5Cb",
    "/a%25b",
    "/%252e%252e/admin",
    "/a%3bb",
    "/a%3Fb",
    "/a%23b",
    "/a%00b",
    "/a%0d%0ab",
    "/a%7F",
  ],
  [invalid.unreserved]: [
    "/%61dmin",
    "/adm%69n",
    "/x/%2e%2e/admin",
    "/x/.%2E/admin",
    "/%2dx",
    "/%5fx",
    "/%7e",
    "/%30",
    "/%4D",
    "/%5A",
  ],
  [invalid.empty]: ["//admin", "/x//admin", "//", "/admin//", "//a.example/admin"],
  [invalid.dots]: ["/.", "/..", "/x/../admin", "/x/./admin", "/x/..", "/./admin", "/files/../admin"],
  [invalid.utf8]: ["/%C0%AE%C0%AE/admin", "/%FF", "/%ED%A0%80", "/%E2%82"],
  [invalid.decoded]: [
    "/files/..%2fadmin",
    "/files/a%2f..%2f..%2fadmin",
    "/files/%2f..",
    "/x/%EF%BC%8E%EF%BC%8E/admin",
    "/x/%E2%80%A5/admin",
    "/x/..%20/admin",
    "/x/%C2%A0../admin",
    "/x%EF%BC%BCadmin",
  ],
  [invalid.slash]: ["/x%2fadmin", "/admin%2f", "/%2fadmin", "/files-public/a%2Fb"],
  [invalid.other]: [
    "/admin/",
    "/ADMIN",
    "/Admin/users/1",
    "/adm%C4%B1n",
    "/%EF%BD%81dmin",
    "/admin.",
    "/admin%20",
    "/%20admin",
    "/%E3%80%80admin",
    "/admin.%20.",
    "/FILES/a",
    "/x%EF%BC%8F".replace("x", "files"),
    "/caf%c3%a9",
    "/caf%C3%89",
    "/cafe%CC%81",
  ],
};

describe("a path", () => {
  for (const [expected, paths] of Object.entries(table)) {
    test(`${expected}: ${paths.length} spellings`, () => {
      const results = paths.map((path) => [path, selected(path)]);
      assert.deepEqual(
        results,
        paths.map((path) => [path, expected]),
      );
    });
  }

  test("does not select a later route just because its escapes leave a segment empty", () => {
    const among = [route("/admin"), route("/a/b/*"), route("/*", { encodedSlashes: true })];
    for (const path of [
      "/%2fadmin",
      "/%2F%2fadmin",
      "/%EF%BC%8Fadmin",
      "/%20/admin",
      "/.../admin",
      "/a%2f%2fb/c",
      "/a/%2fb",
    ])
      assert.equal(selected(path, "GET", among), invalid.other, path);
    for (const path of ["/x%2fadmin", "/https%3A%2F%2Fgithub.com%2Fadmin", "/%2fa"])
      assert.equal(selected(path, "GET", among), "/*", path);
  });

  test("never selects a route that a decoder would not select, whatever bytes or escapes it contains", () => {
    const paths = Array.from({ length: 256 }, (_, byte) => byte).flatMap((byte) => {
      const hex = byte.toString(16).padStart(2, "0");
      return [`%${hex}`, `%${hex.toUpperCase()}`, String.fromCharCode(byte)].flatMap((text) => [
        `/admin${text}`,
        `/${text}admin`,
        `/x${text}/admin`,
        `/x/${text}admin`,
        `/x/..${text}/admin`,
        `/adm${text}n`,
      ]);
    });
    const lax = paths.filter((path) => {
      if (path.includes("?") || selected(path) !== "/*") return false;
      // A backend that decodes, folds case, reads \ as / and drops parameters, control characters and repeated slashes.
      const [plain = ""] = decodeURIComponent(path)
        .toLowerCase()
        .replaceAll("\\", "/")
        .replace(/\s/g, "")
        .split(/[;?#]/);
      return /^\/admin\.?\/?$/.test(new URL(plain.replace(/\/+/g, "/"), "http://x").pathname);
    });
    assert.deepEqual(lax, []);
    assert.ok(paths.length > 4_000);
  });
});

test("a path takes linear time to check, however long it is", () => {
  const startedAt = performance.now();
  for (const text of [".", "/", "%20", "%2f", "%2f.", ". ", "%EF%BC%8E", "a", "%", ";"])
    selectRoute(routes, "GET", `/files/${text.repeat(100_000)}x`);
  // Quadratic time would be minutes.
  assert.ok(performance.now() - startedAt < 10_000);
});

describe("routes", () => {
  test("the first route that matches both the path and the method is used", () => {
    const other = [route("/a/b"), route("/a/*", { methods: ["GET"] }), route("/a/*", { methods: ["PUT"] })];
    const results = [
      ["GET", "/a/b"],
      ["PUT", "/a/b"],
      ["GET", "/a/c"],
      ["PUT", "/a/c"],
      ["POST", "/a/c"],
      ["GET", "/"],
    ] as const;
    assert.deepEqual(
      results.map(([method, path]) => selected(path, method, other)),
      ["/a/b", "/a/b", "/a/*", "/a/*", "none", "none"],
    );
  });

  test("a route's path is a path that the guard accepts, optionally followed by /*", () => {
    const refused = [
      "",
      "a",
      "*",
      "/a*",
      "/*/a",
      "/a/**",
      "/a//*",
      "//*",
      "/a?b",
      "/a/../*",
      "/a%2fb",
      "/A b",
      "/a;b",
      "/%61",
    ];
    assert.deepEqual(
      refused.filter((path) => patternOf(path) !== undefined),
      [],
    );
    assert.deepEqual(patternOf("/*"), { base: "", foldedBase: "", isPrefix: true });
    assert.deepEqual(patternOf("/a/*"), { base: "/a", foldedBase: "/a", isPrefix: true });
    assert.deepEqual(patternOf("/a/"), { base: "/a/", foldedBase: "/a", isPrefix: false });
  });

  test("a route that is hidden by an earlier one is reported", () => {
    const rows: readonly (readonly [routes: readonly RoutePattern[], hidden: ReturnType<typeof hiddenRoute>])[] = [
      [routes, undefined],
      [
        [route("/*"), route("/a")],
        [1, [0]],
      ],
      [
        [route("/a/*"), route("/a")],
        [1, [0]],
      ],
      [
        [route("/a/*"), route("/b"), route("/A/b/*")],
        [2, [0]],
      ],
      [
        [route("/a"), route("/a/")],
        [1, [0]],
      ],
      [[route("/a"), route("/a/*")], undefined],
      [[route("/a/*", { methods: ["GET"] }), route("/a/*")], undefined],
      [
        [route("/a/*", { methods: ["GET", "PUT"] }), route("/a/b", { methods: ["PUT"] })],
        [1, [0]],
      ],
      [
        [route("/a/*"), route("/a/b", { methods: ["PUT"] })],
        [1, [0]],
      ],
      [
        [
          route("/a/*", { methods: ["GET"] }),
          route("/*", { methods: ["PUT"] }),
          route("/a", { methods: ["PUT", "GET"] }),
        ],
        [2, [1, 0]],
      ],
      [[route("/a/*", { methods: ["GET"] }), route("/*", { methods: ["PUT"] }), route("/a")], undefined],
    ];
    assert.deepEqual(
      rows.map(([routes]) => hiddenRoute(routes)),
      rows.map(([, hidden]) => hidden),
    );
  });
});
