import { after, before, describe } from "node:test";
import type { Browser } from "playwright-core";
import { startBrowser } from "../support/browser.ts";
import { skipWithout } from "../support/parts.ts";
import { soak } from "../support/soak.ts";
import { checkPage } from "./page-chromium.ts";
import { checkRotation } from "./rotation-chromium.ts";
import { checkSite } from "./site-chromium.ts";
import { checkTrust } from "./trust-chromium.ts";

// All tests share one browser, because starting one takes a second of CPU time. Tests that need isolation use their own contexts.
describe("in Chromium", { skip: skipWithout("chromium-headless-shell") }, () => {
  let browser: Browser;
  before(async () => {
    browser = await startBrowser();
  });
  after(() => browser.close());

  checkPage(() => browser);
  checkSite(() => browser);
  checkRotation(() => browser, soak(8, 4));
  checkTrust(() => browser);
});
