/* The barrier between replicas; README.md beside this file tells how to run it, and why it may leave out what it does.
 *
 * Key A signs. B is announced, published by all, activated. A retires, is used by nobody, is removed.
 * Then B takes A's name, and the next rotation begins: the search covers any number of rotations.
 *
 * Each option of the loop at the end may be taken at any time, or never. So a call that is not answered, a cut
 * network, a paused process, a lag and a store that is away are all the same here: nothing happens for a while.
 */

/* Durations in ticks. Each wait has its exact bound: one tick less is found wrong. */
#ifndef LEASE
#define LEASE 3         /* leaseSeconds, by the monotonic clock of whoever takes a step */
#endif
#ifndef REPLICAS
#define REPLICAS 3      /* or 2, for a look that is short */
#endif
#define DRIFT 1         /* what the slowest clock of a replica loses in one lease */
#define MARGIN 1        /* a replica ends its lease so much before the others do */
#define CACHE 2         /* life of a cached copy of the set */
#define TOKEN 1         /* longest life of a token */
#define SKEW 1          /* most that a clock of a signer or a verifier is off */
#define UNLEASED 1      /* who signs without a lease does so within this time of the read */
#define LIFE (TOKEN + 2 * SKEW)
#ifndef ANNOUNCE
#define ANNOUNCE CACHE  /* announceFor, counted from publishedAt */
#endif
#ifndef RETIRE
#define RETIRE (LIFE + UNLEASED)  /* retireFor, counted from unusedAt */
#endif

/* Changed models: -DCHANGE=NAME breaks one rule of the protocol. */
#define ACKNOWLEDGES_BEFORE_PUBLISHING 1
#define COMMITS_WITHOUT_CHECK 2         /* the leases were read at some time before */
#define LEASE_IS_LONGER_AT_REPLICA 3    /* no margin for a slow clock */
#define COUNTS_FROM_CONFIRMATION 4      /* instead of from sending */
#define SIGNS_BEFORE_LEASE 5            /* with the key that is active, before its lease names the key */
#define RENEWS_ENDED_LEASE 6
#define REMOVAL_COUNTS_FROM_ACTIVATION 7
#define ANNOUNCEMENT_COUNTS_FROM_COMMIT 8
#define READY_BEFORE_LOADING 9          /* with the set that it has kept */
#define LOADS_BEFORE_JOINING 10
#define ACTIVATES_BY_PLAN 11            /* without the store */
#define REMOVES_BY_PLAN 12              /* without the store */
#define NO_FENCE 13                     /* signs when its lease has ended */
#define ADDS_KEY_AT_ANY_REVISION 14     /* to its lease, although the store has moved on */
#define RENEWALS_OVERTAKE 15            /* one that was given up arrives after a later one */
#define LEASES_VANISH 16                /* a failover loses them, or a clock ends them that was set */
#define ENDS_RENEWED_LEASE 17           /* counts from when a lease was first seen, not from its last renewal */
#define LEAVES_BEFORE_IT_STOPS 18       /* ends its lease, and goes on until it hears that */
#define DRAINS_WITHOUT_LEASE 19         /* ends what it had begun with A, and its lease names A no more */
#define NOTHING 0
#ifndef CHANGE
#define CHANGE NOTHING
#endif
#define CHANGED(name) (CHANGE == name)

/* Steps of the rotation. */
#define STEADY 0        /* {A}     A signs */
#define ANNOUNCED 1     /* {A, B}  A signs */
#define PUBLISHED 2     /* {A, B}  A signs; publishedAt is set */
#define ACTIVATED 3     /* {A, B}  B signs */
#define UNUSED 4        /* {A, B}  B signs; unusedAt is set */
#define REMOVED 5       /* {B}     B signs */

/* What a replica has loaded and publishes. To load and to publish is one step: until all its workers and targets have
 * the new set, a replica counts as one that has not loaded it. */
