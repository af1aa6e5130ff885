/* The ledger: each inline is one transaction, and decides as run/claims.py and run/dispatch.py do (tests/models/test_ledger_model.py runs
 * these very lines against those functions over all small ledgers).
 *
 * A version is the number of recorded facts, so "the version moved since controller c loaded" is one bit that every insert sets.
 * An attempt's identity is its number: identities differ, and which is which does not matter.
 */

/* Causes. A slot is (predecessor, cause); 0 is no predecessor. Of the causes that follow an attempt, two of each kind are told apart: they
 * stand for InfrastructureRetry and Resume, and for Relaunch from nothing and from a checkpoint. */
#define INITIAL     1
#define REEXECUTION 2
#define RETRY       3
#define RESUME      4
#define RELAUNCH    5
#define RELAUNCH_AT 6

/* Outcomes, in their strength. */
#define NO_OUTCOME 0
#define REFUSED    1
#define UNKNOWN    2
#define DISPATCHED 3

typedef Attempt { bit claimed; unsigned follows : 2; unsigned cause : 3; bit intent; unsigned outcome : 2; bit abandoned };

Attempt attempt[ATTEMPTS];
unsigned attempts : 2 = 0;           /* identities handed out */
bit cancelled;
bit moved[CONTROLLERS];
WORKSPACE byte launched_already;

/* The bound of the model; a program has --retries. */
#ifdef LAUNCH_FIRST
#define ONE_MORE_ATTEMPT true
#else
#define ONE_MORE_ATTEMPT (attempts < ATTEMPTS)
#endif

/* Answers. */
#define ALREADY    1         /* AlreadyCommitted, Stands */
#define STALE      2         /* SnapshotStale */
#define REFUSAL    3         /* Refused */
#define INSERTED   4         /* Committed, Insertable */

inline ledger_moves() {
#if PERSON
  closed = 0;                /* a run whose ledger moves is looked at again */
#endif
  m = 0;
  do
  :: m < CONTROLLERS -> moved[m] = 1; m++
  :: else -> break
  od;
  m = 0
}

/* Claim the transition (follows, cause) for controller c. `which` becomes the attempt that holds the slot. */
inline admit_claim(by, after, why) {
  answer = INSERTED;
  which = NONE;
  k = 0;
#ifndef KEY_ON_ATTEMPT
  do
  :: k < ATTEMPTS ->
     if
#ifndef NO_SLOT
     :: attempt[k].claimed && attempt[k].follows == after && attempt[k].cause == why -> answer = ALREADY; which = k; break
#endif
     :: else -> k++
     fi
  :: else -> break
  od;
  if
  :: answer == INSERTED ->
     if
#ifndef NO_VERSION
     :: moved[by] -> answer = STALE
#endif
     :: else ->
        if
        :: cancelled -> answer = REFUSAL
        :: after > 0 && !attempt[after - 1].claimed -> answer = REFUSAL
        :: else
        fi;
        k = 0;
        do
        :: k < ATTEMPTS ->
           if
#ifndef NO_SUCCESSOR_RULE
           :: attempt[k].claimed && after > 0 && attempt[k].follows == after -> answer = REFUSAL
#endif
           :: else
           fi;
           k++
        :: else -> break
        od
     fi
  :: else
  fi;
#endif
  if
  :: answer == INSERTED && ONE_MORE_ATTEMPT -> insert_claim(by, after, why)
  :: answer == INSERTED && !ONE_MORE_ATTEMPT -> answer = REFUSAL
  :: else
  fi;
  k = 0
}

inline insert_claim(by, after, why) {
#ifndef ONLY_TRAINERS
  k = 0;
  do
  :: k < ATTEMPTS ->
     assert(!(attempt[k].claimed && attempt[k].follows == after && attempt[k].cause == why));      /* a slot is used once */
     assert(!(attempt[k].claimed && after > 0 && attempt[k].follows == after));                    /* one successor */
     k++
  :: else -> break
  od;
#endif
#ifdef LAUNCH_FIRST
  which = launched_already;  /* what was launched is claimed */
#else
  which = attempts;
  attempts++;
#endif
  attempt[which].claimed = 1;
  attempt[which].follows = after;
  attempt[which].cause = why;
  ledger_moves()
}

inline followed(a) {
  answer = 0;
  m = 0;
  do
  :: m < ATTEMPTS ->
     if
     :: attempt[m].claimed && attempt[m].follows == a + 1 -> answer = 1
     :: else
     fi;
     m++
  :: else -> break
  od;
  m = 0
}

/* Say the intent to dispatch an attempt: INSERTED, or ALREADY where it stands and the launcher creates or gets. */
#ifdef DISPATCH_AFTER_OUTCOME
#define OUTCOME_FORBIDS(a) false
#else
#define OUTCOME_FORBIDS(a) (attempt[a].outcome != NO_OUTCOME)
#endif
#ifdef ONE_SHOT
#define INTENT_FORBIDS(a) attempt[a].intent
#else
#define INTENT_FORBIDS(a) false
#endif

inline say_intent(x) {
  followed(x);
  if
  :: answer == 1 || cancelled || !attempt[x].claimed || attempt[x].abandoned || OUTCOME_FORBIDS(x) || INTENT_FORBIDS(x) -> answer = REFUSAL
  :: else ->
     if
     :: attempt[x].intent -> answer = ALREADY
     :: else -> answer = INSERTED; attempt[x].intent = 1; ledger_moves()
     fi
  fi
}

/* Record a launcher's answer: only a stronger one is news. */
inline record_outcome(x, said) {
  if
  :: attempt[x].claimed && attempt[x].intent && said > attempt[x].outcome ->
     attempt[x].outcome = said; ledger_moves(); printf("The outcome %d of attempt %d is recorded.\n", said, x + 1)
  :: else
  fi
}

inline cancel_run() {
  if
  :: !cancelled -> cancelled = 1; ledger_moves()
  :: else
  fi
}

inline give_up(a) {
  if
  :: attempt[a].claimed && !attempt[a].abandoned -> attempt[a].abandoned = 1; ledger_moves()
  :: else
  fi
}
