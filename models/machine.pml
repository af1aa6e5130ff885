/* The machine: launchers, supervisors and their children (launch/supervisor.py, launch/trainer.py). */

#define MINE folder[a].line[l]

inline write_start(a, l) {
#ifdef START_NOT_EXCLUSIVE
  folder[a].launched--;
#else
  folder[a].launched = 0;           /* the others find it started, and end */
#endif
#ifdef COARSE_MACHINE
  MINE.supervisor = WATCHING; MINE.child = BORN;
#else
  MINE.supervisor = BEGUN;
#endif
  printf("A supervisor of attempt %d wins the start [start written].\n", a + 1)
}

inline end_child(a, l, how) {
  if
  :: MINE.child == RUNNING -> live--
  :: else
  fi;
  MINE.child = (MINE.supervisor == GONE -> ENDED : how);
  over(a)
}

inline lose_supervisor(a, l) {
  MINE.supervisor = GONE; MINE.held = 0;
  MINE.child = (MINE.child == NO_CHILD || MINE.child == ENDED_WELL -> ENDED : MINE.child);
  over(a)
}

inline take_lock(a, l) {
  if
  :: LOCK_HELD(a) -> end_child(a, l, ENDED); printf("A child of attempt %d waits for the lock in vain and ends.\n", a + 1)
  :: else -> MINE.child = LOCKED; printf("The child of attempt %d holds the lock [child begun, locked].\n", a + 1)
  fi
}

inline write_process(a, l) {
#if defined(START_NOT_EXCLUSIVE) && !defined(PROCESS_NOT_EXCLUSIVE)
  if
  :: folder[a].process -> end_child(a, l, ENDED); printf("A child of attempt %d finds a process receipt and ends.\n", a + 1)
  :: else -> folder[a].process = 1; MINE.child = WRITTEN; printf("The child of attempt %d writes its receipt [process written].\n", a + 1)
  fi
#else
  MINE.child = WRITTEN; printf("The child of attempt %d writes its receipt [process written].\n", a + 1)
#endif
}

inline check_fence(a, l, passed) {
  if
#ifndef FENCE_NOT_CHECKED
  :: folder[a].fenced -> end_child(a, l, ENDED); printf("The child of attempt %d finds the fence and ends.\n", a + 1)
#endif
  :: else ->
     if
     :: folder[a].stop -> end_child(a, l, ENDED); printf("The child of attempt %d is asked to stop and ends.\n", a + 1)
     :: else -> MINE.child = passed; printf("The child of attempt %d sees no fence [fence checked].\n", a + 1)
     fi
  fi
}

inline execute(a, l) {
  printf("COMMAND of attempt %d RUNS.\n", a + 1);
#ifdef START_NOT_EXCLUSIVE
  assert(!folder[a].ran);                 /* an attempt has one trainer, ever (where the start is exclusive it has one line, and one child) */
  folder[a].ran = 1;
#endif
  assert(live == 0);                      /* a run has one living trainer */
  assert(folder[a].terminal == 0);        /* a terminal tells the truth: nothing of the attempt lives after it */
#ifdef WITNESS_FIRST
  assert(a != 0);                         /* not a rule: shows that a trainer is reached at all */
#endif
#ifdef WITNESS_RELAUNCH
  assert(!(a == 1 && attempt[1].cause >= RELAUNCH && attempt[0].intent && folder[0].jobs == 0));
                                          /* not a rule: shows how an intent whose launch never came ends in a relaunch that runs */
#endif
  live++;
  MINE.child = RUNNING
}

inline write_terminal(a, l) {
  if
  :: folder[a].terminal == 0 -> folder[a].terminal = (MINE.child == ENDED_WELL -> OK : NOT_OK)
  :: else
  fi;
  lose_supervisor(a, l);
  printf("The supervisor of attempt %d says how it ended [terminal written].\n", a + 1);
  assert(!LOCK_HELD(a))                   /* a terminal tells the truth: nothing of the attempt lives */
}

