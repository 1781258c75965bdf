import { guardedFetch } from "jwksd/node";

export const configuration = {
  fetch: (url: string, init: RequestInit) =>
    init.method === undefined || init.method === "GET" ? guardedFetch(url, init) : fetch(url, init),
};
