/*
 * A process is a cache of the store: it is ready and signs only on what it read after a confirmed check-in with the store that is less
 * than F old. One rotation from key 1 to key 2, which an operator may roll back, and then forward again; the issuer may end at any moment.
 * Combined with one of these: a failover that leaves the old primary running, policies that change F, or a revocation of all keys.
 * README.md in this folder describes how to run the model, and why its omissions are sound.
 *
 * Time passes in ticks. No process ever has to act: a process that is frozen, cut off or dead does nothing, and its data only gets older.
 */
#ifndef PROCESSES
#define PROCESSES 2
#endif
#define LONG_STALE 2   /* the larger F of the policies */
#define SHORT_STALE 1
#define CACHE 2        /* how long caches keep a set outside rotation mode */
#define SHORT 1        /* and in rotation mode */
#define TOKEN 2        /* token lifetime */
#ifndef OPERATOR
#define OPERATOR true  /* whether an operator rolls back and decommissions the issuer */
#endif
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
#define BACK_KEEPS_WAIT 8
#define BACK_TO_REMOVED_KEY 9
#define DECOMMISSION_KEEPS_WAIT 10
#define DECOMMISSION_KEEPS_ANNOUNCED_KEY 11
#define NOTHING 0
#ifndef CHANGE
#define CHANGE NOTHING
#endif

/* States that the search must reach: -DNEVER=... */
#define A_ROTATION_ENDS (doc == KEY_2 && backs == 0)
#define A_ROLLBACK_ENDS (doc == KEY_1 && backs == 1)
#define A_ROLLBACK_IS_ROLLED_BACK (doc == KEY_2 && backs == 2)
#define AN_ISSUER_ENDS (doc == NONE && !revoked && backs == 2)
#define AN_OLD_PRIMARY_IS_BELIEVED (failedOver && isFresh(0) && version[0] < latest)
#define AN_EARLIER_POLICY_IS_FOLLOWED (isFresh(0) && mine[0] > stale)
#define A_REVOCATION_IS_SHORT (revoked && cached == SHORT)
#ifndef NEVER
#define NEVER false
#endif

#define FAR 5          /* stands for forever; longer than any waiting period */
#define UNSEEN 6       /* no read has seen the step of this key yet */
/* A document: 1 and 2 for the published keys, plus 4 times the key that signs. */
#define KEY_1 (1 + 4)
#define BOTH_1 (3 + 4)          /* key 2 is announced, or is retiring after a rollback */
#define BOTH_2 (3 + 8)          /* key 1 is retiring */
#define KEY_2 (2 + 8)
#define NONE 0
#define has(d, key) ((d & key) != 0)
#define signer(d) (d >> 2)
#define rotates(d) ((d & 3) != signer(d) || d == NONE)
#define older(x) x = (x < FAR -> x + 1 : x)
#define less(x) x = (x > 0 -> x - 1 : 0)

byte with;                              /* the event during the rotation */
/* The store: its document and version, and how long ago a read first saw that a key is announced or retiring. */
byte doc = KEY_1, latest, backs; bool announced, decommissioned, revoked;
byte since[3];
byte stale, noted;                      /* the policy's F, and the largest F of any policy during a key's life */
byte modeSince; bool modeSeen;          /* how long ago a read first saw rotation mode on */
byte decommissionedFor;                        /* how long ago the issuer was decommissioned, or its keys were revoked */
byte followed, cached;                  /* how long ago the last ready process read that, and how long cached sets live from then */
bool failedOver; byte oldDoc, oldVersion;     /* the old primary keeps its data and accepts no writes */
/* Each process: what it has read, the F in it, and the age of its last check-in. */
byte mine[PROCESSES], version[PROCESSES], stored[PROCESSES], age[PROCESSES];
byte askedVersion[PROCESSES], askedDoc[PROCESSES], signing[PROCESSES];   /* only in two changed models: a reply or a signature in flight */
byte copy, copyLeft;                    /* what a cache has, and how long it keeps that */
byte token, tokenLeft;                  /* a token's key, and its remaining lifetime */