proctype machine(byte a; byte l) {
  do
#ifdef START_NOT_EXCLUSIVE
  :: d_step { folder[a].launched > 0 && MINE.supervisor == NOBODY && (l == 0 || STARTED(a)) -> write_start(a, l) }
#else
  :: d_step { folder[a].launched > 0 -> write_start(a, l) }
#endif
#ifndef COARSE_MACHINE
  :: d_step { MINE.supervisor == BEGUN && !MINE.held ->
       MINE.supervisor = WATCHING; MINE.child = BORN; printf("The supervisor of attempt %d has a child [forked].\n", a + 1) }
#endif
  :: d_step { MINE.supervisor == WATCHING && !MINE.held && MINE.child >= ENDED -> write_terminal(a, l) }
#ifdef FENCE_BEFORE_LOCK
  :: d_step { MINE.child == BORN -> check_fence(a, l, SEEN) }
  :: d_step { MINE.child == SEEN -> take_lock(a, l) }
  :: d_step { MINE.child == LOCKED -> execute(a, l) }
#elif defined(NO_LOCK)
  :: d_step { MINE.child == BORN -> check_fence(a, l, SEEN) }
  :: d_step { MINE.child == SEEN -> execute(a, l) }
#elif defined(COARSE_MACHINE)
  /* Under the lock nobody can put up a fence, and whoever looks sees the lock: these steps are as good as one. */
  :: d_step { MINE.child == BORN -> take_lock(a, l);
       if
       :: MINE.child == LOCKED -> write_process(a, l)
       :: else
       fi;
       if
       :: MINE.child == WRITTEN -> check_fence(a, l, CHECKED)
       :: else
       fi;
       if
       :: MINE.child == CHECKED -> execute(a, l)
       :: else
       fi }
#else
  :: d_step { MINE.child == BORN -> take_lock(a, l) }
  :: d_step { MINE.child == LOCKED -> write_process(a, l) }
  :: d_step { MINE.child == WRITTEN -> check_fence(a, l, CHECKED) }
  :: d_step { MINE.child == CHECKED -> execute(a, l) }
#endif
  :: d_step { MINE.child == RUNNING -> end_child(a, l, ENDED_WELL);
       printf("COMMAND of attempt %d succeeds [main ended, descendants ended].\n", a + 1) }
  /* It fails, is killed, or is stopped where a stop was asked for. */
  :: d_step { MINE.child == RUNNING -> end_child(a, l, ENDED);
       printf("COMMAND of attempt %d fails [main ended, descendants ended].\n", a + 1) }
  /* kill -9 */
  :: d_step { MAY_KILL && (MINE.supervisor == BEGUN || MINE.supervisor == WATCHING) ->
       KILL; lose_supervisor(a, l); printf("The supervisor of attempt %d is KILLED.\n", a + 1) }
  :: d_step { MAY_KILL && MINE.child >= BORN && MINE.child < RUNNING ->
       KILL; end_child(a, l, ENDED); printf("The child of attempt %d is KILLED.\n", a + 1) }
#ifdef KILLS
  :: d_step { MAY_KILL && MINE.child >= BORN && MINE.child < RUNNING && MINE.supervisor == WATCHING ->
       KILL; end_child(a, l, ENDED); lose_supervisor(a, l); printf("The supervisor of attempt %d and its child are KILLED.\n", a + 1) }
#endif
#ifdef HOLDS
  /* SIGSTOP, and SIGCONT at any time after it */
  :: d_step { holds > 0 && (MINE.supervisor == BEGUN || MINE.supervisor == WATCHING) && !MINE.held ->
       holds--; MINE.held = 1; printf("The supervisor of attempt %d is STOPPED by a signal.\n", a + 1) }
  :: d_step { MINE.held -> MINE.held = 0; printf("The supervisor of attempt %d goes on.\n", a + 1) }
#endif
#ifdef KEYED
  /* The launcher forgets its key: a job that expired, or was deleted. */
#ifdef KEY_EXPIRES_EARLY
#define KEY_MAY_GO(a) true
#elif defined(KEY_EXPIRES_AFTER_OUTCOME)
#define KEY_MAY_GO(a) (attempt[a].outcome != NO_OUTCOME)
#else
/* It outlives every call that may still come: the outcome is recorded, and nobody is between the intent and the call. */
#define KEY_MAY_GO(a) (attempt[a].outcome != NO_OUTCOME && !CALLS(0, a) && !CALLS(CONTROLLERS - 1, a) && !CALLS(1 % CONTROLLERS, a))
#define CALLS(c, a) (controller[c].next == LAUNCH && controller[c].which == a)
#endif
  :: d_step { l == 0 && folder[a].key && KEY_MAY_GO(a) -> folder[a].key = 0; printf("The launcher forgets attempt %d.\n", a + 1) }
#endif
  od
}
