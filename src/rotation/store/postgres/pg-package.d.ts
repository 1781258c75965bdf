// The package pg has no types of its own; this is the part that is used here.
declare module "pg" {
  class Client {
    readonly host: string;
    readonly port: number;
    readonly database?: string;
    constructor(config: string | object);
    connect(): Promise<void>;
    query(text: string): Promise<unknown>;
    on(event: "error", listener: () => void): unknown;
    end(): Promise<void>;
  }
  class Pool {
    readonly totalCount: number;
    readonly idleCount: number;
    readonly waitingCount: number;
    constructor(config: object);
    connect(): Promise<never>;
    on(event: "error", listener: () => void): unknown;
    on(event: "connect", listener: (client: Client) => void): unknown;
    end(): Promise<void>;
  }
  const pg: { readonly Client: typeof Client; readonly Pool: typeof Pool };
  export default pg;
}
