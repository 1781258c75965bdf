/** Whether this is `npm run soak`, which also runs long tests. */
export const isSoak = process.env["JWKSD_SOAK"] === "1";

/** Returns a count for a long test: the whole count in `npm run soak`; a tenth of it, or `few`, in `npm test`. */
export function soak(count: number, few: number = Math.ceil(count / 10)): number {
  return isSoak ? count : few;
}
