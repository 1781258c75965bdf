/** A phrase to avoid in prose: pages, comments, docstrings, messages and test titles. */
export interface Phrase {
  readonly name: string;
  /** Matches within one line. */
  readonly pattern: RegExp;
  /** Matches the start of the next line, if the phrase is wrong only before such a line. */
  readonly before?: RegExp;
  /** What to write instead. */
  readonly advice: string;
}

/** Phrases that read as translated, or that have a standard term in the field. */
export const phrases: readonly Phrase[] = [
  {
    name: "that-of",
    pattern: /\b(?:[Tt]hat|[Tt]hose) of\b(?! course)/g,
    advice: 'repeat the noun, or use a possessive: "its kid is that of the JWK" -> "it uses the JWK\'s kid"',
  },
  {
    name: "is-of",
    pattern: /\b(?:is|are|was|were) of (?!no use|use\b|course|any use|interest)\w+/g,
    advice: 'is from, belongs to, is for; or an adjective: "is of the wrong type" -> "has the wrong type"',
  },
  {
    name: "genitive",
    pattern:
      /\b(?:clock|policy|text|MAC|keys|lifetime|memory|health|audience|revision|lines?) of (?:the|its|a|an|each|this) (?:store|machine|provider|process|service|issuer|token|manager|database|server|replica)\b/g,
    advice: 'possessive or compound: "the clock of the store" -> "the store\'s clock"',
  },
  {
    name: "product-genitive",
    pattern:
      /\b(?!version|part|kind|instead|outside|all\b|most|one\b|some|each|none|out\b|because|any\b|many|copy|instance|release|those|that|point|front|nothing|form\b|forms\b|five|seven|load|sake|terms|lack|course|member|list|file)[a-z]+ of (?:AWS|Azure|Google|Node|Debian|SQLite|PostgreSQL|Kubernetes|Vault|npm|jose|better-auth|oidc-provider|nginx|Grafana|Prometheus|Cloudflare|Workers|OpenSSL|Express|Fastify|Hono|Koa|NestJS|Deno|Bun|Python|Microsoft|OpenTelemetry|MySQL|Redis|V8|jwksd)\b(?!\/)/g,
    advice: 'compound: "load balancer of AWS" -> "AWS load balancer", "Node\'s ..."',
  },
  {
    name: "code-of-code",
    pattern: /(?<=[\w)]` )of(?= `)/g,
    advice: '"`x` from `module`", "the `x` option of `f`", "`f`\'s `x` option"',
  },
  {
    name: "noun-code",
    pattern:
      /\b(?:the|an?|no|its|your) (?:option|header|claim|event|variable|function|method|flag|command|package|setting|folder|file) (?=`)/g,
    advice: 'name first, kind after: "the option `token`" -> "the `token` option"',
  },
  {
    name: "header-name",
    pattern: /\b(?:the|a|an|no) (?:headers?|header fields?) (?:Authorization|DPoP|DPoP-Nonce|Host|Accept|Date|typ)\b/g,
    advice: 'name first: "the Authorization header"',
  },
  {
    name: "of-own",
    pattern: /\bof (?:its|their|your|his) own\b/g,
    advice: '"keys of its own" -> "its own keys"',
  },
  {
    name: "of-yours",
    pattern: /\bof (?:yours|ours)\b/g,
    advice: "your, our, our own",
  },
  {
    name: "by-itself",
    pattern: /\bby (?:itself|themselves)\b/g,
    advice: 'automatically, on its own; or "alone"',
  },
  {
    name: "beside",
    pattern: /\b[Bb]eside\b(?!\(| =)/g,
    advice: 'next to, alongside, in addition to, besides; "beside the answer" -> "in the background"',
  },
  {
    name: "at-once",
    pattern:
      /(?:\b(?:\w+ed|comes|fires|begins|speaks|ready|keyset|set|key|keys|signs?|sign|signed|ends?|end|gone|active|refused|removed?|replaced?|replaces|leaves|takes|kid|it|them|one|now|so|look|work|calls|used|done|put|[Tt]ry again|tries again|KID|and|store|first|known|believed|found|thrown)|,) at once\b(?! (?:as|start|or|one|and gives|has|make))/g,
    advice: 'immediately, right away ("at once" for "simultaneously" is fine: "all at once")',
  },
  {
    name: "no-more",
    pattern: /\bno more\b(?! (?:than|of|often|\w+s)\b)/g,
    advice: "no longer, not ... any more",
  },
  {
    name: "for-ever",
    pattern: /\bfor ever\b/g,
    advice: "permanently, forever",
  },
  {
    name: "until-when",
    pattern: /\buntil when\b/g,
    advice: "how long, the time until which",
  },
  {
    name: "so-long",
    pattern: /\bfor so long\b|\bat least for so\b|\blive so long\b/g,
    advice: "that long",
  },
  {
    name: "is-no",
    pattern:
      /(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more\b|such|later|use\b|worse|better|different|need\b|reason|way\b|one\b|sign\b)\w+/g,
    advice: 'is not a ..., isn\'t a ...: "is no JWT" -> "is not a JWT"',
  },
  {
    name: "is-none",
    pattern: /\b(?:what|that|which|it|they) (?:is|are) none\b/g,
    advice: "is not one, isn't valid, isn't a ...",
  },
  {
    name: "have-none",
    pattern: /\b(?:needs?|has|have|takes?|makes?|brings?|finds?) none\b(?! of)/g,
    advice: "doesn't need one, has no ...",
  },
  {
    name: "mend",
    pattern: /\b[Mm]end(?:s|ed|ing)?\b(?!\()/g,
    advice: "fix, repair, resolve",
  },
  {
    name: "away",
    pattern: /(?<!far )\b(?:is|are|was|be|been|were) away\b/g,
    advice: "unavailable, unreachable, down, offline",
  },
  {
    name: "be-had",
    pattern: /\bbe had\b/g,
    advice: "be fetched, be obtained, is unavailable",
  },
  {
    name: "out-of-reach",
    pattern: /\bout of reach\b/g,
    advice: "unreachable",
  },
  {
    name: "hold",
    pattern:
      /\bdoes not hold\b(?! (?:a|an|the|for))|\btokens? that holds?\b(?! (?:a|an|the|no))|, which holds(?=[.;:])/g,
    advice: "(in)valid, applies, takes precedence",
  },
  {
    name: "good-token",
    pattern: /\b(?:[Gg]ood|[Bb]ad) (?:access )?tokens?\b/g,
    advice: "valid, invalid",
  },
  {
    name: "such-a",
    pattern: /\b[Ss]uch an? \w+/g,
    advice: 'this, that, the; or "a ... like this"',
  },
  {
    name: "such-as-prep",
    pattern: /\bsuch as (?:in|with|by|on|of|before|from|after|at|when|behind)\b/g,
    advice: "for example",
  },
  {
    name: "goes-on",
    pattern: /\b(?:go|goes|going|went|gone) on\b(?! (?:to|the|a) )/g,
    advice: "continue, keep (signing), resume",
  },
  {
    name: "takes-up",
    pattern: /\bt(?:akes?|aken|ook|aking) up\b(?! (?:to|too|about|\d))/g,
    advice: "pick up (a change), load (an issuer)",
  },
  {
    name: "goes-by",
    pattern: /\b(?:go|goes|going|went) by\b/g,
    advice: "follow, use",
  },
  {
    name: "keeps-to",
    pattern: /\bkeeps? to\b/g,
    advice: "respect, obey, stick to",
  },
  {
    name: "say-of",
    pattern:
      /\b(?:say|says|said|tell|tells|told|know|knows|known|hear|hears) (?:nothing |something |all )?of\b(?! course| \[)/g,
    advice: "say about, report, know about",
  },
  {
    name: "is-told",
    pattern: /\b(?:is|are|was|were|be) told\b(?! (?:to|not|that))/g,
    advice: "is reported, is shown",
  },
  {
    name: "but-for",
    pattern: /\bbut for\b/g,
    advice: "except for, apart from",
  },
  {
    name: "all-else",
    pattern:
      /\ball else\b|\ball that (?:is|it|can|was|follows|an?|the|makes|came|shows|comes|they|are|has|have|jwksd|follow)\b/g,
    advice: "everything (else)",
  },
  {
    name: "also-prep",
    pattern: /\b[Aa]lso (?:in|on|by|of|with|after|behind|when|if|where|from|without|while|before|to)\b/g,
    advice: 'even, including: "also after a crash" -> "even after a crash"',
  },
  {
    name: "anew",
    pattern: /\banew\b/g,
    advice: "again",
  },
  {
    name: "in-place-of",
    pattern: /\bin place of\b/g,
    advice: "instead of",
  },
  {
    name: "one-after",
    pattern: /\bone after the other\b/g,
    advice: "one at a time, one by one",
  },
  {
    name: "status",
    pattern: /\b(?:answers?|says?) (?:with )?(?:status )?[1-5]\d\d\b/g,
    advice: "returns 503, responds with 503",
  },
  {
    name: "as-it-is",
    pattern: /(?<!soon )(?<!long )(?<!often )(?<!much )\bas (?:it is|they are)\b(?=[.,;:)]|$)/g,
    advice: "unchanged, as is, untouched, verbatim",
  },
  {
    name: "more-members",
    pattern: /\bmore (?:members|protected|header param)/g,
    advice: "additional",
  },
  {
    name: "a-text",
    pattern:
      /\b[Aa]n? (?:long |short |empty )?text\b(?! (?:file|node|editor|field|area|element|format|frame|message))/g,
    advice: "a string; for a store: the stored document",
  },
  {
    name: "texts",
    pattern: /\b(?:the|of|in|as|their|its|these|all|long|any|two|several|messages and) texts\b(?![.([])/g,
    advice: "strings, text",
  },
  {
    name: "word",
    pattern:
      /\b(?:[Cc]onfirmed|earlier|its next|another) words?\b|\[words?\]\(|\*word\*|\bwords? with (?:the|its|their) store|(?<!the )\blast words?\b|\bthe word was sent\b|\ba word is\b/g,
    advice: "check-in (verb: check in)",
  },
  {
    name: "a-start",
    pattern:
      /\b[Aa] (?:later |new |first |next )?start (?:is|on|that|then|with|without|where|of a|publishes|succeeds|fails|may|cannot|for)\b/g,
    advice: 'a restart; or the verb: "a start is refused" -> "jwksd refuses to start"',
  },
  {
    name: "at-start",
    pattern: /\bat (?:the )?start\b(?! of)/g,
    advice: "at startup, on startup",
  },
  {
    name: "make-key",
    pattern:
      /\b[Mm](?:akes?|ade|aking) (?:(?:a|an|the|its|your|new|no|one|each|another|first|next|wrapping|P-256|ES256|signing|encryption) )*keys?\b(?! (?:stale|useless|set|manager))/g,
    advice: "generate, create",
  },
  {
    name: "under-way",
    pattern: /\bunder way\b/g,
    advice: "in flight, in progress",
  },
  {
    name: "ask-store",
    pattern:
      /\b(?:asks?|asked|asking) (?:the|its|a) (?:store|provider|database|server|members?|HSM)\b(?! (?:for|to|operator))|\b(?:store|database|provider|server|members?) (?:is|was|are) asked\b/g,
    advice: "query, read, contact, call",
  },
  {
    name: "ask-again",
    pattern: /\basks? for the set\b|\b(?:asks?|asked) again\b/g,
    advice: "refetch, retry",
  },
  {
    name: "a-look",
    pattern: /\b(?:a|each|one|every|two|first|last|next|new|this|later) looks?\b(?!-| like| up)/g,
    advice: "check, poll, fetch, pass",
  },
  {
    name: "noted",
    pattern: /\b(?:is|are|was|were) noted\b|\bnotes (?:on|in|the|it|where|that)\b/g,
    advice: "is recorded",
  },
  {
    name: "followed",
    pattern: /\b(?:has|have|had) (?:not )?followed\b(?! (?:the|a|an|by)\b)|\bnot every replica has followed\b/g,
    advice: "has caught up",
  },
  {
    name: "verifications",
    pattern: /\bverifications\b/g,
    advice: 'verification, valid tokens: "break verifications" -> "make valid tokens fail"',
  },
  {
    name: "time-out",
    pattern: /\b[Tt]ime-outs?\b/g,
    advice: "timeout",
  },
  {
    name: "newest",
    pattern: /\bnewest (?:good )?(?:copy|copies|keys|set|revision|store|commits?|text|document)\b/g,
    advice: "latest, most recent; for a store: most recent backup",
  },
  {
    name: "where-if",
    pattern:
      /\bwhere (?:there|it|nothing|nobody|no|one|none|this|these) (?:is|are|has|have|can|may|does|was|were|need|must|cannot)\b/g,
    advice: "if, when",
  },
  {
    name: "where-undefined",
    pattern: /(?:`undefined`|`false`|`Infinity`|[Mm]issing|[Ee]mpty|no value) where\b/g,
    advice: "if, when",
  },
  {
    name: "where-init",
    pattern: /(?:[.;:] |(?<!\/)\*\* |^|\/\/ )Where (?!to\b)[^.,:]{3,70},/g,
    advice: "If, When, On",
  },
  {
    name: "some-body",
    pattern: /\b(?:[Nn]o|[Ss]ome|[Aa]ny)body\b/g,
    advice: "no one, someone, anyone; better: name the actor (a caller, a client, an attacker, another process)",
  },
  {
    name: "whoever",
    pattern: /\b[Ww]hoever\b/g,
    advice: "anyone who, any process that",
  },
  {
    name: "who-test",
    pattern: /(?:test|describe)\(\s*["`][Ww]ho \w+|[.;] Who \w+s\b/g,
    advice: 'name the actor: "a caller that ..."',
  },
  {
    name: "some-n",
    pattern: /\b[Ss]ome (?:kilobytes|minutes|seconds|days|hours|forty|hundred|ten)\b/g,
    advice: "a few, about",
  },
  {
    name: "counts",
    pattern: /\b(?:wait|age|store|time|one|value|policy) counts\b|, which counts\b|\bcounts from\b/g,
    advice: "is measured from, starts at; applies, wins, takes precedence",
  },
  {
    name: "leads-to",
    pattern: /\bleads? (?:to|there)\b(?! (?:a |an )?(?:bug|error|problem|failure))/g,
    advice: "points to, resolves to",
  },
  {
    name: "let-init",
    pattern: /(?:^|[.:;] |\*\* |\d\. )Let (?:the|your|an?|it|these|no) (?!key\b)/g,
    advice: "have the server ..., configure ... to",
  },
  {
    name: "that-is-there",
    pattern: /\b(?:that|which|what) (?:is|are|was|were) (?:already )?there\b/g,
    advice: 'existing, present; "never over a key that is there" -> "never overwrites an existing key"',
  },
  {
    name: "hand-out",
    pattern: /\b(?:hands?|handed) (?:it )?(?:out|over)\b|\bgiven out\b/g,
    advice: "pass, serve, return",
  },
  {
    name: "one-that",
    pattern: /(?:^|[.:;] |\/\*\* )One (?:that|of an?|which|whose|with)\b/g,
    advice: "repeat the noun",
  },
  {
    name: "longest-due",
    pattern: /\blongest due\b/g,
    advice: "most overdue",
  },
  {
    name: "may-not",
    pattern: /\bmay not\b/g,
    advice: 'cannot, must not; "might not" for a possibility',
  },
  {
    name: "comma-and",
    pattern:
      /(?:^|[.;:] |\*\* |\* |\/\/ )(?![A-Z][a-z]+ing\b)[^.,;:|]{4,60}[\w`)], and (?:refuses|keeps|prints|publishes|reads|writes|signs|takes|makes|gives|waits|logs|says|names|checks|returns|removes|ends|goes|begins|serves|answers|stores|forgets|throws|calls|warns|retires|verifies|needs|works|uses|leaves|stays|becomes|replaces|sends|fetches|adds|lists|compares|starts|stops|finds|asks|tells|explains|escapes|shows|tries|decrypts|gets|resumes|rejects|fails|opens|closes|holds|lets|passes|looks|puts|follows|drops|changes)\b/g,
    advice: 'one subject, two verbs: no comma before "and"',
  },
  {
    name: "else",
    pattern:
      /(?:^|[.:;] |\*\* |\/\/ )Else\b(?! if)|[,;] else (?=the |that |those |it |by |in |an? |ask |answers? |every |`)/g,
    advice: "otherwise, or",
  },
  {
    name: "blanks",
    pattern: /\bblanks\b|\ba blank\b(?! line)/g,
    advice: "spaces, whitespace",
  },
  {
    name: "spelling",
    pattern:
      /(?<!-)\b(?:behaviour|colour|honour|initialis|finalis|recognis|normalis|serialis|cancell(?:ed|ing)\b|labell)\w*/g,
    advice: "American spelling, as in the identifiers and the RFCs",
  },
  {
    name: "on-npm",
    pattern: /\bregistry of npm\b|\bthose of npm\b/g,
    advice: "on npm, the npm registry",
  },
  {
    name: "table-head",
    pattern: /^\|(?:[^|]*\|)* (?:what|so|who|there) \|/g,
    advice: "a noun in the header cell: Description, Cause, Result",
  },
  {
    name: "tokens-of-key",
    pattern: /\b[Tt]okens? of (?:(?:the|a|an|its|this|each|all|two|old|new|removed|retiring) )+(?:\w+ )?keys?\b/g,
    advice: "tokens signed with the key",
  },
  {
    name: "header-of-token",
    pattern:
      /\b[Tt]he (?:alg|typ|iss|aud|jti|header|jwks|htm|htu|ath|kid|issuer) of (?:the|a|an|its) (?:token|proof|client)\b/g,
    advice: 'possessive: "the token\'s alg"',
  },
  {
    name: "from-outside",
    pattern: /\b(?:[Tt]exts?|[Ss]trings?|[Ii]nput|URLs?|[Vv]alues?|[Dd]ocuments?|hosts?) from outside\b(?! of)/g,
    advice: "external text, external input",
  },
  {
    name: "included-last",
    pattern: /, (?:\w+ ){1,3}included\b(?! in)/g,
    advice: '"including ..." before the noun',
  },
  {
    name: "life-of",
    pattern: /\bin (?:its|their) li(?:fe|ves)\b/g,
    advice: "during its life",
  },
  {
    name: "under-key",
    pattern: /\b(?:MAC|signed|computed|encrypted) under (?:a|the|its) (?:\w+ )?key derived\b/g,
    advice: "computed with a key that is derived from",
  },
  {
    name: "longest-idle-first",
    pattern: /\bthe (?:longest (?:idle|silent)|oldest|newest|latest|least recently used) first\.?(?: \*\/)?$/g,
    advice: '"oldest first", or "the one that has been idle longest comes first"',
  },
  {
    name: "doc-in-unit",
    pattern: /\/\*\* (?:In|Default:|By|With|Without) [^*]{0,30}\.? \*\//g,
    advice: "begin with a noun: Time at which ..., in epoch milliseconds; TLS options. Default: none",
  },
  {
    name: "several-times",
    pattern: /\bmay be given (?:several|many|multiple) times\b/g,
    advice: "can be repeated",
  },
  {
    name: "doc-fragment",
    pattern:
      /\/\*\* (?:What|How(?! (?:long|far|late) )|That|Who|Whose|Why|Which|Until|Since|As|By which|Of|For how|Where|When) /g,
    advice:
      "function: a verb (Returns, Reports why); property: a noun phrase (Time at which ..., Path of ...), or How long",
  },
  {
    name: "doc-same",
    pattern: /\/\*\* The same\b/g,
    advice: 'name it: "Like X, but ..."',
  },
  {
    name: "doc-gives",
    pattern: /\/\*\* (?:Gives|Tells|Says|Asks|Looks|Is told)\b|\b[Gg]ives? back\b/g,
    advice: "Returns, Reports, Fetches, Checks",
  },
  {
    name: "doc-whether",
    pattern: /\/\*\* Whether\b.*\*\//g,
    before:
      /^ *(?:(?:export )?(?:async )?function |(?:export )?const \w+ = (?:async )?(?:<[^>]*>)?\(|[a-z]\w*(?:<[^>]*>)?\()/,
    advice: "a function: Reports whether ...",
  },
];

/** Lines that may contain a phrase. */
export const accepted: readonly { readonly file: string; readonly text: string; readonly reason: string }[] = [
  {
    file: "test/docs/prose.test.ts",
    text: "The kid is that of the JWK",
    reason: "a sentence that the check must find",
  },
  { file: "test/docs/prose.test.ts", text: '"that of"', reason: "the phrase that the check must find" },
  { file: "test/docs/prose.test.ts", text: '["for ever"]', reason: "the phrase that the check must find" },
  { file: "test/support/pkcs11-shim/shim.c", text: "&beside", reason: "a function's name" },
];
