/* The controllers: each loads the ledger, looks at processes, then at terminals, concludes, and acts (app/sweeping.py, verdict/, app/acting.py).
 *
 * Controllers keep nothing between rounds, so one that is killed and replaced is one that forgets what it was about.
 */

/* Where a controller is: what it does next. */
#define LOAD      0
#define PROBE     1
#define LOOK      2
#define CONCLUDE  3
#define FENCE     4
#define CLAIM     5
#define INTEND    6
#define LAUNCH    7
#define HEAR      8       /* the launcher was called and has not answered yet */
#define RECORD    9
#define QUERY    10       /* only where the launcher is asked what it lists */
#define LEASE    11       /* only where a lease is to keep others away */
#define FIRST    12       /* only where the launcher is called before the claim */

/* What the ledger, as it was loaded, says of the attempt that is judged: the last one that nothing follows. */
#define CLAIMED_ONLY 0
#define INTENDED     1    /* an intent and no outcome */
#define WAS_REFUSED  2    /* outcomes, each one more than in the ledger */
#define MAY_RUN      3
#define WAS_LAUNCHED 4
#define GIVEN_UP     5

typedef Controller {
  unsigned next : 4;
  unsigned front : 2;     /* the attempt that is judged, counted from 1, or 0: none was claimed */
  unsigned situation : 3;
  bit was_cancelled;
  unsigned held : 3;      /* bit by bit: whose lock was held */
  unsigned stirring : 3;  /* bit by bit: of whom something lived */
  bit shown;              /* whether the attempt that is judged was ever started */
  unsigned verdict : 3;
  unsigned which : 2;     /* the attempt that is dispatched */
  unsigned result : 2;
  bit leased
};

Controller controller[CONTROLLERS];

#define I controller[c]

/* Verdicts, as far as they differ in what is done: wait, or claim what follows. */
#define WAIT      0
#define START     1       /* ExecutionRequired */
#define SEND      2       /* LaunchDispatchRequired */
#define LOST      3       /* Lost */
#define AGAIN     4       /* RetryRequired, ResumeAvailable */
#define AT_REST   5       /* Converged */
#define CANCELLED 6       /* Cancelled */
#define ENDED_AS folder[I.front - 1].terminal
#ifdef ONE_SHOT
#define NO_OUTCOME_YET LOST
#else
#define NO_OUTCOME_YET SEND
#endif

/* A relaunch fences what it follows. So does whatever follows a refused dispatch: that one call started nothing says nothing about another
 * controller's call for the same claim, which may be under way. */
#ifdef NO_FENCE
#define NEEDS_FENCE false
#elif defined(NO_FENCE_AFTER_REFUSAL)
#define NEEDS_FENCE (I.verdict == LOST)
#else
#define NEEDS_FENCE (I.verdict == LOST || (I.verdict == AGAIN && ENDED_AS == 0))
#endif

/* Work space inside one step; it means nothing between steps and is no part of a state. */
WORKSPACE byte answer, which, i, j, k, m, living, halting;

/* Controllers are alike: exchanging two of them changes nothing, so of all orders of their states one stands for the others. Where a
 * story is told, or fairness among them counts, they keep their numbers. */
#ifdef STORY
#define ALIKE answer = 0; which = 0; i = 0; j = 0; k = 0; m = 0; living = 0; halting = 0; launched_already = 0
#else
hidden Controller kept;
hidden byte kept_moved;
hidden int rank_left, rank_right;
#define RANK(c) ((((((((controller[c].next * 4 + controller[c].front) * 8 + controller[c].verdict) * 4 + controller[c].which) * 4 + \
  controller[c].result) * 8 + controller[c].situation) * 8 + controller[c].stirring) * 8 + controller[c].held) * 16 + \
  controller[c].leased * 8 + controller[c].shown * 4 + controller[c].was_cancelled * 2 + moved[c])
#define ALIKE sort(); k = 0
#endif

