/** Collects rejections that nobody handles, from now on; the function that it gives ends that. */
export function unhandledRejections(): () => Promise<unknown[]> {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): number => unhandled.push(reason);
  process.on("unhandledRejection", note);
  return async () => {
    // Rejections are announced when the microtasks are done.
    await new Promise(setImmediate);
    process.off("unhandledRejection", note);
    return unhandled;
  };
}
