import { textOf } from "../../../publish/respond.ts";
import { type NodeGuardedRequest, nodeRequest } from "./node-request.ts";
import type { Guard } from "../guard.ts";
import { titles } from "../refusal.ts";
import type { Requirements } from "../requirements.ts";

/** The part of a socket of Node that a guard uses. */
export interface SocketLike {
  readonly destroyed: boolean;
  on(event: "error", listener: () => void): unknown;
  off(event: "error", listener: () => void): unknown;
  end(text: string): unknown;
}

/** Whether the upgrade is let through. If not, it was answered. */
export type UpgradeGuard = (request: NodeGuardedRequest, socket: SocketLike) => Promise<boolean>;

const ignore = (): void => {};

/** For the event `upgrade` of a server of `node:http`. */
export const upgradeFace =
  ({ decide }: Guard, requirements: Requirements): UpgradeGuard =>
  async (request, socket) => {
    // Nobody else listens yet, and an error would end the process.
    socket.on("error", ignore);
    const decision = await decide(nodeRequest(request, request), requirements);
    if ("auth" in decision) socket.off("error", ignore);
    else socket.end(textOf(decision.reply, titles[decision.reply.status], request.method));
    return "auth" in decision && !socket.destroyed;
  };