#ifndef STORY
inline exchange(p, q) {
  kept.next = controller[p].next; kept.front = controller[p].front; kept.situation = controller[p].situation;
  kept.was_cancelled = controller[p].was_cancelled; kept.held = controller[p].held; kept.stirring = controller[p].stirring;
  kept.shown = controller[p].shown; kept.verdict = controller[p].verdict; kept.which = controller[p].which;
  kept.result = controller[p].result; kept.leased = controller[p].leased; kept_moved = moved[p];
  controller[p].next = controller[q].next; controller[p].front = controller[q].front; controller[p].situation = controller[q].situation;
  controller[p].was_cancelled = controller[q].was_cancelled; controller[p].held = controller[q].held;
  controller[p].stirring = controller[q].stirring; controller[p].shown = controller[q].shown; controller[p].verdict = controller[q].verdict;
  controller[p].which = controller[q].which; controller[p].result = controller[q].result; controller[p].leased = controller[q].leased;
  moved[p] = moved[q];
  controller[q].next = kept.next; controller[q].front = kept.front; controller[q].situation = kept.situation;
  controller[q].was_cancelled = kept.was_cancelled; controller[q].held = kept.held; controller[q].stirring = kept.stirring;
  controller[q].shown = kept.shown; controller[q].verdict = kept.verdict; controller[q].which = kept.which;
  controller[q].result = kept.result; controller[q].leased = kept.leased; moved[q] = kept_moved
}

inline sort() {
  i = 1;
  do
  :: i < CONTROLLERS ->
     j = i;
     do
     :: j > 0 ->
        rank_left = RANK(j - 1); rank_right = RANK(j);
        if
        :: rank_left > rank_right -> exchange(j - 1, j); j--
        :: else -> break
        fi
     :: else -> break
     od;
     i++
  :: else -> break
  od;
  rank_left = 0; rank_right = 0
}
#endif

/* What a controller knows goes with it, and at the end of a round. An old snapshot is as good as one that nobody will use any more. */
inline forget() {
  I.next = LOAD; I.front = 0; I.situation = 0; I.was_cancelled = 0; I.held = 0; I.stirring = 0; I.shown = 0; I.verdict = WAIT;
  I.which = 0; I.result = 0; I.leased = 0;
  moved[c] = 1
}

inline load() {
  forget();
  moved[c] = 0;
  k = 0;
  do
  :: k < ATTEMPTS ->
     if
     :: attempt[k].claimed -> followed(k); I.front = (answer == 0 -> k + 1 : I.front)
     :: else
     fi;
     k++
  :: else -> break
  od;
  I.was_cancelled = cancelled;
  if
  :: I.front == 0 -> printf("Controller %d loads the ledger: nothing was claimed.\n", c + 1)
  :: else ->
     k = I.front - 1;
     I.situation = (attempt[k].abandoned -> GIVEN_UP : (attempt[k].outcome != NO_OUTCOME -> attempt[k].outcome + 1 :
                    (attempt[k].intent -> INTENDED : CLAIMED_ONLY)));
     printf("Controller %d loads the ledger: attempt %d is claimed (intent %d, outcome %d).\n", c + 1, k + 1,
            attempt[k].intent, attempt[k].outcome)
  fi
}

/* The locks first: what begins afterwards shows in the receipts or in the table. */
inline probe_locks() {
  k = 0;
  do
  :: k < I.front -> I.held = I.held | (LOCK_HELD(k) << k); k++
  :: else -> break
  od
}

/* Alive by the lock, or settling: a supervisor is at work, and not among those that are `stopped` just now. */
inline look_at_processes(stopped) {
  k = 0;
  do
  :: k < I.front ->
     if
     :: STARTED(k) ->
        if
        :: ((I.held >> k) & 1) || (AT_WORK(k) && !((stopped >> k) & 1)) ->
           I.stirring = I.stirring | (1 << k); printf("Controller %d sees attempt %d live.\n", c + 1, k + 1)
        :: else ->
           printf("Controller %d sees that attempt %d was started, and nothing of it lives.\n", c + 1, k + 1)
        fi;
        I.shown = (k == I.front - 1 -> 1 : I.shown)
     :: else -> printf("Controller %d sees no start of attempt %d.\n", c + 1, k + 1)
     fi;
     k++
  :: else -> break
  od;
  I.held = 0
}

/* Whether a relaunch, or a person, put the attempt aside. */
inline superseded(a) {
  answer = attempt[a].abandoned;
  m = 0;
  do
  :: m < ATTEMPTS ->
     if
     :: attempt[m].claimed && attempt[m].follows == a + 1 && attempt[m].cause >= RELAUNCH -> answer = 1
     :: else
     fi;
     m++
  :: else -> break
  od;
  m = 0
}

