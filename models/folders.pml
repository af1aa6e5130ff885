/* What lies in the attempts' folders, and what lives: written by the machine, looked at by the controllers.
 *
 * Supervisors that have not won a start are alike, so they are counted. One that has is a line; an attempt has more than one line only
 * where the start is not exclusive.
 */

/* A child, from the fork to its end. From LOCKED to RUNNING it holds the attempt's lock. */
#define NO_CHILD   0
#define BORN       1
#define SEEN       2      /* only where the fence is looked for before the lock is taken */
#define LOCKED     3
#define WRITTEN    4      /* process.json is there */
#define CHECKED    5      /* the fence was looked for, and was not there */
#define RUNNING    6      /* it is COMMAND */
#define ENDED      7
#define ENDED_WELL 8

/* A supervisor that won the start. */
#define NOBODY   0
#define BEGUN    1        /* start.json is there, nothing is forked */
#define WATCHING 2
#define GONE     3

#define OK     1
#define NOT_OK 2

typedef Line { unsigned supervisor : 2; unsigned child : 4; bit held };

typedef Folder {
  bit fenced; bit stop;
  unsigned terminal : 2;
  unsigned launched : 2;          /* supervisors, or jobs, that were launched and have not tried to win the start yet */
#ifdef START_NOT_EXCLUSIVE
  unsigned jobs : 2;      /* how many were launched, ever */
  bit ran;                /* COMMAND ran: only watched */
  bit process;            /* process.json is there */
#endif
#ifdef KEYED
  bit key;                /* what a launcher remembers that creates or gets by a key of its own */
#endif
  Line line[LINES]
};

Folder folder[ATTEMPTS];
unsigned live : 2;        /* trainers that run at this moment, of all attempts: only watched */

#define STARTED(a) (folder[a].line[0].supervisor != NOBODY)
#define HAS_LOCK(a, l) (folder[a].line[l].child >= LOCKED && folder[a].line[l].child <= RUNNING)
#ifdef NO_LOCK
#define LOCK_HELD(a) false
#elif LINES == 1
#define LOCK_HELD(a) HAS_LOCK(a, 0)
#else
#define LOCK_HELD(a) (HAS_LOCK(a, 0) || HAS_LOCK(a, 1))
#endif
/* What a look at the process table and the locks may find alive. start.json names the supervisor of the first line. */
#define AT_WORK(a) \
  ((folder[a].line[0].supervisor == BEGUN || folder[a].line[0].supervisor == WATCHING) && !folder[a].line[0].held)

/* An attempt with an exclusive start of which nothing lives will never do anything again: what lies in its folder makes no difference. */
#define OVER(a) (folder[a].line[0].supervisor == GONE && folder[a].line[0].child == ENDED)

inline over(a) {
#ifndef START_NOT_EXCLUSIVE
  if
  :: OVER(a) -> folder[a].fenced = 0; folder[a].stop = 0
  :: else
  fi
#else
  skip
#endif
}
