import { readFileSync } from "node:fs";
import { examine } from "../../src/doctor/index.ts";
import { observeBody } from "../../src/doctor/node/index.ts";

// Examines the file of its argument, and prints what was found, the processor time, and by how much the process has grown for it.
const baseKib = process.resourceUsage().maxRSS;
const findings = await examine(observeBody(readFileSync(process.argv[2] ?? ""), Date.now()));
const { maxRSS, userCPUTime } = process.resourceUsage();
const found = findings.map(({ code }) => code);
console.log(JSON.stringify({ found, megabytes: (maxRSS - baseKib) / 1024, seconds: userCPUTime / 1_000_000 }));
