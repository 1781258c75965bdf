import { type D1Binding, d1Store } from "jwksd/store/d1";

export const storeOf = (env: { DB: D1Binding }, issuer: string) => d1Store(env.DB, { issuer });
