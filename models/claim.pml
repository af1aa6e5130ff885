/* The claim protocol: who may start a trainer, and when. models/check.py checks it exhaustively.
 *
 * It follows the program step by step. A transaction on the ledger, the exclusive creation of a receipt and a look at a folder are one
 * indivisible step each. Between any two steps everybody else may act; a controller, a supervisor or a child may be killed (KILLS in all);
 * a supervisor or a child may be held by SIGSTOP (HOLDS in all) and go on later, or never. Time is not modelled: whoever waits may have
 * waited long enough at any moment.
 *
 *   controller   loads the ledger, looks at processes, then at terminals, concludes, acts: app/sweeping.py, verdict/, app/acting.py
 *   ledger.pml   one transaction each: run/claims.py, run/dispatch.py
 *   machine      supervisors and their children: launch/supervisor.py, launch/trainer.py
 *   person       gives an attempt up, cancels the run, has it done once more: at any time, PERSON acts in all
 *
 * Supervisors that have not written a start receipt are alike, so they are counted. One that has is a line; more than one line of an
 * attempt exist only where the start receipt is not exclusive. The switches that break a rule on purpose are listed in check.py.
 */
#include "bounds.pml"
#include "ledger.pml"

/* A child, from the fork to its end. From LOCKED to RUNNING it holds the attempt's lock. */
#define NO_CHILD 0
#define BORN     1
#define SEEN     2        /* only where the fence is looked for before the lock is taken */
#define LOCKED   3
#define WRITTEN  4        /* process.json is there */
#define CHECKED  5        /* the fence was looked for, and was not there */
#define RUNNING  6        /* it is COMMAND */
#define ENDED    7

/* A supervisor that won the start. */
#define NOBODY   0
#define BEGUN    1        /* start.json is there, nothing is forked */
#define WATCHING 2
#define GONE     3

#define OK     1
#define NOT_OK 2

typedef Line { byte supervisor; byte child; bit held; bit ok };

typedef Folder {
  bit start; bit process; bit fenced; bit stop;
  byte terminal;
  byte launched;          /* supervisors that were launched and have not looked for the fence yet */
  byte unfenced;          /* supervisors that saw no fence and have not tried to write start.json yet */
  bit key;                /* what a launcher remembers that creates or gets by a key of its own */
  bit runs;              /* how often COMMAND ran: only watched */
  Line line[LINES]
};

Folder folder[ATTEMPTS];
byte kills = KILLS;
byte holds = HOLDS;
byte refusals = REFUSALS;
byte acts = PERSON;
byte live;                /* trainers that run at this moment, of all attempts: only watched */
bit closed;               /* somebody concluded that the run is cancelled and nothing of it lives: only watched */

#define HAS_LOCK(a, l) (folder[a].line[l].child >= LOCKED && folder[a].line[l].child <= RUNNING)
#if LINES == 1
#define LOCK_HELD(a) HAS_LOCK(a, 0)
#else
#define LOCK_HELD(a) (HAS_LOCK(a, 0) || HAS_LOCK(a, 1))
#endif
/* start.json names the supervisor of the first line. */
#define AT_WORK(a) \
  ((folder[a].line[0].supervisor == BEGUN || folder[a].line[0].supervisor == WATCHING) && !folder[a].line[0].held)

#define say(text) printf(text)

/* ------------------------------------------------------------------------------------------------------ the machine */

#define MINE folder[a].line[l]

/* Where the start is exclusive, several supervisors before it do no more than one does: the first to win makes the others end. */
#ifdef START_NOT_EXCLUSIVE
#define ONE_MORE(a) folder[a].launched++
#define ONE_LESS(n) n - 1
#else
#define ONE_MORE(a) folder[a].launched = 1
#define ONE_LESS(n) 0
#endif

inline look_for_fence(a) {
  folder[a].launched = ONE_LESS(folder[a].launched);
  if
  :: folder[a].fenced -> printf("A supervisor of attempt %d [begun] finds the fence and ends.\n", a + 1)
  :: else -> folder[a].unfenced = (LINES > 1 -> folder[a].unfenced + 1 : 1); printf("A supervisor of attempt %d [begun] sees no fence.\n", a + 1)
  fi
}

