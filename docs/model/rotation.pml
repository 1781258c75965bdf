/*
 * A process is a cache of the store: it is ready and signs only on what it read after a confirmed check-in with the store that is less
 * than F old. One rotation from key 1 to key 2, combined with one of these: a failover that leaves the old primary running, policies that
 * change F, or a revocation. README.md in this folder describes how to run the model, and why its omissions are sound.
 *
 * Time passes in ticks. No process ever has to act: a process that is frozen, cut off or dead does nothing, and its data only gets older.
 */
#ifndef PROCESSES
#define PROCESSES 2
#endif
#define LONG_STALE 2   /* the larger F of the policies */
#define SHORT_STALE 1
#define CACHE 2        /* how long caches keep a set from the long mode */
#define SHORT 1        /* and one from rotation mode */
#define TOKEN 2        /* token lifetime */
#ifndef ANNOUNCE
#define ANNOUNCE (longestStale + CACHE)
#endif
#ifndef RETIRE
#define RETIRE (longestStale + TOKEN)
#endif
#ifndef MODE_ON
#define MODE_ON (noted + CACHE)   /* how long rotation mode is on until every cached set is from it */
#endif

/* Events during the rotation. Each is searched separately, which keeps the search short. */
#define FAILOVER 1
#define POLICY 2
#define REVOCATION 3

/* Changed models, each of which violates an assertion: -DCHANGE=... */
#define SIGNS_WHILE_STALE 1
#define PUBLISHES_WHILE_STALE 2
#define AGE_STARTS_AT_REPLY 3
#define TOKEN_STARTS_AT_REPLY 4
#define WAIT_STARTS_AT_EARLIER_READ 5
#define PLAIN_READ_IS_A_CHECK_IN 6
#define WAIT_USES_NEW_POLICY 7
#define NOTHING 0
#ifndef CHANGE
#define CHANGE NOTHING
#endif

/* States that the search must reach: -DNEVER=... */
#define A_ROTATION_ENDS (step == REMOVED)
#define AN_OLD_PRIMARY_IS_BELIEVED (failedOver && isFresh(0) && doc[0] < step)
#define AN_EARLIER_POLICY_IS_FOLLOWED (isFresh(0) && mine[0] > stale)
#define A_REVOCATION_IS_SHORT (step == REVOKED && cached == SHORT)
#ifndef NEVER
#define NEVER false
#endif

#define FAR 5          /* stands for forever; longer than any waiting period */
#define NEW 0          /* the steps: key 1 signs */
#define ANNOUNCED 1    /* key 2 is published too */
#define RETIRING 2     /* key 2 signs */
#define REMOVED 3      /* key 1 is no longer published */
#define REVOKED 4      /* no key is published */
#define has(doc, key) ((key == 1 && doc < REMOVED) || (key == 2 && doc > NEW && doc < REVOKED))
#define signer(doc) (doc < RETIRING -> 1 : 2)
#define rotates(doc) (doc == ANNOUNCED || doc == RETIRING)
#define older(x) x = (x < FAR -> x + 1 : x)
#define less(x) x = (x > 0 -> x - 1 : 0)

byte with;                              /* the event during the rotation */
/* The store: its last step, whether a read has seen it, and how long ago that was. */
byte step = NEW, since = FAR; bool seen;
byte stale, noted;                      /* the policy's F, and the largest F of any policy during a key's life */
byte modeSince; bool modeSeen;          /* how long ago a read first saw rotation mode on */
byte revokedSince = FAR;                /* how long ago the keys were revoked */
byte followed, cached;                  /* how long ago the last ready process read that, and how long cached sets live from then */
bool failedOver; byte oldStep;          /* the old primary keeps its data and accepts no writes */
/* Each process: what it has read, the F in it, and the age of its last check-in. */
byte doc[PROCESSES], mine[PROCESSES], age[PROCESSES];
byte asking[PROCESSES], signing[PROCESSES];   /* only in two changed models: a reply or a signature in flight */
byte copy, copyLeft;                    /* what a cache has, and how long it keeps that */
byte token, tokenLeft;                  /* a token's key, and its remaining lifetime */

#define isFresh(i) (age[i] <= mine[i])
#define maySign(i) (doc[i] < REVOKED && age[i] < FAR && (CHANGE == SIGNS_WHILE_STALE || isFresh(i)))
#define mayPublish(i) (age[i] < FAR && (CHANGE == PUBLISHES_WHILE_STALE || isFresh(i)))
#define isBehind(i) (mayPublish(i) && doc[i] < REVOKED)
#define longestStale (CHANGE == WAIT_USES_NEW_POLICY -> stale : noted)
#define isConnected(i) (!(failedOver && i == 0))     /* process 0 stays with the old primary */
#define mayWrite(i) (isConnected(i) && age[i] < FAR && doc[i] == step)   /* compare-and-set, however long after the read */