#define SET_A 0         /* {A}     A signs */
#define SET_AB 1        /* {A, B}  A signs */
#define SET_BA 2        /* {A, B}  B signs */
#define SET_B 3         /* {B}     B signs */
#define STORED (step == STEADY -> SET_A : (step <= PUBLISHED -> SET_AB : (step <= UNUSED -> SET_BA : SET_B)))

#define NONE 0
#define A 1
#define B 2
#define ACTIVE(set) (set <= SET_AB -> A : B)

#define OUT 0           /* no process, or one that has not joined */
#define JOINED 1        /* has a lease, has not loaded */
#define LOADED 2        /* publishes, is not ready */
#define READY 3         /* the store has confirmed what it publishes; while its lease lasts it is ready, and signs */

typedef Replica {
  /* The process. */
  unsigned state : 2;
  unsigned set : 2;
  unsigned kid : 2;     /* signs with this key */
  bit drains;           /* and with A, for requests that began with it */
  unsigned own : 3;     /* ticks until it stops, by its own clocks */
  bit asked;            /* the store has renewed the lease; the answer is under way, or lost */
  unsigned late : 2;    /* RENEWALS_OVERTAKE: a renewal under way, 1 + its kid */
  /* Its lease in the store. */
  unsigned until : 3;   /* ticks until somebody may have seen it without a renewal for as long as it lasts */
  bit publishes;        /* a revision that has B */
  bit signsA;
  bit signsB
};

Replica r[REPLICAS];
unsigned step : 3;
unsigned wait : 3;      /* ticks until activateAt or removeAt */
bit sawAllPublish, sawNoneSignsA;        /* COMMITS_WITHOUT_CHECK: what was read */

/* What is out in the world, for the laws alone. Whoever may sign does so all the time. */
unsigned tokenA : 3;    /* ticks that the youngest token of A lives */
unsigned withoutB : 2;  /* ticks that the youngest copy without B lives */
unsigned readA : 2;     /* ticks that somebody without a lease may sign with A, who has read that A is active */
bit tokenB;             /* there are tokens of B */

#if REPLICAS == 3
#define ANY(is) (is(0) || is(1) || is(2))
#define SORTED SORT(0, 1) SORT(1, 2) SORT(0, 1)
#define ANY_N n = 0 :: DIFFER(0, 1) -> n = 1 :: DIFFER(1, 2) -> n = 2
#else
#define ANY(is) (is(0) || is(1))
#define SORTED SORT(0, 1)
#define ANY_N n = 0 :: DIFFER(0, 1) -> n = 1
#endif
#define LIVE(n) (r[n].until > 0)
#define IS_READY(n) (r[n].state == READY && r[n].own > 0)
#define LACKS_A(n) (IS_READY(n) && r[n].set == SET_B)
#define LACKS_B(n) (IS_READY(n) && r[n].set == SET_A)
#define MAY_SIGN(n) (r[n].own > 0 || CHANGED(NO_FENCE))
#define SIGNS_A(n) ((r[n].kid == A || r[n].drains) && MAY_SIGN(n))
#define SIGNS_B(n) (r[n].kid == B && MAY_SIGN(n))
#define SOMEBODY_SIGNS_A (ANY(SIGNS_A) || readA > 0)
#define SOMEBODY_SIGNS_B (ANY(SIGNS_B) || step >= ACTIVATED)
#define NOT_ACKNOWLEDGED(n) (LIVE(n) && !r[n].publishes)
#define LEASE_WITH_A(n) (LIVE(n) && r[n].signsA)

