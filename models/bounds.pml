/* The bounds of the model, given with -D. Within them the check is exhaustive; beyond them it says nothing.
 *
 * KILLS, HOLDS and REFUSALS that are not given have no bound: then every kill, SIGSTOP and refused launch call that could happen may
 * happen, any number of times. That covers every smaller number, and makes fewer states than counting does.
 */
#ifndef CONTROLLERS
#define CONTROLLERS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2        /* claims of the run: the first attempt and what follows it */
#endif
#ifndef LINES
#define LINES 1           /* trainers of one attempt that are followed: more than one only where the start is not exclusive */
#endif
#ifndef CAUSES
#define CAUSES 2          /* ways on from one attempt: as a retry and a resume, as a relaunch from nothing and from a checkpoint */
#endif
#ifndef PERSON
#define PERSON 0          /* what a person decides, all in all: a cancellation, an attempt given up */
#endif
#define NONE 255

/* Steps between which nobody can interfere are joined. */
#ifdef COARSE
#define COARSE_MACHINE    /* start and fork; the lock, the process receipt, the look for the fence, and exec */
#define COARSE_LOOKS      /* the ledger and the locks; the process table and the terminals; a launcher's answer and its record */
#endif

/* kill -9 of a controller, a supervisor, a child, a supervisor with its child, or of a person's command. */
#ifdef KILLS
byte kills = KILLS;
#define MAY_KILL (kills > 0)
#define KILL kills--
#else
#define MAY_KILL true
#define KILL skip
#endif

/* SIGSTOP of a supervisor. Where it has no bound, nobody needs to be held: a supervisor that is never scheduled is as good as one, and any
 * look at the process table may find one that is stopped. Children need no SIGSTOP: they may take as long as they like anyway. */
#ifdef HOLDS
byte holds = HOLDS;
#endif

/* Launch calls that surely started nothing: a folder that cannot be made, no room before the claim or for a process, a supervisor that says
 * it did not start. The model believes them less than they deserve: what was launched may still start after its refusal. */
#ifdef REFUSALS
byte refusals = REFUSALS;
#define MAY_REFUSE (refusals > 0)
#define REFUSE refusals--
#else
#define MAY_REFUSE true
#define REFUSE skip
#endif

/* Work space inside one step: it means nothing between steps, and is no part of a state. The breadth-first search for the shortest story
 * knows no such variables; there they are cleared at the end of each step. */
#ifdef STORY
#define WORKSPACE
#else
#define WORKSPACE hidden
#endif

/* Of a run that a person may cancel. */
#if PERSON
bit closed;               /* concluded at this version: the run is cancelled and nothing of it lives. Nobody looks any more */
byte ending;              /* the attempt that a person's command bars and stops next, counted from 1; 0: no command is at it */
#endif