inline write_start(a, l) {
  folder[a].start = 1;
  folder[a].unfenced = ONE_LESS(folder[a].unfenced);
#ifndef START_NOT_EXCLUSIVE
  folder[a].launched = 0;           /* the others find it started, and end */
#endif
  MINE.supervisor = BEGUN;
  printf("A supervisor of attempt %d wins the start [start written].\n", a + 1)
}

inline end_child(a, l) {
  if
  :: MINE.child == RUNNING -> live--
  :: else
  fi;
  MINE.child = ENDED
}

inline take_lock(a, l) {
  if
  :: LOCK_HELD(a) -> end_child(a, l); printf("A child of attempt %d waits for the lock in vain and ends.\n", a + 1)
  :: else -> MINE.child = LOCKED; printf("The child of attempt %d holds the lock [child begun, locked].\n", a + 1)
  fi
}

inline write_process(a, l) {
  if
#ifndef PROCESS_NOT_EXCLUSIVE
  :: folder[a].process -> end_child(a, l); printf("A child of attempt %d finds a process receipt and ends.\n", a + 1)
#endif
  :: else ->
     folder[a].process = (LINES > 1); MINE.child = WRITTEN;
     printf("The child of attempt %d writes its receipt [process written].\n", a + 1)
  fi
}

inline check_fence(a, l, passed) {
  if
#ifndef FENCE_NOT_CHECKED
  :: folder[a].fenced -> end_child(a, l); printf("The child of attempt %d finds the fence and ends.\n", a + 1)
#endif
  :: else ->
     if
     :: folder[a].stop -> end_child(a, l); printf("The child of attempt %d is asked to stop and ends.\n", a + 1)
     :: else -> MINE.child = passed; printf("The child of attempt %d sees no fence [fence checked].\n", a + 1)
     fi
  fi
}

inline execute(a, l) {
  printf("COMMAND of attempt %d RUNS.\n", a + 1);
  assert(folder[a].runs == 0);            /* an attempt has one trainer, ever */
  assert(live == 0);                      /* a run has one living trainer */
  assert(folder[a].terminal == 0);        /* a terminal tells the truth: nothing of the attempt lives after it */
  assert(!closed);                        /* so does the verdict that a run is cancelled and nothing of it lives */
  folder[a].runs = 1;
  live++;
  MINE.child = RUNNING
}

inline write_terminal(a, l) {
  if
  :: folder[a].terminal == 0 -> folder[a].terminal = (MINE.ok -> OK : NOT_OK)
  :: else
  fi;
  MINE.supervisor = GONE;
  MINE.ok = 0;
  printf("The supervisor of attempt %d says how it ended [terminal written].\n", a + 1);
  assert(!LOCK_HELD(a))                   /* a terminal tells the truth: nothing of the attempt lives */
}

