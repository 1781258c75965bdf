import { lookup } from "node:dns/promises";
import { createGuardedFetch } from "jwksd/node";

// lookup cannot be canceled, and blocks one of the pool's four threads: see docs/decisions/0014-host-lookups.md.
export const fetch = createGuardedFetch({ resolve: (host) => lookup(host, { all: true }) });
