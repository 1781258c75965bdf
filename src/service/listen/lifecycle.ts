/** Functions that stop the parts of a service. They must be called in this order. */
export type Stops = (() => Promise<void>)[];

export async function stopAll(stops: Stops): Promise<void> {
  for (const stop of stops) await stop();
}

/**
 * Starts a service. If startup fails, stops the parts that have already been started.
 *
 * @param start adds a stop function for each part
 */
export async function startParts<T>(start: (stops: Stops) => Promise<T>): Promise<T> {
  const stops: Stops = [];
  try {
    return await start(stops);
  } catch (error) {
    await stopAll(stops);
    throw error;
  }
}
