/** A count that needs time: whole in `npm run soak`, a tenth of it in `npm test`. */
export function soak(count: number): number {
  return process.env["JWKSD_SOAK"] === "1" ? count : Math.ceil(count / 10);
}