/* States that must be met, else the model is right because nothing happens: -DNEVER=NAME is found wrong. */
#define A_ROTATION_ENDS (step == REMOVED)
#define FENCED(n) (r[n].state == READY && r[n].kid != NONE && r[n].own == 0)
#define A_REPLICA_IS_FENCED ANY(FENCED)
#define DEAD(n) (r[n].state == OUT && LEASE_WITH_A(n))
#define A_DEAD_REPLICA_DELAYS_A_STEP (step == ACTIVATED && ANY(DEAD))
#define BOTH_KEYS_SIGN (ANY(SIGNS_A) && ANY(SIGNS_B))
#define DRAINS(n) (r[n].drains && MAY_SIGN(n) && step == ACTIVATED)
#define A_REPLICA_DRAINS ANY(DRAINS)
#define LAGS(n) (IS_READY(n) && r[n].set == SET_AB)
#define A_READY_REPLICA_LAGS_TO_THE_END (step == REMOVED && ANY(LAGS))
#ifndef NEVER
#define NEVER false
#endif

/* The two promises, after every step. */
inline laws() {
  if :: step < ACTIVATED -> readA = UNLEASED :: else fi;
  if :: SOMEBODY_SIGNS_A -> tokenA = LIFE :: else fi;
  if :: SOMEBODY_SIGNS_B -> tokenB = 1 :: else fi;
  if :: ANY(LACKS_B) -> withoutB = CACHE :: else fi;
  assert(tokenA == 0 || !ANY(LACKS_A));         /* 1: every ready replica publishes a key that signs, */
  assert(!tokenB || withoutB == 0);             /*    and so do the copies that they have served */
  assert(tokenA == 0 || step != REMOVED);       /* 2: no key is removed that signs, or has a token */
  assert(!(NEVER));
  forget_and_sort()
}

/* What nobody can use any more is forgotten. Replicas are alike: of their orders one is kept. */
inline forget_and_sort() {
  for (i : 0 .. REPLICAS - 1) {
    if
    :: !LIVE(i) ->
      r[i].publishes = 0; r[i].signsA = 0; r[i].signsB = 0;
      if :: r[i].own == 0 && !CHANGED(RENEWS_ENDED_LEASE) && !CHANGED(NO_FENCE) -> ends(i) :: else fi
    :: else
    fi
  }
  c_code {
#define SORT(x, y) \
    if (memcmp(&now.r[x], &now.r[y], sizeof now.r[x]) > 0) { \
      struct Replica other = now.r[x]; now.r[x] = now.r[y]; now.r[y] = other; }
    SORTED
  }
  for (i : 0 .. REPLICAS - 1) {
    printf("    %d: state %d set %d kid %d own %d | until %d publishes %d signsA %d signsB %d\n", i, r[i].state, r[i].set,
           r[i].kid, r[i].own, r[i].until, r[i].publishes, r[i].signsA, r[i].signsB)
  }
  i = 0
}

inline ends(n) {
  r[n].state = OUT; r[n].kid = NONE; r[n].drains = 0; r[n].own = 0; r[n].asked = 0; r[n].late = 0;
  r[n].set = (CHANGED(READY_BEFORE_LOADING) || CHANGED(LOADS_BEFORE_JOINING) -> r[n].set : SET_A)
}

/* The process is gone; its lease stays until it ends. */
inline dies(n) {
  r[n].state != OUT -> ends(n)
}

/* The same in order: it ends its lease itself. */
inline leaves(n) {
  r[n].state != OUT ->
  if :: !CHANGED(LEAVES_BEFORE_IT_STOPS) -> ends(n) :: else fi;
  r[n].until = 0
}

/* A new process, or one that has stopped signing, makes a new lease. */
inline joins(n) {
  r[n].own == 0 ->
  ends(n);
  r[n].state = (CHANGED(READY_BEFORE_LOADING) -> READY : (CHANGED(LOADS_BEFORE_JOINING) -> LOADED : JOINED));
  r[n].own = LEASE - MARGIN + DRIFT;
  r[n].until = LEASE; r[n].publishes = 0; r[n].signsA = 0; r[n].signsB = 0
}

inline loads(n) {
  (r[n].state == JOINED || r[n].set != STORED) && (r[n].own > 0 || CHANGED(LOADS_BEFORE_JOINING)) ->
  r[n].set = STORED;
  r[n].state = (r[n].state == JOINED -> LOADED : r[n].state);
  r[n].kid = (CHANGED(SIGNS_BEFORE_LEASE) -> ACTIVE(r[n].set) : r[n].kid)
}

