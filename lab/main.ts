import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { behaviorOf } from "./behavior.ts";
import { dataFile, readData } from "./data.ts";
import { fromDebian } from "./debian.ts";
import { pagesOf } from "./pages.ts";
import { type Measured, openPlace } from "./run.ts";
import { fromNpm } from "./verifiers.ts";

// `node lab/main.ts` measures all verifiers, and writes the data and the files that are generated from it. `--only NAME` measures one
// verifier, `--write` none.

const { values } = parseArgs({ options: { only: { type: "string", multiple: true }, write: { type: "boolean" } } });
const path = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url));

if (values.write !== true) await measureAll(values.only);
write();

async function measureAll(only: readonly string[] | undefined): Promise<void> {
  const place = await openPlace();
  const all = [...fromNpm(place.certificate), ...fromDebian(place.certificate, place.folder)];
  const next = all.filter(({ name }) => only?.includes(name) ?? true);
  const measured: Record<string, Measured> = only === undefined ? {} : { ...readData().verifiers };
  // Two at a time.
  const work = async (): Promise<void> => {
    for (let verifier = next.shift(); verifier !== undefined; verifier = next.shift()) {
      const began = performance.now();
      measured[verifier.name] = await place.measure(verifier);
      save();
      console.error(`${verifier.name}: ${Math.round((performance.now() - began) / 1_000)} s`);
    }
  };
  const save = (): void => {
    const found = all.flatMap(({ name }) => (measured[name] === undefined ? [] : [[name, measured[name]] as const]));
    const date = new Date().toISOString().slice(0, 10);
    writeFileSync(dataFile, JSON.stringify({ date, verifiers: Object.fromEntries(found) }));
  };
  await Promise.all([work(), work()]).finally(place.close);
}

function write(): void {
  const data = readData();
  const behaviors = Object.entries(data.verifiers).map(([name, measured]) => behaviorOf(name, measured));
  const behaviorFile = path("src/doctor/verifiers/caching-behavior.ts");
  const made = `/** Date of the measurement. */
export const measuredOn = ${JSON.stringify(data.date)};

/** Measured behavior of each verifier. */
export const behaviors: readonly Behavior[] = ${JSON.stringify(behaviors)};
`;
  const source = readFileSync(behaviorFile, "utf8");
  writeFileSync(
    behaviorFile,
    source.replace(/(?<=\/\/ Written by `node lab\/main.ts`.*\n\n)[^]*/, () => made),
  );
  mkdirSync(path("docs/verifiers"), { recursive: true });
  for (const [file, text] of Object.entries(pagesOf(data))) writeFileSync(path(file), text);
  execFileSync("oxfmt", [dataFile, behaviorFile]);
}