/* What lives and must not is asked to stop; `living` counts what lives and may. Terminals are read now, after the processes. */
inline stop_unwanted() {
  halting = 0; living = 0; k = 0;
  do
  :: k < I.front ->
     if
     :: ((I.stirring >> k) & 1) && folder[k].terminal == 0 ->
        superseded(k);
        if
        :: I.was_cancelled || answer -> folder[k].stop = 1; over(k); halting = 1; printf("Controller %d stops attempt %d.\n", c + 1, k + 1)
        :: else -> living++
        fi
     :: else
     fi;
     k++
  :: else -> break
  od
}

/* A claim that is to be launched, or was, and may still begin late: no fence, no end. */
#define UNBARRED(a) (attempt[a].intent && folder[a].terminal == 0 && !folder[a].fenced && !OVER(a))
#define CLOSE closed = !moved[c]; printf("Controller %d concludes that the run is cancelled and nothing of it lives.\n", c + 1); forget()

inline conclude() {
  stop_unwanted();
  if
  :: halting -> I.verdict = WAIT
  :: else ->
     if
     :: I.was_cancelled -> I.verdict = (I.stirring == 0 -> CANCELLED : WAIT)
     :: else -> I.verdict = (living > 0 -> WAIT :
             (I.front == 0 -> START :
#ifdef DISPATCH_AFTER_OUTCOME
             (I.situation >= MAY_RUN && !folder[I.front - 1].key -> SEND :
#endif
             (I.situation == WAS_REFUSED && (I.shown || ENDED_AS) -> WAIT :
             (ENDED_AS == OK -> AT_REST :
             (ENDED_AS == NOT_OK -> (I.stirring == 0 -> AGAIN : WAIT) :
             (I.situation == GIVEN_UP -> LOST :
             (I.situation == WAS_REFUSED -> AGAIN :
             (I.situation == WAS_LAUNCHED || I.shown -> LOST :
             (I.situation == MAY_RUN -> WAIT :
             (I.situation == INTENDED -> NO_OUTCOME_YET : SEND))))))))))
#ifdef DISPATCH_AFTER_OUTCOME
             )
#endif
     fi
  fi;
  I.situation = 0; I.shown = 0; I.stirring = 0; I.was_cancelled = 0;
  if
#if PERSON
#ifndef CANCELLED_UNBARRED
  :: I.verdict == CANCELLED && I.front > 0 && UNBARRED(I.front - 1) -> I.next = FENCE
  :: I.verdict == CANCELLED && !(I.front > 0 && UNBARRED(I.front - 1)) -> CLOSE
#else
  :: I.verdict == CANCELLED -> CLOSE
#endif
#endif
  :: I.verdict == WAIT || I.verdict == AT_REST || (!PERSON && I.verdict == CANCELLED) -> forget()
  :: I.verdict == SEND -> k = I.front - 1; forget(); I.which = k; I.next = INTEND
#ifdef LAUNCH_FIRST
  :: I.verdict == START -> I.next = FIRST
#else
  :: I.verdict == START -> I.next = CLAIM
#endif
  :: I.verdict == LOST || I.verdict == AGAIN -> I.next = (NEEDS_FENCE -> FENCE : CLAIM)
  fi
}

inline put_up_fence(a) {
#ifndef FENCE_UNLOCKED
  if
  :: LOCK_HELD(a) -> forget(); printf("Controller %d cannot fence attempt %d: its lock is held.\n", c + 1, a + 1)
  :: else ->
#endif
     folder[a].fenced = 1; over(a); I.next = CLAIM; printf("Controller %d fences attempt %d.\n", c + 1, a + 1);
     if
     :: I.verdict == CANCELLED -> forget()
     :: else
     fi
#ifndef FENCE_UNLOCKED
  fi
#endif
}

inline take_claim(why) {
  launched_already = I.which;
  admit_claim(c, I.front, why);
  if
  :: answer == INSERTED -> printf("Controller %d claims attempt %d, which follows %d.\n", c + 1, which + 1, I.front)
  :: answer == ALREADY -> printf("Controller %d finds the slot taken by attempt %d, and goes on with it.\n", c + 1, which + 1)
  :: answer == STALE -> printf("Controller %d is told that the ledger moved.\n", c + 1)
  :: else -> printf("Controller %d's claim is refused.\n", c + 1)
  fi;
  k = which;
  forget();
#ifndef LAUNCH_FIRST
  if
  :: answer == INSERTED || answer == ALREADY -> I.which = k; I.next = INTEND
  :: else
  fi
#endif
}