#define isFresh(i) (age[i] <= mine[i])
#define maySign(i) (signer(stored[i]) != 0 && age[i] < FAR && (CHANGE == SIGNS_WHILE_STALE || isFresh(i)))
#define mayPublish(i) (age[i] < FAR && (CHANGE == PUBLISHES_WHILE_STALE || isFresh(i)))
#define isBehind(i) (mayPublish(i) && stored[i] != NONE)
#define longestStale (CHANGE == WAIT_USES_NEW_POLICY -> stale : noted)
#define isConnected(i) (!(failedOver && i == 0))     /* process 0 stays with the old primary */
#define mayWrite(i) (isConnected(i) && age[i] < FAR && version[i] == latest)   /* compare-and-set, however long after the read */
#define isOver(key, wait) (since[key] != UNSEEN && since[key] >= wait)
#define begun(i) (CHANGE == WAIT_STARTS_AT_EARLIER_READ -> age[i] : UNSEEN)
/* Only in two changed models, a key keeps the time of a waiting period while it signs. Otherwise it is left out, so that equal states are one. */
#define keepsWait (CHANGE == BACK_KEEPS_WAIT || CHANGE == DECOMMISSION_KEEPS_WAIT)
#define kept(key) (keepsWait -> since[key] : 0)
#define isWaiting(key) (has(doc, key) && signer(doc) != key)
#define begins(key) (CHANGE == DECOMMISSION_KEEPS_WAIT && since[key] -> since[key] : (has(doc, key) -> UNSEEN : 0))

/* A commit. A version is never used twice. */
inline take(next) { doc = next; latest++ }
inline read(i) { stored[i] = doc; version[i] = latest; mine[i] = stale; age[i] = 0; check() }
/* Nothing is signed once every process must have read that the issuer was decommissioned. */
inline sign(key) { assert(!decommissioned || decommissionedFor <= noted); token = key; tokenLeft = TOKEN; check() }

inline check() {
  assert(!(NEVER));
  if
  :: !revoked ->   /* every verifier that gets a token gets its key */
    assert(tokenLeft == 0 || copyLeft == 0 || has(copy, token));
    j = 0; do :: j < PROCESSES -> assert(tokenLeft == 0 || !mayPublish(j) || has(stored[j], token)); j++ :: else -> break od
  :: else ->   /* every cache that may still trust a revoked key was taken into account */
    assert(followed < cached || copyLeft == 0 || copy == NONE);
    j = 0; do :: j < PROCESSES -> assert(decommissionedFor <= noted || !isBehind(j)); j++ :: else -> break od
  fi; j = 0
}

