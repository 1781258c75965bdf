/** Whether this is `npm run soak`, which runs every test that asks for this. */
export const isSoak = process.env["JWKSD_SOAK"] === "1";

/** A count that needs time: whole in `npm run soak`, a tenth of it, or `few`, in `npm test`. */
export function soak(count: number, few: number = Math.ceil(count / 10)): number {
  return isSoak ? count : few;
}
