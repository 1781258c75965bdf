import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { skipWithout } from "../support/parts.ts";
import { soak } from "../support/soak.ts";
import { ask, scopes, startSite, ways } from "./site.ts";
import { cleanPaths, routes, spellings } from "./spellings.ts";

// Every spelling of a path through real proxies: no program sees the path of a route whose requirements were not checked.

type Route = (typeof routes)[number];

/** Returns the route that a program could choose for a path, whatever its upper and lower case. */
function routeOf(path: string): Route | undefined {
  const [, first] = /^[/\\]*([^/\\;?#]*)/.exec(path.normalize("NFKC").toLowerCase()) ?? [];
  return routes.find((route) => route === first?.trim());
}

/** Returns the routes that the program could choose for a request target, which is sent verbatim. */
async function reached(port: number, target: string, token?: string): Promise<(Route | undefined)[]> {
  const { seen } = await ask(port, { target }, token);
  return seen?.paths.map(routeOf) ?? [];
}

/** In `npm test`, few spellings, and different ones for each way. */
const step = soak(1, 24);

for (const [way, { proxy, backend }] of ways.entries()) {
  const chosen = spellings.filter((_, index) => index % step === way % step);
  describe(`${proxy.name} in front of ${backend.name}`, { skip: skipWithout(proxy.name, ...backend.programs) }, () => {
    test(`requests with ${chosen.length} path spellings never reach a route without the route's scope`, async (t) => {
      const { token, port, backendPort } = await startSite(t, proxy, { backend });
      for (const [path, route] of Object.entries(cleanPaths))
        assert.ok((await reached(port, path, token())).includes(route), path);
      const credentials: readonly (readonly [token: string | undefined, ...reached: Route[]])[] = [
        [undefined, "public"],
        [token(scopes.orders), "public", "orders"],
        [token(scopes.files), "public", "files"],
      ];
      const wrong: string[] = [];
      let misread = 0;
      for (const target of chosen) {
        for (const [token, ...allowed] of credentials) {
          for (const route of await reached(port, target, token)) {
            if (route !== undefined && !allowed.includes(route))
              wrong.push(`${target} reached ${route} with a token for ${allowed.join(", ")}`);
          }
        }
        if (!target.startsWith("/admin") && (await reached(backendPort, target)).includes("admin")) misread += 1;
      }
      assert.deepEqual(wrong, []);
      t.diagnostic(`without the guard, ${misread} spellings reach /admin`);
      assert.ok(misread > 0, "the program reads some spellings as /admin");
    });
  });
}
