/* The alarm of one cell, on its way between the indexes of nodes and the entries of releases.
 *
 * The cell has an alarm that is due some day. Nodes 1 and 2 claim and release it, take it over from each other, write
 * their alarm index, and scan; any of them may stop at any time. The bucket has to tell of the alarm always. That the
 * index of a recovered node knows what its journal knew is in journal.pml: here an index stands for both.
 *
 * ZOMBIES: a node that was recovered may go on for a while, since it does not know yet.
 *
 * Each variant makes one rule false and must break the promise that stands beside it.
 *
 * holds with: -DZOMBIES=0
 * holds with: -DZOMBIES=1
 */
#define forget_entry        1  /* breaks alarm_is_told: a release writes none */
#define entry_after_release 2  /* breaks alarm_is_told: own.json first */
#define entry_gone_early    3  /* breaks alarm_is_told: deleted by the claim, before the index is written */
#define release_unknown     4  /* breaks alarm_is_told: a cell that was taken over and never looked into is released */
#define settle_for_owner    5  /* breaks alarm_is_told: an entry is settled because a node lives that owns the cell */
#define settle_unindexed    6  /* breaks alarm_is_told: a scanner settles what it owns before its index says so */
#define unconfirmed         7  /* breaks alarm_is_told: an index counts although its node was recovered before [-DZOMBIES=1] */
#include "promise.h"
#define EPOCHS 4
#define bit(i) (1 << (i))
#define me (_pid + 1)
#define other (3 - me)

/* The bucket. */
byte node = 1, epoch = 1;     /* own.json; node 0: released */
bool index[3], key[3];        /* wake/<node>/: tells of the alarm; is there at all */
byte entries;                 /* wake/unowned/: a bit for the epoch of each release */
bool recovered[3];
promise(alarm_is_told);
#define told ((node == 0 && (entries & bit(epoch))) || \
              (node != 0 && (index[1] || index[2] || (entries & (bit(epoch) - 1)))))
#define check must(alarm_is_told, told)

active [2] proctype Node() {
  bool owns, known, dirty, confirmed, releasing, loaded, settled;
  byte obsolete, at;
#define alive (ZOMBIES || !recovered[me])
  if :: atomic { me == 1 -> index[1] = true; key[1] = true; owns = true; known = true; confirmed = true; at = 1 } :: atomic { me == 2 && index[1] -> skip } fi;
  do
  /* Ownership::claim, of a released cell and of a dead node's; Recoverer::recover */
  :: atomic { alive && !owns && node == 0 && epoch < EPOCHS ->
              obsolete = bit(epoch); epoch++; node = me; at = epoch; owns = true; known = true; dirty = true;
              if :: broken(entry_gone_early) -> entries = entries & ~obsolete :: else fi; check }
  :: atomic { alive && !owns && node == other && epoch < EPOCHS ->
              recovered[other] = true; epoch++; node = me; at = epoch; owns = true; known = false; check }
  :: atomic { alive && owns && !known && !releasing -> known = true; dirty = true }    /* AlarmKeeper::restored */
  /* AlarmKeeper::checkpoint; then a renewal that is applied proves that nobody had read the index before */
  :: atomic { alive && dirty && !releasing -> index[me] = owns && known; key[me] = true; dirty = false; check }
  :: atomic { alive && owns && known && !dirty && !confirmed && (!recovered[me] || broken(unconfirmed)) -> confirmed = true }
  :: atomic { alive && confirmed && obsolete -> entries = entries & ~obsolete; obsolete = 0; check }
  /* Ownership::release */
  :: atomic { alive && owns && (known || broken(release_unknown)) && !releasing && !dirty -> releasing = true;
              if :: broken(forget_entry) || broken(entry_after_release) || !known -> skip
                 :: else -> entries = entries | bit(at) fi }
  :: atomic { alive && releasing ->
              if :: node == me && epoch == at -> node = 0; check :: else fi;
              if :: broken(entry_after_release) -> entries = entries | bit(at) :: else fi;
              owns = false; known = false; confirmed = false; releasing = false; dirty = true; obsolete = 0; at = 0 }
  /* WakeScanner: load_index of a recovered node, judge, delete what is settled */
  :: atomic { alive && !loaded && recovered[other] && key[other] -> loaded = true; settled = !index[other] }
  :: atomic { alive && loaded && !settled ->
              settled = (node == 0 || (node == me && owns && known && (confirmed || broken(settle_unindexed))) ||
                         (broken(settle_for_owner) && node == me)) }
  :: atomic { alive && loaded && settled -> index[other] = false; key[other] = false; loaded = false; settled = false; check }
  :: atomic { alive && (entries & (bit(epoch) - 1)) &&
              (node == 0 || (node == me && owns && known && (confirmed || broken(settle_unindexed))) || broken(settle_for_owner)) ->
              entries = entries & ~(bit(epoch) - 1); check }
  od
}