proctype machine(byte a; byte l) {
  do
  :: d_step { l == 0 && folder[a].launched > 0 -> look_for_fence(a) }
#ifdef START_NOT_EXCLUSIVE
  :: d_step { folder[a].unfenced > 0 && MINE.supervisor == NOBODY && (l == 0 || folder[a].start) -> write_start(a, l) }
#else
  :: d_step { folder[a].unfenced > 0 -> write_start(a, l) }
#endif
  :: d_step { MINE.supervisor == BEGUN && !MINE.held ->
       MINE.supervisor = WATCHING; MINE.child = BORN; printf("The supervisor of attempt %d has a child [forked].\n", a + 1) }
  :: d_step { MINE.supervisor == WATCHING && !MINE.held && MINE.child == ENDED -> write_terminal(a, l) }
#ifdef FENCE_BEFORE_LOCK
  :: d_step { MINE.child == BORN -> check_fence(a, l, SEEN) }
  :: d_step { MINE.child == SEEN -> take_lock(a, l) }
  :: d_step { MINE.child == LOCKED -> write_process(a, l) }
  :: d_step { MINE.child == WRITTEN -> execute(a, l) }
#elif defined(COARSE)
  /* Under the lock nobody can put up a fence, so these steps are as good as one. */
  :: d_step { MINE.child == BORN -> take_lock(a, l);
       if
       :: MINE.child == LOCKED -> write_process(a, l)
       :: else
       fi;
       if
       :: MINE.child == WRITTEN -> check_fence(a, l, CHECKED)
       :: else
       fi }
  :: d_step { MINE.child == CHECKED -> execute(a, l) }
#else
  :: d_step { MINE.child == BORN -> take_lock(a, l) }
  :: d_step { MINE.child == LOCKED -> write_process(a, l) }
  :: d_step { MINE.child == WRITTEN -> check_fence(a, l, CHECKED) }
  :: d_step { MINE.child == CHECKED -> execute(a, l) }
#endif
  :: d_step { MINE.child == RUNNING -> MINE.ok = 1; end_child(a, l);
       printf("COMMAND of attempt %d succeeds [main ended, descendants ended].\n", a + 1) }
  :: d_step { MINE.child == RUNNING -> end_child(a, l);
       printf("COMMAND of attempt %d fails [main ended, descendants ended].\n", a + 1) }
  :: d_step { MINE.child == RUNNING && folder[a].stop -> end_child(a, l); printf("COMMAND of attempt %d is stopped.\n", a + 1) }
  /* kill -9 */
  :: d_step { kills > 0 && (MINE.supervisor == BEGUN || MINE.supervisor == WATCHING) ->
       kills--; MINE.supervisor = GONE; MINE.held = 0; printf("The supervisor of attempt %d is KILLED.\n", a + 1) }
  :: d_step { kills > 0 && MINE.child >= BORN && MINE.child < RUNNING ->
       kills--; end_child(a, l); printf("The child of attempt %d is KILLED.\n", a + 1) }
  :: d_step { kills > 0 && HAS_LOCK(a, l) && MINE.child < RUNNING && MINE.supervisor == WATCHING ->
       kills--; end_child(a, l); MINE.supervisor = GONE; MINE.held = 0;
       printf("The supervisor of attempt %d and its child are KILLED.\n", a + 1) }
  /* SIGSTOP, and SIGCONT at any time after it */
  :: d_step { holds > 0 && (MINE.supervisor == BEGUN || MINE.supervisor == WATCHING) && !MINE.held ->
       holds--; MINE.held = 1; printf("The supervisor of attempt %d is STOPPED by a signal.\n", a + 1) }
  :: d_step { MINE.held -> MINE.held = 0; printf("The supervisor of attempt %d goes on.\n", a + 1) }
#ifdef KEYED
  /* The launcher forgets its key. */
#ifdef KEY_EXPIRES_EARLY
  :: d_step { l == 0 && folder[a].key -> folder[a].key = 0; printf("The launcher forgets attempt %d.\n", a + 1) }
#else
  :: d_step { l == 0 && folder[a].key && attempt[a].outcome != NO_OUTCOME ->
       folder[a].key = 0; printf("The launcher forgets attempt %d.\n", a + 1) }
#endif
#endif
  od
}

/* --------------------------------------------------------------------------------------------------- the controllers */

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

/* What the ledger, as it was loaded, says of the attempt that is judged: the last one that nothing follows. */
#define CLAIMED_ONLY 0
#define INTENDED     1    /* an intent and no outcome */
#define WAS_REFUSED  2    /* outcomes, each one more than in the ledger */
#define MAY_RUN      3
#define WAS_LAUNCHED 4
#define GIVEN_UP     5

typedef Controller {
  byte next;
  byte front;             /* the attempt that is judged, counted from 1, or 0: none was claimed */
  byte situation;
  byte was_cancelled;
  byte held;              /* bit by bit: whose lock was held */
  byte stirring;          /* bit by bit: of whom something lived */
  byte shown;             /* whether the attempt that is judged was ever started */
  byte verdict;
  byte which;             /* the attempt that is dispatched */
  byte result
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
hidden byte answer, which, i, j, k, m, living;
hidden byte halting;

/* Controllers are alike: exchanging two of them changes nothing, so of all orders of their states one stands for the others. Where a
 * story is told they keep their numbers. */
hidden Controller kept;
hidden byte kept_moved;
#ifdef STORY
#define ALIKE k = 0
#else
#define RANK(c) (((((((controller[c].next * 4 + controller[c].front) * 8 + controller[c].verdict) * 4 + controller[c].which) * 4 + \
  controller[c].result) * 8 + controller[c].situation) * 8 + controller[c].stirring) * 16 + controller[c].held * 2 + moved[c])
