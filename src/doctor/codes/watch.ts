import type { FindingKind } from "./finding-kind.ts";

/** Findings about changes over time. */
export const watch = {
  WATCH_NODES_DISAGREE: {
    severity: "broken",
    title: "Servers behind the address publish different sets",
    why: "The set keeps changing back to earlier versions, so whether a token is accepted is a matter of chance.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Give all nodes the same keys, and sign with a key only after all nodes publish it.",
  },
  WATCH_KID_REUSED: {
    severity: "broken",
    title: "A `kid` was reused for a different key",
    why: "Verifiers that have cached the first key reject every token signed with the second.",
    rule: "RFC 7517 section 4.5",
    remedy: "Never use a `kid` twice. RFC 7638 thumbprints never repeat.",
  },
  WATCH_KEY_WITHDRAWN: {
    severity: "broken",
    title: "A key was withdrawn while its tokens were still valid",
    why: "Verifiers that have since fetched the set reject tokens that have not expired.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Keep a key published until the last token that it signed has expired.",
  },
  WATCH_SIGNS_UNANNOUNCED: {
    severity: "broken",
    title: "A key was used for signing before all caches were certain to have it",
    why: "Verifiers may keep the old set for max-age plus stale-while-revalidate. Those that do not refetch it sooner reject tokens signed with the key.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Publish a key for longer than max-age plus stale-while-revalidate before you sign with it.",
  },
  WATCH_LIFETIME_TOO_LONG: {
    severity: "risk",
    title: "Caches may keep the set for longer than the rotation took",
    why: "A cache can miss a whole rotation: it still has the old set when the old key is withdrawn.",
    rule: "RFC 9111 section 4.2",
    remedy: "Shorten max-age, or wait longer between publishing a key and withdrawing the previous one.",
  },
  WATCH_ONLY_GROWS: {
    severity: "advice",
    title: "Keys are added, but never withdrawn",
    why: "Eventually, the set becomes larger than verifiers accept. Old keys stay trusted permanently.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Withdraw each key when the last token that it signed has expired.",
  },
  WATCH_UNREACHABLE: {
    severity: "risk",
    title: "The set was unreachable at times",
    why: "Verifiers that had to fetch the set during those times failed.",
    rule: "RFC 9110 section 15.6.4",
    remedy:
      "Find out which node or proxy is failing. A cache in front of the server hides short outages from verifiers.",
  },
} as const satisfies Readonly<Record<string, FindingKind>>;
