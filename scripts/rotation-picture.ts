// Generates the picture of a rotation in README.md: node scripts/rotation-picture.ts > docs/rotation.svg

import { planSvg } from "../src/cli/managed-keys/plan-svg.ts";
import { planRotation } from "../src/rotation/explain/plan.ts";
import type { LiveRecord } from "../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../src/rotation/rules/policy.ts";

const now = Date.parse("2026-11-20T12:00:00Z");
const day = 86_400_000;
const active: LiveRecord = {
  kid: "2026-09",
  use: "sig",
  alg: "ES256",
  state: "active",
  announcedAt: now - 71 * day,
  activatedAt: now - 70 * day,
  thumbprint: "x",
  publicJwk: { kty: "EC", crv: "P-256", x: "x", y: "y" },
  privateHalf: { uri: "x" },
};

process.stdout.write(planSvg(planRotation([active], rotationPolicy(), now), "A key rotation, as jwksd plans it"));
