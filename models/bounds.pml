/* The bounds of the model, each to be given with -D. Within them the check is exhaustive; beyond them it says nothing. */
#ifndef CONTROLLERS
#define CONTROLLERS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2        /* claims of the run: the first attempt and what follows it */
#endif
#ifndef KILLS
#define KILLS 1           /* kill -9 of a controller, a supervisor, a child, or a supervisor with its child */
#endif
#ifndef HOLDS
#define HOLDS 1           /* SIGSTOP of a supervisor or a child */
#endif
#ifndef REFUSALS
#define REFUSALS 1        /* launch calls that surely started nothing: a full disk, a folder that cannot be made */
#endif
#ifndef LINES
#define LINES 1           /* start receipts of one attempt: more than one only where they are not exclusive */
#endif
#ifndef CAUSES
#define CAUSES 2          /* ways on from one attempt: as a retry and a resume, as a relaunch from nothing and from a checkpoint */
#endif
#define NONE 255
#ifndef PERSON
#define PERSON 0
#endif
