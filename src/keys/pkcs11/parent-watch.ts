// A thread in the child process that ends the whole process soon after the parent has exited, even if the module blocks
// all other threads. It watches standard input, which the parent keeps open but never writes to.

import { Socket } from "node:net";

/** Time limit for finishing the calls in flight and finalizing the module, in milliseconds. */
const graceMs = 2_000;

const parent = new Socket({ fd: 0, readable: true, writable: false });
parent.on("error", () => {});
parent.on("close", () => setTimeout(() => process.kill(process.pid, "SIGKILL"), graceMs));
parent.resume();