/* What comes after the intent. */
#ifdef QUERY_FIRST
#define CALL QUERY
#elif defined(LEASES)
#define CALL LEASE
#else
#define CALL LAUNCH
#endif

inline intend() {
  k = I.which;
  say_intent(k);
  if
  :: answer == REFUSAL -> forget()
  :: else -> I.next = CALL; printf("Controller %d says its intent to dispatch attempt %d.\n", c + 1, k + 1)
  fi
}

/* Ask the launcher for a job of this claim. */
inline query() {
  k = I.which;
  if
  :: folder[k].jobs > 0 -> I.result = DISPATCHED; I.next = RECORD; printf("Controller %d is told of a job of attempt %d.\n", c + 1, k + 1)
  :: else -> I.next = LAUNCH; printf("Controller %d is told that there is no job of attempt %d.\n", c + 1, k + 1)
  fi
}

/* Take the lease, if nobody has it and the attempt has no outcome yet. */
inline take_lease() {
  k = I.which;
  m = 0; answer = 0;
  do
  :: m < CONTROLLERS -> answer = answer | controller[m].leased; m++
  :: else -> break
  od;
  m = 0;
  if
  :: answer || attempt[k].outcome != NO_OUTCOME -> forget()
  :: else -> I.leased = 1; I.next = LAUNCH; printf("Controller %d takes the lease.\n", c + 1)
  fi
}

/* One more supervisor, or job. Where the start is exclusive, several supervisors before it do no more than one does: the first to win makes
 * the others end. Elsewhere no more of them are followed than there are lines; one line says that there must be no second one. */
inline one_more(a) {
#ifdef START_NOT_EXCLUSIVE
  if
  :: folder[a].jobs < LINES -> folder[a].jobs++; folder[a].launched++
  :: else -> assert(LINES > 1)            /* a launcher that does not create or get is called once */
  fi
#else
  folder[a].launched = 1
#endif
}

/* Call the launcher: it finds the attempt started, or launches a supervisor. */
inline launch() {
  k = I.which;
#ifdef KEYED
  if
  :: folder[k].key -> I.result = DISPATCHED; I.next = RECORD; printf("The launcher knows attempt %d already.\n", k + 1)
  :: else -> folder[k].key = 1; one_more(k); I.next = HEAR; printf("Controller %d launches attempt %d.\n", c + 1, k + 1)
  fi
#elif defined(START_NOT_EXCLUSIVE)
  one_more(k); I.next = HEAR; printf("Controller %d launches attempt %d.\n", c + 1, k + 1)
#else
  if
  :: STARTED(k) -> I.result = DISPATCHED; I.next = RECORD; printf("Controller %d finds attempt %d started.\n", c + 1, k + 1)
  :: else -> one_more(k); I.next = HEAR; printf("Controller %d launches attempt %d.\n", c + 1, k + 1)
  fi
#endif
}

/* Launch something new, and claim it afterwards. */
inline launch_first() {
  if
  :: attempts < ATTEMPTS ->
     folder[attempts].launched = 1; attempts++; I.which = attempts - 1; I.next = CLAIM;
     printf("Controller %d launches attempt %d, and will claim it.\n", c + 1, attempts)
  :: else -> forget()
  fi
}

#ifdef COARSE_LOOKS
#define HEARD record()
#else
#define HEARD I.next = RECORD
#endif

inline record() {
  k = I.which; j = I.result;
  printf("Controller %d records: ", c + 1);
  record_outcome(k, j);
  forget()
}

#define WORKS(a) (I.front > a && AT_WORK(a))
#if ATTEMPTS == 1
#define CAN_BE_STOPPED(mask) WORKS(0)
#elif ATTEMPTS == 2
#define CAN_BE_STOPPED(mask) ((!(mask & 1) || WORKS(0)) && (!(mask & 2) || WORKS(1)))
#else
#define CAN_BE_STOPPED(mask) ((!(mask & 1) || WORKS(0)) && (!(mask & 2) || WORKS(1)) && (!(mask & 4) || WORKS(2)))
#endif