#define ALIKE sort(); k = 0
#endif

inline exchange(p, q) {
  kept.next = controller[p].next; kept.front = controller[p].front; kept.situation = controller[p].situation;
  kept.was_cancelled = controller[p].was_cancelled; kept.held = controller[p].held; kept.stirring = controller[p].stirring;
  kept.shown = controller[p].shown; kept.verdict = controller[p].verdict; kept.which = controller[p].which;
  kept.result = controller[p].result; kept_moved = moved[p];
  controller[p].next = controller[q].next; controller[p].front = controller[q].front; controller[p].situation = controller[q].situation;
  controller[p].was_cancelled = controller[q].was_cancelled; controller[p].held = controller[q].held;
  controller[p].stirring = controller[q].stirring; controller[p].shown = controller[q].shown; controller[p].verdict = controller[q].verdict;
  controller[p].which = controller[q].which; controller[p].result = controller[q].result; moved[p] = moved[q];
  controller[q].next = kept.next; controller[q].front = kept.front; controller[q].situation = kept.situation;
  controller[q].was_cancelled = kept.was_cancelled; controller[q].held = kept.held; controller[q].stirring = kept.stirring;
  controller[q].shown = kept.shown; controller[q].verdict = kept.verdict; controller[q].which = kept.which;
  controller[q].result = kept.result; moved[q] = kept_moved
}

inline sort() {
  i = 1;
  do
  :: i < CONTROLLERS ->
     j = i;
     do
     :: j > 0 ->
        if
        :: RANK(j - 1) > RANK(j) -> exchange(j - 1, j); j--
        :: else -> break
        fi
     :: else -> break
     od;
     i++
  :: else -> break
  od
}

