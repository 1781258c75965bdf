import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, chown, readdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { skipWithoutArchive } from "../support/archive.ts";
import { getOnce, kidsIn } from "../support/load.ts";
import { part, skipWithout, skipped } from "../support/parts.ts";
import { type Exit, followService, freePort, temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";

interface Image {
  readonly Size: number;
  readonly Docker: {
    readonly config: {
      readonly User: string;
      readonly Entrypoint: readonly string[];
      readonly Cmd: readonly string[];
      readonly StopSignal: NodeJS.Signals;
      readonly Healthcheck: { readonly Test: readonly string[] };
    };
  };
}

const root = resolve(import.meta.dirname, "../..");
const user = 65_532;
const skip =
  skipWithoutArchive("the image") ||
  (process.getuid?.() !== 0 && skipped("the image; without root, buildah requires subordinate ids")) ||
  skipWithout("buildah");

if (isSoak)
  test("the image serves keys, rotates them, stops, and resumes with its volume", { skip }, async (t) => {
    const folder = await temporaryFolder(t);
    const storage = { driver: "vfs", graphroot: join(folder, "graph"), runroot: join(folder, "run") };
    const lines = Object.entries(storage).map(([name, value]) => `${name} = "${value}"`);
    await writeFile(join(folder, "storage.conf"), ["[storage]", ...lines].join("\n"));
    const env = { PATH: process.env["PATH"], CONTAINERS_STORAGE_CONF: join(folder, "storage.conf") };
    const buildah = async (...args: string[]): Promise<string> =>
      (await promisify(execFile)(part("buildah"), args, { env })).stdout.trim();

    const image = "jwksd-test";
    await promisify(execFile)(join(root, "scripts/build-image"), [image], { env });
    const { config } = (JSON.parse(await buildah("inspect", "--type", "image", image)) as Image).Docker;
    const [, ...healthCheck] = config.Healthcheck.Test;
    const volume = join(folder, "volume");
    await promisify(execFile)("mkdir", [volume]);
    await chown(volume, user, user);
    // buildah runs as root, but the image's user must have access.
    await chmod(folder, 0o711);
    const port = await freePort();
    const portFlags = ["--port", String(port), "--admin", "off"];

    /** Starts a new container with the volume. */
    async function container() {
      const name = await buildah("from", "--pull-never", image);
      const run = [
        "run",
        "--isolation",
        "chroot",
        "--volume",
        `${volume}:/volume`,
        "--env",
        "JWKSD_DATA=/volume",
        name,
      ];
      const start = () => {
        const args = [...run, "--", ...config.Entrypoint, ...config.Cmd, ...portFlags];
        const child: ChildProcess = spawn(part("buildah"), args, { env, stdio: ["ignore", "pipe", "pipe"] });
        const exited = once(child, "exit").then(([code, signal]): Exit => ({ code, signal }));
        return followService({ child, exited } as Parameters<typeof followService>[0]);
      };
      return { name, start, run: (...command: string[]) => buildah(...run, "--", ...command) };
    }

    const first = await container();
    const mounted = await buildah("mount", first.name);
    const { stdout: bytes } = await promisify(execFile)("du", ["-sb", mounted]);
    assert.ok(Number.parseInt(bytes, 10) < 150e6, bytes);
    const { stdout: own } = await promisify(execFile)("find", [mounted, "-user", String(user), "-printf", "%P\n"]);
    assert.equal(own, "data\n", "it can write only to its data");
    assert.equal(config.User, `${user}:${user}`);

    const service = await first.start();
    t.after(() => stop(service));
    const seen = await first.run(...healthCheck.map((arg) => arg.replace(":9900/", `:${port}/`)));
    assert.match(seen, /: no problems found\./);
    const kids = kidsIn(await getOnce(port));
    await first.run("/usr/bin/jwksd", "rotate");
    await service.logged(({ msg }) => msg === "key announced");
    const rotated = kidsIn(await getOnce(port));
    assert.equal(rotated.length, 2);
    assert.equal(rotated[0], kids[0]);
    assert.deepEqual(await stop(service), { code: 0, signal: null });
    await assert.rejects(first.run(...healthCheck));
    assert.ok((await readdir(volume)).includes("keys.db"));

    const again = await (await container()).start();
    t.after(() => stop(again));
    assert.deepEqual(kidsIn(await getOnce(port)), rotated);
    assert.deepEqual(await stop(again), { code: 0, signal: null });

    /** Stops the container's first process by its id: the container sees this machine's processes. */
    async function stop({ log, exited }: Awaited<ReturnType<typeof followService>>): Promise<Exit> {
      const { pid } = log.find(({ msg }) => msg === "started") as { readonly pid?: number };
      if (!log.some(({ msg }) => msg === "stopped")) process.kill(pid as number, config.StopSignal);
      return exited;
    }
  });
