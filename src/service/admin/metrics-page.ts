import { ConfigError } from "../../base/errors.ts";
import type { Metric } from "../../base/metrics.ts";
import { type AdminPage, plainText } from "./admin.ts";
import { expose } from "./exposition.ts";

/** `/metrics`. Without prom-client it says 501, and how to install it. @param metrics what is to be told, made for each scrape */
export function metricsPage(metrics: () => Promise<readonly Metric[]>): AdminPage {
  return async ({ headers }) => {
    try {
      const { contentType, text } = await expose(await metrics(), headers.accept);
      return { status: 200, contentType, text };
    } catch (error) {
      if (!(error instanceof ConfigError) || error.code !== "ERR_PACKAGE_MISSING") throw error;
      return plainText(501, `no metrics: ${error.message}, where jwksd is installed, and restart it`);
    }
  };
}
