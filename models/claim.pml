/* The claim protocol: who may start a trainer, and when. models/check.py checks it, models/variants.py lists what is checked.
 *
 * It follows the program step by step. A transaction on the ledger, the exclusive creation of a receipt and a look at a folder are one
 * indivisible step each. Between any two steps everybody else may act; a controller, a supervisor or a child may be killed; a supervisor
 * may be held by SIGSTOP and go on later, or never. Time is not modelled: whoever waits may have waited long enough at any moment.
 *
 *   bounds.pml      how many of everything
 *   ledger.pml      one transaction each: run/claims.py, run/dispatch.py
 *   folders.pml     what lies in the folders, and what lives
 *   machine.pml     launchers, supervisors and their children
 *   controller.pml  controllers, from the look to the launch
 *   person.pml      a person gives an attempt up or cancels the run: at any time, PERSON acts in all
 *
 * COARSE joins steps between which nobody can interfere, and is what three controllers are checked with. The switches that break a rule on
 * purpose are listed in variants.py.
 */
#include "bounds.pml"
#include "ledger.pml"
#include "folders.pml"
#include "controller.pml"
#include "machine.pml"
#if PERSON
#include "person.pml"
#endif

init {
  atomic {
    byte n;
    for (n : 0 .. CONTROLLERS - 1) { run controls(n) }
    for (n : 0 .. ATTEMPTS - 1) { run machine(n, 0) }
#if LINES > 1
    for (n : 0 .. ATTEMPTS - 1) { run machine(n, 1) }
#endif
#if PERSON
    run person();
    run watchman();
#endif
    n = 0
  }
}

/* Whatever a bounded number of crashes does: somebody starts the run, or what follows is claimed. Checked with weak fairness: whoever can
 * take a step all the time takes one at last. */
#ifdef GOES_ON
ltl goes_on { <> (STARTED(0) || attempts > 1) }
#endif