/* The store renews the lease. A request takes no time: one that takes long leaves its replica less of the lease.
 * The replica adds the key that it wants to sign with, if the store's revision is the one that it publishes. */
#define ADDS(n, key) (ACTIVE(r[n].set) == key && (r[n].set == STORED || CHANGED(ADDS_KEY_AT_ANY_REVISION)))
inline renews(n) {
  r[n].state >= LOADED && (LIVE(n) || CHANGED(RENEWS_ENDED_LEASE)) ->
  r[n].asked = 1;
  r[n].until = (CHANGED(ENDS_RENEWED_LEASE) -> r[n].until : LEASE);
  r[n].own = (CHANGED(ENDS_RENEWED_LEASE) -> LEASE - MARGIN + DRIFT : r[n].own);
  r[n].publishes = ((CHANGED(ACKNOWLEDGES_BEFORE_PUBLISHING) -> STORED : r[n].set) >= SET_AB);
  r[n].signsA = (r[n].kid == A || r[n].drains && !CHANGED(DRAINS_WITHOUT_LEASE) || ADDS(n, A));
  r[n].signsB = (r[n].kid == B || ADDS(n, B))
}

/* The answer comes, after any time. The replica counts by its own clock, which may be slow. */
inline hears(n, drift) {
  r[n].asked ->
  r[n].asked = 0;
  left = (CHANGED(COUNTS_FROM_CONFIRMATION) -> LEASE : r[n].until);
  left = left + drift - (CHANGED(LEASE_IS_LONGER_AT_REPLICA) -> 0 : MARGIN);
  r[n].own = (left > r[n].own -> left : r[n].own);
  r[n].state = READY;
  r[n].drains = (r[n].drains || r[n].kid == A && r[n].signsB);
  r[n].kid = (r[n].signsB -> B : (r[n].signsA -> A : r[n].kid));
  left = 0
}

/* The drain is over after any time: until the next renewal, the lease still names A. */
inline stops_draining(n) {
  r[n].drains -> r[n].drains = 0
}

/* A step of the rotation: by anybody, under compare-and-set. */
#define ALL_PUBLISH (CHANGED(COMMITS_WITHOUT_CHECK) -> sawAllPublish : \
                     !ANY(NOT_ACKNOWLEDGED) || CHANGED(ANNOUNCEMENT_COUNTS_FROM_COMMIT))
#define NONE_SIGNS_A (CHANGED(COMMITS_WITHOUT_CHECK) -> sawNoneSignsA : \
                      !ANY(LEASE_WITH_A) || CHANGED(REMOVAL_COUNTS_FROM_ACTIVATION))
#define MAY_STEP (step == STEADY || step == ANNOUNCED && ALL_PUBLISH || step == PUBLISHED && wait == 0 || \
                  step == ACTIVATED && NONE_SIGNS_A || step == UNUSED && wait == 0)
inline takes_step() {
  MAY_STEP ->
  step++;
  wait = (step == PUBLISHED || step == ANNOUNCED && CHANGED(ACTIVATES_BY_PLAN) -> ANNOUNCE :
          (step == UNUSED || step == ACTIVATED && CHANGED(REMOVES_BY_PLAN) -> RETIRE : 0))
}

inline next_rotation() {
  step == REMOVED ->
  step = STEADY; tokenB = 0; sawAllPublish = 0; sawNoneSignsA = 0;
  for (i : 0 .. REPLICAS - 1) {
    r[i].set = SET_A;
    r[i].kid = (r[i].kid == B -> A : NONE);
    r[i].drains = 0;
    r[i].late = (r[i].late > 1 -> r[i].late - 1 : r[i].late);
    r[i].publishes = 0; r[i].signsA = r[i].signsB; r[i].signsB = 0
  }
}