/* What a controller knows goes with it, and at the end of a round. An old snapshot is as good as one that nobody will use any more. */
inline forget() {
  I.next = LOAD; I.front = 0; I.situation = 0; I.was_cancelled = 0; I.held = 0; I.stirring = 0; I.shown = 0; I.verdict = WAIT;
  I.which = 0; I.result = 0;
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

/* Alive by the lock, or settling: a supervisor is at work. */
inline look_at_processes() {
  k = 0;
  do
  :: k < I.front ->
     if
     :: folder[k].start ->
        if
        :: ((I.held >> k) & 1) || AT_WORK(k) -> I.stirring = I.stirring | (1 << k); printf("Controller %d sees attempt %d live.\n", c + 1, k + 1)
        :: else -> printf("Controller %d sees that attempt %d was started, and nothing of it lives.\n", c + 1, k + 1)
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
  od
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
        :: I.was_cancelled || answer -> folder[k].stop = 1; halting = 1; printf("Controller %d stops attempt %d.\n", c + 1, k + 1)
        :: else -> living++
        fi
     :: else
     fi;
     k++
  :: else -> break
  od
}

inline conclude() {
  stop_unwanted();
  if
  :: halting -> I.verdict = WAIT
  :: else ->
     if
     :: I.was_cancelled -> I.verdict = (I.stirring == 0 -> CANCELLED : WAIT)
     :: else -> I.verdict = (living > 0 -> WAIT :
             (I.front == 0 -> START :
             (ENDED_AS == OK -> AT_REST :
             (ENDED_AS == NOT_OK -> (I.stirring == 0 -> AGAIN : WAIT) :
             (I.situation == GIVEN_UP -> LOST :
             (I.situation == WAS_REFUSED -> (I.shown -> WAIT : AGAIN) :
             (I.situation == WAS_LAUNCHED || I.shown -> LOST :
             (I.situation == MAY_RUN -> WAIT :
             (I.situation == INTENDED -> NO_OUTCOME_YET : SEND)))))))))
     fi
  fi;
  I.situation = 0; I.shown = 0; I.stirring = 0; I.was_cancelled = 0;
  if
  :: I.verdict == CANCELLED -> closed = 1; forget()
  :: I.verdict == WAIT || I.verdict == AT_REST -> forget()
  :: I.verdict == SEND -> k = I.front - 1; forget(); I.which = k; I.next = INTEND
  :: I.verdict == START -> I.next = CLAIM
  :: else -> I.next = (NEEDS_FENCE -> FENCE : CLAIM)
  fi
}

inline put_up_fence(a) {
#ifndef FENCE_UNLOCKED
  if
  :: LOCK_HELD(a) -> forget(); printf("Controller %d cannot fence attempt %d: its lock is held.\n", c + 1, a + 1)
  :: else ->
#endif
     folder[a].fenced = 1; I.next = CLAIM; printf("Controller %d fences attempt %d.\n", c + 1, a + 1)
#ifndef FENCE_UNLOCKED
  fi
#endif
}

inline take_claim(why) {
  admit_claim(c, I.front, why);
  if
  :: answer == INSERTED -> printf("Controller %d claims attempt %d, which follows %d.\n", c + 1, which + 1, I.front)
  :: answer == ALREADY -> printf("Controller %d finds the slot taken by attempt %d, and goes on with it.\n", c + 1, which + 1)
  :: answer == STALE -> printf("Controller %d is told that the ledger moved.\n", c + 1)
  :: else -> printf("Controller %d's claim is refused.\n", c + 1)
  fi;
  k = which;
  forget();
  if
  :: answer == INSERTED || answer == ALREADY -> I.which = k; I.next = INTEND
  :: else
  fi
}

inline intend() {
  k = I.which;
  say_intent(k);
  if
  :: answer == REFUSAL -> forget()
  :: else -> I.next = LAUNCH; printf("Controller %d says its intent to dispatch attempt %d.\n", c + 1, k + 1)
  fi
}

/* Call the launcher: it finds the attempt started or fenced, or launches a supervisor. */
inline launch() {
  k = I.which;
  if
  :: folder[k].start -> I.result = DISPATCHED; I.next = RECORD; printf("Controller %d finds attempt %d started.\n", c + 1, k + 1)
  :: else ->
     if
     :: folder[k].fenced -> I.result = REFUSED; I.next = RECORD; printf("Controller %d finds attempt %d fenced.\n", c + 1, k + 1)
     :: else -> ONE_MORE(k); I.next = HEAR; printf("Controller %d launches attempt %d.\n", c + 1, k + 1)
     fi
  fi
}

#ifdef COARSE
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

proctype controls(byte c) {
  do
#ifdef SWEEP_AT_ONCE
  :: d_step { I.next == LOAD -> load(); probe_locks(); look_at_processes(); conclude(); ALIKE }
#else
  :: d_step { I.next == LOAD -> load(); I.next = (I.front == 0 -> CONCLUDE : PROBE); ALIKE }
  :: d_step { I.next == PROBE -> probe_locks(); I.next = LOOK; ALIKE }
  :: d_step { I.next == LOOK -> look_at_processes(); I.next = CONCLUDE; ALIKE }
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
  :: d_step { I.next == LAUNCH -> launch(); ALIKE }
  :: d_step { I.next == LAUNCH && refusals > 0 ->
       refusals--; I.result = REFUSED; I.next = RECORD; printf("Controller %d's launch call for attempt %d is refused.\n", c + 1, I.which + 1); ALIKE }
  :: d_step { I.next == HEAR && folder[I.which].start -> I.result = DISPATCHED; HEARD; ALIKE }
  :: d_step { I.next == HEAR && !folder[I.which].start && folder[I.which].fenced -> I.result = REFUSED; HEARD; ALIKE }
  :: d_step { I.next == HEAR && !folder[I.which].start -> I.result = UNKNOWN; HEARD; ALIKE }
  :: d_step { I.next == RECORD -> record(); ALIKE }
  :: d_step { I.next != LOAD && kills > 0 ->
       kills--; forget(); printf("Controller %d is KILLED; another one takes its place.\n", c + 1); ALIKE }
  od
}

init {
  atomic {
    byte n;
    for (n : 0 .. CONTROLLERS - 1) { run controls(n) }
    for (n : 0 .. ATTEMPTS - 1) { run machine(n, 0) }
#if LINES > 1
    for (n : 0 .. ATTEMPTS - 1) { run machine(n, 1) }
#endif
    n = 0
  }
}
