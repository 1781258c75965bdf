import { readFileSync } from "node:fs";
import { examine } from "../../src/doctor/index.ts";
import { observationsFromBody } from "../../src/doctor/node/index.ts";

// Examines the files in its arguments one by one. For each, it prints the findings, the processor time, and by how much the process has grown.
const baseKib = process.resourceUsage().maxRSS;
for (const file of process.argv.slice(2)) {
  const before = process.resourceUsage().userCPUTime;
  const findings = await examine(observationsFromBody(readFileSync(file), Date.now()));
  const { maxRSS, userCPUTime } = process.resourceUsage();
  const found = findings.map(({ code }) => code);
  console.log(
    JSON.stringify({ found, megabytes: (maxRSS - baseKib) / 1024, seconds: (userCPUTime - before) / 1_000_000 }),
  );
}