proctype controls(byte c) {
  do
#ifdef COARSE_LOOKS
  :: d_step { I.next == LOAD -> load(); probe_locks(); I.next = LOOK; ALIKE }
  :: d_step { I.next == LOOK -> look_at_processes(0); conclude(); ALIKE }
#ifndef HOLDS
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(1) -> look_at_processes(1); conclude(); ALIKE }
#if ATTEMPTS > 1
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(2) -> look_at_processes(2); conclude(); ALIKE }
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(3) -> look_at_processes(3); conclude(); ALIKE }
#endif
#if ATTEMPTS > 2
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(4) -> look_at_processes(4); conclude(); ALIKE }
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(5) -> look_at_processes(5); conclude(); ALIKE }
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(6) -> look_at_processes(6); conclude(); ALIKE }
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(7) -> look_at_processes(7); conclude(); ALIKE }
#endif
#endif
#else
  :: d_step { I.next == LOAD -> load(); I.next = (I.front == 0 -> CONCLUDE : PROBE); ALIKE }
  :: d_step { I.next == PROBE -> probe_locks(); I.next = LOOK; ALIKE }
  :: d_step { I.next == LOOK -> look_at_processes(0); I.next = CONCLUDE; ALIKE }
#ifndef HOLDS
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(1) -> look_at_processes(1); I.next = CONCLUDE; ALIKE }
#if ATTEMPTS > 1
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(2) -> look_at_processes(2); I.next = CONCLUDE; ALIKE }
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(3) -> look_at_processes(3); I.next = CONCLUDE; ALIKE }
#endif
#if ATTEMPTS > 2
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(4) -> look_at_processes(4); I.next = CONCLUDE; ALIKE }
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(5) -> look_at_processes(5); I.next = CONCLUDE; ALIKE }
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(6) -> look_at_processes(6); I.next = CONCLUDE; ALIKE }
  :: d_step { I.next == LOOK && CAN_BE_STOPPED(7) -> look_at_processes(7); I.next = CONCLUDE; ALIKE }
#endif
#endif
  :: d_step { I.next == CONCLUDE -> conclude(); ALIKE }
#endif
  :: d_step { I.next == FENCE -> k = I.front - 1; put_up_fence(k); ALIKE }
  :: d_step { I.next == CLAIM && I.verdict == START -> take_claim(INITIAL); ALIKE }
  :: d_step { I.next == CLAIM && I.verdict == AGAIN -> take_claim(RETRY); ALIKE }
  :: d_step { I.next == CLAIM && I.verdict == LOST -> take_claim(RELAUNCH); ALIKE }
#if CAUSES > 1
  :: d_step { I.next == CLAIM && I.verdict == AGAIN -> take_claim(RESUME); ALIKE }
  :: d_step { I.next == CLAIM && I.verdict == LOST -> take_claim(RELAUNCH_AT); ALIKE }
#endif
  :: d_step { I.next == INTEND -> intend(); ALIKE }
#ifdef QUERY_FIRST
  :: d_step { I.next == QUERY -> query(); ALIKE }
#endif
#ifdef LEASES
  :: d_step { I.next == LEASE -> take_lease(); ALIKE }
  :: d_step { I.leased -> I.leased = 0; printf("The lease of controller %d runs out.\n", c + 1); ALIKE }
#endif
#ifdef LAUNCH_FIRST
  :: d_step { I.next == FIRST -> launch_first(); ALIKE }
#endif
  :: d_step { I.next == LAUNCH -> launch(); ALIKE }
  :: d_step { I.next == LAUNCH && MAY_REFUSE ->
       REFUSE; I.result = REFUSED; printf("Controller %d's launch call for attempt %d is refused.\n", c + 1, I.which + 1); HEARD; ALIKE }
  /* The supervisor that was launched may say itself that it did not start. Others of the same attempt may still be about to. */
  :: d_step { I.next == HEAR && !STARTED(I.which) && MAY_REFUSE ->
       REFUSE; I.result = REFUSED; printf("Controller %d hears that attempt %d was not started.\n", c + 1, I.which + 1); HEARD; ALIKE }
  :: d_step { I.next == HEAR && STARTED(I.which) -> I.result = DISPATCHED; HEARD; ALIKE }
  :: d_step { I.next == HEAR && !STARTED(I.which) -> I.result = UNKNOWN; HEARD; ALIKE }
  :: d_step { I.next == RECORD -> record(); ALIKE }
  :: d_step { I.next != LOAD && MAY_KILL ->
       KILL; forget(); printf("Controller %d is KILLED; another one takes its place.\n", c + 1); ALIKE }
  od
}
