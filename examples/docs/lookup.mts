import { lookup } from "node:dns/promises";
import { createGuardedFetch } from "jwksd/node";

// lookup cannot be cancelled, and holds one of the four threads of the pool: see docs/decisions/0014-host-lookups.md.
export const fetch = createGuardedFetch({ resolve: (host) => lookup(host, { all: true }) });