active proctype World() {
  byte i = 0, j = 0;
  d_step { do :: i < PROCESSES -> age[i] = FAR; i++ :: else -> break od; i = 0 }
  if :: with = FAILOVER :: with = REVOCATION :: with = POLICY fi;
  stale = (with == POLICY -> SHORT_STALE : LONG_STALE); noted = stale;
  do
  :: d_step {   /* a tick */
    older(followed); less(copyLeft); less(tokenLeft);
    if :: decommissioned -> older(decommissionedFor) :: else fi;
    if :: isWaiting(1) || keepsWait && since[1] -> older(since[1]) :: else fi;
    if :: isWaiting(2) || keepsWait && since[2] -> older(since[2]) :: else fi;
    if :: modeSeen -> older(modeSince) :: else fi;
    do :: j < PROCESSES -> older(age[j]); if :: !revoked || isBehind(j) -> followed = 0 :: else fi; j++
    :: else -> break od; j = 0;
    check() }
  :: with == FAILOVER && !failedOver -> d_step { failedOver = true; oldDoc = doc; oldVersion = latest }
  :: d_step { with == POLICY -> stale = SHORT_STALE + LONG_STALE - stale; noted = (noted > stale -> noted : stale) }
  /* An operator's commands, after any read. A rollback makes the retiring key active; the other key's waiting period begins. */
  :: d_step { OPERATOR && doc == BOTH_2 && backs < 2 -> take(BOTH_1); backs++; since[1] = kept(1); since[2] = UNSEEN; modeSeen = false }
  :: d_step { OPERATOR && doc == BOTH_1 && !announced && backs < 2 -> take(BOTH_2); backs++; since[2] = kept(2); modeSeen = false;
    if :: CHANGE != BACK_KEEPS_WAIT -> since[1] = UNSEEN :: else fi }
  :: d_step { CHANGE == BACK_TO_REMOVED_KEY && doc == KEY_2 && backs == 0 -> take(BOTH_1); backs++; since[2] = UNSEEN }
  /* The issuer ends: an announced key is removed, and the waiting periods of the others begin. */
  :: d_step { OPERATOR && !decommissioned -> decommissioned = true;
    if :: announced && CHANGE != DECOMMISSION_KEEPS_ANNOUNCED_KEY -> take(1); announced = false :: else -> take(doc & 3) fi;
    since[1] = begins(1); since[2] = begins(2) }
  :: d_step { with == REVOCATION && !revoked ->
    cached = (rotates(doc) && modeSeen && modeSince >= MODE_ON -> SHORT : CACHE);
    take(NONE); announced = false; since[1] = 0; since[2] = 0; revoked = true; decommissioned = true; decommissionedFor = 0 }
  :: atomic { i = 0; do :: i < PROCESSES - 1 -> i++ :: break od;
    if
    :: d_step { isConnected(i) && CHANGE != AGE_STARTS_AT_REPLY -> read(i) }
    :: d_step { CHANGE == AGE_STARTS_AT_REPLY && isConnected(i) && !askedDoc[i] -> askedDoc[i] = doc + 1; askedVersion[i] = latest }
    :: d_step { CHANGE == AGE_STARTS_AT_REPLY && askedDoc[i] ->
      stored[i] = askedDoc[i] - 1; version[i] = askedVersion[i]; mine[i] = stale; age[i] = 0; askedDoc[i] = 0; check() }
    /* A plain read from the old primary: the data is used but is not a check-in. */
    :: d_step { !isConnected(i) && oldVersion >= version[i] && age[i] < FAR ->
      stored[i] = oldDoc; version[i] = oldVersion; if :: CHANGE == PLAIN_READ_IS_A_CHECK_IN -> age[i] = 0 :: else fi; check() }
    :: d_step { maySign(i) && CHANGE != TOKEN_STARTS_AT_REPLY -> sign(signer(stored[i])) }
    :: d_step { CHANGE == TOKEN_STARTS_AT_REPLY && maySign(i) && !signing[i] -> signing[i] = signer(stored[i]) }
    :: d_step { signing[i] > 0 -> sign(signing[i]); signing[i] = 0 }
    :: d_step { mayPublish(i) -> copy = stored[i]; copyLeft = (rotates(stored[i]) -> SHORT : CACHE); check() }
    /* A read that has seen the step starts its waiting period, at the time of that read, whenever this is written. */
    :: d_step { mayWrite(i) && (since[1] == UNSEEN || since[2] == UNSEEN) ->
      since[1] = (since[1] == UNSEEN -> age[i] : since[1]); since[2] = (since[2] == UNSEEN -> age[i] : since[2]);
      if :: with == REVOCATION && !modeSeen -> modeSeen = true; modeSince = age[i] :: else fi }
    :: d_step { mayWrite(i) && doc == KEY_1 && backs == 0 -> take(BOTH_1); announced = true; since[2] = begun(i) }
    :: d_step { mayWrite(i) && announced && isOver(2, ANNOUNCE) ->
      take((doc & 3) + 8); announced = false; since[2] = 0; since[1] = (has(doc, 1) -> begun(i) : 0) }
    :: d_step { mayWrite(i) && isWaiting(1) && isOver(1, RETIRE) -> take(doc - 1); since[1] = 0;
      if :: !rotates(doc) -> modeSeen = false :: else fi }
    :: d_step { mayWrite(i) && isWaiting(2) && !announced && isOver(2, RETIRE) -> take(doc - 2); since[2] = 0;
      if :: !rotates(doc) -> modeSeen = false :: else fi }
    :: else
    fi; i = 0 }
  od
}
