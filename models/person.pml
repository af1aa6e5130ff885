/* A person at a command line: cancels the run and ends what was dispatched (app/deciding.py, end_here in app/acting.py), or gives an attempt
 * up. The command may be killed between any two steps, and is not repeated. */

byte acts = PERSON;
bit barring;              /* its fence was tried, its stop was not asked for yet */

proctype person() {
  do
  :: d_step { acts > 0 && !cancelled -> acts--; cancel_run(); ending = 1; printf("A person CANCELS the run.\n") }
#ifdef GIVES_UP
  :: d_step { acts > 0 && attempts > 0 -> acts--; k = attempts - 1; give_up(k); printf("A person GIVES UP attempt %d.\n", attempts); k = 0 }
#endif
  :: d_step { ending > 0 && !barring && (!attempt[ending - 1].intent || folder[ending - 1].terminal > 0) ->
       ending = (ending < ATTEMPTS -> ending + 1 : 0) }
  :: d_step { ending > 0 && !barring && attempt[ending - 1].intent && folder[ending - 1].terminal == 0 ->
       k = ending - 1;
       if
       :: !LOCK_HELD(k) -> folder[k].fenced = 1; over(k); printf("The person's command fences attempt %d.\n", ending)
       :: else
       fi;
       barring = 1; k = 0 }
  :: d_step { ending > 0 && barring ->
       k = ending - 1; folder[k].stop = 1; over(k); printf("The person's command stops attempt %d.\n", ending);
       barring = 0; ending = (ending < ATTEMPTS -> ending + 1 : 0); k = 0 }
  :: d_step { MAY_KILL && ending > 0 -> KILL; ending = 0; barring = 0; printf("The person's command is KILLED.\n") }
  od
}

/* A trainer that runs in a cancelled run which is closed, and was not asked to stop: nobody looks there any more. */
#define RUNS_ON(a) (folder[a].line[0].child == RUNNING && !folder[a].stop)
#define FORGOTTEN (closed && (RUNS_ON(0) || RUNS_ON(ATTEMPTS - 1)))

proctype watchman() {
  d_step { FORGOTTEN -> printf("A trainer runs in a run that is closed, and nobody will look.\n"); assert(false) }
}
