// pg has no types of its own; this is the part that is used here.
declare module "pg" {
  class Client {
    constructor(url: string);
    connect(): Promise<void>;
    query(text: string): Promise<unknown>;
    end(): Promise<void>;
  }
  class Pool {
    constructor(options: { readonly connectionString: string; readonly max?: number });
    connect(): Promise<never>;
    end(): Promise<void>;
  }
  const pg: { readonly Client: typeof Client; readonly Pool: typeof Pool };
  export default pg;
}
