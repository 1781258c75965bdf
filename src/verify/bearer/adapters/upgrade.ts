import type { Clock } from "../../../base/clock.ts";
import { rawHttp } from "../../../publish/respond.ts";
import type { Decide } from "../access-decision.ts";
import { titles } from "../refusal.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";

/** The part of a Node socket that a guard uses. */
export interface SocketLike {
  readonly destroyed: boolean;
  on(event: "error", listener: () => void): unknown;
  off(event: "error", listener: () => void): unknown;
  end(text: string, written: () => void): unknown;
  destroy(): unknown;
}

/** Reports whether the upgrade is let through. If it is not, the guard responds and closes the socket. */
export type UpgradeGuard = (request: NodeGuardedRequest, socket: SocketLike) => Promise<boolean>;

/** Time allowed for a client to receive a refusal, in milliseconds. */
const refusalMs = 5_000;

const ignore = (): void => {};

/** Creates a guard for the `upgrade` event of a `node:http` server. */
export const upgradeAdapter =
  (decide: Decide, clock: Clock): UpgradeGuard =>
  async (request, socket) => {
    // No other listener has been added yet, and an unhandled error event would end the process.
    socket.on("error", ignore);
    const decision = await decide(nodeRequest(request, request));
    if ("auth" in decision) {
      socket.off("error", ignore);
      return !socket.destroyed;
    }
    // node:http no longer owns the socket. If the client leaves its half open, only destroying the socket closes it.
    const cancel = clock.setTimer(() => socket.destroy(), refusalMs);
    socket.end(rawHttp(decision.reply, titles[decision.reply.status], request.method), () => {
      cancel();
      socket.destroy();
    });
    return false;
  };