inline take(next) {
  step = next; seen = false; since = FAR;
  if :: CHANGE == WAIT_STARTS_AT_EARLIER_READ -> seen = true; since = age[i] :: else fi
}

inline check() {
  assert(!(NEVER));
  if
  :: step < REVOKED ->   /* every verifier that gets a token gets its key */
    assert(tokenLeft == 0 || copyLeft == 0 || has(copy, token));
    j = 0; do :: j < PROCESSES -> assert(tokenLeft == 0 || !mayPublish(j) || has(doc[j], token)); j++ :: else -> break od
  :: else ->   /* every cache that may still trust a revoked key was taken into account */
    assert(followed < cached || copyLeft == 0 || copy == REVOKED);
    j = 0; do :: j < PROCESSES -> assert(revokedSince <= noted || !isBehind(j)); j++ :: else -> break od
  fi; j = 0
}

active proctype World() {
  byte i = 0, j = 0;
  d_step { do :: i < PROCESSES -> age[i] = FAR; i++ :: else -> break od; i = 0 }
  if :: with = FAILOVER :: with = REVOCATION :: with = POLICY fi;
  stale = (with == POLICY -> SHORT_STALE : LONG_STALE); noted = stale;
  do
  :: d_step {   /* a tick */
    older(since); older(revokedSince); older(followed); less(copyLeft); less(tokenLeft);
    if :: modeSeen -> older(modeSince) :: else fi;
    do :: j < PROCESSES -> older(age[j]); if :: step < REVOKED || isBehind(j) -> followed = 0 :: else fi; j++
    :: else -> break od; j = 0;
    check() }
  :: with == FAILOVER && !failedOver -> d_step { failedOver = true; oldStep = step }
  :: d_step { with == POLICY -> stale = SHORT_STALE + LONG_STALE - stale; noted = (noted > stale -> noted : stale) }
  :: d_step { with == REVOCATION && step < REVOKED ->   /* an operator revokes both keys, after any read */
    cached = (rotates(step) && modeSince >= MODE_ON -> SHORT : CACHE); step = REVOKED; revokedSince = 0 }
  :: atomic { i = 0; do :: i < PROCESSES - 1 -> i++ :: break od;
    if
    :: d_step { isConnected(i) && CHANGE != AGE_STARTS_AT_REPLY -> doc[i] = step; mine[i] = stale; age[i] = 0; check() }
    :: d_step { CHANGE == AGE_STARTS_AT_REPLY && isConnected(i) && !asking[i] -> asking[i] = step + 1 }
    :: d_step { CHANGE == AGE_STARTS_AT_REPLY && asking[i] ->
      doc[i] = asking[i] - 1; mine[i] = stale; age[i] = 0; asking[i] = 0; check() }
    /* A plain read from the old primary: the data is used but is not a check-in. */
    :: d_step { !isConnected(i) && oldStep >= doc[i] && age[i] < FAR ->
      doc[i] = oldStep; if :: CHANGE == PLAIN_READ_IS_A_CHECK_IN -> age[i] = 0 :: else fi; check() }
    :: d_step { maySign(i) && CHANGE != TOKEN_STARTS_AT_REPLY -> token = signer(doc[i]); tokenLeft = TOKEN; check() }
    :: d_step { CHANGE == TOKEN_STARTS_AT_REPLY && maySign(i) && !signing[i] -> signing[i] = signer(doc[i]) }
    :: d_step { signing[i] > 0 -> token = signing[i]; tokenLeft = TOKEN; signing[i] = 0; check() }
    :: d_step { mayPublish(i) -> copy = doc[i]; copyLeft = (rotates(doc[i]) -> SHORT : CACHE); check() }
    /* A read that has seen the step starts its waiting period, at the time of that read, whenever this is written. */
    :: d_step { mayWrite(i) && !seen && rotates(step) -> seen = true; since = age[i];
      if :: with == REVOCATION && step == ANNOUNCED -> modeSeen = true; modeSince = age[i] :: else fi }
    :: d_step { mayWrite(i) && step == NEW -> take(ANNOUNCED) }
    :: d_step { mayWrite(i) && step == ANNOUNCED && seen && since >= ANNOUNCE -> take(RETIRING) }
    :: d_step { mayWrite(i) && step == RETIRING && seen && since >= RETIRE -> take(REMOVED) }
    :: else
    fi; i = 0 }
  od
}
