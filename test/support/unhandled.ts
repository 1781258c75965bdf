/** Collects unhandled rejections from now on, until the returned function is called. */
export function unhandledRejections(): () => Promise<unknown[]> {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): number => unhandled.push(reason);
  process.on("unhandledRejection", note);
  return async () => {
    // Unhandled rejections are reported after all microtasks.
    await new Promise(setImmediate);
    process.off("unhandledRejection", note);
    return unhandled;
  };
}
