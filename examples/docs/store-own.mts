import type { Register } from "jwksd/store";

/** A store in one HTTP resource, with conditional requests (RFC 9110). */
export function httpStore(url: string): Register {
  return {
    name: url,
    async read(known, { signal } = {}) {
      const headers = known === undefined ? {} : { "If-None-Match": known };
      const response = await fetch(url, { headers, cache: "no-store", signal: signal ?? null });
      const now = Date.parse(response.headers.get("Date") ?? "");
      // Some proxies drop the header.
      if (Number.isNaN(now)) throw new Error(`${url} returned no Date header`);
      if (response.status === 404) return { now };
      if (response.status === 304) return { version: known, now };
      if (!response.ok) throw new Error(`${url} returned ${response.status}`);
      const [, text = ""] = /^.*?\n(.*)$/s.exec(await response.text()) ?? [];
      return { version: response.headers.get("ETag") ?? "", text, now };
    },
    async write(text, ifVersion, { signal } = {}) {
      const headers: Record<string, string> =
        ifVersion === undefined ? { "If-None-Match": "*" } : { "If-Match": ifVersion };
      // An ETag may be a hash of the content, but writing the same document again needs a new version.
      const body = `${crypto.randomUUID()}\n${text}`;
      const response = await fetch(url, { method: "PUT", headers, body, signal: signal ?? null });
      if (!response.ok && response.status !== 412) throw new Error(`${url} returned ${response.status}`);
      return response.ok;
    },
  };
}
