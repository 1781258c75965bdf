import { codeWith } from "./changed.ts";
import { drive, type Mode, faults } from "./driver.ts";
const code = await codeWith("none");
const [names = "", from = "1", to = "3", hours = "48", mixed = ""] = process.argv.slice(2);
const mode: Mode = {
  faults: names === "" ? [] : (names.split(",") as never),
  isMixed: mixed === "mixed",
  isOneMachine: mixed === "one",
};
for (let seed = Number(from); seed <= Number(to); seed++) {
  const t = performance.now();
  const o = await drive(code, mode, seed, Number(hours) * 3600e3);
  console.log(
    seed,
    Math.round(performance.now() - t),
    "ms",
    JSON.stringify({
      ...o,
      violations: o.violations.slice(0, 2),
      broke: o.broke.length,
      fingerprint: o.fingerprint.slice(0, 8),
    }),
  );
  if (o.violations.length && process.env["BROKE"]) console.log(o.broke.join("\n"));
}
