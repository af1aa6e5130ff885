/* Every question to every small ledger, answered by ledger.pml: one line each, for tests/models/test_ledger_model.py.
 *
 * A line is: how many claims, the facts of the first and of the second attempt, the second one's cause, cancelled, moved; then the question
 * with its two arguments; then the answer, the attempt that holds the slot (counted from 1) and whether a fact was recorded.
 */
#define ATTEMPTS 3
#include "bounds.pml"
hidden byte answer, which, k, m;
#include "ledger.pml"

#define ASK_CLAIM   0
#define ASK_INTENT  1
#define ASK_OUTCOME 2
#define ASK_CANCEL  3
#define ASK_GIVE_UP 4

byte n, state1, state2, second_cause, ended, stale, one, two;

/* An attempt's facts in one number: nothing, or an intent without and with each outcome; 5 more where it was given up. */
inline facts(a, number) {
  attempt[a].claimed = (a < n);
  attempt[a].intent = (a < n && number % 5 > 0);
  attempt[a].outcome = (a < n && number % 5 > 0 -> number % 5 - 1 : 0);
  attempt[a].abandoned = (a < n && number >= 5)
}

inline ask(kind, x, y) {
  facts(0, state1); facts(1, state2); facts(2, 0);
  attempt[0].follows = 0; attempt[0].cause = (n > 0 -> INITIAL : 0);
  attempt[1].follows = (n > 1 -> 1 : 0); attempt[1].cause = (n > 1 -> second_cause : 0);
  attempt[2].follows = 0; attempt[2].cause = 0;
  attempts = n; cancelled = ended; moved[0] = stale; moved[1] = 0; answer = 0; which = NONE;
  if
  :: kind == ASK_CLAIM -> admit_claim(0, x, y)
  :: kind == ASK_INTENT -> say_intent(x); which = NONE
  :: kind == ASK_OUTCOME -> record_outcome(x, y); answer = 0
  :: kind == ASK_CANCEL -> cancel_run(); answer = 0
  :: kind == ASK_GIVE_UP -> give_up(x); answer = 0
  fi;
  printf("T %d %d %d %d %d %d %d %d %d %d %d %d\n", n, state1, state2, second_cause, ended, stale, kind, x, y, answer, (which == NONE -> 0 : which + 1), moved[1])
}

inline questions() {
  for (one : 0 .. 3) {
    for (two : INITIAL .. RELAUNCH_AT) {
      if
      :: two != REEXECUTION && ((one == 0) == (two == INITIAL)) -> ask(ASK_CLAIM, one, two)
      :: else
      fi
    }
  }
  /* Only a claim asks whether the ledger moved. */
  for (one : (stale -> 3 : 0) .. 2) {
    ask(ASK_INTENT, one, 0);
    ask(ASK_GIVE_UP, one, 0);
    for (two : REFUSED .. DISPATCHED) { ask(ASK_OUTCOME, one, two) }
  }
  if
  :: !stale -> ask(ASK_CANCEL, 0, 0)
  :: else
  fi
}

init {
  for (n : 0 .. 2) {
    for (ended : 0 .. 1) {
      for (stale : 0 .. 1) {
        for (state1 : 0 .. (n > 0 -> 9 : 0)) {
          for (state2 : 0 .. (n > 1 -> 9 : 0)) {
            for (second_cause : RETRY .. (n > 1 -> RELAUNCH_AT : RETRY)) { questions() }
          }
        }
      }
    }
  }
}