/* Signatures and replies happen up to the very end of a tick. */
#define LESS(ticks) (ticks > 0 -> ticks - 1 : 0)
inline time_passes() {
  tokenA = (SOMEBODY_SIGNS_A -> tokenA : LESS(tokenA));
  withoutB = (ANY(LACKS_B) -> withoutB : LESS(withoutB));
  readA = LESS(readA);
  wait = LESS(wait);
  for (i : 0 .. REPLICAS - 1) { r[i].own = LESS(r[i].own); r[i].until = LESS(r[i].until) }
}

/* What only changed models do. */
inline reads_leases() {
  CHANGED(COMMITS_WITHOUT_CHECK) ->
  sawAllPublish = !ANY(NOT_ACKNOWLEDGED); sawNoneSignsA = !ANY(LEASE_WITH_A)
}

inline acts_by_plan(n) {
  wait == 0 && IS_READY(n) &&
    (CHANGED(ACTIVATES_BY_PLAN) && step == ANNOUNCED && r[n].set == SET_AB && r[n].kid == A ||
     CHANGED(REMOVES_BY_PLAN) && step == ACTIVATED && r[n].set == SET_BA) ->
  if :: r[n].set == SET_AB -> r[n].kid = B :: else -> r[n].set = SET_B fi
}

inline renews_late(n) {
  CHANGED(RENEWALS_OVERTAKE) && r[n].state >= LOADED && r[n].own > 0 && r[n].late == 0 -> r[n].late = 1 + r[n].kid
}

inline late_renewal_arrives(n) {
  r[n].late > 0 && LIVE(n) ->
  r[n].until = LEASE; r[n].publishes = 0; r[n].signsA = (r[n].late == 1 + A); r[n].signsB = (r[n].late == 1 + B);
  r[n].late = 0
}

inline leases_vanish() {
  CHANGED(LEASES_VANISH) -> for (i : 0 .. REPLICAS - 1) { r[i].until = 0 }
}

/* Whatever the state was in which all replicas have died: a step waits for the rest of their leases and no longer. */
#define LIVES(n) (r[n].state != OUT)
#define ALL_OUT (!ANY(LIVES))
inline all_have_died() {
  left = 0;
  do
  :: step == REMOVED -> break
  :: MAY_STEP -> takes_step(); laws()
  :: else -> left++; time_passes(); laws()
  od;
  assert(left <= LEASE + ANNOUNCE + RETIRE)
}

#define DIFFER(x, y) (r[x].state != r[y].state || r[x].set != r[y].set || r[x].kid != r[y].kid || r[x].drains != r[y].drains || r[x].own != r[y].own || \
                      r[x].asked != r[y].asked || r[x].late != r[y].late || r[x].until != r[y].until || \
                      r[x].publishes != r[y].publishes || r[x].signsA != r[y].signsA || r[x].signsB != r[y].signsB)
#define OPTION(action) :: d_step { action; printf(#action); printf(", n = %d\n", n); n = 0 }

active proctype rotation() {
  byte n, i;
  short left;
  do
  :: atomic {
    if
    OPTION(takes_step())
    OPTION(next_rotation())
    OPTION(time_passes())
    OPTION(reads_leases())
    OPTION(leases_vanish())
    :: true ->
      /* Of replicas that are the same, one acts. */
      if :: ANY_N fi;
      if
      OPTION(joins(n))
      OPTION(loads(n))
      OPTION(renews(n))
      OPTION(hears(n, 0))
      OPTION(hears(n, DRIFT))
      OPTION(stops_draining(n))
      OPTION(dies(n))
      OPTION(leaves(n))
      OPTION(acts_by_plan(n))
      OPTION(renews_late(n))
      OPTION(late_renewal_arrives(n))
      fi
    fi;
    d_step { laws() }
  }
  :: d_step { CHANGED(NOTHING) && ALL_OUT -> all_have_died() } -> break
  od
}
